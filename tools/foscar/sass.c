/* Counts of machine instructions in a cubin, by way of nvdisasm. */
#include "sass.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file.h"
#include "process.h"
#include "tool_search.h"

bool sass_find_disassembler(char *path, size_t size)
{
    static const search_place places[] = {
        {"FOSCAR_NVDISASM", ""}, {"CUDA_HOME", "/bin/nvdisasm"},         {"CUDA_PATH", "/bin/nvdisasm"},
        {"PATH", "/nvdisasm"},   {NULL, "/usr/local/cuda/bin/nvdisasm"},
    };
    static const char *const wheels[] = {"nvidia/cu13/bin/nvdisasm", "nvidia/cuda_nvdisasm/bin/nvdisasm",
                                         "nvidia/cuda_nvcc/bin/nvdisasm"};
    char found[SEARCH_PATH_MAX] = "";
    bool ok = search_places(places, sizeof places / sizeof *places, search_accept_executable, found) ||
              search_wheels(wheels, sizeof wheels / sizeof *wheels, search_accept_executable, found);
    snprintf(path, size, "%s", ok ? found : "");
    return ok;
}

static void add_mnemonic(sass_counts *counts, const char *name, size_t length)
{
    if (length >= SASS_NAME_MAX) length = SASS_NAME_MAX - 1;
    counts->total++;
    for (int i = 0; i < counts->mnemonics; i++) {
        if (strncmp(counts->row[i].name, name, length) != 0 || counts->row[i].name[length] != '\0') continue;
        counts->row[i].count++;
        return;
    }
    if (counts->mnemonics == SASS_MNEMONICS_MAX) return;
    memcpy(counts->row[counts->mnemonics].name, name, length);
    counts->row[counts->mnemonics].name[length] = '\0';
    counts->row[counts->mnemonics++].count = 1;
}

/* An instruction's line is: spaces, a comment with its hexadecimal address, an optional predicate "@!P0", the opcode.
   NOPs after the end of a function are padding, and left out. */
static void count_line(sass_counts *counts, const char *line)
{
    line += strspn(line, " \t");
    if (strncmp(line, "/*", 2) != 0 || !isxdigit((unsigned char)line[2])) return;
    line = strstr(line, "*/");
    if (line == NULL) return;
    line += 2;
    line += strspn(line, " \t{");
    if (*line == '@') {
        line += strcspn(line, " \t");
        line += strspn(line, " \t");
    }
    size_t length = 0;
    while (isupper((unsigned char)line[length]) || isdigit((unsigned char)line[length]) || line[length] == '_')
        length++;
    if (length > 0 && !(length == 3 && memcmp(line, "NOP", 3) == 0)) add_mnemonic(counts, line, length);
}

static int by_count(const void *a, const void *b)
{
    const sass_row *x = a, *y = b;
    return x->count != y->count ? (x->count < y->count) - (x->count > y->count) : strcmp(x->name, y->name);
}

bool sass_count(const void *cubin, size_t bytes, sass_counts *out, char *reason, size_t reason_size)
{
    char tool[SEARCH_PATH_MAX];
    memset(out, 0, sizeof *out);
    if (!sass_find_disassembler(tool, sizeof tool)) {
        snprintf(reason, reason_size, "nvdisasm was not found (tools/setup_deps.sh gets it, or set FOSCAR_NVDISASM)");
        return false;
    }
    int input = process_memory_file("foscar.cubin", cubin, bytes);
    if (input < 0) {
        snprintf(reason, reason_size, "cannot make a file in memory: %s", file_reason(errno));
        return false;
    }
    const char *argv[] = {tool, "-c", "/dev/fd/3", NULL};
    process_result result;
    foscar_error err;
    bool ok = process_run(argv, input, -1, PROCESS_SECONDS, &result, &err) == FOSCAR_OK;
    if (!ok) snprintf(reason, reason_size, "%s", err.message);
    close(input);
    if (ok && result.timed_out) {
        snprintf(reason, reason_size, "%s had not ended after %d s and was killed", tool, PROCESS_SECONDS);
        process_result_finish(&result);
        ok = false;
    } else if (ok) {
        for (char *line = strtok(result.log, "\n"); line != NULL; line = strtok(NULL, "\n")) count_line(out, line);
        qsort(out->row, (size_t)out->mnemonics, sizeof *out->row, by_count);
        ok = result.exit_status == 0 && out->total > 0;
        if (!ok) snprintf(reason, reason_size, "%s failed (exit status %d)", tool, result.exit_status);
        process_result_finish(&result);
    }
    return ok;
}
