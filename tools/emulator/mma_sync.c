/* mma.sync and wmma.mma: matrix products of one warp, whose operands are all in registers. Products are exact; sums of
 * integers are exact, of f64 one fused step after the other along k, of the other floats as those of wgmma
 * (mma_numbers.c). */
#include <math.h>
#include <string.h>

#include "matrix_fragment.h"
#include "numbers.h"
#include "scalar.h"
#include "tensor.h"

enum { M_MAX = 32, N_MAX = 32, K_MAX = 256 };

/* A matrix, and which of its rows have something undefined in them. */
typedef struct matrix {
    fragment f;
    uint64_t v[FRAGMENT_ELEMENTS_MAX]; /* the bits of each element */
    bool undefined[FRAGMENT_ELEMENTS_MAX];
    bool any_undefined;
} matrix;

typedef struct product {
    int m, n, k;
    emulator_type a_type, b_type, c_type, d_type;
    matrix a, b, c, d;
} product;

/* ---- Registers ---- */

static void gather(warp *w, const operand *o, matrix *x)
{
    const fragment *f = &x->f;
    int packed = fragment_packed(f);
    uint64_t mask = UINT64_MAX >> (64 - f->bits);
    x->any_undefined = false;
    for (int r = 0; r < f->registers; r++) {
        lanes64 room;
        uint32_t defined;
        const uint64_t *v = warp_read64(w, operand_element(w, o, r), &room, &defined);
        for (int lane = 0; lane < LANES; lane++) {
            for (int part = 0; part < packed; part++) {
                int at = fragment_element(f, lane, r, part);
                x->v[at] = v[lane] >> (part * f->bits) & mask;
                x->undefined[at] = !(defined >> lane & 1);
                x->any_undefined |= x->undefined[at];
            }
        }
    }
}

static void scatter(warp *w, const operand *o, const matrix *x)
{
    const fragment *f = &x->f;
    int packed = fragment_packed(f);
    for (int r = 0; r < f->registers; r++) {
        const operand *to = operand_element(w, o, r);
        lanes64 v = {{0}};
        lanes32 narrow;
        uint32_t defined = 0;
        for (int lane = 0; lane < LANES; lane++) {
            bool known = true;
            for (int part = 0; part < packed; part++) {
                int at = fragment_element(f, lane, r, part);
                v.v[lane] |= x->v[at] << (part * f->bits);
                known &= !x->undefined[at];
            }
            narrow.v[lane] = (uint32_t)v.v[lane];
            if (known) defined |= lane_bits[lane];
        }
        if (f->bits == 64)
            warp_write64(w, to, v.v, defined);
        else
            warp_write32(w, to, narrow.v, defined);
    }
}

/* ---- Numbers ---- */

static int64_t integer_value(emulator_type type, uint64_t bits)
{
    switch (type) {
    case TYPE_S8:
        return (int8_t)bits;
    case TYPE_S4:
        return bits & 8 ? (int64_t)bits - 16 : (int64_t)bits;
    default:
        return (int64_t)bits;
    }
}

/* b1: counts of ones of a ^ b, or a & b. */
static int64_t integer_product(const product *p, uint64_t a, uint64_t b, uint8_t mode)
{
    if (p->a_type == TYPE_B1) return (int64_t)(mode == MODE_AND ? a & b : a ^ b);
    return integer_value(p->a_type, a) * integer_value(p->b_type, b);
}

static void multiply_integers(product *p, const instruction *i)
{
    for (int r = 0; r < p->m; r++) {
        for (int c = 0; c < p->n; c++) {
            int64_t sum = (int32_t)p->c.v[r * p->n + c];
            for (int k = 0; k < p->k; k++)
                sum += integer_product(p, p->a.v[r * p->k + k], p->b.v[c * p->k + k], i->mods.mode);
            if (i->mods.finite) sum = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
            p->d.v[r * p->n + c] = (uint32_t)sum;
        }
    }
}

static double double_of(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void multiply_doubles(product *p)
{
    for (int r = 0; r < p->m; r++) {
        for (int c = 0; c < p->n; c++) {
            double sum = double_of(p->c.v[r * p->n + c]);
            for (int k = 0; k < p->k; k++)
                sum = fma(double_of(p->a.v[r * p->k + k]), double_of(p->b.v[c * p->k + k]), sum);
            memcpy(&p->d.v[r * p->n + c], &sum, sizeof sum);
        }
    }
}

static mma_type type_of(emulator_type type)
{
    switch (type) {
    case TYPE_F16:
        return MMA_F16;
    case TYPE_BF16:
        return MMA_BF16;
    case TYPE_TF32:
        return MMA_TF32;
    case TYPE_E4M3:
        return MMA_E4M3;
    default:
        return MMA_E5M2;
    }
}

/* The elements of tf32 without the bits that the hardware does not look at. */
static void narrow(emulator_type type, const matrix *x, int count, uint32_t *to)
{
    int drop = type == TYPE_TF32 ? 13 : 0;
    for (int e = 0; e < count; e++) to[e] = (uint32_t)(x->v[e] >> drop);
}

static void multiply_floats(warp *w, product *p)
{
    uint32_t a[M_MAX * MMA_K_MAX], b[N_MAX * MMA_K_MAX];
    float d[M_MAX * N_MAX];
    bool blackwell = strncmp(w->m->module->target, "sm_1", 4) == 0;
    mma_float_form how = {.model = w->m->config->fast ? MMA_FAST
                                   : blackwell        ? MMA_BLACKWELL
                                                      : MMA_HOPPER,
                          .a = type_of(p->a_type),
                          .b = type_of(p->b_type),
                          .half = p->d_type == TYPE_F16};
    for (int e = 0; e < p->m * p->n; e++)
        d[e] = p->c_type == TYPE_F16 ? mma_widen(MMA_F16, (uint16_t)p->c.v[e]) : f32_value((uint32_t)p->c.v[e]);
    narrow(p->a_type, &p->a, p->m * p->k, a);
    narrow(p->b_type, &p->b, p->n * p->k, b);
    mma_float(&how, p->m, p->n, p->k, a, b, NULL, NULL, d);
    for (int e = 0; e < p->m * p->n; e++) p->d.v[e] = how.half ? mma_half_bits(d[e]) : f32_bits(d[e]);
}

/* An element of D depends on its row of A, its row of B and the element of C. */
static void spread_undefined(product *p)
{
    bool row[M_MAX] = {false}, column[N_MAX] = {false};
    for (int e = 0; p->a.any_undefined && e < p->m * p->k; e++) row[e / p->k] |= p->a.undefined[e];
    for (int e = 0; p->b.any_undefined && e < p->n * p->k; e++) column[e / p->k] |= p->b.undefined[e];
    for (int e = 0; e < p->m * p->n; e++) p->d.undefined[e] = p->c.undefined[e] || row[e / p->n] || column[e % p->n];
}

static void run(warp *w, const instruction *i, product *p, const char *letters)
{
    const modifiers *m = &i->mods;
    p->m = m->m;
    p->n = m->n;
    p->k = m->k;
    p->a.f = fragment_of(m, letters[0], p->a_type);
    p->b.f = fragment_of(m, letters[1], p->b_type);
    p->c.f = fragment_of(m, letters[2], p->c_type);
    p->d.f = fragment_of(m, letters[2], p->d_type);
    gather(w, &i->operand[1], &p->a);
    gather(w, &i->operand[2], &p->b);
    gather(w, &i->operand[3], &p->c);
    if (p->d_type == TYPE_S32)
        multiply_integers(p, i);
    else if (p->d_type == TYPE_F64)
        multiply_doubles(p);
    else
        multiply_floats(w, p);
    spread_undefined(p);
    scatter(w, &i->operand[0], &p->d);
}

static product *room_of(warp *w)
{
    machine *m = w->m;
    if (!m->product_room) m->product_room = machine_allocate(m, sizeof(product));
    return m->product_room;
}

/* Types of the text: D, A, B, C. */
void exec_mma_sync(warp *w, const instruction *i)
{
    const emulator_type *t = i->mods.type;
    product *p = room_of(w);
    p->d_type = t[0];
    p->a_type = t[1];
    p->b_type = t[2];
    p->c_type = t[3];
    w->issues_products = true;
    run(w, i, p, "ABC");
}

/* Of f16 only D and C are said. */
void exec_wmma_mma(warp *w, const instruction *i)
{
    const emulator_type *t = i->mods.type;
    bool halves = t[2] == TYPE_NONE;
    product *p = room_of(w);
    p->d_type = t[0];
    p->a_type = halves ? TYPE_F16 : t[1];
    p->b_type = halves ? TYPE_F16 : t[2];
    p->c_type = halves ? t[1] : t[3];
    w->issues_products = true;
    run(w, i, p, "abc");
}
