/* Cache kernels, part 2: where a token's codes lie, and stores of numbers. The maps are those of gen/fragment.h, whose
 * formulas and letters are used here; offsets of a page and the spread of V fields come in as macros, computed by
 * gen/fragment.c. */
typedef unsigned char byte;

enum {
    CHUNK = 64, /* tokens of a chunk */
    SLICE = 16, /* tokens of a slice */
    K_FIELDS = 8 / K_BITS,
    V_FIELDS = 8 / V_BITS,
    K_COLUMNS = HEAD_DIM / 16,
    K_WORDS = 4 / K_FIELDS * K_COLUMNS, /* of a lane and slice */
    K_SLICE_BYTES = SLICE * HEAD_DIM * K_BITS / 8,
    K_CHUNK_BYTES = CHUNK / SLICE * K_SLICE_BYTES,
    V_CHUNK_BYTES = CHUNK * HEAD_DIM * V_BITS / 8,
    V_WORDS = CHUNK / SLICE / V_HALVES,     /* of a thread, group of channel tiles and chunk */
    V_TILE_BITS = 2 * V_BITS,               /* from the field of one channel tile to that of the next */
    V_HALF_BITS = V_TILES * V_TILE_BITS,    /* from the fields of one half to those of the next */
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

/* Words of the vector of K that has word n of a lane. */
DEVICE int k_vector_width(int n)
{
    return K_WORDS - n / 4 * 4 < 4 ? K_WORDS - n / 4 * 4 : 4;
}

/* Byte offset in the chunk of the word that holds channels c .. c + 3 of a token, one a byte; c is a multiple of 4. */
DEVICE int k_word_offset(int token, int c)
{
    int i = token % 4, rr = token % SLICE / 4, q = c % 16 / 4, n = i / K_FIELDS * K_COLUMNS + c / 16;
    return token / SLICE * K_SLICE_BYTES + n / 4 * 256 + ((rr * 4 + q) * k_vector_width(n) + n % 4) * 4;
}

DEVICE int k_shift(int token)
{
    return token % 4 % K_FIELDS * K_BITS;
}

/* Byte offset in the chunk of the byte that holds channel c of a token. */
DEVICE int v_byte_offset(int token, int c)
{
    int group = c / 64 / V_TILES, w = c % 64 / 16, rr = c % 8, q = token % SLICE / 4;
    return (group * 128 + w * 32 + rr * 4 + q) * V_WORDS * 4 + token / SLICE / V_HALVES * 4 + token % 4;
}

/* Shift of channel c of a token in that byte. */
DEVICE int v_shift(int token, int c)
{
    return c % 16 / 8 * V_BITS + c / 64 % V_TILES * V_TILE_BITS + token / SLICE % V_HALVES * V_HALF_BITS;
}
