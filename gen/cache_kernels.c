/* The table of cache kernels, the macros that specialise their source, and the shapes of their launches. */
#include "cache_kernels.h"

#include <stddef.h>
#include <stdio.h>

#include "fragment.h"
#include "plan.h"

#define PARAM(name, bytes, meaning) {#name, bytes, meaning},
static const cache_param merge_params[] = {MERGE_PARAMS(PARAM)};
static const cache_param append_prefill_params[] = {APPEND_PREFILL_PARAMS(PARAM)};
static const cache_param append_decode_params[] = {APPEND_DECODE_PARAMS(PARAM)};
static const cache_param dequantise_params[] = {DEQUANTISE_PARAMS(PARAM)};
static const cache_param check_params[] = {CHECK_PARAMS(PARAM)};
#undef PARAM

_Static_assert((int)APPEND_PREFILL_PARAM_COUNT <= (int)CACHE_PARAMS_MAX &&
                   (int)APPEND_DECODE_PARAM_COUNT <= (int)CACHE_PARAMS_MAX &&
                   (int)DEQUANTISE_PARAM_COUNT <= (int)CACHE_PARAMS_MAX &&
                   (int)CHECK_PARAM_COUNT <= (int)CACHE_PARAMS_MAX,
               "kernelParams of the runtime");

static const cache_kernel_row kernels[CACHE_KERNELS] = {
#define KERNEL(id, name, threads, list)                                                                                \
    [CACHE_##id] = {#name, "foscar_" #name, threads, name##_params, (int)id##_PARAM_COUNT},
    CACHE_KERNEL_TABLE(KERNEL)
#undef KERNEL
};

/* templates/cache_*.cu and decode_merge.cu in the order that cache_numbers.cu gives, made by tools/embed.py */
extern const char foscar_cache_kernels_cu[];

const cache_kernel_row *cache_kernel_info(cache_kernel kernel)
{
    return &kernels[kernel];
}

const char *cache_kernels_source(void)
{
    return foscar_cache_kernels_cu;
}

enum { MERGE_WORKERS = 4 /* that a block of the merge kernel looks after */ };

/* Heads that a block of the merge kernel has at most: 64 threads a slice of the chain, four channels a thread. */
static int merge_heads(const config *cfg)
{
    return cfg->head_dim < 256 ? 256 / cfg->head_dim : 1;
}

int cache_kernels_options(const config *cfg, char options[CACHE_OPTIONS_MAX][CACHE_OPTION_MAX])
{
    page_layout page = fragment_page_layout(cfg);
    v_fields v = fragment_v_fields(cfg);
    const struct {
        const char *name;
        uint32_t value;
    } numbers[] = {{"HEAD_DIM", (uint32_t)cfg->head_dim},
                   {"HEADS", (uint32_t)cfg->heads},
                   {"PAGE_TOKENS", (uint32_t)cfg->page_tokens},
                   {"K_BITS", (uint32_t)cfg->k.codes->bits},
                   {"V_BITS", (uint32_t)cfg->v.codes->bits},
                   {"K_CODES", page.k_codes},
                   {"V_CODES", page.v_codes},
                   {"K_METADATA", page.k_metadata},
                   {"V_METADATA", page.v_metadata},
                   {"V_TILES", (uint32_t)v.tiles},
                   {"V_HALVES", (uint32_t)v.halves},
                   {"PARTIAL_BYTES", decode_partial_bytes(cfg)},
                   {"MERGE_HEADS", (uint32_t)merge_heads(cfg)},
                   {"MERGE_WORKERS", MERGE_WORKERS},
#define KERNEL(id, name, threads, list) {"THREADS_" #id, threads},
                   CACHE_KERNEL_TABLE(KERNEL)
#undef KERNEL
    };
    const struct {
        const char *name;
        number_type type;
    } types[] = {{"Q_TYPE", cfg->q_type}, {"O_TYPE", cfg->o_type}, {"M_TYPE", cfg->m_type}};
    enum { NUMBERS = sizeof numbers / sizeof *numbers, TYPES = sizeof types / sizeof *types };
    _Static_assert((int)NUMBERS + (int)TYPES + 1 <= (int)CACHE_OPTIONS_MAX, "room for every option");
    int count = 0;
    for (int i = 0; i < NUMBERS; i++)
        snprintf(options[count++], CACHE_OPTION_MAX, "-D%s=%u", numbers[i].name, (unsigned)numbers[i].value);
    for (int i = 0; i < TYPES; i++)
        snprintf(options[count++], CACHE_OPTION_MAX, "-D%s=%s", types[i].name, number_info(types[i].type)->name);
    snprintf(options[count++], CACHE_OPTION_MAX, "-fmad=false");
    return count;
}

static int64_t round_up_divide(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

bool cache_kernel_grid(const config *cfg, cache_kernel kernel, const cache_work *work, uint32_t grid[3])
{
    int64_t x = 0, y = 1, rows = 32 / (cfg->head_dim / 8); /* rows of a warp that appends one token a sequence */
    switch (kernel) {
    case CACHE_MERGE:
        x = round_up_divide(work->workers, MERGE_WORKERS);
        y = round_up_divide(cfg->heads, merge_heads(cfg));
        break;
    case CACHE_APPEND_PREFILL:
        x = work->tokens > 0 ? work->tokens / CHUNK_TOKENS + 2 * (int64_t)work->batch : 0;
        y = work->kv_heads;
        break;
    case CACHE_APPEND_DECODE:
        x = round_up_divide(2 * round_up_divide((int64_t)work->batch * work->kv_heads, rows),
                            kernels[kernel].threads / 32);
        break;
    case CACHE_DEQUANTISE:
        x = work->end > work->begin ? round_up_divide(work->end, CHUNK_TOKENS) - work->begin / CHUNK_TOKENS : 0;
        y = work->kv_heads;
        break;
    case CACHE_CHECK:
        x = work->batch;
        break;
    case CACHE_KERNELS:
        break;
    }
    grid[0] = (uint32_t)x;
    grid[1] = (uint32_t)y;
    grid[2] = 1;
    return x > 0 && y > 0;
}
