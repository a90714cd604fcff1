/* A calling program may have set any locale: one whose decimal point is a comma changes neither what the interpreter
 * reads, nor what the generator writes, nor what the library says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "decimal.h"
#include "emulator.h"
#include "generate.h"
#include "status.h"

/* A locale of the GNU C library with nothing but numbers, as localedef writes it: a magic number, six offsets, and the
 * decimal point, the thousands separator, the grouping, both again as wide characters, the name of the code set. */
static bool set_comma_locale(void)
{
    static const uint32_t head[] = {0x20031115 ^ LC_NUMERIC, 6, 32, 34, 36, 40, 44, 48}, wide[] = {',', '.'};
    static const char narrow[8] = ",\0.\0\3\3", code_set[] = "UTF-8";
    char folder[] = "/tmp/foscar_locale_XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/comma", folder);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/comma/LC_NUMERIC", folder);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fwrite(head, sizeof head, 1, file);
    fwrite(narrow, sizeof narrow, 1, file);
    fwrite(wide, sizeof wide, 1, file);
    fwrite(code_set, sizeof code_set, 1, file);
    fclose(file);
    setenv("LOCPATH", folder, 1);
    const char *name = setlocale(LC_NUMERIC, "comma");
    unlink(path);
    snprintf(path, sizeof path, "%s/comma", folder);
    rmdir(path);
    rmdir(folder);
    return name != NULL && strtod("1,5", NULL) == 1.5;
}

static void decimal_numbers_have_a_point(void **state)
{
    (void)state;
    double x;
    assert_true(decimal_parse("1.5", &x) && x == 1.5);
    assert_true(decimal_parse("-25e-2", &x) && x == -0.25);
    assert_false(decimal_parse("1,5", &x));
    assert_false(decimal_parse("1.5x", &x));
    assert_false(decimal_parse("", &x));
    assert_true(strtod("1,5", NULL) == 1.5); /* the program's locale is what it was */
}

static void the_interpreter_reads_decimal_constants(void **state)
{
    (void)state;
    static const char text[] = ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .b64 out)\n{\n"
                               ".reg .b64 %l<2>;\n.reg .f32 %f<3>;\nld.param.b64 %l1, [out];\nmov.f32 %f1, 1.5;\n"
                               "add.f32 %f2, %f1, 2.5e-1;\nst.global.f32 [%l1], %f2;\nret;\n}\n";
    emulator_error error;
    emulator_module *module = emulator_module_parse(text, strlen(text), "text", &error);
    if (module == NULL) fail_msg("line %d: %s", error.line, error.message);
    emulator_memory *memory = emulator_memory_create();
    uint64_t out = emulator_memory_allocate(memory, 256);
    void *parameters[] = {&out};
    const emulator_launch_config launch = {.module = module,
                                           .entry = "k",
                                           .grid = {1, 1, 1},
                                           .block = {1, 1, 1},
                                           .parameters = parameters,
                                           .memory = memory};
    float result = 0;
    if (!emulator_launch(&launch, NULL, &error)) fail_msg("line %d: %s", error.line, error.message);
    memcpy(&result, (const void *)(uintptr_t)out, sizeof result);
    assert_true(result == 1.75f);
    emulator_memory_destroy(memory);
    emulator_module_destroy(module);
}

static void the_generator_writes_the_same_bytes_and_the_interpreter_reads_them(void **state)
{
    (void)state;
    for (int i = 0; i < registry_size(); i += 37) {
        config cfg;
        kernel_text comma = {0}, point = {0};
        emulator_error error;
        registry_config(i, &cfg);
        assert_true(generate_decode(&cfg, &comma, NULL));
        emulator_module *module = emulator_module_parse(comma.ptx, comma.length, "kernel", &error);
        if (module == NULL) fail_msg("line %d: %s", error.line, error.message);
        emulator_module_destroy(module);
        locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0), before = uselocale(c);
        assert_true(generate_decode(&cfg, &point, NULL));
        uselocale(before);
        freelocale(c);
        assert_string_equal(comma.ptx, point.ptx);
        kernel_text_finish(&comma);
        kernel_text_finish(&point);
    }
}

static void messages_of_the_library_have_a_point(void **state)
{
    (void)state;
    foscar_error err;
    status_fail(&err, FOSCAR_INVALID_ARGUMENT, "scale is %g", -0.5);
    assert_string_equal(err.message, "scale is -0.5");
}

int main(void)
{
#ifdef __GLIBC__
    enum { NO_LOCALE = 1 };
#else
    enum { NO_LOCALE = 77 }; /* skipped: its files have another form */
#endif
    if (!set_comma_locale()) return NO_LOCALE;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decimal_numbers_have_a_point),
        cmocka_unit_test(the_interpreter_reads_decimal_constants),
        cmocka_unit_test(the_generator_writes_the_same_bytes_and_the_interpreter_reads_them),
        cmocka_unit_test(messages_of_the_library_have_a_point),
    };
    return cmocka_run_group_tests_name("locale", tests, NULL, NULL);
}
