/* A warp-specialised tcgen05 kernel, and the bugs that can be planted in it: the kernel passes under every schedule,
 * each bug is reported with its kind of fault and its line. */
#include "emulator_tcgen05_kernel.h"

enum {
    THREADS = 320,
    ROWS = 128,
    COLUMNS = 16,
    DEPTH = 64, /* elements of 2 bits in a row of A */
    TILES = 7,
    TILE_BYTES = ROWS * DEPTH / 4,
    SEEDS = 80,
    EDITS_MAX = 6,
    KINDS_MAX = 8,
    LINE_MAX_BYTES = 2048,
    WRONG_RESULT = EMULATOR_FAULT_COUNT
};

/* clang-format off */
/* The line with a mark becomes another, in which $= stands for what it was. */
typedef struct edit {
    const char *mark, *to;
} edit;

/* Whether every schedule must tell of a bug, or some schedule: where only the order of two agents decides. */
typedef enum reported { ALWAYS, SOMETIMES } reported;

/* A bug: what is edited, the kinds of fault that tell of it (WRONG_RESULT: the output is wrong), ended by EMULATOR_OK,
   and the marks of the lines that they are reported on, separated by '|'. */
typedef struct bug {
    const char *name;
    edit edits[EDITS_MAX];
    reported when;
    int kinds[KINDS_MAX];
    const char *lines;
} bug;

#define COMMIT "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%x];"
#define PRODUCT "tcgen05.mma.cta_group::1.kind::f8f6f4 [%d], [%a], %b, %shape, "
#define ANY_WAIT "wait_raw_empty|wait_raw_full|wait_a_empty|wait_a_full|wait_d_empty|wait_d_full|wait_b_full"

static const bug bugs[] = {
    /* allocation */
    {"tensor memory that nobody allocates", {{"alloc", ""}}, ALWAYS, {EMULATOR_UNDEFINED}, "store|load|product_0|dealloc"},
    {"tensor memory taken without asking", {{"alloc", ""}, {"where", "mov.u32 %tmem, 0;"}}, ALWAYS, {EMULATOR_TMEM}, "store"},
    {"an allocation too small",
     {{"alloc", "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%x], 32;"}, {"dealloc", "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tmem, 32;"}},
     ALWAYS, {EMULATOR_TMEM}, "store"},
    {"tensor memory that is not freed", {{"dealloc", ""}}, ALWAYS, {EMULATOR_TMEM}, "alloc"},
    {"tensor memory freed in part", {{"dealloc", "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tmem, 32;"}}, ALWAYS, {EMULATOR_TMEM}, "dealloc"},
    {"tensor memory freed twice", {{"dealloc", "$= $="}}, ALWAYS, {EMULATOR_TMEM}, "dealloc"},
    {"an allocation after the permit is given up", {{"alloc", ""}, {"relinquish", "$= tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%x], 64;"}},
     ALWAYS, {EMULATOR_TMEM}, "relinquish"},
    {"an allocation by one thread", {{"alloc", "elect.sync _|%first, 0xffffffff; @%first $="}}, ALWAYS, {EMULATOR_DIVERGENCE}, "alloc"},
    {"tensor memory freed while others load from it", {{"barrier_end", ""}}, SOMETIMES,
     {EMULATOR_TMEM, EMULATOR_RACE, EMULATOR_TCGEN05_ORDER}, "dealloc|load|store|product_0"},
    {"tensor memory freed without fence::after_thread_sync", {{"after_end", ""}}, ALWAYS, {EMULATOR_TCGEN05_ORDER}, "dealloc"},
    /* lanes and columns */
    {"stores to another warp's lanes", {{"store_quarter", "xor.b32 %x, %warp, 1; shl.b32 %x, %x, 21;"}}, ALWAYS, {EMULATOR_TMEM}, "store"},
    {"stores without the lanes in the address", {{"store_quarter", "mov.u32 %x, 0;"}}, ALWAYS, {EMULATOR_TMEM}, "store"},
    {"loads from lanes that are not there", {{"load_quarter", "mov.u32 %x, %warp;"}}, ALWAYS, {EMULATOR_TMEM}, "load"},
    {"A and accumulators in the same columns", {{"store_a", "add.u32 %mine, %mine, 16;"}, {"a", "add.u32 %a, %d, 16;"}}, ALWAYS,
     {EMULATOR_RACE, EMULATOR_TCGEN05_ORDER}, "store|load|product_0|product_1"},
    /* waits */
    {"no wait::ld", {{"wait_ld", ""}}, ALWAYS, {EMULATOR_TCGEN05_ORDER}, "scale|product_0"},
    {"wait::ld after the accumulator is given back", {{"wait_ld", ""}, {"arrive_d_empty", "$= tcgen05.wait::ld.sync.aligned;"}},
     ALWAYS, {EMULATOR_TCGEN05_ORDER}, "product_0"},
    {"no wait::st", {{"wait_st", ""}}, ALWAYS, {EMULATOR_TCGEN05_ORDER}, "product_0"},
    {"wait::st after the arrival", {{"wait_st", ""}, {"arrive_a_full", "$= tcgen05.wait::st.sync.aligned;"}}, ALWAYS, {EMULATOR_TCGEN05_ORDER}, "product_0"},
    /* fences */
    {"stores without fence::before_thread_sync", {{"before_a_full", ""}}, ALWAYS, {EMULATOR_TCGEN05_ORDER}, "product_0"},
    {"fence::before_thread_sync before wait::st", {{"before_a_full", ""}, {"wait_st", "tcgen05.fence::before_thread_sync; $="}},
     ALWAYS, {EMULATOR_TCGEN05_ORDER}, "product_0"},
    {"fence::before_thread_sync after the arrival", {{"before_a_full", ""}, {"arrive_a_full", "$= tcgen05.fence::before_thread_sync;"}},
     ALWAYS, {EMULATOR_TCGEN05_ORDER}, "product_0"},
    {"loads without fence::before_thread_sync", {{"before_d_empty", ""}}, ALWAYS, {EMULATOR_TCGEN05_ORDER}, "product_0"},
    {"products without fence::after_thread_sync", {{"after_waits", ""}}, ALWAYS, {EMULATOR_TCGEN05_ORDER}, "product_0"},
    {"fence::after_thread_sync before the waits", {{"after_waits", ""}, {"before_waits", "tcgen05.fence::after_thread_sync;"}},
     ALWAYS, {EMULATOR_TCGEN05_ORDER}, "product_0"},
    {"loads without fence::after_thread_sync", {{"after_d_full", ""}}, ALWAYS, {EMULATOR_TCGEN05_ORDER}, "load"},
    {"stores without fence::after_thread_sync", {{"after_a_empty", ""}}, ALWAYS, {EMULATOR_TCGEN05_ORDER}, "store"},
    {"fence::before_thread_sync by one thread of the warp", {{"before_a_full", "setp.eq.u32 %p, %lane, 0; @%p $="}},
     ALWAYS, {EMULATOR_TCGEN05_ORDER}, "product_0"},
    {"fence::after_thread_sync by one thread of the warp", {{"after_d_full", "setp.eq.u32 %p, %lane, 0; @%p $="}},
     ALWAYS, {EMULATOR_TCGEN05_ORDER}, "load"},
    /* commits */
    {"a commit to the barrier of the other buffer", {{"d_full", "xor.b32 %y, %buffer, 1; mad.lo.u32 %x, %y, 8, %x;"}}, ALWAYS,
     {EMULATOR_DEADLOCK, EMULATOR_TCGEN05_ORDER, EMULATOR_BARRIER_PHASE, EMULATOR_BARRIER_COUNT}, "load|commit_d|barrier_end|" ANY_WAIT},
    {"a commit to the barrier that others arrive at", {{"d_full", "mov.u32 %x, d_empty; $="}}, ALWAYS,
     {EMULATOR_DEADLOCK, EMULATOR_BARRIER_COUNT}, "commit_d|arrive_d_empty|" ANY_WAIT},
    {"both commits to one barrier", {{"a_empty", "mov.u32 %x, d_full;"}}, ALWAYS,
     {EMULATOR_DEADLOCK, EMULATOR_TCGEN05_ORDER, EMULATOR_BARRIER_PHASE}, "load|" ANY_WAIT},
    {"no commit of the accumulator", {{"commit_d", ""}}, ALWAYS, {EMULATOR_DEADLOCK}, ANY_WAIT},
    {"no commit of A", {{"commit_a", ""}}, ALWAYS, {EMULATOR_DEADLOCK}, ANY_WAIT},
    {"an ordinary arrival in place of a commit", {{"commit_d", "mbarrier.arrive.shared::cta.b64 _, [%x];"}}, ALWAYS, {EMULATOR_TCGEN05_ORDER}, "load"},
    {"commits before the last product", {{"product_1", ""}, {"commit_d", "$= " PRODUCT "%yes;"}}, ALWAYS,
     {EMULATOR_TCGEN05_ORDER, EMULATOR_RACE, EMULATOR_EXIT}, "load|store|commit_d"},
    {"commits by a thread that issued no product",
     {{"one_thread", "setp.eq.u32 %second, %lane, 1;"}, {"product_0", "@%first $="}, {"product_1", "@%first $="}, {"commit_a", "@%second $="}, {"commit_d", "@%second $="}},
     ALWAYS, {EMULATOR_TCGEN05_ORDER, EMULATOR_RACE, EMULATOR_EXIT}, "load|store|product_1"},
    {"products issued by every thread", {{"one_thread", ""}}, ALWAYS, {EMULATOR_DIVERGENCE}, "product_0"},
    /* barriers */
    {"no wait for an accumulator to be read", {{"wait_d_empty", ""}}, ALWAYS, {EMULATOR_RACE, EMULATOR_TCGEN05_ORDER, EMULATOR_BARRIER_PHASE, EMULATOR_DEADLOCK},
     "product_0|load|barrier_end|" ANY_WAIT},
    {"no wait for the products of a buffer of A", {{"wait_a_empty", ""}}, ALWAYS,
     {EMULATOR_RACE, EMULATOR_UNDEFINED, EMULATOR_BARRIER_PHASE, EMULATOR_DEADLOCK}, "store|product_0|product_1|write|barrier_end|" ANY_WAIT},
    {"no wait for A", {{"wait_a_full", ""}}, ALWAYS, {EMULATOR_RACE, EMULATOR_TCGEN05_ORDER, EMULATOR_UNDEFINED}, "product_0|store|write"},
    {"no wait for the accumulator", {{"wait_d_full", ""}}, ALWAYS, {EMULATOR_RACE, EMULATOR_TCGEN05_ORDER, EMULATOR_UNDEFINED}, "product_0|load|write"},
    {"no wait for B", {{"wait_b_full", ""}}, SOMETIMES, {EMULATOR_RACE, EMULATOR_PROXY, EMULATOR_UNDEFINED}, "product_0|product_1|store_b|write"},
    {"no wait for packed codes", {{"wait_raw_full", ""}}, ALWAYS,
     {EMULATOR_RACE, EMULATOR_UNDEFINED, EMULATOR_BARRIER_BYTES, EMULATOR_BARRIER_COUNT, EMULATOR_BARRIER_PHASE, EMULATOR_DEADLOCK},
     "load_raw|copy|write|expect|barrier_end|" ANY_WAIT},
    {"no wait for an empty stage", {{"wait_raw_empty", ""}}, SOMETIMES,
     {EMULATOR_RACE, EMULATOR_BARRIER_BYTES, EMULATOR_BARRIER_COUNT, EMULATOR_BARRIER_PHASE, EMULATOR_DEADLOCK}, "copy|expect|load_raw|barrier_end|" ANY_WAIT},
    /* operands */
    {"an instruction descriptor with a reserved bit", {{"shape", "mov.u32 %shape, 0x08040050;"}}, ALWAYS, {EMULATOR_DESCRIPTOR}, "product_0"},
    {"an instruction descriptor of an unknown type", {{"shape", "mov.u32 %shape, 0x08040110;"}}, ALWAYS, {EMULATOR_DESCRIPTOR}, "product_0"},
    {"an instruction descriptor with N in bytes", {{"shape", "mov.u32 %shape, 0x08200010;"}}, ALWAYS, {EMULATOR_DESCRIPTOR, EMULATOR_TMEM}, "product_0"},
    {"an instruction descriptor of another type of A", {{"shape", "mov.u32 %shape, 0x08040090;"}}, ALWAYS, {WRONG_RESULT}, ""},
    {"an instruction descriptor with half of M", {{"shape", "mov.u32 %shape, 0x04040010;"}}, ALWAYS, {WRONG_RESULT, EMULATOR_UNDEFINED}, "write"},
    {"a descriptor of shared memory without bit 46", {{"high", "mov.u32 %high, 0x80000020;"}}, ALWAYS, {EMULATOR_DESCRIPTOR}, "product_0"},
    {"a descriptor of shared memory with another swizzle", {{"high", "mov.u32 %high, 0xc0004020;"}}, ALWAYS, {WRONG_RESULT, EMULATOR_UNDEFINED, EMULATOR_DESCRIPTOR}, "write|product_0|product_1"},
    {"a descriptor that does not step along k", {{"step_b", ""}}, ALWAYS, {WRONG_RESULT}, ""},
    {"an address of A that does not step along k", {{"step_a", ""}}, ALWAYS, {WRONG_RESULT}, ""},
    {"a first product that adds", {{"product_0", PRODUCT "%yes;"}}, ALWAYS, {EMULATOR_UNDEFINED, WRONG_RESULT}, "write"},
    {"a last product that does not add", {{"product_1", PRODUCT "%no;"}}, ALWAYS, {WRONG_RESULT}, ""},
    {"a product of another shape into sums in flight", {{"product_1", "mov.u32 %y, 0x08020010; tcgen05.mma.cta_group::1.kind::f8f6f4 [%d], [%a], %b, %y, %yes;"}},
     ALWAYS, {EMULATOR_TCGEN05_ORDER}, "product_1"},
    {"sums in flight as the A of a product", {{"step_a", "mov.u32 %a, %d; xor.b32 %d, %buffer, 1; mad.lo.u32 %d, %d, 16, %tmem;"}},
     ALWAYS, {EMULATOR_TCGEN05_ORDER}, "product_1"},
    {"B without fence.proxy.async", {{"proxy", ""}}, ALWAYS, {EMULATOR_PROXY}, "product_0"},
    {"fence.proxy.async before B is written", {{"proxy", ""}, {"store_b", "fence.proxy.async.shared::cta; $="}}, ALWAYS, {EMULATOR_PROXY}, "product_0"},
    {"fence.proxy.async by the thread that reads B", {{"proxy", ""}, {"wait_b_full", "$= fence.proxy.async.shared::cta;"}}, ALWAYS, {EMULATOR_PROXY}, "product_0"},
    {"B rewritten while products read it", {{"arrive_b_full", "$= st.shared.v2.b32 [%at], {%c0, %c1};"}}, ALWAYS,
     {EMULATOR_RACE, EMULATOR_PROXY}, "arrive_b_full|product_0|product_1"},
};
/* clang-format on */

enum { BUGS = sizeof bugs / sizeof *bugs };

/* ---- The problem ---- */

static struct {
    uint8_t codes[TILES][ROWS][DEPTH];
    int8_t factors[COLUMNS][DEPTH];
    float expected[TILES][ROWS][COLUMNS];
    emulator_memory *memory;
    uint64_t tiles, b; /* device addresses */
} problem;

/* Of an integer whose binary digits fit four places. */
static uint8_t e4m3_of(int value)
{
    int size = abs(value), exponent = 0;
    if (!size) return 0;
    while (size >> exponent > 1) exponent++;
    return (uint8_t)((value < 0) << 7 | (exponent + 7) << 3 | (size * 8 >> exponent & 7));
}

/* Element 16 j + 4 b + q of a row is field q of byte b of word j; unpacked it is byte 16 j + 4 q + b of the row. */
static void make_images(uint8_t tiles[TILES * TILE_BYTES], uint8_t image[COLUMNS * DEPTH])
{
    memset(tiles, 0, TILES * TILE_BYTES);
    for (int t = 0; t < TILES; t++)
        for (int r = 0; r < ROWS; r++)
            for (int x = 0; x < DEPTH; x++)
                tiles[t * TILE_BYTES + r * DEPTH / 4 + x / 4] |= (uint8_t)(problem.codes[t][r][x] << 2 * (x % 4));
    for (int n = 0; n < COLUMNS; n++)
        for (int x = 0; x < DEPTH; x++) {
            int q = x % 4, k = x / 16 * 16 + 4 * q + x % 16 / 4, chunk = k / 16 ^ (n / 2 & 3);
            image[n * DEPTH + chunk * 16 + k % 16] = e4m3_of(problem.factors[n][x] * (q % 2 ? 1 : 4));
        }
}

static int make_problem(void **unused)
{
    static uint8_t tiles[TILES * TILE_BYTES], image[COLUMNS * DEPTH];
    start_random(unused);
    for (int t = 0; t < TILES; t++)
        for (int i = 0; i < ROWS * DEPTH; i++) problem.codes[t][i / DEPTH][i % DEPTH] = (uint8_t)(random_bits() & 3);
    for (int i = 0; i < COLUMNS * DEPTH; i++)
        problem.factors[i / DEPTH][i % DEPTH] = (int8_t)((int)(random_bits() % 9) - 4);
    for (int t = 0; t < TILES; t++)
        for (int r = 0; r < ROWS; r++)
            for (int n = 0; n < COLUMNS; n++) {
                int sum = 0;
                for (int x = 0; x < DEPTH; x++) sum += problem.codes[t][r][x] * problem.factors[n][x];
                problem.expected[t][r][n] = (float)sum;
            }
    make_images(tiles, image);
    problem.memory = emulator_memory_create();
    assert_non_null(problem.memory);
    problem.tiles = device_copy(problem.memory, tiles, sizeof tiles);
    problem.b = device_copy(problem.memory, image, sizeof image);
    return 0;
}

static int destroy_problem(void **unused)
{
    (void)unused;
    emulator_memory_destroy(problem.memory);
    return 0;
}

/* ---- Runs ---- */

static emulator_module *parse(const char *text, emulator_error *error)
{
    emulator_module *module = emulator_module_parse(text, strlen(text), "tcgen05", error);
    if (!module) fail_msg("line %d: %s", error->line, error->message);
    return module;
}

/* A kind of fault, WRONG_RESULT or EMULATOR_OK. The output is undefined before. */
static int run(const emulator_module *module, emulator_schedule schedule, uint64_t seed, emulator_error *error)
{
    uint64_t out = emulator_memory_allocate(problem.memory, sizeof problem.expected);
    uint32_t count = TILES;
    assert_true(out != 0);
    void *parameters[] = {&problem.tiles, &problem.b, &out, &count};
    const emulator_launch_config config = {
        .module = module,
        .entry = "kernel",
        .grid = {1, 1, 1},
        .block = {THREADS, 1, 1},
        .parameters = parameters,
        .memory = problem.memory,
        .schedule = schedule,
        .seed = seed,
        .fast = seed >> 1 & 1,
        .judge = true,
    };
    int result = EMULATOR_OK;
    if (!emulator_launch(&config, NULL, error))
        result = (int)error->fault;
    else if (memcmp((const void *)(uintptr_t)out, problem.expected, sizeof problem.expected) != 0)
        result = WRONG_RESULT;
    assert_true(emulator_memory_free(problem.memory, out));
    return result;
}

/* FOSCAR_TEST_SCHEDULES: seeds of each mode. */
static int seeds(void)
{
    const char *given = getenv("FOSCAR_TEST_SCHEDULES");
    return given ? atoi(given) : SEEDS;
}

static void the_kernel_passes_under_every_schedule(void **unused)
{
    (void)unused;
    static text_buffer text;
    emulator_error error;
    write_tcgen05_kernel(&text);
    emulator_module *module = parse(text.text, &error);
    for (int mode = 0; mode < EMULATOR_SCHEDULE_COUNT; mode++)
        for (int n = 0; n < seeds(); n++) {
            uint64_t seed = (uint64_t)random_bits() << 2 | (unsigned)n % 4;
            int result = run(module, (emulator_schedule)mode, seed, &error);
            if (result != EMULATOR_OK)
                fail_msg("%s, seed %llu: %s, line %d: %s\n%s", emulator_schedule_name((emulator_schedule)mode),
                         (unsigned long long)seed,
                         result == WRONG_RESULT ? "wrong result" : emulator_fault_name(error.fault), error.line,
                         error.message, error.detail);
        }
    emulator_module_destroy(module);
}

/* ---- Bugs ---- */

/* What the line with a mark is without it. */
static void find_marked(const text_buffer *t, const char *mark, char *line)
{
    char wanted[64];
    snprintf(wanted, sizeof wanted, "// @%s\n", mark);
    const char *end = strstr(t->text, wanted), *begin = end;
    if (!end) fail_msg("no line is marked %s", mark);
    while (begin > t->text && begin[-1] != '\n') begin--;
    assert_true(end - begin < LINE_MAX_BYTES);
    memcpy(line, begin, (size_t)(end - begin));
    line[end - begin] = '\0';
}

static void apply(text_buffer *t, const edit *e)
{
    char line[LINE_MAX_BYTES], to[2 * LINE_MAX_BYTES] = "";
    find_marked(t, e->mark, line);
    for (const char *c = e->to; *c; c++) {
        size_t used = strlen(to);
        if (c[0] == '$' && c[1] == '=')
            snprintf(to + used, sizeof to - used, "%s", line), c++;
        else
            snprintf(to + used, sizeof to - used, "%c", *c);
    }
    change(t, e->mark, to);
}

/* The mark of a line, or "". */
static void mark_of(const char *text, int number, char *mark, size_t size)
{
    mark[0] = '\0';
    if (number < 1) return;
    while (--number > 0 && (text = strchr(text, '\n')) != NULL) text++;
    if (!text) return;
    char line[2 * LINE_MAX_BYTES];
    snprintf(line, sizeof line, "%.*s", (int)strcspn(text, "\n"), text);
    const char *at = strstr(line, "// @");
    if (at) snprintf(mark, size, "%s", at + 4);
}

static bool is_one_of(const char *mark, const char *marks)
{
    size_t length = strlen(mark);
    for (const char *at = marks; length && at; at = strchr(at, '|')) {
        at += *at == '|';
        if (strncmp(at, mark, length) == 0 && (at[length] == '|' || at[length] == '\0')) return true;
    }
    return false;
}

static bool is_expected(const bug *b, int result, const char *mark)
{
    for (int i = 0; i < KINDS_MAX && b->kinds[i] != EMULATOR_OK; i++)
        if (b->kinds[i] == result) return result == WRONG_RESULT || is_one_of(mark, b->lines);
    return false;
}

enum { SEEDS_OF_A_BUG = 4 };

/* How often a bug was not told of, or told of as another. */
static int run_bug(const bug *b)
{
    static text_buffer text;
    static emulator_error error;
    char mark[64];
    int told = 0, bad = 0, silent = 0;
    write_tcgen05_kernel(&text);
    for (int e = 0; e < EDITS_MAX && b->edits[e].mark; e++) apply(&text, &b->edits[e]);
    emulator_module *module = parse(text.text, &error);
    for (int n = 0; n < SEEDS_OF_A_BUG * EMULATOR_SCHEDULE_COUNT; n++) {
        emulator_schedule mode = (emulator_schedule)(n / SEEDS_OF_A_BUG);
        uint64_t seed = (uint64_t)random_bits() << 2 | (unsigned)n % 4;
        int result = run(module, mode, seed, &error);
        silent += result == EMULATOR_OK;
        if (result == EMULATOR_OK) continue;
        mark_of(text.text, result == WRONG_RESULT ? 0 : error.line, mark, sizeof mark);
        bool expected = is_expected(b, result, mark);
        bad += !expected;
        if (expected && told++ > 0) continue;
        print_message("%-56s %-17s %s %s%s\n", b->name, emulator_schedule_name(mode),
                      result == WRONG_RESULT ? "wrong result" : emulator_fault_name(error.fault), mark,
                      expected ? "" : ": UNEXPECTED");
        if (!expected)
            print_message("seed %llu, line %d: %s\n%s\n", (unsigned long long)seed, error.line, error.message,
                          error.detail);
    }
    emulator_module_destroy(module);
    if (!told || (silent && b->when == ALWAYS)) {
        print_message("%-56s NOT REPORTED in %d runs\n", b->name, silent);
        bad++;
    }
    return bad;
}

static void every_planted_bug_is_reported_with_its_kind_and_line(void **unused)
{
    (void)unused;
    int bad = 0;
    for (int i = 0; i < BUGS; i++) bad += run_bug(&bugs[i]);
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_kernel_passes_under_every_schedule),
        cmocka_unit_test(every_planted_bug_is_reported_with_its_kind_and_line),
    };
    return cmocka_run_group_tests_name("emulator_tcgen05_faults", tests, make_problem, destroy_problem);
}
