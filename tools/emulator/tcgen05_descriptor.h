/* Instruction descriptors of tcgen05.mma: shape, types and flags of a product. */
#ifndef FOSCAR_EMULATOR_TCGEN05_DESCRIPTOR_H
#define FOSCAR_EMULATOR_TCGEN05_DESCRIPTOR_H

#include "tensor.h"

/* How the elements of an operand lie in its 16-byte chunks: `bits` wide each, `per_chunk` of them from the low end. */
typedef struct element_layout {
    int bits, per_chunk, shift;
} element_layout;

typedef struct product_shape {
    int m, n, k;
    mma_type a, b;
    bool integer, half; /* accumulators: s32, f16, else f32 */
    bool saturate, negate_a, negate_b, a_mn_major, b_mn_major;
    bool packed; /* 4-bit elements without padding */
    mma_scale scale;
    int scales; /* factors of a row: k / block */
    uint32_t a_scale_id, b_scale_id;
} product_shape;

/* DESCRIPTOR if fields fit nothing, UNKNOWN_FORM for what is not executed. a_in_tmem: A comes from tensor memory. */
product_shape product_shape_decode(machine *m, const warp *w, const instruction *i, uint32_t bits, bool a_in_tmem);
/* in_tmem: 4-bit elements that are not packed are in the middle of a byte. */
element_layout product_element_layout(const product_shape *p, mma_type type, bool in_tmem);

#endif
