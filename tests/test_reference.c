/* The reference itself: conversions of all 16-bit numbers, the quantiser's promises, pages, attention against the
 * folding identities. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fragment.h"
#include "reference.h"
#include "reference_scheme.h"

/* ---- Numbers ---- */

static void check_type(number_type type, uint16_t infinity)
{
    for (uint32_t i = 0; i < 0x10000; i++) {
        uint16_t bits = (uint16_t)i, magnitude = bits & 0x7fff;
        float x = reference_widen(type, bits);
        assert_int_equal(isnan(x) != 0, magnitude > infinity);
        assert_int_equal(isinf(x) != 0, magnitude == infinity);
        assert_int_equal(reference_narrow(type, x), isnan(x) ? 0x7fff : bits);
        if (magnitude >= infinity || bits >= 0x8000) continue;
        /* between a number and the next (for the largest: where the next would be), ties go to the even one */
        float next = reference_widen(type, (uint16_t)(bits + 1));
        if (isinf(next)) next = x + (x - reference_widen(type, (uint16_t)(bits - 1)));
        float middle = x + (next - x) / 2;
        uint16_t even = bits % 2 == 0 ? bits : (uint16_t)(bits + 1);
        if (isinf(next)) continue; /* bf16: beyond float32 itself */
        assert_int_equal(reference_narrow(type, middle), even);
        assert_int_equal(reference_narrow(type, -middle), even | 0x8000);
        assert_int_equal(reference_narrow(type, nextafterf(middle, 0)), bits);
        assert_int_equal(reference_narrow(type, nextafterf(middle, INFINITY)), bits + 1);
    }
}

static void every_f16_survives_a_round_trip_and_ties_go_to_even(void **state)
{
    (void)state;
    check_type(NUMBER_F16, 0x7c00);
    assert_true(reference_from_f16(0x3c00) == 1.0f && reference_from_f16(0x0001) == 0x1p-24f &&
                reference_from_f16(0x7bff) == 65504.0f);
    assert_int_equal(reference_to_f16(65519.996f), 0x7bff);
    assert_int_equal(reference_to_f16(65520.0f), 0x7c00);
    assert_int_equal(reference_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(reference_to_f16(0x1p-25f), 0);
    assert_int_equal(reference_to_f16(nextafterf(0x1p-25f, 1)), 1);
    assert_int_equal(reference_to_f16(-0x1p-149f), 0x8000);
}

static void every_bf16_survives_a_round_trip_and_ties_go_to_even(void **state)
{
    (void)state;
    check_type(NUMBER_BF16, 0x7f80);
    assert_true(reference_from_bf16(0x3f80) == 1.0f && reference_from_bf16(0x0001) == 0x1p-133f);
    assert_int_equal(reference_to_bf16(0x1.fffffep127f), 0x7f80);
    assert_int_equal(reference_to_bf16(0x1.fefffep127f), 0x7f7f);
}

static void arrays_convert_as_single_numbers_do(void **state)
{
    (void)state;
    const float in[3] = {1.5f, -0.3f, 1e30f};
    for (number_type type = NUMBER_BF16; type <= NUMBER_F32; type++) {
        float memory[3], out[3];
        reference_write(type, in, 3, memory);
        reference_read(type, memory, 3, out);
        for (int i = 0; i < 3; i++)
            assert_true(out[i] == (type == NUMBER_F32 ? in[i] : reference_widen(type, reference_narrow(type, in[i]))));
    }
}

/* ---- Quantiser ---- */

static const number_type m_types[] = {NUMBER_F16, NUMBER_BF16};

static float scale_of(number_type type, uint32_t metadata)
{
    return reference_widen(type, (uint16_t)(metadata >> 16));
}

static void dequantised_values_lie_within_half_a_step(void **state)
{
    (void)state;
    reference_rng rng;
    reference_seed(&rng, 1);
    for (int round = 0; round < 2000; round++) {
        number_type type = m_types[round % 2];
        int bits = round / 2 % 2 ? 4 : 2, levels = (1 << bits) - 1;
        float x[128], size = ldexpf(1, (int)reference_below(&rng, 21) - 10), offset = (float)reference_normal(&rng),
                      most = 0;
        for (int i = 0; i < 128; i++) {
            x[i] = size * ((float)reference_normal(&rng) + offset);
            most = fmaxf(most, fabsf(x[i]));
        }
        uint8_t codes[128];
        uint32_t metadata = reference_quantise(type, bits, x, 128, codes);
        /* half a step, and what rounding the minimum and the scale adds */
        float rounding = type == NUMBER_F16 ? 0x1p-11f : 0x1p-8f;
        float bound = scale_of(type, metadata) * (0.5f + 2 * rounding * (float)levels) + 2 * rounding * most +
                      0x1p-24f * (float)levels;
        for (int i = 0; i < 128; i++) {
            assert_true(codes[i] <= levels);
            assert_true(fabsf(reference_dequantise(type, metadata, codes[i]) - x[i]) <= bound);
        }
    }
}

static void codes_are_rounded_to_nearest_even(void **state)
{
    (void)state;
    const float x[8] = {0, 15, 0.5f, 1.5f, 2.5f, 13.5f, 14.5f, 7.49f};
    const uint8_t expected[8] = {0, 15, 0, 2, 2, 14, 14, 7};
    uint8_t codes[8];
    assert_int_equal(reference_quantise(NUMBER_F16, 4, x, 8, codes), 0x3c000000);
    assert_memory_equal(codes, expected, 8);
}

static void a_constant_group_is_exact(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++)
        for (uint32_t bits = 0; bits < 0x10000; bits += 13) {
            float value = reference_widen(m_types[t], (uint16_t)bits), x[4] = {value, value, value, value};
            if (isnan(value) || fabsf(value) > 0x1p100f) continue;
            uint8_t codes[4];
            uint32_t metadata = reference_quantise(m_types[t], 2, x, 4, codes);
            assert_int_equal(metadata >> 16, 0);
            for (int i = 0; i < 4; i++) {
                assert_int_equal(codes[i], 0);
                assert_true(reference_dequantise(m_types[t], metadata, 0) == value);
            }
        }
}

static void nan_counts_as_zero_and_infinity_as_the_limit(void **state)
{
    (void)state;
    uint8_t codes[4], clean[4];
    const float with_nan[4] = {NAN, 1, 3, 2}, with_zero[4] = {0, 1, 3, 2};
    assert_int_equal(reference_quantise(NUMBER_F16, 2, with_nan, 4, codes),
                     reference_quantise(NUMBER_F16, 2, with_zero, 4, clean));
    assert_memory_equal(codes, clean, 4);
    const float infinite[4] = {INFINITY, -INFINITY, 0, 1}, large[4] = {65504, -65504, 0, 1};
    assert_int_equal(reference_quantise(NUMBER_F16, 2, infinite, 4, codes),
                     reference_quantise(NUMBER_F16, 2, large, 4, clean));
    assert_memory_equal(codes, clean, 4);
    const float beyond[4] = {1e30f, -3e38f, 0, 1};
    assert_int_equal(reference_quantise(NUMBER_F16, 2, beyond, 4, codes),
                     reference_quantise(NUMBER_F16, 2, large, 4, clean));
    uint32_t metadata = reference_quantise(NUMBER_BF16, 2, infinite, 4, codes);
    assert_true(isfinite(scale_of(NUMBER_BF16, metadata)));
    assert_true(reference_dequantise(NUMBER_BF16, metadata, codes[0]) > 1e30f &&
                reference_dequantise(NUMBER_BF16, metadata, codes[1]) < -1e30f);
}

static void zeros_have_no_sign(void **state)
{
    (void)state;
    uint8_t codes[2];
    const float zeros[2][2] = {{0.0f, -0.0f}, {-0.0f, 0.0f}};
    for (int i = 0; i < 2; i++) assert_int_equal(reference_quantise(NUMBER_F16, 2, zeros[i], 2, codes), 0);
}

/* ---- Pages ---- */

static void stored_tokens_load_as_they_were(void **state)
{
    (void)state;
    static uint8_t page[256 * 1024];
    static uint8_t stored[2][256][256];
    reference_rng rng;
    reference_seed(&rng, 2);
    for (int i = 0; i < registry_size(); i += 37) {
        config cfg;
        registry_config(i, &cfg);
        page_layout layout = fragment_page_layout(&cfg);
        assert_true(layout.bytes <= sizeof page);
        memset(page, 0xa5, sizeof page);
        for (int pass = 0; pass < 2; pass++) /* all stores, then all loads */
            for (int t = 0; t < cfg.page_tokens; t++)
                for (int side = REFERENCE_K; side <= REFERENCE_V; side++) {
                    uint8_t *codes = stored[side][t], loaded[256];
                    int bits = side == REFERENCE_K ? cfg.k.codes->bits : cfg.v.codes->bits;
                    uint32_t metadata = (uint32_t)(t * 2 + side) * 0x01010101u;
                    if (pass == 0) {
                        for (int c = 0; c < cfg.head_dim; c++) codes[c] = (uint8_t)reference_below(&rng, 1u << bits);
                        reference_page_store(&cfg, page, (reference_side)side, t, codes, metadata);
                    } else {
                        assert_int_equal(reference_page_load(&cfg, page, (reference_side)side, t, loaded), metadata);
                        assert_memory_equal(loaded, codes, (size_t)cfg.head_dim);
                    }
                }
        for (size_t j = layout.bytes; j < sizeof page; j++) assert_int_equal(page[j], 0xa5);
    }
}

static void gathering_equals_loading_each_token(void **state)
{
    (void)state;
    enum { TOKENS = 150, PAGES = 4, DIM = 64 };
    config cfg;
    assert_true(config_parse("sm_90a-k2t64-v4t64-d64-h3-p64", &cfg, NULL));
    uint32_t page_bytes = fragment_page_layout(&cfg).bytes;
    int32_t table[PAGES] = {2, 0, 3, 1}, indptr[2] = {0, 3};
    uint8_t *pages = calloc(PAGES, page_bytes * 2);
    float *k = malloc(sizeof(float) * TOKENS * DIM), *v = malloc(sizeof(float) * TOKENS * DIM), x[DIM];
    assert_true(pages != NULL && k != NULL && v != NULL);
    reference_cache cache = {&cfg, pages, page_bytes * 2, page_bytes, table, indptr, 0, NULL};
    reference_rng rng;
    reference_seed(&rng, 3);
    for (int t = 0; t < TOKENS; t++)
        for (int side = REFERENCE_K; side <= REFERENCE_V; side++) {
            for (int c = 0; c < DIM; c++) x[c] = (float)reference_normal(&rng);
            reference_append(&cache, (reference_side)side, 0, 1, t, x);
        }
    assert_true(reference_gather(&cache, 0, 1, TOKENS, k, v));
    for (int t = 0; t < TOKENS; t++)
        for (int side = REFERENCE_K; side <= REFERENCE_V; side++) {
            uint8_t codes[DIM];
            uint32_t metadata =
                reference_page_load(&cfg, reference_page(&cache, 0, 1, t), (reference_side)side, t % 64, codes);
            for (int c = 0; c < DIM; c++)
                assert_true((side == REFERENCE_K ? k : v)[t * DIM + c] ==
                            reference_dequantise(NUMBER_F16, metadata, codes[c]));
        }
    free(v);
    free(k);
    free(pages);
}

/* ---- Attention ---- */

enum { T = 200, D = 64, R = 3 };

/* A quantised KV head with its codes. */
typedef struct head {
    double k_code[T][D], v_code[T][D], k_scale[T], k_minimum[T], v_scale[T], v_minimum[T];
    float k[T][D], v[T][D], q[R][D];
} head;

static void make_side(reference_rng *rng, int bits, double code[T][D], double *scale, double *minimum, float x[T][D])
{
    for (int t = 0; t < T; t++) {
        uint8_t codes[D];
        for (int c = 0; c < D; c++) x[t][c] = (float)reference_normal(rng);
        uint32_t metadata = reference_quantise(NUMBER_F16, bits, x[t], D, codes);
        scale[t] = scale_of(NUMBER_F16, metadata);
        minimum[t] = reference_from_f16((uint16_t)metadata);
        for (int c = 0; c < D; c++) {
            code[t][c] = codes[c];
            /* few bits, so that float32 holds scale * code + minimum exactly */
            minimum[t] = reference_from_bf16(reference_to_bf16((float)minimum[t]));
            x[t][c] = (float)(scale[t] * code[t][c] + minimum[t]);
            assert_true((double)x[t][c] == scale[t] * code[t][c] + minimum[t]);
        }
    }
}

static void folded_attention_equals_attention_over_the_dequantised_cache(void **state)
{
    (void)state;
    static head h;
    reference_rng rng;
    reference_seed(&rng, 4);
    make_side(&rng, 2, h.k_code, h.k_scale, h.k_minimum, h.k);
    make_side(&rng, 4, h.v_code, h.v_scale, h.v_minimum, h.v);
    for (int r = 0; r < R; r++)
        for (int c = 0; c < D; c++) h.q[r][c] = (float)reference_normal(&rng);
    double out[R][D], lse[R], scale = 0.125;
    assert_true(reference_attention(h.k[0], h.v[0], T, D, h.q[0], R, scale, out[0], lse, NULL));
    for (int r = 0; r < R; r++) {
        double q_sum = 0, l = 0, z = 0, folded[D] = {0};
        for (int c = 0; c < D; c++) q_sum += h.q[r][c];
        for (int t = 0; t < T; t++) {
            double a = 0;
            for (int c = 0; c < D; c++) a += h.q[r][c] * h.k_code[t][c];
            double p = exp(scale * (h.k_scale[t] * a + h.k_minimum[t] * q_sum)); /* K: scale on the output */
            l += p;
            z += p * h.v_minimum[t];
            for (int c = 0; c < D; c++)
                folded[c] += p * h.v_scale[t] * h.v_code[t][c]; /* V: scale on the other operand */
        }
        for (int c = 0; c < D; c++) folded[c] = (folded[c] + z) / l;
        assert_true(reference_error_f64(folded, out[r], D) < 1e-12);
        assert_true(fabs(lse[r] - log(l)) < 1e-12);
    }
}

static void attention_over_nothing_is_zero(void **state)
{
    (void)state;
    double out[D], lse;
    float q[D] = {1};
    memset(out, 0xff, sizeof out);
    assert_true(reference_attention(NULL, NULL, 0, D, q, 1, 1.0, out, &lse, NULL));
    assert_true(isinf(lse) && lse < 0);
    for (int c = 0; c < D; c++) assert_true(out[c] == 0);
}

static void attention_weights_do_not_overflow(void **state)
{
    (void)state;
    float k[2][2] = {{1000, 0}, {0, 0}}, v[2][2] = {{1, 2}, {3, 4}}, q[2] = {1000, 0};
    double out[2], lse;
    assert_true(reference_attention(k[0], v[0], 2, 2, q, 1, 1.0, out, &lse, NULL));
    assert_true(out[0] == 1 && out[1] == 2 && lse == 1e6);
}

static void errors_are_relative_norms(void **state)
{
    (void)state;
    const float a[2] = {3, 4.5f}, bad[2] = {NAN, 0};
    const double b[2] = {3, 4}, zero[2] = {0, 0};
    assert_true(fabs(reference_error(a, b, 2) - 0.1) < 1e-15);
    assert_true(isinf(reference_error(bad, b, 2)));
    assert_true(reference_error_f64(b, zero, 2) == 5);
}

/* ---- Data ---- */

static void random_numbers_repeat_with_their_seed(void **state)
{
    (void)state;
    reference_rng a, b;
    double sum = 0, square = 0;
    reference_seed(&a, 7);
    reference_seed(&b, 7);
    for (int i = 0; i < 20000; i++) {
        double x = reference_normal(&a);
        assert_true(x == reference_normal(&b));
        assert_true(reference_below(&a, 10) < 10);
        reference_bits(&b);
        sum += x;
        square += x * x;
    }
    assert_true(fabs(sum / 20000) < 0.05 && fabs(square / 20000 - 1) < 0.05);
}

static void data_have_the_scores_they_promise(void **state)
{
    (void)state;
    enum { TOKENS = 2000, DIM = 64, ROWS = 4 };
    float *q = malloc(sizeof(float) * ROWS * DIM), *k = malloc(sizeof(float) * TOKENS * DIM),
          *v = malloc(sizeof(float) * TOKENS * DIM);
    assert_true(q != NULL && k != NULL && v != NULL);
    reference_rng rng;
    reference_seed(&rng, 8);
    for (int kind = 0; kind < REFERENCE_DATA_KINDS; kind++) {
        reference_fill((reference_data)kind, &rng, TOKENS, DIM, ROWS, 0.125, q, k, v);
        for (int r = 0; r < ROWS; r++) {
            double largest = -INFINITY, least = INFINITY, first = 0, sum = 0;
            for (int t = 0; t < TOKENS; t++) {
                double s = 0;
                for (int c = 0; c < DIM; c++) s += 0.125 * (double)q[r * DIM + c] * (double)k[t * DIM + c];
                if (t == 0) first = exp(s);
                largest = fmax(largest, s);
                least = fmin(least, s);
                sum += exp(s);
            }
            if (kind == REFERENCE_DATA_LARGE_SCORES) assert_true(fabs(largest - 50) < 1e-3);
            if (kind == REFERENCE_DATA_SINK) assert_true(fabs(first / sum - 0.5) < 0.01);
            if (kind == REFERENCE_DATA_RANGES) assert_true(largest - least > 150 && largest - least < 210);
            if (kind == REFERENCE_DATA_STEPS) assert_true(largest - least > 290 && largest - least < 470);
            if (kind == REFERENCE_DATA_HEADS) assert_true(largest > 0.999 && largest < 2001);
        }
        if (kind == REFERENCE_DATA_RANGES) {
            double widest = 0, narrowest = INFINITY;
            for (int t = 0; t < TOKENS; t++) {
                double size = 0;
                for (int c = 0; c < DIM; c++) size = fmax(size, fabs((double)v[t * DIM + c]));
                widest = fmax(widest, size);
                narrowest = fmin(narrowest, size);
            }
            assert_true(widest > 1e4 && widest < 65504 && narrowest < 1e-5);
        }
    }
    free(v);
    free(k);
    free(q);
}

/* What reference_put stores of a sequence, under every pair of a scheme with itself, with and without a tier, is what reference_scheme_cache says. */
static void a_cache_of_any_scheme_holds_what_the_scheme_says(void **state)
{
    (void)state;
    enum { DIM = 128, TOKENS = 700, PAGES = 16, SINK = 7, WINDOW = 50 };
    static const int lengths[] = {0, 1, 7, 57, 58, 185, 186, 400, TOKENS};
    static uint8_t pages[PAGES * 40000], tier_pages[PAGES * 40000];
    static float x[TOKENS * DIM], want[TOKENS * DIM], got[TOKENS * DIM];
    int32_t table[PAGES], tier_table[PAGES];
    for (int i = 0; i < PAGES; i++) table[i] = (i * 5 + 3) % PAGES, tier_table[i] = (i * 7 + 2) % PAGES;
    scheme schemes[SCHEMES_MAX];
    int count = scheme_list(DIM, schemes);
    reference_rng rng;
    reference_seed(&rng, 5);
    for (int i = 0; i < TOKENS * DIM; i++) x[i] = reference_from_bf16(reference_to_bf16((float)reference_normal(&rng)));
    for (int i = 0; i < 2 * count; i++) {
        const scheme *s = &schemes[i / 2];
        config cfg = {.target = target_row(0), .k = *s, .v = *s, .head_dim = DIM, .heads = 1, .page_tokens = 64, .q_type = NUMBER_BF16, .m_type = i % 2 ? NUMBER_BF16 : NUMBER_F16, .tier = true};
        reference_tier tier = {tier_pages, 40000, 20000, tier_table, NULL, PAGES, {SINK, WINDOW, (int)tier_slots_least(&cfg, SINK, WINDOW)}};
        reference_cache cache = {&cfg, pages, 40000, 20000, table, NULL, PAGES, &tier};
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            for (int side = REFERENCE_K; side <= REFERENCE_V; side++) {
                memset(pages, 0xff, sizeof pages);
                memset(tier_pages, 0xff, sizeof tier_pages);
                reference_put(&cache, (reference_side)side, 0, 1, lengths[l], x);
                assert_true(reference_gather(&cache, 0, 1, lengths[l], side == REFERENCE_K ? got : NULL, side == REFERENCE_V ? got : NULL));
                assert_true(reference_scheme_cache(s, cfg.m_type, x, lengths[l], DIM, SINK, WINDOW, want));
                assert_memory_equal(got, want, (size_t)lengths[l] * DIM * sizeof *got);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_f16_survives_a_round_trip_and_ties_go_to_even),
        cmocka_unit_test(every_bf16_survives_a_round_trip_and_ties_go_to_even),
        cmocka_unit_test(arrays_convert_as_single_numbers_do),
        cmocka_unit_test(dequantised_values_lie_within_half_a_step),
        cmocka_unit_test(codes_are_rounded_to_nearest_even),
        cmocka_unit_test(a_constant_group_is_exact),
        cmocka_unit_test(nan_counts_as_zero_and_infinity_as_the_limit),
        cmocka_unit_test(zeros_have_no_sign),
        cmocka_unit_test(stored_tokens_load_as_they_were),
        cmocka_unit_test(gathering_equals_loading_each_token),
        cmocka_unit_test(a_cache_of_any_scheme_holds_what_the_scheme_says),
        cmocka_unit_test(folded_attention_equals_attention_over_the_dequantised_cache),
        cmocka_unit_test(attention_over_nothing_is_zero),
        cmocka_unit_test(attention_weights_do_not_overflow),
        cmocka_unit_test(errors_are_relative_norms),
        cmocka_unit_test(random_numbers_repeat_with_their_seed),
        cmocka_unit_test(data_have_the_scores_they_promise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
