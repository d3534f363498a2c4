/* A host for parser plugins and nothing else: loads one with dlopen, answers
 * its questions from tables, and collects what it sends.  Used by the tests and
 * by render_dump; does not use the server's loader. */
#ifndef SEAM_TEST_PARSER_HOST_H
#define SEAM_TEST_PARSER_HOST_H

#include <seam/plugin.h>

#include <stdbool.h>
#include <stddef.h>

/* ---- Text ---------------------------------------------------------------- */

struct ptext {
    char *p; /* NUL-terminated once anything was appended */
    size_t n, cap;
};

void ptext_add(struct ptext *t, const char *p, size_t n);
void ptext_str(struct ptext *t, const char *s);
void ptext_release(struct ptext *t);

/* ---- Host ---------------------------------------------------------------- */

struct phost_setting {
    const char *key, *value; /* value "true" and "false" are also booleans    */
};

struct phost {
    /* What the plugin may ask for; to be set before phost_load. */
    const char *template_text; /* chat_template.jinja, or NULL               */
    size_t template_n;
    const struct phost_setting *settings; /* ended by a NULL key, or NULL     */
    const char *missing_token; /* the one token that does not exist          */

    struct ptext log; /* lines, "LEVEL text\n"                      */
    uint64_t counter[8];
    uint32_t n_counters;

    struct seam_host host;
    void *library;
    const struct seam_plugin *plugin;
    const struct seam_parser *parser;
    void *self;
};

/* Load DIR/NAME.so and make an instance; 0, or the code with *err filled. */
int phost_load(struct phost *h, const char *dir, const char *name,
               struct seam_error *err);
/* Make an instance of a plugin that is linked in. */
int phost_start(struct phost *h, const struct seam_plugin *plugin,
                struct seam_error *err);
void phost_unload(struct phost *h);

/* The prompt as text, with special pieces as they are spelled. */
int phost_render(struct phost *h, const char *request, size_t n,
                 struct ptext *out, struct seam_error *err);
/* The same with special pieces between 0x01 and 0x02. */
int phost_render_marked(struct phost *h, const char *request, size_t n,
                        struct ptext *out, struct seam_error *err);

/* ---- Parsing ------------------------------------------------------------- */

#define PMAX_CALLS 64

struct pcall {
    struct ptext name, args;
    uint32_t n_names, n_ends; /* how often the events came                    */
};

/* One generation.  events is the sequence as text, neighbouring events of one
 * kind and call joined: "T<bytes>" and so on, one "\x1e" behind each. */
struct pout {
    struct ptext reasoning, content, events;
    struct pcall call[PMAX_CALLS];
    uint32_t n_calls; /* highest index seen, plus one                       */
    uint32_t n_empty; /* events without bytes other than TOOL_END           */
    uint32_t n_bad;   /* events out of any order a client could follow      */
    uint32_t stop_after; /* the sink refuses the event of this number; 0: none*/
    uint32_t n_events;
    uint32_t last_kind, last_index;
    bool whole_characters; /* every event's bytes were valid UTF-8            */
};

void pout_release(struct pout *o);

/* A sink that collects into o; one that only adds up bytes. */
struct seam_sink phost_sink(struct pout *o);
struct seam_sink phost_counter(uint64_t *bytes);

struct pcase {
    const char *tools, *tail; /* NULL: none                                   */
    uint32_t flags, end;
};

/* Parse text[0, n) given in pieces that end at cut[0, n_cuts) and at n. */
int phost_parse(struct phost *h, const struct pcase *c, const char *text,
                size_t n, const size_t *cut, size_t n_cuts, struct pout *out,
                struct seam_error *err);
/* In pieces of `step` bytes. */
int phost_parse_steps(struct phost *h, const struct pcase *c, const char *text,
                      size_t n, size_t step, struct pout *out,
                      struct seam_error *err);

#endif
