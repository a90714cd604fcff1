/* Plain C answers to check everything else against; the header says what each is. */
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fragment.h"

/* ---- Numbers ---- */

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

float reference_from_bf16(uint16_t bits)
{
    return float_of((uint32_t)bits << 16);
}

float reference_from_f16(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float magnitude = exponent == 31  ? (fraction ? NAN : INFINITY)
                      : exponent == 0 ? ldexpf((float)fraction, -24)
                                      : ldexpf((float)(fraction + 1024), exponent - 25);
    return bits & 0x8000 ? -magnitude : magnitude;
}

uint16_t reference_to_bf16(float x)
{
    uint32_t bits = bits_of(x);
    if (isnan(x)) return 0x7fff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >>
                      16); /* a carry out of the fraction is the next binade, or infinity */
}

uint16_t reference_to_f16(float x)
{
    if (isnan(x)) return 0x7fff;
    unsigned sign = bits_of(x) >> 16 & 0x8000;
    float magnitude = fabsf(x);
    if (magnitude >= 65520.0f)
        return (uint16_t)(sign | 0x7c00); /* the middle of the largest number and 2^16 goes to the even one, 2^16 */
    int exponent = -14;
    if (magnitude >= ldexpf(1.0f, -14)) frexpf(magnitude, &exponent), exponent--;
    int significand = (int)rintf(
        ldexpf(magnitude, 10 - exponent)); /* 0 .. 2048, in units of 2^(exponent - 10); exact but for this rint */
    return (uint16_t)(sign | (unsigned)((exponent + 14) * 1024 + significand));
}

float reference_widen(number_type type, uint16_t bits)
{
    return type == NUMBER_F16 ? reference_from_f16(bits) : reference_from_bf16(bits);
}

uint16_t reference_narrow(number_type type, float x)
{
    return type == NUMBER_F16 ? reference_to_f16(x) : reference_to_bf16(x);
}

void reference_read(number_type type, const void *numbers, size_t count, float *out)
{
    if (type == NUMBER_F32) {
        memcpy(out, numbers, count * sizeof *out);
        return;
    }
    for (size_t i = 0; i < count; i++) out[i] = reference_widen(type, ((const uint16_t *)numbers)[i]);
}

void reference_write(number_type type, const float *in, size_t count, void *numbers)
{
    if (type == NUMBER_F32) {
        memcpy(numbers, in, count * sizeof *in);
        return;
    }
    for (size_t i = 0; i < count; i++) ((uint16_t *)numbers)[i] = reference_narrow(type, in[i]);
}

/* ---- Quantiser ---- */

static float clean(number_type m_type, float x)
{
    float limit = m_type == NUMBER_F16 ? 65504.0f : ldexpf(1.0f, 100);
    if (isnan(x)) return 0;
    return x > limit ? limit : x < -limit ? -limit : x;
}

/* code = (x - minimum) / scale, clamped, rounded to nearest even. A scale below 2^-100 counts as 0: all codes are 0,
 * and false is returned. */
static bool encode(number_type m_type, int bits, const float *x, int count, float scale, float minimum, uint8_t *codes)
{
    float levels = (float)((1 << bits) - 1);
    memset(codes, 0, (size_t)count);
    if (scale < ldexpf(1.0f, -100)) return false;
    for (int i = 0; i < count; i++) {
        float difference = clean(m_type, x[i]) - minimum, code = difference / scale;
        codes[i] = (uint8_t)rintf(code < 0 ? 0 : code > levels ? levels : code);
    }
    return true;
}

uint32_t reference_quantise(number_type m_type, int bits, const float *x, int count, uint8_t *codes)
{
    float levels = (float)((1 << bits) - 1), smallest = clean(m_type, x[0]), largest = smallest;
    for (int i = 1; i < count; i++) {
        float value = clean(m_type, x[i]);
        if (value < smallest) smallest = value;
        if (value > largest) largest = value;
    }
    if (smallest == 0) smallest = 0; /* not -0 */
    float range = largest - smallest;
    uint16_t minimum_bits = reference_narrow(m_type, smallest), scale_bits = reference_narrow(m_type, range / levels);
    float minimum = reference_widen(m_type, minimum_bits), scale = reference_widen(m_type, scale_bits);
    if (!encode(m_type, bits, x, count, scale, minimum, codes)) return minimum_bits;
    return (uint32_t)scale_bits << 16 | minimum_bits;
}

float reference_dequantise(number_type m_type, uint32_t metadata, int code)
{
    float scaled = reference_widen(m_type, (uint16_t)(metadata >> 16)) * (float)code; /* exact: 11 bits times 4 bits */
    return scaled + reference_widen(m_type, (uint16_t)metadata);
}

uint32_t reference_quantise_symmetric(number_type m_type, int bits, const float *x, int count, uint8_t *codes)
{
    float levels = (float)((1 << bits) - 1), largest = 0;
    for (int i = 0; i < count; i++) largest = fmaxf(largest, fabsf(clean(m_type, x[i])));
    uint16_t scale_bits = reference_narrow(m_type, 2 * largest / levels);
    float scale = reference_widen(m_type, scale_bits);
    return encode(m_type, bits, x, count, scale, -scale * levels / 2, codes) ? (uint32_t)scale_bits << 16 : 0;
}

float reference_dequantise_symmetric(number_type m_type, int bits, uint32_t metadata, int code)
{
    return reference_widen(m_type, (uint16_t)(metadata >> 16)) * ((float)code - (float)((1 << bits) - 1) / 2);
}

uint32_t reference_quantise_group(const scheme *s, number_type m_type, const float *x, uint8_t *codes)
{
    return scheme_is_symmetric(s) ? reference_quantise_symmetric(m_type, s->codes->bits, x, s->group, codes)
                                  : reference_quantise(m_type, s->codes->bits, x, s->group, codes);
}

/* ---- Pages ---- */

static const scheme *side_scheme(const config *cfg, reference_side side)
{
    return side == REFERENCE_K ? &cfg->k : &cfg->v;
}

static code_place place_of(const config *cfg, reference_side side, int token, int channel)
{
    return side == REFERENCE_K ? fragment_k_place(cfg, token, channel) : fragment_v_place(cfg, token, channel);
}

/* Offset in the page of a side's codes, and of a token's metadata. */
static uint32_t codes_offset(const config *cfg, reference_side side)
{
    page_layout page = fragment_page_layout(cfg);
    return side == REFERENCE_K ? page.k_codes : page.v_codes;
}

static uint32_t metadata_offset(const config *cfg, reference_side side, int token)
{
    page_layout page = fragment_page_layout(cfg);
    return (side == REFERENCE_K ? page.k_metadata : page.v_metadata) + (uint32_t)(token * METADATA_BYTES);
}

void reference_page_store(const config *cfg, void *page, reference_side side, int token, const uint8_t *codes,
                          uint32_t metadata)
{
    uint8_t *in = (uint8_t *)page + codes_offset(cfg, side);
    unsigned mask = (1u << side_scheme(cfg, side)->codes->bits) - 1;
    for (int c = 0; c < cfg->head_dim; c++) {
        code_place p = place_of(cfg, side, token, c);
        in[p.byte] = (uint8_t)((in[p.byte] & ~(mask << p.shift)) | (unsigned)codes[c] << p.shift);
    }
    memcpy((uint8_t *)page + metadata_offset(cfg, side, token), &metadata, sizeof metadata);
}

uint32_t reference_page_load(const config *cfg, const void *page, reference_side side, int token, uint8_t *codes)
{
    const uint8_t *in = (const uint8_t *)page + codes_offset(cfg, side);
    unsigned mask = (1u << side_scheme(cfg, side)->codes->bits) - 1;
    uint32_t metadata;
    for (int c = 0; c < cfg->head_dim; c++) {
        code_place p = place_of(cfg, side, token, c);
        codes[c] = (uint8_t)(in[p.byte] >> p.shift & mask);
    }
    memcpy(&metadata, (const uint8_t *)page + metadata_offset(cfg, side, token), sizeof metadata);
    return metadata;
}

static uint8_t *find_page(uint8_t *pages, const int32_t *table, const int32_t *indptr, int64_t stride, int64_t page_stride, int sequence, int index)
{
    int64_t row = indptr != NULL ? indptr[sequence] : sequence * stride;
    return pages + table[row + index] * page_stride;
}

static uint8_t *page_at(const reference_cache *c, int sequence, int head, int index)
{
    return find_page(c->pages, c->page_table, c->page_indptr, c->table_stride, c->page_stride, sequence, index) + head * c->head_stride;
}

uint8_t *reference_page(const reference_cache *cache, int sequence, int head, int token)
{
    return page_at(cache, sequence, head, token / cache->cfg->page_tokens);
}

static uint16_t *metadata_at(const reference_cache *cache, reference_side side, int sequence, int head, int token, int channel, metadata_number number)
{
    metadata_place place = side == REFERENCE_K ? fragment_k_metadata(cache->cfg, token, channel, number)
                                               : fragment_v_metadata(cache->cfg, token, channel, number);
    return (uint16_t *)(void *)(page_at(cache, sequence, head, place.page) + place.byte);
}

/* Group g of a block: its first channel, and the way from one of its values to the next. */
static int group_channel(const scheme *s, int g)
{
    return scheme_is_channel_wise(s) ? g : g * s->group;
}

void reference_append(const reference_cache *cache, reference_side side, int sequence, int head, int token,
                      const float *x)
{
    const config *cfg = cache->cfg;
    const scheme *s = side_scheme(cfg, side);
    int dim = cfg->head_dim, block = scheme_block_tokens(s), step = scheme_is_channel_wise(s) ? dim : 1;
    unsigned mask = (1u << s->codes->bits) - 1;
    for (int g = 0; g < scheme_block_groups(s, dim); g++) {
        float group[REFERENCE_HEAD_DIM_MAX];
        uint8_t codes[REFERENCE_HEAD_DIM_MAX];
        int first = group_channel(s, g);
        for (int i = 0; i < s->group; i++) group[i] = x[first + i * step];
        uint32_t metadata = reference_quantise_group(s, cfg->m_type, group, codes);
        *metadata_at(cache, side, sequence, head, token, first, METADATA_SCALE) = (uint16_t)(metadata >> 16);
        if (!scheme_is_symmetric(s)) *metadata_at(cache, side, sequence, head, token, first, METADATA_MINIMUM) = (uint16_t)metadata;
        for (int i = 0; i < s->group; i++) {
            int t = token + (block > 1 ? i : 0), c = block > 1 ? first : first + i;
            uint8_t *in = reference_page(cache, sequence, head, t) + codes_offset(cfg, side);
            code_place p = place_of(cfg, side, t % cfg->page_tokens, c);
            in[p.byte] = (uint8_t)((in[p.byte] & ~(mask << p.shift)) | (unsigned)codes[i] << p.shift);
        }
    }
}

static uint16_t *tier_number(const reference_cache *cache, reference_side side, int sequence, int head, int token, int channel)
{
    const reference_tier *t = cache->tier;
    int slot = tier_slot(&t->shape, token), dim = cache->cfg->head_dim;
    uint8_t *page = find_page(t->pages, t->page_table, t->page_indptr, t->table_stride, t->page_stride, sequence, slot / TIER_PAGE_TOKENS) + head * t->head_stride;
    slot %= TIER_PAGE_TOKENS;
    return (uint16_t *)(void *)(page + (side == REFERENCE_K ? fragment_tier_k(dim, slot, channel) : fragment_tier_v(dim, slot, channel)));
}

void reference_tier_store(const reference_cache *cache, reference_side side, int sequence, int head, int token,
                          const float *x)
{
    for (int c = 0; c < cache->cfg->head_dim; c++)
        *tier_number(cache, side, sequence, head, token, c) = reference_narrow(cache->cfg->q_type, x[c]);
}

int reference_quantised(const reference_cache *cache, int length)
{
    return cache->tier != NULL ? tier_quantised(cache->cfg, &cache->tier->shape, length) : length;
}

int reference_first_quantised(const reference_cache *cache)
{
    return cache->tier != NULL ? cache->tier->shape.sink : 0;
}

void reference_put(const reference_cache *cache, reference_side side, int sequence, int head, int length, const float *x)
{
    int dim = cache->cfg->head_dim, block = scheme_block_tokens(side_scheme(cache->cfg, side));
    int first = reference_first_quantised(cache), quantised = reference_quantised(cache, length);
    for (int t = 0; t < quantised; t += block)
        reference_append(cache, side, sequence, head, t, x + (size_t)(first + t) * (size_t)dim);
    for (int t = 0; t < length; t++)
        if (cache->tier != NULL && (t < first || t >= first + quantised)) reference_tier_store(cache, side, sequence, head, t, x + (size_t)t * (size_t)dim);
}

/* The values of all codes of a block's groups. */
static void read_values(const reference_cache *cache, reference_side side, int sequence, int head, int token, float values[][16])
{
    const scheme *s = side_scheme(cache->cfg, side);
    number_type m_type = cache->cfg->m_type;
    int bits = s->codes->bits;
    for (int g = 0; g < scheme_block_groups(s, cache->cfg->head_dim); g++) {
        int channel = group_channel(s, g);
        uint32_t metadata = (uint32_t)*metadata_at(cache, side, sequence, head, token, channel, METADATA_SCALE) << 16;
        if (!scheme_is_symmetric(s)) metadata |= *metadata_at(cache, side, sequence, head, token, channel, METADATA_MINIMUM);
        for (int code = 0; code < 1 << bits; code++)
            values[g][code] = scheme_is_symmetric(s) ? reference_dequantise_symmetric(m_type, bits, metadata, code)
                                                     : reference_dequantise(m_type, metadata, code);
    }
}

/* Quantised tokens 0 .. tokens - 1 into out [tokens][head_dim]; places [page_tokens][head_dim] are those of a page's codes. */
static void gather_quantised(const reference_cache *cache, reference_side side, int sequence, int head, int tokens, const code_place *places, float *out)
{
    const config *cfg = cache->cfg;
    const scheme *s = side_scheme(cfg, side);
    unsigned mask = (1u << s->codes->bits) - 1;
    int block = scheme_block_tokens(s);
    float values[REFERENCE_HEAD_DIM_MAX][16];
    for (int t = 0; t < tokens; t++) {
        if (t % block == 0) read_values(cache, side, sequence, head, t, values);
        const uint8_t *in = reference_page(cache, sequence, head, t) + codes_offset(cfg, side);
        const code_place *row = places + t % cfg->page_tokens * cfg->head_dim;
        for (int c = 0; c < cfg->head_dim; c++) *out++ = values[block > 1 ? c : c / s->group][in[row[c].byte] >> row[c].shift & mask];
    }
}

bool reference_gather(const reference_cache *cache, int sequence, int head, int tokens, float *k, float *v)
{
    const config *cfg = cache->cfg;
    int dim = cfg->head_dim, first = reference_first_quantised(cache), quantised = reference_quantised(cache, tokens);
    code_place *places = malloc((size_t)(cfg->page_tokens * dim) * sizeof *places);
    if (places == NULL) return false;
    for (int side = REFERENCE_K; side <= REFERENCE_V; side++) {
        float *out = side == REFERENCE_K ? k : v;
        if (out == NULL) continue;
        for (int i = 0; i < cfg->page_tokens * dim; i++) places[i] = place_of(cfg, (reference_side)side, i / dim, i % dim);
        gather_quantised(cache, (reference_side)side, sequence, head, quantised, places, out + (size_t)first * (size_t)dim);
        for (int t = 0; t < tokens; t++)
            for (int c = 0; c < dim && (t < first || t >= first + quantised); c++)
                out[(size_t)t * (size_t)dim + (size_t)c] = reference_widen(cfg->q_type, *tier_number(cache, (reference_side)side, sequence, head, t, c));
    }
    free(places);
    return true;
}

/* ---- Attention ---- */

enum { LANES = 4 }; /* partial sums, for speed */

static double dot(const double *a, const double *b, int dim)
{
    double sum[LANES] = {0};
    int c = 0;
    for (; c + LANES <= dim; c += LANES)
        for (int j = 0; j < LANES; j++) sum[j] += a[c + j] * b[c + j];
    for (; c < dim; c++) sum[0] += a[c] * b[c];
    return sum[0] + sum[1] + sum[2] + sum[3];
}

static void widen_row(const float *in, int dim, double *out)
{
    for (int c = 0; c < dim; c++) out[c] = in[c];
}

/* score[r][t] = scale * q[r] . k[t]; wide is room for dim numbers. */
static void score_all(const float *k, int tokens, int dim, const double *q, int rows, double scale, double *wide,
                      double *score)
{
    for (int t = 0; t < tokens; t++) {
        widen_row(k + (size_t)t * (size_t)dim, dim, wide);
        for (int r = 0; r < rows; r++)
            score[(size_t)r * (size_t)tokens + (size_t)t] = scale * dot(q + r * dim, wide, dim);
    }
}

/* Turns scores into weights exp(score - maximum); returns their sum. */
static double exponentiate(double *score, int tokens, double *maximum)
{
    double sum = 0;
    *maximum = -INFINITY;
    for (int t = 0; t < tokens; t++)
        if (score[t] > *maximum) *maximum = score[t];
    for (int t = 0; t < tokens; t++) sum += score[t] = exp(score[t] - *maximum);
    return sum;
}

static double magnitude(const double *x, int count)
{
    double largest = 0;
    for (int i = 0; i < count; i++) largest = fmax(largest, fabs(x[i]));
    return largest;
}

bool reference_attention(const float *k, const float *v, int tokens, int dim, const float *q, int rows, double scale,
                         double *out, double *lse, double *largest)
{
    double *work = malloc(((size_t)rows * ((size_t)tokens + (size_t)dim) + (size_t)dim) * sizeof *work);
    if (work == NULL) return false;
    double *wide = work, *q_wide = work + dim, *score = q_wide + rows * dim;
    for (int r = 0; r < rows; r++) widen_row(q + r * dim, dim, q_wide + r * dim);
    score_all(k, tokens, dim, q_wide, rows, scale, wide, score);
    memset(out, 0, (size_t)rows * (size_t)dim * sizeof *out);
    double *sums = q_wide; /* of the weights; q is no longer needed */
    for (int r = 0; r < rows; r++) {
        double maximum, *row = score + (size_t)r * (size_t)tokens;
        if (largest != NULL) largest[r] = magnitude(row, tokens);
        sums[r] = exponentiate(row, tokens, &maximum);
        if (lse != NULL) lse[r] = tokens > 0 ? maximum + log(sums[r]) : -INFINITY;
    }
    for (int t = 0; t < tokens; t++) {
        widen_row(v + (size_t)t * (size_t)dim, dim, wide);
        for (int r = 0; r < rows; r++) {
            double weight = score[(size_t)r * (size_t)tokens + (size_t)t], *o = out + r * dim;
            for (int c = 0; c < dim; c++) o[c] += weight * wide[c];
        }
    }
    for (int r = 0; r < rows && tokens > 0; r++)
        for (int c = 0; c < dim; c++) out[r * dim + c] /= sums[r];
    free(work);
    return true;
}

double reference_row_bound(double bound, double largest_score)
{
    return fmax(bound, ldexp(largest_score, -22));
}

double reference_error_f64(const double *a, const double *b, size_t count)
{
    double difference = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        size += b[i] * b[i];
    }
    if (isnan(difference)) return INFINITY;
    return size > 0 ? sqrt(difference / size) : sqrt(difference);
}

double reference_error(const float *a, const double *b, size_t count)
{
    double difference = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += b[i] * b[i];
    }
    if (isnan(difference)) return INFINITY;
    return size > 0 ? sqrt(difference / size) : sqrt(difference);
}

/* ---- Random numbers ---- */

void reference_seed(reference_rng *rng, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        seed += 0x9e3779b97f4a7c15u;
        uint64_t z = seed;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        rng->state[i] = z ^ z >> 31;
    }
}

static uint64_t rotate_left(uint64_t x, int count)
{
    return x << count | x >> (64 - count);
}

uint64_t reference_bits(reference_rng *rng)
{
    uint64_t *s = rng->state, result = rotate_left(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

double reference_uniform(reference_rng *rng)
{
    return (double)(reference_bits(rng) >> 11) * 0x1p-53;
}

/* Two independent normal numbers (Box and Muller). */
static void normal_pair(reference_rng *rng, double pair[2])
{
    double radius = sqrt(-2 * log(1 - reference_uniform(rng))), angle = 6.283185307179586 * reference_uniform(rng);
    pair[0] = radius * cos(angle);
    pair[1] = radius * sin(angle);
}

double reference_normal(reference_rng *rng)
{
    double pair[2];
    normal_pair(rng, pair);
    return pair[0];
}

uint32_t reference_below(reference_rng *rng, uint32_t end)
{
    return (uint32_t)(((reference_bits(rng) >> 32) * end) >> 32);
}

/* ---- Data ---- */

const char *reference_data_name(reference_data kind)
{
    static const char *const names[REFERENCE_DATA_KINDS] = {
#define KIND(id, name, meaning) name,
        REFERENCE_DATA(KIND)
#undef KIND
    };
    return names[kind];
}

bool reference_data_is_ordinary(reference_data kind)
{
    return kind != REFERENCE_DATA_OUTLIERS && kind != REFERENCE_DATA_LARGE_SCORES && kind != REFERENCE_DATA_SINK &&
           kind != REFERENCE_DATA_STEPS;
}

static void fill_normal(reference_rng *rng, size_t count, float *out)
{
    for (size_t i = 0; i < count; i += 2) {
        double pair[2];
        normal_pair(rng, pair);
        out[i] = (float)pair[0];
        if (i + 1 < count) out[i + 1] = (float)pair[1];
    }
}

static double score_of(const float *q, const float *k, int dim, double scale)
{
    double sum[LANES] = {0};
    for (int c = 0; c < dim; c++) sum[c % LANES] += (double)q[c] * (double)k[c];
    return scale * (sum[0] + sum[1] + sum[2] + sum[3]);
}

/* Scales a row of q so that its largest score is `wanted`. */
static void stretch_row(int tokens, int dim, double scale, double wanted, float *q, const float *k)
{
    double largest = 0;
    for (int t = 0; t < tokens; t++) largest = fmax(largest, score_of(q, k + (size_t)t * (size_t)dim, dim, scale));
    for (int c = 0; c < dim && largest > 0; c++) q[c] = (float)(q[c] * (wanted / largest));
}

/* Makes the first token's key one large channel, and that channel of q such that the token's score is the log of the
 * others' sum. */
static void make_sink(int tokens, int dim, int rows, double scale, float *q, float *k)
{
    const double size = 200;
    for (int c = 0; c < dim; c++) k[c] = c == 0 ? (float)size : 0;
    for (int r = 0; r < rows; r++) {
        double wanted = 0;
        for (int round = 0; round < 3; round++) { /* that channel takes part in the other scores too, a little */
            double sum = 0;
            q[r * dim] = (float)(wanted / (size * scale));
            for (int t = 1; t < tokens; t++) sum += exp(score_of(q + r * dim, k + (size_t)t * (size_t)dim, dim, scale));
            wanted = sum > 0 ? log(sum) : 0;
        }
        q[r * dim] = (float)(wanted / (size * scale));
    }
}

/* Moves each row of q to the mean 1: adding x to all channels of a key then adds scale * dim * x to its scores. */
static void level(int dim, int rows, float *q)
{
    for (int r = 0; r < rows; r++) {
        double sum = 0;
        for (int c = 0; c < dim; c++) sum += (double)q[r * dim + c];
        for (int c = 0; c < dim; c++) q[r * dim + c] += (float)(1 - sum / dim);
    }
}

/* row = row * factor + offset */
static void move(float *row, int dim, double factor, double offset)
{
    for (int c = 0; c < dim; c++) row[c] = (float)((double)row[c] * factor + offset);
}

/* One token in three has a V of range 1 to 60000, and a score that lies between `least` and 184 (1e-80) below the others'; where least is 0, such tokens
   make the output, and where it is large they must not be seen in it. */
static void vary_ranges(reference_rng *rng, int tokens, int dim, int rows, double scale, float *q, float *k, float *v)
{
    static const double leasts[] = {0, 6, 12, 25, 60, 120, 184};
    double least = leasts[reference_below(rng, sizeof leasts / sizeof *leasts)];
    level(dim, rows, q);
    for (int t = 0; t < tokens; t++) {
        float *key = k + (size_t)t * (size_t)dim, *value = v + (size_t)t * (size_t)dim;
        bool large = reference_below(rng, 3) == 0;
        double below = large ? least + (184 - least) * reference_uniform(rng) * reference_uniform(rng) : 0;
        move(key, dim, pow(10, -4 * reference_uniform(rng)), -below / (scale * dim));
        move(value, dim, large ? pow(60000, reference_uniform(rng)) / 6 : pow(10, -6 * reference_uniform(rng)), 0);
    }
}

static void make_steps(reference_rng *rng, int tokens, int dim, int rows, double scale, float *q, float *k)
{
    enum { STEP_TOKENS = 256 };
    double higher = 0;
    level(dim, rows, q);
    for (int t = 0; t < tokens; t++) {
        if (t % STEP_TOKENS == 0) higher = 150 * reference_below(rng, 4);
        move(k + (size_t)t * (size_t)dim, dim, 1, higher / (scale * dim));
    }
}

static void break_rows(reference_rng *rng, int dim, int rows, float *q)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f};
    for (int r = 0; r < rows; r++)
        if (reference_below(rng, 3) == 0)
            q[r * dim + (int)reference_below(rng, (uint32_t)dim)] = bad[reference_below(rng, sizeof bad / sizeof *bad)];
}

void reference_fill(reference_data kind, reference_rng *rng, int tokens, int dim, int rows, double scale, float *q,
                    float *k, float *v)
{
    size_t count = (size_t)tokens * (size_t)dim;
    fill_normal(rng, (size_t)rows * (size_t)dim, q);
    fill_normal(rng, count, k);
    fill_normal(rng, count, v);
    switch (kind) {
    case REFERENCE_DATA_OUTLIERS:
        for (size_t i = 0; i < count; i++) {
            if (i % 32 == 5) k[i] *= 30;
            if (i % 32 == 19) v[i] *= 30;
        }
        break;
    case REFERENCE_DATA_LARGE_SCORES:
        for (int r = 0; r < rows; r++) stretch_row(tokens, dim, scale, 50, q + r * dim, k);
        break;
    case REFERENCE_DATA_SINK:
        if (tokens > 0) make_sink(tokens, dim, rows, scale, q, k);
        break;
    case REFERENCE_DATA_RANGES:
        vary_ranges(rng, tokens, dim, rows, scale, q, k, v);
        break;
    case REFERENCE_DATA_STEPS:
        make_steps(rng, tokens, dim, rows, scale, q, k);
        break;
    case REFERENCE_DATA_HEADS:
        for (int r = 0; r < rows; r++)
            stretch_row(tokens, dim, scale, pow(2000, reference_uniform(rng)), q + r * dim, k);
        break;
    case REFERENCE_DATA_NANS:
        break_rows(rng, dim, rows, q);
        break;
    case REFERENCE_DATA_RANDOM:
    case REFERENCE_DATA_KINDS:
        break;
    }
}
