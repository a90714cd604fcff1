/* What the handlers of scalar instructions share: sources and results by the type of the instruction, and loops over
 * all 32 lanes.
 *
 * Inactive lanes are computed too, from whatever their registers hold, because a loop of 32 vectorises; warp_write*
 * drops them. */
#ifndef FOSCAR_EMULATOR_SCALAR_H
#define FOSCAR_EMULATOR_SCALAR_H

#include <string.h>

#include "exec.h"

static inline bool type_is_signed(emulator_type type)
{
    return type == TYPE_S8 || type == TYPE_S16 || type == TYPE_S32 || type == TYPE_S64;
}

static inline bool type_is_integer(emulator_type type)
{
    return type >= TYPE_B8 && type <= TYPE_S64;
}

/* A 32-bit value that holds the low bits of v as the type says: sign- or zero-extended. */
static inline uint32_t extend32(uint32_t v, emulator_type type)
{
    switch (type_bytes(type)) {
    case 1:
        return type_is_signed(type) ? (uint32_t)(int32_t)(int8_t)v : (uint8_t)v;
    case 2:
        return type_is_signed(type) ? (uint32_t)(int32_t)(int16_t)v : (uint16_t)v;
    default:
        return v;
    }
}

static inline uint64_t extend64(uint64_t v, emulator_type type)
{
    if (type_bytes(type) == 8) return v;
    uint32_t low = extend32((uint32_t)v, type);
    return type_is_signed(type) ? (uint64_t)(int64_t)(int32_t)low : low;
}

/* How many bytes an operand's own register has, or fallback if it is none. */
static inline int operand_bytes(const operand *o, int fallback)
{
    return o->kind == OPERAND_REGISTER && o->reg.type != TYPE_PRED ? type_bytes(o->reg.type) : fallback;
}

/* A source of at most 32 bits, extended as the type says. A wider register gives its low bits. */
static inline const uint32_t *read_lanes32(warp *w, const operand *o, emulator_type type, lanes32 *room,
                                           uint32_t *defined)
{
    if (operand_bytes(o, 4) == 8) {
        lanes64 wide;
        const uint64_t *v = warp_read64(w, o, &wide, defined);
        for (int l = 0; l < LANES; l++) room->v[l] = extend32((uint32_t)v[l], type);
        return room->v;
    }
    const uint32_t *v = warp_read32(w, o, room, defined);
    if (type_bytes(type) == 4) return v;
    for (int l = 0; l < LANES; l++) room->v[l] = extend32(v[l], type);
    return room->v;
}

/* A source of any integer type in 64 bits, extended as the type says. */
static inline const uint64_t *read_lanes64(warp *w, const operand *o, emulator_type type, lanes64 *room,
                                           uint32_t *defined)
{
    if (type_bytes(type) == 8 && operand_bytes(o, 8) == 8) return warp_read64(w, o, room, defined);
    lanes32 narrow;
    const uint32_t *v = read_lanes32(w, o, type, &narrow, defined);
    for (int l = 0; l < LANES; l++) room->v[l] = extend64(v[l], type);
    return room->v;
}

/* Writes a result of at most 32 bits; a wider register than the type gets it extended as the type says, a narrower its
 * low bits. */
static inline void write_lanes32(warp *w, const operand *o, emulator_type type, const uint32_t *v, uint32_t defined)
{
    if (o->kind == OPERAND_SINK) return;
    int bytes = operand_bytes(o, type_bytes(type));
    if (bytes == 8) {
        lanes64 wide;
        for (int l = 0; l < LANES; l++) wide.v[l] = extend64(v[l], type);
        warp_write64(w, o, wide.v, defined);
        return;
    }
    if (bytes == 4 && type_bytes(type) == 4) {
        warp_write32(w, o, v, defined);
        return;
    }
    lanes32 extended;
    const uint32_t mask = bytes == 4 ? UINT32_MAX : bytes == 2 ? UINT16_MAX : UINT8_MAX;
    for (int l = 0; l < LANES; l++) extended.v[l] = extend32(v[l], type) & mask;
    warp_write32(w, o, extended.v, defined);
}

static inline void write_lanes64(warp *w, const operand *o, emulator_type type, const uint64_t *v, uint32_t defined)
{
    if (o->kind == OPERAND_SINK) return;
    if (type_bytes(type) == 8 && operand_bytes(o, 8) == 8) {
        warp_write64(w, o, v, defined);
        return;
    }
    lanes32 narrow;
    for (int l = 0; l < LANES; l++) narrow.v[l] = (uint32_t)v[l];
    write_lanes32(w, o, type, narrow.v, defined);
}

static inline bool all_defined(const warp *w, uint32_t defined)
{
    return (defined & w->active) == w->active;
}

/* ---- Loops over lanes: the expression is of x, y, z, the sources of type T in operands 1, 2, 3; the result goes to
 * operand 0 ---- */

#define UNARY32(type, T, expression)                                                                                   \
    do {                                                                                                               \
        lanes32 room_, d_;                                                                                             \
        uint32_t defined_;                                                                                             \
        const uint32_t *x_ = read_lanes32(w, &i->operand[1], type, &room_, &defined_);                                 \
        for (int l_ = 0; l_ < LANES; l_++) {                                                                           \
            const T x = (T)x_[l_];                                                                                     \
            d_.v[l_] = (uint32_t)(expression);                                                                         \
        }                                                                                                              \
        write_lanes32(w, &i->operand[0], type, d_.v, defined_);                                                        \
    } while (0)

#define UNARY64(T, expression)                                                                                         \
    do {                                                                                                               \
        lanes64 room_, d_;                                                                                             \
        uint32_t defined_;                                                                                             \
        const uint64_t *x_ = warp_read64(w, &i->operand[1], &room_, &defined_);                                        \
        for (int l_ = 0; l_ < LANES; l_++) {                                                                           \
            const T x = (T)x_[l_];                                                                                     \
            d_.v[l_] = (uint64_t)(expression);                                                                         \
        }                                                                                                              \
        warp_write64(w, &i->operand[0], d_.v, defined_);                                                               \
    } while (0)

#define BINARY32(type, T, expression)                                                                                  \
    do {                                                                                                               \
        lanes32 room_[2], d_;                                                                                          \
        uint32_t defined_[2];                                                                                          \
        const uint32_t *x_ = read_lanes32(w, &i->operand[1], type, &room_[0], &defined_[0]);                           \
        const uint32_t *y_ = read_lanes32(w, &i->operand[2], type, &room_[1], &defined_[1]);                           \
        for (int l_ = 0; l_ < LANES; l_++) {                                                                           \
            const T x = (T)x_[l_], y = (T)y_[l_];                                                                      \
            d_.v[l_] = (uint32_t)(expression);                                                                         \
        }                                                                                                              \
        write_lanes32(w, &i->operand[0], type, d_.v, defined_[0] & defined_[1]);                                       \
    } while (0)

#define BINARY64(T, expression)                                                                                        \
    do {                                                                                                               \
        lanes64 room_[2], d_;                                                                                          \
        uint32_t defined_[2];                                                                                          \
        const uint64_t *x_ = warp_read64(w, &i->operand[1], &room_[0], &defined_[0]);                                  \
        const uint64_t *y_ = warp_read64(w, &i->operand[2], &room_[1], &defined_[1]);                                  \
        for (int l_ = 0; l_ < LANES; l_++) {                                                                           \
            const T x = (T)x_[l_], y = (T)y_[l_];                                                                      \
            d_.v[l_] = (uint64_t)(expression);                                                                         \
        }                                                                                                              \
        warp_write64(w, &i->operand[0], d_.v, defined_[0] & defined_[1]);                                              \
    } while (0)

#define TERNARY32(type, T, expression)                                                                                 \
    do {                                                                                                               \
        lanes32 room_[3], d_;                                                                                          \
        uint32_t defined_[3];                                                                                          \
        const uint32_t *x_ = read_lanes32(w, &i->operand[1], type, &room_[0], &defined_[0]);                           \
        const uint32_t *y_ = read_lanes32(w, &i->operand[2], type, &room_[1], &defined_[1]);                           \
        const uint32_t *z_ = read_lanes32(w, &i->operand[3], type, &room_[2], &defined_[2]);                           \
        for (int l_ = 0; l_ < LANES; l_++) {                                                                           \
            const T x = (T)x_[l_], y = (T)y_[l_], z = (T)z_[l_];                                                       \
            d_.v[l_] = (uint32_t)(expression);                                                                         \
        }                                                                                                              \
        write_lanes32(w, &i->operand[0], type, d_.v, defined_[0] & defined_[1] & defined_[2]);                         \
    } while (0)

#define TERNARY64(T, expression)                                                                                       \
    do {                                                                                                               \
        lanes64 room_[3], d_;                                                                                          \
        uint32_t defined_[3];                                                                                          \
        const uint64_t *x_ = warp_read64(w, &i->operand[1], &room_[0], &defined_[0]);                                  \
        const uint64_t *y_ = warp_read64(w, &i->operand[2], &room_[1], &defined_[1]);                                  \
        const uint64_t *z_ = warp_read64(w, &i->operand[3], &room_[2], &defined_[2]);                                  \
        for (int l_ = 0; l_ < LANES; l_++) {                                                                           \
            const T x = (T)x_[l_], y = (T)y_[l_], z = (T)z_[l_];                                                       \
            d_.v[l_] = (uint64_t)(expression);                                                                         \
        }                                                                                                              \
        warp_write64(w, &i->operand[0], d_.v, defined_[0] & defined_[1] & defined_[2]);                                \
    } while (0)

/* The lanes of which the condition, of x and y, holds. */
#define COMPARE_LANES(mask, T, a, b, condition)                                                                        \
    do {                                                                                                               \
        uint32_t m_ = 0;                                                                                               \
        for (int l_ = 0; l_ < LANES; l_++) {                                                                           \
            const T x = (T)(a)[l_], y = (T)(b)[l_];                                                                    \
            m_ |= (condition) ? lane_bits[l_] : 0;                                                                     \
        }                                                                                                              \
        (mask) = m_;                                                                                                   \
    } while (0)

extern const uint32_t
    lane_bits[LANES]; /* 1 << lane: a table, because a shift by the lane keeps loops from vectorising */

enum { SETP_P, SETP_Q, SETP_A, SETP_B, SETP_C }; /* places of setp's operands */

/* Writes the one or two predicates of setp: holds, and its complement, combined with the third source if the form has
 * one. */
void write_comparison(warp *w, const instruction *i, uint32_t holds, uint32_t defined);

#endif
