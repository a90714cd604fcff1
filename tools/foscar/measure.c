/* What `bench` measures: the read ceiling of a GPU, and one decode case with cold L2, checked by samples. */
#include "measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "fragment.h"
#include "parallel.h"
#include "random.h"
#include "reference.h"

/* bench_kernels.cu, made by tools/embed.py */
extern const char foscar_bench_kernels_cu[];

enum { FILL_THREADS = 256, READ_THREADS = 512, SAMPLES = 4, GRAPH_LIMIT_US = 400 };

static void launch(bench_device *d, const char *entry, uint32_t blocks, uint32_t threads, uint32_t shared,
                   void **parameters)
{
    const uint32_t grid[3] = {blocks, 1, 1}, block[3] = {threads, 1, 1};
    if (!d->g.failed)
        gpu_ok(&d->g,
               toolkit_program_launch(d->program, entry, grid, block, shared, parameters, d->g.stream, &d->g.error));
}

static void read_by_loads(bench_device *d, void *data, uint64_t bytes, uint32_t blocks)
{
    uint64_t count = bytes / 16;
    launch(d, "read_loads", blocks, READ_THREADS, 0, (void *[]){&data, &count, &d->sink});
}

static void fill_bits(bench_device *d, void *data, uint64_t bytes)
{
    uint64_t count = bytes / 16, seed = d->seed;
    launch(d, "fill_bits", (uint32_t)d->info.sm_count * 8, FILL_THREADS, 0, (void *[]){&data, &count, &seed});
}

bool bench_device_init(bench_device *d, foscar_runtime *runtime, uint64_t seed, int repeats)
{
    *d = (bench_device){.seed = seed, .repeats = repeats, .info = {.struct_size = sizeof d->info}};
    if (!gpu_init(&d->g, runtime)) return false;
    gpu_ok(&d->g, foscar_device_describe(runtime, 0, &d->info, &d->g.error));
    if (!d->g.failed)
        gpu_ok(&d->g, toolkit_program_build(runtime, "bench_kernels.cu", foscar_bench_kernels_cu, NULL, 0, &d->program,
                                            &d->g.error));
    uint64_t least = (uint64_t)256 << 20, wanted = 4 * (uint64_t)d->info.l2_bytes;
    d->flush_bytes = (wanted > least ? wanted : least) & ~(uint64_t)15;
    d->flush = gpu_buffer(&d->g, d->flush_bytes);
    d->sink = gpu_buffer(&d->g, 16);
    fill_bits(d, d->flush, d->flush_bytes);
    return gpu_wait(&d->g);
}

void bench_device_finish(bench_device *d)
{
    toolkit_program_destroy(d->program);
    gpu_finish(&d->g);
    memset(d, 0, sizeof *d);
}

/* ---- Times ---- */

/* Events around each of `count` launches. */
typedef struct timer {
    int count, recorded;
    void *begin[MEASURE_REPEATS_MAX], *end[MEASURE_REPEATS_MAX];
    double microseconds[MEASURE_REPEATS_MAX]; /* sorted by timer_read */
} timer;

static timer *timer_create(bench_device *d, int count)
{
    timer *t = tool_allocate(sizeof *t);
    t->count = count;
    for (int i = 0; i < count && !d->g.failed; i++) {
        gpu_ok(&d->g, toolkit_event_create(d->g.runtime, &t->begin[i], &d->g.error));
        if (!d->g.failed) gpu_ok(&d->g, toolkit_event_create(d->g.runtime, &t->end[i], &d->g.error));
    }
    return t;
}

static void timer_destroy(bench_device *d, timer *t)
{
    for (int i = 0; i < t->count; i++) {
        toolkit_event_destroy(d->g.runtime, t->begin[i]);
        toolkit_event_destroy(d->g.runtime, t->end[i]);
    }
    free(t);
}

static void timer_begin(bench_device *d, timer *t)
{
    if (!d->g.failed)
        gpu_ok(&d->g, toolkit_event_record(d->g.runtime, t->begin[t->recorded], d->g.stream, &d->g.error));
}

static void timer_end(bench_device *d, timer *t)
{
    if (!d->g.failed)
        gpu_ok(&d->g, toolkit_event_record(d->g.runtime, t->end[t->recorded++], d->g.stream, &d->g.error));
}

static int by_size(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Waits for all, sorts the times, returns the median; 0 after a failure. */
static double timer_read(bench_device *d, timer *t)
{
    for (int i = 0; i < t->count && !d->g.failed; i++) {
        float milliseconds = 0;
        gpu_ok(&d->g, toolkit_event_elapsed(d->g.runtime, t->begin[i], t->end[i], &milliseconds, &d->g.error));
        t->microseconds[i] = 1e3 * (double)milliseconds;
    }
    if (d->g.failed) return 0;
    qsort(t->microseconds, (size_t)t->count, sizeof *t->microseconds, by_size);
    return t->microseconds[t->count / 2];
}

/* ---- The read ceiling ---- */

enum { CEILING_REPEATS = 15, BULK_CHUNK = 18432, BULK_STAGES = 12 };

static double time_loads(bench_device *d, void *data, uint64_t bytes, uint32_t blocks)
{
    timer *t = timer_create(d, CEILING_REPEATS);
    for (int i = 0; i < t->count; i++) {
        timer_begin(d, t);
        read_by_loads(d, data, bytes, blocks);
        timer_end(d, t);
    }
    double median = timer_read(d, t);
    timer_destroy(d, t);
    return median > 0 ? (double)bytes / (median * 1e-6) : 0;
}

static double time_bulk(bench_device *d, void *data, uint64_t bytes)
{
    uint64_t chunks = bytes / BULK_CHUNK;
    uint32_t chunk_bytes = BULK_CHUNK, stages = BULK_STAGES;
    if ((int64_t)BULK_CHUNK * BULK_STAGES > d->info.shared_bytes - 1024) return 0;
    timer *t = timer_create(d, CEILING_REPEATS);
    for (int i = 0; i < t->count; i++) {
        timer_begin(d, t);
        launch(d, "read_bulk", (uint32_t)d->info.sm_count, 32, chunk_bytes * stages,
               (void *[]){&data, &chunks, &chunk_bytes, &stages});
        timer_end(d, t);
    }
    double median = timer_read(d, t);
    timer_destroy(d, t);
    return median > 0 ? (double)(chunks * BULK_CHUNK) / (median * 1e-6) : 0;
}

bool measure_ceiling(bench_device *d, read_ceiling *out)
{
    int buffers = d->g.count;
    uint64_t wanted = (uint64_t)4 << 30, quarter = d->info.memory_bytes / 4,
             bytes = (wanted < quarter ? wanted : quarter) & ~(uint64_t)15;
    void *data = gpu_buffer(&d->g, bytes);
    fill_bits(d, data, bytes);
    *out = (read_ceiling){0, 0};
    for (uint32_t blocks = 1; blocks <= 4; blocks *= 2) /* of an SM */
        out->loads = fmax(out->loads, time_loads(d, data, bytes, blocks * (uint32_t)d->info.sm_count));
    out->bulk = time_bulk(d, data, bytes);
    gpu_free_since(&d->g, buffers);
    return !d->g.failed;
}

/* ---- A pool of pages ---- */

static void fill_metadata(bench_device *d, const bench_pool *pool, uint32_t offset, int bits, uint64_t seed)
{
    uint64_t pages = (uint64_t)pool->pages * (uint64_t)pool->kv_heads,
             page_bytes = fragment_page_layout(&pool->cfg).bytes, at = offset;
    uint32_t tokens = (uint32_t)pool->cfg.page_tokens;
    double codes = 1 << bits;
    float scale = (float)(1 / sqrt((codes * codes - 1) / 12)),
          middle = (float)((codes - 1) / 2); /* variance 1 for uniform codes */
    void *data = pool->data;
    launch(d, "fill_metadata", (uint32_t)d->info.sm_count * 8, FILL_THREADS, 0,
           (void *[]){&data, &pages, &page_bytes, &at, &tokens, &scale, &middle, &seed});
}

bool bench_pool_make(bench_device *d, const config *cfg, foscar_kernel *kernel, int kv_heads, int32_t pages,
                     bench_pool *out)
{
    page_layout page = fragment_page_layout(cfg);
    uint64_t bytes = (uint64_t)page.bytes * (uint64_t)pages * (uint64_t)kv_heads;
    *out = (bench_pool){
        .cfg = *cfg, .kernel = kernel, .kv_heads = kv_heads, .pages = pages, .data = gpu_buffer(&d->g, bytes)};
    fill_bits(d, out->data, bytes);
    fill_metadata(d, out, page.k_metadata, cfg->k.codes->bits, d->seed + 1);
    fill_metadata(d, out, page.v_metadata, cfg->v.codes->bits, d->seed + 2);
    return gpu_wait(&d->g);
}

/* ---- One case ---- */

/* A case while it is measured. */
typedef struct bench_case {
    bench_device *d;
    const bench_pool *pool;
    paging pages;
    foscar_cache cache;
    foscar_decode_args args;
    uint16_t *q; /* on the host */
    size_t row;  /* numbers of one sequence of q and of the output */
} bench_case;

static void decode(bench_case *c)
{
    gpu *g = &c->d->g;
    if (!g->failed) gpu_ok(g, foscar_decode(c->pool->kernel, &c->args, g->stream, &g->error));
}

static bool setup(bench_case *c, int batch, const int32_t *lengths)
{
    gpu *g = &c->d->g;
    const config *cfg = &c->pool->cfg;
    foscar_kernel_info info = {.struct_size = sizeof info};
    paging_make(&c->pages, batch, lengths, cfg->page_tokens, false, c->pool->pages, c->d->seed + 3);
    c->row = (size_t)c->pool->kv_heads * (size_t)cfg->heads * (size_t)cfg->head_dim;
    size_t count = (size_t)batch * c->row;
    c->q = tool_allocate(count * sizeof *c->q);
    for (size_t i = 0; i < count; i++) c->q[i] = reference_narrow(cfg->q_type, random_normal(c->d->seed + 4, i));
    if (!g->failed) gpu_ok(g, foscar_kernel_describe(c->pool->kernel, &info, &g->error));
    c->cache = gpu_cache(g, &c->pages, c->pool->kv_heads, c->pool->data, 0, 0);
    c->args = (foscar_decode_args){
        .struct_size = sizeof c->args,
        .cache = &c->cache,
        .q = gpu_copy(g, c->q, count * sizeof *c->q),
        .out = gpu_buffer(g, count * (uint64_t)number_info(cfg->o_type)->bytes),
        .workspace = gpu_buffer(g, info.workspace_bytes),
        .workspace_bytes = info.workspace_bytes,
    };
    return !g->failed && gpu_ok(g, foscar_check(c->pool->kernel, &c->cache, g->stream, &g->error));
}

/* One sequence and KV head whose output is compared. */
typedef struct sample {
    const bench_case *c;
    int sequence, head;
    uint8_t *pages;          /* of the sequence and head, back to back */
    const float *out;        /* of the whole case */
    double difference, size; /* squares */
    bool failed;
} sample;

static bool download_pages(bench_case *c, sample *s)
{
    gpu *g = &c->d->g;
    int64_t bytes = fragment_page_layout(&c->pool->cfg).bytes;
    int32_t count = paging_count(&c->pages, s->sequence);
    s->pages = tool_allocate((size_t)(count * bytes));
    for (int32_t i = 0; i < count; i++) {
        int64_t page = c->pages.table[c->pages.indptr[s->sequence] + i];
        const char *from = (const char *)c->pool->data + (page * c->pool->kv_heads + s->head) * bytes;
        if (!g->failed) gpu_ok(g, toolkit_download(g->runtime, s->pages + i * bytes, from, (uint64_t)bytes, &g->error));
    }
    return !g->failed;
}

static void compare_sample(void *context, int64_t index)
{
    sample *s = (sample *)context + index;
    const config *cfg = &s->c->pool->cfg;
    int tokens = s->c->pages.lengths[s->sequence], dim = cfg->head_dim;
    size_t count = (size_t)tokens * (size_t)dim, rows = (size_t)cfg->heads * (size_t)dim,
           at = (size_t)s->sequence * s->c->row + (size_t)s->head * rows;
    int32_t *identity = tool_allocate((size_t)(paging_count(&s->c->pages, s->sequence) + 1) * sizeof *identity);
    for (int32_t i = 0; i < paging_count(&s->c->pages, s->sequence); i++) identity[i] = i;
    reference_cache cache = {
        .cfg = cfg, .pages = s->pages, .page_stride = fragment_page_layout(cfg).bytes, .page_table = identity};
    float *q = tool_allocate((2 * count + rows) * sizeof *q), *k = q + rows, *v = k + count;
    double *want = tool_allocate(rows * sizeof *want);
    reference_read(cfg->q_type, s->c->q + at, rows, q);
    s->failed = !reference_gather(&cache, 0, 0, tokens, k, v) ||
                !reference_attention(k, v, tokens, dim, q, cfg->heads, 1 / sqrt(dim), want, NULL, NULL);
    for (size_t i = 0; i < rows; i++) {
        s->difference += ((double)s->out[at + i] - want[i]) * ((double)s->out[at + i] - want[i]);
        s->size += want[i] * want[i];
    }
    free(identity);
    free(q);
    free(want);
}

/* The error of a few random sequences and heads; the output is poisoned first. */
static double sampled_error(bench_case *c)
{
    gpu *g = &c->d->g;
    const config *cfg = &c->pool->cfg;
    size_t count = (size_t)c->pages.batch * c->row, bytes = count * (size_t)number_info(cfg->o_type)->bytes;
    void *raw = tool_allocate(bytes);
    float *out = tool_allocate(count * sizeof *out);
    sample samples[SAMPLES] = {0};
    gpu_fill(g, c->args.out, 0xff, bytes);
    decode(c);
    gpu_download(g, raw, c->args.out, bytes);
    reference_read(cfg->o_type, raw, count, out);
    for (int i = 0; i < SAMPLES; i++) {
        uint64_t bits = random_bits(c->d->seed + 5, (uint64_t)i);
        samples[i] = (sample){.c = c,
                              .sequence = (int)((bits >> 32) % (uint64_t)c->pages.batch),
                              .head = (int)((bits & 0xffff) % (uint64_t)c->pool->kv_heads),
                              .out = out};
        download_pages(c, &samples[i]);
    }
    if (!g->failed) parallel_for(SAMPLES, compare_sample, samples);
    double difference = 0, size = 0;
    for (int i = 0; i < SAMPLES; i++) {
        difference += samples[i].failed ? NAN : samples[i].difference;
        size += samples[i].size;
        free(samples[i].pages);
    }
    free(raw);
    free(out);
    return isnan(difference) ? INFINITY : sqrt(size > 0 ? difference / size : difference);
}

static void *capture(bench_case *c)
{
    gpu *g = &c->d->g;
    void *graph = NULL;
    if (g->failed || !gpu_ok(g, toolkit_capture_begin(g->runtime, g->stream, &g->error))) return NULL;
    decode(c);
    foscar_error ignored;
    gpu_ok(g, toolkit_capture_end(g->runtime, g->stream, &graph, g->failed ? &ignored : &g->error));
    return graph;
}

/* Flush, then the launch between two events, again and again without waiting: the host runs ahead during the flush. */
static timer *time_decode(bench_case *c, void *graph)
{
    bench_device *d = c->d;
    timer *t = timer_create(d, d->repeats);
    for (int i = 0; i < t->count; i++) {
        read_by_loads(d, d->flush, d->flush_bytes, (uint32_t)d->info.sm_count * 2);
        timer_begin(d, t);
        if (graph == NULL)
            decode(c);
        else if (!d->g.failed)
            gpu_ok(&d->g, toolkit_graph_launch(d->g.runtime, graph, d->g.stream, &d->g.error));
        timer_end(d, t);
    }
    timer_read(d, t);
    return t;
}

static void take_times(const timer *t, bench_result *out)
{
    out->median = t->microseconds[t->count / 2];
    out->least = t->microseconds[0];
    out->p90 = t->microseconds[t->count * 9 / 10];
}

static void time_case(bench_case *c, bench_result *out)
{
    timer *launches = time_decode(c, NULL);
    take_times(launches, out);
    out->launch_median = out->median;
    if (out->median < GRAPH_LIMIT_US) { /* here the gap between two launches shows */
        void *graph = capture(c);
        timer *replays = time_decode(c, graph);
        out->graph_median = replays->microseconds[replays->count / 2];
        if (out->graph_median < out->median) take_times(replays, out);
        timer_destroy(c->d, replays);
        toolkit_graph_destroy(c->d->g.runtime, graph);
    }
    timer_destroy(c->d, launches);
}

bool measure_case(bench_device *d, const bench_pool *pool, int batch, const int32_t *lengths, bench_result *out)
{
    int buffers = d->g.count;
    bench_case c = {.d = d, .pool = pool};
    *out = (bench_result){0};
    if (setup(&c, batch, lengths)) {
        int64_t heads_tokens = paging_tokens(&c.pages) * pool->kv_heads;
        out->stored_bytes = heads_tokens * fragment_page_layout(&pool->cfg).bytes / pool->cfg.page_tokens;
        out->bf16_bytes = heads_tokens * pool->cfg.head_dim * 4;
        out->error = sampled_error(&c);
        time_case(&c, out);
    }
    gpu_wait(&d->g);
    gpu_free_since(&d->g, buffers);
    paging_finish(&c.pages);
    free(c.q);
    return !d->g.failed;
}
