/* One warp without a block around it: registers are written and read by the test, instructions are put together by hand
 * and their handlers called directly. */
#ifndef EMULATOR_SCALAR_FIXTURE_H
#define EMULATOR_SCALAR_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "exec.h"
#include "flow.h"
#include "numbers.h"
#include "shadow.h"

enum { SLOTS = 64, PREDICATES = 8, SHARED_BYTES = 4096, PARAMETER_BYTES = 64, LOCAL_BYTES = 64 };

typedef void (*handler)(warp *w, const instruction *i);

typedef struct scene {
    machine m;
    entry e;
    emulator_module module;
    emulator_launch_config config;
    emulator_error error;
    form form;
    warp w;
    uint32_t slot[SLOTS][LANES], slot_defined[SLOTS], predicate[PREDICATES], predicate_defined[PREDICATES],
        pending[SLOTS];
    uint64_t written[SLOTS];
    uint8_t local[LANES * LOCAL_BYTES], local_defined[LANES * LOCAL_BYTES], shared[SHARED_BYTES], parameters[PARAMETER_BYTES];
    operand elements[8];
    warp_flow flow;
    frame frame;
} scene;

static inline scene *scene_create(void)
{
    scene *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->form = (form){.pattern = "", .flags = FORM_UNDEFINED_OK};
    s->e = (entry){.parameter_bytes = PARAMETER_BYTES,
                   .local_bytes = LOCAL_BYTES,
                   .slots = SLOTS,
                   .predicates = PREDICATES,
                   .elements = s->elements};
    s->config = (emulator_launch_config){.module = &s->module, .memory = emulator_memory_create(), .judge = true};
    s->m.config = &s->config;
    s->m.entry = &s->e;
    s->m.module = &s->module;
    s->m.error = &s->error;
    s->m.warp = &s->w;
    s->m.warps = 1;
    s->m.threads = LANES;
    s->m.shared = s->shared;
    s->m.shared_bytes = SHARED_BYTES;
    s->m.parameters = s->parameters;
    s->m.shadow = shadow_create(SHARED_BYTES);
    s->w.m = &s->m;
    s->w.alive = s->w.active = s->w.group = UINT32_MAX;
    s->w.slot = s->slot;
    s->w.slot_defined = s->slot_defined;
    s->w.predicate = s->predicate;
    s->w.predicate_defined = s->predicate_defined;
    s->w.pending = s->pending;
    s->w.written = s->written;
    s->w.local = s->local;
    s->w.local_defined = s->local_defined;
    memset(s->local_defined, 1, sizeof s->local_defined);
    s->m.local_bytes = LOCAL_BYTES;
    s->w.flow = &s->flow;
    s->flow.frames = &s->frame;
    s->flow.frame_count = 1;
    s->frame = (frame){.parent = -1, .lanes = UINT32_MAX, .local_top = LOCAL_BYTES};
    s->w.clock.time[0] = 1;
    memset(s->slot_defined, 0xff, sizeof s->slot_defined);
    memset(s->predicate_defined, 0xff, sizeof s->predicate_defined);
    assert_non_null(s->config.memory);
    assert_non_null(s->m.shadow);
    return s;
}

static inline void scene_destroy(scene *s)
{
    emulator_memory_destroy((emulator_memory *)s->config.memory);
    shadow_destroy(s->m.shadow);
    free(s);
}

/* Calls the handler; what went wrong, or OK. */
static inline emulator_fault scene_run(scene *s, handler execute, instruction *i)
{
    i->form = &s->form;
    i->guard = -1;
    i->opcode = "(test)";
    s->w.at = i;
    s->w.executed++;
    memset(&s->error, 0, sizeof s->error);
    if (setjmp(s->m.failed) != 0) return s->error.fault;
    execute(&s->w, i);
    return EMULATOR_OK;
}

/* ---- Operands: registers of 32 bits are slots; a 64-bit register takes two ---- */

static inline operand in_register(emulator_type type, int slot)
{
    return (operand){.kind = OPERAND_REGISTER, .reg = {type, slot}, .symbol = -1};
}
static inline operand in_predicate(int number)
{
    return in_register(TYPE_PRED, number);
}
static inline operand immediate(uint64_t bits)
{
    return (operand){.kind = OPERAND_IMMEDIATE, .bits = bits, .symbol = -1};
}
static inline operand at_register(emulator_type type, int slot, int64_t offset)
{
    return (operand){.kind = OPERAND_ADDRESS, .reg = {type, slot}, .symbol = -1, .offset = offset};
}

static inline void put(scene *s, int slot, int lane, int bytes, uint64_t v)
{
    s->slot[slot][lane] = bytes == 8 ? (uint32_t)v : (uint32_t)(v & (UINT64_MAX >> (64 - 8 * bytes)));
    if (bytes == 8) s->slot[slot + 1][lane] = (uint32_t)(v >> 32);
}

static inline uint64_t get(const scene *s, int slot, int lane, int bytes)
{
    return bytes == 8 ? s->slot[slot][lane] | (uint64_t)s->slot[slot + 1][lane] << 32 : s->slot[slot][lane];
}

/* ---- Random values ---- */

typedef struct random_source {
    uint64_t state;
} random_source;

static inline random_source random_start(const char *test)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const char *given = getenv("EMULATOR_TEST_SEED");
    random_source r = {given ? strtoull(given, NULL, 0) : (uint64_t)now.tv_sec * 1000000007u + (uint64_t)now.tv_nsec};
    print_message("%s: EMULATOR_TEST_SEED=%llu\n", test, (unsigned long long)r.state);
    return r;
}

static inline uint64_t random_u64(random_source *r)
{
    uint64_t z = (r->state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Values at which integer instructions go wrong, and any others. */
static inline uint64_t random_integer(random_source *r)
{
    const uint64_t v = random_u64(r);
    switch (v >> 60) {
    case 0:
        return 0;
    case 1:
        return UINT64_MAX;
    case 2:
        return UINT64_C(1) << (v & 63);
    case 3:
        return (UINT64_C(1) << (v & 63)) - 1;
    case 4:
        return -(UINT64_C(1) << (v & 63));
    case 5:
        return v & 0xff;
    default:
        return random_u64(r);
    }
}

/* Floats of every kind: zeros, subnormals, the edges of the range, halves, NaN. */
static inline uint32_t random_f32(random_source *r)
{
    static const uint32_t special[] = {0x00000000, 0x80000000, 0x3f800000, 0xbf800000, 0x7f800000, 0xff800000,
                                       0x7fc00000, 0xffc12345, 0x7f7fffff, 0xff7fffff, 0x00800000, 0x807fffff,
                                       0x00000001, 0x80000001, 0x3f000000, 0x4b000001, 0x47ffe000, 0x477ff000,
                                       0x477fefff, 0x33000000, 0x387fffff, 0x4f000000, 0xcf000000, 0x5f000000,
                                       0x4f7fffff, 0x3fc00000, 0xc0200000, 0x43e80000};
    const uint64_t v = random_u64(r);
    switch (v >> 61) {
    case 0:
        return special[(uint32_t)v % (sizeof special / sizeof *special)];
    case 1:
        return (uint32_t)v & 0x807fffff; /* subnormal */
    case 2:
        return ((uint32_t)v & 0x80000fff) | (uint32_t)(96 + (v >> 32 & 63)) << 23 | ((uint32_t)(v >> 40) & 7) << 20;
    case 3:
        return ((uint32_t)v & 0x807fffff) | (uint32_t)(120 + (v >> 32 & 15)) << 23;
    case 4:
        return ((uint32_t)v & 0x80ffe000) | (uint32_t)(96 + (v >> 32 & 63)) << 23; /* short: ties */
    default:
        return (uint32_t)v;
    }
}

#endif
