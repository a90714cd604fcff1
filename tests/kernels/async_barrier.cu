/* cuda::barrier and cuda::pipeline of libcu++: mbarriers with tokens, cp.async.mbarrier.arrive. */
#include <cuda/barrier>
#include <cuda/ptx>

extern "C" __global__ void async_barrier(const int *in, int *out, int rounds)
{
    __shared__ alignas(8) unsigned char place[sizeof(cuda::barrier<cuda::thread_scope_block>)];
    auto &barrier = *(cuda::barrier<cuda::thread_scope_block> *)place;
    __shared__ alignas(16) int tile[128];
    int t = threadIdx.x;
    if (t == 0) init(&barrier, blockDim.x);
    __syncthreads();
    int sum = 0;
    for (int r = 0; r < rounds; r++) {
        cuda::memcpy_async(&tile[t], &in[r * 128 + t], sizeof(int), barrier);
        barrier.arrive_and_wait();
        sum += tile[127 - t];
        barrier.arrive_and_wait();
    }
    out[t] = sum;
}
