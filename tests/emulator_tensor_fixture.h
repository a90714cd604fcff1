/* For the tests of wgmma and tcgen05 as kernels: texts with lines that a test takes out or exchanges, launches, and
 * what they report. */
#ifndef FOSCAR_TESTS_EMULATOR_TENSOR_FIXTURE_H
#define FOSCAR_TESTS_EMULATOR_TENSOR_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tensor.h"

enum { TEXT_MAX = 1 << 16, PARAMETERS_MAX = 8 };

typedef struct text_buffer {
    char text[TEXT_MAX];
} text_buffer;

__attribute__((format(printf, 2, 3))) static inline void add(text_buffer *t, const char *format, ...)
{
    size_t length = strlen(t->text);
    va_list arguments;
    va_start(arguments, format);
    int written = vsnprintf(t->text + length, TEXT_MAX - length, format, arguments);
    va_end(arguments);
    assert_true(written >= 0 && (size_t)written < TEXT_MAX - length);
}

/* {%d0, %d1, ...} */
static inline void add_list(text_buffer *t, const char *prefix, int first, int count)
{
    add(t, "{");
    for (int r = 0; r < count; r++) add(t, "%s%%%s%d", r ? ", " : "", prefix, first + r);
    add(t, "}");
}

/* Puts `instead` in place of the rest of the line that ends with // and the mark; the mark must be there. */
static inline void change(text_buffer *t, const char *mark, const char *instead)
{
    char wanted[64];
    snprintf(wanted, sizeof wanted, "// @%s\n", mark);
    char *found = strstr(t->text, wanted);
    assert_non_null(found);
    char *begin = found;
    while (begin > t->text && begin[-1] != '\n') begin--;
    size_t length = strlen(t->text), tail = length - (size_t)(found - t->text), size = strlen(instead);
    assert_true(length + size < TEXT_MAX);
    memmove(begin + size, found, tail + 1);
    memcpy(begin, instead, size);
}

typedef struct run_options {
    emulator_schedule schedule;
    uint64_t seed;
    uint32_t threads, shared_bytes;
    bool fast, ordering_ignored;
} run_options;

static inline emulator_fault run_text(const char *text, emulator_memory *memory, void *const *parameters,
                                      const run_options *options, emulator_error *error)
{
    memset(error, 0, sizeof *error);
    emulator_module *module = emulator_module_parse(text, strlen(text), "test", error);
    if (!module) return error->fault;
    emulator_launch_config config = {
        .module = module,
        .entry = "kernel",
        .grid = {1, 1, 1},
        .block = {options->threads, 1, 1},
        .shared_bytes = options->shared_bytes,
        .parameters = parameters,
        .memory = memory,
        .schedule = options->schedule,
        .seed = options->seed,
        .fast = options->fast,
        .judge = !options->ordering_ignored,
    };
    bool passed = emulator_launch(&config, NULL, error);
    emulator_module_destroy(module);
    return passed ? EMULATOR_OK : error->fault;
}

static inline void expect_fault(emulator_fault got, emulator_fault wanted, const emulator_error *error)
{
    if (got == wanted) return;
    fail_msg("%s instead of %s; line %d, warp %d: %s\n%s", emulator_fault_name(got), emulator_fault_name(wanted),
             error->line, error->warp, error->message, error->detail);
}

static inline uint64_t device_copy(emulator_memory *memory, const void *bytes, size_t size)
{
    uint64_t address = emulator_memory_allocate(memory, size);
    assert_true(address != 0);
    memcpy((void *)(uintptr_t)address, bytes, size);
    emulator_memory_define(memory, address, size);
    return address;
}

static uint64_t random_state;

static inline uint32_t random_bits(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}

/* A number of a type in its bits; floats are finite and of a few neighbouring magnitudes. */
static inline uint16_t random_code(mma_type type)
{
    switch (type) {
    case MMA_F16:
        return (uint16_t)((random_bits() & 0x83ff) | (13 + random_bits() % 4) << 10);
    case MMA_BF16:
        return (uint16_t)((random_bits() & 0x807f) | (125 + random_bits() % 4) << 7);
    case MMA_E4M3:
        return (uint16_t)(random_bits() % 0x7f | (random_bits() & 0x80));
    case MMA_E5M2:
        return (uint16_t)((random_bits() & 0x83) | (12 + random_bits() % 6) << 2);
    case MMA_E2M3:
    case MMA_E3M2:
        return (uint16_t)(random_bits() & 0x3f);
    case MMA_E2M1:
        return (uint16_t)(random_bits() & 0xf);
    default:
        return (uint16_t)(random_bits() & 0xff);
    }
}

static inline int start_random(void **unused)
{
    (void)unused;
    random_state = (uint64_t)time(NULL) * 2654435761u;
    print_message("seed %llu\n", (unsigned long long)random_state);
    return 0;
}

#endif
