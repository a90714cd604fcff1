/* The user's own tensors: finds them in the file and checks that their shapes belong together. */
#include "input.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "decimal.h"
#include "reference.h"

static bool find_tensors(input *in, tensor *lengths, gen_error *err)
{
    static const char numbers[] = "BF16 F16 F32";
    return safetensors_find(&in->file, "q", 3, numbers, &in->q, err) &&
           safetensors_find(&in->file, "lengths", 1, "I32", lengths, err) &&
           safetensors_find(&in->file, "k", 3, numbers, &in->k, err) &&
           safetensors_find(&in->file, "v", 3, numbers, &in->v, err);
}

static bool check_shapes(const input *in, const tensor *lengths, gen_error *err)
{
    int64_t batch = in->q.shape[0], heads = in->q.shape[1], dim = in->q.shape[2], kv_heads = in->k.shape[1];
    if (memcmp(in->k.shape, in->v.shape, sizeof in->k.shape) != 0 || in->k.shape[2] != dim)
        return gen_fail(err, "the shapes of tensors 'k' and 'v' differ, or their last dimension is not that of 'q'");
    if (lengths->shape[0] != batch || batch > 65535 || kv_heads > 65535 || heads % kv_heads != 0)
        return gen_fail(
            err, "tensor 'lengths' must have one entry a row of 'q', and the heads of 'k' must divide those of 'q'");
    return true;
}

static bool take_lengths(input *in, const tensor *lengths, gen_error *err)
{
    in->lengths = tool_allocate((size_t)in->batch * sizeof *in->lengths);
    memcpy(in->lengths, lengths->data, (size_t)in->batch * sizeof *in->lengths);
    for (int b = 0; b < in->batch; b++)
        if (in->lengths[b] < 0 || in->lengths[b] > in->tokens)
            return gen_fail(err, "tensor 'lengths': entry %d is %d, outside 0 .. %d, the tokens of 'k'", b,
                            (int)in->lengths[b], in->tokens);
    return true;
}

static bool take_scale(input *in, gen_error *err)
{
    const char *text = safetensors_metadata(&in->file, "scale");
    in->scale = 1 / sqrt(in->head_dim);
    if (text == NULL || (decimal_parse(text, &in->scale) && in->scale > 0 && isfinite(in->scale))) return true;
    return gen_fail(err, "the metadata 'scale' is '%.40s', not a positive number; leave it out for 1 / sqrt(%d)", text,
                    in->head_dim);
}

bool input_open(const char *path, input *out, gen_error *err)
{
    tensor lengths;
    memset(out, 0, sizeof *out);
    if (!safetensors_open(path, &out->file, err)) return false;
    if (!find_tensors(out, &lengths, err) || !check_shapes(out, &lengths, err)) goto failed;
    out->batch = (int)out->q.shape[0];
    out->heads = (int)out->q.shape[1];
    out->head_dim = (int)out->q.shape[2];
    out->tokens = (int)out->k.shape[0];
    out->kv_heads = (int)out->k.shape[1];
    if (take_scale(out, err) && take_lengths(out, &lengths, err)) return true;
failed:
    input_close(out);
    return false;
}

void input_close(input *in)
{
    safetensors_close(&in->file);
    free(in->lengths);
    memset(in, 0, sizeof *in);
}

number_type input_type(const tensor *t)
{
    return strcmp(t->type, "F32") == 0 ? NUMBER_F32 : strcmp(t->type, "F16") == 0 ? NUMBER_F16 : NUMBER_BF16;
}

void input_floats(const tensor *t, size_t first, size_t count, float *out)
{
    number_type type = input_type(t);
    size_t bytes = (size_t)number_info(type)->bytes;
    for (size_t i = 0; i < count; i++) {
        float aligned;
        memcpy(&aligned, (const char *)t->data + (first + i) * bytes, bytes);
        reference_read(type, &aligned, 1, &out[i]);
    }
}
