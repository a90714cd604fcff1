/* mbarriers: arrivals, bytes of copies, phases, and who has seen what through them. */
#include <stdio.h>
#include <string.h>

#include "exec.h"
#include "flow.h"
#include "shadow.h"

enum { ARRIVALS_MAX = (1 << 20) - 1, BYTES_MAX = (1 << 20) - 1 };

static int slot_of(const machine *m, const mbarrier *b)
{
    return (int)(b - m->mbarriers);
}

static uint32_t number(const mbarrier *b, uint32_t phase)
{
    return phase - b->first_phase;
}

static uint32_t check_address(machine *m, const warp *w, const instruction *i, uint64_t address)
{
    if (address >= GENERIC_SHARED_WINDOW) address -= GENERIC_SHARED_WINDOW;
    if (address % 8)
        machine_fault(m, w, i, EMULATOR_ALIGNMENT, "an mbarrier at 0x%llx: not a multiple of 8",
                      (unsigned long long)address);
    if (m->shared_bytes < 8 || address > m->shared_bytes - 8)
        machine_fault(m, w, i, EMULATOR_BOUNDS, "an mbarrier at 0x%llx: the block has %u bytes of shared memory",
                      (unsigned long long)address, m->shared_bytes);
    return (uint32_t)address;
}

mbarrier *mbarrier_at(machine *m, const warp *w, const instruction *i, uint64_t address)
{
    uint32_t at = check_address(m, w, i, address);
    int slot = m->mbarrier_slot[at / 8] - 1;
    if (slot < 0) machine_fault(m, w, i, EMULATOR_BARRIER_INIT, "no mbarrier has been initialised at 0x%x", at);
    mbarrier *b = &m->mbarriers[slot];
    if (m->config->judge && w && w->index != b->init_warp && w->clock.time[b->init_warp] < b->init_time)
        machine_fault(m, w, i, EMULATOR_BARRIER_INIT,
                      "the mbarrier at 0x%x was initialised by warp %d in line %d, and nothing orders that before", at,
                      b->init_warp, b->init->line);
    return b;
}

/* ---- Initialisation ---- */

static int free_slot(warp *w, const instruction *i)
{
    machine *m = w->m;
    for (int slot = 0; slot < MBARRIERS_MAX; slot++)
        if (!m->mbarriers[slot].live) return slot;
    machine_fault(m, w, i, EMULATOR_RESOURCE, "more than %d mbarriers", MBARRIERS_MAX);
}

static void initialise(warp *w, const instruction *i, int lane, uint32_t at, uint32_t expected)
{
    machine *m = w->m;
    if (expected < 1 || expected > ARRIVALS_MAX)
        machine_fault(m, w, i, EMULATOR_BARRIER_COUNT, "an mbarrier of %u arrivals", expected);
    if (m->mbarrier_slot[at / 8])
        machine_fault(m, w, i, EMULATOR_BARRIER_INIT, "the mbarrier at 0x%x is in use: it was initialised in line %d",
                      at, m->mbarriers[m->mbarrier_slot[at / 8] - 1].init->line);
    accessor a = accessor_of_lane(w, lane);
    shadow_write(m, &a, at, 8);
    int slot = free_slot(w, i);
    mbarrier *b = &m->mbarriers[slot];
    uint32_t phase = (b->phase + 3) & ~1u; /* time goes on, and parities begin with 0 */
    memset(b, 0, sizeof *b);
    b->address = at;
    b->live = true;
    b->expected = expected;
    b->pending = (int32_t)expected;
    b->phase = b->first_phase = phase;
    b->init = i;
    b->init_warp = w->index;
    b->init_lane = lane;
    b->init_time = w->clock.time[w->index];
    for (int o = 0; o < WARPS_MAX; o++) b->observed[o] = -1;
    m->mbarrier_slot[at / 8] = (uint8_t)(slot + 1);
    shadow_set_mbarrier(m, at, true);
}

void exec_mbarrier_init(warp *w, const instruction *i)
{
    uint64_t address[LANES];
    lanes32 room;
    uint32_t defined;
    warp_addresses(w, &i->operand[0], address);
    const uint32_t *expected = warp_read32(w, &i->operand[1], &room, &defined);
    for (int l = 0; l < LANES; l++)
        if (w->active >> l & 1) initialise(w, i, l, check_address(w->m, w, i, address[l]), expected[l]);
    w->yield = true;
}

void exec_mbarrier_inval(warp *w, const instruction *i)
{
    machine *m = w->m;
    uint64_t address[LANES];
    warp_addresses(w, &i->operand[0], address);
    for (int l = 0; l < LANES; l++) {
        if (!(w->active >> l & 1)) continue;
        mbarrier *b = mbarrier_at(m, w, i, address[l]);
        if (b->bytes)
            machine_fault(m, w, i, EMULATOR_BARRIER_BYTES, "the mbarrier at 0x%x still has %lld bytes pending",
                          b->address, (long long)b->bytes);
        b->live = false;
        m->mbarrier_slot[b->address / 8] = 0;
        shadow_set_mbarrier(m, b->address, false);
        shadow_set_defined(m, b->address, 8, false);
    }
}

void mbarriers_fence(warp *w)
{
    machine *m = w->m;
    for (int slot = 0; slot < MBARRIERS_MAX; slot++) {
        mbarrier *b = &m->mbarriers[slot];
        if (b->live && b->init_warp == w->index && w->active >> b->init_lane & 1 && !b->fence_time)
            b->fence_time = w->clock.time[w->index];
    }
}

/* ---- Arrivals and bytes ---- */

static void complete_phase(machine *m, mbarrier *b)
{
    if (b->pending || b->bytes) return;
    clock_join(&b->done, &b->arriving);
    memset(&b->arriving, 0, sizeof b->arriving);
    b->phase++;
    b->done.time[clock_of_mbarrier(slot_of(m, b))] = b->phase;
    b->pending = (int32_t)b->expected;
}

void mbarrier_arrive(machine *m, const warp *w, const instruction *i, mbarrier *b, int arrivals,
                     const vector_clock *clock)
{
    if (arrivals < 1 || arrivals > b->pending)
        machine_fault(m, w, i, EMULATOR_BARRIER_COUNT,
                      "%d arrivals at the mbarrier at 0x%x, whose phase %u waits for %d of %u (last arrival: line %d)",
                      arrivals, b->address, number(b, b->phase), b->pending, b->expected,
                      b->last_arrival ? b->last_arrival->line : 0);
    b->pending -= arrivals;
    b->last_arrival = i;
    clock_join(&b->arriving, clock);
    complete_phase(m, b);
}

static void expect_bytes(machine *m, const warp *w, const instruction *i, mbarrier *b, uint32_t bytes)
{
    b->bytes += bytes;
    if (bytes > BYTES_MAX || b->bytes > BYTES_MAX)
        machine_fault(m, w, i, EMULATOR_BARRIER_BYTES, "the mbarrier at 0x%x would expect %lld bytes: at most %d",
                      b->address, (long long)b->bytes, BYTES_MAX);
}

void mbarrier_complete_bytes(machine *m, const async_op *op, mbarrier *b, int64_t bytes, const vector_clock *clock)
{
    const warp *w = &m->warp[op->warp];
    b->bytes -= bytes;
    if (b->bytes < -BYTES_MAX || (b->pending == 0 && b->bytes < 0))
        machine_fault(m, w, op->at, EMULATOR_BARRIER_BYTES,
                      "%lld bytes complete on the mbarrier at 0x%x, %lld more than its phase %u expects",
                      (long long)bytes, b->address, (long long)-b->bytes, number(b, b->phase));
    if (clock) clock_join(&b->arriving, clock);
    complete_phase(m, b);
}

/* A state is the phase, and the arrivals that it waited for before the one that gave the state. */
static void arrive_lanes(warp *w, const instruction *i, bool expect, bool drops)
{
    machine *m = w->m;
    uint64_t address[LANES], state[LANES] = {0};
    lanes32 room;
    uint32_t defined;
    const operand *number_of = &i->operand[2];
    bool plain = !expect && number_of->kind == OPERAND_NONE;
    warp_addresses(w, &i->operand[1], address);
    const uint32_t *value = plain ? NULL : warp_read32(w, number_of, &room, &defined);
    vector_clock clock = {{0}};
    warp_release(w, &clock);
    for (int l = 0; l < LANES; l++) {
        if (!(w->active >> l & 1)) continue;
        mbarrier *b = mbarrier_at(m, w, i, address[l]);
        state[l] = b->phase | (uint64_t)(uint32_t)b->pending << 32;
        if (expect) expect_bytes(m, w, i, b, value[l]);
        int arrivals = expect || plain ? 1 : (int)value[l];
        if (drops && (uint32_t)arrivals > b->expected)
            machine_fault(m, w, i, EMULATOR_BARRIER_COUNT, "%d arrivals dropped of the %u of the mbarrier at 0x%x",
                          arrivals, b->expected, b->address);
        if (drops) b->expected -= (uint32_t)arrivals; /* of the next phase */
        mbarrier_arrive(m, w, i, b, arrivals, &clock);
    }
    if (i->operand[0].kind == OPERAND_REGISTER) warp_write64(w, &i->operand[0], state, UINT32_MAX);
}

void exec_mbarrier_arrive(warp *w, const instruction *i)
{
    arrive_lanes(w, i, false, false);
}

void exec_mbarrier_arrive_drop(warp *w, const instruction *i)
{
    arrive_lanes(w, i, false, true);
}

void exec_mbarrier_pending_count(warp *w, const instruction *i)
{
    lanes64 room;
    lanes32 d;
    uint32_t defined;
    const uint64_t *state = warp_read64(w, &i->operand[1], &room, &defined);
    for (int l = 0; l < LANES; l++) d.v[l] = (uint32_t)(state[l] >> 32);
    warp_write32(w, &i->operand[0], d.v, defined);
}

void exec_mbarrier_arrive_expect_tx(warp *w, const instruction *i)
{
    arrive_lanes(w, i, true, false);
}

void exec_mbarrier_expect_tx(warp *w, const instruction *i)
{
    uint64_t address[LANES];
    lanes32 room;
    uint32_t defined;
    warp_addresses(w, &i->operand[0], address);
    const uint32_t *bytes = warp_read32(w, &i->operand[1], &room, &defined);
    for (int l = 0; l < LANES; l++) {
        if (!(w->active >> l & 1)) continue;
        mbarrier *b = mbarrier_at(w->m, w, i, address[l]);
        expect_bytes(w->m, w, i, b, bytes[l]);
        complete_phase(w->m, b); /* the bytes may have come before */
    }
    w->yield = true;
}

/* ---- Waiting ---- */

/* The phase before the current one has this parity. */
static bool is_complete(const mbarrier *b, uint32_t parity)
{
    return (b->phase & 1) != (parity & 1);
}

/* waits_for: the slot, and the phase that must be over. */
static bool phase_over(warp *w)
{
    const mbarrier *b = &w->m->mbarriers[w->waits_for[0]];
    return b->phase > w->waits_for[1];
}

/* The warp sees a completed phase. One that saw phase n waits for n + 1 next: if three have gone by since, its parity
 * fits a phase that is not its own. (A warp may look at every second phase only, so two are no fault.) */
static void observe(warp *w, const instruction *i, mbarrier *b)
{
    warp_acquire(w, &b->done);
    int32_t seen = (int32_t)number(b, b->phase) - 1, *last = &b->observed[w->index];
    if (seen < 0) return;
    if (w->m->config->judge && *last >= 0 && seen - *last >= 3)
        machine_fault(
            w->m, w, i, EMULATOR_BARRIER_PHASE,
            "the mbarrier at 0x%x: the warp saw phase %d last, and this wait succeeds because phase %d is over",
            b->address, *last, seen);
    *last = seen;
}

/* A wait that blocked for a phase; by now more than that one may be over. */
static void resume(warp *w, const instruction *i)
{
    const mbarrier *b = &w->m->mbarriers[w->waits_for[0]];
    if (w->m->config->judge && b->phase > w->waits_for[1] + 1)
        machine_fault(w->m, w, i, EMULATOR_BARRIER_PHASE,
                      "the mbarrier at 0x%x: the warp waited for phase %u, and phase %u was over before it went on",
                      b->address, number(b, (uint32_t)w->waits_for[1]), number(b, b->phase - 1));
}

/* try_wait may return false before its phase is over. A kernel that does not ask again must be found, so schedules that
 * draw numbers do that. */
static bool may_time_out(const machine *m)
{
    emulator_schedule s = m->config->schedule;
    return s != EMULATOR_SCHEDULE_ROUND_ROBIN && s != EMULATOR_SCHEDULE_ASYNC_EARLY;
}

/* The phases of the states that lanes wait for must be the current ones, or those just over. */
static void check_states(warp *w, const instruction *i, const uint64_t address[LANES], const uint32_t *phase)
{
    machine *m = w->m;
    for (int l = 0; l < LANES; l++) {
        if (!(w->active >> l & 1)) continue;
        const mbarrier *b = mbarrier_at(m, w, i, address[l]);
        if (phase[l] == b->phase || phase[l] + 1 == b->phase) continue;
        machine_fault(m, w, i, EMULATOR_BARRIER_PHASE,
                      "lane %d waits at the mbarrier at 0x%x with the state of phase %d, and its phase is %u", l,
                      b->address, (int)(phase[l] - b->first_phase), number(b, b->phase));
    }
}

/* For a parity, or with_state for the phase of the state that an arrival gave. */
static void wait_parity(warp *w, const instruction *i, bool suspends, bool with_state)
{
    machine *m = w->m;
    uint64_t address[LANES];
    lanes32 room;
    lanes64 wide;
    uint32_t defined, done = 0;
    warp_addresses(w, &i->operand[1], address);
    const uint32_t *parity = room.v;
    if (with_state) {
        const uint64_t *state = warp_read64(w, &i->operand[2], &wide, &defined);
        for (int l = 0; l < LANES; l++) room.v[l] = (uint32_t)state[l];
        check_states(w, i, address, parity);
    } else {
        parity = warp_read32(w, &i->operand[2], &room, &defined);
    }
    if (w->again && suspends) resume(w, i);
    bool same = true;
    int first = __builtin_ctz(w->active);
    mbarrier *b = NULL;
    for (int l = first, before = first; l < LANES; l++) {
        if (!(w->active >> l & 1)) continue;
        if (!b || address[l] != address[before]) b = mbarrier_at(m, w, i, address[l]);
        before = l;
        same = same && address[l] == address[first] && ((parity[l] ^ parity[first]) & 1) == 0;
        if (!is_complete(b, parity[l])) continue;
        if (!done || !same) observe(w, i, b);
        done |= UINT32_C(1) << l;
    }
    bool times_out = !suspends || !same || (!w->again && may_time_out(m) && machine_random(m, 2) == 0);
    if (!done && !times_out) {
        w->waits_for[0] = (uint64_t)slot_of(m, b);
        w->waits_for[1] = b->phase;
        warp_block(w, phase_over, "mbarrier 0x%x", b->address);
        return;
    }
    if (!done) w->spinning = w->yield = true;
    warp_write_predicate(w, &i->operand[0], done, UINT32_MAX);
}

void exec_mbarrier_try_wait_parity(warp *w, const instruction *i)
{
    wait_parity(w, i, true, false);
}

void exec_mbarrier_test_wait_parity(warp *w, const instruction *i)
{
    wait_parity(w, i, false, false);
}

void exec_mbarrier_try_wait(warp *w, const instruction *i)
{
    wait_parity(w, i, true, true);
}

void exec_mbarrier_test_wait(warp *w, const instruction *i)
{
    wait_parity(w, i, false, true);
}

/* ---- Reports ---- */

bool mbarrier_describe(const machine *m, const parked_group *p, const warp *w, char *text, size_t size, bool *late)
{
    if (p->ready != phase_over) return false;
    const mbarrier *b = &m->mbarriers[p->waits_for[0]];
    snprintf(text, size, "mbarrier 0x%x phase %u parity %u (now phase %u, %d of %u arrivals and %lld bytes pending)",
             b->address, number(b, (uint32_t)p->waits_for[1]), (unsigned)(p->waits_for[1] & 1), number(b, b->phase),
             b->pending, b->expected, (long long)b->bytes);
    /* It wants the phase after the one that it saw last; that is over, and so is the next. */
    int32_t last = b->observed[w->index];
    *late = last >= 0 && (int32_t)number(b, b->phase) == last + 3;
    return true;
}

void mbarriers_block_end(machine *m)
{
    for (int slot = 0; slot < MBARRIERS_MAX; slot++) {
        const mbarrier *b = &m->mbarriers[slot];
        if (b->live && b->bytes)
            machine_fault(m, NULL, b->last_arrival ? b->last_arrival : b->init, EMULATOR_BARRIER_BYTES,
                          "the block ends, and the mbarrier at 0x%x has %lld bytes pending in phase %u", b->address,
                          (long long)b->bytes, number(b, b->phase));
    }
}
