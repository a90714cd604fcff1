/* The tables of code widths and of number types. */
#include "encoding.h"

#include <string.h>

static const encoding encodings[] = {
    {.bits = 2, .fields = 4, .mask = 0x03030303u, .codes_per_word = 16},
    {.bits = 4, .fields = 2, .mask = 0x0f0f0f0fu, .codes_per_word = 8},
};

enum { ENCODINGS = sizeof encodings / sizeof *encodings };

const encoding *encoding_find(int bits)
{
    for (int i = 0; i < ENCODINGS; i++)
        if (encodings[i].bits == bits) return &encodings[i];
    return NULL;
}

const encoding *encoding_row(int index)
{
    return index >= 0 && index < ENCODINGS ? &encodings[index] : NULL;
}

static const number_row numbers[NUMBER_TYPES] = {
    [NUMBER_BF16] = {.name = "bf16", .bytes = 2},
    [NUMBER_F16] = {.name = "f16", .bytes = 2},
    [NUMBER_F32] = {.name = "f32", .bytes = 4},
};

const number_row *number_info(number_type type)
{
    return &numbers[type];
}

bool number_find(const char *name, size_t length, number_type *out)
{
    for (int i = 0; i < NUMBER_TYPES; i++) {
        if (strlen(numbers[i].name) != length || memcmp(numbers[i].name, name, length) != 0) continue;
        *out = (number_type)i;
        return true;
    }
    return false;
}
