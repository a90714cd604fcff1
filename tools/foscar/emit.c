/* foscar emit: the PTX of one kernel, or of the whole grid. */
#include "command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "generate.h"
#include "plan.h"

typedef struct emit_arguments {
    const char *output;
    bool plan, all;
} emit_arguments;

static tool_exit emit_plan(const command *self, const config *cfg, const char *output)
{
    decode_plan plan;
    gen_error err;
    if (!decode_plan_make(cfg, &plan, &err)) return tool_fail(self, TOOL_FAILED, "%s", err.message);
    char *text = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&text, &length);
    if (memory == NULL) return tool_fail(self, TOOL_FAILED, "out of memory");
    decode_plan_print(&plan, memory);
    tool_exit code = TOOL_OK;
    if (fclose(memory) != 0)
        code = tool_fail(self, TOOL_FAILED, "out of memory");
    else if (output == NULL)
        tool_print_text(text, length);
    else if (!tool_write_file(self, output, text, length))
        code = TOOL_FAILED;
    free(text);
    return code;
}

static tool_exit emit_ptx(const command *self, const config *cfg, const char *output)
{
    kernel_text text = {0};
    gen_error err;
    if (!generate_decode(cfg, &text, &err)) return tool_fail(self, TOOL_FAILED, "%s", err.message);
    tool_exit code = TOOL_OK;
    if (output == NULL)
        tool_print_text(text.ptx, text.length);
    else if (!tool_write_file(self, output, text.ptx, text.length))
        code = TOOL_FAILED;
    kernel_text_finish(&text);
    return code;
}

/* Writes DIRECTORY/SPEC.ptx for every spec of the grid. */
static tool_exit emit_all(const command *self, const char *directory)
{
    if (mkdir(directory, 0777) != 0 && errno != EEXIST)
        return tool_fail_with(self, TOOL_FAILED, tool_file_details(directory), "cannot make the folder %s: %s",
                              directory, strerror(errno));
    for (int i = 0; i < registry_size(); i++) {
        config cfg;
        char spec[CONFIG_SPEC_MAX], path[4096];
        registry_config(i, &cfg);
        config_format(&cfg, spec);
        if (snprintf(path, sizeof path, "%s/%s.ptx", directory, spec) >= (int)sizeof path)
            return tool_fail(self, TOOL_FAILED, "the path %.60s... is too long", directory);
        tool_exit code = emit_ptx(self, &cfg, path);
        if (code != TOOL_OK) return code;
    }
    return TOOL_OK;
}

static tool_exit run_emit(const command *self, int argc, char **argv)
{
    emit_arguments args = {0};
    option_call call;
    if (!options_parse(self, argc, argv, &args, &call)) return call.code;
    if (args.all) {
        if (call.operands != 0 || args.plan || args.output == NULL)
            return tool_fail(self, TOOL_USAGE, "--all takes no spec and needs -o DIRECTORY");
        return emit_all(self, args.output);
    }
    config cfg;
    if (call.operands != 1) return tool_fail(self, TOOL_USAGE, "usage: foscar %s %s", self->name, self->arguments);
    if (!tool_parse_spec(self, argv[0], &cfg)) return TOOL_USAGE;
    return args.plan ? emit_plan(self, &cfg, args.output) : emit_ptx(self, &cfg, args.output);
}

static const option options[] = {
    {.name = "--plan",
     .kind = OPTION_FLAG,
     .offset = offsetof(emit_arguments, plan),
     .help = "the plan (launch shape, shared-memory map, limbs) instead of PTX"},
    {.name = "--output",
     .alias = "-o",
     .kind = OPTION_TEXT,
     .offset = offsetof(emit_arguments, output),
     .value = "FILE",
     .help = "write there instead of to standard output; replaced only when complete"},
    {.name = "--all",
     .kind = OPTION_FLAG,
     .offset = offsetof(emit_arguments, all),
     .help = "the whole grid, as SPEC.ptx in the folder given by -o"},
};

const command command_emit = {
    .name = "emit",
    .arguments = "SPEC [--plan] [-o FILE] | --all -o DIRECTORY",
    .summary = "print the PTX of a decode kernel, or its plan",
    .example = "foscar emit sm_90a-k2t128-v2t128-d128-h8-p64 -o kernel.ptx",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .least = 0,
    .most = 1,
    .run = run_emit,
};
