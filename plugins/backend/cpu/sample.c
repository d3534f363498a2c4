/* From logits to tokens: bias and mask, temperature, then top_k, top_p and
 * min_p, each over what the one before left; of equal tokens the smaller id
 * comes first.
 *
 * Nothing is sorted.  The head that top_k or top_p keeps is found by
 * partitioning candidates, after a threshold that provably loses none of it has
 * left most of the vocabulary out. */
#include "sample.h"

#include <math.h>
#include <string.h>

#include "rng.h"

static uint32_t n_blocks(uint32_t n)
{
    return (n + SAMPLER_BLOCK - 1) / SAMPLER_BLOCK;
}

static uint32_t block_len(uint32_t n, uint32_t b)
{
    uint32_t left = n - b * SAMPLER_BLOCK;

    return left < SAMPLER_BLOCK ? left : SAMPLER_BLOCK;
}

/* Largest of each block. */
static void block_max(const struct kern *k, struct sampler *s, const float *v,
                      uint32_t n)
{
    for (uint32_t b = 0; b < n_blocks(n); b++)
        s->block[b] = k->max(v + b * SAMPLER_BLOCK, block_len(n, b));
}

/* A sum is finite only if all its terms are.  The other way round it may be too
 * large for a float. */
static bool all_finite(const struct kern *k, const float *x, uint32_t n)
{
    if (isfinite(k->sum(x, n)))
        return true;
    for (uint32_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

/* First id of the largest value; block holds the blocks' largest.  -1 when all
 * are -infinity. */
static int32_t argmax(const struct sampler *s, const float *v, uint32_t n)
{
    uint32_t best = 0;

    for (uint32_t b = 1; b < n_blocks(n); b++)
        if (s->block[b] > s->block[best])
            best = b;
    if (!(s->block[best] > -INFINITY))
        return -1;
    for (uint32_t i = best * SAMPLER_BLOCK; i < n; i++)
        if (v[i] == s->block[best])
            return (int32_t)i;
    return -1;
}

/* ---- Heads --------------------------------------------------------------- */

static bool before(const float *p, int32_t a, int32_t b)
{
    return p[a] > p[b] || (p[a] == p[b] && a < b);
}

static void swap(int32_t *o, uint32_t i, uint32_t j)
{
    int32_t t = o[i];

    o[i] = o[j];
    o[j] = t;
}

/* Arrange o[lo, hi) around a pivot: what comes before it, itself, the rest.
 * Returns where the pivot is.  Median of three. */
static uint32_t partition(const float *p, int32_t *o, uint32_t lo, uint32_t hi)
{
    uint32_t mid = lo + (hi - lo) / 2, at = lo;

    if (before(p, o[mid], o[lo]))
        swap(o, mid, lo);
    if (before(p, o[hi - 1], o[lo]))
        swap(o, hi - 1, lo);
    if (before(p, o[hi - 1], o[mid]))
        swap(o, hi - 1, mid);
    swap(o, mid, hi - 1);
    for (uint32_t i = lo; i + 1 < hi; i++)
        if (before(p, o[i], o[hi - 1]))
            swap(o, i, at++);
    swap(o, at, hi - 1);
    return at;
}

/* Move the first `keep` of o[0, n) in order to the front, unsorted. */
static void select_count(const float *p, int32_t *o, uint32_t n, uint32_t keep)
{
    uint32_t lo = 0, hi = n;

    while (hi - lo > 1) {
        uint32_t at = partition(p, o, lo, hi);

        if (at == keep)
            return;
        if (at > keep)
            hi = at;
        else
            lo = at + 1;
        if (lo >= keep)
            return;
    }
}

/* Move the smallest head of o[0, n) whose sum reaches bar to the front; returns
 * its length, n when the sum of all does not. */
static uint32_t select_mass(const float *p, int32_t *o, uint32_t n, double bar)
{
    uint32_t lo = 0, hi = n;
    double run = 0; /* of o[0, lo) */

    while (lo < hi) {
        uint32_t at = partition(p, o, lo, hi);
        double left = 0;

        for (uint32_t i = lo; i < at; i++)
            left += p[o[i]];
        if (at > lo && run + left >= bar) {
            hi = at;
            continue;
        }
        run += left + p[o[at]];
        lo = at + 1;
        if (run >= bar)
            return lo;
    }
    return lo;
}

/* Candidates with p >= floor, in ascending id. */
static uint32_t gather(struct sampler *s, uint32_t n, float floor)
{
    uint32_t c = 0;

    for (uint32_t b = 0; b < n_blocks(n); b++) {
        uint32_t i = b * SAMPLER_BLOCK, end = i + block_len(n, b);

        if (!(s->block[b] >= floor))
            continue;
        for (; i < end; i++)
            if (s->p[i] >= floor)
                s->order[c++] = (int32_t)i;
    }
    return c;
}

/* A value that at least `count` entries reach: the count-th largest block
 * maximum, or 0 when there are not that many blocks. */
static float count_floor(struct sampler *s, uint32_t n, uint32_t count)
{
    uint32_t nb = n_blocks(n);

    if (count > nb)
        return 0;
    for (uint32_t b = 0; b < nb; b++)
        s->order[b] = (int32_t)b;
    select_count(s->block, s->order, nb, count);
    {
        float least = s->block[s->order[0]];

        for (uint32_t b = 1; b < count; b++)
            if (s->block[s->order[b]] < least)
                least = s->block[s->order[b]];
        return least;
    }
}

/* Only o[0, m) keep their probability. */
static void keep_only(struct sampler *s, uint32_t n, uint32_t m)
{
    /* Their values travel in the order array, which p may overlap with. */
    for (uint32_t i = 0; i < m; i++)
        s->p[s->order[i]] = -s->p[s->order[i]];
    for (uint32_t i = 0; i < n; i++)
        s->p[i] = s->p[i] < 0 ? -s->p[i] : 0;
}

/* ---- Filter -------------------------------------------------------------- */

static double total(const struct kern *k, const float *p, uint32_t n)
{
    double sum = 0;

    for (uint32_t b = 0; b < n_blocks(n); b++)
        sum += k->sum(p + b * SAMPLER_BLOCK, block_len(n, b));
    return sum;
}

/* True when row r has neither a bias nor a mask. */
static bool allows_all(const struct seam_filter *f, uint32_t row)
{
    return !(f->bias_start && f->bias_start[row] < f->bias_start[row + 1]) &&
           !(f->mask && f->mask_row[row] >= 0);
}

/* s->p = logits after bias and mask. */
static void allow(struct sampler *s, const float *logit, uint32_t n,
                  const struct seam_filter *f, uint32_t row)
{
    float *l = s->p;

    memcpy(l, logit, n * sizeof *l);
    for (int32_t j = f->bias_start ? f->bias_start[row] : 0;
         f->bias_start && j < f->bias_start[row + 1]; j++) {
        int32_t id = f->bias_id[j];

        if (id >= 0 && (uint32_t)id < n)
            l[id] =
                (l[id] > 0 ? l[id] / f->bias_div[j] : l[id] * f->bias_div[j]) +
                f->bias_add[j];
    }
    if (f->mask && f->mask_row[row] >= 0) {
        const uint32_t *m =
            f->mask + (uint64_t)f->mask_row[row] * ((n + 31) / 32);

        for (uint32_t i = 0; i < n; i++)
            if (!(m[i / 32] >> i % 32 & 1))
                l[i] = -INFINITY;
    }
}

static void cut_head(const struct kern *k, struct sampler *s, uint32_t n,
                     const struct seam_filter *f, uint32_t row)
{
    uint32_t top_k = f->top_k[row] > 0 ? (uint32_t)f->top_k[row] : n, m;
    double sum = 0;
    float floor = 0;

    block_max(k, s, s->p, n);
    if (top_k < n) {
        floor = count_floor(s, n, top_k);
    } else {
        /* What lies below this cannot be missed from the head: all of it
         * together is less than the share that is cut. */
        sum = total(k, s->p, n);
        floor = (float)((1 - (double)f->top_p[row]) * 0.5 * sum / n);
    }
    m = gather(s, n, floor > 0 ? floor : 1e-38f);
    if (top_k < m) {
        select_count(s->p, s->order, m, top_k);
        m = top_k;
    }
    if (f->top_p[row] < 1) {
        if (top_k < n) {
            sum = 0;
            for (uint32_t i = 0; i < m; i++)
                sum += s->p[s->order[i]];
        }
        m = select_mass(s->p, s->order, m, f->top_p[row] * sum);
    }
    keep_only(s, n, m);
}

/* s->p becomes the distribution of a row up to a factor, 0 for what is filtered
 * out.  Returns false when there is none: logits that are not finite, or
 * nothing allowed.  With temperature 0, *sure is the token and p is not made. */
static bool distribution(const struct kern *k, struct sampler *s,
                         const float *logit, uint32_t n,
                         const struct seam_filter *f, uint32_t row,
                         int32_t *sure)
{
    float t = f->temperature[row];
    const float *l = s->p;
    int32_t best;
    float top;

    *sure = -1;
    if (!all_finite(k, logit, n))
        return false;
    if (t <= 0 && allows_all(f, row))
        l = logit;
    else
        allow(s, logit, n, f, row);
    block_max(k, s, l, n);
    best = argmax(s, l, n);
    if (best < 0 || !(l[best] < INFINITY))
        return false;
    if (t <= 0) {
        *sure = best;
        return true;
    }
    top = s->p[best];
    for (uint32_t i = 0; i < n; i++)
        s->p[i] -= top;
    k->exp_sum(s->p, n, 1 / (t > 1e-30f ? t : 1e-30f), 0);
    s->p[best] = 1;
    if ((f->top_k[row] > 0 && (uint32_t)f->top_k[row] < n) || f->top_p[row] < 1)
        cut_head(k, s, n, f, row);
    for (uint32_t i = 0; f->min_p[row] > 0 && i < n; i++)
        if (s->p[i] < f->min_p[row])
            s->p[i] = 0;
    return true;
}

/* The first id at which the running sum exceeds u times the total. */
static int32_t pick(const struct kern *k, const struct sampler *s, uint32_t n,
                    double u)
{
    double bar, run = 0;
    int32_t last = -1;

    for (uint32_t b = 0; b < n_blocks(n); b++) {
        s->block[b] = k->sum(s->p + b * SAMPLER_BLOCK, block_len(n, b));
        run += s->block[b];
    }
    bar = u * run;
    run = 0;
    for (uint32_t b = 0; b < n_blocks(n); b++) {
        uint32_t i = b * SAMPLER_BLOCK, end = i + block_len(n, b);
        double start = run;

        if (s->block[b] <= 0)
            continue;
        if (start + s->block[b] <= bar && b + 1 < n_blocks(n)) {
            run = start + s->block[b];
            /* In case rounding leaves the rest empty. */
            for (uint32_t j = end; j-- > i;)
                if (s->p[j] > 0) {
                    last = (int32_t)j;
                    break;
                }
            continue;
        }
        for (; i < end; i++) {
            if (s->p[i] <= 0)
                continue;
            run += s->p[i];
            last = (int32_t)i;
            if (run > bar)
                return last;
        }
    }
    return last;
}

/* ---- Operations ---------------------------------------------------------- */

static const char *filter_check(const struct seam_filter *f)
{
    if (!f->temperature || !f->top_p || !f->min_p || !f->top_k || !f->seed ||
        !f->counter)
        return "the filter lacks an array";
    if (f->bias_start && (!f->bias_id || !f->bias_div || !f->bias_add))
        return "the filter's bias lacks an array";
    return f->mask && !f->mask_row ? "the filter's mask lacks its rows" : NULL;
}

const char *sampler_check_sample(const struct seam_sample *a, uint32_t vocab)
{
    uint32_t n = (uint32_t)a->logits.shape[1];

    if (!plug_is_rows(&a->logits, SEAM_F32, 4, a->n, n) || !n || n > vocab)
        return "logits are no [n, vocab] F32";
    if (!a->token || a->n_top > 32 ||
        (a->n_top && (!a->top_id || !a->top_logprob)))
        return "an output is missing";
    return filter_check(&a->filter);
}

const char *sampler_check_verify(const struct seam_verify *a, uint32_t vocab)
{
    const struct seam_tensor *l = &a->logits;

    if (l->rank != 3 || l->dtype != SEAM_F32 || !l->data ||
        l->shape[0] != a->n_seqs || l->shape[1] != a->window || !a->window ||
        l->shape[2] < 1 || l->shape[2] > vocab)
        return "logits are no [n_seqs, window, vocab] F32";
    if (!a->kept || !a->next || !a->n_draft || (a->window > 1 && !a->draft) ||
        (a->q_width && (!a->q || !a->q_id)))
        return "an array is missing";
    for (uint32_t i = 0; i < a->n_seqs; i++)
        if (a->n_draft[i] < 0 || (uint32_t)a->n_draft[i] >= a->window)
            return "more drafts than the window holds";
    return filter_check(&a->filter);
}

/* log softmax of the unfiltered logits. */
static void report(const struct kern *k, struct sampler *s,
                   const struct seam_sample *a, uint32_t r, const float *logit,
                   uint32_t n)
{
    int32_t *id = a->top_id + (uint64_t)r * a->n_top;
    float *lp = a->top_logprob + (uint64_t)r * a->n_top;
    uint32_t have = 0;
    double lse, sum = 0;
    float top;

    block_max(k, s, logit, n);
    top = k->max(s->block, n_blocks(n));
    memcpy(s->p, logit, n * sizeof *s->p);
    for (uint32_t b = 0; b < n_blocks(n); b++)
        sum += k->exp_sum(s->p + b * SAMPLER_BLOCK, block_len(n, b), 1, top);
    lse = top + log(sum);
    if (a->logprob)
        a->logprob[r] =
            a->token[r] < 0 ? -INFINITY : (float)(logit[a->token[r]] - lse);
    for (uint32_t b = 0; a->n_top && b < n_blocks(n); b++) {
        uint32_t i = b * SAMPLER_BLOCK, end = i + block_len(n, b);

        if (have == a->n_top && s->block[b] <= logit[id[have - 1]])
            continue;
        for (; i < end; i++) {
            uint32_t at;

            if (have == a->n_top && logit[i] <= logit[id[have - 1]])
                continue;
            at = have < a->n_top ? have++ : have - 1;
            for (; at > 0 && logit[i] > logit[id[at - 1]]; at--)
                id[at] = id[at - 1];
            id[at] = (int32_t)i;
        }
    }
    for (uint32_t j = 0; j < a->n_top; j++) {
        if (j >= have) /* the vocabulary is out */
            id[j] = -1;
        lp[j] = j < have ? (float)(logit[id[j]] - lse) : -INFINITY;
    }
}

void sampler_row(const struct kern *k, struct sampler *s,
                 const struct seam_sample *a, uint32_t r)
{
    const float *logit = plug_row(&a->logits, r);
    uint32_t n = (uint32_t)a->logits.shape[1];
    int32_t sure;

    a->token[r] = -1;
    if (distribution(k, s, logit, n, &a->filter, r, &sure))
        a->token[r] =
            sure >= 0
                ? sure
                : pick(k, s, n,
                       seam_draw(a->filter.seed[r], a->filter.counter[r]).u[0]);
    if (!a->logprob && !a->n_top)
        return;
    if (all_finite(k, logit, n)) {
        report(k, s, a, r, logit, n);
        return;
    }
    if (a->logprob)
        a->logprob[r] = NAN;
    for (uint32_t j = 0; j < a->n_top; j++) {
        a->top_id[(uint64_t)r * a->n_top + j] = -1;
        a->top_logprob[(uint64_t)r * a->n_top + j] = NAN;
    }
}

static double q_of(int32_t token, const int32_t *id, const float *q,
                   uint32_t width)
{
    for (uint32_t j = 0; j < width; j++)
        if (id[j] == token)
            return q[j];
    return 0;
}

/* Turn p into max(0, p - q) unless that leaves nothing. */
static void residual(const struct kern *k, struct sampler *s, uint32_t n,
                     const int32_t *id, const float *q, uint32_t width,
                     double sum)
{
    double left = 0;

    for (uint32_t c = 0; c < width; c++)
        if (id[c] >= 0 && (uint32_t)id[c] < n) {
            float p = (float)(s->p[id[c]] - q[c] * sum);

            s->p[id[c]] = p > 0 ? p : 0;
        }
    left = total(k, s->p, n);
    if (left > 0)
        return;
    memset(s->p, 0, n * sizeof *s->p);
}

void sampler_sequence(const struct kern *k, struct sampler *s,
                      const struct seam_verify *a, uint32_t i)
{
    uint32_t w = a->window, width = a->q_width;
    uint32_t drafts = (uint32_t)a->n_draft[i], n = (uint32_t)a->logits.shape[2];

    for (uint32_t j = 0;; j++) {
        uint32_t row = i * w + j;
        uint64_t d = (uint64_t)i * (w - 1) + j;
        const float *logit =
            (const float *)((const char *)a->logits.data +
                            i * a->logits.stride[0] + j * a->logits.stride[1]);
        struct seam_draw u =
            seam_draw(a->filter.seed[row], a->filter.counter[row]);
        int32_t x = j < drafts ? a->draft[d] : -1, sure;

        a->kept[i] = (int32_t)j + 1;
        a->next[i] = -1;
        if (!distribution(k, s, logit, n, &a->filter, row, &sure))
            return;
        if (j < drafts && width) {
            const int32_t *id = a->q_id + d * width;
            const float *q = a->q + d * width;
            double sum;

            if (sure >= 0) {
                memset(s->p, 0, n * sizeof *s->p);
                s->p[sure] = 1;
                sure = -1;
            }
            sum = total(k, s->p, n);
            if (x >= 0 && (uint32_t)x < n &&
                u.u[1] * q_of(x, id, q, width) < s->p[x] / sum)
                continue;
            residual(k, s, n, id, q, width, sum);
            if (!(total(k, s->p, n) > 0) && /* p = q but for rounding */
                distribution(k, s, logit, n, &a->filter, row, &sure) &&
                sure >= 0) {
                a->next[i] = sure;
                return;
            }
        }
        a->next[i] = sure >= 0 ? sure : pick(k, s, n, u.u[0]);
        if (j >= drafts || width || a->next[i] != x)
            return;
    }
}
