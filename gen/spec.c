/* The grammar of specs: parsing with errors that name the field, its value and what is allowed, and the canonical form.
 *
 *   spec   = target "-k" scheme "-v" scheme "-d" number "-h" number "-p" number ["-" type] ["-o" type] ["-m" type]
 *            ["-tier"]
 *   scheme = bits way number, with the ways of grouping of scheme.c: "t" | "c" | "ts" | "cs"
 *
 * Fields are separated by '-' and come in this order; every field but the target and the type of Q begins with its
 * letter. */
#include "config.h"

#include <stdio.h>
#include <string.h>

static const int allowed_bits[] = {2, 4};
static const int allowed_head_dims[] = {64, 128, 256};
static const int allowed_pages[] = {16, 32, 64, 128, 256};
enum { HEADS_MAX = 16 };

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

typedef struct field_text {
    const char *text; /* first byte after the field's letter */
    int length;
} field_text;

/* "2, 4" of the array {2, 4}. */
static const char *list_text(char *out, size_t size, const int *values, int count)
{
    size_t used = 0;
    for (int i = 0; i < count && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%d", i > 0 ? ", " : "", values[i]);
    return out;
}

static bool is_one_of(int value, const int *values, int count)
{
    for (int i = 0; i < count; i++)
        if (values[i] == value) return true;
    return false;
}

/* Reads a decimal number from the head of text: no sign, no leading zero, at most six digits. False if none is there.
 */
static bool take_number(field_text *text, int *out)
{
    int digits = 0, value = 0;
    while (digits < text->length && text->text[digits] >= '0' && text->text[digits] <= '9') {
        if (digits == 6) return false;
        value = value * 10 + (text->text[digits++] - '0');
    }
    if (digits == 0 || (digits > 1 && text->text[0] == '0')) return false;
    text->text += digits;
    text->length -= digits;
    *out = value;
    return true;
}

static bool parse_one_of(char letter, field_text text, const char *what, const int *values, int count, int *out,
                         gen_error *err)
{
    char list[64];
    field_text rest = text;
    if (take_number(&rest, out) && rest.length == 0 && is_one_of(*out, values, count)) return true;
    return gen_fail(err, "spec field '%c': %s%.*s is not %s this target has (%s)", letter,
                    text.length == 0 ? "nothing" : "", text.length, text.text, what,
                    list_text(list, sizeof list, values, count));
}

/* The group is checked against the head dimension once that is known. */
static bool parse_scheme(char letter, field_text text, scheme *out, gen_error *err)
{
    char list[64];
    field_text rest = text;
    int bits;
    if (!take_number(&rest, &bits))
        return gen_fail(err, "spec field '%c': '%.*s' does not begin with a number of bits (%s), as in %c2t128", letter,
                        text.length, text.text, list_text(list, sizeof list, allowed_bits, COUNT(allowed_bits)),
                        letter);
    out->codes = encoding_find(bits);
    if (out->codes == NULL)
        return gen_fail(err, "spec field '%c': %d is not a number of bits this version has (%s)", letter, bits,
                        list_text(list, sizeof list, allowed_bits, COUNT(allowed_bits)));
    int letters = 0;
    while (letters < rest.length && rest.text[letters] >= 'a' && rest.text[letters] <= 'z') letters++;
    if (!grouping_find(rest.text, (size_t)letters, &out->direction)) {
        char ways[128];
        return gen_fail(err,
                        "spec field '%c': '%.*s' lacks the direction of its groups after the bits (%s), as in "
                        "%c%dt128",
                        letter, text.length, text.text, grouping_list(ways, sizeof ways), letter, bits);
    }
    rest.text += letters;
    rest.length -= letters;
    if (!take_number(&rest, &out->group) || rest.length != 0 || out->group == 0)
        return gen_fail(
            err,
            "spec field '%c': '%.*s' does not end with a group size, a number without leading zeros, as in %c%dt128",
            letter, text.length, text.text, letter, bits);
    return true;
}

static bool parse_type(char letter, field_text text, const number_type *types, int count, number_type *out,
                       gen_error *err)
{
    char list[32] = "";
    for (int i = 0; i < count; i++) {
        if (number_find(text.text, (size_t)text.length, out) && *out == types[i]) return true;
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "", number_info(types[i])->name);
    }
    return gen_fail(err, "spec field '%c': '%.*s' is not a number type allowed here (%s)", letter, text.length,
                    text.text, list);
}

/* Fields in their order: IDs, the letters they begin with, the letter that errors call them by, an example. */
typedef enum field_id { FIELD_K, FIELD_V, FIELD_D, FIELD_H, FIELD_P, FIELD_Q, FIELD_O, FIELD_M, FIELD_T, FIELDS } field_id;
enum { REQUIRED_FIELDS = FIELD_Q };

static const struct {
    const char *first; /* letters a field of this kind begins with */
    char letter;
    bool keep_first; /* the first letter belongs to the value */
    const char *example;
} fields[FIELDS] = {
    [FIELD_K] = {"k", 'k', false, "k2t128"}, [FIELD_V] = {"v", 'v', false, "v2t128"},
    [FIELD_D] = {"d", 'd', false, "d128"},   [FIELD_H] = {"h", 'h', false, "h8"},
    [FIELD_P] = {"p", 'p', false, "p64"},    [FIELD_Q] = {"bf", 'q', true, "f16"},
    [FIELD_O] = {"o", 'o', false, "of32"},   [FIELD_M] = {"m", 'm', false, "mf16"},
    [FIELD_T] = {"t", 't', true, "tier"},
};

static bool parse_field(field_id id, field_text text, config *out, gen_error *err)
{
    static const number_type q_types[] = {NUMBER_BF16, NUMBER_F16}, o_types[] = {NUMBER_BF16, NUMBER_F16, NUMBER_F32},
                             m_types[] = {NUMBER_F16, NUMBER_BF16};
    field_text rest = text;
    switch (id) {
    case FIELD_K:
        return parse_scheme('k', text, &out->k, err);
    case FIELD_V:
        return parse_scheme('v', text, &out->v, err);
    case FIELD_D:
        return parse_one_of('d', text, "a head dimension", allowed_head_dims, COUNT(allowed_head_dims), &out->head_dim,
                            err);
    case FIELD_H:
        if (take_number(&rest, &out->heads) && rest.length == 0 && out->heads >= 1 && out->heads <= HEADS_MAX)
            return true;
        return gen_fail(err,
                        "spec field 'h': %s%.*s is not a number of query heads per KV head this target has (1 to %d)",
                        text.length == 0 ? "nothing" : "", text.length, text.text, HEADS_MAX);
    case FIELD_P:
        return parse_one_of('p', text, "a number of tokens of a page", allowed_pages, COUNT(allowed_pages),
                            &out->page_tokens, err);
    case FIELD_Q:
        return parse_type('q', text, q_types, COUNT(q_types), &out->q_type, err);
    case FIELD_O:
        return parse_type('o', text, o_types, COUNT(o_types), &out->o_type, err);
    case FIELD_M:
        return parse_type('m', text, m_types, COUNT(m_types), &out->m_type, err);
    case FIELD_T:
        out->tier = text.length == 4 && memcmp(text.text, "tier", 4) == 0;
        return out->tier || gen_fail(err, "spec field 't': '%.*s' is not 'tier', the full-precision tier", text.length,
                                     text.text);
    case FIELDS:
        break;
    }
    return gen_fail(err, "spec has a field of no kind");
}

/* Which field a token is, by its first letter; FIELDS if none. */
static field_id classify(field_text token)
{
    for (int id = 0; id < FIELDS; id++)
        if (token.length > 0 && strchr(fields[id].first, token.text[0]) != NULL) return (field_id)id;
    return FIELDS;
}

/* Cuts the text up to the next '-' off *spec, which becomes NULL at the end. */
static field_text next_token(const char **spec)
{
    const char *dash = strchr(*spec, '-');
    field_text token = {*spec, dash != NULL ? (int)(dash - *spec) : (int)strlen(*spec)};
    *spec = dash != NULL ? dash + 1 : NULL;
    return token;
}

static bool check_text(const char *spec, gen_error *err)
{
    static const char example[] = "sm_90a-k2t128-v2t128-d128-h8-p64";
    if (spec == NULL || *spec == '\0') return gen_fail(err, "spec is empty; an example is %s", example);
    const char *end = memchr(spec, '\0', CONFIG_SPEC_MAX);
    if (end == NULL)
        return gen_fail(err, "spec is longer than %d bytes; an example is %s", CONFIG_SPEC_MAX - 1, example);
    size_t good = strspn(spec, "abcdefghijklmnopqrstuvwxyz0123456789_-");
    if (spec + good != end)
        return gen_fail(err,
                        "spec has byte 0x%02x at position %zu; a spec is made of a-z, 0-9, '_' and '-', for example %s",
                        (unsigned char)spec[good], good, example);
    return true;
}

static bool parse_target(field_text token, config *out, gen_error *err)
{
    char name[CONFIG_SPEC_MAX], list[128] = "";
    snprintf(name, sizeof name, "%.*s", token.length, token.text);
    out->target = target_find(name);
    if (out->target != NULL) return true;
    for (int i = 0; target_row(i) != NULL; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "", target_row(i)->name);
    }
    return gen_fail(err, "spec field 'target': '%s' is not a target this version has (%s)", name, list);
}

/* Steps over the fields from *next up to the token's own, which it stores in *next. */
static bool find_field(field_text token, int *next, gen_error *err)
{
    field_id id = classify(token);
    if (token.length == 0)
        return gen_fail(err, "spec has an empty field after '-'; fields are letters and a value, as in %s",
                        fields[FIELD_D].example);
    if (id == FIELDS)
        return gen_fail(err,
                        "spec field '%.*s' is not known; fields begin with k, v, d, h, p, then optionally bf16 or f16 "
                        "(type of Q), o, m, tier",
                        token.length, token.text);
    if ((int)id < *next)
        return gen_fail(err,
                        "spec field '%c' is given twice or out of order ('%.*s'); the order is target, k, v, d, h, p, "
                        "type of Q, o, m, tier",
                        fields[id].letter, token.length, token.text);
    if (*next < REQUIRED_FIELDS && (int)id > *next)
        return gen_fail(err, "spec field '%c' is missing before '%.*s'; it looks like %s", fields[*next].letter,
                        token.length, token.text, fields[*next].example);
    *next = (int)id;
    return true;
}

bool config_parse_cache(const char *spec, config *out, gen_error *err)
{
    if (!check_text(spec, err)) return false;
    config cfg = {.q_type = NUMBER_BF16, .o_type = NUMBER_TYPES, .m_type = NUMBER_F16};
    if (!parse_target(next_token(&spec), &cfg, err)) return false;
    int next = 0; /* first field that may come now */
    while (spec != NULL) {
        field_text token = next_token(&spec);
        if (!find_field(token, &next, err)) return false;
        int skip = fields[next].keep_first ? 0 : 1;
        field_text value = {token.text + skip, token.length - skip};
        if (!parse_field((field_id)next++, value, &cfg, err)) return false;
    }
    if (next < REQUIRED_FIELDS)
        return gen_fail(err, "spec field '%c' is missing at the end; it looks like %s", fields[next].letter,
                        fields[next].example);
    if (cfg.o_type == NUMBER_TYPES) cfg.o_type = cfg.q_type;
    cfg.tier = cfg.tier || config_needs_tier(&cfg);
    if (!config_check(&cfg, err)) return false;
    *out = cfg;
    return true;
}

bool config_parse(const char *spec, config *out, gen_error *err)
{
    config cfg;
    if (!config_parse_cache(spec, &cfg, err) || !config_check_kernels(&cfg, err)) return false;
    *out = cfg;
    return true;
}

void config_format(const config *cfg, char *text)
{
    char k[SCHEME_TEXT_MAX], v[SCHEME_TEXT_MAX];
    bool q = cfg->q_type != NUMBER_BF16, o = cfg->o_type != cfg->q_type, m = cfg->m_type != NUMBER_F16;
    snprintf(text, CONFIG_SPEC_MAX, "%s-%s-%s-d%d-h%d-p%d%s%s%s%s%s%s%s", cfg->target->name,
             scheme_format('k', &cfg->k, k), scheme_format('v', &cfg->v, v), cfg->head_dim, cfg->heads,
             cfg->page_tokens, q ? "-" : "", q ? number_info(cfg->q_type)->name : "", o ? "-o" : "",
             o ? number_info(cfg->o_type)->name : "", m ? "-m" : "", m ? number_info(cfg->m_type)->name : "",
             cfg->tier && !config_needs_tier(cfg) ? "-tier" : "");
}

bool scheme_pair_parse(const char *text, int head_dim, scheme_pair *out, gen_error *err)
{
    static const number_type m_types[] = {NUMBER_F16, NUMBER_BF16};
    static const char example[] = "k2c64-v2t128 or k2c64-v2t128-mbf16";
    const char *rest = text;
    scheme_pair pair = {.m_type = NUMBER_F16};
    for (int i = 0; i < 3 && rest != NULL; i++) {
        static const char letters[] = {'k', 'v', 'm'};
        field_text token = next_token(&rest), value = {token.text + 1, token.length - 1};
        if (token.length == 0 || token.text[0] != letters[i])
            return gen_fail(err, "scheme '%.64s': field '%c' is missing before '%.*s'; it looks like %s", text,
                            letters[i], token.length > 64 ? 64 : token.length, token.text, example);
        bool ok = i == 0   ? parse_scheme('k', value, &pair.k, err)
                  : i == 1 ? parse_scheme('v', value, &pair.v, err)
                           : parse_type('m', value, m_types, COUNT(m_types), &pair.m_type, err);
        if (!ok) return false;
        if (i == 0 && rest == NULL)
            return gen_fail(err, "scheme '%.64s': field 'v' is missing at the end; it looks like %s", text, example);
    }
    if (rest != NULL) return gen_fail(err, "scheme '%.64s' has a field after 'm'; it looks like %s", text, example);
    if (!scheme_check('k', &pair.k, head_dim, err) || !scheme_check('v', &pair.v, head_dim, err)) return false;
    *out = pair;
    return true;
}
