/* From a text to a cubin: key, disk cache, NVRTC for CUDA C, ptxas. */
#ifndef FOSCAR_RUNTIME_IMAGE_H
#define FOSCAR_RUNTIME_IMAGE_H

#include "generate.h"
#include "runtime.h"

typedef enum image_language { IMAGE_PTX, IMAGE_CUDA } image_language;

enum { IMAGE_OPTIONS_MAX = CACHE_OPTIONS_MAX };

/* A text to be assembled. Pointers are the caller's. */
typedef struct image_source {
    image_language language;
    const char *name; /* for messages: the spec, or a file name */
    const char *text;
    size_t length;
    const char *target; /* "sm_90a" */
    const char *options[IMAGE_OPTIONS_MAX]; /* of NVRTC, without the architecture */
    int option_count;
} image_source;

/* Makes the cubin of a source, through the disk cache. Fills *image, whose struct_size is not looked at; empty on failure. */
foscar_status image_make(foscar_runtime *runtime, const image_source *source, foscar_image *image, foscar_error *err);

/* The PTX of a source, malloc'd and the caller's: for the driver's own compiler. */
foscar_status image_ptx(foscar_runtime *runtime, const image_source *source, char **ptx, size_t *length,
                        foscar_error *err);

/* The source of one part of a spec, and the memory it points into. */
typedef struct image_part {
    image_source source;
    kernel_text decode; /* of FOSCAR_PART_DECODE */
    char spec[CONFIG_SPEC_MAX];
    char options[CACHE_OPTIONS_MAX][CACHE_OPTION_MAX];
} image_part;

foscar_status image_part_make(const config *cfg, foscar_part part, image_part *out, foscar_error *err);
void image_part_finish(image_part *part); /* a zeroed struct is fine */

#endif
