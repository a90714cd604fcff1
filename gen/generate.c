/* The generator's front: plan, check, emit, verify, print or count. */
#include "generate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../templates/decode_hopper.h"
#include "plan_check.h"
#include "ptx.h"

/* The finished and verified list of a configuration; the builder must be finished by the caller in every case. */
static bool build(const config *cfg, ptx_builder *b, decode_plan *plan, gen_error *err)
{
    bool planned = decode_plan_make(cfg, plan, err) && decode_plan_check(plan, err);
    ptx_builder_init(b, cfg->target, "foscar_decode", planned ? plan->threads : 0, planned ? plan->entry_registers : 0);
    if (!planned) return false;
    decode_hopper_emit(b, plan);
    return ptx_verify(b, err);
}

bool generate_decode(const config *cfg, kernel_text *out, gen_error *err)
{
    ptx_builder b;
    decode_plan plan;
    memset(out, 0, sizeof *out);
    bool ok = build(cfg, &b, &plan, err);
    if (ok) {
        out->ptx = ptx_print(&b, &out->length, err);
        ok = out->ptx != NULL;
    }
    if (ok) {
        snprintf(out->entry, sizeof out->entry, "%s", b.entry);
        out->threads = plan.threads;
        out->shared_bytes = plan.shared_bytes;
    }
    ptx_builder_finish(&b);
    return ok;
}

void kernel_text_finish(kernel_text *text)
{
    if (text == NULL) return;
    free(text->ptx);
    memset(text, 0, sizeof *text);
}

static bool ends_with(const char *path, const char *tail)
{
    size_t n = strlen(path), m = strlen(tail);
    return n >= m && strcmp(path + n - m, tail) == 0;
}

bool generate_counts(const config *cfg, kernel_counts *out, gen_error *err)
{
    ptx_builder b;
    decode_plan plan;
    memset(out, 0, sizeof *out);
    bool ok = build(cfg, &b, &plan, err);
    if (ok) {
        ptx_count(&b, out);
        double elements = (double)plan.block_tokens * cfg->head_dim, threads = 128;
        for (int r = 0; r < out->regions; r++) {
            const region_count *x = &out->region[r];
            if (strncmp(x->region, "loop", 4) != 0) continue;
            out->loop_instructions += x->total;
            double alu = threads * x->by_class[PTX_CLASS_ALU] / elements, fma = threads * x->by_class[PTX_CLASS_FMA] / elements;
            if (ends_with(x->region, "k/unpack")) out->alu_k += alu;
            if (ends_with(x->region, "v/unpack")) out->alu_v += alu;
            if (ends_with(x->region, "k/scale")) out->scale_k += fma;
            if (ends_with(x->region, "v/scale")) out->scale_v += fma;
        }
        out->alu_total = (out->alu_k + out->alu_v) / 2;
        out->scale_total = (out->scale_k + out->scale_v) / 2;
    }
    ptx_builder_finish(&b);
    return ok;
}
