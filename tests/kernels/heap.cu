/* malloc and free in a kernel. */
extern "C" __global__ void heap(int *out, int n)
{
    int t = threadIdx.x;
    int *own = (int *)malloc(n * sizeof(int));
    if (own == nullptr) return;
    for (int i = 0; i < n; i++) own[i] = t * i;
    int sum = 0;
    for (int i = 0; i < n; i++) sum += own[i];
    out[t] = sum;
    free(own);
}
