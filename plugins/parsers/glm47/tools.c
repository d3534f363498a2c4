#include "tools.h"

#include <stdlib.h>

#include "chat_request.h"
#include "plugin_util.h"
#include "typing.h"

/* Names with white space or '<' cannot be told from what surrounds them. */
static bool is_usable(struct seam_str name)
{
    for (size_t i = 0; i < name.n; i++)
        if (text_is_ws(name.p[i]) || name.p[i] == '<')
            return false;
    return name.n > 0;
}

static int by_name(const void *a, const void *b)
{
    return text_order(((const struct glm_tool *)a)->name,
                      ((const struct glm_tool *)b)->name);
}

int glm_tools_read(struct glm_tools *t, struct seam_str list,
                   struct seam_error *err)
{
    const struct jt_value *root, *v;
    size_t n = 0;
    int rc;

    *t = (struct glm_tools){ 0 };
    if (!list.n)
        return SEAM_OK;
    rc = jt_read(&t->doc, list, "tools", err);
    if (rc)
        return rc;
    root = t->doc.root;
    if (root->kind == JT_NULL)
        return SEAM_OK;
    if (root->kind != JT_ARRAY)
        return plug_fail(err, SEAM_EDATA, "tools: expected a list");
    t->tool = jt_alloc(&t->doc, (root->count + 1) * sizeof *t->tool);
    if (!t->tool)
        return plug_fail(err, SEAM_ENOMEM, "tools: out of memory");
    for (v = root->first; v; v = v->next) {
        const struct jt_value *f = chat_function(v), *name = jt_get(f, "name");
        const struct jt_value *params = jt_get(f, "parameters");

        if (!jt_is(name, JT_STRING) || !is_usable(name->s))
            continue;
        t->tool[t->n] = (struct glm_tool){ .name = name->s, .params = params };
        rc = glm_properties(params, &t->tool[t->n++].props);
        if (rc)
            return plug_fail(err, rc, "tools: out of memory");
    }
    if (t->n)
        qsort(t->tool, t->n, sizeof *t->tool, by_name);
    for (size_t i = 0; i < t->n; i++) {
        if (n && text_same(t->tool[n - 1].name, t->tool[i].name))
            continue;
        t->tool[n++] = t->tool[i];
        if (t->tool[i].name.n > t->longest)
            t->longest = t->tool[i].name.n;
    }
    t->n = n;
    return SEAM_OK;
}

void glm_tools_release(struct glm_tools *t)
{
    jt_release(&t->doc);
    *t = (struct glm_tools){ 0 };
}

/* Index of the first tool whose name is not below s. */
static size_t lower(const struct glm_tools *t, struct seam_str s)
{
    size_t lo = 0, hi = t->n;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (text_order(t->tool[mid].name, s) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

const struct glm_tool *glm_tools_find(const struct glm_tools *t,
                                      struct seam_str name)
{
    size_t i = lower(t, name);

    return i < t->n && text_same(t->tool[i].name, name) ? &t->tool[i] : NULL;
}

bool glm_tools_begin(const struct glm_tools *t, struct seam_str s)
{
    size_t i = lower(t, s);

    return i < t->n && t->tool[i].name.n >= s.n &&
           (s.n == 0 || !memcmp(t->tool[i].name.p, s.p, s.n));
}

const struct glm_tool *glm_tools_glued(const struct glm_tools *t,
                                       struct seam_str s, struct seam_str *key)
{
    size_t n = s.n < t->longest ? s.n : t->longest;

    for (; n > 0; n--) {
        const struct glm_tool *tool =
            glm_tools_find(t, (struct seam_str){ s.p, n });
        struct seam_str rest = text_trim((struct seam_str){ s.p + n, s.n - n });
        bool word = rest.n > 0;

        if (!tool)
            continue;
        for (size_t i = 0; i < rest.n; i++)
            word = word && glm_is_key_char(rest.p[i]);
        if (!word || (tool->props && !jt_find(tool->props, rest)))
            continue;
        *key = rest;
        return tool;
    }
    return NULL;
}

/* The byte of tool i's name at `at`; -1 behind its end, below all bytes. */
static int byte_at(const struct glm_tools *t, size_t i, size_t at)
{
    return at < t->tool[i].name.n ? (unsigned char)t->tool[i].name.p[at] : -1;
}

void glm_tools_narrow(const struct glm_tools *t, size_t at, char c, size_t *lo,
                      size_t *hi)
{
    int want = (unsigned char)c;
    size_t a = *lo, b = *hi;

    while (a < b) {
        size_t mid = a + (b - a) / 2;

        if (byte_at(t, mid, at) < want)
            a = mid + 1;
        else
            b = mid;
    }
    *lo = a;
    b = *hi;
    while (a < b) {
        size_t mid = a + (b - a) / 2;

        if (byte_at(t, mid, at) <= want)
            a = mid + 1;
        else
            b = mid;
    }
    *hi = a;
}
