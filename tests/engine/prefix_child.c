/* A process that talks to an engine with the second tier of the prefix cache
 * and says what it got, to be killed at any moment:
 *   prefix_child DIR SEED    the conversations in an order that SEED gives
 *   prefix_child - SEED      the same without a cache
 * A line for each answer: conversation, turn, tokens cached, the ids. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/engine/killed.h"
#include "tests/engine/talk.h"

static bool talk(struct talker *t, int c)
{
    int32_t prompt[KILLED_MAX], out[KILLED_GEN];
    unsigned seed = 1000 + (unsigned)c % 3;
    uint32_t n = 0, cached;

    /* Three beginnings, of which each conversation has one. */
    for (int i = 0; i < 90; i++)
        prompt[n++] = (int32_t)(rand_r(&seed) % 6000);
    seed = 7 + (unsigned)c;
    for (int turn = 0; turn < KILLED_TURNS; turn++) {
        for (int i = 0; i < 20; i++)
            prompt[n++] = i ? (int32_t)(rand_r(&seed) % 6000) : 6107;
        if (!talker_ask(t, prompt, n, c % 4 ? NULL : "salt", turn % 2 ? 1 : 0,
                        (uint64_t)c, KILLED_GEN, out, &cached))
            return false;
        printf("%d %d %u", c, turn, cached);
        for (int i = 0; i < KILLED_GEN; i++)
            printf(" %d", out[i]);
        printf("\n");
        fflush(stdout);
        memcpy(prompt + n, out, sizeof out);
        n += KILLED_GEN;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct seam_flag flags[4] = {
        { "engine.prefix_interval", "48" },
        { "engine.prefix_bytes", "1500000" },
        { "engine.prefix_dir", argc > 1 ? argv[1] : NULL },
        { "engine.prefix_disk_bytes", "12000000" },
    };
    bool cold = argc > 1 && !strcmp(argv[1], "-");
    unsigned seed = argc > 2 ? (unsigned)atol(argv[2]) : 0;
    int order[KILLED_N];
    struct seam_error err;
    struct talker t;
    bool ok = true;

    if (argc != 3)
        return 2;
    if (cold)
        flags[1].value = "0";
    if (!talker_open(&t, flags, cold ? 2 : 4, &err)) {
        fprintf(stderr, "prefix_child: %s\n", err.text);
        return 1;
    }
    for (int i = 0; i < KILLED_N; i++)
        order[i] = i;
    for (int i = KILLED_N; i > 1; i--) {
        int j = rand_r(&seed) % i, was = order[i - 1];

        order[i - 1] = order[j];
        order[j] = was;
    }
    printf("ready\n");
    fflush(stdout);
    for (int i = 0; ok && i < KILLED_N; i++)
        ok = talk(&t, order[i]);
    talker_close(&t);
    return ok ? 0 : 1;
}
