/* Device functions: calls with values, structs by value and by pointer, recursion, and a call that only some lanes make. */
struct pair {
    int a;
    float b;
    double c;
};

__device__ __noinline__ int triangle(int n)
{
    return n * (n + 1) / 2;
}

__device__ __noinline__ unsigned gcd(unsigned a, unsigned b)
{
    return b == 0 ? a : gcd(b, a % b) + 0 * a;
}

__device__ __noinline__ int fibonacci(int n)
{
    if (n < 2) return n;
    return fibonacci(n - 1) + fibonacci(n - 2);
}

__device__ __noinline__ pair mix(pair p, int k)
{
    p.a += k;
    p.b *= 2;
    p.c -= p.a;
    return p;
}

__device__ __noinline__ void swap_ends(int *values, int count)
{
    int kept = values[0];
    values[0] = values[count - 1];
    values[count - 1] = kept;
}

extern "C" __global__ void calls(int *out, double *sums, int n)
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    int local[4] = {t, t + 1, t + 2, t + 3};
    swap_ends(local, 2 + t % 3);
    int value = triangle(t) + local[t % 4];
    if (t & 1) value += fibonacci(t % 9);
    value += (int)gcd(12 * t + 6, 18);
    out[t] = value;
    pair p = {t, t * 0.5f, 3.0};
    p = mix(p, value);
    sums[t] = p.a + p.b + p.c;
}
