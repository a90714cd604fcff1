/* Declarations: registers, variables of every state space, parameters, and looking names up. */
#include "parse.h"

#include <stdlib.h>
#include <string.h>

uint32_t parse_align(uint32_t offset, uint32_t alignment)
{
    return (offset + alignment - 1) & ~(alignment - 1);
}

/* ---- Names ---- */

/* Keys of parser.names: a name as it is, or the beginning of numbered ones. */
enum { KEY_NAME = 0, KEY_RANGE = 1 };

void parse_declare(parser *p, token name, int scope_key, declaration d)
{
    if (name.length > NAME_MAX_LENGTH)
        parse_fail(p, name.line, EMULATOR_PARSE, "a name of more than %d characters", NAME_MAX_LENGTH);
    int old = names_find(&p->names, name.text, name.length, scope_key);
    if (old >= 0 && p->declarations[old].depth == p->depth)
        parse_expected(p, name, "a name that this scope does not declare yet");
    p->declarations = parse_grow(p, p->declarations, p->declaration_count, &p->declaration_capacity, sizeof d,
                                 SLOTS_MAX + SYMBOLS_MAX, "declarations");
    d.depth = p->depth;
    d.shadowed = old;
    if (!names_add(&p->names, name.text, name.length, scope_key, p->declaration_count))
        parse_fail(p, name.line, EMULATOR_MEMORY, "no memory for the declarations");
    p->declarations[p->declaration_count++] = d;
}

/* The declaration of a name; *index says which register of a range. NULL: none. */
const declaration *parse_find(const parser *p, token name, int *index)
{
    *index = 0;
    int found = names_find(&p->names, name.text, name.length, KEY_NAME);
    const declaration *d = found >= 0 ? &p->declarations[found] : NULL;
    size_t base = name.length;
    while (base > 0 && name.text[base - 1] >= '0' && name.text[base - 1] <= '9') base--;
    size_t digits = name.length - base;
    if (digits == 0 || digits > 6 || base == 0 || (digits > 1 && name.text[base] == '0')) return d;
    found = names_find(&p->names, name.text, base, KEY_RANGE);
    int number = 0;
    for (size_t i = base; i < name.length; i++) number = 10 * number + (name.text[i] - '0');
    while (found >= 0 && number >= p->declarations[found].count)
        found = p->declarations[found].shadowed; /* NESTING_MAX at most */
    if (found < 0 || (d && d->depth >= p->declarations[found].depth)) return d;
    *index = number;
    return &p->declarations[found];
}

int64_t parse_integer(parser *p, const char *expected)
{
    bool negative = parse_accept(p, '-');
    if (p->token.kind != TOKEN_INTEGER) parse_expected(p, p->token, expected);
    uint64_t value = p->token.integer;
    parse_advance(p);
    return (int64_t)(negative ? 0 - value : value);
}

/* From 1 to most. */
static uint32_t parse_size(parser *p, uint32_t most, const char *expected)
{
    token at = p->token;
    int64_t value = parse_integer(p, expected);
    if (value < 1 || value > most)
        parse_fail(p, at.line, EMULATOR_PARSE, "%s: %lld is not between 1 and %u", expected, (long long)value, most);
    return (uint32_t)value;
}

/* ---- Types and spaces ---- */

emulator_type parse_type(parser *p)
{
    token t = p->token;
    if (t.kind == TOKEN_DIRECTIVE) {
        for (int i = TYPE_PRED; i < TYPE_COUNT; i++) {
            const char *name = type_name((emulator_type)i);
            if (strlen(name) + 1 == t.length && memcmp(name, t.text + 1, t.length - 1) == 0) {
                parse_advance(p);
                return (emulator_type)i;
            }
        }
    }
    parse_expected(p, t, "a type");
}

bool token_space(token t, state_space *space)
{
    static const struct {
        const char *name;
        state_space space;
    } spaces[] = {{".shared", SPACE_SHARED},
                  {".global", SPACE_GLOBAL},
                  {".const", SPACE_CONST},
                  {".local", SPACE_LOCAL},
                  {".param", SPACE_PARAM}};
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        if (token_is(t, spaces[i].name)) {
            *space = spaces[i].space;
            return true;
        }
    return false;
}

/* ---- Registers ---- */

static int take_slots(parser *p, emulator_type type, int count, int line)
{
    entry *e = p->entry;
    int each = type_bytes(type) == 8 ? 2 : 1;
    int *used = type == TYPE_PRED ? &e->predicates : &e->slots;
    if (count > (SLOTS_MAX - *used) / each)
        parse_fail(p, line, EMULATOR_RESOURCE, "more than %d %s in one entry", SLOTS_MAX,
                   type == TYPE_PRED ? "predicates" : "registers");
    int first = *used;
    *used += each * count;
    return first;
}

/* .reg .b32 %r<12>, x; after .reg */
void parse_registers(parser *p)
{
    if (token_is(p->token, ".v2") || token_is(p->token, ".v4"))
        parse_fail(p, p->token.line, EMULATOR_UNKNOWN_FORM, "registers that are vectors are not known");
    token type_token = p->token;
    emulator_type type = parse_type(p);
    if (type_bytes(type) == 0 && type != TYPE_PRED) parse_expected(p, type_token, "a type of registers");
    do {
        token name = p->token;
        if (name.kind != TOKEN_WORD || token_is(name, "_")) parse_expected(p, name, "the name of a register");
        parse_advance(p);
        declaration d = {.kind = DECLARED_REGISTER, .type = type, .count = 1, .symbol = -1};
        if (parse_accept(p, '<')) {
            d.kind = DECLARED_RANGE;
            d.count = (int)parse_size(p, SLOTS_MAX, "a number of registers");
            parse_require(p, '>', "'>'");
        }
        d.slot = take_slots(p, type, d.count, name.line);
        parse_declare(p, name, d.kind == DECLARED_RANGE ? KEY_RANGE : KEY_NAME, d);
    } while (parse_accept(p, ','));
    parse_require(p, ';', "',' or ';'");
}

/* ---- Variables ---- */

int parse_new_symbol(parser *p, token name, symbol s)
{
    emulator_module *m = p->module;
    m->symbols = parse_grow(p, m->symbols, m->symbol_count, &p->symbol_capacity, sizeof s, SYMBOLS_MAX, "variables");
    s.name = parse_copy(p, name.text, name.length);
    m->symbols[m->symbol_count] = s;
    return m->symbol_count++;
}

typedef struct variable {
    token name;
    emulator_type type;
    int elements; /* in a vector: .v4 .f32 */
    uint32_t alignment;
    uint64_t count; /* 0: [] */
} variable;

/* Sizes after a name: [16], [4][2], []. */
static void parse_dimensions(parser *p, variable *v)
{
    v->count = 1;
    for (int dimensions = 0; parse_accept(p, '['); dimensions++) {
        if (parse_is(p, ']')) {
            if (dimensions) parse_expected(p, p->token, "a number of elements");
            v->count = 0;
        } else {
            v->count *= parse_size(p, VARIABLE_BYTES_MAX, "a number of elements");
        }
        if (v->count > VARIABLE_BYTES_MAX)
            parse_fail(p, v->name.line, EMULATOR_RESOURCE, "a variable of more than %d elements", VARIABLE_BYTES_MAX);
        parse_require(p, ']', "']'");
    }
}

/* [.align 16] [.v2] .b8 [.ptr [.global] [.align 4]] name[16] */
static variable parse_shape(parser *p, state_space space)
{
    variable v = {.elements = 1};
    for (;; parse_advance(p)) {
        if (token_is(p->token, ".align")) {
            parse_advance(p);
            v.alignment = parse_size(p, 1 << 16, "an alignment");
            if (v.alignment & (v.alignment - 1))
                parse_fail(p, p->token.line, EMULATOR_PARSE, ".align %u is no power of two", v.alignment);
        }
        if (token_is(p->token, ".v2"))
            v.elements = 2;
        else if (token_is(p->token, ".v4"))
            v.elements = 4;
        else
            break;
    }
    token type = p->token;
    v.type = parse_type(p);
    if (type_bytes(v.type) == 0) parse_expected(p, type, "a type of variables");
    if (space == SPACE_PARAM && token_is(p->token, ".ptr")) {
        state_space pointed;
        parse_advance(p);
        if (token_space(p->token, &pointed)) parse_advance(p);
        if (token_is(p->token, ".align")) {
            parse_advance(p);
            (void)parse_size(p, 1 << 16, "an alignment");
        }
    }
    v.name = p->token;
    if (v.name.kind != TOKEN_WORD) parse_expected(p, v.name, "the name of a variable");
    parse_advance(p);
    parse_dimensions(p, &v);
    uint32_t natural = (uint32_t)(type_bytes(v.type) * v.elements);
    if (v.alignment < natural) v.alignment = natural;
    return v;
}

/* ---- Initialisers ---- */

/* generic(name), name, with + or - a number after it, after the mask of 0xFF00(name): an address, or a byte of it. */
static void parse_initial_address(parser *p, const variable *v, uint32_t at, uint64_t mask)
{
    emulator_module *m = p->module;
    relocation r = {.offset = at, .bytes = (uint32_t)type_bytes(v->type), .symbol = -1};
    if (mask && (mask >> __builtin_ctzll(mask) != 0xff || __builtin_ctzll(mask) % 8))
        parse_fail(p, p->token.line, EMULATOR_UNKNOWN_FORM, "a mask other than of one byte in an initialiser");
    if (mask) r.shift = (uint8_t)__builtin_ctzll(mask);
    bool generic = token_is(p->token, "generic");
    if (generic) {
        parse_advance(p);
        parse_require(p, '(', "'('");
    }
    int index;
    const declaration *d = p->token.kind == TOKEN_WORD ? parse_find(p, p->token, &index) : NULL;
    if (!d || d->kind != DECLARED_SYMBOL || d->dynamic)
        parse_expected(p, p->token, "a number, or a variable or function that is declared");
    const symbol *s = &m->symbols[d->symbol];
    if (s->space == SPACE_CODE) m->functions[s->offset].address_taken = true;
    r.target = d->symbol;
    parse_advance(p);
    if (generic) parse_require(p, ')', "')'");
    bool minus = parse_is(p, '-');
    if (parse_accept(p, '+') || parse_accept(p, '-')) {
        r.addend = parse_integer(p, "a number of bytes");
        if (minus) r.addend = (int64_t)(0 - (uint64_t)r.addend);
    }
    m->relocations = parse_grow(p, m->relocations, m->relocation_count, &p->relocation_capacity, sizeof r, ELEMENTS_MAX,
                                "addresses in initialisers");
    m->relocations[m->relocation_count++] = r; /* its symbol is known once the variable is declared */
}

/* One value of an initialiser, in the type of the variable. */
static void parse_initial_value(parser *p, const variable *v, uint8_t *to, uint32_t at)
{
    token t = p->token;
    uint64_t bits;
    size_t bytes = (size_t)type_bytes(v->type);
    bool is_float = v->type == TYPE_F32 || v->type == TYPE_F64;
    bool negative = false;
    if (parse_is(p, '-')) {
        negative = true;
        parse_advance(p);
        t = p->token;
    }
    if (t.kind == TOKEN_WORD && !is_float && !negative) {
        parse_initial_address(p, v, at, 0);
        return;
    }
    if (t.kind == TOKEN_INTEGER && !is_float) {
        bits = negative ? 0 - t.integer : t.integer;
    } else if ((t.kind == TOKEN_FLOAT32 && v->type == TYPE_F32) || (t.kind == TOKEN_FLOAT64 && v->type == TYPE_F64)) {
        bits = t.integer ^ (negative ? 1ull << (8 * bytes - 1) : 0);
    } else {
        parse_expected(
            p, t, is_float ? "a floating-point constant of the variable's type" : "a number or the name of a variable");
    }
    parse_advance(p);
    if (t.kind == TOKEN_INTEGER && parse_accept(p, '(')) { /* 0xFF00(generic(name)) */
        parse_initial_address(p, v, at, bits);
        parse_require(p, ')', "')'");
        return;
    }
    for (size_t i = 0; i < bytes; i++) to[i] = (uint8_t)(bits >> (8 * i));
}

static const uint8_t *parse_initialiser(parser *p, const variable *v, uint32_t bytes)
{
    uint8_t *initial = parse_allocate(p, bytes ? bytes : 1);
    uint32_t at = 0, each = (uint32_t)type_bytes(v->type);
    int nesting = 0;
    do { /* { {1, 2}, {3, 4} }: the values follow one another, whatever the inner braces */
        while (parse_accept(p, '{'))
            if (++nesting > 8) parse_fail(p, p->token.line, EMULATOR_PARSE, "an initialiser nested more than 8 deep");
        if (bytes - at < each) parse_expected(p, p->token, "'}': the variable has no more elements");
        parse_initial_value(p, v, initial + at, at);
        at += each;
        while (nesting && parse_accept(p, '}')) nesting--;
        if (nesting) parse_require(p, ',', "',' or '}'");
    } while (nesting);
    return initial;
}

/* Gives the variable its place in its space. */
static void place_variable(parser *p, symbol *s, int line)
{
    uint32_t *used = &p->variable_bytes, most = VARIABLE_BYTES_MAX;
    bool in_frame = s->space == SPACE_LOCAL || s->framed;
    if (in_frame && s->alignment > p->entry->local_alignment) p->entry->local_alignment = s->alignment;
    if (s->space == SPACE_SHARED) {
        used = p->entry ? &p->entry->static_shared_bytes : &p->shared_bytes;
        most = SHARED_BYTES_MAX;
    } else if (in_frame) {
        used = &p->entry->local_bytes;
        most = LOCAL_BYTES_MAX;
    } else if (s->space == SPACE_PARAM) {
        used = &p->entry->parameter_bytes;
        most = PARAMETER_BYTES_MAX;
    }
    s->offset = parse_align(*used, s->alignment);
    if (s->offset > most || s->bytes > most - s->offset)
        parse_fail(p, line, EMULATOR_RESOURCE, "more than %u bytes of %s", most,
                   s->space == SPACE_SHARED  ? ".shared"
                   : in_frame                ? ".local and .param"
                   : s->space == SPACE_PARAM ? ".param"
                                             : ".global and .const");
    *used = s->offset + s->bytes;
}

static int finish_variable(parser *p, const variable *v, state_space space, bool is_extern, bool framed)
{
    int relocations = p->module->relocation_count;
    int line = v->name.line;
    uint64_t bytes = v->count * (uint64_t)(type_bytes(v->type) * v->elements);
    if (bytes > VARIABLE_BYTES_MAX)
        parse_fail(p, line, EMULATOR_RESOURCE, "a variable of more than %d bytes", VARIABLE_BYTES_MAX);
    symbol s = {.space = space, .type = v->type, .bytes = (uint32_t)bytes, .alignment = v->alignment, .framed = framed};
    bool dynamic = is_extern && space == SPACE_SHARED;
    if (is_extern && !dynamic)
        parse_fail(p, line, EMULATOR_UNKNOWN_FORM, ".extern of anything but .shared needs another module");
    if (parse_accept(p, '=')) {
        if (is_extern || (space != SPACE_GLOBAL && space != SPACE_CONST))
            parse_expected(p, p->token, "no initialiser in this state space");
        if (v->count == 0) parse_fail(p, line, EMULATOR_UNKNOWN_FORM, "an array whose size only its initialiser tells");
        s.initial = parse_initialiser(p, v, s.bytes);
    } else if (v->count == 0 && !dynamic) {
        parse_fail(p, line, EMULATOR_PARSE, "'%.*s[]' needs a number of elements, or .extern .shared",
                   (int)(v->name.length < 40 ? v->name.length : 40), v->name.text);
    }
    if (dynamic)
        s.bytes = 0;
    else
        place_variable(p, &s, line);
    int number = parse_new_symbol(p, v->name, s);
    for (int r = relocations; r < p->module->relocation_count; r++) p->module->relocations[r].symbol = number;
    parse_declare(p, v->name, KEY_NAME,
                  (declaration){.kind = DECLARED_SYMBOL, .type = v->type, .symbol = number, .dynamic = dynamic});
    return number;
}

int parse_variable(parser *p, state_space space, bool is_extern)
{
    variable v = parse_shape(p, space);
    bool framed = space == SPACE_PARAM;
    int number = finish_variable(p, &v, space, is_extern, framed);
    while (parse_accept(p, ',')) { /* .shared .b32 a, b[2]; */
        v.name = p->token;
        if (v.name.kind != TOKEN_WORD) parse_expected(p, v.name, "the name of a variable");
        parse_advance(p);
        parse_dimensions(p, &v);
        finish_variable(p, &v, space, is_extern, framed);
    }
    parse_require(p, ';', "'=', ',' or ';'");
    return number;
}

void parse_parameter(parser *p)
{
    variable v = parse_shape(p, SPACE_PARAM);
    finish_variable(p, &v, SPACE_PARAM, false, false);
}

/* A .reg formal has a place in the frame too, from which it is read when the function is entered. */
static formal parse_register_formal(parser *p, bool is_named)
{
    formal f = {.type = parse_type(p), .slot = -1};
    token name = p->token;
    if (name.kind != TOKEN_WORD || type_bytes(f.type) == 0)
        parse_expected(p, name, "the name of a register, no predicate");
    parse_advance(p);
    f.bytes = (uint32_t)type_bytes(f.type);
    if (!is_named) return f;
    symbol s = {.space = SPACE_PARAM, .framed = true, .bytes = f.bytes, .alignment = f.bytes};
    place_variable(p, &s, name.line);
    f.offset = s.offset;
    f.slot = take_slots(p, f.type, 1, name.line);
    parse_declare(p, name, KEY_NAME,
                  (declaration){.kind = DECLARED_REGISTER, .type = f.type, .slot = f.slot, .count = 1, .symbol = -1});
    return f;
}

formal parse_formal(parser *p, bool is_register, bool is_named)
{
    if (is_register) return parse_register_formal(p, is_named);
    variable v = parse_shape(p, SPACE_PARAM);
    formal f = {.type = v.type, .slot = -1};
    uint64_t bytes = v.count * (uint64_t)(type_bytes(v.type) * v.elements);
    if (bytes == 0 || bytes > PARAMETER_BYTES_MAX)
        parse_fail(p, v.name.line, EMULATOR_RESOURCE, "a parameter of %llu bytes: 1 to %d are possible",
                   (unsigned long long)bytes, PARAMETER_BYTES_MAX);
    f.bytes = (uint32_t)bytes;
    if (is_named) {
        int number = finish_variable(p, &v, SPACE_PARAM, false, true); /* may move the symbols */
        f.offset = p->module->symbols[number].offset;
    }
    return f;
}

int parse_use_symbol(parser *p, const declaration *d)
{
    entry *e = p->entry;
    if (!d->dynamic) return d->symbol;
    for (int i = 0; i < e->dynamic_count; i++)
        if (e->dynamic_from[i] == d->symbol) return e->dynamic_to[i];
    if (e->dynamic_count == DYNAMIC_MAX)
        parse_fail(p, p->token.line, EMULATOR_RESOURCE, "more than %d .extern .shared variables in one entry",
                   DYNAMIC_MAX);
    symbol s = p->module->symbols[d->symbol];
    token name = {.text = s.name, .length = strlen(s.name)};
    e->dynamic_from[e->dynamic_count] = d->symbol;
    e->dynamic_to[e->dynamic_count] = parse_new_symbol(p, name, s);
    return e->dynamic_to[e->dynamic_count++];
}
