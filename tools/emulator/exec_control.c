/* Branches, exits, and what warps do as a whole: bar.warp.sync, setmaxnreg, griddepcontrol. */
#include "exec.h"
#include "flow.h"

void exec_bra(warp *w, const instruction *i)
{
    if (i->mods.uniform && w->active != w->group)
        machine_fault(w->m, w, i, EMULATOR_DIVERGENCE, "bra.uni is taken by lanes %08x of %08x", w->active, w->group);
    flow_branch(w, i, w->active, i->operand[0].target);
}

void exec_exit(warp *w, const instruction *i)
{
    (void)i;
    flow_exit(w, w->active);
}

void exec_trap(warp *w, const instruction *i)
{
    machine_fault(w->m, w, i, EMULATOR_EXIT, "trap");
}

void exec_bar_warp_sync(warp *w, const instruction *i)
{
    lanes32 room;
    uint32_t defined;
    const uint32_t *members = warp_read32(w, &i->operand[0], &room, &defined);
    uint32_t mine = members[__builtin_ctz(w->active)], same = 0;
    for (int l = 0; l < LANES; l++)
        if (w->active >> l & 1 && members[l] == mine) same |= UINT32_C(1) << l;
    if (same != w->active) flow_set_apart(w, same);
    flow_meet(w, mine);
}

/* ---- Registers ---- */

enum { REGISTERS_MIN = 24, REGISTERS_MAX = 256 };

/* waits_for: the registers of a thread that are wanted. */
static bool registers_free(warp *w)
{
    return w->m->free_registers >= ((int)w->waits_for[0] - w->registers) * LANES;
}

void exec_setmaxnreg(warp *w, const instruction *i)
{
    machine *m = w->m;
    int wanted = (int)i->operand[0].bits;
    bool more = i->mods.mode == MODE_SETMAXNREG_INC;
    if (wanted < REGISTERS_MIN || wanted > REGISTERS_MAX || wanted % 8)
        machine_fault(m, w, i, EMULATOR_RESOURCE, "setmaxnreg to %d registers: %d to %d, multiples of 8", wanted,
                      REGISTERS_MIN, REGISTERS_MAX);
    if (more ? wanted < w->registers : wanted > w->registers)
        machine_fault(m, w, i, EMULATOR_RESOURCE, "setmaxnreg.%s from %d to %d registers", more ? "inc" : "dec",
                      w->registers, wanted);
    w->waits_for[0] = (uint64_t)wanted;
    if (!registers_free(w)) {
        warp_block(w, registers_free, "%d registers of setmaxnreg (%d are free)", (wanted - w->registers) * LANES,
                   m->free_registers);
        return;
    }
    m->free_registers -= (wanted - w->registers) * LANES;
    w->registers = wanted;
    w->yield = true;
}

/* ---- Grids ---- */

/* Launches run one after the other: the previous grid is over. */
void exec_griddepcontrol(warp *w, const instruction *i)
{
    (void)i;
    w->yield = true;
}

void exec_nanosleep(warp *w, const instruction *i)
{
    (void)i;
    w->yield = w->spinning = true;
}
