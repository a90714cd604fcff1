/* Q of one item as three signed 8-bit limbs, the B operand of the first product.
 *
 * Each head has its own step, max |Q| / (127 * 2^16): q = round(Q / step) = hi * 2^16 + mid * 2^8 + lo. Codes of K are used where they
 * stand in their byte, worth 2^(bits * field) too much; the field belongs to the token tile, so the factor of its scores makes up for it.
 *
 * A head with a NaN or an infinity gets limbs that mean nothing and a sum of Q, or a step, that makes all its scores NaN; the other heads are untouched. */
#include "decode.h"

enum { VECTOR = 8 /* elements of a 16-byte load */, FULL_SCALE = 127 << 16 };

/* Eight float32 from four registers of 16-bit pairs. */
static void unpack_pairs(ptx_builder *b, number_type type, const ptx_value pairs[4], ptx_value out[VECTOR])
{
    for (int i = 0; i < 4; i++) {
        if (type == NUMBER_BF16) {
            out[2 * i] = ptx_bits_to_f32(b, ptx_shl(b, pairs[i], ptx_imm(16)));
            out[2 * i + 1] = ptx_bits_to_f32(b, ptx_and(b, pairs[i], ptx_imm(0xffff0000)));
        } else {
            ptx_value halves[2];
            ptx_split_b32(b, halves, pairs[i]);
            out[2 * i] = ptx_cvt_f32_f16(b, halves[0]);
            out[2 * i + 1] = ptx_cvt_f32_f16(b, halves[1]);
        }
    }
}

/* One limb (byte `at`) of four values as a word. */
static ptx_value gather_bytes(ptx_builder *b, const ptx_value x[4], int at)
{
    ptx_value low = ptx_prmt(b, x[0], x[1], ptx_imm(at | (at + 4) << 4));
    ptx_value high = ptx_prmt(b, x[2], x[3], ptx_imm(at | (at + 4) << 4));
    return ptx_prmt(b, low, high, ptx_imm(0x5410));
}

/* Byte offset of limb `limb` (0 = hi) of head row 0 in a 16-channel slab of this layout. */
static uint32_t limb_offset(const decode_plan *p, int limb)
{
    uint32_t first_row = (uint32_t)(p->q_rows - 8) * 16;
    if (p->padded_heads == 1) return (uint32_t)(limb / 2) * p->q_sbo + first_row + (uint32_t)(limb % 2) * 16;
    return (uint32_t)limb * p->q_sbo + first_row;
}

typedef struct q_vector {
    ptx_value valid, head, channel; /* of this thread's eight elements */
    ptx_value x[VECTOR];
    ptx_value step; /* of the head */
} q_vector;

static q_vector load_vector(decode *d, ptx_value q, int step)
{
    ptx_builder *b = d->b;
    const config *cfg = &d->p->cfg;
    int per_head = cfg->head_dim / VECTOR;
    q_vector v;
    ptx_value index = ptx_add(b, d->thread, ptx_imm(128 * step));
    v.valid = ptx_setp_lt(b, index, ptx_imm(cfg->heads * per_head));
    v.head = ptx_div_power(b, index, per_head);
    v.channel = ptx_mul_lo(b, ptx_and(b, index, ptx_imm(per_head - 1)), ptx_imm(VECTOR));
    ptx_value raw[4], address = ptx_mad_wide_u32(b, index, ptx_imm(16), q);
    for (int i = 0; i < 4; i++) raw[i] = ptx_mov_b32(b, ptx_imm(0));
    ptx_guard(b, v.valid);
    ptx_emit(b, PTX_OP_ld_global_v4, (ptx_value[]){raw[0], raw[1], raw[2], raw[3], address}, 5, 0);
    unpack_pairs(b, cfg->q_type, raw, v.x);
    return v;
}

/* The step of the vector's head from its largest |x|, and the sum of its x, into the exchange area. */
static void reduce_vector(decode *d, q_vector *v, ptx_value scale)
{
    ptx_builder *b = d->b;
    ptx_value sum = ptx_mov_f32(b, v->x[0]), largest = ptx_abs_f32(b, v->x[0]);
    for (int i = 1; i < VECTOR; i++) {
        ptx_max_f32_to(b, largest, largest, ptx_abs_f32(b, v->x[i]));
        ptx_add_f32_to(b, sum, sum, v->x[i]);
    }
    int lanes = d->p->cfg.head_dim / VECTOR;
    for (int delta = 1; delta < lanes; delta *= 2) {
        ptx_max_f32_to(b, largest, largest, ptx_shfl_bfly_f32(b, largest, ptx_imm(delta), ptx_imm(31), ptx_imm(WARP_MASK)));
        ptx_add_f32_to(b, sum, sum, ptx_shfl_bfly_f32(b, sum, ptx_imm(delta), ptx_imm(31), ptx_imm(WARP_MASK)));
    }
    /* At least 2^-100, so that a Q of zeros gives limbs of zero */
    v->step = ptx_mul_f32(b, ptx_max_f32(b, largest, ptx_fimm(7.8886e-31f)), ptx_fimm(1.0f / FULL_SCALE));
    ptx_value first = ptx_setp_eq(b, ptx_and(b, d->lane, ptx_imm(lanes - 1)), ptx_imm(0));
    ptx_value mine = ptx_and_pred(b, first, v->valid);
    ptx_value address = ptx_mad_lo(b, v->head, ptx_imm(16), d->exchange), step_scaled = ptx_mul_f32(b, v->step, scale), sum_scaled = ptx_mul_f32(b, sum, scale);
    ptx_guard(b, mine);
    ptx_st_shared_v2_f32(b, ptx_at(address, EXCHANGE_QUERY), (ptx_value[]){step_scaled, sum_scaled});
}

static void store_limbs(decode *d, const q_vector *v)
{
    ptx_builder *b = d->b;
    const decode_plan *p = d->p;
    ptx_value block = ptx_shr_u32(b, v->channel, ptx_imm(4)), inverse = ptx_rcp(b, v->step), limbs[VECTOR];
    for (int i = 0; i < VECTOR; i++) {
        ptx_value q = ptx_cvt_s32_f32(b, ptx_mul_f32(b, v->x[i], inverse));
        limbs[i] = ptx_xor(b, ptx_add(b, q, ptx_imm(0x8080)), ptx_imm(0x8080)); /* bytes of a signed-digit number */
    }
    ptx_value address = ptx_mad_lo(b, block, ptx_imm(p->q_lbo), d->q_limbs);
    address = ptx_add(b, address, ptx_and(b, v->channel, ptx_imm(8)));
    ptx_value head_block = ptx_shr_u32(b, v->head, ptx_imm(3));
    address = ptx_mad_lo(b, head_block, ptx_imm((int64_t)p->q_limbs * p->q_sbo), address);
    address = ptx_mad_lo(b, ptx_and(b, v->head, ptx_imm(7)), ptx_imm(16), address);
    for (int limb = 0; limb < p->q_limbs; limb++) {
        ptx_value words[2];
        for (int k = 0; k < 2; k++) words[k] = gather_bytes(b, limbs + 4 * k, 2 - limb);
        ptx_guard(b, v->valid);
        ptx_st_shared_v2(b, ptx_at(address, limb_offset(p, limb)), words);
    }
}

static void load_numbers(decode *d, int e, ptx_value out[2])
{
    ptx_ld_shared_v2_f32(d->b, out, ptx_at(d->exchange_row, EXCHANGE_QUERY + decode_head_offset(e) * 16));
}

void stage_query_numbers(decode *d, int e, ptx_value out[2])
{
    if (!d->p->query_kept) {
        load_numbers(d, e, out);
        return;
    }
    out[0] = d->q_step[e];
    out[1] = d->q_sum[e];
}

void stage_query(decode *d, const cursor *c)
{
    ptx_builder *b = d->b;
    const decode_plan *p = d->p;
    ptx_scope_push(b, "query");
    decode_place_thread(d);
    ptx_value q = decode_offset(d, c->batch, DECODE_PARAM_q_stride);
    q = ptx_add_s64(b, q, decode_param_value(d, DECODE_PARAM_q));
    q = ptx_mad_wide_u32(b, c->head, ptx_imm((int64_t)p->cfg.heads * p->cfg.head_dim * number_info(p->cfg.q_type)->bytes), q);

    int steps = (p->cfg.heads * p->cfg.head_dim / VECTOR + 127) / 128;
    q_vector vector[4];
    for (int s = 0; s < steps; s++) vector[s] = load_vector(d, q, s);
    ptx_value scale = decode_param_value(d, DECODE_PARAM_scale_log2);
    for (int s = 0; s < steps; s++) reduce_vector(d, &vector[s], scale);
    for (int s = 0; s < steps; s++) store_limbs(d, &vector[s]);
    ptx_fence_proxy_async(b);
    decode_consumer_sync(d);
    for (int e = 0; p->query_kept && e < p->thread_heads; e++) {
        ptx_value numbers[2];
        load_numbers(d, e, numbers);
        ptx_mov_f32_to(b, d->q_step[e], numbers[0]);
        ptx_mov_f32_to(b, d->q_sum[e], numbers[1]);
    }
    stage_numbers_query(d);
    ptx_scope_pop(b);
}
