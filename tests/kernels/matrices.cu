/* wmma: products of f16 with f32 and f16 sums, bf16, tf32, s8, f64, through the fragments of mma.h. */
#include <mma.h>
using namespace nvcuda;

extern "C" __global__ void wmma_half(const __half *a, const __half *b, const float *c, float *d, __half *dh)
{
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fragment<wmma::accumulator, 16, 16, 16, __half> fh;
    wmma::load_matrix_sync(fa, a, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::load_matrix_sync(fc, c, 16, wmma::mem_row_major);
    wmma::fill_fragment(fh, __float2half(1.0f));
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::mma_sync(fh, fa, fb, fh);
    wmma::store_matrix_sync(d, fc, 16, wmma::mem_row_major);
    wmma::store_matrix_sync(dh, fh, 16, wmma::mem_col_major);
}

extern "C" __global__ void wmma_wide(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *d, const signed char *ia, const signed char *ib, int *id)
{
    wmma::fragment<wmma::matrix_a, 32, 8, 16, __nv_bfloat16, wmma::col_major> fa;
    wmma::fragment<wmma::matrix_b, 32, 8, 16, __nv_bfloat16, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, 32, 8, 16, float> fc;
    wmma::load_matrix_sync(fa, a, 32);
    wmma::load_matrix_sync(fb, b, 8);
    wmma::fill_fragment(fc, 0.0f);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(d, fc, 8, wmma::mem_row_major);
    wmma::fragment<wmma::matrix_a, 16, 16, 16, signed char, wmma::row_major> xa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, signed char, wmma::col_major> xb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, int> xc;
    wmma::load_matrix_sync(xa, ia, 16);
    wmma::load_matrix_sync(xb, ib, 16);
    wmma::fill_fragment(xc, 3);
    wmma::mma_sync(xc, xa, xb, xc);
    wmma::store_matrix_sync(id, xc, 16, wmma::mem_row_major);
}

extern "C" __global__ void wmma_precise(const float *a, const float *b, float *d, const double *da, const double *db, double *dd)
{
    wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 8, float> fc;
    wmma::load_matrix_sync(fa, a, 8);
    wmma::load_matrix_sync(fb, b, 8);
    for (int i = 0; i < fa.num_elements; i++) fa.x[i] = wmma::__float_to_tf32(fa.x[i]);
    for (int i = 0; i < fb.num_elements; i++) fb.x[i] = wmma::__float_to_tf32(fb.x[i]);
    wmma::fill_fragment(fc, 0.5f);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(d, fc, 16, wmma::mem_row_major);
    wmma::fragment<wmma::matrix_a, 8, 8, 4, double, wmma::row_major> ga;
    wmma::fragment<wmma::matrix_b, 8, 8, 4, double, wmma::col_major> gb;
    wmma::fragment<wmma::accumulator, 8, 8, 4, double> gc;
    wmma::load_matrix_sync(ga, da, 4);
    wmma::load_matrix_sync(gb, db, 4);
    wmma::fill_fragment(gc, 0.25);
    wmma::mma_sync(gc, ga, gb, gc);
    wmma::store_matrix_sync(dd, gc, 8, wmma::mem_row_major);
}
