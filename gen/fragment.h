/* Where codes and metadata lie in a page, and how that order matches the tensor core's operand fragments.
 *
 * A page of one KV head holds, back to back: K codes, V codes, K metadata, V metadata; with channel-wise K its metadata follow its codes, since they are
 * wanted together: K codes, K metadata, V codes, V metadata. Metadata are 16-bit numbers.
 *   Token-wise: for each token its groups of channels one after the other, each {minimum, scale}, or the scale alone.
 *   Channel-wise: for each group of tokens the scales of all channels, then the minima of all channels. A group larger than a page lies in its pages in equal
 *   parts, cut where they fall: with groups of two pages the first holds the scales and the second the minima.
 *
 * K (first product, A = K: 16 tokens x 32 channels for a warp and instruction). Codes are stored by slices of 16 tokens, so the order does not depend
 * on the page size. Token t of a slice is row rr = t / 4 of the slice's four and tile i = t % 4: four neighbouring tokens are the four tiles of one
 * thread, and the fields of a byte: field = i % fields. Two slices make the rows of half a fragment (row h * 8 + rr of a warp's 64 tokens: slice
 * 2 h + rr / 4). Channel c is byte c % 4, quad q = (c % 16) / 4 and column c / 16 (half kh = column % 2 of step column / 2). A lane (rr, q) of a slice
 * has the words n = (i / fields) * columns + column, four to a vector; a vector's lanes lie back to back. The weight of a field's place is a factor of the token's score.
 *
 * V (second product, A = V transposed: 64 channels x 32 tokens for an instruction). Codes are stored by chunks of 64 tokens, or of a page if that is
 * smaller. Channel c is row 16 w + rr + 8 h of the channel tile mt, with
 *   mt = c / 64, w = (c % 64) / 16, h = (c % 16) / 8, rr = c % 8;
 * token t is byte t % 4, quad q = (t % 16) / 4, half kh = (t % 32) / 16, step ks = t / 32. The two row halves are fields of one byte, then, if the bits of a code are
 * two, pairs of channel tiles, or the halves where tiles have no partner: field = h + 2 * (mt % tiles + tiles * (kh % halves)). Thread 32 w + 4 rr + q has
 * `words` words for each group of tiles, back to back. A last tile of fewer than 64 channels has fewer warps. */
#ifndef FOSCAR_GEN_FRAGMENT_H
#define FOSCAR_GEN_FRAGMENT_H

#include <stdint.h>

#include "config.h"

enum {
    CHUNK_TOKENS = 64,    /* tokens whose scores one warp computes of a block */
    SLICE_TOKENS = 16,    /* tokens whose K codes lie together */
    CHANNEL_TILE = 64,    /* channels of one V tile */
    METADATA_BYTES = 4,   /* of one (scale, minimum) pair */
    METADATA_NUMBER_BYTES = 2,
    LAYOUT_VERSION = 2    /* of everything this file describes */
};

/* Place of one code of a page: byte offset in the page's codes of K or of V, and the shift of its field in that byte. */
typedef struct code_place {
    uint32_t byte;
    uint32_t shift;
} code_place;

code_place fragment_k_place(const config *cfg, int token, int channel);
code_place fragment_v_place(const config *cfg, int token, int channel);

/* The words of K that a lane has of a slice. */
typedef struct k_layout {
    int columns;          /* of 16 channels */
    int words;            /* (4 / fields) * columns; in vectors of 4, the last of which may be shorter */
    uint32_t slice_bytes;
} k_layout;

k_layout fragment_k_layout(const config *cfg);

/* How V fields are spread over what one thread has; the row halves are always two of them. */
typedef struct v_fields {
    int chunk_tokens; /* tokens whose words of a thread lie together */
    int tiles;        /* neighbouring channel tiles that share words: 1 or 2 */
    int halves;       /* 16-token halves of a step that share words, the upper one above: 1 or 2 */
    int groups;       /* of `tiles` channel tiles each */
    int words;        /* 32-bit words of a thread for a group and chunk */
} v_fields;

v_fields fragment_v_fields(const config *cfg);

/* Sizes and offsets in bytes of one page of one KV head. */
typedef struct page_layout {
    uint32_t v_chunk_bytes;
    uint32_t k_codes, v_codes, k_metadata, v_metadata; /* offsets */
    uint32_t k_metadata_bytes, v_metadata_bytes;
    uint32_t bytes;
} page_layout;

page_layout fragment_page_layout(const config *cfg);

/* Where one metadata number of K or V lies: a page of the sequence's quantised tokens, counted from its first, and a byte offset in the page. */
typedef struct metadata_place {
    int page;
    uint32_t byte;
} metadata_place;

/* The scale, or the minimum, of the group that a token's channel belongs to; the token counts from the sequence's first quantised one. */
typedef enum metadata_number { METADATA_SCALE, METADATA_MINIMUM } metadata_number;
metadata_place fragment_k_metadata(const config *cfg, int token, int channel, metadata_number number);
metadata_place fragment_v_metadata(const config *cfg, int token, int channel, metadata_number number);

/* A page of the full-precision tier (tier.h) holds TIER_PAGE_TOKENS tokens of one KV head, numbers of the type of Q: K, then V, each by slices of 16 tokens and
 * columns of 16 channels, a fragment of 512 bytes each. Lane rr * 4 + q has 16 bytes of it, registers r = 0 .. 3 of two numbers each.
 *   K (A = K, 16 tokens x 16 channels): token t % 16 = rr + 8 h, channel c % 16 = 2 q + j + 8 kh is number j of register 2 kh + h.
 *   V (A = V transposed, 16 channels x 16 tokens): channel c % 16 = rr + 8 h, token t % 16 = 2 q + j + 8 kh likewise. */
enum { TIER_PAGE_TOKENS = 32, TIER_FRAGMENT_BYTES = 512 };

uint32_t fragment_tier_k(int head_dim, int token, int channel); /* byte offset in the page; token in the page */
uint32_t fragment_tier_v(int head_dim, int token, int channel);
uint32_t fragment_tier_bytes(int head_dim); /* of the page of one KV head */

#endif
