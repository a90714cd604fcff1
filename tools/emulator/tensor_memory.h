/* Tensor memory: 128 lanes of 512 columns of 32 bits, who has it, what is defined in it, and who touched it last.
 *
 * Its ordering is not that of memory. An access by tcgen05.ld or .st is over at the warp's tcgen05.wait, and other
 * warps may count on that only from a fence::before_thread_sync there to a fence::after_thread_sync here; a product or
 * a copy is over when an mbarrier that a commit of its thread arrives at says so. Copies and products of one thread run
 * in order, but nothing may count on that which touches sums in flight other than as the same accumulators. So each
 * access is remembered with its number among its warp's accesses, and each warp remembers at which of its fences how
 * many were over. */
#ifndef FOSCAR_EMULATOR_TENSOR_MEMORY_H
#define FOSCAR_EMULATOR_TENSOR_MEMORY_H

#include "tensor_state.h"

enum {
    TMEM_LANES = 128,
    TMEM_COLUMNS = 512,
    TMEM_UNIT = 32,    /* columns: of allocations */
    TMEM_GRANULE = 16, /* lanes: accesses are remembered for so many lanes of a column */
    TMEM_GRANULES = TMEM_LANES / TMEM_GRANULE,
    TMEM_READERS = 6
};
#define TMEM_PENDING 0x80000000u /* in warp.pending: the destination of a tcgen05.ld */

typedef enum tmem_by { TMEM_NOBODY, TMEM_PIPE, TMEM_LOAD, TMEM_STORE } tmem_by;

typedef struct tmem_access {
    uint8_t by, warp;
    uint8_t lane;         /* of products and copies: the thread that issued them */
    uint32_t number;      /* among the warp's loads, stores, or products and copies, from 1 */
    uint32_t time;        /* of the warp */
    uint32_t accumulator; /* of products: which accumulators, in which shape and kind; 0: any other data */
    int line;
} tmem_access;

typedef struct tmem_granule {
    tmem_access writer, reader[TMEM_READERS]; /* since it was written */
} tmem_granule;

typedef struct tensor_memory {
    uint32_t word[TMEM_COLUMNS][TMEM_LANES];
    uint32_t defined[TMEM_COLUMNS][TMEM_LANES / LANES]; /* masks of lanes */
    tmem_granule granule[TMEM_COLUMNS][TMEM_GRANULES];
    uint16_t allocation[TMEM_COLUMNS /
                        TMEM_UNIT]; /* number of columns at the first unit of an allocation, 1 at its others, 0: free */
    const instruction *allocated_at[TMEM_COLUMNS / TMEM_UNIT]; /* of first units */
    bool relinquished;
    struct product_room *room; /* tcgen05.c's, made at the first product */
} tensor_memory;

/* Who accesses, and what it may count on. */
typedef struct tmem_accessor {
    tmem_access access;
    const vector_clock *seen;         /* at its threads' last fence::after_thread_sync */
    const vector_clock *plain;        /* as ordinary accesses see it: tells a missing fence from a race */
    uint32_t loads_done, stores_done; /* of its own warp */
    const warp *w;
    const instruction *at;
} tmem_accessor;

typedef struct tcgen05_fence {
    uint32_t time, loads_done, stores_done;
} tcgen05_fence;

enum { AFTER_FENCES = LANES + 1 };

typedef struct tcgen05_state {
    uint32_t loads, loads_done, stores, stores_done;
    uint32_t piped;                                 /* products and copies */
    uint32_t last_piped[LANES], uncommitted[LANES]; /* of each thread: its last; how many no commit has followed */
    const instruction *last_load, *last_store, *last_piped_at[LANES];
    vector_clock after[AFTER_FENCES];   /* the warp's clock at fences::after_thread_sync */
    uint32_t after_lanes[AFTER_FENCES]; /* whose last fence that is */
    vector_clock after_all;             /* what several threads with different fences may count on */
    uint32_t before_lanes;              /* that have done fence::before_thread_sync since the last wait */
    tcgen05_fence *fences;              /* before_thread_sync of all threads, in order of time */
    int fence_count, fence_capacity;
    int *pending, pending_count; /* slots whose warp.pending is set */
} tcgen05_state;

tcgen05_state *tcgen05_state_of(warp *w);
void tcgen05_before_thread_sync(warp *w);
void tcgen05_after_thread_sync(warp *w);
tensor_memory *tensor_memory_of(machine *m);

/* TMEM if the columns are not all allocated. */
void tmem_check(machine *m, const warp *w, const instruction *i, uint32_t column, uint32_t columns, const char *what);
tmem_accessor tmem_accessor_now(warp *w, const instruction *i, tmem_by by, uint32_t number);
/* Judges and records accesses of columns; granules is a mask. Products and copies are judged when they are issued: all
 * that they may count on is known then, and whoever comes next finds them. */
void tmem_read(machine *m, const tmem_accessor *a, uint32_t column, uint32_t columns, uint32_t granules);
void tmem_write(machine *m, const tmem_accessor *a, uint32_t column, uint32_t columns, uint32_t granules);

static inline bool tmem_defined(const tensor_memory *t, uint32_t column, uint32_t lane)
{
    return t->defined[column][lane / LANES] >> lane % LANES & 1;
}

#endif
