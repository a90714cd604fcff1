/* The interpreter's parser: what is wrong with a text is named with its line, and no text brings it down. */
#include "emulator_parse_fixture.h"

/* ---- Allocations that fail: linked in place of the real ones (--wrap) ---- */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);

static long until_failure = -1; /* allocations that succeed before one fails; -1: all do */

static bool fails_now(void)
{
    return until_failure >= 0 && until_failure-- == 0;
}
void *__wrap_malloc(size_t size)
{
    return fails_now() ? NULL : __real_malloc(size);
}
void *__wrap_calloc(size_t count, size_t size)
{
    return fails_now() ? NULL : __real_calloc(count, size);
}
void *__wrap_realloc(void *old, size_t size)
{
    return fails_now() ? NULL : __real_realloc(old, size);
}

/* ---- Errors ---- */

typedef struct bad_body {
    const char *body;
    emulator_fault fault;
    const char *says;
} bad_body;

static void check_bad(const char *arch, const char *version, const bad_body *row)
{
    emulator_module *m = parse_body(arch, version, row->body);
    if (m) fail_msg("accepted: %s", row->body);
    if (error.fault != row->fault || !strstr(error.message, row->says))
        fail_msg("%s: %s: %s", row->body, emulator_fault_name(error.fault), error.message);
    assert_int_equal(error.line, BODY_LINE);
    assert_int_equal(error.warp, -1);
    assert_null(strchr(error.message, '\n'));
}

static void what_a_body_gets_wrong_is_named(void **state)
{
    (void)state;
    static const bad_body rows[] = {
        {"foo.b32 r0;", EMULATOR_UNKNOWN_FORM, "'foo.b32'"},
        {"add.b32 r0, r1, r2;", EMULATOR_UNKNOWN_FORM, "'.b32'"},
        {"add.s32.sat r0, r1, r2;", EMULATOR_UNKNOWN_FORM, "'.sat'"},
        {"mul.s32 r0, r1, r2;", EMULATOR_UNKNOWN_FORM, "'.s32'"},
        {"setp.lt r0;", EMULATOR_UNKNOWN_FORM, "lacks a modifier"},
        {"ld.global.cg.L3.b32 r0, [l0];", EMULATOR_UNKNOWN_FORM, "'.L3'"},
        {"ld.global.v4.b64 {l0, l1, l2, l3}, [l4];", EMULATOR_TARGET, "sm_100"},
        {"wgmma.mma_async.sync.aligned.m64n20k32.s32.u8.s8 {r0}, l0, l1, p;", EMULATOR_UNKNOWN_FORM, "multiple of 8"},
        {"wgmma.mma_async.sync.aligned.m64n65544k32.s32.u8.s8 {r0}, l0, l1, p;", EMULATOR_UNKNOWN_FORM,
         "multiple of 8"},
        {"wgmma.mma_async.sync.aligned.m64n40k32.s32.u8.s8 {r0}, l0, l1, p;", EMULATOR_UNKNOWN_FORM, "multiple of 8"},
        {"wgmma.mma_async.sync.aligned.m64n8k32.s32.u8.s8 {r0, r1, r2}, l0, l1, p;", EMULATOR_PARSE, "vector of 4"},
        {"add.s32 r0, r1;", EMULATOR_PARSE, "expected also a register or constant of type .s32"},
        {"add.s32 r0, r1, r2, r3;", EMULATOR_PARSE, "'r3': expected no more operands"},
        {"add.s32 r0, r1, f0;", EMULATOR_PARSE, "'f0'"},
        {"add.s32 r0, r1, l0;", EMULATOR_PARSE, "'l0'"},
        {"add.s32 r0, r1, p;", EMULATOR_PARSE, "'p'"},
        {"add.s32 5, r1, r2;", EMULATOR_PARSE, "'5': expected a destination register"},
        {"add.s32 r0, r1, 0f3F800000;", EMULATOR_PARSE, "'0f3F800000'"},
        {"add.f32 f0, f1, 1;", EMULATOR_PARSE, "'1'"},
        {"add.f32 f0, f1, u0;", EMULATOR_PARSE, "'u0'"},
        {"add.s32 r0, r1, %tid.x;", EMULATOR_PARSE, "'%tid.x'"},
        {"add.s32 r0, r1, _;", EMULATOR_PARSE, "'_'"},
        {"add.s32 _, r1, r2;", EMULATOR_PARSE, "'_'"},
        {"add.s32 r0|p, r1, r2;", EMULATOR_PARSE, "'|'"},
        {"add.s32 r0, r1, missing;", EMULATOR_PARSE, "'missing': expected a name that is declared"},
        {"mov.u32 r0, %nothing;", EMULATOR_PARSE, "'%nothing'"},
        {"mov.u64 l0, %tid.x;", EMULATOR_PARSE, "'%tid.x'"},
        {"mov.b32 r0, {h0, h1, h2};", EMULATOR_PARSE, "operand 2"},
        {"mov.b32 r130, 0;", EMULATOR_PARSE, "'r130'"},
        {"mov.b32 r01, 0;", EMULATOR_PARSE, "'r01'"},
        {"ld.shared.u64 r0, [r1];", EMULATOR_PARSE, "'r0'"},
        {"ld.shared.f32 l0, [r1];", EMULATOR_PARSE, "'l0'"},
        {"ld.shared.b32 r0, r1;", EMULATOR_PARSE, "address in [ ]"},
        {"ld.shared.b32 r0, [x];", EMULATOR_PARSE, "variable in .shared"},
        {"ld.param.b32 r0, [missing];", EMULATOR_PARSE, "'missing'"},
        {"ld.b32 r0, [x];", EMULATOR_PARSE, "generic"},
        {"ld.shared.b32 r0, [r1+r2];", EMULATOR_PARSE, "'r2'"},
        {"ld.shared.b32 r0, [r1+4294967296];", EMULATOR_PARSE, "32 bits"},
        {"ld.shared.b32 r0, [16];", EMULATOR_PARSE, "'16'"},
        {"ld.shared.b32 r0, [h0];", EMULATOR_PARSE, "'h0'"},
        {"ld.shared.b32 r0, [r1;", EMULATOR_PARSE, "';' where '+' or ']'"},
        {"ld.shared.v2.b32 {r0, 5}, [r1];", EMULATOR_PARSE, "element 1"},
        {"ld.shared.v2.b32 r0, [r1];", EMULATOR_PARSE, "vector of 2"},
        {"st.shared.v2.b32 [r0], {r1, {r2}};", EMULATOR_PARSE, "'{'"},
        {"st.shared.v2.b32 [r0], {r1, h0};", EMULATOR_PARSE, "element 1"},
        {"st.shared.v2.f32 [r0], {f0, 1};", EMULATOR_PARSE, "element 1"},
        {"st.shared.v2.b32 [r0], {};", EMULATOR_PARSE, "'}'"},
        {"setp.eq.s32 r0, r1, r2;", EMULATOR_PARSE, "predicate register"},
        {"setp.eq.s32 !p, r1, r2;", EMULATOR_PARSE, "operand 1"},
        {"selp.b32 r0, r1, r2, r3;", EMULATOR_PARSE, "a predicate"},
        {"selp.b32 r0, r1, r2, !r3;", EMULATOR_PARSE, "'r3'"},
        {"elect.sync p, -1;", EMULATOR_PARSE, "operand 1"},
        {"elect.sync _, -1;", EMULATOR_PARSE, "a pair"},
        {"bra missing;", EMULATOR_PARSE, "'missing' where a label"},
        {"bra r0;", EMULATOR_PARSE, "a label"},
        {"L: L: ret;", EMULATOR_PARSE, "'L'"},
        {"@r0 ret;", EMULATOR_PARSE, "'r0' where a predicate"},
        {"@p L: ret;", EMULATOR_UNKNOWN_FORM, "'L'"},
        {"@p }", EMULATOR_PARSE, "'}' where an instruction"},
        {"call foo;", EMULATOR_PARSE, "a function that is declared"},
        {"call l1;", EMULATOR_PARSE, ".callprototype"},
        {".reg .b32 r0, r<2>;", EMULATOR_PARSE, "'r'"},
        {".reg .b32 z<0>;", EMULATOR_PARSE, "0 is not between"},
        {".reg .b32 z<70000>;", EMULATOR_PARSE, "70000"},
        {".reg .b32 z<65500>;", EMULATOR_RESOURCE, "registers"},
        {".reg .v2 .b32 z;", EMULATOR_UNKNOWN_FORM, "vectors"},
        {".reg .x32 z;", EMULATOR_PARSE, "'.x32' where a type"},
        {".reg .b32 _;", EMULATOR_PARSE, "'_'"},
        {".shared .b32 z[];", EMULATOR_PARSE, "'z[]'"},
        {".shared .align 3 .b32 z;", EMULATOR_PARSE, "power of two"},
        {".shared .b32 z = 4;", EMULATOR_PARSE, "initialiser"},
        {".shared .b8 z[2000000];", EMULATOR_RESOURCE, ".shared"},
        {".shared .b8 z[60000][60000];", EMULATOR_RESOURCE, "elements"},
        {".shared .pred z;", EMULATOR_PARSE, "'.pred'"},
        {".param .b32 z, z;", EMULATOR_PARSE, "does not declare yet"},
        {".branchtargets a;", EMULATOR_UNKNOWN_FORM, "'.branchtargets'"},
        {".extern .global .b32 z;", EMULATOR_UNKNOWN_FORM, ".extern"},
        {"mov.b32 r0, 18446744073709551616;", EMULATOR_PARSE, "64 bits"},
        {"mov.b32 r0, 0x;", EMULATOR_PARSE, "'0x'"},
        {"mov.b32 r0, 12ab;", EMULATOR_PARSE, "'12a'"},
        {"mov.f32 f0, 0f3F8;", EMULATOR_PARSE, "8 hexadecimal"},
        {"mov.f64 e0, 0d3FF0;", EMULATOR_PARSE, "16 hexadecimal"},
        {"mov.b32 r0, \x01;", EMULATOR_PARSE, "does not have"},
        {"mov.b32 r0, \xc3\xa9;", EMULATOR_PARSE, "does not have"},
        {"mov.b32 r0, -r1;", EMULATOR_PARSE, "'r1' where a number"},
        {"mov.b32 r0, \"r1\";", EMULATOR_PARSE, "an operand"},
        {"/* no end", EMULATOR_PARSE, "comment without an end"},
        {"add.s32 r0, r1, r2, r3, r4, r5, r6, r7, r8, r9, r10, r11, r12;", EMULATOR_PARSE, "more than 12"},
    };
    for (int n = 0; n < COUNT(rows); n++) check_bad("sm_90a", "8.4", &rows[n]);
}

static void errors_have_the_line_of_the_word(void **state)
{
    (void)state;
    assert_null(parse_body("sm_90a", "8.4", "ret"));
    assert_int_equal(error.line, BODY_LINE + 1);
    assert_null(parse_body("sm_90a", "8.4", "mov.b32 r0,\n 5\n; add.s32 r0, r1,\n r2, 7\n, 8;"));
    assert_int_equal(error.line, BODY_LINE + 3);
    assert_non_null(strstr(error.message, "'7'"));
    assert_null(parse_body("sm_90a", "8.4", "ret;\n /* a\n b */ /* no\n end"));
    assert_int_equal(error.line, BODY_LINE + 2);
}

static void forms_of_other_targets_and_versions_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *target, *version, *body, *says; /* NULL: accepted */
    } rows[] = {
        {"sm_90", "8.4", "wgmma.fence.sync.aligned;", "sm_90a"},
        {"sm_100a", "9.0", "wgmma.fence.sync.aligned;", "sm_90a"},
        {"sm_90a", "8.4", "wgmma.fence.sync.aligned;", NULL},
        {"sm_90", "8.4", "setmaxnreg.inc.sync.aligned.u32 96;", "sm_90a or a later target"},
        {"sm_100f", "9.0", "setmaxnreg.inc.sync.aligned.u32 96;", NULL},
        {"sm_90a", "8.3", "wgmma.mma_async.sync.aligned.m64n8k32.s32.u8.s8 {r0, r1, r2, r3}, l0, l1, p;",
         ".version 8.4"},
        {"sm_90a", "8.3", "wgmma.mma_async.sync.aligned.m64n8k32.s32.u8.u8 {r0, r1, r2, r3}, l0, l1, p;", NULL},
        {"sm_90a", "9.0", "tcgen05.wait::ld.sync.aligned;", "sm_100a"},
        {"sm_100", "9.0", "tcgen05.wait::ld.sync.aligned;", "sm_100a"},
        {"sm_120a", "9.0", "tcgen05.wait::ld.sync.aligned;", "sm_100a"},
        {"sm_100f", "9.0", "tcgen05.wait::ld.sync.aligned;", NULL},
        {"sm_103a", "9.0", "tcgen05.wait::ld.sync.aligned;", NULL},
        {"sm_100a", "8.5", "tcgen05.wait::ld.sync.aligned;", ".version 8.6"},
        {"sm_100f", "9.0", "tcgen05.mma.cta_group::1.kind::i8 [r0], l0, l1, r1, p;", "sm_100a or sm_110a"},
        {"sm_103a", "9.0", "tcgen05.mma.cta_group::1.kind::i8 [r0], l0, l1, r1, p;", "sm_100a or sm_110a"},
        {"sm_110a", "9.0", "tcgen05.mma.cta_group::1.kind::i8 [r0], l0, l1, r1, p;", NULL},
        {"sm_100f", "9.0",
         "tcgen05.mma.cta_group::1.kind::mxf4.block_scale.scale_vec::2X [r0], l0, l1, r1, [r2], [r3], p;", "not f"},
        {"sm_100f", "9.0", "tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block32 [r0], l0, l1, r1, [r2], [r3], p;",
         NULL},
        {"sm_80", "8.4", "elect.sync _|p, -1;", "sm_90"},
        {"sm_90a", "7.8", "elect.sync _|p, -1;", ".version 8.0"},
        {"sm_80", "8.4", "cvt.rn.satfinite.e4m3x2.f32 h0, f0, f1;", "sm_89"},
    };
    for (int n = 0; n < COUNT(rows); n++) {
        emulator_module *m = parse_body(rows[n].target, rows[n].version, rows[n].body);
        if (!m == !rows[n].says)
            fail_msg("%s on %s, %s: %s", rows[n].body, rows[n].target, rows[n].version, m ? "accepted" : error.message);
        if (!m && (error.fault != EMULATOR_TARGET || error.line != BODY_LINE || !strstr(error.message, rows[n].says)))
            fail_msg("%s: %s", rows[n].body, error.message);
        emulator_module_destroy(m);
    }
}

static void what_a_module_gets_wrong_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        emulator_fault fault;
        int line;
        const char *says;
    } rows[] = {
        {"", EMULATOR_PARSE, 1, "the text ends"},
        {"\n.target sm_90a", EMULATOR_PARSE, 2, "'.version'"},
        {".version 8", EMULATOR_PARSE, 1, "'8'"},
        {".version 5.0\n.target sm_50", EMULATOR_TARGET, 1, "6.0"},
        {".version 8.4\n.target compute_90", EMULATOR_PARSE, 2, "'compute_90'"},
        {".version 8.4\n.target sm_90x", EMULATOR_PARSE, 2, "'sm_90x'"},
        {".version 8.4\n.target sm_90a, fast", EMULATOR_PARSE, 2, "'fast'"},
        {".version 8.4\n.target sm_90a\n.address_size 32", EMULATOR_PARSE, 3, "'32'"},
        {".version 8.4\n.target sm_90a\n.func f() { }\n.func f() { }", EMULATOR_PARSE, 4, "no body yet"},
        {".version 8.4\n.target sm_90a\n.func f(.param .b32 a);\n.func f() { }", EMULATOR_PARSE, 4, "first declaration"},
        {".version 8.4\n.target sm_90a\n.extern .func f;\n.entry k() {\ncall f; }", EMULATOR_UNKNOWN_FORM, 5, "'f' is called and has no body"},
        {".version 8.4\n.target sm_90a\n.func f(.param .b32 a) {}\n.entry k() {\ncall f; }", EMULATOR_PARSE, 5, "arguments of the call"},
        {".version 8.4\n.target sm_90a\n.func f(.param .b32 a) {}\n.entry k() {.param .b64 b;\ncall f, (b); }", EMULATOR_PARSE, 5, "has 8 bytes"},
        {".version 8.4\n.target sm_90a\n.func f(.param .b32 a, .param .b32 c) {}\n.entry k() {\ncall f, (1); }", EMULATOR_PARSE, 5, "has 1 arguments"},
        {".version 8.4\n.target sm_90a\n.func (.param .b32 f(.param .b32 a) {}", EMULATOR_PARSE, 3, ""},
        {".version 8.4\n.target sm_90a\n.entry k(.param .b32 a) {\nst.param.b32 [a], 1; }", EMULATOR_PARSE, 4, "only read"},
        {".version 8.4\n.target sm_90a\n.global .u64 v = w;", EMULATOR_PARSE, 3, "a variable or function"},
        {".version 8.4\n.target sm_90a\n.tex t;", EMULATOR_UNKNOWN_FORM, 3, "'.tex'"},
        {".version 8.4\n.target sm_90a\nret;", EMULATOR_PARSE, 3, "'ret'"},
        {".version 8.4\n.target sm_90a\n.entry k() {\nret;", EMULATOR_PARSE, 4, "the text ends"},
        {".version 8.4\n.target sm_90a\n.entry k() { }\n.entry k() { }", EMULATOR_PARSE, 4, "'k'"},
        {".version 8.4\n.target sm_90a\n.entry k(.reg .b32 x) { }", EMULATOR_PARSE, 3, "'.reg'"},
        {".version 8.4\n.target sm_90a\n.entry k(.param .b32 x, .param .b32 x) { }", EMULATOR_PARSE, 3, "'x'"},
        {".version 8.4\n.target sm_90a\n.entry k(.param .b8 x[40000]) { }", EMULATOR_RESOURCE, 3, ".param"},
        {".version 8.4\n.target sm_90a\n.entry k() .maxntid 1, 1, 1, 1 { }", EMULATOR_PARSE, 3, "fourth"},
        {".version 8.4\n.target sm_90a\n.entry k() .maxnreg 0 { }", EMULATOR_PARSE, 3, "'0'"},
        {".version 8.4\n.target sm_90a\n.entry k() .reqnctapercluster 2 { }", EMULATOR_UNKNOWN_FORM, 3, "cluster"},
        {".version 8.4\n.target sm_90a\n.entry k() .mystery { }", EMULATOR_PARSE, 3, "'.mystery'"},
        {".version 8.4\n.target sm_90a\n.global .b8 x[2] = {1, 2, 3};", EMULATOR_PARSE, 3, "'3'"},
        {".version 8.4\n.target sm_90a\n.global .f32 x = 1;", EMULATOR_PARSE, 3, "'1'"},
        {".version 8.4\n.target sm_90a\n.global .u64 x = k;", EMULATOR_PARSE, 3, "a number, or a variable or function"},
        {".version 8.4\n.target sm_90a\n.global .b8 x[70000000];", EMULATOR_PARSE, 3, "70000000"},
        {".version 8.4\n.target sm_90a\n.section .debug {", EMULATOR_PARSE, 3, "the text ends"},
    };
    for (int n = 0; n < COUNT(rows); n++) {
        emulator_module *m = parse(rows[n].text, strlen(rows[n].text));
        if (m) fail_msg("accepted: %s", rows[n].text);
        if (error.fault != rows[n].fault || error.line != rows[n].line || !strstr(error.message, rows[n].says))
            fail_msg("%s: line %d: %s: %s", rows[n].text, error.line, emulator_fault_name(error.fault), error.message);
    }
    assert_null(emulator_module_parse("", 0, NULL, NULL)); /* nobody asks why */
}

/* ---- Hostile texts ---- */

/* begin, then `piece` many times, then end. */
static char *repeat(const char *begin, const char *piece, int times, const char *end)
{
    size_t b = strlen(begin), p = strlen(piece), e = strlen(end);
    char *text = malloc(b + p * (size_t)times + e + 1), *at = text;
    assert_non_null(text);
    memcpy(at, begin, b);
    at += b;
    for (int i = 0; i < times; i++, at += p) memcpy(at, piece, p);
    memcpy(at, end, e + 1);
    return text;
}

static void large_and_deep_texts_end_soon(void **state)
{
    (void)state;
    static const char head[] = ".version 8.4\n.target sm_90a\n.entry k() { .reg .b32 r<9>; .reg .pred p;\n";
    static const struct {
        const char *begin, *piece;
        int times;
        const char *end;
        emulator_fault fault;
    } rows[] = {
        {head, "{", 100000, "", EMULATOR_PARSE},
        {head, "{}", 100000, "}", EMULATOR_RESOURCE},
        {head, "ret;", 200000, "}", EMULATOR_RESOURCE},
        {head, "L: @p bra L; ", 2, "}", EMULATOR_PARSE},
        {head, "@p bra E; ", 60000, " E: }", EMULATOR_OK},
        {head, "@p bra E; { E: @p bra E; } ", 20000, " E: }", EMULATOR_OK},
        {head, "add", 100000, ";}", EMULATOR_UNKNOWN_FORM},
        {head, ".b32", 100000, ";}", EMULATOR_UNKNOWN_FORM},
        {"", "ld", 1, ".global", EMULATOR_PARSE},
        {".version 8.4\n.target sm_90a\n.entry k() { add", ".s32", 100000, " r0;}", EMULATOR_UNKNOWN_FORM},
        {".version 8.4\n.target sm_90a\n.entry k() { mov.b64 {", "_,", 100000, "_}, l0;}", EMULATOR_PARSE},
        {".version 8.4\n.target sm_90a\n.entry k() { mov.b32 ", "-", 100000, "1;}", EMULATOR_PARSE},
        {".version 8.4\n.target sm_90a\n.global .b8 x = ", "{", 100000, "1;", EMULATOR_PARSE},
        {".version 8.4\n.target sm_90a\n.global .b8 x", "[1]", 100000, ";", EMULATOR_OK},
        {".version 8.4\n.target sm_90a\n.section x ", "{", 100000, "", EMULATOR_PARSE},
        {".version 8.4\n.target sm_90a\n", "// x\n", 200000, "", EMULATOR_OK},
        {".version 8.4\n.target sm_90a\n.entry ", "x", 100000, "() {}", EMULATOR_PARSE},
        {".version 8.4\n.target sm_90a\n.entry k() { ", "y", 100000, ": }", EMULATOR_PARSE},
        {".version 8.4\n.target sm_90a\n.entry k() { mov.f32 f0, 1.", "0", 100000, ";}", EMULATOR_PARSE},
    };
    for (int n = 0; n < COUNT(rows); n++) {
        char *text = repeat(rows[n].begin, rows[n].piece, rows[n].times, rows[n].end);
        clock_t begin = clock();
        emulator_module *m = parse(text, strlen(text));
        double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
        if (error.fault != rows[n].fault || !m == (rows[n].fault == EMULATOR_OK))
            fail_msg("row %d: %s: %s", n, emulator_fault_name(error.fault), error.message);
        if (seconds > (SLOWED ? 20 : 2)) fail_msg("row %d took %.1f s", n, seconds);
        emulator_module_destroy(m);
        free(text);
    }
}

static void many_names_take_linear_time(void **state)
{
    (void)state;
    size_t room = 1 << 22, used = 0;
    char *text = malloc(room);
    assert_non_null(text);
    used += (size_t)snprintf(text, room, ".version 8.4\n.target sm_90a\n.entry k() {\n");
    for (int i = 0; i < 30000; i++) used += (size_t)snprintf(text + used, room - used, ".reg .b32 name_%dx;\n", i);
    for (int i = 0; i < 30000; i++)
        used += (size_t)snprintf(text + used, room - used, "label_%d: mov.b32 name_%dx, 0; bra label_%d;\n", i, i,
                                 29999 - i);
    used += (size_t)snprintf(text + used, room - used, "}\n");
    clock_t begin = clock();
    emulator_module *m = parse(text, used);
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    if (!m) fail_msg("line %d: %s", error.line, error.message);
    assert_int_equal(m->entries[0].count, 60001);
    assert_true(seconds < (SLOWED ? 20 : 2));
    emulator_module_destroy(m);
    free(text);
}

static const char mixed_text[] =
    ".version 8.4\n.target sm_90a\n.address_size 64\n.extern .shared .align 16 .b8 dyn[];\n.global .b8 t[2] = {1, 2};\n"
    ".visible .entry k(.param .u64 a, .param .align 8 .b8 s[16])\n.maxntid 128, 1, 1\n{\n.reg .pred p<2>;\n.reg .b32 "
    "r<8>;\n.reg .b64 l<2>;\n.shared .b64 bar;\n"
    "// first/part\nld.param.u64 l0, [a];\nmov.u32 r0, dyn;\nL: @!p0 bra L;\nst.shared.v4.b32 [r0+-16], {r1, 5, r2, "
    "r3};\n{ .reg .b32 z; mov.b32 z, 0f3F800000; }\n"
    "setp.lt.and.s32 p0|p1, r0, -1, !p1;\nwgmma.mma_async.sync.aligned.m64n8k32.s32.u8.s8 {r0, r1, r2, r3}, {r4, r5, "
    "r6, r7}, l0, p0;\nret;\n}\n";

static void every_beginning_of_a_text_is_refused_or_parsed(void **state)
{
    (void)state;
    int refused = 0;
    for (size_t length = 0; length < sizeof mixed_text; length++) {
        emulator_module *m = parse(mixed_text, length);
        if (!m) {
            refused++;
            assert_true(error.line > 0 && *error.message);
            assert_true(error.fault == EMULATOR_PARSE || error.fault == EMULATOR_UNKNOWN_FORM ||
                        error.fault == EMULATOR_TARGET);
        }
        emulator_module_destroy(m);
    }
    assert_true(refused > (int)sizeof mixed_text / 2);
    emulator_module *m = parse(mixed_text, sizeof mixed_text - 1);
    assert_non_null(m);
    emulator_module_destroy(m);
}

static void damaged_texts_are_refused_or_parsed(void **state)
{
    (void)state;
    uint64_t random = fresh_seed();
    static const char letters[] = "{}[]()<>@!%.,;:|+-_0x9 \n/*\"\0abr";
    char text[sizeof mixed_text];
    for (int n = 0; n < 20000; n++) {
        memcpy(text, mixed_text, sizeof text);
        for (uint32_t k = draw(&random) % 4 + 1; k > 0; k--) {
            size_t at = draw(&random) % (sizeof text - 1), from = draw(&random) % (sizeof text - 1);
            if (draw(&random) % 2)
                text[at] = letters[draw(&random) % (sizeof letters - 1)];
            else
                text[at] = mixed_text[from];
        }
        emulator_module *m = parse(text, sizeof text - 1);
        if (!m) assert_true(error.line > 0 && *error.message);
        emulator_module_destroy(m);
    }
}

static void each_allocation_that_fails_is_reported(void **state)
{
    (void)state;
    int failures = 0;
    for (;; failures++) {
        until_failure = failures;
        emulator_module *m = emulator_module_parse(mixed_text, sizeof mixed_text - 1, "memory", &error);
        until_failure = -1;
        emulator_module_destroy(m);
        if (m) break;
        assert_int_equal(error.fault, EMULATOR_MEMORY);
        assert_true(*error.message);
    }
    assert_true(failures > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_body_gets_wrong_is_named),
        cmocka_unit_test(errors_have_the_line_of_the_word),
        cmocka_unit_test(forms_of_other_targets_and_versions_are_refused),
        cmocka_unit_test(what_a_module_gets_wrong_is_named),
        cmocka_unit_test(large_and_deep_texts_end_soon),
        cmocka_unit_test(many_names_take_linear_time),
        cmocka_unit_test(every_beginning_of_a_text_is_refused_or_parsed),
        cmocka_unit_test(damaged_texts_are_refused_or_parsed),
        cmocka_unit_test(each_allocation_that_fails_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
