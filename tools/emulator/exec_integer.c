/* Integer arithmetic of 16, 32 and 64 bits, comparisons, moves and selections. Results wrap, as the PTX ISA says,
 * unless .sat is given. */
#include "scalar.h"

__extension__ typedef __int128 int128;
__extension__ typedef unsigned __int128 uint128;

const uint32_t lane_bits[LANES] = {
    1u << 0,  1u << 1,  1u << 2,  1u << 3,  1u << 4,  1u << 5,  1u << 6,  1u << 7,  1u << 8,  1u << 9,  1u << 10,
    1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15, 1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20, 1u << 21,
    1u << 22, 1u << 23, 1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29, 1u << 30, 1u << 31,
};

static uint32_t saturate_s32(int64_t v)
{
    return (uint32_t)(int32_t)(v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : v);
}

/* ---- Sums and products ---- */

void exec_add_integer(warp *w, const instruction *i)
{
    const emulator_type type = i->mods.type[0];
    if (type_bytes(type) == 8)
        BINARY64(uint64_t, x + y);
    else if (i->mods.saturate)
        BINARY32(type, int32_t, saturate_s32((int64_t)x + y));
    else
        BINARY32(type, uint32_t, x + y);
}

void exec_sub_integer(warp *w, const instruction *i)
{
    const emulator_type type = i->mods.type[0];
    if (type_bytes(type) == 8)
        BINARY64(uint64_t, x - y);
    else if (i->mods.saturate)
        BINARY32(type, int32_t, saturate_s32((int64_t)x - y));
    else
        BINARY32(type, uint32_t, x - y);
}

/* A product of which one factor is a defined 0 is defined. */
static uint32_t product_defined(const warp *w, const uint64_t *a, uint32_t a_defined, const uint64_t *b,
                                uint32_t b_defined)
{
    if (all_defined(w, a_defined & b_defined)) return UINT32_MAX;
    uint32_t defined = a_defined & b_defined;
    for (int l = 0; l < LANES; l++) {
        if (((a_defined & lane_bits[l]) && a[l] == 0) || ((b_defined & lane_bits[l]) && b[l] == 0))
            defined |= lane_bits[l];
    }
    return defined;
}

static emulator_type wide_type(emulator_type type)
{
    switch (type) {
    case TYPE_S16:
        return TYPE_S32;
    case TYPE_S32:
        return TYPE_S64;
    case TYPE_U32:
        return TYPE_U64;
    default:
        return TYPE_U32;
    }
}

/* The upper half of a product of 64-bit values that hold factors of the type. */
static uint64_t product_high(uint64_t x, uint64_t y, emulator_type type)
{
    switch (type) {
    case TYPE_S64:
        return (uint64_t)(((int128)(int64_t)x * (int64_t)y) >> 64);
    case TYPE_U64:
        return (uint64_t)(((uint128)x * y) >> 64);
    default:
        return (x * y) >> (8 * type_bytes(type)); /* at most 32 bits: the product's low 64 bits are all of it */
    }
}

/* .hi and .wide, and products with a source that is not defined everywhere: one loop in 64 bits. */
static void multiply(warp *w, const instruction *i)
{
    const emulator_type type = i->mods.type[0];
    lanes64 room[2], d;
    uint32_t defined[2];
    const uint64_t *a = read_lanes64(w, &i->operand[1], type, &room[0], &defined[0]);
    const uint64_t *b = read_lanes64(w, &i->operand[2], type, &room[1], &defined[1]);
    if (i->mods.high) {
        for (int l = 0; l < LANES; l++) d.v[l] = product_high(a[l], b[l], type);
    } else {
        for (int l = 0; l < LANES; l++) d.v[l] = a[l] * b[l];
    }
    write_lanes64(w, &i->operand[0], i->mods.wide ? wide_type(type) : type, d.v,
                  product_defined(w, a, defined[0], b, defined[1]));
}

void exec_mul_integer(warp *w, const instruction *i)
{
    const emulator_type type = i->mods.type[0];
    if (i->mods.high || i->mods.wide || type_bytes(type) != 4) {
        multiply(w, i);
        return;
    }
    lanes32 room[2], d;
    uint32_t defined[2];
    const uint32_t *a = read_lanes32(w, &i->operand[1], type, &room[0], &defined[0]);
    const uint32_t *b = read_lanes32(w, &i->operand[2], type, &room[1], &defined[1]);
    if (!all_defined(w, defined[0] & defined[1])) {
        multiply(w, i);
        return;
    }
    for (int l = 0; l < LANES; l++) d.v[l] = a[l] * b[l];
    write_lanes32(w, &i->operand[0], type, d.v, UINT32_MAX);
}

/* mad.wide, .hi (of which .s32 may saturate), and those of 16 and 64 bits. */
static void multiply_add(warp *w, const instruction *i)
{
    const emulator_type type = i->mods.type[0], sum_type = i->mods.wide ? wide_type(type) : type;
    lanes64 room[3], d;
    uint32_t defined[3];
    const uint64_t *a = read_lanes64(w, &i->operand[1], type, &room[0], &defined[0]);
    const uint64_t *b = read_lanes64(w, &i->operand[2], type, &room[1], &defined[1]);
    const uint64_t *c = read_lanes64(w, &i->operand[3], sum_type, &room[2], &defined[2]);
    if (i->mods.high && i->mods.saturate) {
        for (int l = 0; l < LANES; l++) {
            const uint32_t high = (uint32_t)product_high(a[l], b[l], type);
            d.v[l] = saturate_s32((int64_t)(int32_t)high + (int32_t)c[l]);
        }
    } else if (i->mods.high) {
        for (int l = 0; l < LANES; l++) d.v[l] = product_high(a[l], b[l], type) + c[l];
    } else {
        for (int l = 0; l < LANES; l++) d.v[l] = a[l] * b[l] + c[l];
    }
    write_lanes64(w, &i->operand[0], sum_type, d.v, product_defined(w, a, defined[0], b, defined[1]) & defined[2]);
}

void exec_mad_integer(warp *w, const instruction *i)
{
    const emulator_type type = i->mods.type[0];
    if (i->mods.high || i->mods.wide || type_bytes(type) != 4)
        multiply_add(w, i);
    else
        TERNARY32(type, uint32_t, x * y + z);
}

/* ---- Quotients. The ISA leaves division by 0 to the machine: GPUs give all ones, for the remainder too ---- */

static uint64_t divide(uint64_t x, uint64_t y, bool is_signed)
{
    if (y == 0) return UINT64_MAX;
    if (!is_signed) return x / y;
    return y == UINT64_MAX ? -x : (uint64_t)((int64_t)x / (int64_t)y);
}

static uint64_t remainder_of(uint64_t x, uint64_t y, bool is_signed)
{
    if (y == 0) return UINT64_MAX;
    if (!is_signed) return x % y;
    return y == UINT64_MAX ? 0 : (uint64_t)((int64_t)x % (int64_t)y);
}

/* Inactive lanes hold anything, and their quotients would only take time. */
static void divide_lanes(warp *w, const instruction *i, uint64_t (*operation)(uint64_t, uint64_t, bool))
{
    const emulator_type type = i->mods.type[0];
    lanes64 room[2], d = {{0}};
    uint32_t defined[2];
    const uint64_t *a = read_lanes64(w, &i->operand[1], type, &room[0], &defined[0]);
    const uint64_t *b = read_lanes64(w, &i->operand[2], type, &room[1], &defined[1]);
    for (int l = 0; l < LANES; l++) {
        if (w->active & lane_bits[l]) d.v[l] = operation(a[l], b[l], type_is_signed(type));
    }
    write_lanes64(w, &i->operand[0], type, d.v, defined[0] & defined[1]);
}

void exec_div_integer(warp *w, const instruction *i)
{
    divide_lanes(w, i, divide);
}
void exec_rem_integer(warp *w, const instruction *i)
{
    divide_lanes(w, i, remainder_of);
}

/* ---- Minima, signs ---- */

void exec_min_integer(warp *w, const instruction *i)
{
    const emulator_type type = i->mods.type[0];
    if (type == TYPE_S64)
        BINARY64(int64_t, x < y ? x : y);
    else if (type_bytes(type) == 8)
        BINARY64(uint64_t, x < y ? x : y);
    else if (type_is_signed(type))
        BINARY32(type, int32_t, x < y ? x : y);
    else
        BINARY32(type, uint32_t, x < y ? x : y);
}

void exec_max_integer(warp *w, const instruction *i)
{
    const emulator_type type = i->mods.type[0];
    if (type == TYPE_S64)
        BINARY64(int64_t, x > y ? x : y);
    else if (type_bytes(type) == 8)
        BINARY64(uint64_t, x > y ? x : y);
    else if (type_is_signed(type))
        BINARY32(type, int32_t, x > y ? x : y);
    else
        BINARY32(type, uint32_t, x > y ? x : y);
}

void exec_abs_integer(warp *w, const instruction *i)
{
    const emulator_type type = i->mods.type[0];
    if (type_bytes(type) == 8)
        UNARY64(uint64_t, (int64_t)x < 0 ? -x : x);
    else
        UNARY32(type, uint32_t, (int32_t)x < 0 ? -x : x);
}

void exec_neg_integer(warp *w, const instruction *i)
{
    const emulator_type type = i->mods.type[0];
    if (type_bytes(type) == 8)
        UNARY64(uint64_t, -x);
    else
        UNARY32(type, uint32_t, -x);
}

/* ---- Comparisons ---- */

void write_comparison(warp *w, const instruction *i, uint32_t holds, uint32_t defined)
{
    uint32_t p = holds, q = ~holds;
    if (i->mods.boolean != 0) {
        uint32_t c_defined;
        const uint32_t c = warp_read_predicate(w, &i->operand[SETP_C], &c_defined);
        switch (i->mods.boolean) {
        case 1:
            p &= c, q &= c;
            break;
        case 2:
            p |= c, q |= c;
            break;
        default:
            p ^= c, q ^= c;
            break;
        }
        defined &= c_defined;
    }
    if (i->operand[SETP_P].kind == OPERAND_REGISTER) warp_write_predicate(w, &i->operand[SETP_P], p, defined);
    if (i->operand[SETP_Q].kind == OPERAND_REGISTER) warp_write_predicate(w, &i->operand[SETP_Q], q, defined);
}

#define COMPARE_INTEGERS(T)                                                                                            \
    switch (i->mods.compare) {                                                                                         \
    case COMPARE_EQ:                                                                                                   \
        COMPARE_LANES(holds, T, a, b, x == y);                                                                         \
        break;                                                                                                         \
    case COMPARE_NE:                                                                                                   \
        COMPARE_LANES(holds, T, a, b, x != y);                                                                         \
        break;                                                                                                         \
    case COMPARE_LT:                                                                                                   \
        COMPARE_LANES(holds, T, a, b, x < y);                                                                          \
        break;                                                                                                         \
    case COMPARE_LE:                                                                                                   \
        COMPARE_LANES(holds, T, a, b, x <= y);                                                                         \
        break;                                                                                                         \
    case COMPARE_GT:                                                                                                   \
        COMPARE_LANES(holds, T, a, b, x > y);                                                                          \
        break;                                                                                                         \
    case COMPARE_GE:                                                                                                   \
        COMPARE_LANES(holds, T, a, b, x >= y);                                                                         \
        break;                                                                                                         \
    default:                                                                                                           \
        machine_fault(w->m, w, i, EMULATOR_UNKNOWN_FORM, "%s compares integers as if they were floats", i->opcode);    \
    }

void exec_setp_integer(warp *w, const instruction *i)
{
    const emulator_type type = i->mods.type[0];
    uint32_t defined[2], holds = 0;
    if (type_bytes(type) == 8) {
        lanes64 room[2];
        const uint64_t *a = warp_read64(w, &i->operand[SETP_A], &room[0], &defined[0]);
        const uint64_t *b = warp_read64(w, &i->operand[SETP_B], &room[1], &defined[1]);
        if (type_is_signed(type)) {
            COMPARE_INTEGERS(int64_t)
        } else {
            COMPARE_INTEGERS(uint64_t)
        }
    } else {
        lanes32 room[2];
        const uint32_t *a = read_lanes32(w, &i->operand[SETP_A], type, &room[0], &defined[0]);
        const uint32_t *b = read_lanes32(w, &i->operand[SETP_B], type, &room[1], &defined[1]);
        if (type_is_signed(type)) {
            COMPARE_INTEGERS(int32_t)
        } else {
            COMPARE_INTEGERS(uint32_t)
        }
    }
    write_comparison(w, i, holds, defined[0] & defined[1]);
}

/* ---- Moves and selections ---- */

/* mov.b64 %rd, {%r0, %r1}: the first element is the lowest. */
static void move_pack(warp *w, const instruction *i)
{
    const int count = i->operand[1].count, bits = 8 * type_bytes(i->mods.type[0]) / count;
    const emulator_type part = bits == 8 ? TYPE_U8 : bits == 16 ? TYPE_U16 : TYPE_U32;
    lanes64 d = {{0}};
    uint32_t defined = UINT32_MAX;
    for (int e = 0; e < count; e++) {
        lanes32 room;
        uint32_t element_defined;
        const uint32_t *v = read_lanes32(w, operand_element(w, &i->operand[1], e), part, &room, &element_defined);
        for (int l = 0; l < LANES; l++) d.v[l] |= (uint64_t)v[l] << (e * bits);
        defined &= element_defined;
    }
    write_lanes64(w, &i->operand[0], i->mods.type[0], d.v, defined);
}

static void move_unpack(warp *w, const instruction *i)
{
    const int count = i->operand[0].count, bits = 8 * type_bytes(i->mods.type[0]) / count;
    const emulator_type part = bits == 8 ? TYPE_U8 : bits == 16 ? TYPE_U16 : TYPE_U32;
    lanes64 room, v;
    uint32_t defined;
    memcpy(&v, read_lanes64(w, &i->operand[1], i->mods.type[0], &room, &defined), sizeof v);
    for (int e = 0; e < count; e++) {
        const operand *to = operand_element(w, &i->operand[0], e);
        if (to->kind == OPERAND_SINK) continue;
        lanes32 d;
        for (int l = 0; l < LANES; l++) d.v[l] = (uint32_t)(v.v[l] >> (e * bits));
        write_lanes32(w, to, part, d.v, defined);
    }
}

void exec_mov(warp *w, const instruction *i)
{
    const emulator_type type = i->mods.type[0];
    uint32_t defined;
    if (type == TYPE_PRED) {
        const uint32_t p = warp_read_predicate(w, &i->operand[1], &defined);
        warp_write_predicate(w, &i->operand[0], p, defined);
    } else if (i->operand[1].kind == OPERAND_VECTOR) {
        move_pack(w, i);
    } else if (i->operand[0].kind == OPERAND_VECTOR) {
        move_unpack(w, i);
    } else if (type_bytes(type) == 8) {
        lanes64 room;
        const uint64_t *v = warp_read64(w, &i->operand[1], &room, &defined);
        warp_write64(w, &i->operand[0], v, defined);
    } else {
        lanes32 room;
        const uint32_t *v = read_lanes32(w, &i->operand[1], type, &room, &defined);
        write_lanes32(w, &i->operand[0], type, v, defined);
    }
}

/* The result is as defined as what was selected. */
void exec_selp(warp *w, const instruction *i)
{
    const emulator_type type = i->mods.type[0];
    uint32_t defined[3];
    const uint32_t p = warp_read_predicate(w, &i->operand[3], &defined[2]);
    if (type_bytes(type) == 8) {
        lanes64 room[2], d;
        const uint64_t *a = warp_read64(w, &i->operand[1], &room[0], &defined[0]);
        const uint64_t *b = warp_read64(w, &i->operand[2], &room[1], &defined[1]);
        for (int l = 0; l < LANES; l++) d.v[l] = p & lane_bits[l] ? a[l] : b[l];
        warp_write64(w, &i->operand[0], d.v, ((p & defined[0]) | (~p & defined[1])) & defined[2]);
    } else {
        lanes32 room[2], d;
        const uint32_t *a = read_lanes32(w, &i->operand[1], type, &room[0], &defined[0]);
        const uint32_t *b = read_lanes32(w, &i->operand[2], type, &room[1], &defined[1]);
        for (int l = 0; l < LANES; l++) d.v[l] = p & lane_bits[l] ? a[l] : b[l];
        write_lanes32(w, &i->operand[0], type, d.v, ((p & defined[0]) | (~p & defined[1])) & defined[2]);
    }
}

/* cvta.space d, a: generic from an address of the space; cvta.to.space: back. Global addresses are generic as they are.
 */
void exec_cvta(warp *w, const instruction *i)
{
    const emulator_type type = i->mods.type[0];
    const uint64_t window = i->mods.space == SPACE_SHARED  ? GENERIC_SHARED_WINDOW
                            : i->mods.space == SPACE_LOCAL ? GENERIC_LOCAL_WINDOW
                            : i->mods.space == SPACE_PARAM ? GENERIC_PARAM_WINDOW
                                                           : 0;
    lanes64 room, d;
    uint32_t defined;
    const uint64_t *a = read_lanes64(w, &i->operand[1], type, &room, &defined);
    for (int l = 0; l < LANES; l++) d.v[l] = i->mods.mode == MODE_CVTA_TO ? a[l] - window : a[l] + window;
    write_lanes64(w, &i->operand[0], type, d.v, defined);
}
