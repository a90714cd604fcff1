/* cp.async: copies of 4, 8 or 16 bytes by single threads from global to shared memory, in groups of each thread; and
 * the arrival at an mbarrier when those of a thread are done.
 *
 * An instruction's copies are one operation in flight, of the lanes that are in the same group of theirs. Its writes
 * count as the warp's cp.async number n, and who has waited for it has seen n. */
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "exec.h"
#include "memory.h"
#include "shadow.h"

typedef struct async_copy {
    uint32_t lanes, number; /* among the warp's */
    uint32_t bytes;
    uint64_t to[LANES], from[LANES];
    uint32_t size[LANES]; /* bytes that are read; the rest are zeros */
    uint64_t sequence;    /* instructions of the warp when it was issued */
} async_copy;

typedef struct async_arrival {
    uint32_t lanes, number; /* copies of these lanes up to this number must be done */
    uint32_t barrier;       /* its address */
} async_arrival;

/* A copy that some lane has not waited for yet. */
typedef struct open_copy {
    uint32_t number, lanes, group; /* lanes that have not waited; their group, from 1 */
    bool done;
} open_copy;

struct async_copies {
    uint32_t issued;           /* number of the newest */
    uint32_t committed[LANES]; /* groups of each lane */
    open_copy *open;
    int count, capacity;
};

static struct async_copies *copies_of(warp *w)
{
    if (!w->copies) w->copies = machine_allocate(w->m, sizeof *w->copies);
    return w->copies;
}

void async_copies_reset(warp *w)
{
    if (!w->copies) return;
    free(w->copies->open);
    free(w->copies);
    w->copies = NULL;
}

static open_copy *new_open(warp *w, struct async_copies *c)
{
    if (c->count == c->capacity) {
        int capacity = c->capacity ? 2 * c->capacity : 16;
        open_copy *more = realloc(c->open, (size_t)capacity * sizeof *more);
        if (!more) machine_fault(w->m, w, w->at, EMULATOR_MEMORY, "no memory");
        c->open = more;
        c->capacity = capacity;
    }
    return &c->open[c->count++];
}

/* ---- Running ---- */

static void run_lane(machine *m, const async_op *op, const async_copy *c, int lane)
{
    warp *w = &m->warp[op->warp];
    uint8_t bytes[16] = {0};
    bool defined[16];
    memset(defined, 1, sizeof defined);
    if (c->size[lane] && !emulator_memory_contains(m->config->memory, c->from[lane], c->size[lane]))
        machine_fault(m, w, op->at, EMULATOR_BOUNDS, "lane %d copies from 0x%llx, which is freed", lane,
                      (unsigned long long)c->from[lane]);
    memcpy(bytes, (const void *)(uintptr_t)c->from[lane], c->size[lane]);
    for (uint32_t b = 0; b < c->size[lane]; b++)
        defined[b] = emulator_memory_defined(m->config->memory, c->from[lane] + b, 1);
    accessor a = {clock_of_async_copies(op->warp), c->number, PROXY_GENERIC, lane, &op->clock, w, op->at, false};
    shadow_write(m, &a, (uint32_t)c->to[lane], c->bytes);
    memcpy(m->shared + c->to[lane], bytes, c->bytes);
    for (uint32_t b = 0; b < c->bytes; b++) shadow_set_defined(m, (uint32_t)c->to[lane] + b, 1, defined[b]);
}

static void run_copy(machine *m, async_op *op)
{
    const async_copy *c = op->payload;
    for (int lane = 0; lane < LANES; lane++)
        if (c->lanes >> lane & 1) run_lane(m, op, c, lane);
    struct async_copies *all = copies_of(&m->warp[op->warp]);
    for (int k = 0; k < all->count; k++)
        if (all->open[k].number == c->number) all->open[k].done = true;
}

/* ---- Issue ---- */

static void check_lane(warp *w, const instruction *i, const async_copy *c, int lane)
{
    machine *m = w->m;
    if ((c->to[lane] | c->from[lane]) % c->bytes)
        machine_fault(m, w, i, EMULATOR_ALIGNMENT,
                      "lane %d copies %u bytes from 0x%llx to 0x%llx of shared memory: no multiples of that", lane,
                      c->bytes, (unsigned long long)c->from[lane], (unsigned long long)c->to[lane]);
    if (c->size[lane] > c->bytes)
        machine_fault(m, w, i, EMULATOR_BOUNDS, "lane %d copies %u bytes of %u", lane, c->size[lane], c->bytes);
    if (c->to[lane] > m->shared_bytes || c->bytes > m->shared_bytes - c->to[lane])
        machine_fault(m, w, i, EMULATOR_BOUNDS, "lane %d copies %u bytes to 0x%llx of shared memory: the block has %u",
                      lane, c->bytes, (unsigned long long)c->to[lane], m->shared_bytes);
    if (c->size[lane] && !emulator_memory_contains(m->config->memory, c->from[lane], c->size[lane])) {
        char where[200];
        memory_describe(m->config->memory, c->from[lane], where, sizeof where);
        machine_fault(m, w, i, EMULATOR_BOUNDS, "lane %d copies %u bytes of global memory at 0x%llx: %s", lane,
                      c->size[lane], (unsigned long long)c->from[lane], where);
    }
}

/* Places: destination, source, size, bytes of the source or a predicate that ignores it. */
void exec_cp_async(warp *w, const instruction *i)
{
    machine *m = w->m;
    struct async_copies *all = copies_of(w);
    async_copy c = {.bytes = (uint32_t)i->operand[2].bits, .sequence = w->executed};
    bool whole = (i->mods.extra & EXTRA_CG) != 0;
    if (c.bytes != 16 && (whole || (c.bytes != 4 && c.bytes != 8)))
        machine_fault(m, w, i, EMULATOR_ALIGNMENT, "cp.async.%s of %u bytes: %s", whole ? "cg" : "ca", c.bytes,
                      whole ? "16 are possible" : "4, 8 or 16 are possible");
    const operand *size = &i->operand[3];
    bool by_predicate = size->kind == OPERAND_REGISTER && size->reg.type == TYPE_PRED;
    warp_addresses(w, &i->operand[0], c.to);
    warp_addresses(w, &i->operand[1], c.from);
    lanes32 room;
    uint32_t defined = UINT32_MAX, ignored = 0;
    const uint32_t *sizes = NULL;
    if (by_predicate)
        ignored = warp_read_predicate(w, size, &defined);
    else if (size->kind != OPERAND_NONE)
        sizes = warp_read32(w, size, &room, &defined);
    for (int lane = 0; lane < LANES; lane++) {
        if (!(w->active >> lane & 1)) continue;
        c.to[lane] = c.to[lane] >= GENERIC_SHARED_WINDOW ? c.to[lane] - GENERIC_SHARED_WINDOW : c.to[lane];
        c.size[lane] = sizes ? sizes[lane] : ignored >> lane & 1 ? 0 : c.bytes;
        check_lane(w, i, &c, lane);
    }
    for (uint32_t left = w->active; left;) { /* lanes of the same group together */
        uint32_t group = all->committed[__builtin_ctz(left)];
        c.lanes = 0;
        for (int lane = 0; lane < LANES; lane++)
            if (left >> lane & 1 && all->committed[lane] == group) c.lanes |= UINT32_C(1) << lane;
        left &= ~c.lanes;
        c.number = ++all->issued;
        open_copy *o = new_open(w, all);
        *o = (open_copy){c.number, c.lanes, group + 1, false};
        async_op *op = async_issue(w, ASYNC_COPIES, run_copy, sizeof c);
        memcpy(op->payload, &c, sizeof c);
    }
    w->issues_copies = true;
}

void exec_cp_async_commit_group(warp *w, const instruction *i)
{
    (void)i;
    struct async_copies *all = copies_of(w);
    for (int lane = 0; lane < LANES; lane++)
        if (w->active >> lane & 1) all->committed[lane]++;
}

/* ---- Waiting: waits_for is how many groups may be left ---- */

static bool must_be_done(const warp *w, const struct async_copies *all, const open_copy *o)
{
    for (int lane = 0; lane < LANES; lane++) {
        if (!(w->active & o->lanes) || !((w->active & o->lanes) >> lane & 1)) continue;
        if (w->waits_for[0] == UINT64_MAX || (uint64_t)o->group + w->waits_for[0] <= all->committed[lane]) return true;
    }
    return false;
}

static bool groups_done(warp *w)
{
    const struct async_copies *all = copies_of(w);
    for (int k = 0; k < all->count; k++)
        if (!all->open[k].done && must_be_done(w, all, &all->open[k])) return false;
    return true;
}

/* The active lanes have seen these copies; what every lane of an older copy has seen, the warp has. */
static void see(warp *w)
{
    struct async_copies *all = copies_of(w);
    int kept = 0;
    for (int k = 0; k < all->count; k++) {
        open_copy *o = &all->open[k];
        if (o->done && must_be_done(w, all, o)) o->lanes &= ~w->active;
        if (o->lanes) all->open[kept++] = *o;
    }
    all->count = kept;
    uint32_t seen = all->count ? all->open[0].number - 1 : all->issued;
    uint32_t *time = &w->clock.time[clock_of_async_copies(w->index)];
    if (*time < seen) *time = seen;
}

/* cp.async.wait_group N, and cp.async.wait_all, which also waits for what is in no group yet. */
void exec_cp_async_wait_group(warp *w, const instruction *i)
{
    bool all = i->operand[0].kind == OPERAND_NONE;
    w->waits_for[0] = all ? UINT64_MAX : i->operand[0].bits;
    if (!groups_done(w)) {
        warp_block(w, groups_done, "copies of cp.async, all but %lld groups",
                   all ? 0LL : (long long)i->operand[0].bits);
        return;
    }
    see(w);
}

/* ---- cp.async.mbarrier.arrive ---- */

static bool copies_landed(machine *m, async_op *op)
{
    const async_arrival *a = op->payload;
    const struct async_copies *all = copies_of(&m->warp[op->warp]);
    for (int k = 0; k < all->count; k++)
        if (!all->open[k].done && all->open[k].number <= a->number && all->open[k].lanes & a->lanes) return false;
    return true;
}

static void run_arrival(machine *m, async_op *op)
{
    const async_arrival *a = op->payload;
    const warp *w = &m->warp[op->warp];
    mbarrier *b = mbarrier_at(m, NULL, op->at, a->barrier);
    uint32_t *time = &op->clock.time[clock_of_async_copies(op->warp)];
    if (*time < a->number) *time = a->number;
    mbarrier_arrive(m, w, op->at, b, __builtin_popcount(a->lanes), &op->clock);
}

/* Without .noinc the arrival is one more than the mbarrier counts on. */
void exec_cp_async_mbarrier_arrive(warp *w, const instruction *i)
{
    machine *m = w->m;
    uint64_t address[LANES];
    warp_addresses(w, &i->operand[0], address);
    for (uint32_t left = w->active; left;) {
        int first = __builtin_ctz(left);
        mbarrier *b = mbarrier_at(m, w, i, address[first]);
        async_arrival a = {.number = copies_of(w)->issued, .barrier = b->address};
        for (int lane = 0; lane < LANES; lane++)
            if (left >> lane & 1 && address[lane] == address[first]) a.lanes |= UINT32_C(1) << lane;
        left &= ~a.lanes;
        if (!(i->mods.extra & EXTRA_NOINC)) b->pending += __builtin_popcount(a.lanes);
        async_op *op = async_issue(w, ASYNC_COPIES, run_arrival, sizeof a);
        memcpy(op->payload, &a, sizeof a);
        op->ready = copies_landed;
    }
}

/* At the end of a block copies that nobody waited for land, and what waits for them arrives. */
void async_copies_drain(machine *m)
{
    for (int pass = 0; pass < 2; pass++) {
        for (async_op *op = m->in_flight, *next; op; op = next) {
            next = op->next;
            if (op->run != (pass == 0 ? run_copy : run_arrival)) continue;
            op->run(m, op);
            async_remove(m, op);
        }
    }
}
