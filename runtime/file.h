/* Files whose names and sizes come from outside: a name may be that of a FIFO, which would block for ever, and a limit may end the process. */
#ifndef FOSCAR_RUNTIME_FILE_H
#define FOSCAR_RUNTIME_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* Opens a regular file for reading, with more flags of open(2) (O_NOFOLLOW) or 0; close-on-exec; closed by the caller. Never waits. -1 with
   errno on failure (ENOENT: nothing is there); `problem` is what is wrong ("it is a pipe or FIFO, not a regular file"). */
int file_open_regular(const char *path, int flags, char *problem, size_t size);

/* Whether a path is that of a regular file; else `problem` says what is wrong, as above. */
bool file_is_regular(const char *path, char *problem, size_t size);

/* The whole contents of a file as a malloc'd buffer with a NUL behind them, freed by the caller; NULL with errno on failure or when it is longer
   than `limit` bytes. */
char *file_read_all(int fd, size_t limit, size_t *length);

/* Writes all of the data; false with errno on failure, the size limit of the process among them (EFBIG), which raises no signal here. */
bool file_write_all(int fd, const void *data, size_t length);

/* What an errno means, with what to do where it is a limit of the process. */
const char *file_reason(int error);

/* Whether this process can open no file any more, with the reason: then "not found" would be a wrong answer. */
bool file_none_left(char *problem, size_t size);

#endif
