/* The numbers of the user's tensors: what no kernel can take is refused with its place, what is clamped is told. */
#include "input.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "compare.h"
#include "parallel.h"

/* "tensor 'k': element [12, 0, 5] is 1e+06" */
static void name_element(const tensor *t, char name, int64_t at, char *text, size_t size)
{
    float x;
    input_floats(t, (size_t)at, 1, &x);
    snprintf(text, size, "tensor '%c': element [%lld, %lld, %lld] is %g", name,
             (long long)(at / t->shape[2] / t->shape[1]), (long long)(at / t->shape[2] % t->shape[1]),
             (long long)(at % t->shape[2]), (double)x);
}

/* The first element of q, k and v, in this order, for which `wrong` holds, named in text; returns how many there are in all. */
static int64_t find_elements(const input *in, const char *names, bool (*wrong)(float x), char *text, size_t size)
{
    const tensor *const tensors[] = {&in->q, &in->k, &in->v};
    int64_t found = 0;
    for (int i = 0; i < 3; i++) {
        if (strchr(names, "qkv"[i]) == NULL) continue;
        for (int64_t at = 0; at < tensors[i]->elements; at++) {
            float x;
            input_floats(tensors[i], (size_t)at, 1, &x);
            if (wrong(x) && found++ == 0) name_element(tensors[i], "qkv"[i], at, text, size);
        }
    }
    return found;
}

static bool not_finite(float x)
{
    return !isfinite(x);
}

static bool beyond_f16(float x)
{
    return !(fabsf(x) < 65520); /* which rounds to an infinity */
}

static bool clamped(float x)
{
    return fabsf(x) > 65504;
}

/* The largest |score| of each query head of each sequence, and its token. */
typedef struct score_search {
    const input *in;
    struct {
        double score;
        int token;
    } *largest; /* [batch * heads] */
} score_search;

static void search_row(void *context, int64_t row)
{
    const score_search *search = context;
    const input *in = search->in;
    int sequence = (int)(row / in->heads), kv_head = (int)(row % in->heads) / (in->heads / in->kv_heads), dim = in->head_dim;
    float *q = tool_allocate(2 * (size_t)dim * sizeof *q), *k = q + dim;
    input_floats(&in->q, (size_t)row * (size_t)dim, (size_t)dim, q);
    for (int t = 0; t < in->lengths[sequence]; t++) {
        double score = 0;
        input_floats(&in->k, ((size_t)t * (size_t)in->kv_heads + (size_t)kv_head) * (size_t)dim, (size_t)dim, k);
        for (int c = 0; c < dim; c++) score += (double)q[c] * (double)k[c];
        score = fabs(in->scale * score);
        if (score <= search->largest[row].score) continue;
        search->largest[row].score = score;
        search->largest[row].token = t;
    }
    free(q);
}

static bool check_scores(const input *in, gen_error *err)
{
    int64_t rows = (int64_t)in->batch * in->heads, worst = 0;
    score_search search = {in, tool_allocate((size_t)rows * sizeof *search.largest)};
    parallel_for(rows, search_row, &search);
    for (int64_t r = 1; r < rows; r++)
        if (search.largest[r].score > search.largest[worst].score) worst = r;
    double score = rows > 0 ? search.largest[worst].score : 0;
    int token = rows > 0 ? search.largest[worst].token : 0;
    free(search.largest);
    if (score <= COMPARE_SCORE_LIMIT) return true;
    return gen_fail(err,
                    "the score of element [%lld, %lld] of tensor 'q' with token %d is %g; above %d float32, in which scores are "
                    "kept, tells them apart by no better than 1 in 64: scale q down",
                    (long long)(worst / in->heads), (long long)(worst % in->heads), token, score, COMPARE_SCORE_LIMIT);
}

bool input_check_numbers(const input *in, gen_error *err)
{
    char element[128];
    if (find_elements(in, "qkv", not_finite, element, sizeof element) > 0)
        return gen_fail(err, "%s; attention needs finite numbers", element);
    return check_scores(in, err);
}

bool input_check_type(const input *in, number_type type, gen_error *err)
{
    char element[128];
    if (type != NUMBER_F16 || find_elements(in, "qkv", beyond_f16, element, sizeof element) == 0) return true;
    return gen_fail(err, "%s, beyond f16, the spec's type of Q, K and V; take a spec with bf16", element);
}

int64_t input_clamped(const input *in, char *text, size_t size)
{
    return find_elements(in, "kv", clamped, text, size);
}
