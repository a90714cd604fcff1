/* Forms: chooses the row of forms.def whose operand classes fit, checks types and target, and converts the operands. */
#include "matrix_fragment.h"
#include "parse.h"

#include <stdio.h>
#include <string.h>

/* ---- Operand classes ---- */

typedef enum place_vector {
    PLACE_SINGLE,
    PLACE_BY_MODIFIER,
    PLACE_COUNTED,
    PLACE_ACCUMULATOR,
    PLACE_TENSOR_SHAPE
} place_vector;

/* One class of a row: what an operand has to be. */
typedef struct place {
    char letter;
    emulator_type type;
    bool wider, immediate, sink, optional, joined; /* joined: the next place follows after | */
    place_vector vector;
    int count; /* of elements */
} place;

/* The type of twice, half or a quarter of the size. */
static emulator_type scale_type(emulator_type type, char scale)
{
    static const struct {
        char scale;
        emulator_type from, to;
    } scaled[] = {
        {'w', TYPE_U16, TYPE_U32}, {'w', TYPE_S16, TYPE_S32}, {'w', TYPE_U32, TYPE_U64},
        {'w', TYPE_S32, TYPE_S64}, {'h', TYPE_B64, TYPE_B32}, {'h', TYPE_B32, TYPE_B16},
        {'h', TYPE_B16, TYPE_B8},  {'k', TYPE_B64, TYPE_B16}, {'k', TYPE_B32, TYPE_B8},
    };
    for (size_t i = 0; i < sizeof scaled / sizeof *scaled; i++)
        if (scaled[i].scale == scale && scaled[i].from == type) return scaled[i].to;
    return TYPE_NONE;
}

/* Registers of a wgmma accumulator: 64 x n values over 128 threads; of a tcgen05 shape: 32-bit registers of a lane. */
static int accumulator_registers(const modifiers *m)
{
    return m->type[0] == TYPE_F16 ? m->n / 4 : m->n / 2;
}
static int tensor_registers(const modifiers *m)
{
    int each = m->n == 128 ? 2 : m->n == 256 ? 4 : 1;
    return each * m->k;
}

/* The type of the registers that hold elements of a type: 32 bits, whatever is packed in them, except for f64. */
static emulator_type fragment_register(emulator_type type)
{
    return type == TYPE_F64 || type == TYPE_F32 || type == TYPE_S32 ? type : TYPE_B32;
}

static const char *read_type(const char *c, emulator_type *type)
{
    size_t length = strcspn(c, "+*#_?| ");
    for (int i = TYPE_PRED; i < TYPE_COUNT; i++) {
        const char *name = type_name((emulator_type)i);
        if (strlen(name) == length && memcmp(name, c, length) == 0) *type = (emulator_type)i;
    }
    return c + length;
}

/* The next class of a row; false at its end. */
static bool next_place(const char **classes, const modifiers *m, place *out)
{
    const char *c = *classes;
    while (*c == ' ') c++;
    if (!*c) return false;
    *out = (place){.letter = *c++, .type = m->type[0], .count = 1};
    for (; *c && *c != ' ' && *c != '|'; c++) {
        switch (*c) {
        case '1':
        case '2':
        case '3':
            out->type = m->type[*c - '0'];
            break;
        case ':':
            c = read_type(c + 1, &out->type) - 1;
            break;
        case 'w':
        case 'h':
        case 'k':
            out->type = scale_type(out->type, *c);
            break;
        case '+':
            out->wider = true;
            break;
        case '#':
            out->immediate = true;
            break;
        case '_':
            out->sink = true;
            break;
        case '?':
            out->optional = true;
            break;
        case '*':
            c++;
            if (*c == 'D') {
                out->vector = PLACE_ACCUMULATOR;
                out->count = accumulator_registers(m);
                if (out->type == TYPE_F16) out->type = TYPE_F16X2;
            } else if (*c == 'T') {
                out->vector = PLACE_TENSOR_SHAPE;
                out->count = tensor_registers(m);
            } else if (strchr("ABCabc", *c) && *c) {
                out->vector = PLACE_TENSOR_SHAPE;
                out->count = fragment_of(m, *c, out->type).registers;
                out->type = fragment_register(out->type);
            } else if (*c == '2' || *c == '4') {
                out->vector = PLACE_COUNTED;
                out->count = *c - '0';
            } else {
                out->vector = m->vector > 1 ? PLACE_BY_MODIFIER : PLACE_SINGLE;
                out->count = m->vector;
                c--;
            }
            break;
        }
    }
    if (*c == '|') {
        out->joined = true;
        c++;
    }
    *classes = c;
    return true;
}

/* ---- Types ---- */

static bool is_float_type(emulator_type t)
{
    return t >= TYPE_F16;
}
static bool is_bits_type(emulator_type t)
{
    return t >= TYPE_B8 && t <= TYPE_B64;
}

/* Whether a register of a declared type may stand where the instruction has a type. */
static bool type_fits(emulator_type declared, emulator_type wanted, bool wider)
{
    if (declared == TYPE_PRED || wanted == TYPE_PRED) return declared == wanted;
    int have = type_bytes(declared), need = type_bytes(wanted);
    if (have < need || (have > need && !wider)) return false;
    if (have > need) return !is_float_type(declared) && (!is_float_type(wanted) || need < 2);
    if (is_bits_type(declared) || is_bits_type(wanted)) return true;
    if (is_float_type(declared) || is_float_type(wanted)) return declared == wanted;
    return true;
}

/* Converts a constant to a type; false if it has no such constants. */
static bool convert_literal(emulator_type type, literal kind, uint64_t *bits)
{
    int bytes = type_bytes(type);
    if (kind == LITERAL_INTEGER) {
        if (type == TYPE_PRED)
            *bits = *bits != 0;
        else if (is_float_type(type))
            return false;
        else if (type == TYPE_S32)
            *bits = (uint64_t)(int64_t)(int32_t)(uint32_t)*bits;
        else if (bytes < 8)
            *bits &= (1ull << (8 * bytes)) - 1;
        return true;
    }
    if (kind == LITERAL_FLOAT32) return type == TYPE_F32 || type == TYPE_B32;
    if (kind != LITERAL_FLOAT64) return false;
    if (type == TYPE_F32) { /* a decimal fraction */
        double wide;
        memcpy(&wide, bits, sizeof wide);
        float narrow = (float)wide;
        uint32_t word;
        memcpy(&word, &narrow, sizeof word);
        *bits = word;
        return true;
    }
    return type == TYPE_F64 || type == TYPE_B64;
}

static int special_bytes(special_register s)
{
    return s == SPECIAL_CLOCK64 || s == SPECIAL_GLOBALTIMER ? 8 : 4;
}

/* ---- Matching ---- */

/* Why a row does not fit: the operand, and what was expected there. */
typedef struct mismatch {
    int at;
    char expected[160];
} mismatch;

static bool complain(mismatch *why, int at, const place *c, const char *what)
{
    why->at = at;
    if (c)
        snprintf(why->expected, sizeof why->expected, "%s of type .%s", what, type_name(c->type));
    else
        snprintf(why->expected, sizeof why->expected, "%s", what);
    return false;
}

static bool scalar_fits(const place *c, const operand *o, literal kind)
{
    uint64_t bits = o->bits;
    switch (c->letter) {
    case 'd':
    case 'r':
        return o->kind == OPERAND_REGISTER && !o->negated && type_fits(o->reg.type, c->type, c->wider);
    case 'q':
        return o->kind == OPERAND_REGISTER && !o->negated && o->reg.type == TYPE_PRED;
    case 'p':
        if (o->kind == OPERAND_IMMEDIATE) return c->immediate && kind == LITERAL_INTEGER;
        return o->kind == OPERAND_REGISTER && o->reg.type == TYPE_PRED;
    case 's':
        if (o->kind == OPERAND_IMMEDIATE) return convert_literal(c->type, kind, &bits);
        return o->kind == OPERAND_REGISTER && !o->negated && type_fits(o->reg.type, c->type, c->wider);
    case 'c':
        if (o->kind == OPERAND_SPECIAL)
            return !is_float_type(c->type) && type_bytes(c->type) == special_bytes(o->special);
        if (o->kind == OPERAND_SYMBOL) return !is_float_type(c->type) && type_bytes(c->type) >= 4;
        if (o->kind == OPERAND_IMMEDIATE) return convert_literal(c->type, kind, &bits);
        return o->kind == OPERAND_REGISTER && !o->negated && type_fits(o->reg.type, c->type, c->wider);
    case 'i':
        return o->kind == OPERAND_IMMEDIATE && kind == LITERAL_INTEGER;
    case 'a':
        return o->kind == OPERAND_ADDRESS;
    case 'l':
        return o->kind == OPERAND_LABEL;
    }
    return false;
}

static const char *letter_name(const place *c)
{
    switch (c->letter) {
    case 'd':
        return c->sink ? "a destination register or _" : "a destination register";
    case 'r':
        return "a register";
    case 's':
        return "a register or constant";
    case 'c':
        return "a register, constant, special register or variable";
    case 'i':
        return "a constant";
    default:
        return "an operand";
    }
}

static bool single_fits(const place *c, const parsed_operand *o, int at, mismatch *why)
{
    if (o->value.kind == OPERAND_SINK && c->sink) return true;
    if (scalar_fits(c, &o->value, o->literal)) return true;
    switch (c->letter) {
    case 'q':
        return complain(why, at, NULL, c->sink ? "a predicate register or _" : "a predicate register");
    case 'p':
        return complain(why, at, NULL, "a predicate");
    case 'a':
        return complain(why, at, NULL, "an address in [ ]");
    case 'l':
        return complain(why, at, NULL, "a label");
    }
    if (o->value.kind == OPERAND_LABEL) return complain(why, at, NULL, "a name that is declared");
    return complain(why, at, c, letter_name(c));
}

static bool vector_fits(const parser *p, const place *c, const parsed_operand *o, int at, mismatch *why)
{
    char what[64];
    snprintf(what, sizeof what, "a vector of %d elements", c->count);
    if (o->value.kind != OPERAND_VECTOR && c->vector == PLACE_TENSOR_SHAPE && c->count == 1)
        return single_fits(c, o, at, why);
    if (o->value.kind != OPERAND_VECTOR || o->value.count != c->count) return complain(why, at, c, what);
    for (int i = 0; i < c->count; i++) {
        const operand *element = &p->entry->elements[o->value.first + i];
        if (element->kind == OPERAND_SINK && c->sink) continue;
        if (scalar_fits(c, element, (literal)element->target)) continue;
        snprintf(what, sizeof what, "element %d of the vector to be a register", i);
        return complain(why, at, c, what);
    }
    return true;
}

/* The state space that a variable in an address must have: that of the instruction, for cp.async.bulk of this address.
 */
static bool symbol_fits(const parser *p, const modifiers *m, const operand *o, int address, int at, mismatch *why)
{
    static const char *const names[] = {"", "generic", ".global", ".shared", ".param", ".local", ".const"};
    if (o->symbol < 0) return true;
    state_space wanted = address == 0 ? m->space : address == 1 ? m->space2 : SPACE_SHARED;
    if (wanted == SPACE_NONE) wanted = SPACE_SHARED;
    if (p->module->symbols[o->symbol].space == wanted) return true;
    if (wanted == SPACE_GENERIC)
        return complain(why, at, NULL, "a register with a generic address, or a state space at the instruction");
    snprintf(why->expected, sizeof why->expected, "a variable in %s", names[wanted]);
    why->at = at;
    return false;
}

/* Puts the parsed operands in the places of a row; false and why if they do not fit. */
static bool row_fits(const parser *p, const form *row, const modifiers *m, const parsed_operand *parsed, int count,
                     instruction *i, mismatch *why)
{
    const char *classes = row->operand_classes;
    place c, before = {0};
    int at = 0, places = 0, addresses = 0;
    i->operands = 0;
    for (; next_place(&classes, m, &c); before = c, places++) {
        bool follows = places > 0 && before.joined;
        i->operand[places] = (operand){.symbol = -1};
        if (c.letter == '-') continue;
        if (follows && !parsed[at - 1].joined) {
            if (!c.optional) return complain(why, at - 1, NULL, "a pair a|b");
            continue;
        }
        if (at == count) {
            if (c.optional) continue;
            return complain(why, at,
                            c.letter == 'd' || c.letter == 'r' || c.letter == 's' || c.letter == 'i' ? &c : NULL,
                            letter_name(&c));
        }
        const parsed_operand *o = &parsed[at];
        if (o->joined && !c.joined) return complain(why, at, NULL, "no '|' there");
        bool fits = c.vector == PLACE_SINGLE ? single_fits(&c, o, at, why) : vector_fits(p, &c, o, at, why);
        if (!fits || (c.letter == 'a' && !symbol_fits(p, m, &o->value, addresses++, at, why))) return false;
        i->operand[places] = o->value;
        i->operands = (uint8_t)(places + 1);
        at++;
    }
    if (at < count) return complain(why, at, NULL, "no more operands");
    return true;
}

/* ---- Converting ---- */

static void convert_operands(parser *p, const form *row, instruction *i, const parsed_operand *parsed)
{
    const char *classes = row->operand_classes;
    place c;
    int at = 0;
    for (int k = 0; k < i->operands && next_place(&classes, &i->mods, &c); k++) {
        operand *o = &i->operand[k];
        if (c.letter == 'p') c.type = TYPE_PRED;
        if (o->kind == OPERAND_IMMEDIATE) convert_literal(c.type, parsed[at].literal, &o->bits);
        for (int e = 0; o->kind == OPERAND_VECTOR && e < o->count; e++) {
            operand *element = &p->entry->elements[o->first + e];
            if (element->kind != OPERAND_IMMEDIATE) continue;
            convert_literal(c.type, (literal)element->target, &element->bits);
            element->target = 0;
        }
        if (o->kind != OPERAND_NONE) at++;
    }
}

/* ---- Targets ---- */

static bool target_has(const parser *p, uint16_t target)
{
    int sm = p->target;
    bool exact = p->target_suffix == 'a', family = exact || p->target_suffix == 'f';
    bool tcgen05 = sm == 100 || sm == 101 || sm == 103 || sm == 110;
    switch (target) {
    case TARGET_90A:
        return sm == 90 && exact;
    case TARGET_SPECIFIC:
        return (sm == 90 && exact) || (sm >= 100 && family);
    case TARGET_TCGEN05:
        return tcgen05 && family;
    case TARGET_TCGEN05_EXACT:
        return tcgen05 && exact;
    case TARGET_TCGEN05_I8:
        return tcgen05 && sm != 103 && exact;
    default:
        return sm >= target;
    }
}

static void check_target(parser *p, const form *row, const char *text, int line)
{
    static const char *const special[] = {"sm_90a", "sm_90a or a later target with a or f",
                                          "sm_100a, sm_100f, sm_103a or their like",
                                          "sm_100a, sm_103a or their like (not f)", "sm_100a or sm_110a"};
    char plain[16];
    snprintf(plain, sizeof plain, "sm_%d", row->target);
    if (!target_has(p, row->target))
        parse_fail(p, line, EMULATOR_TARGET, "'%s' needs %s; the text says .target %s", text,
                   row->target >= TARGET_90A ? special[row->target - TARGET_90A] : plain, p->module->target);
    if (p->module->version < row->version)
        parse_fail(p, line, EMULATOR_TARGET, "'%s' needs .version %d.%d; the text says %d.%d", text, row->version / 10,
                   row->version % 10, p->module->version / 10, p->module->version % 10);
}

/* .param that lives in the frame is local memory; that of entries is only read. */
static void settle_parameters(parser *p, instruction *i, int line)
{
    if (i->mods.space != SPACE_PARAM) return;
    bool is_store = i->operand[0].kind == OPERAND_ADDRESS;
    for (int k = 0; k < i->operands; k++) {
        const operand *o = &i->operand[k];
        if (o->kind == OPERAND_ADDRESS && o->symbol >= 0 && p->module->symbols[o->symbol].framed)
            i->mods.space = SPACE_LOCAL;
    }
    bool in_entry = p->module->entry_count > 0 && p->entry == &p->module->entries[p->module->entry_count - 1];
    if (is_store && i->mods.space == SPACE_PARAM && (in_entry || i->operand[0].symbol >= 0))
        parse_fail(p, line, EMULATOR_PARSE, "'%s': the parameters of an entry are only read", i->opcode);
}

void forms_apply(parser *p, const decoded_mnemonic *m, token mnemonic, const parsed_operand *parsed, int count,
                 instruction *i)
{
    mismatch why, worst = {.at = -1};
    i->mods = m->mods;
    i->opcode = m->text;
    for (int r = 0; r < m->rows; r++) {
        if (row_fits(p, m->row[r], &m->mods, parsed, count, i, &why)) {
            i->form = m->row[r];
            check_target(p, i->form, m->text, mnemonic.line);
            convert_operands(p, i->form, i, parsed);
            settle_parameters(p, i, mnemonic.line);
            return;
        }
        if (why.at > worst.at) worst = why;
    }
    check_target(p, m->row[0], m->text, mnemonic.line);
    if (worst.at >= count)
        parse_fail(p, mnemonic.line, EMULATOR_PARSE, "'%s' has %d operands; expected also %s", m->text, count,
                   worst.expected);
    token at = parsed[worst.at].token;
    parse_fail(p, at.line, EMULATOR_PARSE, "'%s': operand %d, '%.*s': expected %s", m->text, worst.at + 1,
               (int)(at.length < 60 ? at.length : 60), at.text, worst.expected);
}
