/* The handlers that forms.def names, by file. Each executes one instruction for the active lanes of a warp; types, shapes and the like are in
 * i->mods, operands in i->operand. A handler of a FORM_WAITS row may call warp_block instead and is called again. */
#ifndef FOSCAR_EMULATOR_EXEC_H
#define FOSCAR_EMULATOR_EXEC_H

#include "machine.h"
#include "tensor.h"

#define HANDLER(name) void exec_##name(warp *w, const instruction *i);

/* exec_integer.c, exec_bits.c: integers and bits of 16, 32 and 64 bits, and predicates (and.pred, mov.pred, ...) */
HANDLER(add_integer) HANDLER(sub_integer) HANDLER(mul_integer) HANDLER(mad_integer) HANDLER(div_integer) HANDLER(rem_integer)
HANDLER(min_integer) HANDLER(max_integer) HANDLER(abs_integer) HANDLER(neg_integer)
HANDLER(and) HANDLER(or) HANDLER(xor) HANDLER(not) HANDLER(lop3) HANDLER(shl) HANDLER(shr) HANDLER(shf) HANDLER(prmt)
HANDLER(bfe) HANDLER(bfi) HANDLER(brev) HANDLER(bfind) HANDLER(popc) HANDLER(clz)
/* exec_carry.c, exec_rare.c */
HANDLER(add_carry) HANDLER(addc) HANDLER(sub_carry) HANDLER(subc) HANDLER(mad_carry) HANDLER(madc)
HANDLER(slct) HANDLER(sad) HANDLER(mul24) HANDLER(mad24) HANDLER(bmsk) HANDLER(szext) HANDLER(fns) HANDLER(dp4a) HANDLER(dp2a)
HANDLER(add_pair) HANDLER(min_pair) HANDLER(max_pair) HANDLER(cvt_pack)

HANDLER(mov) HANDLER(selp) HANDLER(setp_integer) HANDLER(cvta)

/* exec_float.c: f32 with .ftz, .sat and the rounding modes; f16, bf16 and pairs of them */
HANDLER(add_float) HANDLER(sub_float) HANDLER(mul_float) HANDLER(fma_float) HANDLER(div_float) HANDLER(min_float) HANDLER(max_float)
HANDLER(abs_float) HANDLER(neg_float) HANDLER(setp_float) HANDLER(ex2) HANDLER(lg2) HANDLER(rcp) HANDLER(sqrt)

/* exec_double.c: f64, and its conversions */
HANDLER(add_double) HANDLER(sub_double) HANDLER(mul_double) HANDLER(fma_double) HANDLER(div_double) HANDLER(rcp_double) HANDLER(sqrt_double)
HANDLER(rsqrt_double) HANDLER(min_double) HANDLER(max_double) HANDLER(abs_double) HANDLER(neg_double) HANDLER(copysign_double) HANDLER(cvt_double)

/* exec_approximate.c, exec_compare.c */
HANDLER(sin) HANDLER(cos) HANDLER(tanh) HANDLER(ex2_half) HANDLER(rsqrt) HANDLER(copysign) HANDLER(testp)
HANDLER(set) HANDLER(setp_value) HANDLER(setp_pair)

/* exec_convert.c: every cvt: integers, f32, f16, bf16, packed pairs, e4m3x2 and the like; mods.type[0] is the destination's type */
HANDLER(cvt)

/* exec_memory.c: ld, st, atom, red of all spaces, prefetch (checked for bounds, else nothing) */
HANDLER(ld) HANDLER(st) HANDLER(atom) HANDLER(red) HANDLER(prefetch)

/* exec_lanes.c: between the lanes of a warp */
HANDLER(shfl) HANDLER(vote) HANDLER(redux) HANDLER(elect) HANDLER(match) HANDLER(activemask)

/* calls.c */
HANDLER(call) HANDLER(alloca) HANDLER(stacksave) HANDLER(stackrestore)

/* exec_control.c */
HANDLER(bra) HANDLER(ret) HANDLER(exit) HANDLER(trap) HANDLER(bar_warp_sync) HANDLER(setmaxnreg) HANDLER(griddepcontrol) HANDLER(nanosleep)

/* exec_barrier.c: bar / barrier.cta sync, arrive and red; membar and fence */
HANDLER(bar_sync) HANDLER(bar_arrive) HANDLER(bar_red) HANDLER(membar) HANDLER(fence) HANDLER(fence_proxy_async) HANDLER(fence_mbarrier_init)

/* mbarrier.c */
HANDLER(mbarrier_init) HANDLER(mbarrier_inval) HANDLER(mbarrier_arrive) HANDLER(mbarrier_arrive_expect_tx) HANDLER(mbarrier_expect_tx)
HANDLER(mbarrier_try_wait_parity) HANDLER(mbarrier_test_wait_parity) HANDLER(mbarrier_try_wait) HANDLER(mbarrier_test_wait)
HANDLER(mbarrier_arrive_drop) HANDLER(mbarrier_pending_count)

/* async_copy.c: cp.async of single threads */
HANDLER(cp_async) HANDLER(cp_async_commit_group) HANDLER(cp_async_wait_group) HANDLER(cp_async_mbarrier_arrive)

/* bulk_copy.c: cp.async.bulk between global and shared memory */
HANDLER(cp_async_bulk)

#undef HANDLER

#endif
