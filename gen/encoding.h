/* Codes and number types: the tables of encoding.c. */
#ifndef FOSCAR_GEN_ENCODING_H
#define FOSCAR_GEN_ENCODING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Number types of Q, of the output and of the metadata: a row of encoding.c. */
typedef enum number_type { NUMBER_BF16, NUMBER_F16, NUMBER_F32, NUMBER_TYPES } number_type;

typedef struct number_row {
    const char *name; /* as in a spec: "bf16" */
    int bytes;        /* of one element in memory */
} number_row;

const number_row *number_info(number_type type);
bool number_find(const char *name, size_t length, number_type *out);

/* How codes of one bit width lie in a 32-bit register of four 8-bit tensor-core operands: a row of encoding.c.
   Field f of a byte is isolated by one AND with `mask << (bits * f)` and is then worth code * 2^(bits * f). */
typedef struct encoding {
    int bits;           /* of one code: 2 or 4 */
    int fields;         /* codes of one byte: 8 / bits */
    uint32_t mask;      /* field 0 of all four bytes */
    int codes_per_word; /* 32 / bits */
} encoding;

const encoding *encoding_find(int bits);
const encoding *encoding_row(int index); /* NULL past the end */

#endif
