/* The verifier: what must hold of any finished list. Faults found here are faults of a template; the message says where.
 *
 *   operands   number and kind of every operand as the instruction's row says; offsets of vector accesses are multiples of their size
 *   target     architecture-specific instructions only for such a target
 *   labels     placed once, and branched to only if placed
 *   scopes     every push has had its pop
 *   defined    on every path to a use the register has been written (a guarded write does not count)
 *   converged  no warp-wide instruction under a guard or in code that a divergent branch may have split */
#include "ptx.h"

#include <stdlib.h>
#include <string.h>

typedef struct verifier {
    const ptx_builder *b;
    gen_error *err;
    size_t *place;        /* instruction index of each label; count = not placed */
    size_t *block_start;  /* first instruction of each basic block, and the end */
    size_t blocks;
    size_t *block_of_label;
    uint32_t base[PTX_KINDS]; /* first bit of each register class */
    uint32_t bits;
    uint64_t *in, *out; /* definitely written registers at a block's begin and end */
} verifier;

static bool fault(const verifier *v, size_t at, const char *what)
{
    const ptx_instruction *i = &v->b->list[at];
    return gen_fail(v->err, "%s: instruction %zu (%s, in '%s') %s; this is a fault of the generator, please report the spec", v->b->entry, at,
                    ptx_ops[i->op].id, v->b->region[i->region].path, what);
}

static bool kind_fits(char class, ptx_kind kind)
{
    switch (class) {
    case 'p': return kind == PTX_KIND_P;
    case 'h': return kind == PTX_KIND_H;
    case 'r': return kind == PTX_KIND_R;
    case 'f': return kind == PTX_KIND_F;
    case 'l': return kind == PTX_KIND_L;
    case 'R': return kind == PTX_KIND_R || kind == PTX_KIND_IMM;
    case 'F': return kind == PTX_KIND_F || kind == PTX_KIND_FIMM;
    case 'L': return kind == PTX_KIND_L || kind == PTX_KIND_IMM;
    case '#': return kind == PTX_KIND_IMM;
    case 'S': return kind == PTX_KIND_R; /* shared addresses are 32-bit, */
    case 'G': return kind == PTX_KIND_L; /* global ones 64-bit */
    case 'A': return kind == PTX_KIND_PARAM;
    case '@': return kind == PTX_KIND_LABEL;
    case '%': return kind == PTX_KIND_SPECIAL;
    default: return false;
    }
}

static bool is_register(ptx_kind kind) { return kind >= PTX_KIND_P && kind <= PTX_KIND_L; }

static bool check_operands(const verifier *v, size_t at)
{
    const ptx_instruction *i = &v->b->list[at];
    ptx_operand operand[8];
    int n = ptx_operands(v->b, i, operand);
    if (n < 0) return fault(v, at, "has the wrong number of operands");
    int vector = 1;
    for (int k = 0; k < n; k++) {
        if (operand[k].vector) vector = operand[k].length;
        for (int e = 0; e < operand[k].length; e++) {
            const ptx_value *x = &operand[k].value[e];
            if (!kind_fits(operand[k].class, (ptx_kind)x->kind)) return fault(v, at, "has an operand of the wrong kind");
            if (is_register((ptx_kind)x->kind) && x->id >= v->b->registers[x->kind]) return fault(v, at, "names a register that does not exist");
        }
    }
    bool access = ptx_ops[i->op].effect == PTX_EFFECT_LOAD || ptx_ops[i->op].effect == PTX_EFFECT_STORE;
    for (int k = 0; k < n && access && vector > 1; k++)
        if (strchr("SG", operand[k].class) && operand[k].value->imm % (4 * vector)) return fault(v, at, "has a misaligned offset");
    return true;
}

static bool check_each(const verifier *v)
{
    size_t length = strlen(v->b->target->name);
    bool specific = length && v->b->target->name[length - 1] == 'a';
    for (size_t at = 0; at < v->b->count; at++) {
        const ptx_op_row *row = &ptx_ops[v->b->list[at].op];
        if (!check_operands(v, at)) return false;
        if ((row->flags & PTX_FLAG_ACCEL) && !specific) return fault(v, at, "needs an architecture-specific target");
        if ((row->flags & PTX_FLAG_ALIGNED) && v->b->list[at].guard.kind != PTX_KIND_NONE) return fault(v, at, "is warp-wide and must not be guarded");
    }
    return true;
}

static bool is_branch(const ptx_instruction *i) { return i->op == PTX_OP_bra || i->op == PTX_OP_bra_uni; }

static bool find_labels(verifier *v)
{
    for (int l = 0; l < v->b->labels; l++) v->place[l] = v->b->count;
    for (size_t at = 0; at < v->b->count; at++) {
        if (v->b->list[at].op != PTX_OP_label) continue;
        uint32_t l = v->b->values[v->b->list[at].first].id;
        if (v->place[l] != v->b->count) return fault(v, at, "is placed twice");
        v->place[l] = at;
    }
    for (size_t at = 0; at < v->b->count; at++)
        if (is_branch(&v->b->list[at]) && v->place[v->b->values[v->b->list[at].first].id] == v->b->count) return fault(v, at, "goes to a label that is nowhere");
    return true;
}

/* A guarded branch that is not uniform splits a warp from there to its label: forwards until the label, backwards over the loop. */
static bool check_converged(const verifier *v)
{
    for (size_t at = 0; at < v->b->count; at++) {
        const ptx_instruction *i = &v->b->list[at];
        if (i->op != PTX_OP_bra || i->guard.kind == PTX_KIND_NONE) continue;
        size_t label = v->place[v->b->values[i->first].id], from = at < label ? at : label, to = at < label ? label : at;
        for (size_t k = from; k < to; k++)
            if (ptx_ops[v->b->list[k].op].flags & PTX_FLAG_ALIGNED) return fault(v, k, "is warp-wide and lies where a warp may have diverged");
    }
    return true;
}

static uint32_t bit_of(const verifier *v, const ptx_value *x) { return v->base[x->kind] + x->id; }
static bool has(const uint64_t *set, uint32_t bit) { return set[bit / 64] >> (bit % 64) & 1; }
static void add(uint64_t *set, uint32_t bit) { set[bit / 64] |= (uint64_t)1 << (bit % 64); }

/* A product that overwrites its accumulators does not read them. */
static bool overwrites(const verifier *v, const ptx_instruction *i)
{
    if (ptx_ops[i->op].class != PTX_CLASS_TENSOR) return false;
    const ptx_value *last = v->b->values + i->first + i->operands - 1;
    return last->kind == v->b->no.kind && last->id == v->b->no.id;
}

/* Adds what a block writes to `set`; with report, complains about the first read of something not in it. */
static bool walk_block(const verifier *v, size_t block, uint64_t *set, bool report)
{
    for (size_t at = v->block_start[block]; at < v->block_start[block + 1]; at++) {
        const ptx_instruction *i = &v->b->list[at];
        ptx_operand operand[8];
        int n = ptx_operands(v->b, i, operand);
        bool guarded = i->guard.kind != PTX_KIND_NONE, fresh = overwrites(v, i);
        if (report && guarded && !has(set, bit_of(v, &i->guard))) return fault(v, at, "is guarded by a predicate that was never written");
        for (int pass = 0; pass < 2; pass++) /* all reads, then all writes */
            for (int k = 0; k < n; k++)
                for (int e = 0; e < operand[k].length; e++) {
                    const ptx_value *x = &operand[k].value[e];
                    if (!is_register((ptx_kind)x->kind)) continue;
                    bool reads = operand[k].read && !(operand[k].written && fresh);
                    if (pass == 0 && reads && report && !has(set, bit_of(v, x))) return fault(v, at, "reads a register that may not have been written");
                    if (pass == 1 && operand[k].written && !guarded) add(set, bit_of(v, x));
                }
    }
    return true;
}

static bool ends_block(const ptx_instruction *i) { return is_branch(i) || i->op == PTX_OP_ret; }

static void find_blocks(verifier *v)
{
    v->blocks = 0;
    for (size_t at = 0; at < v->b->count; at++) {
        bool label = v->b->list[at].op == PTX_OP_label;
        if (at == 0 || label || ends_block(&v->b->list[at - 1])) v->block_start[v->blocks++] = at;
        if (label) v->block_of_label[v->b->values[v->b->list[at].first].id] = v->blocks - 1;
    }
    v->block_start[v->blocks] = v->b->count;
}

static bool meet(const verifier *v, size_t from, size_t to)
{
    size_t words = (v->bits + 63) / 64;
    bool changed = false;
    for (size_t w = 0; w < words; w++) {
        uint64_t next = v->in[to * words + w] & v->out[from * words + w];
        changed |= next != v->in[to * words + w];
        v->in[to * words + w] = next;
    }
    return changed;
}

static bool check_defined(verifier *v)
{
    size_t words = (v->bits + 63) / 64;
    memset(v->in, 0xff, v->blocks * words * sizeof *v->in);
    memset(v->in, 0, words * sizeof *v->in);
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t block = 0; block < v->blocks; block++) {
            memcpy(v->out + block * words, v->in + block * words, words * sizeof *v->in);
            walk_block(v, block, v->out + block * words, false);
            const ptx_instruction *last = &v->b->list[v->block_start[block + 1] - 1];
            bool falls = !(last->op == PTX_OP_ret || (is_branch(last) && last->guard.kind == PTX_KIND_NONE));
            if (is_branch(last)) changed |= meet(v, block, v->block_of_label[v->b->values[last->first].id]);
            if (falls && block + 1 < v->blocks) changed |= meet(v, block, block + 1);
        }
    }
    for (size_t block = 0; block < v->blocks; block++) {
        memcpy(v->out + block * words, v->in + block * words, words * sizeof *v->in);
        if (!walk_block(v, block, v->out + block * words, true)) return false;
    }
    return true;
}

bool ptx_verify(const ptx_builder *b, gen_error *err)
{
    verifier v = {.b = b, .err = err};
    if (b->failed) {
        if (err) *err = b->error;
        return false;
    }
    if (b->count == 0) return gen_fail(err, "%s: the kernel is empty; this is a fault of the generator, please report the spec", b->entry);
    for (int k = PTX_KIND_P; k <= PTX_KIND_L; k++) {
        v.base[k] = v.bits;
        v.bits += b->registers[k];
    }
    size_t labels = (size_t)b->labels + 1, words = (v.bits + 63) / 64 + 1;
    v.place = calloc(labels, sizeof *v.place);
    v.block_of_label = calloc(labels, sizeof *v.block_of_label);
    v.block_start = calloc(b->count + 1, sizeof *v.block_start);
    bool ok = v.place && v.block_of_label && v.block_start;
    if (!ok) gen_fail(err, "out of memory while verifying %s; free some memory and try again", b->entry);
    ok = ok && check_each(&v) && find_labels(&v) && check_converged(&v);
    if (ok && b->depth != 1) ok = gen_fail(err, "%s: a scope was not closed; this is a fault of the generator, please report the spec", b->entry);
    if (ok) {
        find_blocks(&v);
        v.in = calloc(v.blocks * words, sizeof *v.in);
        v.out = calloc(v.blocks * words, sizeof *v.out);
        ok = v.in && v.out ? check_defined(&v) : gen_fail(err, "out of memory while verifying %s; free some memory and try again", b->entry);
    }
    free(v.place);
    free(v.block_of_label);
    free(v.block_start);
    free(v.in);
    free(v.out);
    return ok;
}
