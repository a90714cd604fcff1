/* Decode attention over a quantised KV cache on Hopper: warp-specialised, codes as the register operand of 8-bit wgmma.
 *
 *   producer warp c          ring c in shared memory               consumer warpgroup c
 *   ---------------          -----------------------               --------------------
 *   page numbers             full[s]                               wait full[s+1], K words, mask ---> first half of QK(i+1)
 *   wait empty[s]  <------------------------------------------+    scores(i): maxima                      |
 *   bulk copy per page ----> stage s: pages of 256 tokens     |    K words, mask <------------------------+--> second half
 *                            {K codes, V codes, K meta, V meta}    exponentials, P'(i) limbs to shared memory     |
 *                                                             |    scores(i+1) <----------------------------------+
 *                                                             |    V words, mask --------------> PV(i)
 *                                                             +--- arrive empty[s]                |
 *                                                                  O += PV(i) <-------------------+
 *
 * Every consumer is a worker of its own: a contiguous share of all blocks (stage_schedule.c), its own ring, its own softmax state; at the end of an
 * item it writes the output, or a partial result that the merge kernel adds up. Nothing is shared between consumers. */
#include "decode_hopper.h"

#include "decode.h"

#include <stdlib.h>
#include <string.h>

ptx_value decode_param_value(decode *d, decode_param param)
{
    static const int bytes[DECODE_PARAM_COUNT] = {
#define PARAM(name, size, meaning) size,
        DECODE_PARAMS(PARAM)
#undef PARAM
    };
    ptx_value address = d->param[param];
    if (param == DECODE_PARAM_scale_log2) return ptx_ld_param_f32(d->b, address);
    return bytes[param] == 8 ? ptx_ld_param_b64(d->b, address) : ptx_ld_param_b32(d->b, address);
}

ptx_value decode_offset(decode *d, ptx_value index, decode_param stride)
{
    ptx_value wide = ptx_cvt_u64_u32(d->b, index);
    return ptx_mul_lo_s64(d->b, wide, decode_param_value(d, stride));
}

ptx_value decode_worker(decode *d, ptx_value consumer)
{
    ptx_value blocks = ptx_mov_special(d->b, ptx_sreg(PTX_SPECIAL_NCTAID_X));
    return ptx_mad_lo(d->b, consumer, blocks, ptx_mov_special(d->b, ptx_sreg(PTX_SPECIAL_CTAID_X)));
}

void decode_place_thread(decode *d)
{
    ptx_builder *b = d->b;
    ptx_value tid = ptx_mov_special(b, ptx_sreg(PTX_SPECIAL_TID_X)), lane = ptx_and(b, tid, ptx_imm(31));
    d->thread = ptx_and(b, tid, ptx_imm(127));
    d->warp = ptx_shr_u32(b, d->thread, ptx_imm(5));
    d->rr = ptx_shr_u32(b, lane, ptx_imm(2));
    d->hq = ptx_and(b, lane, ptx_imm(3));
}

ptx_value decode_uniform(decode *d, ptx_value x)
{
    return ptx_shfl_idx_b32(d->b, x, ptx_imm(0), ptx_imm(31), ptx_imm(WARP_MASK));
}

void decode_wait(decode *d, ptx_value barrier, ptx_value parity)
{
    ptx_builder *b = d->b;
    ptx_value again = ptx_label_new(b, "wait");
    ptx_label_place(b, again);
    ptx_value complete = ptx_mbarrier_try_wait(b, barrier, parity);
    ptx_guard_not(b, complete);
    ptx_bra(b, again);
}

void decode_consumer_sync(decode *d)
{
    ptx_bar_sync(d->b, ptx_add(d->b, d->warpgroup, ptx_imm(1)), ptx_imm(128));
}

ptx_value decode_combine_limbs(decode *d, ptx_value high, ptx_value middle, ptx_value low)
{
    ptx_builder *b = d->b;
    ptx_value upper = ptx_cvt_f32_s32(b, ptx_mad_lo(b, high, ptx_imm(256), middle));
    return ptx_fma_f32(b, upper, ptx_fimm(256), ptx_cvt_f32_s32(b, low));
}

int decode_head_offset(int e) { return e / 2 * 8 + e % 2; }

/* Head of this thread's element 0. */
ptx_value decode_first_head(decode *d)
{
    ptx_builder *b = d->b;
    int lanes = d->p->tiles_sharing == 4 ? 1 : d->p->tiles_sharing == 2 ? 2 : 4; /* lanes of a quad with different heads */
    return ptx_shl(b, ptx_and(b, d->hq, ptx_imm(lanes - 1)), ptx_imm(1));
}

ptx_value decode_token_group(decode *d, ptx_value lane)
{
    ptx_builder *b = d->b;
    int lanes = 4 / d->p->tiles_sharing; /* of a quad, for each tile */
    return ptx_shr_u32(b, ptx_and(b, lane, ptx_imm(3)), ptx_imm(lanes == 4 ? 2 : lanes == 2 ? 1 : 0));
}

/* Computed anew from the thread number: the rare use is not worth a register of every block. */
ptx_value decode_first_token(decode *d)
{
    ptx_builder *b = d->b;
    ptx_value tid = ptx_mov_special(b, ptx_sreg(PTX_SPECIAL_TID_X));
    ptx_value warp = ptx_and(b, ptx_shr_u32(b, tid, ptx_imm(5)), ptx_imm(3)), rr = ptx_and(b, ptx_shr_u32(b, tid, ptx_imm(2)), ptx_imm(7));
    ptx_value token = ptx_mad_lo(b, warp, ptx_imm(CHUNK_TOKENS), ptx_mul_lo(b, rr, ptx_imm(4)));
    return ptx_mad_lo(b, decode_token_group(d, tid), ptx_imm(d->p->accumulators), token);
}

/* Ring of one worker, at its first stage. */
static ring ring_start(decode *d, const ring_plan *plan, ptx_value consumer)
{
    ptx_builder *b = d->b;
    const shared_region *shared = d->p->shared;
    ring r = {.plan = plan};
    r.base = ptx_add(b, ptx_mad_lo(b, consumer, ptx_imm((int64_t)plan->stages * plan->stage_bytes), d->shared), ptx_imm(shared[plan->stages_at].offset));
    r.barriers = ptx_add(b, ptx_mad_lo(b, consumer, ptx_imm(plan->stages * 16), d->shared), ptx_imm(shared[plan->barriers_at].offset));
    r.stage = ptx_mov_b32(b, ptx_imm(0));
    r.parity = ptx_mov_b32(b, ptx_imm(0));
    return r;
}

static void ring_advance(decode *d, ring *r)
{
    ptx_builder *b = d->b;
    ptx_add_to(b, r->stage, r->stage, ptx_imm(1));
    ptx_value wraps = ptx_setp_eq(b, r->stage, ptx_imm(r->plan->stages));
    ptx_selp_b32_to(b, r->stage, ptx_imm(0), r->stage, wraps);
    ptx_guard(b, wraps);
    ptx_xor_to(b, r->parity, r->parity, ptx_imm(1));
}

ptx_value decode_stage(decode *d, const ring *r)
{
    return ptx_mad_lo(d->b, r->stage, ptx_imm(r->plan->stage_bytes), r->base);
}

ptx_value decode_barrier(decode *d, const ring *r)
{
    return ptx_mad_lo(d->b, r->stage, ptx_imm(16), r->barriers);
}

/* One arrival a warp tells the producer that the consumer is done with a stage. */
static void ring_release(decode *d, const ring *r)
{
    ptx_builder *b = d->b;
    ptx_bar_warp_sync(b, ptx_imm(WARP_MASK));
    ptx_value one = ptx_elect(b), barrier = decode_barrier(d, r);
    ptx_guard(b, one);
    ptx_mbarrier_arrive(b, ptx_at(barrier, 8));
}

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

static void init_barriers(decode *d)
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

enum { MAX_BLOCK_PAGES = 4 };

/* The pages of one block: addresses, the same in all lanes, and how many there are. */
typedef struct block_pages {
    ptx_value address[MAX_BLOCK_PAGES], valid;
} block_pages;

/* Waits until a stage is empty and copies a block's pages into it. */
static void copy_pages(decode *d, ring *r, const block_pages *pages)
{
    ptx_builder *b = d->b;
    const ring_plan *plan = r->plan;
    ptx_value barrier = decode_barrier(d, r), stage = decode_stage(d, r), done = ptx_label_new(b, "copied");
    decode_wait(d, ptx_at(barrier, 8), ptx_xor(b, r->parity, ptx_imm(1))); /* the first round of an empty ring passes */
    ptx_value bytes = ptx_mul_lo(b, pages->valid, ptx_imm(plan->page_bytes));
    ptx_value alone = ptx_elect(b);
    ptx_guard_not(b, alone);
    ptx_bra(b, done);
    ptx_mbarrier_arrive_expect_tx(b, barrier, bytes);
    for (int page = 0; page < d->p->pages_per_block; page++) {
        ptx_value valid = ptx_setp_ge(b, pages->valid, ptx_imm(page + 1));
        ptx_guard(b, valid);
        ptx_cp_async_bulk(b, ptx_at(stage, (int64_t)page * plan->page_bytes), ptx_at(pages->address[page], plan->page_offset), ptx_imm(plan->page_bytes),
                          barrier);
    }
    ptx_label_place(b, done);
    ring_advance(d, r);
}

/* The pages of the cursor's block: lane j reads entry j of the table, and all lanes get all addresses. */
static block_pages find_pages(decode *d, const cursor *c, ptx_value row)
{
    ptx_builder *b = d->b;
    const decode_plan *p = d->p;
    block_pages found;
    ptx_value first_entry = ptx_mul_lo(b, c->block, ptx_imm(p->pages_per_block)), entry = ptx_add(b, first_entry, d->lane);
    ptx_value pages = ptx_div_power(b, ptx_add(b, c->length, ptx_imm(p->cfg.page_tokens - 1)), p->cfg.page_tokens);
    found.valid = ptx_min_u32(b, ptx_sub(b, pages, first_entry), ptx_imm(p->pages_per_block));
    ptx_value has_page = ptx_setp_lt(b, d->lane, found.valid), mine = ptx_mov_b32(b, ptx_imm(0));
    ptx_value table = decode_param_value(d, DECODE_PARAM_page_table);
    ptx_value address = ptx_mad_wide_u32(b, ptx_add(b, row, entry), ptx_imm(4), table);
    ptx_guard(b, has_page);
    ptx_ld_global_b32_to(b, mine, address);
    ptx_value head = decode_offset(d, c->head, DECODE_PARAM_head_stride);
    ptx_value base = ptx_add_s64(b, head, decode_param_value(d, DECODE_PARAM_pages));
    for (int page = 0; page < p->pages_per_block; page++) {
        ptx_value number = ptx_shfl_idx_b32(b, mine, ptx_imm(page), ptx_imm(31), ptx_imm(WARP_MASK));
        ptx_value offset = decode_offset(d, number, DECODE_PARAM_page_stride);
        found.address[page] = ptx_add_s64(b, offset, base);
    }
    return found;
}

/* One warp feeds one consumer: lane j finds page j of each block, the first lane copies. K runs one block ahead of V, as stages fall empty. */
static void produce(decode *d, ptx_value consumer)
{
    ptx_builder *b = d->b;
    const decode_plan *p = d->p;
    ptx_scope_push(b, "produce");
    ptx_value done = ptx_label_new(b, "produced"), item = ptx_label_new(b, "produce_item"), block = ptx_label_new(b, "produce_block");
    ptx_value row_found = ptx_label_new(b, "row_found"), first_block = ptx_label_new(b, "first_block"), last_value = ptx_label_new(b, "last_value");
    cursor c = stage_cursor(d, consumer);
    ring k = ring_start(d, &p->k_ring, consumer), v = ring_start(d, &p->v_ring, consumer);
    ptx_value nothing = ptx_setp_eq(b, c.left, ptx_imm(0));
    ptx_guard(b, nothing);
    ptx_bra_uni(b, done);
    block_pages before = {.valid = ptx_mov_b32(b, ptx_imm(0))}; /* those of the block before; none before the first */
    for (int page = 0; page < p->pages_per_block; page++) before.address[page] = ptx_mov_b64(b, ptx_imm(0));

    ptx_label_place(b, item);
    ptx_value row = ptx_mul_lo(b, c.batch, decode_param_value(d, DECODE_PARAM_table_stride));
    ptx_value csr = ptx_setp_ne_b64(b, decode_param_value(d, DECODE_PARAM_page_indptr), ptx_imm(0));
    ptx_guard_not(b, csr);
    ptx_bra_uni(b, row_found);
    ptx_ld_global_b32_to(b, row, ptx_mad_wide_u32(b, c.batch, ptx_imm(4), decode_param_value(d, DECODE_PARAM_page_indptr)));
    ptx_label_place(b, row_found);

    ptx_label_place(b, block);
    block_pages pages = find_pages(d, &c, row);
    copy_pages(d, &k, &pages);
    ptx_value first = ptx_setp_eq(b, before.valid, ptx_imm(0));
    ptx_guard(b, first);
    ptx_bra_uni(b, first_block);
    copy_pages(d, &v, &before);
    ptx_label_place(b, first_block);
    ptx_mov_b32_to(b, before.valid, pages.valid);
    for (int page = 0; page < p->pages_per_block; page++) ptx_mov_b64_to(b, before.address[page], pages.address[page]);

    ptx_add_to(b, c.block, c.block, ptx_imm(1));
    ptx_sub_to(b, c.left, c.left, ptx_imm(1));
    ptx_value finished = ptx_setp_eq(b, c.left, ptx_imm(0));
    ptx_guard(b, finished);
    ptx_bra_uni(b, last_value);
    ptx_value same_item = ptx_setp_lt(b, c.block, c.blocks);
    ptx_guard(b, same_item);
    ptx_bra_uni(b, block);
    stage_cursor_next_item(d, &c);
    ptx_bra_uni(b, item);
    ptx_label_place(b, last_value);
    copy_pages(d, &v, &before);
    ptx_label_place(b, done);
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
static void consumer_setup(decode *d)
{
    ptx_builder *b = d->b;
    const decode_plan *p = d->p;
    ptx_value consumer = d->warpgroup;
    d->worker = decode_worker(d, consumer);
    decode_place_thread(d);
    d->exchange = ptx_add(b, ptx_mad_lo(b, consumer, ptx_imm(p->shared[SHARED_EXCHANGE].bytes / (uint32_t)p->consumers), d->shared), ptx_imm(p->shared[SHARED_EXCHANGE].offset));
    d->p_limbs = ptx_add(b, ptx_mad_lo(b, consumer, ptx_imm(p->p_bytes), d->shared), ptx_imm(p->shared[SHARED_P].offset));
    d->q_limbs = ptx_add(b, ptx_mad_lo(b, consumer, ptx_imm(p->q_bytes), d->shared), ptx_imm(p->shared[SHARED_Q].offset));

    if (p->descriptors_kept) make_descriptors(d);

    /* Places in a stage: this warp's K chunk, its tokens' metadata, this thread's V words */
    ptx_value group = decode_token_group(d, d->lane);
    d->k_offset = ptx_mad_lo(b, d->lane, ptx_imm(16), ptx_mul_lo(b, d->warp, ptx_imm(p->page.k_chunk_bytes)));
    ptx_value page = ptx_div_power(b, d->warp, p->chunks_per_page), chunk = ptx_and(b, d->warp, ptx_imm(p->chunks_per_page - 1));
    ptx_value meta = ptx_add(b, ptx_mul_lo(b, page, ptx_imm(p->v_ring.page_bytes)), ptx_imm(p->page.k_metadata - p->v_ring.page_offset));
    meta = ptx_mad_lo(b, chunk, ptx_imm(CHUNK_TOKENS * METADATA_BYTES), meta);
    meta = ptx_mad_lo(b, d->rr, ptx_imm(4 * METADATA_BYTES), meta);
    d->meta_offset = ptx_mad_lo(b, group, ptx_imm(p->accumulators * METADATA_BYTES), meta);
    /* First P' byte: 16-token slab 4 * warp + rr / 4, head row, byte 4 * (rr % 4) + first tile */
    ptx_value slab = ptx_mad_lo(b, d->warp, ptx_imm(4), ptx_shr_u32(b, d->rr, ptx_imm(2))), head = decode_first_head(d);
    ptx_value store = ptx_mad_lo(b, head, ptx_imm(16), ptx_mad_lo(b, slab, ptx_imm(p->p_lbo), d->p_limbs));
    store = ptx_mad_lo(b, ptx_and(b, d->rr, ptx_imm(3)), ptx_imm(4), store);
    d->p_store = ptx_mad_lo(b, group, ptx_imm(p->accumulators), store);
    d->exchange_row = ptx_mad_lo(b, head, ptx_imm(16), d->exchange);
    d->exchange_slot = ptx_mad_lo(b, d->warp, ptx_imm(4), d->exchange_row);
}

/* Registers that live across blocks. */
static void consumer_registers(decode *d)
{
    ptx_builder *b = d->b;
    const decode_plan *p = d->p;
    for (int acc = 0; acc < p->accumulators; acc++) d->q_step[acc] = ptx_reg(b, PTX_KIND_F);
    for (int e = 0; e < p->thread_heads; e++) {
        d->q_sum[e] = ptx_reg(b, PTX_KIND_F);
        d->reference[e] = ptx_reg(b, PTX_KIND_F);
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
    /* both products use the same accumulators, unless they differ in length, which would tie ptxas's hands */
    for (int tile = 0; tile < MAX_TILES; tile++)
        for (int n = 0; n < p->pv_columns / 2; n++) {
            d->value_sums[tile][n] = ptx_reg(b, PTX_KIND_R);
            d->score_sums[tile][n] = p->qk_columns == p->pv_columns ? d->value_sums[tile][n] : ptx_reg(b, PTX_KIND_R);
        }
}

static void item_start(decode *d)
{
    ptx_builder *b = d->b;
    for (int e = 0; e < d->p->thread_heads; e++) {
        ptx_mov_f32_to(b, d->reference[e], ptx_fimm(-__builtin_inff()));
        ptx_mov_f32_to(b, d->l[e], ptx_fimm(0));
        ptx_mov_f32_to(b, d->z[e], ptx_fimm(0));
        for (int tile = 0; tile < d->p->channel_tiles; tile++)
            for (int h = 0; h < 2; h++) ptx_mov_f32_to(b, d->o[tile][h][e], ptx_fimm(0));
    }
}

/* The scores just computed become those of the current block. */
static void take_next_scores(decode *d)
{
    for (int acc = 0; acc < d->p->accumulators; acc++)
        for (int h = 0; h < 2; h++)
            for (int e = 0; e < d->p->thread_heads; e++) ptx_mov_f32_to(d->b, d->score[acc][h][e], d->next_score[acc][h][e]);
}

/* One block; with `next`, the following block's scores are computed under this one's softmax, some before and some after the maxima. */
static void consume_block(decode *d, ring *k, ring *v, const cursor *c, bool next)
{
    ptx_builder *b = d->b;
    int all = d->p->accumulators, some = d->p->score_flight;
    ring next_v = *v;
    if (next) {
        decode_wait(d, decode_barrier(d, k), k->parity);
        stage_score_issue(d, k, 0, some);
    }
    ptx_value tokens_left = ptx_sub(b, c->length, ptx_mul_lo(b, c->block, ptx_imm(d->p->block_tokens)));
    stage_softmax_maxima(d, v, tokens_left);
    next_v.stage = ptx_mov_b32(b, v->stage);
    next_v.parity = ptx_mov_b32(b, v->parity);
    ring_advance(d, &next_v);
    if (next) {
        decode_wait(d, decode_barrier(d, &next_v), next_v.parity);
        stage_score_metadata(d, &next_v);
        for (int acc = some; acc < all; acc += some) {
            ptx_wgmma_wait(b, ptx_imm(0));
            stage_score_combine(d, acc - some, acc);
            stage_score_issue(d, k, acc, acc + some);
        }
        ring_release(d, k);
        ring_advance(d, k);
    }
    decode_consumer_sync(d);
    ptx_value reference[MAX_THREAD_HEADS];
    stage_softmax_reference(d, reference);
    softmax_factors factors = stage_softmax_weights(d, reference);
    if (next) {
        ptx_wgmma_wait(b, ptx_imm(0));
        stage_score_combine(d, all - some, all);
    }
    ptx_fence_proxy_async(b); /* P' limbs, written a while ago, become visible to the tensor cores */
    stage_value_load(d, v);
    decode_consumer_sync(d);
    for (int tile = 0, end = d->p->value_tiles; tile < d->p->channel_tiles; tile = end, end += d->p->value_tiles) {
        if (tile > 0) stage_value_load(d, v);
        stage_value_issue(d, v, tile, end);
        if (end == d->p->channel_tiles) ring_release(d, v);
        ptx_wgmma_wait(b, ptx_imm(0));
        stage_value_update(d, &factors, tile, end);
    }
    ptx_mov_b32_to(b, v->stage, next_v.stage);
    ptx_mov_b32_to(b, v->parity, next_v.parity);
    if (next) take_next_scores(d);
}

/* Scores of an item's first block. */
static void score_first_block(decode *d, ring *k, const ring *v)
{
    ptx_builder *b = d->b;
    ptx_scope_push(b, "first");
    decode_wait(d, decode_barrier(d, k), k->parity);
    decode_wait(d, decode_barrier(d, v), v->parity);
    stage_score_metadata(d, v);
    for (int acc = 0; acc < d->p->accumulators; acc += d->p->score_flight) {
        stage_score_issue(d, k, acc, acc + d->p->score_flight);
        ptx_wgmma_wait(b, ptx_imm(0));
        stage_score_combine(d, acc, acc + d->p->score_flight);
    }
    ring_release(d, k);
    ring_advance(d, k);
    take_next_scores(d);
    ptx_scope_pop(b);
}

/* What only the end of an item needs waits in shared memory while its blocks are worked on; stage_query's barriers lie between. */
static void park_item(decode *d, const cursor *c)
{
    ptx_builder *b = d->b;
    ptx_value first = ptx_setp_eq(b, d->thread, ptx_imm(0));
    ptx_guard(b, first);
    ptx_st_shared_v4(b, ptx_at(d->exchange, EXCHANGE_ITEM), (ptx_value[]){c->batch, c->head, c->block, c->blocks});
    ptx_guard(b, first);
    ptx_st_shared_b32(b, ptx_at(d->exchange, EXCHANGE_ITEM + 16), c->left);
}

static ptx_value unpark_item(decode *d, cursor *c)
{
    ptx_builder *b = d->b;
    ptx_value parked[4];
    ptx_ld_shared_v4(b, parked, ptx_at(d->exchange, EXCHANGE_ITEM));
    ptx_mov_b32_to(b, c->batch, parked[0]);
    ptx_mov_b32_to(b, c->head, parked[1]);
    ptx_mov_b32_to(b, c->blocks, parked[3]);
    ptx_ld_shared_b32_to(b, c->left, ptx_at(d->exchange, EXCHANGE_ITEM + 16));
    return parked[2];
}

static void consume(decode *d)
{
    ptx_builder *b = d->b;
    consumer_setup(d);
    consumer_registers(d);
    stage_output_start(d);
    cursor c = stage_cursor(d, d->warpgroup);
    ring k = ring_start(d, &d->p->k_ring, d->warpgroup), v = ring_start(d, &d->p->v_ring, d->warpgroup);
    ptx_value item = ptx_label_new(b, "item"), loop = ptx_label_new(b, "block"), last = ptx_label_new(b, "last_block"), done = ptx_label_new(b, "worker_done");
    ptx_value nothing = ptx_setp_eq(b, c.left, ptx_imm(0));
    ptx_guard(b, nothing);
    ptx_bra_uni(b, done);

    ptx_label_place(b, item);
    ptx_value last_block = ptx_sub(b, ptx_min_u32(b, ptx_add(b, c.block, c.left), c.blocks), ptx_imm(1));
    park_item(d, &c);
    stage_query(d, &c);
    item_start(d);
    score_first_block(d, &k, &v);

    ptx_value only_one = ptx_setp_eq(b, c.block, last_block);
    ptx_guard(b, only_one);
    ptx_bra_uni(b, last);
    ptx_label_place(b, loop);
    ptx_scope_push(b, "loop");
    consume_block(d, &k, &v, &c, true);
    ptx_add_to(b, c.block, c.block, ptx_imm(1));
    ptx_value more = ptx_setp_lt(b, c.block, last_block);
    ptx_guard(b, more);
    ptx_bra_uni(b, loop);
    ptx_scope_pop(b);

    ptx_label_place(b, last);
    ptx_scope_push(b, "last");
    consume_block(d, &k, &v, &c, false);
    ptx_scope_pop(b);
    ptx_value first_block = unpark_item(d, &c), end_block = ptx_add(b, last_block, ptx_imm(1));
    stage_output(d, &c, first_block, end_block);
    ptx_sub_to(b, c.left, c.left, ptx_sub(b, end_block, first_block));
    ptx_value finished = ptx_setp_eq(b, c.left, ptx_imm(0));
    ptx_guard(b, finished);
    ptx_bra_uni(b, done);
    stage_cursor_next_item(d, &c);
    ptx_bra_uni(b, item);
    ptx_label_place(b, done);
}

void decode_hopper_emit(ptx_builder *b, const decode_plan *plan)
{
    decode state = {.b = b, .p = plan}, *d = &state;
#define PARAM(name, bytes, meaning) d->param[DECODE_PARAM_##name] = ptx_param(b, "param_" #name, bytes);
    DECODE_PARAMS(PARAM)
#undef PARAM
    ptx_constants(b);
    d->tid = ptx_mov_special(b, ptx_sreg(PTX_SPECIAL_TID_X));
    d->lane = ptx_and(b, d->tid, ptx_imm(31));
    d->warpgroup = decode_uniform(d, ptx_shr_u32(b, d->tid, ptx_imm(7)));
    d->shared = ptx_mov_special(b, ptx_sreg(PTX_SPECIAL_SHARED_BASE));
    init_barriers(d);
    ptx_griddepcontrol_wait(b);
    ptx_griddepcontrol_launch(b);
    stage_schedule(d);

    ptx_value producer = ptx_label_new(b, "producer"), empty = ptx_label_new(b, "empty"), end = ptx_label_new(b, "end");
    ptx_value is_producer = ptx_setp_eq(b, d->warpgroup, ptx_imm(plan->consumers));
    ptx_guard(b, is_producer);
    ptx_bra_uni(b, producer);
    ptx_setmaxnreg_inc(b, ptx_imm(plan->consumer_registers));
    consume(d);
    ptx_bra_uni(b, end);

    ptx_label_place(b, producer);
    ptx_setmaxnreg_dec(b, ptx_imm(plan->producer_registers));
    ptx_value warp = decode_uniform(d, ptx_shr_u32(b, ptx_and(b, d->tid, ptx_imm(127)), ptx_imm(5)));
    ptx_value spare = ptx_setp_eq(b, warp, ptx_imm(3)), feeds = ptx_setp_lt(b, warp, ptx_imm(plan->consumers));
    ptx_guard(b, spare);
    ptx_bra_uni(b, empty);
    ptx_guard_not(b, feeds);
    ptx_bra_uni(b, end);
    produce(d, warp);
    ptx_bra(b, end);
    ptx_label_place(b, empty);
    stage_empty_sequences(d);
    ptx_label_place(b, end);
    ptx_ret(b);
}
