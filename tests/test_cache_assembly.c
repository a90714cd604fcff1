/* What the toolchain makes of the cache kernels: NVRTC and ptxas accept them for every bit width, head dimension and
 * number type, with no spill and no stack frame. Skipped where a tool is missing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "foscar.h"

/* Every pair of bits, every head dimension, head numbers that fill a merge block and that do not, every type. */
static const char *const specs[] = {
    "sm_90a-k2t64-v2t64-d64-h9-p64",         "sm_90a-k2t128-v4t128-d128-h8-p64",
    "sm_90a-k4t256-v2t256-d256-h3-p128",     "sm_90a-k4t64-v4t64-d64-h3-p256-f16",
    "sm_90a-k2t128-v2t128-d128-h1-p64-of32", "sm_90a-k2t256-v4t256-d256-h16-p64-f16-obf16",
    "sm_90a-k4t64-v2t64-d64-h2-p128-of16",   "sm_90a-k4t128-v4t128-d128-h7-p256-f16-of32",
};

static void the_cache_kernels_assemble_without_spills(void **state)
{
    (void)state;
    foscar_options options = {.struct_size = sizeof options, .flags = FOSCAR_NO_DISK_CACHE};
    foscar_runtime *runtime;
    foscar_error err;
    assert_int_equal(foscar_open(&options, &runtime, &err), FOSCAR_OK);
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        foscar_image image = {.struct_size = sizeof image};
        foscar_status status = foscar_assemble(runtime, specs[i], FOSCAR_PART_CACHE, &image, &err);
        if (status == FOSCAR_NO_NVRTC || status == FOSCAR_NO_ASSEMBLER) {
            print_message("%s\n", err.message);
            foscar_close(runtime);
            skip();
        }
        if (status != FOSCAR_OK) fail_msg("%s: %s", specs[i], err.message);
        assert_int_equal(image.spill_bytes, 0);
        assert_int_equal(image.stack_bytes, 0);
        assert_true(image.registers <= 128);
        foscar_image_finish(&image);
    }
    foscar_close(runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_cache_kernels_assemble_without_spills)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
