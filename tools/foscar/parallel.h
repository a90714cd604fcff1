/* A loop over independent work items on all processors. */
#ifndef FOSCAR_TOOLS_PARALLEL_H
#define FOSCAR_TOOLS_PARALLEL_H

#include <stdint.h>

/* Calls work(context, i) once for every i of 0 .. count - 1, in any order, from several threads, and waits for all of
 * them. */
void parallel_for(int64_t count, void (*work)(void *context, int64_t i), void *context);

int parallel_threads(void); /* that parallel_for uses at most */

#endif
