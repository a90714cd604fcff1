/* `foscar check FILE.ptx --entry ...` from outside: kernels that nvcc compiled are launched with the arguments of the
 * call, what they leave is compared with C, and what is wrong is told with line, buffer and offset. */
#include "cli_fixture.h"

#define SAXPY "tests/kernels/saxpy.ptx --entry saxpy --grid 4 --block 128"

static cJSON *run_json(const char *arguments, int code)
{
    char line[1024];
    snprintf(line, sizeof line, "check --json %s", arguments);
    int got = run(line);
    if (got != code) fail_msg("'%s' exits with %d: %s %s", line, got, err, out);
    cJSON *json = cJSON_Parse(out);
    if (json == NULL) fail_msg("'%s' prints no JSON: %.2000s", line, out);
    return json;
}

static double number_of(const cJSON *json, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(json, key);
    if (!cJSON_IsNumber(item)) fail_msg("no number %s", key);
    return item->valuedouble;
}

static const char *text_of(const cJSON *json, const char *key)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(json, key));
    if (text == NULL) fail_msg("no text %s", key);
    return text;
}

/* The bytes that a launch left in argument `number` (--output into the folder). */
static size_t read_buffer(int number, void *bytes, size_t size)
{
    char path[128];
    snprintf(path, sizeof path, "%s/buffers/argument%d.bin", folder, number);
    FILE *file = fopen(path, "rb");
    if (file == NULL) fail_msg("no %s", path);
    size_t length = fread(bytes, 1, size, file);
    fclose(file);
    return length;
}

/* ---- Results ---- */

static void buffers_are_filled_run_and_written(void **state)
{
    (void)state;
    float y[500];
    char line[512];
    snprintf(line, sizeof line, SAXPY " --args 500 f32:2.5 buf:2000=ramp:f32 buf:2000=f32:-1 --output %s/buffers",
             folder);
    cJSON *json = run_json(line, OK), *mode, *buffer = cJSON_GetObjectItem(json, "buffers");
    assert_true(number_of(json, "findings") == 0);
    cJSON_ArrayForEach(mode, cJSON_GetObjectItem(json, "modes")) assert_true(number_of(mode, "runs") == 20);
    assert_int_equal(cJSON_GetArraySize(buffer), 2);
    assert_true(number_of(cJSON_GetArrayItem(buffer, 0), "changed") == 0);
    assert_true(number_of(cJSON_GetArrayItem(buffer, 1), "defined") == 2000);
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(cJSON_GetArrayItem(buffer, 1), "differs_at")));
    assert_int_equal(read_buffer(4, y, sizeof y), sizeof y);
    for (int i = 0; i < 500; i++) assert_true(y[i] == 2.5f * (float)i - 1);
    cJSON_Delete(json);
    /* What was written is read again as a file, and a plain number takes the parameter's type. */
    snprintf(line, sizeof line,
             SAXPY " --args 500 -1 buf:2000=f32:-1 buf=@%s/buffers/argument4.bin --mode random --output %s/buffers",
             folder, folder);
    cJSON_Delete(run_json(line, OK));
    assert_int_equal(read_buffer(4, y, sizeof y), sizeof y);
    for (int i = 0; i < 500; i++) assert_true(y[i] == 2.5f * (float)i);
}

static void numbers_of_every_type_have_their_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *argument;
        uint8_t bytes[8];
        int count;
    } rows[] = {
        {"u8:255", {255}, 1},
        {"s8:-1", {255}, 1},
        {"u16:513", {1, 2}, 2},
        {"s32:-2", {254, 255, 255, 255}, 4},
        {"u32:0xdeadbeef", {0xef, 0xbe, 0xad, 0xde}, 4},
        {"s64:-9223372036854775808", {0, 0, 0, 0, 0, 0, 0, 128}, 8},
        {"f16:1.5", {0, 0x3e}, 2},
        {"bf16:-2", {0, 0xc0}, 2},
        {"f32:inf", {0, 0, 0x80, 0x7f}, 4},
        {"f64:0.5", {0, 0, 0, 0, 0, 0, 0xe0, 0x3f}, 8},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char line[512];
        uint8_t bytes[2000];
        snprintf(line, sizeof line,
                 SAXPY " --args 0 0.0 buf:2000=%s buf:16 --mode random --schedules 1 --output %s/buffers",
                 rows[i].argument, folder);
        cJSON_Delete(run_json(line, OK));
        assert_int_equal(read_buffer(3, bytes, sizeof bytes), sizeof bytes);
        for (int b = 0; b < 2000; b++) assert_int_equal(bytes[b], rows[i].bytes[b % rows[i].count]);
    }
}

static void random_numbers_are_those_of_the_data_seed(void **state)
{
    (void)state;
    static const char call[] =
        SAXPY " --args 500 2.5 buf:2000=random:f32 buf:2000=random:f32 --mode random --schedules 1";
    char line[512], sums[3][32];
    static const char *const seeds[] = {"--seed 1 --data-seed 5", "--seed 2 --data-seed 5", "--seed 1 --data-seed 6"};
    for (int i = 0; i < 3; i++) {
        snprintf(line, sizeof line, "%s %s", call, seeds[i]);
        cJSON *json = run_json(line, OK);
        strcpy(sums[i], text_of(cJSON_GetArrayItem(cJSON_GetObjectItem(json, "buffers"), 1), "checksum"));
        cJSON_Delete(json);
    }
    assert_string_equal(sums[0], sums[1]);
    assert_string_not_equal(sums[0], sums[2]);
}

static void what_a_kernel_prints_is_told(void **state)
{
    (void)state;
    cJSON *json = run_json("tests/kernels/print.ptx --block 32 --args 2 1.5 buf:4=u8:0x41 --schedules 1", FAILED);
    assert_contains(
        text_of(cJSON_GetObjectItem(cJSON_GetArrayItem(cJSON_GetObjectItem(json, "modes"), 0), "first"), "message"),
        "no defined string");
    cJSON_Delete(json);
    json = run_json("tests/kernels/print.ptx --block 32 --args 1 1.5 buf:4 --schedules 1", OK);
    assert_string_equal(text_of(json, "printed"), "thread 0 of :  0.00 a 123456789abc 7%\ndone\n");
    cJSON_Delete(json);
    assert_int_equal(run("check tests/kernels/print.ptx --block 32 --args 1 1.5 buf:4 --schedules 1"), OK);
    assert_contains(out, "printed by the first run:\nthread 0 of :");
}

static void results_that_depend_on_the_schedule_are_told(void **state)
{
    (void)state;
    char line[512];
    /* Each thread writes how many came before it: every run passes, and the warps' order is in the buffer. */
    snprintf(
        line, sizeof line,
        "awk '/st.global.f32/ {print \"atom.global.add.u32 %%r2, [%%rd4], 1; st.global.u32 [%%rd7], %%r2;\"; next} "
        "{print}' tests/kernels/saxpy.ptx >%s/order.ptx",
        folder);
    assert_int_equal(system(line), 0);
    snprintf(line, sizeof line, "%s/order.ptx --block 128 --args 128 0.0 buf:512 buf:512", folder);
    cJSON *json = run_json(line, OK);
    assert_true(number_of(cJSON_GetArrayItem(cJSON_GetObjectItem(json, "buffers"), 1), "differs_at") >= 0);
    cJSON_Delete(json);
    snprintf(line, sizeof line, "check %s/order.ptx --block 128 --args 128 0.0 buf:512 buf:512", folder);
    assert_int_equal(run(line), OK);
    assert_contains(out, "not the same in all runs: differs from byte");
}

/* ---- Faults ---- */

/* Every mode's first finding is of this kind, on the line that begins like this, and says this. */
static void expect_finding(const char *arguments, const char *fault, const char *path, const char *source,
                           const char *says)
{
    cJSON *json = run_json(arguments, FAILED), *mode;
    int found = 0;
    assert_true(number_of(json, "findings") > 0);
    cJSON_ArrayForEach(mode, cJSON_GetObjectItem(json, "modes"))
    {
        char line[512];
        const cJSON *first = cJSON_GetObjectItem(mode, "first");
        if (number_of(mode, "findings") == 0) continue;
        found++;
        assert_string_equal(text_of(first, "fault"), fault);
        assert_contains(text_of(first, "message"), says);
        snprintf(line, sizeof line, "sed -n '%dp' %s | grep -qF '%s'", (int)number_of(first, "line"), path, source);
        if (system(line) != 0) fail_msg("line %d has no %s", (int)number_of(first, "line"), source);
    }
    assert_true(found > 0);
    cJSON_Delete(json);
}

static void accesses_beyond_a_buffer_are_told_with_its_name_and_the_offset(void **state)
{
    (void)state;
    static const char path[] = "tests/kernels/saxpy.ptx";
    expect_finding(SAXPY " --args 501 2.5 buf:2000=ramp:f32 buf:4K", "bounds", path, "ld.global.f32",
                   "offset 2000 of the 2000 bytes of argument 3");
    expect_finding(SAXPY " --args 500 2.5 buf:4K=ramp:f32 buf:1996", "bounds", path, "ld.global.f32",
                   "offset 1996 of the 1996 bytes of argument 4");
    expect_finding(SAXPY " --args 500 2.5 buf:2000=undefined buf:2000", "undefined", path, "st.global.f32",
                   "argument 4");
    assert_int_equal(run("check " SAXPY " --args 501 2.5 buf:2000=ramp:f32 buf:4K --schedules 1 --seed 7"), FAILED);
    assert_contains(out, " | ld.global.f32");
    assert_contains(out, "also: random, async-early");
    assert_contains(out,
                    "again: foscar check tests/kernels/saxpy.ptx --entry saxpy --grid 4,1,1 --block 128,1,1 --args 501 "
                    "2.5 buf:2000=ramp:f32 buf:4K --mode round-robin --schedules 1 --seed 7");
}

static void races_and_endless_kernels_are_found(void **state)
{
    (void)state;
    char path[128], line[512];
    static const char call[] =
        "--block 16,16 --shared 1024 --args buf:1024=random:f32 buf:1024=undefined buf:4=undefined 256";
    snprintf(line, sizeof line, "tests/kernels/shared.ptx %s", call);
    cJSON_Delete(run_json(line, OK));
    snprintf(path, sizeof path, "%s/race.ptx", folder);
    snprintf(line, sizeof line, "awk '!/bar.sync/ || !n++' tests/kernels/shared.ptx >%s", path);
    assert_int_equal(system(line), 0);
    snprintf(line, sizeof line, "%s %s", path, call);
    expect_finding(line, "race", path, ".shared.f32", "and nothing orders the two");
    snprintf(line, sizeof line,
             "awk '/bar.sync/ && !n++ {print \"L_X: bra.uni L_X;\"; next} {print}' tests/kernels/shared.ptx >%s", path);
    assert_int_equal(system(line), 0);
    snprintf(line, sizeof line, "%s --budget 10000 --schedules 1 %s", path, call);
    expect_finding(line, "budget", path, "bra.uni L_X", "10001");
}

/* ---- Calls ---- */

static void a_text_that_is_refused_is_a_finding(void **state)
{
    (void)state;
    cJSON *json = run_json("tests/kernels/textures.ptx --block 32 --args 0 buf:4 1 1", FAILED);
    const cJSON *error = cJSON_GetObjectItem(json, "error");
    assert_true(number_of(json, "findings") == 1);
    assert_string_equal(text_of(error, "fault"), "unknown-form");
    assert_string_equal(text_of(error, "file"), "tests/kernels/textures.ptx");
    assert_true(number_of(error, "line") > 0);
    cJSON_Delete(json);
}

static void headers_that_are_not_known_are_told(void **state)
{
    (void)state;
    char line[512], path[128];
    static const struct {
        const char *change, *warning;
    } rows[] = {
        {"s/^.version 9.0/.version 9.7/", ".version 9.7 is newer than 9.0"},
        {"s/^.target sm_90a/.target sm_999/", ".target sm_999 is none that the interpreter knows"},
    };
    snprintf(path, sizeof path, "%s/header.ptx", folder);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(line, sizeof line, "sed '%s' tests/kernels/saxpy.ptx >%s", rows[i].change, path);
        assert_int_equal(system(line), 0);
        snprintf(line, sizeof line, "%s", path);
        cJSON *json = run_json(line, OK);
        assert_contains(text_of(json, "warning"), rows[i].warning);
        assert_one_line_reason(rows[i].warning);
        cJSON_Delete(json);
        snprintf(line, sizeof line, "%s --schedules 1 --block 32 --args 32 1.0 buf:128 buf:128", path);
        json = run_json(line, OK);
        assert_contains(text_of(json, "warning"), rows[i].warning);
        cJSON_Delete(json);
    }
    cJSON *json = run_json("tests/kernels/saxpy.ptx", OK);
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(json, "warning")));
    assert_string_equal(err, "");
    cJSON_Delete(json);
}

static void wrong_calls_are_told(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *reason;
    } rows[] = {
        {SAXPY, "saxpy has 4 parameters; --args has 0"},
        {"tests/kernels/saxpy.ptx --entry daxpy --block 32", "has no entry 'daxpy'; it has saxpy"},
        {"tests/kernels/mma.ptx --block 32", "has 7 entries: say which by --entry (mma_f16, "},
        {"tests/kernels/saxpy.ptx --grid 1", "--block X[,Y,Z] is missing"},
        {"tests/kernels/saxpy.ptx --block 0", "option --block: '0' is not X, X,Y or X,Y,Z"},
        {"tests/kernels/saxpy.ptx --block 1,2,3,4", "'1,2,3,4' is not X, X,Y or X,Y,Z"},
        {"tests/kernels/saxpy.ptx --block 32 --grid 4x4", "option --grid: '4x4'"},
        {"tests/kernels/saxpy.ptx --block 32 --counts", "option --counts means nothing for an entry that is launched"},
        {"tests/kernels/saxpy.ptx --schedules 3",
         "option --schedules means nothing for a file without --spec or --entry"},
        {"sm_90a-k2t128-v2t128-d128-h8-p64 --grid 3", "option --grid means nothing for a spec"},
        {SAXPY " --spec sm_90a-k2t128-v2t128-d128-h8-p64", "means nothing with --spec"},
        {SAXPY " --args 1.5 1.0 buf:4 buf:4", "argument 1: "},
        {SAXPY " --args u64:1 1.0 buf:4 buf:4", "argument 1: 'u64:1' has 8 bytes; the parameter has 4"},
        {SAXPY " --args u8:256 1.0 buf:4 buf:4", "argument 1: 'u8:256' is none of 17, u32:17"},
        {SAXPY " --args 1 buf:4 buf:4 buf:4", "argument 2: 'buf:4' is a pointer of 8 bytes; the parameter has 4"},
        {SAXPY " --args 1 1.0 buf:4=ramp:f31 buf:4", "argument 3: 'buf:4=ramp:f31' is no buffer"},
        {SAXPY " --args 1 1.0 buf:2G buf:4", "up to 1 GiB"},
        {SAXPY " --args 1 1.0 buf:0 buf:4", "argument 3: 'buf:0' is no buffer"},
        {SAXPY " --args 1 1.0 buf=@/nowhere/x buf:4", "argument 3: cannot read /nowhere/x"},
        {SAXPY " --args 1 1.0 buf=@/dev/null buf:4", "argument 3: "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cJSON *json = run_json(rows[i].arguments, USAGE);
        const cJSON *error = cJSON_GetObjectItem(json, "error");
        assert_string_equal(text_of(error, "kind"), "usage");
        assert_contains(text_of(error, "message"), rows[i].reason);
        assert_one_line_reason(rows[i].reason);
        cJSON_Delete(json);
    }
}

static void launches_that_fit_no_device_are_findings(void **state)
{
    (void)state;
    cJSON *json = run_json("tests/kernels/saxpy.ptx --block 1025 --args 1 1.0 buf:4 buf:4 --schedules 1", FAILED);
    const cJSON *first = cJSON_GetObjectItem(cJSON_GetArrayItem(cJSON_GetObjectItem(json, "modes"), 0), "first");
    assert_string_equal(text_of(first, "fault"), "resource");
    assert_contains(text_of(first, "message"), "1025");
    cJSON_Delete(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buffers_are_filled_run_and_written),
        cmocka_unit_test(numbers_of_every_type_have_their_bytes),
        cmocka_unit_test(random_numbers_are_those_of_the_data_seed),
        cmocka_unit_test(what_a_kernel_prints_is_told),
        cmocka_unit_test(results_that_depend_on_the_schedule_are_told),
        cmocka_unit_test(accesses_beyond_a_buffer_are_told_with_its_name_and_the_offset),
        cmocka_unit_test(races_and_endless_kernels_are_found),
        cmocka_unit_test(a_text_that_is_refused_is_a_finding),
        cmocka_unit_test(headers_that_are_not_known_are_told),
        cmocka_unit_test(wrong_calls_are_told),
        cmocka_unit_test(launches_that_fit_no_device_are_findings),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
