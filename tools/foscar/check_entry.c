/* foscar check FILE --entry NAME: launches any kernel in the interpreter under every schedule, with arguments of the
 * call, and tells what was found and what the kernel left in its buffers. */
#include "check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "kernel_arguments.h"

enum { PRINTED_MAX = 1 << 20 };

/* What a buffer holds after the first run that passed, and whether a later one left something else. */
typedef struct buffer_result {
    uint8_t *bytes;
    uint64_t defined, changed, differs_at; /* differs_at UINT64_MAX: nowhere */
} buffer_result;

typedef struct launch {
    const command *self;
    const check_arguments *args;
    const char *path, *text;
    emulator_module *module;
    int entry;
    emulator_launch_config config;
    kernel_argument *arguments;
    void **parameters;
    buffer_result *results;
    uint64_t seed;
    bool passed; /* some run has */
    uint64_t *executed;
    emulator_entry_info info;
    mode_result mode[EMULATOR_SCHEDULE_COUNT];
    char *printed; /* by the first run */
    size_t printed_length;
    bool printing, printed_all;
} launch;

/* ---- The launch's shape ---- */

/* "X", "X,Y" or "X,Y,Z"; what is left out is 1. */
static bool read_extents(const launch *l, const char *name, const char *text, uint32_t extent[3])
{
    const char *at = text;
    extent[0] = extent[1] = extent[2] = 1;
    for (int d = 0; d < 3; d++) {
        char *end;
        errno = 0;
        unsigned long long v = *at >= '0' && *at <= '9' ? strtoull(at, &end, 10) : 0;
        if (v == 0 || errno != 0 || v > INT32_MAX) break;
        extent[d] = (uint32_t)v;
        if (*end == '\0') return true;
        if (*end != ',') break;
        at = end + 1;
    }
    tool_fail(l->self, TOOL_USAGE, "option %s: '%s' is not X, X,Y or X,Y,Z with numbers from 1 on", name, text);
    return false;
}

/* The entry that is named, or the only one. */
static bool find_entry(launch *l)
{
    const char *name = l->args->entry;
    int count = emulator_module_entries(l->module);
    char list[512] = "";
    for (int i = 0; i < count; i++) {
        size_t length = strlen(list);
        snprintf(list + length, sizeof list - length, "%s%s", i > 0 ? ", " : "",
                 emulator_module_entry_name(l->module, i));
    }
    l->entry = name != NULL ? emulator_module_find_entry(l->module, name) : count == 1 ? 0 : -1;
    if (l->entry >= 0) return true;
    if (count == 0)
        tool_fail_with(l->self, TOOL_USAGE, tool_file_details(l->path), "%s has no entry", l->path);
    else if (name == NULL)
        tool_fail_with(l->self, TOOL_USAGE, tool_file_details(l->path), "%s has %d entries: say which by --entry (%s)",
                       l->path, count, list);
    else
        tool_fail_with(l->self, TOOL_USAGE, tool_file_details(l->path), "%s has no entry '%s'; it has %s", l->path,
                       name, list);
    return false;
}

static bool read_shape(launch *l)
{
    const check_arguments *a = l->args;
    emulator_launch_config *c = &l->config;
    emulator_module_entry_info(l->module, l->entry, &l->info);
    if (!read_extents(l, "--grid", a->grid != NULL ? a->grid : "1", c->grid)) return false;
    if (a->block != NULL) {
        if (!read_extents(l, "--block", a->block, c->block)) return false;
    } else if (l->info.required_threads[0] > 0) {
        for (int d = 0; d < 3; d++) c->block[d] = l->info.required_threads[d] > 0 ? l->info.required_threads[d] : 1;
    } else {
        tool_fail(l->self, TOOL_USAGE, "--block X[,Y,Z] is missing: the entry says no .reqntid");
        return false;
    }
    c->shared_bytes = (uint32_t)a->shared;
    c->instruction_budget = (uint64_t)a->budget;
    c->fast = !a->exact;
    c->judge = true;
    c->module = l->module;
    c->entry = emulator_module_entry_name(l->module, l->entry);
    return true;
}

/* ---- Runs ---- */

static void print_text(void *context, const char *text, size_t length)
{
    launch *l = context;
    if (!l->printing) return;
    size_t room = PRINTED_MAX - l->printed_length;
    l->printed_all = l->printed_all && length <= room;
    if (length > room) length = room;
    memcpy(l->printed + l->printed_length, text, length);
    l->printed_length += length;
}

/* Keeps what the first run that passes leaves; later ones are compared with it. */
static void take_results(launch *l, const emulator_memory *memory)
{
    for (int k = 0; k < l->args->args.count; k++) {
        const kernel_argument *a = &l->arguments[k];
        buffer_result *r = &l->results[k];
        uint64_t address;
        if (!a->is_buffer) continue;
        memcpy(&address, a->value, sizeof address);
        const uint8_t *bytes = (const uint8_t *)(uintptr_t)address;
        if (l->passed) {
            for (uint64_t b = 0; r->differs_at == UINT64_MAX && b < a->size; b++)
                if (bytes[b] != r->bytes[b]) r->differs_at = b;
            continue;
        }
        r->bytes = tool_allocate(a->size);
        memcpy(r->bytes, bytes, a->size);
        r->differs_at = UINT64_MAX;
        for (uint64_t b = 0; b < a->size; b++) {
            bool defined = emulator_memory_defined(memory, address + b, 1);
            r->defined += defined;
            r->changed += defined && (a->bytes == NULL || a->bytes[b] != bytes[b]);
        }
    }
    l->passed = true;
}

/* False: no memory. */
static bool run_once(launch *l, int mode, uint64_t seed)
{
    emulated_fault *fault = tool_allocate(sizeof *fault);
    emulator_counts counts;
    mode_result *m = &l->mode[mode];
    emulator_memory *memory = emulator_memory_create();
    bool good = memory != NULL && kernel_arguments_place(l->arguments, l->args->args.count, memory);
    if (good) {
        l->config.memory = memory;
        l->config.schedule = (emulator_schedule)mode;
        l->config.seed = seed;
        bool passed = emulator_launch(&l->config, &counts, &fault->error);
        for (int i = 0; counts.executed != NULL && i < counts.count; i++) l->executed[i] += counts.executed[i];
        emulator_counts_finish(&counts);
        m->runs++;
        fault->seed = seed;
        snprintf(fault->entry, sizeof fault->entry, "%s", l->config.entry);
        if (passed)
            take_results(l, memory);
        else if (fault->error.fault == EMULATOR_MEMORY)
            good = false;
        else
            mode_add_finding(m, seed, fault, NULL);
        l->printing = false;
    }
    emulator_memory_destroy(memory);
    free(fault);
    if (!good) tool_fail(l->self, TOOL_FAILED, "no memory for a run");
    return good;
}

/* A mode in which the kernel ran for ever would do so for every seed. */
static bool worth_running(const launch *l, int mode)
{
    const mode_result *m = &l->mode[mode];
    return mode_chosen(l->args, mode) && !(m->findings > 0 && m->is_fault && m->fault.error.fault == EMULATOR_BUDGET);
}

static bool run_schedules(launch *l)
{
    bool good = true;
    l->config.print = print_text;
    l->config.print_context = l;
    l->printing = l->printed_all = true;
    for (int64_t i = 0; i < l->args->schedules && good; i++)
        for (int mode = 0; mode < EMULATOR_SCHEDULE_COUNT && good; mode++)
            if (worth_running(l, mode)) good = run_once(l, mode, l->seed + (uint64_t)i);
    return good;
}

/* ---- Report ---- */

static uint64_t checksum(const uint8_t *bytes, uint64_t count)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (uint64_t b = 0; b < count; b++) h = (h ^ bytes[b]) * UINT64_C(0x100000001b3);
    return h;
}

static int covered(const launch *l)
{
    int n = 0;
    for (int i = 0; i < l->info.instructions; i++) n += l->executed[i] > 0;
    return n;
}

/* The call that repeats a finding, up to the mode. */
static char *repeat_call(const launch *l)
{
    const check_arguments *a = l->args;
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    if (out == NULL) tool_out_of_memory();
    fprintf(out, "foscar check %s --entry %s --grid %u,%u,%u --block %u,%u,%u", l->path, l->config.entry,
            l->config.grid[0], l->config.grid[1], l->config.grid[2], l->config.block[0], l->config.block[1],
            l->config.block[2]);
    if (a->cluster != NULL) fprintf(out, " --cluster %s", a->cluster);
    if (a->shared > 0) fprintf(out, " --shared %" PRId64, a->shared);
    if (a->data_seed > 0) fprintf(out, " --data-seed %" PRId64, a->data_seed);
    if (a->args.count > 0) fprintf(out, " --args");
    for (int k = 0; k < a->args.count; k++) fprintf(out, " %s", a->args.words[k]);
    fclose(out);
    return text;
}

static void print_buffers(const launch *l)
{
    for (int k = 0; k < l->args->args.count; k++) {
        const kernel_argument *a = &l->arguments[k];
        const buffer_result *r = &l->results[k];
        if (!a->is_buffer || !l->passed) continue;
        printf("%-14s%12" PRIu64 " bytes%12" PRIu64 " changed", a->name, a->size, r->changed);
        if (r->defined < a->size) printf("%12" PRIu64 " undefined", a->size - r->defined);
        printf("  checksum %016" PRIx64 "\n", checksum(r->bytes, a->size));
        if (r->differs_at != UINT64_MAX)
            printf("              not the same in all runs: differs from byte %" PRIu64 " on\n", r->differs_at);
    }
}

static void print_report(const launch *l)
{
    const emulator_launch_config *c = &l->config;
    char *again = repeat_call(l);
    printf("%s\nentry   %s\nlaunch  %u,%u,%u blocks of %u,%u,%u threads, %u bytes of dynamic shared memory\nseeds   "
           "%" PRIu64 " to %" PRIu64 "\n\n",
           l->path, c->entry, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2],
           c->shared_bytes, l->seed, l->seed + (uint64_t)l->args->schedules - 1);
    modes_print(l->mode);
    printf("\nexecuted %d of %d instructions\n", covered(l), l->info.instructions);
    print_buffers(l);
    if (l->printed_length > 0) {
        printf("\nprinted by the first run%s:\n", l->printed_all ? "" : " (cut)");
        fwrite(l->printed, 1, l->printed_length, stdout);
        if (l->printed[l->printed_length - 1] != '\n') putchar('\n');
    }
    modes_print_findings(l->mode, l->text, again, l->args->exact ? " --exact" : "");
    free(again);
}

static cJSON *extents_json(const uint32_t extent[3])
{
    cJSON *json = cJSON_CreateArray();
    for (int d = 0; d < 3; d++) cJSON_AddItemToArray(json, cJSON_CreateNumber(extent[d]));
    return json;
}

static cJSON *buffers_json(const launch *l)
{
    cJSON *json = cJSON_CreateArray();
    for (int k = 0; k < l->args->args.count; k++) {
        const kernel_argument *a = &l->arguments[k];
        const buffer_result *r = &l->results[k];
        char sum[20];
        if (!a->is_buffer || !l->passed) continue;
        cJSON *row = cJSON_CreateObject();
        snprintf(sum, sizeof sum, "%016" PRIx64, checksum(r->bytes, a->size));
        cJSON_AddNumberToObject(row, "argument", k + 1);
        cJSON_AddNumberToObject(row, "bytes", (double)a->size);
        cJSON_AddNumberToObject(row, "defined", (double)r->defined);
        cJSON_AddNumberToObject(row, "changed", (double)r->changed);
        cJSON_AddStringToObject(row, "checksum", sum);
        cJSON_AddItemToObject(row, "differs_at",
                              r->differs_at == UINT64_MAX ? cJSON_CreateNull()
                                                          : cJSON_CreateNumber((double)r->differs_at));
        cJSON_AddItemToArray(json, row);
    }
    return json;
}

static void print_json(const launch *l)
{
    const char *warning = emulator_module_warning(l->module);
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "checked", l->path);
    cJSON_AddNullToObject(json, "spec");
    cJSON_AddStringToObject(json, "entry", l->config.entry);
    cJSON_AddItemToObject(json, "warning", *warning ? cJSON_CreateString(warning) : cJSON_CreateNull());
    cJSON_AddItemToObject(json, "grid", extents_json(l->config.grid));
    cJSON_AddItemToObject(json, "block", extents_json(l->config.block));
    cJSON_AddNumberToObject(json, "shared", l->config.shared_bytes);
    cJSON_AddNumberToObject(json, "seed", (double)l->seed);
    cJSON_AddNumberToObject(json, "schedules", (double)l->args->schedules);
    cJSON_AddNumberToObject(json, "findings", modes_findings(l->mode));
    cJSON_AddItemToObject(json, "modes", modes_json(l->mode));
    cJSON_AddNumberToObject(json, "instructions", l->info.instructions);
    cJSON_AddNumberToObject(json, "instructions_executed", covered(l));
    cJSON_AddItemToObject(json, "buffers", buffers_json(l));
    l->printed[l->printed_length] = '\0';
    cJSON_AddStringToObject(json, "printed", l->printed);
    tool_print_json(json);
}

/* FOLDER/argument1.bin and on, of the first run that passed. */
static bool write_buffers(const launch *l)
{
    const char *folder = l->args->output;
    if (folder == NULL) return true;
    if (!l->passed) {
        tool_fail(l->self, TOOL_FAILED, "no run passed: nothing is written to %s", folder);
        return false;
    }
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        tool_fail_with(l->self, TOOL_FAILED, tool_file_details(folder), "cannot make %s: %s", folder, strerror(errno));
        return false;
    }
    for (int k = 0; k < l->args->args.count; k++) {
        if (!l->arguments[k].is_buffer) continue;
        size_t room = strlen(folder) + 32;
        char *path = tool_allocate(room);
        snprintf(path, room, "%s/argument%d.bin", folder, k + 1);
        bool good = tool_write_file(l->self, path, l->results[k].bytes, l->arguments[k].size);
        free(path);
        if (!good) return false;
    }
    return true;
}

/* ---- The call ---- */

static tool_exit run_and_report(launch *l)
{
    int count = l->args->args.count;
    l->parameters = tool_allocate(((size_t)count + 1) * sizeof *l->parameters);
    l->results = tool_allocate(((size_t)count + 1) * sizeof *l->results);
    l->executed = tool_allocate(((size_t)l->info.instructions + 1) * sizeof *l->executed);
    l->printed = tool_allocate(PRINTED_MAX + 1);
    for (int k = 0; k < count; k++)
        l->parameters[k] = l->arguments[k].bytes != NULL && !l->arguments[k].is_buffer ? (void *)l->arguments[k].bytes
                                                                                       : (void *)l->arguments[k].value;
    l->config.parameters = l->parameters;
    if (!run_schedules(l)) return TOOL_FAILED;
    if (l->args->json)
        print_json(l);
    else
        print_report(l);
    bool written = write_buffers(l);
    return written && modes_findings(l->mode) == 0 ? TOOL_OK : TOOL_FAILED;
}

tool_exit check_launch(const command *self, const check_arguments *args, const char *path, const char *text,
                       size_t length)
{
    launch *l = tool_allocate(sizeof *l);
    *l = (launch){.self = self, .args = args, .path = path, .text = text, .seed = tool_seed(args->seed)};
    emulated_fault *fault = tool_allocate(sizeof *fault);
    tool_exit code = TOOL_USAGE;
    l->module = emulator_module_parse(text, length, path, &fault->error);
    if (l->module == NULL)
        code = check_report_refused(self, path, NULL, true, fault);
    else {
        if (*emulator_module_warning(l->module))
            fprintf(stderr, "foscar check: %s: %s\n", path, emulator_module_warning(l->module));
        if (find_entry(l) && read_shape(l) &&
            kernel_arguments_read(self, &args->args, l->module, l->entry, (uint64_t)args->data_seed, &l->arguments))
            code = run_and_report(l);
    }
    for (int k = 0; l->results != NULL && k < args->args.count; k++) free(l->results[k].bytes);
    kernel_arguments_finish(l->arguments, args->args.count);
    emulator_module_destroy(l->module);
    free(l->parameters);
    free(l->results);
    free(l->executed);
    free(l->printed);
    free(fault);
    free(l);
    return code;
}
