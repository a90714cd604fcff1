/* Judges the header of a .safetensors file. cJSON takes more than JSON (bytes below ' ' anywhere, "01", a name twice)
 * and cuts strings at an escaped NUL, so the text is looked through before it is parsed. */
#include "safetensors_header.h"

#include <stdlib.h>
#include <string.h>

#include "command.h"

/* ---- The text ---- */

/* One string, from its first quote; *at becomes the byte behind it. NULL: fine; else what is wrong. */
static const char *check_string(const char **at, const char *end)
{
    const char *c = *at + 1;
    for (; c < end && *c != '"'; c++) {
        if ((unsigned char)*c < ' ') return "a string with a control character";
        if (*c != '\\') continue;
        if (end - c > 5 && memcmp(c, "\\u0000", 6) == 0) return "a string with a NUL";
        c++; /* what is escaped is no end of the string */
    }
    *at = c + 1;
    return c < end ? NULL : "a string without an end";
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static const char *check_text(const char *text, size_t length)
{
    const char *end = text + length;
    if (length == 0 || *text != '{') return "it does not begin with '{'";
    if (!tool_is_utf8(text, length)) return "it is not UTF-8";
    for (const char *at = text; at < end;) {
        if (*at == '"') {
            const char *problem = check_string(&at, end);
            if (problem != NULL) return problem;
            continue;
        }
        if ((unsigned char)*at < ' ' && *at != '\n' && *at != '\r' && *at != '\t') return "a control character";
        bool number = is_digit(*at) || *at == '-' || *at == '+', zero = *at == '0';
        const char *begin = at++;
        while (number && at < end && (is_digit(*at) || strchr("+-.eE", *at) != NULL)) at++;
        for (const char *c = begin; number && c < at; c++)
            if (!is_digit(*c) || (zero && at - begin > 1)) return "a number that is not whole, or begins with 0 or '+'";
    }
    return NULL;
}

/* ---- Names ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const cJSON *const *)a)->string, (*(const cJSON *const *)b)->string);
}

/* The members of an object, to be freed; *count of them, at least 1 allocated. */
static const cJSON **list_members(const cJSON *object, int *count)
{
    int n = cJSON_GetArraySize(object), i = 0;
    const cJSON **members = tool_allocate((size_t)(n + 1) * sizeof *members), *member;
    cJSON_ArrayForEach(member, object) members[i++] = member;
    *count = n;
    return members;
}

static bool check_names_once(const cJSON *object, gen_error *err)
{
    int count;
    const cJSON **members = list_members(object, &count);
    const char *twice = NULL;
    qsort((void *)members, (size_t)count, sizeof *members, compare_names);
    for (int i = 1; i < count && twice == NULL; i++)
        if (compare_names(&members[i - 1], &members[i]) == 0) twice = members[i]->string;
    if (twice != NULL) gen_fail(err, "the name '%.60s' is given twice", twice);
    free((void *)members);
    return twice == NULL;
}

/* ---- Tensors ---- */

int safetensors_type_bits(const char *type)
{
    static const struct {
        const char *type;
        int bits;
    } rows[] = {{"BF16", 16},   {"F16", 16}, {"F32", 32}, {"F64", 64},    {"I8", 8},      {"I16", 16},   {"I32", 32},
                {"I64", 64},    {"U8", 8},   {"U16", 16}, {"U32", 32},    {"U64", 64},    {"BOOL", 8},   {"F8_E4M3", 8},
                {"F8_E5M2", 8}, {"F4", 4},   {"C64", 64}, {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].type, type) == 0) return rows[i].bits;
    return 0;
}

int64_t safetensors_whole_number(const cJSON *array, int index)
{
    const cJSON *item = cJSON_GetArrayItem(array, index);
    double value = cJSON_IsNumber(item) ? item->valuedouble : -1;
    return value >= 0 && value <= 9e15 && value == (double)(int64_t)value ? (int64_t)value : -1;
}

static const cJSON *member_of(const cJSON *entry, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(entry, name);
}

/* Bytes of a tensor by its shape and type, or -1: more than a file can hold, or a shape that is none. */
static int64_t shape_bytes(const cJSON *shape, int bits)
{
    const int64_t most = INT64_MAX / 64;
    int64_t elements = 1;
    const cJSON *item;
    bool empty = false;
    cJSON_ArrayForEach(item, shape)
    {
        int64_t size = cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble <= 9e15
                           ? (int64_t)item->valuedouble
                           : -1;
        if (size < 0) return -1;
        empty = empty || size == 0;
        if (!empty && elements > most / size) return -1;
        if (!empty) elements *= size;
    }
    if (empty) return 0;
    return elements * bits % 8 == 0 ? elements * bits / 8 : -1;
}

static bool check_tensor(const cJSON *entry, size_t data_bytes, gen_error *err)
{
    const char *name = entry->string, *type = cJSON_GetStringValue(member_of(entry, "dtype"));
    const cJSON *shape = member_of(entry, "shape"), *offsets = member_of(entry, "data_offsets");
    if (!cJSON_IsObject(entry) || type == NULL || !cJSON_IsArray(shape) || !cJSON_IsArray(offsets))
        return gen_fail(err, "tensor '%.60s' has no dtype, shape or data_offsets", name);
    if (!check_names_once(entry, err)) return false;
    int bits = safetensors_type_bits(type);
    if (cJSON_GetArraySize(offsets) != 2)
        return gen_fail(err, "tensor '%.60s' has %d data_offsets, not 2", name, cJSON_GetArraySize(offsets));
    int64_t begin = safetensors_whole_number(offsets, 0), end = safetensors_whole_number(offsets, 1),
            bytes = shape_bytes(shape, bits);
    if (begin < 0 || end < begin || (uint64_t)end > data_bytes)
        return gen_fail(err, "tensor '%.60s' does not lie within the file", name);
    if (bits == 0) return true; /* a type of a later version of the format */
    if (bytes < 0) return gen_fail(err, "tensor '%.60s' has a shape that is none, or is too large", name);
    if (end - begin != bytes)
        return gen_fail(err, "tensor '%.60s' takes %lld bytes by its data_offsets and %lld by its shape and type", name,
                        (long long)(end - begin), (long long)bytes);
    return true;
}

static int64_t offset_of(const cJSON *entry, int index)
{
    return safetensors_whole_number(member_of(entry, "data_offsets"), index);
}

static int compare_offsets(const void *a, const void *b)
{
    const cJSON *left = *(const cJSON *const *)a, *right = *(const cJSON *const *)b;
    for (int i = 0; i < 2; i++) { /* at the same place, tensors of no elements first */
        int64_t x = offset_of(left, i), y = offset_of(right, i);
        if (x != y) return x > y ? 1 : -1;
    }
    return 0;
}

/* Sorted by their offsets, each tensor begins where the one before ends, and the last one ends with the data. */
static bool check_order(const cJSON **tensors, int count, size_t data_bytes, gen_error *err)
{
    int64_t reached = 0;
    qsort((void *)tensors, (size_t)count, sizeof *tensors, compare_offsets);
    for (int i = 0; i < count; i++) {
        int64_t begin = offset_of(tensors[i], 0);
        if (begin < reached)
            return gen_fail(err, "tensors '%.60s' and '%.60s' overlap", tensors[i - 1]->string, tensors[i]->string);
        if (begin > reached)
            return gen_fail(err, "%lld bytes before tensor '%.60s' belong to none", (long long)(begin - reached),
                            tensors[i]->string);
        reached = offset_of(tensors[i], 1);
    }
    if ((uint64_t)reached == data_bytes) return true;
    return gen_fail(err, "%lld bytes behind the last tensor belong to none",
                    (long long)data_bytes - (long long)reached);
}

static bool check_tensors(const cJSON *header, size_t data_bytes, gen_error *err)
{
    int count;
    const cJSON **tensors = list_members(header, &count);
    bool ok = true;
    for (int i = 0; i < count && ok; i++) {
        if (strcmp(tensors[i]->string, "__metadata__") != 0)
            ok = check_tensor(tensors[i], data_bytes, err);
        else
            tensors[i--] = tensors[--count];
    }
    ok = ok && check_order(tensors, count, data_bytes, err);
    free((void *)tensors);
    return ok;
}

static bool check_metadata(const cJSON *header, gen_error *err)
{
    const cJSON *metadata = member_of(header, "__metadata__"), *item;
    if (metadata == NULL) return true;
    if (!cJSON_IsObject(metadata)) return gen_fail(err, "its __metadata__ are no object");
    cJSON_ArrayForEach(item, metadata) if (!cJSON_IsString(item)) return gen_fail(
        err, "the metadata '%.60s' are no string", item->string);
    return check_names_once(metadata, err);
}

bool safetensors_parse_header(const char *text, size_t length, size_t data_bytes, cJSON **out, gen_error *err)
{
    const char *end = NULL, *problem = check_text(text, length);
    *out = NULL;
    if (problem != NULL) return gen_fail(err, "%s", problem);
    cJSON *header = cJSON_ParseWithLengthOpts(text, length, &end, false);
    if (!cJSON_IsObject(header)) {
        gen_fail(err, "it is no JSON");
        goto failed;
    }
    for (; end < text + length; end++)
        if (strchr(" \t\r\n", *end) == NULL) {
            gen_fail(err, "there is text behind its JSON");
            goto failed;
        }
    if (!check_names_once(header, err) || !check_metadata(header, err) || !check_tensors(header, data_bytes, err))
        goto failed;
    *out = header;
    return true;
failed:
    cJSON_Delete(header);
    return false;
}
