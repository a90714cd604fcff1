/* Fragment maps and the page layout; the formulas are in the header. */
#include "fragment.h"

enum { COLUMN = 16 /* channels */, VECTOR_WORDS = 4, SLICE_LANES = 16, WARP_LANES = 32 };

k_layout fragment_k_layout(const config *cfg)
{
    k_layout k = {.columns = cfg->head_dim / COLUMN};
    k.words = 4 / cfg->k.codes->fields * k.columns;
    k.slice_bytes = (uint32_t)(SLICE_LANES * k.words * 4);
    return k;
}

code_place fragment_k_place(const config *cfg, int token, int channel)
{
    const encoding *codes = cfg->k.codes;
    k_layout k = fragment_k_layout(cfg);
    int i = token % 4, rr = token % SLICE_TOKENS / 4, q = channel % COLUMN / 4;
    int n = i / codes->fields * k.columns + channel / COLUMN, first = n / VECTOR_WORDS * VECTOR_WORDS;
    int width = k.words - first < VECTOR_WORDS ? k.words - first : VECTOR_WORDS; /* of the vector, in words */
    int word = first * SLICE_LANES + (rr * 4 + q) * width + n % VECTOR_WORDS;
    code_place place = {
        .byte = (uint32_t)(token / SLICE_TOKENS) * k.slice_bytes + (uint32_t)(word * 4 + channel % 4),
        .shift = (uint32_t)(i % codes->fields * codes->bits),
    };
    return place;
}

v_fields fragment_v_fields(const config *cfg)
{
    int tiles = (cfg->head_dim + CHANNEL_TILE - 1) / CHANNEL_TILE, left = cfg->v.codes->fields / 2; /* fields beside the row halves */
    v_fields f = {.chunk_tokens = cfg->page_tokens < CHUNK_TOKENS ? cfg->page_tokens : CHUNK_TOKENS};
    f.tiles = left > 1 && cfg->head_dim % (2 * CHANNEL_TILE) == 0 ? 2 : 1;
    f.halves = left / f.tiles;
    f.groups = tiles / f.tiles;
    f.words = f.chunk_tokens / SLICE_TOKENS / f.halves;
    return f;
}

code_place fragment_v_place(const config *cfg, int token, int channel)
{
    v_fields f = fragment_v_fields(cfg);
    int mt = channel / 64, w = (channel % 64) / 16, h = (channel % 16) / 8, rr = channel % 8;
    int q = (token % 16) / 4, slice = token % f.chunk_tokens / SLICE_TOKENS; /* 2 ks + kh */
    int field = h + 2 * (mt % f.tiles + f.tiles * (slice % f.halves));
    uint32_t word = (uint32_t)(mt / f.tiles * 4 * WARP_LANES * f.words + (w * WARP_LANES + rr * 4 + q) * f.words + slice / f.halves);
    code_place place = {
        .byte = (uint32_t)(token / f.chunk_tokens) * fragment_page_layout(cfg).v_chunk_bytes + word * 4 + (uint32_t)(token % 4),
        .shift = (uint32_t)(field * cfg->v.codes->bits),
    };
    return place;
}

page_layout fragment_page_layout(const config *cfg)
{
    uint32_t tokens = (uint32_t)cfg->page_tokens, dim = (uint32_t)cfg->head_dim;
    uint32_t chunk = tokens < CHUNK_TOKENS ? tokens : CHUNK_TOKENS;
    page_layout p = {.v_chunk_bytes = chunk * dim * (uint32_t)cfg->v.codes->bits / 8};
    p.k_codes = 0;
    p.v_codes = p.k_codes + tokens * dim * (uint32_t)cfg->k.codes->bits / 8;
    p.k_metadata = p.v_codes + tokens * dim * (uint32_t)cfg->v.codes->bits / 8;
    p.v_metadata = p.k_metadata + tokens * METADATA_BYTES;
    p.bytes = p.v_metadata + tokens * METADATA_BYTES;
    return p;
}
