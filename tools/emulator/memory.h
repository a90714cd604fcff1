/* Global memory from inside: blocks of the device's memory, and which of their bytes are defined. */
#ifndef FOSCAR_EMULATOR_MEMORY_H
#define FOSCAR_EMULATOR_MEMORY_H

#include "emulator.h"

typedef struct memory_block {
    uint64_t address, bytes;
    void *storage;            /* what was allocated; address lies in it, with a margin on either side */
    uint64_t *defined;        /* a bit for each byte */
    uint64_t undefined_bytes; /* 0: the map need not be read */
    const char *name;         /* for messages, or NULL; not owned */
    bool constant;            /* kernels do not write it */
    bool heap;                /* of a kernel's malloc */
} memory_block;

/* The block that holds all these bytes, or NULL. Valid until the next allocation or release. */
memory_block *memory_find(const emulator_memory *memory, uint64_t address, uint64_t bytes);

bool memory_block_defined(const memory_block *block, uint64_t address, uint64_t bytes);
void memory_block_define(memory_block *block, uint64_t address, uint64_t bytes);

/* "3 bytes past the end of the 4096 bytes at 0x7f0012340000", for a message about bytes that no block holds. */
void memory_describe(const emulator_memory *memory, uint64_t address, char *text, size_t size);

#endif
