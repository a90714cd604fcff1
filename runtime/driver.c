/* Opens the CUDA driver at run time: a program that never touches a GPU needs none. */
#include "driver.h"

#include <dlfcn.h>
#include <string.h>

/* dlsym gives an object pointer; POSIX guarantees that copying it into a function pointer works. */
static void symbol_copy(void *function, void *handle, const char *symbol)
{
    void *found = dlsym(handle, symbol);
    memcpy(function, &found, sizeof found);
}

static foscar_status find_calls(driver *d, foscar_error *err)
{
    enum { needed, wanted };
#define DRIVER_CALL(presence, symbol, parameters)                                                                      \
    symbol_copy(&d->symbol, d->handle, #symbol);                                                                       \
    if ((presence) == needed && d->symbol == NULL)                                                                     \
        return status_fail(err, FOSCAR_NO_DRIVER,                                                                      \
                           "the NVIDIA driver has no %s; a driver for CUDA 12.0 or later is needed", #symbol);
#include "driver.def"
    return FOSCAR_OK;
}

static foscar_status start(driver *d, foscar_error *err)
{
    CUresult result = d->cuInit(0);
    if (result == DRIVER_CUDA_ERROR_NO_DEVICE)
        return status_fail(err, FOSCAR_NO_DEVICE, "the NVIDIA driver sees no GPU (CUDA_VISIBLE_DEVICES?)");
    if (result != DRIVER_CUDA_SUCCESS) {
        const char *name = NULL, *text = NULL;
        d->cuGetErrorName(result, &name);
        d->cuGetErrorString(result, &text);
        return status_fail(err, FOSCAR_NO_DRIVER, "the NVIDIA driver does not start: %s, %s", name ? name : "unknown",
                           text ? text : "no text");
    }
    return driver_result(d, d->cuDriverGetVersion(&d->version), "asking for the driver's version", err);
}

foscar_status driver_open(driver *out, foscar_error *err)
{
    foscar_status status;
    memset(out, 0, sizeof *out);
    out->handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (out->handle == NULL)
        return status_fail(err, FOSCAR_NO_DRIVER,
                           "libcuda.so.1 cannot be opened (%s); install the NVIDIA driver to run kernels", dlerror());
    status = find_calls(out, err);
    if (status == FOSCAR_OK) status = start(out, err);
    if (status != FOSCAR_OK) {
        driver_finish(out);
        memset(out, 0, sizeof *out);
    }
    return status;
}

void driver_finish(driver *d)
{
    if (d->handle != NULL && d->version == 0) dlclose(d->handle);
    d->handle = NULL;
}

foscar_status driver_result(const driver *d, CUresult result, const char *what, foscar_error *err)
{
    const char *name = NULL, *text = NULL;
    if (result == DRIVER_CUDA_SUCCESS) return FOSCAR_OK;
    d->cuGetErrorName(result, &name);
    d->cuGetErrorString(result, &text);
    return status_fail(err, result == DRIVER_CUDA_ERROR_OUT_OF_MEMORY ? FOSCAR_OUT_OF_MEMORY : FOSCAR_DRIVER_ERROR,
                       "%s: %s (%d), %s", what, name ? name : "unknown", (int)result, text ? text : "no text");
}
