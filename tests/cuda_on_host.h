/* Runs CUDA kernels on the CPU, one block at a time: the part of CUDA C that templates/cache_*.cu use, in C. Include
 * it, then the .cu files but cache_numbers.cu (which needs PTX and is replaced by tests/reference.c), in one test
 * program.
 *
 * The threads of a block are coroutines. A thread runs until it meets a barrier or a warp operation and then lets the
 * next one run, in an order drawn anew for each launch, so code that lacks a barrier fails for some order. Blocks run
 * one after the other, in a drawn order. A block that waits for threads which never come ends the program. Warp
 * operations need all lanes of the warp that have not returned. */
#ifndef FOSCAR_TESTS_CUDA_ON_HOST_H
#define FOSCAR_TESTS_CUDA_ON_HOST_H

#include <math.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <ucontext.h>

#include "reference.h"

/* ---- Coroutines ---- */

enum { HOST_THREADS_MAX = 256, HOST_STACK = 64 * 1024, HOST_WARPS_MAX = HOST_THREADS_MAX / 32 };

typedef struct host_dim {
    unsigned x, y, z;
} host_dim;

/* A barrier over a group of threads. */
typedef struct host_barrier {
    int alive, arrived;
    unsigned epoch;
} host_barrier;

static host_dim threadIdx, blockIdx;

typedef struct host_context {
    ucontext_t start; /* where it begins; where it is, if the C library forbids jumps between stacks */
    jmp_buf place;
    bool started;
} host_context;

static struct {
    host_context scheduler;
    host_context thread[HOST_THREADS_MAX]; /* each begins again with a block, and lives as long as the program */
    bool done[HOST_THREADS_MAX];
    int current, threads;
    host_barrier block, warp[HOST_WARPS_MAX];
    union host_word {
        float number;
        unsigned word;
    } exchange[2][HOST_THREADS_MAX]; /* of warp operations, alternating, so that one barrier each is enough */
    unsigned operations[HOST_THREADS_MAX];
    int count[2]; /* of __syncthreads_count, alternating */
    unsigned counts[HOST_THREADS_MAX];
    void (*kernel)(const uint64_t *arguments);
    const uint64_t *arguments;
    char *stacks;
} host;

/* Leaves `from` and goes on with `to`. swapcontext takes two system calls; jumps take none, but a fortified C library
 * aborts at them. */
static void host_switch(host_context *from, host_context *to)
{
#if defined(_FORTIFY_SOURCE) && _FORTIFY_SOURCE > 0
    swapcontext(&from->start, &to->start);
#else
    if (_setjmp(from->place) != 0) return;
    if (to->started) _longjmp(to->place, 1);
    to->started = true;
    setcontext(&to->start);
#endif
}

static void host_yield(void)
{
    host_switch(&host.thread[host.current], &host.scheduler);
}

static void host_release(host_barrier *barrier)
{
    if (barrier->alive == 0 || barrier->arrived < barrier->alive) return;
    barrier->arrived = 0;
    barrier->epoch++;
}

static void host_wait(host_barrier *barrier)
{
    unsigned epoch = barrier->epoch;
    barrier->arrived++;
    host_release(barrier);
    while (barrier->epoch == epoch) host_yield();
}

static void host_thread_main(void)
{
    for (int thread = host.current;;) {
        host.kernel(host.arguments);
        host.done[thread] = true;
        host.block.alive--;
        host.warp[thread / 32].alive--;
        host_release(&host.block);
        host_release(&host.warp[thread / 32]);
        host_yield(); /* until the next block */
    }
}

static void host_make_threads(void)
{
    host.scheduler.started = true;
    host.stacks = malloc((size_t)HOST_THREADS_MAX * HOST_STACK);
    if (host.stacks == NULL) abort();
    for (int i = 0; i < HOST_THREADS_MAX; i++) {
        getcontext(&host.thread[i].start);
        host.thread[i].start.uc_stack.ss_sp = host.stacks + (size_t)i * HOST_STACK;
        host.thread[i].start.uc_stack.ss_size = HOST_STACK;
        makecontext(&host.thread[i].start, host_thread_main, 0);
    }
}

static void host_draw_order(reference_rng *rng, int *order, int count)
{
    for (int i = 0; i < count; i++) {
        int j = (int)reference_below(rng, (uint32_t)i + 1);
        order[i] = order[j];
        order[j] = i;
    }
}

static void host_start_block(int threads)
{
    host.threads = threads;
    host.block = (host_barrier){.alive = threads};
    for (int w = 0; w < HOST_WARPS_MAX; w++)
        host.warp[w] = (host_barrier){.alive = threads > w * 32 ? (threads - w * 32 < 32 ? threads - w * 32 : 32) : 0};
    memset(host.operations, 0, sizeof host.operations);
    memset(host.counts, 0, sizeof host.counts);
    memset(host.count, 0, sizeof host.count);
    for (int i = 0; i < threads; i++) host.done[i] = false;
}

static void host_run_block(const int *order)
{
    unsigned idle = 0; /* rounds in which no barrier opened and no thread ended */
    for (int alive = host.threads; alive > 0;) {
        unsigned before = host.block.epoch, after;
        for (int w = 0; w < HOST_WARPS_MAX; w++) before += host.warp[w].epoch;
        for (int i = 0; i < host.threads; i++) {
            host.current = order[i];
            if (host.done[host.current]) continue;
            threadIdx = (host_dim){(unsigned)host.current, 0, 0};
            host_switch(&host.scheduler, &host.thread[host.current]);
        }
        after = host.block.epoch;
        for (int w = 0; w < HOST_WARPS_MAX; w++) after += host.warp[w].epoch;
        idle = host.block.alive == alive && before == after ? idle + 1 : 0;
        alive = host.block.alive;
        if (idle > 2) {
            fprintf(stderr, "cuda_on_host: block (%u, %u) waits for threads that do not come\n", blockIdx.x,
                    blockIdx.y);
            abort();
        }
    }
}

/* Runs a kernel; `kernel` calls the entry with these arguments. */
static void host_launch(void (*kernel)(const uint64_t *), const uint64_t *arguments, const uint32_t grid[3],
                        int threads, reference_rng *rng)
{
    int order[HOST_THREADS_MAX], blocks = (int)(grid[0] * grid[1] * grid[2]),
                                 *block_order = malloc((size_t)blocks * sizeof *block_order);
    if (host.stacks == NULL) host_make_threads();
    if (block_order == NULL) abort();
    host.kernel = kernel;
    host.arguments = arguments;
    host_draw_order(rng, order, threads);
    host_draw_order(rng, block_order, blocks);
    for (int i = 0; i < blocks; i++) {
        unsigned block = (unsigned)block_order[i];
        blockIdx = (host_dim){block % grid[0], block / grid[0] % grid[1], block / grid[0] / grid[1]};
        host_start_block(threads);
        host_run_block(order);
    }
    free(block_order);
}

/* ---- Barriers and warp operations ---- */

static inline void host_syncthreads(void)
{
    host_wait(&host.block);
}

static inline int host_syncthreads_count(int predicate)
{
    int *count = &host.count[host.counts[host.current]++ % 2];
    *count += predicate != 0;
    host_wait(&host.block);
    int result = *count;
    host_wait(&host.block);
    *count = 0;
    return result;
}

/* All lanes bring a word; returns the words of this warp. */
static inline const union host_word *host_exchange(union host_word mine)
{
    union host_word *words = host.exchange[host.operations[host.current]++ % 2];
    words[host.current] = mine;
    host_wait(&host.warp[host.current / 32]);
    return words + host.current / 32 * 32;
}

static inline float host_shuffle_number(float x, int mask)
{
    return host_exchange((union host_word){.number = x})[(host.current % 32) ^ mask].number;
}

static inline unsigned host_shuffle_word(unsigned x, int mask)
{
    return host_exchange((union host_word){.word = x})[(host.current % 32) ^ mask].word;
}

static inline unsigned host_ballot(bool predicate)
{
    const union host_word *words = host_exchange((union host_word){.word = predicate});
    unsigned ballot = 0;
    for (int lane = 0; lane < 32; lane++) ballot |= words[lane].word << lane;
    return ballot;
}

#define __syncthreads()                host_syncthreads()
#define __syncthreads_count(predicate) host_syncthreads_count(predicate)
#define __shfl_xor_sync(lanes, value, mask)                                                                            \
    _Generic((value), float : host_shuffle_number, unsigned : host_shuffle_word)(value, mask)
#define __ballot_sync(lanes, predicate) host_ballot(predicate)
#define __all_sync(lanes, predicate)    (host_ballot(predicate) == 0xffffffffu)

/* ---- The rest ---- */

#define ENTRY(threads, blocks) static void
#define DEVICE                 static inline __attribute__((unused))
#define __shared__             static

#define OF(prefix, type)          OF_EXPANDED(prefix, type)
#define OF_EXPANDED(prefix, type) prefix##type

typedef struct uint2 {
    _Alignas(8) unsigned x;
    unsigned y;
} uint2;

typedef struct uint4 {
    _Alignas(16) unsigned x;
    unsigned y, z, w;
} uint4;

typedef struct float4 {
    _Alignas(16) float x;
    float y, z, w;
} float4;

typedef uint16_t memory_bf16, memory_f16;

#define float_from_bf16 reference_from_bf16
#define float_from_f16  reference_from_f16
#define bf16_from_float reference_to_bf16
#define f16_from_float  reference_to_f16

static inline float host_number_of(unsigned bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline unsigned host_bits_of(float x)
{
    unsigned bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline unsigned host_byte_permute(unsigned a, unsigned b, unsigned selector)
{
    uint64_t bytes = (uint64_t)b << 32 | a;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) result |= (unsigned)(bytes >> (selector >> (4 * i) & 7) * 8 & 0xff) << (8 * i);
    return result;
}

static inline int host_atomic_min_int(int *place, int value)
{
    int old = *place;
    if (value < old) *place = value;
    return old;
}

static inline unsigned host_atomic_min_unsigned(unsigned *place, unsigned value)
{
    unsigned old = *place;
    if (value < old) *place = value;
    return old;
}

static inline unsigned host_atomic_add(unsigned *place, unsigned value)
{
    unsigned old = *place;
    *place += value;
    return old;
}

static inline void wait_for_previous_kernel(void) {}

#define __uint_as_float(bits)       host_number_of(bits)
#define __float_as_uint(x)          host_bits_of(x)
#define __byte_perm(a, b, selector) host_byte_permute(a, b, selector)
#define __fdiv_rn(a, b)             ((a) / (b))
#define __fmaf_rn(a, b, c)          fmaf(a, b, c)
#define __ffs(x)                    ffs(x)
#define __ldcg(place)               (*(place))
#define __threadfence()             ((void)0)
#define atomicMin(place, value)                                                                                        \
    _Generic((place), int * : host_atomic_min_int, unsigned * : host_atomic_min_unsigned)(place, value)
#define atomicAdd(place, value) host_atomic_add(place, value)

#endif
