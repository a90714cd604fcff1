/* The runtime's own structs: what foscar_open finds and foscar_prepare builds. */
#ifndef FOSCAR_RUNTIME_RUNTIME_H
#define FOSCAR_RUNTIME_RUNTIME_H

#include <pthread.h>
#include <sys/types.h>

#include "cache_kernels.h"
#include "config.h"
#include "plan.h"
#include "assembler.h"
#include "disk_cache.h"
#include "driver.h"
#include "nvrtc.h"

/* A tool that is looked for when it is first needed; the outcome is kept for the life of the runtime. */
typedef enum tool_state { TOOL_UNTRIED, TOOL_READY, TOOL_MISSING } tool_state;

typedef struct tool {
    tool_state state;
    foscar_error problem; /* when missing */
} tool;

struct foscar_runtime {
    pid_t owner;    /* the process that opened it */
    uint32_t flags; /* enum foscar_flags */
    int32_t device; /* ordinal of the fallback device */
    char *ptxas_path, *nvrtc_path; /* of the options, or NULL; freed by foscar_close */
    int ptxas_seconds;             /* that a run of ptxas may take */
    disk_cache disk;

    pthread_mutex_t tools_lock; /* guards the three tools, the primary context and disk_problem */
    char disk_problem[DISK_PROBLEM_MAX]; /* why a kernel could not be read from the cache or kept in it, the last time; else empty */
    tool driver_tool, assembler_tool, nvrtc_tool;
    driver cuda;
    assembler ptxas;
    nvrtc compiler;
    CUcontext primary; /* retained primary context of `device`, or NULL */

    pthread_mutex_t kernels_lock; /* guards the list and the states in it */
    pthread_cond_t built;         /* some kernel of the list is no longer being built */
    struct foscar_kernel *kernels;
};

/* What argument checks and launches need to know of a kernel; plain numbers, so that they can be tested without a driver. */
typedef struct kernel_shape {
    config cfg;
    uint32_t page_bytes;
    uint64_t workspace_bytes;
    int blocks, consumers; /* of a decode launch, of a block */
} kernel_shape;

typedef enum kernel_state { KERNEL_BUILDING, KERNEL_READY, KERNEL_FAILED } kernel_state;

enum { KERNEL_IMAGES = 2 }; /* foscar_part */

struct foscar_kernel {
    /* Guarded by kernels_lock. A kernel is constant once it is ready. */
    struct foscar_kernel *next;
    kernel_state state;
    int waiters;         /* threads that wait for the one that builds */
    foscar_error problem; /* when failed */

    unsigned long long context_id; /* with the spec, the key */
    CUcontext context;
    pid_t owner;
    const driver *cuda; /* of the runtime */
    decode_plan plan;
    kernel_shape shape;
    char entry[64]; /* of the decode kernel */
    CUlibrary libraries[KERNEL_IMAGES];
    CUfunction decode, cache[CACHE_KERNELS];
    foscar_kernel_info info;
};

/* INVALID_ARGUMENT for NULL, FORKED in a child of fork. */
foscar_status runtime_enter(const foscar_runtime *runtime, foscar_error *err);

/* The tools, looked for at the first call. On success *out points into the runtime. Any thread. */
foscar_status runtime_driver(foscar_runtime *runtime, const driver **out, foscar_error *err);
foscar_status runtime_assembler(foscar_runtime *runtime, const assembler **out, foscar_error *err);
foscar_status runtime_nvrtc(foscar_runtime *runtime, const nvrtc **out, foscar_error *err);

/* Parses a spec and makes its plan: INVALID_SPEC says why it cannot be made. */
foscar_status runtime_plan(const char *spec, decode_plan *plan, foscar_error *err);

kernel_shape kernel_shape_make(const decode_plan *plan, int blocks);

/* Unloads a kernel's libraries (`unload`) and frees it. */
void kernel_free(foscar_kernel *kernel, bool unload);

#endif
