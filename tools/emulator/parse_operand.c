/* Operands as they are written, before the form says what they have to be. */
#include "parse.h"

#include <string.h>

#include "exec.h"

/* ---- Names ---- */

static const struct {
    const char *name;
    special_register special;
} special_registers[] = {
    {"%tid.x", SPECIAL_TID_X},
    {"%tid.y", SPECIAL_TID_Y},
    {"%tid.z", SPECIAL_TID_Z},
    {"%ntid.x", SPECIAL_NTID_X},
    {"%ntid.y", SPECIAL_NTID_Y},
    {"%ntid.z", SPECIAL_NTID_Z},
    {"%ctaid.x", SPECIAL_CTAID_X},
    {"%ctaid.y", SPECIAL_CTAID_Y},
    {"%ctaid.z", SPECIAL_CTAID_Z},
    {"%nctaid.x", SPECIAL_NCTAID_X},
    {"%nctaid.y", SPECIAL_NCTAID_Y},
    {"%nctaid.z", SPECIAL_NCTAID_Z},
    {"%laneid", SPECIAL_LANEID},
    {"%warpid", SPECIAL_WARPID},
    {"%lanemask_lt", SPECIAL_LANEMASK_LT},
    {"%lanemask_le", SPECIAL_LANEMASK_LE},
    {"%lanemask_eq", SPECIAL_LANEMASK_EQ},
    {"%lanemask_gt", SPECIAL_LANEMASK_GT},
    {"%lanemask_ge", SPECIAL_LANEMASK_GE},
    {"%clock64", SPECIAL_CLOCK64},
    {"%globaltimer", SPECIAL_GLOBALTIMER},
    {"%smid", SPECIAL_SMID},
    {"%cluster_ctarank", SPECIAL_CLUSTER_CTARANK},
};

static bool find_special(token name, special_register *special)
{
    for (size_t i = 0; i < sizeof special_registers / sizeof *special_registers; i++)
        if (token_is(name, special_registers[i].name)) {
            *special = special_registers[i].special;
            return true;
        }
    return false;
}

static register_ref register_of(const declaration *d, int index)
{
    return (register_ref){.type = d->type, .slot = d->slot + index * (type_bytes(d->type) == 8 ? 2 : 1)};
}

/* A register, special register, variable, or else a label. */
operand parse_operand_name(parser *p)
{
    token name = p->token;
    operand o = {.kind = OPERAND_LABEL, .symbol = -1, .target = -1};
    int index;
    const declaration *d = parse_find(p, name, &index);
    if (token_is(name, "_")) {
        o.kind = OPERAND_SINK;
    } else if (token_is(name, "WARP_SZ")) {
        o.kind = OPERAND_IMMEDIATE;
        o.bits = 32;
    } else if (d && d->kind != DECLARED_SYMBOL) {
        o.kind = OPERAND_REGISTER;
        o.reg = register_of(d, index);
    } else if (d) {
        o.kind = OPERAND_SYMBOL;
        o.symbol = parse_use_symbol(p, d);
        const symbol *s = &p->module->symbols[o.symbol];
        if (s->space == SPACE_CODE) p->module->functions[s->offset].address_taken = true;
    } else if (find_special(name, &o.special)) {
        o.kind = OPERAND_SPECIAL;
    } else if (*name.text == '%') {
        parse_expected(p, name, "a register that is declared, or a special register that the interpreter knows");
    }
    parse_advance(p);
    return o;
}

/* ---- Immediates ---- */

static operand parse_immediate(parser *p, literal *kind)
{
    operand o = {.kind = OPERAND_IMMEDIATE, .symbol = -1};
    bool negative = parse_accept(p, '-');
    token t = p->token;
    o.bits = t.integer;
    if (t.kind == TOKEN_INTEGER) {
        *kind = LITERAL_INTEGER;
        if (negative) o.bits = 0 - o.bits;
    } else if (t.kind == TOKEN_FLOAT32) {
        *kind = LITERAL_FLOAT32;
        if (negative) o.bits ^= 0x80000000u;
    } else if (t.kind == TOKEN_FLOAT64) {
        *kind = LITERAL_FLOAT64;
        if (negative) o.bits ^= 1ull << 63;
    } else {
        parse_expected(p, t, negative ? "a number" : "an operand");
    }
    parse_advance(p);
    return o;
}

/* ---- Addresses and vectors ---- */

/* [base], [base + 16], [base + -16], after [ */
static operand parse_address(parser *p)
{
    token base = p->token;
    if (base.kind != TOKEN_WORD) parse_expected(p, base, "a register or variable as the base of the address");
    operand o = parse_operand_name(p);
    if (o.kind == OPERAND_LABEL) parse_expected(p, base, "a register or variable that is declared");
    if (o.kind != OPERAND_REGISTER && o.kind != OPERAND_SYMBOL)
        parse_expected(p, base, "a register or variable as the base of the address");
    if (o.kind == OPERAND_REGISTER) {
        o.symbol = -1;
        int bytes = type_bytes(o.reg.type);
        bool is_float =
            o.reg.type == TYPE_F32 || o.reg.type == TYPE_F64 || o.reg.type == TYPE_F16X2 || o.reg.type == TYPE_BF16X2;
        if (o.reg.type == TYPE_PRED || is_float || (bytes != 4 && bytes != 8))
            parse_expected(p, base, "a register of 32 or 64 bits, not of floating point, as the base of the address");
    }
    o.kind = OPERAND_ADDRESS;
    bool minus = parse_is(p, '-');
    if (parse_accept(p, '+') || parse_accept(p, '-')) {
        token at = p->token;
        o.offset = parse_integer(p, "a constant as the offset of the address");
        if (o.offset > INT32_MAX || o.offset < INT32_MIN) parse_expected(p, at, "an offset of 32 bits");
        if (minus) o.offset = -o.offset;
    }
    parse_require(p, ']', "'+' or ']'");
    return o;
}

static void add_element(parser *p, operand o)
{
    entry *e = p->entry;
    e->elements = parse_grow(p, e->elements, e->element_count, &p->element_capacity, sizeof o, ELEMENTS_MAX,
                             "elements of vectors");
    e->elements[e->element_count++] = o;
}

/* {a, b, ...} after { */
static operand parse_vector(parser *p)
{
    operand o = {.kind = OPERAND_VECTOR, .symbol = -1, .first = p->entry->element_count};
    do {
        token at = p->token;
        literal kind = LITERAL_NONE;
        operand element;
        if (o.count == VECTOR_MAX)
            parse_fail(p, at.line, EMULATOR_PARSE, "a vector of more than %d elements", VECTOR_MAX);
        if (at.kind == TOKEN_WORD)
            element = parse_operand_name(p);
        else
            element = parse_immediate(p, &kind);
        if (element.kind == OPERAND_LABEL) parse_expected(p, at, "a register that is declared");
        if (element.kind == OPERAND_SPECIAL || element.kind == OPERAND_SYMBOL)
            parse_expected(p, at, "a register in the vector");
        if (element.kind == OPERAND_IMMEDIATE) element.target = (int)kind; /* until forms_apply converts it */
        add_element(p, element);
        o.count++;
    } while (parse_accept(p, ','));
    parse_require(p, '}', "',' or '}'");
    return o;
}

/* ---- Operands ---- */

static void parse_one(parser *p, parsed_operand *o)
{
    *o = (parsed_operand){.token = p->token};
    if (parse_accept(p, '[')) {
        o->value = parse_address(p);
    } else if (parse_accept(p, '{')) {
        o->value = parse_vector(p);
    } else if (parse_accept(p, '!')) {
        o->token = p->token;
        if (p->token.kind != TOKEN_WORD) parse_expected(p, p->token, "a predicate");
        o->value = parse_operand_name(p);
        if (o->value.kind != OPERAND_REGISTER || o->value.reg.type != TYPE_PRED)
            parse_expected(p, o->token, "a predicate that is declared");
        o->value.negated = true;
    } else if (p->token.kind == TOKEN_WORD) {
        if (token_is(p->token, "WARP_SZ")) o->literal = LITERAL_INTEGER;
        o->value = parse_operand_name(p);
    } else {
        o->value = parse_immediate(p, &o->literal);
    }
    o->joined = parse_is(p, '|');
}

int parse_operands(parser *p, parsed_operand *parsed)
{
    int count = 0;
    if (parse_accept(p, ';')) return 0;
    do {
        if (count == OPERANDS_MAX) parse_fail(p, p->token.line, EMULATOR_PARSE, "more than %d operands", OPERANDS_MAX);
        parse_one(p, &parsed[count++]);
    } while (parse_accept(p, ',') || parse_accept(p, '|'));
    if (!parse_is(p, ';')) parse_expected(p, p->token, "',' or ';'");
    parse_advance(p);
    return count;
}

/* ---- Calls ---- */

/* (a, b, ...) with the ( already read: parameters declared in the body, registers, constants; into elements. */
static operand parse_arguments(parser *p, const formal *formals, int formal_count, const char *what, bool are_returns)
{
    operand o = {.kind = OPERAND_VECTOR, .symbol = -1, .first = p->entry->element_count};
    int line = p->token.line;
    if (!parse_accept(p, ')')) {
        do {
            token at = p->token;
            literal kind = LITERAL_NONE;
            if (o.count == formal_count) parse_expected(p, at, "no more arguments");
            const formal *f = &formals[o.count];
            bool is_name = at.kind == TOKEN_WORD;
            operand a = is_name ? parse_operand_name(p) : parse_immediate(p, &kind);
            bool is_param = a.kind == OPERAND_SYMBOL && p->module->symbols[a.symbol].framed;
            if (!is_param && a.kind != OPERAND_REGISTER && (is_name || are_returns))
                parse_expected(p, at, "a register, or a .param declared in this body");
            uint32_t bytes = is_param                     ? p->module->symbols[a.symbol].bytes
                             : a.kind == OPERAND_REGISTER ? (uint32_t)type_bytes(a.reg.type)
                                                          : f->bytes;
            if (bytes != f->bytes)
                parse_fail(p, at.line, EMULATOR_PARSE, "'%.*s' has %u bytes, the %s %d of the call %u",
                           (int)(at.length < 60 ? at.length : 60), at.text, bytes, what, o.count, f->bytes);
            add_element(p, a);
            o.count++;
        } while (parse_accept(p, ','));
        parse_require(p, ')', "',' or ')'");
    }
    if (o.count < formal_count && !(are_returns && o.count == 0))
        parse_fail(p, line, EMULATOR_PARSE, "the call has %d %ss; the function has %d", o.count, what, formal_count);
    return o;
}

/* What the call is to: a function, or a register. */
static operand parse_callee(parser *p, const signature **takes)
{
    token at = p->token;
    int index;
    const declaration *d = at.kind == TOKEN_WORD ? parse_find(p, at, &index) : NULL;
    const symbol *s = d && d->kind == DECLARED_SYMBOL ? &p->module->symbols[d->symbol] : NULL;
    *takes = NULL;
    if (!d || (s && s->space != SPACE_CODE) || (!s && type_bytes(d->type) != 8 && type_bytes(d->type) != 4))
        parse_expected(p, at, "a function that is declared, or a register with its address");
    if (s) {
        *takes = &p->module->functions[s->offset].takes;
        parse_advance(p);
        return (operand){.kind = OPERAND_SYMBOL, .symbol = d->symbol};
    }
    return parse_operand_name(p);
}

/* The table of an indirect call stands after the arguments, which it describes: read ahead for it. */
static int find_call_table(parser *p)
{
    lexer at = p->lexer;
    token next = p->token, last = next;
    while (!parse_is(p, ';') && p->token.kind != TOKEN_END && p->token.kind != TOKEN_BAD) {
        last = p->token;
        parse_advance(p);
    }
    p->lexer = at;
    p->token = next;
    int table = last.kind == TOKEN_WORD ? parse_find_table(p, last) : -1;
    if (table < 0)
        parse_expected(p, last, "the name of a .callprototype or .calltargets, as an indirect call needs one");
    return table;
}

/* call [(returns),] callee [, (arguments)] [, table]; places: callee, returns, arguments, table's number. */
void parse_call(parser *p, instruction *i)
{
    lexer returns_at = p->lexer;
    token returns_token = p->token;
    bool has_returns = parse_is(p, '(');
    if (has_returns) { /* read once the callee is known */
        while (!parse_is(p, ')')) {
            if (p->token.kind == TOKEN_END || p->token.kind == TOKEN_BAD || parse_is(p, ';'))
                parse_expected(p, p->token, "')'");
            parse_advance(p);
        }
        parse_advance(p);
        parse_require(p, ',', "','");
    }
    const signature *takes;
    operand callee = parse_callee(p, &takes);
    int table = takes ? -1 : find_call_table(p);
    if (!takes) takes = &p->module->tables[table].takes;
    lexer after = p->lexer;
    token after_token = p->token;
    operand lists[2] = {{.kind = OPERAND_VECTOR, .symbol = -1, .first = p->entry->element_count}};
    lists[1] = lists[0];
    if (has_returns) {
        p->lexer = returns_at;
        p->token = returns_token;
        parse_advance(p);
        lists[0] = parse_arguments(p, takes->returns, takes->return_count, "return value", true);
        p->lexer = after;
        p->token = after_token;
    }
    bool comma = parse_accept(p, ',');
    if (comma && parse_accept(p, '(')) {
        lists[1] = parse_arguments(p, takes->parameters, takes->parameter_count, "argument", false);
        comma = parse_accept(p, ',');
    } else if (takes->parameter_count > 0) {
        parse_expected(p, p->token, "the arguments of the call in ( )");
    }
    if (comma) {
        if (table < 0 && parse_find_table(p, p->token) < 0) parse_expected(p, p->token, "';'");
        parse_advance(p);
    }
    parse_require(p, ';', "',' or ';'");
    i->operand[0] = callee;
    i->operand[1] = lists[0];
    i->operand[2] = lists[1];
    i->operand[3] = (operand){.kind = OPERAND_IMMEDIATE, .symbol = -1, .bits = (uint64_t)(int64_t)table};
    i->operands = 4;
}
