/* What the subcommands share: exit codes, the option parser, output to files and as JSON. */
#ifndef FOSCAR_TOOLS_COMMAND_H
#define FOSCAR_TOOLS_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cJSON.h>

#include "config.h"
#include "foscar.h"

/* Exit codes of every subcommand. EXIT(name, number, word, meaning); the word is the "kind" of an error in JSON. */
#define TOOL_EXITS(EXIT)                                                                                               \
    EXIT(OK, 0, "ok", "success")                                                                                       \
    EXIT(FAILED, 1, "failed", "a check was not met, or something failed")                                              \
    EXIT(USAGE, 2, "usage", "wrong arguments, a wrong spec or a wrong input file")                                     \
    EXIT(ENVIRONMENT, 3, "environment", "something of the machine is missing: GPU, driver, ptxas, NVRTC")

typedef enum tool_exit {
#define EXIT(name, number, word, meaning) TOOL_##name = (number),
    TOOL_EXITS(EXIT)
#undef EXIT
} tool_exit;

typedef enum option_kind {
    OPTION_FLAG,   /* bool */
    OPTION_NUMBER, /* int64_t within minimum .. maximum */
    OPTION_TEXT,   /* const char *, points into argv */
    OPTION_WORDS,  /* option_words: all words up to the next option, of every time it is given */
    OPTION_CHOICE  /* int, index of the word among those of `value`, which '|' separates */
} option_kind;

typedef struct option_words {
    const char **words; /* point into argv; the array is the caller's to free, also after a mistake */
    int count;
} option_words;

typedef struct option {
    const char *name;  /* "--output" */
    const char *alias; /* "-o" or NULL */
    option_kind kind;
    size_t offset;     /* of the value in the subcommand's struct of arguments */
    const char *value; /* placeholder, or the choices "padded|csr"; NULL for a flag */
    const char *help;
    int64_t minimum, maximum;
} option;

typedef struct command {
    const char *name, *arguments, *summary, *example;
    const option *options;
    int option_count;
    int least, most; /* operands; most < 0: any number */
    tool_exit (*run)(const struct command *self, int argc,
                     char **argv); /* argv[0] is the first argument after the name */
} command;

extern const command command_list, command_emit, command_inspect, command_run, command_check, command_bench,
    command_accuracy, command_doctor;

/* Prints the help of one subcommand. */
void command_help(const command *c, FILE *out);

/* What a call consists of. */
typedef struct option_call {
    int operands;   /* their number; they are at the front of argv */
    uint64_t given; /* bit i: options[i] of the command */
    tool_exit code; /* if it cannot go on: after --help (OK) or a mistake that was reported (USAGE) */
} option_call;

/* Fills `arguments` from argv. False: the subcommand returns out->code. */
bool options_parse(const command *c, int argc, char **argv, void *arguments, option_call *out);

/* No option is ignored without a word: false if one of `names` (separated by spaces) was given, after the report
   "option NAME means nothing WHY"; or, of the second, if one was given that is none of them. */
bool options_refuse(const command *c, const option_call *call, const char *names, const char *why);
bool options_refuse_but(const command *c, const option_call *call, const char *names, const char *why);

/* ---- Reasons and documents (report.c) ----
 *
 * With --json, standard output is one JSON document in every outcome, printed at the end: what tool_print_json was
 * given, and a member "error" of it (or alone) if a reason was given: {"kind": "usage", "message": ..., and what there
 * is of "file", "line", "status" (of the library), "fault" (of the interpreter)}. Bytes that are not UTF-8 become
 * U+FFFD. */

void report_begin(int argc, char **argv); /* of main: looks for --json */
bool report_end(void);                    /* prints the document; false: standard output took not all, as was told */

/* "foscar COMMAND: message" on stderr, one line (control characters become '?'), and the error of the document if it is
   the first; returns code. c NULL: of the program. */
tool_exit tool_fail(const command *c, tool_exit code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The same; the members of `details`, which is taken over, go into the error. A "message" there stands for the text. */
tool_exit tool_fail_with(const command *c, tool_exit code, cJSON *details, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
cJSON *tool_file_details(const char *path); /* {"file": path} */

/* The same for a failed call of the library: ENVIRONMENT where something of the machine is missing, USAGE for a wrong
 * spec, else FAILED. */
tool_exit tool_fail_status(const command *c, const foscar_error *err);
tool_exit tool_exit_of(foscar_status status);

/* The error of the document, for the caller to place elsewhere; NULL: none. The next reason takes its place. */
cJSON *tool_take_error(void);

/* The document of this call, taken over; a second one replaces the first. Nothing without --json. */
void tool_print_json(cJSON *json);

/* A long text on standard output. */
void tool_print_text(const char *text, size_t length);

bool tool_is_utf8(const char *text, size_t length);

/* Where a text for people goes: standard output, or with --json the member `name` of the document. */
FILE *tool_text_begin(void);
void tool_text_end(FILE *file, const char *name);

/* Zeroed memory for the caller to free; the program ends with a message when there is none. */
void *tool_allocate(size_t bytes);
_Noreturn void tool_out_of_memory(void);

/* ---- Arguments and files (options.c) ---- */

/* Parses a spec or reports what is wrong with it. */
bool tool_parse_spec(const command *c, const char *spec, config *out);

/* The whole of a regular file with a NUL behind it, malloc'd; NULL, with the file and the reason in err, on failure or
 * if it is longer than `limit` bytes. */
char *tool_read_file(const char *path, size_t limit, size_t *length, gen_error *err);

/* The end of a name, so that the reason fits behind it in a gen_error. */
const char *tool_short_path(const char *path);

/* Writes a file by way of a temporary one in the same directory: path holds either all of it or what it held before.
 * Reports failures. */
bool tool_write_file(const command *c, const char *path, const void *data, size_t bytes);

/* The given seed, or one from the clock if it is negative; small enough to be typed. */
uint64_t tool_seed(int64_t given);

#endif
