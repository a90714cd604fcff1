/* Cache kernels, part 7: merge the partial results of a decode launch (workspace format: gen/plan.h).
 *
 *   worker     w       w + 1   w + 2   ...   w + n
 *   slot 0     .       OPEN    OPEN          LAST     A chain: one item, whose first partial result
 *   slot 1     OPEN    NONE    NONE          .        is in slot 1 of w and the others in slot 0.
 *
 * A block looks after MERGE_WORKERS workers and a few heads, so that the whole grid is resident while decode ends. Its threads are SLICES x CELLS: a
 * cell is four channels of one head. When only short chains begin at its workers (much work), each slice merges one; otherwise (little work, long chains)
 * one chain after the other is shared out, every SLICES-th partial result to a slice, and slices meet in shared memory. */
enum {
    COLUMNS = HEAD_DIM / 4,
    BLOCK_HEADS = HEADS < MERGE_HEADS ? HEADS : MERGE_HEADS,
    CELLS = BLOCK_HEADS * COLUMNS,
    SLICES = THREADS_MERGE / CELLS,
    IN_FLIGHT = 8,  /* partial results that a thread loads at once */
    STATE_OPEN = 1, /* segment_state of gen/plan.h */
    STATE_LAST = 2,
    RECORD_INTS = 4
};

#define MINUS_INFINITY __uint_as_float(0xff800000u)

/* A weighted mean of values with weights 2^lse2: the sums of weight * value and of weights, relative to 2^maximum. */
typedef struct mean {
    float maximum, sum;
    float4 total;
} mean;

DEVICE mean mean_rescaled(mean a, float maximum)
{
    float factor = a.maximum == maximum ? 1.0f : exp2f(a.maximum - maximum);
    a.maximum = maximum;
    a.sum *= factor;
    a.total.x *= factor;
    a.total.y *= factor;
    a.total.z *= factor;
    a.total.w *= factor;
    return a;
}

/* Adds a value; one of weight 0 (lse2 = -infinity) may hold anything. */
DEVICE mean mean_add(mean a, float lse2, float weight, float4 value)
{
    if (lse2 == MINUS_INFINITY) return a;
    float factor = exp2f(lse2 - a.maximum);
    a.sum += weight * factor;
    a.total.x += value.x * factor;
    a.total.y += value.y * factor;
    a.total.z += value.z * factor;
    a.total.w += value.w * factor;
    return a;
}

/* Partial results of the chain that begins at a worker, 1 if it is alone; found by one warp. 0 if no chain begins
 * there. */
DEVICE int chain_length(const int *records, int worker, int workers, int lane)
{
    int own = __ldcg(records + (worker * 2 + 1) * RECORD_INTS); /* in flight together with the first of the others */
    for (int base = worker + 1; base < workers; base += 32) {
        int next = base + lane, state = next < workers ? __ldcg(records + next * 2 * RECORD_INTS) : STATE_LAST;
        if (own != STATE_OPEN) return 0;
        unsigned last = __ballot_sync(ALL_LANES, state == STATE_LAST);
        if (last != 0) {
            int end = base + __ffs((int)last);
            return (end < workers ? end : workers) - worker;
        }
    }
    return own == STATE_OPEN ? workers - worker : 0;
}

/* The mean over every stride-th partial result of the chain, of one cell. */
DEVICE mean merge_slice(const byte *partials, int worker, int links, int head, int column, int slice, int stride)
{
    mean result = {MINUS_INFINITY, 0.0f, {0.0f, 0.0f, 0.0f, 0.0f}};
    const int step = 2 * PARTIAL_BYTES; /* from one worker to the next */
    for (int base = slice; base < links; base += stride * IN_FLIGHT) {
        const byte *first = partials + (long long)(worker + base) * step;
        float4 value[IN_FLIGHT];
        float lse2[IN_FLIGHT], maximum = result.maximum;
#pragma unroll
        for (int i = 0; i < IN_FLIGHT; i++) {
            int link = base + i * stride;
            const byte *partial = first + i * stride * step;
            if (i == 0 && link == 0)
                partial += PARTIAL_BYTES; /* the first of the chain lies in slot 1, the others in slot 0 */
            lse2[i] = MINUS_INFINITY;
            if (link >= links) continue;
            lse2[i] = __ldcg((const float *)partial + HEADS * HEAD_DIM + head);
            value[i] = __ldcg((const float4 *)partial + head * COLUMNS + column);
        }
#pragma unroll
        for (int i = 0; i < IN_FLIGHT; i++) maximum = fmaxf(maximum, lse2[i]);
        result = mean_rescaled(result, maximum);
#pragma unroll
        for (int i = 0; i < IN_FLIGHT; i++) result = mean_add(result, lse2[i], 1.0f, value[i]);
    }
    return result;
}

/* The mean of a cell over all slices. */
DEVICE mean merge_cell(const mean *slices, int cell)
{
    mean result = slices[cell];
    for (int slice = 1; slice < SLICES; slice++) {
        mean other = slices[slice * CELLS + cell];
        result = mean_rescaled(result, fmaxf(result.maximum, other.maximum));
        result = mean_add(result, other.maximum, other.sum, other.total);
    }
    return result;
}

/* Where results go. */
typedef struct merge_target {
    const byte *workspace;
    byte *out;
    float *lse;
    long long out_stride;
    int workers, kv_heads;
} merge_target;

DEVICE const byte *partials_of(merge_target t)
{
    return t.workspace + (long long)t.workers * 2 * RECORD_INTS * 4;
}

/* Writes one cell of an item. */
DEVICE void store_cell(merge_target t, int item, int head, int column, mean result)
{
    long long row = (long long)(item % t.kv_heads) * HEADS + head;
    float inverse = result.sum == 0.0f ? 0.0f : __fdiv_rn(1.0f, result.sum); /* the output is 0 if all weights were */
    float mean_value[4] = {result.total.x * inverse, result.total.y * inverse, result.total.z * inverse,
                           result.total.w * inverse};
    OF(store_, O_TYPE)(t.out + item / t.kv_heads * t.out_stride, row * HEAD_DIM + column * 4, mean_value);
    if (t.lse && column == 0) t.lse[(long long)item * HEADS + head] = 0.69314718f * (result.maximum + log2f(result.sum));
}

/* Merges one chain by all slices. */
DEVICE void merge_chain(merge_target t, int item, int worker, int links, int head, int column, int slice, bool active)
{
    __shared__ mean slices[SLICES * CELLS];
    int thread = (int)threadIdx.x;
    __syncthreads(); /* the chain before has been read from the slices */
    if (active) slices[thread] = merge_slice(partials_of(t), worker, links, head, column, slice, SLICES);
    __syncthreads();
    if (active && slice == 0) store_cell(t, item, head, column, merge_cell(slices, thread));
}

ENTRY(THREADS_MERGE, 3)
foscar_merge(const byte *workspace, byte *out, float *lse, long long out_stride, int workers, int kv_heads)
{
    __shared__ int links[MERGE_WORKERS], item[MERGE_WORKERS];
    merge_target t = {workspace, out, lse, out_stride, workers, kv_heads};
    int thread = (int)threadIdx.x, warp = thread / 32, lane = thread % 32, first = (int)blockIdx.x * MERGE_WORKERS;
    int cell = thread % CELLS, slice = thread / CELLS, column = cell % COLUMNS, head = (int)blockIdx.y * BLOCK_HEADS + cell / COLUMNS;
    bool active = slice < SLICES && head < HEADS, all_short = true;
    wait_for_previous_kernel();
    if (warp < MERGE_WORKERS) {
        const int *records = (const int *)workspace;
        int worker = first + warp, own = lane == 0 && worker < workers ? __ldcg(records + (worker * 2 + 1) * RECORD_INTS + 1) : 0;
        int length = worker < workers ? chain_length(records, worker, workers, lane) : 0;
        if (lane == 0) links[warp] = length, item[warp] = own;
    }
    __syncthreads();
    for (int k = 0; k < MERGE_WORKERS; k++) all_short = all_short && links[k] <= IN_FLIGHT;
    if (all_short) {
        for (int k = slice; active && k < MERGE_WORKERS; k += SLICES)
            if (links[k] != 0)
                store_cell(t, item[k], head, column, merge_slice(partials_of(t), first + k, links[k], head, column, 0, 1));
        return;
    }
    for (int k = 0; k < MERGE_WORKERS; k++)
        if (links[k] != 0) merge_chain(t, item[k], first + k, links[k], head, column, slice, active);
}
