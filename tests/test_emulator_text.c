/* Single instructions as text: parsed, launched and executed, with results known from the PTX ISA. What the other tests
 * of instructions put together by hand, the parser must put together the same way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "emulator.h"

/* Sources: %r1 to %r3, %f1 to %f3, %l1 to %l3 and %h1 to %h3 hold a, b and c, as much as fits; %p1 to %p3 their lowest
 * bits. The result is in register 0 of the kind that the letter names. */
typedef struct known {
    const char *text;
    char kind;
    uint64_t a, b, c, result;
} known;

static const char head[] =
    ".version 8.8\n.target sm_100a\n.address_size 64\n"
    ".visible .entry kernel(.param .b64 out, .param .b64 a, .param .b64 b, .param .b64 c)\n{\n"
    ".reg .b32 %r<8>;\n.reg .f32 %f<8>;\n.reg .b64 %l<8>;\n.reg .b16 %h<8>;\n.reg .pred %p<8>;\n.reg .b32 %t<4>;\n"
    ".shared .align 16 .b8 room[64];\n"
    "ld.param.b64 %l7, [out];\nld.param.b64 %l1, [a];\nld.param.b64 %l2, [b];\nld.param.b64 %l3, [c];\n";
static const char each[] =
    "cvt.u32.u64 %%r%d, %%l%d;\nmov.b32 %%f%d, %%r%d;\ncvt.u16.u64 %%h%d, %%l%d;\nand.b32 %%t0, %%r%d, 1;\n"
    "setp.ne.u32 %%p%d, %%t0, 0;\n";

static bool launch(const char *text, const known *k, uint64_t *result, emulator_error *error)
{
    bool ok = false;
    memset(error, 0, sizeof *error);
    emulator_module *module = emulator_module_parse(text, strlen(text), "text", error);
    if (module == NULL) return false;
    emulator_memory *memory = emulator_memory_create();
    uint64_t out = emulator_memory_allocate(memory, 256), a = k->a, b = k->b, c = k->c;
    void *parameters[] = {&out, &a, &b, &c};
    const emulator_launch_config config = {.module = module,
                                           .entry = "kernel",
                                           .grid = {1, 1, 1},
                                           .block = {1, 1, 1},
                                           .parameters = parameters,
                                           .memory = memory,
                                           .judge = true};
    ok = emulator_launch(&config, NULL, error);
    if (ok) memcpy(result, (void *)(uintptr_t)out, sizeof *result);
    emulator_memory_destroy(memory);
    emulator_module_destroy(module);
    return ok;
}

static void check(const known *k)
{
    char text[4096];
    size_t n = (size_t)snprintf(text, sizeof text, "%s", head);
    for (int s = 1; s <= 3; s++) n += (size_t)snprintf(text + n, sizeof text - n, each, s, s, s, s, s, s, s, s);
    n += (size_t)snprintf(text + n, sizeof text - n, "%s\n", k->text);
    switch (k->kind) {
    case 'r':
        n += (size_t)snprintf(text + n, sizeof text - n, "cvt.u64.u32 %%l0, %%r0;\n");
        break;
    case 'f':
        n += (size_t)snprintf(text + n, sizeof text - n, "mov.b32 %%r0, %%f0;\ncvt.u64.u32 %%l0, %%r0;\n");
        break;
    case 'h':
        n += (size_t)snprintf(text + n, sizeof text - n, "cvt.u64.u16 %%l0, %%h0;\n");
        break;
    case 'p':
        n += (size_t)snprintf(text + n, sizeof text - n, "selp.b64 %%l0, 1, 0, %%p0;\n");
        break;
    default:
        break;
    }
    snprintf(text + n, sizeof text - n, "st.global.b64 [%%l7], %%l0;\nret;\n}\n");
    uint64_t result = 0;
    static emulator_error error;
    if (!launch(text, k, &result, &error))
        fail_msg("%s: line %d: %s: %s", k->text, error.line, emulator_fault_name(error.fault), error.message);
    if (result != k->result) fail_msg("%s: 0x%" PRIx64 ", not 0x%" PRIx64, k->text, result, k->result);
}

#define ONE  UINT64_C(0x3f800000)
#define TINY UINT64_C(0x00000001)

static void integer_instructions_in_text_give_known_results(void **state)
{
    (void)state;
    static const known cases[] = {
        {"add.s32 %r0, %r1, -1;", 'r', 0, 0, 0, 0xffffffff},
        {"add.sat.s32 %r0, %r1, %r2;", 'r', 0x7fffffff, 1, 0, 0x7fffffff},
        {"mad.hi.sat.s32 %r0, %r1, %r2, %r3;", 'r', 0x7fffffff, 0x7fffffff, 0x7fffffff, 0x7fffffff},
        {"sub.s64 %l0, %l1, %l2;", 'l', 1, 2, 0, UINT64_MAX},
        {"mul.lo.s32 %r0, %r1, %r2;", 'r', 0x10001, 0x10001, 0, 0x20001},
        {"mul.hi.u32 %r0, %r1, %r2;", 'r', 0xffffffff, 0xffffffff, 0, 0xfffffffe},
        {"mul.hi.s32 %r0, %r1, %r2;", 'r', 0xffffffff, 2, 0, 0xffffffff},
        {"mul.wide.s32 %l0, %r1, -2;", 'l', 3, 0, 0, (uint64_t)-6},
        {"mul.wide.u16 %r0, %h1, %h2;", 'r', 0xffff, 0xffff, 0, 0xfffe0001},
        {"mad.lo.s32 %r0, %r1, %r2, %r3;", 'r', 3, 5, 7, 22},
        {"mad.wide.u32 %l0, %r1, %r2, %l3;", 'l', 0xffffffff, 2, 5, UINT64_C(0x200000003)},
        {"mad.hi.u32 %r0, %r1, %r2, %r3;", 'r', 0x80000000, 4, 1, 3},
        {"div.u32 %r0, %r1, %r2;", 'r', 100, 7, 0, 14},
        {"div.s32 %r0, %r1, %r2;", 'r', (uint32_t)-100, 7, 0, (uint32_t)-14},
        {"rem.s32 %r0, %r1, %r2;", 'r', (uint32_t)-100, 7, 0, (uint32_t)-2},
        {"div.u32 %r0, %r1, %r2;", 'r', 100, 0, 0, 0xffffffff},
        {"max.s32 %r0, %r1, %r2;", 'r', 0xffffffff, 1, 0, 1},
        {"max.u32 %r0, %r1, %r2;", 'r', 0xffffffff, 1, 0, 0xffffffff},
        {"min.s16 %h0, %h1, %h2;", 'h', 0x8000, 1, 0, 0x8000},
        {"abs.s32 %r0, %r1;", 'r', (uint32_t)-5, 0, 0, 5},
        {"neg.s32 %r0, %r1;", 'r', 5, 0, 0, (uint32_t)-5},
        {"lop3.b32 %r0, %r1, %r2, %r3, 0xe8;", 'r', 0xf0, 0xcc, 0xaa, 0xe8},
        {"lop3.b32 %r0, %r1, %r2, %r3, 0x6a;", 'r', 0xf0, 0xcc, 0xaa, 0x6a},
        {"shl.b32 %r0, %r1, 33;", 'r', 1, 0, 0, 0},
        {"shr.s32 %r0, %r1, %r2;", 'r', 0x80000000, 99, 0, 0xffffffff},
        {"shr.u64 %l0, %l1, %r2;", 'l', UINT64_C(0x8000000000000000), 60, 0, 8},
        {"shf.l.wrap.b32 %r0, %r1, %r2, %r3;", 'r', 0x80000000, 1, 33, 3},
        {"shf.l.clamp.b32 %r0, %r1, %r2, %r3;", 'r', 0x12345678, 1, 33, 0x12345678},
        {"shf.r.wrap.b32 %r0, %r1, %r2, %r3;", 'r', 0x10, 0x3, 4, 0x30000001},
        {"shf.r.clamp.b32 %r0, %r1, %r2, %r3;", 'r', 0x10, 0x3, 40, 3},
        {"prmt.b32 %r0, %r1, %r2, 0x5410;", 'r', 0x03020100, 0x07060504, 0, 0x05040100},
        {"prmt.b32 %r0, %r1, %r2, 0xba98;", 'r', 0x80018001, 0, 0, 0xff00ff00},
        {"prmt.b32.f4e %r0, %r1, %r2, %r3;", 'r', 0x03020100, 0x07060504, 1, 0x04030201},
        {"prmt.b32.b4e %r0, %r1, %r2, %r3;", 'r', 0x03020100, 0x07060504, 1, 0x06070001},
        {"prmt.b32.rc16 %r0, %r1, %r2, %r3;", 'r', 0x03020100, 0, 1, 0x03020302},
        {"bfe.u32 %r0, %r1, 4, 8;", 'r', 0x12345678, 0, 0, 0x67},
        {"bfe.s32 %r0, %r1, 28, 8;", 'r', 0x92345678, 0, 0, 0xfffffff9},
        {"bfi.b32 %r0, %r1, %r2, 8, 8;", 'r', 0xab, 0x12345678, 0, 0x1234ab78},
        {"brev.b32 %r0, %r1;", 'r', 1, 0, 0, 0x80000000},
        {"bfind.u32 %r0, %r1;", 'r', 0x10, 0, 0, 4},
        {"bfind.shiftamt.u32 %r0, %r1;", 'r', 0x10, 0, 0, 27},
        {"popc.b64 %r0, %l1;", 'r', UINT64_C(0xff000000000000ff), 0, 0, 16},
        {"clz.b64 %r0, %l1;", 'r', 1, 0, 0, 63},
        {"mov.b64 %l0, {%r1, %r2};", 'l', 1, 2, 0, UINT64_C(0x200000001)},
        {"mov.b64 {_, %r0}, %l1;", 'r', UINT64_C(0x200000001), 0, 0, 2},
        {"mov.b32 {%h0, _}, %r1;", 'h', 0x12345678, 0, 0, 0x5678},
        {"selp.b32 %r0, %r1, %r2, !%p3;", 'r', 1, 2, 1, 2},
        {"setp.lt.s32 %p0, %r1, %r2;", 'p', 0xffffffff, 0, 0, 1},
        {"setp.lo.u32 %p0, %r1, %r2;", 'p', 0xffffffff, 0, 0, 0},
        {"setp.eq.and.u32 %p0|%p4, %r1, %r2, !%p3;", 'p', 3, 3, 2, 1},
        {"setp.eq.or.u32 %p4|%p0, %r1, %r2, %p3;", 'p', 3, 3, 0, 0},
        {"setp.ne.b64 %p0, %l1, 0;", 'p', UINT64_C(0x100000000), 0, 0, 1},
        {"xor.pred %p0, %p1, %p2;", 'p', 1, 0, 0, 1},
        {"not.pred %p0, %p1;", 'p', 1, 0, 0, 0},
        {"elect.sync _|%p0, -1;", 'p', 0, 0, 0, 1},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) check(&cases[n]);
}

static void float_instructions_in_text_give_known_results(void **state)
{
    (void)state;
    static const known cases[] = {
        {"add.rn.f32 %f0, %f1, 0f3F800000;", 'f', ONE, 0, 0, 0x40000000},
        {"add.rp.f32 %f0, %f1, %f2;", 'f', ONE, TINY, 0, 0x3f800001},
        {"add.rp.ftz.f32 %f0, %f1, %f2;", 'f', ONE, TINY, 0, ONE},
        {"sub.rm.f32 %f0, %f1, %f2;", 'f', ONE, TINY, 0, 0x3f7fffff},
        {"sub.rm.f32 %f0, %f1, %f2;", 'f', ONE, ONE, 0, 0x80000000},
        {"mul.rz.f32 %f0, %f1, %f2;", 'f', 0x7f7fffff, 0x7f7fffff, 0, 0x7f7fffff},
        {"mul.sat.f32 %f0, %f1, %f2;", 'f', 0x40000000, 0x40000000, 0, ONE},
        {"fma.rn.f32 %f0, %f1, %f2, %f3;", 'f', 0x3f800001, 0x3f800001, 0xbf800002, 0x28800000},
        {"div.rn.f32 %f0, %f1, %f2;", 'f', ONE, 0x40400000, 0, 0x3eaaaaab},
        {"div.rz.f32 %f0, %f1, %f2;", 'f', ONE, 0x40400000, 0, 0x3eaaaaaa},
        {"div.approx.f32 %f0, %f1, %f2;", 'f', ONE, 0x7f000000, 0, 0},
        {"div.full.f32 %f0, %f1, %f2;", 'f', 0x7f000000, 0x7f000000, 0, ONE},
        {"max.f32 %f0, %f1, %f2;", 'f', 0x7fc00000, 0xbf800000, 0, 0xbf800000},
        {"max.NaN.f32 %f0, %f1, %f2;", 'f', 0x7fc00000, 0xbf800000, 0, 0x7fffffff},
        {"min.f32 %f0, %f1, %f2;", 'f', 0, 0x80000000, 0, 0x80000000},
        {"abs.f32 %f0, %f1;", 'f', 0xbf800000, 0, 0, ONE},
        {"neg.ftz.f32 %f0, %f1;", 'f', TINY, 0, 0, 0x80000000},
        {"ex2.approx.ftz.f32 %f0, %f1;", 'f', 0xc3020000, 0, 0, 0},
        {"ex2.approx.f32 %f0, %f1;", 'f', 0xc3020000, 0, 0, 0x00080000},
        {"lg2.approx.ftz.f32 %f0, %f1;", 'f', 0x41000000, 0, 0, 0x40400000},
        {"rcp.approx.ftz.f32 %f0, %f1;", 'f', 0x40800000, 0, 0, 0x3e800000},
        {"sqrt.approx.f32 %f0, %f1;", 'f', 0x40800000, 0, 0, 0x40000000},
        {"setp.nan.f32 %p0, %f1, %f2;", 'p', 0x7fc00000, 0, 0, 1},
        {"setp.gtu.f32 %p0, %f1, %f2;", 'p', 0x7fc00000, 0, 0, 1},
        {"setp.ne.f32 %p0, %f1, %f2;", 'p', 0x7fc00000, 0, 0, 0},
        {"add.f16x2 %r0, %r1, %r2;", 'r', 0x3c004000, 0x3c003c00, 0, 0x40004200},
        {"fma.rn.bf16 %h0, %h1, %h2, %h3;", 'h', 0x4000, 0x4040, 0x3f80, 0x40e0},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) check(&cases[n]);
}

static void conversions_in_text_give_known_results(void **state)
{
    (void)state;
    static const known cases[] = {
        {"cvt.s64.s32 %l0, %r1;", 'l', 0x80000000, 0, 0, UINT64_C(0xffffffff80000000)},
        {"cvt.s32.s8 %r0, %r1;", 'r', 0x1ff, 0, 0, 0xffffffff},
        {"cvt.sat.u8.s32 %r0, %r1;", 'r', 0x1ff, 0, 0, 0xff},
        {"cvt.rn.f32.s32 %f0, %r1;", 'f', 0xffffffff, 0, 0, 0xbf800000},
        {"cvt.rz.f32.u32 %f0, %r1;", 'f', 0xffffffff, 0, 0, 0x4f7fffff},
        {"cvt.rn.f32.u32 %f0, %r1;", 'f', 0xffffffff, 0, 0, 0x4f800000},
        {"cvt.rni.s32.f32 %r0, %f1;", 'r', 0x40200000, 0, 0, 2},
        {"cvt.rpi.s32.f32 %r0, %f1;", 'r', 0x40200000, 0, 0, 3},
        {"cvt.rzi.u32.f32 %r0, %f1;", 'r', 0xbf800000, 0, 0, 0},
        {"cvt.rzi.s32.f32 %r0, %f1;", 'r', 0x7fc00000, 0, 0, 0},
        {"cvt.rzi.s64.f32 %l0, %f1;", 'l', 0x7fc00000, 0, 0, UINT64_C(0x8000000000000000)},
        {"cvt.rmi.f32.f32 %f0, %f1;", 'f', 0xbf000000, 0, 0, 0xbf800000},
        {"cvt.sat.f32.f32 %f0, %f1;", 'f', 0x40000000, 0, 0, ONE},
        {"cvt.f32.f16 %f0, %h1;", 'f', 0x3c00, 0, 0, ONE},
        {"cvt.f32.bf16 %f0, %h1;", 'f', 0x3f80, 0, 0, ONE},
        {"cvt.rn.f16.f32 %h0, %f1;", 'h', 0x477ff000, 0, 0, 0x7c00},
        {"cvt.rz.f16.f32 %h0, %f1;", 'h', 0x477ff000, 0, 0, 0x7bff},
        {"cvt.rn.bf16.f32 %h0, %f1;", 'h', 0x3f808000, 0, 0, 0x3f80},
        {"cvt.rn.f16x2.f32 %r0, %f1, %f2;", 'r', ONE, 0x40000000, 0, 0x3c004000},
        {"cvt.rn.relu.bf16x2.f32 %r0, %f1, %f2;", 'r', 0xbf800000, 0x40000000, 0, 0x00004000},
        {"cvt.rn.satfinite.e4m3x2.f32 %h0, %f1, %f2;", 'h', 0x447a0000, ONE, 0, 0x7e38},
        {"cvt.rn.satfinite.e5m2x2.f32 %h0, %f1, %f2;", 'h', 0x7f800000, ONE, 0, 0x7b3c},
        {"cvt.rn.f16x2.e4m3x2 %r0, %h1;", 'r', 0x7e38, 0, 0, 0x5f003c00},
        {"cvt.rn.satfinite.e4m3x2.f16x2 %h0, %r1;", 'h', 0x3c00bc00, 0, 0, 0x38b8},
        {"cvt.rna.tf32.f32 %r0, %f1;", 'r', 0x3f801000, 0, 0, 0x3f802000},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) check(&cases[n]);
}

static void memory_and_lanes_in_text_give_known_results(void **state)
{
    (void)state;
    static const known cases[] = {
        {"mov.b32 %r4, room; st.shared.v2.b32 [%r4+8], {%r1, %r2}; ld.shared.b32 %r0, [room+12];", 'r', 1, 2, 0, 2},
        {"mov.b64 %l4, room; cvta.shared.u64 %l4, %l4; st.shared.b16 [room], %h1; ld.s8 %r0, [%l4+1];", 'r', 0x8001, 0,
         0, 0xffffff80},
        {"st.global.v4.b32 [%l7+16], {%r1, %r2, %r3, %r1}; ld.global.nc.v2.b64 {%l4, %l0}, [%l7+16];", 'l', 1, 2, 3,
         UINT64_C(0x100000003)},
        {"st.global.v8.b32 [%l7+32], {%r1, %r2, %r3, %r1, %r1, %r2, %r3, %r1}; ld.global.u8 %r0, [%l7+40];", 'r', 1, 2,
         0x1234, 0x34},
        {"st.shared.b32 [room], %r1; atom.shared.min.s32 %r4, [room], %r2; ld.shared.b32 %r0, [room];", 'r', 5,
         0xffffffff, 0, 0xffffffff},
        {"st.global.b32 [%l7+8], %r1; atom.global.cas.b32 %r0, [%l7+8], %r2, %r3;", 'r', 5, 5, 9, 5},
        {"st.global.b64 [%l7+8], %l1; red.global.add.u64 [%l7+8], %l2; ld.global.cg.b64 %l0, [%l7+8];", 'l', UINT32_MAX,
         1, 0, UINT64_C(0x100000000)},
        {"st.global.b32 [%l7+8], %r1; atom.global.inc.u32 %r4, [%l7+8], %r2; ld.volatile.global.b32 %r0, [%l7+8];", 'r',
         3, 3, 0, 0},
        {"shfl.sync.idx.b32 %r0|%p4, %r1, 0, 31, 1;", 'r', 42, 0, 0, 42},
        {"shfl.sync.down.b32 %r4|%p0, %r1, 1, 0, 1;", 'p', 42, 0, 0, 0},
        {"vote.sync.ballot.b32 %r0, %p1, 1;", 'r', 1, 0, 0, 1},
        {"vote.sync.any.pred %p0, !%p1, 1;", 'p', 1, 0, 0, 0},
        {"redux.sync.max.u32 %r0, %r1, 1;", 'r', 7, 0, 0, 7},
        {"match.any.sync.b32 %r0, %r1, 1;", 'r', 7, 0, 0, 1},
        {"activemask.b32 %r0;", 'r', 0, 0, 0, 1},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) check(&cases[n]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integer_instructions_in_text_give_known_results),
        cmocka_unit_test(float_instructions_in_text_give_known_results),
        cmocka_unit_test(conversions_in_text_give_known_results),
        cmocka_unit_test(memory_and_lanes_in_text_give_known_results),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
