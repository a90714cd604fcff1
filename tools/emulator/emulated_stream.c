/* The emulated CUDA driver's memory, streams, captures, graphs and events. Everything is done when its call returns. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include "emulated_state.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- Capture modes ---- */

enum { CAPTURE_ACTIVE = 1, CAPTURE_INVALIDATED = 2, CAPTURE_MODE_GLOBAL = 0 };

CUresult emulated_unsafe_call(emulated_state *s)
{
    const emulated_thread *thread = emulated_thread_of(s);
    CUresult result = EMULATED_CUDA_SUCCESS;
    if (thread == NULL) return EMULATED_CUDA_ERROR_OUT_OF_MEMORY;
    if (thread->mode == DRIVER_CU_STREAM_CAPTURE_MODE_RELAXED) return result;
    for (object *o = s->objects; o != NULL; o = o->next) {
        CUstream stream = (CUstream)(void *)o;
        if (o->kind != OBJECT_STREAM || stream->capture == NULL) continue;
        bool forbids = stream->capturer == thread
                           ? stream->mode != DRIVER_CU_STREAM_CAPTURE_MODE_RELAXED
                           : thread->mode == CAPTURE_MODE_GLOBAL && stream->mode == CAPTURE_MODE_GLOBAL;
        if (!forbids) continue;
        stream->invalidated = true;
        result = EMULATED_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return result;
}

CUresult emulated_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    EMULATED_ENTER(s);
    emulated_thread *thread = emulated_thread_of(s);
    if (thread == NULL) return emulated_leave(EMULATED_CUDA_ERROR_OUT_OF_MEMORY);
    CUstreamCaptureMode before = thread->mode;
    thread->mode = *mode;
    *mode = before;
    return emulated_leave(EMULATED_CUDA_SUCCESS);
}

/* ---- Memory ---- */

/* The memory of a range that lies in one allocation of some device, or NULL. */
static emulator_memory *memory_of(const emulated_state *s, CUdeviceptr address, size_t bytes)
{
    for (int i = 0; i < s->device_count; i++)
        if (emulator_memory_contains(s->devices[i].memory, address, bytes)) return s->devices[i].memory;
    return NULL;
}

static void *host_address(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

/* What a copy or an allocation needs: a context without a fault, and no capture that forbids the call. */
static CUresult may_touch_memory(emulated_state *s, CUcontext *context)
{
    CUresult result = emulated_current(s, context);
    return result == EMULATED_CUDA_SUCCESS ? emulated_unsafe_call(s) : result;
}

CUresult emulated_cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    EMULATED_ENTER(s);
    CUcontext context;
    CUresult result = may_touch_memory(s, &context);
    if (result == EMULATED_CUDA_SUCCESS && bytes == 0) result = EMULATED_CUDA_ERROR_INVALID_VALUE;
    if (result != EMULATED_CUDA_SUCCESS) return emulated_leave(result);
    *address = emulator_memory_allocate(s->devices[context->device].memory, bytes);
    return emulated_leave(*address != 0 ? EMULATED_CUDA_SUCCESS : EMULATED_CUDA_ERROR_OUT_OF_MEMORY);
}

/* Works after a fault, too, so that whoever cleans up need not know of it. */
CUresult emulated_cuMemFree_v2(CUdeviceptr address)
{
    EMULATED_ENTER(s);
    if (address == 0) return emulated_leave(EMULATED_CUDA_SUCCESS);
    for (int i = 0; i < s->device_count; i++)
        if (emulator_memory_free(s->devices[i].memory, address)) return emulated_leave(EMULATED_CUDA_SUCCESS);
    return emulated_leave(EMULATED_CUDA_ERROR_INVALID_VALUE);
}

CUresult emulated_cuMemcpyHtoD_v2(CUdeviceptr device, const void *host, size_t bytes)
{
    EMULATED_ENTER(s);
    CUcontext context;
    CUresult result = may_touch_memory(s, &context);
    if (result != EMULATED_CUDA_SUCCESS || bytes == 0) return emulated_leave(result);
    emulator_memory *memory = memory_of(s, device, bytes);
    if (memory == NULL) return emulated_leave(EMULATED_CUDA_ERROR_INVALID_VALUE);
    memcpy(host_address(device), host, bytes);
    emulator_memory_define(memory, device, bytes);
    return emulated_leave(EMULATED_CUDA_SUCCESS);
}

static CUresult copy_back(const emulated_state *s, void *host, CUdeviceptr device, size_t bytes)
{
    if (bytes == 0) return EMULATED_CUDA_SUCCESS;
    if (memory_of(s, device, bytes) == NULL) return EMULATED_CUDA_ERROR_INVALID_VALUE;
    memcpy(host, host_address(device), bytes);
    return EMULATED_CUDA_SUCCESS;
}

CUresult emulated_cuMemcpyDtoH_v2(void *host, CUdeviceptr device, size_t bytes)
{
    EMULATED_ENTER(s);
    CUcontext context;
    CUresult result = may_touch_memory(s, &context);
    return emulated_leave(result == EMULATED_CUDA_SUCCESS ? copy_back(s, host, device, bytes) : result);
}

/* ---- Streams ---- */

/* The context of a stream, its own or for the null stream the current one; INVALID_HANDLE, LAUNCH_FAILED. */
static CUresult stream_context(emulated_state *s, CUstream stream, CUcontext *context)
{
    if (stream == NULL) return emulated_current(s, context);
    if (!object_valid(s, stream, OBJECT_STREAM)) return EMULATED_CUDA_ERROR_INVALID_HANDLE;
    *context = stream->context;
    return (*context)->faulted ? EMULATED_CUDA_ERROR_LAUNCH_FAILED : EMULATED_CUDA_SUCCESS;
}

static bool capturing(CUstream stream)
{
    return stream != NULL && stream->capture != NULL;
}

/* What cannot be recorded spoils a capture. */
static CUresult refuse_capture(CUstream stream)
{
    if (!capturing(stream)) return EMULATED_CUDA_SUCCESS;
    stream->invalidated = true;
    return EMULATED_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static CUresult record(CUgraph graph, const graph_node *node)
{
    graph_node *grown = realloc(graph->list.nodes, (size_t)(graph->list.count + 1) * sizeof *grown);
    if (grown == NULL) return EMULATED_CUDA_ERROR_OUT_OF_MEMORY;
    graph->list.nodes = grown;
    graph->list.nodes[graph->list.count++] = *node;
    return EMULATED_CUDA_SUCCESS;
}

/* A copy of the values of a launch's parameters: pointers, then what they point to. NULL: no memory. */
static void **copy_parameters(const launch_record *launch)
{
    enum { VALUE_ALIGN = 16 };
    const emulator_module *module = launch->function->library->module;
    int entry = launch->function->entry, count = launch->function->info.parameters;
    size_t head = ((size_t)count * sizeof(void *) + VALUE_ALIGN - 1) / VALUE_ALIGN * VALUE_ALIGN, bytes = head;
    for (int i = 0; i < count; i++)
        bytes += (emulator_module_parameter_bytes(module, entry, i) + VALUE_ALIGN - 1) / VALUE_ALIGN * VALUE_ALIGN;
    void **copy = malloc(bytes > 0 ? bytes : 1);
    if (copy == NULL) return NULL;
    char *value = (char *)copy + head;
    for (int i = 0; i < count; i++) {
        uint32_t size = emulator_module_parameter_bytes(module, entry, i);
        copy[i] = memcpy(value, launch->parameters[i], size);
        value += (size + VALUE_ALIGN - 1) / VALUE_ALIGN * VALUE_ALIGN;
    }
    return copy;
}

CUresult stream_launch(emulated_state *s, CUstream stream, const launch_record *launch)
{
    graph_node node = {.kind = NODE_LAUNCH, .launch = *launch};
    CUresult result = stream_context(s, stream, &node.launch.context);
    if (result != EMULATED_CUDA_SUCCESS) return result;
    if (!capturing(stream)) return launch_run(s, &node.launch);
    if (stream->invalidated) return EMULATED_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    node.launch.parameters = copy_parameters(launch);
    if (node.launch.parameters == NULL) return EMULATED_CUDA_ERROR_OUT_OF_MEMORY;
    result = record(stream->capture, &node);
    if (result != EMULATED_CUDA_SUCCESS) free(node.launch.parameters);
    return result;
}

static CUresult fill(emulated_state *s, const fill_record *f)
{
    emulator_memory *memory = memory_of(s, f->device, f->bytes);
    if (memory == NULL) return EMULATED_CUDA_ERROR_INVALID_VALUE;
    memset(host_address(f->device), f->byte, f->bytes);
    emulator_memory_define(memory, f->device, f->bytes);
    return EMULATED_CUDA_SUCCESS;
}

CUresult emulated_cuMemsetD8Async(CUdeviceptr device, unsigned char byte, size_t bytes, CUstream stream)
{
    EMULATED_ENTER(s);
    CUcontext context;
    graph_node node = {.kind = NODE_FILL, .fill = {device, byte, bytes}};
    CUresult result = stream_context(s, stream, &context);
    if (result == EMULATED_CUDA_SUCCESS && bytes > 0)
        result = capturing(stream) ? record(stream->capture, &node) : fill(s, &node.fill);
    return emulated_leave(result);
}

CUresult emulated_cuMemcpyDtoHAsync_v2(void *host, CUdeviceptr device, size_t bytes, CUstream stream)
{
    EMULATED_ENTER(s);
    CUcontext context;
    CUresult result = stream_context(s, stream, &context);
    if (result == EMULATED_CUDA_SUCCESS) result = refuse_capture(stream);
    return emulated_leave(result == EMULATED_CUDA_SUCCESS ? copy_back(s, host, device, bytes) : result);
}

CUresult emulated_cuStreamCreate(CUstream *stream, unsigned int flags)
{
    EMULATED_ENTER(s);
    CUcontext context;
    CUresult result = emulated_current(s, &context);
    if (result == EMULATED_CUDA_SUCCESS && flags > DRIVER_CU_STREAM_NON_BLOCKING)
        result = EMULATED_CUDA_ERROR_INVALID_VALUE;
    if (result != EMULATED_CUDA_SUCCESS) return emulated_leave(result);
    *stream = object_make(s, OBJECT_STREAM, sizeof **stream);
    if (*stream == NULL) return emulated_leave(EMULATED_CUDA_ERROR_OUT_OF_MEMORY);
    (*stream)->context = context;
    return emulated_leave(EMULATED_CUDA_SUCCESS);
}

CUresult emulated_cuStreamDestroy_v2(CUstream stream)
{
    EMULATED_ENTER(s);
    if (!object_valid(s, stream, OBJECT_STREAM)) return emulated_leave(EMULATED_CUDA_ERROR_INVALID_HANDLE);
    if (stream->capture != NULL) object_destroy(s, stream->capture, OBJECT_GRAPH);
    return emulated_leave(object_destroy(s, stream, OBJECT_STREAM));
}

CUresult emulated_cuStreamSynchronize(CUstream stream)
{
    EMULATED_ENTER(s);
    CUcontext context;
    CUresult result = stream_context(s, stream, &context);
    return emulated_leave(result == EMULATED_CUDA_SUCCESS ? refuse_capture(stream) : result);
}

CUresult emulated_cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    EMULATED_ENTER(s);
    CUcontext context;
    CUresult result = stream_context(s, stream, &context);
    if (result == EMULATED_CUDA_SUCCESS)
        *status = !capturing(stream)    ? DRIVER_CU_STREAM_CAPTURE_STATUS_NONE
                  : stream->invalidated ? CAPTURE_INVALIDATED
                                        : CAPTURE_ACTIVE;
    return emulated_leave(result);
}

/* ---- Graphs ---- */

void node_list_finish(node_list *list)
{
    for (int i = 0; i < list->count; i++)
        if (list->nodes[i].kind == NODE_LAUNCH) free(list->nodes[i].launch.parameters);
    free(list->nodes);
}

/* The null stream cannot be captured, as with CUDA. */
CUresult emulated_cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    EMULATED_ENTER(s);
    CUcontext context;
    const emulated_thread *thread = emulated_thread_of(s);
    CUresult result = stream_context(s, stream, &context);
    if (result == EMULATED_CUDA_SUCCESS && stream == NULL) result = EMULATED_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (result == EMULATED_CUDA_SUCCESS) result = refuse_capture(stream);
    if (result != EMULATED_CUDA_SUCCESS) return emulated_leave(result);
    stream->capture = object_make(s, OBJECT_GRAPH, sizeof *stream->capture);
    if (thread == NULL || stream->capture == NULL) return emulated_leave(EMULATED_CUDA_ERROR_OUT_OF_MEMORY);
    stream->invalidated = false;
    stream->mode = mode;
    stream->capturer = thread;
    return emulated_leave(EMULATED_CUDA_SUCCESS);
}

CUresult emulated_cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    EMULATED_ENTER(s);
    *graph = NULL;
    if (!object_valid(s, stream, OBJECT_STREAM)) return emulated_leave(EMULATED_CUDA_ERROR_INVALID_HANDLE);
    if (stream->capture == NULL) return emulated_leave(EMULATED_CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    CUgraph captured = stream->capture;
    stream->capture = NULL;
    if (stream->invalidated) {
        object_destroy(s, captured, OBJECT_GRAPH);
        return emulated_leave(EMULATED_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    *graph = captured;
    return emulated_leave(EMULATED_CUDA_SUCCESS);
}

/* The executable graph has nodes of its own, so that the graph may be destroyed. */
CUresult emulated_cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    EMULATED_ENTER(s);
    (void)flags;
    if (!object_valid(s, graph, OBJECT_GRAPH)) return emulated_leave(EMULATED_CUDA_ERROR_INVALID_HANDLE);
    CUgraphExec made = object_make(s, OBJECT_GRAPH_EXEC, sizeof *made);
    if (made == NULL) return emulated_leave(EMULATED_CUDA_ERROR_OUT_OF_MEMORY);
    int count = graph->list.count;
    made->list.nodes = malloc((size_t)(count > 0 ? count : 1) * sizeof *made->list.nodes);
    bool ok = made->list.nodes != NULL;
    for (int i = 0; ok && i < count; i++) {
        graph_node node = graph->list.nodes[i];
        if (node.kind == NODE_LAUNCH) node.launch.parameters = copy_parameters(&node.launch);
        ok = node.kind != NODE_LAUNCH || node.launch.parameters != NULL;
        if (ok) made->list.nodes[made->list.count++] = node;
    }
    if (!ok) {
        object_destroy(s, made, OBJECT_GRAPH_EXEC);
        return emulated_leave(EMULATED_CUDA_ERROR_OUT_OF_MEMORY);
    }
    *exec = made;
    return emulated_leave(EMULATED_CUDA_SUCCESS);
}

CUresult emulated_cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    EMULATED_ENTER(s);
    CUcontext context;
    CUresult result = stream_context(s, stream, &context);
    if (!object_valid(s, exec, OBJECT_GRAPH_EXEC)) result = EMULATED_CUDA_ERROR_INVALID_HANDLE;
    if (result == EMULATED_CUDA_SUCCESS) result = refuse_capture(stream);
    for (int i = 0; result == EMULATED_CUDA_SUCCESS && i < exec->list.count; i++) {
        const graph_node *node = &exec->list.nodes[i];
        result = node->kind == NODE_LAUNCH ? launch_run(s, &node->launch) : fill(s, &node->fill);
    }
    return emulated_leave(result);
}

CUresult emulated_cuGraphDestroy(CUgraph graph)
{
    EMULATED_ENTER(s);
    return emulated_leave(object_destroy(s, graph, OBJECT_GRAPH));
}

CUresult emulated_cuGraphExecDestroy(CUgraphExec exec)
{
    EMULATED_ENTER(s);
    return emulated_leave(object_destroy(s, exec, OBJECT_GRAPH_EXEC));
}

/* ---- Events ---- */

CUresult emulated_cuEventCreate(CUevent *event, unsigned int flags)
{
    EMULATED_ENTER(s);
    CUcontext context;
    CUresult result = emulated_current(s, &context);
    (void)flags;
    if (result != EMULATED_CUDA_SUCCESS) return emulated_leave(result);
    *event = object_make(s, OBJECT_EVENT, sizeof **event);
    return emulated_leave(*event != NULL ? EMULATED_CUDA_SUCCESS : EMULATED_CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult emulated_cuEventRecord(CUevent event, CUstream stream)
{
    EMULATED_ENTER(s);
    CUcontext context;
    struct timespec now;
    CUresult result = stream_context(s, stream, &context);
    if (!object_valid(s, event, OBJECT_EVENT)) result = EMULATED_CUDA_ERROR_INVALID_HANDLE;
    if (result == EMULATED_CUDA_SUCCESS) result = refuse_capture(stream);
    if (result != EMULATED_CUDA_SUCCESS) return emulated_leave(result);
    clock_gettime(CLOCK_MONOTONIC, &now);
    event->milliseconds = (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
    event->recorded = true;
    return emulated_leave(EMULATED_CUDA_SUCCESS);
}

CUresult emulated_cuEventSynchronize(CUevent event)
{
    EMULATED_ENTER(s);
    CUcontext context;
    CUresult result = emulated_current(s, &context);
    if (!object_valid(s, event, OBJECT_EVENT)) result = EMULATED_CUDA_ERROR_INVALID_HANDLE;
    return emulated_leave(result);
}

CUresult emulated_cuEventElapsedTime(float *milliseconds, CUevent begin, CUevent end)
{
    EMULATED_ENTER(s);
    if (!object_valid(s, begin, OBJECT_EVENT) || !object_valid(s, end, OBJECT_EVENT) || !begin->recorded ||
        !end->recorded)
        return emulated_leave(EMULATED_CUDA_ERROR_INVALID_HANDLE);
    *milliseconds = (float)(end->milliseconds - begin->milliseconds);
    return emulated_leave(EMULATED_CUDA_SUCCESS);
}

CUresult emulated_cuEventDestroy_v2(CUevent event)
{
    EMULATED_ENTER(s);
    return emulated_leave(object_destroy(s, event, OBJECT_EVENT));
}
