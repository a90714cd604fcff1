/* Vector loads and stores of 64 and 128 bits, through the read-only path, with cache operators, misfit types. */
extern "C" __global__ void vectors(const float4 *__restrict__ a, const int2 *__restrict__ b, double2 *out, uchar4 *bytes, const short4 *s)
{
    int t = threadIdx.x;
    float4 v = __ldg(&a[t]);
    int2 w = __ldcs(&b[t]);
    short4 h = __ldcg(&s[t]);
    out[t] = make_double2(v.x + v.y * 2 + v.z * 3 + v.w * 4, w.x - w.y);
    __stcs(&bytes[t], make_uchar4((unsigned char)w.x, (unsigned char)h.x, (unsigned char)h.y, (unsigned char)(h.z + h.w)));
}
