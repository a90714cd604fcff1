/* What quantising costs on the user's own tensors: errors of K, V, scores and outputs for each scheme, in float64. */
#ifndef FOSCAR_TOOLS_SCHEME_ERRORS_H
#define FOSCAR_TOOLS_SCHEME_ERRORS_H

#include "input.h"
#include "scheme.h"

/* Tokens that are kept as they came: the first and the last ones of each sequence. */
typedef struct kept_tokens {
    int sink, recent;
} kept_tokens;

/* Every sequence is a cache of its own, of its first lengths[b] tokens; the numbers of the file are the truth. Relative
   errors are in the Euclidean norm over all sequences and heads, kept tokens among them. */
typedef struct scheme_errors {
    scheme_pair pair;
    double code_bytes, metadata_bytes; /* of a quantised token and KV head, K and V together; exact */
    double stored_bytes;  /* of a token and KV head on average over the sequences, with the tokens that are kept: those
                             asked for, and those of an unfinished group of tokens */
    double k, v;          /* relative */
    double score_largest; /* |error| of scale * q . k, which softmax takes the exponential of */
    double score_rms;
    double v_weighted; /* relative, each token's error and norm squared weighted by its unquantised attention */
    double output;     /* relative, of attention over the cache against attention over the unquantised numbers */
} scheme_errors;

double scheme_errors_bytes(const scheme_errors *e); /* codes and metadata */

/* Fills out [count]. At least one sequence has tokens and all numbers are finite. */
void scheme_errors_measure(const input *in, const scheme_pair *pairs, int count, kept_tokens kept, scheme_errors *out);

#endif
