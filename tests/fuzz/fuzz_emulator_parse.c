/* Any bytes are parsed or refused with a line and a message, and what is parsed can be looked into. libFuzzer:
 *
 *   clang -std=c11 -g -O1 -fsanitize=fuzzer,address,undefined -Itools/emulator tests/fuzz/fuzz_emulator_parse.c
 * tools/emulator/<all>.c -lm
 *   ./a.out -max_len=8192 work tests/fuzz/seeds/parse */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "module.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds) abort();
}

static void check_operand(const emulator_module *m, const entry *e, const operand *o, bool is_element)
{
    switch (o->kind) {
    case OPERAND_REGISTER:
        check(o->reg.slot >= 0 && o->reg.slot < (o->reg.type == TYPE_PRED ? e->predicates : e->slots));
        break;
    case OPERAND_ADDRESS:
        check(o->symbol < m->symbol_count);
        check(o->symbol >= 0 || (o->reg.slot >= 0 && o->reg.slot < e->slots));
        break;
    case OPERAND_SYMBOL:
        check(o->symbol >= 0 && o->symbol < m->symbol_count);
        break;
    case OPERAND_LABEL:
        check(o->target >= 0 && o->target < e->count);
        break;
    case OPERAND_VECTOR:
        check(!is_element && o->first >= 0 && o->count > 0 && o->first + o->count <= e->element_count);
        for (int k = 0; k < o->count; k++) check_operand(m, e, &e->elements[o->first + k], true);
        break;
    case OPERAND_SPECIAL:
        check(o->special < SPECIAL_COUNT);
        break;
    case OPERAND_NONE:
    case OPERAND_IMMEDIATE:
    case OPERAND_SINK:
        break;
    }
}

static void check_entry(const emulator_module *m, int number)
{
    const entry *e = &m->entries[number];
    emulator_instruction_info info;
    emulator_entry_info about;
    emulator_module_entry_info(m, number, &about);
    for (int k = 0; k < about.parameters; k++) check(emulator_module_parameter_bytes(m, number, k) > 0);
    check(emulator_module_find_entry(m, e->name) == number);
    check(e->count > 0 && about.instructions == e->count);
    for (int k = 0; k < e->count; k++) {
        const instruction *i = &e->instructions[k];
        emulator_module_instruction_info(m, number, k, &info);
        check(info.line > 0 && info.region && strlen(info.opcode) > 0);
        check(i->form && i->guard < e->predicates && i->reconverge < e->count && i->operands <= OPERANDS_MAX);
        for (int o = 0; o < i->operands; o++) check_operand(m, e, &i->operand[o], false);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static emulator_error error;
    memset(&error, 0, sizeof error);
    emulator_module *m = emulator_module_parse((const char *)data, size, "fuzz", &error);
    if (!m) {
        check(error.fault == EMULATOR_PARSE || error.fault == EMULATOR_UNKNOWN_FORM || error.fault == EMULATOR_TARGET ||
              error.fault == EMULATOR_RESOURCE);
        check(error.line > 0 && *error.message && !strchr(error.message, '\n'));
        return 0;
    }
    for (int k = 0; k < emulator_module_entries(m); k++) check_entry(m, k);
    emulator_module_destroy(m);
    return 0;
}
