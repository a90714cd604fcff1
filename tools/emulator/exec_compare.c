/* Comparisons that give values instead of predicates (set), and those of pairs and of f64. */
#include <math.h>

#include "numbers.h"
#include "scalar.h"

static bool holds_for(int compare, double x, double y)
{
    const bool unordered = isnan(x) || isnan(y);
    switch (compare) {
    case COMPARE_EQ:
        return x == y;
    case COMPARE_NE:
        return !unordered && x != y;
    case COMPARE_LT:
        return x < y;
    case COMPARE_LE:
        return x <= y;
    case COMPARE_GT:
        return x > y;
    case COMPARE_GE:
        return x >= y;
    case COMPARE_EQU:
        return unordered || x == y;
    case COMPARE_NEU:
        return unordered || x != y;
    case COMPARE_LTU:
        return unordered || x < y;
    case COMPARE_LEU:
        return unordered || x <= y;
    case COMPARE_GTU:
        return unordered || x > y;
    case COMPARE_GEU:
        return unordered || x >= y;
    case COMPARE_NUM:
        return !unordered;
    default:
        return unordered;
    }
}

static bool integers_hold(int compare, uint64_t x, uint64_t y, bool is_signed)
{
    const bool less = is_signed ? (int64_t)x < (int64_t)y : x < y;
    switch (compare) {
    case COMPARE_EQ:
        return x == y;
    case COMPARE_NE:
        return x != y;
    case COMPARE_LT:
        return less;
    case COMPARE_LE:
        return less || x == y;
    case COMPARE_GT:
        return !less && x != y;
    default:
        return !less;
    }
}

static double as_double(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The value of part `part` of bits of a float type; .ftz makes subnormals of f32 and f16 zeros. */
static double part_value(emulator_type type, uint64_t bits, int part, bool ftz)
{
    if (type == TYPE_F64) return as_double(bits);
    const number_format *f = number_format_of(type);
    uint32_t v = type == TYPE_F32 ? (uint32_t)bits : (uint32_t)(bits >> (16 * part)) & 0xffff;
    const uint32_t exponent = ((1u << f->exponent_bits) - 1) << f->mantissa_bits;
    if (ftz && (v & exponent) == 0) v = 0;
    return number_widen(f, v);
}

static int parts_of(emulator_type type)
{
    return type == TYPE_F16X2 || type == TYPE_BF16X2 ? 2 : 1;
}

/* Which lanes satisfy the comparison, of each part. */
static uint32_t compare_sources(warp *w, const instruction *i, int a_place, emulator_type type, uint32_t holds[2])
{
    lanes64 room[2];
    uint32_t defined[2];
    const uint64_t *a = read_lanes64(w, &i->operand[a_place], type, &room[0], &defined[0]);
    const uint64_t *b = read_lanes64(w, &i->operand[a_place + 1], type, &room[1], &defined[1]);
    holds[0] = holds[1] = 0;
    for (int l = 0; l < LANES; l++) {
        for (int part = 0; part < parts_of(type); part++) {
            const bool holds_here = type_is_integer(type)
                                        ? integers_hold(i->mods.compare, a[l], b[l], type_is_signed(type))
                                        : holds_for(i->mods.compare, part_value(type, a[l], part, i->mods.ftz),
                                                    part_value(type, b[l], part, i->mods.ftz));
            if (holds_here) holds[part] |= lane_bits[l];
        }
    }
    return defined[0] & defined[1];
}

static uint32_t combine(int boolean, uint32_t p, uint32_t c)
{
    return boolean == 1 ? p & c : boolean == 2 ? p | c : boolean == 3 ? p ^ c : p;
}

/* What "true" is: all ones of an integer, 1.0 of a float. */
static uint64_t true_value(emulator_type type)
{
    switch (type) {
    case TYPE_F32:
        return 0x3f800000;
    case TYPE_F16:
    case TYPE_F16X2:
        return 0x3c00;
    case TYPE_BF16:
    case TYPE_BF16X2:
        return 0x3f80;
    default:
        return UINT32_MAX >> (32 - 8 * type_bytes(type));
    }
}

/* set.op.dtype.stype d, a, b [, c]: of pairs each half by itself. */
void exec_set(warp *w, const instruction *i)
{
    const emulator_type to = i->mods.type[0], from = i->mods.type[1];
    uint32_t holds[2], c_defined = UINT32_MAX, c = 0;
    uint32_t defined = compare_sources(w, i, 1, from, holds);
    if (i->mods.boolean) c = warp_read_predicate(w, &i->operand[3], &c_defined);
    const bool pairs = parts_of(from) == 2;
    const uint64_t one = pairs && type_is_integer(to) ? 0xffff : true_value(to);
    lanes32 d = {{0}};
    for (int part = 0; part < parts_of(from); part++) {
        const uint32_t true_lanes = combine(i->mods.boolean, holds[part], c);
        for (int l = 0; l < LANES; l++)
            if (true_lanes & lane_bits[l]) d.v[l] |= (uint32_t)one << (16 * part);
    }
    write_lanes32(w, &i->operand[0], to, d.v, defined & c_defined);
}

/* setp of f64, and of f16 with .ftz: the second predicate is the complement. */
void exec_setp_value(warp *w, const instruction *i)
{
    uint32_t holds[2];
    const uint32_t defined = compare_sources(w, i, SETP_A, i->mods.type[0], holds);
    write_comparison(w, i, holds[0], defined);
}

/* setp of pairs: the first predicate is of the lower halves, the second of the upper ones. */
void exec_setp_pair(warp *w, const instruction *i)
{
    uint32_t holds[2], c_defined = UINT32_MAX, c = 0;
    const uint32_t defined = compare_sources(w, i, SETP_A, i->mods.type[0], holds);
    if (i->mods.boolean) c = warp_read_predicate(w, &i->operand[SETP_C], &c_defined);
    for (int part = 0; part < 2; part++)
        if (i->operand[part].kind == OPERAND_REGISTER)
            warp_write_predicate(w, &i->operand[part], combine(i->mods.boolean, holds[part], c), defined & c_defined);
}
