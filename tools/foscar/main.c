/* foscar: one program, a file per subcommand. */
#include "command.h"

#include <signal.h>
#include <string.h>

#include "process.h"

static const command *const commands[] = {&command_list,  &command_emit,  &command_inspect,  &command_run,
                                          &command_check, &command_bench, &command_accuracy, &command_doctor};

enum { COMMANDS = sizeof commands / sizeof *commands };

static void print_help(FILE *out)
{
    fprintf(out,
            "foscar %s: decode attention over 2- and 4-bit KV caches, by kernels generated for exactly one case\n\n"
            "usage: foscar COMMAND [ARGUMENTS]     foscar COMMAND --help     foscar --version\n\n",
            foscar_version());
    for (int i = 0; i < COMMANDS; i++) {
        const char *end = strchr(commands[i]->summary, '\n');
        int length = end != NULL ? (int)(end - commands[i]->summary) : (int)strlen(commands[i]->summary);
        fprintf(out, "  %-10s%.*s\n", commands[i]->name, length, commands[i]->summary);
    }
    fprintf(out, "\nexample:\n  %s\n\nexit codes:\n", command_inspect.example);
#define EXIT(name, number, word, meaning) fprintf(out, "  %d  %s\n", number, meaning);
    TOOL_EXITS(EXIT)
#undef EXIT
    fprintf(
        out,
        "\nenvironment: FOSCAR_PTXAS, FOSCAR_NVRTC, FOSCAR_NVDISASM (paths of tools), FOSCAR_CACHE_DIR (disk cache),\n"
        "  FOSCAR_PTXAS_SECONDS (after which a run of ptxas is killed; %d)\n",
        PROCESS_SECONDS);
    fprintf(out, "\nWith --json, standard output is one JSON document in every outcome; what went wrong is its member "
                 "\"error\": kind (failed, usage, environment),\nmessage, and what there is of file, line, status (of "
                 "the library) and fault (of the interpreter). Bytes that are not UTF-8 become U+FFFD.\n");
}

/* Besides --json. */
static int words_after(int argc, char **argv)
{
    int words = 0;
    for (int i = 2; i < argc; i++) words += strcmp(argv[i], "--json") != 0;
    return words;
}

static tool_exit dispatch(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return TOOL_USAGE;
    }
    bool help = strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0;
    if ((help || strcmp(argv[1], "--version") == 0) && words_after(argc, argv) > 0)
        return tool_fail(NULL, TOOL_USAGE, "'%s' takes no more words; 'foscar COMMAND --help' tells about a command",
                         argv[1]);
    if (help) {
        FILE *file = tool_text_begin();
        print_help(file);
        tool_text_end(file, "help");
        return TOOL_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        FILE *file = tool_text_begin();
        fprintf(file, "foscar %s, page layout %u\n", foscar_version(), (unsigned)foscar_layout_version());
        tool_text_end(file, "version");
        return TOOL_OK;
    }
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(argv[1], commands[i]->name) == 0) return commands[i]->run(commands[i], argc - 2, argv + 2);
    return tool_fail(NULL, TOOL_USAGE, "'%s' is no command; 'foscar --help' lists them", argv[1]);
}

int main(int argc, char **argv)
{
    /* Beyond ulimit -f a write fails, and is told; the signals of a program are its own. */
    signal(SIGXFSZ, SIG_IGN);
    report_begin(argc, argv);
    tool_exit code = dispatch(argc, argv);
    return report_end() || code != TOOL_OK ? code : TOOL_FAILED;
}
