/* The PTX interpreter: runs the text of a kernel on the CPU and judges its ordering.
 *
 *   text --module_parse--> module --emulator_launch--> report: passed, or what is wrong, on which line, in which warp
 *
 * It shares no code with the generator: whatever the text means is decoded here again, from the PTX ISA. A form that it does not know is
 * an error with a line number, never a no-op. Device addresses are addresses of this process, given out by emulator_memory_*. */
#ifndef FOSCAR_EMULATOR_H
#define FOSCAR_EMULATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct emulator_module emulator_module; /* module.h */

/* ---- What can be wrong ---- */

/* FAULT(id, name, meaning): every kind of report. Names are stable: tests and --json use them. */
#define EMULATOR_FAULTS(FAULT)                                                                                         \
    FAULT(PARSE, "parse", "the text is not PTX")                                                                       \
    FAULT(UNKNOWN_FORM, "unknown-form", "an instruction, modifier or operand that the interpreter does not know")      \
    FAULT(TARGET, "target", "the form needs another .target or a later .version")                                      \
    FAULT(RESOURCE, "resource", "registers, shared memory, threads or parameters do not fit the launch or the device") \
    FAULT(UNDEFINED, "undefined", "an undefined register or byte reaches a branch, an address or an output")           \
    FAULT(BOUNDS, "bounds", "an access outside every allocation")                                                      \
    FAULT(ALIGNMENT, "alignment", "an address or size that is not a multiple of what the form needs")                  \
    FAULT(DIVERGENCE, "divergence", "a form for whole warps or warpgroups under divergence")                           \
    FAULT(RACE, "race", "data read or overwritten with nothing that orders it after its writer or its readers")        \
    FAULT(PROXY, "proxy", "data written by ordinary stores and read by the async proxy without fence.proxy.async")     \
    FAULT(BARRIER_INIT, "barrier-init", "an mbarrier used before its initialisation, or before that is ordered")       \
    FAULT(BARRIER_COUNT, "barrier-count", "more arrivals than an mbarrier or a named barrier counts on")               \
    FAULT(BARRIER_BYTES, "barrier-bytes", "bytes of copies that do not add up to what an mbarrier expects")            \
    FAULT(BARRIER_PHASE, "barrier-phase", "a phase waited for that is over since more than one phase, or never came")  \
    FAULT(WGMMA_REGISTERS, "wgmma-registers", "a register of a wgmma in flight touched before wait_group")             \
    FAULT(WGMMA_ORDER, "wgmma-order", "wgmma without fence, commit or wait where one is needed")                       \
    FAULT(DESCRIPTOR, "descriptor", "a matrix or instruction descriptor with fields that fit nothing")                 \
    FAULT(TMEM, "tmem", "tensor memory not allocated, not freed, outside the allocation or in another warp's lanes")   \
    FAULT(TCGEN05_ORDER, "tcgen05-order", "tcgen05 data used without the wait, fence or commit that orders it")        \
    FAULT(DEADLOCK, "deadlock", "nothing can go on")                                                                   \
    FAULT(BUDGET, "budget", "more instructions than the launch was given")                                             \
    FAULT(EXIT, "exit", "a block that ends with copies, matrix products or tensor memory outstanding")                 \
    FAULT(ASSERT, "assert", "an assertion of the kernel does not hold")                                                \
    FAULT(MEMORY, "memory", "this process has no memory left")

typedef enum emulator_fault {
    EMULATOR_OK,
#define FAULT(id, name, meaning) EMULATOR_##id,
    EMULATOR_FAULTS(FAULT)
#undef FAULT
        EMULATOR_FAULT_COUNT
} emulator_fault;

const char *emulator_fault_name(emulator_fault fault); /* "ok", "race", ... */

enum { EMULATOR_MESSAGE_MAX = 1024, EMULATOR_DETAIL_MAX = 16384 };

/* One finding. */
typedef struct emulator_error {
    emulator_fault fault;
    int line;         /* of the text, from 1; 0: none */
    int block, warp;  /* of the launch; -1: none */
    char message[EMULATOR_MESSAGE_MAX]; /* one line */
    char detail[EMULATOR_DETAIL_MAX];   /* of a deadlock: one line for every waiting warp; else empty */
} emulator_error;

/* ---- Modules ---- */

/* Parses and decodes a text; name is for messages. NULL on failure, with *error filled. */
emulator_module *emulator_module_parse(const char *text, size_t length, const char *name, emulator_error *error);
void emulator_module_destroy(emulator_module *module); /* NULL is fine */

/* ---- Global memory ---- */

/* All device memory of one emulated device. Accesses outside of it are errors; bytes are undefined until they are written. */
typedef struct emulator_memory emulator_memory;
emulator_memory *emulator_memory_create(void); /* NULL: no memory */
void emulator_memory_destroy(emulator_memory *memory); /* frees every block; NULL is fine */
/* 256-byte aligned; 0 on failure. The bytes may be read and written by the host at that address. */
uint64_t emulator_memory_allocate(emulator_memory *memory, uint64_t bytes);
bool emulator_memory_free(emulator_memory *memory, uint64_t address); /* false: not the beginning of a block */
bool emulator_memory_contains(const emulator_memory *memory, uint64_t address, uint64_t bytes);
/* The host wrote these bytes. */
void emulator_memory_define(emulator_memory *memory, uint64_t address, uint64_t bytes);
bool emulator_memory_defined(const emulator_memory *memory, uint64_t address, uint64_t bytes);

/* The name for messages about a block, which lives as long as the block: "argument 2". */
void emulator_memory_name(emulator_memory *memory, uint64_t address, const char *name);

/* A module's .global and .const variables in a memory, with what their initialisers say. They keep what launches write. */
typedef struct emulator_variables emulator_variables;
emulator_variables *emulator_variables_create(const emulator_module *module, emulator_memory *memory); /* NULL: no memory */
void emulator_variables_destroy(emulator_variables *variables); /* before its memory and module; NULL is fine */
/* The address of a variable by its name; 0: there is none. bytes may be NULL. */
uint64_t emulator_variables_find(const emulator_variables *variables, const char *name, uint64_t *bytes);

/* ---- Launches ---- */

/* SCHEDULE(id, name, meaning) */
#define EMULATOR_SCHEDULES(SCHEDULE)                                                                                   \
    SCHEDULE(ROUND_ROBIN, "round-robin", "every agent in turn")                                                        \
    SCHEDULE(RANDOM, "random", "random priorities that change at random moments")                                      \
    SCHEDULE(ASYNC_EARLY, "async-early", "copies and matrix products as soon as they are issued")                      \
    SCHEDULE(ASYNC_LATE, "async-late", "copies and matrix products only when nothing else can go on")                  \
    SCHEDULE(PRODUCER_STARVED, "producer-starved", "warps that issue copies only when nothing else can go on")         \
    SCHEDULE(CONSUMER_STARVED, "consumer-starved", "warps that issue matrix products only when nothing else can go on")

typedef enum emulator_schedule {
#define SCHEDULE(id, name, meaning) EMULATOR_SCHEDULE_##id,
    EMULATOR_SCHEDULES(SCHEDULE)
#undef SCHEDULE
        EMULATOR_SCHEDULE_COUNT
} emulator_schedule;

const char *emulator_schedule_name(emulator_schedule schedule);

typedef struct emulator_launch_config {
    const emulator_module *module;
    const char *entry;
    uint32_t grid[3], block[3];
    uint32_t shared_bytes; /* dynamic */
    void *const *parameters; /* address of each parameter's value, in order */
    emulator_memory *memory;
    emulator_variables *variables; /* of the module in that memory; NULL: fresh ones, for this launch only */
    void (*print)(void *context, const char *text, size_t length); /* what the kernel prints; NULL: nowhere */
    void *print_context;
    emulator_schedule schedule;
    uint64_t seed;             /* of the schedule: same seed, same run */
    uint64_t instruction_budget; /* warp instructions of a block; 0: a default that no correct kernel reaches */
    bool fast;                 /* float matrix products summed in float32 instead of as the hardware does */
    bool judge;                /* ordering judged; without, only executed (about twice as fast) */
} emulator_launch_config;

/* Dynamic counts: emulator_counts.executed[i] is how many warps executed instruction i of the entry; see emulator_module_* below. */
typedef struct emulator_counts {
    uint64_t *executed; /* [count]; allocated by the launch if counts was given, freed by emulator_counts_finish */
    int count;
} emulator_counts;

/* Runs all blocks, one after the other. False: *error says what is wrong (the first finding). counts may be NULL. */
bool emulator_launch(const emulator_launch_config *config, emulator_counts *counts, emulator_error *error);
void emulator_counts_finish(emulator_counts *counts);

/* ---- Looking into a module ---- */

/* What a reader should know of a text that was accepted, one line: a .version or .target that the interpreter does not know yet. "": nothing. */
const char *emulator_module_warning(const emulator_module *module);
int emulator_module_entries(const emulator_module *module);
const char *emulator_module_entry_name(const emulator_module *module, int entry);
int emulator_module_find_entry(const emulator_module *module, const char *name); /* -1: none */

typedef struct emulator_entry_info {
    int parameters;
    uint32_t static_shared_bytes;
    uint32_t required_threads[3]; /* .reqntid, or 0 */
    uint32_t max_threads;         /* .maxntid, or 0 */
    uint32_t max_registers;       /* .maxnreg, or 0 */
    uint32_t local_bytes;         /* .local variables of a thread, and the stack of the functions that it may call */
    int instructions;
} emulator_entry_info;
void emulator_module_entry_info(const emulator_module *module, int entry, emulator_entry_info *info);
uint32_t emulator_module_parameter_bytes(const emulator_module *module, int entry, int parameter);
/* As declared: "u32"; of an array that of an element. */
const char *emulator_module_parameter_type(const emulator_module *module, int entry, int parameter);

typedef struct emulator_instruction_info {
    int line;
    const char *region; /* "loop/k/unpack": of the region comments in the text; "" before the first */
    const char *opcode; /* "wgmma.mma_async.sync.aligned.m64n24k32.s32.u8.s8" */
} emulator_instruction_info;
void emulator_module_instruction_info(const emulator_module *module, int entry, int instruction, emulator_instruction_info *info);

#endif
