/* prepare and launch over a fake driver: a table of functions that keep count and fail when told to. The images are real (ptxas and NVRTC). */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime.h"
#include "toolkit.h"

static const char spec[] = "sm_90a-k2t128-v2t128-d128-h8-p64";

/* ---- The fake driver ---- */

enum { FAKE_LAUNCHES = 8, FAKE_NAMES = 64, SM_COUNT = 3 };

typedef struct fake_launch {
    unsigned int grid[3], block[3], shared_bytes;
    const char *entry;
    void *stream;
    bool overlaps;
    uint64_t first_parameter;
} fake_launch;

static struct fake {
    pthread_mutex_t lock;
    CUcontext current; /* one for all threads: enough here */
    int retained, pushed, libraries, loads, memory;
    int calls, fail_at; /* the call of this number fails; 0: none */
    CUresult failure;
    int capability;
    int launches;
    fake_launch launch[FAKE_LAUNCHES];
    char names[FAKE_NAMES][64]; /* of entries; a CUkernel or CUfunction is a pointer to one */
    int name_count;
    int32_t check_code;
    int capturing, modes;
    int on_its_way; /* copies to the GPU that the null stream has not been waited for after */
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

static CUcontext primary = (CUcontext)(uintptr_t)0x1000;

static CUresult outcome(void)
{
    pthread_mutex_lock(&fake.lock);
    CUresult result = ++fake.calls == fake.fail_at ? fake.failure : DRIVER_CUDA_SUCCESS;
    pthread_mutex_unlock(&fake.lock);
    return result;
}

#define OR_FAIL()                                                                                                      \
    do {                                                                                                               \
        CUresult result_ = outcome();                                                                                  \
        if (result_ != DRIVER_CUDA_SUCCESS) return result_;                                                            \
    } while (0)

static CUresult fake_error_text(CUresult result, const char **text)
{
    (void)result;
    *text = "FAKE";
    return 0;
}

static CUresult fake_device_count(int *count)
{
    OR_FAIL();
    *count = 1;
    return 0;
}

static CUresult fake_device_get(CUdevice *device, int ordinal)
{
    OR_FAIL();
    *device = ordinal;
    return 0;
}

static CUresult fake_device_attribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    (void)device;
    OR_FAIL();
    switch (attribute) {
    case DRIVER_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = fake.capability / 10; break;
    case DRIVER_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = fake.capability % 10; break;
    case DRIVER_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = SM_COUNT; break;
    default: *value = 232448; break;
    }
    return 0;
}

static CUresult fake_retain(CUcontext *context, CUdevice device)
{
    (void)device;
    OR_FAIL();
    fake.retained++;
    *context = primary;
    return 0;
}

static CUresult fake_release(CUdevice device)
{
    (void)device;
    fake.retained--;
    return 0;
}

static CUresult fake_get_current(CUcontext *context)
{
    OR_FAIL();
    *context = fake.current;
    return 0;
}

static CUresult fake_set_current(CUcontext context)
{
    OR_FAIL();
    fake.current = context;
    return 0;
}

static CUresult fake_push(CUcontext context)
{
    OR_FAIL();
    assert_ptr_equal(context, primary);
    fake.pushed++;
    return 0;
}

static CUresult fake_pop(CUcontext *context)
{
    *context = primary;
    fake.pushed--;
    return 0;
}

static CUresult fake_context_device(CUdevice *device)
{
    OR_FAIL();
    *device = 0;
    return 0;
}

static CUresult fake_context_id(CUcontext context, unsigned long long *id)
{
    OR_FAIL();
    *id = (unsigned long long)(uintptr_t)context;
    return 0;
}

static CUresult fake_capture_mode(CUstreamCaptureMode *mode)
{
    CUstreamCaptureMode before = *mode;
    OR_FAIL();
    *mode = 0;
    fake.modes++;
    if (fake.modes % 2 == 1) assert_int_equal(before, DRIVER_CU_STREAM_CAPTURE_MODE_RELAXED);
    return 0;
}

static CUresult fake_load(CUlibrary *library, const void *code, CUjit_option *jit, void **values, unsigned int count,
                          CUlibraryOption *options, void **option_values, unsigned int option_count)
{
    (void)options, (void)option_values, (void)option_count, (void)jit;
    OR_FAIL();
    bool text = memcmp(code, "\x7f" "ELF", 4) != 0;
    assert_int_equal(text, count > 0); /* text comes with log buffers, a cubin without */
    if (text) strcpy(values[0], "ptxas info    : Used 40 registers\n");
    pthread_mutex_lock(&fake.lock);
    fake.libraries++;
    fake.loads++;
    pthread_mutex_unlock(&fake.lock);
    *library = (CUlibrary)(uintptr_t)0x2000;
    return 0;
}

static CUresult fake_unload(CUlibrary library)
{
    (void)library;
    fake.libraries--;
    return 0;
}

static CUresult fake_get_kernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    (void)library;
    OR_FAIL();
    pthread_mutex_lock(&fake.lock);
    char *slot = fake.names[fake.name_count++ % FAKE_NAMES];
    pthread_mutex_unlock(&fake.lock);
    snprintf(slot, sizeof fake.names[0], "%s", name);
    *kernel = (CUkernel)(void *)slot;
    return 0;
}

static CUresult fake_get_function(CUfunction *function, CUkernel kernel)
{
    OR_FAIL();
    *function = (CUfunction)(void *)kernel;
    return 0;
}

static CUresult fake_get_attribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    (void)function;
    OR_FAIL();
    *value = attribute == DRIVER_CU_FUNC_ATTRIBUTE_NUM_REGS ? 40 : 0;
    return 0;
}

static CUresult fake_set_attribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    (void)function, (void)value;
    OR_FAIL();
    assert_int_equal(attribute, DRIVER_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
    return 0;
}

static CUresult fake_func_load(CUfunction function)
{
    (void)function;
    return outcome();
}

static CUresult fake_launch_kernel(const CUlaunchConfig *how, CUfunction function, void **parameters, void **extra)
{
    OR_FAIL();
    assert_null(extra);
    assert_true(fake.launches < FAKE_LAUNCHES);
    fake_launch *l = &fake.launch[fake.launches++];
    memcpy(l->grid, how->grid, sizeof l->grid);
    memcpy(l->block, how->block, sizeof l->block);
    l->shared_bytes = how->shared_bytes;
    l->stream = how->stream;
    l->entry = (const char *)(void *)function;
    l->overlaps = how->attribute_count == 1 &&
                  how->attributes->id == DRIVER_CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
                  how->attributes->value.programmatic_stream_serialization == 1;
    memcpy(&l->first_parameter, parameters[0], sizeof l->first_parameter);
    return 0;
}

static CUresult fake_allocate(CUdeviceptr *address, size_t bytes)
{
    (void)bytes;
    OR_FAIL();
    fake.memory++;
    *address = 0x3000;
    return 0;
}

static CUresult fake_free(CUdeviceptr address)
{
    assert_int_equal(address, 0x3000);
    fake.memory--;
    return 0;
}

static CUresult fake_fill(CUdeviceptr address, unsigned char byte, size_t bytes, CUstream stream)
{
    (void)address, (void)bytes, (void)stream;
    OR_FAIL();
    assert_int_equal(byte, 0xff);
    return 0;
}

static CUresult fake_copy_back(void *host, CUdeviceptr address, size_t bytes, CUstream stream)
{
    (void)address, (void)stream;
    OR_FAIL();
    cache_check_result result = {.code = fake.check_code, .sequence = 4, .entry = 2, .value = -9};
    assert_int_equal(bytes, sizeof result);
    memcpy(host, &result, sizeof result);
    return 0;
}

static CUresult fake_copy_there(CUdeviceptr address, const void *host, size_t bytes)
{
    (void)address, (void)host, (void)bytes;
    OR_FAIL();
    fake.on_its_way++;
    return 0;
}

static CUresult fake_synchronise(CUstream stream)
{
    OR_FAIL();
    if (stream == NULL) fake.on_its_way = 0;
    return 0;
}

static CUresult fake_is_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
    (void)stream;
    OR_FAIL();
    *status = fake.capturing;
    return 0;
}

static const driver fake_driver = {
    .version = 13000,
    .cuGetErrorName = fake_error_text,
    .cuGetErrorString = fake_error_text,
    .cuDeviceGetCount = fake_device_count,
    .cuDeviceGet = fake_device_get,
    .cuDeviceGetAttribute = fake_device_attribute,
    .cuDevicePrimaryCtxRetain = fake_retain,
    .cuDevicePrimaryCtxRelease_v2 = fake_release,
    .cuCtxGetCurrent = fake_get_current,
    .cuCtxSetCurrent = fake_set_current,
    .cuCtxPushCurrent_v2 = fake_push,
    .cuCtxPopCurrent_v2 = fake_pop,
    .cuCtxGetDevice = fake_context_device,
    .cuCtxGetId = fake_context_id,
    .cuThreadExchangeStreamCaptureMode = fake_capture_mode,
    .cuLibraryLoadData = fake_load,
    .cuLibraryUnload = fake_unload,
    .cuLibraryGetKernel = fake_get_kernel,
    .cuKernelGetFunction = fake_get_function,
    .cuFuncGetAttribute = fake_get_attribute,
    .cuFuncSetAttribute = fake_set_attribute,
    .cuFuncLoad = fake_func_load,
    .cuLaunchKernelEx = fake_launch_kernel,
    .cuMemAlloc_v2 = fake_allocate,
    .cuMemFree_v2 = fake_free,
    .cuMemsetD8Async = fake_fill,
    .cuMemcpyHtoD_v2 = fake_copy_there,
    .cuMemcpyDtoHAsync_v2 = fake_copy_back,
    .cuStreamSynchronize = fake_synchronise,
    .cuStreamIsCapturing = fake_is_capturing,
};

/* ---- Set-up ---- */

static char directory[] = "/tmp/foscar-test-XXXXXX";

static foscar_runtime *open_over_fake(void)
{
    foscar_runtime *runtime = NULL;
    foscar_options options = {.struct_size = sizeof options, .cache_directory = directory};
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    memset(&fake, 0, sizeof fake);
    fake.lock = lock;
    fake.capability = 90;
    fake.failure = 999;
    assert_int_equal(foscar_open(&options, &runtime, NULL), FOSCAR_OK);
    runtime->cuda = fake_driver;
    runtime->driver_tool.state = TOOL_READY;
    return runtime;
}

static bool tools_missing(void)
{
    const assembler *ptxas;
    const nvrtc *compiler;
    foscar_runtime *runtime = open_over_fake();
    bool missing = runtime_assembler(runtime, &ptxas, NULL) != FOSCAR_OK ||
                   runtime_nvrtc(runtime, &compiler, NULL) != FOSCAR_OK;
    foscar_close(runtime);
    return missing;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st, (void)type, (void)where;
    return remove(path);
}

static int make_directory(void **state)
{
    (void)state;
    return mkdtemp(directory) != NULL ? 0 : -1;
}

static int remove_directory(void **state)
{
    (void)state;
    return nftw(directory, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static foscar_kernel *prepared(foscar_runtime *runtime)
{
    foscar_error err = {0};
    foscar_kernel *kernel = NULL;
    foscar_status status = foscar_prepare(runtime, spec, &kernel, &err);
    if (status != FOSCAR_OK) print_message("%s\n", err.message);
    assert_int_equal(status, FOSCAR_OK);
    return kernel;
}

static void *at(uintptr_t address)
{
    return (void *)address;
}

static const foscar_cache cache = {
    .struct_size = sizeof cache,
    .batch = 2,
    .kv_heads = 2,
    .table_stride = 4,
    .pages = (void *)0x10000,
    .pages_count = 8,
    .page_table = (void *)0x20000,
    .lengths = (void *)0x30000,
};

static foscar_decode_args decode_args(const foscar_kernel *kernel)
{
    foscar_decode_args args = {
        .struct_size = sizeof args,
        .cache = &cache,
        .q = at(0x40000),
        .out = at(0x50000),
        .workspace = at(0x60000),
        .workspace_bytes = kernel->shape.workspace_bytes,
    };
    return args;
}

/* ---- Preparing ---- */

static void prepare_retains_the_primary_context_once(void **state)
{
    (void)state;
    if (tools_missing()) skip();
    foscar_runtime *runtime = open_over_fake();
    prepared(runtime);
    fake.current = NULL;
    prepared(runtime);
    assert_ptr_equal(fake.current, primary);
    assert_int_equal(fake.retained, 1);
    foscar_close(runtime);
    assert_int_equal(fake.retained, 0);
    assert_int_equal(fake.libraries, 0);
}

static void prepare_uses_the_current_context(void **state)
{
    (void)state;
    if (tools_missing()) skip();
    foscar_runtime *runtime = open_over_fake();
    fake.current = (CUcontext)(uintptr_t)0x7000;
    foscar_kernel *one = prepared(runtime);
    assert_int_equal(fake.retained, 0);
    fake.current = (CUcontext)(uintptr_t)0x8000;
    foscar_kernel *two = prepared(runtime);
    assert_ptr_not_equal(one, two); /* function handles belong to their context */
    fake.current = (CUcontext)(uintptr_t)0x7000;
    assert_ptr_equal(prepared(runtime), one);
    foscar_close(runtime);
}

static void the_kernel_tells_its_numbers(void **state)
{
    (void)state;
    if (tools_missing()) skip();
    foscar_runtime *runtime = open_over_fake();
    prepared(runtime);
    foscar_close(runtime);
    runtime = open_over_fake();
    foscar_kernel *kernel = prepared(runtime);
    foscar_kernel_info info = {.struct_size = sizeof info};
    uint64_t workspace = 0;
    assert_int_equal(foscar_kernel_describe(kernel, &info, NULL), FOSCAR_OK);
    assert_int_equal(foscar_workspace_bytes(spec, SM_COUNT, &workspace, NULL), FOSCAR_OK);
    assert_string_equal(info.spec, spec);
    assert_int_equal(info.blocks, SM_COUNT);
    assert_int_equal(info.registers, 40);
    assert_int_equal(info.spill_bytes, 0);
    assert_int_equal(info.threads, 128 * (info.consumers + 1));
    assert_int_equal(info.page_bytes, 64 * 72);
    assert_int_equal(info.workspace_bytes, workspace);
    assert_int_equal(info.from_cache, 1);
    assert_int_equal(info.driver_jit, 0);
    foscar_close(runtime);
}

static void another_architecture_is_refused(void **state)
{
    (void)state;
    foscar_error err = {0};
    foscar_kernel *kernel = NULL;
    foscar_runtime *runtime = open_over_fake();
    assert_int_equal(foscar_can_run(runtime, spec, 0, &err), FOSCAR_OK);
    fake.capability = 100;
    assert_int_equal(foscar_can_run(runtime, spec, 0, &err), FOSCAR_WRONG_DEVICE);
    assert_non_null(strstr(err.message, "9.0"));
    assert_non_null(strstr(err.message, "10.0"));
    assert_int_equal(foscar_can_run(runtime, spec, 1, &err), FOSCAR_NO_DEVICE);
    assert_int_equal(foscar_can_run(runtime, spec, -1, &err), FOSCAR_NO_DEVICE);
    assert_int_equal(foscar_prepare(runtime, spec, &kernel, &err), FOSCAR_WRONG_DEVICE);
    assert_null(kernel);
    assert_int_equal(fake.loads, 0);
    foscar_close(runtime);
}

static void every_failing_driver_call_is_reported_and_leaks_nothing(void **state)
{
    (void)state;
    if (tools_missing()) skip();
    foscar_status status = FOSCAR_DRIVER_ERROR;
    int failures = 0;
    for (int n = 1; status != FOSCAR_OK; n++) {
        foscar_error err = {0};
        foscar_kernel *kernel = NULL;
        foscar_runtime *runtime = open_over_fake();
        fake.fail_at = n;
        status = foscar_prepare(runtime, spec, &kernel, &err);
        if (status != FOSCAR_OK) {
            assert_int_equal(status, FOSCAR_DRIVER_ERROR);
            assert_non_null(strstr(err.message, "FAKE (999)"));
            assert_null(kernel);
            assert_int_equal(fake.libraries, 0);
            fake.fail_at = 0; /* a failure is not kept */
            prepared(runtime);
            failures++;
        }
        foscar_close(runtime);
        assert_int_equal(fake.libraries, 0);
        assert_int_equal(fake.retained, 0);
        assert_true(n < 200);
    }
    assert_true(failures > 20);
}

static void without_ptxas_the_driver_compiles(void **state)
{
    (void)state;
    if (tools_missing()) skip();
    foscar_runtime *runtime = open_over_fake();
    foscar_kernel_info info = {.struct_size = sizeof info};
    foscar_kernel *kernel = NULL;
    foscar_error err = {0};
    runtime->assembler_tool.state = TOOL_MISSING;
    runtime->assembler_tool.problem = (foscar_error){FOSCAR_NO_ASSEMBLER, "no ptxas here"};
    assert_int_equal(foscar_kernel_describe(prepared(runtime), &info, NULL), FOSCAR_OK);
    assert_int_equal(info.driver_jit, 1);
    assert_int_equal(info.from_cache, 0);
    foscar_close(runtime);

    runtime = open_over_fake();
    runtime->flags |= FOSCAR_NO_DRIVER_JIT;
    runtime->assembler_tool.state = TOOL_MISSING;
    runtime->assembler_tool.problem = (foscar_error){FOSCAR_NO_ASSEMBLER, "no ptxas here"};
    assert_int_equal(foscar_prepare(runtime, spec, &kernel, &err), FOSCAR_NO_ASSEMBLER);
    assert_string_equal(err.message, "no ptxas here");
    foscar_close(runtime);
}

typedef struct asker {
    pthread_t thread;
    foscar_runtime *runtime;
    foscar_kernel *kernel;
    foscar_status status;
} asker;

static void *ask(void *context)
{
    asker *a = context;
    a->status = foscar_prepare(a->runtime, spec, &a->kernel, NULL);
    return NULL;
}

static void threads_that_ask_at_once_share_one_build(void **state)
{
    (void)state;
    enum { THREADS = 8 };
    if (tools_missing()) skip();
    foscar_runtime *runtime = open_over_fake();
    asker askers[THREADS];
    fake.current = primary;
    for (int i = 0; i < THREADS; i++) {
        askers[i] = (asker){.runtime = runtime};
        assert_int_equal(pthread_create(&askers[i].thread, NULL, ask, &askers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(askers[i].thread, NULL), 0);
        assert_int_equal(askers[i].status, FOSCAR_OK);
        assert_ptr_equal(askers[i].kernel, askers[0].kernel);
    }
    assert_int_equal(fake.loads, KERNEL_IMAGES);
    foscar_close(runtime);
}

static void threads_that_wait_for_a_failing_build_all_hear_of_it(void **state)
{
    (void)state;
    enum { THREADS = 8 };
    foscar_runtime *runtime = open_over_fake();
    asker askers[THREADS];
    fake.current = primary;
    runtime->flags |= FOSCAR_NO_DRIVER_JIT;
    runtime->assembler_tool.state = TOOL_MISSING;
    runtime->assembler_tool.problem = (foscar_error){FOSCAR_NO_ASSEMBLER, "no ptxas here"};
    for (int i = 0; i < THREADS; i++) {
        askers[i] = (asker){.runtime = runtime};
        assert_int_equal(pthread_create(&askers[i].thread, NULL, ask, &askers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(askers[i].thread, NULL), 0);
        assert_int_equal(askers[i].status, FOSCAR_NO_ASSEMBLER);
        assert_null(askers[i].kernel);
    }
    assert_null(runtime->kernels);
    foscar_close(runtime);
}

/* ---- Launching ---- */

static void decode_launches_the_kernel_and_then_an_overlapping_merge(void **state)
{
    (void)state;
    if (tools_missing()) skip();
    foscar_runtime *runtime = open_over_fake();
    foscar_kernel *kernel = prepared(runtime);
    foscar_decode_args args = decode_args(kernel);
    assert_int_equal(foscar_decode(kernel, &args, at(0x77), NULL), FOSCAR_OK);
    assert_int_equal(fake.launches, 2);
    const fake_launch *decode = &fake.launch[0], *merge = &fake.launch[1];
    assert_string_equal(decode->entry, kernel->entry);
    assert_int_equal(decode->grid[0], SM_COUNT);
    assert_int_equal(decode->block[0], kernel->plan.threads);
    assert_int_equal(decode->shared_bytes, kernel->plan.shared_bytes);
    assert_ptr_equal(decode->stream, at(0x77));
    assert_false(decode->overlaps);
    assert_int_equal(decode->first_parameter, 0x40000); /* q */
    assert_string_equal(merge->entry, cache_kernel_info(CACHE_MERGE)->entry);
    assert_int_equal(merge->block[0], cache_kernel_info(CACHE_MERGE)->threads);
    assert_true(merge->overlaps);
    assert_ptr_equal(merge->stream, at(0x77));
    assert_int_equal(merge->first_parameter, 0x60000); /* workspace */
    foscar_close(runtime);
}

static void a_launch_allocates_nothing_and_touches_no_library(void **state)
{
    (void)state;
    if (tools_missing()) skip();
    foscar_runtime *runtime = open_over_fake();
    foscar_kernel *kernel = prepared(runtime);
    foscar_decode_args args = decode_args(kernel);
    int loads = fake.loads, calls = fake.calls;
    assert_int_equal(foscar_decode(kernel, &args, NULL, NULL), FOSCAR_OK);
    assert_int_equal(fake.loads, loads);
    assert_int_equal(fake.calls, calls + 3); /* current context, two launches */
    assert_int_equal(fake.memory, 0);
    foscar_close(runtime);
}

static void a_thread_without_a_context_launches_in_the_kernels(void **state)
{
    (void)state;
    if (tools_missing()) skip();
    foscar_runtime *runtime = open_over_fake();
    foscar_kernel *kernel = prepared(runtime);
    foscar_decode_args args = decode_args(kernel);
    fake.current = NULL;
    fake.calls = 0;
    assert_int_equal(foscar_decode(kernel, &args, NULL, NULL), FOSCAR_OK);
    assert_int_equal(fake.calls, 4); /* the push */
    assert_int_equal(fake.pushed, 0);
    args.q = NULL;
    assert_int_equal(foscar_decode(kernel, &args, NULL, NULL), FOSCAR_INVALID_ARGUMENT);
    assert_int_equal(fake.pushed, 0);
    foscar_close(runtime);
}

static void bad_arguments_launch_nothing(void **state)
{
    (void)state;
    if (tools_missing()) skip();
    foscar_runtime *runtime = open_over_fake();
    foscar_kernel *kernel = prepared(runtime);
    foscar_decode_args args = decode_args(kernel);
    args.workspace_bytes = 0;
    assert_int_equal(foscar_decode(kernel, &args, NULL, NULL), FOSCAR_WORKSPACE_TOO_SMALL);
    assert_int_equal(foscar_append(kernel, NULL, NULL, NULL), FOSCAR_INVALID_ARGUMENT);
    assert_int_equal(foscar_dequantise(kernel, NULL, NULL, NULL), FOSCAR_INVALID_ARGUMENT);
    assert_int_equal(foscar_check(kernel, NULL, NULL, NULL), FOSCAR_INVALID_ARGUMENT);
    assert_int_equal(fake.launches, 0);
    assert_int_equal(fake.memory, 0);
    foscar_close(runtime);
}

static void append_and_dequantise_launch_their_kernels(void **state)
{
    (void)state;
    if (tools_missing()) skip();
    foscar_runtime *runtime = open_over_fake();
    foscar_kernel *kernel = prepared(runtime);
    foscar_append_args append = {.struct_size = sizeof append, .cache = &cache, .k = at(0x70000), .v = at(0x80000)};
    foscar_dequantise_args dequantise = {.struct_size = sizeof dequantise, .type = FOSCAR_F32, .cache = &cache,
                                         .out_k = at(0x90000)};
    assert_int_equal(foscar_append(kernel, &append, NULL, NULL), FOSCAR_OK);
    assert_int_equal(fake.launches, 1);
    assert_string_equal(fake.launch[0].entry, "foscar_append_decode");
    append.token_indptr = at(0xb0000);
    assert_int_equal(foscar_append(kernel, &append, NULL, NULL), FOSCAR_OK);
    assert_int_equal(fake.launches, 1); /* no tokens */
    append.tokens = 100;
    assert_int_equal(foscar_append(kernel, &append, NULL, NULL), FOSCAR_OK);
    assert_int_equal(fake.launches, 2);
    assert_string_equal(fake.launch[1].entry, "foscar_append_prefill");
    assert_int_equal(foscar_dequantise(kernel, &dequantise, NULL, NULL), FOSCAR_OK);
    assert_int_equal(fake.launches, 2); /* an empty range */
    dequantise.end = 64;
    assert_int_equal(foscar_dequantise(kernel, &dequantise, NULL, NULL), FOSCAR_OK);
    assert_string_equal(fake.launch[2].entry, "foscar_dequantise");
    for (int i = 0; i < fake.launches; i++) assert_false(fake.launch[i].overlaps);
    foscar_close(runtime);
}

static void check_names_sequence_entry_and_value(void **state)
{
    (void)state;
    if (tools_missing()) skip();
    foscar_error err = {0};
    foscar_runtime *runtime = open_over_fake();
    foscar_kernel *kernel = prepared(runtime);
    assert_int_equal(foscar_check(kernel, &cache, NULL, &err), FOSCAR_OK);
    fake.check_code = CHECK_PAGE;
    assert_int_equal(foscar_check(kernel, &cache, NULL, &err), FOSCAR_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "sequence 4"));
    assert_non_null(strstr(err.message, "entry 2"));
    assert_non_null(strstr(err.message, "value -9"));
    assert_int_equal(fake.memory, 0);
    fake.capturing = 1;
    assert_int_equal(foscar_check(kernel, &cache, NULL, &err), FOSCAR_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "captured"));
    foscar_close(runtime);
}

static void a_failing_check_gives_its_memory_back(void **state)
{
    (void)state;
    if (tools_missing()) skip();
    foscar_runtime *runtime = open_over_fake();
    foscar_kernel *kernel = prepared(runtime);
    foscar_status status = FOSCAR_DRIVER_ERROR;
    for (int n = 1; status != FOSCAR_OK; n++) {
        fake.calls = fake.launches = 0;
        fake.fail_at = n;
        fake.failure = n % 2 != 0 ? 999 : DRIVER_CUDA_ERROR_OUT_OF_MEMORY;
        status = foscar_check(kernel, &cache, NULL, NULL);
        assert_int_equal(fake.memory, 0);
        if (status != FOSCAR_OK) assert_int_equal(status, n % 2 != 0 ? FOSCAR_DRIVER_ERROR : FOSCAR_OUT_OF_MEMORY);
        assert_true(n < 20);
    }
    foscar_close(runtime);
}

/* A launch on a stream of its own right after the copy once read what was there before. */
static void an_upload_has_arrived_when_it_returns(void **state)
{
    (void)state;
    foscar_runtime *runtime = open_over_fake();
    foscar_error err;
    const char bytes[16] = {0};
    assert_int_equal(toolkit_upload(runtime, at(0x70000), bytes, sizeof bytes, &err), FOSCAR_OK);
    assert_int_equal(fake.on_its_way, 0);
    fake.calls = 0;
    assert_int_equal(toolkit_upload(runtime, at(0x70000), bytes, sizeof bytes, &err), FOSCAR_OK);
    fake.fail_at = fake.calls; /* the last call is the wait */
    fake.calls = 0;
    assert_int_equal(toolkit_upload(runtime, at(0x70000), bytes, sizeof bytes, &err), FOSCAR_DRIVER_ERROR);
    foscar_close(runtime);
}

static void a_child_of_fork_launches_nothing(void **state)
{
    (void)state;
    int status = 0;
    if (tools_missing()) skip();
    foscar_runtime *runtime = open_over_fake();
    foscar_kernel *kernel = prepared(runtime);
    foscar_decode_args args = decode_args(kernel);
    pid_t child = fork();
    if (child == 0) {
        bool refused = foscar_decode(kernel, &args, NULL, NULL) == FOSCAR_FORKED && fake.launches == 0;
        int libraries = fake.libraries;
        foscar_close(runtime); /* frees memory and leaves the driver alone */
        _exit(refused && fake.libraries == libraries ? 0 : 1);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    foscar_close(runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prepare_retains_the_primary_context_once),
        cmocka_unit_test(prepare_uses_the_current_context),
        cmocka_unit_test(the_kernel_tells_its_numbers),
        cmocka_unit_test(another_architecture_is_refused),
        cmocka_unit_test(every_failing_driver_call_is_reported_and_leaks_nothing),
        cmocka_unit_test(without_ptxas_the_driver_compiles),
        cmocka_unit_test(threads_that_ask_at_once_share_one_build),
        cmocka_unit_test(threads_that_wait_for_a_failing_build_all_hear_of_it),
        cmocka_unit_test(decode_launches_the_kernel_and_then_an_overlapping_merge),
        cmocka_unit_test(a_launch_allocates_nothing_and_touches_no_library),
        cmocka_unit_test(a_thread_without_a_context_launches_in_the_kernels),
        cmocka_unit_test(bad_arguments_launch_nothing),
        cmocka_unit_test(append_and_dequantise_launch_their_kernels),
        cmocka_unit_test(check_names_sequence_entry_and_value),
        cmocka_unit_test(a_failing_check_gives_its_memory_back),
        cmocka_unit_test(an_upload_has_arrived_when_it_returns),
        cmocka_unit_test(a_child_of_fork_launches_nothing),
    };
    return cmocka_run_group_tests_name("runtime_prepare", tests, make_directory, remove_directory);
}
