/* foscar run: quantises, appends and decodes on the GPU or in the PTX interpreter, and checks every step against plain
 * C in float64. */
#include "command.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "interpreter.h"
#include "parallel.h"
#include "random.h"
#include "safetensors.h"
#include "trial.h"

typedef struct run_arguments {
    int64_t batch, kv_heads; /* batch 0: by the place */
    int64_t seed;            /* < 0: from the clock */
    int64_t blocks;          /* SMs of the interpreter's device */
    const char *context;     /* NULL: by the place */
    const char *input, *output;
    int data;     /* a reference_data */
    int table;    /* 0: padded, 1: CSR */
    int schedule; /* an emulator_schedule */
    bool json, lse, graph, all, f32, cpu, exact;
} run_arguments;

/* Where the kernels run. */
typedef enum place { PLACE_NONE, PLACE_GPU, PLACE_INTERPRETER } place;

/* One spec of this run and everything found about it. */
typedef struct outcome {
    char spec[CONFIG_SPEC_MAX];
    int batch, kv_heads;
    int64_t tokens;
    bool has_scheme_error;
    int64_t clamped; /* of the problem */
    char first_clamped[128];
    trial trial;
} outcome;

/* Everything that the specs of one call share. */
typedef struct session {
    const command *self;
    const run_arguments *args;
    foscar_runtime *runtime;
    place place;
    char device[192], no_gpu[512];
    uint64_t seed;
} session;

/* Data whose scores and outputs are of ordinary size, or judged by their size row by row. */
static bool ordinary_data(const run_arguments *args)
{
    return args->input != NULL || reference_data_is_ordinary((reference_data)args->data);
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
    if (most > 0 && s->args->batch > INT32_MAX / most) { /* page tables and appends count in 32 bits */
        tool_fail(s->self, TOOL_USAGE, "--batch %lld and --context %s are more than %d tokens together",
                  (long long)s->args->batch, text, INT32_MAX);
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
        tool_fail_with(s->self, TOOL_USAGE, tool_file_details(args->input), "%s", err.message);
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

static trial_options choose_options(const session *s)
{
    return (trial_options){
        .device = {.seed = s->seed,
                   .prefills = 2,
                   .steps = 3,
                   .decodes = 2,
                   .poison_workspace = s->place == PLACE_GPU,
                   .lse = s->args->lse,
                   .graph = s->args->graph},
        .ordinary = ordinary_data(s->args),
        .independent = true,
        .with_scheme = s->args->input != NULL,
    };
}

/* Tells why a device gave nothing: what the interpreter found, else what the library says. */
static tool_exit tell_failure(const session *s, const foscar_error *err, outcome *o)
{
    emulated_fault fault;
    if (s->place != PLACE_INTERPRETER || !emulated_driver_fault(&fault)) return tool_fail_status(s->self, err);
    snprintf(o->trial.problem, sizeof o->trial.problem, "%s at line %d", emulator_fault_name(fault.error.fault),
             fault.error.line);
    return interpreter_report(s->self, NULL, &fault);
}

/* OK, FAILED (a check was not met; o->trial.problem says which) or another code for what was reported already. */
static tool_exit run_on_device(const session *s, const problem *p, page_pool *pages, outcome *o)
{
    foscar_kernel *kernel;
    foscar_error err;
    const trial_options options = choose_options(s);
    if (foscar_prepare(s->runtime, o->spec, &kernel, &err) != FOSCAR_OK ||
        !trial_run(s->runtime, kernel, p, &options, pages, &o->trial, &err))
        return tell_failure(s, &err, o);
    return o->trial.problem[0] == '\0' ? TOOL_OK : TOOL_FAILED;
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
        if (!compare_decode(p, pages, NULL, NULL, o->trial.bound, true, &o->trial.found))
            return tool_fail(s->self, TOOL_FAILED, "out of memory");
    }
    return TOOL_ENVIRONMENT;
}

/* The output, the log-sum-exp if it was asked for, and the pages, as a .safetensors file. */
static tool_exit write_output(const session *s, const problem *p, const page_pool *pages, const outcome *o)
{
    const device_run_result *result = &o->trial.result;
    int64_t heads = (int64_t)p->kv_heads * p->cfg.heads;
    const named_tensor tensors[] = {
        {"out", "F32", 3, {p->batch, heads, p->cfg.head_dim}, result->out},
        {"pages", "U8", 1, {pages->bytes}, pages->pages},
        {"lse", "F32", 2, {p->batch, heads}, result->lse},
    };
    size_t size;
    char *file = safetensors_make(tensors, result->lse != NULL ? 3 : 2, "spec", o->spec, &size);
    if (file == NULL) return tool_fail(s->self, TOOL_FAILED, "no memory for %s", s->args->output);
    bool ok = tool_write_file(s->self, s->args->output, file, size);
    free(file);
    return ok ? TOOL_OK : TOOL_FAILED;
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
    o->clamped = p.clamped;
    memcpy(o->first_clamped, p.first_clamped, sizeof o->first_clamped);
    const trial_options options = choose_options(s);
    trial_bounds(cfg, &options, &o->trial);
    pool_make(&pages, &p);
    tool_exit code = s->place != PLACE_NONE ? run_on_device(s, &p, &pages, o) : run_without_gpu(s, &p, &pages, o);
    if (s->args->output != NULL && o->trial.ran) {
        tool_exit written = write_output(s, &p, &pages, o);
        if (code == TOOL_OK) code = written;
    }
    trial_finish(&o->trial);
    pool_finish(&pages);
    problem_finish(&p);
    return code;
}

/* ---- Report ---- */

static const char *data_name(const run_arguments *args)
{
    if (args->input == NULL) return reference_data_name((reference_data)args->data);
    const char *slash = strrchr(args->input, '/');
    return slash != NULL ? slash + 1 : args->input;
}

static void print_header(const session *s)
{
    printf("device  %s\nseed    %llu\ndata    %s\n", s->place != PLACE_NONE ? s->device : "none",
           (unsigned long long)s->seed, data_name(s->args));
    if (s->place == PLACE_INTERPRETER)
        printf("order   %s\n", emulator_schedule_name((emulator_schedule)s->args->schedule));
    printf("\n%-44s%6s%4s%10s  %-9s %-9s", "spec", "batch", "kv", "tokens", "error", "bound");
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
    print_error(o->trial.ran, o->trial.found.error);
    print_error(true, o->trial.bound);
    if (s->args->lse) print_error(o->trial.ran, o->trial.found.lse_error);
    if (s->args->input != NULL)
        print_error(code == TOOL_OK || code == TOOL_ENVIRONMENT || o->trial.ran, o->trial.found.scheme_error);
    printf(" %s\n", o->trial.problem[0] != '\0'                          ? o->trial.problem
                    : code == TOOL_OK                                    ? "ok"
                    : code == TOOL_ENVIRONMENT && s->place == PLACE_NONE ? "assembled, not run"
                                                                         : "failed");
    if (o->clamped > 0)
        printf("  %lld numbers of k and v lie beyond 65504, to which append clamps them; %s\n", (long long)o->clamped,
               o->first_clamped);
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
    cJSON_AddItemToObject(json, "device", s->place != PLACE_NONE ? cJSON_CreateString(s->device) : cJSON_CreateNull());
    cJSON_AddNumberToObject(json, "seed", (double)s->seed);
    cJSON_AddNumberToObject(json, "batch", o->batch);
    cJSON_AddNumberToObject(json, "kv_heads", o->kv_heads);
    cJSON_AddNumberToObject(json, "tokens", (double)o->tokens);
    add_number(json, "relative_error", o->trial.ran, o->trial.found.error);
    add_number(json, "relative_error_bound", true, o->trial.bound);
    add_number(json, "worst_row_error", o->trial.ran, o->trial.found.worst_row);
    add_number(json, "lse_error", o->trial.ran && s->args->lse, o->trial.found.lse_error);
    add_number(json, "scheme_error", o->has_scheme_error && (o->trial.ran || code == TOOL_ENVIRONMENT),
               o->trial.found.scheme_error);
    if (s->args->input != NULL) cJSON_AddNumberToObject(json, "clamped", (double)o->clamped);
    cJSON_AddBoolToObject(json, "ran", o->trial.ran);
    cJSON_AddBoolToObject(json, "passed", code == TOOL_OK);
    cJSON_AddStringToObject(json, "problem", o->trial.problem);
    cJSON *error = tool_take_error();
    if (error != NULL) cJSON_AddItemToObject(json, "error", error);
    return json;
}

/* One outcome, or all; a reason that holds for the whole call is that of every row without its own. */
static void print_rows(cJSON *rows)
{
    cJSON *error = tool_take_error(), *row;
    cJSON_ArrayForEach(row, rows) if (error != NULL && !cJSON_HasObjectItem(row, "error"))
        cJSON_AddItemToObject(row, "error", cJSON_Duplicate(error, true));
    cJSON_Delete(error);
    if (cJSON_GetArraySize(rows) != 1) {
        tool_print_json(rows);
        return;
    }
    tool_print_json(cJSON_DetachItemFromArray(rows, 0));
    cJSON_Delete(rows);
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

/* A driver of its own for each spec: of its architecture, and with no kernels of the specs before. */
static tool_exit renew_interpreter(session *s, const config *cfg)
{
    foscar_error err;
    const emulated_options options = {
        .compute_capability = cfg->target->compute_capability,
        .sm_count = (int)s->args->blocks,
        .execution = {.schedule = (emulator_schedule)s->args->schedule,
                      .seed = s->seed,
                      .fast = !s->args->exact,
                      .judge = true},
    };
    interpreter_close(s->runtime);
    return interpreter_open(&options, &s->runtime, &err) ? TOOL_OK : tool_fail_status(s->self, &err);
}

static bool open_gpu(session *s, const config *first, foscar_error *err)
{
    char spec[CONFIG_SPEC_MAX];
    foscar_device_info info;
    if (foscar_open(NULL, &s->runtime, err) != FOSCAR_OK) return false;
    config_format(first, spec);
    if (foscar_can_run(s->runtime, spec, 0, err) == FOSCAR_OK &&
        gpu_describe(s->runtime, &info, s->device, sizeof s->device, err))
        s->place = PLACE_GPU;
    else
        snprintf(s->no_gpu, sizeof s->no_gpu, "%s", err->message);
    return true;
}

static tool_exit run_all(session *s, const config *specs, int count)
{
    tool_exit worst = TOOL_OK;
    int passed = 0;
    cJSON *rows = cJSON_CreateArray();
    warm_up w = {s->runtime, specs};
    if (count > 1 && s->place != PLACE_INTERPRETER) parallel_for(2 * (int64_t)count, assemble_ahead, &w);
    for (int i = 0; i < count; i++) {
        outcome o = {.batch = 0};
        tool_exit code = s->place == PLACE_INTERPRETER ? renew_interpreter(s, &specs[i]) : TOOL_OK;
        if (code == TOOL_OK) code = run_spec(s, &specs[i], &o);
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
    if (!s->args->json && count > 1 && s->place != PLACE_NONE) printf("\n%d of %d specs passed\n", passed, count);
    if (s->place == PLACE_NONE) tool_fail(s->self, TOOL_ENVIRONMENT, "nothing was run on a GPU: %s", s->no_gpu);
    print_rows(rows);
    return worst;
}

/* What was not given; the interpreter takes about a millisecond for 64 tokens of a KV head. */
static void fill_in(run_arguments *args)
{
    if (args->batch == 0) args->batch = args->cpu ? 2 : 4;
    if (args->context == NULL) args->context = args->cpu ? "300" : "1000";
}

static bool check_modes(const command *self, const run_arguments *args, const option_call *call)
{
    return (args->input == NULL || options_refuse(self, call, "--batch --context --kv-heads --data",
                                                  "with --input: the file's tensors say it")) &&
           (args->cpu || options_refuse(self, call, "--schedule --blocks --exact", "without --cpu"));
}

static tool_exit run_run(const command *self, int argc, char **argv)
{
    run_arguments args = {.kv_heads = 2, .seed = -1, .blocks = EMULATED_SM_DEFAULT};
    int count;
    option_call call;
    tool_exit code;
    foscar_error err;
    if (!options_parse(self, argc, argv, &args, &call)) return call.code;
    if (!check_modes(self, &args, &call)) return TOOL_USAGE;
    fill_in(&args);
    if (args.output != NULL && (args.all || call.operands > 1))
        return tool_fail(self, TOOL_USAGE, "--output takes one spec, not several");
    config *specs = choose_specs(self, &args, call.operands, argv, &count);
    if (specs == NULL) return TOOL_USAGE;
    session s = {.self = self, .args = &args, .place = args.cpu ? PLACE_INTERPRETER : PLACE_NONE};
    s.seed = tool_seed(args.seed);
    snprintf(s.device, sizeof s.device, "PTX interpreter");
    if (!args.cpu && !open_gpu(&s, &specs[0], &err)) {
        free(specs);
        return tool_fail_status(self, &err);
    }
    code = run_all(&s, specs, count);
    if (args.cpu)
        interpreter_close(s.runtime);
    else
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
     .help = "sequences (4; 2 with --cpu)",
     .minimum = 1,
     .maximum = 65535},
    {.name = "--context",
     .kind = OPTION_TEXT,
     AT(context),
     .value = "LEN|ragged[:MAX]",
     .help = "tokens of each sequence (1000; 300 with --cpu), or lengths from 0 to MAX (2000)"},
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
     .value = "random|outlier|large|sink|ranges|steps|heads|nans",
     .help = "normal numbers (default); some channels 30 times the rest; scores up to 50; a token with half of the "
             "weight; tokens whose V differs by 1e11 in range and whose weights go down to 1e-80; scores that jump by "
             "up to 450 every 256 tokens; query heads whose largest scores are 1 to 2000; NaNs and infinities in q"},
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
     .help = "of all that is random (from the clock), also of the interpreter's schedule",
     .minimum = 0,
     .maximum = (int64_t)1 << 53},
    {.name = "--output",
     .alias = "-o",
     .kind = OPTION_TEXT,
     AT(output),
     .value = "FILE",
     .help = "writes out, lse (with --lse) and the pages as a .safetensors file; takes one spec"},
    {.name = "--lse", .kind = OPTION_FLAG, AT(lse), .help = "ask for the log-sum-exp and check it too"},
    {.name = "--graph",
     .kind = OPTION_FLAG,
     AT(graph),
     .help = "capture the launch with lengths of 0, replay it with the real ones"},
    {.name = "--f32",
     .kind = OPTION_FLAG,
     AT(f32),
     .help = "with float32 output, which has the tight bound, whatever the specs say"},
    {.name = "--cpu",
     .kind = OPTION_FLAG,
     AT(cpu),
     .help = "run in the PTX interpreter; needs NVRTC, but no GPU and no ptxas"},
    {.name = "--schedule",
     .kind = OPTION_CHOICE,
     AT(schedule),
     .value = INTERPRETER_SCHEDULES,
     .help = "with --cpu: who takes turns with whom (round-robin)"},
    {.name = "--blocks",
     .kind = OPTION_NUMBER,
     AT(blocks),
     .value = "N",
     .help = "with --cpu: SMs of the interpreter's device (4)",
     .minimum = 1,
     .maximum = 1024},
    {.name = "--exact",
     .kind = OPTION_FLAG,
     AT(exact),
     .help = "with --cpu: float matrix products summed as the hardware does, not in float32"},
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
        "run append and decode on the GPU (or, with --cpu, without one) and check them against float64 attention\n\n"
        "The reference is attention over the dequantised cache. Tokens are quantised and appended by the device, in "
        "two prefills and some decode steps; the pages must equal "
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
