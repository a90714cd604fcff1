/* The launches. Nothing here allocates, locks, waits or prints; what a launch needs lies on the stack. */
#define _POSIX_C_SOURCE 200809L /* getpid */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "arguments.h"
#include "launch.h"

foscar_status launch_enter(const foscar_kernel *kernel, launch_scope *scope, foscar_error *err)
{
    CUcontext current = NULL;
    if (kernel == NULL) return status_fail(err, FOSCAR_NOT_PREPARED, "the kernel is NULL; call foscar_prepare first");
    if (kernel->owner != getpid())
        return status_fail(err, FOSCAR_FORKED, "the kernel belongs to process %ld; prepare one after fork",
                           (long)kernel->owner);
    const driver *cuda = kernel->cuda;
    scope->pushed = false;
    foscar_status status = driver_result(cuda, cuda->cuCtxGetCurrent(&current), "asking for the current context", err);
    if (status != FOSCAR_OK || current == kernel->context) return status;
    status = driver_result(cuda, cuda->cuCtxPushCurrent_v2(kernel->context), "entering the kernel's context", err);
    scope->pushed = status == FOSCAR_OK;
    return status;
}

void launch_leave(const foscar_kernel *kernel, const launch_scope *scope)
{
    CUcontext popped;
    if (scope->pushed) (void)kernel->cuda->cuCtxPopCurrent_v2(&popped);
}

foscar_status launch_kernel(const foscar_kernel *kernel, const launch_shape *shape, CUfunction function,
                            void **parameters, void *stream, const char *what, foscar_error *err)
{
    driver_launch_attribute overlap = {.id = DRIVER_CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    overlap.value.programmatic_stream_serialization = 1;
    driver_launch_config launch = {
        .grid = {shape->grid[0], shape->grid[1], shape->grid[2]},
        .block = {shape->threads, 1, 1},
        .shared_bytes = shape->shared_bytes,
        .stream = stream,
        .attributes = shape->overlaps_previous ? &overlap : NULL,
        .attribute_count = shape->overlaps_previous ? 1 : 0,
    };
    return driver_result(kernel->cuda, kernel->cuda->cuLaunchKernelEx(&launch, function, parameters, NULL), what, err);
}

/* One of the cache kernels; OK if there is nothing to do. */
foscar_status launch_cache_kernel(const foscar_kernel *kernel, cache_kernel which, const cache_work *work,
                                  void **parameters, void *stream, foscar_error *err)
{
    const cache_kernel_row *row = cache_kernel_info(which);
    launch_shape shape = {.threads = (uint32_t)row->threads, .overlaps_previous = which == CACHE_MERGE};
    char what[64];
    if (!cache_kernel_grid(&kernel->shape.cfg, which, work, shape.grid)) return FOSCAR_OK;
    snprintf(what, sizeof what, "launching %s", row->name);
    return launch_kernel(kernel, &shape, kernel->cache[which], parameters, stream, what, err);
}

static foscar_status launch_decode(const foscar_kernel *kernel, decode_values values, void *stream, foscar_error *err)
{
    void *parameters[] = {DECODE_PARAMS(PARAM_ADDRESS)};
    launch_shape shape = {
        .grid = {(uint32_t)kernel->shape.blocks, 1, 1},
        .threads = (uint32_t)kernel->plan.threads,
        .shared_bytes = kernel->plan.shared_bytes,
    };
    return launch_kernel(kernel, &shape, kernel->decode, parameters, stream, "launching decode", err);
}

static foscar_status launch_merge(const foscar_kernel *kernel, merge_values values, const cache_work *work,
                                  void *stream, foscar_error *err)
{
    void *parameters[] = {MERGE_PARAMS(PARAM_ADDRESS)};
    return launch_cache_kernel(kernel, CACHE_MERGE, work, parameters, stream, err);
}

foscar_status foscar_decode(const foscar_kernel *kernel, const foscar_decode_args *args, void *stream,
                            foscar_error *err)
{
    decode_values decode;
    merge_values merge;
    cache_work work;
    launch_scope scope;
    foscar_status status = launch_enter(kernel, &scope, err);
    if (status != FOSCAR_OK) return status;
    status = arguments_decode(&kernel->shape, args, &decode, &merge, &work, err);
    if (status == FOSCAR_OK) status = launch_decode(kernel, decode, stream, err);
    if (status == FOSCAR_OK) status = launch_merge(kernel, merge, &work, stream, err);
    launch_leave(kernel, &scope);
    return status;
}

static foscar_status launch_append_prefill(const foscar_kernel *kernel, append_prefill_values values,
                                           const cache_work *work, void *stream, foscar_error *err)
{
    void *parameters[] = {APPEND_PREFILL_PARAMS(PARAM_ADDRESS)};
    return launch_cache_kernel(kernel, CACHE_APPEND_PREFILL, work, parameters, stream, err);
}

static foscar_status launch_append_decode(const foscar_kernel *kernel, append_decode_values values,
                                          const cache_work *work, void *stream, foscar_error *err)
{
    void *parameters[] = {APPEND_DECODE_PARAMS(PARAM_ADDRESS)};
    return launch_cache_kernel(kernel, CACHE_APPEND_DECODE, work, parameters, stream, err);
}

foscar_status foscar_append(const foscar_kernel *kernel, const foscar_append_args *args, void *stream,
                            foscar_error *err)
{
    append_launch append;
    launch_scope scope;
    foscar_status status = launch_enter(kernel, &scope, err);
    if (status != FOSCAR_OK) return status;
    status = arguments_append(&kernel->shape, args, &append, err);
    if (status == FOSCAR_OK)
        status = append.kernel == CACHE_APPEND_PREFILL
                     ? launch_append_prefill(kernel, append.prefill, &append.work, stream, err)
                     : launch_append_decode(kernel, append.decode, &append.work, stream, err);
    launch_leave(kernel, &scope);
    return status;
}

foscar_status foscar_dequantise(const foscar_kernel *kernel, const foscar_dequantise_args *args, void *stream,
                                foscar_error *err)
{
    dequantise_values values;
    cache_work work;
    launch_scope scope;
    foscar_status status = launch_enter(kernel, &scope, err);
    if (status != FOSCAR_OK) return status;
    status = arguments_dequantise(&kernel->shape, args, &values, &work, err);
    if (status == FOSCAR_OK) {
        void *parameters[] = {DEQUANTISE_PARAMS(PARAM_ADDRESS)};
        status = launch_cache_kernel(kernel, CACHE_DEQUANTISE, &work, parameters, stream, err);
    }
    launch_leave(kernel, &scope);
    return status;
}
