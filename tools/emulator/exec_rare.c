/* Integer instructions that compilers emit now and then: selections by sign, sums of differences, 24-bit products, bit
 * masks, sums of byte products, pairs of 16-bit integers. */
#include "scalar.h"

/* slct.type.s32: a if c >= 0, else b; slct.type.f32: -0 counts as 0, NaN as negative. */
void exec_slct(warp *w, const instruction *i)
{
    const emulator_type type = i->mods.type[0];
    const bool by_float = i->mods.type[1] == TYPE_F32;
    lanes64 room[2], d;
    lanes32 room_c;
    uint32_t defined[3];
    const uint64_t *a = read_lanes64(w, &i->operand[1], type, &room[0], &defined[0]);
    const uint64_t *b = read_lanes64(w, &i->operand[2], type, &room[1], &defined[1]);
    const uint32_t *c = warp_read32(w, &i->operand[3], &room_c, &defined[2]);
    uint32_t first = 0;
    for (int l = 0; l < LANES; l++) {
        const bool nan = (c[l] & 0x7fffffff) > 0x7f800000, zero = c[l] == 0x80000000;
        const bool holds = by_float ? !nan && (!(c[l] >> 31) || zero) : !(c[l] >> 31);
        d.v[l] = holds ? a[l] : b[l];
        if (holds) first |= lane_bits[l];
    }
    write_lanes64(w, &i->operand[0], type, d.v, ((first & defined[0]) | (~first & defined[1])) & defined[2]);
}

void exec_sad(warp *w, const instruction *i)
{
    const emulator_type type = i->mods.type[0];
    lanes64 room[3], d;
    uint32_t defined[3];
    const uint64_t *a = read_lanes64(w, &i->operand[1], type, &room[0], &defined[0]);
    const uint64_t *b = read_lanes64(w, &i->operand[2], type, &room[1], &defined[1]);
    const uint64_t *c = read_lanes64(w, &i->operand[3], type, &room[2], &defined[2]);
    for (int l = 0; l < LANES; l++) {
        const bool less = type_is_signed(type) ? (int64_t)a[l] < (int64_t)b[l] : a[l] < b[l];
        d.v[l] = c[l] + (less ? b[l] - a[l] : a[l] - b[l]);
    }
    write_lanes64(w, &i->operand[0], type, d.v, defined[0] & defined[1] & defined[2]);
}

/* ---- 24 bits ---- */

/* Bits 0 to 31 or 16 to 47 of the product of the low 24 bits. */
static uint32_t product24(uint32_t a, uint32_t b, bool is_signed, bool high)
{
    const int64_t x = is_signed ? (int32_t)(a << 8) >> 8 : (int64_t)(a & 0xffffff);
    const int64_t y = is_signed ? (int32_t)(b << 8) >> 8 : (int64_t)(b & 0xffffff);
    return (uint32_t)((uint64_t)(x * y) >> (high ? 16 : 0));
}

void exec_mul24(warp *w, const instruction *i)
{
    const bool is_signed = i->mods.type[0] == TYPE_S32, high = i->mods.high;
    BINARY32(TYPE_U32, uint32_t, product24(x, y, is_signed, high));
}

static uint32_t add_saturated(uint32_t a, uint32_t b)
{
    const int64_t v = (int64_t)(int32_t)a + (int32_t)b;
    return (uint32_t)(int32_t)(v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : v);
}

void exec_mad24(warp *w, const instruction *i)
{
    const bool is_signed = i->mods.type[0] == TYPE_S32, high = i->mods.high;
    if (i->mods.saturate)
        TERNARY32(TYPE_U32, uint32_t, add_saturated(product24(x, y, true, true), z));
    else
        TERNARY32(TYPE_U32, uint32_t, product24(x, y, is_signed, high) + z);
}

/* ---- Masks ---- */

/* b ones from bit a on. With .clamp positions and widths of 32 and more are what they are, else their low five bits. */
static uint32_t mask_of(uint32_t a, uint32_t b, bool clamp)
{
    if (clamp && a >= 32) return 0;
    const uint32_t from = a & 31, end = from + (b & 31);
    const uint32_t above = (clamp && b >= 32) || end >= 32 ? 0 : UINT32_MAX << end;
    return UINT32_MAX << from & ~above;
}

void exec_bmsk(warp *w, const instruction *i)
{
    const bool clamp = (i->mods.extra & EXTRA_CLAMP) != 0;
    BINARY32(TYPE_U32, uint32_t, mask_of(x, y, clamp));
}

/* The low b bits of a, extended by their sign or by zeros. */
static uint32_t extend_field(uint32_t a, uint32_t b, bool is_signed, bool clamp)
{
    if (clamp && b >= 32) return a;
    const uint32_t width = b & 31, above = UINT32_MAX << width;
    const bool negative = is_signed && width != 0 && a >> (width - 1) & 1;
    return (a & ~above) | (negative ? above : 0);
}

void exec_szext(warp *w, const instruction *i)
{
    const bool is_signed = i->mods.type[0] == TYPE_S32, clamp = (i->mods.extra & EXTRA_CLAMP) != 0;
    BINARY32(TYPE_U32, uint32_t, extend_field(x, y, is_signed, clamp));
}

/* The n-th set bit from `base` on, upwards for n > 0 and downwards for n < 0; base itself for 0. */
static uint32_t nth_set(uint32_t mask, uint32_t base, uint32_t offset)
{
    if (base > 31) return UINT32_MAX;
    if (offset == 0) return mask >> base & 1 ? base : UINT32_MAX;
    const bool down = offset >> 31;
    uint32_t left = down ? 0 - offset : offset;
    for (int at = (int)base; at >= 0 && at < 32; at += down ? -1 : 1)
        if (mask >> at & 1 && --left == 0) return (uint32_t)at;
    return UINT32_MAX;
}

void exec_fns(warp *w, const instruction *i)
{
    TERNARY32(TYPE_U32, uint32_t, nth_set(x, y, z));
}

/* ---- Sums of products of parts ---- */

static int64_t part_of(uint32_t v, int index, int bits, bool is_signed)
{
    const uint32_t part = v >> (index * bits) & ((1u << bits) - 1);
    return is_signed && part >> (bits - 1) & 1 ? (int64_t)part - (1 << bits) : (int64_t)part;
}

void exec_dp4a(warp *w, const instruction *i)
{
    const bool first = i->mods.type[0] == TYPE_S32, second = i->mods.type[1] == TYPE_S32;
    lanes32 room[3], d;
    uint32_t defined[3];
    const uint32_t *a = warp_read32(w, &i->operand[1], &room[0], &defined[0]);
    const uint32_t *b = warp_read32(w, &i->operand[2], &room[1], &defined[1]);
    const uint32_t *c = warp_read32(w, &i->operand[3], &room[2], &defined[2]);
    for (int l = 0; l < LANES; l++) {
        int64_t sum = c[l];
        for (int k = 0; k < 4; k++) sum += part_of(a[l], k, 8, first) * part_of(b[l], k, 8, second);
        d.v[l] = (uint32_t)sum;
    }
    warp_write32(w, &i->operand[0], d.v, defined[0] & defined[1] & defined[2]);
}

/* Two halves of a with the lower or upper two bytes of b. */
void exec_dp2a(warp *w, const instruction *i)
{
    const bool first = i->mods.type[0] == TYPE_S32, second = i->mods.type[1] == TYPE_S32;
    const int from = i->mods.high ? 2 : 0;
    lanes32 room[3], d;
    uint32_t defined[3];
    const uint32_t *a = warp_read32(w, &i->operand[1], &room[0], &defined[0]);
    const uint32_t *b = warp_read32(w, &i->operand[2], &room[1], &defined[1]);
    const uint32_t *c = warp_read32(w, &i->operand[3], &room[2], &defined[2]);
    for (int l = 0; l < LANES; l++) {
        int64_t sum = c[l];
        for (int k = 0; k < 2; k++) sum += part_of(a[l], k, 16, first) * part_of(b[l], from + k, 8, second);
        d.v[l] = (uint32_t)sum;
    }
    warp_write32(w, &i->operand[0], d.v, defined[0] & defined[1] & defined[2]);
}

/* ---- Pairs of 16 bits ---- */

static uint32_t pair_operation(const instruction *i, uint32_t a, uint32_t b, int operation)
{
    const bool is_signed = i->mods.type[0] == TYPE_S16X2, relu = (i->mods.extra & EXTRA_RELU) != 0;
    uint32_t d = 0;
    for (int k = 0; k < 2; k++) {
        const int64_t x = part_of(a, k, 16, is_signed), y = part_of(b, k, 16, is_signed);
        int64_t v = operation == MODE_ADD ? x + y : operation == MODE_MIN ? (x < y ? x : y) : (x > y ? x : y);
        if (relu && v < 0) v = 0;
        if (i->mods.saturate && is_signed) v = v > INT16_MAX ? INT16_MAX : v < INT16_MIN ? INT16_MIN : v;
        if (i->mods.saturate && !is_signed) v = v > UINT16_MAX ? UINT16_MAX : v;
        d |= ((uint32_t)v & 0xffff) << (16 * k);
    }
    return d;
}

void exec_add_pair(warp *w, const instruction *i)
{
    BINARY32(TYPE_U32, uint32_t, pair_operation(i, x, y, MODE_ADD));
}
void exec_min_pair(warp *w, const instruction *i)
{
    BINARY32(TYPE_U32, uint32_t, pair_operation(i, x, y, MODE_MIN));
}
void exec_max_pair(warp *w, const instruction *i)
{
    BINARY32(TYPE_U32, uint32_t, pair_operation(i, x, y, MODE_MAX));
}

/* cvt.pack: two integers of 32 bits saturated and side by side, the first above; of bytes also the low half of c above
 * them. */
void exec_cvt_pack(warp *w, const instruction *i)
{
    const emulator_type to = i->mods.type[0];
    const int bits = 8 * type_bytes(to);
    const int64_t most = type_is_signed(to) ? (INT64_C(1) << (bits - 1)) - 1 : (INT64_C(1) << bits) - 1;
    const int64_t least = type_is_signed(to) ? -most - 1 : 0;
    lanes32 room[3], d = {{0}};
    uint32_t defined[3] = {UINT32_MAX, UINT32_MAX, UINT32_MAX};
    const uint32_t *c = NULL;
    if (i->operands > 3) c = warp_read32(w, &i->operand[3], &room[2], &defined[2]);
    for (int s = 0; s < 2; s++) {
        const uint32_t *v = warp_read32(w, &i->operand[1 + s], &room[s], &defined[s]);
        for (int l = 0; l < LANES; l++) {
            const int64_t x = i->mods.type[1] == TYPE_U32 ? (int64_t)v[l] : (int32_t)v[l];
            const int64_t kept = x > most ? most : x < least ? least : x;
            d.v[l] |= ((uint32_t)kept & ((1u << bits) - 1)) << (s == 0 ? bits : 0);
        }
    }
    for (int l = 0; c != NULL && l < LANES; l++) d.v[l] |= c[l] << (2 * bits);
    warp_write32(w, &i->operand[0], d.v, defined[0] & defined[1] & defined[2]);
}
