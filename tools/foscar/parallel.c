/* A loop over independent work items on all processors. */
#include "parallel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { THREADS_MAX = 64 };

typedef struct loop {
    _Atomic int64_t next;
    int64_t count;
    void (*work)(void *context, int64_t i);
    void *context;
} loop;

static void *run_loop(void *argument)
{
    loop *l = argument;
    for (int64_t i; (i = atomic_fetch_add(&l->next, 1)) < l->count;) l->work(l->context, i);
    return NULL;
}

int parallel_threads(void)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    return processors < 1 ? 1 : processors > THREADS_MAX ? THREADS_MAX : (int)processors;
}

void parallel_for(int64_t count, void (*work)(void *context, int64_t i), void *context)
{
    loop l = {.count = count, .work = work, .context = context};
    pthread_t threads[THREADS_MAX];
    int wanted = parallel_threads(), started = 0;
    if (wanted > count) wanted = (int)count;
    /* This thread is one of them; those that cannot be started are not missed. */
    while (started + 1 < wanted && pthread_create(&threads[started], NULL, run_loop, &l) == 0) started++;
    run_loop(&l);
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
}
