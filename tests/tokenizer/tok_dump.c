/* tok_dump TOKENIZER.JSON < LINES: the tokenizer as a filter.
 *
 * Each line is [text, added] and is answered by [ids, text decoded from them].
 * The first line that cannot be answered ends the program with a message. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/tokenizer/tokenizer.h"

static int dump_answer(const struct seam_tokenizer *t,
                       const struct seam_ids *ids)
{
    struct seam_detok d = { 0 };
    struct seam_buf line = { 0 }, text = { 0 };
    struct seam_str s;
    int rc;

    seam_buf_str(&line, "[[");
    for (size_t i = 0; i < ids->n; i++) {
        seam_buf_fmt(&line, "%s%d", i ? "," : "", ids->v[i]);
        if (seam_tokenizer_bytes(t, ids->v[i], &s))
            seam_detok_add(&d, s.p, s.n, &text);
    }
    seam_detok_end(&d, &text);
    seam_buf_str(&line, "],");
    seam_buf_json(&line, text.p ? text.p : "", text.n);
    seam_buf_str(&line, "]\n");
    rc = line.failed || text.failed ||
         fwrite(line.p, 1, line.n, stdout) != line.n;
    seam_buf_release(&line);
    seam_buf_release(&text);
    return rc;
}

static int dump_line(const struct seam_tokenizer *t, const char *line, size_t n,
                     struct seam_error *err)
{
    json_t *v = seam_json_parse(line, n, "line", 0, err);
    const json_t *text = json_array_get(v, 0);
    struct seam_ids ids = { 0 };
    int rc = -1;

    if (!json_is_string(text))
        goto out;
    rc = seam_tokenizer_encode(t, json_string_value(text),
                               json_string_length(text),
                               json_is_true(json_array_get(v, 1)), &ids, err);
    if (!rc)
        rc = dump_answer(t, &ids);
out:
    seam_ids_release(&ids);
    json_decref(v);
    return rc;
}

int main(int argc, char **argv)
{
    struct seam_tokenizer *t = NULL;
    struct seam_error err = { .text =
                                  "usage: tok_dump TOKENIZER.JSON < LINES" };
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int rc = argc == 2 ? seam_tokenizer_open(&t, argv[1], &err) : -1;

    while (!rc && (n = getline(&line, &cap, stdin)) > 0)
        rc = dump_line(t, line, (size_t)n, &err);
    if (rc)
        fprintf(stderr, "tok_dump: %s\n", err.text);
    free(line);
    seam_tokenizer_free(t);
    return rc ? 1 : 0;
}
