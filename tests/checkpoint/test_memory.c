/* Opening and reading a checkpoint with the n-th allocation failing, for each
 * n, and nothing left behind.  The program is linked with --wrap, so that the
 * calls of core/ come here.  Those of jansson do not: its 2.14 loses bytes of a
 * token silently when it cannot grow it. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/checkpoint/plan.h"
#include "folder.h"

#define MODULE "model.language_model.layers.3.mlp.experts.5.up_proj"

static int countdown = -1; /* allocations until one fails; -1: none does      */

static int live; /* blocks that were not freed                      */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
char *__real_strdup(const char *s);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);
void __wrap_free(void *p);

static bool fails(void)
{
    return countdown >= 0 && countdown-- == 0;
}

static void *counted(void *p)
{
    live += p != NULL;
    return p;
}

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : counted(__real_malloc(n));
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : counted(__real_calloc(n, size));
}

void *__wrap_realloc(void *p, size_t n)
{
    if (fails())
        return NULL;
    return p ? __real_realloc(p, n) : counted(__real_realloc(p, n));
}

char *__wrap_strdup(const char *s)
{
    return fails() ? NULL : counted(__real_strdup(s));
}

void __wrap_free(void *p)
{
    live -= p != NULL;
    __real_free(p);
}

/* Run out at every allocation of open in turn; returns how many there are. */
static int open_each(struct folder *f)
{
    int n;

    for (n = 0;; n++) {
        struct seam_checkpoint *c = NULL;
        struct seam_error err = { 0 };
        int rc, before = live;
        bool ran_out;

        countdown = n;
        rc = seam_checkpoint_open(&c, f->dir, NULL, NULL, NULL, &err);
        ran_out = countdown < 0;
        countdown = -1;
        if (!ran_out) {
            cr_expect_eq(rc, 0, "%s", err.text);
            seam_checkpoint_close(c);
            cr_expect_eq(live, before, "%d blocks left", live - before);
            return n;
        }
        cr_expect_eq(live, before, "allocation %d: %d blocks left", n,
                     live - before);
        cr_expect(rc < 0 && err.text[0] && !c, "allocation %d: %d", n, rc);
        cr_assert_lt(n, 100000);
    }
}

Test(checkpoint_memory, opening_leaves_nothing_behind_when_it_runs_out)
{
    struct folder f;

    folder_make(&f, "tests/golden/tiny-w4a16", true);
    cr_expect_gt(open_each(&f), 20);
    folder_remove(&f);
}

Test(checkpoint_memory, weights_and_files_survive_running_out)
{
    static const char *const parts[] = { ".qweight", ".qzeros", ".scales" };
    unsigned char eights[64];
    struct seam_checkpoint *c;
    struct put put[3];
    char name[3][128];
    struct folder f;
    int n, before;

    /* Zero points of the other convention, all of it misaligned: four copies
     * are made. */
    folder_make(&f, "tests/golden/tiny-w4a16", true);
    c = folder_open(&f);
    memset(eights, 0x88, sizeof eights);
    for (int i = 0; i < 3; i++) {
        const unsigned char *data;
        const struct seam_st_tensor *t;

        snprintf(name[i], sizeof name[i], MODULE "%s", parts[i]);
        t = seam_checkpoint_find(c, name[i], &data);
        put[i] = (struct put){ name[i],
                               seam_dtype_name(t->dtype),
                               2,
                               { t->shape[0], t->shape[1] },
                               i == 1 ? eights : data,
                               t->bytes };
    }
    folder_put(&f, "odd.safetensors", put, 3, 1, true);
    seam_checkpoint_close(c);

    before = live;
    c = folder_open(&f);
    for (n = 0;; n++) {
        struct seam_error err = { 0 };
        struct seam_tensor t;
        int rc;

        countdown = n;
        rc = seam_checkpoint_weight(c, MODULE, &t, &err);
        countdown = -1;
        if (!rc)
            break;
        cr_expect_eq(rc, SEAM_ENOMEM, "allocation %d: %s", n, err.text);
    }
    cr_expect_geq(n, 3);
    for (n = 0;; n++) {
        struct seam_error err = { 0 };
        struct seam_str s;
        int rc;

        countdown = n;
        rc = seam_checkpoint_file(c, "config.json", &s, &err);
        countdown = -1;
        if (!rc)
            break;
        cr_expect_eq(rc, SEAM_ENOMEM, "allocation %d: %s", n, err.text);
    }
    cr_expect_eq(n, 3);
    for (n = 0;; n++) {
        struct seam_buf b = { 0 };
        bool failed;

        countdown = n;
        seam_inspect(c, 1 << 30, SEAM_DENSE_I4, &b);
        countdown = -1;
        failed = b.failed;
        seam_buf_release(&b);
        if (!failed)
            break;
    }
    cr_expect_gt(n, 1);
    seam_checkpoint_close(c);
    cr_expect_eq(live, before, "%d blocks left", live - before);
    folder_remove(&f);
}
