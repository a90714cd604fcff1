/* Matrix descriptors of shared memory: fields, the canonical layouts of the PTX ISA, and reads through the async proxy.
 */
#include "matrix_descriptor.h"

#include <string.h>

enum { CHUNK = 16, GROUP = 8 /* lines of a core matrix */ };

static uint32_t field(uint64_t bits, int low, int count)
{
    return (uint32_t)(bits >> low & ((1ull << count) - 1));
}

static uint32_t swizzle_width(descriptor_version version, uint64_t bits)
{
    static const uint8_t hopper[4] = {16, 128, 64, 32}, blackwell[8] = {16, 0, 128, 0, 64, 0, 32, 0};
    return version == DESCRIPTOR_HOPPER ? hopper[field(bits, 62, 2)] : blackwell[field(bits, 61, 3)];
}

shared_matrix matrix_descriptor_decode(machine *m, const warp *w, const instruction *i, descriptor_version version,
                                       uint64_t bits, bool mn_major, const char *what)
{
    const uint64_t unused = 3ull << 14 | 3ull << 30 | (version == DESCRIPTOR_HOPPER ? 0x3ffull << 52 : 0x1ffull << 52);
    if (bits & unused) {
        machine_fault(m, w, i, EMULATOR_DESCRIPTOR, "descriptor of %s: unused bits are set in 0x%016llx", what,
                      (unsigned long long)bits);
    }
    uint32_t constant = version == DESCRIPTOR_HOPPER ? 0 : 1;
    if (field(bits, 46, 3) != constant) {
        machine_fault(m, w, i, EMULATOR_DESCRIPTOR, "descriptor of %s: bits 46-48 are %u, not %u, in 0x%016llx", what,
                      field(bits, 46, 3), constant, (unsigned long long)bits);
    }
    shared_matrix s = {field(bits, 0, 14) * CHUNK, field(bits, 16, 14) * CHUNK,  field(bits, 32, 14) * CHUNK,
                       field(bits, 49, 3),         swizzle_width(version, bits), mn_major};
    if (!s.width)
        machine_fault(m, w, i, EMULATOR_DESCRIPTOR, "descriptor of %s: swizzle mode %u", what, field(bits, 61, 3));
    if (s.width > CHUNK) {
        /* The pattern of 8 lines begins where the tile does, but for the bytes that k has advanced inside a line. */
        uint32_t pattern = GROUP * s.width, line = s.start % pattern / s.width * s.width;
        if (line != (s.base_offset << 7) % pattern) {
            machine_fault(m, w, i, EMULATOR_DESCRIPTOR,
                          "descriptor of %s: a tile at 0x%x cannot have base offset %u with a swizzle of %u bytes",
                          what, s.start, s.base_offset, s.width);
        }
    } else if (s.base_offset) {
        machine_fault(m, w, i, EMULATOR_DESCRIPTOR, "descriptor of %s: base offset %u without a swizzle", what,
                      s.base_offset);
    }
    return s;
}

uint32_t matrix_chunk_address(const shared_matrix *s, uint32_t line, uint32_t chunk)
{
    uint32_t in_group = line % GROUP, group = line / GROUP;
    if (s->width == CHUNK) {
        uint32_t group_step = s->mn_major ? s->leading : s->stride, chunk_step = s->mn_major ? s->stride : s->leading;
        return s->start + in_group * CHUNK + group * group_step + chunk * chunk_step;
    }
    uint32_t per_line = s->width / CHUNK, address = s->start + in_group * s->width + group * s->stride;
    address += s->mn_major ? chunk % per_line * CHUNK + chunk / per_line * s->leading : chunk * CHUNK;
    uint32_t row = (address >> 7) - s->base_offset; /* of 128 bytes, in the pattern */
    return address ^ (row & (per_line - 1)) << 4;
}

/* A run of chunks that follow each other in shared memory: judged with one call. */
typedef struct run {
    uint32_t begin, end;
} run;

static void judge(machine *m, const accessor *accessors, int count, const run *r)
{
    for (int i = 0; i < count && r->end > r->begin; i++) shadow_read(m, &accessors[i], r->begin, r->end - r->begin);
}

static void check_bounds(machine *m, const accessor *a, const shared_matrix *s, uint32_t address)
{
    if (address <= m->shared_bytes && CHUNK <= m->shared_bytes - address) return;
    machine_fault(m, a->w, a->at, EMULATOR_DESCRIPTOR,
                  "a matrix of a descriptor (start 0x%x, offsets %u and %u) reads shared memory at 0x%x, of %u bytes",
                  s->start, s->leading, s->stride, address, m->shared_bytes);
}

bool matrix_read(machine *m, const accessor *accessors, int count, const shared_matrix *s, int lines, int chunks,
                 uint8_t *to, uint8_t *undefined)
{
    bool by_chunk = s->width == CHUNK; /* then lines are neighbours, else chunks */
    int outer = by_chunk ? chunks : lines, inner = by_chunk ? lines : chunks;
    run r = {0, 0};
    bool defined = true;
    for (int x = 0; x < outer; x++) {
        for (int y = 0; y < inner; y++) {
            int line = by_chunk ? y : x, chunk = by_chunk ? x : y;
            uint32_t address = matrix_chunk_address(s, (uint32_t)line, (uint32_t)chunk);
            check_bounds(m, accessors, s, address);
            memcpy(to + ((size_t)line * (size_t)chunks + (size_t)chunk) * CHUNK, m->shared + address, CHUNK);
            if (address == r.end) {
                r.end += CHUNK;
            } else if (r.end > r.begin && address + CHUNK == r.begin) {
                r.begin = address;
            } else {
                judge(m, accessors, count, &r);
                defined = defined && (r.end == r.begin || shadow_defined(m, r.begin, r.end - r.begin));
                r = (run){address, address + CHUNK};
            }
        }
    }
    judge(m, accessors, count, &r);
    defined = defined && shadow_defined(m, r.begin, r.end - r.begin);
    if (defined) return true;
    for (int line = 0; line < lines; line++) {
        for (int b = 0; b < chunks * CHUNK; b++) {
            uint32_t address = matrix_chunk_address(s, (uint32_t)line, (uint32_t)(b / CHUNK)) + (uint32_t)(b % CHUNK);
            undefined[line * chunks * CHUNK + b] = !shadow_defined(m, address, 1);
        }
    }
    return false;
}
