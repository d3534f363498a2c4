#include "core/base/num.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NEAREST_MAX 63 /* longer words are nobody's typing error */

bool seam_parse_u64(const char *s, size_t n, uint64_t *out)
{
    uint64_t v = 0;

    if (n == 0)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9')
            return false;
        if (!seam_mul(v, 10, &v) || !seam_add(v, (uint64_t)(s[i] - '0'), &v))
            return false;
    }
    *out = v;
    return true;
}

bool seam_parse_i64(const char *s, size_t n, int64_t *out)
{
    bool negative = n > 0 && s[0] == '-';
    uint64_t v;

    if (!seam_parse_u64(s + negative, n - negative, &v))
        return false;
    if (v > (uint64_t)INT64_MAX + negative)
        return false;
    *out = negative ? (int64_t)(0 - v) : (int64_t)v;
    return true;
}

bool seam_parse_f64(const char *s, double *out)
{
    locale_t c, was;
    char *end;
    double v;
    bool ok;

    if (!strchr("+-.0123456789", s[0]) || !s[0])
        return false;
    if (strpbrk(s, "xXpPnN")) /* hexadecimal floats, inf and nan */
        return false;
    c = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    if (!c)
        return false;
    was = uselocale(c);
    errno = 0;
    v = strtod(s, &end);
    ok = *end == 0 && isfinite(v);
    uselocale(was);
    freelocale(c);
    if (ok)
        *out = v;
    return ok;
}

/* Insertions, deletions, replacements and swaps of neighbours, one each. */
static size_t nearest_distance(const char *a, const char *b)
{
    size_t n = strlen(b);
    size_t row[NEAREST_MAX + 1], above[NEAREST_MAX + 1];
    size_t above2[NEAREST_MAX + 1];

    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        memcpy(above2, above, i > 1 ? (n + 1) * sizeof *row : 0);
        memcpy(above, row, (n + 1) * sizeof *row);
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t best = above[j - 1] + (a[i - 1] != b[j - 1]);

            if (above[j] + 1 < best)
                best = above[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] &&
                a[i - 2] == b[j - 1] && above2[j - 2] + 1 < best)
                best = above2[j - 2] + 1;
            row[j] = best;
        }
    }
    return row[n];
}

const char *seam_nearest(const char *word, const char *const *list)
{
    const char *best = NULL;
    size_t best_d = strlen(word) / 2 + 1;

    if (strlen(word) > NEAREST_MAX)
        return NULL;
    for (; *list; list++) {
        size_t d;

        if (strlen(*list) > NEAREST_MAX)
            continue;
        d = nearest_distance(word, *list);
        if (d < best_d) {
            best_d = d;
            best = *list;
        }
    }
    return best;
}
