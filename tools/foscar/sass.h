/* Counts of machine instructions in a cubin, by way of nvdisasm. */
#ifndef FOSCAR_TOOLS_SASS_H
#define FOSCAR_TOOLS_SASS_H

#include <stdbool.h>
#include <stddef.h>

enum { SASS_MNEMONICS_MAX = 256, SASS_NAME_MAX = 24 };

typedef struct sass_row {
    char name[SASS_NAME_MAX];
    int count;
} sass_row;

/* Static counts, most frequent first; a mnemonic is an opcode without its modifiers ("LOP3" of LOP3.LUT). */
typedef struct sass_counts {
    int total, mnemonics;
    sass_row row[SASS_MNEMONICS_MAX];
} sass_counts;

/* Finds nvdisasm: $FOSCAR_NVDISASM, $CUDA_HOME/bin, $PATH, /usr/local/cuda/bin, Python wheels, ./.deps. path is empty
 * when there is none. */
bool sass_find_disassembler(char *path, size_t size);

/* False when nvdisasm is missing or fails; then reason holds one line. */
bool sass_count(const void *cubin, size_t bytes, sass_counts *out, char *reason, size_t reason_size);

#endif
