/* foscar_prepare: one build per (context, spec), others wait; assembling, loading, and the checks that ptxas does not make. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "image.h"

enum { JIT_LOG_BYTES = 8192 };

/* ---- Loading ---- */

/* A kernel that can never be launched passes ptxas: registers of a block, at the entry and after setmaxnreg. */
static foscar_status check_registers(const decode_plan *plan, int registers, foscar_error *err)
{
    int producers = plan->threads - 128 * plan->consumers;
    int entry = (registers + 7) / 8 * 8 * plan->threads;
    int steady = plan->producer_registers * producers + plan->consumer_registers * 128 * plan->consumers;
    int limit = plan->cfg.target->registers;
    if (entry <= limit && steady <= limit) return FOSCAR_OK;
    return status_fail(err, FOSCAR_ASSEMBLY_FAILED,
                       "the decode kernel needs %d registers a block at its entry and %d after setmaxnreg; %s has %d",
                       entry, steady, plan->cfg.target->name, limit);
}

/* Text for the driver itself: no child process, no disk cache, the same rules. */
static foscar_status load_text(const driver *cuda, const char *ptx, CUlibrary *library, assembler_usage *usage,
                               foscar_error *err)
{
    char info[JIT_LOG_BYTES] = "", errors[JIT_LOG_BYTES] = "", line[384];
    CUjit_option options[] = {DRIVER_CU_JIT_INFO_LOG_BUFFER, DRIVER_CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                              DRIVER_CU_JIT_ERROR_LOG_BUFFER, DRIVER_CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                              DRIVER_CU_JIT_LOG_VERBOSE};
    void *values[] = {info, (void *)(uintptr_t)sizeof info, errors, (void *)(uintptr_t)sizeof errors,
                      (void *)(uintptr_t)1};
    CUresult result = cuda->cuLibraryLoadData(library, ptx, options, values, sizeof options / sizeof *options, NULL,
                                              NULL, 0);
    info[JIT_LOG_BYTES - 1] = errors[JIT_LOG_BYTES - 1] = '\0';
    if (result != DRIVER_CUDA_SUCCESS && errors[0] != '\0') {
        assembler_first_error(errors, line, sizeof line);
        return status_fail(err, FOSCAR_ASSEMBLY_FAILED, "the driver's compiler: %s", line);
    }
    foscar_status status = driver_result(cuda, result, "compiling PTX in the driver", err);
    return status != FOSCAR_OK ? status : assembler_check_log("the driver's compiler", info, usage, err);
}

static foscar_status load_by_driver(foscar_runtime *runtime, foscar_kernel *kernel, const image_source *source,
                                    CUlibrary *library, assembler_usage *usage, foscar_error *err)
{
    char *ptx = NULL;
    size_t length;
    foscar_status status = image_ptx(runtime, source, &ptx, &length, err);
    if (status == FOSCAR_OK) status = load_text(kernel->cuda, ptx, library, usage, err);
    free(ptx);
    if (status == FOSCAR_OK) kernel->info.driver_jit = 1;
    kernel->info.from_cache = 0;
    return status;
}

/* The driver copies what it loads, so the image is freed here. */
static foscar_status load_image(foscar_kernel *kernel, foscar_image *image, CUlibrary *library, foscar_error *err)
{
    const driver *cuda = kernel->cuda;
    CUresult result = cuda->cuLibraryLoadData(library, image->cubin, NULL, NULL, 0, NULL, NULL, 0);
    kernel->info.from_cache &= image->from_cache;
    kernel->info.milliseconds += image->milliseconds;
    foscar_image_finish(image);
    return driver_result(cuda, result, "loading a cubin into the driver", err);
}

/* As machine code; as text where the driver takes no other, or where there is no ptxas and the options allow it. */
static foscar_status load_source(foscar_runtime *runtime, foscar_kernel *kernel, const image_source *source,
                                 CUlibrary *library, assembler_usage *usage, foscar_error *err)
{
    foscar_image image;
    if (kernel->cuda->code == DRIVER_CODE_PTX)
        return load_by_driver(runtime, kernel, source, library, usage, err);
    foscar_status status = image_make(runtime, source, &image, err);
    if (status == FOSCAR_OK) {
        usage->spill_bytes = image.spill_bytes;
        return load_image(kernel, &image, library, err);
    }
    if (status == FOSCAR_NO_ASSEMBLER && (runtime->flags & FOSCAR_NO_DRIVER_JIT) == 0)
        return load_by_driver(runtime, kernel, source, library, usage, err);
    return status;
}

static foscar_status load_part(foscar_runtime *runtime, foscar_kernel *kernel, foscar_part which, foscar_error *err)
{
    image_part part;
    foscar_error why;
    assembler_usage usage = {0};
    foscar_status status = image_part_make(&kernel->plan.cfg, which, &part, err);
    if (status != FOSCAR_OK) return status;
    status = load_source(runtime, kernel, &part.source, &kernel->libraries[which], &usage, &why);
    if (which == FOSCAR_PART_DECODE) memcpy(kernel->entry, part.decode.entry, sizeof kernel->entry);
    image_part_finish(&part);
    if (status != FOSCAR_OK) return status_fail(err, status, "%s", why.message);
    if (which == FOSCAR_PART_DECODE) kernel->info.spill_bytes = usage.spill_bytes;
    return FOSCAR_OK;
}

/* ---- Functions ---- */

static foscar_status find_function(const driver *cuda, CUlibrary library, const char *entry, CUfunction *function,
                                   foscar_error *err)
{
    CUkernel kernel;
    foscar_status status =
        driver_result(cuda, cuda->cuLibraryGetKernel(&kernel, library, entry), "finding a kernel in its cubin", err);
    if (status == FOSCAR_OK)
        status = driver_result(cuda, cuda->cuKernelGetFunction(function, kernel), "loading a kernel", err);
    /* Loads now what would else be loaded by the first launch, which could then neither be captured nor overlap. */
    if (status == FOSCAR_OK && cuda->cuFuncLoad != NULL)
        status = driver_result(cuda, cuda->cuFuncLoad(*function), "loading a kernel", err);
    return status;
}

static foscar_status find_decode(foscar_kernel *kernel, foscar_error *err)
{
    const driver *cuda = kernel->cuda;
    int registers = 0, local = 0;
    foscar_status status =
        find_function(cuda, kernel->libraries[FOSCAR_PART_DECODE], kernel->entry, &kernel->decode, err);
    if (status == FOSCAR_OK)
        status = driver_result(cuda,
                               cuda->cuFuncSetAttribute(kernel->decode,
                                                        DRIVER_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                        (int)kernel->plan.shared_bytes),
                               "reserving shared memory for the decode kernel", err);
    if (status == FOSCAR_OK)
        status = driver_result(
            cuda, cuda->cuFuncGetAttribute(&registers, DRIVER_CU_FUNC_ATTRIBUTE_NUM_REGS, kernel->decode),
            "asking for the kernel's registers", err);
    if (status == FOSCAR_OK)
        status = driver_result(
            cuda, cuda->cuFuncGetAttribute(&local, DRIVER_CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, kernel->decode),
            "asking for the kernel's local memory", err);
    if (status != FOSCAR_OK) return status;
    if (local != 0)
        return status_fail(err, FOSCAR_ASSEMBLY_FAILED, "the decode kernel keeps %d bytes a thread in memory", local);
    kernel->info.registers = registers;
    return check_registers(&kernel->plan, registers, err);
}

static foscar_status load(foscar_runtime *runtime, foscar_kernel *kernel, foscar_error *err)
{
    foscar_status status = FOSCAR_OK;
    kernel->info.from_cache = 1;
    for (int part = 0; status == FOSCAR_OK && part < KERNEL_IMAGES; part++)
        status = load_part(runtime, kernel, (foscar_part)part, err);
    if (status == FOSCAR_OK) status = find_decode(kernel, err);
    for (int i = 0; status == FOSCAR_OK && i < CACHE_KERNELS; i++)
        status = find_function(kernel->cuda, kernel->libraries[FOSCAR_PART_CACHE],
                               cache_kernel_info((cache_kernel)i)->entry, &kernel->cache[i], err);
    return status;
}

/* Loading is among the calls that a capture in another thread forbids in the usual mode; relaxed is right, since it touches no stream. */
static foscar_status load_relaxed(foscar_runtime *runtime, foscar_kernel *kernel, foscar_error *err)
{
    const driver *cuda = kernel->cuda;
    CUstreamCaptureMode mode = DRIVER_CU_STREAM_CAPTURE_MODE_RELAXED;
    foscar_status status =
        driver_result(cuda, cuda->cuThreadExchangeStreamCaptureMode(&mode), "relaxing the capture mode", err);
    if (status != FOSCAR_OK) return status;
    status = load(runtime, kernel, err);
    (void)cuda->cuThreadExchangeStreamCaptureMode(&mode);
    return status;
}

/* ---- The list ---- */

void kernel_free(foscar_kernel *kernel, bool unload)
{
    for (int i = 0; unload && i < KERNEL_IMAGES; i++)
        if (kernel->libraries[i] != NULL) (void)kernel->cuda->cuLibraryUnload(kernel->libraries[i]);
    free(kernel);
}

static foscar_kernel *kernel_new(const foscar_runtime *runtime, const device_binding *device, const decode_plan *plan,
                                 const char *spec)
{
    foscar_kernel *kernel = calloc(1, sizeof *kernel);
    if (kernel == NULL) return NULL;
    kernel->state = KERNEL_BUILDING;
    kernel->context_id = device->context_id;
    kernel->context = device->context;
    kernel->owner = runtime->owner;
    kernel->cuda = device->cuda;
    kernel->plan = *plan;
    kernel->shape = kernel_shape_make(plan, device->sm_count);
    kernel->info = (foscar_kernel_info){
        .struct_size = sizeof kernel->info,
        .shared_bytes = plan->shared_bytes,
        .threads = plan->threads,
        .consumers = plan->consumers,
        .blocks = device->sm_count,
        .page_bytes = plan->page.bytes,
        .workspace_bytes = kernel->shape.workspace_bytes,
    };
    snprintf(kernel->info.spec, sizeof kernel->info.spec, "%s", spec);
    return kernel;
}

static foscar_kernel *list_find(foscar_runtime *runtime, unsigned long long context_id, const char *spec)
{
    for (foscar_kernel *k = runtime->kernels; k != NULL; k = k->next)
        if (k->context_id == context_id && strcmp(k->info.spec, spec) == 0) return k;
    return NULL;
}

static void list_remove(foscar_runtime *runtime, const foscar_kernel *kernel)
{
    for (foscar_kernel **at = &runtime->kernels; *at != NULL; at = &(*at)->next)
        if (*at == kernel) {
            *at = kernel->next;
            return;
        }
}

/* Waits for the thread that builds it. kernels_lock is held. A failed kernel is off the list; the last one that looks at it frees it. */
static foscar_status await(foscar_runtime *runtime, foscar_kernel *kernel, foscar_error *err)
{
    foscar_status status = FOSCAR_OK;
    kernel->waiters++;
    while (kernel->state == KERNEL_BUILDING) pthread_cond_wait(&runtime->built, &runtime->kernels_lock);
    kernel->waiters--;
    if (kernel->state == KERNEL_READY) return status;
    status = status_fail(err, kernel->problem.status, "%s", kernel->problem.message);
    if (kernel->waiters == 0) kernel_free(kernel, true);
    return status;
}

/* Publishes the outcome of a build to those who wait. */
static foscar_status publish(foscar_runtime *runtime, foscar_kernel *kernel, foscar_status status, foscar_error *err)
{
    pthread_mutex_lock(&runtime->kernels_lock);
    kernel->state = status == FOSCAR_OK ? KERNEL_READY : KERNEL_FAILED;
    if (status != FOSCAR_OK) {
        (void)status_fail(err, status, "%s", kernel->problem.message);
        list_remove(runtime, kernel);
        if (kernel->waiters == 0) kernel_free(kernel, true);
    }
    pthread_cond_broadcast(&runtime->built);
    pthread_mutex_unlock(&runtime->kernels_lock);
    return status;
}

static foscar_status find_or_build(foscar_runtime *runtime, const device_binding *device, const decode_plan *plan,
                                   const char *spec, foscar_kernel **out, foscar_error *err)
{
    pthread_mutex_lock(&runtime->kernels_lock);
    foscar_kernel *kernel = list_find(runtime, device->context_id, spec);
    if (kernel != NULL) {
        foscar_status status = await(runtime, kernel, err);
        pthread_mutex_unlock(&runtime->kernels_lock);
        *out = status == FOSCAR_OK ? kernel : NULL;
        return status;
    }
    kernel = kernel_new(runtime, device, plan, spec);
    if (kernel != NULL) {
        kernel->next = runtime->kernels;
        runtime->kernels = kernel;
    }
    pthread_mutex_unlock(&runtime->kernels_lock);
    if (kernel == NULL) return status_fail(err, FOSCAR_OUT_OF_MEMORY, "no memory for a kernel's record");
    foscar_status status = load_relaxed(runtime, kernel, &kernel->problem);
    *out = status == FOSCAR_OK ? kernel : NULL;
    return publish(runtime, kernel, status, err);
}

foscar_status foscar_prepare(foscar_runtime *runtime, const char *spec, foscar_kernel **out, foscar_error *err)
{
    decode_plan plan;
    device_binding device;
    char canonical[CONFIG_SPEC_MAX];
    if (out == NULL) return status_fail(err, FOSCAR_INVALID_ARGUMENT, "kernel is NULL");
    *out = NULL;
    foscar_status status = runtime_enter(runtime, err);
    if (status == FOSCAR_OK) status = runtime_plan(spec, &plan, err);
    if (status == FOSCAR_OK) status = device_bind(runtime, &device, err);
    if (status == FOSCAR_OK) status = device_fits(&plan, device.compute_capability, device.shared_bytes, err);
    if (status != FOSCAR_OK) return status;
    config_format(&plan.cfg, canonical);
    return find_or_build(runtime, &device, &plan, canonical, out, err);
}

foscar_status foscar_kernel_describe(const foscar_kernel *kernel, foscar_kernel_info *out, foscar_error *err)
{
    if (kernel == NULL) return status_fail(err, FOSCAR_NOT_PREPARED, "the kernel is NULL; call foscar_prepare first");
    return struct_export("foscar_kernel_info", out, &kernel->info, sizeof kernel->info, sizeof kernel->info, err);
}
