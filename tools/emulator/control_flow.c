/* Where the lanes of a branch meet again: the immediate postdominators, by Lengauer and Tarjan's algorithm ("A fast
 * algorithm for finding dominators in a flowgraph", 1979) with path compression on the reversed graph, in time n log n.
 *
 * Nodes are basic blocks and, as the last one, the exit of the entry. Blocks that never reach the exit have no
 * postdominator. */
#include <stdlib.h>
#include <string.h>

#include "parse.h"

typedef struct graph {
    int blocks;      /* the exit is node `blocks` */
    int *first;      /* [blocks + 1] instruction that begins the block */
    int (*next)[2];  /* [blocks] successors, -1: none */
    int *edge_begin; /* [blocks + 2] of predecessors: the edges of the reversed graph, which are walked forwards */
    int *edge;

    /* Of the depth-first walk; numbers are from 0 in order of the walk. */
    int *number, *node, *parent; /* number of a node or -1; node, and parent's number, of a number */
    int *semi, *ancestor, *label, *idom, *bucket, *bucket_next, *stack;
} graph;

static bool ends_block(const instruction *i)
{
    return i->form->flags & (FORM_BRANCH | FORM_EXIT);
}

/* Fills block[instruction], first and blocks. */
static bool find_blocks(graph *g, const entry *e, int *block)
{
    unsigned char *leads = calloc((size_t)e->count + 1, 1);
    if (!leads) return false;
    leads[0] = 1;
    for (int i = 0; i < e->count; i++) {
        if (ends_block(&e->instructions[i])) leads[i + 1] = 1;
        if (e->instructions[i].form->flags & FORM_BRANCH) leads[e->instructions[i].operand[0].target] = 1;
    }
    for (int i = 0; i < e->count; i++) g->blocks += leads[i];
    g->first = malloc(((size_t)g->blocks + 1) * sizeof *g->first);
    if (g->first) {
        int b = -1;
        for (int i = 0; i < e->count; i++) {
            if (leads[i]) g->first[++b] = i;
            block[i] = b;
        }
        g->first[g->blocks] = e->count;
    }
    free(leads);
    return g->first;
}

static void find_successors(graph *g, const entry *e, const int *block)
{
    for (int b = 0; b < g->blocks; b++) {
        const instruction *last = &e->instructions[g->first[b + 1] - 1];
        bool falls = !ends_block(last) || last->guard >= 0;
        g->next[b][0] = falls ? b + 1 : -1; /* after the last block comes the exit */
        g->next[b][1] = -1;
        if (last->form->flags & FORM_BRANCH) g->next[b][1] = block[last->operand[0].target];
        if (last->form->flags & FORM_EXIT) g->next[b][1] = g->blocks;
    }
}

/* Predecessors of each node, as lists in one array. */
static void find_predecessors(graph *g)
{
    for (int b = 0; b < g->blocks; b++)
        for (int k = 0; k < 2; k++)
            if (g->next[b][k] >= 0) g->edge_begin[g->next[b][k] + 1]++;
    for (int b = 0; b <= g->blocks; b++) g->edge_begin[b + 1] += g->edge_begin[b];
    int *fill = g->stack; /* not in use yet */
    memcpy(fill, g->edge_begin, ((size_t)g->blocks + 1) * sizeof *fill);
    for (int b = 0; b < g->blocks; b++)
        for (int k = 0; k < 2; k++)
            if (g->next[b][k] >= 0) g->edge[fill[g->next[b][k]]++] = b;
}

/* Numbers the nodes that reach the exit; returns how many. */
static int walk(graph *g, int *cursor)
{
    int count = 0, top = 0;
    for (int b = 0; b <= g->blocks; b++) g->number[b] = -1;
    memcpy(cursor, g->edge_begin, ((size_t)g->blocks + 1) * sizeof *cursor);
    g->number[g->blocks] = 0;
    g->node[0] = g->blocks;
    g->parent[0] = -1;
    g->stack[top++] = g->blocks;
    count = 1;
    while (top > 0) {
        int at = g->stack[top - 1];
        if (cursor[at] == g->edge_begin[at + 1]) {
            top--;
            continue;
        }
        int to = g->edge[cursor[at]++];
        if (g->number[to] >= 0) continue;
        g->number[to] = count;
        g->node[count] = to;
        g->parent[count] = g->number[at];
        count++;
        g->stack[top++] = to;
    }
    return count;
}

/* The number with the smallest semidominator on the way up from v; shortens the way. */
static int evaluate(graph *g, int v)
{
    if (g->ancestor[v] < 0) return v;
    int top = 0;
    for (int u = v; g->ancestor[g->ancestor[u]] >= 0; u = g->ancestor[u]) g->stack[top++] = u;
    while (top > 0) {
        int u = g->stack[--top], above = g->ancestor[u];
        if (g->semi[g->label[above]] < g->semi[g->label[u]]) g->label[u] = g->label[above];
        g->ancestor[u] = g->ancestor[above];
    }
    return g->label[v];
}

static void find_dominators(graph *g, int count)
{
    for (int v = 0; v < count; v++) {
        g->semi[v] = g->label[v] = v;
        g->ancestor[v] = g->bucket[v] = -1;
        g->idom[v] = 0;
    }
    for (int w = count - 1; w > 0; w--) {
        int node = g->node[w], parent = g->parent[w];
        for (int k = 0; k < 2; k++) { /* successors in the program are predecessors in the reversed graph */
            int to = g->next[node][k];
            if (to < 0 || g->number[to] < 0) continue;
            int u = evaluate(g, g->number[to]);
            if (g->semi[u] < g->semi[w]) g->semi[w] = g->semi[u];
        }
        g->bucket_next[w] = g->bucket[g->semi[w]];
        g->bucket[g->semi[w]] = w;
        g->ancestor[w] = parent;
        for (int v = g->bucket[parent]; v >= 0; v = g->bucket_next[v]) {
            int u = evaluate(g, v);
            g->idom[v] = g->semi[u] < g->semi[v] ? u : parent;
        }
        g->bucket[parent] = -1;
    }
    for (int w = 1; w < count; w++)
        if (g->idom[w] != g->semi[w]) g->idom[w] = g->idom[g->idom[w]];
}

static bool allocate(graph *g, int **cursor)
{
    size_t n = (size_t)g->blocks + 2;
    int **arrays[] = {&g->edge_begin, &g->number, &g->node,   &g->parent,      &g->semi,  &g->ancestor,
                      &g->label,      &g->idom,   &g->bucket, &g->bucket_next, &g->stack, cursor};
    bool all = true;
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        *arrays[i] = calloc(n, sizeof(int));
        all = all && *arrays[i];
    }
    g->next = calloc(n, sizeof *g->next);
    g->edge = calloc(2 * n, sizeof *g->edge);
    return all && g->next && g->edge;
}

static void finish(graph *g)
{
    int *arrays[] = {g->first,    g->edge_begin, g->edge, g->number, g->node,        g->parent, g->semi,
                     g->ancestor, g->label,      g->idom, g->bucket, g->bucket_next, g->stack};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    free(g->next);
}

bool control_flow_reconvergence(entry *e)
{
    graph g = {0};
    int *block = malloc((size_t)e->count * sizeof *block), *cursor = NULL;
    bool done = block && find_blocks(&g, e, block) && allocate(&g, &cursor);
    if (done) {
        find_successors(&g, e, block);
        find_predecessors(&g);
        find_dominators(&g, walk(&g, cursor));
        for (int i = 0; i < e->count; i++) {
            instruction *branch = &e->instructions[i];
            int number = g.number[block[i]];
            if (!(branch->form->flags & FORM_BRANCH) || branch->guard < 0 || number < 0) continue;
            int meet = g.node[g.idom[number]];
            branch->reconverge = meet == g.blocks ? -1 : g.first[meet];
        }
    }
    free(block);
    free(cursor);
    finish(&g);
    return done;
}
