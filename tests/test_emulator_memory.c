/* The interpreter's memory: blocks of global memory, loads, stores and atomics in all state spaces; and what is
 * exchanged between the lanes of a warp. */
#include "emulator_scalar_fixture.h"

enum { ROUNDS = 300, D = 0, A = 20, B = 22, C = 24 };

static emulator_memory *memory_of(const scene *s)
{
    return (emulator_memory *)s->config.memory;
}

/* ---- Blocks ---- */

static void blocks_hold_their_bytes_and_none_beyond(void **state)
{
    (void)state;
    enum { BLOCKS = 100 };
    random_source r = random_start(__func__);
    emulator_memory *memory = emulator_memory_create();
    uint64_t address[BLOCKS], bytes[BLOCKS];
    assert_int_equal(emulator_memory_allocate(memory, 0), 0);
    for (int n = 0; n < BLOCKS; n++) {
        bytes[n] = 1 + random_u64(&r) % 3000;
        address[n] = emulator_memory_allocate(memory, bytes[n]);
        assert_true(address[n] != 0 && address[n] % 256 == 0);
        memset((void *)(uintptr_t)address[n], n, bytes[n]);
    }
    for (int round = 0; round < 20; round++) {
        const int gone = (int)(random_u64(&r) % BLOCKS);
        assert_false(emulator_memory_free(memory, address[gone] + 1));
        assert_true(emulator_memory_free(memory, address[gone]));
        assert_false(emulator_memory_contains(memory, address[gone], 1));
        address[gone] = emulator_memory_allocate(memory, bytes[gone]);
        assert_false(emulator_memory_defined(memory, address[gone], 1));
        for (int n = 0; n < BLOCKS; n++) {
            assert_true(emulator_memory_contains(memory, address[n], bytes[n]));
            assert_true(emulator_memory_contains(memory, address[n] + bytes[n] - 1, 1));
            assert_false(emulator_memory_contains(memory, address[n], bytes[n] + 1));
            assert_false(emulator_memory_contains(memory, address[n] + bytes[n], 1));
            assert_false(emulator_memory_contains(memory, address[n] - 1, 2));
            assert_false(emulator_memory_contains(memory, address[n], UINT64_MAX));
            assert_false(emulator_memory_contains(memory, UINT64_MAX, 2));
        }
    }
    emulator_memory_destroy(memory);
    emulator_memory_destroy(NULL);
}

static void exactly_the_bytes_written_are_defined(void **state)
{
    (void)state;
    enum { BYTES = 1000 };
    random_source r = random_start(__func__);
    emulator_memory *memory = emulator_memory_create();
    const uint64_t address = emulator_memory_allocate(memory, BYTES);
    bool known[BYTES] = {false};
    for (int round = 0; round < 3000; round++) {
        const uint64_t first = random_u64(&r) % BYTES, bytes = 1 + random_u64(&r) % (BYTES - first) % 100;
        if (round % 8 == 0) {
            emulator_memory_define(memory, address + first, bytes);
            memset(known + first, true, bytes);
        }
        bool all = true;
        for (uint64_t k = first; k < first + bytes; k++) all = all && known[k];
        assert_int_equal(emulator_memory_defined(memory, address + first, bytes), all);
        if (first != 0) assert_false(emulator_memory_defined(memory, address + first, BYTES)); /* past the end */
    }
    emulator_memory_define(memory, address, BYTES);
    assert_true(emulator_memory_defined(memory, address, BYTES));
    emulator_memory_destroy(memory);
}

/* ---- Loads and stores ---- */

static uint64_t whole(const scene *s, int slot, int lane)
{
    return get(s, slot, lane, 8);
}

/* The address that reaches byte `offset` of the space, in a 64-bit register. */
static uint64_t address_in(state_space space, uint64_t global, uint64_t offset)
{
    return space == SPACE_GLOBAL ? global + offset : offset;
}

static void loads_give_back_what_was_stored_in_every_space_and_size(void **state)
{
    (void)state;
    static const emulator_type types[] = {TYPE_B8, TYPE_S8, TYPE_U16, TYPE_S16, TYPE_B32, TYPE_F32, TYPE_S32, TYPE_B64};
    static const state_space spaces[] = {SPACE_GLOBAL, SPACE_SHARED};
    random_source r = random_start(__func__);
    scene *s = scene_create();
    const uint64_t global = emulator_memory_allocate(memory_of(s), SHARED_BYTES);
    for (int round = 0; round < ROUNDS * 4; round++) {
        const emulator_type type = types[round % 8];
        const state_space space = spaces[round / 8 % 2];
        const bool generic = round / 16 % 2, wide_register = type_bytes(type) == 8;
        const int size = type_bytes(type), count = 1 << random_u64(&r) % (size == 8 ? 3 : size == 4 ? 4 : 3);
        const uint32_t active = round % 3 ? UINT32_MAX : (uint32_t)random_u64(&r) | 1;
        instruction st = {.mods = {.type = {type}, .space = generic ? SPACE_GENERIC : space, .vector = (uint8_t)count},
                          .operands = 2},
                    ld = st;
        for (int e = 0; e < count; e++) {
            for (int l = 0; l < LANES; l++) put(s, D + 2 * e, l, 8, random_u64(&r));
            s->elements[e] = in_register(wide_register ? TYPE_B64 : TYPE_B32, D + 2 * e);
        }
        const operand vector = {.kind = OPERAND_VECTOR, .first = 0, .count = count};
        st.operand[0] = ld.operand[1] = at_register(TYPE_B64, A, 8 * size * count);
        st.operand[1] = ld.operand[0] = count > 1 ? vector : s->elements[0];
        for (int l = 0; l < LANES; l++) {
            uint64_t v = address_in(space, global, (uint64_t)(l * size * count)) - (uint64_t)(8 * size * count);
            if (generic && space == SPACE_SHARED) v += GENERIC_SHARED_WINDOW;
            put(s, A, l, 8, v); /* the offset of the instruction makes up for what it is too low */
        }
        uint32_t saved[SLOTS][LANES];
        s->w.active = active;
        assert_int_equal(scene_run(s, exec_st, &st), EMULATOR_OK);
        memcpy(saved, s->slot, sizeof saved);
        for (int e = 0; e < count; e++) memset(s->slot[D + 2 * e], 0xee, 2 * sizeof *s->slot);
        assert_int_equal(scene_run(s, exec_ld, &ld), EMULATOR_OK);
        for (int l = 0; l < LANES; l++) {
            for (int e = 0; e < count; e++) {
                const uint64_t stored = saved[D + 2 * e][l] | (uint64_t)saved[D + 2 * e + 1][l] << 32;
                const int cut = 64 - 8 * size;
                const bool extends = type == TYPE_S8 || type == TYPE_S16;
                uint64_t v = extends ? (uint64_t)((int64_t)(stored << cut) >> cut) & UINT32_MAX : stored << cut >> cut;
                if (!(active >> l & 1)) v = wide_register ? UINT64_C(0xeeeeeeeeeeeeeeee) : 0xeeeeeeee;
                assert_int_equal(wide_register ? whole(s, D + 2 * e, l) : s->slot[D + 2 * e][l], v);
            }
        }
    }
    scene_destroy(s);
}

static instruction access_of(scene *s, state_space space, emulator_type type, bool store, uint64_t address)
{
    instruction i = {.mods = {.type = {type}, .space = space, .vector = 1}, .operands = 2};
    for (int l = 0; l < LANES; l++) put(s, A, l, 8, address);
    i.operand[store ? 0 : 1] = at_register(TYPE_B64, A, 0);
    i.operand[store ? 1 : 0] = in_register(type_bytes(type) == 8 ? TYPE_B64 : TYPE_B32, D);
    return i;
}

static emulator_fault fault_of(scene *s, state_space space, emulator_type type, bool store, uint64_t address)
{
    instruction i = access_of(s, space, type, store, address);
    return scene_run(s, store ? exec_st : exec_ld, &i);
}

static void accesses_outside_of_a_space_or_across_its_grain_are_faults(void **state)
{
    (void)state;
    scene *s = scene_create();
    const uint64_t global = emulator_memory_allocate(memory_of(s), 100);
    emulator_memory_define(memory_of(s), global, 100);
    for (int store = 0; store < 2; store++) {
        assert_int_equal(fault_of(s, SPACE_GLOBAL, TYPE_B32, store, global + 96), EMULATOR_OK);
        assert_int_equal(fault_of(s, SPACE_GLOBAL, TYPE_B32, store, global + 100), EMULATOR_BOUNDS);
        assert_int_equal(fault_of(s, SPACE_GLOBAL, TYPE_B64, store, global + 96), EMULATOR_BOUNDS);
        assert_int_equal(fault_of(s, SPACE_GLOBAL, TYPE_B32, store, global - 4), EMULATOR_BOUNDS);
        assert_int_equal(fault_of(s, SPACE_GLOBAL, TYPE_B32, store, 0), EMULATOR_BOUNDS);
        assert_int_equal(fault_of(s, SPACE_GLOBAL, TYPE_B32, store, global + 2), EMULATOR_ALIGNMENT);
        assert_int_equal(fault_of(s, SPACE_GENERIC, TYPE_B64, store, global + 4), EMULATOR_ALIGNMENT);
        assert_int_equal(fault_of(s, SPACE_SHARED, TYPE_B32, store, SHARED_BYTES - 4), EMULATOR_OK);
        assert_int_equal(fault_of(s, SPACE_SHARED, TYPE_B32, store, SHARED_BYTES), EMULATOR_BOUNDS);
        assert_int_equal(fault_of(s, SPACE_SHARED, TYPE_B64, store, SHARED_BYTES - 4), EMULATOR_ALIGNMENT);
        assert_int_equal(fault_of(s, SPACE_SHARED, TYPE_B32, store, UINT32_MAX - 3), EMULATOR_BOUNDS);
        assert_int_equal(fault_of(s, SPACE_GENERIC, TYPE_B32, store, GENERIC_SHARED_WINDOW + SHARED_BYTES),
                         EMULATOR_BOUNDS);
        assert_int_equal(fault_of(s, SPACE_LOCAL, TYPE_B32, store, LOCAL_BYTES), EMULATOR_BOUNDS);
        assert_int_equal(fault_of(s, SPACE_LOCAL, TYPE_B32, store, LOCAL_BYTES - 4), EMULATOR_OK);
    }
    assert_int_equal(fault_of(s, SPACE_PARAM, TYPE_B32, false, PARAMETER_BYTES), EMULATOR_BOUNDS);
    assert_int_equal(fault_of(s, SPACE_CONST, TYPE_B32, false, 0), EMULATOR_BOUNDS);
    scene_destroy(s);
}

static void lanes_have_local_memory_of_their_own(void **state)
{
    (void)state;
    scene *s = scene_create();
    for (int l = 0; l < LANES; l++) put(s, D, l, 4, 100 + (uint64_t)l);
    assert_int_equal(fault_of(s, SPACE_LOCAL, TYPE_B32, true, 8), EMULATOR_OK);
    memset(s->slot[D], 0, sizeof s->slot[D]);
    assert_int_equal(fault_of(s, SPACE_GENERIC, TYPE_B32, false, GENERIC_LOCAL_WINDOW + 8), EMULATOR_OK);
    for (int l = 0; l < LANES; l++) assert_int_equal(s->slot[D][l], 100 + l);
    scene_destroy(s);
}

static void undefined_values_spread_through_shared_memory_and_may_not_reach_global(void **state)
{
    (void)state;
    scene *s = scene_create();
    const uint64_t global = emulator_memory_allocate(memory_of(s), 4096);
    instruction st = access_of(s, SPACE_SHARED, TYPE_B32, true, 0), ld = access_of(s, SPACE_SHARED, TYPE_B32, false, 0);
    for (int l = 0; l < LANES; l++) put(s, A, l, 8, 4 * (uint64_t)l);
    s->slot_defined[D] = 0xfffffff0;
    assert_int_equal(scene_run(s, exec_st, &st), EMULATOR_OK);
    for (int l = 0; l < LANES; l++) put(s, A, l, 8, 4 * (uint64_t)(l ^ 1)); /* each reads its neighbour's */
    s->slot_defined[D] = UINT32_MAX;
    assert_int_equal(scene_run(s, exec_ld, &ld), EMULATOR_OK);
    assert_int_equal(s->slot_defined[D], 0xfffffff0);
    for (int l = 0; l < LANES; l++) put(s, A, l, 8, 400 + 4 * (uint64_t)l);
    assert_int_equal(scene_run(s, exec_ld, &ld), EMULATOR_OK);
    assert_int_equal(s->slot_defined[D], 0); /* never written */
    assert_int_equal(fault_of(s, SPACE_GLOBAL, TYPE_B32, true, global), EMULATOR_UNDEFINED);
    s->slot_defined[D] = UINT32_MAX;
    assert_int_equal(fault_of(s, SPACE_GLOBAL, TYPE_B32, true, global), EMULATOR_OK);
    assert_true(emulator_memory_defined(memory_of(s), global, 4));
    assert_false(emulator_memory_defined(memory_of(s), global, 5));
    assert_int_equal(fault_of(s, SPACE_GLOBAL, TYPE_B32, false, global + 4), EMULATOR_OK);
    assert_int_equal(s->slot_defined[D], 0);
    s->slot_defined[A] = 0x7fffffff;
    assert_int_equal(scene_run(s, exec_ld, &ld), EMULATOR_UNDEFINED); /* an address */
    scene_destroy(s);
}

static void parameters_are_read_by_their_offset(void **state)
{
    (void)state;
    scene *s = scene_create();
    for (int k = 0; k < PARAMETER_BYTES; k++) s->parameters[k] = (uint8_t)(k + 1);
    symbol parameter = {.space = SPACE_PARAM, .offset = 16, .bytes = 8};
    s->module.symbols = &parameter;
    instruction i = {.mods = {.type = {TYPE_B64}, .space = SPACE_PARAM, .vector = 1}, .operands = 2};
    i.operand[0] = in_register(TYPE_B64, D);
    i.operand[1] = (operand){.kind = OPERAND_ADDRESS, .symbol = 0, .offset = 8};
    assert_int_equal(scene_run(s, exec_ld, &i), EMULATOR_OK);
    for (int l = 0; l < LANES; l++) assert_int_equal(whole(s, D, l), UINT64_C(0x201f1e1d1c1b1a19));
    scene_destroy(s);
}

static void generic_addresses_of_shared_memory_go_there_and_back(void **state)
{
    (void)state;
    scene *s = scene_create();
    instruction i = {.mods = {.type = {TYPE_U64}, .space = SPACE_SHARED}, .operands = 2};
    i.operand[0] = in_register(TYPE_B64, D), i.operand[1] = in_register(TYPE_B64, A);
    for (int l = 0; l < LANES; l++) put(s, A, l, 8, 16 * (uint64_t)l);
    assert_int_equal(scene_run(s, exec_cvta, &i), EMULATOR_OK);
    assert_int_equal(whole(s, D, 3), GENERIC_SHARED_WINDOW + 48);
    i.mods.mode = MODE_CVTA_TO, i.operand[0] = in_register(TYPE_B64, B), i.operand[1] = in_register(TYPE_B64, D);
    assert_int_equal(scene_run(s, exec_cvta, &i), EMULATOR_OK);
    for (int l = 0; l < LANES; l++) assert_int_equal(whole(s, B, l), 16 * l);
    i.mods.space = SPACE_GLOBAL;
    assert_int_equal(scene_run(s, exec_cvta, &i), EMULATOR_OK);
    assert_memory_equal(s->slot[B], s->slot[D], 2 * sizeof s->slot[D]);
    scene_destroy(s);
}

/* ---- Atomics ---- */

static uint64_t after(int mode, emulator_type type, uint64_t old, uint64_t b, uint64_t c)
{
    const int cut = 64 - 8 * type_bytes(type);
    const bool is_signed = type == TYPE_S32 || type == TYPE_S64;
    const bool less = is_signed ? (int64_t)(b << cut) < (int64_t)(old << cut) : b << cut < old << cut;
    switch (mode) {
    case MODE_ADD:
        return (old + b) << cut >> cut;
    case MODE_MIN:
        return less ? b : old;
    case MODE_MAX:
        return less ? old : b;
    case MODE_AND:
        return old & b;
    case MODE_OR:
        return old | b;
    case MODE_XOR:
        return old ^ b;
    case MODE_EXCH:
        return b;
    case MODE_CAS:
        return old == b ? c : old;
    case MODE_INC:
        return old >= b ? 0 : old + 1;
    default:
        return old == 0 || old > b ? b : old - 1;
    }
}

static void atomics_of_colliding_lanes_go_one_after_the_other(void **state)
{
    (void)state;
    static const emulator_type types[] = {TYPE_U32, TYPE_S32, TYPE_U64, TYPE_S64};
    random_source r = random_start(__func__);
    scene *s = scene_create();
    const uint64_t global = emulator_memory_allocate(memory_of(s), 64);
    for (int round = 0; round < ROUNDS * 4; round++) {
        const int mode = MODE_ADD + round % 10;
        const emulator_type type = types[round / 10 % 4];
        const int bytes = type_bytes(type);
        const bool shared = round / 40 % 2, reduces = round / 80 % 2;
        const uint32_t active = (uint32_t)random_u64(&r) | 2;
        uint64_t cell[4];
        instruction i = {
            .mods = {.type = {type}, .space = shared ? SPACE_SHARED : SPACE_GLOBAL, .mode = (uint8_t)mode}};
        const int place = reduces ? 0 : 1;
        i.operand[0] = in_register(bytes == 8 ? TYPE_B64 : TYPE_B32, D);
        i.operand[place] = at_register(TYPE_B64, A, 0);
        i.operand[place + 1] = in_register(bytes == 8 ? TYPE_B64 : TYPE_B32, B);
        i.operand[place + 2] = in_register(bytes == 8 ? TYPE_B64 : TYPE_B32, C);
        i.operands = (uint8_t)(place + 3);
        uint8_t *host = shared ? s->shared : (uint8_t *)(uintptr_t)global;
        for (int k = 0; k < 4; k++) {
            cell[k] = random_integer(&r) << (64 - 8 * bytes) >> (64 - 8 * bytes);
            memcpy(host + 8 * k, &cell[k], 8);
        }
        emulator_memory_define(memory_of(s), global, 64);
        shadow_set_defined(&s->m, 0, 64, true);
        for (int l = 0; l < LANES; l++) {
            put(s, A, l, 8, (shared ? 0 : global) + 8 * (random_u64(&r) % 4));
            put(s, B, l, bytes, mode == MODE_CAS && l % 2 ? cell[l % 4] : random_integer(&r));
            put(s, C, l, bytes, random_integer(&r));
        }
        s->w.active = active;
        s->w.clock.time[0] = 1;
        assert_int_equal(scene_run(s, reduces ? exec_red : exec_atom, &i), EMULATOR_OK);
        for (int l = 0; l < LANES; l++) {
            if (!(active >> l & 1)) continue;
            uint64_t *at = &cell[(get(s, A, l, 8) - (shared ? 0 : global)) / 8];
            if (!reduces) assert_int_equal(get(s, D, l, bytes), *at);
            *at = after(mode, type, *at, get(s, B, l, bytes), get(s, C, l, bytes));
        }
        for (int k = 0; k < 4; k++) assert_memory_equal(host + 8 * k, &cell[k], (size_t)bytes);
    }
    scene_destroy(s);
}

static void atomics_on_undefined_memory_are_faults_but_for_exch(void **state)
{
    (void)state;
    scene *s = scene_create();
    const uint64_t global = emulator_memory_allocate(memory_of(s), 64);
    instruction i = {.mods = {.type = {TYPE_U32}, .space = SPACE_GLOBAL, .mode = MODE_ADD}, .operands = 3};
    i.operand[0] = in_register(TYPE_B32, D), i.operand[1] = at_register(TYPE_B64, A, 0),
    i.operand[2] = in_register(TYPE_B32, B);
    for (int l = 0; l < LANES; l++) put(s, A, l, 8, global);
    assert_int_equal(scene_run(s, exec_atom, &i), EMULATOR_UNDEFINED);
    i.mods.mode = MODE_EXCH;
    assert_int_equal(scene_run(s, exec_atom, &i), EMULATOR_OK);
    assert_int_equal(s->slot_defined[D], 0xfffffffe); /* lane 0 got what nobody had written */
    i.mods.mode = MODE_ADD;
    assert_int_equal(scene_run(s, exec_atom, &i), EMULATOR_OK);
    assert_int_equal(s->slot_defined[D], UINT32_MAX);
    scene_destroy(s);
}

static void float_atomics_flush_on_global_memory_only(void **state)
{
    (void)state;
    scene *s = scene_create();
    const uint64_t global = emulator_memory_allocate(memory_of(s), 64);
    emulator_memory_define(memory_of(s), global, 64);
    shadow_set_defined(&s->m, 0, 64, true);
    instruction i = {.mods = {.type = {TYPE_F32}, .space = SPACE_GLOBAL, .mode = MODE_ADD}, .operands = 2};
    i.operand[0] = at_register(TYPE_B64, A, 0), i.operand[1] = in_register(TYPE_F32, B);
    s->w.active = 3;
    for (int l = 0; l < 2; l++) put(s, A, l, 8, global), put(s, B, l, 4, 0x00000100);
    assert_int_equal(scene_run(s, exec_red, &i), EMULATOR_OK);
    assert_int_equal(*(uint32_t *)(uintptr_t)global, 0);
    for (int l = 0; l < 2; l++) put(s, A, l, 8, 0);
    i.mods.space = SPACE_SHARED;
    assert_int_equal(scene_run(s, exec_red, &i), EMULATOR_OK);
    uint32_t sum;
    memcpy(&sum, s->shared, sizeof sum);
    assert_int_equal(sum, 0x200);
    scene_destroy(s);
}

static void prefetches_are_checked_for_bounds(void **state)
{
    (void)state;
    scene *s = scene_create();
    const uint64_t global = emulator_memory_allocate(memory_of(s), 256);
    instruction i = {.mods = {.space = SPACE_GLOBAL}, .operands = 1};
    i.operand[0] = at_register(TYPE_B64, A, 0), i.operand[1] = in_register(TYPE_B32, B);
    for (int l = 0; l < LANES; l++) put(s, A, l, 8, global + 128), put(s, B, l, 4, 128);
    assert_int_equal(scene_run(s, exec_prefetch, &i), EMULATOR_OK);
    i.operands = 2;
    assert_int_equal(scene_run(s, exec_prefetch, &i), EMULATOR_OK);
    put(s, B, 5, 4, 144);
    assert_int_equal(scene_run(s, exec_prefetch, &i), EMULATOR_BOUNDS);
    put(s, B, 5, 4, 120);
    assert_int_equal(scene_run(s, exec_prefetch, &i), EMULATOR_ALIGNMENT);
    i.operands = 1;
    put(s, A, 5, 8, global + 256);
    assert_int_equal(scene_run(s, exec_prefetch, &i), EMULATOR_BOUNDS);
    scene_destroy(s);
}

/* ---- Lanes ---- */

/* The pseudo-code of the ISA, for one lane. */
static bool shuffle_source(int mode, int lane, uint32_t b, uint32_t c, int *from)
{
    const int bval = b & 31, cval = c & 31, mask = c >> 8 & 31;
    const int max_lane = (lane & mask) | (cval & ~mask & 31), min_lane = lane & mask;
    int j = 0;
    bool p = false;
    if (mode == MODE_SHFL_UP) j = lane - bval, p = j >= max_lane;
    if (mode == MODE_SHFL_DOWN) j = lane + bval, p = j <= max_lane;
    if (mode == MODE_SHFL_BFLY) j = lane ^ bval, p = j <= max_lane;
    if (mode == MODE_SHFL_IDX) j = min_lane | (bval & ~mask & 31), p = j <= max_lane;
    *from = p ? j : lane;
    return p;
}

static void shuffles_follow_the_isa_and_sleeping_lanes_give_nothing(void **state)
{
    (void)state;
    random_source r = random_start(__func__);
    scene *s = scene_create();
    for (int round = 0; round < ROUNDS * 10; round++) {
        const int mode = MODE_SHFL_UP + round % 4;
        const uint32_t active = round % 3 ? UINT32_MAX : (uint32_t)random_u64(&r) | 1;
        static const uint32_t segments[] = {0, 0x1000, 0x1800, 0x1c00, 0x1e00, 0x1f00};
        const uint32_t b = (uint32_t)random_u64(&r) & 63, c = (round / 4 % 2 ? 31 : 0) | segments[random_u64(&r) % 6];
        instruction i = {.mods = {.type = {TYPE_B32}, .mode = (uint8_t)mode}, .operands = 6};
        i.operand[0] = in_register(TYPE_B32, D), i.operand[1] = in_predicate(0),
        i.operand[2] = in_register(TYPE_B32, A);
        i.operand[3] = immediate(b), i.operand[4] = immediate(c), i.operand[5] = immediate(active);
        for (int l = 0; l < LANES; l++) put(s, A, l, 4, random_u64(&r));
        s->w.active = s->w.group = active;
        s->w.alive = active;
        s->slot_defined[D] = 0;
        assert_int_equal(scene_run(s, exec_shfl, &i), EMULATOR_OK);
        for (int l = 0; l < LANES; l++) {
            if (!(active >> l & 1)) continue;
            int from;
            const bool p = shuffle_source(mode, l, b, c, &from), awake = active >> from & 1;
            assert_int_equal(s->predicate[0] >> l & 1, p);
            assert_int_equal(s->slot_defined[D] >> l & 1, awake);
            if (awake) assert_int_equal(s->slot[D][l], s->slot[A][from]);
        }
    }
    scene_destroy(s);
}

static void votes_and_reductions_are_over_the_active_lanes(void **state)
{
    (void)state;
    random_source r = random_start(__func__);
    scene *s = scene_create();
    for (int round = 0; round < ROUNDS * 4; round++) {
        const uint32_t active = s->w.active = s->w.group = s->w.alive =
            round % 2 ? UINT32_MAX : (uint32_t)random_u64(&r) | 4;
        const uint32_t votes = round % 8 < 2 ? UINT32_MAX : round % 8 < 4 ? 0 : (uint32_t)random_u64(&r);
        s->predicate[1] = votes;
        instruction vote = {.operands = 3};
        vote.operand[0] = in_predicate(0), vote.operand[1] = in_predicate(1), vote.operand[2] = immediate(active);
        const bool all = (votes & active) == active, any = (votes & active) != 0;
        const bool expected[] = {all, any, all || !any};
        for (int mode = MODE_ALL; mode <= MODE_UNI; mode++) {
            vote.mods.mode = (uint8_t)mode;
            assert_int_equal(scene_run(s, exec_vote, &vote), EMULATOR_OK);
            assert_int_equal(s->predicate[0] & active, expected[mode - MODE_ALL] ? active : 0);
        }
        vote.mods.mode = MODE_BALLOT, vote.operand[0] = in_register(TYPE_B32, D);
        assert_int_equal(scene_run(s, exec_vote, &vote), EMULATOR_OK);
        const int first = __builtin_ctz(active);
        assert_int_equal(s->slot[D][first], votes & active);

        const int mode = MODE_ADD + round % 6;
        const emulator_type type = round / 6 % 2 ? TYPE_S32 : TYPE_U32;
        instruction redux = {.mods = {.type = {type}, .mode = (uint8_t)mode}, .operands = 3};
        redux.operand[0] = in_register(TYPE_B32, D), redux.operand[1] = in_register(TYPE_B32, A),
        redux.operand[2] = immediate(active);
        for (int l = 0; l < LANES; l++) put(s, A, l, 4, random_integer(&r));
        assert_int_equal(scene_run(s, exec_redux, &redux), EMULATOR_OK);
        uint64_t sum = s->slot[A][first];
        for (int l = first + 1; l < LANES; l++)
            if (active >> l & 1) sum = after(mode, type, sum, s->slot[A][l], 0);
        assert_int_equal(s->slot[D][first], sum);
        s->slot_defined[A] = ~(UINT32_C(1) << first);
        assert_int_equal(scene_run(s, exec_redux, &redux), EMULATOR_OK);
        assert_int_equal(s->slot_defined[D] & active, 0);
        s->slot_defined[A] = UINT32_MAX;
    }
    scene_destroy(s);
}

static void elect_and_match_name_lanes(void **state)
{
    (void)state;
    random_source r = random_start(__func__);
    scene *s = scene_create();
    for (int round = 0; round < ROUNDS; round++) {
        const uint32_t active = s->w.active = s->w.group = s->w.alive = (uint32_t)random_u64(&r) | 0x80000000;
        instruction elect = {.operands = 3}, match = {.mods = {.type = {TYPE_B32}, .mode = MODE_ANY}, .operands = 4};
        elect.operand[0] = in_register(TYPE_B32, D), elect.operand[1] = in_predicate(0),
        elect.operand[2] = immediate(active);
        assert_int_equal(scene_run(s, exec_elect, &elect), EMULATOR_OK);
        assert_int_equal(s->predicate[0] & active, active & -active);
        assert_int_equal(UINT32_C(1) << s->slot[D][31], active & -active);
        match.operand[0] = in_register(TYPE_B32, D), match.operand[1] = in_predicate(0),
        match.operand[2] = in_register(TYPE_B32, A);
        match.operand[3] = immediate(active);
        for (int l = 0; l < LANES; l++) put(s, A, l, 4, round % 3 ? random_u64(&r) % 3 : 9);
        assert_int_equal(scene_run(s, exec_match, &match), EMULATOR_OK);
        bool same = true;
        for (int l = 0; l < LANES; l++) {
            uint32_t equal = 0;
            for (int other = 0; other < LANES; other++)
                if (active >> other & 1 && s->slot[A][other] == s->slot[A][l]) equal |= UINT32_C(1) << other;
            if (active >> l & 1) assert_int_equal(s->slot[D][l], equal);
            if (active >> l & 1) same = same && equal == active;
        }
        match.mods.mode = MODE_ALL;
        assert_int_equal(scene_run(s, exec_match, &match), EMULATOR_OK);
        assert_int_equal(s->slot[D][31], same ? active : 0);
        assert_int_equal(s->predicate[0] & active, same ? active : 0);
    }
    scene_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_hold_their_bytes_and_none_beyond),
        cmocka_unit_test(exactly_the_bytes_written_are_defined),
        cmocka_unit_test(loads_give_back_what_was_stored_in_every_space_and_size),
        cmocka_unit_test(accesses_outside_of_a_space_or_across_its_grain_are_faults),
        cmocka_unit_test(lanes_have_local_memory_of_their_own),
        cmocka_unit_test(undefined_values_spread_through_shared_memory_and_may_not_reach_global),
        cmocka_unit_test(parameters_are_read_by_their_offset),
        cmocka_unit_test(generic_addresses_of_shared_memory_go_there_and_back),
        cmocka_unit_test(atomics_of_colliding_lanes_go_one_after_the_other),
        cmocka_unit_test(atomics_on_undefined_memory_are_faults_but_for_exch),
        cmocka_unit_test(float_atomics_flush_on_global_memory_only),
        cmocka_unit_test(prefetches_are_checked_for_bounds),
        cmocka_unit_test(shuffles_follow_the_isa_and_sleeping_lanes_give_nothing),
        cmocka_unit_test(votes_and_reductions_are_over_the_active_lanes),
        cmocka_unit_test(elect_and_match_name_lanes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
