/* Input: the text of model.safetensors.index.json.  What is accepted must hold
 * plain file names alone, and the same entries for jansson where jansson can
 * read it (it knows no numbers beyond 64 bits, which may stand in metadata). */
#undef NDEBUG /* assert() is how a target reports, in every build */
#include <assert.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/checkpoint/index.h"

static void check_accepted(const struct seam_index *x, const char *text,
                           size_t n)
{
    json_t *v = json_loadb(text, n, JSON_ALLOW_NUL, NULL), *map;

    map = json_object_get(v, "weight_map");
    assert(!v || json_object_size(map) == x->n);
    for (uint32_t i = 0; i < x->n; i++) {
        const struct seam_index_entry *e = &x->e[i];
        const json_t *file = json_object_get(map, e->name);

        assert(i == 0 || strcmp(x->e[i - 1].name, e->name) < 0);
        assert(e->file < x->n_files);
        assert(!v || !strcmp(json_string_value(file), x->file[e->file]));
    }
    for (uint32_t i = 0; i < x->n_files; i++) {
        assert(seam_is_plain_name(x->file[i]));
        assert(!strchr(x->file[i], '/'));
        for (uint32_t k = 0; k < i; k++)
            assert(strcmp(x->file[i], x->file[k]));
    }
    json_decref(v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct seam_index x = { 0 };
    struct seam_error err = { 0 };
    char *text = malloc(n + 1);

    if (!text)
        return 0;
    if (n)
        memcpy(text, data, n);
    text[n] = 0;
    if (seam_index_parse(&x, "fuzz", text, n, &err)) {
        assert(err.code < 0 && err.text[0]);
        assert(!x.e && !x.file && !x.text);
    } else {
        check_accepted(&x, (const char *)data, n);
    }
    seam_index_release(&x);
    return 0;
}
