/* Compiled kernels of arithmetic in the interpreter, against C: the float library's slow paths, double, division and
 * 128 bits, halves, atomics, lanes, vectors, shared memory, inline PTX. */
#include <fenv.h>

#include "emulator_kernel_fixture.h"

static uint64_t random_state = 88172645463325252u;

static uint64_t draw(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* In units of the last place of a float. */
static double ulps(float have, double want)
{
    if (isnan(have) || isnan(want)) return isnan(have) && isnan(want) ? 0 : 1e9;
    if ((double)have == want) return 0;
    int exponent;
    frexp(want, &exponent);
    return fabs(have - want) / ldexp(1, exponent < -125 ? -149 : exponent - 24);
}
static double double_ulps(double have, long double want)
{
    if ((long double)have == want) return 0;
    int exponent;
    frexpl(want, &exponent);
    return (double)(fabsl(have - want) / ldexpl(1, exponent - 53));
}

/* Errors that the CUDA math library documents, in ulp. */
static void the_float_library_takes_its_slow_paths(void **state)
{
    (void)state;
    enum { N = 96 };
    static const double allowed[] = {2, 2, 4, 4, 2, 1, 0, 2, 0, 0, 2, 1, 0, 3, 2};
    bench b;
    bench_start(&b, "trigonometry", "trigonometry", 2, 64);
    float *x = add_input(&b, N * sizeof *x), *out = add_output(&b, 15 * N * sizeof *out);
    add_int(&b, N);
    for (int t = 0; t < N; t++) {
        double v = ldexp((double)(draw() % 1000003) / 1000003 + 0.5,
                         t % 3 == 0 ? (int)(draw() % 90) + 17 : (int)(draw() % 12) - 4);
        x[t] = (float)(t % 2 ? v : -v);
    }
    FOR_SCHEDULES(schedule, seed)
    {
        if (seed) continue;
        bench_run(&b, schedule, seed);
        for (int t = 0; t < N; t++) {
            double v = x[t];
            const double want[] = {sin(v),
                                   cos(v),
                                   tan(v),
                                   pow(fabs(v), (double)0.3f),
                                   exp((double)(float)(-fabs(v) * 0.01f)),
                                   log((double)(float)(fabsf(x[t]) + 0.5f)),
                                   (double)fmodf(x[t], 3.7f),
                                   erf((double)(x[t] * 0.001f)),
                                   (double)(1.0f / x[t]),
                                   (double)(x[t] / 3.3f),
                                   1 / sqrt((double)(fabsf(x[t]) + 1)),
                                   cbrt(v),
                                   0,
                                   hypot(v, 4),
                                   tanh((double)(x[t] * 0.01f))};
            for (int k = 0; k < 15; k++) {
                float have = out[k * N + t];
                if (k == 4 && want[k] < 1e-37) continue; /* what underflows is 0 or nearly so */
                if (k == 12) {
                    float y = x[t] * 1e-5f;
                    double sum = fabsf(y) < 3 ? sin((double)y) + cos((double)y) + tan(0.1) + exp(0.5) + log(2.5) : have;
                    if (fabs(have - sum) > 1e-5) fail_msg("approximations of %a: %g, expected %g", v, have, sum);
                } else if (ulps(have, want[k]) > allowed[k] + 0.5) {
                    fail_msg("function %d of %a: %a, expected %a", k, v, have, want[k]);
                }
            }
        }
    }
    bench_finish(&b);
}

static void doubles_are_as_in_c(void **state)
{
    (void)state;
    enum { N = 64 };
    bench b;
    bench_start(&b, "doubles", "doubles", 1, 64);
    double *x = add_input(&b, N * sizeof *x), *out = add_output(&b, 13 * N * sizeof *out);
    long long *whole = add_output(&b, N * sizeof *whole);
    add_int(&b, N);
    for (int t = 0; t < N; t++) x[t] = ((double)(int64_t)draw() / 0x1p63) * (t % 4 == 0 ? 1e5 : 30);
    bench_run(&b, 0, 0);
    for (int t = 0; t < N; t++) {
        double v = x[t];
        const long double want[] = {sinl(v),
                                    expl((long double)(v * 1e-3)),
                                    logl((long double)(fabs(v) + 1)),
                                    powl(fabsl(v), 1.7),
                                    (long double)(1.0 / v),
                                    (long double)sqrt(fabs(v)),
                                    (long double)(v / 7.1),
                                    1 / sqrtl((long double)(fabs(v) + 1)),
                                    (long double)fma(v, v, -1.0)};
        static const double allowed[] = {2, 1, 1, 2, 0, 0, 0, 1, 0};
        for (int k = 0; k < 9; k++)
            if (double_ulps(out[k * N + t], want[k]) > allowed[k] + 0.5)
                fail_msg("function %d of %a: %a, expected %La", k, v, out[k * N + t], want[k]);
        assert_true(out[9 * N + t] == floor(v) + trunc(v * 0.5) + rint(v * 0.25));
        assert_true(out[10 * N + t] == fmin(v, 2.0) + fmax(v, -2.0) + copysign(3.0, v));
        fesetround(FE_DOWNWARD);
        volatile double down = (volatile double){v} + 0.1;
        fesetround(FE_UPWARD);
        volatile double up = (volatile double){v} + 0.1;
        fesetround(FE_TOWARDZERO);
        volatile double cut = (volatile double){v} * 0.3;
        fesetround(FE_TONEAREST);
        assert_true(out[11 * N + t] == down - up + cut + fma(v, 0.1, 0.2));
        assert_int_equal(whole[t], (long long)v + (long long)(unsigned)(float)fabs(v) + (v > 3) + (long long)rint(v));
        assert_true(out[12 * N + t] == (double)(float)v + (double)(t * 3) + (double)t + (double)(float)t);
    }
    bench_finish(&b);
}

__extension__ typedef unsigned __int128 uint128;

static void division_and_128_bits(void **state)
{
    (void)state;
    enum { N = 96 };
    bench b;
    bench_start(&b, "division", "division", 1, 96);
    uint64_t *a = add_input(&b, N * 8), *c = add_input(&b, N * 8), *out = add_output(&b, 11 * N * 8);
    add_int(&b, N);
    for (int t = 0; t < N; t++) a[t] = draw() >> (draw() % 60), c[t] = draw() >> (draw() % 60);
    bench_run(&b, 0, 0);
    for (int t = 0; t < N; t++) {
        uint64_t x = a[t], y = c[t] | 1;
        assert_int_equal(out[t], x / y);
        assert_int_equal(out[N + t], x % y);
        assert_int_equal(out[2 * N + t], (uint64_t)((int64_t)x / (int64_t)y));
        assert_int_equal(out[3 * N + t], (uint32_t)x / ((uint32_t)y | 1));
        assert_int_equal(out[4 * N + t], (uint64_t)(int64_t)((int32_t)x % (int32_t)((uint32_t)y | 1)));
        uint128 wide = (uint128)x * y + a[N - 1 - t];
        assert_int_equal(out[5 * N + t], (uint64_t)(wide >> 64) ^ (uint64_t)wide);
        wide = (wide << 3) - x;
        assert_int_equal(out[6 * N + t], (uint64_t)(wide >> 64));
        assert_int_equal(out[7 * N + t], (uint64_t)(wide / y));
        uint64_t reversed = 0, nibbles = (uint64_t)(uint32_t)y << 32 | (uint32_t)x;
        for (int k = 0; k < 64; k++) reversed |= (x >> k & 1) << (63 - k);
        uint32_t permuted = (uint32_t)(nibbles >> 24 & 0xffffffff);
        assert_int_equal(out[8 * N + t], (uint64_t)((uint128)x * y >> 64) + (uint64_t)__builtin_popcountll(x) +
                                             (uint64_t)__builtin_clzll(y) + (uint64_t)__builtin_ffsll((long long)x) +
                                             reversed + permuted);
        assert_int_equal(out[9 * N + t], x + y);
        int32_t i = (int32_t)x, j = (int32_t)y;
        uint32_t sum = 5, halves = 0;
        for (int k = 0; k < 32; k += 8) sum += (uint32_t)((int8_t)(i >> k) * (int8_t)(j >> k));
        for (int k = 0; k < 32; k += 16) halves |= ((((uint32_t)i >> k) + ((uint32_t)j >> k)) & 0xffff) << k;
        sum += (uint32_t)(i > j ? (int64_t)i - j : (int64_t)j - i) + 3;
        sum += (uint32_t)j << 7 | (uint32_t)i >> 25;
        sum += (uint32_t)((int64_t)i * j >> 32) + halves;
        int32_t next = (int32_t)((uint32_t)i + 5);
        assert_int_equal(out[10 * N + t], sum + (uint32_t)(next > j ? next : j));
    }
    bench_finish(&b);
}

static void shared_memory_is_transposed_and_summed(void **state)
{
    (void)state;
    FOR_SCHEDULES(schedule, seed)
    {
        bench b;
        bench_start(&b, "shared", "shared", 1, 16);
        b.config.block[1] = 16;
        b.config.shared_bytes = 1024;
        float *in = add_input(&b, 1024), *out = add_output(&b, 1024), *sums = add_output(&b, 4), sum = 0;
        add_int(&b, 256);
        for (int t = 0; t < 256; t++) in[t] = (float)(draw() % 100), sum += in[t];
        bench_run(&b, schedule, seed);
        for (int t = 0; t < 256; t++) assert_true(out[t] == in[t % 16 * 16 + t / 16]);
        assert_true(sums[0] == sum);
        bench_finish(&b);
    }
    /* Without a barrier. */
    size_t length;
    bench b;
    char *text = plant("shared", "$L__BB0_3:\n\tbar.sync", "$L__BB0_3:\n\t// bar.sync", &length);
    bench_start_text(&b, text, length, "shared", 1, 16);
    b.config.block[1] = 16;
    b.config.shared_bytes = 1024;
    add_input(&b, 1024);
    add_output(&b, 1024);
    add_output(&b, 4);
    add_int(&b, 256);
    expect_fault(&b, EMULATOR_RACE, 0, "nothing orders the two");
    bench_finish(&b);
    free(text);
}

static void lanes_exchange_values(void **state)
{
    (void)state;
    bench b;
    bench_start(&b, "lanes", "lanes", 1, 32);
    int *in = add_input(&b, 128), *out = add_output(&b, 256 * 4), sum = 0, least = INT32_MAX;
    uint32_t above = 0, parity = 0;
    for (int t = 0; t < 32; t++) in[t] = (int)(draw() % 12);
    for (int t = 0; t < 32; t++) {
        sum += in[t];
        least = in[t] < least ? in[t] : least;
        parity ^= (uint32_t)in[t];
        above |= (uint32_t)(in[t] > 5) << t;
    }
    FOR_SCHEDULES(schedule, seed)
    {
        bench_run(&b, schedule, seed);
        bool three = false;
        for (int t = 0; t < 32; t++) three |= in[t] == 3;
        for (int t = 0; t < 32; t++) {
            int down = t % 16 + 5 < 16 ? t + 5 : t;
            uint32_t same = 0, twos = 0;
            for (int k = 0; k < 32; k++) same |= (uint32_t)(in[k] == in[t]) << k;
            for (int k = 0; k < 32; k += 2) twos += (uint32_t)(in[k] >> 1 & 1);
            assert_int_equal(out[t], sum);
            assert_int_equal(out[32 + t], in[t < 3 ? t : t - 3] + in[down] + in[(t + 1) % 32]);
            assert_int_equal((uint32_t)out[64 + t], above + three + 1);
            assert_int_equal((uint32_t)out[96 + t], same);
            assert_int_equal((uint32_t)out[128 + t], 0); /* all of v / 1000 are equal: 2^32 - 1 and 1 */
            assert_int_equal(out[160 + t], sum + least + (int)parity);
            assert_int_equal(out[192 + t], in[31 - t] + (int)(in[t < 31 ? t + 1 : t] * 0.5));
            if (t & 1)
                assert_int_equal((uint32_t)out[224 + t], 0xaaaaaaaau + (uint32_t)in[1]);
            else
                assert_int_equal(out[224 + t], twos);
        }
    }
    bench_finish(&b);
}

static void groups_reduce_and_scan(void **state)
{
    (void)state;
    enum { N = 64 };
    bench b;
    bench_start(&b, "groups", "groups", 1, N);
    int *in = add_input(&b, N * 4), *out = add_output(&b, 5 * N * 4);
    for (int t = 0; t < N; t++) in[t] = (int)(draw() % 50);
    FOR_SCHEDULES(schedule, seed)
    {
        bench_run(&b, schedule, seed);
        for (int t = 0; t < N; t++) {
            int sum = 0, most = 0, before = 0, rank = 0, threes = 0;
            for (int k = t / 8 * 8; k < t / 8 * 8 + 8; k++)
                sum += in[k], most = in[k] > most ? in[k] : most, before += k <= t ? in[k] : 0;
            for (int k = t / 32 * 32; k < t / 32 * 32 + 32; k++)
                threes += in[k] % 3 == 0, rank += k < t && in[k] % 3 == 0;
            assert_int_equal(out[t], sum);
            assert_int_equal(out[N + t], most);
            assert_int_equal(out[2 * N + t], before);
            assert_int_equal(out[3 * N + t], in[t] % 3 == 0 ? threes * 100 + rank : -1);
            assert_int_equal(out[4 * N + t], sum);
        }
    }
    bench_finish(&b);
}

/* ---- Halves ---- */

static float half_value(uint32_t bits)
{
    int exponent = (int)(bits >> 10 & 31);
    float v = exponent ? ldexpf((float)(1024 + (bits & 1023)), exponent - 25) : ldexpf((float)(bits & 1023), -24);
    return bits & 0x8000 ? -v : v;
}
static float brain_value(uint32_t bits)
{
    bits = (bits & 0xffff) << 16;
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}
/* Nearest even, of a value within the range. */
static double to_half(double v)
{
    int exponent;
    frexp(v, &exponent);
    double quantum = ldexp(1, (exponent < -13 ? -13 : exponent) - 11);
    return rint(v / quantum) * quantum;
}
static double to_brain(double v)
{
    int exponent;
    frexp(v, &exponent);
    double quantum = ldexp(1, exponent - 8);
    return rint(v / quantum) * quantum;
}

static void halves_in_pairs(void **state)
{
    (void)state;
    enum { N = 32 };
    bench b;
    bench_start(&b, "halves", "halves", 1, N);
    uint32_t *x = add_input(&b, N * 4), *y = add_input(&b, N * 4), *out = add_output(&b, 14 * N * 4),
             *flags = add_output(&b, 4 * N * 4);
    uint32_t *p = add_input(&b, N * 4), *brains = add_output(&b, 5 * N * 4);
    add_int(&b, N);
    for (int t = 0; t < N; t++) { /* between 1/4 and 8, of both signs */
        x[t] = ((uint32_t)draw() & 0x83ff83ff) | (13 + (uint32_t)draw() % 5) << 10 | (13 + (uint32_t)draw() % 5) << 26;
        y[t] = t % 5 == 0 ? x[t]
                          : ((uint32_t)draw() & 0x83ff83ff) | (13 + (uint32_t)draw() % 5) << 10 |
                                (13 + (uint32_t)draw() % 5) << 26;
        p[t] = ((uint32_t)draw() & 0x807f807f) | (125 + (uint32_t)draw() % 4) << 7 | (125 + (uint32_t)draw() % 4) << 23;
    }
    bench_run(&b, 0, 0);
    for (int t = 0; t < N; t++) {
        uint32_t equal = 0, less = 0, at_most = 0, at_least = 0, q_less = 0;
        for (int k = 0; k < 2; k++) {
            double u = half_value(x[t] >> 16 * k & 0xffff), v = half_value(y[t] >> 16 * k & 0xffff),
                   q = brain_value(p[t] >> 16 * k);
#define HALF(row)  ((double)half_value(out[(row)*N + t] >> 16 * k & 0xffff))
#define BRAIN(row) ((double)brain_value(brains[(row)*N + t] >> 16 * k))
            assert_true(HALF(0) == to_half(u + v));
            assert_true(HALF(1) == to_half(u * v + u));
            assert_true(fabs(HALF(2) - u / v) <= fabs(u / v) * 0x1p-10);
            assert_true(HALF(3) == fmax(u, v) && HALF(4) == fmin(u, v));
            assert_true(fabs(HALF(5) - sqrt(fabs(u))) <= 0x1p-10 * sqrt(fabs(u)));
            assert_true(fabs(HALF(6) - exp2(v)) <= 0x1p-9 * exp2(v));
            double difference = to_half(u - v);
            assert_true(HALF(7) == -(difference < 0 ? 0 : difference > 1 ? 1 : difference));
            assert_true(HALF(8) == (u > v) && HALF(9) == floor(u));
            assert_true(BRAIN(0) == to_brain(q * q + q) && BRAIN(1) == to_brain(q * 1.5) && BRAIN(2) == fabs(q));
            assert_true(fabs(BRAIN(4) - exp(q)) <= 0x1p-7 * exp(q));
            equal |= u == v ? 0xffffu << 16 * k : 0;
            less |= (uint32_t)(u < v) << k;
            at_most |= u <= v ? 0xffffu << 16 * k : 0;
            at_least |= (uint32_t)(u >= v) << k;
            q_less |= q < -q ? 0xffffu << 16 * k : 0;
        }
        float u0 = half_value(x[t] & 0xffff), v0 = half_value(y[t] & 0xffff), u1 = half_value(x[t] >> 16),
              v1 = half_value(y[t] >> 16);
        assert_int_equal(flags[t], 1u | (uint32_t)(less == 3) << 1 | (uint32_t)(at_least == 3) << 2 |
                                       (u0 == v0 ? 8u : 0) | (u1 > v1 ? 16u : 0));
        assert_int_equal(flags[N + t], equal ^ at_most);
        assert_int_equal(flags[3 * N + t], q_less + (brain_value(p[t]) != brain_value(p[t] >> 16) ? 3 : 1) + 64);
    }
    bench_finish(&b);
}

/* ---- Atomics ---- */

static void atomics_of_all_types(void **state)
{
    (void)state;
    enum { T = 64 };
    FOR_SCHEDULES(schedule, seed)
    {
        bench b;
        bench_start(&b, "atomics", "atomics", 1, T);
        int *words = add_input(&b, 64);
        uint64_t *wides = add_input(&b, 32);
        float *floats = add_input(&b, 8);
        double *doubles = add_input(&b, 16);
        uint32_t *pairs = add_input(&b, 8);
        uint16_t *shorts = add_input(&b, 4), *half_sum = add_input(&b, 2), *brain_sum = add_input(&b, 2);
        words[3] = 100;
        words[4] = -1;
        words[9] = 77;
        bench_run(&b, schedule, seed);
        int32_t xors = 0, most = 0;
        for (int t = 0; t < T; t++) xors ^= t, most = t * 7 % 31 > most ? t * 7 % 31 : most;
        const int want[] = {T, -T * (T - 1) / 2, most, 5, 0, -1, xors, 4, 6, 77, 5, 2 * T, 3 * T, T * (T - 1) / 2};
        for (int k = 0; k < 14; k++) assert_int_equal(words[k], want[k]);
        assert_int_equal(wides[0], (uint64_t)T << 40);
        assert_int_equal(wides[1], (uint64_t)(T - 1) << 35);
        assert_int_equal(wides[2], 123456789012u);
        assert_int_equal(wides[3], (uint64_t) - (T - 1));
        assert_true(floats[0] == T * 0.5f && floats[1] == T * 0.5f && doubles[0] == T * 0.125 &&
                    doubles[1] == T * (T - 1) / 8.0);
        assert_true(half_value(pairs[0] & 0xffff) == T * 0.5f && half_value(pairs[0] >> 16) == T * 0.25f);
        assert_true(half_value(pairs[1] & 0xffff) == T && half_value(pairs[1] >> 16) == 2 * T);
        assert_true(shorts[0] >= 1 && shorts[0] <= T && shorts[1] == 9);
        assert_true(half_value(*half_sum) == T * 0.5f && brain_value(*brain_sum) == T);
        bench_finish(&b);
    }
}

static void vectors_and_inline_ptx(void **state)
{
    (void)state;
    bench b;
    bench_start(&b, "vectors", "vectors", 1, 32);
    float *a = add_input(&b, 32 * 16);
    int *c = add_input(&b, 32 * 8);
    double *out = add_output(&b, 32 * 16);
    uint8_t *bytes = add_output(&b, 32 * 4);
    int16_t *s = add_input(&b, 32 * 8);
    for (int k = 0; k < 128; k++) a[k] = (float)(draw() % 99), s[k] = (int16_t)draw();
    for (int k = 0; k < 64; k++) c[k] = (int)draw() % 100000;
    bench_run(&b, 0, 0);
    for (int t = 0; t < 32; t++) {
        assert_true(out[2 * t] == (double)(a[4 * t] + a[4 * t + 1] * 2 + a[4 * t + 2] * 3 + a[4 * t + 3] * 4));
        assert_true(out[2 * t + 1] == c[2 * t] - c[2 * t + 1]);
        const uint8_t want[] = {(uint8_t)c[2 * t], (uint8_t)s[4 * t], (uint8_t)s[4 * t + 1],
                                (uint8_t)(s[4 * t + 2] + s[4 * t + 3])};
        assert_memory_equal(bytes + 4 * t, want, 4);
    }
    bench_finish(&b);
    bench_start(&b, "inline_ptx", "inline_ptx", 1, 32);
    uint32_t *in = add_input(&b, 128), *words = add_output(&b, 192 * 4);
    for (int t = 0; t < 32; t++) in[t] = (uint32_t)draw() % 100;
    bench_run(&b, 0, 0);
    for (uint32_t t = 0; t < 32; t++) {
        uint32_t v = in[t], n = v % 7 + 1, select = v > 10 ? 3 : 104;
        assert_int_equal(words[t], v + 5 + 3 * t + 5 * select + 7 * (n * (n + 1) / 2));
        assert_int_equal(words[64 + 2 * t], v);
        assert_int_equal(words[64 + 2 * t + 1], v + 1);
        uint32_t pick = (int)v >= 50 ? v : t;
        assert_int_equal(words[128 + t], pick + pick + (v > t ? v - t : t - v) + v * t + (t >= 32 ? 0 : 31u << t));
    }
    bench_finish(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_float_library_takes_its_slow_paths),
        cmocka_unit_test(doubles_are_as_in_c),
        cmocka_unit_test(division_and_128_bits),
        cmocka_unit_test(shared_memory_is_transposed_and_summed),
        cmocka_unit_test(lanes_exchange_values),
        cmocka_unit_test(groups_reduce_and_scan),
        cmocka_unit_test(halves_in_pairs),
        cmocka_unit_test(atomics_of_all_types),
        cmocka_unit_test(vectors_and_inline_ptx),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
