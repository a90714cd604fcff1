/* foscar doctor: what was found of driver, GPU, ptxas, NVRTC and nvdisasm, and how to get what is missing. */
#include "command.h"

#include <string.h>

#include "sass.h"

typedef struct doctor_arguments {
    bool json;
} doctor_arguments;

/* One line of the report. */
typedef struct finding {
    const char *name;
    char found[720]; /* empty: not found */
    char problem[512];
} finding;

enum { FINDINGS_MAX = 40 };

typedef struct report {
    finding findings[FINDINGS_MAX];
    int count;
} report;

static finding *add_finding(report *r, const char *name)
{
    finding *f = &r->findings[r->count < FINDINGS_MAX ? r->count++ : FINDINGS_MAX - 1];
    *f = (finding){.name = name};
    return f;
}

static void report_driver(report *r, const foscar_environment *env)
{
    finding *f = add_finding(r, "driver");
    if (env->driver_version == 0)
        snprintf(f->problem, sizeof f->problem, "%s", env->driver_problem);
    else
        snprintf(f->found, sizeof f->found, "CUDA %d.%d", env->driver_version / 1000, env->driver_version % 1000 / 10);
}

static void report_devices(report *r, foscar_runtime *runtime, const foscar_environment *env)
{
    if (env->driver_version != 0 && env->device_count == 0)
        snprintf(add_finding(r, "GPU")->problem, sizeof r->findings[0].problem,
                 "the driver sees no GPU; check nvidia-smi and CUDA_VISIBLE_DEVICES");
    for (int32_t i = 0; i < env->device_count; i++) {
        foscar_device_info info = {.struct_size = sizeof info};
        foscar_error err;
        finding *f = add_finding(r, "GPU");
        if (foscar_device_describe(runtime, i, &info, &err) != FOSCAR_OK) {
            snprintf(f->problem, sizeof f->problem, "%s", err.message);
            continue;
        }
        int used =
            snprintf(f->found, sizeof f->found, "%d: %s, compute capability %d.%d, %d SMs, %.0f GiB, L2 %.0f MiB",
                     (int)i, info.name, info.compute_capability / 10, info.compute_capability % 10, info.sm_count,
                     (double)info.memory_bytes / (1 << 30), info.l2_bytes / 1048576.0);
        const target *match = NULL;
        for (int t = 0; target_row(t) != NULL; t++)
            if (target_row(t)->compute_capability == info.compute_capability) match = target_row(t);
        if (used > 0 && (size_t)used < sizeof f->found)
            snprintf(f->found + used, sizeof f->found - (size_t)used,
                     match != NULL ? ", runs %s" : ", no kernels for it%s", match != NULL ? match->name : "");
    }
}

static void report_tools(report *r, const foscar_environment *env)
{
    finding *ptxas = add_finding(r, "ptxas");
    if (env->ptxas[0] != '\0')
        snprintf(ptxas->found, sizeof ptxas->found, "%s (%s)", env->ptxas, env->ptxas_build);
    else
        snprintf(ptxas->problem, sizeof ptxas->problem, "%s", env->ptxas_problem);
    finding *nvrtc = add_finding(r, "NVRTC");
    if (env->nvrtc[0] != '\0')
        snprintf(nvrtc->found, sizeof nvrtc->found, "%s (%d.%d)", env->nvrtc, env->nvrtc_version / 1000,
                 env->nvrtc_version % 1000 / 10);
    else
        snprintf(nvrtc->problem, sizeof nvrtc->problem, "%s", env->nvrtc_problem);
    finding *disassembler = add_finding(r, "nvdisasm");
    if (!sass_find_disassembler(disassembler->found, sizeof disassembler->found))
        snprintf(disassembler->problem, sizeof disassembler->problem,
                 "not found; only `inspect` uses it: install the CUDA toolkit, or run tools/setup_deps.sh, or set "
                 "FOSCAR_NVDISASM");
    finding *cache = add_finding(r, "disk cache");
    if (env->cache_problem[0] == '\0')
        snprintf(cache->found, sizeof cache->found, "%s", env->cache_directory);
    else
        snprintf(cache->problem, sizeof cache->problem, "%s", env->cache_problem);
}

static void print_report(const report *r, bool json)
{
    cJSON *rows = json ? cJSON_CreateArray() : NULL;
    for (int i = 0; i < r->count; i++) {
        const finding *f = &r->findings[i];
        bool found = f->found[0] != '\0';
        if (!json) {
            printf("%-11s %s %s\n", f->name, found ? "found  " : "MISSING", found ? f->found : f->problem);
            continue;
        }
        cJSON *row = cJSON_CreateObject();
        cJSON_AddStringToObject(row, "name", f->name);
        cJSON_AddBoolToObject(row, "found", found);
        cJSON_AddStringToObject(row, "detail", found ? f->found : f->problem);
        cJSON_AddItemToArray(rows, row);
    }
    if (json) tool_print_json(rows);
}

static tool_exit run_doctor(const command *self, int argc, char **argv)
{
    doctor_arguments args = {0};
    option_call call;
    if (!options_parse(self, argc, argv, &args, &call)) return call.code;
    foscar_runtime *runtime;
    foscar_error err;
    if (foscar_open(NULL, &runtime, &err) != FOSCAR_OK) return tool_fail_status(self, &err);
    static foscar_environment env;
    env.struct_size = sizeof env;
    if (foscar_describe(runtime, &env, &err) != FOSCAR_OK) {
        foscar_close(runtime);
        return tool_fail_status(self, &err);
    }
    static report r;
    report_driver(&r, &env);
    report_devices(&r, runtime, &env);
    report_tools(&r, &env);
    foscar_close(runtime);
    print_report(&r, args.json);
    bool complete = env.device_count > 0 && env.ptxas[0] != '\0' && env.nvrtc[0] != '\0';
    if (!args.json)
        printf("\n%s\n", complete ? "Everything that kernels need to run is here."
                                  : "Something that kernels need to run is missing.");
    return complete ? TOOL_OK : TOOL_ENVIRONMENT;
}

static const option options[] = {
    {.name = "--json", .kind = OPTION_FLAG, .offset = offsetof(doctor_arguments, json), .help = "the findings as JSON"},
};

const command command_doctor = {
    .name = "doctor",
    .arguments = "[--json]",
    .summary = "show what was found (driver, GPU, ptxas, NVRTC, nvdisasm) and how to get what is missing",
    .example = "foscar doctor",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = run_doctor,
};
