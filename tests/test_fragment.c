/* Fragment maps and the page layout: every code has a place of its own, and the tensor-core fragments that the decode
 * kernel forms by masks hold the right codes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "fragment.h"
#include "tier.h"

enum { CODES_MAX = 256 * 256, WARP = 32, ROW_TOKENS = 64 /* of a warp in the first product */ };

static const int bit_widths[] = {2, 4};
static const int head_dims[] = {64, 80, 96, 128, 192, 256};
static const int pages[] = {16, 32, 64, 128, 256};

typedef code_place place_function(const config *cfg, int token, int channel);

/* Calls check for every width, head dimension and page; V of 2 bits without pairs of channel tiles needs 32 tokens. */
static void for_each_shape(void (*check)(const config *cfg))
{
    for (size_t b = 0; b < sizeof bit_widths / sizeof *bit_widths; b++)
        for (size_t d = 0; d < sizeof head_dims / sizeof *head_dims; d++)
            for (size_t p = 0; p < sizeof pages / sizeof *pages; p++) {
                const encoding *codes = encoding_find(bit_widths[b]);
                config cfg = {.head_dim = head_dims[d], .page_tokens = pages[p], .k = {codes, GROUP_TOKEN_WISE, head_dims[d]}};
                cfg.v = cfg.k;
                if (fragment_v_fields(&cfg).words > 0) check(&cfg);
            }
}

/* ---- Places ---- */

static void check_bijection(place_function *place, const config *cfg, const encoding *codes)
{
    static uint8_t taken[CODES_MAX / 2]; /* bits of each byte of the page */
    uint32_t bytes = (uint32_t)(cfg->page_tokens * cfg->head_dim * codes->bits / 8);
    memset(taken, 0, sizeof taken);
    for (int t = 0; t < cfg->page_tokens; t++)
        for (int c = 0; c < cfg->head_dim; c++) {
            code_place p = place(cfg, t, c);
            assert_true(p.byte < bytes);
            assert_true(p.shift + (uint32_t)codes->bits <= 8 && p.shift % (uint32_t)codes->bits == 0);
            uint8_t field = (uint8_t)(((1u << codes->bits) - 1) << p.shift);
            assert_int_equal(taken[p.byte] & field, 0);
            taken[p.byte] |= field;
        }
    for (uint32_t i = 0; i < bytes; i++) assert_int_equal(taken[i], 0xff);
}

static void check_bijections(const config *cfg)
{
    check_bijection(fragment_k_place, cfg, cfg->k.codes);
    check_bijection(fragment_v_place, cfg, cfg->v.codes);
}

static void every_code_has_a_place_of_its_own(void **state)
{
    (void)state;
    for_each_shape(check_bijections);
}

static void check_k_bytes(const config *cfg)
{
    static int first_token[CODES_MAX / 2], first_channel[CODES_MAX / 2];
    const encoding *codes = cfg->k.codes;
    uint32_t slice = (uint32_t)(SLICE_TOKENS * cfg->head_dim * codes->bits / 8);
    memset(first_token, 0xff, sizeof first_token);
    for (int t = 0; t < cfg->page_tokens; t++)
        for (int c = 0; c < cfg->head_dim; c++) {
            code_place p = fragment_k_place(cfg, t, c);
            assert_int_equal(p.byte % 4, c % 4);
            assert_int_equal(p.byte / slice, t / SLICE_TOKENS);
            assert_int_equal(p.shift, t % 4 % codes->fields * codes->bits);
            if (first_token[p.byte] < 0) first_token[p.byte] = t, first_channel[p.byte] = c;
            /* the codes of a byte are one channel's of neighbouring tokens */
            assert_int_equal(first_channel[p.byte], c);
            assert_int_equal(first_token[p.byte] / codes->fields, t / codes->fields);
        }
}

static void a_k_byte_holds_neighbouring_tokens_of_a_slice(void **state)
{
    (void)state;
    for_each_shape(check_k_bytes);
}

static void check_v_bytes(const config *cfg)
{
    static int first_token[CODES_MAX / 2], first_channel[CODES_MAX / 2];
    const encoding *codes = cfg->v.codes;
    v_fields f = fragment_v_fields(cfg);
    memset(first_token, 0xff, sizeof first_token);
    assert_int_equal(2 * f.tiles * f.halves, codes->fields);
    assert_int_equal(f.chunk_tokens, cfg->page_tokens < 64 ? cfg->page_tokens : 64);
    if (cfg->head_dim % 64 == 0)
        assert_int_equal(f.groups * f.words * 4 * 128, f.chunk_tokens * cfg->head_dim * codes->bits / 8);
    for (int t = 0; t < cfg->page_tokens; t++)
        for (int c = 0; c < cfg->head_dim; c++) {
            code_place p = fragment_v_place(cfg, t, c);
            int field = c % 16 / 8 + 2 * (c / 64 % f.tiles + f.tiles * (t % 32 / 16 % f.halves));
            assert_int_equal(p.byte % 4, t % 4);
            assert_int_equal(p.shift, field * codes->bits);
            if (first_token[p.byte] < 0) first_token[p.byte] = t, first_channel[p.byte] = c;
            /* the codes of a byte differ by a row half, by whole channel tiles, and by 16 tokens */
            assert_int_equal((c - first_channel[p.byte]) % 8, 0);
            assert_int_equal((t - first_token[p.byte]) % 16, 0);
        }
}

static void a_v_byte_holds_row_halves_tiles_and_halves_as_documented(void **state)
{
    (void)state;
    for_each_shape(check_v_bytes);
}

/* ---- Fragments. Register kh * 2 + h of lane rr * 4 + q of warp w of an 8-bit A operand (m64 k32) holds row 16 w + rr
   + 8 h, bytes 16 kh + 4 q .. + 3 of the reduction. ---- */

static uint32_t page_words[CODES_MAX / 8];

/* A code that tells tokens and channels apart well enough. */
static unsigned code_of(const encoding *codes, int token, int channel)
{
    uint32_t x = (uint32_t)(token * 256 + channel) * 2654435761u;
    return (x >> 13 ^ x >> 24) & ((1u << codes->bits) - 1);
}

static void pack_page(place_function *place, const config *cfg, const encoding *codes)
{
    memset(page_words, 0, sizeof page_words);
    for (int t = 0; t < cfg->page_tokens; t++)
        for (int c = 0; c < cfg->head_dim; c++) {
            code_place p = place(cfg, t, c);
            page_words[p.byte / 4] |= code_of(codes, t, c) << (p.shift + 8 * (p.byte % 4));
        }
}

/* Field f of every byte of a word, without the shift that the kernel leaves out. */
static uint32_t isolate(const encoding *codes, uint32_t word, int field)
{
    return (word & codes->mask << (codes->bits * field)) >> (codes->bits * field);
}

/* K: row 8 h + rr of tile i of a warp's 64 tokens. */
static void check_k_fragment(const config *cfg, int i, int column, int h, int lane)
{
    const encoding *codes = cfg->k.codes;
    k_layout k = fragment_k_layout(cfg);
    int rr = lane / 4, q = lane % 4, slice = 2 * h + rr / 4, n = i / codes->fields * k.columns + column, first = n / 4 * 4;
    int width = k.words - first < 4 ? k.words - first : 4;
    uint32_t at = (uint32_t)slice * k.slice_bytes / 4 + (uint32_t)(first * 16 + lane % 16 * width + n - first);
    uint32_t fragment = isolate(codes, page_words[at], i % codes->fields);
    for (int j = 0; j < 4; j++)
        assert_int_equal(fragment >> (8 * j) & 0xff, code_of(codes, i + 4 * rr + 32 * h, 16 * column + 4 * q + j));
}

static void check_k_fragments(const config *cfg)
{
    if (cfg->page_tokens != ROW_TOKENS) return; /* slices do not depend on the page */
    pack_page(fragment_k_place, cfg, cfg->k.codes);
    for (int lane = 0; lane < WARP; lane++)
        for (int i = 0; i < 4; i++)
            for (int column = 0; column < cfg->head_dim / 16; column++)
                for (int h = 0; h < 2; h++) check_k_fragment(cfg, i, column, h, lane);
}

static void k_words_masked_are_tensor_core_operands(void **state)
{
    (void)state;
    for_each_shape(check_k_fragments);
}

/* V transposed: channel tile mt, 16 tokens of a chunk: a half kh of a step; all warps that have channels. */
static void check_v_fragment(const config *cfg, int mt, int slice, int h, int thread)
{
    const encoding *codes = cfg->v.codes;
    v_fields f = fragment_v_fields(cfg);
    int w = thread / WARP, rr = thread % WARP / 4, q = thread % 4;
    if (64 * mt + 16 * w >= cfg->head_dim) return;
    int field = h + 2 * (mt % f.tiles + f.tiles * (slice % f.halves));
    uint32_t word = page_words[(mt / f.tiles * 128 + thread) * f.words + slice / f.halves];
    uint32_t fragment = isolate(codes, word, field);
    for (int j = 0; j < 4; j++) {
        int channel = 64 * mt + 16 * w + 8 * h + rr, token = 16 * slice + 4 * q + j;
        assert_int_equal(fragment >> (8 * j) & 0xff, code_of(codes, token, channel));
    }
}

static void check_v_fragments(const config *cfg)
{
    pack_page(fragment_v_place, cfg, cfg->v.codes);
    for (int thread = 0; thread < 4 * WARP; thread++)
        for (int mt = 0; mt < (cfg->head_dim + 63) / 64; mt++)
            for (int slice = 0; slice < fragment_v_fields(cfg).chunk_tokens / SLICE_TOKENS; slice++)
                for (int h = 0; h < 2; h++) check_v_fragment(cfg, mt, slice, h, thread);
}

static void v_words_masked_are_tensor_core_operands(void **state)
{
    (void)state;
    for_each_shape(check_v_fragments);
}

/* ---- Pages ---- */

static void the_parts_of_a_page_lie_back_to_back(void **state)
{
    (void)state;
    for (int i = 0; i < registry_size(); i++) {
        config cfg;
        registry_config(i, &cfg);
        page_layout p = fragment_page_layout(&cfg);
        uint32_t tokens = (uint32_t)cfg.page_tokens, dim = (uint32_t)cfg.head_dim;
        assert_int_equal(p.k_codes, 0);
        assert_int_equal(p.v_codes, tokens * dim * (uint32_t)cfg.k.codes->bits / 8);
        assert_int_equal(p.k_metadata, p.v_codes + tokens * dim * (uint32_t)cfg.v.codes->bits / 8);
        assert_int_equal(p.v_metadata, p.k_metadata + tokens * METADATA_BYTES);
        assert_int_equal(p.bytes, p.v_metadata + tokens * METADATA_BYTES);
        assert_int_equal(fragment_k_layout(&cfg).slice_bytes * (tokens / SLICE_TOKENS), p.v_codes);
        assert_true((fragment_k_layout(&cfg).slice_bytes | p.v_chunk_bytes | p.v_codes | p.k_metadata | p.v_metadata | p.bytes) % 16 == 0);
    }
}

/* ---- Metadata ---- */

/* Calls check for every pair of a scheme with itself, and every page that it can have. */
static void for_each_scheme(void (*check)(const config *cfg))
{
    for (size_t d = 0; d < sizeof head_dims / sizeof *head_dims; d++)
        for (size_t p = 0; p < sizeof pages / sizeof *pages; p++) {
            scheme schemes[SCHEMES_MAX];
            int count = scheme_list(head_dims[d], schemes);
            for (int i = 0; i < count; i++) {
                config cfg = {.head_dim = head_dims[d], .page_tokens = pages[p], .k = schemes[i], .v = schemes[i]};
                if (2 * pages[p] >= scheme_block_tokens(&schemes[i])) check(&cfg);
            }
        }
}

enum { METADATA_PAGES = 8, PAGE_BYTES_MAX = 256 * 256 + 256 * 64 };

/* Numbers of a few pages' metadata, each in a place of its own, and all of the places taken. */
static void check_metadata(const config *cfg)
{
    static uint8_t taken[METADATA_PAGES][PAGE_BYTES_MAX];
    page_layout p = fragment_page_layout(cfg);
    const scheme *s = &cfg->k;
    int tokens = 256 > cfg->page_tokens ? 256 : cfg->page_tokens, used = tokens / cfg->page_tokens < METADATA_PAGES ? tokens / cfg->page_tokens : METADATA_PAGES;
    memset(taken, 0, sizeof taken);
    assert_true(p.bytes <= PAGE_BYTES_MAX);
    for (int t = 0; t < used * cfg->page_tokens; t += scheme_block_tokens(s))
        for (int c = 0; c < cfg->head_dim; c += scheme_is_channel_wise(s) ? 1 : s->group)
            for (int side = 0; side < 2; side++)
                for (int n = 0; n < (scheme_is_symmetric(s) ? 1 : 2); n++) {
                    metadata_place place = side == 0 ? fragment_k_metadata(cfg, t, c, (metadata_number)n) : fragment_v_metadata(cfg, t, c, (metadata_number)n);
                    uint32_t begin = side == 0 ? p.k_metadata : p.v_metadata, bytes = side == 0 ? p.k_metadata_bytes : p.v_metadata_bytes;
                    assert_true(place.page < used && place.byte % 2 == 0 && place.byte >= begin && place.byte + 2 <= begin + bytes);
                    assert_int_equal(taken[place.page][place.byte], 0);
                    taken[place.page][place.byte] = 1;
                }
    for (int page = 0; page < used; page++)
        for (uint32_t at = 0; at < p.bytes; at += 2)
            assert_int_equal(taken[page][at], (at >= p.k_metadata && at < p.k_metadata + p.k_metadata_bytes) || (at >= p.v_metadata && at < p.v_metadata + p.v_metadata_bytes));
}

static void every_metadata_number_has_a_place_of_its_own(void **state)
{
    (void)state;
    for_each_scheme(check_metadata);
}

static void check_parts(const config *cfg)
{
    page_layout p = fragment_page_layout(cfg);
    uint32_t codes = (uint32_t)(cfg->page_tokens * cfg->head_dim * cfg->k.codes->bits / 8);
    bool channel_wise = scheme_is_channel_wise(&cfg->k);
    assert_int_equal(p.k_codes, 0);
    assert_int_equal(channel_wise ? p.k_metadata : p.v_codes, codes);
    assert_int_equal(channel_wise ? p.v_codes : p.k_metadata, channel_wise ? codes + p.k_metadata_bytes : 2 * codes);
    assert_int_equal(p.v_metadata, 2 * codes + p.k_metadata_bytes);
    assert_int_equal(p.bytes, p.v_metadata + p.v_metadata_bytes);
    assert_int_equal(p.k_metadata_bytes * (uint32_t)scheme_block_tokens(&cfg->k), (uint32_t)(cfg->page_tokens * scheme_block_metadata_bytes(&cfg->k, cfg->head_dim)));
    assert_true((p.k_metadata_bytes | p.v_metadata_bytes | p.v_codes | p.bytes) % 16 == 0);
}

static void parts_of_a_page_have_the_bytes_of_their_scheme_and_are_aligned(void **state)
{
    (void)state;
    for_each_scheme(check_parts);
}

static void the_scales_of_a_group_of_two_pages_lie_in_the_first(void **state)
{
    (void)state;
    config cfg = {.head_dim = 128, .page_tokens = 64, .k = {encoding_find(2), GROUP_CHANNEL_WISE, 128}, .v = {encoding_find(2), GROUP_TOKEN_WISE, 128}};
    for (int c = 0; c < 128; c++) {
        metadata_place scale = fragment_k_metadata(&cfg, 300, c, METADATA_SCALE), minimum = fragment_k_metadata(&cfg, 300, c, METADATA_MINIMUM);
        assert_true(scale.page == 4 && minimum.page == 5);
        assert_int_equal(scale.byte, 2048 + 2 * c);
        assert_int_equal(minimum.byte, scale.byte);
    }
}

/* ---- The full-precision tier ---- */

static void numbers_of_the_tier_are_fragments(void **state)
{
    (void)state;
    static uint8_t taken[2 * TIER_PAGE_TOKENS * 256 * 2];
    for (size_t d = 0; d < sizeof head_dims / sizeof *head_dims; d++) {
        int dim = head_dims[d];
        memset(taken, 0, sizeof taken);
        for (int t = 0; t < TIER_PAGE_TOKENS; t++)
            for (int c = 0; c < dim; c++) {
                uint32_t k = fragment_tier_k(dim, t, c), v = fragment_tier_v(dim, t, c), bytes = fragment_tier_bytes(dim);
                assert_true(k % 2 == 0 && k < bytes / 2 && v % 2 == 0 && v >= bytes / 2 && v < bytes);
                assert_true(taken[k]++ == 0 && taken[v]++ == 0);
                /* row and column of the 16 x 16 fragment that registers of a lane hold (mma.m16n8k16, A) */
                for (int side = 0; side < 2; side++) {
                    uint32_t at = (side ? v - bytes / 2 : k) % TIER_FRAGMENT_BYTES, fragment = (side ? v - bytes / 2 : k) / TIER_FRAGMENT_BYTES;
                    int lane = (int)at / 16, r = (int)at % 16 / 4, j = (int)at % 4 / 2;
                    int row = lane / 4 + r % 2 * 8, column = lane % 4 * 2 + j + r / 2 * 8;
                    assert_int_equal(fragment, t / 16 * (dim / 16) + c / 16);
                    assert_int_equal(row, (side ? c : t) % 16);
                    assert_int_equal(column, (side ? t : c) % 16);
                }
            }
    }
}

static void the_tier_follows_from_the_length(void **state)
{
    (void)state;
    const config cfg = {.head_dim = 128, .page_tokens = 64, .k = {encoding_find(2), GROUP_CHANNEL_WISE, 128}, .v = {encoding_find(2), GROUP_TOKEN_WISE, 128}};
    assert_int_equal(tier_block_tokens(&cfg), 128);
    for (int sink = 0; sink <= 40; sink += 20)
        for (int window = 0; window <= 100; window += 50) {
            tier_shape tier = {sink, window, (int)tier_slots_least(&cfg, sink, window)};
            assert_true(tier.slots % TIER_PAGE_TOKENS == 0 && tier_ring_begin(&tier) >= sink);
            for (int length = 0; length < 1000; length++) {
                int quantised = tier_quantised(&cfg, &tier, length), slots[1024], count = 0;
                assert_int_equal(quantised % 128, 0);
                if (length >= sink + window) assert_true(length - sink - quantised >= window && length - sink - quantised < window + 128);
                else assert_int_equal(quantised, 0);
                for (int t = 0; t < length; t++) {
                    if (t >= sink && t < sink + quantised) continue;
                    int slot = tier_slot(&tier, t);
                    assert_true(slot >= 0 && slot < tier.slots);
                    for (int i = 0; i < count; i++) assert_true(slots[i] != slot);
                    slots[count++] = slot;
                }
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_a_place_of_its_own),
        cmocka_unit_test(a_k_byte_holds_neighbouring_tokens_of_a_slice),
        cmocka_unit_test(a_v_byte_holds_row_halves_tiles_and_halves_as_documented),
        cmocka_unit_test(k_words_masked_are_tensor_core_operands),
        cmocka_unit_test(v_words_masked_are_tensor_core_operands),
        cmocka_unit_test(the_parts_of_a_page_lie_back_to_back),
        cmocka_unit_test(every_metadata_number_has_a_place_of_its_own),
        cmocka_unit_test(parts_of_a_page_have_the_bytes_of_their_scheme_and_are_aligned),
        cmocka_unit_test(the_scales_of_a_group_of_two_pages_lie_in_the_first),
        cmocka_unit_test(numbers_of_the_tier_are_fragments),
        cmocka_unit_test(the_tier_follows_from_the_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
