/* A paged cache in poisoned memory to which the cache kernels of cache_kernels_on_host.h append, and a copy of it to
 * which the reference does. Included by one test program, after cmocka.h. */
#ifndef FOSCAR_TESTS_CACHE_FIXTURE_H
#define FOSCAR_TESTS_CACHE_FIXTURE_H

#include "cache_kernels_on_host.h"

static reference_rng rng;

#define ADDRESS(pointer) ((uint64_t)(uintptr_t)(pointer))

static void *memory_of(size_t bytes, int poison)
{
    void *memory = NULL;
    assert_int_equal(posix_memalign(&memory, 16, bytes + 16), 0);
    memset(memory, poison, bytes);
    return memory;
}

enum {
    BATCH = 5,
    KV_HEADS = 3,
    ENTRIES = 4 * 256 / PAGE_TOKENS, /* of each sequence */
    TABLE_STRIDE = ENTRIES + 3,
    PAGES = BATCH * ENTRIES + 2,
    ROW_BYTES = KV_HEADS * HEAD_DIM * 2
};

typedef struct fixture {
    config cfg;
    reference_cache actual, expected;
    size_t pool_bytes;
    int32_t table[BATCH * TABLE_STRIDE], indptr[BATCH + 1], lengths[BATCH], token_indptr[BATCH + 1];
} fixture;

/* Every sequence gets pages in a random order; entries that are no sequence's are -1. */
static void fill_table(fixture *f, bool csr)
{
    int pages[PAGES];
    host_draw_order(&rng, pages, PAGES);
    memset(f->table, 0xff, sizeof f->table);
    for (int b = 0; b <= BATCH; b++) f->indptr[b] = b * ENTRIES;
    for (int b = 0; b < BATCH; b++)
        for (int i = 0; i < ENTRIES; i++)
            f->table[(csr ? f->indptr[b] : b * TABLE_STRIDE) + i] = pages[b * ENTRIES + i];
}

static fixture *make_fixture(bool csr)
{
    fixture *f = memory_of(sizeof *f, 0);
    f->cfg = host_config();
    int64_t head_stride = fragment_page_layout(&f->cfg).bytes + 16, page_stride = KV_HEADS * head_stride + 32;
    f->pool_bytes = (size_t)(PAGES * page_stride);
    fill_table(f, csr);
    f->actual = (reference_cache){&f->cfg,  memory_of(f->pool_bytes, 0), page_stride, head_stride,
                                  f->table, csr ? f->indptr : NULL,      TABLE_STRIDE, NULL};
    f->expected = f->actual;
    f->expected.pages = memory_of(f->pool_bytes, 0);
    for (size_t i = 0; i < f->pool_bytes; i++)
        f->actual.pages[i] = f->expected.pages[i] = (uint8_t)reference_bits(&rng);
    return f;
}

static void free_fixture(fixture *f)
{
    free(f->actual.pages);
    free(f->expected.pages);
    free(f);
}

/* Fills one row with numbers of a random kind, those among them over which a quantiser may trip. */
static void fill_row(number_type type, uint16_t *x)
{
    uint32_t kind = reference_below(&rng, 8);
    uint16_t constant = (uint16_t)reference_bits(&rng);
    for (int c = 0; c < HEAD_DIM; c++) {
        uint16_t any = (uint16_t)reference_bits(&rng);
        switch (kind) {
        case 0:
            x[c] = any;
            break; /* NaN, infinities, subnormal numbers */
        case 1:
            x[c] = constant;
            break;
        case 2:
            x[c] = any & 0x8000;
            break; /* zeros of both signs */
        case 3:
            x[c] = any & 0x80ff;
            break; /* the smallest numbers */
        case 4:
            x[c] = reference_narrow(type, (float)(any % 31) * 0.5f);
            break; /* ties */
        case 5:
            x[c] = any % 16   ? reference_narrow(type, 3)
                   : any & 16 ? 0x7fff
                              : reference_narrow(type, any & 32 ? INFINITY : -INFINITY);
            break;
        default:
            x[c] = reference_narrow(type, (float)reference_normal(&rng));
            break;
        }
    }
}

/* Rows of k or v, with a gap after each. */
static uint16_t *make_rows(number_type type, int rows, int64_t *stride)
{
    *stride = ROW_BYTES + 16 * (int64_t)reference_below(&rng, 3);
    uint16_t *memory = memory_of((size_t)(rows * *stride), 0xff);
    for (int row = 0; row < rows; row++)
        for (int h = 0; h < KV_HEADS; h++) fill_row(type, memory + row * *stride / 2 + h * HEAD_DIM);
    return memory;
}

static void append_to_expected(fixture *f, reference_side side, const uint16_t *row, int sequence, int token)
{
    float x[HEAD_DIM];
    for (int h = 0; h < KV_HEADS; h++) {
        reference_read(f->cfg.q_type, row + h * HEAD_DIM, HEAD_DIM, x);
        reference_append(&f->expected, side, sequence, h, token, x);
    }
}

/* Appends counts[b] tokens to each sequence, by the kernel and by the reference. */
static void append_prefill(fixture *f, const int *counts)
{
    int64_t k_stride, v_stride;
    for (int b = 0; b < BATCH; b++) {
        f->token_indptr[b + 1] = f->token_indptr[b] + counts[b];
        f->lengths[b] += counts[b];
    }
    int tokens = f->token_indptr[BATCH];
    uint16_t *k = make_rows(f->cfg.q_type, tokens, &k_stride), *v = make_rows(f->cfg.q_type, tokens, &v_stride);
    const uint64_t arguments[APPEND_PREFILL_PARAM_COUNT] = {
        ADDRESS(k),
        ADDRESS(v),
        (uint64_t)k_stride,
        (uint64_t)v_stride,
        ADDRESS(f->actual.pages),
        (uint64_t)f->actual.page_stride,
        (uint64_t)f->actual.head_stride,
        ADDRESS(f->table),
        ADDRESS(f->actual.page_indptr),
        ADDRESS(f->lengths),
        ADDRESS(f->token_indptr),
        TABLE_STRIDE,
        BATCH,
    };
    cache_work work = {.tokens = tokens, .batch = BATCH, .kv_heads = KV_HEADS};
    host_launch_cache(CACHE_APPEND_PREFILL, &work, arguments, &rng);
    for (int b = 0; b < BATCH; b++)
        for (int i = 0; i < counts[b]; i++) {
            int64_t row = f->token_indptr[b] + i;
            append_to_expected(f, REFERENCE_K, k + row * k_stride / 2, b, f->lengths[b] - counts[b] + i);
            append_to_expected(f, REFERENCE_V, v + row * v_stride / 2, b, f->lengths[b] - counts[b] + i);
        }
    free(k);
    free(v);
}

/* Code bits beyond the length, in a chunk that was appended to, are free: copies them, so that the pools can be
 * compared whole. */
static void copy_free_codes(fixture *f, int sequence)
{
    uint8_t codes[HEAD_DIM], unused[HEAD_DIM];
    for (int t = f->lengths[sequence]; t % CHUNK_TOKENS != 0; t++)
        for (int h = 0; h < KV_HEADS; h++)
            for (int side = REFERENCE_K; side <= REFERENCE_V; side++) {
                uint8_t *expected = reference_page(&f->expected, sequence, h, t);
                reference_page_load(&f->cfg, reference_page(&f->actual, sequence, h, t), (reference_side)side,
                                    t % PAGE_TOKENS, codes);
                uint32_t metadata =
                    reference_page_load(&f->cfg, expected, (reference_side)side, t % PAGE_TOKENS, unused);
                reference_page_store(&f->cfg, expected, (reference_side)side, t % PAGE_TOKENS, codes, metadata);
            }
}

/* One token to each sequence whose length is not 0 and which is not skipped. */
static void append_decode(fixture *f, int skipped)
{
    int64_t k_stride, v_stride;
    uint16_t *k = make_rows(f->cfg.q_type, BATCH, &k_stride), *v = make_rows(f->cfg.q_type, BATCH, &v_stride);
    int32_t lengths[BATCH];
    for (int b = 0; b < BATCH; b++) {
        if (b != skipped) f->lengths[b]++;
        lengths[b] = b == skipped ? 0 : f->lengths[b];
    }
    const uint64_t arguments[APPEND_DECODE_PARAM_COUNT] = {
        ADDRESS(k),
        ADDRESS(v),
        (uint64_t)k_stride,
        (uint64_t)v_stride,
        ADDRESS(f->actual.pages),
        (uint64_t)f->actual.page_stride,
        (uint64_t)f->actual.head_stride,
        ADDRESS(f->table),
        ADDRESS(f->actual.page_indptr),
        ADDRESS(lengths),
        TABLE_STRIDE,
        BATCH,
        KV_HEADS,
    };
    cache_work work = {.batch = BATCH, .kv_heads = KV_HEADS};
    host_launch_cache(CACHE_APPEND_DECODE, &work, arguments, &rng);
    for (int b = 0; b < BATCH; b++)
        if (b != skipped) {
            append_to_expected(f, REFERENCE_K, k + b * k_stride / 2, b, f->lengths[b] - 1);
            append_to_expected(f, REFERENCE_V, v + b * v_stride / 2, b, f->lengths[b] - 1);
        }
    free(k);
    free(v);
}

#endif
