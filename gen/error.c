/* Error messages of the generator. */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>

bool gen_fail(gen_error *err, const char *format, ...)
{
    if (err == NULL) return false;
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    return false;
}
