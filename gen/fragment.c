/* Fragment maps and the page layout; the formulas are in the header. */
#include "fragment.h"

code_place fragment_k_place(const encoding *codes, int head_dim, int token, int channel)
{
    int i = token % 4, rr = (token / 4) % 8, h = token / 32;
    int byte = channel % 4, q = (channel % 16) / 4, kh = (channel % 32) / 16, step = channel / 32;
    int vector = (i / codes->fields) * (head_dim / 32) + step; /* the four registers of an operand: 16 bytes a lane */
    code_place place = {
        .byte = (uint32_t)(vector * 512 + (rr * 4 + q) * 16 + (kh * 2 + h) * 4 + byte),
        .shift = (uint32_t)((i % codes->fields) * codes->bits),
    };
    return place;
}

v_fields fragment_v_fields(const encoding *codes, int head_dim)
{
    int tiles = head_dim / CHANNEL_TILE, left = codes->fields;
    v_fields f = {.tiles = tiles < left ? tiles : left};
    left /= f.tiles;
    f.steps = left < 2 ? left : 2;
    f.halves = left / f.steps;
    f.step_bits = f.steps > 1 && codes->bits == 2 ? codes->bits : 0;
    f.words = tiles * 2 * 4 / codes->fields; /* tiles x steps x registers of a fragment, over the fields of a word */
    return f;
}

code_place fragment_v_place(const encoding *codes, int head_dim, int token, int channel)
{
    v_fields f = fragment_v_fields(codes, head_dim);
    int mt = channel / 64, w = (channel % 64) / 16, h = (channel % 16) / 8, rr = channel % 8;
    int byte = token % 4, q = (token % 16) / 4, kh = (token % 32) / 16, ks = token / 32;
    int field = ks % f.steps + f.steps * (mt % f.tiles + f.tiles * (kh % f.halves));
    /* word of a lane: (channel tiles left, steps left, halves left, h), the last fastest */
    int n = (((mt / f.tiles) * (2 / f.steps) + ks / f.steps) * (2 / f.halves) + kh / f.halves) * 2 + h;
    int vector = f.words < 4 ? f.words : 4; /* words of one load */
    int lane = w * 32 + rr * 4 + q;
    code_place place = {
        .byte = (uint32_t)(((n / vector) * 128 + lane) * vector * 4 + (n % vector) * 4 + byte),
        .shift = (uint32_t)(field * codes->bits),
    };
    return place;
}

page_layout fragment_page_layout(const config *cfg)
{
    uint32_t chunks = (uint32_t)(cfg->page_tokens / CHUNK_TOKENS);
    page_layout p = {
        .k_chunk_bytes = (uint32_t)(CHUNK_TOKENS * cfg->head_dim * cfg->k.codes->bits / 8),
        .v_chunk_bytes = (uint32_t)(CHUNK_TOKENS * cfg->head_dim * cfg->v.codes->bits / 8),
    };
    p.k_codes = 0;
    p.v_codes = p.k_codes + chunks * p.k_chunk_bytes;
    p.k_metadata = p.v_codes + chunks * p.v_chunk_bytes;
    p.v_metadata = p.k_metadata + (uint32_t)(cfg->page_tokens * METADATA_BYTES);
    p.bytes = p.v_metadata + (uint32_t)(cfg->page_tokens * METADATA_BYTES);
    return p;
}
