/* The option parser, the help made from the same tables, and how subcommands write files. */
#include "command.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "file.h"
#include "process.h"
#include "random.h"

void command_help(const command *c, FILE *out)
{
    fprintf(out, "usage: foscar %s %s\n\n%s\n", c->name, c->arguments, c->summary);
    if (c->option_count > 0) fprintf(out, "\noptions:\n");
    for (int i = 0; i < c->option_count; i++) {
        const option *o = &c->options[i];
        char left[96];
        snprintf(left, sizeof left, "%s%s%s%s%s", o->alias != NULL ? o->alias : "", o->alias != NULL ? ", " : "",
                 o->name, o->value != NULL ? " " : "", o->value != NULL ? o->value : "");
        if (strlen(left) > 26)
            fprintf(out, "  %s\n  %-28s%s\n", left, "", o->help);
        else
            fprintf(out, "  %-28s%s\n", left, o->help);
    }
    fprintf(out, "\nexample:\n  %s\n\nexit codes:\n", c->example);
#define EXIT(name, number, word, meaning) fprintf(out, "  %d  %s\n", number, meaning);
    TOOL_EXITS(EXIT)
#undef EXIT
}

bool tool_parse_spec(const command *c, const char *spec, config *out)
{
    gen_error err;
    if (config_parse(spec, out, &err)) return true;
    tool_fail(c, TOOL_USAGE, "%s", err.message);
    return false;
}

static const option *find_option(const command *c, const char *name, size_t length)
{
    for (int i = 0; i < c->option_count; i++) {
        const option *o = &c->options[i];
        if (strlen(o->name) == length && memcmp(o->name, name, length) == 0) return o;
        if (o->alias != NULL && strlen(o->alias) == length && memcmp(o->alias, name, length) == 0) return o;
    }
    return NULL;
}

static bool set_number(const command *c, const option *o, const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (end != text && *end == '\0' && errno == 0 && number >= o->minimum && number <= o->maximum) {
        *out = number;
        return true;
    }
    tool_fail(c, TOOL_USAGE, "option %s: '%s' is not a number from %lld to %lld", o->name, text, (long long)o->minimum,
              (long long)o->maximum);
    return false;
}

static bool set_choice(const command *c, const option *o, const char *text, int *out)
{
    int index = 0;
    for (const char *word = o->value; word != NULL; index++) {
        const char *bar = strchr(word, '|');
        size_t length = bar != NULL ? (size_t)(bar - word) : strlen(word);
        if (strlen(text) == length && memcmp(text, word, length) == 0) {
            *out = index;
            return true;
        }
        word = bar != NULL ? bar + 1 : NULL;
    }
    tool_fail(c, TOOL_USAGE, "option %s: '%s' is none of %s", o->name, text, o->value);
    return false;
}

static void add_word(option_words *list, const char *text)
{
    const char **words = tool_allocate((size_t)(list->count + 1) * sizeof *words);
    for (int i = 0; i < list->count; i++) words[i] = list->words[i];
    words[list->count++] = text;
    free((void *)list->words);
    list->words = words;
}

/* Whether a word behind an option of words is one more of them: -5 is, -x is not. */
static bool is_word(const char *text)
{
    return text[0] != '-' || isdigit((unsigned char)text[1]) || text[1] == '.';
}

static bool set_option(const command *c, const option *o, const char *text, void *arguments)
{
    char *at = (char *)arguments + o->offset;
    switch (o->kind) {
    case OPTION_FLAG:
        *(bool *)at = true;
        return true;
    case OPTION_NUMBER:
        return set_number(c, o, text, (int64_t *)(void *)at);
    case OPTION_TEXT:
        *(const char **)(void *)at = text;
        return true;
    case OPTION_CHOICE:
        return set_choice(c, o, text, (int *)(void *)at);
    case OPTION_WORDS:
        add_word((option_words *)(void *)at, text);
        return true;
    }
    return false;
}

bool options_parse(const command *c, int argc, char **argv, void *arguments, option_call *out)
{
    *out = (option_call){.code = TOOL_USAGE};
    bool only_operands = false;
    for (int i = 0; i < argc; i++) {
        char *word = argv[i];
        if (only_operands || word[0] != '-' || word[1] == '\0') {
            argv[out->operands++] = word;
            continue;
        }
        if (strcmp(word, "--") == 0) {
            only_operands = true;
            continue;
        }
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            FILE *file = tool_text_begin();
            command_help(c, file);
            tool_text_end(file, "help");
            out->code = TOOL_OK;
            return false;
        }
        const char *equals = word[1] == '-' ? strchr(word, '=') : NULL;
        const option *o = find_option(c, word, equals != NULL ? (size_t)(equals - word) : strlen(word));
        if (o == NULL) {
            tool_fail(c, TOOL_USAGE, "unknown option '%s'; 'foscar %s --help' lists them", word, c->name);
            return false;
        }
        const char *text = equals != NULL ? equals + 1 : NULL;
        /* What looks like an option is one; as a value it is written --output=--json. */
        if (o->kind != OPTION_FLAG && text == NULL && i + 1 < argc && strncmp(argv[i + 1], "--", 2) != 0)
            text = argv[++i];
        if ((o->kind == OPTION_FLAG) != (text == NULL)) {
            tool_fail(c, TOOL_USAGE, o->kind == OPTION_FLAG ? "option %s takes no value" : "option %s needs a value",
                      o->name);
            return false;
        }
        if (!set_option(c, o, text, arguments)) return false;
        out->given |= (uint64_t)1 << (o - c->options);
        while (o->kind == OPTION_WORDS && equals == NULL && i + 1 < argc && is_word(argv[i + 1]))
            set_option(c, o, argv[++i], arguments);
    }
    if (out->operands >= c->least && (c->most < 0 || out->operands <= c->most)) return true;
    tool_fail(c, TOOL_USAGE, "usage: foscar %s %s", c->name, c->arguments);
    return false;
}

static bool is_among(const char *name, const char *names)
{
    size_t length = strlen(name);
    for (const char *at = names; (at = strstr(at, name)) != NULL; at += length)
        if ((at == names || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0')) return true;
    return false;
}

static bool refuse(const command *c, const option_call *call, const char *names, bool among, const char *why)
{
    for (int i = 0; i < c->option_count; i++) {
        if ((call->given >> i & 1) == 0 || is_among(c->options[i].name, names) != among) continue;
        tool_fail(c, TOOL_USAGE, "option %s means nothing %s", c->options[i].name, why);
        return false;
    }
    return true;
}

bool options_refuse(const command *c, const option_call *call, const char *names, const char *why)
{
    return refuse(c, call, names, true, why);
}

bool options_refuse_but(const command *c, const option_call *call, const char *names, const char *why)
{
    return refuse(c, call, names, false, why);
}

const char *tool_short_path(const char *path)
{
    enum { SHOWN = 120 };
    size_t length = strlen(path);
    return length > SHOWN ? path + length - SHOWN : path;
}

char *tool_read_file(const char *path, size_t limit, size_t *length, gen_error *err)
{
    char problem[128], *data = NULL;
    int fd = file_open_regular(path, 0, problem, sizeof problem);
    if (fd >= 0) {
        data = file_read_all(fd, limit, length);
        if (data == NULL && errno == EFBIG)
            snprintf(problem, sizeof problem, "it is longer than %zu bytes", limit);
        else if (data == NULL)
            snprintf(problem, sizeof problem, "%s", strerror(errno));
        close(fd);
    }
    if (data == NULL) gen_fail(err, "cannot read %s: %s", tool_short_path(path), problem);
    return data;
}

/* The file that a name stands for: through symbolic links, so that these stay. malloc'd. */
static char *resolve(const char *path)
{
    char *place = realpath(path, NULL);
    if (place != NULL) return place;
    place = tool_allocate(strlen(path) + 1);
    return strcpy(place, path);
}

/* 0 or an errno; a file that is replaced keeps its mode. */
static int replace_file(const char *place, mode_t mode, const void *data, size_t bytes)
{
    static const char suffix[] = ".XXXXXX";
    char *temporary = tool_allocate(strlen(place) + sizeof suffix);
    strcat(strcpy(temporary, place), suffix);
    int fd = mkstemp(temporary), error = 0;
    if (fd < 0) error = errno;
    if (error == 0 && (!file_write_all(fd, data, bytes) || fchmod(fd, mode) != 0)) error = errno;
    if (fd >= 0 && close(fd) != 0 && error == 0) error = errno;
    if (error == 0 && rename(temporary, place) != 0) error = errno;
    if (error != 0 && fd >= 0) unlink(temporary);
    free(temporary);
    return error;
}

/* 0 or an errno. A FIFO that nobody reads would keep us waiting for ever, so that one is an error (ENXIO). */
static int write_through(const char *path, const void *data, size_t bytes)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), error = 0;
    if (fd < 0) return errno;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) != 0 || !file_write_all(fd, data, bytes)) error = errno;
    if (close(fd) != 0 && error == 0) error = errno;
    return error;
}

bool tool_write_file(const command *c, const char *path, const void *data, size_t bytes)
{
    struct stat info;
    mode_t mask = umask(0);
    umask(mask);
    char *place = resolve(path);
    bool there = stat(place, &info) == 0;
    /* /dev/stdout and the like are written to, not replaced */
    int error = there && !S_ISREG(info.st_mode)
                    ? write_through(place, data, bytes)
                    : replace_file(place, there ? info.st_mode & 07777 : 0666 & ~mask, data, bytes);
    free(place);
    if (error == 0) return true;
    tool_fail_with(c, TOOL_FAILED, tool_file_details(path), "cannot write %s: %s", path,
                   error == ENXIO ? "nobody reads from it" : file_reason(error));
    return false;
}

uint64_t tool_seed(int64_t given)
{
    struct timespec now;
    if (given >= 0) return (uint64_t)given;
    clock_gettime(CLOCK_REALTIME, &now);
    return random_bits((uint64_t)now.tv_sec, (uint64_t)now.tv_nsec) % 1000000007;
}
