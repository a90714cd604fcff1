/* What a warp and a block keep of matrix products in flight: shared by wgmma.c, tcgen05*.c and tensor_memory.c only. */
#ifndef FOSCAR_EMULATOR_TENSOR_STATE_H
#define FOSCAR_EMULATOR_TENSOR_STATE_H

#include "tensor.h"

struct wgmma_state;
struct tcgen05_state;

/* warp.tensor: both made at first use. */
typedef struct tensor_state {
    struct wgmma_state *wgmma;
    struct tcgen05_state *tcgen05;
} tensor_state;

void wgmma_end(const warp *w); /* EXIT if products are outstanding */
void wgmma_finish(warp *w);    /* frees */
void tcgen05_end(const warp *w);
void tcgen05_finish(warp *w);

#endif
