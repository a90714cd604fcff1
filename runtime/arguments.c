/* Checks of launch arguments. Device contents (lengths, page numbers) are not looked at here: that is foscar_check's, on the device. */
#include "arguments.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    ALIGNMENT = 16,      /* bytes; of bulk copies and 128-bit loads */
    KV_HEADS_MAX = 65535 /* y dimension of a grid */
};

#define LOG2_E 1.4426950408889634

static foscar_status refuse(foscar_error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

static foscar_status refuse(foscar_error *err, const char *format, ...)
{
    char message[256];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return status_fail(err, FOSCAR_INVALID_ARGUMENT, "%s", message);
}

static uint64_t address(const void *pointer)
{
    return (uint64_t)(uintptr_t)pointer;
}

static foscar_status check_pointer(const char *name, const void *pointer, unsigned alignment, foscar_error *err)
{
    if (pointer == NULL) return refuse(err, "%s is NULL", name);
    if (address(pointer) % alignment != 0)
        return refuse(err, "%s is not aligned to %u bytes (address 0x%llx)", name, alignment,
                      (unsigned long long)address(pointer));
    return FOSCAR_OK;
}

static foscar_status check_optional(const char *name, const void *pointer, unsigned alignment, foscar_error *err)
{
    return pointer == NULL ? FOSCAR_OK : check_pointer(name, pointer, alignment, err);
}

/* `count` rows of `row` bytes, `*stride` bytes apart (0: contiguous): the stride is filled in, and all of it fits into the address space. */
static foscar_status check_rows(const char *name, int64_t count, int64_t row, int64_t *stride, foscar_error *err)
{
    int64_t total;
    if (*stride == 0) *stride = row;
    if (*stride < row) return refuse(err, "%s is %lld bytes, a row has %lld", name, (long long)*stride, (long long)row);
    if (*stride % ALIGNMENT != 0)
        return refuse(err, "%s is %lld bytes, no multiple of %d", name, (long long)*stride, (int)ALIGNMENT);
    if (__builtin_mul_overflow(count, *stride, &total))
        return refuse(err, "%s: %lld rows of %lld bytes overflow", name, (long long)count, (long long)*stride);
    return FOSCAR_OK;
}

/* ---- The cache ---- */

static foscar_status check_sizes(const foscar_cache *cache, foscar_error *err)
{
    if (cache->batch < 1) return refuse(err, "batch is %d, must be at least 1", (int)cache->batch);
    if (cache->kv_heads < 1 || cache->kv_heads > KV_HEADS_MAX)
        return refuse(err, "kv_heads is %d, must be 1 to %d", (int)cache->kv_heads, (int)KV_HEADS_MAX);
    if ((int64_t)cache->batch * cache->kv_heads > INT32_MAX)
        return refuse(err, "batch %d times kv_heads %d exceeds 2^31 - 1", (int)cache->batch, (int)cache->kv_heads);
    if (cache->pages_count < 1 || cache->pages_count > INT32_MAX)
        return refuse(err, "pages_count is %lld, must be 1 to 2^31 - 1", (long long)cache->pages_count);
    return FOSCAR_OK;
}

/* Pages and heads may lie in either order, as long as no two (page, head) overlap and the end has an address. */
static foscar_status check_strides(const kernel_shape *shape, foscar_cache *cache, foscar_error *err)
{
    int64_t page = shape->page_bytes, heads_span, pages_span, end;
    if (cache->head_stride == 0) cache->head_stride = page;
    if (cache->page_stride == 0 && __builtin_mul_overflow((int64_t)cache->kv_heads, page, &cache->page_stride))
        return refuse(err, "kv_heads %d times %lld bytes of a page overflow", (int)cache->kv_heads, (long long)page);
    if (cache->head_stride < page || cache->page_stride < page)
        return refuse(err, "head_stride %lld and page_stride %lld must be at least the %lld bytes of a page",
                      (long long)cache->head_stride, (long long)cache->page_stride, (long long)page);
    if (cache->head_stride % ALIGNMENT != 0 || cache->page_stride % ALIGNMENT != 0)
        return refuse(err, "head_stride %lld and page_stride %lld must be multiples of %d bytes",
                      (long long)cache->head_stride, (long long)cache->page_stride, (int)ALIGNMENT);
    if (__builtin_mul_overflow((int64_t)cache->kv_heads - 1, cache->head_stride, &heads_span) ||
        __builtin_mul_overflow(cache->pages_count - 1, cache->page_stride, &pages_span) ||
        __builtin_add_overflow(heads_span, page, &heads_span) ||
        __builtin_add_overflow(pages_span, page, &pages_span) || __builtin_add_overflow(heads_span, pages_span, &end))
        return refuse(err, "%lld pages of stride %lld and %d heads of stride %lld overflow",
                      (long long)cache->pages_count, (long long)cache->page_stride, (int)cache->kv_heads,
                      (long long)cache->head_stride);
    if (cache->page_stride < heads_span && cache->head_stride < pages_span)
        return refuse(err, "pages overlap: page_stride %lld is less than the %lld bytes of the heads of a page",
                      (long long)cache->page_stride, (long long)heads_span);
    return FOSCAR_OK;
}

static foscar_status check_table(foscar_cache *cache, foscar_error *err)
{
    foscar_status status = check_pointer("page_table", cache->page_table, 4, err);
    if (status == FOSCAR_OK) status = check_optional("page_indptr", cache->page_indptr, 4, err);
    if (status == FOSCAR_OK) status = check_pointer("lengths", cache->lengths, 4, err);
    if (status != FOSCAR_OK) return status;
    if (cache->table_entries < 0 || cache->table_entries > INT32_MAX)
        return refuse(err, "table_entries is %lld, must be 0 to 2^31 - 1", (long long)cache->table_entries);
    if (cache->page_indptr != NULL) return FOSCAR_OK;
    if (cache->table_stride < 1)
        return refuse(err, "table_stride is %d, must be at least 1 without page_indptr", (int)cache->table_stride);
    int64_t needed = (int64_t)cache->batch * cache->table_stride;
    if (cache->table_entries == 0) cache->table_entries = needed;
    if (needed > INT32_MAX || cache->table_entries < needed)
        return refuse(err, "page_table has %lld entries, %d rows of %d need %lld", (long long)cache->table_entries,
                      (int)cache->batch, (int)cache->table_stride, (long long)needed);
    return FOSCAR_OK;
}

/* Copies the caller's cache description with every default filled in. */
static foscar_status import_cache(const kernel_shape *shape, const foscar_cache *theirs, foscar_cache *cache,
                                  foscar_error *err)
{
    foscar_status status = struct_import("cache", cache, sizeof *cache, sizeof *cache, theirs, err);
    if (status == FOSCAR_OK) status = check_sizes(cache, err);
    if (status == FOSCAR_OK) status = check_pointer("pages", cache->pages, ALIGNMENT, err);
    if (status == FOSCAR_OK) status = check_strides(shape, cache, err);
    if (status == FOSCAR_OK) status = check_table(cache, err);
    return status;
}

/* The parameters that most kernels share. A macro, since each kernel's values are a struct of its own. */
#define FILL_CACHE(values, cache)                                                                                      \
    ((values)->pages = address((cache)->pages), (values)->page_stride = (uint64_t)(cache)->page_stride,                \
     (values)->head_stride = (uint64_t)(cache)->head_stride, (values)->page_table = address((cache)->page_table),      \
     (values)->page_indptr = address((cache)->page_indptr), (values)->table_stride = (uint32_t)(cache)->table_stride)

/* ---- Decode ---- */

static foscar_status check_scale(const kernel_shape *shape, float scale, uint32_t *scale_log2, foscar_error *err)
{
    if (!isfinite(scale) || scale < 0) return refuse(err, "scale is %g, must be finite and not negative", (double)scale);
    double exact = scale == 0 ? 1 / sqrt((double)shape->cfg.head_dim) : (double)scale;
    float value = (float)(exact * LOG2_E);
    _Static_assert(sizeof value == sizeof *scale_log2, "float32 parameters take 4 bytes");
    memcpy(scale_log2, &value, sizeof value);
    return FOSCAR_OK;
}

static foscar_status check_decode(const kernel_shape *shape, foscar_decode_args *args, const foscar_cache *cache,
                                  foscar_error *err)
{
    int64_t numbers = (int64_t)cache->kv_heads * shape->cfg.heads * shape->cfg.head_dim;
    foscar_status status = check_pointer("q", args->q, ALIGNMENT, err);
    if (status == FOSCAR_OK) status = check_pointer("out", args->out, ALIGNMENT, err);
    if (status == FOSCAR_OK) status = check_optional("lse", args->lse, 4, err);
    if (status == FOSCAR_OK) status = check_pointer("workspace", args->workspace, ALIGNMENT, err);
    if (status == FOSCAR_OK)
        status = check_rows("q_stride", cache->batch, numbers * number_info(shape->cfg.q_type)->bytes, &args->q_stride,
                            err);
    if (status == FOSCAR_OK)
        status = check_rows("out_stride", cache->batch, numbers * number_info(shape->cfg.o_type)->bytes,
                            &args->out_stride, err);
    if (status != FOSCAR_OK) return status;
    if (args->workspace_bytes < shape->workspace_bytes)
        return status_fail(err, FOSCAR_WORKSPACE_TOO_SMALL, "the workspace has %llu bytes, %llu are needed",
                           (unsigned long long)args->workspace_bytes, (unsigned long long)shape->workspace_bytes);
    return FOSCAR_OK;
}

foscar_status arguments_decode(const kernel_shape *shape, const foscar_decode_args *theirs, decode_values *decode,
                               merge_values *merge, cache_work *merge_work, foscar_error *err)
{
    foscar_decode_args args;
    foscar_cache cache;
    memset(decode, 0, sizeof *decode);
    foscar_status status = struct_import("decode args", &args, sizeof args, sizeof args, theirs, err);
    if (status == FOSCAR_OK) status = import_cache(shape, args.cache, &cache, err);
    if (status == FOSCAR_OK) status = check_decode(shape, &args, &cache, err);
    if (status == FOSCAR_OK) status = check_scale(shape, args.scale, &decode->scale_log2, err);
    if (status != FOSCAR_OK) return status;
    FILL_CACHE(decode, &cache);
    decode->q = address(args.q);
    decode->out = address(args.out);
    decode->lse = address(args.lse);
    decode->lengths = address(cache.lengths);
    decode->workspace = address(args.workspace);
    decode->q_stride = (uint64_t)args.q_stride;
    decode->out_stride = (uint64_t)args.out_stride;
    decode->batch = (uint32_t)cache.batch;
    decode->kv_heads = (uint32_t)cache.kv_heads;
    *merge_work = (cache_work){.batch = cache.batch, .kv_heads = cache.kv_heads,
                               .workers = shape->blocks * shape->consumers};
    *merge = (merge_values){
        .workspace = decode->workspace,
        .out = decode->out,
        .lse = decode->lse,
        .out_stride = decode->out_stride,
        .workers = (uint32_t)merge_work->workers,
        .kv_heads = decode->kv_heads,
    };
    return FOSCAR_OK;
}

/* ---- Append ---- */

static foscar_status check_append(const kernel_shape *shape, foscar_append_args *args, const foscar_cache *cache,
                                  foscar_error *err)
{
    int64_t row = (int64_t)cache->kv_heads * shape->cfg.head_dim * number_info(shape->cfg.q_type)->bytes;
    if (args->token_indptr == NULL && args->tokens == 0) args->tokens = cache->batch;
    if (args->tokens < 0) return refuse(err, "tokens is %d", (int)args->tokens);
    if (args->token_indptr == NULL && args->tokens != cache->batch)
        return refuse(err, "tokens is %d, but without token_indptr each of the %d sequences takes one",
                      (int)args->tokens, (int)cache->batch);
    foscar_status status = check_pointer("k", args->k, ALIGNMENT, err);
    if (status == FOSCAR_OK) status = check_pointer("v", args->v, ALIGNMENT, err);
    if (status == FOSCAR_OK) status = check_optional("token_indptr", args->token_indptr, 4, err);
    if (status == FOSCAR_OK) status = check_rows("k_stride", args->tokens, row, &args->k_stride, err);
    if (status == FOSCAR_OK) status = check_rows("v_stride", args->tokens, row, &args->v_stride, err);
    return status;
}

static foscar_status import_append(const kernel_shape *shape, const foscar_append_args *theirs,
                                   foscar_append_args *args, foscar_cache *cache, foscar_error *err)
{
    foscar_status status = struct_import("append args", args, sizeof *args, sizeof *args, theirs, err);
    if (status == FOSCAR_OK) status = import_cache(shape, args->cache, cache, err);
    if (status == FOSCAR_OK) status = check_append(shape, args, cache, err);
    return status;
}

#define FILL_APPEND(values, args, cache)                                                                               \
    ((values)->k = address((args)->k), (values)->v = address((args)->v),                                               \
     (values)->k_stride = (uint64_t)(args)->k_stride, (values)->v_stride = (uint64_t)(args)->v_stride,                 \
     (values)->lengths = address((cache)->lengths), (values)->batch = (uint32_t)(cache)->batch)

foscar_status arguments_append(const kernel_shape *shape, const foscar_append_args *theirs, append_launch *out,
                               foscar_error *err)
{
    foscar_append_args args;
    foscar_cache cache;
    memset(out, 0, sizeof *out);
    foscar_status status = import_append(shape, theirs, &args, &cache, err);
    if (status != FOSCAR_OK) return status;
    out->kernel = args.token_indptr != NULL ? CACHE_APPEND_PREFILL : CACHE_APPEND_DECODE;
    out->work = (cache_work){.tokens = args.tokens, .batch = cache.batch, .kv_heads = cache.kv_heads};
    FILL_CACHE(&out->prefill, &cache);
    FILL_APPEND(&out->prefill, &args, &cache);
    out->prefill.token_indptr = address(args.token_indptr);
    FILL_CACHE(&out->decode, &cache);
    FILL_APPEND(&out->decode, &args, &cache);
    out->decode.kv_heads = (uint32_t)cache.kv_heads;
    return FOSCAR_OK;
}

/* ---- Dequantise ---- */

static foscar_status check_dequantise(const kernel_shape *shape, const foscar_dequantise_args *args,
                                      const foscar_cache *cache, foscar_error *err)
{
    foscar_status status = check_optional("out_k", args->out_k, ALIGNMENT, err);
    if (status == FOSCAR_OK) status = check_optional("out_v", args->out_v, ALIGNMENT, err);
    if (status != FOSCAR_OK) return status;
    if (args->reserved != 0) return refuse(err, "reserved is %d, must be 0", (int)args->reserved);
    if (args->type != FOSCAR_F32 && (number_type)args->type != shape->cfg.q_type)
        return refuse(err, "type is %d, must be FOSCAR_F32 or the type of Q (%s)", (int)args->type,
                      number_info(shape->cfg.q_type)->name);
    if (args->sequence < 0 || args->sequence >= cache->batch)
        return refuse(err, "sequence is %d, must be 0 to %d", (int)args->sequence, (int)cache->batch - 1);
    if (args->begin < 0 || args->end < args->begin)
        return refuse(err, "tokens %d to %d are no range", (int)args->begin, (int)args->end);
    int64_t pages = ((int64_t)args->end + shape->cfg.page_tokens - 1) / shape->cfg.page_tokens;
    int64_t row = cache->page_indptr == NULL ? cache->table_stride : cache->table_entries;
    if (pages > row)
        return refuse(err, "end is %d: %lld pages, a row of the page table has %lld", (int)args->end, (long long)pages,
                      (long long)row);
    return FOSCAR_OK;
}

foscar_status arguments_dequantise(const kernel_shape *shape, const foscar_dequantise_args *theirs,
                                   dequantise_values *values, cache_work *work, foscar_error *err)
{
    foscar_dequantise_args args;
    foscar_cache cache;
    memset(values, 0, sizeof *values);
    foscar_status status = struct_import("dequantise args", &args, sizeof args, sizeof args, theirs, err);
    if (status == FOSCAR_OK) status = import_cache(shape, args.cache, &cache, err);
    if (status == FOSCAR_OK) status = check_dequantise(shape, &args, &cache, err);
    if (status != FOSCAR_OK) return status;
    FILL_CACHE(values, &cache);
    values->k_out = address(args.out_k);
    values->v_out = address(args.out_v);
    values->sequence = (uint32_t)args.sequence;
    values->begin = (uint32_t)args.begin;
    values->end = (uint32_t)args.end;
    values->kv_heads = (uint32_t)cache.kv_heads;
    values->narrow = args.type != FOSCAR_F32;
    *work = (cache_work){.kv_heads = cache.kv_heads, .batch = cache.batch, .begin = args.begin, .end = args.end};
    return FOSCAR_OK;
}

/* ---- Check ---- */

foscar_status arguments_check(const kernel_shape *shape, const foscar_cache *theirs, const foscar_append_args *append,
                              check_values *values, cache_work *work, foscar_error *err)
{
    foscar_cache cache;
    foscar_append_args args = {0};
    memset(values, 0, sizeof *values);
    foscar_status status = append != NULL ? import_append(shape, append, &args, &cache, err)
                                          : import_cache(shape, theirs, &cache, err);
    if (status != FOSCAR_OK) return status;
    values->page_table = address(cache.page_table);
    values->page_indptr = address(cache.page_indptr);
    values->lengths = address(cache.lengths);
    values->token_indptr = address(args.token_indptr);
    values->table_stride = (uint32_t)cache.table_stride;
    values->table_entries = (uint32_t)cache.table_entries;
    values->tokens = (uint32_t)args.tokens;
    values->batch = (uint32_t)cache.batch;
    values->pages_count = (uint32_t)cache.pages_count;
    *work = (cache_work){.batch = cache.batch, .kv_heads = cache.kv_heads, .tokens = args.tokens};
    return FOSCAR_OK;
}
