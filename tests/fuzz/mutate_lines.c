/* Changes a PTX text by lines: statements are repeated, removed, guarded or given other numbers, so that it stays a
 * module more often than after changes of single bytes. Called by libFuzzer; now and then it leaves the work to
 * libFuzzer's own mutations. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

typedef struct span {
    size_t begin, length; /* with the newline */
} span;

static uint32_t draw(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)*state * n >> 32);
}

static span random_line(const uint8_t *data, size_t size, uint32_t *state)
{
    size_t at = draw(state, (uint32_t)size), begin = at, end = at;
    while (begin > 0 && data[begin - 1] != '\n') begin--;
    while (end < size && data[end] != '\n') end++;
    if (end < size) end++;
    return (span){begin, end - begin};
}

static size_t remove_line(uint8_t *data, size_t size, span line)
{
    memmove(data + line.begin, data + line.begin + line.length, size - line.begin - line.length);
    return size - line.length;
}

/* Puts a copy of one line before another. */
static size_t copy_line(uint8_t *data, size_t size, size_t max_size, span line, size_t to)
{
    uint8_t copy[256];
    if (line.length > sizeof copy || size + line.length > max_size) return size;
    memcpy(copy, data + line.begin, line.length);
    memmove(data + to + line.length, data + to, size - to);
    memcpy(data + to, copy, line.length);
    return size + line.length;
}

/* @p or @!p before a statement. */
static size_t add_guard(uint8_t *data, size_t size, size_t max_size, span line, bool negated)
{
    const char *guard = negated ? "@!p " : "@p ";
    size_t length = strlen(guard);
    if (size + length > max_size) return size;
    memmove(data + line.begin + length, data + line.begin, size - line.begin);
    memcpy(data + line.begin, guard, length);
    return size + length;
}

static size_t change_number(uint8_t *data, size_t size, span line, uint32_t *state)
{
    for (size_t k = 0; k < line.length; k++) {
        uint8_t *c = &data[line.begin + k];
        if (*c >= '0' && *c <= '9' && draw(state, 4) == 0) {
            *c = (uint8_t)('0' + draw(state, 10));
            break;
        }
    }
    return size;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    uint32_t state = seed * 2654435761u + 1;
    if (size == 0 || draw(&state, 4) == 0) return LLVMFuzzerMutate(data, size, max_size);
    size_t before = size;
    for (uint32_t changes = 1 + draw(&state, 3); changes > 0 && size > 0; changes--) {
        span one = random_line(data, size, &state), other = random_line(data, size, &state);
        switch (draw(&state, 6)) {
        case 0:
            size = remove_line(data, size, one);
            break;
        case 1:
            size = change_number(data, size, one, &state);
            break;
        case 2:
            size = add_guard(data, size, max_size, one, draw(&state, 2) == 0);
            break;
        default:
            size = copy_line(data, size, max_size, one, other.begin);
            break;
        }
    }
    return size || !before ? size : LLVMFuzzerMutate(data, before, max_size);
}
