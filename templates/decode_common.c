/* What the stages of the decode kernel share: parameters, places of a thread, waits, limbs, and the rings of stages. */
#include "decode.h"

ptx_value decode_param_value(decode *d, decode_param param)
{
    static const int bytes[DECODE_PARAM_COUNT] = {
#define PARAM(name, size, meaning) size,
        DECODE_PARAMS(PARAM)
#undef PARAM
    };
    ptx_value address = d->param[param];
    if (param == DECODE_PARAM_scale_log2) return ptx_ld_param_f32(d->b, address);
    return bytes[param] == 8 ? ptx_ld_param_b64(d->b, address) : ptx_ld_param_b32(d->b, address);
}

ptx_value decode_offset(decode *d, ptx_value index, decode_param stride)
{
    ptx_value wide = ptx_cvt_u64_u32(d->b, index);
    return ptx_mul_lo_s64(d->b, wide, decode_param_value(d, stride));
}

ptx_value decode_worker(decode *d, ptx_value consumer)
{
    ptx_value blocks = ptx_mov_special(d->b, ptx_sreg(PTX_SPECIAL_NCTAID_X));
    return ptx_mad_lo(d->b, consumer, blocks, ptx_mov_special(d->b, ptx_sreg(PTX_SPECIAL_CTAID_X)));
}

void decode_place_thread(decode *d)
{
    ptx_builder *b = d->b;
    ptx_value tid = ptx_mov_special(b, ptx_sreg(PTX_SPECIAL_TID_X)), lane = ptx_and(b, tid, ptx_imm(31));
    d->thread = ptx_and(b, tid, ptx_imm(127));
    d->warp = ptx_shr_u32(b, d->thread, ptx_imm(5));
    d->rr = ptx_shr_u32(b, lane, ptx_imm(2));
    d->hq = ptx_and(b, lane, ptx_imm(3));
}

ptx_value decode_uniform(decode *d, ptx_value x)
{
    return ptx_shfl_idx_b32(d->b, x, ptx_imm(0), ptx_imm(31), ptx_imm(WARP_MASK));
}

void decode_wait(decode *d, ptx_value barrier, ptx_value parity)
{
    ptx_builder *b = d->b;
    ptx_value again = ptx_label_new(b, "wait");
    ptx_label_place(b, again);
    ptx_value complete = ptx_mbarrier_try_wait(b, barrier, parity);
    ptx_guard_not(b, complete);
    ptx_bra(b, again);
}

void decode_consumer_sync(decode *d)
{
    ptx_bar_sync(d->b, ptx_add(d->b, d->warpgroup, ptx_imm(1)), ptx_imm(128));
}

ptx_value decode_combine_limbs(decode *d, ptx_value high, ptx_value middle, ptx_value low)
{
    ptx_builder *b = d->b;
    ptx_value upper = ptx_cvt_f32_s32(b, ptx_mad_lo(b, high, ptx_imm(256), middle));
    return ptx_fma_f32(b, upper, ptx_fimm(256), ptx_cvt_f32_s32(b, low));
}

int decode_head_offset(int e) { return e / 2 * 8 + e % 2; }

/* Head of this thread's element 0. */
ptx_value decode_first_head(decode *d)
{
    ptx_builder *b = d->b;
    return ptx_shl(b, ptx_and(b, d->hq, ptx_imm(decode_head_lanes(d->p) - 1)), ptx_imm(1));
}

ptx_value decode_token_group(decode *d, ptx_value lane)
{
    ptx_builder *b = d->b;
    int lanes = decode_head_lanes(d->p);
    return ptx_shr_u32(b, ptx_and(b, lane, ptx_imm(3)), ptx_imm(lanes == 4 ? 2 : lanes == 2 ? 1 : 0));
}

/* Computed anew from the thread number: the rare use is not worth a register of every block. */
ptx_value decode_first_token(decode *d)
{
    ptx_builder *b = d->b;
    ptx_value tid = ptx_mov_special(b, ptx_sreg(PTX_SPECIAL_TID_X));
    ptx_value warp = ptx_and(b, ptx_shr_u32(b, tid, ptx_imm(5)), ptx_imm(3)), rr = ptx_and(b, ptx_shr_u32(b, tid, ptx_imm(2)), ptx_imm(7));
    ptx_value token = ptx_mad_lo(b, warp, ptx_imm(CHUNK_TOKENS), ptx_mul_lo(b, rr, ptx_imm(4)));
    return ptx_mad_lo(b, decode_token_group(d, tid), ptx_imm(d->p->accumulators), token);
}

ptx_value decode_tokens_left(decode *d, const cursor *c, ptx_value block)
{
    return ptx_sub(d->b, c->length, ptx_mul_lo(d->b, block, ptx_imm(d->p->block_tokens)));
}

/* Ring of one worker, at its first stage. */
ring ring_start(decode *d, const ring_plan *plan, ptx_value consumer)
{
    ptx_builder *b = d->b;
    const shared_region *shared = d->p->shared;
    ring r = {.plan = plan};
    r.base = ptx_add(b, ptx_mad_lo(b, consumer, ptx_imm((int64_t)plan->stages * plan->stage_bytes), d->shared), ptx_imm(shared[plan->stages_at].offset));
    r.barriers = ptx_add(b, ptx_mad_lo(b, consumer, ptx_imm(plan->stages * 16), d->shared), ptx_imm(shared[plan->barriers_at].offset));
    r.stage = ptx_mov_b32(b, ptx_imm(0));
    r.parity = ptx_mov_b32(b, ptx_imm(0));
    return r;
}

void ring_advance(decode *d, ring *r)
{
    ptx_builder *b = d->b;
    ptx_add_to(b, r->stage, r->stage, ptx_imm(1));
    ptx_value wraps = ptx_setp_eq(b, r->stage, ptx_imm(r->plan->stages));
    ptx_selp_b32_to(b, r->stage, ptx_imm(0), r->stage, wraps);
    ptx_guard(b, wraps);
    ptx_xor_to(b, r->parity, r->parity, ptx_imm(1));
}

void ring_take(decode *d, ring *to, const ring *from)
{
    ptx_mov_b32_to(d->b, to->stage, from->stage);
    ptx_mov_b32_to(d->b, to->parity, from->parity);
}

ptx_value decode_stage(decode *d, const ring *r)
{
    return ptx_mad_lo(d->b, r->stage, ptx_imm(r->plan->stage_bytes), r->base);
}

ptx_value decode_barrier(decode *d, const ring *r)
{
    return ptx_mad_lo(d->b, r->stage, ptx_imm(16), r->barriers);
}

/* One arrival a warp tells the producer that the consumer is done with a stage. */
void ring_release(decode *d, const ring *r)
{
    ptx_builder *b = d->b;
    ptx_bar_warp_sync(b, ptx_imm(WARP_MASK));
    ptx_value one = ptx_elect(b), barrier = decode_barrier(d, r);
    ptx_guard(b, one);
    ptx_mbarrier_arrive(b, ptx_at(barrier, 8));
}
