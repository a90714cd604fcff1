/* cp.async in a pipeline of two stages: groups, and waits for all but the newest. */
#include <cuda_pipeline.h>

extern "C" __global__ void async_copy(const float4 *in, float *out, int tiles)
{
    __shared__ float4 stage[2][64];
    int t = threadIdx.x;
    float sum = 0;
    __pipeline_memcpy_async(&stage[0][t], &in[t], sizeof(float4));
    __pipeline_commit();
    for (int k = 0; k < tiles; k++) {
        if (k + 1 < tiles) __pipeline_memcpy_async(&stage[(k + 1) % 2][t], &in[(k + 1) * 64 + t], sizeof(float4));
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        float4 v = stage[k % 2][63 - t];
        sum += v.x + 2 * v.y + 3 * v.z + 4 * v.w;
        __syncthreads();
    }
    out[t] = sum;
}
