/* foscar bench: times decode launches over a grid of shapes, against the read ceiling measured in the same run. */
#include "command.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "measure.h"
#include "random.h"

typedef struct bench_arguments {
    int64_t kv_heads, repeats, seed; /* kv_heads 0: the grid's own; seed < 0: from the clock */
    int64_t batch, context;          /* of the only shape, or 0 */
    int grid;                        /* a grid_choice */
    bool ragged, json;
} bench_arguments;

typedef enum grid_choice { GRID_PEERS, GRID_QUICK, GRID_WIDE } grid_choice;

/* Sequences and tokens of each. */
typedef struct shape {
    int batch, context;
} shape;

enum { K = 1024, SHAPES_MAX = 12, PAGE_TOKENS_LEAST = 64 };

typedef struct shape_list {
    int count;
    shape rows[SHAPES_MAX];
} shape_list;

static const shape_list grids[] = {
    [GRID_PEERS] = {12,
                    {{1, 8 * K},
                     {1, 32 * K},
                     {1, 128 * K},
                     {8, 8 * K},
                     {8, 32 * K},
                     {8, 128 * K},
                     {32, 2 * K},
                     {32, 8 * K},
                     {32, 32 * K},
                     {128, 1 * K},
                     {128, 4 * K},
                     {128, 16 * K}}},
    [GRID_QUICK] = {4, {{1, 8 * K}, {8, 128 * K}, {32, 32 * K}, {128, 16 * K}}},
    [GRID_WIDE] = {3, {{8, 32 * K}, {32, 8 * K}, {128, 4 * K}}},
};

/* Specs that are measured when none is given, and over which KV heads. */
typedef struct model {
    const char *spec;
    int kv_heads;
    bool ragged;
} model;

static const model standard[] = {
    {"sm_90a-k2t128-v2t128-d128-h8-p64", 8, false},
    {"sm_90a-k4t128-v4t128-d128-h8-p64", 8, false},
};

static const model wide[] = {
    {"sm_90a-k2t128-v2t128-d128-h8-p64", 8, true},  {"sm_90a-k4t128-v4t128-d128-h8-p64", 8, true},
    {"sm_90a-k4t128-v2t128-d128-h8-p64", 8, false}, {"sm_90a-k2t128-v2t128-d128-h4-p64", 8, false},
    {"sm_90a-k4t128-v4t128-d128-h4-p64", 8, false}, {"sm_90a-k2t128-v2t128-d128-h7-p64", 4, false},
    {"sm_90a-k4t128-v4t128-d128-h7-p64", 4, false}, {"sm_90a-k2t128-v2t128-d128-h8-p64", 1, false},
    {"sm_90a-k2t128-v2t128-d128-h1-p64", 8, false}, {"sm_90a-k2t128-v2t128-d128-h16-p64", 8, false},
    {"sm_90a-k2t64-v2t64-d64-h8-p64", 8, false},    {"sm_90a-k4t64-v4t64-d64-h8-p64", 8, false},
    {"sm_90a-k2t256-v2t256-d256-h8-p64", 8, false}, {"sm_90a-k4t256-v4t256-d256-h8-p64", 8, false},
};

/* What is to be measured, and the report. */
typedef struct bench {
    const command *self;
    const bench_arguments *args;
    foscar_runtime *runtime;
    bench_device device;
    char name[192];
    shape_list shapes;
    read_ceiling ceiling;
    cJSON *rows;   /* NULL: a table */
    bool all_good; /* every sampled error was within its bound */
} bench;

static double ceiling_of(const read_ceiling *c)
{
    return fmax(c->loads, c->bulk);
}

static void fill_lengths(const bench *b, const shape *s, bool ragged, int32_t *lengths)
{
    for (int i = 0; i < s->batch; i++) /* ragged: uniform in 0 .. 2 * context, so the mean is the same */
        lengths[i] = ragged ? (int32_t)(random_bits(b->device.seed + 6, (uint64_t)i) % (2 * (uint64_t)s->context + 1))
                            : s->context;
}

static int32_t pages_needed(const bench *b, int page_tokens, bool ragged)
{
    int32_t most = 1;
    for (int i = 0; i < b->shapes.count; i++) {
        const shape *s = &b->shapes.rows[i];
        int32_t *lengths = tool_allocate((size_t)s->batch * sizeof *lengths), pages = 0;
        fill_lengths(b, s, ragged, lengths);
        for (int j = 0; j < s->batch; j++) pages += (lengths[j] + page_tokens - 1) / page_tokens;
        if (pages > most) most = pages;
        free(lengths);
    }
    return most + 8;
}

/* ---- Report ---- */

static void print_header(const bench *b)
{
    printf("device   %s, %d SMs, L2 %d MiB\n", b->name, b->device.info.sm_count, b->device.info.l2_bytes >> 20);
    printf("ceiling  %.3f TB/s by 16-byte loads, %.3f TB/s by bulk copies\n", b->ceiling.loads / 1e12,
           b->ceiling.bulk / 1e12);
    printf("method   cold L2 (a read of %llu MiB before each launch), shuffled pages, median of %d, decode and merge "
           "between two events; seed %llu\n\n",
           (unsigned long long)(b->device.flush_bytes >> 20), b->device.repeats, (unsigned long long)b->device.seed);
    printf("%-40s%4s%14s%10s%10s%8s%10s%10s  %s\n", "spec", "kv", "batch x ctx", "us", "p90", "ceiling", "stored",
           "bf16-eq", "error");
}

static void print_row(const bench *b, const char *spec, int kv_heads, const shape *s, bool ragged,
                      const bench_result *r, bool good)
{
    char text[32];
    double seconds = r->median * 1e-6;
    snprintf(text, sizeof text, "%d x %s%d%s", s->batch, ragged ? "~" : "",
             s->context % K == 0 ? s->context / K : s->context, s->context % K == 0 ? "k" : "");
    printf("%-40s%4d%14s%10.1f%10.1f%8.3f%10.3f%10.2f  %.1e%s\n", spec, kv_heads, text, r->median, r->p90,
           (double)r->stored_bytes / seconds / ceiling_of(&b->ceiling), (double)r->stored_bytes / seconds / 1e12,
           (double)r->bf16_bytes / seconds / 1e12, r->error, good ? "" : " WRONG");
    fflush(stdout);
}

static void add_row(const bench *b, const char *spec, int kv_heads, const shape *s, bool ragged, const bench_result *r,
                    bool good)
{
    cJSON *row = cJSON_CreateObject();
    double seconds = r->median * 1e-6;
    cJSON_AddStringToObject(row, "spec", spec);
    cJSON_AddNumberToObject(row, "kv_heads", kv_heads);
    cJSON_AddNumberToObject(row, "batch", s->batch);
    cJSON_AddNumberToObject(row, "context", s->context);
    cJSON_AddBoolToObject(row, "ragged", ragged);
    cJSON_AddNumberToObject(row, "microseconds", r->median);
    cJSON_AddNumberToObject(row, "microseconds_least", r->least);
    cJSON_AddNumberToObject(row, "microseconds_p90", r->p90);
    cJSON_AddNumberToObject(row, "microseconds_launch", r->launch_median);
    if (r->graph_median > 0) cJSON_AddNumberToObject(row, "microseconds_graph", r->graph_median);
    cJSON_AddNumberToObject(row, "stored_bytes", (double)r->stored_bytes);
    cJSON_AddNumberToObject(row, "share_of_ceiling", (double)r->stored_bytes / seconds / ceiling_of(&b->ceiling));
    cJSON_AddNumberToObject(row, "stored_tb_per_s", (double)r->stored_bytes / seconds / 1e12);
    cJSON_AddNumberToObject(row, "bf16_equivalent_tb_per_s", (double)r->bf16_bytes / seconds / 1e12);
    cJSON_AddItemToObject(row, "relative_error",
                          isfinite(r->error) ? cJSON_CreateNumber(r->error) : cJSON_CreateNull());
    cJSON_AddBoolToObject(row, "correct", good);
    cJSON_AddItemToArray(b->rows, row);
}

static void print_json(bench *b, const read_ceiling *after)
{
    cJSON *json = cJSON_CreateObject(), *ceiling = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "device", b->name);
    cJSON_AddNumberToObject(json, "sm_count", b->device.info.sm_count);
    cJSON_AddNumberToObject(json, "l2_bytes", b->device.info.l2_bytes);
    cJSON_AddNumberToObject(json, "seed", (double)b->device.seed);
    cJSON_AddNumberToObject(json, "repeats", b->device.repeats);
    cJSON_AddNumberToObject(json, "flush_bytes", (double)b->device.flush_bytes);
    cJSON_AddNumberToObject(ceiling, "loads_tb_per_s", b->ceiling.loads / 1e12);
    cJSON_AddNumberToObject(ceiling, "bulk_tb_per_s", b->ceiling.bulk / 1e12);
    cJSON_AddNumberToObject(ceiling, "loads_tb_per_s_after", after->loads / 1e12);
    cJSON_AddNumberToObject(ceiling, "bulk_tb_per_s_after", after->bulk / 1e12);
    cJSON_AddItemToObject(json, "read_ceiling", ceiling);
    cJSON_AddItemToObject(json, "rows", b->rows);
    b->rows = NULL;
    tool_print_json(json);
}

/* ---- The call ---- */

static tool_exit bench_shapes(bench *b, const bench_pool *pool, const char *spec, bool ragged)
{
    for (int i = 0; i < b->shapes.count; i++) {
        const shape *s = &b->shapes.rows[i];
        bench_result r;
        int32_t *lengths = tool_allocate((size_t)s->batch * sizeof *lengths);
        fill_lengths(b, s, ragged, lengths);
        bool ok = measure_case(&b->device, pool, s->batch, lengths, &r);
        free(lengths);
        if (!ok) return tool_fail_status(b->self, &b->device.g.error);
        bool good = r.error <= compare_bound(pool->cfg.o_type, true, true);
        b->all_good = b->all_good && good;
        if (b->rows != NULL)
            add_row(b, spec, pool->kv_heads, s, ragged, &r, good);
        else
            print_row(b, spec, pool->kv_heads, s, ragged, &r, good);
    }
    return TOOL_OK;
}

static tool_exit bench_model(bench *b, const model *m)
{
    config cfg;
    char spec[CONFIG_SPEC_MAX];
    foscar_kernel *kernel;
    foscar_error err;
    bench_pool pool;
    if (!tool_parse_spec(b->self, m->spec, &cfg)) return TOOL_USAGE;
    config_format(&cfg, spec);
    if (foscar_prepare(b->runtime, spec, &kernel, &err) != FOSCAR_OK) return tool_fail_status(b->self, &err);
    int buffers = b->device.g.count;
    tool_exit code =
        bench_pool_make(&b->device, &cfg, kernel, m->kv_heads, pages_needed(b, cfg.page_tokens, m->ragged), &pool)
            ? bench_shapes(b, &pool, spec, m->ragged)
            : tool_fail_status(b->self, &b->device.g.error);
    gpu_free_since(&b->device.g, buffers);
    return code;
}

static tool_exit bench_models(bench *b, const model *models, int count)
{
    read_ceiling after;
    tool_exit code = TOOL_OK;
    if (!measure_ceiling(&b->device, &b->ceiling)) return tool_fail_status(b->self, &b->device.g.error);
    if (b->rows == NULL) print_header(b);
    for (int i = 0; i < count && code == TOOL_OK; i++) code = bench_model(b, &models[i]);
    if (code != TOOL_OK) return code;
    if (!measure_ceiling(&b->device, &after)) return tool_fail_status(b->self, &b->device.g.error);
    if (b->rows != NULL)
        print_json(b, &after);
    else
        printf("\nceiling measured again: %.3f TB/s by 16-byte loads, %.3f TB/s by bulk copies\n", after.loads / 1e12,
               after.bulk / 1e12);
    return b->all_good ? TOOL_OK
                       : tool_fail(b->self, TOOL_FAILED,
                                   "a sampled output is further from float64 attention than rounding allows");
}

/* The models of this call: the grid's own, or the given specs. malloc'd. */
static model *choose_models(const bench_arguments *args, int operands, char **argv, int *count)
{
    const model *own = args->grid == GRID_WIDE ? wide : standard;
    int own_count =
        args->grid == GRID_WIDE ? (int)(sizeof wide / sizeof *wide) : (int)(sizeof standard / sizeof *standard);
    *count = operands > 0 ? operands : own_count;
    model *models = tool_allocate((size_t)*count * sizeof *models);
    for (int i = 0; i < *count; i++) {
        models[i] = operands > 0 ? (model){argv[i], 8, false} : own[i];
        if (args->kv_heads > 0) models[i].kv_heads = (int)args->kv_heads;
        if (args->ragged) models[i].ragged = true;
    }
    return models;
}

static bool choose_shapes(const command *self, const bench_arguments *args, shape_list *out)
{
    *out = grids[args->grid];
    if ((args->batch > 0) != (args->context > 0)) {
        tool_fail(self, TOOL_USAGE, "--batch and --context go together");
        return false;
    }
    int64_t tokens = args->batch * args->context * (args->ragged ? 2 : 1); /* at most */
    if (tokens > (int64_t)INT32_MAX * PAGE_TOKENS_LEAST) {                 /* page numbers have 32 bits */
        tool_fail(self, TOOL_USAGE, "--batch %lld and --context %lld take more than %d pages", (long long)args->batch,
                  (long long)args->context, INT32_MAX);
        return false;
    }
    if (args->batch > 0) *out = (shape_list){1, {{(int)args->batch, (int)args->context}}};
    return true;
}

static tool_exit run_bench(const command *self, int argc, char **argv)
{
    bench_arguments args = {.repeats = 40, .seed = -1};
    int count;
    option_call call;
    tool_exit code;
    config cfg;
    foscar_error err;
    bench b = {.self = self, .args = &args, .all_good = true};
    if (!options_parse(self, argc, argv, &args, &call)) return call.code;
    if (!choose_shapes(self, &args, &b.shapes)) return TOOL_USAGE;
    /* Of the wide grid, the specs are left when the shape is given. */
    if (args.batch > 0 && (call.operands > 0 || args.grid != GRID_WIDE) &&
        !options_refuse(self, &call, "--grid", "with --batch and --context, which are the only shape"))
        return TOOL_USAGE;
    for (int i = 0; i < call.operands; i++)
        if (!tool_parse_spec(self, argv[i], &cfg)) return TOOL_USAGE;
    uint64_t seed = tool_seed(args.seed);
    if (foscar_open(NULL, &b.runtime, &err) != FOSCAR_OK) return tool_fail_status(self, &err);
    foscar_device_info info;
    model *models = choose_models(&args, call.operands, argv, &count);
    if (foscar_can_run(b.runtime, models[0].spec, 0, &err) != FOSCAR_OK ||
        !gpu_describe(b.runtime, &info, b.name, sizeof b.name, &err)) {
        code = tool_fail_status(self, &err);
    } else {
        if (args.json) b.rows = cJSON_CreateArray();
        code = bench_device_init(&b.device, b.runtime, seed, (int)args.repeats)
                   ? bench_models(&b, models, count)
                   : tool_fail_status(self, &b.device.g.error);
        bench_device_finish(&b.device);
        cJSON_Delete(b.rows);
    }
    free(models);
    foscar_close(b.runtime);
    return code;
}

#define AT(member) .offset = offsetof(bench_arguments, member)
static const option options[] = {
    {.name = "--grid",
     .kind = OPTION_CHOICE,
     AT(grid),
     .value = "peers|quick|wide",
     .help =
         "twelve shapes (default); four of them; three shapes of many head counts, head dimensions and ragged lengths"},
    {.name = "--batch",
     .kind = OPTION_NUMBER,
     AT(batch),
     .value = "N",
     .help = "one shape only: sequences",
     .minimum = 1,
     .maximum = 65535},
    {.name = "--context",
     .kind = OPTION_NUMBER,
     AT(context),
     .value = "LEN",
     .help = "and tokens of each",
     .minimum = 1,
     .maximum = 1 << 24},
    {.name = "--ragged", .kind = OPTION_FLAG, AT(ragged), .help = "lengths uniform from 0 to twice the context"},
    {.name = "--kv-heads",
     .kind = OPTION_NUMBER,
     AT(kv_heads),
     .value = "H",
     .help = "KV heads (8, or those of the grid)",
     .minimum = 1,
     .maximum = 65535},
    {.name = "--repeats",
     .kind = OPTION_NUMBER,
     AT(repeats),
     .value = "N",
     .help = "launches a median is taken of (40)",
     .minimum = 30,
     .maximum = MEASURE_REPEATS_MAX},
    {.name = "--seed",
     .kind = OPTION_NUMBER,
     AT(seed),
     .value = "S",
     .help = "of data and page numbers (from the clock)",
     .minimum = 0,
     .maximum = (int64_t)1 << 53},
    {.name = "--json", .kind = OPTION_FLAG, AT(json), .help = "the results as JSON"},
};

const command command_bench = {
    .name = "bench",
    .arguments = "[SPEC...] [options]",
    .summary = "time decode launches against the read ceiling measured in the same run\n\n"
               "us: microseconds of decode and merge, the median; ceiling: bytes stored over time as a share of the "
               "read ceiling; stored, bf16-eq: TB/s of the\n"
               "bytes stored and of those the same tokens take in bf16; error: of sampled rows against float64 "
               "attention over the dequantised cache.",
    .example = "foscar bench --grid quick",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .least = 0,
    .most = -1,
    .run = run_bench,
};
