/* First product: scores of a block's 256 tokens. Warp w takes chunk w; tile i of a chunk holds tokens 4*(rr + 8*h) + i. */
#include "decode.h"

/* Registers of the A operand of one step from the words of one token tile. Field f comes with all lower fields of its byte: Q is prepared for that
   (stage_query.c), so the last field costs nothing and every other one a mask. */
static void unpack_step(decode *d, const ptx_value *words, int step, ptx_value a[4])
{
    ptx_builder *b = d->b;
    const encoding *codes = d->p->cfg.k.codes;
    ptx_scope_push(b, "unpack");
    for (int r = 0; r < 4; r++) {
        int block = 2 * step + r / 2, group = block / codes->fields, field = block % codes->fields;
        uint32_t mask = 0;
        for (int f = 0; f <= field; f++) mask |= codes->mask << (codes->bits * f);
        a[r] = words[group * 2 + r % 2];
        if (mask != 0xffffffff) a[r] = ptx_and(b, a[r], ptx_imm((int64_t)mask));
    }
    ptx_scope_pop(b);
}

/* Words of tile i: [group of channels][row half]. Pairs, because a pair that needs no mask is half of an operand as it is loaded. */
static void load_tile(decode *d, ptx_value address, int i, ptx_value *words)
{
    int count = 2 * d->p->cfg.head_dim / (16 * d->p->cfg.k.codes->fields);
    for (int n = i * count, end = n + count; n < end; n += 2, words += 2)
        ptx_ld_shared_v2(d->b, words, ptx_at(address, (n / 4) * 512 + (n % 4) * 4));
}

void stage_score_issue(decode *d, const ring *k, int first, int end)
{
    ptx_builder *b = d->b;
    const decode_plan *p = d->p;
    ptx_scope_push(b, "k");
    ptx_value address = ptx_add(b, decode_stage(d, k), d->k_offset);
    int step_bytes = (int)(2 * p->q_lbo), window = p->tiles_sharing == 1 ? 0 : (8 / p->tiles_sharing) * 16;
    for (int acc = first; acc < end; acc++) {
        for (int share = 0; share < p->tiles_sharing; share++) {
            int tile = share * p->accumulators + acc;
            ptx_value words[MAX_WORDS];
            load_tile(d, address, tile, words);
            /* the window that starts `share` rows-of-a-tile earlier sees the limbs that many columns later */
            int start = (p->q_rows - 8) * 16 - share * window;
            ptx_value a[16][4];
            for (int step = 0; step < p->k_steps; step++) unpack_step(d, words, step, a[step]);
            ptx_wgmma_fence(b);
            for (int step = 0; step < p->k_steps; step++) {
                ptx_value descriptor = ptx_add_s64(b, d->q_descriptor, ptx_imm((start + step * step_bytes) / 16));
                ptx_wgmma(b, PTX_OP_wgmma_u8_s8, d->sums[acc % p->score_flight], p->qk_columns / 2, a[step], descriptor, share + step > 0);
            }
        }
    }
    ptx_wgmma_commit(b);
    ptx_scope_pop(b);
}

/* As many neighbouring tokens for each row half as there are accumulators. */
void stage_metadata(decode *d, ptx_value address, ptx_value words[2][MAX_TILES])
{
    ptx_builder *b = d->b;
    ptx_scope_push(b, "metadata");
    for (int h = 0; h < 2; h++) {
        ptx_value at = ptx_at(address, h * 32 * METADATA_BYTES);
        switch (d->p->accumulators) {
        case 1: words[h][0] = ptx_ld_shared_b32(b, at); break;
        case 2: ptx_ld_shared_v2(b, words[h], at); break;
        default: ptx_ld_shared_v4(b, words[h], at); break;
        }
    }
    ptx_scope_pop(b);
}

void stage_score_combine(decode *d, int first, int end)
{
    ptx_builder *b = d->b;
    const decode_plan *p = d->p;
    ptx_scope_push(b, "k");
    for (int acc = first; acc < end; acc++) {
        const ptx_value *sums = d->sums[acc % p->score_flight];
        for (int h = 0; h < 2; h++) {
            ptx_value meta[2]; /* minimum, scale */
            ptx_scope_push(b, "metadata");
            ptx_split_b32(b, meta, d->k_words[h][acc]);
            ptx_value minimum = ptx_cvt_f32_f16(b, meta[0]), scale = ptx_cvt_f32_f16(b, meta[1]);
            ptx_scope_pop(b);
            ptx_scope_push(b, "scale");
            scale = ptx_mul_f32(b, scale, d->q_step);
            ptx_scope_pop(b);
            for (int e = 0; e < p->thread_heads; e++) {
                ptx_scope_push(b, "combine");
                int at = (e / 2) * 12 + 2 * h + e % 2, stride = p->padded_heads == 1 ? 1 : 4;
                ptx_value dot = decode_combine_limbs(d, sums[at], sums[at + stride], sums[at + (stride == 1 ? 4 : 8)]);
                ptx_scope_pop(b);
                ptx_scope_push(b, "scale");
                ptx_value offset = ptx_mul_f32(b, minimum, d->q_sum[e]);
                ptx_fma_f32_to(b, d->next_score[acc][h][e], dot, scale, offset);
                ptx_scope_pop(b);
            }
        }
    }
    ptx_scope_pop(b);
}

void stage_score_metadata(decode *d, const ring *v)
{
    ptx_scope_push(d->b, "k");
    stage_metadata(d, ptx_add(d->b, decode_stage(d, v), d->meta_offset), d->k_words);
    ptx_scope_pop(d->b);
}
