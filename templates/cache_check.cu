/* Cache kernels, part 6: check the lengths and page tables of a batch. A block looks at one sequence; the last block to
 * finish looks again at the lowest sequence in which something is wrong and reports it, so the report does not depend
 * on the order of the blocks. */

/* The numbers of check_code in gen/cache_kernels.h. */
enum { OFFENCE_NONE, OFFENCE_TABLE, OFFENCE_LENGTH, OFFENCE_PAGES, OFFENCE_TOKENS, OFFENCE_PAGE };

/* cache_check_result of gen/cache_kernels.h; filled with bytes 0xff before the launch. */
typedef struct check_result {
    int code, sequence, entry, value;
    unsigned first;       /* lowest sequence with an offence so far */
    unsigned blocks_done; /* less 1 */
    unsigned reserved[2];
} check_result;

typedef struct check_input {
    const int *page_table, *page_indptr, *lengths, *token_indptr;
    int table_stride, table_entries, tokens, pages_count;
} check_input;

typedef struct offence {
    int code, entry, value;
} offence;

/* What can be seen without reading the page table, in the order of the codes. */
DEVICE offence inspect_numbers(check_input in, int sequence)
{
    int from = in.page_indptr ? in.page_indptr[sequence] : 0,
        to = in.page_indptr ? in.page_indptr[sequence + 1] : in.table_stride;
    int length = in.lengths[sequence];
    offence found = {OFFENCE_NONE, -1, 0};
    if (from < 0 || to < from || (in.page_indptr && to > in.table_entries)) {
        found.code = OFFENCE_TABLE;
        found.value = from < 0 ? from : to;
    } else if (length < 0) {
        found.code = OFFENCE_LENGTH;
        found.value = length;
    } else if (length > 0 && (length - 1) / PAGE_TOKENS >= to - from) {
        found.code = OFFENCE_PAGES;
        found.entry = to - from;
        found.value = length;
    } else if (in.token_indptr) {
        int first = in.token_indptr[sequence], next = in.token_indptr[sequence + 1];
        if (first < 0 || next < first || next > in.tokens || next - first > length) {
            found.code = OFFENCE_TOKENS;
            found.value = next - first;
        }
    }
    return found;
}

/* The first offence of a sequence, found by the whole block and known to every thread. */
DEVICE offence inspect(check_input in, int sequence)
{
    __shared__ int lowest;
    offence found = inspect_numbers(in, sequence);
    if (found.code != OFFENCE_NONE) return found;
    long long row = in.page_indptr ? (long long)in.page_indptr[sequence] : (long long)sequence * in.table_stride;
    int length = in.lengths[sequence], needed = length > 0 ? (length - 1) / PAGE_TOKENS + 1 : 0;
    if (threadIdx.x == 0) lowest = needed;
    __syncthreads();
    for (int entry = (int)threadIdx.x; entry < needed; entry += THREADS_CHECK) {
        int page = in.page_table[row + entry];
        if (page < 0 || page >= in.pages_count) {
            atomicMin(&lowest, entry);
            break;
        }
    }
    __syncthreads();
    if (lowest < needed) {
        found.code = OFFENCE_PAGE;
        found.entry = lowest;
        found.value = in.page_table[row + lowest];
    }
    __syncthreads(); /* lowest is written again by the next inspection */
    return found;
}

ENTRY(THREADS_CHECK, 8)
foscar_check(const int *page_table, const int *page_indptr, const int *lengths, const int *token_indptr,
             check_result *result, int table_stride, int table_entries, int tokens, int batch, int pages_count)
{
    __shared__ unsigned lowest_sequence, is_last;
    check_input in = {page_table, page_indptr, lengths, token_indptr, table_stride, table_entries, tokens, pages_count};
    offence found = inspect(in, (int)blockIdx.x);
    if (threadIdx.x == 0) {
        if (found.code != OFFENCE_NONE) atomicMin(&result->first, blockIdx.x);
        __threadfence();
        is_last = atomicAdd(&result->blocks_done, 1u) + 2u == (unsigned)batch; /* counts from 0xffffffff */
        if (is_last) lowest_sequence = atomicMin(&result->first, 0xffffffffu);
    }
    __syncthreads();
    if (!is_last) return;
    if (lowest_sequence < (unsigned)batch) found = inspect(in, (int)lowest_sequence);
    if (threadIdx.x == 0) {
        result->code = found.code;
        result->sequence = found.code == OFFENCE_NONE ? -1 : (int)lowest_sequence;
        result->entry = found.entry;
        result->value = found.value;
    }
}
