/* The arithmetic of matrix products, against exact sums and a second writing of the hardware's rules. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tensor.h"

static uint64_t state;

static uint32_t random_bits(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

static int start(void **unused)
{
    (void)unused;
    state = (uint64_t)time(NULL) * 2654435761u;
    print_message("seed %llu\n", (unsigned long long)state);
    return 0;
}

/* ---- Integers ---- */

static int value_of(mma_type type, uint8_t code)
{
    return type == MMA_U8 ? code : (int8_t)code;
}

static void check_integers(int m, int n, int k, mma_type a_type, mma_type b_type, bool saturate, int32_t bound)
{
    uint8_t *a = malloc((size_t)(m * k)), *b = malloc((size_t)(n * k));
    int32_t *d = malloc((size_t)(m * n) * sizeof *d), *before = malloc((size_t)(m * n) * sizeof *d);
    for (int i = 0; i < m * k; i++) a[i] = (uint8_t)random_bits();
    for (int i = 0; i < n * k; i++) b[i] = (uint8_t)random_bits();
    for (int i = 0; i < m * n; i++) {
        int64_t sign = i % 2 ? 1 : -1;
        d[i] = before[i] = (int32_t)(sign * (bound - (int32_t)(random_bits() % 100)));
    }
    mma_integer(m, n, k, a_type, a, b_type, b, d, saturate);
    for (int i = 0; i < m; i++) {
        for (int j = 0; j < n; j++) {
            int64_t sum = before[i * n + j];
            for (int x = 0; x < k; x++) sum += value_of(a_type, a[i * k + x]) * value_of(b_type, b[j * k + x]);
            if (saturate) sum = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
            assert_int_equal(d[i * n + j], (int32_t)(uint32_t)(uint64_t)sum);
        }
    }
    free(a);
    free(b);
    free(d);
    free(before);
}

static void integer_products_are_exact_and_wrap_or_saturate(void **unused)
{
    (void)unused;
    static const int shapes[][3] = {{64, 24, 32}, {64, 8, 32}, {128, 256, 32}, {3, 5, 16}, {2, 2, 7}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (int types = 0; types < 4; types++)
            for (int saturate = 0; saturate < 2; saturate++)
                for (int large = 0; large < 2; large++)
                    check_integers(shapes[s][0], shapes[s][1], shapes[s][2], types & 1 ? MMA_S8 : MMA_U8,
                                   types & 2 ? MMA_S8 : MMA_U8, saturate, large ? INT32_MAX : 1000);
}

/* ---- Formats ---- */

typedef struct format {
    mma_type type;
    int bits, exponent, fraction, bias;
} format;

static const format formats[] = {{MMA_F16, 16, 5, 10, 15}, {MMA_BF16, 16, 8, 7, 127}, {MMA_E4M3, 8, 4, 3, 7},
                                 {MMA_E5M2, 8, 5, 2, 15},  {MMA_E2M3, 6, 2, 3, 1},    {MMA_E3M2, 6, 3, 2, 3},
                                 {MMA_E2M1, 4, 2, 1, 1}};
enum { FORMATS = sizeof formats / sizeof formats[0] };

static void every_code_widens_to_the_value_its_format_gives_it(void **unused)
{
    (void)unused;
    for (size_t x = 0; x < FORMATS; x++) {
        const format *f = &formats[x];
        for (uint32_t code = 0; code < 1u << f->bits; code++) {
            int e = (int)(code >> f->fraction) & ((1 << f->exponent) - 1),
                fraction = (int)code & ((1 << f->fraction) - 1);
            bool ieee = f->type == MMA_F16 || f->type == MMA_BF16 || f->type == MMA_E5M2,
                 top = e == (1 << f->exponent) - 1;
            double value =
                e ? ldexp(1 + ldexp(fraction, -f->fraction), e - f->bias) : ldexp(fraction, 1 - f->bias - f->fraction);
            if (ieee && top) value = fraction ? NAN : INFINITY;
            if (f->type == MMA_E4M3 && (code & 0x7f) == 0x7f) value = NAN;
            if (code >> (f->bits - 1)) value = -value;
            float widened = mma_widen(f->type, (uint16_t)code);
            if (isnan(value)) {
                assert_true(isnan(widened));
            } else {
                assert_true((double)widened == value);
                assert_int_equal(signbit(widened) != 0, signbit(value) != 0);
            }
        }
    }
    assert_true(mma_widen_scale(MMA_UE8M0, 0) == 0x1p-127f && mma_widen_scale(MMA_UE8M0, 254) == 0x1p127f);
    assert_true(isnan(mma_widen_scale(MMA_UE8M0, 255)) && isnan(mma_widen_scale(MMA_UE4M3, 127)));
    assert_true(mma_widen_scale(MMA_UE4M3, 0x38) == 1 && mma_widen_scale(MMA_UE4M3, 0x01) == 0x1p-9f);
}

static void rounding_to_f16_takes_the_nearest_and_of_two_the_even(void **unused)
{
    (void)unused;
    for (uint32_t code = 0; code < 0x7c00; code++) {
        float low = mma_widen(MMA_F16, (uint16_t)code),
              high = code == 0x7bff ? 65536 : mma_widen(MMA_F16, (uint16_t)(code + 1));
        float middle = (low + high) / 2;
        assert_int_equal(mma_half_bits(low), code);
        assert_int_equal(mma_half_bits(-low), code | 0x8000);
        assert_int_equal(mma_half_bits(middle), code & 1 ? code + 1 : code);
        assert_int_equal(mma_half_bits(nextafterf(middle, 0)), code);
        assert_int_equal(mma_half_bits(nextafterf(middle, INFINITY)), code + 1);
    }
    assert_int_equal(mma_half_bits(INFINITY), 0x7c00);
    assert_int_equal(mma_half_bits(1e30f), 0x7c00);
    assert_int_equal(mma_half_bits(-1e-30f), 0x8000);
}

/* ---- Float sums ---- */

/* The rules once more, in doubles: significands as frexp gives them, each cut off at a bit below the largest exponent.
 */
static int exponent_of(double x, int min)
{
    if (x == 0) return -126;
    int e = 0;
    frexp(x, &e);
    return e - 1 < min ? min : e - 1;
}

static int min_exponent(mma_type type)
{
    for (size_t x = 0; x < FORMATS; x++)
        if (formats[x].type == type) return 1 - formats[x].bias;
    return 0;
}

static double cut(double x, int quantum)
{
    return ldexp(trunc(ldexp(x, -quantum)), quantum);
}

static float round_result(double sum, int bits, bool half)
{
    if (sum == 0) return 0;
    int e = exponent_of(sum, half ? -14 : -126);
    if (!half) return (float)cut(sum, e - bits);
    double rounded = ldexp(nearbyint(ldexp(sum, 10 - e)), e - 10);
    return fabs(rounded) >= 65536 ? copysignf(INFINITY, (float)rounded) : (float)rounded;
}

static double scale_of(const mma_float_form *f, const uint8_t *scale, int i)
{
    return f->scale == MMA_SCALE_NONE ? 1 : (double)mma_widen_scale(f->scale, scale[i / f->block]);
}

static float model_sum(const mma_float_form *f, int k, const uint32_t *a, const uint32_t *b, const uint8_t *sa,
                       const uint8_t *sb, float c)
{
    bool hopper8 = f->model == MMA_HOPPER && f->a != MMA_F16 && f->a != MMA_BF16, packed = k == 64;
    int bits = packed    ? 35
               : hopper8 ? 13
                         : 25,
        terms = packed ? k / 16 : k, exponent[64], largest = exponent_of((double)c, -126);
    double term[64];
    for (int t = 0; t < terms; t++) {
        term[t] = 0;
        int each = k / terms;
        for (int x = t * each; x < (t + 1) * each; x++)
            term[t] += (double)mma_widen(f->a, a[x]) * (double)mma_widen(f->b, b[x]);
        double s = scale_of(f, sa, t * each), u = scale_of(f, sb, t * each);
        int scales = f->scale == MMA_SCALE_NONE ? 0
                     : f->scale == MMA_UE8M0    ? exponent_of(s, -127) + exponent_of(u, -127)
                                                : exponent_of(s, -6) + exponent_of(u, -6);
        exponent[t] = scales;
        if (!packed)
            exponent[t] += exponent_of((double)mma_widen(f->a, a[t]), min_exponent(f->a)) +
                           exponent_of((double)mma_widen(f->b, b[t]), min_exponent(f->b));
        term[t] *= s * u;
        if (exponent[t] > largest) largest = exponent[t];
    }
    double sum = cut((double)c, largest - bits);
    for (int t = 0; t < terms; t++) sum += cut(term[t], largest - bits);
    return round_result(sum, hopper8 ? 13 : 23, f->half);
}

static uint16_t random_code(mma_type type, int spread)
{
    for (;;) {
        const format *f = &formats[0];
        while (f->type != type) f++;
        uint16_t code = (uint16_t)(random_bits() & ((1u << f->bits) - 1));
        if (!isfinite(mma_widen(type, code))) continue;
        if (spread && fabsf(mma_widen(type, code)) > 0 && fabs(log2(fabs((double)mma_widen(type, code)))) > spread)
            continue;
        return code;
    }
}

static void check_floats(mma_float_form f, int k, int spread)
{
    enum { M = 5, N = 19 };
    uint32_t a[M * 64], b[N * 64];
    uint8_t sa[M * 4], sb[N * 4];
    float d[M * N], c[M * N];
    for (int i = 0; i < M * k; i++) a[i] = random_code(f.a, spread);
    for (int i = 0; i < N * k; i++) b[i] = random_code(f.b, spread);
    for (int i = 0; i < M * 4; i++)
        sa[i] = (uint8_t)(f.scale == MMA_UE8M0 ? 117 + random_bits() % 20 : random_bits() % 127);
    for (int i = 0; i < N * 4; i++)
        sb[i] = (uint8_t)(f.scale == MMA_UE8M0 ? 117 + random_bits() % 20 : random_bits() % 127);
    for (int i = 0; i < M * N; i++) {
        c[i] = ldexpf((float)(int32_t)(random_bits() - 0x40000000u), (int)(random_bits() % 40) - 50);
        if (i % 7 == 0) c[i] = 0;
        if (f.half) c[i] = mma_widen(MMA_F16, mma_half_bits(c[i]));
        d[i] = c[i];
    }
    int blocks = f.scale == MMA_SCALE_NONE ? 0 : k / f.block;
    mma_float(&f, M, N, k, a, b, sa, sb, d);
    for (int i = 0; i < M; i++) {
        for (int j = 0; j < N; j++) {
            float model = model_sum(&f, k, a + i * k, b + j * k, sa + i * blocks, sb + j * blocks, c[i * N + j]);
            if (f.model != MMA_FAST) {
                assert_memory_equal(&d[i * N + j], &model, sizeof model);
                continue;
            }
            long double exact = (long double)c[i * N + j], size = fabsl(exact);
            for (int x = 0; x < k; x++) {
                long double p = (long double)mma_widen(f.a, a[i * k + x]) * (long double)mma_widen(f.b, b[j * k + x]) *
                                (long double)(scale_of(&f, sa + i * blocks, x) * scale_of(&f, sb + j * blocks, x));
                exact += p;
                size += fabsl(p);
            }
            long double off = fabsl((long double)d[i * N + j] - exact);
            if (isfinite(d[i * N + j])) assert_true(off <= size * (f.half ? 0x1p-10L : 0x1p-18L) + 0x1p-24L);
        }
    }
}

static void check_models(mma_type a, mma_type b, int k, mma_scale scale, int block)
{
    for (int run = 0; run < 30; run++) {
        for (int half = 0; half < (scale == MMA_SCALE_NONE && a != MMA_BF16 ? 2 : 1); half++) {
            int spread = run % 3 == 0 ? 0 : 6;
            if (a == MMA_BF16) spread = 20;
            check_floats((mma_float_form){MMA_BLACKWELL, a, b, half, scale, block}, k, spread);
            check_floats((mma_float_form){MMA_FAST, a, b, half, scale, block}, k, spread ? spread : 10);
            if (scale == MMA_SCALE_NONE)
                check_floats((mma_float_form){MMA_HOPPER, a, b, half, scale, block}, k, spread);
        }
    }
}

static void float_products_are_summed_as_the_hardware_sums_them(void **unused)
{
    (void)unused;
    check_models(MMA_F16, MMA_F16, 16, MMA_SCALE_NONE, 0);
    check_models(MMA_BF16, MMA_BF16, 16, MMA_SCALE_NONE, 0);
    for (size_t x = 2; x < FORMATS; x++)
        for (size_t y = 2; y < FORMATS; y++) {
            check_models(formats[x].type, formats[y].type, 32, MMA_SCALE_NONE, 0);
            check_models(formats[x].type, formats[y].type, 32, MMA_UE8M0, 32);
        }
    check_models(MMA_E2M1, MMA_E2M1, 64, MMA_UE8M0, 32);
    check_models(MMA_E2M1, MMA_E2M1, 64, MMA_UE8M0, 16);
    check_models(MMA_E2M1, MMA_E2M1, 64, MMA_UE4M3, 16);
}

static float one_sum(mma_model model, mma_type type, int k, const uint32_t *a, const uint32_t *b, float c)
{
    mma_float_form f = {model, type, type, false, MMA_SCALE_NONE, 0};
    mma_float(&f, 1, 1, k, a, b, NULL, NULL, &c);
    return c;
}

static void hopper_sums_of_fp8_lose_what_lies_13_bits_below_the_largest(void **unused)
{
    (void)unused;
    uint32_t a[32] = {0x38 /* 1 */}, b[32] = {0x38};
    assert_true(one_sum(MMA_HOPPER, MMA_E4M3, 32, a, b, 0x1p-13f) == 1 + 0x1p-13f);
    assert_true(one_sum(MMA_HOPPER, MMA_E4M3, 32, a, b, 0x1p-14f) == 1);
    assert_true(one_sum(MMA_BLACKWELL, MMA_E4M3, 32, a, b, 0x1p-14f) == 1 + 0x1p-14f);
    uint32_t minus[32] = {0xb8}; /* towards zero, on either side of it */
    assert_true(one_sum(MMA_HOPPER, MMA_E4M3, 32, minus, b, -0x1.8p-13f) == -1 - 0x1p-13f);
}

static void nan_and_infinity_come_out_as_the_hardware_writes_them(void **unused)
{
    (void)unused;
    uint32_t one[16] = {0x3c00}, infinite[16] = {0x7c00}, zero[16] = {0}, nan[16] = {0xfe00};
    for (int model = MMA_HOPPER; model <= MMA_BLACKWELL; model++) {
        assert_true(one_sum((mma_model)model, MMA_F16, 16, one, infinite, 5) == INFINITY);
        float sums[] = {one_sum((mma_model)model, MMA_F16, 16, zero, infinite, 5),
                        one_sum((mma_model)model, MMA_F16, 16, one, nan, 5),
                        one_sum((mma_model)model, MMA_F16, 16, one, infinite, -INFINITY)};
        for (int x = 0; x < 3; x++) {
            uint32_t bits;
            memcpy(&bits, &sums[x], sizeof bits);
            assert_int_equal(bits, 0x7fffffff);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integer_products_are_exact_and_wrap_or_saturate),
        cmocka_unit_test(every_code_widens_to_the_value_its_format_gives_it),
        cmocka_unit_test(rounding_to_f16_takes_the_nearest_and_of_two_the_even),
        cmocka_unit_test(float_products_are_summed_as_the_hardware_sums_them),
        cmocka_unit_test(hopper_sums_of_fp8_lose_what_lies_13_bits_below_the_largest),
        cmocka_unit_test(nan_and_infinity_come_out_as_the_hardware_writes_them),
    };
    return cmocka_run_group_tests_name("emulator_tensor", tests, start, NULL);
}
