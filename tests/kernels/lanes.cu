/* Shuffles, votes, matches, reductions between lanes. */
extern "C" __global__ void lanes(const int *in, int *out)
{
    int t = threadIdx.x, v = in[t];
    unsigned all = 0xffffffffu;
    int sum = v;
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(all, sum, d);
    out[t] = sum;
    out[32 + t] = __shfl_up_sync(all, v, 3) + __shfl_down_sync(all, v, 5, 16) + __shfl_sync(all, v, t + 1);
    out[64 + t] = (int)__ballot_sync(all, v > 5) + __any_sync(all, v == 3) + __all_sync(all, v < 100);
    out[96 + t] = (int)__match_any_sync(all, v);
    int same;
    unsigned mask = __match_all_sync(all, v / 1000, &same);
    out[128 + t] = (int)mask + same;
    out[160 + t] = __reduce_add_sync(all, v) + __reduce_min_sync(all, v) + (int)__reduce_xor_sync(all, (unsigned)v);
    long long wide = (long long)v << 33;
    double d = v * 0.5;
    out[192 + t] = (int)(__shfl_sync(all, wide, 31 - t) >> 33) + (int)__shfl_down_sync(all, d, 1);
    if (t & 1) out[224 + t] = (int)__activemask() + __shfl_sync(__activemask(), v, 1);
    else out[224 + t] = (int)__popc(__ballot_sync(0x55555555u, v & 2));
}
