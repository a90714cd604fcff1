/* The command line program run from outside by test_cli*.c: $FOSCAR_TOOL, its exit code and what it printed. */
#ifndef FOSCAR_TESTS_CLI_FIXTURE_H
#define FOSCAR_TESTS_CLI_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cJSON.h>

enum { OK, FAILED, USAGE, ENVIRONMENT, TEXT_MAX = 1 << 22 };

static char folder[64]; /* of this run, removed at its end */
static char out[TEXT_MAX], err[TEXT_MAX];

static inline size_t read_file(const char *path, char *text)
{
    FILE *file = fopen(path, "rb");
    size_t length = file != NULL ? fread(text, 1, TEXT_MAX - 1, file) : 0;
    if (file != NULL) fclose(file);
    text[length] = '\0';
    return length;
}

/* Runs "PREFIX foscar ARGUMENTS" with standard output to a file (NULL: of the folder); fills out and err; returns the
 * exit code. */
static inline int run_to(const char *prefix, const char *arguments, const char *file)
{
    char line[2048], path[128];
    snprintf(path, sizeof path, "%s/out", folder);
    snprintf(line, sizeof line, "%s '%s' %s >%s 2>%s/err", prefix, getenv("FOSCAR_TOOL"), arguments,
             file != NULL ? file : path, folder);
    int status = system(line);
    out[0] = '\0';
    if (file == NULL) read_file(path, out);
    snprintf(path, sizeof path, "%s/err", folder);
    read_file(path, err);
    if (!WIFEXITED(status)) fail_msg("'%s' did not exit by itself", line);
    return WEXITSTATUS(status);
}

static inline int run(const char *arguments)
{
    return run_to("", arguments, NULL);
}

static inline void assert_contains(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) fail_msg("\"%s\" is not in \"%.2000s\"", part, text);
}

/* Standard error is one line that begins with the program's name. */
static inline void assert_one_line_reason(const char *part)
{
    char *newline = strchr(err, '\n');
    assert_non_null(newline);
    assert_int_equal(newline[1], '\0');
    assert_memory_equal(err, "foscar", 6);
    assert_contains(err, part);
}

static inline bool has_tool(const char *name)
{
    run("doctor --json");
    cJSON *json = cJSON_Parse(out), *row;
    bool found = false;
    cJSON_ArrayForEach(row, json) if (strcmp(cJSON_GetStringValue(cJSON_GetObjectItem(row, "name")), name) == 0) found =
        cJSON_IsTrue(cJSON_GetObjectItem(row, "found"));
    cJSON_Delete(json);
    return found;
}

static inline int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/foscar_cli_XXXXXX");
    return getenv("FOSCAR_TOOL") == NULL || mkdtemp(folder) == NULL;
}

static inline int remove_folder(void **state)
{
    (void)state;
    char line[128];
    snprintf(line, sizeof line, "rm -rf '%s'", folder);
    return system(line);
}

#endif
