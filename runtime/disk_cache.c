/* The plain disk cache; the file format and its rules are in the header. */
#define _GNU_SOURCE 1 /* mkostemp */
#include "disk_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cubin.h"
#include "file.h"

enum { FILE_LIMIT = 64 << 20, FILE_PATH_MAX = DISK_DIRECTORY_MAX + 96 };
enum { AT_KEY = 8, AT_BYTES = 40, AT_REGISTERS = 48, AT_SPILL = 52, AT_STACK = 56, AT_VERSION = 60, AT_SUM = 64 };
_Static_assert(AT_SUM + 32 == DISK_HEADER_BYTES, "the checksum ends the header");

static const char magic[8] = "FOSCARC";

static void put(unsigned char *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) at[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t get(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

/* SHA-256 over the fields, with the length of each (8 bytes) before it if `prefixed`. */
static bool digest(const disk_field *fields, size_t count, bool prefixed, unsigned char sum[DISK_KEY_BYTES])
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool good = context != NULL && EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1;
    for (size_t i = 0; good && i < count; i++) {
        unsigned char length[8];
        put(length, fields[i].length, 8);
        if (prefixed) good = EVP_DigestUpdate(context, length, sizeof length) == 1;
        good = good && EVP_DigestUpdate(context, fields[i].data, fields[i].length) == 1;
    }
    good = good && EVP_DigestFinal_ex(context, sum, NULL) == 1;
    EVP_MD_CTX_free(context);
    return good;
}

bool disk_key_make(const disk_field *fields, size_t count, disk_key *key)
{
    return digest(fields, count, true, key->bytes);
}

void disk_cache_choose(disk_cache *cache, const char *directory)
{
    static const struct {
        const char *variable, *below;
    } places[] = {{"FOSCAR_CACHE_DIR", ""}, {"XDG_CACHE_HOME", "/foscar"}, {"HOME", "/.cache/foscar"}};
    const char *below = "";
    for (size_t i = 0; directory == NULL && i < sizeof places / sizeof *places; i++) {
        const char *value = getenv(places[i].variable);
        if (value == NULL || *value == '\0') continue;
        directory = value;
        below = places[i].below;
    }
    memset(cache, 0, sizeof *cache);
    if (directory == NULL) {
        snprintf(cache->problem, sizeof cache->problem, "no place for it; set FOSCAR_CACHE_DIR or HOME");
        return;
    }
    int n = snprintf(cache->directory, sizeof cache->directory, "%s%s", directory, below);
    if (n > 0 && (size_t)n < sizeof cache->directory) return;
    cache->directory[0] = '\0';
    snprintf(cache->problem, sizeof cache->problem, "the name of its directory is longer than %d bytes",
             DISK_DIRECTORY_MAX - 1);
}

/* Makes a directory and those above it. The errno of the first one that could not be made: if the directory is not there, that is why. */
static int make_directories(const char *path)
{
    char part[DISK_DIRECTORY_MAX];
    size_t length = strlen(path);
    int error = 0;
    memcpy(part, path, length + 1);
    for (size_t i = 1; i <= length; i++) {
        if (path[i] != '/' && path[i] != '\0') continue;
        part[i] = '\0';
        if (mkdir(part, 0700) != 0 && errno != EEXIST && error == 0) error = errno;
        part[i] = path[i];
    }
    return error;
}

/* Kernels are code that will run: nobody else may be able to put files there. */
static bool directory_safe(const char *path, int missing, char *problem, size_t size)
{
    struct stat st;
    if (stat(path, &st) != 0)
        snprintf(problem, size, "%s", file_reason(errno == ENOENT ? missing : errno));
    else if (!S_ISDIR(st.st_mode))
        snprintf(problem, size, "it is no directory");
    else if (st.st_uid != geteuid())
        snprintf(problem, size, "it belongs to another user");
    else if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        snprintf(problem, size, "others can write to it; run: chmod go-w %s", path);
    else
        return true;
    return false;
}

bool disk_cache_usable(const disk_cache *cache, char *problem, size_t size)
{
    if (cache->directory[0] == '\0') {
        snprintf(problem, size, "%s", cache->problem);
        return false;
    }
    int missing = make_directories(cache->directory);
    if (!directory_safe(cache->directory, missing, problem, size)) return false;
    if (access(cache->directory, W_OK | X_OK) == 0) return true;
    snprintf(problem, size, "%s", file_reason(errno));
    return false;
}

static void file_path(const disk_cache *cache, const disk_key *key, char path[FILE_PATH_MAX])
{
    int n = snprintf(path, FILE_PATH_MAX, "%s/", cache->directory);
    for (int i = 0; i < DISK_KEY_BYTES; i++)
        n += snprintf(path + n, (size_t)(FILE_PATH_MAX - n), "%02x", (unsigned)key->bytes[i]);
    snprintf(path + n, (size_t)(FILE_PATH_MAX - n), ".foscar");
}

static bool checksum(const unsigned char *header, const void *cubin, size_t bytes, unsigned char sum[DISK_KEY_BYTES])
{
    const disk_field fields[] = {{header, AT_SUM}, {cubin, bytes}};
    return digest(fields, 2, false, sum);
}

static bool file_good(const unsigned char *file, size_t length, const disk_key *key)
{
    unsigned char sum[DISK_KEY_BYTES];
    if (length < DISK_HEADER_BYTES || memcmp(file, magic, sizeof magic) != 0) return false;
    if (get(file + AT_VERSION, 4) != DISK_VERSION || memcmp(file + AT_KEY, key->bytes, DISK_KEY_BYTES) != 0)
        return false;
    if (get(file + AT_BYTES, 8) != length - DISK_HEADER_BYTES) return false;
    if (!checksum(file, file + DISK_HEADER_BYTES, length - DISK_HEADER_BYTES, sum)) return false;
    return memcmp(file + AT_SUM, sum, sizeof sum) == 0 &&
           cubin_problem(file + DISK_HEADER_BYTES, length - DISK_HEADER_BYTES) == NULL;
}

static void describe(char problem[DISK_PROBLEM_MAX], const char *what, const char *reason)
{
    snprintf(problem, DISK_PROBLEM_MAX, "a kernel could not be %s: %s", what, reason);
}

/* NULL with a reason, or without one if there is no such file. */
static unsigned char *read_entry(const char *path, size_t *length, char problem[DISK_PROBLEM_MAX])
{
    char reason[128];
    int fd = file_open_regular(path, O_NOFOLLOW, reason, sizeof reason);
    if (fd < 0) {
        if (errno != ENOENT) describe(problem, "read from it", reason);
        return NULL;
    }
    unsigned char *file = (unsigned char *)file_read_all(fd, FILE_LIMIT, length);
    if (file == NULL) describe(problem, "read from it", errno == EFBIG ? "it is longer than 64 MiB" : file_reason(errno));
    close(fd);
    return file;
}

bool disk_cache_load(const disk_cache *cache, const disk_key *key, foscar_image *image, char problem[DISK_PROBLEM_MAX])
{
    char path[FILE_PATH_MAX];
    size_t length = 0;
    problem[0] = '\0';
    if (cache->directory[0] == '\0' || access(cache->directory, F_OK) != 0) return false;
    if (!directory_safe(cache->directory, ENOENT, problem, DISK_PROBLEM_MAX)) return false;
    file_path(cache, key, path);
    unsigned char *file = read_entry(path, &length, problem);
    if (file == NULL) return false;
    if (!file_good(file, length, key)) {
        (void)unlink(path);
        free(file);
        return false;
    }
    image->bytes = length - DISK_HEADER_BYTES;
    image->registers = (int32_t)get(file + AT_REGISTERS, 4);
    image->spill_bytes = (int32_t)get(file + AT_SPILL, 4);
    image->stack_bytes = (int32_t)get(file + AT_STACK, 4);
    memmove(file, file + DISK_HEADER_BYTES, image->bytes);
    image->cubin = file;
    return true;
}

static bool write_parts(int fd, const unsigned char *header, const foscar_image *image)
{
    return file_write_all(fd, header, DISK_HEADER_BYTES) && file_write_all(fd, image->cubin, image->bytes) &&
           fsync(fd) == 0;
}

/* Writes to a temporary name and renames, or leaves nothing and returns the errno; 0: done. */
static int write_file(const disk_cache *cache, const char *path, const unsigned char *header, const foscar_image *image)
{
    char temporary[FILE_PATH_MAX];
    snprintf(temporary, sizeof temporary, "%s/.foscar-XXXXXX", cache->directory);
    int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0) return errno;
    int error = write_parts(fd, header, image) ? 0 : errno;
    if (close(fd) != 0 && error == 0) error = errno;
    if (error == 0 && rename(temporary, path) != 0) error = errno;
    if (error != 0) (void)unlink(temporary);
    return error;
}

bool disk_cache_store(const disk_cache *cache, const disk_key *key, const foscar_image *image, char problem[DISK_PROBLEM_MAX])
{
    char path[FILE_PATH_MAX];
    unsigned char header[DISK_HEADER_BYTES] = {0};
    problem[0] = '\0';
    if (!disk_cache_usable(cache, problem, DISK_PROBLEM_MAX)) return false;
    memcpy(header, magic, sizeof magic);
    memcpy(header + AT_KEY, key->bytes, DISK_KEY_BYTES);
    put(header + AT_BYTES, image->bytes, 8);
    put(header + AT_REGISTERS, (uint32_t)image->registers, 4);
    put(header + AT_SPILL, (uint32_t)image->spill_bytes, 4);
    put(header + AT_STACK, (uint32_t)image->stack_bytes, 4);
    put(header + AT_VERSION, DISK_VERSION, 4);
    if (!checksum(header, image->cubin, image->bytes, header + AT_SUM)) {
        describe(problem, "kept", "libcrypto fails");
        return false;
    }
    file_path(cache, key, path);
    int error = write_file(cache, path, header, image);
    if (error != 0) describe(problem, "kept", file_reason(error));
    return error == 0;
}
