/* Arguments of a kernel as they are written in a call: numbers with their type, and buffers with what is in them. */
#ifndef FOSCAR_TOOLS_KERNEL_ARGUMENTS_H
#define FOSCAR_TOOLS_KERNEL_ARGUMENTS_H

#include "command.h"
#include "emulator.h"

/* One line for --help and messages. */
#define KERNEL_ARGUMENTS_HELP                                                                                          \
    "17, u32:17, f32:0.5 (u8 to s64, f16, bf16, f32, f64), bytes:00ff (hexadecimal), buf:BYTES (zeros), "              \
    "buf:BYTES=ramp:TYPE, =random:TYPE, =TYPE:NUMBER, =undefined, buf=@FILE; BYTES may end in K, M or G"

typedef struct kernel_argument {
    const char *word; /* as it was written */
    uint8_t value[8]; /* of a number; of a buffer its address in the memory of the run */
    uint8_t *bytes;   /* of `bytes:` the value; of a buffer what is in it at first; NULL: undefined */
    uint64_t size;    /* of a number, of bytes, of the buffer */
    bool is_buffer;
    char name[32]; /* "argument 2" */
} kernel_argument;

/* Reads the words for an entry's parameters; `seed` is that of random numbers. False after a report. On success and
   failure to be finished. */
bool kernel_arguments_read(const command *c, const option_words *words, const emulator_module *module, int number,
                           uint64_t seed, kernel_argument **out);
void kernel_arguments_finish(kernel_argument *arguments, int count);

/* Puts the buffers into a memory; false: no memory. */
bool kernel_arguments_place(kernel_argument *arguments, int count, emulator_memory *memory);

#endif
