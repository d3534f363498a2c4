/* From logits to tokens, as seam_filter and rng.h define it.
 *
 * A row goes through: bias and mask on the logits; temperature and softmax;
 * then top_k, top_p and min_p, each over what the one before left, most likely
 * first and of equals the smaller id first.  What is left is not renormalised:
 * draws are scaled by its sum instead.  Temperature 0 leaves the most likely
 * token alone.  A row with a logit that is not finite, or where nothing is
 * allowed, answers -1. */
#include "sample.h"

#include <math.h>
#include <stdbool.h>

#include "plugin_util.h"
#include "rng.h"

/* ---- Order --------------------------------------------------------------- */

static bool before(const double *p, int32_t a, int32_t b)
{
    return p[a] > p[b] || (p[a] == p[b] && a < b);
}

/* Let order[i] sink until no child comes after it (a heap whose root is last
 * in the order). */
static void sift(const double *p, int32_t *order, uint32_t i, uint32_t n)
{
    for (;;) {
        uint32_t c = 2 * i + 1;
        int32_t t;

        if (c >= n)
            return;
        if (c + 1 < n && before(p, order[c], order[c + 1]))
            c++;
        if (!before(p, order[i], order[c]))
            return;
        t = order[i];
        order[i] = order[c];
        order[c] = t;
        i = c;
    }
}

/* Heap sort: qsort may allocate, and nothing may be allocated here. */
static void sort(const double *p, int32_t *order, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        order[i] = (int32_t)i;
    for (uint32_t i = n / 2; i-- > 0;)
        sift(p, order, i, n);
    for (uint32_t end = n; end > 1; end--) {
        int32_t t = order[0];

        order[0] = order[end - 1];
        order[end - 1] = t;
        sift(p, order, 0, end - 1);
    }
}

/* The most likely id, the first of equals; -1 when nothing is above -inf. */
static int32_t argmax(const double *v, uint32_t n)
{
    int32_t best = -1;

    for (uint32_t i = 0; i < n; i++)
        if (v[i] > -INFINITY && (best < 0 || v[i] > v[best]))
            best = (int32_t)i;
    return best;
}

/* ---- Filter -------------------------------------------------------------- */

static bool all_finite(const float *l, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!isfinite(l[i]))
            return false;
    return true;
}

/* s->p = logits after bias and mask. */
static void allow(struct sampler *s, const float *logit, uint32_t vocab,
                  const struct seam_filter *f, uint32_t row)
{
    double *l = s->p;

    for (uint32_t i = 0; i < vocab; i++)
        l[i] = logit[i];
    for (int32_t j = f->bias_start ? f->bias_start[row] : 0;
         f->bias_start && j < f->bias_start[row + 1]; j++) {
        int32_t id = f->bias_id[j];

        if (id >= 0 && (uint32_t)id < vocab)
            l[id] =
                (l[id] > 0 ? l[id] / f->bias_div[j] : l[id] * f->bias_div[j]) +
                f->bias_add[j];
    }
    if (f->mask && f->mask_row[row] >= 0) {
        const uint32_t *m =
            f->mask + (uint64_t)f->mask_row[row] * ((vocab + 31) / 32);

        for (uint32_t i = 0; i < vocab; i++)
            if (!(m[i / 32] >> i % 32 & 1))
                l[i] = -INFINITY;
    }
}

/* Everything after the first n of order gets probability 0. */
static void cut(struct sampler *s, uint32_t n, uint32_t vocab)
{
    for (uint32_t i = n; i < vocab; i++)
        s->p[s->order[i]] = 0;
}

/* s->p becomes the distribution of row `row`, up to a factor; 0 for what is
 * filtered out.  Returns false when there is none. */
static bool distribution(struct sampler *s, const float *logit, uint32_t vocab,
                         const struct seam_filter *f, uint32_t row)
{
    double *p = s->p, top;
    int32_t best;
    uint32_t n = vocab;

    if (!all_finite(logit, vocab))
        return false;
    allow(s, logit, vocab, f, row);
    best = argmax(p, vocab);
    if (best < 0 || !(p[best] < INFINITY))
        return false;
    top = p[best];
    if (f->temperature[row] <= 0) {
        for (uint32_t i = 0; i < vocab; i++)
            p[i] = i == (uint32_t)best;
        return true;
    }
    for (uint32_t i = 0; i < vocab; i++)
        p[i] = exp((p[i] - top) / f->temperature[row]);
    if (f->top_k[row] > 0 || f->top_p[row] < 1) {
        sort(p, s->order, vocab);
        if (f->top_k[row] > 0 && (uint32_t)f->top_k[row] < n)
            cut(s, n = (uint32_t)f->top_k[row], vocab);
        if (f->top_p[row] < 1) {
            uint32_t i = 0;
            double run = 0, sum = 0;

            for (uint32_t j = 0; j < n; j++)
                sum += p[s->order[j]];
            do /* the smallest head whose share reaches top_p */
                run += p[s->order[i++]];
            while (i < n && run < f->top_p[row] * sum);
            cut(s, i, vocab);
        }
    }
    /* The most likely token has p = 1. */
    for (uint32_t i = 0; f->min_p[row] > 0 && i < vocab; i++)
        if (p[i] < f->min_p[row])
            p[i] = 0;
    return true;
}

static double total(const double *p, uint32_t n)
{
    double sum = 0;

    for (uint32_t i = 0; i < n; i++)
        sum += p[i];
    return sum;
}

/* The first id at which the running sum exceeds u times the total. */
static int32_t pick(const double *p, uint32_t n, double u)
{
    double bar = u * total(p, n), run = 0;
    int32_t last = -1;

    for (uint32_t i = 0; i < n; i++) {
        if (p[i] <= 0)
            continue;
        run += p[i];
        last = (int32_t)i;
        if (run > bar)
            break;
    }
    return last; /* rounding may leave run at bar: the last possible one */
}

/* ---- Operations ---------------------------------------------------------- */

static int32_t filter_check(const struct seam_filter *f)
{
    return !f->temperature || !f->top_p || !f->min_p || !f->top_k || !f->seed ||
           !f->counter ||
           (f->bias_start && (!f->bias_id || !f->bias_div || !f->bias_add)) ||
           (f->mask && !f->mask_row);
}

/* log softmax of the unfiltered logits: what is reported. */
static void report(const struct seam_sample *a, struct sampler *s, uint32_t r,
                   const float *logit, uint32_t vocab)
{
    double top = -INFINITY, sum = 0, lse;

    for (uint32_t i = 0; i < vocab; i++)
        top = fmax(top, logit[i]);
    for (uint32_t i = 0; i < vocab; i++)
        sum += exp(logit[i] - top);
    lse = top + log(sum);
    if (a->logprob)
        a->logprob[r] =
            a->token[r] < 0 ? -INFINITY : (float)(logit[a->token[r]] - lse);
    for (uint32_t i = 0; i < vocab; i++)
        s->p[i] = logit[i];
    for (uint32_t k = 0; k < a->n_top; k++) {
        int32_t id = argmax(s->p, vocab);

        a->top_id[r * a->n_top + k] = id; /* -1 when the vocabulary is out */
        a->top_logprob[r * a->n_top + k] =
            id < 0 ? -INFINITY : (float)(logit[id] - lse);
        if (id >= 0)
            s->p[id] = -INFINITY;
    }
}

int sampler_sample(struct sampler *s, const struct seam_sample *a,
                   struct seam_error *err)
{
    uint32_t vocab = (uint32_t)a->logits.shape[1];

    if (!plug_is_rows(&a->logits, SEAM_F32, 4, a->n, vocab) || !vocab ||
        vocab > s->vocab || a->n_top > 32 || !a->token ||
        (a->n_top && (!a->top_id || !a->top_logprob)) ||
        filter_check(&a->filter))
        return plug_fail(err, SEAM_EINVAL,
                         "cpu_ref: sample of [%lld, %u], "
                         "expected %u rows of at most %u F32",
                         (long long)a->logits.shape[0], vocab, a->n, s->vocab);
    for (uint32_t r = 0; r < a->n; r++) {
        const float *logit = plug_row(&a->logits, r);
        bool ok = distribution(s, logit, vocab, &a->filter, r);

        a->token[r] =
            ok ? pick(s->p, vocab,
                      seam_draw(a->filter.seed[r], a->filter.counter[r]).u[0])
               : -1;
        if (all_finite(logit, vocab)) {
            report(a, s, r, logit, vocab);
            continue;
        }
        if (a->logprob)
            a->logprob[r] = NAN;
        for (uint32_t k = 0; k < a->n_top; k++) {
            a->top_id[r * a->n_top + k] = -1;
            a->top_logprob[r * a->n_top + k] = NAN;
        }
    }
    return SEAM_OK;
}

static double q_of(int32_t token, const int32_t *id, const float *q,
                   uint32_t width)
{
    for (uint32_t j = 0; j < width; j++)
        if (id[j] == token)
            return q[j];
    return 0;
}

/* One sequence: walk its rows until a draft falls. */
static void verify_one(struct sampler *s, const struct seam_verify *a,
                       uint32_t i, uint32_t vocab)
{
    uint32_t w = a->window, k = a->q_width;
    uint32_t drafts = (uint32_t)a->n_draft[i];

    for (uint32_t j = 0;; j++) {
        uint32_t row = i * w + j;
        uint64_t d = (uint64_t)i * (w - 1) + j;
        const float *logit =
            (const float *)((const char *)a->logits.data +
                            i * a->logits.stride[0] + j * a->logits.stride[1]);
        struct seam_draw u =
            seam_draw(a->filter.seed[row], a->filter.counter[row]);
        int32_t x = j < drafts ? a->draft[d] : -1;

        a->kept[i] = (int32_t)j + 1;
        a->next[i] = -1;
        if (!distribution(s, logit, vocab, &a->filter, row))
            return;
        if (j < drafts && k) {
            const int32_t *id = a->q_id + d * k;
            const float *q = a->q + d * k;
            double sum = total(s->p, vocab);

            if (x >= 0 && (uint32_t)x < vocab &&
                u.u[1] * q_of(x, id, q, k) < s->p[x] / sum)
                continue;
            for (uint32_t c = 0; c < k; c++)
                if (id[c] >= 0 && (uint32_t)id[c] < vocab)
                    s->p[id[c]] = fmax(0, s->p[id[c]] - q[c] * sum);
            if (!(total(s->p, vocab) > 0)) /* p = q but for rounding */
                distribution(s, logit, vocab, &a->filter, row);
        }
        a->next[i] = pick(s->p, vocab, u.u[0]);
        if (j >= drafts || k || a->next[i] != x)
            return;
    }
}

int sampler_verify(struct sampler *s, const struct seam_verify *a,
                   struct seam_error *err)
{
    const struct seam_tensor *l = &a->logits;
    uint32_t vocab = (uint32_t)l->shape[2];

    if (l->rank != 3 || l->dtype != SEAM_F32 || !l->data ||
        l->shape[0] != a->n_seqs || l->shape[1] != a->window || !a->window ||
        !vocab || vocab > s->vocab || !a->kept || !a->next ||
        filter_check(&a->filter) || !a->n_draft ||
        (a->window > 1 && !a->draft) || (a->q_width && (!a->q || !a->q_id)))
        return plug_fail(err, SEAM_EINVAL,
                         "cpu_ref: verify of [%lld, %lld, "
                         "%lld], expected [%u, %u, <= %u] F32",
                         (long long)l->shape[0], (long long)l->shape[1],
                         (long long)l->shape[2], a->n_seqs, a->window,
                         s->vocab);
    for (uint32_t i = 0; i < a->n_seqs; i++)
        if (a->n_draft[i] < 0 || (uint32_t)a->n_draft[i] >= a->window)
            return plug_fail(err, SEAM_EINVAL,
                             "cpu_ref: verify of %d drafts "
                             "in a window of %u",
                             a->n_draft[i], a->window);
    for (uint32_t i = 0; i < a->n_seqs; i++)
        verify_one(s, a, i, vocab);
    return SEAM_OK;
}
