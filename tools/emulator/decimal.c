/* strtod, in the C locale. */
#include "decimal.h"

#include <locale.h>
#include <stdlib.h>

bool decimal_parse(const char *text, double *value)
{
    char *end = (char *)text;
    /* setlocale would change it for all threads of the program; this one only. */
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (c == (locale_t)0) return false;
    locale_t before = uselocale(c);
    *value = strtod(text, &end);
    (void)uselocale(before);
    freelocale(c);
    return end != text && *end == '\0';
}
