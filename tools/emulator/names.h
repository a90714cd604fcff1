/* Tables of names: text, with a number that tells apart names of several scopes, to a value. The newest of equal names
 * is found. */
#ifndef FOSCAR_EMULATOR_NAMES_H
#define FOSCAR_EMULATOR_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct name_entry {
    const char *text; /* not owned */
    size_t length;
    uint64_t hash;
    int scope, value, next;
} name_entry;

typedef struct name_table {
    name_entry *entries;
    int count, capacity;
    int *buckets;
    int bucket_count; /* power of two */
} name_table;

int names_find(const name_table *t, const char *text, size_t length, int scope);      /* the value, -1: none */
bool names_add(name_table *t, const char *text, size_t length, int scope, int value); /* false: no memory */
void names_pop(name_table *t, int count); /* forgets the newest, down to count */
void names_finish(name_table *t);

#endif
