/* The table of GPU architectures that kernels are generated for. */
#include "config.h"

#include <string.h>

static const target targets[] = {
    {.name = "sm_90a",
     .compute_capability = 90,
     .ptx_major = 8,
     .ptx_minor = 4,
     .shared_bytes = 232448, /* 227 KiB: 228 KiB of an SM less 1 KiB that the system keeps for each block */
     .registers = 65536},
};

enum { TARGETS = sizeof targets / sizeof *targets };

const target *target_row(int index)
{
    return index >= 0 && index < TARGETS ? &targets[index] : NULL;
}

const target *target_find(const char *name)
{
    for (int i = 0; i < TARGETS; i++)
        if (strcmp(targets[i].name, name) == 0) return &targets[i];
    return NULL;
}
