/* Plain device services for foscar's own tools, examples and tests: memory, streams, events, graphs, and building a CUDA C source.
 * Not installed and no part of the public interface; programs that link CUDA anyway need none of it.
 *
 * Every call works in the current context of the calling thread, else makes the primary context of options.device current (as
 * foscar_prepare does). Errors as in foscar.h: NO_DRIVER, NO_DEVICE, OUT_OF_MEMORY, DRIVER_ERROR. Streams are CUstreams (void *). */
#ifndef FOSCAR_RUNTIME_TOOLKIT_H
#define FOSCAR_RUNTIME_TOOLKIT_H

#include "foscar.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens a runtime over these driver calls instead of libcuda.so.1, for drivers that run kernels elsewhere than on a GPU. The table is copied; what it
   calls must outlive the runtime. options and errors as of foscar_open. */
struct driver;
foscar_status toolkit_open_with_driver(const foscar_options *options, const struct driver *cuda, foscar_runtime **runtime, foscar_error *err);

/* Device memory. The address is the caller's until toolkit_free (NULL is fine). Copies are synchronous, fills are ordered in the stream. */
foscar_status toolkit_allocate(foscar_runtime *runtime, uint64_t bytes, void **address, foscar_error *err);
void toolkit_free(foscar_runtime *runtime, void *address);
foscar_status toolkit_upload(foscar_runtime *runtime, void *device, const void *host, uint64_t bytes, foscar_error *err);
foscar_status toolkit_download(foscar_runtime *runtime, void *host, const void *device, uint64_t bytes, foscar_error *err);
foscar_status toolkit_fill(foscar_runtime *runtime, void *device, uint8_t byte, uint64_t bytes, void *stream, foscar_error *err);

/* Streams that do not wait for the default stream. */
foscar_status toolkit_stream_create(foscar_runtime *runtime, void **stream, foscar_error *err);
void toolkit_stream_destroy(foscar_runtime *runtime, void *stream);
foscar_status toolkit_synchronise(foscar_runtime *runtime, void *stream, foscar_error *err); /* also reports faults of earlier kernels */

/* Events with timing. */
foscar_status toolkit_event_create(foscar_runtime *runtime, void **event, foscar_error *err);
foscar_status toolkit_event_record(foscar_runtime *runtime, void *event, void *stream, foscar_error *err);
foscar_status toolkit_event_elapsed(foscar_runtime *runtime, void *begin, void *end, float *milliseconds, foscar_error *err); /* waits for end */
void toolkit_event_destroy(foscar_runtime *runtime, void *event);

/* Captures what is launched into `stream` between begin and end as a graph that can be launched many times. */
foscar_status toolkit_capture_begin(foscar_runtime *runtime, void *stream, foscar_error *err);
foscar_status toolkit_capture_end(foscar_runtime *runtime, void *stream, void **graph, foscar_error *err);
foscar_status toolkit_graph_launch(foscar_runtime *runtime, void *graph, void *stream, foscar_error *err);
void toolkit_graph_destroy(foscar_runtime *runtime, void *graph);

/* A CUDA C source (extern "C" entries) through NVRTC into the current context, by way of ptxas and the disk cache if the driver takes machine code. options: NVRTC options, without
   the architecture, which is the device's. The program is the caller's until toolkit_program_destroy (NULL is fine). */
typedef struct toolkit_program toolkit_program;
foscar_status toolkit_program_build(foscar_runtime *runtime, const char *name, const char *source, const char *const *options, int option_count,
                                    toolkit_program **program, foscar_error *err);
/* parameters: addresses of the kernel's parameters in order. */
foscar_status toolkit_program_launch(toolkit_program *program, const char *entry, const uint32_t grid[3], const uint32_t block[3],
                                     uint32_t shared_bytes, void **parameters, void *stream, foscar_error *err);
void toolkit_program_destroy(toolkit_program *program);

#ifdef __cplusplus
}
#endif

#endif
