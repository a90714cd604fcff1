/* The header of a .safetensors file: parsed and judged as a whole, so that what is read from it later is what it says.
 */
#ifndef FOSCAR_TOOLS_SAFETENSORS_HEADER_H
#define FOSCAR_TOOLS_SAFETENSORS_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cJSON.h>

#include "error.h"

/* Parses the header of `length` bytes (data_bytes of tensors follow it) and refuses what the format does not allow:
   text that is no JSON object or has anything but spaces behind it, a name given twice or with a NUL, metadata that are
   no strings, tensors whose offsets do not fit shape and type, and tensors that overlap, lie outside of the data or
   leave bytes that belong to none. *out is the caller's; NULL on failure, with the reason (without the file) in err. */
bool safetensors_parse_header(const char *text, size_t length, size_t data_bytes, cJSON **out, gen_error *err);

/* Bits of an element; 0: no type of the format. */
int safetensors_type_bits(const char *type);

/* A whole number of a JSON array, or -1. */
int64_t safetensors_whole_number(const cJSON *array, int index);

#endif
