/* Child processes: posix_spawn with an argument vector, memory files instead of pipes (so nothing can block), and an end in any case. */
#define _GNU_SOURCE 1 /* memfd_create */
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "file.h"

extern char **environ;

enum { LOG_LIMIT = 1 << 20, FIRST_FREE_FD = PROCESS_OUTPUT_FD + 1, KILLED_SECONDS = 5 };

int process_memory_file(const char *name, const void *data, size_t length)
{
    int low = memfd_create(name, MFD_CLOEXEC);
    if (low < 0) return -1;
    /* Above the numbers that the child's own descriptors are moved to. A number beyond the limit of the process is EINVAL here. */
    int fd = fcntl(low, F_DUPFD_CLOEXEC, FIRST_FREE_FD), error = errno == EINVAL ? EMFILE : errno;
    close(low);
    if (fd >= 0 && file_write_all(fd, data, length) && lseek(fd, 0, SEEK_SET) == 0) return fd;
    if (fd >= 0) {
        error = errno;
        close(fd);
    }
    errno = error;
    return -1;
}

static void decode_wait(int status, process_result *out)
{
    out->exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    out->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/* The child leads a process group of its own, so that it can be killed with all that it has started. */
static int spawn(const char *const *argv, int input, int output, int log, pid_t *child)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int error = posix_spawn_file_actions_init(&actions);
    if (error != 0) return error;
    error = posix_spawnattr_init(&attributes);
    if (error != 0) goto destroy_actions;
    error = posix_spawnattr_setpgroup(&attributes, 0);
    if (error == 0) error = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    if (error == 0) error = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (error == 0) error = posix_spawn_file_actions_adddup2(&actions, log, 1);
    if (error == 0) error = posix_spawn_file_actions_adddup2(&actions, log, 2);
    if (error == 0 && input >= 0) error = posix_spawn_file_actions_adddup2(&actions, input, PROCESS_INPUT_FD);
    if (error == 0 && output >= 0) error = posix_spawn_file_actions_adddup2(&actions, output, PROCESS_OUTPUT_FD);
    /* posix_spawn takes char *const[] for historical reasons and changes nothing. */
    if (error == 0) error = posix_spawn(child, argv[0], &actions, &attributes, (char *const *)argv, environ);
    posix_spawnattr_destroy(&attributes);
destroy_actions:
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

static long long milliseconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* It has ended and waits to be reaped, or was reaped by the kernel because this process ignores SIGCHLD. */
static bool has_ended(pid_t child)
{
    siginfo_t info = {.si_pid = 0};
    return waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ? errno != EINTR : info.si_pid == child;
}

/* Waits for the end of the child; false: it has not come after so many seconds. */
static bool await_end(pid_t child, int seconds)
{
    enum { LONGEST_NAP = 10 };
    long long until = milliseconds_now() + seconds * 1000LL, left;
    int nap = 1;
#ifdef SYS_pidfd_open
    struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, child, 0), .events = POLLIN};
#else
    struct pollfd end = {.fd = -1};
#endif
    bool ended;
    while (!(ended = has_ended(child)) && (left = until - milliseconds_now()) > 0) {
        /* An older kernel has no descriptor for a process, or this process has none left: look again after a nap. */
        (void)poll(&end, end.fd >= 0 ? 1 : 0, end.fd >= 0 || left < nap ? (int)left : nap);
        if (nap < LONGEST_NAP) nap++;
    }
    if (end.fd >= 0) close(end.fd);
    return ended;
}

/* Waits for the child, or kills it; a killed one that does not die (it waits for a device) is left to the end of this process. */
static void finish_child(pid_t child, int seconds, process_result *out)
{
    pid_t waited;
    int status = 0;
    out->exit_status = -1;
    out->timed_out = !await_end(child, seconds);
    if (out->timed_out) (void)kill(-child, SIGKILL);
    if (out->timed_out && !await_end(child, KILLED_SECONDS)) return;
    do waited = waitpid(child, &status, 0);
    while (waited < 0 && errno == EINTR);
    if (waited == child) decode_wait(status, out);
}

foscar_status process_run(const char *const *argv, int input, int output, int seconds, process_result *out,
                          foscar_error *err)
{
    foscar_status status = FOSCAR_OK;
    pid_t child;
    memset(out, 0, sizeof *out);
    int log = process_memory_file("foscar-log", "", 0);
    if (log < 0)
        return status_fail(err, FOSCAR_IO, "no memory file for the messages of %s: %s", argv[0], file_reason(errno));
    int error = spawn(argv, input, output, log, &child);
    if (error != 0) {
        status = status_fail(err, FOSCAR_IO, "%s cannot be started: %s", argv[0], file_reason(error));
        goto close_log;
    }
    finish_child(child, seconds, out);
    out->log = file_read_all(log, LOG_LIMIT, &out->log_length);
    if (out->log == NULL && !out->timed_out)
        status = status_fail(err, FOSCAR_IO, "the messages of %s cannot be read: %s", argv[0],
                             errno == EFBIG ? "they are longer than 1 MiB" : file_reason(errno));
close_log:
    close(log);
    return status;
}

void process_result_finish(process_result *result)
{
    if (result == NULL) return;
    free(result->log);
    memset(result, 0, sizeof *result);
}
