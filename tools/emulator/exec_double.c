/* Arithmetic of f64: every rounding mode by the processor's own, and the gross approximations that libraries refine.
 * Subnormals count, except where .ftz says otherwise; NaN keeps its payload, as on the GPU. */
#include <fenv.h>
#include <math.h>

#include "numbers.h"
#include "scalar.h"

/* ---- Sources and results ---- */

static double value_of(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

typedef struct doubles {
    double v[3][LANES];
    uint32_t defined;
} doubles;

static void read_doubles(warp *w, const instruction *i, int first, int count, doubles *d)
{
    d->defined = UINT32_MAX;
    for (int s = 0; s < count; s++) {
        lanes64 room;
        uint32_t defined;
        const uint64_t *bits = warp_read64(w, &i->operand[first + s], &room, &defined);
        memcpy(d->v[s], bits, sizeof d->v[s]);
        d->defined &= defined;
    }
}

static void write_doubles(warp *w, const instruction *i, const double *v, uint32_t defined)
{
    lanes64 d;
    memcpy(d.v, v, sizeof d.v);
    warp_write64(w, &i->operand[0], d.v, defined);
}

/* ---- Sums, products, quotients ---- */

typedef double (*double_operation)(volatile double x, volatile double y, volatile double z);

static double add(volatile double x, volatile double y, volatile double z)
{
    return (void)z, x + y;
}
static double subtract(volatile double x, volatile double y, volatile double z)
{
    return (void)z, x - y;
}
static double multiply(volatile double x, volatile double y, volatile double z)
{
    return (void)z, x * y;
}
static double fused(volatile double x, volatile double y, volatile double z)
{
    return fma(x, y, z);
}
static double divide(volatile double x, volatile double y, volatile double z)
{
    return (void)z, x / y;
}
static double invert(volatile double x, volatile double y, volatile double z)
{
    volatile double one = 1;
    return (void)y, (void)z, one / x;
}
static double root(volatile double x, volatile double y, volatile double z)
{
    return (void)y, (void)z, sqrt(x);
}

/* Sources are volatile, so that nothing is computed before the mode is set. */
static void compute(warp *w, const instruction *i, double_operation operation, int sources)
{
    doubles s = {{{0}}, 0};
    double d[LANES] = {0};
    read_doubles(w, i, 1, sources, &s);
    fesetround(number_rounding_mode((emulator_rounding)i->mods.rounding));
    for (int l = 0; l < LANES; l++)
        if (w->active & lane_bits[l]) d[l] = operation(s.v[0][l], s.v[1][l], s.v[2][l]);
    fesetround(FE_TONEAREST);
    write_doubles(w, i, d, s.defined);
}

void exec_add_double(warp *w, const instruction *i)
{
    compute(w, i, add, 2);
}
void exec_sub_double(warp *w, const instruction *i)
{
    compute(w, i, subtract, 2);
}
void exec_mul_double(warp *w, const instruction *i)
{
    compute(w, i, multiply, 2);
}
void exec_fma_double(warp *w, const instruction *i)
{
    compute(w, i, fused, 3);
}
void exec_div_double(warp *w, const instruction *i)
{
    compute(w, i, divide, 2);
}

/* ---- Reciprocals and roots ---- */

/* .approx.ftz.f64: of the upper 32 bits of the source the upper 32 bits of the result; the lower are 0. */
static double gross(double x, bool of_root)
{
    uint64_t bits = bits_of(x) & UINT64_C(0xffffffff00000000);
    if ((bits & UINT64_C(0x7ff0000000000000)) == 0) bits &= UINT64_C(1) << 63;
    x = value_of(bits);
    bits = bits_of(of_root ? 1 / sqrt(x) : 1 / x);
    if (x != x) return value_of(UINT64_C(0x7fffffff00000000));
    if ((bits & UINT64_C(0x7ff0000000000000)) == 0) bits &= UINT64_C(1) << 63;
    return value_of(bits & UINT64_C(0xffffffff00000000));
}

static void compute_gross(warp *w, const instruction *i, bool of_root)
{
    doubles s;
    double d[LANES];
    read_doubles(w, i, 1, 1, &s);
    for (int l = 0; l < LANES; l++) d[l] = gross(s.v[0][l], of_root);
    write_doubles(w, i, d, s.defined);
}

void exec_rcp_double(warp *w, const instruction *i)
{
    if (i->mods.approx)
        compute_gross(w, i, false);
    else
        compute(w, i, invert, 1);
}

void exec_sqrt_double(warp *w, const instruction *i)
{
    compute(w, i, root, 1);
}

/* Without .ftz the ISA says nothing of the error; here it is below 1 ulp. */
void exec_rsqrt_double(warp *w, const instruction *i)
{
    doubles s;
    double d[LANES];
    if (i->mods.ftz) {
        compute_gross(w, i, true);
        return;
    }
    read_doubles(w, i, 1, 1, &s);
    for (int l = 0; l < LANES; l++) d[l] = 1 / sqrt(s.v[0][l]);
    write_doubles(w, i, d, s.defined);
}

/* ---- Minima and signs: a NaN loses; -0 is less than +0 ---- */

static double select_double(double x, double y, bool largest)
{
    if (isnan(x) || isnan(y)) return isnan(x) ? y : x;
    if (x == y) return largest == (signbit(x) != 0) ? y : x;
    return (x < y) != largest ? x : y;
}

static void select_lanes(warp *w, const instruction *i, bool largest)
{
    doubles s;
    double d[LANES];
    read_doubles(w, i, 1, 2, &s);
    for (int l = 0; l < LANES; l++) d[l] = select_double(s.v[0][l], s.v[1][l], largest);
    write_doubles(w, i, d, s.defined);
}

void exec_min_double(warp *w, const instruction *i)
{
    select_lanes(w, i, false);
}
void exec_max_double(warp *w, const instruction *i)
{
    select_lanes(w, i, true);
}

void exec_abs_double(warp *w, const instruction *i)
{
    UNARY64(uint64_t, x & ~(UINT64_C(1) << 63));
}
void exec_neg_double(warp *w, const instruction *i)
{
    UNARY64(uint64_t, x ^ UINT64_C(1) << 63);
}

/* The sign of the first, the magnitude of the second. */
void exec_copysign_double(warp *w, const instruction *i)
{
    BINARY64(uint64_t, (x & UINT64_C(1) << 63) | (y & ~(UINT64_C(1) << 63)));
}

/* ---- Conversions ---- */

static double from_integer(volatile uint64_t v, bool is_signed)
{
    return is_signed ? (double)(int64_t)v : (double)v;
}

/* To f64. */
static void widen(warp *w, const instruction *i)
{
    const emulator_type from = i->mods.type[1];
    const bool is_signed = type_is_signed(from);
    uint32_t defined;
    double d[LANES] = {0};
    if (type_is_integer(from)) {
        lanes64 room;
        const uint64_t *a = read_lanes64(w, &i->operand[1], from, &room, &defined);
        fesetround(number_rounding_mode((emulator_rounding)i->mods.rounding));
        for (int l = 0; l < LANES; l++) d[l] = from_integer(a[l], is_signed);
        fesetround(FE_TONEAREST);
    } else {
        lanes32 room;
        const uint32_t *a = read_lanes32(w, &i->operand[1], from, &room, &defined);
        for (int l = 0; l < LANES; l++)
            d[l] = number_widen(number_format_of(from), i->mods.ftz && from == TYPE_F32 ? f32_flush(a[l]) : a[l]);
    }
    if (i->mods.saturate)
        for (int l = 0; l < LANES; l++) d[l] = !(d[l] > 0) ? 0 : d[l] > 1 ? 1 : d[l];
    write_doubles(w, i, d, defined);
}

static double rounded(const instruction *i, double x)
{
    const emulator_rounding rounding = (emulator_rounding)i->mods.rounding;
    if (rounding >= ROUND_RNI) x = number_round_integer(x, rounding);
    return i->mods.saturate ? (!(x > 0) ? 0 : x > 1 ? 1 : x) : x;
}

/* From f64 to a float or an integer. */
void exec_cvt_double(warp *w, const instruction *i)
{
    const emulator_type to = i->mods.type[0];
    const emulator_rounding rounding = (emulator_rounding)i->mods.rounding;
    doubles s;
    if (i->mods.type[1] != TYPE_F64) {
        widen(w, i);
        return;
    }
    read_doubles(w, i, 1, 1, &s);
    if (to == TYPE_F64) {
        for (int l = 0; l < LANES; l++) s.v[0][l] = rounded(i, s.v[0][l]);
        write_doubles(w, i, s.v[0], s.defined);
    } else if (type_is_integer(to)) {
        lanes64 d;
        for (int l = 0; l < LANES; l++) d.v[l] = number_to_integer(s.v[0][l], to, rounding);
        write_lanes64(w, &i->operand[0], to, d.v, s.defined);
    } else {
        const number_format *f = number_format_of(to);
        lanes32 d;
        for (int l = 0; l < LANES; l++) {
            const double x = i->mods.saturate ? rounded(i, s.v[0][l]) : s.v[0][l];
            d.v[l] = number_round(f, x, rounding, false);
            if (i->mods.ftz && to == TYPE_F32) d.v[l] = f32_flush(d.v[l]);
        }
        write_lanes32(w, &i->operand[0], to, d.v, s.defined);
    }
}
