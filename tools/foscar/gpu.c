/* A GPU session of `run` and `bench`: one stream, buffers freed together, and an error that sticks. */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool gpu_ok(gpu *g, foscar_status status)
{
    if (status != FOSCAR_OK) g->failed = true;
    return !g->failed;
}

bool gpu_init(gpu *g, foscar_runtime *runtime)
{
    *g = (gpu){.runtime = runtime};
    return gpu_ok(g, toolkit_stream_create(runtime, &g->stream, &g->error));
}

void gpu_free_since(gpu *g, int count)
{
    while (g->count > count) toolkit_free(g->runtime, g->buffers[--g->count]);
}

void gpu_finish(gpu *g)
{
    if (g->runtime == NULL) return;
    gpu_free_since(g, 0);
    toolkit_stream_destroy(g->runtime, g->stream);
    memset(g, 0, sizeof *g);
}

void *gpu_buffer(gpu *g, uint64_t bytes)
{
    if (g->failed) return NULL;
    if (g->count == GPU_BUFFERS_MAX) {
        g->failed = true;
        g->error = (foscar_error){.status = FOSCAR_OUT_OF_MEMORY, .message = "more device buffers than the tool keeps"};
        return NULL;
    }
    void *address = NULL;
    if (!gpu_ok(g, toolkit_allocate(g->runtime, bytes > 0 ? bytes : 16, &address, &g->error))) return NULL;
    g->buffers[g->count++] = address;
    return address;
}

void *gpu_copy(gpu *g, const void *host, uint64_t bytes)
{
    void *address = gpu_buffer(g, bytes);
    return gpu_upload(g, address, host, bytes) ? address : NULL;
}

bool gpu_upload(gpu *g, void *device, const void *host, uint64_t bytes)
{
    return !g->failed && gpu_ok(g, toolkit_upload(g->runtime, device, host, bytes, &g->error));
}

bool gpu_download(gpu *g, void *host, const void *device, uint64_t bytes)
{
    return gpu_wait(g) && gpu_ok(g, toolkit_download(g->runtime, host, device, bytes, &g->error));
}

bool gpu_fill(gpu *g, void *device, uint8_t byte, uint64_t bytes)
{
    return !g->failed && gpu_ok(g, toolkit_fill(g->runtime, device, byte, bytes, g->stream, &g->error));
}

bool gpu_wait(gpu *g)
{
    return !g->failed && gpu_ok(g, toolkit_synchronise(g->runtime, g->stream, &g->error));
}

foscar_cache gpu_cache(gpu *g, const paging *p, int kv_heads, void *pages, int64_t page_stride, int64_t head_stride)
{
    uint64_t entries = (uint64_t)(p->entries > 0 ? p->entries : 1);
    return (foscar_cache){
        .struct_size = sizeof(foscar_cache),
        .batch = p->batch,
        .kv_heads = kv_heads,
        .table_stride = p->table_stride,
        .pages = pages,
        .pages_count = p->pages,
        .page_stride = page_stride,
        .head_stride = head_stride,
        .page_table = gpu_copy(g, p->table, entries * sizeof *p->table),
        .page_indptr = p->csr ? gpu_copy(g, p->indptr, (uint64_t)(p->batch + 1) * sizeof *p->indptr) : NULL,
        .table_entries = (int64_t)entries,
        .lengths = gpu_copy(g, p->lengths, (uint64_t)p->batch * sizeof *p->lengths),
    };
}

bool gpu_describe(foscar_runtime *runtime, foscar_device_info *info, char *text, size_t size, foscar_error *err)
{
    foscar_environment *env = calloc(1, sizeof *env);
    if (env == NULL) {
        *err = (foscar_error){.status = FOSCAR_OUT_OF_MEMORY, .message = "out of memory"};
        return false;
    }
    env->struct_size = sizeof *env;
    *info = (foscar_device_info){.struct_size = sizeof *info};
    bool ok =
        foscar_describe(runtime, env, err) == FOSCAR_OK && foscar_device_describe(runtime, 0, info, err) == FOSCAR_OK;
    if (ok)
        snprintf(text, size, "%s, driver CUDA %d.%d", info->name, env->driver_version / 1000,
                 env->driver_version % 1000 / 10);
    free(env);
    return ok;
}
