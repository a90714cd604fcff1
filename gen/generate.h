/* From a configuration to the PTX text of its decode kernel, and the counts of what was emitted. */
#ifndef FOSCAR_GEN_GENERATE_H
#define FOSCAR_GEN_GENERATE_H

#include "config.h"
#include "plan.h"

/* The text of one kernel and what a launch of it needs. */
typedef struct kernel_text {
    char *ptx;              /* malloc'd, NUL-terminated; freed by kernel_text_finish */
    size_t length;          /* bytes without the NUL */
    char entry[64];         /* name of the entry */
    int threads;            /* of a block */
    uint32_t shared_bytes;  /* dynamic shared memory of a block */
} kernel_text;

bool generate_decode(const config *cfg, kernel_text *out, gen_error *err); /* on failure out is zeroed */
void kernel_text_finish(kernel_text *text); /* NULL and a zeroed struct are fine */

/* Instruction classes that the counter tells apart (a column of ptx_ops.def). */
#define PTX_CLASSES(CLASS)                                                                                        \
    CLASS(ALU, "alu", "integer and logic: lop3, shf, shl, shr, prmt, iadd, imad, min/max, setp, selp, mov")       \
    CLASS(FMA, "fma", "float32 multiply, add, fused multiply-add")                                                \
    CLASS(CONVERT, "convert", "conversions between number types")                                                 \
    CLASS(MUFU, "mufu", "ex2, lg2, rcp")                                                                          \
    CLASS(SHARED, "shared", "shared-memory loads and stores")                                                     \
    CLASS(GLOBAL, "global", "global- and parameter-memory loads and stores, bulk copies")                         \
    CLASS(WARP, "warp", "shuffles, votes, reductions across a warp")                                              \
    CLASS(TENSOR, "tensor", "tensor-core products")                                                               \
    CLASS(SYNC, "sync", "barriers, fences, mbarriers, waits")                                                     \
    CLASS(BRANCH, "branch", "branches and exits")

typedef enum ptx_class {
#define CLASS(id, name, meaning) PTX_CLASS_##id,
    PTX_CLASSES(CLASS)
#undef CLASS
        PTX_CLASS_COUNT
} ptx_class;

/* Instructions of one region, per thread, each counting one however often it runs. */
typedef struct region_count {
    char region[64]; /* path of scopes, "loop/qk/unpack" */
    int by_class[PTX_CLASS_COUNT];
    int total;
} region_count;

enum { COUNT_REGIONS_MAX = 96 };

/* Static counts of a decode kernel. Per-element figures are over the cached elements of one block of tokens (block_tokens * head_dim of K, as many
   of V; the total over both), with every instruction of the main loop times 128 threads. */
typedef struct kernel_counts {
    int regions;
    region_count region[COUNT_REGIONS_MAX];
    region_count sum;
    double alu_k, alu_v, alu_total;       /* regions ending in "unpack" below "k" and "v" */
    double scale_k, scale_v, scale_total; /* multiply, add, fused multiply-add in regions ending in "scale" below "k" and "v" */
    int loop_instructions;                /* of a consumer thread and block of tokens */
} kernel_counts;

bool generate_counts(const config *cfg, kernel_counts *out, gen_error *err); /* on failure out is zeroed */

#endif
