/* The interpreter's machine: lanes and groups, barriers, mbarriers, copies and schedules, on small kernels that are
 * right or wrong in one place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "emulator.h"

enum { WORDS = 4096, TEXT_MAX = 16384, SHARED = 8192 };

/* Of every body: the address of the dynamic shared memory in base, the thread in t, its lane, and two buffers of WORDS
 * words. */
static const char *const head = ".version 8.6\n.target sm_90a\n.address_size 64\n"
                                ".extern .shared .align 1024 .b8 smem[];\n"
                                ".visible .entry k(.param .b64 param_out, .param .b64 param_in)\n{\n"
                                ".reg .pred p, q, leader;\n"
                                ".reg .b32 t, lane, base, a, b, c, n, v0, v1, v2, v3, sum, stage, phase, dst;\n"
                                ".reg .b64 out, in, src, wide;\n"
                                "ld.param.b64 out, [param_out];\nld.param.b64 in, [param_in];\n"
                                "mov.u32 t, %tid.x;\nand.b32 lane, t, 31;\nmov.u32 base, smem;\n"
                                "setp.eq.u32 leader, lane, 0;\nmad.wide.u32 wide, t, 4, out;\n";

typedef struct outcome {
    emulator_fault fault;
    uint32_t out[WORDS];
    emulator_error error;
} outcome;

static uint64_t first_seed;
static emulator_counts *wanted_counts; /* of the next runs, or NULL */

/* Allocations fail from the n-th of a launch on: linked with --wrap. */
static bool armed;
static int allocations_left;

static bool may_allocate(void)
{
    return !armed || allocations_left-- > 0;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes)
{
    return may_allocate() ? __real_malloc(bytes) : NULL;
}
void *__wrap_calloc(size_t count, size_t bytes)
{
    return may_allocate() ? __real_calloc(count, bytes) : NULL;
}
void *__wrap_realloc(void *old, size_t bytes)
{
    return may_allocate() ? __real_realloc(old, bytes) : NULL;
}

static void run_with(const char *body, uint32_t threads, emulator_schedule schedule, uint64_t seed, uint64_t budget,
                     outcome *o)
{
    static char text[TEXT_MAX];
    int length = snprintf(text, sizeof text, "%s%s\nret;\n}\n", head, body);
    assert_in_range(length, 1, TEXT_MAX - 1);
    emulator_module *module = emulator_module_parse(text, (size_t)length, "test", &o->error);
    if (!module) fail_msg("line %d: %s\n%s", o->error.line, o->error.message, text);
    emulator_memory *memory = emulator_memory_create();
    assert_non_null(memory);
    uint64_t out = emulator_memory_allocate(memory, sizeof o->out),
             in = emulator_memory_allocate(memory, sizeof o->out);
    assert_true(out && in);
    for (uint32_t n = 0; n < WORDS; n++) ((uint32_t *)(uintptr_t)in)[n] = n;
    emulator_memory_define(memory, in, sizeof o->out);
    memset((void *)(uintptr_t)out, 0, sizeof o->out);
    emulator_memory_define(memory, out, sizeof o->out);
    void *parameters[] = {&out, &in};
    emulator_launch_config config = {
        .module = module, .entry = "k", .grid = {1, 1, 1}, .block = {threads, 1, 1}, .shared_bytes = SHARED};
    config.parameters = parameters;
    config.memory = memory;
    config.schedule = schedule;
    config.seed = seed;
    config.judge = true;
    config.instruction_budget = budget ? budget : 200000;
    bool arm = allocations_left > 0;
    armed = arm;
    emulator_launch(&config, wanted_counts, &o->error);
    armed = false;
    o->fault = o->error.fault;
    memcpy(o->out, (const void *)(uintptr_t)out, sizeof o->out);
    emulator_memory_destroy(memory);
    emulator_module_destroy(module);
}

static void run(const char *body, uint32_t threads, emulator_schedule schedule, uint64_t seed, outcome *o)
{
    run_with(body, threads, schedule, seed, 0, o);
}

#define FAULTS(a) (1u << (EMULATOR_##a))

/* Every schedule with some seeds gives one of the faults (OK is one of them); some schedule gives `must`. */
static void expect_over(const char *body, uint32_t threads, int seeds, uint32_t allowed, uint32_t must)
{
    static outcome o;
    uint32_t seen = 0;
    for (int schedule = 0; schedule < EMULATOR_SCHEDULE_COUNT; schedule++) {
        for (int n = 0; n < seeds; n++) {
            uint64_t seed = first_seed + (uint64_t)n;
            run(body, threads, (emulator_schedule)schedule, seed, &o);
            seen |= 1u << o.fault;
            if (!(allowed >> o.fault & 1))
                fail_msg("%s seed %llu: %s in line %d of warp %d: %s\n%s",
                         emulator_schedule_name((emulator_schedule)schedule), (unsigned long long)seed,
                         emulator_fault_name(o.fault), o.error.line, o.error.warp, o.error.message, o.error.detail);
        }
    }
    if (must & ~seen) fail_msg("faults %x never seen, only %x", must & ~seen, seen);
}

static void expect(const char *body, uint32_t threads, emulator_fault fault)
{
    expect_over(body, threads, 3, 1u << fault, 1u << fault);
}

/* ---- Groups of lanes ---- */

static void lanes_of_a_branch_meet_again(void **state)
{
    (void)state;
    static outcome o;
    run("and.b32 a, lane, 1;\nsetp.eq.u32 p, a, 0;\n@p bra EVEN;\nmov.b32 v0, 7;\nbra JOIN;\nEVEN:\nmov.b32 v0, "
        "9;\nJOIN:\n"
        "bar.sync 0;\nst.global.b32 [wide], v0;",
        64, EMULATOR_SCHEDULE_ROUND_ROBIN, 0, &o);
    assert_int_equal(o.fault, EMULATOR_OK);
    for (int t = 0; t < 64; t++) assert_int_equal(o.out[t], t & 1 ? 7 : 9);
}

static void code_laid_out_after_the_exit_meets_again(void **state)
{
    (void)state;
    expect("mov.b32 v0, 1;\nsetp.lt.u32 p, lane, 5;\n@p bra FAR;\nJOIN:\nbar.sync 0;\nst.global.b32 [wide], "
           "v0;\nret;\nFAR:\nmov.b32 v0, 2;\n"
           "bra JOIN;",
           64, EMULATOR_OK);
}

static void lanes_that_leave_a_loop_at_different_times_meet_again(void **state)
{
    (void)state;
    static outcome o;
    run("mov.b32 n, 0;\nLOOP:\nadd.u32 n, n, 1;\nand.b32 a, n, 1;\nsetp.eq.u32 p, a, 0;\n@p bra NEXT;\nadd.u32 n, n, "
        "2;\nNEXT:\n"
        "setp.lt.u32 p, n, lane;\n@p bra LOOP;\nbar.warp.sync -1;\nbar.sync 0;\nst.global.b32 [wide], n;",
        32, EMULATOR_SCHEDULE_ROUND_ROBIN, 0, &o);
    assert_int_equal(o.fault, EMULATOR_OK);
    for (uint32_t lane = 0; lane < 32; lane++) {
        uint32_t n = 0;
        do {
            n++;
            if (n & 1) n += 2;
        } while (n < lane);
        assert_int_equal(o.out[lane], n);
    }
}

static void a_lane_that_spins_lets_the_others_run(void **state)
{
    (void)state;
    expect("mov.b32 a, 0;\nst.shared.b32 [base], a;\nbar.sync 0;\nsetp.eq.u32 p, lane, 31;\n@p bra RELEASE;\n"
           "SPIN:\nld.volatile.shared.b32 b, [base];\nsetp.eq.u32 q, b, 0;\n@q bra SPIN;\nbra JOIN;\n"
           "RELEASE:\nmov.b32 a, 1;\nst.volatile.shared.b32 [base], a;\nJOIN:\nbar.sync 0;",
           32, EMULATOR_OK);
}

static void members_of_a_mask_wait_for_each_other(void **state)
{
    (void)state;
    static outcome o;
    run("mov.b32 v0, lane;\nsetp.lt.u32 p, lane, 16;\n@p bra LOW;\nadd.u32 v0, v0, 100;\nLOW:\nshfl.sync.idx.b32 v1, "
        "v0, 16, 31, -1;\n"
        "st.global.b32 [wide], v1;",
        32, EMULATOR_SCHEDULE_ROUND_ROBIN, 0, &o);
    assert_int_equal(o.fault, EMULATOR_OK);
    for (int t = 0; t < 32; t++) assert_int_equal(o.out[t], 116);
}

static void a_lane_outside_of_its_mask_is_divergence(void **state)
{
    (void)state;
    expect("bar.warp.sync 0xffff;", 32, EMULATOR_DIVERGENCE);
}

static void members_that_never_come_are_a_deadlock(void **state)
{
    (void)state;
    const char *form =
        "setp.lt.u32 p, lane, 16;\n@p bra LOW;\nHIGH:\nbar.warp.sync -1;\nret;\nLOW:\nmov.b32 a, 1;\n%s\nret;";
    char body[512];
    snprintf(body, sizeof body, form, "bar.warp.sync -1;");
    expect(body, 32, EMULATOR_OK);
    snprintf(body, sizeof body, form, "shfl.sync.idx.b32 b, a, 0, 31, -1;");
    expect(body, 32, EMULATOR_DEADLOCK);
}

/* They went on as if they had come, or the warp tried again for ever. */
static void lanes_that_a_guard_excludes_have_not_come(void **state)
{
    (void)state;
    expect("setp.lt.u32 p, lane, 16;\n@p shfl.sync.idx.b32 v0, t, 0, 31, -1;\nbar.sync 0;", 64, EMULATOR_DIVERGENCE);
    expect("setp.lt.u32 p, lane, 16;\n@p bar.warp.sync -1;\nbar.sync 0;", 64, EMULATOR_DIVERGENCE);
    expect("setp.lt.u32 p, lane, 16;\n@p bar.warp.sync -1;\n@!p bar.warp.sync -1;\nbar.sync 0;", 64, EMULATOR_OK);
    expect("setp.lt.u32 p, lane, 16;\n@p barrier.sync 1;\nbar.sync 0;", 64, EMULATOR_DIVERGENCE);
}

/* What an earlier wait had left behind was taken for a part of this one, and the barrier passed. */
static void parts_of_a_warp_wait_at_a_barrier_used_before(void **state)
{
    (void)state;
    expect("shr.u32 n, t, 5;\nmad.lo.u32 dst, n, 4, base;\nmov.b32 a, 0;\nst.volatile.shared.b32 [dst], a;\n"
           "bar.sync 0;\nsetp.lt.u32 p, lane, 16;\n@!p bra J;\n"
           "SPIN:\nld.volatile.shared.b32 v0, [dst];\nsetp.eq.u32 q, v0, 0;\n@q bra SPIN;\n"
           "J:\nmov.b32 a, 1;\nst.volatile.shared.b32 [dst], a;\n"
           "setp.lt.u32 q, t, 32;\nmad.lo.u32 c, lane, 4, base;\n@q st.shared.b32 [c+64], t;\n"
           "barrier.sync 0;\n@!q ld.shared.b32 v0, [c+64];",
           64, EMULATOR_OK);
}

static void an_aligned_form_under_divergence_is_found(void **state)
{
    (void)state;
    expect("setp.eq.u32 p, lane, 3;\n@p bra SKIP;\nbar.sync 0;\nSKIP:\nmov.b32 a, 0;", 32, EMULATOR_DIVERGENCE);
    expect("setp.eq.u32 p, lane, 3;\n@!p bar.sync 0;", 32, EMULATOR_DIVERGENCE);
    expect("setp.eq.u32 p, lane, 3;\n@p bra.uni SKIP;\nmov.b32 a, 0;\nSKIP:\nmov.b32 a, 0;", 32, EMULATOR_DIVERGENCE);
}

static void warps_of_a_warpgroup_that_part_are_found(void **state)
{
    (void)state;
    const char *parts = "setp.lt.u32 p, t, 32;\n@p bra A;\nwgmma.fence.sync.aligned;\nbra "
                        "B;\nA:\nwgmma.commit_group.sync.aligned;\nB:\nbar.sync 0;";
    expect(parts, 128, EMULATOR_DIVERGENCE);
    expect("setp.lt.u32 p, t, 32;\n@p bra B;\nwgmma.fence.sync.aligned;\nB:\nmov.b32 a, 0;", 128, EMULATOR_DIVERGENCE);
    expect("wgmma.fence.sync.aligned;", 96, EMULATOR_DIVERGENCE);
    expect("wgmma.fence.sync.aligned;", 256, EMULATOR_OK);
}

/* ---- Undefined registers ---- */

static void undefined_registers_are_found_where_they_matter(void **state)
{
    (void)state;
    expect("setp.eq.u32 p, a, 0;\n@p bra X;\nX:\nmov.b32 b, 0;", 32, EMULATOR_UNDEFINED);
    expect("add.u32 a, a, 1;\nst.global.b32 [wide], a;", 32, EMULATOR_UNDEFINED);
    expect("ld.shared.b32 a, [b];", 32, EMULATOR_UNDEFINED);
    expect("bar.sync a;", 32, EMULATOR_UNDEFINED);
    expect("@leader mov.b32 a, 1;\n@!leader bra X;\nst.global.b32 [wide], a;\nX:\nmov.b32 b, 0;", 32, EMULATOR_OK);
    expect("@leader mov.b32 a, 1;\n@leader st.global.b32 [wide], a;", 32, EMULATOR_OK);
    expect("add.u32 a, a, 1;", 32, EMULATOR_OK);
    expect("ld.shared.b32 a, [base];\nst.global.b32 [wide], a;", 32, EMULATOR_UNDEFINED);
}

/* ---- Named barriers ---- */

static void named_barriers_order_ordinary_accesses(void **state)
{
    (void)state;
    const char *write = "setp.ge.u32 p, t, 32;\nmad.lo.u32 a, lane, 4, base;\n@!p st.shared.b32 [a], t;\n";
    const char *read = "@p ld.shared.b32 b, [a];\n@p st.global.b32 [wide], b;";
    char body[2048];
    snprintf(body, sizeof body, "%sbar.sync 0;\n%s", write, read);
    expect(body, 64, EMULATOR_OK);
    snprintf(body, sizeof body, "%sbarrier.cta.sync.aligned 3, 64;\n%s", write, read);
    expect(body, 64, EMULATOR_OK);
    snprintf(body, sizeof body, "%s@!p bar.arrive 1, 64;\n@p bar.sync 1, 64;\n%s", write, read);
    expect(body, 64, EMULATOR_OK);
    snprintf(body, sizeof body, "%s@p bar.arrive 1, 64;\n@!p bar.sync 1, 64;\n%s", write, read);
    expect_over(body, 64, 12, FAULTS(RACE) | FAULTS(UNDEFINED), FAULTS(RACE));
    snprintf(body, sizeof body, "%s%s", write, read);
    expect_over(body, 64, 12, FAULTS(RACE) | FAULTS(UNDEFINED), FAULTS(RACE));
}

static void neighbouring_bytes_do_not_race(void **state)
{
    (void)state;
    expect("add.u32 a, base, t;\nst.shared.b8 [a], t;\nbar.sync 0;\nld.shared.u8 b, [a+1];\nst.shared.b8 [a+1024], b;",
           96, EMULATOR_OK);
    expect("add.u32 a, base, t;\nst.shared.b8 [a], t;\nld.shared.u8 b, [a];\nst.shared.b8 [a], b;", 96, EMULATOR_OK);
}

static void a_write_after_an_unordered_read_is_a_race(void **state)
{
    (void)state;
    const char *head_ = "mov.b32 a, 1;\nsetp.ge.u32 p, t, 32;\n@!p st.shared.b32 [base], a;\nbar.sync 0;\n@!p "
                        "ld.shared.b32 b, [base];\n";
    char body[1024];
    snprintf(body, sizeof body, "%s@p st.shared.b32 [base], a;", head_);
    expect(body, 64, EMULATOR_RACE);
    snprintf(body, sizeof body, "%sbar.sync 0;\n@p st.shared.b32 [base], a;", head_);
    expect(body, 64, EMULATOR_OK);
}

static void named_barriers_are_counted(void **state)
{
    (void)state;
    expect("bar.sync 1, 32;", 32, EMULATOR_OK);
    expect("bar.sync 16;", 32, EMULATOR_BARRIER_COUNT);
    expect("bar.sync 1, 48;", 64, EMULATOR_BARRIER_COUNT);
    expect("bar.sync 1, 96;", 64, EMULATOR_BARRIER_COUNT);
    expect("setp.ge.u32 p, t, 32;\n@p bar.sync 1, 128;\n@!p bar.sync 1, 96;", 128, EMULATOR_BARRIER_COUNT);
    expect("setp.ge.u32 p, t, 32;\n@p bar.sync 1, 64;", 64, EMULATOR_DEADLOCK);
    expect("bar.arrive 1, 96;\nbar.arrive 1, 96;", 64, EMULATOR_BARRIER_COUNT);
    expect("setp.ge.u32 p, t, 32;\n@p ret;\nbar.sync 0;", 64, EMULATOR_OK);
}

static void bar_red_counts_over_the_block(void **state)
{
    (void)state;
    static outcome o;
    for (int schedule = 0; schedule < EMULATOR_SCHEDULE_COUNT; schedule++) {
        run("setp.lt.u32 p, t, 41;\nbar.red.popc.u32 a, 0, p;\nbar.red.popc.u32 b, 0, leader;\nbar.red.or.pred q, 0, "
            "p;\nadd.u32 a, a, b;\n"
            "@q add.u32 a, a, 1000;\nbar.red.and.pred q, 0, p;\n@q add.u32 a, a, 5000;\nst.global.b32 [wide], a;",
            96, (emulator_schedule)schedule, first_seed, &o);
        assert_int_equal(o.fault, EMULATOR_OK);
        for (int t = 0; t < 96; t++) assert_int_equal(o.out[t], 41 + 3 + 1000);
    }
}

/* ---- mbarriers ---- */

#define INIT "setp.eq.u32 q, t, 0;\n@q mbarrier.init.shared.b64 [base], 2;\nbar.sync 0;\n"

static void mbarriers_count_arrivals(void **state)
{
    (void)state;
    expect(INIT "@leader mbarrier.arrive.shared.b64 _, [base];\nW:\nmbarrier.try_wait.parity.shared.b64 p, [base], "
                "0;\n@!p bra W;",
           64, EMULATOR_OK);
    expect(INIT "@leader mbarrier.arrive.shared.b64 _, [base];\nW:\nmbarrier.test_wait.parity.shared.b64 p, [base], "
                "0;\n@!p bra W;",
           64, EMULATOR_OK);
    expect(INIT "@leader mbarrier.arrive.shared.b64 _, [base], 3;", 32, EMULATOR_BARRIER_COUNT);
    expect(INIT
           "@leader mbarrier.arrive.expect_tx.shared.b64 _, [base], 16;\n@leader mbarrier.arrive.shared.b64 _, [base];",
           64, EMULATOR_BARRIER_COUNT);
    expect(INIT "@leader mbarrier.arrive.shared.b64 _, [base];\nW:\nmbarrier.try_wait.parity.shared.b64 p, [base], "
                "0;\n@!p bra W;",
           32, EMULATOR_DEADLOCK);
    expect("setp.eq.u32 q, t, 0;\n@q mbarrier.init.shared.b64 [base], 0;", 32, EMULATOR_BARRIER_COUNT);
    expect(INIT "@q mbarrier.expect_tx.shared.b64 [base], 1048576;", 32, EMULATOR_BARRIER_BYTES);
    expect(INIT "@q mbarrier.expect_tx.shared.b64 [base], 64;", 32, EMULATOR_BARRIER_BYTES);
}

/* A lane that is not active lent its neighbour its address. */
static void each_lane_tests_the_mbarrier_of_its_own_address(void **state)
{
    (void)state;
    static outcome o;
    run("@leader mbarrier.init.shared.b64 [base], 1;\n@leader mbarrier.init.shared.b64 [base+8], 1;\nbar.warp.sync "
        "-1;\n"
        "@leader mbarrier.arrive.shared.b64 _, [base];\nbar.warp.sync -1;\nadd.u32 dst, base, 8;\n"
        "selp.b32 dst, base, dst, leader;\nand.b32 a, lane, 1;\nsetp.eq.u32 p, a, 0;\nsetp.eq.u32 q, a, 2;\n"
        "@p mbarrier.test_wait.parity.shared.b64 q, [dst], 0;\nselp.b32 v0, 1, 2, q;\nst.global.b32 [wide], v0;",
        32, EMULATOR_SCHEDULE_ROUND_ROBIN, 0, &o);
    assert_int_equal(o.fault, EMULATOR_OK);
    for (int lane = 0; lane < 32; lane++) assert_int_equal(o.out[lane], lane == 0 ? 1 : 2);
}

static void mbarriers_must_be_initialised(void **state)
{
    (void)state;
    expect("@leader mbarrier.arrive.shared.b64 _, [base];", 32, EMULATOR_BARRIER_INIT);
    expect(
        "setp.eq.u32 q, t, 0;\n@q mbarrier.init.shared.b64 [base], 2;\n@leader mbarrier.arrive.shared.b64 _, [base];",
        64, EMULATOR_BARRIER_INIT);
    expect("@leader mbarrier.init.shared.b64 [base], 2;", 64, EMULATOR_BARRIER_INIT);
    expect(INIT "@q st.shared.b32 [base+4], t;", 32, EMULATOR_BARRIER_INIT);
    expect(INIT "@q st.shared.b32 [base+8], t;", 32, EMULATOR_OK);
    expect(INIT "@q mbarrier.inval.shared.b64 [base];\n@q mbarrier.arrive.shared.b64 _, [base];", 32,
           EMULATOR_BARRIER_INIT);
    expect(INIT "@q mbarrier.inval.shared.b64 [base];\n@q mbarrier.init.shared.b64 [base], 1;\n@q "
                "mbarrier.arrive.shared.b64 _, [base];",
           32, EMULATOR_OK);
    expect("setp.eq.u32 q, t, 0;\n@q mbarrier.init.shared.b64 [base+4], 2;", 32, EMULATOR_ALIGNMENT);
    expect("setp.eq.u32 q, t, 0;\n@q mbarrier.init.shared.b64 [base+8192], 2;", 32, EMULATOR_BOUNDS);
}

static void an_mbarrier_orders_what_came_before_the_arrival(void **state)
{
    (void)state;
    const char *form = "setp.eq.u32 q, t, 0;\n@q mbarrier.init.shared.b64 [base], 1;\nbar.sync 0;\nsetp.ge.u32 p, t, "
                       "32;\n@p bra READER;\n"
                       "mad.lo.u32 a, lane, 4, base;\nst.shared.b32 [a+64], t;\nbar.warp.sync -1;\n"
                       "@leader mbarrier.arrive.shared.b64 _, [base];\nret;\n"
                       "READER:\n%smad.lo.u32 a, lane, 4, base;\nld.shared.b32 b, [a+64];\nst.global.b32 [wide], b;";
    char body[2048];
    snprintf(body, sizeof body, form, "W:\nmbarrier.try_wait.parity.shared.b64 p, [base], 0;\n@!p bra W;\n");
    expect(body, 64, EMULATOR_OK);
    snprintf(body, sizeof body, form, "");
    expect_over(body, 64, 12, FAULTS(RACE) | FAULTS(UNDEFINED), FAULTS(RACE));
    /* A parity that the barrier has not begun with succeeds at once. */
    snprintf(body, sizeof body, form, "W:\nmbarrier.try_wait.parity.shared.b64 p, [base], 1;\n@!p bra W;\n");
    expect_over(body, 64, 3, FAULTS(RACE) | FAULTS(UNDEFINED) | FAULTS(DEADLOCK), 0);
}

static void a_wait_that_comes_two_phases_late_is_found(void **state)
{
    (void)state;
    /* Phases 0 to 3 go by; the other warp looks at the first and then at the last. */
    const char *form =
        "setp.eq.u32 q, t, 0;\n@q mbarrier.init.shared.b64 [base], 1;\nbar.sync 0;\nsetp.ge.u32 p, t, 32;\n"
        "@q mbarrier.arrive.shared.b64 _, [base];\nbar.sync 0;\n"
        "W:\n@p mbarrier.test_wait.parity.shared.b64 leader, [base], 0;\nbar.sync 0;\n%sbar.sync 0;\n"
        "@p mbarrier.test_wait.parity.shared.b64 leader, [base], 1;";
    char body[2048];
    snprintf(body, sizeof body, form, "@q mbarrier.arrive.shared.b64 _, [base];\n");
    expect(body, 64, EMULATOR_OK);
    snprintf(body, sizeof body, form,
             "@q mbarrier.arrive.shared.b64 _, [base];\n@q mbarrier.arrive.shared.b64 _, [base];\n@q "
             "mbarrier.arrive.shared.b64 _, [base];\n");
    expect(body, 64, EMULATOR_BARRIER_PHASE);
}

/* ---- A ring of two stages that copies fill ---- */

typedef struct ring {
    const char *fence, *ordered, *wait_empty, *expect, *copy, *wait_full, *release, *flip, *last;
} ring;

static const ring clean_ring = {
    .fence = "fence.mbarrier_init.release.cluster;\n",
    .ordered = "bar.sync 0;\n",
    .wait_empty = "W1:\nmbarrier.try_wait.parity.shared.b64 p, [a+16], phase;\n@!p bra W1;\n",
    .expect = "mbarrier.arrive.expect_tx.shared.b64 _, [a], 512;\n",
    .copy = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [dst+1024], [src], 512, [a];\n",
    .wait_full = "W2:\nmbarrier.try_wait.parity.shared.b64 p, [a], phase;\n@!p bra W2;\n",
    .release = "bar.warp.sync -1;\n@leader mbarrier.arrive.shared.b64 _, [a+16];\n",
    .flip = "@p xor.b32 phase, phase, 1;\n",
    .last = "",
};

enum { RING_BLOCKS = 6 };

static const char *ring_text(const ring *r)
{
    static char text[8192];
    snprintf(
        text, sizeof text,
        "setp.ne.u32 p, t, 0;\n@p bra INITIALISED;\n"
        "mbarrier.init.shared.b64 [base], 1;\nmbarrier.init.shared.b64 [base+8], 1;\n"
        "mbarrier.init.shared.b64 [base+16], 1;\nmbarrier.init.shared.b64 [base+24], 1;\n%s"
        "INITIALISED:\n%smov.b32 n, 0;\nmov.b32 stage, 0;\nmov.b32 sum, 0;\nsetp.ge.u32 p, t, 32;\n@p bra CONSUMER;\n"
        "@!leader bra END;\nmov.b32 phase, 1;\n"
        "PRODUCE:\nmad.lo.u32 a, stage, 8, base;\n%s%smad.lo.u32 dst, stage, 512, base;\nmad.wide.u32 src, n, 512, "
        "in;\n%s"
        "add.u32 n, n, 1;\nxor.b32 stage, stage, 1;\nsetp.eq.u32 p, stage, 0;\n@p xor.b32 phase, phase, 1;\n"
        "setp.lt.u32 p, n, 6;\n@p bra PRODUCE;\n%sbra END;\n"
        "CONSUMER:\nmov.b32 phase, 0;\n"
        "CONSUME:\nmad.lo.u32 a, stage, 8, base;\n%smad.lo.u32 dst, stage, 512, base;\nmad.lo.u32 dst, lane, 16, dst;\n"
        "ld.shared.v4.b32 {v0, v1, v2, v3}, [dst+1024];\n%s"
        "add.u32 sum, sum, v0;\nadd.u32 sum, sum, v1;\nadd.u32 sum, sum, v2;\nadd.u32 sum, sum, v3;\n"
        "add.u32 n, n, 1;\nxor.b32 stage, stage, 1;\nsetp.eq.u32 p, stage, 0;\n%ssetp.lt.u32 p, n, 6;\n@p bra "
        "CONSUME;\n"
        "st.global.b32 [wide], sum;\nEND:\n",
        r->fence, r->ordered, r->wait_empty, r->expect, r->copy, r->last, r->wait_full, r->release, r->flip);
    return text;
}

static void a_clean_ring_passes_under_200_schedules(void **state)
{
    (void)state;
    static outcome o;
    for (int n = 0; n < 200; n++) {
        emulator_schedule schedule = (emulator_schedule)(n % EMULATOR_SCHEDULE_COUNT);
        uint64_t seed = first_seed + (uint64_t)n;
        run(ring_text(&clean_ring), 64, schedule, seed, &o);
        if (o.fault)
            fail_msg("%s seed %llu: %s in line %d: %s\n%s", emulator_schedule_name(schedule), (unsigned long long)seed,
                     emulator_fault_name(o.fault), o.error.line, o.error.message, o.error.detail);
        for (uint32_t lane = 0; lane < 32; lane++) {
            uint32_t sum = 0;
            for (uint32_t b = 0; b < RING_BLOCKS; b++)
                for (uint32_t e = 0; e < 4; e++) sum += b * 128 + lane * 4 + e;
            assert_int_equal(o.out[32 + lane], sum);
        }
    }
}

/* One place of the ring is wrong. */
#define EXPECT_RING(place, text, allowed, must)                                                                        \
    do {                                                                                                               \
        ring r_ = clean_ring;                                                                                          \
        r_.place = text;                                                                                               \
        expect_over(ring_text(&r_), 64, 8, allowed, must);                                                             \
    } while (0)

static void a_missing_fence_or_barrier_after_init_is_found(void **state)
{
    (void)state;
    EXPECT_RING(fence, "", FAULTS(BARRIER_INIT), FAULTS(BARRIER_INIT));
    EXPECT_RING(ordered, "", FAULTS(BARRIER_INIT), FAULTS(BARRIER_INIT));
    EXPECT_RING(fence, "fence.proxy.async;\n", FAULTS(OK), FAULTS(OK));
}

static void a_missing_wait_for_an_empty_stage_is_found(void **state)
{
    (void)state;
    EXPECT_RING(wait_empty, "", FAULTS(RACE) | FAULTS(BARRIER_COUNT) | FAULTS(BARRIER_PHASE), FAULTS(RACE));
}

static void a_missing_or_unlooped_wait_for_a_full_stage_is_found(void **state)
{
    (void)state;
    const uint32_t early = FAULTS(RACE) | FAULTS(UNDEFINED) | FAULTS(BARRIER_COUNT) | FAULTS(DEADLOCK) |
                           FAULTS(BARRIER_PHASE) | FAULTS(EXIT);
    EXPECT_RING(wait_full, "", early, FAULTS(RACE));
    EXPECT_RING(wait_full, "mbarrier.try_wait.parity.shared.b64 p, [a], phase;\n", early | FAULTS(OK), FAULTS(RACE));
}

static void a_wrong_parity_is_found(void **state)
{
    (void)state;
    const uint32_t wrong = FAULTS(RACE) | FAULTS(UNDEFINED) | FAULTS(BARRIER_COUNT) | FAULTS(DEADLOCK) |
                           FAULTS(BARRIER_PHASE) | FAULTS(EXIT);
    EXPECT_RING(flip, "", wrong, 0);
    EXPECT_RING(wait_full, "xor.b32 b, phase, 1;\nW2:\nmbarrier.try_wait.parity.shared.b64 p, [a], b;\n@!p bra W2;\n",
                wrong, 0);
    EXPECT_RING(wait_empty,
                "xor.b32 b, phase, 1;\nW1:\nmbarrier.try_wait.parity.shared.b64 p, [a+16], b;\n@!p bra W1;\n",
                FAULTS(DEADLOCK), FAULTS(DEADLOCK));
}

static void wrong_bytes_are_found(void **state)
{
    (void)state;
    EXPECT_RING(expect, "mbarrier.arrive.expect_tx.shared.b64 _, [a], 496;\n",
                FAULTS(BARRIER_BYTES) | FAULTS(RACE) | FAULTS(UNDEFINED), FAULTS(BARRIER_BYTES));
    EXPECT_RING(expect, "mbarrier.arrive.expect_tx.shared.b64 _, [a], 528;\n", FAULTS(DEADLOCK), FAULTS(DEADLOCK));
    EXPECT_RING(expect, "mbarrier.arrive.shared.b64 _, [a];\n",
                FAULTS(BARRIER_BYTES) | FAULTS(RACE) | FAULTS(UNDEFINED), FAULTS(BARRIER_BYTES));
}

static void a_stage_that_is_never_released_is_a_deadlock_with_a_reason(void **state)
{
    (void)state;
    EXPECT_RING(release, "", FAULTS(DEADLOCK), FAULTS(DEADLOCK));
    ring r = clean_ring;
    r.release = "";
    static outcome o;
    run(ring_text(&r), 64, EMULATOR_SCHEDULE_ROUND_ROBIN, 0, &o);
    assert_non_null(strstr(o.error.detail, "warp 0 lanes 00000001"));
    assert_non_null(strstr(o.error.detail, "phase 0 parity 0 (now phase 0, 1 of 1 arrivals and 0 bytes pending)"));
    assert_non_null(strstr(o.error.detail, "warp 1 lanes ffffffff"));
}

static void reads_that_nothing_orders_before_the_release_are_not_excused(void **state)
{
    (void)state;
    /* The stage is released before it is read. */
    ring r = clean_ring;
    r.wait_full = "W2:\nmbarrier.try_wait.parity.shared.b64 p, [a], phase;\n@!p bra W2;\n@leader "
                  "mbarrier.arrive.shared.b64 _, [a+16];\n";
    r.release = "";
    expect_over(ring_text(&r), 64, 8, FAULTS(OK) | FAULTS(RACE) | FAULTS(UNDEFINED), FAULTS(RACE));
}

static void copies_have_aligned_addresses_inside_of_allocations(void **state)
{
    (void)state;
#define COPY "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
    EXPECT_RING(copy, COPY "[dst+1032], [src], 512, [a];\n", FAULTS(ALIGNMENT), FAULTS(ALIGNMENT));
    EXPECT_RING(copy, COPY "[dst+1024], [src+4], 512, [a];\n", FAULTS(ALIGNMENT), FAULTS(ALIGNMENT));
    EXPECT_RING(copy, COPY "[dst+1024], [src], 508, [a];\n", FAULTS(ALIGNMENT), FAULTS(ALIGNMENT));
    EXPECT_RING(copy, COPY "[dst+1024], [src+16384], 512, [a];\n", FAULTS(BOUNDS), FAULTS(BOUNDS));
    EXPECT_RING(copy, COPY "[dst+8192], [src], 512, [a];\n", FAULTS(BOUNDS), FAULTS(BOUNDS));
    EXPECT_RING(copy, COPY "[base], [src], 512, [a];\n", FAULTS(BARRIER_INIT) | FAULTS(RACE), FAULTS(BARRIER_INIT));
}

static void a_copy_that_outlives_its_block_is_found(void **state)
{
    (void)state;
    const char *form =
        "setp.eq.u32 q, t, 0;\n@!q bra END;\nmbarrier.init.shared.b64 [base], "
        "1;\nfence.mbarrier_init.release.cluster;\n"
        "mbarrier.arrive.expect_tx.shared.b64 _, [base], 512;\n" COPY "[base+1024], [in], 512, [base];\n%sEND:\n";
    char body[2048];
    snprintf(body, sizeof body, form, "");
    expect_over(body, 32, 4, FAULTS(OK) | FAULTS(EXIT), FAULTS(EXIT));
    snprintf(body, sizeof body, form, "W:\nmbarrier.try_wait.parity.shared.b64 p, [base], 0;\n@!p bra W;\n");
    expect(body, 32, EMULATOR_OK);
}

static void ordinary_writes_need_a_proxy_fence_before_a_copy(void **state)
{
    (void)state;
    const char *form =
        "mad.lo.u32 a, lane, 16, base;\nst.shared.b32 [a+1024], t;\nst.shared.b32 [a+1028], t;\nst.shared.b32 "
        "[a+1032], t;\n"
        "st.shared.b32 [a+1036], t;\n%sbar.warp.sync -1;\n@!leader bra END;\n"
        "cp.async.bulk.global.shared::cta.bulk_group [out], [base+1024], 512;\ncp.async.bulk.commit_group;\n%sEND:\n";
    char body[2048];
    static outcome o;
    const char *wait = "cp.async.bulk.wait_group 0;\nst.shared.b32 [base+1024], t;\n";
    snprintf(body, sizeof body, form, "fence.proxy.async.shared::cta;\n", wait);
    expect(body, 32, EMULATOR_OK);
    run(body, 32, EMULATOR_SCHEDULE_RANDOM, first_seed, &o);
    for (int n = 0; n < 128; n++) assert_int_equal(o.out[n], n / 4);
    snprintf(body, sizeof body, form, "", wait);
    expect(body, 32, EMULATOR_PROXY);
    snprintf(body, sizeof body, form, "@leader fence.proxy.async.shared::cta;\n", wait); /* of one lane only */
    expect(body, 32, EMULATOR_PROXY);
    snprintf(body, sizeof body, form, "fence.proxy.async.shared::cta;\n",
             "st.shared.b32 [base+1024], t;\ncp.async.bulk.wait_group 0;\n");
    expect_over(body, 32, 4, FAULTS(RACE) | FAULTS(PROXY), FAULTS(RACE));
    snprintf(body, sizeof body, form, "fence.proxy.async.shared::cta;\n", "");
    expect_over(body, 32, 4, FAULTS(OK) | FAULTS(EXIT), FAULTS(EXIT));
}

/* ---- Registers, budget, launches ---- */

static void setmaxnreg_takes_from_what_was_freed(void **state)
{
    (void)state;
    const char *form = "setp.ge.u32 p, t, 128;\n@p bra MORE;\n%sbra END;\nMORE:\n%sEND:\nbar.sync 0;";
    char body[1024];
    snprintf(body, sizeof body, form, "setmaxnreg.dec.sync.aligned.u32 24;\n",
             "setmaxnreg.inc.sync.aligned.u32 256;\n");
    expect(body, 256, EMULATOR_OK);
    snprintf(body, sizeof body, form, "setmaxnreg.dec.sync.aligned.u32 248;\n",
             "setmaxnreg.inc.sync.aligned.u32 256;\n");
    expect(body, 256, EMULATOR_OK);
    snprintf(body, sizeof body, form, "mov.b32 a, 0;\n", "setmaxnreg.inc.sync.aligned.u32 256;\n");
    expect(body, 256, EMULATOR_DEADLOCK);
    snprintf(body, sizeof body, form, "setmaxnreg.dec.sync.aligned.u32 16;\n", "mov.b32 a, 0;\n");
    expect(body, 256, EMULATOR_RESOURCE);
    snprintf(body, sizeof body, form, "setmaxnreg.dec.sync.aligned.u32 100;\n", "mov.b32 a, 0;\n");
    expect(body, 256, EMULATOR_RESOURCE);
    snprintf(body, sizeof body, form, "setmaxnreg.inc.sync.aligned.u32 40;\n", "mov.b32 a, 0;\n");
    expect(body, 256, EMULATOR_RESOURCE);
}

static void a_livelock_ends_with_the_budget(void **state)
{
    (void)state;
    expect("LOOP:\nmov.b32 a, 0;\nbra LOOP;", 64, EMULATOR_BUDGET);
}

static void a_flag_of_a_starved_warp_comes_in_the_end(void **state)
{
    (void)state;
    expect("setp.eq.u32 q, t, 0;\nmov.b32 a, 0;\n@q st.shared.b32 [base], a;\nbar.sync 0;\nsetp.ge.u32 p, t, 32;\n@p "
           "bra SPIN;\n"
           "mov.b32 a, 1;\n@q st.volatile.shared.b32 [base], a;\nret;\n"
           "SPIN:\nld.relaxed.cta.shared.b32 b, [base];\nsetp.eq.u32 q, b, 0;\n@q bra SPIN;",
           64, EMULATOR_OK);
}

static void the_same_seed_is_the_same_run(void **state)
{
    (void)state;
    static outcome a, b;
    const char *body = "mov.b32 n, 0;\nLOOP:\natom.global.add.u32 v0, [out], 1;\nadd.u32 n, n, 1;\nsetp.lt.u32 p, n, "
                       "8;\nbar.warp.sync -1;\n@p bra LOOP;\n"
                       "st.global.b32 [wide+64], v0;";
    bool differs = false;
    for (int schedule = 0; schedule < EMULATOR_SCHEDULE_COUNT; schedule++) {
        for (int n = 0; n < 20; n++) {
            run(body, 256, (emulator_schedule)schedule, first_seed + (uint64_t)n, &a);
            run(body, 256, (emulator_schedule)schedule, first_seed + (uint64_t)n, &b);
            assert_int_equal(a.fault, EMULATOR_OK);
            assert_memory_equal(a.out, b.out, sizeof a.out);
            run(body, 256, (emulator_schedule)schedule, first_seed + (uint64_t)n + 1, &b);
            differs |= memcmp(a.out, b.out, sizeof a.out) != 0;
        }
    }
    assert_true(differs);
}

static void launches_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static outcome o;
    run("mov.b32 a, 0;", 1025, EMULATOR_SCHEDULE_ROUND_ROBIN, 0, &o);
    assert_int_equal(o.fault, EMULATOR_RESOURCE);
    run("mov.b32 a, 0;", 0, EMULATOR_SCHEDULE_ROUND_ROBIN, 0, &o);
    assert_int_equal(o.fault, EMULATOR_RESOURCE);
    run("st.global.b32 [wide], t;", 45, EMULATOR_SCHEDULE_ROUND_ROBIN, 0, &o);
    assert_int_equal(o.fault, EMULATOR_OK);
    for (uint32_t t = 0; t < 64; t++) assert_int_equal(o.out[t], t < 45 ? t : 0);
}

static void every_warp_that_executes_an_instruction_is_counted(void **state)
{
    (void)state;
    static outcome o;
    emulator_counts counts;
    wanted_counts = &counts;
    run("mov.b32 n, 0;\nLOOP:\nadd.u32 n, n, 1;\nsetp.lt.u32 p, n, 5;\n@p bra LOOP;\nsetp.lt.u32 p, t, 32;\n@p bra "
        "END;\nmov.b32 a, 0;\nEND:\n",
        96, EMULATOR_SCHEDULE_RANDOM, first_seed, &o);
    wanted_counts = NULL;
    assert_int_equal(o.fault, EMULATOR_OK);
    int fifteens = 0, twos = 0;
    for (int n = 0; n < counts.count; n++) {
        fifteens += counts.executed[n] == 15;
        twos += counts.executed[n] == 2;
    }
    assert_int_equal(fifteens, 3);
    assert_int_equal(twos, 1);
    emulator_counts_finish(&counts);
}

static void an_allocation_that_fails_is_a_fault_and_leaks_nothing(void **state)
{
    (void)state;
    static outcome o;
    int failures = 0;
    for (int n = 1;; n++) {
        allocations_left = n;
        run(ring_text(&clean_ring), 64, EMULATOR_SCHEDULE_ROUND_ROBIN, 0, &o);
        allocations_left = 0;
        if (o.fault == EMULATOR_OK) break;
        assert_int_equal(o.fault, EMULATOR_MEMORY);
        failures++;
    }
    assert_in_range(failures, 20, 10000);
}

static void seed(void)
{
    const char *given = getenv("FOSCAR_TEST_SEED");
    first_seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    print_message("FOSCAR_TEST_SEED=%llu\n", (unsigned long long)first_seed);
}

int main(void)
{
    seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_of_a_branch_meet_again),
        cmocka_unit_test(code_laid_out_after_the_exit_meets_again),
        cmocka_unit_test(lanes_that_leave_a_loop_at_different_times_meet_again),
        cmocka_unit_test(a_lane_that_spins_lets_the_others_run),
        cmocka_unit_test(members_of_a_mask_wait_for_each_other),
        cmocka_unit_test(a_lane_outside_of_its_mask_is_divergence),
        cmocka_unit_test(members_that_never_come_are_a_deadlock),
        cmocka_unit_test(lanes_that_a_guard_excludes_have_not_come),
        cmocka_unit_test(parts_of_a_warp_wait_at_a_barrier_used_before),
        cmocka_unit_test(an_aligned_form_under_divergence_is_found),
        cmocka_unit_test(warps_of_a_warpgroup_that_part_are_found),
        cmocka_unit_test(undefined_registers_are_found_where_they_matter),
        cmocka_unit_test(named_barriers_order_ordinary_accesses),
        cmocka_unit_test(neighbouring_bytes_do_not_race),
        cmocka_unit_test(a_write_after_an_unordered_read_is_a_race),
        cmocka_unit_test(named_barriers_are_counted),
        cmocka_unit_test(bar_red_counts_over_the_block),
        cmocka_unit_test(mbarriers_count_arrivals),
        cmocka_unit_test(each_lane_tests_the_mbarrier_of_its_own_address),
        cmocka_unit_test(mbarriers_must_be_initialised),
        cmocka_unit_test(an_mbarrier_orders_what_came_before_the_arrival),
        cmocka_unit_test(a_wait_that_comes_two_phases_late_is_found),
        cmocka_unit_test(a_clean_ring_passes_under_200_schedules),
        cmocka_unit_test(a_missing_fence_or_barrier_after_init_is_found),
        cmocka_unit_test(a_missing_wait_for_an_empty_stage_is_found),
        cmocka_unit_test(a_missing_or_unlooped_wait_for_a_full_stage_is_found),
        cmocka_unit_test(a_wrong_parity_is_found),
        cmocka_unit_test(wrong_bytes_are_found),
        cmocka_unit_test(a_stage_that_is_never_released_is_a_deadlock_with_a_reason),
        cmocka_unit_test(reads_that_nothing_orders_before_the_release_are_not_excused),
        cmocka_unit_test(copies_have_aligned_addresses_inside_of_allocations),
        cmocka_unit_test(a_copy_that_outlives_its_block_is_found),
        cmocka_unit_test(ordinary_writes_need_a_proxy_fence_before_a_copy),
        cmocka_unit_test(setmaxnreg_takes_from_what_was_freed),
        cmocka_unit_test(a_livelock_ends_with_the_budget),
        cmocka_unit_test(a_flag_of_a_starved_warp_comes_in_the_end),
        cmocka_unit_test(the_same_seed_is_the_same_run),
        cmocka_unit_test(launches_that_do_not_fit_are_refused),
        cmocka_unit_test(every_warp_that_executes_an_instruction_is_counted),
        cmocka_unit_test(an_allocation_that_fails_is_a_fault_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
