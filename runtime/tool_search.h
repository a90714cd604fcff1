/* Where the user's tools and libraries are: an ordered list of places, the first that is accepted wins. */
#ifndef FOSCAR_RUNTIME_TOOL_SEARCH_H
#define FOSCAR_RUNTIME_TOOL_SEARCH_H

#include <stdbool.h>
#include <stddef.h>

enum { SEARCH_PATH_MAX = 512 }; /* bytes of a path with its NUL; longer ones are passed over */

/* Decides about one existing path; true ends the search. */
typedef bool (*search_accept)(void *context, const char *path);

/* A place: the value of an environment variable (or nothing, if `variable` is NULL) followed by a pattern of glob(3). A place whose
   variable is unset or empty is skipped. A variable that holds several directories separated by colons stands for each in turn. */
typedef struct search_place {
    const char *variable;
    const char *pattern;
} search_place;

/* Walks through `count` places in order, the matches of a pattern in the order of strcmp. Allocates only inside glob. */
bool search_places(const search_place *places, size_t count, search_accept accept, void *context);

/* Walks through the site-packages of Python installations ($PYTHONPATH, $VIRTUAL_ENV, $CONDA_PREFIX, ~/.local, /usr/local, /usr) and ./.deps
   (where tools/demo.sh unpacks wheels), looking in each for `count` suffixes such as "nvidia/cu13/bin/ptxas". */
bool search_wheels(const char *const *suffixes, size_t count, search_accept accept, void *context);

/* An acceptor: an executable regular file; copies its path into context, a char[SEARCH_PATH_MAX]. */
bool search_accept_executable(void *context, const char *path);

/* Why it refuses a path; empty if it does not. */
enum { SEARCH_PROBLEM_MAX = 128 };
void search_describe_refused(const char *path, char problem[SEARCH_PROBLEM_MAX]);

#endif
