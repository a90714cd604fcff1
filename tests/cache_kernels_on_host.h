/* The cache kernels of one specification, that of the macros below, as functions that run on the CPU. Included by one
 * test program. */
#ifndef FOSCAR_TESTS_CACHE_KERNELS_ON_HOST_H
#define FOSCAR_TESTS_CACHE_KERNELS_ON_HOST_H

#include "cache_kernels.h"
#include "cuda_on_host.h"
#include "fragment.h"

#ifndef HEAD_DIM
#define HEAD_DIM    128
#define HEADS       8
#define PAGE_TOKENS 64
#define K_BITS      2
#define V_BITS      2
#define Q_TYPE      bf16
#define O_TYPE      f32
#endif
#ifndef M_TYPE
#define M_TYPE f16
#endif

/* The other macros of cache_kernels_options, which a test compares with it. */
#define V_TILES                (V_BITS == 2 && HEAD_DIM % 128 == 0 ? 2 : 1)
#define V_HALVES               (4 / V_BITS / V_TILES)
#define K_CODES                0
#define V_CODES                (PAGE_TOKENS * HEAD_DIM * K_BITS / 8)
#define K_METADATA             (V_CODES + PAGE_TOKENS * HEAD_DIM * V_BITS / 8)
#define V_METADATA             (K_METADATA + PAGE_TOKENS * 4)
#define PARTIAL_BYTES          ((HEADS * (HEAD_DIM + 1) * 4 + 15) / 16 * 16)
#define MERGE_WORKERS          4
#define MERGE_HEADS            (HEAD_DIM < 256 ? 256 / HEAD_DIM : 1)
#define THREADS_MERGE          256
#define THREADS_APPEND_PREFILL 256
#define THREADS_APPEND_DECODE  128
#define THREADS_DEQUANTISE     256
#define THREADS_CHECK          128

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunknown-pragmas"
#pragma GCC diagnostic ignored "-Wpedantic"
#include "../templates/cache_layout.cu"
#include "../templates/cache_quantise.cu"
#include "../templates/cache_append.cu"
#include "../templates/cache_dequantise.cu"
#include "../templates/cache_check.cu"
#include "../templates/decode_merge.cu"
#pragma GCC diagnostic pop

/* A macro's value as text: TEXT(Q_TYPE) is "bf16". */
#define TEXT(x)          TEXT_EXPANDED(x)
#define TEXT_EXPANDED(x) #x

static config host_config(void)
{
    config cfg = {
        .target = target_row(0),
        .k = {encoding_find(K_BITS), GROUP_TOKEN_WISE, HEAD_DIM},
        .v = {encoding_find(V_BITS), GROUP_TOKEN_WISE, HEAD_DIM},
        .head_dim = HEAD_DIM,
        .heads = HEADS,
        .page_tokens = PAGE_TOKENS,
    };
    if (!number_find(TEXT(Q_TYPE), strlen(TEXT(Q_TYPE)), &cfg.q_type) ||
        !number_find(TEXT(O_TYPE), strlen(TEXT(O_TYPE)), &cfg.o_type) ||
        !number_find(TEXT(M_TYPE), strlen(TEXT(M_TYPE)), &cfg.m_type))
        abort();
    return cfg;
}

/* Each takes its arguments in the order of its parameter list. */
#define POINTER(i) ((void *)(uintptr_t)a[i])
#define STRIDE(i)  ((long long)a[i])
#define NUMBER(i)  ((int)a[i])

static void call_merge(const uint64_t *a)
{
    foscar_merge(POINTER(0), POINTER(1), POINTER(2), STRIDE(3), NUMBER(4), NUMBER(5));
}

static void call_append_prefill(const uint64_t *a)
{
    foscar_append_prefill(POINTER(0), POINTER(1), STRIDE(2), STRIDE(3), POINTER(4), STRIDE(5), STRIDE(6), POINTER(7),
                          POINTER(8), POINTER(9), POINTER(10), NUMBER(11), NUMBER(12));
}

static void call_append_decode(const uint64_t *a)
{
    foscar_append_decode(POINTER(0), POINTER(1), STRIDE(2), STRIDE(3), POINTER(4), STRIDE(5), STRIDE(6), POINTER(7),
                         POINTER(8), POINTER(9), NUMBER(10), NUMBER(11), NUMBER(12));
}

static void call_dequantise(const uint64_t *a)
{
    foscar_dequantise(POINTER(0), POINTER(1), POINTER(2), STRIDE(3), STRIDE(4), POINTER(5), POINTER(6), NUMBER(7),
                      NUMBER(8), NUMBER(9), NUMBER(10), NUMBER(11), NUMBER(12));
}

static void call_check(const uint64_t *a)
{
    foscar_check(POINTER(0), POINTER(1), POINTER(2), POINTER(3), POINTER(4), NUMBER(5), NUMBER(6), NUMBER(7), NUMBER(8),
                 NUMBER(9));
}

#undef POINTER
#undef STRIDE
#undef NUMBER

/* Launches a kernel with the grid and block that cache_kernels.c gives it. */
static void host_launch_cache(cache_kernel kernel, const cache_work *work, const uint64_t *arguments,
                              reference_rng *rng)
{
    static void (*const calls[CACHE_KERNELS])(const uint64_t *) = {
#define KERNEL(id, name, threads, list) [CACHE_##id] = call_##name,
        CACHE_KERNEL_TABLE(KERNEL)
#undef KERNEL
    };
    config cfg = host_config();
    uint32_t grid[3];
    if (cache_kernel_grid(&cfg, kernel, work, grid))
        host_launch(calls[kernel], arguments, grid, cache_kernel_info(kernel)->threads, rng);
}

#endif
