/* Looking into a decoded module, and the names of types. */
#include "module.h"

#include <string.h>

int type_bytes(emulator_type type)
{
    static const int bytes[] = {
#define TYPE(id, suffix, size) size,
        EMULATOR_TYPES(TYPE)
#undef TYPE
    };
    return bytes[type];
}

const char *type_name(emulator_type type)
{
    static const char *const names[] = {
#define TYPE(id, suffix, size) suffix,
        EMULATOR_TYPES(TYPE)
#undef TYPE
    };
    return names[type];
}

const char *emulator_module_warning(const emulator_module *module)
{
    return module->warning;
}

int emulator_module_entries(const emulator_module *module)
{
    return module->entry_count;
}

const char *emulator_module_entry_name(const emulator_module *module, int number)
{
    return module->entries[number].name;
}

int emulator_module_find_entry(const emulator_module *module, const char *name)
{
    for (int i = 0; i < module->entry_count; i++)
        if (strcmp(module->entries[i].name, name) == 0) return i;
    return -1;
}

void emulator_module_entry_info(const emulator_module *module, int number, emulator_entry_info *info)
{
    const entry *e = &module->entries[number];
    *info = (emulator_entry_info){
        .parameters = e->parameters,
        .static_shared_bytes = e->static_shared_bytes,
        .max_threads = e->max_threads,
        .max_registers = e->max_registers,
        .local_bytes = e->local_bytes + e->stack_bytes,
        .instructions = e->count,
    };
    memcpy(info->required_threads, e->required_threads, sizeof info->required_threads);
}

uint32_t emulator_module_parameter_bytes(const emulator_module *module, int number, int parameter)
{
    return module->symbols[module->entries[number].first_parameter + parameter].bytes;
}

const char *emulator_module_parameter_type(const emulator_module *module, int number, int parameter)
{
    return type_name(module->symbols[module->entries[number].first_parameter + parameter].type);
}

void emulator_module_instruction_info(const emulator_module *module, int number, int index,
                                      emulator_instruction_info *info)
{
    const entry *e = &module->entries[number];
    const instruction *i = &e->instructions[index];
    *info = (emulator_instruction_info){.line = i->line, .region = e->regions[i->region], .opcode = i->opcode};
}
