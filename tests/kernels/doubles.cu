/* Arithmetic in double, with the library's slow paths, and conversions. */
extern "C" __global__ void doubles(const double *x, double *out, long long *whole, int n)
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    double v = x[t];
    out[t] = sin(v);
    out[n + t] = exp(v * 1e-3);
    out[2 * n + t] = log(fabs(v) + 1);
    out[3 * n + t] = pow(fabs(v), 1.7);
    out[4 * n + t] = 1.0 / v;
    out[5 * n + t] = sqrt(fabs(v));
    out[6 * n + t] = v / 7.1;
    out[7 * n + t] = rsqrt(fabs(v) + 1);
    out[8 * n + t] = fma(v, v, -1.0);
    out[9 * n + t] = floor(v) + trunc(v * 0.5) + rint(v * 0.25);
    out[10 * n + t] = fmin(v, 2.0) + fmax(v, -2.0) + copysign(3.0, v);
    out[11 * n + t] = __dadd_rd(v, 0.1) - __dadd_ru(v, 0.1) + __dmul_rz(v, 0.3) + __fma_rn(v, 0.1, 0.2);
    whole[t] = (long long)v + (long long)(unsigned)(float)fabs(v) + (v > 3 ? 1 : 0) + (isnan(v) ? 5 : 0) + __double2int_rn(v);
    out[12 * n + t] = (float)v + (double)(int)(t * 3) + (double)(unsigned long long)t + (float)(long long)t;
}
