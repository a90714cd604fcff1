/* What the ways of foscar check share: its arguments, and what the runs of each mode found. */
#ifndef FOSCAR_TOOLS_CHECK_H
#define FOSCAR_TOOLS_CHECK_H

#include "command.h"
#include "interpreter.h"

typedef struct check_arguments {
    int64_t schedules, seed; /* seed < 0: from the clock */
    int64_t blocks;          /* SMs of the interpreter's device */
    const char *spec;        /* of a file */
    int mode;                /* 0: all; else an emulator_schedule + 1 */
    bool json, counts, exact;
    /* Of an entry that is launched as it is */
    const char *entry, *grid, *block, *cluster, *output;
    int64_t shared, budget, data_seed;
    option_words args;
} check_arguments;

/* The options with which an entry of a file is launched. */
#define CHECK_LAUNCH_OPTIONS "--entry --grid --block --cluster --shared --args --data-seed --output --budget"

/* ---- check_modes.c ---- */

/* What the runs of one mode found. */
typedef struct mode_result {
    int runs, findings;
    uint64_t seed; /* of the first finding */
    bool is_fault; /* the first finding is the interpreter's; else a result that is wrong */
    emulated_fault fault;
    char text[EMULATOR_MESSAGE_MAX + 256];
} mode_result;

/* fault NULL: a result that is wrong, as `text` says. */
void mode_add_finding(mode_result *m, uint64_t seed, const emulated_fault *fault, const char *text);
bool mode_chosen(const check_arguments *args, int mode);
int modes_findings(const mode_result modes[EMULATOR_SCHEDULE_COUNT]);
/* A row for each mode that was run. */
void modes_print(const mode_result modes[EMULATOR_SCHEDULE_COUNT]);
/* The first finding of each mode in full, once where modes found the same; `text` is the PTX, for the line (NULL:
   none); `again` and `rest` are the call that repeats it, before and behind the mode. */
void modes_print_findings(const mode_result modes[EMULATOR_SCHEDULE_COUNT], const char *text, const char *again,
                          const char *rest);
cJSON *modes_json(const mode_result modes[EMULATOR_SCHEDULE_COUNT]);

/* ---- check_entry.c ---- */

/* Launches an entry of a text under the schedules, with the call's own arguments. */
tool_exit check_launch(const command *self, const check_arguments *args, const char *path, const char *text,
                       size_t length);

/* A text that the interpreter refuses is one finding, and has no runs. */
tool_exit check_report_refused(const command *self, const char *operand, const char *spec, bool is_file,
                               const emulated_fault *fault);

#endif
