/* `foscar run --cpu` and `foscar check` from outside: kernels of every kind run in the PTX interpreter, and planted
 * bugs are found. $FOSCAR_TOOL is the program. What needs NVRTC, which compiles the cache kernels, is skipped without
 * it. */
#include "cli_fixture.h"

#define SPEC       "sm_90a-k2t128-v2t128-d128-h8-p64"
#define INPUT      "tests/data/smollm2_135m_layer09.safetensors"
#define INPUT_SPEC "sm_90a-k4t64-v4t64-d64-h3-p64-of32"

static bool has_nvrtc(void)
{
    bool found = has_tool("NVRTC");
    if (!found) print_message("NVRTC is missing, so the cache kernels cannot be compiled\n");
    return found;
}

/* The JSON that a call prints, which must exit with `code`. To be freed by cJSON_Delete. */
static cJSON *run_json(const char *arguments, int code)
{
    int got = run(arguments);
    if (got != code) fail_msg("'%s' exits with %d: %s %s", arguments, got, err, out);
    cJSON *json = cJSON_Parse(out);
    if (json == NULL) fail_msg("'%s' prints no JSON: %.2000s", arguments, out);
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

/* ---- run --cpu ---- */

static void kernels_of_every_kind_pass_in_the_interpreter(void **state)
{
    (void)state;
    static const char *const arguments[] = {
        "sm_90a-k2t64-v2t64-d64-h1-p64-of32",
        "sm_90a-k4t64-v2t64-d64-h16-p128-of32 --table csr --graph",
        "sm_90a-k2t128-v4t128-d128-h8-p256-of32 --context ragged:700 --batch 5 --blocks 2",
        "sm_90a-k4t128-v4t128-d128-h1-p64-of32 --schedule async-late",
        "sm_90a-k4t256-v4t256-d256-h8-p64-of32 --schedule producer-starved --data sink",
        "sm_90a-k2t256-v2t256-d256-h16-p128-of32 --schedule random --exact --context 130",
        "sm_90a-k2t128-v2t128-d128-h5-p64-f16-of16 --data outlier --batch 1 --kv-heads 3",
        "sm_90a-k2t64-v2t64-d64-h3-p64-of32 --data ranges",
        "sm_90a-k4t128-v2t128-d128-h8-p64-f16-of32 --data ranges --context ragged:700 --batch 4 --blocks 2",
        "sm_90a-k2t64-v4t64-d64-h2-p64-of32 --data steps --context 1300 --batch 1 --blocks 2",
        "sm_90a-k2t128-v2t128-d128-h6-p128-of32 --data large",
        "sm_90a-k2t64-v2t64-d64-h4-p64-of32 --data heads",
        "sm_90a-k4t64-v2t64-d64-h8-p64 --data nans --context ragged:700 --batch 3 --blocks 2",
    };
    if (!has_nvrtc()) skip();
    for (size_t i = 0; i < sizeof arguments / sizeof *arguments; i++) {
        char line[256];
        snprintf(line, sizeof line, "run --cpu --json --lse %s", arguments[i]);
        cJSON *json = run_json(line, OK);
        assert_true(cJSON_IsTrue(cJSON_GetObjectItem(json, "ran")));
        assert_string_equal(text_of(json, "device"), "PTX interpreter");
        assert_true(number_of(json, "relative_error") <= number_of(json, "relative_error_bound"));
        assert_true(number_of(json, "lse_error") >= 0);
        cJSON_Delete(json);
    }
}

static void real_input_gives_the_schemes_loss_and_a_small_error(void **state)
{
    (void)state;
    if (!has_nvrtc()) skip();
    cJSON *json = run_json("run --cpu --json " INPUT_SPEC " --input " INPUT, OK);
    double loss = number_of(json, "scheme_error"); /* NumPy gives 0.23014105113320857 for the quantiser's own pages */
    assert_true(loss > 0.2301 && loss < 0.2302);
    assert_true(number_of(json, "relative_error") <= 2e-5);
    cJSON_Delete(json);
    assert_int_equal(run("run --cpu " INPUT_SPEC " --input " INPUT), OK);
    assert_contains(out, "device  PTX interpreter");
    assert_string_equal(err, "");
}

static void the_same_seed_gives_the_same_numbers(void **state)
{
    (void)state;
    static char first[TEXT_MAX];
    if (!has_nvrtc()) skip();
    const char *arguments = "run --cpu --json --lse --schedule random --seed 77 " SPEC;
    assert_int_equal(run(arguments), OK);
    strcpy(first, out);
    assert_int_equal(run(arguments), OK);
    assert_string_equal(out, first);
}

static void without_nvrtc_run_and_check_say_so(void **state)
{
    (void)state;
    assert_int_equal(run_to("FOSCAR_NVRTC=/nowhere/libnvrtc.so", "run --cpu " SPEC, NULL), ENVIRONMENT);
    assert_one_line_reason("/nowhere/libnvrtc.so");
    assert_int_equal(run_to("FOSCAR_NVRTC=/nowhere/libnvrtc.so", "check " SPEC, NULL), ENVIRONMENT);
    assert_one_line_reason("/nowhere/libnvrtc.so");
}

static void ptxas_is_not_needed(void **state)
{
    (void)state;
    if (!has_nvrtc()) skip();
    assert_int_equal(run_to("FOSCAR_PTXAS=/nowhere/ptxas", "run --cpu " SPEC, NULL), OK);
}

/* ---- check ---- */

/* Writes the kernel of SPEC into the folder, without the lines that sed's pattern matches. */
static void write_kernel_without(const char *pattern, char *path, size_t size)
{
    char line[512];
    snprintf(path, size, "%s/mutated.ptx", folder);
    snprintf(line, sizeof line, "emit " SPEC " -o %s", path);
    assert_int_equal(run(line), OK);
    snprintf(line, sizeof line, "sed -i '/%s/d' %s", pattern, path);
    assert_int_equal(system(line), 0);
}

static void clean_kernels_have_no_findings(void **state)
{
    (void)state;
    if (!has_nvrtc()) skip();
    cJSON *json = run_json("check --json --schedules 1 " SPEC, OK), *mode;
    int modes = 0;
    assert_true(number_of(json, "findings") == 0);
    cJSON_ArrayForEach(mode, cJSON_GetObjectItem(json, "modes"))
    {
        assert_true(number_of(mode, "runs") == 1);
        assert_true(cJSON_IsNull(cJSON_GetObjectItem(mode, "first")));
        modes++;
    }
    assert_true(modes >= 6);
    assert_true(number_of(json, "instructions_executed") > 0.9 * number_of(json, "instructions"));
    cJSON_Delete(json);
    assert_int_equal(run("check --schedules 2 --mode async-late --blocks 1 sm_90a-k4t64-v4t64-d64-h3-p64"), OK);
    assert_contains(out, "async-late");
    assert_string_equal(err, "");
}

static void a_missing_fence_is_found_with_its_line_and_can_be_replayed(void **state)
{
    (void)state;
    char path[128], line[512];
    if (!has_nvrtc()) skip();
    write_kernel_without("fence.proxy.async", path, sizeof path);
    snprintf(line, sizeof line, "check --json --schedules 1 --spec " SPEC " %s", path);
    cJSON *json = run_json(line, FAILED), *mode;
    assert_true(number_of(json, "findings") > 0);
    cJSON_ArrayForEach(mode, cJSON_GetObjectItem(json, "modes"))
    {
        cJSON *first = cJSON_GetObjectItem(mode, "first");
        if (number_of(mode, "findings") == 0) continue;
        assert_string_equal(text_of(first, "fault"), "proxy");
        assert_string_equal(text_of(first, "entry"), "foscar_decode");
        snprintf(line, sizeof line, "sed -n '%dp' %s | grep -q wgmma.mma_async", (int)number_of(first, "line"), path);
        assert_int_equal(system(line), 0);
        snprintf(line, sizeof line, "check --json --schedules 1 --mode %s --seed %.0f --spec " SPEC " %s",
                 text_of(mode, "mode"), number_of(first, "seed"), path);
        cJSON *again = run_json(line, FAILED);
        cJSON *found = cJSON_GetObjectItem(cJSON_GetArrayItem(cJSON_GetObjectItem(again, "modes"), 0), "first");
        assert_true(number_of(found, "line") == number_of(first, "line"));
        assert_true(number_of(found, "warp") == number_of(first, "warp"));
        cJSON_Delete(again);
    }
    cJSON_Delete(json);
    unlink(path);
}

static void a_deadlock_names_the_waiting_warps(void **state)
{
    (void)state;
    char path[128], line[512];
    if (!has_nvrtc()) skip();
    write_kernel_without("mbarrier.arrive.shared", path, sizeof path);
    snprintf(line, sizeof line, "check --schedules 1 --mode round-robin --spec " SPEC " %s", path);
    assert_int_equal(run(line), FAILED);
    assert_contains(out, "deadlock at line");
    assert_contains(out, "\nwarp 0 ");
    assert_contains(out, "again: foscar check");
    unlink(path);
}

static void the_executed_instructions_of_a_pass_are_those_that_the_inspector_counts(void **state)
{
    (void)state;
    int loops = 0;
    if (!has_nvrtc()) skip();
    cJSON *json = run_json("check --json --counts --schedules 1 --mode round-robin " SPEC, OK), *region;
    const cJSON *counts = cJSON_GetObjectItem(json, "counts");
    cJSON_ArrayForEach(region, cJSON_GetObjectItem(counts, "regions"))
    {
        const char *name = text_of(region, "region");
        assert_true(number_of(region, "text") == number_of(region, "static"));
        double pass = number_of(region, "per_pass"), fixed = number_of(region, "static");
        bool straight = strstr(name, "unpack") != NULL || strstr(name, "scale") != NULL;
        if (pass > fixed || (straight && pass != fixed))
            fail_msg("%s: %g executed a pass, %g counted", name, pass, fixed);
        if (strncmp(name, "loop", 4) != 0 || !straight) continue;
        /* nearly all blocks of the long sequence go through the loop */
        assert_true(number_of(region, "per_element") <= number_of(region, "static_per_element"));
        assert_true(number_of(region, "per_element") > 0.8 * number_of(region, "static_per_element"));
        loops++;
    }
    assert_true(loops >= 4); /* unpack and scale of K and of V */
    cJSON_Delete(json);
    assert_int_equal(run("check --counts --schedules 1 --mode round-robin " SPEC), OK);
    assert_contains(out, "an element");
}

static void a_file_without_a_spec_is_only_read(void **state)
{
    (void)state;
    char path[128], line[512];
    snprintf(path, sizeof path, "%s/kernel.ptx", folder);
    snprintf(line, sizeof line, "emit " SPEC " -o %s", path);
    assert_int_equal(run(line), OK);
    snprintf(line, sizeof line, "check %s", path);
    assert_int_equal(run(line), OK);
    assert_contains(out, "foscar_decode");
    assert_contains(out, "takes --spec SPEC");
    snprintf(line, sizeof line, "sed -i 's/mad.lo.s32/mad.low.s32/' %s", path);
    assert_int_equal(system(line), 0);
    snprintf(line, sizeof line, "check %s", path);
    assert_int_equal(run(line), FAILED);
    assert_one_line_reason("unknown-form at line");
    unlink(path);
}

static void a_text_that_is_not_known_is_refused_when_it_is_to_be_run(void **state)
{
    (void)state;
    char path[128], line[512];
    if (!has_nvrtc()) skip();
    write_kernel_without("nothing of this", path, sizeof path);
    snprintf(line, sizeof line, "sed -i 's/mad.lo.s32/mad.low.s32/' %s", path);
    assert_int_equal(system(line), 0);
    snprintf(line, sizeof line, "check --spec " SPEC " %s", path);
    assert_int_equal(run(line), FAILED);
    assert_one_line_reason("unknown-form at line");
    unlink(path);
}

static void a_file_of_another_kernel_is_refused(void **state)
{
    (void)state;
    char path[128], line[512];
    write_kernel_without("nothing of this", path, sizeof path);
    snprintf(line, sizeof line, "sed -i 's/entry foscar_decode/entry another/' %s", path);
    assert_int_equal(system(line), 0);
    snprintf(line, sizeof line, "check --spec " SPEC " %s", path);
    assert_int_equal(run(line), USAGE);
    assert_one_line_reason("no entry foscar_decode");
    unlink(path);
}

static void wrong_usage_exits_with_2(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *reason;
    } rows[] = {
        {"check", "usage: foscar check"},
        {"check /nowhere/kernel.ptx", "cannot read /nowhere/kernel.ptx"},
        {"check /nowhere/kernel.ptx --spec " SPEC, "cannot read /nowhere/kernel.ptx"},
        {"check " SPEC " --spec " SPEC, "--spec goes with a file"},
        {"check sm_90a-k2t128", "spec"},
        {"check " SPEC " --mode sideways", "'sideways' is none of all|round-robin|"},
        {"check " SPEC " --schedules 0", "'0' is not a number from 1"},
        {"run --cpu " SPEC " --schedule sideways", "'sideways' is none of round-robin|"},
        {"run --cpu " SPEC " --blocks 0", "'0' is not a number from 1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int code = run(rows[i].arguments);
        if (code != USAGE) fail_msg("'%s' exits with %d: %s", rows[i].arguments, code, err);
        assert_string_equal(out, "");
        assert_one_line_reason(rows[i].reason);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_of_every_kind_pass_in_the_interpreter),
        cmocka_unit_test(real_input_gives_the_schemes_loss_and_a_small_error),
        cmocka_unit_test(the_same_seed_gives_the_same_numbers),
        cmocka_unit_test(without_nvrtc_run_and_check_say_so),
        cmocka_unit_test(ptxas_is_not_needed),
        cmocka_unit_test(clean_kernels_have_no_findings),
        cmocka_unit_test(a_missing_fence_is_found_with_its_line_and_can_be_replayed),
        cmocka_unit_test(a_deadlock_names_the_waiting_warps),
        cmocka_unit_test(the_executed_instructions_of_a_pass_are_those_that_the_inspector_counts),
        cmocka_unit_test(a_file_without_a_spec_is_only_read),
        cmocka_unit_test(a_text_that_is_not_known_is_refused_when_it_is_to_be_run),
        cmocka_unit_test(a_file_of_another_kernel_is_refused),
        cmocka_unit_test(wrong_usage_exits_with_2),
    };
    return cmocka_run_group_tests_name("cli_cpu", tests, make_folder, remove_folder);
}
