/* The words of a PTX text, one at a time. Tokens point into the text. */
#ifndef FOSCAR_EMULATOR_LEXER_H
#define FOSCAR_EMULATOR_LEXER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum token_kind {
    TOKEN_END,
    TOKEN_WORD,      /* a name: mov, %r1, %tid.x, $L_1, _ */
    TOKEN_DIRECTIVE, /* .reg */
    TOKEN_INTEGER,   /* integer */
    TOKEN_FLOAT32,   /* 0f3F800000: integer holds the bits */
    TOKEN_FLOAT64,   /* 0d... and decimal fractions: integer holds the bits */
    TOKEN_STRING,
    TOKEN_PUNCTUATION, /* one character: text[0] */
    TOKEN_BAD          /* problem says why */
} token_kind;

typedef struct token {
    token_kind kind;
    const char *text;
    size_t length;
    int line; /* from 1 */
    uint64_t integer;
    const char *problem;
} token;

typedef struct lexer {
    const char *at, *end;
    int line;
    bool line_start;    /* nothing but blanks since the last end of line */
    const char *region; /* the last comment that names a region, NULL: none so far */
    size_t region_length;
} lexer;

void lexer_start(lexer *l, const char *text, size_t length);
token lexer_next(lexer *l);
/* Extends a word just read to a whole mnemonic: add -> add.s32, with everything up to the first blank or other
 * character. */
token lexer_mnemonic(lexer *l, token word);
/* Skips to the end of the line. */
void lexer_skip_line(lexer *l);

#endif
