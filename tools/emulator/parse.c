/* Reads the text of a module: directives, entries, statements. The rest of the parser is in parse_declare.c
 * (declarations), parse_entry.c (entries and functions), parse_operand.c (operands), mnemonic.c and forms.c (what an
 * instruction is), control_flow.c (where branches meet again), link.c (calls). */
#include "exec.h"
#include "parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Errors and memory ---- */

_Noreturn void parse_fail(parser *p, int line, emulator_fault fault, const char *format, ...)
{
    if (p->error) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(p->error->message, sizeof p->error->message, format, arguments);
        va_end(arguments);
        p->error->fault = fault;
        p->error->line = line;
        p->error->block = p->error->warp = -1;
        p->error->detail[0] = '\0';
        for (char *c = p->error->message; *c; c++)
            if (*c < ' ' || *c > '~') *c = '?'; /* one printable line, whatever the text has */
    }
    longjmp(p->failed, 1);
}

_Noreturn void parse_expected(parser *p, token found, const char *expected)
{
    if (found.kind == TOKEN_BAD)
        parse_fail(p, found.line, EMULATOR_PARSE, "'%.*s': %s", (int)(found.length < 60 ? found.length : 60),
                   found.text, found.problem);
    if (found.kind == TOKEN_END)
        parse_fail(p, found.line, EMULATOR_PARSE, "the text ends where %s was expected", expected);
    parse_fail(p, found.line, EMULATOR_PARSE, "'%.*s' where %s was expected",
               (int)(found.length < 60 ? found.length : 60), found.text, expected);
}

void *parse_grow(parser *p, void *array, int count, int *capacity, size_t element, int limit, const char *what)
{
    if (count < *capacity) return array;
    if (count >= limit) parse_fail(p, p->token.line, EMULATOR_RESOURCE, "more than %d %s", limit, what);
    int wanted = *capacity ? 2 * *capacity : 32;
    if (wanted > limit) wanted = limit;
    void *grown = realloc(array, (size_t)wanted * element);
    if (!grown) parse_fail(p, p->token.line, EMULATOR_MEMORY, "no memory for %s", what);
    *capacity = wanted;
    return grown;
}

/* Memory that lives as long as the module comes in chunks; the newest is the first. */
typedef struct chunk {
    struct chunk *next;
    size_t used, size;
    _Alignas(16) unsigned char bytes[];
} chunk;

void *parse_allocate(parser *p, size_t bytes)
{
    chunk *c = p->module->arena;
    bytes = (bytes + 15) / 16 * 16;
    if (!c || c->size - c->used < bytes) {
        size_t size = bytes > 16368 ? bytes : 16368;
        c = calloc(1, sizeof *c + size);
        if (!c) parse_fail(p, p->token.line, EMULATOR_MEMORY, "no memory for the module");
        c->size = size;
        c->next = p->module->arena;
        p->module->arena = c;
    }
    void *room = c->bytes + c->used;
    c->used += bytes;
    return room;
}

char *parse_copy(parser *p, const char *text, size_t length)
{
    char *copy = parse_allocate(p, length + 1);
    memcpy(copy, text, length);
    return copy;
}

/* ---- Tokens ---- */

bool token_is(token t, const char *text)
{
    return (t.kind == TOKEN_WORD || t.kind == TOKEN_DIRECTIVE) && strlen(text) == t.length &&
           memcmp(t.text, text, t.length) == 0;
}

void parse_advance(parser *p)
{
    p->token = lexer_next(&p->lexer);
}

bool parse_is(const parser *p, char punctuation)
{
    return p->token.kind == TOKEN_PUNCTUATION && *p->token.text == punctuation;
}

bool parse_accept(parser *p, char punctuation)
{
    if (!parse_is(p, punctuation)) return false;
    parse_advance(p);
    return true;
}

void parse_require(parser *p, char punctuation, const char *expected)
{
    if (!parse_accept(p, punctuation)) parse_expected(p, p->token, expected);
}

bool parse_accept_word(parser *p, const char *word)
{
    if (!token_is(p->token, word)) return false;
    parse_advance(p);
    return true;
}

static void skip_string(parser *p)
{
    if (p->token.kind != TOKEN_STRING) parse_expected(p, p->token, "a string");
    parse_advance(p);
}

/* .file, .loc, .section, .pragma: nothing that matters here. */
bool parse_skip_information(parser *p)
{
    if (token_is(p->token, ".file") || token_is(p->token, ".loc")) {
        lexer_skip_line(&p->lexer);
        parse_advance(p);
        return true;
    }
    if (parse_accept_word(p, ".pragma")) {
        skip_string(p);
        while (parse_accept(p, ',')) skip_string(p);
        parse_require(p, ';', "';'");
        return true;
    }
    if (!token_is(p->token, ".section")) return false;
    int nesting = 0;
    do {
        parse_advance(p);
        if (parse_is(p, '{')) nesting++;
        if (parse_is(p, '}')) nesting--;
        if (p->token.kind == TOKEN_END) parse_expected(p, p->token, "'}'");
    } while (nesting > 0 || !parse_is(p, '}'));
    parse_advance(p);
    return true;
}

/* ---- Statements ---- */

void parse_enter_scope(parser *p)
{
    if (p->depth == NESTING_MAX)
        parse_fail(p, p->token.line, EMULATOR_PARSE, "{ } nested more than %d deep", NESTING_MAX);
    p->scope_parent = parse_grow(p, p->scope_parent, p->scope_count, &p->scope_capacity, sizeof *p->scope_parent,
                                 SCOPES_MAX, "scopes");
    p->scope_parent[p->scope_count] = p->scope;
    p->scope = p->scope_count++;
    p->depth++;
}

void parse_leave_scope(parser *p)
{
    while (p->declaration_count > 0 && p->declarations[p->declaration_count - 1].depth == p->depth)
        p->declaration_count--;
    names_pop(&p->names, p->declaration_count);
    p->scope = p->scope_parent[p->scope];
    p->depth--;
}

static void add_label(parser *p, token name)
{
    if (name.length > NAME_MAX_LENGTH)
        parse_fail(p, name.line, EMULATOR_PARSE, "a name of more than %d characters", NAME_MAX_LENGTH);
    if (names_find(&p->labels, name.text, name.length, p->scope) >= 0)
        parse_expected(p, name, "a label that this scope does not have yet");
    if (!names_add(&p->labels, name.text, name.length, p->scope, p->entry->count))
        parse_fail(p, name.line, EMULATOR_MEMORY, "no memory for the labels");
}

/* The number of the region that the last comment named. */
static int current_region(parser *p)
{
    const lexer *l = &p->lexer;
    entry *e = p->entry;
    if (l->region == p->region_text) return p->region;
    int known = l->region ? names_find(&p->regions, l->region, l->region_length, 0) : 0;
    if (known < 0) {
        known = e->region_count;
        e->regions =
            parse_grow(p, e->regions, known, &p->region_capacity, sizeof *e->regions, INSTRUCTIONS_MAX, "regions");
        e->regions[known] = parse_copy(p, l->region, l->region_length);
        e->region_count++;
        if (!names_add(&p->regions, l->region, l->region_length, 0, known))
            parse_fail(p, p->token.line, EMULATOR_MEMORY, "no memory for the regions");
    }
    p->region_text = l->region;
    return p->region = known;
}

static instruction *new_instruction(parser *p, int line, int region)
{
    entry *e = p->entry;
    if (p->instruction_total++ == INSTRUCTIONS_MAX)
        parse_fail(p, line, EMULATOR_RESOURCE, "more than %d instructions", INSTRUCTIONS_MAX);
    e->instructions = parse_grow(p, e->instructions, e->count, &p->instruction_capacity, sizeof *e->instructions,
                                 INSTRUCTIONS_MAX + 1, "instructions");
    instruction *i = &e->instructions[e->count++];
    memset(i, 0, sizeof *i);
    i->line = line;
    i->region = region;
    i->guard = -1;
    i->reconverge = -1;
    return i;
}

instruction *parse_new_instruction(parser *p, int line)
{
    return new_instruction(p, line, current_region(p));
}

static void note_label_uses(parser *p, const instruction *i, const parsed_operand *parsed)
{
    for (int k = 0; k < i->operands; k++) {
        if (i->operand[k].kind != OPERAND_LABEL) continue;
        p->label_uses = parse_grow(p, p->label_uses, p->label_use_count, &p->label_use_capacity, sizeof *p->label_uses,
                                   INSTRUCTIONS_MAX, "branches");
        p->label_uses[p->label_use_count++] =
            (label_use){.name = parsed[k].token, .scope = p->scope, .instruction = p->entry->count - 1, .operand = k};
    }
}

static void parse_instruction(parser *p, token mnemonic, int guard, bool negated, int region)
{
    parsed_operand parsed[OPERANDS_MAX];
    const decoded_mnemonic *decoded = forms_decode(p, mnemonic);
    bool is_call = decoded->row[0]->flags & FORM_CALL;
    int count = is_call ? 0 : parse_operands(p, parsed);
    instruction *i = new_instruction(p, mnemonic.line, region);
    i->guard = guard;
    i->guard_negated = negated;
    if (is_call) {
        i->form = decoded->row[0];
        i->mods = decoded->mods;
        i->opcode = decoded->text;
        parse_call(p, i);
        return;
    }
    forms_apply(p, decoded, mnemonic, parsed, count, i);
    p->entry->uses_alloca |= i->form->execute == exec_alloca;
    note_label_uses(p, i, parsed);
}

/* @p or @!p, after @ */
static int parse_guard(parser *p, bool *negated)
{
    int index = 0;
    *negated = parse_accept(p, '!');
    const declaration *d = p->token.kind == TOKEN_WORD ? parse_find(p, p->token, &index) : NULL;
    if (!d || d->kind == DECLARED_SYMBOL || d->type != TYPE_PRED)
        parse_expected(p, p->token, "a predicate that is declared");
    parse_advance(p);
    return d->slot + index;
}

static void parse_body_directive(parser *p)
{
    state_space space;
    bool is_extern = false;
    if (parse_skip_information(p)) return;
    if (parse_accept_word(p, ".reg")) {
        parse_registers(p);
        return;
    }
    while (token_is(p->token, ".extern") || token_is(p->token, ".visible")) {
        is_extern |= token_is(p->token, ".extern");
        parse_advance(p);
    }
    if (!token_space(p->token, &space))
        parse_fail(p, p->token.line, EMULATOR_UNKNOWN_FORM, "the directive '%.*s' is not known inside an entry",
                   (int)(p->token.length < 60 ? p->token.length : 60), p->token.text);
    parse_advance(p);
    parse_variable(p, space, is_extern);
}

/* One statement of a body, or one label; false at the } that ends the body. */
static bool parse_statement(parser *p)
{
    bool negated = false;
    int guard = -1, region = current_region(p);
    if (parse_accept(p, '{')) {
        parse_enter_scope(p);
        return true;
    }
    if (parse_is(p, '}')) {
        if (p->depth == 1) return false;
        parse_advance(p);
        parse_leave_scope(p);
        return true;
    }
    if (parse_accept(p, ';')) return true;
    if (p->token.kind == TOKEN_DIRECTIVE) {
        parse_body_directive(p);
        return true;
    }
    if (parse_accept(p, '@')) guard = parse_guard(p, &negated);
    token word = p->token;
    if (word.kind != TOKEN_WORD)
        parse_expected(p, word, guard >= 0 ? "an instruction" : "an instruction, a label, a directive or '}'");
    token mnemonic = lexer_mnemonic(&p->lexer, word);
    parse_advance(p);
    bool is_label = guard < 0 && mnemonic.length == word.length && parse_accept(p, ':');
    if (is_label && (token_is(p->token, ".callprototype") || token_is(p->token, ".calltargets")))
        parse_table(p, word);
    else if (is_label)
        add_label(p, word);
    else
        parse_instruction(p, mnemonic, guard, negated, region);
    return true;
}

void parse_statements(parser *p)
{
    p->lexer.region = p->region_text = NULL; /* comments before the body name no region */
    p->region = 0;
    parse_require(p, '{', "'{' or a directive such as .maxntid");
    while (parse_statement(p)) continue;
    if (!parse_is(p, '}')) parse_expected(p, p->token, "'}'");
}

/* ---- Modules ---- */

/* .version 8.4: the lexer reads the number as a decimal fraction. */
static void parse_version(parser *p)
{
    token t = p->token;
    const char *dot = t.length <= 5 ? memchr(t.text, '.', t.length) : NULL;
    bool valid =
        t.kind == TOKEN_FLOAT64 && dot && dot + 2 == t.text + t.length && (dot - t.text == 1 || dot - t.text == 2);
    if (!valid) parse_expected(p, t, "a version such as 8.4");
    int major = 0;
    for (const char *c = t.text; c < dot; c++) major = 10 * major + (*c - '0');
    p->module->version = 10 * major + (dot[1] - '0');
    if (p->module->version < 60)
        parse_fail(p, t.line, EMULATOR_TARGET, ".version %.*s is older than 6.0", (int)t.length, t.text);
    parse_advance(p);
}

static void parse_target(parser *p)
{
    token t = p->token;
    int number = 0;
    size_t i = 3;
    if (t.kind != TOKEN_WORD || t.length < 5 || t.length > 7 || memcmp(t.text, "sm_", 3) != 0)
        parse_expected(p, t, "a target such as sm_90a");
    for (; i < t.length && t.text[i] >= '0' && t.text[i] <= '9'; i++) number = 10 * number + (t.text[i] - '0');
    p->target = number;
    p->target_suffix = i < t.length ? t.text[i++] : '\0';
    if (i < t.length || number == 0 || (p->target_suffix && p->target_suffix != 'a' && p->target_suffix != 'f'))
        parse_expected(p, t, "a target such as sm_90a");
    memcpy(p->module->target, t.text, t.length);
    p->module->target[t.length] = '\0';
    parse_advance(p);
    while (parse_accept(p, ',')) {
        if (!parse_accept_word(p, "debug") && !parse_accept_word(p, "texmode_unified") &&
            !parse_accept_word(p, "texmode_independent"))
            parse_expected(p, p->token, "debug, texmode_unified or texmode_independent");
    }
}

enum { VERSION_KNOWN = 90 }; /* the PTX ISA that forms.def was written from */

/* Newer texts are read all the same: whatever form is not known is an error by itself. */
static void warn_of_header(parser *p)
{
    static const int targets[] = {70, 72, 75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121};
    emulator_module *m = p->module;
    bool known = p->target < targets[0]; /* forms say what they need */
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) known |= targets[i] == p->target;
    if (m->version > VERSION_KNOWN)
        snprintf(m->warning, sizeof m->warning,
                 ".version %d.%d is newer than %d.%d, the last that the interpreter knows; what is new in it may be "
                 "refused, or mean something else",
                 m->version / 10, m->version % 10, VERSION_KNOWN / 10, VERSION_KNOWN % 10);
    else if (!known)
        snprintf(m->warning, sizeof m->warning,
                 ".target %s is none that the interpreter knows; it is taken to have what sm_%d and older have",
                 m->target, p->target);
}

static void parse_header(parser *p)
{
    if (!parse_accept_word(p, ".version")) parse_expected(p, p->token, "'.version' at the beginning");
    parse_version(p);
    if (!parse_accept_word(p, ".target")) parse_expected(p, p->token, "'.target' after .version");
    parse_target(p);
    warn_of_header(p);
    if (!parse_accept_word(p, ".address_size")) return;
    if (p->token.kind != TOKEN_INTEGER || p->token.integer != 64)
        parse_expected(p, p->token, "64: other addresses are not known");
    parse_advance(p);
}

static void parse_module_statement(parser *p)
{
    bool is_extern = false;
    state_space space;
    if (parse_skip_information(p)) return;
    while (token_is(p->token, ".extern") || token_is(p->token, ".visible") || token_is(p->token, ".weak")) {
        is_extern |= token_is(p->token, ".extern");
        parse_advance(p);
    }
    if (parse_accept_word(p, ".entry")) {
        parse_entry(p);
    } else if (parse_accept_word(p, ".func")) {
        parse_func(p, is_extern);
    } else if (token_space(p->token, &space) && space != SPACE_PARAM && space != SPACE_LOCAL) {
        parse_advance(p);
        parse_variable(p, space, is_extern);
    } else if (p->token.kind == TOKEN_DIRECTIVE) {
        parse_fail(p, p->token.line, EMULATOR_UNKNOWN_FORM, "the directive '%.*s' is not known outside of entries",
                   (int)(p->token.length < 60 ? p->token.length : 60), p->token.text);
    } else {
        parse_expected(p, p->token, "a directive such as .visible .entry");
    }
}

/* False: p->error says what is wrong. */
static bool parse_module(parser *p, const char *text, size_t length, const char *name)
{
    if (setjmp(p->failed)) return false;
    if (length > TEXT_MAX) parse_fail(p, 0, EMULATOR_RESOURCE, "a text of more than %d bytes", TEXT_MAX);
    p->module->name = parse_copy(p, name, strlen(name));
    lexer_start(&p->lexer, text, length);
    parse_advance(p);
    parse_header(p);
    while (p->token.kind != TOKEN_END) parse_module_statement(p);
    link_module(p);
    return true;
}

static void finish_code(entry *e)
{
    free(e->instructions);
    free(e->elements);
    free(e->regions);
}

static void finish_parser(parser *p)
{
    finish_code(&p->scratch);
    names_finish(&p->names);
    names_finish(&p->mnemonics);
    names_finish(&p->labels);
    names_finish(&p->regions);
    free(p->declarations);
    free(p->decoded);
    free(p->scope_parent);
    free(p->label_uses);
    free(p);
}

emulator_module *emulator_module_parse(const char *text, size_t length, const char *name, emulator_error *error)
{
    parser *p = calloc(1, sizeof *p);
    emulator_module *m = calloc(1, sizeof *m);
    if (!p || !m) {
        free(p);
        free(m);
        if (error)
            *error = (emulator_error){
                .fault = EMULATOR_MEMORY, .block = -1, .warp = -1, .message = "no memory for the module"};
        return NULL;
    }
    p->error = error;
    p->module = m;
    bool parsed = parse_module(p, text, length, name ? name : "");
    finish_parser(p);
    if (parsed && error) error->fault = EMULATOR_OK;
    if (parsed) return m;
    emulator_module_destroy(m);
    return NULL;
}

void emulator_module_destroy(emulator_module *module)
{
    if (!module) return;
    for (int i = 0; i < module->entry_count; i++) finish_code(&module->entries[i]);
    for (int i = 0; i < module->function_count; i++) finish_code(&module->functions[i].code);
    for (chunk *c = module->arena, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(module->symbols);
    free(module->relocations);
    free(module->tables);
    free(module->functions);
    free(module->entries);
    free(module);
}
