#include "core/tokenizer/split.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/buf.h"
#include "core/base/utf8.h"

/* Stands for a byte that is not UTF-8: one byte long, and of the same class as
 * an ordinary symbol for every property an expression can ask for. */
#define STAND_IN 0x01

/* Backtracking steps allowed per match: enough for any expression that is
 * linear in the text, far from enough for one that is not. */
#define STEPS_BASE     1000000u
#define STEPS_PER_BYTE 64u

/* Unicode's definition of a word character (UTS 18, annex C). */
#define WORD "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}]"

struct seam_split {
    pcre2_code *code;
    pcre2_code *word; /* one word character */
    bool jit;
};

/* ---- From Oniguruma's syntax to PCRE2's ---------------------------------- */

/* Reads the expression piece by piece; what is known to mean the same in both
 * engines is copied, \s is spelled out, everything else is refused. */
struct translation {
    const char *p;
    size_t n, i;
    struct seam_buf *out;
    const char *bad; /* what at i is not supported */
    bool in_class, folding;
    size_t class_at; /* where the class's first member stands */
};

static bool is_alnum(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
           (c >= 'a' && c <= 'z');
}

static bool begins(const struct translation *t, const char *with)
{
    size_t len = strlen(with);

    return t->n - t->i >= len && !memcmp(t->p + t->i, with, len);
}

static void copy(struct translation *t, size_t len)
{
    seam_buf_add(t->out, t->p + t->i, len);
    t->i += len;
}

/* \p{L}, \P{Nd}, \p{^Lu}: general categories.  A script's name would mean the
 * script's extensions to PCRE2. */
static void translate_property(struct translation *t)
{
    const char *end = memchr(t->p + t->i, '}', t->n - t->i);
    size_t len = end ? (size_t)(end - t->p) + 1 - t->i : 0;
    size_t n_name = len > 4 ? len - 4 : 0;
    const char *name = n_name ? t->p + t->i + 3 : "";

    if (name[0] == '^') {
        name++;
        n_name--;
    }
    if (!begins(t, "\\p{") && !begins(t, "\\P{"))
        n_name = 0;
    if (n_name < 1 || n_name > 2 || name[0] < 'A' || name[0] > 'Z' ||
        (n_name == 2 && (name[1] < 'a' || name[1] > 'z')))
        t->bad = "a property other than a general category";
    else
        copy(t, len);
}

/* \s to PCRE2 includes U+180E, which White_Space and Oniguruma do not. */
static void translate_escape(struct translation *t)
{
    char c = t->i + 1 < t->n ? t->p[t->i + 1] : 0;
    const char *end;

    if (c == 's' || c == 'S') {
        seam_buf_str(t->out,
                     c == 's' ? "\\p{White_Space}" : "\\P{White_Space}");
        t->i += 2;
    } else if (c == 'p' || c == 'P') {
        translate_property(t);
    } else if (begins(t, "\\x{") &&
               (end = memchr(t->p + t->i, '}', t->n - t->i))) {
        copy(t, (size_t)(end - t->p) + 1 - t->i);
    } else if (c && (strchr("dDrntf", c) ||
                     (c >= ' ' && c < 0x7f && !is_alnum(c)))) {
        copy(t, 2);
    } else {
        t->bad = "an escape";
    }
}

/* Oniguruma's (?m) is PCRE2's (?s); (?i) reaches past a '|' in one and not in
 * the other, except at the very beginning; verbs such as (*ANY) are PCRE2's
 * alone. */
static void translate_group(struct translation *t)
{
    static const char *const known[] = {
        "(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:", "(?-i:",
    };
    bool plain = !begins(t, "(?") && !begins(t, "(*");
    size_t len = 1;

    for (size_t k = 0; !plain && k < sizeof known / sizeof *known; k++) {
        if (begins(t, known[k])) {
            plain = true;
            len = strlen(known[k]);
        }
    }
    if (!plain && t->i == 0 && begins(t, "(?i)")) {
        plain = true;
        len = 4;
    }
    if (!plain) {
        t->bad = "a group";
        return;
    }
    t->folding |= len > 3 && t->p[t->i + 2] == 'i';
    copy(t, len);
}

/* Without regard to case, Oniguruma lets one letter stand for two, such as
 * U+00DF for ss and U+FB01 for fi, and the reverse. */
static bool folds_to_one(const struct translation *t)
{
    static const char *const pairs[] = { "ss", "st", "ff", "fi", "fl" };
    char two[2];

    if (!t->folding)
        return false;
    if ((unsigned char)t->p[t->i] >= 0x80)
        return true;
    if (t->n - t->i < 2)
        return false;
    for (int k = 0; k < 2; k++) {
        two[k] = t->p[t->i + (size_t)k];
        if (two[k] >= 'A' && two[k] <= 'Z')
            two[k] = (char)(two[k] - 'A' + 'a');
    }
    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++)
        if (!memcmp(two, pairs[k], 2))
            return true;
    return false;
}

static void translate_in_class(struct translation *t)
{
    if (begins(t, "["))
        t->bad = "a class in a class";
    else if (begins(t, "&&"))
        t->bad = "an intersection of classes";
    else if (begins(t, "]") && t->i == t->class_at)
        t->bad = "a class that begins with ']'";
    t->in_class = !begins(t, "]");
    copy(t, 1);
}

static void translate_outside(struct translation *t)
{
    if (begins(t, "(")) {
        translate_group(t);
        return;
    }
    if (begins(t, "}+") || begins(t, "}?"))
        t->bad = "a quantifier on a quantifier";
    else if (begins(t, "{,"))
        t->bad = "a quantifier without a lower bound";
    else if (folds_to_one(t))
        t->bad = "letters that may be one letter in another case";
    if (begins(t, "[")) {
        t->in_class = true;
        t->class_at = t->i + (begins(t, "[^") ? 2 : 1);
        copy(t, t->class_at - t->i);
        return;
    }
    copy(t, 1);
}

static int split_translate(struct seam_buf *out, const char *name,
                           const char *p, size_t n, struct seam_error *err)
{
    struct translation t = { .p = p, .n = n, .out = out };

    while (t.i < n) {
        size_t at = t.i;

        if (begins(&t, "\\"))
            translate_escape(&t);
        else if (t.in_class)
            translate_in_class(&t);
        else
            translate_outside(&t);
        if (t.bad)
            return seam_fail(err, SEAM_EDATA,
                             "%s: the regular expression has %s at byte %zu, "
                             "which is not supported",
                             name, t.bad, at);
    }
    return out->failed ? seam_fail(err, SEAM_ENOMEM, "%s: out of memory", name)
                       : 0;
}

static int split_fail(struct seam_error *err, const char *name, int code,
                      size_t at)
{
    PCRE2_UCHAR why[160];

    if (code == PCRE2_ERROR_HEAP_FAILED)
        return seam_fail(err, SEAM_ENOMEM, "%s: out of memory", name);
    pcre2_get_error_message(code, why, sizeof why);
    return seam_fail(err, SEAM_EDATA,
                     "%s: the regular expression does not compile: %s (at "
                     "byte %zu as translated)",
                     name, (const char *)why, at);
}

int seam_split_new(struct seam_split **s, const char *name, const char *pattern,
                   size_t n, struct seam_error *err)
{
    struct seam_split *split = calloc(1, sizeof *split);
    pcre2_compile_context *cc = pcre2_compile_context_create(NULL);
    struct seam_buf text = { 0 };
    uint32_t empty = 0;
    PCRE2_SIZE at;
    int code, rc;

    if (!split || !cc) {
        rc = seam_fail(err, SEAM_ENOMEM, "%s: out of memory", name);
        goto out;
    }
    rc = split_translate(&text, name, pattern, n, err);
    if (rc)
        goto out;
    pcre2_set_newline(cc, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(cc, 100);
    split->code = pcre2_compile((PCRE2_SPTR)(text.p ? text.p : ""), text.n,
                                PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE |
                                    PCRE2_NEVER_BACKSLASH_C,
                                &code, &at, cc);
    if (!split->code) {
        rc = split_fail(err, name, code, at);
        goto out;
    }
    pcre2_pattern_info(split->code, PCRE2_INFO_MATCHEMPTY, &empty);
    if (empty) {
        rc = seam_fail(err, SEAM_EDATA,
                       "%s: the regular expression can match nothing, "
                       "expected at least one character",
                       name);
        goto out;
    }
    split->word =
        pcre2_compile((PCRE2_SPTR)WORD, PCRE2_ZERO_TERMINATED,
                      PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &code, &at, cc);
    if (!split->word) {
        rc = split_fail(err, "word characters", code, at);
        goto out;
    }
    /* Without JIT (a hardened kernel) matching is slower and the same. */
    split->jit = !pcre2_jit_compile(split->code, PCRE2_JIT_COMPLETE);
    *s = split;
    split = NULL;
out:
    seam_buf_release(&text);
    pcre2_compile_context_free(cc);
    seam_split_free(split);
    return rc;
}

void seam_split_free(struct seam_split *s)
{
    if (!s)
        return;
    pcre2_code_free(s->code);
    pcre2_code_free(s->word);
    free(s);
}

/* ---- Matching ------------------------------------------------------------ */

void seam_split_work_release(struct seam_split_work *w)
{
    pcre2_match_data_free(w->match);
    pcre2_match_context_free(w->context);
    free(w->shadow);
    *w = (struct seam_split_work){ 0 };
}

/* A copy of p[0, n) that is UTF-8, with every part at its place. */
static int split_shadow(struct seam_split_work *w, const char *p, size_t n)
{
    uint32_t cp;
    size_t len;

    if (n > w->shadow_cap) {
        char *shadow = realloc(w->shadow, n);

        if (!shadow)
            return SEAM_ENOMEM;
        w->shadow = shadow;
        w->shadow_cap = n;
    }
    for (size_t i = 0; i < n; i += len) {
        if (seam_utf8_next(p + i, n - i, &cp, &len) == SEAM_UTF8_OK)
            memcpy(w->shadow + i, p + i, len);
        else
            memset(w->shadow + i, STAND_IN, len);
    }
    return 0;
}

int seam_split_begin(struct seam_split_pass *q, const struct seam_split *s,
                     struct seam_split_work *w, const char *p, size_t n)
{
    uint64_t steps = STEPS_BASE + (uint64_t)STEPS_PER_BYTE * n;

    *q = (struct seam_split_pass){ .s = s, .w = w, .text = p, .n = n };
    if (!w->match)
        w->match = pcre2_match_data_create(1, NULL);
    if (!w->context)
        w->context = pcre2_match_context_create(NULL);
    if (!w->match || !w->context)
        return SEAM_ENOMEM;
    pcre2_set_match_limit(w->context,
                          steps > UINT32_MAX ? UINT32_MAX : (uint32_t)steps);
    if (!seam_utf8_valid(p, n)) {
        if (split_shadow(w, p, n))
            return SEAM_ENOMEM;
        q->text = w->shadow;
    }
    return 0;
}

/* Number of captures + 1, or PCRE2's error.  The text is known to be UTF-8 and
 * q->at a character's beginning. */
static int split_match(struct seam_split_pass *q)
{
    PCRE2_SPTR text = (PCRE2_SPTR)q->text;
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;

    if (q->s->jit)
        rc = pcre2_jit_match(q->s->code, text, q->n, q->at, PCRE2_NO_UTF_CHECK,
                             q->w->match, q->w->context);
    /* The interpreter has the heap for what JIT's fixed stack cannot hold. */
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(q->s->code, text, q->n, q->at,
                         PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, q->w->match,
                         q->w->context);
    return rc;
}

int seam_split_next(struct seam_split_pass *q, size_t *from, size_t *to,
                    struct seam_error *err)
{
    const PCRE2_SIZE *span;
    int rc;

    *from = q->at;
    if (q->match_end) {
        *to = q->at = q->match_end;
        q->match_end = 0;
        return 1;
    }
    if (q->at == q->n)
        return 0;
    rc = split_match(q);
    if (rc == PCRE2_ERROR_NOMEMORY)
        return seam_fail(err, SEAM_ENOMEM, "pre-tokeniser: out of memory");
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH)
        return seam_fail(err, SEAM_EDATA,
                         "pre-tokeniser: the regular expression gave up at "
                         "byte %zu of %zu (PCRE2 error %d)",
                         q->at, q->n, rc);
    span = pcre2_get_ovector_pointer(q->w->match);
    if (rc < 0) {
        *to = q->n;
    } else if (span[1] <= span[0] || span[0] < q->at) {
        return seam_fail(err, SEAM_EDATA,
                         "pre-tokeniser: the regular expression matched "
                         "nothing at byte %zu",
                         q->at);
    } else if (span[0] > q->at) {
        *to = span[0];
        q->match_end = span[1];
    } else {
        *to = span[1];
    }
    q->at = *to;
    return 1;
}

bool seam_split_is_word(const struct seam_split *s, const char *p, size_t n)
{
    pcre2_match_data *m = pcre2_match_data_create(1, NULL);
    int rc = m ? pcre2_match(s->word, (PCRE2_SPTR)p, n, 0, 0, m, NULL) : -1;

    pcre2_match_data_free(m);
    return rc > 0;
}
