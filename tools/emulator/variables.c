/* The global and constant variables of a module in the memory of a device: a block for each, with what its initialiser
 * says. */
#include <stdlib.h>
#include <string.h>

#include "machine.h"
#include "memory.h"
#include "variables.h"

struct emulator_variables {
    const emulator_module *module;
    emulator_memory *memory;
    uint64_t *address; /* [module.symbol_count]; 0: no such variable */
};

static bool has_memory(const symbol *s)
{
    return s->space == SPACE_GLOBAL || s->space == SPACE_CONST;
}

uint64_t variables_address(const emulator_variables *v, int number)
{
    const symbol *s = &v->module->symbols[number];
    if (s->space == SPACE_CODE) return GENERIC_CODE_WINDOW + CODE_STEP * s->offset;
    return has_memory(s) ? v->address[number] : s->offset;
}

static bool place(emulator_variables *v, int number)
{
    const symbol *s = &v->module->symbols[number];
    uint64_t address = emulator_memory_allocate(v->memory, s->bytes);
    if (address == 0) return false;
    v->address[number] = address;
    if (s->initial)
        memcpy((void *)(uintptr_t)address, s->initial, s->bytes);
    else
        memset((void *)(uintptr_t)address, 0, s->bytes);
    emulator_memory_define(v->memory, address, s->bytes);
    memory_block *block = memory_find(v->memory, address, s->bytes);
    block->name = s->name;
    block->constant = s->space == SPACE_CONST;
    return true;
}

static void relocate(const emulator_variables *v, const relocation *r)
{
    uint64_t value = (variables_address(v, r->target) + (uint64_t)r->addend) >> r->shift;
    uint8_t *to = (uint8_t *)(uintptr_t)(v->address[r->symbol] + r->offset);
    for (uint32_t b = 0; b < r->bytes; b++) to[b] = (uint8_t)(value >> (8 * b));
}

emulator_variables *emulator_variables_create(const emulator_module *module, emulator_memory *memory)
{
    emulator_variables *v = calloc(1, sizeof *v);
    if (!v) return NULL;
    v->module = module;
    v->memory = memory;
    v->address = calloc((size_t)module->symbol_count + 1, sizeof *v->address);
    bool good = v->address != NULL;
    for (int s = 0; good && s < module->symbol_count; s++)
        if (has_memory(&module->symbols[s])) good = place(v, s);
    for (int r = 0; good && r < module->relocation_count; r++) relocate(v, &module->relocations[r]);
    if (good) return v;
    emulator_variables_destroy(v);
    return NULL;
}

void emulator_variables_destroy(emulator_variables *v)
{
    if (!v) return;
    for (int s = 0; v->address && s < v->module->symbol_count; s++)
        if (v->address[s]) emulator_memory_free(v->memory, v->address[s]);
    free(v->address);
    free(v);
}

uint64_t emulator_variables_find(const emulator_variables *v, const char *name, uint64_t *bytes)
{
    for (int s = 0; s < v->module->symbol_count; s++) {
        const symbol *variable = &v->module->symbols[s];
        if (!has_memory(variable) || strcmp(variable->name, name) != 0) continue;
        if (bytes) *bytes = variable->bytes;
        return v->address[s];
    }
    return 0;
}
