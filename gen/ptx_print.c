/* The printer: an instruction list as PTX text, with the region of each run of instructions as a comment. Outside of all scopes the region is the
 * kernel itself: it needs no comment at the beginning, and carries the entry's name where the list comes back to it. */
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

/* Appends n bytes and keeps the text NUL-terminated. */
static void put_bytes(text *t, const char *bytes, size_t n)
{
    if (t->failed) return;
    if (t->length + n + 1 > t->capacity) {
        size_t wanted = t->capacity ? t->capacity * 2 : 65536;
        while (wanted < t->length + n + 1) wanted *= 2;
        char *grown = realloc(t->bytes, wanted);
        if (grown == NULL) {
            t->failed = true;
            return;
        }
        t->bytes = grown;
        t->capacity = wanted;
    }
    memcpy(t->bytes + t->length, bytes, n);
    t->length += n;
    t->bytes[t->length] = '\0';
}

static void put_text(text *t, const char *s) { put_bytes(t, s, strlen(s)); }

/* A decimal number; most of a kernel's text is register numbers, for which printf would take most of the time. */
static void put_number(text *t, int64_t x)
{
    char digits[20];
    int at = sizeof digits;
    uint64_t rest = x < 0 ? 0 - (uint64_t)x : (uint64_t)x;
    do digits[--at] = (char)('0' + rest % 10);
    while (rest /= 10);
    if (x < 0) put_bytes(t, "-", 1);
    put_bytes(t, digits + at, sizeof digits - (size_t)at);
}

static void put(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* For what is rare. */
static void put(text *t, const char *format, ...)
{
    char line[256];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof line) t->failed = true;
    else put_bytes(t, line, (size_t)n);
}

static void put_value(text *t, const ptx_builder *b, const ptx_value *v)
{
    switch ((ptx_kind)v->kind) {
    case PTX_KIND_IMM: put_number(t, v->imm); break;
    case PTX_KIND_FIMM: put(t, "0f%08X", (unsigned)v->imm); break;
    case PTX_KIND_LABEL: put_text(t, b->label[v->id]); break;
    case PTX_KIND_PARAM: put_text(t, b->param[v->id].name); break;
    case PTX_KIND_SPECIAL: put_text(t, special_text[v->id]); break;
    default:
        put_text(t, register_prefix[v->kind]);
        put_number(t, v->id);
    }
}

static void put_operand(text *t, const ptx_builder *b, const ptx_operand *o)
{
    if (strchr("SGA", o->class)) {
        put_text(t, "[");
        put_value(t, b, o->value);
        if (o->value->kind != PTX_KIND_PARAM && o->value->imm) {
            put_text(t, "+");
            put_number(t, o->value->imm);
        }
        put_text(t, "]");
    } else if (o->vector) {
        for (int i = 0; i < o->length; i++) {
            put_text(t, i ? ", " : "{");
            put_value(t, b, o->value + i);
        }
        put_text(t, "}");
    } else {
        put_value(t, b, o->value);
    }
}

static void put_instruction(text *t, const ptx_builder *b, const ptx_instruction *i)
{
    if (i->op == PTX_OP_label) {
        put_text(t, b->label[b->values[i->first].id]);
        put_text(t, ":\n");
        return;
    }
    put_text(t, "    ");
    if (i->guard.kind == PTX_KIND_P) {
        put_text(t, i->guard.imm ? "@!" : "@");
        put_value(t, b, &i->guard);
        put_text(t, " ");
    }
    const char *mnemonic = ptx_ops[i->op].mnemonic, *columns = strstr(mnemonic, "%n");
    if (columns) {
        put_bytes(t, mnemonic, (size_t)(columns - mnemonic));
        put_number(t, 2 * i->vector);
        put_text(t, columns + 2);
    } else {
        put_text(t, mnemonic);
    }
    ptx_operand operand[8];
    int n = ptx_operands(b, i, operand);
    for (int k = 0; k < n; k++) {
        put_text(t, k ? ", " : mnemonic[strlen(mnemonic) - 1] == '|' ? "" : " ");
        put_operand(t, b, &operand[k]);
    }
    put_text(t, ";\n");
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
    int region = 0; /* the root */
    for (size_t i = 0; i < b->count; i++) {
        if (b->list[i].region != region) {
            region = b->list[i].region;
            put(&t, "    // %s\n", *b->region[region].path ? b->region[region].path : b->entry);
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
