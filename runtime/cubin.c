/* Bounds of a cubin. Field offsets are those of Elf64_Ehdr, Elf64_Shdr and Elf64_Phdr (System V ABI, chapter 4). */
#include "cubin.h"

#include <elf.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { MACHINE_CUDA = 190 }; /* EM_CUDA */

static bool in_range(uint64_t offset, uint64_t size, size_t bytes)
{
    return offset <= bytes && size <= bytes - offset;
}

/* A table of `count` entries of `entry` bytes; count and entry are 16-bit numbers, so the product cannot overflow. */
static bool table_in_range(uint64_t offset, uint64_t count, uint64_t entry, size_t bytes)
{
    return in_range(offset, count * entry, bytes);
}

static const char *sections_problem(const unsigned char *data, size_t bytes, const Elf64_Ehdr *header)
{
    if (header->e_shnum == 0 || header->e_shentsize != sizeof(Elf64_Shdr)) return "it has no section table";
    if (!table_in_range(header->e_shoff, header->e_shnum, header->e_shentsize, bytes)) return "it is cut off";
    for (size_t i = 0; i < header->e_shnum; i++) {
        Elf64_Shdr section;
        memcpy(&section, data + header->e_shoff + i * sizeof section, sizeof section);
        if (section.sh_type != SHT_NOBITS && !in_range(section.sh_offset, section.sh_size, bytes))
            return "a section lies beyond its end";
    }
    return NULL;
}

const char *cubin_problem(const void *data, size_t bytes)
{
    Elf64_Ehdr header;
    if (bytes < sizeof header) return "it is shorter than an ELF header";
    memcpy(&header, data, sizeof header);
    if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return "it is no ELF file";
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB)
        return "it is no 64-bit little-endian ELF file";
    if (header.e_machine != MACHINE_CUDA) return "it is for another machine than a GPU";
    if (header.e_phnum != 0 && (header.e_phentsize != sizeof(Elf64_Phdr) ||
                                !table_in_range(header.e_phoff, header.e_phnum, header.e_phentsize, bytes)))
        return "its program headers lie beyond its end";
    return sections_problem(data, bytes, &header);
}
