/* What `bench` measures: the read ceiling of a GPU, and one decode case with cold L2, checked by samples. */
#ifndef FOSCAR_TOOLS_MEASURE_H
#define FOSCAR_TOOLS_MEASURE_H

#include "config.h"
#include "gpu.h"

enum { MEASURE_REPEATS_MAX = 1000 };

/* What all measurements share. */
typedef struct bench_device {
    gpu g;                    /* its first buffers are kept to the end, those of a case are freed with it */
    toolkit_program *program; /* bench_kernels.cu */
    foscar_device_info info;
    void *flush; /* larger than four times the L2; reading it leaves the L2 full of clean lines of no use */
    uint64_t flush_bytes;
    void *sink;
    uint64_t seed;
    int repeats;
} bench_device;

bool bench_device_init(bench_device *d, foscar_runtime *runtime, uint64_t seed,
                       int repeats); /* on failure d->g.error says why */
void bench_device_finish(bench_device *d);

/* Bytes per second of reading several GB: the best of a few launch shapes. */
typedef struct read_ceiling {
    double loads; /* by 16-byte loads */
    double bulk;  /* by bulk copies to shared memory */
} read_ceiling;

bool measure_ceiling(bench_device *d, read_ceiling *out);

/* A pool of pages with random codes, for every case of one spec and number of KV heads. */
typedef struct bench_pool {
    config cfg;
    foscar_kernel *kernel;
    int kv_heads;
    int32_t pages;
    void *data; /* a buffer of the session */
} bench_pool;

bool bench_pool_make(bench_device *d, const config *cfg, foscar_kernel *kernel, int kv_heads, int32_t pages,
                     bench_pool *out);

typedef struct bench_result {
    double median, least, p90; /* microseconds of one decode launch, merge included */
    double launch_median,
        graph_median;     /* plain launches; replays of a captured graph (0: not measured). median is the smaller */
    int64_t stored_bytes; /* that a launch must read: codes and metadata of all tokens */
    int64_t bf16_bytes;   /* that the same tokens take in bf16 */
    double error; /* relative, of sampled sequences and heads, against float64 attention over their dequantised pages */
} bench_result;

/* lengths [batch]; random pages of the pool, random Q. */
bool measure_case(bench_device *d, const bench_pool *pool, int batch, const int32_t *lengths, bench_result *out);

#endif
