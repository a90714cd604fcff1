/* foscar check: runs a kernel in the PTX interpreter under many schedules, and judges ordering, protocol and results.
 */
#include "check.h"

#include <stdlib.h>
#include <string.h>

#include "dynamic_counts.h"
#include "kernel_arguments.h"
#include "random.h"
#include "trial.h"

typedef struct session {
    const command *self;
    const check_arguments *args;
    const char *operand;
    config cfg;
    decode_plan plan;
    char spec[CONFIG_SPEC_MAX];
    char *text; /* of a file, instead of the emitted one; or NULL */
    size_t length;
    uint64_t seed;
    foscar_runtime *runtime;
    foscar_kernel *kernel;
    mode_result mode[EMULATOR_SCHEDULE_COUNT];
} session;

/* ---- One run ---- */

enum { PROBLEM_SEQUENCES = 7, PROBLEM_KV_HEADS = 2 };

/* With every edge: empty and one-token sequences, page edges, one that is cut between workers; and so long that every
   worker goes more than once around its rings. */
static void make_problem(const session *s, uint64_t seed, problem *p)
{
    int32_t page = s->cfg.page_tokens, block = s->plan.block_tokens,
            workers = (int32_t)s->args->blocks * s->plan.consumers;
    int stages = s->plan.k_ring.stages > s->plan.v_ring.stages ? s->plan.k_ring.stages : s->plan.v_ring.stages;
    int32_t lengths[PROBLEM_SEQUENCES] = {0, 1, page - 1, page, page + 1};
    lengths[5] =
        (workers * (stages + 1) / PROBLEM_KV_HEADS) * block + (int32_t)(random_bits(seed, 0) % (uint64_t)block);
    lengths[6] = (int32_t)(random_bits(seed, 1) % (uint64_t)(2 * block));
    for (int i = PROBLEM_SEQUENCES - 1; i > 0; i--) {
        int j = (int)(random_bits(seed, (uint64_t)(i + 1)) % (uint64_t)(i + 1));
        int32_t kept = lengths[i];
        lengths[i] = lengths[j];
        lengths[j] = kept;
    }
    problem_random(p, &s->cfg, REFERENCE_DATA_RANDOM, PROBLEM_SEQUENCES, lengths, PROBLEM_KV_HEADS, seed % 2 == 1,
                   seed);
}

/* One long sequence, so that nearly all work is done in the main loop. */
static void make_long_problem(const session *s, problem *p)
{
    enum { BLOCKS_OF_WORKER = 12 };
    int32_t length = BLOCKS_OF_WORKER * (int32_t)s->args->blocks * s->plan.consumers * s->plan.block_tokens;
    problem_random(p, &s->cfg, REFERENCE_DATA_RANDOM, 1, &length, 1, false, s->seed);
}

static double count_blocks(const session *s, const problem *p)
{
    double blocks = 0;
    for (int b = 0; b < p->batch; b++)
        blocks += (p->sequences.lengths[b] + s->plan.block_tokens - 1) / s->plan.block_tokens * p->kv_heads;
    return blocks;
}

/* False: something else than the kernel is at fault, and was reported. */
static bool run_once(session *s, const problem *p, emulator_schedule mode, uint64_t seed)
{
    const emulated_execution execution = {.schedule = mode, .seed = seed, .fast = !s->args->exact, .judge = true};
    const trial_options options = {
        .device = {.seed = seed, .prefills = 1, .steps = 1, .decodes = 1, .lse = true},
        .ordinary = true,
    };
    mode_result *m = &s->mode[mode];
    emulated_fault fault;
    foscar_error err;
    page_pool pages;
    trial t = {.ran = false};
    emulated_driver_configure(&execution);
    pool_make(&pages, p);
    bool ok = trial_run(s->runtime, s->kernel, p, &options, &pages, &t, &err);
    trial_finish(&t);
    pool_finish(&pages);
    m->runs++;
    if (emulated_driver_fault(&fault)) {
        mode_add_finding(m, seed, &fault, NULL);
        emulated_driver_forgive();
        return true;
    }
    if (!ok) {
        tool_fail_status(s->self, &err);
        return false;
    }
    if (t.problem[0] != '\0') mode_add_finding(m, seed, NULL, t.problem);
    return true;
}

static bool run_schedules(session *s)
{
    bool ok = true;
    for (int64_t i = 0; i < s->args->schedules && ok; i++) {
        problem p;
        uint64_t seed = s->seed + (uint64_t)i;
        make_problem(s, seed, &p);
        for (int mode = 0; mode < EMULATOR_SCHEDULE_COUNT && ok; mode++)
            if (mode_chosen(s->args, mode)) ok = run_once(s, &p, (emulator_schedule)mode, seed);
        problem_finish(&p);
    }
    return ok;
}

/* ---- Report ---- */

/* What is printed of the executed instructions. */
typedef struct execution_report {
    bool covered, counted;
    dynamic_counts coverage; /* over all schedules */
    dynamic_counts counts;   /* of the long problem */
    kernel_counts statics;
    count_scale scale;
} execution_report;

static void print_report(const session *s, const execution_report *e)
{
    char again[2 * CONFIG_SPEC_MAX + 4200], rest[64];
    printf("%s\nspec    %s\ndevice  PTX interpreter, %lld SMs\nseeds   %llu to %llu\n\n", s->operand, s->spec,
           (long long)s->args->blocks, (unsigned long long)s->seed,
           (unsigned long long)s->seed + (unsigned long long)s->args->schedules - 1);
    modes_print(s->mode);
    if (e->covered)
        printf("\nexecuted %d of %d instructions of the decode kernel%s%s\n", e->coverage.sum.covered,
               e->coverage.sum.instructions, e->coverage.missed[0] != '\0' ? "; never lines " : "", e->coverage.missed);
    snprintf(again, sizeof again, "foscar check %s%s%s", s->operand, s->args->spec != NULL ? " --spec " : "",
             s->args->spec != NULL ? s->args->spec : "");
    snprintf(rest, sizeof rest, " --blocks %lld%s", (long long)s->args->blocks, s->args->exact ? " --exact" : "");
    modes_print_findings(s->mode, s->text, again, rest);
    if (e->counted) dynamic_counts_print(&e->counts, &e->scale, stdout);
}

static void print_json(const session *s, const execution_report *e)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "checked", s->operand);
    cJSON_AddStringToObject(json, "spec", s->spec);
    cJSON_AddNumberToObject(json, "seed", (double)s->seed);
    cJSON_AddNumberToObject(json, "schedules", (double)s->args->schedules);
    cJSON_AddNumberToObject(json, "findings", modes_findings(s->mode));
    cJSON_AddItemToObject(json, "modes", modes_json(s->mode));
    cJSON_AddNumberToObject(json, "instructions", e->coverage.sum.instructions);
    cJSON_AddNumberToObject(json, "instructions_executed", e->coverage.sum.covered);
    if (e->counted)
        cJSON_AddItemToObject(json, "counts", dynamic_counts_json(&e->counts, &e->scale));
    else
        cJSON_AddNullToObject(json, "counts");
    tool_print_json(json);
}

/* A finding of the long run is one of the round-robin mode. */
static bool count_long_run(session *s, execution_report *e)
{
    problem p;
    gen_error ignored;
    emulated_driver_forget_counts();
    make_long_problem(s, &p);
    bool ok = run_once(s, &p, EMULATOR_SCHEDULE_ROUND_ROBIN, s->seed);
    e->scale.block_elements = 2.0 * s->plan.block_tokens * s->cfg.head_dim;
    e->scale.elements = count_blocks(s, &p) * e->scale.block_elements;
    if (s->text == NULL && generate_counts(&s->cfg, &e->statics, &ignored)) e->scale.statics = &e->statics;
    e->counted = ok && dynamic_counts_take("foscar_decode", &e->counts);
    problem_finish(&p);
    return ok;
}

static tool_exit check_and_report(session *s)
{
    execution_report *e = tool_allocate(sizeof *e);
    bool ok = run_schedules(s);
    if (ok) e->covered = dynamic_counts_take("foscar_decode", &e->coverage);
    if (ok && s->args->counts) ok = count_long_run(s, e);
    if (ok && s->args->json)
        print_json(s, e);
    else if (ok)
        print_report(s, e);
    free(e);
    return ok && modes_findings(s->mode) == 0 ? TOOL_OK : TOOL_FAILED;
}

/* ---- The call ---- */

/* A spec has no dot and no slash. */
static bool names_a_file(const char *operand)
{
    return strpbrk(operand, "./") != NULL;
}

/* NUL-terminated. NULL after a failure that was reported. */
static char *read_text(const command *self, const char *path, size_t *length)
{
    enum { TEXT_BYTES_MAX = 1 << 26 };
    gen_error err;
    char *text = tool_read_file(path, TEXT_BYTES_MAX, length, &err);
    if (text == NULL) tool_fail_with(self, TOOL_USAGE, tool_file_details(path), "%s", err.message);
    return text;
}

tool_exit check_report_refused(const command *self, const char *operand, const char *spec, bool is_file,
                               const emulated_fault *fault)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "checked", operand);
    cJSON_AddItemToObject(json, "spec", spec != NULL && *spec != '\0' ? cJSON_CreateString(spec) : cJSON_CreateNull());
    cJSON_AddNumberToObject(json, "findings", 1);
    tool_print_json(json);
    return interpreter_report(self, is_file ? operand : NULL, fault);
}

static tool_exit report_refused(const session *s, const emulated_fault *fault)
{
    return check_report_refused(s->self, s->operand, s->spec, s->text != NULL, fault);
}

/* Without a spec nothing is known of parameters and launch, so the text is only read. */
static tool_exit check_statically(const session *s)
{
    emulated_fault *fault = tool_allocate(sizeof *fault);
    emulator_module *module = emulator_module_parse(s->text, s->length, s->operand, &fault->error);
    tool_exit code = TOOL_OK;
    if (module == NULL)
        code = report_refused(s, fault);
    else if (s->args->json) {
        cJSON *json = cJSON_CreateObject();
        cJSON_AddStringToObject(json, "checked", s->operand);
        cJSON_AddNullToObject(json, "spec");
        cJSON_AddNumberToObject(json, "entries", emulator_module_entries(module));
        cJSON_AddNumberToObject(json, "findings", 0);
        const char *warning = emulator_module_warning(module);
        cJSON_AddItemToObject(json, "warning", *warning ? cJSON_CreateString(warning) : cJSON_CreateNull());
        tool_print_json(json);
    } else {
        for (int i = 0; i < emulator_module_entries(module); i++) {
            emulator_entry_info info;
            emulator_module_entry_info(module, i, &info);
            printf("%-32s%6d parameters%8d instructions\n", emulator_module_entry_name(module, i), info.parameters,
                   info.instructions);
        }
        printf(
            "%s: no static error; ordering and results were not checked, which takes --spec SPEC, or --entry, --grid, "
            "--block and --args\n",
            s->operand);
    }
    if (module != NULL && *emulator_module_warning(module))
        fprintf(stderr, "foscar check: %s: %s\n", s->operand, emulator_module_warning(module));
    emulator_module_destroy(module);
    free(fault);
    return code;
}

/* Whether the text of a file can take the place of the emitted one. A text that the interpreter does not know is a
   finding. */
static tool_exit check_entry(const session *s)
{
    emulated_fault *fault = tool_allocate(sizeof *fault);
    emulator_module *module = emulator_module_parse(s->text, s->length, s->operand, &fault->error);
    tool_exit code = module != NULL ? TOOL_OK : report_refused(s, fault);
    if (module != NULL) {
        emulator_entry_info info = {.parameters = 0};
        int entry = emulator_module_find_entry(module, "foscar_decode");
        if (entry >= 0) emulator_module_entry_info(module, entry, &info);
        if (info.parameters != DECODE_PARAM_COUNT)
            code = tool_fail_with(s->self, TOOL_USAGE, tool_file_details(s->operand),
                                  "%s has no entry foscar_decode with the %d parameters of a decode kernel", s->operand,
                                  (int)DECODE_PARAM_COUNT);
    }
    emulator_module_destroy(module);
    free(fault);
    return code;
}

static tool_exit check_by_running(session *s)
{
    foscar_error err;
    gen_error reason;
    const emulated_options options = {
        .compute_capability = s->cfg.target->compute_capability,
        .sm_count = (int)s->args->blocks,
        .counting = true,
        .substitute = s->text,
        .substitute_length = s->length,
    };
    if (!decode_plan_make(&s->cfg, &s->plan, &reason)) return tool_fail(s->self, TOOL_USAGE, "%s", reason.message);
    config_format(&s->cfg, s->spec);
    tool_exit code = s->text != NULL ? check_entry(s) : TOOL_OK;
    if (code != TOOL_OK) return code;
    if (!interpreter_open(&options, &s->runtime, &err)) return tool_fail_status(s->self, &err);
    if (foscar_prepare(s->runtime, s->spec, &s->kernel, &err) == FOSCAR_OK)
        code = check_and_report(s);
    else {
        emulated_fault *fault = tool_allocate(sizeof *fault);
        code = emulated_driver_fault(fault) ? report_refused(s, fault) : tool_fail_status(s->self, &err);
        free(fault);
    }
    interpreter_close(s->runtime);
    return code;
}

/* A file is only read, unless it is said what to run it as. */
static tool_exit check_file(session *s, const option_call *call)
{
    const check_arguments *args = s->args;
    bool launches = false;
    for (int i = 0; i < s->self->option_count; i++)
        launches |= (call->given >> i & 1) && strstr(CHECK_LAUNCH_OPTIONS, s->self->options[i].name) != NULL;
    bool meant = args->spec != NULL ? options_refuse(s->self, call, CHECK_LAUNCH_OPTIONS, "with --spec")
                 : launches ? options_refuse(s->self, call, "--blocks --counts", "for an entry that is launched")
                            : options_refuse_but(s->self, call, "--json",
                                                 "for a file without --spec or --entry, which is only read");
    if (!meant) return TOOL_USAGE;
    s->text = read_text(s->self, s->operand, &s->length);
    if (s->text == NULL) return TOOL_USAGE;
    if (launches) return check_launch(s->self, args, s->operand, s->text, s->length);
    if (args->spec == NULL) return check_statically(s);
    return tool_parse_spec(s->self, args->spec, &s->cfg) ? check_by_running(s) : TOOL_USAGE;
}

static tool_exit run_check(const command *self, int argc, char **argv)
{
    check_arguments args = {.schedules = 20, .seed = -1, .blocks = 2};
    option_call call;
    session *s = NULL;
    tool_exit code = TOOL_USAGE;
    if (!options_parse(self, argc, argv, &args, &call)) {
        free((void *)args.args.words);
        return call.code;
    }
    s = tool_allocate(sizeof *s);
    *s = (session){.self = self, .args = &args, .operand = argv[0], .seed = tool_seed(args.seed)};
    if (names_a_file(argv[0]))
        code = check_file(s, &call);
    else if (args.spec != NULL)
        tool_fail(self, code, "--spec goes with a file");
    else if (options_refuse(self, &call, CHECK_LAUNCH_OPTIONS, "for a spec; they launch an entry of a file") &&
             tool_parse_spec(self, argv[0], &s->cfg))
        code = check_by_running(s);
    free(s->text);
    free(s);
    free((void *)args.args.words);
    return code;
}

#define AT(member) .offset = offsetof(check_arguments, member)
static const option options[] = {
    {.name = "--spec",
     .kind = OPTION_TEXT,
     AT(spec),
     .value = "SPEC",
     .help = "of a FILE: its foscar_decode is run instead of the generator's own"},
    {.name = "--schedules",
     .kind = OPTION_NUMBER,
     AT(schedules),
     .value = "N",
     .help = "seeds of each mode (20)",
     .minimum = 1,
     .maximum = 1000000},
    {.name = "--mode", .kind = OPTION_CHOICE, AT(mode), .value = INTERPRETER_MODES, .help = "who takes turns (all)"},
    {.name = "--seed",
     .kind = OPTION_NUMBER,
     AT(seed),
     .value = "S",
     .help = "the first seed, of data and schedule (from the clock)",
     .minimum = 0,
     .maximum = (int64_t)1 << 53},
    {.name = "--blocks",
     .kind = OPTION_NUMBER,
     AT(blocks),
     .value = "N",
     .help = "SMs of the interpreter's device, blocks of a decode launch (2)",
     .minimum = 1,
     .maximum = 1024},
    {.name = "--exact",
     .kind = OPTION_FLAG,
     AT(exact),
     .help = "float matrix products summed as the hardware does, not in float32"},
    {.name = "--counts",
     .kind = OPTION_FLAG,
     AT(counts),
     .help =
         "also run a long sequence, and show the instructions executed by region and element beside the inspector's"},
    {.name = "--entry",
     .kind = OPTION_TEXT,
     AT(entry),
     .value = "NAME",
     .help = "of a FILE: the kernel that is launched (its only one)"},
    {.name = "--grid", .kind = OPTION_TEXT, AT(grid), .value = "X[,Y,Z]", .help = "blocks of the launch (1)"},
    {.name = "--block", .kind = OPTION_TEXT, AT(block), .value = "X[,Y,Z]", .help = "threads of a block (.reqntid)"},
    {.name = "--shared",
     .kind = OPTION_NUMBER,
     AT(shared),
     .value = "BYTES",
     .help = "dynamic shared memory (0)",
     .minimum = 0,
     .maximum = 227 * 1024},
    {.name = "--args", .kind = OPTION_WORDS, AT(args), .value = "ARG ...", .help = "in order: " KERNEL_ARGUMENTS_HELP},
    {.name = "--data-seed",
     .kind = OPTION_NUMBER,
     AT(data_seed),
     .value = "S",
     .help = "of the random numbers in buffers (0)",
     .minimum = 0,
     .maximum = (int64_t)1 << 53},
    {.name = "--output",
     .kind = OPTION_TEXT,
     AT(output),
     .value = "DIR",
     .help = "the buffers after the first run that passed: DIR/argument1.bin and on"},
    {.name = "--budget",
     .kind = OPTION_NUMBER,
     AT(budget),
     .value = "N",
     .help = "warp instructions of a block, after which it is taken to run for ever (100000000)",
     .minimum = 1,
     .maximum = (int64_t)1 << 53},
    {.name = "--json", .kind = OPTION_FLAG, AT(json), .help = "the results as JSON"},
};

const command command_check = {
    .name = "check",
    .arguments = "SPEC | FILE.ptx [--spec SPEC | --entry NAME --grid X --block X --args ARG ...] [options]",
    .summary =
        "run a kernel in the PTX interpreter under many schedules and report errors of ordering and protocol\n\n"
        "A small problem (ragged lengths, page edges, sequences cut between workers) is appended and decoded once for "
        "each mode and seed. Reported\n"
        "are races, missing fences, wrong barriers, deadlocks and whatever else the interpreter knows, with the line "
        "of the PTX, and results that\n"
        "are wrong. Needs NVRTC, but no GPU and no ptxas.\n\n"
        "Any kernel of a PTX file, a compiler's too, is launched with --entry, --grid, --block and --args: every run "
        "of "
        "each mode starts with the same\n"
        "arguments and fresh memory, and an access beyond a buffer is a fault. What the buffers hold afterwards is "
        "summed up, and written by --output.\n"
        "A file without these and without --spec is only read: its static errors are reported.",
    .example = "foscar check sm_90a-k2t128-v2t128-d128-h8-p64 --schedules 5\n"
               "  foscar check saxpy.ptx --entry saxpy --grid 4 --block 128 --args 500 f32:2.5 buf:2000=random:f32 "
               "buf:2000=ramp:f32",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .least = 1,
    .most = 1,
    .run = run_check,
};
