/* foscar list: what can be generated. */
#include "command.h"

#include <stdlib.h>
#include <string.h>

#include "fragment.h"

typedef struct list_arguments {
    bool specs, json;
} list_arguments;

/* One line of the table: everything of the grid that shares target, schemes and head dimension. */
typedef struct list_line {
    config first;
    int heads[32], head_count;
    int pages[8], page_count;
    int q_types[NUMBER_TYPES], q_count, o_types[NUMBER_TYPES], o_count;
} list_line;

static void add_number(int *values, int *count, int room, int value)
{
    for (int i = 0; i < *count; i++)
        if (values[i] == value) return;
    if (*count < room) values[(*count)++] = value;
}

static bool same_line(const config *a, const config *b)
{
    return a->target == b->target && a->k.codes == b->k.codes && a->k.direction == b->k.direction &&
           a->k.group == b->k.group && a->v.codes == b->v.codes && a->v.direction == b->v.direction &&
           a->v.group == b->v.group && a->head_dim == b->head_dim;
}

static int collect_lines(list_line *lines)
{
    int count = 0;
    for (int i = 0; i < registry_size(); i++) {
        config cfg;
        registry_config(i, &cfg);
        int at = 0;
        while (at < count && !same_line(&lines[at].first, &cfg)) at++;
        if (at == count) lines[count++].first = cfg;
        add_number(lines[at].heads, &lines[at].head_count, 32, cfg.heads);
        add_number(lines[at].pages, &lines[at].page_count, 8, cfg.page_tokens);
        add_number(lines[at].q_types, &lines[at].q_count, NUMBER_TYPES, (int)cfg.q_type);
        add_number(lines[at].o_types, &lines[at].o_count, NUMBER_TYPES, (int)cfg.o_type);
    }
    return count;
}

static void print_scheme(const scheme *s)
{
    char text[48];
    snprintf(text, sizeof text, "%d-bit %s %d", s->codes->bits, grouping_info(s->direction)->name, s->group);
    printf("%-22s", text);
}

/* Numbers, or the names of number types, with commas, in a column. */
static void print_set(const int *values, int count, bool types, int width)
{
    for (int i = 0; i < count; i++) {
        const char *comma = i > 0 ? "," : "";
        width -=
            types ? printf("%s%s", comma, number_info((number_type)values[i])->name) : printf("%s%d", comma, values[i]);
    }
    printf("%*s", width > 0 ? width : 0, "");
}

static void print_table(void)
{
    list_line *lines = tool_allocate((size_t)registry_size() * sizeof *lines);
    int count = collect_lines(lines);
    printf("%-8s%-22s%-22s%-5s%-29s%-12s%-10s%s\n", "target", "K", "V", "d", "query heads per KV head", "page", "Q",
           "out");
    for (int i = 0; i < count; i++) {
        const config *cfg = &lines[i].first;
        printf("%-8s", cfg->target->name);
        print_scheme(&cfg->k);
        print_scheme(&cfg->v);
        printf("%-5d", cfg->head_dim);
        print_set(lines[i].heads, lines[i].head_count, false, 29);
        print_set(lines[i].pages, lines[i].page_count, false, 12);
        print_set(lines[i].q_types, lines[i].q_count, true, 10);
        print_set(lines[i].o_types, lines[i].o_count, true, 0);
        printf("\n");
    }
    printf("\nK and V: bits, direction and size of a group; page: tokens. This is the tested grid of %d specs ('foscar "
           "list --specs'); every other\n"
           "number of query heads from 1 to 16 and every pair of types is made too.\n",
           registry_size());
    free(lines);
}

static cJSON *spec_json(const config *cfg)
{
    char spec[CONFIG_SPEC_MAX];
    config_format(cfg, spec);
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "spec", spec);
    cJSON_AddStringToObject(row, "target", cfg->target->name);
    cJSON_AddNumberToObject(row, "k_bits", cfg->k.codes->bits);
    cJSON_AddNumberToObject(row, "v_bits", cfg->v.codes->bits);
    cJSON_AddNumberToObject(row, "head_dim", cfg->head_dim);
    cJSON_AddNumberToObject(row, "heads", cfg->heads);
    cJSON_AddNumberToObject(row, "page_tokens", cfg->page_tokens);
    cJSON_AddNumberToObject(row, "page_bytes", fragment_page_layout(cfg).bytes);
    cJSON_AddStringToObject(row, "q_type", number_info(cfg->q_type)->name);
    cJSON_AddStringToObject(row, "o_type", number_info(cfg->o_type)->name);
    return row;
}

static tool_exit run_list(const command *self, int argc, char **argv)
{
    list_arguments args = {0};
    option_call call;
    if (!options_parse(self, argc, argv, &args, &call)) return call.code;
    if (!args.specs && !args.json) {
        print_table();
        return TOOL_OK;
    }
    cJSON *rows = args.json ? cJSON_CreateArray() : NULL;
    for (int i = 0; i < registry_size(); i++) {
        config cfg;
        char spec[CONFIG_SPEC_MAX];
        registry_config(i, &cfg);
        config_format(&cfg, spec);
        if (args.json)
            cJSON_AddItemToArray(rows, spec_json(&cfg));
        else
            puts(spec);
    }
    if (args.json) tool_print_json(rows);
    return TOOL_OK;
}

static const option options[] = {
    {.name = "--specs",
     .kind = OPTION_FLAG,
     .offset = offsetof(list_arguments, specs),
     .help = "every spec of the grid, one a line"},
    {.name = "--json",
     .kind = OPTION_FLAG,
     .offset = offsetof(list_arguments, json),
     .help = "every spec of the grid with its numbers, as JSON"},
};

const command command_list = {
    .name = "list",
    .arguments = "[--specs | --json]",
    .summary = "list what can be generated",
    .example = "foscar list --specs | head -3",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = run_list,
};
