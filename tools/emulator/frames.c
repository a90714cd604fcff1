/* Frames of device functions: what a call saves and sets up for its lanes, and what comes back when they have returned.
 * A function's registers are its own in each entry (link.c), so only a function that is active already in a lane has to
 * save them. Its local variables, parameters and arguments are on a stack in local memory. */
#include <stdlib.h>
#include <string.h>

#include "calls.h"

/* Registers of a function as they were, in the lanes that called it again. */
struct saved_registers {
    uint32_t slots, predicates;
    uint32_t
        words[]; /* slot values [slots][LANES], slot_defined [slots], predicate and predicate_defined [predicates] */
};

uint8_t *frame_bytes(const warp *w, int lane, uint32_t offset)
{
    return w->local + (size_t)lane * w->m->local_bytes + offset;
}

uint8_t *frame_defined(const warp *w, int lane, uint32_t offset)
{
    return w->local_defined + (size_t)lane * w->m->local_bytes + offset;
}

int frame_of_group(const warp *w)
{
    return w->flow->frame_of[__builtin_ctz(w->active ? w->active : w->group)];
}

static const linked_function *linked(const warp *w, int number)
{
    return &w->m->entry->functions[number];
}

/* ---- Registers ---- */

static void save(warp *w, frame *x)
{
    const linked_function *l = linked(w, x->function);
    size_t slots = (size_t)l->slots, predicates = (size_t)l->predicates;
    size_t words = slots * (LANES + 1) + 2 * predicates;
    x->saved = machine_allocate(w->m, sizeof *x->saved + words * sizeof(uint32_t));
    uint32_t *to = x->saved->words;
    memcpy(to, w->slot[l->first_slot], slots * sizeof *w->slot);
    memcpy(to + slots * LANES, w->slot_defined + l->first_slot, slots * sizeof *to);
    to += slots * (LANES + 1);
    memcpy(to, w->predicate + l->first_predicate, predicates * sizeof *to);
    memcpy(to + predicates, w->predicate_defined + l->first_predicate, predicates * sizeof *to);
}

static uint32_t mixed(uint32_t now, uint32_t before, uint32_t lanes)
{
    return (now & ~lanes) | (before & lanes);
}

static void restore(warp *w, const frame *x, uint32_t lanes)
{
    const linked_function *l = linked(w, x->function);
    const uint32_t *values = x->saved->words, *defined = values + (size_t)l->slots * LANES;
    const uint32_t *predicates = defined + l->slots, *known = predicates + l->predicates;
    for (int s = 0; s < l->slots; s++) {
        uint32_t *to = w->slot[l->first_slot + s];
        for (int lane = 0; lane < LANES; lane++)
            if (lanes >> lane & 1) to[lane] = values[s * LANES + lane];
        w->slot_defined[l->first_slot + s] = mixed(w->slot_defined[l->first_slot + s], defined[s], lanes);
    }
    for (int q = 0; q < l->predicates; q++) {
        int to = l->first_predicate + q;
        w->predicate[to] = mixed(w->predicate[to], predicates[q], lanes);
        w->predicate_defined[to] = mixed(w->predicate_defined[to], known[q], lanes);
    }
}

static void forget_registers(warp *w, int number, uint32_t lanes)
{
    const linked_function *l = linked(w, number);
    for (int s = 0; s < l->slots; s++) w->slot_defined[l->first_slot + s] &= ~lanes;
    for (int q = 0; q < l->predicates; q++) w->predicate_defined[l->first_predicate + q] &= ~lanes;
    w->carry_defined &= ~lanes;
}

/* ---- Frames ---- */

static void release(frame *x)
{
    free(x->saved);
    memset(x, 0, sizeof *x);
}

/* A slot for a new frame; frames whose lanes have all exited are free too. */
static int new_frame(warp *w)
{
    warp_flow *f = w->flow;
    for (int k = 1; k < f->frame_count; k++) {
        if (f->frames[k].lanes & w->alive) continue;
        release(&f->frames[k]);
        return k;
    }
    if (f->frame_count == f->frame_capacity) {
        int capacity = 2 * f->frame_capacity;
        frame *more = realloc(f->frames, (size_t)capacity * sizeof *more);
        if (!more) machine_fault(w->m, w, w->at, EMULATOR_MEMORY, "no memory");
        f->frames = more;
        f->frame_capacity = capacity;
    }
    memset(&f->frames[f->frame_count], 0, sizeof *f->frames);
    return f->frame_count++;
}

static bool is_active(const warp_flow *f, int at, int number)
{
    for (; at > 0; at = f->frames[at].parent)
        if (f->frames[at].function == number) return true;
    return false;
}

int frames_depth(const warp_flow *f, int at)
{
    int depth = 0;
    for (; at > 0; at = f->frames[at].parent) depth++;
    return depth;
}

int frames_push(warp *w, const instruction *call, int number, uint32_t lanes)
{
    machine *m = w->m;
    warp_flow *f = w->flow;
    const device_function *callee = &m->module->functions[number];
    int parent = f->frame_of[__builtin_ctz(lanes)], at = new_frame(w);
    frame *x = &f->frames[at];
    uint32_t alignment = callee->code.local_alignment > 16 ? callee->code.local_alignment : 16;
    uint32_t base = (f->frames[parent].local_top + alignment - 1) / alignment * alignment;
    if (base + callee->code.local_bytes > m->local_bytes || frames_depth(f, parent) >= CALL_DEPTH_MAX)
        machine_fault(m, w, call, EMULATOR_RESOURCE,
                      "the call of %.200s is %d deep: its stack has %u bytes, at most %d calls", callee->code.name,
                      frames_depth(f, parent) + 1, m->local_bytes, CALL_DEPTH_MAX);
    *x = (frame){.parent = parent,
                 .function = number,
                 .return_to = w->next + 1,
                 .call = call,
                 .lanes = lanes,
                 .local_base = base,
                 .local_top = base + callee->code.local_bytes};
    if (is_active(f, parent, number)) save(w, x);
    forget_registers(w, number, lanes);
    for (int lane = 0; lane < LANES; lane++) {
        if (!(lanes >> lane & 1)) continue;
        f->frame_of[lane] = at;
        memset(frame_defined(w, lane, base), 0, callee->code.local_bytes);
    }
    return at;
}

uint32_t frames_pop(warp *w, int at)
{
    warp_flow *f = w->flow;
    frame *x = &f->frames[at];
    uint32_t lanes = x->returned & w->alive;
    if (x->saved) restore(w, x, lanes);
    for (int lane = 0; lane < LANES; lane++)
        if (lanes >> lane & 1) f->frame_of[lane] = x->parent;
    calls_give_back(w, x, lanes);
    w->carry_defined &= ~lanes;
    f->joined &= ~x->returned;
    x->lanes &= ~x->returned;
    x->returned = 0;
    if (!(x->lanes & w->alive)) release(x);
    while (f->frame_count > 1 && !f->frames[f->frame_count - 1].lanes) f->frame_count--;
    return lanes;
}

bool frames_create(warp_flow *f)
{
    f->frame_capacity = 4;
    f->frame_count = 1;
    f->frames = calloc((size_t)f->frame_capacity, sizeof *f->frames);
    return f->frames != NULL;
}

void frames_reset(warp *w, frame *frames, int count, int capacity)
{
    for (int k = 0; k < count; k++) release(&frames[k]);
    w->flow->frames = frames;
    w->flow->frame_capacity = capacity;
    w->flow->frame_count = 1;
    frames[0] = (frame){.parent = -1, .lanes = UINT32_MAX, .local_top = w->m->entry->local_bytes};
}

void frames_destroy(warp_flow *f)
{
    for (int k = 0; f->frames && k < f->frame_count; k++) free(f->frames[k].saved);
    free(f->frames);
}
