/* A list of typed PTX instructions and the functions that build it. Knows PTX and nothing of attention.
 *
 * Registers are virtual, of five classes; ptxas allocates them. `ptx_add(b, x, y)` makes a register and returns it; `ptx_add_to(b, d, x, y)` writes an
 * existing one. An instruction's region is the path of scopes open when it was emitted. Errors stick: after the first one nothing more is
 * emitted and ptx_builder.error says what it was. */
#ifndef FOSCAR_GEN_PTX_H
#define FOSCAR_GEN_PTX_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "generate.h"

typedef enum ptx_kind {
    PTX_KIND_NONE,
    PTX_KIND_P, PTX_KIND_H, PTX_KIND_R, PTX_KIND_F, PTX_KIND_L, /* registers: predicate, 16, 32 bits, float32, 64 bits */
    PTX_KIND_IMM,     /* integer immediate in imm */
    PTX_KIND_FIMM,    /* float32 immediate, its bits in imm */
    PTX_KIND_LABEL,   /* id of a label */
    PTX_KIND_PARAM,   /* id of a kernel parameter */
    PTX_KIND_SPECIAL, /* id of a ptx_special */
    PTX_KINDS
} ptx_kind;

/* An operand, passed by value. In an address position imm is the byte offset added to the register; of any other register it is 0. */
typedef struct ptx_value {
    uint8_t kind;
    uint32_t id;
    int64_t imm;
} ptx_value;

_Static_assert(sizeof(ptx_value) == 16, "operands are copied by value");

#define PTX_SPECIALS(S) S(TID_X, "%tid.x") S(CTAID_X, "%ctaid.x") S(NCTAID_X, "%nctaid.x") S(SHARED_BASE, "shared_base")
typedef enum ptx_special {
#define S(id, text) PTX_SPECIAL_##id,
    PTX_SPECIALS(S)
#undef S
    PTX_SPECIAL_COUNT
} ptx_special;

typedef enum ptx_op {
#define PTX_OP(shape, id, ...) PTX_OP_##id,
#include "ptx_ops.def"
#undef PTX_OP
    PTX_OP_COUNT
} ptx_op;

typedef enum ptx_effect { PTX_EFFECT_PURE, PTX_EFFECT_LOAD, PTX_EFFECT_STORE, PTX_EFFECT_BARRIER } ptx_effect;
enum { PTX_FLAG_ALIGNED = 1, PTX_FLAG_ACCEL = 2 };

typedef struct ptx_op_row {
    const char *id, *mnemonic, *operands;
    ptx_effect effect;
    ptx_class class;
    unsigned flags;
} ptx_op_row;

extern const ptx_op_row ptx_ops[PTX_OP_COUNT];

typedef struct ptx_instruction {
    uint16_t op;
    uint16_t region;    /* index into the builder's regions */
    uint16_t vector;    /* length of the '*' operand, 0 if there is none */
    uint16_t operands;  /* number of values, vector elements counted singly */
    uint32_t first;     /* index of the first value */
    ptx_value guard;    /* predicate or none; imm = 1 if negated */
} ptx_instruction;

typedef struct ptx_region {
    char path[64];
} ptx_region;

typedef struct ptx_param_info {
    const char *name;
    int bytes;
} ptx_param_info;

enum { PTX_SCOPE_DEPTH = 8, PTX_REGIONS_MAX = COUNT_REGIONS_MAX, PTX_LABELS_MAX = 256, PTX_PARAMS_MAX = 32 };

typedef struct ptx_builder {
    const target *target;
    char entry[64];
    int threads, max_registers;
    ptx_param_info param[PTX_PARAMS_MAX];
    int params;

    ptx_instruction *list;
    size_t count, capacity;
    ptx_value *values;
    size_t value_count, value_capacity;
    uint32_t registers[PTX_KINDS]; /* next number of each class */

    ptx_region region[PTX_REGIONS_MAX];
    int regions;
    int scope[PTX_SCOPE_DEPTH]; /* region index of each open scope */
    int depth;

    char label[PTX_LABELS_MAX][32];
    int labels;
    ptx_value guard; /* of the next instruction */
    ptx_value no, yes; /* predicates that are never and always true; made by ptx_constants */
    bool failed;
    gen_error error;
} ptx_builder;

/* The builder owns its arrays until ptx_builder_finish; machine must outlive it. */
void ptx_builder_init(ptx_builder *b, const target *machine, const char *entry, int threads, int max_registers);
void ptx_builder_finish(ptx_builder *b);
ptx_value ptx_param(ptx_builder *b, const char *name, int bytes); /* declares the next kernel parameter */

/* Operands */
ptx_value ptx_reg(ptx_builder *b, ptx_kind kind); /* a fresh register */
static inline ptx_value ptx_imm(int64_t v) { return (ptx_value){.kind = PTX_KIND_IMM, .imm = v}; }
ptx_value ptx_fimm(float v);
static inline ptx_value ptx_sreg(ptx_special s) { return (ptx_value){.kind = PTX_KIND_SPECIAL, .id = (uint32_t)s}; }
/* The address `reg + offset` bytes, in an address position only. */
static inline ptx_value ptx_at(ptx_value reg, int64_t offset)
{
    reg.imm += offset;
    return reg;
}

/* Scopes nest; each push has its pop in the same function. */
void ptx_scope_push(ptx_builder *b, const char *name);
void ptx_scope_pop(ptx_builder *b);

ptx_value ptx_label_new(ptx_builder *b, const char *stem); /* a label not placed yet; its name is unique */
void ptx_label_place(ptx_builder *b, ptx_value label);

/* Guards the next instruction only: executed where p is true, or false with _not. */
void ptx_guard(ptx_builder *b, ptx_value p);
void ptx_guard_not(ptx_builder *b, ptx_value p);

/* Appends an instruction: all operands in the order of its row, vectors flattened; vector is the length of the '*' operand. */
void ptx_emit(ptx_builder *b, ptx_op op, const ptx_value *values, int count, int vector);
ptx_value ptx_emit_def(ptx_builder *b, ptx_op op, const ptx_value *sources, int count);
void ptx_emit_to(ptx_builder *b, ptx_op op, ptx_value dst, const ptx_value *sources, int count);
void ptx_emit_vector(ptx_builder *b, ptx_op op, ptx_value address, ptx_value *values, int count, bool load);

#define PTX_BUILD_X(id)
#define PTX_BUILD_S0(id) \
    static inline void ptx_##id(ptx_builder *b) { ptx_emit(b, PTX_OP_##id, NULL, 0, 0); }
#define PTX_BUILD_S1(id) \
    static inline void ptx_##id(ptx_builder *b, ptx_value x) { ptx_emit(b, PTX_OP_##id, &x, 1, 0); }
#define PTX_BUILD_S2(id) \
    static inline void ptx_##id(ptx_builder *b, ptx_value x, ptx_value y) { ptx_emit(b, PTX_OP_##id, (ptx_value[]){x, y}, 2, 0); }
#define PTX_BUILD_S4(id) \
    static inline void ptx_##id(ptx_builder *b, ptx_value x, ptx_value y, ptx_value z, ptx_value w) \
    { ptx_emit(b, PTX_OP_##id, (ptx_value[]){x, y, z, w}, 4, 0); }
#define PTX_BUILD_D1(id) \
    static inline ptx_value ptx_##id(ptx_builder *b, ptx_value x) { return ptx_emit_def(b, PTX_OP_##id, &x, 1); } \
    static inline void ptx_##id##_to(ptx_builder *b, ptx_value d, ptx_value x) { ptx_emit_to(b, PTX_OP_##id, d, &x, 1); }
#define PTX_BUILD_D2(id) \
    static inline ptx_value ptx_##id(ptx_builder *b, ptx_value x, ptx_value y) { return ptx_emit_def(b, PTX_OP_##id, (ptx_value[]){x, y}, 2); } \
    static inline void ptx_##id##_to(ptx_builder *b, ptx_value d, ptx_value x, ptx_value y) \
    { ptx_emit_to(b, PTX_OP_##id, d, (ptx_value[]){x, y}, 2); }
#define PTX_BUILD_D3(id) \
    static inline ptx_value ptx_##id(ptx_builder *b, ptx_value x, ptx_value y, ptx_value z) \
    { return ptx_emit_def(b, PTX_OP_##id, (ptx_value[]){x, y, z}, 3); } \
    static inline void ptx_##id##_to(ptx_builder *b, ptx_value d, ptx_value x, ptx_value y, ptx_value z) \
    { ptx_emit_to(b, PTX_OP_##id, d, (ptx_value[]){x, y, z}, 3); }
#define PTX_BUILD_D4(id) \
    static inline ptx_value ptx_##id(ptx_builder *b, ptx_value x, ptx_value y, ptx_value z, ptx_value w) \
    { return ptx_emit_def(b, PTX_OP_##id, (ptx_value[]){x, y, z, w}, 4); }
#define PTX_BUILD_LV2(id) \
    static inline void ptx_##id(ptx_builder *b, ptx_value d[2], ptx_value address) { ptx_emit_vector(b, PTX_OP_##id, address, d, 2, true); }
#define PTX_BUILD_LV4(id) \
    static inline void ptx_##id(ptx_builder *b, ptx_value d[4], ptx_value address) { ptx_emit_vector(b, PTX_OP_##id, address, d, 4, true); }
#define PTX_BUILD_SV2(id) \
    static inline void ptx_##id(ptx_builder *b, ptx_value address, ptx_value s[2]) { ptx_emit_vector(b, PTX_OP_##id, address, s, 2, false); }
#define PTX_BUILD_SV4(id) \
    static inline void ptx_##id(ptx_builder *b, ptx_value address, ptx_value s[4]) { ptx_emit_vector(b, PTX_OP_##id, address, s, 4, false); }

#define PTX_OP(shape, id, ...) PTX_BUILD_##shape(id)
#include "ptx_ops.def"
#undef PTX_OP

/* (low, high) 16-bit halves of a 32-bit register. */
void ptx_split_b32(ptx_builder *b, ptx_value halves[2], ptx_value x);
/* (low, high) 32-bit halves of a 64-bit register, and back. */
void ptx_split_b64(ptx_builder *b, ptx_value halves[2], ptx_value x);
ptx_value ptx_join_b64(ptx_builder *b, const ptx_value halves[2]);
/* x / 2^k of unsigned numbers (a shift: the assembler does not make one of a division by an immediate). */
ptx_value ptx_div_power(ptx_builder *b, ptx_value x, int power);
/* True in one lane of the warp, which ptxas then knows to be alone. */
ptx_value ptx_elect(ptx_builder *b);
/* acc[0..n-1] (+)= A * B: A = 4 registers, B = shared-memory descriptor; without accumulate acc is overwritten. op is a wgmma row.
   ptx_constants must have been called at the head of the kernel. */
void ptx_wgmma(ptx_builder *b, ptx_op op, const ptx_value *acc, int n, const ptx_value a[4], ptx_value descriptor, bool accumulate);
void ptx_constants(ptx_builder *b);

/* Walks an instruction's operands: calls visit for each value with its signature token. Returns false on a mismatch of number or kind. */
typedef struct ptx_operand {
    const ptx_value *value; /* first value of the operand */
    int length;             /* 1, or the length of a vector */
    bool vector, written, read;
    char class;             /* the letter of the row's token */
} ptx_operand;
int ptx_operands(const ptx_builder *b, const ptx_instruction *i, ptx_operand out[8]); /* number of operands, -1 on a mismatch */

/* Passes over a finished list. */
bool ptx_verify(const ptx_builder *b, gen_error *err);
char *ptx_print(const ptx_builder *b, size_t *length, gen_error *err); /* malloc'd text */
void ptx_count(const ptx_builder *b, kernel_counts *out);              /* regions and sum only */

#endif
