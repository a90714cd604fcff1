/* Single instructions as text, on random and awkward values, against the same thing said in C: f64 under every rounding
 * mode, extended arithmetic, comparisons that give values, rare integer instructions, atomics on 16 and 64 bits. */
#include <fenv.h>
#include <math.h>

#include "emulator_scalar_fixture.h"

enum { THREADS = 256, ROUNDS = 4 };

typedef struct values {
    uint64_t a, b, c;
} values;

typedef uint64_t (*oracle)(values v, int mode);

static bool is_nan64(uint64_t v)
{
    return (v & INT64_MAX) > UINT64_C(0x7ff0000000000000);
}

/* Runs `statements`, which make %d of %a, %b, %c (64 bits; %a0, %b0, %c0 are their low words, %d0 a word that becomes
 * the result if `word`), for many values. */
static void check(const char *name, const char *statements, bool word, bool doubles, oracle expected, int mode)
{
    char text[4096];
    emulator_error error;
    int length = snprintf(text, sizeof text,
                          ".version 8.6\n.target sm_90a\n.address_size 64\n"
                          ".visible .entry k(.param .u64 in, .param .u64 out) {\n"
                          ".reg .b64 %%p, %%q, %%a, %%b, %%c, %%d; .reg .b32 %%t, %%a0, %%b0, %%c0, %%d0, %%h; .reg "
                          ".b16 %%w<4>; .reg .pred %%x<4>;\n"
                          "mov.u32 %%t, %%tid.x; ld.param.u64 %%p, [in]; ld.param.u64 %%q, [out];\n"
                          "mad.wide.u32 %%p, %%t, 24, %%p; mad.wide.u32 %%q, %%t, 8, %%q;\n"
                          "ld.global.u64 %%a, [%%p]; ld.global.u64 %%b, [%%p+8]; ld.global.u64 %%c, [%%p+16];\n"
                          "cvt.u32.u64 %%a0, %%a; cvt.u32.u64 %%b0, %%b; cvt.u32.u64 %%c0, %%c;\n"
                          "%s\n%s st.global.u64 [%%q], %%d; ret; }\n",
                          statements, word ? "cvt.u64.u32 %d, %d0;" : "");
    assert_true(length < (int)sizeof text);
    emulator_module *m = emulator_module_parse(text, (size_t)length, name, &error);
    if (!m) fail_msg("%s: line %d: %s", name, error.line, error.message);
    random_source r = random_start(name);
    for (int round = 0; round < ROUNDS; round++) {
        emulator_memory *memory = emulator_memory_create();
        uint64_t in = emulator_memory_allocate(memory, THREADS * sizeof(values));
        uint64_t out = emulator_memory_allocate(memory, THREADS * 8);
        values *v = (values *)(uintptr_t)in;
        for (int t = 0; t < THREADS; t++) {
            uint64_t *each[] = {&v[t].a, &v[t].b, &v[t].c};
            for (int k = 0; k < 3; k++) {
                *each[k] = random_integer(&r);
                if (doubles && t % 2) { /* doubles of a moderate size */
                    double x = ldexp((double)(int64_t)random_u64(&r), (int)(random_u64(&r) % 80) - 100);
                    memcpy(each[k], &x, sizeof x);
                }
            }
            if (t % 8 == 0) v[t].b = v[t].a;
        }
        emulator_memory_define(memory, in, THREADS * sizeof(values));
        void *parameters[] = {&in, &out};
        emulator_launch_config config = {.module = m,
                                         .entry = "k",
                                         .grid = {1, 1, 1},
                                         .block = {THREADS, 1, 1},
                                         .parameters = parameters,
                                         .memory = memory,
                                         .judge = true};
        if (!emulator_launch(&config, NULL, &error)) fail_msg("%s: line %d: %s", name, error.line, error.message);
        for (int t = 0; t < THREADS; t++) {
            uint64_t want = expected(v[t], mode), have = ((uint64_t *)(uintptr_t)out)[t];
            /* Which of two NaNs a sum keeps is left to the machine. */
            if (doubles && !word && is_nan64(want) && is_nan64(have)) continue;
            if (want != have)
                fail_msg("%s of %016llx %016llx %016llx: %016llx, expected %016llx", name, (unsigned long long)v[t].a,
                         (unsigned long long)v[t].b, (unsigned long long)v[t].c, (unsigned long long)have,
                         (unsigned long long)want);
        }
        emulator_memory_destroy(memory);
    }
    emulator_module_destroy(m);
}

/* ---- f64 ---- */

static double as_double(uint64_t v)
{
    double x;
    memcpy(&x, &v, sizeof x);
    return x;
}
static uint64_t as_bits(double x)
{
    uint64_t v;
    memcpy(&v, &x, sizeof v);
    return v;
}

#define DOUBLE_ORACLE(name, expression)                                                                                \
    static uint64_t name(values v, int mode)                                                                           \
    {                                                                                                                  \
        volatile double x = as_double(v.a), y = as_double(v.b), z = as_double(v.c), d;                                 \
        (void)y, (void)z;                                                                                              \
        fesetround(mode);                                                                                              \
        d = (expression);                                                                                              \
        fesetround(FE_TONEAREST);                                                                                      \
        return as_bits(d);                                                                                             \
    }
DOUBLE_ORACLE(add64, x + y)
DOUBLE_ORACLE(sub64, x - y)
DOUBLE_ORACLE(mul64, x *y)
DOUBLE_ORACLE(div64, x / y)
DOUBLE_ORACLE(fma64, fma(x, y, z))
DOUBLE_ORACLE(rcp64, 1 / x)
DOUBLE_ORACLE(sqrt64, sqrt(x))

static void doubles_are_rounded_in_every_mode(void **state)
{
    (void)state;
    static const struct {
        const char *suffix;
        int mode;
    } modes[] = {{"rn", FE_TONEAREST}, {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};
    static const struct {
        const char *operation, *operands;
        oracle expected;
    } operations[] = {{"add", "%a, %b", add64}, {"sub", "%a, %b", sub64}, {"mul", "%a, %b", mul64},
                      {"div", "%a, %b", div64}, {"rcp", "%a", rcp64},     {"fma", "%a, %b, %c", fma64},
                      {"sqrt", "%a", sqrt64}};
    for (size_t o = 0; o < sizeof operations / sizeof *operations; o++)
        for (size_t k = 0; k < sizeof modes / sizeof *modes; k++) {
            char text[256];
            snprintf(text, sizeof text, "%s.%s.f64 %%d, %s;", operations[o].operation, modes[k].suffix,
                     operations[o].operands);
            check(text, text, false, true, operations[o].expected, modes[k].mode);
        }
}

static uint64_t float_of(values v, int mode)
{
    volatile double x = as_double(v.a);
    fesetround(mode);
    volatile float f = (float)x;
    fesetround(FE_TONEAREST);
    uint32_t bits = f32_bits(f);
    return isnan(x) ? 0x7fffffff : bits;
}
static uint64_t whole_of(values v, int mode)
{
    (void)mode;
    double x = as_double(v.a);
    if (isnan(x)) return UINT64_C(1) << 63;
    x = floor(x);
    return x >= 0x1p63 ? INT64_MAX : x <= -0x1p63 ? UINT64_C(1) << 63 : (uint64_t)(int64_t)x;
}
static uint64_t from_unsigned(values v, int mode)
{
    (void)mode;
    return as_bits((double)v.a);
}
static uint64_t least_of(values v, int mode)
{
    double x = as_double(v.a), y = as_double(v.b);
    (void)mode;
    if (isnan(x) || isnan(y)) return isnan(x) ? v.b : v.a;
    if (x == y) return signbit(x) ? v.a : v.b;
    return x < y ? v.a : v.b;
}
static uint64_t less_or_unordered(values v, int mode)
{
    (void)mode;
    return !(as_double(v.a) >= as_double(v.b));
}
/* The gross approximation has an error of 2^-20, and no bit below the upper word. */
static void gross_reciprocals_are_close(void **state)
{
    (void)state;
    for (uint64_t k = 1; k < 2000; k++) {
        double x = ldexp(1 + (double)k / 1999, (int)(k % 60) - 30);
        scene *s = scene_create();
        instruction i = {.operands = 2, .mods = {.type = {TYPE_F64}, .approx = true, .ftz = true}};
        i.operand[0] = in_register(TYPE_F64, 0);
        i.operand[1] = in_register(TYPE_F64, 2);
        put(s, 2, 0, 8, as_bits(k % 2 ? x : -x));
        assert_int_equal(scene_run(s, exec_rcp_double, &i), EMULATOR_OK);
        double d = as_double(get(s, 0, 0, 8));
        assert_true(fabs(d * (k % 2 ? x : -x) - 1) < 0x1p-19);
        assert_int_equal((uint32_t)get(s, 0, 0, 8), 0);
        scene_destroy(s);
    }
}

static void doubles_are_converted_and_compared(void **state)
{
    (void)state;
    check("cvt.rm.f32.f64", "cvt.rm.f32.f64 %d0, %a;", true, true, float_of, FE_DOWNWARD);
    check("cvt.rn.f32.f64", "cvt.rn.f32.f64 %d0, %a;", true, true, float_of, FE_TONEAREST);
    check("cvt.rmi.s64.f64", "cvt.rmi.s64.f64 %d, %a;", false, true, whole_of, 0);
    check("cvt.rn.f64.u64", "cvt.rn.f64.u64 %d, %a;", false, true, from_unsigned, 0);
    check("min.f64", "min.f64 %d, %a, %b;", false, true, least_of, 0);
    check("setp.ltu.f64", "setp.ltu.f64 %x0, %a, %b; selp.u64 %d, 1, 0, %x0;", false, true, less_or_unordered, 0);
}

/* ---- Carries ---- */

__extension__ typedef unsigned __int128 uint128;

static uint64_t high_sum(values v, int mode)
{
    (void)mode;
    return (uint64_t)(((uint128)v.a + v.b) >> 64) + v.c;
}
static uint64_t high_difference(values v, int mode)
{
    (void)mode;
    return v.c - v.a - (v.a < v.b);
}
static uint64_t wide_product(values v, int mode)
{
    (void)mode;
    return (uint64_t)(((uint128)v.a * v.b + (((uint128)v.c << 64) | v.c)) >> 64);
}
static uint64_t by_words(values v, int mode)
{
    (void)mode;
    return v.a + v.b * 2;
}

static void extended_arithmetic_carries(void **state)
{
    (void)state;
    check("addc", "add.cc.u64 %d, %a, %b; addc.u64 %d, %c, 0;", false, false, high_sum, 0);
    check("subc", "sub.cc.s64 %d, %a, %b; subc.s64 %d, %c, %a;", false, false, high_difference, 0);
    check("madc", "mad.lo.cc.u64 %d, %a, %b, %c; madc.hi.u64 %d, %a, %b, %c;", false, false, wide_product, 0);
    check("addc by words",
          "shr.u64 %p, %a, 32; shr.u64 %q, %b, 31; cvt.u32.u64 %h, %p; cvt.u32.u64 %t, %q; shl.b32 %b0, %b0, 1;\n"
          "add.cc.u32 %a0, %a0, %b0; addc.u32 %h, %h, %t; mov.b64 %d, {%a0, %h};\n"
          "ld.param.u64 %q, [out]; mov.u32 %t, %tid.x; mad.wide.u32 %q, %t, 8, %q;",
          false, false, by_words, 0);
}

/* ---- Comparisons of halves ---- */

static double half_of(uint32_t bits, bool brain)
{
    return number_widen(number_format_of(brain ? TYPE_BF16 : TYPE_F16), bits & 0xffff);
}
static uint64_t both_less(values v, int brain)
{
    uint32_t d = 0;
    for (int k = 0; k < 32; k += 16)
        if (half_of((uint32_t)v.a >> k, brain) < half_of((uint32_t)v.b >> k, brain)) d |= 0xffffu << k;
    return d;
}
static uint64_t both_ones(values v, int brain)
{
    uint32_t d = 0;
    for (int k = 0; k < 32; k += 16)
        if (!(half_of((uint32_t)v.a >> k, brain) < half_of((uint32_t)v.b >> k, brain)))
            d |= (brain ? 0x3f80u : 0x3c00u) << k;
    return d;
}
static uint64_t two_predicates(values v, int brain)
{
    return (uint64_t)(half_of((uint32_t)v.a, brain) > half_of((uint32_t)v.b, brain)) +
           2 * (uint64_t)(half_of((uint32_t)v.a >> 16, brain) > half_of((uint32_t)v.b >> 16, brain));
}
static uint64_t signed_not_below(values v, int mode)
{
    (void)mode;
    return (int32_t)v.a >= (int32_t)v.b || (int32_t)v.c == 0 ? 0x3f800000 : 0;
}

static void comparisons_give_values(void **state)
{
    (void)state;
    check("set.lt.u32.f16x2", "set.lt.u32.f16x2 %d0, %a0, %b0;", true, false, both_less, 0);
    check("set.lt.s32.bf16x2", "set.lt.s32.bf16x2 %d0, %a0, %b0;", true, false, both_less, 1);
    check("set.geu.f16x2.f16x2", "set.geu.f16x2.f16x2 %d0, %a0, %b0;", true, false, both_ones, 0);
    check("set.geu.bf16x2.bf16x2", "set.geu.bf16x2.bf16x2 %d0, %a0, %b0;", true, false, both_ones, 1);
    check("setp.gt.f16x2",
          "setp.gt.f16x2 %x0|%x1, %a0, %b0; selp.u32 %t, 1, 0, %x0; selp.u32 %h, 2, 0, %x1; add.u32 %d0, %t, %h;", true,
          false, two_predicates, 0);
    check("set.ge.or.f32.s32", "setp.eq.u32 %x0, %c0, 0; set.ge.or.f32.s32 %d0, %a0, %b0, %x0;", true, false,
          signed_not_below, 0);
}

/* ---- Rare ---- */

static uint64_t sad_of(values v, int mode)
{
    (void)mode;
    int64_t d = (int64_t)(int32_t)v.a - (int32_t)v.b;
    return (uint32_t)((uint32_t)(d < 0 ? -d : d) + (uint32_t)v.c);
}
static uint64_t dot_of(values v, int mode)
{
    int64_t sum = (uint32_t)v.c;
    (void)mode;
    for (int k = 0; k < 32; k += 8) sum += (int64_t)(int8_t)(v.a >> k) * (uint8_t)(v.b >> k);
    return (uint32_t)sum;
}
static uint64_t mask_of(values v, int mode)
{
    uint32_t a = (uint32_t)v.a & 63, b = (uint32_t)v.b & 63;
    uint64_t ones = a >= 32 ? 0 : ((UINT64_C(1) << b) - 1) << a;
    (void)mode;
    return (uint32_t)ones;
}
static uint64_t select_of(values v, int mode)
{
    (void)mode;
    return (int32_t)v.c >= 0 ? v.a : v.b;
}
static uint64_t saturated_pairs(values v, int mode)
{
    uint32_t d = 0;
    (void)mode;
    for (int k = 0; k < 32; k += 16) {
        int x = (int16_t)(v.a >> k) + (int16_t)(v.b >> k);
        x = x > INT16_MAX ? INT16_MAX : x < INT16_MIN ? INT16_MIN : x;
        d |= ((uint32_t)x & 0xffff) << k;
    }
    return d;
}
static uint64_t extended_field(values v, int mode)
{
    int width = (int)(v.b & 31);
    (void)mode;
    return width == 0 ? 0 : (uint32_t)((int32_t)((uint32_t)v.a << (32 - width)) >> (32 - width));
}
static uint64_t packed_bytes(values v, int mode)
{
    int32_t a = (int32_t)v.a, b = (int32_t)v.b;
    (void)mode;
    a = a > 127 ? 127 : a < -128 ? -128 : a;
    b = b > 127 ? 127 : b < -128 ? -128 : b;
    return (uint32_t)v.c << 16 | ((uint32_t)a & 0xff) << 8 | ((uint32_t)b & 0xff);
}
static uint64_t product24(values v, int mode)
{
    (void)mode;
    return (uint32_t)((int64_t)((int32_t)((uint32_t)v.a << 8) >> 8) * ((int32_t)((uint32_t)v.b << 8) >> 8));
}

static uint64_t seven(values v, int mode)
{
    (void)v, (void)mode;
    return 7;
}

static void rare_integer_instructions(void **state)
{
    (void)state;
    check("sad.s32", "sad.s32 %d0, %a0, %b0, %c0;", true, false, sad_of, 0);
    check("dp4a.s32.u32", "dp4a.s32.u32 %d0, %a0, %b0, %c0;", true, false, dot_of, 0);
    check("bmsk.clamp", "and.b32 %a0, %a0, 63; and.b32 %b0, %b0, 63; bmsk.clamp.b32 %d0, %a0, %b0;", true, false,
          mask_of, 0);
    check("slct.u64.s32", "slct.u64.s32 %d, %a, %b, %c0;", false, false, select_of, 0);
    check("add.sat.s16x2", "add.sat.s16x2 %d0, %a0, %b0;", true, false, saturated_pairs, 0);
    check("szext.wrap.s32", "szext.wrap.s32 %d0, %a0, %b0;", true, false, extended_field, 0);
    check("cvt.pack", "cvt.pack.sat.s8.s32.b32 %d0, %a0, %b0, %c0;", true, false, packed_bytes, 0);
    check("mul24.lo.s32", "mul24.lo.s32 %d0, %a0, %b0;", true, false, product24, 0);
    check("mov of bytes",
          "mov.b32 {%w0, %w1}, %a0; mov.b32 %d0, {%w0, 7}; mov.b32 {_, %w1}, %d0; cvt.u32.u16 %d0, %w1;", true, false,
          seven, 0);
}

/* ---- Atomics ---- */

/* Each thread adds its number to a sum and tries a swap; what the sum is does not depend on the order. */
static void atomics_of_16_and_64_bits(void **state)
{
    (void)state;
    static const char text[] =
        ".version 8.6\n.target sm_90a\n.address_size 64\n"
        ".visible .entry k(.param .u64 out) {\n"
        ".reg .b64 %q; .reg .f64 %d<3>; .reg .b32 %t, %h; .reg .b16 %s<4>; .reg .pred %x0; .shared .align 8 .b8 "
        "place[16];\n"
        "ld.param.u64 %q, [out]; mov.u32 %t, %tid.x; cvt.rn.f64.u32 %d0, %t; setp.ne.u32 %x0, %t, 0;\n"
        "@%x0 bra GO; mov.f64 %d1, 0d0000000000000000; st.shared.f64 [place], %d1; st.shared.u32 [place+8], 0;\n"
        "GO: bar.sync 0;\n"
        "atom.shared.add.f64 %d1, [place], %d0; red.global.add.f64 [%q], %d0;\n"
        "cvt.rn.f16.u32 %s0, %t; mov.b32 %h, {%s0, %s0}; red.global.add.noftz.f16x2 [%q+8], %h;\n"
        "cvt.u16.u32 %s1, %t; add.u16 %s2, %s1, 1; atom.shared.cas.b16 %s3, [place+8], %s1, %s2;\n"
        "bar.sync 0; @%x0 ret; ld.shared.f64 %d2, [place]; st.global.f64 [%q+16], %d2; ld.shared.u16 %s0, [place+8]; "
        "st.global.u16 [%q+24], %s0; ret; }\n";
    emulator_error error;
    emulator_module *m = emulator_module_parse(text, sizeof text - 1, "atomics", &error);
    if (!m) fail_msg("line %d: %s", error.line, error.message);
    for (int schedule = 0; schedule < EMULATOR_SCHEDULE_COUNT; schedule++) {
        emulator_memory *memory = emulator_memory_create();
        uint64_t out = emulator_memory_allocate(memory, 32);
        memset((void *)(uintptr_t)out, 0, 32);
        emulator_memory_define(memory, out, 32);
        void *parameters[] = {&out};
        emulator_launch_config config = {.module = m,
                                         .entry = "k",
                                         .grid = {1, 1, 1},
                                         .block = {64, 1, 1},
                                         .parameters = parameters,
                                         .memory = memory,
                                         .schedule = (emulator_schedule)schedule,
                                         .seed = 3,
                                         .judge = true};
        if (!emulator_launch(&config, NULL, &error)) fail_msg("line %d: %s", error.line, error.message);
        double global, shared;
        uint16_t halves[2], swapped;
        memcpy(&global, (char *)(uintptr_t)out, 8);
        memcpy(halves, (char *)(uintptr_t)out + 8, 4);
        memcpy(&shared, (char *)(uintptr_t)out + 16, 8);
        memcpy(&swapped, (char *)(uintptr_t)out + 24, 2);
        assert_true(global == 2016 && shared == 2016);
        assert_true(half_of(halves[0], false) == 2016 && half_of(halves[1], false) == 2016);
        assert_in_range(swapped, 1, 64); /* thread 0 at least has its turn; all have if they come in order */
        emulator_memory_destroy(memory);
    }
    emulator_module_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doubles_are_rounded_in_every_mode),
        cmocka_unit_test(gross_reciprocals_are_close),
        cmocka_unit_test(doubles_are_converted_and_compared),
        cmocka_unit_test(extended_arithmetic_carries),
        cmocka_unit_test(comparisons_give_values),
        cmocka_unit_test(rare_integer_instructions),
        cmocka_unit_test(atomics_of_16_and_64_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
