/* Ordered search for tools and libraries that this project does not ship. */
#include "tool_search.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file.h"

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool try_pattern(const char *pattern, search_accept accept, void *context)
{
    glob_t found = {0};
    bool accepted = false;
    if (glob(pattern, GLOB_NOSORT, NULL, &found) == 0) {
        /* glob sorts by the collation of the caller's locale; which tool is found must not depend on it. */
        qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, compare_paths);
        for (size_t i = 0; i < found.gl_pathc && !accepted; i++) accepted = accept(context, found.gl_pathv[i]);
    }
    globfree(&found);
    return accepted;
}

static bool try_place(const char *directory, size_t length, const char *pattern, search_accept accept, void *context)
{
    char path[SEARCH_PATH_MAX];
    int n = snprintf(path, sizeof path, "%.*s%s", (int)length, directory, pattern);
    return n > 0 && (size_t)n < sizeof path && try_pattern(path, accept, context);
}

bool search_places(const search_place *places, size_t count, search_accept accept, void *context)
{
    for (size_t i = 0; i < count; i++) {
        if (places[i].variable == NULL) {
            if (try_place("", 0, places[i].pattern, accept, context)) return true;
            continue;
        }
        const char *value = getenv(places[i].variable);
        while (value != NULL && *value != '\0') {
            size_t length = strcspn(value, ":");
            if (length > 0 && length < SEARCH_PATH_MAX && try_place(value, length, places[i].pattern, accept, context))
                return true;
            value += length + (value[length] == ':');
        }
    }
    return false;
}

bool search_wheels(const char *const *suffixes, size_t count, search_accept accept, void *context)
{
    static const search_place roots[] = {
        {"PYTHONPATH", "/"},
        {"VIRTUAL_ENV", "/lib/python3*/site-packages/"},
        {"CONDA_PREFIX", "/lib/python3*/site-packages/"},
        {"HOME", "/.local/lib/python3*/site-packages/"},
        {NULL, "/usr/local/lib/python3*/site-packages/"},
        {NULL, "/usr/local/lib/python3*/dist-packages/"},
        {NULL, "/usr/lib/python3/dist-packages/"},
        {NULL, "./.deps/"},
        {NULL, "./.deps/lib/python3*/site-packages/"},
    };
    for (size_t r = 0; r < sizeof roots / sizeof *roots; r++)
        for (size_t s = 0; s < count; s++) {
            char pattern[SEARCH_PATH_MAX];
            search_place place = {roots[r].variable, pattern};
            int n = snprintf(pattern, sizeof pattern, "%s%s", roots[r].pattern, suffixes[s]);
            if (n > 0 && (size_t)n < sizeof pattern && search_places(&place, 1, accept, context)) return true;
        }
    return false;
}

bool search_accept_executable(void *context, const char *path)
{
    char problem[SEARCH_PROBLEM_MAX];
    search_describe_refused(path, problem);
    if (problem[0] != '\0') return false;
    memcpy(context, path, strlen(path) + 1);
    return true;
}

void search_describe_refused(const char *path, char problem[SEARCH_PROBLEM_MAX])
{
    problem[0] = '\0';
    if (strlen(path) >= SEARCH_PATH_MAX)
        snprintf(problem, SEARCH_PROBLEM_MAX, "its path is longer than %d bytes", SEARCH_PATH_MAX - 1);
    else if (file_is_regular(path, problem, SEARCH_PROBLEM_MAX) && access(path, X_OK) != 0)
        snprintf(problem, SEARCH_PROBLEM_MAX, "%s", strerror(errno));
}
