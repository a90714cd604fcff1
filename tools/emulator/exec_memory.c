/* Loads, stores and atomics of ordinary instructions, in all state spaces: alignment, bounds, definedness, and for
 * shared memory the judgement of its shadow, lane by lane, because fence.proxy.async is an affair of single threads. */
#include <inttypes.h>

#include "calls.h"
#include "memory.h"
#include "numbers.h"
#include "scalar.h"
#include "shadow.h"

enum { ACCESS_MAX = 32 }; /* bytes a lane accesses at most: v8.b32 */

/* Where the bytes of one lane are. */
typedef struct place {
    state_space space; /* GLOBAL, SHARED, PARAM or LOCAL */
    uint32_t offset;   /* in shared memory */
    uint8_t *host;
    memory_block *block; /* of global memory */
} place;

typedef union raw {
    uint8_t b[ACCESS_MAX];
    uint16_t h[ACCESS_MAX / 2];
    uint32_t w[ACCESS_MAX / 4];
    uint64_t d[ACCESS_MAX / 8];
} raw;

/* Takes generic addresses apart. */
static state_space resolve(state_space space, uint64_t *address)
{
    if (space != SPACE_GENERIC && space != SPACE_NONE) return space;
    if (*address - GENERIC_SHARED_WINDOW < GENERIC_WINDOW_BYTES) {
        *address -= GENERIC_SHARED_WINDOW;
        return SPACE_SHARED;
    }
    if (*address - GENERIC_LOCAL_WINDOW < GENERIC_WINDOW_BYTES) {
        *address -= GENERIC_LOCAL_WINDOW;
        return SPACE_LOCAL;
    }
    if (*address - GENERIC_PARAM_WINDOW < GENERIC_WINDOW_BYTES) {
        *address -= GENERIC_PARAM_WINDOW;
        return SPACE_PARAM;
    }
    return SPACE_GLOBAL;
}

/* Of local memory what is in use, up to the end of the lane's frame. */
static uint64_t space_bytes(const warp *w, state_space space, int lane)
{
    const machine *m = w->m;
    return space == SPACE_SHARED  ? m->shared_bytes
           : space == SPACE_PARAM ? m->entry->parameter_bytes
           : space == SPACE_LOCAL ? w->flow->frames[w->flow->frame_of[lane]].local_top
                                  : 0;
}

/* Where these bytes of a lane are. False: beyond the end of something. */
static bool find_place(const warp *w, state_space space, int lane, uint64_t address, uint64_t bytes, place *p)
{
    const machine *m = w->m;
    space = resolve(space, &address);
    p->space = space;
    if (space == SPACE_GLOBAL || space == SPACE_CONST) {
        p->space = SPACE_GLOBAL;
        p->block = memory_find(m->config->memory, address, bytes);
        p->host = (uint8_t *)(uintptr_t)address;
        return p->block != NULL && (space == SPACE_GLOBAL || p->block->constant);
    }
    const uint64_t size = space_bytes(w, space, lane);
    if (bytes > size || address > size - bytes) return false;
    uint8_t *base = space == SPACE_SHARED  ? m->shared
                    : space == SPACE_PARAM ? m->parameters
                                           : w->local + (size_t)lane * m->local_bytes;
    p->offset = (uint32_t)address;
    p->host = base + address;
    return true;
}

static _Noreturn void out_of_bounds(const warp *w, const instruction *i, int lane, uint64_t address, uint64_t bytes)
{
    static const char *const names[] = {
        [SPACE_SHARED] = "shared", [SPACE_PARAM] = "parameter", [SPACE_LOCAL] = "local", [SPACE_CONST] = "constant"};
    const state_space space = resolve(i->mods.space, &address);
    char where[160];
    if (space == SPACE_CONST && memory_find(w->m->config->memory, address, bytes))
        machine_fault(w->m, w, i, EMULATOR_BOUNDS,
                      "lane %d accesses %" PRIu64 " bytes of constant memory at 0x%" PRIx64
                      ", which is of no .const variable",
                      lane, bytes, address);
    if (space == SPACE_GLOBAL || space == SPACE_CONST) {
        memory_describe(w->m->config->memory, address, where, sizeof where);
        machine_fault(w->m, w, i, EMULATOR_BOUNDS,
                      "lane %d accesses %" PRIu64 " bytes of %s memory at 0x%" PRIx64 ": %s", lane, bytes,
                      space == SPACE_CONST ? "constant" : "global", address, where);
    }
    machine_fault(w->m, w, i, EMULATOR_BOUNDS,
                  "lane %d accesses %" PRIu64 " bytes at 0x%" PRIx64 " of %" PRIu64 " bytes of %s memory", lane, bytes,
                  address, space_bytes(w, space, lane), names[space]);
}

/* bytes is a power of two. */
static place locate(const warp *w, const instruction *i, int lane, uint64_t address, uint32_t bytes)
{
    place p = {.space = SPACE_NONE};
    if (address & (bytes - 1))
        machine_fault(w->m, w, i, EMULATOR_ALIGNMENT,
                      "lane %d accesses %" PRIu32 " bytes at 0x%" PRIx64 ", which is no multiple of that", lane, bytes,
                      address);
    if (!find_place(w, i->mods.space, lane, address, bytes, &p)) out_of_bounds(w, i, lane, address, bytes);
    return p;
}

/* Whether each byte of local memory is defined lies in a map of the same shape. */
static uint8_t *local_map(const warp *w, const place *p, uint32_t first)
{
    return w->local_defined + (p->host - w->local) + first;
}

/* Parameters of entries are always defined. */
static bool is_defined(const warp *w, const place *p, uint32_t first, uint32_t bytes)
{
    const machine *m = w->m;
    if (p->space == SPACE_LOCAL) return !memchr(local_map(w, p, first), 0, bytes);
    if (p->space == SPACE_GLOBAL) return memory_block_defined(p->block, (uint64_t)(uintptr_t)p->host + first, bytes);
    if (p->space == SPACE_SHARED) return shadow_defined(m, p->offset + first, bytes);
    return true;
}

static void set_defined(warp *w, const place *p, uint32_t first, uint32_t bytes, bool defined)
{
    machine *m = w->m;
    if (p->space == SPACE_LOCAL) memset(local_map(w, p, first), defined, bytes);
    if (p->space == SPACE_GLOBAL && defined)
        memory_block_define(p->block, (uint64_t)(uintptr_t)p->host + first, bytes);
    else if (p->space == SPACE_SHARED)
        shadow_set_defined(m, p->offset + first, bytes, defined);
}

/* Constant variables, and parameters by generic addresses, are not written. */
static void check_writable(const warp *w, const instruction *i, int lane, const place *p)
{
    if (p->space == SPACE_PARAM || (p->space == SPACE_GLOBAL && p->block->constant))
        machine_fault(w->m, w, i, EMULATOR_BOUNDS, "lane %d writes %s%s, which kernels only read", lane,
                      p->space == SPACE_PARAM ? "a parameter" : "the constant variable ",
                      p->space == SPACE_PARAM ? "" : p->block->name);
}

bool warp_peek(const warp *w, int lane, uint64_t address, void *to, uint32_t bytes, bool *defined)
{
    place p = {.space = SPACE_NONE};
    if (!find_place(w, SPACE_GENERIC, lane, address, bytes, &p)) return false;
    memcpy(to, p.host, bytes);
    *defined = is_defined(w, &p, 0, bytes);
    return true;
}

/* The first of `lanes` and those after it whose bytes follow without a gap, or are the same: found, checked and judged
 * together. Their bytes begin where *p says; *span is how many there are. */
static uint32_t next_run(const warp *w, const instruction *i, const uint64_t *address, uint32_t bytes, uint32_t lanes,
                         place *p, uint32_t *span)
{
    const int first = __builtin_ctz(lanes);
    uint32_t members = lane_bits[first];
    uint64_t last = address[first];
    for (int l = first + 1; l < LANES && i->mods.space != SPACE_LOCAL && i->mods.space != SPACE_GENERIC; l++) {
        if (!(lanes & lane_bits[l])) continue;
        if (address[l] != last && address[l] != last + bytes) break;
        last = address[l];
        members |= lane_bits[l];
    }
    *span = (uint32_t)(last - address[first]) + bytes;
    if ((address[first] & (bytes - 1)) == 0 && find_place(w, i->mods.space, first, address[first], *span, p))
        return members;
    *span = bytes;
    *p = locate(w, i, first, address[first], bytes);
    return lane_bits[first];
}

static inline void copy_bytes(void *to, const void *from, uint32_t bytes)
{
    switch (bytes) {
    case 1:
        memcpy(to, from, 1);
        break;
    case 2:
        memcpy(to, from, 2);
        break;
    case 4:
        memcpy(to, from, 4);
        break;
    case 8:
        memcpy(to, from, 8);
        break;
    case 16:
        memcpy(to, from, 16);
        break;
    default:
        memcpy(to, from, 32);
        break;
    }
}

/* .relaxed, .acquire, .volatile and the like do not race with each other. */
static bool is_strong(const instruction *i)
{
    return i->mods.semantics >= SEMANTICS_RELAXED;
}

static accessor accessor_of(const warp *w, const instruction *i, int lane, bool atomic)
{
    accessor a = accessor_of_lane(w, lane);
    a.at = i;
    a.atomic = atomic;
    return a;
}

static void acquire_if_asked(warp *w, const instruction *i)
{
    if (i->mods.semantics == SEMANTICS_ACQUIRE || i->mods.semantics == SEMANTICS_ACQ_REL)
        warp_acquire(w, &w->m->global_clock);
}

static void release_if_asked(warp *w, const instruction *i)
{
    if (i->mods.semantics == SEMANTICS_RELEASE || i->mods.semantics == SEMANTICS_ACQ_REL)
        warp_release(w, &w->m->global_clock);
}

/* ---- Loads ---- */

/* Writes element e of what the lanes loaded. */
static void write_element(warp *w, const instruction *i, int e, const raw *loaded, uint32_t defined)
{
    const emulator_type type = i->mods.type[0];
    const operand *to = operand_element(w, &i->operand[0], e);
    if (to->kind == OPERAND_SINK) return;
    if (type_bytes(type) == 8) {
        lanes64 d;
        for (int l = 0; l < LANES; l++) d.v[l] = loaded[l].d[e];
        write_lanes64(w, to, type, d.v, defined);
        return;
    }
    lanes32 d;
    switch (type_bytes(type)) {
    case 1:
        for (int l = 0; l < LANES; l++) d.v[l] = loaded[l].b[e];
        break;
    case 2:
        for (int l = 0; l < LANES; l++) d.v[l] = loaded[l].h[e];
        break;
    default:
        for (int l = 0; l < LANES; l++) d.v[l] = loaded[l].w[e];
        break;
    }
    write_lanes32(w, to, type, d.v, defined);
}

/* A parameter by its name: the same for all lanes. */
static bool load_parameter(warp *w, const instruction *i)
{
    if (i->mods.space != SPACE_PARAM || i->operand[1].symbol < 0 || i->mods.vector > 1) return false;
    const emulator_type type = i->mods.type[0];
    uint64_t address[LANES], v = 0;
    warp_addresses(w, &i->operand[1], address);
    const int lane = __builtin_ctz(w->active);
    const place p = locate(w, i, lane, address[lane], (uint32_t)type_bytes(type));
    memcpy(&v, p.host, (size_t)type_bytes(type));
    lanes64 d;
    for (int l = 0; l < LANES; l++) d.v[l] = v;
    write_lanes64(w, &i->operand[0], type, d.v, UINT32_MAX);
    return true;
}

void exec_ld(warp *w, const instruction *i)
{
    if (w->active == 0 || load_parameter(w, i)) return;
    machine *m = w->m;
    const int count = i->mods.vector > 1 ? i->mods.vector : 1;
    const uint32_t size = (uint32_t)type_bytes(i->mods.type[0]), bytes = size * (uint32_t)count;
    uint64_t address[LANES];
    uint32_t defined[ACCESS_MAX];
    raw loaded[LANES];
    if (w->active != UINT32_MAX) memset(loaded, 0, sizeof loaded);
    memset(defined, 0xff, sizeof defined);
    warp_addresses(w, &i->operand[1], address);
    acquire_if_asked(w, i);
    for (uint32_t lanes = w->active; lanes != 0;) {
        const int first = __builtin_ctz(lanes);
        place p = {.space = SPACE_NONE};
        uint32_t span;
        uint32_t members = next_run(w, i, address, bytes, lanes, &p, &span);
        lanes &= ~members;
        if (p.space == SPACE_SHARED) {
            const accessor a = accessor_of(w, i, first, is_strong(i));
            shadow_read(m, &a, p.offset, span);
        }
        const bool known = is_defined(w, &p, 0, span);
        for (; members != 0; members &= members - 1) {
            const int l = __builtin_ctz(members);
            const uint32_t at = (uint32_t)(address[l] - address[first]);
            copy_bytes(&loaded[l], p.host + at, bytes);
            for (int e = 0; !known && e < count; e++) {
                if (!is_defined(w, &p, at + size * (uint32_t)e, size)) defined[e] &= ~lane_bits[l];
            }
        }
    }
    for (int e = 0; e < count; e++) write_element(w, i, e, loaded, defined[e]);
}

/* ---- Stores ---- */

static uint32_t read_element(warp *w, const instruction *i, int e, raw *stored)
{
    const emulator_type type = i->mods.type[0];
    const operand *from = operand_element(w, &i->operand[1], e);
    uint32_t defined;
    if (type_bytes(type) == 8) {
        lanes64 room;
        const uint64_t *v = read_lanes64(w, from, type, &room, &defined);
        for (int l = 0; l < LANES; l++) stored[l].d[e] = v[l];
        return defined;
    }
    lanes32 room;
    const uint32_t *v = read_lanes32(w, from, type, &room, &defined);
    switch (type_bytes(type)) {
    case 1:
        for (int l = 0; l < LANES; l++) stored[l].b[e] = (uint8_t)v[l];
        break;
    case 2:
        for (int l = 0; l < LANES; l++) stored[l].h[e] = (uint16_t)v[l];
        break;
    default:
        for (int l = 0; l < LANES; l++) stored[l].w[e] = v[l];
        break;
    }
    return defined;
}

static _Noreturn void undefined_output(const warp *w, const instruction *i, int lane, uint64_t address)
{
    char where[160];
    memory_describe(w->m->config->memory, address, where, sizeof where);
    machine_fault(w->m, w, i, EMULATOR_UNDEFINED,
                  "lane %d stores an undefined value to global memory at 0x%" PRIx64 ": %s", lane, address, where);
}

void exec_st(warp *w, const instruction *i)
{
    machine *m = w->m;
    const int count = i->mods.vector > 1 ? i->mods.vector : 1;
    const uint32_t size = (uint32_t)type_bytes(i->mods.type[0]), bytes = size * (uint32_t)count;
    uint64_t address[LANES];
    uint32_t defined[ACCESS_MAX], all = UINT32_MAX;
    raw stored[LANES];
    for (int e = 0; e < count; e++) {
        defined[e] = read_element(w, i, e, stored);
        all &= defined[e];
    }
    warp_addresses(w, &i->operand[0], address);
    release_if_asked(w, i);
    for (uint32_t lanes = w->active; lanes != 0;) {
        const int first = __builtin_ctz(lanes);
        place p = {.space = SPACE_NONE};
        uint32_t span;
        uint32_t members = next_run(w, i, address, bytes, lanes, &p, &span);
        const uint32_t unknown = members & ~all;
        lanes &= ~members;
        check_writable(w, i, first, &p);
        if (p.space == SPACE_GLOBAL && unknown != 0)
            undefined_output(w, i, __builtin_ctz(unknown), address[__builtin_ctz(unknown)]);
        set_defined(w, &p, 0, span, true);
        for (; members != 0; members &= members - 1) {
            const int l = __builtin_ctz(members);
            const uint32_t at = (uint32_t)(address[l] - address[first]);
            if (p.space == SPACE_SHARED) {
                const accessor a = accessor_of(w, i, l, is_strong(i));
                shadow_write(m, &a, p.offset + at, bytes);
            }
            copy_bytes(p.host + at, &stored[l], bytes);
            for (int e = 0; unknown != 0 && e < count; e++)
                set_defined(w, &p, at + size * (uint32_t)e, size, (defined[e] & lane_bits[l]) != 0);
        }
    }
}

/* ---- For matrices and copies: some bytes of one lane ---- */

void memory_access(warp *w, const instruction *i, int lane, uint64_t address, void *bytes, uint32_t count,
                   bool *defined, bool writes)
{
    const place p = locate(w, i, lane, address, count);
    accessor a = accessor_of(w, i, lane, false);
    if (p.space == SPACE_SHARED) (writes ? shadow_write : shadow_read)(w->m, &a, p.offset, count);
    if (!writes) {
        memcpy(bytes, p.host, count);
        for (uint32_t b = 0; b < count; b++) defined[b] = is_defined(w, &p, b, 1);
        return;
    }
    check_writable(w, i, lane, &p);
    for (uint32_t b = 0; b < count; b++) {
        if (!defined[b] && p.space == SPACE_GLOBAL) undefined_output(w, i, lane, address);
        set_defined(w, &p, b, 1, defined[b]);
    }
    memcpy(p.host, bytes, count);
}

/* ---- Atomics ---- */

/* On global memory subnormals are flushed, on shared memory they are kept. */
static uint32_t add_floats(uint32_t x, uint32_t y, bool flush)
{
    if (!flush) return f32_canonical(f32_bits(f32_value(x) + f32_value(y)));
    return f32_flush(f32_canonical(f32_bits(f32_value(f32_flush(x)) + f32_value(f32_flush(y)))));
}

static uint64_t add_doubles(uint64_t x, uint64_t y)
{
    double a, b;
    memcpy(&a, &x, sizeof a);
    memcpy(&b, &y, sizeof b);
    a += b;
    memcpy(&x, &a, sizeof x);
    return x;
}

/* Of f16 and bf16, and of pairs of them each half; subnormals count. */
static uint32_t add_halves(emulator_type type, uint32_t x, uint32_t y)
{
    const number_format *f = number_format_of(type);
    uint32_t d = 0;
    for (int at = 0; at < 8 * type_bytes(type); at += 16) {
        const double a = number_widen(f, x >> at & 0xffff), b = number_widen(f, y >> at & 0xffff);
        d |= number_round(f, odd_sum(a, b), ROUND_RN, false) << at;
    }
    return d;
}

static uint64_t add_values(emulator_type type, uint64_t x, uint64_t y, bool global)
{
    switch (type) {
    case TYPE_F32:
        return add_floats((uint32_t)x, (uint32_t)y, global);
    case TYPE_F64:
        return add_doubles(x, y);
    case TYPE_F16:
    case TYPE_BF16:
    case TYPE_F16X2:
    case TYPE_BF16X2:
        return add_halves(type, (uint32_t)x, (uint32_t)y);
    default:
        return x + y;
    }
}

/* Values are extended to 64 bits as the type says. */
static bool is_less(emulator_type type, uint64_t x, uint64_t y)
{
    return type_is_signed(type) ? (int64_t)x < (int64_t)y : x < y;
}

static uint64_t combine(const instruction *i, uint64_t old, uint64_t b, uint64_t c, bool global)
{
    const emulator_type type = i->mods.type[0];
    switch (i->mods.mode) {
    case MODE_ADD:
        return add_values(type, old, b, global);
    case MODE_MIN:
        return is_less(type, b, old) ? b : old;
    case MODE_MAX:
        return is_less(type, old, b) ? b : old;
    case MODE_AND:
        return old & b;
    case MODE_OR:
        return old | b;
    case MODE_XOR:
        return old ^ b;
    case MODE_EXCH:
        return b;
    case MODE_CAS:
        return old == b ? c : old;
    case MODE_INC:
        return old >= b ? 0 : old + 1;
    default:
        return old == 0 || old > b ? b : old - 1; /* MODE_DEC */
    }
}

static void need_defined(const warp *w, const instruction *i, uint32_t defined, const char *what)
{
    const uint32_t undefined = w->active & ~defined;
    if (undefined != 0)
        machine_fault(w->m, w, i, EMULATOR_UNDEFINED, "%s of lane %d is undefined", what, __builtin_ctz(undefined));
}

/* One lane after the other, the lowest first. Gives the old values and which of them are defined. */
static uint32_t exchange(warp *w, const instruction *i, int address_place, uint64_t old[LANES])
{
    machine *m = w->m;
    const emulator_type type = i->mods.type[0];
    const uint32_t bytes = (uint32_t)type_bytes(type);
    uint64_t address[LANES];
    lanes64 room[2];
    uint32_t b_defined, c_defined = UINT32_MAX, defined = UINT32_MAX;
    const uint64_t *b = read_lanes64(w, &i->operand[address_place + 1], type, &room[0], &b_defined), *c = b;
    if (i->mods.mode == MODE_CAS) c = read_lanes64(w, &i->operand[address_place + 2], type, &room[1], &c_defined);
    need_defined(w, i, b_defined & c_defined, "an operand");
    warp_addresses(w, &i->operand[address_place], address);
    bool global = false;
    for (uint32_t lanes = w->active; lanes != 0; lanes &= lanes - 1) {
        const int l = __builtin_ctz(lanes);
        const place p = locate(w, i, l, address[l], bytes);
        check_writable(w, i, l, &p);
        if (p.space == SPACE_SHARED) {
            const accessor a = accessor_of(w, i, l, true);
            shadow_write(m, &a, p.offset, bytes);
        }
        const bool was_defined = is_defined(w, &p, 0, bytes), is_global = p.space == SPACE_GLOBAL;
        global |= is_global;
        if (!was_defined) defined &= ~lane_bits[l];
        if (!was_defined && is_global && i->mods.mode != MODE_EXCH) undefined_output(w, i, l, address[l]);
        uint64_t v = 0;
        memcpy(&v, p.host, bytes);
        old[l] = extend64(v, type);
        v = combine(i, old[l], b[l], c[l], is_global);
        memcpy(p.host, &v, bytes);
        set_defined(w, &p, 0, bytes, was_defined || i->mods.mode == MODE_EXCH);
    }
    if (global || i->mods.semantics != SEMANTICS_NONE) {
        warp_acquire(w, &m->global_clock);
        warp_release(w, &m->global_clock);
    }
    return defined;
}

void exec_atom(warp *w, const instruction *i)
{
    lanes64 old = {{0}};
    const uint32_t defined = exchange(w, i, 1, old.v);
    write_lanes64(w, &i->operand[0], i->mods.type[0], old.v, defined);
}

void exec_red(warp *w, const instruction *i)
{
    uint64_t old[LANES];
    exchange(w, i, 0, old);
}

/* ---- Prefetches: only the addresses are checked ---- */

void exec_prefetch(warp *w, const instruction *i)
{
    uint64_t address[LANES];
    lanes32 room;
    const uint32_t *bytes = NULL;
    uint32_t defined = UINT32_MAX;
    warp_addresses(w, &i->operand[0], address);
    if (i->operands > 1) bytes = warp_read32(w, &i->operand[1], &room, &defined); /* cp.async.bulk.prefetch */
    need_defined(w, i, defined, "the size");
    for (uint32_t lanes = w->active; lanes != 0; lanes &= lanes - 1) {
        const int l = __builtin_ctz(lanes);
        if (bytes == NULL) {
            locate(w, i, l, address[l], 1);
            continue;
        }
        if (address[l] % 16 != 0 || bytes[l] % 16 != 0)
            machine_fault(w->m, w, i, EMULATOR_ALIGNMENT,
                          "lane %d: %" PRIu32 " bytes at 0x%" PRIx64 ": both must be multiples of 16", l, bytes[l],
                          address[l]);
        place p;
        if (bytes[l] != 0 && !find_place(w, i->mods.space, l, address[l], bytes[l], &p))
            out_of_bounds(w, i, l, address[l], bytes[l]);
    }
}
