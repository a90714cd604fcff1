/* The machine: one block of threads at a time, its warps, its shared memory, everything in flight, and the clocks by which ordering is judged.
 *
 * Agents take turns: the scheduler (schedule.c) picks a warp, or something in flight (a copy, a warpgroup's matrix product, a step of the
 * tcgen05 pipe), and lets it do one thing.
 *
 * Ordering is judged with vector clocks. Components (clock_index):
 *   warp w             its own program order; ticks when it releases something
 *   async pipe of w    the matrix products (wgmma, tcgen05) that w issued, in order; w acquires it by wait_group, wait::ld, wait::st
 *   bulk stores of w   the copies from shared to global memory that w committed; w acquires them by cp.async.bulk.wait_group
 *   cp.async of w      its copies of single threads, by number; w acquires them by cp.async.wait_group
 *   mbarrier slot b    the copies that complete on b: time = number of its phase + 1; whoever observes that phase acquires it
 * A thread-level detail that matters, which lane of a warp wrote and fenced, is kept by lane in the shadow (shadow.h). */
#ifndef FOSCAR_EMULATOR_MACHINE_H
#define FOSCAR_EMULATOR_MACHINE_H

#include <setjmp.h>

#include "module.h"

/* Generic addresses (cvta, and ld, st, atom without a state space): global memory has the addresses of this process; shared and local memory
 * have windows above any address that a process is given (56 bits at most, with five levels of pages). */
#define GENERIC_SHARED_WINDOW UINT64_C(0x0100000000000000)
#define GENERIC_LOCAL_WINDOW UINT64_C(0x0200000000000000)
#define GENERIC_PARAM_WINDOW UINT64_C(0x0300000000000000)
#define GENERIC_CODE_WINDOW UINT64_C(0x0400000000000000) /* of functions: number times CODE_STEP */
#define GENERIC_WINDOW_BYTES UINT64_C(0x0000000100000000)

enum { CODE_STEP = 16, HEAP_BYTES = 8 << 20 /* of malloc in kernels */ };
enum { LANES = 32, WARPS_MAX = 32, MBARRIERS_MAX = 128, NAMED_BARRIERS = 16, CLOCKS = 4 * WARPS_MAX + MBARRIERS_MAX };

typedef struct vector_clock { uint32_t time[CLOCKS]; } vector_clock;

typedef struct machine machine;
typedef struct warp warp;
typedef struct async_op async_op;

typedef enum proxy { PROXY_GENERIC, PROXY_ASYNC } proxy;

/* ---- Warps ---- */

typedef enum warp_state { WARP_READY, WARP_BLOCKED, WARP_DONE } warp_state;

struct warp {
    machine *m;
    int index;                 /* in the block */
    warp_state state;
    uint32_t alive, active;    /* lanes that have not exited; lanes that execute `at`: those of `group` that pass its guard */
    uint32_t group;            /* lanes that are at instruction `next` together */
    int next;
    int pc[LANES];             /* of the lanes outside of `group` */
    struct warp_flow *flow;    /* where groups of lanes wait and meet again, flow.h */
    bool yield;                /* the turn ends after this instruction (set by what other agents may be waiting for) */
    bool again;                /* the instruction blocked before and is executed again */
    bool spinning;             /* a test that failed: somebody else goes first */
    uint32_t (*slot)[LANES];   /* [entry.slots] */
    uint32_t *slot_defined;    /* [slots] mask of lanes */
    uint32_t *predicate;       /* [entry.predicates] mask of lanes */
    uint32_t *predicate_defined;
    uint32_t carry, carry_defined; /* CC.CF of extended arithmetic */
    uint64_t *written;         /* [slots] warp.executed when it was last written: wgmma.fence orders what came before */
    uint32_t *pending;         /* [slots] number of the wgmma group that owns the register, 0: none; touching it is WGMMA_REGISTERS;
                                  with bit 31: the destination of a tcgen05.ld, TCGEN05_ORDER */
    uint8_t *local;            /* [lanes][m->local_bytes] */
    uint8_t *local_defined;    /* the same: whether each byte is */
    uint64_t executed;         /* warp instructions */
    vector_clock clock;
    int registers;             /* a thread's, for setmaxnreg */
    const instruction *at;     /* being executed, or waited at */
    char waiting[160];         /* of a blocked warp, for the report: "mbarrier 0x3f8 phase parity 1 (now phase 2, 1 arrival and 4096 bytes pending)" */
    bool (*ready)(warp *w);    /* of a blocked warp: can it go on? Called with `at` and `active` as they were */
    uint64_t waits_for[2];     /* for the handler and its `ready`: as set before warp_block, restored before `ready` and before the next try */
    void *tensor;              /* wgmma's and tcgen05's own state, tensor.h */
    struct async_copies *copies; /* cp.async of its threads; NULL: none yet */
    bool issues_copies, issues_products; /* seen so far, for the starving schedules */
    int priority;
};

/* Values of operands of the active lanes: immediates, special registers and symbols are spread. Pointers stay valid until the next call that
 * uses the same `room`. *defined is a mask of lanes. */
typedef struct lanes32 { uint32_t v[LANES]; } lanes32;
typedef struct lanes64 { uint64_t v[LANES]; } lanes64;
const uint32_t *warp_read32(warp *w, const operand *o, lanes32 *room, uint32_t *defined);
const uint64_t *warp_read64(warp *w, const operand *o, lanes64 *room, uint32_t *defined);
uint32_t warp_read_predicate(warp *w, const operand *o, uint32_t *defined);
/* Writes the active lanes. */
void warp_write32(warp *w, const operand *o, const uint32_t *v, uint32_t defined);
void warp_write64(warp *w, const operand *o, const uint64_t *v, uint32_t defined);
void warp_write_predicate(warp *w, const operand *o, uint32_t v, uint32_t defined);
/* The one value that all active lanes must share (descriptors, barrier numbers): DIVERGENCE or UNDEFINED if they do not. */
uint64_t warp_uniform(warp *w, const operand *o, const char *what);
/* Addresses of an ADDRESS operand. */
void warp_addresses(warp *w, const operand *o, uint64_t address[LANES]);
/* The i-th element of a vector operand, or the operand itself if it is none and i = 0. */
const operand *operand_element(const warp *w, const operand *o, int i);

/* Blocks the warp at the instruction it is executing; it is executed again once ready(w) is true. The text says what it waits for. */
void warp_block(warp *w, bool (*ready)(warp *w), const char *format, ...) __attribute__((format(printf, 3, 4)));

/* For forms with a member mask (shfl, vote, redux, elect, match, bar.warp.sync): true once every lane of `members` that has not exited is active
 * at this instruction. False: the lanes have been parked, the handler returns at once and is called again when the others have come. An active
 * lane outside of `members` is DIVERGENCE. */
bool warp_gather(warp *w, uint32_t members);

/* ---- The block ---- */

typedef struct mbarrier {
    uint32_t address;   /* in shared memory; slot b is free if !live */
    bool live;
    uint32_t expected;  /* arrivals of a phase */
    int32_t pending;    /* arrivals that this phase still needs */
    int64_t bytes;      /* pending bytes of this phase: expected minus arrived */
    uint32_t phase;     /* number of the current phase, from 0 */
    vector_clock arriving; /* of everything that has arrived in this phase */
    vector_clock done;     /* of the phases completed */
    const instruction *last_arrival, *init;
    int init_warp, init_lane;
    uint32_t init_time;      /* of init_warp: what must be seen by whoever uses it */
    uint32_t fence_time;     /* of init_warp when the lane made the initialisation visible to copies; 0: never */
    uint32_t first_phase;    /* `phase` when it was initialised: slots are used again, and time does not go back */
    int32_t observed[WARPS_MAX]; /* the phase that each warp saw completed last, -1: none; see BARRIER_PHASE */
} mbarrier;

typedef struct named_barrier {
    int expected, arrived; /* threads; expected 0: nobody has come, -1: all that have not exited */
    uint32_t generation;
    vector_clock arriving, done;
    uint32_t warps;  /* that have come in this generation */
    uint32_t count;  /* of lanes whose predicate of bar.red holds, and of all lanes */
    uint32_t lanes;
    uint32_t result[2], result_lanes[2]; /* by generation % 2 */
    const instruction *last;
} named_barrier;

/* Something in flight. Made by async_issue; run when the scheduler picks it. Those of one `queue` run in the order of issue. */
struct async_op {
    async_op *next;
    const instruction *at; /* who issued it */
    int warp;
    int queue;             /* ASYNC_COPIES: no order; else a warpgroup's wgmma queue or the tcgen05 pipe of a warp */
    vector_clock clock;    /* of the issuer, at issue (joined over the warps that take part) */
    bool (*ready)(machine *m, async_op *op); /* NULL: always */
    void (*run)(machine *m, async_op *op);
    void *payload;         /* freed with the op */
    bool again;            /* set by run: not done yet, run it once more */
    int priority;          /* of the random schedules */
    uint64_t number;       /* of issue */
};
enum { ASYNC_COPIES = -1, ASYNC_TCGEN05 = 64, ASYNC_QUEUES = 128 }; /* of a warpgroup: its number; of a tcgen05 pipe: ASYNC_TCGEN05 and on */

struct machine {
    const emulator_launch_config *config;
    const entry *entry;
    const emulator_module *module;
    emulator_error *error;
    jmp_buf failed;             /* machine_fault jumps here */
    uint32_t block[3], threads, warps;
    warp *warp;                 /* [warps] */
    uint8_t *parameters;
    uint32_t local_bytes;       /* of a thread, with the stack of functions */
    emulator_variables *variables;
    char *print_room;           /* of printf; NULL: not used yet */
    uint64_t heap_used;
    void *product_room;         /* of mma.sync; NULL: not used yet */
    uint8_t *shared;            /* [shared_bytes] */
    uint32_t shared_bytes;
    struct shadow *shadow;      /* of shared memory, shadow.h */
    struct tensor_memory *tmem; /* tensor.h; NULL until the first tcgen05.alloc */
    mbarrier mbarriers[MBARRIERS_MAX];
    named_barrier named[NAMED_BARRIERS];
    async_op *in_flight, *last_in_flight;
    uint64_t issued;            /* async ops */
    uint8_t *mbarrier_slot;     /* [shared_bytes / 8] slot + 1 of the live mbarrier there */
    int next_agent;             /* of the schedules that go in turn */
    uint64_t picks;
    int block_number;
    int free_registers;         /* of the pool of setmaxnreg */
    uint64_t random[4];
    uint64_t executed;
    uint64_t *counts;           /* [entry.count] or NULL */
    vector_clock global_clock;  /* of releases and acquires in global memory */
};

/* Reports and gives up the launch: does not return. w and i may be NULL. */
_Noreturn void machine_fault(machine *m, const warp *w, const instruction *i, emulator_fault fault, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Zeroed; MEMORY if there is none. */
void *machine_allocate(machine *m, size_t bytes);

/* The op has seen what w has seen so far; what w does later is not before it (w's clock ticks). */
async_op *async_issue(warp *w, int queue, void (*run)(machine *m, async_op *op), size_t payload_bytes);

/* ---- Clocks ---- */

static inline int clock_of_warp(int w) { return w; }
static inline int clock_of_pipe(int w) { return WARPS_MAX + w; }
static inline int clock_of_bulk_stores(int w) { return 2 * WARPS_MAX + w; }
static inline int clock_of_async_copies(int w) { return 3 * WARPS_MAX + w; }
static inline int clock_of_mbarrier(int slot) { return 4 * WARPS_MAX + slot; }
void clock_join(vector_clock *to, const vector_clock *from);
void warp_release(warp *w, vector_clock *to);         /* joins w's clock (and what it has fenced) into *to, then ticks */
void warp_acquire(warp *w, const vector_clock *from); /* joins */

/* ---- mbarriers (mbarrier.c) ---- */

mbarrier *mbarrier_at(machine *m, const warp *w, const instruction *i, uint64_t address); /* BARRIER_INIT if there is none, ALIGNMENT */
void mbarrier_arrive(machine *m, const warp *w, const instruction *i, mbarrier *b, int arrivals, const vector_clock *clock);
void mbarrier_complete_bytes(machine *m, const async_op *op, mbarrier *b, int64_t bytes, const vector_clock *clock);

/* A number below n, of the launch's seed. */
uint32_t machine_random(machine *m, uint32_t n);

#endif
