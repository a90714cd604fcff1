/* tcgen05.mma, .cp and .commit: what runs in the pipe of the warp that issues it, in order, and touches tensor memory.
 */
#include "matrix_descriptor.h"
#include "tcgen05_descriptor.h"
#include "tensor_memory.h"

#include <string.h>

enum { ROW_BYTES = 32 /* of k, of one product */, M_MAX = 128, CHUNK = 16, ALL_GRANULES = (1 << TMEM_GRANULES) - 1 };

/* What waits in the pipe. */
typedef struct pipe_op {
    uint32_t number; /* among the warp's products and copies */
    uint32_t d, a_tmem, a_scale, b_scale, instruction_descriptor;
    uint64_t a, b; /* matrix descriptors */
    bool a_in_tmem, accumulates;
    int d_shift; /* scale-input-d */
} pipe_op;

static uint32_t tmem_address(warp *w, const instruction *i, const operand *o)
{
    uint64_t of_lane[LANES];
    warp_addresses(w, o, of_lane);
    int first = __builtin_ctz(w->active);
    for (int t = first; t < LANES; t++)
        if (w->active >> t & 1 && of_lane[t] != of_lane[first])
            machine_fault(w->m, w, i, EMULATOR_DIVERGENCE, "addresses of tensor memory differ between lanes");
    return (uint32_t)of_lane[first];
}

static void check_single(warp *w, const instruction *i)
{
    if (i->mods.k == 2)
        machine_fault(w->m, w, i, EMULATOR_UNKNOWN_FORM, ".cta_group::2: pairs of blocks are not executed");
    if (__builtin_popcount(w->active) != 1)
        machine_fault(w->m, w, i, EMULATOR_DIVERGENCE, "issued by %d threads at once, each of which does it",
                      __builtin_popcount(w->active));
}

static void issue(warp *w, const pipe_op *p, void (*run)(machine *m, async_op *op))
{
    tcgen05_state *s = tcgen05_state_of(w);
    async_op *op = async_issue(w, ASYNC_TCGEN05 + w->index, run, sizeof *p);
    pipe_op *to = op->payload;
    *to = *p;
    int lane = __builtin_ctz(w->active);
    to->number = s->last_piped[lane] = ++s->piped;
    s->last_piped_at[lane] = w->at;
    s->uncommitted[lane]++;
}

static accessor shared_accessor_of_op(machine *m, const async_op *op)
{
    const pipe_op *p = op->payload;
    return (accessor){.component = clock_of_pipe(op->warp),
                      .time = p->number,
                      .proxy = PROXY_ASYNC,
                      .lane = -1,
                      .clock = &op->clock,
                      .w = &m->warp[op->warp],
                      .at = op->at};
}

/* ---- Operands of products ---- */

typedef struct matrix {
    uint32_t code[MMA_N_MAX * MMA_K_MAX]; /* [rows][k] */
    uint64_t unknown[MMA_N_MAX],
        counts[MMA_N_MAX];        /* elements of a row that are undefined; that an undefined partner matters to */
    uint8_t scale[MMA_N_MAX * 4]; /* [rows][scales] */
    bool known;
} matrix;

typedef struct product_room {
    matrix a, b;
    uint8_t bytes[MMA_N_MAX * ROW_BYTES], undefined[MMA_N_MAX * ROW_BYTES];
    union {
        int32_t s32[M_MAX * MMA_N_MAX];
        float f32[M_MAX * MMA_N_MAX];
    } d;
} product_room;

/* From rows of 32 bytes to codes, each by itself. */
static void split_elements(const product_room *room, bool known, int rows, int k, element_layout e, uint16_t flip,
                           bool integer, matrix *to)
{
    uint32_t mask = e.bits == 8 && e.shift ? 0xf : (1u << e.bits) - 1;
    to->known = known;
    for (int r = 0; r < rows; r++) {
        to->unknown[r] = to->counts[r] = 0;
        for (int x = 0; x < k; x++) {
            int bit = x % e.per_chunk * e.bits, byte = r * ROW_BYTES + x / e.per_chunk * CHUNK + bit / 8;
            bool two = bit % 8 + e.bits > 8; /* never past the chunk: elements end inside it */
            uint32_t bits = room->bytes[byte] | (two ? (uint32_t)room->bytes[byte + 1] << 8 : 0);
            uint16_t code = (uint16_t)((bits >> (bit % 8 + e.shift) & mask) ^ flip);
            to->code[r * k + x] = code;
            if (!known && (room->undefined[byte] || (two && room->undefined[byte + 1]))) {
                to->unknown[r] |= 1ull << x;
                to->counts[r] |= 1ull << x;
            }
            if (!integer || code) to->counts[r] |= 1ull << x;
        }
    }
}

static uint16_t sign_of(mma_type type)
{
    switch (type) {
    case MMA_F16:
    case MMA_BF16:
        return 0x8000;
    case MMA_E4M3:
    case MMA_E5M2:
        return 0x80;
    case MMA_E2M3:
    case MMA_E3M2:
        return 0x20;
    default:
        return 0x8;
    }
}

static void read_shared(machine *m, const async_op *op, const product_shape *p, bool is_a, product_room *room)
{
    const pipe_op *o = op->payload;
    accessor acc = shared_accessor_of_op(m, op);
    bool mn_major = is_a ? p->a_mn_major : p->b_mn_major, negated = is_a ? p->negate_a : p->negate_b;
    int rows = is_a ? p->m : p->n, judged = m->config->judge;
    mma_type type = is_a ? p->a : p->b;
    shared_matrix s = matrix_descriptor_decode(m, acc.w, op->at, DESCRIPTOR_BLACKWELL, is_a ? o->a : o->b, mn_major,
                                               is_a ? "A" : "B");
    element_layout e = product_element_layout(p, type, false);
    bool known;
    if (!mn_major) {
        known = matrix_read(m, &acc, judged, &s, rows, ROW_BYTES / CHUNK, room->bytes, room->undefined);
    } else {
        int size = e.bits / 8, row_of_k = rows * size;
        uint8_t bytes[MMA_N_MAX * ROW_BYTES], unknown[MMA_N_MAX * ROW_BYTES];
        known = matrix_read(m, &acc, judged, &s, p->k, row_of_k / CHUNK, bytes, unknown);
        for (int x = 0; x < p->k; x++) {
            for (int r = 0; r < rows; r++) {
                memcpy(room->bytes + r * ROW_BYTES + x * size, bytes + x * row_of_k + r * size, (size_t)size);
                if (!known)
                    memcpy(room->undefined + r * ROW_BYTES + x * size, unknown + x * row_of_k + r * size, (size_t)size);
            }
        }
    }
    split_elements(room, known, rows, p->k, e, negated ? sign_of(type) : 0, p->integer, is_a ? &room->a : &room->b);
}

/* Row r of D, and of A in tensor memory: M = 64 uses 16 lanes of each quarter. */
static uint32_t lane_of_row(int m, uint32_t lane, int r)
{
    return m == 128 ? (uint32_t)r : lane + (uint32_t)(r / 16 * 32 + r % 16);
}

static uint32_t granules_of(int m, uint32_t lane)
{
    return m == 128 ? ALL_GRANULES : lane ? 0xaa : 0x55;
}

static void read_a_of_tmem(machine *m, const pipe_op *o, const product_shape *p, product_room *room)
{
    uint32_t column = o->a_tmem & 0xffff, lane = o->a_tmem >> 16, columns = ROW_BYTES / 4;
    bool known = true;
    for (uint32_t c = 0; c < columns; c++) {
        for (int r = 0; r < p->m; r++) {
            uint32_t from = lane_of_row(p->m, lane, r);
            memcpy(room->bytes + r * ROW_BYTES + 4 * c, &m->tmem->word[column + c][from], 4);
            bool defined = tmem_defined(m->tmem, column + c, from);
            memset(room->undefined + r * ROW_BYTES + 4 * c, !defined, 4);
            known = known && defined;
        }
    }
    split_elements(room, known, p->m, p->k, product_element_layout(p, p->a, true), p->negate_a ? sign_of(p->a) : 0,
                   p->integer, &room->a);
}

/* Four factors of a row in a word, at lane row % 32 of all four quarters and column row / 32; `id` is the first that is
 * meant. */
static void read_scales(machine *m, const async_op *op, const product_shape *p, uint32_t column, int rows, uint32_t id,
                        matrix *x)
{
    for (int r = 0; r < rows; r++) {
        uint32_t c = column + (uint32_t)r / 32, lane = (uint32_t)r % 32, word = m->tmem->word[c][lane];
        for (uint32_t q = 0; q < 4; q++) {
            if (!tmem_defined(m->tmem, c, lane + 32 * q)) {
                x->unknown[r] = x->counts[r] = ~0ull;
                x->known = false;
            } else if (m->tmem->word[c][lane + 32 * q] != word) {
                machine_fault(m, &m->warp[op->warp], op->at, EMULATOR_TMEM,
                              "scales of row %d, column %u: lanes %u and %u must have the same", r, c, lane,
                              lane + 32 * q);
            }
        }
        for (int s = 0; s < p->scales; s++) x->scale[r * p->scales + s] = (uint8_t)(word >> 8 * (id + (uint32_t)s));
    }
}

/* ---- Products ---- */

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void load_d(const tensor_memory *t, const pipe_op *o, const product_shape *p, product_room *room)
{
    for (int n = 0; n < p->n; n++) {
        const uint32_t *column = t->word[(o->d & 0xffff) + (uint32_t)n];
        for (int r = 0; r < p->m; r++) {
            uint32_t word = o->accumulates ? column[lane_of_row(p->m, o->d >> 16, r)] : 0;
            if (p->integer)
                room->d.s32[r * p->n + n] = (int32_t)word;
            else
                room->d.f32[r * p->n + n] =
                    (p->half ? mma_widen(MMA_F16, (uint16_t)word) : float_of(word)) / (float)(1 << o->d_shift);
        }
    }
}

static void store_d(tensor_memory *t, const pipe_op *o, const product_shape *p, const product_room *room)
{
    bool known = room->a.known && room->b.known;
    for (int n = 0; n < p->n; n++) {
        uint32_t c = (o->d & 0xffff) + (uint32_t)n;
        for (int r = 0; r < p->m; r++) {
            uint32_t lane = lane_of_row(p->m, o->d >> 16, r), bit = 1u << lane % LANES,
                     *defined = &t->defined[c][lane / LANES];
            if (p->integer)
                t->word[c][lane] = (uint32_t)room->d.s32[r * p->n + n];
            else
                t->word[c][lane] =
                    p->half ? mma_half_bits(room->d.f32[r * p->n + n]) : bits_of(room->d.f32[r * p->n + n]);
            if (!o->accumulates) *defined |= bit;
            if (!known && ((room->a.unknown[r] & room->b.counts[n]) | (room->b.unknown[n] & room->a.counts[r])))
                *defined &= ~bit;
        }
    }
}

static void multiply(machine *m, const product_shape *p, product_room *room)
{
    if (p->integer) {
        uint8_t a[M_MAX * ROW_BYTES], b[MMA_N_MAX * ROW_BYTES];
        for (int x = 0; x < p->m * p->k; x++) a[x] = (uint8_t)room->a.code[x];
        for (int x = 0; x < p->n * p->k; x++) b[x] = (uint8_t)room->b.code[x];
        mma_integer(p->m, p->n, p->k, p->a, a, p->b, b, room->d.s32, p->saturate);
        return;
    }
    mma_float_form how = {
        m->config->fast ? MMA_FAST : MMA_BLACKWELL, p->a, p->b, p->half, p->scale, p->scales ? p->k / p->scales : 0};
    mma_float(&how, p->m, p->n, p->k, room->a.code, room->b.code, room->a.scale, room->b.scale, room->d.f32);
}

static void run_mma(machine *m, async_op *op)
{
    const pipe_op *o = op->payload;
    product_shape p = product_shape_decode(m, &m->warp[op->warp], op->at, o->instruction_descriptor, o->a_in_tmem);
    if (!m->tmem->room) m->tmem->room = machine_allocate(m, sizeof *m->tmem->room);
    product_room *room = m->tmem->room;
    if (o->a_in_tmem)
        read_a_of_tmem(m, o, &p, room);
    else
        read_shared(m, op, &p, true, room);
    read_shared(m, op, &p, false, room);
    if (p.scales) {
        read_scales(m, op, &p, o->a_scale, p.m, p.a_scale_id, &room->a);
        read_scales(m, op, &p, o->b_scale, p.n, p.b_scale_id, &room->b);
    }
    load_d(m->tmem, o, &p, room);
    multiply(m, &p, room);
    store_d(m->tmem, o, &p, room);
}

/* What must be the same for two products to run in order: accumulators, shape and kind. */
static uint32_t accumulator_of(const instruction *i, const pipe_op *o, const product_shape *p)
{
    return 1u << 31 | (uint32_t)i->mods.mode << 24 | (o->d >> 16 ? 1u : 0u) << 23 | (uint32_t)p->half << 22 |
           (p->m == 128 ? 1u : 0u) << 21 | (uint32_t)p->n << 9 | (o->d & 0x1ff);
}

/* D, A and scales in tensor memory: allocated, in lanes that fit, and ordered. */
static void judge_mma(warp *w, const instruction *i, const pipe_op *o, const product_shape *p)
{
    machine *m = w->m;
    tmem_accessor acc = tmem_accessor_now(w, i, TMEM_PIPE, tcgen05_state_of(w)->piped + 1), sums = acc;
    sums.access.accumulator = accumulator_of(i, o, p);
    uint32_t lane = o->d >> 16, column = o->d & 0xffff, granules = granules_of(p->m, lane);
    if (lane && (p->m == 128 || lane != 16))
        machine_fault(m, w, i, EMULATOR_TMEM, "D of a product with M = %d at lane %u of tensor memory", p->m, lane);
    tmem_check(m, w, i, column, (uint32_t)p->n, "D");
    if (o->a_in_tmem) {
        if (o->a_tmem >> 16 != lane)
            machine_fault(m, w, i, EMULATOR_TMEM, "A and D of a product lie in different lanes of tensor memory");
        tmem_check(m, w, i, o->a_tmem & 0xffff, ROW_BYTES / 4, "A");
        tmem_read(m, &acc, o->a_tmem & 0xffff, ROW_BYTES / 4, granules);
    }
    for (int x = 0; x < 2 && p->scales; x++) {
        uint32_t address = x ? o->b_scale : o->a_scale, columns = (uint32_t)((x ? p->n : p->m) + 31) / 32;
        if (address >> 16) machine_fault(m, w, i, EMULATOR_TMEM, "scales at lane %u of tensor memory", address >> 16);
        tmem_check(m, w, i, address, columns, "scales");
        tmem_read(m, &acc, address, columns, ALL_GRANULES);
    }
    if (o->accumulates) tmem_read(m, &sums, column, (uint32_t)p->n, granules);
    tmem_write(m, &sums, column, (uint32_t)p->n, granules);
}

void exec_tcgen05_mma(warp *w, const instruction *i)
{
    check_single(w, i);
    w->issues_products = true;
    pipe_op p = {.d = tmem_address(w, i, &i->operand[0])};
    p.a_in_tmem = i->operand[1].kind == OPERAND_ADDRESS;
    if (p.a_in_tmem)
        p.a_tmem = tmem_address(w, i, &i->operand[1]);
    else
        p.a = warp_uniform(w, &i->operand[1], "descriptor of A");
    p.b = warp_uniform(w, &i->operand[2], "descriptor of B");
    p.instruction_descriptor = (uint32_t)warp_uniform(w, &i->operand[3], "instruction descriptor");
    if (i->operand[4].kind == OPERAND_ADDRESS) {
        p.a_scale = tmem_address(w, i, &i->operand[4]);
        p.b_scale = tmem_address(w, i, &i->operand[5]);
    }
    uint32_t defined, enable = warp_read_predicate(w, &i->operand[6], &defined);
    if (w->active & ~defined) machine_fault(w->m, w, i, EMULATOR_UNDEFINED, "enable-input-d is undefined");
    p.accumulates = enable & w->active;
    if (i->operands > 7 && i->operand[7].kind == OPERAND_IMMEDIATE) p.d_shift = (int)(i->operand[7].bits & 15);
    product_shape shape = product_shape_decode(w->m, w, i, p.instruction_descriptor, p.a_in_tmem);
    judge_mma(w, i, &p, &shape);
    issue(w, &p, run_mma);
}

/* ---- Commits ---- */

static void run_commit(machine *m, async_op *op)
{
    const pipe_op *o = op->payload;
    const warp *w = &m->warp[op->warp];
    vector_clock clock = op->clock;
    uint32_t *over = &clock.time[clock_of_pipe(op->warp)];
    if (*over < o->number) *over = o->number;
    mbarrier_arrive(m, w, op->at, mbarrier_at(m, w, op->at, o->d), 1, &clock);
}

void exec_tcgen05_commit(warp *w, const instruction *i)
{
    if (i->mods.k == 2)
        machine_fault(w->m, w, i, EMULATOR_UNKNOWN_FORM, ".cta_group::2: pairs of blocks are not executed");
    if (i->mods.extra & EXTRA_MULTICAST)
        machine_fault(w->m, w, i, EMULATOR_UNKNOWN_FORM, ".multicast::cluster: clusters are not executed");
    tcgen05_state *s = tcgen05_state_of(w);
    uint64_t address[LANES];
    warp_addresses(w, &i->operand[0], address);
    tcgen05_before_thread_sync(w);
    for (int t = 0; t < LANES; t++) {
        if (!(w->active >> t & 1)) continue;
        if (address[t] >= GENERIC_SHARED_WINDOW) address[t] -= GENERIC_SHARED_WINDOW;
        mbarrier_at(w->m, w, i, address[t]);
        pipe_op p = {.number = s->last_piped[t], .d = (uint32_t)address[t]}; /* its own products, no other thread's */
        async_op *op = async_issue(w, ASYNC_TCGEN05 + w->index, run_commit, sizeof p);
        memcpy(op->payload, &p, sizeof p);
        s->uncommitted[t] = 0;
    }
}

/* ---- Copies ---- */

/* 16 elements of 4 or 6 bits, low first, to the middle of 16 bytes. */
static void expand(uint32_t format, const uint8_t *from, const uint8_t *unknown, uint8_t *to, uint8_t *to_unknown)
{
    int bits = format & EXTRA_B4X16_P64 ? 4 : 6, shift = bits == 4 ? 2 : 1;
    for (int x = 0; x < CHUNK; x++) {
        int bit = x * bits;
        uint32_t pair = from[bit / 8] | (uint32_t)from[bit / 8 + 1] << 8;
        to[x] = (uint8_t)((pair >> bit % 8 & ((1u << bits) - 1)) << shift);
        to_unknown[x] = unknown[bit / 8] | (bit % 8 + bits > 8 ? unknown[bit / 8 + 1] : 0);
    }
}

/* Lanes that row r is written to: the first, and how far apart how many. */
static void copy_lanes(const modifiers *mods, int r, uint32_t *first, uint32_t *step, int *count)
{
    *first = (uint32_t)r;
    *step = 32;
    *count = 1;
    if (mods->mode == MODE_CP_WARPX4) {
        *count = 4;
    } else if (mods->mode == MODE_CP_WARPX2_02_13) {
        *count = 2;
        *step = 64;
    } else if (mods->mode == MODE_CP_WARPX2_01_23) {
        *count = 2;
        *first = (uint32_t)(r % 32 + r / 32 * 64);
    }
}

static void run_cp(machine *m, async_op *op)
{
    const pipe_op *o = op->payload;
    const modifiers *mods = &op->at->mods;
    accessor from = shared_accessor_of_op(m, op);
    int rows = mods->m, chunks = mods->n / 128;
    uint32_t column = o->d, format = mods->extra & (EXTRA_B4X16_P64 | EXTRA_B6X16_P32);
    uint8_t bytes[M_MAX * ROW_BYTES], unknown[M_MAX * ROW_BYTES];
    shared_matrix s = matrix_descriptor_decode(m, from.w, op->at, DESCRIPTOR_BLACKWELL, o->b, false, "the source");
    if (matrix_read(m, &from, m->config->judge, &s, rows, chunks, bytes, unknown)) memset(unknown, 0, sizeof unknown);
    for (int r = 0; r < rows; r++) {
        uint32_t first, step;
        int count;
        copy_lanes(mods, r, &first, &step, &count);
        for (int c = 0; c < chunks; c++) {
            uint8_t word[CHUNK], word_unknown[CHUNK];
            const uint8_t *chunk = bytes + (r * chunks + c) * CHUNK,
                          *chunk_unknown = unknown + (r * chunks + c) * CHUNK;
            if (format) {
                expand(format, chunk, chunk_unknown, word, word_unknown);
            } else {
                memcpy(word, chunk, CHUNK);
                memcpy(word_unknown, chunk_unknown, CHUNK);
            }
            for (int x = 0; x < 4 * count; x++) {
                uint32_t to = column + (uint32_t)(4 * c + x % 4), lane = first + (uint32_t)(x / 4) * step,
                         bit = 1u << lane % LANES;
                memcpy(&m->tmem->word[to][lane], word + x % 4 * 4, 4);
                bool defined = !memchr(word_unknown + x % 4 * 4, 1, 4);
                uint32_t *mask = &m->tmem->defined[to][lane / LANES];
                *mask = defined ? *mask | bit : *mask & ~bit;
            }
        }
    }
}

void exec_tcgen05_cp(warp *w, const instruction *i)
{
    check_single(w, i);
    if (i->mods.m == 4)
        machine_fault(w->m, w, i, EMULATOR_UNKNOWN_FORM,
                      "tcgen05.cp.4x256b is not executed: which lanes it writes is not settled");
    pipe_op p = {.d = tmem_address(w, i, &i->operand[0]),
                 .b = warp_uniform(w, &i->operand[1], "descriptor of the source")};
    uint32_t columns = i->mods.n / 32u;
    if (p.d >> 16) machine_fault(w->m, w, i, EMULATOR_TMEM, "tcgen05.cp to lane %u of tensor memory", p.d >> 16);
    tmem_check(w->m, w, i, p.d, columns, "tcgen05.cp");
    tmem_accessor acc = tmem_accessor_now(w, i, TMEM_PIPE, tcgen05_state_of(w)->piped + 1);
    tmem_write(w->m, &acc, p.d, columns, ALL_GRANULES);
    issue(w, &p, run_cp);
}
