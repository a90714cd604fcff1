/* Named barriers of a block, and fences. */
#include <string.h>

#include "exec.h"
#include "flow.h"
#include "shadow.h"

enum { ALL_WARPS = -1 };

static int threads_left(const machine *m)
{
    int warps = 0;
    for (uint32_t w = 0; w < m->warps; w++) warps += m->warp[w].state != WARP_DONE;
    return warps * LANES;
}

static void complete_if_full(machine *m, named_barrier *b)
{
    int expected = b->expected == ALL_WARPS ? threads_left(m) : b->expected;
    if (!b->expected || b->arrived < expected) return;
    b->done = b->arriving;
    memset(&b->arriving, 0, sizeof b->arriving);
    b->result[b->generation & 1] = b->count;
    b->result_lanes[b->generation & 1] = b->lanes;
    b->generation++;
    b->expected = b->arrived = 0;
    b->warps = b->count = b->lanes = 0;
}

void named_barriers_warp_done(machine *m)
{
    for (int n = 0; n < NAMED_BARRIERS; n++)
        if (m->named[n].expected == ALL_WARPS) complete_if_full(m, &m->named[n]);
}

/* The barrier that an operand names, and how many threads it counts on. */
static named_barrier *barrier_of(warp *w, const instruction *i, const operand *name, const operand *threads,
                                 int *expected)
{
    machine *m = w->m;
    uint64_t n = warp_uniform(w, name, "the barrier's number");
    if (n >= NAMED_BARRIERS)
        machine_fault(m, w, i, EMULATOR_BARRIER_COUNT, "barrier %llu of %d", (unsigned long long)n, NAMED_BARRIERS);
    *expected = ALL_WARPS;
    if (threads->kind != OPERAND_NONE) {
        uint64_t count = warp_uniform(w, threads, "the barrier's number of threads");
        if (count == 0 || count % LANES || count > m->warps * LANES)
            machine_fault(m, w, i, EMULATOR_BARRIER_COUNT, "barrier %llu of %llu threads in a block of %u",
                          (unsigned long long)n, (unsigned long long)count, m->threads);
        *expected = (int)count;
    }
    return &m->named[n];
}

static void arrive(warp *w, const instruction *i, named_barrier *b, int expected)
{
    machine *m = w->m;
    int n = (int)(b - m->named);
    if (b->expected && b->expected != expected)
        machine_fault(m, w, i, EMULATOR_BARRIER_COUNT, "barrier %d of %d threads, and of %d in line %d (-1: of all)", n,
                      expected, b->expected, b->last->line);
    if (b->warps >> w->index & 1)
        machine_fault(m, w, i, EMULATOR_BARRIER_COUNT,
                      "the warp comes to barrier %d twice, before %d of %d threads have come (-1: all)", n, b->arrived,
                      b->expected);
    b->expected = expected;
    b->last = i;
    b->arrived += LANES;
    b->warps |= UINT32_C(1) << w->index;
    if (expected != ALL_WARPS && b->arrived > expected)
        machine_fault(m, w, i, EMULATOR_BARRIER_COUNT, "%d threads at barrier %d, which counts on %d", b->arrived, n,
                      expected);
    warp_release(w, &b->arriving);
}

/* waits_for: the barrier and its generation. */
static bool generation_over(warp *w)
{
    return w->m->named[w->waits_for[0]].generation != (uint32_t)w->waits_for[1];
}

/* The warp came before, and waits: it is not executing the instruction for the first time with all its lanes. */
static bool has_come(const warp *w, const named_barrier *b)
{
    return w->again && w->waits_for[0] == (uint64_t)(b - w->m->named);
}

/* False: the warp has been blocked. */
static bool synchronise(warp *w, const instruction *i, named_barrier *b, int expected)
{
    machine *m = w->m;
    if (!has_come(w, b)) {
        w->waits_for[0] = (uint64_t)(b - m->named);
        w->waits_for[1] = b->generation;
        arrive(w, i, b, expected);
        complete_if_full(m, b);
    }
    if (generation_over(w)) {
        warp_acquire(w, &b->done);
        return true;
    }
    warp_block(w, generation_over, "barrier %d, %d of %d threads have come (-1: all)", (int)(b - m->named), b->arrived,
               b->expected);
    return false;
}

/* Forms without .aligned: the parts of the warp come together first. */
static bool whole_warp(warp *w)
{
    return w->active == w->alive || warp_gather(w, w->alive);
}

void exec_bar_sync(warp *w, const instruction *i)
{
    int expected;
    if (!whole_warp(w)) return;
    named_barrier *b = barrier_of(w, i, &i->operand[0], &i->operand[1], &expected);
    synchronise(w, i, b, expected);
}

void exec_bar_arrive(warp *w, const instruction *i)
{
    int expected;
    if (!whole_warp(w)) return;
    named_barrier *b = barrier_of(w, i, &i->operand[0], &i->operand[1], &expected);
    arrive(w, i, b, expected);
    complete_if_full(w->m, b);
}

void exec_bar_red(warp *w, const instruction *i)
{
    int expected;
    if (!whole_warp(w)) return;
    named_barrier *b = barrier_of(w, i, &i->operand[1], &i->operand[2], &expected);
    uint32_t defined, v = warp_read_predicate(w, &i->operand[3], &defined);
    if (w->active & ~defined)
        machine_fault(w->m, w, i, EMULATOR_UNDEFINED, "the predicate of %s is undefined in lanes %08x", i->opcode,
                      w->active & ~defined);
    if (!has_come(w, b)) {
        b->count += (uint32_t)__builtin_popcount(v & w->active);
        b->lanes += (uint32_t)__builtin_popcount(w->active);
    }
    if (!synchronise(w, i, b, expected)) return;
    uint32_t count = b->result[w->waits_for[1] & 1], lanes = b->result_lanes[w->waits_for[1] & 1];
    if (i->mods.mode == MODE_POPC) {
        lanes32 sum;
        for (int l = 0; l < LANES; l++) sum.v[l] = count;
        warp_write32(w, &i->operand[0], sum.v, UINT32_MAX);
    } else {
        bool holds = i->mods.mode == MODE_AND ? count == lanes : count > 0;
        warp_write_predicate(w, &i->operand[0], holds ? UINT32_MAX : 0, UINT32_MAX);
    }
}

/* ---- Fences ---- */

/* Orders what goes through global memory; which access pairs with which is not looked at, so fences order more than
 * they do. */
static void fence(warp *w)
{
    warp_release(w, &w->m->global_clock);
    warp_acquire(w, &w->m->global_clock);
}

void exec_membar(warp *w, const instruction *i)
{
    (void)i;
    fence(w);
}

void exec_fence(warp *w, const instruction *i)
{
    (void)i;
    fence(w);
}

void exec_fence_proxy_async(warp *w, const instruction *i)
{
    if (i->mods.space == SPACE_GLOBAL) return;
    shadow_fence_proxy(w);
    mbarriers_fence(w);
    w->yield = true;
}

void exec_fence_mbarrier_init(warp *w, const instruction *i)
{
    (void)i;
    mbarriers_fence(w);
    w->yield = true;
}
