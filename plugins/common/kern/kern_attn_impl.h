/* The kernels of attention and of the residual streams; included by kern_impl.h.
 *
 * Products here have both sides in floats or 16-bit numbers, given row by row:
 * queries with latents, probabilities with latents, rows with the map of the
 * hyper-connections.  What one output is summed from, and in which order,
 * depends on its own row and on nothing else. */

/* ---- Products along k, row by row ---------------------------------------- */

/* y[r][o .. o + nr) = x[r] . w[.], nr a multiple of 4; `live` of the outputs
 * are wanted. */
SIMD_INLINE void rows_tile(uint16_t dtype, uint32_t mr, uint32_t nr,
                           const void *const *w, uint32_t k,
                           const float *const *x, float *const *y, uint32_t o,
                           uint32_t live)
{
    vf a[TILE_R * 4 > 8 ? TILE_R * 4 : 8], b[8];
    uint32_t i = 0;

    UNROLL
    for (uint32_t j = 0; j < mr * nr; j++)
        a[j] = vf_zero();
    for (; i + L <= k; i += L) {
        UNROLL
        for (uint32_t n = 0; n < nr; n++)
            b[n] = w_load(dtype, w[n], i);
        UNROLL
        for (uint32_t r = 0; r < mr; r++) {
            vf c = vf_load(x[r] + i);

            UNROLL
            for (uint32_t n = 0; n < nr; n++)
                a[r * nr + n] = vf_fma(c, b[n], a[r * nr + n]);
        }
    }
    if (i < k) {
        UNROLL
        for (uint32_t n = 0; n < nr; n++)
            b[n] = w_load_part(dtype, w[n], i, k - i);
        UNROLL
        for (uint32_t r = 0; r < mr; r++) {
            vf c = vf_load_part(x[r] + i, k - i);

            UNROLL
            for (uint32_t n = 0; n < nr; n++)
                a[r * nr + n] = vf_fma(c, b[n], a[r * nr + n]);
        }
    }
    UNROLL
    for (uint32_t r = 0; r < mr; r++) {
        float sum[8];

        UNROLL
        for (uint32_t n = 0; n < nr; n += 4)
            vf_sum4(a + r * nr + n, sum + n);
        if (live == nr)
            memcpy(y[r] + o, sum, nr * sizeof *sum);
        else
            memcpy(y[r] + o, sum, live * sizeof *sum);
    }
}

/* All n outputs for mr rows: the rows stay in the first-level cache while the
 * weights pass by. */
SIMD_INLINE void rows_all(uint16_t dtype, uint32_t mr, uint32_t nr,
                          const void *const *w, uint32_t n, uint32_t k,
                          const float *const *x, float *const *y)
{
    for (uint32_t o = 0; o < n; o += nr) {
        const void *few[8];
        uint32_t live = n - o < nr ? n - o : nr;

        for (uint32_t j = 0; live < nr && j < nr; j++)
            few[j] = w[o + j < n ? o + j : n - 1];
        rows_tile(dtype, mr, nr, live < nr ? few : w + o, k, x, y, o, live);
    }
}

static void k_dot_rows(uint16_t dtype, const void *const *w, uint32_t n,
                       uint32_t k, const float *const *x, uint32_t m,
                       float *const *y)
{
#define ROWS(dt, mr, nr)                             \
    case mr:                                         \
        rows_all(dt, mr, nr, w, n, k, x + r, y + r); \
        break;
#if L == 16
#define MORE(dt) ROWS(dt, 2, 4) ROWS(dt, 3, 4) ROWS(dt, 4, 4) ROWS(dt, 5, 4)
#elif L == 8
#define MORE(dt) ROWS(dt, 2, 4)
#else
#define MORE(dt)
#endif
#define ANY(dt, least, more)                            \
    case dt:                                            \
        for (uint32_t r = 0, mr; r < m; r += mr) {      \
            mr = tile_rows(m - r);                      \
            mr = mr < (least) ? 1 : mr;                 \
            switch (mr) {                               \
                ROWS(dt, 1, 8) more ROWS(dt, TILE_R, 4) \
            }                                           \
        }                                               \
        break;
    switch (dtype) {
        ANY(SEAM_BF16, 1, MORE(SEAM_BF16))
        ANY(SEAM_F32, 1, MORE(SEAM_F32))
        ANY(SEAM_F16, TILE_R, ) /* rare: two heights are enough */
    default:
        break;
    }
#undef ANY
#undef MORE
#undef ROWS
}

/* ---- Products across rows ------------------------------------------------ */

/* Vectors of columns at one row: so many that each row of w is read in one long
 * piece, as far as registers allow.  I8 comes in groups of columns. */
#if L == 16
#define MIX_U1(dt) ((dt) == SEAM_I8 ? 8 : 16)
#else
#define MIX_U1(dt) 8
#endif
#define MIX_AHEAD 12 /* rows of w that are fetched ahead then                */

/* mr rows of y, nu vectors from column c on, the last with n lanes in use. */
SIMD_INLINE void mix_tile(uint16_t dtype, uint32_t mr, uint32_t nu,
                          const void *const *w, uint32_t n_w, uint32_t c,
                          uint32_t n, const float *const *x, float *const *y,
                          bool add)
{
    vf a[TILE_R * 4], b[16];

    UNROLL
    for (uint32_t r = 0; r < mr; r++)
        UNROLL
    for (uint32_t u = 0; u < nu; u++)
        a[r * nu + u] =
            add ? vf_load_n(y[r] + c + u * L, u + 1 < nu ? L : n) : vf_zero();
    for (uint32_t i = 0; i < n_w; i++) {
        if (nu > 4) {
            const char *p = w[i + MIX_AHEAD < n_w ? i + MIX_AHEAD : i];

            UNROLL
            for (uint32_t u = 0; u < nu * L * w_bytes(dtype); u += 64)
                __builtin_prefetch(p + c * w_bytes(dtype) + u);
        }
        UNROLL
        for (uint32_t u = 0; u < nu; u++)
            b[u] = u + 1 < nu || n == L
                       ? w_load(dtype, w[i], c + u * L)
                       : w_load_part(dtype, w[i], c + u * L, n);
        UNROLL
        for (uint32_t r = 0; r < mr; r++) {
            vf s = vf_set1(x[r][i]);

            UNROLL
            for (uint32_t u = 0; u < nu; u++)
                a[r * nu + u] = vf_fma(s, b[u], a[r * nu + u]);
        }
    }
    UNROLL
    for (uint32_t r = 0; r < mr; r++)
        UNROLL
    for (uint32_t u = 0; u < nu; u++)
        vf_store_n(y[r] + c + u * L, a[r * nu + u], u + 1 < nu ? L : n);
}

/* Some columns for all rows, which share them in the first-level cache.  With
 * `all` there is a tile of every height up to TILE_R; rare dtypes and odd columns
 * do with the highest and the lowest. */
SIMD_INLINE void mix_cols(uint16_t dtype, uint32_t nu, bool all,
                          const void *const *w, uint32_t n_w, uint32_t c,
                          uint32_t n, const float *const *x, uint32_t m,
                          float *const *y, bool add)
{
#define MIX(mr) mix_tile(dtype, mr, nu, w, n_w, c, n, x + r, y + r, add)
    for (uint32_t r = 0, mr; r < m; r += mr) {
        mr = tile_rows(m - r);
        if (mr < TILE_R && !all)
            mr = 1;
        if (mr == TILE_R)
            MIX(TILE_R);
        else if (mr == 1)
            MIX(1);
#if L >= 8
        else if (all && mr == 2)
            MIX(2);
#endif
#if L == 16
        else if (all && mr == 3)
            MIX(3);
        else if (all && mr == 4)
            MIX(4);
        else if (all && mr == 5)
            MIX(5);
#endif
    }
#undef MIX
}

static void k_mix_rows(uint16_t dtype, const void *const *w, uint32_t n_w,
                       uint32_t n, const float *const *x, uint32_t m,
                       float *const *y, bool add)
{
    uint32_t c = 0;

#define MIX(dt, all)                                                          \
    case dt:                                                                  \
        for (; m == 1 && c + MIX_U1(dt) * L <= n; c += MIX_U1(dt) * L)        \
            mix_tile(dt, 1, MIX_U1(dt), w, n_w, c, L, x, y, add);             \
        for (; c + 4 * L <= n; c += 4 * L)                                    \
            mix_cols(dt, 4, all, w, n_w, c, L, x, m, y, add);                 \
        for (; c < n; c += L)                                                 \
            mix_cols(dt, 1, false, w, n_w, c, n - c < L ? n - c : L, x, m, y, \
                     add);                                                    \
        break;

    switch (dtype) {
        MIX(SEAM_BF16, true)
        MIX(SEAM_F16, false)
        MIX(SEAM_F32, true)
        MIX(SEAM_I8, true)
    default:
        break;
    }
#undef MIX
}

#if L == 16
#define POOL_N1 12 /* keys of a tile with one vector of heads                */
#else
#define POOL_N1 8
#endif

/* ---- The indexer --------------------------------------------------------- */

/* nh vectors of heads for np keys, np a multiple of 4; s [np] carries each
 * key's weighted sum over the heads so far, head by lane. */
SIMD_INLINE void pool_tile(uint32_t np, uint32_t nh, const float *const *key,
                           uint32_t k, const float *qt, uint64_t ld,
                           const float *w, uint32_t n, vf *s)
{
    vf a[24];

    UNROLL
    for (uint32_t j = 0; j < np * nh; j++)
        a[j] = vf_zero();
    for (uint32_t i = 0; i < k; i++) {
        vf b[2];

        UNROLL
        for (uint32_t h = 0; h < nh; h++)
            b[h] = vf_load(qt + i * ld + h * L);
        UNROLL
        for (uint32_t p = 0; p < np; p++) {
            vf c = vf_set1(key[p][i]);

            UNROLL
            for (uint32_t h = 0; h < nh; h++)
                a[p * nh + h] = vf_fma(c, b[h], a[p * nh + h]);
        }
    }
    UNROLL
    for (uint32_t p = 0; p < np; p++)
        UNROLL
    for (uint32_t h = 0; h < nh; h++) {
        vf v = vf_zero_below(a[p * nh + h], a[p * nh + h], vf_zero());

        if (h + 1 == nh && n < L) { /* lanes without a head */
            float t[L];

            vf_store(t, v);
            v = vf_load_part(t, n);
        }
        s[p] = vf_fma(v, vf_load_n(w + h * L, h + 1 < nh ? L : n), s[p]);
    }
}

SIMD_INLINE void pool_keys(uint32_t np, const float *const *key, uint32_t live,
                           uint32_t k, const float *qt, uint64_t ld,
                           const float *w, uint32_t n_h, float *out)
{
    vf s[16];
    float sum[16];
    uint32_t h = 0;

    UNROLL
    for (uint32_t p = 0; p < np; p++)
        s[p] = vf_zero();
    for (; np <= 8 && h + 2 * L <= n_h; h += 2 * L)
        pool_tile(np, np <= 8 ? 2 : 1, key, k, qt + h, ld, w + h, L, s);
    for (; h < n_h; h += L)
        pool_tile(np, 1, key, k, qt + h, ld, w + h, n_h - h < L ? n_h - h : L,
                  s);
    UNROLL
    for (uint32_t p = 0; p < np; p += 4)
        vf_sum4(s + p, sum + p);
    memcpy(out, sum, live * sizeof *sum);
}

static void k_pool_scores(const float *const *key, uint32_t n, uint32_t k,
                          const float *qt, uint64_t ld, const float *w,
                          uint32_t n_h, float *out)
{
    const uint32_t step = n_h < 2 * L ? POOL_N1 : 8;

    for (uint32_t p = 0; p < n; p += step) {
        uint32_t live = n - p < step ? n - p : step;
        const float *q[16];

        for (uint32_t j = 0; j < step; j++)
            q[j] = key[p + (j < live ? j : live - 1)];
        if (step == 8)
            pool_keys(8, q, live, k, qt, ld, w, n_h, out + p);
        else
            pool_keys(POOL_N1, q, live, k, qt, ld, w, n_h, out + p);
    }
}

/* ---- Residual streams ---------------------------------------------------- */

SIMD_INLINE void mix_streams(uint32_t n_s, float *X, uint64_t ld,
                             const float *post, const float *comb,
                             const float *y, uint32_t n)
{
    for (uint32_t c = 0; c < n; c += L) {
        uint32_t w = n - c < L ? n - c : L;
        vf x[KERN_STREAMS] = { vf_zero() }, b = vf_load_n(y + c, w);

        UNROLL
        for (uint32_t i = 0; i < n_s; i++)
            x[i] = vf_load_n(X + i * ld + c, w);
        UNROLL
        for (uint32_t j = 0; j < n_s; j++) {
            vf a = vf_mul(vf_set1(post[j]), b);

            UNROLL
            for (uint32_t i = 0; i < n_s; i++)
                a = vf_fma(vf_set1(comb[i * n_s + j]), x[i], a);
            vf_store_n(X + j * ld + c, a, w);
        }
    }
}

static void k_streams_mix(float *X, uint64_t ld, uint32_t n_s,
                          const float *post, const float *comb, const float *y,
                          uint32_t n)
{
    if (n_s == 4)
        mix_streams(4, X, ld, post, comb, y, n);
    else
        mix_streams(n_s, X, ld, post, comb, y, n);
}

static void k_streams_read(const float *X, uint64_t ld, uint32_t n_s,
                           const float *pre, uint32_t n, float *out)
{
    for (uint32_t c = 0; c < n; c += L) {
        uint32_t w = n - c < L ? n - c : L;
        vf a = vf_zero();

        for (uint32_t j = 0; j < n_s; j++)
            a = vf_fma(vf_set1(pre[j]), vf_load_n(X + j * ld + c, w), a);
        vf_store_n(out + c, a, w);
    }
}

/* ---- KDA ----------------------------------------------------------------- */

static void k_conv(const float *w, uint64_t ldw, const float *const *u,
                   uint32_t taps, uint32_t n, float *y)
{
    for (uint32_t c = 0; c < n; c += L) {
        uint32_t l = n - c < L ? n - c : L;
        vf a = vf_zero();

        for (uint32_t j = 0; j < taps; j++)
            a = vf_fma(vf_load_n(w + j * ldw + c, l), vf_load_n(u[j] + c, l),
                       a);
        vf_store_n(y + c, vf_mul(a, vf_sigmoid(a)), l);
    }
}

static void k_decay(float *f, const float *bias, float a, float lb, uint32_t n)
{
    const vf va = vf_set1(a), vl = vf_set1(lb);

#define DECAY(v, b) vf_exp(vf_mul(vl, vf_sigmoid(vf_mul(va, vf_add(v, b)))))
    EACH(f, DECAY(vf_load(f + i), vf_load(bias + i)),
         DECAY(vf_load_part(f + i, c), vf_load_part(bias + i, c)));
#undef DECAY
}

static void k_anchor(const float *g, uint32_t n, float *D, float *q, float *k,
                     float *key)
{
    for (uint32_t d = 0; d < n; d += L) {
        uint32_t l = n - d < L ? n - d : L;
        vf D1 = vf_mul(vf_load_n(D + d, l), vf_load_n(g + d, l));
        vf k1 = vf_load_n(k + d, l);

        vf_store_n(D + d, D1, l);
        vf_store_n(q + d, vf_mul(vf_load_n(q + d, l), D1), l);
        vf_store_n(key + d, vf_div(k1, D1), l);
        vf_store_n(k + d, vf_mul(k1, D1), l);
    }
}

/* Tokens whose sums with S fit into registers beside four vectors of it. */
#if L == 16
#define DELTA_T 3
#else
#define DELTA_T 1
#endif

/* nt tokens for the nu vectors of value columns from e on, the last with w lanes
 * in use: what S gives to all of them, then what the log gives to each.  One
 * stream is not read as fast as memory could, hence next: for one token, beside
 * which there is nothing else to do. */
SIMD_INLINE void delta_tile(uint32_t nu, uint32_t nt, const float *S,
                            uint32_t nk, uint32_t nv,
                            const struct kern_delta *t, uint32_t i,
                            float *delta, uint64_t ld, uint32_t e, uint32_t w,
                            const float *next)
{
    vf p[DELTA_T * 4], o[DELTA_T * 4], s[4];

    UNROLL
    for (uint32_t j = 0; j < nt * nu; j++)
        p[j] = o[j] = vf_zero();
    S += e;
    delta += e;
    for (uint32_t d = 0; d < nk; d++, S += nv) {
        UNROLL
        for (uint32_t u = 0; u < nu; u++) {
            s[u] = vf_load_n(S + u * L, u + 1 < nu ? L : w);
            if (nt == 1 && next)
                __builtin_prefetch(next + (uint64_t)d * nv + e + u * L, 0, 2);
        }
        UNROLL
        for (uint32_t j = 0; j < nt; j++) {
            vf k = vf_set1(t[j].k[d]), q = vf_set1(t[j].q[d]);

            UNROLL
            for (uint32_t u = 0; u < nu; u++) {
                p[j * nu + u] = vf_fma(k, s[u], p[j * nu + u]);
                o[j * nu + u] = vf_fma(q, s[u], o[j * nu + u]);
            }
        }
    }
    UNROLL
    for (uint32_t j = 0; j < nt; j++) {
        vf beta = vf_set1(t[j].beta);
        uint32_t m = 0;

        UNROLL
        for (uint32_t u = 0; u < nu; u++)
            p[j * nu + u] =
                vf_sub(vf_load_n(t[j].v + e + u * L, u + 1 < nu ? L : w),
                       p[j * nu + u]);
        for (; m < i + j; m++) {
            vf ma = vf_set1(-t[j].a[m]), b = vf_set1(t[j].b[m]);

            UNROLL
            for (uint32_t u = 0; u < nu; u++) {
                vf x = vf_load_n(delta + m * ld + u * L, u + 1 < nu ? L : w);

                p[j * nu + u] = vf_fma(ma, x, p[j * nu + u]);
                o[j * nu + u] = vf_fma(b, x, o[j * nu + u]);
            }
        }
        UNROLL
        for (uint32_t u = 0; u < nu; u++) {
            uint32_t l = u + 1 < nu ? L : w;
            vf x = vf_mul(beta, p[j * nu + u]);

            vf_store_n(delta + m * ld + u * L, x, l);
            vf_store_n(t[j].v + e + u * L,
                       vf_fma(vf_set1(t[j].b[m]), x, o[j * nu + u]), l);
        }
    }
}

SIMD_INLINE void delta_cols(uint32_t nu, const float *S, uint32_t nk,
                            uint32_t nv, const struct kern_delta *t, uint32_t i,
                            uint32_t n, float *delta, uint64_t ld, uint32_t e,
                            uint32_t w, const float *next)
{
    uint32_t j = 0;

    next = n == 1 ? next : NULL;
    for (; j + DELTA_T <= n; j += DELTA_T)
        delta_tile(nu, DELTA_T, S, nk, nv, t + j, i + j, delta, ld, e, w, next);
#if DELTA_T > 1
    if (n - j == 2)
        delta_tile(nu, 2, S, nk, nv, t + j, i + j, delta, ld, e, w, next);
    if (n - j == 1)
        delta_tile(nu, 1, S, nk, nv, t + j, i + j, delta, ld, e, w, next);
#endif
}

static void k_delta(const float *S, uint32_t nk, uint32_t nv,
                    const struct kern_delta *t, uint32_t i, uint32_t n,
                    float *delta, uint64_t ld, const float *next)
{
    uint32_t e = 0;

    for (; e + 4 * L <= nv; e += 4 * L)
        delta_cols(4, S, nk, nv, t, i, n, delta, ld, e, L, next);
    for (; e < nv; e += L)
        delta_cols(1, S, nk, nv, t, i, n, delta, ld, e, nv - e < L ? nv - e : L,
                   next);
}

/* Columns from e on; nc > 0 is n, known when compiled. */
SIMD_INLINE void fold_cols(uint32_t nu, uint32_t nc, const float *S,
                           uint32_t nk, uint32_t nv, const float *D,
                           const float *key, const float *delta, uint64_t ld,
                           uint32_t n, float *T, uint32_t e, uint32_t w)
{
    vf x[KERN_CHUNK * 2];

    n = nc ? nc : n;
    for (uint32_t j = 0; j < n; j++)
        UNROLL
    for (uint32_t u = 0; u < nu; u++)
        x[j * nu + u] =
            vf_load_n(delta + j * ld + e + u * L, u + 1 < nu ? L : w);
    for (uint32_t d = 0; d < nk; d++)
        UNROLL
    for (uint32_t u = 0; u < nu; u++) {
        uint32_t l = u + 1 < nu ? L : w;
        uint64_t at = (uint64_t)d * nv + e + u * L;
        vf s = vf_load_n(S + at, l);

        for (uint32_t j = 0; j < n; j++)
            s = vf_fma(vf_set1(key[j * nk + d]), x[j * nu + u], s);
        vf_store_n(T + at, vf_mul(vf_set1(D[d]), s), l);
    }
}

static void k_fold(const float *S, uint32_t nk, uint32_t nv, const float *D,
                   const float *key, const float *delta, uint64_t ld,
                   uint32_t n, float *T)
{
    uint32_t e = 0;

    for (; n == KERN_CHUNK && L >= 8 && e + 2 * L <= nv; e += 2 * L)
        fold_cols(2, KERN_CHUNK, S, nk, nv, D, key, delta, ld, n, T, e, L);
    for (; e < nv; e += L)
        fold_cols(1, 0, S, nk, nv, D, key, delta, ld, n, T, e,
                  nv - e < L ? nv - e : L);
}

static void k_gated(const float *x, float s, const float *w, const float *gate,
                    uint32_t n, float *y)
{
    const vf vs = vf_set1(s);

    EACH(y,
         vf_mul(vf_mul(vf_mul(vf_load(x + i), vs), vf_load(w + i)),
                vf_sigmoid(vf_load(gate + i))),
         vf_mul(
             vf_mul(vf_mul(vf_load_part(x + i, c), vs), vf_load_part(w + i, c)),
             vf_sigmoid(vf_load_part(gate + i, c))));
}
