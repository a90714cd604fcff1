/* A small decode problem in the memory of the PTX interpreter. */
#include "decode_fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROW_GAP = 32 }; /* bytes between the sequences of q and of the output */

static void *at(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

/* A defined block of device memory; 0: no memory. */
static uint64_t allocate_filled(decode_fixture *f, uint64_t bytes, uint8_t byte)
{
    uint64_t address = emulator_memory_allocate(f->memory, bytes);
    if (address == 0) return 0;
    memset(at(address), byte, bytes);
    emulator_memory_define(f->memory, address, bytes);
    return address;
}

static void choose_lengths(decode_fixture *f, reference_rng *rng)
{
    int32_t page = f->cfg.page_tokens, block = f->plan.block_tokens;
    const int32_t lengths[DECODE_BATCH] = {
        page + 1, 0, 5 * block + 1 + (int32_t)reference_below(rng, (uint32_t)block), 1, block, page - 1};
    memcpy(f->lengths, lengths, sizeof lengths);
}

/* A padded table of shuffled pages, and pages whose unused bytes hold NaNs. */
static bool make_cache(decode_fixture *f, reference_rng *rng)
{
    int32_t stride = 1, count = DECODE_BATCH;
    page_layout page = fragment_page_layout(&f->cfg);
    for (int b = 0; b < DECODE_BATCH; b++) {
        int32_t pages = (f->lengths[b] + f->cfg.page_tokens - 1) / f->cfg.page_tokens;
        if (pages > stride) stride = pages;
    }
    count *= stride;
    int64_t page_stride = (int64_t)page.bytes * DECODE_KV_HEADS + 64;
    f->table = allocate_filled(f, (uint64_t)count * sizeof(int32_t), 0);
    f->lengths_at = allocate_filled(f, sizeof f->lengths, 0);
    f->pages = allocate_filled(f, (uint64_t)(count * page_stride), 0xff);
    if (f->table == 0 || f->lengths_at == 0 || f->pages == 0) return false;
    memcpy(at(f->lengths_at), f->lengths, sizeof f->lengths);
    int32_t *table = at(f->table);
    for (int32_t i = 0; i < count; i++) {
        int32_t j = (int32_t)reference_below(rng, (uint32_t)(i + 1));
        table[i] = table[j];
        table[j] = i;
    }
    f->cache = (reference_cache){.cfg = &f->cfg,
                                 .pages = at(f->pages),
                                 .page_stride = page_stride,
                                 .head_stride = page.bytes,
                                 .page_table = table,
                                 .table_stride = stride};
    return true;
}

/* Data, cache and answer of one sequence and KV head. */
static bool make_item(decode_fixture *f, int sequence, int head, reference_data data, reference_rng *rng)
{
    int tokens = f->lengths[sequence], dim = f->cfg.head_dim, heads = f->cfg.heads;
    size_t rows = (size_t)heads * (size_t)dim, count = (size_t)tokens * (size_t)dim;
    size_t item = (size_t)(sequence * DECODE_KV_HEADS + head);
    float *q = malloc((rows + 2 * count + 1) * sizeof *q);
    if (q == NULL) return false;
    float *k = q + rows, *v = k + count;
    double scale = 1 / sqrt(dim);
    reference_fill(data, rng, tokens, dim, heads, scale, q, k, v);
    char *q_row = (char *)at(f->q) + sequence * f->q_stride + (size_t)head * rows * sizeof(uint16_t);
    reference_write(f->cfg.q_type, q, rows, q_row);
    reference_read(f->cfg.q_type, q_row, rows, q);
    for (int t = 0; t < tokens; t++) {
        reference_append(&f->cache, REFERENCE_K, sequence, head, t, k + (size_t)t * (size_t)dim);
        reference_append(&f->cache, REFERENCE_V, sequence, head, t, v + (size_t)t * (size_t)dim);
    }
    bool ok = reference_gather(&f->cache, sequence, head, tokens, k, v) &&
              reference_attention(k, v, tokens, dim, q, heads, scale, f->expected + item * rows,
                                  f->expected_lse + item * (size_t)heads, f->largest_score + item * (size_t)heads);
    free(q);
    return ok;
}

bool decode_fixture_make(decode_fixture *f, const char *spec, reference_data data, uint64_t seed)
{
    gen_error err;
    reference_rng rng;
    memset(f, 0, sizeof *f);
    if (!config_parse(spec, &f->cfg, &err)) return false;
    f->cfg.o_type = NUMBER_F32;
    f->ignored = -1;
    f->bound = reference_data_is_ordinary(data) ? 2e-5 : 1e-4;
    reference_seed(&rng, seed);
    f->memory = emulator_memory_create();
    if (f->memory == NULL || !decode_plan_make(&f->cfg, &f->plan, &err) || !generate_decode(&f->cfg, &f->text, &err))
        return false;
    size_t rows = (size_t)DECODE_BATCH * DECODE_KV_HEADS * (size_t)f->cfg.heads, dim = (size_t)f->cfg.head_dim;
    f->q_stride = (int64_t)(rows / DECODE_BATCH * dim * sizeof(uint16_t)) + ROW_GAP;
    f->out_stride = (int64_t)(rows / DECODE_BATCH * dim * sizeof(float)) + ROW_GAP;
    f->q = allocate_filled(f, (uint64_t)f->q_stride * DECODE_BATCH, 0xff);
    f->expected = calloc(rows * dim, sizeof *f->expected);
    f->expected_lse = calloc(rows, sizeof *f->expected_lse);
    f->largest_score = calloc(rows, sizeof *f->largest_score);
    choose_lengths(f, &rng);
    if (f->q == 0 || f->expected == NULL || f->expected_lse == NULL || f->largest_score == NULL || !make_cache(f, &rng)) return false;
    for (int b = 0; b < DECODE_BATCH; b++)
        for (int h = 0; h < DECODE_KV_HEADS; h++)
            if (!make_item(f, b, h, data, &rng)) return false;
    return true;
}

void decode_fixture_finish(decode_fixture *f)
{
    kernel_text_finish(&f->text);
    emulator_memory_destroy(f->memory);
    free(f->expected);
    free(f->expected_lse);
    free(f->largest_score);
    memset(f, 0, sizeof *f);
}

/* ---- Merge ---- */

typedef struct record {
    int32_t state, item, unused[2];
} record;

static const record *record_at(const decode_fixture *f, int worker, int slot)
{
    return (const record *)at(f->workspace) + 2 * worker + slot;
}

static const float *partial_at(const decode_fixture *f, int workers, int worker, int slot)
{
    const char *partials = (const char *)at(f->workspace) + (size_t)(2 * workers) * SEGMENT_RECORD_BYTES;
    return (const float *)(const void *)(partials + (size_t)(2 * worker + slot) * decode_partial_bytes(&f->cfg));
}

/* Adds a partial result of one head to sums that are relative to 2^*largest. */
static void add_partial(const float *o, double lse2, int dim, double *sums, double *weight, double *largest)
{
    double top = lse2 > *largest ? lse2 : *largest, old = exp2(*largest - top), new = exp2(lse2 - top);
    for (int c = 0; c < dim; c++) sums[c] = sums[c] * old + (double)o[c] * new;
    *weight = *weight * old + new;
    *largest = top;
}

/* The item that begins in slot 1 of a worker and goes on in slot 0 of those after it. False: the chain has no end. */
static bool merge_item(decode_fixture *f, int workers, int first)
{
    int item = record_at(f, first, 1)->item, heads = f->cfg.heads, dim = f->cfg.head_dim, last = first;
    while (last == first || record_at(f, last, 0)->state == SEGMENT_OPEN)
        if (++last == workers) return false;
    if (record_at(f, last, 0)->state != SEGMENT_LAST) return false;
    char *row = (char *)at(f->out) + item / DECODE_KV_HEADS * f->out_stride +
                (size_t)(item % DECODE_KV_HEADS * heads * dim) * sizeof(float);
    for (int h = 0; h < heads; h++) {
        double sums[256] = {0}, weight = 0, largest = -INFINITY;
        for (int w = first; w <= last; w++) {
            const float *partial = partial_at(f, workers, w, w == first);
            add_partial(partial + h * dim, (double)partial[heads * dim + h], dim, sums, &weight, &largest);
        }
        for (int c = 0; c < dim; c++) ((float *)(void *)row)[h * dim + c] = (float)(sums[c] / weight);
        ((float *)at(f->lse))[item * heads + h] = (float)((largest + log2(weight)) * log(2));
    }
    return true;
}

/* ---- Runs ---- */

static decode_outcome wrong(emulator_error *error, const char *format, double value)
{
    *error = (emulator_error){.fault = EMULATOR_OK, .block = -1, .warp = -1};
    snprintf(error->message, sizeof error->message, format, value);
    return DECODE_WRONG;
}

static decode_outcome compare(decode_fixture *f, emulator_error *error)
{
    const double lse_bound = 10 * f->bound;
    size_t heads = (size_t)DECODE_KV_HEADS * (size_t)f->cfg.heads, dim = (size_t)f->cfg.head_dim, row = heads * dim;
    const float *lse = at(f->lse);
    int workers = DECODE_BLOCKS * f->plan.consumers;
    for (int w = 0; w < workers; w++)
        if (record_at(f, w, 1)->state == SEGMENT_OPEN && !merge_item(f, workers, w))
            return wrong(error, "the segments of item %.0f have no end", record_at(f, w, 1)->item);
    for (size_t b = 0; b < DECODE_BATCH; b++) {
        if ((int)b == f->ignored) continue;
        const float *got = (const float *)(const void *)((const char *)at(f->out) + (int64_t)b * f->out_stride);
        for (size_t h = 0; h < heads; h++) {
            const double *expected = f->expected + b * row + h * dim, largest = f->largest_score[b * heads + h];
            double e = reference_error(got + h * dim, expected, dim);
            if (isnan(expected[0])) {
                for (size_t c = 0; c < dim; c++)
                    if (!isnan(got[h * dim + c]) || !isnan(lse[b * heads + h])) return wrong(error, "a row of a q of NaN is %g", (double)got[h * dim + c]);
                continue;
            }
            if (largest > 65536) continue; /* no order among such scores in float32 */
            if (!(e <= reference_row_bound(f->bound, largest))) return wrong(error, "the relative error of a row is %g", e);
            double want = f->expected_lse[b * heads + h], found = (double)lse[b * heads + h];
            if (f->lengths[b] == 0 ? found != -INFINITY : !(fabs(found - want) <= lse_bound * (1 + fabs(want))))
                return wrong(error, "the lse is %g", found);
        }
    }
    return DECODE_PASSED;
}

static bool launch(decode_fixture *f, const emulator_module *module, emulator_schedule schedule, uint64_t seed,
                   emulator_counts *counts, emulator_error *error)
{
    struct {
#define PARAM(name, bytes, meaning) uint64_t name;
        DECODE_PARAMS(PARAM)
#undef PARAM
    } v = {
        .q = f->q,
        .out = f->out,
        .lse = f->lse,
        .pages = f->pages,
        .page_stride = (uint64_t)f->cache.page_stride,
        .head_stride = (uint64_t)f->cache.head_stride,
        .page_table = f->table,
        .lengths = f->lengths_at,
        .workspace = f->workspace,
        .q_stride = (uint64_t)f->q_stride,
        .out_stride = (uint64_t)f->out_stride,
        .table_stride = (uint64_t)f->cache.table_stride,
        .batch = DECODE_BATCH,
        .kv_heads = DECODE_KV_HEADS,
    };
    const float scale_log2 = (float)(1 / sqrt(f->cfg.head_dim) * 1.4426950408889634);
    memcpy(&v.scale_log2, &scale_log2, sizeof scale_log2);
    void *parameters[] = {
#define PARAM(name, bytes, meaning) &v.name,
        DECODE_PARAMS(PARAM)
#undef PARAM
    };
    const emulator_launch_config how = {
        .module = module,
        .entry = f->text.entry,
        .grid = {DECODE_BLOCKS, 1, 1},
        .block = {(uint32_t)f->text.threads, 1, 1},
        .shared_bytes = f->text.shared_bytes,
        .parameters = parameters,
        .memory = f->memory,
        .schedule = schedule,
        .seed = seed,
        .fast = true,
        .judge = true,
    };
    return emulator_launch(&how, counts, error);
}

static void release(decode_fixture *f, uint64_t *address)
{
    if (*address != 0) emulator_memory_free(f->memory, *address);
    *address = 0;
}

decode_outcome decode_fixture_run(decode_fixture *f, const char *text, size_t length, emulator_schedule schedule,
                                  uint64_t seed, emulator_counts *counts, emulator_error *error)
{
    size_t lse_bytes = (size_t)DECODE_BATCH * DECODE_KV_HEADS * (size_t)f->cfg.heads * sizeof(float);
    uint64_t workspace_bytes = decode_workspace_bytes(&f->plan, DECODE_BLOCKS);
    emulator_module *module = emulator_module_parse(text, length, "decode", error);
    if (module == NULL) return DECODE_FAULT;
    f->out = emulator_memory_allocate(f->memory, (uint64_t)f->out_stride * DECODE_BATCH);
    f->lse = emulator_memory_allocate(f->memory, lse_bytes);
    f->workspace = emulator_memory_allocate(f->memory, workspace_bytes);
    decode_outcome outcome;
    if (f->out == 0 || f->lse == 0 || f->workspace == 0)
        outcome = wrong(error, "no memory", 0);
    else {
        memset(at(f->out), 0xff, (size_t)f->out_stride * DECODE_BATCH); /* NaNs, and undefined all the same */
        memset(at(f->lse), 0xff, lse_bytes);
        outcome = launch(f, module, schedule, seed, counts, error) ? compare(f, error) : DECODE_FAULT;
    }
    release(f, &f->out);
    release(f, &f->lse);
    release(f, &f->workspace);
    emulator_module_destroy(module);
    return outcome;
}
