/* The PTX list: what the builder appends, the printer writes and the counter counts; and the verifier, by small lists
 * that differ in one thing and by mutations of real kernels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode_hopper.h"
#include "ptx.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static const target plain_target = {.name = "sm_90", .ptx_major = 8, .ptx_minor = 0};

static void start(ptx_builder *b)
{
    ptx_builder_init(b, target_find("sm_90a"), "kernel", 128, 64);
}

static ptx_value any_r(ptx_builder *b)
{
    return ptx_mov_b32(b, ptx_imm(7));
}
static ptx_value any_l(ptx_builder *b)
{
    return ptx_mov_b64(b, ptx_imm(7));
}
static ptx_value any_f(ptx_builder *b)
{
    return ptx_mov_f32(b, ptx_fimm(1));
}
static ptx_value any_p(ptx_builder *b)
{
    return ptx_setp_eq(b, any_r(b), ptx_imm(7));
}

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
        return ptx_imm(16);
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

static void expect_verdict(ptx_builder *b, const char *fragment)
{
    gen_error err = {""};
    bool good = ptx_verify(b, &err);
    if (good != (fragment == NULL) || (fragment && !strstr(err.message, fragment)))
        fail_msg("expected '%s', got '%s'", fragment ? fragment : "no fault", good ? "no fault" : err.message);
    if (fragment) assert_non_null(strstr(err.message, "kernel"));
    ptx_builder_finish(b);
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
    ptx_redux_max_u32(b, x, ptx_imm(-1));
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
    if (wrong) ptx_redux_max_u32(b, x, ptx_imm(-1));
    ptx_guard(b, p);
    ptx_bra(b, loop);
    ptx_redux_max_u32(b, x, ptx_imm(-1));
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

/* Next of a sequence of random numbers (a linear congruence; the high bits are good). */
static uint32_t random_below(uint64_t *state, uint32_t end)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % end);
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

/* Changes one thing of one instruction at random. What it refers to exists: registers, labels, parameters. */
static void mutate(ptx_builder *b, ptx_instruction *i, uint64_t *seed)
{
    ptx_value *x = i->operands ? &b->values[i->first + random_below(seed, i->operands)] : NULL;
    switch (random_below(seed, x ? 6 : 4)) {
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
        if (x->kind >= PTX_KIND_P && x->kind <= PTX_KIND_L)
            x->id = random_below(seed, b->registers[x->kind]);
        else
            x->imm = (int64_t)random_below(seed, UINT32_MAX) - INT32_MAX;
        break;
    default:
        x->kind = (uint8_t)random_below(seed, PTX_KINDS);
        x->id = 0;
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
        cmocka_unit_test(a_kernel_prints_as_a_whole_module),
        cmocka_unit_test(immediates_print_exactly),
        cmocka_unit_test(a_guard_holds_for_one_instruction),
        cmocka_unit_test(vectors_and_addresses_print_in_brackets),
        cmocka_unit_test(labels_print_with_unique_names),
        cmocka_unit_test(sinks_are_part_of_the_mnemonic),
        cmocka_unit_test(a_product_names_its_columns),
        cmocka_unit_test(regions_print_where_they_change),
        cmocka_unit_test(the_first_error_sticks_and_nothing_more_is_emitted),
        cmocka_unit_test(a_finished_builder_may_be_finished_again),
        cmocka_unit_test(every_row_verifies_with_the_operands_it_names),
        cmocka_unit_test(every_row_is_refused_with_another_number_of_operands),
        cmocka_unit_test(every_row_is_refused_with_an_operand_of_another_kind),
        cmocka_unit_test(rows_marked_so_need_an_architecture_specific_target),
        cmocka_unit_test(warp_wide_rows_must_not_be_guarded),
        cmocka_unit_test(instructions_are_counted_by_region_and_class),
        cmocka_unit_test(a_fault_names_the_instruction_and_its_region),
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
