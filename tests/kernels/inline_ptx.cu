/* Inline PTX: vectors in braces, predicates, labels, address arithmetic, local registers. */
#include <cstdint>

extern "C" __global__ void inline_ptx(const uint32_t *in, uint32_t *out)
{
    uint32_t t = threadIdx.x, v = in[t], a, b, c, d;
    uint64_t packed;
    asm("mov.b64 %0, {%1, %2};" : "=l"(packed) : "r"(v), "r"(t));
    asm("mov.b64 {%0, %1}, %2;" : "=r"(a), "=r"(b) : "l"(packed + 5));
    asm("{\n.reg .pred p, q;\nsetp.gt.and.u32 p|q, %1, 10, 1;\nselp.u32 %0, 3, 4, p;\n@q add.u32 %0, %0, 100;\n}" : "=r"(c) : "r"(v));
    asm("{\n.reg .u32 n;\n.reg .pred more;\nmov.u32 n, %1;\nmov.u32 %0, 0;\nloop_%=:\nadd.u32 %0, %0, n;\nsub.u32 n, n, 1;\nsetp.gt.s32 more, n, 0;\n@more bra loop_%=;\n}" : "=r"(d) : "r"(v % 7 + 1));
    out[t] = a + 3 * b + 5 * c + 7 * d;
    asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(a) : "r"(v), "r"(t), "r"(c));
    asm("prmt.b32 %0, %1, %2, 0x3175;" : "=r"(b) : "r"(v), "r"(a));
    asm("bfe.u32 %0, %1, 3, 9;" : "=r"(c) : "r"(v));
    asm("shf.l.wrap.b32 %0, %1, %2, 5;" : "=r"(d) : "r"(v), "r"(a));
    out[32 + t] = a ^ b ^ c ^ d;
    asm volatile("st.global.cg.v2.u32 [%0+256], {%1, %2};" ::"l"(out + 2 * t), "r"(v), "r"(v + 1));
    asm("slct.u32.s32 %0, %1, %2, %3;" : "=r"(a) : "r"(v), "r"(t), "r"((int)v - 50));
    asm("sad.u32 %0, %1, %2, %3;" : "=r"(b) : "r"(v), "r"(t), "r"(a));
    asm("mul24.lo.u32 %0, %1, %2;" : "=r"(c) : "r"(v), "r"(t));
    asm("bmsk.clamp.b32 %0, %1, %2;" : "=r"(d) : "r"(t), "r"(5));
    out[128 + t] = a + b + c + d;
    asm("fns.b32 %0, %1, %2, %3;" : "=r"(a) : "r"(v | 1), "r"(0), "r"(1));
    asm("szext.clamp.s32 %0, %1, %2;" : "=r"(b) : "r"(v), "r"(5));
    out[160 + t] = a + b;
}
