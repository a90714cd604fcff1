/* Tensor memory: allocation, and the judge of its accesses. */
#include "tensor_memory.h"

#include "shadow.h"

#include <stdlib.h>
#include <string.h>

tcgen05_state *tcgen05_state_of(warp *w)
{
    tensor_state *t = w->tensor;
    if (!t->tcgen05) {
        t->tcgen05 = machine_allocate(w->m, sizeof *t->tcgen05);
        t->tcgen05->pending = machine_allocate(w->m, ((size_t)w->m->entry->slots + 1) * sizeof *t->tcgen05->pending);
        t->tcgen05->after_lanes[0] = UINT32_MAX;
    }
    return t->tcgen05;
}

tensor_memory *tensor_memory_of(machine *m)
{
    if (!m->tmem) m->tmem = machine_allocate(m, sizeof *m->tmem);
    return m->tmem;
}

/* ---- Judging ---- */

/* Loads and stores are those of all threads, so they count on the fence once all have done it. */
void tcgen05_before_thread_sync(warp *w)
{
    tcgen05_state *s = tcgen05_state_of(w);
    uint32_t time = w->clock.time[clock_of_warp(w->index)];
    s->before_lanes |= w->active;
    if (w->alive & ~s->before_lanes) return;
    s->before_lanes = 0;
    if (!s->fence_count || s->fences[s->fence_count - 1].time != time) {
        if (s->fence_count == s->fence_capacity) {
            int capacity = s->fence_capacity ? 2 * s->fence_capacity : 64;
            tcgen05_fence *fences = machine_allocate(w->m, (size_t)capacity * sizeof *fences);
            if (s->fence_count) memcpy(fences, s->fences, (size_t)s->fence_count * sizeof *fences);
            free(s->fences);
            s->fences = fences;
            s->fence_capacity = capacity;
        }
        s->fence_count++;
    }
    s->fences[s->fence_count - 1] = (tcgen05_fence){time, s->loads_done, s->stores_done};
}

void tcgen05_after_thread_sync(warp *w)
{
    tcgen05_state *s = tcgen05_state_of(w);
    int unused = 0;
    for (int f = 0; f < AFTER_FENCES; f++) {
        s->after_lanes[f] &= ~w->active;
        if (!s->after_lanes[f]) unused = f;
    }
    s->after[unused] = w->clock;
    s->after_lanes[unused] = w->active;
}

/* What all active threads may count on. */
static const vector_clock *seen_by_active(warp *w)
{
    tcgen05_state *s = tcgen05_state_of(w);
    bool first = true;
    for (int f = 0; f < AFTER_FENCES; f++) {
        if (!(s->after_lanes[f] & w->active)) continue;
        if (!(w->active & ~s->after_lanes[f])) return &s->after[f];
        for (int c = 0; c < CLOCKS; c++)
            if (first || s->after[f].time[c] < s->after_all.time[c]) s->after_all.time[c] = s->after[f].time[c];
        first = false;
    }
    return &s->after_all;
}

/* How many loads or stores of a warp were over at the last of its fences that `seen` includes. */
static uint32_t done_at(machine *m, int warp_index, tmem_by by, const vector_clock *seen)
{
    const tcgen05_state *s = tcgen05_state_of(&m->warp[warp_index]);
    uint32_t time = seen->time[clock_of_warp(warp_index)];
    int low = 0, high = s->fence_count; /* fences before `low` are at or before `time` */
    while (low < high) {
        int middle = (low + high) / 2;
        if (s->fences[middle].time <= time)
            low = middle + 1;
        else
            high = middle;
    }
    if (!low) return 0;
    return by == TMEM_LOAD ? s->fences[low - 1].loads_done : s->fences[low - 1].stores_done;
}

/* Both are products or copies of one thread, and neither touches other accumulators than those that the first one sums
 * in. */
static bool is_pipelined(const tmem_access *now, const tmem_access *before)
{
    if (now->by != TMEM_PIPE || before->by != TMEM_PIPE || now->warp != before->warp || now->lane != before->lane)
        return false;
    return !before->accumulator || before->accumulator == now->accumulator;
}

static bool is_over(machine *m, const tmem_accessor *a, const tmem_access *before)
{
    bool own = before->warp == a->access.warp;
    if (before->by == TMEM_PIPE)
        return is_pipelined(&a->access, before) || a->seen->time[clock_of_pipe(before->warp)] >= before->number;
    if (own && before->by == TMEM_STORE && a->access.by == TMEM_STORE) return true;
    if (own) return before->number <= (before->by == TMEM_LOAD ? a->loads_done : a->stores_done);
    return done_at(m, before->warp, before->by, a->seen) >= before->number;
}

static void judge(machine *m, const tmem_accessor *a, const tmem_access *before, bool writes, bool wrote,
                  uint32_t column, uint32_t granule)
{
    if (before->by == TMEM_NOBODY || is_over(m, a, before)) return;
    bool own = before->warp == a->access.warp, pipe = before->by == TMEM_PIPE;
    bool plain = pipe ? a->plain->time[clock_of_pipe(before->warp)] >= before->number
                      : own || a->plain->time[clock_of_warp(before->warp)] >= before->time;
    static const char *const by[] = {"", "tcgen05.mma or .cp", "tcgen05.ld", "tcgen05.st"};
    static const char *const remedy[] = {"", "fence::after_thread_sync",
                                         "tcgen05.wait::ld, fence::before_ or after_thread_sync",
                                         "tcgen05.wait::st, fence::before_ or after_thread_sync"};
    bool in_one_pipe = own && pipe && a->access.by == TMEM_PIPE;
    bool missing = plain || (pipe && !writes) || in_one_pipe;
    machine_fault(m, a->w, a->at, missing ? EMULATOR_TCGEN05_ORDER : EMULATOR_RACE,
                  "%s tensor memory, lanes %u-%u of column %u, that the %s of warp %d, line %d, has %s: %s",
                  writes ? "overwrites" : "reads", granule * TMEM_GRANULE, (granule + 1) * TMEM_GRANULE - 1, column,
                  by[before->by], before->warp, before->line, wrote ? "written" : "yet to read",
                  !missing      ? "nothing orders them"
                  : in_one_pipe ? "no order but for one thread and the same accumulators, shape and kind"
                  : !plain      ? "no commit of it has been waited for"
                                : remedy[before->by]);
}

tmem_accessor tmem_accessor_now(warp *w, const instruction *i, tmem_by by, uint32_t number)
{
    const tcgen05_state *s = tcgen05_state_of(w);
    return (tmem_accessor){.access = {.by = (uint8_t)by,
                                      .warp = (uint8_t)w->index,
                                      .lane = (uint8_t)__builtin_ctz(w->active),
                                      .number = number,
                                      .time = w->clock.time[w->index],
                                      .line = i->line},
                           .seen = seen_by_active(w),
                           .plain = &w->clock,
                           .loads_done = s->loads_done,
                           .stores_done = s->stores_done,
                           .w = w,
                           .at = i};
}

void tmem_read(machine *m, const tmem_accessor *a, uint32_t column, uint32_t columns, uint32_t granules)
{
    if (!m->config->judge) return;
    for (uint32_t c = column; c < column + columns; c++) {
        for (uint32_t g = 0; g < TMEM_GRANULES; g++) {
            if (!(granules >> g & 1)) continue;
            tmem_granule *granule = &m->tmem->granule[c][g];
            judge(m, a, &granule->writer, false, true, c, g);
            tmem_access *free_reader = &granule->reader[0];
            for (int r = 0; r < TMEM_READERS; r++) {
                tmem_access *reader = &granule->reader[r];
                if (reader->by == a->access.by && reader->warp == a->access.warp) {
                    free_reader = reader;
                    break;
                }
                if (reader->by == TMEM_NOBODY) free_reader = reader;
            }
            *free_reader = a->access;
        }
    }
}

void tmem_write(machine *m, const tmem_accessor *a, uint32_t column, uint32_t columns, uint32_t granules)
{
    if (!m->config->judge) return;
    for (uint32_t c = column; c < column + columns; c++) {
        for (uint32_t g = 0; g < TMEM_GRANULES; g++) {
            if (!(granules >> g & 1)) continue;
            tmem_granule *granule = &m->tmem->granule[c][g];
            judge(m, a, &granule->writer, true, true, c, g);
            for (int r = 0; r < TMEM_READERS; r++) {
                judge(m, a, &granule->reader[r], true, false, c, g);
                granule->reader[r].by = TMEM_NOBODY;
            }
            granule->writer = a->access;
        }
    }
}

void tmem_check(machine *m, const warp *w, const instruction *i, uint32_t column, uint32_t columns, const char *what)
{
    bool inside = m->tmem && column < TMEM_COLUMNS && columns <= TMEM_COLUMNS - column;
    for (uint32_t u = column / TMEM_UNIT; inside && u <= (column + columns - 1) / TMEM_UNIT; u++)
        inside = m->tmem->allocation[u] != 0;
    if (inside) return;
    machine_fault(m, w, i, EMULATOR_TMEM, "%s: columns %u-%u of tensor memory are not allocated", what, column,
                  column + columns - 1);
}

/* ---- Allocation ---- */

static void reject_pairs(warp *w, const instruction *i)
{
    if (i->mods.k == 2)
        machine_fault(w->m, w, i, EMULATOR_UNKNOWN_FORM, ".cta_group::2: pairs of blocks are not executed");
}

static uint32_t column_count(warp *w, const instruction *i)
{
    uint64_t columns = warp_uniform(w, &i->operand[1], "number of columns");
    if (columns < TMEM_UNIT || columns > TMEM_COLUMNS || (columns & (columns - 1))) {
        machine_fault(w->m, w, i, EMULATOR_TMEM, "%llu columns: not a power of two from 32 to 512",
                      (unsigned long long)columns);
    }
    return (uint32_t)columns;
}

/* First of so many free columns, or -1. Odd seeds get the last place: no kernel may count on column 0. */
static int find_columns(const machine *m, uint32_t columns)
{
    int units = (int)(columns / TMEM_UNIT), places = TMEM_COLUMNS / TMEM_UNIT - units + 1;
    for (int n = 0; n < places; n++) {
        int u = m->config->seed & 1 ? places - 1 - n : n, taken = 0;
        for (int k = 0; k < units; k++) taken |= m->tmem->allocation[u + k];
        if (!taken) return u * TMEM_UNIT;
    }
    return -1;
}

static bool columns_are_free(warp *w)
{
    return find_columns(w->m, (uint32_t)w->waits_for[0]) >= 0;
}

void exec_tcgen05_alloc(warp *w, const instruction *i)
{
    reject_pairs(w, i);
    tensor_memory *t = tensor_memory_of(w->m);
    uint32_t columns = column_count(w, i);
    if (t->relinquished)
        machine_fault(w->m, w, i, EMULATOR_TMEM, "tcgen05.alloc after tcgen05.relinquish_alloc_permit");
    int column = find_columns(w->m, columns);
    if (column < 0) {
        w->waits_for[0] = columns;
        warp_block(w, columns_are_free, "%u columns of tensor memory", columns);
        return;
    }
    uint64_t address[LANES];
    warp_addresses(w, &i->operand[0], address);
    int lane = __builtin_ctz(w->active);
    uint32_t at = (uint32_t)address[lane], value = (uint32_t)column;
    if (at % sizeof value) machine_fault(w->m, w, i, EMULATOR_ALIGNMENT, "tcgen05.alloc: 0x%x is no multiple of 4", at);
    accessor a = accessor_of_lane(w, lane);
    shadow_write(w->m, &a, at, sizeof value);
    shadow_set_defined(w->m, at, sizeof value, true);
    memcpy(w->m->shared + at, &value, sizeof value);
    for (uint32_t u = 0; u < columns / TMEM_UNIT; u++) t->allocation[(uint32_t)column / TMEM_UNIT + u] = 1;
    t->allocation[column / TMEM_UNIT] = (uint16_t)columns;
    t->allocated_at[column / TMEM_UNIT] = i;
}

void exec_tcgen05_dealloc(warp *w, const instruction *i)
{
    reject_pairs(w, i);
    tensor_memory *t = tensor_memory_of(w->m);
    uint32_t columns = column_count(w, i),
             address = (uint32_t)warp_uniform(w, &i->operand[0], "address of tensor memory");
    if (address >= TMEM_COLUMNS || address % TMEM_UNIT || t->allocation[address / TMEM_UNIT] != columns) {
        machine_fault(w->m, w, i, EMULATOR_TMEM, "tcgen05.dealloc: there is no allocation of %u columns at 0x%x",
                      columns, address);
    }
    tmem_accessor a = tmem_accessor_now(w, i, TMEM_STORE, tcgen05_state_of(w)->stores);
    tmem_write(w->m, &a, address, columns, (1u << TMEM_GRANULES) - 1);
    memset(t->granule[address], 0, columns * sizeof t->granule[0]);
    memset(t->defined[address], 0, columns * sizeof t->defined[0]);
    memset(&t->allocation[address / TMEM_UNIT], 0, columns / TMEM_UNIT * sizeof t->allocation[0]);
}

void exec_tcgen05_relinquish(warp *w, const instruction *i)
{
    reject_pairs(w, i);
    tensor_memory_of(w->m)->relinquished = true;
}

/* ---- Life ---- */

void tensor_warp_start(warp *w)
{
    w->tensor = machine_allocate(w->m, sizeof(tensor_state));
}

void tensor_warp_finish(warp *w)
{
    if (!w->tensor) return;
    wgmma_finish(w);
    tcgen05_finish(w);
    free(w->tensor);
    w->tensor = NULL;
}

void tensor_block_end(machine *m)
{
    for (uint32_t k = 0; k < m->warps; k++) {
        if (!m->warp[k].tensor) continue;
        wgmma_end(&m->warp[k]);
        tcgen05_end(&m->warp[k]);
    }
    for (uint32_t u = 0; m->tmem && u < TMEM_COLUMNS / TMEM_UNIT; u++) {
        if (m->tmem->allocation[u] > 1)
            machine_fault(m, NULL, m->tmem->allocated_at[u], EMULATOR_TMEM,
                          "the block ends with %u columns of tensor memory not freed", m->tmem->allocation[u]);
    }
}

void tensor_block_finish(machine *m)
{
    if (m->tmem) free(m->tmem->room);
    free(m->tmem);
    m->tmem = NULL;
}

void tcgen05_end(const warp *w)
{
    const tcgen05_state *s = ((tensor_state *)w->tensor)->tcgen05;
    if (!s) return;
    for (int t = 0; t < LANES; t++) {
        if (s->uncommitted[t])
            machine_fault(w->m, w, s->last_piped_at[t], EMULATOR_EXIT,
                          "the warp ends with %u tcgen05.mma or .cp of lane %d without tcgen05.commit",
                          s->uncommitted[t], t);
    }
    if (s->loads != s->loads_done)
        machine_fault(w->m, w, s->last_load, EMULATOR_EXIT, "the warp ends with tcgen05.ld without tcgen05.wait::ld");
    if (s->stores != s->stores_done)
        machine_fault(w->m, w, s->last_store, EMULATOR_EXIT, "the warp ends with tcgen05.st without tcgen05.wait::st");
}

void tcgen05_finish(warp *w)
{
    tcgen05_state *s = ((tensor_state *)w->tensor)->tcgen05;
    if (!s) return;
    free(s->fences);
    free(s->pending);
    free(s);
}
