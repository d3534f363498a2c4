#include "core/check/suite.h"

#include "core/check/backend.h"

#define BLOCKS    (CK_KIND(SEAM_KIND_ATTENTION) | CK_KIND(SEAM_KIND_MOE))
#define BACKEND   CK_KIND(SEAM_KIND_BACKEND)
#define PARSER    CK_KIND(SEAM_KIND_PARSER)
#define ATTENTION CK_KIND(SEAM_KIND_ATTENTION)
#define COMPUTING (BLOCKS | BACKEND)

/* ---- Backends ------------------------------------------------------------ */

#define OF_BACKEND(name, check)                         \
    static void name(const struct ck_subject *s)        \
    {                                                   \
        struct backend_check c = { .plugin = CK_PLUGIN, \
                                   .config = s->config, \
                                   .limit = 2e-5,       \
                                   .sample = 1e-4 };    \
                                                        \
        check(&c);                                      \
    }

OF_BACKEND(ck_backend_gemm, check_gemm)
OF_BACKEND(ck_backend_rows, check_rows)
OF_BACKEND(ck_backend_residual, check_residual_ops)
OF_BACKEND(ck_backend_sample, check_sample)
OF_BACKEND(ck_backend_filters, check_sample_filters)
OF_BACKEND(ck_backend_verify, check_verify)
OF_BACKEND(ck_backend_lossless, check_verify_lossless)
OF_BACKEND(ck_backend_device, check_device)
OF_BACKEND(ck_backend_refusals, check_refusals)

/* ---- The list ------------------------------------------------------------ */

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
    { "backend", "gemm", BACKEND, false, false, ck_backend_gemm },
    { "backend", "rows", BACKEND, false, false, ck_backend_rows },
    { "backend", "residual", BACKEND, false, false, ck_backend_residual },
    { "backend", "sample", BACKEND, false, false, ck_backend_sample },
    { "backend", "filters", BACKEND, false, false, ck_backend_filters },
    { "backend", "verify", BACKEND, false, false, ck_backend_verify },
    { "backend", "lossless", BACKEND, false, false, ck_backend_lossless },
    { "backend", "device", BACKEND, false, false, ck_backend_device },
    { "backend", "refusals", BACKEND, false, false, ck_backend_refusals },
    { "parser", "cuts", PARSER, false, false, ck_parser_cuts },
    { "parser", "random", PARSER, false, false, ck_parser_random },
    { "parser", "sink", PARSER, false, false, ck_parser_sink },
    { "parser", "streams", PARSER, false, false, ck_parser_streams },
    { "parser", "threads", PARSER, false, false, ck_parser_threads },
    { "parser", "moved", PARSER, false, false, ck_parser_moved },
    { "parser", "linear", PARSER, false, false, ck_parser_linear },
    { "parser", "render", PARSER, false, false, ck_parser_render },
    { "threads", "moved", COMPUTING, false, false, ck_threads_moved },
    { "threads", "tasks", COMPUTING, false, false, ck_threads_tasks },
    { "threads", "workers", COMPUTING, false, false, ck_threads_workers },
    { "threads", "instances", COMPUTING, false, false, ck_threads_instances },
};
const size_t ck_n_tests = sizeof ck_tests / sizeof *ck_tests;
