/* Integer division of all widths, with 128-bit products and carries. */
extern "C" __global__ void division(const unsigned long long *a, const unsigned long long *b, unsigned long long *out, int n)
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    unsigned long long x = a[t], y = b[t] | 1;
    out[t] = x / y;
    out[n + t] = x % y;
    out[2 * n + t] = (unsigned long long)((long long)x / (long long)y);
    out[3 * n + t] = (unsigned)x / ((unsigned)y | 1);
    out[4 * n + t] = (unsigned long long)(long long)((int)x % (int)((unsigned)y | 1));
    unsigned __int128 wide = (unsigned __int128)x * y + a[n - 1 - t];
    out[5 * n + t] = (unsigned long long)(wide >> 64) ^ (unsigned long long)wide;
    wide = (wide << 3) - x;
    out[6 * n + t] = (unsigned long long)(wide >> 64);
    out[7 * n + t] = (unsigned long long)((unsigned __int128)wide / y);
    out[8 * n + t] = __umul64hi(x, y) + __popcll(x) + __clzll((long long)y) + __ffsll((long long)x) + __brevll(x) + __byte_perm((unsigned)x, (unsigned)y, 0x6543);
    unsigned low, high;
    asm("{\n\t.reg .u32 t;\n\tadd.cc.u32 %0, %2, %3;\n\taddc.u32 %1, %4, %5;\n\t}" : "=r"(low), "=r"(high) : "r"((unsigned)x), "r"((unsigned)y), "r"((unsigned)(x >> 32)), "r"((unsigned)(y >> 32)));
    out[9 * n + t] = (unsigned long long)high << 32 | low;
    out[10 * n + t] = __dp4a((int)x, (int)y, 5) + (unsigned)__sad((int)x, (int)y, 3u) + __funnelshift_l((unsigned)x, (unsigned)y, 7) + __mulhi((int)x, (int)y) + __vadd2((unsigned)x, (unsigned)y) + __viaddmax_s32((int)x, 5, (int)y);
}
