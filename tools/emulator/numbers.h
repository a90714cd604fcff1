/* Floats of every format as exact doubles, and doubles rounded to every format. */
#ifndef FOSCAR_EMULATOR_NUMBERS_H
#define FOSCAR_EMULATOR_NUMBERS_H

#include "module.h"

/* What a format does with values that it cannot hold. */
typedef enum number_overflow {
    OVERFLOW_INFINITY, /* it has infinities, as IEEE 754 has */
    OVERFLOW_NAN,      /* e4m3: no infinity; all ones is NaN */
    OVERFLOW_SATURATES /* e2m1: neither; NaN becomes the largest value */
} number_overflow;

typedef struct number_format {
    int exponent_bits, mantissa_bits;
    number_overflow overflow;
    uint32_t nan; /* what an operation gives */
} number_format;

/* F16, BF16, F32, TF32 (in 32 bits), E4M3, E5M2, E2M1, of pairs that of one half; NULL: not a float. */
const number_format *number_format_of(emulator_type type);

double number_widen(const number_format *f, uint32_t bits);

/* Rounds x, a double that holds the value or the value rounded to odd, to the format. `finite`: what overflows,
 * infinities too, becomes the largest value (.satfinite). Rounding: RN, RZ, RM, RP or RNA. */
uint32_t number_round(const number_format *f, double x, emulator_rounding rounding, bool finite);

/* a + b, a b + c, a / b and the square root, rounded to odd in double where they are not exact: rounded again to at
 * most 26 bits they give the correct result whatever the rounding mode. The sources are of formats with at most 24
 * bits. */
double odd_sum(double a, double b);
double odd_fma(double a, double b, double c);
double odd_quotient(double a, double b);
double odd_root(double a);
/* 64 bits rounded to odd, as above. */
double odd_from_u64(uint64_t v);

/* .ftz: subnormals become zeros of their sign. */
uint32_t number_flush(const number_format *f, uint32_t bits);

/* The processor's rounding mode (fenv.h) of RN, RZ, RM, RP; of anything else that of RN. */
int number_rounding_mode(emulator_rounding rounding);

uint64_t number_largest_integer(emulator_type type);
/* To an integer type, rounded as number_round_integer does. Out of range is the nearest bound; NaN is 0, or in 64 bits
 * only the top bit. */
uint64_t number_to_integer(double x, emulator_type to, emulator_rounding rounding);

/* x rounded to an integer: RNI, RZI, RMI, RPI (or RN, RZ, RM, RP). */
double number_round_integer(double x, emulator_rounding rounding);

static inline uint32_t f32_bits(float v)
{
    union {
        float f;
        uint32_t u;
    } both = {.f = v};
    return both.u;
}

static inline float f32_value(uint32_t bits)
{
    union {
        uint32_t u;
        float f;
    } both = {.u = bits};
    return both.f;
}

enum { F32_NAN = 0x7fffffff };

/* .ftz: subnormals become zeros of their sign. */
static inline uint32_t f32_flush(uint32_t bits)
{
    return (bits & 0x7f800000) == 0 ? bits & 0x80000000 : bits;
}

/* What arithmetic makes of any NaN. */
static inline uint32_t f32_canonical(uint32_t bits)
{
    return (bits & 0x7fffffff) > 0x7f800000 ? F32_NAN : bits;
}

#endif
