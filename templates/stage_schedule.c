/* Planning on the device: every block finds the share of its workers from the lengths alone.
 *
 * Work is the list of all blocks of 256 tokens, by sequence, KV head and position. Worker W of n takes blocks [W*q + min(W, r), ...) of the total
 * n*q + r, so one long sequence and a thousand short ones are spread alike. Workers are numbered across the blocks first, so that little work
 * touches every SM. */
#include "decode.h"

enum { BLOCK_SHIFT = 8 }; /* log2 of the tokens of a block */

static ptx_value blocks_of(ptx_builder *b, ptx_value length)
{
    return ptx_shr_u32(b, ptx_add(b, length, ptx_imm((1 << BLOCK_SHIFT) - 1)), ptx_imm(BLOCK_SHIFT));
}

/* Tokens of a sequence; a negative length counts as none. */
static ptx_value load_length(decode *d, ptx_value batch)
{
    ptx_builder *b = d->b;
    ptx_value address = ptx_mad_wide_u32(b, batch, ptx_imm(4), decode_param_value(d, DECODE_PARAM_lengths));
    return ptx_max_s32(b, ptx_ld_global_b32(b, address), ptx_imm(0));
}

/* Inclusive sum over the lanes of a warp. */
static ptx_value warp_scan(decode *d, ptx_value x)
{
    ptx_builder *b = d->b;
    ptx_value sum = ptx_mov_b32(b, x);
    for (int delta = 1; delta < 32; delta *= 2) {
        ptx_value lower = ptx_shfl_up_b32(b, sum, ptx_imm(delta), ptx_imm(0), ptx_imm(WARP_MASK));
        ptx_value has = ptx_setp_ge(b, d->lane, ptx_imm(delta));
        ptx_guard(b, has);
        ptx_add_to(b, sum, sum, lower);
    }
    return sum;
}

/* Writes the record of one worker if its first block lies in this thread's sequences [first, end), whose blocks begin at `before`. */
static void find_start(decode *d, int consumer, ptx_value first, ptx_value end, ptx_value before, ptx_value after, ptx_value share, ptx_value extra)
{
    ptx_builder *b = d->b;
    ptx_value out = ptx_label_new(b, "schedule_skip"), walk = ptx_label_new(b, "schedule_walk"), found = ptx_label_new(b, "schedule_found");
    ptx_value worker = decode_worker(d, ptx_mov_b32(b, ptx_imm(consumer)));
    ptx_value start = ptx_mad_lo(b, worker, share, ptx_min_u32(b, worker, extra));
    ptx_value count = ptx_mov_b32(b, share), one_more = ptx_setp_lt(b, worker, extra);
    ptx_guard(b, one_more);
    ptx_add_to(b, count, count, ptx_imm(1));
    ptx_value inside = ptx_setp_ge(b, start, before);
    inside = ptx_and_pred(b, inside, ptx_setp_lt(b, start, after));
    inside = ptx_and_pred(b, inside, ptx_setp_ne(b, count, ptx_imm(0)));
    ptx_guard_not(b, inside);
    ptx_bra(b, out);

    ptx_value batch = ptx_mov_b32(b, first), at = ptx_sub(b, start, before);
    ptx_label_place(b, walk);
    ptx_value length = load_length(d, batch), heads = decode_param_value(d, DECODE_PARAM_kv_heads);
    ptx_value item_blocks = ptx_mul_lo(b, blocks_of(b, length), heads);
    ptx_value here = ptx_setp_lt(b, at, item_blocks);
    ptx_guard(b, here);
    ptx_bra(b, found);
    ptx_sub_to(b, at, at, item_blocks);
    ptx_add_to(b, batch, batch, ptx_imm(1));
    ptx_value more = ptx_setp_lt(b, batch, end);
    ptx_guard(b, more);
    ptx_bra(b, walk);
    ptx_label_place(b, found);
    uint32_t record = d->p->shared[SHARED_SCHEDULE].offset + (uint32_t)(consumer * SCHEDULE_RECORD);
    ptx_st_shared_v4(b, ptx_at(d->shared, record), (ptx_value[]){batch, at, count, length});
    ptx_label_place(b, out);
}

/* Line i of some memory is left to lane i / blocks of block i % blocks: all blocks together start the first lines on their way into L2. */
static void prefetch_lines(decode *d, ptx_value base, ptx_value bytes)
{
    ptx_builder *b = d->b;
    ptx_value block = ptx_mov_special(b, ptx_sreg(PTX_SPECIAL_CTAID_X)), blocks = ptx_mov_special(b, ptx_sreg(PTX_SPECIAL_NCTAID_X));
    ptx_value line = ptx_mad_lo(b, blocks, d->tid, block);
    ptx_value wanted = ptx_setp_lt(b, ptx_shl(b, line, ptx_imm(7)), bytes);
    wanted = ptx_and_pred(b, wanted, ptx_setp_lt(b, d->tid, ptx_imm(32)));
    ptx_value address = ptx_mad_wide_u32(b, line, ptx_imm(128), base);
    ptx_guard(b, wanted);
    ptx_prefetch_l2(b, address);
}

/* A padded page table, and the first queries, while the lengths are read. */
static void prefetch(decode *d)
{
    ptx_builder *b = d->b;
    const config *cfg = &d->p->cfg;
    ptx_value batch = decode_param_value(d, DECODE_PARAM_batch), heads = decode_param_value(d, DECODE_PARAM_kv_heads);
    ptx_value table = ptx_shl(b, ptx_mul_lo(b, decode_param_value(d, DECODE_PARAM_table_stride), batch), ptx_imm(2));
    ptx_value csr = ptx_setp_ne_b64(b, decode_param_value(d, DECODE_PARAM_page_indptr), ptx_imm(0));
    table = ptx_selp_b32(b, ptx_imm(0), table, csr);
    prefetch_lines(d, decode_param_value(d, DECODE_PARAM_page_table), table);
    ptx_value rows = ptx_mul_lo(b, ptx_mul_lo(b, heads, batch), ptx_imm(cfg->heads * cfg->head_dim * number_info(cfg->q_type)->bytes));
    prefetch_lines(d, decode_param_value(d, DECODE_PARAM_q), rows);
}

void stage_schedule(decode *d)
{
    ptx_builder *b = d->b;
    const decode_plan *p = d->p;
    uint32_t schedule = p->shared[SHARED_SCHEDULE].offset;
    ptx_scope_push(b, "schedule");

    /* No work until some thread finds a start */
    ptx_value zero = ptx_mov_b32(b, ptx_imm(0)), is_consumer_id = ptx_setp_lt(b, d->tid, ptx_imm(p->consumers));
    ptx_value record = ptx_mad_lo(b, d->tid, ptx_imm(SCHEDULE_RECORD), d->shared);
    ptx_guard(b, is_consumer_id);
    ptx_st_shared_v4(b, ptx_at(record, schedule), (ptx_value[]){zero, zero, zero, zero});

    /* Each thread sums the blocks of a run of neighbouring sequences */
    ptx_value batch = decode_param_value(d, DECODE_PARAM_batch);
    ptx_value run = ptx_div_u32(b, ptx_add(b, batch, ptx_imm(p->threads - 1)), ptx_imm(p->threads));
    ptx_value first = ptx_min_u32(b, ptx_mul_lo(b, d->tid, run), batch), end = ptx_min_u32(b, ptx_add(b, first, run), batch);
    ptx_value blocks = ptx_mov_b32(b, ptx_imm(0)), at = ptx_add(b, first, ptx_imm(1));
    ptx_value sum = ptx_label_new(b, "schedule_sum"), summed = ptx_label_new(b, "schedule_summed");
    ptx_value any = ptx_setp_lt(b, first, end);
    ptx_value address = ptx_mad_wide_u32(b, first, ptx_imm(4), decode_param_value(d, DECODE_PARAM_lengths));
    ptx_guard(b, any);
    ptx_ld_global_b32_to(b, blocks, address);
    decode_init_barriers(d); /* while the first length is on its way */
    prefetch(d);
    ptx_mov_b32_to(b, blocks, blocks_of(b, ptx_max_s32(b, blocks, ptx_imm(0))));
    ptx_value none = ptx_setp_ge(b, at, end);
    ptx_guard(b, none);
    ptx_bra(b, summed);
    ptx_label_place(b, sum);
    ptx_add_to(b, blocks, blocks, blocks_of(b, load_length(d, at)));
    ptx_add_to(b, at, at, ptx_imm(1));
    ptx_value more = ptx_setp_lt(b, at, end);
    ptx_guard(b, more);
    ptx_bra(b, sum);
    ptx_label_place(b, summed);
    ptx_value mine = ptx_mul_lo(b, blocks, decode_param_value(d, DECODE_PARAM_kv_heads));

    /* Exclusive sum over the block, and the total */
    ptx_value inclusive = warp_scan(d, mine);
    ptx_value warp = ptx_shr_u32(b, d->tid, ptx_imm(5));
    ptx_value sums = ptx_mad_lo(b, warp, ptx_imm(4), d->shared);
    ptx_value last_lane = ptx_setp_eq(b, d->lane, ptx_imm(31));
    ptx_guard(b, last_lane);
    ptx_st_shared_b32(b, ptx_at(sums, schedule + SCHEDULE_WARP_SUMS), inclusive);
    ptx_bar_sync(b, ptx_imm(0), ptx_imm(p->threads));
    ptx_value total = ptx_mov_b32(b, ptx_imm(0)), before = ptx_sub(b, inclusive, mine);
    for (int w = 0; w < p->threads / 32; w++) {
        ptx_value s = ptx_ld_shared_b32(b, ptx_at(d->shared, schedule + SCHEDULE_WARP_SUMS + (uint32_t)w * 4));
        ptx_add_to(b, total, total, s);
        ptx_value lower = ptx_setp_ge(b, warp, ptx_imm(w + 1));
        ptx_guard(b, lower);
        ptx_add_to(b, before, before, s);
    }
    ptx_value workers = ptx_mul_lo(b, ptx_mov_special(b, ptx_sreg(PTX_SPECIAL_NCTAID_X)), ptx_imm(p->consumers));
    ptx_value share = ptx_div_u32(b, total, workers), extra = ptx_sub(b, total, ptx_mul_lo(b, share, workers));
    ptx_value after = ptx_add(b, before, mine);
    for (int c = 0; c < p->consumers; c++) find_start(d, c, first, end, before, after, share, extra);
    ptx_bar_sync(b, ptx_imm(0), ptx_imm(p->threads));
    ptx_scope_pop(b);
}

cursor stage_cursor(decode *d, ptx_value consumer)
{
    ptx_builder *b = d->b;
    cursor c;
    ptx_value record[4], address = ptx_mad_lo(b, consumer, ptx_imm(SCHEDULE_RECORD), d->shared);
    ptx_ld_shared_v4(b, record, ptx_at(address, d->p->shared[SHARED_SCHEDULE].offset));
    for (int i = 0; i < 4; i++) record[i] = decode_uniform(d, record[i]);
    c.batch = record[0];
    c.left = record[2];
    c.length = record[3];
    c.blocks = blocks_of(b, c.length);
    ptx_value divisor = ptx_max_u32(b, c.blocks, ptx_imm(1));
    c.head = ptx_div_u32(b, record[1], divisor);
    c.block = ptx_sub(b, record[1], ptx_mul_lo(b, c.head, divisor));
    return c;
}

void stage_cursor_next_item(decode *d, cursor *c)
{
    ptx_builder *b = d->b;
    ptx_value done = ptx_label_new(b, "item_found"), sequence = ptx_label_new(b, "next_sequence");
    ptx_mov_b32_to(b, c->block, ptx_imm(0));
    ptx_add_to(b, c->head, c->head, ptx_imm(1));
    ptx_value same = ptx_setp_lt(b, c->head, decode_param_value(d, DECODE_PARAM_kv_heads));
    ptx_guard(b, same);
    ptx_bra_uni(b, done);
    ptx_mov_b32_to(b, c->head, ptx_imm(0));
    ptx_label_place(b, sequence);
    ptx_add_to(b, c->batch, c->batch, ptx_imm(1));
    ptx_mov_b32_to(b, c->length, decode_uniform(d, load_length(d, c->batch)));
    ptx_mov_b32_to(b, c->blocks, blocks_of(b, c->length));
    ptx_value empty = ptx_setp_eq(b, c->blocks, ptx_imm(0));
    ptx_guard(b, empty);
    ptx_bra_uni(b, sequence);
    ptx_label_place(b, done);
}

/* One warp of each block: rows of sequences without tokens are zero, their log-sum-exp minus infinity. */
void stage_empty_sequences(decode *d)
{
    ptx_builder *b = d->b;
    const config *cfg = &d->p->cfg;
    ptx_scope_push(b, "empty");
    ptx_value loop = ptx_label_new(b, "empty_loop"), next = ptx_label_new(b, "empty_next"), done = ptx_label_new(b, "empty_done");
    ptx_value batch = ptx_mov_special(b, ptx_sreg(PTX_SPECIAL_CTAID_X)), blocks = ptx_mov_special(b, ptx_sreg(PTX_SPECIAL_NCTAID_X));
    ptx_value heads = ptx_mul_lo(b, decode_param_value(d, DECODE_PARAM_kv_heads), ptx_imm(cfg->heads));
    ptx_value bytes = ptx_mul_lo(b, heads, ptx_imm(cfg->head_dim * number_info(cfg->o_type)->bytes));
    ptx_value zero = ptx_mov_b32(b, ptx_imm(0)), minus_infinity = ptx_mov_b32(b, ptx_imm(0xff800000));
    ptx_value has_lse = ptx_setp_ne_b64(b, decode_param_value(d, DECODE_PARAM_lse), ptx_imm(0));

    ptx_label_place(b, loop);
    ptx_value end = ptx_setp_ge(b, batch, decode_param_value(d, DECODE_PARAM_batch));
    ptx_guard(b, end);
    ptx_bra_uni(b, done);
    ptx_value filled = ptx_setp_ne(b, load_length(d, batch), ptx_imm(0));
    ptx_guard(b, filled);
    ptx_bra_uni(b, next);

    ptx_value row = decode_offset(d, batch, DECODE_PARAM_out_stride);
    row = ptx_add_s64(b, row, decode_param_value(d, DECODE_PARAM_out));
    ptx_value at = ptx_mul_lo(b, d->lane, ptx_imm(16));
    ptx_value fill = ptx_label_new(b, "empty_fill"), lse = ptx_label_new(b, "empty_lse");
    ptx_label_place(b, fill);
    ptx_value full = ptx_setp_ge(b, at, bytes);
    ptx_guard(b, full);
    ptx_bra(b, lse);
    ptx_st_global_v4(b, ptx_add_s64(b, row, ptx_cvt_u64_u32(b, at)), (ptx_value[]){zero, zero, zero, zero});
    ptx_add_to(b, at, at, ptx_imm(512));
    ptx_bra(b, fill);
    ptx_label_place(b, lse);
    ptx_guard_not(b, has_lse);
    ptx_bra_uni(b, next);
    ptx_value head = ptx_mov_b32(b, d->lane), lse_fill = ptx_label_new(b, "empty_lse_fill");
    ptx_label_place(b, lse_fill);
    ptx_value past = ptx_setp_ge(b, head, heads);
    ptx_guard(b, past);
    ptx_bra(b, next);
    ptx_value lse_base = decode_param_value(d, DECODE_PARAM_lse);
    ptx_value address = ptx_mad_wide_u32(b, ptx_mad_lo(b, batch, heads, head), ptx_imm(4), lse_base);
    ptx_st_global_b32(b, address, minus_infinity);
    ptx_add_to(b, head, head, ptx_imm(32));
    ptx_bra(b, lse_fill);

    ptx_label_place(b, next);
    ptx_add_to(b, batch, batch, blocks);
    ptx_bra_uni(b, loop);
    ptx_label_place(b, done);
    ptx_scope_pop(b);
}
