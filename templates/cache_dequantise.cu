/* Cache kernels, part 5: dequantise. A block has one chunk of one KV head, so that the scattered bytes it reads are all
 * of some cache lines; a thread writes four channels of one token at a time. */

/* scale * code + minimum, rounded once; the product is exact anyway, since scale has at most 11 bits and the code 4. */
DEVICE float dequantise(unsigned code, unsigned metadata)
{
    float scale = OF(float_from_, M_TYPE)((unsigned short)(metadata >> 16)),
          minimum = OF(float_from_, M_TYPE)((unsigned short)metadata);
    return __fmaf_rn(scale, (float)code, minimum);
}

DEVICE void store_numbers(byte *out, long long index, bool narrow, const float *x)
{
    if (narrow)
        OF(store_, Q_TYPE)(out, index, x);
    else
        store_f32(out, index, x);
}

DEVICE void dequantise_k(chunk_view chunk, int token, int channel, float *x)
{
    unsigned word = *(const unsigned *)(chunk.k + k_word_offset(token, channel)) >> k_shift(token);
#pragma unroll
    for (int j = 0; j < 4; j++) x[j] = dequantise(word >> (j * 8) & ((1u << K_BITS) - 1), chunk.k_metadata[token]);
}

DEVICE void dequantise_v(chunk_view chunk, int token, int channel, float *x)
{
    int shift = v_shift(token, channel);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        unsigned code = (unsigned)chunk.v[v_byte_offset(token, channel + j)] >> shift;
        x[j] = dequantise(code & ((1u << V_BITS) - 1), chunk.v_metadata[token]);
    }
}

ENTRY(THREADS_DEQUANTISE, 4)
foscar_dequantise(byte *k_out, byte *v_out, byte *pages, long long page_stride, long long head_stride,
                  const int *page_table, const int *page_indptr, int table_stride, int sequence, int begin, int end,
                  int kv_heads, int narrow)
{
    cache_view cache = {pages, page_stride, head_stride, page_table, page_indptr, table_stride};
    int head = (int)blockIdx.y, index = begin / CHUNK + (int)blockIdx.x, start = index * CHUNK;
    if (start >= end) return;
    chunk_view chunk = find_chunk(cache, sequence, head, index);
    if (chunk.k == 0) return;
    int from = begin > start ? begin - start : 0, to = end - start < CHUNK ? end - start : CHUNK;
    for (int item = (int)threadIdx.x; item < (to - from) * (HEAD_DIM / 4); item += THREADS_DEQUANTISE) {
        int token = from + item / (HEAD_DIM / 4), channel = item % (HEAD_DIM / 4) * 4;
        long long place = ((long long)(start + token - begin) * kv_heads + head) * HEAD_DIM + channel;
        float x[4];
        if (k_out) {
            dequantise_k(chunk, token, channel, x);
            store_numbers(k_out, place, narrow != 0, x);
        }
        if (v_out) {
            dequantise_v(chunk, token, channel, x);
            store_numbers(v_out, place, narrow != 0, x);
        }
    }
}
