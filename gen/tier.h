/* The full-precision tier: which tokens of a sequence are not quantised, and where they live.
 *
 * A sequence's first `sink` tokens stay in the tier for good. Of the others the oldest are quantised, a block at a time (tier_block_tokens), as soon as
 * `window` tokens and a whole block are behind the sinks: what is quantised follows from the length alone, so no kernel keeps a count.
 *
 *   tokens   0 .. sink - 1 | sink ..              sink + quantised - 1 | ..           length - 1
 *            tier            pages, as tokens 0 .. quantised - 1         tier, `window` to window + block - 1 of them
 *
 * The tier of a sequence is a row of slots. Sinks have slots of their own, from 0 to the next full page; behind them tokens go round in a ring. It
 * must hold window + block tokens and as many again as fill a page, so that no page of it is met twice. */
#ifndef FOSCAR_GEN_TIER_H
#define FOSCAR_GEN_TIER_H

#include "config.h"

/* Sizes of the tier of every sequence, in tokens; slots is a multiple of TIER_PAGE_TOKENS. */
typedef struct tier_shape {
    int sink, window, slots;
} tier_shape;

/* Tokens that are quantised at a time: the larger of the blocks of K and V. */
int tier_block_tokens(const config *cfg);

int tier_quantised(const config *cfg, const tier_shape *tier, int length);

/* Slots that sinks take; the ring begins there. */
int tier_ring_begin(const tier_shape *tier);

int tier_slot(const tier_shape *tier, int token);

/* Least number of slots for a sink and a window. */
int64_t tier_slots_least(const config *cfg, int sink, int window);

#endif
