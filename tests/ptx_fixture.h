/* Small PTX lists for tests: a builder, a register of each kind that has been written, and a verdict. Included after
 * cmocka.h. */
#ifndef FOSCAR_TESTS_PTX_FIXTURE_H
#define FOSCAR_TESTS_PTX_FIXTURE_H

#include <string.h>

#include "ptx.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static inline void start(ptx_builder *b)
{
    ptx_builder_init(b, target_find("sm_90a"), "kernel", 128, 64);
}

static inline ptx_value any_r(ptx_builder *b)
{
    return ptx_mov_b32(b, ptx_imm(7));
}
static inline ptx_value any_l(ptx_builder *b)
{
    return ptx_mov_b64(b, ptx_imm(7));
}
static inline ptx_value any_f(ptx_builder *b)
{
    return ptx_mov_f32(b, ptx_fimm(1));
}
static inline ptx_value any_p(ptx_builder *b)
{
    return ptx_setp_eq(b, any_r(b), ptx_imm(7));
}

/* Verifies and finishes: no fault is expected, or one whose message has this fragment. */
static inline void expect_verdict(ptx_builder *b, const char *fragment)
{
    gen_error err = {""};
    bool good = ptx_verify(b, &err);
    if (good != (fragment == NULL) || (fragment && !strstr(err.message, fragment)))
        fail_msg("expected '%s', got '%s'", fragment ? fragment : "no fault", good ? "no fault" : err.message);
    if (fragment) assert_non_null(strstr(err.message, "kernel"));
    ptx_builder_finish(b);
}

#endif
