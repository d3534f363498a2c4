/* A server in this process, in front of the script backend. */
#ifndef TESTS_HTTP_FIXTURE_H
#define TESTS_HTTP_FIXTURE_H

#include "core/server/server.h"
#include "tests/http/client.h"

/* Token ids with a meaning, the same as in the nano model. */
enum {
    TOK_EOS = 6107, /* <|user|> */
    TOK_THINK = 6121,
    TOK_UNTHINK = 6122,
    TOK_CALL = 6123,
    TOK_UNCALL = 6124,
    TOK_KEY = 6127,
    TOK_UNKEY = 6128,
    TOK_VALUE = 6129,
    TOK_UNVALUE = 6130,
    /* Instead of an id: */
    TOK_NAN = -1,
    TOK_FAIL = -2,
    TOK_LOST = -3
};

#define MAX_SCRIPTS 64

struct fixture {
    char dir[64];          /* of this test, removed at the end          */
    struct seam_buf vocab; /* "piece": id, ... of the tokenizer         */
    int32_t next_id;
    struct seam_buf scripts; /* JSON lists                                */
    unsigned n_scripts;
    int gate[2], trace[2]; /* pipes; -1: not used                       */
    bool gate_tokens;
    struct seam_config config;
    struct seam_log log;
    int log_pipe[2]; /* what the server logs                      */
    struct seam_buf log_text, trace_text;
    struct seam_engine *engine;
    struct seam_server *server;
    const char *url;
};

/* 1. */
void fixture_init(struct fixture *f);
/* 2. Any number: the token for a piece of bytes (single bytes exist already), a
 * script of tokens. The number returned is the seed that selects it. */
int32_t fixture_piece(struct fixture *f, const char *p, size_t n);
unsigned fixture_script(struct fixture *f, const int32_t *id, size_t n);
/* A script of text, one token per byte, with "\1" for the end of a turn and
 * tags as their tokens. */
unsigned fixture_text(struct fixture *f, const char *text);
/* A script of pieces separated by '|', each one token. */
unsigned fixture_pieces(struct fixture *f, const char *pieces);
/* Hold every step, or every token, until it is let. */
void fixture_gate_steps(struct fixture *f);
void fixture_gate_tokens(struct fixture *f);
void fixture_use_trace(struct fixture *f);
/* 3. extra: settings "key=value" of the server; script: more of the plugin's
 * configuration, such as ",\"delay_ms\":20", or NULL. */
void fixture_bind(struct fixture *f, const struct seam_flag *extra,
                  size_t n_extra, const char *script);
void fixture_start(struct fixture *f);
/* All of the above for one script of text. */
void fixture_open(struct fixture *f, const char *text);
void fixture_close(struct fixture *f);

/* Let n steps or tokens pass. */
void fixture_let(struct fixture *f, unsigned n);
/* Let all pass from now on. */
void fixture_open_gate(struct fixture *f);
/* Wait until n lines of the trace begin with what ("step", "sample 1 "). */
void fixture_wait_trace(struct fixture *f, const char *what, unsigned n);
/* How many there are now. */
unsigned fixture_count_trace(struct fixture *f, const char *what);
/* Take what has been logged: a full pipe would stop the server.  For loops that
 * ask until the answer changes. */
void fixture_take_log(struct fixture *f);
/* Wait until the log holds the text. */
void fixture_wait_log(struct fixture *f, const char *text);

/* Health is 200 and a known script gives its text (seed of fixture_text). */
void fixture_alive(struct fixture *f, unsigned seed, const char *content);

#endif
