/* The configuration of one kernel: what a spec says, every field filled in. Tables of targets; those of schemes and number types are in scheme.h and
   encoding.h. */
#ifndef FOSCAR_GEN_CONFIG_H
#define FOSCAR_GEN_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "scheme.h"

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

typedef struct config {
    const target *target;
    scheme k, v;
    int head_dim;        /* channels of a head */
    int heads;           /* query heads per KV head */
    int page_tokens;     /* tokens of a page */
    number_type q_type;  /* of Q: bf16 or f16 */
    number_type o_type;  /* of the output: bf16, f16 or f32 */
    number_type m_type;  /* of scale and minimum in a page */
    bool tier;           /* some tokens stay in full precision (tier.h); always where a scheme is channel-wise */
} config;

enum { CONFIG_SPEC_MAX = 96 }; /* bytes of the longest canonical spec, with its NUL */

/* Parses "sm_90a-k2t128-v2t128-d128-h8-p64[-bf16|-f16][-obf16|-of16|-of32][-mf16|-mbf16][-tier]". On failure err names the field, its value and what is allowed;
   what no kernels are generated for yet is refused, too. Optional fields: the type of Q (default bf16), of the output (default: that of Q) and of metadata (f16),
   and the full-precision tier, which channel-wise groups bring with them. */
bool config_parse(const char *spec, config *out, gen_error *err);

/* The same for everything that a cache can hold, with decode kernels or without. */
bool config_parse_cache(const char *spec, config *out, gen_error *err);

/* The rules that config_parse_cache adds to the grammar: sizes of groups, pages that fit them, the tier where it must be. */
bool config_check(const config *cfg, gen_error *err);
bool config_needs_tier(const config *cfg);

/* False, with the reason, where no decode kernel is generated for it yet. */
bool config_check_kernels(const config *cfg, gen_error *err);

/* Writes the canonical spec (defaults left out) into text, of at least CONFIG_SPEC_MAX bytes. */
void config_format(const config *cfg, char *text);

/* The grid of configurations that `list`, the tests and bundles walk through: index 0 .. registry_size() - 1. */
int registry_size(void);
void registry_config(int index, config *out);

#endif
