/* Plans: what the decode kernel relies on, computed for every configuration of the grid. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode.h"
#include "plan.h"

enum {
    WARP = 32,
    BANKS = 32,                  /* of shared memory, four bytes wide */
    RESERVED_SHARED = 1024,      /* bytes before a block's own shared memory */
    DESCRIPTOR_UNITS = 1 << 14,  /* 16-byte units that a field of a matrix descriptor can say */
    TRANSACTION_BYTES = 1 << 20, /* bytes that an mbarrier can wait for, and one more */
    BLOCK_THREADS_MAX = 1024,
    SETMAXNREG_LEAST = 24,
    SETMAXNREG_MOST = 256
};

/* Calls check with the plan of every configuration; a failure says which one it was. */
static void for_each_plan(void (*check)(const decode_plan *p))
{
    for (int i = 0; i < registry_size(); i++) {
        config cfg;
        decode_plan plan;
        gen_error err = {""};
        registry_config(i, &cfg);
        if (!decode_plan_make(&cfg, &plan, &err)) fail_msg("%s", err.message);
        check(&plan);
    }
}

/* assert_true that names the configuration. */
#define holds(p, condition)                                                                                            \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            char spec_[CONFIG_SPEC_MAX];                                                                               \
            config_format(&(p)->cfg, spec_);                                                                           \
            print_error("%s:\n", spec_);                                                                               \
            assert_true(condition);                                                                                    \
        }                                                                                                              \
    } while (0)

/* ---- Shared memory ----------------------------------------------------------------------------------------------- */

static void check_regions(const decode_plan *p)
{
    uint32_t end = 0, n = (uint32_t)p->consumers;
    for (int i = 0; i < SHARED_REGIONS; i++) {
        const shared_region *r = &p->shared[i];
        holds(p, r->name != NULL && (r->bytes > 0 || i == SHARED_NUMBERS));
        holds(p, r->align > 0 && (r->align & (r->align - 1)) == 0 && r->offset % r->align == 0);
        holds(p, r->offset >= end && r->offset - end < r->align);
        end = r->offset + r->bytes;
    }
    holds(p, p->shared_bytes == end);
    holds(p, p->shared_bytes <= (uint32_t)p->cfg.target->shared_bytes);
    holds(p, p->shared[SHARED_RING_K].bytes == n * (uint32_t)p->k_ring.stages * p->k_ring.stage_bytes);
    holds(p, p->shared[SHARED_RING_V].bytes == n * (uint32_t)p->v_ring.stages * p->v_ring.stage_bytes);
    holds(p, p->shared[SHARED_P].bytes == n * p->p_bytes);
    holds(p, p->shared[SHARED_Q].bytes == n * p->q_bytes);
    holds(p, p->shared[SHARED_NUMBERS].bytes == (p->numbers_exchanged ? n * 4 * NUMBERS_WARP_BYTES : 0));
    holds(p, p->shared[SHARED_BARRIERS_K].bytes == n * (uint32_t)p->k_ring.stages * 16);
    holds(p, p->shared[SHARED_BARRIERS_V].bytes == n * (uint32_t)p->v_ring.stages * 16);
}

static void shared_regions_are_in_order_aligned_and_within_the_targets_limit(void **state)
{
    (void)state;
    for_each_plan(check_regions);
}

/* Alignments that instructions ask for: bulk copies and descriptors 16 bytes, vector accesses 16, mbarriers 8. */
static void check_alignment(const decode_plan *p)
{
    static const uint32_t least[SHARED_REGIONS] = {
        [SHARED_RING_K] = 16,   [SHARED_RING_V] = 16,    [SHARED_P] = 16,         [SHARED_Q] = 16,
        [SHARED_NUMBERS] = 16,  [SHARED_EXCHANGE] = 16,  [SHARED_BARRIERS_K] = 8, [SHARED_BARRIERS_V] = 8,
        [SHARED_SCHEDULE] = 16,
    };
    for (int i = 0; i < SHARED_REGIONS; i++) holds(p, p->shared[i].offset % least[i] == 0);
    holds(p, p->p_bytes % 16 == 0 && p->q_bytes % 16 == 0);
    holds(p, p->shared[SHARED_EXCHANGE].bytes % (uint32_t)(16 * p->consumers) == 0);
    holds(p, p->shared[SHARED_EXCHANGE].bytes % 4 == 0);
}

static void shared_regions_are_aligned_for_what_uses_them(void **state)
{
    (void)state;
    for_each_plan(check_alignment);
}

/* The kernel clears from the beginning of one to the end of the other, 16 bytes at a time. */
static void check_limbs_are_neighbours(const decode_plan *p)
{
    const shared_region *limbs = &p->shared[SHARED_P];
    holds(p, SHARED_Q == SHARED_P + 1);
    holds(p, limbs[1].offset == limbs->offset + limbs->bytes);
    holds(p, (limbs->bytes + limbs[1].bytes) % 16 == 0);
}

static void limbs_of_p_and_q_are_neighbours(void **state)
{
    (void)state;
    for_each_plan(check_limbs_are_neighbours);
}

static void check_small_areas(const decode_plan *p)
{
    const shared_region *k = &p->shared[SHARED_BARRIERS_K], *v = &p->shared[SHARED_BARRIERS_V]; /* made ready as one row */
    holds(p, k->offset + k->bytes == v->offset && k->bytes % 16 == 0 && (k->bytes + v->bytes) / 16 <= (uint32_t)p->threads);
    uint32_t warps = (uint32_t)p->threads / WARP, heads = (uint32_t)p->padded_heads;
    uint32_t exchange = p->shared[SHARED_EXCHANGE].bytes / (uint32_t)p->consumers;
    holds(p, EXCHANGE_QUERY + 16 * heads <= EXCHANGE_MAXIMA);
    holds(p, EXCHANGE_SUMS == EXCHANGE_MAXIMA && 16 * heads <= EXCHANGE_SET);
    holds(p, EXCHANGE_MAXIMA + 2 * EXCHANGE_SET <= EXCHANGE_ITEM && EXCHANGE_ITEM + 20 <= exchange);
    holds(p, SCHEDULE_RECORD * (uint32_t)p->consumers <= SCHEDULE_WARP_SUMS);
    holds(p, SCHEDULE_WARP_SUMS + 4 * warps <= p->shared[SHARED_SCHEDULE].bytes);
}

static void exchange_and_schedule_hold_what_the_kernel_puts_there(void **state)
{
    (void)state;
    for_each_plan(check_small_areas);
}

static void check_rings(const decode_plan *p)
{
    const ring_plan *rings[2] = {&p->k_ring, &p->v_ring};
    holds(p, p->pages_per_block * p->cfg.page_tokens == p->block_tokens);
    holds(p, p->chunks_per_page * CHUNK_TOKENS == p->cfg.page_tokens);
    holds(p, p->block_tokens == 4 * CHUNK_TOKENS); /* a chunk for each warp */
    for (int i = 0; i < 2; i++) {
        const ring_plan *r = rings[i];
        holds(p, r->stages >= 2);
        holds(p, r->page_offset % 16 == 0 && r->page_bytes % 16 == 0 && r->stage_bytes % 16 == 0);
        holds(p, r->stage_bytes == r->page_bytes * (uint32_t)p->pages_per_block);
        holds(p, r->stage_bytes < TRANSACTION_BYTES);
    }
    holds(p, p->k_ring.page_offset == 0 && p->k_ring.page_bytes == p->v_ring.page_offset);
    holds(p, p->v_ring.page_offset + p->v_ring.page_bytes == p->page.bytes);
    holds(p, p->page.k_metadata >= p->v_ring.page_offset); /* the scores read it from the V stage */
}

static void stages_are_whole_pages_in_multiples_of_16_bytes(void **state)
{
    (void)state;
    for_each_plan(check_rings);
}

/* A consumer holds one V stage, and half of the time one K stage and the next V stage: the others are being filled. */
static void check_in_flight(const decode_plan *p)
{
    uint32_t k = (uint32_t)p->k_ring.stages, v = (uint32_t)p->v_ring.stages;
    uint32_t twice = (2 * k - 1) * p->k_ring.stage_bytes + (2 * v - 3) * p->v_ring.stage_bytes;
    holds(p, (uint32_t)p->consumers * twice / 2 >= 48 * 1024);
}

static void enough_bytes_are_in_flight(void **state)
{
    (void)state;
    for_each_plan(check_in_flight);
}

static void a_target_with_too_little_shared_memory_is_refused(void **state)
{
    (void)state;
    int refused = 0;
    for (int i = 0; i < registry_size(); i += 7) {
        config cfg;
        registry_config(i, &cfg);
        for (int bytes = 96 * 1024; bytes <= 224 * 1024; bytes += 32 * 1024) {
            target small = *cfg.target;
            decode_plan plan;
            gen_error err = {""};
            small.shared_bytes = bytes;
            cfg.target = &small;
            if (decode_plan_make(&cfg, &plan, &err)) {
                check_regions(&plan);
                check_in_flight(&plan);
            } else {
                assert_non_null(strstr(err.message, "do not fit into"));
                refused++;
            }
            cfg.target = target_row(0);
        }
    }
    assert_true(refused > 0);
}

/* ---- Registers ----------------------------------------------------------------------------------------------------
 */

/* setmaxnreg takes from and gives to the pool that the block was launched with; asking for more than is in it waits for
 * ever. */
static void check_registers(const decode_plan *p)
{
    const int counts[] = {p->entry_registers, p->producer_registers, p->consumer_registers};
    holds(p, p->threads == (p->consumers + 1) * 128 && p->threads <= BLOCK_THREADS_MAX);
    holds(p, p->consumers <= 3); /* a warp of the producer for each, and one for empty sequences */
    for (int i = 0; i < 3; i++) holds(p, counts[i] % 8 == 0);
    for (int i = 1; i < 3; i++) holds(p, counts[i] >= SETMAXNREG_LEAST && counts[i] <= SETMAXNREG_MOST);
    holds(p, p->entry_registers <= 255);
    holds(p, p->producer_registers <= p->entry_registers && p->consumer_registers >= p->entry_registers);
    holds(p, p->consumers * p->consumer_registers + p->producer_registers <= p->entry_registers * (p->consumers + 1));
    holds(p, p->entry_registers * p->threads <= p->cfg.target->registers);
}

static void registers_of_all_roles_fit_into_what_the_block_was_launched_with(void **state)
{
    (void)state;
    for_each_plan(check_registers);
}

/* ---- Tensor-core operands in shared memory ------------------------------------------------------------------------
 */

static void check_strides(const decode_plan *p)
{
    const uint32_t strides[] = {p->q_sbo, p->q_lbo, p->p_sbo, p->p_lbo};
    for (int i = 0; i < 4; i++) holds(p, strides[i] % 16 == 0 && strides[i] / 16 < DESCRIPTOR_UNITS);
    /* products add offsets to the descriptor: the address field must not carry into the strides */
    uint32_t p_end = p->shared[SHARED_P].offset + p->shared[SHARED_P].bytes,
             q_end = p->shared[SHARED_Q].offset + p->shared[SHARED_Q].bytes;
    holds(p, (RESERVED_SHARED + (p_end > q_end ? p_end : q_end)) / 16 < DESCRIPTOR_UNITS);
}

static void strides_and_addresses_fit_a_matrix_descriptor(void **state)
{
    (void)state;
    for_each_plan(check_strides);
}

/* Products read cores of 8 rows of 16 bytes: columns of the product by bytes of the reduction. */
static void check_products(const decode_plan *p)
{
    holds(p, p->qk_columns % 8 == 0 && p->qk_columns >= 8 && p->qk_columns <= 128);
    holds(p, p->pv_columns % 8 == 0 && p->pv_columns >= 8 && p->pv_columns <= 128);
    holds(p, p->k_steps * 32 == p->cfg.head_dim && p->v_steps * 32 == p->block_tokens);
    holds(p, p->channel_tiles * CHANNEL_TILE == p->cfg.head_dim && p->channel_tiles <= MAX_TILES);
    holds(p, p->accumulators * p->tiles_sharing == 4 && p->accumulators <= MAX_TILES);
    holds(p, p->padded_heads >= p->cfg.heads && p->padded_heads * p->tiles_sharing <= 8 * p->head_blocks);
    holds(p, p->thread_heads <= MAX_THREAD_HEADS && p->thread_heads * 4 >= p->padded_heads * p->tiles_sharing / 2);
    holds(p, p->v.words <= MAX_WORDS);
    holds(p, p->accumulators % p->score_flight == 0);
    holds(p, p->value_tiles > 0 && p->channel_tiles % p->value_tiles == 0);
    holds(p, p->value_early >= 0 && p->value_early <= p->block_tokens / CHUNK_TOKENS);
    /* the last core of the last step lies within the consumer's area */
    uint32_t q_slabs = (uint32_t)p->cfg.head_dim / 16, p_slabs = (uint32_t)p->block_tokens / 16;
    holds(p, (q_slabs - 1) * p->q_lbo + (uint32_t)(p->qk_columns / 8 - 1) * p->q_sbo + (uint32_t)p->q_rows * 16 <=
                 p->q_bytes);
    holds(p, (p_slabs - 1) * p->p_lbo + (uint32_t)(p->pv_columns / 8 - 1) * p->p_sbo + 128 <= p->p_bytes);
    /* 8 rows of 16 bytes each, one after another, touch every bank once wherever they begin */
    holds(p, p->p_sbo >= 128 && p->p_lbo >= p->p_sbo * (uint32_t)(p->pv_columns / 8));
    holds(p, p->q_sbo == (uint32_t)p->q_rows * 16 && p->q_lbo >= p->q_sbo * (uint32_t)(p->qk_columns / 8));
}

static void operands_of_products_lie_within_their_areas(void **state)
{
    (void)state;
    for_each_plan(check_products);
}

/* Byte offset of the first byte of (limb, head) in a 16-channel slab of Q's operand, as stage_query.c stores it. */
static uint32_t q_row(const decode_plan *p, int limb, int head)
{
    uint32_t first = (uint32_t)(p->q_rows - 8) * 16;
    if (p->padded_heads == 1) return (uint32_t)(limb / 2) * p->q_sbo + first + (uint32_t)(limb % 2) * 16;
    return (uint32_t)(head / 8 * p->q_limbs + limb) * p->q_sbo + first + (uint32_t)(head % 8) * 16;
}

/* Column of the first product in which stage_score.c looks for (limb, head) of the tile that takes part as number
 * `share`. */
static int score_column(const decode_plan *p, int share, int limb, int head)
{
    int own = share * (8 / p->tiles_sharing);
    if (p->padded_heads == 1) return limb / 2 * 8 + own + limb % 2;
    return (head / 8 * p->q_limbs + limb) * 8 + own + head % 8;
}

/* Tiles that share an accumulator see the same rows of Q through windows: each in columns of its own, zeros in all the
 * others. */
static void check_windows(const decode_plan *p)
{
    int rows = p->q_rows * p->qk_columns / 8, *owner = malloc((size_t)rows * sizeof *owner);
    assert_non_null(owner);
    for (int i = 0; i < rows; i++) owner[i] = -1;
    for (int limb = 0; limb < p->q_limbs; limb++)
        for (int head = 0; head < p->cfg.heads; head++) {
            uint32_t at = q_row(p, limb, head);
            holds(p, at % 16 == 0 && (int)(at / 16) < rows && owner[at / 16] == -1);
            owner[at / 16] = limb * 16 + head;
        }
    for (int share = 0; share < p->tiles_sharing; share++) {
        int seen = 0, window = p->tiles_sharing == 1 ? 0 : 8 / p->tiles_sharing, start = p->q_rows - 8 - share * window;
        holds(p, start >= 0);
        for (int column = 0; column < p->qk_columns; column++) {
            int who = owner[column / 8 * p->q_rows + start + column % 8];
            if (who < 0) continue;
            holds(p, score_column(p, share, who / 16, who % 16) == column);
            seen++;
        }
        holds(p, seen == p->q_limbs * p->cfg.heads);
    }
    free(owner);
}

static void every_tile_sees_the_limbs_of_q_in_columns_of_its_own(void **state)
{
    (void)state;
    for_each_plan(check_windows);
}

/* ---- Banks of shared memory ----------------------------------------------------------------------------------------
 */

/* How many rounds the accesses of a group of lanes take: the most different words that one bank is asked for. */
static int bank_rounds(const uint32_t *address, int lanes, uint32_t bytes)
{
    uint32_t words[BANKS][4 * WARP];
    int count[BANKS] = {0}, most = 0;
    for (int lane = 0; lane < lanes; lane++)
        for (uint32_t at = address[lane] / 4; at <= (address[lane] + bytes - 1) / 4; at++) {
            int bank = (int)(at % BANKS), k = 0;
            while (k < count[bank] && words[bank][k] != at) k++;
            if (k == count[bank]) words[bank][count[bank]++] = at;
            if (count[bank] > most) most = count[bank];
        }
    return most;
}

/* Address of the first P' byte that a lane of warp 0 stores, as decode_hopper.c sets it up: 16-token slab, head row,
 * token. */
static uint32_t p_store(const decode_plan *p, int lane)
{
    int rr = lane / 4, hq = lane % 4, lanes = 4 / p->tiles_sharing;
    int head = hq % lanes * 2, group = hq / lanes;
    return (uint32_t)(rr / 4) * p->p_lbo + (uint32_t)(head * 16 + rr % 4 * 4 + group * p->accumulators);
}

static void check_p_stores(const decode_plan *p)
{
    uint32_t address[WARP];
    bool taken[2][128] = {{false}}; /* byte of the two slabs' rows; no two lanes write the same one */
    uint32_t bytes = (uint32_t)p->accumulators;
    for (int lane = 0; lane < WARP; lane++) {
        address[lane] = p_store(p, lane);
        for (uint32_t i = 0; i < bytes; i++) {
            uint32_t slab = address[lane] / p->p_lbo, at = address[lane] % p->p_lbo + i;
            holds(p, slab < 2 && at < 128 && !taken[slab][at]);
            taken[slab][at] = true;
        }
    }
    holds(p, bank_rounds(address, WARP, bytes) == 1);
    /* the stores of other rows, heads and limbs lie a common offset further: the same banks, rotated */
    const uint32_t offsets[] = {2 * p->p_lbo, 3 * p->p_sbo, 16, p->p_sbo, 4 * p->p_lbo};
    for (int i = 0; i < 5; i++) holds(p, offsets[i] % 4 == 0);
}

static void stores_of_p_limbs_have_no_bank_conflicts(void **state)
{
    (void)state;
    for_each_plan(check_p_stores);
}

/* A core of 8 rows is read at once. */
static void check_core_reads(const decode_plan *p)
{
    uint32_t address[8];
    for (uint32_t slab = 0; slab < 2; slab++)
        for (int start = 0; start <= p->q_rows - 8; start++) {
            for (uint32_t row = 0; row < 8; row++) address[row] = slab * p->q_lbo + ((uint32_t)start + row) * 16;
            holds(p, bank_rounds(address, 8, 16) == 1);
        }
    for (uint32_t slab = 0; slab < 2; slab++) {
        for (uint32_t row = 0; row < 8; row++) address[row] = slab * p->p_lbo + row * 16;
        holds(p, bank_rounds(address, 8, 16) == 1);
    }
}

static void cores_of_limbs_are_read_without_bank_conflicts(void **state)
{
    (void)state;
    for_each_plan(check_core_reads);
}

/* Limbs of Q are stored once an item, eight bytes a lane and half a warp at a time. Returns the rounds of the worst
 * half warp. */
static int q_store_rounds(const decode_plan *p)
{
    int per_head = p->cfg.head_dim / 8, most = 0;
    for (int first = 0; first < p->cfg.heads * per_head; first += WARP / 2) {
        uint32_t address[WARP / 2];
        int lanes = 0;
        for (int i = first; i < first + WARP / 2 && i < p->cfg.heads * per_head; i++) {
            int head = i / per_head, channel = i % per_head * 8;
            address[lanes++] = (uint32_t)(channel / 16) * p->q_lbo + (uint32_t)(channel % 16) + q_row(p, 0, head);
        }
        int rounds = bank_rounds(address, lanes, 8);
        if (rounds > most) most = rounds;
    }
    return most;
}

static void check_q_stores(const decode_plan *p)
{
    holds(p, q_store_rounds(p) <= 8);
}

static void stores_of_q_limbs_take_at_most_eight_rounds(void **state)
{
    (void)state;
    for_each_plan(check_q_stores);
}

/* ---- Integer ranges. The largest sums of absolute values that any data can give, against 2^31. ----------------------
 */

enum { LIMBS = 3 };

/* Largest |limb| of Q, hi first: q' within 127 * 2^16 and one unit for rounding, bytes of a signed-digit number. */
static int64_t q_limb_bound(int limb)
{
    const int64_t full = (127 << 16) + 1;
    if (limb > 0) return 128;
    int64_t up = (full + 0x8080) >> 16, down = -((-full + 0x8080) >> 16);
    return up > down ? up : down;
}

/* Largest limb of a P' of at most `weight` units, hi first: unsigned bytes. */
static int64_t p_limb_bound(int64_t weight, int limb)
{
    int64_t most = weight >> (8 * (LIMBS - 1 - limb));
    return most < 255 ? most : 255;
}

/* Byte of K's operand of a token tile, all bits set, where it stands. */
static int64_t k_byte(const encoding *codes, int tile)
{
    return (int64_t)(codes->mask & 0xff) << (codes->bits * (tile % codes->fields));
}

/* Byte of V's operand, all bits set: one field where it stands, the lower half's also where a shift of the word has put the upper one. */
static int64_t v_byte(const decode_plan *p, int tile, int h)
{
    const encoding *codes = p->cfg.v.codes;
    return (int64_t)(codes->mask & 0xff) << (codes->bits * (h + 2 * (tile % p->v.tiles)));
}

static void check_sums(const decode_plan *p, const int64_t sum[LIMBS])
{
    for (int limb = 0; limb < LIMBS; limb++) holds(p, sum[limb] < INT64_C(1) << 31);
    holds(p, sum[0] * 256 + sum[1] < INT64_C(1) << 31);
    holds(p, sum[2] < INT64_C(1) << 24); /* converted to float32 without rounding */
}

static void check_score_range(const decode_plan *p)
{
    holds(p, p->q_limbs == LIMBS);
    for (int tile = 0; tile < 4; tile++) {
        int64_t sum[LIMBS] = {0};
        for (int channel = 0; channel < p->cfg.head_dim; channel++)
            for (int limb = 0; limb < LIMBS; limb++) sum[limb] += k_byte(p->cfg.k.codes, tile) * q_limb_bound(limb);
        check_sums(p, sum);
    }
}

static void sums_of_the_first_product_stay_below_2_to_the_31(void **state)
{
    (void)state;
    for_each_plan(check_score_range);
}

static void check_value_range(const decode_plan *p)
{
    holds(p, p->p_limbs == LIMBS);
    for (int tile = 0; tile < p->channel_tiles; tile++) {
        int64_t sum[LIMBS] = {0};
        /* P' is an integer in the mantissa of 2^23 + P' */
        for (int limb = 0; limb < LIMBS; limb++) sum[limb] = p->block_tokens * v_byte(p, tile, 1) * p_limb_bound((1 << 23) - 1, limb);
        check_sums(p, sum);
    }
}

static void sums_of_the_second_product_stay_below_2_to_the_31(void **state)
{
    (void)state;
    for_each_plan(check_value_range);
}

/* ---- The rest ------------------------------------------------------------------------------------------------------
 */

static void check_workspace(const decode_plan *p)
{
    uint64_t partial = decode_partial_bytes(&p->cfg), slots = 2 * 132 * (uint64_t)p->consumers;
    holds(p, partial % 16 == 0 && partial >= (uint64_t)p->cfg.heads * (uint64_t)(p->cfg.head_dim + 1) * 4);
    holds(p, decode_workspace_bytes(p, 132) == slots * (SEGMENT_RECORD_BYTES + partial));
}

static void the_workspace_holds_two_partial_results_a_worker(void **state)
{
    (void)state;
    for_each_plan(check_workspace);
}

static void equal_configurations_have_equal_plans(void **state)
{
    (void)state;
    for (int i = 0; i < registry_size(); i++) {
        config cfg;
        decode_plan first, second;
        registry_config(i, &cfg);
        memset(&first, 0xa5, sizeof first);
        memset(&second, 0x5a, sizeof second);
        assert_true(decode_plan_make(&cfg, &first, NULL));
        assert_true(decode_plan_make(&cfg, &second, NULL));
        assert_int_equal(first.shared_bytes, second.shared_bytes);
        assert_memory_equal(first.shared, second.shared, sizeof first.shared);
        assert_int_equal(first.k_ring.stages, second.k_ring.stages);
        assert_int_equal(first.v_ring.stages, second.v_ring.stages);
        assert_int_equal(first.consumers, second.consumers);
    }
}

static void a_printed_plan_names_its_spec_and_every_shared_region(void **state)
{
    (void)state;
    config cfg;
    decode_plan plan;
    assert_true(config_parse("sm_90a-k2t128-v4t128-d128-h5-p64", &cfg, NULL));
    assert_true(decode_plan_make(&cfg, &plan, NULL));
    char *text = NULL, line[96];
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    assert_non_null(out);
    decode_plan_print(&plan, out);
    assert_int_equal(fclose(out), 0);
    assert_non_null(strstr(text, "sm_90a-k2t128-v4t128-d128-h5-p64\n"));
    for (int i = 0; i < SHARED_REGIONS; i++) {
        snprintf(line, sizeof line, "  %-10s        at %6u, %6u bytes\n", plan.shared[i].name, plan.shared[i].offset,
                 plan.shared[i].bytes);
        assert_non_null(strstr(text, line));
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_regions_are_in_order_aligned_and_within_the_targets_limit),
        cmocka_unit_test(shared_regions_are_aligned_for_what_uses_them),
        cmocka_unit_test(limbs_of_p_and_q_are_neighbours),
        cmocka_unit_test(exchange_and_schedule_hold_what_the_kernel_puts_there),
        cmocka_unit_test(stages_are_whole_pages_in_multiples_of_16_bytes),
        cmocka_unit_test(enough_bytes_are_in_flight),
        cmocka_unit_test(a_target_with_too_little_shared_memory_is_refused),
        cmocka_unit_test(registers_of_all_roles_fit_into_what_the_block_was_launched_with),
        cmocka_unit_test(strides_and_addresses_fit_a_matrix_descriptor),
        cmocka_unit_test(operands_of_products_lie_within_their_areas),
        cmocka_unit_test(every_tile_sees_the_limbs_of_q_in_columns_of_its_own),
        cmocka_unit_test(stores_of_p_limbs_have_no_bank_conflicts),
        cmocka_unit_test(cores_of_limbs_are_read_without_bank_conflicts),
        cmocka_unit_test(stores_of_q_limbs_take_at_most_eight_rounds),
        cmocka_unit_test(sums_of_the_first_product_stay_below_2_to_the_31),
        cmocka_unit_test(sums_of_the_second_product_stay_below_2_to_the_31),
        cmocka_unit_test(the_workspace_holds_two_partial_results_a_worker),
        cmocka_unit_test(equal_configurations_have_equal_plans),
        cmocka_unit_test(a_printed_plan_names_its_spec_and_every_shared_region),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
