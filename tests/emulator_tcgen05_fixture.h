/* For the tests of tcgen05: a kernel with one product whose operands go to shared and tensor memory, its operands, and
 * its result. */
#ifndef FOSCAR_TESTS_EMULATOR_TCGEN05_FIXTURE_H
#define FOSCAR_TESTS_EMULATOR_TCGEN05_FIXTURE_H

#include "emulator_tensor_fixture.h"

#include "tensor.h"

enum { IMAGE_BYTES = 32768, B_AT = 16384, COLUMN_A = 256, COLUMN_A_SCALE = 264, COLUMN_B_SCALE = 268, N_MAX = 64 };

typedef enum layout { PLAIN, SWIZZLE_32, SWIZZLE_64, SWIZZLE_128, LAYOUTS } layout;

typedef struct product {
    const char *kind;
    int m, n, k;
    mma_type a, b;
    mma_scale scale;
    int block;
    layout layout;
    bool a_in_tmem, accumulates, half, b_transposed, negate_b;
} product;

static bool is_integer(const product *p)
{
    return p->a == MMA_U8 || p->a == MMA_S8;
}
static bool is_packed(const product *p)
{
    return p->k == 64;
}

/* ---- The kernel: A, accumulators and scales go to tensor memory with tcgen05.st, one thread issues, all read. ---- */

static void write_kernel(text_buffer *t, const product *p)
{
    t->text[0] = '\0';
    add(t,
        ".version 8.8\n.target sm_100a\n.address_size 64\n.extern .shared .align 1024 .b8 tile[];\n"
        ".visible .entry kernel(.param .b64 p_image, .param .b64 p_a, .param .b64 p_d, .param .b64 p_out, .param .b64 "
        "p_scale,\n"
        ".param .b64 p_da, .param .b64 p_db, .param .b32 p_idesc)\n.reqntid 128, 1, 1\n{\n"
        ".shared .align 8 .b64 done;\n.shared .align 8 .b64 more;\n.shared .align 4 .b32 where;\n"
        ".reg .b32 %%d<%d>, %%a<8>, %%s<8>, %%r<16>, %%w<4>;\n.reg .b64 %%l<12>;\n.reg .pred %%p<6>;\n",
        p->n);
    add(t,
        "mov.u32 %%r0, %%tid.x;\nshr.u32 %%r1, %%r0, 5;\nand.b32 %%r10, %%r0, 31;\nld.param.b64 %%l0, "
        "[p_image];\nld.param.b64 %%l1, [p_a];\n"
        "ld.param.b64 %%l2, [p_d];\nld.param.b64 %%l3, [p_out];\nld.param.b64 %%l4, [p_da];\nld.param.b64 %%l5, "
        "[p_db];\n"
        "ld.param.b64 %%l7, [p_scale];\nld.param.b32 %%r2, [p_idesc];\nsetp.eq.u32 %%p0, %%r1, 0;\nsetp.eq.u32 %%p1, "
        "%%r0, 0;\n"
        "setp.ne.u32 %%p2, %d, 0;\n",
        p->accumulates);
    add(t, "mov.u32 %%r9, where;\n@!%%p0 bra NO_ALLOC;\ntcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 "
           "[%%r9], 512; // @alloc\n"
           " // @second_alloc\ntcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned; // @relinquish\n // "
           "@after_relinquish\nNO_ALLOC:\n"
           "@!%%p1 bra NO_INIT;\nmbarrier.init.shared::cta.b64 [done], 1;\nmbarrier.init.shared::cta.b64 [more], "
           "1;\nfence.mbarrier_init.release.cluster;\nNO_INIT:\n");
    add(t,
        "shl.b32 %%r3, %%r0, 4;\nmov.u32 %%r4, tile;\nadd.u32 %%r4, %%r4, %%r3;\ncvt.u64.u32 %%l6, %%r3;\nadd.u64 "
        "%%l0, %%l0, %%l6;\n"
        "mov.u32 %%r5, 0;\nCOPY:\nld.global.v4.b32 {%%w0, %%w1, %%w2, %%w3}, [%%l0];\nst.shared.v4.b32 [%%r4], {%%w0, "
        "%%w1, %%w2, %%w3};\n"
        "add.u64 %%l0, %%l0, 2048;\nadd.u32 %%r4, %%r4, 2048;\nadd.u32 %%r5, %%r5, 2048;\nsetp.lt.u32 %%p3, %%r5, "
        "%d;\n@%%p3 bra COPY;\n"
        "fence.proxy.async.shared::cta; // @proxy\nbar.sync 0;\nld.shared.b32 %%r6, [where];\nshl.b32 %%r7, %%r1, "
        "21;\nadd.u32 %%r7, %%r7, %%r6;"
        " // @quarter\n",
        IMAGE_BYTES);
    add(t, "shl.b32 %%r3, %%r0, 2;\ncvt.u64.u32 %%l6, %%r3;\nadd.u64 %%l1, %%l1, %%l6;\nadd.u64 %%l2, %%l2, "
           "%%l6;\nadd.u64 %%l3, %%l3, %%l6;\n"
           "shl.b32 %%r3, %%r10, 2;\ncvt.u64.u32 %%l6, %%r3;\nadd.u64 %%l7, %%l7, %%l6;\n");
    for (int r = 0; r < 8; r++) add(t, "ld.global.b32 %%a%d, [%%l1+%d];\n", r, r * 512);
    for (int r = 0; r < 6; r++) add(t, "ld.global.b32 %%s%d, [%%l7+%d];\n", r, r * 128);
    for (int r = 0; r < p->n; r++) add(t, "ld.global.b32 %%d%d, [%%l2+%d];\n", r, r * 512);
    add(t, "tcgen05.st.sync.aligned.32x32b.x8.b32 [%%r7+%d], ", COLUMN_A);
    add_list(t, "a", 0, 8);
    add(t, "; // @store_a\ntcgen05.st.sync.aligned.32x32b.x4.b32 [%%r7+%d], {%%s0, %%s1, %%s2, %%s3};\n",
        COLUMN_A_SCALE);
    add(t, "tcgen05.st.sync.aligned.32x32b.x2.b32 [%%r7+%d], {%%s4, %%s5};\n", COLUMN_B_SCALE);
    for (int r = 0; r < p->n; r += 8) {
        add(t, "tcgen05.st.sync.aligned.32x32b.x8.b32 [%%r7+%d], ", r);
        add_list(t, "d", r, 8);
        add(t, ";\n");
    }
    add(t,
        "tcgen05.wait::st.sync.aligned; // @wait_st\ntcgen05.fence::before_thread_sync; // @before_st\nbar.sync 0; // "
        "@barrier\n"
        "tcgen05.fence::after_thread_sync; // @after_st\n@!%%p1 bra ISSUED;\n // @issuer\nadd.u32 %%r8, %%r6, %d;\n",
        COLUMN_A);
    add(t, "add.u32 %%r11, %%r6, %d;\nadd.u32 %%r12, %%r6, %d;\n", COLUMN_A_SCALE, COLUMN_B_SCALE);
    add(t, "tcgen05.mma.cta_group::1.kind::%s [%%r6], %s, %%l5, %%r2, %s%%p2; // @mma\n", p->kind,
        p->a_in_tmem ? "[%r8]" : "%l4", p->scale != MMA_SCALE_NONE ? "[%r11], [%r12], " : "");
    add(t, "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [done]; // @commit\n // "
           "@after_commit\nISSUED:\n"
           "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %%p4, [done], 0; @!%%p4 bra WAIT; // "
           "@wait_mma\nbar.warp.sync 0xffffffff;\n"
           "tcgen05.fence::after_thread_sync; // @after_mma\n");
    for (int r = 0; r < p->n; r += 8) {
        add(t, "tcgen05.ld.sync.aligned.32x32b.x8.b32 ");
        add_list(t, "d", r, 8);
        add(t, ", [%%r7+%d];\n", r);
    }
    add(t, " // @loading\ntcgen05.wait::ld.sync.aligned; // @wait_ld\n");
    for (int r = 0; r < p->n; r++) add(t, "st.global.b32 [%%l3+%d], %%d%d;\n", r * 512, r);
    add(t,
        "tcgen05.fence::before_thread_sync; // @before_end\nbar.sync 0; // @barrier_end\n // @again\n@!%%p0 bra END;\n"
        "tcgen05.fence::after_thread_sync;\ntcgen05.dealloc.cta_group::1.sync.aligned.b32 %%r6, 512; // "
        "@dealloc\nEND:\nret;\n}\n");
}

/* ---- Its operands ---- */

typedef struct operands {
    uint32_t a[128 * 64], b[N_MAX * 64]; /* codes [rows][k] */
    uint8_t a_scale[128 * 4], b_scale[N_MAX * 4];
    uint8_t image[IMAGE_BYTES];
    uint32_t tmem_a[8 * 128], scales[6 * 32], d[N_MAX * 128], out[N_MAX * 128]; /* [column][lane] */
    uint64_t a_descriptor, b_descriptor;
    uint32_t instruction_descriptor;
} operands;

/* Writes element x of a row of 32 bytes: 4 and 6 bits are packed into the low end of 16 bytes for 16 elements, or
 * densely. */
static void put(uint8_t row[32], const product *p, mma_type type, int x, uint32_t code)
{
    int bits = type == MMA_F16 || type == MMA_BF16    ? 16
               : type == MMA_E2M1                     ? 4
               : type == MMA_E2M3 || type == MMA_E3M2 ? 6
                                                      : 8;
    int at = is_packed(p) ? x * 4 : bits >= 8 ? x * bits : x / 16 * 128 + x % 16 * bits;
    for (int b = 0; b < bits; b++) row[(at + b) / 8] |= (uint8_t)((code >> b & 1) << (at + b) % 8);
}

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

static uint64_t descriptor(layout l, uint32_t start)
{
    static const uint64_t mode[] = {0, 6, 4, 2}, stride[] = {256, 256, 512, 1024};
    return start >> 4 | (uint64_t)(l == PLAIN ? 128 >> 4 : 1) << 16 | stride[l] >> 4 << 32 | 1ull << 46 | mode[l] << 61;
}

static void place(operands *o, const product *p, mma_type type, const uint32_t *codes, int rows, size_t at)
{
    for (int r = 0; r < rows; r++) {
        uint8_t row[32] = {0};
        for (int x = 0; x < p->k; x++) put(row, p, type, x, codes[r * p->k + x]);
        for (int b = 0; b < 32; b++) o->image[at + k_major(p->layout, r, b)] = row[b];
    }
}

/* Lane of a row of D, and of A in tensor memory. */
static int lane_of(const product *p, int row)
{
    return p->m == 128 ? row : row / 16 * 32 + row % 16;
}

static uint32_t type_code(mma_type type)
{
    switch (type) {
    case MMA_BF16:
    case MMA_S8:
    case MMA_E5M2:
        return 1;
    case MMA_E2M3:
        return 3;
    case MMA_E3M2:
        return 4;
    case MMA_E2M1:
        return 5;
    default:
        return 0;
    }
}

static uint32_t instruction_descriptor(const product *p)
{
    uint32_t bits = (uint32_t)p->n >> 3 << 17 | (uint32_t)p->negate_b << 14 | (uint32_t)p->b_transposed << 16;
    bits |= is_packed(p) ? 1u << 7 | 1u << 10 : type_code(p->a) << 7 | type_code(p->b) << 10;
    if (p->scale != MMA_SCALE_NONE) return bits | (uint32_t)(p->scale == MMA_UE8M0) << 23 | (uint32_t)p->m >> 7 << 27;
    return bits | (is_integer(p) ? 2u : p->half ? 0u : 1u) << 4 | (uint32_t)p->m >> 4 << 24;
}

static void make_operands(operands *o, const product *p)
{
    for (int i = 0; i < IMAGE_BYTES; i++) o->image[i] = (uint8_t)random_bits();
    for (int i = 0; i < p->m * p->k; i++) o->a[i] = random_code(p->a);
    for (int i = 0; i < p->n * p->k; i++) o->b[i] = random_code(p->b);
    if (p->b_transposed) { /* N-major bytes: groups of 16 n, 8 k */
        for (int n = 0; n < p->n; n++)
            for (int x = 0; x < p->k; x++)
                o->image[B_AT + n / 16 * 512 + x / 8 * 128 + x % 8 * 16 + n % 16] = (uint8_t)o->b[n * p->k + x];
        o->b_descriptor = B_AT >> 4 | 128ull >> 4 << 16 | 512ull >> 4 << 32 | 1ull << 46;
    } else {
        place(o, p, p->b, o->b, p->n, B_AT);
        o->b_descriptor = descriptor(p->layout, B_AT);
    }
    place(o, p, p->a, o->a, p->m, 0);
    o->a_descriptor = descriptor(p->layout, 0);
    for (int i = 0; i < 8 * 128; i++) o->tmem_a[i] = random_bits();
    for (int r = 0; r < p->m; r++) {
        uint8_t row[32] = {0};
        for (int x = 0; x < p->k; x++) {
            if (p->a == MMA_E2M1 && !is_packed(p))
                row[x] = (uint8_t)(o->a[r * p->k + x] << 2);
            else
                put(row, p, p->a, x, o->a[r * p->k + x]);
        }
        for (int c = 0; c < 8; c++) memcpy(&o->tmem_a[c * 128 + lane_of(p, r)], row + 4 * c, 4);
    }
    int scales = p->scale == MMA_SCALE_NONE ? 4 : p->k / p->block;
    for (int i = 0; i < 6 * 32; i++) o->scales[i] = random_bits() & 0x7f7f7f7f;
    for (int r = 0; r < 128 + p->n; r++) /* words of rows r % 32, columns r / 32 */
        for (int s = 0; s < scales; s++) {
            uint8_t code = (uint8_t)(p->scale == MMA_UE8M0 ? 122 + random_bits() % 10 : 0x20 + random_bits() % 0x30);
            uint32_t *word = &o->scales[r / 32 * 32 + r % 32];
            *word = (*word & ~(0xffu << 8 * s)) | (uint32_t)code << 8 * s;
            if (r < 128)
                o->a_scale[r * scales + s] = code;
            else
                o->b_scale[(r - 128) * scales + s] = code;
        }
    for (int i = 0; i < N_MAX * 128; i++) {
        float value = (float)(int32_t)(random_bits() % 2001) / 16 - 62.5f;
        o->d[i] = random_bits();
        if (p->half)
            o->d[i] = mma_half_bits(value);
        else if (!is_integer(p))
            memcpy(&o->d[i], &value, 4);
    }
    o->instruction_descriptor = instruction_descriptor(p);
}

static void check_product(operands *o, const product *p)
{
    static float sums[128 * N_MAX];
    static int32_t integers[128 * N_MAX];
    static uint8_t a[128 * 32], b[N_MAX * 32];
    for (int r = 0; r < p->m; r++)
        for (int n = 0; n < p->n; n++) {
            uint32_t word = p->accumulates ? o->d[n * 128 + lane_of(p, r)] : 0;
            integers[r * p->n + n] = (int32_t)word;
            if (p->half)
                sums[r * p->n + n] = mma_widen(MMA_F16, (uint16_t)word);
            else
                memcpy(&sums[r * p->n + n], &word, 4);
        }
    if (is_integer(p)) {
        for (int i = 0; i < p->m * 32; i++) a[i] = (uint8_t)o->a[i];
        for (int i = 0; i < p->n * 32; i++) b[i] = (uint8_t)o->b[i];
        mma_integer(p->m, p->n, p->k, p->a, a, p->b, b, integers, false);
    } else {
        static uint32_t codes[N_MAX * 64];
        uint16_t sign = p->b == MMA_F16 || p->b == MMA_BF16    ? 0x8000
                        : p->b == MMA_E2M1                     ? 8
                        : p->b == MMA_E2M3 || p->b == MMA_E3M2 ? 0x20
                                                               : 0x80;
        for (int i = 0; i < p->n * p->k; i++) codes[i] = p->negate_b ? o->b[i] ^ sign : o->b[i];
        mma_float_form how = {MMA_BLACKWELL, p->a, p->b, p->half, p->scale, p->block};
        mma_float(&how, p->m, p->n, p->k, o->a, codes, o->a_scale, o->b_scale, sums);
    }
    for (int r = 0; r < p->m; r++)
        for (int n = 0; n < p->n; n++) {
            uint32_t got = o->out[n * 128 + lane_of(p, r)], wanted = (uint32_t)integers[r * p->n + n];
            if (p->half)
                wanted = mma_half_bits(sums[r * p->n + n]);
            else if (!is_integer(p))
                memcpy(&wanted, &sums[r * p->n + n], 4);
            if (got != wanted)
                fail_msg("%s m %d n %d layout %d: row %d, column %d: 0x%x instead of 0x%x", p->kind, p->m, p->n,
                         p->layout, r, n, got, wanted);
        }
}

/* ---- Runs ---- */

static emulator_fault run(const text_buffer *t, operands *o, const run_options *given, emulator_error *error)
{
    emulator_memory *memory = emulator_memory_create();
    assert_non_null(memory);
    uint64_t image = device_copy(memory, o->image, IMAGE_BYTES), a = device_copy(memory, o->tmem_a, sizeof o->tmem_a);
    uint64_t d = device_copy(memory, o->d, sizeof o->d), out = device_copy(memory, o->out, sizeof o->out);
    uint64_t scale = device_copy(memory, o->scales, sizeof o->scales);
    void *parameters[] = {&image, &a, &d, &out, &scale, &o->a_descriptor, &o->b_descriptor, &o->instruction_descriptor};
    run_options options = *given;
    options.threads = 128;
    options.shared_bytes = IMAGE_BYTES;
    emulator_fault fault = run_text(t->text, memory, parameters, &options, error);
    memcpy(o->out, (const void *)(uintptr_t)out, sizeof o->out);
    emulator_memory_destroy(memory);
    return fault;
}

/* The image lies behind the static variables: descriptors get the address of tile. */
static void move_descriptors(operands *o)
{
    o->a_descriptor += 1024 >> 4;
    o->b_descriptor += 1024 >> 4;
}

#endif
