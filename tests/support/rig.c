#include "tests/support/rig.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char rig_config[] =
    "{\"model\": {\"path\": \"%s/%s\"},"
    " \"plugin_dir\": \"%s\","
    " \"log\": {\"level\": \"warn\"},"
    " \"engine\": {\"threads\": 2, \"max_seqs\": 4, \"page_tokens\": 16,"
    "              \"max_step_tokens\": 256, \"cache_bytes\": 268435456},"
    " \"plugins\": {"
    "  \"backend\": {\"name\": \"cpu%s\", \"unpinned\": true},"
    "  \"linear_attention\": {\"name\": \"kda%s\", \"unpinned\": true},"
    "  \"sparse_attention\": {\"name\": \"sparse_mla%s\", \"unpinned\": true},"
    "  \"moe\": {\"name\": \"moe_resident%s\", \"unpinned\": true},"
    "  \"parser\": {\"name\": \"none\", \"unpinned\": true}}}";

void rig_open(struct rig *r, enum rig_set set, const char *model,
              const struct seam_flag *extra, size_t n_extra)
{
    static char *no_env[] = { NULL };
    const char *s = set == RIG_REF ? "_ref" : "";
    struct seam_runtime_opts o = { .config = &r->config,
                                   .log = &r->log,
                                   .logit_rows = 256 };
    struct seam_error err;
    char text[4096];
    int n = snprintf(text, sizeof text, rig_config, SEAM_TEST_SOURCE_DIR, model,
                     SEAM_TEST_PLUGIN_DIR, s, s, s, s);

    r->log = (struct seam_log){ .fd = STDERR_FILENO, .level = SEAM_LOG_ERROR };
    cr_assert_eq(seam_config_parse(&r->config, "rig.json", text, (size_t)n,
                                   no_env, extra, n_extra, &err),
                 0, "%s", err.text);
    cr_assert_eq(seam_runtime_open(&r->rt, &o, &err), 0, "%s", err.text);
}

void rig_close(struct rig *r)
{
    seam_runtime_close(r->rt);
    seam_config_release(&r->config);
}

uint32_t rig_vocab(const struct rig *r)
{
    return seam_checkpoint_config(r->rt->model.checkpoint)->vocab;
}

void rig_seq_open(struct rig *r, struct rig_seq *s, uint32_t i,
                  uint32_t max_tokens)
{
    uint32_t pages = (max_tokens + r->rt->page_tokens - 1) / r->rt->page_tokens;
    struct seam_error err;

    cr_assert_leq((i + 1) * pages, r->rt->n_pages);
    *s = (struct rig_seq){ .row = (int32_t)i, .n_pages = pages };
    s->page = malloc(pages * sizeof *s->page);
    cr_assert_not_null(s->page);
    /* Backwards, so that nothing works by pages being in order. */
    for (uint32_t p = 0; p < pages; p++)
        s->page[p] = (int32_t)((i + 1) * pages - 1 - p);
    cr_assert_eq(seam_runtime_zero_row(r->rt, s->row, &err), 0, "%s", err.text);
}

void rig_seq_close(struct rig_seq *s)
{
    free(s->page);
}

void rig_feed(struct rig *r, struct rig_seq *s, const int32_t *token,
              uint32_t n, uint32_t rows, float *out)
{
    struct seam_step_seq q = {
        .token = token,
        .n = n,
        .pos = s->n_done,
        .page = s->page,
        .n_pages = s->n_pages,
        .row = s->row,
        .n_accept = s->n_accept,
    };
    int32_t *row = malloc((rows + 1) * sizeof *row);
    struct seam_error err;

    cr_assert_not_null(row);
    for (uint32_t i = 0; i < rows; i++)
        row[i] = (int32_t)(n - rows + i);
    cr_assert_eq(seam_runtime_forward(r->rt, &q, 1, row, rows, &err), 0, "%s",
                 err.text);
    for (uint32_t i = 0; i < rows; i++)
        cr_assert_eq(
            seam_runtime_logits(r->rt, i, out + (size_t)i * rig_vocab(r), &err),
            0, "%s", err.text);
    s->n_done += n;
    s->n_accept = (int32_t)n;
    free(row);
}

void rig_feed_all(struct rig *r, struct rig_seq *s, const int32_t *token,
                  uint32_t n, uint32_t chunk, float *out)
{
    for (uint32_t at = 0; at < n; at += chunk) {
        uint32_t k = n - at < chunk ? n - at : chunk;

        rig_feed(r, s, token + at, k, k, out + (size_t)at * rig_vocab(r));
    }
}

void rig_file_open(struct rig_file *f, const char *path)
{
    char full[1024];
    struct seam_error err;

    snprintf(full, sizeof full, "%s/%s", SEAM_TEST_SOURCE_DIR, path);
    cr_assert_eq(seam_map_open(&f->map, full, &err), 0, "%s", err.text);
    cr_assert_eq(seam_st_parse(&f->header, full, f->map.p, f->map.bytes,
                               f->map.bytes, &err),
                 0, "%s", err.text);
}

void rig_file_close(struct rig_file *f)
{
    seam_st_release(&f->header);
    seam_map_release(&f->map);
}

const void *rig_tensor(const struct rig_file *f, const char *name,
                       int64_t *rows)
{
    const struct seam_st_tensor *t = seam_st_find(&f->header, name);

    cr_assert_not_null(t, "no %s in the trace", name);
    if (rows)
        *rows = t->shape[0];
    return f->map.p + t->offset;
}
