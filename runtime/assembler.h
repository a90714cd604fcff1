/* ptxas as a child process: finding it, running it, and believing nothing that it has not proven. */
#ifndef FOSCAR_RUNTIME_ASSEMBLER_H
#define FOSCAR_RUNTIME_ASSEMBLER_H

#include "tool_search.h"
#include "status.h"

typedef struct assembler {
    char path[SEARCH_PATH_MAX];
    char build[128]; /* last line of `ptxas --version`: its identity in cache keys */
    int seconds;     /* after which a run is killed */
} assembler;

/* What ptxas says about the entries of one text; the largest over them. */
typedef struct assembler_usage {
    int32_t registers;   /* of a thread */
    int32_t spill_bytes; /* stores and loads */
    int32_t stack_bytes;
} assembler_usage;

/* Finds ptxas, whose every run may take so many seconds: `path` if not NULL, else $FOSCAR_PTXAS, $CUDA_HOME/bin, $CUDA_PATH/bin, $PATH, /usr/local/cuda/bin, the Python wheels and Triton's own.
   NO_ASSEMBLER says how to get one; INVALID_ARGUMENT: a path was named and is no program (then nothing else is tried); IO: it does not run;
   ASSEMBLY_FAILED: it does not even tell its version in that time. */
foscar_status assembler_find(const char *path, int seconds, assembler *out, foscar_error *err);

/* Assembles `length` bytes of PTX for `target`. *cubin is malloc'd and the caller's; NULL on failure. ASSEMBLY_FAILED with ptxas's own line. */
foscar_status assembler_run(const assembler *a, const char *ptx, size_t length, const char *target, void **cubin,
                            size_t *bytes, assembler_usage *usage, foscar_error *err);

/* Reads the messages of `ptxas -v` (also the driver's, which are the same): ASSEMBLY_FAILED for a spill, a stack frame, or a note of the C75xx family
   that says that setmaxnreg was ignored or wgmma was serialised. `tool` is for the message. */
foscar_status assembler_check_log(const char *tool, const char *log, assembler_usage *usage, foscar_error *err);

/* Copies the first line of `log` that speaks of an error (else the first line) into line. */
void assembler_first_error(const char *log, char *line, size_t size);

#endif
