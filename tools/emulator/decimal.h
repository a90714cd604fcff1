/* Decimal numbers in texts: their point is a point, whatever the locale of the program. */
#ifndef FOSCAR_EMULATOR_DECIMAL_H
#define FOSCAR_EMULATOR_DECIMAL_H

#include <stdbool.h>

/* The number that the whole text is, rounded to nearest even. False: it is none. */
bool decimal_parse(const char *text, double *value);

#endif
