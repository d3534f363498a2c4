/* A runtime over one of the tree's checkpoints and one of its plugin sets, and
 * single sequences to drive through it, for tests and benchmarks. */
#ifndef TESTS_SUPPORT_RIG_H
#define TESTS_SUPPORT_RIG_H

#include "core/base/file.h"
#include "core/engine/runtime.h"

enum rig_set { RIG_REF = 0, RIG_DEFAULT = 1 };

struct rig {
    struct seam_config config;
    struct seam_log log;
    struct seam_runtime *rt;
};

/* model is a folder below the source tree.  Aborts the test with the message
 * when anything fails.  extra: further settings, "key=value", NULL-terminated,
 * or NULL. */
void rig_open(struct rig *r, enum rig_set set, const char *model,
              const struct seam_flag *extra, size_t n_extra);
void rig_close(struct rig *r);

/* One sequence: its row, pages and length. */
struct rig_seq {
    int32_t row;
    int32_t *page;
    uint32_t n_pages;
    uint32_t n_done;
    int32_t n_accept;
};
/* Sequence number i takes row i and its own range of pages for max_tokens. */
void rig_seq_open(struct rig *r, struct rig_seq *s, uint32_t i,
                  uint32_t max_tokens);
void rig_seq_close(struct rig_seq *s);

/* Feed n tokens in one step; logits of the last `rows` of them to out
 * [rows][vocab]. */
void rig_feed(struct rig *r, struct rig_seq *s, const int32_t *token,
              uint32_t n, uint32_t rows, float *out);
/* The same in chunks, with the logits of every token, to out [n][vocab]. */
void rig_feed_all(struct rig *r, struct rig_seq *s, const int32_t *token,
                  uint32_t n, uint32_t chunk, float *out);

uint32_t rig_vocab(const struct rig *r);

/* The tensor `name` of a safetensors file below the source tree; fails the test
 * when it is not there.  The file stays mapped until the process ends. */
struct rig_file {
    struct seam_map map;
    struct seam_st_header header;
};
void rig_file_open(struct rig_file *f, const char *path);
void rig_file_close(struct rig_file *f);
const void *rig_tensor(const struct rig_file *f, const char *name,
                       int64_t *rows);

#endif
