/* What `run` computes: Q, K and V on the host, random or from a file, and which pages they go to. */
#include "problem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "input.h"
#include "parallel.h"
#include "random.h"

static size_t q_row(const problem *p) /* numbers of one sequence */
{
    return (size_t)p->kv_heads * (size_t)p->cfg.heads * (size_t)p->cfg.head_dim;
}

static size_t kv_row(const problem *p) /* numbers of one token */
{
    return (size_t)p->kv_heads * (size_t)p->cfg.head_dim;
}

int problem_stream(const problem *p, int sequence)
{
    return p->shared ? 0 : sequence;
}

/* Allocates the arrays; the streams must be known. */
static void allocate(problem *p)
{
    int streams = p->streams.batch;
    p->first = tool_allocate((size_t)(streams + 1) * sizeof *p->first);
    for (int s = 0; s < streams; s++) p->first[s + 1] = p->first[s] + p->streams.lengths[s];
    size_t tokens = (size_t)p->first[streams];
    p->q = tool_allocate((size_t)p->batch * q_row(p) * sizeof *p->q);
    p->k = tool_allocate(tokens * kv_row(p) * sizeof *p->k);
    p->v = tool_allocate(tokens * kv_row(p) * sizeof *p->v);
}

/* ---- Random data ---- */

typedef struct fill {
    problem *p;
    reference_data kind;
    uint64_t seed;
} fill;

/* Data of item i: sequence i / kv_heads, KV head i % kv_heads. */
static void fill_item(void *context, int64_t i)
{
    const fill *f = context;
    problem *p = f->p;
    const config *cfg = &p->cfg;
    int b = (int)(i / p->kv_heads), head = (int)(i % p->kv_heads), tokens = p->streams.lengths[b], dim = cfg->head_dim;
    size_t count = (size_t)tokens * (size_t)dim, rows = (size_t)cfg->heads * (size_t)dim;
    float *q = tool_allocate((2 * count + rows) * sizeof *q), *k = q + rows, *v = k + count;
    reference_rng rng;
    reference_seed(&rng, random_bits(f->seed, (uint64_t)i));
    reference_fill(f->kind, &rng, tokens, dim, cfg->heads, p->scale, q, k, v);
    reference_write(cfg->q_type, q, rows, p->q + (size_t)i * rows);
    for (int t = 0; t < tokens; t++) {
        size_t to = (size_t)(p->first[b] + t) * kv_row(p) + (size_t)(head * dim), from = (size_t)t * (size_t)dim;
        reference_write(cfg->q_type, k + from, (size_t)dim, p->k + to);
        reference_write(cfg->q_type, v + from, (size_t)dim, p->v + to);
    }
    free(q);
}

void problem_random(problem *out, const config *cfg, reference_data kind, int batch, const int32_t *lengths,
                    int kv_heads, bool csr, uint64_t seed)
{
    *out = (problem){.cfg = *cfg, .batch = batch, .kv_heads = kv_heads, .scale = 1 / sqrt(cfg->head_dim)};
    paging_make(&out->streams, batch, lengths, cfg->page_tokens, csr, 0, seed);
    out->sequences = out->streams;
    allocate(out);
    fill f = {out, kind, seed};
    parallel_for((int64_t)batch * kv_heads, fill_item, &f);
}

/* ---- Data of a file ---- */

static bool check_spec(const input *in, const config *cfg, gen_error *err)
{
    int group = in->heads / in->kv_heads;
    if (in->head_dim == cfg->head_dim && group == cfg->heads) return true;
    return gen_fail(err,
                    "the file has %d query heads over %d KV heads of %d channels; that takes a spec with d%d and h%d",
                    in->heads, in->kv_heads, in->head_dim, in->head_dim, group);
}

/* Any number type of a file into Q's type. */
static void convert(const config *cfg, const tensor *t, uint16_t *out)
{
    size_t count = (size_t)t->elements;
    if (input_type(t) == cfg->q_type) {
        memcpy(out, t->data, count * sizeof *out);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        float x;
        input_floats(t, i, 1, &x);
        out[i] = reference_narrow(cfg->q_type, x);
    }
}

static void take_input(problem *out, const config *cfg, const input *in, bool csr, uint64_t seed)
{
    int32_t tokens = in->tokens;
    *out = (problem){.cfg = *cfg, .batch = in->batch, .kv_heads = in->kv_heads, .shared = true, .scale = in->scale};
    paging_make(&out->streams, 1, &tokens, cfg->page_tokens, csr, 0, seed);
    paging_share(&out->sequences, &out->streams, in->batch, in->lengths, csr);
    allocate(out);
    convert(cfg, &in->q, out->q);
    convert(cfg, &in->k, out->k);
    convert(cfg, &in->v, out->v);
    out->clamped = input_clamped(in, out->first_clamped, sizeof out->first_clamped);
}

bool problem_read(problem *out, const config *cfg, const char *path, bool csr, uint64_t seed, gen_error *err)
{
    input in;
    memset(out, 0, sizeof *out);
    if (!input_open(path, &in, err)) return false;
    bool ok = check_spec(&in, cfg, err) && input_check_numbers(&in, err) && input_check_type(&in, cfg->q_type, err);
    if (ok) take_input(out, cfg, &in, csr, seed);
    input_close(&in);
    return ok;
}

void problem_finish(problem *p)
{
    if (p->shared) paging_finish(&p->sequences);
    paging_finish(&p->streams);
    free(p->first);
    free(p->q);
    free(p->k);
    free(p->v);
    memset(p, 0, sizeof *p);
}

float *problem_gather(const problem *p, const uint16_t *rows, int stream, int head, int tokens)
{
    size_t dim = (size_t)p->cfg.head_dim;
    float *out = tool_allocate((size_t)tokens * dim * sizeof *out);
    for (int t = 0; t < tokens; t++)
        reference_read(p->cfg.q_type, rows + (size_t)(p->first[stream] + t) * kv_row(p) + (size_t)head * dim, dim,
                       out + (size_t)t * dim);
    return out;
}

float *problem_query(const problem *p, int sequence, int head)
{
    size_t count = (size_t)p->cfg.heads * (size_t)p->cfg.head_dim;
    float *out = tool_allocate(count * sizeof *out);
    reference_read(p->cfg.q_type, p->q + (size_t)sequence * q_row(p) + (size_t)head * count, count, out);
    return out;
}
