/* Calls of device functions: frames, arguments, and the functions that the machine has itself. Private to the machine.
 */
#ifndef FOSCAR_EMULATOR_CALLS_H
#define FOSCAR_EMULATOR_CALLS_H

#include "flow.h"

enum { CALL_DEPTH_MAX = 4096 };

/* ---- frames.c ---- */

/* Bytes of a lane's local memory, and whether each is defined. */
uint8_t *frame_bytes(const warp *w, int lane, uint32_t offset);
uint8_t *frame_defined(const warp *w, int lane, uint32_t offset);
int frame_of_group(const warp *w); /* of the active lanes */
int frames_depth(const warp_flow *f, int at);

/* The lanes enter a function; the new frame's number. */
int frames_push(warp *w, const instruction *call, int number, uint32_t lanes);
/* The lanes that have returned leave the frame; which they are. */
uint32_t frames_pop(warp *w, int at);
bool frames_create(warp_flow *f); /* false: no memory */
void frames_reset(warp *w, frame *frames, int count, int capacity);
void frames_destroy(warp_flow *f);

/* ---- calls.c ---- */

/* Return values of lanes that left a frame, to where the call wants them. */
void calls_give_back(warp *w, const frame *x, uint32_t lanes);
/* Argument k of a call, of one lane, up to 8 bytes; *defined: all its bytes are. */
uint64_t calls_argument(warp *w, const instruction *call, const signature *takes, int k, int lane, bool *defined);
/* Writes return value k of the active lanes. */
void calls_return(warp *w, const instruction *call, const signature *takes, int k, const uint64_t *v);

/* ---- builtins.c ---- */

void builtins_call(warp *w, const instruction *call, const device_function *f);

/* ---- exec_memory.c ---- */

/* Loads or stores bytes of one lane in the instruction's state space, checked and judged as an ordinary access; count is
 * a power of two, defined [count]. */
void memory_access(warp *w, const instruction *i, int lane, uint64_t address, void *bytes, uint32_t count, bool *defined,
                   bool writes);
/* Copies bytes from a generic address; false: out of bounds. */
bool warp_peek(const warp *w, int lane, uint64_t address, void *to, uint32_t bytes, bool *defined);

#endif
