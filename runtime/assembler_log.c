/* The messages of ptxas: resource usage, and the notes that mean a kernel is not what was asked for. */
#include "assembler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_BYTES = 384 };

/* Notes that no flag turns into errors (-Werror does not reach them). */
static const struct note {
    int first, last;
    const char *meaning;
} notes[] = {
    {7504, 7504, "setmaxnreg is ignored: the text was compiled as relocatable"},
    {7506, 7506, "setmaxnreg is ignored: the register count of the entry is not known"},
    {7508, 7508, "setmaxnreg is ignored"},
    {7510, 7519, "wgmma is serialised or has fences added"},
};

/* Copies the next line of *text, without its end and its leading blanks, and moves *text behind it; false at the end. */
static bool next_line(const char **text, char *line, size_t size)
{
    size_t length, kept;
    if (**text == '\0') return false;
    length = strcspn(*text, "\n");
    const char *begin = *text;
    *text += length + ((*text)[length] == '\n');
    while (length > 0 && (*begin == ' ' || *begin == '\t')) begin++, length--;
    kept = length < size - 1 ? length : size - 1;
    memcpy(line, begin, kept);
    line[kept] = '\0';
    return true;
}

void assembler_first_error(const char *log, char *line, size_t size)
{
    char candidate[LINE_MAX_BYTES], first[LINE_MAX_BYTES] = "";
    const char *text = log;
    while (next_line(&text, candidate, sizeof candidate)) {
        if (first[0] == '\0') memcpy(first, candidate, sizeof first);
        if (strstr(candidate, "error") != NULL || strstr(candidate, "fatal") != NULL) {
            snprintf(line, size, "%s", candidate);
            return;
        }
    }
    snprintf(line, size, "%s", first[0] != '\0' ? first : "it said nothing");
}

static const struct note *bad_note(const char *line)
{
    const char *c = strstr(line, "(C7");
    int number = c != NULL ? atoi(c + 2) : 0;
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++)
        if (number >= notes[i].first && number <= notes[i].last) return &notes[i];
    return NULL;
}

static void raise_to(int32_t *largest, int value)
{
    if (value > *largest) *largest = value;
}

foscar_status assembler_check_log(const char *tool, const char *log, assembler_usage *usage, foscar_error *err)
{
    char line[LINE_MAX_BYTES], entry[128] = "?";
    memset(usage, 0, sizeof *usage);
    while (next_line(&log, line, sizeof line)) {
        int stack = 0, stores = 0, loads = 0, registers = 0;
        const struct note *note = bad_note(line);
        const char *used = strstr(line, "Used ");
        const char *name = strstr(line, "Function properties for ");
        if (note != NULL)
            return status_fail(err, FOSCAR_ASSEMBLY_FAILED, "%s: %s; it says: %s", tool, note->meaning, line);
        if (name != NULL) sscanf(name, "Function properties for %127s", entry);
        if (used != NULL && sscanf(used, "Used %d registers", &registers) == 1)
            raise_to(&usage->registers, registers);
        if (sscanf(line, "%d bytes stack frame, %d bytes spill stores, %d bytes spill loads", &stack, &stores, &loads) !=
            3)
            continue;
        raise_to(&usage->stack_bytes, stack);
        raise_to(&usage->spill_bytes, stores > loads ? stores : loads);
        if (stack > 0 || stores > 0 || loads > 0)
            return status_fail(err, FOSCAR_ASSEMBLY_FAILED, "%s: %s keeps registers in memory; it says: %s", tool,
                               entry, line);
    }
    return FOSCAR_OK;
}
