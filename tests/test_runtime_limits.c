/* The host's limits and the host's surprises: a ptxas that hangs, files that cannot grow, FIFOs where files should be, no descriptor left. The
 * calling process lives, learns the true reason, and finds nothing left behind. */
#define _DEFAULT_SOURCE 1 /* mkdtemp, usleep */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "assembler.h"
#include "disk_cache.h"
#include "file.h"
#include "foscar.h"
#include "nvrtc.h"
#include "process.h"

static const char good_ptx[] = ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{\nret;\n}\n";
static const char any_ptx[] = "ptxas is a script here";

static char directory[64], script[96], cache_folder[96], pid_file[96];

static int make_directory(void **state)
{
    (void)state;
    strcpy(directory, "/tmp/foscar-test-XXXXXX");
    if (mkdtemp(directory) == NULL) return -1;
    snprintf(script, sizeof script, "%s/ptxas", directory);
    snprintf(cache_folder, sizeof cache_folder, "%s/cache", directory);
    snprintf(pid_file, sizeof pid_file, "%s/pid", directory);
    return 0;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st, (void)type, (void)where;
    return remove(path);
}

static int remove_directory(void **state)
{
    (void)state;
    return nftw(directory, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static void write_script(const char *version, const char *body)
{
    FILE *file = fopen(script, "w");
    assert_non_null(file);
    fprintf(file, "#!/bin/sh\nif [ \"$1\" = --version ]; then %s; exit 0; fi\n%s\n", version, body);
    fclose(file);
    assert_int_equal(chmod(script, 0700), 0);
}

static foscar_status assemble(const char *ptxas, const char *ptx, int32_t seconds, foscar_image *image,
                              char cache_problem[256], foscar_error *err)
{
    foscar_runtime *runtime;
    foscar_environment env = {.struct_size = sizeof env};
    foscar_options options = {
        .struct_size = sizeof options, .ptxas = ptxas, .cache_directory = cache_folder, .ptxas_seconds = seconds};
    assert_int_equal(foscar_open(&options, &runtime, err), FOSCAR_OK);
    *image = (foscar_image){.struct_size = sizeof *image};
    foscar_status status = foscar_assemble_ptx(runtime, ptx, strlen(ptx), "sm_90a", image, err);
    assert_int_equal(foscar_describe(runtime, &env, NULL), FOSCAR_OK);
    if (cache_problem != NULL) memcpy(cache_problem, env.cache_problem, sizeof env.cache_problem);
    foscar_image_finish(image);
    foscar_close(runtime);
    return status;
}

/* Entries of a folder, hidden ones too; the name of the last one. */
static int entries(const char *folder, char *name, size_t size)
{
    int count = 0;
    DIR *open_folder = opendir(folder);
    if (open_folder == NULL) return 0;
    for (struct dirent *entry; (entry = readdir(open_folder)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (name != NULL) assert_true(snprintf(name, size, "%s/%s", folder, entry->d_name) < (int)size);
        count++;
    }
    closedir(open_folder);
    return count;
}

/* ---- Time ---- */

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* A process that nobody has reaped yet does not run any more. */
static bool runs(long pid)
{
    char path[64], state = 'Z';
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) return false;
    if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = 'Z';
    fclose(file);
    return state != 'Z' && state != 'X';
}

static void a_ptxas_that_hangs_is_killed_with_all_that_it_started(void **state)
{
    (void)state;
    foscar_error err = {0};
    foscar_image image;
    char body[256];
    long pid = 0;
    snprintf(body, sizeof body, "sleep 600 & echo $! >%s; wait", pid_file);
    write_script("echo Build fake", body);
    double begin = seconds_now();
    assert_int_equal(assemble(script, any_ptx, 1, &image, NULL, &err), FOSCAR_ASSEMBLY_FAILED);
    double took = seconds_now() - begin;
    if (took < 1 || took > 20) fail_msg("it took %.1f s", took);
    assert_non_null(strstr(err.message, script));
    assert_non_null(strstr(err.message, "had not ended after 1 s and was killed"));
    assert_non_null(strstr(err.message, "FOSCAR_PTXAS_SECONDS"));
    assert_null(strchr(err.message, '\n'));
    FILE *file = fopen(pid_file, "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld", &pid), 1);
    fclose(file);
    for (int i = 0; i < 100 && runs(pid); i++) usleep(20000);
    assert_false(runs(pid));
    assert_int_equal(entries(cache_folder, NULL, 0), 0);
}

static void a_ptxas_that_hangs_at_its_version_is_killed_too(void **state)
{
    (void)state;
    foscar_error err = {0};
    foscar_image image;
    write_script("sleep 600", "");
    assert_int_equal(setenv("FOSCAR_PTXAS_SECONDS", "1", 1), 0);
    assert_int_equal(assemble(script, any_ptx, 0, &image, NULL, &err), FOSCAR_ASSEMBLY_FAILED);
    assert_int_equal(unsetenv("FOSCAR_PTXAS_SECONDS"), 0);
    assert_non_null(strstr(err.message, "--version had not ended after 1 s"));
}

/* The kernel may reap the child of a program that ignores SIGCHLD. */
static void a_hanging_child_is_killed_whatever_the_caller_does_with_sigchld(void **state)
{
    (void)state;
    process_result result;
    const char *hang[] = {"/bin/sh", "-c", "sleep 600", NULL}, *end[] = {"/bin/sh", "-c", "echo x", NULL};
    void (*before)(int) = signal(SIGCHLD, SIG_IGN);
    assert_int_equal(process_run(hang, -1, -1, 1, &result, NULL), FOSCAR_OK);
    assert_true(result.timed_out);
    process_result_finish(&result);
    assert_int_equal(process_run(end, -1, -1, 60, &result, NULL), FOSCAR_OK);
    assert_false(result.timed_out);
    assert_string_equal(result.log, "x\n");
    process_result_finish(&result);
    signal(SIGCHLD, before);
}

static void the_time_limit_is_an_option_or_a_variable_and_wrong_ones_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"x", "0", "-1", "1.5", "86401", "99999999999999999999", "5s"};
    foscar_error err;
    foscar_runtime *runtime;
    foscar_options options = {.struct_size = sizeof options, .ptxas_seconds = -1};
    assert_int_equal(foscar_open(&options, &runtime, &err), FOSCAR_INVALID_ARGUMENT);
    options.ptxas_seconds = 86401;
    assert_int_equal(foscar_open(&options, &runtime, &err), FOSCAR_INVALID_ARGUMENT);
    options.struct_size = offsetof(foscar_options, ptxas_seconds); /* of a caller from before there was this member */
    assert_int_equal(foscar_open(&options, &runtime, &err), FOSCAR_OK);
    foscar_close(runtime);
    options.struct_size--;
    assert_int_equal(foscar_open(&options, &runtime, &err), FOSCAR_INVALID_ARGUMENT);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(setenv("FOSCAR_PTXAS_SECONDS", wrong[i], 1), 0);
        assert_int_equal(foscar_open(NULL, &runtime, &err), FOSCAR_INVALID_ARGUMENT);
        assert_non_null(strstr(err.message, "FOSCAR_PTXAS_SECONDS"));
        options = (foscar_options){.struct_size = sizeof options, .ptxas_seconds = 60}; /* stands before the variable */
        assert_int_equal(foscar_open(&options, &runtime, &err), FOSCAR_OK);
        foscar_close(runtime);
    }
    assert_int_equal(unsetenv("FOSCAR_PTXAS_SECONDS"), 0);
}

/* ---- The size of files ---- */

static struct rlimit limit_to(int resource, rlim_t soft)
{
    struct rlimit before, limit;
    assert_int_equal(getrlimit(resource, &before), 0);
    limit = before;
    limit.rlim_cur = soft;
    assert_int_equal(setrlimit(resource, &limit), 0);
    return before;
}

static bool is_pending(void)
{
    sigset_t pending;
    assert_int_equal(sigpending(&pending), 0);
    return sigismember(&pending, SIGXFSZ) == 1;
}

static foscar_image large_image(void)
{
    static unsigned char bytes[65536];
    Elf64_Ehdr header = {.e_machine = 190, .e_shoff = sizeof header, .e_shnum = 1, .e_shentsize = sizeof(Elf64_Shdr)};
    memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    memcpy(bytes, &header, sizeof header);
    return (foscar_image){.cubin = bytes, .bytes = sizeof bytes};
}

static void a_cache_entry_beyond_the_limit_is_not_kept_and_nothing_is_left(void **state)
{
    (void)state;
    disk_cache cache;
    disk_key key;
    disk_field field = {"a", 1};
    char problem[DISK_PROBLEM_MAX];
    foscar_image image = large_image(), back = {0};
    assert_true(disk_key_make(&field, 1, &key));
    disk_cache_choose(&cache, cache_folder);
    for (rlim_t bytes = 0; bytes <= 40000; bytes += 20000) { /* at the header, and within the cubin */
        struct rlimit before = limit_to(RLIMIT_FSIZE, bytes);
        bool kept = disk_cache_store(&cache, &key, &image, problem);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_false(kept);
        assert_non_null(strstr(problem, "ulimit -f"));
        assert_int_equal(entries(cache_folder, NULL, 0), 0);
        assert_false(disk_cache_load(&cache, &key, &back, problem));
        assert_string_equal(problem, "");
    }
    assert_true(disk_cache_store(&cache, &key, &image, problem));
    assert_true(disk_cache_load(&cache, &key, &back, problem));
    free(back.cubin);
}

static void on_signal(int number)
{
    (void)number;
    fail_msg("the handler of the calling program was called");
}

static void the_signals_of_the_caller_are_what_they_were(void **state)
{
    (void)state;
    struct sigaction mine = {.sa_handler = on_signal}, first, after;
    sigset_t xfsz, mask, mask_after;
    static const char data[4096];
    sigemptyset(&xfsz);
    sigaddset(&xfsz, SIGXFSZ);
    assert_int_equal(sigaction(SIGXFSZ, &mine, &first), 0);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &mask), 0);
    int fd = open(pid_file, O_CREAT | O_RDWR, 0600);
    struct rlimit before = limit_to(RLIMIT_FSIZE, 100);
    bool written = file_write_all(fd, data, sizeof data);
    assert_false(written || is_pending());
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &mask_after), 0);
    assert_int_equal(sigismember(&mask_after, SIGXFSZ), sigismember(&mask, SIGXFSZ));
    assert_int_equal(sigaction(SIGXFSZ, NULL, &after), 0);
    assert_ptr_equal(after.sa_handler, on_signal);
    /* one that the caller holds back is not taken away */
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &xfsz, NULL), 0);
    raise(SIGXFSZ);
    written = file_write_all(fd, data, sizeof data);
    assert_true(!written && is_pending());
    const struct timespec now = {0};
    assert_int_equal(sigtimedwait(&xfsz, NULL, &now), SIGXFSZ);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &mask, NULL), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(sigaction(SIGXFSZ, &first, NULL), 0);
    close(fd);
}

/* Memory files count as files, those that ptxas writes too. */
static void assembling_beyond_the_limit_is_an_error_that_says_so(void **state)
{
    (void)state;
    foscar_error err = {0};
    foscar_image image;
    struct rlimit before;
    write_script("echo Build fake", "head -c 100000 /dev/zero >&4");
    assert_int_equal(assemble(script, any_ptx, 20, &image, NULL, &err), FOSCAR_ASSEMBLY_FAILED); /* zeros are no cubin */
    for (rlim_t bytes = 0; bytes <= 20; bytes += 20) { /* less than the version that the script tells, less than the text */
        before = limit_to(RLIMIT_FSIZE, bytes);
        foscar_status text = assemble(script, any_ptx, 20, &image, NULL, &err);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(text, FOSCAR_IO);
        if (strstr(err.message, "ulimit -f") == NULL) fail_msg("it says: %s", err.message);
    }
    write_script("echo Build fake", "exec head -c 100000 /dev/zero >&4");
    before = limit_to(RLIMIT_FSIZE, 4096); /* less than the cubin */
    foscar_status cubin = assemble(script, any_ptx, 20, &image, NULL, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(cubin, FOSCAR_ASSEMBLY_FAILED);
    if (strstr(err.message, "ulimit -f") == NULL) fail_msg("it says: %s", err.message);
}

/* ---- What is no file ---- */

static void what_is_no_file_in_the_place_of_a_cache_entry_is_a_miss_at_once(void **state)
{
    (void)state;
    disk_cache cache;
    disk_key key;
    disk_field field = {"a", 1};
    char problem[DISK_PROBLEM_MAX], path[384];
    foscar_image image = large_image(), back = {0};
    assert_true(disk_key_make(&field, 1, &key));
    disk_cache_choose(&cache, cache_folder);
    alarm(60); /* a test that blocks fails */
    for (int kind = 0; kind < 3; kind++) {
        static const char *const reasons[] = {"a pipe or FIFO", "a symbolic link", "a folder"};
        assert_true(disk_cache_store(&cache, &key, &image, problem));
        assert_int_equal(entries(cache_folder, path, sizeof path), 1);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(kind == 0   ? mkfifo(path, 0600)
                         : kind == 1 ? symlink("/dev/zero", path)
                                     : mkdir(path, 0700),
                         0);
        assert_false(disk_cache_load(&cache, &key, &back, problem));
        if (strstr(problem, reasons[kind]) == NULL) fail_msg("not %s: %s", reasons[kind], problem);
        /* it is replaced, except for a folder */
        assert_int_equal(disk_cache_store(&cache, &key, &image, problem), kind < 2);
        assert_int_equal(entries(cache_folder, path, sizeof path), 1);
        if (kind == 2) assert_non_null(strstr(problem, "Is a directory"));
        if (kind < 2) assert_true(disk_cache_load(&cache, &key, &back, problem));
        free(back.cubin);
        back.cubin = NULL;
    }
    alarm(0);
}

static void why_a_kernel_was_not_kept_is_described(void **state)
{
    (void)state;
    foscar_image image;
    char problem[256], path[384];
    assembler found;
    if (assembler_find(NULL, PROCESS_SECONDS, &found, NULL) != FOSCAR_OK) skip();
    assert_int_equal(assemble(NULL, good_ptx, 0, &image, problem, NULL), FOSCAR_OK);
    assert_string_equal(problem, "");
    assert_int_equal(entries(cache_folder, path, sizeof path), 1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(assemble(NULL, good_ptx, 0, &image, problem, NULL), FOSCAR_OK); /* no failure of the call */
    assert_string_equal(problem, "a kernel could not be kept: Is a directory");
    struct rlimit before = limit_to(RLIMIT_FSIZE, 10);
    foscar_status status = assemble(NULL, good_ptx, 0, &image, problem, NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, FOSCAR_IO);
}

static void a_tool_that_is_no_file_is_refused_at_once_with_the_reason(void **state)
{
    (void)state;
    assembler ptxas;
    nvrtc compiler;
    foscar_error err;
    assert_int_equal(mkfifo(script, 0700), 0);
    alarm(60);
    assert_int_equal(assembler_find(script, 1, &ptxas, &err), FOSCAR_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "it is a pipe or FIFO"));
    assert_int_equal(nvrtc_open(script, &compiler, &err), FOSCAR_NO_NVRTC);
    assert_non_null(strstr(err.message, "it is a pipe or FIFO"));
    assert_int_equal(assembler_find(directory, 1, &ptxas, &err), FOSCAR_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "it is a folder"));
    assert_int_equal(assembler_find("/nowhere/ptxas", 1, &ptxas, &err), FOSCAR_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "No such file or directory"));
    alarm(0);
}

static void a_cache_that_cannot_be_made_says_why(void **state)
{
    (void)state;
    disk_cache cache;
    char problem[DISK_PROBLEM_MAX];
    disk_cache_choose(&cache, "/proc/nowhere/below/it"); /* of the first folder, not that the last one has no parent */
    assert_false(disk_cache_usable(&cache, problem, sizeof problem));
    errno = 0;
    assert_int_not_equal(mkdir("/proc/nowhere", 0700), 0);
    assert_string_equal(problem, strerror(errno));
}

/* ---- Descriptors ---- */

/* In a child, which has the limit to itself: 0 if what is said of it is the limit. */
static int descriptors_told(rlim_t limit, const char *ptxas)
{
    foscar_error err = {0};
    foscar_image image;
    pid_t child = fork();
    if (child == 0) {
        struct rlimit descriptors = {limit, limit};
        for (int fd = 3; fd < 256; fd++) close(fd);
        if (setrlimit(RLIMIT_NOFILE, &descriptors) != 0) _exit(2);
        foscar_status status = assemble(ptxas, any_ptx, 20, &image, NULL, &err);
        _exit(status == FOSCAR_IO && strstr(err.message, "ulimit -n") != NULL ? 0 : 1);
    }
    int result = 0;
    assert_true(child > 0 && waitpid(child, &result, 0) == child && WIFEXITED(result));
    return WEXITSTATUS(result);
}

static void having_no_descriptors_left_is_the_reason_that_is_given(void **state)
{
    (void)state;
    write_script("echo Build fake", "exit 1");
    for (rlim_t limit = 3; limit <= 5; limit++) assert_int_equal(descriptors_told(limit, script), 0);
    assert_int_equal(setenv("PATH", "/nowhere", 1), 0);
    assert_int_equal(descriptors_told(3, NULL), 0); /* rather than that there is no ptxas */
}

/* The log, a text and a cubin, above the child's own: 5, 6 and 7. A shell that reads a script takes 10. */
static void a_dozen_descriptors_are_enough(void **state)
{
    (void)state;
    foscar_error err = {0};
    foscar_image image;
    write_script("echo Build fake", "echo 'error: reached' >&2; exit 1");
    pid_t child = fork();
    if (child == 0) {
        struct rlimit descriptors = {12, 12};
        for (int fd = 3; fd < 256; fd++) close(fd);
        if (setrlimit(RLIMIT_NOFILE, &descriptors) != 0) _exit(2);
        foscar_status status = assemble(script, any_ptx, 20, &image, NULL, &err);
        _exit(status == FOSCAR_ASSEMBLY_FAILED && strstr(err.message, "error: reached") != NULL ? 0 : 1);
    }
    int result = 0;
    assert_true(child > 0 && waitpid(child, &result, 0) == child && WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 0);
}

int main(void)
{
#define IN_A_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, make_directory, remove_directory)
    const struct CMUnitTest tests[] = {
        IN_A_DIRECTORY(a_ptxas_that_hangs_is_killed_with_all_that_it_started),
        IN_A_DIRECTORY(a_ptxas_that_hangs_at_its_version_is_killed_too),
        IN_A_DIRECTORY(a_hanging_child_is_killed_whatever_the_caller_does_with_sigchld),
        IN_A_DIRECTORY(the_time_limit_is_an_option_or_a_variable_and_wrong_ones_are_refused),
        IN_A_DIRECTORY(a_cache_entry_beyond_the_limit_is_not_kept_and_nothing_is_left),
        IN_A_DIRECTORY(the_signals_of_the_caller_are_what_they_were),
        IN_A_DIRECTORY(assembling_beyond_the_limit_is_an_error_that_says_so),
        IN_A_DIRECTORY(what_is_no_file_in_the_place_of_a_cache_entry_is_a_miss_at_once),
        IN_A_DIRECTORY(why_a_kernel_was_not_kept_is_described),
        IN_A_DIRECTORY(a_tool_that_is_no_file_is_refused_at_once_with_the_reason),
        IN_A_DIRECTORY(a_cache_that_cannot_be_made_says_why),
        IN_A_DIRECTORY(having_no_descriptors_left_is_the_reason_that_is_given),
        IN_A_DIRECTORY(a_dozen_descriptors_are_enough),
    };
    signal(SIGXFSZ, SIG_DFL); /* whatever the test's own caller does with it (Python ignores it) */
    return cmocka_run_group_tests_name("runtime_limits", tests, NULL, NULL);
}
