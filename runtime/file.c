/* Opens regular files, and nothing that could block. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
    /* Some things cannot be opened because of what they are (a socket); that is the better reason. */
    bool known = fd >= 0 ? fstat(fd, &st) == 0 : lstat(path, &st) == 0 && !S_ISLNK(st.st_mode);
    if (fd >= 0 && !known) error = errno;
    const char *kind = known ? other_kind(st.st_mode) : NULL;
    if (fd >= 0 && known && kind == NULL) return fd;
    if (kind != NULL)
        snprintf(problem, size, "it is %s, not a regular file", kind);
    else
        snprintf(problem, size, "%s", strerror(error));
    if (fd >= 0) close(fd);
    return -1;
}
