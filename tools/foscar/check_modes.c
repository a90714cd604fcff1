/* What the runs of each mode of the schedule found, as a table, in full and as JSON. */
#include "check.h"

#include <string.h>

void mode_add_finding(mode_result *m, uint64_t seed, const emulated_fault *fault, const char *text)
{
    if (m->findings++ > 0) return;
    m->seed = seed;
    m->is_fault = fault != NULL;
    if (fault != NULL) {
        m->fault = *fault;
        interpreter_describe(fault, m->text, sizeof m->text);
    } else
        snprintf(m->text, sizeof m->text, "%s", text);
}

bool mode_chosen(const check_arguments *args, int mode)
{
    return args->mode == 0 || args->mode == mode + 1;
}

int modes_findings(const mode_result modes[EMULATOR_SCHEDULE_COUNT])
{
    int findings = 0;
    for (int mode = 0; mode < EMULATOR_SCHEDULE_COUNT; mode++) findings += modes[mode].findings;
    return findings;
}

void modes_print(const mode_result modes[EMULATOR_SCHEDULE_COUNT])
{
    printf("%-20s%6s%10s  %s\n", "mode", "runs", "findings", "first finding");
    for (int mode = 0; mode < EMULATOR_SCHEDULE_COUNT; mode++) {
        const mode_result *m = &modes[mode];
        if (m->runs == 0) continue;
        printf("%-20s%6d%10d  ", emulator_schedule_name((emulator_schedule)mode), m->runs, m->findings);
        if (m->findings == 0)
            printf("-\n");
        else
            printf("seed %llu: %.100s\n", (unsigned long long)m->seed, m->text);
    }
}

/* Whether two modes found the same thing first: what differs is the schedule alone. */
static bool same_finding(const mode_result *a, const mode_result *b)
{
    if (a->findings == 0 || b->findings == 0 || a->is_fault != b->is_fault) return false;
    return a->is_fault ? a->fault.error.fault == b->fault.error.fault && a->fault.error.line == b->fault.error.line
                       : strcmp(a->text, b->text) == 0;
}

static void print_source_line(const char *text, int line)
{
    for (int n = 1; n < line && text != NULL; n++) {
        text = strchr(text, '\n');
        if (text != NULL) text++;
    }
    if (text == NULL || line < 1) return;
    while (*text == ' ' || *text == '\t') text++;
    printf("%8d | %.*s\n", line, (int)strcspn(text, "\r\n"), text);
}

void modes_print_findings(const mode_result modes[EMULATOR_SCHEDULE_COUNT], const char *text, const char *again,
                          const char *rest)
{
    for (int mode = 0; mode < EMULATOR_SCHEDULE_COUNT; mode++) {
        const mode_result *m = &modes[mode];
        bool told = m->findings == 0;
        for (int earlier = 0; earlier < mode; earlier++) told |= same_finding(&modes[earlier], m);
        if (told) continue;
        const char *name = emulator_schedule_name((emulator_schedule)mode);
        printf("\n%s, seed %llu: %s\n", name, (unsigned long long)m->seed, m->text);
        if (m->is_fault) print_source_line(text, m->fault.error.line);
        if (m->is_fault && m->fault.error.detail[0] != '\0') printf("%s\n", m->fault.error.detail);
        int others = 0;
        for (int later = mode + 1; later < EMULATOR_SCHEDULE_COUNT; later++)
            if (same_finding(m, &modes[later]))
                printf("%s%s", others++ > 0 ? ", " : "also: ", emulator_schedule_name((emulator_schedule)later));
        if (others > 0) putchar('\n');
        printf("again: %s --mode %s --schedules 1 --seed %llu%s\n", again, name, (unsigned long long)m->seed, rest);
    }
}

static cJSON *mode_json(const mode_result *m, int mode)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "mode", emulator_schedule_name((emulator_schedule)mode));
    cJSON_AddNumberToObject(json, "runs", m->runs);
    cJSON_AddNumberToObject(json, "findings", m->findings);
    if (m->findings == 0) {
        cJSON_AddNullToObject(json, "first");
        return json;
    }
    cJSON *first = m->is_fault ? interpreter_fault_json(&m->fault) : cJSON_CreateObject();
    if (!m->is_fault) {
        cJSON_AddStringToObject(first, "fault", "result");
        cJSON_AddStringToObject(first, "message", m->text);
    }
    cJSON_AddNumberToObject(first, "seed", (double)m->seed);
    cJSON_AddItemToObject(json, "first", first);
    return json;
}

cJSON *modes_json(const mode_result modes[EMULATOR_SCHEDULE_COUNT])
{
    cJSON *json = cJSON_CreateArray();
    for (int mode = 0; mode < EMULATOR_SCHEDULE_COUNT; mode++)
        if (modes[mode].runs > 0) cJSON_AddItemToArray(json, mode_json(&modes[mode], mode));
    return json;
}
