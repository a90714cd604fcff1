/* Entries and functions: their formals, their directives, their bodies, and the tables of indirect calls. */
#include <stdlib.h>
#include <string.h>

#include "exec.h"
#include "parse.h"

/* ---- Directives ---- */

static void resolve_labels(parser *p)
{
    for (int u = 0; u < p->label_use_count; u++) {
        const label_use *use = &p->label_uses[u];
        int target = -1;
        for (int scope = use->scope; scope >= 0 && target < 0; scope = p->scope_parent[scope])
            target = names_find(&p->labels, use->name.text, use->name.length, scope);
        if (target < 0) parse_expected(p, use->name, "a label of this entry");
        p->entry->instructions[use->instruction].operand[use->operand].target = target;
    }
}

static uint32_t parse_count(parser *p, const char *expected)
{
    token at = p->token;
    int64_t value = parse_integer(p, expected);
    if (value < 1 || value > 1 << 20) parse_expected(p, at, expected);
    return (uint32_t)value;
}

/* Up to three numbers; those left out are 1. */
static void parse_extents(parser *p, uint32_t extent[3])
{
    extent[0] = extent[1] = extent[2] = 1;
    for (int i = 0; i < 3; i++) {
        extent[i] = parse_count(p, "a number of threads or blocks");
        if (!parse_accept(p, ',')) return;
    }
    parse_expected(p, p->token, "no fourth number");
}

/* .reqntid and the like, between the parameters and the body. */
static void parse_performance(parser *p)
{
    uint32_t extent[3];
    entry *e = p->entry;
    for (;;) {
        if (parse_accept_word(p, ".reqntid")) {
            parse_extents(p, e->required_threads);
        } else if (parse_accept_word(p, ".maxntid")) {
            parse_extents(p, extent);
            uint64_t threads = (uint64_t)extent[0] * extent[1];
            threads = threads > UINT32_MAX ? threads : threads * extent[2];
            e->max_threads = threads > UINT32_MAX ? UINT32_MAX : (uint32_t)threads;
        } else if (parse_accept_word(p, ".maxnreg")) {
            e->max_registers = parse_count(p, "a number of registers");
        } else if (parse_accept_word(p, ".minnctapersm") || parse_accept_word(p, ".maxnctapersm") ||
                   parse_accept_word(p, ".maxclusterrank")) {
            (void)parse_count(p, "a number of blocks");
        } else if (token_is(p->token, ".reqnctapercluster")) {
            token at = p->token;
            parse_advance(p);
            parse_extents(p, extent);
            if (extent[0] != 1 || extent[1] != 1 || extent[2] != 1)
                parse_fail(p, at.line, EMULATOR_UNKNOWN_FORM,
                           "'.reqnctapercluster': clusters of more than one block are not known");
        } else if (!parse_accept_word(p, ".explicitcluster") && !parse_skip_information(p)) {
            return;
        }
    }
}

/* ---- Bodies ---- */

void parse_start_body(parser *p, entry *e)
{
    p->entry = e;
    *e = (entry){.first_parameter = p->module->symbol_count,
                 .static_shared_bytes = p->shared_bytes,
                 .first_shared = p->shared_bytes,
                 .local_alignment = 1};
    p->instruction_capacity = p->element_capacity = p->region_capacity = 0;
    p->label_use_count = p->scope_count = 0;
    p->scope = -1;
    names_pop(&p->labels, 0);
    names_pop(&p->regions, 0);
    e->regions = parse_grow(p, e->regions, 0, &p->region_capacity, sizeof *e->regions, INSTRUCTIONS_MAX, "regions");
    e->regions[e->region_count++] = parse_copy(p, "", 0);
}

/* From the { to the end of the body; the } is the next token then. */
static void read_body(parser *p)
{
    parse_statements(p);
    instruction *end = parse_new_instruction(p, p->token.line);
    end->form = forms_return();
    end->opcode = "ret";
    end->mods.vector = 1;
    resolve_labels(p);
    p->entry->end_symbol = p->module->symbol_count;
    p->entry->own_instructions = p->entry->count;
    if (!control_flow_reconvergence(p->entry))
        parse_fail(p, p->token.line, EMULATOR_MEMORY, "no memory for the control flow");
}

static token parse_code_name(parser *p, const char *expected)
{
    token name = p->token;
    if (name.kind != TOKEN_WORD || *name.text == '%') parse_expected(p, name, expected);
    if (name.length > NAME_MAX_LENGTH)
        parse_fail(p, name.line, EMULATOR_PARSE, "a name of more than %d characters", NAME_MAX_LENGTH);
    parse_advance(p);
    return name;
}

void parse_entry(parser *p)
{
    emulator_module *m = p->module;
    token name = parse_code_name(p, "the name of an entry");
    m->entries =
        parse_grow(p, m->entries, m->entry_count, &p->entry_capacity, sizeof *m->entries, ENTRIES_MAX, "entries");
    entry *e = &m->entries[m->entry_count];
    memset(e, 0, sizeof *e);
    m->entry_count++;
    parse_start_body(p, e);
    e->name = parse_copy(p, name.text, name.length);
    for (int i = 0; i + 1 < m->entry_count; i++)
        if (strcmp(m->entries[i].name, e->name) == 0)
            parse_expected(p, name, "an entry that the module does not have yet");
    parse_enter_scope(p);
    if (parse_accept(p, '(') && !parse_accept(p, ')')) {
        do {
            if (!parse_accept_word(p, ".param")) parse_expected(p, p->token, "'.param'");
            parse_parameter(p);
            e->parameters++;
        } while (parse_accept(p, ','));
        parse_require(p, ')', "',' or ')'");
    }
    parse_performance(p);
    read_body(p);
    parse_leave_scope(p);
    p->entry = NULL;
    parse_advance(p); /* past } */
}

/* ---- Functions ---- */

/* ( .param .b32 a, .reg .u32 b ), with the ( already read. */
static formal *parse_formals(parser *p, bool are_named, int *count)
{
    formal list[FORMALS_MAX];
    *count = 0;
    if (parse_accept(p, ')')) return NULL;
    do {
        bool is_register = token_is(p->token, ".reg");
        if (!is_register && !token_is(p->token, ".param")) parse_expected(p, p->token, "'.param' or '.reg'");
        if (*count == FORMALS_MAX)
            parse_fail(p, p->token.line, EMULATOR_RESOURCE, "more than %d parameters", FORMALS_MAX);
        parse_advance(p);
        list[(*count)++] = parse_formal(p, is_register, are_named);
    } while (parse_accept(p, ','));
    parse_require(p, ')', "',' or ')'");
    formal *kept = parse_allocate(p, (size_t)*count * sizeof *kept);
    memcpy(kept, list, (size_t)*count * sizeof *kept);
    return kept;
}

/* The name comes after the returns, and is known in the scope outside of theirs: read ahead. */
static token find_name(parser *p)
{
    lexer at = p->lexer;
    token next = p->token;
    if (parse_is(p, '(')) {
        while (!parse_is(p, ')')) {
            parse_advance(p);
            if (p->token.kind == TOKEN_END || p->token.kind == TOKEN_BAD || parse_is(p, '{'))
                parse_expected(p, p->token, "')'");
        }
        parse_advance(p);
    }
    token name = parse_code_name(p, "the name of a function");
    p->lexer = at;
    p->token = next;
    return name;
}

static builtin builtin_named(token name)
{
    static const char *const names[] = {"",
#define BUILTIN(id, text) text,
                                        EMULATOR_BUILTINS(BUILTIN)
#undef BUILTIN
    };
    for (size_t b = 1; b < sizeof names / sizeof *names; b++)
        if (token_is(name, names[b])) return (builtin)b;
    return BUILTIN_NONE;
}

/* The function of a name: as declared before, or a new one. */
static device_function *declare_function(parser *p, token name, bool *is_new)
{
    emulator_module *m = p->module;
    int index = 0;
    const declaration *d = parse_find(p, name, &index);
    *is_new = !d;
    if (d) {
        if (d->kind != DECLARED_SYMBOL || m->symbols[d->symbol].space != SPACE_CODE)
            parse_expected(p, name, "a name that is not declared yet");
        return &m->functions[m->symbols[d->symbol].offset];
    }
    m->functions = parse_grow(p, m->functions, m->function_count, &p->function_capacity, sizeof *m->functions,
                              ENTRIES_MAX, "functions");
    symbol s = {.space = SPACE_CODE, .bytes = 8, .alignment = 8, .offset = (uint32_t)m->function_count};
    device_function *f = &m->functions[m->function_count++];
    memset(f, 0, sizeof *f);
    int number = parse_new_symbol(p, name, s);
    parse_declare(p, name, 0, (declaration){.kind = DECLARED_SYMBOL, .type = TYPE_B64, .symbol = number});
    f->code.name = m->symbols[number].name;
    return f;
}

static bool same_formals(const formal *a, int a_count, const formal *b, int b_count)
{
    if (a_count != b_count) return false;
    for (int k = 0; k < a_count; k++)
        if (a[k].bytes != b[k].bytes) return false;
    return true;
}

static void parse_function_directives(parser *p)
{
    for (;;) {
        if (parse_accept_word(p, ".noreturn") || parse_skip_information(p)) continue;
        if (!parse_accept_word(p, ".abi_preserve") && !parse_accept_word(p, ".abi_preserve_control")) return;
        (void)parse_integer(p, "a number of registers");
    }
}

static void drop_code(entry *code)
{
    free(code->instructions);
    free(code->elements);
    free(code->regions);
    *code = (entry){.name = code->name};
}

/* A declaration, or a definition. After the definition a further declaration is read, and forgotten. */
void parse_func(parser *p, bool is_extern)
{
    bool is_new;
    token name = find_name(p);
    device_function *f = declare_function(p, name, &is_new);
    const signature before = f->takes;
    signature takes = {0};
    entry *code = f->has_body ? &p->scratch : &f->code;
    char *text = f->code.name;
    parse_start_body(p, code);
    code->name = text;
    parse_enter_scope(p);
    if (parse_accept(p, '(')) takes.returns = parse_formals(p, true, &takes.return_count);
    parse_advance(p); /* the name */
    if (parse_accept(p, '(')) takes.parameters = parse_formals(p, true, &takes.parameter_count);
    parse_function_directives(p);
    if (!is_new && (!same_formals(before.returns, before.return_count, takes.returns, takes.return_count) ||
                    !same_formals(before.parameters, before.parameter_count, takes.parameters, takes.parameter_count)))
        parse_expected(p, name, "the parameters of its first declaration");
    bool has_body = !parse_accept(p, ';');
    if (has_body && f->has_body) parse_expected(p, name, "a function that has no body yet");
    if (!f->has_body) f->takes = takes;
    if (has_body) {
        f->has_body = true;
        read_body(p);
    } else {
        drop_code(code);
        if (is_extern) f->builtin = builtin_named(name);
    }
    parse_leave_scope(p);
    p->entry = NULL;
    if (has_body) parse_advance(p); /* past } */
}

/* ---- Tables of indirect calls ---- */

/* Names of tables, among the names of declarations. */
enum { KEY_TABLE = 2 };

static void parse_targets(parser *p, call_table *table)
{
    int targets[FORMALS_MAX];
    do {
        int index;
        token name = p->token;
        const declaration *d = name.kind == TOKEN_WORD ? parse_find(p, name, &index) : NULL;
        if (!d || d->kind != DECLARED_SYMBOL || p->module->symbols[d->symbol].space != SPACE_CODE)
            parse_expected(p, name, "a function that is declared");
        if (table->target_count == FORMALS_MAX)
            parse_fail(p, name.line, EMULATOR_RESOURCE, "more than %d targets", FORMALS_MAX);
        targets[table->target_count++] = (int)p->module->symbols[d->symbol].offset;
        parse_advance(p);
    } while (parse_accept(p, ','));
    table->takes = p->module->functions[targets[0]].takes;
    table->targets = parse_allocate(p, (size_t)table->target_count * sizeof *targets);
    memcpy(table->targets, targets, (size_t)table->target_count * sizeof *targets);
    for (int k = 0; k < table->target_count; k++) p->module->functions[targets[k]].address_taken = true;
}

void parse_table(parser *p, token name)
{
    emulator_module *m = p->module;
    call_table table = {.targets = NULL};
    if (parse_accept_word(p, ".calltargets")) {
        parse_targets(p, &table);
    } else {
        parse_advance(p); /* .callprototype */
        if (parse_accept(p, '(')) table.takes.returns = parse_formals(p, false, &table.takes.return_count);
        token placeholder = p->token;
        if (placeholder.kind != TOKEN_WORD) parse_expected(p, placeholder, "'_'");
        parse_advance(p);
        if (parse_accept(p, '(')) table.takes.parameters = parse_formals(p, false, &table.takes.parameter_count);
        parse_function_directives(p);
    }
    parse_require(p, ';', "';'");
    m->tables = parse_grow(p, m->tables, m->table_count, &p->table_capacity, sizeof *m->tables, SYMBOLS_MAX, "tables");
    m->tables[m->table_count] = table;
    parse_declare(p, name, KEY_TABLE, (declaration){.kind = DECLARED_SYMBOL, .symbol = m->table_count});
    m->table_count++;
}

int parse_find_table(const parser *p, token name)
{
    int found = names_find(&p->names, name.text, name.length, KEY_TABLE);
    return found >= 0 ? p->declarations[found].symbol : -1;
}
