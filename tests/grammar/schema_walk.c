/* schema_walk TOKENIZER.JSON < LINES: schemas as grammars, as a filter.
 *
 * Each line is {"schema", "seed", "walks", "steps", "texts", "compact"}: it is
 * answered by {"error"} or by {"outputs", "unfinished", "accepted"}: random
 * words, how many walks found no end, and for each text whether it is one. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "walk.h"

struct tool {
    struct seam_tokenizer *t;
    struct seam_vocab *v;
    uint32_t *row;
};

static json_t *walks(struct tool *q, struct seam_matcher *m, const json_t *line,
                     struct seam_error *err)
{
    uint64_t seed = (uint64_t)json_integer_value(json_object_get(line, "seed"));
    json_int_t n = json_integer_value(json_object_get(line, "walks"));
    json_int_t steps = json_integer_value(json_object_get(line, "steps"));
    json_t *outputs = json_array(), *accepted = json_array(), *text;
    struct seam_buf out = { 0 };
    int unfinished = 0, rc = 1;
    size_t i;

    for (json_int_t k = 0; k < n && rc >= 0; k++) {
        seam_buf_clear(&out);
        seam_matcher_reset(m);
        rc = walk_random(m, q->t, q->row, &seed, steps ? (uint32_t)steps : 60,
                         &out, err);
        if (rc == 1)
            json_array_append_new(outputs,
                                  json_stringn(out.p ? out.p : "", out.n));
        else
            unfinished++;
    }
    json_array_foreach(json_object_get(line, "texts"), i, text)
    {
        json_array_append_new(accepted, json_boolean(walk_accepts(
                                            m, q->t, json_string_value(text),
                                            json_string_length(text))));
    }
    seam_buf_release(&out);
    if (rc < 0) {
        json_decref(outputs);
        json_decref(accepted);
        return json_pack("{s:s}", "failure", err->text);
    }
    return json_pack("{s:o,s:i,s:o}", "outputs", outputs, "unfinished",
                     unfinished, "accepted", accepted);
}

static json_t *answer(struct tool *q, const char *text, size_t n)
{
    struct seam_error err = { .text = "" };
    struct seam_grammar_opts opts = { 0 };
    struct seam_grammar *g = NULL;
    struct seam_matcher *m = NULL;
    json_t *line = seam_json_parse(text, n, "line", SEAM_JSON_BIG_INT, &err);
    json_t *out;

    if (json_is_true(json_object_get(line, "compact")))
        opts.flags = SEAM_GRAMMAR_COMPACT;
    if (line &&
        !seam_grammar_schema(&g, q->v, json_object_get(line, "schema"),
                             "schema", &opts, &err) &&
        !seam_matcher_new(&m, g, &err))
        out = walks(q, m, line, &err);
    else
        out = json_pack("{s:s}", "error", err.text);
    seam_matcher_free(m);
    seam_grammar_unref(g);
    json_decref(line);
    return out;
}

int main(int argc, char **argv)
{
    struct seam_error err = { .text = "usage: schema_walk TOKENIZER.JSON" };
    struct tool q = { 0 };
    int32_t stop;
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int rc = argc == 2 ? seam_tokenizer_open(&q.t, argv[1], &err) : -1;

    if (!rc) {
        stop = seam_tokenizer_id(q.t, "<|endoftext|>", 13);
        rc =
            seam_vocab_new(&q.v, q.t, seam_tokenizer_size(q.t), &stop, 1, &err);
    }
    if (!rc) {
        q.row = calloc(seam_vocab_words(q.v), sizeof *q.row);
        rc = q.row ? 0 : -1;
    }
    while (!rc && (n = getline(&line, &cap, stdin)) > 0) {
        json_t *out = answer(&q, line, (size_t)n);

        rc = json_dumpf(out, stdout, JSON_COMPACT) || putchar('\n') == EOF ||
             fflush(stdout);
        json_decref(out);
    }
    if (rc)
        fprintf(stderr, "schema_walk: %s\n", err.text);
    free(line);
    free(q.row);
    seam_vocab_free(q.v);
    seam_tokenizer_free(q.t);
    return rc ? 1 : 0;
}
