/* The emulated CUDA driver's libraries, functions and launches. */
#include "emulated_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SHARED_BYTES_MAX = 227 * 1024,
    SHARED_BYTES_DEFAULT = 48 * 1024, /* that a function may use before its limit is raised */
    REGISTERS_ESTIMATE = 64,          /* of entries without .maxnreg */
    LAUNCH_ATTRIBUTES_MAX = 16
};

/* ---- Libraries ---- */

void library_finish(CUlibrary library)
{
    for (int i = 0; i < library->count; i++) emulator_counts_finish(&library->functions[i].counts);
    free(library->functions);
    emulator_module_destroy(library->module);
}

/* What the driver's compiler would have said. */
static void write_log(CUjit_option *options, void **values, unsigned int count, const char *message)
{
    char *log = NULL;
    size_t bytes = 0;
    for (unsigned int i = 0; i < count; i++) {
        if (options[i] == DRIVER_CU_JIT_ERROR_LOG_BUFFER) log = values[i];
        if (options[i] == DRIVER_CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) bytes = (size_t)(uintptr_t)values[i];
    }
    if (log != NULL && bytes > 0) snprintf(log, bytes, "%s", message);
}

static bool share_an_entry(const emulator_module *a, const emulator_module *b)
{
    for (int i = 0; i < emulator_module_entries(a); i++)
        if (emulator_module_find_entry(b, emulator_module_entry_name(a, i)) >= 0) return true;
    return false;
}

/* The module of a text, or that of the substitute where it has an entry of the same name. */
static emulator_module *parse(const emulated_state *s, const char *text, emulator_error *error)
{
    emulator_module *module = emulator_module_parse(text, strlen(text), "PTX", error);
    if (module == NULL || s->substitute == NULL) return module;
    emulator_module *other = emulator_module_parse(s->substitute, s->substitute_length, "substitute", error);
    if (other != NULL && !share_an_entry(module, other)) {
        emulator_module_destroy(other);
        return module;
    }
    emulator_module_destroy(module);
    return other;
}

static CUresult library_fill(CUlibrary library)
{
    int count = emulator_module_entries(library->module);
    library->functions = calloc((size_t)(count > 0 ? count : 1), sizeof *library->functions);
    if (library->functions == NULL) return EMULATED_CUDA_ERROR_OUT_OF_MEMORY;
    library->count = count;
    for (int i = 0; i < library->count; i++) {
        CUfunction f = &library->functions[i];
        *f = (struct CUfunc_st){
            .library = library,
            .entry = i,
            .name = emulator_module_entry_name(library->module, i),
            .dynamic_shared_max = SHARED_BYTES_DEFAULT,
        };
        emulator_module_entry_info(library->module, i, &f->info);
    }
    return EMULATED_CUDA_SUCCESS;
}

/* The first finding is kept. */
static void note_fault(emulated_state *s, const emulator_error *error, const char *entry, uint64_t seed)
{
    if (s->has_fault) return;
    s->has_fault = true;
    s->fault.error = *error;
    s->fault.seed = seed;
    snprintf(s->fault.entry, sizeof s->fault.entry, "%s", entry);
}

static CUresult load(emulated_state *s, const char *text, emulator_error *error, CUlibrary *library)
{
    emulator_module *module = parse(s, text, error);
    if (module == NULL && error->fault == EMULATOR_MEMORY) return EMULATED_CUDA_ERROR_OUT_OF_MEMORY;
    if (module == NULL) {
        note_fault(s, error, "", 0);
        return EMULATED_CUDA_ERROR_INVALID_PTX;
    }
    CUlibrary made = object_make(s, OBJECT_LIBRARY, sizeof *made);
    if (made == NULL) {
        emulator_module_destroy(module);
        return EMULATED_CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->module = module;
    CUresult result = library_fill(made);
    if (result == EMULATED_CUDA_SUCCESS)
        *library = made;
    else
        object_destroy(s, made, OBJECT_LIBRARY);
    return result;
}

CUresult emulated_cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_options, void **jit_values,
                                    unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int count)
{
    static const char elf[] = "\177ELF", fat[] = "\x50\xed\x55\xba";
    (void)options, (void)values, (void)count;
    EMULATED_ENTER(s);
    if (code == NULL) return emulated_leave(EMULATED_CUDA_ERROR_INVALID_VALUE);
    if (strncmp(code, elf, 4) == 0 || strncmp(code, fat, 4) == 0)
        return emulated_leave(EMULATED_CUDA_ERROR_NO_BINARY_FOR_GPU);
    CUresult result = emulated_unsafe_call(s);
    if (result != EMULATED_CUDA_SUCCESS) return emulated_leave(result);
    emulator_error *error = calloc(1, sizeof *error);
    if (error == NULL) return emulated_leave(EMULATED_CUDA_ERROR_OUT_OF_MEMORY);
    result = load(s, code, error, library);
    if (result == EMULATED_CUDA_ERROR_INVALID_PTX) {
        char message[EMULATOR_MESSAGE_MAX + 64];
        snprintf(message, sizeof message, "error: %s, line %d: %s", emulator_fault_name(error->fault), error->line,
                 error->message);
        write_log(jit_options, jit_values, jit_count, message);
    }
    free(error);
    return emulated_leave(result);
}

CUresult emulated_cuLibraryUnload(CUlibrary library)
{
    EMULATED_ENTER(s);
    return emulated_leave(object_destroy(s, library, OBJECT_LIBRARY));
}

/* ---- Functions ---- */

CUresult emulated_cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    EMULATED_ENTER(s);
    if (!object_valid(s, library, OBJECT_LIBRARY)) return emulated_leave(EMULATED_CUDA_ERROR_INVALID_HANDLE);
    for (int i = 0; i < library->count; i++)
        if (strcmp(library->functions[i].name, name) == 0) {
            *kernel = (CUkernel)&library->functions[i];
            return emulated_leave(EMULATED_CUDA_SUCCESS);
        }
    return emulated_leave(EMULATED_CUDA_ERROR_NOT_FOUND);
}

static bool function_valid(const emulated_state *s, const void *function)
{
    for (const object *o = s->objects; o != NULL; o = o->next) {
        const struct CUlib_st *library = (const struct CUlib_st *)(const void *)o;
        for (int i = 0; o->kind == OBJECT_LIBRARY && i < library->count; i++)
            if (function == &library->functions[i]) return true;
    }
    return false;
}

CUresult emulated_cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    EMULATED_ENTER(s);
    CUcontext context;
    CUresult result = emulated_current(s, &context);
    if (!function_valid(s, kernel)) result = EMULATED_CUDA_ERROR_INVALID_HANDLE;
    if (result == EMULATED_CUDA_SUCCESS) *function = (CUfunction)kernel;
    return emulated_leave(result);
}

CUresult emulated_cuFuncLoad(CUfunction function)
{
    EMULATED_ENTER(s);
    return emulated_leave(function_valid(s, function) ? EMULATED_CUDA_SUCCESS : EMULATED_CUDA_ERROR_INVALID_HANDLE);
}

CUresult emulated_cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    EMULATED_ENTER(s);
    if (!function_valid(s, function)) return emulated_leave(EMULATED_CUDA_ERROR_INVALID_HANDLE);
    CUresult result = EMULATED_CUDA_SUCCESS;
    switch (attribute) {
    case DRIVER_CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = function->info.max_registers > 0 ? (int)function->info.max_registers : REGISTERS_ESTIMATE;
        break;
    case DRIVER_CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *value = (int)function->info.local_bytes;
        break;
    case DRIVER_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = (int)function->dynamic_shared_max;
        break;
    default:
        result = EMULATED_CUDA_ERROR_INVALID_VALUE;
    }
    return emulated_leave(result);
}

CUresult emulated_cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    EMULATED_ENTER(s);
    if (!function_valid(s, function)) return emulated_leave(EMULATED_CUDA_ERROR_INVALID_HANDLE);
    if (attribute != DRIVER_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
        (uint32_t)value + function->info.static_shared_bytes > SHARED_BYTES_MAX)
        return emulated_leave(EMULATED_CUDA_ERROR_INVALID_VALUE);
    function->dynamic_shared_max = (uint32_t)value;
    return emulated_leave(EMULATED_CUDA_SUCCESS);
}

/* ---- Launches ---- */

static void add_counts(CUfunction function, emulator_counts *counts)
{
    if (function->counts.executed == NULL) {
        function->counts = *counts;
        *counts = (emulator_counts){NULL, 0};
        return;
    }
    for (int i = 0; i < counts->count; i++) function->counts.executed[i] += counts->executed[i];
}

CUresult launch_run(emulated_state *s, const launch_record *launch)
{
    emulator_counts counts = {NULL, 0};
    if (launch->context->faulted) return EMULATED_CUDA_ERROR_LAUNCH_FAILED;
    if (!function_valid(s, launch->function)) return EMULATED_CUDA_ERROR_INVALID_HANDLE;
    emulator_launch_config config = {
        .module = launch->function->library->module,
        .entry = launch->function->name,
        .grid = {launch->grid[0], launch->grid[1], launch->grid[2]},
        .block = {launch->block[0], launch->block[1], launch->block[2]},
        .shared_bytes = launch->shared_bytes,
        .parameters = launch->parameters,
        .memory = s->devices[launch->context->device].memory,
        .schedule = s->execution.schedule,
        .seed = s->execution.seed + s->launches++,
        .instruction_budget = s->execution.instruction_budget,
        .fast = s->execution.fast,
        .judge = s->execution.judge,
    };
    emulator_error *error = calloc(1, sizeof *error);
    if (error == NULL) return EMULATED_CUDA_ERROR_OUT_OF_MEMORY;
    bool ok = emulator_launch(&config, s->counting ? &counts : NULL, error);
    if (counts.executed != NULL) add_counts(launch->function, &counts);
    emulator_counts_finish(&counts);
    CUresult result = ok                                ? EMULATED_CUDA_SUCCESS
                      : error->fault == EMULATOR_MEMORY ? EMULATED_CUDA_ERROR_OUT_OF_MEMORY
                                                        : EMULATED_CUDA_ERROR_LAUNCH_FAILED;
    if (result == EMULATED_CUDA_ERROR_LAUNCH_FAILED) {
        note_fault(s, error, launch->function->name, config.seed);
        launch->context->faulted = true;
    }
    free(error);
    return result;
}

/* The driver's own checks; what else can be wrong with a launch is the interpreter's to say. */
static CUresult read_config(const CUlaunchConfig *config, CUfunction function, launch_record *launch)
{
    if (config->shared_bytes > function->dynamic_shared_max || config->attribute_count > LAUNCH_ATTRIBUTES_MAX)
        return EMULATED_CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < 3; i++) {
        launch->grid[i] = config->grid[i];
        launch->block[i] = config->block[i];
        if (config->grid[i] == 0 || config->block[i] == 0) return EMULATED_CUDA_ERROR_INVALID_VALUE;
    }
    /* launches run one after the other, so whether one overlaps the last changes nothing */
    for (unsigned int i = 0; i < config->attribute_count; i++)
        if (config->attributes[i].id != DRIVER_CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            return EMULATED_CUDA_ERROR_INVALID_VALUE;
    launch->function = function;
    launch->shared_bytes = config->shared_bytes;
    return EMULATED_CUDA_SUCCESS;
}

CUresult emulated_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra)
{
    EMULATED_ENTER(s);
    launch_record launch = {.parameters = parameters};
    if (!function_valid(s, function)) return emulated_leave(EMULATED_CUDA_ERROR_INVALID_HANDLE);
    if (extra != NULL || (parameters == NULL && function->info.parameters > 0))
        return emulated_leave(EMULATED_CUDA_ERROR_INVALID_VALUE);
    CUresult result = read_config(config, function, &launch);
    if (result == EMULATED_CUDA_SUCCESS) result = stream_launch(s, config->stream, &launch);
    return emulated_leave(result);
}

bool emulated_driver_counts(const char *name, emulator_counts *out, const emulator_module **module, int *entry)
{
    emulated_state *s = emulated_enter();
    if (s == NULL) return false;
    *out = (emulator_counts){NULL, 0};
    for (const object *o = s->objects; o != NULL && out->executed == NULL; o = o->next) {
        const struct CUlib_st *library = (const struct CUlib_st *)(const void *)o;
        for (int i = 0; o->kind == OBJECT_LIBRARY && i < library->count; i++) {
            const struct CUfunc_st *f = &library->functions[i];
            if (f->counts.executed == NULL || strcmp(f->name, name) != 0) continue;
            out->count = f->counts.count;
            out->executed = malloc((size_t)out->count * sizeof *out->executed);
            if (out->executed == NULL) break;
            memcpy(out->executed, f->counts.executed, (size_t)out->count * sizeof *out->executed);
            *module = library->module;
            *entry = i;
        }
    }
    emulated_leave(0);
    return out->executed != NULL;
}

void emulated_driver_forget_counts(void)
{
    emulated_state *s = emulated_enter();
    if (s == NULL) return;
    for (const object *o = s->objects; o != NULL; o = o->next) {
        const struct CUlib_st *library = (const struct CUlib_st *)(const void *)o;
        for (int i = 0; o->kind == OBJECT_LIBRARY && i < library->count; i++) {
            emulator_counts_finish(&library->functions[i].counts);
            library->functions[i].counts = (emulator_counts){NULL, 0};
        }
    }
    emulated_leave(0);
}
