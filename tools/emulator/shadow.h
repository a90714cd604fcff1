/* What is known of every byte of shared memory: who wrote it last, who read it since, by which proxy, and whether it is defined. */
#ifndef FOSCAR_EMULATOR_SHADOW_H
#define FOSCAR_EMULATOR_SHADOW_H

#include "machine.h"

typedef struct shadow shadow;

/* Who accesses: a component of the clocks, its time, and by which proxy. For ordinary accesses of a warp also the lane. */
typedef struct accessor {
    int component;
    uint32_t time;
    proxy proxy;
    int lane;                  /* of a generic access; else -1 */
    const vector_clock *clock; /* what it has seen */
    const warp *w;
    const instruction *at;
    bool atomic; /* atom, red, and loads and stores with .relaxed and the like: no race with another of these */
} accessor;

shadow *shadow_create(uint32_t bytes);
void shadow_destroy(shadow *s);

/* Judges an access (RACE, PROXY; UNDEFINED is left to the caller) and records it. BOUNDS too. A write does not change which bytes are defined:
 * shadow_set_defined goes with it. Without config->judge only bounds and the memory of mbarriers are looked at. */
void shadow_read(machine *m, const accessor *a, uint32_t address, uint32_t bytes);
void shadow_write(machine *m, const accessor *a, uint32_t address, uint32_t bytes);
bool shadow_defined(const machine *m, uint32_t address, uint32_t bytes);
void shadow_set_defined(machine *m, uint32_t address, uint32_t bytes, bool defined);

/* The memory of an mbarrier: ordinary writes there are BARRIER_INIT. */
void shadow_set_mbarrier(machine *m, uint32_t address, bool is);

/* The accessor of ordinary accesses of one lane. */
static inline accessor accessor_of_lane(const warp *w, int lane)
{
    return (accessor){w->index, w->clock.time[w->index], PROXY_GENERIC, lane, &w->clock, w, w->at, false};
}

/* fence.proxy.async of the active lanes of w: what they wrote before becomes visible to the async proxy, for all that is ordered after it. */
void shadow_fence_proxy(warp *w);

#endif
