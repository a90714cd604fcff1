/* The device's side of `run` and `check`: appends a problem's tokens in pieces, decodes, and brings everything back. */
#include "device_run.h"

#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "random.h"

enum {
    ROW_GAP = 64,      /* bytes between the rows of q and of out, so that the strides are not the obvious ones */
    POISON_BYTE = 0xff /* a NaN in every number type */
};

typedef struct appender {
    gpu *g;
    foscar_kernel *kernel;
    const problem *p;
    foscar_cache cache;
    int32_t *done; /* [streams] tokens appended so far */
} appender;

/* Interleaved rows {K, V} of the tokens done[s] .. lengths[s] - 1 of every stream; of a step, one row a stream, zeros
 * where it takes none. */
static uint16_t *stage_rows(const appender *a, const int32_t *lengths, int64_t rows, bool step)
{
    const problem *p = a->p;
    size_t row = (size_t)p->kv_heads * (size_t)p->cfg.head_dim, bytes = row * sizeof(uint16_t);
    uint16_t *staged = tool_allocate((size_t)rows * 2 * bytes), *to = staged;
    for (int s = 0; s < p->streams.batch; s++) {
        for (int32_t t = a->done[s]; t < lengths[s]; t++, to += 2 * row) {
            memcpy(to, p->k + (size_t)(p->first[s] + t) * row, bytes);
            memcpy(to + row, p->v + (size_t)(p->first[s] + t) * row, bytes);
        }
        if (step && lengths[s] == a->done[s]) to += 2 * row;
    }
    return staged;
}

/* Appends up to the given lengths: as a prefill, or as one decode step that adds a token to every stream that is not
 * empty then. */
static bool append_to(appender *a, const int32_t *lengths, bool step)
{
    int streams = a->p->streams.batch, buffers = a->g->count;
    int32_t *indptr = tool_allocate((size_t)(streams + 1) * sizeof *indptr);
    for (int s = 0; s < streams; s++) indptr[s + 1] = indptr[s] + lengths[s] - a->done[s];
    int64_t rows = step ? streams : indptr[streams],
            row_bytes = (int64_t)a->p->kv_heads * a->p->cfg.head_dim * (int64_t)sizeof(uint16_t);
    uint16_t *staged = stage_rows(a, lengths, rows, step);
    gpu_upload(a->g, (void *)a->cache.lengths, lengths, (uint64_t)streams * sizeof *lengths);
    char *device_rows = gpu_copy(a->g, staged, (uint64_t)(rows * 2 * row_bytes));
    foscar_append_args args = {
        .struct_size = sizeof args,
        .tokens = (int32_t)rows,
        .cache = &a->cache,
        .k = device_rows,
        .v = device_rows + row_bytes,
        .k_stride = 2 * row_bytes,
        .v_stride = 2 * row_bytes,
        .token_indptr = step ? NULL : gpu_copy(a->g, indptr, (uint64_t)(streams + 1) * sizeof *indptr),
    };
    if (!a->g->failed) gpu_ok(a->g, foscar_check_append(a->kernel, &args, a->g->stream, &a->g->error));
    if (!a->g->failed) gpu_ok(a->g, foscar_append(a->kernel, &args, a->g->stream, &a->g->error));
    gpu_wait(a->g);
    gpu_free_since(a->g, buffers);
    memcpy(a->done, lengths, (size_t)streams * sizeof *lengths);
    free(staged);
    free(indptr);
    return !a->g->failed;
}

/* Prefills, cut at random tokens of each stream, then decode steps. */
static bool append_all(appender *a, const device_run_options *options)
{
    const int32_t *full = a->p->streams.lengths;
    int streams = a->p->streams.batch;
    int32_t *lengths = tool_allocate((size_t)streams * sizeof *lengths);
    a->done = tool_allocate((size_t)streams * sizeof *a->done);
    bool ok = true;
    for (int piece = 1; piece <= options->prefills && ok; piece++) {
        for (int s = 0; s < streams; s++) {
            int32_t end = full[s] > options->steps ? full[s] - options->steps : 0;
            uint64_t index = (uint64_t)(piece - 1) * (uint64_t)streams + (uint64_t)s;
            lengths[s] =
                piece < options->prefills
                    ? a->done[s] + (int32_t)(random_bits(options->seed, index) % (uint64_t)(end - a->done[s] + 1))
                    : end;
        }
        ok = append_to(a, lengths, false); /* an empty piece is a launch that does nothing */
    }
    for (int step = 1; step <= options->steps && ok; step++) {
        for (int s = 0; s < streams; s++) {
            int32_t length = full[s] - options->steps + step;
            lengths[s] = length > 0 ? length : 0;
        }
        ok = append_to(a, lengths, true);
    }
    free(lengths);
    free(a->done);
    return ok;
}

/* Q with a gap between sequences. */
static void *upload_query(gpu *g, const problem *p, int64_t row_bytes)
{
    char *rows = tool_allocate((size_t)p->batch * (size_t)(row_bytes + ROW_GAP));
    for (int b = 0; b < p->batch; b++)
        memcpy(rows + b * (row_bytes + ROW_GAP), (const char *)p->q + b * row_bytes, (size_t)row_bytes);
    void *device = gpu_copy(g, rows, (uint64_t)p->batch * (uint64_t)(row_bytes + ROW_GAP));
    free(rows);
    return device;
}

static bool launch(gpu *g, foscar_kernel *kernel, const foscar_decode_args *args, bool graph)
{
    if (g->failed) return false;
    if (!graph) return gpu_ok(g, foscar_decode(kernel, args, g->stream, &g->error));
    const foscar_cache *cache = args->cache;
    uint64_t bytes = (uint64_t)cache->batch * sizeof *cache->lengths;
    int32_t *lengths = tool_allocate(bytes);
    void *captured = NULL;
    gpu_download(g, lengths, cache->lengths, bytes);
    gpu_fill(g, (void *)cache->lengths, 0, bytes);
    gpu_wait(g);
    if (!g->failed && gpu_ok(g, toolkit_capture_begin(g->runtime, g->stream, &g->error))) {
        gpu_ok(g, foscar_decode(kernel, args, g->stream, &g->error));
        foscar_error ignored;
        foscar_status status = toolkit_capture_end(g->runtime, g->stream, &captured, g->failed ? &ignored : &g->error);
        gpu_ok(g, status);
    }
    gpu_upload(g, (void *)cache->lengths, lengths, bytes);
    if (!g->failed) gpu_ok(g, toolkit_graph_launch(g->runtime, captured, g->stream, &g->error));
    gpu_wait(g);
    toolkit_graph_destroy(g->runtime, captured);
    free(lengths);
    return !g->failed;
}

/* Splits rows with gaps into numbers; returns whether the gaps still hold the poison. */
static bool take_rows(const problem *p, const uint8_t *rows, int64_t row_bytes, float *out)
{
    size_t row = (size_t)p->kv_heads * (size_t)p->cfg.heads * (size_t)p->cfg.head_dim;
    bool intact = true;
    for (int b = 0; b < p->batch; b++) {
        const uint8_t *at = rows + b * (row_bytes + ROW_GAP);
        reference_read(p->cfg.o_type, at, row, out + (size_t)b * row);
        for (int i = 0; i < ROW_GAP; i++) intact = intact && at[row_bytes + i] == POISON_BYTE;
    }
    return intact;
}

static bool decode(gpu *g, foscar_kernel *kernel, const problem *p, const foscar_cache *cache,
                   const device_run_options *options, device_run_result *result)
{
    size_t rows = (size_t)p->batch * (size_t)p->kv_heads * (size_t)p->cfg.heads,
           row = rows / (size_t)p->batch * (size_t)p->cfg.head_dim;
    int64_t q_bytes = (int64_t)row * number_info(p->cfg.q_type)->bytes,
            o_bytes = (int64_t)row * number_info(p->cfg.o_type)->bytes;
    uint64_t out_bytes = (uint64_t)p->batch * (uint64_t)(o_bytes + ROW_GAP), lse_bytes = rows * sizeof(float);
    foscar_kernel_info info = {.struct_size = sizeof info};
    if (!g->failed) gpu_ok(g, foscar_kernel_describe(kernel, &info, &g->error));
    foscar_decode_args args = {
        .struct_size = sizeof args,
        .scale = (float)p->scale,
        .cache = cache,
        .q = upload_query(g, p, q_bytes),
        .out = gpu_buffer(g, out_bytes),
        .lse = options->lse ? gpu_buffer(g, lse_bytes) : NULL,
        .q_stride = q_bytes + ROW_GAP,
        .out_stride = o_bytes + ROW_GAP,
        .workspace = gpu_buffer(g, info.workspace_bytes),
        .workspace_bytes = info.workspace_bytes,
    };
    uint8_t *bytes[2] = {tool_allocate(out_bytes), tool_allocate(out_bytes)};
    result->out = tool_allocate(rows * (size_t)p->cfg.head_dim * sizeof(float));
    result->lse = options->lse ? tool_allocate(lse_bytes) : NULL;
    if (options->poison_workspace) gpu_fill(g, args.workspace, POISON_BYTE, info.workspace_bytes);
    for (int round = 0; round < options->decodes; round++) {
        gpu_fill(g, args.out, POISON_BYTE, out_bytes);
        if (options->lse) gpu_fill(g, args.lse, POISON_BYTE, lse_bytes);
        launch(g, kernel, &args, options->graph && round == 0);
        gpu_download(g, bytes[round], args.out, out_bytes);
    }
    if (options->lse) gpu_download(g, result->lse, args.lse, lse_bytes);
    result->repeatable = options->decodes < 2 || memcmp(bytes[0], bytes[1], out_bytes) == 0;
    result->gaps_untouched = take_rows(p, bytes[0], o_bytes, result->out);
    free(bytes[0]);
    free(bytes[1]);
    return !g->failed;
}

bool device_run(foscar_runtime *runtime, foscar_kernel *kernel, const problem *p, const device_run_options *options,
                page_pool *pages, device_run_result *result, foscar_error *err)
{
    gpu g;
    memset(result, 0, sizeof *result);
    gpu_init(&g, runtime);
    void *device_pages = gpu_copy(&g, pages->pages, (uint64_t)pages->bytes);
    foscar_cache streams =
        gpu_cache(&g, &p->streams, p->kv_heads, device_pages, pages->page_stride, pages->head_stride);
    appender a = {.g = &g, .kernel = kernel, .p = p, .cache = streams};
    append_all(&a, options);
    gpu_download(&g, pages->pages, device_pages, (uint64_t)pages->bytes);
    foscar_cache sequences =
        p->shared ? gpu_cache(&g, &p->sequences, p->kv_heads, device_pages, pages->page_stride, pages->head_stride)
                  : streams;
    if (!g.failed) gpu_ok(&g, foscar_check(kernel, &sequences, g.stream, &g.error));
    bool ok = decode(&g, kernel, p, &sequences, options, result);
    if (!ok) *err = g.error;
    gpu_finish(&g);
    return ok;
}

void device_run_finish(device_run_result *result)
{
    free(result->out);
    free(result->lse);
    memset(result, 0, sizeof *result);
}
