/* The parser's own structures: what is known while a module is read. Shared by parse*.c, mnemonic.c, forms.c and
 * control_flow.c only. */
#ifndef FOSCAR_EMULATOR_PARSE_H
#define FOSCAR_EMULATOR_PARSE_H

#include <setjmp.h>

#include "lexer.h"
#include "module.h"
#include "names.h"

/* Limits, so that no text costs more than it should. */
enum {
    TEXT_MAX = 1 << 26,         /* bytes of a module */
    INSTRUCTIONS_MAX = 1 << 17, /* of a module */
    SLOTS_MAX = 1 << 16,        /* of an entry, and of its predicates */
    ELEMENTS_MAX = 1 << 20,     /* of all vector operands of an entry */
    SYMBOLS_MAX = 1 << 16,
    ENTRIES_MAX = 1 << 10, /* and of functions */
    FORMALS_MAX = 1 << 10, /* of a function */
    STACK_BYTES = 1 << 14, /* a thread: for recursion, indirect calls and alloca */
    SCOPES_MAX = 1 << 16,
    NESTING_MAX = 64, /* of { } */
    VECTOR_MAX = 128, /* elements of a vector operand */
    OPCODE_MAX = 160, /* characters of a mnemonic */
    NAME_MAX_LENGTH = 1024,
    PARAMETER_BYTES_MAX = 32764,
    SHARED_BYTES_MAX = 1 << 20, /* what a device has is checked at launch */
    LOCAL_BYTES_MAX = 1 << 19,
    VARIABLE_BYTES_MAX = 1 << 26 /* of all global and constant variables */
};

typedef enum declaration_kind { DECLARED_REGISTER, DECLARED_RANGE, DECLARED_SYMBOL } declaration_kind;

typedef struct declaration {
    declaration_kind kind;
    emulator_type type;
    int slot, count; /* count registers from slot on */
    int symbol;
    bool dynamic; /* .extern .shared: each entry has its own place for it */
    int depth;    /* of nesting */
    int shadowed; /* the declaration of the same name in an outer scope, or -1 */
} declaration;

/* An operand as it is written; its immediate is converted once the form, and so the type, is known. */
typedef enum literal { LITERAL_NONE, LITERAL_INTEGER, LITERAL_FLOAT32, LITERAL_FLOAT64 } literal;
typedef struct parsed_operand {
    operand value;
    literal literal;
    bool joined; /* the next one follows after | */
    token token; /* its first */
} parsed_operand;

/* A mnemonic, looked up once. Its rows are the candidates; which one is decided by the operands. */
enum { ROWS_MAX = 8 };
typedef struct decoded_mnemonic {
    const char *text;
    modifiers mods;
    int rows;
    const form *row[ROWS_MAX];
} decoded_mnemonic;

/* A branch to a label that may be defined later. */
typedef struct label_use {
    token name;
    int scope, instruction, operand;
} label_use;

typedef struct parser {
    jmp_buf failed;
    emulator_error *error;
    emulator_module *module;
    lexer lexer;
    token token;        /* the next one, not used yet */
    int target;         /* 90 of sm_90a */
    char target_suffix; /* 'a', 'f' or 0 */

    name_table names; /* of declarations */
    declaration *declarations;
    int declaration_count, declaration_capacity;
    int symbol_capacity, entry_capacity, function_capacity, table_capacity, relocation_capacity;
    int instruction_total;
    uint32_t shared_bytes;   /* of variables outside of entries */
    uint32_t variable_bytes; /* of all global and constant variables */

    name_table mnemonics;
    decoded_mnemonic *decoded;
    int decoded_count, decoded_capacity;

    /* Of the entry being read */
    entry *entry;
    struct entry scratch; /* what is read of a function once more */
    int instruction_capacity, element_capacity, region_capacity;
    name_table labels;
    int *scope_parent; /* of each { }, -1: none */
    int scope_count, scope_capacity;
    int scope, depth;
    label_use *label_uses;
    int label_use_count, label_use_capacity;
    name_table regions;
    const char *region_text; /* the comment for which `region` was looked up */
    int region;
} parser;

_Noreturn void parse_fail(parser *p, int line, emulator_fault fault, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* "'text' where something was expected", with the text made printable. */
_Noreturn void parse_expected(parser *p, token found, const char *expected);

/* Room for one more element in a growing array; fails for want of memory or beyond the limit. */
void *parse_grow(parser *p, void *array, int count, int *capacity, size_t element, int limit, const char *what);
/* Zeroed, freed with the module. */
void *parse_allocate(parser *p, size_t bytes);
char *parse_copy(parser *p, const char *text, size_t length);

void parse_advance(parser *p);
bool parse_is(const parser *p, char punctuation);
bool parse_accept(parser *p, char punctuation);
void parse_require(parser *p, char punctuation, const char *expected);
bool token_is(token t, const char *text);

/* parse_declare.c: .reg, variables, parameters */
emulator_type parse_type(parser *p);
void parse_registers(parser *p);
/* After the optional .visible and the like: .shared, .global, .const, .local, or .param of an entry. Returns the
 * symbol. */
int parse_variable(parser *p, state_space space, bool is_extern);
void parse_parameter(parser *p); /* after .param of an entry */
bool token_space(token t, state_space *space);
const declaration *parse_find(const parser *p, token name, int *index);
int64_t parse_integer(parser *p, const char *expected);
int parse_new_symbol(parser *p, token name, symbol s);
/* A formal of a function: .param or .reg, after it. */
formal parse_formal(parser *p, bool is_register, bool is_named);
/* A symbol's number for an instruction of this entry. */
int parse_use_symbol(parser *p, const declaration *d);
void parse_declare(parser *p, token name, int scope_key, declaration d);
uint32_t parse_align(uint32_t offset, uint32_t alignment); /* rounded up to a multiple of a power of two */

/* parse_operand.c: operands up to ; into parsed, which has room for OPERANDS_MAX of them */
int parse_operands(parser *p, parsed_operand *parsed);

operand parse_operand_name(parser *p); /* a register, special register, variable, function, or else a label */
/* The operands of call, up to ; */
void parse_call(parser *p, instruction *i);

/* parse.c */
void parse_enter_scope(parser *p);
void parse_leave_scope(parser *p);
bool parse_accept_word(parser *p, const char *word);
bool parse_skip_information(parser *p); /* .file, .loc, .section, .pragma */
void parse_statements(parser *p);             /* statements up to the } of a body, after its { */
instruction *parse_new_instruction(parser *p, int line);

/* parse_entry.c */
void parse_entry(parser *p);                 /* after .entry */
void parse_func(parser *p, bool is_extern);  /* after .func */
void parse_table(parser *p, token name);     /* .callprototype or .calltargets, after its label */
void parse_start_body(parser *p, entry *e);
int parse_find_table(const parser *p, token name); /* -1: none */

/* link.c: gives each entry the functions that it may call, and its shared memory its final places */
void link_module(parser *p);

/* mnemonic.c: looks the words up in the rows of forms.def */
const decoded_mnemonic *forms_decode(parser *p, token mnemonic);
/* A word of some pattern about which the table of modifiers says nothing; NULL if there is none. For the tests. */
const char *forms_unlisted_word(void);
const form *forms_return(void);
/* forms.c. Chooses the row, converts the operands into *i. */
void forms_apply(parser *p, const decoded_mnemonic *m, token mnemonic, const parsed_operand *parsed, int count,
                 instruction *i);

/* control_flow.c: fills instruction.reconverge. False: no memory. */
bool control_flow_reconvergence(entry *e);

#endif
