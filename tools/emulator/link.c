/* Linking: each entry gets the instructions of all functions that it may call after its own, with registers of their
 * own, and its shared memory is laid out. Executing a call is then a jump. */
#include <stdlib.h>
#include <string.h>

#include "exec.h"
#include "parse.h"

typedef struct linker {
    parser *p;
    entry *e;
    int *symbol; /* [symbols before linking] the entry's own copy of a function's shared variable, or -1 */
    int symbols;
    int *work, work_count; /* functions reached, in order */
    bool indirect;         /* some call goes through a register */
} linker;

static const device_function *function_of(const linker *l, int symbol_number)
{
    const symbol *s = &l->p->module->symbols[symbol_number];
    return s->space == SPACE_CODE ? &l->p->module->functions[s->offset] : NULL;
}

/* ---- Which functions ---- */

static void reach(linker *l, int number)
{
    if (l->e->functions[number].start >= 0 || !l->p->module->functions[number].has_body) return;
    l->e->functions[number].start = 0; /* until it is placed */
    l->work[l->work_count++] = number;
}

static void check_callee(linker *l, const instruction *i)
{
    const device_function *f = function_of(l, i->operand[0].symbol);
    if (f->has_body || f->builtin) return;
    parse_fail(l->p, i->line, EMULATOR_UNKNOWN_FORM,
               "'%.200s' is called and has no body here; of functions outside of the text there are vprintf, malloc, "
               "free and __assertfail",
               f->code.name);
}

/* Everything that code calls, or whose address it takes. */
static void scan(linker *l, const entry *code)
{
    for (int k = 0; k < code->own_instructions; k++) {
        const instruction *i = &code->instructions[k];
        bool is_call = i->form->flags & FORM_CALL;
        if (is_call && i->operand[0].kind == OPERAND_SYMBOL) {
            check_callee(l, i);
            reach(l, (int)l->p->module->symbols[i->operand[0].symbol].offset);
        } else if (is_call) {
            l->indirect = true;
        }
    }
    if (!l->indirect) return;
    for (int f = 0; f < l->p->module->function_count; f++)
        if (l->p->module->functions[f].address_taken) reach(l, f);
}

/* ---- Recursion ---- */

enum { UNSEEN, OPEN, CLOSED };

/* Does a walk along direct calls come back to a function that is open? Depth is bounded by the number of functions. */
static bool walk(const linker *l, const entry *code, unsigned char *state, int depth)
{
    if (depth > 512) return true; /* so deep that it is given a stack as if it were */
    for (int k = 0; k < code->own_instructions; k++) {
        const instruction *i = &code->instructions[k];
        if (!(i->form->flags & FORM_CALL) || i->operand[0].kind != OPERAND_SYMBOL) continue;
        const device_function *f = function_of(l, i->operand[0].symbol);
        int number = (int)(f - l->p->module->functions);
        if (!f->has_body || state[number] == CLOSED) continue;
        if (state[number] == OPEN) return true;
        state[number] = OPEN;
        if (walk(l, &f->code, state, depth + 1)) return true;
        state[number] = CLOSED;
    }
    return false;
}

static void size_stack(linker *l)
{
    emulator_module *m = l->p->module;
    unsigned char *state = parse_allocate(l->p, (size_t)m->function_count);
    bool any = l->indirect || l->e->uses_alloca || walk(l, l->e, state, 0);
    uint64_t bytes = 0;
    for (int k = 0; k < l->work_count; k++) {
        const entry *code = &m->functions[l->work[k]].code;
        bytes += code->local_bytes + code->local_alignment + 16;
        any |= code->uses_alloca;
    }
    bytes += any ? STACK_BYTES : 0;
    if (bytes > LOCAL_BYTES_MAX)
        parse_fail(l->p, l->p->token.line, EMULATOR_RESOURCE, "the functions of %s need more than %d bytes of .local",
                   l->e->name, LOCAL_BYTES_MAX);
    l->e->stack_bytes = (uint32_t)bytes;
}

/* ---- Copies ---- */

static int remapped(const linker *l, int number)
{
    return number >= 0 && number < l->symbols && l->symbol[number] >= 0 ? l->symbol[number] : number;
}

static void move_operand(const linker *l, operand *o, const linked_function *to, int elements, int instructions)
{
    bool has_register = o->kind == OPERAND_REGISTER || (o->kind == OPERAND_ADDRESS && o->symbol < 0);
    if (has_register) o->reg.slot += o->reg.type == TYPE_PRED ? to->first_predicate : to->first_slot;
    if (o->kind == OPERAND_SYMBOL || o->kind == OPERAND_ADDRESS) o->symbol = remapped(l, o->symbol);
    if (o->kind == OPERAND_VECTOR) o->first += elements;
    if (o->kind == OPERAND_LABEL) o->target += instructions;
}

/* In a function, an address in a register that goes with .param is one of its frame. */
static void move_space(instruction *i)
{
    if (i->mods.space == SPACE_PARAM) i->mods.space = SPACE_LOCAL;
}

static void *grow(linker *l, void *array, size_t count, size_t more, size_t element)
{
    void *grown = realloc(array, (count + more + 1) * element);
    if (!grown) parse_fail(l->p, l->p->token.line, EMULATOR_MEMORY, "no memory for the functions of %s", l->e->name);
    return grown;
}

static void copy_code(linker *l, int number)
{
    entry *e = l->e;
    const entry *code = &l->p->module->functions[number].code;
    linked_function *to = &e->functions[number];
    int elements = e->element_count, regions = e->region_count;
    l->p->instruction_total += code->count;
    if (l->p->instruction_total > INSTRUCTIONS_MAX)
        parse_fail(l->p, l->p->token.line, EMULATOR_RESOURCE,
                   "more than %d instructions, with those of functions in each entry that may call them",
                   INSTRUCTIONS_MAX);
    if (e->slots + code->slots > SLOTS_MAX || e->predicates + code->predicates > SLOTS_MAX)
        parse_fail(l->p, l->p->token.line, EMULATOR_RESOURCE, "more than %d registers in %s and its functions",
                   SLOTS_MAX, e->name);
    *to = (linked_function){e->count, e->slots, code->slots, e->predicates, code->predicates};
    e->instructions = grow(l, e->instructions, (size_t)e->count, (size_t)code->count, sizeof *e->instructions);
    e->elements = grow(l, e->elements, (size_t)elements, (size_t)code->element_count, sizeof *e->elements);
    e->regions = grow(l, e->regions, (size_t)regions, (size_t)code->region_count, sizeof *e->regions);
    for (int k = 0; k < code->count; k++) {
        instruction *i = &e->instructions[to->start + k];
        *i = code->instructions[k];
        i->region += regions;
        if (i->guard >= 0) i->guard += to->first_predicate;
        if (i->reconverge >= 0) i->reconverge += to->start;
        for (int o = 0; o < i->operands; o++) move_operand(l, &i->operand[o], to, elements, to->start);
        move_space(i);
    }
    for (int k = 0; k < code->element_count; k++) {
        e->elements[elements + k] = code->elements[k];
        move_operand(l, &e->elements[elements + k], to, 0, to->start);
    }
    memcpy(e->regions + regions, code->regions, (size_t)code->region_count * sizeof *e->regions);
    e->count += code->count;
    e->element_count += code->element_count;
    e->region_count += code->region_count;
    e->slots += code->slots;
    e->predicates += code->predicates;
}

/* ---- Shared memory ---- */

/* The entry's own variables come after all of those outside of entries. */
static void move_shared(linker *l)
{
    emulator_module *m = l->p->module;
    entry *e = l->e;
    uint32_t alignment = 16;
    if (l->p->shared_bytes <= e->first_shared) return;
    for (int s = e->first_parameter; s < e->end_symbol; s++)
        if (m->symbols[s].space == SPACE_SHARED && m->symbols[s].alignment > alignment)
            alignment = m->symbols[s].alignment;
    uint32_t by = parse_align(l->p->shared_bytes - e->first_shared, alignment);
    for (int s = e->first_parameter; s < e->end_symbol; s++)
        if (m->symbols[s].space == SPACE_SHARED) m->symbols[s].offset += by;
    e->static_shared_bytes += by;
}

static int copy_symbol(linker *l, int number)
{
    const symbol *s = &l->p->module->symbols[number];
    token name = {.text = s->name, .length = strlen(s->name)};
    return parse_new_symbol(l->p, name, *s);
}

/* Shared variables of a function, and its dynamic shared memory, as the entry has them. */
static void take_shared(linker *l, const entry *code)
{
    entry *e = l->e;
    for (int s = code->first_parameter; s < code->end_symbol; s++) {
        const symbol *own = &l->p->module->symbols[s];
        if (own->space != SPACE_SHARED || own->bytes == 0) continue;
        uint32_t offset = parse_align(e->static_shared_bytes, own->alignment);
        if (offset + own->bytes > SHARED_BYTES_MAX)
            parse_fail(l->p, l->p->token.line, EMULATOR_RESOURCE, "more than %d bytes of .shared", SHARED_BYTES_MAX);
        e->static_shared_bytes = offset + own->bytes;
        l->symbol[s] = copy_symbol(l, s);
        l->p->module->symbols[l->symbol[s]].offset = offset;
    }
    for (int d = 0; d < code->dynamic_count; d++) {
        int k = 0;
        while (k < e->dynamic_count && e->dynamic_from[k] != code->dynamic_from[d]) k++;
        if (k == DYNAMIC_MAX)
            parse_fail(l->p, l->p->token.line, EMULATOR_RESOURCE, "more than %d .extern .shared variables in one entry",
                       DYNAMIC_MAX);
        if (k == e->dynamic_count) {
            e->dynamic_from[k] = code->dynamic_from[d];
            e->dynamic_to[k] = copy_symbol(l, code->dynamic_from[d]);
            e->dynamic_count++;
        }
        l->symbol[code->dynamic_to[d]] = e->dynamic_to[k];
    }
}

/* Dynamic shared memory begins after the static part, at the alignment that its variables ask for. */
static void place_dynamic(linker *l)
{
    entry *e = l->e;
    symbol *symbols = l->p->module->symbols;
    uint32_t alignment = 1;
    for (int i = 0; i < e->dynamic_count; i++)
        if (symbols[e->dynamic_to[i]].alignment > alignment) alignment = symbols[e->dynamic_to[i]].alignment;
    e->static_shared_bytes = parse_align(e->static_shared_bytes, alignment);
    for (int i = 0; i < e->dynamic_count; i++) symbols[e->dynamic_to[i]].offset = e->static_shared_bytes;
}

static void link_functions(linker *l)
{
    emulator_module *m = l->p->module;
    entry *e = l->e;
    e->functions = parse_allocate(l->p, (size_t)m->function_count * sizeof *e->functions);
    l->work = parse_allocate(l->p, (size_t)m->function_count * sizeof *l->work);
    l->symbols = m->symbol_count;
    l->symbol = parse_allocate(l->p, (size_t)l->symbols * sizeof *l->symbol);
    for (int f = 0; f < m->function_count; f++) e->functions[f].start = -1;
    for (int s = 0; s < l->symbols; s++) l->symbol[s] = -1;
    scan(l, e);
    for (int k = 0; k < l->work_count; k++) scan(l, &m->functions[l->work[k]].code);
    for (int k = 0; k < l->work_count; k++) take_shared(l, &m->functions[l->work[k]].code);
    for (int k = 0; k < l->work_count; k++) copy_code(l, l->work[k]);
}

void link_module(parser *p)
{
    for (int k = 0; k < p->module->entry_count; k++) {
        linker l = {.p = p, .e = &p->module->entries[k]};
        move_shared(&l);
        if (p->module->function_count > 0) link_functions(&l);
        size_stack(&l);
        place_dynamic(&l);
    }
}
