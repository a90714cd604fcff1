/* Static and dynamic shared memory: a tree of sums, and a transposition through a padded tile. */
extern __shared__ float dynamic[];

extern "C" __global__ void shared(const float *in, float *out, float *sums, int n)
{
    __shared__ float tile[16][17];
    int x = threadIdx.x, y = threadIdx.y, t = y * blockDim.x + x;
    tile[y][x] = in[t];
    dynamic[t] = in[t];
    __syncthreads();
    out[t] = tile[x][y];
    for (int half = n / 2; half > 0; half /= 2) {
        if (t < half) dynamic[t] += dynamic[t + half];
        __syncthreads();
    }
    if (t == 0) sums[0] = dynamic[0];
}
