/* Plain C answers to check everything else against: number conversions, the quantiser, pages on the host, float64
 * attention, test data. Written from gen/fragment.h and templates/cache_quantise.cu (where the quantiser is defined),
 * and sharing no code with the kernels. Linked into tests and into the command line tool; nothing is printed. */
#ifndef FOSCAR_TESTS_REFERENCE_H
#define FOSCAR_TESTS_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config.h"
#include "tier.h"

/* ---- Numbers ---- */

/* Numbers of 16 bits. Narrowing rounds to nearest even; what is too large becomes an infinity, and any NaN 0x7fff, as
   in the GPU's conversions. */

float reference_from_f16(uint16_t bits);
float reference_from_bf16(uint16_t bits);
uint16_t reference_to_f16(float x);
uint16_t reference_to_bf16(float x);

/* By type: NUMBER_BF16 or NUMBER_F16. */
float reference_widen(number_type type, uint16_t bits);
uint16_t reference_narrow(number_type type, float x);

/* Arrays of `count` numbers of any type to and from float32; `numbers` is aligned to the type. */
void reference_read(number_type type, const void *numbers, size_t count, float *out);
void reference_write(number_type type, const float *in, size_t count, void *numbers);

/* ---- Quantiser: x = scale * code + minimum ---- */

/* A metadata word is scale << 16 | minimum, both of m_type. */

enum { REFERENCE_HEAD_DIM_MAX = 256 };

/* Quantises one group of `count` values; returns its metadata word. Any float32 value is allowed. */
uint32_t reference_quantise(number_type m_type, int bits, const float *x, int count, uint8_t *codes);
float reference_dequantise(number_type m_type, uint32_t metadata, int code); /* in float32, rounded once */

/* The same for a group whose minimum is not stored but is -scale * (2^bits - 1) / 2: scale = 2 * largest magnitude /
   (2^bits - 1), never negative; the low half of the metadata word is 0. Dequantised values are exact in float32. */
uint32_t reference_quantise_symmetric(number_type m_type, int bits, const float *x, int count, uint8_t *codes);
float reference_dequantise_symmetric(number_type m_type, int bits, uint32_t metadata, int code);

/* By the scheme: symmetric or not, its bits, its group. */
uint32_t reference_quantise_group(const scheme *s, number_type m_type, const float *x, uint8_t *codes);

/* ---- Pages on the host ---- */

typedef enum reference_side { REFERENCE_K, REFERENCE_V } reference_side;

/* One row (a token of one KV head) of a page of one KV head, with one metadata word for the whole head. Token counts from the beginning of the page. */
void reference_page_store(const config *cfg, void *page, reference_side side, int token, const uint8_t *codes,
                          uint32_t metadata);
uint32_t reference_page_load(const config *cfg, const void *page, reference_side side, int token,
                             uint8_t *codes); /* returns metadata */

/* The pages of the full-precision tier, as the kernels see them. */
typedef struct reference_tier {
    uint8_t *pages;
    int64_t page_stride, head_stride;
    const int32_t *page_table, *page_indptr;
    int32_t table_stride;
    tier_shape shape;
} reference_tier;

/* A paged cache in host memory, described as the kernels see it; owns nothing. */
typedef struct reference_cache {
    const config *cfg;
    uint8_t *pages;
    int64_t page_stride, head_stride;        /* bytes */
    const int32_t *page_table, *page_indptr; /* page_indptr NULL: padded */
    int32_t table_stride;                    /* entries of a padded row */
    const reference_tier *tier;              /* NULL: all tokens are quantised */
} reference_cache;

/* The page of a quantised token of a sequence and KV head. */
uint8_t *reference_page(const reference_cache *cache, int sequence, int head, int token);

/* Quantises one block of the side's scheme, x [scheme_block_tokens][head_dim], and stores it from quantised token `token` on. */
void reference_append(const reference_cache *cache, reference_side side, int sequence, int head, int token,
                      const float *x);

/* Stores head_dim numbers, narrowed to the type of Q, as a token's K or V in the tier. */
void reference_tier_store(const reference_cache *cache, reference_side side, int sequence, int head, int token,
                          const float *x);

/* How many tokens of a sequence of that length are quantised, and the first of them. */
int reference_quantised(const reference_cache *cache, int length);
int reference_first_quantised(const reference_cache *cache);

/* Puts a sequence's K or V, x [length][head_dim], where each token belongs. */
void reference_put(const reference_cache *cache, reference_side side, int sequence, int head, int length, const float *x);

/* What a sequence of `tokens` tokens holds of a KV head, as k and v [tokens][head_dim]; either may be NULL. About 5 ns a number. False if memory
   ran out. */
bool reference_gather(const reference_cache *cache, int sequence, int head, int tokens, float *k, float *v);

/* ---- Attention in float64 ---- */

/* out[r] = softmax(scale * q[r] . k) v for `rows` rows of q [rows][dim] over k, v [tokens][dim]; lse[r] the natural log
   of the sum of exponentials, largest[r] the largest |score| (NULL: not wanted). No tokens: zeros, -infinity and 0. A
   row of q with a NaN or an infinity: NaN. False if memory ran out. */
bool reference_attention(const float *k, const float *v, int tokens, int dim, const float *q, int rows, double scale,
                         double *out, double *lse, double *largest);

/* What the error of a row with this largest |score| may be where it may be `bound` with scores of ordinary size: scores
   are float32, in base 2, and a few roundings make 2^-22 of the largest. */
double reference_row_bound(double bound, double largest_score);

/* ||a - b|| / ||b|| in the Euclidean norm; ||a|| if b is all 0; infinity if a holds a NaN. */
double reference_error(const float *a, const double *b, size_t count);
double reference_error_f64(const double *a, const double *b, size_t count);

/* ---- Random numbers ---- */

/* xoshiro256**, seeded by splitmix64: the same on every machine, but for the last bits of reference_normal. */
typedef struct reference_rng {
    uint64_t state[4];
} reference_rng;

void reference_seed(reference_rng *rng, uint64_t seed);
uint64_t reference_bits(reference_rng *rng);
double reference_uniform(reference_rng *rng);               /* [0, 1) */
double reference_normal(reference_rng *rng);                /* mean 0, variance 1 */
uint32_t reference_below(reference_rng *rng, uint32_t end); /* 0 .. end - 1 */

/* ---- Data ---- */

/* KIND(id, name, meaning) */
#define REFERENCE_DATA(KIND)                                                                                           \
    KIND(RANDOM, "random", "normal numbers")                                                                           \
    KIND(OUTLIERS, "outlier", "one channel in 32 of K and of V is 30 times the rest")                                 \
    KIND(LARGE_SCORES, "large", "the largest score of each row is 50")                                                \
    KIND(SINK, "sink", "the first token has half of the weight of each row")                                           \
    KIND(RANGES, "ranges",                                                                                             \
         "from token to token ranges differ by 1e4 in K and from 1e-6 to 60000 in V; V of large range has weights "    \
         "from 1 to 1e-80")                                                                                            \
    KIND(STEPS, "steps", "scores of every 256 tokens lie 0, 150, 300 or 450 higher")                                   \
    KIND(HEADS, "heads", "the largest scores of rows lie anywhere from 1 to 2000")                                     \
    KIND(NANS, "nans", "one row in three has a NaN, an infinity or a number near 3e38 in q")

typedef enum reference_data {
#define KIND(id, name, meaning) REFERENCE_DATA_##id,
    REFERENCE_DATA(KIND)
#undef KIND
        REFERENCE_DATA_KINDS
} reference_data;

const char *reference_data_name(reference_data kind);
bool reference_data_is_ordinary(reference_data kind); /* a row's error may be 2e-5 (reference_row_bound); otherwise 1e-4 */

/* Fills q [rows][dim], k and v [tokens][dim] of one KV head, for attention with this scale. */
void reference_fill(reference_data kind, reference_rng *rng, int tokens, int dim, int rows, double scale, float *q,
                    float *k, float *v);

#endif
