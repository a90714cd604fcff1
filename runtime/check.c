/* foscar_check: looks at lengths and page tables on the device and waits for the answer. */
#include <stdio.h>

#include "arguments.h"
#include "launch.h"

static const char *code_sentence(int32_t code)
{
    switch (code) {
#define CODE(id, number, sentence)                                                                                     \
    case CHECK_##id: return sentence;
        CHECK_CODES(CODE)
#undef CODE
    default: return "an unknown offence";
    }
}

static foscar_status report(const cache_check_result *result, foscar_error *err)
{
    char entry[32] = "";
    if (result->code == CHECK_OK) return FOSCAR_OK;
    if (result->entry >= 0) snprintf(entry, sizeof entry, ", entry %d", (int)result->entry);
    return status_fail(err, FOSCAR_INVALID_ARGUMENT, "sequence %d%s, value %d: %s", (int)result->sequence, entry,
                       (int)result->value, code_sentence(result->code));
}

static foscar_status run(const foscar_kernel *kernel, check_values values, const cache_work *work, void *stream,
                         cache_check_result *result, foscar_error *err)
{
    const driver *cuda = kernel->cuda;
    void *parameters[] = {CHECK_PARAMS(PARAM_ADDRESS)};
    foscar_status status = driver_result(cuda, cuda->cuMemsetD8Async(values.result, 0xff, sizeof *result, stream),
                                         "clearing the result of the check", err);
    if (status == FOSCAR_OK) status = launch_cache_kernel(kernel, CACHE_CHECK, work, parameters, stream, err);
    if (status == FOSCAR_OK)
        status = driver_result(cuda, cuda->cuMemcpyDtoHAsync_v2(result, values.result, sizeof *result, stream),
                               "copying the result of the check", err);
    if (status == FOSCAR_OK)
        status = driver_result(cuda, cuda->cuStreamSynchronize(stream), "waiting for the check", err);
    return status;
}

/* In the kernel's context. */
static foscar_status check(const foscar_kernel *kernel, const foscar_cache *cache, const foscar_append_args *append,
                           void *stream, foscar_error *err)
{
    const driver *cuda = kernel->cuda;
    check_values values;
    cache_work work;
    cache_check_result result = {.code = CHECK_OK};
    CUdeviceptr memory = 0;
    CUstreamCaptureStatus capturing = DRIVER_CU_STREAM_CAPTURE_STATUS_NONE;
    foscar_status status = arguments_check(&kernel->shape, cache, append, &values, &work, err);
    if (status == FOSCAR_OK)
        status = driver_result(cuda, cuda->cuStreamIsCapturing(stream, &capturing), "asking the stream", err);
    if (status != FOSCAR_OK) return status;
    if (capturing != DRIVER_CU_STREAM_CAPTURE_STATUS_NONE)
        return status_fail(err, FOSCAR_INVALID_ARGUMENT, "foscar_check waits for its result and cannot be captured");
    status = driver_result(cuda, cuda->cuMemAlloc_v2(&memory, sizeof result), "allocating the result of the check", err);
    if (status != FOSCAR_OK) return status;
    values.result = memory;
    status = run(kernel, values, &work, stream, &result, err);
    (void)cuda->cuMemFree_v2(memory);
    return status != FOSCAR_OK ? status : report(&result, err);
}

foscar_status foscar_check(const foscar_kernel *kernel, const foscar_cache *cache, void *stream, foscar_error *err)
{
    launch_scope scope;
    foscar_status status = launch_enter(kernel, &scope, err);
    if (status != FOSCAR_OK) return status;
    status = check(kernel, cache, NULL, stream, err);
    launch_leave(kernel, &scope);
    return status;
}

foscar_status foscar_check_append(const foscar_kernel *kernel, const foscar_append_args *args, void *stream,
                                  foscar_error *err)
{
    launch_scope scope;
    if (args == NULL) return status_fail(err, FOSCAR_INVALID_ARGUMENT, "append args is NULL");
    foscar_status status = launch_enter(kernel, &scope, err);
    if (status != FOSCAR_OK) return status;
    status = check(kernel, NULL, args, stream, err);
    launch_leave(kernel, &scope);
    return status;
}
