/* mma.sync of every type, its fragments loaded element by element; ldmatrix, stmatrix, movmatrix. */
#include <cuda_fp16.h>
#include <cstdint>

__device__ static uint32_t at32(const void *base, int bytes) { return *(const uint32_t *)((const char *)base + bytes); }

/* d [16][8] = a [16][k] b^T [8][k] + c, elements of 16 bits, k = 16 */
extern "C" __global__ void mma_f16(const __half *a, const __half *b, const float *c, float *d)
{
    int l = threadIdx.x, g = l / 4, q = l % 4;
    uint32_t x[4], y[2];
    for (int r = 0; r < 4; r++) x[r] = at32(a, ((g + 8 * (r & 1)) * 16 + 2 * q + 8 * (r / 2)) * 2);
    for (int r = 0; r < 2; r++) y[r] = at32(b, (g * 16 + 2 * q + 8 * r) * 2);
    float s[4];
    for (int r = 0; r < 4; r++) s[r] = c[(g + 8 * (r / 2)) * 8 + 2 * q + (r & 1)];
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]) : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    for (int r = 0; r < 4; r++) d[(g + 8 * (r / 2)) * 8 + 2 * q + (r & 1)] = s[r];
}

/* The same through shared memory and ldmatrix; the result goes by stmatrix as f16. */
extern "C" __global__ void mma_matrices(const __half *a, const __half *b, __half *d, __half *turned)
{
    __shared__ alignas(16) __half sa[16 * 16], sb[16 * 8], sd[16 * 8];
    int l = threadIdx.x;
    for (int i = l; i < 256; i += 32) sa[i] = a[i];
    for (int i = l; i < 128; i += 32) sb[i] = b[i];
    __syncwarp();
    uint32_t x[4], y[2], s[2] = {0, 0}, t;
    uint32_t from_a = (uint32_t)__cvta_generic_to_shared(&sa[(l % 16) * 16 + 8 * (l / 16)]);
    uint32_t from_b = (uint32_t)__cvta_generic_to_shared(&sb[(l % 16) * 8]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(from_a));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(y[0]), "=r"(y[1]) : "r"(from_b));
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};"
                 : "+r"(s[0]), "+r"(s[1]) : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    uint32_t to = (uint32_t)__cvta_generic_to_shared(&sd[(l % 16) * 8]);
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1,%2};" :: "r"(to), "r"(s[0]), "r"(s[1]));
    __syncwarp();
    for (int i = l; i < 128; i += 32) d[i] = sd[i];
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(t) : "r"(s[0]));
    ((uint32_t *)turned)[l] = t;
}

/* 8-bit integers, m16n8k32: a signed, b unsigned. */
extern "C" __global__ void mma_s8(const int8_t *a, const uint8_t *b, const int *c, int *d)
{
    int l = threadIdx.x, g = l / 4, q = l % 4;
    uint32_t x[4], y[2];
    int s[4];
    for (int r = 0; r < 4; r++) x[r] = at32(a, (g + 8 * (r & 1)) * 32 + 4 * q + 16 * (r / 2));
    for (int r = 0; r < 2; r++) y[r] = at32(b, g * 32 + 4 * q + 16 * r);
    for (int r = 0; r < 4; r++) s[r] = c[(g + 8 * (r / 2)) * 8 + 2 * q + (r & 1)];
    asm volatile("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(s[0]), "+r"(s[1]), "+r"(s[2]), "+r"(s[3]) : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    for (int r = 0; r < 4; r++) d[(g + 8 * (r / 2)) * 8 + 2 * q + (r & 1)] = s[r];
}

/* 4-bit integers, m16n8k64. */
extern "C" __global__ void mma_s4(const uint32_t *a, const uint32_t *b, int *d)
{
    int l = threadIdx.x, g = l / 4, q = l % 4;
    uint32_t x[4], y[2];
    int s[4] = {0, 0, 0, 0};
    for (int r = 0; r < 4; r++) x[r] = a[(g + 8 * (r & 1)) * 8 + q + 4 * (r / 2)];
    for (int r = 0; r < 2; r++) y[r] = b[g * 8 + q + 4 * r];
    asm volatile("mma.sync.aligned.m16n8k64.row.col.s32.s4.u4.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(s[0]), "+r"(s[1]), "+r"(s[2]), "+r"(s[3]) : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    for (int r = 0; r < 4; r++) d[(g + 8 * (r / 2)) * 8 + 2 * q + (r & 1)] = s[r];
}

/* tf32, m16n8k8, and bf16, m16n8k8. */
extern "C" __global__ void mma_tf32(const float *a, const float *b, float *d, const uint16_t *ba, const uint16_t *bb, float *bd)
{
    int l = threadIdx.x, g = l / 4, q = l % 4;
    uint32_t x[4], y[2];
    float s[4] = {0, 0, 0, 0}, u[4] = {1, 1, 1, 1};
    for (int r = 0; r < 4; r++) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(x[r]) : "f"(a[(g + 8 * (r & 1)) * 8 + q + 4 * (r / 2)]));
    for (int r = 0; r < 2; r++) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y[r]) : "f"(b[g * 8 + q + 4 * r]));
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]) : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    for (int r = 0; r < 2; r++) x[r] = at32(ba, ((g + 8 * r) * 8 + 2 * q) * 2);
    y[0] = at32(bb, (g * 8 + 2 * q) * 2);
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(u[0]), "+f"(u[1]), "+f"(u[2]), "+f"(u[3]) : "r"(x[0]), "r"(x[1]), "r"(y[0]));
    for (int r = 0; r < 4; r++) {
        d[(g + 8 * (r / 2)) * 8 + 2 * q + (r & 1)] = s[r];
        bd[(g + 8 * (r / 2)) * 8 + 2 * q + (r & 1)] = u[r];
    }
}

/* e4m3 times e5m2, m16n8k32. */
extern "C" __global__ void mma_fp8(const uint8_t *a, const uint8_t *b, float *d)
{
    int l = threadIdx.x, g = l / 4, q = l % 4;
    uint32_t x[4], y[2];
    float s[4] = {0, 0, 0, 0};
    for (int r = 0; r < 4; r++) x[r] = at32(a, (g + 8 * (r & 1)) * 32 + 4 * q + 16 * (r / 2));
    for (int r = 0; r < 2; r++) y[r] = at32(b, g * 32 + 4 * q + 16 * r);
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]) : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    for (int r = 0; r < 4; r++) d[(g + 8 * (r / 2)) * 8 + 2 * q + (r & 1)] = s[r];
}

/* double, m8n8k4. */
extern "C" __global__ void mma_f64(const double *a, const double *b, const double *c, double *d)
{
    int l = threadIdx.x, g = l / 4, q = l % 4;
    double s[2] = {c[g * 8 + 2 * q], c[g * 8 + 2 * q + 1]};
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};" : "+d"(s[0]), "+d"(s[1]) : "d"(a[g * 4 + q]), "d"(b[g * 4 + q]));
    d[g * 8 + 2 * q] = s[0];
    d[g * 8 + 2 * q + 1] = s[1];
}
