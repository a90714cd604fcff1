/* foscar inspect: what a decode kernel is made of: PTX by region, work per cached element, registers, shared memory,
 * occupancy, machine code. */
#include "command.h"

#include <stdlib.h>
#include <string.h>

#include "generate.h"
#include "plan.h"
#include "sass.h"

typedef struct inspect_arguments {
    bool json, no_assemble, sass;
} inspect_arguments;

/* Everything that is printed, found before anything is. */
typedef struct inspection {
    char spec[CONFIG_SPEC_MAX];
    decode_plan plan;
    kernel_counts counts;
    bool assembled;
    int registers, spill_bytes, stack_bytes, blocks_per_sm;
    char assembler_problem[512];
    bool disassembled;
    sass_counts sass;
    char sass_problem[512];
} inspection;

/* Blocks of one SM, by shared memory (1 KiB of an SM goes to each block), registers (allocated by warp, in units of 8 a
 * thread) and threads. */
static int blocks_per_sm(const target *t, int threads, int registers, uint32_t shared_bytes)
{
    enum { SYSTEM_SHARED = 1024, SM_THREADS = 2048 };
    int by_shared = (t->shared_bytes + SYSTEM_SHARED) / ((int)shared_bytes + SYSTEM_SHARED);
    int by_threads = SM_THREADS / threads, by_registers = t->registers / ((registers + 7) / 8 * 8 * threads);
    int least = by_shared < by_threads ? by_shared : by_threads;
    return least < by_registers ? least : by_registers;
}

/* OK; ENVIRONMENT when there is no ptxas, which leaves the rest of the inspection good; FAILED when the kernel is
 * refused. */
static tool_exit assemble(const command *self, inspection *in)
{
    foscar_runtime *runtime;
    foscar_error err;
    foscar_image image = {.struct_size = sizeof image};
    if (foscar_open(NULL, &runtime, &err) != FOSCAR_OK) return tool_fail_status(self, &err);
    tool_exit code = tool_exit_of(foscar_assemble(runtime, in->spec, FOSCAR_PART_DECODE, &image, &err));
    if (code == TOOL_OK) {
        in->assembled = true;
        in->registers = image.registers;
        in->spill_bytes = image.spill_bytes;
        in->stack_bytes = image.stack_bytes;
        in->blocks_per_sm =
            blocks_per_sm(in->plan.cfg.target, in->plan.threads, image.registers, in->plan.shared_bytes);
        in->disassembled = sass_count(image.cubin, image.bytes, &in->sass, in->sass_problem, sizeof in->sass_problem);
        foscar_image_finish(&image);
    } else {
        tool_fail_status(self, &err);
        snprintf(in->assembler_problem, sizeof in->assembler_problem, "%s", err.message);
    }
    foscar_close(runtime);
    return code;
}

static double elements(const decode_plan *plan)
{
    return 2.0 * plan->block_tokens * plan->cfg.head_dim;
}

static void print_regions(const kernel_counts *counts)
{
    static const char *const names[] = {
#define CLASS(id, name, meaning) name,
        PTX_CLASSES(CLASS)
#undef CLASS
    };
    printf("\nPTX instructions by region, a thread, each once\n%-32s%7s", "region", "total");
    for (int c = 0; c < PTX_CLASS_COUNT; c++) printf("%8s", names[c]);
    printf("\n");
    for (int r = 0; r <= counts->regions; r++) {
        const region_count *row = r < counts->regions ? &counts->region[r] : &counts->sum;
        printf("%-32s%7d",
               r == counts->regions     ? "sum"
               : row->region[0] != '\0' ? row->region
                                        : "(outside all)",
               row->total);
        for (int c = 0; c < PTX_CLASS_COUNT; c++) {
            if (row->by_class[c] > 0)
                printf("%8d", row->by_class[c]);
            else
                printf("%8s", ".");
        }
        printf("\n");
    }
}

static void print_elements(const inspection *in)
{
    const kernel_counts *c = &in->counts;
    printf("\nper cached element, from the instructions of the main loop\n%-44s%9s%9s%9s\n", "", "K", "V", "total");
    printf("%-44s%9.4f%9.4f%9.4f\n", "ALU instructions of unpacking", c->alu_k, c->alu_v, c->alu_total);
    printf("%-44s%9.4f%9.4f%9.4f\n", "scale-and-offset operations", c->scale_k, c->scale_v, c->scale_total);
    printf("%-44s%9.4f%9.4f%9.4f\n", "scale-and-offset operations without folding", 1.0, 1.0, 1.0);
    printf("%-44s%27.4f\n", "all instructions of a consumer", c->loop_instructions * 128.0 / elements(&in->plan));
    printf("%-44s%27.4f\n", "bytes read",
           in->plan.page.bytes / (2.0 * in->plan.cfg.page_tokens * in->plan.cfg.head_dim));
}

static void print_launch(const inspection *in)
{
    const decode_plan *p = &in->plan;
    printf("%s\n\n", in->spec);
    printf("threads        %d: %d consumer warpgroups and a producer warpgroup\n", p->threads, p->consumers);
    if (in->assembled)
        printf("registers      %d at the entry, then %d a consumer thread and %d a producer thread; spill %d bytes, "
               "stack %d bytes\n",
               in->registers, p->consumer_registers, p->producer_registers, in->spill_bytes, in->stack_bytes);
    else
        printf("registers      not known: %s\n",
               in->assembler_problem[0] != '\0' ? in->assembler_problem : "not assembled");
    printf("shared memory  %u bytes of %d\n", (unsigned)p->shared_bytes, p->cfg.target->shared_bytes);
    if (in->assembled)
        printf("occupancy      %d block%s an SM, %d of 64 warps\n", in->blocks_per_sm,
               in->blocks_per_sm == 1 ? "" : "s", in->blocks_per_sm * p->threads / 32);
    printf("tensor core    %d instructions\n", in->counts.sum.by_class[PTX_CLASS_TENSOR]);
}

static void print_sass(const inspection *in, bool all)
{
    if (!in->assembled) return;
    if (!in->disassembled) {
        printf("\nmachine code: %s\n", in->sass_problem);
        return;
    }
    int shown = all || in->sass.mnemonics < 16 ? in->sass.mnemonics : 16;
    printf("\nmachine instructions: %d\n", in->sass.total);
    for (int i = 0; i < shown; i++)
        printf("%s%-10s%6d%s", i % 6 == 0 ? "  " : "   ", in->sass.row[i].name, in->sass.row[i].count,
               i % 6 == 5 ? "\n" : "");
    if (shown % 6 != 0) printf("\n");
    if (shown < in->sass.mnemonics) printf("  and %d more mnemonics (--sass)\n", in->sass.mnemonics - shown);
}

static cJSON *triple_json(double k, double v, double total)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "k", k);
    cJSON_AddNumberToObject(json, "v", v);
    cJSON_AddNumberToObject(json, "total", total);
    return json;
}

static cJSON *region_json(const region_count *region)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "region", region->region);
    cJSON_AddNumberToObject(json, "total", region->total);
#define CLASS(id, name, meaning) cJSON_AddNumberToObject(json, name, region->by_class[PTX_CLASS_##id]);
    PTX_CLASSES(CLASS)
#undef CLASS
    return json;
}

/* A number, or null where the kernel was not assembled. */
static void add_known(cJSON *json, const char *name, bool known, double value)
{
    if (known)
        cJSON_AddNumberToObject(json, name, value);
    else
        cJSON_AddNullToObject(json, name);
}

static void print_json(const inspection *in)
{
    const kernel_counts *c = &in->counts;
    cJSON *json = cJSON_CreateObject(), *regions = cJSON_CreateArray();
    cJSON_AddStringToObject(json, "spec", in->spec);
    cJSON_AddItemToObject(json, "alu_per_element", triple_json(c->alu_k, c->alu_v, c->alu_total));
    cJSON_AddItemToObject(json, "scale_ops_per_element", triple_json(c->scale_k, c->scale_v, c->scale_total));
    cJSON_AddItemToObject(json, "scale_ops_per_element_unfolded", triple_json(1.0, 1.0, 1.0));
    cJSON_AddNumberToObject(json, "instructions_per_element", c->loop_instructions * 128.0 / elements(&in->plan));
    cJSON_AddNumberToObject(json, "tensor_instructions", c->sum.by_class[PTX_CLASS_TENSOR]);
    cJSON_AddNumberToObject(json, "threads", in->plan.threads);
    cJSON_AddNumberToObject(json, "shared_bytes", in->plan.shared_bytes);
    cJSON_AddNumberToObject(json, "consumer_registers", in->plan.consumer_registers);
    cJSON_AddNumberToObject(json, "producer_registers", in->plan.producer_registers);
    add_known(json, "registers", in->assembled, in->registers);
    add_known(json, "spill_bytes", in->assembled, in->spill_bytes);
    add_known(json, "stack_bytes", in->assembled, in->stack_bytes);
    add_known(json, "blocks_per_sm", in->assembled, in->blocks_per_sm);
    for (int r = 0; r < c->regions; r++) cJSON_AddItemToArray(regions, region_json(&c->region[r]));
    cJSON_AddItemToObject(json, "regions", regions);
    cJSON_AddItemToObject(json, "sum", region_json(&c->sum));
    if (in->disassembled) {
        cJSON *sass = cJSON_AddObjectToObject(json, "sass");
        cJSON_AddNumberToObject(sass, "total", in->sass.total);
        for (int i = 0; i < in->sass.mnemonics; i++)
            cJSON_AddNumberToObject(sass, in->sass.row[i].name, in->sass.row[i].count);
    } else
        cJSON_AddNullToObject(json, "sass");
    tool_print_json(json);
}

static tool_exit run_inspect(const command *self, int argc, char **argv)
{
    inspect_arguments args = {0};
    option_call call;
    tool_exit code;
    config cfg;
    gen_error err;
    if (!options_parse(self, argc, argv, &args, &call)) return call.code;
    if (args.no_assemble && !options_refuse(self, &call, "--sass", "with --no-assemble: there is no machine code"))
        return TOOL_USAGE;
    if (!tool_parse_spec(self, argv[0], &cfg)) return TOOL_USAGE;
    inspection *in = tool_allocate(sizeof *in);
    config_format(&cfg, in->spec);
    if (!decode_plan_make(&cfg, &in->plan, &err) || !generate_counts(&cfg, &in->counts, &err)) {
        free(in);
        return tool_fail(self, TOOL_FAILED, "%s", err.message);
    }
    if (!args.no_assemble)
        code = assemble(self, in);
    else
        code = TOOL_OK;
    if (args.json)
        print_json(in);
    else {
        print_launch(in);
        print_elements(in);
        print_regions(&in->counts);
        print_sass(in, args.sass);
    }
    free(in);
    return code;
}

static const option options[] = {
    {.name = "--json",
     .kind = OPTION_FLAG,
     .offset = offsetof(inspect_arguments, json),
     .help = "the same numbers as JSON"},
    {.name = "--sass",
     .kind = OPTION_FLAG,
     .offset = offsetof(inspect_arguments, sass),
     .help = "every mnemonic of the machine code, not only the most frequent"},
    {.name = "--no-assemble",
     .kind = OPTION_FLAG,
     .offset = offsetof(inspect_arguments, no_assemble),
     .help = "count the PTX only; needs no ptxas"},
};

const command command_inspect = {
    .name = "inspect",
    .arguments = "SPEC [--json] [--sass] [--no-assemble]",
    .summary =
        "count a decode kernel's instructions by region and element; show registers, shared memory and machine code",
    .example = "foscar inspect sm_90a-k2t128-v2t128-d128-h8-p64",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .least = 1,
    .most = 1,
    .run = run_inspect,
};
