/* A runtime over the PTX interpreter, for `run --cpu` and `check`, and how its faults are told. */
#include "interpreter.h"

#include "toolkit.h"

bool interpreter_open(const emulated_options *options, foscar_runtime **runtime, foscar_error *err)
{
    driver cuda;
    *runtime = NULL;
    if (emulated_driver_create(options, &cuda, err) != FOSCAR_OK) return false;
    if (toolkit_open_with_driver(NULL, &cuda, runtime, err) == FOSCAR_OK) return true;
    emulated_driver_destroy();
    return false;
}

void interpreter_close(foscar_runtime *runtime)
{
    if (runtime == NULL) return;
    foscar_close(runtime);
    emulated_driver_destroy();
}

void interpreter_describe(const emulated_fault *fault, char *text, size_t size)
{
    const emulator_error *e = &fault->error;
    char line[32] = "", entry[80] = "", block[32] = "", warp[32] = "";
    if (e->line > 0) snprintf(line, sizeof line, " at line %d", e->line);
    if (fault->entry[0] != '\0') snprintf(entry, sizeof entry, " of %s", fault->entry);
    if (e->block >= 0 && fault->entry[0] != '\0') snprintf(block, sizeof block, ", block %d", e->block);
    if (e->warp >= 0 && fault->entry[0] != '\0') snprintf(warp, sizeof warp, ", warp %d", e->warp);
    snprintf(text, size, "%s%s%s%s%s: %s", emulator_fault_name(e->fault), line, entry, block, warp, e->message);
}

tool_exit interpreter_report(const command *c, const char *file, const emulated_fault *fault)
{
    char text[EMULATOR_MESSAGE_MAX + 256];
    cJSON *details = interpreter_fault_json(fault);
    interpreter_describe(fault, text, sizeof text);
    if (file != NULL) cJSON_AddStringToObject(details, "file", file);
    tool_fail_with(c, TOOL_FAILED, details, "%s", text);
    if (fault->error.detail[0] != '\0') fprintf(stderr, "%s\n", fault->error.detail);
    return TOOL_FAILED;
}

cJSON *interpreter_fault_json(const emulated_fault *fault)
{
    const emulator_error *e = &fault->error;
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "fault", emulator_fault_name(e->fault));
    cJSON_AddStringToObject(json, "entry", fault->entry);
    cJSON_AddNumberToObject(json, "line", e->line);
    cJSON_AddNumberToObject(json, "block", e->block);
    cJSON_AddNumberToObject(json, "warp", e->warp);
    cJSON_AddStringToObject(json, "message", e->message);
    cJSON_AddStringToObject(json, "detail", e->detail);
    return json;
}
