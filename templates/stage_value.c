/* Second product: O^T += V^T P'^T, 64 channels a tile. Every warp needs all 256 tokens of its 16 channels of a tile. */
#include "decode.h"

#include <math.h>

/* Registers of the A operand of (channel tile, step): a mask, and a shift before it where several steps or halves share words. Codes stay where they
   stand in their byte; the weight of a tile's place goes into the output, that of a 2-bit step's place into P' (the two bits it costs are to spare;
   four bits, or the four of a half's place, are not). */
static void unpack_step(decode *d, const ptx_value *words, ptx_value shifted[][MAX_WORDS], int tile, int step, ptx_value a[4])
{
    ptx_builder *b = d->b;
    const encoding *codes = d->p->cfg.v.codes;
    const v_fields *v = &d->p->v;
    for (int r = 0; r < 4; r++) {
        int half = r / 2, row = r % 2, at_step = step % v->steps, place = v->steps * (tile % v->tiles), down = v->steps * v->tiles * (half % v->halves);
        if (v->step_bits) place += at_step;
        else down += at_step;
        int n = (((tile / v->tiles) * (2 / v->steps) + step / v->steps) * (2 / v->halves) + half / v->halves) * 2 + row;
        ptx_value word = words[n];
        if (down > 0) {
            if (shifted[down][n].kind == PTX_KIND_NONE) shifted[down][n] = ptx_shr_u32(b, word, ptx_imm(codes->bits * down));
            word = shifted[down][n];
        }
        a[r] = ptx_and(b, word, ptx_imm((int64_t)(uint32_t)(codes->mask << (codes->bits * place))));
    }
}

static void load_chunk(decode *d, ptx_value address, int chunk, ptx_value *words)
{
    const decode_plan *p = d->p;
    int64_t at = (int64_t)(chunk / p->chunks_per_page) * p->v_ring.page_bytes + (chunk % p->chunks_per_page) * (int64_t)p->page.v_chunk_bytes;
    if (p->v.words == 2) {
        ptx_ld_shared_v2(d->b, words, ptx_at(address, at));
        return;
    }
    for (int n = 0; n < p->v.words; n += 4) ptx_ld_shared_v4(d->b, words + n, ptx_at(address, at + n / 4 * 2048));
}

static void load_chunks(decode *d, const ring *v, int first, int end)
{
    ptx_value tid = ptx_mov_special(d->b, ptx_sreg(PTX_SPECIAL_TID_X)), thread = ptx_and(d->b, tid, ptx_imm(127));
    ptx_value address = ptx_mad_lo(d->b, thread, ptx_imm(d->p->v.words < 4 ? d->p->v.words * 4 : 16), decode_stage(d, v));
    for (int chunk = first; chunk < end; chunk++) load_chunk(d, address, chunk, d->value[chunk]);
}

/* Words of the first chunks, early enough to hide the loads behind a barrier. */
void stage_value_load(decode *d, const ring *v)
{
    ptx_scope_push(d->b, "v");
    load_chunks(d, v, 0, d->p->value_early);
    ptx_scope_pop(d->b);
}

void stage_value_issue(decode *d, const ring *v, int first_tile, int end_tile)
{
    ptx_builder *b = d->b;
    const decode_plan *p = d->p;
    ptx_scope_push(b, "v");
    int chunks = p->block_tokens / CHUNK_TOKENS;
    for (int chunk = 0; chunk < chunks; chunk++) {
        int after = chunk - p->value_early, end = chunk + p->value_flight;
        if (after >= 0 && after % p->value_flight == 0) load_chunks(d, v, chunk, end < chunks ? end : chunks);
        ptx_value shifted[4][MAX_WORDS] = {0}, a[2][MAX_TILES][4];
        ptx_scope_push(b, "unpack");
        for (int step = 0; step < 2; step++)
            for (int tile = first_tile; tile < end_tile; tile++) unpack_step(d, d->value[chunk], shifted, tile, step, a[step][tile]);
        ptx_scope_pop(b);
        ptx_wgmma_fence(b);
        for (int step = 0; step < 2; step++)
            for (int tile = first_tile; tile < end_tile; tile++)
                ptx_wgmma(b, PTX_OP_wgmma_u8_u8, d->value_sums[tile % p->value_tiles], p->pv_columns / 2, a[step][tile], decode_p_descriptor(d, 2 * chunk + step), chunk + step > 0);
        /* the operands of value_flight chunks are in registers at a time */
        ptx_wgmma_commit(b);
        if (chunk + 1 >= p->value_flight && chunk + 1 < chunks) ptx_wgmma_wait(b, ptx_imm(p->value_flight - 1));
    }
    ptx_scope_pop(b);
}

void stage_value_update(decode *d, const ptx_value factor[MAX_THREAD_HEADS], int first_tile, int end_tile)
{
    ptx_builder *b = d->b;
    ptx_scope_push(b, "v");
    ptx_scope_push(b, "update");
    for (int e = 0; e < d->p->thread_heads; e++)
        for (int tile = first_tile; tile < end_tile; tile++)
            for (int h = 0; h < 2; h++) {
                const ptx_value *acc = d->value_sums[tile % d->p->value_tiles] + (e / 2) * 12 + 2 * h + e % 2;
                ptx_value sum = decode_combine_limbs(d, acc[0], acc[4], acc[8]), o = d->o[tile][h][e];
                ptx_fma_f32_to(b, o, o, factor[e], sum);
            }
    ptx_scope_pop(b);
    ptx_scope_pop(b);
}
