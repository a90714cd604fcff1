/* Local memory: an array that is indexed at run time, alloca, a struct whose address is taken. */
extern "C" __global__ void stack(const int *in, int *out, int n)
{
    int t = threadIdx.x, sorted[8];
    for (int i = 0; i < 8; i++) sorted[i] = in[(t * 8 + i) % n];
    for (int i = 1; i < 8; i++)
        for (int j = i; j > 0 && sorted[j - 1] > sorted[j]; j--) {
            int kept = sorted[j];
            sorted[j] = sorted[j - 1];
            sorted[j - 1] = kept;
        }
    out[t] = sorted[in[t] % 8] * 1000 + sorted[0];
    int *more = (int *)alloca((t % 4 + 1) * sizeof(int));
    for (int i = 0; i <= t % 4; i++) more[i] = i * t;
    out[32 + t] = more[in[t] % (t % 4 + 1)];
}
