/* Fragments of mma.sync (PTX ISA, "Matrix Fragments for mma.m16n8k16" and its like: all follow one rule) and of wmma
 * (whose order the ISA leaves to the machine). */
#include "matrix_fragment.h"

static int element_bits(emulator_type type)
{
    switch (type) {
    case TYPE_B1:
        return 1;
    case TYPE_S4:
    case TYPE_U4:
        return 4;
    default:
        return 8 * type_bytes(type);
    }
}

fragment fragment_of(const modifiers *m, char letter, emulator_type type)
{
    bool spread = letter >= 'a';
    fragment f = {.bits = element_bits(type), .spread = spread};
    f.accumulator = letter == 'C' || letter == 'c';
    f.rows = letter == 'B' || letter == 'b' ? m->n : m->m;
    f.columns = f.accumulator ? m->n : m->k;
    f.registers = f.rows * f.columns * f.bits / (LANES * (f.bits == 64 ? 64 : 32));
    /* Each element of f16 is in two lanes, so that fragments have 8 registers whatever the shape. */
    if (spread && type == TYPE_F16 && !f.accumulator) f.registers = 8;
    return f;
}

int fragment_packed(const fragment *f)
{
    return f->bits >= 32 ? 1 : 32 / f->bits;
}

/* Rows go by groups of four lanes; within them, elements of a register lie side by side along k. A has its rows 8 to 15
 * in every second register, B its columns 8 and on beyond the block of k; C has two columns a lane. */
int fragment_element(const fragment *f, int lane, int number, int part)
{
    int packed = fragment_packed(f), group = lane / 4, place = lane % 4;
    if (f->spread) return (lane * f->registers * packed + number * packed + part) % (f->rows * f->columns);
    if (f->accumulator) {
        int element = number * packed + part;
        return (group + 8 * (element >> 1)) * f->columns + 2 * place + (element & 1);
    }
    int halves = f->rows / 8, row = group + 8 * (number % halves), block = number / halves;
    return row * f->columns + (block * 4 + place) * packed + part;
}
