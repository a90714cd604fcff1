/* Before the first block: barriers and zero rows, a consumer thread's fixed registers, matrix descriptors. */
#include "decode.h"

/* Rows of Q and P' limbs that no head fills, and the sums of Q of heads that do not exist, are zero for good. */
static void clear_missing_heads(decode *d)
{
    ptx_builder *b = d->b;
    const decode_plan *p = d->p;
    uint32_t first = p->shared[SHARED_P].offset, bytes = p->shared[SHARED_Q].offset + p->shared[SHARED_Q].bytes - first;
    ptx_value zero = ptx_mov_b32(b, ptx_imm(0)), at = ptx_mul_lo(b, d->tid, ptx_imm(16)), fill = ptx_label_new(b, "clear");
    ptx_label_place(b, fill);
    ptx_value inside = ptx_setp_lt(b, at, ptx_imm(bytes));
    ptx_value address = ptx_add(b, d->shared, at);
    ptx_guard(b, inside);
    ptx_st_shared_v4(b, ptx_at(address, first), (ptx_value[]){zero, zero, zero, zero});
    ptx_add_to(b, at, at, ptx_imm(p->threads * 16));
    ptx_value more = ptx_setp_lt(b, at, ptx_imm(bytes));
    ptx_guard(b, more);
    ptx_bra(b, fill);
    ptx_value exchange = ptx_mad_lo(b, d->tid, ptx_imm(4), d->shared);
    uint32_t words = p->shared[SHARED_EXCHANGE].bytes / 4;
    for (uint32_t w = 0; w < words; w += (uint32_t)p->threads) {
        ptx_value in = ptx_setp_lt(b, d->tid, ptx_imm(words - w));
        ptx_guard(b, in);
        ptx_st_shared_b32(b, ptx_at(exchange, p->shared[SHARED_EXCHANGE].offset + w * 4), zero);
    }
    ptx_fence_proxy_async(b);
}

void decode_init_barriers(decode *d)
{
    ptx_builder *b = d->b;
    const decode_plan *p = d->p;
    ptx_scope_push(b, "init");
    /* the barriers of both rings lie in one row, a pair for each of the first threads */
    ptx_value skip = ptx_label_new(b, "no_barrier"), other = ptx_setp_ge(b, d->tid, ptx_imm(p->consumers * (p->k_ring.stages + p->v_ring.stages)));
    ptx_guard(b, other);
    ptx_bra(b, skip);
    ptx_value full = ptx_at(ptx_mad_lo(b, d->tid, ptx_imm(16), d->shared), p->shared[SHARED_BARRIERS_K].offset);
    ptx_mbarrier_init(b, full, ptx_imm(1));            /* the producer, once a block */
    ptx_mbarrier_init(b, ptx_at(full, 8), ptx_imm(4)); /* one for each warp of the consumer */
    ptx_fence_mbarrier_init(b);
    ptx_label_place(b, skip);
    if (p->cfg.heads % 8 > 0) clear_missing_heads(d);
    ptx_scope_pop(b);
}

/* Matrix descriptors without swizzle: address / 16, stride between 16-byte slabs of k, stride between 8-row slabs of n. */
static ptx_value make_descriptor(decode *d, ptx_value address, int64_t offset, uint32_t lbo, uint32_t sbo)
{
    ptx_builder *b = d->b;
    ptx_value half[2];
    half[0] = ptx_add(b, ptx_shr_u32(b, address, ptx_imm(4)), ptx_imm(offset / 16 + ((int64_t)(lbo / 16) << 16)));
    half[1] = ptx_mov_b32(b, ptx_imm(sbo / 16));
    return ptx_join_b64(b, half);
}

/* The window that starts `share` rows-of-a-tile earlier sees the limbs that many columns later. */
static ptx_value q_descriptor(decode *d, int share, int step)
{
    const decode_plan *p = d->p;
    int window = p->tiles_sharing == 1 ? 0 : (8 / p->tiles_sharing) * 16;
    return make_descriptor(d, d->q_limbs, (p->q_rows - 8) * 16 - share * window + step * 2 * (int64_t)p->q_lbo, p->q_lbo, p->q_sbo);
}

static ptx_value p_descriptor(decode *d, int step)
{
    return make_descriptor(d, d->p_limbs, step * 2 * (int64_t)d->p->p_lbo, d->p->p_lbo, d->p->p_sbo);
}

ptx_value decode_q_descriptor(decode *d, int share, int step)
{
    return d->p->descriptors_kept ? d->q_descriptor[share][step] : q_descriptor(d, share, step);
}

ptx_value decode_p_descriptor(decode *d, int step)
{
    return d->p->descriptors_kept ? d->p_descriptor[step] : p_descriptor(d, step);
}

static void make_descriptors(decode *d)
{
    for (int share = 0; share < d->p->tiles_sharing; share++)
        for (int step = 0; step < d->p->k_steps; step++) d->q_descriptor[share][step] = q_descriptor(d, share, step);
    for (int step = 0; step < d->p->v_steps; step++) d->p_descriptor[step] = p_descriptor(d, step);
}

/* Fixed registers of a consumer thread. */
void decode_consumer_setup(decode *d)
{
    ptx_builder *b = d->b;
    const decode_plan *p = d->p;
    ptx_value consumer = d->warpgroup;
    decode_place_thread(d);
    d->exchange = ptx_add(b, ptx_mad_lo(b, consumer, ptx_imm(p->shared[SHARED_EXCHANGE].bytes / (uint32_t)p->consumers), d->shared), ptx_imm(p->shared[SHARED_EXCHANGE].offset));
    d->p_limbs = ptx_add(b, ptx_mad_lo(b, consumer, ptx_imm(p->p_bytes), d->shared), ptx_imm(p->shared[SHARED_P].offset));
    d->q_limbs = ptx_add(b, ptx_mad_lo(b, consumer, ptx_imm(p->q_bytes), d->shared), ptx_imm(p->shared[SHARED_Q].offset));

    if (p->descriptors_kept) make_descriptors(d);

    /* Places in a stage: this warp's K chunk, its tokens' metadata */
    ptx_value group = decode_token_group(d, d->lane);
    ptx_value slice = ptx_shr_u32(b, d->lane, ptx_imm(4)); /* of the two that are row half 0 */
    slice = ptx_mad_lo(b, d->warp, ptx_imm(CHUNK_TOKENS / SLICE_TOKENS), slice);
    slice = ptx_mul_lo(b, slice, ptx_imm(p->k.slice_bytes));
    d->k_offset = ptx_mad_lo(b, ptx_and(b, d->lane, ptx_imm(15)), ptx_imm(16), slice);
    stage_numbers_setup(d);
    /* First P' byte: 16-token slab 4 * warp + rr / 4, head row, byte 4 * (rr % 4) + first tile */
    ptx_value slab = ptx_mad_lo(b, d->warp, ptx_imm(4), ptx_shr_u32(b, d->rr, ptx_imm(2))), head = decode_first_head(d);
    ptx_value store = ptx_mad_lo(b, head, ptx_imm(16), ptx_mad_lo(b, slab, ptx_imm(p->p_lbo), d->p_limbs));
    store = ptx_mad_lo(b, ptx_and(b, d->rr, ptx_imm(3)), ptx_imm(4), store);
    d->p_store = ptx_mad_lo(b, group, ptx_imm(p->accumulators), store);
    d->exchange_row = ptx_mad_lo(b, head, ptx_imm(16), d->exchange);
    d->exchange_slot = ptx_mad_lo(b, d->warp, ptx_imm(4), d->exchange_row);
}

/* Registers that live across blocks. */
void decode_consumer_registers(decode *d)
{
    ptx_builder *b = d->b;
    const decode_plan *p = d->p;
    for (int e = 0; e < p->thread_heads; e++) {
        d->q_sum[e] = ptx_reg(b, PTX_KIND_F);
        d->q_step[e] = ptx_reg(b, PTX_KIND_F);
        d->reference[e] = ptx_reg(b, PTX_KIND_F);
        d->block_reference[e] = ptx_reg(b, PTX_KIND_F);
        d->floor[e] = ptx_reg(b, PTX_KIND_F);
        d->l[e] = ptx_reg(b, PTX_KIND_F);
        d->z[e] = ptx_reg(b, PTX_KIND_F);
        for (int tile = 0; tile < p->channel_tiles; tile++)
            for (int h = 0; h < 2; h++) d->o[tile][h][e] = ptx_reg(b, PTX_KIND_F);
        for (int acc = 0; acc < p->accumulators; acc++)
            for (int h = 0; h < 2; h++) {
                d->score[acc][h][e] = ptx_reg(b, PTX_KIND_F);
                d->next_score[acc][h][e] = ptx_reg(b, PTX_KIND_F);
            }
    }
    stage_numbers_registers(d);
    /* both products use the same accumulators, unless they differ in length, which would tie ptxas's hands */
    for (int tile = 0; tile < MAX_TILES; tile++)
        for (int n = 0; n < p->pv_columns / 2; n++) {
            d->value_sums[tile][n] = ptx_reg(b, PTX_KIND_R);
            d->score_sums[tile][n] = p->qk_columns == p->pv_columns ? d->value_sums[tile][n] : ptx_reg(b, PTX_KIND_R);
        }
}
