/* The emitted decode kernels of specs that differ in everything: each passes, with the right output, under every mode
 * of the schedule. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "decode_fixture.h"

enum { SEEDS = 4 };

/* FOSCAR_TEST_SEED: of the data and the schedules. FOSCAR_TEST_SCHEDULES: seeds of each mode. FOSCAR_TEST_SPEC: only
 * this spec. */
static uint64_t number_of(const char *variable, uint64_t otherwise)
{
    const char *given = getenv(variable);
    return given != NULL ? strtoull(given, NULL, 10) : otherwise;
}

static uint64_t first_seed;

/* How many runs passed. */
static uint64_t run_spec(const char *spec, reference_data data, uint64_t seeds)
{
    static emulator_error error;
    uint64_t passed = 0;
    decode_fixture f;
    assert_true(decode_fixture_make(&f, spec, data, first_seed));
    for (int mode = 0; mode < EMULATOR_SCHEDULE_COUNT; mode++)
        for (uint64_t n = 0; n < seeds; n++, passed++)
            if (decode_fixture_run(&f, f.text.ptx, f.text.length, (emulator_schedule)mode, first_seed + n, NULL,
                                   &error) != DECODE_PASSED)
                fail_msg("%s on %s data under %s, seed %llu: %s at line %d: %s\n%s", spec, reference_data_name(data),
                         emulator_schedule_name((emulator_schedule)mode), (unsigned long long)(first_seed + n),
                         emulator_fault_name(error.fault), error.line, error.message, error.detail);
    decode_fixture_finish(&f);
    return passed;
}

static void emitted_kernels_pass_under_every_mode_and_seed(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "sm_90a-k2t128-v2t128-d128-h8-p64",  "sm_90a-k4t128-v4t128-d128-h8-p64", "sm_90a-k2t64-v2t64-d64-h1-p64",
        "sm_90a-k2t256-v2t256-d256-h16-p64", "sm_90a-k4t64-v2t64-d64-h3-p128",   "sm_90a-k2t128-v4t128-d128-h16-p256",
        "sm_90a-k4t256-v4t256-d256-h8-p256", "sm_90a-k4t64-v4t64-d64-h16-p64",
    };
    const char *only = getenv("FOSCAR_TEST_SPEC");
    size_t count = only != NULL ? 1 : sizeof specs / sizeof *specs;
    for (size_t i = 0; i < count; i++) {
        const char *spec = only != NULL ? only : specs[i];
        uint64_t runs = run_spec(spec, REFERENCE_DATA_RANDOM, number_of("FOSCAR_TEST_SCHEDULES", SEEDS));
        print_message("%-40s %llu runs passed\n", spec, (unsigned long long)runs);
    }
}

/* Row by row: tokens whose V has a large range, scores that jump by hundreds between blocks and between workers, and the rest. */
static void emitted_kernels_are_right_on_data_of_every_kind(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "sm_90a-k2t128-v2t128-d128-h8-p64", "sm_90a-k4t128-v4t128-d128-h1-p128", "sm_90a-k2t64-v4t64-d64-h3-p64",
        "sm_90a-k4t256-v2t256-d256-h12-p64",
    };
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        for (int data = 0; data < REFERENCE_DATA_KINDS; data++) run_spec(specs[i], (reference_data)data, 1);
}

/* Pages of the long sequence full of NaNs, metadata included: the others' outputs are what they were. */
static void a_sequence_with_broken_pages_changes_no_other(void **state)
{
    (void)state;
    static emulator_error error;
    decode_fixture f;
    assert_true(decode_fixture_make(&f, "sm_90a-k2t128-v4t128-d128-h8-p64", REFERENCE_DATA_RANDOM, first_seed));
    f.ignored = 2;
    assert_true(f.lengths[2] > 5 * f.plan.block_tokens);
    for (int t = 0; t < f.lengths[2]; t += f.cfg.page_tokens)
        memset(reference_page(&f.cache, 2, 0, t), 0xff, (size_t)f.plan.page.bytes * DECODE_KV_HEADS);
    if (decode_fixture_run(&f, f.text.ptx, f.text.length, EMULATOR_SCHEDULE_RANDOM, first_seed, NULL, &error) != DECODE_PASSED)
        fail_msg("%s at line %d: %s", emulator_fault_name(error.fault), error.line, error.message);
    decode_fixture_finish(&f);
}

static int choose_seed(void **state)
{
    (void)state;
    first_seed = number_of("FOSCAR_TEST_SEED", (uint64_t)time(NULL));
    print_message("FOSCAR_TEST_SEED=%llu\n", (unsigned long long)first_seed);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(emitted_kernels_pass_under_every_mode_and_seed),
        cmocka_unit_test(emitted_kernels_are_right_on_data_of_every_kind),
        cmocka_unit_test(a_sequence_with_broken_pages_changes_no_other),
    };
    return cmocka_run_group_tests_name("emulator_schedules", tests, choose_seed, NULL);
}
