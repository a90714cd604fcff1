/* Cache kernels, part 4: quantise and append, for prefill (many tokens) and decode (one token a sequence).
 *
 * Prefill. A block owns a chunk of 64 tokens of one (sequence, KV head), because a V byte holds several tokens:
 *
 *   rows of k, v ──▶ quantise ──▶ codes in shared memory ──▶ words in the order of the page ──▶ page
 *   16 bytes a thread    └──▶ metadata ──▶ page                   ▲ fields of older tokens, from the page
 *
 * Decode. ROW_THREADS lanes own one row; lanes that share words exchange their fields by shuffles, and V bytes are
 * read, changed and written. Different rows never share a byte: every sequence owns the page of its last token. */

/* ---- Prefill ---- */

enum {
    ROWS = THREADS_APPEND_PREFILL / ROW_THREADS, /* quantised at a time */
    PASSES = CHUNK / ROWS,
    K_PITCH = HEAD_DIM / 4 + 1 /* words of a row of codes in shared memory; odd, against bank conflicts */
};

/* New tokens of a chunk: begin .. end - 1, found in rows row + begin .. of k and v. */
typedef struct prefill_work {
    int sequence, chunk, begin, end;
    long long row;
} prefill_work;

/* First block of a sequence: its n tokens touch at most n / 64 + 2 chunks, wherever they begin. */
DEVICE int first_block(const int *token_indptr, int sequence)
{
    return token_indptr[sequence] / CHUNK + 2 * sequence;
}

/* The work of this block, found by the whole block; begin >= end if there is none. */
DEVICE prefill_work find_prefill_work(const int *token_indptr, const int *lengths, int batch)
{
    int block = (int)blockIdx.x, sequence = -1;
    for (int base = 0; base < batch; base += THREADS_APPEND_PREFILL) {
        int candidate = base + (int)threadIdx.x;
        int count = __syncthreads_count(candidate < batch && first_block(token_indptr, candidate) <= block);
        sequence += count;
        if (count < THREADS_APPEND_PREFILL) break;
    }
    prefill_work work = {sequence, 0, 0, 0, 0};
    if (sequence < 0) return work;
    int length = lengths[sequence], from = token_indptr[sequence], first = length - (token_indptr[sequence + 1] - from);
    if (first < 0 || first >= length) return work;
    work.chunk = first / CHUNK + block - first_block(token_indptr, sequence);
    int start = work.chunk * CHUNK;
    work.begin = first > start ? first - start : 0;
    work.end = length - start < CHUNK ? length - start : CHUNK;
    work.row = (long long)from + start - first;
    return work;
}

/* Loads this thread's 16 bytes of every PASSES-th row of the chunk; rows that are not new read as 0. */
DEVICE void load_rows(uint4 *rows, const byte *source, long long stride, int head, prefill_work work)
{
    const uint4 zero = {0, 0, 0, 0};
    int token = (int)threadIdx.x / ROW_THREADS, part = (int)threadIdx.x % ROW_THREADS;
#pragma unroll
    for (int pass = 0; pass < PASSES; pass++, token += ROWS) {
        const byte *row = source + (work.row + token) * stride + (head * ROW_THREADS + part) * 16;
        rows[pass] = token >= work.begin && token < work.end ? *(const uint4 *)row : zero;
    }
}

/* Codes of K in shared memory: [token][channel], a byte each, rows K_PITCH words apart. */
DEVICE void store_k_codes(unsigned *shared, int token, int part, row_codes row)
{
    shared[token * K_PITCH + part * 2] = row.low;
    shared[token * K_PITCH + part * 2 + 1] = row.high;
}

/* Codes of V in shared memory: [channel][token], words of four tokens permuted against bank conflicts. */
DEVICE int v_code_word(int channel, int token)
{
    return channel * 16 + (token / 4 ^ channel / 8 % 16 ^ channel / 2 % 4 * 4);
}

DEVICE void store_v_codes(unsigned *shared, int token, int part, row_codes row)
{
#pragma unroll
    for (int j = 0; j < 8; j++) {
        unsigned code = (j < 4 ? row.low : row.high) >> (j % 4 * 8);
        ((byte *)(shared + v_code_word(part * 8 + j, token)))[token % 4] = (byte)code;
    }
}

/* Word `index` of the K chunk, in memory order, and the mask of its fields (neighbouring tokens) that are new. */
DEVICE unsigned gather_k_word(const unsigned *shared, int index, prefill_work work, unsigned *mask)
{
    int in_slice = index % (K_SLICE_BYTES / 4), first = in_slice / 64 * 4, width = k_vector_width(first);
    int lane = (in_slice - first * 16) / width, n = first + (in_slice - first * 16) % width; /* of 16 lanes, of its words */
    int token = index / (K_SLICE_BYTES / 4) * SLICE + lane / 4 * 4 + n / K_COLUMNS * K_FIELDS, column = n % K_COLUMNS * 4 + lane % 4;
    unsigned word = 0;
    *mask = 0;
#pragma unroll
    for (int field = 0; field < K_FIELDS; field++) {
        word |= shared[(token + field) * K_PITCH + column] << (field * K_BITS);
        if (token + field >= work.begin && token + field < work.end) *mask |= K_MASK << (field * K_BITS);
    }
    return word & *mask;
}

/* Bits of the bytes of a V word that belong to tokens begin .. end - 1, for the field of tokens token .. token + 3. */
DEVICE unsigned v_field_mask(int token, int field, int begin, int end)
{
    unsigned mask = 0;
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (token + j >= begin && token + j < end) mask |= ((1u << V_BITS) - 1) << (field * V_BITS + j * 8);
    return mask;
}

/* Word `index` of the V chunk, in memory order, and the mask of its fields that are new. */
DEVICE unsigned gather_v_word(const unsigned *shared, int index, prefill_work work, unsigned *mask)
{
    int thread = index / V_WORDS % 128, slice = index % V_WORDS * V_HALVES, tile = index / (128 * V_WORDS) * V_TILES;
    int channel = tile * 64 + thread / 32 * 16 + thread % 32 / 4, token = slice * SLICE + thread % 4 * 4;
    unsigned word = 0;
    *mask = 0;
#pragma unroll
    for (int field = 0; field < V_FIELDS; field++) {
        int c = channel + field % 2 * 8 + field / 2 % V_TILES * 64, t = token + field / 2 / V_TILES * SLICE;
        word |= shared[v_code_word(c, t)] << (field * V_BITS);
        *mask |= v_field_mask(t, field, work.begin, work.end);
    }
    return word & *mask;
}

/* Writes the chunk's codes. Only the first chunk of an append holds older tokens (begin > 0), which are then kept. */
DEVICE void write_codes(chunk_view chunk, const unsigned *k_codes, const unsigned *v_codes, prefill_work work)
{
    for (int index = (int)threadIdx.x; index < K_CHUNK_BYTES / 4; index += THREADS_APPEND_PREFILL) {
        unsigned mask, word = gather_k_word(k_codes, index, work, &mask), *place = (unsigned *)chunk.k + index;
        *place = work.begin > 0 ? (*place & ~mask) | word : word;
    }
    for (int index = (int)threadIdx.x; index < V_CHUNK_BYTES / 4; index += THREADS_APPEND_PREFILL) {
        unsigned mask, word = gather_v_word(v_codes, index, work, &mask), *place = (unsigned *)chunk.v + index;
        *place = work.begin > 0 ? (*place & ~mask) | word : word;
    }
}

ENTRY(THREADS_APPEND_PREFILL, 2)
foscar_append_prefill(const byte *k, const byte *v, long long k_stride, long long v_stride, byte *pages,
                      long long page_stride, long long head_stride, const int *page_table, const int *page_indptr,
                      const int *lengths, const int *token_indptr, int table_stride, int batch)
{
    __shared__ unsigned k_codes[CHUNK * K_PITCH], v_codes[HEAD_DIM * CHUNK / 4];
    cache_view cache = {pages, page_stride, head_stride, page_table, page_indptr, table_stride};
    int head = (int)blockIdx.y, part = (int)threadIdx.x % ROW_THREADS;
    prefill_work work = find_prefill_work(token_indptr, lengths, batch);
    if (work.begin >= work.end) return;
    uint4 k_rows[PASSES], v_rows[PASSES];
    load_rows(k_rows, k, k_stride, head, work);
    load_rows(v_rows, v, v_stride, head, work);
    chunk_view chunk = find_chunk(cache, work.sequence, head, work.chunk);
    if (chunk.k == 0) return;
    int token = (int)threadIdx.x / ROW_THREADS;
#pragma unroll
    for (int pass = 0; pass < PASSES; pass++, token += ROWS) {
        row_codes k_row = quantise(k_rows[pass], K_BITS), v_row = quantise(v_rows[pass], V_BITS);
        store_k_codes(k_codes, token, part, k_row);
        store_v_codes(v_codes, token, part, v_row);
        if (part == 0 && token >= work.begin && token < work.end) {
            chunk.k_metadata[token] = k_row.metadata;
            chunk.v_metadata[token] = v_row.metadata;
        }
    }
    __syncthreads();
    write_codes(chunk, k_codes, v_codes, work);
}

/* ---- Decode ---- */

/* Changes the fields of a row of K: two words of a lane. */
DEVICE void write_k_row(byte *codes, int token, int part, row_codes row, bool active)
{
    if (!active) return;
    int shift = k_shift(token);
    unsigned *low = (unsigned *)(codes + k_word_offset(token, part * 8)), *high = (unsigned *)(codes + k_word_offset(token, part * 8 + 4));
    unsigned mask = K_MASK << shift, old_low = *low, old_high = *high;
    *low = (old_low & ~mask) | row.low << shift;
    *high = (old_high & ~mask) | row.high << shift;
}

/* Changes the bytes of a row of V: lanes that have the same bytes, in other row halves and channel tiles, combine their
   fields and share the eight bytes out among them. */
DEVICE void write_v_row(byte *codes, int token, int part, row_codes row, bool active)
{
    enum { SHARE = 8 / (2 * V_TILES), STEP = 4 * V_WORDS * 4 /* bytes from one channel to the next */ };
    int half = part % 2, tile = part / 8 % V_TILES, up = token / SLICE % V_HALVES * V_HALF_BITS;
    unsigned shift = half * V_BITS + tile * V_TILE_BITS, low = row.low << shift, high = row.high << shift;
    unsigned mask = ((1u << V_HALF_BITS) - 1) << up, old[SHARE];
    low |= __shfl_xor_sync(ALL_LANES, low, 1);
    high |= __shfl_xor_sync(ALL_LANES, high, 1);
#pragma unroll
    for (int lane = 8; lane < 8 * V_TILES; lane *= 2) {
        low |= __shfl_xor_sync(ALL_LANES, low, lane);
        high |= __shfl_xor_sync(ALL_LANES, high, lane);
    }
    if (!active) return;
    int channel = (tile * 2 + half) * SHARE; /* of the eight that this lane writes */
    byte *first = codes + v_byte_offset(token, part / 2 * 16 + channel);
#pragma unroll
    for (int j = 0; j < SHARE; j++) old[j] = V_HALVES > 1 ? first[j * STEP] : 0;
#pragma unroll
    for (int j = 0; j < SHARE; j++) {
        unsigned fields = ((channel + j < 4 ? low : high) >> ((channel + j) % 4 * 8) & 0xffu) << up;
        first[j * STEP] = (byte)((old[j] & ~mask) | fields);
    }
}

/* A warp takes the K rows or the V rows of 32 / ROW_THREADS neighbouring (sequence, KV head) pairs. */
ENTRY(THREADS_APPEND_DECODE, 8)
foscar_append_decode(const byte *k, const byte *v, long long k_stride, long long v_stride, byte *pages,
                     long long page_stride, long long head_stride, const int *page_table, const int *page_indptr,
                     const int *lengths, int table_stride, int batch, int kv_heads)
{
    const uint4 zero = {0, 0, 0, 0};
    cache_view cache = {pages, page_stride, head_stride, page_table, page_indptr, table_stride};
    int warp = (int)blockIdx.x * (THREADS_APPEND_DECODE / 32) + (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int pair = warp / 2 * (32 / ROW_THREADS) + lane / ROW_THREADS, part = lane % ROW_THREADS;
    bool is_v = warp % 2 != 0, active = pair < batch * kv_heads;
    int sequence = active ? pair / kv_heads : 0, head = active ? pair % kv_heads : 0;
    int token = active ? lengths[sequence] - 1 : -1;
    active = token >= 0;
    const byte *source = is_v ? v + sequence * v_stride : k + sequence * k_stride;
    uint4 packed = active ? *(const uint4 *)(source + (head * ROW_THREADS + part) * 16) : zero;
    chunk_view chunk = {0, 0, 0, 0};
    if (active) chunk = find_chunk(cache, sequence, head, token / CHUNK);
    active = chunk.k != 0;
    token = active ? token % CHUNK : 0;
    row_codes row = quantise(packed, is_v ? V_BITS : K_BITS);
    if (is_v)
        write_v_row(chunk.v, token, part, row, active);
    else
        write_k_row(chunk.k, token, part, row, active);
    if (active && part == 0) (is_v ? chunk.v_metadata : chunk.k_metadata)[token] = row.metadata;
}
