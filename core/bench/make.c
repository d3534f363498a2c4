#include "core/bench/make.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/buf.h"
#include "core/bench/shape.h"
#include "core/checkpoint/inventory.h"
#include "core/checkpoint/safetensors.h"
#include "core/engine/pool.h"

#define CHUNK_BYTES (1u << 20)
#define GROUP       128 /* inputs that share a scale                          */

/* How a tensor is filled. */
enum fill {
    FILL_NORMAL, /* a BF16 value of standard deviation `a`                    */
    FILL_AROUND, /* BF16 or F32: uniform in a +- b                            */
    FILL_WORDS,  /* random bits: int4 weights                                 */
    FILL_ZEROS,  /* the zero point 8, which is stored as 7                    */
    FILL_SCALES  /* F16 scales around `a`                                     */
};

struct part {
    char name[112];
    uint64_t from, bytes; /* in the data of the shard                         */
    int64_t shape[3];
    uint16_t rank, dtype;
    enum fill fill;
    float a, b;
};

struct chunk {
    uint32_t part;
    uint64_t from, bytes; /* in the part                                      */
};

struct make {
    const struct seam_model_config *m;
    struct part *part;
    uint32_t n_parts, cap;
    struct chunk *chunk;
    uint32_t n_chunks;
    uint64_t data; /* bytes of all parts                                      */
    struct seam_bench_made made;
    uint64_t seed, header;
    char *buffer; /* [workers][CHUNK_BYTES]                                   */
    int fd;
    _Atomic int why; /* errno of a write that failed                          */
    bool failed;     /* out of memory while adding                            */
};

/* ---- What there is to write ---------------------------------------------- */

static struct part *make_add(struct make *k, const char *name, const char *end,
                             uint16_t dtype, uint16_t rank, int64_t a,
                             int64_t b, int64_t c)
{
    struct part *p;

    if (k->n_parts == k->cap) {
        uint32_t cap = k->cap ? 2 * k->cap : 1024;
        struct part *more = realloc(k->part, cap * sizeof *more);

        if (!more) {
            k->failed = true;
            return NULL;
        }
        k->part = more;
        k->cap = cap;
    }
    p = &k->part[k->n_parts++];
    *p = (struct part){ .dtype = dtype, .rank = rank, .shape = { a, b, c } };
    snprintf(p->name, sizeof p->name, "%s%s", name, end);
    p->bytes = seam_dtype_bits(dtype) / 8;
    for (int i = 0; i < rank; i++)
        p->bytes *= (uint64_t)p->shape[i];
    return p;
}

static bool make_ends(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n >= m && !strcmp(name + n - m, end);
}

/* Weights that are not matrices, by what their names end with.  Whatever is
 * not listed is a norm's weight, near 1. */
static const struct plain {
    const char *end;
    uint16_t dtype;
    float mid, half;
} PLAIN[] = {
    /* The gate's logit is around -3: a channel forgets slowly. */
    { ".A_log", SEAM_F32, 0, 0.3f },
    { ".dt_bias", SEAM_F32, -3, 1.5f },
    { ".k_norm.bias", SEAM_BF16, 0, 0.1f },
    { "_compress_ape", SEAM_BF16, 0, 0.3f },
    { ".e_score_correction_bias", SEAM_F32, 0, 0.01f },
    { "hc_attn_base", SEAM_F32, 0, 0.5f },
    { "hc_ffn_base", SEAM_F32, 0, 0.5f },
    { "hc_attn_scale", SEAM_F32, 0.5f, 0.1f },
    { "hc_ffn_scale", SEAM_F32, 0.5f, 0.1f },
    { "conv1d.weight", SEAM_BF16, 0, 0.8f },
};

static void make_plain(struct make *k, const struct seam_expected *e)
{
    uint16_t dtype = SEAM_BF16;
    float mid = 1, half = 0.1f;
    struct part *p;

    for (size_t i = 0; i < sizeof PLAIN / sizeof *PLAIN; i++)
        if (make_ends(e->name, PLAIN[i].end)) {
            dtype = PLAIN[i].dtype;
            mid = PLAIN[i].mid;
            half = PLAIN[i].half;
        }
    p = make_add(k, e->name, "", dtype, e->rank, e->shape[0], e->shape[1],
                 e->shape[2]);
    if (!p)
        return;
    p->fill = FILL_AROUND;
    p->a = mid;
    p->b = half;
}

/* A matrix of n_in inputs whose outputs are of the order of its inputs. */
static void make_matrix(struct make *k, const char *name, const char *end,
                        int64_t n_out, int64_t n_in, bool is_embedding)
{
    struct part *p = make_add(k, name, end, SEAM_BF16, 2, n_out, n_in, 0);

    if (!p)
        return;
    p->fill = FILL_NORMAL;
    p->a = is_embedding ? 1 : 1 / sqrtf((float)n_in);
}

/* Codes are uniform in 0..15 around the zero point 8: deviation 4.6. */
static void make_int4(struct make *k, const char *name, int64_t n_out,
                      int64_t n_in)
{
    struct part *p;

    p = make_add(k, name, ".qweight", SEAM_I32, 2, n_in / 8, n_out, 0);
    if (p)
        p->fill = FILL_WORDS;
    p = make_add(k, name, ".qzeros", SEAM_I32, 2, n_in / GROUP, n_out / 8, 0);
    if (p)
        p->fill = FILL_ZEROS;
    p = make_add(k, name, ".scales", SEAM_F16, 2, n_in / GROUP, n_out, 0);
    if (!p)
        return;
    p->fill = FILL_SCALES;
    p->a = 1 / (4.6f * sqrtf((float)n_in));
}

static int make_expected(void *ctx, const struct seam_expected *e)
{
    struct make *k = ctx;
    const struct seam_model_config *m = k->m;
    bool is_expert = strstr(e->name, ".mlp.experts.");
    bool is_embedding = strstr(e->name, "embed_tokens");
    uint64_t n = 1;

    for (int i = 0; i < e->rank; i++)
        n *= (uint64_t)e->shape[i];
    k->made.n_params += n;
    if (is_expert) /* all experts are alike */
        n = strstr(e->name, ".mlp.experts.0.") ? n * m->experts_per_token : 0;
    k->made.n_active += is_embedding ? 0 : n;
    if (is_expert)
        make_int4(k, e->name, e->shape[0], e->shape[1]);
    else if (e->cls == SEAM_CLASS_LINEAR)
        make_matrix(k, e->name, ".weight", e->shape[0], e->shape[1], false);
    else if (e->rank == 2 && !make_ends(e->name, "_compress_ape"))
        make_matrix(k, e->name, "", e->shape[0], e->shape[1], is_embedding);
    else
        make_plain(k, e);
    return k->failed ? SEAM_ENOMEM : 0;
}

/* Tensors follow each other without gaps, so those that would leave the next
 * one off a cache line come last. */
static void make_place(struct make *k)
{
    for (int odd = 0; odd < 2; odd++)
        for (uint32_t i = 0; i < k->n_parts; i++) {
            struct part *p = &k->part[i];

            if ((p->bytes % 64 != 0) != odd)
                continue;
            p->from = k->data;
            k->data += p->bytes;
        }
}

static int make_chunks(struct make *k, struct seam_error *err)
{
    uint64_t n = 0;

    make_place(k);
    for (uint32_t i = 0; i < k->n_parts; i++)
        n += (k->part[i].bytes + CHUNK_BYTES - 1) / CHUNK_BYTES;
    k->chunk = calloc(n + 1, sizeof *k->chunk);
    if (!k->chunk)
        return seam_fail(err, SEAM_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < k->n_parts; i++)
        for (uint64_t at = 0; at < k->part[i].bytes; at += CHUNK_BYTES) {
            uint64_t left = k->part[i].bytes - at;

            k->chunk[k->n_chunks++] =
                (struct chunk){ i, at,
                                left < CHUNK_BYTES ? left : CHUNK_BYTES };
        }
    return 0;
}

/* ---- Numbers ------------------------------------------------------------- */

static uint64_t mix64(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Eight generators side by side, so that the compiler can use vectors. */
#define LANES 8

static void random_words(uint64_t seed, uint32_t *to, size_t n)
{
    uint32_t s[LANES];

    for (int i = 0; i < LANES; i++)
        s[i] = (uint32_t)mix64(seed + (uint64_t)i * 0x9e3779b97f4a7c15u) | 1;
    for (size_t at = 0; at < n; at += LANES)
        for (int i = 0; i < LANES; i++) {
            uint32_t x = s[i];

            x ^= x << 13;
            x ^= x >> 17;
            x ^= x << 5;
            s[i] = x;
            to[at + (size_t)i] = x;
        }
}

static uint32_t float_bits(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof u);
    return u;
}

/* In place: word i becomes two BF16 values, each the sum of two uniform bytes
 * around zero, of standard deviation `std`. */
static void normal_bf16(uint32_t *w, size_t n, float std)
{
    /* The sum of two signed bytes plus 1 has mean 0, deviation 104.5. */
    float scale = std / 104.5f;

    for (size_t i = 0; i < n; i++) {
        int32_t a = (int8_t)w[i] + (int8_t)(w[i] >> 8) + 1;
        int32_t b = (int8_t)(w[i] >> 16) + (int8_t)(w[i] >> 24) + 1;
        uint32_t lo = float_bits((float)a * scale);
        uint32_t hi = float_bits((float)b * scale);

        w[i] = lo >> 16 | (hi & 0xffff0000u);
    }
}

static void around_f32(uint32_t *w, size_t n, float mid, float half)
{
    for (size_t i = 0; i < n; i++)
        w[i] = float_bits(mid + half * (float)(int32_t)w[i] / 2147483648.0f);
}

static void around_bf16(uint32_t *w, size_t n, float mid, float half)
{
    for (size_t i = 0; i < n; i++) {
        float a = (float)(int16_t)w[i] / 32768.0f;
        float b = (float)(int16_t)(w[i] >> 16) / 32768.0f;

        w[i] = float_bits(mid + half * a) >> 16 |
               (float_bits(mid + half * b) & 0xffff0000u);
    }
}

/* The bits of a positive normal half-precision number. */
static uint16_t half_bits(float f)
{
    uint32_t u = float_bits(f) + 0x1000;

    return u < 0x38800000u ? 0x0400 : (uint16_t)((u >> 13) - (112u << 10));
}

/* Sixteen scales of half to one and a half times the mean are spread enough. */
static void scales_f16(uint32_t *w, size_t n, float mean)
{
    uint16_t value[16];

    for (int i = 0; i < 16; i++)
        value[i] = half_bits(mean * (0.5f + (float)i / 15));
    for (size_t i = 0; i < n; i++)
        w[i] = value[w[i] & 15] | (uint32_t)value[w[i] >> 16 & 15] << 16;
}

static void make_fill(const struct make *k, const struct chunk *c, uint32_t *w)
{
    const struct part *p = &k->part[c->part];
    size_t n = (c->bytes + 3) / 4;
    uint64_t seed =
        mix64(k->seed + 0x9e3779b97f4a7c15u * (c->part + 1u)) + c->from;

    if (p->fill == FILL_ZEROS) {
        memset(w, 0x77, n * 4);
        return;
    }
    random_words(seed, w, n);
    if (p->fill == FILL_NORMAL)
        normal_bf16(w, n, p->a);
    else if (p->fill == FILL_SCALES)
        scales_f16(w, n, p->a);
    else if (p->fill == FILL_AROUND && p->dtype == SEAM_F32)
        around_f32(w, n, p->a, p->b);
    else if (p->fill == FILL_AROUND)
        around_bf16(w, n, p->a, p->b);
}

/* ---- Files --------------------------------------------------------------- */

static int write_all(int fd, const char *p, uint64_t n, uint64_t at)
{
    while (n) {
        ssize_t k = pwrite(fd, p, n, (off_t)at);

        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return k < 0 ? errno : EIO;
        p += k;
        at += (uint64_t)k;
        n -= (uint64_t)k;
    }
    return 0;
}

static void make_task(void *arg, uint32_t i, uint32_t worker)
{
    struct make *k = arg;
    const struct chunk *c = &k->chunk[i];
    char *to = k->buffer + (size_t)worker * (CHUNK_BYTES + 64);
    int why;

    if (k->why)
        return;
    make_fill(k, c, (uint32_t *)to);
    why = write_all(k->fd, to, c->bytes,
                    k->header + k->part[c->part].from + c->from);
    if (why)
        k->why = why;
}

static int make_file(const char *dir, const char *name, const char *text,
                     size_t n, int *keep, struct seam_error *err)
{
    char path[4096];
    int fd, why;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return seam_fail_errno(err, SEAM_EINVAL, errno, "%s", path);
    why = write_all(fd, text, n, 0);
    if (!why && keep) {
        *keep = fd;
        return 0;
    }
    close(fd);
    return why ? seam_fail_errno(err, SEAM_EINVAL, why, "%s", path) : 0;
}

static void make_header(struct make *k, struct seam_buf *b)
{
    uint64_t length;
    char prefix[8];

    seam_buf_add(b, "        ", 8);
    seam_buf_str(b, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (uint32_t i = 0; i < k->n_parts; i++) {
        const struct part *p = &k->part[i];

        seam_buf_fmt(b, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", p->name,
                     seam_dtype_name(p->dtype));
        for (int d = 0; d < p->rank; d++)
            seam_buf_fmt(b, "%s%lld", d ? "," : "", (long long)p->shape[d]);
        seam_buf_fmt(b, "],\"data_offsets\":[%llu,%llu]}",
                     (unsigned long long)p->from,
                     (unsigned long long)(p->from + p->bytes));
    }
    seam_buf_str(b, "}");
    while (b->n % 64 && !b->failed)
        seam_buf_str(b, " ");
    length = b->n - 8;
    for (int i = 0; i < 8; i++)
        prefix[i] = (char)(length >> 8 * i);
    if (!b->failed)
        memcpy(b->p, prefix, 8);
}

static int make_shard(struct make *k, const char *dir, struct seam_error *err)
{
    struct seam_pool *pool = NULL;
    struct seam_buf head = { 0 };
    int rc = make_chunks(k, err);

    if (rc)
        return rc;
    make_header(k, &head);
    k->header = head.n;
    k->fd = -1;
    rc = head.failed ? seam_fail(err, SEAM_ENOMEM, "out of memory")
                     : seam_pool_new(&pool, 0, err);
    if (!rc) {
        k->buffer = malloc((size_t)seam_pool_size(pool) * (CHUNK_BYTES + 64));
        rc = k->buffer ? make_file(dir, "model.safetensors", head.p, head.n,
                                   &k->fd, err)
                       : seam_fail(err, SEAM_ENOMEM, "out of memory");
    }
    if (!rc && ftruncate(k->fd, (off_t)(k->header + k->data)))
        k->why = errno;
    if (!rc && !k->why)
        seam_pool_run(pool, k->n_chunks, make_task, k);
    if (!rc && k->why)
        rc = seam_fail_errno(err, SEAM_EINVAL, k->why,
                             "%s/model.safetensors: writing %llu bytes", dir,
                             (unsigned long long)(k->header + k->data));
    if (k->fd >= 0)
        close(k->fd);
    seam_pool_free(pool);
    seam_buf_release(&head);
    return rc;
}

/* ---- A vocabulary -------------------------------------------------------- */

/* The last 36 ids, as in the tokenizers of the family. */
static const struct special {
    const char *piece;
    bool special;
} SPECIAL[36] = {
    { "<|endoftext|>", true },
    { "[MASK]", true },
    { "[gMASK]", true },
    { "[sMASK]", true },
    { "<sop>", true },
    { "<eop>", true },
    { "<|system|>", true },
    { "<|user|>", true },
    { "<|assistant|>", true },
    { "<|observation|>", true },
    { "<|begin_of_image|>", true },
    { "<|end_of_image|>", true },
    { "<|begin_of_video|>", true },
    { "<|end_of_video|>", true },
    { "<|begin_of_audio|>", true },
    { "<|end_of_audio|>", true },
    { "<|begin_of_transcription|>", true },
    { "<|end_of_transcription|>", true },
    { "<|code_prefix|>", true },
    { "<|code_middle|>", true },
    { "<|code_suffix|>", true },
    { "<think>", false },
    { "</think>", false },
    { "<tool_call>", false },
    { "</tool_call>", false },
    { "<tool_response>", false },
    { "</tool_response>", false },
    { "<arg_key>", false },
    { "</arg_key>", false },
    { "<arg_value>", false },
    { "</arg_value>", false },
    { "/nothink", false },
    { "<|begin_of_box|>", false },
    { "<|end_of_box|>", false },
    { "<|image|>", true },
    { "<|video|>", true },
};

#define N_SPECIAL (sizeof SPECIAL / sizeof *SPECIAL)

/* Byte b as tokenizer.json spells it, in UTF-8. */
static const char *byte_spelling(unsigned b, char to[3])
{
    unsigned cp = b, odd = 0;
    bool plain = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;

    for (unsigned i = 0; i < b; i++)
        odd += !((i >= 33 && i <= 126) || (i >= 161 && i <= 172) || i >= 174);
    if (!plain)
        cp = 256 + odd;
    if (cp < 0x80) {
        to[0] = (char)cp;
        to[1] = 0;
    } else {
        to[0] = (char)(0xc0 | cp >> 6);
        to[1] = (char)(0x80 | (cp & 0x3f));
        to[2] = 0;
    }
    return to;
}

/* The vocabulary as it grows: its entries, and the merges that lead to them. */
struct vocab {
    struct seam_buf entries, merges;
    size_t n, most;
};

static void vocab_add(struct vocab *v, const char *left, const char *right)
{
    char piece[16];

    if (v->n == v->most)
        return;
    snprintf(piece, sizeof piece, "%s%s", left, right);
    seam_buf_str(&v->entries, v->n ? ",\n  " : "  ");
    seam_buf_json(&v->entries, piece, strlen(piece));
    seam_buf_fmt(&v->entries, ": %zu", v->n++);
    if (!*right)
        return;
    seam_buf_str(&v->merges, v->merges.n ? ",\n  [" : "  [");
    seam_buf_json(&v->merges, left, strlen(left));
    seam_buf_str(&v->merges, ", ");
    seam_buf_json(&v->merges, right, strlen(right));
    seam_buf_str(&v->merges, "]");
}

/* Every byte, then pairs, then triples of letters, with a blank before or
 * without, as long as there are ids. */
static void vocab_fill(struct vocab *v)
{
    static const char first[] = "_etaoinshrdlcumwfgypbvkjxqz"
                                "ETAOINSHRDLCUMWFGYPBVKJXQZ";
    const char *letters = first + 1;
    char a[8], b[2] = "", c[2] = "", byte[3];

    for (unsigned i = 0; i < 256; i++)
        vocab_add(v, byte_spelling(i, byte), "");
    for (int n = 2; n <= 3; n++)
        for (const char *p = first; *p; p++)
            for (const char *q = letters; *q; q++) {
                const char *x =
                    byte_spelling(*p == '_' ? ' ' : (unsigned char)*p, byte);

                b[0] = *q;
                if (n == 2)
                    vocab_add(v, x, b);
                snprintf(a, sizeof a, "%s%s", x, b);
                for (const char *r = letters; *r && n == 3; r++) {
                    c[0] = *r;
                    vocab_add(v, a, c);
                }
            }
}

static void tokenizer_text(struct seam_buf *b, uint32_t vocab)
{
    static const char regex[] =
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
        "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
        "\\s+(?!\\S)|\\s+";
    size_t first = vocab > N_SPECIAL ? vocab - N_SPECIAL : 0;
    struct vocab v = { .most = first };

    vocab_fill(&v);
    seam_buf_str(b, "{\"version\": \"1.0\", \"truncation\": null, "
                    "\"padding\": null, \"normalizer\": null, "
                    "\"added_tokens\": [");
    for (size_t i = 0; i < N_SPECIAL; i++)
        seam_buf_fmt(b,
                     "%s\n  {\"id\": %zu, \"content\": \"%s\", "
                     "\"single_word\": false, \"lstrip\": false, "
                     "\"rstrip\": false, \"normalized\": false, "
                     "\"special\": %s}",
                     i ? "," : "", first + i, SPECIAL[i].piece,
                     SPECIAL[i].special ? "true" : "false");
    seam_buf_str(b, "\n],\n\"pre_tokenizer\": {\"type\": \"Sequence\", "
                    "\"pretokenizers\": [{\"type\": \"Split\", "
                    "\"pattern\": {\"Regex\": ");
    seam_buf_json(b, regex, sizeof regex - 1);
    seam_buf_str(b, "}, \"behavior\": \"Isolated\", \"invert\": false}, "
                    "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                    "\"trim_offsets\": true, \"use_regex\": false}]},\n"
                    "\"post_processor\": null,\n"
                    "\"decoder\": {\"type\": \"ByteLevel\"},\n"
                    "\"model\": {\"type\": \"BPE\", \"dropout\": null, "
                    "\"unk_token\": null, \"byte_fallback\": false, "
                    "\"ignore_merges\": false, \"vocab\": {\n");
    seam_buf_add(b, v.entries.p, v.entries.n);
    seam_buf_str(b, "\n}, \"merges\": [\n");
    seam_buf_add(b, v.merges.p, v.merges.n);
    seam_buf_str(b, "\n]}}\n");
    b->failed |= v.entries.failed || v.merges.failed;
    seam_buf_release(&v.entries);
    seam_buf_release(&v.merges);
}

/* ---- The folder ---------------------------------------------------------- */

static const char *const MADE_FILES[] = { "config.json", "tokenizer.json",
                                          "model.safetensors", NULL };

static void make_remove(const char *dir)
{
    char path[4096];

    for (const char *const *f = MADE_FILES; *f; f++) {
        snprintf(path, sizeof path, "%s/%s", dir, *f);
        unlink(path);
    }
    rmdir(dir);
}

/* mkdir -p of what stands before the last name. */
static int make_parents(const char *dir, struct seam_error *err)
{
    char path[4096];

    snprintf(path, sizeof path, "%s", dir);
    for (char *p = path + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = 0;
        if (mkdir(path, 0777) && errno != EEXIST)
            return seam_fail_errno(err, SEAM_EINVAL, errno, "%s", path);
        *p = '/';
    }
    return 0;
}

static int make_check(const struct seam_model_config *m, struct seam_error *err)
{
    if (m->hidden % GROUP || m->moe_intermediate % GROUP)
        return seam_fail(err, SEAM_EINVAL,
                         "hidden_size %u and moe_intermediate_size %u; int4 "
                         "experts need multiples of %d",
                         m->hidden, m->moe_intermediate, GROUP);
    if (m->vocab < 256 + N_SPECIAL)
        return seam_fail(err, SEAM_EINVAL,
                         "vocab_size %u; a byte-level vocabulary needs at "
                         "least %zu",
                         m->vocab, 256 + N_SPECIAL);
    return 0;
}

static int make_files(struct make *k, const json_t *shape, const char *dir,
                      struct seam_error *err)
{
    char *config = json_dumps(shape, JSON_INDENT(2));
    struct seam_buf tok = { 0 };
    int rc;

    tokenizer_text(&tok, k->m->vocab);
    if (!config || tok.failed)
        rc = seam_fail(err, SEAM_ENOMEM, "out of memory");
    else
        rc = make_file(dir, "config.json", config, strlen(config), NULL, err);
    if (!rc)
        rc = make_file(dir, "tokenizer.json", tok.p, tok.n, NULL, err);
    if (!rc)
        rc = make_shard(k, dir, err);
    free(config);
    seam_buf_release(&tok);
    return rc;
}

int seam_bench_make(const json_t *shape, const char *dir, uint64_t seed,
                    struct seam_bench_made *made, struct seam_error *err)
{
    struct seam_model_config m;
    struct make k = { .m = &m, .seed = seed };
    int rc = seam_model_config_read(&m, "shape", shape, err);

    if (!rc)
        rc = make_check(&m, err);
    if (!rc)
        rc = make_parents(dir, err);
    if (rc)
        return rc;
    if (mkdir(dir, 0777))
        return seam_fail_errno(err, SEAM_EINVAL, errno, "%s", dir);
    rc = seam_inventory(&m, 0, m.n_layers, true, make_expected, &k);
    if (rc)
        seam_fail(err, SEAM_ENOMEM, "out of memory");
    else
        rc = make_files(&k, shape, dir, err);
    if (rc)
        make_remove(dir);
    k.made.bytes = k.data;
    if (!rc && made)
        *made = k.made;
    free(k.part);
    free(k.chunk);
    free(k.buffer);
    return rc;
}

/* FNV-1a: which of the folders it is, no more. */
static uint32_t make_checksum(const char *s)
{
    uint32_t h = 2166136261u;

    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 16777619u;
    return h;
}

static char *make_cache_path(const char *which, const char *base,
                             uint32_t checksum)
{
    const char *home = getenv("HOME"), *xdg = getenv("XDG_CACHE_HOME");
    const char *name = strrchr(which, '/');
    struct seam_buf b = { 0 };

    name = name ? name + 1 : which;
    if (base)
        seam_buf_str(&b, base);
    else if (xdg && *xdg)
        seam_buf_fmt(&b, "%s/seam", xdg);
    else
        seam_buf_fmt(&b, "%s/.cache/seam", home && *home ? home : ".");
    seam_buf_fmt(&b, "/%.*s-%d-%08x", (int)strcspn(name, "."), name,
                 SEAM_BENCH_MAKE_VERSION, checksum);
    if (b.failed)
        seam_buf_release(&b);
    return b.p;
}

int seam_bench_model(const char *which, const char *base, char **path,
                     int *was_made, struct seam_error *err)
{
    json_t *shape = seam_bench_shape(which, err);
    char *config = NULL, *dir = NULL, *part = NULL;
    size_t n;
    int rc = 0;

    if (!shape)
        return err->code;
    config = json_dumps(shape, JSON_COMPACT | JSON_SORT_KEYS);
    dir = config ? make_cache_path(which, base, make_checksum(config)) : NULL;
    n = dir ? strlen(dir) + 24 : 0;
    part = dir ? malloc(n) : NULL;
    if (!part) {
        rc = seam_fail(err, SEAM_ENOMEM, "out of memory");
        goto out;
    }
    if (was_made)
        *was_made = access(dir, F_OK) != 0;
    if (access(dir, F_OK)) {
        /* Under another name until it is whole: several may make it. */
        snprintf(part, n, "%s.%ld", dir, (long)getpid());
        rc = seam_bench_make(shape, part, 1, NULL, err);
        if (!rc && rename(part, dir)) {
            if (errno != EEXIST && errno != ENOTEMPTY)
                rc = seam_fail_errno(err, SEAM_EINVAL, errno, "%s", dir);
            make_remove(part);
        }
    }
    if (!rc) {
        *path = dir;
        dir = NULL;
    }
out:
    json_decref(shape);
    free(config);
    free(dir);
    free(part);
    return rc;
}
