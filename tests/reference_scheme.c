/* Plain C for every scheme of the vocabulary; the header says what each function is. */
#include "reference_scheme.h"

#include <stdlib.h>
#include <string.h>

/* A group along the tokens is a column of the block, gathered first. */
static uint32_t quantise_column(const scheme *s, number_type m_type, const float *x, int dim, uint8_t *codes)
{
    float column[SCHEME_GROUP_TOKENS_MAX];
    uint8_t column_codes[SCHEME_GROUP_TOKENS_MAX];
    for (int t = 0; t < s->group; t++) column[t] = x[t * dim];
    uint32_t metadata = reference_quantise_group(s, m_type, column, column_codes);
    for (int t = 0; t < s->group; t++) codes[t * dim] = column_codes[t];
    return metadata;
}

void reference_scheme_quantise(const scheme *s, number_type m_type, const float *x, int dim, uint8_t *codes,
                               uint32_t *metadata)
{
    bool columns = grouping_info(s->direction)->along_tokens;
    for (int g = 0; g < scheme_block_groups(s, dim); g++)
        metadata[g] = columns ? quantise_column(s, m_type, x + g, dim, codes + g)
                              : reference_quantise_group(s, m_type, x + g * s->group, codes + g * s->group);
}

void reference_scheme_dequantise(const scheme *s, number_type m_type, const uint8_t *codes, const uint32_t *metadata,
                                 int dim, float *out)
{
    bool columns = grouping_info(s->direction)->along_tokens, symmetric = scheme_is_symmetric(s);
    for (int g = 0; g < scheme_block_groups(s, dim); g++) {
        float value[16]; /* of each code */
        for (int code = 0; code < 1 << s->codes->bits; code++)
            value[code] = symmetric ? reference_dequantise_symmetric(m_type, s->codes->bits, metadata[g], code)
                                    : reference_dequantise(m_type, metadata[g], code);
        for (int i = 0; i < s->group; i++) {
            int at = columns ? i * dim + g : g * s->group + i;
            out[at] = value[codes[at]];
        }
    }
}

bool reference_scheme_cache(const scheme *s, number_type m_type, const float *x, int tokens, int dim, int sink,
                            int recent, float *out)
{
    int block = scheme_block_tokens(s), groups = scheme_block_groups(s, dim),
        quantised = scheme_quantised_tokens(s, tokens, sink, recent);
    uint8_t *codes = malloc((size_t)block * (size_t)dim);
    uint32_t *metadata = malloc((size_t)groups * sizeof *metadata);
    bool ok = codes != NULL && metadata != NULL;
    memcpy(out, x, (size_t)tokens * (size_t)dim * sizeof *out);
    for (int t = 0; t < quantised && ok; t += block) {
        size_t at = ((size_t)sink + (size_t)t) * (size_t)dim;
        reference_scheme_quantise(s, m_type, x + at, dim, codes, metadata);
        reference_scheme_dequantise(s, m_type, codes, metadata, dim, out + at);
    }
    free(codes);
    free(metadata);
    return ok;
}
