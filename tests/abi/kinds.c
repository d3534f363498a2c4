/* A plugin with the table of a backend, a drafter or an attention block, whose
 * functions all do nothing: the loader looks at tables, it does not call them.
 *
 * The tables are written as arrays of function pointers, so that a -D switch
 * can leave out one by its index. */
#include <seam/plugin.h>

#include <stddef.h>

#ifndef PLUG_NULL /* index of a table's function that is left out */
#define PLUG_NULL -1
#endif
#ifndef PLUG_NULL_OP /* the same for ops */
#define PLUG_NULL_OP -1
#endif
#ifndef PLUG_GRAPHS /* 0: none of the graph functions */
#define PLUG_GRAPHS 1
#endif
#ifndef PLUG_GROUPS /* 0: neither link nor sum */
#define PLUG_GROUPS 1
#endif
#ifndef PLUG_OPS
#define PLUG_OPS &ops
#endif
#ifndef PLUG_OPS_SIZE
#define PLUG_OPS_SIZE sizeof(struct seam_ops)
#endif

static void nothing(void)
{
}

#define OP(i) ((i) == PLUG_NULL_OP ? NULL : nothing)
#define FN(i) ((i) == PLUG_NULL ? NULL : nothing)

struct ops {
    uint32_t size, reserved;
    void (*fn[9])(void);
};
_Static_assert(sizeof(struct ops) == sizeof(struct seam_ops), "9 functions");

__attribute__((unused)) static const struct ops ops = {
    .size = PLUG_OPS_SIZE,
    .fn = { OP(0), OP(1), OP(2), OP(3), OP(4), OP(5),
            PLUG_GROUPS ? OP(6) : NULL, OP(7), OP(8) },
};

#if defined(PLUG_SPEC)
#define KIND       SEAM_KIND_SPEC
#define TABLE_TYPE struct seam_spec
struct table {
    uint32_t size, reserved;
    void (*fn[2])(void);
};
static const struct table table = {
    .size = sizeof(TABLE_TYPE),
    .fn = { FN(0), FN(1) },
};
#elif defined(PLUG_BLOCK)
#define KIND       PLUG_BLOCK
#define TABLE_TYPE struct seam_block
struct table {
    uint32_t size, reserved;
    void (*fn[3])(void);
};
static const struct table table = {
    .size = sizeof(TABLE_TYPE),
    .fn = { FN(0), FN(1), FN(2) },
};
#else
#define KIND       SEAM_KIND_BACKEND
#define TABLE_TYPE struct seam_backend
struct table {
    uint32_t size, reserved;
    const void *ops;
    void (*fn[18])(void);
};
#define GRAPH(i)   (PLUG_GRAPHS ? FN(i) : NULL)
static const struct table table = {
    .size = sizeof(TABLE_TYPE),
    .ops = PLUG_OPS,
    .fn = { FN(0), PLUG_GROUPS ? FN(1) : NULL, FN(2), FN(3), FN(4), FN(5),
            FN(6), FN(7), GRAPH(8), FN(9), FN(10), FN(11), FN(12), FN(13),
            GRAPH(14), GRAPH(15), GRAPH(16), FN(17) },
};
#endif
_Static_assert(sizeof(struct table) == sizeof(TABLE_TYPE), "one for each");

const struct seam_plugin seam_plugin_entry = {
    .ident = { SEAM_IDENT(KIND, TABLE_TYPE), .name = "kinds",
               .version = "1.0.0", .build = __VERSION__ },
    .table = &table,
    .init = (int (*)(const struct seam_host *, struct seam_error *))nothing,
    .create = (int (*)(const struct seam_create *, void **,
                       struct seam_error *))nothing,
    .destroy = (void (*)(void *))nothing,
};
