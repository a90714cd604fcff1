/* The plan of a decode kernel: every number that the template needs, decided before anything is emitted. */
#ifndef FOSCAR_GEN_PLAN_H
#define FOSCAR_GEN_PLAN_H

#include <stdio.h>

#include "config.h"
#include "fragment.h"

/* Kernel parameters in their order. PARAM(name, bytes, meaning) */
#define DECODE_PARAMS(PARAM)                                                                                                \
    PARAM(q, 8, "Q [batch, kv_heads * heads, head_dim], address")                                                           \
    PARAM(out, 8, "output [batch, kv_heads * heads, head_dim], address")                                                    \
    PARAM(lse, 8, "log-sum-exp [batch, kv_heads * heads] float32 (natural log), address or 0")                              \
    PARAM(pages, 8, "first page, address, 16-byte aligned")                                                                 \
    PARAM(page_stride, 8, "bytes from one page to the next")                                                                \
    PARAM(head_stride, 8, "bytes from one KV head of a page to the next")                                                   \
    PARAM(page_table, 8, "int32 page numbers, address")                                                                     \
    PARAM(page_indptr, 8, "int32 [batch + 1] first entry of each sequence in page_table (CSR), address or 0 (padded table)") \
    PARAM(lengths, 8, "int32 [batch] tokens of each sequence, address")                                                     \
    PARAM(workspace, 8, "partial results, address, 16-byte aligned")                                                        \
    PARAM(q_stride, 8, "bytes from one sequence of Q to the next")                                                          \
    PARAM(out_stride, 8, "bytes from one sequence of the output to the next")                                               \
    PARAM(table_stride, 4, "entries of one row of a padded page table")                                                     \
    PARAM(batch, 4, "sequences")                                                                                            \
    PARAM(kv_heads, 4, "KV heads")                                                                                          \
    PARAM(scale_log2, 4, "float32 softmax scale * log2(e)")                                                                 \
    PARAM(tier_pages, 8, "first page of the full-precision tier (tier.h), address, 16-byte aligned; this and all that follow are 0 without a tier") \
    PARAM(tier_page_stride, 8, "bytes from one page of the tier to the next")                                               \
    PARAM(tier_head_stride, 8, "bytes from one KV head of a page of the tier to the next")                                  \
    PARAM(tier_table, 8, "int32 page numbers of the tier, address")                                                         \
    PARAM(tier_indptr, 8, "int32 [batch + 1] first entry of each sequence in tier_table (CSR), address or 0 (padded table)") \
    PARAM(tier_table_stride, 4, "entries of one row of a padded table of the tier")                                         \
    PARAM(tier_sink, 4, "first tokens of a sequence that stay in the tier")                                                 \
    PARAM(tier_window, 4, "least number of last tokens that stay in the tier")                                              \
    PARAM(tier_slots, 4, "tokens that a sequence has room for in the tier")

typedef enum decode_param {
#define PARAM(name, bytes, meaning) DECODE_PARAM_##name,
    DECODE_PARAMS(PARAM)
#undef PARAM
        DECODE_PARAM_COUNT
} decode_param;

/* A named part of shared memory. */
typedef struct shared_region {
    const char *name;
    uint32_t offset, bytes, align; /* bytes may be 0 */
} shared_region;

typedef enum shared_name {
    SHARED_RING_K,    /* K codes of all consumers: [consumer][stage] */
    SHARED_RING_V,    /* V codes and metadata, likewise */
    SHARED_P,         /* limbs of P' of each consumer, a tensor-core B operand */
    SHARED_Q,         /* limbs of Q of each consumer, a tensor-core B operand */
    SHARED_NUMBERS,   /* numbers of a block's tokens, by consumer and warp (templates/stage_numbers.c) */
    SHARED_EXCHANGE,  /* maxima and sums exchanged between the warps of a consumer */
    SHARED_BARRIERS_K, /* mbarriers of the K stages: [consumer][stage]{full, empty} */
    SHARED_BARRIERS_V, /* of the V stages */
    SHARED_SCHEDULE,  /* the work of each consumer, found by the planning prologue */
    SHARED_REGIONS
} shared_name;

/* A ring of stages of each consumer; one copy a page fills a stage. K codes have a ring of their own, because a block's K is done with long before
   its V; the other ring holds V codes and the metadata of both, as they lie in the page. */
typedef struct ring_plan {
    int stages;
    uint32_t page_offset, page_bytes; /* the part of a page that a stage holds */
    uint32_t stage_bytes;
    shared_name stages_at, barriers_at;
} ring_plan;

enum { NUMBERS_WARP_BYTES = 1792 }; /* of the numbers of a warp's tokens in a block */

typedef struct decode_plan {
    config cfg;
    page_layout page;
    k_layout k;
    v_fields v;

    /* Launch shape */
    int consumers;                      /* consumer warpgroups; one producer warpgroup follows them */
    int threads;                        /* of a block */
    int entry_registers, producer_registers, consumer_registers; /* a thread: .maxnreg, then setmaxnreg */

    /* Blocks of tokens: one stage of the ring, one tile per warp and step */
    int block_tokens, pages_per_block, chunks_per_page;
    ring_plan k_ring, v_ring;

    /* Rows of the score matrix: heads are padded to 1, 2, 4 or a multiple of 8 */
    int padded_heads;
    int head_blocks;                    /* multiples of 8 heads */
    int tiles_sharing;                  /* token tiles whose scores share one accumulator (few heads) */
    int accumulators;                   /* score accumulators of a block: 4 / tiles_sharing */
    int thread_heads;                   /* heads whose scores one thread holds */
    bool numbers_exchanged;             /* several lanes hold scores of a token: its numbers are made once and exchanged through shared memory */
    int score_flight;                   /* accumulators of the first product computed at a time */
    int tile_flight;                    /* token tiles whose operands are in registers at a time */
    int value_flight;                   /* chunks of the second product whose operands are in registers at a time */
    int value_early;                    /* chunks of V words loaded before the weights are ready */
    int value_tiles;                    /* channel tiles of the second product computed at a time */

    /* Tensor-core operands made of limbs */
    int q_limbs, p_limbs;
    int qk_columns, pv_columns;         /* N of the two products */
    int k_steps, v_steps;               /* instructions along the reduction: head_dim / 32, block_tokens / 32 */
    int channel_tiles;                  /* head_dim / 64 */
    int q_rows;                         /* rows of one 8-column slab of Q limbs, with the zero rows of shared tiles */
    uint32_t q_sbo, q_lbo, q_bytes;     /* bytes between 8-column slabs, between 16-channel slabs, of one consumer */
    uint32_t p_sbo, p_lbo, p_bytes;
    bool query_kept;                    /* registers hold the steps and sums of Q; otherwise they are loaded for each block */
    bool descriptors_kept;              /* uniform registers hold the descriptors of all products; otherwise they are made at each use */

    shared_region shared[SHARED_REGIONS];
    uint32_t shared_bytes;              /* dynamic shared memory of a block */
} decode_plan;

bool decode_plan_make(const config *cfg, decode_plan *out, gen_error *err);

/* Prints the plan, the shared-memory map and the limb columns as text (`foscar emit --plan`). */
void decode_plan_print(const decode_plan *plan, FILE *out);

/* Workspace of a decode launch with `workers` = blocks * consumers:
 *   segment records [workers][2] of 16 bytes, then partial results [workers][2] of partial_bytes.
 * Slot 0 is the first item a worker touched, if it began before this worker; slot 1 is the last one, if it begins here and goes on after.
 * A record is {int32 state, int32 item (batch index * kv_heads + KV head), 0, 0}; state is a segment_state.
 * A partial result is float32 O[heads][head_dim] (normalised), then float32 lse2[heads] (base-2 log-sum-exp). */
typedef enum segment_state {
    SEGMENT_NONE = 0,  /* no partial result in this slot */
    SEGMENT_OPEN = 1,  /* the item goes on with the next worker */
    SEGMENT_LAST = 2   /* the item ends here */
} segment_state;

enum { SEGMENT_RECORD_BYTES = 16 };
uint32_t decode_partial_bytes(const config *cfg);
uint64_t decode_workspace_bytes(const decode_plan *plan, int blocks);

#endif
