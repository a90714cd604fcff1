/* f16 and bf16, single and in pairs: arithmetic, comparisons, conversions, functions. */
#include <cuda_fp16.h>
#include <cuda_bf16.h>

extern "C" __global__ void halves(const __half2 *a, const __half2 *b, __half2 *out, unsigned *flags, const __nv_bfloat162 *c, __nv_bfloat162 *bout, int n)
{
    int t = threadIdx.x;
    __half2 x = a[t], y = b[t];
    out[t] = __hadd2(x, y);
    out[n + t] = __hfma2(x, y, x);
    out[2 * n + t] = __h2div(x, y);
    out[3 * n + t] = __hmax2(x, y);
    out[4 * n + t] = __hmin2_nan(x, y);
    out[5 * n + t] = h2sqrt(__habs2(x));
    out[6 * n + t] = h2exp2(y);
    out[7 * n + t] = __hneg2(__hsub2_sat(x, y));
    out[8 * n + t] = __hgt2(x, y);
    out[9 * n + t] = h2floor(x);
    flags[t] = __hbeq2(x, x) | __hblt2(x, y) << 1 | __hbgeu2(x, y) << 2 | (__heq(x.x, y.x) ? 8 : 0) | (__hgtu(x.y, y.y) ? 16 : 0) | __hisnan(y.x) << 5;
    flags[n + t] = __heq2_mask(x, y) ^ __hle2_mask(x, y);
    flags[2 * n + t] = (unsigned)__half2int_rn(x.x) + (unsigned)__half2uint_rz(__habs(x.y)) + __half_as_ushort(__int2half_rn(t * 37)) + __half_as_ushort(__double2half(t * 0.37));
    __nv_bfloat162 p = c[t];
    bout[t] = __hfma2(p, p, p);
    bout[n + t] = __hmul2(p, __float2bfloat162_rn(1.5f));
    bout[2 * n + t] = __hmax2(p, __hneg2(p));
    bout[3 * n + t] = __hsub2(p, __floats2bfloat162_rn(0.25f, t * 0.1f));
    bout[4 * n + t] = h2exp(p);
    flags[3 * n + t] = __hlt2_mask(p, __hneg2(p)) + (__hne(p.x, p.y) ? 3 : 1) + (__hbge2(p, p) ? 64 : 0);
    out[10 * n + t] = __floats2half2_rn(__bfloat162float(p.x), __half2float(x.y));
    out[11 * n + t] = __halves2half2(hsin(x.x), hlog(__habs(y.y)));
    out[12 * n + t] = __halves2half2(htanh(x.x), hrcp(y.y));
    out[13 * n + t] = __hcmadd(x, y, x);
}
