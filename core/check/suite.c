#include "core/check/suite.h"

#define BLOCKS    (CK_KIND(SEAM_KIND_ATTENTION) | CK_KIND(SEAM_KIND_MOE))
#define ATTENTION CK_KIND(SEAM_KIND_ATTENTION)

/* A finding ends its group, since what comes later there builds on it. */
const struct ck_test ck_tests[] = {
    { "file", "load", CK_ALL, false, true, ck_file_load },
    { "file", "object", CK_ALL, false, false, ck_file_object },
    { "file", "family", BLOCKS, false, false, ck_file_family },
    { "life", "order", CK_ALL, false, true, ck_life_order },
    { "life", "alloc", CK_ALL, false, false, ck_life_alloc },
    { "life", "weights", BLOCKS, false, false, ck_life_weights },
    { "life", "config", CK_ALL, false, false, ck_life_config },
    { "life", "limits", BLOCKS, false, false, ck_life_limits },
    { "memory", "steps", BLOCKS, false, false, ck_memory_steps },
    { "errors", "arguments", BLOCKS, false, false, ck_errors_block },
    { "graph", "repeat", BLOCKS, false, false, ck_graph_repeat },
    { "numbers", "twin", BLOCKS, true, false, ck_numbers_twin },
    { "numbers", "int4", BLOCKS, true, false, ck_numbers_int4 },
    { "state", "padding", BLOCKS, false, false, ck_state_padding },
    { "state", "cuts", BLOCKS, false, false, ck_state_cuts },
    { "state", "accept", ATTENTION, false, false, ck_state_accept },
    { "state", "snapshot", ATTENTION, false, false, ck_state_snapshot },
    { "state", "tenant", BLOCKS, false, false, ck_state_tenant },
    { "state", "random", BLOCKS, false, false, ck_state_random },
};
const size_t ck_n_tests = sizeof ck_tests / sizeof *ck_tests;
