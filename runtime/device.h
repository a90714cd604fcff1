/* The context that a call works in, and the devices of the machine. */
#ifndef FOSCAR_RUNTIME_DEVICE_H
#define FOSCAR_RUNTIME_DEVICE_H

#include "runtime.h"

typedef struct device_binding {
    const driver *cuda;
    CUcontext context;
    unsigned long long context_id; /* unique in the process, unlike the pointer */
    CUdevice device;
    int compute_capability; /* 90 */
    int sm_count;
    int shared_bytes; /* largest shared memory of a block */
} device_binding;

/* The current context of this thread; if there is none, the primary context of the runtime's device is retained (once, until foscar_close)
   and made current. */
foscar_status device_bind(foscar_runtime *runtime, device_binding *out, foscar_error *err);

/* OK, or WRONG_DEVICE with the reason, for a device of these properties. */
foscar_status device_fits(const decode_plan *plan, int compute_capability, int shared_bytes, foscar_error *err);

/* Releases the primary context if one was retained. */
void device_release(foscar_runtime *runtime);

#endif
