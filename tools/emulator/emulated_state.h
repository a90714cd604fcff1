/* What the files of the emulated driver share: its objects, and the one state behind its lock. */
#ifndef FOSCAR_EMULATED_STATE_H
#define FOSCAR_EMULATED_STATE_H

#include <pthread.h>

#include "emulated_driver.h"

enum {
#define RESULT(name, number, text) EMULATED_##name = (number),
#include "emulated_results.def"
#undef RESULT
};

/* Objects made by the calls; all hang in one list, so that a handle can be looked up and nothing is left at the end. */
typedef enum object_kind { OBJECT_LIBRARY, OBJECT_STREAM, OBJECT_EVENT, OBJECT_GRAPH, OBJECT_GRAPH_EXEC } object_kind;

typedef struct object {
    struct object *next;
    object_kind kind;
} object;

/* One per device, the primary one; others cannot be made through our table. */
struct CUctx_st {
    unsigned long long id; /* a new one each time that it comes to life */
    CUdevice device;
    int retained; /* 0: dead */
    bool faulted;
};

typedef struct emulated_device {
    emulator_memory *memory;
    struct CUctx_st primary;
} emulated_device;

/* An entry of a library: CUkernel and CUfunction are both addresses of one. */
struct CUfunc_st {
    CUlibrary library;
    int entry;
    const char *name;
    emulator_entry_info info;
    uint32_t dynamic_shared_max; /* set by cuFuncSetAttribute */
    emulator_counts counts;      /* of all launches; executed is NULL before the first */
};

struct CUlib_st {
    object base;
    emulator_module *module;
    struct CUfunc_st *functions;
    int count;
};

/* A launch as it is recorded by a capture, or run at once. */
typedef struct launch_record {
    CUfunction function;
    CUcontext context;
    uint32_t grid[3], block[3], shared_bytes;
    void **parameters; /* of a captured launch: one block that also holds the values, freed with the graph */
} launch_record;

typedef struct fill_record {
    CUdeviceptr device;
    unsigned char byte;
    size_t bytes;
} fill_record;

typedef struct graph_node {
    enum { NODE_LAUNCH, NODE_FILL } kind;
    launch_record launch;
    fill_record fill;
} graph_node;

typedef struct node_list {
    graph_node *nodes;
    int count;
} node_list;

struct CUgraph_st {
    object base;
    node_list list;
};

struct CUgraphExec_st {
    object base;
    node_list list;
};

typedef struct emulated_thread {
    struct emulated_thread *next;
    CUcontext *contexts; /* current ones, the innermost last */
    int depth;
    CUstreamCaptureMode mode;
} emulated_thread;

struct CUstream_st {
    object base;
    CUcontext context;
    CUgraph capture; /* being recorded, or NULL */
    bool invalidated;
    CUstreamCaptureMode mode;
    const emulated_thread *capturer; /* that began it */
};

struct CUevent_st {
    object base;
    bool recorded;
    double milliseconds;
};

typedef struct emulated_state {
    emulated_device devices[EMULATED_DEVICES_MAX];
    int device_count, sm_count, compute_capability;
    unsigned long long context_ids; /* given out so far */
    emulated_execution execution;
    uint64_t launches; /* since emulated_driver_configure */
    bool counting;
    char *substitute;
    size_t substitute_length;
    object *objects;
    pthread_key_t thread_key; /* emulated_thread of the calling thread */
    emulated_thread *threads;
    bool has_fault;
    emulated_fault fault;
} emulated_state;

/* Locks and returns the state; NULL, and no lock, if there is no driver. */
emulated_state *emulated_enter(void);
CUresult emulated_leave(CUresult result); /* unlocks; returns its argument */

#define EMULATED_ENTER(state)                                                                                          \
    emulated_state *state = emulated_enter();                                                                          \
    if ((state) == NULL) return EMULATED_CUDA_ERROR_NOT_INITIALIZED

/* All below with the lock held. */
emulated_thread *emulated_thread_of(emulated_state *s);               /* of the caller; NULL: no memory */
CUresult emulated_current(emulated_state *s, CUcontext *context);     /* INVALID_CONTEXT, LAUNCH_FAILED after a fault */
void *object_make(emulated_state *s, object_kind kind, size_t bytes); /* zeroed, in the list; NULL: no memory */
bool object_valid(const emulated_state *s, const void *handle, object_kind kind);
CUresult object_destroy(emulated_state *s, void *handle, object_kind kind); /* INVALID_HANDLE */

void library_finish(CUlibrary library);
void node_list_finish(node_list *list);

/* Calls that the capture modes forbid: STREAM_CAPTURE_UNSUPPORTED, and the capture that is in the way is spoiled. */
CUresult emulated_unsafe_call(emulated_state *s);

CUresult launch_run(emulated_state *s, const launch_record *launch);
CUresult stream_launch(emulated_state *s, CUstream stream, const launch_record *launch); /* runs or records it */

/* The calls themselves, by the names of the table. */
#define DRIVER_CALL(presence, symbol, parameters) CUresult emulated_##symbol parameters;
#include "driver.def"

#endif
