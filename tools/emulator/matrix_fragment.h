/* Which element of which matrix each register of each lane holds: fragments of mma.sync and wmma. */
#ifndef FOSCAR_EMULATOR_MATRIX_FRAGMENT_H
#define FOSCAR_EMULATOR_MATRIX_FRAGMENT_H

#include "machine.h"

enum { FRAGMENT_ELEMENTS_MAX = 16 * 256 }; /* of one matrix: A of m16n8k256 */

/* A is [m][k], B is [n][k], C and D are [m][n]. */
typedef struct fragment {
    int rows, columns, bits; /* of an element */
    int registers;           /* of a lane, of 32 or 64 bits */
    bool spread;             /* wmma: an order of its own; mma.sync: as the PTX ISA says */
    bool accumulator;
} fragment;

/* Of the operand that a letter names: A, B, C (also D) of mma.sync, a, b, c of wmma. */
fragment fragment_of(const modifiers *m, char letter, emulator_type type);

/* Elements in a register: 2 of 16 bits and so on; a register of 64 bits holds one. */
int fragment_packed(const fragment *f);

/* The element, as row * columns + column, that part `part` of register `number` of a lane holds. */
int fragment_element(const fragment *f, int lane, int number, int part);

#endif
