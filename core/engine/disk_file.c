#include "core/engine/disk_file.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/num.h"

#define MAGIC     "SEAMPFX"
#define VERSION   '1'
#define MAX_IDS   (1u << 24)
#define ID_BYTES  4
#define SUM_AFTER SEAM_DISK_HASH

/* Ids are hashed and stored as they lie in memory. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "byte order");

static uint32_t get32(const unsigned char *p)
{
    uint32_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

static uint64_t get64(const unsigned char *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

bool seam_disk_sum(const void *a, uint64_t n_a, const void *b, uint64_t n_b,
                   unsigned char *out)
{
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    bool ok = c && EVP_DigestInit_ex(c, EVP_sha256(), NULL) == 1 &&
              (!n_a || EVP_DigestUpdate(c, a, n_a) == 1) &&
              (!n_b || EVP_DigestUpdate(c, b, n_b) == 1) &&
              EVP_DigestFinal_ex(c, out, NULL) == 1;

    EVP_MD_CTX_free(c);
    return ok;
}

bool seam_disk_link(const unsigned char *before, const int32_t *ids, uint32_t n,
                    unsigned char *out)
{
    return seam_disk_sum(before, SEAM_DISK_HASH, ids, (uint64_t)n * ID_BYTES,
                         out);
}

uint64_t seam_disk_head_bytes(const unsigned char *text)
{
    uint64_t n = get64(text + 16);

    if (memcmp(text, MAGIC, 7) != 0 || n < SEAM_DISK_FIXED + SUM_AFTER ||
        n > SEAM_DISK_FIXED + SUM_AFTER + (uint64_t)MAX_IDS * ID_BYTES)
        return 0;
    return n;
}

static int damaged(const char **why, const char *what)
{
    *why = what;
    return SEAM_EDATA;
}

/* What a header says of itself has to be of one piece. */
static int head_derive(struct seam_disk_head *h, const char **why)
{
    uint64_t first, ids;

    if (h->kind != SEAM_DISK_RUN && h->kind != SEAM_DISK_STATE)
        return damaged(why, "unknown kind");
    if (!h->page_tokens || h->page_tokens > MAX_IDS ||
        !seam_mul(h->first_page, h->page_tokens, &first) || first > h->pos ||
        h->pos > INT32_MAX)
        return damaged(why, "positions contradict each other");
    ids = h->pos - first;
    if (h->kind == SEAM_DISK_RUN
            ? !h->n_pages || h->state_bytes ||
                  (uint64_t)h->n_pages * h->page_tokens != ids
            : h->n_pages != (ids ? 1u : 0u) || ids >= h->page_tokens || !h->pos)
        return damaged(why, "pages and positions contradict each other");
    if (ids > MAX_IDS || h->saved > h->pos)
        return damaged(why, "too many tokens");
    h->n_ids = (uint32_t)ids;
    h->header_bytes =
        SEAM_DISK_FIXED + SUM_AFTER + (uint64_t)h->n_ids * ID_BYTES;
    if (!seam_mul(h->n_pages, h->page_bytes, &h->body_bytes) ||
        !seam_add(h->body_bytes, h->state_bytes, &h->body_bytes))
        return damaged(why, "sizes beyond all bounds");
    return 0;
}

/* The key again, from the ids. */
static bool head_key(const struct seam_disk_head *h, unsigned char *key)
{
    uint32_t step = h->kind == SEAM_DISK_RUN ? h->page_tokens : h->n_ids;
    uint32_t at = 0;
    int32_t *ids = malloc(step * sizeof *ids + 1);
    bool ok = ids != NULL;

    memcpy(key, h->parent, SEAM_DISK_HASH);
    do {
        if (ok && step)
            memcpy(ids, h->ids + (uint64_t)at * ID_BYTES, step * sizeof *ids);
        ok = ok && seam_disk_link(key, ids, step, key);
        at += step;
    } while (ok && at < h->n_ids);
    free(ids);
    return ok;
}

int seam_disk_head_read(struct seam_disk_head *h, const unsigned char *text,
                        uint64_t n, uint64_t file_bytes, const char **why)
{
    unsigned char sum[SEAM_DISK_HASH];
    uint64_t bytes;
    int rc;

    if (n < SEAM_DISK_FIXED || !(bytes = seam_disk_head_bytes(text)) ||
        bytes > n)
        return damaged(why, "no header");
    if (text[7] != VERSION)
        return SEAM_ENOTSUP;
    if (!seam_disk_sum(text, bytes - SUM_AFTER, NULL, 0, sum))
        return damaged(why, "out of memory");
    if (memcmp(sum, text + bytes - SUM_AFTER, sizeof sum) != 0)
        return damaged(why, "the header's checksum is wrong");
    *h = (struct seam_disk_head){
        .kind = (enum seam_disk_kind)get32(text + 8),
        .page_tokens = get32(text + 12),
        .first_page = get32(text + 120),
        .n_pages = get32(text + 124),
        .pos = get32(text + 128),
        .saved = get32(text + 132),
        .page_bytes = get64(text + 136),
        .state_bytes = get64(text + 144),
        .ids = text + SEAM_DISK_FIXED,
    };
    memcpy(h->identity, text + 24, SEAM_DISK_HASH);
    memcpy(h->parent, text + 56, SEAM_DISK_HASH);
    memcpy(h->key, text + 88, SEAM_DISK_HASH);
    memcpy(h->body_sum, text + 152, SEAM_DISK_HASH);
    rc = head_derive(h, why);
    if (rc)
        return rc;
    if (h->header_bytes != bytes)
        return damaged(why, "the header's size is wrong");
    if (file_bytes - bytes != h->body_bytes || file_bytes < bytes)
        return damaged(why, "the file's size is wrong");
    if (!head_key(h, sum) || memcmp(sum, h->key, sizeof sum) != 0)
        return damaged(why, "the key is not that of its tokens");
    return 0;
}

static void put32(struct seam_buf *b, uint32_t v)
{
    seam_buf_add(b, (const char *)&v, sizeof v);
}

static void put64(struct seam_buf *b, uint64_t v)
{
    seam_buf_add(b, (const char *)&v, sizeof v);
}

static void put_hash(struct seam_buf *b, const unsigned char *h)
{
    seam_buf_add(b, (const char *)h, SEAM_DISK_HASH);
}

bool seam_disk_head_write(const struct seam_disk_head *head, const int32_t *tok,
                          struct seam_buf *out)
{
    struct seam_disk_head h = *head;
    unsigned char sum[SEAM_DISK_HASH];
    const char *why;

    if (head_derive(&h, &why))
        return false;
    seam_buf_add(out, MAGIC, 7);
    seam_buf_add(out, (char[]){ VERSION }, 1);
    put32(out, h.kind);
    put32(out, h.page_tokens);
    put64(out, h.header_bytes);
    put_hash(out, h.identity);
    put_hash(out, h.parent);
    put_hash(out, h.key);
    put32(out, h.first_page);
    put32(out, h.n_pages);
    put32(out, h.pos);
    put32(out, h.saved);
    put64(out, h.page_bytes);
    put64(out, h.state_bytes);
    put_hash(out, h.body_sum);
    seam_buf_add(out, (const char *)tok, (size_t)h.n_ids * ID_BYTES);
    if (out->failed || !seam_disk_sum(out->p, out->n, NULL, 0, sum))
        return false;
    put_hash(out, sum);
    return !out->failed;
}

void seam_disk_name(enum seam_disk_kind kind, const unsigned char *key,
                    char name[SEAM_DISK_NAME])
{
    static const char digit[] = "0123456789abcdef";

    for (int i = 0; i < SEAM_DISK_HASH; i++) {
        name[2 * i] = digit[key[i] >> 4];
        name[2 * i + 1] = digit[key[i] & 15];
    }
    memcpy(name + 64, kind == SEAM_DISK_RUN ? ".run" : ".state",
           kind == SEAM_DISK_RUN ? 5 : 7);
}

bool seam_disk_is_name(const char *name)
{
    return strspn(name, "0123456789abcdef") == 64 &&
           (!strcmp(name + 64, ".run") || !strcmp(name + 64, ".state"));
}
