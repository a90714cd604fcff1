/* The command line program from outside: exit codes, one-line reasons, files written whole or not at all, the numbers
 * of `inspect`. $FOSCAR_TOOL is the program. What needs a GPU or ptxas is skipped where there is none. */
#include "cli_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>

#include "config.h"

#define SPEC       "sm_90a-k2t128-v2t128-d128-h8-p64"
#define INPUT      "tests/data/smollm2_135m_layer09.safetensors"
#define INPUT_SPEC "sm_90a-k4t64-v4t64-d64-h3-p64-of32"

static bool has_gpu(void)
{
    run("doctor --json");
    cJSON *json = cJSON_Parse(out), *row;
    bool found = false;
    cJSON_ArrayForEach(row, json) if (strcmp(cJSON_GetStringValue(cJSON_GetObjectItem(row, "name")), "GPU") == 0 &&
                                      strstr(cJSON_GetStringValue(cJSON_GetObjectItem(row, "detail")), "sm_90a"))
        found = true;
    cJSON_Delete(json);
    return found;
}

/* ---- All subcommands ---- */

static void every_subcommand_has_help_with_an_example_and_exit_codes(void **state)
{
    (void)state;
    static const char *const names[] = {"list", "emit", "inspect", "run", "check", "bench", "accuracy", "doctor"};
    assert_int_equal(run("--help"), OK);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) assert_contains(out, names[i]);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char arguments[64], example[64];
        snprintf(arguments, sizeof arguments, "%s --help", names[i]);
        snprintf(example, sizeof example, "example:\n  foscar %s", names[i]);
        assert_int_equal(run(arguments), OK);
        assert_contains(out, example);
        assert_contains(out, "exit codes:");
        assert_string_equal(err, "");
    }
    assert_int_equal(run("--version"), OK);
    assert_contains(out, "foscar 0.");
}

static void wrong_usage_exits_with_2_and_writes_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *reason;
    } rows[] = {
        {"frobnicate", "'frobnicate' is no command"},
        {"list --frobnicate", "unknown option '--frobnicate'"},
        {"list --json=1", "takes no value"},
        {"emit", "usage: foscar emit"},
        {"emit sm_90a-k2t128-v2t128-d100-h8-p64",
         "spec field 'd': 100 is not a head dimension this target has (64, 128, 256)"},
        {"emit " SPEC " --output", "needs a value"},
        {"emit --all", "-o DIRECTORY"},
        {"emit " SPEC " " SPEC, "usage: foscar emit"},
        {"inspect", "usage: foscar inspect"},
        {"inspect " SPEC "-x1", "'x1'"},
        {"run", "usage: foscar run"},
        {"run --all " SPEC, "--all takes no spec"},
        {"run " SPEC " --batch 0", "'0' is not a number from 1 to 65535"},
        {"run " SPEC " --batch 2x", "'2x'"},
        {"run " SPEC " --seed 99999999999999999999", "option --seed"},
        {"run " SPEC " --data pink", "'pink' is none of random|outlier|large|sink"},
        {"run " SPEC " --context soon", "option --context: 'soon'"},
        {"run " SPEC " --context ragged:-1", "option --context: 'ragged:-1'"},
        {"run " SPEC " --input /nowhere/x", "cannot read /nowhere/x"},
        {"run " SPEC " --input " INPUT, "takes a spec with d64 and h3"},
        {"bench " SPEC "-", "empty field"},
        {"run " SPEC " --batch 65535 --context 67108864", "are more than 2147483647 tokens together"},
        {"run " SPEC " --batch 100 --context ragged:67108864", "are more than 2147483647 tokens together"},
        {"bench --batch 65535 --context 16777216", "take more than 2147483647 pages"},
        {"bench --batch 3", "--batch and --context go together"},
        {"bench --repeats 5", "from 30"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int code = run(rows[i].arguments);
        if (code != USAGE) fail_msg("'%s' exits with %d: %s", rows[i].arguments, code, err);
        assert_string_equal(out, "");
        assert_one_line_reason(rows[i].reason);
    }
    assert_int_equal(run(""), USAGE);
}

/* What an option asks for is done or refused, never passed over. */
static void an_option_that_means_nothing_in_a_call_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *reason;
    } rows[] = {
        {"run " INPUT_SPEC " --input " INPUT " --context 5", "option --context means nothing with --input"},
        {"run " INPUT_SPEC " --input " INPUT " --batch 4", "option --batch means nothing with --input"},
        {"run " INPUT_SPEC " --input " INPUT " --kv-heads=2", "option --kv-heads means nothing with --input"},
        {"run --data random " INPUT_SPEC " --input " INPUT, "option --data means nothing with --input"},
        {"run --cpu --data sink " INPUT_SPEC " --input " INPUT, "option --data means nothing with --input"},
        {"run " SPEC " --schedule random", "option --schedule means nothing without --cpu"},
        {"run " SPEC " --blocks 4", "option --blocks means nothing without --cpu"},
        {"run " SPEC " --exact", "option --exact means nothing without --cpu"},
        {"run --all --output x", "--output takes one spec, not several"},
        {"emit --all -o x --plan", "--all takes no spec"},
        {"emit " SPEC " --all -o x", "--all takes no spec"},
        {"inspect " SPEC " --no-assemble --sass", "option --sass means nothing with --no-assemble"},
        {"check README.md --counts", "option --counts means nothing for a file without --spec"},
        {"check README.md --json --exact", "option --exact means nothing for a file without --spec"},
        {"check README.md --schedules 3", "option --schedules means nothing for a file"},
        {"check README.md --mode all", "option --mode means nothing for a file"},
        {"check README.md --seed 3", "option --seed means nothing for a file"},
        {"check README.md --blocks 3", "option --blocks means nothing for a file"},
        {"bench --grid quick --batch 1 --context 1024", "option --grid means nothing with --batch and --context"},
        {"bench " SPEC " --grid wide --batch 1 --context 1024", "option --grid means nothing with --batch"},
        {"accuracy " INPUT " --all --scheme k4t64-v4t64", "option --all means nothing with --scheme"},
        {"--version list", "'--version' takes no more words"},
        {"--help list", "'foscar COMMAND --help' tells about a command"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int code = run(rows[i].arguments);
        if (code != USAGE) fail_msg("'%s' exits with %d: %s", rows[i].arguments, code, err);
        if (strstr(rows[i].arguments, "--json") == NULL) assert_string_equal(out, "");
        assert_one_line_reason(rows[i].reason);
    }
}

static void a_full_disk_is_reported(void **state)
{
    (void)state;
    if (access("/dev/full", W_OK) != 0) skip();
    assert_int_equal(run_to("", "list --specs", "/dev/full"), FAILED);
    assert_one_line_reason("standard output");
    assert_one_line_reason("No space left on device");
    assert_int_equal(run_to("", "emit " SPEC, "/dev/full"), FAILED);
    assert_one_line_reason("standard output: No space left on device");
    assert_int_equal(run("emit " SPEC " -o /dev/full"), FAILED);
    assert_one_line_reason("cannot write /dev/full: No space left on device");
}

/* The limit sends a signal that ends a program. */
static void a_file_size_limit_is_reported_and_leaves_nothing(void **state)
{
    (void)state;
    char arguments[256], path[128];
    snprintf(path, sizeof path, "%s/kernel.ptx", folder);
    snprintf(arguments, sizeof arguments, "emit " SPEC " -o %s", path);
    assert_int_equal(run_to("ulimit -f 4;", arguments, NULL), FAILED);
    assert_one_line_reason("raise ulimit -f");
    assert_int_equal(access(path, F_OK), -1);
    snprintf(arguments, sizeof arguments, "ls -A %s | grep -q kernel", folder);
    assert_int_not_equal(system(arguments), 0);
    assert_int_equal(run_to("ulimit -f 4;", "emit " SPEC, NULL), FAILED);
    assert_one_line_reason("raise ulimit -f");
}

static void what_an_output_name_stands_for_is_kept(void **state)
{
    (void)state;
    static char whole[TEXT_MAX], file[TEXT_MAX];
    char arguments[256], line[512];
    assert_int_equal(run("emit " SPEC " --plan"), OK);
    strcpy(whole, out);
    snprintf(line, sizeof line, "cd %s && echo >real && chmod 600 real && ln -s real link && mkfifo fifo", folder);
    assert_int_equal(system(line), 0);
    snprintf(arguments, sizeof arguments, "emit " SPEC " -o %s/link", folder);
    assert_int_equal(run(arguments), OK); /* longer than what replaces it */
    snprintf(arguments, sizeof arguments, "emit " SPEC " --plan -o %s/link", folder);
    assert_int_equal(run(arguments), OK);
    snprintf(line, sizeof line, "%s/real", folder);
    read_file(line, file);
    assert_string_equal(file, whole);
    snprintf(line, sizeof line, "test -L %s/link && test \"$(stat -c %%a %s/real)\" = 600", folder, folder);
    assert_int_equal(system(line), 0);
    snprintf(arguments, sizeof arguments, "emit " SPEC " --plan -o %s/fifo", folder);
    assert_int_equal(run_to("timeout 20", arguments, NULL), FAILED);
    assert_one_line_reason("fifo: nobody reads from it");
    snprintf(line, sizeof line, "%s/fifo", folder);
    int reader = open(line, O_RDONLY | O_NONBLOCK); /* the plan fits into a pipe */
    assert_int_equal(run_to("timeout 20", arguments, NULL), OK);
    ssize_t length = read(reader, file, sizeof file - 1);
    assert_int_equal(length, strlen(whole));
    assert_memory_equal(file, whole, strlen(whole));
    close(reader);
    snprintf(line, sizeof line, "cd %s && rm -f real link fifo", folder);
    assert_int_equal(system(line), 0);
}

static void a_ptxas_that_hangs_is_an_error_after_the_time_limit(void **state)
{
    (void)state;
    char line[512];
    snprintf(line, sizeof line, "printf '#!/bin/sh\\nsleep 600\\n' >%s/ptxas; chmod 700 %s/ptxas", folder, folder);
    assert_int_equal(system(line), 0);
    snprintf(line, sizeof line, "FOSCAR_PTXAS=%s/ptxas FOSCAR_PTXAS_SECONDS=1 timeout 60", folder);
    assert_int_equal(run_to(line, "inspect " SPEC, NULL), FAILED);
    assert_one_line_reason("had not ended after 1 s and was killed");
    assert_int_equal(run_to("FOSCAR_PTXAS_SECONDS=soon", "inspect " SPEC, NULL), FAILED);
    assert_one_line_reason("FOSCAR_PTXAS_SECONDS is 'soon'");
    snprintf(line, sizeof line, "rm %s/ptxas; mkfifo %s/ptxas", folder, folder);
    assert_int_equal(system(line), 0);
    snprintf(line, sizeof line, "FOSCAR_PTXAS=%s/ptxas timeout 60", folder);
    assert_int_equal(run_to(line, "inspect " SPEC, NULL), FAILED);
    assert_one_line_reason("it is a pipe or FIFO, not a regular file");
    snprintf(line, sizeof line, "FOSCAR_NVRTC=%s/ptxas timeout 60", folder);
    assert_int_equal(run_to(line, "check " SPEC, NULL), ENVIRONMENT);
    assert_one_line_reason("it is a pipe or FIFO, not a regular file");
    snprintf(line, sizeof line, "rm %s/ptxas", folder);
    assert_int_equal(system(line), 0);
}

/* ---- list, emit ---- */

static void list_names_the_grid(void **state)
{
    (void)state;
    int lines = 0;
    assert_int_equal(run("list --specs"), OK);
    for (char *line = strtok(out, "\n"); line != NULL; line = strtok(NULL, "\n"), lines++) {
        config cfg;
        assert_true(config_parse(line, &cfg, NULL));
    }
    assert_int_equal(lines, registry_size());
    assert_int_equal(run("list --json"), OK);
    cJSON *json = cJSON_Parse(out);
    assert_int_equal(cJSON_GetArraySize(json), registry_size());
    cJSON_Delete(json);
    assert_int_equal(run("list"), OK);
    assert_contains(out, "sm_90a");
}

static int files_in_folder(void)
{
    int count = 0;
    DIR *directory = opendir(folder);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}

static void emit_writes_the_same_bytes_everywhere(void **state)
{
    (void)state;
    static char first[TEXT_MAX], file[TEXT_MAX];
    char arguments[256], path[128];
    assert_int_equal(run("emit " SPEC), OK);
    strcpy(first, out);
    assert_contains(first, ".target sm_90a");
    assert_int_equal(run("emit " SPEC "-bf16-obf16"), OK); /* the same kernel spelt otherwise */
    assert_string_equal(out, first);
    snprintf(path, sizeof path, "%s/kernel.ptx", folder);
    snprintf(arguments, sizeof arguments, "emit " SPEC " -o %s", path);
    for (int round = 0; round < 2; round++) { /* the second one replaces a file */
        assert_int_equal(run(arguments), OK);
        assert_string_equal(out, "");
        read_file(path, file);
        assert_string_equal(file, first);
    }
    assert_int_equal(files_in_folder(), 3); /* out, err, kernel.ptx: no temporary file is left */
    snprintf(arguments, sizeof arguments, "emit sm_90a -o %s", path);
    assert_int_equal(run(arguments), USAGE);
    read_file(path, file);
    assert_string_equal(file, first); /* a failure leaves the old file */
    unlink(path);
    assert_int_equal(run("emit " SPEC " -o /nowhere/kernel.ptx"), FAILED);
    assert_one_line_reason("cannot write /nowhere/kernel.ptx");
    assert_int_equal(run("emit " SPEC " --plan"), OK);
    assert_contains(out, "shared memory");
}

static void emitting_the_whole_grid_takes_under_5_seconds(void **state)
{
    (void)state;
    char arguments[128], line[256];
    struct rusage before, after;
    getrusage(RUSAGE_CHILDREN, &before);
    snprintf(arguments, sizeof arguments, "emit --all -o %s/grid", folder);
    assert_int_equal(run(arguments), OK);
    getrusage(RUSAGE_CHILDREN, &after);
    double seconds =
        (double)(after.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_utime.tv_sec - before.ru_stime.tv_sec) +
        (double)(after.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_utime.tv_usec - before.ru_stime.tv_usec) *
            1e-6;
    assert_true(seconds < 5);
    snprintf(line, sizeof line, "test \"$(ls %s/grid/*.ptx | wc -l)\" -eq %d && rm -r %s/grid", folder, registry_size(),
             folder);
    assert_int_equal(system(line), 0);
}

/* ---- inspect ---- */

static double number_at(const cJSON *json, const char *object, const char *key)
{
    const cJSON *item =
        object != NULL ? cJSON_GetObjectItem(cJSON_GetObjectItem(json, object), key) : cJSON_GetObjectItem(json, key);
    if (!cJSON_IsNumber(item)) fail_msg("no number %s.%s", object != NULL ? object : "", key);
    return item->valuedouble;
}

static void inspect_meets_the_work_per_element_that_was_asked_for(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        double alu, scale;
    } rows[] = {
        {"sm_90a-k2t128-v2t128-d128-h8-p64", 0.3125, 0.19},
        {"sm_90a-k4t128-v4t128-d128-h8-p64", 0.25, 0.19},
        {"sm_90a-k2t128-v2t128-d128-h1-p64", 0.3125, 0.024},
        {"sm_90a-k4t128-v4t128-d128-h1-p64", 0.25, 0.024},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char arguments[128];
        snprintf(arguments, sizeof arguments, "inspect --no-assemble --json %s", rows[i].spec);
        assert_int_equal(run(arguments), OK);
        cJSON *json = cJSON_Parse(out);
        double alu = number_at(json, "alu_per_element", "total"),
               scale = number_at(json, "scale_ops_per_element", "total");
        if (!(alu > 0 && alu <= rows[i].alu))
            fail_msg("%s: %g ALU instructions an element, at most %g wanted", rows[i].spec, alu, rows[i].alu);
        if (!(scale > 0 && scale <= rows[i].scale))
            fail_msg("%s: %g scale operations an element, at most %g wanted", rows[i].spec, scale, rows[i].scale);
        assert_true(number_at(json, NULL, "tensor_instructions") > 0);
        assert_true(cJSON_IsNull(cJSON_GetObjectItem(json, "registers"))); /* not assembled, so not known */
        cJSON_Delete(json);
    }
}

static void inspect_shows_what_ptxas_made(void **state)
{
    (void)state;
    if (!has_tool("ptxas")) skip();
    assert_int_equal(run("inspect --json " SPEC), OK);
    cJSON *json = cJSON_Parse(out);
    assert_true(number_at(json, NULL, "registers") > 0);
    assert_true(number_at(json, NULL, "shared_bytes") > 0);
    assert_true(number_at(json, NULL, "spill_bytes") == 0);
    number_at(json, "alu_per_element", "k");
    number_at(json, "alu_per_element", "v");
    number_at(json, "scale_ops_per_element", "k");
    number_at(json, "scale_ops_per_element", "v");
    cJSON_Delete(json);
    assert_int_equal(run("inspect " SPEC), OK);
    assert_contains(out, "scale-and-offset operations");
    assert_contains(out, "occupancy");
    if (!has_tool("nvdisasm")) return;
    assert_int_equal(run("inspect --json " SPEC), OK);
    json = cJSON_Parse(out);
    assert_true(number_at(json, "sass", "IGMMA") > 0);
    cJSON_Delete(json);
}

static void inspect_without_an_assembler_still_counts_and_says_so(void **state)
{
    (void)state;
    assert_int_equal(run_to("FOSCAR_PTXAS=/nowhere/ptxas", "inspect " SPEC, NULL), FAILED);
    assert_one_line_reason("/nowhere/ptxas");
    assert_contains(out, "scale-and-offset operations");
    assert_contains(out, "not known");
}

/* ---- run, bench ---- */

static void run_without_a_gpu_says_what_it_could_not_do(void **state)
{
    (void)state;
    if (has_gpu() || !has_tool("ptxas") || !has_tool("NVRTC")) skip();
    assert_int_equal(run("run " INPUT_SPEC " --input " INPUT), ENVIRONMENT);
    assert_one_line_reason("nothing was run on a GPU");
    assert_contains(out, "assembled, not run");
    assert_int_equal(run("run --json " INPUT_SPEC " --input " INPUT), ENVIRONMENT);
    cJSON *json = cJSON_Parse(out);
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(json, "relative_error")));
    double loss = number_at(json, NULL, "scheme_error"); /* found on the CPU; NumPy gives 0.23014105113320857 */
    assert_true(loss > 0.230141051 && loss < 0.230141052);
    cJSON_Delete(json);
    assert_int_equal(run("bench"), ENVIRONMENT);
    assert_one_line_reason("libcuda.so.1");
}

static void run_on_a_gpu_passes_on_real_input_and_ragged_random_data(void **state)
{
    (void)state;
    if (!has_gpu()) skip();
    assert_int_equal(run("run --json --lse " INPUT_SPEC " --input " INPUT), OK);
    cJSON *json = cJSON_Parse(out);
    assert_true(number_at(json, NULL, "relative_error") <= 2e-5);
    cJSON_Delete(json);
    assert_int_equal(run("run --lse --batch 20 --context ragged --table csr --graph " SPEC "-of32"), OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_subcommand_has_help_with_an_example_and_exit_codes),
        cmocka_unit_test(wrong_usage_exits_with_2_and_writes_nothing),
        cmocka_unit_test(an_option_that_means_nothing_in_a_call_is_refused),
        cmocka_unit_test(a_full_disk_is_reported),
        cmocka_unit_test(a_file_size_limit_is_reported_and_leaves_nothing),
        cmocka_unit_test(what_an_output_name_stands_for_is_kept),
        cmocka_unit_test(a_ptxas_that_hangs_is_an_error_after_the_time_limit),
        cmocka_unit_test(list_names_the_grid),
        cmocka_unit_test(emit_writes_the_same_bytes_everywhere),
        cmocka_unit_test(emitting_the_whole_grid_takes_under_5_seconds),
        cmocka_unit_test(inspect_meets_the_work_per_element_that_was_asked_for),
        cmocka_unit_test(inspect_shows_what_ptxas_made),
        cmocka_unit_test(inspect_without_an_assembler_still_counts_and_says_so),
        cmocka_unit_test(run_without_a_gpu_says_what_it_could_not_do),
        cmocka_unit_test(run_on_a_gpu_passes_on_real_input_and_ragged_random_data),
    };
    return cmocka_run_group_tests_name("cli", tests, make_folder, remove_folder);
}
