/* The CUDA driver as a struct of pointers, from libcuda.so.1 opened at run time. Our own minimal declarations stand in for cuda.h;
 * where cuda.h was included before, its types are used, which is how the test compares the two. */
#ifndef FOSCAR_RUNTIME_DRIVER_H
#define FOSCAR_RUNTIME_DRIVER_H

#include "status.h"

#ifndef __cuda_cuda_h__
typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef int CUdevice_attribute, CUfunction_attribute, CUjit_option, CUlibraryOption;
typedef int CUstreamCaptureMode, CUstreamCaptureStatus;
typedef struct CUctx_st *CUcontext;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct driver_launch_config CUlaunchConfig;
#endif

/* CUlaunchAttribute and CUlaunchConfig. */
typedef struct driver_launch_attribute {
    int id;
    int pad;
    union {
        char bytes[64];
        int programmatic_stream_serialization;
    } value;
} driver_launch_attribute;
_Static_assert(sizeof(driver_launch_attribute) == 72, "CUlaunchAttribute takes 72 bytes");

typedef struct driver_launch_config {
    unsigned int grid[3];
    unsigned int block[3];
    unsigned int shared_bytes;
    struct CUstream_st *stream;
    driver_launch_attribute *attributes;
    unsigned int attribute_count;
} driver_launch_config;
_Static_assert(sizeof(void *) != 8 || sizeof(driver_launch_config) == 56, "CUlaunchConfig takes 56 bytes");

enum {
#define DRIVER_CONSTANT(name, value) DRIVER_##name = (value),
#include "driver.def"
};

/* What cuLibraryLoadData is to be given: machine code (and PTX where there is no ptxas), or PTX alone. */
typedef enum driver_code { DRIVER_CODE_CUBIN, DRIVER_CODE_PTX } driver_code;

typedef struct driver {
    void *handle; /* of dlopen; NULL: not open, or not from a library */
    int version;  /* 13000 for CUDA 13.0; 0: not started */
    driver_code code;
#define DRIVER_CALL(presence, symbol, parameters) CUresult(*symbol) parameters;
#include "driver.def"
} driver;

/* Opens libcuda.so.1, finds the calls and starts the driver. NO_DRIVER says what is missing. On failure *out is zeroed. */
foscar_status driver_open(driver *out, foscar_error *err);
/* Closes a driver that was opened but never started; a started one stays mapped, since its threads outlive us. */
void driver_finish(driver *d);

/* OK, or DRIVER_ERROR / OUT_OF_MEMORY with the driver's own name and text of the result. `what` says what was being done. */
foscar_status driver_result(const driver *d, CUresult result, const char *what, foscar_error *err);

#endif
