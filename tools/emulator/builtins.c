/* The functions that every program may call without a body: vprintf, malloc, free, __assertfail. */
#include <ctype.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "memory.h"

enum { FORMAT_MAX = 4096, LINE_MAX_BYTES = 1 << 16, SPEC_MAX = 64, STRING_MAX = 4096 };

/* ---- Strings of the device ---- */

/* A string at a generic address, cut at the room; false: no memory there, or bytes that are not defined. */
static bool read_string(const warp *w, int lane, uint64_t address, char *to, size_t room)
{
    for (size_t n = 0; n + 1 < room; n++) {
        bool defined;
        if (!warp_peek(w, lane, address + n, &to[n], 1, &defined) || !defined) return false;
        if (!to[n]) return true;
    }
    to[room - 1] = '\0';
    return true;
}

/* ---- vprintf ---- */

typedef struct printer {
    const warp *w;
    const instruction *at;
    int lane;
    uint64_t next; /* address of the next argument */
    char *text;    /* [LINE_MAX_BYTES] */
    size_t length;
    int arguments;
} printer;

static void add(printer *p, const char *text, size_t length)
{
    if (length > LINE_MAX_BYTES - 1 - p->length) length = LINE_MAX_BYTES - 1 - p->length;
    memcpy(p->text + p->length, text, length);
    p->length += length;
}

/* The arguments lie one after the other, each at a multiple of its size. */
static uint64_t next_argument(printer *p, uint32_t bytes)
{
    uint64_t v = 0;
    bool defined;
    p->next = (p->next + bytes - 1) / bytes * bytes;
    p->arguments++;
    if (!warp_peek(p->w, p->lane, p->next, &v, bytes, &defined))
        machine_fault(p->w->m, p->w, p->at, EMULATOR_BOUNDS,
                      "argument %d of printf in lane %d lies outside of the list", p->arguments, p->lane);
    if (!defined)
        machine_fault(p->w->m, p->w, p->at, EMULATOR_UNDEFINED, "argument %d of printf in lane %d is undefined",
                      p->arguments, p->lane);
    p->next += bytes;
    return v;
}

/* One conversion: its flags, width and precision as numbers, so that no format is made of the device's text. */
typedef struct conversion {
    bool left, plus, blank, alternate, zeros;
    int width, precision; /* precision -1: none */
    int size;             /* bytes of an integer */
    char letter;
} conversion;

static int read_number(printer *p, const char **c)
{
    int n = 0;
    if (**c == '*') {
        (*c)++;
        n = (int)(int32_t)next_argument(p, 4);
    } else {
        for (; isdigit((unsigned char)**c); (*c)++)
            if (n < STRING_MAX) n = 10 * n + (**c - '0');
    }
    return n > STRING_MAX ? STRING_MAX : n < -STRING_MAX ? -STRING_MAX : n;
}

static conversion read_conversion(printer *p, const char **at)
{
    conversion k = {.precision = -1, .size = 4};
    const char *c = *at;
    for (;; c++) {
        if (*c == '-')
            k.left = true;
        else if (*c == '+')
            k.plus = true;
        else if (*c == ' ')
            k.blank = true;
        else if (*c == '#')
            k.alternate = true;
        else if (*c == '0')
            k.zeros = true;
        else
            break;
    }
    k.width = read_number(p, &c);
    if (k.width < 0) {
        k.left = true;
        k.width = -k.width;
    }
    if (*c == '.') {
        c++;
        k.precision = read_number(p, &c);
    }
    for (; *c && strchr("hlLqjzt", *c); c++) k.size = *c == 'h' ? (k.size == 2 ? 1 : 2) : 8;
    k.letter = *c;
    *at = *c ? c + 1 : c;
    return k;
}

/* "%-08.3llx" for the C library: only flags that were understood. */
static const char *spec_of(const conversion *k, const char *length, char *room, size_t size)
{
    char precision[16] = "", width[16] = "";
    if (k->width > 0) snprintf(width, sizeof width, "%d", k->width);
    if (k->precision >= 0) snprintf(precision, sizeof precision, ".%d", k->precision);
    snprintf(room, size, "%%%s%s%s%s%s%s%s%s%c", k->left ? "-" : "", k->plus ? "+" : "", k->blank ? " " : "",
             k->alternate ? "#" : "", k->zeros ? "0" : "", width, precision, length, k->letter);
    return room;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"

static void print_integer(printer *p, const conversion *k)
{
    char spec[SPEC_MAX], text[2 * STRING_MAX + 64];
    uint64_t v = next_argument(p, k->size == 8 ? 8 : 4);
    int bits = 8 * k->size;
    bool is_signed = k->letter == 'd' || k->letter == 'i';
    v = is_signed ? (uint64_t)((int64_t)(v << (64 - bits)) >> (64 - bits)) : v & (UINT64_MAX >> (64 - bits));
    int n = is_signed ? snprintf(text, sizeof text, spec_of(k, "ll", spec, sizeof spec), (long long)v)
                      : snprintf(text, sizeof text, spec_of(k, "ll", spec, sizeof spec), (unsigned long long)v);
    add(p, text, (size_t)n);
}

/* With a point, whatever the caller's locale. */
static void print_float(printer *p, const conversion *k)
{
    char spec[SPEC_MAX], text[2 * STRING_MAX + 64];
    uint64_t bits = next_argument(p, 8);
    double v;
    memcpy(&v, &bits, sizeof v);
    int n = snprintf(text, sizeof text, spec_of(k, "", spec, sizeof spec), v);
    char point = *localeconv()->decimal_point;
    for (int i = 0; i < n && i < (int)sizeof text; i++)
        if (text[i] == point) text[i] = '.';
    add(p, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

static void print_other(printer *p, const conversion *k)
{
    char spec[SPEC_MAX], text[2 * STRING_MAX + 64], string[STRING_MAX];
    int n;
    if (k->letter == 'c') {
        n = snprintf(text, sizeof text, spec_of(k, "", spec, sizeof spec), (int)(unsigned char)next_argument(p, 4));
    } else if (k->letter == 'p') {
        n = snprintf(text, sizeof text, "0x%llx", (unsigned long long)next_argument(p, 8));
    } else {
        uint64_t address = next_argument(p, 8);
        if (!read_string(p->w, p->lane, address, string, sizeof string))
            machine_fault(p->w->m, p->w, p->at, EMULATOR_BOUNDS,
                          "%%s of printf in lane %d: no defined string at 0x%llx", p->lane,
                          (unsigned long long)address);
        n = snprintf(text, sizeof text, spec_of(k, "", spec, sizeof spec), string);
    }
    add(p, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

#pragma GCC diagnostic pop

static void print_format(printer *p, const char *format)
{
    while (*format) {
        size_t plain = strcspn(format, "%");
        add(p, format, plain);
        format += plain;
        if (!*format) return;
        const char *begin = format++;
        conversion k = read_conversion(p, &format);
        if (k.letter == '%')
            add(p, "%", 1);
        else if (k.letter && strchr("diouxX", k.letter))
            print_integer(p, &k);
        else if (k.letter && strchr("fFeEgGaA", k.letter))
            print_float(p, &k);
        else if (k.letter && strchr("csp", k.letter))
            print_other(p, &k);
        else
            add(p, begin, (size_t)(format - begin)); /* as the CUDA runtime does */
    }
}

static uint64_t argument(warp *w, const instruction *i, const device_function *f, int k, int lane)
{
    bool defined;
    uint64_t v = calls_argument(w, i, &f->takes, k, lane, &defined);
    if (!defined)
        machine_fault(w->m, w, i, EMULATOR_UNDEFINED, "argument %d of %s is undefined in lane %d", k + 1, f->code.name,
                      lane);
    return v;
}

/* Lanes print one after the other. The result is the number of arguments. */
static void call_vprintf(warp *w, const instruction *i, const device_function *f, int lane, uint64_t *result)
{
    machine *m = w->m;
    char format[FORMAT_MAX];
    printer p = {.w = w, .at = i, .lane = lane};
    uint64_t at = argument(w, i, f, 0, lane);
    p.next = argument(w, i, f, 1, lane);
    if (!read_string(w, lane, at, format, sizeof format))
        machine_fault(m, w, i, EMULATOR_BOUNDS, "printf in lane %d: no defined format at 0x%llx", lane,
                      (unsigned long long)at);
    p.text = m->print_room ? m->print_room : (m->print_room = machine_allocate(m, LINE_MAX_BYTES));
    print_format(&p, format);
    if (m->config->print) m->config->print(m->config->print_context, p.text, p.length);
    *result = (uint64_t)p.arguments;
}

/* ---- malloc and free ---- */

/* As on the device: 0 if there is no room. */
static void call_malloc(warp *w, const instruction *i, const device_function *f, int lane, uint64_t *result)
{
    machine *m = w->m;
    uint64_t bytes = argument(w, i, f, 0, lane);
    *result = 0;
    if (bytes == 0 || bytes > HEAP_BYTES - m->heap_used) return;
    *result = emulator_memory_allocate(m->config->memory, bytes);
    memory_block *block = *result ? memory_find(m->config->memory, *result, bytes) : NULL;
    if (!block) return;
    block->heap = true;
    block->name = "malloc of a kernel";
    m->heap_used += bytes;
}

static void call_free(warp *w, const instruction *i, const device_function *f, int lane)
{
    machine *m = w->m;
    uint64_t address = argument(w, i, f, 0, lane);
    if (address == 0) return;
    const memory_block *block = memory_find(m->config->memory, address, 1);
    if (!block || block->address != address || !block->heap)
        machine_fault(m, w, i, EMULATOR_BOUNDS, "free in lane %d of 0x%llx, which no malloc gave", lane,
                      (unsigned long long)address);
    m->heap_used -= block->bytes < m->heap_used ? block->bytes : m->heap_used;
    emulator_memory_free(m->config->memory, address);
}

/* ---- __assertfail(message, file, line, function, size of a character) ---- */

static _Noreturn void call_assertfail(warp *w, const instruction *i, const device_function *f, int lane)
{
    char message[256], file[256], name[256];
    bool good = f->takes.parameter_count >= 4;
    if (!good || !read_string(w, lane, argument(w, i, f, 0, lane), message, sizeof message)) *message = '\0';
    if (!good || !read_string(w, lane, argument(w, i, f, 1, lane), file, sizeof file)) *file = '\0';
    if (!good || !read_string(w, lane, argument(w, i, f, 3, lane), name, sizeof name)) *name = '\0';
    machine_fault(w->m, w, i, EMULATOR_ASSERT, "%s:%u: %s: lane %d: assertion `%s' failed", file,
                  good ? (unsigned)argument(w, i, f, 2, lane) : 0u, name, lane, message);
}

/* How many parameters each has, lest a text declares it otherwise. */
static void check_signature(warp *w, const instruction *i, const device_function *f)
{
    static const int parameters[] = {
        [BUILTIN_VPRINTF] = 2, [BUILTIN_MALLOC] = 1, [BUILTIN_FREE] = 1, [BUILTIN_ASSERTFAIL] = 5};
    bool fits = f->takes.parameter_count == parameters[f->builtin];
    for (int k = 0; fits && k < f->takes.parameter_count; k++) fits = f->takes.parameters[k].bytes <= 8;
    for (int k = 0; fits && k < f->takes.return_count; k++) fits = f->takes.returns[k].bytes <= 8;
    if (!fits)
        machine_fault(w->m, w, i, EMULATOR_UNKNOWN_FORM, "%s is declared with other parameters than it has",
                      f->code.name);
}

void builtins_call(warp *w, const instruction *call, const device_function *f)
{
    uint64_t result[LANES] = {0};
    check_signature(w, call, f);
    for (int lane = 0; lane < LANES; lane++) {
        if (!(w->active >> lane & 1)) continue;
        switch (f->builtin) {
        case BUILTIN_VPRINTF:
            call_vprintf(w, call, f, lane, &result[lane]);
            break;
        case BUILTIN_MALLOC:
            call_malloc(w, call, f, lane, &result[lane]);
            break;
        case BUILTIN_FREE:
            call_free(w, call, f, lane);
            break;
        default:
            call_assertfail(w, call, f, lane);
        }
    }
    if (f->takes.return_count > 0) calls_return(w, call, &f->takes, 0, result);
}
