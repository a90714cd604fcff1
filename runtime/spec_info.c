/* Questions about a spec that need neither driver nor tools: validity, sizes, versions. */
#include <stdio.h>
#include <string.h>

#include "runtime.h"

_Static_assert((int)FOSCAR_SPEC_MAX == (int)CONFIG_SPEC_MAX, "the public buffer holds what config_format writes");
_Static_assert((int)FOSCAR_BF16 == (int)NUMBER_BF16 && (int)FOSCAR_F16 == (int)NUMBER_F16 &&
                   (int)FOSCAR_F32 == (int)NUMBER_F32,
               "foscar_number mirrors number_type");

#define TEXT(x)        #x
#define VERSION(a, b, c) TEXT(a) "." TEXT(b) "." TEXT(c)

const char *foscar_version(void)
{
    return VERSION(FOSCAR_VERSION_MAJOR, FOSCAR_VERSION_MINOR, FOSCAR_VERSION_PATCH);
}

uint32_t foscar_layout_version(void)
{
    return LAYOUT_VERSION;
}

foscar_status runtime_plan(const char *spec, decode_plan *plan, foscar_error *err)
{
    config cfg;
    gen_error problem = {""};
    if (spec == NULL) return status_fail(err, FOSCAR_INVALID_SPEC, "the spec is NULL");
    if (config_parse(spec, &cfg, &problem) && decode_plan_make(&cfg, plan, &problem)) return FOSCAR_OK;
    return status_fail(err, FOSCAR_INVALID_SPEC, "%s", problem.message);
}

kernel_shape kernel_shape_make(const decode_plan *plan, int blocks)
{
    kernel_shape shape = {
        .cfg = plan->cfg,
        .page_bytes = plan->page.bytes,
        .workspace_bytes = decode_workspace_bytes(plan, blocks),
        .blocks = blocks,
        .consumers = plan->consumers,
    };
    return shape;
}

foscar_status foscar_spec_check(const char *spec, char canonical[FOSCAR_SPEC_MAX], foscar_error *err)
{
    decode_plan plan;
    foscar_status status = runtime_plan(spec, &plan, err);
    if (status == FOSCAR_OK && canonical != NULL) config_format(&plan.cfg, canonical);
    return status;
}

foscar_status foscar_spec_describe(const char *spec, foscar_spec_info *info, foscar_error *err)
{
    decode_plan plan;
    foscar_status status = runtime_plan(spec, &plan, err);
    if (status != FOSCAR_OK) return status;
    foscar_spec_info ours = {
        .compute_capability = plan.cfg.target->compute_capability,
        .k_bits = plan.cfg.k.codes->bits,
        .v_bits = plan.cfg.v.codes->bits,
        .head_dim = plan.cfg.head_dim,
        .heads = plan.cfg.heads,
        .page_tokens = plan.cfg.page_tokens,
        .q_type = (foscar_number)plan.cfg.q_type,
        .o_type = (foscar_number)plan.cfg.o_type,
        .page_bytes = plan.page.bytes,
        .k_codes = plan.page.k_codes,
        .v_codes = plan.page.v_codes,
        .k_metadata = plan.page.k_metadata,
        .v_metadata = plan.page.v_metadata,
    };
    config_format(&plan.cfg, ours.spec);
    snprintf(ours.target, sizeof ours.target, "%s", plan.cfg.target->name);
    return struct_export("foscar_spec_info", info, &ours, sizeof ours, sizeof ours, err);
}

foscar_status foscar_page_bytes(const char *spec, uint64_t *bytes, foscar_error *err)
{
    decode_plan plan;
    if (bytes == NULL) return status_fail(err, FOSCAR_INVALID_ARGUMENT, "bytes is NULL");
    foscar_status status = runtime_plan(spec, &plan, err);
    if (status == FOSCAR_OK) *bytes = plan.page.bytes;
    return status;
}

foscar_status foscar_workspace_bytes(const char *spec, int32_t blocks, uint64_t *bytes, foscar_error *err)
{
    decode_plan plan;
    if (bytes == NULL) return status_fail(err, FOSCAR_INVALID_ARGUMENT, "bytes is NULL");
    if (blocks < 1)
        return status_fail(err, FOSCAR_INVALID_ARGUMENT, "blocks is %d; one per SM of the GPU is needed", (int)blocks);
    foscar_status status = runtime_plan(spec, &plan, err);
    if (status == FOSCAR_OK) *bytes = decode_workspace_bytes(&plan, blocks);
    return status;
}
