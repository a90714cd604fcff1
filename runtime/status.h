/* How every part of the runtime reports a failure, and how versioned structs cross the interface. */
#ifndef FOSCAR_RUNTIME_STATUS_H
#define FOSCAR_RUNTIME_STATUS_H

#include <stdbool.h>

#include "foscar.h"

/* Writes status and one formatted line into err (which may be NULL; newlines become spaces) and returns the status. */
foscar_status status_fail(foscar_error *err, foscar_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Copies a caller's struct of any version into ours of `size` bytes: members it does not know become 0. Fails when its struct_size is
   smaller than `first`, the size of the first version, or when it sets members that we do not know. `name` is for the message. */
foscar_status struct_import(const char *name, void *ours, size_t size, size_t first, const void *theirs,
                            foscar_error *err);

/* Copies our filled struct into the caller's, as much as fits into its struct_size, which is kept. */
foscar_status struct_export(const char *name, void *theirs, const void *ours, size_t size, size_t first,
                            foscar_error *err);

#endif
