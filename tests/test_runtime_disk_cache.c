/* The disk cache: hits, misses, damage, places that cannot be used, and keys. No failure here may ever be an error. */
#define _XOPEN_SOURCE 700 /* mkdtemp, setenv, nftw */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <elf.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "disk_cache.h"

static char directory[64], problem[DISK_PROBLEM_MAX];

static int make_directory(void **state)
{
    (void)state;
    strcpy(directory, "/tmp/foscar-test-XXXXXX");
    return mkdtemp(directory) != NULL ? 0 : -1;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st, (void)type, (void)where;
    return remove(path);
}

static int remove_directory(void **state)
{
    (void)state;
    (void)chmod(directory, 0700);
    return nftw(directory, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/* The smallest thing that passes for a cubin: an ELF header and one empty section. */
static foscar_image tiny_cubin(void)
{
    static unsigned char bytes[sizeof(Elf64_Ehdr) + sizeof(Elf64_Shdr)];
    Elf64_Ehdr header = {.e_machine = 190, .e_shoff = sizeof header, .e_shnum = 1, .e_shentsize = sizeof(Elf64_Shdr)};
    memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    memcpy(bytes, &header, sizeof header);
    foscar_image image = {.cubin = bytes, .bytes = sizeof bytes, .registers = 168, .spill_bytes = 1, .stack_bytes = 2};
    return image;
}

static disk_key key_of(const char *text)
{
    disk_key key;
    disk_field field = {text, strlen(text)};
    assert_true(disk_key_make(&field, 1, &key));
    return key;
}

/* Path of the only file in the cache. */
static void only_file(char *path, size_t size)
{
    int files = 0;
    DIR *dir = opendir(directory);
    assert_non_null(dir);
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        if (entry->d_name[0] == '.') {
            assert_true(strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0); /* no temporary files */
            continue;
        }
        int n = snprintf(path, size, "%s/%s", directory, entry->d_name);
        assert_true(n > 0 && (size_t)n < size);
        files++;
    }
    closedir(dir);
    assert_int_equal(files, 1);
}

static void what_was_stored_is_loaded(void **state)
{
    (void)state;
    disk_cache cache;
    foscar_image image = tiny_cubin(), back = {0};
    disk_key key = key_of("a"), other = key_of("b");
    disk_cache_choose(&cache, directory);
    assert_false(disk_cache_load(&cache, &key, &back, problem));
    disk_cache_store(&cache, &key, &image, problem);
    assert_true(disk_cache_load(&cache, &key, &back, problem));
    assert_int_equal(back.bytes, image.bytes);
    assert_memory_equal(back.cubin, image.cubin, image.bytes);
    assert_int_equal(back.registers, 168);
    assert_int_equal(back.spill_bytes, 1);
    assert_int_equal(back.stack_bytes, 2);
    free(back.cubin);
    assert_false(disk_cache_load(&cache, &other, &back, problem));
}

static void every_damaged_byte_is_found_and_the_file_removed(void **state)
{
    (void)state;
    disk_cache cache;
    foscar_image image = tiny_cubin(), back = {0};
    disk_key key = key_of("a");
    char path[256];
    disk_cache_choose(&cache, directory);
    for (size_t i = 0; i < DISK_HEADER_BYTES + image.bytes; i++) {
        disk_cache_store(&cache, &key, &image, problem);
        only_file(path, sizeof path);
        FILE *file = fopen(path, "r+");
        assert_non_null(file);
        fseek(file, (long)i, SEEK_SET);
        int byte = fgetc(file);
        fseek(file, (long)i, SEEK_SET);
        fputc(byte ^ 0x10, file);
        fclose(file);
        assert_false(disk_cache_load(&cache, &key, &back, problem));
        assert_int_not_equal(access(path, F_OK), 0);
    }
}

/* A truncated entry must not fail for ever. */
static void a_truncated_file_is_a_miss_once(void **state)
{
    (void)state;
    disk_cache cache;
    foscar_image image = tiny_cubin(), back = {0};
    disk_key key = key_of("a");
    char path[256];
    disk_cache_choose(&cache, directory);
    for (off_t length = 0; length < (off_t)(DISK_HEADER_BYTES + image.bytes); length += 7) {
        disk_cache_store(&cache, &key, &image, problem);
        only_file(path, sizeof path);
        assert_int_equal(truncate(path, length), 0);
        assert_false(disk_cache_load(&cache, &key, &back, problem));
    }
    disk_cache_store(&cache, &key, &image, problem);
    assert_true(disk_cache_load(&cache, &key, &back, problem));
    free(back.cubin);
}

static void an_entry_under_another_key_is_refused(void **state)
{
    (void)state;
    disk_cache cache;
    foscar_image image = tiny_cubin(), back = {0};
    disk_key key = key_of("a"), other = key_of("b");
    char path[256], moved[512];
    disk_cache_choose(&cache, directory);
    disk_cache_store(&cache, &key, &image, problem);
    only_file(path, sizeof path);
    int n = snprintf(moved, sizeof moved, "%s/", directory);
    for (int i = 0; i < DISK_KEY_BYTES; i++) n += snprintf(moved + n, 8, "%02x", (unsigned)other.bytes[i]);
    snprintf(moved + n, 16, ".foscar");
    assert_int_equal(rename(path, moved), 0);
    assert_false(disk_cache_load(&cache, &other, &back, problem));
}

static void a_directory_that_cannot_be_used_is_a_miss(void **state)
{
    (void)state;
    disk_cache cache;
    foscar_image image = tiny_cubin(), back = {0};
    disk_key key = key_of("a");
    char path[128];
    snprintf(path, sizeof path, "%s/file", directory);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    snprintf(path, sizeof path, "%s/file/below", directory); /* cannot be made, not even by root */
    disk_cache_choose(&cache, path);
    disk_cache_store(&cache, &key, &image, problem);
    assert_false(disk_cache_load(&cache, &key, &back, problem));
    assert_false(disk_cache_usable(&cache, problem, sizeof problem));
    disk_cache_choose(&cache, "/proc/nowhere");
    disk_cache_store(&cache, &key, &image, problem);
    assert_false(disk_cache_usable(&cache, problem, sizeof problem));
    assert_true(strlen(problem) > 0);
}

static void a_directory_that_others_can_write_is_refused(void **state)
{
    (void)state;
    disk_cache cache;
    foscar_image image = tiny_cubin(), back = {0};
    disk_key key = key_of("a");
    disk_cache_choose(&cache, directory);
    disk_cache_store(&cache, &key, &image, problem);
    assert_int_equal(chmod(directory, 0777), 0);
    assert_false(disk_cache_load(&cache, &key, &back, problem));
    assert_false(disk_cache_usable(&cache, problem, sizeof problem));
    assert_non_null(strstr(problem, "others can write"));
    assert_int_equal(chmod(directory, 0700), 0);
    assert_true(disk_cache_load(&cache, &key, &back, problem));
    free(back.cubin);
}

static void a_new_directory_is_private(void **state)
{
    (void)state;
    disk_cache cache;
    struct stat st;
    char path[128];
    snprintf(path, sizeof path, "%s/a/b/c", directory);
    disk_cache_choose(&cache, path);
    assert_true(disk_cache_usable(&cache, problem, sizeof problem));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
}

static void the_directory_is_chosen_in_order(void **state)
{
    (void)state;
    disk_cache cache;
    char *home = getenv("HOME") != NULL ? strdup(getenv("HOME")) : NULL;
    assert_int_equal(unsetenv("FOSCAR_CACHE_DIR"), 0);
    assert_int_equal(unsetenv("XDG_CACHE_HOME"), 0);
    assert_int_equal(setenv("HOME", "/h", 1), 0);
    disk_cache_choose(&cache, NULL);
    assert_string_equal(cache.directory, "/h/.cache/foscar");
    assert_int_equal(setenv("XDG_CACHE_HOME", "/x", 1), 0);
    disk_cache_choose(&cache, NULL);
    assert_string_equal(cache.directory, "/x/foscar");
    assert_int_equal(setenv("FOSCAR_CACHE_DIR", "/f", 1), 0);
    disk_cache_choose(&cache, NULL);
    assert_string_equal(cache.directory, "/f");
    disk_cache_choose(&cache, "/named");
    assert_string_equal(cache.directory, "/named");
    assert_int_equal(unsetenv("FOSCAR_CACHE_DIR"), 0);
    assert_int_equal(unsetenv("XDG_CACHE_HOME"), 0);
    assert_int_equal(unsetenv("HOME"), 0);
    disk_cache_choose(&cache, NULL);
    assert_string_equal(cache.directory, "");
    assert_true(strlen(cache.problem) > 0);
    if (home != NULL) assert_int_equal(setenv("HOME", home, 1), 0);
    free(home);
}

static void fields_of_a_key_do_not_run_together(void **state)
{
    (void)state;
    disk_key one, two, three;
    const disk_field ab_c[] = {{"ab", 2}, {"c", 1}}, a_bc[] = {{"a", 1}, {"bc", 2}}, abc[] = {{"abc", 3}};
    assert_true(disk_key_make(ab_c, 2, &one) && disk_key_make(a_bc, 2, &two) && disk_key_make(abc, 1, &three));
    assert_memory_not_equal(&one, &two, sizeof one);
    assert_memory_not_equal(&one, &three, sizeof one);
    assert_memory_not_equal(&two, &three, sizeof one);
}

/* Publish races on a shared directory: whoever reads sees a whole file or none. */
static void processes_that_race_for_an_entry_all_see_whole_files(void **state)
{
    (void)state;
    enum { PROCESSES = 6, ROUNDS = 60 };
    disk_cache cache;
    foscar_image image = tiny_cubin();
    disk_key key = key_of("race");
    disk_cache_choose(&cache, directory);
    for (int p = 0; p < PROCESSES; p++)
        if (fork() == 0) {
            int bad = 0;
            for (int round = 0; round < ROUNDS; round++) {
                foscar_image back = {0};
                disk_cache_store(&cache, &key, &image, problem);
                if (!disk_cache_load(&cache, &key, &back, problem) || memcmp(back.cubin, image.cubin, image.bytes) != 0) bad = 1;
                free(back.cubin);
            }
            _exit(bad);
        }
    for (int p = 0; p < PROCESSES; p++) {
        int status = 0;
        assert_true(wait(&status) > 0);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    char path[256];
    only_file(path, sizeof path);
}

/* ---- Through the assembler ---- */

static const char good_ptx[] = ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{\nret;\n}\n";

static int assemble_in(const char *cache_directory, const char *ptx, uint32_t flags)
{
    foscar_runtime *runtime = NULL;
    foscar_image image = {.struct_size = sizeof image};
    foscar_options options = {.struct_size = sizeof options, .flags = flags, .cache_directory = cache_directory};
    assert_int_equal(foscar_open(&options, &runtime, NULL), FOSCAR_OK);
    foscar_status status = foscar_assemble_ptx(runtime, ptx, strlen(ptx), "sm_90a", &image, NULL);
    int hit = status == FOSCAR_OK ? image.from_cache : -1;
    foscar_image_finish(&image);
    foscar_close(runtime);
    return hit;
}

static void a_text_is_assembled_once(void **state)
{
    (void)state;
    char other[sizeof good_ptx + 16];
    snprintf(other, sizeof other, "%s// x\n", good_ptx);
    int first = assemble_in(directory, good_ptx, 0);
    if (first < 0) skip(); /* no ptxas */
    assert_int_equal(first, 0);
    assert_int_equal(assemble_in(directory, good_ptx, 0), 1);
    assert_int_equal(assemble_in(directory, other, 0), 0);
    assert_int_equal(assemble_in(directory, good_ptx, FOSCAR_NO_DISK_CACHE), 0);
    assert_int_equal(assemble_in("/proc/nowhere", good_ptx, 0), 0);
    assert_int_equal(assemble_in("/proc/nowhere", good_ptx, 0), 0);
}

int main(void)
{
#define IN_A_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, make_directory, remove_directory)
    const struct CMUnitTest tests[] = {
        IN_A_DIRECTORY(what_was_stored_is_loaded),
        IN_A_DIRECTORY(every_damaged_byte_is_found_and_the_file_removed),
        IN_A_DIRECTORY(a_truncated_file_is_a_miss_once),
        IN_A_DIRECTORY(an_entry_under_another_key_is_refused),
        IN_A_DIRECTORY(a_directory_that_cannot_be_used_is_a_miss),
        IN_A_DIRECTORY(a_directory_that_others_can_write_is_refused),
        IN_A_DIRECTORY(a_new_directory_is_private),
        cmocka_unit_test(the_directory_is_chosen_in_order),
        cmocka_unit_test(fields_of_a_key_do_not_run_together),
        IN_A_DIRECTORY(processes_that_race_for_an_entry_all_see_whole_files),
        IN_A_DIRECTORY(a_text_is_assembled_once),
    };
    return cmocka_run_group_tests_name("runtime_disk_cache", tests, NULL, NULL);
}
