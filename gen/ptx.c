/* The instruction list and its builder. */
#include "ptx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const ptx_op_row ptx_ops[PTX_OP_COUNT] = {
#define ALIGNED PTX_FLAG_ALIGNED
#define ACCEL   PTX_FLAG_ACCEL
#define PTX_OP(shape, id, mnemonic, operands, effect, class, flags) \
    {#id, mnemonic, operands, PTX_EFFECT_##effect, PTX_CLASS_##class, flags},
#include "ptx_ops.def"
#undef PTX_OP
#undef ALIGNED
#undef ACCEL
};

static void fail(ptx_builder *b, const char *what, const char *detail)
{
    if (b->failed) return;
    b->failed = true;
    gen_fail(&b->error, "emission of %s failed: %s %s (a fault of the generator, please report the spec)", b->entry, what, detail);
}

void ptx_builder_init(ptx_builder *b, const target *machine, const char *entry, int threads, int max_registers)
{
    memset(b, 0, sizeof *b);
    b->target = machine;
    b->threads = threads;
    b->max_registers = max_registers;
    snprintf(b->entry, sizeof b->entry, "%s", entry);
    ptx_scope_push(b, "");
}

void ptx_builder_finish(ptx_builder *b)
{
    if (b == NULL) return;
    free(b->list);
    free(b->values);
    b->list = NULL;
    b->values = NULL;
}

ptx_value ptx_param(ptx_builder *b, const char *name, int bytes)
{
    if (b->params == PTX_PARAMS_MAX) {
        fail(b, "too many parameters at", name);
        return (ptx_value){.kind = PTX_KIND_PARAM};
    }
    b->param[b->params] = (ptx_param_info){name, bytes};
    return (ptx_value){.kind = PTX_KIND_PARAM, .id = (uint32_t)b->params++};
}

ptx_value ptx_reg(ptx_builder *b, ptx_kind kind)
{
    return (ptx_value){.kind = (uint8_t)kind, .id = b->registers[kind]++};
}

ptx_value ptx_fimm(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return (ptx_value){.kind = PTX_KIND_FIMM, .imm = bits};
}

void ptx_scope_push(ptx_builder *b, const char *name)
{
    if (b->depth == PTX_SCOPE_DEPTH) {
        fail(b, "scopes nest too deep at", name);
        return;
    }
    char path[64];
    const char *outer = b->depth ? b->region[b->scope[b->depth - 1]].path : "";
    snprintf(path, sizeof path, "%.31s%s%.31s", outer, *outer ? "/" : "", name);
    int r = 0;
    while (r < b->regions && strcmp(b->region[r].path, path) != 0) r++;
    if (r == b->regions) {
        if (b->regions == PTX_REGIONS_MAX) {
            fail(b, "too many regions at", name);
            r = 0;
        } else {
            snprintf(b->region[b->regions++].path, sizeof b->region[0].path, "%s", path);
        }
    }
    b->scope[b->depth++] = r;
}

void ptx_scope_pop(ptx_builder *b)
{
    if (b->depth <= 1) {
        fail(b, "a scope is popped that was not pushed", "");
        return;
    }
    b->depth--;
}

ptx_value ptx_label_new(ptx_builder *b, const char *stem)
{
    if (b->labels == PTX_LABELS_MAX) {
        fail(b, "too many labels at", stem);
        return (ptx_value){.kind = PTX_KIND_LABEL};
    }
    snprintf(b->label[b->labels], sizeof b->label[0], "%.20s_%d", stem, b->labels);
    return (ptx_value){.kind = PTX_KIND_LABEL, .id = (uint32_t)b->labels++};
}

void ptx_label_place(ptx_builder *b, ptx_value label) { ptx_emit(b, PTX_OP_label, &label, 1, 0); }

void ptx_guard(ptx_builder *b, ptx_value p)
{
    if (p.kind != PTX_KIND_P || b->guard.kind != PTX_KIND_NONE) fail(b, "bad guard", "");
    b->guard = p;
    b->guard.imm = 0;
}

void ptx_guard_not(ptx_builder *b, ptx_value p)
{
    ptx_guard(b, p);
    b->guard.imm = 1;
}

/* Makes room for n more items of an array that doubles. */
static bool reserve(void **array, size_t *capacity, size_t count, size_t n, size_t size)
{
    if (count + n <= *capacity) return true;
    size_t wanted = *capacity ? *capacity * 2 : 1024;
    void *grown = realloc(*array, wanted * size);
    if (grown == NULL) return false;
    *array = grown;
    *capacity = wanted;
    return true;
}

void ptx_emit(ptx_builder *b, ptx_op op, const ptx_value *values, int count, int vector)
{
    if (b->failed) return;
    if (!reserve((void **)&b->list, &b->capacity, b->count, 1, sizeof *b->list) ||
        !reserve((void **)&b->values, &b->value_capacity, b->value_count, (size_t)count, sizeof *b->values)) {
        fail(b, "out of memory at", ptx_ops[op].id);
        return;
    }
    b->list[b->count++] = (ptx_instruction){
        .op = (uint16_t)op,
        .region = (uint16_t)b->scope[b->depth - 1],
        .vector = (uint16_t)vector,
        .operands = (uint16_t)count,
        .first = (uint32_t)b->value_count,
        .guard = b->guard,
    };
    if (count) memcpy(b->values + b->value_count, values, (size_t)count * sizeof *values);
    b->value_count += (size_t)count;
    b->guard = (ptx_value){0};
}

void ptx_emit_to(ptx_builder *b, ptx_op op, ptx_value dst, const ptx_value *sources, int count)
{
    ptx_value all[8] = {dst};
    memcpy(all + 1, sources, (size_t)count * sizeof *sources);
    ptx_emit(b, op, all, count + 1, 0);
}

static ptx_kind result_kind(ptx_op op)
{
    switch (ptx_ops[op].operands[1]) {
    case 'p': return PTX_KIND_P;
    case 'h': return PTX_KIND_H;
    case 'f': return PTX_KIND_F;
    case 'l': return PTX_KIND_L;
    default: return PTX_KIND_R;
    }
}

ptx_value ptx_emit_def(ptx_builder *b, ptx_op op, const ptx_value *sources, int count)
{
    ptx_value dst = ptx_reg(b, result_kind(op));
    ptx_emit_to(b, op, dst, sources, count);
    return dst;
}

void ptx_emit_vector(ptx_builder *b, ptx_op op, ptx_value address, ptx_value *values, int count, bool load)
{
    ptx_value all[5];
    if (load) {
        ptx_kind kind = ptx_ops[op].operands[2] == 'f' ? PTX_KIND_F : PTX_KIND_R;
        for (int i = 0; i < count; i++) all[i] = values[i] = ptx_reg(b, kind);
        all[count] = address;
    } else {
        all[0] = address;
        for (int i = 0; i < count; i++) all[i + 1] = values[i];
    }
    ptx_emit(b, op, all, count + 1, 0);
}

void ptx_split_b32(ptx_builder *b, ptx_value halves[2], ptx_value x)
{
    halves[0] = ptx_reg(b, PTX_KIND_H);
    halves[1] = ptx_reg(b, PTX_KIND_H);
    ptx_emit(b, PTX_OP_split_b32, (ptx_value[]){halves[0], halves[1], x}, 3, 0);
}

void ptx_split_b64(ptx_builder *b, ptx_value halves[2], ptx_value x)
{
    halves[0] = ptx_reg(b, PTX_KIND_R);
    halves[1] = ptx_reg(b, PTX_KIND_R);
    ptx_emit(b, PTX_OP_split_b64, (ptx_value[]){halves[0], halves[1], x}, 3, 0);
}

ptx_value ptx_join_b64(ptx_builder *b, const ptx_value halves[2])
{
    ptx_value x = ptx_reg(b, PTX_KIND_L);
    ptx_emit(b, PTX_OP_join_b64, (ptx_value[]){x, halves[0], halves[1]}, 3, 0);
    return x;
}

ptx_value ptx_div_power(ptx_builder *b, ptx_value x, int power)
{
    int shift = 0;
    while (1 << shift < power) shift++;
    if (1 << shift != power) fail(b, "a division by something that is no power of two in", "ptx_div_power");
    return shift ? ptx_shr_u32(b, x, ptx_imm(shift)) : x;
}

ptx_value ptx_elect(ptx_builder *b)
{
    ptx_value p = ptx_reg(b, PTX_KIND_P);
    ptx_emit(b, PTX_OP_elect, (ptx_value[]){p, ptx_imm(-1)}, 2, 0);
    return p;
}

void ptx_wgmma(ptx_builder *b, ptx_op op, const ptx_value *acc, int n, const ptx_value a[4], ptx_value descriptor, bool accumulate)
{
    ptx_value all[64 + 6];
    if (n > 64) {
        fail(b, "accumulator too long for", ptx_ops[op].id);
        return;
    }
    memcpy(all, acc, (size_t)n * sizeof *acc);
    memcpy(all + n, a, 4 * sizeof *a);
    all[n + 4] = descriptor;
    all[n + 5] = accumulate ? b->yes : b->no;
    ptx_emit(b, op, all, n + 6, n);
}

void ptx_constants(ptx_builder *b)
{
    ptx_value zero = ptx_mov_b32(b, ptx_imm(0));
    b->no = ptx_setp_ne(b, zero, ptx_imm(0));
    b->yes = ptx_setp_eq(b, zero, ptx_imm(0));
}

int ptx_operands(const ptx_builder *b, const ptx_instruction *i, ptx_operand out[8])
{
    const ptx_value *value = b->values + i->first, *end = value + i->operands;
    int n = 0;
    for (const char *t = ptx_ops[i->op].operands; *t;) {
        while (*t == ' ') t++;
        if (*t == 0) break;
        ptx_operand o = {.value = value, .length = 1, .read = true};
        if (*t == '=') o.written = true, o.read = false, t++;
        else if (*t == '+') o.written = true, t++;
        if (*t == '*') o.vector = true, o.length = i->vector, t++;
        else if (*t >= '2' && *t <= '9') o.vector = true, o.length = *t++ - '0';
        o.class = *t++;
        if (n == 8 || value + o.length > end) return -1;
        value += o.length;
        out[n++] = o;
    }
    return value == end ? n : -1;
}
