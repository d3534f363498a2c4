/* A chat answer, streamed or not, in one form. */
#ifndef TESTS_HTTP_COLLECT_H
#define TESTS_HTTP_COLLECT_H

#include "tests/http/client.h"

#define MAX_CALLS 32

struct answer {
    int status;
    struct seam_buf content, reasoning;
    struct {
        char id[64];
        struct seam_buf name, args;
    } call[MAX_CALLS];
    unsigned n_calls;
    char finish[24];
    char error[128];      /* code of an error, also in mid-stream             */
    json_t *usage;        /* or NULL                                          */
    json_t *logprobs;     /* list of entries                                  */
    bool content_is_null; /* not streamed only                                */
    unsigned n_content, n_reasoning; /* deltas                                */
    bool done; /* [DONE] came                                      */
};

/* body is a JSON object without "stream".  Checks what holds for every stream:
 * order of chunks, constant ids, valid UTF-8, no empty deltas. */
void answer_stream(const char *url, const char *body, struct answer *a);
void answer_plain(const char *url, const char *body, struct answer *a);
void answer_release(struct answer *a);
/* Both ways; they must agree (ids apart).  The plain one is returned. */
void answer_both(const char *url, const char *body, struct answer *a);

/* {"messages":[{"role":"user","content":"hi"}],"seed":SEED,MORE} */
const char *ask(char *out, size_t cap, unsigned seed, const char *more);

#endif
