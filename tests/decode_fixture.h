/* A small decode problem in the memory of the PTX interpreter: pages packed by the reference, a decode kernel's text
 * run over them by emulator_launch, its partial results merged here, and the output compared with float64 attention.
 * Needs no driver, no NVRTC and no GPU. */
#ifndef FOSCAR_TESTS_DECODE_FIXTURE_H
#define FOSCAR_TESTS_DECODE_FIXTURE_H

#include "emulator.h"
#include "generate.h"
#include "reference.h"

enum { DECODE_BATCH = 6, DECODE_KV_HEADS = 2, DECODE_BLOCKS = 1 };

typedef struct decode_fixture {
    config cfg; /* with float32 output */
    decode_plan plan;
    kernel_text text; /* as emitted */
    emulator_memory *memory;
    int32_t lengths[DECODE_BATCH];
    reference_cache cache;
    uint64_t pages, table, lengths_at, q; /* device addresses */
    uint64_t out, lse, workspace;         /* of a run; 0 between runs */
    int ignored;  /* sequence that is not compared; -1: none */
    double bound; /* of a row's relative error with scores of ordinary size */
    int64_t q_stride, out_stride;
    double *expected, *expected_lse, *largest_score; /* [batch, kv_heads * heads (, head_dim)] */
} decode_fixture;

/* Empty and one-token sequences, page edges, one that is cut between workers. False: no such spec, or no memory. */
bool decode_fixture_make(decode_fixture *f, const char *spec, reference_data data, uint64_t seed);
void decode_fixture_finish(decode_fixture *f); /* a zeroed struct is fine */

typedef enum decode_outcome { DECODE_PASSED, DECODE_FAULT, DECODE_WRONG } decode_outcome;

/* Runs a text with an entry foscar_decode over memory as it is after an allocation: undefined. FAULT: error says what;
   WRONG: error->message says how far the result is off, and error->fault is OK. counts may be NULL. */
decode_outcome decode_fixture_run(decode_fixture *f, const char *text, size_t length, emulator_schedule schedule,
                                  uint64_t seed, emulator_counts *counts, emulator_error *error);

#endif
