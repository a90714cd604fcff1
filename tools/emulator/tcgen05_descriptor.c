/* Instruction descriptors of tcgen05.mma, decoded field by field as the PTX ISA lists them. */
#include "tcgen05_descriptor.h"

static uint32_t field(uint32_t bits, int low, int count)
{
    return bits >> low & ((1u << count) - 1);
}

_Noreturn static void reject(machine *m, const warp *w, const instruction *i, uint32_t bits, const char *why)
{
    machine_fault(m, w, i, EMULATOR_DESCRIPTOR, "instruction descriptor 0x%08x: %s", bits, why);
}

static bool is_scaled(int kind)
{
    return kind == KIND_MXF8F6F4 || kind == KIND_MXF4 || kind == KIND_MXF4NVF4;
}

static mma_type element_type(machine *m, const warp *w, const instruction *i, uint32_t bits, uint32_t code)
{
    static const int8_t narrow[8] = {MMA_E4M3, MMA_E5M2, -1, MMA_E2M3, MMA_E3M2, MMA_E2M1, -1, -1};
    switch (i->mods.mode) {
    case KIND_F16:
        if (code > 1) break;
        return code ? MMA_BF16 : MMA_F16;
    case KIND_I8:
        if (code > 1) break;
        return code ? MMA_S8 : MMA_U8;
    case KIND_F8F6F4:
    case KIND_MXF8F6F4:
        if (narrow[code] < 0) break;
        return (mma_type)narrow[code];
    default:
        if (code != 1) break;
        return MMA_E2M1;
    }
    reject(m, w, i, bits, "a type of A or B that the kind does not have");
}

static void decode_plain(machine *m, const warp *w, const instruction *i, uint32_t bits, product_shape *p)
{
    int kind = i->mods.mode;
    if (field(bits, 0, 2) || field(bits, 6, 1) || field(bits, 23, 1) || field(bits, 29, 3))
        reject(m, w, i, bits, "reserved bits are set");
    p->m = (int)field(bits, 24, 5) << 4;
    p->saturate = field(bits, 3, 1);
    uint32_t d = field(bits, 4, 2);
    p->integer = kind == KIND_I8;
    p->half = !p->integer && d == 0;
    if (p->integer ? d != 2 : d > 1) reject(m, w, i, bits, "a type of D that the kind does not have");
    if (p->half && p->a == MMA_BF16) reject(m, w, i, bits, "accumulators of f16 with factors of bf16");
    if (!p->integer && p->saturate) reject(m, w, i, bits, "saturation is for integers");
    if (p->integer && field(bits, 13, 2)) reject(m, w, i, bits, "integers are not negated");
    if (kind == KIND_F16 && p->a != p->b) reject(m, w, i, bits, "A and B must both be f16 or bf16");
    if (p->m != 64 && p->m != 128) reject(m, w, i, bits, "M is neither 64 nor 128");
}

static void decode_scaled(machine *m, const warp *w, const instruction *i, uint32_t bits, product_shape *p)
{
    int kind = i->mods.mode, block = i->mods.n ? i->mods.n : 32;
    if (i->mods.m) block = p->k / i->mods.m; /* .scale_vec::NX */
    if (field(bits, 0, 2) || field(bits, 3, 1) || field(bits, 6, 1) || field(bits, 24, 3))
        reject(m, w, i, bits, "reserved bits are set");
    if (p->packed && (field(bits, 12, 1) || field(bits, 15, 2))) reject(m, w, i, bits, "reserved bits are set");
    if (field(bits, 31, 1)) machine_fault(m, w, i, EMULATOR_UNKNOWN_FORM, "products with K = 96 are not executed");
    p->m = (int)field(bits, 27, 2) << 7;
    if (p->m != 128) reject(m, w, i, bits, "M is not 128");
    p->scale = field(bits, 23, 1) ? MMA_UE8M0 : MMA_UE4M3;
    if (p->scale == MMA_UE4M3 && !(kind == KIND_MXF4NVF4 && block == 16))
        reject(m, w, i, bits, "scales of ue4m3 are for blocks of 16 of mxf4nvf4");
    p->scales = p->k / block;
    p->a_scale_id = field(bits, 29, 2);
    p->b_scale_id = field(bits, 4, 2);
    uint32_t misplaced = p->scales == 1 ? 0 : p->scales == 2 ? 1 : 3;
    if ((p->a_scale_id | p->b_scale_id) & misplaced) reject(m, w, i, bits, "a scale id that splits a block's factors");
}

product_shape product_shape_decode(machine *m, const warp *w, const instruction *i, uint32_t bits, bool a_in_tmem)
{
    static const uint8_t k_of_kind[] = {[KIND_F16] = 16,      [KIND_F8F6F4] = 32, [KIND_I8] = 32,
                                        [KIND_MXF8F6F4] = 32, [KIND_MXF4] = 64,   [KIND_MXF4NVF4] = 64};
    int kind = i->mods.mode;
    if (kind == KIND_TF32) machine_fault(m, w, i, EMULATOR_UNKNOWN_FORM, ".kind::tf32 is not executed");
    if (i->mods.k == 2)
        machine_fault(m, w, i, EMULATOR_UNKNOWN_FORM, ".cta_group::2: pairs of blocks are not executed");
    if (field(bits, 2, 1)) machine_fault(m, w, i, EMULATOR_UNKNOWN_FORM, "sparse products are not executed");
    product_shape p = {
        .n = (int)field(bits, 17, 6) << 3, .k = k_of_kind[kind], .packed = kind == KIND_MXF4 || kind == KIND_MXF4NVF4};
    p.a = element_type(m, w, i, bits, field(bits, 7, 3));
    p.b = element_type(m, w, i, bits, p.packed ? field(bits, 10, 2) : field(bits, 10, 3));
    p.negate_a = field(bits, 13, 1);
    p.negate_b = field(bits, 14, 1);
    p.a_mn_major = field(bits, 15, 1);
    p.b_mn_major = field(bits, 16, 1);
    if (is_scaled(kind))
        decode_scaled(m, w, i, bits, &p);
    else
        decode_plain(m, w, i, bits, &p);
    if (p.n < 8 || p.n > 256 || (kind == KIND_I8 && p.n > 32 && p.n % 16) || (kind == KIND_I8 && p.n == 40))
        reject(m, w, i, bits, "N");
    if (a_in_tmem && p.a_mn_major) reject(m, w, i, bits, "A in tensor memory is K-major");
    bool narrow_a = p.a == MMA_E2M1 || p.a == MMA_E2M3 || p.a == MMA_E3M2,
         narrow_b = p.b == MMA_E2M1 || p.b == MMA_E2M3 || p.b == MMA_E3M2;
    if ((p.a_mn_major && narrow_a) || (p.b_mn_major && narrow_b))
        reject(m, w, i, bits, "elements of 4 and 6 bits are K-major");
    if (p.b_mn_major && kind != KIND_F16 && p.n % 16)
        reject(m, w, i, bits, "N of an N-major B of bytes is no multiple of 16");
    if (a_in_tmem && (p.a == MMA_E2M3 || p.a == MMA_E3M2))
        machine_fault(m, w, i, EMULATOR_UNKNOWN_FORM,
                      "where a byte of tensor memory holds an element of 6 bits is not documented");
    return p;
}

element_layout product_element_layout(const product_shape *p, mma_type type, bool in_tmem)
{
    switch (type) {
    case MMA_F16:
    case MMA_BF16:
        return (element_layout){16, 8, 0};
    case MMA_E2M1:
        if (p->packed) return (element_layout){4, 32, 0};
        return in_tmem ? (element_layout){8, 16, 2} : (element_layout){4, 16, 0};
    case MMA_E2M3:
    case MMA_E3M2:
        return (element_layout){6, 16, 0};
    default:
        return (element_layout){8, 16, 0};
    }
}
