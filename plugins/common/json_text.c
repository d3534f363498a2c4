#include "json_text.h"

#include <locale.h>
#include <math.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>

#include "plugin_util.h"

/* Objects with more members are searched by bisection. */
#define JT_LINEAR 8

/* ---- Memory -------------------------------------------------------------- */

struct jt_chunk {
    struct jt_chunk *next;
    size_t used, size;
    alignas(16) char data[];
};

void *jt_alloc(struct jt_doc *doc, size_t bytes)
{
    struct jt_chunk *c = doc->chunks;
    size_t size;
    void *p;

    if (bytes > SIZE_MAX / 4)
        return NULL;
    bytes = (bytes + 15) & ~(size_t)15;
    if (!c || bytes > c->size - c->used) {
        /* Grow with the document: few chunks, little waste in small ones. */
        size = c ? c->size * 2 : 1024;
        if (size > 1u << 20)
            size = 1u << 20;
        if (size < bytes)
            size = bytes;
        c = malloc(sizeof *c + size);
        if (!c)
            return NULL;
        *c = (struct jt_chunk){ .next = doc->chunks, .size = size };
        doc->chunks = c;
    }
    p = c->data + c->used;
    c->used += bytes;
    return p;
}

void jt_release(struct jt_doc *doc)
{
    struct jt_chunk *c = doc->chunks;

    while (c) {
        struct jt_chunk *next = c->next;

        free(c);
        c = next;
    }
    *doc = (struct jt_doc){ 0 };
}

/* ---- Reading ------------------------------------------------------------- */

struct jt_reader {
    const char *p, *end, *start;
    struct jt_doc *doc; /* NULL: check only */
    const char *why;    /* set once, by the first failure */
    bool no_memory;
    uint32_t depth;
};

static bool jt_fail(struct jt_reader *r, const char *why)
{
    if (!r->why)
        r->why = why;
    return false;
}

static bool jt_no_memory(struct jt_reader *r)
{
    r->no_memory = true;
    return jt_fail(r, "out of memory");
}

static void jt_blank(struct jt_reader *r)
{
    while (r->p < r->end &&
           (*r->p == ' ' || *r->p == '\t' || *r->p == '\n' || *r->p == '\r'))
        r->p++;
}

static bool jt_word(struct jt_reader *r, const char *word)
{
    size_t n = strlen(word);

    if ((size_t)(r->end - r->p) < n || memcmp(r->p, word, n))
        return jt_fail(r, "no such word, expected true, false or null");
    r->p += n;
    return true;
}

static bool jt_digits(struct jt_reader *r)
{
    const char *from = r->p;

    while (r->p < r->end && *r->p >= '0' && *r->p <= '9')
        r->p++;
    return r->p > from || jt_fail(r, "expected a digit");
}

static bool jt_number(struct jt_reader *r, struct jt_value *v)
{
    const char *from = r->p;
    double d;
    int rc;

    v->kind = JT_NUMBER;
    if (*r->p == '-')
        r->p++;
    if (r->p < r->end && *r->p == '0')
        r->p++;
    else if (!jt_digits(r))
        return false;
    if (r->p < r->end && *r->p >= '0' && *r->p <= '9')
        return jt_fail(r, "number begins with 0");
    if (r->p < r->end && *r->p == '.') {
        v->real = true;
        r->p++;
        if (!jt_digits(r))
            return false;
    }
    if (r->p < r->end && (*r->p == 'e' || *r->p == 'E')) {
        v->real = true;
        r->p++;
        if (r->p < r->end && (*r->p == '+' || *r->p == '-'))
            r->p++;
        if (!jt_digits(r))
            return false;
    }
    v->s = (struct seam_str){ from, (uint64_t)(r->p - from) };
    rc = v->real ? jt_double(v->s, &d) : SEAM_OK;
    if (rc == SEAM_ENOMEM)
        return jt_no_memory(r);
    return rc == SEAM_OK || jt_fail(r, "number too large for a double");
}

static bool jt_hex4(struct jt_reader *r, uint32_t *out)
{
    uint32_t v = 0;

    if (r->end - r->p < 4)
        return jt_fail(r, "expected four hex digits");
    for (int i = 0; i < 4; i++) {
        char c = *r->p++;

        if (c >= '0' && c <= '9')
            v = v << 4 | (uint32_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            v = v << 4 | (uint32_t)(c - 'a' + 10);
        else if (c >= 'A' && c <= 'F')
            v = v << 4 | (uint32_t)(c - 'A' + 10);
        else
            return jt_fail(r, "expected four hex digits");
    }
    *out = v;
    return true;
}

/* The escape behind a backslash, r->p past it, into b. */
static bool jt_escape(struct jt_reader *r, struct tbuf *b)
{
    uint32_t hi, lo;
    char c;

    if (r->p == r->end)
        return jt_fail(r, "string without end");
    c = *r->p++;
    switch (c) {
    case '"':
    case '\\':
    case '/':
        break;
    case 'b':
        c = '\b';
        break;
    case 'f':
        c = '\f';
        break;
    case 'n':
        c = '\n';
        break;
    case 'r':
        c = '\r';
        break;
    case 't':
        c = '\t';
        break;
    case 'u':
        if (!jt_hex4(r, &hi))
            return false;
        if (hi >= 0xdc00 && hi <= 0xdfff)
            return jt_fail(r, "lone surrogate");
        if (hi >= 0xd800 && hi <= 0xdbff) {
            if (r->end - r->p < 2 || r->p[0] != '\\' || r->p[1] != 'u')
                return jt_fail(r, "lone surrogate");
            r->p += 2;
            if (!jt_hex4(r, &lo))
                return false;
            if (lo < 0xdc00 || lo > 0xdfff)
                return jt_fail(r, "lone surrogate");
            hi = 0x10000 + ((hi - 0xd800) << 10) + (lo - 0xdc00);
        }
        tbuf_utf8(b, hi);
        return true;
    default:
        return jt_fail(r, "unknown escape in a string");
    }
    tbuf_add(b, &c, 1);
    return true;
}

/* A string, r->p at its quote.  Without escapes it is a view of the text. */
static bool jt_string(struct jt_reader *r, struct seam_str *out)
{
    const char *from = ++r->p, *run = from;
    struct tbuf b = { 0 };
    bool ok = false, escaped = false;

    for (;;) {
        uint32_t cp;
        size_t len;

        if (r->p == r->end) {
            jt_fail(r, "string without end");
            goto out;
        }
        if (*r->p == '"')
            break;
        if ((unsigned char)*r->p < 0x20) {
            jt_fail(r, "control character in a string");
            goto out;
        }
        if (*r->p == '\\') {
            escaped = true;
            tbuf_add(&b, run, (size_t)(r->p - run));
            r->p++;
            if (!jt_escape(r, &b))
                goto out;
            run = r->p;
            if (!r->doc)
                b.n = 0;
            continue;
        }
        if (tutf8_next(r->p, (size_t)(r->end - r->p), &cp, &len) != TUTF8_OK) {
            jt_fail(r, "ill-formed UTF-8");
            goto out;
        }
        r->p += len;
    }
    *out = (struct seam_str){ from, (uint64_t)(r->p - from) };
    if (escaped && r->doc) {
        char *copy;

        tbuf_add(&b, run, (size_t)(r->p - run));
        copy = jt_alloc(r->doc, b.n ? b.n : 1);
        if (!copy || b.failed) {
            jt_no_memory(r);
            goto out;
        }
        memcpy(copy, b.p, b.n);
        *out = (struct seam_str){ copy, b.n };
    }
    r->p++;
    ok = true;
out:
    tbuf_release(&b);
    return ok;
}

static int jt_by_key(const void *a, const void *b)
{
    const struct jt_value *x = *(struct jt_value *const *)a;
    const struct jt_value *y = *(struct jt_value *const *)b;
    int c = text_order(x->key, y->key);

    return c ? c : (x->pos > y->pos) - (x->pos < y->pos);
}

/* v takes the value of its later namesake, which leaves the object. */
static void jt_take(struct jt_value *v, struct jt_value *later)
{
    struct jt_value copy = *later;

    copy.key = v->key;
    copy.next = v->next;
    copy.pos = v->pos;
    *v = copy;
    later->kind = 0;
}

/* Make keys unique and, when they are many, searchable. */
static bool jt_index(struct jt_reader *r, struct jt_value *obj)
{
    struct jt_value **link = &obj->first;
    size_t n = 0;

    if (obj->count > JT_LINEAR) {
        obj->sorted = jt_alloc(r->doc, obj->count * sizeof *obj->sorted);
        if (!obj->sorted)
            return jt_no_memory(r);
        for (struct jt_value *v = obj->first; v; v = v->next)
            obj->sorted[n++] = v;
        qsort(obj->sorted, n, sizeof *obj->sorted, jt_by_key);
        n = 0;
        for (size_t i = 0; i < obj->count; i++) {
            struct jt_value *v = obj->sorted[i];

            if (n && text_same(obj->sorted[n - 1]->key, v->key))
                jt_take(obj->sorted[n - 1], v);
            else
                obj->sorted[n++] = v;
        }
    } else {
        for (struct jt_value *v = obj->first; v; v = v->next)
            for (struct jt_value *w = v->next; w && v->kind; w = w->next)
                if (w->kind && text_same(v->key, w->key))
                    jt_take(v, w);
    }
    obj->count = 0;
    while (*link) {
        if ((*link)->kind) {
            obj->count++;
            link = &(*link)->next;
        } else {
            *link = (*link)->next;
        }
    }
    return true;
}

static bool jt_value_read(struct jt_reader *r, struct jt_value *v);

/* The entries of a list or object, r->p at its bracket. */
static bool jt_entries(struct jt_reader *r, struct jt_value *v, char close)
{
    struct jt_value scratch, **link = &v->first;
    const char *from = r->p;

    v->kind = close == ']' ? JT_ARRAY : JT_OBJECT;
    if (r->depth == JT_DEPTH)
        return jt_fail(r, "nested too deeply");
    r->depth++;
    r->p++;
    jt_blank(r);
    if (r->p < r->end && *r->p == close)
        goto end;
    for (;;) {
        struct jt_value *e = &scratch;
        struct seam_str key = { 0 };

        jt_blank(r);
        if (close == '}') {
            if (r->p == r->end || *r->p != '"')
                return jt_fail(r, "expected a key in quotes");
            if (!jt_string(r, &key))
                return false;
            jt_blank(r);
            if (r->p == r->end || *r->p != ':')
                return jt_fail(r, "expected ':'");
            r->p++;
        }
        if (r->doc && !(e = jt_alloc(r->doc, sizeof *e)))
            return jt_no_memory(r);
        if (!jt_value_read(r, e))
            return false;
        e->key = key;
        if (v->count == UINT32_MAX)
            return jt_fail(r, "too many entries");
        e->pos = (uint32_t)v->count++;
        if (r->doc) {
            *link = e;
            link = &e->next;
        }
        jt_blank(r);
        if (r->p < r->end && *r->p == ',') {
            r->p++;
            continue;
        }
        if (r->p == r->end || *r->p != close)
            return jt_fail(r, close == ']' ? "expected ',' or ']'"
                                           : "expected ',' or '}'");
        break;
    }
end:
    r->p++;
    r->depth--;
    v->s = (struct seam_str){ from, (uint64_t)(r->p - from) };
    return !r->doc || close == ']' || jt_index(r, v);
}

static bool jt_value_read(struct jt_reader *r, struct jt_value *v)
{
    *v = (struct jt_value){ 0 };
    jt_blank(r);
    if (r->p == r->end)
        return jt_fail(r, "text ends where a value was expected");
    switch (*r->p) {
    case '{':
        return jt_entries(r, v, '}');
    case '[':
        return jt_entries(r, v, ']');
    case '"':
        v->kind = JT_STRING;
        return jt_string(r, &v->s);
    case 't':
        v->kind = JT_TRUE;
        return jt_word(r, "true");
    case 'f':
        v->kind = JT_FALSE;
        return jt_word(r, "false");
    case 'n':
        v->kind = JT_NULL;
        return jt_word(r, "null");
    default:
        if (*r->p == '-' || (*r->p >= '0' && *r->p <= '9'))
            return jt_number(r, v);
        return jt_fail(r, "expected a value");
    }
}

static bool jt_whole(struct jt_reader *r, struct jt_value *v)
{
    if (!jt_value_read(r, v))
        return false;
    jt_blank(r);
    return r->p == r->end || jt_fail(r, "text goes on after the value");
}

int jt_read_more(struct jt_doc *doc, struct seam_str text, const char *what,
                 const struct jt_value **out, struct seam_error *err)
{
    const char *p = text.n ? text.p : "";
    struct jt_reader r = { .p = p, .end = p + text.n, .start = p, .doc = doc };
    struct jt_value *v = jt_alloc(doc, sizeof *v);

    if (!v)
        return plug_fail(err, SEAM_ENOMEM, "%s: out of memory", what);
    if (!jt_whole(&r, v))
        return plug_fail(err, r.no_memory ? SEAM_ENOMEM : SEAM_EDATA,
                         "%s: byte %zu: %s", what, (size_t)(r.p - r.start),
                         r.why);
    *out = v;
    return SEAM_OK;
}

int jt_read(struct jt_doc *doc, struct seam_str text, const char *what,
            struct seam_error *err)
{
    *doc = (struct jt_doc){ 0 };
    return jt_read_more(doc, text, what, &doc->root, err);
}

int jt_check(struct seam_str text, bool *real)
{
    const char *p = text.n ? text.p : "";
    struct jt_reader r = { .p = p, .end = p + text.n, .start = p };
    struct jt_value v;

    if (!text.n || !jt_whole(&r, &v))
        return r.no_memory ? SEAM_ENOMEM : 0;
    if (real)
        *real = v.real;
    return v.kind;
}

/* ---- Looking ------------------------------------------------------------- */

const struct jt_value *jt_find(const struct jt_value *v, struct seam_str key)
{
    size_t lo = 0, hi;

    if (!jt_is(v, JT_OBJECT))
        return NULL;
    if (!v->sorted) {
        for (const struct jt_value *e = v->first; e; e = e->next)
            if (text_same(e->key, key))
                return e;
        return NULL;
    }
    hi = v->count;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = text_order(v->sorted[mid]->key, key);

        if (c == 0)
            return v->sorted[mid];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

const struct jt_value *jt_get(const struct jt_value *v, const char *key)
{
    return jt_find(v, (struct seam_str){ key, strlen(key) });
}

bool jt_truthy(const struct jt_value *v)
{
    double d;

    if (!v)
        return false;
    switch (v->kind) {
    case JT_TRUE:
        return true;
    case JT_NUMBER:
        return jt_double(v->s, &d) || d != 0;
    case JT_STRING:
        return v->s.n > 0;
    case JT_ARRAY:
    case JT_OBJECT:
        return v->count > 0;
    default:
        return false;
    }
}

static bool jt_equal_numbers(const struct jt_value *a, const struct jt_value *b)
{
    double x, y;

    if (text_same(a->s, b->s))
        return true;
    /* Integers have one spelling (but for -0), also those that doubles cannot
     * tell apart. */
    if (!a->real && !b->real && (a->s.n > 15 || b->s.n > 15))
        return false;
    return !jt_double(a->s, &x) && !jt_double(b->s, &y) && x == y;
}

bool jt_equal(const struct jt_value *a, const struct jt_value *b)
{
    const struct jt_value *x, *y;

    if (a->kind != b->kind)
        return false;
    switch (a->kind) {
    case JT_NUMBER:
        return jt_equal_numbers(a, b);
    case JT_STRING:
        return text_same(a->s, b->s);
    case JT_ARRAY:
        if (a->count != b->count)
            return false;
        for (x = a->first, y = b->first; x; x = x->next, y = y->next)
            if (!jt_equal(x, y))
                return false;
        return true;
    case JT_OBJECT:
        if (a->count != b->count)
            return false;
        for (x = a->first; x; x = x->next) {
            y = jt_find(b, x->key);
            if (!y || !jt_equal(x, y))
                return false;
        }
        return true;
    default:
        return true;
    }
}

/* ---- Numbers ------------------------------------------------------------- */

/* The C library reads and prints by the thread's locale; the process's may
 * have a decimal comma.  In glibc the "C" locale costs nothing to ask for. */
static locale_t jt_c_locale(void)
{
    return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

int jt_double(struct seam_str lexeme, double *out)
{
    char small[64], *s = small, *big = NULL;
    locale_t c = jt_c_locale();
    int rc = SEAM_ENOMEM;
    double d;

    if (!c)
        return rc;
    if (lexeme.n >= sizeof small) {
        s = big = malloc(lexeme.n + 1);
        if (!big)
            goto out;
    }
    memcpy(s, lexeme.p, lexeme.n);
    s[lexeme.n] = 0;
    d = strtod_l(s, NULL, c);
    rc = isinf(d) ? SEAM_EDATA : SEAM_OK;
    if (!rc)
        *out = d;
out:
    free(big);
    freelocale(c);
    return rc;
}

/* Add one unit in the last place to digits[0, n); a carry out of the first
 * makes it 1 followed by zeros and raises *exp. */
static void jt_digits_up(char *digits, int n, int *exp)
{
    for (int i = n - 1; i >= 0; i--) {
        if (digits[i] != '9') {
            digits[i]++;
            return;
        }
        digits[i] = '0';
    }
    digits[0] = '1';
    ++*exp;
}

/* Fewest digits that read back as d > 0: d = 0.DIGITS... * 10^(*exp + 1).
 * Returns their count, at most 17. */
static int jt_shortest(double d, char digits[18], int *exp, locale_t c)
{
    locale_t old = uselocale(c);
    int n = 1;

    for (; n <= 17; n++) {
        bool done = false;

        /* The nearest decimal of n digits, and the next above: below a power
         * of two doubles lie closer, so the nearest may read back as another
         * while the one above does not. */
        for (int up = 0; up < 2 && !done; up++) {
            char s[40];

            snprintf(s, sizeof s, "%.*e", n - 1, d);
            digits[0] = s[0];
            memcpy(digits + 1, s + 2, (size_t)n - 1);
            digits[n] = 0;
            *exp = (int)strtol(strchr(s, 'e') + 1, NULL, 10);
            if (up)
                jt_digits_up(digits, n, exp);
            snprintf(s, sizeof s, "%c.%se%d", digits[0],
                     n > 1 ? digits + 1 : "0", *exp);
            done = strtod(s, NULL) == d;
        }
        if (done || n == 17)
            break;
    }
    uselocale(old);
    while (n > 1 && digits[n - 1] == '0')
        n--;
    return n;
}

/* A real as Python's repr prints it. */
static void jt_write_real(struct tbuf *b, struct seam_str lexeme)
{
    static const char zeros[] = "0000000000000000";
    locale_t c = jt_c_locale();
    char digits[18], s[8];
    int n, exp, lead;
    double d;

    if (!c || jt_double(lexeme, &d)) {
        b->failed = true;
        goto out;
    }
    if (signbit(d))
        tbuf_str(b, "-");
    if (d == 0) {
        tbuf_str(b, "0.0");
        goto out;
    }
    n = jt_shortest(fabs(d), digits, &exp, c);
    if (exp < -4 || exp >= 16) {
        tbuf_add(b, digits, 1);
        if (n > 1) {
            tbuf_str(b, ".");
            tbuf_add(b, digits + 1, (size_t)n - 1);
        }
        snprintf(s, sizeof s, "e%+03d", exp);
        tbuf_str(b, s);
    } else if (exp < 0) {
        tbuf_str(b, "0.");
        tbuf_add(b, zeros, (size_t)(-exp - 1));
        tbuf_add(b, digits, (size_t)n);
    } else {
        lead = n < exp + 1 ? n : exp + 1;
        tbuf_add(b, digits, (size_t)lead);
        tbuf_add(b, zeros, (size_t)(exp + 1 - lead));
        tbuf_str(b, ".");
        if (n > lead)
            tbuf_add(b, digits + lead, (size_t)(n - lead));
        else
            tbuf_str(b, "0");
    }
out:
    if (c)
        freelocale(c);
}

/* ---- Writing ------------------------------------------------------------- */

static bool jt_skipped(struct seam_str key, const char *const *skip)
{
    for (; skip && *skip; skip++)
        if (text_is(key, *skip))
            return true;
    return false;
}

void jt_write(struct tbuf *b, const struct jt_value *v, const char *const *skip)
{
    bool any = false;

    switch (v->kind) {
    case JT_NULL:
        tbuf_str(b, "null");
        break;
    case JT_FALSE:
        tbuf_str(b, "false");
        break;
    case JT_TRUE:
        tbuf_str(b, "true");
        break;
    case JT_NUMBER:
        if (v->real)
            jt_write_real(b, v->s);
        else if (text_is(v->s, "-0"))
            tbuf_str(b, "0");
        else
            tbuf_add(b, v->s.p, v->s.n);
        break;
    case JT_STRING:
        tbuf_json(b, v->s.p, v->s.n);
        break;
    case JT_ARRAY:
        tbuf_str(b, "[");
        for (const struct jt_value *e = v->first; e; e = e->next) {
            if (e != v->first)
                tbuf_str(b, ", ");
            jt_write(b, e, NULL);
        }
        tbuf_str(b, "]");
        break;
    case JT_OBJECT:
        tbuf_str(b, "{");
        for (const struct jt_value *e = v->first; e; e = e->next) {
            if (jt_skipped(e->key, skip))
                continue;
            if (any)
                tbuf_str(b, ", ");
            any = true;
            tbuf_json(b, e->key.p, e->key.n);
            tbuf_str(b, ": ");
            jt_write(b, e, NULL);
        }
        tbuf_str(b, "}");
        break;
    }
}
