/* A warp: values of its operands, and the execution of its instructions one after the other. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec.h"
#include "flow.h"
#include "variables.h"

/* ---- Life ---- */

bool warp_create(warp *w, machine *m, int index)
{
    const entry *e = m->entry;
    size_t slots = (size_t)e->slots + 1, predicates = (size_t)e->predicates + 1;
    w->m = m;
    w->index = index;
    w->slot = calloc(slots, sizeof *w->slot);
    w->slot_defined = calloc(slots, sizeof *w->slot_defined);
    w->predicate = calloc(predicates, sizeof *w->predicate);
    w->predicate_defined = calloc(predicates, sizeof *w->predicate_defined);
    w->written = calloc(slots, sizeof *w->written);
    w->pending = calloc(slots, sizeof *w->pending);
    w->local = calloc((size_t)m->local_bytes * LANES + 1, 1);
    w->local_defined = calloc((size_t)m->local_bytes * LANES + 1, 1);
    return w->slot && w->slot_defined && w->predicate && w->predicate_defined && w->written && w->pending && w->local &&
           w->local_defined && flow_create(w);
}

void warp_reset(warp *w)
{
    machine *m = w->m;
    const entry *e = m->entry;
    memset(w->slot_defined, 0, (size_t)e->slots * sizeof *w->slot_defined);
    memset(w->predicate_defined, 0, (size_t)e->predicates * sizeof *w->predicate_defined);
    memset(w->written, 0, (size_t)e->slots * sizeof *w->written);
    memset(w->pending, 0, (size_t)e->slots * sizeof *w->pending);
    memset(w->local_defined, 0, (size_t)m->local_bytes * LANES);
    flow_reset(w);
    uint32_t lanes = m->threads - (uint32_t)w->index * LANES;
    w->alive = w->group = lanes >= LANES ? UINT32_MAX : (UINT32_C(1) << lanes) - 1;
    w->active = w->alive;
    w->next = 0;
    w->executed = 0;
    w->carry_defined = 0;
    memset(&w->clock, 0, sizeof w->clock);
    w->clock.time[w->index] = 1;
    w->at = NULL;
    w->state = WARP_READY;
    w->yield = w->again = w->spinning = w->issues_copies = w->issues_products = false;
    w->waiting[0] = '\0';
    w->priority = (int)machine_random(m, 1024);
}

void warp_destroy(warp *w)
{
    flow_destroy(w);
    free(w->slot);
    free(w->slot_defined);
    free(w->predicate);
    free(w->predicate_defined);
    free(w->written);
    free(w->pending);
    free(w->local);
    free(w->local_defined);
}

/* ---- Operands ---- */

static const char *operand_place(const warp *w, const operand *o, char *room, size_t size)
{
    const instruction *i = w->at;
    if (o >= i->operand && o < i->operand + OPERANDS_MAX)
        snprintf(room, size, "operand %d", (int)(o - i->operand));
    else
        snprintf(room, size, "an element of a vector");
    return room;
}

static void undefined(const warp *w, const operand *o, uint32_t lanes)
{
    char room[32];
    machine_fault(w->m, w, w->at, EMULATOR_UNDEFINED, "%s of %s is undefined in lanes %08x",
                  operand_place(w, o, room, sizeof room), w->at->opcode, lanes);
}

/* Forms that do not carry undefined values on must not get any. */
static void require_defined(const warp *w, const operand *o, uint32_t defined)
{
    uint32_t lanes = w->active & ~defined;
    if (lanes && !(w->at->form->flags & FORM_UNDEFINED_OK)) undefined(w, o, lanes);
}

/* wgmma itself knows which of the registers in flight it may touch. */
static void require_settled(const warp *w, const operand *o, int slot)
{
    char room[32];
    if (!w->pending[slot] || strncmp(w->at->form->pattern, "wgmma", 5) == 0) return;
    if (w->pending[slot] >> 31) {
        machine_fault(w->m, w, w->at, EMULATOR_TCGEN05_ORDER,
                      "%s of %s is the destination of a tcgen05.ld without tcgen05.wait::ld",
                      operand_place(w, o, room, sizeof room), w->at->opcode);
    }
    machine_fault(w->m, w, w->at, EMULATOR_WGMMA_REGISTERS, "%s of %s belongs to a wgmma in flight",
                  operand_place(w, o, room, sizeof room), w->at->opcode);
}

static uint32_t tid(const warp *w, int lane, int dimension)
{
    const uint32_t *size = w->m->config->block, t = (uint32_t)(w->index * LANES + lane);
    return dimension == 0 ? t % size[0] : dimension == 1 ? t / size[0] % size[1] : t / size[0] / size[1];
}

static uint64_t special_value(const warp *w, special_register s, int lane)
{
    const machine *m = w->m;
    switch (s) {
    case SPECIAL_TID_X:
    case SPECIAL_TID_Y:
    case SPECIAL_TID_Z:
        return tid(w, lane, (int)s - SPECIAL_TID_X);
    case SPECIAL_NTID_X:
    case SPECIAL_NTID_Y:
    case SPECIAL_NTID_Z:
        return m->config->block[s - SPECIAL_NTID_X];
    case SPECIAL_CTAID_X:
    case SPECIAL_CTAID_Y:
    case SPECIAL_CTAID_Z:
        return m->block[s - SPECIAL_CTAID_X];
    case SPECIAL_NCTAID_X:
    case SPECIAL_NCTAID_Y:
    case SPECIAL_NCTAID_Z:
        return m->config->grid[s - SPECIAL_NCTAID_X];
    case SPECIAL_LANEID:
        return (uint64_t)lane;
    case SPECIAL_WARPID:
        return (uint64_t)w->index;
    case SPECIAL_LANEMASK_LT:
        return (UINT32_C(1) << lane) - 1;
    case SPECIAL_LANEMASK_LE:
        return (UINT32_C(2) << lane) - 1;
    case SPECIAL_LANEMASK_EQ:
        return UINT32_C(1) << lane;
    case SPECIAL_LANEMASK_GT:
        return (uint32_t) ~((UINT32_C(2) << lane) - 1);
    case SPECIAL_LANEMASK_GE:
        return (uint32_t) ~((UINT32_C(1) << lane) - 1);
    case SPECIAL_CLOCK64:
    case SPECIAL_GLOBALTIMER:
        return m->executed;
    default:
        return 0; /* SMID, the rank in a cluster of one block */
    }
}

/* What is in a frame lies where the frame of the executing lanes begins; all of them are in one. */
static uint64_t symbol_address(const warp *w, int number)
{
    const symbol *s = &w->m->module->symbols[number];
    if (s->space == SPACE_LOCAL || s->framed)
        return s->offset + w->flow->frames[w->flow->frame_of[__builtin_ctz(w->active)]].local_base;
    if (s->space == SPACE_GLOBAL || s->space == SPACE_CONST || s->space == SPACE_CODE)
        return variables_address(w->m->variables, number);
    return s->offset;
}

/* The value of an operand that is not a register, in every lane. */
static uint64_t constant(const warp *w, const operand *o)
{
    switch (o->kind) {
    case OPERAND_IMMEDIATE:
        return o->bits;
    case OPERAND_SYMBOL:
        return symbol_address(w, o->symbol);
    default:
        return 0;
    }
}

const uint32_t *warp_read32(warp *w, const operand *o, lanes32 *room, uint32_t *defined)
{
    if (o->kind == OPERAND_REGISTER) {
        int slot = o->reg.slot;
        *defined = w->slot_defined[slot];
        if (w->active & ~*defined) require_defined(w, o, *defined);
        if (w->pending[slot]) require_settled(w, o, slot);
        return w->slot[slot];
    }
    *defined = UINT32_MAX;
    if (o->kind == OPERAND_SPECIAL) {
        for (int l = 0; l < LANES; l++) room->v[l] = (uint32_t)special_value(w, o->special, l);
        return room->v;
    }
    uint32_t v = (uint32_t)constant(w, o);
    for (int l = 0; l < LANES; l++) room->v[l] = v;
    return room->v;
}

const uint64_t *warp_read64(warp *w, const operand *o, lanes64 *room, uint32_t *defined)
{
    if (o->kind == OPERAND_REGISTER) {
        int slot = o->reg.slot;
        const uint32_t *low = w->slot[slot];
        *defined = w->slot_defined[slot];
        if (w->pending[slot]) require_settled(w, o, slot);
        if (type_bytes(o->reg.type) == 8) {
            const uint32_t *high = w->slot[slot + 1];
            *defined &= w->slot_defined[slot + 1];
            if (w->pending[slot + 1]) require_settled(w, o, slot + 1);
            for (int l = 0; l < LANES; l++) room->v[l] = low[l] | (uint64_t)high[l] << 32;
        } else {
            for (int l = 0; l < LANES; l++) room->v[l] = low[l];
        }
        if (w->active & ~*defined) require_defined(w, o, *defined);
        return room->v;
    }
    *defined = UINT32_MAX;
    if (o->kind == OPERAND_SPECIAL) {
        for (int l = 0; l < LANES; l++) room->v[l] = special_value(w, o->special, l);
        return room->v;
    }
    uint64_t v = constant(w, o);
    for (int l = 0; l < LANES; l++) room->v[l] = v;
    return room->v;
}

uint32_t warp_read_predicate(warp *w, const operand *o, uint32_t *defined)
{
    *defined = UINT32_MAX;
    if (o->kind != OPERAND_REGISTER)
        return (o->kind == OPERAND_IMMEDIATE && o->bits != 0) != o->negated ? UINT32_MAX : 0;
    uint32_t v = w->predicate[o->reg.slot];
    *defined = w->predicate_defined[o->reg.slot];
    if (w->active & ~*defined) require_defined(w, o, *defined);
    return o->negated ? ~v : v;
}

static void write_slot(warp *w, const operand *o, int slot, const uint32_t *v, uint32_t defined)
{
    if (w->pending[slot]) require_settled(w, o, slot);
    uint32_t *to = w->slot[slot], active = w->active;
    if (active == UINT32_MAX) {
        memmove(to, v, sizeof w->slot[slot]);
        w->slot_defined[slot] = defined;
    } else {
        for (int l = 0; l < LANES; l++) to[l] = active >> l & 1 ? v[l] : to[l];
        w->slot_defined[slot] = (w->slot_defined[slot] & ~active) | (defined & active);
    }
    w->written[slot] = w->executed;
}

void warp_write32(warp *w, const operand *o, const uint32_t *v, uint32_t defined)
{
    if (o->kind == OPERAND_REGISTER) write_slot(w, o, o->reg.slot, v, defined);
}

void warp_write64(warp *w, const operand *o, const uint64_t *v, uint32_t defined)
{
    if (o->kind != OPERAND_REGISTER) return;
    lanes32 half;
    for (int l = 0; l < LANES; l++) half.v[l] = (uint32_t)v[l];
    write_slot(w, o, o->reg.slot, half.v, defined);
    if (type_bytes(o->reg.type) != 8) return;
    for (int l = 0; l < LANES; l++) half.v[l] = (uint32_t)(v[l] >> 32);
    write_slot(w, o, o->reg.slot + 1, half.v, defined);
}

void warp_write_predicate(warp *w, const operand *o, uint32_t v, uint32_t defined)
{
    if (o->kind != OPERAND_REGISTER) return;
    uint32_t *to = &w->predicate[o->reg.slot], *known = &w->predicate_defined[o->reg.slot];
    *to = (*to & ~w->active) | (v & w->active);
    *known = (*known & ~w->active) | (defined & w->active);
}

uint64_t warp_uniform(warp *w, const operand *o, const char *what)
{
    lanes64 room;
    uint32_t defined;
    const uint64_t *v = warp_read64(w, o, &room, &defined);
    if (w->active & ~defined)
        machine_fault(w->m, w, w->at, EMULATOR_UNDEFINED, "%s is undefined in lanes %08x", what, w->active & ~defined);
    int first = __builtin_ctz(w->active);
    for (int l = first; l < LANES; l++)
        if (w->active >> l & 1 && v[l] != v[first])
            machine_fault(w->m, w, w->at, EMULATOR_DIVERGENCE, "%s differs between lanes %d and %d", what, first, l);
    return v[first];
}

void warp_addresses(warp *w, const operand *o, uint64_t address[LANES])
{
    if (o->symbol >= 0) {
        uint64_t v = symbol_address(w, o->symbol) + (uint64_t)o->offset;
        for (int l = 0; l < LANES; l++) address[l] = v;
        return;
    }
    bool wide = type_bytes(o->reg.type) == 8;
    int slot = o->reg.slot;
    uint32_t known = w->slot_defined[slot] & (wide ? w->slot_defined[slot + 1] : UINT32_MAX);
    if (w->active & ~known)
        machine_fault(w->m, w, w->at, EMULATOR_UNDEFINED, "an address of %s is undefined in lanes %08x", w->at->opcode,
                      w->active & ~known);
    if (w->pending[slot] || (wide && w->pending[slot + 1])) require_settled(w, o, w->pending[slot] ? slot : slot + 1);
    const uint32_t *low = w->slot[slot];
    if (wide) {
        const uint32_t *high = w->slot[slot + 1];
        for (int l = 0; l < LANES; l++) address[l] = (low[l] | (uint64_t)high[l] << 32) + (uint64_t)o->offset;
    } else {
        for (int l = 0; l < LANES; l++) address[l] = low[l] + (uint32_t)o->offset;
    }
}

const operand *operand_element(const warp *w, const operand *o, int i)
{
    return o->kind == OPERAND_VECTOR ? &w->m->entry->elements[o->first + i] : o;
}

/* ---- Execution ---- */

void warp_block(warp *w, bool (*ready)(warp *w), const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(w->waiting, sizeof w->waiting, format, arguments);
    va_end(arguments);
    w->ready = ready;
    flow_park(w, ready, 0);
}

/* The four warps of a warpgroup execute the same sequence of such forms. */
static void check_warpgroup(warp *w, const instruction *i)
{
    machine *m = w->m;
    int first = w->index & ~3;
    if (first + 4 > (int)m->warps)
        machine_fault(m, w, i, EMULATOR_DIVERGENCE, "%s needs four warps; the block ends in this warpgroup", i->opcode);
    warp_flow *f = m->warp[first].flow;
    int at = (int)(i - m->entry->instructions), number = w->flow->collectives++;
    if (number < f->log_count) {
        const instruction *other = &m->entry->instructions[f->collective_log[number]];
        if (other != i)
            machine_fault(m, w, i, EMULATOR_DIVERGENCE,
                          "%s, where another warp of the warpgroup executes %s of line %d", i->opcode, other->opcode,
                          other->line);
        return;
    }
    for (int other = first; other < first + 4; other++)
        if (m->warp[other].state == WARP_DONE)
            machine_fault(m, w, i, EMULATOR_DIVERGENCE, "%s, and warp %d of the warpgroup has exited", i->opcode,
                          other);
    if (f->log_count == f->log_capacity) {
        int capacity = f->log_capacity ? 2 * f->log_capacity : 256;
        int *log = realloc(f->collective_log, (size_t)capacity * sizeof *log);
        if (!log) machine_fault(m, w, i, EMULATOR_MEMORY, "no memory");
        f->collective_log = log;
        f->log_capacity = capacity;
    }
    f->collective_log[f->log_count++] = at;
}

static void check_exit(warp *w)
{
    machine *m = w->m;
    const warp_flow *f = m->warp[w->index & ~3].flow;
    if (w->flow->collectives < f->log_count) {
        const instruction *other = &m->entry->instructions[f->collective_log[w->flow->collectives]];
        machine_fault(m, w, w->at, EMULATOR_DIVERGENCE,
                      "the warp exits, and another of its warpgroup executes %s of line %d", other->opcode,
                      other->line);
    }
    named_barriers_warp_done(m);
}

static uint32_t guarded(warp *w, const instruction *i)
{
    uint32_t v = w->predicate[i->guard], unknown = w->group & ~w->predicate_defined[i->guard];
    if (unknown)
        machine_fault(w->m, w, i, EMULATOR_UNDEFINED, "the guard of %s is undefined in lanes %08x", i->opcode, unknown);
    return w->group & (i->guard_negated ? ~v : v);
}

/* Executions again are not counted, but they too cost budget, so that nothing goes on for ever. */
static void count(warp *w, const instruction *i, bool again)
{
    machine *m = w->m;
    if (!again) {
        w->executed++;
        if (m->counts) m->counts[i - m->entry->instructions]++;
    }
    if (++m->executed > m->config->instruction_budget)
        machine_fault(m, w, i, EMULATOR_BUDGET, "the block has executed %llu warp instructions",
                      (unsigned long long)m->executed);
}

static void check_form(warp *w, const instruction *i, bool again)
{
    uint32_t flags = i->form->flags;
    if (w->active != w->alive)
        machine_fault(w->m, w, i, EMULATOR_DIVERGENCE, "%s with active lanes %08x of %08x", i->opcode, w->active,
                      w->alive);
    if (flags & FORM_WARPGROUP && !again) check_warpgroup(w, i);
}

static void step(warp *w)
{
    const instruction *i = &w->m->entry->instructions[w->next];
    const form *f = i->form;
    bool again = w->again;
    w->at = i;
    if (again) memcpy(w->waits_for, w->flow->waits_for, sizeof w->waits_for);
    count(w, i, again);
    w->active = i->guard < 0 ? w->group : guarded(w, i);
    if (!w->active) {
        w->again = false;
        w->next++;
        return;
    }
    if (f->flags & (FORM_WARP | FORM_WARPGROUP)) check_form(w, i, again);
    f->execute(w, i);
    w->again = false;
    if (w->flow->regather) {
        w->flow->regather = false;
        w->again = true;
    } else if (w->group && !(f->flags & (FORM_BRANCH | FORM_EXIT | FORM_CALL))) {
        w->next++;
    }
    if (w->state == WARP_DONE) check_exit(w);
}

void warp_turn(warp *w, int limit)
{
    w->yield = w->spinning = false;
    w->state = WARP_READY;
    while (limit-- > 0 && !w->yield) {
        if ((w->group != w->alive || w->again) && !flow_choose(w)) {
            w->state = WARP_BLOCKED;
            return;
        }
        step(w);
        if (w->state == WARP_DONE) return;
    }
    if (!w->group && !flow_choose(w)) w->state = WARP_BLOCKED;
}
