/* Where the lanes of a warp are: groups that execute together, wait, and meet again. Private to the machine. */
#ifndef FOSCAR_EMULATOR_FLOW_H
#define FOSCAR_EMULATOR_FLOW_H

#include "machine.h"

/* A branch that split a group: its lanes wait at `at` until all that have not exited are there. Joins are kept oldest
 * first, so the last one that has a lane is its innermost; each splits the lanes of its parent, so 31 are enough for 32
 * lanes. */
typedef struct join {
    int at;    /* index of the instruction */
    int frame; /* of the lanes there */
    uint32_t lanes, arrived;
} join;

/* A group that blocked. */
typedef struct parked_group {
    uint32_t lanes, active;
    int at;
    bool (*ready)(warp *w); /* NULL: waits for the lanes of `members` */
    uint32_t members;
    uint64_t waits_for[2];
    char waiting[sizeof((warp *)0)->waiting];
} parked_group;

/* A function that some lanes called together and have not all returned from. Frame 0 is the entry's own. */
typedef struct frame {
    int parent, function;
    int return_to; /* index of the instruction */
    const instruction *call;
    uint32_t lanes, returned;             /* those that have returned wait for the others */
    uint32_t local_base, local_top;       /* in local memory */
    struct saved_registers *saved; /* of the function, if it was active in a lane already */
} frame;

typedef struct warp_flow {
    join joins[LANES];
    int join_count;
    uint32_t joined; /* lanes that wait at a join */
    parked_group parked[LANES];
    int parked_count;
    uint32_t blocked;      /* lanes of the parked groups */
    uint64_t waits_for[2]; /* of the group that is to execute again */
    int spins;             /* backward branches of a part of the warp since another part ran */
    bool regather;         /* lanes have been put together: the instruction is executed again */
    uint32_t bulk_groups;  /* of bulk stores, committed */
    /* Forms for whole warpgroups: how many this warp has executed, and which they were (kept by the first warp of the
     * group). */
    int collectives;
    int *collective_log;
    int log_count, log_capacity;
    frame *frames;
    int frame_count, frame_capacity;
    int frame_of[LANES]; /* all lanes of a group are in one frame */
    bool hold; /* the group goes on although another has a smaller pc */
} warp_flow;

bool flow_create(warp *w); /* false: no memory */
void flow_reset(warp *w); /* for the next block */
void flow_destroy(warp *w);

/* Chooses the group that executes next; false: no lane can go on (all gone, blocked, or waiting for blocked lanes). */
bool flow_choose(warp *w);
/* Lets lanes of the group go to `target`, the others to the next instruction. */
void flow_branch(warp *w, const instruction *i, uint32_t taken, int target);
void flow_exit(warp *w, uint32_t lanes);
/* Lanes of the group, already in their new frame, go to `target`; the lanes `later` come to this instruction again, the
 * rest of the group goes on. */
void flow_call(warp *w, uint32_t lanes, uint32_t later, int target);
/* Lanes of the group return from frame `at`: they go on together once all of its lanes have. */
void flow_return(warp *w, int at, uint32_t lanes);
/* Takes the executing group out: it waits until ready, or for members. */
void flow_park(warp *w, bool (*ready)(warp *w), uint32_t members);
/* Only these of the active lanes execute the instruction now; the others come to it again. */
void flow_set_apart(warp *w, uint32_t lanes);
/* bar.warp.sync: as warp_gather, but the members may come by different instructions, and go on from there by
 * themselves. */
bool flow_meet(warp *w, uint32_t members);
/* Can some blocked group go on? Leaves w as it was. */
bool flow_any_ready(warp *w);

/* Registers of a warp; false: no memory. */
bool warp_create(warp *w, machine *m, int index);
void warp_reset(warp *w); /* for the next block */
void warp_destroy(warp *w);
/* Executes up to `limit` instructions of a warp. */
void warp_turn(warp *w, int limit);

/* ---- Of machine.c and the files of barriers, for the scheduler and the report ---- */

/* Runs the agents of a block until all warps are done; what is in flight then is for block_end to judge. */
void schedule_block(machine *m);
void schedule_seed(machine *m, uint64_t seed);
/* Something may have made a named barrier complete: a warp has gone. */
void named_barriers_warp_done(machine *m);
void mbarriers_block_end(machine *m);
/* cp.async: lands what is in flight; forgets a warp's copies. */
void async_copies_drain(machine *m);
void async_copies_reset(warp *w);
_Noreturn void machine_deadlock(machine *m);
/* After an op has run to its end: takes it out of flight and frees it. */
void async_remove(machine *m, async_op *op);
/* What a group that waits for an mbarrier waits for now; late: the phase it wants went by. False: it does not wait for
 * one. */
bool mbarrier_describe(const machine *m, const parked_group *p, const warp *w, char *text, size_t size, bool *late);
/* Adds a formatted line to the detail of an error. */
void detail_add(emulator_error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* fence.proxy.async and fence.mbarrier_init of the active lanes: mbarriers that they initialised may be signalled by
 * copies. */
void mbarriers_fence(warp *w);

#endif
