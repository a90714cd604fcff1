/* Finds ptxas and runs it.
 *
 * Why a child process, and not nvJitLink or cuLink: both compile as relocatable code (`ptxas -c`), which silently drops setmaxnreg and
 * .maxnreg (note C7504): a warp-specialised kernel then runs with 30 registers a consumer thread instead of 128 or more. The driver's own
 * compiler through cuLibraryLoadData (prepare.c) does not, and is the last resort.
 *
 * Why exit status and ELF magic and bounds: a failing ptxas leaves an older output file in place, a killed one leaves half of a new one. */
#include "assembler.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cubin.h"
#include "file.h"
#include "process.h"

enum { CUBIN_LIMIT = 64 << 20 }; /* bytes */

static foscar_status find_path(const char *path, char found[SEARCH_PATH_MAX], foscar_error *err)
{
    static const search_place places[] = {
        {"CUDA_HOME", "/bin/ptxas"},
        {"CUDA_PATH", "/bin/ptxas"},
        {"PATH", "/ptxas"},
        {NULL, "/usr/local/cuda/bin/ptxas"},
    };
    static const char *const wheels[] = {
        "nvidia/cu13/bin/ptxas",
        "nvidia/cuda_nvcc/bin/ptxas",
        "triton/backends/nvidia/bin/ptxas",
    };
    const char *variable = getenv("FOSCAR_PTXAS");
    const char *named = path != NULL ? path : variable != NULL && *variable != '\0' ? variable : NULL;
    if (named != NULL) {
        char problem[SEARCH_PROBLEM_MAX];
        if (search_accept_executable(found, named)) return FOSCAR_OK;
        search_describe_refused(named, problem);
        return status_fail(err, FOSCAR_INVALID_ARGUMENT, "%s (%s) is no executable file: %s", named,
                           path != NULL ? "the ptxas of the options" : "FOSCAR_PTXAS", problem);
    }
    if (search_places(places, sizeof places / sizeof *places, search_accept_executable, found)) return FOSCAR_OK;
    if (search_wheels(wheels, sizeof wheels / sizeof *wheels, search_accept_executable, found)) return FOSCAR_OK;
    char problem[128];
    if (file_none_left(problem, sizeof problem))
        return status_fail(err, FOSCAR_IO, "ptxas cannot be looked for: %s", problem);
    return status_fail(err, FOSCAR_NO_ASSEMBLER,
                       "ptxas was not found; set FOSCAR_PTXAS or CUDA_HOME, or run: pip install nvidia-cuda-nvcc");
}

/* Copies the last line of text that is not empty. */
static void last_line(const char *text, char *line, size_t size)
{
    size_t end = strlen(text), begin;
    while (end > 0 && (text[end - 1] == '\n' || text[end - 1] == '\r')) end--;
    begin = end;
    while (begin > 0 && text[begin - 1] != '\n') begin--;
    snprintf(line, size, "%.*s", (int)(end - begin), text + begin);
}

static foscar_status fail_slow(const assembler *a, const char *what, foscar_error *err)
{
    return status_fail(err, FOSCAR_ASSEMBLY_FAILED,
                       "%s %s had not ended after %d s and was killed; if it is only slow, set FOSCAR_PTXAS_SECONDS to more, "
                       "else FOSCAR_PTXAS to another ptxas",
                       a->path, what, a->seconds);
}

foscar_status assembler_find(const char *path, int seconds, assembler *out, foscar_error *err)
{
    process_result result;
    memset(out, 0, sizeof *out);
    out->seconds = seconds;
    foscar_status status = find_path(path, out->path, err);
    if (status != FOSCAR_OK) return status;
    const char *argv[] = {out->path, "--version", NULL};
    status = process_run(argv, -1, -1, seconds, &result, err);
    if (status != FOSCAR_OK) return status;
    if (!result.timed_out) last_line(result.log, out->build, sizeof out->build);
    if (result.timed_out)
        status = fail_slow(out, "--version", err);
    else if (result.signal == SIGXFSZ) /* messages are written to a memory file */
        status = status_fail(err, FOSCAR_IO, "%s --version cannot write its messages: %s", out->path, file_reason(EFBIG));
    else if (result.exit_status > 0 || result.signal != 0 || out->build[0] == '\0')
        status = status_fail(err, FOSCAR_IO, "%s --version fails (exit status %d, signal %d)", out->path,
                             result.exit_status, result.signal);
    process_result_finish(&result);
    return status;
}

static foscar_status check_result(const assembler *a, const process_result *result, assembler_usage *usage,
                                  foscar_error *err)
{
    char line[384];
    if (result->timed_out) return fail_slow(a, "on a text", err);
    if (result->signal == SIGXFSZ)
        return status_fail(err, FOSCAR_ASSEMBLY_FAILED, "%s cannot write its output: %s", a->path, file_reason(EFBIG));
    if (result->signal != 0)
        return status_fail(err, FOSCAR_ASSEMBLY_FAILED, "%s was ended by signal %d", a->path, result->signal);
    if (result->exit_status > 0) {
        assembler_first_error(result->log, line, sizeof line);
        return status_fail(err, FOSCAR_ASSEMBLY_FAILED, "%s (exit status %d): %s", a->path, result->exit_status, line);
    }
    return assembler_check_log(a->path, result->log, usage, err);
}

static foscar_status take_output(const assembler *a, int output, void **cubin, size_t *bytes, foscar_error *err)
{
    size_t length = 0;
    char *data = file_read_all(output, CUBIN_LIMIT, &length);
    if (data == NULL)
        return status_fail(err, FOSCAR_IO, "the output of %s cannot be read: %s", a->path,
                           errno == EFBIG ? "it is longer than 64 MiB" : file_reason(errno));
    const char *problem = cubin_problem(data, length);
    if (problem != NULL) {
        free(data);
        return status_fail(err, FOSCAR_ASSEMBLY_FAILED, "the output of %s is no cubin: %s", a->path, problem);
    }
    *cubin = data;
    *bytes = length;
    return FOSCAR_OK;
}

foscar_status assembler_run(const assembler *a, const char *ptx, size_t length, const char *target, void **cubin,
                            size_t *bytes, assembler_usage *usage, foscar_error *err)
{
    foscar_status status;
    process_result result;
    char arch[32];
    int input, output;
    *cubin = NULL;
    *bytes = 0;
    snprintf(arch, sizeof arch, "-arch=%s", target);
    input = process_memory_file("foscar-ptx", ptx, length);
    if (input < 0) return status_fail(err, FOSCAR_IO, "no memory file for PTX: %s", file_reason(errno));
    output = process_memory_file("foscar-cubin", "", 0);
    if (output < 0) {
        status = status_fail(err, FOSCAR_IO, "no memory file for a cubin: %s", file_reason(errno));
        goto close_input;
    }
    const char *argv[] = {a->path, arch, "-v", "/dev/fd/3", "-o", "/dev/fd/4", NULL};
    _Static_assert(PROCESS_INPUT_FD == 3 && PROCESS_OUTPUT_FD == 4, "the paths above name these descriptors");
    status = process_run(argv, input, output, a->seconds, &result, err);
    if (status != FOSCAR_OK) goto close_output;
    status = check_result(a, &result, usage, err);
    if (status == FOSCAR_OK) status = take_output(a, output, cubin, bytes, err);
    process_result_finish(&result);
close_output:
    close(output);
close_input:
    close(input);
    return status;
}
