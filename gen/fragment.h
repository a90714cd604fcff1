/* Where codes and metadata lie in a page, and how that order matches the tensor core's operand fragments.
 *
 * A page of one KV head holds, back to back: K codes, V codes, K metadata, V metadata. Codes are stored by chunks of 64 tokens, so the
 * order does not depend on the page size. Metadata are (scale, minimum) pairs of 16-bit numbers, one pair a token; the minimum lies in the
 * low half of the 32-bit word, the scale in the high half.
 *
 * K (first product, A = K: 64 tokens x 32 channels per instruction). Token t of a chunk is row 16*warp + rr + 8*h of the tile i, with
 *   i = t % 4, rr = (t / 4) % 8, h = t / 32.
 * Four neighbouring tokens are thus the four tiles of one thread, and the fields of a byte: field = i % fields. Channel c is byte c % 4,
 * quad q = (c % 16) / 4, half kh = (c % 32) / 16, step c / 32. The weight of a field's place is a factor of the token's score.
 *
 * V (second product, A = V transposed: 64 channels x 32 tokens per instruction). Channel c is row 16*w + rr + 8*h of the channel tile mt, with
 *   mt = c / 64, w = (c % 64) / 16, h = (c % 16) / 8, rr = c % 8;
 * token t is byte t % 4, quad q = (t % 16) / 4, half kh = (t % 32) / 16, step ks = t / 32. Channel tiles are spread over fields first; when there
 * are fewer tiles than fields, the two steps too, and then the halves: field = step + steps * (tile + tiles * half). */
#ifndef FOSCAR_GEN_FRAGMENT_H
#define FOSCAR_GEN_FRAGMENT_H

#include <stdint.h>

#include "config.h"

enum {
    CHUNK_TOKENS = 64,    /* tokens of a chunk */
    CHANNEL_TILE = 64,    /* channels of one V tile */
    METADATA_BYTES = 4,   /* of one (scale, minimum) pair */
    LAYOUT_VERSION = 1    /* of everything this file describes */
};

/* Place of one code: byte offset in the chunk and the shift of its field in that byte. */
typedef struct code_place {
    uint32_t byte;
    uint32_t shift;
} code_place;

code_place fragment_k_place(const encoding *codes, int head_dim, int token, int channel);
code_place fragment_v_place(const encoding *codes, int head_dim, int token, int channel);

/* How V fields are spread: 2^n of them over channel tiles, steps and halves (their product is codes->fields). */
typedef struct v_fields {
    int tiles, steps, halves; /* fields given to each */
    int step_bits;            /* 2-bit codes of the second step stay where they stand, and P' is scaled down by as many bits; 0: words are shifted */
    int words;                /* 32-bit words of a thread for one chunk */
} v_fields;

v_fields fragment_v_fields(const encoding *codes, int head_dim);

/* Sizes and offsets in bytes of one page of one KV head. */
typedef struct page_layout {
    uint32_t k_chunk_bytes, v_chunk_bytes;
    uint32_t k_codes, v_codes, k_metadata, v_metadata; /* offsets */
    uint32_t bytes;
} page_layout;

page_layout fragment_page_layout(const config *cfg);

#endif
