/* Runs a child process without a shell: memory files as its input and output, its messages collected. */
#ifndef FOSCAR_RUNTIME_PROCESS_H
#define FOSCAR_RUNTIME_PROCESS_H

#include <stddef.h>

#include "status.h"

/* File descriptors 3 and 4 of the child are these; -1: none. "/dev/fd/3" names the first for tools that want a path. */
enum { PROCESS_INPUT_FD = 3, PROCESS_OUTPUT_FD = 4 };

/* A file that lives in memory, close-on-exec, holding `length` bytes of data. -1 with errno on failure; closed by the caller. */
int process_memory_file(const char *name, const void *data, size_t length);

enum { PROCESS_SECONDS = 120, PROCESS_SECONDS_MAX = 86400 }; /* that a child may take: usually, at most */

typedef struct process_result {
    bool timed_out;    /* it had not ended after the given time and was killed, with its process group */
    int exit_status;   /* of the child; -1: unknown, because this process ignores SIGCHLD or the child was killed */
    int signal;        /* that ended it, or 0 */
    char *log;         /* what it wrote to stdout and stderr; NULL only if it was killed; freed by process_result_finish */
    size_t log_length;
} process_result;

/* Starts argv[0] (a path), waits for its end, but not longer than `seconds` (and a moment). A non-zero exit is no failure of this function, nor is
   a child that is killed. IO says what could not be done; then *out is empty. */
foscar_status process_run(const char *const *argv, int input, int output, int seconds, process_result *out, foscar_error *err);
void process_result_finish(process_result *result);

#endif
