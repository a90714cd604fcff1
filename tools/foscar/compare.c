/* The host's side of `run`: the pages as they must be, and how far an output is from float64 attention over a cache. */
#include "compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "fragment.h"
#include "parallel.h"

enum {
    POISON = 0xff, /* a NaN in every number type */
    PAGE_GAP = 256 /* bytes between pages, so that page_stride is not the obvious one */
};

void pool_make(page_pool *out, const problem *p)
{
    page_layout page = fragment_page_layout(&p->cfg);
    *out = (page_pool){.head_stride = page.bytes, .page_stride = (int64_t)page.bytes * p->kv_heads + PAGE_GAP};
    out->bytes = out->page_stride * p->streams.pages;
    out->pages = tool_allocate((size_t)out->bytes);
    memset(out->pages, POISON, (size_t)out->bytes);
}

void pool_finish(page_pool *p)
{
    free(p->pages);
    memset(p, 0, sizeof *p);
}

static reference_cache host_cache(const config *cfg, const paging *pages, const page_pool *from)
{
    return (reference_cache){
        .cfg = cfg,
        .pages = from->pages,
        .page_stride = from->page_stride,
        .head_stride = from->head_stride,
        .page_table = pages->table,
        .page_indptr = pages->csr ? pages->indptr : NULL,
        .table_stride = pages->table_stride,
    };
}

typedef struct packing {
    const problem *p;
    reference_cache cache;
} packing;

static void pack_item(void *context, int64_t i)
{
    const packing *job = context;
    const problem *p = job->p;
    int stream = (int)(i / p->kv_heads), head = (int)(i % p->kv_heads), tokens = p->streams.lengths[stream],
        dim = p->cfg.head_dim;
    for (int side = REFERENCE_K; side <= REFERENCE_V; side++) {
        float *rows = problem_gather(p, side == REFERENCE_K ? p->k : p->v, stream, head, tokens);
        for (int t = 0; t < tokens; t++)
            reference_append(&job->cache, (reference_side)side, stream, head, t, rows + (size_t)t * (size_t)dim);
        free(rows);
    }
}

void pool_pack(page_pool *out, const problem *p)
{
    packing job = {p, host_cache(&p->cfg, &p->streams, out)};
    parallel_for((int64_t)p->streams.batch * p->kv_heads, pack_item, &job);
}

/* A copy in which the places past the ends of sequences, which may hold anything, hold tokens of zeros. */
static page_pool without_padding(const page_pool *from, const problem *p)
{
    static const float zeros[REFERENCE_HEAD_DIM_MAX];
    page_pool copy = *from;
    copy.pages = tool_allocate((size_t)from->bytes);
    memcpy(copy.pages, from->pages, (size_t)from->bytes);
    const reference_cache cache = host_cache(&p->cfg, &p->streams, &copy);
    for (int s = 0; s < p->streams.batch; s++)
        for (int t = p->streams.lengths[s]; t % p->cfg.page_tokens != 0; t++)
            for (int head = 0; head < p->kv_heads; head++)
                for (int side = REFERENCE_K; side <= REFERENCE_V; side++)
                    reference_append(&cache, (reference_side)side, s, head, t, zeros);
    return copy;
}

static void tell_difference(const page_pool *got, const page_pool *expected, const problem *p, char *text, size_t size)
{
    int64_t count = 0, first = 0;
    for (int64_t i = got->bytes - 1; i >= 0; i--)
        if (got->pages[i] != expected->pages[i]) count++, first = i;
    int64_t within = first % got->page_stride;
    snprintf(text, size,
             "pages: %lld bytes differ, the first in page %lld, KV head %lld of %d, byte %lld: 0x%02x, not 0x%02x",
             (long long)count, (long long)(first / got->page_stride), (long long)(within / got->head_stride),
             p->kv_heads, (long long)(within % got->head_stride), got->pages[first], expected->pages[first]);
}

bool pool_same(const page_pool *got, const page_pool *expected, const problem *p, char *text, size_t size)
{
    page_pool a = without_padding(got, p), b = without_padding(expected, p);
    bool same = memcmp(a.pages, b.pages, (size_t)a.bytes) == 0;
    if (!same) tell_difference(&a, &b, p, text, size);
    pool_finish(&a);
    pool_finish(&b);
    return same;
}

/* Sums of one sequence and KV head. */
typedef struct item_result {
    double difference, size;               /* squares, of the output */
    double scheme_difference, scheme_size; /* squares, of the scheme */
    double worst_row, row_excess, error_bound, lse_error;
    bool failed, empty_rows_good, nan_rows_good;
} item_result;

typedef struct comparing {
    const problem *p;
    reference_cache cache;
    const float *out, *lse;
    double bound;
    bool with_scheme;
    item_result *items;
} comparing;

static double square_sum(const double *x, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += x[i] * x[i];
    return sum;
}

static bool all_nan(const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!isnan(x[i])) return false;
    return true;
}

/* Compares the rows of one item with `reference`, `reference_lse`. */
static void compare_rows(const comparing *job, int64_t item, int tokens, const double *reference,
                         const double *reference_lse, const double *largest_score, item_result *r)
{
    int heads = job->p->cfg.heads;
    size_t dim = (size_t)job->p->cfg.head_dim;
    const float *out = job->out + (size_t)item * (size_t)heads * dim;
    for (int h = 0; h < heads; h++) {
        const double *want = reference + (size_t)h * dim;
        const float *got = out + (size_t)h * dim;
        if (isnan(want[0])) {
            r->nan_rows_good = r->nan_rows_good && all_nan(got, dim) &&
                               (job->lse == NULL || all_nan(&job->lse[item * heads + h], 1));
            continue;
        }
        if (largest_score[h] > COMPARE_SCORE_LIMIT) continue;
        double size = square_sum(want, dim), difference = 0, bound = reference_row_bound(job->bound, largest_score[h]);
        for (size_t c = 0; c < dim; c++) difference += ((double)got[c] - want[c]) * ((double)got[c] - want[c]);
        r->difference += difference;
        r->size += size;
        double row = sqrt(size > 0 ? difference / size : difference);
        if (isnan(row)) row = INFINITY;
        r->worst_row = fmax(r->worst_row, row);
        r->row_excess = fmax(r->row_excess, row / (2 * bound));
        r->error_bound = fmax(r->error_bound, bound);
        if (tokens == 0 && !(difference == 0)) r->empty_rows_good = false;
        if (job->lse == NULL) continue;
        float lse = job->lse[item * heads + h];
        if (tokens == 0) {
            if (!(isinf(lse) && lse < 0)) r->empty_rows_good = false;
            continue;
        }
        double off = fabs((double)lse - reference_lse[h]) / (1 + fabs(reference_lse[h]));
        if (!(off <= r->lse_error)) r->lse_error = isnan(off) ? INFINITY : off;
    }
}

static void compare_item(void *context, int64_t i)
{
    const comparing *job = context;
    const problem *p = job->p;
    item_result *r = &job->items[i];
    int b = (int)(i / p->kv_heads), head = (int)(i % p->kv_heads), tokens = p->sequences.lengths[b],
        dim = p->cfg.head_dim, heads = p->cfg.heads;
    size_t count = (size_t)tokens * (size_t)dim, rows = (size_t)heads * (size_t)dim;
    float *q = problem_query(p, b, head), *k = tool_allocate(2 * count * sizeof *k), *v = k + count;
    double *reference = tool_allocate((2 * rows + 2 * (size_t)heads) * sizeof *reference), *before = reference + rows,
           *lse = before + rows, *largest = lse + heads;
    r->empty_rows_good = r->nan_rows_good = true;
    r->failed = !reference_gather(&job->cache, b, head, tokens, k, v) ||
                !reference_attention(k, v, tokens, dim, q, heads, p->scale, reference, lse, largest);
    if (!r->failed && job->out != NULL) compare_rows(job, i, tokens, reference, lse, largest, r);
    if (!r->failed && job->with_scheme) {
        float *k_before = problem_gather(p, p->k, problem_stream(p, b), head, tokens),
              *v_before = problem_gather(p, p->v, problem_stream(p, b), head, tokens);
        r->failed = !reference_attention(k_before, v_before, tokens, dim, q, heads, p->scale, before, NULL, NULL);
        for (size_t c = 0; c < rows; c++)
            r->scheme_difference += (reference[c] - before[c]) * (reference[c] - before[c]);
        r->scheme_size = square_sum(before, rows);
        free(k_before);
        free(v_before);
    }
    free(q);
    free(k);
    free(reference);
}

double compare_bound(number_type o_type, bool ordinary, bool independent)
{
    double rounding = o_type == NUMBER_BF16 ? ldexp(1, -8) : o_type == NUMBER_F16 ? ldexp(1, -11) : 0;
    return (ordinary ? 2e-5 : 1e-4) + (independent ? rounding / sqrt(3) : rounding);
}

/* The relative error of sums of squares. */
static double relative(double difference, double size)
{
    if (isnan(difference)) return INFINITY;
    return sqrt(size > 0 ? difference / size : difference);
}

bool compare_decode(const problem *p, const page_pool *pages, const float *out, const float *lse, double bound,
                    bool with_scheme, comparison *result)
{
    int64_t items = (int64_t)p->batch * p->kv_heads;
    comparing job = {p,     host_cache(&p->cfg, &p->sequences, pages),       out, lse,
                     bound, with_scheme, tool_allocate((size_t)items * sizeof *job.items)};
    parallel_for(items, compare_item, &job);
    item_result sum = {.empty_rows_good = true, .nan_rows_good = true, .error_bound = bound};
    for (int64_t i = 0; i < items; i++) { /* in order: the same sum on every machine */
        const item_result *r = &job.items[i];
        sum.failed = sum.failed || r->failed;
        sum.difference += r->difference;
        sum.size += r->size;
        sum.scheme_difference += r->scheme_difference;
        sum.scheme_size += r->scheme_size;
        sum.worst_row = fmax(sum.worst_row, r->worst_row);
        sum.row_excess = fmax(sum.row_excess, r->row_excess);
        sum.error_bound = fmax(sum.error_bound, r->error_bound);
        sum.lse_error = fmax(sum.lse_error, r->lse_error);
        sum.empty_rows_good = sum.empty_rows_good && r->empty_rows_good;
        sum.nan_rows_good = sum.nan_rows_good && r->nan_rows_good;
    }
    free(job.items);
    *result = (comparison){
        .error = relative(sum.difference, sum.size),
        .error_bound = sum.error_bound,
        .worst_row = sum.worst_row,
        .row_excess = sum.row_excess,
        .lse_error = sum.lse_error,
        .scheme_error = relative(sum.scheme_difference, sum.scheme_size),
        .empty_rows_good = sum.empty_rows_good,
        .nan_rows_good = sum.nan_rows_good,
    };
    return !sum.failed;
}
