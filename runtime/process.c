/* Child processes: posix_spawn with an argument vector, memory files instead of pipes (so nothing can block) and temporary names. */
#define _GNU_SOURCE 1 /* memfd_create */
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { LOG_LIMIT = 1 << 20, FIRST_FREE_FD = 10 };

bool process_write_all(int fd, const void *data, size_t length)
{
    const char *rest = data;
    while (length > 0) {
        ssize_t n = write(fd, rest, length);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        rest += n;
        length -= (size_t)n;
    }
    return true;
}

int process_memory_file(const char *name, const void *data, size_t length)
{
    int low = memfd_create(name, MFD_CLOEXEC), fd;
    if (low < 0) return -1;
    /* Above the numbers that the child's own descriptors are moved to. */
    fd = fcntl(low, F_DUPFD_CLOEXEC, FIRST_FREE_FD);
    close(low);
    if (fd < 0) return -1;
    if (!process_write_all(fd, data, length) || lseek(fd, 0, SEEK_SET) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

char *process_read_file(int fd, size_t limit, size_t *length)
{
    struct stat st;
    char *data;
    size_t size, done = 0;
    if (fstat(fd, &st) != 0) return NULL;
    if (st.st_size < 0 || (unsigned long long)st.st_size > limit) {
        errno = EFBIG;
        return NULL;
    }
    size = (size_t)st.st_size;
    data = malloc(size + 1);
    if (data == NULL) return NULL;
    while (done < size) {
        ssize_t n = pread(fd, data + done, size - done, (off_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            free(data);
            if (n == 0) errno = EIO;
            return NULL;
        }
        done += (size_t)n;
    }
    data[size] = '\0';
    *length = size;
    return data;
}

static void decode_wait(int status, process_result *out)
{
    out->exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    out->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static int spawn(const char *const *argv, int input, int output, int log, pid_t *child)
{
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);
    if (error != 0) return error;
    error = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (error == 0) error = posix_spawn_file_actions_adddup2(&actions, log, 1);
    if (error == 0) error = posix_spawn_file_actions_adddup2(&actions, log, 2);
    if (error == 0 && input >= 0) error = posix_spawn_file_actions_adddup2(&actions, input, PROCESS_INPUT_FD);
    if (error == 0 && output >= 0) error = posix_spawn_file_actions_adddup2(&actions, output, PROCESS_OUTPUT_FD);
    /* posix_spawn takes char *const[] for historical reasons and changes nothing. */
    if (error == 0) error = posix_spawn(child, argv[0], &actions, NULL, (char *const *)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

foscar_status process_run(const char *const *argv, int input, int output, process_result *out, foscar_error *err)
{
    foscar_status status = FOSCAR_OK;
    pid_t child, waited;
    int error, wait_status = 0;
    memset(out, 0, sizeof *out);
    int log = process_memory_file("foscar-log", "", 0);
    if (log < 0)
        return status_fail(err, FOSCAR_IO, "no memory file for the messages of %s: %s", argv[0], strerror(errno));
    error = spawn(argv, input, output, log, &child);
    if (error != 0) {
        status = status_fail(err, FOSCAR_IO, "%s cannot be started: %s", argv[0], strerror(error));
        goto close_log;
    }
    do waited = waitpid(child, &wait_status, 0);
    while (waited < 0 && errno == EINTR);
    if (waited < 0)
        out->exit_status = -1; /* ECHILD: the program ignores SIGCHLD, the kernel has reaped the child */
    else
        decode_wait(wait_status, out);
    out->log = process_read_file(log, LOG_LIMIT, &out->log_length);
    if (out->log == NULL) status = status_fail(err, FOSCAR_IO, "the messages of %s cannot be read", argv[0]);
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
