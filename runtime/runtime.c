/* Opening and closing a runtime, and the tools it finds when they are first needed. */
#define _POSIX_C_SOURCE 200809L /* strdup */
#include "runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device.h"
#include "process.h"

static bool copy_string(const char *from, char **to)
{
    *to = NULL;
    if (from == NULL) return true;
    *to = strdup(from);
    return *to != NULL;
}

static foscar_status import_options(const foscar_options *options, foscar_options *ours, foscar_error *err)
{
    memset(ours, 0, sizeof *ours);
    if (options == NULL) return FOSCAR_OK;
    enum { FIRST_VERSION = offsetof(foscar_options, ptxas_seconds) };
    foscar_status status = struct_import("foscar_options", ours, sizeof *ours, FIRST_VERSION, options, err);
    if (status != FOSCAR_OK) return status;
    if ((ours->flags & ~(uint32_t)(FOSCAR_NO_DISK_CACHE | FOSCAR_NO_DRIVER_JIT)) != 0)
        return status_fail(err, FOSCAR_INVALID_ARGUMENT, "foscar_options: flags 0x%x has bits that mean nothing",
                           (unsigned)ours->flags);
    if (ours->ptxas_seconds < 0 || ours->ptxas_seconds > PROCESS_SECONDS_MAX)
        return status_fail(err, FOSCAR_INVALID_ARGUMENT, "foscar_options: ptxas_seconds is %d, allowed are 0 to %d",
                           (int)ours->ptxas_seconds, PROCESS_SECONDS_MAX);
    return FOSCAR_OK;
}

static foscar_status choose_seconds(int wanted, int *seconds, foscar_error *err)
{
    const char *text = getenv("FOSCAR_PTXAS_SECONDS");
    char *end = NULL;
    *seconds = wanted > 0 ? wanted : PROCESS_SECONDS;
    if (wanted > 0 || text == NULL || *text == '\0') return FOSCAR_OK;
    long number = strtol(text, &end, 10);
    if (*end != '\0' || number < 1 || number > PROCESS_SECONDS_MAX)
        return status_fail(err, FOSCAR_INVALID_ARGUMENT, "FOSCAR_PTXAS_SECONDS is '%s', no number from 1 to %d", text,
                           PROCESS_SECONDS_MAX);
    *seconds = (int)number;
    return FOSCAR_OK;
}

static void choose_cache(foscar_runtime *runtime, const char *directory)
{
    if ((runtime->flags & FOSCAR_NO_DISK_CACHE) == 0)
        disk_cache_choose(&runtime->disk, directory);
    else
        snprintf(runtime->disk.problem, sizeof runtime->disk.problem, "switched off by the options");
}

foscar_status foscar_open(const foscar_options *options, foscar_runtime **out, foscar_error *err)
{
    foscar_options ours;
    if (out == NULL) return status_fail(err, FOSCAR_INVALID_ARGUMENT, "runtime is NULL");
    *out = NULL;
    int ptxas_seconds;
    foscar_status status = import_options(options, &ours, err);
    if (status == FOSCAR_OK) status = choose_seconds(ours.ptxas_seconds, &ptxas_seconds, err);
    if (status != FOSCAR_OK) return status;
    foscar_runtime *runtime = calloc(1, sizeof *runtime);
    if (runtime == NULL) goto no_memory;
    runtime->owner = getpid();
    runtime->flags = ours.flags;
    runtime->device = ours.device;
    runtime->ptxas_seconds = ptxas_seconds;
    choose_cache(runtime, ours.cache_directory);
    if (!copy_string(ours.ptxas, &runtime->ptxas_path)) goto free_runtime;
    if (!copy_string(ours.nvrtc, &runtime->nvrtc_path)) goto free_ptxas;
    if (pthread_mutex_init(&runtime->tools_lock, NULL) != 0) goto free_nvrtc;
    if (pthread_mutex_init(&runtime->kernels_lock, NULL) != 0) goto destroy_tools_lock;
    if (pthread_cond_init(&runtime->built, NULL) != 0) goto destroy_kernels_lock;
    *out = runtime;
    return FOSCAR_OK;

destroy_kernels_lock:
    pthread_mutex_destroy(&runtime->kernels_lock);
destroy_tools_lock:
    pthread_mutex_destroy(&runtime->tools_lock);
free_nvrtc:
    free(runtime->nvrtc_path);
free_ptxas:
    free(runtime->ptxas_path);
free_runtime:
    free(runtime);
no_memory:
    return status_fail(err, FOSCAR_OUT_OF_MEMORY, "no memory for a runtime");
}

void foscar_close(foscar_runtime *runtime)
{
    if (runtime == NULL) return;
    bool ours = runtime->owner == getpid(); /* the driver must not be touched in a child of fork */
    while (runtime->kernels != NULL) {
        foscar_kernel *kernel = runtime->kernels;
        runtime->kernels = kernel->next;
        kernel_free(kernel, ours);
    }
    if (ours) {
        device_release(runtime);
        driver_finish(&runtime->cuda);
        pthread_cond_destroy(&runtime->built);
        pthread_mutex_destroy(&runtime->kernels_lock);
        pthread_mutex_destroy(&runtime->tools_lock);
    }
    free(runtime->nvrtc_path);
    free(runtime->ptxas_path);
    free(runtime);
}

foscar_status runtime_enter(const foscar_runtime *runtime, foscar_error *err)
{
    if (runtime == NULL) return status_fail(err, FOSCAR_INVALID_ARGUMENT, "the runtime is NULL");
    if (runtime->owner != getpid())
        return status_fail(err, FOSCAR_FORKED, "the runtime belongs to process %ld; open one after fork",
                           (long)runtime->owner);
    return FOSCAR_OK;
}

/* Records the outcome of a search, or hands out that of an earlier one. */
static foscar_status tool_outcome(const tool *t, foscar_error *err)
{
    if (t->state == TOOL_READY) return FOSCAR_OK;
    return status_fail(err, t->problem.status, "%s", t->problem.message);
}

static void tool_record(tool *t, foscar_status status)
{
    t->state = status == FOSCAR_OK ? TOOL_READY : TOOL_MISSING;
}

foscar_status runtime_driver(foscar_runtime *runtime, const driver **out, foscar_error *err)
{
    tool *t = &runtime->driver_tool;
    pthread_mutex_lock(&runtime->tools_lock);
    if (t->state == TOOL_UNTRIED) tool_record(t, driver_open(&runtime->cuda, &t->problem));
    *out = &runtime->cuda;
    pthread_mutex_unlock(&runtime->tools_lock);
    return tool_outcome(t, err);
}

foscar_status runtime_assembler(foscar_runtime *runtime, const assembler **out, foscar_error *err)
{
    tool *t = &runtime->assembler_tool;
    pthread_mutex_lock(&runtime->tools_lock);
    if (t->state == TOOL_UNTRIED) tool_record(t, assembler_find(runtime->ptxas_path, runtime->ptxas_seconds, &runtime->ptxas,
                                                             &t->problem));
    *out = &runtime->ptxas;
    pthread_mutex_unlock(&runtime->tools_lock);
    return tool_outcome(t, err);
}

foscar_status runtime_nvrtc(foscar_runtime *runtime, const nvrtc **out, foscar_error *err)
{
    tool *t = &runtime->nvrtc_tool;
    pthread_mutex_lock(&runtime->tools_lock);
    if (t->state == TOOL_UNTRIED) tool_record(t, nvrtc_open(runtime->nvrtc_path, &runtime->compiler, &t->problem));
    *out = &runtime->compiler;
    pthread_mutex_unlock(&runtime->tools_lock);
    return tool_outcome(t, err);
}

static void describe_problem(char *problem, size_t size, const foscar_error *why)
{
    snprintf(problem, size, "%.*s", (int)size - 1, why->message);
}

foscar_status foscar_describe(foscar_runtime *runtime, foscar_environment *out, foscar_error *err)
{
    foscar_environment found = {0};
    foscar_error why;
    const driver *cuda;
    const assembler *ptxas;
    const nvrtc *compiler;
    int count = 0;
    foscar_status status = runtime_enter(runtime, err);
    if (status != FOSCAR_OK) return status;
    if (runtime_driver(runtime, &cuda, &why) != FOSCAR_OK ||
        driver_result(cuda, cuda->cuDeviceGetCount(&count), "counting the GPUs", &why) != FOSCAR_OK)
        describe_problem(found.driver_problem, sizeof found.driver_problem, &why);
    else
        found.driver_version = cuda->version;
    found.device_count = count;
    if (runtime_assembler(runtime, &ptxas, &why) == FOSCAR_OK) {
        memcpy(found.ptxas, ptxas->path, sizeof found.ptxas);
        memcpy(found.ptxas_build, ptxas->build, sizeof found.ptxas_build);
    } else
        describe_problem(found.ptxas_problem, sizeof found.ptxas_problem, &why);
    if (runtime_nvrtc(runtime, &compiler, &why) == FOSCAR_OK) {
        memcpy(found.nvrtc, compiler->path, sizeof found.nvrtc);
        found.nvrtc_version = compiler->version;
    } else
        describe_problem(found.nvrtc_problem, sizeof found.nvrtc_problem, &why);
    memcpy(found.cache_directory, runtime->disk.directory, sizeof found.cache_directory);
    if (disk_cache_usable(&runtime->disk, found.cache_problem, sizeof found.cache_problem)) {
        pthread_mutex_lock(&runtime->tools_lock);
        memcpy(found.cache_problem, runtime->disk_problem, sizeof runtime->disk_problem);
        pthread_mutex_unlock(&runtime->tools_lock);
    }
    return struct_export("foscar_environment", out, &found, sizeof found, sizeof found, err);
}
_Static_assert(sizeof(((foscar_environment *)0)->cache_problem) >= DISK_PROBLEM_MAX, "problems are copied whole");
_Static_assert(sizeof(((foscar_environment *)0)->ptxas) == SEARCH_PATH_MAX, "paths are copied whole");
_Static_assert(sizeof(((foscar_environment *)0)->nvrtc) == SEARCH_PATH_MAX, "paths are copied whole");
_Static_assert(sizeof(((foscar_environment *)0)->cache_directory) == DISK_DIRECTORY_MAX, "paths are copied whole");
