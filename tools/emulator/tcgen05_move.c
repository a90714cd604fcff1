/* tcgen05.ld, .st, their waits, and the fences of tensor memory. */
#include "tensor_memory.h"

/* Where register r of thread t lies, from the address: the register maps of the PTX ISA. offset: of the second half of
 * 16x32bx2. */
static void place(const modifiers *mods, int t, int r, uint32_t offset, uint32_t *lane, uint32_t *column)
{
    uint32_t ut = (uint32_t)t, ur = (uint32_t)r;
    if (mods->extra & EXTRA_X2) {
        *lane = ut & 15;
        *column = ur + (ut < 16 ? 0 : offset);
    } else if (mods->n == 32) {
        *lane = ut;
        *column = ur;
    } else if (mods->n == 64) {
        *lane = 8 * (ut & 1) + (ut >> 2);
        *column = 2 * ur + (ut >> 1 & 1);
    } else if (mods->n == 128) {
        *lane = (ut >> 2) + 8 * (ur & 1);
        *column = (ut & 3) + 4 * (ur >> 1);
    } else {
        *lane = (ut >> 2) + 8 * (ur >> 1 & 1);
        *column = 2 * (ut & 3) + (ur & 1) + 8 * (ur >> 2);
    }
}

typedef struct move {
    uint32_t lane, column;      /* of the address */
    uint32_t first[2], columns; /* columns touched: one run, or two of 16x32bx2 */
    int runs;
    uint32_t granules, offset;
} move;

/* The one address of all lanes; checked against the warp's quarter and the allocation. */
static move decode(warp *w, const instruction *i, const operand *address, const operand *offset, int registers)
{
    machine *m = w->m;
    if (i->mods.extra & EXTRA_PACK16)
        machine_fault(m, w, i, EMULATOR_UNKNOWN_FORM, ".pack::16b and .unpack::16b are not executed");
    uint64_t of_lane[LANES];
    warp_addresses(w, address, of_lane);
    uint32_t a = (uint32_t)of_lane[__builtin_ctz(w->active)];
    for (int t = 0; t < LANES; t++)
        if (w->active >> t & 1 && (uint32_t)of_lane[t] != a)
            machine_fault(m, w, i, EMULATOR_DIVERGENCE, "addresses of tensor memory differ between lanes");
    move v = {a >> 16, a & 0xffff, {a & 0xffff, 0}, 0, 1, 0, 0};
    uint32_t quarter = (uint32_t)w->index % 4, lanes = i->mods.n == 32 && !(i->mods.extra & EXTRA_X2) ? 32 : 16;
    if (v.lane / 32 != quarter || v.lane % lanes) {
        machine_fault(m, w, i, EMULATOR_TMEM, "lane %u of tensor memory: warp %d may access %u lanes from %u on%s",
                      v.lane, w->index, lanes, 32 * quarter, lanes == 16 ? ", or from 16 later on" : "");
    }
    v.granules = (lanes == 32 ? 3u : 1u) << v.lane / TMEM_GRANULE;
    v.columns = (i->mods.n == 32 ? 1 : 2) * (uint32_t)registers;
    if (i->mods.extra & EXTRA_X2) {
        v.offset = (uint32_t)offset->bits;
        v.first[1] = v.column + v.offset;
        v.runs = 2;
    }
    for (int r = 0; r < v.runs; r++) tmem_check(m, w, i, v.first[r], v.columns, "tcgen05.ld or .st");
    return v;
}

void exec_tcgen05_ld(warp *w, const instruction *i)
{
    const operand *d = &i->operand[0];
    int registers = d->kind == OPERAND_VECTOR ? d->count : 1;
    move v = decode(w, i, &i->operand[1], &i->operand[2], registers);
    tcgen05_state *s = tcgen05_state_of(w);
    tmem_accessor a = tmem_accessor_now(w, i, TMEM_LOAD, ++s->loads);
    s->last_load = i;
    for (int r = 0; r < v.runs; r++) tmem_read(w->m, &a, v.first[r], v.columns, v.granules);
    const tensor_memory *t = w->m->tmem;
    for (int r = 0; r < registers; r++) {
        int slot = operand_element(w, d, r)->reg.slot;
        if (w->pending[slot])
            machine_fault(w->m, w, i, EMULATOR_TCGEN05_ORDER,
                          "a destination of a tcgen05.ld in flight is loaded again");
        uint32_t defined = 0;
        for (int k = 0; k < LANES; k++) {
            uint32_t lane, column;
            place(&i->mods, k, r, v.offset, &lane, &column);
            w->slot[slot][k] = t->word[v.column + column][v.lane + lane];
            defined |= (uint32_t)tmem_defined(t, v.column + column, v.lane + lane) << k;
        }
        w->slot_defined[slot] = defined;
        w->written[slot] = w->executed;
        w->pending[slot] = TMEM_PENDING | s->loads;
        s->pending[s->pending_count++] = slot;
    }
}

/* Sources are read at once, as the register file lets no later instruction overtake: only the words arrive late. */
void exec_tcgen05_st(warp *w, const instruction *i)
{
    bool halves = i->mods.extra & EXTRA_X2;
    const operand *from = &i->operand[halves ? 2 : 1];
    int registers = from->kind == OPERAND_VECTOR ? from->count : 1;
    move v = decode(w, i, &i->operand[0], &i->operand[1], registers);
    tcgen05_state *s = tcgen05_state_of(w);
    tmem_accessor a = tmem_accessor_now(w, i, TMEM_STORE, ++s->stores);
    s->last_store = i;
    for (int r = 0; r < v.runs; r++) tmem_write(w->m, &a, v.first[r], v.columns, v.granules);
    tensor_memory *t = w->m->tmem;
    for (int r = 0; r < registers; r++) {
        lanes32 room;
        uint32_t defined;
        const uint32_t *word = warp_read32(w, operand_element(w, from, r), &room, &defined);
        for (int k = 0; k < LANES; k++) {
            uint32_t lane, column;
            place(&i->mods, k, r, v.offset, &lane, &column);
            lane += v.lane;
            column += v.column;
            t->word[column][lane] = word[k];
            uint32_t bit = 1u << lane % LANES, *mask = &t->defined[column][lane / LANES];
            *mask = defined >> k & 1 ? *mask | bit : *mask & ~bit;
        }
    }
}

void exec_tcgen05_wait(warp *w, const instruction *i)
{
    tcgen05_state *s = tcgen05_state_of(w);
    s->before_lanes = 0;
    if (i->mods.mode == MODE_TCGEN05_ST) {
        s->stores_done = s->stores;
        return;
    }
    s->loads_done = s->loads;
    for (int k = 0; k < s->pending_count; k++) w->pending[s->pending[k]] = 0;
    s->pending_count = 0;
}

void exec_tcgen05_fence(warp *w, const instruction *i)
{
    if (i->mods.mode == MODE_TCGEN05_BEFORE)
        tcgen05_before_thread_sync(w);
    else
        tcgen05_after_thread_sync(w);
}
