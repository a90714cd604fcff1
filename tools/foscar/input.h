/* The user's own tensors: a .safetensors file with q [B, heads, d], lengths [B] int32, k and v [T, kv_heads, d]. Query
 * head h reads KV head h / (heads / kv_heads); sequence b reads the first lengths[b] of the T tokens. */
#ifndef FOSCAR_TOOLS_INPUT_H
#define FOSCAR_TOOLS_INPUT_H

#include "encoding.h"
#include "safetensors.h"

typedef struct input {
    safetensors file;
    tensor q, k, v; /* BF16, F16 or F32; their data is the file's */
    int batch, heads, kv_heads, head_dim, tokens;
    int32_t *lengths; /* [batch], each 0 .. tokens */
    double scale;     /* of the scores: the file's metadata, else 1 / sqrt(head_dim) */
} input;

/* On failure *out is zeroed; err names the file or the tensor and what is wrong with it. */
bool input_open(const char *path, input *out, gen_error *err);
void input_close(input *in); /* a zeroed struct is fine */

/* False, with the place, if a number is a NaN or an infinity, or a score is beyond what float32 can order
   (COMPARE_SCORE_LIMIT). */
bool input_check_numbers(const input *in, gen_error *err);

/* False, with the place, if a number is beyond a type of Q, K and V. */
bool input_check_type(const input *in, number_type type, gen_error *err);

/* How many numbers of k and v lie beyond 65504, to which append clamps them where metadata are f16; text names the
   first. */
int64_t input_clamped(const input *in, char *text, size_t size);

number_type input_type(const tensor *t);

/* Elements first .. first + count - 1 of a tensor of numbers. */
void input_floats(const tensor *t, size_t first, size_t count, float *out);

#endif
