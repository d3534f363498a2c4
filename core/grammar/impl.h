/* The inside of core/grammar: the automaton, and the vocabulary it is run on.
 *
 * A rule is a deterministic automaton over three kinds of symbols: bytes, added
 * tokens, and calls of rules.  Running it keeps a set of configurations (state,
 * count, stack), more than one where rules that are called overlap.  Long
 * counted repetitions are loops with a counter, kept in the configuration and,
 * during a call, in the stack frame. */
#ifndef SEAM_GRAMMAR_IMPL_H
#define SEAM_GRAMMAR_IMPL_H

#include <stdatomic.h>
#include <string.h>

#include "core/grammar/grammar.h"

#define G_NONE UINT32_MAX
/* Frames on a stack.  What would nest deeper is not allowed; see g_state.need,
 * which keeps that from becoming a dead end. */
#define G_MAX_DEPTH 128
/* Bytes of a token of text. */
#define G_MAX_TOKEN 1024

/* ---- Vocabulary ---------------------------------------------------------- */

/* Nodes in depth-first order; a node's children follow it. */
struct g_node {
    uint32_t end;        /* index behind its descendants */
    uint32_t tok_before; /* its tokens are ids[tok_before, ... + n_tok), those
                            of its descendants follow */
    uint16_t n_tok;      /* more than one when ids have equal bytes */
    uint8_t byte;
};

struct g_trie {
    struct g_node *node; /* node[0] is the root */
    uint32_t n;
    int32_t *ids;
    uint32_t n_ids;
};

/* Tokens that are whole characters, none of them a control, '"', '\\' or '<',
 * are "plain": in most strings all of them are allowed, so that they need not
 * be walked byte by byte. */
#define G_PLAIN_MAX 16

struct g_plain {
    int32_t id;
    uint32_t n_chars;
};

enum { G_TOKEN_NONE = 0, G_TOKEN_TEXT, G_TOKEN_ADDED, G_TOKEN_STOP };

struct g_cache;

struct seam_vocab {
    const struct seam_tokenizer *t;
    uint32_t n_rows, n_words;
    uint32_t max_len;  /* bytes of the longest text token */
    uint32_t n_single; /* different ones of one byte */
    uint8_t *kind;     /* [n_rows] G_TOKEN_* */
    int32_t *stop;     /* [n_stop] */
    uint32_t n_stop;
    struct g_trie even; /* plain tokens */
    struct g_trie rest; /* other text tokens */
    /* Rows 1 to G_PLAIN_MAX: plain tokens of at most so many characters; the
     * last: all of them. */
    uint32_t *plain;      /* [G_PLAIN_MAX + 2][n_words] */
    struct g_plain *more; /* [n_more] longer ones, by length */
    uint32_t n_more;
    struct g_cache *shared; /* masks of rules that all grammars have */
};

static inline bool g_is_plain_ascii(uint32_t c)
{
    return c >= 0x20 && c < 0x80 && c != '"' && c != '\\' && c != '<';
}

/* ---- Automaton ----------------------------------------------------------- */

enum {
    G_INC = 1,  /* one more round of the loop */
    G_MORE = 2, /* only while fewer rounds than the loop's max were made */
    G_DONE = 4  /* only when the loop's min is reached */
};

struct g_edge {
    uint8_t lo, hi; /* bytes */
    uint8_t flags;  /* G_INC, G_MORE, G_DONE */
    uint32_t to;
};

struct g_call {
    uint32_t rule; /* while building; then its first state */
    uint32_t ret;
    uint8_t flags;
};

struct g_added {
    int32_t id;
    uint32_t to;
    uint8_t flags;
};

struct g_loop {
    uint32_t min, max; /* rounds; max UINT32_MAX: any number */
    uint32_t at;       /* the state where a round begins */
};

enum {
    G_ACCEPT = 1,      /* the rule may end here */
    G_ACCEPT_DONE = 2, /* the same, once the loop's min is reached */
    G_TAIL = 4,        /* it ends here and nothing else */
    G_SIMPLE = 8,      /* bytes and added tokens only */
    G_LOOPS_PLAIN = 16 /* every plain character leads back here, and is a round
                          of its loop if it is in one */
};

struct g_state {
    uint32_t edge, call, added; /* first of each kind */
    uint32_t n_edges, n_calls, n_added;
    uint32_t loop;  /* its index + 1, or 0 */
    uint32_t dense; /* row of to[] + 1, when it has many edges; or 0 */
    uint16_t need;  /* frames that its shortest way to the end pushes */
    uint8_t flags;
    /* Rules that all grammars have in the same form: which, or 0, and the state
     * within it. */
    uint8_t shared;
    uint16_t local;
};

/* State 0 is the end of the grammar. */
struct g_auto {
    struct g_state *state;
    struct g_edge *edge; /* of a state: ascending, disjoint */
    struct g_call *call;
    struct g_added *added;
    struct g_loop *loop;
    uint32_t n_states, n_edges, n_calls, n_added, n_loops;
    uint32_t cap_states, cap_edges, cap_calls, cap_added, cap_loops;
};

void g_auto_release(struct g_auto *a);

/* ---- Remembered masks ---------------------------------------------------- */

/* Of a place in a trie: it is in vocab.rest, otherwise in vocab.even. */
#define G_IN_REST 0x80000000u

/* What a state allows, whatever the stack: tokens, and places in the trie where
 * the rule can end with bytes left over, which only the caller can judge. */
struct g_entry {
    uint32_t n_ids;  /* tokens as a list, or G_NONE: as a mask */
    uint32_t n_pops; /* places; G_NONE: too many */
    uint16_t peak;   /* frames above the state's own that must be free */
    uint16_t pad;
    uint32_t data[]; /* ids or words, then places */
};

struct g_cache {
    _Atomic uint64_t *key; /* [mask + 1], 0: free */
    _Atomic uint64_t *at;  /* [mask + 1] offset + 1 in mem; 0: not there */
    uint32_t mask;
    _Atomic uint32_t n_keys, n_entries;
    _Atomic uint64_t used;
    uint64_t bytes;
    unsigned char *mem;
};

int g_cache_init(struct g_cache *c, uint64_t bytes); /* ENOMEM */
void g_cache_release(struct g_cache *c);

struct seam_grammar {
    _Atomic int refs;
    const struct seam_vocab *v;
    struct g_auto a;
    uint32_t (*dense)[256];
    uint32_t n_dense;
    uint32_t start;
    uint32_t n_rules;
    struct g_cache cache;
};

#endif
