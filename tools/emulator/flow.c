/* Groups of lanes of a warp: the group with the smallest pc runs, lanes that a branch split meet where its paths do,
 * blocked lanes are parked. */
#include <stdlib.h>
#include <string.h>

#include "calls.h"

/* Backward branches that a part of a warp may take while another part could run. */
enum { SPINS_MAX = 64 };

bool flow_create(warp *w)
{
    w->flow = calloc(1, sizeof *w->flow);
    return w->flow != NULL && frames_create(w->flow);
}

void flow_reset(warp *w)
{
    const warp_flow old = *w->flow;
    memset(w->flow, 0, sizeof *w->flow);
    w->flow->collective_log = old.collective_log;
    w->flow->log_capacity = old.log_capacity;
    frames_reset(w, old.frames, old.frame_count, old.frame_capacity);
}

void flow_destroy(warp *w)
{
    if (w->flow) {
        free(w->flow->collective_log);
        frames_destroy(w->flow);
    }
    free(w->flow);
    w->flow = NULL;
}

static int first_lane(uint32_t lanes)
{
    return __builtin_ctz(lanes);
}

static int frame_of_lanes(const warp_flow *f, uint32_t lanes)
{
    return f->frame_of[first_lane(lanes)];
}

static int innermost_join(const warp_flow *f, uint32_t lanes)
{
    for (int j = f->join_count - 1; j >= 0; j--)
        if (f->joins[j].lanes & lanes) return j;
    return -1;
}

static void remove_join(warp_flow *f, int j)
{
    f->joined &= ~f->joins[j].arrived;
    memmove(&f->joins[j], &f->joins[j + 1], sizeof f->joins[0] * (size_t)(f->join_count - j - 1));
    f->join_count--;
}

/* Lanes that have returned from a frame go on where it was called. */
static void leave_frame(warp *w, int at)
{
    int to = w->flow->frames[at].return_to;
    for (uint32_t lanes = frames_pop(w, at); lanes; lanes &= lanes - 1) w->pc[first_lane(lanes)] = to;
}

/* Joins and frames whose other lanes have exited. */
static void drop_complete_joins(warp *w)
{
    warp_flow *f = w->flow;
    for (int k = f->frame_count - 1; k > 0; k--) {
        const frame *x = &f->frames[k];
        if (x->returned && (x->lanes & w->alive & ~x->returned) == 0) leave_frame(w, k);
    }
    for (int j = f->join_count - 1; j >= 0; j--)
        if ((f->joins[j].lanes & w->alive & ~f->joins[j].arrived) == 0) remove_join(f, j);
}

/* Parks the group at the joins that begin at its pc; false: it waits there for others. */
static bool pass_joins(warp *w)
{
    warp_flow *f = w->flow;
    int own = frame_of_lanes(f, w->group);
    for (int j = innermost_join(f, w->group); j >= 0 && f->joins[j].at == w->next && f->joins[j].frame == own;
         j = innermost_join(f, w->group)) {
        f->joins[j].arrived |= w->group;
        if (f->joins[j].lanes & w->alive & ~f->joins[j].arrived) {
            f->joined |= w->group;
            for (uint32_t lanes = w->group; lanes; lanes &= lanes - 1) w->pc[first_lane(lanes)] = w->next;
            w->group = 0;
            f->hold = false;
            return false;
        }
        w->group = f->joins[j].arrived & w->alive;
        remove_join(f, j);
    }
    return true;
}

/* The lanes among `runnable` with the smallest pc that is not below `from`, all inside the same joins. */
static uint32_t smallest_pc(const warp *w, uint32_t runnable, int from, int *pc)
{
    const warp_flow *f = w->flow;
    int best = -1;
    for (uint32_t lanes = runnable; lanes; lanes &= lanes - 1) {
        int at = w->pc[first_lane(lanes)];
        if (at >= from && (best < 0 || at < best)) best = at;
    }
    if (best < 0) return 0;
    uint32_t group = 0;
    for (uint32_t lanes = runnable; lanes; lanes &= lanes - 1)
        if (w->pc[first_lane(lanes)] == best) group |= lanes & -lanes;
    int j = innermost_join(f, group & -group);
    if (j >= 0) group &= f->joins[j].lanes;
    for (int inner = j + 1; inner < f->join_count; inner++) group &= ~f->joins[inner].lanes;
    int own = frame_of_lanes(f, group);
    for (uint32_t lanes = group; lanes; lanes &= lanes - 1)
        if (f->frame_of[first_lane(lanes)] != own) group &= ~(lanes & -lanes);
    *pc = best;
    return group;
}

static void remove_parked(warp_flow *f, int index)
{
    f->blocked &= ~f->parked[index].lanes;
    memmove(&f->parked[index], &f->parked[index + 1], sizeof f->parked[0] * (size_t)(f->parked_count - index - 1));
    f->parked_count--;
}

static void unpark(warp *w, int index)
{
    warp_flow *f = w->flow;
    const parked_group *p = &f->parked[index];
    for (uint32_t lanes = p->lanes; lanes; lanes &= lanes - 1) w->pc[first_lane(lanes)] = p->at;
    w->group = p->lanes;
    w->next = p->at;
    w->again = true;
    memcpy(f->waits_for, p->waits_for, sizeof f->waits_for);
    remove_parked(f, index);
}

/* The lanes of a frame that wait with this group for the same members. */
static uint32_t gathered(const warp *w, int at, uint32_t members, int own)
{
    uint32_t together = 0;
    const warp_flow *f = w->flow;
    for (int p = 0; p < f->parked_count; p++)
        if (!f->parked[p].ready && f->parked[p].at == at && f->parked[p].members == members &&
            frame_of_lanes(f, f->parked[p].lanes) == own)
            together |= f->parked[p].lanes;
    return together;
}

static bool group_ready(warp *w, const parked_group *p)
{
    if (!p->ready)
        return (p->members & w->alive & ~gathered(w, p->at, p->members, frame_of_lanes(w->flow, p->lanes))) == 0;
    const instruction *at = w->at;
    uint32_t active = w->active;
    w->at = &w->m->entry->instructions[p->at];
    w->active = p->active;
    memcpy(w->waits_for, p->waits_for, sizeof w->waits_for);
    bool ready = p->ready(w);
    w->at = at;
    w->active = active;
    return ready;
}

bool flow_any_ready(warp *w)
{
    const warp_flow *f = w->flow;
    for (int p = 0; p < f->parked_count; p++)
        if (group_ready(w, &f->parked[p])) return true;
    return false;
}

/* Blocked lanes that can go on execute their instruction again before anything else happens: what they waited for may
 * be there for a moment. */
static bool resume_blocked(warp *w)
{
    warp_flow *f = w->flow;
    for (int p = 0; p < f->parked_count; p++) {
        if (group_ready(w, &f->parked[p])) {
            unpark(w, p);
            return true;
        }
    }
    return false;
}

/* A part of the warp spins: lanes that wait for it at a join may be what it waits for. */
static void break_join(warp *w)
{
    warp_flow *f = w->flow;
    for (int j = f->join_count - 1; j >= 0; j--) {
        if (f->joins[j].arrived == 0) continue;
        remove_join(f, j);
        return;
    }
    for (int k = f->frame_count - 1; k > 0; k--) {
        if (!f->frames[k].returned) continue;
        leave_frame(w, k);
        return;
    }
}

bool flow_choose(warp *w)
{
    warp_flow *f = w->flow;
    if (w->again) return w->group != 0; /* just resumed */
    for (uint32_t lanes = w->group; lanes; lanes &= lanes - 1) w->pc[first_lane(lanes)] = w->next;
    if (f->parked_count && resume_blocked(w)) return true;
    for (;;) {
        if (w->group && !pass_joins(w)) continue;
        if (w->group == w->alive && w->group) return true;
        drop_complete_joins(w);
        uint32_t runnable = w->alive & ~f->joined & ~f->blocked;
        bool spun = f->spins >= SPINS_MAX;
        int current = w->next, from = 0;
        if (spun) {
            f->spins = 0;
            f->hold = true;
            from = current + 1;
            if (w->group == runnable) break_join(w);
            runnable = w->alive & ~f->joined & ~f->blocked;
        } else if (f->hold && w->group) {
            return true;
        }
        int pc = 0;
        uint32_t group = smallest_pc(w, runnable, from, &pc);
        if (!group) group = smallest_pc(w, runnable, 0, &pc);
        if (!group) {
            w->group = 0;
            return false;
        }
        w->group = group;
        w->next = pc;
        int j = innermost_join(f, group);
        if (j < 0 || f->joins[j].at != pc || f->joins[j].frame != frame_of_lanes(f, group)) return true;
    }
}

static void split(warp *w, const instruction *i, uint32_t taken, int target)
{
    warp_flow *f = w->flow;
    if (w->group == w->alive) f->join_count = 0; /* of lanes that have exited since */
    if (i->reconverge >= 0) {
        int j = innermost_join(f, w->group);
        int own = frame_of_lanes(f, w->group);
        bool known = j >= 0 && f->joins[j].at == i->reconverge && f->joins[j].frame == own;
        if (!known && f->join_count < LANES) f->joins[f->join_count++] = (join){i->reconverge, own, w->group, 0};
    }
    for (uint32_t lanes = w->group; lanes; lanes &= lanes - 1) {
        int lane = first_lane(lanes);
        w->pc[lane] = taken >> lane & 1 ? target : w->next + 1;
    }
    w->group = 0;
}

void flow_branch(warp *w, const instruction *i, uint32_t taken, int target)
{
    bool backward = target <= w->next;
    if (backward && w->group != w->alive) w->flow->spins++;
    if (taken == w->group)
        w->next = target;
    else if (!taken)
        w->next++;
    else
        split(w, i, taken, target);
}

void flow_exit(warp *w, uint32_t lanes)
{
    w->alive &= ~lanes;
    w->group &= ~lanes;
    w->next++;
    if (!w->group) w->flow->hold = false;
    if (!w->alive) w->state = WARP_DONE;
}

void flow_call(warp *w, uint32_t lanes, uint32_t later, int target)
{
    warp_flow *f = w->flow;
    uint32_t others = w->group & ~lanes;
    if (others) {
        if (w->group == w->alive) f->join_count = 0; /* of lanes that have exited since */
        int j = innermost_join(f, w->group), own = frame_of_lanes(f, others);
        bool known = j >= 0 && f->joins[j].at == w->next + 1 && f->joins[j].frame == own;
        if (!known && f->join_count < LANES) f->joins[f->join_count++] = (join){w->next + 1, own, w->group, 0};
    }
    for (; others; others &= others - 1)
        w->pc[first_lane(others)] = later >> first_lane(others) & 1 ? w->next : w->next + 1;
    w->group = lanes;
    w->next = target;
}

void flow_return(warp *w, int at, uint32_t lanes)
{
    warp_flow *f = w->flow;
    frame *x = &f->frames[at];
    x->returned |= lanes;
    f->joined |= lanes;
    w->group &= ~lanes;
    w->next++;
    if (w->group) return;
    f->hold = false;
    if (x->lanes & w->alive & ~x->returned) return;
    int to = x->return_to;
    w->group = frames_pop(w, at);
    w->next = to;
}

void flow_park(warp *w, bool (*ready)(warp *w), uint32_t members)
{
    warp_flow *f = w->flow;
    parked_group *p = &f->parked[f->parked_count++];
    *p = (parked_group){w->group, w->active, w->next, ready, members, {w->waits_for[0], w->waits_for[1]}, ""};
    memcpy(p->waiting, w->waiting, sizeof p->waiting);
    f->blocked |= w->group;
    w->group = 0;
    f->hold = false;
}

/* Lanes of the group that the guard excludes do not come to this instruction: they go on. */
static void leave_guarded_off(warp *w)
{
    if (w->group == w->active) return;
    if (w->group == w->alive) w->flow->join_count = 0; /* of lanes that have exited since */
    for (uint32_t lanes = w->group & ~w->active; lanes; lanes &= lanes - 1) w->pc[first_lane(lanes)] = w->next + 1;
    w->group = w->active;
}

void flow_set_apart(warp *w, uint32_t lanes)
{
    if (w->group == w->alive) w->flow->join_count = 0; /* of lanes that have exited since */
    for (uint32_t others = w->group & ~lanes; others; others &= others - 1)
        w->pc[first_lane(others)] = w->active >> first_lane(others) & 1 ? w->next : w->next + 1;
    w->group = w->active = lanes;
}

bool warp_gather(warp *w, uint32_t members)
{
    warp_flow *f = w->flow;
    if (w->active & ~members)
        machine_fault(w->m, w, w->at, EMULATOR_DIVERGENCE, "lanes %08x execute it and are not in the mask %08x",
                      w->active & ~members, members);
    if ((members & w->alive & ~w->active) == 0) return true;
    leave_guarded_off(w);
    int own = frame_of_lanes(f, w->group);
    uint32_t together = w->group | gathered(w, w->next, members, own);
    if (members & w->alive & ~together) {
        w->waits_for[0] = w->waits_for[1] = UINT64_MAX; /* of nothing that the handler itself waits for */
        warp_block(w, NULL, "lanes %08x of the mask %08x (lanes %08x are here)", members & w->alive & ~together,
                   members, together);
        f->parked[f->parked_count - 1].members = members;
        return false;
    }
    for (int p = f->parked_count - 1; p >= 0; p--) {
        if (f->parked[p].ready || f->parked[p].at != w->next || f->parked[p].members != members ||
            frame_of_lanes(f, f->parked[p].lanes) != own)
            continue;
        uint32_t lanes = w->group;
        unpark(w, p);
        w->group |= lanes;
    }
    f->regather = true; /* the guard is looked at again, for all of them */
    return false;
}

bool flow_meet(warp *w, uint32_t members)
{
    warp_flow *f = w->flow;
    const instruction *code = w->m->entry->instructions;
    if (members & w->alive & ~w->active) leave_guarded_off(w);
    uint32_t together = w->group;
    for (int p = 0; p < f->parked_count; p++)
        if (code[f->parked[p].at].form == w->at->form && f->parked[p].members == members)
            together |= f->parked[p].lanes;
    if ((w->active & ~members) || (members & w->alive & ~together)) return warp_gather(w, members);
    for (int p = f->parked_count - 1; p >= 0; p--) {
        const parked_group *g = &f->parked[p];
        if (code[g->at].form != w->at->form || g->members != members) continue;
        for (uint32_t lanes = g->lanes; lanes; lanes &= lanes - 1) w->pc[first_lane(lanes)] = g->at + 1;
        remove_parked(f, p);
    }
    return true;
}
