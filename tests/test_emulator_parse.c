/* The interpreter's parser: emitted kernels and hand-written texts decode to what they say. */
#include "emulator_parse_fixture.h"

#include "generate.h"
#include "plan.h"

static emulator_module *hopper(const char *body)
{
    emulator_module *m = parse_body("sm_90a", "8.4", body);
    if (!m) fail_msg("line %d: %s: %s", error.line, error.message, body);
    return m;
}

static emulator_module *blackwell(const char *body)
{
    emulator_module *m = parse_body("sm_100a", "9.0", body);
    if (!m) fail_msg("line %d: %s: %s", error.line, error.message, body);
    return m;
}

static const instruction *first(const emulator_module *m)
{
    return &m->entries[0].instructions[0];
}

/* ---- Emitted kernels ---- */

/* One line of an emitted kernel: the mnemonic after blanks and guard, or NULL if the line is no instruction. */
static const char *line_mnemonic(const char *line, size_t *length)
{
    if (strncmp(line, "    ", 4) != 0) return NULL;
    line += 4;
    if (*line == '.' || *line == '/') return NULL;
    if (*line == '@') line = strchr(line, ' ') + 1;
    *length = strcspn(line, " ;\n");
    return line;
}

static void compare_with_lines(const emulator_module *m, const char *text)
{
    const char *region = "";
    size_t region_length = 0, length;
    int line = 1, count = 0;
    bool body = false;
    for (const char *at = text; *at; at = strchr(at, '\n') + 1, line++) {
        if (*at == '{') body = true;
        if (body && strncmp(at, "    // ", 7) == 0) {
            region = at + 7;
            region_length = (size_t)(strchr(at, '\n') - region);
        }
        const char *mnemonic = body ? line_mnemonic(at, &length) : NULL;
        if (!mnemonic) continue;
        emulator_instruction_info info;
        emulator_module_instruction_info(m, 0, count++, &info);
        assert_int_equal(info.line, line);
        assert_int_equal(strlen(info.opcode), length);
        assert_memory_equal(info.opcode, mnemonic, length);
        assert_int_equal(strlen(info.region), region_length);
        assert_memory_equal(info.region, region, region_length);
    }
    assert_int_equal(m->entries[0].count, count + 1); /* and the implied ret */
}

static void every_line_of_emitted_kernels_is_one_instruction_of_its_region(void **state)
{
    (void)state;
    uint64_t random = fresh_seed();
    int size = registry_size();
    for (int n = 0; n < 24; n++) {
        config cfg;
        kernel_text text;
        gen_error err = {""};
        registry_config(n == 0 ? 0 : n == 1 ? size - 1 : (int)(draw(&random) % (uint32_t)size), &cfg);
        if (!generate_decode(&cfg, &text, &err)) fail_msg("%s", err.message);
        emulator_module *m = parse(text.ptx, text.length);
        if (!m) fail_msg("line %d: %s", error.line, error.message);
        assert_int_equal(emulator_module_entries(m), 1);
        assert_string_equal(emulator_module_entry_name(m, 0), text.entry);
        assert_int_equal(emulator_module_find_entry(m, text.entry), 0);
        assert_int_equal(emulator_module_find_entry(m, "nothing"), -1);
        emulator_entry_info info;
        emulator_module_entry_info(m, 0, &info);
        assert_int_equal(info.parameters, DECODE_PARAM_COUNT);
        assert_int_equal(emulator_module_parameter_bytes(m, 0, 0), 8);
        assert_int_equal(emulator_module_parameter_bytes(m, 0, DECODE_PARAM_COUNT - 1), 4);
        assert_int_equal(info.required_threads[0], text.threads);
        assert_int_equal(info.required_threads[1], 1);
        assert_true(info.max_registers >= 24);
        assert_int_equal(info.static_shared_bytes, 0);
        compare_with_lines(m, text.ptx);
        emulator_module_destroy(m);
        kernel_text_finish(&text);
    }
}

static void a_kernel_of_3000_instructions_parses_in_10_ms(void **state)
{
    (void)state;
    config cfg;
    kernel_text text;
    gen_error err = {""};
    registry_config(registry_size() - 1, &cfg);
    if (!generate_decode(&cfg, &text, &err)) fail_msg("%s", err.message);
    double best = 1e9;
    int count = 0;
    for (int n = 0; n < 10; n++) {
        struct timespec a, b;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
        emulator_module *m = emulator_module_parse(text.ptx, text.length, "speed", &error);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
        assert_non_null(m);
        count = m->entries[0].count;
        emulator_module_destroy(m);
        double ms = (double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) * 1e-6;
        if (ms < best) best = ms;
    }
    printf("%d instructions: %.2f ms, best of 10\n", count, best);
    if (!SLOWED) assert_true(best / count * 3000 < 10);
    kernel_text_finish(&text);
}

/* ---- Forms ---- */

static void every_word_of_every_pattern_has_a_meaning(void **state)
{
    (void)state;
    const char *word = forms_unlisted_word();
    if (word) fail_msg("%s", word);
}

static void texts_in_the_language_are_accepted(void **state)
{
    (void)state;
    static const char *const on_hopper[] = {
        "add.u16 h0, h1, 3; sub.s64 l0, l1, -1; mul.hi.u64 l0, l1, l2; mul.wide.s16 r0, h0, h1; mad.hi.s32 r0, r1, r2, "
        "r3;",
        "and.b16 h0, h1, 255; or.pred p, q, !pp0; not.pred p, q; xor.b64 l0, l1, l2; lop3.b32 r0, r1, r2, r3, 0xEA;",
        "shl.b64 l0, l1, r0; shr.s16 h0, h1, 3; shf.l.wrap.b32 r0, r1, r2, 5; shf.r.clamp.b32 r0, r1, r2, r3;",
        "bfe.u32 r0, r1, 4, 8; bfi.b32 r0, r1, r2, 0, 4; brev.b32 r0, r1; bfind.shiftamt.u32 r0, r1; popc.b64 r0, l0; "
        "clz.b32 r0, r1;",
        "mov.u32 r0, %laneid; mov.u64 l0, %globaltimer; mov.pred p, -1; mov.b32 r0, f0; mov.f32 f0, 0fFF800000; "
        "mov.u32 r0, WARP_SZ;",
        "mov.b32 r0, {h0, h1}; mov.b64 {h0, h1, h2, h3}, l0; mov.b64 l0, {h0, h1, h2, h3};",
        "setp.eq.u64 p, l0, 0; setp.ne.b16 p|q, h0, h1; setp.hi.u32 p, u0, u1; setp.lt.or.f32 p|q, f0, f1, !pp0; "
        "setp.nan.ftz.f32 p, f0, f0;",
        "cvta.to.global.u64 l0, l1; cvta.shared.u64 l0, l1; selp.f32 f0, f1, 0f00000000, p;",
        "add.f32 f0, f1, 1.5; mul.rz.ftz.sat.f32 f0, f1, f2; fma.rn.f16x2 r0, r1, r2, r3; div.full.f32 f0, f1, f2; "
        "min.NaN.f16 h0, h1, h2;",
        "ex2.approx.f32 f0, f1; lg2.approx.ftz.f32 f0, f1; rcp.rn.f32 f0, f1; sqrt.approx.f32 f0, f1;",
        "cvt.u64.u32 l0, r0; cvt.s8.s32 r0, r1; cvt.rni.s32.f32 r0, f0; cvt.rn.f32.u8 f0, h0; "
        "cvt.rn.satfinite.e4m3x2.f32 h0, f0, f1;",
        "cvt.rn.f16x2.e5m2x2 r0, h0; cvt.rna.tf32.f32 r0, f0; cvt.f32.bf16 f0, h0; cvt.sat.u8.s32 h0, r0; "
        "cvt.rn.relu.bf16x2.f32 r0, f0, f1;",
        "ld.global.cg.v4.f32 {f0, f1, f2, f3}, [l0+-16]; ld.u8 h0, [l0]; ld.param.u64 l0, [x]; ld.param.b32 r0, [y]; "
        "ld.global.u8 l0, [l1];",
        "ld.relaxed.gpu.global.u32 r0, [l0]; ld.acquire.sys.b32 r0, [l0]; ld.volatile.global.v2.b64 {l0, l1}, [l2];",
        "ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {r0, _, r2, r3}, [l0]; ld.global.L2::cache_hint.b32 r0, [l0], "
        "l1;",
        "st.global.wt.v2.f32 [l0], {f0, 0f3F800000}; st.b16 [l0], h0; st.shared.b8 [r0], r1; st.global.b32 [l0], f0; "
        "st.release.gpu.b32 [l0], 1;",
        "atom.global.add.u32 r0, [l0], 1; atom.shared.cas.b64 l0, [r0], l1, l2; atom.acq_rel.gpu.max.s32 _, [l0], -1; "
        "red.global.add.f32 [l0], f0;",
        "shfl.sync.idx.b32 f0|p, f1, r0, 31, -1; vote.sync.any.pred p, q, -1; vote.sync.ballot.b32 r0, !p, r1; "
        "redux.sync.xor.b32 r0, r1, -1;",
        "elect.sync r0|p, -1; match.any.sync.b32 r0, r1, -1; match.all.sync.b64 r0|p, l0, -1; activemask.b32 r0; "
        "nanosleep.u32 100;",
        "bar.sync 0; bar.sync r0, 128; barrier.sync 1; bar.arrive 1, 64; bar.red.and.pred p, 0, 64, !q; "
        "barrier.cta.red.popc.aligned.u32 r0, 1, q;",
        "membar.sys; fence.acq_rel.cluster; fence.sc.gpu; fence.proxy.async; fence.proxy.async.shared::cta; "
        "fence.mbarrier_init.release.cluster;",
        "mbarrier.arrive.shared.b64 l0, [r0]; mbarrier.arrive.release.cta.shared::cta.b64 _, [r0+8], 2; "
        "mbarrier.inval.shared.b64 [r0];",
        "mbarrier.arrive.shared::cluster.b64 _, [r0]; mbarrier.test_wait.parity.acquire.cta.shared.b64 p, [r0], 1; "
        "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [r0], 8;",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [r0], [l0], r1, [r2], l1;",
        "cp.async.bulk.global.shared::cta.bulk_group [l0], [r0], 16; cp.async.bulk.commit_group; "
        "cp.async.bulk.wait_group.read 0;",
        "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {r0, r1, r2, r3}, l0, l1, p; "
        "wgmma.mma_async.sync.aligned.m64n8k32.f16.e4m3.e5m2 {r0, r1}, l0, l1, p, 1, 1;",
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {f0, f1, f2, f3, f4, f5, f6, f7}, {r0, r1, r2, r3}, l0, "
        "p, 1, -1, 1;",
        "trap; exit; @p ret; ; bra.uni end; end:",
    };
    static const char *const on_blackwell[] = {
        "ld.global.v8.b32 {r0,r1,r2,r3,r4,r5,r6,r7}, [l0]; ld.global.v4.b64 {l0,l1,l2,l3}, [l4]; "
        "redux.sync.max.NaN.f32 f0, f1, -1;",
        "tcgen05.ld.sync.aligned.32x32b.x1.b32 r0, [r1]; tcgen05.ld.sync.aligned.16x128b.x2.pack::16b.b32 "
        "{r0,r1,r2,r3}, [r4];",
        "tcgen05.st.sync.aligned.16x256b.x1.unpack::16b.b32 [r4], {r0,r1,r2,r3}; "
        "tcgen05.ld.sync.aligned.16x32bx2.x2.b32 {r0, r1}, [r2], 16;",
        "tcgen05.st.sync.aligned.16x32bx2.x1.b32 [r2], 16, {r0}; "
        "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;",
        "tcgen05.mma.cta_group::1.kind::f16 [r0], l0, l1, r1, p; "
        "tcgen05.mma.cta_group::2.kind::tf32.collector::a::lastuse [r0], [r2], l1, r1, p, 3;",
        "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale [r0], [r2], l1, r1, [r3], [r4], p; "
        "tcgen05.mma.cta_group::1.kind::i8 [r0], l0, l1, r1, p;",
        "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16 [r0], l0, l1, r1, [r3], [r4], p;",
        "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X [r0], l0, l1, r1, [r3], [r4+4], p;",
        "tcgen05.cp.cta_group::1.128x256b [r0], l0; tcgen05.cp.cta_group::1.64x128b.warpx2::02_13.b8x16.b4x16_p64 "
        "[r0], l0;",
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [r0]; "
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [r0], h0;",
        "tcgen05.fence::before_thread_sync; tcgen05.wait::st.sync.aligned; setmaxnreg.inc.sync.aligned.u32 208;",
    };
    for (int i = 0; i < COUNT(on_hopper); i++) emulator_module_destroy(hopper(on_hopper[i]));
    for (int i = 0; i < COUNT(on_blackwell); i++) emulator_module_destroy(blackwell(on_blackwell[i]));
}

static void modifiers_go_where_the_table_says(void **state)
{
    (void)state;
    emulator_module *m =
        hopper("wgmma.mma_async.sync.aligned.m64n8k32.s32.u8.s8 {r0, r1, r2, r3}, {r4, r5, r6, r7}, l0, p;");
    const modifiers *mods = &first(m)->mods;
    assert_int_equal(mods->m, 64);
    assert_int_equal(mods->n, 8);
    assert_int_equal(mods->k, 32);
    assert_int_equal(mods->type[0], TYPE_S32);
    assert_int_equal(mods->type[1], TYPE_U8);
    assert_int_equal(mods->type[2], TYPE_S8);
    emulator_module_destroy(m);

    m = hopper("setp.geu.xor.ftz.f32 p|q, f0, f1, !pp0;");
    mods = &first(m)->mods;
    assert_int_equal(mods->compare, COMPARE_GEU);
    assert_int_equal(mods->boolean, 3);
    assert_true(mods->ftz);
    emulator_module_destroy(m);

    m = hopper("cp.async.bulk.global.shared::cta.bulk_group [l0], [r0], 16;");
    assert_int_equal(first(m)->mods.space, SPACE_GLOBAL);
    assert_int_equal(first(m)->mods.space2, SPACE_SHARED);
    assert_int_equal(first(m)->mods.mode, MODE_BULK_COPY);
    emulator_module_destroy(m);

    m = hopper("atom.release.sys.shared.inc.u32 r0, [r1], 7;");
    mods = &first(m)->mods;
    assert_int_equal(mods->mode, MODE_INC);
    assert_int_equal(mods->semantics, SEMANTICS_RELEASE);
    assert_int_equal(mods->scope, SCOPE_SYS);
    assert_int_equal(mods->space, SPACE_SHARED);
    emulator_module_destroy(m);

    m = hopper("ld.v2.u16 {h0, h1}, [l0]; cvt.rzi.ftz.sat.s16.f32 h0, f0; setmaxnreg.dec.sync.aligned.u32 40; "
               "griddepcontrol.launch_dependents;");
    const instruction *i = first(m);
    assert_int_equal(i[0].mods.space, SPACE_GENERIC);
    assert_int_equal(i[0].mods.vector, 2);
    assert_int_equal(i[1].mods.rounding, ROUND_RZI);
    assert_true(i[1].mods.saturate && i[1].mods.ftz && !i[1].mods.finite);
    assert_int_equal(i[1].mods.vector, 1);
    assert_int_equal(i[2].mods.mode, MODE_SETMAXNREG_DEC);
    assert_int_equal(i[3].mods.mode, MODE_GRID_LAUNCH_DEPENDENTS);
    emulator_module_destroy(m);

    m = blackwell(
        "tcgen05.ld.sync.aligned.16x32bx2.x2.b32 {r0, r1}, [r2], 16; "
        "tcgen05.mma.cta_group::2.kind::mxf4.block_scale.scale_vec::2X [r0], l0, l1, "
        "r1, [r2], [r3], p; tcgen05.cp.cta_group::1.32x128b.warpx4 [r0], l0; tcgen05.fence::after_thread_sync;");
    i = first(m);
    assert_int_equal(i[0].mods.m, 16);
    assert_int_equal(i[0].mods.n, 32);
    assert_int_equal(i[0].mods.k, 2);
    assert_int_equal(i[0].mods.extra, EXTRA_X2);
    assert_int_equal(i[1].mods.mode, KIND_MXF4);
    assert_int_equal(i[1].mods.m, 2);
    assert_int_equal(i[1].mods.k, 2);
    assert_int_equal(i[1].mods.extra, EXTRA_BLOCK_SCALE);
    assert_int_equal(i[2].mods.m, 32);
    assert_int_equal(i[2].mods.n, 128);
    assert_int_equal(i[2].mods.mode, MODE_CP_WARPX4);
    assert_int_equal(i[3].mods.mode, MODE_TCGEN05_AFTER);
    emulator_module_destroy(m);
}

static void operands_keep_their_places(void **state)
{
    (void)state;
    emulator_module *m = hopper("shfl.sync.up.b32 r0, r1, 1, 0, -1; shfl.sync.up.b32 r0|p, r1, 1, 0, -1; "
                                "bar.red.popc.u32 r0, 0, q; setp.eq.s32 p, r0, 1;"
                                "elect.sync _|q, -1; bar.sync 3; @!q mov.pred p, !q;");
    const instruction *i = first(m);
    assert_int_equal(i[0].operands, 6);
    assert_int_equal(i[0].operand[1].kind, OPERAND_NONE);
    assert_int_equal(i[0].operand[5].bits, 0xffffffff);
    assert_int_equal(i[1].operand[1].kind, OPERAND_REGISTER);
    assert_int_equal(i[2].operands, 4);
    assert_int_equal(i[2].operand[2].kind, OPERAND_NONE);
    assert_int_equal(i[2].operand[3].reg.type, TYPE_PRED);
    assert_int_equal(i[3].operand[1].kind, OPERAND_NONE);
    assert_int_equal(i[3].operand[3].bits, 1);
    assert_int_equal(i[4].operand[0].kind, OPERAND_SINK);
    assert_int_equal(i[5].operands, 1);
    assert_int_equal(i[6].guard, 1);
    assert_true(i[6].guard_negated && i[6].operand[1].negated);
    emulator_module_destroy(m);
}

static void constants_become_bits_of_their_type(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bits;
    } rows[] = {
        {"mov.b32 r0, 0x1F;", 31},
        {"mov.b32 r0, 017;", 15},
        {"mov.b32 r0, 0b101;", 5},
        {"mov.b32 r0, 4294967295U;", 0xffffffff},
        {"mov.u32 r0, -1;", 0xffffffff},
        {"mov.s32 r0, -1;", UINT64_MAX},
        {"mov.s32 r0, 0xffffffff;", UINT64_MAX},
        {"mov.b64 l0, -1;", UINT64_MAX},
        {"mov.u16 h0, -1;", 0xffff},
        {"mov.s16 h0, -1;", 0xffff},
        {"mov.b32 r0, WARP_SZ;", 32},
        {"mov.f32 f0, 0f3F800000;", 0x3f800000},
        {"mov.f32 f0, -0f3F800000;", 0xbf800000},
        {"mov.f32 f0, 1.5;", 0x3fc00000},
        {"mov.f32 f0, -2.5e-1;", 0xbe800000},
        {"mov.f64 e0, 0d3FF0000000000000;", 0x3ff0000000000000},
        {"mov.b32 r0, 0f3F800000;", 0x3f800000},
        {"mov.pred p, 7;", 0},
    };
    for (int n = 0; n < COUNT(rows); n++) {
        emulator_module *m = hopper(rows[n].text);
        uint64_t expected = strstr(rows[n].text, "pred") ? 1 : rows[n].bits;
        assert_int_equal(first(m)->operand[1].kind, OPERAND_IMMEDIATE);
        if (first(m)->operand[1].bits != expected) fail_msg("%s", rows[n].text);
        emulator_module_destroy(m);
    }
    emulator_module *m = hopper("st.shared.v4.b32 [r0], {r1, -1, 7, r2}; st.global.v2.f32 [l0], {f0, 1.0};");
    const operand *elements = m->entries[0].elements;
    assert_int_equal(elements[1].bits, 0xffffffff);
    assert_int_equal(elements[1].target, 0);
    assert_int_equal(elements[2].bits, 7);
    assert_int_equal(elements[5].bits, 0x3f800000);
    emulator_module_destroy(m);
}

/* ---- Names and variables ---- */

static void inner_scopes_hide_names_and_end(void **state)
{
    (void)state;
    emulator_module *m = hopper("mov.b32 r1, 0; { .reg .b32 r<2>, t; mov.b32 r1, 1; mov.b32 r2, 2; mov.b32 t, 3; L: "
                                "bra L; } { .reg .b32 t; L: bra L; }"
                                " mov.b32 r1, 4; bra L; L: mov.b32 r0, 5;");
    const instruction *i = first(m);
    int outer = i[0].operand[0].reg.slot;
    assert_int_not_equal(i[1].operand[0].reg.slot, outer);
    assert_int_equal(i[2].operand[0].reg.slot, outer + 1); /* r2: the inner range has no such number */
    assert_int_equal(i[4].operand[0].target, 4);
    assert_int_equal(i[5].operand[0].target, 5);
    assert_int_equal(i[6].operand[0].reg.slot, outer);
    assert_int_equal(i[7].operand[0].target, 8);
    emulator_module_destroy(m);
    assert_null(parse_body("sm_90a", "8.4", "{ .reg .b32 t; } mov.b32 t, 0;"));
    assert_int_equal(error.fault, EMULATOR_PARSE);
    assert_null(parse_body("sm_90a", "8.4", "bra L; { L: ret; }"));
    assert_int_equal(error.fault, EMULATOR_PARSE);
}

static void registers_of_64_bits_are_two_slots(void **state)
{
    (void)state;
    static const char text[] = ".version 8.4\n.target sm_90a\n.entry k() { .reg .b64 a<3>; .reg .b16 h; .reg .pred "
                               "p<5>; .reg .f64 d; mov.b64 a2, 0; mov.b16 h, 0;"
                               "mov.f64 d, 0d0000000000000000; mov.pred p4, 0; }";
    emulator_module *m = parse(text, sizeof text - 1);
    assert_non_null(m);
    assert_int_equal(first(m)[0].operand[0].reg.slot, 4);
    assert_int_equal(first(m)[1].operand[0].reg.slot, 6);
    assert_int_equal(first(m)[2].operand[0].reg.slot, 7);
    assert_int_equal(first(m)[3].operand[0].reg.slot, 4);
    assert_int_equal(m->entries[0].slots, 9);
    assert_int_equal(m->entries[0].predicates, 5);
    emulator_module_destroy(m);
}

static void variables_and_parameters_are_laid_out_by_alignment(void **state)
{
    (void)state;
    static const char text[] =
        ".version 8.4\n.target sm_90a\n.extern .shared .align 128 .b8 dyn[];\n.shared .b8 common[3];\n.global .align 8 "
        ".b16 table[3] = {1, -2, 0x1234};\n"
        ".const .f32 half[2] = {{0f3F000000}, {-0f3F000000}};\n"
        ".entry a(.param .b8 small, .param .u64 .ptr .global .align 4 pointer, .param .align 16 .b8 blob[20], .param "
        ".b32 last)\n.maxntid 64, 2, 1 .maxnreg 96\n{\n"
        ".reg .b32 r<4>; .shared .b64 bar[2], more; .local .align 16 .b8 depot[20]; .local .b32 word;\n"
        "mov.u32 r0, dyn; mov.u32 r1, bar; mov.u32 r2, more; mov.u32 r3, common; ld.param.b32 r0, [last]; st.local.b32 "
        "[word+4], r0; }\n"
        ".visible .entry b() .reqntid 32 { .reg .b32 r; mov.u32 r, dyn; }\n.entry c() { }";
    emulator_module *m = parse(text, sizeof text - 1);
    if (!m) fail_msg("line %d: %s", error.line, error.message);
    const instruction *i = first(m);
    assert_int_equal(m->symbols[i[0].operand[1].symbol].offset, 128); /* after 3 + padding + 24 bytes */
    assert_int_equal(m->symbols[i[1].operand[1].symbol].offset, 8);
    assert_int_equal(m->symbols[i[2].operand[1].symbol].offset, 24);
    assert_int_equal(m->symbols[i[3].operand[1].symbol].offset, 0);
    assert_int_equal(m->symbols[i[4].operand[1].symbol].offset, 36);
    assert_int_equal(m->symbols[i[5].operand[0].symbol].offset, 20);
    assert_int_equal(i[5].operand[0].offset, 4);
    assert_int_equal(m->entries[0].parameters, 4);
    assert_int_equal(m->entries[0].parameter_bytes, 40);
    assert_int_equal(m->entries[0].static_shared_bytes, 128);
    assert_int_equal(m->entries[0].local_bytes, 24);
    assert_int_equal(emulator_module_parameter_bytes(m, 0, 2), 20);
    emulator_entry_info info;
    emulator_module_entry_info(m, 0, &info);
    assert_int_equal(info.max_threads, 128);
    assert_int_equal(info.max_registers, 96);
    emulator_module_entry_info(m, 1, &info);
    assert_int_equal(info.required_threads[0], 32);
    assert_int_equal(info.required_threads[2], 1);
    assert_int_equal(info.static_shared_bytes, 128);
    emulator_module_entry_info(m, 2, &info);
    assert_int_equal(info.static_shared_bytes, 3);
    assert_int_equal(info.instructions, 1);
    for (int s = 0; s < m->symbol_count; s++) {
        const symbol *v = &m->symbols[s];
        if (strcmp(v->name, "table") == 0) {
            static const uint8_t bytes[] = {1, 0, 0xfe, 0xff, 0x34, 0x12};
            assert_int_equal(v->bytes, 6);
            assert_memory_equal(v->initial, bytes, 6);
        }
        if (strcmp(v->name, "half") == 0) {
            static const uint8_t bytes[] = {0, 0, 0, 0x3f, 0, 0, 0, 0xbf};
            assert_int_equal(v->bytes, 8);
            assert_int_equal(v->offset, 8);
            assert_memory_equal(v->initial, bytes, 8);
        }
    }
    emulator_module_destroy(m);
}

static void only_lone_paths_in_a_body_name_regions(void **state)
{
    (void)state;
    static const char text[] = "// before/it\n.version 8.4\n.target sm_90a\n// k\n.entry k() {\n.reg .b32 r;\nmov.b32 "
                               "r, 0;\n// has spaces\nmov.b32 r, 1; // trailing\n"
                               "  // a/b \nmov.b32 r, // c\n2; // x\n// a//b\nmov.b32 r, 3;\n/* d */ // e\nmov.b32 r, "
                               "4;\n// .globl\nmov.b32 r, 5;\n// f_1\nmov.b32 r, 6; }\n";
    static const char *const expected[] = {"", "", "a/b", "a/b", "a/b", "a/b", "f_1"};
    emulator_module *m = parse(text, sizeof text - 1);
    assert_non_null(m);
    for (int i = 0; i < COUNT(expected); i++) {
        emulator_instruction_info info;
        emulator_module_instruction_info(m, 0, i, &info);
        assert_string_equal(info.region, expected[i]);
    }
    emulator_module_destroy(m);
}

static void information_for_debuggers_is_skipped(void **state)
{
    (void)state;
    static const char text[] = "/* a\nb */ .version 8.4\n.target sm_90a, debug\n.file 1 \"a b.cu\"\n.weak .entry k() "
                               ".pragma \"nounroll\"; {\n.loc 1 2 3, function_name L, inlined_at 1\n"
                               "ret;\n}\n.section .debug_str { A: .b8 1,2 { } }\n";
    emulator_module *m = parse(text, sizeof text - 1);
    if (!m) fail_msg("line %d: %s", error.line, error.message);
    assert_int_equal(m->entries[0].count, 2);
    assert_int_equal(first(m)->line, 7);
    emulator_module_destroy(m);
}

/* ---- Branches ---- */

static void branches_meet_at_their_immediate_postdominator(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        int branch, meets;
    } rows[] = {
        {"@p bra A; mov.b32 r0, 0; bra B; A: mov.b32 r0, 1; B: ret;", 0, 4},    /* if and else */
        {"A: mov.b32 r0, 0; @p bra A; mov.b32 r0, 1;", 1, 2},                   /* loop */
        {"@p bra A; mov.b32 r0, 0; A: ret;", 0, 2},                             /* if */
        {"@p bra A; @q ret; mov.b32 r0, 0; A: mov.b32 r0, 1;", 0, -1},          /* only at the exit */
        {"@p bra A; @q bra B; mov.b32 r0, 0; B: mov.b32 r0, 1; A: ret;", 1, 3}, /* nested */
        {"@p bra A; @q bra B; mov.b32 r0, 0; B: mov.b32 r0, 1; A: ret;", 0, 4}, /* around it */
        {"A: @p bra C; @q bra B; bra A; B: mov.b32 r0, 0; C: ret;", 1, 4},      /* out of a loop, in two ways */
        {"A: @p bra C; @q bra B; bra A; B: mov.b32 r0, 0; C: ret;", 0, 4},
        {"@p bra A; bra B; A: bra A; B: ret;", 0, 1},          /* one side never ends: the other goes on */
        {"@p bra A; A: ret;", 0, 1},                           /* to the next */
        {"@p bra B; A: @q bra C; B: @p bra A; C: ret;", 1, 3}, /* a loop with two entries */
    };
    for (int n = 0; n < COUNT(rows); n++) {
        emulator_module *m = hopper(rows[n].body);
        int meets = first(m)[rows[n].branch].reconverge;
        if (meets != rows[n].meets) fail_msg("%s: branch %d meets at %d", rows[n].body, rows[n].branch, meets);
        emulator_module_destroy(m);
    }
}

/* The definition, checked by search: x postdominates b if b cannot reach the exit without x. */
static bool reaches_exit_without(const entry *e, int from, int without, bool *seen)
{
    memset(seen, 0, (size_t)e->count);
    int stack[512], top = 0;
    stack[top++] = from;
    seen[from] = true;
    while (top > 0) {
        int at = stack[--top];
        const instruction *i = &e->instructions[at];
        int next[2] = {at + 1, -1};
        if (i->form->flags & FORM_EXIT) return true;
        if (i->form->flags & FORM_BRANCH) {
            next[1] = i->operand[0].target;
            if (i->guard < 0) next[0] = -1;
        }
        for (int k = 0; k < 2; k++)
            if (next[k] >= 0 && next[k] != without && !seen[next[k]]) {
                seen[next[k]] = true;
                stack[top++] = next[k];
            }
    }
    return false;
}

static void reconvergence_of_random_programs_fits_the_definition(void **state)
{
    (void)state;
    uint64_t random = fresh_seed();
    for (int n = 0; n < 300; n++) {
        char body[4096] = "";
        int size = 4 + (int)(draw(&random) % 30), used = 0;
        for (int i = 0; i < size; i++) {
            bool branch = draw(&random) % 2;
            used += branch ? snprintf(body + used, sizeof body - (size_t)used, "L%d: %sbra L%d; ", i,
                                      draw(&random) % 4 ? "@p " : "", (int)(draw(&random) % (uint32_t)size))
                           : snprintf(body + used, sizeof body - (size_t)used, "L%d: mov.b32 r0, 0; ", i);
        }
        emulator_module *m = hopper(body);
        const entry *e = &m->entries[0];
        bool seen[512];
        for (int b = 0; b < e->count; b++) {
            const instruction *i = &e->instructions[b];
            if (!(i->form->flags & FORM_BRANCH) || i->guard < 0) continue;
            int meets = i->reconverge, nearest = -1;
            if (!reaches_exit_without(e, b, -1, seen)) {
                assert_int_equal(meets, -1);
                continue;
            }
            bool after[64];
            for (int x = 0; x < e->count; x++) after[x] = x != b && !reaches_exit_without(e, b, x, seen);
            for (int x = 0; x < e->count; x++) { /* the immediate one is that which all others postdominate in turn */
                bool immediate = after[x];
                for (int y = 0; y < e->count && immediate; y++)
                    immediate = y == x || !after[y] || !reaches_exit_without(e, x, y, seen);
                if (immediate) nearest = x;
            }
            if (meets != nearest) fail_msg("%s: branch %d meets at %d, not at %d", body, b, meets, nearest);
        }
        emulator_module_destroy(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_line_of_emitted_kernels_is_one_instruction_of_its_region),
        cmocka_unit_test(a_kernel_of_3000_instructions_parses_in_10_ms),
        cmocka_unit_test(every_word_of_every_pattern_has_a_meaning),
        cmocka_unit_test(texts_in_the_language_are_accepted),
        cmocka_unit_test(modifiers_go_where_the_table_says),
        cmocka_unit_test(operands_keep_their_places),
        cmocka_unit_test(constants_become_bits_of_their_type),
        cmocka_unit_test(inner_scopes_hide_names_and_end),
        cmocka_unit_test(registers_of_64_bits_are_two_slots),
        cmocka_unit_test(variables_and_parameters_are_laid_out_by_alignment),
        cmocka_unit_test(only_lone_paths_in_a_body_name_regions),
        cmocka_unit_test(information_for_debuggers_is_skipped),
        cmocka_unit_test(branches_meet_at_their_immediate_postdominator),
        cmocka_unit_test(reconvergence_of_random_programs_fits_the_definition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
