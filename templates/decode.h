/* What the stages of the Hopper decode kernel share: the plan, the kernel's parameters and the registers of each role. */
#ifndef FOSCAR_TEMPLATES_DECODE_H
#define FOSCAR_TEMPLATES_DECODE_H

#include "../gen/plan.h"
#include "../gen/ptx.h"

enum { WARP_MASK = -1, MAX_THREAD_HEADS = 4, MAX_TILES = 4, MAX_STEPS = 8, MAX_CHUNKS = 4, MAX_WORDS = 16 };

/* Offsets in a consumer's exchange area, bytes. */
enum {
    EXCHANGE_QUERY = 0,      /* {float, float}[16], 16 bytes apart: by head what one unit of Q's limbs is worth, and the sum of Q; times the softmax scale */
    EXCHANGE_MAXIMA = 256,   /* float[2][16][4]: by block modulo 2, head and warp, largest score' less 22.9 */
    EXCHANGE_SUMS = 256,     /* at the end of an item float[2][16][4]: the sums of P and of P * V minimum, by head and warp */
    EXCHANGE_SET = 256,      /* bytes from one set of maxima or sums to the next */
    EXCHANGE_ITEM = 768      /* uint32[5]: {batch, head, first block, blocks, blocks left} of the item at work, kept here instead of in registers */
};

/* Bytes of one worker's record in the schedule: {batch index, block within the sequence's heads, blocks to do, tokens of the sequence}. */
enum { SCHEDULE_RECORD = 16, SCHEDULE_WARP_SUMS = 128 /* offset of uint32[16] */ };

/* What scores and weights need of one token (stage_numbers.c). */
typedef struct token_numbers {
    ptx_value k_scale, k_minimum; /* the scale in scores per unit of the products' sums */
    ptx_value v_log;              /* log2 of the V scale */
    ptx_value v_inverse, v_minimum; /* 1 / V scale, V minimum / V scale */
} token_numbers;

/* A position in the list of work: item (b, h), block of it, and what is left. All uniform over a role. */
typedef struct cursor {
    ptx_value batch, head;   /* sequence, KV head */
    ptx_value block, blocks; /* next block of the item, blocks of the item */
    ptx_value length;        /* tokens of the sequence */
    ptx_value left;          /* blocks left for this worker */
} cursor;

/* A position in a ring: stage number and parity of its phase; shared addresses of stage 0 and of its full barrier. */
typedef struct ring {
    const ring_plan *plan;
    ptx_value stage, parity;
    ptx_value base, barriers;
} ring;

typedef struct decode {
    ptx_builder *b;
    const decode_plan *p;
    ptx_value param[DECODE_PARAM_COUNT]; /* addresses; read with decode_param_value */

    /* Every thread */
    ptx_value tid, warpgroup, lane, shared;

    /* Consumers: warp 0..3 of the warpgroup, thread 0..127, row rr = lane / 4, quad hq = lane % 4 of a fragment */
    ptx_value thread, warp, rr, hq;
    ptx_value exchange, p_limbs, q_limbs; /* shared addresses of this consumer's areas */
    ptx_value exchange_row, exchange_slot; /* of this thread's first head in a [head][warp] table at offset 0: its row, and its warp's slot in it */
    ptx_value q_descriptor[MAX_TILES][MAX_STEPS]; /* by window of shared tiles and step; 64-bit, if they are kept */
    ptx_value p_descriptor[2 * MAX_CHUNKS];       /* by step of 32 tokens */
    ptx_value p_store;                    /* shared address of this thread's first P' byte */
    ptx_value k_offset;                   /* this thread's K words in a stage, bytes */
    ptx_value meta_offset;                /* K metadata of the tokens whose numbers this lane makes, in a V stage, bytes */
    ptx_value pairs_made, pairs_read, logs_read; /* shared addresses in the warp's numbers, if they are exchanged: of tokens made and read */

    /* One item: Q's scale, the sums of Q, the running softmax state and the output */
    ptx_value k_unit[2];                                  /* what a K scale is multiplied by, for the tokens whose numbers this lane makes */
    ptx_value q_step[MAX_THREAD_HEADS], q_sum[MAX_THREAD_HEADS]; /* of EXCHANGE_QUERY, if they are kept */
    ptx_value floor[MAX_THREAD_HEADS];                    /* below which no reference may go */
    ptx_value reference[MAX_THREAD_HEADS], l[MAX_THREAD_HEADS], z[MAX_THREAD_HEADS];
    ptx_value o[MAX_TILES][2][MAX_THREAD_HEADS];          /* [channel tile][row half][head] */

    /* One block */
    ptx_value score_sums[MAX_TILES][32], value_sums[MAX_TILES][32]; /* int32 accumulators of the two products */
    ptx_value value[MAX_CHUNKS][MAX_WORDS];               /* V words */
    token_numbers numbers[2], next_numbers[2];            /* of this block's and the following one's token of a row half, if they are not exchanged */
    ptx_value block_reference[MAX_THREAD_HEADS];          /* unit of the block's exponentials */
    ptx_value score[MAX_TILES][2][MAX_THREAD_HEADS];      /* score' [accumulator][row half][head] of this block */
    ptx_value next_score[MAX_TILES][2][MAX_THREAD_HEADS]; /* and of the following one */
} decode;

/* stage_schedule.c: the planning prologue, the walk over items, and rows of sequences without tokens. */
void stage_schedule(decode *d);
cursor stage_cursor(decode *d, ptx_value consumer);
void stage_cursor_next_item(decode *d, cursor *c); /* to the next item with tokens; only when left > 0 */
void stage_empty_sequences(decode *d);

/* stage_query.c: Q of one item into limbs; its step and its sum of a head of this thread, {step, sum}. */
void stage_query(decode *d, const cursor *c);
void stage_query_numbers(decode *d, int e, ptx_value out[2]);

/* stage_numbers.c: the scales and minima of the following block's tokens, from its V stage, as what its scores and, a block later, its weights need. */
void stage_numbers_setup(decode *d);     /* called by decode_consumer_setup */
void stage_numbers_registers(decode *d); /* called by decode_consumer_registers */
void stage_numbers_query(decode *d);     /* once the steps of Q are known */
void stage_numbers(decode *d, const ring *v, const cursor *c, ptx_value block);
void stage_numbers_of_scores(decode *d, int h, int first, int end, token_numbers *out); /* of row half h, accumulators [first, end) */
void stage_numbers_of_weights(decode *d, int h, ptx_value block, token_numbers *out);   /* of row half h, all accumulators */
void stage_numbers_take_next(decode *d); /* those last made become the current block's */

/* stage_score.c: K Q^T of some accumulators [first, end) of a block; waits for it and leaves the scores in next_score. */
void stage_score_issue(decode *d, const ring *k, int first, int end);
void stage_score_combine(decode *d, int first, int end);

/* stage_softmax.c: mask and each warp's maxima of the following block, and a barrier later its reference; the current block's exponentials and
   P' limbs, one row half at a time; its sums added to the running ones, and the factor by which what is older than it shrinks. */
typedef struct softmax_sums {
    ptx_value l[MAX_THREAD_HEADS], z[MAX_THREAD_HEADS]; /* of this block: weights, weights times V minimum */
} softmax_sums;
void stage_softmax_maxima(decode *d, const cursor *c, ptx_value block);
void stage_softmax_reference(decode *d, ptx_value block);
void stage_softmax_start(decode *d, softmax_sums *sums);
void stage_softmax_weights(decode *d, int h, ptx_value block, softmax_sums *sums);
void stage_softmax_add(decode *d, const softmax_sums *sums, ptx_value factor[MAX_THREAD_HEADS]);

/* stage_value.c: the first words of V of some channel tiles [first, end), V^T P'^T of them, and its sums added to the output. */
void stage_value_load(decode *d, const ring *v, int first_tile, int end_tile);
void stage_value_issue(decode *d, const ring *v, int first_tile, int end_tile);
void stage_value_update(decode *d, const ptx_value factor[MAX_THREAD_HEADS], int first_tile, int end_tile);

/* stage_output.c: the end of an item, and the records of partial results. */
void stage_output(decode *d, const cursor *c, ptx_value first_block, ptx_value end_block);
void stage_output_start(decode *d); /* records of a worker that has written nothing */

/* Lanes of a quad that hold the scores of different heads; the others hold those of other token tiles. */
static inline int decode_head_lanes(const decode_plan *p) { return 4 / p->tiles_sharing; }

/* stage_setup.c: before the first block. */
void decode_init_barriers(decode *d);
void decode_consumer_setup(decode *d);     /* registers that stay as they are */
void decode_consumer_registers(decode *d); /* registers that live across blocks */
ptx_value decode_q_descriptor(decode *d, int share, int step); /* of Q limbs: window of a tile that shares an accumulator, step of 32 channels */
ptx_value decode_p_descriptor(decode *d, int step);            /* of P' limbs: step of 32 tokens */

/* stage_produce.c: one warp feeds one consumer. */
void stage_produce(decode *d, ptx_value consumer);

/* decode_common.c: rings of stages. */
ring ring_start(decode *d, const ring_plan *plan, ptx_value consumer); /* of one worker, at its first stage */
void ring_advance(decode *d, ring *r);
void ring_take(decode *d, ring *to, const ring *from); /* the stage and parity of another position in the same ring */
void ring_release(decode *d, const ring *r);        /* one arrival a warp tells the producer that the consumer is done with a stage */
ptx_value decode_stage(decode *d, const ring *r);   /* shared address of the current stage */
ptx_value decode_barrier(decode *d, const ring *r); /* of its full barrier; the empty one is 8 bytes on */

/* decode_common.c: pieces that several stages use. Parameters are loaded where they are used, so that they occupy no registers elsewhere. */
ptx_value decode_token_group(decode *d, ptx_value lane); /* which of the token tiles that share an accumulator a lane's columns belong to */
ptx_value decode_param_value(decode *d, decode_param param);
ptx_value decode_offset(decode *d, ptx_value index, decode_param stride); /* index * stride, 64-bit */
ptx_value decode_worker(decode *d, ptx_value consumer); /* number of a consumer of this block among all */
void decode_place_thread(decode *d);                /* thread, warp, rr and hq anew, so that they need not live across the blocks before */
ptx_value decode_uniform(decode *d, ptx_value x);   /* x, the same in all lanes, in a form that lets ptxas use uniform registers */
void decode_wait(decode *d, ptx_value barrier, ptx_value parity); /* until the phase of that parity is complete */
void decode_consumer_sync(decode *d);                             /* the 128 threads of a consumer */
ptx_value decode_combine_limbs(decode *d, ptx_value high, ptx_value middle, ptx_value low); /* to float32 */
ptx_value decode_first_token(decode *d);                           /* token of a block that this thread's score (0, 0) belongs to */
ptx_value decode_tokens_left(decode *d, const cursor *c, ptx_value block); /* tokens of the sequence from a block on */
ptx_value decode_first_head(decode *d);                            /* head of this thread's element 0 */
int decode_head_offset(int e);                                     /* head of this thread's element e, less that of element 0 */

#endif
