/* Launches: their checks, the blocks one after the other, and what is reported when one goes wrong. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flow.h"
#include "shadow.h"
#include "tensor.h"

enum {
    THREADS_MAX = 1024,
    SHARED_MAX = 227 * 1024,
    REGISTERS = 65536,
    THREAD_REGISTERS_MAX = 255,
    BUDGET_DEFAULT = 100 * 1000 * 1000
};

/* ---- Reports ---- */

const char *emulator_fault_name(emulator_fault fault)
{
    static const char *const names[] = {"ok",
#define FAULT(id, name, meaning) name,
                                        EMULATOR_FAULTS(FAULT)
#undef FAULT
    };
    return (unsigned)fault < EMULATOR_FAULT_COUNT ? names[fault] : "?";
}

const char *emulator_schedule_name(emulator_schedule schedule)
{
    static const char *const names[] = {
#define SCHEDULE(id, name, meaning) name,
        EMULATOR_SCHEDULES(SCHEDULE)
#undef SCHEDULE
    };
    return (unsigned)schedule < EMULATOR_SCHEDULE_COUNT ? names[schedule] : "?";
}

static void report(emulator_error *error, emulator_fault fault, int line, int block, int warp_index, const char *format,
                   va_list arguments)
{
    error->fault = fault;
    error->line = line;
    error->block = block;
    error->warp = warp_index;
    vsnprintf(error->message, sizeof error->message, format, arguments);
}

void machine_fault(machine *m, const warp *w, const instruction *i, emulator_fault fault, const char *format, ...)
{
    if (!i && w) i = w->at;
    va_list arguments;
    va_start(arguments, format);
    report(m->error, fault, i ? i->line : 0, m->block_number, w ? w->index : -1, format, arguments);
    va_end(arguments);
    longjmp(m->failed, 1);
}

static bool refuse(emulator_error *error, emulator_fault fault, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static bool refuse(emulator_error *error, emulator_fault fault, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    report(error, fault, 0, -1, -1, format, arguments);
    va_end(arguments);
    return false;
}

void detail_add(emulator_error *error, const char *format, ...)
{
    size_t length = strlen(error->detail), room = sizeof error->detail - length;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->detail + length, room, format, arguments);
    va_end(arguments);
}

/* One line for every group of lanes that waits. Says whether one of them waits for a phase that went by. */
static bool describe_waiting(machine *m, const warp *w, int *line, char *first, size_t size)
{
    bool any_late = false;
    const warp_flow *f = w->flow;
    for (int p = 0; p < f->parked_count; p++) {
        const parked_group *g = &f->parked[p];
        const instruction *at = &m->entry->instructions[g->at];
        char text[256];
        bool late = false;
        if (!mbarrier_describe(m, g, w, text, sizeof text, &late)) snprintf(text, sizeof text, "%s", g->waiting);
        detail_add(m->error, "warp %d lanes %08x line %d %s: waits for %s%s\n", w->index, g->lanes, at->line,
                   at->opcode, text, late ? "; that phase and the next are over" : "");
        if (!*line || (late && !any_late)) {
            *line = at->line;
            snprintf(first, size, "warp %d waits in line %d for %s", w->index, at->line, text);
        }
        any_late |= late;
    }
    return any_late;
}

void machine_deadlock(machine *m)
{
    emulator_error *error = m->error;
    int line = 0, waiting = 0, done = 0;
    bool late = false;
    char first[512] = "";
    error->detail[0] = '\0';
    for (uint32_t w = 0; w < m->warps; w++) {
        if (m->warp[w].state == WARP_DONE) {
            done++;
            continue;
        }
        waiting++;
        late |= describe_waiting(m, &m->warp[w], &line, first, sizeof first);
    }
    int flying = 0;
    for (const async_op *op = m->in_flight; op; op = op->next) flying++;
    detail_add(error, "%d warps wait, %d are done, %d operations are in flight\n", waiting, done, flying);
    error->fault = late ? EMULATOR_BARRIER_PHASE : EMULATOR_DEADLOCK;
    error->line = line;
    error->block = m->block_number;
    error->warp = -1;
    snprintf(error->message, sizeof error->message, "nothing can go on: %s (%d warps wait)", first, waiting);
    longjmp(m->failed, 1);
}

/* ---- What others build on ---- */

void *machine_allocate(machine *m, size_t bytes)
{
    void *p = calloc(bytes ? bytes : 1, 1);
    if (!p) machine_fault(m, NULL, NULL, EMULATOR_MEMORY, "no memory for %zu bytes", bytes);
    return p;
}

async_op *async_issue(warp *w, int queue, void (*run)(machine *m, async_op *op), size_t payload_bytes)
{
    machine *m = w->m;
    async_op *op = machine_allocate(m, sizeof *op);
    if (m->last_in_flight)
        m->last_in_flight->next = op;
    else
        m->in_flight = op;
    m->last_in_flight = op;
    op->at = w->at;
    op->warp = w->index;
    op->queue = queue;
    op->run = run;
    op->number = m->issued++;
    op->priority = (int)machine_random(m, 1024);
    op->payload = machine_allocate(m, payload_bytes);
    warp_release(w, &op->clock);
    return op;
}

void clock_join(vector_clock *to, const vector_clock *from)
{
    for (int c = 0; c < CLOCKS; c++) to->time[c] = to->time[c] > from->time[c] ? to->time[c] : from->time[c];
}

void warp_release(warp *w, vector_clock *to)
{
    clock_join(to, &w->clock);
    w->clock.time[w->index]++;
    w->yield = true;
}

void warp_acquire(warp *w, const vector_clock *from)
{
    clock_join(&w->clock, from);
}

/* ---- Blocks ---- */

static void block_start(machine *m)
{
    const uint32_t *grid = m->config->grid;
    uint32_t n = (uint32_t)m->block_number;
    m->block[0] = n % grid[0];
    m->block[1] = n / grid[0] % grid[1];
    m->block[2] = n / grid[0] / grid[1];
    memset(m->shared, 0, m->shared_bytes);
    memset(m->mbarriers, 0, sizeof m->mbarriers);
    memset(m->named, 0, sizeof m->named);
    memset(m->mbarrier_slot, 0, m->shared_bytes / 8 + 1);
    memset(&m->global_clock, 0, sizeof m->global_clock);
    m->executed = m->picks = m->issued = 0;
    m->next_agent = 0;
    m->free_registers = 0;
    m->shadow = shadow_create(m->shared_bytes);
    if (!m->shadow)
        machine_fault(m, NULL, NULL, EMULATOR_MEMORY, "no memory for the shadow of %u bytes", m->shared_bytes);
    uint32_t registers = m->entry->max_registers;
    if (!registers) registers = REGISTERS / (m->warps * LANES) / 8 * 8;
    if (registers > THREAD_REGISTERS_MAX) registers = THREAD_REGISTERS_MAX;
    for (uint32_t w = 0; w < m->warps; w++) {
        warp_reset(&m->warp[w]);
        m->warp[w].registers = (int)registers;
        tensor_warp_start(&m->warp[w]);
    }
}

static void block_end(machine *m)
{
    async_copies_drain(m);
    tensor_block_end(m);
    for (const async_op *op = m->in_flight; op; op = op->next)
        if (op->queue == ASYNC_COPIES)
            machine_fault(m, &m->warp[op->warp], op->at, EMULATOR_EXIT,
                          "the block ends, and a copy is still in flight");
    mbarriers_block_end(m);
}

/* Also after a fault. */
static void block_finish(machine *m)
{
    while (m->in_flight) async_remove(m, m->in_flight);
    for (uint32_t w = 0; w < m->warps; w++) {
        if (m->warp[w].m) {
            tensor_warp_finish(&m->warp[w]);
            async_copies_reset(&m->warp[w]);
        }
    }
    tensor_block_finish(m);
    shadow_destroy(m->shadow);
    m->shadow = NULL;
}

/* ---- Launches ---- */

static bool check_threads(const emulator_launch_config *config, const entry *e, uint32_t *threads,
                          emulator_error *error)
{
    const uint32_t *b = config->block, *g = config->grid, *r = e->required_threads;
    uint64_t product = (uint64_t)b[0] * b[1] * b[2];
    if (!g[0] || !g[1] || !g[2] || (uint64_t)g[0] * g[1] * g[2] > INT32_MAX)
        return refuse(error, EMULATOR_RESOURCE, "a grid of %u x %u x %u blocks", g[0], g[1], g[2]);
    if (!product || b[0] > THREADS_MAX || b[1] > THREADS_MAX || b[2] > 64 || product > THREADS_MAX)
        return refuse(error, EMULATOR_RESOURCE, "a block of %u x %u x %u threads", b[0], b[1], b[2]);
    if (r[0] && (r[0] != b[0] || (r[1] ? r[1] : 1) != b[1] || (r[2] ? r[2] : 1) != b[2]))
        return refuse(error, EMULATOR_RESOURCE, "a block of %u x %u x %u threads: .reqntid says %u, %u, %u", b[0], b[1],
                      b[2], r[0], r[1], r[2]);
    if (e->max_threads && product > e->max_threads)
        return refuse(error, EMULATOR_RESOURCE, "a block of %u threads: .maxntid says %u", (uint32_t)product,
                      e->max_threads);
    *threads = (uint32_t)product;
    return true;
}

static bool check_launch(const emulator_launch_config *config, const entry *e, uint32_t *threads, emulator_error *error)
{
    if (!check_threads(config, e, threads, error)) return false;
    uint64_t shared = (uint64_t)e->static_shared_bytes + config->shared_bytes;
    if (shared > SHARED_MAX)
        return refuse(error, EMULATOR_RESOURCE, "%llu bytes of shared memory of %d", (unsigned long long)shared,
                      SHARED_MAX);
    uint32_t rounded = (*threads + LANES - 1) / LANES * LANES;
    if ((uint64_t)e->max_registers * rounded > REGISTERS)
        return refuse(error, EMULATOR_RESOURCE, "%u registers for each of %u threads: there are %d", e->max_registers,
                      rounded, REGISTERS);
    if (e->parameters && !config->parameters)
        return refuse(error, EMULATOR_RESOURCE, "no parameters: %s has %d", e->name, e->parameters);
    if (!config->memory) return refuse(error, EMULATOR_RESOURCE, "no global memory");
    return true;
}

static bool create_machine(machine *m)
{
    const entry *e = m->entry;
    m->local_bytes = e->local_bytes + e->stack_bytes;
    m->variables = m->config->variables;
    if (!m->variables) m->variables = emulator_variables_create(m->module, m->config->memory);
    m->warp = calloc(m->warps, sizeof *m->warp);
    m->shared = calloc((size_t)m->shared_bytes + 16, 1);
    m->mbarrier_slot = calloc((size_t)m->shared_bytes / 8 + 1, 1);
    m->parameters = calloc((size_t)e->parameter_bytes + 1, 1);
    if (!m->variables || !m->warp || !m->shared || !m->mbarrier_slot || !m->parameters) return false;
    for (uint32_t w = 0; w < m->warps; w++)
        if (!warp_create(&m->warp[w], m, (int)w)) return false;
    for (int p = 0; p < e->parameters; p++) {
        const symbol *s = &m->module->symbols[e->first_parameter + p];
        memcpy(m->parameters + s->offset, m->config->parameters[p], s->bytes);
    }
    return true;
}

static void destroy_machine(machine *m)
{
    for (uint32_t w = 0; m->warp && w < m->warps; w++) warp_destroy(&m->warp[w]);
    free(m->warp);
    free(m->shared);
    free(m->mbarrier_slot);
    free(m->parameters);
    free(m->print_room);
    free(m->product_room);
    if (!m->config->variables) emulator_variables_destroy(m->variables);
    free(m);
}

/* Comes back by longjmp when a fault is found: m and what it points to is all that may be used then. */
static bool run_blocks(machine *m)
{
    if (setjmp(m->failed)) return false;
    const uint32_t *grid = m->config->grid;
    int blocks = (int)(grid[0] * grid[1] * grid[2]);
    for (m->block_number = 0; m->block_number < blocks; m->block_number++) {
        block_start(m);
        schedule_block(m);
        block_end(m);
        block_finish(m);
    }
    return true;
}

bool emulator_launch(const emulator_launch_config *config, emulator_counts *counts, emulator_error *error)
{
    memset(error, 0, sizeof *error);
    error->block = error->warp = -1;
    if (counts) *counts = (emulator_counts){NULL, 0};
    int index = emulator_module_find_entry(config->module, config->entry);
    if (index < 0) return refuse(error, EMULATOR_RESOURCE, "no entry %s", config->entry);
    const entry *e = &config->module->entries[index];
    uint32_t threads = 0;
    if (!check_launch(config, e, &threads, error)) return false;

    emulator_launch_config own = *config;
    if (!own.instruction_budget) own.instruction_budget = BUDGET_DEFAULT;
    machine *m = calloc(1, sizeof *m);
    if (!m) return refuse(error, EMULATOR_MEMORY, "no memory");
    m->config = &own;
    m->entry = e;
    m->module = config->module;
    m->error = error;
    m->threads = threads;
    m->warps = (threads + LANES - 1) / LANES;
    m->shared_bytes = e->static_shared_bytes + config->shared_bytes;
    schedule_seed(m, config->seed);
    bool good = create_machine(m);
    if (good && counts) {
        counts->count = e->count;
        counts->executed = m->counts = calloc((size_t)e->count + 1, sizeof *m->counts);
        good = m->counts != NULL;
    }
    if (!good) {
        refuse(error, EMULATOR_MEMORY, "no memory");
    } else {
        good = run_blocks(m);
        if (!good) block_finish(m);
    }
    destroy_machine(m);
    return good;
}

void emulator_counts_finish(emulator_counts *counts)
{
    if (!counts) return;
    free(counts->executed);
    *counts = (emulator_counts){NULL, 0};
}
