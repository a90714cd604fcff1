/* The producer: finds the pages of each block and starts their copies into the rings. */
#include "decode.h"

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

/* One warp feeds one consumer: lane j finds page j of each block, an elected lane copies. */
void stage_produce(decode *d, ptx_value consumer)
{
    ptx_builder *b = d->b;
    const decode_plan *p = d->p;
    ptx_scope_push(b, "produce");
    ptx_value done = ptx_label_new(b, "produced"), item = ptx_label_new(b, "produce_item"), block = ptx_label_new(b, "produce_block");
    ptx_value row_found = ptx_label_new(b, "row_found");
    cursor c = stage_cursor(d, consumer);
    ring k = ring_start(d, &p->k_ring, consumer), v = ring_start(d, &p->v_ring, consumer);
    ptx_value nothing = ptx_setp_eq(b, c.left, ptx_imm(0));
    ptx_guard(b, nothing);
    ptx_bra_uni(b, done);

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
    copy_pages(d, &v, &pages);
    ptx_add_to(b, c.block, c.block, ptx_imm(1));
    ptx_sub_to(b, c.left, c.left, ptx_imm(1));
    ptx_value finished = ptx_setp_eq(b, c.left, ptx_imm(0));
    ptx_guard(b, finished);
    ptx_bra_uni(b, done);
    ptx_value same_item = ptx_setp_lt(b, c.block, c.blocks);
    ptx_guard(b, same_item);
    ptx_bra_uni(b, block);
    stage_cursor_next_item(d, &c);
    ptx_bra_uni(b, item);
    ptx_label_place(b, done);
    ptx_scope_pop(b);
}
