/* Schemes: the vocabulary and its names, bytes, and the quantisers by their properties. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "reference_scheme.h"

enum { DIM_MAX = 256, BLOCK_MAX = SCHEME_GROUP_TOKENS_MAX * DIM_MAX };

static const int head_dims[] = {64, 80, 128, 256};
static const number_type m_types[] = {NUMBER_F16, NUMBER_BF16};

#define EACH(item, array) (size_t item = 0; item < sizeof(array) / sizeof *(array); item++)

/* One block of random numbers that are exact in bf16, and what a scheme makes of it. */
typedef struct block {
    float x[BLOCK_MAX], back[BLOCK_MAX];
    uint8_t codes[BLOCK_MAX];
    uint32_t metadata[DIM_MAX];
} block;

static void fill(reference_rng *rng, float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double size = reference_below(rng, 16) == 0 ? 30 : 1;
        x[i] = reference_from_bf16(reference_to_bf16((float)(size * reference_normal(rng) + 0.3)));
    }
}

static void quantise(const scheme *s, number_type m_type, int dim, block *b)
{
    reference_scheme_quantise(s, m_type, b->x, dim, b->codes, b->metadata);
    reference_scheme_dequantise(s, m_type, b->codes, b->metadata, dim, b->back);
}

static int group_of(const scheme *s, int dim, int at)
{
    return scheme_block_tokens(s) > 1 ? at % dim : at / s->group;
}

/* Calls test with every scheme, head dimension and metadata type. */
static void for_all(void (*test)(const scheme *s, number_type m_type, int dim, reference_rng *rng, block *b))
{
    reference_rng rng;
    block *b = malloc(sizeof *b);
    assert_non_null(b);
    reference_seed(&rng, 7);
    for
        EACH(d, head_dims)
        {
            scheme schemes[SCHEMES_MAX];
            int count = scheme_list(head_dims[d], schemes);
            for (int i = 0; i < count; i++)
            for
                EACH(m, m_types) test(&schemes[i], m_types[m], head_dims[d], &rng, b);
        }
    free(b);
}

/* ---- The vocabulary ---- */

static void the_vocabulary_has_every_scheme_once_and_each_comes_back_from_its_name(void **state)
{
    (void)state;
    static const struct {
        int head_dim, count; /* 2 bit widths, 2 offsets, 3 channel-wise groups and the token-wise ones */
    } rows[] = {{32, 2 * 2 * 4}, {64, 2 * 2 * 5}, {80, 2 * 2 * 4}, {128, 2 * 2 * 6}, {256, 2 * 2 * 6}};
    for
        EACH(r, rows)
        {
            scheme all[SCHEMES_MAX];
            int count = scheme_list(rows[r].head_dim, all);
            assert_int_equal(count, rows[r].count);
            for (int i = 0; i < count; i++) {
                scheme_pair pair = {all[i], all[count - 1 - i], m_types[i % 2]}, again;
                char text[SCHEME_PAIR_TEXT_MAX], same[SCHEME_PAIR_TEXT_MAX];
                scheme_pair_format(&pair, text);
                assert_true(scheme_pair_parse(text, rows[r].head_dim, &again, NULL));
                scheme_pair_format(&again, same);
                assert_string_equal(text, same);
                assert_true(all[i].group <= SCHEME_GROUP_TOKENS_MAX || scheme_block_tokens(&all[i]) == 1);
                for (int j = 0; j < i; j++)
                    assert_false(all[i].codes == all[j].codes && all[i].direction == all[j].direction &&
                                 all[i].group == all[j].group);
            }
        }
}

static void names_say_what_they_mean(void **state)
{
    (void)state;
    scheme_pair pair;
    char text[SCHEME_PAIR_TEXT_MAX];
    assert_true(scheme_pair_parse("k2c64-v4ts32-mbf16", 128, &pair, NULL));
    assert_int_equal(pair.k.codes->bits, 2);
    assert_int_equal(pair.k.direction, GROUP_CHANNEL_WISE);
    assert_int_equal(pair.k.group, 64);
    assert_false(scheme_is_symmetric(&pair.k));
    assert_int_equal(pair.v.codes->bits, 4);
    assert_int_equal(pair.v.direction, GROUP_TOKEN_WISE_SYMMETRIC);
    assert_int_equal(pair.v.group, 32);
    assert_true(scheme_is_symmetric(&pair.v));
    assert_int_equal(pair.m_type, NUMBER_BF16);
    assert_true(scheme_pair_parse("k2cs128-v2t128-mf16", 128, &pair, NULL));
    scheme_pair_format(&pair, text);
    assert_string_equal(text, "k2cs128-v2t128"); /* f16 is the default */
}

static void a_bad_name_is_refused_with_the_field_its_value_and_what_is_allowed(void **state)
{
    (void)state;
    static const struct {
        const char *name, *parts[3];
    } rows[] = {
        {"", {"'k' is missing", "k2c64-v2t128"}},
        {"v2t128", {"'k' is missing before 'v2t128'"}},
        {"k2c64", {"'v' is missing at the end"}},
        {"k2c64-", {"'v' is missing"}},
        {"k2c64-v2t128-", {"'m' is missing"}},
        {"k2c64-v2t128-f16", {"'m' is missing before 'f16'"}},
        {"k2c64-v2t128-mf16-mf16", {"a field after 'm'"}},
        {"k2c64-v2t128-mf32", {"'m'", "'f32'", "(f16, bf16)"}},
        {"k3c64-v2t128", {"'k'", "3 ", "(2, 4)"}},
        {"k2s64-v2t128", {"'k'", "'2s64'", "ts symmetric token-wise, cs symmetric channel-wise"}},
        {"k2c64-v2t", {"'v'", "'2t'", "group size"}},
        {"k2c48-v2t128", {"'k'", "48 is not a channel-wise group", "(32, 64, 128)"}},
        {"k2c256-v2t128", {"'k'", "256 ", "(32, 64, 128)"}},
        {"k2c64-v2t256", {"'v'", "256 is not a token-wise group", "128 channels (32, 64, 128)"}},
    };
    for
        EACH(i, rows)
        {
            gen_error err = {""};
            scheme_pair pair;
            if (scheme_pair_parse(rows[i].name, 128, &pair, &err)) fail_msg("'%s' was accepted", rows[i].name);
            for (int part = 0; part < 3 && rows[i].parts[part] != NULL; part++)
                if (strstr(err.message, rows[i].parts[part]) == NULL)
                    fail_msg("'%s': \"%s\" does not say \"%s\"", rows[i].name, err.message, rows[i].parts[part]);
        }
}

/* A spec has a kernel, or is refused with the field and its value. */
static void specs_take_the_schemes_that_have_kernels_and_refuse_the_others(void **state)
{
    (void)state;
    for
        EACH(d, head_dims)
        {
            scheme all[SCHEMES_MAX];
            int count = head_dims[d] == 80 ? 0 : scheme_list(head_dims[d], all), accepted = 0;
            for (int i = 0; i < count; i++) {
                char spec[CONFIG_SPEC_MAX], k[SCHEME_TEXT_MAX], value[SCHEME_TEXT_MAX];
                config cfg;
                gen_error err = {""};
                scheme_pair pair = {all[i], {encoding_find(2), GROUP_TOKEN_WISE, head_dims[d]}, NUMBER_F16};
                snprintf(spec, sizeof spec, "sm_90a-%s-v2t%d-d%d-h8-p64", scheme_format('k', &all[i], k), head_dims[d],
                         head_dims[d]);
                bool ok = config_parse(spec, &cfg, &err);
                assert_int_equal(ok, scheme_pair_has_kernels(&pair, head_dims[d]));
                accepted += ok;
                snprintf(value, sizeof value, "%d", all[i].group);
                if (!ok && (strstr(err.message, "spec field 'k'") == NULL || strstr(err.message, value) == NULL))
                    fail_msg("%s: %s", spec, err.message);
            }
            assert_int_equal(accepted, count > 0 ? 2 : 0); /* 2 and 4 bits */
        }
}

/* ---- Bytes ---- */

static void bytes_of_a_block_are_exact(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int head_dim, tokens, codes, metadata; /* of K */
    } rows[] = {
        {"k2t128-v2t128", 128, 1, 32, 4},         {"k4t32-v2t128", 128, 1, 64, 16},
        {"k2ts64-v2t128", 128, 1, 32, 4},         {"k4ts128-v2t128", 128, 1, 64, 2},
        {"k2c64-v2t128", 128, 64, 2048, 512},     {"k2cs32-v2t64", 64, 32, 512, 128},
        {"k4c128-v2t256", 256, 128, 16384, 1024}, {"k2t80-v2t80", 80, 1, 20, 4},
    };
    for
        EACH(i, rows)
        {
            scheme_pair pair;
            assert_true(scheme_pair_parse(rows[i].name, rows[i].head_dim, &pair, NULL));
            assert_int_equal(scheme_block_tokens(&pair.k), rows[i].tokens);
            assert_int_equal(scheme_block_code_bytes(&pair.k, rows[i].head_dim), rows[i].codes);
            assert_int_equal(scheme_block_metadata_bytes(&pair.k, rows[i].head_dim), rows[i].metadata);
        }
}

static void sink_recent_and_the_unfinished_group_are_not_quantised(void **state)
{
    (void)state;
    static const struct {
        grouping way;
        int tokens, sink, recent, quantised;
    } rows[] = {
        {GROUP_TOKEN_WISE, 100, 0, 0, 100},    {GROUP_TOKEN_WISE, 100, 4, 32, 64},
        {GROUP_TOKEN_WISE, 36, 4, 32, 0},      {GROUP_TOKEN_WISE, 10, 4, 32, 0},
        {GROUP_TOKEN_WISE, 0, 0, 0, 0},        {GROUP_CHANNEL_WISE, 63, 0, 0, 0},
        {GROUP_CHANNEL_WISE, 64, 0, 0, 64},    {GROUP_CHANNEL_WISE, 200, 0, 0, 192},
        {GROUP_CHANNEL_WISE, 200, 4, 0, 192},  {GROUP_CHANNEL_WISE, 200, 9, 0, 128},
        {GROUP_CHANNEL_WISE, 200, 8, 64, 128}, {GROUP_CHANNEL_WISE, 9, 1 << 26, 1 << 26, 0},
    };
    for
        EACH(i, rows)
        {
            scheme s = {encoding_find(2), rows[i].way, 64};
            assert_int_equal(scheme_quantised_tokens(&s, rows[i].tokens, rows[i].sink, rows[i].recent),
                             rows[i].quantised);
        }
}

/* ---- Quantisers ---- */

/* Half a step, and what rounding scale and minimum to their type adds. */
static void check_error(const scheme *s, number_type m_type, int dim, reference_rng *rng, block *b)
{
    double unit = m_type == NUMBER_F16 ? 0x1p-11 : 0x1p-8, levels = (1 << s->codes->bits) - 1;
    int count = scheme_block_tokens(s) * dim;
    double largest[DIM_MAX] = {0};
    fill(rng, b->x, (size_t)count);
    quantise(s, m_type, dim, b);
    for (int i = 0; i < count; i++) {
        double *group = &largest[group_of(s, dim, i)];
        *group = fmax(*group, fabs((double)b->x[i]));
    }
    for (int i = 0; i < count; i++) {
        int g = group_of(s, dim, i);
        double step = (double)reference_widen(m_type, (uint16_t)(b->metadata[g] >> 16));
        double bound = 0.5 * step * (1 + 1e-5) + unit * (step * levels + 2 * largest[g]);
        assert_true(step >= 0);
        assert_true(b->codes[i] <= levels);
        if (!(fabs((double)b->back[i] - (double)b->x[i]) <= bound))
            fail_msg("%d bits, way %d, group %d, d %d: %g comes back as %g, step %g", s->codes->bits, (int)s->direction,
                     s->group, dim, (double)b->x[i], (double)b->back[i], step);
    }
}

static void no_number_is_off_by_more_than_half_a_step(void **state)
{
    (void)state;
    for_all(check_error);
}

static void check_constant(const scheme *s, number_type m_type, int dim, reference_rng *rng, block *b)
{
    int count = scheme_block_tokens(s) * dim;
    float value[DIM_MAX];
    for (int g = 0; g < scheme_block_groups(s, dim); g++)
        value[g] = g % 5 == 0 ? 0 : (float)(reference_below(rng, 255) * 0.125 - 16); /* exact in f16 and in bf16 */
    for (int i = 0; i < count; i++) b->x[i] = value[group_of(s, dim, i)];
    quantise(s, m_type, dim, b);
    double tolerance = !scheme_is_symmetric(s) ? 0 : m_type == NUMBER_F16 ? 0x1p-11 : 0x1p-8;
    for (int i = 0; i < count; i++)
        assert_true(fabs((double)b->back[i] - (double)b->x[i]) <= tolerance * fabs((double)b->x[i]));
    for (int g = 0; g < scheme_block_groups(s, dim); g++)
        if (!scheme_is_symmetric(s) || value[g] == 0) assert_int_equal(b->metadata[g] >> 16, 0);
}

static void a_constant_group_is_exact_and_without_a_minimum_as_exact_as_its_scale(void **state)
{
    (void)state;
    for_all(check_constant);
}

static void check_mirror(const scheme *s, number_type m_type, int dim, reference_rng *rng, block *b)
{
    static float mirrored[BLOCK_MAX];
    int count = scheme_block_tokens(s) * dim, differ = 0;
    if (!scheme_is_symmetric(s)) return;
    fill(rng, b->x, (size_t)count);
    quantise(s, m_type, dim, b);
    memcpy(mirrored, b->back, (size_t)count * sizeof *mirrored);
    for (int i = 0; i < count; i++) b->x[i] = -b->x[i];
    quantise(s, m_type, dim, b);
    for (int g = 0; g < scheme_block_groups(s, dim); g++) assert_int_equal(b->metadata[g] & 0xffff, 0);
    for (int i = 0; i < count; i++) differ += b->back[i] != -mirrored[i];
    assert_true(differ <= count / 20); /* in the middle of two codes, the even one is taken */
}

static void symmetric_codes_of_the_negative_numbers_are_the_mirror_image(void **state)
{
    (void)state;
    for_all(check_mirror);
}

static void check_whole_head(const scheme *s, number_type m_type, int dim, reference_rng *rng, block *b)
{
    uint8_t codes[DIM_MAX];
    if (s->direction != GROUP_TOKEN_WISE || s->group != dim) return;
    for (int round = 0; round < 50; round++) {
        fill(rng, b->x, (size_t)dim);
        if (round == 0) b->x[3] = NAN, b->x[5] = INFINITY;
        quantise(s, m_type, dim, b);
        assert_int_equal(b->metadata[0], reference_quantise(m_type, s->codes->bits, b->x, dim, codes));
        assert_memory_equal(b->codes, codes, dim);
        for (int c = 0; c < dim; c++) {
            float back = reference_dequantise(m_type, b->metadata[0], codes[c]);
            assert_memory_equal(&b->back[c], &back, sizeof back);
        }
    }
}

static void token_wise_with_the_whole_head_is_the_quantiser_of_the_kernels_bit_for_bit(void **state)
{
    (void)state;
    for_all(check_whole_head);
}

static void check_transposed(const scheme *s, number_type m_type, int dim, reference_rng *rng, block *b)
{
    float column[SCHEME_GROUP_TOKENS_MAX];
    uint8_t codes[SCHEME_GROUP_TOKENS_MAX];
    uint32_t metadata;
    int tokens = scheme_block_tokens(s);
    if (tokens == 1) return;
    scheme row = {s->codes, scheme_is_symmetric(s) ? GROUP_TOKEN_WISE_SYMMETRIC : GROUP_TOKEN_WISE, tokens};
    fill(rng, b->x, (size_t)(tokens * dim));
    quantise(s, m_type, dim, b);
    for (int c = 0; c < dim; c++) {
        for (int t = 0; t < tokens; t++) column[t] = b->x[t * dim + c];
        reference_scheme_quantise(&row, m_type, column, tokens, codes, &metadata);
        assert_int_equal(metadata, b->metadata[c]);
        for (int t = 0; t < tokens; t++) assert_int_equal(codes[t], b->codes[t * dim + c]);
    }
}

static void a_channel_wise_group_is_a_token_wise_one_of_the_transposed_block(void **state)
{
    (void)state;
    for_all(check_transposed);
}

static void check_cache(const scheme *s, number_type m_type, int dim, reference_rng *rng, block *b)
{
    enum { TOKENS = 301, SINK = 5, RECENT = 17 };
    size_t count = (size_t)TOKENS * (size_t)dim;
    float *x = malloc(2 * count * sizeof *x), *cache = x + count;
    int block_tokens = scheme_block_tokens(s), quantised = scheme_quantised_tokens(s, TOKENS, SINK, RECENT);
    assert_non_null(x);
    fill(rng, x, count);
    assert_true(reference_scheme_cache(s, m_type, x, TOKENS, dim, SINK, RECENT, cache));
    assert_memory_equal(cache, x, (size_t)(SINK * dim) * sizeof *x);
    for (int t = 0; t < quantised; t += block_tokens) {
        size_t at = (size_t)((SINK + t) * dim), size = (size_t)(block_tokens * dim) * sizeof *x;
        memcpy(b->x, x + at, size);
        quantise(s, m_type, dim, b);
        assert_memory_equal(cache + at, b->back, size);
    }
    size_t end = (size_t)((SINK + quantised) * dim);
    assert_true(TOKENS - SINK - quantised >= RECENT);
    assert_memory_equal(cache + end, x + end, (count - end) * sizeof *x);
    free(x);
}

static void a_cache_is_quantised_block_by_block_and_keeps_the_rest(void **state)
{
    (void)state;
    for_all(check_cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_vocabulary_has_every_scheme_once_and_each_comes_back_from_its_name),
        cmocka_unit_test(names_say_what_they_mean),
        cmocka_unit_test(a_bad_name_is_refused_with_the_field_its_value_and_what_is_allowed),
        cmocka_unit_test(specs_take_the_schemes_that_have_kernels_and_refuse_the_others),
        cmocka_unit_test(bytes_of_a_block_are_exact),
        cmocka_unit_test(sink_recent_and_the_unfinished_group_are_not_quantised),
        cmocka_unit_test(no_number_is_off_by_more_than_half_a_step),
        cmocka_unit_test(a_constant_group_is_exact_and_without_a_minimum_as_exact_as_its_scale),
        cmocka_unit_test(symmetric_codes_of_the_negative_numbers_are_the_mirror_image),
        cmocka_unit_test(token_wise_with_the_whole_head_is_the_quantiser_of_the_kernels_bit_for_bit),
        cmocka_unit_test(a_channel_wise_group_is_a_token_wise_one_of_the_transposed_block),
        cmocka_unit_test(a_cache_is_quantised_block_by_block_and_keeps_the_rest),
    };
    return cmocka_run_group_tests_name("scheme", tests, NULL, NULL);
}
