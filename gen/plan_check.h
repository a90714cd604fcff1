/* The check of a plan, made before anything is emitted from it. */
#ifndef FOSCAR_GEN_PLAN_CHECK_H
#define FOSCAR_GEN_PLAN_CHECK_H

#include "plan.h"

/* Whether the numbers of a plan agree with each other and with its target. Refused are plans whose kernel the driver would not start, whose areas of
   shared memory overlap, or whose warps would wait for registers that nobody gives back. A fault found here is one of the planner; err says which. */
bool decode_plan_check(const decode_plan *plan, gen_error *err);

#endif
