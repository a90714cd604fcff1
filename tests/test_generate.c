/* The generator as a whole: every spec gives a verified kernel, the same bytes each time, within the limits on time and
 * on instructions; golden PTX; and the arithmetic of the limbs, on the CPU, with masks and constants found in the
 * emitted list. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "decode_hopper.h"
#include "generate.h"
#include "plan_check.h"
#include "ptx.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

#if defined(__SANITIZE_ADDRESS__)
#define SLOWED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLOWED 1
#endif
#endif
#ifndef SLOWED
#define SLOWED 0
#endif

static config parse(const char *spec)
{
    config cfg;
    gen_error err = {""};
    if (!config_parse(spec, &cfg, &err)) fail_msg("%s", err.message);
    return cfg;
}

static kernel_text generate(const config *cfg)
{
    kernel_text text;
    gen_error err = {""};
    if (!generate_decode(cfg, &text, &err)) fail_msg("%s", err.message);
    return text;
}

/* ---- Every spec ----------------------------------------------------------------------------------------------------
 */

static double milliseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void every_spec_of_the_grid_emits_and_verifies(void **state)
{
    (void)state;
    double begin = milliseconds();
    size_t bytes = 0;
    for (int i = 0; i < registry_size(); i++) {
        config cfg;
        decode_plan plan;
        registry_config(i, &cfg);
        kernel_text text = generate(&cfg); /* verifies */
        assert_true(decode_plan_make(&cfg, &plan, NULL));
        assert_int_equal(strlen(text.ptx), text.length);
        assert_int_equal(text.threads, plan.threads);
        assert_int_equal(text.shared_bytes, plan.shared_bytes);
        char line[96];
        snprintf(line, sizeof line, ".visible .entry %s(\n", text.entry);
        assert_non_null(strstr(text.ptx, line));
        snprintf(line, sizeof line, ".reqntid %d, 1, 1\n.maxnreg %d\n", plan.threads, plan.entry_registers);
        assert_non_null(strstr(text.ptx, line));
        bytes += text.length;
        kernel_text_finish(&text);
    }
    print_message("%d specs in %.0f ms of CPU time, %.1f MB of PTX\n", registry_size(), milliseconds() - begin,
                  (double)bytes * 1e-6);
}

static void the_same_spec_gives_the_same_bytes(void **state)
{
    (void)state;
    for (int i = 0; i < registry_size(); i += 5) {
        config cfg, other;
        registry_config(i, &cfg);
        registry_config((i + registry_size() / 2) % registry_size(), &other);
        kernel_text first = generate(&cfg), between = generate(&other), second = generate(&cfg);
        assert_int_equal(first.length, second.length);
        assert_memory_equal(first.ptx, second.ptx, first.length);
        kernel_text_finish(&first);
        kernel_text_finish(&between);
        kernel_text_finish(&second);
    }
}

static void different_specs_give_different_kernels(void **state)
{
    (void)state;
    config cfg;
    registry_config(0, &cfg);
    kernel_text before = generate(&cfg);
    for (int i = 1; i < registry_size(); i++) {
        registry_config(i, &cfg);
        kernel_text text = generate(&cfg);
        assert_string_not_equal(before.ptx, text.ptx);
        kernel_text_finish(&before);
        before = text;
    }
    kernel_text_finish(&before);
}

static void finishing_a_text_twice_or_none_is_harmless(void **state)
{
    (void)state;
    config cfg = parse("sm_90a-k2t64-v2t64-d64-h1-p64");
    kernel_text text = generate(&cfg);
    kernel_text_finish(&text);
    assert_null(text.ptx);
    kernel_text_finish(&text);
    kernel_text_finish(NULL);
}

/* ---- Plans are checked before anything is emitted ------------------------------------------------------------------
 */

static void every_plan_of_the_grid_passes_its_check(void **state)
{
    (void)state;
    for (int i = 0; i < registry_size(); i++) {
        config cfg;
        decode_plan plan;
        gen_error err = {""};
        registry_config(i, &cfg);
        assert_true(decode_plan_make(&cfg, &plan, &err));
        if (!decode_plan_check(&plan, &err)) fail_msg("%s", err.message);
    }
}

static void area_missing(decode_plan *p)
{
    p->shared[SHARED_Q].name = NULL;
}

static void area_not_aligned(decode_plan *p)
{
    p->shared[SHARED_BARRIERS_K].offset += 4;
}

static void area_with_an_odd_alignment(decode_plan *p)
{
    p->shared[SHARED_P].align = 24;
}

static void areas_that_overlap(decode_plan *p)
{
    p->shared[SHARED_RING_K].bytes += 1;
}

static void areas_out_of_order(decode_plan *p)
{
    shared_region q = p->shared[SHARED_Q];
    p->shared[SHARED_Q] = p->shared[SHARED_P];
    p->shared[SHARED_P] = q;
}

static void area_behind_the_end(decode_plan *p)
{
    p->shared[SHARED_REGIONS - 1].bytes += 1;
}

static void area_whose_end_wraps(decode_plan *p)
{
    p->shared[SHARED_RING_K].bytes = UINT32_MAX;
}

static void more_than_the_target_has(decode_plan *p)
{
    p->shared_bytes = (uint32_t)p->cfg.target->shared_bytes + 1;
}

static void another_number_of_threads(decode_plan *p)
{
    p->threads -= 128;
}

static void no_consumers(decode_plan *p)
{
    p->consumers = 0;
    p->threads = 128;
}

static void registers_no_multiple_of_8(decode_plan *p)
{
    p->producer_registers = 36;
}

static void too_few_registers(decode_plan *p)
{
    p->producer_registers = 16;
}

static void a_producer_that_takes_registers(decode_plan *p)
{
    p->producer_registers = p->entry_registers + 8;
}

/* 3 consumers of 168 and a producer of 40 want 544 registers a thread of each, and there are 4 of 128. */
static void more_registers_than_there_were(decode_plan *p)
{
    p->consumers = 3;
    p->threads = 512;
    p->entry_registers = 128;
    p->producer_registers = 40;
    p->consumer_registers = 168;
}

static void more_registers_at_entry(decode_plan *p)
{
    p->consumers = 3;
    p->threads = 512;
    p->entry_registers = 136;
    p->producer_registers = 40;
    p->consumer_registers = 160;
}

static const struct {
    void (*spoil)(decode_plan *p);
    const char *message;
} plan_faults[] = {
    {area_missing, "is missing"},
    {area_not_aligned, "barriers_k is not aligned"},
    {area_with_an_odd_alignment, "p_limbs is not aligned"},
    {areas_that_overlap, "ring_v overlaps"},
    {areas_out_of_order, "p_limbs overlaps"},
    {area_behind_the_end, "ends behind the block's shared memory"},
    {area_whose_end_wraps, "ends behind the block's shared memory"},
    {more_than_the_target_has, "more shared memory than the target has"},
    {another_number_of_threads, "its threads are not those"},
    {no_consumers, "its threads are not those"},
    {registers_no_multiple_of_8, "no multiple of 8 from 24 to 256"},
    {too_few_registers, "no multiple of 8 from 24 to 256"},
    {a_producer_that_takes_registers, "registers go from a consumer to the producer"},
    {more_registers_than_there_were, "asks for more registers than it starts with"},
    {more_registers_at_entry, "starts with more registers than the target has"},
};

static void a_plan_that_contradicts_itself_is_refused(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(plan_faults); i++) {
        config cfg = parse("sm_90a-k2t128-v2t128-d128-h8-p64");
        decode_plan plan;
        gen_error err = {""};
        assert_true(decode_plan_make(&cfg, &plan, &err));
        plan_faults[i].spoil(&plan);
        assert_false(decode_plan_check(&plan, &err));
        if (strstr(err.message, plan_faults[i].message) == NULL)
            fail_msg("expected '%s', got '%s'", plan_faults[i].message, err.message);
        assert_non_null(strstr(err.message, "sm_90a-k2t128-v2t128-d128-h8-p64")); /* which plan */
        assert_false(decode_plan_check(&plan, NULL));
    }
}

/* A target too small for any plan. */
static void what_fails_leaves_zeroes(void **state)
{
    (void)state;
    static kernel_counts counts, zero;
    config cfg = parse("sm_90a-k2t128-v2t128-d128-h8-p64");
    target small = *cfg.target;
    small.shared_bytes = 1024;
    cfg.target = &small;
    kernel_text text, no_text;
    gen_error err = {""};
    memset(&counts, 0xa5, sizeof counts);
    memset(&text, 0xa5, sizeof text);
    memset(&no_text, 0, sizeof no_text);
    assert_false(generate_counts(&cfg, &counts, &err));
    assert_true(strlen(err.message) > 0);
    assert_memory_equal(&counts, &zero, sizeof zero);
    assert_false(generate_decode(&cfg, &text, &err));
    assert_memory_equal(&text, &no_text, sizeof no_text);
}

/* ---- Time ----------------------------------------------------------------------------------------------------------
 */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum { TIMES = 20 };

static double median_time(const char *spec)
{
    double times[TIMES];
    config cfg = parse(spec);
    for (int i = 0; i < TIMES; i++) {
        double begin = milliseconds();
        kernel_text text = generate(&cfg);
        times[i] = milliseconds() - begin;
        kernel_text_finish(&text);
    }
    qsort(times, TIMES, sizeof *times, compare_doubles);
    double median = (times[TIMES / 2 - 1] + times[TIMES / 2]) / 2;
    print_message("%s: median of %d is %.2f ms of CPU time, least %.2f, most %.2f\n", spec, TIMES, median, times[0],
                  times[TIMES - 1]);
    return median;
}

/* A usual kernel, and the longest of the grid. */
static void emitting_a_spec_takes_less_than_5_ms(void **state)
{
    (void)state;
    if (SLOWED) skip();
    assert_true(median_time("sm_90a-k2t128-v2t128-d128-h8-p64") < 5);
    assert_true(median_time("sm_90a-k4t256-v4t256-d256-h16-p64") < 5);
}

/* ---- Counts --------------------------------------------------------------------------------------------------------
 */

static kernel_counts count(const char *spec)
{
    config cfg = parse(spec);
    kernel_counts counts;
    gen_error err = {""};
    if (!generate_counts(&cfg, &counts, &err)) fail_msg("%s", err.message);
    print_message("%s: ALU an element %.4f (K %.4f, V %.4f), scale and offset operations %.4f (K %.4f, V %.4f), %d "
                  "instructions a block\n",
                  spec, counts.alu_total, counts.alu_k, counts.alu_v, counts.scale_total, counts.scale_k,
                  counts.scale_v, counts.loop_instructions);
    assert_true(counts.alu_k > 0 && counts.alu_v > 0 && counts.scale_k > 0 &&
                counts.scale_v > 0); /* the regions are there */
    return counts;
}

static void unpacking_takes_few_instructions_an_element(void **state)
{
    (void)state;
    assert_true(count("sm_90a-k2t128-v2t128-d128-h8-p64").alu_total <= 0.3125);
    assert_true(count("sm_90a-k2t128-v2t128-d128-h1-p64").alu_total <= 0.3125);
    assert_true(count("sm_90a-k4t128-v4t128-d128-h8-p64").alu_total <= 0.25);
    assert_true(count("sm_90a-k4t128-v4t128-d128-h1-p64").alu_total <= 0.25);
}

static void scales_and_offsets_take_few_operations_an_element(void **state)
{
    (void)state;
    static const char *const bits[] = {"k2t128-v2t128", "k2t128-v4t128", "k4t128-v2t128", "k4t128-v4t128"};
    for (int i = 0; i < COUNT(bits); i++) {
        char spec[CONFIG_SPEC_MAX];
        snprintf(spec, sizeof spec, "sm_90a-%s-d128-h8-p64", bits[i]);
        assert_true(count(spec).scale_total <= 0.19);
        snprintf(spec, sizeof spec, "sm_90a-%s-d128-h1-p64", bits[i]);
        assert_true(count(spec).scale_total <= 0.024);
    }
}

/* Counts instructions of the text by the comments that name regions, into the totals of `out`. The root of all regions
 * has no comment at the beginning of the kernel and the entry's name further on. */
static void count_text(const kernel_text *kernel, kernel_counts *out)
{
    memset(out, 0, sizeof *out);
    region_count *region = &out->region[out->regions++];
    for (const char *line = strstr(kernel->ptx, "{\n") + 2, *next; *line; line = next) {
        next = strchr(line, '\n') + 1;
        size_t length = (size_t)(next - line) - 1;
        if (strncmp(line, "    .reg", 8) == 0) continue;
        if (strncmp(line, "    // ", 7) == 0) {
            char path[64];
            snprintf(path, sizeof path, "%.*s", (int)length - 7, line + 7);
            if (strcmp(path, kernel->entry) == 0) path[0] = '\0';
            int r = 0;
            while (r < out->regions && strcmp(out->region[r].region, path) != 0) r++;
            if (r == out->regions) snprintf(out->region[out->regions++].region, sizeof path, "%s", path);
            region = &out->region[r];
        } else if (strncmp(line, "    ", 4) == 0 && line[length - 1] == ';') {
            region->total++;
            out->sum.total++;
        }
    }
}

static void counts_of_the_text_equal_counts_of_the_list(void **state)
{
    (void)state;
    static kernel_counts list, text;
    for (int i = 0; i < registry_size(); i += 29) {
        config cfg;
        registry_config(i, &cfg);
        kernel_text kernel = generate(&cfg);
        assert_true(generate_counts(&cfg, &list, NULL));
        count_text(&kernel, &text);
        assert_int_equal(text.sum.total, list.sum.total);
        int found = 0;
        for (int a = 0; a < list.regions; a++) {
            int b = 0;
            while (b < text.regions && strcmp(text.region[b].region, list.region[a].region) != 0) b++;
            assert_int_equal(list.region[a].total, b < text.regions ? text.region[b].total : 0);
            found += b < text.regions;
        }
        assert_int_equal(found, text.regions);
        kernel_text_finish(&kernel);
    }
}

/* ---- Golden PTX: a file tests/golden/SPEC.ptx for each spec. tools/golden.sh writes them anew; a new one begins as an
 * empty file. ----------- */

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) return NULL;
    size_t length = 0, room = 1 << 20;
    char *text = malloc(room + 1);
    for (size_t n; text && (n = fread(text + length, 1, room - length, file)) > 0;) {
        length += n;
        if (length == room) {
            char *grown = realloc(text, (room *= 2) + 1);
            if (grown == NULL) free(text);
            text = grown;
        }
    }
    fclose(file);
    if (text) text[length] = '\0';
    return text;
}

/* Says where two texts part; true if they do not. */
static bool same_text(const char *path, const char *golden, const char *now)
{
    if (strcmp(golden, now) == 0) return true;
    int line = 1;
    const char *begin = now, *old = golden;
    for (size_t i = 0; now[i] && now[i] == golden[i]; i++)
        if (now[i] == '\n') line++, begin = now + i + 1, old = golden + i + 1;
    print_error("%s differs first at line %d:\n  golden: %.*s\n  now:    %.*s\nIf that is meant, run tools/golden.sh "
                "and look at the difference "
                "before you commit it.\n",
                path, line, (int)strcspn(old, "\n"), old, (int)strcspn(begin, "\n"), begin);
    return false;
}

static void ptx_equals_the_golden_files(void **state)
{
    (void)state;
    const char *wanted = getenv("FOSCAR_TEST_GOLDEN"); /* 0: not compared; for tools/mutate.py, which asks what else sees a change */
    if (wanted != NULL && strcmp(wanted, "0") == 0) skip();
    DIR *folder = opendir("tests/golden");
    if (folder == NULL) fail_msg("no folder tests/golden here; run the test in the source folder");
    int files = 0, different = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        size_t length = strlen(entry->d_name);
        char spec[CONFIG_SPEC_MAX], path[CONFIG_SPEC_MAX + 32], canonical[CONFIG_SPEC_MAX];
        if (length <= 4 || length >= sizeof spec || strcmp(entry->d_name + length - 4, ".ptx") != 0) continue;
        snprintf(spec, sizeof spec, "%.*s", (int)length - 4, entry->d_name);
        snprintf(path, sizeof path, "tests/golden/%s.ptx", spec);
        config cfg = parse(spec);
        config_format(&cfg, canonical);
        assert_string_equal(spec, canonical);
        char *golden = read_file(path);
        assert_non_null(golden);
        kernel_text text = generate(&cfg);
        different += !same_text(path, golden, text.ptx);
        kernel_text_finish(&text);
        free(golden);
        files++;
    }
    closedir(folder);
    if (files < 4)
        fail_msg("only %d golden files in tests/golden; tools/golden.sh writes those that are missing", files);
    assert_int_equal(different, 0);
}

/* ---- Arithmetic of the limbs ---------------------------------------------------------------------------------------
 */

/* Largest relative errors (norm) that the kernel's output may have on random data and with outlier channels; its parts
 * have to lie below. */
static const double random_limit = 2e-5, outlier_limit = 1e-4;

enum { FULL_SCALE = 127 << 16, SLACK = 8 /* steps by which an approximate reciprocal may exceed it */, HEAD_DIM_MAX = 256, BLOCK = 256, ROUNDS = 20 };

static const int bit_widths[] = {2, 4};
static const int head_dims[] = {64, 128, 256};

static uint64_t random_bits(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u); /* splitmix64 */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static double random_unit(uint64_t *state)
{
    return (double)(random_bits(state) >> 11) * 0x1p-53;
}

/* About normal: the sum of twelve uniform numbers. */
static double random_normal(uint64_t *state)
{
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += random_unit(state);
    return sum;
}

static float to_bf16(double x)
{
    float rounded = (float)x;
    uint32_t bits;
    memcpy(&bits, &rounded, 4);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    memcpy(&rounded, &bits, 4);
    return rounded;
}

/* q of one channel as stage_query.c makes it, in float32; `inverse` is 1 / step. */
static int32_t q_integer(float q, float inverse) { return (int32_t)lrintf(q * inverse); }

/* Three signed bytes of a number, hi first, by the sum and exclusive or of the kernel. */
static void signed_bytes(int32_t x, int32_t limb[3])
{
    uint32_t digits = ((uint32_t)x + 0x8080u) ^ 0x8080u;
    for (int i = 0; i < 3; i++) limb[i] = (int8_t)(digits >> (8 * (2 - i)));
}

static void q_limbs_are_signed_bytes_that_give_the_number_back(void **state)
{
    (void)state;
    for (int32_t x = -FULL_SCALE - SLACK; x <= FULL_SCALE + SLACK; x++) {
        int32_t limb[3];
        signed_bytes(x, limb);
        if (limb[0] * 65536 + limb[1] * 256 + limb[2] != x)
            fail_msg("%d becomes %d, %d, %d", x, limb[0], limb[1], limb[2]);
    }
}

/* float32 sum of hi, middle and low sums, as decode_combine_limbs does. */
static float combine(const int64_t sum[3])
{
    int64_t upper = sum[0] * 256 + sum[1];
    assert_true(llabs(upper) < INT64_C(1) << 31 && llabs(sum[2]) < INT64_C(1) << 31);
    return fmaf((float)(int32_t)upper, 256, (float)(int32_t)sum[2]);
}

/* One score of a tile whose codes stand at `field`: error against sum(code * q) in float64, and its bound: one step (rounding to an integer, a rounding
   of float32 below 2^23) for every unit of a code, and the relative errors of the factors. */
static void check_score(int bits, int field, int dim, const float *q, const uint8_t *codes, int ulp, double *error, double *norm)
{
    float largest = 0x1p-100f;
    for (int c = 0; c < dim; c++) largest = fmaxf(largest, fabsf(q[c]));
    /* rcp.approx may be `ulp` units in the last place off */
    float step = largest * (1.0f / FULL_SCALE), inverse = 1 / step;
    if (ulp) inverse = nextafterf(inverse, ulp < 0 ? 0 : INFINITY);
    step *= ldexpf(1, -bits * field);
    int64_t sum[3] = {0};
    double exact = 0, bound = 0;
    for (int c = 0; c < dim; c++) {
        int32_t x = q_integer(q[c], inverse), limb[3];
        int byte = codes[c] << (bits * field);
        assert_true(abs(x) <= FULL_SCALE + SLACK && byte <= 255);
        signed_bytes(x, limb);
        for (int i = 0; i < 3; i++) sum[i] += byte * limb[i];
        exact += codes[c] * (double)q[c];
        bound += byte * (double)step + codes[c] * 0x1p-21 * fabs((double)q[c]);
    }
    double got = (double)combine(sum) * step;
    bound += 0x1p-22 * fabs(got);
    if (fabs(got - exact) > bound)
        fail_msg("%d bits, d %d: %.9g instead of %.9g, bound %.3g", bits, dim, got, exact, bound);
    *error += (got - exact) * (got - exact);
    *norm += exact * exact;
}

static void scores_from_q_limbs_are_as_precise_as_stated(void **state)
{
    (void)state;
    uint64_t seed = 2;
    for (int w = 0; w < COUNT(bit_widths); w++)
        for (int d = 0; d < COUNT(head_dims); d++)
            for (int outliers = 0; outliers < 2; outliers++) {
                double error = 0, norm = 0;
                for (int round = 0; round < 100 * ROUNDS; round++) {
                    uint8_t codes[HEAD_DIM_MAX];
                    float q[HEAD_DIM_MAX];
                    for (int c = 0; c < head_dims[d]; c++) {
                        codes[c] = (uint8_t)(random_bits(&seed) & ((1u << bit_widths[w]) - 1));
                        q[c] = to_bf16(random_normal(&seed) * (outliers && c % 32 == 5 ? 30 : 1));
                    }
                    check_score(bit_widths[w], round % (8 / bit_widths[w]), head_dims[d], q, codes, round % 3 - 1, &error, &norm);
                }
                print_message("%d bits, d %d%s: relative error of scores %.2e\n", bit_widths[w], head_dims[d],
                              outliers ? ", outliers" : "", sqrt(error / norm));
                assert_true(sqrt(error / norm) <= (outliers ? outlier_limit : random_limit));
            }
}

/* A single channel keeps 23 bits: the error of its score is at most 2^-22 of code * max |Q|. */
static void every_channel_of_q_keeps_22_bits(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (int round = 0; round < 2000 * ROUNDS; round++) {
        float q = (float)(2 * random_unit(&seed) - 1);
        int32_t limb[3];
        signed_bytes(q_integer(q, (float)FULL_SCALE), limb);
        int64_t sum[3] = {limb[0], limb[1], limb[2]};
        assert_true(fabs((double)combine(sum) / FULL_SCALE - (double)q) <= 0x1p-22);
    }
}

/* P' as stage_softmax.c makes it: an integer in the mantissa of 2^23 + weight * scale. */
static uint32_t p_integer(float weight, float scale)
{
    float sum = fmaf(weight, scale, 0x1p23f);
    uint32_t bits;
    memcpy(&bits, &sum, 4);
    assert_int_equal(bits >> 23, 0x4b000000u >> 23); /* no carry into the exponent */
    return bits & 0x7fffff;
}

/* One channel's sum over a block: weights 2^(score - reference), codes where they stand in their byte, the place's weight in the output. */
static void check_output(const config *cfg, uint64_t *seed, double *error, double *norm)
{
    const encoding *codes = cfg->v.codes;
    v_fields v = fragment_v_fields(cfg);
    int tile = (int)(random_bits(seed) % (unsigned)(cfg->head_dim / CHANNEL_TILE)), h = (int)(random_bits(seed) & 1);
    int place = h + 2 * (tile % v.tiles), mask = (1 << codes->bits) - 1;
    float score[BLOCK], scale[BLOCK], largest = 0, best = -INFINITY;
    for (int t = 0; t < BLOCK; t++) {
        score[t] = (float)(8 * random_normal(seed));
        scale[t] = (float)(int)(1 + random_bits(seed) % 2047) * 0x1p-12f; /* a float16 */
        largest = fmaxf(largest, scale[t]);
        best = fmaxf(best, score[t]);
    }
    float reference = best + (log2f(largest) - 22.9f);
    int64_t sum[3] = {0};
    double exact = 0, bound = 0;
    for (int t = 0; t < BLOCK; t++) {
        int code = (int)random_bits(seed) & mask, byte = code << (codes->bits * place);
        float weight = exp2f(score[t] - reference);
        uint32_t x = p_integer(weight, scale[t]);
        assert_true(place < codes->fields && byte <= 255);
        for (int i = 0; i < 3; i++) sum[i] += byte * (int64_t)(x >> (8 * (2 - i)) & 0xff);
        exact += code * (double)weight * scale[t];
        bound += 0.5 * code;
    }
    double got = ldexp(combine(sum), -codes->bits * place);
    bound += 0x1p-23 * exact;
    if (fabs(got - exact) > bound)
        fail_msg("%d bits, d %d: %.9g instead of %.9g, bound %.3g", codes->bits, cfg->head_dim, got, exact, bound);
    *error += (got - exact) * (got - exact);
    *norm += exact * exact;
}

static void outputs_from_p_limbs_are_as_precise_as_stated(void **state)
{
    (void)state;
    uint64_t seed = 4;
    for (int w = 0; w < COUNT(bit_widths); w++)
        for (int d = 0; d < COUNT(head_dims); d++) {
            config cfg = {.head_dim = head_dims[d], .page_tokens = 64, .v = {.codes = encoding_find(bit_widths[w])}};
            double error = 0, norm = 0;
            for (int round = 0; round < 50 * ROUNDS; round++) check_output(&cfg, &seed, &error, &norm);
            print_message("V of %d bits, d %d: relative error of a block's sums %.2e\n", bit_widths[w], head_dims[d],
                          sqrt(error / norm));
            assert_true(sqrt(error / norm) <= random_limit);
        }
}

/* ---- That arithmetic is the kernel's -------------------------------------------------------------------------------
 */

static bool ends_with(const char *path, const char *tail)
{
    size_t n = strlen(path), m = strlen(tail);
    return n >= m && strcmp(path + n - m, tail) == 0;
}

/* Masks of the unpacking of K or V of the main loop: each mask that is allowed appears equally often, and no other. */
static void check_masks(const ptx_builder *b, const char *region, const uint32_t *masks, int count)
{
    int found[4] = {0};
    for (size_t at = 0; at < b->count; at++) {
        const ptx_instruction *i = &b->list[at];
        const char *path = b->region[i->region].path;
        if (i->op != PTX_OP_and || strncmp(path, "loop", 4) != 0 || !ends_with(path, region)) continue;
        int k = 0;
        while (k < count && (int64_t)masks[k] != b->values[i->first + 2].imm) k++;
        assert_true(k < count);
        found[k]++;
    }
    for (int k = 0; k < count; k++) assert_true(found[k] > 0 && found[k] == found[0]);
}

static bool has_immediate(const ptx_builder *b, ptx_op op, float value)
{
    for (size_t at = 0; at < b->count; at++)
        for (int k = 0; b->list[at].op == op && k < b->list[at].operands; k++) {
            const ptx_value *x = &b->values[b->list[at].first + (uint32_t)k];
            if (x->kind == PTX_KIND_FIMM && x->imm == ptx_fimm(value).imm) return true;
        }
    return false;
}

static void masks_and_steps_of_the_kernel_are_those_computed_with_here(void **state)
{
    (void)state;
    for (int i = 0; i < registry_size(); i++) {
        config cfg;
        decode_plan plan;
        ptx_builder b;
        registry_config(i, &cfg);
        assert_true(decode_plan_make(&cfg, &plan, NULL));
        ptx_builder_init(&b, cfg.target, "kernel", plan.threads, plan.entry_registers);
        decode_hopper_emit(&b, &plan);
        uint32_t k[4] = {0}, v[4] = {0};
        for (int f = 0; f < cfg.k.codes->fields; f++) k[f] = cfg.k.codes->mask << (cfg.k.codes->bits * f);
        int v_masks = 0;
        for (int place = 0; place < 2 * plan.v.tiles; place++) v[v_masks++] = cfg.v.codes->mask << (cfg.v.codes->bits * place);
        check_masks(&b, "k/unpack", k, cfg.k.codes->fields);
        check_masks(&b, "v/unpack", v, v_masks);
        assert_true(has_immediate(&b, PTX_OP_mul_f32, 1.0f / FULL_SCALE));
        assert_true(has_immediate(&b, PTX_OP_add_f32, 0x1p23f));
        assert_true(has_immediate(&b, PTX_OP_add_f32, -22.9f));
        ptx_builder_finish(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_spec_of_the_grid_emits_and_verifies),
        cmocka_unit_test(the_same_spec_gives_the_same_bytes),
        cmocka_unit_test(different_specs_give_different_kernels),
        cmocka_unit_test(finishing_a_text_twice_or_none_is_harmless),
        cmocka_unit_test(every_plan_of_the_grid_passes_its_check),
        cmocka_unit_test(a_plan_that_contradicts_itself_is_refused),
        cmocka_unit_test(what_fails_leaves_zeroes),
        cmocka_unit_test(emitting_a_spec_takes_less_than_5_ms),
        cmocka_unit_test(unpacking_takes_few_instructions_an_element),
        cmocka_unit_test(scales_and_offsets_take_few_operations_an_element),
        cmocka_unit_test(counts_of_the_text_equal_counts_of_the_list),
        cmocka_unit_test(ptx_equals_the_golden_files),
        cmocka_unit_test(q_limbs_are_signed_bytes_that_give_the_number_back),
        cmocka_unit_test(scores_from_q_limbs_are_as_precise_as_stated),
        cmocka_unit_test(every_channel_of_q_keeps_22_bits),
        cmocka_unit_test(outputs_from_p_limbs_are_as_precise_as_stated),
        cmocka_unit_test(masks_and_steps_of_the_kernel_are_those_computed_with_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
