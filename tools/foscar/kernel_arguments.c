/* Arguments of a kernel as they are written in a call: numbers with their type, and buffers with what is in them. */
#include "kernel_arguments.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "decimal.h"
#include "numbers.h"
#include "random.h"

enum { BUFFER_MAX = 1 << 30 };

typedef struct element_type {
    const char *name;
    emulator_type type;
    bool is_float, is_signed;
} element_type;

static const element_type types[] = {
    {"u8", TYPE_U8, false, false},   {"s8", TYPE_S8, false, true},    {"u16", TYPE_U16, false, false},
    {"s16", TYPE_S16, false, true},  {"u32", TYPE_U32, false, false}, {"s32", TYPE_S32, false, true},
    {"u64", TYPE_U64, false, false}, {"s64", TYPE_S64, false, true},  {"f16", TYPE_F16, true, true},
    {"bf16", TYPE_BF16, true, true}, {"f32", TYPE_F32, true, true},   {"f64", TYPE_F64, true, true},
};

static const element_type *find_type(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strlen(types[i].name) == length && memcmp(types[i].name, name, length) == 0) return &types[i];
    return NULL;
}

/* ---- Numbers ---- */

static void store(const element_type *t, uint64_t bits, uint8_t *to)
{
    for (int b = 0; b < type_bytes(t->type); b++) to[b] = (uint8_t)(bits >> (8 * b));
}

static uint64_t float_bits(const element_type *t, double v)
{
    uint64_t bits;
    if (t->type != TYPE_F64) return number_round(number_format_of(t->type), v, ROUND_RN, false);
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static bool read_float(const char *text, double *v)
{
    bool minus = *text == '-';
    text += minus || *text == '+';
    bool good = true;
    if (strcmp(text, "inf") == 0)
        *v = INFINITY;
    else if (strcmp(text, "nan") == 0)
        *v = NAN;
    else
        good = decimal_parse(text, v);
    if (minus) *v = -*v;
    return good;
}

/* Decimal, or hexadecimal after 0x; within the range of the type. */
static bool read_integer(const element_type *t, const char *text, uint64_t *bits)
{
    bool minus = *text == '-';
    const char *digits = text + minus;
    char *end;
    if (!isdigit((unsigned char)*digits)) return false;
    bool hexadecimal = digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X');
    errno = 0;
    uint64_t v = strtoull(digits, &end, hexadecimal ? 16 : 10);
    if (errno != 0 || *end != '\0') return false;
    uint64_t most = number_largest_integer(t->type);
    if (minus && (!t->is_signed || v > most + 1)) return false;
    if (!minus && v > (hexadecimal ? UINT64_MAX >> (64 - 8 * type_bytes(t->type)) : most)) return false;
    *bits = minus ? 0 - v : v;
    return true;
}

static bool read_number(const element_type *t, const char *text, uint8_t *to)
{
    uint64_t bits = 0;
    double v = 0;
    if (t->is_float ? !read_float(text, &v) : !read_integer(t, text, &bits)) return false;
    store(t, t->is_float ? float_bits(t, v) : bits, to);
    return true;
}

/* Without a type: a number of the parameter's type. A compiler says .u32 for int too, so an integer may have a sign;
   a parameter of bits takes a number with a point as floating point. */
static bool read_plain(const char *text, const char *type, uint64_t bytes, kernel_argument *out)
{
    static const char *const unsigned_types[] = {[1] = "u8", [2] = "u16", [4] = "u32", [8] = "u64"},
                             *const signed_types[] = {[1] = "s8", [2] = "s16", [4] = "s32", [8] = "s64"};
    if (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8) return false;
    const element_type *t = find_type(type, strlen(type));
    bool fraction = strpbrk(text, ".eE") != NULL && strncmp(text, "0x", 2) != 0;
    const char *name = *text == '-' ? signed_types[bytes] : unsigned_types[bytes];
    if (type[0] == 'b' && fraction) name = bytes == 8 ? "f64" : bytes == 4 ? "f32" : name;
    if (t == NULL || !t->is_float) t = find_type(name, strlen(name));
    out->size = bytes;
    return read_number(t, text, out->value);
}

static bool read_bytes(const char *text, kernel_argument *out)
{
    size_t digits = strlen(text);
    if (digits == 0 || digits % 2 || strspn(text, "0123456789abcdefABCDEF") != digits) return false;
    out->size = digits / 2;
    out->bytes = tool_allocate(digits / 2);
    for (size_t b = 0; b < digits / 2; b++) {
        char pair[3] = {text[2 * b], text[2 * b + 1], '\0'};
        out->bytes[b] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return true;
}

/* ---- Buffers ---- */

static bool read_size(const char *text, size_t length, uint64_t *bytes)
{
    char *end;
    errno = 0;
    if (!isdigit((unsigned char)*text)) return false;
    unsigned long long v = strtoull(text, &end, 10);
    int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    end += shift != 0;
    if (errno != 0 || end != text + length || v == 0 || v > (unsigned long long)BUFFER_MAX >> shift) return false;
    *bytes = (uint64_t)v << shift;
    return true;
}

/* Random floats are nearly normal with variance 1; random integers take all values. */
static void fill_element(const element_type *t, bool ramp, uint64_t seed, uint64_t index, uint8_t *to)
{
    if (ramp)
        store(t, t->is_float ? float_bits(t, (double)index) : index, to);
    else
        store(t, t->is_float ? float_bits(t, (double)random_normal(seed, index)) : random_bits(seed, index), to);
}

static bool fill(const char *text, uint64_t seed, kernel_argument *out)
{
    const char *colon = strchr(text, ':');
    if (strcmp(text, "zeros") == 0) return true;
    if (strcmp(text, "undefined") == 0) {
        free(out->bytes);
        out->bytes = NULL;
        return true;
    }
    if (colon == NULL) return false;
    bool ramp = strncmp(text, "ramp:", 5) == 0, random = strncmp(text, "random:", 7) == 0;
    const element_type *t =
        ramp || random ? find_type(colon + 1, strlen(colon + 1)) : find_type(text, (size_t)(colon - text));
    uint8_t value[8];
    if (t == NULL || (!ramp && !random && !read_number(t, colon + 1, value))) return false;
    uint64_t each = (uint64_t)type_bytes(t->type);
    for (uint64_t e = 0; (e + 1) * each <= out->size; e++) {
        if (ramp || random)
            fill_element(t, ramp, seed, e, out->bytes + e * each);
        else
            memcpy(out->bytes + e * each, value, each);
    }
    return true;
}

static bool read_buffer(const command *c, const char *word, uint64_t seed, kernel_argument *out)
{
    out->is_buffer = true;
    if (strncmp(word, "buf=@", 5) == 0) {
        gen_error err;
        size_t length;
        char *data = tool_read_file(word + 5, BUFFER_MAX, &length, &err);
        if (data == NULL) {
            tool_fail_with(c, TOOL_USAGE, tool_file_details(word + 5), "%s: %s", out->name, err.message);
            return false;
        }
        out->bytes = (uint8_t *)data;
        out->size = length;
        if (length > 0) return true;
        tool_fail_with(c, TOOL_USAGE, tool_file_details(word + 5), "%s: %s is empty", out->name, word + 5);
        return false;
    }
    const char *text = word + 4, *equals = strchr(text, '=');
    bool good = read_size(text, equals != NULL ? (size_t)(equals - text) : strlen(text), &out->size);
    if (good) out->bytes = tool_allocate(out->size);
    if (good && (equals == NULL || fill(equals + 1, seed, out))) return true;
    tool_fail(c, TOOL_USAGE, "%s: '%s' is no buffer such as buf:4096, buf:64K=random:f16 or buf=@FILE (up to 1 GiB)",
              out->name, word);
    return false;
}

/* ---- All of them ---- */

static bool read_argument(const command *c, const char *word, const char *type, uint64_t bytes, uint64_t seed,
                          kernel_argument *out)
{
    const char *colon = strchr(word, ':');
    const element_type *t = colon != NULL ? find_type(word, (size_t)(colon - word)) : NULL;
    if (strncmp(word, "buf:", 4) == 0 || strncmp(word, "buf=", 4) == 0) {
        if (!read_buffer(c, word, seed, out)) return false;
        if (bytes == 8) return true;
        tool_fail(c, TOOL_USAGE, "%s: '%s' is a pointer of 8 bytes; the parameter has %" PRIu64, out->name, word,
                  bytes);
        return false;
    }
    bool good = t != NULL                         ? read_number(t, colon + 1, out->value)
                : strncmp(word, "bytes:", 6) == 0 ? read_bytes(word + 6, out)
                                                  : read_plain(word, type, bytes, out);
    if (t != NULL) out->size = (uint64_t)type_bytes(t->type);
    if (!good) {
        tool_fail(c, TOOL_USAGE, "%s: '%s' is none of %s", out->name, word, KERNEL_ARGUMENTS_HELP);
        return false;
    }
    if (out->size == bytes) return true;
    tool_fail(c, TOOL_USAGE, "%s: '%s' has %" PRIu64 " bytes; the parameter has %" PRIu64, out->name, word, out->size,
              bytes);
    return false;
}

bool kernel_arguments_read(const command *c, const option_words *words, const emulator_module *module, int number,
                           uint64_t seed, kernel_argument **out)
{
    emulator_entry_info info;
    emulator_module_entry_info(module, number, &info);
    *out = tool_allocate((size_t)words->count * sizeof **out);
    if (words->count != info.parameters) {
        tool_fail(c, TOOL_USAGE, "%s has %d parameters; --args has %d", emulator_module_entry_name(module, number),
                  info.parameters, words->count);
        return false;
    }
    for (int k = 0; k < words->count; k++) {
        kernel_argument *a = &(*out)[k];
        a->word = words->words[k];
        snprintf(a->name, sizeof a->name, "argument %d", k + 1);
        const char *type = emulator_module_parameter_type(module, number, k);
        uint64_t bytes = emulator_module_parameter_bytes(module, number, k);
        if (!read_argument(c, a->word, type, bytes, random_bits(seed, (uint64_t)k), a)) return false;
    }
    return true;
}

void kernel_arguments_finish(kernel_argument *arguments, int count)
{
    for (int k = 0; arguments != NULL && k < count; k++) free(arguments[k].bytes);
    free(arguments);
}

bool kernel_arguments_place(kernel_argument *arguments, int count, emulator_memory *memory)
{
    for (int k = 0; k < count; k++) {
        kernel_argument *a = &arguments[k];
        if (!a->is_buffer) continue;
        uint64_t address = emulator_memory_allocate(memory, a->size);
        if (address == 0) return false;
        memcpy(a->value, &address, sizeof address);
        emulator_memory_name(memory, address, a->name);
        if (a->bytes == NULL) continue;
        memcpy((void *)(uintptr_t)address, a->bytes, a->size);
        emulator_memory_define(memory, address, a->size);
    }
    return true;
}
