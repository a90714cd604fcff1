/* Which pages hold which tokens: lengths, and a page table of shuffled page numbers, padded or CSR. */
#include "paging.h"

#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "random.h"

enum { NEVER_LOOKED_UP = 0x3fffffff, SPARE_PAGES = 3 };

int32_t paging_count(const paging *p, int sequence)
{
    return (p->lengths[sequence] + p->page_tokens - 1) / p->page_tokens;
}

int64_t paging_tokens(const paging *p)
{
    int64_t sum = 0;
    for (int b = 0; b < p->batch; b++) sum += p->lengths[b];
    return sum;
}

/* Lengths, row starts and an empty table. */
static void make_rows(paging *out, int batch, const int32_t *lengths, int page_tokens, bool csr)
{
    *out = (paging){.batch = batch, .page_tokens = page_tokens, .csr = csr};
    out->lengths = tool_allocate((size_t)batch * sizeof *out->lengths);
    memcpy(out->lengths, lengths, (size_t)batch * sizeof *out->lengths);
    int32_t longest = 1;
    for (int b = 0; b < batch; b++)
        if (paging_count(out, b) > longest) longest = paging_count(out, b);
    out->table_stride = csr ? 0 : longest + 1;
    out->indptr = tool_allocate((size_t)(batch + 1) * sizeof *out->indptr);
    for (int b = 0; b < batch; b++)
        out->indptr[b + 1] = out->indptr[b] + (csr ? paging_count(out, b) : out->table_stride);
    out->entries = out->indptr[batch];
    out->table = tool_allocate((size_t)(out->entries + 1) * sizeof *out->table);
    for (int64_t i = 0; i <= out->entries; i++) out->table[i] = NEVER_LOOKED_UP;
}

void paging_make(paging *out, int batch, const int32_t *lengths, int page_tokens, bool csr, int32_t pool, uint64_t seed)
{
    make_rows(out, batch, lengths, page_tokens, csr);
    out->pages = SPARE_PAGES;
    for (int b = 0; b < batch; b++) out->pages += paging_count(out, b);
    if (out->pages < pool) out->pages = pool;
    int32_t *shuffled = tool_allocate((size_t)out->pages * sizeof *shuffled);
    for (int32_t i = 0; i < out->pages; i++) {
        int32_t j = (int32_t)(random_bits(seed, (uint64_t)i) % (uint64_t)(i + 1));
        shuffled[i] = shuffled[j];
        shuffled[j] = i;
    }
    int32_t used = 0;
    for (int b = 0; b < batch; b++)
        for (int32_t i = 0; i < paging_count(out, b); i++) out->table[out->indptr[b] + i] = shuffled[used++];
    free(shuffled);
}

void paging_share(paging *out, const paging *owner, int batch, const int32_t *lengths, bool csr)
{
    make_rows(out, batch, lengths, owner->page_tokens, csr);
    out->pages = owner->pages;
    for (int b = 0; b < batch; b++)
        for (int32_t i = 0; i < paging_count(out, b); i++)
            out->table[out->indptr[b] + i] = owner->table[owner->indptr[0] + i];
}

void paging_finish(paging *p)
{
    free(p->lengths);
    free(p->indptr);
    free(p->table);
    memset(p, 0, sizeof *p);
}
