/* Assembling through the disk cache. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include "image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const language_names[] = {[IMAGE_PTX] = "ptx", [IMAGE_CUDA] = "cuda"};

static double milliseconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static disk_field text_field(const char *text)
{
    disk_field field = {text, strlen(text)};
    return field;
}

/* Everything that the cubin depends on, and nothing else: no paths, no times. CUDA C is keyed by its text, so that a hit needs no compilation. */
static bool make_key(const image_source *source, const char *compiler_build, const char *assembler_build, disk_key *key)
{
    enum { FIXED = 7 };
    disk_field fields[FIXED + IMAGE_OPTIONS_MAX] = {
        text_field("foscar image 1"),
        text_field(foscar_version()),
        text_field(language_names[source->language]),
        {source->text, source->length},
        text_field(source->target),
        text_field(compiler_build),
        text_field(assembler_build),
    };
    for (int i = 0; i < source->option_count; i++) fields[FIXED + i] = text_field(source->options[i]);
    return disk_key_make(fields, (size_t)(FIXED + source->option_count), key);
}

static foscar_status compile_cuda(const nvrtc *compiler, const image_source *source, char **ptx, size_t *length,
                                  foscar_error *err)
{
    char architecture[64];
    const char *options[IMAGE_OPTIONS_MAX + 1];
    const char *number = strchr(source->target, '_'); /* "sm_90a" is "compute_90a" to NVRTC */
    snprintf(architecture, sizeof architecture, "--gpu-architecture=compute%s", number != NULL ? number : "");
    options[0] = architecture;
    for (int i = 0; i < source->option_count; i++) options[i + 1] = source->options[i];
    return nvrtc_compile(compiler, source->name, source->text, options, source->option_count + 1, ptx, length, err);
}

static foscar_status assemble(const assembler *ptxas, const nvrtc *compiler, const image_source *source,
                              foscar_image *image, foscar_error *err)
{
    assembler_usage usage;
    char *compiled = NULL;
    const char *ptx = source->text;
    size_t length = source->length;
    foscar_status status = FOSCAR_OK;
    if (source->language == IMAGE_CUDA) {
        status = compile_cuda(compiler, source, &compiled, &length, err);
        ptx = compiled;
    }
    if (status == FOSCAR_OK)
        status = assembler_run(ptxas, ptx, length, source->target, &image->cubin, &image->bytes, &usage, err);
    free(compiled);
    if (status != FOSCAR_OK) return status;
    image->registers = usage.registers;
    image->spill_bytes = usage.spill_bytes;
    image->stack_bytes = usage.stack_bytes;
    return FOSCAR_OK;
}

/* A failure of the cache is no failure of the call, and nothing is printed: foscar_describe tells. */
static void note_disk_problem(foscar_runtime *runtime, const char problem[DISK_PROBLEM_MAX])
{
    pthread_mutex_lock(&runtime->tools_lock);
    memcpy(runtime->disk_problem, problem, DISK_PROBLEM_MAX);
    pthread_mutex_unlock(&runtime->tools_lock);
}

foscar_status image_make(foscar_runtime *runtime, const image_source *source, foscar_image *image, foscar_error *err)
{
    const assembler *ptxas;
    const nvrtc *compiler = NULL;
    disk_key key;
    double begin = milliseconds_now();
    memset(image, 0, sizeof *image);
    image->struct_size = sizeof *image;
    if (source->option_count > IMAGE_OPTIONS_MAX)
        return status_fail(err, FOSCAR_INVALID_ARGUMENT, "%s: more than %d compiler options", source->name,
                           (int)IMAGE_OPTIONS_MAX);
    foscar_status status = runtime_assembler(runtime, &ptxas, err);
    if (status == FOSCAR_OK && source->language == IMAGE_CUDA) status = runtime_nvrtc(runtime, &compiler, err);
    if (status != FOSCAR_OK) return status;
    char problem[2][DISK_PROBLEM_MAX] = {"", ""}; /* of reading, of keeping */
    bool keyed = make_key(source, compiler != NULL ? compiler->build : "", ptxas->build, &key);
    if (keyed && disk_cache_load(&runtime->disk, &key, image, problem[0])) {
        image->from_cache = 1;
    } else {
        status = assemble(ptxas, compiler, source, image, err);
        if (status == FOSCAR_OK && keyed) disk_cache_store(&runtime->disk, &key, image, problem[1]);
    }
    for (int i = 0; i < 2; i++)
        if (problem[i][0] != '\0') note_disk_problem(runtime, problem[i]);
    image->milliseconds = milliseconds_now() - begin;
    return status;
}

foscar_status image_ptx(foscar_runtime *runtime, const image_source *source, char **ptx, size_t *length,
                        foscar_error *err)
{
    const nvrtc *compiler;
    if (source->language == IMAGE_CUDA) {
        foscar_status status = runtime_nvrtc(runtime, &compiler, err);
        return status != FOSCAR_OK ? status : compile_cuda(compiler, source, ptx, length, err);
    }
    *ptx = malloc(source->length + 1);
    if (*ptx == NULL) return status_fail(err, FOSCAR_OUT_OF_MEMORY, "no memory for %zu bytes of PTX", source->length);
    memcpy(*ptx, source->text, source->length);
    (*ptx)[source->length] = '\0';
    *length = source->length;
    return FOSCAR_OK;
}

static void decode_part(image_part *out)
{
    out->source.language = IMAGE_PTX;
    out->source.text = out->decode.ptx;
    out->source.length = out->decode.length;
}

static void cache_part(const config *cfg, image_part *out)
{
    out->source.language = IMAGE_CUDA;
    out->source.text = cache_kernels_source();
    out->source.length = strlen(out->source.text);
    out->source.option_count = cache_kernels_options(cfg, out->options);
    for (int i = 0; i < out->source.option_count; i++) out->source.options[i] = out->options[i];
}

foscar_status image_part_make(const config *cfg, foscar_part part, image_part *out, foscar_error *err)
{
    gen_error problem = {""};
    memset(out, 0, sizeof *out);
    if (part == FOSCAR_PART_DECODE) {
        if (!generate_decode(cfg, &out->decode, &problem))
            return status_fail(err, FOSCAR_INVALID_SPEC, "%s", problem.message);
        decode_part(out);
    } else if (part == FOSCAR_PART_CACHE)
        cache_part(cfg, out);
    else
        return status_fail(err, FOSCAR_INVALID_ARGUMENT, "there is no part %d", (int)part);
    config_format(cfg, out->spec);
    out->source.name = out->spec;
    out->source.target = cfg->target->name;
    return FOSCAR_OK;
}

void image_part_finish(image_part *part)
{
    kernel_text_finish(&part->decode);
}

void foscar_image_finish(foscar_image *image)
{
    if (image == NULL) return;
    free(image->cubin);
    image->cubin = NULL;
    image->bytes = 0;
}

/* Hands an image to the caller; its cubin is freed if the caller's struct is not one. */
static foscar_status give_image(foscar_image *ours, foscar_image *theirs, foscar_error *err)
{
    foscar_status status = struct_export("foscar_image", theirs, ours, sizeof *ours, sizeof *ours, err);
    if (status != FOSCAR_OK) foscar_image_finish(ours);
    return status;
}

foscar_status foscar_assemble(foscar_runtime *runtime, const char *spec, foscar_part part, foscar_image *image,
                              foscar_error *err)
{
    decode_plan plan;
    image_part source;
    foscar_image made;
    foscar_status status = runtime_enter(runtime, err);
    if (status == FOSCAR_OK) status = runtime_plan(spec, &plan, err);
    if (status == FOSCAR_OK) status = image_part_make(&plan.cfg, part, &source, err);
    if (status != FOSCAR_OK) return status;
    status = image_make(runtime, &source.source, &made, err);
    image_part_finish(&source);
    return status != FOSCAR_OK ? status : give_image(&made, image, err);
}

foscar_status foscar_assemble_ptx(foscar_runtime *runtime, const char *ptx, size_t length, const char *target_name,
                                  foscar_image *image, foscar_error *err)
{
    foscar_image made;
    foscar_status status = runtime_enter(runtime, err);
    if (status != FOSCAR_OK) return status;
    if (ptx == NULL || length == 0) return status_fail(err, FOSCAR_INVALID_ARGUMENT, "the PTX is NULL or empty");
    if (target_name == NULL || target_name[0] == '\0') return status_fail(err, FOSCAR_INVALID_ARGUMENT, "the target is NULL");
    image_source source = {.language = IMAGE_PTX, .name = "PTX", .text = ptx, .length = length, .target = target_name};
    status = image_make(runtime, &source, &made, err);
    return status != FOSCAR_OK ? status : give_image(&made, image, err);
}
