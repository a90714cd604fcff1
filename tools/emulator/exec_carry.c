/* Extended arithmetic: add.cc, subc and the like, which carry through a flag of each lane.
 *
 * A difference is a + ~b + 1, and the flag its carry: 1 if nothing was borrowed. The ISA calls the flag of sub.cc a
 * borrow, and for subc after sub.cc the two are the same; but nvcc's 128-bit division reads it by addc, and only the
 * carry makes that right. */
#include "scalar.h"

__extension__ typedef unsigned __int128 uint128;

/* The flag that the instruction takes: 0 where it takes none. */
static uint32_t carry_in(const warp *w, bool takes, uint32_t *defined)
{
    *defined = takes ? w->carry_defined : UINT32_MAX;
    return takes ? w->carry : 0;
}

/* Writes the results and, with .cc, the flag: bit `width` of each sum or difference. */
static void write_results(warp *w, const instruction *i, const uint64_t *low, uint32_t carry, uint32_t defined)
{
    write_lanes64(w, &i->operand[0], i->mods.type[0], low, defined);
    if (!(i->mods.extra & EXTRA_CC)) return;
    w->carry = (w->carry & ~w->active) | (carry & w->active);
    w->carry_defined = (w->carry_defined & ~w->active) | (defined & w->active);
}

/* Without a sign: the bits of sums and the carry out of them are the same for signed types. */
static emulator_type unsigned_type(emulator_type type)
{
    return type_bytes(type) == 8 ? TYPE_U64 : TYPE_U32;
}

static void sum(warp *w, const instruction *i, bool takes, bool subtracts)
{
    const emulator_type type = unsigned_type(i->mods.type[0]);
    const int width = 8 * type_bytes(type);
    lanes64 room[2], d;
    uint32_t defined[3], out = 0;
    const uint64_t *a = read_lanes64(w, &i->operand[1], type, &room[0], &defined[0]);
    const uint64_t *b = read_lanes64(w, &i->operand[2], type, &room[1], &defined[1]);
    const uint32_t in = takes ? carry_in(w, true, &defined[2]) : subtracts ? UINT32_MAX : 0;
    const uint64_t mask = UINT64_MAX >> (64 - width);
    if (!takes) defined[2] = UINT32_MAX;
    for (int l = 0; l < LANES; l++) {
        const uint128 second = (subtracts ? ~b[l] : b[l]) & mask;
        const uint128 v = (uint128)a[l] + second + (in >> l & 1);
        d.v[l] = (uint64_t)v;
        if (v >> width & 1) out |= lane_bits[l];
    }
    write_results(w, i, d.v, out, defined[0] & defined[1] & defined[2]);
}

void exec_add_carry(warp *w, const instruction *i)
{
    sum(w, i, false, false);
}
void exec_addc(warp *w, const instruction *i)
{
    sum(w, i, true, false);
}
void exec_sub_carry(warp *w, const instruction *i)
{
    sum(w, i, false, true);
}
void exec_subc(warp *w, const instruction *i)
{
    sum(w, i, true, true);
}

/* The half of the product that .lo or .hi names, of width bits. */
static uint64_t half_product(uint64_t a, uint64_t b, emulator_type type, bool high)
{
    if (!high) return a * b;
    switch (type) {
    case TYPE_S64:
        return (uint64_t)((((uint128)a * b) >> 64) - ((int64_t)a < 0 ? b : 0) - ((int64_t)b < 0 ? a : 0));
    case TYPE_U64:
        return (uint64_t)(((uint128)a * b) >> 64);
    default:
        return (a * b) >> 32;
    }
}

static void multiply_add(warp *w, const instruction *i, bool takes)
{
    const emulator_type type = i->mods.type[0];
    const int width = 8 * type_bytes(type);
    const uint64_t mask = UINT64_MAX >> (64 - width);
    lanes64 room[3], d;
    uint32_t defined[4], out = 0;
    const uint64_t *a = read_lanes64(w, &i->operand[1], type, &room[0], &defined[0]);
    const uint64_t *b = read_lanes64(w, &i->operand[2], type, &room[1], &defined[1]);
    const uint64_t *c = read_lanes64(w, &i->operand[3], unsigned_type(type), &room[2], &defined[2]);
    const uint32_t in = carry_in(w, takes, &defined[3]);
    for (int l = 0; l < LANES; l++) {
        const uint64_t product = half_product(a[l], b[l], type, i->mods.high) & mask;
        const uint128 v = (uint128)product + c[l] + (in >> l & 1);
        d.v[l] = (uint64_t)v;
        if (v >> width & 1) out |= lane_bits[l];
    }
    write_results(w, i, d.v, out, defined[0] & defined[1] & defined[2] & defined[3]);
}

void exec_mad_carry(warp *w, const instruction *i)
{
    multiply_add(w, i, false);
}
void exec_madc(warp *w, const instruction *i)
{
    multiply_add(w, i, true);
}
