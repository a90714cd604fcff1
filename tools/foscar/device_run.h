/* The device's side of `run` and `check`: appends a problem's tokens in pieces, decodes, and brings everything back. */
#ifndef FOSCAR_TOOLS_DEVICE_RUN_H
#define FOSCAR_TOOLS_DEVICE_RUN_H

#include "compare.h"
#include "gpu.h"
#include "problem.h"

typedef struct device_run_options {
    uint64_t seed;         /* of the places where the tokens are cut into appends */
    int prefills;          /* appends of many tokens, at least 1 */
    int steps;             /* last tokens of each stream that are appended one at a time */
    int decodes;           /* launches of decode, 1 or 2 */
    bool poison_workspace; /* fill it with NaNs, for devices that do not know what was never written */
    bool lse;              /* ask for the log-sum-exp */
    bool graph;            /* capture the first decode launch while all lengths are 0, then replay it */
} device_run_options;

typedef struct device_run_result {
    float *out;          /* [batch, kv_heads * heads, head_dim]; malloc'd */
    float *lse;          /* [batch, kv_heads * heads] or NULL; malloc'd */
    bool repeatable;     /* a second launch, over the used workspace, gave the same bits; also if there was none */
    bool gaps_untouched; /* nothing was written between the rows of the output */
} device_run_result;

/* `pages` holds the pool before the first append, and afterwards what the GPU made of it. On failure err says what went
   wrong; the result is to be finished in every case. */
bool device_run(foscar_runtime *runtime, foscar_kernel *kernel, const problem *p, const device_run_options *options,
                page_pool *pages, device_run_result *result, foscar_error *err);

void device_run_finish(device_run_result *result);

#endif
