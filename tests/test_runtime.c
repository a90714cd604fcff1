/* The public interface without a GPU: statuses, specs, versioned structs, and what is said where there is no driver. */
#define _POSIX_C_SOURCE 200809L /* setenv, fork */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"
#include "foscar.h"
#include "status.h"
#include "toolkit.h"

static const char spec[] = "sm_90a-k2t128-v2t128-d128-h8-p64";

static void every_status_has_a_name_and_a_meaning(void **state)
{
    (void)state;
    assert_string_equal(foscar_status_name(FOSCAR_OK), "OK");
    assert_string_equal(foscar_status_name(FOSCAR_WORKSPACE_TOO_SMALL), "WORKSPACE_TOO_SMALL");
    assert_string_equal(foscar_status_name((foscar_status)999), "UNKNOWN");
    for (int i = 0; i < FOSCAR_STATUS_COUNT; i++) {
        assert_string_not_equal(foscar_status_name((foscar_status)i), "UNKNOWN");
        assert_true(strlen(foscar_status_meaning((foscar_status)i)) > 0);
    }
}

static void an_error_is_one_line(void **state)
{
    (void)state;
    foscar_error err;
    char text[1000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    assert_int_equal(status_fail(&err, FOSCAR_IO, "a\nb\tc"), FOSCAR_IO);
    assert_string_equal(err.message, "a b c");
    assert_int_equal(err.status, FOSCAR_IO);
    assert_int_equal(status_fail(&err, FOSCAR_IO, "%s", text), FOSCAR_IO);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    assert_int_equal(status_fail(NULL, FOSCAR_IO, "nobody listens"), FOSCAR_IO);
}

static void a_spec_is_checked_and_made_canonical(void **state)
{
    (void)state;
    char canonical[FOSCAR_SPEC_MAX];
    foscar_error err = {0};
    assert_int_equal(foscar_spec_check("sm_90a-k2t128-v2t128-d128-h8-p64-bf16-obf16", canonical, &err), FOSCAR_OK);
    assert_string_equal(canonical, spec);
    assert_int_equal(foscar_spec_check(spec, NULL, NULL), FOSCAR_OK);
    assert_int_equal(foscar_spec_check("sm_90a-k3t128-v2t128-d128-h8-p64", canonical, &err), FOSCAR_INVALID_SPEC);
    assert_non_null(strstr(err.message, "3"));
    assert_int_equal(foscar_spec_check("", NULL, &err), FOSCAR_INVALID_SPEC);
    assert_int_equal(foscar_spec_check(NULL, NULL, &err), FOSCAR_INVALID_SPEC);
}

static void page_bytes_are_codes_and_metadata(void **state)
{
    (void)state;
    uint64_t bytes = 0;
    /* 64 tokens: 2 x 128 channels x 2 bits, and 2 x 4 bytes of metadata, each token */
    assert_int_equal(foscar_page_bytes(spec, &bytes, NULL), FOSCAR_OK);
    assert_int_equal(bytes, 64 * (2 * 32 + 2 * 4));
    assert_int_equal(foscar_page_bytes("sm_90a-k4t64-v2t64-d64-h1-p128", &bytes, NULL), FOSCAR_OK);
    assert_int_equal(bytes, 128 * (32 + 16 + 2 * 4));
    assert_int_equal(foscar_page_bytes(spec, NULL, NULL), FOSCAR_INVALID_ARGUMENT);
    assert_int_equal(foscar_page_bytes("nonsense", &bytes, NULL), FOSCAR_INVALID_SPEC);
}

static void workspace_grows_with_blocks(void **state)
{
    (void)state;
    uint64_t one = 0, many = 0;
    assert_int_equal(foscar_workspace_bytes(spec, 1, &one, NULL), FOSCAR_OK);
    assert_int_equal(foscar_workspace_bytes(spec, 132, &many, NULL), FOSCAR_OK);
    assert_true(one > 0 && many > one);
    assert_int_equal(foscar_workspace_bytes(spec, 0, &one, NULL), FOSCAR_INVALID_ARGUMENT);
    assert_int_equal(foscar_workspace_bytes(spec, 1, NULL, NULL), FOSCAR_INVALID_ARGUMENT);
}

static void a_spec_is_described(void **state)
{
    (void)state;
    foscar_spec_info info = {.struct_size = sizeof info};
    assert_int_equal(foscar_spec_describe("sm_90a-k2t256-v4t256-d256-h12-p128-f16-of32", &info, NULL), FOSCAR_OK);
    assert_string_equal(info.target, "sm_90a");
    assert_int_equal(info.compute_capability, 90);
    assert_int_equal(info.k_bits, 2);
    assert_int_equal(info.v_bits, 4);
    assert_int_equal(info.head_dim, 256);
    assert_int_equal(info.heads, 12);
    assert_int_equal(info.page_tokens, 128);
    assert_int_equal(info.q_type, FOSCAR_F16);
    assert_int_equal(info.o_type, FOSCAR_F32);
    assert_int_equal(info.page_bytes, info.v_metadata + 128 * 4);
    info.struct_size = 4;
    assert_int_equal(foscar_spec_describe(spec, &info, NULL), FOSCAR_INVALID_ARGUMENT);
}

typedef struct small {
    uint32_t struct_size;
    int32_t first;
} small;

typedef struct grown {
    uint32_t struct_size;
    int32_t first, second, third;
} grown;

static void structs_of_other_versions_are_read(void **state)
{
    (void)state;
    foscar_error err;
    small old = {.struct_size = sizeof old, .first = 7};
    grown ours, newer = {.struct_size = sizeof newer, .first = 8};
    memset(&ours, 0xff, sizeof ours);
    assert_int_equal(struct_import("s", &ours, sizeof ours, sizeof old, &old, &err), FOSCAR_OK);
    assert_int_equal(ours.first, 7);
    assert_int_equal(ours.third, 0);
    /* a newer caller may use us as long as it sets nothing that we do not know */
    assert_int_equal(struct_import("s", &old, sizeof old, sizeof old, &newer, &err), FOSCAR_OK);
    assert_int_equal(old.first, 8);
    newer.third = 1;
    assert_int_equal(struct_import("s", &old, sizeof old, sizeof old, &newer, &err), FOSCAR_INVALID_ARGUMENT);
    newer.struct_size = 0;
    assert_int_equal(struct_import("s", &ours, sizeof ours, sizeof old, &newer, &err), FOSCAR_INVALID_ARGUMENT);
    assert_int_equal(struct_import("s", &ours, sizeof ours, sizeof old, NULL, &err), FOSCAR_INVALID_ARGUMENT);
}

static void structs_of_other_versions_are_written(void **state)
{
    (void)state;
    grown ours = {.first = 1, .second = 2, .third = 3};
    small old[2] = {{.struct_size = sizeof old[0]}, {.struct_size = 77, .first = 77}};
    assert_int_equal(struct_export("s", old, &ours, sizeof ours, sizeof *old, NULL), FOSCAR_OK);
    assert_int_equal(old[0].struct_size, sizeof old[0]);
    assert_int_equal(old[0].first, 1);
    assert_int_equal(old[1].first, 77);
    assert_int_equal(struct_export("s", NULL, &ours, sizeof ours, sizeof *old, NULL), FOSCAR_INVALID_ARGUMENT);
}

static void opening_refuses_bad_options(void **state)
{
    (void)state;
    foscar_error err;
    foscar_runtime *runtime;
    foscar_options options = {.struct_size = sizeof options, .flags = 1u << 30};
    assert_int_equal(foscar_open(&options, &runtime, &err), FOSCAR_INVALID_ARGUMENT);
    assert_null(runtime);
    options = (foscar_options){0};
    assert_int_equal(foscar_open(&options, &runtime, &err), FOSCAR_INVALID_ARGUMENT);
    assert_int_equal(foscar_open(NULL, NULL, &err), FOSCAR_INVALID_ARGUMENT);
    foscar_close(NULL);
}

static bool driver_here(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle != NULL) dlclose(handle);
    return handle != NULL;
}

/* A program that never touches a GPU runs without a driver; one that does is told. */
static void without_a_driver_the_calls_that_need_one_say_so(void **state)
{
    foscar_runtime *runtime;
    foscar_kernel *kernel = (foscar_kernel *)state;
    foscar_device_info info = {.struct_size = sizeof info};
    foscar_error err;
    void *memory;
    if (driver_here()) skip();
    assert_int_equal(foscar_open(NULL, &runtime, &err), FOSCAR_OK);
    assert_int_equal(foscar_can_run(runtime, spec, 0, &err), FOSCAR_NO_DRIVER);
    assert_non_null(strstr(err.message, "libcuda.so.1"));
    assert_int_equal(foscar_can_run(runtime, "bad", 0, &err), FOSCAR_INVALID_SPEC);
    assert_int_equal(foscar_prepare(runtime, spec, &kernel, &err), FOSCAR_NO_DRIVER);
    assert_null(kernel);
    assert_int_equal(foscar_device_describe(runtime, 0, &info, &err), FOSCAR_NO_DRIVER);
    assert_int_equal(toolkit_allocate(runtime, 16, &memory, &err), FOSCAR_NO_DRIVER);
    assert_null(memory);
    foscar_close(runtime);
}

static void the_environment_is_described(void **state)
{
    (void)state;
    foscar_runtime *runtime;
    foscar_environment env = {.struct_size = sizeof env};
    foscar_options options = {.struct_size = sizeof options, .ptxas = "/nowhere/ptxas", .nvrtc = "/nowhere/libnvrtc.so",
                              .flags = FOSCAR_NO_DISK_CACHE};
    assert_int_equal(foscar_open(&options, &runtime, NULL), FOSCAR_OK);
    assert_int_equal(foscar_describe(runtime, &env, NULL), FOSCAR_OK);
    assert_string_equal(env.ptxas, "");
    assert_non_null(strstr(env.ptxas_problem, "/nowhere/ptxas"));
    assert_non_null(strstr(env.nvrtc_problem, "/nowhere/libnvrtc.so"));
    assert_non_null(strstr(env.cache_problem, "switched off"));
    if (!driver_here()) assert_non_null(strstr(env.driver_problem, "libcuda.so.1"));
    assert_int_equal(foscar_describe(runtime, NULL, NULL), FOSCAR_INVALID_ARGUMENT);
    assert_int_equal(foscar_describe(NULL, &env, NULL), FOSCAR_INVALID_ARGUMENT);
    foscar_close(runtime);
}

static void launching_without_a_kernel_is_refused(void **state)
{
    (void)state;
    foscar_error err;
    foscar_kernel_info info = {.struct_size = sizeof info};
    foscar_append_args append = {.struct_size = sizeof append};
    assert_int_equal(foscar_decode(NULL, NULL, NULL, &err), FOSCAR_NOT_PREPARED);
    assert_non_null(strstr(err.message, "foscar_prepare"));
    assert_int_equal(foscar_append(NULL, NULL, NULL, &err), FOSCAR_NOT_PREPARED);
    assert_int_equal(foscar_dequantise(NULL, NULL, NULL, &err), FOSCAR_NOT_PREPARED);
    assert_int_equal(foscar_check(NULL, NULL, NULL, &err), FOSCAR_NOT_PREPARED);
    assert_int_equal(foscar_check_append(NULL, &append, NULL, &err), FOSCAR_NOT_PREPARED);
    assert_int_equal(foscar_check_append(NULL, NULL, NULL, &err), FOSCAR_INVALID_ARGUMENT);
    assert_int_equal(foscar_kernel_describe(NULL, &info, &err), FOSCAR_NOT_PREPARED);
}

static void a_child_of_fork_is_refused(void **state)
{
    (void)state;
    foscar_runtime *runtime;
    int status = 0;
    assert_int_equal(foscar_open(NULL, &runtime, NULL), FOSCAR_OK);
    pid_t child = fork();
    if (child == 0) {
        foscar_kernel *kernel;
        foscar_environment env = {.struct_size = sizeof env};
        bool refused = foscar_prepare(runtime, spec, &kernel, NULL) == FOSCAR_FORKED &&
                       foscar_describe(runtime, &env, NULL) == FOSCAR_FORKED;
        foscar_close(runtime);
        _exit(refused ? 0 : 1);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    foscar_close(runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_a_name_and_a_meaning),
        cmocka_unit_test(an_error_is_one_line),
        cmocka_unit_test(a_spec_is_checked_and_made_canonical),
        cmocka_unit_test(page_bytes_are_codes_and_metadata),
        cmocka_unit_test(workspace_grows_with_blocks),
        cmocka_unit_test(a_spec_is_described),
        cmocka_unit_test(structs_of_other_versions_are_read),
        cmocka_unit_test(structs_of_other_versions_are_written),
        cmocka_unit_test(opening_refuses_bad_options),
        cmocka_unit_test(without_a_driver_the_calls_that_need_one_say_so),
        cmocka_unit_test(the_environment_is_described),
        cmocka_unit_test(launching_without_a_kernel_is_refused),
        cmocka_unit_test(a_child_of_fork_is_refused),
    };
    return cmocka_run_group_tests_name("runtime", tests, NULL, NULL);
}
