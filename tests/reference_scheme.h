/* Plain C for every scheme of the vocabulary: rows of one KV head quantised block by block, each group by the
 * quantisers of reference.h, and what a cache then holds. Linked into tests and into the command line tool; nothing is
 * printed. */
#ifndef FOSCAR_TESTS_REFERENCE_SCHEME_H
#define FOSCAR_TESTS_REFERENCE_SCHEME_H

#include "reference.h"

/* Quantises one block, rows x [scheme_block_tokens][dim], of a scheme that scheme_check accepts. codes are in the order
   of x; metadata [scheme_block_groups] one word a group, in the order of the channels. */
void reference_scheme_quantise(const scheme *s, number_type m_type, const float *x, int dim, uint8_t *codes,
                               uint32_t *metadata);

/* The block as it is read back, in float32. */
void reference_scheme_dequantise(const scheme *s, number_type m_type, const uint8_t *codes, const uint32_t *metadata,
                                 int dim, float *out);

/* What a cache of the rows x [tokens][dim] holds: those that scheme_quantised_tokens counts quantised and dequantised,
   the others as they came. False if memory ran out. */
bool reference_scheme_cache(const scheme *s, number_type m_type, const float *x, int tokens, int dim, int sink,
                            int recent, float *out);

#endif
