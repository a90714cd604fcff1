/* Launch arguments: the defaults that are filled in, and a refusal with a reason for everything that does not fit. No driver is involved. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "arguments.h"

enum { BATCH = 3, KV_HEADS = 2, HEADS = 8, DIM = 128, PAGE_TOKENS = 64, PAGE_BYTES = 64 * 72, BLOCKS = 132 };

/* Device addresses that are never followed. */
static void *at(uintptr_t address)
{
    return (void *)address;
}

static kernel_shape shape_of(const char *spec)
{
    decode_plan plan;
    assert_int_equal(runtime_plan(spec, &plan, NULL), FOSCAR_OK);
    return kernel_shape_make(&plan, BLOCKS);
}

static kernel_shape usual_shape(void)
{
    return shape_of("sm_90a-k2t128-v2t128-d128-h8-p64");
}

static foscar_cache usual_cache(void)
{
    foscar_cache cache = {
        .struct_size = sizeof cache,
        .batch = BATCH,
        .kv_heads = KV_HEADS,
        .table_stride = 10,
        .pages = at(0x10000),
        .pages_count = 30,
        .page_table = at(0x20000),
        .lengths = at(0x30000),
    };
    return cache;
}

static foscar_decode_args usual_decode(const kernel_shape *shape, const foscar_cache *cache)
{
    foscar_decode_args args = {
        .struct_size = sizeof args,
        .cache = cache,
        .q = at(0x40000),
        .out = at(0x50000),
        .workspace = at(0x60000),
        .workspace_bytes = shape->workspace_bytes,
    };
    return args;
}

static foscar_append_args usual_append(const foscar_cache *cache)
{
    foscar_append_args args = {.struct_size = sizeof args, .cache = cache, .k = at(0x70000), .v = at(0x80000)};
    return args;
}

static foscar_dequantise_args usual_dequantise(const foscar_cache *cache)
{
    foscar_dequantise_args args = {.struct_size = sizeof args, .type = FOSCAR_F32, .cache = cache, .end = 100,
                                   .out_k = at(0x90000), .out_v = at(0xa0000)};
    return args;
}

static foscar_status decode(const foscar_decode_args *args, foscar_error *err)
{
    kernel_shape shape = usual_shape();
    decode_values values;
    merge_values merge;
    cache_work work;
    memset(err, 0, sizeof *err);
    return arguments_decode(&shape, args, &values, &merge, &work, err);
}

static foscar_status decode_cache(const foscar_cache *cache, foscar_error *err)
{
    kernel_shape shape = usual_shape();
    foscar_decode_args args = usual_decode(&shape, cache);
    return decode(&args, err);
}

static foscar_status append(const foscar_append_args *args, append_launch *launch, foscar_error *err)
{
    kernel_shape shape = usual_shape();
    memset(err, 0, sizeof *err);
    return arguments_append(&shape, args, launch, err);
}

static foscar_status dequantise(const foscar_dequantise_args *args, foscar_error *err)
{
    kernel_shape shape = usual_shape();
    dequantise_values values;
    cache_work work;
    memset(err, 0, sizeof *err);
    return arguments_dequantise(&shape, args, &values, &work, err);
}

/* Sets one member to a bad value and expects INVALID_ARGUMENT with a message that holds `word`. */
#define REFUSES_CACHE(member, value, word)                                                                             \
    do {                                                                                                               \
        foscar_error why;                                                                                              \
        foscar_cache bad = usual_cache();                                                                              \
        bad.member = value;                                                                                            \
        assert_int_equal(decode_cache(&bad, &why), FOSCAR_INVALID_ARGUMENT);                                           \
        assert_non_null(strstr(why.message, word));                                                                    \
    } while (0)

#define REFUSES(usual, call, member, value, word)                                                                      \
    do {                                                                                                               \
        foscar_error why;                                                                                              \
        __typeof__(usual) bad = usual;                                                                                 \
        bad.member = value;                                                                                            \
        assert_int_equal(call, FOSCAR_INVALID_ARGUMENT);                                                               \
        assert_non_null(strstr(why.message, word));                                                                    \
    } while (0)

static void defaults_are_the_contiguous_layout(void **state)
{
    (void)state;
    kernel_shape shape = usual_shape();
    foscar_cache cache = usual_cache();
    foscar_decode_args args = usual_decode(&shape, &cache);
    decode_values values;
    merge_values merge;
    cache_work work;
    float scale_log2;
    assert_int_equal(shape.page_bytes, PAGE_BYTES);
    assert_int_equal(arguments_decode(&shape, &args, &values, &merge, &work, NULL), FOSCAR_OK);
    assert_int_equal(values.head_stride, PAGE_BYTES);
    assert_int_equal(values.page_stride, KV_HEADS * PAGE_BYTES);
    assert_int_equal(values.q_stride, KV_HEADS * HEADS * DIM * 2);
    assert_int_equal(values.out_stride, KV_HEADS * HEADS * DIM * 2);
    assert_int_equal(values.batch, BATCH);
    assert_int_equal(values.kv_heads, KV_HEADS);
    assert_int_equal(values.table_stride, 10);
    assert_int_equal(values.lse, 0);
    assert_int_equal(values.page_indptr, 0);
    memcpy(&scale_log2, &values.scale_log2, sizeof scale_log2);
    assert_true(fabs((double)scale_log2 * sqrt(128) / 1.4426950408889634 - 1) < 1e-6);
    assert_int_equal(merge.workers, BLOCKS * shape.consumers);
    assert_int_equal(work.workers, BLOCKS * shape.consumers);
    assert_int_equal(merge.workspace, 0x60000);
    assert_int_equal(merge.out_stride, values.out_stride);
}

static void float32_output_has_wider_rows(void **state)
{
    (void)state;
    kernel_shape shape = shape_of("sm_90a-k2t128-v2t128-d128-h8-p64-of32");
    foscar_cache cache = usual_cache();
    foscar_decode_args args = usual_decode(&shape, &cache);
    decode_values values;
    merge_values merge;
    cache_work work;
    assert_int_equal(arguments_decode(&shape, &args, &values, &merge, &work, NULL), FOSCAR_OK);
    assert_int_equal(values.out_stride, KV_HEADS * HEADS * DIM * 4);
    args.out_stride = KV_HEADS * HEADS * DIM * 2;
    assert_int_equal(arguments_decode(&shape, &args, &values, &merge, &work, NULL), FOSCAR_INVALID_ARGUMENT);
}

static void a_bad_cache_is_refused(void **state)
{
    (void)state;
    foscar_error err;
    assert_int_equal(decode_cache(NULL, &err), FOSCAR_INVALID_ARGUMENT);
    REFUSES_CACHE(struct_size, 8, "struct_size");
    REFUSES_CACHE(batch, 0, "batch");
    REFUSES_CACHE(batch, -1, "batch");
    REFUSES_CACHE(kv_heads, 0, "kv_heads");
    REFUSES_CACHE(kv_heads, 70000, "kv_heads");
    REFUSES_CACHE(batch, INT32_MAX, "batch");
    REFUSES_CACHE(pages, NULL, "pages is NULL");
    REFUSES_CACHE(pages, at(0x10008), "pages is not aligned");
    REFUSES_CACHE(pages_count, 0, "pages_count");
    REFUSES_CACHE(pages_count, (int64_t)1 << 31, "pages_count");
    REFUSES_CACHE(head_stride, PAGE_BYTES - 16, "head_stride");
    REFUSES_CACHE(head_stride, PAGE_BYTES + 8, "multiples of 16");
    REFUSES_CACHE(head_stride, -16, "head_stride");
    REFUSES_CACHE(page_stride, PAGE_BYTES, "pages overlap");
    REFUSES_CACHE(page_stride, INT64_MAX - 15, "overflow");
    REFUSES_CACHE(page_table, NULL, "page_table is NULL");
    REFUSES_CACHE(page_table, at(0x20002), "page_table is not aligned");
    REFUSES_CACHE(page_indptr, at(0x20001), "page_indptr is not aligned");
    REFUSES_CACHE(lengths, NULL, "lengths is NULL");
    REFUSES_CACHE(table_stride, 0, "table_stride");
    REFUSES_CACHE(table_stride, INT32_MAX, "page_table has");
    REFUSES_CACHE(table_entries, 29, "29 entries");
    REFUSES_CACHE(table_entries, -1, "table_entries");
}

static void a_csr_table_needs_no_row_stride(void **state)
{
    (void)state;
    foscar_error err;
    foscar_cache cache = usual_cache();
    cache.table_stride = 0;
    cache.page_indptr = at(0x25000);
    assert_int_equal(decode_cache(&cache, &err), FOSCAR_OK);
    cache.table_entries = 5;
    assert_int_equal(decode_cache(&cache, &err), FOSCAR_OK);
}

static void pages_may_lie_inside_of_heads(void **state)
{
    (void)state;
    foscar_error err;
    foscar_cache cache = usual_cache();
    cache.page_stride = PAGE_BYTES;
    cache.head_stride = 30 * PAGE_BYTES;
    assert_int_equal(decode_cache(&cache, &err), FOSCAR_OK);
    cache.head_stride -= 16;
    assert_int_equal(decode_cache(&cache, &err), FOSCAR_INVALID_ARGUMENT);
}

static void bad_decode_arguments_are_refused(void **state)
{
    (void)state;
    foscar_error err;
    kernel_shape shape = usual_shape();
    foscar_cache cache = usual_cache();
    foscar_decode_args usual = usual_decode(&shape, &cache);
    assert_int_equal(decode(NULL, &err), FOSCAR_INVALID_ARGUMENT);
    REFUSES(usual, decode(&bad, &why), struct_size, 0, "struct_size");
    REFUSES(usual, decode(&bad, &why), cache, NULL, "cache is NULL");
    REFUSES(usual, decode(&bad, &why), q, NULL, "q is NULL");
    REFUSES(usual, decode(&bad, &why), q, at(0x40002), "q is not aligned");
    REFUSES(usual, decode(&bad, &why), out, NULL, "out is NULL");
    REFUSES(usual, decode(&bad, &why), out, at(0x50004), "out is not aligned");
    REFUSES(usual, decode(&bad, &why), lse, at(0x50002), "lse is not aligned");
    REFUSES(usual, decode(&bad, &why), workspace, NULL, "workspace is NULL");
    REFUSES(usual, decode(&bad, &why), workspace, at(0x60004), "workspace is not aligned");
    REFUSES(usual, decode(&bad, &why), q_stride, 16, "q_stride");
    REFUSES(usual, decode(&bad, &why), q_stride, KV_HEADS * HEADS * DIM * 2 + 2, "multiple");
    REFUSES(usual, decode(&bad, &why), out_stride, INT64_MAX - 15, "overflow");
    REFUSES(usual, decode(&bad, &why), out_stride, -16, "out_stride");
    REFUSES(usual, decode(&bad, &why), scale, NAN, "scale");
    REFUSES(usual, decode(&bad, &why), scale, INFINITY, "scale");
    REFUSES(usual, decode(&bad, &why), scale, -1.0f, "scale");
    usual.workspace_bytes--;
    assert_int_equal(decode(&usual, &err), FOSCAR_WORKSPACE_TOO_SMALL);
    assert_non_null(strstr(err.message, "are needed"));
}

static void append_takes_one_token_a_sequence_without_token_indptr(void **state)
{
    (void)state;
    foscar_error err;
    append_launch launch;
    foscar_cache cache = usual_cache();
    foscar_append_args args = usual_append(&cache);
    assert_int_equal(append(&args, &launch, &err), FOSCAR_OK);
    assert_int_equal(launch.kernel, CACHE_APPEND_DECODE);
    assert_int_equal(launch.decode.k_stride, KV_HEADS * DIM * 2);
    assert_int_equal(launch.decode.batch, BATCH);
    assert_int_equal(launch.decode.page_stride, KV_HEADS * PAGE_BYTES);
    args.tokens = BATCH;
    assert_int_equal(append(&args, &launch, &err), FOSCAR_OK);
    args.tokens = BATCH + 1;
    assert_int_equal(append(&args, &launch, &err), FOSCAR_INVALID_ARGUMENT);
}

static void append_takes_many_tokens_with_token_indptr(void **state)
{
    (void)state;
    foscar_error err;
    append_launch launch;
    foscar_cache cache = usual_cache();
    foscar_append_args args = usual_append(&cache);
    args.token_indptr = at(0xb0000);
    args.tokens = 1000;
    args.v_stride = 4096;
    assert_int_equal(append(&args, &launch, &err), FOSCAR_OK);
    assert_int_equal(launch.kernel, CACHE_APPEND_PREFILL);
    assert_int_equal(launch.prefill.v_stride, 4096);
    assert_int_equal(launch.prefill.token_indptr, 0xb0000);
    assert_int_equal(launch.work.tokens, 1000);
    args.tokens = 0; /* nothing to launch, and nothing wrong */
    assert_int_equal(append(&args, &launch, &err), FOSCAR_OK);
    assert_int_equal(launch.work.tokens, 0);
}

static void bad_append_arguments_are_refused(void **state)
{
    (void)state;
    append_launch launch;
    foscar_cache cache = usual_cache();
    foscar_append_args usual = usual_append(&cache);
    REFUSES(usual, append(&bad, &launch, &why), struct_size, 3, "struct_size");
    REFUSES(usual, append(&bad, &launch, &why), tokens, -1, "tokens");
    REFUSES(usual, append(&bad, &launch, &why), k, NULL, "k is NULL");
    REFUSES(usual, append(&bad, &launch, &why), v, at(0x80002), "v is not aligned");
    REFUSES(usual, append(&bad, &launch, &why), k_stride, 24, "k_stride");
    REFUSES(usual, append(&bad, &launch, &why), token_indptr, at(0xb0002), "token_indptr is not aligned");
    REFUSES(usual, append(&bad, &launch, &why), cache, NULL, "cache is NULL");
}

static void bad_dequantise_arguments_are_refused(void **state)
{
    (void)state;
    foscar_error err;
    foscar_cache cache = usual_cache();
    foscar_dequantise_args usual = usual_dequantise(&cache);
    assert_int_equal(dequantise(&usual, &err), FOSCAR_OK);
    usual.type = FOSCAR_BF16;
    assert_int_equal(dequantise(&usual, &err), FOSCAR_OK);
    REFUSES(usual, dequantise(&bad, &why), type, FOSCAR_F16, "type");
    REFUSES(usual, dequantise(&bad, &why), sequence, BATCH, "sequence");
    REFUSES(usual, dequantise(&bad, &why), sequence, -1, "sequence");
    REFUSES(usual, dequantise(&bad, &why), begin, -1, "no range");
    REFUSES(usual, dequantise(&bad, &why), begin, 101, "no range");
    REFUSES(usual, dequantise(&bad, &why), end, 10 * PAGE_TOKENS + 1, "page table");
    REFUSES(usual, dequantise(&bad, &why), out_k, at(0x90004), "out_k");
    REFUSES(usual, dequantise(&bad, &why), reserved, 1, "reserved");
}

static void check_sees_the_defaults_too(void **state)
{
    (void)state;
    kernel_shape shape = usual_shape();
    check_values values;
    cache_work work;
    foscar_error err;
    foscar_cache cache = usual_cache();
    foscar_append_args args = usual_append(&cache);
    assert_int_equal(arguments_check(&shape, &cache, NULL, &values, &work, &err), FOSCAR_OK);
    assert_int_equal(values.table_entries, BATCH * 10);
    assert_int_equal(values.pages_count, 30);
    assert_int_equal(values.token_indptr, 0);
    args.token_indptr = at(0xb0000);
    args.tokens = 77;
    assert_int_equal(arguments_check(&shape, NULL, &args, &values, &work, &err), FOSCAR_OK);
    assert_int_equal(values.tokens, 77);
    assert_int_equal(values.token_indptr, 0xb0000);
    assert_int_equal(arguments_check(&shape, NULL, NULL, &values, &work, &err), FOSCAR_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_the_contiguous_layout),
        cmocka_unit_test(float32_output_has_wider_rows),
        cmocka_unit_test(a_bad_cache_is_refused),
        cmocka_unit_test(a_csr_table_needs_no_row_stride),
        cmocka_unit_test(pages_may_lie_inside_of_heads),
        cmocka_unit_test(bad_decode_arguments_are_refused),
        cmocka_unit_test(append_takes_one_token_a_sequence_without_token_indptr),
        cmocka_unit_test(append_takes_many_tokens_with_token_indptr),
        cmocka_unit_test(bad_append_arguments_are_refused),
        cmocka_unit_test(bad_dequantise_arguments_are_refused),
        cmocka_unit_test(check_sees_the_defaults_too),
    };
    return cmocka_run_group_tests_name("runtime_arguments", tests, NULL, NULL);
}
