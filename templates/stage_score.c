/* First product: scores of a block's 256 tokens. Warp w takes chunk w; tile i of a chunk holds tokens 4*(rr + 8*h) + i. */
#include "decode.h"

/* Words of this thread for the token tiles that share them: for each step the four registers of an operand. A vector of a row half holds two steps. */
static void load_words(decode *d, ptx_value address, int group, ptx_value words[][4])
{
    enum { VECTOR_BYTES = 256 /* of the 16 lanes of a slice */, HALF_SLICES = 2 };
    int steps = d->p->k_steps;
    for (int step = 0; step < steps; step += 2)
        for (int h = 0; h < 2; h++) {
            ptx_value vector[4]; /* {kh 0, kh 1} of each of the two steps */
            ptx_ld_shared_v4(d->b, vector, ptx_at(address, (group * steps + step) / 2 * VECTOR_BYTES + h * HALF_SLICES * (int64_t)d->p->k.slice_bytes));
            for (int n = 0; n < 4; n++) words[step + n / 2][n % 2 * 2 + h] = vector[n];
        }
}

/* Operand of one step of a tile: a mask for each register; the tile's field stays where it stands. */
static void unpack_step(decode *d, const ptx_value words[4], int field, ptx_value a[4])
{
    const encoding *codes = d->p->cfg.k.codes;
    for (int r = 0; r < 4; r++) a[r] = ptx_and(d->b, words[r], ptx_imm((int64_t)(uint32_t)(codes->mask << (codes->bits * field))));
}

void stage_score_issue(decode *d, const ring *k, int first, int end)
{
    ptx_builder *b = d->b;
    const decode_plan *p = d->p;
    ptx_scope_push(b, "k");
    ptx_value address = ptx_add(b, decode_stage(d, k), d->k_offset), words[MAX_STEPS][4];
    int loaded = -1, tiles = 0;
    for (int acc = first; acc < end; acc++) {
        for (int share = 0; share < p->tiles_sharing; share++) {
            if (tiles > 0 && tiles % p->tile_flight == 0) {
                ptx_wgmma_commit(b);
                ptx_wgmma_wait(b, ptx_imm(0));
            }
            tiles++;
            int tile = share * p->accumulators + acc, fields = p->cfg.k.codes->fields;
            if (tile / fields != loaded) load_words(d, address, loaded = tile / fields, words);
            ptx_value a[MAX_STEPS][4];
            ptx_scope_push(b, "unpack");
            for (int step = 0; step < p->k_steps; step++) unpack_step(d, words[step], tile % fields, a[step]);
            ptx_scope_pop(b);
            ptx_wgmma_fence(b);
            for (int step = 0; step < p->k_steps; step++)
                ptx_wgmma(b, PTX_OP_wgmma_u8_s8, d->score_sums[acc % p->score_flight], p->qk_columns / 2, a[step], decode_q_descriptor(d, share, step), share + step > 0);
        }
    }
    ptx_wgmma_commit(b);
    ptx_scope_pop(b);
}

void stage_score_combine(decode *d, int first, int end)
{
    ptx_builder *b = d->b;
    const decode_plan *p = d->p;
    token_numbers numbers[2][MAX_TILES];
    ptx_value query[MAX_THREAD_HEADS][2];
    ptx_scope_push(b, "k");
    for (int e = 0; e < p->thread_heads; e++) stage_query_numbers(d, e, query[e]);
    for (int h = 0; h < 2; h++) stage_numbers_of_scores(d, h, first, end, numbers[h]);
    ptx_wgmma_wait(b, ptx_imm(0));
    for (int h = 0; h < 2; h++) {
        for (int acc = first; acc < end; acc++) {
            const ptx_value *sums = d->score_sums[acc % p->score_flight];
            const token_numbers *n = &numbers[h][acc - first];
            for (int e = 0; e < p->thread_heads; e++) {
                ptx_scope_push(b, "combine");
                int at = (e / 2) * 12 + 2 * h + e % 2, stride = p->padded_heads == 1 ? 1 : 4;
                ptx_value dot = decode_combine_limbs(d, sums[at], sums[at + stride], sums[at + (stride == 1 ? 4 : 8)]);
                ptx_scope_pop(b);
                ptx_scope_push(b, "scale");
                if (p->cfg.heads > 1) dot = ptx_mul_f32(b, dot, query[e][0]);
                ptx_value offset = ptx_fma_f32(b, n->k_minimum, query[e][1], n->v_log);
                ptx_fma_f32_to(b, d->next_score[acc][h][e], dot, n->k_scale, offset);
                ptx_scope_pop(b);
            }
        }
    }
    ptx_scope_pop(b);
}
