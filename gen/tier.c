/* Arithmetic of the full-precision tier. */
#include "tier.h"

#include "fragment.h"

static int round_up(int x, int to)
{
    return (x + to - 1) / to * to;
}

int tier_block_tokens(const config *cfg)
{
    int k = scheme_block_tokens(&cfg->k), v = scheme_block_tokens(&cfg->v);
    return k > v ? k : v;
}

int tier_quantised(const config *cfg, const tier_shape *tier, int length)
{
    int block = tier_block_tokens(cfg);
    int64_t old = (int64_t)length - tier->sink - tier->window;
    return old > 0 ? (int)(old - old % block) : 0;
}

int tier_ring_begin(const tier_shape *tier)
{
    return round_up(tier->sink, TIER_PAGE_TOKENS);
}

int tier_slot(const tier_shape *tier, int token)
{
    int begin = tier_ring_begin(tier);
    return token < tier->sink ? token : begin + (token - tier->sink) % (tier->slots - begin);
}

int64_t tier_slots_least(const config *cfg, int sink, int window)
{
    int64_t ring = (int64_t)window + tier_block_tokens(cfg) + TIER_PAGE_TOKENS - 1, begin = ((int64_t)sink + TIER_PAGE_TOKENS - 1) / TIER_PAGE_TOKENS * TIER_PAGE_TOKENS;
    return begin + (ring + TIER_PAGE_TOKENS - 1) / TIER_PAGE_TOKENS * TIER_PAGE_TOKENS;
}
