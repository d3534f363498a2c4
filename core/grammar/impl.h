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

/* Characters fall into classes, a bit each, so that "this token holds nothing
 * but such characters" is one comparison.  All but the last two are ASCII. */
enum { G_CLASS_WIDE = 43, G_CLASS_BROKEN = 44, G_N_CLASSES = 45 };

static inline uint32_t g_class_of(uint32_t c)
{
    if (c < 0x20)
        return c == '\t' ? 1 : c == '\n' ? 2 : c == '\r' ? 3 : 0;
    if (c < '0')
        return 10 + c - 0x20;
    if (c <= '9')
        return 5;
    if (c < 'A')
        return 26 + c - ':';
    if (c <= 'Z')
        return c <= 'F' ? 8 : 9;
    if (c < 'a')
        return 33 + c - '[';
    if (c <= 'z')
        return c <= 'f' ? 6 : 7;
    if (c < 0x7f)
        return 39 + c - '{';
    return c == 0x7f ? 4 : G_CLASS_WIDE;
}

/* Nodes in depth-first order; a node's children follow it. */
struct g_node {
    uint64_t tokens; /* classes in the tokens here and below, whole tokens */
    uint64_t below;  /* classes of what follows this place in them; all bits
                        when this is not between two characters */
    uint32_t end;    /* index behind its descendants */
    uint32_t tok_before; /* its tokens are ids[tok_before, ... + n_tok), those
                            of its descendants follow */
    uint16_t n_tok;      /* more than one when ids have equal bytes */
    uint8_t byte;
    uint8_t n_chars; /* most of the tokens here and below; at most 255 */
};

struct g_trie {
    struct g_node *node; /* node[0] is the root */
    uint32_t n;
    int32_t *ids;
    uint32_t n_ids;
};

/* Lengths in characters up to which there is a row of its own. */
#define G_SHORT_MAX 16

struct g_long {
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
    struct g_trie trie; /* text tokens */
    uint32_t root[256]; /* the root's child of a byte, or 0 */
    uint32_t *has; /* [G_N_CLASSES][n_words] tokens with such a character */
    /* Tokens of whole characters: rows 0 to G_SHORT_MAX those of at most so
     * many, the last row all of them. */
    uint32_t *whole;     /* [G_SHORT_MAX + 2][n_words] */
    struct g_long *more; /* [n_more] longer ones, by length */
    uint32_t n_more;
    struct g_cache *shared; /* masks of rules that all grammars have */
};

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
    G_COUNTS = 16,     /* each character that leads back here is a round */
    G_PAIR = 32        /* the rule can end here and in most tokens that go on:
                          remembered together with where it was called */
};

struct g_state {
    uint64_t loops;             /* classes of characters that lead back here */
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

/* Counts in a mask that is to be remembered: not known, but this much more. */
#define G_SYMBOLIC 0x80000000u
/* g_entry.n_bulk: any number; as many as the loop's rounds are left. */
#define G_BULK_ALL    UINT16_MAX
#define G_BULK_ROUNDS (UINT16_MAX - 1)
/* Keys of rows of tokens of certain classes alone. */
#define G_KEY_BULK ((uint64_t)1 << 63)
/* Keys of what follows a rule when a token ends it. */
#define G_KEY_RETURN ((uint64_t)1 << 62)
/* Keys of states that end their rule where no byte can follow. */
#define G_KEY_LAST ((uint64_t)1 << 61)
/* No matter how many rounds there were. */
#define G_ANY_LO UINT16_MAX

/* Holds where at most lo rounds must still be made and at least hi may be. */
struct g_cond {
    uint16_t lo, hi;
};

/* A token, or a place in the trie, under a condition. */
struct g_when {
    uint32_t what;
    struct g_cond cond;
};

/* What a state allows, whatever the stack and the count: tokens, and places in
 * the trie where the rule can end with bytes left over, which only the caller
 * can judge. */
struct g_entry {
    uint32_t n_ids; /* tokens as a list, or G_NONE: as a mask */
    uint32_t n_when;
    uint32_t n_pops; /* places; G_NONE: too many */
    uint16_t peak;   /* frames above the state's own that must be free */
    uint16_t n_bulk; /* of the tokens in bulk, those of so many characters */
    const uint32_t *bulk; /* [n_words] or NULL: a row of this or the shared
                             cache */
    uint32_t data[];      /* ids or words, tokens and places with conditions */
};

struct g_cache {
    _Atomic uint64_t *key; /* [mask + 1], 0: free */
    _Atomic uint64_t *at;  /* [mask + 1] offset + 1 in mem; 0: not there */
    uint32_t mask;
    _Atomic uint32_t n_keys, n_entries;
    _Atomic uint64_t used;
    uint64_t bytes;
    unsigned char *mem; /* not touched before it is used */
};

/* For about n_keys keys.  ENOMEM. */
int g_cache_init(struct g_cache *c, uint64_t bytes, uint32_t n_keys);
void g_cache_release(struct g_cache *c);
/* The entry of a key, or NULL.  *slot: where to put it, G_NONE when it cannot
 * be remembered. */
const struct g_entry *g_cache_find(struct g_cache *c, uint64_t key,
                                   uint32_t *slot);
/* Room for n words of data, or NULL; then, when it is filled, g_cache_put. */
struct g_entry *g_cache_alloc(struct g_cache *c, uint64_t n);
void g_cache_put(struct g_cache *c, uint32_t slot, const struct g_entry *e);
bool g_cache_full(const struct g_cache *c, uint32_t n_words);

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
