/* The Hopper decode kernel (decode_hopper.c). */
#ifndef FOSCAR_TEMPLATES_DECODE_HOPPER_H
#define FOSCAR_TEMPLATES_DECODE_HOPPER_H

#include "../gen/plan.h"
#include "../gen/ptx.h"

/* Emits the whole kernel for a plan into an initialised builder; errors stick in the builder. */
void decode_hopper_emit(ptx_builder *b, const decode_plan *plan);

#endif
