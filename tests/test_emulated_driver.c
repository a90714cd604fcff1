/* The emulated CUDA driver call by call, over two small kernels, and a runtime that is opened over it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulated_driver.h"
#include "toolkit.h"

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    INVALID_PTX = 218,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    LAUNCH_FAILED = 719,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURE_UNMATCHED = 903,
    CAPTURE_GLOBAL = 0,
    NUMBERS = 32
};

#define HEAD ".version 8.4\n.target sm_90a\n.address_size 64\n"

/* out[tid] += value; with an address that no allocation holds it is the fault of line 15. */
static const char add_text[] = HEAD ".visible .entry add(.param .b64 add_out, .param .b32 add_value)\n"
                                    ".reqntid 32, 1, 1\n"
                                    ".maxnreg 40\n"
                                    "{\n"
                                    "    .reg .b32 %r<4>;\n"
                                    "    .reg .b64 %l<4>;\n"
                                    "    ld.param.b64 %l0, [add_out];\n"
                                    "    ld.param.b32 %r0, [add_value];\n"
                                    "    mov.u32 %r1, %tid.x;\n"
                                    "    mad.wide.u32 %l1, %r1, 4, %l0;\n"
                                    "    ld.global.b32 %r2, [%l1];\n"
                                    "    add.s32 %r3, %r2, %r0;\n"
                                    "    st.global.b32 [%l1], %r3;\n"
                                    "    ret;\n"
                                    "}\n";
enum { ADD_LOAD_LINE = 14 };

/* The same entry, but it doubles the value. */
static const char twice_text[] = HEAD ".visible .entry add(.param .b64 add_out, .param .b32 add_value)\n"
                                      "{\n"
                                      "    .reg .b32 %r<5>;\n"
                                      "    .reg .b64 %l<4>;\n"
                                      "    ld.param.b64 %l0, [add_out];\n"
                                      "    ld.param.b32 %r0, [add_value];\n"
                                      "    mov.u32 %r1, %tid.x;\n"
                                      "    mad.wide.u32 %l1, %r1, 4, %l0;\n"
                                      "    ld.global.b32 %r2, [%l1];\n"
                                      "    add.s32 %r3, %r2, %r0;\n"
                                      "    add.s32 %r4, %r3, %r0;\n"
                                      "    st.global.b32 [%l1], %r4;\n"
                                      "    ret;\n"
                                      "}\n";

static driver cuda; /* of the test that runs */

static void open_driver(const emulated_options *options)
{
    foscar_error err;
    if (emulated_driver_create(options, &cuda, &err) != FOSCAR_OK) fail_msg("%s", err.message);
    assert_int_equal(cuda.cuInit(0), SUCCESS);
}

/* A driver of one device whose primary context is current. */
static void open_with_context(void)
{
    CUcontext context;
    open_driver(&(emulated_options){.compute_capability = 90, .execution = {.judge = true}});
    assert_int_equal(cuda.cuDevicePrimaryCtxRetain(&context, 0), SUCCESS);
    assert_int_equal(cuda.cuCtxSetCurrent(context), SUCCESS);
}

static int close_driver(void **state)
{
    (void)state;
    emulated_driver_destroy();
    return 0;
}

static CUfunction load_add(const char *text, CUlibrary *library)
{
    CUkernel kernel;
    CUfunction function;
    assert_int_equal(cuda.cuLibraryLoadData(library, text, NULL, NULL, 0, NULL, NULL, 0), SUCCESS);
    assert_int_equal(cuda.cuLibraryGetKernel(&kernel, *library, "add"), SUCCESS);
    assert_int_equal(cuda.cuKernelGetFunction(&function, kernel), SUCCESS);
    return function;
}

/* NUMBERS numbers 0, 1, 2, ... on the device. */
static CUdeviceptr upload_numbers(void)
{
    int32_t numbers[NUMBERS];
    CUdeviceptr device;
    for (int i = 0; i < NUMBERS; i++) numbers[i] = i;
    assert_int_equal(cuda.cuMemAlloc_v2(&device, sizeof numbers), SUCCESS);
    assert_int_equal(cuda.cuMemcpyHtoD_v2(device, numbers, sizeof numbers), SUCCESS);
    return device;
}

static CUresult launch_add(CUfunction function, CUdeviceptr device, int32_t value, CUstream stream)
{
    void *parameters[] = {&device, &value};
    const driver_launch_config config = {.grid = {1, 1, 1}, .block = {NUMBERS, 1, 1}, .stream = stream};
    return cuda.cuLaunchKernelEx(&config, function, parameters, NULL);
}

static void assert_raised_by(CUdeviceptr device, int32_t by)
{
    int32_t numbers[NUMBERS];
    assert_int_equal(cuda.cuMemcpyDtoH_v2(numbers, device, sizeof numbers), SUCCESS);
    for (int i = 0; i < NUMBERS; i++) assert_int_equal(numbers[i], i + by);
}

/* ---- Life, devices, contexts ---- */

static void there_is_one_driver_at_a_time_and_none_afterwards(void **state)
{
    (void)state;
    const emulated_options options = {.compute_capability = 90};
    driver second;
    foscar_error err;
    int count;
    open_driver(&options);
    assert_int_equal(emulated_driver_create(&options, &second, &err), FOSCAR_INVALID_ARGUMENT);
    emulated_driver_destroy();
    assert_int_equal(cuda.cuDeviceGetCount(&count), NOT_INITIALIZED);
    emulated_driver_destroy(); /* nothing to do */
    open_driver(&options);     /* and again */
    assert_int_equal(cuda.cuDeviceGetCount(&count), SUCCESS);
}

static void options_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    static const emulated_options rows[] = {
        {.compute_capability = 0},
        {.compute_capability = 90, .devices = -1},
        {.compute_capability = 90, .devices = EMULATED_DEVICES_MAX + 1},
        {.compute_capability = 90, .sm_count = -1},
    };
    foscar_error err;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(emulated_driver_create(&rows[i], &cuda, &err), FOSCAR_INVALID_ARGUMENT);
}

static void every_call_of_the_table_is_there(void **state)
{
    (void)state;
    open_driver(&(emulated_options){.compute_capability = 90});
#define DRIVER_CALL(presence, symbol, parameters) assert_true(cuda.symbol != NULL);
#include "driver.def"
    assert_int_equal(cuda.code, DRIVER_CODE_PTX);
}

static int attribute(int which, int device)
{
    int value = -1;
    assert_int_equal(cuda.cuDeviceGetAttribute(&value, which, device), SUCCESS);
    return value;
}

static void devices_are_what_was_asked_for(void **state)
{
    (void)state;
    char name[64];
    int count, value;
    CUdevice device;
    size_t bytes = 0;
    open_driver(&(emulated_options){.compute_capability = 100, .devices = 2, .sm_count = 7});
    assert_int_equal(cuda.cuDeviceGetCount(&count), SUCCESS);
    assert_int_equal(count, 2);
    for (int i = 0; i < count; i++) {
        assert_int_equal(cuda.cuDeviceGet(&device, i), SUCCESS);
        assert_int_equal(attribute(DRIVER_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device), 10);
        assert_int_equal(attribute(DRIVER_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device), 0);
        assert_int_equal(attribute(DRIVER_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device), 7);
        assert_int_equal(attribute(DRIVER_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device), 232448);
    }
    assert_int_equal(cuda.cuDeviceGetName(name, sizeof name, 1), SUCCESS);
    assert_string_equal(name, "PTX interpreter");
    assert_int_equal(cuda.cuDeviceTotalMem_v2(&bytes, 0), SUCCESS);
    assert_true(bytes > 0);
    assert_int_not_equal(cuda.cuDeviceGet(&device, 2), SUCCESS);
    assert_int_not_equal(cuda.cuDeviceGetAttribute(&value, 999999, 0), SUCCESS);
}

static void results_have_names_and_texts(void **state)
{
    (void)state;
    const char *name, *text;
    open_driver(&(emulated_options){.compute_capability = 90});
    assert_int_equal(cuda.cuGetErrorName(LAUNCH_FAILED, &name), SUCCESS);
    assert_string_equal(name, "CUDA_ERROR_LAUNCH_FAILED");
    assert_int_equal(cuda.cuGetErrorString(LAUNCH_FAILED, &text), SUCCESS);
    assert_true(strlen(text) > 0);
    assert_int_equal(cuda.cuGetErrorName(123456, &name), INVALID_VALUE);
    assert_null(name);
}

static void a_context_that_comes_to_life_again_has_another_id(void **state)
{
    (void)state;
    CUcontext context, again;
    unsigned long long first, second;
    open_driver(&(emulated_options){.compute_capability = 90});
    assert_int_equal(cuda.cuDevicePrimaryCtxRelease_v2(0), INVALID_CONTEXT);
    assert_int_equal(cuda.cuDevicePrimaryCtxRetain(&context, 0), SUCCESS);
    assert_int_equal(cuda.cuDevicePrimaryCtxRetain(&again, 0), SUCCESS);
    assert_ptr_equal(context, again);
    assert_int_equal(cuda.cuCtxGetId(context, &first), SUCCESS);
    assert_int_equal(cuda.cuDevicePrimaryCtxRelease_v2(0), SUCCESS);
    assert_int_equal(cuda.cuCtxGetId(context, &second), SUCCESS);
    assert_true(first == second);
    assert_int_equal(cuda.cuDevicePrimaryCtxRelease_v2(0), SUCCESS);
    assert_int_equal(cuda.cuCtxGetId(context, &second), INVALID_CONTEXT);
    assert_int_equal(cuda.cuCtxSetCurrent(context), INVALID_CONTEXT);
    assert_int_equal(cuda.cuDevicePrimaryCtxRetain(&context, 0), SUCCESS);
    assert_int_equal(cuda.cuCtxGetId(context, &second), SUCCESS);
    assert_true(first != second);
}

static void *current_of_another_thread(void *context)
{
    CUcontext current = (CUcontext)(uintptr_t)1;
    (void)context;
    if (cuda.cuCtxGetCurrent(&current) != SUCCESS) return (void *)(uintptr_t)1;
    return current;
}

static void each_thread_has_its_own_stack_of_contexts(void **state)
{
    (void)state;
    CUcontext first, second, current;
    CUdevice device;
    pthread_t thread;
    void *other;
    open_driver(&(emulated_options){.compute_capability = 90, .devices = 2});
    assert_int_equal(cuda.cuCtxGetCurrent(&current), SUCCESS);
    assert_null(current);
    assert_int_equal(cuda.cuCtxGetDevice(&device), INVALID_CONTEXT);
    assert_int_equal(cuda.cuCtxPopCurrent_v2(&current), INVALID_CONTEXT);
    assert_int_equal(cuda.cuDevicePrimaryCtxRetain(&first, 0), SUCCESS);
    assert_int_equal(cuda.cuDevicePrimaryCtxRetain(&second, 1), SUCCESS);
    assert_int_equal(cuda.cuCtxSetCurrent(first), SUCCESS);
    assert_int_equal(cuda.cuCtxPushCurrent_v2(second), SUCCESS);
    assert_int_equal(cuda.cuCtxGetDevice(&device), SUCCESS);
    assert_int_equal(device, 1);
    assert_int_equal(pthread_create(&thread, NULL, current_of_another_thread, NULL), 0);
    assert_int_equal(pthread_join(thread, &other), 0);
    assert_null(other);
    assert_int_equal(cuda.cuCtxPopCurrent_v2(&current), SUCCESS);
    assert_ptr_equal(current, second);
    assert_int_equal(cuda.cuCtxGetCurrent(&current), SUCCESS);
    assert_ptr_equal(current, first);
    assert_int_equal(cuda.cuCtxSetCurrent(NULL), SUCCESS);
    assert_int_equal(cuda.cuCtxGetCurrent(&current), SUCCESS);
    assert_null(current);
}

/* ---- Memory ---- */

static void copies_and_fills_stay_within_allocations(void **state)
{
    (void)state;
    uint8_t bytes[256], back[256];
    CUdeviceptr device;
    open_with_context();
    for (int i = 0; i < 256; i++) bytes[i] = (uint8_t)i;
    assert_int_equal(cuda.cuMemAlloc_v2(&device, 0), INVALID_VALUE);
    assert_int_equal(cuda.cuMemAlloc_v2(&device, sizeof bytes), SUCCESS);
    assert_int_equal(device % 256, 0);
    assert_int_equal(cuda.cuMemcpyHtoD_v2(device, bytes, sizeof bytes), SUCCESS);
    assert_int_equal(cuda.cuMemcpyDtoH_v2(back, device, sizeof back), SUCCESS);
    assert_memory_equal(bytes, back, sizeof back);
    assert_int_equal(cuda.cuMemcpyHtoD_v2(device + 1, bytes, sizeof bytes), INVALID_VALUE);
    assert_int_equal(cuda.cuMemcpyDtoH_v2(back, device + 1, sizeof back), INVALID_VALUE);
    assert_int_equal(cuda.cuMemsetD8Async(device + 255, 7, 2, NULL), INVALID_VALUE);
    assert_int_equal(cuda.cuMemsetD8Async(device + 16, 7, 16, NULL), SUCCESS);
    assert_int_equal(cuda.cuMemcpyDtoHAsync_v2(back, device, sizeof back, NULL), SUCCESS);
    memset(bytes + 16, 7, 16);
    assert_memory_equal(bytes, back, sizeof back);
    assert_int_equal(cuda.cuMemFree_v2(device + 16), INVALID_VALUE);
    assert_int_equal(cuda.cuMemFree_v2(device), SUCCESS);
    assert_int_equal(cuda.cuMemFree_v2(device), INVALID_VALUE);
    assert_int_equal(cuda.cuMemFree_v2(0), SUCCESS);
    assert_int_equal(cuda.cuCtxSetCurrent(NULL), SUCCESS);
    assert_int_equal(cuda.cuMemAlloc_v2(&device, 16), INVALID_CONTEXT);
}

/* ---- Code ---- */

static void machine_code_is_refused(void **state)
{
    (void)state;
    CUlibrary library;
    open_with_context();
    assert_int_equal(cuda.cuLibraryLoadData(&library, "\177ELF", NULL, NULL, 0, NULL, NULL, 0), NO_BINARY_FOR_GPU);
}

static void ptx_that_is_not_known_is_refused_with_its_line(void **state)
{
    (void)state;
    CUlibrary library;
    emulated_fault fault;
    char log[512] = "";
    CUjit_option options[] = {DRIVER_CU_JIT_ERROR_LOG_BUFFER, DRIVER_CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)(uintptr_t)sizeof log};
    const char *text = HEAD ".visible .entry wrong()\n{\n    frobnicate.b32 1, 2;\n    ret;\n}\n";
    open_with_context();
    assert_int_equal(cuda.cuLibraryLoadData(&library, text, options, values, 2, NULL, NULL, 0), INVALID_PTX);
    assert_non_null(strstr(log, "line 6"));
    assert_true(emulated_driver_fault(&fault));
    assert_int_equal(fault.error.fault, EMULATOR_UNKNOWN_FORM);
    assert_int_equal(fault.error.line, 6);
    assert_string_equal(fault.entry, "");
    emulated_driver_forgive();
    assert_false(emulated_driver_fault(&fault));
}

static void functions_tell_their_numbers(void **state)
{
    (void)state;
    CUlibrary library;
    CUkernel kernel;
    int value = -1;
    open_with_context();
    CUfunction add = load_add(add_text, &library);
    assert_int_equal(cuda.cuFuncGetAttribute(&value, DRIVER_CU_FUNC_ATTRIBUTE_NUM_REGS, add), SUCCESS);
    assert_int_equal(value, 40);
    assert_int_equal(cuda.cuFuncGetAttribute(&value, DRIVER_CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, add), SUCCESS);
    assert_int_equal(value, 0);
    const int shared = DRIVER_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    assert_int_equal(cuda.cuFuncSetAttribute(add, shared, 232448), SUCCESS);
    assert_int_equal(cuda.cuFuncGetAttribute(&value, shared, add), SUCCESS);
    assert_int_equal(value, 232448);
    assert_int_equal(cuda.cuFuncSetAttribute(add, shared, 232449), INVALID_VALUE);
    assert_int_equal(cuda.cuFuncLoad(add), SUCCESS);
    assert_int_equal(cuda.cuLibraryGetKernel(&kernel, library, "subtract"), NOT_FOUND);
    assert_int_equal(cuda.cuLibraryUnload(library), SUCCESS);
    assert_int_equal(cuda.cuFuncLoad(add), INVALID_HANDLE);
    assert_int_equal(cuda.cuLibraryUnload(library), INVALID_HANDLE);
}

static void a_substitute_is_run_instead_of_entries_of_its_name(void **state)
{
    (void)state;
    CUcontext context;
    CUlibrary library;
    open_driver(&(emulated_options){
        .compute_capability = 90, .substitute = twice_text, .substitute_length = sizeof twice_text - 1});
    assert_int_equal(cuda.cuDevicePrimaryCtxRetain(&context, 0), SUCCESS);
    assert_int_equal(cuda.cuCtxSetCurrent(context), SUCCESS);
    CUdeviceptr device = upload_numbers();
    assert_int_equal(launch_add(load_add(add_text, &library), device, 3, NULL), SUCCESS);
    assert_raised_by(device, 6);
    const char *other = HEAD ".visible .entry other()\n{\n    ret;\n}\n";
    CUkernel kernel;
    assert_int_equal(cuda.cuLibraryLoadData(&library, other, NULL, NULL, 0, NULL, NULL, 0), SUCCESS);
    assert_int_equal(cuda.cuLibraryGetKernel(&kernel, library, "other"), SUCCESS);
}

/* ---- Launches ---- */

static void a_launch_is_over_when_its_call_returns(void **state)
{
    (void)state;
    CUlibrary library;
    CUstream stream;
    open_with_context();
    CUfunction add = load_add(add_text, &library);
    CUdeviceptr device = upload_numbers();
    assert_int_equal(cuda.cuStreamCreate(&stream, DRIVER_CU_STREAM_NON_BLOCKING), SUCCESS);
    assert_int_equal(launch_add(add, device, 5, stream), SUCCESS);
    assert_raised_by(device, 5);
    assert_int_equal(launch_add(add, device, -7, NULL), SUCCESS);
    assert_raised_by(device, -2);
    assert_int_equal(cuda.cuStreamSynchronize(stream), SUCCESS);
    assert_int_equal(cuda.cuStreamDestroy_v2(stream), SUCCESS);
    assert_int_equal(launch_add(add, device, 1, stream), INVALID_HANDLE);
}

static void a_launch_that_the_driver_would_refuse_is_refused(void **state)
{
    (void)state;
    CUlibrary library;
    open_with_context();
    CUfunction add = load_add(add_text, &library);
    CUdeviceptr device = upload_numbers();
    int32_t value = 1;
    void *parameters[] = {&device, &value};
    driver_launch_attribute unknown = {.id = 77};
    const driver_launch_config rows[] = {
        {.grid = {0, 1, 1}, .block = {32, 1, 1}},
        {.grid = {1, 1, 1}, .block = {32, 0, 1}},
        {.grid = {1, 1, 1}, .block = {32, 1, 1}, .shared_bytes = 64 * 1024}, /* no limit was raised */
        {.grid = {1, 1, 1}, .block = {32, 1, 1}, .attributes = &unknown, .attribute_count = 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(cuda.cuLaunchKernelEx(&rows[i], add, parameters, NULL), INVALID_VALUE);
    assert_int_equal(cuda.cuLaunchKernelEx(&rows[0], (CUfunction)(void *)&value, parameters, NULL), INVALID_HANDLE);
    assert_raised_by(device, 0);
}

static void a_fault_sticks_until_it_is_forgiven_and_tells_where_it_was(void **state)
{
    (void)state;
    CUlibrary library;
    CUstream stream;
    emulated_fault fault;
    CUdeviceptr more;
    int32_t number;
    open_with_context();
    CUfunction add = load_add(add_text, &library);
    CUdeviceptr device = upload_numbers();
    assert_int_equal(cuda.cuStreamCreate(&stream, 0), SUCCESS);
    assert_int_equal(launch_add(add, device + 64, 1, stream), LAUNCH_FAILED); /* half of it lies outside */
    assert_true(emulated_driver_fault(&fault));
    assert_int_equal(fault.error.fault, EMULATOR_BOUNDS);
    assert_int_equal(fault.error.line, ADD_LOAD_LINE);
    assert_string_equal(fault.entry, "add");
    assert_int_equal(launch_add(add, device, 1, stream), LAUNCH_FAILED);
    assert_int_equal(cuda.cuStreamSynchronize(stream), LAUNCH_FAILED);
    assert_int_equal(cuda.cuMemcpyDtoH_v2(&number, device, sizeof number), LAUNCH_FAILED);
    assert_int_equal(cuda.cuMemAlloc_v2(&more, 16), LAUNCH_FAILED);
    emulated_driver_forgive();
    assert_false(emulated_driver_fault(&fault));
    assert_int_equal(launch_add(add, device, 1, stream), SUCCESS);
    assert_int_equal(launch_add(add, device + 2, 1, stream), LAUNCH_FAILED);
    assert_int_equal(cuda.cuMemFree_v2(device), SUCCESS); /* what cleans up works all the same */
    assert_int_equal(cuda.cuStreamDestroy_v2(stream), SUCCESS);
    assert_int_equal(cuda.cuLibraryUnload(library), SUCCESS);
}

static void counts_are_summed_over_launches(void **state)
{
    (void)state;
    CUcontext context;
    CUlibrary library;
    emulator_counts counts;
    const emulator_module *module;
    int entry;
    open_driver(&(emulated_options){.compute_capability = 90, .counting = true});
    assert_int_equal(cuda.cuDevicePrimaryCtxRetain(&context, 0), SUCCESS);
    assert_int_equal(cuda.cuCtxSetCurrent(context), SUCCESS);
    CUfunction add = load_add(add_text, &library);
    CUdeviceptr device = upload_numbers();
    assert_false(emulated_driver_counts("add", &counts, &module, &entry));
    for (int i = 0; i < 3; i++) assert_int_equal(launch_add(add, device, 1, NULL), SUCCESS);
    assert_true(emulated_driver_counts("add", &counts, &module, &entry));
    assert_true(counts.count >= 8);
    for (int i = 0; i < 7; i++) assert_int_equal(counts.executed[i], 3); /* one warp each time */
    emulator_counts_finish(&counts);
}

/* ---- Captures and graphs ---- */

static CUgraphExec capture_add(CUfunction add, CUdeviceptr device, int32_t value, CUstream stream)
{
    CUgraph graph;
    CUgraphExec exec;
    CUstreamCaptureStatus status;
    assert_int_equal(cuda.cuStreamBeginCapture_v2(stream, DRIVER_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), SUCCESS);
    assert_int_equal(cuda.cuStreamIsCapturing(stream, &status), SUCCESS);
    assert_int_not_equal(status, DRIVER_CU_STREAM_CAPTURE_STATUS_NONE);
    assert_int_equal(launch_add(add, device, value, stream), SUCCESS);
    assert_int_equal(cuda.cuStreamEndCapture(stream, &graph), SUCCESS);
    assert_int_equal(cuda.cuStreamIsCapturing(stream, &status), SUCCESS);
    assert_int_equal(status, DRIVER_CU_STREAM_CAPTURE_STATUS_NONE);
    assert_int_equal(cuda.cuGraphInstantiateWithFlags(&exec, graph, 0), SUCCESS);
    assert_int_equal(cuda.cuGraphDestroy(graph), SUCCESS);
    return exec;
}

static void a_graph_replays_what_was_recorded_with_the_values_of_then(void **state)
{
    (void)state;
    CUlibrary library;
    CUstream stream;
    open_with_context();
    CUfunction add = load_add(add_text, &library);
    CUdeviceptr device = upload_numbers();
    assert_int_equal(cuda.cuStreamCreate(&stream, DRIVER_CU_STREAM_NON_BLOCKING), SUCCESS);
    CUgraphExec exec = capture_add(add, device, 10, stream); /* its arguments are gone when this returns */
    assert_raised_by(device, 0);                             /* nothing ran yet */
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(cuda.cuGraphLaunch(exec, stream), SUCCESS);
        assert_raised_by(device, 10 * i);
    }
    assert_int_equal(cuda.cuLibraryUnload(library), SUCCESS);
    assert_int_equal(cuda.cuGraphLaunch(exec, stream), INVALID_HANDLE);
    assert_int_equal(cuda.cuGraphExecDestroy(exec), SUCCESS);
    assert_int_equal(cuda.cuGraphExecDestroy(exec), INVALID_HANDLE);
}

static void fills_are_recorded_in_their_order(void **state)
{
    (void)state;
    CUlibrary library;
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    int32_t numbers[NUMBERS];
    open_with_context();
    CUfunction add = load_add(add_text, &library);
    CUdeviceptr device = upload_numbers();
    assert_int_equal(cuda.cuStreamCreate(&stream, DRIVER_CU_STREAM_NON_BLOCKING), SUCCESS);
    assert_int_equal(cuda.cuStreamBeginCapture_v2(stream, CAPTURE_GLOBAL), SUCCESS);
    assert_int_equal(cuda.cuMemsetD8Async(device, 0, sizeof numbers, stream), SUCCESS);
    assert_int_equal(launch_add(add, device, 4, stream), SUCCESS);
    assert_int_equal(cuda.cuStreamEndCapture(stream, &graph), SUCCESS);
    assert_int_equal(cuda.cuGraphInstantiateWithFlags(&exec, graph, 0), SUCCESS);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(cuda.cuGraphLaunch(exec, stream), SUCCESS);
        assert_int_equal(cuda.cuMemcpyDtoH_v2(numbers, device, sizeof numbers), SUCCESS);
        for (int i = 0; i < NUMBERS; i++) assert_int_equal(numbers[i], 4);
    }
}

static void what_cannot_be_captured_spoils_the_capture(void **state)
{
    (void)state;
    CUstream stream;
    CUgraph graph;
    CUdeviceptr device, more;
    CUstreamCaptureMode relaxed = DRIVER_CU_STREAM_CAPTURE_MODE_RELAXED;
    open_with_context();
    device = upload_numbers();
    assert_int_equal(cuda.cuStreamCreate(&stream, DRIVER_CU_STREAM_NON_BLOCKING), SUCCESS);
    assert_int_equal(cuda.cuStreamEndCapture(stream, &graph), CAPTURE_UNMATCHED);
    assert_int_equal(cuda.cuStreamBeginCapture_v2(NULL, CAPTURE_GLOBAL), CAPTURE_UNSUPPORTED);
    assert_int_equal(cuda.cuStreamBeginCapture_v2(stream, CAPTURE_GLOBAL), SUCCESS);
    assert_int_equal(cuda.cuStreamSynchronize(stream), CAPTURE_UNSUPPORTED);
    assert_int_equal(cuda.cuStreamEndCapture(stream, &graph), CAPTURE_INVALIDATED);
    assert_null(graph);
    assert_int_equal(cuda.cuStreamBeginCapture_v2(stream, DRIVER_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), SUCCESS);
    assert_int_equal(cuda.cuMemAlloc_v2(&more, 16), CAPTURE_UNSUPPORTED);
    assert_int_equal(cuda.cuStreamEndCapture(stream, &graph), CAPTURE_INVALIDATED);
    /* in the relaxed mode of the thread it may allocate */
    assert_int_equal(cuda.cuStreamBeginCapture_v2(stream, DRIVER_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), SUCCESS);
    assert_int_equal(cuda.cuThreadExchangeStreamCaptureMode(&relaxed), SUCCESS);
    assert_int_equal(relaxed, CAPTURE_GLOBAL);
    assert_int_equal(cuda.cuMemAlloc_v2(&more, 16), SUCCESS);
    assert_int_equal(cuda.cuThreadExchangeStreamCaptureMode(&relaxed), SUCCESS);
    assert_int_equal(relaxed, DRIVER_CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_int_equal(cuda.cuStreamEndCapture(stream, &graph), SUCCESS);
    assert_int_equal(cuda.cuMemFree_v2(device), SUCCESS);
}

static void events_measure_time(void **state)
{
    (void)state;
    CUevent begin, end;
    float milliseconds = -1;
    open_with_context();
    assert_int_equal(cuda.cuEventCreate(&begin, DRIVER_CU_EVENT_DEFAULT), SUCCESS);
    assert_int_equal(cuda.cuEventCreate(&end, DRIVER_CU_EVENT_DEFAULT), SUCCESS);
    assert_int_equal(cuda.cuEventRecord(begin, NULL), SUCCESS);
    assert_int_equal(cuda.cuEventElapsedTime(&milliseconds, begin, end), INVALID_HANDLE); /* not recorded */
    assert_int_equal(cuda.cuEventRecord(end, NULL), SUCCESS);
    assert_int_equal(cuda.cuEventSynchronize(end), SUCCESS);
    assert_int_equal(cuda.cuEventElapsedTime(&milliseconds, begin, end), SUCCESS);
    assert_true(milliseconds >= 0);
    assert_int_equal(cuda.cuEventDestroy_v2(begin), SUCCESS);
    assert_int_equal(cuda.cuEventDestroy_v2(begin), INVALID_HANDLE);
}

/* ---- Memory that runs out ---- */

static int allocations_left = -1; /* until one fails; -1: none fails */

static bool allocation_fails(void)
{
    return allocations_left >= 0 && allocations_left-- == 0;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    return allocation_fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return allocation_fails() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    return allocation_fails() ? NULL : __real_realloc(memory, bytes);
}

/* Everything that allocates; the first result that is not SUCCESS. */
static CUresult use_everything(void)
{
    CUcontext context;
    CUlibrary library;
    CUkernel kernel;
    CUfunction add;
    CUdeviceptr device;
    CUstream stream;
    CUevent event;
    CUgraph graph;
    CUgraphExec exec;
    CUresult r = cuda.cuDevicePrimaryCtxRetain(&context, 0);
    if (r == SUCCESS) r = cuda.cuCtxSetCurrent(context);
    if (r == SUCCESS) r = cuda.cuLibraryLoadData(&library, add_text, NULL, NULL, 0, NULL, NULL, 0);
    if (r == SUCCESS) r = cuda.cuLibraryGetKernel(&kernel, library, "add");
    if (r == SUCCESS) r = cuda.cuKernelGetFunction(&add, kernel);
    if (r == SUCCESS) r = cuda.cuMemAlloc_v2(&device, NUMBERS * sizeof(int32_t));
    if (r == SUCCESS) r = cuda.cuMemsetD8Async(device, 0, NUMBERS * sizeof(int32_t), NULL);
    if (r == SUCCESS) r = cuda.cuStreamCreate(&stream, 0);
    if (r == SUCCESS) r = cuda.cuEventCreate(&event, 0);
    if (r == SUCCESS) r = launch_add(add, device, 1, stream);
    if (r == SUCCESS) r = cuda.cuStreamBeginCapture_v2(stream, CAPTURE_GLOBAL);
    if (r == SUCCESS) r = launch_add(add, device, 1, stream);
    if (r == SUCCESS) r = cuda.cuMemsetD8Async(device, 0, 4, stream);
    if (r == SUCCESS) r = cuda.cuStreamEndCapture(stream, &graph);
    if (r == SUCCESS) r = cuda.cuGraphInstantiateWithFlags(&exec, graph, 0);
    if (r == SUCCESS) r = cuda.cuGraphLaunch(exec, stream);
    return r;
}

/* What leaks is told by the address sanitizer. */
static void every_failing_allocation_is_reported(void **state)
{
    (void)state;
    const emulated_options options = {.compute_capability = 90,
                                      .counting = true,
                                      .substitute = twice_text,
                                      .substitute_length = sizeof twice_text - 1};
    foscar_error error;
    int failures = 0;
    for (;; failures++) {
        allocations_left = failures;
        foscar_status status = emulated_driver_create(&options, &cuda, &error);
        CUresult result = status == FOSCAR_OK ? use_everything() : OUT_OF_MEMORY;
        bool failed = allocations_left < 0;
        allocations_left = -1;
        emulated_driver_destroy();
        if (!failed) {
            assert_int_equal(result, SUCCESS);
            break;
        }
        if (status != FOSCAR_OK) assert_int_equal(status, FOSCAR_OUT_OF_MEMORY);
        if (result != OUT_OF_MEMORY) fail_msg("allocation %d fails and the result is %d", failures, (int)result);
    }
    assert_true(failures > 20);
}

/* ---- A runtime over it ---- */

static void a_runtime_over_the_interpreter_describes_its_device(void **state)
{
    (void)state;
    foscar_runtime *runtime;
    foscar_device_info info = {.struct_size = sizeof info};
    foscar_error err;
    open_driver(&(emulated_options){.compute_capability = 90, .sm_count = 5});
    assert_int_equal(toolkit_open_with_driver(NULL, &cuda, &runtime, &err), FOSCAR_OK);
    assert_int_equal(foscar_device_describe(runtime, 0, &info, &err), FOSCAR_OK);
    assert_string_equal(info.name, "PTX interpreter");
    assert_int_equal(info.sm_count, 5);
    assert_int_equal(foscar_can_run(runtime, "sm_90a-k2t128-v2t128-d128-h8-p64", 0, &err), FOSCAR_OK);
    foscar_close(runtime);
}

static void a_runtime_over_another_architecture_refuses_the_spec(void **state)
{
    (void)state;
    foscar_runtime *runtime;
    foscar_error err;
    open_driver(&(emulated_options){.compute_capability = 100});
    assert_int_equal(toolkit_open_with_driver(NULL, &cuda, &runtime, &err), FOSCAR_OK);
    assert_int_equal(foscar_can_run(runtime, "sm_90a-k2t128-v2t128-d128-h8-p64", 0, &err), FOSCAR_WRONG_DEVICE);
    foscar_close(runtime);
}

/* Without ptxas and without the disk cache: both are pointed to nowhere. */
static void the_toolkit_builds_and_launches_a_program_without_ptxas(void **state)
{
    (void)state;
    static const char source[] = "extern \"C\" __global__ void raise(int *x, int by) { x[threadIdx.x] += by; }";
    foscar_runtime *runtime;
    toolkit_program *program;
    foscar_error err;
    int32_t numbers[NUMBERS] = {0}, by = 9;
    void *device;
    const foscar_options options = {
        .struct_size = sizeof options, .ptxas = "/nowhere/ptxas", .cache_directory = "/nowhere/cache"};
    open_driver(&(emulated_options){.compute_capability = 90});
    assert_int_equal(toolkit_open_with_driver(&options, &cuda, &runtime, &err), FOSCAR_OK);
    foscar_status status = toolkit_program_build(runtime, "raise.cu", source, NULL, 0, &program, &err);
    if (status == FOSCAR_NO_NVRTC) {
        print_message("no NVRTC: %s\n", err.message);
        foscar_close(runtime);
        skip();
    }
    if (status != FOSCAR_OK) fail_msg("%s", err.message);
    assert_int_equal(toolkit_allocate(runtime, sizeof numbers, &device, &err), FOSCAR_OK);
    assert_int_equal(toolkit_upload(runtime, device, numbers, sizeof numbers, &err), FOSCAR_OK);
    const uint32_t grid[] = {1, 1, 1}, block[] = {NUMBERS, 1, 1};
    void *parameters[] = {&device, &by};
    status = toolkit_program_launch(program, "raise", grid, block, 0, parameters, NULL, &err);
    if (status != FOSCAR_OK) fail_msg("%s", err.message);
    assert_int_equal(toolkit_download(runtime, numbers, device, sizeof numbers, &err), FOSCAR_OK);
    for (int i = 0; i < NUMBERS; i++) assert_int_equal(numbers[i], 9);
    toolkit_free(runtime, device);
    toolkit_program_destroy(program);
    foscar_close(runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(there_is_one_driver_at_a_time_and_none_afterwards, close_driver),
        cmocka_unit_test_teardown(options_that_make_no_sense_are_refused, close_driver),
        cmocka_unit_test_teardown(every_call_of_the_table_is_there, close_driver),
        cmocka_unit_test_teardown(devices_are_what_was_asked_for, close_driver),
        cmocka_unit_test_teardown(results_have_names_and_texts, close_driver),
        cmocka_unit_test_teardown(a_context_that_comes_to_life_again_has_another_id, close_driver),
        cmocka_unit_test_teardown(each_thread_has_its_own_stack_of_contexts, close_driver),
        cmocka_unit_test_teardown(copies_and_fills_stay_within_allocations, close_driver),
        cmocka_unit_test_teardown(machine_code_is_refused, close_driver),
        cmocka_unit_test_teardown(ptx_that_is_not_known_is_refused_with_its_line, close_driver),
        cmocka_unit_test_teardown(functions_tell_their_numbers, close_driver),
        cmocka_unit_test_teardown(a_substitute_is_run_instead_of_entries_of_its_name, close_driver),
        cmocka_unit_test_teardown(a_launch_is_over_when_its_call_returns, close_driver),
        cmocka_unit_test_teardown(a_launch_that_the_driver_would_refuse_is_refused, close_driver),
        cmocka_unit_test_teardown(a_fault_sticks_until_it_is_forgiven_and_tells_where_it_was, close_driver),
        cmocka_unit_test_teardown(counts_are_summed_over_launches, close_driver),
        cmocka_unit_test_teardown(a_graph_replays_what_was_recorded_with_the_values_of_then, close_driver),
        cmocka_unit_test_teardown(fills_are_recorded_in_their_order, close_driver),
        cmocka_unit_test_teardown(what_cannot_be_captured_spoils_the_capture, close_driver),
        cmocka_unit_test_teardown(events_measure_time, close_driver),
        cmocka_unit_test_teardown(every_failing_allocation_is_reported, close_driver),
        cmocka_unit_test_teardown(a_runtime_over_the_interpreter_describes_its_device, close_driver),
        cmocka_unit_test_teardown(a_runtime_over_another_architecture_refuses_the_spec, close_driver),
        cmocka_unit_test_teardown(the_toolkit_builds_and_launches_a_program_without_ptxas, close_driver),
    };
    return cmocka_run_group_tests_name("emulated_driver", tests, NULL, NULL);
}
