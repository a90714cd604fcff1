/* What the interpreter executed of a kernel, by region of its text, beside the static counts of the generator. */
#ifndef FOSCAR_TOOLS_DYNAMIC_COUNTS_H
#define FOSCAR_TOOLS_DYNAMIC_COUNTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <cJSON.h>

#include "generate.h"

typedef struct dynamic_region {
    char region[64];           /* as in kernel_counts: "" is what lies outside all scopes */
    int instructions, covered; /* of the text; executed at least once */
    uint64_t executed;         /* by warps */
    uint64_t passes;           /* warps that executed its most executed instruction */
} dynamic_region;

typedef struct dynamic_counts {
    int regions;
    dynamic_region region[COUNT_REGIONS_MAX];
    dynamic_region sum;
    char missed[256]; /* lines that were never executed, "431-437, 502"; cut off if there are many */
} dynamic_counts;

/* All launches of an entry since the emulated driver last forgot them. False: there was none, or no memory. */
bool dynamic_counts_take(const char *entry, dynamic_counts *out);

typedef struct count_scale {
    const kernel_counts *statics; /* of the same kernel, or NULL if the text is not the generator's own */
    double elements;              /* cached elements of K and V that the launches worked on, whole blocks of tokens */
    double block_elements;        /* of a block of tokens and KV head */
} count_scale;

void dynamic_counts_print(const dynamic_counts *counts, const count_scale *scale, FILE *out);
cJSON *dynamic_counts_json(const dynamic_counts *counts, const count_scale *scale);

#endif
