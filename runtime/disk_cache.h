/* Assembled kernels as files: one file per key. Every failure is a miss, never an error; it leaves its reason and no file.
 *
 * A file is <64 hex digits of the key>.foscar: a header of DISK_HEADER_BYTES, little-endian, then the cubin.
 *      0  magic "FOSCARC\0"             40  bytes of the cubin, 8          64  SHA-256 of bytes 0 .. 63 and of the cubin, 32
 *      8  key, 32 (echoed)              48  registers, spill, stack, version, 4 each
 * It is written to a temporary name in the same directory, synced and renamed, so a reader sees a whole file or none, and a damaged one is
 * removed when it is found. */
#ifndef FOSCAR_RUNTIME_DISK_CACHE_H
#define FOSCAR_RUNTIME_DISK_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "foscar.h"

enum { DISK_KEY_BYTES = 32, DISK_HEADER_BYTES = 96, DISK_VERSION = 1, DISK_DIRECTORY_MAX = 512, DISK_PROBLEM_MAX = 256 };

typedef struct disk_key {
    unsigned char bytes[DISK_KEY_BYTES];
} disk_key;

/* A field of a key. Keys hash the length of each field before it, so no two lists of fields run together. */
typedef struct disk_field {
    const void *data;
    size_t length;
} disk_field;

/* SHA-256 over the fields; false when libcrypto fails (then nothing is cached). */
bool disk_key_make(const disk_field *fields, size_t count, disk_key *key);

typedef struct disk_cache {
    char directory[DISK_DIRECTORY_MAX]; /* empty: no disk cache */
    char problem[128];                  /* why it is empty */
} disk_cache;

/* Chooses the directory: `directory` if not NULL, else $FOSCAR_CACHE_DIR, $XDG_CACHE_HOME/foscar, $HOME/.cache/foscar. Touches no file. */
void disk_cache_choose(disk_cache *cache, const char *directory);

/* Makes the directory (mode 0700) if it is not there. False with the reason when files cannot be kept in it safely. */
bool disk_cache_usable(const disk_cache *cache, char *problem, size_t size);

/* Fills cubin, bytes, registers, spill_bytes and stack_bytes of *image and returns true on a hit. A miss has a reason in
   `problem` if more is wrong than that there is no such file or that it is damaged (then it is removed); else that is empty. */
bool disk_cache_load(const disk_cache *cache, const disk_key *key, foscar_image *image, char problem[DISK_PROBLEM_MAX]);

/* Keeps an image, so that the next run need not assemble again; false: it could not be, with the reason. */
bool disk_cache_store(const disk_cache *cache, const disk_key *key, const foscar_image *image, char problem[DISK_PROBLEM_MAX]);

#endif
