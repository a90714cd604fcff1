/* The host's side of `run`: the pages as they must be, and how far an output is from float64 attention over a cache. */
#ifndef FOSCAR_TOOLS_COMPARE_H
#define FOSCAR_TOOLS_COMPARE_H

#include "problem.h"
#include "reference.h"

/* A pool of pages in host memory. */
typedef struct page_pool {
    int64_t page_stride, head_stride, bytes;
    uint8_t *pages;
} page_pool;

/* A pool as it is before the first append: NaNs everywhere. No kernel may change pages that no sequence owns, or the
   bytes between pages. */
void pool_make(page_pool *out, const problem *p);

/* Appends all streams by the host's own quantiser. */
void pool_pack(page_pool *out, const problem *p);

void pool_finish(page_pool *p); /* a zeroed struct is fine */

/* True if all bytes agree but those past the ends of sequences, which may hold anything; else text says how many differ and where the first one lies. */
bool pool_same(const page_pool *got, const page_pool *expected, const problem *p, char *text, size_t size);

/* What the relative error may be: 2e-5 on ordinary data, 1e-4 on data with outliers, large scores or a sink, and what
   rounding to the output type adds. With independent outputs that is an error uniform within half a unit in the last
   place, taken at the significand 1 where that is most; else, where sequences are so short that outputs repeat the few
   values of their V, half a unit. */
double compare_bound(number_type o_type, bool ordinary, bool independent);

/* The largest |score| of a row that can be judged: above it float32 cannot order scores by better than 1 in 64. */
enum { COMPARE_SCORE_LIMIT = 1 << 16 };

typedef struct comparison {
    double error;        /* of the output, relative, in the Euclidean norm over all rows; infinity if it holds a NaN */
    double error_bound;  /* what that may be */
    double worst_row;    /* the largest of a single row */
    double row_excess;   /* the largest of a row over twice what that row may have */
    double lse_error;    /* largest |difference| over 1 + |lse| */
    double scheme_error; /* of attention over the quantised cache against that over the numbers before: the scheme's own
                            loss */
    bool empty_rows_good; /* sequences of length 0 have zeros and an lse of -infinity */
    bool nan_rows_good;   /* rows that must be NaN for their q are, the lse too */
} comparison;

/* Compares out [batch, kv_heads * heads, head_dim] with float64 attention over the dequantised pages, where the error may
   be `bound` with scores of ordinary size (reference_row_bound); rows of scores above the limit are left out. out NULL: only
   the scheme's loss. lse may be NULL. with_scheme: also computes scheme_error, which takes as long again. False if
   memory ran out. */
bool compare_decode(const problem *p, const page_pool *pages, const float *out, const float *lse, double bound,
                    bool with_scheme, comparison *result);

#endif
