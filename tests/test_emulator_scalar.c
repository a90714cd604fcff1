/* The interpreter's scalar instructions on integers and bits, and what is between the lanes of a warp, against
 * computations of another kind: 128-bit arithmetic, and loops over single bits. */
#include "emulator_scalar_fixture.h"

__extension__ typedef __int128 wide;
__extension__ typedef unsigned __int128 unsigned_wide;

enum { ROUNDS = 300, D = 0, A = 2, B = 4, C = 6 }; /* slots of the result and of the sources */

typedef wide (*integer_function)(wide a, wide b, wide c);

/* ---- The value that a pattern of bits has in a type, and back ---- */

static wide value_of(uint64_t bits, emulator_type type)
{
    const int width = 8 * type_bytes(type);
    wide v = 0;
    for (int k = 0; k < width; k++) v += (wide)(bits >> k & 1) << k;
    const bool is_signed = type == TYPE_S8 || type == TYPE_S16 || type == TYPE_S32 || type == TYPE_S64;
    return is_signed && (bits >> (width - 1) & 1) ? v - ((wide)1 << width) : v;
}

static uint64_t bits_of(wide v, emulator_type type)
{
    return (uint64_t)v & (UINT64_MAX >> (64 - 8 * type_bytes(type)));
}

/* ---- Arithmetic ---- */

static wide add(wide a, wide b, wide c)
{
    return (void)c, a + b;
}
static wide subtract(wide a, wide b, wide c)
{
    return (void)c, a - b;
}
static wide multiply_add(wide a, wide b, wide c)
{
    return (wide)((unsigned_wide)a * (unsigned_wide)b + (unsigned_wide)c);
}
static wide multiply(wide a, wide b, wide c)
{
    return (void)c, multiply_add(a, b, 0);
}
static wide smaller(wide a, wide b, wide c)
{
    return (void)c, a < b ? a : b;
}
static wide larger(wide a, wide b, wide c)
{
    return (void)c, a > b ? a : b;
}
static wide absolute(wide a, wide b, wide c)
{
    return (void)b, (void)c, a < 0 ? -a : a;
}
static wide negative(wide a, wide b, wide c)
{
    return (void)b, (void)c, -a;
}

static wide quotient(wide a, wide b, wide c)
{
    (void)c;
    if (b == 0) return -1;
    const wide q = (a < 0 ? -a : a) / (b < 0 ? -b : b);
    return (a < 0) != (b < 0) ? -q : q;
}

static wide rest(wide a, wide b, wide c)
{
    return b == 0 ? -1 : a - b * quotient(a, b, c);
}

static void check_integer(random_source *r, handler execute, integer_function expected, int sources, modifiers mods,
                          emulator_type result, int shift, bool saturate)
{
    scene *s = scene_create();
    const emulator_type type = mods.type[0], c_type = mods.wide ? result : type;
    const int bytes = type_bytes(type);
    instruction i = {.mods = mods, .operands = (uint8_t)(1 + sources)};
    i.operand[0] = in_register(result, D);
    for (int k = 0; k < sources; k++) i.operand[1 + k] = in_register(k == 2 ? c_type : type, A + 2 * k);
    for (int round = 0; round < ROUNDS; round++) {
        for (int l = 0; l < LANES; l++) {
            put(s, A, l, bytes, random_integer(r));
            put(s, B, l, bytes, random_integer(r));
            put(s, C, l, type_bytes(c_type), random_integer(r));
        }
        assert_int_equal(scene_run(s, execute, &i), EMULATOR_OK);
        assert_int_equal(s->slot_defined[D], UINT32_MAX);
        for (int l = 0; l < LANES; l++) {
            const wide a = value_of(get(s, A, l, bytes), type), b = value_of(get(s, B, l, bytes), type);
            const wide c = value_of(get(s, C, l, type_bytes(c_type)), c_type);
            /* .hi takes the upper half of the product before c is added. */
            wide v = shift == 0 ? expected(a, b, c) : (multiply(a, b, 0) >> shift) + (sources == 3 ? c : 0);
            if (saturate) v = v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : v;
            if (get(s, D, l, type_bytes(result)) != bits_of(v, result))
                fail_msg("%s: 0x%llx, 0x%llx, 0x%llx give 0x%llx", type_name(type),
                         (unsigned long long)get(s, A, l, bytes), (unsigned long long)get(s, B, l, bytes),
                         (unsigned long long)get(s, C, l, bytes), (unsigned long long)get(s, D, l, type_bytes(result)));
        }
    }
    scene_destroy(s);
}

static const emulator_type integer_types[] = {TYPE_U16, TYPE_S16, TYPE_U32, TYPE_S32, TYPE_U64, TYPE_S64};
enum { INTEGER_TYPES = sizeof integer_types / sizeof *integer_types };

static void integers_wrap_as_128_bit_arithmetic_says(void **state)
{
    (void)state;
    random_source r = random_start(__func__);
    for (int t = 0; t < INTEGER_TYPES; t++) {
        const emulator_type type = integer_types[t];
        const modifiers mods = {.type = {type}};
        check_integer(&r, exec_add_integer, add, 2, mods, type, 0, false);
        check_integer(&r, exec_sub_integer, subtract, 2, mods, type, 0, false);
        check_integer(&r, exec_mul_integer, multiply, 2, mods, type, 0, false);
        check_integer(&r, exec_mad_integer, multiply_add, 3, mods, type, 0, false);
        check_integer(&r, exec_div_integer, quotient, 2, mods, type, 0, false);
        check_integer(&r, exec_rem_integer, rest, 2, mods, type, 0, false);
        check_integer(&r, exec_min_integer, smaller, 2, mods, type, 0, false);
        check_integer(&r, exec_max_integer, larger, 2, mods, type, 0, false);
        if (t % 2 == 0) continue; /* signs are for signed types */
        check_integer(&r, exec_abs_integer, absolute, 1, mods, type, 0, false);
        check_integer(&r, exec_neg_integer, negative, 1, mods, type, 0, false);
    }
}

static void hi_and_wide_products_are_the_parts_of_the_whole_product(void **state)
{
    (void)state;
    static const emulator_type result[INTEGER_TYPES] = {TYPE_U32, TYPE_S32, TYPE_U64, TYPE_S64};
    random_source r = random_start(__func__);
    for (int t = 0; t < INTEGER_TYPES; t++) {
        const emulator_type type = integer_types[t];
        const modifiers high = {.type = {type}, .high = true}, wide_product = {.type = {type}, .wide = true};
        check_integer(&r, exec_mul_integer, multiply, 2, high, type, 8 * type_bytes(type), false);
        check_integer(&r, exec_mad_integer, multiply_add, 3, high, type, 8 * type_bytes(type), false);
        if (type_bytes(type) == 8) continue;
        check_integer(&r, exec_mul_integer, multiply, 2, wide_product, result[t], 0, false);
        check_integer(&r, exec_mad_integer, multiply_add, 3, wide_product, result[t], 0, false);
    }
}

static void saturated_sums_stop_at_the_bounds(void **state)
{
    (void)state;
    random_source r = random_start(__func__);
    const modifiers mods = {.type = {TYPE_S32}, .saturate = true},
                    high = {.type = {TYPE_S32}, .saturate = true, .high = true};
    check_integer(&r, exec_add_integer, add, 2, mods, TYPE_S32, 0, true);
    check_integer(&r, exec_sub_integer, subtract, 2, mods, TYPE_S32, 0, true);
    check_integer(&r, exec_mad_integer, multiply_add, 3, high, TYPE_S32, 32, true);
}

/* ---- Bits, one at a time ---- */

static bool bit(uint64_t v, int k)
{
    return k >= 0 && k < 64 && (v >> k & 1);
}

typedef uint64_t (*bits_function)(const modifiers *mods, int width, uint64_t a, uint64_t b, uint32_t c, uint32_t d);

static bool is_signed_type(emulator_type type)
{
    return type == TYPE_S16 || type == TYPE_S32 || type == TYPE_S64;
}

#define BY_BIT(name, expression)                                                                                       \
    static uint64_t name(const modifiers *mods, int width, uint64_t a, uint64_t b, uint32_t c, uint32_t d)             \
    {                                                                                                                  \
        uint64_t v = 0;                                                                                                \
        (void)mods, (void)a, (void)b, (void)c, (void)d;                                                                \
        for (int k = 0; k < width; k++) v |= (uint64_t)((expression) ? 1 : 0) << k;                                    \
        return v;                                                                                                      \
    }

/* How far a shift by c goes: no further than the width. */
static int amount(uint32_t c, int width)
{
    return c > (uint32_t)width ? width : (int)c;
}
static bool sign_or_zero(const modifiers *mods, uint64_t a, int width)
{
    return is_signed_type(mods->type[0]) && bit(a, width - 1);
}
static int funnel_amount(const modifiers *mods, uint32_t c)
{
    return mods->extra & EXTRA_CLAMP ? amount(c, 32) : (int)(c & 31);
}
static bool field_sign(const modifiers *mods, uint64_t a, int position, int length, int width)
{
    const int last = position + length - 1 < width - 1 ? position + length - 1 : width - 1;
    return length > 0 && is_signed_type(mods->type[0]) && bit(a, last);
}

BY_BIT(ref_and, bit(a, k) && bit(b, k))
BY_BIT(ref_or, bit(a, k) || bit(b, k))
BY_BIT(ref_xor, bit(a, k) != bit(b, k))
BY_BIT(ref_not, !bit(a, k))
BY_BIT(ref_brev, bit(a, width - 1 - k))
BY_BIT(ref_lop3, 0x6d >> (4 * bit(a, k) + 2 * bit(b, k) + bit(c, k)) & 1)
BY_BIT(ref_shl, bit(a, k - amount(c, width)))
BY_BIT(ref_shr, k + amount(c, width) < width ? bit(a, k + amount(c, width)) : sign_or_zero(mods, a, width))
BY_BIT(ref_shf, mods->mode == MODE_SHF_LEFT ? bit(b << 32 | a, k + 32 - funnel_amount(mods, c))
                                            : bit(b << 32 | a, k + funnel_amount(mods, c)))
BY_BIT(ref_bfe, k < (int)(d & 255) && k + (int)(c & 255) < width ? bit(a, k + (int)(c & 255))
                                                                 : field_sign(mods, a, c & 255, d & 255, width))
BY_BIT(ref_bfi, k >= (int)(c & 255) && k < (int)(c & 255) + (int)(d & 255) ? bit(a, k - (int)(c & 255)) : bit(b, k))

static uint64_t ref_popc(const modifiers *mods, int width, uint64_t a, uint64_t b, uint32_t c, uint32_t d)
{
    (void)mods, (void)b, (void)c, (void)d;
    uint64_t n = 0;
    for (int k = 0; k < width; k++) n += bit(a, k);
    return n;
}

static uint64_t ref_clz(const modifiers *mods, int width, uint64_t a, uint64_t b, uint32_t c, uint32_t d)
{
    (void)mods, (void)b, (void)c, (void)d;
    uint64_t n = 0;
    while (n < (uint64_t)width && !bit(a, width - 1 - (int)n)) n++;
    return n;
}

static uint64_t ref_bfind(const modifiers *mods, int width, uint64_t a, uint64_t b, uint32_t c, uint32_t d)
{
    (void)b, (void)c, (void)d;
    const bool sign = sign_or_zero(mods, a, width);
    for (int k = width - 1; k >= 0; k--)
        if (bit(a, k) != sign) return (uint64_t)(mods->extra & EXTRA_SHIFTAMT ? width - 1 - k : k);
    return UINT32_MAX;
}

/* sources: letters of the operands after the result: a, b of the type; c, d (or of lop3 c) of 32 bits. */
static void check_bits(random_source *r, handler execute, bits_function expected, const char *sources, modifiers mods,
                       emulator_type result)
{
    scene *s = scene_create();
    const emulator_type type = mods.type[0];
    const int bytes = type_bytes(type), count = (int)strlen(sources);
    instruction i = {.mods = mods, .operands = (uint8_t)(1 + count)};
    i.operand[0] = in_register(result, D);
    for (int k = 0; k < count; k++)
        i.operand[1 + k] = sources[k] == '#'
                               ? immediate(0x6d)
                               : in_register(sources[k] < 'c' ? type : TYPE_B32, A + 2 * (sources[k] - 'a'));
    for (int round = 0; round < ROUNDS; round++) {
        for (int l = 0; l < LANES; l++) {
            put(s, A, l, bytes, random_integer(r));
            put(s, B, l, bytes, random_integer(r));
            const uint64_t v = random_u64(r);
            put(s, C, l, 4, execute == exec_lop3 ? v : v & 1 ? v >> 8 & 63 : random_integer(r));
            put(s, C + 2, l, 4, v & 2 ? v >> 16 & 63 : random_integer(r));
        }
        assert_int_equal(scene_run(s, execute, &i), EMULATOR_OK);
        for (int l = 0; l < LANES; l++) {
            const uint64_t a = get(s, A, l, bytes), b = get(s, B, l, bytes);
            const uint64_t v = expected(&mods, 8 * bytes, a, b, s->slot[C][l], s->slot[C + 2][l]);
            if (get(s, D, l, type_bytes(result)) != v)
                fail_msg("%s of %s: 0x%llx, 0x%llx, 0x%x, 0x%x give 0x%llx, not 0x%llx", sources, type_name(type),
                         (unsigned long long)a, (unsigned long long)b, s->slot[C][l], s->slot[C + 2][l],
                         (unsigned long long)get(s, D, l, type_bytes(result)), (unsigned long long)v);
        }
    }
    scene_destroy(s);
}

static void bit_instructions_do_what_each_bit_says(void **state)
{
    (void)state;
    random_source r = random_start(__func__);
    static const emulator_type b_types[] = {TYPE_B16, TYPE_B32, TYPE_B64};
    for (int t = 0; t < 3; t++) {
        const emulator_type type = b_types[t];
        const modifiers mods = {.type = {type}};
        check_bits(&r, exec_and, ref_and, "ab", mods, type);
        check_bits(&r, exec_or, ref_or, "ab", mods, type);
        check_bits(&r, exec_xor, ref_xor, "ab", mods, type);
        check_bits(&r, exec_not, ref_not, "a", mods, type);
        check_bits(&r, exec_shl, ref_shl, "ac", mods, type);
        if (t == 0) continue;
        check_bits(&r, exec_brev, ref_brev, "a", mods, type);
        check_bits(&r, exec_bfi, ref_bfi, "abcd", mods, type);
        check_bits(&r, exec_popc, ref_popc, "a", mods, TYPE_U32);
        check_bits(&r, exec_clz, ref_clz, "a", mods, TYPE_U32);
    }
    check_bits(&r, exec_lop3, ref_lop3, "abc#", (modifiers){.type = {TYPE_B32}}, TYPE_B32);
    for (int t = 0; t < INTEGER_TYPES; t++) {
        const modifiers mods = {.type = {integer_types[t]}},
                        shift_amount = {.type = {integer_types[t]}, .extra = EXTRA_SHIFTAMT};
        check_bits(&r, exec_shr, ref_shr, "ac", mods, integer_types[t]);
        if (type_bytes(integer_types[t]) == 2) continue;
        check_bits(&r, exec_bfe, ref_bfe, "acd", mods, integer_types[t]);
        check_bits(&r, exec_bfind, ref_bfind, "a", mods, TYPE_U32);
        check_bits(&r, exec_bfind, ref_bfind, "a", shift_amount, TYPE_U32);
    }
    for (int n = 0; n < 4; n++) {
        const modifiers mods = {
            .type = {TYPE_B32}, .mode = n & 1 ? MODE_SHF_LEFT : MODE_SHF_RIGHT, .extra = n & 2 ? EXTRA_CLAMP : 0};
        check_bits(&r, exec_shf, ref_shf, "abc", mods, TYPE_B32);
    }
}

static void shifts_by_an_immediate_are_those_by_a_register(void **state)
{
    (void)state;
    random_source r = random_start(__func__);
    static const handler handlers[] = {exec_shl, exec_shr, exec_shr};
    static const emulator_type types[] = {TYPE_B32, TYPE_U32, TYPE_S32};
    scene *s = scene_create();
    for (int f = 0; f < 3; f++) {
        for (uint32_t n = 0; n < 40; n++) {
            instruction i = {.mods = {.type = {types[f]}}, .operands = 3};
            for (int l = 0; l < LANES; l++) put(s, A, l, 4, random_integer(&r)), put(s, B, l, 4, n);
            i.operand[0] = in_register(TYPE_B32, D), i.operand[1] = in_register(TYPE_B32, A);
            i.operand[2] = in_register(TYPE_B32, B);
            assert_int_equal(scene_run(s, handlers[f], &i), EMULATOR_OK);
            i.operand[0] = in_register(TYPE_B32, D + 1), i.operand[2] = immediate(n);
            assert_int_equal(scene_run(s, handlers[f], &i), EMULATOR_OK);
            assert_memory_equal(s->slot[D], s->slot[D + 1], sizeof s->slot[D]);
        }
    }
    scene_destroy(s);
}

/* The tables of the ISA: which of the bytes b7 ... b0 each mode takes, highest first. */
static void prmt_takes_the_bytes_of_every_mode(void **state)
{
    (void)state;
    static const char *const table[7][4] = {
        {NULL},
        {"3210", "4321", "5432", "6543"},
        {"5670", "6701", "7012", "0123"},
        {"0000", "1111", "2222", "3333"},
        {"3210", "3211", "3222", "3333"},
        {"0000", "1110", "2210", "3210"},
        {"1010", "3232", "1010", "3232"},
    };
    random_source r = random_start(__func__);
    scene *s = scene_create();
    for (int round = 0; round < ROUNDS * 8; round++) {
        const uint8_t mode = (uint8_t)(round % 7);
        const bool by_immediate = round / 7 % 2;
        const uint32_t uniform = (uint32_t)random_u64(&r) & (round & 64 ? 0x7777 : 0xffff);
        instruction i = {.mods = {.type = {TYPE_B32}, .mode = mode}, .operands = 4};
        for (int k = 0; k < 4; k++) i.operand[k] = in_register(TYPE_B32, 2 * k);
        if (by_immediate) i.operand[3] = immediate(uniform);
        for (int l = 0; l < LANES; l++)
            for (int k = 1; k < 4; k++) put(s, 2 * k, l, 4, random_u64(&r));
        assert_int_equal(scene_run(s, exec_prmt, &i), EMULATOR_OK);
        for (int l = 0; l < LANES; l++) {
            const uint64_t source = (uint64_t)s->slot[B][l] << 32 | s->slot[A][l];
            const uint32_t c = by_immediate ? uniform : s->slot[C][l];
            for (int k = 0; k < 4; k++) {
                const int nibble = mode ? table[mode][c & 3][3 - k] - '0' : (int)(c >> (4 * k) & 15);
                uint8_t byte = (uint8_t)(source >> (8 * (nibble & 7)));
                if (nibble & 8) byte = byte & 0x80 ? 0xff : 0;
                assert_int_equal(s->slot[D][l] >> (8 * k) & 0xff, byte);
            }
        }
    }
    scene_destroy(s);
}

/* ---- Comparisons ---- */

static bool relation(int compare, wide a, wide b)
{
    const int order = (a > b) - (a < b);
    switch (compare) {
    case COMPARE_EQ:
        return order == 0;
    case COMPARE_NE:
        return order != 0;
    case COMPARE_LT:
        return order < 0;
    case COMPARE_LE:
        return order <= 0;
    case COMPARE_GT:
        return order > 0;
    default:
        return order >= 0;
    }
}

static void setp_compares_and_combines_both_results(void **state)
{
    (void)state;
    random_source r = random_start(__func__);
    scene *s = scene_create();
    for (int round = 0; round < ROUNDS * 10; round++) {
        const emulator_type type = integer_types[round % INTEGER_TYPES];
        const int compare = COMPARE_EQ + round / INTEGER_TYPES % 6, boolean = (int)(random_u64(&r) % 4),
                  bytes = type_bytes(type);
        instruction i = {.mods = {.type = {type}, .compare = (uint8_t)compare, .boolean = (uint8_t)boolean},
                         .operands = 5};
        i.operand[0] = in_predicate(0), i.operand[1] = in_predicate(1);
        i.operand[2] = in_register(type, A), i.operand[3] = in_register(type, B), i.operand[4] = in_predicate(2);
        i.operand[4].negated = round & 1;
        s->predicate[2] = (uint32_t)random_u64(&r);
        for (int l = 0; l < LANES; l++) {
            put(s, A, l, bytes, random_integer(&r));
            put(s, B, l, bytes, random_u64(&r) % 3 ? random_integer(&r) : get(s, A, l, bytes));
        }
        assert_int_equal(scene_run(s, exec_setp_integer, &i), EMULATOR_OK);
        for (int l = 0; l < LANES; l++) {
            const bool c = bit(s->predicate[2], l) != i.operand[4].negated;
            const bool holds =
                relation(compare, value_of(get(s, A, l, bytes), type), value_of(get(s, B, l, bytes), type));
            const bool p = boolean == 0 ? holds : boolean == 1 ? holds && c : boolean == 2 ? holds || c : holds != c;
            const bool q = boolean == 0   ? !holds
                           : boolean == 1 ? !holds && c
                           : boolean == 2 ? !holds || c
                                          : !holds != c;
            assert_int_equal(bit(s->predicate[0], l), p);
            assert_int_equal(bit(s->predicate[1], l), q);
        }
    }
    scene_destroy(s);
}

/* ---- Moves ---- */

static void packing_and_unpacking_give_back_the_parts(void **state)
{
    (void)state;
    random_source r = random_start(__func__);
    scene *s = scene_create();
    static const struct {
        emulator_type whole, part;
        int count;
    } forms[] = {{TYPE_B64, TYPE_B32, 2}, {TYPE_B64, TYPE_B16, 4}, {TYPE_B32, TYPE_B16, 2}};
    for (int f = 0; f < 3; f++) {
        const emulator_type part = forms[f].part;
        const int count = forms[f].count;
        instruction pack = {.mods = {.type = {forms[f].whole}}, .operands = 2}, unpack = pack;
        for (int e = 0; e < count; e++) {
            s->elements[e] = in_register(part, A + e);
            s->elements[4 + e] = in_register(part, 20 + e);
            for (int l = 0; l < LANES; l++) put(s, A + e, l, type_bytes(part), random_u64(&r));
        }
        pack.operand[0] = unpack.operand[1] = in_register(forms[f].whole, D);
        pack.operand[1] = (operand){.kind = OPERAND_VECTOR, .first = 0, .count = count};
        unpack.operand[0] = (operand){.kind = OPERAND_VECTOR, .first = 4, .count = count};
        assert_int_equal(scene_run(s, exec_mov, &pack), EMULATOR_OK);
        assert_int_equal(scene_run(s, exec_mov, &unpack), EMULATOR_OK);
        for (int e = 0; e < count; e++) {
            for (int l = 0; l < LANES; l++) {
                assert_int_equal(s->slot[20 + e][l], s->slot[A + e][l]);
                assert_int_equal(get(s, D, l, type_bytes(forms[f].whole)) >> (8 * type_bytes(part) * e) &
                                     (UINT64_MAX >> (64 - 8 * type_bytes(part))),
                                 s->slot[A + e][l]);
            }
        }
    }
    scene_destroy(s);
}

/* ---- Definedness and inactive lanes ---- */

static void inactive_lanes_keep_their_registers(void **state)
{
    (void)state;
    scene *s = scene_create();
    instruction i = {.mods = {.type = {TYPE_U32}}, .operands = 3};
    for (int k = 0; k < 3; k++) i.operand[k] = in_register(TYPE_U32, 2 * k);
    for (int l = 0; l < LANES; l++) put(s, D, l, 4, 77), put(s, A, l, 4, 5), put(s, B, l, 4, 6);
    s->w.active = 0x00ff0f01;
    s->slot_defined[D] = 0xf0000000;
    assert_int_equal(scene_run(s, exec_add_integer, &i), EMULATOR_OK);
    for (int l = 0; l < LANES; l++) assert_int_equal(s->slot[D][l], bit(s->w.active, l) ? 11 : 77);
    assert_int_equal(s->slot_defined[D], 0xf0ff0f01);
    scene_destroy(s);
}

static void an_undefined_source_is_harmless_only_where_it_cannot_matter(void **state)
{
    (void)state;
    static const struct {
        handler execute;
        emulator_type type;
        uint64_t decides;
        bool can;
    } cases[] = {{exec_and, TYPE_B32, 0, true},          {exec_or, TYPE_B32, UINT32_MAX, true},
                 {exec_and, TYPE_B64, 0, true},          {exec_or, TYPE_B64, UINT64_MAX, true},
                 {exec_or, TYPE_B16, 0xffff, true},      {exec_mul_integer, TYPE_U32, 0, true},
                 {exec_mul_integer, TYPE_S64, 0, true},  {exec_xor, TYPE_B32, 0, false},
                 {exec_add_integer, TYPE_U32, 0, false}, {exec_min_integer, TYPE_U32, 0, false}};
    scene *s = scene_create();
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        const int bytes = type_bytes(cases[n].type);
        instruction i = {.mods = {.type = {cases[n].type}}, .operands = 3};
        for (int k = 0; k < 3; k++) i.operand[k] = in_register(cases[n].type, 2 * k);
        for (int l = 0; l < LANES; l++) put(s, A, l, bytes, l & 1 ? cases[n].decides : 0x5a), put(s, B, l, bytes, 0x33);
        memset(s->slot_defined, 0xff, sizeof s->slot_defined);
        s->slot_defined[B] = 0x0000ffff; /* undefined in the upper lanes, of which the odd ones are decided */
        assert_int_equal(scene_run(s, cases[n].execute, &i), EMULATOR_OK);
        assert_int_equal(s->slot_defined[D], cases[n].can ? 0xaaaaffff : 0x0000ffff);
    }
    scene_destroy(s);
}

static void selp_is_as_defined_as_what_it_selects(void **state)
{
    (void)state;
    scene *s = scene_create();
    instruction i = {.mods = {.type = {TYPE_B32}}, .operands = 4};
    for (int k = 0; k < 3; k++) i.operand[k] = in_register(TYPE_B32, 2 * k);
    i.operand[3] = in_predicate(0);
    s->predicate[0] = 0x0000ffff;
    s->predicate_defined[0] = 0x7fffffff;
    s->slot_defined[A] = 0xffffff00;
    s->slot_defined[B] = 0xff00ffff;
    for (int l = 0; l < LANES; l++) put(s, A, l, 4, 1), put(s, B, l, 4, 2);
    assert_int_equal(scene_run(s, exec_selp, &i), EMULATOR_OK);
    assert_int_equal(s->slot_defined[D], 0x7f00ff00);
    for (int l = 0; l < LANES; l++) assert_int_equal(s->slot[D][l], l < 16 ? 1 : 2);
    scene_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_wrap_as_128_bit_arithmetic_says),
        cmocka_unit_test(hi_and_wide_products_are_the_parts_of_the_whole_product),
        cmocka_unit_test(saturated_sums_stop_at_the_bounds),
        cmocka_unit_test(bit_instructions_do_what_each_bit_says),
        cmocka_unit_test(shifts_by_an_immediate_are_those_by_a_register),
        cmocka_unit_test(prmt_takes_the_bytes_of_every_mode),
        cmocka_unit_test(setp_compares_and_combines_both_results),
        cmocka_unit_test(packing_and_unpacking_give_back_the_parts),
        cmocka_unit_test(inactive_lanes_keep_their_registers),
        cmocka_unit_test(an_undefined_source_is_harmless_only_where_it_cannot_matter),
        cmocka_unit_test(selp_is_as_defined_as_what_it_selects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
