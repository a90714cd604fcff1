/* Any text that is a module runs to its end or to a fault that is reported, in bounded time, and the same
 * way twice: entries are launched with one small block and a small budget, ordering judged. libFuzzer, by
 * tools/fuzz.sh. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "emulator.h"

enum {
    ENTRIES_MAX = 3, /* launched of a module */
    THREADS = 64,    /* of a block, where the text does not say how many */
    THREADS_MAX = 256,
    BUDGET = 1000,          /* warp instructions: an input takes well under a second */
    BUFFER_BYTES = 1 << 12, /* of zeros, to which parameters of 8 bytes point */
    SHARED_BYTES = 1 << 14,
    PARAMETERS_MAX = 64,
    PARAMETER_BYTES_MAX = 1 << 12,
    LOCAL_BYTES_MAX = 1 << 12
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds) abort();
}

/* The block's shape that the entry asks for; false: it is larger than what is launched here. */
static bool choose_block(const emulator_entry_info *about, uint32_t block[3])
{
    uint64_t threads = 1;
    block[0] = THREADS;
    block[1] = block[2] = 1;
    for (int d = 0; about->required_threads[0] && d < 3; d++) block[d] = about->required_threads[d];
    for (int d = 0; d < 3; d++) {
        threads *= block[d];
        if (threads > THREADS_MAX) return false;
    }
    return about->local_bytes <= LOCAL_BYTES_MAX;
}

static void check_outcome(bool passed, const emulator_error *error, const emulator_counts *counts, int instructions)
{
    check(passed == (error->fault == EMULATOR_OK));
    check(error->fault < EMULATOR_FAULT_COUNT);
    check(passed || *error->message);
    check(error->line >= 0 && error->block >= -1 && error->warp >= -1);
    check(memchr(error->message, '\0', sizeof error->message) && memchr(error->detail, '\0', sizeof error->detail));
    if (counts->executed) check(counts->count == instructions);
}

/* One launch over zeroed memory. */
static emulator_error launch(const emulator_launch_config *config, const emulator_entry_info *about, uint64_t buffer)
{
    static emulator_error error;
    emulator_counts counts;
    memset((void *)(uintptr_t)buffer, 0, BUFFER_BYTES);
    bool passed = emulator_launch(config, &counts, &error);
    check_outcome(passed, &error, &counts, about->instructions);
    emulator_counts_finish(&counts);
    return error;
}

/* The address of the buffer, and zeros; false: larger than what is launched here. */
static bool choose_parameters(const emulator_module *m, int number, int count, const uint64_t *buffer,
                              void *parameters[PARAMETERS_MAX])
{
    static uint64_t zeros[PARAMETER_BYTES_MAX / 8];
    if (count > PARAMETERS_MAX) return false;
    for (int p = 0; p < count; p++) {
        uint32_t bytes = emulator_module_parameter_bytes(m, number, p);
        if (bytes > PARAMETER_BYTES_MAX) return false;
        parameters[p] = bytes == sizeof *buffer ? (void *)(uintptr_t)buffer : zeros;
    }
    return true;
}

static void run_entry(const emulator_module *m, int number, uint64_t seed)
{
    emulator_memory *memory = emulator_memory_create();
    check(memory != NULL);
    uint64_t buffer = emulator_memory_allocate(memory, BUFFER_BYTES);
    check(buffer != 0);
    emulator_memory_define(memory, buffer, BUFFER_BYTES);
    void *parameters[PARAMETERS_MAX];
    emulator_entry_info about;
    emulator_module_entry_info(m, number, &about);
    emulator_launch_config config = {.module = m,
                                     .entry = emulator_module_entry_name(m, number),
                                     .grid = {1, 1, 1},
                                     .shared_bytes = SHARED_BYTES,
                                     .parameters = parameters,
                                     .memory = memory,
                                     .schedule = (emulator_schedule)(seed % EMULATOR_SCHEDULE_COUNT),
                                     .seed = seed,
                                     .instruction_budget = BUDGET,
                                     .judge = true};
    if (choose_block(&about, config.block) && choose_parameters(m, number, about.parameters, &buffer, parameters)) {
        emulator_error first = launch(&config, &about, buffer), second = launch(&config, &about, buffer);
        check(first.fault == second.fault && first.line == second.line && first.warp == second.warp);
    }
    emulator_memory_destroy(memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static emulator_error error;
    emulator_module *m = emulator_module_parse((const char *)data, size, "fuzz", &error);
    if (!m) return 0;
    for (int k = 0; k < emulator_module_entries(m) && k < ENTRIES_MAX; k++) run_entry(m, k, size);
    emulator_module_destroy(m);
    return 0;
}
