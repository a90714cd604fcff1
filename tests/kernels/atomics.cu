/* Atomics of all types, on global and shared memory. */
#include <cuda_fp16.h>
#include <cuda_bf16.h>

extern "C" __global__ void atomics(int *words, unsigned long long *wides, float *floats, double *doubles, __half2 *pairs, unsigned short *shorts, __half *half_sum, __nv_bfloat16 *bf_sum)
{
    __shared__ int count;
    __shared__ double sum;
    __shared__ unsigned short locks[2];
    __shared__ float fsum;
    __shared__ __half2 hsum;
    int t = threadIdx.x;
    if (t == 0) {
        count = 0;
        sum = 0;
        locks[0] = locks[1] = 0;
        fsum = 0;
        hsum = __floats2half2_rn(0, 0);
    }
    __syncthreads();
    atomicAdd(&count, t);
    atomicAdd(&sum, t * 0.25);
    atomicAdd(&fsum, 0.5f);
    atomicAdd(&hsum, __floats2half2_rn(1, 2));
    atomicCAS(&locks[0], (unsigned short)t, (unsigned short)(t + 1));
    atomicAdd(&words[0], 1);
    atomicSub(&words[1], t);
    atomicMax(&words[2], t * 7 % 31);
    atomicMin((unsigned *)&words[3], (unsigned)t + 5);
    atomicAnd(&words[4], ~(1 << t % 32));
    atomicOr(&words[5], 1 << t % 32);
    atomicXor(&words[6], t);
    atomicInc((unsigned *)&words[7], 9);
    atomicDec((unsigned *)&words[8], 9);
    int old = atomicExch(&words[9], 77);
    if (old == 77) atomicCAS(&words[10], 0, 5);
    atomicAdd(&wides[0], 1ull << 40);
    atomicMax(&wides[1], (unsigned long long)t << 35);
    atomicCAS(&wides[2], 0ull, 123456789012ull);
    atomicMin((long long *)&wides[3], -(long long)t);
    atomicAdd(floats, 0.5f);
    atomicAdd(doubles, 0.125);
    atomicAdd(pairs, __floats2half2_rn(0.5f, 0.25f));
    atomicCAS(&shorts[1], (unsigned short)0, (unsigned short)9);
    atomicAdd(half_sum, __float2half(0.5f));
    atomicAdd(bf_sum, __float2bfloat16(1.0f));
    atomicAdd_system(&words[11], 2);
    atomicAdd_block(&words[12], 3);
    __syncthreads();
    if (t == 0) {
        words[13] = count;
        doubles[1] = sum;
        shorts[0] = locks[0];
        floats[1] = fsum;
        pairs[1] = hsum;
    }
}
