/* Plain device services for the tools: thin rows over the driver, each in the right context, each with a sentence for its error. */
#include "toolkit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "image.h"

struct toolkit_program {
    const driver *cuda;
    CUlibrary library;
};

static foscar_status enter(foscar_runtime *runtime, const driver **cuda, foscar_error *err)
{
    device_binding device = {0};
    foscar_status status = runtime_enter(runtime, err);
    if (status == FOSCAR_OK) status = device_bind(runtime, &device, err);
    *cuda = device.cuda;
    return status;
}

foscar_status toolkit_open_with_driver(const foscar_options *options, const struct driver *cuda,
                                       foscar_runtime **runtime, foscar_error *err)
{
    foscar_status status = foscar_open(options, runtime, err);
    if (status != FOSCAR_OK) return status;
    (*runtime)->cuda = *cuda;
    (*runtime)->driver_tool.state = TOOL_READY;
    return FOSCAR_OK;
}

/* For the destroying calls, which have nobody to tell: the driver if it was started in this process, else NULL. */
static const driver *started(foscar_runtime *runtime)
{
    const driver *cuda;
    if (runtime_enter(runtime, NULL) != FOSCAR_OK || runtime_driver(runtime, &cuda, NULL) != FOSCAR_OK) return NULL;
    return cuda;
}

static CUdeviceptr device_address(const void *address)
{
    return (CUdeviceptr)(uintptr_t)address;
}

/* ---- Memory ---- */

foscar_status toolkit_allocate(foscar_runtime *runtime, uint64_t bytes, void **address, foscar_error *err)
{
    const driver *cuda;
    CUdeviceptr memory = 0;
    *address = NULL;
    foscar_status status = enter(runtime, &cuda, err);
    if (status == FOSCAR_OK)
        status = driver_result(cuda, cuda->cuMemAlloc_v2(&memory, bytes), "allocating device memory", err);
    if (status == FOSCAR_OK) *address = (void *)(uintptr_t)memory;
    return status;
}

void toolkit_free(foscar_runtime *runtime, void *address)
{
    const driver *cuda = started(runtime);
    if (cuda != NULL && address != NULL) (void)cuda->cuMemFree_v2(device_address(address));
}

foscar_status toolkit_upload(foscar_runtime *runtime, void *device, const void *host, uint64_t bytes, foscar_error *err)
{
    const driver *cuda;
    foscar_status status = enter(runtime, &cuda, err);
    if (status != FOSCAR_OK || bytes == 0) return status;
    status = driver_result(cuda, cuda->cuMemcpyHtoD_v2(device_address(device), host, bytes), "copying to the GPU", err);
    /* From pageable memory the call returns when the host's bytes may change, not when they have arrived ("API synchronization behavior" of the CUDA
       driver's manual), and our streams do not wait for the null stream: a launch right after it could read what was there before. */
    if (status == FOSCAR_OK) status = driver_result(cuda, cuda->cuStreamSynchronize(NULL), "copying to the GPU", err);
    return status;
}

foscar_status toolkit_download(foscar_runtime *runtime, void *host, const void *device, uint64_t bytes,
                               foscar_error *err)
{
    const driver *cuda;
    foscar_status status = enter(runtime, &cuda, err);
    if (status != FOSCAR_OK || bytes == 0) return status;
    return driver_result(cuda, cuda->cuMemcpyDtoH_v2(host, device_address(device), bytes), "copying from the GPU", err);
}

foscar_status toolkit_fill(foscar_runtime *runtime, void *device, uint8_t byte, uint64_t bytes, void *stream,
                           foscar_error *err)
{
    const driver *cuda;
    foscar_status status = enter(runtime, &cuda, err);
    if (status != FOSCAR_OK || bytes == 0) return status;
    return driver_result(cuda, cuda->cuMemsetD8Async(device_address(device), byte, bytes, stream),
                         "filling device memory", err);
}

/* ---- Streams and events ---- */

foscar_status toolkit_stream_create(foscar_runtime *runtime, void **stream, foscar_error *err)
{
    const driver *cuda;
    CUstream made = NULL;
    foscar_status status = enter(runtime, &cuda, err);
    if (status == FOSCAR_OK)
        status =
            driver_result(cuda, cuda->cuStreamCreate(&made, DRIVER_CU_STREAM_NON_BLOCKING), "creating a stream", err);
    *stream = made;
    return status;
}

void toolkit_stream_destroy(foscar_runtime *runtime, void *stream)
{
    const driver *cuda = started(runtime);
    if (cuda != NULL && stream != NULL) (void)cuda->cuStreamDestroy_v2(stream);
}

foscar_status toolkit_synchronise(foscar_runtime *runtime, void *stream, foscar_error *err)
{
    const driver *cuda;
    foscar_status status = enter(runtime, &cuda, err);
    if (status != FOSCAR_OK) return status;
    return driver_result(cuda, cuda->cuStreamSynchronize(stream), "waiting for the GPU", err);
}

foscar_status toolkit_event_create(foscar_runtime *runtime, void **event, foscar_error *err)
{
    const driver *cuda;
    CUevent made = NULL;
    foscar_status status = enter(runtime, &cuda, err);
    if (status == FOSCAR_OK)
        status = driver_result(cuda, cuda->cuEventCreate(&made, DRIVER_CU_EVENT_DEFAULT), "creating an event", err);
    *event = made;
    return status;
}

foscar_status toolkit_event_record(foscar_runtime *runtime, void *event, void *stream, foscar_error *err)
{
    const driver *cuda;
    foscar_status status = enter(runtime, &cuda, err);
    if (status != FOSCAR_OK) return status;
    return driver_result(cuda, cuda->cuEventRecord(event, stream), "recording an event", err);
}

foscar_status toolkit_event_elapsed(foscar_runtime *runtime, void *begin, void *end, float *milliseconds,
                                    foscar_error *err)
{
    const driver *cuda;
    foscar_status status = enter(runtime, &cuda, err);
    if (status == FOSCAR_OK)
        status = driver_result(cuda, cuda->cuEventSynchronize(end), "waiting for an event", err);
    if (status != FOSCAR_OK) return status;
    return driver_result(cuda, cuda->cuEventElapsedTime(milliseconds, begin, end), "measuring a time", err);
}

void toolkit_event_destroy(foscar_runtime *runtime, void *event)
{
    const driver *cuda = started(runtime);
    if (cuda != NULL && event != NULL) (void)cuda->cuEventDestroy_v2(event);
}

/* ---- Graphs ---- */

foscar_status toolkit_capture_begin(foscar_runtime *runtime, void *stream, foscar_error *err)
{
    const driver *cuda;
    foscar_status status = enter(runtime, &cuda, err);
    if (status != FOSCAR_OK) return status;
    return driver_result(cuda, cuda->cuStreamBeginCapture_v2(stream, DRIVER_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                         "beginning a capture", err);
}

foscar_status toolkit_capture_end(foscar_runtime *runtime, void *stream, void **graph, foscar_error *err)
{
    const driver *cuda;
    CUgraph captured = NULL;
    CUgraphExec made = NULL;
    *graph = NULL;
    foscar_status status = enter(runtime, &cuda, err);
    if (status == FOSCAR_OK)
        status = driver_result(cuda, cuda->cuStreamEndCapture(stream, &captured), "ending a capture", err);
    if (status != FOSCAR_OK) return status;
    status = driver_result(cuda, cuda->cuGraphInstantiateWithFlags(&made, captured, 0), "instantiating a graph", err);
    (void)cuda->cuGraphDestroy(captured);
    if (status == FOSCAR_OK) *graph = made;
    return status;
}

foscar_status toolkit_graph_launch(foscar_runtime *runtime, void *graph, void *stream, foscar_error *err)
{
    const driver *cuda;
    foscar_status status = enter(runtime, &cuda, err);
    if (status != FOSCAR_OK) return status;
    return driver_result(cuda, cuda->cuGraphLaunch(graph, stream), "launching a graph", err);
}

void toolkit_graph_destroy(foscar_runtime *runtime, void *graph)
{
    const driver *cuda = started(runtime);
    if (cuda != NULL && graph != NULL) (void)cuda->cuGraphExecDestroy(graph);
}

/* ---- Programs ---- */

static foscar_status load_program(const driver *cuda, const void *code, toolkit_program **program, foscar_error *err)
{
    toolkit_program *made = calloc(1, sizeof *made);
    if (made == NULL) return status_fail(err, FOSCAR_OUT_OF_MEMORY, "no memory for a program");
    made->cuda = cuda;
    foscar_status status =
        driver_result(cuda, cuda->cuLibraryLoadData(&made->library, code, NULL, NULL, 0, NULL, NULL, 0),
                      "loading a program", err);
    if (status != FOSCAR_OK) {
        free(made);
        return status;
    }
    *program = made;
    return FOSCAR_OK;
}

static foscar_status load_source(foscar_runtime *runtime, const driver *cuda, const image_source *source,
                                 toolkit_program **program, foscar_error *err)
{
    foscar_image image;
    char *ptx = NULL;
    size_t length;
    foscar_status status = cuda->code == DRIVER_CODE_PTX ? image_ptx(runtime, source, &ptx, &length, err)
                                                         : image_make(runtime, source, &image, err);
    if (status != FOSCAR_OK) return status;
    status = load_program(cuda, ptx != NULL ? ptx : image.cubin, program, err);
    if (ptx == NULL) foscar_image_finish(&image);
    free(ptx);
    return status;
}

foscar_status toolkit_program_build(foscar_runtime *runtime, const char *name, const char *source,
                                    const char *const *options, int option_count, toolkit_program **program,
                                    foscar_error *err)
{
    device_binding device;
    char architecture[32];
    image_source text = {.language = IMAGE_CUDA, .name = name, .text = source, .length = strlen(source),
                         .target = architecture, .option_count = option_count};
    *program = NULL;
    if (option_count > IMAGE_OPTIONS_MAX)
        return status_fail(err, FOSCAR_INVALID_ARGUMENT, "more than %d compiler options", (int)IMAGE_OPTIONS_MAX);
    for (int i = 0; i < option_count; i++) text.options[i] = options[i];
    foscar_status status = runtime_enter(runtime, err);
    if (status == FOSCAR_OK) status = device_bind(runtime, &device, err);
    if (status != FOSCAR_OK) return status;
    snprintf(architecture, sizeof architecture, "sm_%d%s", device.compute_capability,
             device.compute_capability >= 90 ? "a" : "");
    return load_source(runtime, device.cuda, &text, program, err);
}

foscar_status toolkit_program_launch(toolkit_program *program, const char *entry, const uint32_t grid[3],
                                     const uint32_t block[3], uint32_t shared_bytes, void **parameters, void *stream,
                                     foscar_error *err)
{
    const driver *cuda = program->cuda;
    CUkernel kernel;
    CUfunction function = NULL;
    driver_launch_config launch = {
        .grid = {grid[0], grid[1], grid[2]},
        .block = {block[0], block[1], block[2]},
        .shared_bytes = shared_bytes,
        .stream = stream,
    };
    foscar_status status = driver_result(cuda, cuda->cuLibraryGetKernel(&kernel, program->library, entry),
                                         "finding an entry of the program", err);
    if (status == FOSCAR_OK)
        status = driver_result(cuda, cuda->cuKernelGetFunction(&function, kernel), "loading an entry", err);
    if (status == FOSCAR_OK && shared_bytes > 0)
        status = driver_result(cuda,
                               cuda->cuFuncSetAttribute(function,
                                                        DRIVER_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                        (int)shared_bytes),
                               "reserving shared memory", err);
    if (status != FOSCAR_OK) return status;
    return driver_result(cuda, cuda->cuLaunchKernelEx(&launch, function, parameters, NULL), "launching an entry", err);
}

void toolkit_program_destroy(toolkit_program *program)
{
    if (program == NULL) return;
    (void)program->cuda->cuLibraryUnload(program->library);
    free(program);
}
