/* Schemes: how K or V is quantised. The vocabulary is a table with a row for each way of grouping; sizes, bytes and
 * what kernels are generated for follow from the row. */
#ifndef FOSCAR_GEN_SCHEME_H
#define FOSCAR_GEN_SCHEME_H

#include "encoding.h"
#include "error.h"

/* Ways of grouping: rows of scheme.c. */
typedef enum grouping {
    GROUP_TOKEN_WISE,
    GROUP_CHANNEL_WISE,
    GROUP_TOKEN_WISE_SYMMETRIC,
    GROUP_CHANNEL_WISE_SYMMETRIC,
    GROUPINGS
} grouping;

/* Asymmetric: x = scale * code + minimum, both stored. Symmetric: the minimum is -scale * (2^bits - 1) / 2 and is not
   stored, so the codes lie centred around 0. */
typedef struct grouping_row {
    const char *letters;  /* in a spec, between bits and group: "t" */
    const char *name;     /* in messages: "token-wise" */
    int sizes[4];         /* of a group, ending with a 0: channels, or tokens if it goes along the tokens */
    bool along_tokens;    /* a group is one channel of `group` tokens; else `group` channels of one token */
    bool whole_head;      /* all channels of the head may be a group too, whatever their number */
    int metadata_numbers; /* 16-bit numbers stored for a group: scale and minimum, or the scale alone */
    bool kernels;         /* kernels are generated for it, with the whole head as the group */
} grouping_row;

const grouping_row *grouping_info(grouping way);
bool grouping_find(const char *letters, size_t length, grouping *out);

/* "t token-wise, c channel-wise, ..."; returns out. */
const char *grouping_list(char *out, size_t size);

/* How K or V is quantised. */
typedef struct scheme {
    const encoding *codes;
    grouping direction; /* of the groups, and whether a minimum is stored: a row of scheme.c */
    int group;          /* channels (token-wise) or tokens (channel-wise) that share metadata */
} scheme;

enum { SCHEMES_MAX = 32, SCHEME_GROUP_TOKENS_MAX = 128, SCHEME_TEXT_MAX = 24 };

/* All schemes with this head dimension, at most SCHEMES_MAX; returns their number. */
int scheme_list(int head_dim, scheme *out);

/* False, with the group sizes that there are, for one that scheme_list would not have. The error calls it field
   `letter`. */
bool scheme_check(char letter, const scheme *s, int head_dim, gen_error *err);

/* False, with what is allowed, where no kernels are generated for it yet (config_check.c). */
bool scheme_check_kernels(char letter, const scheme *s, int head_dim, gen_error *err);

bool scheme_is_symmetric(const scheme *s);
bool scheme_is_channel_wise(const scheme *s); /* groups go along the tokens */

/* A block is what is quantised at a time, of one KV head: one token, or `group` tokens. The bytes are exact. */
int scheme_block_tokens(const scheme *s);
int scheme_block_groups(const scheme *s, int head_dim);
int scheme_block_code_bytes(const scheme *s, int head_dim);
int scheme_block_metadata_bytes(const scheme *s, int head_dim);

/* How many of a sequence's tokens are quantised, counted from token `sink`: all but the first `sink`, the last `recent`
   and those of a last block that is not full. */
int scheme_quantised_tokens(const scheme *s, int tokens, int sink, int recent);

/* Writes "k2c64" for the letter 'k' into text, of at least SCHEME_TEXT_MAX bytes; returns it. */
const char *scheme_format(char letter, const scheme *s, char *text);

/* The schemes of a cache, as the middle of a spec names them: "k2c64-v2t128" or "k2c64-v2t128-mbf16". */
typedef struct scheme_pair {
    scheme k, v;
    number_type m_type; /* of scale and minimum of both */
} scheme_pair;

enum { SCHEME_PAIR_TEXT_MAX = 64 };

/* Any pair of the vocabulary, with kernels or without. On failure err names the field, its value and what is allowed.
 */
bool scheme_pair_parse(const char *text, int head_dim, scheme_pair *out, gen_error *err);
void scheme_pair_format(const scheme_pair *pair, char *text); /* of at least SCHEME_PAIR_TEXT_MAX bytes */
bool scheme_pair_has_kernels(const scheme_pair *pair, int head_dim);

#endif
