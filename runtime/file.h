/* Opening files whose names come from outside: a name may be that of a FIFO or a device, which would block for ever or never end. */
#ifndef FOSCAR_RUNTIME_FILE_H
#define FOSCAR_RUNTIME_FILE_H

#include <stddef.h>

/* Opens a regular file for reading, with more flags of open(2) (O_NOFOLLOW) or 0; close-on-exec; closed by the caller. Never waits. -1 on
   failure: `problem` is what is wrong ("No such file or directory", "it is a FIFO, not a regular file"). */
int file_open_regular(const char *path, int flags, char *problem, size_t size);

#endif
