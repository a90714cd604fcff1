/* Cache kernels, part 1: number types and the few operations that need PTX. First of the files that make one
 * translation unit:
 *
 *   cache_numbers.cu  cache_layout.cu  cache_quantise.cu  cache_append.cu  cache_dequantise.cu  cache_check.cu
 *   decode_merge.cu
 *
 * They include nothing and are written in what C and CUDA C++ share, so a test can run every part but this one on the
 * host. Macros that specialise the unit are listed in gen/cache_kernels.c; Q_TYPE, O_TYPE and M_TYPE are bf16, f16 or
 * f32. */

/* Heads of a kernel (threads of a block, blocks that must fit on an SM) and of a function (some specialisations leave
   some of them out). */
#define ENTRY(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)
#define DEVICE                 static __device__ __forceinline__ __attribute__((unused))

/* float_from_f16 is OF(float_from_, M_TYPE) where M_TYPE is f16. */
#define OF(prefix, type)          OF_EXPANDED(prefix, type)
#define OF_EXPANDED(prefix, type) prefix##type

/* A number as it lies in memory. */
typedef unsigned short memory_bf16, memory_f16;

DEVICE float float_from_bf16(memory_bf16 x)
{
    return __uint_as_float((unsigned)x << 16);
}

DEVICE float float_from_f16(memory_f16 x)
{
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x));
    return wide;
}

/* All narrowing rounds to nearest even; what does not fit becomes an infinity. */
DEVICE memory_bf16 bf16_from_float(float x)
{
    memory_bf16 narrow;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow) : "f"(x));
    return narrow;
}

DEVICE memory_f16 f16_from_float(float x)
{
    memory_f16 narrow;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow) : "f"(x));
    return narrow;
}

/* With programmatic dependent launch: until the kernel before this one has finished and its writes can be seen. */
DEVICE void wait_for_previous_kernel(void)
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}
