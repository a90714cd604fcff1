/* Kernels of `foscar bench`: filling a pool of pages with random codes and sane metadata, and reading memory as fast as
 * it goes. Built by NVRTC; includes nothing. */

typedef unsigned long long u64;

static __device__ __forceinline__ unsigned mix(u64 seed, u64 index)
{
    u64 z = seed + (index + 1) * 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return (unsigned)(z >> 32);
}

/* Random bits in every word. */
extern "C" __global__ void __launch_bounds__(256) fill_bits(uint4 *data, u64 count, u64 seed)
{
    for (u64 i = blockIdx.x * 256ull + threadIdx.x; i < count; i += gridDim.x * 256ull)
        data[i] = make_uint4(mix(seed, 4 * i), mix(seed, 4 * i + 1), mix(seed, 4 * i + 2), mix(seed, 4 * i + 3));
}

/* The metadata of `pages` pages of page_bytes each: `tokens` words {minimum, scale} of float16 at `offset`. Scales lie
   within a quarter of `scale`; minima are about -scale * middle, so that uniform codes give numbers around 0. */
extern "C" __global__ void __launch_bounds__(256)
    fill_metadata(unsigned char *data, u64 pages, u64 page_bytes, u64 offset, unsigned tokens, float scale,
                  float middle, u64 seed)
{
    for (u64 i = blockIdx.x * 256ull + threadIdx.x; i < pages * tokens; i += gridDim.x * 256ull) {
        unsigned r = mix(seed, i), word;
        float s = scale * (0.75f + (r & 0xffffu) * (0.5f / 65536.0f));
        float m = -s * middle * (0.9f + (r >> 16) * (0.2f / 65536.0f));
        asm("{.reg .b16 lo, hi; cvt.rn.f16.f32 lo, %1; cvt.rn.f16.f32 hi, %2; mov.b32 %0, {lo, hi};}"
            : "=r"(word)
            : "f"(m), "f"(s));
        *(unsigned *)(data + i / tokens * page_bytes + offset + i % tokens * 4) = word;
    }
}

static __device__ __forceinline__ uint4 load(const uint4 *p)
{
    uint4 x;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "l"(p));
    return x;
}

/* Reads count * 16 bytes by 16-byte loads, eight in flight a thread. */
extern "C" __global__ void __launch_bounds__(512) read_loads(const uint4 *data, u64 count, unsigned *sink)
{
    u64 step = gridDim.x * 512ull, i = blockIdx.x * 512ull + threadIdx.x;
    unsigned sum = 0;
    for (; i + 7 * step < count; i += 8 * step) {
        uint4 x[8];
#pragma unroll
        for (int j = 0; j < 8; j++) x[j] = load(data + i + j * step);
#pragma unroll
        for (int j = 0; j < 8; j++) sum ^= x[j].x ^ x[j].y ^ x[j].z ^ x[j].w;
    }
    for (; i < count; i += step) sum ^= load(data + i).x;
    if (sum == 0x12345678u) *sink = sum; /* keeps the loads alive */
}

/* Reads chunks * chunk_bytes by bulk copies into a ring of `stages` chunks in shared memory; one thread a block issues
 * them. */
extern "C" __global__ void __launch_bounds__(32)
    read_bulk(const unsigned char *data, u64 chunks, unsigned chunk_bytes, unsigned stages)
{
    extern __shared__ __align__(128) unsigned char ring[];
    __shared__ u64 full[32];
    if (threadIdx.x != 0) return;
    unsigned ring_address = (unsigned)__cvta_generic_to_shared(ring),
             full_address = (unsigned)__cvta_generic_to_shared(full);
    for (unsigned s = 0; s < stages; s++)
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(full_address + 8 * s) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    u64 mine = blockIdx.x < chunks ? (chunks - blockIdx.x + gridDim.x - 1) / gridDim.x : 0, issued = 0;
    for (u64 done = 0; done < mine; done++) {
        for (; issued < mine && issued < done + stages; issued++) {
            unsigned s = (unsigned)(issued % stages);
            const unsigned char *from = data + (blockIdx.x + issued * gridDim.x) * chunk_bytes;
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(full_address + 8 * s),
                         "r"(chunk_bytes)
                         : "memory");
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                    ring_address + s * chunk_bytes),
                "l"(from), "r"(chunk_bytes), "r"(full_address + 8 * s)
                : "memory");
        }
        unsigned barrier = full_address + 8 * (unsigned)(done % stages), parity = (unsigned)(done / stages) & 1,
                 ready = 0;
        while (!ready)
            asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                         : "=r"(ready)
                         : "r"(barrier), "r"(parity)
                         : "memory");
    }
}
