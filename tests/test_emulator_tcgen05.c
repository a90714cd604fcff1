/* tcgen05 in the interpreter: products of every kind, copies and register shapes, and each fault that a kernel can make
 * with tensor memory. */
#include "emulator_tcgen05_fixture.h"

static void check_case(const product *p)
{
    static text_buffer text;
    static operands o;
    emulator_error error;
    write_kernel(&text, p);
    make_operands(&o, p);
    move_descriptors(&o);
    run_options options = {.schedule = (emulator_schedule)(random_bits() % EMULATOR_SCHEDULE_COUNT),
                           .seed = random_bits() & ~1u};
    expect_fault(run(&text, &o, &options, &error), EMULATOR_OK, &error);
    check_product(&o, p);
}

static void products_of_every_kind_follow_the_model(void **unused)
{
    (void)unused;
    static const struct {
        const char *kind;
        mma_type a, b;
        int k;
        mma_scale scale;
        int block;
        bool half;
    } rows[] = {
        {"f16", MMA_F16, MMA_F16, 16, MMA_SCALE_NONE, 0, false},
        {"f16", MMA_BF16, MMA_BF16, 16, MMA_SCALE_NONE, 0, false},
        {"f16", MMA_F16, MMA_F16, 16, MMA_SCALE_NONE, 0, true},
        {"f8f6f4", MMA_E4M3, MMA_E4M3, 32, MMA_SCALE_NONE, 0, false},
        {"f8f6f4", MMA_E2M1, MMA_E4M3, 32, MMA_SCALE_NONE, 0, false},
        {"f8f6f4", MMA_E4M3, MMA_E2M1, 32, MMA_SCALE_NONE, 0, true},
        {"f8f6f4", MMA_E5M2, MMA_E3M2, 32, MMA_SCALE_NONE, 0, false},
        {"i8", MMA_U8, MMA_S8, 32, MMA_SCALE_NONE, 0, false},
        {"i8", MMA_S8, MMA_U8, 32, MMA_SCALE_NONE, 0, false},
        {"mxf8f6f4.block_scale.block32", MMA_E4M3, MMA_E2M3, 32, MMA_UE8M0, 32, false},
        {"mxf4.block_scale.block32", MMA_E2M1, MMA_E2M1, 64, MMA_UE8M0, 32, false},
        {"mxf4nvf4.block_scale.block32", MMA_E2M1, MMA_E2M1, 64, MMA_UE8M0, 32, false},
        {"mxf4nvf4.block_scale.block16", MMA_E2M1, MMA_E2M1, 64, MMA_UE4M3, 16, false},
        {"mxf4nvf4.block_scale.block16", MMA_E2M1, MMA_E2M1, 64, MMA_UE8M0, 16, false},
    };
    static const int ns[] = {8, 16, 32, 64};
    for (size_t x = 0; x < sizeof rows / sizeof rows[0]; x++)
        for (int l = 0; l < LAYOUTS; l++)
            for (int tmem = 0; tmem < 2; tmem++) {
                product p = {.kind = rows[x].kind,
                             .m = 128,
                             .n = ns[random_bits() % 4],
                             .k = rows[x].k,
                             .a = rows[x].a,
                             .b = rows[x].b};
                p.scale = rows[x].scale;
                p.block = rows[x].block;
                p.half = rows[x].half;
                p.layout = (layout)l;
                p.a_in_tmem = tmem;
                p.accumulates = random_bits() & 1;
                p.negate_b = !is_integer(&p) && random_bits() & 1;
                if (p.scale == MMA_SCALE_NONE && random_bits() & 1) p.m = 64;
                p.b_transposed = p.k == 32 && p.n % 16 == 0 && (p.b == MMA_E4M3 || is_integer(&p)) && random_bits() & 1;
                check_case(&p);
            }
}

/* ---- Faults ---- */

static const product plain = {.kind = "f8f6f4",
                              .m = 128,
                              .n = 16,
                              .k = 32,
                              .a = MMA_E4M3,
                              .b = MMA_E4M3,
                              .layout = SWIZZLE_128,
                              .a_in_tmem = true,
                              .accumulates = true};

/* What the kernel reports under every schedule once a line is another; where the order of two threads is open, either
 * of two faults. */
static void expect_either(const product *p, const char *mark, const char *instead, emulator_fault fault,
                          emulator_fault other)
{
    static text_buffer text;
    static operands o;
    emulator_error error;
    make_operands(&o, p);
    move_descriptors(&o);
    for (int schedule = 0; schedule < EMULATOR_SCHEDULE_COUNT; schedule++) {
        write_kernel(&text, p);
        if (mark) change(&text, mark, instead);
        run_options options = {.schedule = (emulator_schedule)schedule, .seed = random_bits()};
        emulator_fault got = run(&text, &o, &options, &error);
        if (got != other) expect_fault(got, fault, &error);
    }
}

static void expect(const product *p, const char *mark, const char *instead, emulator_fault fault)
{
    expect_either(p, mark, instead, fault, fault);
}

static void stores_reach_a_product_through_wait_fence_barrier_and_fence(void **unused)
{
    (void)unused;
    expect(&plain, NULL, NULL, EMULATOR_OK);
    expect(&plain, "wait_st", "", EMULATOR_TCGEN05_ORDER);
    expect(&plain, "before_st", "", EMULATOR_TCGEN05_ORDER);
    expect(&plain, "after_st", "", EMULATOR_TCGEN05_ORDER);
    expect(&plain, "barrier", "", EMULATOR_RACE);
}

static void products_reach_a_load_through_commit_wait_and_fence(void **unused)
{
    (void)unused;
    expect(&plain, "after_mma", "", EMULATOR_TCGEN05_ORDER);
    expect_either(&plain, "wait_mma", "", EMULATOR_TCGEN05_ORDER, EMULATOR_RACE);
    expect(&plain, "commit", "", EMULATOR_DEADLOCK);
    expect(&plain, "wait_ld", "", EMULATOR_TCGEN05_ORDER);
    expect(&plain, "loading", "mov.b32 %w0, %d3;", EMULATOR_TCGEN05_ORDER);
    expect_either(&plain, "after_commit", "tcgen05.mma.cta_group::1.kind::f8f6f4 [%r6], [%r8], %l5, %r2, %p2;",
                  EMULATOR_TCGEN05_ORDER, EMULATOR_RACE);
}

static void an_accumulator_still_to_be_read_must_not_be_overwritten(void **unused)
{
    (void)unused;
    const char *again =
        "@!%p1 bra AGAIN; tcgen05.mma.cta_group::1.kind::f8f6f4 [%r6], [%r8], %l5, %r2, %p2;\n"
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [more];\nAGAIN:\nWAIT2:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 %p4, [more], 0;\n@!%p4 bra WAIT2;\nbar.warp.sync 0xffffffff;\n"
        "tcgen05.fence::after_thread_sync;\ntcgen05.fence::before_thread_sync;\nbar.sync 0;\n";
    char text[2048];
    snprintf(text, sizeof text, "tcgen05.fence::after_thread_sync;\n%s", again);
    expect(&plain, "again", text, EMULATOR_OK);
    expect(&plain, "again", again,
           EMULATOR_TCGEN05_ORDER); /* loads of other warps are over, but nobody says so to tensor memory */
    snprintf(text, sizeof text, "tcgen05.fence::after_thread_sync;\n%s", again);
    expect_either(&plain, "barrier_end", text, EMULATOR_RACE, EMULATOR_TCGEN05_ORDER);
}

static void tensor_memory_is_allocated_used_in_its_own_lanes_and_freed(void **unused)
{
    (void)unused;
    expect(&plain, "dealloc", "", EMULATOR_TMEM);
    expect(&plain, "dealloc", "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r6, 256;", EMULATOR_TMEM);
    expect(&plain, "alloc", "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r9], 128;", EMULATOR_TMEM);
    expect(&plain, "alloc", "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r9], 48;", EMULATOR_TMEM);
    expect(&plain, "second_alloc", "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r9], 32;",
           EMULATOR_DEADLOCK);
    expect(&plain, "after_relinquish", "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r9], 32;",
           EMULATOR_TMEM);
    expect(&plain, "quarter", "mov.u32 %r7, %r6;", EMULATOR_TMEM);
    expect(&plain, "loading",
           "add.u32 %r13, %r7, 510; tcgen05.ld.sync.aligned.32x32b.x4.b32 {%a0, %a1, %a2, %a3}, [%r13];",
           EMULATOR_TMEM);
    expect(&plain, "store_a", "", EMULATOR_UNDEFINED);
}

static void operands_in_shared_memory_need_the_proxy_fence(void **unused)
{
    (void)unused;
    expect(&plain, "proxy", "", EMULATOR_PROXY);
    product p = plain;
    p.a_in_tmem = false;
    expect(&p, "proxy", "", EMULATOR_PROXY);
    expect(&p, "after_commit", "st.shared.b32 [tile], %r0;", EMULATOR_RACE); /* the product may not have read it */
    expect(&p, "loading", "@%p1 st.shared.b32 [tile], %r0;", EMULATOR_OK);
}

static void products_are_committed_and_issued_by_one_thread(void **unused)
{
    (void)unused;
    expect(&plain, "issuer", "ret;", EMULATOR_DEADLOCK);
    const char *last = "@!%p1 bra LAST; tcgen05.fence::after_thread_sync; tcgen05.mma.cta_group::1.kind::f8f6f4 [%r6], "
                       "[%r8], %l5, %r2, %p2; LAST:";
    expect(&plain, "dealloc", last, EMULATOR_EXIT);
    expect(&plain, "dealloc",
           "tcgen05.fence::after_thread_sync; tcgen05.mma.cta_group::1.kind::f8f6f4 [%r6], [%r8], %l5, %r2, %p2;",
           EMULATOR_DIVERGENCE);
}

static void descriptors_that_fit_nothing_are_reported(void **unused)
{
    (void)unused;
    static text_buffer text;
    static operands o;
    emulator_error error;
    write_kernel(&text, &plain);
    make_operands(&o, &plain);
    move_descriptors(&o);
    uint64_t b = o.b_descriptor;
    uint32_t good = o.instruction_descriptor;
    const struct {
        uint64_t b;
        uint32_t instruction;
        emulator_fault fault;
    } rows[] = {
        {b, good, EMULATOR_OK},
        {b & ~(1ull << 46), good, EMULATOR_DESCRIPTOR}, /* that of Hopper */
        {b | 1ull << 54, good, EMULATOR_DESCRIPTOR},
        {b + 8, good, EMULATOR_DESCRIPTOR},
        {b | 3ull << 61, good, EMULATOR_DESCRIPTOR},
        {b, good | 1u << 6, EMULATOR_DESCRIPTOR},
        {b, good | 1u << 3, EMULATOR_DESCRIPTOR},
        {b, good | 2u << 7, EMULATOR_DESCRIPTOR},
        {b, good & ~(0x1fu << 24), EMULATOR_DESCRIPTOR},
        {b, good & ~(0x3fu << 17), EMULATOR_DESCRIPTOR},
        {b, good | 1u << 15, EMULATOR_DESCRIPTOR}, /* A of tensor memory transposed */
        {b, good | 2u << 4, EMULATOR_DESCRIPTOR},
        {b, good | 1u << 2, EMULATOR_UNKNOWN_FORM},
    };
    for (size_t x = 0; x < sizeof rows / sizeof rows[0]; x++) {
        o.b_descriptor = rows[x].b;
        o.instruction_descriptor = rows[x].instruction;
        expect_fault(run(&text, &o, &(run_options){0}, &error), rows[x].fault, &error);
    }
    product p = plain;
    p.kind = "f8f6f4";
    write_kernel(&text, &p);
    char *group = strstr(text.text, "tcgen05.mma.cta_group::1");
    group[strlen("tcgen05.mma.cta_group::")] = '2';
    o.b_descriptor = b;
    o.instruction_descriptor = good;
    expect_fault(run(&text, &o, &(run_options){0}, &error), EMULATOR_UNKNOWN_FORM, &error);
}

/* ---- Shapes of loads and stores, and copies ---- */

/* Columns 0-15 are 1000 lane + column, stored as 32x32b; register r of thread t of a load: */
static uint32_t expected_word(const char *shape, int quarter, int half, int t, int r)
{
    int lane = t, column = r;
    if (strncmp(shape, "16x64b", 6) == 0) {
        lane = t / 4 + 8 * (t & 1);
        column = 2 * r + t / 2 % 2;
    } else if (strncmp(shape, "16x128b", 7) == 0) {
        lane = t / 4 + 8 * (r & 1);
        column = t % 4 + 4 * (r / 2);
    } else if (strncmp(shape, "16x256b", 7) == 0) {
        lane = t / 4 + 8 * (r / 2 % 2);
        column = 2 * (t % 4) + r % 2 + 8 * (r / 4);
    } else if (strncmp(shape, "16x32bx2", 8) == 0) {
        lane = t % 16;
        column = r + (t < 16 ? 0 : 8);
    }
    return (uint32_t)(1000 * (32 * quarter + 16 * half + lane) + column);
}

static void check_shape(const char *shape, int registers, int half, const char *immediate)
{
    static text_buffer t;
    t.text[0] = '\0';
    add(&t, ".version 8.8\n.target sm_100a\n.address_size 64\n.visible .entry kernel(.param .b64 p_out)\n.reqntid 128, "
            "1, 1\n{\n"
            ".shared .align 4 .b32 where;\n.reg .b32 %%d<16>, %%r<8>;\n.reg .b64 %%l<4>;\n.reg .pred %%p0;\n"
            "mov.u32 %%r0, %%tid.x;\nshr.u32 %%r1, %%r0, 5;\nsetp.eq.u32 %%p0, %%r1, 0;\nmov.u32 %%r2, where;\n@!%%p0 "
            "bra NO;\n"
            "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%%r2], 32;\nNO:\nbar.sync 0;\nld.shared.b32 "
            "%%r3, [where];\n"
            "shl.b32 %%r4, %%r1, 21;\nadd.u32 %%r4, %%r4, %%r3;\nmul.lo.u32 %%r5, %%r0, 1000;\n");
    for (int r = 0; r < 16; r++) add(&t, "add.u32 %%d%d, %%r5, %d;\n", r, r);
    add(&t, "tcgen05.st.sync.aligned.32x32b.x16.b32 [%%r4], ");
    add_list(&t, "d", 0, 16);
    add(&t, ";\ntcgen05.wait::st.sync.aligned;\nadd.u32 %%r6, %%r4, %d;\n", half * 16 << 16);
    for (int round = 0; round < 2; round++) { /* the second load reads what a store of the same shape has written */
        add(&t, "tcgen05.ld.sync.aligned.%s.b32 ", shape);
        add_list(&t, "d", 0, registers);
        add(&t, ", [%%r6]%s;\ntcgen05.wait::ld.sync.aligned;\n", immediate);
        if (round) break;
        add(&t, "tcgen05.st.sync.aligned.%s.b32 [%%r6]%s, ", shape, immediate);
        add_list(&t, "d", 0, registers);
        add(&t, ";\ntcgen05.wait::st.sync.aligned;\n");
    }
    add(&t, "ld.param.b64 %%l0, [p_out];\nmul.wide.u32 %%l1, %%r0, 4;\nadd.u64 %%l0, %%l0, %%l1;\n");
    for (int r = 0; r < registers; r++) add(&t, "st.global.b32 [%%l0+%d], %%d%d;\n", r * 512, r);
    add(&t, "tcgen05.fence::before_thread_sync;\nbar.sync 0;\ntcgen05.fence::after_thread_sync;\n@!%%p0 bra END;\n"
            "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %%r3, 32;\nEND:\nret;\n}\n");
    emulator_memory *memory = emulator_memory_create();
    uint64_t out = emulator_memory_allocate(memory, 16 * 512);
    emulator_error error;
    void *parameters[] = {&out};
    expect_fault(run_text(t.text, memory, parameters, &(run_options){.threads = 128, .seed = random_bits()}, &error),
                 EMULATOR_OK, &error);
    const uint32_t *got = (const uint32_t *)(uintptr_t)out;
    for (int thread = 0; thread < 128; thread++)
        for (int r = 0; r < registers; r++)
            assert_int_equal(got[r * 128 + thread], expected_word(shape, thread / 32, half, thread % 32, r));
    emulator_memory_destroy(memory);
}

static void every_shape_of_loads_and_stores_has_its_register_map(void **unused)
{
    (void)unused;
    check_shape("32x32b.x16", 16, 0, "");
    check_shape("32x32b.x1", 1, 0, "");
    for (int half = 0; half < 2; half++) {
        check_shape("16x64b.x8", 8, half, "");
        check_shape("16x128b.x4", 8, half, "");
        check_shape("16x256b.x2", 8, half, "");
        check_shape("16x32bx2.x8", 8, half, ", 8");
    }
}

/* Copies the image to columns 0-7 and loads them. */
static void check_copy(const char *shape, int rows, int bytes, int format)
{
    static text_buffer t;
    product p = plain;
    p.accumulates = false;
    p.n = 8;
    write_kernel(&t, &p);
    char copy[256];
    snprintf(copy, sizeof copy, "tcgen05.cp.cta_group::1.%s [%%r6], %%l4;", shape);
    change(&t, "mma", copy);
    static operands o;
    make_operands(&o, &p);
    uint8_t source[128][32];
    for (int r = 0; r < rows; r++)
        for (int b = 0; b < bytes; b++) {
            source[r][b] = (uint8_t)random_bits();
            o.image[k_major(PLAIN, r, b)] = source[r][b];
        }
    o.a_descriptor = descriptor(PLAIN, 0);
    move_descriptors(&o);
    emulator_error error;
    expect_fault(run(&t, &o, &(run_options){.seed = random_bits()}, &error), EMULATOR_OK, &error);
    for (int lane = 0; lane < 128; lane++) {
        int row = rows == 128              ? lane
                  : rows == 32             ? lane % 32
                  : strstr(shape, "02_13") ? lane % 64
                                           : lane / 64 * 32 + lane % 32;
        uint8_t wanted[32];
        for (int b = 0; b < bytes; b++) {
            if (format == 4)
                wanted[b] = (uint8_t)((source[row][b / 16 * 16 + b % 16 / 2] >> 4 * (b % 2) & 0xf) << 2);
            else if (format == 6) {
                uint32_t at = (uint32_t)b % 16 * 6, low = source[row][b / 16 * 16 + (int)(at / 8)],
                         high = source[row][b / 16 * 16 + (int)(at / 8) + 1];
                wanted[b] = (uint8_t)(((low | high << 8) >> at % 8 & 0x3f) << 1);
            } else
                wanted[b] = source[row][b];
        }
        for (int c = 0; c < bytes / 4; c++) assert_memory_equal(&o.out[c * 128 + lane], wanted + 4 * c, 4);
    }
}

static void copies_write_the_lanes_that_their_shape_names(void **unused)
{
    (void)unused;
    check_copy("128x256b", 128, 32, 0);
    check_copy("128x128b", 128, 16, 0);
    check_copy("64x128b.warpx2::02_13", 64, 16, 0);
    check_copy("64x128b.warpx2::01_23", 64, 16, 0);
    check_copy("32x128b.warpx4", 32, 16, 0);
    check_copy("128x256b.b8x16.b4x16_p64", 128, 32, 4);
    check_copy("128x256b.b8x16.b6x16_p32", 128, 32, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_every_kind_follow_the_model),
        cmocka_unit_test(stores_reach_a_product_through_wait_fence_barrier_and_fence),
        cmocka_unit_test(products_reach_a_load_through_commit_wait_and_fence),
        cmocka_unit_test(an_accumulator_still_to_be_read_must_not_be_overwritten),
        cmocka_unit_test(tensor_memory_is_allocated_used_in_its_own_lanes_and_freed),
        cmocka_unit_test(operands_in_shared_memory_need_the_proxy_fence),
        cmocka_unit_test(products_are_committed_and_issued_by_one_thread),
        cmocka_unit_test(descriptors_that_fit_nothing_are_reported),
        cmocka_unit_test(every_shape_of_loads_and_stores_has_its_register_map),
        cmocka_unit_test(copies_write_the_lanes_that_their_shape_names),
    };
    return cmocka_run_group_tests_name("emulator_tcgen05", tests, start_random, NULL);
}
