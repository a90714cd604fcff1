/* Which agent goes next: a warp, or something in flight. Everything random comes from the launch's seed. */
#include <stdlib.h>

#include "flow.h"

/* ---- Numbers: xoshiro256**, seeded by splitmix64 ---- */

void schedule_seed(machine *m, uint64_t seed)
{
    for (int s = 0; s < 4; s++) {
        seed += UINT64_C(0x9e3779b97f4a7c15);
        uint64_t z = seed;
        z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
        m->random[s] = z ^ z >> 31;
    }
}

static uint64_t rotate(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

uint32_t machine_random(machine *m, uint32_t n)
{
    uint64_t *s = m->random, result = rotate(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    return (uint32_t)(((result >> 32) * n) >> 32);
}

/* ---- Agents ---- */

enum { TURN_MAX = 64, OPS_SEEN = 64, FAIR = 4096 };

typedef struct agents {
    warp *warps[WARPS_MAX];
    async_op *ops[OPS_SEEN]; /* oldest first; of each queue only its oldest */
    int warp_count, op_count;
} agents;

static bool can_go(warp *w)
{
    if (w->state == WARP_READY) return true;
    return w->state == WARP_BLOCKED && flow_any_ready(w);
}

static void find_ops(machine *m, agents *a)
{
    bool seen[ASYNC_QUEUES] = {false};
    a->op_count = 0;
    for (async_op *op = m->in_flight; op && a->op_count < OPS_SEEN; op = op->next) {
        if (op->queue >= 0 && op->queue < ASYNC_QUEUES) {
            if (seen[op->queue]) continue;
            seen[op->queue] = true;
        }
        if (!op->ready || op->ready(m, op)) a->ops[a->op_count++] = op;
    }
}

/* Warps that did not just fail a test come first. */
static void find_warps(machine *m, agents *a, bool spinning)
{
    a->warp_count = 0;
    for (uint32_t w = 0; w < m->warps; w++)
        if (m->warp[w].spinning == spinning && can_go(&m->warp[w])) a->warps[a->warp_count++] = &m->warp[w];
}

void async_remove(machine *m, async_op *op)
{
    async_op **link = &m->in_flight, *before = NULL;
    while (*link != op) {
        before = *link;
        link = &before->next;
    }
    *link = op->next;
    if (m->last_in_flight == op) m->last_in_flight = before;
    free(op->payload);
    free(op);
}

static void run_op(machine *m, async_op *op)
{
    op->again = false;
    op->run(m, op);
    if (!op->again) async_remove(m, op);
}

/* ---- Modes ---- */

/* The first warp from next_agent on. */
static warp *in_turn(machine *m, const agents *a)
{
    for (int n = 0; n < a->warp_count; n++)
        if (a->warps[n]->index >= m->next_agent) return a->warps[n];
    return a->warp_count ? a->warps[0] : NULL;
}

/* Copies after everything else, and in any order: what was issued first is not there first. */
static async_op *late_op(machine *m, const agents *a)
{
    for (int n = 0; n < a->op_count; n++)
        if (a->ops[n]->queue != ASYNC_COPIES) return a->ops[n];
    return a->ops[machine_random(m, (uint32_t)a->op_count)];
}

/* Without ops_too they wait until no warp can go. */
static void go_in_turn(machine *m, const agents *a, bool ops_too)
{
    warp *w = in_turn(m, a);
    bool wrapped = !w || w->index < m->next_agent;
    if (a->op_count && (!w || (wrapped && ops_too))) {
        m->next_agent = 0;
        run_op(m, ops_too ? a->ops[0] : late_op(m, a));
        return;
    }
    m->next_agent = w->index + 1;
    warp_turn(w, TURN_MAX);
}

static void go_random_turn(machine *m, warp *w)
{
    warp_turn(w, 1 + (int)machine_random(m, TURN_MAX));
}

static void go_by_priority(machine *m, agents *a)
{
    int all = a->warp_count + a->op_count, chosen = (int)machine_random(m, (uint32_t)all);
    if (machine_random(m, 8) == 0) {
        *(chosen < a->warp_count ? &a->warps[chosen]->priority : &a->ops[chosen - a->warp_count]->priority) =
            (int)machine_random(m, 1024);
    } else if (machine_random(m, 16)) {
        int best = -1;
        for (int n = 0; n < all; n++) {
            int priority = n < a->warp_count ? a->warps[n]->priority : a->ops[n - a->warp_count]->priority;
            if (priority <= best) continue;
            best = priority;
            chosen = n;
        }
    }
    if (chosen < a->warp_count)
        go_random_turn(m, a->warps[chosen]);
    else
        run_op(m, a->ops[chosen - a->warp_count]);
}

/* Some warps go only when nothing else can (and now and then, so that who waits for them in a loop is not waiting for
 * ever). */
static void go_starved(machine *m, agents *a, bool producers)
{
    agents fed = *a;
    if (m->picks % FAIR) {
        fed.warp_count = 0;
        for (int n = 0; n < a->warp_count; n++)
            if (!(producers ? a->warps[n]->issues_copies : a->warps[n]->issues_products))
                fed.warps[fed.warp_count++] = a->warps[n];
        if (fed.warp_count + fed.op_count == 0) fed = *a;
    }
    int chosen = (int)machine_random(m, (uint32_t)(fed.warp_count + fed.op_count));
    if (chosen < fed.warp_count)
        go_random_turn(m, fed.warps[chosen]);
    else
        run_op(m, fed.ops[chosen - fed.warp_count]);
}

static void go(machine *m, agents *a)
{
    m->picks++;
    switch (m->config->schedule) {
    case EMULATOR_SCHEDULE_RANDOM:
        go_by_priority(m, a);
        break;
    case EMULATOR_SCHEDULE_ASYNC_EARLY:
        if (a->op_count)
            run_op(m, a->ops[0]);
        else
            go_in_turn(m, a, false);
        break;
    case EMULATOR_SCHEDULE_ASYNC_LATE:
        go_in_turn(m, a, false);
        break;
    case EMULATOR_SCHEDULE_PRODUCER_STARVED:
        go_starved(m, a, true);
        break;
    case EMULATOR_SCHEDULE_CONSUMER_STARVED:
        go_starved(m, a, false);
        break;
    default:
        go_in_turn(m, a, true);
        break;
    }
}

static bool all_done(const machine *m)
{
    for (uint32_t w = 0; w < m->warps; w++)
        if (m->warp[w].state != WARP_DONE) return false;
    return true;
}

void schedule_block(machine *m)
{
    agents a;
    while (!all_done(m)) {
        find_ops(m, &a);
        find_warps(m, &a, false);
        if (a.warp_count + a.op_count == 0) {
            find_warps(m, &a, true);
            for (uint32_t w = 0; w < m->warps; w++) m->warp[w].spinning = false;
        }
        if (a.warp_count + a.op_count == 0) machine_deadlock(m);
        go(m, &a);
    }
}
