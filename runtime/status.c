/* Status names, failures, and the copying of versioned structs. */
#include "status.h"

#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *foscar_status_name(foscar_status status)
{
    switch (status) {
#define NAME(name, meaning)                                                                                            \
    case FOSCAR_##name: return #name;
        FOSCAR_STATUSES(NAME)
#undef NAME
    case FOSCAR_STATUS_COUNT: break;
    }
    return "UNKNOWN";
}

const char *foscar_status_meaning(foscar_status status)
{
    switch (status) {
#define MEANING(name, meaning)                                                                                         \
    case FOSCAR_##name: return meaning;
        FOSCAR_STATUSES(MEANING)
#undef MEANING
    case FOSCAR_STATUS_COUNT: break;
    }
    return "no status of this library";
}

foscar_status status_fail(foscar_error *err, foscar_status status, const char *format, ...)
{
    if (err == NULL) return status;
    err->status = status;
    va_list args;
    /* Numbers are written in the same way whatever locale the calling program has set; only this thread's is changed. */
    locale_t plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0), before = uselocale(plain);
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    (void)uselocale(before);
    if (plain != (locale_t)0) freelocale(plain);
    for (char *c = err->message; *c != '\0'; c++)
        if (*c == '\n' || *c == '\r' || *c == '\t') *c = ' ';
    return status;
}

/* The struct_size that the caller set, at least `first`. */
static foscar_status read_size(const char *name, const void *theirs, size_t first, uint32_t *size, foscar_error *err)
{
    if (theirs == NULL) return status_fail(err, FOSCAR_INVALID_ARGUMENT, "%s is NULL", name);
    memcpy(size, theirs, sizeof *size);
    if (*size < first)
        return status_fail(err, FOSCAR_INVALID_ARGUMENT,
                           "%s: struct_size is %u, at least %zu is needed; set it to sizeof the struct", name,
                           (unsigned)*size, first);
    return FOSCAR_OK;
}

foscar_status struct_import(const char *name, void *ours, size_t size, size_t first, const void *theirs,
                            foscar_error *err)
{
    uint32_t their_size = 0;
    foscar_status status = read_size(name, theirs, first, &their_size, err);
    if (status != FOSCAR_OK) return status;
    for (size_t i = size; i < their_size; i++)
        if (((const unsigned char *)theirs)[i] != 0)
            return status_fail(err, FOSCAR_INVALID_ARGUMENT,
                               "%s: sets a member that version %s of the library does not know", name,
                               foscar_version());
    memset(ours, 0, size);
    memcpy(ours, theirs, their_size < size ? their_size : size);
    return FOSCAR_OK;
}

foscar_status struct_export(const char *name, void *theirs, const void *ours, size_t size, size_t first,
                            foscar_error *err)
{
    uint32_t their_size = 0;
    foscar_status status = read_size(name, theirs, first, &their_size, err);
    if (status != FOSCAR_OK) return status;
    memset(theirs, 0, their_size);
    memcpy(theirs, ours, their_size < size ? their_size : size);
    memcpy(theirs, &their_size, sizeof their_size);
    return FOSCAR_OK;
}
