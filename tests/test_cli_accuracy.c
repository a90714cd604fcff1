/* foscar accuracy from outside: the table, its order and its numbers, --under, and what is refused. */
#include "cli_fixture.h"

#include <math.h>

#define LAYER(number) "tests/data/smollm2_135m_layer" number ".safetensors"

static cJSON *run_json(const char *arguments, int expected)
{
    char line[512];
    snprintf(line, sizeof line, "accuracy --json %s", arguments);
    int code = run(line);
    if (code != expected) fail_msg("'%s' exits with %d: %s", line, code, err);
    cJSON *json = cJSON_Parse(out);
    assert_non_null(json);
    return json;
}

static double number_of(const cJSON *row, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(row, key);
    if (!cJSON_IsNumber(item)) fail_msg("no number '%s'", key);
    return item->valuedouble;
}

static const char *name_of(const cJSON *row)
{
    return cJSON_GetStringValue(cJSON_GetObjectItem(row, "scheme"));
}

static const cJSON *only_row(const cJSON *json)
{
    const cJSON *rows = cJSON_GetObjectItem(json, "schemes");
    assert_int_equal(cJSON_GetArraySize(rows), 1);
    return cJSON_GetArrayItem(rows, 0);
}

/* ---- Numbers ---- */

static void the_errors_are_those_that_numpy_finds(void **state)
{
    (void)state;
    static const struct {
        const char *arguments;
        double k, v, score_rms, score_largest, weighted, output;
    } rows[] = {
        {LAYER("09") " --scheme k4t64-v4t64", 0.13112433958, 0.10955267192, 0.45698033506, 2.25137415528, 0.11446881327,
         0.23014105113},
        {LAYER("09") " --scheme k2c64-v2t32", 0.22072480055, 0.44425012670, 0.77218513050, 4.21932756900, 0.45935822856,
         0.47548256554},
        {LAYER("19") " --sink 4 --recent 32 --scheme k2cs32-v4ts32-mbf16", 0.26625549414, 0.09381475837, 1.40403355024,
         6.49026095867, 0.05085420439, 0.13142201661},
        {LAYER("00") " --sink 1 --recent 7 --scheme k4ts64-v2cs128", 0.14800327957, 0.40795963457, 0.22424099758,
         2.09059999883, 0.29875010846, 0.09315975218},
        {LAYER("29") " --recent 16 --scheme k4c128-v4c32-mbf16", 0.04124271404, 0.06581420312, 0.14691472483,
         0.78522104024, 0.06699801279, 0.06641834600},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cJSON *json = run_json(rows[i].arguments, OK);
        const cJSON *row = only_row(json);
        const struct {
            const char *key;
            double expected;
        } numbers[] = {{"k_error", rows[i].k},
                       {"v_error", rows[i].v},
                       {"score_error_rms", rows[i].score_rms},
                       {"score_error_largest", rows[i].score_largest},
                       {"v_weighted_error", rows[i].weighted},
                       {"output_error", rows[i].output}};
        for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) {
            double got = number_of(row, numbers[n].key);
            if (!(fabs(got / numbers[n].expected - 1) < 1e-6)) /* float32 values of the codes there, float64 here */
                fail_msg("%s: %s is %.12g, not %.12g", rows[i].arguments, numbers[n].key, got, numbers[n].expected);
        }
        cJSON_Delete(json);
    }
}

static void bytes_are_exact_and_kept_tokens_are_counted_apart(void **state)
{
    (void)state;
    cJSON *json = run_json(LAYER("09") " --scheme k2c64-v4ts32", OK);
    const cJSON *row = only_row(json);
    assert_true(number_of(row, "code_bytes") == 16 + 32);
    assert_true(number_of(row, "metadata_bytes") == 4 + 4); /* 64 pairs of 64 tokens; two scales a token */
    assert_true(number_of(row, "bytes") == 56);
    double kept = 0, tokens = 0;
    for (int b = 1; b <= 8; b++) { /* 62, 125, ... 500 tokens */
        tokens += b * 500 / 8;
        kept += b * 500 / 8 % 64;
    }
    double stored = ((tokens - kept) * (16 + 4) + kept * 128 + tokens * 36) / tokens;
    assert_true(fabs(number_of(row, "stored_bytes") - stored) < 1e-9);
    assert_true(number_of(json, "unquantised_bytes") == 256);
    cJSON_Delete(json);
    json = run_json(LAYER("09") " --recent 500 --scheme k2c64-v4ts32", OK); /* nothing is quantised */
    row = only_row(json);
    assert_true(number_of(row, "stored_bytes") == 256);
    assert_true(number_of(row, "output_error") == 0 && number_of(row, "k_error") == 0);
    cJSON_Delete(json);
}

static void all_schemes_are_measured_and_sorted_by_bytes_then_by_error(void **state)
{
    (void)state;
    cJSON *json = run_json("--all " LAYER("29"), OK), *rows = cJSON_GetObjectItem(json, "schemes");
    assert_int_equal(cJSON_GetArraySize(rows), 2 * 20 * 20);
    assert_true(number_of(json, "measured") == 800);
    int kernels = 0;
    for (const cJSON *row = rows->child; row != NULL; row = row->next) {
        kernels += cJSON_IsTrue(cJSON_GetObjectItem(row, "kernels"));
        if (row->next == NULL) break;
        double bytes = number_of(row, "bytes"), next = number_of(row->next, "bytes");
        assert_true(bytes <= next);
        if (bytes == next) assert_true(number_of(row, "output_error") <= number_of(row->next, "output_error"));
    }
    assert_int_equal(kernels, 4);
    cJSON_Delete(json);
}

/* ---- The table, --under ---- */

static void the_table_says_what_was_measured_and_what_has_kernels(void **state)
{
    (void)state;
    assert_int_equal(run("accuracy " LAYER("00") " --scheme k2t64-v4t64 k2c64-v4cs32-mbf16 --sink 4"), OK);
    assert_contains(out, "8 sequences of 2248 tokens together, 9 query heads over 3 KV heads of 64 channels");
    assert_contains(out, "unquantised 256.00");
    assert_contains(out, "4 first and 0 last");
    assert_contains(out, "k2t64-v4t64               *");
    assert_contains(out, "k2c64-v4cs32-mbf16   ");
    assert_contains(out, "2 schemes measured, 2 shown\n");
    assert_string_equal(err, "");
    assert_int_equal(run("accuracy " LAYER("00")), OK);
    assert_contains(out, "800 schemes measured, ");
    assert_contains(out, "--all shows every one");
    assert_contains(out, "k4t64-v4t64               *");
}

static void under_names_the_smallest_scheme_that_is_good_enough(void **state)
{
    (void)state;
    cJSON *json = run_json(LAYER("09") " --under 0.1", OK), *all = run_json(LAYER("09") " --all", OK);
    const cJSON *found = cJSON_GetObjectItem(json, "smallest"), *row;
    double bytes = number_of(found, "bytes");
    assert_true(number_of(found, "output_error") < 0.1);
    cJSON_ArrayForEach(row, cJSON_GetObjectItem(all, "schemes")) if (number_of(row, "output_error") < 0.1)
        assert_true(number_of(row, "bytes") >= bytes);
    char line[256];
    snprintf(line, sizeof line, "smallest with an output error under 0.1: %s, ", name_of(found));
    assert_int_equal(run("accuracy " LAYER("09") " --under 0.1"), OK);
    assert_contains(out, line);
    cJSON_Delete(json);
    cJSON_Delete(all);
}

static void under_fails_with_the_best_scheme_when_none_is_good_enough(void **state)
{
    (void)state;
    assert_int_equal(run("accuracy " LAYER("09") " --under=1e-3"), FAILED);
    assert_one_line_reason("no scheme has an output error under 0.001; the best one is k4c");
    assert_contains(out, "800 schemes measured");
    cJSON *json = run_json(LAYER("09") " --under 0.2 --scheme k2t64-v2t64 k4t64-v4t64", FAILED);
    assert_one_line_reason("the best one is k4t64-v4t64 with 2.301e-01 and 72.00 bytes a token and KV head");
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(json, "smallest")));
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(json, "schemes")), 2);
    cJSON_Delete(json);
}

/* ---- Mistakes ---- */

static void wrong_names_and_options_exit_with_2(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *reason;
    } rows[] = {
        {"", "usage: foscar accuracy FILE.safetensors"},
        {LAYER("00") " " LAYER("09"), "usage: foscar accuracy FILE.safetensors"},
        {"--scheme k2t64-v2t64 " LAYER("00"), "usage: foscar accuracy FILE.safetensors"},
        {"/nowhere/x", "cannot read /nowhere/x"},
        {"tests/data/text.txt", "is no safetensors file"},
        {LAYER("00") " --scheme", "option --scheme needs a value"},
        {LAYER("00") " --scheme k2t128-v2t64", "--scheme: scheme field 'k': 128 is not a token-wise group"},
        {LAYER("00") " --scheme k2t64-v2t64 k2t64-v8t64", "spec field 'v': 8 is not a number of bits"},
        {LAYER("00") " --scheme sm_90a-k2t64-v2t64", "field 'k' is missing before 'sm_90a'"},
        {LAYER("00") " --under low", "option --under: 'low' is not a positive number"},
        {LAYER("00") " --under 0", "option --under: '0'"},
        {LAYER("00") " --under nan", "option --under: 'nan'"},
        {LAYER("00") " --sink -1", "option --sink: '-1'"},
        {LAYER("00") " --recent 1e3", "option --recent: '1e3'"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char line[512];
        snprintf(line, sizeof line, "accuracy %s", rows[i].arguments);
        int code = run(line);
        if (code != USAGE) fail_msg("'%s' exits with %d: %s", line, code, err);
        assert_string_equal(out, "");
        assert_one_line_reason(rows[i].reason);
    }
}

/* Two sequences, two query heads over one KV head of `dim` channels, `tokens` tokens, float32; `value` stands at one
 * place of k. */
static void write_floats(const char *path, int dim, int tokens, const int32_t lengths[2], float value)
{
    char header[1024];
    int q = 2 * 2 * dim * 4, kv = tokens * dim * 4, at = q + 8;
    int length = snprintf(header, sizeof header,
                          "{\"q\":{\"dtype\":\"F32\",\"shape\":[2,2,%d],\"data_offsets\":[0,%d]},"
                          "\"lengths\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[%d,%d]},"
                          "\"k\":{\"dtype\":\"F32\",\"shape\":[%d,1,%d],\"data_offsets\":[%d,%d]},"
                          "\"v\":{\"dtype\":\"F32\",\"shape\":[%d,1,%d],\"data_offsets\":[%d,%d]}}",
                          dim, q, q, at, tokens, dim, at, at + kv, tokens, dim, at + kv, at + 2 * kv);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (int i = 0; i < 8; i++) fputc((int)((uint64_t)length >> (8 * i) & 0xff), file);
    fputs(header, file);
    for (int i = 0; i < 4 * dim; i++) fwrite(&(float){sinf((float)i)}, 4, 1, file);
    fwrite(lengths, 4, 2, file);
    for (int i = 0; i < 2 * tokens * dim; i++) fwrite(&(float){i == 7 ? value : cosf((float)(i * i))}, 4, 1, file);
    fclose(file);
}

static void float32_odd_head_sizes_and_empty_sequences_work_and_what_cannot_is_refused(void **state)
{
    (void)state;
    static const struct {
        int dim, tokens;
        int32_t lengths[2];
        float value;
        const char *reason; /* NULL: it works */
    } rows[] = {
        {80, 130, {130, 0}, 1, NULL},
        {8, 1, {1, 1}, 1, NULL},
        {320, 70, {3, 70}, 1e5f, NULL},
        {320, 70, {3, 70}, 1e30f, "above 65536 float32"},
        {80, 130, {0, 0}, 1, "'lengths' holds only zeros"},
        {81, 130, {9, 9}, 1, "heads of 81 channels cannot be packed; allowed are multiples of 8"},
        {80, 130, {9, 9}, NAN, "tensor 'k': element [0, 0, 7] is nan"},
        {80, 130, {9, 9}, -INFINITY, "tensor 'k': element [0, 0, 7] is -inf"},
        {80, 130, {9, 131}, 1, "'lengths': entry 1 is 131, outside 0 .. 130"},
        {80, 130, {-1, 9}, 1, "'lengths': entry 0 is -1"},
    };
    char path[128], line[256];
    snprintf(path, sizeof path, "%s/input", folder);
    snprintf(line, sizeof line, "accuracy --json %s", path);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_floats(path, rows[i].dim, rows[i].tokens, rows[i].lengths, rows[i].value);
        int code = run(line);
        if (code != (rows[i].reason != NULL ? USAGE : OK)) fail_msg("case %zu exits with %d: %s", i, code, err);
        if (rows[i].reason != NULL) {
            assert_one_line_reason(rows[i].reason);
            continue;
        }
        cJSON *json = cJSON_Parse(out);
        assert_true(number_of(json, "unquantised_bytes") == 8 * rows[i].dim);
        assert_true(cJSON_GetArraySize(cJSON_GetObjectItem(json, "schemes")) > 0);
        cJSON_Delete(json);
    }
    unlink(path);
}

static void tokens_beyond_the_length_of_a_sequence_do_not_matter(void **state)
{
    (void)state;
    char path[128], line[256];
    double errors[2];
    snprintf(path, sizeof path, "%s/input", folder);
    snprintf(line, sizeof line, "%s --sink 3 --scheme k2c32-v4t64", path);
    for (int i = 0; i < 2; i++) {
        write_floats(path, 64, i == 0 ? 100 : 150, (int32_t[]){100, 0}, 1);
        cJSON *json = run_json(line, OK);
        errors[i] = number_of(only_row(json), "score_error_rms");
        cJSON_Delete(json);
    }
    assert_true(errors[0] > 0 && errors[0] == errors[1]);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_errors_are_those_that_numpy_finds),
        cmocka_unit_test(bytes_are_exact_and_kept_tokens_are_counted_apart),
        cmocka_unit_test(all_schemes_are_measured_and_sorted_by_bytes_then_by_error),
        cmocka_unit_test(the_table_says_what_was_measured_and_what_has_kernels),
        cmocka_unit_test(under_names_the_smallest_scheme_that_is_good_enough),
        cmocka_unit_test(under_fails_with_the_best_scheme_when_none_is_good_enough),
        cmocka_unit_test(wrong_names_and_options_exit_with_2),
        cmocka_unit_test(float32_odd_head_sizes_and_empty_sequences_work_and_what_cannot_is_refused),
        cmocka_unit_test(tokens_beyond_the_length_of_a_sequence_do_not_matter),
    };
    return cmocka_run_group_tests_name("cli_accuracy", tests, make_folder, remove_folder);
}
