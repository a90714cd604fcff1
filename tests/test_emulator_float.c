/* The interpreter's float arithmetic and conversions, against the processor's own rounding modes, long double, and
 * searches through all the values of a format. Expected results are computed with volatile operands: the compiler must
 * not do them in another rounding mode. */
#include <fenv.h>
#include <math.h>

#include "emulator_scalar_fixture.h"

enum { ROUNDS = 400, D = 0, A = 2, B = 4, C = 6 };

static bool nan32(uint32_t bits)
{
    return (bits & 0x7fffffff) > 0x7f800000;
}
static bool subnormal32(uint32_t bits)
{
    return (bits & 0x7f800000) == 0;
}
static uint32_t flushed(uint32_t bits)
{
    return subnormal32(bits) ? bits & 0x80000000 : bits;
}

/* ---- f32 under the four rounding modes ---- */

typedef float (*float_function)(volatile float a, volatile float b, volatile float c);

static float add(volatile float a, volatile float b, volatile float c)
{
    return (void)c, a + b;
}
static float subtract(volatile float a, volatile float b, volatile float c)
{
    return (void)c, a - b;
}
static float multiply(volatile float a, volatile float b, volatile float c)
{
    return (void)c, a * b;
}
static float fused(volatile float a, volatile float b, volatile float c)
{
    return fmaf(a, b, c);
}
static float divide(volatile float a, volatile float b, volatile float c)
{
    return (void)c, a / b;
}
static float invert(volatile float a, volatile float b, volatile float c)
{
    volatile float one = 1;
    return (void)b, (void)c, one / a;
}
static float root(volatile float a, volatile float b, volatile float c)
{
    return (void)b, (void)c, sqrtf(a);
}

static const struct {
    emulator_rounding rounding;
    int mode;
} roundings[] = {{ROUND_NONE, FE_TONEAREST},
                 {ROUND_RN, FE_TONEAREST},
                 {ROUND_RZ, FE_TOWARDZERO},
                 {ROUND_RM, FE_DOWNWARD},
                 {ROUND_RP, FE_UPWARD}};

static void check_f32(random_source *r, handler execute, float_function expected, int sources, modifiers mods, int mode)
{
    scene *s = scene_create();
    instruction i = {.mods = mods, .operands = (uint8_t)(1 + sources)};
    i.mods.type[0] = TYPE_F32;
    for (int k = 0; k <= sources; k++) i.operand[k] = in_register(TYPE_F32, 2 * k);
    for (int round = 0; round < ROUNDS; round++) {
        for (int l = 0; l < LANES; l++)
            for (int k = 1; k <= 3; k++) put(s, 2 * k, l, 4, random_f32(r));
        /* Sums that cancel. */
        if (round % 4 == 0) memcpy(s->slot[B], s->slot[A], sizeof s->slot[A]);
        if (round % 8 == 0)
            for (int l = 0; l < LANES; l++) s->slot[B][l] ^= 0x80000000;
        assert_int_equal(scene_run(s, execute, &i), EMULATOR_OK);
        assert_int_equal(fegetround(), FE_TONEAREST);
        for (int l = 0; l < LANES; l++) {
            uint32_t v[4];
            for (int k = 1; k <= 3; k++) v[k] = mods.ftz ? flushed(s->slot[2 * k][l]) : s->slot[2 * k][l];
            fesetround(mode);
            volatile float d = expected(f32_value(v[1]), f32_value(v[2]), f32_value(v[3]));
            fesetround(FE_TONEAREST);
            uint32_t bits = f32_bits(d);
            if (nan32(bits)) bits = 0x7fffffff;
            if (mods.ftz) bits = flushed(bits);
            if (mods.saturate) bits = nan32(bits) || bits >> 31 ? 0 : f32_value(bits) > 1 ? 0x3f800000 : bits;
            if (s->slot[D][l] != bits)
                fail_msg("rounding %d ftz %d: %a, %a, %a give 0x%08x, not 0x%08x", mods.rounding, mods.ftz,
                         (double)f32_value(v[1]), (double)f32_value(v[2]), (double)f32_value(v[3]), s->slot[D][l],
                         bits);
        }
    }
    scene_destroy(s);
}

static void f32_arithmetic_is_rounded_as_the_mode_says(void **state)
{
    (void)state;
    random_source r = random_start(__func__);
    for (int n = 0; n < 5; n++) {
        for (int variant = 0; variant < 4; variant++) {
            const modifiers mods = {
                .rounding = (uint8_t)roundings[n].rounding, .ftz = variant & 1, .saturate = (variant & 2) != 0};
            const int mode = roundings[n].mode;
            check_f32(&r, exec_add_float, add, 2, mods, mode);
            check_f32(&r, exec_sub_float, subtract, 2, mods, mode);
            check_f32(&r, exec_mul_float, multiply, 2, mods, mode);
            check_f32(&r, exec_fma_float, fused, 3, mods, mode);
            if (mods.saturate) continue;
            check_f32(&r, exec_div_float, divide, 2, mods, mode);
            check_f32(&r, exec_rcp, invert, 1, mods, mode);
            check_f32(&r, exec_sqrt, root, 1, mods, mode);
        }
    }
}

static void minima_and_maxima_order_zeros_and_pass_over_nan(void **state)
{
    (void)state;
    static const struct {
        uint32_t a, b, min, max, min_nan;
    } cases[] = {{0x00000000, 0x80000000, 0x80000000, 0x00000000, 0x80000000},
                 {0x80000000, 0x00000000, 0x80000000, 0x00000000, 0x80000000},
                 {0x7fc00001, 0x3f800000, 0x3f800000, 0x3f800000, 0x7fffffff},
                 {0x3f800000, 0xffc00001, 0x3f800000, 0x3f800000, 0x7fffffff},
                 {0x7fc00001, 0xffc00001, 0x7fffffff, 0x7fffffff, 0x7fffffff},
                 {0xbf800000, 0x00000001, 0xbf800000, 0x00000001, 0xbf800000},
                 {0xff800000, 0x7f800000, 0xff800000, 0x7f800000, 0xff800000},
                 {0xbf800000, 0xc0000000, 0xc0000000, 0xbf800000, 0xc0000000}};
    scene *s = scene_create();
    instruction i = {.mods = {.type = {TYPE_F32}}, .operands = 3};
    for (int k = 0; k < 3; k++) i.operand[k] = in_register(TYPE_F32, 2 * k);
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        put(s, A, 3, 4, cases[n].a), put(s, B, 3, 4, cases[n].b);
        i.mods.extra = 0;
        assert_int_equal(scene_run(s, exec_min_float, &i), EMULATOR_OK);
        assert_int_equal(s->slot[D][3], cases[n].min);
        assert_int_equal(scene_run(s, exec_max_float, &i), EMULATOR_OK);
        assert_int_equal(s->slot[D][3], cases[n].max);
        i.mods.extra = EXTRA_NAN;
        assert_int_equal(scene_run(s, exec_min_float, &i), EMULATOR_OK);
        assert_int_equal(s->slot[D][3], cases[n].min_nan);
    }
    scene_destroy(s);
}

static void float_comparisons_know_unordered(void **state)
{
    (void)state;
    random_source r = random_start(__func__);
    scene *s = scene_create();
    for (int round = 0; round < ROUNDS * 14; round++) {
        const int compare = COMPARE_EQ + round % 14;
        instruction i = {.mods = {.type = {TYPE_F32}, .compare = (uint8_t)compare, .ftz = round / 14 % 2},
                         .operands = 4};
        i.operand[0] = in_predicate(0), i.operand[1] = in_predicate(1);
        i.operand[2] = in_register(TYPE_F32, A), i.operand[3] = in_register(TYPE_F32, B);
        for (int l = 0; l < LANES; l++)
            put(s, A, l, 4, random_f32(&r)), put(s, B, l, 4, l % 3 ? random_f32(&r) : s->slot[A][l]);
        assert_int_equal(scene_run(s, exec_setp_float, &i), EMULATOR_OK);
        for (int l = 0; l < LANES; l++) {
            uint32_t x = s->slot[A][l], y = s->slot[B][l];
            if (i.mods.ftz) x = flushed(x), y = flushed(y);
            const bool unordered = nan32(x) || nan32(y);
            /* -1, 0 or 1 of the signed magnitudes */
            const int64_t a = x >> 31 ? -(int64_t)(x & 0x7fffffff) : (int64_t)x,
                          b = y >> 31 ? -(int64_t)(y & 0x7fffffff) : (int64_t)y;
            const bool ordered[6] = {a == b, a != b, a<b, a <= b, a> b, a >= b};
            const bool holds = compare == COMPARE_NUM   ? !unordered
                               : compare == COMPARE_NAN ? unordered
                               : compare >= COMPARE_EQU ? unordered || ordered[compare - COMPARE_EQU]
                                                        : !unordered && ordered[compare - COMPARE_EQ];
            assert_int_equal(s->predicate[0] >> l & 1, holds);
            assert_int_equal(s->predicate[1] >> l & 1, !holds);
        }
    }
    scene_destroy(s);
}

/* ---- Functions with an allowed error ---- */

static void run_unary(scene *s, handler execute, bool ftz, bool approx)
{
    instruction i = {.mods = {.type = {TYPE_F32}, .ftz = ftz, .approx = approx}, .operands = 2};
    i.operand[0] = in_register(TYPE_F32, D), i.operand[1] = in_register(TYPE_F32, A);
    assert_int_equal(scene_run(s, execute, &i), EMULATOR_OK);
}

/* How many places of float the result is off. */
static double error_in_ulp(uint32_t bits, long double exact)
{
    const int exponent = exact == 0 ? -126 : ilogbl(exact) < -126 ? -126 : ilogbl(exact);
    return (double)(fabsl((long double)f32_value(bits) - exact) / ldexpl(1, exponent - 23));
}

static void ex2_is_within_an_ulp_and_flushes_only_when_told(void **state)
{
    (void)state;
    random_source r = random_start(__func__);
    scene *s = scene_create();
    for (int round = 0; round < 4000; round++) {
        const bool ftz = round & 1;
        for (int l = 0; l < LANES; l++) {
            const uint64_t v = random_u64(&r);
            const float x = (float)((double)(v >> 11) * 0x1p-53 * 290 - 155);
            put(s, A, l, 4, l & 1 ? f32_bits(x) : random_f32(&r));
        }
        run_unary(s, exec_ex2, ftz, true);
        for (int l = 0; l < LANES; l++) {
            const uint32_t x = s->slot[A][l], d = s->slot[D][l];
            const long double exact = exp2l((long double)f32_value(ftz ? flushed(x) : x));
            if (nan32(x)) {
                assert_int_equal(d, 0x7fffffff);
            } else if (exact > 0x1.fffffep127L) {
                assert_true(d == 0x7f800000 || error_in_ulp(d, exact) < 0.501);
            } else if (ftz && exact < 0x1p-126L) {
                assert_true(d == 0 || d == 0x00800000);
            } else if (error_in_ulp(d, exact) > 0.501) {
                fail_msg("2^%a gives %a", (double)f32_value(x), (double)f32_value(d));
            }
        }
    }
    scene_destroy(s);
}

static void lg2_rcp_sqrt_div_approximations_are_within_their_errors(void **state)
{
    (void)state;
    random_source r = random_start(__func__);
    scene *s = scene_create();
    for (int round = 0; round < 1000; round++) {
        for (int l = 0; l < LANES; l++) put(s, A, l, 4, random_f32(&r));
        run_unary(s, exec_lg2, false, true);
        for (int l = 0; l < LANES; l++) {
            const uint32_t x = s->slot[A][l], d = s->slot[D][l];
            const float v = f32_value(x);
            if (nan32(x) || v < 0)
                assert_int_equal(d, 0x7fffffff);
            else if (v == 0 || isinf(v))
                assert_int_equal(d, v == 0 ? 0xff800000 : 0x7f800000);
            else
                assert_true(fabsl((long double)f32_value(d) - log2l((long double)v)) <=
                            0x1p-24L * fmaxl(1, fabsl(log2l((long double)v))));
        }
        run_unary(s, exec_rcp, true, true);
        for (int l = 0; l < LANES; l++)
            if (subnormal32(s->slot[A][l])) assert_int_equal(s->slot[D][l], (s->slot[A][l] & 0x80000000) | 0x7f800000);
    }
    /* What lies beyond 2^126 has a reciprocal of 0 for div.approx, and NaN for infinity over it. */
    instruction i = {.mods = {.type = {TYPE_F32}, .approx = true}, .operands = 3};
    for (int k = 0; k < 3; k++) i.operand[k] = in_register(TYPE_F32, 2 * k);
    put(s, A, 0, 4, 0x7f000000), put(s, B, 0, 4, 0xff000000);
    put(s, A, 1, 4, 0x7f800000), put(s, B, 1, 4, 0x7f000000);
    put(s, A, 2, 4, 0x40800000), put(s, B, 2, 4, 0x40000000);
    assert_int_equal(scene_run(s, exec_div_float, &i), EMULATOR_OK);
    assert_int_equal(s->slot[D][0], 0x80000000);
    assert_int_equal(s->slot[D][1], 0x7fffffff);
    assert_int_equal(s->slot[D][2], 0x40000000);
    scene_destroy(s);
}

/* ---- Narrow formats: their values by the definition, the nearest by looking at all ---- */

typedef struct narrow {
    emulator_type single, pair;
    int exponent_bits, mantissa_bits;
    uint32_t largest, nan;
    bool infinity;
} narrow;

static const narrow formats[] = {{TYPE_F16, TYPE_F16X2, 5, 10, 0x7bff, 0x7fff, true},
                                 {TYPE_BF16, TYPE_BF16X2, 8, 7, 0x7f7f, 0x7fff, true},
                                 {TYPE_E4M3, TYPE_E4M3X2, 4, 3, 0x7e, 0x7f, false},
                                 {TYPE_E5M2, TYPE_E5M2X2, 5, 2, 0x7b, 0x7f, true},
                                 {TYPE_E2M1, TYPE_E2M1X2, 2, 1, 0x7, 0x7, false}};
enum { F16, BF16, E4M3, E5M2, E2M1, FORMATS };

static int bits_of(const narrow *f)
{
    return 1 + f->exponent_bits + f->mantissa_bits;
}

/* Of the magnitude; the code after the largest finite one stands for what it would be without a bound. */
static long double magnitude_of(const narrow *f, uint32_t code)
{
    const int bias = (1 << (f->exponent_bits - 1)) - 1, exponent = (int)(code >> f->mantissa_bits);
    const long double fraction = ldexpl((long double)(code & ((1u << f->mantissa_bits) - 1)), -f->mantissa_bits);
    return exponent == 0 ? ldexpl(fraction, 1 - bias) : ldexpl(1 + fraction, exponent - bias);
}

static uint32_t nearest(const narrow *f, long double x, emulator_rounding rounding, bool finite)
{
    if (isnan(x)) return f->nan;
    const bool negative = signbit(x) != 0;
    const uint32_t sign = (uint32_t)negative << (bits_of(f) - 1),
                   beyond = finite || !f->infinity ? f->largest : f->largest + 1;
    const long double v = fabsl(x);
    if (isinf(v)) return sign | beyond;
    uint32_t low = 0, high = f->largest + 1; /* magnitude_of(low) <= v < magnitude_of(high), or the largest */
    if (v >= magnitude_of(f, high)) {
        const bool inwards = rounding == ROUND_RZ || rounding == (negative ? ROUND_RP : ROUND_RM);
        return sign | (inwards ? f->largest : beyond);
    }
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (magnitude_of(f, middle) <= v)
            low = middle;
        else
            high = middle;
    }
    const long double down = v - magnitude_of(f, low), up = magnitude_of(f, high) - v;
    bool away = down > up || (down == up && (low & 1));
    if (rounding == ROUND_RZ) away = false;
    if (rounding == ROUND_RM) away = negative && down > 0;
    if (rounding == ROUND_RP) away = !negative && down > 0;
    const uint32_t code = low + away;
    return sign | (code > f->largest ? beyond : code);
}

static long double narrow_value(const narrow *f, uint32_t code)
{
    const uint32_t magnitude = code & ((1u << (bits_of(f) - 1)) - 1);
    const long double v = magnitude <= f->largest                      ? magnitude_of(f, magnitude)
                          : f->infinity && magnitude == f->largest + 1 ? INFINITY
                                                                       : NAN;
    return code >> (bits_of(f) - 1) ? -v : v;
}

static void run_cvt(scene *s, emulator_type to, emulator_type from, emulator_rounding rounding, int sources,
                    modifiers mods, emulator_type result, emulator_type source)
{
    instruction i = {.mods = mods, .operands = (uint8_t)(1 + sources)};
    i.mods.type[0] = to, i.mods.type[1] = from, i.mods.rounding = (uint8_t)rounding;
    i.operand[0] = in_register(result, D), i.operand[1] = in_register(source, A), i.operand[2] = in_register(source, B);
    assert_int_equal(scene_run(s, exec_cvt, &i), EMULATOR_OK);
}

static void f32_becomes_the_nearest_f16_or_bf16(void **state)
{
    (void)state;
    random_source r = random_start(__func__);
    scene *s = scene_create();
    for (int round = 0; round < 4 * ROUNDS; round++) {
        const narrow *f = &formats[round % 2 ? F16 : BF16];
        const emulator_rounding rounding = roundings[1 + round / 2 % 4].rounding;
        for (int l = 0; l < LANES; l++) put(s, A, l, 4, random_f32(&r)), put(s, B, l, 4, random_f32(&r));
        run_cvt(s, f->single, TYPE_F32, rounding, 1, (modifiers){0}, TYPE_B16, TYPE_F32);
        for (int l = 0; l < LANES; l++)
            if (s->slot[D][l] != nearest(f, (long double)f32_value(s->slot[A][l]), rounding, false))
                fail_msg("%s rounding %d: %a gives 0x%04x", type_name(f->single), rounding,
                         (double)f32_value(s->slot[A][l]), s->slot[D][l]);
        if (rounding > ROUND_RZ) continue;
        const bool relu = round / 16 % 2;
        run_cvt(s, f->pair, TYPE_F32, rounding, 2, (modifiers){.extra = relu ? EXTRA_RELU : 0}, TYPE_B32, TYPE_F32);
        for (int l = 0; l < LANES; l++) {
            uint32_t upper = nearest(f, (long double)f32_value(s->slot[A][l]), rounding, false);
            uint32_t lower = nearest(f, (long double)f32_value(s->slot[B][l]), rounding, false);
            if (relu) upper = upper >> 15 ? 0 : upper, lower = lower >> 15 ? 0 : lower;
            assert_int_equal(s->slot[D][l], upper << 16 | lower);
        }
    }
    scene_destroy(s);
}

static void every_f16_and_bf16_becomes_its_f32(void **state)
{
    (void)state;
    scene *s = scene_create();
    for (uint32_t first = 0; first < 0x10000; first += LANES) {
        for (int n = 0; n < 2; n++) {
            for (int l = 0; l < LANES; l++) put(s, A, l, 2, first + (uint32_t)l);
            run_cvt(s, TYPE_F32, formats[n].single, ROUND_NONE, 1, (modifiers){0}, TYPE_F32, TYPE_B16);
            for (int l = 0; l < LANES; l++) {
                const long double v = narrow_value(&formats[n], first + (uint32_t)l);
                assert_int_equal(s->slot[D][l], isnan(v) ? 0x7fffffff : f32_bits((float)v));
            }
        }
    }
    scene_destroy(s);
}

static void pairs_of_8_and_4_bits_saturate_and_come_back(void **state)
{
    (void)state;
    random_source r = random_start(__func__);
    scene *s = scene_create();
    for (int round = 0; round < 3 * ROUNDS; round++) {
        const narrow *f = &formats[E4M3 + round % 3];
        const int width = bits_of(f);
        const emulator_type small = f->pair == TYPE_E2M1X2 ? TYPE_B8 : TYPE_B16;
        const modifiers saturating = {.finite = true};
        for (int l = 0; l < LANES; l++) put(s, A, l, 4, random_f32(&r)), put(s, B, l, 4, random_f32(&r));
        run_cvt(s, f->pair, TYPE_F32, ROUND_RN, 2, saturating, small, TYPE_F32);
        for (int l = 0; l < LANES; l++) {
            const uint32_t upper = nearest(f, (long double)f32_value(s->slot[A][l]), ROUND_RN, true);
            assert_int_equal(s->slot[D][l],
                             upper << width | nearest(f, (long double)f32_value(s->slot[B][l]), ROUND_RN, true));
        }
        for (int l = 0; l < LANES; l++) put(s, A, l, type_bytes(small), random_u64(&r));
        run_cvt(s, TYPE_F16X2, f->pair, ROUND_RN, 1, (modifiers){0}, TYPE_B32, small);
        for (int l = 0; l < LANES; l++) {
            const uint32_t v = s->slot[A][l], mask = (1u << width) - 1;
            const bool has_nan = f->pair != TYPE_E2M1X2;
            const long double upper = narrow_value(f, v >> width & mask), lower = narrow_value(f, v & mask);
            assert_true(has_nan || !isnan(upper));
            assert_int_equal(s->slot[D][l], nearest(&formats[F16], upper, ROUND_RN, false) << 16 |
                                                nearest(&formats[F16], lower, ROUND_RN, false));
        }
        if (f->pair == TYPE_E2M1X2) continue;
        for (int l = 0; l < LANES; l++) put(s, A, l, 4, random_u64(&r));
        run_cvt(s, f->pair, TYPE_F16X2, ROUND_RN, 1, saturating, small, TYPE_B32);
        for (int l = 0; l < LANES; l++) {
            const uint32_t v = s->slot[A][l];
            assert_int_equal(s->slot[D][l], nearest(f, narrow_value(&formats[F16], v >> 16), ROUND_RN, true) << 8 |
                                                nearest(f, narrow_value(&formats[F16], v & 0xffff), ROUND_RN, true));
        }
    }
    scene_destroy(s);
}

/* a b + c cut to 64 bits, the last of which tells whether anything was cut off: no tie arises or vanishes. */
static long double cut_sum(volatile long double a, volatile long double b, volatile long double c)
{
    feclearexcept(FE_INEXACT);
    fesetround(FE_TOWARDZERO);
    volatile long double v = fmal(a, b, c);
    fesetround(FE_TONEAREST);
    if (!fetestexcept(FE_INEXACT) || !isfinite(v)) return v;
    uint64_t significand;
    long double cut = v;
    memcpy(&significand, &cut, sizeof significand);
    return significand & 1 ? cut : nextafterl(cut, v > 0 ? INFINITY : -INFINITY);
}

static void half_arithmetic_is_rounded_once(void **state)
{
    (void)state;
    random_source r = random_start(__func__);
    static const handler handlers[] = {exec_add_float, exec_sub_float, exec_mul_float, exec_fma_float};
    scene *s = scene_create();
    for (int round = 0; round < 4 * ROUNDS; round++) {
        const narrow *f = &formats[round / 4 % 2 ? F16 : BF16];
        instruction i = {.mods = {.type = {f->pair}, .rounding = ROUND_RN},
                         .operands = (uint8_t)(round % 4 == 3 ? 4 : 3)};
        for (int k = 0; k < 4; k++) i.operand[k] = in_register(TYPE_B32, 2 * k);
        for (int l = 0; l < LANES; l++)
            for (int k = 1; k < 4; k++) put(s, 2 * k, l, 4, random_u64(&r) & (l & 1 ? 0xbfffbfff : UINT32_MAX));
        assert_int_equal(scene_run(s, handlers[round % 4], &i), EMULATOR_OK);
        for (int l = 0; l < LANES; l++) {
            for (int part = 0; part < 32; part += 16) {
                const long double a = narrow_value(f, s->slot[A][l] >> part & 0xffff),
                                  b = narrow_value(f, s->slot[B][l] >> part & 0xffff),
                                  c = narrow_value(f, s->slot[C][l] >> part & 0xffff);
                const long double exact = round % 4 == 0   ? cut_sum(a, 1, b)
                                          : round % 4 == 1 ? cut_sum(-b, 1, a)
                                          : round % 4 == 2 ? a * b
                                                           : cut_sum(a, b, c);
                assert_int_equal(s->slot[D][l] >> part & 0xffff, nearest(f, exact, ROUND_RN, false));
            }
        }
    }
    scene_destroy(s);
}

/* ---- Integers ---- */

static const emulator_type integers[] = {TYPE_U8, TYPE_S8, TYPE_U16, TYPE_S16, TYPE_U32, TYPE_S32, TYPE_U64, TYPE_S64};

static bool is_signed(emulator_type type)
{
    return type == TYPE_S8 || type == TYPE_S16 || type == TYPE_S32 || type == TYPE_S64;
}

static long double smallest(emulator_type type)
{
    return is_signed(type) ? -ldexpl(1, 8 * type_bytes(type) - 1) : 0;
}
static long double largest(emulator_type type)
{
    return ldexpl(1, 8 * type_bytes(type) - (is_signed(type) ? 1 : 0)) - 1;
}

static void floats_become_integers_within_bounds(void **state)
{
    (void)state;
    random_source r = random_start(__func__);
    scene *s = scene_create();
    for (int round = 0; round < 8 * ROUNDS; round++) {
        const emulator_type to = integers[round % 8];
        const int n = round / 8 % 4, bytes = type_bytes(to);
        const bool half = round / 32 % 2;
        for (int l = 0; l < LANES; l++) put(s, A, l, half ? 2 : 4, half ? random_u64(&r) : random_f32(&r));
        run_cvt(s, to, half ? TYPE_F16 : TYPE_F32, (emulator_rounding)(ROUND_RNI + n), 1, (modifiers){0},
                bytes == 8 ? TYPE_B64 : TYPE_B32, half ? TYPE_B16 : TYPE_F32);
        for (int l = 0; l < LANES; l++) {
            const long double x =
                half ? narrow_value(&formats[F16], s->slot[A][l]) : (long double)f32_value(s->slot[A][l]);
            fesetround(roundings[1 + n].mode);
            long double v = rintl(x);
            fesetround(FE_TONEAREST);
            v = v < smallest(to) ? smallest(to) : v > largest(to) ? largest(to) : v;
            uint64_t bits = bytes == 8 ? UINT64_C(1) << 63 : 0; /* of a NaN */
            if (!isnan(x)) bits = v < 0 ? -(uint64_t)-v : (uint64_t)v;
            if (bytes < 8) bits &= UINT32_MAX; /* the register has 32 bits: 8 and 16 are extended to that */
            if (get(s, D, l, bytes) != bits)
                fail_msg("%s: %La gives 0x%llx", type_name(to), x, (unsigned long long)get(s, D, l, bytes));
        }
    }
    scene_destroy(s);
}

static void integers_become_the_nearest_float(void **state)
{
    (void)state;
    random_source r = random_start(__func__);
    scene *s = scene_create();
    for (int round = 0; round < 16 * ROUNDS; round++) {
        const emulator_type from = integers[round % 8];
        const int n = 1 + round / 8 % 4, bytes = type_bytes(from);
        const emulator_type source = bytes == 8 ? TYPE_B64 : bytes == 4 ? TYPE_B32 : TYPE_B16;
        for (int l = 0; l < LANES; l++) put(s, A, l, type_bytes(source), random_integer(&r));
        const bool half = round / 32 % 2;
        run_cvt(s, half ? TYPE_F16 : TYPE_F32, from, roundings[n].rounding, 1, (modifiers){0},
                half ? TYPE_B16 : TYPE_F32, source);
        for (int l = 0; l < LANES; l++) {
            const uint64_t v = get(s, A, l, bytes == 8 ? 8 : 4) << (64 - 8 * bytes);
            const long double exact =
                is_signed(from) ? (long double)((int64_t)v >> (64 - 8 * bytes)) : (long double)(v >> (64 - 8 * bytes));
            if (half) {
                assert_int_equal(s->slot[D][l], nearest(&formats[F16], exact, roundings[n].rounding, false));
                continue;
            }
            fesetround(roundings[n].mode);
            volatile long double in = exact;
            volatile float d = (float)in;
            fesetround(FE_TONEAREST);
            if (s->slot[D][l] != f32_bits(d)) fail_msg("%s: %Lg gives 0x%08x", type_name(from), exact, s->slot[D][l]);
        }
    }
    scene_destroy(s);
}

static void integers_of_all_sizes_are_cut_extended_or_saturated(void **state)
{
    (void)state;
    random_source r = random_start(__func__);
    scene *s = scene_create();
    for (int round = 0; round < 64 * 20; round++) {
        const emulator_type to = integers[round % 8], from = integers[round / 8 % 8];
        const bool saturate = round / 64 % 2;
        const int wide_to = type_bytes(to) == 8 ? 8 : 4;
        for (int l = 0; l < LANES; l++) put(s, A, l, 8, random_integer(&r));
        run_cvt(s, to, from, ROUND_NONE, 1, (modifiers){.saturate = saturate}, wide_to == 8 ? TYPE_B64 : TYPE_B32,
                TYPE_B64);
        for (int l = 0; l < LANES; l++) {
            const int cut = 64 - 8 * type_bytes(from), cut_to = 64 - 8 * type_bytes(to);
            const uint64_t v = get(s, A, l, 8) << cut;
            long double x = is_signed(from) ? (long double)((int64_t)v >> cut) : (long double)(v >> cut);
            uint64_t bits = is_signed(from) ? (uint64_t)((int64_t)v >> cut) : v >> cut;
            if (saturate && x < smallest(to)) bits = (uint64_t)(int64_t)smallest(to);
            if (saturate && x > largest(to)) bits = (uint64_t)largest(to);
            bits = is_signed(to) ? (uint64_t)((int64_t)(bits << cut_to) >> cut_to) : bits << cut_to >> cut_to;
            assert_int_equal(get(s, D, l, wide_to), wide_to == 8 ? bits : bits & UINT32_MAX);
        }
    }
    scene_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f32_arithmetic_is_rounded_as_the_mode_says),
        cmocka_unit_test(minima_and_maxima_order_zeros_and_pass_over_nan),
        cmocka_unit_test(float_comparisons_know_unordered),
        cmocka_unit_test(ex2_is_within_an_ulp_and_flushes_only_when_told),
        cmocka_unit_test(lg2_rcp_sqrt_div_approximations_are_within_their_errors),
        cmocka_unit_test(f32_becomes_the_nearest_f16_or_bf16),
        cmocka_unit_test(every_f16_and_bf16_becomes_its_f32),
        cmocka_unit_test(pairs_of_8_and_4_bits_saturate_and_come_back),
        cmocka_unit_test(half_arithmetic_is_rounded_once),
        cmocka_unit_test(floats_become_integers_within_bounds),
        cmocka_unit_test(integers_become_the_nearest_float),
        cmocka_unit_test(integers_of_all_sizes_are_cut_extended_or_saturated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
