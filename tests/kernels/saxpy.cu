/* The example of `foscar check --help`: y = a x + y. */
extern "C" __global__ void saxpy(int n, float a, const float *x, float *y)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) y[i] = a * x[i] + y[i];
}
