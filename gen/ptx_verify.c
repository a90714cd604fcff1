/* The verifier: what must hold of any finished list. Faults found here are faults of a template; the message says where.
 *
 *   kernel     there are instructions, no scope and no guard is left open, and a block's threads find their registers on the target
 *   operands   number, kind and range of every operand as the instruction's row says; an offset belongs to an address and is a multiple of what is
 *              accessed there
 *   target     architecture-specific instructions only for such a target; shapes and register numbers that it has
 *   labels     placed once, and branched to only if placed; no path runs off the end
 *   converged  no warp-wide instruction under a guard, or between a divergent branch and the place where all its paths have met again
 *   defined    on every path to a use the register has been written (a guarded write does not count) */
#include "ptx.h"

#include <stdlib.h>
#include <string.h>

typedef struct verifier {
    const ptx_builder *b;
    gen_error *err;
    size_t *place;          /* instruction index of each label; count = not placed */
    size_t *block_of_label;
    size_t *block_start;    /* first instruction of each basic block, and the end */
    size_t *warp_wide;      /* first warp-wide instruction of each block; count = none */
    bool *returns;          /* whether some path from the block's end comes to a ret */
    bool *seen;             /* by block */
    size_t *todo;           /* blocks, each at most once */
    size_t blocks;
    uint64_t *later;        /* for each block a set of blocks: those that every path from it to a ret goes through, with itself */
    uint32_t base[PTX_KINDS]; /* first bit of each register class */
    uint32_t bits;
    uint64_t *in, *written; /* for each block a set of registers: written on every path to its beginning, written in it */
} verifier;

static bool kernel_fault(const verifier *v, const char *what)
{
    return gen_fail(v->err, "%s: %s; this is a fault of the generator, please report the spec", v->b->entry, what);
}

static bool fault(const verifier *v, size_t at, const char *what)
{
    const ptx_instruction *i = &v->b->list[at];
    return gen_fail(v->err, "%s: instruction %zu (%s, in '%s') %s; this is a fault of the generator, please report the spec", v->b->entry, at,
                    ptx_ops[i->op].id, v->b->region[i->region].path, what);
}

static bool is_register(ptx_kind kind) { return kind >= PTX_KIND_P && kind <= PTX_KIND_L; }
static bool is_branch(const ptx_instruction *i) { return i->op == PTX_OP_bra || i->op == PTX_OP_bra_uni; }
static bool is_guarded(const ptx_instruction *i) { return i->guard.kind != PTX_KIND_NONE; }
static bool ends_block(const ptx_instruction *i) { return is_branch(i) || i->op == PTX_OP_ret; }
static bool falls_through(const ptx_instruction *i) { return !ends_block(i) || is_guarded(i); }
static uint32_t label_of(const verifier *v, const ptx_instruction *i) { return v->b->values[i->first].id; }

static bool has(const uint64_t *set, size_t bit) { return set[bit / 64] >> (bit % 64) & 1; }
static void add(uint64_t *set, size_t bit) { set[bit / 64] |= (uint64_t)1 << (bit % 64); }

static bool check_kernel(const verifier *v)
{
    const ptx_builder *b = v->b;
    if (b->count == 0) return kernel_fault(v, "the kernel is empty");
    if (b->depth != 1) return kernel_fault(v, "a scope was not closed");
    if (b->guard.kind != PTX_KIND_NONE) return kernel_fault(v, "a guard is left over at the end");
    if (falls_through(&b->list[b->count - 1])) return fault(v, b->count - 1, "is the last one and runs off the end");
    if ((int64_t)b->threads * b->max_registers > b->target->registers) return kernel_fault(v, "a block asks for more registers than the target has");
    return true;
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

/* Ids below this exist. */
static uint32_t ids_of(const ptx_builder *b, ptx_kind kind)
{
    switch (kind) {
    case PTX_KIND_LABEL: return (uint32_t)b->labels;
    case PTX_KIND_PARAM: return (uint32_t)b->params;
    case PTX_KIND_SPECIAL: return PTX_SPECIAL_COUNT;
    default: return is_register(kind) ? b->registers[kind] : UINT32_MAX;
    }
}

static bool immediate_fits(char class, const ptx_value *x)
{
    if (x->kind == PTX_KIND_FIMM) return x->imm >= 0 && x->imm <= UINT32_MAX;
    return class == 'L' || (x->imm >= INT32_MIN && x->imm <= UINT32_MAX);
}

/* NULL, or what is wrong with a value. Alignment is not looked at. */
static const char *value_fault(const ptx_builder *b, char class, const ptx_value *x)
{
    ptx_kind kind = (ptx_kind)x->kind;
    if (!kind_fits(class, kind)) return "has an operand of the wrong kind";
    if (x->id >= ids_of(b, kind)) return is_register(kind) ? "names a register that does not exist" : "names something that does not exist";
    if (kind == PTX_KIND_IMM || kind == PTX_KIND_FIMM) return immediate_fits(class, x) ? NULL : "has an immediate too large for its operand";
    if (class != 'S' && class != 'G') return x->imm ? "has an offset outside an address" : NULL;
    return x->imm >= INT32_MIN && x->imm <= INT32_MAX ? NULL : "has an offset of more than 32 bits";
}

/* What the k-th operand, an address, must be a multiple of: the size of the mnemonic's last type, 4 bytes in "ld.shared.v4.b32", for each element. */
static int access_bytes(const char *mnemonic, const ptx_operand *operand, int n, int k)
{
    size_t digits = strcspn(mnemonic, " ");
    while (digits > 0 && strchr("0123456789", mnemonic[digits - 1])) digits--;
    int bytes = atoi(mnemonic + digits) / 8;
    if (bytes == 0) return k == n - 1 ? 8 : 16; /* a bulk copy, whose last operand is its mbarrier */
    for (int o = 0; o < n; o++) bytes *= operand[o].length;
    return bytes;
}

static bool check_operands(const verifier *v, size_t at)
{
    const ptx_instruction *i = &v->b->list[at];
    ptx_operand operand[8];
    int n = ptx_operands(v->b, i, operand);
    if (n < 0) return fault(v, at, "has the wrong number of operands");
    for (int k = 0; k < n; k++) {
        for (int e = 0; e < operand[k].length; e++) {
            const char *wrong = value_fault(v->b, operand[k].class, &operand[k].value[e]);
            if (wrong) return fault(v, at, wrong);
        }
        bool address = operand[k].class == 'S' || operand[k].class == 'G';
        if (address && operand[k].value->imm % access_bytes(ptx_ops[i->op].mnemonic, operand, n, k)) return fault(v, at, "has a misaligned offset");
    }
    if (is_guarded(i) && (i->guard.kind != PTX_KIND_P || i->guard.id >= v->b->registers[PTX_KIND_P]))
        return fault(v, at, "is guarded by a predicate that does not exist");
    return true;
}

/* An architecture-specific target, "sm_90a". */
static bool is_specific(const target *machine)
{
    size_t length = strlen(machine->name);
    return length > 0 && machine->name[length - 1] == 'a';
}

/* What the target asks for beyond an instruction's row. Columns of an integer product come in multiples of 8, above 32 of 16. */
static bool check_target(const verifier *v, size_t at)
{
    const ptx_instruction *i = &v->b->list[at];
    const ptx_op_row *row = &ptx_ops[i->op];
    if ((row->flags & PTX_FLAG_ACCEL) && !is_specific(v->b->target)) return fault(v, at, "needs an architecture-specific target");
    if (row->class == PTX_CLASS_TENSOR) {
        int columns = 2 * i->vector;
        if (columns < 8 || columns > 256 || columns % (columns > 32 ? 16 : 8)) return fault(v, at, "has a number of columns that no product has");
    }
    if (i->op == PTX_OP_setmaxnreg_inc || i->op == PTX_OP_setmaxnreg_dec) {
        int64_t registers = v->b->values[i->first].imm;
        if (registers < 24 || registers > 256 || registers % 8) return fault(v, at, "asks for registers that are no multiple of 8 from 24 to 256");
    }
    return true;
}

static bool check_each(const verifier *v)
{
    for (size_t at = 0; at < v->b->count; at++) {
        const ptx_instruction *i = &v->b->list[at];
        if (!check_operands(v, at) || !check_target(v, at)) return false;
        if (!is_guarded(i)) continue;
        if (i->op == PTX_OP_label) return fault(v, at, "is a label and must not be guarded");
        if (ptx_ops[i->op].flags & PTX_FLAG_ALIGNED) return fault(v, at, "is warp-wide and must not be guarded");
    }
    return true;
}

static bool find_labels(verifier *v)
{
    for (int l = 0; l < v->b->labels; l++) v->place[l] = v->b->count;
    for (size_t at = 0; at < v->b->count; at++) {
        const ptx_instruction *i = &v->b->list[at];
        if (i->op != PTX_OP_label) continue;
        if (v->place[label_of(v, i)] != v->b->count) return fault(v, at, "is placed twice");
        v->place[label_of(v, i)] = at;
    }
    for (size_t at = 0; at < v->b->count; at++) {
        const ptx_instruction *i = &v->b->list[at];
        if (is_branch(i) && v->place[label_of(v, i)] == v->b->count) return fault(v, at, "goes to a label that is nowhere");
    }
    return true;
}

static void find_blocks(verifier *v)
{
    v->blocks = 0;
    for (size_t at = 0; at < v->b->count; at++) {
        const ptx_instruction *i = &v->b->list[at];
        if (at == 0 || i->op == PTX_OP_label || ends_block(i - 1)) {
            v->warp_wide[v->blocks] = v->b->count;
            v->block_start[v->blocks++] = at;
        }
        if (i->op == PTX_OP_label) v->block_of_label[label_of(v, i)] = v->blocks - 1;
        size_t *first = &v->warp_wide[v->blocks - 1];
        if ((ptx_ops[i->op].flags & PTX_FLAG_ALIGNED) && *first == v->b->count) *first = at;
    }
    v->block_start[v->blocks] = v->b->count;
}

static const ptx_instruction *last_of(const verifier *v, size_t block) { return &v->b->list[v->block_start[block + 1] - 1]; }

/* Blocks that may follow; none after the last ret. */
static int successors(const verifier *v, size_t block, size_t next[2])
{
    const ptx_instruction *last = last_of(v, block);
    int n = 0;
    if (is_branch(last)) next[n++] = v->block_of_label[label_of(v, last)];
    if (falls_through(last)) next[n++] = block + 1;
    return n;
}

static void find_returns(verifier *v)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t block = v->blocks; block-- > 0;) {
            size_t next[2];
            bool returns = last_of(v, block)->op == PTX_OP_ret;
            for (int k = successors(v, block, next); k-- > 0;) returns |= v->returns[next[k]];
            changed |= returns != v->returns[block];
            v->returns[block] = returns;
        }
    }
}

/* Postdominators: the largest sets with later(block) = block + what is in later() of all that may follow. The end of the kernel and an endless loop
   have nothing later. */
static void find_later(verifier *v)
{
    size_t words = v->blocks / 64 + 1;
    memset(v->later, 0xff, v->blocks * words * sizeof *v->later);
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t block = v->blocks; block-- > 0;) {
            uint64_t *set = v->later + block * words;
            size_t next[2];
            int n = successors(v, block, next);
            bool nothing = last_of(v, block)->op == PTX_OP_ret || !v->returns[block];
            for (int k = 0; k < n; k++) nothing |= !v->returns[next[k]];
            for (size_t w = 0; w < words; w++) {
                uint64_t all = nothing ? 0 : set[w];
                for (int k = 0; k < n; k++) all &= v->later[next[k] * words + w];
                if (w == block / 64) all |= (uint64_t)1 << (block % 64);
                changed |= all != set[w];
                set[w] = all;
            }
        }
    }
}

/* A guarded branch or return that is not uniform splits a warp until all its paths have met again. Nothing warp-wide may be reached before that. */
static bool check_split(const verifier *v, size_t split)
{
    const uint64_t *met = v->later + split * (v->blocks / 64 + 1);
    size_t todo = 0, block = split, next[2];
    memset(v->seen, 0, v->blocks * sizeof *v->seen);
    for (;;) {
        for (int k = successors(v, block, next); k-- > 0;) {
            if (v->seen[next[k]] || (next[k] != split && has(met, next[k]))) continue;
            v->seen[next[k]] = true;
            v->todo[todo++] = next[k];
        }
        if (todo == 0) return true;
        block = v->todo[--todo];
        if (v->warp_wide[block] != v->b->count) return fault(v, v->warp_wide[block], "is warp-wide and lies where a warp may have diverged");
    }
}

static bool check_converged(verifier *v)
{
    find_returns(v);
    find_later(v);
    for (size_t block = 0; block < v->blocks; block++) {
        const ptx_instruction *last = last_of(v, block);
        if (is_guarded(last) && (last->op == PTX_OP_bra || last->op == PTX_OP_ret) && !check_split(v, block)) return false;
    }
    return true;
}

static uint32_t bit_of(const verifier *v, const ptx_value *x) { return v->base[x->kind] + x->id; }

/* A product that overwrites its accumulators does not read them. */
static bool overwrites(const verifier *v, const ptx_instruction *i)
{
    if (ptx_ops[i->op].class != PTX_CLASS_TENSOR) return false;
    const ptx_value *last = v->b->values + i->first + i->operands - 1;
    return last->kind == v->b->no.kind && last->id == v->b->no.id;
}

static bool check_reads(const verifier *v, size_t at, const ptx_operand *operand, int n, const uint64_t *set)
{
    const ptx_instruction *i = &v->b->list[at];
    bool fresh = overwrites(v, i);
    if (is_guarded(i) && !has(set, bit_of(v, &i->guard))) return fault(v, at, "is guarded by a predicate that was never written");
    for (int k = 0; k < n; k++) {
        if (!operand[k].read || (operand[k].written && fresh)) continue;
        for (int e = 0; e < operand[k].length; e++) {
            const ptx_value *x = &operand[k].value[e];
            if (is_register((ptx_kind)x->kind) && !has(set, bit_of(v, x))) return fault(v, at, "reads a register that may not have been written");
        }
    }
    return true;
}

/* Adds what a block writes to `set`; with report, complains about the first read of something not in it. */
static bool walk_block(const verifier *v, size_t block, uint64_t *set, bool report)
{
    for (size_t at = v->block_start[block]; at < v->block_start[block + 1]; at++) {
        ptx_operand operand[8];
        int n = ptx_operands(v->b, &v->b->list[at], operand);
        if (report && !check_reads(v, at, operand, n, set)) return false;
        if (is_guarded(&v->b->list[at])) continue;
        for (int k = 0; k < n; k++)
            for (int e = 0; operand[k].written && e < operand[k].length; e++) add(set, bit_of(v, &operand[k].value[e]));
    }
    return true;
}

static bool check_defined(verifier *v)
{
    size_t words = v->bits / 64 + 1;
    memset(v->in, 0xff, v->blocks * words * sizeof *v->in);
    memset(v->in, 0, words * sizeof *v->in);
    for (size_t block = 0; block < v->blocks; block++) walk_block(v, block, v->written + block * words, false);
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t block = 0; block < v->blocks; block++) {
            size_t next[2];
            for (int k = successors(v, block, next); k-- > 0;)
                for (size_t w = 0; w < words; w++) {
                    uint64_t *to = &v->in[next[k] * words + w], both = *to & (v->in[block * words + w] | v->written[block * words + w]);
                    changed |= both != *to;
                    *to = both;
                }
        }
    }
    for (size_t block = 0; block < v->blocks; block++)
        if (!walk_block(v, block, v->in + block * words, true)) return false;
    return true;
}

static bool allocate(verifier *v)
{
    size_t labels = (size_t)v->b->labels + 1, blocks = v->b->count + 1;
    v->place = calloc(labels, sizeof *v->place);
    v->block_of_label = calloc(labels, sizeof *v->block_of_label);
    v->block_start = calloc(blocks, sizeof *v->block_start);
    v->warp_wide = calloc(blocks, sizeof *v->warp_wide);
    return v->place && v->block_of_label && v->block_start && v->warp_wide;
}

static bool allocate_sets(verifier *v)
{
    v->returns = calloc(v->blocks, sizeof *v->returns);
    v->seen = calloc(v->blocks, sizeof *v->seen);
    v->todo = calloc(v->blocks, sizeof *v->todo);
    v->later = calloc(v->blocks * (v->blocks / 64 + 1), sizeof *v->later);
    v->in = calloc(v->blocks * (v->bits / 64 + 1), sizeof *v->in);
    v->written = calloc(v->blocks * (v->bits / 64 + 1), sizeof *v->written);
    return v->returns && v->seen && v->todo && v->later && v->in && v->written;
}

static bool out_of_memory(const verifier *v)
{
    return gen_fail(v->err, "out of memory while verifying %s; free some memory and try again", v->b->entry);
}

static bool check_all(verifier *v)
{
    if (!check_kernel(v)) return false;
    if (!allocate(v)) return out_of_memory(v);
    if (!check_each(v) || !find_labels(v)) return false;
    find_blocks(v);
    if (!allocate_sets(v)) return out_of_memory(v);
    return check_converged(v) && check_defined(v);
}

bool ptx_verify(const ptx_builder *b, gen_error *err)
{
    verifier v = {.b = b, .err = err};
    if (b->failed) {
        if (err) *err = b->error;
        return false;
    }
    for (int k = PTX_KIND_P; k <= PTX_KIND_L; k++) {
        v.base[k] = v.bits;
        v.bits += b->registers[k];
    }
    bool ok = check_all(&v);
    free(v.place);
    free(v.block_of_label);
    free(v.block_start);
    free(v.warp_wide);
    free(v.returns);
    free(v.seen);
    free(v.todo);
    free(v.later);
    free(v.in);
    free(v.written);
    return ok;
}
