/* Device functions as text: registers and parameters of each kind, frames under divergence, shared memory of functions;
 * and what can be wrong with a call. */
#include "emulator_kernel_fixture.h"

#define HEAD ".version 8.6\n.target sm_90a\n.address_size 64\n"

static void start(bench *b, const char *text, uint32_t block)
{
    bench_start_text(b, text, strlen(text), "k", 1, block);
}

/* ---- What works ---- */

static void registers_and_constants_are_arguments(void **state)
{
    static const char text[] = HEAD
        ".func (.reg .u32 low, .reg .u64 wide) f(.reg .u32 a, .param .u64 b, .reg .u16 h) {\n"
        ".reg .u64 t; ld.param.u64 t, [b]; mad.wide.u32 wide, a, a, t; cvt.u32.u16 low, h; add.u32 low, low, a; ret; "
        "}\n"
        ".visible .entry k(.param .u64 out) { .reg .u64 o, w; .reg .u32 t, l; .reg .u16 h; .reg .pred q; .param .u64 "
        "p;\n"
        "ld.param.u64 o, [out]; mov.u32 t, %tid.x; mad.wide.u32 o, t, 24, o; mov.u16 h, 300; st.param.u64 [p], "
        "1000000000000;\n"
        "call (l, w), f, (t, p, h); st.global.u32 [o], l; st.global.u64 [o+8], w; setp.gt.u32 q, t, 40; @q ret;\n"
        "st.param.u64 [p], 5; call (l, w), f, (7, p, 2); st.global.u32 [o+4], l; st.global.u64 [o+16], w; ret; }\n";
    struct {
        uint32_t low, second;
        uint64_t wide, wider;
    } * out;
    (void)state;
    bench b;
    start(&b, text, 64);
    out = add_output(&b, 64 * sizeof *out);
    bench_run(&b, 0, 0);
    for (uint32_t t = 0; t < 64; t++) {
        assert_int_equal(out[t].low, t + 300);
        assert_int_equal(out[t].wide, 1000000000000u + (uint64_t)t * t);
        if (t <= 40) assert_int_equal(out[t].second, 9);
        if (t <= 40) assert_int_equal(out[t].wider, 54);
    }
    bench_finish(&b);
}

static void frames_under_divergence(void **state)
{
    /* Lanes leave f by three ways, one of them by exit; g is called by those that came back, from two places. */
    static const char text[] =
        HEAD ".func (.param .u32 r) g(.param .u32 a) { .reg .u32 x; .reg .pred p; ld.param.u32 x, [a]; setp.gt.u32 p, "
             "x, 100; @p bra BIG;\n"
             "mul.lo.u32 x, x, 3; BIG: st.param.u32 [r], x; ret; }\n"
             ".func (.param .u32 r) f(.param .u32 a) { .reg .u32 x, y; .reg .pred p; ld.param.u32 x, [a];\n"
             "and.b32 y, x, 3; setp.eq.u32 p, y, 0; @p exit; setp.eq.u32 p, y, 1; st.param.u32 [r], 11; @p ret;\n"
             "{ .param .u32 b; .param .u32 c; st.param.u32 [b], x; call (c), g, (b); ld.param.u32 y, [c]; }\n"
             "add.u32 y, y, 1000; st.param.u32 [r], y; ret; }\n"
             ".visible .entry k(.param .u64 out) { .reg .u64 o; .reg .u32 t, v; .reg .pred p; .param .u32 a; .param "
             ".u32 c;\n"
             "ld.param.u64 o, [out]; mov.u32 t, %tid.x; mad.wide.u32 o, t, 4, o; st.global.u32 [o], 7;\n"
             "st.param.u32 [a], t; call (c), f, (a); ld.param.u32 v, [c]; setp.lt.u32 p, t, 20; @p bra SMALL;\n"
             "st.param.u32 [a], v; call (c), g, (a); ld.param.u32 v, [c]; bra DONE;\n"
             "SMALL: add.u32 v, v, 1; st.param.u32 [a], v; call (c), g, (a); ld.param.u32 v, [c];\n"
             "DONE: st.global.u32 [o], v; ret; }\n";
    (void)state;
    FOR_SCHEDULES(schedule, seed)
    {
        bench b;
        start(&b, text, 48);
        uint32_t *out = add_output(&b, 48 * sizeof *out);
        bench_run(&b, schedule, seed);
        for (uint32_t t = 0; t < 48; t++) {
            uint32_t v = t % 4 == 1 ? 11 : (t > 100 ? t : 3 * t) + 1000;
            if (t < 20) v++;
            v = v > 100 ? v : 3 * v;
            assert_int_equal(out[t], t % 4 == 0 ? 7 : v);
        }
        bench_finish(&b);
    }
}

/* A lane that has returned holds a lock that others, still in the function, spin for. */
static void lanes_that_returned_let_others_go_on(void **state)
{
    static const char text[] =
        HEAD ".func lock(.param .u64 at) { .reg .u64 a; .reg .u32 old; .reg .pred p; ld.param.u64 a, [at];\n"
             "AGAIN: atom.global.cas.b32 old, [a], 0, 1; setp.ne.u32 p, old, 0; @p bra AGAIN; ret; }\n"
             ".visible .entry k(.param .u64 out) { .reg .u64 o; .reg .u32 v, old; .param .u64 a;\n"
             "ld.param.u64 o, [out]; st.param.u64 [a], o; call lock, (a); ld.volatile.global.u32 v, [o+4]; add.u32 v, "
             "v, 1;\n"
             "st.volatile.global.u32 [o+4], v; atom.global.exch.b32 old, [o], 0; ret; }\n";
    (void)state;
    FOR_SCHEDULES(schedule, seed)
    {
        bench b;
        start(&b, text, 64);
        uint32_t *out = add_input(&b, 8);
        bench_run(&b, schedule, seed);
        assert_int_equal(out[1], 64);
        bench_finish(&b);
    }
}

static void functions_have_shared_memory(void **state)
{
    static const char text[] = HEAD
        ".extern .shared .align 16 .b32 dynamic[];\n.shared .align 4 .u32 early;\n"
        ".func (.param .u32 r) f(.param .u32 a) { .reg .u32 x, y, z; .shared .align 4 .b32 mine[32]; ld.param.u32 x, "
        "[a];\n"
        "mov.u32 y, mine; mad.lo.u32 y, x, 4, y; st.shared.u32 [y], x; mov.u32 y, dynamic; mad.lo.u32 y, x, 4, y; "
        "ld.shared.u32 z, [y];\n"
        "mov.u32 y, mine; mad.lo.u32 y, x, 4, y; ld.shared.u32 x, [y]; add.u32 x, x, z; st.param.u32 [r], x; ret; }\n"
        ".visible .entry k(.param .u64 out) { .reg .u64 o; .reg .u32 t, v, s; .param .u32 a; .param .u32 c; .shared "
        ".align 4 .b32 own[32];\n"
        "ld.param.u64 o, [out]; mov.u32 t, %tid.x; mad.wide.u32 o, t, 4, o; mov.u32 s, own; mad.lo.u32 s, t, 4, s; "
        "st.shared.u32 [s], 50;\n"
        "mov.u32 v, dynamic; mad.lo.u32 v, t, 4, v; st.shared.u32 [v], 1000; st.param.u32 [a], t; call (c), f, (a); "
        "ld.param.u32 v, [c];\n"
        "ld.shared.u32 t, [s]; add.u32 v, v, t; st.global.u32 [o], v; ret; }\n"
        ".shared .align 4 .u32 late[7];\n";
    (void)state;
    bench b;
    start(&b, text, 32);
    b.config.shared_bytes = 128;
    uint32_t *out = add_output(&b, 32 * sizeof *out);
    bench_run(&b, 0, 0);
    for (uint32_t t = 0; t < 32; t++) assert_int_equal(out[t], t + 1000 + 50);
    bench_finish(&b);
}

/* The address of a by-value parameter, and of an entry's. */
static void parameters_have_addresses(void **state)
{
    static const char text[] = HEAD
        ".func (.param .u32 r) f(.param .align 8 .b8 s[16], .param .u32 k) { .reg .u64 a, b; .reg .u32 x; mov.u64 a, "
        "s;\n"
        "ld.param.u32 x, [k]; mul.wide.u32 b, x, 4; add.u64 a, a, b; ld.param.u32 x, [a]; st.param.u32 [r], x; ret; }\n"
        ".visible .entry k(.param .u64 out, .param .align 4 .b8 n[8]) { .reg .u64 o, g; .reg .u32 t, v, w; .param "
        ".align 8 .b8 s[16]; .param .u32 i, c;\n"
        "ld.param.u64 o, [out]; mov.u32 t, %tid.x; mad.wide.u32 o, t, 4, o; st.param.u32 [s], 10; st.param.u32 [s+4], "
        "11;\n"
        "st.param.v2.u32 [s+8], {12, 13}; and.b32 v, t, 3; st.param.u32 [i], v; call (c), f, (s, i); ld.param.u32 v, "
        "[c];\n"
        "mov.u64 g, n; cvta.param.u64 g, g; ld.u32 w, [g+4]; add.u32 v, v, w; st.global.u32 [o], v; ret; }\n";
    (void)state;
    bench b;
    start(&b, text, 32);
    uint32_t *out = add_output(&b, 32 * sizeof *out);
    add_value(&b, UINT64_C(100) << 32);
    bench_run(&b, 0, 0);
    for (uint32_t t = 0; t < 32; t++) assert_int_equal(out[t], 110 + t % 4);
    bench_finish(&b);
}

/* ---- What is wrong ---- */

typedef struct planted {
    const char *name, *kernel, *old, *new;
    emulator_fault fault;
    const char *line; /* the line that has this, in the changed text; NULL: not asked */
    const char *says;
} planted;

static void find_planted(const planted *p, uint32_t block, void (*arguments)(bench *b))
{
    size_t length;
    bench b;
    char *text = plant(p->kernel, p->old, p->new, &length);
    bench_start_text(&b, text, length, p->kernel, 1, block);
    arguments(&b);
    expect_fault(&b, p->fault, p->line ? line_of(text, p->line, 0) : 0, p->says);
    bench_finish(&b);
    free(text);
}

static void arguments_of_calls(bench *b)
{
    add_output(b, 256);
    add_output(b, 512);
    add_int(b, 64);
}
static void arguments_of_heap(bench *b)
{
    add_output(b, 256);
    add_int(b, 10);
}
static void arguments_of_pointers(bench *b)
{
    add_output(b, 256);
    add_output(b, 256);
}
static void arguments_of_variables(bench *b)
{
    add_output(b, 33 * 4);
}
static void arguments_of_stack(bench *b)
{
    memset(add_input(b, 77 * 4), 0, 77 * 4);
    add_output(b, 256);
    add_int(b, 77);
}

static void planted_bugs_are_found(void **state)
{
    static const planted in_calls[] = {
        {"an argument that is not set", "calls", "st.param.b32 \t[param1+0]", "// ", EMULATOR_UNDEFINED,
         "call.uni \n\t_Z9swap_endsPii", "argument 2 of the call of _Z9swap_endsPii is set nowhere"},
    };
    static const planted in_heap[] = {
        {"freed twice", "heap", "{ // callseq 1, 0",
         "{ .param .b64 again; st.param.b64 [again], %rd1; call free, (again); }\n{ // callseq 1, 0", EMULATOR_BOUNDS,
         "call.uni \n\tfree, ", "which no malloc gave"},
    };
    static const planted in_pointers[] = {
        {"a call of no function", "pointers", "ld.const.u64 \t%rd14, [%rd13]", "mov.u64 %rd14, 4096", EMULATOR_BOUNDS,
         NULL, "calls 0x1000, which is no function"},
        {"a uniform call of several functions", "pointers", "call (retval0), \n\t%rd14",
         "call.uni (retval0), \n\t%rd14", EMULATOR_DIVERGENCE, NULL, "different functions"},
        {"a function of another signature", "pointers", "{_Z3addii,", "{_ZNK5shape7cornersEv,", EMULATOR_BOUNDS, NULL,
         "its table does not allow"},
    };
    static const planted in_variables[] = {
        {"a write to a constant", "variables", "ld.const.u32 \t%r2, [%rd9]", "st.global.u32 [%rd9], 1; mov.u32 %r2, 0",
         EMULATOR_BOUNDS, "st.global.u32 [%rd9], 1", "the constant variable primes"},
        {"beyond a variable", "variables", "ld.const.u32 \t%r2, [%rd9]", "ld.const.u32 %r2, [%rd9+4]", EMULATOR_BOUNDS,
         "[%rd9+4]", "the 24 bytes of primes"},
    };
    static const planted in_stack[] = {
        {"local memory that nothing wrote", "stack", "st.local", "// st.local", EMULATOR_UNDEFINED, NULL, "undefined"},
    };
    (void)state;
    for (size_t k = 0; k < sizeof in_calls / sizeof *in_calls; k++) find_planted(&in_calls[k], 64, arguments_of_calls);
    for (size_t k = 0; k < sizeof in_heap / sizeof *in_heap; k++) find_planted(&in_heap[k], 64, arguments_of_heap);
    for (size_t k = 0; k < sizeof in_pointers / sizeof *in_pointers; k++)
        find_planted(&in_pointers[k], 64, arguments_of_pointers);
    for (size_t k = 0; k < sizeof in_variables / sizeof *in_variables; k++)
        find_planted(&in_variables[k], 32, arguments_of_variables);
    for (size_t k = 0; k < sizeof in_stack / sizeof *in_stack; k++) find_planted(&in_stack[k], 32, arguments_of_stack);
}

static void wrong_texts_are_found(void **state)
{
    static const struct {
        const char *text;
        emulator_fault fault;
        const char *line, *says;
    } rows[] = {
        {HEAD ".func f() {\ncall f; ret; }\n.visible .entry k() { call f; ret; }", EMULATOR_RESOURCE,
         "call f; ret; }\n.v", "deep"},
        {HEAD ".func f() { .reg .u32 x, y; mov.u32 y, x; setp.eq.u32 p, y, 0;\n@p ret; ret; }\n.visible .entry k() { "
              "call f; ret; }",
         EMULATOR_UNDEFINED, "@p ret", "the guard"},
        {HEAD
         ".visible .entry k() { .local .align 4 .b8 a[16]; .reg .u64 x; mov.u64 x, a;\nst.local.u32 [x+16], 1; ret; }",
         EMULATOR_BOUNDS, "st.local", "of 16 bytes of local memory"},
        {HEAD ".func f() { .local .align 4 .b8 a[16]; .reg .u64 x; mov.u64 x, a; cvta.local.u64 x, x;\nst.u32 [x+16], "
              "1; ret; }\n.visible .entry k() { call f; ret; }",
         EMULATOR_BOUNDS, "st.u32", "local memory"},
        {HEAD ".func (.param .u32 r) f() {\nret; }\n.visible .entry k(.param .u64 o) { .reg .u64 a; .reg .u32 v; "
              ".param .u32 c; call (c), f; ld.param.u32 v, [c]; ld.param.u64 a, [o];\nst.global.u32 [a], v; ret; }",
         EMULATOR_UNDEFINED, "st.global", "undefined value"},
        {HEAD ".visible .entry k(.param .u64 o) { .reg .u64 a, s; alloca.u64 a, 20000;\nst.local.u32 [a], 1; ret; }",
         EMULATOR_RESOURCE, "alloca", "the stack has"},
    };
    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        char text[2048];
        const char *at = strstr(rows[k].text, "setp");
        snprintf(text, sizeof text, "%.*s%s%s", at ? (int)(at - rows[k].text) : (int)strlen(rows[k].text), rows[k].text,
                 at ? ".reg .pred p; " : "", at ? at : "");
        bench b;
        start(&b, text, 32);
        add_output(&b, 128);
        expect_fault(&b, rows[k].fault, line_of(text, rows[k].line, 0), rows[k].says);
        bench_finish(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(registers_and_constants_are_arguments),
        cmocka_unit_test(frames_under_divergence),
        cmocka_unit_test(lanes_that_returned_let_others_go_on),
        cmocka_unit_test(functions_have_shared_memory),
        cmocka_unit_test(parameters_have_addresses),
        cmocka_unit_test(planted_bugs_are_found),
        cmocka_unit_test(wrong_texts_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
