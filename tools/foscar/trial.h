/* One problem on one device, judged: the pages bit for bit, the output and the log-sum-exp against float64, repetition.
 */
#ifndef FOSCAR_TOOLS_TRIAL_H
#define FOSCAR_TOOLS_TRIAL_H

#include "compare.h"
#include "device_run.h"

typedef struct trial_options {
    device_run_options device;
    bool ordinary;    /* data whose scores and outputs are of ordinary size */
    bool independent; /* of compare_bound */
    bool with_scheme; /* also the scheme's own loss, which takes as long again */
} trial_options;

typedef struct trial {
    bool ran;          /* everything was launched; else the rest says nothing */
    char problem[512]; /* the first check that was not met; empty: passed */
    comparison found;
    double bound, lse_bound;
    device_run_result result; /* what came back; freed by trial_finish */
} trial;

/* What the errors of a problem may be. */
void trial_bounds(const config *cfg, const trial_options *options, trial *out);

/* `pages` holds the pool before the first append, and afterwards what the device made of it. False: nothing can be
   said; err has the reason. `out` is to be finished in either case. */
bool trial_run(foscar_runtime *runtime, foscar_kernel *kernel, const problem *p, const trial_options *options,
               page_pool *pages, trial *out, foscar_error *err);

void trial_finish(trial *t); /* a zeroed struct is fine */

#endif
