/* Matrix products: wgmma (registers and shared memory of a warpgroup) and tcgen05 (tensor memory). */
#ifndef FOSCAR_EMULATOR_TENSOR_H
#define FOSCAR_EMULATOR_TENSOR_H

#include "machine.h"

/* ---- Numbers (mma_numbers.c): no machine, tested by themselves ---- */

typedef enum mma_type { MMA_U8, MMA_S8, MMA_F16, MMA_BF16, MMA_E4M3, MMA_E5M2, MMA_E2M3, MMA_E3M2, MMA_E2M1, MMA_TF32 } mma_type;

/* How float products are summed. FAST: in float32, in any order. HOPPER, BLACKWELL: microsoft/MMA-Sim's model. */
typedef enum mma_model { MMA_FAST, MMA_HOPPER, MMA_BLACKWELL } mma_model;

/* Factors of blocks along k, one byte each. */
typedef enum mma_scale { MMA_SCALE_NONE, MMA_UE8M0, MMA_UE4M3 } mma_scale;

typedef struct mma_float_form {
    mma_model model;
    mma_type a, b;
    bool half;       /* accumulators are f16 */
    mma_scale scale; /* with block: elements of k that share a factor, 16 or 32 */
    int block;
} mma_float_form;

enum { MMA_K_MAX = 64, MMA_N_MAX = 256 };

/* d += a b of integers, k <= 32, n <= MMA_N_MAX: a [m][k], b [n][k] codes of 8 bits, d [m][n]; exact, wrapping (or saturating). */
void mma_integer(int m, int n, int k, mma_type a_type, const uint8_t *a, mma_type b_type, const uint8_t *b, int32_t *d, bool saturate);
/* d = a b + d of floats, one instruction's k <= MMA_K_MAX and n <= MMA_N_MAX: the elements a [m][k], b [n][k] are the bits of the types, one in
 * 32 bits (of tf32 its upper 19); the factors a_scale [m][k / block], b_scale [n][k / block] (or NULL); d [m][n] as float32 even where the accumulators are f16. */
void mma_float(const mma_float_form *how, int m, int n, int k, const uint32_t *a, const uint32_t *b, const uint8_t *a_scale,
               const uint8_t *b_scale, float *d);
float mma_widen(mma_type type, uint32_t bits);
float mma_widen_scale(mma_scale type, uint8_t bits);
uint16_t mma_half_bits(float value); /* of a float that is an f16, or rounded to nearest even */

/* ---- Handlers named in forms.def ---- */

void exec_wgmma_fence(warp *w, const instruction *i);
void exec_wgmma_commit_group(warp *w, const instruction *i);
void exec_wgmma_wait_group(warp *w, const instruction *i);
void exec_wgmma_mma_async(warp *w, const instruction *i);

/* mma_sync.c, matrix_move.c */
void exec_mma_sync(warp *w, const instruction *i);
void exec_wmma_mma(warp *w, const instruction *i);
void exec_wmma_load(warp *w, const instruction *i);
void exec_wmma_store(warp *w, const instruction *i);
void exec_ldmatrix(warp *w, const instruction *i);
void exec_stmatrix(warp *w, const instruction *i);
void exec_movmatrix(warp *w, const instruction *i);

void exec_tcgen05_alloc(warp *w, const instruction *i);
void exec_tcgen05_dealloc(warp *w, const instruction *i);
void exec_tcgen05_relinquish(warp *w, const instruction *i);
void exec_tcgen05_ld(warp *w, const instruction *i);
void exec_tcgen05_st(warp *w, const instruction *i);
void exec_tcgen05_wait(warp *w, const instruction *i);
void exec_tcgen05_fence(warp *w, const instruction *i);
void exec_tcgen05_mma(warp *w, const instruction *i);
void exec_tcgen05_commit(warp *w, const instruction *i);
void exec_tcgen05_cp(warp *w, const instruction *i);

/* ---- Life ---- */

void tensor_warp_start(warp *w);
void tensor_warp_finish(warp *w); /* frees: when the block is over, not when the warp is; w->tensor may be NULL */
/* At the end of a block: EXIT if products are outstanding, TMEM if tensor memory is not freed. */
void tensor_block_end(machine *m);
void tensor_block_finish(machine *m);

#endif
