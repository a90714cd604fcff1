/* The configuration of one kernel: what a spec says, every field filled in. Tables of targets, schemes and number types. */
#ifndef FOSCAR_GEN_CONFIG_H
#define FOSCAR_GEN_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"

/* A GPU architecture that kernels are generated for: a row of target.c. */
typedef struct target {
    const char *name;        /* ptxas and .target name, "sm_90a" */
    int compute_capability;  /* 90: exactly the devices of this capability run it */
    int ptx_major, ptx_minor; /* lowest .version that knows the instructions we use */
    int shared_bytes;        /* largest shared memory of a block */
    int registers;           /* 32-bit registers of an SM */
} target;

const target *target_find(const char *name);
const target *target_row(int index); /* NULL past the end */

/* Number types of Q, of the output and of the metadata: a row of encoding.c. */
typedef enum number_type { NUMBER_BF16, NUMBER_F16, NUMBER_F32, NUMBER_TYPES } number_type;

typedef struct number_row {
    const char *name;   /* as in a spec: "bf16" */
    int bytes;          /* of one element in memory */
} number_row;

const number_row *number_info(number_type type);
bool number_find(const char *name, size_t length, number_type *out);

/* How codes of one bit width lie in a 32-bit register of four 8-bit tensor-core operands: a row of encoding.c.
   Field f of a byte is isolated by one AND with `mask << (bits * f)` and is then worth code * 2^(bits * f). */
typedef struct encoding {
    int bits;            /* of one code: 2 or 4 */
    int fields;          /* codes of one byte: 8 / bits */
    uint32_t mask;       /* field 0 of all four bytes */
    int codes_per_word;  /* 32 / bits */
} encoding;

const encoding *encoding_find(int bits);

/* Direction of a quantisation group. */
typedef enum group_direction { GROUP_TOKEN_WISE, GROUP_CHANNEL_WISE, GROUP_DIRECTIONS } group_direction;

/* How K or V is quantised: x = scale * code + minimum for every element of a group. */
typedef struct scheme {
    const encoding *codes;
    group_direction direction;
    int group; /* channels (token-wise) or tokens (channel-wise) that share a scale and a minimum */
} scheme;

typedef struct config {
    const target *target;
    scheme k, v;
    int head_dim;        /* channels of a head */
    int heads;           /* query heads per KV head */
    int page_tokens;     /* tokens of a page */
    number_type q_type;  /* of Q: bf16 or f16 */
    number_type o_type;  /* of the output: bf16, f16 or f32 */
    number_type m_type;  /* of scale and minimum in a page */
} config;

enum { CONFIG_SPEC_MAX = 96 }; /* bytes of the longest canonical spec, with its NUL */

/* Parses "sm_90a-k2t128-v2t128-d128-h8-p64[-bf16|-f16][-obf16|-of16|-of32]". On failure err names the field, its value and what is allowed.
   Optional fields: the type of Q (default bf16) and of the output (default: that of Q). */
bool config_parse(const char *spec, config *out, gen_error *err);

/* Writes the canonical spec (defaults left out) into text, of at least CONFIG_SPEC_MAX bytes. */
void config_format(const config *cfg, char *text);

/* The grid of configurations that `list`, the tests and bundles walk through: index 0 .. registry_size() - 1. */
int registry_size(void);
void registry_config(int index, config *out);

#endif
