/* One error message: what was wrong, with which value, and what to do. Filled by the callee, owned by the caller. */
#ifndef FOSCAR_GEN_ERROR_H
#define FOSCAR_GEN_ERROR_H

#include <stdbool.h>

typedef struct gen_error {
    char message[320]; /* one line, no newline, NUL-terminated */
} gen_error;

/* Writes a formatted message into err (which may be NULL) and returns false, so that callers can write `return gen_fail(...)`. */
bool gen_fail(gen_error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
