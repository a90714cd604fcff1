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

/* A page's share of a side's metadata. */
static uint32_t metadata_bytes(const config *cfg, const scheme *s)
{
    return (uint32_t)(scheme_block_metadata_bytes(s, cfg->head_dim) * cfg->page_tokens / scheme_block_tokens(s));
}

page_layout fragment_page_layout(const config *cfg)
{
    uint32_t tokens = (uint32_t)cfg->page_tokens, dim = (uint32_t)cfg->head_dim;
    uint32_t chunk = tokens < CHUNK_TOKENS ? tokens : CHUNK_TOKENS, k_bytes = tokens * dim * (uint32_t)cfg->k.codes->bits / 8;
    page_layout p = {.v_chunk_bytes = chunk * dim * (uint32_t)cfg->v.codes->bits / 8};
    uint32_t v_bytes = tokens * dim * (uint32_t)cfg->v.codes->bits / 8;
    p.k_metadata_bytes = metadata_bytes(cfg, &cfg->k);
    p.v_metadata_bytes = metadata_bytes(cfg, &cfg->v);
    if (scheme_is_channel_wise(&cfg->k)) {
        p.k_metadata = k_bytes;
        p.v_codes = p.k_metadata + p.k_metadata_bytes;
        p.v_metadata = p.v_codes + v_bytes;
    } else {
        p.v_codes = k_bytes;
        p.k_metadata = p.v_codes + v_bytes;
        p.v_metadata = p.k_metadata + p.k_metadata_bytes;
    }
    p.bytes = p.v_metadata + p.v_metadata_bytes;
    return p;
}

/* `share` is a page's part of the metadata, which begins at `begin`. */
static metadata_place place_metadata(const config *cfg, const scheme *s, uint32_t begin, uint32_t share, int token, int channel, metadata_number number)
{
    int block_tokens = scheme_block_tokens(s), numbers = scheme_is_symmetric(s) ? 1 : 2;
    int64_t block = token / block_tokens, block_bytes = scheme_block_metadata_bytes(s, cfg->head_dim);
    int64_t index = scheme_is_channel_wise(s) ? (number == METADATA_SCALE ? 0 : cfg->head_dim) + channel
                                              : channel / s->group * numbers + (numbers == 2 && number == METADATA_SCALE);
    int64_t at = block * block_bytes + index * METADATA_NUMBER_BYTES; /* in the metadata of all pages, back to back */
    return (metadata_place){(int)(at / share), begin + (uint32_t)(at % share)};
}

metadata_place fragment_k_metadata(const config *cfg, int token, int channel, metadata_number number)
{
    page_layout p = fragment_page_layout(cfg);
    return place_metadata(cfg, &cfg->k, p.k_metadata, p.k_metadata_bytes, token, channel, number);
}

metadata_place fragment_v_metadata(const config *cfg, int token, int channel, metadata_number number)
{
    page_layout p = fragment_page_layout(cfg);
    return place_metadata(cfg, &cfg->v, p.v_metadata, p.v_metadata_bytes, token, channel, number);
}

/* Number (row, column) of a 16 x 16 fragment. */
static uint32_t tier_fragment_place(int row, int column)
{
    int rr = row % 8, h = row / 8, q = column % 8 / 2, j = column % 2, kh = column / 8;
    return (uint32_t)((rr * 4 + q) * 16 + (2 * kh + h) * 4 + j * 2);
}

static uint32_t tier_fragment(int head_dim, int token, int channel)
{
    return (uint32_t)((token / SLICE_TOKENS * (head_dim / COLUMN) + channel / COLUMN) * TIER_FRAGMENT_BYTES);
}

uint32_t fragment_tier_k(int head_dim, int token, int channel)
{
    return tier_fragment(head_dim, token, channel) + tier_fragment_place(token % SLICE_TOKENS, channel % COLUMN);
}

uint32_t fragment_tier_v(int head_dim, int token, int channel)
{
    return fragment_tier_bytes(head_dim) / 2 + tier_fragment(head_dim, token, channel) + tier_fragment_place(channel % COLUMN, token % SLICE_TOKENS);
}

uint32_t fragment_tier_bytes(int head_dim)
{
    return (uint32_t)(2 * TIER_PAGE_TOKENS * head_dim * 2);
}
