/* Reads and writes tensors of a .safetensors file: an 8-byte length, a JSON header, raw little-endian data. */
#include "safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "safetensors_header.h"

enum { HEADER_LIMIT = 100 << 20 }; /* of the format */

/* Parses the header of a file of `size` bytes; the place of the data goes into *out too. */
static bool open_header(const char *data, size_t size, safetensors *out, gen_error *err)
{
    uint64_t header = 0;
    if (size < 8) return gen_fail(err, "it has %zu bytes, not even the 8 of its header's length", size);
    for (int i = 0; i < 8; i++) header |= (uint64_t)(unsigned char)data[i] << (8 * i);
    if (header > HEADER_LIMIT)
        return gen_fail(err, "its header is said to have %llu bytes, more than the format's %d",
                        (unsigned long long)header, (int)HEADER_LIMIT);
    if (header > size - 8)
        return gen_fail(err, "its header is said to have %llu bytes, but only %zu follow", (unsigned long long)header,
                        size - 8);
    out->begin = 8 + (size_t)header;
    out->bytes = size - out->begin;
    return safetensors_parse_header(data + 8, (size_t)header, out->bytes, &out->header, err);
}

bool safetensors_open(const char *path, safetensors *out, gen_error *err)
{
    size_t size;
    gen_error problem;
    memset(out, 0, sizeof *out);
    out->data = tool_read_file(path, SIZE_MAX / 2, &size, err);
    if (out->data == NULL) return false;
    if (open_header(out->data, size, out, &problem)) return true;
    safetensors_close(out);
    return gen_fail(err, "%s is no safetensors file: %s", tool_short_path(path), problem.message);
}

void safetensors_close(safetensors *file)
{
    cJSON_Delete(file->header);
    free(file->data);
    memset(file, 0, sizeof *file);
}

const char *safetensors_metadata(const safetensors *file, const char *key)
{
    return cJSON_GetStringValue(
        cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(file->header, "__metadata__"), key));
}

static bool is_word_of(const char *word, const char *list)
{
    size_t length = strlen(word);
    for (const char *at = list; length > 0 && (at = strstr(at, word)) != NULL; at += length)
        if ((at == list || at[-1] == ' ') && (at[length] == '\0' || at[length] == ' ')) return true;
    return false;
}

bool safetensors_find(const safetensors *file, const char *name, int dimensions, const char *types, tensor *out,
                      gen_error *err)
{
    const cJSON *entry = cJSON_GetObjectItemCaseSensitive(file->header, name);
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(entry, "shape"),
                *offsets = cJSON_GetObjectItemCaseSensitive(entry, "data_offsets");
    const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(entry, "dtype"));
    memset(out, 0, sizeof *out);
    if (entry == NULL) return gen_fail(err, "the file has no tensor '%s'", name);
    if (type == NULL || !is_word_of(type, types))
        return gen_fail(err, "tensor '%s' is of type %s; allowed are %s", name, type != NULL ? type : "none", types);
    snprintf(out->type, sizeof out->type, "%s", type);
    out->dimensions = cJSON_GetArraySize(shape);
    if (out->dimensions != dimensions || dimensions > TENSOR_DIMENSIONS_MAX)
        return gen_fail(err, "tensor '%s' has %d dimensions, not %d", name, out->dimensions, dimensions);
    out->elements = 1;
    for (int i = 0; i < dimensions; i++) {
        out->shape[i] = safetensors_whole_number(shape, i);
        if (out->shape[i] < 1 || out->shape[i] > INT32_MAX || out->elements > INT64_MAX / 8 / out->shape[i])
            return gen_fail(err, "tensor '%s' has a dimension of no elements or of too many", name);
        out->elements *= out->shape[i];
    }
    /* That they lie within the data and take as many bytes as the shape was checked at the opening. */
    out->data = file->data + file->begin + (size_t)safetensors_whole_number(offsets, 0);
    return true;
}

static size_t tensor_bytes(const named_tensor *t)
{
    size_t bytes = (size_t)safetensors_type_bits(t->type) / 8;
    for (int i = 0; i < t->dimensions; i++) bytes *= (size_t)t->shape[i];
    return bytes;
}

/* The JSON header; free'd by the caller. *data becomes the bytes of all tensors. */
static char *make_header(const named_tensor *tensors, int count, const char *key, const char *value, size_t *data)
{
    cJSON *header = cJSON_CreateObject();
    cJSON_AddStringToObject(cJSON_AddObjectToObject(header, "__metadata__"), key, value);
    *data = 0;
    for (int i = 0; i < count; i++) {
        cJSON *entry = cJSON_AddObjectToObject(header, tensors[i].name);
        cJSON_AddStringToObject(entry, "dtype", tensors[i].type);
        cJSON *shape = cJSON_AddArrayToObject(entry, "shape"), *offsets = cJSON_AddArrayToObject(entry, "data_offsets");
        for (int d = 0; d < tensors[i].dimensions; d++)
            cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)tensors[i].shape[d]));
        cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)*data));
        *data += tensor_bytes(&tensors[i]);
        cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)*data));
    }
    char *text = cJSON_PrintUnformatted(header);
    cJSON_Delete(header);
    return text;
}

char *safetensors_make(const named_tensor *tensors, int count, const char *key, const char *value, size_t *size)
{
    size_t data = 0;
    char *header = make_header(tensors, count, key, value, &data);
    size_t length = header != NULL ? strlen(header) : 0, padded = (length + 7) / 8 * 8;
    char *file = header != NULL ? malloc(8 + padded + data) : NULL;
    if (file == NULL) {
        cJSON_free(header);
        return NULL;
    }
    for (int i = 0; i < 8; i++) file[i] = (char)(padded >> (8 * i));
    memset(file + 8, ' ', padded);
    memcpy(file + 8, header, length);
    cJSON_free(header);
    *size = 8 + padded;
    for (int i = 0; i < count; i++) {
        memcpy(file + *size, tensors[i].data, tensor_bytes(&tensors[i]));
        *size += tensor_bytes(&tensors[i]);
    }
    return file;
}
