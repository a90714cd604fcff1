/* Kernels that nvcc compiled from tests/kernels, run in the interpreter under every schedule; each test compares what
 * they leave in memory with the same computation in C. */
#ifndef EMULATOR_KERNEL_FIXTURE_H
#define EMULATOR_KERNEL_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulator.h"

enum { ARGUMENTS_MAX = 16, PRINTED_MAX = 8192, SEEDS = 3 };

/* A launch: its arguments are numbers or buffers of one memory. */
typedef struct bench {
    emulator_module *module;
    emulator_memory *memory;
    emulator_variables *variables;
    emulator_launch_config config;
    uint64_t value[ARGUMENTS_MAX];
    void *parameter[ARGUMENTS_MAX];
    int arguments;
    emulator_error error;
    char printed[PRINTED_MAX];
    size_t printed_length;
} bench;

static inline char *read_kernel(const char *name, size_t *length)
{
    char path[256];
    snprintf(path, sizeof path, "tests/kernels/%s.ptx", name);
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("no %s", path);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long bytes = ftell(file);
    rewind(file);
    char *text = calloc(1, (size_t)bytes + 1);
    assert_non_null(text);
    *length = fread(text, 1, (size_t)bytes, file);
    fclose(file);
    return text;
}

static inline void bench_print(void *context, const char *text, size_t length)
{
    bench *b = context;
    if (length > PRINTED_MAX - 1 - b->printed_length) length = PRINTED_MAX - 1 - b->printed_length;
    memcpy(b->printed + b->printed_length, text, length);
    b->printed_length += length;
    b->printed[b->printed_length] = '\0';
}

static inline void bench_start_text(bench *b, const char *text, size_t length, const char *entry, uint32_t grid,
                                    uint32_t block)
{
    memset(b, 0, sizeof *b);
    b->module = emulator_module_parse(text, length, entry, &b->error);
    if (!b->module) fail_msg("%s: line %d: %s", entry, b->error.line, b->error.message);
    b->memory = emulator_memory_create();
    assert_non_null(b->memory);
    b->variables = emulator_variables_create(b->module, b->memory);
    assert_non_null(b->variables);
    b->config = (emulator_launch_config){.module = b->module,
                                         .entry = entry,
                                         .grid = {grid, 1, 1},
                                         .block = {block, 1, 1},
                                         .parameters = b->parameter,
                                         .memory = b->memory,
                                         .variables = b->variables,
                                         .print = bench_print,
                                         .print_context = b,
                                         .judge = true};
}

static inline void bench_start(bench *b, const char *name, const char *entry, uint32_t grid, uint32_t block)
{
    size_t length;
    char *text = read_kernel(name, &length);
    bench_start_text(b, text, length, entry, grid, block);
    free(text);
}

static inline void bench_finish(bench *b)
{
    emulator_variables_destroy(b->variables);
    emulator_memory_destroy(b->memory);
    emulator_module_destroy(b->module);
}

/* ---- Arguments, in order ---- */

static inline void add_value(bench *b, uint64_t bits)
{
    assert_true(b->arguments < ARGUMENTS_MAX);
    b->value[b->arguments] = bits;
    b->parameter[b->arguments] = &b->value[b->arguments];
    b->arguments++;
}
static inline void add_int(bench *b, int v)
{
    add_value(b, (uint32_t)v);
}

/* Zeros, or what the kernel must write all of. */
static inline void *add_buffer(bench *b, size_t bytes, bool defined)
{
    uint64_t address = emulator_memory_allocate(b->memory, bytes);
    assert_true(address != 0);
    memset((void *)(uintptr_t)address, defined ? 0 : 0xa5, bytes);
    if (defined) emulator_memory_define(b->memory, address, bytes);
    add_value(b, address);
    return (void *)(uintptr_t)address;
}
static inline void *add_input(bench *b, size_t bytes)
{
    return add_buffer(b, bytes, true);
}
static inline void *add_output(bench *b, size_t bytes)
{
    return add_buffer(b, bytes, false);
}

/* ---- Runs ---- */

static inline bool bench_launch(bench *b, int schedule, uint64_t seed)
{
    b->config.schedule = (emulator_schedule)schedule;
    b->config.seed = seed;
    b->printed_length = 0;
    return emulator_launch(&b->config, NULL, &b->error);
}

static inline void bench_run(bench *b, int schedule, uint64_t seed)
{
    if (!bench_launch(b, schedule, seed))
        fail_msg("%s, %s, seed %d: %s at line %d, block %d, warp %d: %s\n%s", b->config.entry,
                 emulator_schedule_name((emulator_schedule)schedule), (int)seed, emulator_fault_name(b->error.fault),
                 b->error.line, b->error.block, b->error.warp, b->error.message, b->error.detail);
}

/* for each schedule and some seeds */
#define FOR_SCHEDULES(schedule, seed)                                                                                  \
    for (int schedule = 0; schedule < EMULATOR_SCHEDULE_COUNT; schedule++)                                             \
        for (uint64_t seed = 0; seed < SEEDS; seed++)

/* ---- Planted bugs ---- */

/* The text with `old` replaced once by `new`, which must be as it is expected. */
static inline char *plant(const char *name, const char *old, const char *new, size_t *length)
{
    size_t bytes;
    char *text = read_kernel(name, &bytes), *at = strstr(text, old);
    assert_non_null(at); /* the text has it */
    size_t before = (size_t)(at - text), cut = strlen(old), put = strlen(new);
    char *changed = calloc(1, bytes + put + 1);
    assert_non_null(changed);
    memcpy(changed, text, before);
    memcpy(changed + before, new, put);
    memcpy(changed + before + put, at + cut, bytes - before - cut);
    *length = bytes - cut + put;
    free(text);
    return changed;
}

/* The number of the line on which a word stands first, or its n-th (from 0). */
static inline int line_of(const char *text, const char *word, int n)
{
    const char *at = strstr(text, word);
    for (; at && n > 0; n--) at = strstr(at + 1, word);
    assert_non_null(at);
    int line = 1;
    for (const char *c = text; c < at; c++) line += *c == '\n';
    return line;
}

/* Some schedule must find it, with this kind on this line (0: any), and with this in the message. */
static inline void expect_fault(bench *b, emulator_fault fault, int line, const char *says)
{
    FOR_SCHEDULES(schedule, seed)
    {
        if (bench_launch(b, schedule, seed)) continue;
        if (b->error.fault != fault || (line && b->error.line != line) || !strstr(b->error.message, says))
            fail_msg("expected %s on line %d (%s), got %s on line %d: %s", emulator_fault_name(fault), line, says,
                     emulator_fault_name(b->error.fault), b->error.line, b->error.message);
        return;
    }
    fail_msg("nothing was found; expected %s on line %d", emulator_fault_name(fault), line);
}

#endif
