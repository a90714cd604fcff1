/* Which pages hold which tokens: lengths, and a page table of shuffled page numbers, padded or CSR. */
#ifndef FOSCAR_TOOLS_PAGING_H
#define FOSCAR_TOOLS_PAGING_H

#include <stdbool.h>
#include <stdint.h>

typedef struct paging {
    int batch, page_tokens;
    bool csr;
    int32_t *lengths; /* [batch] */
    int32_t *indptr;  /* [batch + 1], first entry of each sequence; also filled for a padded table */
    int32_t *table;   /* [entries]; padding holds a page number that must never be looked up */
    int64_t entries;
    int table_stride; /* entries of a row of a padded table, at least 1; 0 for CSR */
    int32_t pages;    /* of the pool: those of the table and a few that no sequence owns */
} paging;

/* Every sequence gets pages of its own, at random places of a pool of `pool` pages, or of as many as are needed and a
 * few more if that is larger. */
void paging_make(paging *out, int batch, const int32_t *lengths, int page_tokens, bool csr, int32_t pool,
                 uint64_t seed);

/* Sequences that all begin with the first pages of sequence 0 of another table. */
void paging_share(paging *out, const paging *owner, int batch, const int32_t *lengths, bool csr);

void paging_finish(paging *p); /* a zeroed struct is fine */

int64_t paging_tokens(const paging *p);              /* sum of the lengths */
int32_t paging_count(const paging *p, int sequence); /* pages of a sequence */

#endif
