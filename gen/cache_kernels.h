/* The cache kernels: ordinary CUDA (templates/cache_*.cu, templates/decode_merge.cu), one translation unit that NVRTC
 * specialises by macros.
 *
 * Each kernel is a row of CACHE_KERNEL_TABLE and has a list of parameters, in the order of kernelParams, like
 * DECODE_PARAMS of plan.h. Addresses and strides are 8 bytes, counts are int32. Conventions shared by all of them:
 *   pages       first page, 16-byte aligned; page p of KV head h begins at pages + p * page_stride + h * head_stride,
 *               both multiples of 16.
 *   page_table  int32 page numbers. Padded: row b begins at entry b * table_stride. CSR (page_indptr != 0): at entry
 *               page_indptr[b], and table_stride is ignored. Entries below 0 are skipped; nothing else is checked,
 *               that is what foscar_check is for.
 *   lengths     int32 [batch], tokens of each sequence AFTER the append. A sequence of length <= 0 is skipped.
 *   K, V in     rows of [kv_heads, head_dim] numbers of the type of Q, one row a token, 16-byte aligned, strides
 *               multiples of 16 bytes.
 * No kernel reads a length on the host, so all may be captured in a graph and replayed with other lengths. They take
 * no dynamic shared memory. */
#ifndef FOSCAR_GEN_CACHE_KERNELS_H
#define FOSCAR_GEN_CACHE_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "config.h"

/* KERNEL(id, name, threads of a block, parameter list). The entry of the kernel is "foscar_" name. */
#define CACHE_KERNEL_TABLE(KERNEL)                                                                                     \
    KERNEL(MERGE, merge, 256, MERGE_PARAMS)                                                                            \
    KERNEL(APPEND_PREFILL, append_prefill, 256, APPEND_PREFILL_PARAMS)                                                 \
    KERNEL(APPEND_DECODE, append_decode, 128, APPEND_DECODE_PARAMS)                                                    \
    KERNEL(DEQUANTISE, dequantise, 256, DEQUANTISE_PARAMS)                                                             \
    KERNEL(CHECK, check, 128, CHECK_PARAMS)

/* Merges the partial results that a decode launch left in its workspace (format: plan.h). Every output row that the
   decode kernel did not write itself is written here. Launch it with programmatic stream serialisation: it waits for
   the decode kernel before it reads. */
#define MERGE_PARAMS(PARAM)                                                                                            \
    PARAM(workspace, 8, "workspace of the decode launch, address")                                                     \
    PARAM(out, 8, "output [batch, kv_heads * heads, head_dim], address, 16-byte aligned")                              \
    PARAM(lse, 8, "log-sum-exp [batch, kv_heads * heads] float32 (natural log), address or 0")                         \
    PARAM(out_stride, 8, "bytes from one sequence of the output to the next, a multiple of 16")                        \
    PARAM(workers, 4, "workers of the decode launch: blocks * consumers")                                              \
    PARAM(kv_heads, 4, "KV heads")

/* Where a paged cache lies, in the lists of all kernels that read or write it. */
#define PAGED_CACHE_PARAMS(PARAM)                                                                                      \
    PARAM(pages, 8, "first page, address")                                                                             \
    PARAM(page_stride, 8, "bytes from one page to the next")                                                           \
    PARAM(head_stride, 8, "bytes from one KV head of a page to the next")                                              \
    PARAM(page_table, 8, "int32 page numbers, address")                                                                \
    PARAM(page_indptr, 8, "int32 [batch + 1] first entry of each sequence in page_table (CSR), or 0 (padded)")

/* Quantises and appends many tokens. token_indptr[b] .. token_indptr[b + 1] are the rows of k and v that sequence b
   takes at its end, so they get the positions lengths[b] - n .. lengths[b] - 1; with n <= 0 or n > lengths[b] nothing
   is written. Tokens already in the cache stay as they are, bit for bit; code bits of the same 64-token chunk beyond
   the new length may change. */
#define APPEND_PREFILL_PARAMS(PARAM)                                                                                   \
    PARAM(k, 8, "K [tokens, kv_heads, head_dim], address")                                                             \
    PARAM(v, 8, "V [tokens, kv_heads, head_dim], address")                                                             \
    PARAM(k_stride, 8, "bytes from one token of k to the next")                                                        \
    PARAM(v_stride, 8, "bytes from one token of v to the next")                                                        \
    PAGED_CACHE_PARAMS(PARAM)                                                                                          \
    PARAM(lengths, 8, "int32 [batch] tokens of each sequence after the append, address")                               \
    PARAM(token_indptr, 8, "int32 [batch + 1] first row of each sequence in k and v, address")                         \
    PARAM(table_stride, 4, "entries of one row of a padded page table")                                                \
    PARAM(batch, 4, "sequences")

/* Quantises and appends one token a sequence: row b of k and v becomes token lengths[b] - 1. */
#define APPEND_DECODE_PARAMS(PARAM)                                                                                    \
    PARAM(k, 8, "K [batch, kv_heads, head_dim], address")                                                              \
    PARAM(v, 8, "V [batch, kv_heads, head_dim], address")                                                              \
    PARAM(k_stride, 8, "bytes from one sequence of k to the next")                                                     \
    PARAM(v_stride, 8, "bytes from one sequence of v to the next")                                                     \
    PAGED_CACHE_PARAMS(PARAM)                                                                                          \
    PARAM(lengths, 8, "int32 [batch] tokens of each sequence after the append, address")                               \
    PARAM(table_stride, 4, "entries of one row of a padded page table")                                                \
    PARAM(batch, 4, "sequences")                                                                                       \
    PARAM(kv_heads, 4, "KV heads")

/* Writes tokens begin .. end - 1 of one sequence as scale * code + minimum (one fused multiply-add in float32). The
   caller vouches for 0 <= begin <= end <= its length. Tokens of pages numbered below 0 are left unwritten. */
#define DEQUANTISE_PARAMS(PARAM)                                                                                       \
    PARAM(k_out, 8, "K [end - begin, kv_heads, head_dim] contiguous, address, 16-byte aligned, or 0")                  \
    PARAM(v_out, 8, "V [end - begin, kv_heads, head_dim] contiguous, address, 16-byte aligned, or 0")                  \
    PAGED_CACHE_PARAMS(PARAM)                                                                                          \
    PARAM(table_stride, 4, "entries of one row of a padded page table")                                                \
    PARAM(sequence, 4, "the sequence")                                                                                 \
    PARAM(begin, 4, "first token")                                                                                     \
    PARAM(end, 4, "one past the last token")                                                                           \
    PARAM(kv_heads, 4, "KV heads")                                                                                     \
    PARAM(narrow, 4, "0: the output is float32, 1: numbers of the type of Q (round to nearest even)")

/* Finds the first offence (lowest sequence, then lowest entry) in the lengths and page tables of a batch. The caller
   fills the result with bytes 0xff before the launch (cuMemsetD8Async). */
#define CHECK_PARAMS(PARAM)                                                                                            \
    PARAM(page_table, 8, "int32 page numbers, address")                                                                \
    PARAM(page_indptr, 8, "int32 [batch + 1] first entry of each sequence in page_table (CSR), or 0 (padded)")         \
    PARAM(lengths, 8, "int32 [batch] tokens of each sequence, address")                                                \
    PARAM(token_indptr, 8, "int32 [batch + 1] first new row of each sequence as for append_prefill, or 0")             \
    PARAM(result, 8, "cache_check_result, address, 16-byte aligned")                                                   \
    PARAM(table_stride, 4, "entries of one row of a padded page table")                                                \
    PARAM(table_entries, 4, "entries of page_table in all; CSR rows must lie within it; unused if padded")             \
    PARAM(tokens, 4, "rows of k and v; token_indptr must lie within them")                                             \
    PARAM(batch, 4, "sequences")                                                                                       \
    PARAM(pages_count, 4, "pages in the pool; page numbers must lie below it")

/* What foscar_check found; the numbers are also in templates/cache_check.cu.
   CODE(id, number, sentence without the figures) */
#define CHECK_CODES(CODE)                                                                                              \
    CODE(OK, 0, "nothing is wrong")                                                                                    \
    CODE(TABLE, 1, "page_indptr decreases or leaves the page table (value: its entry of this sequence)")               \
    CODE(LENGTH, 2, "the length is negative (value)")                                                                  \
    CODE(PAGES, 3, "the length (value) needs more pages than the sequence's row of the page table has (entry)")        \
    CODE(TOKENS, 4,                                                                                                    \
         "token_indptr decreases, leaves the rows of k and v or adds more tokens than the length (value: new tokens)") \
    CODE(PAGE, 5, "the page number (value) at an entry of the sequence's row is outside the pool")

typedef enum check_code {
#define CODE(id, number, sentence) CHECK_##id = (number),
    CHECK_CODES(CODE)
#undef CODE
} check_code;

typedef struct cache_check_result {
    int32_t code;     /* a check_code */
    int32_t sequence; /* -1 if nothing is wrong */
    int32_t entry;    /* within the sequence's row; -1 where no entry is meant */
    int32_t value;    /* the offending number */
    uint32_t internal[4];
} cache_check_result;

_Static_assert(sizeof(cache_check_result) == 32, "written by templates/cache_check.cu");

typedef enum cache_kernel {
#define KERNEL(id, name, threads, params) CACHE_##id,
    CACHE_KERNEL_TABLE(KERNEL)
#undef KERNEL
        CACHE_KERNELS
} cache_kernel;

/* Places of the parameters: MERGE_PARAM_workspace = 0, ..., MERGE_PARAM_COUNT, and so on. */
#define CACHE_PARAM_ENUM(kernel, list)                                                                                 \
    typedef enum kernel##_param{list(CACHE_PARAM_PLACE_##kernel) kernel##_PARAM_COUNT} kernel##_param
#define CACHE_PARAM_PLACE_MERGE(name, bytes, meaning)          MERGE_PARAM_##name,
#define CACHE_PARAM_PLACE_APPEND_PREFILL(name, bytes, meaning) APPEND_PREFILL_PARAM_##name,
#define CACHE_PARAM_PLACE_APPEND_DECODE(name, bytes, meaning)  APPEND_DECODE_PARAM_##name,
#define CACHE_PARAM_PLACE_DEQUANTISE(name, bytes, meaning)     DEQUANTISE_PARAM_##name,
#define CACHE_PARAM_PLACE_CHECK(name, bytes, meaning)          CHECK_PARAM_##name,
CACHE_PARAM_ENUM(MERGE, MERGE_PARAMS);
CACHE_PARAM_ENUM(APPEND_PREFILL, APPEND_PREFILL_PARAMS);
CACHE_PARAM_ENUM(APPEND_DECODE, APPEND_DECODE_PARAMS);
CACHE_PARAM_ENUM(DEQUANTISE, DEQUANTISE_PARAMS);
CACHE_PARAM_ENUM(CHECK, CHECK_PARAMS);

enum { CACHE_PARAMS_MAX = 16 }; /* of one kernel */

typedef struct cache_param {
    const char *name;
    int bytes;
    const char *meaning;
} cache_param;

typedef struct cache_kernel_row {
    const char *name;          /* "append_decode" */
    const char *entry;         /* "foscar_append_decode" */
    int threads;               /* of a block, one-dimensional */
    const cache_param *params; /* in the order of kernelParams */
    int param_count;
} cache_kernel_row;

const cache_kernel_row *cache_kernel_info(cache_kernel kernel); /* static storage */

/* The CUDA text of the whole unit, NUL-terminated, in static storage; the same for every configuration. */
const char *cache_kernels_source(void);

/* The options of one NVRTC compile, without the architecture: -D of every macro, then what makes the arithmetic
   reproducible. */
enum { CACHE_OPTION_MAX = 48, CACHE_OPTIONS_MAX = 24 };
int cache_kernels_options(const config *cfg, char options[CACHE_OPTIONS_MAX][CACHE_OPTION_MAX]); /* returns how many */

/* What a launch is to do; a kernel reads only the fields that it names. */
typedef struct cache_work {
    int64_t tokens;     /* append_prefill: rows of k and v */
    int batch;          /* append_prefill, append_decode, check: sequences */
    int kv_heads;       /* all but merge and check */
    int workers;        /* merge: blocks * consumers of the decode launch */
    int32_t begin, end; /* dequantise: tokens of the sequence */
} cache_work;

/* Blocks of a launch in x, y, z. False if there is nothing to launch (the driver refuses a dimension of 0). */
bool cache_kernel_grid(const config *cfg, cache_kernel kernel, const cache_work *work, uint32_t grid[3]);

#endif
