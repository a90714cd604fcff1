/* assert: fails for the index that `bad` names. */
#include <cassert>

extern "C" __global__ void asserts(const int *in, int *out, int bad)
{
    int t = threadIdx.x;
    assert(t != bad && "no bad thread");
    out[t] = in[t] + 1;
}
