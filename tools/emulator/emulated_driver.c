/* The emulated CUDA driver: its life, its devices and contexts, its errors. */
#include "emulated_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SHARED_OPTIN_BYTES = 227 * 1024, CONTEXT_DEPTH_MAX = 16, DRIVER_VERSION = 13000 };

/* CUDA's calls carry no pointer to their driver and libcuda keeps its state in the process; so must we. */
static struct {
    pthread_mutex_t lock;
    emulated_state *state; /* NULL: no driver */
} emulated = {.lock = PTHREAD_MUTEX_INITIALIZER};

emulated_state *emulated_enter(void)
{
    pthread_mutex_lock(&emulated.lock);
    if (emulated.state != NULL) return emulated.state;
    pthread_mutex_unlock(&emulated.lock);
    return NULL;
}

CUresult emulated_leave(CUresult result)
{
    pthread_mutex_unlock(&emulated.lock);
    return result;
}

/* ---- Life ---- */

static void state_free(emulated_state *s)
{
    while (s->objects != NULL) object_destroy(s, s->objects, s->objects->kind);
    while (s->threads != NULL) {
        emulated_thread *thread = s->threads;
        s->threads = thread->next;
        free(thread->contexts);
        free(thread);
    }
    for (int i = 0; i < s->device_count; i++) emulator_memory_destroy(s->devices[i].memory);
    free(s->substitute);
    free(s);
}

static emulated_state *state_make(const emulated_options *options)
{
    emulated_state *s = calloc(1, sizeof *s);
    if (s == NULL) return NULL;
    s->device_count = options->devices > 0 ? options->devices : 1;
    s->sm_count = options->sm_count > 0 ? options->sm_count : EMULATED_SM_DEFAULT;
    s->compute_capability = options->compute_capability;
    s->execution = options->execution;
    s->counting = options->counting;
    s->substitute_length = options->substitute_length;
    bool ok = true;
    for (int i = 0; i < s->device_count; i++) {
        s->devices[i].primary.device = i;
        s->devices[i].memory = emulator_memory_create();
        ok = ok && s->devices[i].memory != NULL;
    }
    if (options->substitute != NULL) {
        s->substitute = malloc(options->substitute_length + 1);
        if (s->substitute != NULL) memcpy(s->substitute, options->substitute, options->substitute_length);
        ok = ok && s->substitute != NULL;
    }
    if (ok && pthread_key_create(&s->thread_key, NULL) == 0) return s;
    state_free(s);
    return NULL;
}

static void table_fill(driver *out)
{
    memset(out, 0, sizeof *out);
    out->version = DRIVER_VERSION;
    out->code = DRIVER_CODE_PTX;
#define DRIVER_CALL(presence, symbol, parameters) out->symbol = emulated_##symbol;
#include "driver.def"
}

foscar_status emulated_driver_create(const emulated_options *options, driver *out, foscar_error *err)
{
    if (options->devices < 0 || options->devices > EMULATED_DEVICES_MAX || options->sm_count < 0 ||
        options->compute_capability < 10)
        return status_fail(err, FOSCAR_INVALID_ARGUMENT,
                           "an emulated driver with %d devices of %d SMs and capability %d", options->devices,
                           options->sm_count, options->compute_capability);
    foscar_status status = FOSCAR_OK;
    pthread_mutex_lock(&emulated.lock);
    if (emulated.state != NULL)
        status = status_fail(err, FOSCAR_INVALID_ARGUMENT, "this process has an emulated driver already");
    else if ((emulated.state = state_make(options)) == NULL)
        status = status_fail(err, FOSCAR_OUT_OF_MEMORY, "no memory for an emulated driver");
    pthread_mutex_unlock(&emulated.lock);
    if (status == FOSCAR_OK) table_fill(out);
    return status;
}

void emulated_driver_destroy(void)
{
    emulated_state *s = emulated_enter();
    if (s == NULL) return;
    pthread_key_delete(s->thread_key);
    state_free(s);
    emulated.state = NULL;
    pthread_mutex_unlock(&emulated.lock);
}

void emulated_driver_configure(const emulated_execution *execution)
{
    emulated_state *s = emulated_enter();
    if (s == NULL) return;
    s->execution = *execution;
    s->launches = 0;
    emulated_leave(0);
}

bool emulated_driver_fault(emulated_fault *out)
{
    emulated_state *s = emulated_enter();
    if (s == NULL) return false;
    bool found = s->has_fault;
    if (found) *out = s->fault;
    emulated_leave(0);
    return found;
}

void emulated_driver_forgive(void)
{
    emulated_state *s = emulated_enter();
    if (s == NULL) return;
    s->has_fault = false;
    for (int i = 0; i < s->device_count; i++) s->devices[i].primary.faulted = false;
    emulated_leave(0);
}

/* ---- Objects ---- */

void *object_make(emulated_state *s, object_kind kind, size_t bytes)
{
    object *made = calloc(1, bytes);
    if (made == NULL) return NULL;
    made->kind = kind;
    made->next = s->objects;
    s->objects = made;
    return made;
}

bool object_valid(const emulated_state *s, const void *handle, object_kind kind)
{
    for (const object *o = s->objects; o != NULL; o = o->next)
        if (o == handle) return o->kind == kind;
    return false;
}

CUresult object_destroy(emulated_state *s, void *handle, object_kind kind)
{
    object **at = &s->objects;
    while (*at != NULL && *at != handle) at = &(*at)->next;
    if (*at == NULL || (*at)->kind != kind) return EMULATED_CUDA_ERROR_INVALID_HANDLE;
    object *o = *at;
    *at = o->next;
    if (kind == OBJECT_LIBRARY) library_finish((CUlibrary)handle);
    if (kind == OBJECT_GRAPH) node_list_finish(&((CUgraph)handle)->list);
    if (kind == OBJECT_GRAPH_EXEC) node_list_finish(&((CUgraphExec)handle)->list);
    free(o);
    return EMULATED_CUDA_SUCCESS;
}

/* ---- Errors ---- */

CUresult emulated_cuGetErrorName(CUresult result, const char **name)
{
    switch (result) {
#define RESULT(id, number, text)                                                                                       \
    case number:                                                                                                       \
        *name = #id;                                                                                                   \
        return EMULATED_CUDA_SUCCESS;
#include "emulated_results.def"
#undef RESULT
    default:
        *name = NULL;
        return EMULATED_CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult emulated_cuGetErrorString(CUresult result, const char **text)
{
    switch (result) {
#define RESULT(id, number, meaning)                                                                                    \
    case number:                                                                                                       \
        *text = meaning;                                                                                               \
        return EMULATED_CUDA_SUCCESS;
#include "emulated_results.def"
#undef RESULT
    default:
        *text = NULL;
        return EMULATED_CUDA_ERROR_INVALID_VALUE;
    }
}

/* ---- Devices ---- */

CUresult emulated_cuInit(unsigned int flags)
{
    EMULATED_ENTER(s);
    return emulated_leave(flags == 0 ? EMULATED_CUDA_SUCCESS : EMULATED_CUDA_ERROR_INVALID_VALUE);
}

CUresult emulated_cuDriverGetVersion(int *version)
{
    *version = DRIVER_VERSION;
    return EMULATED_CUDA_SUCCESS;
}

CUresult emulated_cuDeviceGetCount(int *count)
{
    EMULATED_ENTER(s);
    *count = s->device_count;
    return emulated_leave(EMULATED_CUDA_SUCCESS);
}

static CUresult check_device(const emulated_state *s, int device)
{
    return device >= 0 && device < s->device_count ? EMULATED_CUDA_SUCCESS : EMULATED_CUDA_ERROR_INVALID_DEVICE;
}

CUresult emulated_cuDeviceGet(CUdevice *device, int ordinal)
{
    EMULATED_ENTER(s);
    CUresult result = check_device(s, ordinal);
    if (result == EMULATED_CUDA_SUCCESS) *device = ordinal;
    return emulated_leave(result);
}

CUresult emulated_cuDeviceGetName(char *name, int length, CUdevice device)
{
    EMULATED_ENTER(s);
    CUresult result = check_device(s, device);
    if (result == EMULATED_CUDA_SUCCESS && length > 0) snprintf(name, (size_t)length, "PTX interpreter");
    return emulated_leave(result);
}

/* What has no meaning here is 0: clocks, bus, caches. */
CUresult emulated_cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    EMULATED_ENTER(s);
    CUresult result = check_device(s, device);
    if (result != EMULATED_CUDA_SUCCESS) return emulated_leave(result);
    switch (attribute) {
    case DRIVER_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *value = s->sm_count;
        break;
    case DRIVER_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = s->compute_capability / 10;
        break;
    case DRIVER_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = s->compute_capability % 10;
        break;
    case DRIVER_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        *value = SHARED_OPTIN_BYTES;
        break;
    case DRIVER_CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
    case DRIVER_CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
    case DRIVER_CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
    case DRIVER_CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
        *value = 0;
        break;
    default:
        result = EMULATED_CUDA_ERROR_INVALID_VALUE;
    }
    return emulated_leave(result);
}

/* All memory of this machine. */
CUresult emulated_cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    EMULATED_ENTER(s);
    CUresult result = check_device(s, device);
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (result == EMULATED_CUDA_SUCCESS) *bytes = pages > 0 && page > 0 ? (size_t)pages * (size_t)page : 0;
    return emulated_leave(result);
}

/* ---- Contexts ---- */

emulated_thread *emulated_thread_of(emulated_state *s)
{
    emulated_thread *thread = pthread_getspecific(s->thread_key);
    if (thread != NULL) return thread;
    thread = calloc(1, sizeof *thread);
    if (thread == NULL) return NULL;
    thread->contexts = calloc(CONTEXT_DEPTH_MAX, sizeof(CUcontext));
    if (thread->contexts == NULL || pthread_setspecific(s->thread_key, thread) != 0) {
        free(thread->contexts);
        free(thread);
        return NULL;
    }
    thread->next = s->threads;
    s->threads = thread;
    return thread;
}

static bool context_alive(const emulated_state *s, CUcontext context)
{
    for (int i = 0; i < s->device_count; i++)
        if (context == &s->devices[i].primary) return context->retained > 0;
    return false;
}

static CUcontext innermost(const emulated_thread *thread)
{
    return thread->depth > 0 ? thread->contexts[thread->depth - 1] : NULL;
}

CUresult emulated_current(emulated_state *s, CUcontext *context)
{
    emulated_thread *thread = emulated_thread_of(s);
    if (thread == NULL) return EMULATED_CUDA_ERROR_OUT_OF_MEMORY;
    *context = innermost(thread);
    if (!context_alive(s, *context)) return EMULATED_CUDA_ERROR_INVALID_CONTEXT;
    return (*context)->faulted ? EMULATED_CUDA_ERROR_LAUNCH_FAILED : EMULATED_CUDA_SUCCESS;
}

CUresult emulated_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    EMULATED_ENTER(s);
    CUresult result = check_device(s, device);
    if (result != EMULATED_CUDA_SUCCESS) return emulated_leave(result);
    *context = &s->devices[device].primary;
    if ((*context)->retained++ == 0) {
        (*context)->id = ++s->context_ids;
        (*context)->faulted = false;
    }
    return emulated_leave(EMULATED_CUDA_SUCCESS);
}

CUresult emulated_cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    EMULATED_ENTER(s);
    CUresult result = check_device(s, device);
    if (result == EMULATED_CUDA_SUCCESS && s->devices[device].primary.retained == 0)
        result = EMULATED_CUDA_ERROR_INVALID_CONTEXT;
    if (result == EMULATED_CUDA_SUCCESS) s->devices[device].primary.retained--;
    return emulated_leave(result);
}

CUresult emulated_cuCtxGetCurrent(CUcontext *context)
{
    EMULATED_ENTER(s);
    emulated_thread *thread = emulated_thread_of(s);
    if (thread != NULL) *context = innermost(thread);
    return emulated_leave(thread != NULL ? EMULATED_CUDA_SUCCESS : EMULATED_CUDA_ERROR_OUT_OF_MEMORY);
}

/* Replaces the innermost context; NULL takes it away. */
CUresult emulated_cuCtxSetCurrent(CUcontext context)
{
    EMULATED_ENTER(s);
    emulated_thread *thread = emulated_thread_of(s);
    if (thread == NULL) return emulated_leave(EMULATED_CUDA_ERROR_OUT_OF_MEMORY);
    if (context != NULL && !context_alive(s, context)) return emulated_leave(EMULATED_CUDA_ERROR_INVALID_CONTEXT);
    if (thread->depth > 0) thread->depth--;
    if (context != NULL) thread->contexts[thread->depth++] = context;
    return emulated_leave(EMULATED_CUDA_SUCCESS);
}

CUresult emulated_cuCtxPushCurrent_v2(CUcontext context)
{
    EMULATED_ENTER(s);
    emulated_thread *thread = emulated_thread_of(s);
    if (thread == NULL || thread->depth == CONTEXT_DEPTH_MAX) return emulated_leave(EMULATED_CUDA_ERROR_OUT_OF_MEMORY);
    if (!context_alive(s, context)) return emulated_leave(EMULATED_CUDA_ERROR_INVALID_CONTEXT);
    thread->contexts[thread->depth++] = context;
    return emulated_leave(EMULATED_CUDA_SUCCESS);
}

CUresult emulated_cuCtxPopCurrent_v2(CUcontext *context)
{
    EMULATED_ENTER(s);
    emulated_thread *thread = emulated_thread_of(s);
    if (thread == NULL || thread->depth == 0) return emulated_leave(EMULATED_CUDA_ERROR_INVALID_CONTEXT);
    *context = thread->contexts[--thread->depth];
    return emulated_leave(EMULATED_CUDA_SUCCESS);
}

/* Also of a context that a fault has spoiled: like the driver's, these two only look at the context. */
CUresult emulated_cuCtxGetDevice(CUdevice *device)
{
    EMULATED_ENTER(s);
    CUcontext context;
    CUresult result = emulated_current(s, &context);
    if (result == EMULATED_CUDA_ERROR_LAUNCH_FAILED) result = EMULATED_CUDA_SUCCESS;
    if (result == EMULATED_CUDA_SUCCESS) *device = context->device;
    return emulated_leave(result);
}

CUresult emulated_cuCtxGetId(CUcontext context, unsigned long long *id)
{
    EMULATED_ENTER(s);
    CUresult result = EMULATED_CUDA_SUCCESS;
    if (context == NULL)
        result = emulated_current(s, &context);
    else if (!context_alive(s, context))
        result = EMULATED_CUDA_ERROR_INVALID_CONTEXT;
    if (result == EMULATED_CUDA_ERROR_LAUNCH_FAILED) result = EMULATED_CUDA_SUCCESS;
    if (result == EMULATED_CUDA_SUCCESS) *id = context->id;
    return emulated_leave(result);
}
