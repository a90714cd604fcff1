/* foscar: decode attention over 2- and 4-bit KV caches, by kernels generated for exactly one case. The only public header.
 *
 * A *spec* names a kernel: "sm_90a-k2t128-v2t128-d128-h8-p64" is an architecture, K and V codes (bits, token-wise or channel-wise, group),
 * the head dimension, the query heads per KV head and the tokens of a page; "-f16" or "-bf16" (default) is the type of Q and of the K and
 * V that are appended, "-obf16", "-of16" or "-of32" that of the output (default: Q's).
 *
 *     foscar_runtime *runtime;
 *     foscar_kernel *kernel;
 *     foscar_error err;
 *     foscar_open(NULL, &runtime, &err);                   // finds tools and driver; neither need be there
 *     foscar_prepare(runtime, spec, &kernel, &err);        // may compile, load and allocate
 *     foscar_append(kernel, &append_args, stream, &err);   // launches: no allocation, no lock, no synchronisation; may be captured
 *     foscar_decode(kernel, &decode_args, stream, &err);
 *     foscar_close(runtime);
 *
 * Conventions
 * - Every function that can fail returns a foscar_status. `err`, which may be NULL, then also holds the status and one line that says what
 *   was wrong and what to do; on success it is left alone. Nothing is ever printed. After a failure nothing was launched or written.
 * - Pointers marked "device" are addresses in the memory of the GPU; all others are in host memory.
 * - Strides are in bytes unless said otherwise, and 0 stands for the contiguous layout.
 * - A struct that begins with struct_size is filled with zeros and then struct_size = sizeof(it): later versions append members only.
 * - `stream` is a CUstream or cudaStream_t (the same thing), NULL being the default stream.
 * - Every function may be called from any thread; a runtime is of no use to a child of fork (FOSCAR_FORKED). */
#ifndef FOSCAR_H
#define FOSCAR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define FOSCAR_API __attribute__((visibility("default")))
#else
#define FOSCAR_API
#endif

#define FOSCAR_VERSION_MAJOR 0
#define FOSCAR_VERSION_MINOR 1
#define FOSCAR_VERSION_PATCH 0

/* ---- Status ----------------------------------------------------------------------------------------------------------------------- */

/* STATUS(name, meaning). Numbers never change; new ones are added at the end. */
#define FOSCAR_STATUSES(STATUS)                                                                                          \
    STATUS(OK, "success")                                                                                                \
    STATUS(INVALID_SPEC, "the spec cannot be parsed or made")                                                            \
    STATUS(INVALID_ARGUMENT, "an argument is null, misaligned, out of range or does not fit another")                    \
    STATUS(NO_DRIVER, "libcuda.so.1 is missing, too old or refuses to start")                                            \
    STATUS(NO_DEVICE, "there is no GPU of that number")                                                                  \
    STATUS(WRONG_DEVICE, "the GPU is of another architecture than the spec")                                             \
    STATUS(NO_ASSEMBLER, "no ptxas was found and the driver cannot stand in")                                            \
    STATUS(NO_NVRTC, "libnvrtc was not found")                                                                           \
    STATUS(ASSEMBLY_FAILED, "ptxas or NVRTC refused a kernel, or made one that is not good enough")                      \
    STATUS(OUT_OF_MEMORY, "host or device memory ran out")                                                               \
    STATUS(DRIVER_ERROR, "a call of the CUDA driver failed")                                                             \
    STATUS(WORKSPACE_TOO_SMALL, "the workspace is smaller than foscar_workspace_bytes")                                  \
    STATUS(NOT_PREPARED, "there is no kernel: foscar_prepare was not called or failed")                                        \
    STATUS(FORKED, "the runtime belongs to the parent of this process")                                                  \
    STATUS(IO, "a file or a child process failed")

typedef enum foscar_status {
#define FOSCAR_STATUS_ENUM(name, meaning) FOSCAR_##name,
    FOSCAR_STATUSES(FOSCAR_STATUS_ENUM)
#undef FOSCAR_STATUS_ENUM
        FOSCAR_STATUS_COUNT
} foscar_status;

/* "OK", "INVALID_SPEC", ...; "UNKNOWN" for a number that is none. Static strings. */
FOSCAR_API const char *foscar_status_name(foscar_status status);
FOSCAR_API const char *foscar_status_meaning(foscar_status status);

typedef struct foscar_error {
    foscar_status status;
    char message[512]; /* one line, no newline, NUL-terminated */
} foscar_error;

/* ---- Versions and specs: need neither driver nor tools ---------------------------------------------------------------------------- */

FOSCAR_API const char *foscar_version(void);       /* "0.1.0" of the library, a static string */
FOSCAR_API uint32_t foscar_layout_version(void);   /* of the bytes of a page; caches of another version cannot be read */

enum { FOSCAR_SPEC_MAX = 96 }; /* bytes of the longest canonical spec, with its NUL */

/* Checks a spec and writes its canonical form (NULL: only checks). INVALID_SPEC names the field, its value and what is allowed. */
FOSCAR_API foscar_status foscar_spec_check(const char *spec, char canonical[FOSCAR_SPEC_MAX], foscar_error *err);

/* Element types, as in specs. */
typedef enum foscar_number { FOSCAR_BF16, FOSCAR_F16, FOSCAR_F32 } foscar_number;

/* What a spec says, for callers that allocate. A page holds the tokens of one page of one KV head: K codes, V codes, K metadata and
   V metadata back to back. */
typedef struct foscar_spec_info {
    uint32_t struct_size;
    char spec[FOSCAR_SPEC_MAX];   /* canonical */
    char target[16];              /* "sm_90a" */
    int32_t compute_capability;   /* 90 */
    int32_t k_bits, v_bits;
    int32_t head_dim;             /* channels of a head */
    int32_t heads;                /* query heads per KV head */
    int32_t page_tokens;          /* tokens of a page */
    foscar_number q_type, o_type; /* of Q (and of K and V when appended), of the output */
    uint32_t page_bytes;          /* of one page of one KV head */
    uint32_t k_codes, v_codes, k_metadata, v_metadata; /* offsets in a page, bytes */
} foscar_spec_info;

FOSCAR_API foscar_status foscar_spec_describe(const char *spec, foscar_spec_info *info, foscar_error *err);

/* Bytes of one page of one KV head; a page of all heads takes kv_heads times as many. */
FOSCAR_API foscar_status foscar_page_bytes(const char *spec, uint64_t *bytes, foscar_error *err);

/* Bytes of workspace that a decode launch over `blocks` blocks needs; foscar_decode uses one block per SM (foscar_kernel_info.blocks, or
   foscar_device_info.sm_count). Does not depend on batch, lengths or KV heads. */
FOSCAR_API foscar_status foscar_workspace_bytes(const char *spec, int32_t blocks, uint64_t *bytes, foscar_error *err);

/* ---- Runtime ---------------------------------------------------------------------------------------------------------------------- */

typedef struct foscar_runtime foscar_runtime; /* tools, driver, caches; made by foscar_open, freed by foscar_close */
typedef struct foscar_kernel foscar_kernel;   /* all kernels of one spec in one context; owned by its runtime */

enum foscar_flags {
    FOSCAR_NO_DISK_CACHE = 1, /* neither reads nor writes files */
    FOSCAR_NO_DRIVER_JIT = 2  /* without ptxas: NO_ASSEMBLER instead of the driver's own compiler */
};

/* All strings are copied. */
typedef struct foscar_options {
    uint32_t struct_size;
    uint32_t flags;              /* enum foscar_flags */
    int32_t device;              /* ordinal whose primary context is used by threads without a current context */
    const char *ptxas;           /* path, or NULL: $FOSCAR_PTXAS, $CUDA_HOME/bin, $PATH, /usr/local/cuda/bin, the Python wheels, ./.deps.
                                    A path that is named and is no program is INVALID_ARGUMENT to calls that need it. */
    const char *nvrtc;           /* path of libnvrtc.so, or NULL: $FOSCAR_NVRTC, the loader's path, $CUDA_HOME, /usr/local/cuda, wheels */
    const char *cache_directory; /* or NULL: $FOSCAR_CACHE_DIR, $XDG_CACHE_HOME/foscar, ~/.cache/foscar */
    int32_t ptxas_seconds;       /* a run of ptxas that takes longer is killed with all that it started, and is ASSEMBLY_FAILED; at most 86400.
                                    0: $FOSCAR_PTXAS_SECONDS, else 120 */
} foscar_options;

/* Opens a runtime; options may be NULL. Succeeds without driver, GPU, ptxas and NVRTC: the calls that need one of them say so.
   *runtime is the caller's, to be closed; NULL on failure (INVALID_ARGUMENT, OUT_OF_MEMORY). */
FOSCAR_API foscar_status foscar_open(const foscar_options *options, foscar_runtime **runtime, foscar_error *err);

/* Unloads and frees all kernels of the runtime; no launch of theirs may still be running or be captured in a graph that is launched later,
   and no other call may be under way. NULL is fine. In a child of fork only host memory is freed. */
FOSCAR_API void foscar_close(foscar_runtime *runtime);

/* What was found, for `foscar doctor`. A string is empty when the thing was not found; then the *_problem beside it says why and what to do. */
typedef struct foscar_environment {
    uint32_t struct_size;
    int32_t driver_version;      /* 13000 for CUDA 13.0; 0: no driver */
    int32_t device_count;
    char driver_problem[256];
    char ptxas[512];             /* path */
    char ptxas_build[128];       /* last line of `ptxas --version` */
    char ptxas_problem[256];
    char nvrtc[512];             /* path or library name */
    int32_t nvrtc_version;       /* 13000 for 13.0 */
    char nvrtc_problem[256];
    char cache_directory[512];
    char cache_problem[256];     /* empty: usable, and all kernels of this runtime were kept */
} foscar_environment;

FOSCAR_API foscar_status foscar_describe(foscar_runtime *runtime, foscar_environment *out, foscar_error *err);

typedef struct foscar_device_info {
    uint32_t struct_size;
    char name[128];
    int32_t compute_capability;  /* 90 */
    int32_t sm_count;
    int32_t l2_bytes;
    int32_t shared_bytes;        /* largest shared memory of a block */
    int32_t clock_khz, memory_clock_khz, memory_bus_bits;
    uint64_t memory_bytes;
} foscar_device_info;

/* NO_DRIVER, NO_DEVICE. */
FOSCAR_API foscar_status foscar_device_describe(foscar_runtime *runtime, int32_t device, foscar_device_info *out, foscar_error *err);

/* Whether kernels of the spec run on a device: OK, or INVALID_SPEC, NO_DRIVER, NO_DEVICE, WRONG_DEVICE with the reason in err.
   Compiles nothing and creates no context. */
FOSCAR_API foscar_status foscar_can_run(foscar_runtime *runtime, const char *spec, int32_t device, foscar_error *err);

/* ---- Assembling without a GPU ----------------------------------------------------------------------------------------------------- */

/* The two images of a spec: the decode kernel (generated PTX) and the cache kernels (CUDA C through NVRTC: merge, append, dequantise, check). */
typedef enum foscar_part { FOSCAR_PART_DECODE, FOSCAR_PART_CACHE } foscar_part;

typedef struct foscar_image {
    uint32_t struct_size;
    void *cubin;           /* malloc'd; freed by foscar_image_finish */
    size_t bytes;
    int32_t registers;     /* of a thread; the largest over the entries of the image */
    int32_t spill_bytes;   /* always 0: kernels that spill are refused */
    int32_t stack_bytes;   /* likewise */
    int32_t from_cache;    /* 1: read from the disk cache */
    double milliseconds;   /* NVRTC and ptxas together, or the look-up */
} foscar_image;

/* Makes one image of a spec, through the disk cache. INVALID_SPEC, NO_ASSEMBLER, NO_NVRTC (cache part), ASSEMBLY_FAILED with the tool's first
   line, IO, OUT_OF_MEMORY. A cache that cannot be read or written is a miss; foscar_describe says why. On failure *image is left alone; a cubin it held before is never freed here. */
FOSCAR_API foscar_status foscar_assemble(foscar_runtime *runtime, const char *spec, foscar_part part, foscar_image *image, foscar_error *err);

/* Assembles any PTX text of `length` bytes for a target ("sm_90a") by the same rules: no spill, no stack frame, no C75xx note. */
FOSCAR_API foscar_status foscar_assemble_ptx(foscar_runtime *runtime, const char *ptx, size_t length, const char *target_name,
                                             foscar_image *image, foscar_error *err);

FOSCAR_API void foscar_image_finish(foscar_image *image); /* NULL and a zeroed struct are fine */

/* ---- Preparing -------------------------------------------------------------------------------------------------------------------- */

/* Makes all kernels of a spec ready in the current context of this thread; if there is none, in the primary context of options.device, which
   is retained until foscar_close and left current on this thread. May compile, load and allocate: call it at model load, not while serving.
   Works while another thread captures a graph. The same (context, spec) gives the same kernel; threads that ask for one being built wait for it.
   *kernel is owned by the runtime and valid until foscar_close or until its context is destroyed; NULL on failure. */
FOSCAR_API foscar_status foscar_prepare(foscar_runtime *runtime, const char *spec, foscar_kernel **kernel, foscar_error *err);

typedef struct foscar_kernel_info {
    uint32_t struct_size;
    char spec[FOSCAR_SPEC_MAX];
    int32_t registers;          /* of a thread at the entry of the decode kernel */
    int32_t spill_bytes;        /* of the decode kernel */
    uint32_t shared_bytes;      /* dynamic shared memory of a decode block */
    int32_t threads;            /* of a decode block */
    int32_t consumers;          /* consumer warpgroups of a decode block */
    int32_t blocks;             /* of a decode launch: one per SM */
    uint32_t page_bytes;        /* of one page of one KV head */
    uint64_t workspace_bytes;   /* that foscar_decode needs */
    int32_t from_cache;         /* 1: every image was read from the disk cache */
    int32_t driver_jit;         /* 1: assembled by the driver, no ptxas was found */
    double milliseconds;        /* NVRTC and ptxas, or the look-ups */
} foscar_kernel_info;

/* The kernel's numbers; *out keeps its struct_size. */
FOSCAR_API foscar_status foscar_kernel_describe(const foscar_kernel *kernel, foscar_kernel_info *out, foscar_error *err);

/* ---- The paged cache -------------------------------------------------------------------------------------------------------------- */

/* One layer's quantised K and V, as decode, append, dequantise and check see it. Token t of sequence b lies in page
 *     page_table[first(b) + t / page_tokens],   first(b) = page_indptr ? page_indptr[b] : b * table_stride,
 * at pages + page * page_stride + kv_head * head_stride, row t % page_tokens. Sequences may share pages. The contents of pages, page_table,
 * page_indptr and lengths are read on the device when the kernel runs and may differ at each replay of a graph.
 * Memory of pages needs no initial value: kernels ignore what lies beyond a sequence's length, whatever it holds. */
typedef struct foscar_cache {
    uint32_t struct_size;
    int32_t batch;               /* sequences, >= 1 */
    int32_t kv_heads;            /* KV heads, 1 to 65535 */
    int32_t table_stride;        /* entries of a row of a padded page table; unused with page_indptr */
    void *pages;                 /* device, 16-byte aligned: first page */
    int64_t pages_count;         /* pages that may be named by the table, >= 1 */
    int64_t page_stride;         /* bytes between pages, multiple of 16; 0: kv_heads * page_bytes */
    int64_t head_stride;         /* bytes between the KV heads of a page, multiple of 16; 0: page_bytes */
    const int32_t *page_table;   /* device, int32: [batch, table_stride], or [page_indptr[batch]] */
    const int32_t *page_indptr;  /* device, int32 [batch + 1], or NULL: padded table */
    int64_t table_entries;       /* entries of page_table; 0 with a padded table: batch * table_stride */
    const int32_t *lengths;      /* device, int32 [batch]: tokens of each sequence; 0 is allowed */
} foscar_cache;

/* ---- Launches: allocate, lock and synchronise nothing; may be captured in a CUDA graph --------------------------------------------- */

/* What becomes of numbers that are no ordinary ones. Nothing is refused at a launch, every result is defined, and no row changes another.
   - append: a NaN counts as 0; what lies beyond 65504, the largest number of float16 metadata, an infinity too, is clamped to it.
   - decode: scores are float32 in base 2, and known to about 2^-22 of the largest |score| of their row: weights of two tokens are told apart by
     1e-5 up to scores of 40, by 2 % up to 65536, and beyond that not. V may differ in range from token to token as it likes.
   - decode: a query head whose q holds a NaN or an infinity, or whose scores or sum of q overflow float32, has NaN in its row of out and in its lse. So
     has every head of a sequence whose metadata hold a NaN, which append never writes.
   - a number beyond 65504 becomes an infinity in an output of float16. */

/* out[b, h] = softmax(scale * q[b, h] . K[b, h / heads]) V[b, h / heads] for the query heads h = 0 .. kv_heads * heads - 1; zeros and
   lse = -infinity for a sequence of length 0. */
typedef struct foscar_decode_args {
    uint32_t struct_size;
    float scale;                 /* of the scores; 0: 1 / sqrt(head_dim) */
    const foscar_cache *cache;   /* read during the call only */
    const void *q;               /* device, Q's type [batch, kv_heads * heads, head_dim], 16-byte aligned */
    void *out;                   /* device, output type, the same shape, 16-byte aligned */
    float *lse;                  /* device, float32 [batch, kv_heads * heads], natural log of the sum of exponentials; or NULL */
    int64_t q_stride;            /* bytes between the sequences of q, multiple of 16; 0: contiguous */
    int64_t out_stride;          /* bytes between the sequences of out, multiple of 16; 0: contiguous */
    void *workspace;             /* device, 16-byte aligned; contents need not be kept or set; one launch at a time may use it */
    uint64_t workspace_bytes;    /* >= foscar_kernel_info.workspace_bytes */
} foscar_decode_args;

/* INVALID_ARGUMENT, WORKSPACE_TOO_SMALL, NOT_PREPARED, FORKED, DRIVER_ERROR. */
FOSCAR_API foscar_status foscar_decode(const foscar_kernel *kernel, const foscar_decode_args *args, void *stream, foscar_error *err);

/* Quantises new tokens and writes them into their pages. Sequence b receives n(b) rows of k and v, as its tokens
   lengths[b] - n(b) .. lengths[b] - 1: `lengths` and the page table already count the new tokens.
   n(b) = token_indptr[b + 1] - token_indptr[b], or 1 for every sequence when token_indptr is NULL (a decode step; a sequence of length 0
   then takes no token and its row is not read). */
typedef struct foscar_append_args {
    uint32_t struct_size;
    int32_t tokens;              /* rows of k and of v; with token_indptr NULL: batch, or 0 for it */
    const foscar_cache *cache;   /* read during the call only */
    const void *k, *v;           /* device, Q's type [tokens, kv_heads, head_dim], 16-byte aligned */
    int64_t k_stride, v_stride;  /* bytes between tokens, multiple of 16; 0: contiguous */
    const int32_t *token_indptr; /* device, int32 [batch + 1], first row of each sequence; or NULL */
} foscar_append_args;

FOSCAR_API foscar_status foscar_append(const foscar_kernel *kernel, const foscar_append_args *args, void *stream, foscar_error *err);

/* Writes tokens begin .. end - 1 of one sequence as numbers: out_k and out_v [end - begin, kv_heads, head_dim], contiguous. */
typedef struct foscar_dequantise_args {
    uint32_t struct_size;
    foscar_number type;          /* of out_k and out_v: FOSCAR_F32 or Q's type */
    const foscar_cache *cache;   /* read during the call only */
    int32_t sequence;            /* 0 .. batch - 1 */
    int32_t begin, end;          /* tokens, 0 <= begin <= end; end must not exceed the sequence's length (foscar_check tells) */
    int32_t reserved;            /* 0 */
    void *out_k, *out_v;         /* device, 16-byte aligned; either may be NULL */
} foscar_dequantise_args;

FOSCAR_API foscar_status foscar_dequantise(const foscar_kernel *kernel, const foscar_dequantise_args *args, void *stream, foscar_error *err);

/* ---- Checking --------------------------------------------------------------------------------------------------------------------- */

/* Looks at the device contents of the cache description: INVALID_ARGUMENT names the first sequence, table entry and value that is wrong
   (negative length, a length beyond the sequence's table row, a row beyond table_entries, a page number outside 0 .. pages_count - 1).
   Allocates a few bytes and waits for the stream: for tests, debugging and admission, not for the serving loop or a capture. */
FOSCAR_API foscar_status foscar_check(const foscar_kernel *kernel, const foscar_cache *cache, void *stream, foscar_error *err);

/* The same for an append: also that token_indptr does not decrease, stays within `tokens`, and adds no more tokens than the lengths hold. */
FOSCAR_API foscar_status foscar_check_append(const foscar_kernel *kernel, const foscar_append_args *args, void *stream, foscar_error *err);

#ifdef __cplusplus
}
#endif

#endif
