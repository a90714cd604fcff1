/* Second product: O^T += V^T P'^T, 64 channels a tile. Every warp needs all 256 tokens of its 16 channels of a tile. */
#include "decode.h"

#include <math.h>

/* Registers of the A operand of (channel tile, step): a mask, and a shift before it for the upper of two halves that share words. Codes stay where they
   stand in their byte; the weight of a row half's and a tile's place goes into the output. */
static void unpack_step(decode *d, const ptx_value *words, ptx_value shifted[MAX_WORDS], int tile, int step, ptx_value a[4])
{
    ptx_builder *b = d->b;
    const encoding *codes = d->p->cfg.v.codes;
    const v_fields *v = &d->p->v;
    for (int r = 0; r < 4; r++) {
        int kh = r / 2, h = r % 2, slice = 2 * step + kh, n = tile / v->tiles * v->words + slice / v->halves, place = h + 2 * (tile % v->tiles);
        ptx_value word = words[n];
        if (slice % v->halves > 0) {
            if (shifted[n].kind == PTX_KIND_NONE) shifted[n] = ptx_shr_u32(b, word, ptx_imm(codes->bits * 2 * v->tiles));
            word = shifted[n];
        }
        a[r] = ptx_and(b, word, ptx_imm((int64_t)(uint32_t)(codes->mask << (codes->bits * place))));
    }
}

/* Words of some channel tiles. */
static void load_chunk(decode *d, ptx_value address, int chunk, int first_tile, int end_tile, ptx_value *words)
{
    const decode_plan *p = d->p;
    int64_t at = (int64_t)(chunk / p->chunks_per_page) * p->v_ring.page_bytes + (chunk % p->chunks_per_page) * (int64_t)p->page.v_chunk_bytes;
    for (int group = first_tile / p->v.tiles; group * p->v.tiles < end_tile; group++) {
        ptx_value from = ptx_at(address, at + group * 128 * p->v.words * 4);
        if (p->v.words == 2) ptx_ld_shared_v2(d->b, words + group * 2, from);
        else ptx_ld_shared_v4(d->b, words + group * 4, from);
    }
}

static void load_chunks(decode *d, const ring *v, int first, int end, int first_tile, int end_tile)
{
    ptx_value tid = ptx_mov_special(d->b, ptx_sreg(PTX_SPECIAL_TID_X)), thread = ptx_and(d->b, tid, ptx_imm(127));
    ptx_value address = ptx_mad_lo(d->b, thread, ptx_imm(d->p->v.words * 4), decode_stage(d, v));
    for (int chunk = first; chunk < end; chunk++) load_chunk(d, address, chunk, first_tile, end_tile, d->value[chunk]);
}

/* Words of the first chunks, early enough to hide the loads behind a barrier. */
void stage_value_load(decode *d, const ring *v, int first_tile, int end_tile)
{
    ptx_scope_push(d->b, "v");
    load_chunks(d, v, 0, d->p->value_early, first_tile, end_tile);
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
        if (after >= 0 && after % p->value_flight == 0) load_chunks(d, v, chunk, end < chunks ? end : chunks, first_tile, end_tile);
        ptx_value shifted[MAX_WORDS] = {0}, a[2][MAX_TILES][4];
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
