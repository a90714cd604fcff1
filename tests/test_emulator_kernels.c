/* Compiled kernels with device functions, pointers, printf, assert, the heap, module variables and local memory in the
 * interpreter, against C; and what goes wrong with each, found with kind and line. */
#include "emulator_kernel_fixture.h"

/* ---- Calls ---- */

static unsigned gcd(unsigned a, unsigned b)
{
    return b == 0 ? a : gcd(b, a % b);
}
static int fibonacci(int n)
{
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

static int called(int t)
{
    int local[4] = {t, t + 1, t + 2, t + 3}, last = 1 + t % 3, kept = local[0];
    local[0] = local[last];
    local[last] = kept;
    int value = t * (t + 1) / 2 + local[t % 4];
    if (t & 1) value += fibonacci(t % 9);
    return value + (int)gcd((unsigned)(12 * t + 6), 18);
}

static void device_functions_return_what_c_does(void **state)
{
    (void)state;
    enum { N = 72 };
    FOR_SCHEDULES(schedule, seed)
    {
        bench b;
        bench_start(&b, "calls", "calls", 2, 64);
        int *out = add_output(&b, N * sizeof *out);
        double *sums = add_output(&b, N * sizeof *sums);
        add_int(&b, N);
        bench_run(&b, schedule, seed);
        for (int t = 0; t < N; t++) {
            int a = t + called(t);
            assert_int_equal(out[t], called(t));
            assert_true(sums[t] == a + t * 1.0 + (3.0 - a));
        }
        bench_finish(&b);
    }
}

static void pointers_and_virtual_calls_reach_their_functions(void **state)
{
    (void)state;
    FOR_SCHEDULES(schedule, seed)
    {
        bench b;
        bench_start(&b, "pointers", "pointers", 1, 64);
        int *out = add_output(&b, 64 * sizeof *out);
        float *areas = add_output(&b, 64 * sizeof *areas);
        bench_run(&b, schedule, seed);
        for (int t = 0; t < 64; t++) {
            assert_int_equal(out[t], t % 3 == 0 ? t + 7 : t % 3 == 1 ? t - 7 : t * 7);
            assert_true(areas[t] == (t % 2 ? 3.0f * (float)t * (float)t : 2.0f * (float)t + 4));
        }
        bench_finish(&b);
    }
}

/* ---- printf, assert, the heap ---- */

static void printf_prints_as_c_does(void **state)
{
    (void)state;
    enum { N = 3 };
    char expected[1024];
    int length = 0;
    bench b;
    bench_start(&b, "print", "print", 1, 32);
    add_int(&b, N);
    double x = 1.75;
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    add_value(&b, bits);
    strcpy(add_input(&b, 16), "a name");
    bench_run(&b, 0, 0);
    for (int t = 0; t < N; t++)
        length +=
            snprintf(expected + length, sizeof expected - (size_t)length, "thread %d of a name: %5.2f %c %llx 7%%\n", t,
                     x * t, 'a' + t, 0x123456789abcull * (unsigned)(t + 1));
    snprintf(expected + length, sizeof expected - (size_t)length, "done\n");
    assert_string_equal(b.printed, expected);
    emulator_memory_free(b.memory, b.value[2]);
    expect_fault(&b, EMULATOR_BOUNDS, 0, "no defined string");
    bench_finish(&b);
}

static void assertions_fail_with_their_place(void **state)
{
    (void)state;
    bench b;
    bench_start(&b, "asserts", "asserts", 1, 64);
    int *in = add_input(&b, 64 * sizeof *in);
    int *out = add_output(&b, 64 * sizeof *out);
    add_int(&b, 64);
    for (int t = 0; t < 64; t++) in[t] = 3 * t;
    bench_run(&b, 0, 0);
    for (int t = 0; t < 64; t++) assert_int_equal(out[t], 3 * t + 1);
    b.value[2] = 37;
    expect_fault(&b, EMULATOR_ASSERT, 0,
                 "asserts.cu:7: void asserts(const int *, int *, int): lane 5: assertion `t != bad");
    assert_int_equal(b.error.warp, 1);
    bench_finish(&b);
}

static void kernels_have_a_heap(void **state)
{
    (void)state;
    bench b;
    bench_start(&b, "heap", "heap", 1, 64);
    int *out = add_output(&b, 64 * sizeof *out);
    add_int(&b, 10);
    FOR_SCHEDULES(schedule, seed)
    {
        bench_run(&b, schedule, seed);
        for (int t = 0; t < 64; t++) assert_int_equal(out[t], 45 * t);
    }
    bench_finish(&b);
}

/* ---- Module variables ---- */

static void variables_begin_as_their_initialisers_say(void **state)
{
    (void)state;
    static const int primes[6] = {2, 3, 5, 7, 11, 13}, values[3] = {1, 12, 100}, lengths[3] = {3, 6, 7},
                     bytes[5] = {1, 2, 250};
    static const float bias[4] = {0.5f, -1.25f, 3.0f, 0}, weights[3] = {0.25f, 4.0f, -2.0f};
    FOR_SCHEDULES(schedule, seed)
    {
        bench b;
        bench_start(&b, "variables", "variables", 1, 32);
        float *out = add_output(&b, 33 * sizeof *out);
        bench_run(&b, schedule, seed);
        for (int t = 0; t < 32; t++) {
            float sum = (float)(primes[t % 6] + lengths[t % 3] * values[t % 3] + bytes[t % 5] + "tiles"[t % 6]);
            assert_true(out[t] == sum + bias[t % 4] + weights[t % 3] + 2.5f);
        }
        assert_true(out[32] == 5 + 11);
        /* What a launch wrote is there in the next. */
        uint64_t size;
        const int *counter = (const int *)(uintptr_t)emulator_variables_find(b.variables, "counter", &size);
        assert_non_null(counter);
        assert_int_equal(size, 4);
        assert_int_equal(*counter, 7);
        bench_run(&b, schedule, seed);
        assert_true(out[32] == 7 + 11);
        assert_int_equal(emulator_variables_find(b.variables, "nothing", NULL), 0);
        bench_finish(&b);
    }
}

/* ---- Local memory ---- */

static void local_memory_and_alloca(void **state)
{
    (void)state;
    enum { N = 77 };
    FOR_SCHEDULES(schedule, seed)
    {
        bench b;
        bench_start(&b, "stack", "stack", 1, 32);
        int *in = add_input(&b, N * sizeof *in), *out = add_output(&b, 64 * sizeof *out);
        add_int(&b, N);
        for (int k = 0; k < N; k++) in[k] = k * 37 % 101;
        bench_run(&b, schedule, seed);
        for (int t = 0; t < 32; t++) {
            int sorted[8];
            for (int k = 0; k < 8; k++) sorted[k] = in[(t * 8 + k) % N];
            for (int k = 1; k < 8; k++)
                for (int j = k; j > 0 && sorted[j - 1] > sorted[j]; j--) {
                    int kept = sorted[j];
                    sorted[j] = sorted[j - 1];
                    sorted[j - 1] = kept;
                }
            assert_int_equal(out[t], sorted[in[t] % 8] * 1000 + sorted[0]);
            assert_int_equal(out[32 + t], in[t] % (t % 4 + 1) * t);
        }
        bench_finish(&b);
    }
}

/* ---- What is refused ---- */

static void textures_are_refused_with_their_line(void **state)
{
    (void)state;
    size_t length;
    emulator_error error;
    char *text = read_kernel("textures", &length);
    assert_null(emulator_module_parse(text, length, "textures", &error));
    assert_int_equal(error.fault, EMULATOR_UNKNOWN_FORM);
    assert_int_equal(error.line, line_of(text, "tex.2d", 0));
    assert_non_null(strstr(error.message, "no textures and surfaces"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(device_functions_return_what_c_does),
        cmocka_unit_test(pointers_and_virtual_calls_reach_their_functions),
        cmocka_unit_test(printf_prints_as_c_does),
        cmocka_unit_test(assertions_fail_with_their_place),
        cmocka_unit_test(kernels_have_a_heap),
        cmocka_unit_test(variables_begin_as_their_initialisers_say),
        cmocka_unit_test(local_memory_and_alloca),
        cmocka_unit_test(textures_are_refused_with_their_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
