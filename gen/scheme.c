/* The table of ways of grouping, and what follows from its rows. */
#include "scheme.h"

#include <stdio.h>
#include <string.h>

static const grouping_row groupings[GROUPINGS] = {
    [GROUP_TOKEN_WISE] = {.letters = "t",
                          .name = "token-wise",
                          .sizes = {32, 64},
                          .whole_head = true,
                          .metadata_numbers = 2,
                          .kernels = true},
    [GROUP_CHANNEL_WISE] =
        {.letters = "c", .name = "channel-wise", .sizes = {32, 64, 128}, .along_tokens = true, .metadata_numbers = 2},
    [GROUP_TOKEN_WISE_SYMMETRIC] =
        {.letters = "ts", .name = "symmetric token-wise", .sizes = {32, 64}, .whole_head = true, .metadata_numbers = 1},
    [GROUP_CHANNEL_WISE_SYMMETRIC] = {.letters = "cs",
                                      .name = "symmetric channel-wise",
                                      .sizes = {32, 64, 128},
                                      .along_tokens = true,
                                      .metadata_numbers = 1},
};

enum { NUMBER_BYTES = 2 /* of a scale or a minimum */ };

const grouping_row *grouping_info(grouping way)
{
    return &groupings[way];
}

bool grouping_find(const char *letters, size_t length, grouping *out)
{
    for (int way = 0; way < GROUPINGS; way++) {
        if (strlen(groupings[way].letters) != length || memcmp(groupings[way].letters, letters, length) != 0) continue;
        *out = (grouping)way;
        return true;
    }
    return false;
}

const char *grouping_list(char *out, size_t size)
{
    size_t used = 0;
    for (int way = 0; way < GROUPINGS && used < size; way++)
        used += (size_t)snprintf(out + used, size - used, "%s%s %s", way > 0 ? ", " : "", groupings[way].letters,
                                 groupings[way].name);
    return out;
}

/* Sizes of a group with this head dimension, ascending; returns their number. */
static int group_sizes(const grouping_row *row, int head_dim, int *out)
{
    int count = 0;
    for (const int *size = row->sizes; *size != 0; size++)
        if (row->along_tokens || (*size < head_dim && head_dim % *size == 0)) out[count++] = *size;
    if (row->whole_head) out[count++] = head_dim;
    return count;
}

int scheme_list(int head_dim, scheme *out)
{
    int count = 0;
    for (int e = 0; encoding_row(e) != NULL; e++) {
        for (int way = 0; way < GROUPINGS; way++) {
            int sizes[8], size_count = group_sizes(&groupings[way], head_dim, sizes);
            for (int i = 0; i < size_count; i++) out[count++] = (scheme){encoding_row(e), (grouping)way, sizes[i]};
        }
    }
    return count;
}

bool scheme_check(char letter, const scheme *s, int head_dim, gen_error *err)
{
    const grouping_row *row = &groupings[s->direction];
    char list[96] = "";
    int sizes[8], count = group_sizes(row, head_dim, sizes);
    size_t used = 0;
    for (int i = 0; i < count; i++) {
        if (sizes[i] == s->group) return true;
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%d", i > 0 ? ", " : "", sizes[i]);
    }
    return gen_fail(err, "scheme field '%c': %d is not a %s group there is with heads of %d channels (%s)", letter,
                    s->group, row->name, head_dim, list);
}

bool scheme_is_symmetric(const scheme *s)
{
    return groupings[s->direction].metadata_numbers == 1;
}

bool scheme_is_channel_wise(const scheme *s)
{
    return groupings[s->direction].along_tokens;
}

int scheme_block_tokens(const scheme *s)
{
    return groupings[s->direction].along_tokens ? s->group : 1;
}

int scheme_block_groups(const scheme *s, int head_dim)
{
    return groupings[s->direction].along_tokens ? head_dim : head_dim / s->group;
}

int scheme_block_code_bytes(const scheme *s, int head_dim)
{
    return scheme_block_tokens(s) * head_dim * s->codes->bits / 8;
}

int scheme_block_metadata_bytes(const scheme *s, int head_dim)
{
    return scheme_block_groups(s, head_dim) * groupings[s->direction].metadata_numbers * NUMBER_BYTES;
}

int scheme_quantised_tokens(const scheme *s, int tokens, int sink, int recent)
{
    int64_t middle = (int64_t)tokens - sink - recent;
    return middle > 0 ? (int)(middle - middle % scheme_block_tokens(s)) : 0;
}

const char *scheme_format(char letter, const scheme *s, char *text)
{
    snprintf(text, SCHEME_TEXT_MAX, "%c%d%s%d", letter, s->codes->bits, groupings[s->direction].letters, s->group);
    return text;
}

void scheme_pair_format(const scheme_pair *pair, char *text)
{
    char k[SCHEME_TEXT_MAX], v[SCHEME_TEXT_MAX];
    bool m = pair->m_type != NUMBER_F16;
    snprintf(text, SCHEME_PAIR_TEXT_MAX, "%s-%s%s%s", scheme_format('k', &pair->k, k), scheme_format('v', &pair->v, v),
             m ? "-m" : "", m ? number_info(pair->m_type)->name : "");
}
