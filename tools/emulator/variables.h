/* Addresses of a module's variables and functions in generic addressing. */
#ifndef FOSCAR_EMULATOR_VARIABLES_H
#define FOSCAR_EMULATOR_VARIABLES_H

#include "emulator.h"

/* Of a shared, local or framed symbol its offset. */
uint64_t variables_address(const emulator_variables *v, int symbol);

#endif
