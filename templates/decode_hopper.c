/* Decode attention over a quantised KV cache on Hopper: warp-specialised, codes as the register operand of 8-bit wgmma.
 *
 *   producer warp c             rings c in shared memory        consumer warpgroup c, block i
 *   ---------------             ------------------------        -----------------------------
 *   pages of block b+1                                          wait K full(i+1); K words, mask -----> QK(i+1), first half (tensor cores)
 *   wait K empty  <-------------------------------------+       wait V full(i+1); numbers of its tokens(i+1)         |
 *   copy K codes -------------> K stage: codes          |       exponentials(i), first half                          |
 *                                                       |       scores(i+1) <----------------------------------------+
 *                                                       +------ K words, mask; K empty(i+1) -----> QK(i+1), second half
 *   wait V empty  <-------------------------------------+       exponentials(i), second half; P'(i) in shared memory |
 *   copy the rest of                                    |       scores(i+1) <----------------------------------------+
 *   block b's pages ----------> V stage: V codes,       |       each warp's maxima(i+1)
 *                               K and V metadata        |       barrier: P'(i) is complete, the maxima(i+1) are there
 *                                                       |       V words, mask -------------------> PV(i)
 *                                                       +------ V empty(i); O = O * factor(i) + PV(i) <--+
 *
 * V empty(i) also says that no warp reads P'(i) any more, which the exponentials(i+1) wait for.
 *
 * Every consumer is a worker of its own: a contiguous share of all blocks (stage_schedule.c), its own rings, its own softmax state; at the end of an
 * item it writes the output, or a partial result that the merge kernel adds up. Nothing is shared between consumers. */
#include "decode_hopper.h"

#include "decode.h"

static void item_start(decode *d)
{
    ptx_builder *b = d->b;
    for (int e = 0; e < d->p->thread_heads; e++) {
        ptx_mov_f32_to(b, d->reference[e], ptx_fimm(-__builtin_inff()));
        ptx_mov_f32_to(b, d->floor[e], ptx_fimm(-1e38f)); /* finite: tokens past the end weigh 0 also where all scores are NaN */
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
    stage_numbers_take_next(d);
}

/* Starts some accumulators more of a block's scores, as soon as those before are in registers; K is given back with the last ones. */
static void advance_scores(decode *d, ring *k, int *issued)
{
    int some = d->p->score_flight;
    if (*issued > 0) stage_score_combine(d, *issued - some, *issued);
    stage_score_issue(d, k, *issued, *issued + some);
    *issued += some;
    if (*issued < d->p->accumulators) return;
    ring_release(d, k);
    ring_advance(d, k);
}

/* One block; with `next`, the following block's scores are computed under this one's softmax, some before and some after the first exponentials, and
   their maxima travel with P' through the one barrier of a block. */
static void consume_block(decode *d, ring *k, ring *v, ring *released, const cursor *c, bool next)
{
    ptx_builder *b = d->b;
    int all = d->p->accumulators, issued = 0;
    ring next_v = *v;
    softmax_sums sums;
    ptx_value next_block = ptx_add(b, c->block, ptx_imm(1));
    stage_softmax_start(d, &sums);
    if (next) {
        decode_wait(d, decode_barrier(d, k), k->parity);
        advance_scores(d, k, &issued);
    }
    decode_wait(d, ptx_at(decode_barrier(d, released), 8), released->parity); /* all four warps are done with the P' of the block before */
    stage_softmax_weights(d, 0, c->block, &sums);
    next_v.stage = ptx_mov_b32(b, v->stage);
    next_v.parity = ptx_mov_b32(b, v->parity);
    ring_advance(d, &next_v);
    if (next) {
        decode_wait(d, decode_barrier(d, &next_v), next_v.parity);
        stage_numbers(d, &next_v, c, next_block);
        if (issued < all) advance_scores(d, k, &issued);
    }
    stage_softmax_weights(d, 1, c->block, &sums);
    ptx_value factor[MAX_THREAD_HEADS];
    stage_softmax_add(d, &sums, factor);
    if (next) {
        while (issued < all) advance_scores(d, k, &issued);
        stage_score_combine(d, all - d->p->score_flight, all);
        stage_softmax_maxima(d, c, next_block);
    }
    ptx_fence_proxy_async(b); /* P' limbs, written a while ago, become visible to the tensor cores */
    stage_value_load(d, v, 0, d->p->value_tiles);
    decode_consumer_sync(d);
    if (next) stage_softmax_reference(d, next_block);
    for (int tile = 0, end = d->p->value_tiles; tile < d->p->channel_tiles; tile = end, end += d->p->value_tiles) {
        if (tile > 0) stage_value_load(d, v, tile, end);
        stage_value_issue(d, v, tile, end);
        ptx_wgmma_wait(b, ptx_imm(0));
        if (end == d->p->channel_tiles) ring_release(d, v);
        stage_value_update(d, factor, tile, end);
    }
    ring_take(d, released, v);
    ring_take(d, v, &next_v);
    if (next) take_next_scores(d);
}

/* Scores of an item's first block, and their references. */
static void first_block(decode *d, ring *k, const ring *v, const cursor *c)
{
    ptx_builder *b = d->b;
    int all = d->p->accumulators;
    ptx_scope_push(b, "first");
    decode_wait(d, decode_barrier(d, k), k->parity);
    decode_wait(d, decode_barrier(d, v), v->parity);
    stage_numbers(d, v, c, c->block);
    for (int issued = 0; issued < all;) advance_scores(d, k, &issued);
    stage_score_combine(d, all - d->p->score_flight, all);
    stage_softmax_maxima(d, c, c->block);
    decode_consumer_sync(d);
    stage_softmax_reference(d, c->block);
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

/* From one item of the worker to the next. An item's first and last block follow each other, and the loop over those between lies behind: a worker
   with little to do runs straight on. */
static void consume(decode *d)
{
    ptx_builder *b = d->b;
    decode_consumer_setup(d);
    decode_consumer_registers(d);
    stage_output_start(d);
    cursor c = stage_cursor(d, d->warpgroup);
    ring k = ring_start(d, &d->p->k_ring, d->warpgroup), v = ring_start(d, &d->p->v_ring, d->warpgroup), released = ring_start(d, &d->p->v_ring, d->warpgroup);
    ptx_mov_b32_to(b, released.parity, ptx_imm(1)); /* passes, as if a block before had been released */
    ptx_value item = ptx_label_new(b, "item"), loop = ptx_label_new(b, "block"), last = ptx_label_new(b, "last_block"), done = ptx_label_new(b, "worker_done");
    ptx_value nothing = ptx_setp_eq(b, c.left, ptx_imm(0));
    ptx_guard(b, nothing);
    ptx_bra_uni(b, done);

    ptx_label_place(b, item);
    ptx_value last_block = ptx_sub(b, ptx_min_u32(b, ptx_add(b, c.block, c.left), c.blocks), ptx_imm(1));
    park_item(d, &c);
    stage_query(d, &c);
    item_start(d);
    first_block(d, &k, &v, &c);
    ptx_value several = ptx_setp_lt(b, c.block, last_block);
    ptx_guard(b, several);
    ptx_bra_uni(b, loop);

    ptx_label_place(b, last);
    ptx_scope_push(b, "last");
    consume_block(d, &k, &v, &released, &c, false);
    ptx_scope_pop(b);
    ptx_value start_block = unpark_item(d, &c), end_block = ptx_add(b, last_block, ptx_imm(1));
    stage_output(d, &c, start_block, end_block);
    ptx_sub_to(b, c.left, c.left, ptx_sub(b, end_block, start_block));
    ptx_value finished = ptx_setp_eq(b, c.left, ptx_imm(0));
    ptx_guard(b, finished);
    ptx_bra_uni(b, done);
    stage_cursor_next_item(d, &c);
    ptx_bra_uni(b, item);

    ptx_label_place(b, loop);
    ptx_scope_push(b, "loop");
    consume_block(d, &k, &v, &released, &c, true);
    ptx_add_to(b, c.block, c.block, ptx_imm(1));
    ptx_value more = ptx_setp_lt(b, c.block, last_block);
    ptx_guard(b, more);
    ptx_bra_uni(b, loop);
    ptx_bra_uni(b, last);
    ptx_scope_pop(b);
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
    ptx_griddepcontrol_wait(b);
    ptx_griddepcontrol_launch(b);
    stage_schedule(d);

    ptx_value consumer = ptx_label_new(b, "consumer"), empty = ptx_label_new(b, "empty"), end = ptx_label_new(b, "end");
    ptx_value consumes = ptx_setp_lt(b, d->warpgroup, ptx_imm(plan->consumers));
    ptx_guard(b, consumes);
    ptx_bra_uni(b, consumer);
    ptx_setmaxnreg_dec(b, ptx_imm(plan->producer_registers));
    ptx_value warp = decode_uniform(d, ptx_shr_u32(b, ptx_and(b, d->tid, ptx_imm(127)), ptx_imm(5)));
    ptx_value spare = ptx_setp_eq(b, warp, ptx_imm(3)), feeds = ptx_setp_lt(b, warp, ptx_imm(plan->consumers));
    ptx_guard(b, spare);
    ptx_bra_uni(b, empty);
    ptx_guard_not(b, feeds);
    ptx_bra_uni(b, end);
    stage_produce(d, warp);
    ptx_bra_uni(b, end);

    ptx_label_place(b, consumer);
    ptx_setmaxnreg_inc(b, ptx_imm(plan->consumer_registers));
    consume(d);
    ptx_bra_uni(b, end);

    ptx_label_place(b, empty);
    stage_empty_sequences(d);
    ptx_label_place(b, end);
    ptx_ret(b);
}
