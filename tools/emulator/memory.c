/* The memory of an emulated device: blocks of this process's memory, sorted by address, with a margin around each that
 * belongs to none. */
#include "memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ALIGNMENT = 256,
    MARGIN = 4096
}; /* bytes; what runs past a block by less than the margin meets no other block */

struct emulator_memory {
    memory_block *blocks; /* sorted by address */
    int count, capacity;
    int recent; /* the block found last: an index, perhaps stale */
};

emulator_memory *emulator_memory_create(void)
{
    return calloc(1, sizeof(emulator_memory));
}

static void block_finish(memory_block *block)
{
    free(block->storage);
    free(block->defined);
}

void emulator_memory_destroy(emulator_memory *memory)
{
    if (memory == NULL) return;
    for (int i = 0; i < memory->count; i++) block_finish(&memory->blocks[i]);
    free(memory->blocks);
    free(memory);
}

/* How many blocks begin at or below the address. */
static int blocks_below(const emulator_memory *memory, uint64_t address)
{
    int low = 0, high = memory->count;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (memory->blocks[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool holds(const memory_block *block, uint64_t address, uint64_t bytes)
{
    return address >= block->address && bytes <= block->bytes && address - block->address <= block->bytes - bytes;
}

static bool reserve(emulator_memory *memory)
{
    if (memory->count < memory->capacity) return true;
    const int capacity = memory->capacity == 0 ? 16 : 2 * memory->capacity;
    memory_block *blocks = realloc(memory->blocks, (size_t)capacity * sizeof *blocks);
    if (blocks == NULL) return false;
    memory->blocks = blocks;
    memory->capacity = capacity;
    return true;
}

uint64_t emulator_memory_allocate(emulator_memory *memory, uint64_t bytes)
{
    if (bytes == 0 || bytes > SIZE_MAX / 2 || !reserve(memory)) return 0;
    memory_block block = {.bytes = bytes, .undefined_bytes = bytes};
    block.storage = calloc(1, (size_t)bytes + 2 * MARGIN + ALIGNMENT);
    block.defined = calloc((size_t)(bytes / 64 + 1), sizeof *block.defined);
    if (block.storage == NULL || block.defined == NULL) {
        block_finish(&block);
        return 0;
    }
    block.address = ((uint64_t)(uintptr_t)block.storage + MARGIN + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    const int at = blocks_below(memory, block.address);
    memmove(&memory->blocks[at + 1], &memory->blocks[at], (size_t)(memory->count - at) * sizeof block);
    memory->blocks[at] = block;
    memory->count++;
    return block.address;
}

bool emulator_memory_free(emulator_memory *memory, uint64_t address)
{
    const int at = blocks_below(memory, address) - 1;
    if (at < 0 || memory->blocks[at].address != address) return false;
    block_finish(&memory->blocks[at]);
    memory->count--;
    memmove(&memory->blocks[at], &memory->blocks[at + 1], (size_t)(memory->count - at) * sizeof *memory->blocks);
    return true;
}

memory_block *memory_find(const emulator_memory *memory, uint64_t address, uint64_t bytes)
{
    if (memory->recent < memory->count && holds(&memory->blocks[memory->recent], address, bytes))
        return &memory->blocks[memory->recent];
    const int at = blocks_below(memory, address) - 1;
    if (at < 0 || !holds(&memory->blocks[at], address, bytes)) return NULL;
    ((emulator_memory *)(uintptr_t)memory)->recent = at; /* a cache: looking something up changes nothing else */
    return &memory->blocks[at];
}

bool emulator_memory_contains(const emulator_memory *memory, uint64_t address, uint64_t bytes)
{
    return memory_find(memory, address, bytes) != NULL;
}

/* ---- Definedness: calls one(word, mask, ...) for each word of the map that bytes [first, first + bytes) touch ---- */

#define FOR_WORDS(first, bytes, word, mask, body)                                                                      \
    for (uint64_t at_ = (first), end_ = (first) + (bytes); at_ < end_;) {                                              \
        const uint64_t word = at_ / 64, bit_ = at_ % 64, room_ = 64 - bit_;                                            \
        const uint64_t here_ = end_ - at_ < room_ ? end_ - at_ : room_;                                                \
        const uint64_t mask = (UINT64_MAX >> (64 - here_)) << bit_;                                                    \
        body at_ += here_;                                                                                             \
    }

bool memory_block_defined(const memory_block *block, uint64_t address, uint64_t bytes)
{
    if (block->undefined_bytes == 0) return true;
    FOR_WORDS(address - block->address, bytes, word, mask, {
        if ((block->defined[word] & mask) != mask) return false;
    })
    return true;
}

void memory_block_define(memory_block *block, uint64_t address, uint64_t bytes)
{
    if (block->undefined_bytes == 0) return;
    FOR_WORDS(address - block->address, bytes, word, mask, {
        block->undefined_bytes -= (uint64_t)__builtin_popcountll(mask & ~block->defined[word]);
        block->defined[word] |= mask;
    })
}

void emulator_memory_name(emulator_memory *memory, uint64_t address, const char *name)
{
    memory_block *block = memory_find(memory, address, 1);
    if (block != NULL) block->name = name;
}

void emulator_memory_define(emulator_memory *memory, uint64_t address, uint64_t bytes)
{
    memory_block *block = memory_find(memory, address, bytes);
    if (block != NULL) memory_block_define(block, address, bytes);
}

bool emulator_memory_defined(const emulator_memory *memory, uint64_t address, uint64_t bytes)
{
    const memory_block *block = memory_find(memory, address, bytes);
    return block != NULL && memory_block_defined(block, address, bytes);
}

/* "the 64 bytes of argument 2"; without a name: "the 64 bytes at 0x..." */
static void describe_block(const memory_block *block, char *text, size_t size)
{
    if (block->name != NULL)
        snprintf(text, size, "the %" PRIu64 " bytes of %s", block->bytes, block->name);
    else
        snprintf(text, size, "the %" PRIu64 " bytes at 0x%" PRIx64, block->bytes, block->address);
}

void memory_describe(const emulator_memory *memory, uint64_t address, char *text, size_t size)
{
    const int at = blocks_below(memory, address) - 1;
    char block[128];
    if (at >= 0) {
        const uint64_t offset = address - memory->blocks[at].address, bytes = memory->blocks[at].bytes;
        if (offset < bytes || offset - bytes < 16 * MARGIN) {
            describe_block(&memory->blocks[at], block, sizeof block);
            snprintf(text, size, "offset %" PRIu64 " of %s", offset, block);
            return;
        }
    }
    if (at + 1 < memory->count && memory->blocks[at + 1].address - address < 16 * MARGIN) {
        describe_block(&memory->blocks[at + 1], block, sizeof block);
        snprintf(text, size, "%" PRIu64 " bytes before %s", memory->blocks[at + 1].address - address, block);
        return;
    }
    snprintf(text, size, "near no allocation");
}
