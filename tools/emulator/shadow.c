/* The shadow of shared memory: of each 16 bytes the last writers and the readers since, by which accesses that nothing
 * orders are found. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shadow.h"

enum { GRANULE = 16 };

/* An access of some bytes of a granule. Those of a list have disjoint masks if they are writes, or if they are reads of
 * one component. */
typedef struct record {
    const instruction *at;
    uint32_t next; /* in its list or in the list of free ones; 0: none */
    uint32_t time;
    uint32_t sequence; /* of a generic write: instructions that its warp had executed */
    uint16_t mask;
    uint8_t component;
    uint8_t proxy;
    int8_t lane;
    bool atomic;
} record;

_Static_assert(CLOCKS <= 256, "a component fits a byte");

typedef struct granule {
    uint32_t writes, reads;
    uint16_t defined, mbarrier;
} granule;

/* A fence.proxy.async: of these lanes, after so many instructions of the warp, at this time of its clock. */
typedef struct fence {
    uint64_t sequence;
    uint32_t time, lanes;
} fence;

typedef struct fence_log {
    fence *entries;
    int count, capacity;
} fence_log;

struct shadow {
    granule *granules;
    record *records; /* record 0 is never used */
    uint32_t record_count, record_capacity, free_records;
    fence_log fences[WARPS_MAX];
};

shadow *shadow_create(uint32_t bytes)
{
    shadow *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->granules = calloc(bytes / GRANULE + 1, sizeof *s->granules);
    s->record_capacity = 4096;
    s->records = calloc(s->record_capacity, sizeof *s->records);
    s->record_count = 1;
    if (s->granules && s->records) return s;
    shadow_destroy(s);
    return NULL;
}

void shadow_destroy(shadow *s)
{
    if (!s) return;
    for (int w = 0; w < WARPS_MAX; w++) free(s->fences[w].entries);
    free(s->granules);
    free(s->records);
    free(s);
}

static uint32_t new_record(machine *m, const accessor *a)
{
    shadow *s = m->shadow;
    uint32_t r = s->free_records;
    if (r) {
        s->free_records = s->records[r].next;
        return r;
    }
    if (s->record_count == s->record_capacity) {
        record *more = realloc(s->records, 2 * (size_t)s->record_capacity * sizeof *more);
        if (!more) machine_fault(m, a->w, a->at, EMULATOR_MEMORY, "no memory");
        s->records = more;
        s->record_capacity *= 2;
    }
    return s->record_count++;
}

/* ---- Judging ---- */

/* The clock's time of w at the first fence.proxy.async of the lane after its write; 0: none. */
static uint32_t fenced_at(const shadow *s, int w, int lane, uint32_t sequence)
{
    const fence_log *log = &s->fences[w];
    int low = 0, high = log->count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (log->entries[middle].sequence > sequence)
            high = middle;
        else
            low = middle + 1;
    }
    for (int f = low; f < log->count; f++)
        if (log->entries[f].lanes >> lane & 1) return log->entries[f].time;
    return 0;
}

static bool ordered(const accessor *a, const record *r)
{
    if (a->atomic && r->atomic) return true;
    /* Copies of one warp by cp.async have no order, nor have bytes that complete on one mbarrier in one phase. */
    if (r->component == a->component && r->component < clock_of_async_copies(0)) return true;
    return a->clock->time[r->component] >= r->time;
}

static void describe(const machine *m, int component, int lane, char *text, size_t size)
{
    if (component < clock_of_pipe(0))
        snprintf(text, size, "warp %d lane %d", component, lane);
    else if (component < clock_of_bulk_stores(0))
        snprintf(text, size, "a matrix product of warp %d", component - clock_of_pipe(0));
    else if (component < clock_of_async_copies(0))
        snprintf(text, size, "a bulk store of warp %d", component - clock_of_bulk_stores(0));
    else if (component < clock_of_mbarrier(0))
        snprintf(text, size, "a cp.async of warp %d", component - clock_of_async_copies(0));
    else
        snprintf(text, size, "a copy that completes on the mbarrier at 0x%x",
                 m->mbarriers[component - clock_of_mbarrier(0)].address);
}

static _Noreturn void race(machine *m, const accessor *a, const record *r, uint32_t address, bool writes, bool written)
{
    char one[80], other[80];
    describe(m, a->component, a->lane, one, sizeof one);
    describe(m, r->component, r->lane, other, sizeof other);
    machine_fault(m, a->w, a->at, EMULATOR_RACE,
                  "shared memory at 0x%x: %s %s what %s %s in line %d, and nothing orders the two", address, one,
                  writes ? "overwrites" : "reads", other, written ? "wrote" : "read", r->at ? r->at->line : 0);
}

static void judge_write_before(machine *m, const accessor *a, const record *r, uint32_t address, bool writes)
{
    if (!ordered(a, r)) race(m, a, r, address, writes, true);
    if (r->proxy == PROXY_ASYNC || a->proxy == PROXY_GENERIC) return;
    int w = r->component < WARPS_MAX ? r->component : r->component - clock_of_async_copies(0);
    uint32_t fenced = fenced_at(m->shadow, w, r->lane, r->sequence);
    if (fenced && a->clock->time[w] >= fenced) return;
    char one[80];
    describe(m, a->component, a->lane, one, sizeof one);
    machine_fault(m, a->w, a->at, EMULATOR_PROXY,
                  "shared memory at 0x%x: %s %s what warp %d lane %d wrote in line %d without a fence.proxy.async that "
                  "is ordered before",
                  address, one, writes ? "overwrites" : "reads", w, r->lane, r->at ? r->at->line : 0);
}

/* ---- Recording ---- */

static void drop(shadow *s, uint32_t *link)
{
    uint32_t r = *link;
    *link = s->records[r].next;
    s->records[r].next = s->free_records;
    s->free_records = r;
}

static void add(machine *m, const accessor *a, uint32_t granule_index, bool write, uint16_t mask)
{
    shadow *s = m->shadow;
    uint32_t r = new_record(m, a);
    granule *g = &s->granules[granule_index];
    uint32_t *list = write ? &g->writes : &g->reads;
    uint32_t sequence = a->w && a->proxy == PROXY_GENERIC ? (uint32_t)a->w->executed : 0;
    s->records[r] = (record){a->at,
                             *list,
                             a->time,
                             sequence,
                             mask,
                             (uint8_t)a->component,
                             (uint8_t)a->proxy,
                             (int8_t)(a->lane < 0 ? 0 : a->lane),
                             a->atomic};
    *list = r;
}

static void read_granule(machine *m, const accessor *a, uint32_t index, uint16_t mask)
{
    shadow *s = m->shadow;
    granule *g = &s->granules[index];
    for (uint32_t r = g->writes; r; r = s->records[r].next)
        if (s->records[r].mask & mask) judge_write_before(m, a, &s->records[r], index * GRANULE, false);
    for (uint32_t *link = &g->reads; *link;) {
        record *r = &s->records[*link];
        if (r->component == a->component) {
            if (r->time == a->time && r->proxy == a->proxy && r->atomic == a->atomic) {
                r->mask |= mask;
                r->at = a->at;
                return; /* older reads of these bytes do no harm */
            }
            r->mask &= (uint16_t)~mask;
        }
        if (r->mask)
            link = &r->next;
        else
            drop(s, link);
    }
    add(m, a, index, false, mask);
}

static void write_granule(machine *m, const accessor *a, uint32_t index, uint16_t mask)
{
    shadow *s = m->shadow;
    granule *g = &s->granules[index];
    for (uint32_t *link = &g->writes; *link;) {
        record *r = &s->records[*link];
        if (r->mask & mask) judge_write_before(m, a, r, index * GRANULE, true);
        r->mask &= (uint16_t)~mask;
        if (r->mask)
            link = &r->next;
        else
            drop(s, link);
    }
    for (uint32_t *link = &g->reads; *link;) {
        record *r = &s->records[*link];
        if (r->mask & mask && !ordered(a, r)) race(m, a, r, index * GRANULE, true, false);
        r->mask &= (uint16_t)~mask;
        if (r->mask)
            link = &r->next;
        else
            drop(s, link);
    }
    add(m, a, index, true, mask);
}

/* The bytes of granule g that belong to [address, address + bytes). */
static uint16_t mask_of(uint32_t g, uint32_t address, uint32_t bytes)
{
    uint32_t begin = g * GRANULE, low = address > begin ? address - begin : 0, high = address + bytes - begin;
    if (high > GRANULE) high = GRANULE;
    return (uint16_t)(((UINT32_C(1) << high) - 1) & ~((UINT32_C(1) << low) - 1));
}

static void check_bounds(machine *m, const accessor *a, uint32_t address, uint32_t bytes)
{
    if (bytes > m->shared_bytes || address > m->shared_bytes - bytes)
        machine_fault(m, a->w, a->at, EMULATOR_BOUNDS, "%u bytes of shared memory at 0x%x: the block has %u", bytes,
                      address, m->shared_bytes);
}

void shadow_read(machine *m, const accessor *a, uint32_t address, uint32_t bytes)
{
    check_bounds(m, a, address, bytes);
    if (!m->config->judge || !bytes) return;
    for (uint32_t g = address / GRANULE; g <= (address + bytes - 1) / GRANULE; g++)
        read_granule(m, a, g, mask_of(g, address, bytes));
}

void shadow_write(machine *m, const accessor *a, uint32_t address, uint32_t bytes)
{
    check_bounds(m, a, address, bytes);
    if (!bytes) return;
    for (uint32_t g = address / GRANULE; g <= (address + bytes - 1) / GRANULE; g++) {
        uint16_t mask = mask_of(g, address, bytes);
        if (m->shadow->granules[g].mbarrier & mask)
            machine_fault(m, a->w, a->at, EMULATOR_BARRIER_INIT, "%u bytes at 0x%x overwrite an mbarrier", bytes,
                          address);
        if (m->config->judge) write_granule(m, a, g, mask);
    }
}

bool shadow_defined(const machine *m, uint32_t address, uint32_t bytes)
{
    if (!bytes) return true;
    if (bytes > m->shared_bytes || address > m->shared_bytes - bytes) return false;
    for (uint32_t g = address / GRANULE; g <= (address + bytes - 1) / GRANULE; g++)
        if (mask_of(g, address, bytes) & ~m->shadow->granules[g].defined) return false;
    return true;
}

void shadow_set_defined(machine *m, uint32_t address, uint32_t bytes, bool defined)
{
    if (!bytes || bytes > m->shared_bytes || address > m->shared_bytes - bytes) return;
    for (uint32_t g = address / GRANULE; g <= (address + bytes - 1) / GRANULE; g++) {
        granule *to = &m->shadow->granules[g];
        uint16_t mask = mask_of(g, address, bytes);
        to->defined = (uint16_t)(defined ? to->defined | mask : to->defined & ~mask);
    }
}

void shadow_set_mbarrier(machine *m, uint32_t address, bool is)
{
    granule *g = &m->shadow->granules[address / GRANULE];
    uint16_t mask = mask_of(address / GRANULE, address, 8);
    g->mbarrier = (uint16_t)(is ? g->mbarrier | mask : g->mbarrier & ~mask);
}

void shadow_fence_proxy(warp *w)
{
    machine *m = w->m;
    if (!m->config->judge) return;
    fence_log *log = &m->shadow->fences[w->index];
    if (log->count == log->capacity) {
        int capacity = log->capacity ? 2 * log->capacity : 64;
        fence *more = realloc(log->entries, (size_t)capacity * sizeof *more);
        if (!more) machine_fault(m, w, w->at, EMULATOR_MEMORY, "no memory");
        log->entries = more;
        log->capacity = capacity;
    }
    log->entries[log->count++] = (fence){w->executed, w->clock.time[w->index], w->active};
}
