/* One problem on one device, judged: the pages bit for bit, the output and the log-sum-exp against float64, repetition.
 */
#include "trial.h"

#include <stdio.h>

void trial_bounds(const config *cfg, const trial_options *options, trial *out)
{
    out->bound = compare_bound(cfg->o_type, options->ordinary, options->independent);
    out->lse_bound = 10 * compare_bound(NUMBER_F32, options->ordinary, options->independent);
}

static void note(trial *t, const char *text)
{
    if (t->problem[0] == '\0') snprintf(t->problem, sizeof t->problem, "%s", text);
}

static void judge(const device_run_result *result, bool lse, trial *t)
{
    char text[128];
    if (!result->repeatable) note(t, "a second launch gave other bits");
    if (!result->gaps_untouched) note(t, "bytes between the rows of the output were overwritten");
    if (!t->found.empty_rows_good)
        note(t, "an empty sequence has an output that is not zero, or an lse that is not -infinity");
    if (!t->found.nan_rows_good) note(t, "a row whose q holds a NaN or an infinity has an output or an lse that is none");
    if (!(t->found.error <= t->bound)) {
        snprintf(text, sizeof text, "the error %.2e is above the bound %.2e", t->found.error, t->bound);
        note(t, text);
    }
    if (!(t->found.row_excess <= 1)) { /* which the norm over all rows hides where rows differ in size */
        snprintf(text, sizeof text, "the error of a row, at most %.2e, is %.1f times what it may be", t->found.worst_row,
                 t->found.row_excess);
        note(t, text);
    }
    if (lse && !(t->found.lse_error <= t->lse_bound)) {
        snprintf(text, sizeof text, "the error of the lse %.2e is above the bound %.2e", t->found.lse_error,
                 t->lse_bound);
        note(t, text);
    }
}

bool trial_run(foscar_runtime *runtime, foscar_kernel *kernel, const problem *p, const trial_options *options,
               page_pool *pages, trial *out, foscar_error *err)
{
    page_pool expected;
    trial_bounds(&p->cfg, options, out);
    pool_make(&expected, p);
    pool_pack(&expected, p);
    bool ok = device_run(runtime, kernel, p, &options->device, pages, &out->result, err);
    if (ok) {
        out->ran = true;
        pool_same(pages, &expected, p, out->problem, sizeof out->problem);
        ok = compare_decode(p, pages, out->result.out, out->result.lse, out->bound, options->with_scheme, &out->found);
        out->bound = out->found.error_bound;
        if (ok)
            judge(&out->result, options->device.lse, out);
        else
            *err = (foscar_error){.status = FOSCAR_OUT_OF_MEMORY, .message = "out of memory"};
    }
    pool_finish(&expected);
    return ok;
}

void trial_finish(trial *t)
{
    device_run_finish(&t->result);
}
