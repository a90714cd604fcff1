/* Opening, reading and writing, with the true reason for what fails. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

const char *file_reason(int error)
{
    switch (error) {
    case EFBIG: return "the file size limit of this process is too small (raise ulimit -f)";
    case EMFILE: return "this process has too many open files (raise ulimit -n)";
    default: return strerror(error);
    }
}

bool file_none_left(char *problem, size_t size)
{
    int fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), error = errno;
    if (fd >= 0) close(fd);
    if (fd >= 0 || (error != EMFILE && error != ENFILE)) return false;
    snprintf(problem, size, "%s", file_reason(error));
    return true;
}

/* NULL: a regular file. */
static const char *other_kind(mode_t mode)
{
    return S_ISREG(mode)    ? NULL
           : S_ISDIR(mode)  ? "a folder"
           : S_ISFIFO(mode) ? "a pipe or FIFO"
           : S_ISCHR(mode)  ? "a character device"
           : S_ISBLK(mode)  ? "a block device"
           : S_ISSOCK(mode) ? "a socket"
                            : "a symbolic link";
}

int file_open_regular(const char *path, int flags, char *problem, size_t size)
{
    struct stat st;
    /* Without O_NONBLOCK, opening a FIFO waits for a writer; on regular files it means nothing. */
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY | flags), error = errno;
    /* Some things cannot be opened because of what they are (a socket, a link where none may be); that is the better reason. */
    bool known = fd >= 0 ? fstat(fd, &st) == 0 : lstat(path, &st) == 0 && (!S_ISLNK(st.st_mode) || (flags & O_NOFOLLOW) != 0);
    if (fd >= 0 && !known) error = errno;
    const char *kind = known ? other_kind(st.st_mode) : NULL;
    if (fd >= 0 && known && kind == NULL) return fd;
    if (kind != NULL)
        snprintf(problem, size, "it is %s, not a regular file", kind);
    else
        snprintf(problem, size, "%s", file_reason(error));
    if (fd >= 0) close(fd);
    errno = fd >= 0 && known ? EINVAL : error;
    return -1;
}

bool file_is_regular(const char *path, char *problem, size_t size)
{
    struct stat st;
    bool there = stat(path, &st) == 0;
    const char *kind = there ? other_kind(st.st_mode) : NULL;
    if (!there)
        snprintf(problem, size, "%s", file_reason(errno));
    else if (kind != NULL)
        snprintf(problem, size, "it is %s, not a regular file", kind);
    return there && kind == NULL;
}

char *file_read_all(int fd, size_t limit, size_t *length)
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
        int error = n == 0 ? EIO : errno;
        if (n < 0 && error == EINTR) continue;
        if (n <= 0) {
            free(data);
            errno = error;
            return NULL;
        }
        done += (size_t)n;
    }
    data[size] = '\0';
    *length = size;
    return data;
}

static bool write_all(int fd, const void *data, size_t length)
{
    const char *rest = data;
    while (length > 0) {
        ssize_t n = write(fd, rest, length);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = EIO;
        if (n <= 0) return false;
        rest += n;
        length -= (size_t)n;
    }
    return true;
}

/* A write beyond RLIMIT_FSIZE raises SIGXFSZ in the writing thread, which ends the process. A library changes no disposition, since those belong
   to all threads; and to look at the limit beforehand would be a guess, since another thread can lower it. So the signal is held back in this
   thread, and taken from it if our write raised it; what was pending before stays. */
bool file_write_all(int fd, const void *data, size_t length)
{
    const struct timespec now = {0};
    sigset_t ours, before, pending;
    sigemptyset(&ours);
    sigaddset(&ours, SIGXFSZ);
    if (pthread_sigmask(SIG_BLOCK, &ours, &before) != 0) return false;
    bool theirs = sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
    bool written = write_all(fd, data, length);
    int error = errno;
    if (!written && error == EFBIG && !theirs)
        while (sigtimedwait(&ours, NULL, &now) < 0 && errno == EINTR) continue;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return written;
}
