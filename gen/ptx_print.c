/* The printer: an instruction list as PTX text, with the region of each run of instructions as a comment. */
#include "ptx.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const register_prefix[PTX_KINDS] = {
    [PTX_KIND_P] = "%p", [PTX_KIND_H] = "%h", [PTX_KIND_R] = "%r", [PTX_KIND_F] = "%f", [PTX_KIND_L] = "%l"};
static const char *const register_type[PTX_KINDS] = {
    [PTX_KIND_P] = ".pred", [PTX_KIND_H] = ".b16", [PTX_KIND_R] = ".b32", [PTX_KIND_F] = ".f32", [PTX_KIND_L] = ".b64"};
static const char *const special_text[] = {
#define S(id, text) text,
    PTX_SPECIALS(S)
#undef S
};

typedef struct text {
    char *bytes;
    size_t length, capacity;
    bool failed;
} text;

static void put(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(text *t, const char *format, ...)
{
    char line[256];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof line) t->failed = true;
    if (t->failed) return;
    if (t->length + (size_t)n + 1 > t->capacity) {
        size_t wanted = t->capacity ? t->capacity * 2 : 65536;
        char *grown = realloc(t->bytes, wanted);
        if (grown == NULL) {
            t->failed = true;
            return;
        }
        t->bytes = grown;
        t->capacity = wanted;
    }
    memcpy(t->bytes + t->length, line, (size_t)n + 1);
    t->length += (size_t)n;
}

static void put_value(text *t, const ptx_builder *b, const ptx_value *v)
{
    switch ((ptx_kind)v->kind) {
    case PTX_KIND_IMM: put(t, "%lld", (long long)v->imm); break;
    case PTX_KIND_FIMM: put(t, "0f%08X", (unsigned)v->imm); break;
    case PTX_KIND_LABEL: put(t, "%s", b->label[v->id]); break;
    case PTX_KIND_PARAM: put(t, "%s", b->param[v->id].name); break;
    case PTX_KIND_SPECIAL: put(t, "%s", special_text[v->id]); break;
    default: put(t, "%s%u", register_prefix[v->kind], v->id); break;
    }
}

static void put_operand(text *t, const ptx_builder *b, const ptx_operand *o)
{
    if (strchr("SGA", o->class)) {
        put(t, "[");
        put_value(t, b, o->value);
        if (o->value->kind != PTX_KIND_PARAM && o->value->imm) put(t, "+%lld", (long long)o->value->imm);
        put(t, "]");
    } else if (o->vector) {
        put(t, "{");
        for (int i = 0; i < o->length; i++) {
            if (i) put(t, ", ");
            put_value(t, b, o->value + i);
        }
        put(t, "}");
    } else {
        put_value(t, b, o->value);
    }
}

static void put_instruction(text *t, const ptx_builder *b, const ptx_instruction *i)
{
    if (i->op == PTX_OP_label) {
        put(t, "%s:\n", b->label[b->values[i->first].id]);
        return;
    }
    put(t, "    ");
    if (i->guard.kind == PTX_KIND_P) put(t, "@%s%%p%u ", i->guard.imm ? "!" : "", i->guard.id);
    const char *mnemonic = ptx_ops[i->op].mnemonic, *columns = strstr(mnemonic, "%n");
    if (columns) put(t, "%.*s%d%s", (int)(columns - mnemonic), mnemonic, 2 * i->vector, columns + 2);
    else put(t, "%s", mnemonic);
    ptx_operand operand[8];
    int n = ptx_operands(b, i, operand);
    for (int k = 0; k < n; k++) {
        put(t, k ? ", " : ptx_ops[i->op].mnemonic[strlen(ptx_ops[i->op].mnemonic) - 1] == '|' ? "" : " ");
        put_operand(t, b, &operand[k]);
    }
    put(t, ";\n");
}

char *ptx_print(const ptx_builder *b, size_t *length, gen_error *err)
{
    text t = {0};
    put(&t, ".version %d.%d\n.target %s\n.address_size 64\n\n", b->target->ptx_major, b->target->ptx_minor, b->target->name);
    put(&t, ".extern .shared .align 1024 .b8 shared_base[];\n\n.visible .entry %s(\n", b->entry);
    for (int i = 0; i < b->params; i++)
        put(&t, "    .param .b%d %s%s\n", 8 * b->param[i].bytes, b->param[i].name, i + 1 < b->params ? "," : "");
    put(&t, ")\n.reqntid %d, 1, 1\n.maxnreg %d\n{\n", b->threads, b->max_registers);
    for (int k = PTX_KIND_P; k <= PTX_KIND_L; k++)
        if (b->registers[k]) put(&t, "    .reg %s %s<%u>;\n", register_type[k], register_prefix[k], b->registers[k]);
    int region = -1;
    for (size_t i = 0; i < b->count; i++) {
        if (b->list[i].region != region) {
            region = b->list[i].region;
            put(&t, "    // %s\n", b->region[region].path);
        }
        put_instruction(&t, b, &b->list[i]);
    }
    put(&t, "}\n");
    if (t.failed) {
        free(t.bytes);
        gen_fail(err, "out of memory while printing %s; free some memory and try again", b->entry);
        return NULL;
    }
    *length = t.length;
    return t.bytes;
}
