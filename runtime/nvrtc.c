/* Finds NVRTC and compiles the cache kernels' CUDA C to PTX with it, so that they pass through the same assembler as the generated text. */
#define _GNU_SOURCE 1 /* dladdr */
#include "nvrtc.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "assembler.h"
#include "file.h"

/* A name without a slash is looked for by the loader, which opens a FIFO like any other file, and waits. */
static bool accept_library(void *context, const char *path)
{
    void **handle = context;
    char problem[128];
    if (strchr(path, '/') != NULL && !file_is_regular(path, problem, sizeof problem)) return false;
    *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return *handle != NULL;
}

static void *find_library(void)
{
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
    static const search_place places[] = {
        {"CUDA_HOME", "/lib64/libnvrtc.so*"}, {"CUDA_HOME", "/lib/libnvrtc.so*"},
        {"CUDA_PATH", "/lib64/libnvrtc.so*"}, {NULL, "/usr/local/cuda/lib64/libnvrtc.so*"},
        {NULL, "/usr/local/cuda/lib/libnvrtc.so*"},
    };
    static const char *const wheels[] = {"nvidia/cu13/lib/libnvrtc.so.*", "nvidia/cuda_nvrtc/lib/libnvrtc.so.*"};
    void *handle = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (accept_library(&handle, names[i])) return handle;
    if (search_places(places, sizeof places / sizeof *places, accept_library, &handle)) return handle;
    if (search_wheels(wheels, sizeof wheels / sizeof *wheels, accept_library, &handle)) return handle;
    return NULL;
}

static foscar_status open_library(const char *path, nvrtc *n, foscar_error *err)
{
    char problem[128] = "the loader gives no reason";
    const char *variable = getenv("FOSCAR_NVRTC");
    const char *named = path != NULL ? path : variable != NULL && *variable != '\0' ? variable : NULL;
    if (named != NULL) {
        if (accept_library(&n->handle, named)) return FOSCAR_OK;
        const char *loader = strchr(named, '/') != NULL && !file_is_regular(named, problem, sizeof problem) ? NULL : dlerror();
        return status_fail(err, FOSCAR_NO_NVRTC, "%s (%s) cannot be opened: %s", named,
                           path != NULL ? "the NVRTC of the options" : "FOSCAR_NVRTC", loader != NULL ? loader : problem);
    }
    n->handle = find_library();
    if (n->handle != NULL) return FOSCAR_OK;
    if (file_none_left(problem, sizeof problem))
        return status_fail(err, FOSCAR_IO, "libnvrtc.so cannot be looked for: %s", problem);
    return status_fail(err, FOSCAR_NO_NVRTC,
                       "libnvrtc.so was not found; set FOSCAR_NVRTC or CUDA_HOME, or run: pip install nvidia-cuda-nvrtc");
}

static foscar_status find_calls(nvrtc *n, foscar_error *err)
{
    void *found;
#define NVRTC_CALL(symbol, parameters)                                                                                 \
    found = dlsym(n->handle, #symbol);                                                                                 \
    if (found == NULL) return status_fail(err, FOSCAR_NO_NVRTC, "libnvrtc.so has no %s", #symbol);                     \
    memcpy(&n->symbol, &found, sizeof found);
#include "nvrtc.def"
    return FOSCAR_OK;
}

/* NVRTC tells no build number, so the size of the library stands beside its version. */
static void identify(nvrtc *n, int major, int minor)
{
    Dl_info where;
    struct stat st;
    long long size = 0;
    void *symbol;
    memcpy(&symbol, &n->nvrtcVersion, sizeof symbol);
    if (dladdr(symbol, &where) != 0 && where.dli_fname != NULL) {
        snprintf(n->path, sizeof n->path, "%s", where.dli_fname);
        if (stat(where.dli_fname, &st) == 0) size = (long long)st.st_size;
    }
    n->version = major * 1000 + minor * 10;
    snprintf(n->build, sizeof n->build, "nvrtc %d.%d, %lld bytes", major, minor, size);
}

foscar_status nvrtc_open(const char *path, nvrtc *out, foscar_error *err)
{
    int major = 0, minor = 0;
    memset(out, 0, sizeof *out);
    foscar_status status = open_library(path, out, err);
    if (status == FOSCAR_OK) status = find_calls(out, err);
    if (status == FOSCAR_OK && out->nvrtcVersion(&major, &minor) != 0)
        status = status_fail(err, FOSCAR_NO_NVRTC, "libnvrtc.so does not tell its version");
    if (status == FOSCAR_OK) {
        identify(out, major, minor);
        return FOSCAR_OK;
    }
    if (out->handle != NULL) dlclose(out->handle);
    memset(out, 0, sizeof *out);
    return status;
}

static foscar_status compile_failed(const nvrtc *n, nvrtcProgram program, const char *name, foscar_error *err)
{
    char line[384] = "no log";
    size_t bytes = 0;
    char *log = NULL;
    if (n->nvrtcGetProgramLogSize(program, &bytes) == 0 && bytes > 0) log = malloc(bytes);
    if (log != NULL && n->nvrtcGetProgramLog(program, log) == 0) assembler_first_error(log, line, sizeof line);
    free(log);
    return status_fail(err, FOSCAR_ASSEMBLY_FAILED, "NVRTC refuses %s: %s", name, line);
}

static foscar_status take_ptx(const nvrtc *n, nvrtcProgram program, char **ptx, size_t *length, foscar_error *err)
{
    size_t bytes = 0; /* with the NUL */
    if (n->nvrtcGetPTXSize(program, &bytes) != 0 || bytes < 2)
        return status_fail(err, FOSCAR_ASSEMBLY_FAILED, "NVRTC made no PTX");
    *ptx = malloc(bytes);
    if (*ptx == NULL) return status_fail(err, FOSCAR_OUT_OF_MEMORY, "no memory for %zu bytes of PTX", bytes);
    if (n->nvrtcGetPTX(program, *ptx) != 0) {
        free(*ptx);
        *ptx = NULL;
        return status_fail(err, FOSCAR_ASSEMBLY_FAILED, "NVRTC does not hand out its PTX");
    }
    *length = strlen(*ptx);
    return FOSCAR_OK;
}

foscar_status nvrtc_compile(const nvrtc *n, const char *name, const char *source, const char *const *options,
                            int option_count, char **ptx, size_t *length, foscar_error *err)
{
    foscar_status status;
    nvrtcProgram program = NULL;
    *ptx = NULL;
    *length = 0;
    if (n->nvrtcCreateProgram(&program, source, name, 0, NULL, NULL) != 0)
        return status_fail(err, FOSCAR_ASSEMBLY_FAILED, "NVRTC cannot make a program of %s", name);
    if (n->nvrtcCompileProgram(program, option_count, options) != 0)
        status = compile_failed(n, program, name, err);
    else
        status = take_ptx(n, program, ptx, length, err);
    n->nvrtcDestroyProgram(&program);
    return status;
}
