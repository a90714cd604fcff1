/* Slow paths of the float library: sinf and cosf of large arguments (Payne and Hanek), powf, tanf, expf, logf, fmodf, erff, tgammaf. */
extern "C" __global__ void trigonometry(const float *x, float *out, int n)
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    float v = x[t];
    out[t] = sinf(v);
    out[n + t] = cosf(v);
    out[2 * n + t] = tanf(v);
    out[3 * n + t] = powf(fabsf(v), 0.3f);
    out[4 * n + t] = expf(-fabsf(v) * 0.01f);
    out[5 * n + t] = logf(fabsf(v) + 0.5f);
    out[6 * n + t] = fmodf(v, 3.7f);
    out[7 * n + t] = erff(v * 0.001f);
    out[8 * n + t] = 1.0f / v;
    out[9 * n + t] = v / 3.3f;
    out[10 * n + t] = rsqrtf(fabsf(v) + 1);
    out[11 * n + t] = cbrtf(v);
    out[12 * n + t] = __sinf(v * 1e-5f) + __cosf(v * 1e-5f) + __tanf(0.1f) + __expf(0.5f) + __logf(2.5f);
    out[13 * n + t] = hypotf(v, 4.0f);
    out[14 * n + t] = tanhf(v * 0.01f);
}
