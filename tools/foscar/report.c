/* What a call says: reasons on standard error, one line each, and with --json one document on standard output, whatever
 * happens. */
#include "command.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file.h"

/* A process has one standard output and one standard error, and memory may run out in any function; so this is the
   program's own, not an argument of everything. The document is printed at the end, so that there is never a second. */
static struct {
    bool json;       /* --json was given */
    cJSON *document; /* or NULL */
    cJSON *error;    /* of the first reason that was given and not taken, or NULL */
    char *text;      /* of tool_text_begin */
    size_t length;
    int output_error; /* errno of the first write to standard output that failed; 0: none, or one of printf's */
} said;

/* ---- Text ---- */

/* Bytes of the UTF-8 character that a text of `length` bytes begins with; 0: none, and *bad becomes the bytes to be
   replaced by one U+FFFD, the longest beginning of a character (Unicode 15, 3.9, "maximal subpart"). */
static size_t character_bytes(const char *bytes, size_t length, size_t *bad)
{
    const unsigned char *text = (const unsigned char *)bytes;
    unsigned char first = text[0], low = 0x80, high = 0xbf;
    size_t more = first < 0x80 ? 0 : first >= 0xc2 && first <= 0xdf ? 1 : first >> 4 == 0xe ? 2 : 3;
    *bad = 1;
    if (first >= 0x80 && (first < 0xc2 || first > 0xf4)) return 0;
    if (first == 0xe0) low = 0xa0; /* else it would be too long for its character, */
    if (first == 0xf0) low = 0x90;
    if (first == 0xed) high = 0x9f; /* half of a surrogate pair, */
    if (first == 0xf4) high = 0x8f; /* or beyond the last character */
    for (size_t i = 1; i <= more; i++, low = 0x80, high = 0xbf) {
        *bad = i;
        if (i == length || text[i] < low || text[i] > high) return 0;
    }
    return more + 1;
}

bool tool_is_utf8(const char *text, size_t length)
{
    size_t bytes = 1, bad;
    for (const char *end = text + length; text < end && bytes > 0; text += bytes)
        bytes = character_bytes(text, (size_t)(end - text), &bad);
    return bytes > 0;
}

static void clean_text(char **text)
{
    static const char replacement[] = "\xef\xbf\xbd";
    if (*text == NULL || tool_is_utf8(*text, strlen(*text))) return;
    char *clean = tool_allocate(strlen(*text) * (sizeof replacement - 1) + 1), *to = clean;
    for (const char *from = *text; *from != '\0';) {
        size_t bad, good = character_bytes(from, strlen(from), &bad), count = good > 0 ? good : sizeof replacement - 1;
        memcpy(to, good > 0 ? from : replacement, count);
        to += count;
        from += good > 0 ? good : bad;
    }
    cJSON_free(*text);
    *text = clean;
}

/* Names of files and lines of PTX may hold any bytes; JSON is UTF-8. */
static void clean_json(cJSON *json)
{
    for (; json != NULL; json = json->next) {
        clean_text(&json->string);
        clean_text(&json->valuestring);
        clean_json(json->child);
    }
}

/* ---- Reasons ---- */

/* A name may hold a newline or an escape sequence; a reason is one line. */
static void print_reason(const command *c, const char *text)
{
    fprintf(stderr, c != NULL ? "foscar %s: " : "foscar: ", c != NULL ? c->name : "");
    for (; *text != '\0'; text++) {
        unsigned char byte = (unsigned char)*text;
        fputc(byte < ' ' || byte == 0x7f ? '?' : byte, stderr);
    }
    fputc('\n', stderr);
}

/* Keeps the first reason for the document. `details`, an object or NULL, is taken over; a message of its own stays. */
static void keep_error(tool_exit code, cJSON *details, const char *text)
{
    static const char *const kinds[] = {
#define EXIT(name, number, word, meaning) [number] = (word),
        TOOL_EXITS(EXIT)
#undef EXIT
    };
    if (said.error == NULL) {
        said.error = cJSON_CreateObject();
        cJSON_AddStringToObject(said.error, "kind", kinds[code]);
        while (details != NULL && details->child != NULL) {
            cJSON *item = cJSON_DetachItemViaPointer(details, details->child);
            cJSON_AddItemToObject(said.error, item->string, item);
        }
        if (!cJSON_HasObjectItem(said.error, "message")) cJSON_AddStringToObject(said.error, "message", text);
    }
    cJSON_Delete(details);
}

static tool_exit fail(const command *c, tool_exit code, cJSON *details, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    size_t size = length > 0 ? (size_t)length + 1 : 1;
    char *text = tool_allocate(size);
    vsnprintf(text, size, format, again);
    va_end(again);
    print_reason(c, text);
    keep_error(code, details, text);
    free(text);
    return code;
}

tool_exit tool_fail(const command *c, tool_exit code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail(c, code, NULL, format, args);
    va_end(args);
    return code;
}

tool_exit tool_fail_with(const command *c, tool_exit code, cJSON *details, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail(c, code, details, format, args);
    va_end(args);
    return code;
}

cJSON *tool_file_details(const char *path)
{
    cJSON *details = cJSON_CreateObject();
    cJSON_AddStringToObject(details, "file", path);
    return details;
}

tool_exit tool_exit_of(foscar_status status)
{
    switch (status) {
    case FOSCAR_OK:
        return TOOL_OK;
    case FOSCAR_INVALID_SPEC:
        return TOOL_USAGE;
    case FOSCAR_NO_DRIVER:
    case FOSCAR_NO_DEVICE:
    case FOSCAR_WRONG_DEVICE:
    case FOSCAR_NO_ASSEMBLER:
    case FOSCAR_NO_NVRTC:
        return TOOL_ENVIRONMENT;
    default:
        return TOOL_FAILED;
    }
}

tool_exit tool_fail_status(const command *c, const foscar_error *err)
{
    cJSON *details = cJSON_CreateObject();
    cJSON_AddStringToObject(details, "status", foscar_status_name(err->status));
    return tool_fail_with(c, tool_exit_of(err->status), details, "%s", err->message);
}

cJSON *tool_take_error(void)
{
    cJSON *error = said.error;
    said.error = NULL;
    return error;
}

/* ---- The document ---- */

void tool_print_json(cJSON *json)
{
    cJSON_Delete(said.document);
    said.document = json;
}

FILE *tool_text_begin(void)
{
    FILE *file = said.json ? open_memstream(&said.text, &said.length) : stdout;
    if (file == NULL) tool_out_of_memory();
    return file;
}

void tool_text_end(FILE *file, const char *name)
{
    if (file == stdout) return;
    if (fclose(file) != 0) tool_out_of_memory();
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, name, said.text);
    tool_print_json(json);
    free(said.text);
}

/* cJSON leaves out what it has no memory for; a document is whole or there is none. */
static void *allocate_json(size_t bytes)
{
    return tool_allocate(bytes);
}

void report_begin(int argc, char **argv)
{
    cJSON_Hooks hooks = {.malloc_fn = allocate_json, .free_fn = free};
    cJSON_InitHooks(&hooks);
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        said.json = said.json || strcmp(argv[i], "--json") == 0;
}

void tool_print_text(const char *text, size_t length)
{
    bool written = fwrite(text, 1, length, stdout) == length && fflush(stdout) == 0;
    if (!written && said.output_error == 0) said.output_error = errno;
}

bool report_end(void)
{
    if (said.json) {
        if (said.document == NULL) said.document = cJSON_CreateObject();
        if (cJSON_IsObject(said.document) && said.error != NULL)
            cJSON_AddItemToObject(said.document, "error", tool_take_error());
        clean_json(said.document);
        char *text = cJSON_Print(said.document);
        tool_print_text(text, strlen(text));
        tool_print_text("\n", 1);
        free(text);
    }
    cJSON_Delete(said.document);
    cJSON_Delete(said.error);
    said.document = said.error = NULL;
    tool_print_text("", 0);
    if (said.output_error == 0 && !ferror(stdout)) return true;
    const char *reason = said.output_error != 0 ? file_reason(said.output_error) : "an earlier write failed";
    tool_fail(NULL, TOOL_FAILED, "standard output: %s", reason);
    cJSON_Delete(tool_take_error());
    return false;
}

void *tool_allocate(size_t bytes)
{
    void *memory = calloc(1, bytes > 0 ? bytes : 1);
    if (memory == NULL) tool_out_of_memory();
    return memory;
}

void tool_out_of_memory(void)
{
    static atomic_flag ending = ATOMIC_FLAG_INIT;
    while (atomic_flag_test_and_set(&ending)) pause(); /* another thread is at it */
    fputs("foscar: out of memory\n", stderr);
    if (said.json) puts("{\"error\": {\"kind\": \"failed\", \"message\": \"out of memory\"}}");
    exit(TOOL_FAILED);
}
