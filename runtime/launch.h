/* Launching a loaded kernel from any thread. */
#ifndef FOSCAR_RUNTIME_LAUNCH_H
#define FOSCAR_RUNTIME_LAUNCH_H

#include "runtime.h"

/* Whether the kernel's context had to be made current for one call. */
typedef struct launch_scope {
    bool pushed;
} launch_scope;

/* NOT_PREPARED for NULL, FORKED in a child of fork; else makes the kernel's context current until launch_leave. */
foscar_status launch_enter(const foscar_kernel *kernel, launch_scope *scope, foscar_error *err);
void launch_leave(const foscar_kernel *kernel, const launch_scope *scope);

typedef struct launch_shape {
    uint32_t grid[3];
    uint32_t threads;       /* of a block */
    uint32_t shared_bytes;  /* dynamic shared memory of a block */
    bool overlaps_previous; /* programmatic dependent launch: starts while the kernel before it ends, and waits for it itself */
} launch_shape;

foscar_status launch_kernel(const foscar_kernel *kernel, const launch_shape *shape, CUfunction function,
                            void **parameters, void *stream, const char *what, foscar_error *err);

/* One of the cache kernels; OK, and nothing is launched, if `work` is empty. */
foscar_status launch_cache_kernel(const foscar_kernel *kernel, cache_kernel which, const cache_work *work,
                                  void **parameters, void *stream, foscar_error *err);

#endif
