/* cp.async.bulk between global and shared memory: copies in flight that arrive in pieces, in any order. */
#include <string.h>

#include "exec.h"
#include "flow.h"
#include "shadow.h"

enum { UNIT = 16, PIECES_MAX = 4 };

typedef struct bulk_copy {
    uint64_t global;
    uint32_t shared, bytes;
    bool to_global;
    uint32_t slot, phase; /* of the mbarrier, when the copy was issued */
    uint32_t barrier;     /* its address */
    uint32_t group;       /* of a bulk store */
    int pieces;
    uint32_t cut[PIECES_MAX + 1]; /* piece p is [cut[p], cut[p + 1]) */
    uint32_t waiting;             /* pieces that have not arrived */
} bulk_copy;

static void check_copy(warp *w, const instruction *i, uint64_t global, uint64_t shared, uint32_t bytes)
{
    machine *m = w->m;
    if (global % UNIT || shared % UNIT || bytes % UNIT)
        machine_fault(
            m, w, i, EMULATOR_ALIGNMENT,
            "a bulk copy of %u bytes between 0x%llx in global and 0x%llx in shared memory: not multiples of %d", bytes,
            (unsigned long long)global, (unsigned long long)shared, UNIT);
    if (bytes > m->shared_bytes || shared > m->shared_bytes - bytes)
        machine_fault(m, w, i, EMULATOR_BOUNDS, "a bulk copy of %u bytes at 0x%llx of shared memory: the block has %u",
                      bytes, (unsigned long long)shared, m->shared_bytes);
    if (bytes && !emulator_memory_contains(m->config->memory, global, bytes))
        machine_fault(m, w, i, EMULATOR_BOUNDS,
                      "a bulk copy of %u bytes at 0x%llx of global memory: outside every allocation", bytes,
                      (unsigned long long)global);
}

static void cut_into_pieces(machine *m, bulk_copy *c)
{
    uint32_t units = c->bytes / UNIT, piece = 0;
    c->pieces = 1 + (int)machine_random(m, PIECES_MAX);
    for (int p = 1; p < c->pieces; p++) {
        uint32_t at = piece + machine_random(m, units - piece + 1);
        c->cut[p] = at * UNIT;
        piece = at;
    }
    c->cut[c->pieces] = c->bytes;
    for (int p = 0; p < c->pieces; p++)
        if (c->cut[p + 1] > c->cut[p] || !c->bytes) c->waiting |= UINT32_C(1) << p;
}

/* Bytes of global memory that nobody wrote stay undefined. */
static void define_piece(machine *m, uint32_t shared, uint64_t global, uint32_t bytes)
{
    bool defined = emulator_memory_defined(m->config->memory, global, bytes);
    shadow_set_defined(m, shared, bytes, defined);
    if (defined) return;
    for (uint32_t b = 0; b < bytes; b++)
        if (emulator_memory_defined(m->config->memory, global + b, 1)) shadow_set_defined(m, shared + b, 1, true);
}

static void load_piece(machine *m, const async_op *op, const bulk_copy *c, uint32_t begin, uint32_t bytes)
{
    const warp *w = &m->warp[op->warp];
    mbarrier *b = &m->mbarriers[c->slot];
    if (!b->live || b->address != c->barrier)
        machine_fault(m, w, op->at, EMULATOR_BARRIER_INIT, "a copy completes on the mbarrier at 0x%x, which is no more",
                      c->barrier);
    if (b->phase != c->phase)
        machine_fault(m, w, op->at, EMULATOR_BARRIER_BYTES,
                      "%u bytes of a copy arrive at the mbarrier at 0x%x after the phase is over in which it was "
                      "issued: it expected too few",
                      bytes, c->barrier);
    accessor a = {clock_of_mbarrier((int)c->slot), b->phase + 1, PROXY_ASYNC, -1, &op->clock, w, op->at, false};
    shadow_write(m, &a, c->shared + begin, bytes);
    memcpy(m->shared + c->shared + begin, (const void *)(uintptr_t)(c->global + begin), bytes);
    define_piece(m, c->shared + begin, c->global + begin, bytes);
    mbarrier_complete_bytes(m, op, b, bytes, NULL);
}

static void store_piece(machine *m, const async_op *op, const bulk_copy *c, uint32_t begin, uint32_t bytes)
{
    const warp *w = &m->warp[op->warp];
    accessor a = {clock_of_bulk_stores(op->warp), c->group, PROXY_ASYNC, -1, &op->clock, w, op->at, false};
    shadow_read(m, &a, c->shared + begin, bytes);
    if (!shadow_defined(m, c->shared + begin, bytes))
        machine_fault(m, w, op->at, EMULATOR_UNDEFINED, "a bulk store of shared memory at 0x%x that is not defined",
                      c->shared + begin);
    memcpy((void *)(uintptr_t)(c->global + begin), m->shared + c->shared + begin, bytes);
    emulator_memory_define(m->config->memory, c->global + begin, bytes);
}

static void run_piece(machine *m, async_op *op)
{
    bulk_copy *c = op->payload;
    int skip = (int)machine_random(m, (uint32_t)__builtin_popcount(c->waiting)), p = 0;
    for (;; p++) {
        if (!(c->waiting >> p & 1)) continue;
        if (skip-- == 0) break;
    }
    c->waiting &= ~(UINT32_C(1) << p);
    uint32_t begin = c->cut[p], bytes = c->cut[p + 1] - begin;
    if (bytes) (c->to_global ? store_piece : load_piece)(m, op, c, begin, bytes);
    op->again = c->waiting != 0;
}

static void issue_load(warp *w, const instruction *i, uint64_t shared, uint64_t global, uint32_t bytes,
                       uint64_t barrier)
{
    machine *m = w->m;
    check_copy(w, i, global, shared, bytes);
    const mbarrier *b = mbarrier_at(m, w, i, barrier);
    if (m->config->judge && (!b->fence_time || w->clock.time[b->init_warp] < b->fence_time))
        machine_fault(m, w, i, EMULATOR_BARRIER_INIT,
                      "a copy that completes on the mbarrier at 0x%x, whose initialisation in line %d no "
                      "fence.mbarrier_init makes visible to copies",
                      b->address, b->init->line);
    async_op *op = async_issue(w, ASYNC_COPIES, run_piece, sizeof(bulk_copy));
    bulk_copy *c = op->payload;
    *c = (bulk_copy){.global = global, .shared = (uint32_t)shared, .bytes = bytes};
    c->slot = (uint32_t)(b - m->mbarriers);
    c->phase = b->phase;
    c->barrier = b->address;
    cut_into_pieces(m, c);
}

static void issue_store(warp *w, const instruction *i, uint64_t global, uint64_t shared, uint32_t bytes)
{
    check_copy(w, i, global, shared, bytes);
    async_op *op = async_issue(w, ASYNC_COPIES, run_piece, sizeof(bulk_copy));
    bulk_copy *c = op->payload;
    *c = (bulk_copy){.global = global,
                     .shared = (uint32_t)shared,
                     .bytes = bytes,
                     .to_global = true,
                     .group = w->flow->bulk_groups + 1};
    cut_into_pieces(w->m, c);
}

/* waits_for: the last group that must be over. */
static bool stores_over(warp *w)
{
    for (const async_op *op = w->m->in_flight; op; op = op->next) {
        if (op->run != run_piece || op->warp != w->index) continue;
        const bulk_copy *c = op->payload;
        if (c->to_global && c->group <= w->waits_for[0]) return false;
    }
    return true;
}

static void wait_group(warp *w, const instruction *i)
{
    uint32_t left = (uint32_t)i->operand[0].bits, committed = w->flow->bulk_groups;
    uint32_t last = left < committed ? committed - left : 0;
    w->waits_for[0] = last;
    if (!stores_over(w)) {
        warp_block(w, stores_over, "bulk stores of group %u", last);
        return;
    }
    uint32_t *seen = &w->clock.time[clock_of_bulk_stores(w->index)];
    if (*seen < last) *seen = last;
}

void exec_cp_async_bulk(warp *w, const instruction *i)
{
    if (i->mods.mode == MODE_BULK_COMMIT_GROUP) {
        w->flow->bulk_groups++;
        return;
    }
    if (i->mods.mode == MODE_BULK_WAIT_GROUP) {
        wait_group(w, i);
        return;
    }
    bool to_global = i->mods.space == SPACE_GLOBAL;
    uint64_t to[LANES], from[LANES], barrier[LANES];
    lanes32 room;
    uint32_t defined;
    warp_addresses(w, &i->operand[0], to);
    warp_addresses(w, &i->operand[1], from);
    const uint32_t *bytes = warp_read32(w, &i->operand[2], &room, &defined);
    if (!to_global) warp_addresses(w, &i->operand[3], barrier);
    w->issues_copies = true;
    for (int l = 0; l < LANES; l++) {
        if (!(w->active >> l & 1)) continue;
        if (to_global)
            issue_store(w, i, to[l], from[l], bytes[l]);
        else
            issue_load(w, i, to[l], from[l], bytes[l], barrier[l]);
    }
}
