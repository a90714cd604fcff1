/* What a block's scores and weights need of the scales and minima of its tokens, made once a token.
 *
 * Scores are kept as score' = score + log2(V scale): 2^(score' - reference) is then the weight times the V scale, and the largest of these products in a
 * block is the unit of P'. A token whose V has a large range takes no bits from the others unless its weight makes it count. The sums that want
 * weights alone take the scale back:
 *
 *   score' = sum of codes * K scale + (K minimum * sum of Q + log2(V scale))
 *   P'     = 2^(score' - reference)        l += P' / V scale        z += P' * (V minimum / V scale)
 *
 * Where several lanes of a warp hold scores of one token, each lane makes the numbers of two neighbouring tokens and the warp exchanges them through
 * shared memory; otherwise a lane makes those of its own two tokens and keeps them in registers. */
#include "decode.h"

#include <math.h>

/* Offsets in a warp's area, bytes: {K scale, K minimum}[64], log2(V scale)[64], and by block modulo 2 {1 / V scale, V minimum / V scale}[64]. */
enum {
    PAIR_BYTES = 8,
    LOG_BYTES = 4,
    LOGS = CHUNK_TOKENS * PAIR_BYTES,
    V_PAIRS = LOGS + CHUNK_TOKENS * LOG_BYTES,
    V_PAIRS_SET = CHUNK_TOKENS * PAIR_BYTES
};
_Static_assert(V_PAIRS + 2 * V_PAIRS_SET == NUMBERS_WARP_BYTES, "what the plan reserves");

/* Floor of V scales, the least number above 0 of float16: tokens whose V is constant keep their weight. */
static const float least_scale = 0x1p-24f;

/* Token of a warp's chunk that a lane makes as its j-th. */
static ptx_value lane_token(decode *d, ptx_value lane, int j)
{
    ptx_builder *b = d->b;
    if (!d->p->numbers_exchanged) return ptx_add(b, lane, ptx_imm(32 * j));
    return ptx_add(b, ptx_shl(b, lane, ptx_imm(1)), ptx_imm(j));
}

/* Registers of a token's numbers that live across blocks. */
static token_numbers number_registers(ptx_builder *b)
{
    token_numbers n;
    n.k_scale = ptx_reg(b, PTX_KIND_F);
    n.k_minimum = ptx_reg(b, PTX_KIND_F);
    n.v_log = ptx_reg(b, PTX_KIND_F);
    n.v_inverse = ptx_reg(b, PTX_KIND_F);
    n.v_minimum = ptx_reg(b, PTX_KIND_F);
    return n;
}

void stage_numbers_registers(decode *d)
{
    for (int j = 0; j < 2; j++) {
        d->k_unit[j] = ptx_reg(d->b, PTX_KIND_F);
        d->numbers[j] = number_registers(d->b);
        d->next_numbers[j] = number_registers(d->b);
    }
}

void stage_numbers_setup(decode *d)
{
    ptx_builder *b = d->b;
    const decode_plan *p = d->p;
    ptx_value token = lane_token(d, d->lane, 0);
    ptx_value page = ptx_div_power(b, d->warp, p->chunks_per_page), chunk = ptx_and(b, d->warp, ptx_imm(p->chunks_per_page - 1));
    ptx_value meta = ptx_add(b, ptx_mul_lo(b, page, ptx_imm(p->v_ring.page_bytes)), ptx_imm(p->page.k_metadata - p->v_ring.page_offset));
    meta = ptx_mad_lo(b, chunk, ptx_imm(CHUNK_TOKENS * METADATA_BYTES), meta);
    d->meta_offset = ptx_mad_lo(b, token, ptx_imm(METADATA_BYTES), meta);
    if (!p->numbers_exchanged) return;
    ptx_value area = ptx_add(b, ptx_mad_lo(b, d->warpgroup, ptx_imm(4 * NUMBERS_WARP_BYTES), d->shared), ptx_imm(p->shared[SHARED_NUMBERS].offset));
    area = ptx_mad_lo(b, d->warp, ptx_imm(NUMBERS_WARP_BYTES), area);
    ptx_value own = ptx_shl(b, d->rr, ptx_imm(2)); /* first token of this thread's scores */
    own = ptx_mad_lo(b, decode_token_group(d, d->lane), ptx_imm(p->accumulators), own);
    d->pairs_made = ptx_mad_lo(b, d->lane, ptx_imm(2 * PAIR_BYTES), area);
    d->pairs_read = ptx_mad_lo(b, own, ptx_imm(PAIR_BYTES), area);
    d->logs_read = ptx_mad_lo(b, own, ptx_imm(LOG_BYTES), area);
}

/* Codes of K are used where they stand in their byte, which belongs to the token: worth 2^(bits * field) too much. */
void stage_numbers_query(decode *d)
{
    ptx_builder *b = d->b;
    const encoding *codes = d->p->cfg.k.codes;
    for (int j = 0; j < 2; j++) {
        ptx_value field = ptx_and(b, lane_token(d, d->lane, j), ptx_imm(codes->fields - 1)), exponent = ptx_mul_lo(b, field, ptx_imm(codes->bits));
        exponent = ptx_shl(b, ptx_sub(b, ptx_imm(127), exponent), ptx_imm(23));
        ptx_value factor = ptx_bits_to_f32(b, exponent);
        if (d->p->cfg.heads == 1) factor = ptx_mul_f32(b, factor, d->q_step[0]); /* the step of the only head belongs to all tokens */
        ptx_mov_f32_to(b, d->k_unit[j], factor);
    }
}

/* Metadata words of this lane's two tokens. */
static void load_words(decode *d, ptx_value address, ptx_value words[2])
{
    ptx_builder *b = d->b;
    ptx_scope_push(b, "metadata");
    if (d->p->numbers_exchanged) ptx_ld_shared_v2(b, words, address);
    else
        for (int j = 0; j < 2; j++) words[j] = ptx_ld_shared_b32(b, ptx_at(address, j * 32 * METADATA_BYTES));
    ptx_scope_pop(b);
}

/* Tokens past the end of the sequence, which get no weight, have finite numbers whatever the page holds there. */
static void clear_tail(decode *d, ptx_value tokens_left, ptx_value v_words[2])
{
    ptx_builder *b = d->b;
    /* the thread's number anew: the rest is not worth a register of every block */
    ptx_value tid = ptx_mov_special(b, ptx_sreg(PTX_SPECIAL_TID_X)), warp = ptx_shr_u32(b, ptx_and(b, tid, ptx_imm(127)), ptx_imm(5)), lane = ptx_and(b, tid, ptx_imm(31));
    for (int j = 0; j < 2; j++) {
        ptx_value token = ptx_mad_lo(b, warp, ptx_imm(CHUNK_TOKENS), lane_token(d, lane, j)), inside = ptx_setp_lt(b, token, tokens_left);
        v_words[j] = ptx_selp_b32(b, v_words[j], ptx_imm(0), inside);
    }
}

/* The minimum and the scale of a metadata word. */
static void widen(ptx_builder *b, ptx_value word, ptx_value *minimum, ptx_value *scale)
{
    ptx_value halves[2];
    ptx_scope_push(b, "metadata");
    ptx_split_b32(b, halves, word);
    *minimum = ptx_cvt_f32_f16(b, halves[0]);
    *scale = ptx_cvt_f32_f16(b, halves[1]);
    ptx_scope_pop(b);
}

static void make_numbers(decode *d, int j, ptx_value k_word, ptx_value v_word, token_numbers *n)
{
    ptx_builder *b = d->b;
    ptx_value k_scale, minimum, scale;
    ptx_scope_push(b, "k");
    widen(b, k_word, &n->k_minimum, &k_scale);
    ptx_scope_push(b, "scale");
    n->k_scale = ptx_mul_f32(b, k_scale, d->k_unit[j]);
    ptx_scope_pop(b);
    ptx_scope_pop(b);
    ptx_scope_push(b, "v");
    widen(b, v_word, &minimum, &scale);
    ptx_scope_push(b, "scale");
    scale = ptx_max_f32(b, scale, ptx_fimm(least_scale));
    n->v_inverse = ptx_rcp(b, scale);
    n->v_minimum = ptx_mul_f32(b, minimum, n->v_inverse);
    n->v_log = ptx_lg2(b, scale);
    ptx_scope_pop(b);
    ptx_scope_pop(b);
}

/* Two sets of V's pairs alternate: those of a block are still wanted when those of the next are made. */
static ptx_value v_pairs(decode *d, ptx_value base, ptx_value block)
{
    ptx_builder *b = d->b;
    return ptx_at(ptx_mad_lo(b, ptx_and(b, block, ptx_imm(1)), ptx_imm(V_PAIRS_SET), base), V_PAIRS);
}

static void exchange(decode *d, ptx_value block, const token_numbers n[2])
{
    ptx_builder *b = d->b;
    ptx_scope_push(b, "exchange");
    ptx_st_shared_v4_f32(b, d->pairs_made, (ptx_value[]){n[0].k_scale, n[0].k_minimum, n[1].k_scale, n[1].k_minimum});
    ptx_value lane = ptx_and(b, ptx_mov_special(b, ptx_sreg(PTX_SPECIAL_TID_X)), ptx_imm(31)), logs = ptx_mad_lo(b, lane, ptx_imm(2 * (LOG_BYTES - PAIR_BYTES)), d->pairs_made);
    ptx_st_shared_v2_f32(b, ptx_at(logs, LOGS), (ptx_value[]){n[0].v_log, n[1].v_log});
    ptx_st_shared_v4_f32(b, v_pairs(d, d->pairs_made, block), (ptx_value[]){n[0].v_inverse, n[0].v_minimum, n[1].v_inverse, n[1].v_minimum});
    ptx_bar_warp_sync(b, ptx_imm(WARP_MASK));
    ptx_scope_pop(b);
}

static void keep(decode *d, const token_numbers n[2])
{
    for (int j = 0; j < 2; j++) {
        ptx_mov_f32_to(d->b, d->next_numbers[j].k_scale, n[j].k_scale);
        ptx_mov_f32_to(d->b, d->next_numbers[j].k_minimum, n[j].k_minimum);
        ptx_mov_f32_to(d->b, d->next_numbers[j].v_log, n[j].v_log);
        ptx_mov_f32_to(d->b, d->next_numbers[j].v_inverse, n[j].v_inverse);
        ptx_mov_f32_to(d->b, d->next_numbers[j].v_minimum, n[j].v_minimum);
    }
}

void stage_numbers(decode *d, const ring *v, const cursor *c, ptx_value block)
{
    ptx_builder *b = d->b;
    const decode_plan *p = d->p;
    ptx_value k_words[2], v_words[2];
    token_numbers made[2];
    ptx_scope_push(b, "numbers");
    ptx_value address = ptx_add(b, decode_stage(d, v), d->meta_offset);
    load_words(d, address, k_words);
    load_words(d, ptx_at(address, p->cfg.page_tokens * METADATA_BYTES), v_words);
    clear_tail(d, decode_tokens_left(d, c, block), v_words);
    for (int j = 0; j < 2; j++) make_numbers(d, j, k_words[j], v_words[j], &made[j]);
    if (p->numbers_exchanged) exchange(d, block, made);
    else keep(d, made);
    ptx_scope_pop(b);
}

/* `count` neighbouring float32 of shared memory: 1, 2 or a multiple of 4. */
static void load_numbers(ptx_builder *b, ptx_value address, int count, ptx_value *out)
{
    if (count == 1) out[0] = ptx_ld_shared_f32(b, address);
    else if (count == 2) ptx_ld_shared_v2_f32(b, out, address);
    else
        for (int i = 0; i < count; i += 4) ptx_ld_shared_v4_f32(b, out + i, ptx_at(address, i * 4));
}

void stage_numbers_of_scores(decode *d, int h, int first, int end, token_numbers *out)
{
    ptx_builder *b = d->b;
    int count = end - first, token = 32 * h + first;
    ptx_value pairs[2 * MAX_TILES], logs[MAX_TILES];
    if (!d->p->numbers_exchanged) {
        *out = d->next_numbers[h];
        return;
    }
    ptx_scope_push(b, "exchange");
    load_numbers(b, ptx_at(d->pairs_read, token * PAIR_BYTES), 2 * count, pairs);
    load_numbers(b, ptx_at(d->logs_read, LOGS + token * LOG_BYTES), count, logs);
    for (int i = 0; i < count; i++) out[i] = (token_numbers){.k_scale = pairs[2 * i], .k_minimum = pairs[2 * i + 1], .v_log = logs[i]};
    ptx_scope_pop(b);
}

void stage_numbers_of_weights(decode *d, int h, ptx_value block, token_numbers *out)
{
    ptx_builder *b = d->b;
    int count = d->p->accumulators;
    ptx_value pairs[2 * MAX_TILES];
    if (!d->p->numbers_exchanged) {
        *out = d->numbers[h];
        return;
    }
    ptx_scope_push(b, "exchange");
    load_numbers(b, ptx_at(v_pairs(d, d->pairs_read, block), 32 * h * PAIR_BYTES), 2 * count, pairs);
    for (int i = 0; i < count; i++) out[i] = (token_numbers){.v_inverse = pairs[2 * i], .v_minimum = pairs[2 * i + 1]};
    ptx_scope_pop(b);
}

void stage_numbers_take_next(decode *d)
{
    if (d->p->numbers_exchanged) return;
    for (int h = 0; h < 2; h++) {
        ptx_mov_f32_to(d->b, d->numbers[h].v_inverse, d->next_numbers[h].v_inverse);
        ptx_mov_f32_to(d->b, d->numbers[h].v_minimum, d->next_numbers[h].v_minimum);
    }
}
