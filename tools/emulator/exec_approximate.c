/* Approximate functions: sines, hyperbolic tangents, exponentials of halves, reciprocal roots; and tests and signs of
 * floats. Each result is the correctly rounded one or next to it, well within what the ISA allows. */
#include <math.h>

#include "numbers.h"
#include "scalar.h"

static double sine(double x)
{
    return sin(x);
}
static double cosine(double x)
{
    return cos(x);
}
static double tangent(double x)
{
    return tanh(x);
}
static double power_of_two(double x)
{
    return exp2(x);
}
static double reciprocal_root(double x)
{
    return 1 / sqrt(x);
}

/* One value of a format: .ftz flushes subnormals of f32, and of bf16, on both sides. */
static uint32_t apply(const number_format *f, uint32_t bits, double (*function)(double), bool ftz)
{
    const uint32_t exponent = ((1u << f->exponent_bits) - 1) << f->mantissa_bits;
    const uint32_t sign = 1u << (f->exponent_bits + f->mantissa_bits);
    if (ftz && (bits & exponent) == 0) bits &= sign;
    bits = number_round(f, function(number_widen(f, bits)), ROUND_RN, false);
    return ftz && (bits & exponent) == 0 ? bits & sign : bits;
}

static void apply_lanes(warp *w, const instruction *i, double (*function)(double))
{
    const emulator_type type = i->mods.type[0];
    const number_format *f = number_format_of(type);
    const int width = 1 + f->exponent_bits + f->mantissa_bits, parts = 8 * type_bytes(type) / width;
    lanes32 room, d = {{0}};
    uint32_t defined;
    const uint32_t *a = read_lanes32(w, &i->operand[1], type, &room, &defined);
    for (int l = 0; l < LANES; l++) {
        if (!(w->active & lane_bits[l])) continue;
        for (int part = 0; part < parts; part++)
            d.v[l] |= apply(f, a[l] >> (part * width) & UINT32_MAX >> (32 - width), function, i->mods.ftz)
                      << (part * width);
    }
    write_lanes32(w, &i->operand[0], type, d.v, defined);
}

void exec_sin(warp *w, const instruction *i)
{
    apply_lanes(w, i, sine);
}
void exec_cos(warp *w, const instruction *i)
{
    apply_lanes(w, i, cosine);
}
void exec_tanh(warp *w, const instruction *i)
{
    apply_lanes(w, i, tangent);
}
void exec_ex2_half(warp *w, const instruction *i)
{
    apply_lanes(w, i, power_of_two);
}
void exec_rsqrt(warp *w, const instruction *i)
{
    apply_lanes(w, i, reciprocal_root);
}

/* The sign of the first, the magnitude of the second. */
void exec_copysign(warp *w, const instruction *i)
{
    BINARY32(TYPE_B32, uint32_t, (x & 0x80000000) | (y & 0x7fffffff));
}

/* ---- testp ---- */

static bool test(int mode, uint64_t bits, int exponent_bits, int mantissa_bits)
{
    const uint64_t top = (UINT64_C(1) << exponent_bits) - 1, exponent = bits >> mantissa_bits & top;
    const uint64_t mantissa = bits & ((UINT64_C(1) << mantissa_bits) - 1);
    switch (mode) {
    case MODE_TEST_FINITE:
        return exponent != top;
    case MODE_TEST_INFINITE:
        return exponent == top && mantissa == 0;
    case MODE_TEST_NUMBER:
        return exponent != top || mantissa == 0;
    case MODE_TEST_NOTANUMBER:
        return exponent == top && mantissa != 0;
    case MODE_TEST_NORMAL:
        return exponent != top && exponent != 0;
    default:
        return exponent == 0 && mantissa != 0;
    }
}

void exec_testp(warp *w, const instruction *i)
{
    const bool wide = i->mods.type[0] == TYPE_F64;
    lanes64 room;
    uint32_t defined, holds = 0;
    const uint64_t *a = read_lanes64(w, &i->operand[1], wide ? TYPE_U64 : TYPE_U32, &room, &defined);
    for (int l = 0; l < LANES; l++)
        if (test(i->mods.mode, a[l], wide ? 11 : 8, wide ? 52 : 23)) holds |= lane_bits[l];
    warp_write_predicate(w, &i->operand[0], holds, defined);
}
