/* foscar run: quantises, appends and decodes on the GPU, and checks every step against plain C in float64. */
#include "command.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "device_run.h"
#include "parallel.h"
#include "problem.h"
#include "random.h"

typedef struct run_arguments {
    int64_t batch, kv_heads, seed; /* seed < 0: from the clock */
    const char *context, *input;
    int data;  /* a reference_data */
    int table; /* 0: padded, 1: CSR */
    bool json, lse, graph, all, f32;
} run_arguments;

/* One spec of this run and everything found about it. */
typedef struct outcome {
    char spec[CONFIG_SPEC_MAX];
    int batch, kv_heads;
    int64_t tokens;
    bool ran; /* on the GPU */
    bool has_scheme_error;
    char problem[512]; /* why it failed; empty: passed, or not run */
    comparison found;
    double bound, lse_bound;
} outcome;

/* Everything that the specs of one call share. */
typedef struct session {
    const command *self;
    const run_arguments *args;
    foscar_runtime *runtime;
    bool gpu;
    char device[192], no_gpu[512];
    uint64_t seed;
} session;

/* Data whose scores and outputs are of ordinary size. */
static bool ordinary_data(const run_arguments *args)
{
    return args->input != NULL || args->data == REFERENCE_DATA_RANDOM;
}

/* ---- The problem of a spec ---- */

/* "LEN": all sequences; "ragged" or "ragged:MAX": the edges of pages first, then anything from 0 to MAX. */
static bool make_lengths(const session *s, const config *cfg, int32_t *lengths)
{
    enum { RAGGED_DEFAULT = 2000, LENGTH_MAX = 1 << 26 };
    const char *text = s->args->context;
    bool ragged = strncmp(text, "ragged", 6) == 0 && (text[6] == '\0' || text[6] == ':');
    const char *number = ragged ? (text[6] == ':' ? text + 7 : NULL) : text;
    char *end = NULL;
    long most = number != NULL ? strtol(number, &end, 10) : RAGGED_DEFAULT;
    if (number != NULL && (end == number || *end != '\0' || most < 0 || most > LENGTH_MAX)) {
        tool_fail(s->self, TOOL_USAGE,
                  "option --context: '%s' is neither a number from 0 to %d nor ragged nor ragged:MAX", text,
                  (int)LENGTH_MAX);
        return false;
    }
    const int32_t edges[] = {0, (int32_t)most, 1, cfg->page_tokens - 1, cfg->page_tokens, cfg->page_tokens + 1, 257};
    for (int64_t b = 0; b < s->args->batch; b++) {
        bool edge = b < (int64_t)(sizeof edges / sizeof *edges) && edges[b] <= most;
        lengths[b] = !ragged ? (int32_t)most
                     : edge  ? edges[b]
                             : (int32_t)(random_bits(s->seed ^ 0x1e46, (uint64_t)b) % ((uint64_t)most + 1));
    }
    return true;
}

static bool make_problem(const session *s, const config *cfg, problem *p)
{
    const run_arguments *args = s->args;
    gen_error err;
    if (args->input != NULL) {
        if (problem_read(p, cfg, args->input, args->table == 1, s->seed, &err)) return true;
        tool_fail(s->self, TOOL_USAGE, "%s", err.message);
        return false;
    }
    int32_t *lengths = tool_allocate((size_t)args->batch * sizeof *lengths);
    bool ok = make_lengths(s, cfg, lengths);
    if (ok)
        problem_random(p, cfg, (reference_data)args->data, (int)args->batch, lengths, (int)args->kv_heads,
                       args->table == 1, s->seed);
    free(lengths);
    return ok;
}

/* ---- One spec ---- */

static void note(outcome *o, const char *text)
{
    if (o->problem[0] == '\0') snprintf(o->problem, sizeof o->problem, "%s", text);
}

static void judge(const device_run_result *result, bool lse, outcome *o)
{
    char text[128];
    if (!result->repeatable) note(o, "a second launch gave other bits");
    if (!result->gaps_untouched) note(o, "bytes between the rows of the output were overwritten");
    if (!o->found.empty_rows_good)
        note(o, "an empty sequence has an output that is not zero, or an lse that is not -infinity");
    if (!(o->found.error <= o->bound)) {
        snprintf(text, sizeof text, "the error %.2e is above the bound %.2e", o->found.error, o->bound);
        note(o, text);
    }
    if (lse && !(o->found.lse_error <= o->lse_bound)) {
        snprintf(text, sizeof text, "the error of the lse %.2e is above the bound %.2e", o->found.lse_error,
                 o->lse_bound);
        note(o, text);
    }
}

/* OK, FAILED (a check was not met; o->problem says which) or another code for what was reported already. */
static tool_exit run_on_gpu(const session *s, const problem *p, page_pool *pages, outcome *o)
{
    foscar_kernel *kernel;
    foscar_error err;
    device_run_result result = {0};
    device_run_options options = {.seed = s->seed, .lse = s->args->lse, .graph = s->args->graph};
    if (foscar_prepare(s->runtime, o->spec, &kernel, &err) != FOSCAR_OK) return tool_fail_status(s->self, &err);
    page_pool expected;
    pool_make(&expected, p);
    pool_pack(&expected, p);
    tool_exit code = TOOL_OK;
    if (!device_run(s->runtime, kernel, p, &options, pages, &result, &err))
        code = tool_fail_status(s->self, &err);
    else {
        o->ran = true;
        pool_same(pages, &expected, p, o->problem, sizeof o->problem);
        if (!compare_decode(p, pages, result.out, result.lse, o->has_scheme_error, &o->found))
            code = tool_fail(s->self, TOOL_FAILED, "out of memory");
        judge(&result, s->args->lse, o);
        if (code == TOOL_OK && o->problem[0] != '\0') code = TOOL_FAILED;
    }
    device_run_finish(&result);
    pool_finish(&expected);
    return code;
}

/* Without a GPU: both images are assembled, and the scheme's loss on real input is found from the host's pages. */
static tool_exit run_without_gpu(const session *s, const problem *p, page_pool *pages, outcome *o)
{
    for (int part = FOSCAR_PART_DECODE; part <= FOSCAR_PART_CACHE; part++) {
        foscar_image image = {.struct_size = sizeof image};
        foscar_error err;
        if (foscar_assemble(s->runtime, o->spec, (foscar_part)part, &image, &err) != FOSCAR_OK)
            return tool_fail_status(s->self, &err);
        foscar_image_finish(&image);
    }
    if (o->has_scheme_error) {
        pool_pack(pages, p);
        if (!compare_decode(p, pages, NULL, NULL, true, &o->found))
            return tool_fail(s->self, TOOL_FAILED, "out of memory");
    }
    return TOOL_ENVIRONMENT;
}

static tool_exit run_spec(const session *s, const config *cfg, outcome *o)
{
    problem p;
    page_pool pages;
    config_format(cfg, o->spec);
    if (!make_problem(s, cfg, &p)) return TOOL_USAGE;
    o->batch = p.batch;
    o->kv_heads = p.kv_heads;
    o->tokens = paging_tokens(&p.sequences);
    o->has_scheme_error = s->args->input != NULL;
    o->bound = compare_bound(cfg->o_type, ordinary_data(s->args));
    o->lse_bound = 10 * compare_bound(NUMBER_F32, ordinary_data(s->args));
    pool_make(&pages, &p);
    tool_exit code = s->gpu ? run_on_gpu(s, &p, &pages, o) : run_without_gpu(s, &p, &pages, o);
    pool_finish(&pages);
    problem_finish(&p);
    return code;
}

/* ---- Report ---- */

static const char *data_name(const run_arguments *args)
{
    static const char *const names[REFERENCE_DATA_KINDS] = {"random", "outlier", "large", "sink"};
    if (args->input == NULL) return names[args->data];
    const char *slash = strrchr(args->input, '/');
    return slash != NULL ? slash + 1 : args->input;
}

static void print_header(const session *s)
{
    printf("device  %s\nseed    %llu\ndata    %s\n\n%-44s%6s%4s%10s  %-9s %-9s", s->gpu ? s->device : "none",
           (unsigned long long)s->seed, data_name(s->args), "spec", "batch", "kv", "tokens", "error", "bound");
    if (s->args->lse) printf(" %-9s", "lse");
    if (s->args->input != NULL) printf(" %-9s", "scheme");
    printf(" result\n");
}

static void print_error(bool known, double value)
{
    if (known)
        printf(" %-9.2e", value);
    else
        printf(" %-9s", "-");
}

static void print_outcome(const session *s, const outcome *o, tool_exit code)
{
    printf("%-44s%6d%4d%10lld ", o->spec, o->batch, o->kv_heads, (long long)o->tokens);
    print_error(o->ran, o->found.error);
    print_error(true, o->bound);
    if (s->args->lse) print_error(o->ran, o->found.lse_error);
    if (s->args->input != NULL)
        print_error(code == TOOL_OK || code == TOOL_ENVIRONMENT || o->ran, o->found.scheme_error);
    printf(" %s\n", o->problem[0] != '\0'                 ? o->problem
                    : code == TOOL_OK                     ? "ok"
                    : code == TOOL_ENVIRONMENT && !s->gpu ? "assembled, not run"
                                                          : "failed");
    fflush(stdout);
}

/* NaN and infinity are no JSON. */
static void add_number(cJSON *json, const char *name, bool known, double value)
{
    if (known && isfinite(value))
        cJSON_AddNumberToObject(json, name, value);
    else
        cJSON_AddNullToObject(json, name);
}

static cJSON *outcome_json(const session *s, const outcome *o, tool_exit code)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "spec", o->spec);
    cJSON_AddStringToObject(json, "data", data_name(s->args));
    cJSON_AddItemToObject(json, "device", s->gpu ? cJSON_CreateString(s->device) : cJSON_CreateNull());
    cJSON_AddNumberToObject(json, "seed", (double)s->seed);
    cJSON_AddNumberToObject(json, "batch", o->batch);
    cJSON_AddNumberToObject(json, "kv_heads", o->kv_heads);
    cJSON_AddNumberToObject(json, "tokens", (double)o->tokens);
    add_number(json, "relative_error", o->ran, o->found.error);
    add_number(json, "relative_error_bound", true, o->bound);
    add_number(json, "worst_row_error", o->ran, o->found.worst_row);
    add_number(json, "lse_error", o->ran && s->args->lse, o->found.lse_error);
    add_number(json, "scheme_error", o->has_scheme_error && (o->ran || code == TOOL_ENVIRONMENT),
               o->found.scheme_error);
    cJSON_AddBoolToObject(json, "ran", o->ran);
    cJSON_AddBoolToObject(json, "passed", code == TOOL_OK);
    cJSON_AddStringToObject(json, "problem", o->problem);
    return json;
}

/* ---- The call ---- */

typedef struct warm_up {
    foscar_runtime *runtime;
    const config *specs;
} warm_up;

/* Fills the disk cache; a failure is found again, and reported, when the spec is run. */
static void assemble_ahead(void *context, int64_t i)
{
    const warm_up *w = context;
    char spec[CONFIG_SPEC_MAX];
    config_format(&w->specs[i / 2], spec);
    foscar_image image = {.struct_size = sizeof image};
    if (foscar_assemble(w->runtime, spec, i % 2 == 0 ? FOSCAR_PART_DECODE : FOSCAR_PART_CACHE, &image, NULL) ==
        FOSCAR_OK)
        foscar_image_finish(&image);
}

/* The specs to run; malloc'd. NULL after a mistake that was reported. */
static config *choose_specs(const command *self, const run_arguments *args, int operands, char **argv, int *count)
{
    *count = args->all ? registry_size() : operands;
    if (args->all == (operands > 0)) {
        tool_fail(self, TOOL_USAGE, args->all ? "--all takes no spec" : "usage: foscar run SPEC... (or --all)");
        return NULL;
    }
    config *specs = tool_allocate((size_t)*count * sizeof *specs);
    for (int i = 0; i < *count; i++) {
        if (args->all)
            registry_config(i, &specs[i]);
        else if (!tool_parse_spec(self, argv[i], &specs[i])) {
            free(specs);
            return NULL;
        }
        if (args->f32) specs[i].o_type = NUMBER_F32;
    }
    return specs;
}

static tool_exit run_all(session *s, const config *specs, int count)
{
    tool_exit worst = TOOL_OK;
    int passed = 0;
    cJSON *rows = cJSON_CreateArray();
    warm_up w = {s->runtime, specs};
    if (count > 1) parallel_for(2 * (int64_t)count, assemble_ahead, &w);
    for (int i = 0; i < count; i++) {
        outcome o = {.batch = 0};
        tool_exit code = run_spec(s, &specs[i], &o);
        if (code == TOOL_USAGE) {
            cJSON_Delete(rows);
            return code;
        }
        if (i == 0 && !s->args->json) print_header(s);
        if (s->args->json)
            cJSON_AddItemToArray(rows, outcome_json(s, &o, code));
        else
            print_outcome(s, &o, code);
        passed += code == TOOL_OK;
        if (worst == TOOL_OK || code == TOOL_FAILED) worst = code == TOOL_OK ? worst : code;
    }
    if (s->args->json) {
        tool_print_json(count == 1 ? cJSON_DetachItemFromArray(rows, 0) : cJSON_Duplicate(rows, true));
    } else if (count > 1 && s->gpu)
        printf("\n%d of %d specs passed\n", passed, count);
    cJSON_Delete(rows);
    if (!s->gpu) tool_fail(s->self, TOOL_ENVIRONMENT, "nothing was run on a GPU: %s", s->no_gpu);
    return worst;
}

static tool_exit run_run(const command *self, int argc, char **argv)
{
    run_arguments args = {.batch = 4, .kv_heads = 2, .seed = -1, .context = "1000"};
    int operands, count;
    tool_exit code;
    foscar_error err;
    if (!options_parse(self, argc, argv, &args, &operands, &code)) return code;
    config *specs = choose_specs(self, &args, operands, argv, &count);
    if (specs == NULL) return TOOL_USAGE;
    session s = {.self = self, .args = &args};
    s.seed = tool_seed(args.seed);
    if (foscar_open(NULL, &s.runtime, &err) != FOSCAR_OK) {
        free(specs);
        return tool_fail_status(self, &err);
    }
    char spec[CONFIG_SPEC_MAX];
    config_format(&specs[0], spec);
    foscar_device_info info;
    s.gpu = foscar_can_run(s.runtime, spec, 0, &err) == FOSCAR_OK &&
            gpu_describe(s.runtime, &info, s.device, sizeof s.device, &err);
    if (!s.gpu) snprintf(s.no_gpu, sizeof s.no_gpu, "%s", err.message);
    code = run_all(&s, specs, count);
    foscar_close(s.runtime);
    free(specs);
    return code;
}

#define AT(member) .offset = offsetof(run_arguments, member)
static const option options[] = {
    {.name = "--batch",
     .kind = OPTION_NUMBER,
     AT(batch),
     .value = "N",
     .help = "sequences (4)",
     .minimum = 1,
     .maximum = 65535},
    {.name = "--context",
     .kind = OPTION_TEXT,
     AT(context),
     .value = "LEN|ragged[:MAX]",
     .help = "tokens of each sequence (1000), or lengths from 0 to MAX (2000)"},
    {.name = "--kv-heads",
     .kind = OPTION_NUMBER,
     AT(kv_heads),
     .value = "H",
     .help = "KV heads (2)",
     .minimum = 1,
     .maximum = 65535},
    {.name = "--data",
     .kind = OPTION_CHOICE,
     AT(data),
     .value = "random|outlier|large|sink",
     .help =
         "normal numbers (default); some channels 30 times the rest; scores up to 50; a token with half of the weight"},
    {.name = "--input",
     .kind = OPTION_TEXT,
     AT(input),
     .value = "FILE",
     .help = "a .safetensors file with q, lengths, k, v instead of random data"},
    {.name = "--table",
     .kind = OPTION_CHOICE,
     AT(table),
     .value = "padded|csr",
     .help = "form of the page table (padded)"},
    {.name = "--seed",
     .kind = OPTION_NUMBER,
     AT(seed),
     .value = "S",
     .help = "of all that is random (from the clock)",
     .minimum = 0,
     .maximum = (int64_t)1 << 53},
    {.name = "--lse", .kind = OPTION_FLAG, AT(lse), .help = "ask for the log-sum-exp and check it too"},
    {.name = "--graph",
     .kind = OPTION_FLAG,
     AT(graph),
     .help = "capture the launch with lengths of 0, replay it with the real ones"},
    {.name = "--f32",
     .kind = OPTION_FLAG,
     AT(f32),
     .help = "with float32 output, which has the tight bound, whatever the specs say"},
    {.name = "--all", .kind = OPTION_FLAG, AT(all), .help = "every spec of the grid"},
    {.name = "--json",
     .kind = OPTION_FLAG,
     AT(json),
     .help = "the results as JSON (an array if there are several specs)"},
};

const command command_run = {
    .name = "run",
    .arguments = "SPEC... | --all [options]",
    .summary =
        "run append and decode on the GPU and check them against float64 attention over the dequantised cache\n\n"
        "Tokens are quantised and appended by the GPU, in two prefills and some decode steps; the pages must equal "
        "those of a packer in C bit for\n"
        "bit, and a second launch must give the same bits. Bound of the relative error: 2e-5 (1e-4 for outlier, large "
        "and sink) and the rounding\n"
        "of the output type. With --input, 'scheme' is the error of the quantised cache against the numbers of the "
        "file, the scheme's own loss.",
    .example = "foscar run sm_90a-k2t64-v2t64-d64-h3-p64-of32 --input tests/data/smollm2_135m_layer09.safetensors",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .least = 0,
    .most = -1,
    .run = run_run,
};
