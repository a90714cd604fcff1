/* Softmax: the maxima of the following block, and exponentials of the current one relative to its own maximum: P' = 2^(score' - reference), the
 * weight times the V scale, as three unsigned 8-bit limbs.
 *
 * The reference of a head is its largest score' in the block less 22.9, so that P' lies below 2^23 and adding 2^23 leaves it as an integer in the
 * mantissa. The running sums l, z and O are in units of 2^reference of the block last added. */
#include "decode.h"

#include <math.h>

static const float magic = 8388608.0f; /* 2^23 */
/* log2 of how far below the highest so far a reference may lie. A block adds at most 2^(22.9 + 40 + 8) to z, in units of its own reference, where 2^40 is
   the largest |V minimum| over the least V scale and 2^8 the tokens; with what lies `depth` higher, the sums of 2^12 blocks stay within float32. */
static const float depth = 40;

/* Tokens past the end of the sequence get no weight, whatever the page holds there. */
static void mask_tail(decode *d, ptx_value tokens_left)
{
    ptx_builder *b = d->b;
    const decode_plan *p = d->p;
    ptx_scope_push(b, "mask");
    ptx_value full = ptx_setp_ge(b, tokens_left, ptx_imm(p->block_tokens)), done = ptx_label_new(b, "block_is_full");
    ptx_guard(b, full);
    ptx_bra_uni(b, done);
    ptx_value first_token = decode_first_token(d);
    for (int acc = 0; acc < p->accumulators; acc++) {
        for (int h = 0; h < 2; h++) {
            ptx_value token = ptx_add(b, first_token, ptx_imm(32 * h + acc)), inside = ptx_setp_lt(b, token, tokens_left);
            for (int e = 0; e < p->thread_heads; e++)
                ptx_selp_f32_to(b, d->next_score[acc][h][e], d->next_score[acc][h][e], ptx_fimm(-INFINITY), inside);
        }
    }
    ptx_label_place(b, done);
    ptx_scope_pop(b);
}

/* Two sets of maxima alternate: a warp may store those of a block while another still reads those of the block before. */
static ptx_value maxima_of(decode *d, ptx_value base, ptx_value block)
{
    ptx_builder *b = d->b;
    return ptx_mad_lo(b, ptx_and(b, block, ptx_imm(1)), ptx_imm(EXCHANGE_SET), base);
}

/* Of a warp's tokens: each head's largest score', into the exchange area. */
static void store_maxima(decode *d, ptx_value block)
{
    ptx_builder *b = d->b;
    const decode_plan *p = d->p;
    ptx_value maxima[MAX_THREAD_HEADS];
    for (int e = 0; e < p->thread_heads; e++) {
        maxima[e] = ptx_mov_f32(b, d->next_score[0][0][e]);
        for (int acc = 0; acc < p->accumulators; acc++)
            for (int h = 0; h < 2; h++)
                if (acc + h > 0) ptx_max_f32_to(b, maxima[e], maxima[e], d->next_score[acc][h][e]);
    }
    for (int e = 0; e < p->thread_heads; e++)
        for (int delta = decode_head_lanes(p); delta < 32; delta *= 2)
            ptx_max_f32_to(b, maxima[e], maxima[e], ptx_shfl_bfly_f32(b, maxima[e], ptx_imm(delta), ptx_imm(31), ptx_imm(WARP_MASK)));

    /* lanes that hold the same head write the same value to the same place */
    ptx_value slot = maxima_of(d, d->exchange_slot, block);
    for (int e = 0; e < p->thread_heads; e++)
        ptx_st_shared_f32(b, ptx_at(slot, EXCHANGE_MAXIMA + decode_head_offset(e) * 16), ptx_add_f32(b, maxima[e], ptx_fimm(-22.9f)));
}

static ptx_value largest_of_warps(ptx_builder *b, ptx_value address)
{
    ptx_value warps[4];
    ptx_ld_shared_v4_f32(b, warps, address);
    ptx_value largest = ptx_max_f32(b, warps[0], warps[1]);
    return ptx_max_f32(b, largest, ptx_max_f32(b, warps[2], warps[3]));
}

void stage_softmax_maxima(decode *d, const cursor *c, ptx_value block)
{
    ptx_scope_push(d->b, "v");
    mask_tail(d, decode_tokens_left(d, c, block));
    ptx_scope_push(d->b, "maximum");
    store_maxima(d, block);
    ptx_scope_pop(d->b);
    ptx_scope_pop(d->b);
}

void stage_softmax_reference(decode *d, ptx_value block)
{
    ptx_builder *b = d->b;
    ptx_scope_push(b, "v");
    ptx_scope_push(b, "maximum");
    ptx_value row = maxima_of(d, d->exchange_row, block);
    for (int e = 0; e < d->p->thread_heads; e++) {
        ptx_value largest = largest_of_warps(b, ptx_at(row, EXCHANGE_MAXIMA + decode_head_offset(e) * 16));
        ptx_max_f32_to(b, d->block_reference[e], largest, d->floor[e]);
        ptx_max_f32_to(b, d->floor[e], d->floor[e], ptx_add_f32(b, largest, ptx_fimm(-depth)));
    }
    ptx_scope_pop(b);
    ptx_scope_pop(b);
}

/* Writes the limbs of neighbouring tokens: `tokens` words of P' in units of 1, as bytes of three rows. */
static void store_limbs(decode *d, const ptx_value *u, int tokens, ptx_value address)
{
    ptx_builder *b = d->b;
    uint32_t row = d->p->p_sbo; /* limbs are 8 columns apart */
    if (tokens == 4) {
        ptx_value low = ptx_prmt(b, u[0], u[1], ptx_imm(0x5140)), high = ptx_prmt(b, u[2], u[3], ptx_imm(0x5140));
        ptx_value low2 = ptx_prmt(b, u[0], u[1], ptx_imm(0x0062)), high2 = ptx_prmt(b, u[2], u[3], ptx_imm(0x0062));
        ptx_st_shared_b32(b, ptx_at(address, 0), ptx_prmt(b, low2, high2, ptx_imm(0x5410)));
        ptx_st_shared_b32(b, ptx_at(address, row), ptx_prmt(b, low, high, ptx_imm(0x7632)));
        ptx_st_shared_b32(b, ptx_at(address, 2 * row), ptx_prmt(b, low, high, ptx_imm(0x5410)));
    } else if (tokens == 2) {
        for (int limb = 0; limb < 3; limb++) {
            int at = 2 - limb;
            ptx_st_shared_b16(b, ptx_at(address, limb * row), ptx_prmt(b, u[0], u[1], ptx_imm(at | (at + 4) << 4)));
        }
    } else {
        ptx_st_shared_b8(b, ptx_at(address, 0), ptx_shr_u32(b, u[0], ptx_imm(16)));
        ptx_st_shared_b8(b, ptx_at(address, row), ptx_shr_u32(b, u[0], ptx_imm(8)));
        ptx_st_shared_b8(b, ptx_at(address, 2 * row), u[0]);
    }
}

void stage_softmax_start(decode *d, softmax_sums *sums)
{
    for (int e = 0; e < d->p->thread_heads; e++) {
        sums->l[e] = ptx_reg(d->b, PTX_KIND_F);
        sums->z[e] = ptx_reg(d->b, PTX_KIND_F);
    }
}

void stage_softmax_weights(decode *d, int h, ptx_value block, softmax_sums *sums)
{
    ptx_builder *b = d->b;
    const decode_plan *p = d->p;
    token_numbers numbers[MAX_TILES];
    ptx_scope_push(b, "v");
    stage_numbers_of_weights(d, h, block, numbers);
    for (int e = 0; e < p->thread_heads; e++) {
        ptx_value u[MAX_TILES];
        for (int acc = 0; acc < p->accumulators; acc++) {
            ptx_scope_push(b, "exponential");
            ptx_value product = ptx_ex2(b, ptx_sub_f32(b, d->score[acc][h][e], d->block_reference[e]));
            ptx_scope_pop(b);
            ptx_scope_push(b, "scale");
            if (acc + h == 0) {
                ptx_mul_f32_to(b, sums->l[e], product, numbers[acc].v_inverse);
                ptx_mul_f32_to(b, sums->z[e], product, numbers[acc].v_minimum);
            } else {
                ptx_fma_f32_to(b, sums->l[e], product, numbers[acc].v_inverse, sums->l[e]);
                ptx_fma_f32_to(b, sums->z[e], product, numbers[acc].v_minimum, sums->z[e]);
            }
            ptx_scope_pop(b);
            ptx_scope_push(b, "limbs");
            u[acc] = ptx_f32_to_bits(b, ptx_add_f32(b, product, ptx_fimm(magic)));
            ptx_scope_pop(b);
        }
        ptx_scope_push(b, "limbs");
        /* rows rr and rr + 8 of the chunk are two 16-token slabs apart */
        int64_t offset = (int64_t)(2 * h) * p->p_lbo + (e / 2) * 3 * p->p_sbo + (e % 2) * 16;
        store_limbs(d, u, p->accumulators, ptx_at(d->p_store, offset));
        ptx_scope_pop(b);
    }
    ptx_scope_pop(b);
}

void stage_softmax_add(decode *d, const softmax_sums *sums, ptx_value factor[MAX_THREAD_HEADS])
{
    ptx_builder *b = d->b;
    ptx_scope_push(b, "v");
    ptx_scope_push(b, "running");
    for (int e = 0; e < d->p->thread_heads; e++) {
        factor[e] = ptx_ex2(b, ptx_sub_f32(b, d->reference[e], d->block_reference[e]));
        ptx_mov_f32_to(b, d->reference[e], d->block_reference[e]);
        ptx_fma_f32_to(b, d->l[e], d->l[e], factor[e], sums->l[e]);
        ptx_fma_f32_to(b, d->z[e], d->z[e], factor[e], sums->z[e]);
    }
    ptx_scope_pop(b);
    ptx_scope_pop(b);
}
