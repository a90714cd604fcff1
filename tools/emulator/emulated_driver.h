/* The CUDA driver's calls over the PTX interpreter: a runtime that is opened with this table (toolkit_open_with_driver)
 * runs its kernels on the CPU. PTX is loaded, not machine code. A launch is over when its call returns; a fault makes
 * the launch, and all that follows in that context, fail with CUDA_ERROR_LAUNCH_FAILED.
 *
 * A process has at most one emulated driver at a time, since the calls carry no pointer to their driver. */
#ifndef FOSCAR_EMULATED_DRIVER_H
#define FOSCAR_EMULATED_DRIVER_H

#include "driver.h"
#include "emulator.h"

/* How kernels are run. Launch number n (from 0) after emulated_driver_configure runs with seed + n. */
typedef struct emulated_execution {
    emulator_schedule schedule;
    uint64_t seed;
    uint64_t instruction_budget; /* of emulator_launch_config */
    bool fast, judge;            /* of emulator_launch_config */
} emulated_execution;

enum { EMULATED_DEVICES_MAX = 8, EMULATED_SM_DEFAULT = 4 };

typedef struct emulated_options {
    int devices;            /* 1 to EMULATED_DEVICES_MAX; 0: 1 */
    int sm_count;           /* of each; 0: EMULATED_SM_DEFAULT */
    int compute_capability; /* 90 for sm_90a */
    emulated_execution execution;
    bool counting; /* for emulated_driver_counts */
    /* A text of `substitute_length` bytes that is run instead of any loaded text that has an entry of one of its names,
       or NULL; copied. */
    const char *substitute;
    size_t substitute_length;
} emulated_options;

/* Makes the process's emulated driver and fills the table, whose calls work until emulated_driver_destroy. Failures:
   OUT_OF_MEMORY; INVALID_ARGUMENT, if there is one already or the options make no sense. */
foscar_status emulated_driver_create(const emulated_options *options, driver *out, foscar_error *err);

/* Frees everything that was made through the calls: device memory, libraries, streams, graphs. */
void emulated_driver_destroy(void);

/* For all launches from now on. */
void emulated_driver_configure(const emulated_execution *execution);

/* What went wrong first in the interpreter since the last emulated_driver_forgive. */
typedef struct emulated_fault {
    emulator_error error;
    char entry[64]; /* of the kernel; empty if a text was refused */
    uint64_t seed;  /* of the launch */
} emulated_fault;

bool emulated_driver_fault(emulated_fault *out); /* false: nothing */
void emulated_driver_forgive(void);              /* forgets it, and contexts work again */

/* How often the warps of all launches of an entry executed each of its instructions, with `counting`. The row is the
   caller's, to be freed by emulator_counts_finish; *module is valid until the library is unloaded, *entry is its number
   there. False: no launch of such an entry, or no memory. */
bool emulated_driver_counts(const char *name, emulator_counts *out, const emulator_module **module, int *entry);
void emulated_driver_forget_counts(void);

#endif
