/* call and ret of device functions, their arguments, and dynamic local memory. */
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "exec.h"
#include "variables.h"

static uint32_t base_of(const warp *w, int lane)
{
    return w->flow->frames[w->flow->frame_of[lane]].local_base;
}

/* ---- Arguments ---- */

/* Where a lane has a .param of its body. */
static uint32_t place_of(const warp *w, const operand *o, int lane)
{
    return base_of(w, lane) + w->m->module->symbols[o->symbol].offset;
}

/* The bytes of a register or constant, of one lane. */
static uint64_t scalar_argument(warp *w, const operand *o, int lane, bool *defined)
{
    lanes64 room;
    uint32_t known;
    const uint64_t *v = warp_read64(w, o, &room, &known);
    *defined = known >> lane & 1;
    return v[lane];
}

uint64_t calls_argument(warp *w, const instruction *call, const signature *takes, int k, int lane, bool *defined)
{
    const operand *o = operand_element(w, &call->operand[2], k);
    uint64_t v = 0;
    if (o->kind != OPERAND_SYMBOL) return scalar_argument(w, o, lane, defined);
    uint32_t bytes = takes->parameters[k].bytes < 8 ? takes->parameters[k].bytes : 8, at = place_of(w, o, lane);
    memcpy(&v, frame_bytes(w, lane, at), bytes);
    *defined = true;
    for (uint32_t b = 0; b < bytes; b++) *defined &= *frame_defined(w, lane, at + b) != 0;
    return v;
}

/* Which lanes have set no byte of a .param: the store is missing. (Of a struct some bytes may be padding.) */
static void check_set(warp *w, const instruction *call, const device_function *f, int k, uint32_t lanes)
{
    const operand *o = operand_element(w, &call->operand[2], k);
    if (o->kind != OPERAND_SYMBOL) return;
    uint32_t unset = 0;
    for (int lane = 0; lane < LANES; lane++) {
        if (!(lanes >> lane & 1)) continue;
        if (!memchr(frame_defined(w, lane, place_of(w, o, lane)), 1, f->takes.parameters[k].bytes)) unset |= 1u << lane;
    }
    if (unset)
        machine_fault(w->m, w, call, EMULATOR_UNDEFINED,
                      "argument %d of the call of %.200s is set nowhere in lanes %08x", k + 1, f->code.name, unset);
}

/* Into the callee's frame; the caller's .param is then spent. */
static void pass(warp *w, const instruction *call, const formal *to, const operand *from, int lane, uint32_t base)
{
    uint8_t *bytes = frame_bytes(w, lane, base + to->offset), *defined = frame_defined(w, lane, base + to->offset);
    (void)call;
    if (from->kind == OPERAND_SYMBOL) {
        uint32_t at = place_of(w, from, lane);
        memcpy(bytes, frame_bytes(w, lane, at), to->bytes);
        memcpy(defined, frame_defined(w, lane, at), to->bytes);
        memset(frame_defined(w, lane, at), 0, to->bytes);
        return;
    }
    bool known;
    uint64_t v = scalar_argument(w, from, lane, &known);
    memcpy(bytes, &v, to->bytes < 8 ? to->bytes : 8);
    memset(defined, known, to->bytes);
}

/* The bytes of a formal in a lane's frame, to its register, or back. */
static void move_register(warp *w, const linked_function *l, const formal *f, int lane, uint32_t base, bool back)
{
    uint64_t v = 0;
    uint8_t *bytes = frame_bytes(w, lane, base + f->offset), *defined = frame_defined(w, lane, base + f->offset);
    int slot = l->first_slot + f->slot, count = f->bytes == 8 ? 2 : 1;
    if (!back) memcpy(&v, bytes, f->bytes);
    bool known = true;
    for (int k = 0; k < count; k++) {
        if (back) {
            v |= (uint64_t)w->slot[slot + k][lane] << (32 * k);
            known &= w->slot_defined[slot + k] >> lane & 1;
            continue;
        }
        w->slot[slot + k][lane] = (uint32_t)(v >> (32 * k));
        w->written[slot + k] = w->executed;
        if (defined[0]) w->slot_defined[slot + k] |= 1u << lane;
    }
    if (!back) return;
    memcpy(bytes, &v, f->bytes);
    memset(defined, known, f->bytes);
}

static void write_value(warp *w, const operand *to, const uint64_t *v, uint32_t defined)
{
    if (type_bytes(to->reg.type) == 8) {
        warp_write64(w, to, v, defined);
        return;
    }
    lanes32 narrow;
    for (int l = 0; l < LANES; l++) narrow.v[l] = (uint32_t)v[l];
    warp_write32(w, to, narrow.v, defined);
}

void calls_return(warp *w, const instruction *call, const signature *takes, int k, const uint64_t *v)
{
    if (call->operand[1].count <= k) return;
    const operand *to = operand_element(w, &call->operand[1], k);
    if (to->kind == OPERAND_REGISTER) {
        write_value(w, to, v, UINT32_MAX);
        return;
    }
    for (int lane = 0; lane < LANES; lane++) {
        if (!(w->active >> lane & 1)) continue;
        memcpy(frame_bytes(w, lane, place_of(w, to, lane)), &v[lane], takes->returns[k].bytes);
        memset(frame_defined(w, lane, place_of(w, to, lane)), 1, takes->returns[k].bytes);
    }
}

/* The lanes are in the caller's frame again; the callee's is above it, unchanged. */
void calls_give_back(warp *w, const frame *x, uint32_t lanes)
{
    const device_function *f = &w->m->module->functions[x->function];
    uint32_t active = w->active;
    w->active = lanes;
    for (int k = 0; k < x->call->operand[1].count; k++) {
        const operand *to = operand_element(w, &x->call->operand[1], k);
        const formal *from = &f->takes.returns[k];
        uint64_t v[LANES] = {0};
        uint32_t known = 0;
        for (int lane = 0; lane < LANES; lane++) {
            if (!(lanes >> lane & 1)) continue;
            const uint8_t *bytes = frame_bytes(w, lane, x->local_base + from->offset);
            const uint8_t *defined = frame_defined(w, lane, x->local_base + from->offset);
            if (to->kind == OPERAND_SYMBOL) {
                memcpy(frame_bytes(w, lane, place_of(w, to, lane)), bytes, from->bytes);
                memcpy(frame_defined(w, lane, place_of(w, to, lane)), defined, from->bytes);
                continue;
            }
            memcpy(&v[lane], bytes, from->bytes < 8 ? from->bytes : 8);
            if (!memchr(defined, 0, from->bytes)) known |= 1u << lane;
        }
        if (to->kind == OPERAND_REGISTER) write_value(w, to, v, known);
    }
    w->active = active;
}

/* ---- call ---- */

/* The function whose address a register holds in the first active lane, and which lanes hold the same. */
static int indirect_callee(warp *w, const instruction *i, uint32_t *lanes)
{
    machine *m = w->m;
    lanes64 room;
    uint32_t known;
    const uint64_t *address = warp_read64(w, &i->operand[0], &room, &known);
    int first = __builtin_ctz(w->active);
    if (w->active & ~known)
        machine_fault(m, w, i, EMULATOR_UNDEFINED, "the address of the function is undefined in lanes %08x",
                      w->active & ~known);
    uint64_t number = (address[first] - GENERIC_CODE_WINDOW) / CODE_STEP;
    if (address[first] < GENERIC_CODE_WINDOW || address[first] % CODE_STEP ||
        number >= (uint64_t)m->module->function_count)
        machine_fault(m, w, i, EMULATOR_BOUNDS, "lane %d calls 0x%llx, which is no function", first,
                      (unsigned long long)address[first]);
    *lanes = 0;
    for (int l = 0; l < LANES; l++)
        if (w->active >> l & 1 && address[l] == address[first]) *lanes |= 1u << l;
    if (i->mods.uniform && *lanes != w->active)
        machine_fault(m, w, i, EMULATOR_DIVERGENCE, "call.uni of different functions in lanes %08x and %08x", *lanes,
                      w->active & ~*lanes);
    return (int)number;
}

/* The table must allow the function: it lists it, or has the same signature. */
static void check_table(warp *w, const instruction *i, int number)
{
    const call_table *t = &w->m->module->tables[i->operand[3].bits];
    const device_function *f = &w->m->module->functions[number];
    bool allowed = !t->targets && t->takes.return_count == f->takes.return_count &&
                   t->takes.parameter_count == f->takes.parameter_count;
    for (int k = 0; k < t->target_count; k++) allowed |= t->targets[k] == number;
    for (int k = 0; allowed && k < f->takes.parameter_count; k++)
        allowed = t->takes.parameters[k].bytes == f->takes.parameters[k].bytes;
    for (int k = 0; allowed && k < f->takes.return_count; k++)
        allowed = t->takes.returns[k].bytes == f->takes.returns[k].bytes;
    if (!allowed)
        machine_fault(w->m, w, i, EMULATOR_BOUNDS, "the call reaches %.200s, which its table does not allow",
                      f->code.name);
}

static void enter(warp *w, const instruction *i, int number, uint32_t lanes)
{
    machine *m = w->m;
    const device_function *f = &m->module->functions[number];
    const linked_function *l = &m->entry->functions[number];
    int parent = w->flow->frame_of[__builtin_ctz(lanes)];
    for (int k = 0; k < f->takes.parameter_count; k++) check_set(w, i, f, k, lanes);
    int at = frames_push(w, i, number, lanes);
    uint32_t base = w->flow->frames[at].local_base;
    for (int lane = 0; lane < LANES; lane++) {
        if (!(lanes >> lane & 1)) continue;
        w->flow->frame_of[lane] = parent; /* arguments are the caller's */
        for (int k = 0; k < f->takes.parameter_count; k++)
            pass(w, i, &f->takes.parameters[k], operand_element(w, &i->operand[2], k), lane, base);
        w->flow->frame_of[lane] = at;
        for (int k = 0; k < f->takes.parameter_count; k++)
            if (f->takes.parameters[k].slot >= 0) move_register(w, l, &f->takes.parameters[k], lane, base, false);
    }
}

void exec_call(warp *w, const instruction *i)
{
    machine *m = w->m;
    uint32_t lanes = w->active;
    if (i->mods.uniform && w->active != w->group)
        machine_fault(m, w, i, EMULATOR_DIVERGENCE, "call.uni is made by lanes %08x of %08x", w->active, w->group);
    bool direct = i->operand[0].kind == OPERAND_SYMBOL;
    int number = direct ? (int)m->module->symbols[i->operand[0].symbol].offset : indirect_callee(w, i, &lanes);
    const device_function *f = &m->module->functions[number];
    if (!direct) check_table(w, i, number);
    uint32_t later = w->active & ~lanes;
    if (f->builtin) {
        w->active = lanes;
        builtins_call(w, i, f);
        flow_call(w, lanes, later, w->next + 1);
        return;
    }
    if (m->entry->functions[number].start < 0)
        machine_fault(m, w, i, EMULATOR_UNKNOWN_FORM, "the call reaches %.200s, which has no body", f->code.name);
    enter(w, i, number, lanes);
    flow_call(w, lanes, later, m->entry->functions[number].start);
}

/* ---- ret ---- */

void exec_ret(warp *w, const instruction *i)
{
    (void)i;
    int at = frame_of_group(w);
    if (at == 0) {
        flow_exit(w, w->active);
        return;
    }
    const frame *x = &w->flow->frames[at];
    const device_function *f = &w->m->module->functions[x->function];
    for (int k = 0; k < f->takes.return_count; k++) {
        if (f->takes.returns[k].slot < 0) continue;
        for (int lane = 0; lane < LANES; lane++)
            if (w->active >> lane & 1)
                move_register(w, &w->m->entry->functions[x->function], &f->takes.returns[k], lane, x->local_base, true);
    }
    flow_return(w, at, w->active);
}

/* ---- alloca ---- */

/* All active lanes get the same place, as large as the largest that one of them asks for. */
void exec_alloca(warp *w, const instruction *i)
{
    machine *m = w->m;
    frame *x = &w->flow->frames[frame_of_group(w)];
    lanes64 room, d;
    uint32_t defined;
    const uint64_t *bytes = warp_read64(w, &i->operand[1], &room, &defined);
    uint64_t most = 0, alignment = i->operand[2].kind == OPERAND_IMMEDIATE ? i->operand[2].bits : 8;
    for (int l = 0; l < LANES; l++)
        if (w->active >> l & 1 && bytes[l] > most) most = bytes[l];
    if (alignment == 0 || alignment & (alignment - 1) || alignment > 4096)
        machine_fault(m, w, i, EMULATOR_ALIGNMENT, "alloca with an alignment of %llu", (unsigned long long)alignment);
    uint64_t base = (x->local_top + alignment - 1) / alignment * alignment;
    if (most > m->local_bytes || base + most > m->local_bytes)
        machine_fault(m, w, i, EMULATOR_RESOURCE, "alloca of %llu bytes: the stack has %u, of which %u are in use",
                      (unsigned long long)most, m->local_bytes, x->local_top);
    x->local_top = (uint32_t)(base + most);
    for (int l = 0; l < LANES; l++) {
        d.v[l] = base;
        if (w->active >> l & 1) memset(frame_defined(w, l, (uint32_t)base), 0, (size_t)most);
    }
    write_value(w, &i->operand[0], d.v, UINT32_MAX);
}

void exec_stacksave(warp *w, const instruction *i)
{
    lanes64 d;
    for (int l = 0; l < LANES; l++) d.v[l] = w->flow->frames[frame_of_group(w)].local_top;
    write_value(w, &i->operand[0], d.v, UINT32_MAX);
}

/* What other lanes have allocated meanwhile stays. */
void exec_stackrestore(warp *w, const instruction *i)
{
    frame *x = &w->flow->frames[frame_of_group(w)];
    uint64_t top = warp_uniform(w, &i->operand[0], "the stack pointer");
    if (top < x->local_base || top > x->local_top)
        machine_fault(w->m, w, i, EMULATOR_BOUNDS, "stackrestore to 0x%llx: the frame is from 0x%x to 0x%x",
                      (unsigned long long)top, x->local_base, x->local_top);
    if (w->active == w->alive) x->local_top = (uint32_t)top;
}
