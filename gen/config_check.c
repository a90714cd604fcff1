/* What a cache can hold, whatever reads it, and what decode kernels are generated for: the two judgements of a configuration. The second is the only place
 * that knows of kernels not yet written; it gets shorter as they are. */
#include "config.h"

#include <stdio.h>

#include "fragment.h"

enum { CHANNEL_WISE_PAGE_LEAST = 64, PAGES_OF_A_GROUP_MAX = 2 };

static const int kernel_pages[] = {64, 128, 256};

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* ---- What a cache can hold ---- */

/* Groups along the tokens and their pages. */
static bool check_channel_wise(char letter, const scheme *s, int page_tokens, gen_error *err)
{
    if (!scheme_is_channel_wise(s)) return true;
    if (page_tokens < CHANNEL_WISE_PAGE_LEAST)
        return gen_fail(err, "spec field 'p': %s groups (field '%c') take pages of at least %d tokens, not %d", grouping_info(s->direction)->name, letter,
                        (int)CHANNEL_WISE_PAGE_LEAST, page_tokens);
    if (s->group > PAGES_OF_A_GROUP_MAX * page_tokens)
        return gen_fail(err, "spec field '%c': a group of %d tokens is longer than %d pages of %d", letter, s->group, (int)PAGES_OF_A_GROUP_MAX, page_tokens);
    return true;
}

bool config_check(const config *cfg, gen_error *err)
{
    if (!scheme_check('k', &cfg->k, cfg->head_dim, err) || !scheme_check('v', &cfg->v, cfg->head_dim, err)) return false;
    if (!check_channel_wise('k', &cfg->k, cfg->page_tokens, err) || !check_channel_wise('v', &cfg->v, cfg->page_tokens, err)) return false;
    if (fragment_v_fields(cfg).words < 1)
        return gen_fail(err, "spec field 'p': %d-bit V with heads of %d channels takes pages of at least %d tokens, not %d", cfg->v.codes->bits, cfg->head_dim,
                        2 * SLICE_TOKENS, cfg->page_tokens);
    if (!cfg->tier && config_needs_tier(cfg)) return gen_fail(err, "channel-wise groups are quantised when they are full, so they need the tier");
    return true;
}

bool config_needs_tier(const config *cfg)
{
    return scheme_is_channel_wise(&cfg->k) || scheme_is_channel_wise(&cfg->v);
}

/* ---- What decode kernels are generated for ---- */

bool scheme_check_kernels(char letter, const scheme *s, int head_dim, gen_error *err)
{
    const grouping_row *row = grouping_info(s->direction);
    if (!row->kernels)
        return gen_fail(err, "spec field '%c': %s groups (%s%d) are not built yet; allowed with d%d is token-wise t%d", letter, row->name, row->letters,
                        s->group, head_dim, head_dim);
    if (s->group != head_dim)
        return gen_fail(err, "spec field '%c': %d is not a %s group this version has with d%d (%d, the whole head)", letter, s->group, row->name, head_dim,
                        head_dim);
    return true;
}

static bool check_metadata_type(number_type m_type, gen_error *err)
{
    if (m_type == NUMBER_F16) return true;
    return gen_fail(err, "spec field 'm': kernels with metadata of '%s' are not built yet (%s)", number_info(m_type)->name, number_info(NUMBER_F16)->name);
}

static bool check_page(int page_tokens, gen_error *err)
{
    char list[64];
    int used = 0;
    for (int i = 0; i < COUNT(kernel_pages); i++) {
        if (page_tokens == kernel_pages[i]) return true;
        used += snprintf(list + used, sizeof list - (size_t)used, "%s%d", i > 0 ? ", " : "", kernel_pages[i]);
    }
    return gen_fail(err, "spec field 'p': kernels for pages of %d tokens are not built yet (%s)", page_tokens, list);
}

bool config_check_kernels(const config *cfg, gen_error *err)
{
    if (!scheme_check_kernels('k', &cfg->k, cfg->head_dim, err) || !scheme_check_kernels('v', &cfg->v, cfg->head_dim, err)) return false;
    if (!check_page(cfg->page_tokens, err) || !check_metadata_type(cfg->m_type, err)) return false;
    if (cfg->tier) return gen_fail(err, "spec field 't': kernels that read the full-precision tier are not built yet");
    return true;
}

bool scheme_pair_has_kernels(const scheme_pair *pair, int head_dim)
{
    return check_metadata_type(pair->m_type, NULL) && scheme_check_kernels('k', &pair->k, head_dim, NULL) &&
           scheme_check_kernels('v', &pair->v, head_dim, NULL);
}
