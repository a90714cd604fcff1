/* Float arithmetic of f32, and of f16, bf16 and pairs of them. Every result is the correctly rounded one; the
 * approximate instructions allow more error, which is said at each. What an operation makes of NaN is the canonical
 * NaN, as on the GPU. */
#include <math.h>

#include "numbers.h"
#include "scalar.h"

static bool is_nan32(uint32_t bits)
{
    return (bits & 0x7fffffff) > 0x7f800000;
}

/* ---- Sources and results of f32 ---- */

static const uint32_t *read_floats(warp *w, const instruction *i, int place, lanes32 *room, uint32_t *defined)
{
    const uint32_t *v = warp_read32(w, &i->operand[place], room, defined);
    if (!i->mods.ftz) return v;
    for (int l = 0; l < LANES; l++) room->v[l] = f32_flush(v[l]);
    return room->v;
}

static uint32_t saturate_f32(uint32_t bits)
{
    if (is_nan32(bits) || bits >> 31) return 0;
    return bits > 0x3f800000 ? 0x3f800000 : bits;
}

/* NaN, .ftz and .sat of results; writes them. */
static void write_floats(warp *w, const instruction *i, lanes32 *d, uint32_t defined)
{
    for (int l = 0; l < LANES; l++) d->v[l] = f32_canonical(d->v[l]);
    if (i->mods.ftz)
        for (int l = 0; l < LANES; l++) d->v[l] = f32_flush(d->v[l]);
    if (i->mods.saturate)
        for (int l = 0; l < LANES; l++) d->v[l] = saturate_f32(d->v[l]);
    warp_write32(w, &i->operand[0], d->v, defined);
}

#define FLOAT_UNARY(expression)                                                                                        \
    do {                                                                                                               \
        lanes32 room, d;                                                                                               \
        uint32_t defined;                                                                                              \
        const uint32_t *a = read_floats(w, i, 1, &room, &defined);                                                     \
        for (int l = 0; l < LANES; l++) {                                                                              \
            const float x = f32_value(a[l]);                                                                           \
            d.v[l] = f32_bits(expression);                                                                             \
        }                                                                                                              \
        write_floats(w, i, &d, defined);                                                                               \
    } while (0)

#define FLOAT_BINARY(expression)                                                                                       \
    do {                                                                                                               \
        lanes32 room[2], d;                                                                                            \
        uint32_t defined[2];                                                                                           \
        const uint32_t *a = read_floats(w, i, 1, &room[0], &defined[0]);                                               \
        const uint32_t *b = read_floats(w, i, 2, &room[1], &defined[1]);                                               \
        for (int l = 0; l < LANES; l++) {                                                                              \
            const float x = f32_value(a[l]), y = f32_value(b[l]);                                                      \
            d.v[l] = f32_bits(expression);                                                                             \
        }                                                                                                              \
        write_floats(w, i, &d, defined[0] & defined[1]);                                                               \
    } while (0)

/* ---- Any format, any rounding: in double, rounded to odd, then to the format ---- */

typedef double (*odd_operation)(double x, double y, double z);

static double odd_add(double x, double y, double z)
{
    return (void)z, odd_sum(x, y);
}
static double odd_subtract(double x, double y, double z)
{
    return (void)z, odd_sum(x, -y);
}
static double odd_multiply(double x, double y, double z)
{
    return (void)z, x * y;
}
static double odd_divide(double x, double y, double z)
{
    return (void)z, odd_quotient(x, y);
}
static double odd_reciprocal(double x, double y, double z)
{
    return (void)y, (void)z, odd_quotient(1, x);
}
static double odd_square_root(double x, double y, double z)
{
    return (void)y, (void)z, odd_root(x);
}

/* Is the exact zero x + y one of opposite signs? Then rounding down makes it -0. */
static bool cancels(double x, double y)
{
    return (x != 0 || y != 0 || signbit(x) != signbit(y)) && x + y == 0;
}

static uint32_t compute(const number_format *f, odd_operation operation, const double *v, emulator_rounding rounding)
{
    const double d = operation(v[0], v[1], v[2]);
    if (d == 0 && rounding == ROUND_RM) {
        const double x = operation == odd_fma ? v[0] * v[1] : v[0];
        const double y = operation == odd_fma ? v[2] : operation == odd_subtract ? -v[1] : v[1];
        const bool sum = operation == odd_fma || operation == odd_add || operation == odd_subtract;
        if (sum && cancels(x, y)) return number_round(f, -0.0, rounding, false);
    }
    return number_round(f, d, rounding, false);
}

/* .relu, .sat and .ftz of a half; .sat makes NaN 0, .relu keeps it. */
static uint32_t finish_half(const instruction *i, const number_format *f, uint32_t bits)
{
    const uint32_t sign = 1u << (f->exponent_bits + f->mantissa_bits);
    const double x = number_widen(f, bits);
    if (i->mods.extra & EXTRA_RELU && x <= 0) return 0;
    if (i->mods.saturate && !(x > 0)) return 0;
    if (i->mods.saturate && x > 1) return number_round(f, 1, ROUND_RN, false);
    return i->mods.ftz ? number_flush(f, bits & ~sign) | (bits & sign) : bits;
}

static void compute_lanes(warp *w, const instruction *i, odd_operation operation, int sources)
{
    const emulator_type type = i->mods.type[0];
    const number_format *f = number_format_of(type);
    const int width = 1 + f->exponent_bits + f->mantissa_bits, parts = 8 * type_bytes(type) / width;
    const emulator_rounding rounding = i->mods.rounding == ROUND_NONE ? ROUND_RN : (emulator_rounding)i->mods.rounding;
    const uint32_t mask = UINT32_MAX >> (32 - width);
    lanes32 room[3], d;
    const uint32_t *source[3] = {NULL};
    uint32_t defined = UINT32_MAX;
    for (int s = 0; s < sources; s++) {
        uint32_t source_defined;
        source[s] = type == TYPE_F32 ? read_floats(w, i, 1 + s, &room[s], &source_defined)
                                     : read_lanes32(w, &i->operand[1 + s], type, &room[s], &source_defined);
        defined &= source_defined;
    }
    for (int l = 0; l < LANES; l++) {
        d.v[l] = 0;
        if (!(w->active & lane_bits[l])) continue;
        for (int part = 0; part < parts; part++) {
            double v[3] = {0};
            for (int s = 0; s < sources; s++) {
                const uint32_t bits = source[s][l] >> (part * width) & mask;
                v[s] = number_widen(f, i->mods.ftz ? number_flush(f, bits) : bits);
            }
            uint32_t result = compute(f, operation, v, rounding);
            if (type != TYPE_F32) result = finish_half(i, f, result);
            d.v[l] |= result << (part * width);
        }
    }
    if (type == TYPE_F32)
        write_floats(w, i, &d, defined);
    else
        write_lanes32(w, &i->operand[0], type, d.v, defined);
}

static bool is_plain_f32(const instruction *i)
{
    return i->mods.type[0] == TYPE_F32 && (i->mods.rounding == ROUND_NONE || i->mods.rounding == ROUND_RN);
}

/* ---- Sums and products ---- */

void exec_add_float(warp *w, const instruction *i)
{
    if (is_plain_f32(i))
        FLOAT_BINARY(x + y);
    else
        compute_lanes(w, i, odd_add, 2);
}

void exec_sub_float(warp *w, const instruction *i)
{
    if (is_plain_f32(i))
        FLOAT_BINARY(x - y);
    else
        compute_lanes(w, i, odd_subtract, 2);
}

void exec_mul_float(warp *w, const instruction *i)
{
    if (is_plain_f32(i))
        FLOAT_BINARY(x * y);
    else
        compute_lanes(w, i, odd_multiply, 2);
}

/* fmaf is a call, except where the instruction exists; then 8 lanes go at a time. */
static void fma_portable(const uint32_t *a, const uint32_t *b, const uint32_t *c, uint32_t *d)
{
    for (int l = 0; l < LANES; l++) d[l] = f32_bits(fmaf(f32_value(a[l]), f32_value(b[l]), f32_value(c[l])));
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static void fma_vector(const uint32_t *a, const uint32_t *b, const uint32_t *c,
                                                           uint32_t *restrict d)
{
    for (int l = 0; l < LANES; l++) d[l] = f32_bits(__builtin_fmaf(f32_value(a[l]), f32_value(b[l]), f32_value(c[l])));
}

static void fma_lanes(const uint32_t *a, const uint32_t *b, const uint32_t *c, uint32_t *d)
{
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        fma_vector(a, b, c, d);
    else
        fma_portable(a, b, c, d);
}
#else
static void fma_lanes(const uint32_t *a, const uint32_t *b, const uint32_t *c, uint32_t *d)
{
    fma_portable(a, b, c, d);
}
#endif

void exec_fma_float(warp *w, const instruction *i)
{
    if (!is_plain_f32(i)) {
        compute_lanes(w, i, odd_fma, 3);
        return;
    }
    lanes32 room[3], d;
    uint32_t defined[3];
    const uint32_t *a = read_floats(w, i, 1, &room[0], &defined[0]);
    const uint32_t *b = read_floats(w, i, 2, &room[1], &defined[1]);
    const uint32_t *c = read_floats(w, i, 3, &room[2], &defined[2]);
    fma_lanes(a, b, c, d.v);
    write_floats(w, i, &d, defined[0] & defined[1] & defined[2]);
}

/* ---- Quotients and roots ---- */

/* div.approx and div.full may be 2 ulp off; beyond 2^126 the former multiplies by a reciprocal that is 0. */
static float divide_approx(float x, float y)
{
    const float magnitude = fabsf(y);
    if (magnitude > 0x1p126f && magnitude <= 0x1.fffffep127f) return isinf(x) ? NAN : copysignf(0, x) * copysignf(1, y);
    return x / y;
}

void exec_div_float(warp *w, const instruction *i)
{
    if (i->mods.approx)
        FLOAT_BINARY(divide_approx(x, y));
    else if (is_plain_f32(i))
        FLOAT_BINARY(x / y);
    else
        compute_lanes(w, i, odd_divide, 2);
}

/* rcp.approx may be 1 ulp off. */
void exec_rcp(warp *w, const instruction *i)
{
    if (is_plain_f32(i))
        FLOAT_UNARY(1 / x);
    else
        compute_lanes(w, i, odd_reciprocal, 1);
}

/* sqrt.approx may have a relative error of 2^-23. */
void exec_sqrt(warp *w, const instruction *i)
{
    if (is_plain_f32(i))
        FLOAT_UNARY(sqrtf(x));
    else
        compute_lanes(w, i, odd_square_root, 1);
}

/* ---- Exponentials ---- */

/* 2^x for lanes at once: 2^f by its Taylor series, exact to 50 bits for |f| <= 1/2, times 2^k. One rounding to float
 * follows, also for subnormal results. */
static void exponentials(const uint32_t *a, uint32_t *d)
{
    static const double c[] = {1.0,
                               0x1.62e42fefa39efp-1,
                               0x1.ebfbdff82c58fp-3,
                               0x1.c6b08d704a0c0p-5,
                               0x1.3b2ab6fba4e77p-7,
                               0x1.5d87fe78a6731p-10,
                               0x1.430912f86c787p-13,
                               0x1.ffcbfc588b0c7p-17,
                               0x1.62c0223a5c824p-20,
                               0x1.b5253d395e7c4p-24,
                               0x1.e4cf5158b8ecap-28,
                               0x1.e8cac7351bb25p-32};
    const double to_integer = 0x1.8p52;
    for (int l = 0; l < LANES; l++) {
        double x = f32_value(a[l]);
        x = x < -200 ? -200 : x > 200 ? 200 : x;
        const double shifted = x + to_integer, f = x - (shifted - to_integer);
        union {
            double d;
            uint64_t u;
        } whole = {.d = shifted}, scale;
        scale.u = (whole.u + 1023) << 52;
        /* Written out: a loop in the loop would keep it from being vectorised. */
        const double high = ((((c[11] * f + c[10]) * f + c[9]) * f + c[8]) * f + c[7]) * f + c[6];
        const double sum = (((((high * f + c[5]) * f + c[4]) * f + c[3]) * f + c[2]) * f + c[1]) * f + c[0];
        d[l] = f32_bits((float)(sum * scale.d));
    }
    for (int l = 0; l < LANES; l++) d[l] = is_nan32(a[l]) ? (uint32_t)F32_NAN : d[l];
}

/* The ISA allows ex2.approx an error of 2 ulp (2^-22.5 relatively). With .ftz subnormal sources and results are 0;
 * without, they count. */
void exec_ex2(warp *w, const instruction *i)
{
    lanes32 room, d;
    uint32_t defined;
    exponentials(read_floats(w, i, 1, &room, &defined), d.v);
    write_floats(w, i, &d, defined);
}

/* lg2.approx may have an absolute error of 2^-22 between 1/2 and 2, the same relatively elsewhere. */
void exec_lg2(warp *w, const instruction *i)
{
    FLOAT_UNARY((float)log2((double)x));
}

/* ---- Minima and maxima: a NaN loses, or wins with .NaN; -0 is less than +0 ---- */

/* Orders the bits of f32 as integers. */
static int32_t ordered(uint32_t bits)
{
    return (int32_t)(bits ^ ((uint32_t)((int32_t)bits >> 31) >> 1));
}

static void select_floats(const uint32_t *a, const uint32_t *b, bool largest, bool nan_wins, uint32_t *d)
{
    for (int l = 0; l < LANES; l++) {
        const uint32_t x = a[l], y = b[l];
        const bool first = largest ? ordered(x) > ordered(y) : ordered(x) < ordered(y);
        const uint32_t chosen = first ? x : y;
        const bool x_nan = is_nan32(x), y_nan = is_nan32(y);
        const uint32_t other = x_nan ? y : y_nan ? x : chosen;
        d[l] = nan_wins && (x_nan || y_nan) ? (uint32_t)F32_NAN : other;
    }
}

/* f16 and bf16: as f32, which holds their values. */
static uint32_t select_half(const number_format *f, uint32_t x, uint32_t y, bool largest, bool nan_wins)
{
    const double a = number_widen(f, x), b = number_widen(f, y);
    if (isnan(a) || isnan(b)) return nan_wins || (isnan(a) && isnan(b)) ? f->nan : isnan(a) ? y : x;
    if (a == b) return largest == (signbit(a) != 0) ? y : x; /* of zeros of both signs the right one */
    return (a < b) != largest ? x : y;
}

static uint32_t flush_halves(const number_format *f, uint32_t pair)
{
    return number_flush(f, pair & 0xffff) | number_flush(f, pair >> 16) << 16;
}

static void select_lanes(warp *w, const instruction *i, bool largest)
{
    const emulator_type type = i->mods.type[0];
    const bool nan_wins = (i->mods.extra & EXTRA_NAN) != 0;
    lanes32 room[2], d;
    uint32_t defined[2];
    if (type == TYPE_F32) {
        const uint32_t *a = read_floats(w, i, 1, &room[0], &defined[0]);
        const uint32_t *b = read_floats(w, i, 2, &room[1], &defined[1]);
        select_floats(a, b, largest, nan_wins, d.v);
        write_floats(w, i, &d, defined[0] & defined[1]);
        return;
    }
    const number_format *f = number_format_of(type);
    const uint32_t *a = read_lanes32(w, &i->operand[1], type, &room[0], &defined[0]);
    const uint32_t *b = read_lanes32(w, &i->operand[2], type, &room[1], &defined[1]);
    for (int l = 0; l < LANES; l++) {
        const uint32_t x = i->mods.ftz ? flush_halves(f, a[l]) : a[l], y = i->mods.ftz ? flush_halves(f, b[l]) : b[l];
        d.v[l] = select_half(f, x & 0xffff, y & 0xffff, largest, nan_wins);
        if (type_bytes(type) == 4) d.v[l] |= select_half(f, x >> 16, y >> 16, largest, nan_wins) << 16;
    }
    write_lanes32(w, &i->operand[0], type, d.v, defined[0] & defined[1]);
}

void exec_min_float(warp *w, const instruction *i)
{
    select_lanes(w, i, false);
}
void exec_max_float(warp *w, const instruction *i)
{
    select_lanes(w, i, true);
}

/* ---- Signs ---- */

static void change_sign(warp *w, const instruction *i, bool clear)
{
    const emulator_type type = i->mods.type[0];
    const uint32_t sign = type == TYPE_F32 ? 0x80000000 : 0x80008000;
    lanes32 room, d;
    uint32_t defined;
    const uint32_t *a = type == TYPE_F32 ? read_floats(w, i, 1, &room, &defined)
                                         : read_lanes32(w, &i->operand[1], type, &room, &defined);
    if (i->mods.ftz && type != TYPE_F32) {
        for (int l = 0; l < LANES; l++) room.v[l] = flush_halves(number_format_of(type), a[l]);
        a = room.v;
    }
    if (clear)
        for (int l = 0; l < LANES; l++) d.v[l] = a[l] & ~sign;
    else
        for (int l = 0; l < LANES; l++) d.v[l] = a[l] ^ sign;
    write_lanes32(w, &i->operand[0], type, d.v, defined);
}

void exec_abs_float(warp *w, const instruction *i)
{
    change_sign(w, i, true);
}
void exec_neg_float(warp *w, const instruction *i)
{
    change_sign(w, i, false);
}

/* ---- Comparisons ---- */

static uint32_t compare_floats(int compare, const float *a, const float *b)
{
    uint32_t holds = 0;
    switch (compare) {
    case COMPARE_EQ:
        COMPARE_LANES(holds, float, a, b, x == y);
        break;
    case COMPARE_NE:
        COMPARE_LANES(holds, float, a, b, x<y || x> y);
        break;
    case COMPARE_LT:
        COMPARE_LANES(holds, float, a, b, x < y);
        break;
    case COMPARE_LE:
        COMPARE_LANES(holds, float, a, b, x <= y);
        break;
    case COMPARE_GT:
        COMPARE_LANES(holds, float, a, b, x > y);
        break;
    case COMPARE_GE:
        COMPARE_LANES(holds, float, a, b, x >= y);
        break;
    case COMPARE_EQU:
        COMPARE_LANES(holds, float, a, b, !(x < y || x > y));
        break;
    case COMPARE_NEU:
        COMPARE_LANES(holds, float, a, b, x != y);
        break;
    case COMPARE_LTU:
        COMPARE_LANES(holds, float, a, b, !(x >= y));
        break;
    case COMPARE_LEU:
        COMPARE_LANES(holds, float, a, b, !(x > y));
        break;
    case COMPARE_GTU:
        COMPARE_LANES(holds, float, a, b, !(x <= y));
        break;
    case COMPARE_GEU:
        COMPARE_LANES(holds, float, a, b, !(x < y));
        break;
    case COMPARE_NUM:
        COMPARE_LANES(holds, float, a, b, x == x && y == y);
        break;
    case COMPARE_NAN:
        COMPARE_LANES(holds, float, a, b, x != x || y != y);
        break;
    default:
        break;
    }
    return holds;
}

void exec_setp_float(warp *w, const instruction *i)
{
    const emulator_type type = i->mods.type[0];
    float v[2][LANES];
    uint32_t defined[2];
    for (int s = 0; s < 2; s++) {
        lanes32 room;
        if (type == TYPE_F32) {
            const uint32_t *bits = read_floats(w, i, SETP_A + s, &room, &defined[s]);
            memcpy(v[s], bits, sizeof v[s]);
        } else {
            const uint32_t *bits = read_lanes32(w, &i->operand[SETP_A + s], type, &room, &defined[s]);
            for (int l = 0; l < LANES; l++) v[s][l] = (float)number_widen(number_format_of(type), bits[l]);
        }
    }
    write_comparison(w, i, compare_floats(i->mods.compare, v[0], v[1]), defined[0] & defined[1]);
}
