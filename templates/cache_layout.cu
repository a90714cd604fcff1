/* Cache kernels, part 2: where a token's codes lie, and stores of numbers. The maps are those of gen/fragment.h, whose
 * formulas and letters are used here; offsets of a page and the spread of V fields come in as macros, computed by
 * gen/fragment.c. */
typedef unsigned char byte;

enum {
    CHUNK = 64, /* tokens of a chunk */
    K_FIELDS = 8 / K_BITS,
    V_FIELDS = 8 / V_BITS,
    K_STEPS = HEAD_DIM / 32,                /* of 32 channels */
    K_CHUNK_BYTES = CHUNK * HEAD_DIM * K_BITS / 8,
    V_CHUNK_BYTES = CHUNK * HEAD_DIM * V_BITS / 8,
    V_WORDS = HEAD_DIM / 64 * 8 / V_FIELDS, /* words of a lane and chunk */
    V_VECTOR = V_WORDS < 4 ? V_WORDS : 4,   /* of them in one load */
    V_TILE_BITS = V_STEPS * V_BITS,         /* from the field of one channel tile to that of the next */
    V_STEP_WORDS = 2 / V_STEPS,             /* words for the steps that are no fields */
    V_HALF_WORDS = 2 / V_HALVES,            /* words for the halves that are no fields */
    ROW_THREADS = HEAD_DIM / 8              /* threads of a row of K or V in the append kernels: 16 bytes each */
};

#define K_MASK (0x01010101u * ((1u << K_BITS) - 1)) /* field 0 of the four bytes of a word */

typedef struct cache_view {
    byte *pages;
    long long page_stride, head_stride; /* bytes */
    const int *page_table, *page_indptr;
    int table_stride;
} cache_view;

/* One chunk of one KV head: its K codes, V codes and the metadata of its tokens; all 0 where the table has no page. */
typedef struct chunk_view {
    byte *k, *v;
    unsigned *k_metadata, *v_metadata; /* [CHUNK], scale << 16 | minimum */
} chunk_view;

DEVICE chunk_view find_chunk(cache_view cache, int sequence, int head, int chunk)
{
    const int chunks = PAGE_TOKENS / CHUNK;
    chunk_view view = {0, 0, 0, 0};
    long long row =
        cache.page_indptr ? (long long)cache.page_indptr[sequence] : (long long)sequence * cache.table_stride;
    int page = cache.page_table[row + chunk / chunks], part = chunk % chunks;
    if (page < 0) return view;
    byte *base = cache.pages + page * cache.page_stride + head * cache.head_stride;
    view.k = base + K_CODES + part * K_CHUNK_BYTES;
    view.v = base + V_CODES + part * V_CHUNK_BYTES;
    view.k_metadata = (unsigned *)(base + K_METADATA) + part * CHUNK;
    view.v_metadata = (unsigned *)(base + V_METADATA) + part * CHUNK;
    return view;
}

/* Numbers index .. index + 3 of an array, index a multiple of 4. */
DEVICE void store_f32(byte *array, long long index, const float *x)
{
    float4 packed = {x[0], x[1], x[2], x[3]};
    *(float4 *)(array + index * 4) = packed;
}

DEVICE void store_bf16(byte *array, long long index, const float *x)
{
    uint2 packed = {bf16_from_float(x[0]) | (unsigned)bf16_from_float(x[1]) << 16,
                    bf16_from_float(x[2]) | (unsigned)bf16_from_float(x[3]) << 16};
    *(uint2 *)(array + index * 2) = packed;
}

DEVICE void store_f16(byte *array, long long index, const float *x)
{
    uint2 packed = {f16_from_float(x[0]) | (unsigned)f16_from_float(x[1]) << 16,
                    f16_from_float(x[2]) | (unsigned)f16_from_float(x[3]) << 16};
    *(uint2 *)(array + index * 2) = packed;
}

/* Byte offset in the chunk of the word that holds channels c .. c + 3 of a token, one a byte; c is a multiple of 4. */
DEVICE int k_word_offset(int token, int c)
{
    int i = token % 4, rr = token / 4 % 8, h = token / 32, q = c % 16 / 4, kh = c % 32 / 16;
    return (i / K_FIELDS * K_STEPS + c / 32) * 512 + (rr * 4 + q) * 16 + (kh * 2 + h) * 4;
}

DEVICE int k_shift(int token)
{
    return token % 4 % K_FIELDS * K_BITS;
}

/* Byte offset in the chunk of the byte that holds channel c of a token. */
DEVICE int v_byte_offset(int token, int c)
{
    int mt = c / 64, w = c % 64 / 16, h = c % 16 / 8, rr = c % 8;
    int q = token % 16 / 4, kh = token % 32 / 16, ks = token / 32;
    int n = ((mt / V_TILES * V_STEP_WORDS + ks / V_STEPS) * V_HALF_WORDS + kh / V_HALVES) * 2 + h;
    return (n / V_VECTOR * 128 + w * 32 + rr * 4 + q) * V_VECTOR * 4 + n % V_VECTOR * 4 + token % 4;
}

/* Shift of channel tile 0 of a token; the other tiles of the byte follow it upwards, V_TILE_BITS apart. */
DEVICE int v_shift(int token)
{
    return (token / 32 % V_STEPS + token % 32 / 16 % V_HALVES * V_TILES * V_STEPS) * V_BITS;
}
