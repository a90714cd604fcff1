/* Cache kernels, part 3: the quantiser, one group a row (one token of one KV head). This text defines it;
 * tests/reference.c computes the same bits.
 *
 *   1. Clean: a NaN counts as 0; values are clamped to +-LIMIT, which is 65504 where metadata are f16 and 2^100 where
 *      they are bf16.
 *   2. minimum = smallest value, as M_TYPE; a zero has no sign.
 *      scale = (largest - smallest) / (2^bits - 1) in float32, as M_TYPE; below 2^-100 it is stored as 0.
 *   3. code = (x - minimum) / scale in float32, clamped to 0 .. 2^bits - 1, rounded to nearest even, with minimum and
 *      scale as stored; 0 if the scale is 0, so a constant group is exact as far as M_TYPE has its value.
 *
 * Every float32 operation rounds to nearest even (-fmad=false), every result is defined, no row depends on another. */
#define LIMIT       OF(limit_, M_TYPE)
#define limit_f16   65504.0f
#define limit_bf16  1.2676506e30f  /* 2^100 */
#define SCALE_FLOOR 7.8886091e-31f /* 2^-100 */
#define ALL_LANES   0xffffffffu

/* Eight neighbouring channels of a row. */
typedef struct row_codes {
    unsigned low, high; /* channels 0 .. 3 and 4 .. 7, a code in each byte */
    unsigned metadata;  /* of the whole row */
} row_codes;

/* (x - minimum) / scale. One reciprocal a row and a residual correction give exactly the quotient of an IEEE division
   here: scale has at most 11 significant bits, so no quotient of a float32 by it lies within 2^-36 of the middle of two
   float32, and with 2^-100 <= scale and |x| <= LIMIT nothing that matters underflows. */
DEVICE float quotient(float difference, float scale, float reciprocal)
{
    float estimate = difference * reciprocal;
    return __fmaf_rn(__fmaf_rn(-estimate, scale, difference), reciprocal, estimate);
}

DEVICE unsigned pack_bytes(const unsigned *codes)
{
    return __byte_perm(__byte_perm(codes[0], codes[1], 0x0040), __byte_perm(codes[2], codes[3], 0x0040), 0x5410);
}

/* Quantises the rows of a warp: ROW_THREADS neighbouring lanes have one row, eight channels each; all take part. */
DEVICE row_codes quantise(uint4 packed, int bits)
{
    const float levels = (float)((1 << bits) - 1);
    const unsigned pairs[4] = {packed.x, packed.y, packed.z, packed.w};
    float x[8];
    bool tame = true;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        x[j] = OF(float_from_, Q_TYPE)((unsigned short)(pairs[j / 2] >> (j % 2 * 16)));
        tame = tame && fabsf(x[j]) <= LIMIT;
    }
    if (!__all_sync(ALL_LANES, tame)) {
#pragma unroll
        for (int j = 0; j < 8; j++) x[j] = x[j] == x[j] ? fminf(fmaxf(x[j], -LIMIT), LIMIT) : 0.0f;
    }
    float smallest = x[0], largest = x[0];
#pragma unroll
    for (int j = 1; j < 8; j++) {
        smallest = fminf(smallest, x[j]);
        largest = fmaxf(largest, x[j]);
    }
#pragma unroll
    for (int mask = 1; mask < ROW_THREADS; mask *= 2) {
        smallest = fminf(smallest, __shfl_xor_sync(ALL_LANES, smallest, mask));
        largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, mask));
    }
    smallest += 0.0f; /* -0 becomes 0: min and max may return either */
    float range = largest - smallest;
    unsigned short minimum_bits = OF(M_TYPE, _from_float)(smallest),
                   scale_bits = OF(M_TYPE, _from_float)(__fdiv_rn(range, levels));
    float minimum = OF(float_from_, M_TYPE)(minimum_bits), scale = OF(float_from_, M_TYPE)(scale_bits);
    bool constant = scale < SCALE_FLOOR;
    float reciprocal = __fdiv_rn(1.0f, constant ? 1.0f : scale);
    unsigned codes[8];
#pragma unroll
    for (int j = 0; j < 8; j++) {
        float code = quotient(x[j] - minimum, scale, reciprocal);
        /* Adding 1.5 * 2^23 rounds to an integer, which is left in the low bits. */
        codes[j] = __float_as_uint(fminf(fmaxf(code, 0.0f), levels) + 12582912.0f);
    }
    row_codes row = {pack_bytes(codes), pack_bytes(codes + 4), (unsigned)scale_bits << 16 | minimum_bits};
    if (constant) {
        row.low = row.high = 0;
        row.metadata = minimum_bits;
    }
    return row;
}
