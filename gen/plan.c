/* Planning: from a configuration to every number of its decode kernel. Arithmetic only. */
#include "plan.h"

#include <string.h>

enum {
    BLOCK_TOKENS = 256,    /* one 64-token chunk per warp of a consumer */
    MAX_CONSUMERS = 3,
    KEPT_DESCRIPTORS = 12, /* that fit into uniform registers beside the loop's addresses */
    MAX_STAGES = 4,        /* more in flight than that gains nothing */
    IN_FLIGHT = 48 * 1024, /* bytes of copies in flight that an SM needs to reach the memory's speed */
    EXCHANGE_BYTES = 1024, /* of each consumer */
    SCHEDULE_BYTES = 256
};

/* Registers of a thread by number of consumer warpgroups: at entry, then producer and consumers after setmaxnreg. */
static const struct {
    int entry, producer, consumer;
} register_split[MAX_CONSUMERS + 1] = {{0}, {240, 40, 256}, {168, 40, 232}, {128, 32, 160}};

static uint32_t round_up(uint32_t x, uint32_t to) { return (x + to - 1) / to * to; }

static int pad_heads(int heads)
{
    if (heads <= 2) return heads;
    return heads <= 4 ? 4 : (heads + 7) / 8 * 8;
}

/* Score rows and limb columns. With fewer than 8 heads, several token tiles share the columns of one accumulator. */
static void plan_products(decode_plan *p)
{
    p->padded_heads = pad_heads(p->cfg.heads);
    p->channel_tiles = p->cfg.head_dim / CHANNEL_TILE;
    p->head_blocks = p->padded_heads <= 8 ? 1 : p->padded_heads / 8;
    p->tiles_sharing = p->padded_heads >= 8 ? 1 : p->padded_heads == 4 ? 2 : 4;
    p->accumulators = 4 / p->tiles_sharing;
    p->thread_heads = p->padded_heads == 1 ? 1 : 2 * p->head_blocks;
    p->numbers_exchanged = p->tiles_sharing < 4;
    p->q_limbs = 3;
    p->p_limbs = 3;
    p->qk_columns = p->padded_heads == 1 ? 16 : 8 * p->q_limbs * p->head_blocks;
    p->pv_columns = 8 * p->p_limbs * p->head_blocks;
    p->k_steps = p->cfg.head_dim / 32;
    p->v_steps = p->block_tokens / 32;

    /* Q limbs: rows of 16 bytes. Shared tiles see the same rows through windows that start ever earlier, zeros around them. */
    int shift = p->tiles_sharing == 1 ? 0 : 8 - 8 / p->tiles_sharing;
    p->q_rows = 8 + shift;
    p->q_sbo = (uint32_t)p->q_rows * 16;
    p->q_lbo = p->q_sbo * (uint32_t)(p->qk_columns / 8);
    p->q_bytes = round_up(p->q_lbo * (uint32_t)(p->cfg.head_dim / 16), 128);

    /* P' limbs: the 16 bytes added to the stride put the stores of a warp on 32 different banks */
    p->p_sbo = 128;
    p->p_lbo = p->p_sbo * (uint32_t)(p->pv_columns / 8) + 16;
    p->p_bytes = round_up(p->p_lbo * (uint32_t)(p->block_tokens / 16), 128);
}

/* Numbers of the tokens of a consumer's four warps. */
static uint32_t numbers_bytes(const decode_plan *p) { return p->numbers_exchanged ? 4 * NUMBERS_WARP_BYTES : 0; }

/* Bytes of everything but the rings, for a number of consumers. */
static uint32_t fixed_bytes(const decode_plan *p, int consumers)
{
    uint32_t barriers = 2 * MAX_STAGES * 16;
    return (uint32_t)consumers * (p->p_bytes + p->q_bytes + numbers_bytes(p) + EXCHANGE_BYTES + barriers) + SCHEDULE_BYTES + 256;
}

static ring_plan plan_ring(const decode_plan *p, uint32_t begin, uint32_t end, shared_name stages_at, shared_name barriers_at)
{
    return (ring_plan){
        .page_offset = begin,
        .page_bytes = end - begin,
        .stage_bytes = (uint32_t)p->pages_per_block * (end - begin),
        .stages_at = stages_at,
        .barriers_at = barriers_at,
    };
}

/* The most consumers whose rings keep enough copies in flight. A consumer holds one V stage for itself and, for half of the time each, one K stage and
   the next V stage, whose metadata the next scores need. */
static bool plan_stages(decode_plan *p)
{
    int most = MAX_CONSUMERS - (p->head_blocks > 1) - (p->channel_tiles > 2); /* registers of the accumulators */
    for (int consumers = most; consumers >= 1; consumers--) {
        uint32_t n = (uint32_t)consumers, space = ((uint32_t)p->cfg.target->shared_bytes - fixed_bytes(p, consumers)) / n, best = 0;
        for (uint32_t k = 2; k <= MAX_STAGES; k++)
            for (uint32_t v = k; v <= MAX_STAGES; v++) {
                if (k * p->k_ring.stage_bytes + v * p->v_ring.stage_bytes > space) continue;
                uint32_t in_flight = n * ((2 * k - 1) * p->k_ring.stage_bytes + (2 * v - 3) * p->v_ring.stage_bytes) / 2;
                if (in_flight <= best) continue;
                best = in_flight;
                p->k_ring.stages = (int)k;
                p->v_ring.stages = (int)v;
            }
        p->consumers = consumers;
        if (best >= IN_FLIGHT) return true;
    }
    return false;
}

/* What is in flight must fit into a consumer's registers beside a block's scores. Twice the heads leave half the room; chunks of V in flight are halved
   by 4-bit V (twice the words), by a third consumer when K or V has 4 bits, and by accumulators of another length for one or two heads. Whether it
   fits is for ptxas to say: tools/check.sh assembles the whole grid and refuses spills. */
static void plan_flight(decode_plan *p)
{
    bool wide = p->head_blocks > 1, many_words = p->v.groups * p->v.words > 4, three = p->consumers == MAX_CONSUMERS;
    bool four_bits = p->cfg.k.codes->bits > 2 || many_words;
    int halvings = many_words + (three && four_bits) + (p->tiles_sharing == 4);
    p->query_kept = !wide || p->channel_tiles <= 2;
    p->descriptors_kept = p->tiles_sharing * p->k_steps + p->v_steps <= KEPT_DESCRIPTORS;
    p->tile_flight = p->tiles_sharing > 2 ? (p->k_steps > 4 ? 1 : 2) : 16 / p->k_steps;
    p->score_flight = p->accumulators == 1 || wide ? 1 : p->accumulators / 2;
    p->value_tiles = wide && p->channel_tiles > 1 ? p->channel_tiles / 2 : p->channel_tiles;
    p->value_early = wide ? 0 : many_words ? 1 : 2;
    p->value_flight = wide || halvings > 2 ? 1 : 4 >> halvings;
}

static void plan_shared(decode_plan *p)
{
    uint32_t n = (uint32_t)p->consumers;
    const shared_region wanted[SHARED_REGIONS] = {
        [SHARED_RING_K] = {"ring_k", 0, n * (uint32_t)p->k_ring.stages * p->k_ring.stage_bytes, 128},
        [SHARED_RING_V] = {"ring_v", 0, n * (uint32_t)p->v_ring.stages * p->v_ring.stage_bytes, 128},
        [SHARED_P] = {"p_limbs", 0, n * p->p_bytes, 128},
        [SHARED_Q] = {"q_limbs", 0, n * p->q_bytes, 128},
        [SHARED_NUMBERS] = {"numbers", 0, n * numbers_bytes(p), 16},
        [SHARED_EXCHANGE] = {"exchange", 0, n * EXCHANGE_BYTES, 16},
        [SHARED_BARRIERS_K] = {"barriers_k", 0, n * (uint32_t)p->k_ring.stages * 16, 8},
        [SHARED_BARRIERS_V] = {"barriers_v", 0, n * (uint32_t)p->v_ring.stages * 16, 8},
        [SHARED_SCHEDULE] = {"schedule", 0, SCHEDULE_BYTES, 16},
    };
    uint32_t at = 0;
    for (int i = 0; i < SHARED_REGIONS; i++) {
        p->shared[i] = wanted[i];
        p->shared[i].offset = at = round_up(at, wanted[i].align);
        at += wanted[i].bytes;
    }
    p->shared_bytes = at;
}

bool decode_plan_make(const config *cfg, decode_plan *out, gen_error *err)
{
    decode_plan *p = out;
    memset(p, 0, sizeof *p);
    p->cfg = *cfg;
    p->page = fragment_page_layout(cfg);
    p->k = fragment_k_layout(cfg);
    p->v = fragment_v_fields(cfg);
    p->block_tokens = BLOCK_TOKENS;
    p->pages_per_block = BLOCK_TOKENS / cfg->page_tokens;
    p->chunks_per_page = cfg->page_tokens / CHUNK_TOKENS;
    p->k_ring = plan_ring(p, p->page.k_codes, p->page.v_codes, SHARED_RING_K, SHARED_BARRIERS_K);
    p->v_ring = plan_ring(p, p->page.v_codes, p->page.bytes, SHARED_RING_V, SHARED_BARRIERS_V);
    plan_products(p);
    if (!plan_stages(p))
        return gen_fail(err, "rings of %u- and %u-byte stages do not fit into the %d bytes of shared memory of %s; use fewer bits or a smaller head dimension",
                        p->k_ring.stage_bytes, p->v_ring.stage_bytes, cfg->target->shared_bytes, cfg->target->name);
    plan_flight(p);
    p->threads = (p->consumers + 1) * 128;
    p->entry_registers = register_split[p->consumers].entry;
    p->producer_registers = register_split[p->consumers].producer;
    p->consumer_registers = register_split[p->consumers].consumer;
    plan_shared(p);
    return true;
}

uint32_t decode_partial_bytes(const config *cfg)
{
    return round_up((uint32_t)(cfg->heads * (cfg->head_dim + 1) * 4), 16);
}

uint64_t decode_workspace_bytes(const decode_plan *plan, int blocks)
{
    uint64_t slots = 2 * (uint64_t)blocks * (uint64_t)plan->consumers;
    return slots * (SEGMENT_RECORD_BYTES + decode_partial_bytes(&plan->cfg));
}

void decode_plan_print(const decode_plan *p, FILE *out)
{
    char spec[CONFIG_SPEC_MAX];
    config_format(&p->cfg, spec);
    fprintf(out, "spec                %s\n", spec);
    fprintf(out, "page                %u bytes: K codes at %u, V codes at %u, K metadata at %u, V metadata at %u\n", p->page.bytes, p->page.k_codes,
            p->page.v_codes, p->page.k_metadata, p->page.v_metadata);
    fprintf(out, "block               %d tokens, %d pages, %u bytes\n", p->block_tokens, p->pages_per_block, p->k_ring.stage_bytes + p->v_ring.stage_bytes);
    fprintf(out, "warpgroups          %d consumers, 1 producer (%d threads)\n", p->consumers, p->threads);
    fprintf(out, "registers           %d at entry, %d producer, %d consumer\n", p->entry_registers, p->producer_registers, p->consumer_registers);
    fprintf(out, "rings               %d K stages and %d V stages for each consumer\n", p->k_ring.stages, p->v_ring.stages);
    fprintf(out, "heads               %d padded to %d, %d token tiles share an accumulator\n", p->cfg.heads, p->padded_heads, p->tiles_sharing);
    fprintf(out, "QK                  m64n%dk32, %d limbs of Q, %d steps, %d accumulators\n", p->qk_columns, p->q_limbs, p->k_steps, p->accumulators);
    fprintf(out, "PV                  m64n%dk32, %d limbs of P', %d steps, %d channel tiles\n", p->pv_columns, p->p_limbs, p->v_steps, p->channel_tiles);
    fprintf(out, "V fields            2 row halves x %d channel tiles x %d halves of a step, %d x %d words a thread and chunk\n", p->v.tiles, p->v.halves, p->v.groups,
            p->v.words);
    fprintf(out, "shared memory       %u bytes\n", p->shared_bytes);
    for (int i = 0; i < SHARED_REGIONS; i++)
        fprintf(out, "  %-10s        at %6u, %6u bytes\n", p->shared[i].name, p->shared[i].offset, p->shared[i].bytes);
}
