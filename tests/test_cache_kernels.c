/* The cache kernels, run on the CPU, against the reference: bit for bit, with no byte elsewhere
 * touched. Compiled for one specification (macros of cache_kernels_on_host.h); the build makes a program for each of
 * several. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cache_fixture.h"

/* ---- The tables of cache_kernels.h against the source ---- */

static void the_options_are_the_macros_of_this_test(void **state)
{
    (void)state;
#define MACRO(name)                                                                                                    \
    {                                                                                                                  \
        "-D" #name "=", name                                                                                           \
    }
    static const struct {
        const char *prefix;
        int value;
    } macros[] = {MACRO(HEAD_DIM),
                  MACRO(HEADS),
                  MACRO(PAGE_TOKENS),
                  MACRO(K_BITS),
                  MACRO(V_BITS),
                  MACRO(V_TILES),
                  
                  MACRO(V_HALVES),
                  MACRO(K_CODES),
                  MACRO(V_CODES),
                  MACRO(K_METADATA),
                  MACRO(V_METADATA),
                  MACRO(PARTIAL_BYTES),
                  MACRO(MERGE_HEADS),
                  MACRO(MERGE_WORKERS),
                  MACRO(THREADS_MERGE),
                  MACRO(THREADS_APPEND_PREFILL),
                  MACRO(THREADS_APPEND_DECODE),
                  MACRO(THREADS_DEQUANTISE),
                  MACRO(THREADS_CHECK)};
#undef MACRO
    static const char *const texts[] = {"-DQ_TYPE=" TEXT(Q_TYPE), "-DO_TYPE=" TEXT(O_TYPE), "-DM_TYPE=" TEXT(M_TYPE),
                                        "-fmad=false"};
    enum { MACROS = sizeof macros / sizeof *macros, TEXTS = sizeof texts / sizeof *texts };
    config cfg = host_config();
    char options[CACHE_OPTIONS_MAX][CACHE_OPTION_MAX];
    int count = cache_kernels_options(&cfg, options), found = 0;
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < TEXTS; j++) found += strcmp(options[i], texts[j]) == 0;
        for (int j = 0; j < MACROS; j++) {
            size_t length = strlen(macros[j].prefix);
            if (strncmp(options[i], macros[j].prefix, length) != 0) continue;
            assert_int_equal(atoi(options[i] + length), macros[j].value);
            found++;
        }
    }
    assert_int_equal(count, MACROS + TEXTS);
    assert_int_equal(found, count);
}

/* Checks the parameter at *text against a table row and moves *text beyond the ',' or ')' after it. */
static void check_parameter(const char **text, const cache_param *param, bool is_last)
{
    const char *begin = *text + strspn(*text, " \n"), *end = begin + strcspn(begin, ",)"), *name = end;
    while (name > begin && strchr(" *", name[-1]) == NULL) name--;
    bool wide = memchr(begin, '*', (size_t)(end - begin)) != NULL || strncmp(begin, "long long ", 10) == 0;
    assert_int_equal(end - name, strlen(param->name));
    assert_memory_equal(name, param->name, strlen(param->name));
    assert_int_equal(wide ? 8 : 4, param->bytes);
    assert_int_equal(*end, is_last ? ')' : ',');
    *text = end + 1;
}

static void the_parameter_tables_are_those_of_the_source(void **state)
{
    (void)state;
    for (int k = 0; k < CACHE_KERNELS; k++) {
        const cache_kernel_row *row = cache_kernel_info((cache_kernel)k);
        char entry[64];
        snprintf(entry, sizeof entry, "%s(", row->entry);
        const char *text = strstr(cache_kernels_source(), entry);
        assert_non_null(text);
        text += strlen(entry);
        for (int p = 0; p < row->param_count; p++) check_parameter(&text, &row->params[p], p == row->param_count - 1);
    }
}

/* ---- Append ---- */

static void prefill_writes_the_reference_bytes_and_no_others(void **state)
{
    (void)state;
    for (int csr = 0; csr < 2; csr++) {
        fixture *f = make_fixture(csr);
        const int rounds[][BATCH] = {
            {1, 64, 0, 63, 200}, {1, 0, 5, 1, 70}, {130, 65, 0, 1, 3}, {0, 0, 0, 0, 0}, {61, 1, 64, 128, 1}};
        for (size_t r = 0; r < (csr ? sizeof rounds / sizeof *rounds : 2); r++) {
            append_prefill(f, rounds[r]);
            for (int b = 0; b < BATCH; b++)
                if (rounds[r][b] > 0) copy_free_codes(f, b);
            assert_memory_equal(f->actual.pages, f->expected.pages, f->pool_bytes);
        }
        free_fixture(f);
    }
}

static void decode_writes_the_reference_bytes_and_no_others(void **state)
{
    (void)state;
    for (int csr = 0; csr < 2; csr++) {
        fixture *f = make_fixture(csr);
        for (int b = 0; b < BATCH; b++) f->lengths[b] = b * 37;
        for (int step = 0; step < 70; step++) {
            append_decode(f, step % (BATCH + 2));
            assert_memory_equal(f->actual.pages, f->expected.pages, f->pool_bytes);
        }
        free_fixture(f);
    }
}

static void prefill_and_decode_alternate(void **state)
{
    (void)state;
    fixture *f = make_fixture(true);
    for (int round = 0; round < 4; round++) {
        int counts[BATCH];
        for (int b = 0; b < BATCH; b++) counts[b] = (int)reference_below(&rng, 3) * (int)reference_below(&rng, 40);
        append_prefill(f, counts);
        for (int step = 0; step < 5; step++) append_decode(f, -1);
        for (int b = 0; b < BATCH; b++) copy_free_codes(f, b);
        assert_memory_equal(f->actual.pages, f->expected.pages, f->pool_bytes);
    }
    free_fixture(f);
}

static void what_cannot_be_appended_is_skipped(void **state)
{
    (void)state;
    fixture *f = make_fixture(false);
    const int counts[BATCH] = {10, 10, 10, 10, 10}, none[BATCH] = {0};
    memset(f->table, 0xff, sizeof f->table); /* no pages */
    for (int b = 0; b < BATCH; b++) f->lengths[b] = -10;
    append_prefill(f, none);
    f->token_indptr[0] = 0;
    int64_t stride;
    uint16_t *rows = make_rows(f->cfg.q_type, 50, &stride);
    cache_work work = {.tokens = 50, .batch = BATCH, .kv_heads = KV_HEADS};
    for (int length = -10; length <= 70; length += 5) { /* negative, shorter than the new tokens, then without pages */
        for (int b = 0; b < BATCH; b++) f->lengths[b] = length;
        for (int b = 0; b < BATCH; b++) f->token_indptr[b + 1] = f->token_indptr[b] + counts[b];
        const uint64_t prefill[APPEND_PREFILL_PARAM_COUNT] = {
            ADDRESS(rows),
            ADDRESS(rows),
            (uint64_t)stride,
            (uint64_t)stride,
            ADDRESS(f->actual.pages),
            (uint64_t)f->actual.page_stride,
            (uint64_t)f->actual.head_stride,
            ADDRESS(f->table),
            0,
            ADDRESS(f->lengths),
            ADDRESS(f->token_indptr),
            TABLE_STRIDE,
            BATCH,
        };
        const uint64_t decode[APPEND_DECODE_PARAM_COUNT] = {
            ADDRESS(rows),
            ADDRESS(rows),
            (uint64_t)stride,
            (uint64_t)stride,
            ADDRESS(f->actual.pages),
            (uint64_t)f->actual.page_stride,
            (uint64_t)f->actual.head_stride,
            ADDRESS(f->table),
            0,
            ADDRESS(f->lengths),
            TABLE_STRIDE,
            BATCH,
            KV_HEADS,
        };
        host_launch_cache(CACHE_APPEND_PREFILL, &work, prefill, &rng);
        host_launch_cache(CACHE_APPEND_DECODE, &work, decode, &rng);
        assert_memory_equal(f->actual.pages, f->expected.pages, f->pool_bytes);
    }
    free(rows);
    free_fixture(f);
}

enum { MANY = 700, MANY_BLOCKS = 4096 };

static prefill_work found_work[MANY_BLOCKS];

static void record_prefill_work(const uint64_t *a)
{
    prefill_work work = find_prefill_work((const int *)(uintptr_t)a[0], (const int *)(uintptr_t)a[1], MANY);
    if (threadIdx.x == 0) found_work[blockIdx.x] = work;
}

static void every_new_token_of_a_large_batch_is_one_block_s(void **state)
{
    (void)state;
    static int32_t indptr[MANY + 1], lengths[MANY], owners[MANY][8 * CHUNK_TOKENS];
    for (int b = 0; b < MANY; b++) {
        int count = (int)reference_below(&rng, 4) * (int)reference_below(&rng, 70);
        lengths[b] = count + (int)reference_below(&rng, 200);
        indptr[b + 1] = indptr[b] + count;
    }
    config cfg = host_config();
    cache_work work = {.tokens = indptr[MANY], .batch = MANY, .kv_heads = 1};
    uint32_t grid[3];
    const uint64_t arguments[] = {ADDRESS(indptr), ADDRESS(lengths)};
    assert_true(cache_kernel_grid(&cfg, CACHE_APPEND_PREFILL, &work, grid) && grid[0] <= MANY_BLOCKS);
    host_launch(record_prefill_work, arguments, grid, cache_kernel_info(CACHE_APPEND_PREFILL)->threads, &rng);
    for (uint32_t i = 0; i < grid[0]; i++)
        for (int t = found_work[i].begin; t < found_work[i].end; t++) {
            int b = found_work[i].sequence, token = found_work[i].chunk * CHUNK_TOKENS + t;
            assert_in_range(t, 0, CHUNK_TOKENS - 1);
            assert_int_equal(found_work[i].row + t, indptr[b + 1] - lengths[b] + token);
            owners[b][token]++;
        }
    for (int b = 0; b < MANY; b++)
        for (int t = 0; t < 8 * CHUNK_TOKENS; t++)
            assert_int_equal(owners[b][t], t < lengths[b] && t >= lengths[b] - (indptr[b + 1] - indptr[b]));
}

/* ---- Dequantise ---- */

/* Compares one side of tokens begin .. end - 1 of a sequence; out is what the kernel wrote. */
static void check_dequantised(fixture *f, reference_side side, int sequence, int begin, int end, number_type type,
                              const uint8_t *out)
{
    float *rows = memory_of((size_t)f->lengths[sequence] * HEAD_DIM * sizeof(float), 0), expected[HEAD_DIM];
    size_t row_bytes = (size_t)(HEAD_DIM * number_info(type)->bytes);
    for (int h = 0; h < KV_HEADS; h++) {
        assert_true(reference_gather(&f->actual, sequence, h, end, side == REFERENCE_K ? rows : NULL,
                                     side == REFERENCE_V ? rows : NULL));
        for (int t = begin; t < end; t++) {
            reference_write(type, rows + (size_t)t * HEAD_DIM, HEAD_DIM, expected);
            assert_memory_equal(out + (size_t)((t - begin) * KV_HEADS + h) * row_bytes, expected, row_bytes);
        }
    }
    free(rows);
}

static void dequantise_and_check(fixture *f, int sequence, int begin, int end, bool narrow, bool k, bool v)
{
    number_type type = narrow ? f->cfg.q_type : NUMBER_F32;
    size_t bytes = (size_t)((end - begin) * KV_HEADS * HEAD_DIM * number_info(type)->bytes);
    uint8_t *k_out = memory_of(bytes + 64, 0xee), *v_out = memory_of(bytes + 64, 0xee);
    const uint64_t arguments[DEQUANTISE_PARAM_COUNT] = {
        k ? ADDRESS(k_out) : 0,
        v ? ADDRESS(v_out) : 0,
        ADDRESS(f->actual.pages),
        (uint64_t)f->actual.page_stride,
        (uint64_t)f->actual.head_stride,
        ADDRESS(f->table),
        ADDRESS(f->actual.page_indptr),
        TABLE_STRIDE,
        (uint64_t)sequence,
        (uint64_t)begin,
        (uint64_t)end,
        KV_HEADS,
        narrow,
    };
    cache_work work = {.begin = begin, .end = end, .kv_heads = KV_HEADS};
    host_launch_cache(CACHE_DEQUANTISE, &work, arguments, &rng);
    if (k) check_dequantised(f, REFERENCE_K, sequence, begin, end, type, k_out);
    if (v) check_dequantised(f, REFERENCE_V, sequence, begin, end, type, v_out);
    for (size_t i = 0; i < bytes + 64; i++) {
        if (!k || i >= bytes) assert_int_equal(k_out[i], 0xee);
        if (!v || i >= bytes) assert_int_equal(v_out[i], 0xee);
    }
    free(k_out);
    free(v_out);
}

static void dequantise_writes_the_reference_numbers(void **state)
{
    (void)state;
    for (int csr = 0; csr < 2; csr++) {
        fixture *f = make_fixture(csr);
        const int counts[BATCH] = {300, 64, 1, 65, 130};
        append_prefill(f, counts);
        for (int b = 0; b < BATCH; b++) {
            int begin = (int)reference_below(&rng, (uint32_t)counts[b]), rest = counts[b] - begin;
            if (!csr) dequantise_and_check(f, b, 0, counts[b], false, true, true);
            dequantise_and_check(f, b, begin, begin + 1 + (int)reference_below(&rng, (uint32_t)rest), true, true, true);
            dequantise_and_check(f, b, begin, counts[b], b % 2, b % 2, b % 2 == 0);
            dequantise_and_check(f, b, begin, begin, false, true, true);
        }
        free_fixture(f);
    }
}

/* ---- Merge ---- */

enum { WORKERS = 75, ITEMS = WORKERS + 1 };

typedef struct merge_fixture {
    uint8_t *workspace, *out;
    float *lse;
    int64_t out_stride;
    size_t workspace_bytes, out_bytes;
    int item, batch;                /* items so far; sequences */
    int first[ITEMS], links[ITEMS]; /* of each item's chain; links 0: the item has none */
} merge_fixture;

static int32_t *record_of(merge_fixture *m, int worker, int slot)
{
    return (int32_t *)(m->workspace + (worker * 2 + slot) * 16);
}

static float *partial_of(merge_fixture *m, int worker, int slot)
{
    return (float *)(m->workspace + WORKERS * 2 * 16 + (size_t)(worker * 2 + slot) * PARTIAL_BYTES);
}

/* A workspace full of NaN, where no slot is used. */
static merge_fixture make_merge(void)
{
    merge_fixture m = {.batch = (ITEMS + KV_HEADS - 1) / KV_HEADS,
                       .workspace_bytes = WORKERS * 2 * (16 + PARTIAL_BYTES)};
    m.out_stride = KV_HEADS * HEADS * HEAD_DIM * 4 + 32;
    m.out_bytes = (size_t)(m.batch * m.out_stride);
    m.workspace = memory_of(m.workspace_bytes, 0xff);
    m.out = memory_of(m.out_bytes, 0xee);
    m.lse = memory_of((size_t)(m.batch * KV_HEADS * HEADS) * sizeof(float), 0xee);
    for (int w = 0; w < WORKERS; w++) record_of(&m, w, 0)[0] = record_of(&m, w, 1)[0] = 0;
    return m;
}

static void free_merge(merge_fixture *m)
{
    free(m->workspace);
    free(m->out);
    free(m->lse);
}

/* Makes a chain of the next item that begins at a worker. empty: 1 in so many partial results is empty, holding NaN. */
static void add_chain(merge_fixture *m, int worker, int links, uint32_t empty)
{
    m->first[m->item] = worker;
    m->links[m->item] = links;
    for (int i = 0; i < links; i++) {
        int32_t *record = record_of(m, worker + i, i == 0);
        float *partial = partial_of(m, worker + i, i == 0), *lse2 = partial + HEADS * HEAD_DIM;
        record[0] = i == links - 1 ? 2 : 1;
        record[1] = m->item;
        for (int h = 0; h < HEADS; h++) {
            bool is_empty = empty > 0 && reference_below(&rng, empty) == 0;
            lse2[h] = is_empty ? -INFINITY : (float)(20 * reference_normal(&rng));
            for (int c = 0; c < HEAD_DIM && !is_empty; c++) partial[h * HEAD_DIM + c] = (float)reference_normal(&rng);
        }
    }
    m->item++;
}

static void run_merge(merge_fixture *m, bool with_lse)
{
    const uint64_t arguments[MERGE_PARAM_COUNT] = {
        ADDRESS(m->workspace),   ADDRESS(m->out), with_lse ? ADDRESS(m->lse) : 0,
        (uint64_t)m->out_stride, WORKERS,         KV_HEADS};
    cache_work work = {.workers = WORKERS};
    host_launch_cache(CACHE_MERGE, &work, arguments, &rng);
}

/* One head of an item in float64; returns the natural log-sum-exp. */
static double merge_head(merge_fixture *m, int item, int head, double out[HEAD_DIM])
{
    double maximum = -INFINITY, sum = 0;
    for (int i = 0; i < m->links[item]; i++)
        maximum = fmax(maximum, (double)partial_of(m, m->first[item] + i, i == 0)[HEADS * HEAD_DIM + head]);
    memset(out, 0, HEAD_DIM * sizeof *out);
    for (int i = 0; i < m->links[item]; i++) {
        const float *partial = partial_of(m, m->first[item] + i, i == 0);
        double lse2 = (double)partial[HEADS * HEAD_DIM + head], weight = isinf(lse2) ? 0 : exp2(lse2 - maximum);
        sum += weight;
        for (int c = 0; c < HEAD_DIM && weight > 0; c++) out[c] += weight * (double)partial[head * HEAD_DIM + c];
    }
    for (int c = 0; c < HEAD_DIM && sum > 0; c++) out[c] /= sum;
    return log(2) * (maximum + log2(sum));
}

static void check_merge(merge_fixture *m, bool with_lse)
{
    config cfg = host_config();
    size_t row_bytes = (size_t)(HEAD_DIM * number_info(cfg.o_type)->bytes);
    double bound = cfg.o_type == NUMBER_F32 ? 3e-7 : cfg.o_type == NUMBER_F16 ? 0x1p-11 : 0x1p-8;
    uint8_t poison[HEAD_DIM * 4];
    memset(poison, 0xee, sizeof poison);
    for (int item = 0; item < m->batch * KV_HEADS; item++)
        for (int h = 0; h < HEADS; h++) {
            const uint8_t *row =
                m->out + item / KV_HEADS * m->out_stride + (size_t)(item % KV_HEADS * HEADS + h) * row_bytes;
            float lse = m->lse[item * HEADS + h], numbers[HEAD_DIM];
            bool merged = item < m->item && m->links[item] > 0;
            if (!merged) assert_memory_equal(row, poison, row_bytes);
            if (!merged || !with_lse) assert_memory_equal(&lse, poison, sizeof lse);
            if (!merged) continue;
            double expected[HEAD_DIM], expected_lse = merge_head(m, item, h, expected);
            reference_read(cfg.o_type, row, HEAD_DIM, numbers);
            assert_true(reference_error(numbers, expected, HEAD_DIM) <= bound);
            if (with_lse)
                assert_true(isinf(expected_lse) ? (double)lse == expected_lse
                                                : fabs((double)lse - expected_lse) <= 3e-7 * (1 + fabs(expected_lse)));
        }
    for (int b = 0; b < m->batch; b++) /* the gap after each sequence */
        assert_memory_equal(m->out + (b + 1) * m->out_stride - 32, poison, 32);
}

static void merge_of_random_chains_is_the_weighted_mean(void **state)
{
    (void)state;
    for (int round = 0; round < 4; round++) {
        merge_fixture m = make_merge();
        for (int worker = 0; worker < WORKERS - 1;) {
            if (reference_below(&rng, 4) == 0) m.links[m.item++] = 0; /* an item that its worker wrote itself */
            int links = 2 + (int)reference_below(&rng, round % 2 ? 3 : 9);
            if (reference_below(&rng, 5) == 0 || worker + links > WORKERS) { /* a worker that leaves nothing open */
                worker++;
                continue;
            }
            add_chain(&m, worker, links, round == 0 ? 0 : 3);
            worker += links - 1; /* which may begin the next chain in its slot 1 */
        }
        run_merge(&m, round != 3);
        check_merge(&m, round != 3);
        free_merge(&m);
    }
}

static void merge_of_long_chains_is_the_weighted_mean(void **state)
{
    (void)state;
    static const int lengths[][2] = {{WORKERS, 0}, {32, 33}, {34, WORKERS - 33}, {2, WORKERS - 1}};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        merge_fixture m = make_merge();
        add_chain(&m, 0, lengths[i][0], 5);
        if (lengths[i][1] > 0) add_chain(&m, lengths[i][0] - 1, lengths[i][1], 5);
        run_merge(&m, true);
        check_merge(&m, true);
        free_merge(&m);
    }
}

static void merge_of_empty_partial_results_is_zero(void **state)
{
    (void)state;
    merge_fixture m = make_merge();
    add_chain(&m, 3, 6, 1);
    run_merge(&m, true);
    check_merge(&m, true);
    assert_true(m.lse[0] == -INFINITY);
    free_merge(&m);
}

/* ---- Check ---- */

typedef struct check_fixture {
    int32_t table[BATCH * 8], indptr[BATCH + 1], lengths[BATCH], token_indptr[BATCH + 1];
    bool csr, new_tokens;
} check_fixture;

enum { CHECK_POOL = 40, CHECK_ROWS = 60 };

static check_fixture make_check(bool csr)
{
    check_fixture f = {.csr = csr, .new_tokens = true};
    for (int i = 0; i < BATCH * 8; i++) f.table[i] = i % CHECK_POOL;
    for (int b = 0; b < BATCH; b++) {
        f.indptr[b + 1] = (b + 1) * 8;
        f.lengths[b] = b == 1 ? 0 : 3 * PAGE_TOKENS + b;
        f.token_indptr[b + 1] = f.token_indptr[b] + (b == 1 ? 0 : 15);
    }
    return f;
}

static void expect_report(const check_fixture *f, int code, int sequence, int entry, int value)
{
    cache_check_result *result = memory_of(sizeof *result, 0xff);
    const uint64_t arguments[CHECK_PARAM_COUNT] = {
        ADDRESS(f->table),
        f->csr ? ADDRESS(f->indptr) : 0,
        ADDRESS(f->lengths),
        f->new_tokens ? ADDRESS(f->token_indptr) : 0,
        ADDRESS(result),
        8,
        BATCH * 8,
        CHECK_ROWS,
        BATCH,
        CHECK_POOL,
    };
    cache_work work = {.batch = BATCH};
    host_launch_cache(CACHE_CHECK, &work, arguments, &rng);
    assert_int_equal(result->code, code);
    assert_int_equal(result->sequence, sequence);
    assert_int_equal(result->entry, entry);
    assert_int_equal(result->value, value);
    free(result);
}

static void check_passes_what_is_right(void **state)
{
    (void)state;
    for (int csr = 0; csr < 2; csr++) {
        check_fixture f = make_check(csr);
        f.table[8 * 2 + 4] = -1; /* beyond the pages that the sequence needs */
        f.lengths[3] = 8 * PAGE_TOKENS;
        expect_report(&f, CHECK_OK, -1, -1, 0);
    }
}

static void check_names_the_first_offence(void **state)
{
    (void)state;
    for (int csr = 0; csr < 2; csr++) {
        check_fixture f = make_check(csr);
        f.lengths[4] = -7;
        expect_report(&f, CHECK_LENGTH, 4, -1, -7);
        f.table[8 * 3 + 3] = CHECK_POOL;
        expect_report(&f, CHECK_PAGE, 3, 3, CHECK_POOL);
        f.table[8 * 3 + 2] = -5;
        expect_report(&f, CHECK_PAGE, 3, 2, -5);
        f.token_indptr[3] = 15 + 3 * PAGE_TOKENS + 2 + 1;
        expect_report(&f, CHECK_TOKENS, 2, -1, 3 * PAGE_TOKENS + 3);
        f.new_tokens = false;
        expect_report(&f, CHECK_PAGE, 3, 2, -5);
        f.lengths[2] = 8 * PAGE_TOKENS + 1;
        expect_report(&f, CHECK_PAGES, 2, 8, 8 * PAGE_TOKENS + 1);
        f.lengths[0] = INT32_MAX;
        expect_report(&f, CHECK_PAGES, 0, 8, INT32_MAX);
    }
    check_fixture f = make_check(true);
    f.indptr[BATCH] = BATCH * 8 + 1;
    expect_report(&f, CHECK_TABLE, 4, -1, BATCH * 8 + 1);
    f.indptr[3] = 3;
    expect_report(&f, CHECK_TABLE, 2, -1, 3);
    f.indptr[0] = -1;
    expect_report(&f, CHECK_TABLE, 0, -1, -1);
}

/* ---- Launch shapes ---- */

static void nothing_to_do_is_no_launch(void **state)
{
    (void)state;
    config cfg = host_config();
    uint32_t grid[3];
    const cache_work nothing = {0};
    for (int k = 0; k < CACHE_KERNELS; k++) assert_false(cache_kernel_grid(&cfg, (cache_kernel)k, &nothing, grid));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_options_are_the_macros_of_this_test),
        cmocka_unit_test(the_parameter_tables_are_those_of_the_source),
        cmocka_unit_test(prefill_writes_the_reference_bytes_and_no_others),
        cmocka_unit_test(decode_writes_the_reference_bytes_and_no_others),
        cmocka_unit_test(prefill_and_decode_alternate),
        cmocka_unit_test(what_cannot_be_appended_is_skipped),
        cmocka_unit_test(every_new_token_of_a_large_batch_is_one_block_s),
        cmocka_unit_test(dequantise_writes_the_reference_numbers),
        cmocka_unit_test(merge_of_random_chains_is_the_weighted_mean),
        cmocka_unit_test(merge_of_long_chains_is_the_weighted_mean),
        cmocka_unit_test(merge_of_empty_partial_results_is_zero),
        cmocka_unit_test(check_passes_what_is_right),
        cmocka_unit_test(check_names_the_first_offence),
        cmocka_unit_test(nothing_to_do_is_no_launch),
    };
    reference_seed(&rng, 20);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
