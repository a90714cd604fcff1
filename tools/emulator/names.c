/* Hash tables of names that forget the newest first, as scopes need it. */
#include "names.h"

#include <stdlib.h>
#include <string.h>

/* The table's address takes part, so that no text can be written whose names all collide. */
static uint64_t hash_name(const name_table *t, const char *text, size_t length, int scope)
{
    uint64_t h = 0x9e3779b97f4a7c15u ^ (uint64_t)(uintptr_t)t ^ ((uint64_t)(unsigned)scope << 32);
    while (length >= 8) {
        uint64_t word;
        memcpy(&word, text, 8);
        h = (h ^ word) * 0xff51afd7ed558ccdu;
        h ^= h >> 29;
        text += 8;
        length -= 8;
    }
    uint64_t word = length;
    for (size_t i = 0; i < length; i++) word |= (uint64_t)(unsigned char)text[i] << (8 * i + 8);
    h = (h ^ word) * 0xff51afd7ed558ccdu;
    return h ^ (h >> 31);
}

int names_find(const name_table *t, const char *text, size_t length, int scope)
{
    if (t->bucket_count == 0) return -1;
    uint64_t hash = hash_name(t, text, length, scope);
    for (int i = t->buckets[hash & (uint64_t)(t->bucket_count - 1)]; i >= 0; i = t->entries[i].next) {
        const name_entry *e = &t->entries[i];
        if (e->hash == hash && e->scope == scope && e->length == length && memcmp(e->text, text, length) == 0)
            return e->value;
    }
    return -1;
}

static void link_entry(name_table *t, int index)
{
    int *bucket = &t->buckets[t->entries[index].hash & (uint64_t)(t->bucket_count - 1)];
    t->entries[index].next = *bucket;
    *bucket = index;
}

static bool grow(name_table *t)
{
    if (t->count == t->capacity) {
        int capacity = t->capacity ? 2 * t->capacity : 64;
        name_entry *entries = realloc(t->entries, (size_t)capacity * sizeof *entries);
        if (!entries) return false;
        t->entries = entries;
        t->capacity = capacity;
    }
    if (t->count < t->bucket_count) return true;
    int bucket_count = t->bucket_count ? 2 * t->bucket_count : 64;
    int *buckets = malloc((size_t)bucket_count * sizeof *buckets);
    if (!buckets) return false;
    free(t->buckets);
    t->buckets = buckets;
    t->bucket_count = bucket_count;
    for (int i = 0; i < bucket_count; i++) buckets[i] = -1;
    for (int i = 0; i < t->count; i++) link_entry(t, i); /* the newest in front again */
    return true;
}

bool names_add(name_table *t, const char *text, size_t length, int scope, int value)
{
    if (!grow(t)) return false;
    t->entries[t->count] = (name_entry){
        .text = text, .length = length, .hash = hash_name(t, text, length, scope), .scope = scope, .value = value};
    link_entry(t, t->count++);
    return true;
}

void names_pop(name_table *t, int count)
{
    while (t->count > count) {
        const name_entry *e = &t->entries[--t->count];
        t->buckets[e->hash & (uint64_t)(t->bucket_count - 1)] = e->next;
    }
}

void names_finish(name_table *t)
{
    free(t->entries);
    free(t->buckets);
    *t = (name_table){0};
}
