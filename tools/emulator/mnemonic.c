/* Mnemonics: which rows of forms.def one may be, and what its modifiers mean. */
#include "parse.h"

#include <stdlib.h>
#include <string.h>

#include "exec.h"

#define FORM(pattern, handler, classes, target, version, flags)                                                        \
    {pattern, classes, exec_##handler, target, version, flags},
static const form forms[] = {
#include "forms.def"
};
#undef FORM

enum { FORM_COUNT = sizeof forms / sizeof *forms };

const form *forms_return(void)
{
    for (int i = 0; i < FORM_COUNT; i++)
        if (strcmp(forms[i].pattern, "ret[.uni]") == 0) return &forms[i];
    return NULL;
}

/* ---- Patterns ---- */

/* Does the text match? *furthest: how far any attempt came. Recursion is bounded by the pattern. */
static bool match(const char *pattern, const char *text, const char **furthest)
{
    for (;;) {
        if (text > *furthest) *furthest = text;
        switch (*pattern) {
        case '\0':
            return *text == '\0';
        case '[': /* with it, or without */
            if (match(pattern + 1, text, furthest)) return true;
            pattern = strchr(pattern, ']') + 1;
            break;
        case ']':
            pattern++;
            break;
        case '#':
            if (*text < '0' || *text > '9') return false;
            while (*text >= '0' && *text <= '9') text++;
            pattern++;
            break;
        case '{': {
            const char *rest = strchr(pattern, '}') + 1;
            do {
                size_t length = strcspn(++pattern, ",}");
                if (strncmp(pattern, text, length) == 0 && match(rest, text + length, furthest)) return true;
                pattern += length;
            } while (*pattern == ',');
            return false;
        }
        default:
            if (*pattern != *text) return false;
            pattern++;
            text++;
        }
    }
}

/* ---- Modifiers ---- */

typedef enum word_kind {
    WORD_NOTHING,
    WORD_SPACE,
    WORD_VECTOR,
    WORD_COMPARE,
    WORD_BOOLEAN,
    WORD_ROUNDING,
    WORD_SATURATE,
    WORD_FINITE,
    WORD_FTZ,
    WORD_APPROX,
    WORD_WIDE,
    WORD_HIGH,
    WORD_UNIFORM,
    WORD_SCOPE,
    WORD_SEMANTICS,
    WORD_MODE,
    WORD_EXTRA,
    WORD_M,
    WORD_N,
    WORD_K
} word_kind;

/* What a word means after a mnemonic (the first word), or after any. The first row that fits counts. */
static const struct {
    const char *mnemonic, *word;
    word_kind kind;
    unsigned value;
} words[] = {
    {"testp", "finite", WORD_MODE, MODE_TEST_FINITE},
    {"testp", "infinite", WORD_MODE, MODE_TEST_INFINITE},
    {"testp", "number", WORD_MODE, MODE_TEST_NUMBER},
    {"testp", "notanumber", WORD_MODE, MODE_TEST_NOTANUMBER},
    {"testp", "normal", WORD_MODE, MODE_TEST_NORMAL},
    {"testp", "subnormal", WORD_MODE, MODE_TEST_SUBNORMAL},
    {"set", "lo", WORD_COMPARE, COMPARE_LT},
    {"set", "ls", WORD_COMPARE, COMPARE_LE},
    {"set", "hi", WORD_COMPARE, COMPARE_GT},
    {"set", "hs", WORD_COMPARE, COMPARE_GE},
    {"set", "and", WORD_BOOLEAN, 1},
    {"set", "or", WORD_BOOLEAN, 2},
    {"set", "xor", WORD_BOOLEAN, 3},
    {"setp", "lo", WORD_COMPARE, COMPARE_LT},
    {"setp", "ls", WORD_COMPARE, COMPARE_LE},
    {"setp", "hi", WORD_COMPARE, COMPARE_GT},
    {"setp", "hs", WORD_COMPARE, COMPARE_GE},
    {"setp", "and", WORD_BOOLEAN, 1},
    {"setp", "or", WORD_BOOLEAN, 2},
    {"setp", "xor", WORD_BOOLEAN, 3},
    {NULL, "eq", WORD_COMPARE, COMPARE_EQ},
    {NULL, "ne", WORD_COMPARE, COMPARE_NE},
    {NULL, "lt", WORD_COMPARE, COMPARE_LT},
    {NULL, "le", WORD_COMPARE, COMPARE_LE},
    {NULL, "gt", WORD_COMPARE, COMPARE_GT},
    {NULL, "ge", WORD_COMPARE, COMPARE_GE},
    {NULL, "equ", WORD_COMPARE, COMPARE_EQU},
    {NULL, "neu", WORD_COMPARE, COMPARE_NEU},
    {NULL, "ltu", WORD_COMPARE, COMPARE_LTU},
    {NULL, "leu", WORD_COMPARE, COMPARE_LEU},
    {NULL, "gtu", WORD_COMPARE, COMPARE_GTU},
    {NULL, "geu", WORD_COMPARE, COMPARE_GEU},
    {NULL, "num", WORD_COMPARE, COMPARE_NUM},
    {NULL, "nan", WORD_COMPARE, COMPARE_NAN},
    {NULL, "rn", WORD_ROUNDING, ROUND_RN},
    {NULL, "rz", WORD_ROUNDING, ROUND_RZ},
    {NULL, "rm", WORD_ROUNDING, ROUND_RM},
    {NULL, "rp", WORD_ROUNDING, ROUND_RP},
    {NULL, "rna", WORD_ROUNDING, ROUND_RNA},
    {NULL, "rni", WORD_ROUNDING, ROUND_RNI},
    {NULL, "rzi", WORD_ROUNDING, ROUND_RZI},
    {NULL, "rmi", WORD_ROUNDING, ROUND_RMI},
    {NULL, "rpi", WORD_ROUNDING, ROUND_RPI},
    {NULL, "sat", WORD_SATURATE, 0},
    {NULL, "satfinite", WORD_FINITE, 0},
    {NULL, "ftz", WORD_FTZ, 0},
    {NULL, "approx", WORD_APPROX, 0},
    {NULL, "wide", WORD_WIDE, 0},
    {NULL, "cc", WORD_EXTRA, EXTRA_CC},
    {"madc", "hi", WORD_HIGH, 0},
    {"madc", "lo", WORD_NOTHING, 0},
    {"mul24", "hi", WORD_HIGH, 0},
    {"mul24", "lo", WORD_NOTHING, 0},
    {"mad24", "hi", WORD_HIGH, 0},
    {"mad24", "lo", WORD_NOTHING, 0},
    {"dp2a", "hi", WORD_HIGH, 0},
    {"dp2a", "lo", WORD_NOTHING, 0},
    {"bmsk", "clamp", WORD_EXTRA, EXTRA_CLAMP},
    {"bmsk", "wrap", WORD_NOTHING, 0},
    {"szext", "clamp", WORD_EXTRA, EXTRA_CLAMP},
    {"szext", "wrap", WORD_NOTHING, 0},
    {"cvt", "pack", WORD_NOTHING, 0},
    {NULL, "noftz", WORD_NOTHING, 0},
    {"mul", "hi", WORD_HIGH, 0},
    {"mad", "hi", WORD_HIGH, 0},
    {"mul", "lo", WORD_NOTHING, 0},
    {"mad", "lo", WORD_NOTHING, 0},
    {"vote", "uni", WORD_MODE, MODE_UNI},
    {NULL, "uni", WORD_UNIFORM, 0},
    {NULL, "NaN", WORD_EXTRA, EXTRA_NAN},
    {NULL, "relu", WORD_EXTRA, EXTRA_RELU},
    {"shf", "l", WORD_MODE, MODE_SHF_LEFT},
    {"shf", "r", WORD_MODE, MODE_SHF_RIGHT},
    {"shf", "clamp", WORD_EXTRA, EXTRA_CLAMP},
    {"shf", "wrap", WORD_NOTHING, 0},
    {"prmt", "f4e", WORD_MODE, MODE_PRMT_F4E},
    {"prmt", "b4e", WORD_MODE, MODE_PRMT_B4E},
    {"prmt", "rc8", WORD_MODE, MODE_PRMT_RC8},
    {"prmt", "ecl", WORD_MODE, MODE_PRMT_ECL},
    {"prmt", "ecr", WORD_MODE, MODE_PRMT_ECR},
    {"prmt", "rc16", WORD_MODE, MODE_PRMT_RC16},
    {"bfind", "shiftamt", WORD_EXTRA, EXTRA_SHIFTAMT},
    {"div", "full", WORD_MODE, MODE_DIV_FULL},
    {"cvta", "to", WORD_MODE, MODE_CVTA_TO},
    /* Memory */
    {NULL, "global", WORD_SPACE, SPACE_GLOBAL},
    {NULL, "shared", WORD_SPACE, SPACE_SHARED},
    {NULL, "shared::cta", WORD_SPACE, SPACE_SHARED},
    {NULL, "shared::cluster", WORD_SPACE, SPACE_SHARED},
    {NULL, "param", WORD_SPACE, SPACE_PARAM},
    {NULL, "param::entry", WORD_SPACE, SPACE_PARAM},
    {NULL, "param::func", WORD_SPACE, SPACE_PARAM},
    {NULL, "local", WORD_SPACE, SPACE_LOCAL},
    {NULL, "const", WORD_SPACE, SPACE_CONST},
    {NULL, "v2", WORD_VECTOR, 2},
    {NULL, "v4", WORD_VECTOR, 4},
    {NULL, "v8", WORD_VECTOR, 8},
    {"bar", "cta", WORD_NOTHING, 0},
    {"barrier", "cta", WORD_NOTHING, 0},
    {NULL, "cta", WORD_SCOPE, SCOPE_CTA},
    {NULL, "cluster", WORD_SCOPE, SCOPE_CLUSTER},
    {NULL, "gpu", WORD_SCOPE, SCOPE_GPU},
    {NULL, "gl", WORD_SCOPE, SCOPE_GPU},
    {NULL, "sys", WORD_SCOPE, SCOPE_SYS},
    {NULL, "weak", WORD_SEMANTICS, SEMANTICS_WEAK},
    {NULL, "relaxed", WORD_SEMANTICS, SEMANTICS_RELAXED},
    {NULL, "acquire", WORD_SEMANTICS, SEMANTICS_ACQUIRE},
    {NULL, "release", WORD_SEMANTICS, SEMANTICS_RELEASE},
    {NULL, "acq_rel", WORD_SEMANTICS, SEMANTICS_ACQ_REL},
    {NULL, "sc", WORD_SEMANTICS, SEMANTICS_SC},
    {NULL, "volatile", WORD_SEMANTICS, SEMANTICS_VOLATILE},
    {NULL, "L2::cache_hint", WORD_EXTRA, EXTRA_CACHE_HINT},
    {"cp", "cg", WORD_EXTRA, EXTRA_CG},
    {"cp", "noinc", WORD_EXTRA, EXTRA_NOINC},
    {"cp", "wait_all", WORD_NOTHING, 0},
    {"cp", "mbarrier", WORD_NOTHING, 0},
    {"mbarrier", "arrive_drop", WORD_NOTHING, 0},
    {"mbarrier", "noComplete", WORD_NOTHING, 0},
    {"mbarrier", "pending_count", WORD_NOTHING, 0},
    {NULL, "ca", WORD_NOTHING, 0},
    {NULL, "cg", WORD_NOTHING, 0},
    {NULL, "cs", WORD_NOTHING, 0},
    {NULL, "lu", WORD_NOTHING, 0},
    {NULL, "cv", WORD_NOTHING, 0},
    {NULL, "wb", WORD_NOTHING, 0},
    {NULL, "wt", WORD_NOTHING, 0},
    {NULL, "nc", WORD_NOTHING, 0},
    {NULL, "L1", WORD_NOTHING, 0},
    {NULL, "L2", WORD_NOTHING, 0},
    {NULL, "L1::evict_normal", WORD_NOTHING, 0},
    {NULL, "L1::evict_unchanged", WORD_NOTHING, 0},
    {NULL, "L1::evict_first", WORD_NOTHING, 0},
    {NULL, "L1::evict_last", WORD_NOTHING, 0},
    {NULL, "L1::no_allocate", WORD_NOTHING, 0},
    {NULL, "L2::evict_normal", WORD_NOTHING, 0},
    {NULL, "L2::evict_first", WORD_NOTHING, 0},
    {NULL, "L2::evict_last", WORD_NOTHING, 0},
    {NULL, "L2::64B", WORD_NOTHING, 0},
    {NULL, "L2::128B", WORD_NOTHING, 0},
    {NULL, "L2::256B", WORD_NOTHING, 0},
    /* Operations between lanes or on memory */
    {"shfl", "up", WORD_MODE, MODE_SHFL_UP},
    {"shfl", "down", WORD_MODE, MODE_SHFL_DOWN},
    {"shfl", "bfly", WORD_MODE, MODE_SHFL_BFLY},
    {"shfl", "idx", WORD_MODE, MODE_SHFL_IDX},
    {NULL, "all", WORD_MODE, MODE_ALL},
    {NULL, "any", WORD_MODE, MODE_ANY},
    {NULL, "ballot", WORD_MODE, MODE_BALLOT},
    {"setmaxnreg", "inc", WORD_MODE, MODE_SETMAXNREG_INC},
    {"setmaxnreg", "dec", WORD_MODE, MODE_SETMAXNREG_DEC},
    {"mma", "popc", WORD_NOTHING, 0},
    {"wmma", "popc", WORD_NOTHING, 0},
    {"wmma", "a", WORD_MODE, MODE_WMMA_A},
    {"wmma", "b", WORD_MODE, MODE_WMMA_B},
    {"wmma", "c", WORD_MODE, MODE_WMMA_C},
    {"wmma", "d", WORD_MODE, MODE_WMMA_D},
    {"wmma", "load", WORD_NOTHING, 0},
    {"wmma", "store", WORD_NOTHING, 0},
    {"wmma", "mma", WORD_NOTHING, 0},
    {NULL, "row", WORD_NOTHING, 0},
    {NULL, "col", WORD_EXTRA, EXTRA_COLUMN},
    {NULL, "trans", WORD_EXTRA, EXTRA_TRANSPOSED},
    {NULL, "add", WORD_MODE, MODE_ADD},
    {NULL, "min", WORD_MODE, MODE_MIN},
    {NULL, "max", WORD_MODE, MODE_MAX},
    {NULL, "and", WORD_MODE, MODE_AND},
    {NULL, "or", WORD_MODE, MODE_OR},
    {NULL, "xor", WORD_MODE, MODE_XOR},
    {NULL, "exch", WORD_MODE, MODE_EXCH},
    {NULL, "cas", WORD_MODE, MODE_CAS},
    {NULL, "inc", WORD_MODE, MODE_INC},
    {NULL, "dec", WORD_MODE, MODE_DEC},
    {NULL, "popc", WORD_MODE, MODE_POPC},
    {"griddepcontrol", "wait", WORD_MODE, MODE_GRID_WAIT},
    {"griddepcontrol", "launch_dependents", WORD_MODE, MODE_GRID_LAUNCH_DEPENDENTS},
    {"cp", "commit_group", WORD_MODE, MODE_BULK_COMMIT_GROUP},
    {"cp", "wait_group", WORD_MODE, MODE_BULK_WAIT_GROUP},
    {"cp", "read", WORD_EXTRA, EXTRA_READ},
    /* tcgen05 */
    {NULL, "cta_group::1", WORD_K, 1},
    {NULL, "cta_group::2", WORD_K, 2},
    {NULL, "x1", WORD_K, 1},
    {NULL, "x2", WORD_K, 2},
    {NULL, "x4", WORD_K, 4},
    {NULL, "x8", WORD_K, 8},
    {NULL, "x16", WORD_K, 16},
    {NULL, "x32", WORD_K, 32},
    {NULL, "x64", WORD_K, 64},
    {NULL, "x128", WORD_K, 128},
    {NULL, "pack::16b", WORD_EXTRA, EXTRA_PACK16},
    {NULL, "unpack::16b", WORD_EXTRA, EXTRA_PACK16},
    {NULL, "wait::ld", WORD_MODE, MODE_TCGEN05_LD},
    {NULL, "wait::st", WORD_MODE, MODE_TCGEN05_ST},
    {NULL, "fence::before_thread_sync", WORD_MODE, MODE_TCGEN05_BEFORE},
    {NULL, "fence::after_thread_sync", WORD_MODE, MODE_TCGEN05_AFTER},
    {NULL, "kind::f16", WORD_MODE, KIND_F16},
    {NULL, "kind::tf32", WORD_MODE, KIND_TF32},
    {NULL, "kind::f8f6f4", WORD_MODE, KIND_F8F6F4},
    {NULL, "kind::i8", WORD_MODE, KIND_I8},
    {NULL, "kind::mxf8f6f4", WORD_MODE, KIND_MXF8F6F4},
    {NULL, "kind::mxf4", WORD_MODE, KIND_MXF4},
    {NULL, "kind::mxf4nvf4", WORD_MODE, KIND_MXF4NVF4},
    {NULL, "block_scale", WORD_EXTRA, EXTRA_BLOCK_SCALE},
    {NULL, "block16", WORD_N, 16},
    {NULL, "block32", WORD_N, 32},
    {NULL, "scale_vec::1X", WORD_M, 1},
    {NULL, "scale_vec::2X", WORD_M, 2},
    {NULL, "scale_vec::4X", WORD_M, 4},
    {NULL, "collector::a::discard", WORD_NOTHING, 0},
    {NULL, "collector::a::lastuse", WORD_NOTHING, 0},
    {NULL, "multicast::cluster", WORD_EXTRA, EXTRA_MULTICAST},
    {NULL, "warpx2::02_13", WORD_MODE, MODE_CP_WARPX2_02_13},
    {NULL, "warpx2::01_23", WORD_MODE, MODE_CP_WARPX2_01_23},
    {NULL, "warpx4", WORD_MODE, MODE_CP_WARPX4},
    {NULL, "b8x16", WORD_NOTHING, 0},
    {NULL, "b4x16_p64", WORD_EXTRA, EXTRA_B4X16_P64},
    {NULL, "b6x16_p32", WORD_EXTRA, EXTRA_B6X16_P32},
    /* Words that only complete a name */
    {NULL, "sync", WORD_NOTHING, 0},
    {NULL, "aligned", WORD_NOTHING, 0},
    {"bar", "warp", WORD_NOTHING, 0},
    {NULL, "arrive", WORD_NOTHING, 0},
    {NULL, "red", WORD_NOTHING, 0},
    {"fence", "proxy", WORD_NOTHING, 0},
    {NULL, "async", WORD_NOTHING, 0},
    {"fence", "mbarrier_init", WORD_NOTHING, 0},
    {"mbarrier", "init", WORD_NOTHING, 0},
    {"mbarrier", "inval", WORD_NOTHING, 0},
    {"mbarrier", "expect_tx", WORD_NOTHING, 0},
    {"mbarrier", "try_wait", WORD_NOTHING, 0},
    {"mbarrier", "test_wait", WORD_NOTHING, 0},
    {"mbarrier", "parity", WORD_NOTHING, 0},
    {"cp", "bulk", WORD_NOTHING, 0},
    {"cp", "prefetch", WORD_NOTHING, 0},
    {"cp", "mbarrier::complete_tx::bytes", WORD_NOTHING, 0},
    {"cp", "bulk_group", WORD_NOTHING, 0},
    {"wgmma", "fence", WORD_NOTHING, 0},
    {"wgmma", "commit_group", WORD_NOTHING, 0},
    {"wgmma", "wait_group", WORD_NOTHING, 0},
    {"wgmma", "mma_async", WORD_NOTHING, 0},
    {"tcgen05", "alloc", WORD_NOTHING, 0},
    {"tcgen05", "dealloc", WORD_NOTHING, 0},
    {"tcgen05", "relinquish_alloc_permit", WORD_NOTHING, 0},
    {"tcgen05", "ld", WORD_NOTHING, 0},
    {"tcgen05", "st", WORD_NOTHING, 0},
    {"tcgen05", "mma", WORD_NOTHING, 0},
    {"tcgen05", "commit", WORD_NOTHING, 0},
    {"tcgen05", "mbarrier::arrive::one", WORD_NOTHING, 0},
    {"tcgen05", "cp", WORD_NOTHING, 0},
};

static bool word_is(const char *word, size_t length, const char *name)
{
    return strlen(name) == length && memcmp(word, name, length) == 0;
}

static emulator_type word_type(const char *word, size_t length)
{
    for (int i = TYPE_PRED; i < TYPE_COUNT; i++)
        if (word_is(word, length, type_name((emulator_type)i))) return (emulator_type)i;
    return TYPE_NONE;
}

/* m64n24k32 of wgmma; 16x64b, 16x32bx2 of tcgen05. */
static bool read_shape(modifiers *m, const char *word, size_t length)
{
    unsigned number[3] = {0};
    int count = 0;
    bool is_mnk = *word == 'm';
    if (!is_mnk && (*word < '0' || *word > '9')) return false;
    for (size_t i = 0; i < length && count < 3; count++) {
        if (word[i] < '0' || word[i] > '9') i++;
        for (; i < length && word[i] >= '0' && word[i] <= '9'; i++) {
            number[count] = 10 * number[count] + (unsigned)(word[i] - '0');
            if (number[count] > UINT16_MAX) number[count] = UINT16_MAX; /* too large for any shape */
        }
    }
    m->m = (uint16_t)number[0];
    m->n = (uint16_t)number[1];
    if (is_mnk) m->k = (uint16_t)number[2];
    if (length > 3 && memcmp(word + length - 3, "bx2", 3) == 0) m->extra |= EXTRA_X2;
    return true;
}

static void set_modifier(modifiers *m, word_kind kind, unsigned value)
{
    switch (kind) {
    case WORD_NOTHING:
        break;
    case WORD_SPACE:
        if (m->space == SPACE_NONE)
            m->space = (state_space)value;
        else
            m->space2 = (state_space)value;
        break;
    case WORD_VECTOR:
        m->vector = (uint8_t)value;
        break;
    case WORD_COMPARE:
        m->compare = (uint8_t)value;
        break;
    case WORD_BOOLEAN:
        m->boolean = (uint8_t)value;
        break;
    case WORD_ROUNDING:
        m->rounding = (uint8_t)value;
        break;
    case WORD_SATURATE:
        m->saturate = true;
        break;
    case WORD_FINITE:
        m->finite = true;
        break;
    case WORD_FTZ:
        m->ftz = true;
        break;
    case WORD_APPROX:
        m->approx = true;
        break;
    case WORD_WIDE:
        m->wide = true;
        break;
    case WORD_HIGH:
        m->high = true;
        break;
    case WORD_UNIFORM:
        m->uniform = true;
        break;
    case WORD_SCOPE:
        m->scope = (uint8_t)value;
        break;
    case WORD_SEMANTICS:
        m->semantics = (uint8_t)value;
        break;
    case WORD_MODE:
        m->mode = (uint8_t)value;
        break;
    case WORD_EXTRA:
        m->extra |= value;
        break;
    case WORD_M:
        m->m = (uint16_t)value;
        break;
    case WORD_N:
        m->n = (uint16_t)value;
        break;
    case WORD_K:
        m->k = (uint16_t)value;
        break;
    }
}

/* False: the tables do not have the word. */
static bool read_word(modifiers *m, const char *mnemonic, size_t mnemonic_length, const char *word, size_t length)
{
    emulator_type type = word_type(word, length);
    if (type != TYPE_NONE) {
        for (int i = 0; i < 4; i++)
            if (m->type[i] == TYPE_NONE) {
                m->type[i] = type;
                break;
            }
        return true;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (words[i].mnemonic && !word_is(mnemonic, mnemonic_length, words[i].mnemonic)) continue;
        if (!word_is(word, length, words[i].word)) continue;
        set_modifier(m, words[i].kind, words[i].value);
        return true;
    }
    return read_shape(m, word, length);
}

/* False: *unknown is a word that the tables do not have. */
static bool read_modifiers(modifiers *m, const char *text, const char **unknown)
{
    size_t first = strcspn(text, ".");
    *m = (modifiers){.vector = 1};
    for (const char *word = text + first; *word == '.';) {
        size_t length = strcspn(++word, ".");
        *unknown = word;
        if (!read_word(m, text, first, word, length)) return false;
        word += length;
    }
    static const char *const generic[] = {"ld", "st", "atom", "red", "prefetch", "wmma"};
    for (size_t i = 0; i < sizeof generic / sizeof *generic; i++)
        if (m->space == SPACE_NONE && word_is(text, first, generic[i])) m->space = SPACE_GENERIC;
    return true;
}

const char *forms_unlisted_word(void)
{
    for (int i = 0; i < FORM_COUNT; i++) {
        const char *pattern = forms[i].pattern;
        size_t first = strcspn(pattern, ".[");
        for (const char *word = pattern + first; *word;) {
            word += strspn(word, ".[]{},");
            size_t length = strcspn(word, ".[]{},");
            modifiers m = {0};
            if (length && !memchr(word, '#', length) && !read_word(&m, pattern, first, word, length)) return word;
            word += length;
        }
    }
    return NULL;
}

/* ---- Looking up ---- */

static bool shape_is_known(const modifiers *m)
{
    if (m->n < 8 || m->n > 256 || m->n % 8) return false;
    return m->type[0] != TYPE_S32 || m->n % 16 == 0 || m->n <= 24;
}

static bool names_texture(const char *text)
{
    static const char *const mnemonics[] = {"tex", "tld4", "txq", "istypep", "suld", "sust", "sured", "suq"};
    for (size_t i = 0; i < sizeof mnemonics / sizeof *mnemonics; i++)
        if (word_is(text, strcspn(text, "."), mnemonics[i])) return true;
    return false;
}

_Noreturn static void report_unknown(parser *p, token mnemonic, const char *text, const form *closest,
                                     const char *furthest)
{
    if (names_texture(text))
        parse_fail(p, mnemonic.line, EMULATOR_UNKNOWN_FORM,
                   "'%s': the interpreter has no textures and surfaces; load from global memory instead", text);
    if (!closest)
        parse_fail(p, mnemonic.line, EMULATOR_UNKNOWN_FORM, "'%s' is no instruction that the interpreter knows", text);
    if (!*furthest)
        parse_fail(p, mnemonic.line, EMULATOR_UNKNOWN_FORM, "'%s' lacks a modifier; the closest form known is %s", text,
                   closest->pattern);
    if (*furthest == '.') furthest++;
    while (furthest > text && furthest[-1] != '.') furthest--;
    parse_fail(p, mnemonic.line, EMULATOR_UNKNOWN_FORM,
               "'%s': '.%.*s' is not known there; the closest form known is %s", text, (int)strcspn(furthest, "."),
               furthest, closest->pattern);
}

static void decode(parser *p, token mnemonic, decoded_mnemonic *d)
{
    const char *text = d->text, *furthest = text, *unknown = NULL;
    const form *closest = NULL;
    size_t first = strcspn(text, ".");
    for (int i = 0; i < FORM_COUNT; i++) {
        const char *pattern = forms[i].pattern, *reached = text;
        if (strcspn(pattern, ".[") != first || memcmp(pattern, text, first) != 0) continue;
        if (match(pattern, text, &reached)) {
            if (d->rows < ROWS_MAX) d->row[d->rows++] = &forms[i];
        } else if (!closest || reached > furthest) {
            closest = &forms[i];
            furthest = reached;
        }
    }
    if (d->rows == 0) report_unknown(p, mnemonic, text, closest, furthest);
    if (!read_modifiers(&d->mods, text, &unknown))
        parse_fail(p, mnemonic.line, EMULATOR_UNKNOWN_FORM, "'%s': '%s' is not known", text, unknown);
    if (d->row[0]->execute == exec_wgmma_mma_async && !shape_is_known(&d->mods))
        parse_fail(p, mnemonic.line, EMULATOR_UNKNOWN_FORM,
                   "'%s': n has to be a multiple of 8 (of 16 beyond 24 with .s32) up to 256", text);
}

const decoded_mnemonic *forms_decode(parser *p, token mnemonic)
{
    int known = names_find(&p->mnemonics, mnemonic.text, mnemonic.length, 0);
    if (known >= 0) return &p->decoded[known];
    if (mnemonic.length > OPCODE_MAX)
        parse_fail(p, mnemonic.line, EMULATOR_UNKNOWN_FORM, "a mnemonic of more than %d characters", OPCODE_MAX);
    p->decoded = parse_grow(p, p->decoded, p->decoded_count, &p->decoded_capacity, sizeof *p->decoded, INSTRUCTIONS_MAX,
                            "mnemonics");
    decoded_mnemonic *d = &p->decoded[p->decoded_count];
    *d = (decoded_mnemonic){.text = parse_copy(p, mnemonic.text, mnemonic.length)};
    decode(p, mnemonic, d);
    if (!names_add(&p->mnemonics, mnemonic.text, mnemonic.length, 0, p->decoded_count))
        parse_fail(p, mnemonic.line, EMULATOR_MEMORY, "no memory for the mnemonics");
    return &p->decoded[p->decoded_count++];
}
