/* Our declarations of the CUDA driver and of NVRTC against the vendor's headers, where those are installed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#if defined(__has_include)
#if __has_include(<cuda.h>)
#define HAVE_CUDA_H 1
#include <cuda.h>
#elif __has_include("/usr/local/cuda/include/cuda.h")
#define HAVE_CUDA_H 1
#include "/usr/local/cuda/include/cuda.h"
#endif
#endif

#include "driver.h"

#ifdef HAVE_CUDA_H


#define SAME_TYPE(ours, theirs) __builtin_types_compatible_p(__typeof__(ours), __typeof__(theirs))

static void calls_have_the_parameters_of_cuda_h(void **state)
{
    (void)state;
    driver d;
#define DRIVER_CALL(presence, symbol, parameters) assert_true(SAME_TYPE(d.symbol, &symbol));
#include "driver.def"
}

static void constants_have_the_values_of_cuda_h(void **state)
{
    (void)state;
#define DRIVER_CONSTANT(name, value) assert_int_equal(DRIVER_##name, (int)name);
#include "driver.def"
}

static void results_of_the_emulated_driver_have_the_numbers_of_cuda_h(void **state)
{
    (void)state;
#define RESULT(name, number, text) assert_int_equal(number, (int)name);
#include "../tools/emulator/emulated_results.def"
#undef RESULT
}

static void the_launch_structs_have_the_layout_of_cuda_h(void **state)
{
    (void)state;
#define SAME_OFFSET(ours, theirs) assert_int_equal(offsetof(driver_launch_config, ours), offsetof(CUlaunchConfig, theirs))
    assert_int_equal(sizeof(driver_launch_config), sizeof(CUlaunchConfig));
    SAME_OFFSET(grid, gridDimX);
    SAME_OFFSET(block, blockDimX);
    SAME_OFFSET(shared_bytes, sharedMemBytes);
    SAME_OFFSET(stream, hStream);
    SAME_OFFSET(attributes, attrs);
    SAME_OFFSET(attribute_count, numAttrs);
    assert_int_equal(sizeof(driver_launch_attribute), sizeof(CUlaunchAttribute));
    assert_int_equal(offsetof(driver_launch_attribute, id), offsetof(CUlaunchAttribute, id));
    assert_int_equal(offsetof(driver_launch_attribute, value), offsetof(CUlaunchAttribute, value));
}

#else

static void calls_have_the_parameters_of_cuda_h(void **state)
{
    (void)state;
    skip(); /* no cuda.h */
}

static void constants_have_the_values_of_cuda_h(void **state)
{
    (void)state;
    skip();
}

static void results_of_the_emulated_driver_have_the_numbers_of_cuda_h(void **state)
{
    (void)state;
    skip();
}

static void the_launch_structs_have_the_layout_of_cuda_h(void **state)
{
    (void)state;
    skip();
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_have_the_parameters_of_cuda_h),
        cmocka_unit_test(constants_have_the_values_of_cuda_h),
        cmocka_unit_test(results_of_the_emulated_driver_have_the_numbers_of_cuda_h),
        cmocka_unit_test(the_launch_structs_have_the_layout_of_cuda_h),
    };
    return cmocka_run_group_tests_name("runtime_driver", tests, NULL, NULL);
}
