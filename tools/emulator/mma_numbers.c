/* The arithmetic of the tensor cores: exact integer products, and float products summed as microsoft/MMA-Sim found the
 * hardware to do it. */
#include "numbers.h"
#include "tensor.h"

#include <math.h>
#include <string.h>

/* ---- Integers ---- */

enum { PANEL = 32 }; /* of k: a constant trip count, which compilers turn into multiply-add instructions */

static void widen_codes(int rows, int k, mma_type type, const uint8_t *codes, int16_t *wide)
{
    for (int r = 0; r < rows; r++) {
        const uint8_t *from = codes + (size_t)r * (size_t)k;
        int16_t *to = wide + r * PANEL;
        if (k == PANEL && type == MMA_U8) {
            for (int i = 0; i < PANEL; i++) to[i] = from[i];
        } else if (k == PANEL) {
            for (int i = 0; i < PANEL; i++) to[i] = (int16_t)(int8_t)from[i];
        } else {
            for (int i = 0; i < PANEL; i++)
                to[i] = i >= k ? 0 : type == MMA_U8 ? (int16_t)from[i] : (int16_t)(int8_t)from[i];
        }
    }
}

static int32_t dot(const int16_t *restrict a, const int16_t *restrict b)
{
    int32_t sum = 0;
    for (int i = 0; i < PANEL; i++) sum += a[i] * b[i];
    return sum;
}

static int32_t add_saturated(int32_t a, int32_t b)
{
    int64_t sum = (int64_t)a + b;
    return sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : (int32_t)sum;
}

void mma_integer(int m, int n, int k, mma_type a_type, const uint8_t *a, mma_type b_type, const uint8_t *b, int32_t *d,
                 bool saturate)
{
    int16_t a_wide[PANEL], b_wide[MMA_N_MAX * PANEL];
    widen_codes(n, k, b_type, b, b_wide);
    for (int i = 0; i < m; i++) {
        widen_codes(1, k, a_type, a + (size_t)i * (size_t)k, a_wide);
        int32_t *row = d + (size_t)i * (size_t)n;
        for (int j = 0; j < n; j++) {
            int32_t sum = dot(a_wide, b_wide + j * PANEL);
            row[j] = saturate ? add_saturated(row[j], sum) : (int32_t)((uint32_t)row[j] + (uint32_t)sum);
        }
    }
}

/* ---- Formats ---- */

typedef struct float_format {
    int exponent_bits, fraction_bits, bias;
    bool ieee;    /* the largest exponent is for infinities and NaN */
    bool one_nan; /* all ones is NaN, nothing is infinite */
} float_format;

static const float_format formats[] = {
    [MMA_F16] = {5, 10, 15, true, false}, [MMA_BF16] = {8, 7, 127, true, false},  [MMA_E4M3] = {4, 3, 7, false, true},
    [MMA_E5M2] = {5, 2, 15, true, false}, [MMA_E2M3] = {2, 3, 1, false, false},   [MMA_E3M2] = {3, 2, 3, false, false},
    [MMA_E2M1] = {2, 1, 1, false, false}, [MMA_TF32] = {8, 10, 127, true, false},
};

/* significand 2^(exponent - fraction bits), the significand with its sign. */
typedef struct parts {
    int32_t significand;
    int exponent;
    bool finite;
} parts;

enum { EXPONENT_OF_ZERO = -126 }; /* MMA-Sim's: a zero does not push the common exponent up */

static parts split(const float_format *f, uint32_t bits)
{
    uint32_t fraction = bits & ((1u << f->fraction_bits) - 1), top = (1u << f->exponent_bits) - 1;
    uint32_t exponent = bits >> f->fraction_bits & top;
    bool negative = bits >> (f->fraction_bits + f->exponent_bits) & 1;
    if (exponent == top && (f->ieee || (f->one_nan && fraction == (1u << f->fraction_bits) - 1)))
        return (parts){0, 0, false};
    int32_t significand = (int32_t)(exponent ? fraction | 1u << f->fraction_bits : fraction);
    if (!significand) return (parts){0, EXPONENT_OF_ZERO, true};
    return (parts){negative ? -significand : significand, (exponent ? (int)exponent : 1) - f->bias, true};
}

float mma_widen(mma_type type, uint32_t bits)
{
    if (type == MMA_U8) return (float)(uint8_t)bits;
    if (type == MMA_S8) return (float)(int8_t)bits;
    const float_format *f = &formats[type];
    parts p = split(f, bits);
    bool negative = bits >> (f->fraction_bits + f->exponent_bits) & 1;
    if (p.finite) {
        float value = ldexpf((float)p.significand, p.exponent - f->fraction_bits);
        return negative && !p.significand ? -0.0f : value;
    }
    if (f->one_nan || bits & ((1u << f->fraction_bits) - 1)) return NAN;
    return negative ? -INFINITY : INFINITY;
}

float mma_widen_scale(mma_scale type, uint8_t bits)
{
    if (type == MMA_SCALE_NONE) return 1;
    if (type == MMA_UE8M0) return bits == 0xff ? NAN : ldexpf(1, bits - 127);
    return mma_widen(MMA_E4M3, bits & 0x7f);
}

static parts split_scale(mma_scale type, uint8_t bits)
{
    if (type == MMA_SCALE_NONE) return (parts){8, 0, true};
    if (type == MMA_UE8M0) return (parts){8, bits - 127, bits != 0xff};
    return split(&formats[MMA_E4M3], bits & 0x7f); /* the sign is not looked at */
}
enum { SCALE_FRACTION = 3 };

static parts split_float(float value)
{
    static const float_format f32 = {8, 23, 127, true, false};
    return split(&f32, f32_bits(value));
}

/* ---- Rounding ---- */

typedef struct rounding {
    int fraction_bits, min_exponent, max_exponent;
    bool nearest; /* ties to even; otherwise towards zero */
} rounding;

/* sum 2^scale */
static float round_sum(int64_t sum, int scale, const rounding *r)
{
    if (!sum) return 0;
    bool negative = sum < 0;
    uint64_t magnitude = negative ? -(uint64_t)sum : (uint64_t)sum;
    int exponent = 63 - __builtin_clzll(magnitude) + scale;
    int quantum = (exponent < r->min_exponent ? r->min_exponent : exponent) - r->fraction_bits;
    int drop = quantum - scale;
    if (drop > 63) {
        magnitude = 0; /* far below half a quantum: sums are below 2^62 */
    } else if (drop > 0) {
        uint64_t lost = magnitude & ((1ull << drop) - 1), half = 1ull << (drop - 1);
        magnitude >>= drop;
        if (r->nearest && (lost > half || (lost == half && magnitude & 1))) magnitude++;
        scale = quantum;
    }
    if (!magnitude) return negative ? -0.0f : 0.0f;
    exponent = 63 - __builtin_clzll(magnitude) + scale;
    if (exponent > r->max_exponent) return negative ? -INFINITY : INFINITY;
    int excess = 63 - __builtin_clzll(magnitude) - 23; /* only zeros are shifted out: at most 24 bits are left */
    uint32_t significand = (uint32_t)(excess > 0 ? magnitude >> excess : magnitude);
    float value = ldexpf((float)significand, scale + (excess > 0 ? excess : 0));
    return negative ? -value : value;
}

uint16_t mma_half_bits(float value)
{
    uint32_t bits = f32_bits(value), sign = bits >> 16 & 0x8000;
    if (isnan(value)) return 0x7fff;
    if (isinf(value)) return (uint16_t)(sign | 0x7c00);
    static const rounding half = {10, -14, 15, true};
    parts p = split_float(value);
    float rounded = fabsf(round_sum(p.significand, p.exponent - 23, &half));
    if (isinf(rounded)) return (uint16_t)(sign | 0x7c00);
    if (rounded < 0x1p-14f) return (uint16_t)(sign | (uint32_t)(rounded * 0x1p24f));
    uint32_t r = f32_bits(rounded);
    return (uint16_t)(sign | ((r >> 23) - 112) << 10 | (r >> 13 & 0x3ff));
}

/* ---- Sums ---- */

static int64_t shifted(int64_t significand, int shift) /* towards zero */
{
    if (shift >= 0) return significand * ((int64_t)1 << shift);
    if (shift < -62) return 0;
    return significand < 0 ? -(-significand >> -shift) : significand >> -shift;
}

typedef struct factor_row {
    parts element[MMA_K_MAX];
    parts scale[MMA_K_MAX / 16];
    bool finite;
} factor_row;

static void split_row(const mma_float_form *how, mma_type type, int k, const uint32_t *bits, const uint8_t *scale,
                      factor_row *row)
{
    row->finite = true;
    for (int i = 0; i < k; i++) {
        row->element[i] = split(&formats[type], bits[i]);
        row->finite &= row->element[i].finite;
    }
    for (int i = 0; how->scale != MMA_SCALE_NONE && i < k / how->block; i++) {
        row->scale[i] = split_scale(how->scale, scale[i]);
        row->finite &= row->scale[i].finite;
    }
}

/* Products and accumulator, cut off after `fraction` bits below the largest exponent among them. */
static float sum_products(const mma_float_form *how, int k, const factor_row *a, const factor_row *b, float c,
                          int fraction, const rounding *r)
{
    int bits = formats[how->a].fraction_bits + formats[how->b].fraction_bits, exponent[MMA_K_MAX];
    parts accumulator = split_float(c);
    int largest = accumulator.exponent;
    for (int i = 0; i < k; i++) {
        exponent[i] = a->element[i].exponent + b->element[i].exponent;
        if (how->scale != MMA_SCALE_NONE)
            exponent[i] += a->scale[i / how->block].exponent + b->scale[i / how->block].exponent;
        if (exponent[i] > largest) largest = exponent[i];
    }
    int64_t sum = shifted(accumulator.significand, fraction - 23 + accumulator.exponent - largest);
    for (int i = 0; i < k; i++) {
        int64_t product = (int64_t)a->element[i].significand * b->element[i].significand;
        sum += shifted(product, fraction - bits + exponent[i] - largest);
    }
    return round_sum(sum, largest - fraction, r);
}

/* Packed 4-bit products: exact sums of 16, scaled, then aligned to 35 bits. */
static float sum_blocks(const mma_float_form *how, int k, const factor_row *a, const factor_row *b, float c,
                        const rounding *r)
{
    enum { FRACTION = 35, GROUP = 16 };
    int64_t term[MMA_K_MAX / GROUP];
    int exponent[MMA_K_MAX / GROUP];
    parts accumulator = split_float(c);
    int largest = accumulator.exponent, bits = 2 * formats[MMA_E2M1].fraction_bits + 2 * SCALE_FRACTION;
    for (int g = 0; g < k / GROUP; g++) {
        const parts *sa = &a->scale[g * GROUP / how->block], *sb = &b->scale[g * GROUP / how->block];
        int32_t sum = 0; /* in units of 1/4 */
        for (int i = g * GROUP; i < (g + 1) * GROUP; i++) {
            const parts *x = &a->element[i], *y = &b->element[i];
            if (x->significand && y->significand)
                sum += x->significand * y->significand * (1 << (x->exponent + y->exponent));
        }
        term[g] = (int64_t)sum * sa->significand * sb->significand;
        exponent[g] = sa->exponent + sb->exponent;
        if (exponent[g] > largest) largest = exponent[g];
    }
    int64_t sum = shifted(accumulator.significand, FRACTION - 23 + accumulator.exponent - largest);
    for (int g = 0; g < k / GROUP; g++) sum += shifted(term[g], FRACTION - bits + exponent[g] - largest);
    return round_sum(sum, largest - FRACTION, r);
}

static float scaled_element(const mma_float_form *how, mma_type type, const uint32_t *row, const uint8_t *scale, int i)
{
    float x = mma_widen(type, row[i]);
    return how->scale == MMA_SCALE_NONE ? x : x * mma_widen_scale(how->scale, scale[i / how->block]);
}

/* Something is NaN or infinite: what IEEE sums make of it, except that NaN is one pattern. */
static float sum_special(const mma_float_form *how, int k, const uint32_t *a, const uint32_t *b, const uint8_t *a_scale,
                         const uint8_t *b_scale, float c)
{
    double sum = c;
    for (int i = 0; i < k; i++)
        sum += (double)scaled_element(how, how->a, a, a_scale, i) * scaled_element(how, how->b, b, b_scale, i);
    return isnan(sum) ? f32_value(0x7fffffff) : (float)sum;
}

static void mma_float_fast(const mma_float_form *how, int m, int n, int k, const uint32_t *a, const uint32_t *b,
                           const uint8_t *a_scale, const uint8_t *b_scale, float *d)
{
    float row[MMA_K_MAX], columns[MMA_K_MAX][MMA_N_MAX];
    int blocks = how->scale == MMA_SCALE_NONE ? 0 : k / how->block;
    for (int j = 0; j < n; j++)
        for (int i = 0; i < k; i++) columns[i][j] = scaled_element(how, how->b, b + j * k, b_scale + j * blocks, i);
    for (int r = 0; r < m; r++) {
        float *restrict sum = d + (size_t)r * (size_t)n;
        for (int i = 0; i < k; i++) row[i] = scaled_element(how, how->a, a + r * k, a_scale + r * blocks, i);
        for (int i = 0; i < k; i++)
            for (int j = 0; j < n; j++) sum[j] += row[i] * columns[i][j];
        for (int j = 0; how->half && j < n; j++) sum[j] = mma_widen(MMA_F16, mma_half_bits(sum[j]));
    }
}

void mma_float(const mma_float_form *how, int m, int n, int k, const uint32_t *a, const uint32_t *b,
               const uint8_t *a_scale, const uint8_t *b_scale, float *d)
{
    static const uint8_t none[1];
    if (how->scale == MMA_SCALE_NONE) a_scale = b_scale = none;
    if (how->model == MMA_FAST) {
        mma_float_fast(how, m, n, k, a, b, a_scale, b_scale, d);
        return;
    }
    static const rounding f16 = {10, -14, 15, true}, f32 = {23, -126, 127, false}, e8m13 = {13, -126, 127, false};
    bool short_sums = how->model == MMA_HOPPER && how->a != MMA_F16 && how->a != MMA_BF16 && how->a != MMA_TF32;
    const rounding *r = how->half ? &f16 : short_sums ? &e8m13 : &f32;
    int blocks = how->scale == MMA_SCALE_NONE ? 0 : k / how->block;
    bool packed = blocks && k == MMA_K_MAX;
    enum { COLUMNS = 16 }; /* of b, split once for all rows of a */
    factor_row row, column[COLUMNS];
    for (int j0 = 0; j0 < n; j0 += COLUMNS) {
        int columns = n - j0 < COLUMNS ? n - j0 : COLUMNS;
        for (int j = 0; j < columns; j++)
            split_row(how, how->b, k, b + (j0 + j) * k, b_scale + (j0 + j) * blocks, &column[j]);
        for (int i = 0; i < m; i++) {
            split_row(how, how->a, k, a + i * k, a_scale + i * blocks, &row);
            for (int j = 0; j < columns; j++) {
                float *sum = &d[(size_t)i * (size_t)n + (size_t)(j0 + j)];
                if (!row.finite || !column[j].finite || !isfinite(*sum))
                    *sum = sum_special(how, k, a + i * k, b + (j0 + j) * k, a_scale + i * blocks,
                                       b_scale + (j0 + j) * blocks, *sum);
                else if (packed)
                    *sum = sum_blocks(how, k, &row, &column[j], *sum, r);
                else
                    *sum = sum_products(how, k, &row, &column[j], *sum, short_sums ? 13 : 25, r);
            }
        }
    }
}
