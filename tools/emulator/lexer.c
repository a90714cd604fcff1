/* Splits a PTX text into tokens, skips comments and notes those that name a region. */
#include "lexer.h"

#include <string.h>

#include "decimal.h"

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}
static bool is_name(char c)
{
    return is_letter(c) || is_digit(c) || c == '_' || c == '$';
}
static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}

void lexer_start(lexer *l, const char *text, size_t length)
{
    *l = (lexer){.at = text, .end = text + length, .line = 1, .line_start = true};
}

void lexer_skip_line(lexer *l)
{
    const char *newline = l->at < l->end ? memchr(l->at, '\n', (size_t)(l->end - l->at)) : NULL;
    l->at = newline ? newline : l->end;
}

static char peek(const lexer *l, size_t ahead)
{
    return (size_t)(l->end - l->at) > ahead ? l->at[ahead] : '\0';
}

/* A region's comment stands alone on its line and is one path of names: "loop/k/unpack". */
static void note_region(lexer *l, const char *begin, const char *end)
{
    while (begin < end && is_blank(*begin)) begin++;
    while (end > begin && is_blank(end[-1])) end--;
    if (begin == end || end - begin > 255) return;
    bool after_name = false;
    for (const char *c = begin; c < end; c++) {
        bool name = is_letter(*c) || is_digit(*c) || *c == '_' || *c == '-';
        if (!name && !(*c == '/' && after_name)) return;
        after_name = name;
    }
    if (!after_name) return;
    l->region = begin;
    l->region_length = (size_t)(end - begin);
}

/* False: a comment without an end. */
static bool skip_blanks(lexer *l)
{
    while (l->at < l->end) {
        char c = *l->at;
        if (c == '\n') {
            l->line++;
            l->line_start = true;
            l->at++;
        } else if (is_blank(c)) {
            l->at++;
        } else if (c == '/' && peek(l, 1) == '/') {
            const char *begin = l->at + 2;
            lexer_skip_line(l);
            if (l->line_start) note_region(l, begin, l->at);
        } else if (c == '/' && peek(l, 1) == '*') {
            int begin = l->line;
            for (l->at += 2; !(peek(l, 0) == '*' && peek(l, 1) == '/'); l->at++) {
                if (l->at >= l->end) {
                    l->line = begin; /* the line to report */
                    return false;
                }
                if (*l->at == '\n') {
                    l->line++;
                    l->line_start = true;
                }
            }
            l->at += 2;
            l->line_start = false;
        } else {
            break;
        }
    }
    return true;
}

static int digit_value(char c)
{
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return 16;
}

/* Digits of a base; false if there is none or the value exceeds 64 bits. */
static bool read_digits(lexer *l, unsigned base, uint64_t *value)
{
    const char *begin = l->at;
    uint64_t v = 0;
    for (; l->at < l->end && (unsigned)digit_value(*l->at) < base; l->at++) {
        unsigned digit = (unsigned)digit_value(*l->at);
        if (v > (UINT64_MAX - digit) / base) return false;
        v = v * base + digit;
    }
    *value = v;
    return l->at > begin;
}

static token bad(token t, const lexer *l, const char *problem)
{
    t.kind = TOKEN_BAD;
    t.length = (size_t)(l->at - t.text);
    if (t.length == 0 && l->at < l->end) t.length = 1;
    t.problem = problem;
    return t;
}

/* 1.5, 1e-3: double precision. */
static token read_fraction(lexer *l, token t)
{
    char copy[64];
    const char *c = t.text;
    while (c < l->end && (is_digit(*c) || *c == '.')) c++;
    if (c < l->end && (*c == 'e' || *c == 'E')) {
        c++;
        if (c < l->end && (*c == '+' || *c == '-')) c++;
        while (c < l->end && is_digit(*c)) c++;
    }
    l->at = c;
    size_t length = (size_t)(c - t.text);
    if (length >= sizeof copy) return bad(t, l, "a decimal constant of more than 63 characters");
    memcpy(copy, t.text, length);
    copy[length] = '\0';
    double value;
    if (!decimal_parse(copy, &value)) return bad(t, l, "not a decimal constant");
    memcpy(&t.integer, &value, sizeof value);
    t.kind = TOKEN_FLOAT64;
    t.length = length;
    return t;
}

static token read_number(lexer *l, token t)
{
    char second = peek(l, 1);
    bool valid;
    t.kind = TOKEN_INTEGER;
    if (*l->at == '0' && (second == 'f' || second == 'F' || second == 'd' || second == 'D')) {
        bool is_double = second == 'd' || second == 'D';
        t.kind = is_double ? TOKEN_FLOAT64 : TOKEN_FLOAT32;
        l->at += 2;
        valid = read_digits(l, 16, &t.integer) && l->at - t.text == (is_double ? 18 : 10);
        if (!valid) return bad(t, l, is_double ? "0d needs 16 hexadecimal digits" : "0f needs 8 hexadecimal digits");
    } else {
        unsigned base = 10;
        if (*l->at == '0' && (second == 'x' || second == 'X')) base = 16;
        if (*l->at == '0' && (second == 'b' || second == 'B')) base = 2;
        if (*l->at == '0' && is_digit(second)) base = 8;
        if (base == 16 || base == 2) l->at += 2;
        valid = read_digits(l, base, &t.integer);
        char next = peek(l, 0);
        if (base == 10 || base == 8) {
            if ((next == '.' && is_digit(peek(l, 1))) || next == 'e' || next == 'E') return read_fraction(l, t);
        }
        if (!valid) return bad(t, l, "not an integer of 64 bits");
        if (next == 'U') l->at++;
    }
    if (is_name(peek(l, 0))) {
        l->at++;
        return bad(t, l, "a number followed by a letter or digit that does not belong to it");
    }
    t.length = (size_t)(l->at - t.text);
    return t;
}

token lexer_next(lexer *l)
{
    bool closed = skip_blanks(l);
    token t = {.kind = TOKEN_END, .text = l->at, .line = l->line};
    if (!closed) return bad(t, l, "a comment without an end");
    if (l->at >= l->end) return t;
    l->line_start = false;
    char c = *l->at, second = peek(l, 1);
    if (is_digit(c)) return read_number(l, t);
    if (is_letter(c) || c == '_' || c == '$' || (c == '%' && is_name(second))) {
        t.kind = TOKEN_WORD;
        for (l->at++; is_name(peek(l, 0)) || (c == '%' && peek(l, 0) == '.' && is_letter(peek(l, 1)));) l->at++;
    } else if (c == '.' && is_letter(second)) {
        t.kind = TOKEN_DIRECTIVE;
        for (l->at++; is_name(peek(l, 0));) l->at++;
    } else if (c == '"') {
        t.kind = TOKEN_STRING;
        for (l->at++; l->at < l->end && *l->at != '"' && *l->at != '\n';) l->at++;
        if (peek(l, 0) != '"') return bad(t, l, "a string without an end");
        l->at++;
    } else if (c > ' ' && c < 127) {
        t.kind = TOKEN_PUNCTUATION;
        l->at++;
    } else {
        l->at++;
        return bad(t, l, "a character that PTX does not have");
    }
    t.length = (size_t)(l->at - t.text);
    return t;
}

token lexer_mnemonic(lexer *l, token word)
{
    while (is_name(peek(l, 0)) || peek(l, 0) == '.' || (peek(l, 0) == ':' && peek(l, 1) == ':'))
        l->at += peek(l, 0) == ':' ? 2 : 1;
    word.length = (size_t)(l->at - word.text);
    return word;
}
