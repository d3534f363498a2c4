/* The shared rules of JSON. */
#include "core/grammar/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/num.h"

/* Indentation after a line end. */
#define MAX_BLANKS 64
#define MAX_TABS   16
/* Digits of numbers without bounds. */
#define MAX_DIGITS 21
/* Digits of numbers with bounds: any two such decimals differ as doubles. */
#define MAX_EXACT    15
#define MAX_FRACTION 6

void g_json_release(struct g_json *j)
{
    free(j->leaf);
    g_auto_release(&j->contains);
    json_decref(j->never);
}

void g_json_never(struct g_json *j, json_t *words)
{
    struct g_build *b = j->b;
    struct g_part part;
    const json_t *x;
    size_t i;

    if (!json_array_size(words))
        return;
    j->never = json_incref(words);
    g_clear(b);
    part.from = g_state(b);
    part.to = g_state(b);
    g_bytes(b, part.from, 0, 255, part.from);
    g_bytes(b, part.to, 0, 255, part.to);
    json_array_foreach(words, i, x)
    {
        g_empty(b,
                g_literal(b, part.from, json_string_value(x),
                          json_string_length(x)),
                part.to);
    }
    j->contains_first = g_determine(b, &j->contains, part);
    g_clear(b);
}

void g_json_limit(struct g_json *j, struct g_part *part)
{
    struct g_auto x = { 0 };
    uint32_t at;

    if (!j->never)
        return;
    at = g_determine(j->b, &x, *part);
    g_clear(j->b);
    part->from = g_state(j->b);
    part->to =
        g_both(j->b, part->from, &x, at, &j->contains, j->contains_first, true);
    g_auto_release(&x);
}

static bool bound_same(const struct g_bound *a, const struct g_bound *b)
{
    return a->given == b->given && a->exclusive == b->exclusive &&
           a->at.digits == b->at.digits && a->at.scale == b->at.scale;
}

uint32_t g_json_rule(struct g_json *j, struct g_leaf x)
{
    if (!g_work(j->b, j->n_leaves))
        return 0;
    for (uint32_t i = 0; i < j->n_leaves; i++) {
        const struct g_leaf *y = &j->leaf[i];

        if (x.kind == y->kind && x.min_chars == y->min_chars &&
            x.max_chars == y->max_chars && x.min == y->min && x.max == y->max &&
            bound_same(&x.lo, &y->lo) && bound_same(&x.hi, &y->hi))
            return y->rule;
    }
    if (!g_grow(j->b, &j->leaf, j->n_leaves, &j->cap_leaves, sizeof *j->leaf,
                G_MAX_RULES))
        return 0;
    x.rule = g_rule_new(j->b);
    x.is_set = false;
    j->leaf[j->n_leaves++] = x;
    return x.rule;
}

uint32_t g_json_any(struct g_json *j, enum g_leaf_kind kind)
{
    struct g_leaf leaf = { .kind = kind };

    if (kind == G_LEAF_STRING || kind == G_LEAF_TEXT)
        leaf.max_chars = UINT32_MAX;
    if (kind == G_LEAF_INTEGER) {
        leaf.min = -G_INTEGER_MAX;
        leaf.max = G_INTEGER_MAX;
    }
    return g_json_rule(j, leaf);
}

/* ---- Pieces -------------------------------------------------------------- */

uint32_t g_json_gap(struct g_json *j, uint32_t from)
{
    if (j->compact)
        return from;
    return g_calling(j->b, from, g_json_any(j, G_LEAF_GAP));
}

uint32_t g_json_colon(struct g_json *j, uint32_t from)
{
    uint32_t to = g_literal(j->b, from, ":", 1);

    if (!j->compact) {
        uint32_t blank = g_literal(j->b, to, " ", 1);

        g_empty(j->b, to, blank);
        to = blank;
    }
    return to;
}

/* Does a word that must not be written begin at p[0, n)? */
static bool never_at(const struct g_json *j, const char *p, size_t n)
{
    const json_t *x;
    size_t i;

    json_array_foreach(j->never, i, x)
    {
        if (json_string_length(x) <= n &&
            !memcmp(p, json_string_value(x), json_string_length(x)))
            return true;
    }
    return false;
}

uint32_t g_json_text(struct g_json *j, uint32_t from, const char *p, size_t n,
                     enum g_coding coding)
{
    size_t done = 0;
    char escape[8];

    for (size_t i = 0; j->never && i < n && g_work(j->b, 1); i++) {
        if (!never_at(j, p + i, n - i))
            continue;
        if (coding == G_RAW || (p[i] & 0x80)) {
            g_fail_bare(j->b, SEAM_EDATA,
                        "contains text that is reserved for control tokens");
            break;
        }
        from = g_text(j->b, from, p + done, i - done, coding);
        snprintf(escape, sizeof escape, "\\u%04x", (unsigned)p[i]);
        from = g_literal(j->b, from, escape, strlen(escape));
        done = i + 1;
    }
    return g_text(j->b, from, p + done, n - done, coding);
}

uint32_t g_json_name(struct g_json *j, uint32_t from, const char *p, size_t n)
{
    from = g_literal(j->b, from, "\"", 1);
    from = g_json_text(j, from, p, n, G_JSON);
    from = g_literal(j->b, from, "\"", 1);
    return g_json_colon(j, from);
}

/* The shortest digits that read back as x, its exponent without leading zeros. */
static uint32_t draw_real(struct g_build *b, uint32_t from, double x)
{
    char text[40] = "", *e;
    double back;

    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (seam_parse_f64(text, &back) && back == x)
            break;
    }
    e = strchr(text, 'e');
    if (e && e[2] == '0')
        memmove(e + 2, e + 3, strlen(e + 3) + 1);
    return g_literal(b, from, text, strlen(text));
}

uint32_t g_json_exactly(struct g_json *j, uint32_t from, const json_t *v)
{
    struct g_build *b = j->b;
    char text[32];
    size_t i;

    if (b->rc)
        return 0;
    switch (json_typeof(v)) {
    case JSON_NULL:
        return g_literal(b, from, "null", 4);
    case JSON_TRUE:
        return g_literal(b, from, "true", 4);
    case JSON_FALSE:
        return g_literal(b, from, "false", 5);
    case JSON_INTEGER:
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(v));
        return g_literal(b, from, text, strlen(text));
    case JSON_REAL:
        return draw_real(b, from, json_real_value(v));
    case JSON_STRING:
        from = g_literal(b, from, "\"", 1);
        from = g_json_text(j, from, json_string_value(v), json_string_length(v),
                           G_JSON);
        return g_literal(b, from, "\"", 1);
    case JSON_ARRAY: {
        const json_t *x;

        from = g_json_gap(j, g_literal(b, from, "[", 1));
        json_array_foreach(v, i, x)
        {
            if (i)
                from = g_json_gap(j, g_literal(b, from, ",", 1));
            from = g_json_exactly(j, from, x);
        }
        if (i)
            from = g_json_gap(j, from);
        return g_literal(b, from, "]", 1);
    }
    case JSON_OBJECT: {
        const char *key;
        const json_t *x;
        bool any = false;

        from = g_json_gap(j, g_literal(b, from, "{", 1));
        /* jansson 2.14 has no const walk; nothing is changed. */
        json_object_foreach((json_t *)(uintptr_t)v, key, x)
        {
            if (any)
                from = g_json_gap(j, g_literal(b, from, ",", 1));
            from = g_json_name(j, from, key, strlen(key));
            from = g_json_exactly(j, from, x);
            any = true;
        }
        if (any)
            from = g_json_gap(j, from);
        return g_literal(b, from, "}", 1);
    }
    }
    return from;
}

/* Four hexadecimal digits: first a set of leading ones, then any. */
static void draw_hex(struct g_build *b, uint32_t from, const char *first,
                     const char *second, uint32_t to)
{
    static const char any[] = "0123456789abcdefABCDEF";
    const char *set[4] = { first, second ? second : any, any, any };

    for (int i = 0; i < 4; i++) {
        uint32_t next = i == 3 ? to : g_state(b);

        for (const char *c = set[i]; *c; c++)
            g_bytes(b, from, (uint8_t)*c, (uint8_t)*c, next);
        from = next;
    }
}

uint32_t g_json_char(struct g_build *b, uint32_t from)
{
    static const char named[] = "\"\\/bfnrt";
    uint32_t to = g_state(b), escape, hex, high, low;

    g_chars(b, from, 0x20, '"' - 1, G_RAW, to);
    g_chars(b, from, '"' + 1, '\\' - 1, G_RAW, to);
    g_chars(b, from, '\\' + 1, 0x10ffff, G_RAW, to);
    escape = g_literal(b, from, "\\", 1);
    for (const char *c = named; *c; c++)
        g_bytes(b, escape, (uint8_t)*c, (uint8_t)*c, to);
    hex = g_literal(b, escape, "u", 1);
    draw_hex(b, hex, "0123456789abcefABCEF", NULL, to);
    draw_hex(b, hex, "dD", "01234567", to);
    /* Two surrogates are one character; a single one is none. */
    high = g_state(b);
    draw_hex(b, hex, "dD", "89abAB", high);
    low = g_literal(b, high, "\\u", 2);
    draw_hex(b, low, "dD", "cdefCDEF", to);
    return to;
}

/* ---- Numbers ------------------------------------------------------------- */

static uint32_t draw_digits(struct g_build *b, uint32_t from, uint32_t min,
                            uint32_t max)
{
    uint32_t end = g_state(b);

    for (uint32_t i = 0; i < max; i++) {
        uint32_t next = g_state(b);

        if (i >= min)
            g_empty(b, from, end);
        g_bytes(b, from, '0', '9', next);
        from = next;
    }
    g_empty(b, from, end);
    return end;
}

static uint32_t draw_number(struct g_build *b, uint32_t from)
{
    uint32_t minus = g_literal(b, from, "-", 1), integer = g_state(b);
    uint32_t first = g_state(b), end = g_state(b), at, mark, sign;

    g_empty(b, from, minus);
    g_bytes(b, minus, '0', '0', integer);
    g_bytes(b, minus, '1', '9', first);
    g_empty(b, draw_digits(b, first, 0, MAX_DIGITS - 1), integer);
    at = g_literal(b, integer, ".", 1);
    at = draw_digits(b, at, 1, MAX_DIGITS);
    g_empty(b, integer, at);
    g_empty(b, at, end);
    /* Two digits of exponent: the value stays finite as a double. */
    mark = g_state(b);
    g_bytes(b, at, 'e', 'e', mark);
    g_bytes(b, at, 'E', 'E', mark);
    sign = g_state(b);
    g_bytes(b, mark, '+', '+', sign);
    g_bytes(b, mark, '-', '-', sign);
    g_empty(b, mark, sign);
    g_empty(b, draw_digits(b, sign, 1, 2), end);
    return end;
}

/* Decimal digits of the same number in all of [lo, hi], written with a point
 * before the last `scale` of them. */
struct digits {
    struct g_build *b;
    char lo[24], hi[24];
    uint32_t n, scale;
    uint32_t to;
};

static uint32_t digit(const struct digits *d, uint32_t from, uint32_t i,
                      char lo, char hi)
{
    uint32_t to = i + 1 == d->n ? d->to : g_state(d->b);

    if (d->scale && i + d->scale == d->n)
        from = g_literal(d->b, from, ".", 1);
    g_bytes(d->b, from, (uint8_t)lo, (uint8_t)hi, to);
    return to;
}

static void digits_any(const struct digits *d, uint32_t from, uint32_t i)
{
    for (; i < d->n; i++)
        from = digit(d, from, i, '0', '9');
}

/* At least lo (up), or at most hi, from digit i on. */
static void digits_beyond(const struct digits *d, uint32_t from, uint32_t i,
                          bool up)
{
    for (; i < d->n; i++) {
        char at = up ? d->lo[i] : d->hi[i];

        if (up && at < '9')
            digits_any(d, digit(d, from, i, (char)(at + 1), '9'), i + 1);
        if (!up && at > '0')
            digits_any(d, digit(d, from, i, '0', (char)(at - 1)), i + 1);
        from = digit(d, from, i, at, at);
    }
}

static void digits_between(const struct digits *d, uint32_t from)
{
    uint32_t i = 0;

    while (i < d->n && d->lo[i] == d->hi[i]) {
        from = digit(d, from, i, d->lo[i], d->lo[i]);
        i++;
    }
    if (i == d->n)
        return;
    if (d->lo[i] + 1 < d->hi[i])
        digits_any(
            d, digit(d, from, i, (char)(d->lo[i] + 1), (char)(d->hi[i] - 1)),
            i + 1);
    digits_beyond(d, digit(d, from, i, d->lo[i], d->lo[i]), i + 1, true);
    digits_beyond(d, digit(d, from, i, d->hi[i], d->hi[i]), i + 1, false);
}

/* lo * 10^-scale to hi * 10^-scale, 0 <= lo <= hi, without leading zeros. */
static void draw_range(struct g_build *b, uint32_t from, uint64_t lo,
                       uint64_t hi, uint32_t scale, uint32_t to)
{
    uint64_t least = 0, most = 9; /* of the numbers with n digits */

    for (uint32_t n = 1; n <= 19 && least <= hi; n++) {
        struct digits d = { .b = b, .n = n, .scale = scale, .to = to };
        uint64_t x, y;

        /* At least one digit stands before the point. */
        if (n > scale && most >= lo) {
            x = lo > least ? lo : least;
            y = hi < most ? hi : most;
            snprintf(d.lo, sizeof d.lo, "%0*llu", (int)n,
                     (unsigned long long)x);
            snprintf(d.hi, sizeof d.hi, "%0*llu", (int)n,
                     (unsigned long long)y);
            digits_between(&d, from);
        }
        if (n > scale)
            least = most + 1;
        most = most * 10 + 9;
    }
}

/* [lo, hi] * 10^-scale with a sign where needed; there is no negative zero. */
static void draw_signed(struct g_build *b, uint32_t from, int64_t lo,
                        int64_t hi, uint32_t scale, uint32_t to)
{
    if (lo > hi)
        return;
    if (lo < 0)
        draw_range(b, g_literal(b, from, "-", 1), hi < 0 ? (uint64_t)-hi : 1,
                   (uint64_t)-lo, scale, to);
    if (hi >= 0)
        draw_range(b, from, lo > 0 ? (uint64_t)lo : 0, (uint64_t)hi, scale, to);
}

bool g_decimal_of(double x, struct g_decimal *out)
{
    struct g_decimal d = { 0 };
    char text[40];
    double back;
    int exponent = 0;
    bool point = false, negative;

    if (!isfinite(x))
        return false;
    for (int digits = 0; digits < 17; digits++) {
        snprintf(text, sizeof text, "%.*e", digits, x);
        if (seam_parse_f64(text, &back) && back == x)
            break;
    }
    negative = text[0] == '-';
    for (const char *c = text + negative; *c; c++) {
        if (*c == '.') {
            point = true;
        } else if (*c == 'e') {
            int64_t e;

            c += c[1] == '+' ? 2 : 1;
            if (!seam_parse_i64(c, strlen(c), &e))
                return false;
            exponent = (int)e;
            break;
        } else {
            d.digits = d.digits * 10 + (*c - '0');
            d.scale += point;
        }
    }
    d.scale -= exponent;
    for (; d.digits && d.digits % 10 == 0; d.digits /= 10)
        d.scale--;
    if (!d.digits)
        d.scale = 0;
    if (negative)
        d.digits = -d.digits;
    *out = d;
    return d.scale >= -300 && d.scale <= 400;
}

/* The least (up) or greatest integer n with n * 10^-scale within the bound;
 * false when there is none below 10^MAX_EXACT in size. */
static bool bound_scaled(const struct g_bound *at, uint32_t scale, bool up,
                         int64_t *out)
{
    const int64_t most = 999999999999999;
    int64_t n = at->at.digits, rest = 0;
    int32_t shift = (int32_t)scale - at->at.scale; /* n * 10^shift */

    if (!at->given) {
        *out = up ? -most : most;
        return true;
    }
    for (; shift > 0 && n <= most && n >= -most; shift--)
        n *= 10;
    for (; shift < 0 && (n || rest); shift++) {
        rest = rest || n % 10;
        n /= 10;
        if (!n && rest && shift < -20)
            shift = -1;
    }
    /* n was cut towards zero. */
    if (rest) {
        if (up && at->at.digits > 0)
            n++;
        if (!up && at->at.digits < 0)
            n--;
    } else if (at->exclusive) {
        n += up ? 1 : -1;
    }
    if (up ? n > most : n < -most)
        return false;
    if (n > most)
        n = most;
    if (n < -most)
        n = -most;
    *out = n;
    return true;
}

static void draw_bounded(struct g_build *b, uint32_t from,
                         const struct g_leaf *leaf, uint32_t to)
{
    for (uint32_t scale = 0; scale <= MAX_FRACTION; scale++) {
        int64_t lo, hi;

        if (bound_scaled(&leaf->lo, scale, true, &lo) &&
            bound_scaled(&leaf->hi, scale, false, &hi))
            draw_signed(b, from, lo, hi, scale, to);
    }
}

/* ---- Rules --------------------------------------------------------------- */

static struct g_part draw_gap(struct g_build *b)
{
    static const struct {
        char c;
        int n;
    } indent[] = { { ' ', MAX_BLANKS }, { '\t', MAX_TABS } };
    struct g_part p = { g_state(b), g_state(b) };
    uint32_t line = g_literal(b, p.from, "\n", 1);

    g_empty(b, p.from, p.to);
    g_bytes(b, p.from, ' ', ' ', p.to);
    g_empty(b, line, p.to);
    for (int k = 0; k < 2; k++) {
        uint32_t at = line;

        for (int i = 0; i < indent[k].n; i++) {
            at = g_literal(b, at, &indent[k].c, 1);
            g_empty(b, at, p.to);
        }
    }
    return p;
}

static struct g_part draw_value(struct g_json *j)
{
    static const enum g_leaf_kind kind[] = { G_LEAF_OBJECT, G_LEAF_ARRAY,
                                             G_LEAF_STRING, G_LEAF_NUMBER };
    struct g_build *b = j->b;
    struct g_part p = { g_state(b), g_state(b) };

    g_empty(b, g_literal(b, p.from, "true", 4), p.to);
    g_empty(b, g_literal(b, p.from, "false", 5), p.to);
    g_empty(b, g_literal(b, p.from, "null", 4), p.to);
    for (size_t i = 0; i < sizeof kind / sizeof *kind; i++)
        g_call(b, p.from, g_json_any(j, kind[i]), p.to);
    return p;
}

/* '{' or '[', items with commas between them, and the end. */
static struct g_part draw_list(struct g_json *j, bool object)
{
    struct g_build *b = j->b;
    struct g_part p = { g_state(b), g_state(b) };
    uint32_t open, item, at = g_state(b);
    uint8_t end = object ? '}' : ']';

    open = g_json_gap(j, g_literal(b, p.from, object ? "{" : "[", 1));
    g_bytes(b, open, end, end, p.to);
    g_empty(b, open, at);
    item = at;
    if (object)
        item =
            g_json_colon(j, g_calling(b, item, g_json_any(j, G_LEAF_STRING)));
    item = g_calling(b, item, g_json_any(j, G_LEAF_VALUE));
    g_empty(b, g_json_gap(j, g_literal(b, item, ",", 1)), at);
    g_bytes(b, g_json_gap(j, item), end, end, p.to);
    return p;
}

static void set_string(struct g_json *j, const struct g_leaf *leaf)
{
    struct g_build *b = j->b;
    bool quoted = leaf->kind == G_LEAF_STRING;
    struct g_part none = { G_NONE, G_NONE }, whole, body, quote;
    uint32_t min = leaf->min_chars, max = leaf->max_chars;

    whole.from = g_state(b);
    whole.to = g_state(b);
    if (min > max) {
        g_rule_set(b, leaf->rule, whole);
        return;
    }
    body.from = body.to = g_state(b);
    if (quoted)
        g_empty(b, g_json_char(b, body.from), body.to);
    else
        g_chars(b, body.from, 0, 0x10ffff, G_RAW, body.to);
    g_json_limit(j, &body);
    if (min || max != UINT32_MAX) {
        quote.from = g_state(b);
        quote.to = g_literal(b, quote.from, "\"", 1);
        g_rule_counted(b, leaf->rule, quoted ? quote : none, body,
                       quoted ? quote : none, min, max);
        return;
    }
    if (quoted) {
        whole.from = g_state(b);
        g_empty(b, g_literal(b, whole.from, "\"", 1), body.from);
        whole.to = g_literal(b, body.to, "\"", 1);
    } else {
        whole = body;
    }
    g_rule_set(b, leaf->rule, whole);
}

/* Which of the rules that all grammars have in the same form this is, or 0. */
static uint8_t leaf_shared(const struct g_json *j, const struct g_leaf *leaf)
{
    bool counted = leaf->min_chars || leaf->max_chars != UINT32_MAX;
    uint8_t which = (uint8_t)(1 + 4 * leaf->kind);

    if (j->never && leaf->kind != G_LEAF_GAP && leaf->kind != G_LEAF_NUMBER &&
        leaf->kind != G_LEAF_INTEGER)
        return 0;
    switch (leaf->kind) {
    case G_LEAF_STRING:
    case G_LEAF_TEXT:
        if (leaf->min_chars > leaf->max_chars)
            return 0;
        return (uint8_t)(which + counted);
    case G_LEAF_INTEGER:
        return leaf->min == -G_INTEGER_MAX && leaf->max == G_INTEGER_MAX ? which
                                                                         : 0;
    case G_LEAF_NUMBER:
        return leaf->lo.given || leaf->hi.given ? 0 : which;
    default:
        return (uint8_t)(which + j->compact);
    }
}

static void leaf_draw(struct g_json *j, const struct g_leaf *leaf)
{
    struct g_build *b = j->b;
    struct g_part p;

    g_clear(b);
    switch (leaf->kind) {
    case G_LEAF_STRING:
    case G_LEAF_TEXT:
        set_string(j, leaf);
        return;
    case G_LEAF_GAP:
        p = draw_gap(b);
        break;
    case G_LEAF_VALUE:
        p = draw_value(j);
        break;
    case G_LEAF_OBJECT:
    case G_LEAF_ARRAY:
        p = draw_list(j, leaf->kind == G_LEAF_OBJECT);
        break;
    case G_LEAF_INTEGER:
        p.from = g_state(b);
        p.to = g_state(b);
        draw_signed(b, p.from, leaf->min, leaf->max, 0, p.to);
        break;
    case G_LEAF_NUMBER:
        p.from = g_state(b);
        if (leaf->lo.given || leaf->hi.given) {
            p.to = g_state(b);
            draw_bounded(b, p.from, leaf, p.to);
        } else {
            p.to = draw_number(b, p.from);
        }
        break;
    default:
        return;
    }
    g_rule_set(b, leaf->rule, p);
}

static void leaf_set(struct g_json *j, const struct g_leaf *leaf)
{
    struct g_auto *a = &j->b->a;
    uint32_t from = a->n_states, n_loops = a->n_loops;
    uint8_t shared = leaf_shared(j, leaf);

    leaf_draw(j, leaf);
    for (uint32_t i = from; shared && i < a->n_states; i++) {
        /* How often the loop behind it goes round is not in the key. */
        if (a->n_loops > n_loops && !a->state[i].loop)
            continue;
        a->state[i].shared = shared;
        a->state[i].local = (uint16_t)(i - from);
    }
}

void g_json_finish(struct g_json *j)
{
    /* Setting one may ask for others, which come behind it. */
    for (uint32_t i = 0; i < j->n_leaves && !j->b->rc; i++) {
        struct g_leaf leaf = j->leaf[i];

        if (leaf.is_set)
            continue;
        leaf_set(j, &leaf);
        j->leaf[i].is_set = true;
    }
}
