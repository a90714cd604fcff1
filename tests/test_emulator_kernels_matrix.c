/* Compiled kernels with mma.sync, wmma, ldmatrix and its like, cp.async and the barriers of libcu++ in the interpreter,
 * against C; and their planted bugs. */
#include "emulator_kernel_fixture.h"

static uint64_t random_state = 88172645463325252u;

static int draw(int low, int high)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (int)(low + (int64_t)(random_state % (uint64_t)((int64_t)high - low + 1)));
}

/* Bits of a value that the format holds: f16 (5 exponent bits), bf16 (8), e4m3 (4), e5m2 (5). */
static uint32_t encode(float value, int exponent_bits, int mantissa_bits)
{
    int exponent;
    float magnitude = frexpf(fabsf(value), &exponent); /* in [1/2, 1) */
    uint32_t sign = (uint32_t)(value < 0) << (exponent_bits + mantissa_bits);
    if (value == 0) return 0;
    uint32_t mantissa = (uint32_t)ldexpf(magnitude, mantissa_bits + 1) - (1u << mantissa_bits);
    return sign | (uint32_t)(exponent - 1 + (1 << (exponent_bits - 1)) - 1) << mantissa_bits | mantissa;
}
static float decode(uint32_t bits, int exponent_bits, int mantissa_bits)
{
    int exponent = (int)(bits >> mantissa_bits & ((1u << exponent_bits) - 1));
    float mantissa = (float)(bits & ((1u << mantissa_bits) - 1)) / (float)(1 << mantissa_bits);
    float v = exponent ? ldexpf(1 + mantissa, exponent - (1 << (exponent_bits - 1)) + 1)
                       : ldexpf(mantissa, 2 - (1 << (exponent_bits - 1)));
    return bits >> (exponent_bits + mantissa_bits) & 1 ? -v : v;
}
static uint16_t half(float v)
{
    return (uint16_t)encode(v, 5, 10);
}

enum { M = 16, N = 8 };

/* d = a [m][k] b [n][k] + c [m][n] in double */
static void multiply(int m, int n, int k, const float *a, const float *b, const float *c, double *d)
{
    for (int r = 0; r < m; r++)
        for (int j = 0; j < n; j++) {
            d[r * n + j] = c ? c[r * n + j] : 0;
            for (int x = 0; x < k; x++) d[r * n + j] += (double)a[r * k + x] * b[j * k + x];
        }
}

/* Quarters from -4 to 4: products and sums are exact in every format here. */
static void fill(float *v, int count, bool exact)
{
    for (int e = 0; e < count; e++) v[e] = exact ? (float)draw(-8, 8) / 4 : (float)draw(-1000, 1000) / 256;
}

static void halves_are_multiplied(void **state)
{
    (void)state;
    for (int round = 0; round < 6; round++) {
        float a[256], b[128], c[128];
        double d[128];
        bench s;
        bench_start(&s, "mma", "mma_f16", 1, 32);
        s.config.fast = round % 3 == 2;
        uint16_t *x = add_input(&s, 512), *y = add_input(&s, 256);
        float *z = add_input(&s, 512), *out = add_output(&s, 512);
        fill(a, 256, round < 3);
        fill(b, 128, round < 3);
        fill(c, 128, round < 3);
        for (int e = 0; e < 256; e++) x[e] = half(a[e]), a[e] = decode(x[e], 5, 10);
        for (int e = 0; e < 128; e++) y[e] = half(b[e]), b[e] = decode(y[e], 5, 10), z[e] = c[e];
        multiply(M, N, 16, a, b, c, d);
        bench_run(&s, round, 1);
        for (int e = 0; e < 128; e++) assert_true(round < 3 ? out[e] == d[e] : fabs(out[e] - d[e]) < 1e-4);
        bench_finish(&s);
    }
}

/* ldmatrix, ldmatrix.trans, stmatrix, movmatrix. */
static void matrices_move_between_memory_and_registers(void **state)
{
    (void)state;
    FOR_SCHEDULES(schedule, seed)
    {
        float a[256], b[128], b_rows[128];
        double d[128];
        bench s;
        bench_start(&s, "mma", "mma_matrices", 1, 32);
        uint16_t *x = add_input(&s, 512), *y = add_input(&s, 256), *out = add_output(&s, 256),
                 *turned = add_output(&s, 128);
        fill(a, 256, true);
        fill(b, 128, true); /* [k][n] */
        for (int e = 0; e < 256; e++) x[e] = half(a[e]);
        for (int e = 0; e < 128; e++) y[e] = half(b[e]), b_rows[e % 8 * 16 + e / 8] = b[e];
        multiply(M, N, 16, a, b_rows, NULL, d);
        bench_run(&s, schedule, seed);
        for (int e = 0; e < 128; e++) assert_true(decode(out[e], 5, 10) == (float)d[e]);
        for (int r = 0; r < 8; r++)
            for (int k = 0; k < 8; k++) assert_true(decode(turned[r * 8 + k], 5, 10) == (float)d[k * 8 + r]);
        bench_finish(&s);
    }
}

static void integers_are_multiplied(void **state)
{
    (void)state;
    bench s;
    bench_start(&s, "mma", "mma_s8", 1, 32);
    int8_t *x = add_input(&s, 512);
    uint8_t *y = add_input(&s, 256);
    int *z = add_input(&s, 512), *out = add_output(&s, 512);
    for (int e = 0; e < 512; e++) x[e] = (int8_t)draw(-128, 127);
    for (int e = 0; e < 256; e++) y[e] = (uint8_t)draw(0, 255);
    for (int e = 0; e < 128; e++) z[e] = e % 3 ? draw(-1000, 1000) : INT32_MAX - draw(0, 100000);
    bench_run(&s, 0, 0);
    for (int r = 0; r < M; r++)
        for (int j = 0; j < N; j++) {
            int64_t sum = z[r * N + j];
            for (int k = 0; k < 32; k++) sum += x[r * 32 + k] * y[j * 32 + k];
            assert_int_equal(out[r * N + j], sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum);
        }
    bench_finish(&s);
    bench_start(&s, "mma", "mma_s4", 1, 32);
    uint32_t *p = add_input(&s, 512), *q = add_input(&s, 256);
    out = add_output(&s, 512);
    for (int e = 0; e < 128; e++)
        p[e] = (uint32_t)draw(0, INT32_MAX) * 2 + (uint32_t)draw(0, 1), q[e / 2] = p[e] * 2654435761u;
    bench_run(&s, 1, 0);
    for (int r = 0; r < M; r++)
        for (int j = 0; j < N; j++) {
            int sum = 0;
            for (int k = 0; k < 64; k++) {
                int u = (int)(p[r * 8 + k / 8] >> (4 * (k % 8)) & 15),
                    v = (int)(q[j * 8 + k / 8] >> (4 * (k % 8)) & 15);
                sum += (u > 7 ? u - 16 : u) * v;
            }
            assert_int_equal(out[r * N + j], sum);
        }
    bench_finish(&s);
}

static void other_floats_are_multiplied(void **state)
{
    (void)state;
    float a[512], b[256];
    double d[128];
    bench s;
    bench_start(&s, "mma", "mma_tf32", 1, 32);
    float *x = add_input(&s, 512), *y = add_input(&s, 256), *out = add_output(&s, 512);
    uint16_t *u = add_input(&s, 256), *v = add_input(&s, 128);
    float *other = add_output(&s, 512);
    fill(x, 128, true);
    fill(y, 64, true);
    for (int e = 0; e < 128; e++) u[e] = (uint16_t)encode(x[e], 8, 7);
    for (int e = 0; e < 64; e++) v[e] = (uint16_t)encode(y[e], 8, 7);
    multiply(M, N, 8, x, y, NULL, d);
    bench_run(&s, 0, 0);
    for (int e = 0; e < 128; e++) assert_true(out[e] == (float)d[e] && other[e] == (float)d[e] + 1);
    bench_finish(&s);

    bench_start(&s, "mma", "mma_fp8", 1, 32);
    uint8_t *f = add_input(&s, 512), *g = add_input(&s, 256);
    out = add_output(&s, 512);
    for (int e = 0; e < 512; e++) a[e] = (float)draw(-7, 7) / 4, f[e] = (uint8_t)encode(a[e], 4, 3);
    for (int e = 0; e < 256; e++) b[e] = (float)draw(-3, 3), g[e] = (uint8_t)encode(b[e], 5, 2);
    multiply(M, N, 32, a, b, NULL, d);
    bench_run(&s, 0, 0);
    for (int e = 0; e < 128; e++) assert_true(out[e] == (float)d[e]);
    bench_finish(&s);

    bench_start(&s, "mma", "mma_f64", 1, 32);
    double *p = add_input(&s, 256), *q = add_input(&s, 256), *c = add_input(&s, 512), *wide = add_output(&s, 512);
    for (int e = 0; e < 32; e++) p[e] = draw(-1000, 1000) / 7.0, q[e] = draw(-1000, 1000) / 3.0;
    for (int e = 0; e < 64; e++) c[e] = draw(-9, 9);
    bench_run(&s, 0, 0);
    for (int r = 0; r < 8; r++)
        for (int j = 0; j < 8; j++) {
            double sum = c[r * 8 + j];
            for (int k = 0; k < 4; k++) sum = fma(p[r * 4 + k], q[j * 4 + k], sum);
            assert_true(wide[r * 8 + j] == sum);
        }
    bench_finish(&s);
}

/* Both layouts of each matrix, through wmma's own fragments. */
static void wmma_multiplies_every_type(void **state)
{
    (void)state;
    float a[512], b[256], c[256], columns[512];
    double d[256];
    bench s;
    bench_start(&s, "matrices", "wmma_half", 1, 32);
    uint16_t *x = add_input(&s, 512), *y = add_input(&s, 512);
    float *z = add_input(&s, 1024), *out = add_output(&s, 1024);
    uint16_t *halves = add_output(&s, 512);
    fill(a, 256, true);
    fill(b, 256, true);
    fill(c, 256, true);
    for (int e = 0; e < 256; e++) x[e] = half(a[e]), y[e] = half(b[e]), z[e] = c[e];
    multiply(16, 16, 16, a, b, c, d);
    bench_run(&s, 0, 0);
    for (int e = 0; e < 256; e++) {
        assert_true(out[e] == (float)d[e]);
        assert_true(decode(halves[e % 16 * 16 + e / 16], 5, 10) == (float)d[e] - c[e] + 1);
    }
    bench_finish(&s);

    bench_start(&s, "matrices", "wmma_wide", 1, 32);
    uint16_t *u = add_input(&s, 1024), *v = add_input(&s, 256);
    out = add_output(&s, 1024);
    int8_t *p = add_input(&s, 256), *q = add_input(&s, 256);
    int *sums = add_output(&s, 1024);
    fill(columns, 512, true); /* a by columns of 32, b by rows of 8 */
    fill(b, 128, true);
    for (int e = 0; e < 512; e++) u[e] = (uint16_t)encode(columns[e], 8, 7), a[e % 32 * 16 + e / 32] = columns[e];
    for (int e = 0; e < 128; e++) v[e] = (uint16_t)encode(b[e], 8, 7), c[e % 8 * 16 + e / 8] = b[e];
    for (int e = 0; e < 256; e++) p[e] = (int8_t)draw(-128, 127), q[e] = (int8_t)draw(-128, 127);
    multiply(32, 8, 16, a, c, NULL, d);
    bench_run(&s, 0, 0);
    for (int e = 0; e < 256; e++) assert_true(out[e] == (float)d[e]);
    for (int e = 0; e < 256; e++) {
        int sum = 3;
        for (int k = 0; k < 16; k++) sum += p[e / 16 * 16 + k] * q[e % 16 * 16 + k];
        assert_int_equal(sums[e], sum);
    }
    bench_finish(&s);

    bench_start(&s, "matrices", "wmma_precise", 1, 32);
    float *f = add_input(&s, 512), *g = add_input(&s, 512);
    out = add_output(&s, 1024);
    double *da = add_input(&s, 256), *db = add_input(&s, 256), *dd = add_output(&s, 512);
    fill(f, 128, true);
    fill(g, 128, true);
    for (int e = 0; e < 32; e++) da[e] = draw(-50, 50) / 4.0, db[e] = draw(-50, 50) / 8.0;
    multiply(16, 16, 8, f, g, NULL, d);
    bench_run(&s, 0, 0);
    for (int e = 0; e < 256; e++) assert_true(out[e] == (float)d[e] + 0.5f);
    for (int e = 0; e < 64; e++) {
        double sum = 0.25;
        for (int k = 0; k < 4; k++) sum += da[e / 8 * 4 + k] * db[e % 8 * 4 + k];
        assert_true(dd[e] == sum);
    }
    bench_finish(&s);
}

/* ---- Copies ---- */

enum { TILES = 5 };

static void start_copies(bench *s, const char *text, size_t length)
{
    if (text)
        bench_start_text(s, text, length, "async_copy", 1, 64);
    else
        bench_start(s, "async_copy", "async_copy", 1, 64);
    float *in = add_input(s, TILES * 64 * 16);
    add_output(s, 64 * 4);
    add_int(s, TILES);
    for (int e = 0; e < TILES * 256; e++) in[e] = (float)draw(-99, 99);
}

static void async_copies_come_in_groups(void **state)
{
    (void)state;
    FOR_SCHEDULES(schedule, seed)
    {
        bench s;
        start_copies(&s, NULL, 0);
        const float *in = (const float *)(uintptr_t)s.value[0], *out = (const float *)(uintptr_t)s.value[1];
        bench_run(&s, schedule, seed);
        for (int t = 0; t < 64; t++) {
            float sum = 0;
            for (int k = 0; k < TILES; k++)
                for (int e = 0; e < 4; e++) sum += (float)(e + 1) * in[(k * 64 + 63 - t) * 4 + e];
            assert_true(out[t] == sum);
        }
        bench_finish(&s);
    }
}

static void start_barrier(bench *s, const char *text, size_t length)
{
    if (text)
        bench_start_text(s, text, length, "async_barrier", 1, 128);
    else
        bench_start(s, "async_barrier", "async_barrier", 1, 128);
    int *in = add_input(s, 4 * 128 * 4);
    add_output(s, 128 * 4);
    add_int(s, 4);
    for (int e = 0; e < 4 * 128; e++) in[e] = draw(-999, 999);
}

static void barriers_of_the_library_wait_for_states(void **state)
{
    (void)state;
    FOR_SCHEDULES(schedule, seed)
    {
        bench s;
        start_barrier(&s, NULL, 0);
        const int *in = (const int *)(uintptr_t)s.value[0], *out = (const int *)(uintptr_t)s.value[1];
        bench_run(&s, schedule, seed);
        for (int t = 0; t < 128; t++) {
            int sum = 0;
            for (int r = 0; r < 4; r++) sum += in[r * 128 + 127 - t];
            assert_int_equal(out[t], sum);
        }
        bench_finish(&s);
    }
}

/* ---- Planted bugs ---- */

static void planted_bugs_are_found(void **state)
{
    static const struct {
        const char *kernel, *old, *new;
        emulator_fault fault;
        const char *line, *says;
    } rows[] = {
        {"async_copy", "cp.async.wait_group 1", "// ", EMULATOR_RACE, "ld.shared.v4", "a cp.async of warp"},
        {"async_copy", "cp.async.wait_group 1", "cp.async.wait_group 2", EMULATOR_RACE, "ld.shared.v4",
         "a cp.async of warp"},
        {"async_copy", "bar.sync", "// bar.sync", EMULATOR_RACE, NULL, "a cp.async of warp"},
        {"async_copy", "16, 16", "8, 8", EMULATOR_ALIGNMENT, "8, 8", "cp.async.cg of 8 bytes"},
        {"async_barrier", "cp.async.mbarrier.arrive", "// ", EMULATOR_RACE, "ld.shared.u32", "a cp.async of warp"},
        {"async_barrier", "cp.async.mbarrier.arrive", "cp.async.mbarrier.arrive.noinc", EMULATOR_RACE, "ld.shared.u32",
         "a cp.async of warp"},
        {"async_barrier", "mbarrier.init", "// mbarrier.init", EMULATOR_BARRIER_INIT, NULL,
         "no mbarrier has been initialised"},
    };
    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        size_t length;
        bench s;
        char *text = plant(rows[k].kernel, rows[k].old, rows[k].new, &length);
        (*rows[k].kernel && strcmp(rows[k].kernel, "async_copy") == 0 ? start_copies : start_barrier)(&s, text, length);
        expect_fault(&s, rows[k].fault, rows[k].line ? line_of(text, rows[k].line, 0) : 0, rows[k].says);
        bench_finish(&s);
        free(text);
    }
}

/* A row that nothing wrote makes the products of its row undefined, and no others. */
static void undefined_rows_stay_rows(void **state)
{
    static const char text[] = ".version 8.6\n.target sm_90a\n.visible .entry k(.param .u64 out) { .reg .b32 a<4>, "
                               "b<2>, t, u; .reg .f32 d<4>; .reg .pred p; .reg .u64 o;\n"
                               "ld.param.u64 o, [out]; mov.u32 t, %laneid; shr.u32 u, t, 2; setp.ne.u32 p, u, 3; "
                               "mov.u32 a1, 0; mov.u32 a2, 0; mov.u32 a3, 0; mov.u32 b0, 0; mov.u32 b1, 0;\n"
                               "@p mov.u32 a0, 0;\n"
                               "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {d0, d1, d2, d3}, {a0, a1, a2, a3}, "
                               "{b0, b1}, {0f00000000, 0f00000000, 0f00000000, 0f00000000};\n"
                               "mad.wide.u32 o, t, 4, o; st.global.f32 [o], d2; %s st.global.f32 [o], d0; ret; }\n";
    (void)state;
    for (int all = 0; all < 2; all++) {
        char full[sizeof text + 8];
        bench s;
        snprintf(full, sizeof full, "%s", text);
        char *at = strstr(full, "%s");
        assert_non_null(at);
        memcpy(at, all ? "  " : "@p", 2);
        bench_start_text(&s, full, strlen(full), "k", 1, 32);
        add_output(&s, 128);
        if (all)
            expect_fault(&s, EMULATOR_UNDEFINED, line_of(full, "st.global", 0), "lane 12 stores an undefined value");
        else
            bench_run(&s, 0, 0);
        bench_finish(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_are_multiplied),
        cmocka_unit_test(matrices_move_between_memory_and_registers),
        cmocka_unit_test(integers_are_multiplied),
        cmocka_unit_test(other_floats_are_multiplied),
        cmocka_unit_test(wmma_multiplies_every_type),
        cmocka_unit_test(async_copies_come_in_groups),
        cmocka_unit_test(barriers_of_the_library_wait_for_states),
        cmocka_unit_test(planted_bugs_are_found),
        cmocka_unit_test(undefined_rows_stay_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
