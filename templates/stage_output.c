/* The end of an item: sums over the consumer's threads, then the output itself or, if other workers share the item, a partial result. */
#include "decode.h"

#include <math.h>

static void sum_of_warps(ptx_builder *b, ptx_value sum, const ptx_value x[4])
{
    ptx_add_f32_to(b, sum, x[0], x[1]);
    for (int w = 2; w < 4; w++) ptx_add_f32_to(b, sum, sum, x[w]);
}

/* Sum over the threads that hold the same head, left in every one of them. */
static void reduce_sums(decode *d)
{
    ptx_builder *b = d->b;
    const decode_plan *p = d->p;
    decode_place_thread(d);
    for (int e = 0; e < p->thread_heads; e++) {
        for (int delta = decode_head_lanes(p); delta < 32; delta *= 2) {
            ptx_add_f32_to(b, d->l[e], d->l[e], ptx_shfl_bfly_f32(b, d->l[e], ptx_imm(delta), ptx_imm(31), ptx_imm(WARP_MASK)));
            ptx_add_f32_to(b, d->z[e], d->z[e], ptx_shfl_bfly_f32(b, d->z[e], ptx_imm(delta), ptx_imm(31), ptx_imm(WARP_MASK)));
        }
        ptx_st_shared_f32(b, ptx_at(d->exchange_slot, EXCHANGE_SUMS + decode_head_offset(e) * 16), d->l[e]);
        ptx_st_shared_f32(b, ptx_at(d->exchange_slot, EXCHANGE_SUMS + EXCHANGE_SET + decode_head_offset(e) * 16), d->z[e]);
    }
    decode_consumer_sync(d);
    for (int e = 0; e < p->thread_heads; e++) {
        ptx_value l[4], z[4];
        ptx_ld_shared_v4_f32(b, l, ptx_at(d->exchange_row, EXCHANGE_SUMS + decode_head_offset(e) * 16));
        ptx_ld_shared_v4_f32(b, z, ptx_at(d->exchange_row, EXCHANGE_SUMS + EXCHANGE_SET + decode_head_offset(e) * 16));
        sum_of_warps(b, d->l[e], l);
        sum_of_warps(b, d->z[e], z);
    }
}

static void store_number(ptx_builder *b, number_type type, ptx_value address, ptx_value x)
{
    ptx_value zero = {0};
    switch (type) {
    case NUMBER_F32: ptx_st_global_f32(b, address, x); return;
    case NUMBER_BF16: zero = ptx_mov_f32(b, ptx_fimm(0)); ptx_st_global_b16(b, address, ptx_cvt_bf16x2(b, zero, x)); return;
    default: zero = ptx_mov_f32(b, ptx_fimm(0)); ptx_st_global_b16(b, address, ptx_cvt_f16x2(b, zero, x)); return;
    }
}

/* One element e of the rows at `rows` (rows[head][head_dim] of the type): channels 64*tile + 16*warp + rr + 8*h. */
static void store_head(decode *d, int e, number_type type, ptx_value rows, ptx_value head, ptx_value inverse)
{
    ptx_builder *b = d->b;
    const decode_plan *p = d->p;
    int bytes = number_info(type)->bytes;
    ptx_value channel = ptx_mad_lo(b, d->warp, ptx_imm(16), d->rr);
    ptx_value index = ptx_mad_lo(b, head, ptx_imm(p->cfg.head_dim), channel);
    ptx_value address = ptx_mad_wide_u32(b, index, ptx_imm(bytes), rows);
    for (int tile = 0; tile < p->channel_tiles; tile++)
        for (int h = 0; h < 2; h++) {
            /* codes were used where they stand in their byte, which belongs to the row half and the tile */
            float unit = ldexpf(1, -p->cfg.v.codes->bits * (h + 2 * (tile % p->v.tiles)));
            ptx_value x = ptx_mul_f32(b, ptx_fma_f32(b, d->o[tile][h][e], ptx_fimm(unit), d->z[e]), inverse);
            store_number(b, type, ptx_at(address, (tile * 64 + h * 8) * bytes), x);
        }
}

/* Stores every valid head of this thread to rows, and its log-sum-exp (times lse_unit) to lse where that is not 0. */
static void store_rows(decode *d, number_type type, ptx_value rows, ptx_value lse, float lse_unit)
{
    ptx_builder *b = d->b;
    const decode_plan *p = d->p;
    ptx_value has_lse = ptx_setp_ne_b64(b, lse, ptx_imm(0));
    ptx_value writes_lse = ptx_and_pred(b, has_lse, ptx_setp_eq(b, ptx_add(b, d->rr, d->warp), ptx_imm(0)));
    for (int e = 0; e < p->thread_heads; e++) {
        /* the output's columns: heads 8*block + 2*hq + e, whatever the scores' columns are */
        ptx_value head = ptx_mad_lo(b, d->hq, ptx_imm(2), ptx_mov_b32(b, ptx_imm(decode_head_offset(e))));
        ptx_value skip = ptx_label_new(b, "no_such_head"), beyond = ptx_setp_ge(b, head, ptx_imm(p->cfg.heads));
        ptx_guard(b, beyond);
        ptx_bra(b, skip);
        store_head(d, e, type, rows, head, ptx_rcp(b, d->l[e]));
        ptx_value value = ptx_mul_f32(b, ptx_add_f32(b, d->reference[e], ptx_lg2(b, d->l[e])), ptx_fimm(lse_unit));
        ptx_value address = ptx_mad_wide_u32(b, head, ptx_imm(4), lse);
        ptx_guard(b, writes_lse);
        ptx_st_global_f32(b, address, value);
        ptx_label_place(b, skip);
    }
}

/* Address of a slot's partial result. */
static ptx_value partial_address(decode *d, ptx_value slot)
{
    ptx_builder *b = d->b;
    ptx_value workers = ptx_mul_lo(b, ptx_mov_special(b, ptx_sreg(PTX_SPECIAL_NCTAID_X)), ptx_imm(d->p->consumers));
    ptx_value index = ptx_mad_lo(b, decode_worker(d, d->warpgroup), ptx_imm(2), slot);
    ptx_value base = ptx_mad_wide_u32(b, workers, ptx_imm(2 * SEGMENT_RECORD_BYTES), decode_param_value(d, DECODE_PARAM_workspace));
    return ptx_mad_wide_u32(b, index, ptx_imm(decode_partial_bytes(&d->p->cfg)), base);
}

/* One thread writes the record of a slot. */
static void store_record(decode *d, ptx_value slot, ptx_value state, ptx_value item)
{
    ptx_builder *b = d->b;
    ptx_value first = ptx_setp_eq(b, d->thread, ptx_imm(0)), zero = ptx_mov_b32(b, ptx_imm(0));
    ptx_value index = ptx_mad_lo(b, decode_worker(d, d->warpgroup), ptx_imm(2), slot);
    ptx_value address = ptx_mad_wide_u32(b, index, ptx_imm(SEGMENT_RECORD_BYTES), decode_param_value(d, DECODE_PARAM_workspace));
    ptx_guard(b, first);
    ptx_st_global_v4(b, address, (ptx_value[]){state, item, zero, zero});
}

void stage_output_start(decode *d)
{
    ptx_builder *b = d->b;
    ptx_scope_push(b, "output");
    ptx_value none = ptx_mov_b32(b, ptx_imm(SEGMENT_NONE)), no_item = ptx_mov_b32(b, ptx_imm(0));
    for (int s = 0; s < 2; s++) store_record(d, ptx_mov_b32(b, ptx_imm(s)), none, no_item);
    ptx_scope_pop(b);
}

void stage_output(decode *d, const cursor *c, ptx_value first_block, ptx_value end_block)
{
    ptx_builder *b = d->b;
    const config *cfg = &d->p->cfg;
    ptx_scope_push(b, "output");
    reduce_sums(d);
    ptx_value item = ptx_mad_lo(b, c->batch, decode_param_value(d, DECODE_PARAM_kv_heads), c->head);
    ptx_value begins = ptx_setp_eq(b, first_block, ptx_imm(0)), ends = ptx_setp_eq(b, end_block, c->blocks);
    ptx_value whole = ptx_and_pred(b, begins, ends), partial = ptx_label_new(b, "partial"), done = ptx_label_new(b, "stored");
    ptx_guard_not(b, whole);
    ptx_bra_uni(b, partial);

    ptx_value row = ptx_mul_lo(b, c->head, ptx_imm(cfg->heads));
    ptx_value rows = decode_offset(d, c->batch, DECODE_PARAM_out_stride);
    rows = ptx_add_s64(b, rows, decode_param_value(d, DECODE_PARAM_out));
    rows = ptx_mad_wide_u32(b, row, ptx_imm((int64_t)cfg->head_dim * number_info(cfg->o_type)->bytes), rows);
    ptx_value lse = ptx_mad_wide_u32(b, item, ptx_imm(cfg->heads * 4), decode_param_value(d, DECODE_PARAM_lse));
    ptx_value wanted = ptx_setp_ne_b64(b, decode_param_value(d, DECODE_PARAM_lse), ptx_imm(0));
    lse = ptx_selp_b64(b, lse, ptx_imm(0), wanted);
    store_rows(d, cfg->o_type, rows, lse, 0.69314718f);
    ptx_bra_uni(b, done);

    ptx_label_place(b, partial);
    ptx_value slot = ptx_selp_b32(b, ptx_imm(1), ptx_imm(0), begins);
    ptx_value state = ptx_selp_b32(b, ptx_imm(SEGMENT_LAST), ptx_imm(SEGMENT_OPEN), ends);
    store_record(d, slot, state, item);
    ptx_value base = partial_address(d, slot);
    store_rows(d, NUMBER_F32, base, ptx_add_s64(b, base, ptx_imm((int64_t)cfg->heads * cfg->head_dim * 4)), 1.0f);
    ptx_label_place(b, done);
    ptx_scope_pop(b);
}
