/* Fragment maps and the page layout: every code has a place of its own, and the tensor-core fragments that the decode
 * kernel forms by masks hold the right codes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "fragment.h"

enum { CODES_MAX = CHUNK_TOKENS * 256, WARP = 32 };

static const int bit_widths[] = {2, 4};
static const int head_dims[] = {64, 128, 256};

typedef code_place place_function(const encoding *codes, int head_dim, int token, int channel);

/* Calls check for every width and head dimension. */
static void for_each_shape(void (*check)(const encoding *codes, int head_dim))
{
    for (size_t b = 0; b < sizeof bit_widths / sizeof *bit_widths; b++)
        for (size_t d = 0; d < sizeof head_dims / sizeof *head_dims; d++)
            check(encoding_find(bit_widths[b]), head_dims[d]);
}

/* ---- Places ---- */

static void check_bijection(place_function *place, const encoding *codes, int head_dim)
{
    uint8_t taken[CODES_MAX / 2] = {0}; /* bits of each byte of the chunk */
    uint32_t bytes = (uint32_t)(CHUNK_TOKENS * head_dim * codes->bits / 8);
    for (int t = 0; t < CHUNK_TOKENS; t++)
        for (int c = 0; c < head_dim; c++) {
            code_place p = place(codes, head_dim, t, c);
            assert_true(p.byte < bytes);
            assert_true(p.shift + (uint32_t)codes->bits <= 8 && p.shift % (uint32_t)codes->bits == 0);
            uint8_t field = (uint8_t)(((1u << codes->bits) - 1) << p.shift);
            assert_int_equal(taken[p.byte] & field, 0);
            taken[p.byte] |= field;
        }
    for (uint32_t i = 0; i < bytes; i++) assert_int_equal(taken[i], 0xff);
}

static void check_k_bijection(const encoding *codes, int head_dim)
{
    check_bijection(fragment_k_place, codes, head_dim);
}

static void check_v_bijection(const encoding *codes, int head_dim)
{
    check_bijection(fragment_v_place, codes, head_dim);
}

static void every_code_has_a_place_of_its_own(void **state)
{
    (void)state;
    for_each_shape(check_k_bijection);
    for_each_shape(check_v_bijection);
}

static void check_k_bytes(const encoding *codes, int head_dim)
{
    int first_token[CODES_MAX / 2], first_channel[CODES_MAX / 2];
    memset(first_token, 0xff, sizeof first_token);
    for (int t = 0; t < CHUNK_TOKENS; t++)
        for (int c = 0; c < head_dim; c++) {
            code_place p = fragment_k_place(codes, head_dim, t, c);
            assert_int_equal(p.byte % 4, c % 4);
            assert_int_equal(p.shift, t % 4 % codes->fields * codes->bits);
            if (first_token[p.byte] < 0) first_token[p.byte] = t, first_channel[p.byte] = c;
            /* the codes of a byte are one channel's of neighbouring tokens */
            assert_int_equal(first_channel[p.byte], c);
            assert_int_equal(first_token[p.byte] / codes->fields, t / codes->fields);
        }
}

static void a_k_byte_holds_neighbouring_tokens(void **state)
{
    (void)state;
    for_each_shape(check_k_bytes);
}

static void check_v_bytes(const encoding *codes, int head_dim)
{
    v_fields f = fragment_v_fields(codes, head_dim);
    int first_token[CODES_MAX / 2], first_channel[CODES_MAX / 2];
    memset(first_token, 0xff, sizeof first_token);
    assert_int_equal(f.tiles * f.steps * f.halves, codes->fields);
    assert_int_equal(f.words * 4 * 128, CHUNK_TOKENS * head_dim * codes->bits / 8);
    for (int t = 0; t < CHUNK_TOKENS; t++)
        for (int c = 0; c < head_dim; c++) {
            code_place p = fragment_v_place(codes, head_dim, t, c);
            int field = t / 32 % f.steps + f.steps * (c / 64 % f.tiles + f.tiles * (t % 32 / 16 % f.halves));
            assert_int_equal(p.byte % 4, t % 4);
            assert_int_equal(p.shift, field * codes->bits);
            if (first_token[p.byte] < 0) first_token[p.byte] = t, first_channel[p.byte] = c;
            /* the codes of a byte differ by whole channel tiles and by 16 or 32 tokens */
            assert_int_equal((c - first_channel[p.byte]) % 64, 0);
            assert_int_equal((t - first_token[p.byte]) % 16, 0);
        }
}

static void a_v_byte_holds_tiles_and_tokens_as_documented(void **state)
{
    (void)state;
    for_each_shape(check_v_bytes);
}

/* ---- Fragments. Register kh * 2 + h of lane rr * 4 + q of warp w of an 8-bit A operand (m64 k32) holds row 16 w + rr
   + 8 h, bytes 16 kh + 4 q .. + 3 of the reduction. ---- */

typedef uint32_t chunk_words[CODES_MAX / 8];

/* A code that tells tokens and channels apart well enough. */
static unsigned code_of(const encoding *codes, int token, int channel)
{
    uint32_t x = (uint32_t)(token * 256 + channel) * 2654435761u;
    return (x >> 13 ^ x >> 24) & ((1u << codes->bits) - 1);
}

static void pack_chunk(place_function *place, const encoding *codes, int head_dim, chunk_words words)
{
    memset(words, 0, sizeof(chunk_words));
    for (int t = 0; t < CHUNK_TOKENS; t++)
        for (int c = 0; c < head_dim; c++) {
            code_place p = place(codes, head_dim, t, c);
            words[p.byte / 4] |= code_of(codes, t, c) << (p.shift + 8 * (p.byte % 4));
        }
}

/* Field f of every byte of a word, without the shift that the kernel leaves out. */
static uint32_t isolate(const encoding *codes, uint32_t word, int field)
{
    return (word & codes->mask << (codes->bits * field)) >> (codes->bits * field);
}

/* K: one chunk fills the 16 rows of a warp in four tiles; tile i, step s. */
static void check_k_fragments(const encoding *codes, int head_dim)
{
    static chunk_words words;
    pack_chunk(fragment_k_place, codes, head_dim, words);
    for (int lane = 0; lane < WARP; lane++)
        for (int i = 0; i < 4; i++)
            for (int s = 0; s < head_dim / 32; s++)
                for (int r = 0; r < 4; r++) {
                    int kh = r / 2, h = r % 2, rr = lane / 4, q = lane % 4;
                    int load = i / codes->fields * (head_dim / 32) + s; /* 16 bytes a lane: the four registers */
                    uint32_t fragment = isolate(codes, words[load * 128 + lane * 4 + r], i % codes->fields);
                    for (int j = 0; j < 4; j++) {
                        int token = i + 4 * rr + 32 * h, channel = 32 * s + 16 * kh + 4 * q + j;
                        assert_int_equal(fragment >> (8 * j) & 0xff, code_of(codes, token, channel));
                    }
                }
}

static void k_words_masked_are_tensor_core_operands(void **state)
{
    (void)state;
    for_each_shape(check_k_fragments);
}

/* V transposed: channel tile mt, step ks of 32 tokens; all four warps. */
static void check_v_fragments(const encoding *codes, int head_dim)
{
    static chunk_words words;
    pack_chunk(fragment_v_place, codes, head_dim, words);
    v_fields f = fragment_v_fields(codes, head_dim);
    int vector = f.words < 4 ? f.words : 4;
    for (int thread = 0; thread < 4 * WARP; thread++)
        for (int mt = 0; mt < head_dim / CHANNEL_TILE; mt++)
            for (int ks = 0; ks < CHUNK_TOKENS / 32; ks++)
                for (int r = 0; r < 4; r++) {
                    int kh = r / 2, h = r % 2, w = thread / WARP, rr = thread % WARP / 4, q = thread % 4;
                    int n = ((mt / f.tiles * (2 / f.steps) + ks / f.steps) * (2 / f.halves) + kh / f.halves) * 2 + h;
                    int field = ks % f.steps + f.steps * (mt % f.tiles + f.tiles * (kh % f.halves));
                    uint32_t word = words[n / vector * 128 * vector + thread * vector + n % vector];
                    uint32_t fragment = isolate(codes, word, field);
                    for (int j = 0; j < 4; j++) {
                        int channel = 64 * mt + 16 * w + 8 * h + rr, token = 32 * ks + 16 * kh + 4 * q + j;
                        assert_int_equal(fragment >> (8 * j) & 0xff, code_of(codes, token, channel));
                    }
                }
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
        assert_int_equal(p.k_chunk_bytes * (tokens / CHUNK_TOKENS), p.v_codes);
        assert_true((p.k_chunk_bytes | p.v_chunk_bytes | p.v_codes | p.k_metadata | p.v_metadata | p.bytes) % 16 == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_a_place_of_its_own),
        cmocka_unit_test(a_k_byte_holds_neighbouring_tokens),
        cmocka_unit_test(a_v_byte_holds_tiles_and_tokens_as_documented),
        cmocka_unit_test(k_words_masked_are_tensor_core_operands),
        cmocka_unit_test(v_words_masked_are_tensor_core_operands),
        cmocka_unit_test(the_parts_of_a_page_lie_back_to_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
