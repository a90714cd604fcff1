/* wgmma in the interpreter: fragments, descriptors and layouts against plain sums, and each fault that a kernel can
 * make with it. */
#include "emulator_tensor_fixture.h"

#include "tensor.h"

enum { IMAGE_BYTES = 65536, B_AT = 32768, ROWS = 64 };

typedef enum layout { PLAIN, SWIZZLE_32, SWIZZLE_64, SWIZZLE_128, LAYOUTS } layout;

typedef struct product {
    const char *types; /* "s32.u8.s8" */
    int n, k;
    mma_type a, b;
    layout layout;
    bool a_in_registers, a_transposed, b_transposed, half, accumulates, floats, negate_a;
    int step; /* of 32 bytes along k, inside the swizzled line */
} product;

/* ---- The kernel ---- */

static int registers_of(const product *p)
{
    return p->half ? p->n / 4 : p->n / 2;
}

static void write_kernel(text_buffer *t, const product *p)
{
    int count = registers_of(p);
    t->text[0] = '\0';
    add(t, ".version 8.4\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 tile[];\n"
           ".visible .entry kernel(.param .b64 p_image, .param .b64 p_a, .param .b64 p_d, .param .b64 p_out, .param "
           ".b64 p_da,\n"
           ".param .b64 p_db, .param .b32 p_accumulate)\n.reqntid 128, 1, 1\n{\n");
    add(t, ".reg .b32 %%d<%d>, %%a<4>, %%r<8>, %%w<4>;\n.reg .b64 %%l<8>;\n.reg .pred %%p<4>;\n", count);
    add(t,
        "mov.u32 %%r0, %%tid.x;\nld.param.b64 %%l0, [p_image];\nld.param.b64 %%l1, [p_a];\nld.param.b64 %%l2, [p_d];\n"
        "ld.param.b64 %%l3, [p_out];\nld.param.b64 %%l4, [p_da];\nld.param.b64 %%l5, [p_db];\nld.param.b32 %%r1, "
        "[p_accumulate];\n"
        "setp.ne.u32 %%p0, %%r1, 0;\nshl.b32 %%r2, %%r0, 4;\nmov.u32 %%r3, tile;\nadd.u32 %%r3, %%r3, "
        "%%r2;\ncvt.u64.u32 %%l6, %%r2;\n"
        "add.u64 %%l0, %%l0, %%l6;\nadd.u64 %%l1, %%l1, %%l6;\nmov.u32 %%r4, 0;\n"
        "COPY:\nld.global.v4.b32 {%%w0, %%w1, %%w2, %%w3}, [%%l0];\nst.shared.v4.b32 [%%r3], {%%w0, %%w1, %%w2, "
        "%%w3};\n"
        "add.u64 %%l0, %%l0, 2048;\nadd.u32 %%r3, %%r3, 2048;\nadd.u32 %%r4, %%r4, 2048;\nsetp.lt.u32 %%p1, %%r4, "
        "%d;\n@%%p1 bra COPY;\n",
        IMAGE_BYTES);
    add(t, "ld.global.v4.b32 {%%a0, %%a1, %%a2, %%a3}, [%%l1];\nshl.b32 %%r2, %%r0, 2;\ncvt.u64.u32 %%l6, %%r2;\n"
           "add.u64 %%l2, %%l2, %%l6;\nadd.u64 %%l3, %%l3, %%l6;\n");
    for (int r = 0; r < count; r++) add(t, "ld.global.b32 %%d%d, [%%l2+%d];\n", r, r * 512);
    add(t, " // @late_operands\nfence.proxy.async.shared::cta; // @proxy\nbar.sync 0; // "
           "@barrier\nwgmma.fence.sync.aligned; // @fence\n"
           " // @before\n");
    add(t, "wgmma.mma_async.sync.aligned.m64n%dk%d.%s ", p->n, p->k, p->types);
    add_list(t, "d", 0, count);
    add(t, ", ");
    if (p->a_in_registers)
        add_list(t, "a", 0, 4);
    else
        add(t, "%%l4");
    add(t, ", %%l5, %%p0");
    if (p->floats) add(t, ", %d, 1", p->negate_a ? -1 : 1);
    if (p->floats && p->k == 16 && !p->a_in_registers) add(t, ", %d", p->a_transposed);
    if (p->floats && p->k == 16) add(t, ", %d", p->b_transposed);
    add(t, "; // @mma\n // @uncommitted\nwgmma.commit_group.sync.aligned; // @commit\n // @in_flight\n"
           "wgmma.wait_group.sync.aligned 0; // @wait\n // @after\n");
    for (int r = 0; r < count; r++) add(t, "st.global.b32 [%%l3+%d], %%d%d;\n", r * 512, r);
    add(t, "ret;\n}\n");
}

/* ---- Its operands ---- */

typedef struct operands {
    uint32_t a[ROWS * 32], b[256 * 32]; /* codes [rows][k] */
    uint8_t image[IMAGE_BYTES];         /* of shared memory: A at 0, B at B_AT */
    uint32_t fragments[128 * 4], d[128 * 128], out[128 * 128];
    uint64_t a_descriptor, b_descriptor;
} operands;

/* Byte `byte` of line `line`, K-major: rows of 8 lines, as each layout is usually written. */
static size_t k_major(layout l, int line, int byte)
{
    size_t row = (size_t)line, chunk = (size_t)byte / 16, in = (size_t)byte % 16;
    switch (l) {
    case PLAIN:
        return row / 8 * 256 + chunk * 128 + row % 8 * 16 + in;
    case SWIZZLE_32:
        return row * 32 + ((chunk ^ (row / 4 & 1)) * 16) + in;
    case SWIZZLE_64:
        return row * 64 + ((chunk ^ (row / 2 & 3)) * 16) + in;
    default:
        return row * 128 + ((chunk ^ (row & 7)) * 16) + in;
    }
}

/* Element k of row mn of 16 bits, rows next to each other. */
static size_t mn_major(layout l, int mn, int k)
{
    size_t m = (size_t)mn, x = (size_t)k;
    if (l == PLAIN) return m / 8 * 256 + x / 8 * 128 + x % 8 * 16 + m % 8 * 2;
    size_t line = (size_t)16 << l, per_line = line / 2; /* elements of a line */
    size_t row = x % 8, turn = l == SWIZZLE_128 ? row : l == SWIZZLE_64 ? row / 2 : row / 4;
    return m / per_line * (2 * 8 * line) + x / 8 * (8 * line) + row * line + ((m % per_line / 8) ^ turn) * 16 +
           m % 8 * 2;
}

static uint64_t descriptor(layout l, bool transposed, uint32_t start, int step)
{
    uint64_t leading = 128, stride = 256, line = 16u << l;
    static const uint64_t mode[] = {0, 3, 2, 1};
    if (l != PLAIN) {
        leading = transposed ? 2 * 8 * line : 16;
        stride = 8 * line;
    } else if (transposed) {
        leading = 128; /* between groups of 8 k */
        stride = 256;  /* between groups of 8 rows */
    }
    start += (uint32_t)step * 32;
    return start >> 4 | (leading >> 4) << 16 | (stride >> 4) << 32 | mode[l] << 62;
}

static void place(operands *o, const product *p, const uint32_t *codes, int rows, size_t at, bool transposed)
{
    int size = p->k == 16 ? 2 : 1;
    for (int r = 0; r < rows; r++)
        for (int x = 0; x < p->k; x++) {
            size_t to = at + (transposed ? mn_major(p->layout, r, x) : k_major(p->layout, r, x * size + p->step * 32));
            assert_true(to + (size_t)size <= IMAGE_BYTES);
            memcpy(o->image + to, &codes[r * p->k + x], (size_t)size);
        }
}

static void make_operands(operands *o, const product *p)
{
    for (int i = 0; i < IMAGE_BYTES; i++) o->image[i] = (uint8_t)random_bits();
    for (int i = 0; i < ROWS * p->k; i++) o->a[i] = random_code(p->a);
    for (int i = 0; i < p->n * p->k; i++) o->b[i] = random_code(p->b);
    place(o, p, o->b, p->n, B_AT, p->b_transposed);
    if (!p->a_in_registers) place(o, p, o->a, ROWS, 0, p->a_transposed);
    o->a_descriptor = descriptor(p->layout, p->a_transposed, 0, p->step);
    o->b_descriptor = descriptor(p->layout, p->b_transposed, B_AT, p->step);
    int size = p->k == 16 ? 2 : 1;
    for (int t = 0; t < 128; t++) {
        for (int r = 0; r < 4; r++) {
            int row = t / 32 * 16 + t % 32 / 4 + 8 * (r & 1), byte = 4 * (t % 4) + 16 * (r >> 1);
            uint32_t word = 0;
            for (int x = 0; x < 4 / size; x++) word |= (uint32_t)o->a[row * p->k + byte / size + x] << (8 * size * x);
            o->fragments[t * 4 + r] = word;
        }
    }
    for (int i = 0; i < 128 * 128; i++) {
        float value = (float)(int32_t)(random_bits() % 2001) / 16 - 62.5f;
        o->d[i] = random_bits() << 1;
        if (p->half)
            o->d[i] = mma_half_bits(value) | (uint32_t)mma_half_bits(value / 3) << 16;
        else if (p->floats)
            memcpy(&o->d[i], &value, 4);
    }
}

/* Register and half of accumulator (row, column); registers lie [register][thread]. */
static uint32_t *accumulator(const product *p, uint32_t *registers, int row, int column, int *half)
{
    int thread = row / 16 * 32 + row % 8 * 4 + column % 8 / 2, low = row % 16 / 8;
    int r = p->half ? low + column / 8 * 2 : column % 2 + 2 * low + column / 8 * 4;
    *half = p->half ? column % 2 : 0;
    return &registers[r * 128 + thread];
}

static void check_product(operands *o, const product *p)
{
    static float sums[ROWS * 256];
    static int32_t integers[ROWS * 256];
    static uint8_t a[ROWS * 32], b[256 * 32];
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < p->n; column++) {
            int half, at = row * p->n + column;
            uint32_t word = *accumulator(p, o->d, row, column, &half);
            if (!p->accumulates) word = 0;
            integers[at] = (int32_t)word;
            if (p->half)
                sums[at] = mma_widen(MMA_F16, (uint16_t)(word >> 16 * half));
            else
                memcpy(&sums[at], &word, 4);
        }
    if (p->floats) {
        uint32_t sign = p->k == 16 ? 0x8000 : 0x80, negated[ROWS * 32];
        for (int i = 0; i < ROWS * p->k; i++) negated[i] = p->negate_a ? o->a[i] ^ sign : o->a[i];
        mma_float_form how = {MMA_HOPPER, p->a, p->b, p->half, MMA_SCALE_NONE, 0};
        mma_float(&how, ROWS, p->n, p->k, negated, o->b, NULL, NULL, sums);
    } else {
        for (int i = 0; i < ROWS * 32; i++) a[i] = (uint8_t)o->a[i];
        for (int i = 0; i < p->n * 32; i++) b[i] = (uint8_t)o->b[i];
        mma_integer(ROWS, p->n, p->k, p->a, a, p->b, b, integers, strstr(p->types, "satfinite") != NULL);
    }
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < p->n; column++) {
            int half;
            uint32_t got = *accumulator(p, o->out, row, column, &half),
                     wanted = (uint32_t)integers[row * p->n + column];
            if (p->half) {
                got = got >> 16 * half & 0xffff;
                wanted = mma_half_bits(sums[row * p->n + column]);
            } else if (p->floats) {
                memcpy(&wanted, &sums[row * p->n + column], 4);
            }
            if (got != wanted)
                fail_msg("%s n %d layout %d: row %d, column %d: 0x%x instead of 0x%x", p->types, p->n, p->layout, row,
                         column, got, wanted);
        }
}

/* ---- Runs ---- */

static emulator_fault run(const text_buffer *t, const product *p, operands *o, const run_options *given,
                          emulator_error *error)
{
    emulator_memory *memory = emulator_memory_create();
    assert_non_null(memory);
    uint64_t image = device_copy(memory, o->image, IMAGE_BYTES),
             a = device_copy(memory, o->fragments, sizeof o->fragments);
    uint64_t d = device_copy(memory, o->d, sizeof o->d), out = device_copy(memory, o->out, sizeof o->out);
    uint32_t accumulates = p->accumulates;
    void *parameters[] = {&image, &a, &d, &out, &o->a_descriptor, &o->b_descriptor, &accumulates};
    run_options options = given ? *given : (run_options){0};
    options.threads = 128;
    options.shared_bytes = IMAGE_BYTES;
    emulator_fault fault = run_text(t->text, memory, parameters, &options, error);
    memcpy(o->out, (const void *)(uintptr_t)out, sizeof o->out);
    emulator_memory_destroy(memory);
    return fault;
}

static void check_case(const product *p)
{
    static text_buffer text;
    static operands o;
    emulator_error error;
    write_kernel(&text, p);
    make_operands(&o, p);
    run_options options = {.schedule = (emulator_schedule)(random_bits() % EMULATOR_SCHEDULE_COUNT),
                           .seed = random_bits()};
    expect_fault(run(&text, p, &o, &options, &error), EMULATOR_OK, &error);
    check_product(&o, p);
}

static void integer_products_of_every_type_and_layout_are_exact(void **unused)
{
    (void)unused;
    static const char *const types[] = {"s32.u8.u8", "s32.u8.s8", "s32.s8.u8", "s32.s8.s8"};
    static const char *const saturating[] = {"s32.u8.u8.satfinite", "s32.u8.s8.satfinite", "s32.s8.u8.satfinite",
                                             "s32.s8.s8.satfinite"};
    static const int ns[] = {8, 16, 24, 32, 48, 128, 256};
    for (int x = 0; x < 4; x++)
        for (int l = 0; l < LAYOUTS; l++)
            for (int registers = 0; registers < 2; registers++)
                for (int y = 0; y < 2; y++) {
                    product p = {.types = y ? saturating[x] : types[x],
                                 .n = ns[random_bits() % 7],
                                 .k = 32,
                                 .layout = (layout)l};
                    p.a = x & 2 ? MMA_S8 : MMA_U8;
                    p.b = x & 1 ? MMA_S8 : MMA_U8;
                    p.a_in_registers = registers;
                    p.accumulates = random_bits() & 1;
                    p.step = l == SWIZZLE_128  ? (int)(random_bits() % 4)
                             : l == SWIZZLE_64 ? (int)(random_bits() % 2)
                                               : 0;
                    check_case(&p);
                }
}

static void float_products_of_every_type_and_layout_follow_the_model(void **unused)
{
    (void)unused;
    static const struct {
        const char *types;
        mma_type a, b;
        int k;
        bool half;
    } rows[] = {{"f32.f16.f16", MMA_F16, MMA_F16, 16, false},     {"f16.f16.f16", MMA_F16, MMA_F16, 16, true},
                {"f32.bf16.bf16", MMA_BF16, MMA_BF16, 16, false}, {"f32.e4m3.e4m3", MMA_E4M3, MMA_E4M3, 32, false},
                {"f32.e4m3.e5m2", MMA_E4M3, MMA_E5M2, 32, false}, {"f16.e5m2.e4m3", MMA_E5M2, MMA_E4M3, 32, true}};
    for (size_t x = 0; x < sizeof rows / sizeof rows[0]; x++)
        for (int l = 0; l < LAYOUTS; l++)
            for (int registers = 0; registers < 2; registers++) {
                product p = {.types = rows[x].types,
                             .n = 64 + 64 * (int)(random_bits() % 2),
                             .k = rows[x].k,
                             .layout = (layout)l,
                             .floats = true};
                p.a = rows[x].a;
                p.b = rows[x].b;
                p.half = rows[x].half;
                p.a_in_registers = registers;
                p.b_transposed = p.k == 16 && random_bits() & 1;
                p.a_transposed = p.k == 16 && !registers && random_bits() & 1;
                p.negate_a = random_bits() & 1;
                p.accumulates = random_bits() & 1;
                check_case(&p);
            }
}

/* ---- Faults ---- */

static const product plain = {
    .types = "s32.u8.s8", .n = 24, .k = 32, .a = MMA_U8, .b = MMA_S8, .a_in_registers = true, .accumulates = true};

/* What the kernel reports under every schedule once a line is another. */
static void expect(const product *p, const char *mark, const char *instead, emulator_fault fault)
{
    static text_buffer text;
    static operands o;
    emulator_error error;
    make_operands(&o, p);
    for (int schedule = 0; schedule < EMULATOR_SCHEDULE_COUNT; schedule++) {
        write_kernel(&text, p);
        if (mark) change(&text, mark, instead);
        run_options options = {.schedule = (emulator_schedule)schedule, .seed = random_bits()};
        expect_fault(run(&text, p, &o, &options, &error), fault, &error);
        if (fault != EMULATOR_OK) assert_true(error.line > 0 || fault == EMULATOR_EXIT);
    }
}

static void a_register_of_a_product_in_flight_must_not_be_touched(void **unused)
{
    (void)unused;
    expect(&plain, NULL, NULL, EMULATOR_OK);
    expect(&plain, "in_flight", "mov.b32 %w0, %d3;", EMULATOR_WGMMA_REGISTERS);
    expect(&plain, "in_flight", "mov.b32 %d3, 0;", EMULATOR_WGMMA_REGISTERS);
    expect(&plain, "in_flight", "mov.b32 %a1, 0;", EMULATOR_WGMMA_REGISTERS);
    expect(&plain, "wait", "", EMULATOR_WGMMA_REGISTERS);
    expect(&plain, "wait", "wgmma.wait_group.sync.aligned 1;", EMULATOR_WGMMA_REGISTERS);
    expect(&plain, "after", "mov.b32 %w0, %d3;", EMULATOR_OK);
}

static void accumulators_in_flight_go_on_with_the_same_shape_only(void **unused)
{
    (void)unused;
    const char *same = "wgmma.mma_async.sync.aligned.m64n24k32.s32.u8.s8 {%d0, %d1, %d2, %d3, %d4, %d5, %d6, %d7, %d8, "
                       "%d9, %d10, %d11}, "
                       "{%a0, %a1, %a2, %a3}, %l5, %p0;";
    const char *moved = "wgmma.mma_async.sync.aligned.m64n24k32.s32.u8.s8 {%d1, %d0, %d2, %d3, %d4, %d5, %d6, %d7, "
                        "%d8, %d9, %d10, %d11}, "
                        "{%a0, %a1, %a2, %a3}, %l5, %p0;";
    const char *smaller = "wgmma.mma_async.sync.aligned.m64n16k32.s32.u8.s8 {%d0, %d1, %d2, %d3, %d4, %d5, %d6, %d7}, "
                          "{%a0, %a1, %a2, %a3}, %l5, %p0;";
    expect(&plain, "uncommitted", same, EMULATOR_OK);
    expect(&plain, "uncommitted", moved, EMULATOR_WGMMA_REGISTERS);
    expect(&plain, "uncommitted", smaller, EMULATOR_WGMMA_REGISTERS);
}

static void products_need_a_fence_a_commit_and_a_wait(void **unused)
{
    (void)unused;
    expect(&plain, "fence", "", EMULATOR_WGMMA_ORDER);
    expect(&plain, "before", "mov.b32 %a2, 7;", EMULATOR_WGMMA_ORDER);
    expect(&plain, "before", "mov.b32 %d2, 7;", EMULATOR_WGMMA_ORDER);
    expect(&plain, "before", "mov.b32 %a2, 7; wgmma.fence.sync.aligned;", EMULATOR_OK);
    expect(&plain, "commit", "", EMULATOR_WGMMA_ORDER);
    expect(&plain, "in_flight", "ret;", EMULATOR_EXIT);
    expect(&plain, "uncommitted", "ret;", EMULATOR_EXIT);
}

static void operands_in_shared_memory_need_the_proxy_fence_and_the_barrier(void **unused)
{
    (void)unused;
    product p = plain;
    for (int registers = 0; registers < 2; registers++) {
        p.a_in_registers = registers;
        expect(&p, "proxy", "", EMULATOR_PROXY);
        expect(&p, "barrier", "", EMULATOR_RACE);
    }
    expect(&plain, "after", "st.shared.b32 [tile+32768], %w0;",
           EMULATOR_RACE); /* another warp's product may not have read it yet */
    expect(&plain, "after", "bar.sync 0; setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.b32 [tile+32768], %w0;", EMULATOR_OK);
    expect(&plain, "in_flight", "bar.sync 0; setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.b32 [tile+32768], %w0;",
           EMULATOR_RACE);
}

static void warps_of_a_warpgroup_issue_the_same(void **unused)
{
    (void)unused;
    expect(&plain, "before", "setp.lt.u32 %p0, %r0, 32;", EMULATOR_DIVERGENCE);
    expect(&plain, "before", "cvt.u64.u32 %l6, %r0; shr.u64 %l6, %l6, 5; and.b64 %l6, %l6, 1; add.u64 %l5, %l5, %l6;",
           EMULATOR_DIVERGENCE);
    expect(&plain, "before", "setp.lt.u32 %p0, %r0, 1;", EMULATOR_DIVERGENCE);
    expect(&plain, "before", "cvt.u64.u32 %l6, %r0; add.u64 %l5, %l5, %l6;", EMULATOR_DIVERGENCE);
}

static void descriptors_that_fit_nothing_are_reported(void **unused)
{
    (void)unused;
    static text_buffer text;
    static operands o;
    emulator_error error;
    product p = plain;
    p.layout = SWIZZLE_128;
    write_kernel(&text, &p);
    make_operands(&o, &p);
    uint64_t good = o.b_descriptor;
    const struct {
        uint64_t descriptor;
        emulator_fault fault;
    } rows[] = {
        {good, EMULATOR_OK},
        {good | 1ull << 46, EMULATOR_DESCRIPTOR}, /* that of another architecture */
        {good | 1ull << 14, EMULATOR_DESCRIPTOR}, /* an address not masked */
        {good | 1ull << 30, EMULATOR_DESCRIPTOR},
        {good | 1ull << 55, EMULATOR_DESCRIPTOR},
        {good + 8, EMULATOR_DESCRIPTOR},                     /* a line further inside the pattern */
        {good | 1ull << 49, EMULATOR_DESCRIPTOR},            /* a base offset that is not the tile's */
        {(good & ~0x3fffull) | 0x3ff8, EMULATOR_DESCRIPTOR}, /* outside */
        {(good & ~(3ull << 62)) | 1ull << 49, EMULATOR_DESCRIPTOR},
    };
    for (size_t x = 0; x < sizeof rows / sizeof rows[0]; x++) {
        o.b_descriptor = rows[x].descriptor;
        expect_fault(run(&text, &p, &o, NULL, &error), rows[x].fault, &error);
    }
}

/* ---- Definedness ---- */

static void an_undefined_integer_counts_only_where_its_partner_is_not_zero(void **unused)
{
    (void)unused;
    static text_buffer text;
    static operands o;
    emulator_error error;
    make_operands(&o, &plain);
    /* Register 0 of A: row lane / 4, bytes 4 (lane % 4) of k. In lane 5 that is row 1, k = 4..7. */
    const char *hole = ".reg .b32 %u; setp.eq.u32 %p1, %r0, 5; @%p1 bra HOLE; mov.b32 %u, %a0; HOLE: mov.b32 %a0, %u;";
    for (int zero = 0; zero < 2; zero++) {
        for (int n = 0; n < plain.n; n++)
            for (int x = 4; x < 8; x++) o.image[B_AT + k_major(PLAIN, n, x)] = zero ? 0 : 1;
        write_kernel(&text, &plain);
        change(&text, "late_operands", hole);
        expect_fault(run(&text, &plain, &o, NULL, &error), zero ? EMULATOR_OK : EMULATOR_UNDEFINED, &error);
    }
}

static void an_undefined_accumulator_does_not_count_without_scale_d(void **unused)
{
    (void)unused;
    const char *hole = ".reg .b32 %u; mov.b32 %d7, %u;";
    product p = plain;
    expect(&p, "late_operands", hole, EMULATOR_UNDEFINED);
    p.accumulates = false;
    expect(&p, "late_operands", hole, EMULATOR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integer_products_of_every_type_and_layout_are_exact),
        cmocka_unit_test(float_products_of_every_type_and_layout_follow_the_model),
        cmocka_unit_test(a_register_of_a_product_in_flight_must_not_be_touched),
        cmocka_unit_test(accumulators_in_flight_go_on_with_the_same_shape_only),
        cmocka_unit_test(products_need_a_fence_a_commit_and_a_wait),
        cmocka_unit_test(operands_in_shared_memory_need_the_proxy_fence_and_the_barrier),
        cmocka_unit_test(warps_of_a_warpgroup_issue_the_same),
        cmocka_unit_test(descriptors_that_fit_nothing_are_reported),
        cmocka_unit_test(an_undefined_integer_counts_only_where_its_partner_is_not_zero),
        cmocka_unit_test(an_undefined_accumulator_does_not_count_without_scale_d),
    };
    return cmocka_run_group_tests_name("emulator_wgmma", tests, start_random, NULL);
}
