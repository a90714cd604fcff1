/* NVRTC as a struct of pointers, from libnvrtc.so opened at run time: CUDA C in, PTX out. */
#ifndef FOSCAR_RUNTIME_NVRTC_H
#define FOSCAR_RUNTIME_NVRTC_H

#include "tool_search.h"
#include "status.h"

typedef struct _nvrtcProgram *nvrtcProgram;

typedef struct nvrtc {
    void *handle;               /* of dlopen; NULL: not open */
    int version;                /* 13000 for 13.0 */
    char path[SEARCH_PATH_MAX]; /* of the library */
    char build[64];             /* version and size of the library: its identity in cache keys */
#define NVRTC_CALL(symbol, parameters) int(*symbol) parameters;
#include "nvrtc.def"
} nvrtc;

/* Opens `path` if not NULL, else $FOSCAR_NVRTC, else libnvrtc on the loader's path, in $CUDA_HOME, /usr/local/cuda or the Python wheels.
   NO_NVRTC says how to get it; then *out is zeroed. A library that was opened stays mapped: it keeps memory that only its exit gives back. */
foscar_status nvrtc_open(const char *path, nvrtc *out, foscar_error *err);

/* Compiles CUDA C to PTX. *ptx is malloc'd, NUL-terminated and the caller's; NULL on failure (ASSEMBLY_FAILED with NVRTC's own line). Any number of
   threads may call it at once. */
foscar_status nvrtc_compile(const nvrtc *n, const char *name, const char *source, const char *const *options,
                            int option_count, char **ptx, size_t *length, foscar_error *err);

#endif
