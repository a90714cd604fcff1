/* The counter: instructions by region and class, each counting one. */
#include "ptx.h"

#include <stdio.h>
#include <string.h>

void ptx_count(const ptx_builder *b, kernel_counts *out)
{
    memset(out, 0, sizeof *out);
    out->regions = b->regions;
    for (int r = 0; r < b->regions; r++) snprintf(out->region[r].region, sizeof out->region[r].region, "%s", b->region[r].path);
    snprintf(out->sum.region, sizeof out->sum.region, "%s", b->entry);
    for (size_t i = 0; i < b->count; i++) {
        const ptx_instruction *x = &b->list[i];
        if (x->op == PTX_OP_label) continue;
        ptx_class class = ptx_ops[x->op].class;
        out->region[x->region].by_class[class]++;
        out->region[x->region].total++;
        out->sum.by_class[class]++;
        out->sum.total++;
    }
}
