#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/tokenizer/tokenizer.h"

#define NANO SEAM_TEST_SOURCE_DIR "/models/nano/"

static struct seam_tokenizer *nano(void)
{
    struct seam_tokenizer *t = NULL;
    struct seam_error err;

    cr_assert_eq(seam_tokenizer_open(&t, NANO "bf16/tokenizer.json", &err), 0,
                 "%s", err.text);
    return t;
}

Test(tokenizer, gives_the_ids_of_the_reference_prompts)
{
    struct seam_tokenizer *t = nano();
    struct seam_error err;
    uint64_t n;
    char *text, *save = NULL;
    int n_lines = 0;

    cr_assert_eq(
        seam_file_read(NANO "golden_greedy.jsonl", 1 << 24, &text, &n, &err), 0,
        "%s", err.text);
    for (char *line = strtok_r(text, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save), n_lines++) {
        json_t *v = json_loads(line, 0, NULL);
        json_t *ids = json_object_get(v, "ids");
        const json_t *prompt = json_object_get(v, "prompt");
        struct seam_ids got = { 0 };
        size_t i;
        json_t *id;

        cr_assert_eq(seam_tokenizer_encode(t, json_string_value(prompt),
                                           json_string_length(prompt), true,
                                           &got, &err),
                     0, "%s", err.text);
        cr_assert_eq(got.n, json_array_size(ids), "line %d: %zu ids, not %zu",
                     n_lines, got.n, json_array_size(ids));
        json_array_foreach(ids, i, id) cr_assert_eq(
            got.v[i], json_integer_value(id), "line %d, token %zu: %d, not %d",
            n_lines, i, got.v[i], (int)json_integer_value(id));
        seam_ids_release(&got);
        json_decref(v);
    }
    cr_assert_eq(n_lines, 20);
    free(text);
    seam_tokenizer_free(t);
}

Test(tokenizer, gives_as_many_tokens_for_the_evaluation_text_as_the_reference)
{
    struct seam_tokenizer *t = nano();
    struct seam_ids got = { 0 };
    struct seam_error err;
    uint64_t n;
    char *text;

    cr_assert_eq(seam_file_read(NANO "eval_text.txt", 1 << 24, &text, &n, &err),
                 0, "%s", err.text);
    cr_assert_eq(seam_tokenizer_encode(t, text, n, false, &got, &err), 0, "%s",
                 err.text);
    cr_expect_eq(got.n, 20266, "%zu tokens, not 20266", got.n);
    seam_ids_release(&got);
    free(text);
    seam_tokenizer_free(t);
}
