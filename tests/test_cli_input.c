/* Input files from outside: what is no safetensors file, or none of q, lengths, k and v, is refused with the file and
 * the reason, by both commands that read one. */
#include "cli_fixture.h"

#define INPUT_SPEC "sm_90a-k4t64-v4t64-d64-h3-p64-of32"

static void write_input(const char *path, uint64_t header_bytes, const char *header, size_t length, size_t data_bytes)
{
    FILE *file = fopen(path, "wb");
    for (int i = 0; i < 8; i++) fputc((int)(header_bytes >> (8 * i) & 0xff), file);
    fwrite(header, 1, length, file);
    for (size_t i = 0; i < data_bytes; i++) fputc(i == 384, file); /* the length is 1, all numbers are 0 */
    fclose(file);
}

/* The header of one sequence, three query heads, one token, and its numbers: zeros but for one bf16. */
static void write_number(const char *path, const char *header, long at, unsigned bf16)
{
    write_input(path, strlen(header), header, strlen(header), 644);
    FILE *file = fopen(path, "r+b");
    fseek(file, 8 + (long)strlen(header) + at, SEEK_SET);
    fputc((int)(bf16 & 0xff), file);
    fputc((int)(bf16 >> 8), file);
    fclose(file);
}

/* NULL: both commands take the file. */
static void assert_answer(const char *path, const char *reason, const char *what)
{
    static const char *const calls[] = {"accuracy --scheme=k4t64-v4t64", "run " INPUT_SPEC " --input"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        char line[512];
        snprintf(line, sizeof line, "%s %s", calls[i], path);
        int code = run(line);
        if ((code == USAGE) != (reason != NULL)) fail_msg("%s: '%s' exits with %d: %s", what, line, code, err);
        if (reason != NULL) assert_one_line_reason(reason);
        if (reason != NULL) assert_string_equal(out, "");
    }
}

#define TENSOR(name, type, shape, offsets)                                                                             \
    "\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" offsets "]}"

/* One sequence, three query heads over one KV head of 64 channels, one token: 384 + 4 + 128 + 128 bytes. */
#define Q       TENSOR("q", "BF16", "[1,3,64]", "0,384")
#define LENGTHS TENSOR("lengths", "I32", "[1]", "384,388")
#define K       TENSOR("k", "BF16", "[1,1,64]", "388,516")
#define V       TENSOR("v", "BF16", "[1,1,64]", "516,644")
enum { DATA_BYTES = 644 };

static void a_header_that_is_not_what_the_format_says_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t bytes;       /* of data */
        const char *reason; /* NULL: a good one */
    } rows[] = {
        {"{" Q "," LENGTHS "," K "," V "}", DATA_BYTES, NULL},
        {"{" Q "," LENGTHS "," K "," V "}   ", DATA_BYTES, NULL},
        {"{" V "," K ",\"__metadata__\":{\"a\":\"b\"}," LENGTHS "," Q "}", DATA_BYTES, NULL},
        {"{" Q "," LENGTHS "," K "," V "," TENSOR("none", "F64", "[0,7]", "516,516") "}", DATA_BYTES, NULL},
        {"{" Q "," LENGTHS "," K "," V "," TENSOR("x", "F4", "[2,1]", "644,645") "}", DATA_BYTES + 1, NULL},
        {"{" Q "," LENGTHS "," K "," V "," TENSOR("x", "F999", "[2]", "644,645") "}", DATA_BYTES + 1, NULL},
        /* text */
        {"", DATA_BYTES, "it does not begin with '{'"},
        {"{", DATA_BYTES, "it is no JSON"},
        {" {" Q "," LENGTHS "," K "," V "}", DATA_BYTES, "it does not begin with '{'"},
        {"\xef\xbb\xbf{" Q "," LENGTHS "," K "," V "}", DATA_BYTES, "it does not begin with '{'"},
        {"{" Q "," LENGTHS "," K "," V "}x", DATA_BYTES, "there is text behind its JSON"},
        {"{" Q "," LENGTHS "," K "," V "}{}", DATA_BYTES, "there is text behind its JSON"},
        {"{" Q "," LENGTHS "," K "," V ",}", DATA_BYTES, "it is no JSON"},
        {"{" Q "," LENGTHS "," K "," V ",\"\xff\":0}", DATA_BYTES, "it is not UTF-8"},
        {"{" Q "," LENGTHS "," K "," V ",\"\xed\xa0\x80\":0}", DATA_BYTES, "it is not UTF-8"},
        {"{" Q "," LENGTHS "," K ",\"v\\u0000x\"" /* cut at the NUL it is 'v' */
         ":{\"dtype\":\"BF16\",\"shape\":[1,1,64],\"data_offsets\":[516,644]}}",
         DATA_BYTES, "a string with a NUL"},
        {"{" Q "," LENGTHS "," K ",\"v\\\\u0000\":{\"dtype\":\"BF16\",\"shape\":[1,1,64],\"data_offsets\":[516,644]}}",
         DATA_BYTES, "no tensor 'v'"}, /* a backslash and five characters */
        {"{" Q "," LENGTHS "," K "," V ",\"a\tb\":0}", DATA_BYTES, "a string with a control character"},
        {"{" Q "," LENGTHS "," K "," V "\x01}", DATA_BYTES, "a control character"},
        {"{" Q "," LENGTHS "," K "," V ",\"a", DATA_BYTES, "a string without an end"},
        {"{" Q "," LENGTHS "," K "," TENSOR("v", "BF16", "[1,1,64]", "516,644.0") "}", DATA_BYTES, "not whole"},
        {"{" Q "," LENGTHS "," K "," TENSOR("v", "BF16", "[1,1,064]", "516,644") "}", DATA_BYTES, "begins with 0"},
        {"{" Q "," LENGTHS "," K "," TENSOR("v", "BF16", "[1,1,64e0]", "516,644") "}", DATA_BYTES, "not whole"},
        {"{" Q "," LENGTHS "," K "," TENSOR("v", "BF16", "[1,1,-64]", "516,644") "}", DATA_BYTES, "not whole"},
        /* names */
        {"{" Q "," LENGTHS "," K "," V "," V "}", DATA_BYTES, "the name 'v' is given twice"},
        {"{" Q "," LENGTHS "," K ",\"v\":{\"dtype\":\"BF16\",\"shape\":[1,1,64],\"shape\":[1,1,64],"
         "\"data_offsets\":[516,644]}}",
         DATA_BYTES, "the name 'shape' is given twice"},
        {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}," Q "," LENGTHS "," K "," V "}", DATA_BYTES,
         "the name 'a' is given twice"},
        {"{\"__metadata__\":[]," Q "," LENGTHS "," K "," V "}", DATA_BYTES, "its __metadata__ are no object"},
        {"{\"__metadata__\":{\"scale\":1}," Q "," LENGTHS "," K "," V "}", DATA_BYTES,
         "metadata 'scale' are no string"},
        {"{\"__metadata__\":{\"scale\":\"1,5\"}," Q "," LENGTHS "," K "," V "}", DATA_BYTES,
         "the metadata 'scale' is '1,5', not a positive number"},
        {"{\"__metadata__\":{\"scale\":\"0\"}," Q "," LENGTHS "," K "," V "}", DATA_BYTES, "'0', not a positive"},
        {"{\"__metadata__\":{\"scale\":\"1.5\"}," Q "," LENGTHS "," K "," V "}", DATA_BYTES, NULL},
        /* places */
        {"{" Q "," LENGTHS "," K "," TENSOR("v", "BF16", "[1,1,64]", "516,644,644") "}", DATA_BYTES,
         "tensor 'v' has 3 data_offsets, not 2"},
        {"{" Q "," LENGTHS "," K "," TENSOR("v", "BF16", "[1,1,64]", "516") "}", DATA_BYTES, "has 1 data_offsets"},
        {"{" Q "," LENGTHS "," K "," TENSOR("v", "BF16", "[1,1,64]", "644,516") "}", DATA_BYTES, "does not lie within"},
        {"{" Q "," LENGTHS "," K "," V "}", DATA_BYTES - 1, "tensor 'v' does not lie within the file"},
        {"{" Q "," LENGTHS "," K "," V "}", DATA_BYTES + 3, "3 bytes behind the last tensor belong to none"},
        {"{" Q "," LENGTHS "," K "," TENSOR("v", "BF16", "[1,1,64]", "517,645") "}", DATA_BYTES + 1,
         "1 bytes before tensor 'v' belong to none"},
        {"{" Q "," LENGTHS "," K "," TENSOR("v", "BF16", "[1,1,64]", "388,516") "}", 516, "overlap"},
        {"{" Q "," LENGTHS "," K "," TENSOR("v", "BF16", "[1,1,64]", "500,628") "}", 628, "'k' and 'v' overlap"},
        {"{" Q "," LENGTHS "," K "," TENSOR("v", "BF16", "[1,1,32]", "516,644") "}", DATA_BYTES,
         "tensor 'v' takes 128 bytes by its data_offsets and 64 by its shape and type"},
        {"{" Q "," LENGTHS "," K "," TENSOR("v", "BF16", "[4294967296,4294967296,64]", "516,644") "}", DATA_BYTES,
         "tensor 'v' has a shape that is none, or is too large"},
        {"{" Q "," LENGTHS "," K "," V ",\"x\":0}", DATA_BYTES, "tensor 'x' has no dtype, shape or data_offsets"},
        {"{" Q "," LENGTHS "," K "," V ",\"x\":{\"dtype\":\"U8\",\"shape\":4,\"data_offsets\":[644,648]}}",
         DATA_BYTES + 4, "tensor 'x' has no dtype, shape"},
    };
    char path[128];
    snprintf(path, sizeof path, "%s/input", folder);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t length = strlen(rows[i].header);
        write_input(path, length, rows[i].header, length, rows[i].bytes);
        assert_answer(path, rows[i].reason, rows[i].header);
    }
    unlink(path);
}

static void a_header_of_a_wrong_length_is_refused(void **state)
{
    (void)state;
    static const char header[] = "{" Q "," LENGTHS "," K "," V "}";
    static const struct {
        uint64_t length;
        const char *reason;
    } rows[] = {
        {0, "it does not begin with '{'"},
        {sizeof header - 2, "it is no JSON"},
        {sizeof header, "a control character"},
        {sizeof header - 1 + DATA_BYTES + 1, "but only"},
        {(100 << 20) + 1, "more than the format's"},
        {UINT64_MAX, "said to have 18446744073709551615 bytes"},
        {UINT64_MAX - 7, "said to have"},
        {(uint64_t)1 << 63, "said to have"},
    };
    char path[128];
    snprintf(path, sizeof path, "%s/input", folder);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_input(path, rows[i].length, header, sizeof header - 1, DATA_BYTES);
        assert_answer(path, rows[i].reason, "a length");
    }
    for (int bytes = 0; bytes < 8; bytes++) {
        write_input(path, 2, "{}", 2, 0);
        assert_int_equal(truncate(path, bytes), 0);
        assert_answer(path, "not even the 8 of its header's length", "a short file");
    }
    unlink(path);
}

static void tensors_of_another_problem_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t bytes; /* of data */
        const char *reason;
    } rows[] = {
        {"{" Q "," K "," LENGTHS "," TENSOR("w", "BF16", "[1,1,64]", "516,644") "}", 644, "no tensor 'v'"},
        {"{" TENSOR("q", "I16", "[1,3,64]", "0,384") "," LENGTHS "," K "," V "}", 644,
         "'q' is of type I16; allowed are BF16 F16 F32"},
        {"{" TENSOR("q", "BF16", "[3,64]", "0,384") "," LENGTHS "," K "," V "}", 644, "'q' has 2 dimensions, not 3"},
        {"{" TENSOR("q", "BF16", "[0,3,64]", "0,0") "," TENSOR("lengths", "I32", "[1]", "0,4") "," TENSOR(
             "k", "BF16", "[1,1,64]", "4,132") "," TENSOR("v", "BF16", "[1,1,64]", "132,260") "}",
         260, "'q' has a dimension"},
        {"{" Q "," LENGTHS "," TENSOR("k", "BF16", "[1,2,32]", "388,516") "," V "}", 644,
         "shapes of tensors 'k' and 'v' differ"},
        {"{" Q "," TENSOR("lengths", "I32", "[2]", "384,392") "," TENSOR("k", "BF16", "[1,1,64]", "392,520") "," TENSOR(
             "v", "BF16", "[1,1,64]", "520,648") "}",
         648, "'lengths' must have one entry"},
    };
    char path[128];
    snprintf(path, sizeof path, "%s/input", folder);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t length = strlen(rows[i].header);
        write_input(path, length, rows[i].header, length, rows[i].bytes);
        assert_answer(path, rows[i].reason, rows[i].header);
    }
    unlink(path);
}

/* Each would block for ever, never end, or be read as something else. */
static void what_is_no_regular_file_is_refused_at_once_and_says_why(void **state)
{
    (void)state;
    static const struct {
        const char *make, *reason;
    } rows[] = {
        {"mkfifo %s/it", "it is a pipe or FIFO, not a regular file"},
        {"mkdir %s/it", "it is a folder, not a regular file"},
        {"ln -s /dev/zero %s/it", "it is a character device, not a regular file"},
        {"ln -s it %s/it", "Too many levels of symbolic links"},
        {"python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' %s/it",
         "it is a socket, not a regular file"},
    };
    static const char run_call[] = "run --cpu " INPUT_SPEC " --input", check_call[] = "check --spec " INPUT_SPEC;
    static const char *const calls[] = {"check", "accuracy", run_call, check_call};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char line[512];
        snprintf(line, sizeof line, rows[i].make, folder);
        assert_int_equal(system(line), 0);
        for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
            snprintf(line, sizeof line, "%s %s/it", calls[c], folder);
            int code = run_to("timeout 20", line, NULL);
            if (code != USAGE) fail_msg("'%s' exits with %d: %s", line, code, err);
            assert_one_line_reason(rows[i].reason);
        }
        snprintf(line, sizeof line, "rm -rf %s/it", folder);
        assert_int_equal(system(line), 0);
    }
    assert_int_equal(run_to("cat README.md | timeout 20", "check /dev/stdin", NULL), USAGE);
    assert_one_line_reason("it is a pipe or FIFO");
}

static void numbers_that_kernels_cannot_take_are_refused_with_their_place(void **state)
{
    (void)state;
    static const char header[] = "{" Q "," LENGTHS "," K "," V "}";
    static const struct {
        long at;       /* byte of the data */
        unsigned bf16; /* put there */
        const char *reason;
    } rows[] = {
        {2 * 130, 0x7fc0, "tensor 'q': element [0, 2, 2] is nan; attention needs finite numbers"},
        {2 * 7, 0xff80, "tensor 'q': element [0, 0, 7] is -inf"},
        {388 + 2 * 5, 0x7fff, "tensor 'k': element [0, 0, 5] is nan"},
        {516 + 2 * 63, 0x7f80, "tensor 'v': element [0, 0, 63] is inf"},
        {2 * 130, 0x7f61, NULL}, /* 3e38, whose scores are 0 */
    };
    char path[128];
    snprintf(path, sizeof path, "%s/number.safetensors", folder);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_number(path, header, rows[i].at, rows[i].bf16);
        assert_answer(path, rows[i].reason, "a number");
    }
    unlink(path);
}

static void scores_that_float32_cannot_order_are_refused(void **state)
{
    (void)state;
    static const char header[] = "{" Q "," LENGTHS "," K "," V ",\"__metadata__\":{\"scale\":\"1\"}}";
    char path[128];
    snprintf(path, sizeof path, "%s/score.safetensors", folder);
    static const struct {
        unsigned k;
        const char *reason;
    } rows[] = {{0x4780, NULL}, /* 65536 */ {0x4781, "element [0, 1] of tensor 'q' with token 0 is 66048; above 65536"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_number(path, header, 388 + 2 * 3, rows[i].k);
        FILE *file = fopen(path, "r+b");
        fseek(file, 8 + (long)strlen(header) + 2 * (64 + 3), SEEK_SET);
        fputc(0x80, file);
        fputc(0x3f, file); /* 1 */
        fclose(file);
        assert_answer(path, rows[i].reason, "a score");
    }
    unlink(path);
}

static void numbers_beyond_the_metadata_are_told(void **state)
{
    (void)state;
    static const char header[] = "{" Q "," LENGTHS "," K "," V "}";
    char path[128], line[512];
    snprintf(path, sizeof path, "%s/clamped.safetensors", folder);
    write_number(path, header, 516 + 2 * 9, 0x47f4); /* 124928 */
    snprintf(line, sizeof line, "accuracy --scheme=k4t64-v4t64 %s", path);
    assert_int_equal(run(line), OK);
    assert_contains(out, "1 numbers of k and v lie beyond 65504");
    assert_contains(out, "tensor 'v': element [0, 0, 9] is 124928");
    snprintf(line, sizeof line, "accuracy --json --scheme=k4t64-v4t64 %s", path);
    assert_int_equal(run(line), OK);
    cJSON *json = cJSON_Parse(out);
    assert_true(cJSON_GetObjectItem(json, "clamped")->valuedouble == 1);
    cJSON_Delete(json);
    snprintf(line, sizeof line, "run " INPUT_SPEC " --input %s", path);
    assert_true(run(line) != USAGE);
    if (strstr(err, "NVRTC") == NULL && strstr(err, "ptxas") == NULL) assert_contains(out, "to which append clamps them");
    snprintf(line, sizeof line, "run sm_90a-k4t64-v4t64-d64-h3-p64-f16 --input %s", path);
    assert_int_equal(run(line), USAGE);
    assert_one_line_reason("beyond f16, the spec's type of Q, K and V; take a spec with bf16");
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_that_kernels_cannot_take_are_refused_with_their_place),
        cmocka_unit_test(scores_that_float32_cannot_order_are_refused),
        cmocka_unit_test(numbers_beyond_the_metadata_are_told),
        cmocka_unit_test(a_header_that_is_not_what_the_format_says_is_refused),
        cmocka_unit_test(a_header_of_a_wrong_length_is_refused),
        cmocka_unit_test(tensors_of_another_problem_are_refused),
        cmocka_unit_test(what_is_no_regular_file_is_refused_at_once_and_says_why),
    };
    return cmocka_run_group_tests_name("cli_input", tests, make_folder, remove_folder);
}
