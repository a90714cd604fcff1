/* The grid of configurations that `list`, the tests and bundles walk through: every shape with bf16, then every pair of
 * types for one shape. */
#include "config.h"

static const int bits[] = {2, 4};
static const int head_dims[] = {64, 128, 256};
static const int heads[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16};
static const int pages[] = {64, 128, 256};

/* Types of Q and of the output; the first row is the default that the shapes are made with. */
static const struct {
    number_type q, o;
} types[] = {
    {NUMBER_BF16, NUMBER_BF16}, {NUMBER_BF16, NUMBER_F16}, {NUMBER_BF16, NUMBER_F32},
    {NUMBER_F16, NUMBER_F16},   {NUMBER_F16, NUMBER_BF16}, {NUMBER_F16, NUMBER_F32},
};

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

enum {
    SHAPES = COUNT(bits) * COUNT(bits) * COUNT(head_dims) * COUNT(heads) * COUNT(pages),
    VARIANTS = COUNT(bits) * COUNT(bits) * (COUNT(types) - 1),
};

int registry_size(void)
{
    return SHAPES + VARIANTS;
}

/* Takes the last digit of *index in the base `count`. */
static int digit(int *index, int count)
{
    int d = *index % count;
    *index /= count;
    return d;
}

void registry_config(int index, config *out)
{
    int page = 64, head = 8, dim = 128, type = 0;
    if (index < SHAPES) {
        page = pages[digit(&index, COUNT(pages))];
        head = heads[digit(&index, COUNT(heads))];
        dim = head_dims[digit(&index, COUNT(head_dims))];
    } else {
        index -= SHAPES;
        type = 1 + digit(&index, COUNT(types) - 1);
    }
    int v = bits[digit(&index, COUNT(bits))], k = bits[digit(&index, COUNT(bits))];
    *out = (config){
        .target = target_row(0),
        .k = {encoding_find(k), GROUP_TOKEN_WISE, dim},
        .v = {encoding_find(v), GROUP_TOKEN_WISE, dim},
        .head_dim = dim,
        .heads = head,
        .page_tokens = page,
        .q_type = types[type].q,
        .o_type = types[type].o,
        .m_type = NUMBER_F16,
    };
}
