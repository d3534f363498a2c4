/* bench_mask [TOKENIZER.JSON]: what masks cost, per token.
 *
 * Runs each grammar along fixed texts over a made vocabulary of 154,880 tokens
 * and over that of the nano model (or the one given), and prints microseconds
 * of CPU time per mask: the first time each place of the text is met, and later
 * (the median of each place).  All that once with nothing computed ahead, and
 * once as the server does it. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/json.h"
#include "core/grammar/compiled.h"

#define NANO    SEAM_TEST_SOURCE_DIR "/models/nano/bf16/tokenizer.json"
#define N_ROWS  154880
#define PASSES  20
#define MAX_IDS 20000

/* ---- A vocabulary of the real size --------------------------------------- */

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* p[0, n) in the vocabulary's spelling: bytes that are not printable ASCII or
 * Latin-1 stand as letters from U+0100 on. */
static void spell(struct seam_buf *out, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        unsigned cp = c, other = 0;

        if (!((c >= 33 && c <= 126) || (c >= 161 && c != 173))) {
            for (unsigned b = 0; b < c; b++)
                other += !((b >= 33 && b <= 126) || (b >= 161 && b != 173));
            cp = 256 + other;
        }
        if (cp < 0x80) {
            char one = (char)cp;

            seam_buf_add(out, &one, 1);
        } else {
            char two[2] = { (char)(0xc0 | cp >> 6),
                            (char)(0x80 | (cp & 0x3f)) };

            seam_buf_add(out, two, 2);
        }
    }
}

static int add_piece(json_t *vocab, const char *p, size_t n)
{
    struct seam_buf name = { 0 };

    spell(&name, p, n);
    if (name.p && !json_object_get(vocab, name.p))
        json_object_set_new(vocab, name.p,
                            json_integer((json_int_t)json_object_size(vocab)));
    seam_buf_release(&name);
    return json_object_size(vocab) < N_ROWS - 40;
}

/* About what a vocabulary trained on text and code has: words with and without
 * a blank before them, numbers, runs, punctuation, Chinese, Cyrillic, pieces of
 * characters. */
static json_t *make_vocab(void)
{
    static const char letters[] = "etaoinshrdlucmfwypvbgkjqxz";
    static const char marks[] = "\"\"\"',.:;()[]{}<>/\\=+-*!?#$%&|_@`~\n\t ";
    json_t *vocab = json_object();
    uint32_t r = 1;
    char text[256];

    for (int i = 0; i < 256; i++) {
        text[0] = (char)i;
        add_piece(vocab, text, 1);
    }
    for (int i = 0; i < 1110; i++)
        add_piece(vocab, text,
                  (size_t)snprintf(text, sizeof text, "%0*d",
                                   i < 10    ? 1
                                   : i < 110 ? 2
                                             : 3,
                                   i < 10    ? i
                                   : i < 110 ? i - 10
                                             : i - 110));
    for (int n = 2; n <= 128; n++)
        for (const char *c = " \n\t=-_*#"; *c; c++) {
            memset(text, *c, (size_t)n);
            if (n <= 16 || *c == ' ' || n % 16 == 0)
                add_piece(vocab, text, (size_t)n);
        }
    for (int i = 0; i < 12000; i++) { /* punctuation, some with a word */
        size_t n = 0, k = 2 + next_random(&r) % 3;

        while (n < k)
            text[n++] = marks[next_random(&r) % (sizeof marks - 1)];
        for (k = next_random(&r) % 2 * (2 + next_random(&r) % 5); k; k--)
            text[n++] = letters[next_random(&r) % 26];
        add_piece(vocab, text, n);
    }
    for (;;) {
        uint32_t kind = next_random(&r) % 100, k;
        size_t n = 0;

        if (kind < 62) {
            if (next_random(&r) % 2)
                text[n++] = ' ';
            for (k = 2 + next_random(&r) % 9; k; k--)
                text[n++] = letters[next_random(&r) % (10 + k) % 26];
            if (next_random(&r) % 4 == 0)
                text[n > 1] = (char)(text[n > 1] & ~0x20);
        } else if (kind < 90) {
            for (k = 1 + next_random(&r) % 4; k; k--) {
                uint32_t cp = 0x4e00 + next_random(&r) % 8000;

                text[n++] = (char)(0xe0 | cp >> 12);
                text[n++] = (char)(0x80 | (cp >> 6 & 0x3f));
                text[n++] = (char)(0x80 | (cp & 0x3f));
            }
            if (next_random(&r) % 20 == 0)
                n--; /* a character that is not whole */
        } else {
            for (k = 2 + next_random(&r) % 6; k; k--) {
                uint32_t cp = 0x430 + next_random(&r) % 32;

                text[n++] = (char)(0xc0 | cp >> 6);
                text[n++] = (char)(0x80 | (cp & 0x3f));
            }
        }
        if (!add_piece(vocab, text, n))
            return vocab;
    }
}

static struct seam_tokenizer *make_tokenizer(void)
{
    static const char *const added[] = { "<|endoftext|>", "<tool_call>",
                                         "</tool_call>",  "<arg_key>",
                                         "</arg_key>",    "<arg_value>",
                                         "</arg_value>" };
    struct seam_error err;
    json_t *doc = seam_json_file(NANO, 1 << 26, &err), *list = json_array();
    json_t *model = json_object_get(doc, "model");
    struct seam_tokenizer *t = NULL;
    char *text;

    json_object_set_new(model, "vocab", make_vocab());
    json_object_set_new(model, "merges", json_array());
    for (size_t i = 0; i < sizeof added / sizeof *added; i++)
        json_array_append_new(
            list, json_pack("{s:i,s:s,s:b,s:b,s:b,s:b,s:b}", "id",
                            N_ROWS - 24 + (int)i, "content", added[i],
                            "single_word", 0, "lstrip", 0, "rstrip", 0,
                            "normalized", 0, "special", 0));
    json_object_set_new(doc, "added_tokens", list);
    text = json_dumps(doc, JSON_COMPACT);
    json_decref(doc);
    if (seam_tokenizer_parse(&t, "made", text, strlen(text), &err)) {
        fprintf(stderr, "bench_mask: %s\n", err.text);
        exit(1);
    }
    free(text);
    return t;
}

/* ---- Grammars and texts -------------------------------------------------- */

static const char tools[] =
    "@never \"</arg_value>\" \"<arg_key>\" \"</tool_call>\"\n"
    "root ::= <tool_call> \"search\" <arg_key> \"query\" </arg_key> "
    "<arg_value> @text </arg_value> <arg_key> \"limit\" </arg_key> "
    "<arg_value> @integer </arg_value> </tool_call>";

static const struct {
    const char *name;
    const char *schema; /* NULL: any object; "": the text grammar above */
    const char *text;
} runs[] = {
    { "json_object", NULL,
      "{\"name\": \"A sentence of some length, with \\\"quotes\\\" in it\", "
      "\"list\": [1, 2.5, true, null, {\"x\": {\"y\": [[], \"z\"]}}], "
      "\"text\": \"\xe6\x9e\x97\xe6\x9e\x97 and more\"}" },
    { "flat object",
      "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"},"
      "\"days\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":14},\"unit\":{"
      "\"enum\":[\"celsius\",\"fahrenheit\"]},\"hourly\":{\"type\":\"boolean\"}"
      "},\"required\":[\"city\",\"days\",\"unit\",\"hourly\"],"
      "\"additionalProperties\":false}",
      "{\"city\": \"Berlin an der Spree\", \"days\": 12, \"unit\": "
      "\"celsius\", \"hourly\": false}" },
    { "bounded strings",
      "{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"string\","
      "\"pattern\":\"^[a-z0-9-]{1,40}$\"},\"title\":{\"type\":\"string\","
      "\"minLength\":1,\"maxLength\":80},\"note\":{\"type\":\"string\","
      "\"maxLength\":2000}},\"required\":[\"id\",\"title\",\"note\"]}",
      "{\"id\": \"the-little-book-17\", \"title\": \"A title that comes near "
      "to eighty characters, but does not quite reach that\", \"note\": "
      "\"something longer, which is nowhere near its limit of characters\"}" },
    { "recursive tree",
      "{\"$defs\":{\"node\":{\"type\":\"object\",\"properties\":{\"value\":{"
      "\"type\":\"string\"},\"children\":{\"type\":\"array\",\"items\":{"
      "\"$ref\":\"#/$defs/node\"}}},\"required\":[\"value\",\"children\"]}},"
      "\"$ref\":\"#/$defs/node\"}",
      "{\"value\": \"root\", \"children\": [{\"value\": \"left\", "
      "\"children\": []}, {\"value\": \"right\", \"children\": [{\"value\": "
      "\"leaf of the right\", \"children\": []}]}]}" },
    { "unions",
      "{\"type\":\"array\",\"items\":{\"anyOf\":[{\"type\":\"object\","
      "\"properties\":{\"kind\":{\"const\":\"text\"},\"text\":{\"type\":"
      "\"string\"}},\"required\":[\"kind\",\"text\"]},{\"type\":\"object\","
      "\"properties\":{\"kind\":{\"const\":\"link\"},\"url\":{\"type\":"
      "\"string\",\"format\":\"uri\"}},\"required\":[\"kind\",\"url\"]},{"
      "\"type\":\"string\"},{\"type\":\"number\"}]}}",
      "[{\"kind\": \"text\", \"text\": \"words of it\"}, {\"kind\": \"link\", "
      "\"url\": \"https://example.org/a/b?c=d\"}, \"plain\", 12.5]" },
    { "formats",
      "{\"type\":\"object\",\"properties\":{\"mail\":{\"type\":\"string\","
      "\"format\":\"email\"},\"at\":{\"type\":\"string\",\"format\":\"date-time\"},"
      "\"id\":{\"type\":\"string\",\"format\":\"uuid\"},\"host\":{\"type\":"
      "\"string\",\"format\":\"hostname\"},\"ip\":{\"type\":\"string\",\"format\":"
      "\"ipv4\"},\"price\":{\"type\":\"number\",\"minimum\":0,\"maximum\":1000}},"
      "\"required\":[\"mail\",\"at\",\"id\",\"host\",\"ip\",\"price\"]}",
      "{\"mail\": \"first.last@mail.example.org\", \"at\": "
      "\"2026-11-03T09:30:00.25+01:00\", \"id\": "
      "\"123e4567-e89b-42d3-a456-426614174000\", \"host\": "
      "\"www.example.org\", \"ip\": \"192.0.2.17\", \"price\": 129.95}" },
    { "patterns",
      "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\","
      "\"pattern\":\"^[A-Za-z_][A-Za-z0-9_]{0,62}$\"},\"path\":{\"type\":"
      "\"string\",\"pattern\":\"^(/[^/ ]+)+$\"},\"free\":{\"type\":\"string\","
      "\"pattern\":\"[0-9]{2,4}\"},\"tags\":{\"type\":\"array\",\"items\":{"
      "\"type\":\"string\",\"minLength\":2,\"maxLength\":16},\"minItems\":1,"
      "\"maxItems\":20}},\"required\":[\"name\",\"path\",\"free\",\"tags\"]}",
      "{\"name\": \"next_free_Slot2\", \"path\": \"/usr/share/doc/seam\", "
      "\"free\": \"about 25 of them\", \"tags\": [\"fast\", \"small\", \"new "
      "one\"]}" },
    { "tool call", "", NULL },
};

struct bench {
    struct seam_tokenizer *t;
    struct seam_vocab *v;
    uint32_t *row;
    bool warm;
};

/* Of this thread, so that a busy machine does not show. */
static uint64_t cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int32_t added_id(const struct bench *q, const char *name)
{
    return seam_tokenizer_id(q->t, name, strlen(name));
}

/* The ids of a run's text. */
static void run_ids(const struct bench *q, size_t i, struct seam_ids *ids)
{
    static const char *const call[] = {
        "<tool_call>",
        "search",
        "<arg_key>",
        "query",
        "</arg_key>",
        "<arg_value>",
        "how do I <b>measure</b> this, and why?\n\tlike so",
        "</arg_value>",
        "<arg_key>",
        "limit",
        "</arg_key>",
        "<arg_value>",
        "25",
        "</arg_value>",
        "</tool_call>"
    };

    if (runs[i].text) {
        seam_tokenizer_encode(q->t, runs[i].text, strlen(runs[i].text), false,
                              ids, NULL);
        return;
    }
    for (size_t k = 0; k < sizeof call / sizeof *call; k++) {
        int32_t id = call[k][0] == '<' ? added_id(q, call[k]) : -1;

        if (id >= 0)
            seam_ids_add(ids, id);
        else
            seam_tokenizer_encode(q->t, call[k], strlen(call[k]), false, ids,
                                  NULL);
    }
}

static int double_order(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

/* The median of each place in later passes: what else the machine does is not
 * in it. */
static void later_medians(double *us, size_t n)
{
    double one[PASSES];

    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < PASSES; k++)
            one[k] = us[k * n + i];
        qsort(one, PASSES, sizeof *one, double_order);
        us[i] = one[PASSES / 2];
    }
}

static void report(const char *name, double *us, size_t n)
{
    qsort(us, n, sizeof *us, double_order);
    printf("  %-12s median %8.2f  p99 %8.2f  max %8.2f us\n", name, us[n / 2],
           us[n * 99 / 100], us[n - 1]);
}

static int run(const struct bench *q, size_t i)
{
    static double first[MAX_IDS], later[MAX_IDS * PASSES];
    struct seam_error err = { .text = "" };
    struct seam_grammar_stats stats;
    struct seam_grammar *g = NULL;
    struct seam_matcher *m = NULL;
    struct seam_ids ids = { 0 };
    json_t *schema = NULL;
    uint64_t t0 = cpu_ns(), t1, t2;
    size_t n_first = 0, n_later = 0;
    int rc;

    if (!runs[i].schema) {
        rc = seam_grammar_object(&g, q->v, NULL, &err);
    } else if (!runs[i].schema[0]) {
        rc = seam_grammar_text(&g, q->v, tools, strlen(tools), "tools", NULL, 0,
                               NULL, &err);
    } else {
        schema = seam_json_parse(runs[i].schema, strlen(runs[i].schema),
                                 runs[i].name, 0, &err);
        rc = schema ? seam_grammar_schema(&g, q->v, schema, runs[i].name, NULL,
                                          &err)
                    : -1;
    }
    t1 = cpu_ns();
    if (!rc && q->warm)
        rc = seam_grammar_warm(g, SEAM_COMPILED_NODES, &err);
    t2 = cpu_ns();
    if (!rc)
        rc = seam_matcher_new(&m, g, &err);
    run_ids(q, i, &ids);
    for (int pass = 0; !rc && pass <= PASSES; pass++) {
        seam_matcher_reset(m);
        for (size_t k = 0; !rc && k <= ids.n && k < MAX_IDS; k++) {
            uint64_t a = cpu_ns();

            rc = seam_matcher_mask(m, q->row, &err);
            if (pass)
                later[n_later++] = (double)(cpu_ns() - a) * 1e-3;
            else
                first[n_first++] = (double)(cpu_ns() - a) * 1e-3;
            if (k < ids.n && seam_matcher_accept(m, ids.v[k], &err) != 1)
                rc = seam_fail(&err, -1, "token %zu (%d) is not allowed", k,
                               ids.v[k]);
        }
    }
    if (!rc) {
        seam_grammar_stats(g, &stats);
        printf("%s: %zu tokens, compiled in %.2f ms, masks in %.2f ms, %u "
               "states, %llu KiB, %u masks in %llu KiB\n",
               runs[i].name, ids.n, (double)(t1 - t0) * 1e-6,
               (double)(t2 - t1) * 1e-6, stats.n_states,
               (unsigned long long)stats.bytes >> 10, stats.n_cached,
               (unsigned long long)stats.cache_used >> 10);
        report("first pass", first, n_first);
        later_medians(later, n_first);
        report("later", later, n_first);
    } else {
        printf("%s: %s\n", runs[i].name, err.text);
    }
    json_decref(schema);
    seam_ids_release(&ids);
    seam_matcher_free(m);
    seam_grammar_unref(g);
    return rc;
}

static int run_all(struct seam_tokenizer *t, uint32_t n_rows)
{
    struct bench q = { .t = t };
    struct seam_error err;
    int32_t stop = added_id(&q, "<|endoftext|>");
    uint64_t t0 = cpu_ns();
    int rc = seam_vocab_new(&q.v, t, n_rows, &stop, stop >= 0, &err);

    if (rc) {
        fprintf(stderr, "bench_mask: %s\n", err.text);
        return rc;
    }
    printf("== %u rows, %u tokens, vocabulary built in %.1f ms\n", n_rows,
           seam_tokenizer_size(t), (double)(cpu_ns() - t0) * 1e-6);
    q.row = calloc(seam_vocab_words(q.v), sizeof *q.row);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        rc = run(&q, i) ? -1 : rc;
    t0 = cpu_ns();
    rc = seam_vocab_warm(q.v, &err) ? -1 : rc;
    printf("-- as the server does it: masks computed ahead, those of the "
           "vocabulary in %.2f ms\n",
           (double)(cpu_ns() - t0) * 1e-6);
    q.warm = true;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        rc = run(&q, i) ? -1 : rc;
    free(q.row);
    seam_vocab_free(q.v);
    return rc;
}

int main(int argc, char **argv)
{
    struct seam_tokenizer *t = make_tokenizer();
    struct seam_error err;
    int rc = run_all(t, N_ROWS);

    seam_tokenizer_free(t);
    if (seam_tokenizer_open(&t, argc > 1 ? argv[1] : NANO, &err)) {
        fprintf(stderr, "bench_mask: %s\n", err.text);
        return 1;
    }
    rc = run_all(t, argc > 1 ? seam_tokenizer_size(t) : 6144) ? -1 : rc;
    seam_tokenizer_free(t);
    return rc ? 1 : 0;
}
