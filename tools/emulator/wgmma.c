/* wgmma: products of a warpgroup, in flight from issue until wait_group; who may touch which register meanwhile.
 *
 * Each of the four warps issues; the product is put in flight when the fourth has, and runs when the scheduler picks
 * it. It reads shared memory once for each warp, with what that warp had seen when it issued. Registers are read and
 * written when it runs. */
#include "matrix_descriptor.h"
#include "tensor_state.h"

#include <stdlib.h>
#include <string.h>

enum { WARPS = 4, ROWS = 64, ROW_BYTES = 32 /* of k */, ROWS_OF_WARP = 16, A_REGISTERS = 4 };

typedef struct wgmma_product {
    struct wgmma_product *next;
    const instruction *at;
    uint64_t sequence; /* number among the warpgroup's products */
    uint32_t group;    /* the commit group it belongs to, from 1 */
    uint32_t joined;   /* warps of the warpgroup that have issued it */
    uint64_t a, b;     /* descriptors */
    bool accumulates;
    vector_clock clock[WARPS];
} wgmma_product;

typedef struct wgmma_state {
    bool fenced;
    uint64_t fenced_at;          /* warp.executed at the last wgmma.fence */
    uint64_t issued;             /* products */
    uint32_t open, committed;    /* products of no group yet; groups */
    uint32_t waited, target;     /* groups known to be done; of the wait that blocks */
    uint32_t *use;               /* [slots] of a pending register: USE_A, or which accumulator of which shape */
    int *pending, pending_count; /* slots whose warp.pending is set */
    /* Of the warpgroup, kept by its first warp: issued by some warp and not run, in order; and structs to use again. */
    wgmma_product *first, *last, *spare;
} wgmma_state;

enum { USE_A = 1, USE_ACCUMULATOR = 2 };

static wgmma_state *state_of(warp *w)
{
    tensor_state *t = w->tensor;
    if (!t->wgmma) {
        t->wgmma = machine_allocate(w->m, sizeof *t->wgmma);
        size_t slots = (size_t)w->m->entry->slots + 1;
        t->wgmma->use = machine_allocate(w->m, slots * sizeof *t->wgmma->use);
        t->wgmma->pending = machine_allocate(w->m, slots * sizeof *t->wgmma->pending);
    }
    return t->wgmma;
}

static warp *first_warp(warp *w)
{
    return w - w->index % WARPS;
}

/* ---- Issue ---- */

static void claim(warp *w, const instruction *i, const operand *o, uint32_t use)
{
    wgmma_state *s = state_of(w);
    int slot = o->reg.slot;
    if (w->pending[slot]) {
        if (s->use[slot] != use) {
            machine_fault(w->m, w, i, EMULATOR_WGMMA_REGISTERS,
                          "a register of wgmma group %u in flight is used as %s of another shape or place",
                          w->pending[slot], use == USE_A ? "a fragment of A" : "an accumulator");
        }
    } else {
        if (w->written[slot] > s->fenced_at) {
            machine_fault(w->m, w, i, EMULATOR_WGMMA_ORDER, "%s was written after the last wgmma.fence",
                          use == USE_A ? "a fragment of A" : "an accumulator");
        }
        s->pending[s->pending_count++] = slot;
    }
    s->use[slot] = use;
    w->pending[slot] = s->committed + 1;
}

static bool read_accumulates(warp *w, const instruction *i)
{
    const operand *o = &i->operand[3];
    if (o->kind == OPERAND_IMMEDIATE) return o->bits != 0;
    uint32_t defined, lanes = warp_read_predicate(w, o, &defined) & w->active;
    if ((defined & w->active) != w->active) machine_fault(w->m, w, i, EMULATOR_UNDEFINED, "scale-d is undefined");
    if (lanes && lanes != w->active) machine_fault(w->m, w, i, EMULATOR_DIVERGENCE, "scale-d differs between lanes");
    return lanes != 0;
}

/* The warpgroup's product that this warp issues next: made by the first of its warps to come. */
static wgmma_product *next_product(warp *w)
{
    wgmma_state *s = state_of(w), *group = state_of(first_warp(w));
    for (wgmma_product *p = group->first; p; p = p->next)
        if (p->sequence == s->issued) return p;
    wgmma_product *p = group->spare;
    if (p)
        group->spare = p->next;
    else
        p = machine_allocate(w->m, sizeof *p);
    p->next = NULL;
    p->joined = 0;
    p->sequence = s->issued;
    if (group->first)
        group->last->next = p;
    else
        group->first = p;
    group->last = p;
    return p;
}

static void run_product(machine *m, async_op *op);

void exec_wgmma_mma_async(warp *w, const instruction *i)
{
    wgmma_state *s = state_of(w);
    w->issues_products = true;
    if (!s->fenced) machine_fault(w->m, w, i, EMULATOR_WGMMA_ORDER, "the first wgmma without a wgmma.fence before it");
    const operand *d = &i->operand[0], *a = &i->operand[1];
    uint32_t shape = (uint32_t)i->mods.type[0] << 20 | (uint32_t)i->mods.n << 10;
    for (int r = 0; r < d->count; r++)
        claim(w, i, operand_element(w, d, r), USE_ACCUMULATOR | shape | (uint32_t)r << 2);
    bool a_in_registers = a->kind == OPERAND_VECTOR;
    for (int r = 0; a_in_registers && r < A_REGISTERS; r++) claim(w, i, operand_element(w, a, r), USE_A);

    uint64_t a_bits = a_in_registers ? 0 : warp_uniform(w, a, "descriptor of A");
    uint64_t b_bits = warp_uniform(w, &i->operand[2], "descriptor of B");
    bool accumulates = read_accumulates(w, i);
    wgmma_product *p = next_product(w);
    if (!p->joined) {
        p->at = i;
        p->group = s->committed + 1;
        p->a = a_bits;
        p->b = b_bits;
        p->accumulates = accumulates;
    } else if (p->at != i || p->group != s->committed + 1) {
        machine_fault(w->m, w, i, EMULATOR_DIVERGENCE,
                      "warps of a warpgroup issue different wgmmas: this one and that of line %d", p->at->line);
    } else if (p->a != a_bits || p->b != b_bits || p->accumulates != accumulates) {
        machine_fault(w->m, w, i, EMULATOR_DIVERGENCE, "warps of a warpgroup issue a wgmma with different %s",
                      p->accumulates != accumulates ? "scale-d" : "descriptors");
    }
    p->joined |= 1u << w->index % WARPS;
    vector_clock *seen = &p->clock[w->index % WARPS];
    memset(seen, 0, sizeof *seen);
    warp_release(w, seen); /* what the warp does from here on is not before the product */
    s->issued++;
    s->open++;
    if (p->joined == (1u << WARPS) - 1) {
        async_op *op = async_issue(w, w->index / WARPS, run_product, sizeof(wgmma_product *));
        memcpy(op->payload, &p, sizeof(wgmma_product *));
        for (int k = 0; k < WARPS; k++) clock_join(&op->clock, &p->clock[k]);
    }
}

void exec_wgmma_fence(warp *w, const instruction *i)
{
    (void)i;
    wgmma_state *s = state_of(w);
    s->fenced = true;
    s->fenced_at = w->executed;
}

void exec_wgmma_commit_group(warp *w, const instruction *i)
{
    (void)i;
    wgmma_state *s = state_of(w);
    s->committed++;
    s->open = 0;
}

/* ---- Waiting ---- */

static bool groups_done(warp *w)
{
    uint32_t me = 1u << w->index % WARPS;
    for (const wgmma_product *p = state_of(first_warp(w))->first; p; p = p->next)
        if (p->joined & me) return p->group > state_of(w)->target;
    return true;
}

void exec_wgmma_wait_group(warp *w, const instruction *i)
{
    wgmma_state *s = state_of(w);
    if (s->open) {
        machine_fault(w->m, w, i, EMULATOR_WGMMA_ORDER,
                      "%u wgmma%s before this wait %s in no group: no wgmma.commit_group", s->open,
                      s->open == 1 ? "" : "s", s->open == 1 ? "is" : "are");
    }
    uint64_t outstanding = i->operand[0].bits;
    s->target = s->committed > outstanding ? s->committed - (uint32_t)outstanding : 0;
    if (!groups_done(w)) {
        warp_block(w, groups_done, "wgmma group %u (%u committed)", s->target, s->committed);
        return;
    }
    if (s->target > s->waited) s->waited = s->target;
    uint32_t *time = &w->clock.time[clock_of_pipe(w->index)];
    if (*time < s->waited) *time = s->waited;
    int kept = 0;
    for (int k = 0; k < s->pending_count; k++) {
        int slot = s->pending[k];
        if (w->pending[slot] > s->waited)
            s->pending[kept++] = slot;
        else
            w->pending[slot] = 0;
    }
    s->pending_count = kept;
}

/* ---- Running ---- */

/* Bytes of A [64][32] and B [n][32] along k, and which of them count: a product is undefined where an undefined byte of
 * one side meets one that counts of the other. Zeros of integers do not count. */
typedef struct fragments {
    uint8_t a[ROWS * ROW_BYTES], b[MMA_N_MAX * ROW_BYTES];
    uint8_t a_undefined[ROWS * ROW_BYTES], b_undefined[MMA_N_MAX * ROW_BYTES];
    bool a_known, b_known;
    union {
        int32_t s32[ROWS * MMA_N_MAX];
        float f32[ROWS * MMA_N_MAX];
    } d;
} fragments;

static int row_of(int lane, int r)
{
    return lane / 4 + 8 * (r & 1);
}

static void gather_a(warp *first, const operand *a, fragments *f)
{
    f->a_known = true;
    for (int k = 0; k < WARPS; k++) {
        warp *w = first + k;
        for (int r = 0; r < A_REGISTERS; r++) {
            int slot = operand_element(w, a, r)->reg.slot;
            uint32_t defined = w->slot_defined[slot];
            uint8_t *to = f->a + k * ROWS_OF_WARP * ROW_BYTES + 16 * (r >> 1);
            for (int lane = 0; lane < LANES; lane++)
                memcpy(to + row_of(lane, r) * ROW_BYTES + 4 * (lane % 4), &w->slot[slot][lane], 4);
            if (defined == ~0u) continue;
            if (f->a_known) memset(f->a_undefined, 0, sizeof f->a_undefined);
            f->a_known = false;
            for (int lane = 0; lane < LANES; lane++) {
                int offset =
                    k * ROWS_OF_WARP * ROW_BYTES + row_of(lane, r) * ROW_BYTES + 16 * (r >> 1) + 4 * (lane % 4);
                if (!(defined >> lane & 1)) memset(f->a_undefined + offset, 1, 4);
            }
        }
    }
}

/* A matrix of a descriptor, rows of m or n: transposed if it is MN-major (16-bit elements). */
static bool read_matrix(machine *m, const accessor *accessors, const shared_matrix *s, int rows, uint8_t *to,
                        uint8_t *undefined)
{
    enum { ELEMENT = 2, K = ROW_BYTES / ELEMENT, PER_CHUNK = 16 / ELEMENT };
    int count = m->config->judge ? WARPS : 0;
    if (!s->mn_major) return matrix_read(m, accessors, count, s, rows, ROW_BYTES / 16, to, undefined);
    uint8_t bytes[K * MMA_N_MAX * ELEMENT], unknown[K * MMA_N_MAX * ELEMENT];
    bool known = matrix_read(m, accessors, count, s, K, rows / PER_CHUNK, bytes, unknown);
    for (int k = 0; k < K; k++) {
        for (int r = 0; r < rows; r++) {
            memcpy(to + r * ROW_BYTES + k * ELEMENT, bytes + (k * rows + r) * ELEMENT, ELEMENT);
            if (!known) memcpy(undefined + r * ROW_BYTES + k * ELEMENT, unknown + (k * rows + r) * ELEMENT, ELEMENT);
        }
    }
    return known;
}

static mma_type mma_type_of(emulator_type type)
{
    switch (type) {
    case TYPE_U8:
        return MMA_U8;
    case TYPE_S8:
        return MMA_S8;
    case TYPE_F16:
        return MMA_F16;
    case TYPE_BF16:
        return MMA_BF16;
    case TYPE_E4M3:
        return MMA_E4M3;
    default:
        return MMA_E5M2;
    }
}

static void widen_elements(mma_type type, bool negated, int rows, const uint8_t *bytes, uint32_t *to)
{
    if (type == MMA_F16 || type == MMA_BF16) {
        uint32_t sign = negated ? 0x8000 : 0;
        for (int i = 0; i < rows * ROW_BYTES / 2; i++) to[i] = (uint32_t)(bytes[2 * i] | bytes[2 * i + 1] << 8) ^ sign;
    } else {
        for (int i = 0; i < rows * ROW_BYTES; i++) to[i] = negated ? bytes[i] ^ 0x80 : bytes[i];
    }
}

static void multiply(machine *m, const instruction *i, fragments *f)
{
    int n = i->mods.n, k = i->mods.k;
    mma_type a_type = mma_type_of(i->mods.type[1]), b_type = mma_type_of(i->mods.type[2]);
    if (i->mods.type[0] == TYPE_S32) {
        mma_integer(ROWS, n, k, a_type, f->a, b_type, f->b, f->d.s32, i->mods.finite);
        return;
    }
    uint32_t a[ROWS * ROW_BYTES], b[MMA_N_MAX * ROW_BYTES];
    widen_elements(a_type, (int64_t)i->operand[4].bits < 0, ROWS, f->a, a);
    widen_elements(b_type, (int64_t)i->operand[5].bits < 0, n, f->b, b);
    mma_float_form how = {
        m->config->fast ? MMA_FAST : MMA_HOPPER, a_type, b_type, i->mods.type[0] == TYPE_F16, MMA_SCALE_NONE, 0};
    mma_float(&how, ROWS, n, k, a, b, NULL, NULL, f->d.f32);
}

/* One bit for each byte of a row of k. */
static void masks(bool integers, int rows, const uint8_t *bytes, bool known, const uint8_t *undefined,
                  uint32_t *unknown, uint32_t *counts)
{
    for (int r = 0; r < rows; r++) {
        unknown[r] = counts[r] = 0;
        for (int b = 0; b < ROW_BYTES; b++) {
            uint32_t u = known ? 0 : undefined[r * ROW_BYTES + b];
            unknown[r] |= u << b;
            counts[r] |= (uint32_t)(u || !integers || bytes[r * ROW_BYTES + b]) << b;
        }
    }
}

/* Where the first accumulator of register r of warp k lies in rows of n: f->d for lane 0, and from there for each lane.
 */
static int first_accumulator(int n, bool half, int k, int r)
{
    return half ? (k * ROWS_OF_WARP + 8 * (r & 1)) * n + 8 * (r >> 1)
                : (k * ROWS_OF_WARP + 8 * (r >> 1 & 1)) * n + (r & 1) + 8 * (r >> 2);
}

static void lane_offsets(int n, int offset[LANES])
{
    for (int lane = 0; lane < LANES; lane++) offset[lane] = lane / 4 * n + 2 * (lane % 4);
}

static void load_accumulators(warp *first, const instruction *i, fragments *f)
{
    const operand *d = &i->operand[0];
    bool half = i->mods.type[0] == TYPE_F16;
    int offset[LANES];
    lane_offsets(i->mods.n, offset);
    for (int k = 0; k < WARPS; k++) {
        for (int r = 0; r < d->count; r++) {
            const uint32_t *from = first[k].slot[operand_element(first, d, r)->reg.slot];
            int at = first_accumulator(i->mods.n, half, k, r);
            for (int lane = 0; !half && lane < LANES; lane++) f->d.s32[at + offset[lane]] = (int32_t)from[lane];
            for (int lane = 0; half && lane < LANES; lane++) {
                f->d.f32[at + offset[lane]] = mma_widen(MMA_F16, (uint16_t)from[lane]);
                f->d.f32[at + offset[lane] + 1] = mma_widen(MMA_F16, (uint16_t)(from[lane] >> 16));
            }
        }
    }
}

static void store_accumulators(warp *first, const instruction *i, const fragments *f)
{
    const operand *d = &i->operand[0];
    bool half = i->mods.type[0] == TYPE_F16;
    int offset[LANES];
    lane_offsets(i->mods.n, offset);
    for (int k = 0; k < WARPS; k++) {
        for (int r = 0; r < d->count; r++) {
            uint32_t *to = first[k].slot[operand_element(first, d, r)->reg.slot];
            int at = first_accumulator(i->mods.n, half, k, r);
            for (int lane = 0; !half && lane < LANES; lane++) to[lane] = (uint32_t)f->d.s32[at + offset[lane]];
            for (int lane = 0; half && lane < LANES; lane++)
                to[lane] = mma_half_bits(f->d.f32[at + offset[lane]]) |
                           (uint32_t)mma_half_bits(f->d.f32[at + offset[lane] + 1]) << 16;
        }
    }
}

static void define_accumulators(warp *first, const instruction *i, const fragments *f, bool accumulates)
{
    const operand *d = &i->operand[0];
    int n = i->mods.n;
    bool known = f->a_known && f->b_known, half = i->mods.type[0] == TYPE_F16;
    uint32_t a_unknown[ROWS], a_counts[ROWS], b_unknown[MMA_N_MAX], b_counts[MMA_N_MAX];
    if (!known) {
        masks(i->mods.type[0] == TYPE_S32, ROWS, f->a, f->a_known, f->a_undefined, a_unknown, a_counts);
        masks(i->mods.type[0] == TYPE_S32, n, f->b, f->b_known, f->b_undefined, b_unknown, b_counts);
    }
    for (int k = 0; k < WARPS; k++) {
        for (int r = 0; r < d->count; r++) {
            uint32_t *defined = &first[k].slot_defined[operand_element(first, d, r)->reg.slot];
            if (!accumulates) *defined = ~0u;
            for (int lane = 0; lane < LANES && !known; lane++) {
                int row = k * ROWS_OF_WARP + row_of(lane, half ? r : r >> 1);
                int column = 2 * (lane % 4) + (half ? 8 * (r >> 1) : (r & 1) + 8 * (r >> 2));
                uint32_t hit = (a_unknown[row] & b_counts[column]) | (b_unknown[column] & a_counts[row]);
                if (half) hit |= (a_unknown[row] & b_counts[column + 1]) | (b_unknown[column + 1] & a_counts[row]);
                if (hit) *defined &= ~(1u << lane);
            }
        }
    }
}

static void run_product(machine *m, async_op *op)
{
    wgmma_product *p;
    memcpy(&p, op->payload, sizeof(wgmma_product *));
    const instruction *i = p->at;
    warp *first = first_warp(&m->warp[op->warp]);
    accessor accessors[WARPS];
    for (int k = 0; k < WARPS; k++)
        accessors[k] = (accessor){.component = clock_of_pipe(first->index + k),
                                  .time = p->group,
                                  .proxy = PROXY_ASYNC,
                                  .lane = -1,
                                  .clock = &p->clock[k],
                                  .w = first + k,
                                  .at = i};
    fragments f;
    bool b_transposed = i->operand[7].kind == OPERAND_IMMEDIATE && i->operand[7].bits;
    shared_matrix b = matrix_descriptor_decode(m, first, i, DESCRIPTOR_HOPPER, p->b, b_transposed, "B");
    f.b_known = read_matrix(m, accessors, &b, i->mods.n, f.b, f.b_undefined);
    if (i->operand[1].kind == OPERAND_VECTOR) {
        gather_a(first, &i->operand[1], &f);
    } else {
        bool a_transposed = i->operand[6].kind == OPERAND_IMMEDIATE && i->operand[6].bits;
        shared_matrix a = matrix_descriptor_decode(m, first, i, DESCRIPTOR_HOPPER, p->a, a_transposed, "A");
        f.a_known = read_matrix(m, accessors, &a, ROWS, f.a, f.a_undefined);
    }
    if (p->accumulates)
        load_accumulators(first, i, &f);
    else
        memset(f.d.s32, 0, (size_t)(ROWS * i->mods.n) * sizeof f.d.s32[0]);
    multiply(m, i, &f);
    store_accumulators(first, i, &f);
    define_accumulators(first, i, &f, p->accumulates);

    wgmma_state *group = state_of(first);
    group->first = p->next; /* products run in order: it is the first */
    p->next = group->spare;
    group->spare = p;
}

/* ---- Life ---- */

void wgmma_end(const warp *w)
{
    const wgmma_state *s = ((tensor_state *)w->tensor)->wgmma;
    if (!s) return;
    if (s->open) machine_fault(w->m, w, NULL, EMULATOR_EXIT, "the warp ends with %u wgmmas in no group", s->open);
    if (s->waited < s->committed && s->issued) {
        machine_fault(w->m, w, NULL, EMULATOR_EXIT, "the warp ends with wgmma group %u not waited for", s->waited + 1);
    }
}

void wgmma_finish(warp *w)
{
    wgmma_state *s = ((tensor_state *)w->tensor)->wgmma;
    if (!s) return;
    for (wgmma_product *p = s->first, *next; p; p = next) {
        next = p->next;
        free(p);
    }
    for (wgmma_product *p = s->spare, *next; p; p = next) {
        next = p->next;
        free(p);
    }
    free(s->use);
    free(s->pending);
    free(s);
}
