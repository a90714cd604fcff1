/* Contexts and devices. Never makes a context of its own: the caller's current one, else the device's primary one. */
#include "device.h"

#include <stdio.h>
#include <string.h>

static foscar_status attribute(const driver *cuda, CUdevice device, int which, int *value, foscar_error *err)
{
    return driver_result(cuda, cuda->cuDeviceGetAttribute(value, which, device), "asking for a property of the GPU",
                         err);
}

static foscar_status capability(const driver *cuda, CUdevice device, int *value, foscar_error *err)
{
    int major = 0, minor = 0;
    foscar_status status = attribute(cuda, device, DRIVER_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major, err);
    if (status == FOSCAR_OK)
        status = attribute(cuda, device, DRIVER_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor, err);
    *value = major * 10 + minor;
    return status;
}

static foscar_status find_device(const driver *cuda, int32_t ordinal, CUdevice *device, foscar_error *err)
{
    int count = 0;
    foscar_status status = driver_result(cuda, cuda->cuDeviceGetCount(&count), "counting the GPUs", err);
    if (status != FOSCAR_OK) return status;
    if (ordinal < 0 || ordinal >= count)
        return status_fail(err, FOSCAR_NO_DEVICE, "there is no GPU %d; the driver sees %d", (int)ordinal, count);
    return driver_result(cuda, cuda->cuDeviceGet(device, ordinal), "opening the GPU", err);
}

/* Retains the primary context at the first call; tools_lock makes that once. */
static foscar_status primary_context(foscar_runtime *runtime, const driver *cuda, CUcontext *context, foscar_error *err)
{
    CUdevice device;
    foscar_status status = find_device(cuda, runtime->device, &device, err);
    if (status != FOSCAR_OK) return status;
    pthread_mutex_lock(&runtime->tools_lock);
    if (runtime->primary == NULL)
        status = driver_result(cuda, cuda->cuDevicePrimaryCtxRetain(&runtime->primary, device),
                               "retaining the GPU's primary context", err);
    if (status != FOSCAR_OK) runtime->primary = NULL;
    *context = runtime->primary;
    pthread_mutex_unlock(&runtime->tools_lock);
    if (status != FOSCAR_OK) return status;
    return driver_result(cuda, cuda->cuCtxSetCurrent(*context), "making the primary context current", err);
}

foscar_status device_bind(foscar_runtime *runtime, device_binding *out, foscar_error *err)
{
    memset(out, 0, sizeof *out);
    foscar_status status = runtime_driver(runtime, &out->cuda, err);
    if (status != FOSCAR_OK) return status;
    const driver *cuda = out->cuda;
    status = driver_result(cuda, cuda->cuCtxGetCurrent(&out->context), "asking for the current context", err);
    if (status == FOSCAR_OK && out->context == NULL) status = primary_context(runtime, cuda, &out->context, err);
    if (status == FOSCAR_OK)
        status = driver_result(cuda, cuda->cuCtxGetId(out->context, &out->context_id), "asking for the context's id",
                               err);
    if (status == FOSCAR_OK)
        status = driver_result(cuda, cuda->cuCtxGetDevice(&out->device), "asking for the context's GPU", err);
    if (status == FOSCAR_OK) status = capability(cuda, out->device, &out->compute_capability, err);
    if (status == FOSCAR_OK)
        status = attribute(cuda, out->device, DRIVER_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &out->sm_count, err);
    if (status == FOSCAR_OK)
        status = attribute(cuda, out->device, DRIVER_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                           &out->shared_bytes, err);
    return status;
}

foscar_status device_fits(const decode_plan *plan, int compute_capability, int shared_bytes, foscar_error *err)
{
    const target *t = plan->cfg.target;
    if (compute_capability != t->compute_capability)
        return status_fail(err, FOSCAR_WRONG_DEVICE,
                           "kernels for %s run on GPUs of compute capability %d.%d only; this one has %d.%d", t->name,
                           t->compute_capability / 10, t->compute_capability % 10, compute_capability / 10,
                           compute_capability % 10);
    if (plan->shared_bytes > (uint32_t)shared_bytes)
        return status_fail(err, FOSCAR_WRONG_DEVICE,
                           "the kernel needs %u bytes of shared memory a block; this GPU gives %d",
                           (unsigned)plan->shared_bytes, shared_bytes);
    return FOSCAR_OK;
}

void device_release(foscar_runtime *runtime)
{
    CUdevice device;
    const driver *cuda = &runtime->cuda;
    if (runtime->primary == NULL || cuda->cuDeviceGet(&device, runtime->device) != DRIVER_CUDA_SUCCESS) return;
    (void)cuda->cuDevicePrimaryCtxRelease_v2(device);
    runtime->primary = NULL;
}

foscar_status foscar_can_run(foscar_runtime *runtime, const char *spec, int32_t device, foscar_error *err)
{
    const driver *cuda;
    decode_plan plan;
    CUdevice handle;
    int compute_capability = 0, shared_bytes = 0;
    foscar_status status = runtime_enter(runtime, err);
    if (status == FOSCAR_OK) status = runtime_plan(spec, &plan, err);
    if (status == FOSCAR_OK) status = runtime_driver(runtime, &cuda, err);
    if (status == FOSCAR_OK) status = find_device(cuda, device, &handle, err);
    if (status == FOSCAR_OK) status = capability(cuda, handle, &compute_capability, err);
    if (status == FOSCAR_OK)
        status = attribute(cuda, handle, DRIVER_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &shared_bytes,
                           err);
    if (status == FOSCAR_OK) status = device_fits(&plan, compute_capability, shared_bytes, err);
    return status;
}

foscar_status foscar_device_describe(foscar_runtime *runtime, int32_t device, foscar_device_info *out,
                                     foscar_error *err)
{
    const driver *cuda;
    foscar_device_info info = {0};
    CUdevice handle;
    size_t memory = 0;
    const struct {
        int attribute;
        int32_t *value;
    } rows[] = {
        {DRIVER_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &info.sm_count},
        {DRIVER_CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &info.l2_bytes},
        {DRIVER_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &info.shared_bytes},
        {DRIVER_CU_DEVICE_ATTRIBUTE_CLOCK_RATE, &info.clock_khz},
        {DRIVER_CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, &info.memory_clock_khz},
        {DRIVER_CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, &info.memory_bus_bits},
    };
    foscar_status status = runtime_enter(runtime, err);
    if (status == FOSCAR_OK) status = runtime_driver(runtime, &cuda, err);
    if (status == FOSCAR_OK) status = find_device(cuda, device, &handle, err);
    if (status == FOSCAR_OK) status = capability(cuda, handle, &info.compute_capability, err);
    for (size_t i = 0; status == FOSCAR_OK && i < sizeof rows / sizeof *rows; i++)
        status = attribute(cuda, handle, rows[i].attribute, rows[i].value, err);
    if (status != FOSCAR_OK) return status;
    status = driver_result(cuda, cuda->cuDeviceGetName(info.name, (int)sizeof info.name, handle),
                           "asking for the GPU's name", err);
    if (status == FOSCAR_OK)
        status = driver_result(cuda, cuda->cuDeviceTotalMem_v2(&memory, handle), "asking for the GPU's memory", err);
    info.memory_bytes = memory;
    if (status != FOSCAR_OK) return status;
    return struct_export("foscar_device_info", out, &info, sizeof info, sizeof info, err);
}
