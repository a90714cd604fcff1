/* A decoded module: what the parser makes of the text and the machine executes. Nothing here changes after parsing. */
#ifndef FOSCAR_EMULATOR_MODULE_H
#define FOSCAR_EMULATOR_MODULE_H

#include "emulator.h"

/* TYPE(id, suffix, bytes). The order within a kind matters to nobody. */
#define EMULATOR_TYPES(TYPE)                                                                                           \
    TYPE(NONE, "", 0)                                                                                                  \
    TYPE(PRED, "pred", 0)                                                                                              \
    TYPE(B8, "b8", 1) TYPE(B16, "b16", 2) TYPE(B32, "b32", 4) TYPE(B64, "b64", 8)                                      \
    TYPE(U8, "u8", 1) TYPE(U16, "u16", 2) TYPE(U32, "u32", 4) TYPE(U64, "u64", 8)                                      \
    TYPE(S8, "s8", 1) TYPE(S16, "s16", 2) TYPE(S32, "s32", 4) TYPE(S64, "s64", 8)                                      \
    TYPE(S4, "s4", 0) TYPE(U4, "u4", 0) TYPE(B1, "b1", 0)                                                              \
    TYPE(U16X2, "u16x2", 4) TYPE(S16X2, "s16x2", 4)                                                                    \
    TYPE(F16, "f16", 2) TYPE(BF16, "bf16", 2) TYPE(F32, "f32", 4) TYPE(F64, "f64", 8)                                  \
    TYPE(F16X2, "f16x2", 4) TYPE(BF16X2, "bf16x2", 4) TYPE(E4M3X2, "e4m3x2", 2) TYPE(E5M2X2, "e5m2x2", 2)              \
    TYPE(E4M3, "e4m3", 1) TYPE(E5M2, "e5m2", 1) TYPE(E2M1, "e2m1", 1) TYPE(E2M1X2, "e2m1x2", 1) TYPE(TF32, "tf32", 4)

typedef enum emulator_type {
#define TYPE(id, suffix, bytes) TYPE_##id,
    EMULATOR_TYPES(TYPE)
#undef TYPE
        TYPE_COUNT
} emulator_type;

int type_bytes(emulator_type type);
const char *type_name(emulator_type type);

/* Registers. Each thread has 32-bit slots and predicates. A 64-bit register is two slots, low word first; 16- and 8-bit registers are one slot
 * whose upper bits are 0. All registers of an entry are numbered densely. */
typedef struct register_ref {
    emulator_type type; /* as declared */
    int slot;           /* first slot; of a predicate: its number among the predicates */
} register_ref;

typedef enum operand_kind {
    OPERAND_NONE,
    OPERAND_REGISTER,  /* reg; `negated` for !%p */
    OPERAND_IMMEDIATE, /* bits: integers cut to the operand's type, s32 then extended to 64 bits, all others by zeros; floats as the bits of
                          the operand's type; of a predicate 0 or 1 */
    OPERAND_SPECIAL,   /* special */
    OPERAND_ADDRESS,   /* [base + offset]: base is a register (reg) or a symbol (symbol >= 0) */
    OPERAND_VECTOR,    /* {a, b, ...}: elements first .. first + count - 1 of the entry's `elements` */
    OPERAND_LABEL,     /* target: index of an instruction */
    OPERAND_SYMBOL,    /* symbol: its address */
    OPERAND_SINK       /* _ */
} operand_kind;

typedef enum special_register {
    SPECIAL_TID_X, SPECIAL_TID_Y, SPECIAL_TID_Z, SPECIAL_NTID_X, SPECIAL_NTID_Y, SPECIAL_NTID_Z,
    SPECIAL_CTAID_X, SPECIAL_CTAID_Y, SPECIAL_CTAID_Z, SPECIAL_NCTAID_X, SPECIAL_NCTAID_Y, SPECIAL_NCTAID_Z,
    SPECIAL_LANEID, SPECIAL_WARPID, SPECIAL_LANEMASK_LT, SPECIAL_LANEMASK_LE, SPECIAL_LANEMASK_EQ, SPECIAL_LANEMASK_GT, SPECIAL_LANEMASK_GE,
    SPECIAL_CLOCK64, SPECIAL_GLOBALTIMER, SPECIAL_SMID, SPECIAL_CLUSTER_CTARANK,
    SPECIAL_COUNT
} special_register;

typedef struct operand {
    operand_kind kind;
    bool negated;     /* !%p, or -%r where the form allows it */
    register_ref reg; /* REGISTER; ADDRESS with a register */
    int symbol;       /* SYMBOL, ADDRESS; -1: none */
    int64_t offset;   /* ADDRESS */
    uint64_t bits;    /* IMMEDIATE */
    special_register special;
    int first, count; /* VECTOR */
    int target;       /* LABEL */
} operand;

typedef enum state_space {
    SPACE_NONE, SPACE_GENERIC, SPACE_GLOBAL, SPACE_SHARED, SPACE_PARAM, SPACE_LOCAL, SPACE_CONST,
    SPACE_CODE /* of functions: the symbol's offset is the function's number */
} state_space;

/* Symbols: variables, parameters, functions. Parameters of entries are addressed by their offset in the parameter block; shared variables by their
 * offset in the block's shared memory, the dynamic part (.extern .shared) after the static part; local variables, and the parameters and
 * arguments of functions (framed), by their offset in the frame. Global and constant variables have blocks of their own (variables.c). */
typedef struct symbol {
    char *name;
    state_space space;
    emulator_type type; /* of an element */
    uint32_t bytes, alignment;
    uint32_t offset;
    bool framed;            /* a .param that lives in a frame's local memory */
    const uint8_t *initial; /* [bytes] of a global or constant variable; NULL: zeros. Owned by the module */
} symbol;

/* An address in the initialiser of a variable: `bytes` bytes at `offset` of `symbol` hold (address of target + addend) >> shift. */
typedef struct relocation {
    int symbol, target;
    uint32_t offset, bytes;
    int64_t addend;
    uint8_t shift;
} relocation;

/* Extracted modifiers. What a form does not have is 0. The parser fills this from the modifiers of the mnemonic; every modifier of the text must
 * be accounted for by the form's row, or the form is unknown. */
typedef struct modifiers {
    emulator_type type[4];  /* in the order of the text: cvt.rn.f32.s32 has F32, S32; wgmma D, A, B */
    state_space space, space2; /* cp.async.bulk: destination and source */
    uint8_t vector;         /* 1, 2, 4, 8 */
    uint8_t compare;        /* emulator_compare of setp */
    uint8_t boolean;        /* setp.lt.and: 1 and, 2 or, 3 xor */
    uint8_t rounding;       /* emulator_rounding */
    bool saturate, finite;  /* .sat / .satfinite */
    bool ftz, approx, wide, high, uniform;
    uint8_t mode;           /* shfl: up 1, down 2, bfly 3, idx 4; vote, redux, atom, prmt, mbarrier, fence: see forms.def */
    uint16_t m, n, k;       /* of a matrix shape */
    uint8_t scope, semantics; /* emulator_scope, emulator_semantics: of ld, st, atom, red, fence, mbarrier */
    uint32_t extra;         /* EXTRA_*: whatever else the form's row says */
} modifiers;

typedef enum emulator_compare { COMPARE_NONE, COMPARE_EQ, COMPARE_NE, COMPARE_LT, COMPARE_LE, COMPARE_GT, COMPARE_GE,
                                COMPARE_EQU, COMPARE_NEU, COMPARE_LTU, COMPARE_LEU, COMPARE_GTU, COMPARE_GEU, COMPARE_NUM, COMPARE_NAN } emulator_compare;
typedef enum emulator_rounding { ROUND_NONE, ROUND_RN, ROUND_RZ, ROUND_RM, ROUND_RP, ROUND_RNA, ROUND_RNI, ROUND_RZI, ROUND_RMI, ROUND_RPI } emulator_rounding;

typedef enum emulator_scope { SCOPE_NONE, SCOPE_CTA, SCOPE_CLUSTER, SCOPE_GPU, SCOPE_SYS } emulator_scope;
typedef enum emulator_semantics {
    SEMANTICS_NONE, SEMANTICS_WEAK, SEMANTICS_RELAXED, SEMANTICS_ACQUIRE, SEMANTICS_RELEASE, SEMANTICS_ACQ_REL, SEMANTICS_SC, SEMANTICS_VOLATILE
} emulator_semantics;

/* modifiers.mode, by mnemonic; 0 where the text has no such word. */
enum { MODE_SHFL_UP = 1, MODE_SHFL_DOWN, MODE_SHFL_BFLY, MODE_SHFL_IDX };
enum { MODE_ALL = 1, MODE_ANY, MODE_UNI, MODE_BALLOT }; /* vote, match */
/* redux, atom, red, bar.red */
enum { MODE_ADD = 1, MODE_MIN, MODE_MAX, MODE_AND, MODE_OR, MODE_XOR, MODE_EXCH, MODE_CAS, MODE_INC, MODE_DEC, MODE_POPC };
enum { MODE_WMMA_A = 1, MODE_WMMA_B, MODE_WMMA_C, MODE_WMMA_D }; /* wmma.load, wmma.store */
enum { MODE_TEST_FINITE = 1, MODE_TEST_INFINITE, MODE_TEST_NUMBER, MODE_TEST_NOTANUMBER, MODE_TEST_NORMAL, MODE_TEST_SUBNORMAL }; /* testp */
enum { MODE_PRMT_F4E = 1, MODE_PRMT_B4E, MODE_PRMT_RC8, MODE_PRMT_ECL, MODE_PRMT_ECR, MODE_PRMT_RC16 };
enum { MODE_SHF_LEFT = 1, MODE_SHF_RIGHT };
enum { MODE_SETMAXNREG_DEC = 0, MODE_SETMAXNREG_INC = 1 };
enum { MODE_GRID_WAIT = 1, MODE_GRID_LAUNCH_DEPENDENTS };
enum { MODE_CVTA_TO = 1 };  /* cvta.to.global: generic to space; else space to generic */
enum { MODE_DIV_FULL = 1 }; /* div.full */
enum { MODE_BULK_COPY = 0, MODE_BULK_COMMIT_GROUP, MODE_BULK_WAIT_GROUP };
enum { MODE_TCGEN05_LD = 1, MODE_TCGEN05_ST };         /* tcgen05.wait */
enum { MODE_TCGEN05_BEFORE = 1, MODE_TCGEN05_AFTER };  /* tcgen05.fence */
enum { MODE_CP_WARPX2_02_13 = 1, MODE_CP_WARPX2_01_23, MODE_CP_WARPX4 }; /* tcgen05.cp */
enum { KIND_F16 = 1, KIND_TF32, KIND_F8F6F4, KIND_I8, KIND_MXF8F6F4, KIND_MXF4, KIND_MXF4NVF4 }; /* tcgen05.mma */

/* modifiers.extra */
enum {
    EXTRA_NAN = 1,            /* min.NaN, max.NaN */
    EXTRA_RELU = 2,           /* cvt.rn.relu */
    EXTRA_CLAMP = 4,          /* shf.l.clamp; else wrap */
    EXTRA_SHIFTAMT = 8,       /* bfind.shiftamt */
    EXTRA_READ = 16,          /* cp.async.bulk.wait_group.read */
    EXTRA_CACHE_HINT = 32,    /* the last operand is a cache policy */
    EXTRA_MULTICAST = 64,     /* tcgen05.commit ... .multicast::cluster: the last operand is a mask of blocks */
    EXTRA_PACK16 = 128,       /* tcgen05.ld.pack::16b, tcgen05.st.unpack::16b */
    EXTRA_X2 = 256,           /* tcgen05 shape 16x32bx2 */
    EXTRA_BLOCK_SCALE = 512,  /* tcgen05.mma.block_scale */
    EXTRA_B4X16_P64 = 1024, EXTRA_B6X16_P32 = 2048, /* tcgen05.cp.b8x16.b4x16_p64, .b6x16_p32 */
    EXTRA_CC = 4096,          /* the carry flag is written */
    EXTRA_TRANSPOSED = 8192,  /* ldmatrix.trans */
    EXTRA_CG = 32768,         /* cp.async.cg */
    EXTRA_NOINC = 65536,      /* cp.async.mbarrier.arrive.noinc */
    EXTRA_COLUMN = 16384      /* wmma.load, wmma.store: column by column */
};

enum { OPERANDS_MAX = 12 };

struct warp;
struct instruction;
typedef struct form form;

typedef struct instruction {
    const form *form; /* the row of forms.def */
    modifiers mods;
    int line;
    int region;       /* index of the entry's regions */
    int guard;        /* predicate slot, or -1 */
    bool guard_negated;
    uint8_t operands; /* how many */
    operand operand[OPERANDS_MAX];
    int reconverge;   /* of a branch that can diverge: index of the instruction where its lanes meet again (its immediate postdominator),
                         or -1: at the exit */
    const char *opcode; /* mnemonic with all modifiers, as in the text */
} instruction;

enum { DYNAMIC_MAX = 16 }; /* .extern .shared variables used by an entry */

/* Where an entry has a function that it may call: its instructions, and the registers that are the function's own. */
typedef struct linked_function {
    int start; /* -1: not reached from the entry */
    int first_slot, slots, first_predicate, predicates;
} linked_function;

/* The code of an entry or function. After linking an entry's instructions are followed by those of the functions that it may call. */
typedef struct entry {
    char *name;
    int first_parameter, parameters; /* in the module's symbols */
    int end_symbol;                  /* its own symbols are first_parameter .. end_symbol - 1 */
    int own_instructions;            /* before linking */
    uint32_t parameter_bytes;
    uint32_t first_shared;           /* where its own shared variables begin */
    uint32_t static_shared_bytes;    /* and local_bytes a thread */
    uint32_t local_bytes, local_alignment; /* of its frame */
    uint32_t stack_bytes;            /* for the frames of functions and for alloca */
    bool uses_alloca;
    int dynamic_from[DYNAMIC_MAX], dynamic_to[DYNAMIC_MAX]; /* .extern .shared variables and this entry's copies of them */
    int dynamic_count;
    linked_function *functions;      /* [module.function_count]; NULL: it calls none */
    uint32_t required_threads[3], max_threads, max_registers;
    int slots, predicates;
    instruction *instructions; /* ends with an implied ret */
    int count;
    operand *elements;         /* of vector operands */
    int element_count;
    char **regions;
    int region_count;
} entry;

/* What a function or a .callprototype takes or returns: its place in the callee's frame, and the register of a .reg formal (slot >= 0). */
typedef struct formal {
    emulator_type type;
    uint32_t bytes, offset;
    int slot;
} formal;

typedef struct signature {
    formal *returns, *parameters;
    int return_count, parameter_count;
} signature;

/* Functions without a body that the machine has itself. BUILTIN(id, name) */
#define EMULATOR_BUILTINS(BUILTIN) BUILTIN(VPRINTF, "vprintf") BUILTIN(MALLOC, "malloc") BUILTIN(FREE, "free") BUILTIN(ASSERTFAIL, "__assertfail")
typedef enum builtin {
    BUILTIN_NONE,
#define BUILTIN(id, name) BUILTIN_##id,
    EMULATOR_BUILTINS(BUILTIN)
#undef BUILTIN
} builtin;

typedef struct device_function {
    signature takes;
    entry code; /* code.name too */
    bool has_body, address_taken;
    builtin builtin;
} device_function;

/* .callprototype, or .calltargets: functions that an indirect call may reach. */
typedef struct call_table {
    signature takes;
    int *targets; /* [target_count] functions; NULL: any with this signature */
    int target_count;
} call_table;

struct emulator_module {
    char *name;
    char target[16]; /* "sm_90a" */
    int version;     /* 84 for .version 8.4 */
    char warning[200];
    symbol *symbols;
    int symbol_count;
    relocation *relocations;
    int relocation_count;
    entry *entries;
    int entry_count;
    device_function *functions;
    int function_count;
    call_table *tables;
    int table_count;
    void *arena; /* storage of the strings, and whatever else the parser allocated */
};

/* forms.def: FORM(pattern, handler, operand classes, first target, first version, flags). One row for every form that the machine executes. */
struct form {
    const char *pattern;
    const char *operand_classes;
    void (*execute)(struct warp *w, const instruction *i);
    uint16_t target, version;
    uint32_t flags; /* FORM_* */
};

enum {
    FORM_BRANCH = 1,        /* sets the next instruction itself */
    FORM_EXIT = 2,
    FORM_WARP = 4,          /* .sync.aligned and the like: all lanes that have not exited must be active */
    FORM_WARPGROUP = 8,     /* and all four warps of the warpgroup must come to the same instruction */
    FORM_WAITS = 16,        /* may block: the handler says so by warp_block, and is called again later */
    FORM_CALL = 64,         /* as FORM_BRANCH, without a label */
    FORM_UNDEFINED_OK = 32  /* undefined sources make the result undefined; otherwise the machine reports them */
};

/* form.target: a number of .target, 70 for sm_70 and later; or one of these. */
enum {
    TARGET_90A = 1000,     /* sm_90a only */
    TARGET_SPECIFIC,       /* sm_90a, and sm_100 and later with a or f */
    TARGET_TCGEN05,        /* sm_100, 101, 103, 110 with a or f */
    TARGET_TCGEN05_EXACT,  /* the same with a only */
    TARGET_TCGEN05_I8      /* sm_100a, 101a, 110a */
};

#endif
