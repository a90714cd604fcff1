/* Matrix descriptors of shared memory, as wgmma and tcgen05 read them: where each row of 16 bytes of a matrix lies. */
#ifndef FOSCAR_EMULATOR_MATRIX_DESCRIPTOR_H
#define FOSCAR_EMULATOR_MATRIX_DESCRIPTOR_H

#include "machine.h"
#include "shadow.h"

/* HOPPER: bits 46-48 are 0, swizzle in bits 62-63. BLACKWELL: bits 46-48 hold 1, swizzle in bits 61-63. */
typedef enum descriptor_version { DESCRIPTOR_HOPPER, DESCRIPTOR_BLACKWELL } descriptor_version;

typedef struct shared_matrix {
    uint32_t start, leading, stride; /* bytes */
    uint32_t base_offset;
    uint32_t width; /* of the swizzle, in bytes: 16 (none), 32, 64, 128 */
    bool mn_major;  /* rows of 16 bytes run along m or n instead of k */
} shared_matrix;

/* DESCRIPTOR if the fields fit nothing. */
shared_matrix matrix_descriptor_decode(machine *m, const warp *w, const instruction *i, descriptor_version version,
                                       uint64_t bits, bool mn_major, const char *what);
/* Of the 16 bytes number `chunk` in line number `line`: lines are rows of m or n (K-major), or values of k (MN-major).
 */
uint32_t matrix_chunk_address(const shared_matrix *s, uint32_t line, uint32_t chunk);
/* Copies lines x chunks x 16 bytes to `to`, judged as reads of every one of the accessors (count may be 0: not judged).
 * False: some bytes are undefined, and undefined[] has a 1 for each of them, a 0 for the others. Outside of shared
 * memory: DESCRIPTOR. */
bool matrix_read(machine *m, const accessor *accessors, int count, const shared_matrix *s, int lines, int chunks,
                 uint8_t *to, uint8_t *undefined);

#endif
