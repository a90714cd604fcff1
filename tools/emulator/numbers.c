/* Floats of every format as exact doubles, and doubles rounded to every format. */
#include "numbers.h"

#include <fenv.h>
#include <math.h>
#include <string.h>

const number_format *number_format_of(emulator_type type)
{
    static const number_format f16 = {5, 10, OVERFLOW_INFINITY, 0x7fff}, bf16 = {8, 7, OVERFLOW_INFINITY, 0x7fff},
                               f32 = {8, 23, OVERFLOW_INFINITY, F32_NAN}, tf32 = {8, 10, OVERFLOW_INFINITY, 0x3ffff},
                               e4m3 = {4, 3, OVERFLOW_NAN, 0x7f}, e5m2 = {5, 2, OVERFLOW_INFINITY, 0x7f},
                               e2m1 = {2, 1, OVERFLOW_SATURATES, 0x7};
    switch (type) {
    case TYPE_F16:
    case TYPE_F16X2:
        return &f16;
    case TYPE_BF16:
    case TYPE_BF16X2:
        return &bf16;
    case TYPE_F32:
        return &f32;
    case TYPE_TF32:
        return &tf32;
    case TYPE_E4M3:
    case TYPE_E4M3X2:
        return &e4m3;
    case TYPE_E5M2:
    case TYPE_E5M2X2:
        return &e5m2;
    case TYPE_E2M1:
    case TYPE_E2M1X2:
        return &e2m1;
    default:
        return NULL;
    }
}

uint32_t number_flush(const number_format *f, uint32_t bits)
{
    const uint32_t exponent = ((1u << f->exponent_bits) - 1) << f->mantissa_bits;
    return bits & exponent ? bits : bits & 1u << (f->exponent_bits + f->mantissa_bits);
}

static uint64_t double_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double double_value(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static int bias_of(const number_format *f)
{
    return (1 << (f->exponent_bits - 1)) - 1;
}

/* The bits, without the sign, of the largest finite value. */
static uint32_t largest(const number_format *f)
{
    const uint32_t all = (1u << (f->exponent_bits + f->mantissa_bits)) - 1;
    switch (f->overflow) {
    case OVERFLOW_INFINITY:
        return (all & ~((1u << f->mantissa_bits) - 1)) - 1;
    case OVERFLOW_NAN:
        return all - 1;
    default:
        return all;
    }
}

double number_widen(const number_format *f, uint32_t bits)
{
    const uint32_t exponent = bits >> f->mantissa_bits & ((1u << f->exponent_bits) - 1);
    const uint32_t mantissa = bits & ((1u << f->mantissa_bits) - 1);
    const bool negative = bits >> (f->exponent_bits + f->mantissa_bits) & 1;
    const uint32_t magnitude = exponent << f->mantissa_bits | mantissa;
    double x;
    if (magnitude > largest(f))
        x = f->overflow == OVERFLOW_INFINITY && mantissa == 0 ? INFINITY : (double)NAN;
    else if (exponent == 0)
        x = ldexp(mantissa, 1 - bias_of(f) - f->mantissa_bits);
    else
        x = ldexp(mantissa | 1u << f->mantissa_bits, (int)exponent - bias_of(f) - f->mantissa_bits);
    return negative ? -x : x;
}

/* Is a magnitude with these bits beyond the kept ones (of 1 << dropped) rounded away from zero? */
static bool rounds_away(uint64_t kept, uint64_t rest, int dropped, bool negative, emulator_rounding rounding)
{
    const uint64_t half = UINT64_C(1) << (dropped - 1);
    switch (rounding) {
    case ROUND_RZ:
        return false;
    case ROUND_RM:
        return negative && rest != 0;
    case ROUND_RP:
        return !negative && rest != 0;
    case ROUND_RNA:
        return rest >= half;
    default:
        return rest > half || (rest == half && (kept & 1));
    }
}

static bool overflows_to_largest(bool negative, emulator_rounding rounding)
{
    return rounding == ROUND_RZ || (rounding == ROUND_RM && !negative) || (rounding == ROUND_RP && negative);
}

uint32_t number_round(const number_format *f, double x, emulator_rounding rounding, bool finite)
{
    if (isnan(x)) return f->nan;
    const uint64_t bits = double_bits(x);
    const bool negative = bits >> 63;
    const uint32_t sign = (uint32_t)negative << (f->exponent_bits + f->mantissa_bits);
    const uint32_t overflowed = finite || f->overflow == OVERFLOW_SATURATES ? largest(f)
                                : f->overflow == OVERFLOW_NAN               ? f->nan
                                                                            : largest(f) + 1;
    if (isinf(x)) return sign | overflowed;
    const int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
    if (exponent == -1023) { /* zeros, and doubles below every format's range: only directed rounding sees them */
        const bool away = (bits << 1) != 0 && rounds_away(0, 1, 52, negative, rounding);
        return sign | (away ? 1 : 0);
    }
    const uint64_t significand = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1) << 52;
    const int lowest = 1 - bias_of(f); /* the exponent of the smallest normal value and of the subnormals */
    int dropped = 52 - f->mantissa_bits + (exponent < lowest ? lowest - exponent : 0);
    if (dropped > 62) dropped = 62; /* far below half of the smallest subnormal: still more than nothing */
    uint64_t kept = significand >> dropped;
    const uint64_t rest = significand & ((UINT64_C(1) << dropped) - 1);
    if (rounds_away(kept, rest, dropped, negative, rounding)) kept++;
    /* A carry out of the mantissa is a carry into the exponent. */
    const uint64_t magnitude = exponent < lowest ? kept : kept + ((uint64_t)(exponent - lowest) << f->mantissa_bits);
    if (magnitude > largest(f)) return sign | (overflows_to_largest(negative, rounding) ? largest(f) : overflowed);
    return sign | (uint32_t)magnitude;
}

/* The double next to x, on the side of the error, if x is even and not exact. */
static double to_odd(double x, double error)
{
    if (error == 0 || !isfinite(x)) return x;
    const uint64_t bits = double_bits(x);
    if (bits & 1) return x;
    return double_value((error > 0) == (x > 0) ? bits + 1 : bits - 1);
}

/* Knuth's sum with its exact error; sources of floats are far from overflow in double. */
double odd_sum(double a, double b)
{
    const double s = a + b, b_part = s - a, a_part = s - b_part;
    return isfinite(s) ? to_odd(s, (a - a_part) + (b - b_part)) : s;
}

double odd_fma(double a, double b, double c)
{
    return odd_sum(a * b, c); /* 24 x 24 bits: the product is exact */
}

double odd_quotient(double a, double b)
{
    const double q = a / b;
    if (!isfinite(q) || q == 0) return q;
    const double rest = fma(-q, b, a);
    return to_odd(q, b > 0 ? rest : -rest);
}

double odd_root(double a)
{
    const double r = sqrt(a);
    if (!isfinite(r) || r == 0) return r;
    return to_odd(r, fma(-r, r, a));
}

double odd_from_u64(uint64_t v)
{
    if (v >> 53 == 0) return (double)v;
    return (double)(v >> 11 | ((v & 0x7ff) != 0)) * 2048.0;
}

double number_round_integer(double x, emulator_rounding rounding)
{
    switch (rounding) {
    case ROUND_RZ:
    case ROUND_RZI:
        return trunc(x);
    case ROUND_RM:
    case ROUND_RMI:
        return floor(x);
    case ROUND_RP:
    case ROUND_RPI:
        return ceil(x);
    default:
        return rint(x);
    }
}

uint64_t number_largest_integer(emulator_type type)
{
    const bool is_signed = type == TYPE_S8 || type == TYPE_S16 || type == TYPE_S32 || type == TYPE_S64;
    return UINT64_MAX >> (64 - 8 * type_bytes(type) + (is_signed ? 1 : 0));
}

uint64_t number_to_integer(double x, emulator_type to, emulator_rounding rounding)
{
    if (isnan(x)) return type_bytes(to) == 8 ? UINT64_C(1) << 63 : 0;
    const bool is_signed = to == TYPE_S8 || to == TYPE_S16 || to == TYPE_S32 || to == TYPE_S64;
    const uint64_t most = number_largest_integer(to);
    const double rounded = number_round_integer(x, rounding);
    if (is_signed) {
        const double bound = ldexp(1, 8 * type_bytes(to) - 1);
        if (rounded >= bound) return most;
        return rounded <= -bound ? (uint64_t)(-(int64_t)most - 1) : (uint64_t)(int64_t)rounded;
    }
    if (rounded <= 0) return 0;
    return rounded >= ldexp(1, 8 * type_bytes(to)) ? most : (uint64_t)rounded;
}

int number_rounding_mode(emulator_rounding rounding)
{
    switch (rounding) {
    case ROUND_RZ:
        return FE_TOWARDZERO;
    case ROUND_RM:
        return FE_DOWNWARD;
    case ROUND_RP:
        return FE_UPWARD;
    default:
        return FE_TONEAREST;
    }
}
