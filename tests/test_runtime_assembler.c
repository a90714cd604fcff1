/* ptxas as a child process: what it makes is believed only when everything about it is right. Real ptxas where it is found, scripts in its place. */
#define _XOPEN_SOURCE 700 /* mkdtemp, setenv */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "assembler.h"
#include "cubin.h"
#include "foscar.h"
#include "nvrtc.h"
#include "file.h"
#include "process.h"

static const char good_ptx[] = ".version 8.0\n.target sm_90a\n.address_size 64\n"
                               ".visible .entry k(.param .u64 p)\n{\n.reg .b64 %rd<3>;\n"
                               "ld.param.u64 %rd1,[p];\nst.global.u64 [%rd1], %rd1;\nret;\n}\n";

/* 64 values alive at once in 24 registers */
static char *spilling_ptx(void)
{
    enum { VALUES = 64, SIZE = 32768 };
    char *text = malloc(SIZE);
    int n = snprintf(text, SIZE,
                     ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 p)\n.maxnreg 24\n{\n"
                     ".reg .b64 %%rd<2>;\n.reg .b32 %%r<%d>;\nld.param.u64 %%rd1,[p];\n",
                     VALUES + 1);
    for (int i = 1; i <= VALUES; i++)
        n += snprintf(text + n, (size_t)(SIZE - n), "ld.volatile.global.u32 %%r%d,[%%rd1+%d];\n", i, 4 * i);
    for (int i = VALUES; i >= 1; i--)
        n += snprintf(text + n, (size_t)(SIZE - n), "st.volatile.global.u32 [%%rd1+%d],%%r%d;\n", 4 * i, i);
    snprintf(text + n, (size_t)(SIZE - n), "ret;\n}\n");
    return text;
}

static foscar_runtime *open_runtime(const char *ptxas)
{
    foscar_runtime *runtime = NULL;
    foscar_options options = {.struct_size = sizeof options, .flags = FOSCAR_NO_DISK_CACHE, .ptxas = ptxas};
    assert_int_equal(foscar_open(&options, &runtime, NULL), FOSCAR_OK);
    return runtime;
}

/* ---- Real ptxas ---- */

static bool ptxas_missing(void)
{
    assembler found;
    return assembler_find(NULL, PROCESS_SECONDS, &found, NULL) != FOSCAR_OK;
}

static void a_good_text_becomes_a_cubin(void **state)
{
    (void)state;
    foscar_error err = {0};
    foscar_image image = {.struct_size = sizeof image};
    if (ptxas_missing()) skip();
    foscar_runtime *runtime = open_runtime(NULL);
    assert_int_equal(foscar_assemble_ptx(runtime, good_ptx, sizeof good_ptx - 1, "sm_90a", &image, &err), FOSCAR_OK);
    assert_null(cubin_problem(image.cubin, image.bytes));
    assert_true(image.registers > 0 && image.spill_bytes == 0 && image.stack_bytes == 0 && image.from_cache == 0);
    foscar_image_finish(&image);
    assert_null(image.cubin);
    foscar_close(runtime);
}

static void the_same_text_becomes_the_same_bytes(void **state)
{
    (void)state;
    foscar_image a = {.struct_size = sizeof a}, b = a;
    if (ptxas_missing()) skip();
    foscar_runtime *runtime = open_runtime(NULL);
    assert_int_equal(foscar_assemble_ptx(runtime, good_ptx, sizeof good_ptx - 1, "sm_90a", &a, NULL), FOSCAR_OK);
    assert_int_equal(foscar_assemble_ptx(runtime, good_ptx, sizeof good_ptx - 1, "sm_90a", &b, NULL), FOSCAR_OK);
    assert_int_equal(a.bytes, b.bytes);
    assert_memory_equal(a.cubin, b.cubin, a.bytes);
    foscar_image_finish(&a);
    foscar_image_finish(&b);
    foscar_close(runtime);
}

static void a_bad_text_is_refused_with_the_line_of_ptxas(void **state)
{
    (void)state;
    static const char bad[] = ".version 8.0\n.target sm_90a\n.address_size 64\nnonsense;\n";
    foscar_error err = {0};
    foscar_image image = {.struct_size = sizeof image};
    if (ptxas_missing()) skip();
    foscar_runtime *runtime = open_runtime(NULL);
    assert_int_equal(foscar_assemble_ptx(runtime, bad, sizeof bad - 1, "sm_90a", &image, &err), FOSCAR_ASSEMBLY_FAILED);
    assert_non_null(strstr(err.message, "line 4"));
    assert_null(image.cubin);
    assert_int_equal(foscar_assemble_ptx(runtime, good_ptx, sizeof good_ptx - 1, "sm_1", &image, &err),
                     FOSCAR_ASSEMBLY_FAILED);
    assert_int_equal(foscar_assemble_ptx(runtime, "", 0, "sm_90a", &image, &err), FOSCAR_INVALID_ARGUMENT);
    assert_int_equal(foscar_assemble_ptx(runtime, good_ptx, 1, NULL, &image, &err), FOSCAR_INVALID_ARGUMENT);
    foscar_close(runtime);
}

static void a_kernel_that_spills_is_refused(void **state)
{
    (void)state;
    foscar_error err = {0};
    foscar_image image = {.struct_size = sizeof image};
    if (ptxas_missing()) skip();
    foscar_runtime *runtime = open_runtime(NULL);
    char *ptx = spilling_ptx();
    assert_int_equal(foscar_assemble_ptx(runtime, ptx, strlen(ptx), "sm_90a", &image, &err), FOSCAR_ASSEMBLY_FAILED);
    assert_non_null(strstr(err.message, "spill stores"));
    free(ptx);
    foscar_close(runtime);
}

/* ---- Scripts in the place of ptxas ---- */

static char directory[] = "/tmp/foscar-test-XXXXXX";
static char script[64];

static int make_directory(void **state)
{
    (void)state;
    if (mkdtemp(directory) == NULL) return -1;
    snprintf(script, sizeof script, "%s/ptxas", directory);
    return 0;
}

static int remove_directory(void **state)
{
    (void)state;
    (void)unlink(script);
    return rmdir(directory);
}

/* A ptxas that answers --version and else does `body`. */
static foscar_runtime *fake_ptxas(const char *body)
{
    FILE *file = fopen(script, "w");
    assert_non_null(file);
    fprintf(file, "#!/bin/sh\nif [ \"$1\" = --version ]; then echo ptxas; echo Build fake; exit 0; fi\n%s\n", body);
    fclose(file);
    assert_int_equal(chmod(script, 0700), 0);
    return open_runtime(script);
}

static foscar_status assemble_with(const char *body, foscar_error *err)
{
    foscar_runtime *runtime = fake_ptxas(body);
    foscar_image image = {.struct_size = sizeof image};
    foscar_status status =
        foscar_assemble_ptx(runtime, good_ptx, sizeof good_ptx - 1, "sm_90a", &image, err);
    assert_null(image.cubin);
    foscar_close(runtime);
    return status;
}

static void a_failing_ptxas_is_an_error(void **state)
{
    (void)state;
    foscar_error err = {0};
    assert_int_equal(assemble_with("echo 'fatal   : Memory' >&2; exit 7", &err), FOSCAR_ASSEMBLY_FAILED);
    assert_non_null(strstr(err.message, "exit status 7"));
    assert_non_null(strstr(err.message, "fatal   : Memory"));
    assert_int_equal(assemble_with("kill -9 $$", &err), FOSCAR_ASSEMBLY_FAILED);
    assert_non_null(strstr(err.message, "signal 9"));
}

/* A failing ptxas leaves what was in its output file before. */
static void success_without_a_cubin_is_an_error(void **state)
{
    (void)state;
    foscar_error err = {0};
    assert_int_equal(assemble_with("exit 0", &err), FOSCAR_ASSEMBLY_FAILED);
    assert_non_null(strstr(err.message, "no cubin"));
    assert_int_equal(assemble_with("head -c 4096 /dev/zero >&4", &err), FOSCAR_ASSEMBLY_FAILED);
    assert_int_equal(assemble_with("cat /bin/sh >&4", &err), FOSCAR_ASSEMBLY_FAILED);
    assert_non_null(strstr(err.message, "another machine"));
}

static void a_quiet_note_about_setmaxnreg_or_wgmma_is_an_error(void **state)
{
    (void)state;
    foscar_error err = {0};
    assert_int_equal(assemble_with("echo 'ptxas info : (C7504) Potential Performance Loss: setmaxnreg ignored' >&2", &err),
                     FOSCAR_ASSEMBLY_FAILED);
    assert_non_null(strstr(err.message, "C7504"));
    assert_int_equal(assemble_with("echo 'ptxas info : (C7510) wgmma serialized' >&2", &err), FOSCAR_ASSEMBLY_FAILED);
}

static void a_named_ptxas_that_is_none_is_never_skipped(void **state)
{
    (void)state;
    assembler found;
    foscar_error err = {0};
    assert_int_equal(assembler_find("/nowhere/ptxas", PROCESS_SECONDS, &found, &err), FOSCAR_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "/nowhere/ptxas"));
    assert_int_equal(assembler_find("/tmp", PROCESS_SECONDS, &found, &err), FOSCAR_INVALID_ARGUMENT);
    assert_int_equal(setenv("FOSCAR_PTXAS", "/nowhere/else", 1), 0);
    assert_int_equal(assembler_find(NULL, PROCESS_SECONDS, &found, &err), FOSCAR_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "FOSCAR_PTXAS"));
    foscar_close(fake_ptxas("exit 0"));
    assert_int_equal(setenv("FOSCAR_PTXAS", script, 1), 0);
    assert_int_equal(assembler_find(NULL, PROCESS_SECONDS, &found, &err), FOSCAR_OK);
    assert_string_equal(found.path, script);
    assert_string_equal(found.build, "Build fake");
    assert_int_equal(unsetenv("FOSCAR_PTXAS"), 0);
}

/* ---- The log alone ---- */

static void usage_is_the_largest_over_the_entries(void **state)
{
    (void)state;
    assembler_usage usage;
    static const char log[] = "ptxas info    : Function properties for a\n"
                              "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
                              "ptxas info    : Used 24 registers, used 0 barriers\n"
                              "ptxas info    : Used 168 registers, used 1 barriers, 400 bytes cmem[0]\n"
                              "ptxas info    : Used 32 registers";
    assert_int_equal(assembler_check_log("ptxas", log, &usage, NULL), FOSCAR_OK);
    assert_int_equal(usage.registers, 168);
    assert_int_equal(usage.spill_bytes, 0);
}

static void notes_are_told_apart_by_their_number(void **state)
{
    (void)state;
    static const struct {
        const char *log;
        foscar_status status;
    } rows[] = {
        {"info : (C7503) x", FOSCAR_OK},
        {"info : (C7504) x", FOSCAR_ASSEMBLY_FAILED},
        {"info : (C7505) x", FOSCAR_OK},
        {"info : (C7506) x", FOSCAR_ASSEMBLY_FAILED},
        {"info : (C7508) x", FOSCAR_ASSEMBLY_FAILED},
        {"info : (C7510) x", FOSCAR_ASSEMBLY_FAILED},
        {"a\nb\ninfo : (C7519) x\nc", FOSCAR_ASSEMBLY_FAILED},
        {"info : (C7520) x", FOSCAR_OK},
        {"info : (C7", FOSCAR_OK},
        {"", FOSCAR_OK},
        {"    8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads", FOSCAR_ASSEMBLY_FAILED},
        {"    0 bytes stack frame, 4 bytes spill stores, 0 bytes spill loads", FOSCAR_ASSEMBLY_FAILED},
        {"    0 bytes stack frame, 0 bytes spill stores, 4 bytes spill loads", FOSCAR_ASSEMBLY_FAILED},
    };
    assembler_usage usage;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(assembler_check_log("ptxas", rows[i].log, &usage, NULL), rows[i].status);
}

/* ---- Cubins ---- */

static void a_cubin_cut_anywhere_is_refused(void **state)
{
    (void)state;
    foscar_image image = {.struct_size = sizeof image};
    if (ptxas_missing()) skip();
    foscar_runtime *runtime = open_runtime(NULL);
    assert_int_equal(foscar_assemble_ptx(runtime, good_ptx, sizeof good_ptx - 1, "sm_90a", &image, NULL), FOSCAR_OK);
    for (size_t bytes = 0; bytes < image.bytes; bytes++) {
        void *exact = malloc(bytes + 1); /* so that a sanitizer sees reads beyond it */
        memcpy(exact, image.cubin, bytes);
        assert_non_null(cubin_problem(exact, bytes));
        free(exact);
    }
    foscar_image_finish(&image);
    foscar_close(runtime);
}

static void a_cubin_with_any_byte_changed_is_read_within_bounds(void **state)
{
    (void)state;
    foscar_image image = {.struct_size = sizeof image};
    if (ptxas_missing()) skip();
    foscar_runtime *runtime = open_runtime(NULL);
    assert_int_equal(foscar_assemble_ptx(runtime, good_ptx, sizeof good_ptx - 1, "sm_90a", &image, NULL), FOSCAR_OK);
    unsigned char *exact = malloc(image.bytes);
    memcpy(exact, image.cubin, image.bytes);
    for (size_t i = 0; i < image.bytes; i++) {
        exact[i] ^= 0xff;
        (void)cubin_problem(exact, image.bytes);
        exact[i] ^= 0xff;
    }
    assert_null(cubin_problem(exact, image.bytes));
    free(exact);
    foscar_image_finish(&image);
    foscar_close(runtime);
}

/* ---- NVRTC ---- */

static void nvrtc_makes_ptx_and_says_what_it_refuses(void **state)
{
    (void)state;
    nvrtc compiler;
    foscar_error err = {0};
    char *ptx;
    size_t length;
    const char *options[] = {"--gpu-architecture=compute_90a", "-DVALUE=7"};
    assert_int_equal(nvrtc_open("/nowhere/libnvrtc.so", &compiler, &err), FOSCAR_NO_NVRTC);
    assert_non_null(strstr(err.message, "/nowhere/libnvrtc.so"));
    if (nvrtc_open(NULL, &compiler, &err) != FOSCAR_OK) skip();
    assert_true(compiler.version >= 12000 && compiler.path[0] != '\0');
    assert_int_equal(nvrtc_compile(&compiler, "a.cu", "extern \"C\" __global__ void k(int *p) { *p = VALUE; }", options, 2,
                                   &ptx, &length, &err),
                     FOSCAR_OK);
    assert_non_null(strstr(ptx, ".target sm_90a"));
    assert_int_equal(strlen(ptx), length);
    free(ptx);
    assert_int_equal(nvrtc_compile(&compiler, "b.cu", "nonsense", options, 2, &ptx, &length, &err), FOSCAR_ASSEMBLY_FAILED);
    assert_null(ptx);
    assert_non_null(strstr(err.message, "b.cu"));
}

/* ---- Child processes ---- */

static void a_child_reads_and_writes_memory_files(void **state)
{
    (void)state;
    process_result result;
    size_t length = 0;
    const char *argv[] = {"/bin/sh", "-c", "cat <&3 >&4; echo to the log; exit 3", NULL};
    int input = process_memory_file("in", "abc", 3), output = process_memory_file("out", "", 0);
    assert_int_equal(process_run(argv, input, output, 20, &result, NULL), FOSCAR_OK);
    assert_int_equal(result.exit_status, 3);
    assert_string_equal(result.log, "to the log\n");
    char *text = file_read_all(output, 100, &length);
    assert_int_equal(length, 3);
    assert_string_equal(text, "abc");
    assert_null(file_read_all(output, 2, &length));
    free(text);
    process_result_finish(&result);
    close(input);
    close(output);
}

static void a_child_that_cannot_start_is_an_error(void **state)
{
    (void)state;
    process_result result;
    foscar_error err = {0};
    const char *argv[] = {"/nowhere/program", NULL};
    foscar_status status = process_run(argv, -1, -1, 20, &result, &err);
    assert_int_equal(status, FOSCAR_IO);
    assert_non_null(strstr(err.message, "/nowhere/program"));
    process_result_finish(&result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_text_becomes_a_cubin),
        cmocka_unit_test(the_same_text_becomes_the_same_bytes),
        cmocka_unit_test(a_bad_text_is_refused_with_the_line_of_ptxas),
        cmocka_unit_test(a_kernel_that_spills_is_refused),
        cmocka_unit_test(a_failing_ptxas_is_an_error),
        cmocka_unit_test(success_without_a_cubin_is_an_error),
        cmocka_unit_test(a_quiet_note_about_setmaxnreg_or_wgmma_is_an_error),
        cmocka_unit_test(a_named_ptxas_that_is_none_is_never_skipped),
        cmocka_unit_test(usage_is_the_largest_over_the_entries),
        cmocka_unit_test(notes_are_told_apart_by_their_number),
        cmocka_unit_test(a_cubin_cut_anywhere_is_refused),
        cmocka_unit_test(a_cubin_with_any_byte_changed_is_read_within_bounds),
        cmocka_unit_test(nvrtc_makes_ptx_and_says_what_it_refuses),
        cmocka_unit_test(a_child_reads_and_writes_memory_files),
        cmocka_unit_test(a_child_that_cannot_start_is_an_error),
    };
    return cmocka_run_group_tests_name("runtime_assembler", tests, make_directory, remove_directory);
}
