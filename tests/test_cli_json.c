/* --json from outside: every command prints one valid JSON document in every outcome, in strict UTF-8, whatever bytes
 * the names and files of the caller hold. What needs NVRTC or ptxas is skipped where there is none. */
#include "cli_fixture.h"

#define SPEC       "sm_90a-k2t128-v2t128-d128-h8-p64"
#define INPUT      "tests/data/smollm2_135m_layer09.safetensors"
#define INPUT_SPEC "sm_90a-k4t64-v4t64-d64-h3-p64-of32"

/* ---- The judge ---- */

/* Decodes one character and encodes it again: what differs was not the shortest form of a character. */
static size_t utf8_bytes(const unsigned char *at)
{
    static const uint32_t first_of[] = {0, 0x80, 0x800, 0x10000};
    size_t more = at[0] < 0x80 ? 0 : at[0] >> 5 == 6 ? 1 : at[0] >> 4 == 14 ? 2 : at[0] >> 3 == 30 ? 3 : 4;
    if (more > 3) return 0;
    uint32_t code = more == 0 ? at[0] : at[0] & (0x3fu >> more);
    for (size_t i = 1; i <= more; i++) {
        if (at[i] >> 6 != 2) return 0;
        code = code << 6 | (at[i] & 0x3f);
    }
    bool surrogate = code >= 0xd800 && code <= 0xdfff;
    return code < first_of[more] || code > 0x10ffff || surrogate ? 0 : more + 1;
}

/* The document on standard output, which is nothing else. To be freed by cJSON_Delete. */
static cJSON *only_document(const char *what)
{
    char path[128];
    snprintf(path, sizeof path, "%s/out", folder);
    size_t length = read_file(path, out);
    if (length != strlen(out)) fail_msg("'%s' prints a NUL", what);
    for (const unsigned char *at = (const unsigned char *)out; *at != '\0';) {
        size_t bytes = utf8_bytes(at);
        if (bytes == 0) fail_msg("'%s' prints no UTF-8: %.300s", what, (const char *)at);
        if (*at < ' ' && *at != '\n' && *at != '\t') fail_msg("'%s' prints the control character %d", what, *at);
        at += bytes;
    }
    const char *end = NULL;
    cJSON *json = cJSON_ParseWithOpts(out, &end, true);
    if (json == NULL) fail_msg("'%s' prints no JSON document, or more than one: %.2000s", what, out);
    return json;
}

static cJSON *judged(const char *prefix, const char *arguments, int code)
{
    int got = run_to(prefix, arguments, NULL);
    if (got != code) fail_msg("'%s' exits with %d, not %d: %s%s", arguments, got, code, err, out);
    return only_document(arguments);
}

static const char *member(const cJSON *json, const char *key)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, key));
}

/* The error of a document: its kind is that of the exit code, and its message is told on standard error, in one line.
 */
static const cJSON *assert_error(const cJSON *json, int code, const char *reason)
{
    static const char *const kinds[] = {"ok", "failed", "usage", "environment"};
    const cJSON *error = cJSON_GetObjectItemCaseSensitive(json, "error");
    if (!cJSON_IsObject(error)) fail_msg("no error in %.2000s", out);
    assert_string_equal(member(error, "kind"), kinds[code]);
    assert_contains(member(error, "message"), reason);
    assert_one_line_reason(reason);
    return error;
}

/* ---- Outcomes ---- */

static void a_wrong_call_of_any_command_is_a_document(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *reason;
    } rows[] = {
        {"frobnicate --json", "'frobnicate' is no command"},
        {"--json", "'--json' is no command"},
        {"list --frobnicate --json", "unknown option '--frobnicate'"},
        {"list --json --json=1", "takes no value"},
        {"emit --json " SPEC, "unknown option '--json'"},
        {"inspect --json", "usage: foscar inspect"},
        {"inspect --json sm_90a-k2", "spec"},
        {"inspect --json $(printf 'sm_90a-\\377\\376')", "spec"},
        {"run --json", "usage: foscar run"},
        {"run --all --json " SPEC, "--all takes no spec"},
        {"run " SPEC " --batch 0 --json", "'0' is not a number"},
        {"run " SPEC " --context soon --json", "option --context"},
        {"run " SPEC " --output --json", "option --output needs a value"},
        {"run --json " SPEC " --input " INPUT, "takes a spec with d64 and h3"},
        {"run --cpu --json " SPEC " --schedule $(printf '\\303\\050')", "is none of"},
        {"check --json", "usage: foscar check"},
        {"check --json " SPEC " --spec " SPEC, "--spec goes with a file"},
        {"check --json sm_90a-k2t128", "spec"},
        {"bench --json --batch 3", "--batch and --context go together"},
        {"bench --json nothing", "spec"},
        {"accuracy --json", "usage: foscar accuracy"},
        {"accuracy --json " INPUT " --under low", "option --under"},
        {"accuracy --json " INPUT " --scheme k9t1", "scheme"},
        {"doctor --json now", "usage: foscar doctor"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cJSON *json = judged("", rows[i].arguments, USAGE);
        assert_error(json, USAGE, rows[i].reason);
        cJSON_Delete(json);
    }
}

static void help_and_version_are_documents(void **state)
{
    (void)state;
    static const char *const arguments[] = {"--help",         "list --help",     "emit --help",
                                            "inspect --help", "run --help",      "check --help",
                                            "bench --help",   "accuracy --help", "doctor --help --frobnicate"};
    char line[64];
    for (size_t i = 0; i < sizeof arguments / sizeof *arguments; i++) {
        snprintf(line, sizeof line, "%s --json", arguments[i]);
        cJSON *json = judged("", line, OK);
        assert_contains(member(json, "help"), "usage: foscar");
        assert_null(cJSON_GetObjectItem(json, "error"));
        cJSON_Delete(json);
    }
    cJSON *json = judged("", "--version --json", OK);
    assert_contains(member(json, "version"), "foscar 0.");
    cJSON_Delete(json);
}

static void results_are_documents(void **state)
{
    (void)state;
    static const char *const arguments[] = {"list --json", "inspect --no-assemble --json " SPEC,
                                            "accuracy --json " INPUT " --scheme k4t64-v4t64"};
    for (size_t i = 0; i < sizeof arguments / sizeof *arguments; i++) {
        cJSON *json = judged("", arguments[i], OK);
        assert_null(cJSON_GetObjectItem(json, "error"));
        assert_string_equal(err, "");
        cJSON_Delete(json);
    }
}

static void a_result_that_falls_short_keeps_its_numbers_beside_the_error(void **state)
{
    (void)state;
    cJSON *json = judged("", "accuracy --json " INPUT " --scheme k2t64-v2t64 --under 0.01", FAILED);
    assert_error(json, FAILED, "no scheme has an output error under 0.01");
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(json, "schemes")), 1);
    cJSON_Delete(json);
    json = judged("FOSCAR_PTXAS=/nowhere/ptxas", "inspect --json " SPEC, FAILED);
    assert_error(json, FAILED, "/nowhere/ptxas");
    assert_true(cJSON_IsNumber(cJSON_GetObjectItem(json, "threads")));
    cJSON_Delete(json);
}

static void what_the_machine_lacks_is_a_document(void **state)
{
    (void)state;
    static const char no_tools[] = "PATH=/usr/bin:/bin FOSCAR_PTXAS=/nowhere/ptxas FOSCAR_NVRTC=/nowhere/nvrtc.so "
                                   "CUDA_VISIBLE_DEVICES= LD_LIBRARY_PATH=";
    static const struct {
        const char *arguments, *status;
    } rows[] = {{"check --json " SPEC, "NO_NVRTC"}, {"run --json --cpu " SPEC, "NO_NVRTC"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cJSON *json = judged(no_tools, rows[i].arguments, ENVIRONMENT);
        assert_string_equal(member(assert_error(json, ENVIRONMENT, "/nowhere/nvrtc.so"), "status"), rows[i].status);
        cJSON_Delete(json);
    }
    cJSON *json = judged(no_tools, "doctor --json", ENVIRONMENT);
    assert_true(cJSON_IsArray(json));
    cJSON_Delete(json);
    json = judged(no_tools, "bench --json", ENVIRONMENT);
    assert_error(json, ENVIRONMENT, "");
    cJSON_Delete(json);
    run_to(no_tools, "run --json " SPEC " " SPEC, NULL); /* the tools of the machine decide the code */
    json = only_document("run of two specs");
    assert_int_equal(cJSON_GetArraySize(json), 2);
    for (int i = 0; i < 2; i++) assert_non_null(cJSON_GetObjectItem(cJSON_GetArrayItem(json, i), "error"));
    cJSON_Delete(json);
}

static void what_the_interpreter_finds_is_a_document(void **state)
{
    (void)state;
    char line[512];
    snprintf(line, sizeof line, "emit " SPEC " -o %s/kernel.ptx", folder);
    assert_int_equal(run(line), OK);
    snprintf(line, sizeof line, "check --json %s/kernel.ptx", folder);
    cJSON *json = judged("", line, OK);
    assert_true(cJSON_GetObjectItem(json, "findings")->valuedouble == 0);
    cJSON_Delete(json);
    snprintf(line, sizeof line, "sed 's/mad.lo.s32/mad.low.s32/' %s/kernel.ptx >%s/wrong.ptx", folder, folder);
    assert_int_equal(system(line), 0);
    for (int with_spec = 0; with_spec < 2; with_spec++) {
        snprintf(line, sizeof line, "check --json %s/wrong.ptx%s", folder, with_spec ? " --spec " SPEC : "");
        json = judged("", line, FAILED);
        const cJSON *error = assert_error(json, FAILED, "");
        assert_string_equal(member(error, "fault"), "unknown-form");
        assert_true(cJSON_GetObjectItem(error, "line")->valuedouble > 1);
        assert_contains(member(error, "file"), "wrong.ptx");
        assert_true(cJSON_GetObjectItem(json, "findings")->valuedouble == 1);
        cJSON_Delete(json);
    }
    if (!has_tool("NVRTC")) return;
    snprintf(line, sizeof line, "sed '/fence.proxy.async/d' %s/kernel.ptx >%s/wrong.ptx", folder, folder);
    assert_int_equal(system(line), 0);
    snprintf(line, sizeof line, "check --json --mode round-robin --schedules 1 %s/wrong.ptx --spec " SPEC, folder);
    json = judged("", line, FAILED);
    assert_true(cJSON_GetObjectItem(json, "findings")->valuedouble > 0);
    cJSON_Delete(json);
}

static void files_of_any_name_and_any_bytes_give_utf8(void **state)
{
    (void)state;
    /* each for printf(1); what it becomes: one U+FFFD for each longest beginning of a character */
    static const struct {
        const char *name, *clean;
    } rows[] = {
        {"\\377", "\xef\xbf\xbd"},
        {"a\\303(", "a\xef\xbf\xbd("},
        {"\\360\\237\\230", "\xef\xbf\xbd"},
        {"\\360\\237\\230\\200", "\xf0\x9f\x98\x80"},
        {"\\355\\240\\200", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\\300\\200", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\\364\\220\\200\\200", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\\342\\202\\254\\342\\202", "\xe2\x82\xac\xef\xbf\xbd"},
        {"x\\001\\n\\033[1m\\042", "x\x01\n\x1b[1m\""},
    };
    static const char *const calls[] = {"check --json", "accuracy --json", "run --json --cpu " INPUT_SPEC " --input"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t c = 0; c < sizeof calls / sizeof *calls; c++)
            for (int there = 0; there < 2; there++) {
                char line[512], name[64];
                snprintf(line, sizeof line, "%s \"%s/$(printf '%s').ptx\"", calls[c], folder, rows[i].name);
                if (there) {
                    char make[512];
                    snprintf(make, sizeof make, "printf '\\377\\000\"' >\"%s/$(printf '%s').ptx\"", folder,
                             rows[i].name);
                    assert_int_equal(system(make), 0);
                }
                snprintf(name, sizeof name, "/%s.ptx", rows[i].clean);
                int code = there && c == 0 ? FAILED : USAGE;
                cJSON *json = judged("", line, code);
                assert_contains(member(assert_error(json, code, ""), "file"), name);
                cJSON_Delete(json);
            }
    char line[512];
    snprintf(line, sizeof line, "rm -f %s/*.ptx", folder);
    assert_int_equal(system(line), 0);
}

/* The text of a finding quotes the file. */
static void quoted_text_of_a_file_gives_utf8(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "\\377\\376",
        ".version 8.0\\n.target \\303(\\n",
        ".version 8.0\\n.target sm_90a\\n.address_size 64\\n.visible .entry f\\200(){ret;}\\n",
        "",
    };
    char line[512];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        snprintf(line, sizeof line, "printf '%s' >%s/text.ptx", texts[i], folder);
        assert_int_equal(system(line), 0);
        snprintf(line, sizeof line, "check --json %s/text.ptx", folder);
        cJSON *json = judged("", line, FAILED);
        assert_error(json, FAILED, "");
        cJSON_Delete(json);
    }
}

static void running_out_of_memory_is_a_document(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__)
    skip(); /* it needs terabytes of addresses */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
    skip();
#endif
#endif
    cJSON *json = judged("ulimit -v 200000;", "run --json --context 40000000 " SPEC, FAILED);
    assert_error(json, FAILED, "out of memory");
    cJSON_Delete(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_call_of_any_command_is_a_document),
        cmocka_unit_test(help_and_version_are_documents),
        cmocka_unit_test(results_are_documents),
        cmocka_unit_test(a_result_that_falls_short_keeps_its_numbers_beside_the_error),
        cmocka_unit_test(what_the_machine_lacks_is_a_document),
        cmocka_unit_test(what_the_interpreter_finds_is_a_document),
        cmocka_unit_test(files_of_any_name_and_any_bytes_give_utf8),
        cmocka_unit_test(quoted_text_of_a_file_gives_utf8),
        cmocka_unit_test(running_out_of_memory_is_a_document),
    };
    return cmocka_run_group_tests_name("cli_json", tests, make_folder, remove_folder);
}
