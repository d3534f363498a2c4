#include "walk.h"

#include <string.h>

uint64_t walk_random_u64(uint64_t *seed)
{
    uint64_t x = *seed += 0x9e3779b97f4a7c15u;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* The k-th allowed id. */
static int32_t nth_bit(const uint32_t *row, uint32_t n_words, uint32_t k)
{
    for (uint32_t i = 0; i < n_words; i++) {
        uint32_t n = (uint32_t)__builtin_popcount(row[i]);

        if (k < n) {
            uint32_t x = row[i];

            while (k--)
                x &= x - 1;
            return (int32_t)(32 * i + (uint32_t)__builtin_ctz(x));
        }
        k -= n;
    }
    return -1;
}

/* Is it a byte that may lead to the end? */
static bool closes(const struct seam_tokenizer *t, int32_t id)
{
    struct seam_str s;

    return seam_tokenizer_bytes(t, id, &s) && s.n == 1 &&
           strchr("}]\"0el@.", s.p[0]) && s.p[0];
}

static int32_t choose(const struct seam_tokenizer *t, const uint32_t *row,
                      uint32_t n_words, bool closing, uint64_t *seed)
{
    int32_t best = -1, quote = seam_tokenizer_id(t, "\"", 1);
    uint32_t n = 0, n_closing = 0;

    for (uint32_t i = 0; i < n_words; i++)
        n += (uint32_t)__builtin_popcount(row[i]);
    if (!n)
        return -1;
    for (uint32_t i = 0; closing && i < n_words; i++)
        for (uint32_t x = row[i]; x; x &= x - 1) {
            int32_t id = (int32_t)(32 * i + (uint32_t)__builtin_ctz(x));

            if (closes(t, id) && walk_random_u64(seed) % ++n_closing == 0)
                best = id;
            if (id == quote && walk_random_u64(seed) % 2)
                return id;
        }
    /* Now and then something else, lest these lead in a circle. */
    if (best >= 0 && walk_random_u64(seed) % 8)
        return best;
    return nth_bit(row, n_words, (uint32_t)(walk_random_u64(seed) % n));
}

int walk_random(struct seam_matcher *m, const struct seam_tokenizer *t,
                uint32_t *row, uint64_t *seed, uint32_t steps,
                struct seam_buf *out, struct seam_error *err)
{
    uint32_t n_words = seam_matcher_words(m);

    for (uint32_t i = 0; i < 4 * steps; i++) {
        bool closing = i >= steps || walk_random_u64(seed) % 4 == 0;
        bool end = seam_matcher_can_end(m) &&
                   (i >= steps || walk_random_u64(seed) % 8 == 0);
        struct seam_str s;
        int32_t id;
        int rc = seam_matcher_mask(m, row, err);

        if (rc)
            return rc;
        if (end)
            return 1;
        id = choose(t, row, n_words, closing, seed);
        if (id < 0)
            return seam_fail(err, SEAM_EDATA, "no token is allowed after %u",
                             i);
        rc = seam_matcher_accept(m, id, err);
        if (rc <= 0)
            return rc ? rc
                      : seam_fail(err, SEAM_EDATA,
                                  "token %d is in the mask but not accepted",
                                  id);
        if (seam_matcher_ended(m))
            return 1;
        if (seam_tokenizer_bytes(t, id, &s))
            seam_buf_add(out, s.p, s.n);
    }
    return 0;
}

bool walk_accepts(struct seam_matcher *m, const struct seam_tokenizer *t,
                  const char *p, size_t n)
{
    struct seam_ids ids = { 0 };
    bool ok = !seam_tokenizer_encode(t, p, n, false, &ids, NULL);

    seam_matcher_reset(m);
    for (size_t i = 0; ok && i < ids.n; i++)
        ok = seam_matcher_accept(m, ids.v[i], NULL) == 1;
    ok = ok && seam_matcher_can_end(m);
    seam_matcher_reset(m);
    seam_ids_release(&ids);
    return ok;
}
