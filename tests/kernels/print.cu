/* printf of all kinds of arguments. */
#include <cstdio>

extern "C" __global__ void print(int n, double x, const char *name)
{
    if (threadIdx.x < n) printf("thread %d of %s: %5.2f %c %llx %u%%\n", threadIdx.x, name, x * threadIdx.x, 'a' + threadIdx.x, 0x123456789abcull * (threadIdx.x + 1), 7u);
    if (threadIdx.x == 0) printf("done\n");
}
