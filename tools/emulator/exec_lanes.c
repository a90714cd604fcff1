/* Instructions between the lanes of a warp. Once gathered, the active lanes are those of the member mask. */
#include <math.h>

#include "flow.h"
#include "numbers.h"
#include "scalar.h"

/* False: lanes of the member mask are still on their way, and the instruction is executed again when they have come.
 * Lanes with another mask have the instruction to themselves, after this. */
static bool gather(warp *w, const operand *mask)
{
    lanes32 room;
    uint32_t defined, same = 0;
    const uint32_t *members = warp_read32(w, mask, &room, &defined);
    const int first = __builtin_ctz(w->active);
    if (w->active & ~defined)
        machine_fault(w->m, w, w->at, EMULATOR_UNDEFINED, "the member mask is undefined in lanes %08x",
                      w->active & ~defined);
    for (int l = first; l < LANES; l++)
        if (members[l] == members[first]) same |= lane_bits[l];
    if (w->active & ~same) flow_set_apart(w, w->active & same);
    return warp_gather(w, members[first]);
}

/* ---- shfl.sync d|p, a, b, c, mask ---- */

/* c: bits 0-4 the clamp, bits 8-12 the mask of the bits of a lane that are its segment. False: the source is beyond the
 * segment. */
static bool source_lane(uint8_t mode, int lane, uint32_t b, uint32_t c, int *source)
{
    const int segment = c >> 8 & 31, clamp = c & 31, offset = b & 31;
    const int highest = (lane & segment) | (clamp & ~segment), lowest = lane & segment;
    bool inside;
    switch (mode) {
    case MODE_SHFL_UP:
        *source = lane - offset, inside = *source >= highest;
        break;
    case MODE_SHFL_DOWN:
        *source = lane + offset, inside = *source <= highest;
        break;
    case MODE_SHFL_BFLY:
        *source = lane ^ offset, inside = *source <= highest;
        break;
    default:
        *source = lowest | (offset & ~segment), inside = *source <= highest;
        break;
    }
    if (!inside) *source = lane;
    return inside;
}

void exec_shfl(warp *w, const instruction *i)
{
    lanes32 room[3], d;
    uint32_t a_defined, b_defined, c_defined;
    if (!gather(w, &i->operand[5])) return;
    const uint32_t *a = warp_read32(w, &i->operand[2], &room[0], &a_defined);
    const uint32_t *b = warp_read32(w, &i->operand[3], &room[1], &b_defined);
    const uint32_t *c = warp_read32(w, &i->operand[4], &room[2], &c_defined);
    uint32_t from_defined = 0, inside = 0;
    for (int l = 0; l < LANES; l++) {
        int source;
        if (source_lane(i->mods.mode, l, b[l], c[l], &source)) inside |= lane_bits[l];
        d.v[l] = a[source];
        /* What comes from a lane that does not execute the instruction is undefined. */
        if (a_defined & w->active & lane_bits[source]) from_defined |= lane_bits[l];
    }
    const operand *p = &i->operand[1];
    if (i->operand[0].kind != OPERAND_SINK) warp_write32(w, &i->operand[0], d.v, from_defined & b_defined & c_defined);
    if (p->kind == OPERAND_REGISTER) warp_write_predicate(w, p, inside, b_defined & c_defined);
}

/* ---- vote.sync ---- */

/* One undefined vote makes the result undefined for all, unless the others decide it. */
void exec_vote(warp *w, const instruction *i)
{
    uint32_t defined;
    if (!gather(w, &i->operand[2])) return;
    const uint32_t p = warp_read_predicate(w, &i->operand[1], &defined) & w->active;
    const bool all = p == w->active, any = p != 0, known = all_defined(w, defined);
    const bool some_false = (w->active & ~p & defined) != 0, some_true = (p & defined) != 0;
    switch (i->mods.mode) {
    case MODE_ALL:
        warp_write_predicate(w, &i->operand[0], all ? UINT32_MAX : 0, known || some_false ? UINT32_MAX : 0);
        break;
    case MODE_ANY:
        warp_write_predicate(w, &i->operand[0], any ? UINT32_MAX : 0, known || some_true ? UINT32_MAX : 0);
        break;
    case MODE_UNI:
        warp_write_predicate(w, &i->operand[0], all || !any ? UINT32_MAX : 0,
                             known || (some_false && some_true) ? UINT32_MAX : 0);
        break;
    default: {
        lanes32 d;
        for (int l = 0; l < LANES; l++) d.v[l] = p;
        warp_write32(w, &i->operand[0], d.v, known ? UINT32_MAX : 0);
    }
    }
}

/* ---- redux.sync ---- */

/* A NaN loses, or wins with .NaN. */
static uint32_t reduce_floats(uint32_t x, uint32_t y, bool largest, bool nan_wins)
{
    const float a = f32_value(x), b = f32_value(y);
    if (isnan(a) || isnan(b)) return nan_wins || (isnan(a) && isnan(b)) ? (uint32_t)F32_NAN : isnan(a) ? y : x;
    if (a == b) return largest == (signbit(a) != 0) ? y : x;
    return (a < b) != largest ? x : y;
}

static uint32_t reduce(const instruction *i, uint32_t x, uint32_t y)
{
    const emulator_type type = i->mods.type[0];
    const bool largest = i->mods.mode == MODE_MAX;
    switch (i->mods.mode) {
    case MODE_ADD:
        return x + y;
    case MODE_AND:
        return x & y;
    case MODE_OR:
        return x | y;
    case MODE_XOR:
        return x ^ y;
    default:
        if (type == TYPE_F32) return reduce_floats(x, y, largest, (i->mods.extra & EXTRA_NAN) != 0);
        if (type == TYPE_S32) return ((int32_t)x < (int32_t)y) != largest ? x : y;
        return (x < y) != largest ? x : y;
    }
}

void exec_redux(warp *w, const instruction *i)
{
    lanes32 room, d;
    uint32_t defined;
    if (!gather(w, &i->operand[2])) return;
    const uint32_t *a = warp_read32(w, &i->operand[1], &room, &defined);
    uint32_t lanes = w->active, sum = a[__builtin_ctz(lanes)];
    for (lanes &= lanes - 1; lanes != 0; lanes &= lanes - 1) sum = reduce(i, sum, a[__builtin_ctz(lanes)]);
    if (i->mods.type[0] == TYPE_F32) sum = f32_canonical(sum);
    for (int l = 0; l < LANES; l++) d.v[l] = sum;
    warp_write32(w, &i->operand[0], d.v, all_defined(w, defined) ? UINT32_MAX : 0);
}

/* ---- elect, match, activemask ---- */

/* The ISA leaves the choice to the machine; here the lowest lane leads. */
void exec_elect(warp *w, const instruction *i)
{
    if (!gather(w, &i->operand[2])) return;
    const int leader = __builtin_ctz(w->active);
    lanes32 d;
    for (int l = 0; l < LANES; l++) d.v[l] = (uint32_t)leader;
    if (i->operand[0].kind == OPERAND_REGISTER) warp_write32(w, &i->operand[0], d.v, UINT32_MAX);
    if (i->operand[1].kind == OPERAND_REGISTER) warp_write_predicate(w, &i->operand[1], lane_bits[leader], UINT32_MAX);
}

void exec_match(warp *w, const instruction *i)
{
    lanes64 room;
    lanes32 d;
    uint32_t defined, equal_to_all = 0;
    if (!gather(w, &i->operand[3])) return;
    const uint64_t *a = read_lanes64(w, &i->operand[2], i->mods.type[0], &room, &defined);
    for (int l = 0; l < LANES; l++) {
        d.v[l] = 0;
        for (uint32_t lanes = w->active; lanes != 0; lanes &= lanes - 1) {
            const int other = __builtin_ctz(lanes);
            if (a[other] == a[l]) d.v[l] |= lane_bits[other];
        }
        if (d.v[l] == w->active) equal_to_all |= lane_bits[l];
    }
    defined = all_defined(w, defined) ? UINT32_MAX : 0;
    if (i->mods.mode == MODE_ALL) {
        for (int l = 0; l < LANES; l++) d.v[l] = equal_to_all & lane_bits[l] ? w->active : 0;
        if (i->operand[1].kind == OPERAND_REGISTER) warp_write_predicate(w, &i->operand[1], equal_to_all, defined);
    }
    if (i->operand[0].kind == OPERAND_REGISTER) warp_write32(w, &i->operand[0], d.v, defined);
}

void exec_activemask(warp *w, const instruction *i)
{
    lanes32 d;
    for (int l = 0; l < LANES; l++) d.v[l] = w->active;
    warp_write32(w, &i->operand[0], d.v, UINT32_MAX);
}
