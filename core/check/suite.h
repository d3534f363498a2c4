/* The conformance kit of docs/abi.md, section 14: its tests, one function each.
 *
 * A test runs in a process of its own and ends it at its first finding
 * (ck_fail) or when it cannot be made here (ck_skip); returning is success.
 * The command seam check starts the processes and reports. */
#ifndef SEAM_CHECK_SUITE_H
#define SEAM_CHECK_SUITE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/check/block.h"
#include "core/check/drive.h"
#include "core/check/finding.h"
#include "core/check/world.h"

/* Names for th_plugin. */
#define CK_PLUGIN    "plugin"
#define CK_REFERENCE "reference"

struct ck_subject {
    const char *path;      /* of the plugin, absolute                         */
    const char *reference; /* of its twin, or NULL                            */
    const char *config;    /* its own block of the configuration, or NULL     */
    uint64_t seed;
    struct seam_ident ident;
    /* Found by the test file.family: the model that the plugin can be made
     * for.  0: none. */
    uint32_t family; /* enum world_kind                                 */
};

#define CK_ALL     (~0u)
#define CK_KIND(k) (1u << (k))

struct ck_test {
    const char *group, *name;
    uint32_t kinds; /* bits CK_KIND                                           */
    bool twin;      /* needs the reference                                    */
    bool basis;     /* a finding here makes all later ones meaningless        */
    void (*run)(const struct ck_subject *s);
};

extern const struct ck_test ck_tests[];
extern const size_t ck_n_tests;

/* ---- The program's ------------------------------------------------------- */

/* The test cannot be made here; the text says what is missing. */
_Noreturn void ck_skip(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));
/* Tell the parent what file.family found. */
void ck_family(uint32_t family);

/* ---- Groups -------------------------------------------------------------- */

void ck_file_load(const struct ck_subject *s);
void ck_file_object(const struct ck_subject *s);
void ck_file_family(const struct ck_subject *s);

void ck_life_order(const struct ck_subject *s);
void ck_life_alloc(const struct ck_subject *s);
void ck_life_weights(const struct ck_subject *s);
void ck_life_config(const struct ck_subject *s);
void ck_life_limits(const struct ck_subject *s);

void ck_memory_steps(const struct ck_subject *s);
void ck_graph_repeat(const struct ck_subject *s);
void ck_numbers_twin(const struct ck_subject *s);
void ck_numbers_int4(const struct ck_subject *s);
void ck_state_padding(const struct ck_subject *s);
void ck_state_cuts(const struct ck_subject *s);
void ck_state_accept(const struct ck_subject *s);
void ck_state_snapshot(const struct ck_subject *s);
void ck_state_tenant(const struct ck_subject *s);
void ck_state_random(const struct ck_subject *s);
void ck_errors_block(const struct ck_subject *s);

void ck_parser_cuts(const struct ck_subject *s);
void ck_parser_random(const struct ck_subject *s);
void ck_parser_sink(const struct ck_subject *s);
void ck_parser_streams(const struct ck_subject *s);
void ck_parser_threads(const struct ck_subject *s);
void ck_parser_moved(const struct ck_subject *s);
void ck_parser_linear(const struct ck_subject *s);
void ck_parser_render(const struct ck_subject *s);

void ck_threads_moved(const struct ck_subject *s);
void ck_threads_tasks(const struct ck_subject *s);
void ck_threads_workers(const struct ck_subject *s);
void ck_threads_instances(const struct ck_subject *s);

/* ---- What they share ----------------------------------------------------- */

/* A model for the plugin and the host that holds it; for kinds without one, an
 * empty world.  store 0: linear layers of all dtypes. */
struct th *ck_world(const struct ck_subject *s, struct world *w);

/* One instance of the plugin, being made. */
struct ck_made {
    struct th *h;
    const struct seam_plugin *p;
    struct seam_limits limits;
    struct seam_device device;
    struct seam_create create;
    uint32_t layer[1];
    void *self;
    struct seam_error err;
};
void ck_made_init(struct ck_made *m, struct th *h, const char *plugin);
/* create, with its contract of errors checked (E2, E5, E6); the code. */
int ck_made_create(struct ck_made *m);
void ck_made_destroy(struct ck_made *m);

/* Threads of this process. */
uint32_t ck_threads(void);

#endif
