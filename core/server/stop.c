#include "core/server/stop.h"

#include <stdlib.h>
#include <string.h>

/* Each string is followed by its own Knuth-Morris-Pratt automaton, so a byte
 * costs a bounded number of steps per string on average, and the bytes to hold
 * back are the longest of the prefixes just matched. */

int seam_stop_init(struct seam_stop *m, const struct seam_str *strings,
                   uint32_t n)
{
    memset(m, 0, sizeof *m);
    m->hit = -1;
    for (uint32_t i = 0; i < n; i++) {
        const char *p = strings[i].p;
        size_t len = strings[i].n, k = 0;
        uint16_t *fail = calloc(len, sizeof *fail);

        if (!fail) {
            seam_stop_release(m);
            return SEAM_ENOMEM;
        }
        for (size_t j = 1; j < len; j++) {
            while (k && p[j] != p[k])
                k = fail[k - 1];
            if (p[j] == p[k])
                k++;
            fail[j] = (uint16_t)k;
        }
        m->s[i].p = p;
        m->s[i].n = len;
        m->s[i].fail = fail;
        m->n = i + 1;
    }
    return 0;
}

void seam_stop_release(struct seam_stop *m)
{
    for (uint32_t i = 0; i < m->n; i++)
        free(m->s[i].fail);
    seam_buf_release(&m->held);
    m->n = 0;
}

/* Advance every automaton by c; true when a string is met. */
static bool stop_step(struct seam_stop *m, char c)
{
    for (uint32_t i = 0; i < m->n; i++) {
        size_t k = m->s[i].matched;

        while (k && m->s[i].p[k] != c)
            k = m->s[i].fail[k - 1];
        if (m->s[i].p[k] == c)
            k++;
        m->s[i].matched = k;
        if (k == m->s[i].n && (m->hit < 0 || k > m->s[m->hit].n))
            m->hit = (int)i;
    }
    return m->hit >= 0;
}

bool seam_stop_feed(struct seam_stop *m, const char *p, size_t n, bool include,
                    struct seam_buf *out)
{
    size_t keep = 0;

    if (!m->n) {
        seam_buf_add(out, p, n);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (!stop_step(m, p[i]))
            continue;
        seam_buf_add(&m->held, p, i + 1);
        if (!include)
            m->held.n -= m->s[m->hit].n;
        seam_buf_add(out, m->held.p, m->held.n);
        seam_buf_clear(&m->held);
        return true;
    }
    for (uint32_t i = 0; i < m->n; i++)
        if (m->s[i].matched > keep)
            keep = m->s[i].matched;
    seam_buf_add(&m->held, p, n);
    if (m->held.n > keep) {
        size_t go = m->held.n - keep;

        seam_buf_add(out, m->held.p, go);
        memmove(m->held.p, m->held.p + go, keep);
        m->held.n = keep;
    }
    return false;
}

void seam_stop_flush(struct seam_stop *m, struct seam_buf *out)
{
    if (m->held.n)
        seam_buf_add(out, m->held.p, m->held.n);
    seam_buf_clear(&m->held);
    for (uint32_t i = 0; i < m->n; i++)
        m->s[i].matched = 0;
}
