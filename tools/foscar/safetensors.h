/* Reads and writes tensors of a .safetensors file: an 8-byte length, a JSON header, raw little-endian data. */
#ifndef FOSCAR_TOOLS_SAFETENSORS_H
#define FOSCAR_TOOLS_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cJSON.h>

#include "error.h"

typedef struct safetensors {
    char *data;          /* the whole file */
    size_t begin, bytes; /* of the tensors' data in it: offset, length */
    cJSON *header;
} safetensors;

/* On failure *out is zeroed and err names the file and what is wrong with it. */
bool safetensors_open(const char *path, safetensors *out, gen_error *err);
void safetensors_close(safetensors *file); /* a zeroed struct is fine */

enum { TENSOR_DIMENSIONS_MAX = 4 };

typedef struct tensor {
    char type[8]; /* "BF16", "F16", "F32", "I32" */
    int dimensions;
    int64_t shape[TENSOR_DIMENSIONS_MAX];
    int64_t elements;
    const void *data; /* within the file's memory, of any alignment */
} tensor;

/* Finds a tensor that has `dimensions` dimensions and one of the types in the space-separated list. */
bool safetensors_find(const safetensors *file, const char *name, int dimensions, const char *types, tensor *out,
                      gen_error *err);

/* A tensor to be written: `data` holds the elements of `type`, contiguous. */
typedef struct named_tensor {
    const char *name, *type; /* as in `tensor` */
    int dimensions;
    int64_t shape[TENSOR_DIMENSIONS_MAX];
    const void *data;
} named_tensor;

/* The bytes of a file with these tensors and one string of metadata; malloc'd, *size long. NULL: no memory. */
char *safetensors_make(const named_tensor *tensors, int count, const char *key, const char *value, size_t *size);

/* A string of the file's metadata, or NULL. */
const char *safetensors_metadata(const safetensors *file, const char *key);

#endif
