/* What prefix_child does and test_killed expects. */
#ifndef TESTS_ENGINE_KILLED_H
#define TESTS_ENGINE_KILLED_H

enum {
    KILLED_N = 12,    /* conversations */
    KILLED_TURNS = 3, /* of each */
    KILLED_GEN = 6,   /* ids of an answer */
    KILLED_MAX = 200  /* tokens of a conversation */
};

#endif
