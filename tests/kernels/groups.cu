/* Cooperative groups: tiles, coalesced threads, reductions. */
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;

extern "C" __global__ void groups(const int *in, int *out)
{
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<8> tile = cg::tiled_partition<8>(block);
    int t = (int)block.thread_rank(), n = (int)block.num_threads(), v = in[t];
    out[t] = cg::reduce(tile, v, cg::plus<int>());
    out[n + t] = cg::reduce(tile, v, cg::greater<int>());
    out[2 * n + t] = cg::inclusive_scan(tile, v);
    if (v % 3 == 0) {
        cg::coalesced_group some = cg::coalesced_threads();
        out[3 * n + t] = (int)some.num_threads() * 100 + (int)some.thread_rank();
    } else {
        out[3 * n + t] = -1;
    }
    float f = cg::reduce(tile, v * 0.5f, cg::plus<float>());
    out[4 * n + t] = (int)(2 * f);
    block.sync();
}
