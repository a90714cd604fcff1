/* Planted bugs: real emitted kernels with one thing wrong, made by surgery on their text. Each must be reported, with
 * the kind of fault and the line; the kernels as they are must pass. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "decode_fixture.h"

#define SPEC "sm_90a-k2t128-v2t128-d128-h8-p64"

enum { EDITS_MAX = 2, KINDS_MAX = 6, ALL_LINES = -1 };

/* Whose instructions a line belongs to: what precedes setmaxnreg is everybody's. */
typedef enum role { ANYBODY, CONSUMER, PRODUCER } role;

/* In the nth line (from 0, or ALL_LINES) of a role (ANYBODY: of the text) that contains `part`: replaces `from` by
   `to`; with no `from`, puts `to` (NULL: nothing) in the place of the line. In from and to, $1, $2, ... are the line's
   registers, $L the last of them, $A the first of the second list in braces, $= the line itself. */
typedef struct edit {
    role role;
    const char *part;
    int nth;
    const char *from, *to;
} edit;

/* A bug: what is edited, the kinds of fault that tell of it, ended by EMULATOR_OK, and what the reported line
   contains; several parts are separated by '|'. */
typedef struct bug {
    const char *name;
    edit edits[EDITS_MAX];
    emulator_fault kinds[KINDS_MAX];
    const char *line;
} bug;

/* clang-format off */
static const bug bugs[] = {
    {"a full barrier that is not initialised",
     {{ANYBODY, "mbarrier.init", 0, NULL, NULL}}, {EMULATOR_BARRIER_INIT}, "mbarrier."},
    {"an empty barrier that is not initialised",
     {{ANYBODY, "mbarrier.init", 1, NULL, NULL}}, {EMULATOR_BARRIER_INIT}, "mbarrier."},
    {"no fence.mbarrier_init",
     {{ANYBODY, "fence.mbarrier_init", 0, NULL, NULL}}, {EMULATOR_BARRIER_INIT}, "cp.async.bulk"},
    {"expect_tx too small",
     {{PRODUCER, "expect_tx", 0, NULL, "sub.s32 $L, $L, 16;\n$="}},
     {EMULATOR_BARRIER_BYTES, EMULATOR_RACE, EMULATOR_BARRIER_PHASE}, "cp.async.bulk|ld.shared|mbarrier."},
    {"expect_tx too large",
     {{PRODUCER, "expect_tx", 0, NULL, "add.s32 $L, $L, 16;\n$="}},
     {EMULATOR_DEADLOCK, EMULATOR_BARRIER_BYTES}, "try_wait"},
    {"a consumer that waits for the other parity",
     {{CONSUMER, "try_wait", 0, "$L;", "1;"}},
     {EMULATOR_RACE, EMULATOR_UNDEFINED, EMULATOR_BARRIER_PHASE, EMULATOR_BARRIER_COUNT, EMULATOR_DEADLOCK},
     "ld.shared|mbarrier.|cp.async.bulk|st.global"},
    {"a producer that waits for the other parity",
     {{PRODUCER, "+8], %", 0, "$L;", "0;"}}, {EMULATOR_DEADLOCK}, "try_wait"},
    {"try_wait that is not repeated",
     {{CONSUMER, "bra wait_", 0, NULL, NULL}}, {EMULATOR_RACE, EMULATOR_UNDEFINED}, "ld.shared|cp.async.bulk|st.global"},
    {"one arrival too many expected",
     {{ANYBODY, "mbarrier.init", 1, ", 4;", ", 5;"}}, {EMULATOR_DEADLOCK}, "try_wait"},
    {"one arrival too few expected",
     {{ANYBODY, "mbarrier.init", 1, ", 4;", ", 3;"}},
     {EMULATOR_RACE, EMULATOR_BARRIER_COUNT, EMULATOR_BARRIER_PHASE, EMULATOR_BARRIER_BYTES, EMULATOR_DEADLOCK}, "cp.async.bulk|mbarrier.|ld.shared"},
    {"an arrival too many",
     {{CONSUMER, "mbarrier.arrive.shared", 0, NULL, "$=\n$="}},
     {EMULATOR_RACE, EMULATOR_BARRIER_COUNT, EMULATOR_BARRIER_PHASE, EMULATOR_BARRIER_BYTES, EMULATOR_DEADLOCK}, "cp.async.bulk|mbarrier.|ld.shared"},
    {"stages that are never given back",
     {{CONSUMER, "mbarrier.arrive.shared", ALL_LINES, NULL, NULL}}, {EMULATOR_DEADLOCK}, "try_wait"},
    {"Q without fence.proxy.async",
     {{CONSUMER, "fence.proxy.async", 0, NULL, NULL}}, {EMULATOR_PROXY}, "wgmma.mma_async"},
    {"P without fence.proxy.async",
     {{CONSUMER, "fence.proxy.async", 1, NULL, NULL}, {CONSUMER, "fence.proxy.async", 1, NULL, NULL}}, {EMULATOR_PROXY}, "wgmma.mma_async"},
    {"no wait for an empty stage of K",
     {{PRODUCER, "+8], %", 0, NULL, "setp.eq.u32 $1, $L, $L;"}},
     {EMULATOR_RACE, EMULATOR_BARRIER_BYTES, EMULATOR_BARRIER_PHASE, EMULATOR_BARRIER_COUNT, EMULATOR_DEADLOCK}, "cp.async.bulk|mbarrier.|ld.shared"},
    {"no wait for a full stage of V",
     {{CONSUMER, "try_wait", 1, NULL, "setp.eq.u32 $1, $L, $L;"}}, {EMULATOR_RACE, EMULATOR_UNDEFINED}, "ld.shared|cp.async.bulk|st.global"},
    {"P' of the next block stored while another warp's products may still read this one's",
     {{CONSUMER, "try_wait", 4, NULL, "setp.eq.u32 $1, $L, $L;"}}, {EMULATOR_RACE}, "st.shared"},
    {"wgmma without commit_group",
     {{CONSUMER, "wgmma.commit_group", ALL_LINES, NULL, NULL}}, {EMULATOR_WGMMA_REGISTERS, EMULATOR_WGMMA_ORDER}, ""},
    {"wgmma without wait_group",
     {{CONSUMER, "wgmma.wait_group", 0, NULL, NULL}}, {EMULATOR_WGMMA_REGISTERS, EMULATOR_WGMMA_ORDER}, ""},
    {"wgmma without fence",
     {{CONSUMER, "wgmma.fence", ALL_LINES, NULL, NULL}}, {EMULATOR_WGMMA_ORDER}, "wgmma.mma_async"},
    {"an operand of wgmma rewritten at once",
     {{CONSUMER, "wgmma.mma_async", 0, NULL, "$=\nmov.b32 $A, 0;"}}, {EMULATOR_WGMMA_REGISTERS}, "mov.b32"},
    /* P' has 16 bytes between its slabs that nobody writes: who takes them for limbs gets an output that was never computed */
    {"another leading-dimension offset",
     {{CONSUMER, "mov.b64 %l", 4, NULL, "sub.s32 $2, $2, 65536;\n$="}}, {EMULATOR_UNDEFINED}, "st.global"},
    {"another stride-dimension offset",
     {{CONSUMER, "mov.b64 %l", 4, NULL, "add.s32 $L, $L, 1;\n$="}}, {EMULATOR_UNDEFINED}, "st.global"},
    {"another start address of a matrix",
     {{CONSUMER, "mov.b64 %l", 4, NULL, "add.s32 $2, $2, 1;\n$="}}, {EMULATOR_UNDEFINED}, "st.global"},
    {"a misaligned destination of a copy",
     {{PRODUCER, "cp.async.bulk", 0, "[$2]", "[$2+8]"}}, {EMULATOR_ALIGNMENT}, "cp.async.bulk"},
    {"a misaligned size of a copy",
     {{PRODUCER, "cp.async.bulk", 0, "48,", "56,"}}, {EMULATOR_ALIGNMENT}, "cp.async.bulk"},
    {"a copy into the next stage",
     {{PRODUCER, "cp.async.bulk", 0, "[$2]", "[$2+8192]"}},
     {EMULATOR_RACE, EMULATOR_UNDEFINED, EMULATOR_BARRIER_BYTES}, "cp.async.bulk|ld.shared|st.global"},
    {"a barrier in a divergent branch",
     {{CONSUMER, "elect.sync", 0, NULL, "$=\n@$1 barrier.cta.sync.aligned 9, 128;"}}, {EMULATOR_DIVERGENCE}, "barrier.cta"},
    {"an address that was never computed",
     {{ANYBODY, ".reg .pred", 0, NULL, "$=\n.reg .b32 %never;"}, {CONSUMER, "try_wait", 0, "[$2]", "[%never]"}}, {EMULATOR_UNDEFINED}, "try_wait"},
    {"an output that was never computed",
     {{ANYBODY, ".reg .pred", 0, NULL, "$=\n.reg .f32 %never;"}, {CONSUMER, "st.global.f32", 0, ", $L;", ", %never;"}}, {EMULATOR_UNDEFINED}, "st.global"},
    {"a page outside the pool",
     {{PRODUCER, "[param_page_stride]", 0, "param_page_stride", "param_pages"}}, {EMULATOR_BOUNDS}, "cp.async.bulk"},
    {"more registers than there are",
     {{CONSUMER, "setmaxnreg.inc", 0, NULL, "setmaxnreg.inc.sync.aligned.u32 240;"}}, {EMULATOR_DEADLOCK, EMULATOR_RESOURCE}, "setmaxnreg.inc|barrier.cta"},
    {"no barrier after the schedule",
     {{ANYBODY, "barrier.cta.sync.aligned 0,", 1, NULL, NULL}}, {EMULATOR_RACE, EMULATOR_UNDEFINED}, "ld.shared|st.shared"},
    {"no barrier between the stores of Q and its products",
     {{CONSUMER, "barrier.cta.sync.aligned %r", 1, NULL, NULL}}, {EMULATOR_RACE, EMULATOR_PROXY, EMULATOR_UNDEFINED}, "wgmma.mma_async|ld.shared|st.shared"},
    {"a named barrier that counts on more threads than come",
     {{CONSUMER, "barrier.cta.sync.aligned %r", 0, ", 128;", ", 160;"}}, {EMULATOR_DEADLOCK, EMULATOR_BARRIER_COUNT}, "barrier.cta"},
};
/* clang-format on */

enum { BUGS = sizeof bugs / sizeof *bugs, TEXT_MAX = 1 << 20, LINE_MAX_BYTES = 4096 };

/* ---- Surgery ---- */

/* Copies the register that begins at *at; its length. */
static size_t copy_register(const char *at, char *out, size_t size)
{
    size_t length = 1 + strspn(at + 1, "abcdefghijklmnopqrstuvwxyz0123456789_");
    assert_true(length < size);
    memcpy(out, at, length);
    out[length] = '\0';
    return length;
}

/* The register that a placeholder names in a line. */
static void find_register(const char *line, char which, char *out, size_t size)
{
    int number = 0;
    const char *from = line;
    if (which == 'A') {
        from = strstr(line, "}, {");
        assert_non_null(from);
    }
    out[0] = '\0';
    for (const char *at = strchr(from, '%'); at != NULL; at = strchr(at + 1, '%')) {
        copy_register(at, out, size);
        if (which == 'A' || ++number == which - '0') return;
    }
    assert_int_equal(which, 'L');
    assert_true(out[0] != '\0');
}

static void expand(const char *template, const char *line, char *out, size_t size)
{
    size_t used = 0;
    for (const char *c = template; *c != '\0'; c++) {
        char word[LINE_MAX_BYTES] = {*c};
        if (*c == '$' && *++c == '=')
            snprintf(word, sizeof word, "%s", line);
        else if (c > template && c[-1] == '$')
            find_register(line, *c, word, sizeof word);
        used += (size_t)snprintf(out + used, size - used, "%s", word);
        assert_true(used < size);
    }
}

/* Writes the edited line, without a newline; false: nothing is left of it. */
static bool edit_line(const edit *e, const char *line, char *out, size_t size)
{
    char from[64], to[64];
    if (e->from == NULL) {
        if (e->to == NULL) return false;
        expand(e->to, line, out, size);
        return true;
    }
    expand(e->from, line, from, sizeof from);
    expand(e->to, line, to, sizeof to);
    const char *at = strstr(line, from);
    if (at == NULL) fail_msg("'%s' is not in the line '%s'", from, line);
    snprintf(out, size, "%.*s%s%s", (int)(at - line), line, to, at + strlen(from));
    return true;
}

/* Applies one edit to `text`, in place. */
static void apply(const edit *e, char *text)
{
    static char edited[TEXT_MAX];
    char line[LINE_MAX_BYTES], changed[2 * LINE_MAX_BYTES];
    int seen = 0, done = 0;
    role here = ANYBODY;
    size_t used = 0;
    for (const char *at = text; *at != '\0';) {
        size_t length = strcspn(at, "\n");
        assert_true(length < sizeof line && used + length + 2 * LINE_MAX_BYTES < TEXT_MAX);
        memcpy(line, at, length);
        line[length] = '\0';
        at += length + (at[length] == '\n');
        bool kept = true;
        if (strstr(line, "setmaxnreg.inc") != NULL) here = CONSUMER;
        if (strstr(line, "setmaxnreg.dec") != NULL) here = PRODUCER;
        if (strstr(line, e->part) != NULL && (e->role == ANYBODY || e->role == here) &&
            (seen++ == e->nth || e->nth == ALL_LINES)) {
            kept = edit_line(e, line, changed, sizeof changed);
            done++;
        } else
            strcpy(changed, line);
        if (kept) used += (size_t)sprintf(edited + used, "%s\n", changed);
    }
    edited[used] = '\0';
    if (done == 0) fail_msg("the text has no line number %d with '%s'", e->nth, e->part);
    strcpy(text, edited);
}

/* ---- Verdict ---- */

static void copy_line(const char *text, int number, char *out, size_t size)
{
    while (--number > 0 && (text = strchr(text, '\n')) != NULL) text++;
    snprintf(out, size, "%.*s", text != NULL ? (int)strcspn(text, "\n") : 0, text != NULL ? text : "");
}

static bool contains_one_of(const char *line, const char *parts)
{
    char copy[256];
    snprintf(copy, sizeof copy, "%s", parts);
    if (copy[0] == '\0') return true;
    for (char *part = strtok(copy, "|"); part != NULL; part = strtok(NULL, "|"))
        if (strstr(line, part) != NULL) return true;
    return false;
}

static bool is_expected(const bug *b, decode_outcome outcome, const emulator_error *error)
{
    for (int i = 0; i < KINDS_MAX && b->kinds[i] != EMULATOR_OK; i++)
        if (outcome == DECODE_FAULT && b->kinds[i] == error->fault) return true;
    return false;
}

static struct {
    decode_fixture fixture;
    uint64_t seed;
} test;

/* What the runs of all bugs came to. */
typedef struct tally {
    int told, unexpected;
} tally;

static void run_bug(const bug *b, const char *text, tally *t)
{
    static emulator_error error;
    char line[LINE_MAX_BYTES];
    for (int mode = 0; mode < EMULATOR_SCHEDULE_COUNT; mode++) {
        const char *name = emulator_schedule_name((emulator_schedule)mode);
        decode_outcome outcome =
            decode_fixture_run(&test.fixture, text, strlen(text), (emulator_schedule)mode, test.seed, NULL, &error);
        if (outcome == DECODE_PASSED) continue;
        copy_line(text, error.line, line, sizeof line);
        bool expected = is_expected(b, outcome, &error) && (outcome == DECODE_WRONG || contains_one_of(line, b->line));
        if (!expected) t->unexpected++;
        if (expected && t->told++ > 0) continue;
        print_message("%-52s %-17s %s, line %d%s\n", b->name, name,
                      outcome == DECODE_WRONG ? "wrong result" : emulator_fault_name(error.fault), error.line,
                      expected ? "" : ": UNEXPECTED");
        if (!expected) print_message("%s\n%s\n%s\n", line, error.message, error.detail);
    }
}

static void every_planted_bug_is_reported_with_its_kind_and_line(void **state)
{
    (void)state;
    static char text[TEXT_MAX];
    int missed = 0, unexpected = 0;
    for (int i = 0; i < BUGS; i++) {
        tally t = {0, 0};
        assert_true(test.fixture.text.length < TEXT_MAX);
        strcpy(text, test.fixture.text.ptx);
        for (int j = 0; j < EDITS_MAX && bugs[i].edits[j].part != NULL; j++) apply(&bugs[i].edits[j], text);
        run_bug(&bugs[i], text, &t);
        unexpected += t.unexpected;
        missed += t.told == 0;
        if (t.told == 0) print_message("%-52s NOT REPORTED\n", bugs[i].name);
    }
    assert_int_equal(missed, 0);
    assert_int_equal(unexpected, 0);
}

static void the_kernels_as_they_are_pass_under_every_mode(void **state)
{
    (void)state;
    static emulator_error error;
    static const char *const specs[] = {
        SPEC,
        "sm_90a-k4t128-v4t128-d128-h1-p128",
        "sm_90a-k2t64-v4t64-d64-h3-p64",
        "sm_90a-k4t256-v2t256-d256-h16-p256",
    };
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        decode_fixture f;
        assert_true(decode_fixture_make(&f, specs[i], REFERENCE_DATA_RANDOM, test.seed + i));
        for (int mode = 0; mode < EMULATOR_SCHEDULE_COUNT; mode++)
            if (decode_fixture_run(&f, f.text.ptx, f.text.length, (emulator_schedule)mode, test.seed, NULL, &error) !=
                DECODE_PASSED)
                fail_msg("%s under %s: %s at line %d: %s %s", specs[i], emulator_schedule_name((emulator_schedule)mode),
                         emulator_fault_name(error.fault), error.line, error.message, error.detail);
        decode_fixture_finish(&f);
    }
}

/* What a run found must be found again from its mode and seed. */
static void the_same_seed_gives_the_same_report(void **state)
{
    (void)state;
    static char text[TEXT_MAX];
    static emulator_error first, second;
    strcpy(text, test.fixture.text.ptx);
    apply(&(edit){CONSUMER, "bra wait_", 0, NULL, NULL}, text);
    for (uint64_t seed = 0; seed < 3; seed++) {
        decode_outcome a = decode_fixture_run(&test.fixture, text, strlen(text), EMULATOR_SCHEDULE_RANDOM, seed, NULL,
                                              &first),
                       b = decode_fixture_run(&test.fixture, text, strlen(text), EMULATOR_SCHEDULE_RANDOM, seed, NULL,
                                              &second);
        assert_int_equal(a, b);
        if (a == DECODE_PASSED) continue;
        assert_int_equal(first.fault, second.fault);
        assert_int_equal(first.line, second.line);
        assert_int_equal(first.warp, second.warp);
    }
}

static int make_test(void **state)
{
    (void)state;
    const char *given = getenv("FOSCAR_TEST_SEED");
    test.seed = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    print_message("FOSCAR_TEST_SEED=%llu\n", (unsigned long long)test.seed);
    return !decode_fixture_make(&test.fixture, SPEC, REFERENCE_DATA_RANDOM, test.seed);
}

static int finish_test(void **state)
{
    (void)state;
    decode_fixture_finish(&test.fixture);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_kernels_as_they_are_pass_under_every_mode),
        cmocka_unit_test(every_planted_bug_is_reported_with_its_kind_and_line),
        cmocka_unit_test(the_same_seed_gives_the_same_report),
    };
    return cmocka_run_group_tests_name("emulator_faults", tests, make_test, finish_test);
}
