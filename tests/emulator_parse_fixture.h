/* Texts for the tests of the interpreter's parser: kernels with a body, parsed from copies of exactly their size. */
#ifndef EMULATOR_PARSE_FIXTURE_H
#define EMULATOR_PARSE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "parse.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

#if defined(__SANITIZE_ADDRESS__)
#define SLOWED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLOWED 1
#endif
#endif
#ifndef SLOWED
#define SLOWED 0
#endif

static emulator_error error; /* of the last parse */

/* From a copy of exactly that size, so that reading beyond the text is seen. */
static emulator_module *parse(const char *text, size_t length)
{
    char *copy = malloc(length ? length : 1);
    assert_non_null(copy);
    memcpy(copy, text, length);
    memset(&error, 0, sizeof error);
    emulator_module *m = emulator_module_parse(copy, length, "test", &error);
    free(copy);
    return m;
}

#define REGISTERS                                                                                                      \
    "  .reg .pred p, q, pp<4>;\n  .reg .b16 h<8>;\n  .reg .b32 r<130>;\n  .reg .u32 u<4>;\n  .reg .s32 s<4>;\n"        \
    "  .reg .f32 f<8>;\n  .reg .b64 l<8>;\n  .reg .f64 e<4>;\n"

/* A kernel with the registers above; the body begins at line BODY_LINE. */
enum { BODY_LINE = 13 };
static emulator_module *parse_body(const char *arch, const char *version, const char *body)
{
    char text[8192];
    int length = snprintf(
        text, sizeof text,
        ".version %s\n.target %s\n.address_size 64\n.entry k(.param .b64 x, .param .b32 y) {\n" REGISTERS "%s\n}\n",
        version, arch, body);
    assert_true(length > 0 && (size_t)length < sizeof text);
    return parse(text, (size_t)length);
}

static uint64_t fresh_seed(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t seed = (uint64_t)t.tv_nsec * 2654435761u ^ (uint64_t)t.tv_sec;
    printf("seed %llu\n", (unsigned long long)seed);
    return seed;
}

static uint32_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

#endif
