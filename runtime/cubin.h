/* Checks that a block of memory is a whole cubin before the driver sees it: cuLibraryLoadData takes no length. */
#ifndef FOSCAR_RUNTIME_CUBIN_H
#define FOSCAR_RUNTIME_CUBIN_H

#include <stddef.h>

/* NULL if data is a 64-bit little-endian ELF file for CUDA whose tables and sections all lie within `bytes`; else what is wrong, a static string. */
const char *cubin_problem(const void *data, size_t bytes);

#endif
