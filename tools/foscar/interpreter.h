/* A runtime over the PTX interpreter, for `run --cpu` and `check`, and how its faults are told. */
#ifndef FOSCAR_TOOLS_INTERPRETER_H
#define FOSCAR_TOOLS_INTERPRETER_H

#include "command.h"
#include "emulated_driver.h"

/* The names of the schedules for an OPTION_CHOICE, in the order of emulator_schedule, and the same after "all". */
#define INTERPRETER_WORD(id, name, meaning) "|" name
#define INTERPRETER_SCHEDULES               (&(EMULATOR_SCHEDULES(INTERPRETER_WORD))[1])
#define INTERPRETER_MODES                   "all" EMULATOR_SCHEDULES(INTERPRETER_WORD)

/* Makes the emulated driver and opens a runtime over it; one at a time. To be closed by interpreter_close. */
bool interpreter_open(const emulated_options *options, foscar_runtime **runtime, foscar_error *err);
void interpreter_close(foscar_runtime *runtime); /* NULL is fine */

/* "race at line 812 of foscar_decode, block 3, warp 2: message". */
void interpreter_describe(const emulated_fault *fault, char *text, size_t size);

/* Prints the line, after "foscar COMMAND: ", and those of the waiting warps; returns FAILED. `file` holds the text, or
   is NULL. */
tool_exit interpreter_report(const command *c, const char *file, const emulated_fault *fault);

cJSON *interpreter_fault_json(const emulated_fault *fault);

#endif
