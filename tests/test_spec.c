/* Specs: the grammar, its errors, the canonical form, and the grid. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "config.h"
#include "fragment.h"

static bool same_config(const config *a, const config *b)
{
    return a->target == b->target && a->k.codes == b->k.codes && a->k.direction == b->k.direction &&
           a->k.group == b->k.group && a->v.codes == b->v.codes && a->v.direction == b->v.direction &&
           a->v.group == b->v.group && a->head_dim == b->head_dim && a->heads == b->heads &&
           a->page_tokens == b->page_tokens && a->q_type == b->q_type && a->o_type == b->o_type &&
           a->m_type == b->m_type && a->tier == b->tier;
}

static void a_spec_fills_in_every_field(void **state)
{
    (void)state;
    config cfg;
    gen_error err = {""};
    assert_true(config_parse("sm_90a-k2t64-v4t64-d64-h9-p256-f16-of32", &cfg, &err));
    assert_string_equal(cfg.target->name, "sm_90a");
    assert_int_equal(cfg.k.codes->bits, 2);
    assert_int_equal(cfg.v.codes->bits, 4);
    assert_int_equal(cfg.k.direction, GROUP_TOKEN_WISE);
    assert_int_equal(cfg.k.group, 64);
    assert_int_equal(cfg.v.group, 64);
    assert_int_equal(cfg.head_dim, 64);
    assert_int_equal(cfg.heads, 9);
    assert_int_equal(cfg.page_tokens, 256);
    assert_int_equal(cfg.q_type, NUMBER_F16);
    assert_int_equal(cfg.o_type, NUMBER_F32);
    assert_int_equal(cfg.m_type, NUMBER_F16);
}

static void the_output_type_defaults_to_that_of_q(void **state)
{
    (void)state;
    config cfg;
    assert_true(config_parse("sm_90a-k2t128-v2t128-d128-h8-p64", &cfg, NULL));
    assert_int_equal(cfg.q_type, NUMBER_BF16);
    assert_int_equal(cfg.o_type, NUMBER_BF16);
    assert_true(config_parse("sm_90a-k2t128-v2t128-d128-h8-p64-f16", &cfg, NULL));
    assert_int_equal(cfg.o_type, NUMBER_F16);
}

static void the_canonical_form_leaves_defaults_out(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *canonical;
    } rows[] = {
        {"sm_90a-k2t128-v2t128-d128-h8-p64", "sm_90a-k2t128-v2t128-d128-h8-p64"},
        {"sm_90a-k2t128-v2t128-d128-h8-p64-bf16", "sm_90a-k2t128-v2t128-d128-h8-p64"},
        {"sm_90a-k2t128-v2t128-d128-h8-p64-bf16-obf16-mf16", "sm_90a-k2t128-v2t128-d128-h8-p64"},
        {"sm_90a-k2t128-v2t128-d128-h8-p64-obf16", "sm_90a-k2t128-v2t128-d128-h8-p64"},
        {"sm_90a-k4t128-v2t128-d128-h8-p64-f16-of16", "sm_90a-k4t128-v2t128-d128-h8-p64-f16"},
        {"sm_90a-k4t128-v2t128-d128-h8-p64-f16-obf16", "sm_90a-k4t128-v2t128-d128-h8-p64-f16-obf16"},
        {"sm_90a-k4t128-v2t128-d128-h8-p64-of32", "sm_90a-k4t128-v2t128-d128-h8-p64-of32"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        config cfg;
        char text[CONFIG_SPEC_MAX];
        assert_true(config_parse(rows[i].spec, &cfg, NULL));
        config_format(&cfg, text);
        assert_string_equal(text, rows[i].canonical);
    }
}

/* Specs of caches that no decode kernel reads yet are held to the same rules, but for that. */
static void a_cache_may_have_every_scheme(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *canonical;
        bool tier;
    } rows[] = {
        {"sm_90a-k2t128-v2t128-d128-h8-p64", "sm_90a-k2t128-v2t128-d128-h8-p64", false},
        {"sm_90a-k2t128-v2t128-d128-h8-p64-tier", "sm_90a-k2t128-v2t128-d128-h8-p64-tier", true},
        {"sm_90a-k2c64-v2t128-d128-h8-p64", "sm_90a-k2c64-v2t128-d128-h8-p64", true},
        {"sm_90a-k2c64-v2t128-d128-h8-p64-tier", "sm_90a-k2c64-v2t128-d128-h8-p64", true},
        {"sm_90a-k2t128-v2cs128-d128-h8-p64-mbf16-tier", "sm_90a-k2t128-v2cs128-d128-h8-p64-mbf16", true},
        {"sm_90a-k4ts32-v2t64-d128-h8-p16-f16-mbf16-tier", "sm_90a-k4ts32-v2t64-d128-h8-p16-f16-mbf16-tier", true},
        {"sm_90a-k4t32-v4ts64-d64-h1-p16-mf16", "sm_90a-k4t32-v4ts64-d64-h1-p16", false},
        {"sm_90a-k2c32-v2t64-d64-h2-p256-f16-bf16", NULL, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        config cfg, again;
        char text[CONFIG_SPEC_MAX];
        gen_error err = {""};
        bool ok = config_parse_cache(rows[i].spec, &cfg, &err);
        if (ok != (rows[i].canonical != NULL)) fail_msg("%s: %s", rows[i].spec, ok ? "accepted" : err.message);
        if (!ok) continue;
        config_format(&cfg, text);
        assert_string_equal(text, rows[i].canonical);
        assert_true(cfg.tier == rows[i].tier);
        assert_true(config_parse_cache(text, &again, NULL) && same_config(&cfg, &again));
        assert_true(config_parse(text, &again, NULL) == config_check_kernels(&cfg, NULL));
    }
}

/* With every pair of schemes on the smallest pages that the rules allow, all codes and metadata have a place. */
static void the_rules_allow_what_has_a_layout(void **state)
{
    (void)state;
    static const int dims[] = {64, 128, 256}, pages[] = {16, 32, 64, 128, 256};
    for (size_t d = 0; d < sizeof dims / sizeof *dims; d++) {
        scheme all[SCHEMES_MAX];
        int count = scheme_list(dims[d], all);
        for (int i = 0; i < count * count * 5; i++) {
            config cfg = {.target = target_row(0),
                          .k = all[i / 5 % count],
                          .v = all[i / 5 / count],
                          .head_dim = dims[d],
                          .heads = 1,
                          .page_tokens = pages[i % 5]};
            bool channel_wise = config_needs_tier(&cfg);
            cfg.tier = channel_wise;
            bool fits = cfg.page_tokens >= (channel_wise                                ? 64
                                            : dims[d] == 64 && cfg.v.codes->bits == 2 ? 32
                                                                                        : 16);
            assert_true(config_check(&cfg, NULL) == fits);
            if (!fits) continue;
            page_layout page = fragment_page_layout(&cfg);
            assert_int_equal(page.bytes % 16, 0);
            for (int t = 0; t < cfg.page_tokens; t += 15) {
                assert_true(fragment_k_place(&cfg, t, dims[d] - 1).byte < page.bytes);
                assert_true(fragment_v_place(&cfg, t, dims[d] - 1).byte < page.bytes - page.v_codes);
            }
            cfg.tier = false;
            assert_true(config_check(&cfg, NULL) == !channel_wise);
        }
    }
}

static void a_bad_spec_names_the_field_its_value_and_what_is_allowed(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *parts[3]; /* each must be found in the message */
    } rows[] = {
        {"sm_90a-k2t128-v2t128-d100-h8-p64",
         {"spec field 'd': 100 is not a head dimension this target has (64, 128, 256)"}},
        {"sm_80-k2t128-v2t128-d128-h8-p64", {"'target'", "'sm_80'", "(sm_90a)"}},
        {"sm_90a-k3t128-v2t128-d128-h8-p64", {"'k'", "3 ", "(2, 4)"}},
        {"sm_90a-k2t128-v8t128-d128-h8-p64", {"'v'", "8 ", "(2, 4)"}},
        {"sm_90a-kt128-v2t128-d128-h8-p64", {"'k'", "'t128'", "(2, 4)"}},
        {"sm_90a-k2x128-v2t128-d128-h8-p64", {"'k'", "'2x128'", "t token-wise, c channel-wise"}},
        {"sm_90a-k2-v2t128-d128-h8-p64", {"'k'", "'2'", "t token-wise"}},
        {"sm_90a-k2t-v2t128-d128-h8-p64", {"'k'", "'2t'", "group size"}},
        {"sm_90a-k2t0-v2t128-d128-h8-p64", {"'k'", "'2t0'", "group size"}},
        {"sm_90a-k2t0128-v2t128-d128-h8-p64", {"'k'", "'2t0128'", "leading zeros"}},
        {"sm_90a-k2t128x-v2t128-d128-h8-p64", {"'k'", "'2t128x'"}},
        {"sm_90a-k2t64-v2t128-d128-h8-p64", {"'k'", "64 ", "128"}},
        {"sm_90a-k2t128-v2t32-d128-h8-p64", {"'v'", "32 ", "128"}},
        {"sm_90a-k2c64-v2t128-d128-h8-p64", {"'k'", "channel-wise groups (c64) are not built yet", "t128"}},
        {"sm_90a-k2t64-v2c32-d64-h8-p64", {"'v'", "channel-wise groups (c32) are not built yet", "t64"}},
        {"sm_90a-k2t128-v2t128-d0128-h8-p64", {"'d'", "0128", "(64, 128, 256)"}},
        {"sm_90a-k2t128-v2t128-d128-h0-p64", {"'h'", "0 ", "1 to 16"}},
        {"sm_90a-k2t128-v2t128-d128-h17-p64", {"'h'", "17", "1 to 16"}},
        {"sm_90a-k2t128-v2t128-d128-h-p64", {"'h'", "nothing", "1 to 16"}},
        {"sm_90a-k2t128-v2t128-d128-h08-p64", {"'h'", "08", "1 to 16"}},
        {"sm_90a-k2t128-v2t128-d128-h4294967304-p64", {"'h'", "4294967304", "1 to 16"}},
        {"sm_90a-k2t128-v2t128-d128-h8-p32", {"'p'", "32 ", "(64, 128, 256)"}},
        {"sm_90a-k2t128-v2t128-d128-h8-p64x", {"'p'", "64x", "(16, 32, 64, 128, 256)"}},
        {"sm_90a-k2t128-v2t128-d128-h8-p8", {"'p'", "8 ", "(16, 32, 64, 128, 256)"}},
        {"sm_90a-k2c64-v2t128-d128-h8-p32", {"'p'", "channel-wise groups (field 'k')", "at least 64 tokens, not 32"}},
        {"sm_90a-k2t128-v4cs32-d128-h8-p16", {"'p'", "symmetric channel-wise groups (field 'v')", "at least 64"}},
        {"sm_90a-k2t64-v2t64-d64-h8-p16", {"'p'", "2-bit V", "at least 32 tokens, not 16"}},
        {"sm_90a-k2t48-v2t128-d128-h8-p64", {"'k'", "48 is not a token-wise group", "(32, 64, 128)"}},
        {"sm_90a-k2t128-v2c256-d128-h8-p256", {"'v'", "256 is not a channel-wise group", "(32, 64, 128)"}},
        {"sm_90a-k2t128-v2t128-d128-h8", {"'p'", "missing", "p64"}},
        {"sm_90a", {"'k'", "missing", "k2t128"}},
        {"sm_90a-v2t128-d128-h8-p64", {"'k'", "missing", "'v2t128'"}},
        {"sm_90a-k2t128-k2t128-v2t128-d128-h8-p64", {"'k'", "twice", "order"}},
        {"sm_90a-k2t128-v2t128-d128-h8-p64-p64", {"'p'", "twice"}},
        {"sm_90a-k2t128-v2t128-d128-h8-p64-of32-f16", {"'q'", "out of order", "'f16'"}},
        {"sm_90a-k2t128-v2t128-d128-h8-p64-of32-of32", {"'o'", "twice"}},
        {"sm_90a-k2t128-v2t128-d128-h8-p64-x7", {"'x7'", "not known", "k, v, d, h, p"}},
        {"sm_90a-k2t128-v2t128-d128-h8-p64-f32", {"'q'", "'f32'", "(bf16, f16)"}},
        {"sm_90a-k2t128-v2t128-d128-h8-p64-oe4m3", {"'o'", "'e4m3'", "(bf16, f16, f32)"}},
        {"sm_90a-k2t128-v2t128-d128-h8-p64-o", {"'o'", "''", "(bf16, f16, f32)"}},
        {"sm_90a-k2t128-v2t128-d128-h8-p64-mbf16", {"'m'", "'bf16'", "(f16)"}},
        {"sm_90a-k2t128-v2t128-d128-h8-p64-mf32", {"'m'", "'f32'", "(f16, bf16)"}},
        {"sm_90a-k2t128-v2t128-d128-h8-p64-tier", {"'t'", "tier", "not built yet"}},
        {"sm_90a-k2t128-v2t128-d128-h8-p64-tiers", {"'t'", "'tiers'", "'tier'"}},
        {"sm_90a-k2t128-v2t128-d128-h8-p64-tier-mf16", {"'m'", "out of order"}},
        {"sm_90a-k2t128-v2t128-d128-h8-p64-tier-tier", {"'t'", "twice"}},
        {"sm_90a-k2t128-v2t128-d128-h8-p64-", {"empty field"}},
        {"sm_90a--k2t128-v2t128-d128-h8-p64", {"empty field"}},
        {"", {"empty", "sm_90a-k2t128-v2t128-d128-h8-p64"}},
        {"sm_90a-k2t128-v2t128-d128-h8-p64\n", {"0x0a", "position 32"}},
        {"SM_90a-k2t128-v2t128-d128-h8-p64", {"0x53", "position 0"}},
        {"sm_90a-k2t128-v2t128-d128-h8-p64-\xc3\xa4", {"0xc3"}},
        {"sm_90a-k2t128-v2t128-d128-h8-p64-bf16-obf16-mf16-bf16-obf16-mf16-bf16-obf16-mf16-bf16-obf16-mf16",
         {"longer than 95 bytes"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        config cfg, before;
        memset(&cfg, 0x5a, sizeof cfg);
        memcpy(&before, &cfg, sizeof cfg);
        gen_error err = {""};
        if (config_parse(rows[i].spec, &cfg, &err)) fail_msg("'%s' was accepted", rows[i].spec);
        for (int part = 0; part < 3 && rows[i].parts[part] != NULL; part++)
            if (strstr(err.message, rows[i].parts[part]) == NULL)
                fail_msg("'%s': \"%s\" does not say \"%s\"", rows[i].spec, err.message, rows[i].parts[part]);
        assert_null(strchr(err.message, '\n'));
        assert_memory_equal(&cfg, &before, sizeof cfg); /* the output is untouched */
    }
}

static void a_null_spec_is_an_error(void **state)
{
    (void)state;
    config cfg;
    gen_error err = {""};
    assert_false(config_parse(NULL, &cfg, &err));
    assert_non_null(strstr(err.message, "empty"));
    assert_false(config_parse(NULL, &cfg, NULL));
}

/* Every spec with one byte taken out or replaced is parsed or refused with a message, and a parsed one comes back from
 * its canonical form. */
static void any_mutation_parses_or_explains(void **state)
{
    (void)state;
    static const char seed[] = "sm_90a-k2c64-v4ts128-d128-h16-p256-f16-of32-mbf16-tier";
    static const char bytes[] = "0123456789abcdfhkmopstvx-_ \n\x80";
    for (size_t at = 0; at < sizeof seed - 1; at++) {
        for (size_t b = 0; b < sizeof bytes; b++) { /* the NUL at the end cuts the spec short */
            char spec[sizeof seed];
            memcpy(spec, seed, sizeof seed);
            spec[at] = bytes[b];
            config cfg, again;
            char text[CONFIG_SPEC_MAX];
            gen_error err = {""};
            if (!config_parse_cache(spec, &cfg, &err)) {
                assert_int_not_equal(strlen(err.message), 0);
                continue;
            }
            config_format(&cfg, text);
            assert_true(config_parse_cache(text, &again, NULL));
            assert_true(same_config(&cfg, &again));
        }
    }
}

static void the_grid_has_distinct_valid_specs(void **state)
{
    (void)state;
    static char seen[1024][CONFIG_SPEC_MAX];
    int size = registry_size();
    assert_in_range(size, 1, 1024);
    for (int i = 0; i < size; i++) {
        config cfg, again;
        gen_error err = {""};
        registry_config(i, &cfg);
        config_format(&cfg, seen[i]);
        if (!config_parse(seen[i], &again, &err)) fail_msg("%s: %s", seen[i], err.message);
        assert_true(same_config(&cfg, &again));
        for (int j = 0; j < i; j++) assert_string_not_equal(seen[i], seen[j]);
    }
}

static void the_grid_covers_every_shape(void **state)
{
    (void)state;
    static const char *const wanted[] = {
        "sm_90a-k2t128-v2t128-d128-h8-p64",     "sm_90a-k4t64-v2t64-d64-h3-p128",
        "sm_90a-k2t256-v4t256-d256-h16-p256",   "sm_90a-k2t128-v2t128-d128-h7-p64",
        "sm_90a-k4t128-v4t128-d128-h12-p64",    "sm_90a-k2t128-v2t128-d128-h8-p64-of32",
        "sm_90a-k4t128-v2t128-d128-h8-p64-f16", "sm_90a-k2t128-v4t128-d128-h8-p64-f16-of32",
    };
    for (size_t w = 0; w < sizeof wanted / sizeof *wanted; w++) {
        bool found = false;
        for (int i = 0; i < registry_size() && !found; i++) {
            config cfg;
            char text[CONFIG_SPEC_MAX];
            registry_config(i, &cfg);
            config_format(&cfg, text);
            found = strcmp(text, wanted[w]) == 0;
        }
        if (!found) fail_msg("%s is not in the grid", wanted[w]);
    }
}

static void the_tables_find_their_rows(void **state)
{
    (void)state;
    assert_ptr_equal(target_find("sm_90a"), target_row(0));
    assert_null(target_find("sm_90"));
    assert_null(target_row(-1));
    assert_null(target_row(1000));
    assert_int_equal(target_row(0)->compute_capability, 90);
    for (int bits = 0; bits <= 8; bits++) {
        const encoding *e = encoding_find(bits);
        assert_true((e != NULL) == (bits == 2 || bits == 4));
        if (e == NULL) continue;
        assert_int_equal(e->fields * bits, 8);
        assert_int_equal(e->codes_per_word * bits, 32);
        assert_int_equal(e->mask, ((1u << bits) - 1) * 0x01010101u);
    }
    for (int type = 0; type < NUMBER_TYPES; type++) {
        const number_row *row = number_info((number_type)type);
        number_type found;
        assert_true(number_find(row->name, strlen(row->name), &found));
        assert_int_equal(found, type);
        assert_false(number_find(row->name, strlen(row->name) - 1, &found));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_spec_fills_in_every_field),
        cmocka_unit_test(the_output_type_defaults_to_that_of_q),
        cmocka_unit_test(the_canonical_form_leaves_defaults_out),
        cmocka_unit_test(a_cache_may_have_every_scheme),
        cmocka_unit_test(the_rules_allow_what_has_a_layout),
        cmocka_unit_test(a_bad_spec_names_the_field_its_value_and_what_is_allowed),
        cmocka_unit_test(a_null_spec_is_an_error),
        cmocka_unit_test(any_mutation_parses_or_explains),
        cmocka_unit_test(the_grid_has_distinct_valid_specs),
        cmocka_unit_test(the_grid_covers_every_shape),
        cmocka_unit_test(the_tables_find_their_rows),
    };
    return cmocka_run_group_tests_name("spec", tests, NULL, NULL);
}
