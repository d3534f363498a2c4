/* Constrained decoding: what may come next, as a bit for each token.
 *
 * Three kinds of objects, each built on the one before:
 *
 *   seam_vocab    the tokens of one model as a trie of their bytes.  Built once
 *                 per model; immutable; any number of threads.
 *   seam_grammar  a compiled grammar: a pushdown automaton over bytes, in which
 *                 added tokens are symbols of their own.  Made from a JSON
 *                 schema or from the text notation of
 *                 docs/structured-output.md.  Counts its references; may be
 *                 shared by any number of matchers and threads.  It remembers
 *                 masks it has computed, in memory reserved when it was made
 *                 and without locks.
 *   seam_matcher  where one sequence stands in a grammar.  One thread at a
 *                 time.  accept, mask, rollback and can_end allocate nothing.
 *
 * A sequence under a constraint is driven so:
 *
 *   seam_matcher_new(&m, grammar, &err);           at submission
 *   (tokens up to and with </think> pass the matcher by)
 *   seam_matcher_mask(m, row, &err);               before each sampling
 *   seam_matcher_accept(m, id, &err);              after it, 1: taken
 *
 * The mask has the layout of seam_filter.mask.  Every mask leaves at least one
 * token, and what has been accepted up to a stop token is a word of the
 * grammar: a matcher never leads into a dead end.  What it cannot follow within
 * its fixed memory (a very ambiguous text grammar) is an error of that sequence
 * and never a wrong mask.
 *
 * With a drafter: seam_matcher_masks gives the rows for all positions of a
 * window and leaves the matcher where it was; then the tokens that were emitted
 * are accepted.  An engine that would rather walk uses accept and rollback. */
#ifndef SEAM_GRAMMAR_GRAMMAR_H
#define SEAM_GRAMMAR_GRAMMAR_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/error.h"
#include "core/tokenizer/tokenizer.h"

/* ---- The tokens ---------------------------------------------------------- */

struct seam_vocab;

/* n_rows is the width of the logits; rows without a token are never allowed.
 * The ids of stop[n_stop] end an answer: they are allowed exactly where the
 * grammar may end, and never as text.  t outlives the vocabulary.  EINVAL: a
 * stop id or a token is beyond n_rows, or a byte is not a token; ENOMEM.
 * [control] */
int seam_vocab_new(struct seam_vocab **v, const struct seam_tokenizer *t,
                   uint32_t n_rows, const int32_t *stop, uint32_t n_stop,
                   struct seam_error *err);
void seam_vocab_free(struct seam_vocab *v);
/* Compute the masks of JSON's own rules, which all grammars share.  ENOMEM.
 * [control] */
int seam_vocab_warm(struct seam_vocab *v, struct seam_error *err);
/* 32-bit words of a mask. */
uint32_t seam_vocab_words(const struct seam_vocab *v);

/* ---- Grammars ------------------------------------------------------------ */

struct seam_grammar;

enum {
    /* No white space between the tokens of JSON, instead of at most one blank
     * or one line end with indentation. */
    SEAM_GRAMMAR_COMPACT = 1
};

struct seam_grammar_opts {
    uint32_t flags;       /* SEAM_GRAMMAR_* */
    uint32_t reserved;    /* 0 */
    uint64_t cache_bytes; /* for remembered masks; 0: 8 MiB */
};

/* A JSON schema that a text grammar refers to as @name. */
struct seam_grammar_import {
    const char *name;
    const json_t *schema;
    const char *where; /* begins the messages about it */
    bool spaced;       /* with white space, in spite of SEAM_GRAMMAR_COMPACT */
};

/* JSON that conforms to the schema.  What of JSON Schema is not supported is
 * refused, never ignored: EDATA with the path of the keyword, which begins with
 * `where` ("response_format.json_schema.schema").  Compiling takes bounded time
 * and memory whatever the schema; what would need more is refused.  opts may be
 * NULL.  The schema is not kept.  EDATA, ENOMEM.  [any] */
int seam_grammar_schema(struct seam_grammar **g, const struct seam_vocab *v,
                        const json_t *schema, const char *where,
                        const struct seam_grammar_opts *opts,
                        struct seam_error *err);
/* Any JSON object.  [any] */
int seam_grammar_object(struct seam_grammar **g, const struct seam_vocab *v,
                        const struct seam_grammar_opts *opts,
                        struct seam_error *err);
/* The text notation; its start is the rule "root".  Messages are
 * "WHERE:LINE:COLUMN: reason".  [any] */
int seam_grammar_text(struct seam_grammar **g, const struct seam_vocab *v,
                      const char *text, size_t n, const char *where,
                      const struct seam_grammar_import *imports,
                      size_t n_imports, const struct seam_grammar_opts *opts,
                      struct seam_error *err);
/* Compute the masks of the states that an output can reach, so that no sampling
 * has to wait for one.  Stops when max_nodes places of the vocabulary have been
 * looked at (some ten million a second): the masks that are left are computed
 * when they are met.  ENOMEM.  [any] */
int seam_grammar_warm(struct seam_grammar *g, uint64_t max_nodes,
                      struct seam_error *err);
struct seam_grammar *seam_grammar_ref(struct seam_grammar *g); /* returns g */
void seam_grammar_unref(struct seam_grammar *g);               /* NULL: none */

struct seam_grammar_stats {
    uint32_t n_states, n_rules;
    uint64_t bytes; /* of the automaton and the table of masks */
    uint64_t cache_used, cache_bytes;
    uint32_t n_cached; /* masks remembered */
};
void seam_grammar_stats(const struct seam_grammar *g,
                        struct seam_grammar_stats *out);

/* ---- Matchers ------------------------------------------------------------ */

/* Tokens that can be taken back. */
#define SEAM_MATCHER_ROLLBACK 32

struct seam_matcher;

/* At the beginning of the grammar.  Holds a reference.  EDATA, ENOMEM. */
int seam_matcher_new(struct seam_matcher **m, struct seam_grammar *g,
                     struct seam_error *err);
void seam_matcher_free(struct seam_matcher *m);
/* A second matcher at the same place, with the same tokens to take back.
 * ENOMEM. */
int seam_matcher_clone(struct seam_matcher **copy, const struct seam_matcher *m,
                       struct seam_error *err);
void seam_matcher_reset(struct seam_matcher *m);
uint32_t seam_matcher_words(const struct seam_matcher *m); /* of a mask */

/* 1: taken; 0: the grammar does not allow it here, nothing has changed.  EDATA:
 * beyond the matcher's memory; nothing has changed. */
int seam_matcher_accept(struct seam_matcher *m, int32_t id,
                        struct seam_error *err);
/* Set the bits of exactly the tokens that accept would take, clear all others,
 * in row[seam_matcher_words].  EDATA: beyond the matcher's memory; ESTATE: a
 * stop token was accepted, nothing follows. */
int seam_matcher_mask(struct seam_matcher *m, uint32_t *row,
                      struct seam_error *err);
/* Rows for a window: rows[0] before draft[0], rows[i] after draft[0, i).  Stops
 * at the first draft that the grammar does not allow or that is a stop token:
 * what follows it cannot be emitted.  Returns the number of rows filled, 1 to
 * n + 1, or an error.  n is at most SEAM_MATCHER_ROLLBACK. */
int seam_matcher_masks(struct seam_matcher *m, const int32_t *draft, uint32_t n,
                       uint32_t *rows, struct seam_error *err);
/* Would a stop token be taken now? */
bool seam_matcher_can_end(const struct seam_matcher *m);
/* Was one taken? */
bool seam_matcher_ended(const struct seam_matcher *m);
/* Take the last n accepted tokens back, stop tokens included.  EINVAL when
 * fewer were accepted, or when n and what was taken back just before are more
 * than SEAM_MATCHER_ROLLBACK together. */
int seam_matcher_rollback(struct seam_matcher *m, uint32_t n);

#endif
