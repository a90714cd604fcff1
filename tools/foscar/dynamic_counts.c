/* What the interpreter executed of a kernel, by region of its text, beside the static counts of the generator. */
#include "dynamic_counts.h"

#include <stdlib.h>
#include <string.h>

#include "emulated_driver.h"

enum { WARPS_OF_CONSUMER = 4, LANES_OF_WARP = 32 };

static dynamic_region *find_region(dynamic_counts *counts, const char *name)
{
    for (int r = 0; r < counts->regions; r++)
        if (strcmp(counts->region[r].region, name) == 0) return &counts->region[r];
    if (counts->regions == COUNT_REGIONS_MAX) return &counts->region[COUNT_REGIONS_MAX - 1];
    dynamic_region *made = &counts->region[counts->regions++];
    snprintf(made->region, sizeof made->region, "%s", name);
    return made;
}

static void add_instruction(dynamic_region *r, uint64_t executed)
{
    r->instructions++;
    r->covered += executed > 0;
    r->executed += executed;
    if (executed > r->passes) r->passes = executed;
}

/* Appends a run of lines to the list, while there is room. */
static void add_missed(dynamic_counts *counts, int first, int last)
{
    char range[32];
    size_t length = strlen(counts->missed);
    if (first == 0) return;
    if (first == last)
        snprintf(range, sizeof range, "%d", first);
    else
        snprintf(range, sizeof range, "%d-%d", first, last);
    if (length + strlen(range) + 8 < sizeof counts->missed)
        snprintf(counts->missed + length, sizeof counts->missed - length, "%s%s", length > 0 ? ", " : "", range);
    else if (strstr(counts->missed, "...") == NULL)
        snprintf(counts->missed + length, sizeof counts->missed - length, ", ...");
}

bool dynamic_counts_take(const char *entry, dynamic_counts *out)
{
    emulator_counts executed;
    const emulator_module *module;
    int number, first = 0, last = 0;
    memset(out, 0, sizeof *out);
    if (!emulated_driver_counts(entry, &executed, &module, &number)) return false;
    for (int i = 0; i + 1 < executed.count; i++) { /* the last one is the ret that stands in no text */
        emulator_instruction_info info;
        emulator_module_instruction_info(module, number, i, &info);
        const char *region = strcmp(info.region, entry) == 0 ? "" : info.region;
        add_instruction(find_region(out, region), executed.executed[i]);
        add_instruction(&out->sum, executed.executed[i]);
        if (executed.executed[i] == 0) {
            if (first == 0) first = info.line;
            last = info.line;
            continue;
        }
        add_missed(out, first, last);
        first = 0;
    }
    add_missed(out, first, last);
    emulator_counts_finish(&executed);
    return true;
}

static const region_count *find_static(const kernel_counts *statics, const char *name)
{
    if (statics == NULL) return NULL;
    for (int r = 0; r < statics->regions; r++)
        if (strcmp(statics->region[r].region, name) == 0) return &statics->region[r];
    return NULL;
}

/* Instructions of a warp that goes through a region once. */
static double per_pass(const dynamic_region *r)
{
    return r->passes > 0 ? (double)r->executed / (double)r->passes : 0;
}

static double per_element(const dynamic_region *r, const count_scale *scale)
{
    return scale->elements > 0 ? (double)r->executed * LANES_OF_WARP / scale->elements : 0;
}

static double static_per_element(const region_count *fixed, const count_scale *scale)
{
    return fixed->total * WARPS_OF_CONSUMER * LANES_OF_WARP / scale->block_elements;
}

static void print_row(const char *name, const dynamic_region *r, const region_count *fixed, const count_scale *scale,
                      FILE *out)
{
    char total[16] = ".", element[16] = ".";
    if (fixed != NULL) {
        snprintf(total, sizeof total, "%d", fixed->total);
        snprintf(element, sizeof element, "%.4f", static_per_element(fixed, scale));
    }
    fprintf(out, "%-32s%10s%10d%10.1f%14llu%12s%12.4f\n", name, total, r->instructions, per_pass(r),
            (unsigned long long)r->executed, element, per_element(r, scale));
}

void dynamic_counts_print(const dynamic_counts *counts, const count_scale *scale, FILE *out)
{
    fprintf(out,
            "\ninstructions by region: counted by the inspector, in the text, of a pass as executed, by all warps; "
            "thread instructions by cached element:\nif every block of tokens went through the region once, and as "
            "executed over %.0f elements\n%-32s%10s%10s%10s%14s%12s%12s\n",
            scale->elements, "region", "inspector", "text", "a pass", "warps", "an element", "executed");
    for (int r = 0; r < counts->regions; r++) {
        const dynamic_region *row = &counts->region[r];
        print_row(row->region[0] != '\0' ? row->region : "(outside all)", row, find_static(scale->statics, row->region),
                  scale, out);
    }
    fprintf(out, "%-32s%10s%10d%10s%14llu%12s%12.4f\n", "sum", "", counts->sum.instructions, "",
            (unsigned long long)counts->sum.executed, "", per_element(&counts->sum, scale));
}

static cJSON *row_json(const dynamic_region *r, const region_count *fixed, const count_scale *scale)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "region", r->region);
    if (fixed != NULL)
        cJSON_AddNumberToObject(json, "static", fixed->total);
    else
        cJSON_AddNullToObject(json, "static");
    cJSON_AddNumberToObject(json, "text", r->instructions);
    cJSON_AddNumberToObject(json, "per_pass", per_pass(r));
    cJSON_AddNumberToObject(json, "warps", (double)r->executed);
    if (fixed != NULL)
        cJSON_AddNumberToObject(json, "static_per_element", static_per_element(fixed, scale));
    else
        cJSON_AddNullToObject(json, "static_per_element");
    cJSON_AddNumberToObject(json, "per_element", per_element(r, scale));
    return json;
}

cJSON *dynamic_counts_json(const dynamic_counts *counts, const count_scale *scale)
{
    cJSON *json = cJSON_CreateObject(), *rows = cJSON_CreateArray();
    for (int r = 0; r < counts->regions; r++) {
        const dynamic_region *row = &counts->region[r];
        cJSON_AddItemToArray(rows, row_json(row, find_static(scale->statics, row->region), scale));
    }
    cJSON_AddItemToObject(json, "regions", rows);
    cJSON_AddNumberToObject(json, "warps", (double)counts->sum.executed);
    cJSON_AddNumberToObject(json, "per_element", per_element(&counts->sum, scale));
    cJSON_AddNumberToObject(json, "elements", scale->elements);
    return json;
}
