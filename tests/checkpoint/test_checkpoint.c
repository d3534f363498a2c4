#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "folder.h"

#define TINY     "tests/golden/tiny-w4a16"
#define PLAIN    "tests/golden/tiny-bf16"
#define P        "model.language_model."
#define SHARD(n) "model-0000" #n "-of-00005.safetensors"

/* Refused with a message that holds all of the words, ended by NULL. */
static void refused(struct folder *f, int code, const char *const *words)
{
    struct seam_error err;
    int rc = folder_try(f, &err);

    cr_expect_eq(rc, code, "rc %d: %s", rc, err.text);
    for (; *words; words++)
        cr_expect(strstr(err.text, *words), "\"%s\" lacks \"%s\"", err.text,
                  *words);
}
#define REFUSED(f, code, ...) \
    refused(f, code, (const char *const[]){ __VA_ARGS__, NULL })

static uint64_t size_of(const struct folder *f, const char *name)
{
    struct stat st;

    cr_assert_eq(stat(folder_path(f, name), &st), 0);
    return (uint64_t)st.st_size;
}

/* ---- What is accepted --------------------------------------------------- */

Test(checkpoint, opens_what_the_repository_holds)
{
    static const struct {
        const char *dir;
        uint32_t n, n_files, n_mtp;
        uint64_t bytes;
    } all[] = {
        { "models/nano/bf16", 532, 3, 1, 35583648 },
        { "models/nano/w4a16", 1108, 2, 1, 21612192 },
        { PLAIN, 559, 5, 0, 14222944 },
        { TINY, 1231, 5, 0, 6072928 },
    };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct seam_checkpoint_stats s;
        struct seam_checkpoint *c;
        struct folder f;

        folder_make(&f, all[i].dir, true);
        c = folder_open(&f);
        seam_checkpoint_stats(c, &s);
        cr_expect_eq(s.n_indexed, all[i].n, "%s", all[i].dir);
        cr_expect_eq(s.n_files, all[i].n_files);
        cr_expect_eq(s.indexed_bytes, all[i].bytes);
        cr_expect_eq(s.n_skipped, 0);
        cr_expect_eq(seam_checkpoint_config(c)->n_mtp, all[i].n_mtp);
        cr_expect_str_eq(seam_checkpoint_dir(c), f.dir);
        cr_expect_eq(json_integer_value(json_object_get(
                         seam_checkpoint_text_config(c), "num_hidden_layers")),
                     8);
        cr_expect_null(seam_checkpoint_lost(c));
        /* Every tensor has its place in the model. */
        cr_expect_null(strstr(folder_said(&f), " warn "), "%s", f.said);
        seam_checkpoint_close(c);
        folder_remove(&f);
    }
    seam_checkpoint_close(NULL);
}

static void count_progress(void *ctx, uint32_t done, uint32_t total)
{
    uint32_t *n = ctx;

    cr_expect_eq(done, ++*n);
    cr_expect_eq(total, 5);
}

static void check_order(void *ctx, const struct seam_st_tensor *t)
{
    const char **last = ctx;

    cr_expect(!*last || strcmp(*last, t->name) < 0, "%s", t->name);
    *last = t->name;
}

Test(checkpoint, tells_progress_and_every_tensor_in_order)
{
    struct seam_checkpoint *c = NULL;
    const char *last = NULL;
    struct seam_error err;
    uint32_t n = 0;

    cr_assert_eq(seam_checkpoint_open(&c, SEAM_TEST_SOURCE_DIR "/" TINY, NULL,
                                      count_progress, &n, &err),
                 0, "%s", err.text);
    cr_expect_eq(n, 5);
    seam_checkpoint_each(c, check_order, &last);
    cr_expect_str_eq(last, P "norm.weight");
    seam_checkpoint_close(c);
}

Test(checkpoint, finds_tensors_where_the_shard_has_them)
{
    struct seam_checkpoint *c;
    const unsigned char *data;
    const struct seam_st_tensor *t;
    unsigned char word[4];
    struct folder f;
    char shard[256];
    int fd;

    folder_make(&f, PLAIN, true);
    c = folder_open(&f);
    t = seam_checkpoint_find(c, P "layers.4.self_attn.A_log", &data);
    cr_assert_not_null(t);
    cr_expect_eq(t->dtype, SEAM_F32);
    fd = open(folder_path(&f, folder_shard_of(&f, t->name, shard)), O_RDONLY);
    cr_assert_eq(pread(fd, word, 4, (off_t)t->offset), 4);
    cr_expect_eq(memcmp(word, data, 4), 0);
    close(fd);
    cr_expect_null(seam_checkpoint_find(c, P "layers.4.self_attn.A", &data));
    cr_expect_null(seam_checkpoint_find(c, "", NULL));
    cr_expect(strstr(folder_said(&f), "5 of 5 shards are symbolic links"));
    cr_expect(strstr(folder_said(&f), "without its MTP block"));
    seam_checkpoint_close(c);
    folder_remove(&f);
}

Test(checkpoint, skips_vision_with_one_line)
{
    static const struct put vision[] = {
        { "model.visual.merger.proj.weight", "BF16", 2, { 4, 4 }, NULL, 32 },
        { "model.visual.patch_embed.proj.weight",
          "F32",
          5,
          { 2, 3, 2, 1, 1 },
          NULL,
          48 },
    };
    struct seam_checkpoint_stats s;
    struct seam_checkpoint *c;
    struct folder f;

    folder_make(&f, TINY, true);
    folder_put(&f, "vision.safetensors", vision, 2, 0, true);
    c = folder_open(&f);
    seam_checkpoint_stats(c, &s);
    cr_expect_eq(s.n_skipped, 2);
    cr_expect_eq(s.n_indexed, 1233);
    cr_expect_eq(folder_count(folder_said(&f), "vision"), 1, "%s", f.said);
    cr_expect_eq(folder_count(folder_said(&f), "no use"), 0, "%s", f.said);
    seam_checkpoint_close(c);
    folder_remove(&f);
}

Test(checkpoint, warns_once_about_tensors_without_a_use)
{
    static const struct put strange[] = {
        { P "layers.0.self_attn.rotary.inv_freq", "F32", 1, { 2 }, NULL, 8 },
        { "zz.extra", "I64", 0, { 0 }, NULL, 8 },
    };
    struct seam_checkpoint *c;
    struct folder f;

    folder_make(&f, TINY, true);
    folder_put(&f, "more.safetensors", strange, 2, 0, true);
    c = folder_open(&f);
    cr_expect_eq(folder_count(folder_said(&f),
                              "2 tensors that the model has "
                              "no use for, the first is \"" P
                              "layers.0.self_attn.rotary.inv_freq\""),
                 1, "%s", f.said);
    seam_checkpoint_close(c);
    folder_remove(&f);
}

Test(checkpoint, resolves_through_the_index_and_not_by_file)
{
    static const float ones[32] = { 1, 1, 1, 1 };
    static const struct put stale[] = {
        { P "layers.0.self_attn.A_log", "F32", 2, { 8, 4 }, NULL, 128 },
    };
    static const struct put good[] = {
        { P "layers.0.self_attn.A_log", "F32", 1, { 4 }, ones, 16 },
        { "extra", "F32", 1, { 1 }, NULL, 4 },
    };
    struct seam_checkpoint *c;
    struct seam_error err;
    struct seam_tensor t;
    struct folder f;

    folder_make(&f, TINY, true);
    folder_put(&f, "a.safetensors", good, 2, 0, true);
    folder_put(&f, "b.safetensors", stale, 1, 0, false);
    c = folder_open(&f);
    cr_assert_eq(
        seam_checkpoint_weight(c, "@layer.0.self_attn.A_log", &t, &err), 0,
        "%s", err.text);
    cr_expect(t.rank == 1 && t.shape[0] == 4);
    cr_expect_eq(memcmp(t.data, ones, 16), 0);
    seam_checkpoint_close(c);
    folder_remove(&f);
}

struct merging {
    const struct seam_checkpoint *c;
    struct put put[600];
    uint32_t n;
};

static void merge_one(void *ctx, const struct seam_st_tensor *t)
{
    struct merging *m = ctx;
    struct put *p = &m->put[m->n++];
    const unsigned char *data;

    seam_checkpoint_find(m->c, t->name, &data);
    *p = (struct put){ t->name, seam_dtype_name(t->dtype), t->rank, { 0 }, data,
                       t->bytes };
    memcpy(p->shape, t->shape, sizeof p->shape);
}

/* All tensors of c in one file of the folder, which loses its index. */
static void merge(struct folder *f, struct seam_checkpoint *c, uint32_t skew)
{
    static struct merging m;

    m = (struct merging){ .c = c };
    seam_checkpoint_each(c, merge_one, &m);
    folder_put(f, "model.safetensors", m.put, m.n, skew, false);
    cr_assert_eq(unlink(folder_path(f, "model.safetensors.index.json")), 0);
}

Test(checkpoint, takes_a_single_file_without_index_and_aligns_its_data)
{
    struct seam_checkpoint *one, *many;
    struct seam_error err;
    struct seam_tensor a, b;
    struct folder f;

    folder_make(&f, PLAIN, true);
    many = folder_open(&f);
    merge(&f, many, 1); /* every tensor lies at an odd address */
    one = folder_open(&f);
    for (int i = 0; i < 2; i++) {
        static const char *const names[] = { "@embed",
                                             "@layer.0.self_attn.A_log" };
        const void *first;

        cr_assert_eq(seam_checkpoint_weight(one, names[i], &a, &err), 0, "%s",
                     err.text);
        first = a.data;
        cr_assert_eq(seam_checkpoint_weight(many, names[i], &b, &err), 0);
        cr_expect_eq((uintptr_t)a.data % (i ? 4 : 2), 0);
        cr_expect_eq(a.bytes, b.bytes);
        cr_expect_eq(memcmp(a.data, b.data, a.bytes), 0);
        cr_assert_eq(seam_checkpoint_weight(one, names[i], &a, &err), 0);
        cr_expect_eq(a.data, first, "copied once");
    }
    seam_checkpoint_close(many);
    seam_checkpoint_close(one);
    folder_remove(&f);
}

/* ---- The MTP block ------------------------------------------------------ */

Test(checkpoint, mtp_block_is_whole_or_absent)
{
    static const char layer[] = P "layers.8.";
    struct seam_checkpoint *c;
    json_t *index, *map, *v;
    struct seam_tensor t;
    struct seam_error err;
    const char *key;
    struct folder f;
    void *tmp;

    folder_make(&f, "models/nano/w4a16", true);
    folder_forget(&f, P "layers.8.mlp.experts.15.up_proj.qweight");
    REFUSED(&f, SEAM_EDATA, "\"" P "layers.8.mlp.experts.15.up_proj.weight\"",
            "missing");
    index = folder_load(&f, "model.safetensors.index.json");
    map = json_object_get(index, "weight_map");
    json_object_foreach_safe(map, tmp, key,
                             v) if (!strncmp(key, layer, sizeof layer - 1))
        json_object_del(map, key);
    folder_store(&f, "model.safetensors.index.json", index);
    c = folder_open(&f);
    cr_expect_eq(seam_checkpoint_config(c)->n_mtp, 0);
    cr_expect(strstr(folder_said(&f), "without its MTP block"));
    cr_expect_eq(seam_checkpoint_weight(c, "@layer.8.enorm.weight", &t, &err),
                 SEAM_ENOENT);
    seam_checkpoint_close(c);
    folder_remove(&f);
}

Test(checkpoint, mtp_block_can_be_disowned_by_the_config)
{
    struct seam_checkpoint *c;
    struct folder f;

    folder_make(&f, "models/nano/bf16", true);
    folder_config(&f, true, "num_nextn_predict_layers", "0");
    c = folder_open(&f);
    cr_expect_eq(seam_checkpoint_config(c)->n_mtp, 0);
    cr_expect(strstr(folder_said(&f), "73 tensors that the model has no use"),
              "%s", f.said);
    seam_checkpoint_close(c);
    folder_remove(&f);
}

/* ---- Shards that are short, absent or not files ------------------------- */

Test(checkpoint, refuses_a_shard_that_is_cut_or_too_long)
{
    struct folder f;
    uint64_t n;

    folder_make(&f, TINY, false);
    n = size_of(&f, SHARD(2));
    cr_assert_eq(truncate(folder_path(&f, SHARD(2)), (off_t)n - 1), 0);
    REFUSED(&f, SEAM_EDATA, SHARD(2), ": 1 bytes missing",
            "first tensor cut is \"" P, "starts at byte");
    cr_assert_eq(truncate(folder_path(&f, SHARD(2)), 8 + 42544), 0);
    REFUSED(&f, SEAM_EDATA, SHARD(2), ": 1496884 bytes missing",
            "starts at byte 42552");
    cr_assert_eq(truncate(folder_path(&f, SHARD(2)), 100), 0);
    REFUSED(&f, SEAM_EDATA, SHARD(2), "header length 42544");
    cr_assert_eq(truncate(folder_path(&f, SHARD(2)), 0), 0);
    REFUSED(&f, SEAM_EDATA, SHARD(2), "0 bytes");
    folder_remove(&f);

    folder_make(&f, TINY, false);
    cr_assert_eq(truncate(folder_path(&f, SHARD(2)), (off_t)n + 1), 0);
    REFUSED(&f, SEAM_EDATA, SHARD(2), "1 bytes behind the last tensor");
    folder_remove(&f);
}

Test(checkpoint, names_every_shard_that_is_missing)
{
    struct folder f;

    folder_make(&f, TINY, true);
    unlink(folder_path(&f, SHARD(3)));
    REFUSED(&f, SEAM_ENOENT, "1 of 5 shards missing: " SHARD(3));
    unlink(folder_path(&f, SHARD(1)));
    cr_assert_eq(symlink("/nonexistent", folder_path(&f, SHARD(1))), 0);
    unlink(folder_path(&f, SHARD(5)));
    REFUSED(&f, SEAM_ENOENT, "3 of 5 shards missing", SHARD(1), SHARD(3),
            SHARD(5));
    cr_expect(strstr(folder_said(&f), SHARD(5) " is missing"));
    folder_remove(&f);
}

Test(checkpoint, opens_regular_files_only)
{
    struct folder f;

    folder_make(&f, TINY, true);
    unlink(folder_path(&f, SHARD(3)));
    cr_assert_eq(mkdir(folder_path(&f, SHARD(3)), 0700), 0);
    REFUSED(&f, SEAM_EDATA, SHARD(3), "is a directory");
    rmdir(folder_path(&f, SHARD(3)));
    cr_assert_eq(mkfifo(folder_path(&f, SHARD(3)), 0600), 0);
    REFUSED(&f, SEAM_EDATA, SHARD(3), "is a FIFO");
    unlink(folder_path(&f, SHARD(3)));
    cr_assert_eq(symlink("/dev/zero", folder_path(&f, SHARD(3))), 0);
    REFUSED(&f, SEAM_EDATA, SHARD(3), "is a device");
    folder_remove(&f);
}

Test(checkpoint, refuses_an_unreadable_shard)
{
    struct folder f;

    if (geteuid() == 0)
        cr_skip_test("root can read everything");
    folder_make(&f, TINY, false);
    cr_assert_eq(chmod(folder_path(&f, SHARD(3)), 0), 0);
    REFUSED(&f, SEAM_EDATA, SHARD(3), "Permission denied");
    folder_remove(&f);
}

/* ---- The index ---------------------------------------------------------- */

/* SE-1. */
Test(checkpoint, never_opens_what_lies_outside_its_folder)
{
    static const struct put x = { "x", "F32", 1, { 1 }, NULL, 4 };
    char value[5][128], event[512];
    struct folder f, outside;
    int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);

    folder_make(&f, TINY, true);
    folder_make(&outside, TINY, true);
    folder_put(&outside, "x.safetensors", &x, 1, 0, false);
    cr_assert_geq(inotify_add_watch(watch, outside.dir, IN_OPEN), 0);
    /* dir is /tmp/NAME, and so is f's */
    snprintf(value[0], 128, "..%s/x.safetensors", outside.dir + 4);
    snprintf(value[1], 128, "%s/x.safetensors", outside.dir);
    snprintf(value[2], 128, "a/../..%s/x.safetensors", outside.dir + 4);
    snprintf(value[3], 128, "..");
    snprintf(value[4], 128, "%s", "");
    for (size_t i = 0; i < 5; i++) {
        json_t *index = folder_load(&f, "model.safetensors.index.json");

        json_object_set_new(json_object_get(index, "weight_map"), "zz.last",
                            json_string(value[i]));
        folder_store(&f, "model.safetensors.index.json", index);
        REFUSED(&f, SEAM_EDATA, "model.safetensors.index.json", "\"zz.last\"",
                "plain file name");
    }
    cr_expect_eq(read(watch, event, sizeof event), -1);
    cr_expect_eq(errno, EAGAIN, "a file outside was opened");
    close(watch);
    folder_remove(&outside);
    folder_remove(&f);
}

Test(checkpoint, refuses_an_index_that_shards_contradict)
{
    struct folder f;
    json_t *index;

    folder_make(&f, TINY, true);
    index = folder_load(&f, "model.safetensors.index.json");
    json_object_set_new(json_object_get(index, "weight_map"), P "norm.weight",
                        json_string(SHARD(1)));
    folder_store(&f, "model.safetensors.index.json", index);
    REFUSED(&f, SEAM_EDATA, "\"" P "norm.weight\"", "said to be in " SHARD(1));
    folder_remove(&f);
}

Test(checkpoint, names_files_that_are_not_there)
{
    struct seam_checkpoint *c = NULL;
    struct seam_error err;
    struct folder f;

    cr_expect_eq(
        seam_checkpoint_open(&c, "/nonexistent", NULL, NULL, NULL, &err),
        SEAM_ENOENT);
    cr_expect(strstr(err.text, "/nonexistent/config.json"), "%s", err.text);
    folder_make(&f, TINY, true);
    unlink(folder_path(&f, "model.safetensors.index.json"));
    REFUSED(&f, SEAM_ENOENT, f.dir,
            "neither model.safetensors.index.json nor "
            "model.safetensors");
    unlink(folder_path(&f, "config.json"));
    REFUSED(&f, SEAM_ENOENT, "config.json: cannot open");
    folder_remove(&f);
}

Test(checkpoint, puts_the_folder_before_every_message)
{
    struct folder f;
    char where[128];

    folder_make(&f, TINY, true);
    folder_config(&f, true, "hidden_size", "0");
    snprintf(where, sizeof where,
             "%s/config.json: text_config.hidden_size: "
             "found 0",
             f.dir);
    REFUSED(&f, SEAM_EDATA, where);
    folder_remove(&f);
}

/* ---- What the model needs ----------------------------------------------- */

Test(checkpoint, refuses_a_model_that_misses_a_tensor)
{
    static const char *const names[] = {
        "lm_head.weight",
        P "norm.weight",
        P "embed_tokens.weight",
        P "layers.7.hc_ffn_scale",
        P "layers.0.self_attn.dt_bias",
        P "layers.2.self_attn.v_conv1d.weight",
        P "layers.3.self_attn.indexer.index_kpool_compress_ape",
        P "layers.3.self_attn.indexer.k_norm.bias",
        P "layers.1.mlp.gate.e_score_correction_bias",
        P "layers.0.mlp.up_proj.weight",
        P "layers.7.mlp.shared_experts.down_proj.weight",
    };
    char says[160];

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct folder f;

        folder_make(&f, TINY, true);
        folder_forget(&f, names[i]);
        snprintf(says, sizeof says, "tensor \"%s\" is missing", names[i]);
        REFUSED(&f, SEAM_EDATA, says);
        folder_remove(&f);
    }
}

Test(checkpoint, refuses_shapes_and_dtypes_that_the_config_does_not_imply)
{
    static const struct {
        struct put put;
        const char *says;
    } all[] = {
        { { P "norm.weight", "BF16", 1, { 64 }, NULL, 128 },
          "shape [64], expected [128]" },
        { { P "norm.weight", "BF16", 2, { 1, 128 }, NULL, 256 },
          "shape [1, 128], expected [128]" },
        { { P "norm.weight", "I32", 1, { 128 }, NULL, 512 },
          "dtype I32, expected BF16, F16 or F32" },
        { { P "norm.weight", "F8_E4M3", 1, { 128 }, NULL, 128 },
          "dtype F8_E4M3, expected BF16, F16 or F32" },
        { { P "layers.0.self_attn.q_conv1d.weight",
            "BF16",
            3,
            { 384, 1, 4 },
            NULL,
            3072 },
          "shape [384, 1, 4], expected [128, 1, 4]" },
        { { P "layers.3.self_attn.q_b_proj.weight",
            "F8_E5M2",
            2,
            { 192, 128 },
            NULL,
            24576 },
          "dtype F8_E5M2, expected BF16, F16, F32 or F8_E4M3" },
        { { P "layers.3.self_attn.q_b_proj.weight",
            "F8_E4M3",
            2,
            { 192, 128 },
            NULL,
            24576 },
          "F8_E4M3 without its _scale_inv" },
        { { P "layers.3.mlp.experts.0.up_proj.qweight",
            "I32",
            2,
            { 8, 128 },
            NULL,
            4096 },
          "shape [8, 128], expected [16, 128]" },
        { { P "layers.3.mlp.experts.0.up_proj.qweight",
            "I64",
            2,
            { 16, 128 },
            NULL,
            16384 },
          "dtype I64, expected I32" },
        { { P "layers.3.mlp.experts.0.up_proj.qzeros",
            "I32",
            2,
            { 1, 128 },
            NULL,
            512 },
          "shape [1, 128], expected [1, 16]" },
        { { P "layers.3.mlp.experts.0.up_proj.qzeros",
            "F32",
            2,
            { 1, 16 },
            NULL,
            64 },
          "dtype F32, expected I32" },
        { { P "layers.3.mlp.experts.0.up_proj.scales",
            "I32",
            2,
            { 1, 128 },
            NULL,
            512 },
          "dtype I32, expected F16, BF16 or F32" },
        { { P "layers.3.mlp.experts.0.up_proj.scales",
            "F16",
            1,
            { 128 },
            NULL,
            256 },
          "rank 1, expected shape [1, 128]" },
        { { P "layers.3.mlp.experts.0.up_proj.weight",
            "BF16",
            2,
            { 128, 128 },
            NULL,
            32768 },
          "is there twice, also as .qweight" },
    };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct folder f;
        char name[160];

        folder_make(&f, TINY, true);
        folder_put(&f, "bad.safetensors", &all[i].put, 1, 0, true);
        snprintf(name, sizeof name, "bad.safetensors: tensor \"%s\"",
                 all[i].put.name);
        REFUSED(&f, SEAM_EDATA, name, all[i].says);
        folder_remove(&f);
    }
}

Test(checkpoint, refuses_quantised_layers_that_are_not_whole)
{
    struct folder f;

    folder_make(&f, TINY, true);
    folder_forget(&f, P "layers.3.mlp.experts.0.up_proj.scales");
    REFUSED(&f, SEAM_EDATA, "layers.3.mlp.experts.0.up_proj.qweight\"",
            "without its .scales");
    folder_remove(&f);

    folder_make(&f, TINY, true);
    folder_config(&f, false, "quantization_config", NULL);
    REFUSED(&f, SEAM_EDATA, ".qweight\"", "describes no 4-bit weights");
    folder_remove(&f);

    folder_make(&f, TINY, true);
    folder_config(&f, true, "moe_intermediate_size", "136");
    REFUSED(&f, SEAM_EDATA, "tensor \"" P "layers.1.mlp.",
            "expected [136, 128]");
    folder_remove(&f);
}

/* ---- Side files --------------------------------------------------------- */

Test(checkpoint, reads_side_files_once_and_from_its_folder_only)
{
    struct seam_checkpoint *c;
    struct seam_error err;
    struct seam_str a, b;
    struct folder f;

    folder_make(&f, "models/nano/w4a16", true);
    c = folder_open(&f);
    cr_assert_eq(seam_checkpoint_file(c, "chat_template.jinja", &a, &err), 0,
                 "%s", err.text);
    cr_expect_eq(a.n, size_of(&f, "chat_template.jinja"));
    cr_expect_eq(a.p[a.n], 0);
    unlink(folder_path(&f, "chat_template.jinja"));
    cr_assert_eq(seam_checkpoint_file(c, "chat_template.jinja", &b, &err), 0);
    cr_expect_eq(a.p, b.p, "cached");
    cr_expect_eq(seam_checkpoint_file(c, "absent", &b, &err), SEAM_ENOENT);
    cr_expect_eq(seam_checkpoint_file(c, "../config.json", &b, &err),
                 SEAM_EINVAL);
    cr_expect_eq(seam_checkpoint_file(c, "", &b, &err), SEAM_EINVAL);
    cr_assert_eq(mkfifo(folder_path(&f, "pipe"), 0600), 0);
    cr_expect_eq(seam_checkpoint_file(c, "pipe", &b, &err), SEAM_EDATA);
    seam_checkpoint_close(c);
    folder_remove(&f);
}
