/* The PTX list: what the builder appends, the printer writes and the counter counts; and each row of the table of
 * instructions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx.h"
#include "ptx_fixture.h"

static const target plain_target = {.name = "sm_90", .ptx_major = 8, .ptx_minor = 0, .registers = 65536};

/* ---- Printer
 * -------------------------------------------------------------------------------------------------------------------------
 */

static char *print(const ptx_builder *b)
{
    size_t length = 0;
    gen_error err = {""};
    char *text = ptx_print(b, &length, &err);
    assert_non_null(text);
    assert_int_equal(strlen(text), length);
    return text;
}

/* Compares what follows the declarations, the last brace left out. */
static void expect_body(ptx_builder *b, const char *body)
{
    char *text = print(b), *begin = strstr(text, "{\n") + 2;
    for (char *line = begin; strncmp(line, "    .reg", 8) == 0; line = begin) begin = strchr(line, '\n') + 1;
    size_t length = strlen(begin);
    assert_true(length >= 2 && strcmp(begin + length - 2, "}\n") == 0);
    begin[length - 2] = '\0';
    assert_string_equal(begin, body);
    free(text);
    ptx_builder_finish(b);
}

static void a_kernel_prints_as_a_whole_module(void **state)
{
    (void)state;
    ptx_builder b;
    start(&b);
    ptx_value x = ptx_param(&b, "param_x", 8), n = ptx_param(&b, "param_n", 4);
    ptx_scope_push(&b, "store");
    ptx_value address = ptx_ld_param_b64(&b, x), count = ptx_ld_param_b32(&b, n);
    ptx_st_global_b32(&b, ptx_at(address, 12), count);
    ptx_ret(&b);
    ptx_scope_pop(&b);
    gen_error err = {""};
    assert_true(ptx_verify(&b, &err));
    char *text = print(&b), expected[1024];
    snprintf(expected, sizeof expected,
             ".version %d.%d\n"
             ".target sm_90a\n"
             ".address_size 64\n"
             "\n"
             ".extern .shared .align 1024 .b8 shared_base[];\n"
             "\n"
             ".visible .entry kernel(\n"
             "    .param .b64 param_x,\n"
             "    .param .b32 param_n\n"
             ")\n"
             ".reqntid 128, 1, 1\n"
             ".maxnreg 64\n"
             "{\n"
             "    .reg .b32 %%r<1>;\n"
             "    .reg .b64 %%l<1>;\n"
             "    // store\n"
             "    ld.param.b64 %%l0, [param_x];\n"
             "    ld.param.b32 %%r0, [param_n];\n"
             "    st.global.b32 [%%l0+12], %%r0;\n"
             "    ret;\n"
             "}\n",
             b.target->ptx_major, b.target->ptx_minor);
    assert_string_equal(text, expected);
    free(text);
    ptx_builder_finish(&b);
}

static void immediates_print_exactly(void **state)
{
    (void)state;
    ptx_builder b;
    start(&b);
    ptx_scope_push(&b, "s");
    ptx_value x = ptx_mov_b32(&b, ptx_imm(-1));
    ptx_and(&b, x, ptx_imm(0xc0c0c0c0));
    ptx_mov_b64(&b, ptx_imm(INT64_C(0x0123456789abcdef)));
    ptx_mov_f32(&b, ptx_fimm(1.0f));
    ptx_mov_f32(&b, ptx_fimm(-0.0f));
    ptx_mov_f32(&b, ptx_fimm(-INFINITY));
    ptx_mov_f32(&b, ptx_fimm(0x1p-149f));
    expect_body(&b, "    // s\n"
                    "    mov.b32 %r0, -1;\n"
                    "    and.b32 %r1, %r0, 3233857728;\n"
                    "    mov.b64 %l0, 81985529216486895;\n"
                    "    mov.f32 %f0, 0f3F800000;\n"
                    "    mov.f32 %f1, 0f80000000;\n"
                    "    mov.f32 %f2, 0fFF800000;\n"
                    "    mov.f32 %f3, 0f00000001;\n");
}

static void a_guard_holds_for_one_instruction(void **state)
{
    (void)state;
    ptx_builder b;
    start(&b);
    ptx_scope_push(&b, "s");
    ptx_value p = any_p(&b), x = any_r(&b);
    ptx_guard(&b, p);
    ptx_add_to(&b, x, x, ptx_imm(1));
    ptx_guard_not(&b, p);
    ptx_add_to(&b, x, x, ptx_imm(2));
    ptx_add_to(&b, x, x, ptx_imm(3));
    expect_body(&b, "    // s\n"
                    "    mov.b32 %r0, 7;\n"
                    "    setp.eq.u32 %p0, %r0, 7;\n"
                    "    mov.b32 %r1, 7;\n"
                    "    @%p0 add.s32 %r1, %r1, 1;\n"
                    "    @!%p0 add.s32 %r1, %r1, 2;\n"
                    "    add.s32 %r1, %r1, 3;\n");
}

static void vectors_and_addresses_print_in_brackets(void **state)
{
    (void)state;
    ptx_builder b;
    start(&b);
    ptx_scope_push(&b, "s");
    ptx_value shared = ptx_mov_special(&b, ptx_sreg(PTX_SPECIAL_SHARED_BASE)), words[4], pair[2], halves[2];
    ptx_ld_shared_v4(&b, words, ptx_at(shared, 32));
    ptx_ld_shared_v2(&b, pair, shared);
    ptx_st_shared_v2(&b, ptx_at(ptx_at(shared, 8), -16), pair);
    ptx_split_b32(&b, halves, words[3]);
    ptx_join_b64(&b, pair);
    expect_body(&b, "    // s\n"
                    "    mov.u32 %r0, shared_base;\n"
                    "    ld.shared.v4.b32 {%r1, %r2, %r3, %r4}, [%r0+32];\n"
                    "    ld.shared.v2.b32 {%r5, %r6}, [%r0];\n"
                    "    st.shared.v2.b32 [%r0+-8], {%r5, %r6};\n"
                    "    mov.b32 {%h0, %h1}, %r4;\n"
                    "    mov.b64 %l0, {%r5, %r6};\n");
}

static void labels_print_with_unique_names(void **state)
{
    (void)state;
    ptx_builder b;
    start(&b);
    ptx_scope_push(&b, "s");
    ptx_value first = ptx_label_new(&b, "loop"), second = ptx_label_new(&b, "loop");
    ptx_label_place(&b, first);
    ptx_bra(&b, second);
    ptx_label_place(&b, second);
    ptx_bra_uni(&b, first);
    expect_body(&b, "    // s\n"
                    "loop_0:\n"
                    "    bra loop_1;\n"
                    "loop_1:\n"
                    "    bra.uni loop_0;\n");
}

static void sinks_are_part_of_the_mnemonic(void **state)
{
    (void)state;
    ptx_builder b;
    start(&b);
    ptx_scope_push(&b, "s");
    ptx_value shared = ptx_mov_special(&b, ptx_sreg(PTX_SPECIAL_SHARED_BASE));
    ptx_mbarrier_arrive(&b, ptx_at(shared, 8));
    ptx_elect(&b);
    expect_body(&b, "    // s\n"
                    "    mov.u32 %r0, shared_base;\n"
                    "    mbarrier.arrive.shared.b64 _, [%r0+8];\n"
                    "    elect.sync _|%p0, -1;\n");
}

static void a_product_names_its_columns(void **state)
{
    (void)state;
    for (int n = 4; n <= 64; n += 4) {
        ptx_builder b;
        start(&b);
        ptx_constants(&b);
        ptx_value acc[64], a[4];
        for (int i = 0; i < n; i++) acc[i] = ptx_reg(&b, PTX_KIND_R);
        for (int i = 0; i < 4; i++) a[i] = any_r(&b);
        ptx_wgmma(&b, PTX_OP_wgmma_u8_s8, acc, n, a, any_l(&b), false);
        assert_false(b.failed);
        char *text = print(&b), expected[128], last[128];
        snprintf(expected, sizeof expected, "\n    wgmma.mma_async.sync.aligned.m64n%dk32.s32.u8.s8 {%%r1, %%r2, ",
                 2 * n);
        snprintf(last, sizeof last, ", %%r%d}, {%%r%d, %%r%d, %%r%d, %%r%d}, %%l0, %%p0;\n", n, n + 1, n + 2, n + 3,
                 n + 4);
        char *line = strstr(text, expected);
        assert_non_null(line);
        assert_non_null(strstr(line, last));
        free(text);
        ptx_builder_finish(&b);
    }
}

static void regions_print_where_they_change(void **state)
{
    (void)state;
    ptx_builder b;
    start(&b);
    ptx_scope_push(&b, "loop");
    ptx_value x = any_r(&b);
    ptx_scope_push(&b, "k");
    ptx_add(&b, x, x);
    ptx_add(&b, x, x);
    ptx_scope_pop(&b);
    ptx_add(&b, x, x);
    ptx_scope_push(&b, "k");
    ptx_scope_push(&b, "scale");
    ptx_add(&b, x, x);
    expect_body(&b, "    // loop\n"
                    "    mov.b32 %r0, 7;\n"
                    "    // loop/k\n"
                    "    add.s32 %r1, %r0, %r0;\n"
                    "    add.s32 %r2, %r0, %r0;\n"
                    "    // loop\n"
                    "    add.s32 %r3, %r0, %r0;\n"
                    "    // loop/k/scale\n"
                    "    add.s32 %r4, %r0, %r0;\n");
}

/* The root of the scopes is no region of its own: no comment at the beginning, the entry's name where it goes on. */
static void the_root_prints_no_comment_before_the_first_scope(void **state)
{
    (void)state;
    ptx_builder b;
    start(&b);
    ptx_value x = any_r(&b);
    ptx_scope_push(&b, "loop");
    ptx_add(&b, x, x);
    ptx_scope_pop(&b);
    ptx_add(&b, x, x);
    expect_body(&b, "    mov.b32 %r0, 7;\n"
                    "    // loop\n"
                    "    add.s32 %r1, %r0, %r0;\n"
                    "    // kernel\n"
                    "    add.s32 %r2, %r0, %r0;\n");
}

static void numbers_print_as_the_c_library_prints_them(void **state)
{
    (void)state;
    static const int64_t numbers[] = {0, 9, 10, -10, UINT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
    for (int i = 0; i < COUNT(numbers); i++) {
        ptx_builder b;
        char line[64];
        start(&b);
        ptx_mov_b64(&b, ptx_imm(numbers[i]));
        snprintf(line, sizeof line, "    mov.b64 %%l0, %lld;\n", (long long)numbers[i]);
        expect_body(&b, line);
    }
}

/* ---- Errors stick
 * --------------------------------------------------------------------------------------------------------------------
 */

static void too_many_pops(ptx_builder *b)
{
    ptx_scope_pop(b);
}

static void scopes_too_deep(ptx_builder *b)
{
    for (int i = 0; i < PTX_SCOPE_DEPTH; i++) ptx_scope_push(b, "s");
}

static void too_many_regions(ptx_builder *b)
{
    for (int i = 0; i < PTX_REGIONS_MAX; i++) {
        char name[16];
        snprintf(name, sizeof name, "s%d", i);
        ptx_scope_push(b, name);
        ptx_scope_pop(b);
    }
}

static void too_many_labels(ptx_builder *b)
{
    for (int i = 0; i <= PTX_LABELS_MAX; i++) ptx_label_new(b, "label");
}

static void too_many_parameters(ptx_builder *b)
{
    for (int i = 0; i <= PTX_PARAMS_MAX; i++) ptx_param(b, "param", 8);
}

static void two_guards(ptx_builder *b)
{
    ptx_value p = any_p(b);
    ptx_guard(b, p);
    ptx_guard(b, p);
}

static void guard_of_a_number(ptx_builder *b)
{
    ptx_guard_not(b, any_r(b));
}

static void product_too_wide(ptx_builder *b)
{
    ptx_value acc[65], a[4];
    for (int i = 0; i < 65; i++) acc[i] = any_r(b);
    for (int i = 0; i < 4; i++) a[i] = any_r(b);
    ptx_wgmma(b, PTX_OP_wgmma_u8_u8, acc, 65, a, any_l(b), true);
}

static void division_by_three(ptx_builder *b)
{
    ptx_div_power(b, any_r(b), 3);
}

static const struct {
    void (*make)(ptx_builder *b);
    const char *message;
} builder_errors[] = {
    {too_many_pops, "popped that was not pushed"},
    {scopes_too_deep, "scopes nest too deep at s"},
    {too_many_regions, "too many regions at s95"},
    {too_many_labels, "too many labels at label"},
    {too_many_parameters, "too many parameters at param"},
    {two_guards, "bad guard"},
    {guard_of_a_number, "bad guard"},
    {product_too_wide, "accumulator too long for wgmma_u8_u8"},
    {division_by_three, "no power of two"},
};

static void the_first_error_sticks_and_nothing_more_is_emitted(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(builder_errors); i++) {
        ptx_builder b;
        start(&b);
        any_r(&b);
        builder_errors[i].make(&b);
        assert_true(b.failed);
        gen_error first = b.error, err = {""};
        assert_non_null(strstr(first.message, builder_errors[i].message));
        assert_non_null(strstr(first.message, "kernel")); /* which kernel */
        size_t count = b.count, values = b.value_count;
        any_r(&b);
        for (int k = 0; k < COUNT(builder_errors); k++) builder_errors[k].make(&b);
        assert_int_equal(b.count, count);
        assert_int_equal(b.value_count, values);
        assert_string_equal(b.error.message, first.message);
        assert_false(ptx_verify(&b, &err));
        assert_string_equal(err.message, first.message);
        ptx_builder_finish(&b);
    }
}

static void a_finished_builder_may_be_finished_again(void **state)
{
    (void)state;
    ptx_builder b;
    start(&b);
    any_r(&b);
    ptx_builder_finish(&b);
    ptx_builder_finish(&b);
    ptx_builder_finish(NULL);
}

/* ---- The table of instructions
 * ------------------------------------------------------------------------------------------------------- */

static ptx_value register_of(ptx_builder *b, ptx_kind kind)
{
    ptx_value halves[2];
    switch (kind) {
    case PTX_KIND_P:
        return any_p(b);
    case PTX_KIND_F:
        return any_f(b);
    case PTX_KIND_L:
        return any_l(b);
    case PTX_KIND_H:
        ptx_split_b32(b, halves, any_r(b));
        return halves[1];
    default:
        return any_r(b);
    }
}

/* An operand that fits a class letter; with `immediate`, an immediate where the class allows one. */
static ptx_value operand_of(ptx_builder *b, char class, bool immediate)
{
    switch (class) {
    case 'p':
        return register_of(b, PTX_KIND_P);
    case 'h':
        return register_of(b, PTX_KIND_H);
    case 'f':
        return register_of(b, PTX_KIND_F);
    case 'F':
        return immediate ? ptx_fimm(2) : register_of(b, PTX_KIND_F);
    case 'l':
    case 'G':
        return register_of(b, PTX_KIND_L);
    case 'L':
        return immediate ? ptx_imm(2) : register_of(b, PTX_KIND_L);
    case 'R':
        return immediate ? ptx_imm(2) : register_of(b, PTX_KIND_R);
    case '#':
        return ptx_imm(32); /* setmaxnreg takes no less than 24 */
    case 'A':
        return ptx_param(b, "param_any", 8);
    case '@':
        return ptx_label_new(b, "target");
    case '%':
        return ptx_sreg(PTX_SPECIAL_TID_X);
    default:
        return register_of(b, PTX_KIND_R);
    }
}

/* Operands of a row, from its signature alone. Returns their number. */
static int operands_of(ptx_builder *b, ptx_op op, bool immediate, ptx_value out[32], int *vector)
{
    int n = 0;
    *vector = 0;
    for (const char *t = ptx_ops[op].operands; *t; t++) {
        if (*t == ' ' || *t == '=' || *t == '+') continue;
        int length = 1;
        if (*t == '*')
            length = *vector = 8, t++;
        else if (*t >= '2' && *t <= '9')
            length = *t++ - '0';
        for (int i = 0; i < length; i++) out[n++] = operand_of(b, *t, immediate);
    }
    return n;
}

/* Starts a list that holds one instruction of the row after what defines its operands; `spoil` < 0, or the operand to
 * make of a kind that no class takes. */
static void one_instruction(ptx_builder *b, const target *machine, ptx_op op, bool immediate, int spoil, int missing)
{
    ptx_value all[32];
    int vector;
    ptx_builder_init(b, machine, "kernel", 128, 64);
    ptx_constants(b);
    int n = operands_of(b, op, immediate, all, &vector);
    ptx_value target_label = n > 0 ? all[0] : (ptx_value){0};
    if (spoil >= 0) all[spoil].kind = all[spoil].kind == PTX_KIND_H ? PTX_KIND_P : PTX_KIND_H, all[spoil].id = 0;
    ptx_emit(b, op, all, n - missing, vector);
    if (target_label.kind == PTX_KIND_LABEL && op != PTX_OP_label) ptx_label_place(b, target_label);
    ptx_ret(b);
}

static int operand_count(ptx_op op)
{
    ptx_builder b;
    ptx_value all[32];
    int vector;
    start(&b);
    int n = operands_of(&b, op, false, all, &vector);
    ptx_builder_finish(&b);
    return n;
}

static void every_row_verifies_with_the_operands_it_names(void **state)
{
    (void)state;
    for (int op = 0; op < PTX_OP_COUNT; op++)
        for (int immediate = 0; immediate < 2; immediate++) {
            ptx_builder b;
            one_instruction(&b, target_find("sm_90a"), (ptx_op)op, immediate, -1, 0);
            char *text = print(&b);
            size_t length = strcspn(ptx_ops[op].mnemonic, "%");
            char mnemonic[96];
            snprintf(mnemonic, sizeof mnemonic, "\n    %.*s", (int)length, ptx_ops[op].mnemonic);
            assert_true(op == PTX_OP_label || strstr(text, mnemonic) != NULL);
            free(text);
            expect_verdict(&b, NULL);
        }
}

static void every_row_is_refused_with_another_number_of_operands(void **state)
{
    (void)state;
    for (int op = 0; op < PTX_OP_COUNT; op++) {
        ptx_builder b;
        int n = operand_count((ptx_op)op);
        for (int missing = -1; missing <= 1; missing += 2) {
            if (missing > n) continue;
            one_instruction(&b, target_find("sm_90a"), (ptx_op)op, false, -1, missing);
            expect_verdict(&b, "has the wrong number of operands");
        }
    }
}

static void every_row_is_refused_with_an_operand_of_another_kind(void **state)
{
    (void)state;
    for (int op = 0; op < PTX_OP_COUNT; op++)
        for (int i = 0; i < operand_count((ptx_op)op); i++) {
            ptx_builder b;
            one_instruction(&b, target_find("sm_90a"), (ptx_op)op, false, i, 0);
            expect_verdict(&b, "has an operand of the wrong kind");
        }
}

static void rows_marked_so_need_an_architecture_specific_target(void **state)
{
    (void)state;
    int marked = 0;
    for (int op = 0; op < PTX_OP_COUNT; op++) {
        ptx_builder b;
        bool special = ptx_ops[op].flags & PTX_FLAG_ACCEL;
        marked += special;
        one_instruction(&b, &plain_target, (ptx_op)op, false, -1, 0);
        expect_verdict(&b, special ? "needs an architecture-specific target" : NULL);
        /* and those alone are what PTX keeps for such targets */
        assert_int_equal(special, strncmp(ptx_ops[op].mnemonic, "wgmma", 5) == 0 ||
                                      strncmp(ptx_ops[op].mnemonic, "setmaxnreg", 10) == 0);
    }
    assert_true(marked > 0);
}

static void warp_wide_rows_must_not_be_guarded(void **state)
{
    (void)state;
    for (int op = 0; op < PTX_OP_COUNT; op++) {
        ptx_builder b;
        if (op == PTX_OP_label) continue;
        bool aligned = ptx_ops[op].flags & PTX_FLAG_ALIGNED;
        one_instruction(&b, target_find("sm_90a"), (ptx_op)op, false, -1, 0);
        for (size_t i = 0; i < b.count; i++)
            if (b.list[i].op == op && b.list[i].guard.kind == PTX_KIND_NONE && i > 2 &&
                (op != PTX_OP_ret || i + 1 < b.count))
                b.list[i].guard = b.yes;
        if (aligned)
            expect_verdict(&b, "is warp-wide and must not be guarded");
        else
            ptx_builder_finish(&b);
        /* PTX names what needs a converged warp */
        if (strstr(ptx_ops[op].mnemonic, ".aligned") || strstr(ptx_ops[op].mnemonic, ".sync.") ||
            strncmp(ptx_ops[op].mnemonic, "elect", 5) == 0)
            assert_true(aligned);
    }
}

/* ---- Counter
 * -------------------------------------------------------------------------------------------------------------------------
 */

static void instructions_are_counted_by_region_and_class(void **state)
{
    (void)state;
    ptx_builder b;
    start(&b);
    ptx_scope_push(&b, "loop");
    ptx_value x = any_r(&b), f = any_f(&b), label = ptx_label_new(&b, "here");
    ptx_label_place(&b, label); /* no instruction */
    ptx_scope_push(&b, "scale");
    ptx_mul_f32(&b, f, f);
    ptx_fma_f32(&b, f, f, f);
    ptx_ex2(&b, f);
    ptx_cvt_f32_s32(&b, x);
    ptx_scope_pop(&b);
    ptx_st_shared_b32(&b, x, x);
    ptx_bra(&b, label);
    ptx_scope_pop(&b);
    ptx_scope_push(&b, "other");
    ptx_scope_push(&b, "scale");
    ptx_mul_f32(&b, f, f);
    ptx_scope_pop(&b);
    ptx_scope_pop(&b);
    ptx_ret(&b);
    static kernel_counts counts;
    ptx_count(&b, &counts);
    assert_int_equal(counts.regions, 5);
    const char *paths[] = {"", "loop", "loop/scale", "other", "other/scale"};
    const int totals[] = {1, 4, 4, 0, 1};
    for (int r = 0; r < 5; r++) {
        assert_string_equal(counts.region[r].region, paths[r]);
        assert_int_equal(counts.region[r].total, totals[r]);
    }
    assert_int_equal(counts.region[1].by_class[PTX_CLASS_ALU], 2);
    assert_int_equal(counts.region[1].by_class[PTX_CLASS_SHARED], 1);
    assert_int_equal(counts.region[1].by_class[PTX_CLASS_BRANCH], 1);
    assert_int_equal(counts.region[2].by_class[PTX_CLASS_FMA], 2);
    assert_int_equal(counts.region[2].by_class[PTX_CLASS_MUFU], 1);
    assert_int_equal(counts.region[2].by_class[PTX_CLASS_CONVERT], 1);
    assert_int_equal(counts.region[4].by_class[PTX_CLASS_FMA], 1);
    assert_int_equal(counts.sum.by_class[PTX_CLASS_FMA], 3);
    assert_int_equal(counts.sum.total, 10);
    ptx_builder_finish(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kernel_prints_as_a_whole_module),
        cmocka_unit_test(immediates_print_exactly),
        cmocka_unit_test(a_guard_holds_for_one_instruction),
        cmocka_unit_test(vectors_and_addresses_print_in_brackets),
        cmocka_unit_test(labels_print_with_unique_names),
        cmocka_unit_test(sinks_are_part_of_the_mnemonic),
        cmocka_unit_test(a_product_names_its_columns),
        cmocka_unit_test(regions_print_where_they_change),
        cmocka_unit_test(the_root_prints_no_comment_before_the_first_scope),
        cmocka_unit_test(numbers_print_as_the_c_library_prints_them),
        cmocka_unit_test(the_first_error_sticks_and_nothing_more_is_emitted),
        cmocka_unit_test(a_finished_builder_may_be_finished_again),
        cmocka_unit_test(every_row_verifies_with_the_operands_it_names),
        cmocka_unit_test(every_row_is_refused_with_another_number_of_operands),
        cmocka_unit_test(every_row_is_refused_with_an_operand_of_another_kind),
        cmocka_unit_test(rows_marked_so_need_an_architecture_specific_target),
        cmocka_unit_test(warp_wide_rows_must_not_be_guarded),
        cmocka_unit_test(instructions_are_counted_by_region_and_class),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
