/* What quantising costs on the user's own tensors. Each K and each V is quantised once for a sequence and KV head;
 * pairs only multiply the weights of the one with the numbers of the other. */
#include "scheme_errors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "parallel.h"
#include "reference_scheme.h"

/* A scheme of K or of V with its metadata type. */
typedef struct side {
    scheme scheme;
    number_type m_type;
} side;

/* What an item adds up: squares, but for the largest score error and the number of scores. */
enum { SUM_K, SUM_V, SUM_WEIGHTED, SUM_OUTPUT, SUM_SCORES, SUMS };
enum { K_ERROR, K_SCORE, K_LARGEST, K_SUMS };
enum { V_ERROR, V_WEIGHTED, V_SUMS };

enum { WAVE = 256 }; /* items whose sums are held at a time */

typedef struct measurement {
    const input *in;
    kept_tokens kept;
    side *k, *v;
    int k_count, v_count, count;
    int *pair_k, *pair_v; /* [count], rows of k and v */
    int64_t first;        /* item of the wave: sequence * kv_heads + KV head */
    size_t stride;        /* sums of an item: SUMS, k_count * K_SUMS, v_count * V_SUMS, count errors of outputs */
    double *sums;         /* [WAVE][stride] */
} measurement;

/* One sequence and KV head. */
typedef struct item {
    int tokens, dim, rows;
    float *k, *v, *cache;        /* [tokens][dim] */
    double *q, *out, *cache_out; /* [rows][dim] */
    double *score, *weight;      /* [rows][tokens], of the unquantised numbers */
    double *cache_weight;        /* [k_count][rows][tokens] */
} item;

double scheme_errors_bytes(const scheme_errors *e)
{
    return e->code_bytes + e->metadata_bytes;
}

/* ---- Attention ---- */

static double dot(const double *a, const float *b, int dim)
{
    double sum[4] = {0};
    int c = 0;
    for (; c + 4 <= dim; c += 4)
        for (int lane = 0; lane < 4; lane++) sum[lane] += a[c + lane] * (double)b[c + lane];
    for (; c < dim; c++) sum[0] += a[c] * (double)b[c];
    return sum[0] + sum[1] + (sum[2] + sum[3]);
}

static void find_scores(const item *it, const float *k, double scale, double *score)
{
    for (int t = 0; t < it->tokens; t++)
        for (int r = 0; r < it->rows; r++)
            score[(size_t)r * (size_t)it->tokens + (size_t)t] =
                scale * dot(it->q + r * it->dim, k + (size_t)t * (size_t)it->dim, it->dim);
}

static void softmax(const item *it, double *score)
{
    for (int r = 0; r < it->rows; r++) {
        double *row = score + (size_t)r * (size_t)it->tokens, largest = row[0], sum = 0;
        for (int t = 1; t < it->tokens; t++) largest = fmax(largest, row[t]);
        for (int t = 0; t < it->tokens; t++) sum += row[t] = exp(row[t] - largest);
        for (int t = 0; t < it->tokens; t++) row[t] /= sum;
    }
}

static void weigh(const item *it, const double *weight, const float *v, double *out)
{
    memset(out, 0, (size_t)(it->rows * it->dim) * sizeof *out);
    for (int t = 0; t < it->tokens; t++) {
        const float *row = v + (size_t)t * (size_t)it->dim;
        for (int r = 0; r < it->rows; r++) {
            double w = weight[(size_t)r * (size_t)it->tokens + (size_t)t], *o = out + r * it->dim;
            for (int c = 0; c < it->dim; c++) o[c] += w * (double)row[c];
        }
    }
}

/* ---- Sums of squares ---- */

/* ||a - b||^2, or ||a||^2 if b is NULL. */
static double square(const float *a, const float *b, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        double x = (double)a[i] - (b != NULL ? (double)b[i] : 0);
        sum += x * x;
    }
    return sum;
}

static double square_wide(const double *a, const double *b, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        double x = a[i] - (b != NULL ? b[i] : 0);
        sum += x * x;
    }
    return sum;
}

/* The same with each token's square times its weight, added over the rows. */
static double square_weighted(const item *it, const float *a, const float *b)
{
    double sum = 0;
    for (int t = 0; t < it->tokens; t++) {
        double weight = 0;
        size_t at = (size_t)t * (size_t)it->dim;
        for (int r = 0; r < it->rows; r++) weight += it->weight[(size_t)r * (size_t)it->tokens + (size_t)t];
        sum += weight * square(a + at, b != NULL ? b + at : NULL, (size_t)it->dim);
    }
    return sum;
}

/* ---- One sequence and KV head ---- */

static void item_make(item *it, const measurement *m, int sequence, int head)
{
    const input *in = m->in;
    *it = (item){.tokens = in->lengths[sequence], .dim = in->head_dim, .rows = in->heads / in->kv_heads};
    size_t dim = (size_t)it->dim, rows = (size_t)it->rows, tokens = (size_t)it->tokens, count = tokens * dim;
    it->k = tool_allocate((3 * count + rows * dim) * sizeof *it->k);
    it->v = it->k + count;
    it->cache = it->v + count;
    float *q = it->cache + count;
    for (size_t t = 0; t < tokens; t++) {
        size_t from = (t * (size_t)in->kv_heads + (size_t)head) * dim;
        input_floats(&in->k, from, dim, it->k + t * dim);
        input_floats(&in->v, from, dim, it->v + t * dim);
    }
    input_floats(&in->q, ((size_t)sequence * (size_t)in->kv_heads + (size_t)head) * rows * dim, rows * dim, q);
    it->q = tool_allocate((3 * rows * dim + (2 + (size_t)m->k_count) * rows * tokens) * sizeof *it->q);
    it->out = it->q + rows * dim;
    it->cache_out = it->out + rows * dim;
    it->score = it->cache_out + rows * dim;
    it->weight = it->score + rows * tokens;
    it->cache_weight = it->weight + rows * tokens;
    for (size_t i = 0; i < rows * dim; i++) it->q[i] = (double)q[i];
}

static void item_finish(item *it)
{
    free(it->k);
    free(it->q);
}

/* What a cache of x [tokens][dim] holds, in it->cache. */
static void fill_cache(const measurement *m, const item *it, const side *s, const float *x)
{
    if (!reference_scheme_cache(&s->scheme, s->m_type, x, it->tokens, it->dim, m->kept.sink, m->kept.recent, it->cache))
        tool_out_of_memory();
}

static void measure_truth(const measurement *m, const item *it, double *sums)
{
    size_t count = (size_t)it->tokens * (size_t)it->dim, scores = (size_t)it->rows * (size_t)it->tokens;
    find_scores(it, it->k, m->in->scale, it->score);
    memcpy(it->weight, it->score, scores * sizeof *it->weight);
    softmax(it, it->weight);
    weigh(it, it->weight, it->v, it->out);
    sums[SUM_K] = square(it->k, NULL, count);
    sums[SUM_V] = square(it->v, NULL, count);
    sums[SUM_WEIGHTED] = square_weighted(it, it->v, NULL);
    sums[SUM_OUTPUT] = square_wide(it->out, NULL, (size_t)(it->rows * it->dim));
    sums[SUM_SCORES] = (double)scores;
}

static void measure_k(const measurement *m, const item *it, int index, double *sums)
{
    size_t scores = (size_t)it->rows * (size_t)it->tokens;
    double *score = it->cache_weight + (size_t)index * scores;
    fill_cache(m, it, &m->k[index], it->k);
    find_scores(it, it->cache, m->in->scale, score);
    sums[K_ERROR] = square(it->cache, it->k, (size_t)it->tokens * (size_t)it->dim);
    sums[K_SCORE] = square_wide(score, it->score, scores);
    for (size_t i = 0; i < scores; i++) sums[K_LARGEST] = fmax(sums[K_LARGEST], fabs(score[i] - it->score[i]));
    softmax(it, score);
}

/* One scheme of V, and the outputs of all pairs that have it. */
static void measure_v(const measurement *m, const item *it, int index, double *sums, double *outputs)
{
    size_t scores = (size_t)it->rows * (size_t)it->tokens;
    fill_cache(m, it, &m->v[index], it->v);
    sums[V_ERROR] = square(it->cache, it->v, (size_t)it->tokens * (size_t)it->dim);
    sums[V_WEIGHTED] = square_weighted(it, it->cache, it->v);
    for (int p = 0; p < m->count; p++) {
        if (m->pair_v[p] != index) continue;
        weigh(it, it->cache_weight + (size_t)m->pair_k[p] * scores, it->cache, it->cache_out);
        outputs[p] = square_wide(it->cache_out, it->out, (size_t)(it->rows * it->dim));
    }
}

static double *k_sums(double *sums, int index)
{
    return sums + SUMS + index * K_SUMS;
}

static double *v_sums(const measurement *m, double *sums, int index)
{
    return k_sums(sums, m->k_count) + index * V_SUMS;
}

static void measure_item(void *context, int64_t i)
{
    const measurement *m = context;
    double *sums = m->sums + (size_t)i * m->stride;
    int64_t number = m->first + i;
    int sequence = (int)(number / m->in->kv_heads), head = (int)(number % m->in->kv_heads);
    item it;
    memset(sums, 0, m->stride * sizeof *sums);
    if (m->in->lengths[sequence] == 0) return;
    item_make(&it, m, sequence, head);
    measure_truth(m, &it, sums);
    for (int k = 0; k < m->k_count; k++) measure_k(m, &it, k, k_sums(sums, k));
    for (int v = 0; v < m->v_count; v++) measure_v(m, &it, v, v_sums(m, sums, v), v_sums(m, sums, m->v_count));
    item_finish(&it);
}

/* ---- All of them ---- */

static int find_side(side *sides, int *count, const scheme *s, number_type m_type)
{
    for (int i = 0; i < *count; i++)
        if (sides[i].scheme.codes == s->codes && sides[i].scheme.direction == s->direction &&
            sides[i].scheme.group == s->group && sides[i].m_type == m_type)
            return i;
    sides[*count] = (side){*s, m_type};
    return (*count)++;
}

static void measurement_make(measurement *m, const input *in, const scheme_pair *pairs, int count, kept_tokens kept)
{
    *m = (measurement){.in = in, .kept = kept, .count = count};
    m->k = tool_allocate((size_t)count * sizeof *m->k);
    m->v = tool_allocate((size_t)count * sizeof *m->v);
    m->pair_k = tool_allocate((size_t)count * sizeof *m->pair_k);
    m->pair_v = tool_allocate((size_t)count * sizeof *m->pair_v);
    for (int p = 0; p < count; p++) {
        m->pair_k[p] = find_side(m->k, &m->k_count, &pairs[p].k, pairs[p].m_type);
        m->pair_v[p] = find_side(m->v, &m->v_count, &pairs[p].v, pairs[p].m_type);
    }
    m->stride = SUMS + (size_t)m->k_count * K_SUMS + (size_t)m->v_count * V_SUMS + (size_t)count;
    m->sums = tool_allocate(WAVE * m->stride * sizeof *m->sums);
}

static void measurement_finish(measurement *m)
{
    free(m->k);
    free(m->v);
    free(m->pair_k);
    free(m->pair_v);
    free(m->sums);
}

/* Adds an item's sums to the total, in the order of the items whatever the threads do. */
static void add_sums(const measurement *m, double *total, double *sums)
{
    for (int k = 0; k < m->k_count; k++) {
        double *largest = &k_sums(total, k)[K_LARGEST], *other = &k_sums(sums, k)[K_LARGEST];
        *largest = fmax(*largest, *other);
        *other = 0;
    }
    for (size_t i = 0; i < m->stride; i++) total[i] += sums[i];
}

static double relative(double error, double size)
{
    return error == 0 ? 0 : sqrt(error / size);
}

/* Bytes that K or V of all tokens of the sequences take, of one KV head. */
static double stored_bytes(const input *in, const scheme *s, kept_tokens kept, const tensor *as_came)
{
    double bytes = 0, row = (double)in->head_dim * number_info(input_type(as_came))->bytes;
    int block = scheme_block_tokens(s),
        block_bytes = scheme_block_code_bytes(s, in->head_dim) + scheme_block_metadata_bytes(s, in->head_dim);
    for (int b = 0; b < in->batch; b++) {
        int quantised = scheme_quantised_tokens(s, in->lengths[b], kept.sink, kept.recent);
        bytes += (double)(quantised / block) * block_bytes + (in->lengths[b] - quantised) * row;
    }
    return bytes;
}

static void fill_result(const measurement *m, const scheme_pair *pair, int index, double *total, scheme_errors *out)
{
    const double *k = k_sums(total, m->pair_k[index]), *v = v_sums(m, total, m->pair_v[index]);
    int dim = m->in->head_dim;
    double k_block = scheme_block_tokens(&pair->k), v_block = scheme_block_tokens(&pair->v), tokens = 0;
    for (int b = 0; b < m->in->batch; b++) tokens += m->in->lengths[b];
    *out = (scheme_errors){
        .pair = *pair,
        .code_bytes =
            scheme_block_code_bytes(&pair->k, dim) / k_block + scheme_block_code_bytes(&pair->v, dim) / v_block,
        .metadata_bytes =
            scheme_block_metadata_bytes(&pair->k, dim) / k_block + scheme_block_metadata_bytes(&pair->v, dim) / v_block,
        .stored_bytes =
            (stored_bytes(m->in, &pair->k, m->kept, &m->in->k) + stored_bytes(m->in, &pair->v, m->kept, &m->in->v)) /
            tokens,
        .k = relative(k[K_ERROR], total[SUM_K]),
        .v = relative(v[V_ERROR], total[SUM_V]),
        .score_largest = k[K_LARGEST],
        .score_rms = sqrt(k[K_SCORE] / total[SUM_SCORES]),
        .v_weighted = relative(v[V_WEIGHTED], total[SUM_WEIGHTED]),
        .output = relative(v_sums(m, total, m->v_count)[index], total[SUM_OUTPUT]),
    };
}

void scheme_errors_measure(const input *in, const scheme_pair *pairs, int count, kept_tokens kept, scheme_errors *out)
{
    measurement m;
    measurement_make(&m, in, pairs, count, kept);
    double *total = tool_allocate(m.stride * sizeof *total);
    int64_t items = (int64_t)in->batch * in->kv_heads;
    for (m.first = 0; m.first < items; m.first += WAVE) {
        int64_t wave = items - m.first < WAVE ? items - m.first : WAVE;
        parallel_for(wave, measure_item, &m);
        for (int64_t i = 0; i < wave; i++) add_sums(&m, total, m.sums + (size_t)i * m.stride);
    }
    for (int p = 0; p < count; p++) fill_result(&m, &pairs[p], p, total, &out[p]);
    free(total);
    measurement_finish(&m);
}
