/* The verifier, by small lists that differ in one thing, by random branches and by mutations of real kernels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode_hopper.h"
#include "ptx.h"
#include "ptx_fixture.h"

/* ---- Verifier: lists that differ in one thing. Each builds a correct list, or with `wrong` one that breaks one rule.
 * ------------------ */

static void vector_offset(ptx_builder *b, bool wrong)
{
    ptx_value words[4], address = any_r(b);
    ptx_ld_shared_v4(b, words, ptx_at(address, wrong ? 24 : 32));
}

static void vector_offset_of_a_store(ptx_builder *b, bool wrong)
{
    ptx_value x = any_r(b), address = any_r(b);
    ptx_st_shared_v2(b, ptx_at(address, wrong ? 12 : 8), (ptx_value[]){x, x});
}

static void scalar_offset(ptx_builder *b, bool wrong)
{
    ptx_ld_shared_b32(b, ptx_at(any_r(b), wrong ? 2 : 4));
}

static void scalar_offset_of_a_store(ptx_builder *b, bool wrong)
{
    ptx_value x = any_r(b), address = any_l(b);
    ptx_st_global_b16(b, ptx_at(address, wrong ? -1 : -2), x);
    ptx_st_shared_b8(b, ptx_at(x, 1), x);
}

static void offset_of_an_mbarrier(ptx_builder *b, bool wrong)
{
    ptx_mbarrier_arrive(b, ptx_at(any_r(b), wrong ? 4 : 8));
}

static void source_of_a_bulk_copy(ptx_builder *b, bool wrong)
{
    ptx_value shared = any_r(b), global = any_l(b);
    ptx_cp_async_bulk(b, ptx_at(shared, 16), ptx_at(global, wrong ? 8 : 16), ptx_imm(16), ptx_at(shared, 8));
}

static void offset_of_a_source(ptx_builder *b, bool wrong)
{
    ptx_value x = any_r(b);
    ptx_add(b, wrong ? ptx_at(x, 4) : x, x);
}

static void offset_of_a_parameter(ptx_builder *b, bool wrong)
{
    ptx_value x = ptx_param(b, "param_x", 8);
    ptx_ld_param_b32(b, wrong ? ptx_at(x, 4) : x);
}

static void offset_beyond_32_bits(ptx_builder *b, bool wrong)
{
    ptx_ld_global_b32(b, ptx_at(any_l(b), wrong ? INT64_C(1) << 31 : INT32_MAX - 3));
}

static void immediate_too_large(ptx_builder *b, bool wrong)
{
    ptx_mov_b32(b, ptx_imm(UINT32_MAX + (int64_t)wrong));
    ptx_mov_b64(b, ptx_imm(INT64_MAX));
}

static void immediate_too_small(ptx_builder *b, bool wrong)
{
    ptx_shl(b, any_r(b), ptx_imm(INT32_MIN - (int64_t)wrong));
}

static void label_that_does_not_exist(ptx_builder *b, bool wrong)
{
    ptx_value label = ptx_label_new(b, "here");
    ptx_label_place(b, label);
    label.id += wrong;
    ptx_bra(b, label);
}

static void parameter_that_does_not_exist(ptx_builder *b, bool wrong)
{
    ptx_value x = ptx_param(b, "param_x", 8);
    x.id += wrong;
    ptx_ld_param_b64(b, x);
}

static void special_that_does_not_exist(ptx_builder *b, bool wrong)
{
    ptx_value x = ptx_sreg(PTX_SPECIAL_TID_X);
    if (wrong) x.id = PTX_SPECIAL_COUNT;
    ptx_mov_special(b, x);
}

static void guard_that_does_not_exist(ptx_builder *b, bool wrong)
{
    ptx_value p = any_p(b);
    p.id += wrong;
    ptx_guard(b, p);
    ptx_mov_b32(b, ptx_imm(1));
}

static void guard_of_a_label(ptx_builder *b, bool wrong)
{
    ptx_value label = ptx_label_new(b, "here"), p = any_p(b);
    if (wrong) ptx_guard(b, p);
    ptx_label_place(b, label);
}

static void product_of(ptx_builder *b, int n)
{
    ptx_constants(b);
    ptx_value acc[64], a[4];
    for (int i = 0; i < n; i++) acc[i] = ptx_reg(b, PTX_KIND_R);
    for (int i = 0; i < 4; i++) a[i] = any_r(b);
    ptx_wgmma(b, PTX_OP_wgmma_u8_u8, acc, n, a, any_l(b), false);
}

static void columns_of_a_product(ptx_builder *b, bool wrong)
{
    product_of(b, wrong ? 3 : 4);
}

static void columns_of_a_wide_product(ptx_builder *b, bool wrong)
{
    product_of(b, wrong ? 20 : 24); /* m64n40k32 is a product of other numbers, not of bytes */
}

static void registers_of_setmaxnreg(ptx_builder *b, bool wrong)
{
    ptx_setmaxnreg_inc(b, ptx_imm(wrong ? 252 : 256));
}

static void least_registers_of_setmaxnreg(ptx_builder *b, bool wrong)
{
    ptx_setmaxnreg_dec(b, ptx_imm(wrong ? 16 : 24));
}

static void most_registers_of_setmaxnreg(ptx_builder *b, bool wrong)
{
    ptx_setmaxnreg_inc(b, ptx_imm(wrong ? 264 : 256));
}

static void registers_of_a_block(ptx_builder *b, bool wrong)
{
    b->threads = 512;
    b->max_registers = wrong ? 136 : 128;
    any_r(b);
}

static void register_that_does_not_exist(ptx_builder *b, bool wrong)
{
    ptx_value x = any_r(b);
    x.id += wrong;
    ptx_st_shared_b32(b, x, x);
}

static void label_placed_twice(ptx_builder *b, bool wrong)
{
    ptx_value label = ptx_label_new(b, "here");
    ptx_bra(b, label);
    ptx_label_place(b, label);
    if (wrong) ptx_label_place(b, label);
}

static void label_nowhere(ptx_builder *b, bool wrong)
{
    ptx_value label = ptx_label_new(b, "here");
    ptx_bra(b, label);
    if (!wrong) ptx_label_place(b, label);
}

static void scope_not_closed(ptx_builder *b, bool wrong)
{
    ptx_scope_push(b, "open");
    any_r(b);
    if (!wrong) ptx_scope_pop(b);
}

static void read_in_a_straight_line(ptx_builder *b, bool wrong)
{
    ptx_value x = ptx_reg(b, PTX_KIND_R);
    if (!wrong) ptx_mov_b32_to(b, x, ptx_imm(1));
    ptx_add(b, x, ptx_imm(1));
    ptx_mov_b32_to(b, x, ptx_imm(1)); /* too late */
}

static void read_by_the_instruction_that_writes_it(ptx_builder *b, bool wrong)
{
    ptx_value x = ptx_reg(b, PTX_KIND_R);
    if (!wrong) ptx_mov_b32_to(b, x, ptx_imm(1));
    ptx_add_to(b, x, x, ptx_imm(1));
}

/* x written before, on the branch not taken or after the branch's paths have met. */
static void read_after_one_path(ptx_builder *b, bool wrong)
{
    ptx_value x = ptx_reg(b, PTX_KIND_R), p = any_p(b), skip = ptx_label_new(b, "skip");
    if (!wrong) ptx_mov_b32_to(b, x, ptx_imm(1));
    ptx_guard(b, p);
    ptx_bra(b, skip);
    ptx_mov_b32_to(b, x, ptx_imm(2));
    ptx_label_place(b, skip);
    ptx_add(b, x, ptx_imm(1));
}

/* Both arms of a branch write x: a read after them is right; with one arm going past its write it is not. */
static void read_after_two_arms(ptx_builder *b, bool wrong)
{
    ptx_value x = ptx_reg(b, PTX_KIND_R), p = any_p(b), other = ptx_label_new(b, "other"),
              end = ptx_label_new(b, "end");
    ptx_guard(b, p);
    ptx_bra(b, other);
    ptx_mov_b32_to(b, x, ptx_imm(1));
    ptx_bra(b, end);
    ptx_label_place(b, other);
    if (!wrong) ptx_mov_b32_to(b, x, ptx_imm(2));
    ptx_label_place(b, end);
    ptx_add(b, x, ptx_imm(1));
}

/* Read at the head of a loop, written at its end. */
static void read_in_the_first_round(ptx_builder *b, bool wrong)
{
    ptx_value x = ptx_reg(b, PTX_KIND_R), loop = ptx_label_new(b, "loop");
    if (!wrong) ptx_mov_b32_to(b, x, ptx_imm(1));
    ptx_label_place(b, loop);
    ptx_add(b, x, ptx_imm(1));
    ptx_mov_b32_to(b, x, ptx_imm(2));
    ptx_guard(b, any_p(b));
    ptx_bra(b, loop);
}

static void read_after_a_guarded_write(ptx_builder *b, bool wrong)
{
    ptx_value x = ptx_reg(b, PTX_KIND_R), p = any_p(b);
    if (wrong) ptx_guard(b, p);
    ptx_mov_b32_to(b, x, ptx_imm(1));
    ptx_add(b, x, ptx_imm(1));
}

/* Threads for which a guarded return does not hold go on. */
static void read_after_a_guarded_return(ptx_builder *b, bool wrong)
{
    ptx_value x = ptx_reg(b, PTX_KIND_R), p = any_p(b);
    if (!wrong) ptx_mov_b32_to(b, x, ptx_imm(1));
    ptx_guard(b, p);
    ptx_ret(b);
    ptx_add(b, x, x);
}

static void guard_never_written(ptx_builder *b, bool wrong)
{
    ptx_value p = ptx_reg(b, PTX_KIND_P), x = any_r(b);
    if (!wrong) ptx_setp_eq_to(b, p, x, ptx_imm(0));
    ptx_guard(b, p);
    ptx_mov_b32_to(b, x, ptx_imm(1));
}

static void address_never_written(ptx_builder *b, bool wrong)
{
    ptx_value address = ptx_reg(b, PTX_KIND_L), x = any_r(b);
    if (!wrong) ptx_mov_b64_to(b, address, ptx_imm(0));
    ptx_st_global_b32(b, address, x);
}

/* Accumulators come into being by a product that overwrites them; one that accumulates reads them. */
static void product_into_new_accumulators(ptx_builder *b, bool wrong)
{
    ptx_constants(b);
    ptx_value acc[8], a[4];
    for (int i = 0; i < 8; i++) acc[i] = ptx_reg(b, PTX_KIND_R);
    for (int i = 0; i < 4; i++) a[i] = any_r(b);
    ptx_value descriptor = any_l(b);
    ptx_wgmma(b, PTX_OP_wgmma_u8_u8, acc, 8, a, descriptor, wrong);
    ptx_wgmma(b, PTX_OP_wgmma_u8_u8, acc, 8, a, descriptor, true);
    ptx_add(b, acc[7], ptx_imm(1));
}

static void operand_of_an_overwriting_product(ptx_builder *b, bool wrong)
{
    ptx_constants(b);
    ptx_value acc[8], a[4];
    for (int i = 0; i < 8; i++) acc[i] = ptx_reg(b, PTX_KIND_R);
    for (int i = 0; i < 4; i++) a[i] = wrong && i == 2 ? ptx_reg(b, PTX_KIND_R) : any_r(b);
    ptx_wgmma(b, PTX_OP_wgmma_u8_u8, acc, 8, a, any_l(b), false);
}

/* A shuffle between a branch of single lanes and its label. */
static void warp_wide_after_a_branch(ptx_builder *b, bool wrong)
{
    ptx_value x = any_r(b), p = any_p(b), skip = ptx_label_new(b, "skip");
    ptx_guard(b, p);
    if (wrong)
        ptx_bra(b, skip);
    else
        ptx_bra_uni(b, skip);
    ptx_shfl_up_b32(b, x, ptx_imm(1), ptx_imm(0), ptx_imm(-1));
    ptx_label_place(b, skip);
}

static void warp_wide_in_a_loop(ptx_builder *b, bool wrong)
{
    ptx_value x = any_r(b), p = any_p(b), loop = ptx_label_new(b, "loop");
    ptx_label_place(b, loop);
    ptx_bar_warp_sync(b, ptx_imm(-1));
    ptx_add_to(b, x, x, ptx_imm(1));
    ptx_guard(b, p);
    if (wrong)
        ptx_bra(b, loop);
    else
        ptx_bra_uni(b, loop);
}

/* Lanes that left a loop wait behind it: what follows is converged again. */
static void warp_wide_behind_a_loop(ptx_builder *b, bool wrong)
{
    ptx_value x = any_r(b), p = any_p(b), loop = ptx_label_new(b, "loop");
    ptx_label_place(b, loop);
    ptx_add_to(b, x, x, ptx_imm(1));
    if (wrong) ptx_shfl_up_b32(b, x, ptx_imm(1), ptx_imm(0), ptx_imm(-1));
    ptx_guard(b, p);
    ptx_bra(b, loop);
    ptx_shfl_up_b32(b, x, ptx_imm(1), ptx_imm(0), ptx_imm(-1));
}

/* A divergent exit of a loop: lanes that left wait for the others, so only what follows is converged. */
static void warp_wide_in_a_loop_with_an_exit(ptx_builder *b, bool wrong)
{
    ptx_value x = any_r(b), p = any_p(b), loop = ptx_label_new(b, "loop"), out = ptx_label_new(b, "out");
    ptx_label_place(b, loop);
    if (wrong) ptx_bar_warp_sync(b, ptx_imm(-1));
    ptx_guard(b, p);
    ptx_bra(b, out);
    ptx_add_to(b, x, x, ptx_imm(1));
    ptx_bra_uni(b, loop);
    ptx_label_place(b, out);
    ptx_bar_warp_sync(b, ptx_imm(-1));
}

/* Lanes that took the branch are in the other arm, which lies behind its label. */
static void warp_wide_in_the_other_arm(ptx_builder *b, bool wrong)
{
    ptx_value x = any_r(b), p = any_p(b), other = ptx_label_new(b, "other"), end = ptx_label_new(b, "end");
    ptx_guard(b, p);
    ptx_bra(b, other);
    ptx_mov_b32(b, ptx_imm(1));
    ptx_bra(b, end);
    ptx_label_place(b, other);
    if (wrong) ptx_shfl_up_b32(b, x, ptx_imm(1), ptx_imm(0), ptx_imm(-1));
    ptx_label_place(b, end);
    ptx_shfl_up_b32(b, x, ptx_imm(1), ptx_imm(0), ptx_imm(-1));
}

/* Two nested branches: behind the inner one the outer one is still open. */
static void warp_wide_between_two_branches(ptx_builder *b, bool wrong)
{
    ptx_value x = any_r(b), p = any_p(b), inner = ptx_label_new(b, "inner"), outer = ptx_label_new(b, "outer");
    ptx_guard(b, p);
    ptx_bra(b, outer);
    ptx_guard_not(b, p);
    ptx_bra(b, inner);
    ptx_mov_b32(b, ptx_imm(1));
    ptx_label_place(b, inner);
    if (wrong) ptx_shfl_up_b32(b, x, ptx_imm(1), ptx_imm(0), ptx_imm(-1));
    ptx_label_place(b, outer);
    ptx_shfl_up_b32(b, x, ptx_imm(1), ptx_imm(0), ptx_imm(-1));
}

static void warp_wide_after_a_guarded_return(ptx_builder *b, bool wrong)
{
    ptx_value p = any_p(b);
    if (!wrong) ptx_bar_warp_sync(b, ptx_imm(-1));
    ptx_guard(b, p);
    ptx_ret(b);
    if (wrong) ptx_bar_warp_sync(b, ptx_imm(-1));
}

/* Lanes in an endless loop never come back. */
static void warp_wide_beside_an_endless_loop(ptx_builder *b, bool wrong)
{
    ptx_value p = any_p(b), loop = ptx_label_new(b, "loop"), end = ptx_label_new(b, "end");
    ptx_guard(b, p);
    ptx_bra(b, end);
    ptx_label_place(b, loop);
    ptx_mov_b32(b, ptx_imm(1));
    if (wrong) ptx_bra(b, loop);
    ptx_label_place(b, end);
    ptx_bar_warp_sync(b, ptx_imm(-1));
}

static void nothing_at_all(ptx_builder *b, bool wrong)
{
    if (!wrong) ptx_ret(b);
}

typedef struct rule {
    const char *name; /* of the test: what holds */
    void (*make)(ptx_builder *b, bool wrong);
    const char *fault; /* a part of the message */
} rule;

static const rule rules[] = {
    {"offsets_of_vector_loads_are_multiples_of_their_size", vector_offset, "has a misaligned offset"},
    {"offsets_of_vector_stores_are_multiples_of_their_size", vector_offset_of_a_store, "has a misaligned offset"},
    {"offsets_of_loads_are_multiples_of_their_size", scalar_offset, "has a misaligned offset"},
    {"offsets_of_stores_are_multiples_of_their_size", scalar_offset_of_a_store, "has a misaligned offset"},
    {"offsets_of_mbarriers_are_multiples_of_8", offset_of_an_mbarrier, "has a misaligned offset"},
    {"offsets_of_bulk_copies_are_multiples_of_16", source_of_a_bulk_copy, "has a misaligned offset"},
    {"an_offset_belongs_to_an_address", offset_of_a_source, "has an offset outside an address"},
    {"a_parameter_has_no_offset", offset_of_a_parameter, "has an offset outside an address"},
    {"an_offset_has_32_bits", offset_beyond_32_bits, "has an offset of more than 32 bits"},
    {"an_immediate_is_no_larger_than_its_operand", immediate_too_large, "has an immediate too large for its operand"},
    {"an_immediate_is_no_smaller_than_its_operand", immediate_too_small, "has an immediate too large for its operand"},
    {"labels_come_from_the_builder", label_that_does_not_exist, "names something that does not exist"},
    {"parameters_come_from_the_builder", parameter_that_does_not_exist, "names something that does not exist"},
    {"special_registers_are_known", special_that_does_not_exist, "names something that does not exist"},
    {"guards_come_from_the_builder", guard_that_does_not_exist, "is guarded by a predicate that does not exist"},
    {"a_label_takes_no_guard", guard_of_a_label, "is a label and must not be guarded"},
    {"a_product_has_a_multiple_of_8_columns", columns_of_a_product, "has a number of columns that no product has"},
    {"a_wide_product_has_a_multiple_of_16_columns", columns_of_a_wide_product,
     "has a number of columns that no product has"},
    {"setmaxnreg_takes_multiples_of_8", registers_of_setmaxnreg, "no multiple of 8 from 24 to 256"},
    {"setmaxnreg_takes_no_less_than_24", least_registers_of_setmaxnreg, "no multiple of 8 from 24 to 256"},
    {"setmaxnreg_takes_no_more_than_256", most_registers_of_setmaxnreg, "no multiple of 8 from 24 to 256"},
    {"a_block_finds_its_registers", registers_of_a_block, "a block asks for more registers than the target has"},
    {"registers_come_from_the_builder", register_that_does_not_exist, "names a register that does not exist"},
    {"a_label_is_placed_once", label_placed_twice, "is placed twice"},
    {"a_branch_needs_its_label_placed", label_nowhere, "goes to a label that is nowhere"},
    {"scopes_are_closed", scope_not_closed, "a scope was not closed"},
    {"a_kernel_has_instructions", nothing_at_all, "the kernel is empty"},
    {"a_register_is_written_before_it_is_read", read_in_a_straight_line,
     "reads a register that may not have been written"},
    {"an_instruction_reads_before_it_writes", read_by_the_instruction_that_writes_it,
     "reads a register that may not have been written"},
    {"a_register_is_written_on_every_path_past_a_branch", read_after_one_path,
     "reads a register that may not have been written"},
    {"a_register_is_written_in_both_arms_of_a_branch", read_after_two_arms,
     "reads a register that may not have been written"},
    {"a_register_is_written_before_the_first_round_of_a_loop", read_in_the_first_round,
     "reads a register that may not have been written"},
    {"a_guarded_write_does_not_count", read_after_a_guarded_write, "reads a register that may not have been written"},
    {"a_guarded_return_lets_some_threads_pass", read_after_a_guarded_return,
     "reads a register that may not have been written"},
    {"a_guard_is_written_before_it_is_read", guard_never_written, "is guarded by a predicate that was never written"},
    {"an_address_is_written_before_it_is_read", address_never_written,
     "reads a register that may not have been written"},
    {"an_overwriting_product_does_not_read_its_accumulators", product_into_new_accumulators,
     "reads a register that may not have been written"},
    {"an_overwriting_product_reads_its_operands", operand_of_an_overwriting_product,
     "reads a register that may not have been written"},
    {"no_warp_wide_instruction_after_a_divergent_branch", warp_wide_after_a_branch,
     "lies where a warp may have diverged"},
    {"no_warp_wide_instruction_in_a_divergent_loop", warp_wide_in_a_loop, "lies where a warp may have diverged"},
    {"a_warp_converges_behind_a_divergent_loop", warp_wide_behind_a_loop, "lies where a warp may have diverged"},
    {"a_loop_left_by_some_lanes_has_no_warp_wide_instruction", warp_wide_in_a_loop_with_an_exit,
     "lies where a warp may have diverged"},
    {"no_warp_wide_instruction_in_either_arm_of_a_branch", warp_wide_in_the_other_arm,
     "lies where a warp may have diverged"},
    {"an_inner_branch_does_not_converge_the_outer_one", warp_wide_between_two_branches,
     "lies where a warp may have diverged"},
    {"no_warp_wide_instruction_after_a_guarded_return", warp_wide_after_a_guarded_return,
     "lies where a warp may have diverged"},
    {"an_endless_loop_converges_nowhere", warp_wide_beside_an_endless_loop, "lies where a warp may have diverged"},
};

static void check_rule(void **state)
{
    const rule *r = *state;
    for (int wrong = 0; wrong < 2; wrong++) {
        ptx_builder b;
        start(&b);
        r->make(&b, wrong);
        if (b.count) ptx_ret(&b);
        expect_verdict(&b, wrong ? r->fault : NULL);
    }
}

static void a_fault_names_the_instruction_and_its_region(void **state)
{
    (void)state;
    ptx_builder b;
    start(&b);
    ptx_scope_push(&b, "loop");
    ptx_scope_push(&b, "k");
    any_r(&b);
    ptx_add(&b, ptx_reg(&b, PTX_KIND_R), ptx_imm(1));
    ptx_scope_pop(&b);
    ptx_scope_pop(&b);
    ptx_ret(&b);
    expect_verdict(&b, "instruction 1 (add, in 'loop/k')");
}

static void a_list_ends_where_no_path_runs_off_its_end(void **state)
{
    (void)state;
    ptx_builder b;
    start(&b);
    any_r(&b);
    expect_verdict(&b, "is the last one and runs off the end");
    start(&b);
    ptx_guard(&b, any_p(&b));
    ptx_ret(&b);
    expect_verdict(&b, "is the last one and runs off the end");
    start(&b);
    ptx_value loop = ptx_label_new(&b, "loop");
    ptx_label_place(&b, loop);
    ptx_bra(&b, loop);
    expect_verdict(&b, NULL);
}

static void a_guard_is_not_left_over(void **state)
{
    (void)state;
    ptx_builder b;
    start(&b);
    ptx_value p = any_p(&b);
    ptx_ret(&b);
    ptx_guard(&b, p);
    expect_verdict(&b, "a guard is left over at the end");
}

/* ---- Verifier: random branches. The definition of convergence, followed instruction by instruction: a place where the
 * paths of a branch have met is one without which the branch cannot come to an end. ------------------ */

/* Next of a sequence of random numbers (a linear congruence; the high bits are good). */
static uint32_t random_below(uint64_t *state, uint32_t end)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % end);
}

enum { JUMPS = 6, JUMP_LENGTH = 3, JUMP_LIST = 4 + JUMPS * JUMP_LENGTH };

static int next_of(const ptx_builder *b, int at, int next[2])
{
    const ptx_instruction *i = &b->list[at];
    bool branch = i->op == PTX_OP_bra || i->op == PTX_OP_bra_uni;
    int n = 0;
    for (int k = 0; branch && k < (int)b->count; k++)
        if (b->list[k].op == PTX_OP_label && b->values[b->list[k].first].id == b->values[i->first].id) next[n++] = k;
    if ((!branch && i->op != PTX_OP_ret) || i->guard.kind != PTX_KIND_NONE) next[n++] = at + 1;
    return n;
}

/* Marks what can be reached from the successors of `at` without a step onto anything in `closed`. */
static void reach(const ptx_builder *b, int at, const bool *closed, bool *reached)
{
    int next[2];
    for (int k = next_of(b, at, next); k-- > 0;) {
        if (closed[next[k]] || reached[next[k]]) continue;
        reached[next[k]] = true;
        reach(b, next[k], closed, reached);
    }
}

/* A return, or a place that no path leads from to a return. */
static bool is_end(const ptx_builder *b, int at)
{
    bool closed[JUMP_LIST] = {false}, reached[JUMP_LIST] = {false}, returns = false;
    reach(b, at, closed, reached);
    for (int k = 0; k < (int)b->count; k++) returns |= reached[k] && b->list[k].op == PTX_OP_ret;
    return !returns || b->list[at].op == PTX_OP_ret;
}

static bool splits_wrongly(const ptx_builder *b, int split)
{
    bool met[JUMP_LIST] = {false}, reached[JUMP_LIST] = {false}, end[JUMP_LIST];
    for (int k = 0; k < (int)b->count; k++) end[k] = is_end(b, k);
    for (int place = 0; place < (int)b->count; place++) {
        bool closed[JUMP_LIST] = {false}, found[JUMP_LIST] = {false}, ends = end[split];
        closed[place] = true;
        reach(b, split, closed, found);
        for (int k = 0; k < (int)b->count; k++) ends |= found[k] && end[k];
        met[place] = place != split && !ends && (b->list[place].op == PTX_OP_ret || !end[place]);
    }
    reach(b, split, met, reached);
    for (int k = 0; k < (int)b->count; k++)
        if (reached[k] && ptx_ops[b->list[k].op].flags & PTX_FLAG_ALIGNED) return true;
    return false;
}

static void convergence_is_found_as_its_definition_says(void **state)
{
    (void)state;
    uint64_t seed = 5;
    int verdicts[2] = {0};
    for (int round = 0; round < 20000; round++) {
        ptx_builder b;
        ptx_value label[JUMPS];
        start(&b);
        ptx_value p = any_p(&b);
        for (int k = 0; k < JUMPS; k++) label[k] = ptx_label_new(&b, "l");
        for (int k = 0; k < JUMPS; k++) {
            ptx_label_place(&b, label[k]);
            if (random_below(&seed, 4) == 0) ptx_bar_warp_sync(&b, ptx_imm(-1));
            ptx_value to = label[random_below(&seed, JUMPS)];
            uint32_t jump = random_below(&seed, 12); /* 11: none */
            if (jump == 11) continue;
            if (jump > 0) ptx_guard(&b, p);
            if (jump == 1)
                ptx_ret(&b);
            else if (jump < 5)
                ptx_bra(&b, to);
            else
                ptx_bra_uni(&b, to);
        }
        ptx_ret(&b);
        bool wrong = false;
        for (int at = 0; at < (int)b.count; at++)
            wrong |= (b.list[at].op == PTX_OP_bra || b.list[at].op == PTX_OP_ret) &&
                     b.list[at].guard.kind != PTX_KIND_NONE && splits_wrongly(&b, at);
        verdicts[wrong]++;
        expect_verdict(&b, wrong ? "lies where a warp may have diverged" : NULL);
    }
    print_message("%d lists converge, %d do not\n", verdicts[0], verdicts[1]);
    assert_true(verdicts[0] > 2000 && verdicts[1] > 2000);
}

/* ---- Verifier: mutations of real kernels
 * --------------------------------------------------------------------------------------------- */

static const char *const kernels[] = {
    "sm_90a-k2t128-v2t128-d128-h8-p64",
    "sm_90a-k4t128-v4t128-d128-h8-p64",
    "sm_90a-k2t64-v4t64-d64-h1-p128",
    "sm_90a-k2t256-v2t256-d256-h16-p256",
};

static void build_kernel(const char *spec, ptx_builder *b)
{
    config cfg;
    decode_plan plan;
    gen_error err = {""};
    assert_true(config_parse(spec, &cfg, &err));
    assert_true(decode_plan_make(&cfg, &plan, &err));
    ptx_builder_init(b, cfg.target, "kernel", plan.threads, plan.entry_registers);
    decode_hopper_emit(b, &plan);
    assert_false(b->failed);
    if (!ptx_verify(b, &err)) fail_msg("%s: %s", spec, err.message);
}

static bool same_register(const ptx_value *x, const ptx_value *y)
{
    return x->kind == y->kind && x->id == y->id && x->kind >= PTX_KIND_P && x->kind <= PTX_KIND_L;
}

/* What one instruction does to a register. */
static void uses_of(const ptx_builder *b, const ptx_instruction *i, const ptx_value *x, bool *reads, bool *writes)
{
    ptx_operand operand[8];
    int n = ptx_operands(b, i, operand);
    const ptx_value *last = &b->values[i->first + i->operands - (i->operands > 0)];
    bool fresh = (i->op == PTX_OP_wgmma_u8_s8 || i->op == PTX_OP_wgmma_u8_u8) && same_register(last, &b->no);
    *reads = same_register(&i->guard, x);
    *writes = false;
    for (int k = 0; k < n; k++)
        for (int e = 0; e < operand[k].length; e++) {
            if (!same_register(&operand[k].value[e], x)) continue;
            *reads |= operand[k].read && !(operand[k].written && fresh);
            *writes |= operand[k].written && i->guard.kind == PTX_KIND_NONE;
        }
}

/* Follows every path from the first instruction to a read of x with no write before it: a search over single
   instructions, where the verifier solves equations over blocks. */
typedef struct walk {
    size_t *place; /* of each label */
    size_t *todo;
    bool *seen;
} walk;

static bool reaches_read(const ptx_builder *b, walk *w, const ptx_value *x)
{
    size_t todo = 0;
    memset(w->seen, 0, b->count * sizeof *w->seen);
    w->todo[todo++] = 0;
    while (todo > 0) {
        for (size_t at = w->todo[--todo]; at < b->count && !w->seen[at];) {
            const ptx_instruction *i = &b->list[at];
            bool reads, writes;
            w->seen[at] = true;
            uses_of(b, i, x, &reads, &writes);
            if (reads) return true;
            if (writes) break;
            bool guarded = i->guard.kind != PTX_KIND_NONE;
            if (i->op == PTX_OP_bra || i->op == PTX_OP_bra_uni) {
                w->todo[todo++] = w->place[b->values[i->first].id];
                if (!guarded) break;
            } else if (i->op == PTX_OP_ret && !guarded) {
                break;
            }
            at++;
        }
    }
    return false;
}

static void find_places(const ptx_builder *b, walk *w)
{
    for (size_t at = 0; at < b->count; at++)
        if (b->list[at].op == PTX_OP_label) w->place[b->values[b->list[at].first].id] = at;
}

static walk walk_start(const ptx_builder *b)
{
    walk w = {calloc((size_t)b->labels + 1, sizeof *w.place), calloc(2 * b->count, sizeof *w.todo),
              calloc(b->count, sizeof *w.seen)};
    assert_true(w.place && w.todo && w.seen);
    find_places(b, &w);
    return w;
}

static void walk_finish(walk *w)
{
    free(w->place);
    free(w->todo);
    free(w->seen);
}

/* Whether some result of an instruction that was taken out or guarded is now read where nothing may have written it. */
static bool misses_result(const ptx_builder *b, walk *w, const ptx_instruction *gone)
{
    ptx_operand operand[8];
    int n = ptx_operands(b, gone, operand);
    for (int k = 0; k < n; k++)
        for (int e = 0; operand[k].written && e < operand[k].length; e++)
            if (reaches_read(b, w, &operand[k].value[e])) return true;
    return false;
}

static bool defines(const ptx_builder *b, const ptx_instruction *i)
{
    ptx_operand operand[8];
    int n = ptx_operands(b, i, operand);
    for (int k = 0; k < n; k++)
        if (operand[k].written) return true;
    return false;
}

static void expect_report(const ptx_builder *b, bool missing, size_t at, const ptx_instruction *changed)
{
    gen_error err = {""};
    bool good = ptx_verify(b, &err);
    if (good == missing)
        fail_msg("instruction %zu (%s): result %s, yet the verifier says '%s'", at, ptx_ops[changed->op].id,
                 missing ? "is missed" : "is not missed", good ? "no fault" : err.message);
    if (missing)
        assert_true(strstr(err.message, "may not have been written") || strstr(err.message, "was never written"));
}

enum { SAMPLE = 7 }; /* one defining instruction of so many */

static void deleted_definitions_are_reported_if_their_results_are_read(void **state)
{
    (void)state;
    int deleted = 0, reported = 0;
    uint64_t seed = 1;
    for (int k = 0; k < COUNT(kernels); k++) {
        ptx_builder b;
        build_kernel(kernels[k], &b);
        walk w = walk_start(&b);
        for (size_t at = random_below(&seed, SAMPLE); at < b.count; at += SAMPLE) {
            ptx_instruction gone = b.list[at];
            if (!defines(&b, &gone)) continue;
            b.count--;
            memmove(&b.list[at], &b.list[at + 1], (b.count - at) * sizeof *b.list);
            find_places(&b, &w);
            bool missing = misses_result(&b, &w, &gone);
            expect_report(&b, missing, at, &gone);
            memmove(&b.list[at + 1], &b.list[at], (b.count - at) * sizeof *b.list);
            b.list[at] = gone;
            b.count++;
            deleted++;
            reported += missing;
        }
        walk_finish(&w);
        gen_error err = {""};
        assert_true(ptx_verify(&b, &err)); /* all is back in place */
        ptx_builder_finish(&b);
    }
    print_message("%d definitions deleted, %d of them reported\n", deleted, reported);
    assert_true(deleted > 500 && reported > deleted * 3 / 4);
}

static void guarded_definitions_are_reported_if_their_results_are_read(void **state)
{
    (void)state;
    int guarded = 0;
    uint64_t seed = 2;
    for (int k = 0; k < COUNT(kernels); k++) {
        ptx_builder b;
        build_kernel(kernels[k], &b);
        walk w = walk_start(&b);
        for (size_t at = 3 + random_below(&seed, SAMPLE); at < b.count; at += SAMPLE) { /* after ptx_constants */
            ptx_instruction *i = &b.list[at], before = *i;
            if (!defines(&b, i) || i->guard.kind != PTX_KIND_NONE || ptx_ops[i->op].flags & PTX_FLAG_ALIGNED) continue;
            i->guard = b.yes;
            expect_report(&b, misses_result(&b, &w, i), at, i);
            *i = before;
            guarded++;
        }
        walk_finish(&w);
        ptx_builder_finish(&b);
    }
    assert_true(guarded > 500);
}

static void operands_replaced_by_unwritten_registers_are_reported(void **state)
{
    (void)state;
    uint64_t seed = 3;
    int replaced = 0;
    for (int k = 0; k < COUNT(kernels); k++) {
        ptx_builder b;
        build_kernel(kernels[k], &b);
        for (size_t at = random_below(&seed, SAMPLE); at < b.count; at += SAMPLE) {
            ptx_operand operand[8];
            int n = ptx_operands(&b, &b.list[at], operand);
            for (int o = 0; o < n; o++) {
                ptx_value *x = &b.values[operand[o].value - b.values], before = *x;
                if (operand[o].written || x->kind < PTX_KIND_P || x->kind > PTX_KIND_L) continue;
                x->id = b.registers[x->kind]++;
                gen_error err = {""};
                assert_false(ptx_verify(&b, &err));
                assert_non_null(strstr(err.message, "may not have been written"));
                b.registers[x->kind]--;
                *x = before;
                replaced++;
            }
        }
        ptx_builder_finish(&b);
    }
    assert_true(replaced > 1000);
}

/* Changes one thing of one instruction at random; what it then refers to may not exist. */
static void mutate(ptx_builder *b, ptx_instruction *i, uint64_t *seed)
{
    ptx_value *x = i->operands ? &b->values[i->first + random_below(seed, i->operands)] : NULL;
    switch (random_below(seed, x ? 7 : 5)) {
    case 0:
        i->op = (uint16_t)random_below(seed, PTX_OP_COUNT);
        break;
    case 1:
        i->vector = (uint16_t)random_below(seed, 70);
        break;
    case 2:
        i->operands = (uint16_t)random_below(seed, i->operands + 2u);
        break;
    case 3:
        i->guard = i->guard.kind ? (ptx_value){0} : b->yes;
        break;
    case 4:
        i->guard =
            (ptx_value){.kind = (uint8_t)random_below(seed, PTX_KINDS + 1), .id = random_below(seed, UINT32_MAX)};
        break;
    case 5:
        if (x->kind >= PTX_KIND_P && x->kind <= PTX_KIND_L)
            x->id = random_below(seed, b->registers[x->kind] + 9);
        else
            x->imm = (int64_t)random_below(seed, UINT32_MAX) - INT32_MAX;
        break;
    default:
        x->kind = (uint8_t)random_below(seed, PTX_KINDS + 1);
        x->id = random_below(seed, 2) ? 0 : random_below(seed, UINT32_MAX);
    }
}

static void random_mutations_never_crash_the_passes(void **state)
{
    (void)state;
    static kernel_counts counts;
    uint64_t seed = 4;
    int refused = 0;
    for (int k = 0; k < COUNT(kernels); k++) {
        ptx_builder b;
        build_kernel(kernels[k], &b);
        ptx_value *values = malloc(b.value_count * sizeof *values);
        assert_non_null(values);
        memcpy(values, b.values, b.value_count * sizeof *values);
        for (int round = 0; round < 250; round++) {
            size_t at = random_below(&seed, (uint32_t)b.count - 1); /* the last one's values have none behind them */
            ptx_instruction before = b.list[at];
            gen_error err = {""};
            size_t length = 0;
            mutate(&b, &b.list[at], &seed);
            if (!ptx_verify(&b, &err)) {
                refused++;
                assert_true(strlen(err.message) > 0 && strchr(err.message, '\n') == NULL);
            } else if (round % 10 == 0) {
                free(ptx_print(&b, &length, &err));
            }
            ptx_count(&b, &counts);
            b.list[at] = before;
            memcpy(b.values + before.first, values + before.first, before.operands * sizeof *values);
        }
        free(values);
        gen_error err = {""};
        assert_true(ptx_verify(&b, &err));
        ptx_builder_finish(&b);
    }
    assert_true(refused > 500);
}

int main(void)
{
    const struct CMUnitTest others[] = {
        cmocka_unit_test(a_fault_names_the_instruction_and_its_region),
        cmocka_unit_test(a_list_ends_where_no_path_runs_off_its_end),
        cmocka_unit_test(a_guard_is_not_left_over),
        cmocka_unit_test(convergence_is_found_as_its_definition_says),
        cmocka_unit_test(deleted_definitions_are_reported_if_their_results_are_read),
        cmocka_unit_test(guarded_definitions_are_reported_if_their_results_are_read),
        cmocka_unit_test(operands_replaced_by_unwritten_registers_are_reported),
        cmocka_unit_test(random_mutations_never_crash_the_passes),
    };
    struct CMUnitTest tests[COUNT(others) + COUNT(rules)];
    memcpy(tests, others, sizeof others);
    for (int i = 0; i < COUNT(rules); i++)
        tests[COUNT(others) + i] =
            (struct CMUnitTest){.name = rules[i].name, .test_func = check_rule, .initial_state = (void *)&rules[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
