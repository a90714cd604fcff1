/* From a caller's arguments to kernel parameters: every check that a launch makes, without a driver. */
#ifndef FOSCAR_RUNTIME_ARGUMENTS_H
#define FOSCAR_RUNTIME_ARGUMENTS_H

#include "runtime.h"

/* Parameter values by the generator's own lists: addresses, strides and sizes take 8 bytes, counts and float32 numbers 4. */
#define PARAM_TYPE_8 uint64_t
#define PARAM_TYPE_4 uint32_t
#define PARAM_MEMBER(name, bytes, meaning) PARAM_TYPE_##bytes name;
typedef struct decode_values {
    DECODE_PARAMS(PARAM_MEMBER)
} decode_values;
typedef struct merge_values {
    MERGE_PARAMS(PARAM_MEMBER)
} merge_values;
typedef struct append_prefill_values {
    APPEND_PREFILL_PARAMS(PARAM_MEMBER)
} append_prefill_values;
typedef struct append_decode_values {
    APPEND_DECODE_PARAMS(PARAM_MEMBER)
} append_decode_values;
typedef struct dequantise_values {
    DEQUANTISE_PARAMS(PARAM_MEMBER)
} dequantise_values;
typedef struct check_values {
    CHECK_PARAMS(PARAM_MEMBER)
} check_values;

/* Addresses of the values in the order of kernelParams: void *parameters[] = {DECODE_PARAMS(PARAM_ADDRESS)} with `values` in scope. */
#define PARAM_ADDRESS(name, bytes, meaning) (void *)&values.name,

/* Each fills the values of one launch, or returns INVALID_ARGUMENT or WORKSPACE_TOO_SMALL with the reason. */
foscar_status arguments_decode(const kernel_shape *shape, const foscar_decode_args *args, decode_values *decode,
                               merge_values *merge, cache_work *merge_work, foscar_error *err);

/* Which of the two append kernels it is, and its values and work. A prefill of no tokens is nothing to launch. */
typedef struct append_launch {
    cache_kernel kernel; /* CACHE_APPEND_PREFILL or CACHE_APPEND_DECODE */
    append_prefill_values prefill;
    append_decode_values decode;
    cache_work work;
} append_launch;

foscar_status arguments_append(const kernel_shape *shape, const foscar_append_args *args, append_launch *out,
                               foscar_error *err);
foscar_status arguments_dequantise(const kernel_shape *shape, const foscar_dequantise_args *args,
                                   dequantise_values *values, cache_work *work, foscar_error *err);

/* All but `result`. `append` may be NULL: then only lengths and page table are looked at. */
foscar_status arguments_check(const kernel_shape *shape, const foscar_cache *cache, const foscar_append_args *append,
                              check_values *values, cache_work *work, foscar_error *err);

#endif
