/* Random numbers as a function of a seed and an index: the same on every machine and for any number of threads. */
#ifndef FOSCAR_TOOLS_RANDOM_H
#define FOSCAR_TOOLS_RANDOM_H

#include <stdint.h>

/* splitmix64 of the index'th state after seed. */
static inline uint64_t random_bits(uint64_t seed, uint64_t index)
{
    uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Nearly normal, mean 0 and variance 1: the sum of four uniform numbers. */
static inline float random_normal(uint64_t seed, uint64_t index)
{
    uint64_t z = random_bits(seed, index);
    int32_t sum = (int32_t)((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48)) - 2 * 0xffff;
    return (float)sum * (1.7320508f / 65536.0f);
}

#endif
