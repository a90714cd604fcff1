/* cvt: between integers, floats and packed pairs. What kernels use most has a loop that vectorises; everything else
 * goes lane by lane through exact doubles (numbers.h). */
#include <math.h>

#include "numbers.h"
#include "scalar.h"

static emulator_rounding rounding_of(const instruction *i)
{
    return i->mods.rounding == ROUND_NONE ? ROUND_RN : (emulator_rounding)i->mods.rounding;
}

static bool rounds_to_integer(const instruction *i)
{
    return i->mods.rounding >= ROUND_RNI;
}

/* ---- Integer to integer ---- */

/* .sat: to the range of the destination. v is extended as the source's type says. */
static uint64_t saturate_integer(uint64_t v, emulator_type to, emulator_type from)
{
    const uint64_t largest = number_largest_integer(to);
    if (type_is_signed(from) && (int64_t)v < 0) {
        if (!type_is_signed(to)) return 0;
        const int64_t smallest = -(int64_t)largest - 1;
        return (int64_t)v < smallest ? (uint64_t)smallest : v;
    }
    return v > largest ? largest : v;
}

static void convert_integers(warp *w, const instruction *i)
{
    const emulator_type to = i->mods.type[0], from = i->mods.type[1];
    lanes64 room, d;
    uint32_t defined;
    const uint64_t *a = read_lanes64(w, &i->operand[1], from, &room, &defined);
    if (!i->mods.saturate) {
        write_lanes64(w, &i->operand[0], to, a, defined);
        return;
    }
    for (int l = 0; l < LANES; l++) d.v[l] = saturate_integer(a[l], to, from);
    write_lanes64(w, &i->operand[0], to, d.v, defined);
}

/* ---- Between floats and integers ---- */

static uint32_t saturate_unit(uint32_t bits, const number_format *f)
{
    const double x = number_widen(f, bits);
    if (!(x > 0)) return 0; /* NaN too */
    return x > 1 ? number_round(f, 1, ROUND_RN, false) : bits;
}

static double integer_value(uint64_t v, emulator_type from)
{
    if (type_is_signed(from) && (int64_t)v < 0) return -odd_from_u64(-v);
    return odd_from_u64(v);
}

static void integer_to_float(warp *w, const instruction *i)
{
    const emulator_type to = i->mods.type[0], from = i->mods.type[1];
    const number_format *f = number_format_of(to);
    lanes64 room;
    lanes32 d;
    uint32_t defined;
    const uint64_t *a = read_lanes64(w, &i->operand[1], from, &room, &defined);
    for (int l = 0; l < LANES; l++) {
        d.v[l] = number_round(f, integer_value(a[l], from), rounding_of(i), false);
        if (i->mods.saturate) d.v[l] = saturate_unit(d.v[l], f);
    }
    write_lanes32(w, &i->operand[0], to, d.v, defined);
}

static double float_source(const instruction *i, uint32_t bits)
{
    const emulator_type from = i->mods.type[1];
    return number_widen(number_format_of(from), i->mods.ftz && from == TYPE_F32 ? f32_flush(bits) : bits);
}

static void floats_to_integers(warp *w, const instruction *i)
{
    const emulator_type to = i->mods.type[0];
    lanes32 room;
    lanes64 d;
    uint32_t defined;
    const uint32_t *a = read_lanes32(w, &i->operand[1], i->mods.type[1], &room, &defined);
    for (int l = 0; l < LANES; l++) d.v[l] = number_to_integer(float_source(i, a[l]), to, rounding_of(i));
    write_lanes64(w, &i->operand[0], to, d.v, defined);
}

/* ---- Float to float ---- */

/* max(x, 0), which keeps NaN and has no -0. */
static double relu(double x)
{
    return x <= 0 ? 0.0 : x;
}

static uint32_t round_float(const instruction *i, const number_format *f, double x)
{
    if (i->mods.extra & EXTRA_RELU) x = relu(x);
    if (rounds_to_integer(i)) x = number_round_integer(x, rounding_of(i));
    return number_round(f, x, rounds_to_integer(i) ? ROUND_RN : rounding_of(i), i->mods.finite);
}

static void float_to_float(warp *w, const instruction *i)
{
    const emulator_type to = i->mods.type[0];
    const number_format *f = number_format_of(to);
    lanes32 room, d;
    uint32_t defined;
    const uint32_t *a = read_lanes32(w, &i->operand[1], i->mods.type[1], &room, &defined);
    for (int l = 0; l < LANES; l++) {
        uint32_t bits = round_float(i, f, float_source(i, a[l]));
        if (i->mods.saturate) bits = saturate_unit(bits, f);
        if (i->mods.ftz && to == TYPE_F32) bits = f32_flush(bits);
        d.v[l] = to == TYPE_TF32 ? bits << 13 : bits;
    }
    write_lanes32(w, &i->operand[0], to, d.v, defined);
}

/* ---- Pairs ---- */

static bool is_pair(emulator_type type)
{
    return type == TYPE_F16X2 || type == TYPE_BF16X2 || type == TYPE_E4M3X2 || type == TYPE_E5M2X2 ||
           type == TYPE_E2M1X2;
}

static int format_bits(const number_format *f)
{
    return 1 + f->exponent_bits + f->mantissa_bits;
}

/* The first source is the upper half. */
static void floats_to_pair(warp *w, const instruction *i)
{
    const emulator_type to = i->mods.type[0];
    const number_format *f = number_format_of(to);
    lanes32 room[2], d;
    uint32_t defined[2];
    const uint32_t *upper = read_lanes32(w, &i->operand[1], TYPE_F32, &room[0], &defined[0]);
    const uint32_t *lower = read_lanes32(w, &i->operand[2], TYPE_F32, &room[1], &defined[1]);
    for (int l = 0; l < LANES; l++) {
        d.v[l] = round_float(i, f, f32_value(upper[l])) << format_bits(f) | round_float(i, f, f32_value(lower[l]));
    }
    write_lanes32(w, &i->operand[0], to, d.v, defined[0] & defined[1]);
}

static void pair_to_pair(warp *w, const instruction *i)
{
    const emulator_type to = i->mods.type[0], from = i->mods.type[1];
    const number_format *f = number_format_of(to), *source = number_format_of(from);
    const int bits = format_bits(source);
    lanes32 room, d;
    uint32_t defined;
    const uint32_t *a = read_lanes32(w, &i->operand[1], from, &room, &defined);
    for (int l = 0; l < LANES; l++) {
        const double upper = number_widen(source, a[l] >> bits & ((1u << bits) - 1));
        const double lower = number_widen(source, a[l] & ((1u << bits) - 1));
        d.v[l] = round_float(i, f, upper) << format_bits(f) | round_float(i, f, lower);
    }
    write_lanes32(w, &i->operand[0], to, d.v, defined);
}

/* ---- Loops that vectorise ---- */

static uint32_t f16_to_f32(uint32_t h)
{
    const uint32_t magnitude = h & 0x7fff, sign = (h & 0x8000) << 16;
    const uint32_t bits = f32_bits(f32_value(magnitude << 13) * 0x1p112f); /* the exponent's bias; subnormals too */
    const uint32_t special = magnitude == 0x7c00 ? sign | 0x7f800000 : (uint32_t)F32_NAN;
    return magnitude >= 0x7c00 ? special : sign | bits;
}

/* To nearest even. */
static uint32_t f32_to_f16(uint32_t bits)
{
    const uint32_t magnitude = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
    const uint32_t normal = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
    /* The last place of 1/2 is that of the subnormals of f16: the sum rounds to it. */
    const uint32_t subnormal = f32_bits(f32_value(magnitude) + 0.5f) - 0x3f000000;
    const uint32_t finite = magnitude < 0x38800000 ? subnormal : normal;
    const uint32_t any = magnitude >= 0x477ff000 ? 0x7c00 : finite;
    return magnitude > 0x7f800000 ? 0x7fff : sign | any;
}

static uint32_t f32_to_bf16(uint32_t bits)
{
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (bits & 0x7fffffff) > 0x7f800000 ? 0x7fff : rounded;
}

/* To the nearest even integer: the sum with 1.5 2^52 has its last place at 1. */
static uint32_t f32_to_s32(uint32_t bits)
{
    double x = f32_value(bits);
    x = x < -0x1p31 ? -0x1p31 : x > 0x1.fffffffcp30 ? 0x1.fffffffcp30 : x;
    union {
        double d;
        uint64_t u;
    } sum = {.d = x + 0x1.8p52};
    return (bits & 0x7fffffff) > 0x7f800000 ? 0 : (uint32_t)sum.u;
}

#define CONVERT_LANES(expression)                                                                                      \
    do {                                                                                                               \
        lanes32 room, d;                                                                                               \
        uint32_t defined;                                                                                              \
        const uint32_t *a = read_lanes32(w, &i->operand[1], from, &room, &defined);                                    \
        for (int l = 0; l < LANES; l++) {                                                                              \
            const uint32_t x = a[l];                                                                                   \
            d.v[l] = (expression);                                                                                     \
        }                                                                                                              \
        write_lanes32(w, &i->operand[0], to, d.v, defined);                                                            \
    } while (0)

#define CONVERT_PAIRS(convert)                                                                                         \
    do {                                                                                                               \
        lanes32 room[2], d;                                                                                            \
        uint32_t defined[2];                                                                                           \
        const uint32_t *a = warp_read32(w, &i->operand[1], &room[0], &defined[0]);                                     \
        const uint32_t *b = warp_read32(w, &i->operand[2], &room[1], &defined[1]);                                     \
        for (int l = 0; l < LANES; l++) d.v[l] = convert(a[l]) << 16 | convert(b[l]);                                  \
        warp_write32(w, &i->operand[0], d.v, defined[0] & defined[1]);                                                 \
    } while (0)

/* False: not one of these. */
static bool convert_fast(warp *w, const instruction *i)
{
    const emulator_type to = i->mods.type[0], from = i->mods.type[1];
    const bool nearest = rounding_of(i) == ROUND_RN;
    if (i->mods.saturate || i->mods.ftz || i->mods.extra & EXTRA_RELU) return false;
    if (to == TYPE_F32 && from == TYPE_S32 && nearest)
        CONVERT_LANES(f32_bits((float)(int32_t)x));
    else if (to == TYPE_F32 && from == TYPE_F16 && nearest)
        CONVERT_LANES(f16_to_f32(x));
    else if (to == TYPE_S32 && from == TYPE_F32 && i->mods.rounding == ROUND_RNI)
        CONVERT_LANES(f32_to_s32(x));
    else if (to == TYPE_F16 && from == TYPE_F32 && nearest)
        CONVERT_LANES(f32_to_f16(x));
    else if (to == TYPE_BF16 && from == TYPE_F32 && nearest)
        CONVERT_LANES(f32_to_bf16(x));
    else if (to == TYPE_F16X2 && from == TYPE_F32 && nearest)
        CONVERT_PAIRS(f32_to_f16);
    else if (to == TYPE_BF16X2 && from == TYPE_F32 && nearest)
        CONVERT_PAIRS(f32_to_bf16);
    else
        return false;
    return true;
}

void exec_cvt(warp *w, const instruction *i)
{
    const emulator_type to = i->mods.type[0], from = i->mods.type[1];
    if (convert_fast(w, i)) return;
    if (type_is_integer(to) && type_is_integer(from))
        convert_integers(w, i);
    else if (type_is_integer(from))
        integer_to_float(w, i);
    else if (type_is_integer(to))
        floats_to_integers(w, i);
    else if (is_pair(to) && is_pair(from))
        pair_to_pair(w, i);
    else if (is_pair(to))
        floats_to_pair(w, i);
    else
        float_to_float(w, i);
}
