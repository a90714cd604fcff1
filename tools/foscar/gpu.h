/* A GPU session of `run` and `bench`: one stream, buffers freed together, and an error that sticks. */
#ifndef FOSCAR_TOOLS_GPU_H
#define FOSCAR_TOOLS_GPU_H

#include <stdbool.h>
#include <stdint.h>

#include "foscar.h"
#include "paging.h"
#include "toolkit.h"

enum { GPU_BUFFERS_MAX = 32 };

/* After the first failure every call does nothing and returns NULL or false; `error` says what it was. */
typedef struct gpu {
    foscar_runtime *runtime; /* not owned */
    void *stream;
    foscar_error error;
    bool failed;
    void *buffers[GPU_BUFFERS_MAX];
    int count;
} gpu;

bool gpu_init(gpu *g, foscar_runtime *runtime);
void gpu_finish(gpu *g); /* frees all buffers; a zeroed struct is fine */

/* Takes note of the outcome of a call that was given &g->error. True: it went well and nothing failed before. */
bool gpu_ok(gpu *g, foscar_status status);

void *gpu_buffer(gpu *g, uint64_t bytes);                 /* freed by gpu_finish */
void *gpu_copy(gpu *g, const void *host, uint64_t bytes); /* a new buffer with these contents */
void gpu_free_since(gpu *g, int count);                   /* frees the buffers made after g->count was `count` */
bool gpu_upload(gpu *g, void *device, const void *host, uint64_t bytes);
bool gpu_download(gpu *g, void *host, const void *device, uint64_t bytes); /* after all that was launched */
bool gpu_fill(gpu *g, void *device, uint8_t byte, uint64_t bytes);
bool gpu_wait(gpu *g);

/* The device's view of pages that `p` describes: uploads lengths and page table. */
foscar_cache gpu_cache(gpu *g, const paging *p, int kv_heads, void *pages, int64_t page_stride, int64_t head_stride);

/* "NVIDIA H200, driver CUDA 13.0" of a device. */
bool gpu_describe(foscar_runtime *runtime, foscar_device_info *info, char *text, size_t size, foscar_error *err);

#endif
