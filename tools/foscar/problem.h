/* What `run` computes: Q, K and V on the host, random or from a file, and which pages they go to. */
#ifndef FOSCAR_TOOLS_PROBLEM_H
#define FOSCAR_TOOLS_PROBLEM_H

#include "config.h"
#include "paging.h"
#include "reference.h"

/* Tokens come in streams, which are appended to the cache; sequences, which are decoded, read them: each its own, or
   all of them the beginnings of one shared stream. */
typedef struct problem {
    config cfg;
    int batch, kv_heads;
    double scale;   /* of the scores */
    bool shared;    /* one stream for all sequences */
    paging streams; /* of what is appended */
    paging sequences;
    int64_t *first;  /* [streams.batch + 1], first row of each stream in k and v */
    uint16_t *q;     /* [batch, kv_heads * heads, head_dim], Q's type */
    uint16_t *k, *v; /* [tokens, kv_heads, head_dim], Q's type */
    int64_t clamped; /* numbers of a file's k and v beyond what scales can say (input_clamped), and the first of them */
    char first_clamped[128];
} problem;

/* Random data of one kind; lengths [batch]. */
void problem_random(problem *out, const config *cfg, reference_data kind, int batch, const int32_t *lengths,
                    int kv_heads, bool csr, uint64_t seed);

/* The tensors of a file (input.h); all sequences share the pages of one token stream. On failure *out is zeroed; err
 * names the tensor, or the spec that would fit. */
bool problem_read(problem *out, const config *cfg, const char *path, bool csr, uint64_t seed, gen_error *err);

void problem_finish(problem *p); /* a zeroed struct is fine */

int problem_stream(const problem *p, int sequence); /* that a sequence reads */

/* The rows of one stream and KV head as float32 [tokens][head_dim]; malloc'd. */
float *problem_gather(const problem *p, const uint16_t *rows, int stream, int head, int tokens);

/* The rows of Q of one sequence and KV head as float32 [heads][head_dim]; malloc'd. */
float *problem_query(const problem *p, int sequence, int head);

#endif
