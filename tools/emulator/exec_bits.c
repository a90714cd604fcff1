/* Instructions on bits: logic, shifts, bytes, fields and counts. */
#include "scalar.h"

/* ---- Logic. A defined 0 of an and, a defined all-ones of an or, makes the result defined ---- */

typedef enum logic { LOGIC_AND, LOGIC_OR, LOGIC_XOR } logic;

static uint64_t apply(logic operation, uint64_t a, uint64_t b)
{
    return operation == LOGIC_AND ? a & b : operation == LOGIC_OR ? a | b : a ^ b;
}

/* With `absorbing` the value that decides the result alone. */
static uint32_t logic_defined(logic operation, const uint64_t *a, uint32_t a_defined, const uint64_t *b,
                              uint32_t b_defined, uint64_t all_ones)
{
    uint32_t defined = a_defined & b_defined;
    if (operation == LOGIC_XOR) return defined;
    const uint64_t absorbing = operation == LOGIC_AND ? 0 : all_ones;
    for (int l = 0; l < LANES; l++) {
        if (((a_defined & lane_bits[l]) && a[l] == absorbing) || ((b_defined & lane_bits[l]) && b[l] == absorbing))
            defined |= lane_bits[l];
    }
    return defined;
}

static void logic_predicates(warp *w, const instruction *i, logic operation)
{
    uint32_t a_defined, b_defined;
    const uint32_t a = warp_read_predicate(w, &i->operand[1], &a_defined);
    const uint32_t b = warp_read_predicate(w, &i->operand[2], &b_defined);
    uint32_t defined = a_defined & b_defined;
    if (operation == LOGIC_AND) defined |= (a_defined & ~a) | (b_defined & ~b);
    if (operation == LOGIC_OR) defined |= (a_defined & a) | (b_defined & b);
    warp_write_predicate(w, &i->operand[0], (uint32_t)apply(operation, a, b), defined);
}

/* Any width; sources that are not defined everywhere. */
static void logic_slow(warp *w, const instruction *i, logic operation)
{
    const emulator_type type = i->mods.type[0];
    const int bytes = type_bytes(type);
    const uint64_t ones = UINT64_MAX >> (64 - 8 * bytes);
    lanes64 room[2], d;
    uint32_t defined[2];
    const uint64_t *a = read_lanes64(w, &i->operand[1], type, &room[0], &defined[0]);
    const uint64_t *b = read_lanes64(w, &i->operand[2], type, &room[1], &defined[1]);
    for (int l = 0; l < LANES; l++) d.v[l] = apply(operation, a[l], b[l]);
    write_lanes64(w, &i->operand[0], type, d.v, logic_defined(operation, a, defined[0], b, defined[1], ones));
}

#define LOGIC(operation, expression)                                                                                   \
    do {                                                                                                               \
        if (i->mods.type[0] == TYPE_PRED) {                                                                            \
            logic_predicates(w, i, operation);                                                                         \
            return;                                                                                                    \
        }                                                                                                              \
        if (type_bytes(i->mods.type[0]) == 4) {                                                                        \
            lanes32 room[2], d;                                                                                        \
            uint32_t defined[2];                                                                                       \
            const uint32_t *a = read_lanes32(w, &i->operand[1], TYPE_B32, &room[0], &defined[0]);                      \
            const uint32_t *b = read_lanes32(w, &i->operand[2], TYPE_B32, &room[1], &defined[1]);                      \
            if (all_defined(w, defined[0] & defined[1])) {                                                             \
                for (int l = 0; l < LANES; l++) {                                                                      \
                    const uint32_t x = a[l], y = b[l];                                                                 \
                    d.v[l] = (expression);                                                                             \
                }                                                                                                      \
                write_lanes32(w, &i->operand[0], TYPE_B32, d.v, UINT32_MAX);                                           \
                return;                                                                                                \
            }                                                                                                          \
        }                                                                                                              \
        logic_slow(w, i, operation);                                                                                   \
    } while (0)

void exec_and(warp *w, const instruction *i)
{
    LOGIC(LOGIC_AND, x & y);
}
void exec_or(warp *w, const instruction *i)
{
    LOGIC(LOGIC_OR, x | y);
}
void exec_xor(warp *w, const instruction *i)
{
    LOGIC(LOGIC_XOR, x ^ y);
}

void exec_not(warp *w, const instruction *i)
{
    const emulator_type type = i->mods.type[0];
    if (type == TYPE_PRED) {
        uint32_t defined;
        const uint32_t p = warp_read_predicate(w, &i->operand[1], &defined);
        warp_write_predicate(w, &i->operand[0], ~p, defined);
    } else if (type_bytes(type) == 8) {
        UNARY64(uint64_t, ~x);
    } else {
        UNARY32(type, uint32_t, ~x);
    }
}

/* Bit k of the table is the result for a = k >> 2, b = k >> 1 & 1, c = k & 1. */
void exec_lop3(warp *w, const instruction *i)
{
    const uint64_t table = i->operand[4].bits;
    uint32_t minterm[8];
    for (int k = 0; k < 8; k++) minterm[k] = table >> k & 1 ? UINT32_MAX : 0;
    TERNARY32(TYPE_B32, uint32_t,
              (~x & ~y & ~z & minterm[0]) | (~x & ~y & z & minterm[1]) | (~x & y & ~z & minterm[2]) |
                  (~x & y & z & minterm[3]) | (x & ~y & ~z & minterm[4]) | (x & ~y & z & minterm[5]) |
                  (x & y & ~z & minterm[6]) | (x & y & z & minterm[7]));
}

/* ---- Shifts: the amount has 32 bits and is clamped at the width ---- */

static void shift_slow(warp *w, const instruction *i, bool left)
{
    const emulator_type type = i->mods.type[0];
    const uint32_t width = 8u * (uint32_t)type_bytes(type);
    lanes64 room, d;
    lanes32 amount_room;
    uint32_t defined[2];
    const uint64_t *a = read_lanes64(w, &i->operand[1], type, &room, &defined[0]);
    const uint32_t *amount = read_lanes32(w, &i->operand[2], TYPE_U32, &amount_room, &defined[1]);
    for (int l = 0; l < LANES; l++) {
        const uint32_t n = amount[l] < width ? amount[l] : width;
        if (left)
            d.v[l] = n == 64 ? 0 : a[l] << n;
        else if (type_is_signed(type))
            d.v[l] = (uint64_t)((int64_t)a[l] >> (n > 63 ? 63 : n));
        else
            d.v[l] = n == 64 ? 0 : a[l] >> n;
    }
    write_lanes64(w, &i->operand[0], type, d.v, defined[0] & defined[1]);
}

void exec_shl(warp *w, const instruction *i)
{
    if (type_bytes(i->mods.type[0]) != 4)
        shift_slow(w, i, true);
    else if (i->operand[2].kind == OPERAND_IMMEDIATE && i->operand[2].bits < 32) {
        const uint32_t n = (uint32_t)i->operand[2].bits;
        UNARY32(TYPE_B32, uint32_t, x << n);
    } else {
        BINARY32(TYPE_B32, uint32_t, y < 32 ? x << (y & 31) : 0);
    }
}

void exec_shr(warp *w, const instruction *i)
{
    const emulator_type type = i->mods.type[0];
    if (type_bytes(type) != 4) {
        shift_slow(w, i, false);
    } else if (i->operand[2].kind == OPERAND_IMMEDIATE && i->operand[2].bits < 32) {
        const uint32_t n = (uint32_t)i->operand[2].bits;
        if (type == TYPE_S32)
            UNARY32(type, int32_t, x >> n);
        else
            UNARY32(type, uint32_t, x >> n);
    } else if (type == TYPE_S32) {
        BINARY32(type, uint32_t, (int32_t)x >> (y < 31 ? y : 31));
    } else {
        BINARY32(type, uint32_t, y < 32 ? x >> (y & 31) : 0);
    }
}

/* The funnel b:a, b above. .l gives the upper word of it shifted left, .r the lower word of it shifted right. */
void exec_shf(warp *w, const instruction *i)
{
    const bool left = i->mods.mode == MODE_SHF_LEFT, wrap = (i->mods.extra & EXTRA_CLAMP) == 0;
#define AMOUNT (wrap ? z & 31 : z < 32 ? z : 32)
#define FUNNEL ((uint64_t)y << 32 | x)
    if (left)
        TERNARY32(TYPE_B32, uint32_t, FUNNEL << AMOUNT >> 32);
    else
        TERNARY32(TYPE_B32, uint32_t, FUNNEL >> AMOUNT);
#undef AMOUNT
#undef FUNNEL
}

/* ---- Bytes ---- */

/* The selector of the default mode that does what another mode does with the two low bits n of its selector. */
static uint32_t prmt_selector(uint8_t mode, uint32_t n)
{
    static const uint16_t selectors[][4] = {
        [MODE_PRMT_F4E] = {0x3210, 0x4321, 0x5432, 0x6543}, [MODE_PRMT_B4E] = {0x5670, 0x6701, 0x7012, 0x0123},
        [MODE_PRMT_RC8] = {0x0000, 0x1111, 0x2222, 0x3333}, [MODE_PRMT_ECL] = {0x3210, 0x3211, 0x3222, 0x3333},
        [MODE_PRMT_ECR] = {0x0000, 0x1110, 0x2210, 0x3210}, [MODE_PRMT_RC16] = {0x1010, 0x3232, 0x1010, 0x3232},
    };
    return selectors[mode][n & 3];
}

/* A nibble of the selector picks a byte of b:a; its top bit spreads that byte's sign instead. */
static inline uint32_t permute(uint32_t a, uint32_t b, uint32_t selector)
{
    const uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t d = 0;
    for (int k = 0; k < 4; k++) {
        const uint32_t nibble = selector >> (4 * k);
        const uint32_t byte = (uint32_t)(bytes >> (8 * (nibble & 7))) & 0xff;
        d |= (nibble & 8 ? (byte & 0x80 ? 0xffu : 0u) : byte) << (8 * k);
    }
    return d;
}

/* One selector for all lanes, without sign bytes: shifts and masks that vectorise. */
static void permute_uniform(const uint32_t *a, const uint32_t *b, uint32_t selector, uint32_t *d)
{
    const uint32_t *source[4];
    uint32_t shift[4];
    for (int k = 0; k < 4; k++) {
        const uint32_t nibble = selector >> (4 * k);
        source[k] = nibble & 4 ? b : a;
        shift[k] = 8 * (nibble & 3);
    }
    for (int l = 0; l < LANES; l++) {
        d[l] = (source[0][l] >> shift[0] & 0xff) | (source[1][l] >> shift[1] & 0xff) << 8 |
               (source[2][l] >> shift[2] & 0xff) << 16 | (source[3][l] >> shift[3] & 0xff) << 24;
    }
}

void exec_prmt(warp *w, const instruction *i)
{
    const uint8_t mode = i->mods.mode;
    lanes32 room[3], d;
    uint32_t defined[3];
    const uint32_t *a = read_lanes32(w, &i->operand[1], TYPE_B32, &room[0], &defined[0]);
    const uint32_t *b = read_lanes32(w, &i->operand[2], TYPE_B32, &room[1], &defined[1]);
    const uint32_t *c = read_lanes32(w, &i->operand[3], TYPE_B32, &room[2], &defined[2]);
    if (mode == 0 && i->operand[3].kind == OPERAND_IMMEDIATE && (c[0] & 0x8888) == 0) {
        permute_uniform(a, b, c[0], d.v);
    } else {
        for (int l = 0; l < LANES; l++) d.v[l] = permute(a[l], b[l], mode == 0 ? c[l] : prmt_selector(mode, c[l]));
    }
    write_lanes32(w, &i->operand[0], TYPE_B32, d.v, defined[0] & defined[1] & defined[2]);
}

/* ---- Fields ---- */

static uint64_t extract_field(uint64_t a, uint32_t position, uint32_t length, uint32_t width, bool is_signed)
{
    if (length == 0) return 0;
    const uint32_t last = position + length - 1 < width - 1 ? position + length - 1 : width - 1;
    const bool sign = is_signed && (a >> last & 1);
    const uint64_t field = position < width ? a >> position : 0;
    const uint32_t kept =
        position < width ? last - position + 1 : 0; /* bits that are the field's; above them the sign */
    if (kept >= 64) return field;
    const uint64_t mask = (UINT64_C(1) << kept) - 1;
    return (field & mask) | (sign ? ~mask : 0);
}

static uint64_t insert_field(uint64_t a, uint64_t base, uint32_t position, uint32_t length, uint32_t width)
{
    if (length == 0 || position >= width) return base;
    const uint64_t ones = length >= 64 ? UINT64_MAX : (UINT64_C(1) << length) - 1;
    const uint64_t mask = ones << position;
    return (base & ~mask) | (a << position & mask);
}

/* Position and length are the low bytes of their operands. */
void exec_bfe(warp *w, const instruction *i)
{
    const emulator_type type = i->mods.type[0];
    const uint32_t width = 8u * (uint32_t)type_bytes(type);
    lanes64 room, d;
    lanes32 position_room, length_room;
    uint32_t defined[3];
    const uint64_t *a = read_lanes64(w, &i->operand[1], type, &room, &defined[0]);
    const uint32_t *position = read_lanes32(w, &i->operand[2], TYPE_U32, &position_room, &defined[1]);
    const uint32_t *length = read_lanes32(w, &i->operand[3], TYPE_U32, &length_room, &defined[2]);
    for (int l = 0; l < LANES; l++)
        d.v[l] = extract_field(a[l], position[l] & 0xff, length[l] & 0xff, width, type_is_signed(type));
    write_lanes64(w, &i->operand[0], type, d.v, defined[0] & defined[1] & defined[2]);
}

void exec_bfi(warp *w, const instruction *i)
{
    const emulator_type type = i->mods.type[0];
    const uint32_t width = 8u * (uint32_t)type_bytes(type);
    lanes64 room[2], d;
    lanes32 position_room, length_room;
    uint32_t defined[4];
    const uint64_t *a = read_lanes64(w, &i->operand[1], type, &room[0], &defined[0]);
    const uint64_t *base = read_lanes64(w, &i->operand[2], type, &room[1], &defined[1]);
    const uint32_t *position = read_lanes32(w, &i->operand[3], TYPE_U32, &position_room, &defined[2]);
    const uint32_t *length = read_lanes32(w, &i->operand[4], TYPE_U32, &length_room, &defined[3]);
    for (int l = 0; l < LANES; l++) d.v[l] = insert_field(a[l], base[l], position[l] & 0xff, length[l] & 0xff, width);
    write_lanes64(w, &i->operand[0], type, d.v, defined[0] & defined[1] & defined[2] & defined[3]);
}

/* ---- Counts: results are 32-bit ---- */

static uint64_t reverse_bits(uint64_t v, uint32_t width)
{
    uint64_t d = 0;
    for (uint32_t k = 0; k < width; k++) d |= (v >> k & 1) << (width - 1 - k);
    return d;
}

void exec_brev(warp *w, const instruction *i)
{
    const emulator_type type = i->mods.type[0];
    const uint32_t width = 8u * (uint32_t)type_bytes(type);
    lanes64 room, d;
    uint32_t defined;
    const uint64_t *a = read_lanes64(w, &i->operand[1], type, &room, &defined);
    for (int l = 0; l < LANES; l++) d.v[l] = reverse_bits(a[l], width);
    write_lanes64(w, &i->operand[0], type, d.v, defined);
}

/* The highest bit that differs from the sign (of a negative number a 0), or all ones if there is none. */
static uint32_t highest_bit(uint64_t v, bool is_signed, uint32_t width, bool shift_amount)
{
    if (is_signed && (int64_t)v < 0) v = ~v;
    if (v == 0) return UINT32_MAX;
    const uint32_t bit = 63u - (uint32_t)__builtin_clzll(v);
    return shift_amount ? width - 1 - bit : bit;
}

void exec_bfind(warp *w, const instruction *i)
{
    const emulator_type type = i->mods.type[0];
    const uint32_t width = 8u * (uint32_t)type_bytes(type);
    lanes64 room;
    lanes32 d;
    uint32_t defined;
    const uint64_t *a = read_lanes64(w, &i->operand[1], type, &room, &defined);
    for (int l = 0; l < LANES; l++)
        d.v[l] = highest_bit(a[l], type_is_signed(type), width, (i->mods.extra & EXTRA_SHIFTAMT) != 0);
    write_lanes32(w, &i->operand[0], TYPE_U32, d.v, defined);
}

void exec_popc(warp *w, const instruction *i)
{
    lanes64 room;
    lanes32 d;
    uint32_t defined;
    const uint64_t *a = read_lanes64(w, &i->operand[1], i->mods.type[0], &room, &defined);
    for (int l = 0; l < LANES; l++) d.v[l] = (uint32_t)__builtin_popcountll(a[l]);
    write_lanes32(w, &i->operand[0], TYPE_U32, d.v, defined);
}

void exec_clz(warp *w, const instruction *i)
{
    const emulator_type type = i->mods.type[0];
    const uint32_t width = 8u * (uint32_t)type_bytes(type);
    lanes64 room;
    lanes32 d;
    uint32_t defined;
    const uint64_t *a = read_lanes64(w, &i->operand[1], type, &room, &defined);
    for (int l = 0; l < LANES; l++) d.v[l] = a[l] == 0 ? width : (uint32_t)__builtin_clzll(a[l]) - (64 - width);
    write_lanes32(w, &i->operand[0], TYPE_U32, d.v, defined);
}
