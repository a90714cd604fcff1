/* Moves of matrices between memory and the fragments of a warp: ldmatrix, stmatrix, movmatrix, wmma.load, wmma.store.
 */
#include <string.h>

#include "calls.h"
#include "exec.h"
#include "matrix_fragment.h"
#include "scalar.h"
#include "shadow.h"
#include "tensor.h"

enum { ROW_BYTES = 16, MATRIX_ROWS = 8 };

/* ---- 8 x 8 matrices of 16 bits ---- */

/* Lane l has the elements 2 (l % 4) and the next of row l / 4; transposed, of column l / 4. */
static void element_of(int lane, int part, bool transposed, int *row, int *column)
{
    int along = 2 * (lane % 4) + part, across = lane / 4;
    *row = transposed ? along : across;
    *column = transposed ? across : along;
}

typedef struct rows {
    uint16_t v[MATRIX_ROWS][8];
    bool undefined[MATRIX_ROWS][8];
} rows;

/* Lanes 8 k to 8 k + 7 have the addresses of the rows of matrix k. */
void exec_ldmatrix(warp *w, const instruction *i)
{
    bool transposed = i->mods.extra & EXTRA_TRANSPOSED;
    uint64_t address[LANES];
    warp_addresses(w, &i->operand[1], address);
    for (int k = 0; k < i->mods.k; k++) {
        rows x;
        lanes32 d = {{0}};
        uint32_t known = 0;
        for (int r = 0; r < MATRIX_ROWS; r++) {
            bool defined[ROW_BYTES];
            memory_access(w, i, MATRIX_ROWS * k + r, address[MATRIX_ROWS * k + r], x.v[r], ROW_BYTES, defined, false);
            for (int c = 0; c < 8; c++) x.undefined[r][c] = !defined[2 * c] || !defined[2 * c + 1];
        }
        for (int lane = 0; lane < LANES; lane++) {
            int row[2], column[2];
            for (int part = 0; part < 2; part++) element_of(lane, part, transposed, &row[part], &column[part]);
            d.v[lane] = x.v[row[0]][column[0]] | (uint32_t)x.v[row[1]][column[1]] << 16;
            if (!x.undefined[row[0]][column[0]] && !x.undefined[row[1]][column[1]]) known |= lane_bits[lane];
        }
        warp_write32(w, operand_element(w, &i->operand[0], k), d.v, known);
    }
}

static void rows_of(const uint32_t *v, uint32_t defined, bool transposed, rows *x)
{
    for (int lane = 0; lane < LANES; lane++) {
        for (int part = 0; part < 2; part++) {
            int row, column;
            element_of(lane, part, transposed, &row, &column);
            x->v[row][column] = (uint16_t)(v[lane] >> (16 * part));
            x->undefined[row][column] = !(defined >> lane & 1);
        }
    }
}

void exec_stmatrix(warp *w, const instruction *i)
{
    bool transposed = i->mods.extra & EXTRA_TRANSPOSED;
    uint64_t address[LANES];
    warp_addresses(w, &i->operand[0], address);
    for (int k = 0; k < i->mods.k; k++) {
        rows x;
        lanes32 room;
        uint32_t defined;
        const uint32_t *v = warp_read32(w, operand_element(w, &i->operand[1], k), &room, &defined);
        rows_of(v, defined, transposed, &x);
        for (int r = 0; r < MATRIX_ROWS; r++) {
            bool known[ROW_BYTES];
            for (int b = 0; b < ROW_BYTES; b++) known[b] = !x.undefined[r][b / 2];
            memory_access(w, i, MATRIX_ROWS * k + r, address[MATRIX_ROWS * k + r], x.v[r], ROW_BYTES, known, true);
        }
    }
}

void exec_movmatrix(warp *w, const instruction *i)
{
    rows x;
    lanes32 room, d;
    uint32_t defined, known = 0;
    const uint32_t *v = warp_read32(w, &i->operand[1], &room, &defined);
    rows_of(v, defined, false, &x);
    for (int lane = 0; lane < LANES; lane++) {
        int along = 2 * (lane % 4), across = lane / 4;
        d.v[lane] = x.v[along][across] | (uint32_t)x.v[along + 1][across] << 16;
        if (!x.undefined[along][across] && !x.undefined[along + 1][across]) known |= lane_bits[lane];
    }
    warp_write32(w, &i->operand[0], d.v, known);
}

/* ---- wmma ---- */

/* The byte, from the matrix's address, at which an element begins; of elements below a byte, that of its byte. B has
 * its rows along k in the fragment, and is [k][n] in memory. */
static uint64_t offset_of(const instruction *i, const fragment *f, bool is_b, int element, uint64_t stride)
{
    uint64_t row = (uint64_t)(element / f->columns), column = (uint64_t)(element % f->columns);
    bool column_major = (i->mods.extra & EXTRA_COLUMN) != 0;
    bool along_columns = is_b ? column_major : !column_major; /* neighbours in memory are neighbours along columns */
    uint64_t index = along_columns ? row * stride + column : column * stride + row;
    return index * (uint64_t)f->bits / 8;
}

typedef struct wmma_move {
    fragment f;
    bool is_b;
    uint64_t address, stride;
} wmma_move;

static wmma_move start(warp *w, const instruction *i, const operand *address, const operand *stride)
{
    wmma_move s = {.is_b = i->mods.mode == MODE_WMMA_B};
    char letter = i->mods.mode == MODE_WMMA_A ? 'a' : s.is_b ? 'b' : 'c';
    uint64_t at[LANES];
    s.f = fragment_of(&i->mods, letter, i->mods.type[0]);
    warp_addresses(w, address, at);
    for (int lane = 1; lane < LANES; lane++)
        if (at[lane] != at[0])
            machine_fault(w->m, w, i, EMULATOR_DIVERGENCE, "the matrix's address differs between lanes 0 and %d", lane);
    s.address = at[0];
    bool by_rows = s.is_b == ((i->mods.extra & EXTRA_COLUMN) != 0);
    s.stride = (uint64_t)(by_rows ? s.f.columns : s.f.rows);
    if (stride->kind != OPERAND_NONE) s.stride = warp_uniform(w, stride, "the stride of the matrix");
    return s;
}

/* A register at a time: packed elements that lie side by side in memory are loaded and stored as they come. */
void exec_wmma_load(warp *w, const instruction *i)
{
    wmma_move s = start(w, i, &i->operand[1], &i->operand[2]);
    int packed = fragment_packed(&s.f);
    uint32_t bytes = s.f.bits < 8 ? 1 : (uint32_t)s.f.bits / 8;
    for (int r = 0; r < s.f.registers; r++) {
        lanes64 v = {{0}};
        lanes32 narrow;
        uint32_t known = UINT32_MAX;
        for (int lane = 0; lane < LANES; lane++) {
            for (int part = 0; part < packed; part++) {
                int element = fragment_element(&s.f, lane, r, part);
                uint64_t e = 0;
                bool defined[8];
                memory_access(w, i, lane, s.address + offset_of(i, &s.f, s.is_b, element, s.stride), &e, bytes, defined,
                              false);
                for (uint32_t b = 0; b < bytes; b++)
                    if (!defined[b]) known &= ~lane_bits[lane];
                if (s.f.bits < 8) e = e >> (element * s.f.bits % 8) & ((1u << s.f.bits) - 1);
                v.v[lane] |= e << (part * s.f.bits);
            }
            narrow.v[lane] = (uint32_t)v.v[lane];
        }
        const operand *to = operand_element(w, &i->operand[0], r);
        if (s.f.bits == 64)
            warp_write64(w, to, v.v, known);
        else
            warp_write32(w, to, narrow.v, known);
    }
}

void exec_wmma_store(warp *w, const instruction *i)
{
    wmma_move s = start(w, i, &i->operand[0], &i->operand[2]);
    int packed = fragment_packed(&s.f);
    uint32_t bytes = (uint32_t)s.f.bits / 8;
    for (int r = 0; r < s.f.registers; r++) {
        lanes64 room;
        uint32_t defined;
        const uint64_t *v = warp_read64(w, operand_element(w, &i->operand[1], r), &room, &defined);
        for (int lane = 0; lane < LANES; lane++) {
            for (int part = 0; part < packed; part++) {
                int element = fragment_element(&s.f, lane, r, part);
                uint64_t e = v[lane] >> (part * s.f.bits);
                bool known[8];
                memset(known, (int)(defined >> lane & 1), sizeof known);
                memory_access(w, i, lane, s.address + offset_of(i, &s.f, false, element, s.stride), &e, bytes, known,
                              true);
            }
        }
    }
}
