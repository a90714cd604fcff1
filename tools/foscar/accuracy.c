/* foscar accuracy: what each scheme of K and V costs and loses on the user's own tensors, as a table. */
#include "command.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "decimal.h"
#include "scheme_errors.h"

typedef struct accuracy_arguments {
    int64_t sink, recent;
    const char *under;
    option_words schemes;
    bool json, all;
} accuracy_arguments;

/* Everything measured, in the order of the table. */
typedef struct report {
    const accuracy_arguments *args;
    const char *path;
    const input *in;
    scheme_errors *rows;
    int count, shown;
    bool *show;                 /* [count] */
    double under;               /* 0: not asked for */
    const scheme_errors *found; /* the smallest one under it, or NULL */
    int64_t clamped;            /* of input_clamped */
    char first_clamped[128];
} report;

/* ---- Which schemes ---- */

/* All pairs of one metadata type each; *count of them. */
static scheme_pair *all_pairs(int head_dim, int *count)
{
    static const number_type m_types[] = {NUMBER_F16, NUMBER_BF16};
    scheme schemes[SCHEMES_MAX];
    int n = scheme_list(head_dim, schemes);
    scheme_pair *pairs = tool_allocate((size_t)(2 * n * n) * sizeof *pairs);
    *count = 0;
    for (int m = 0; m < 2; m++)
        for (int k = 0; k < n; k++)
            for (int v = 0; v < n; v++) pairs[(*count)++] = (scheme_pair){schemes[k], schemes[v], m_types[m]};
    return pairs;
}

/* The pairs to measure, for the caller to free; NULL after a mistake that was reported. */
static scheme_pair *choose_pairs(const command *self, const option_words *names, int head_dim, int *count)
{
    if (names->count == 0) return all_pairs(head_dim, count);
    scheme_pair *pairs = tool_allocate((size_t)names->count * sizeof *pairs);
    gen_error err;
    *count = names->count;
    for (int i = 0; i < names->count; i++) {
        if (scheme_pair_parse(names->words[i], head_dim, &pairs[i], &err)) continue;
        tool_fail(self, TOOL_USAGE, "option --scheme: %s", err.message);
        free(pairs);
        return NULL;
    }
    return pairs;
}

/* ---- The order, and what is shown ---- */

static int compare_doubles(double a, double b)
{
    return (a > b) - (a < b);
}

/* By bytes, then by the error of the output, then by name. */
static int compare_rows(const void *left, const void *right)
{
    const scheme_errors *a = left, *b = right;
    char a_name[SCHEME_PAIR_TEXT_MAX], b_name[SCHEME_PAIR_TEXT_MAX];
    int order = compare_doubles(scheme_errors_bytes(a), scheme_errors_bytes(b));
    if (order == 0) order = compare_doubles(a->output, b->output);
    if (order != 0) return order;
    scheme_pair_format(&a->pair, a_name);
    scheme_pair_format(&b->pair, b_name);
    return strcmp(a_name, b_name);
}

/* True if another row is at least as good in all three numbers, errors within 5 % counting as equal; of rows that are
   as good as each other the first one stays. */
static bool is_bettered(const report *r, int row)
{
    const double margin = 1.05;
    const scheme_errors *e = &r->rows[row];
    for (int i = 0; i < r->count; i++) {
        const scheme_errors *other = &r->rows[i];
        double bytes = scheme_errors_bytes(other) - scheme_errors_bytes(e),
               stored = other->stored_bytes - e->stored_bytes;
        if (bytes > 0 || stored > 0 || other->output > e->output * margin) continue;
        if (bytes < 0 || stored < 0 || i < row) return true;
    }
    return false;
}

static void arrange(report *r)
{
    bool every = r->args->all || r->args->schemes.count > 0;
    qsort(r->rows, (size_t)r->count, sizeof *r->rows, compare_rows);
    for (int i = 0; i < r->count; i++) {
        r->show[i] = every || scheme_pair_has_kernels(&r->rows[i].pair, r->in->head_dim) || !is_bettered(r, i);
        r->shown += r->show[i];
        if (r->found == NULL && r->rows[i].output < r->under) r->found = &r->rows[i];
    }
}

static const scheme_errors *best_row(const report *r)
{
    const scheme_errors *best = &r->rows[0];
    for (int i = 1; i < r->count; i++)
        if (r->rows[i].output < best->output) best = &r->rows[i];
    return best;
}

/* ---- Output ---- */

static int64_t token_count(const input *in)
{
    int64_t tokens = 0;
    for (int b = 0; b < in->batch; b++) tokens += in->lengths[b];
    return tokens;
}

static double unquantised_bytes(const input *in)
{
    return (double)in->head_dim * (number_info(input_type(&in->k))->bytes + number_info(input_type(&in->v))->bytes);
}

static void print_row(const report *r, const scheme_errors *e)
{
    char name[SCHEME_PAIR_TEXT_MAX];
    scheme_pair_format(&e->pair, name);
    printf("%-26s%c %7.2f %7.2f %7.2f %7.2f  %-8.2e %-8.2e %-9.2e %-9.2e %-8.2e %-8.2e\n", name,
           scheme_pair_has_kernels(&e->pair, r->in->head_dim) ? '*' : ' ', scheme_errors_bytes(e), e->code_bytes,
           e->metadata_bytes, e->stored_bytes, e->k, e->v, e->score_largest, e->score_rms, e->v_weighted, e->output);
}

static void print_table(const report *r)
{
    const input *in = r->in;
    printf("file    %s\ntensors %d sequences of %lld tokens together, %d query heads over %d KV heads of %d channels; "
           "K %s, V %s\n",
           r->path, in->batch, (long long)token_count(in), in->heads, in->kv_heads, in->head_dim, in->k.type,
           in->v.type);
    printf("bytes   of a token and KV head, K and V together: codes, metadata; unquantised %.2f\n"
           "stored  the same on average, with the tokens kept as they came: %lld first and %lld last ones, unfinished "
           "groups of tokens\n\n",
           unquantised_bytes(in), (long long)r->args->sink, (long long)r->args->recent);
    printf("%-26s  %7s %7s %7s %7s  %-8s %-8s %-9s %-9s %-8s %-8s\n", "scheme", "bytes", "codes", "meta", "stored", "K",
           "V", "score max", "score rms", "V weight", "output");
    for (int i = 0; i < r->count; i++)
        if (r->show[i]) print_row(r, &r->rows[i]);
    if (r->clamped > 0)
        printf("\n%lld numbers of k and v lie beyond 65504, to which schemes with f16 metadata clamp them; %s",
               (long long)r->clamped, r->first_clamped);
    printf("\n%d schemes measured, %d shown", r->count, r->shown);
    if (r->shown < r->count)
        printf(": those that no other one betters in bytes, stored bytes and output error (errors within 5 %% count as "
               "equal),\nand those that kernels are generated for (*); --all shows every one");
    printf("\n");
}

static void add_number(cJSON *json, const char *name, double value)
{
    if (isfinite(value))
        cJSON_AddNumberToObject(json, name, value);
    else
        cJSON_AddNullToObject(json, name);
}

static cJSON *row_json(const report *r, const scheme_errors *e)
{
    char name[SCHEME_PAIR_TEXT_MAX];
    cJSON *row = cJSON_CreateObject();
    scheme_pair_format(&e->pair, name);
    cJSON_AddStringToObject(row, "scheme", name);
    cJSON_AddBoolToObject(row, "kernels", scheme_pair_has_kernels(&e->pair, r->in->head_dim));
    add_number(row, "bytes", scheme_errors_bytes(e));
    add_number(row, "code_bytes", e->code_bytes);
    add_number(row, "metadata_bytes", e->metadata_bytes);
    add_number(row, "stored_bytes", e->stored_bytes);
    add_number(row, "k_error", e->k);
    add_number(row, "v_error", e->v);
    add_number(row, "score_error_largest", e->score_largest);
    add_number(row, "score_error_rms", e->score_rms);
    add_number(row, "v_weighted_error", e->v_weighted);
    add_number(row, "output_error", e->output);
    return row;
}

static void print_json(const report *r)
{
    const input *in = r->in;
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "file", r->path);
    cJSON_AddNumberToObject(json, "sequences", in->batch);
    cJSON_AddNumberToObject(json, "tokens", (double)token_count(in));
    cJSON_AddNumberToObject(json, "heads", in->heads);
    cJSON_AddNumberToObject(json, "kv_heads", in->kv_heads);
    cJSON_AddNumberToObject(json, "head_dim", in->head_dim);
    cJSON_AddNumberToObject(json, "scale", in->scale);
    cJSON_AddNumberToObject(json, "clamped", (double)r->clamped);
    cJSON_AddNumberToObject(json, "unquantised_bytes", unquantised_bytes(in));
    cJSON_AddNumberToObject(json, "sink", (double)r->args->sink);
    cJSON_AddNumberToObject(json, "recent", (double)r->args->recent);
    cJSON_AddNumberToObject(json, "measured", r->count);
    cJSON *rows = cJSON_AddArrayToObject(json, "schemes");
    for (int i = 0; i < r->count; i++)
        if (r->show[i]) cJSON_AddItemToArray(rows, row_json(r, &r->rows[i]));
    if (r->under > 0) {
        cJSON_AddNumberToObject(json, "under", r->under);
        cJSON_AddItemToObject(json, "smallest", r->found != NULL ? row_json(r, r->found) : cJSON_CreateNull());
    }
    tool_print_json(json);
}

/* What --under asks for. */
static tool_exit tell_smallest(const command *self, const report *r)
{
    char name[SCHEME_PAIR_TEXT_MAX];
    const scheme_errors *e = r->found != NULL ? r->found : best_row(r);
    scheme_pair_format(&e->pair, name);
    if (r->found == NULL)
        return tool_fail(self, TOOL_FAILED,
                         "no scheme has an output error under %g; the best one is %s with %.3e and %.2f bytes a token "
                         "and KV head",
                         r->under, name, e->output, scheme_errors_bytes(e));
    if (!r->args->json)
        printf(
            "smallest with an output error under %g: %s, %.2f bytes a token and KV head (%.2f stored), error %.3e%s\n",
            r->under, name, scheme_errors_bytes(e), e->stored_bytes, e->output,
            scheme_pair_has_kernels(&e->pair, r->in->head_dim) ? "" : "; no kernels are generated for it yet");
    return TOOL_OK;
}

/* ---- The call ---- */

static tool_exit measure(const command *self, report *r)
{
    const accuracy_arguments *args = r->args;
    scheme_pair *pairs = choose_pairs(self, &args->schemes, r->in->head_dim, &r->count);
    if (pairs == NULL) return TOOL_USAGE;
    r->rows = tool_allocate((size_t)r->count * sizeof *r->rows);
    r->show = tool_allocate((size_t)r->count * sizeof *r->show);
    r->clamped = input_clamped(r->in, r->first_clamped, sizeof r->first_clamped);
    scheme_errors_measure(r->in, pairs, r->count, (kept_tokens){(int)args->sink, (int)args->recent}, r->rows);
    arrange(r);
    if (args->json)
        print_json(r);
    else
        print_table(r);
    free(pairs);
    tool_exit code = r->under > 0 ? tell_smallest(self, r) : TOOL_OK;
    free(r->rows);
    free(r->show);
    return code;
}

static bool check_input(const input *in, gen_error *err)
{
    enum { CHANNELS_STEP = 8 }; /* codes of a row fill whole bytes */
    if (in->head_dim % CHANNELS_STEP != 0)
        return gen_fail(err, "tensor 'k': heads of %d channels cannot be packed; allowed are multiples of %d",
                        in->head_dim, CHANNELS_STEP);
    if (token_count(in) == 0)
        return gen_fail(err, "tensor 'lengths' holds only zeros; at least one sequence must have tokens");
    return input_check_numbers(in, err);
}

static tool_exit run_parsed(const command *self, const accuracy_arguments *args, const char *path)
{
    gen_error err;
    input in;
    double under = 0;
    if (args->under != NULL && (!decimal_parse(args->under, &under) || !isfinite(under) || under <= 0))
        return tool_fail(self, TOOL_USAGE, "option --under: '%s' is not a positive number, such as 0.1", args->under);
    if (!input_open(path, &in, &err))
        return tool_fail_with(self, TOOL_USAGE, tool_file_details(path), "%s", err.message);
    report r = {.args = args, .path = path, .in = &in, .under = under};
    tool_exit code = check_input(&in, &err)
                         ? measure(self, &r)
                         : tool_fail_with(self, TOOL_USAGE, tool_file_details(path), "%s", err.message);
    input_close(&in);
    return code;
}

static tool_exit run_accuracy(const command *self, int argc, char **argv)
{
    accuracy_arguments args = {0};
    option_call call;
    if (options_parse(self, argc, argv, &args, &call) &&
        (args.schemes.count == 0 ||
         options_refuse(self, &call, "--all", "with --scheme: every scheme that is named is shown")))
        call.code = run_parsed(self, &args, argv[0]);
    free((void *)args.schemes.words);
    return call.code;
}

#define AT(member) .offset = offsetof(accuracy_arguments, member)
static const option options[] = {
    {.name = "--under",
     .kind = OPTION_TEXT,
     AT(under),
     .value = "ERROR",
     .help = "name the smallest scheme whose output error is below it; exit 1 if there is none"},
    {.name = "--scheme",
     .kind = OPTION_WORDS,
     AT(schemes),
     .value = "NAME...",
     .help = "only these, such as k2c64-v2t64 or k4ts32-v4t64-mbf16, up to the next option"},
    {.name = "--sink",
     .kind = OPTION_NUMBER,
     AT(sink),
     .value = "N",
     .help = "first tokens of a sequence that are not quantised (0)",
     .minimum = 0,
     .maximum = 1 << 26},
    {.name = "--recent",
     .kind = OPTION_NUMBER,
     AT(recent),
     .value = "N",
     .help = "last tokens of a sequence that are not quantised (0)",
     .minimum = 0,
     .maximum = 1 << 26},
    {.name = "--all", .kind = OPTION_FLAG, AT(all), .help = "show every scheme, also those that others better"},
    {.name = "--json", .kind = OPTION_FLAG, AT(json), .help = "the same as JSON"},
};

const command command_accuracy = {
    .name = "accuracy",
    .arguments = "FILE.safetensors [options]",
    .summary =
        "what every scheme of K and V costs in bytes and loses in accuracy, on your own tensors\n\n"
        "FILE holds q [B, heads, d], lengths [B], k and v [T, kv_heads, d], as for 'foscar run --input'; sequence b is "
        "a cache of the first lengths[b] tokens. Needs no GPU. Errors\n"
        "are in float64 against attention over the numbers of the file: K, V, output: relative, in the norm over "
        "everything; score max, score rms: of scale * q . k, which softmax\n"
        "takes the exponential of; V weight: that of V with each token weighted by its attention. Schemes are named as "
        "in specs; README.md says how. Sorted by bytes, then by\n"
        "the error of the output. Tokens of an unfinished channel-wise group stay as they came; their bytes are "
        "in 'stored' only.",
    .example = "foscar accuracy tests/data/smollm2_135m_layer09.safetensors --under 0.2",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .least = 1,
    .most = 1,
    .run = run_accuracy,
};
