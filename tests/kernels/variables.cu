/* Module variables with initialisers: numbers, strings, addresses of other variables, arrays of structs. */
struct row {
    const char *name;
    int value;
    float weight;
};

__device__ int counter = 5;
__device__ float bias[4] = {0.5f, -1.25f, 3.0f};
__device__ double wide = 2.5;
__constant__ int primes[6] = {2, 3, 5, 7, 11, 13};
__device__ const char text[] = "tiles";
__device__ row rows[3] = {{"one", 1, 0.25f}, {"twelve", 12, 4.0f}, {"hundred", 100, -2.0f}};
__device__ int *where = &counter;
__device__ const int *end = primes + 4;
__device__ unsigned char bytes[5] = {1, 2, 250};
__device__ long long untouched[3];

__device__ static int length(const char *s)
{
    int n = 0;
    while (s[n]) n++;
    return n;
}

extern "C" __global__ void variables(float *out)
{
    int t = threadIdx.x;
    int sum = primes[t % 6] + length(rows[t % 3].name) * rows[t % 3].value + bytes[t % 5] + text[t % 6] + (int)untouched[t % 3];
    out[t] = sum + bias[t % 4] + rows[t % 3].weight + (float)wide;
    if (t == 0) {
        out[blockDim.x] = (float)(*where + *end);
        atomicAdd(&counter, 2);
        bias[3] = 7;
    }
}
