/* seam/plugin.h - the contract between the seam server and its plugins.
 *
 * One plugin is one shared object that exports one symbol, seam_plugin_entry.
 * This header is all a plugin needs; it includes <stdint.h> and nothing else,
 * and compiles as C11, C17 and C++17.  64-bit little-endian targets only.
 *
 * Rules that hold everywhere:
 *  - A struct whose first member is `size` grows at its tail in minor versions.
 *    Whoever owns the memory sets `size`; the other side reads or writes only
 *    what lies within it (SEAM_HAS).  Such structs are passed by pointer, never
 *    by value and never in arrays.  Structs without `size` are frozen.
 *  - Enumerators are never renumbered.  Zero is never a valid kind or dtype.
 *  - Pointers received are borrowed until the call returns, except where said.
 *  - All text is UTF-8.  Sizes are bytes unless the name says otherwise.
 *  - Functions returning int return SEAM_OK or a negative SEAM_E* code.
 *
 * Thread tags (see "Threads" in the ABI guide):
 *  [control] one thread at a time per process; may block and allocate
 *  [submit]  one thread at a time per instance; must not block or allocate
 *  [request] one thread at a time per parser stream
 *  [worker]  inside a parallel_for body
 *  [any]     any thread, at any time, concurrently
 */
#ifndef SEAM_PLUGIN_H
#define SEAM_PLUGIN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version ------------------------------------------------------------ */

/* While the major is 0 nothing is promised: a server accepts only plugins of
 * its own minor. */
#define SEAM_ABI_MAJOR 0
#define SEAM_ABI_MINOR 1

/* Minor to build for; members newer than it are hidden. */
#ifndef SEAM_ABI_TARGET
#define SEAM_ABI_TARGET SEAM_ABI_MINOR
#endif

/* Lowest host minor the plugin runs on.  Set below the target, it obliges the
 * plugin to test newer members with SEAM_HAS. */
#ifndef SEAM_ABI_NEED
#define SEAM_ABI_NEED SEAM_ABI_TARGET
#endif

/* True when *p is recent enough to contain member m. */
#define SEAM_HAS(p, m) \
    ((uint64_t)((const char *)(&(p)->m + 1) - (const char *)(p)) <= (p)->size)

#if defined(_WIN32)
#error "seam plugins target ELF systems"
#endif
#define SEAM_EXPORT __attribute__((visibility("default")))

/* ---- Status ------------------------------------------------------------- */

enum {
    SEAM_OK       =  0,
    SEAM_EINVAL   = -1, /* the caller broke a documented precondition        */
    SEAM_ENOTSUP  = -2, /* valid, but this plugin does not implement it      */
    SEAM_ENOENT   = -3, /* no such key, weight or token                      */
    SEAM_ENOMEM   = -4, /* host or device memory exhausted                   */
    SEAM_EDATA    = -5, /* weights, config or input bytes are malformed      */
    SEAM_EDEVICE  = -6, /* the device runtime failed; see seam_error.native  */
    SEAM_ESTATE   = -7  /* call out of lifecycle order                       */
};

/* Filled by the callee when it returns an error; the memory is the caller's,
 * so nothing has to be freed and reporting cannot itself run out of memory.
 * text is one line without a final newline, NUL-terminated, never empty. */
struct seam_error {
    int32_t code;      /* the SEAM_E* value also returned                    */
    int32_t native;    /* hipError_t, errno, ... or 0                        */
    char    text[248]; /* what failed and, when known, how to mend it        */
};

/* A run of bytes, not NUL-terminated. */
struct seam_str {
    const char *p;
    uint64_t    n;
};

/* ---- Tensors ------------------------------------------------------------ */

enum {
    SEAM_F32 = 1, SEAM_F16 = 2, SEAM_BF16 = 3,
    SEAM_F8E4M3 = 4,     /* OCP "fn": no infinities, bias 7  (gfx950, gfx12) */
    SEAM_F8E5M2 = 5,
    SEAM_F8E4M3FNUZ = 6, /* bias 8, no negative zero         (gfx942)        */
    SEAM_F8E5M2FNUZ = 7,
    SEAM_I8 = 8, SEAM_U8 = 9, SEAM_I32 = 10, SEAM_I64 = 11,
    SEAM_I4 = 12,        /* two per byte, low nibble first                   */
    SEAM_F4E2M1 = 13,    /* two per byte, low nibble first                   */
    SEAM_E8M0 = 14,      /* power-of-two scale                               */
    SEAM_BLOCK_FIRST = 64 /* 64..127: block formats that carry their scales  */
};

enum {
    SEAM_Q_NONE  = 0, /* values stand for themselves                         */
    SEAM_Q_GROUP = 1, /* one scale per group_rows x group_cols block         */
    SEAM_Q_BLOCK = 2, /* scales are interleaved; dtype >= SEAM_BLOCK_FIRST   */
    SEAM_Q_GPTQ  = 3  /* I4 as GPTQ and AutoRound store it, read in place:
                         data  u32 [k/8][n], input i in bits 4*(i%8) of word
                               [i/8][n];
                         scale [k/group_cols][n], signed;
                         zero  u32 [k/group_cols][n/8], output n in bits
                               4*(n%8), holding the zero point minus one;
                         w[n][i] = scale * (q - (zero + 1)).  shape is [n, k],
                         stride is meaningless                                */
};

#define SEAM_MAX_RANK 4

/* A view of memory someone else owns.  Frozen, 112 bytes.
 * The last dimension is packed; the other strides are free, so a slice of a
 * fused projection is a tensor too.  What the core allocates is 64-byte
 * aligned; a view of a weight file only to its element size, because that is
 * all that checkpoint files promise. */
struct seam_tensor {
    void       *data;
    uint64_t    bytes;  /* addressable from data; lets a callee check bounds */
    int64_t     shape[SEAM_MAX_RANK];      /* elements; shape[0] is slowest  */
    int64_t     stride[SEAM_MAX_RANK - 1]; /* bytes, for dims 0 .. rank-2    */
    uint16_t    dtype;
    uint16_t    rank;                      /* 1 .. SEAM_MAX_RANK             */
    int32_t     device;                    /* -1: host memory                */
    uint16_t    quant;                     /* SEAM_Q_*                       */
    uint16_t    scale_dtype;               /* F32, F16, BF16 or E8M0         */
    uint32_t    group_rows, group_cols;    /* block sharing one scale        */
    uint32_t    reserved;                  /* 0                              */
    const void *scale;  /* [ceil(rows/group_rows)][ceil(cols/group_cols)],
                           packed; see SEAM_Q_GPTQ for its own layout         */
    const void *zero;   /* like scale, in dtype; NULL: symmetric             */
};

/* ---- What the host offers ----------------------------------------------- */

struct seam_cfg;   /* opaque: a read-only node of the configuration          */
struct seam_model; /* opaque: an open checkpoint                             */
struct seam_lent;

enum {
    SEAM_LOG_DEBUG = 1, SEAM_LOG_INFO = 2, SEAM_LOG_WARN = 3, SEAM_LOG_ERROR = 4
};
enum { SEAM_MEM_HOST = 1, SEAM_MEM_PINNED = 2, SEAM_MEM_DEVICE = 3 };
enum {
    SEAM_CFG_BOOL = 1, /* int32_t 0 or 1 */
    SEAM_CFG_I64  = 2, /* int64_t        */
    SEAM_CFG_F64  = 3, /* double         */
    SEAM_CFG_STR  = 4, /* seam_str       */
    SEAM_CFG_LEN  = 5  /* uint64_t: entries of a list or object              */
};

typedef void seam_task(void *arg, uint32_t i, uint32_t worker);

struct seam_host {
    uint32_t size;
    uint16_t abi_major, abi_minor; /* what this server implements            */
    uint32_t n_workers;            /* pool threads; fixed while loaded       */
    uint32_t reserved;
    void    *ctx;                  /* first argument of every function below */

    /* msg is one line, no newline.  [any] */
    void (*log)(void *ctx, uint32_t level, const char *msg);

    /* Memory of kind SEAM_MEM_* on `device` (ignored for HOST), aligned to
     * `align` (a power of two).  NULL when exhausted.  Charged to the plugin
     * in the server's accounts.  [control]; free: [control] */
    void *(*alloc)(void *ctx, uint32_t mem, int32_t device, uint64_t bytes,
                   uint64_t align);
    void (*free)(void *ctx, void *p);

    /* Run fn(arg, i, worker) for i in [0, n) on the pool and wait; worker is
     * in [0, n_workers), for indexing per-worker scratch.  The caller takes
     * part.  Which worker runs which i is not fixed, so results must not depend
     * on it.  Nested calls run serially on the calling worker.
     * [control] [submit] [worker] */
    void (*parallel_for)(void *ctx, uint32_t n, seam_task *fn, void *arg);

    /* A monotonic counter published as seam_plugin_<plugin>_<name>_total.
     * Returns its cell, valid until fini; add with a relaxed atomic.  [control] */
    uint64_t *(*counter)(void *ctx, const char *name, const char *unit);

    /* Read the value at `path` ("cache.slots", "layers[3].kind") below node
     * into *out, whose type `type` selects.  Strings live as long as node.
     * ENOENT: absent, *out untouched, so defaults are set beforehand.
     * EINVAL: present with another type; the host has logged the full path.
     * [control] */
    int (*cfg)(void *ctx, const struct seam_cfg *node, const char *path,
               uint32_t type, void *out);

    /* The model's own configuration, readable with cfg().  [control] */
    const struct seam_cfg *(*model_cfg)(void *ctx, const struct seam_model *m);

    /* Describe the weight called `name` as the checkpoint stores it.  mem HOST:
     * a read-only view of the file, for repacking; DEVICE: uploaded once and
     * shared by all who ask.  Names starting with '@' are roles, so that no
     * plugin knows a checkpoint's prefixes: "@embed" and "@head" [vocab,
     * d_model], "@norm" [d_model], "@layer.L.REST" for what layer L calls REST.
     * A linear layer is asked for by its module name, without ".weight": the
     * answer is [n_out, n_in], plain or with its quantisation.  All others
     * go by their full name.  The view lives until the instance is destroyed.
     * ENOENT, ENOMEM, EDATA.  [control] */
    int (*weight)(void *ctx, const struct seam_model *m, const char *name,
                  uint32_t mem, struct seam_tensor *out);

    /* A small file of the checkpoint's folder by its plain name, such as
     * "chat_template.jinja"; the text lives as long as the model.
     * ENOENT.  [control] */
    int (*file)(void *ctx, const struct seam_model *m, const char *name,
                struct seam_str *out);

    /* Id of the token spelled exactly `piece`, or SEAM_ENOENT.  [control] */
    int32_t (*token_id)(void *ctx, const struct seam_model *m,
                        const char *piece);

    /* For drafters built of the target's own parts: lend an instance of the
     * configured attention or moe plugin for layer `layer` of m.  To be called
     * in create.  ENOENT, ENOMEM.  [control] */
    int (*block)(void *ctx, const struct seam_model *m, uint32_t kind,
                 uint32_t layer, struct seam_lent *out);

    /* Interface registered under "name/revision", or NULL.  [control] */
    const void *(*extension)(void *ctx, const char *id);
};

/* ---- What an instance is made for --------------------------------------- */

struct seam_limits {
    uint32_t size;
    uint32_t act_dtype;   /* of x and y of every block: F32, F16 or BF16      */
    uint32_t max_seqs;    /* sequences in one step                            */
    uint32_t max_tokens;  /* token rows in one step                           */
    uint32_t max_context; /* tokens of one sequence                           */
    uint32_t max_draft;   /* draft tokens verified per sequence and step      */
    uint32_t tp_rank, tp_size; /* share of a tensor-parallel group; 0 of 1    */
};

struct seam_device {
    uint32_t size;
    int32_t  ordinal;     /* -1: the host CPU                                 */
    char     arch[32];    /* "gfx1201", "x86-64"                              */
    uint64_t mem_bytes;
    uint32_t units;       /* compute units, or cores                          */
    uint32_t wave;        /* lanes per wavefront; 1 on a CPU                  */
};

struct seam_create {
    uint32_t size;
    uint32_t n_layers;
    const uint32_t *layer; /* [n_layers] model layers served; later calls name
                              a layer by its index here                       */
    const struct seam_limits *limits;
    const struct seam_device *device;
    const struct seam_cfg    *cfg;    /* this plugin's block of the config    */
    const struct seam_model  *model;  /* where the weights are                */
    const struct seam_model  *target; /* spec: the model drafted for          */
};

/* ---- Memory: asked for once, granted once ------------------------------- */

#define SEAM_MAX_PLANES 4

/* The core may cut a sequence back to any length: what is kept for the tokens
 * that stay never depends on the tokens cut.  (A record pooled over several
 * tokens belongs to the last of them.)  Speculation needs it on every plane. */
enum { SEAM_PLANE_APPEND = 1 };

/* One paged array with a record per token and layer.  Frozen, 24 bytes. */
struct seam_plane {
    char     name[16];        /* "latent", "index"; for logs and accounts    */
    uint32_t bytes_per_token; /* per layer, scales included, averaged over a
                                 page when records are pooled                */
    uint32_t flags;           /* SEAM_PLANE_*                                */
};

enum { /* seam_needs.capture: calls that keep the graph rules */
    SEAM_CAP_BEGIN = 1, SEAM_CAP_FORWARD = 2, SEAM_CAP_COMMIT = 4,
    SEAM_CAP_DRAFT = 8
};
enum { SEAM_NEEDS_ROW_INVARIANT = 1 }; /* a row's result is bitwise independent
                                          of the other rows in the step      */

struct seam_needs {
    uint32_t size;
    uint32_t flags;
    uint32_t capture;       /* SEAM_CAP_*; without its bit a call may wait for
                               the device, and the core cuts the graph there  */
    uint32_t aux_streams;   /* streams wanted in seam_exec.aux, at most 4     */
    uint64_t ws_bytes;      /* device scratch during one call; shared         */
    uint64_t keep_bytes;    /* device memory of the instance's own            */
    uint64_t pinned_bytes;  /* pinned host memory of the instance's own       */
    uint64_t layout_id;     /* names the byte layout of planes and state; two
                               instances with equal ids may exchange them.
                               0: never                                       */
    uint64_t state_bytes;   /* per sequence and layer, whatever the length:
                               recurrent state, rings, logs; 0: none          */
    uint32_t state_copies;  /* copies of it in one row, at least 1; all but
                               the first are free after commit                */
    uint32_t page_multiple; /* page_tokens must be a multiple of this; 0: any */
    uint32_t n_layers;      /* layers with planes or state; preset by the host
                               to seam_create.n_layers                        */
    uint32_t n_planes;
    struct seam_plane plane[SEAM_MAX_PLANES];
};

/* The answer to seam_needs.  All addresses are 256-byte aligned and stay valid
 * and unchanged until destroy: captured graphs depend on it. */
struct seam_grant {
    uint32_t size;
    uint32_t page_tokens;   /* tokens per page, the same for every plugin     */
    uint32_t n_pages;
    uint32_t n_state_rows;
    void *const *plane[SEAM_MAX_PLANES];  /* plane[p][layer]: n_pages pages   */
    uint64_t page_stride[SEAM_MAX_PLANES];/* >= page_tokens * bytes_per_token */
    void *const *state;     /* state[layer]: n_state_rows rows of
                               state_copies copies                            */
    uint64_t state_stride;  /* from copy to copy, >= state_bytes              */
    void    *keep;          /* keep_bytes, zeroed                             */
    void    *pinned;        /* pinned_bytes, zeroed                           */
};

/* An instance lent to another plugin, which calls it as the core would, from
 * its own [submit] calls, and leaves its state rows committed.  What is in the
 * ws passed down is lost.  The core owns it and accounts for its memory. */
struct seam_lent {
    uint32_t size;
    uint32_t layer;                  /* what to pass as block_args.layer      */
    const struct seam_block *table;
    void *self;
    const struct seam_needs *needs;  /* filled before the borrower's needs    */
    const struct seam_grant *grant;  /* filled before the borrower's attach   */
};

/* ---- One step ----------------------------------------------------------- */

enum { SEAM_EXEC_CAPTURE = 1, SEAM_EXEC_WARMUP = 2 };

/* Where to run.  Work goes to `stream` in order; the call returns without
 * waiting for it. */
struct seam_exec {
    uint32_t size;
    uint32_t flags;         /* SEAM_EXEC_*                                    */
    int32_t  device;
    uint32_t n_aux;
    void    *stream;        /* hipStream_t; NULL: run now, on this thread     */
    void *const *aux;       /* n_aux streams; fork from, and join, `stream`   */
    void    *ws;            /* ws_bytes of scratch, contents undefined        */
    uint64_t ws_bytes;
    const struct seam_ops *ops; /* dense operations of the backend ...        */
    void    *ops_self;          /* ... and their first argument               */
    struct seam_error *err; /* filled when the call fails                     */
};

enum { SEAM_STEP_DECODE = 1 };

/* Which tokens to run.  The scalars bound the launch and are all a captured
 * call may use on the host; the arrays live on the device and are rewritten in
 * place between replays.  Padding rows have slot -1, padding sequences have
 * kv_len 0 and state_row -1: nothing is stored or fetched for either, and their
 * output is zero. */
struct seam_step {
    uint32_t size;
    uint32_t flags;          /* DECODE: no sequence brings more than
                                1 + max_draft tokens                          */
    uint32_t n_seqs;         /* sequences launched, padding included          */
    uint32_t n_tokens;       /* token rows launched, padding included         */
    uint32_t max_q;          /* no sequence brings more tokens                */
    uint32_t max_kv;         /* no kv_len is larger                           */
    uint32_t max_pages;      /* row length of page_table                      */
    uint32_t reserved;
    const int32_t *q_start;  /* [n_seqs + 1] first token row of a sequence    */
    const int32_t *kv_len;   /* [n_seqs] cached tokens once this step is done */
    const int32_t *pos;      /* [n_tokens] position in the sequence           */
    const int32_t *slot;     /* [n_tokens] page * page_tokens + offset        */
    const int32_t *page_table; /* [n_seqs][max_pages] page numbers, reaching
                                  max_draft tokens past kv_len                */
    const int32_t *state_row;  /* [n_seqs] row of the state arrays            */
    const int32_t *n_accept;   /* [n_seqs] tokens of the sequence's previous
                                  step that stand; 0: its state is the one in
                                  row state_row (new, committed or restored)  */
    const int32_t *host_q_start; /* host copies of q_start and kv_len; NULL   */
    const int32_t *host_kv_len;  /* when capturing or scheduled ahead         */
};

/* ---- Kinds: attention and moe ------------------------------------------- */

/* A block maps normalised activations to the branch added to the residual
 * stream: projections, cache update, mixing and output projection for
 * attention; routing, experts and shared experts for moe.  Both kinds use this
 * table; a moe block simply has no planes and no state. */
struct seam_block_args {
    uint32_t size;
    uint32_t layer;          /* index into seam_create.layer                  */
    const struct seam_step *step;
    struct seam_tensor x;    /* in  [n_tokens, d_model] of limits.act_dtype   */
    struct seam_tensor y;    /* out [n_tokens, d_model] of limits.act_dtype;
                                apart from x; a partial sum if tp_size > 1    */
};

struct seam_block {
    uint32_t size;
    uint32_t reserved;

    /* Once per step, before its first forward: metadata common to all layers,
     * kept in grant.keep.  May be NULL.  [submit] */
    int (*begin)(void *self, const struct seam_exec *e,
                 const struct seam_step *s);

    /* Run one layer: store the new tokens' records at `slot` and continue each
     * sequence from the state after n_accept tokens of its previous step.  If
     * that step brought w <= 1 + max_draft tokens, n_accept may be any of 1..w,
     * else only w.  Whether the plugin keeps a state per token in its copies or
     * one state and a log to replay is its own affair.  A zeroed row is the
     * state before the first token.  EINVAL, ENOTSUP, EDEVICE.  [submit] */
    int (*forward)(void *self, const struct seam_exec *e,
                   const struct seam_block_args *a);

    /* For each i in [0, n): make the first copy in row[i] hold, in every layer,
     * the state after n_accept[i] tokens of the last step.  Afterwards it is
     * plain bytes, without pointers or row numbers: the core copies it to fork,
     * cache, evict or restore a prefix and then passes n_accept 0.  row and
     * n_accept are device arrays; row -1 and n_accept 0 are skipped.  NULL iff
     * state_bytes is 0.  EDEVICE.  [submit] */
    int (*commit)(void *self, const struct seam_exec *e, uint32_t n,
                  const int32_t *row, const int32_t *n_accept);
};

/* ---- Kind: spec --------------------------------------------------------- */

#define SEAM_MAX_TAPS 16

struct seam_spec_info {
    uint32_t size;
    uint32_t max_draft; /* tokens proposed per sequence, <= limits.max_draft  */
    uint32_t q_width;   /* candidates whose probability is reported for each
                           draft; 0: drafts are certain, not drawn            */
    uint32_t n_taps;    /* residual streams of the target the drafter reads   */
    uint32_t tap[SEAM_MAX_TAPS]; /* in taps' order; with L target layers, t in
                                    0..L is what enters layer t, L what leaves
                                    the last, L + 1 the final norm's output.
                                    Parallel streams are averaged.            */
};

/* Arrays are device arrays.  After this step a sequence stands at
 * kv_len[i] - (q_start[i + 1] - q_start[i]) + kept[i] tokens. */
struct seam_spec_args {
    uint32_t size;
    uint32_t want;                /* drafts per sequence, <= info.max_draft;
                                     0: only take the tokens in               */
    const struct seam_step *step; /* the target step that was just verified   */
    struct seam_tensor taps;      /* in  [n_tokens, n_taps * d_model]         */
    const int32_t  *token;        /* in  [n_tokens] ids fed to the target     */
    const int32_t  *kept;         /* in  [n_seqs] of those, how many stand    */
    const int32_t  *next;         /* in  [n_seqs] id sampled after them; -1:
                                     none yet, more of the prompt follows     */
    const float    *temperature;  /* in  [n_seqs] 0: most likely draft        */
    const uint64_t *seed, *counter; /* in [n_seqs] for drawing drafts         */
    int32_t *draft;               /* out [n_seqs][want] target ids            */
    int32_t *n_draft;             /* out [n_seqs] how many are proposed       */
    float   *conf;                /* out [n_seqs][want] estimated chance that a
                                     draft stands if those before it do       */
    int32_t *q_id;                /* out [n_seqs][want][q_width] candidates   */
    float   *q;                   /* out [n_seqs][want][q_width] and the exact
                                     probabilities the draft was drawn with   */
};

struct seam_spec {
    uint32_t size;
    uint32_t reserved;
    /* Frozen facts about the drafter; called once, after create.  [control] */
    int (*info)(void *self, struct seam_spec_info *out, struct seam_error *err);
    /* Take in the tokens that stand, then propose those after `next`.  Planes
     * are addressed through step->slot and step->page_table; records past the
     * standing tokens are provisional.  When the work is done the state rows
     * hold exactly the standing tokens.  A zeroed row is valid at any length:
     * it knows nothing of what came before.  EINVAL, EDEVICE.  [submit] */
    int (*draft)(void *self, const struct seam_exec *e,
                 const struct seam_spec_args *a);
};

/* ---- Kind: parser ------------------------------------------------------- */

enum {
    SEAM_EV_TEXT = 1,      /* the answer; in render: text to tokenise plainly */
    SEAM_EV_REASONING = 2, /* hidden reasoning                                */
    SEAM_EV_TOOL_NAME = 3, /* a call begins; the bytes are its name           */
    SEAM_EV_TOOL_ARGS = 4, /* next bytes of its argument object, JSON text    */
    SEAM_EV_TOOL_END = 5,  /* the call is whole and its JSON valid; the core
                              reports no call without it                      */
    SEAM_EV_SPECIAL = 6    /* render: exactly one special token               */
};

/* Returns non-zero to stop; the parser then returns that value at once.
 * `index` numbers tool calls from 0.  The bytes are borrowed. */
struct seam_sink {
    void *ctx;
    int (*event)(void *ctx, uint32_t kind, uint32_t index, const char *p,
                 uint64_t n);
};

enum {
    SEAM_PARSE_NO_CALLS = 1, /* calls are recognised and left out             */
    SEAM_PARSE_ONE_CALL = 2, /* calls after the first are left out            */
    SEAM_PARSE_FORM = 4      /* the answer is held to a form: once its text has
                                begun all is text, tags that it spells too    */
};

/* Why a generation ended: of its own accord, or by a limit or an abort. */
enum { SEAM_END_STOP = 1, SEAM_END_CUT = 2 };

struct seam_parse_opts {
    uint32_t size;
    uint32_t flags;              /* SEAM_PARSE_*                              */
    struct seam_str tools;       /* JSON list of tool schemas, or empty       */
    struct seam_str prompt_tail; /* end of the prompt: is reasoning open?     */
};

struct seam_parser {
    uint32_t size;
    uint32_t reserved;
    /* Request (JSON text: messages, tools, options) to prompt pieces, so that
     * user text can never become a special token.  May be NULL.  EDATA.
     * [any] */
    int (*render)(void *self, struct seam_str request,
                  const struct seam_sink *out, struct seam_error *err);
    /* A stream turns one generation into events.  EDATA, ENOMEM.  [any] */
    int (*open)(void *self, const struct seam_parse_opts *o,
                const struct seam_sink *out, void **stream,
                struct seam_error *err);
    /* n tokens and the text they decode to; text ends on a character boundary.
     * However the output is cut into feeds, the concatenated events are the
     * same.  Never fails on model output: what fits no rule is TEXT.  Returns
     * SEAM_OK, ENOMEM, or what the sink returned.  [request] */
    int (*feed)(void *stream, uint32_t n, const int32_t *token,
                struct seam_str text);
    /* End of generation, SEAM_END_*: flush what was held back.  A call that was
     * cut short stays without TOOL_END.  [request] */
    int (*finish)(void *stream, uint32_t end);
    void (*close)(void *stream); /* [request] */
};

/* ---- Kind: backend ------------------------------------------------------ */

struct seam_gemm {
    uint32_t size;
    uint32_t accumulate;       /* 1: y += x w^T + bias                        */
    struct seam_tensor x;      /* [m, k]                                      */
    struct seam_tensor w;      /* [n, k], may be quantised                    */
    struct seam_tensor bias;   /* [n], or data NULL                           */
    struct seam_tensor y;      /* [m, n]                                      */
};

/* All that stands between two blocks: add what the last block produced to the
 * residual streams, then read from them what the next block consumes.
 *   add   y.data set: with mix, X[j] = post[j] y + sum_i comb[i][j] X[i];
 *         without, X[0] += y
 *   read  with fn, x = rms(sum_i pre[i] X[i]) * w, where pre, post and comb
 *         come from X by the hyper-connection map (fn, base, scale) and the
 *         latter two are left in mix; without, x = rms(mean X) * w.
 *         w absent: x without rms and w
 * Any tensor with data NULL is absent; without x nothing is read. */
struct seam_residual {
    uint32_t size;
    uint32_t partial;           /* 1: y is a partial sum; total it first      */
    uint32_t n_streams;         /* S; 1: an ordinary residual stream          */
    uint32_t sinkhorn;          /* normalisation rounds of comb               */
    float    eps_norm, eps_mix;
    struct seam_tensor y;       /* in  [n, d]                                 */
    struct seam_tensor streams; /* i/o [n, S, d]                              */
    struct seam_tensor mix;     /* i/o [n, S + S * S] F32: post, comb         */
    struct seam_tensor fn;      /* in  [2 S + S * S, S * d]                   */
    struct seam_tensor base;    /* in  [2 S + S * S] F32                      */
    struct seam_tensor scale;   /* in  [3] F32: for pre, post, comb           */
    struct seam_tensor w;       /* in  [d]                                    */
    struct seam_tensor x;       /* out [n, d]                                 */
    struct seam_tensor mean;    /* out [n, d] of the streams, for taps        */
};

/* What is done to a row of logits before a token is chosen, in this order:
 *   bias   for each entry j of the row: l[id] = (l[id] > 0 ? l[id] / div
 *          : l[id] * div) + add.  One list carries repetition (div), presence
 *          and frequency penalties and logit bias (add); an id occurs once.
 *   mask   bit id % 32 of word id / 32 clear: l[id] = -infinity
 *   temperature, then top_k, top_p and min_p on the probabilities
 * All arrays are device arrays, so that one captured graph serves any mix of
 * requests.  Randomness is counter-based: equal (seed, counter), equal draw.
 * Frozen. */
struct seam_filter {
    const float    *temperature; /* [n]; 0: argmax                            */
    const float    *top_p, *min_p; /* [n]; 1 and 0: off                       */
    const int32_t  *top_k;     /* [n]; 0: off                                 */
    const uint64_t *seed, *counter; /* [n]                                    */
    const int32_t  *bias_start;/* [n + 1] entries of row i; NULL: none        */
    const int32_t  *bias_id;
    const float    *bias_div, *bias_add;
    const uint32_t *mask;      /* rows of ceil(vocab / 32) words, or NULL     */
    const int32_t  *mask_row;  /* [n] row of mask; -1: every token is allowed */
};

/* logprob and top are of the distribution before any of the above. */
struct seam_sample {
    uint32_t size;
    uint32_t n;                /* rows                                        */
    struct seam_tensor logits; /* [n, vocab] F32; may be overwritten          */
    struct seam_filter filter; /* of n rows                                   */
    uint32_t n_top;            /* most likely tokens to report, <= 32         */
    uint32_t reserved;
    int32_t *token;            /* out [n]; -1: the logits are not finite      */
    float   *logprob;          /* out [n] or NULL                             */
    int32_t *top_id;           /* out [n][n_top], most likely first           */
    float   *top_logprob;      /* out [n][n_top]                              */
};

/* Lossless acceptance of drafts: row i of a sequence's window holds the
 * target's logits after its i-th token. */
struct seam_verify {
    uint32_t size;
    uint32_t n_seqs;
    uint32_t window;           /* 1 + drafts                                  */
    uint32_t q_width;          /* as in seam_spec_info                        */
    struct seam_tensor logits; /* [n_seqs, window, vocab] F32                 */
    const int32_t *q_id;       /* [n_seqs][window - 1][q_width]               */
    const float   *q;          /* [n_seqs][window - 1][q_width]               */
    const int32_t *draft;      /* [n_seqs][window - 1]                        */
    const int32_t *n_draft;    /* [n_seqs]                                    */
    struct seam_filter filter; /* of n_seqs * window rows                     */
    int32_t *kept;             /* out [n_seqs] 1 + accepted drafts            */
    int32_t *next;             /* out [n_seqs]; -1: logits are not finite     */
};

/* Dense operations, all stream-ordered and capturable.  be is ops_self.
 * EINVAL, ENOTSUP, EDEVICE.  [submit] */
struct seam_ops {
    uint32_t size;
    uint32_t reserved;
    int (*gemm)(void *be, const struct seam_exec *e, const struct seam_gemm *a);
    /* y[i] = table[id[i]]; y [n, d], or [n, S, d] to fill S streams.  A
     * negative id is padding: zeros */
    int (*embed)(void *be, const struct seam_exec *e, const int32_t *id,
                 uint32_t n, const struct seam_tensor *table,
                 const struct seam_tensor *y);
    int (*residual)(void *be, const struct seam_exec *e,
                    const struct seam_residual *a);
    /* y = rms(x) * w */
    int (*norm)(void *be, const struct seam_exec *e,
                const struct seam_tensor *x, const struct seam_tensor *w,
                float eps, const struct seam_tensor *y);
    /* y = silu(min(g, limit)) * clamp(u, -limit, limit); limit 0: no clamp.
     * y may be g or u */
    int (*glu)(void *be, const struct seam_exec *e, const struct seam_tensor *g,
               const struct seam_tensor *u, float limit,
               const struct seam_tensor *y);
    /* y[i] = x[row[i]] */
    int (*gather)(void *be, const struct seam_exec *e,
                  const struct seam_tensor *x, const int32_t *row, uint32_t n,
                  const struct seam_tensor *y);
    /* y = its total over the linked group, on every member */
    int (*sum)(void *be, const struct seam_exec *e,
               const struct seam_tensor *y);
    int (*sample)(void *be, const struct seam_exec *e,
                  const struct seam_sample *a);
    int (*verify)(void *be, const struct seam_exec *e,
                  const struct seam_verify *a);
};

/* One instance serves one device, seam_create.device->ordinal; ENOENT when
 * there is no such device.  Streams, events and graphs are native handles.
 * Everything taking `stream` is asynchronous.  capture_begin may be NULL. */
struct seam_backend {
    uint32_t size;
    uint32_t reserved;
    const struct seam_ops *ops;

    /* [control] */
    int  (*device)(void *self, struct seam_device *out, struct seam_error *err);
    /* Make n instances, one per device, a group whose members call sum and
     * partial residual in the same order.  NULL: no groups. */
    int  (*link)(void *const *self, uint32_t n, struct seam_error *err);
    int  (*alloc)(void *self, uint32_t mem, uint64_t bytes, uint64_t align,
                  void **out, struct seam_error *err);
    void (*free)(void *self, uint32_t mem, void *p);
    int  (*stream_new)(void *self, void **stream, struct seam_error *err);
    void (*stream_free)(void *self, void *stream);
    int  (*event_new)(void *self, void **event, struct seam_error *err);
    void (*event_free)(void *self, void *event);
    void (*graph_free)(void *self, void *graph);
    /* Block until the stream is idle; reports errors of past work. */
    int  (*stream_wait)(void *self, void *stream, struct seam_error *err);

    /* [submit] */
    /* Between any two of pageable, pinned and device memory of the group. */
    int  (*copy)(void *self, void *stream, void *dst, const void *src,
                 uint64_t bytes, struct seam_error *err);
    int  (*fill)(void *self, void *stream, void *dst, int32_t byte,
                 uint64_t bytes, struct seam_error *err);
    int  (*event_record)(void *self, void *event, void *stream,
                         struct seam_error *err);
    /* Later work on stream waits for the event. */
    int  (*event_join)(void *self, void *event, void *stream,
                       struct seam_error *err);
    int  (*capture_begin)(void *self, void *stream, struct seam_error *err);
    int  (*capture_end)(void *self, void *stream, void **graph,
                        struct seam_error *err);
    int  (*graph_launch)(void *self, void *graph, void *stream,
                         struct seam_error *err);

    /* 1: done, 0: pending, negative: the work before it failed.  [any] */
    int  (*event_done)(void *self, void *event, struct seam_error *err);
};

/* ---- Extension "trace/1" ------------------------------------------------ */

/* What a block computes inside, for tests and seam check: a plugin that offers
 * "trace/1" calls the sink of the instance for each named quantity of each
 * forward.  Names in use: attention "topk_index" i32 [n_tokens, width], -1 is
 * unused; moe "router_logits" f32 [n_tokens, n_experts], "router_weights" f32
 * and "router_index" i32 [n_tokens, top_k].  Not for serving: the sink may
 * allocate. */
struct seam_trace {
    uint32_t size;
    uint32_t reserved;
    /* sink NULL: stop.  layer is the index in seam_create.layer.  [submit] */
    void (*set)(void *self, void *ctx,
                void (*sink)(void *ctx, uint32_t layer, const char *name,
                             const struct seam_tensor *t));
};

/* ---- Extension "call_grammar/1" ----------------------------------------- */

enum {
    SEAM_CALLS_ONE   = 1, /* at most one call                                */
    SEAM_CALLS_MUST  = 2, /* at least one, and nothing but calls             */
    SEAM_CALLS_THINK = 4, /* the prompt leaves reasoning open, it comes first */
    SEAM_CALLS_ANSWER = 8 /* calls and nothing but calls, or else @answer; not
                             together with MUST                               */
};

/* How a parser's model writes its calls, as a grammar: a parser plugin that
 * offers "call_grammar/1" makes tool_choice required and named possible, and
 * strict tools.  What the grammar allows, the plugin's own streams must read as
 * calls whose arguments conform to the schemas. */
struct seam_call_grammar {
    uint32_t size;
    uint32_t reserved;
    /* Write the grammar of an answer with calls of the tools, a JSON list.
     * Events:
     *   TEXT       next bytes of the grammar, in the server's text notation
     *   TOOL_NAME  where JSON schema number `index` stands in tools, such as
     *              "tools[0].function.parameters.properties.city"
     *   TOOL_ARGS  that schema; the grammar refers to it as @sINDEX, or as
     *              @value(sINDEX) where a string stands without quotes
     * Schemas are numbered from 0.  Without SEAM_CALLS_MUST there is text before,
     * between and after the calls, and only tools that say "strict": true are
     * held to their schemas; with SEAM_CALLS_ANSWER the grammar refers to a
     * schema of the server's as @answer.  EDATA: what a tool asks for cannot be
     * written so; the message is "PATH: reason".  ENOMEM, or what the sink
     * returned.  [any] */
    int (*write)(void *self, struct seam_str tools, uint32_t flags,
                 const struct seam_sink *out, struct seam_error *err);
};

/* ---- The plugin --------------------------------------------------------- */

enum {
    SEAM_KIND_BACKEND = 1, SEAM_KIND_ATTENTION = 2, SEAM_KIND_MOE = 3,
    SEAM_KIND_SPEC = 4, SEAM_KIND_PARSER = 5
};

enum { SEAM_PLUGIN_UNLOADABLE = 1 }; /* after fini nothing of the plugin is
                                        referenced; the host may unmap it    */

#define SEAM_MAGIC "SEAMPLG"

/* Who the plugin is: plain bytes without pointers, at offset 0 of the exported
 * symbol, so the host reads it from the file before any plugin code can run.
 * Frozen for all majors, 512 bytes.  Strings are NUL-terminated. */
struct seam_ident {
    char     magic[8];            /* SEAM_MAGIC                               */
    uint16_t abi_major, abi_minor;/* header it was compiled with              */
    uint16_t abi_need;            /* lowest host minor it runs on             */
    uint16_t kind;                /* SEAM_KIND_*                              */
    uint32_t plugin_size;         /* sizeof(struct seam_plugin)               */
    uint32_t table_size;          /* sizeof the table of its kind             */
    uint32_t flags;               /* SEAM_PLUGIN_*                            */
    uint32_t reserved0;
    char     name[32];            /* [a-z0-9_]+, e.g. "kda"                   */
    char     version[32];         /* the author's own numbering               */
    char     build[96];           /* compiler, flags, commit: for bug reports */
    char     cpu[96];             /* features it needs, all of them:
                                     "avx512f avx512_bf16"                    */
    char     gpu[128];            /* targets it has code for, one suffices:
                                     "gfx1200 gfx1201"; "": host only         */
    char     reserved1[96];       /* zero                                     */
};

struct seam_plugin {
    struct seam_ident ident;

    const void *table; /* struct seam_backend, _block, _spec or _parser       */

    /* Once after loading.  host outlives the plugin.  ENOTSUP, EDEVICE.
     * [control] */
    int (*init)(const struct seam_host *host, struct seam_error *err);

    /* Once, when no instance is left.  May be NULL.  [control] */
    void (*fini)(void);

    /* Make an instance: read config, repack weights, start threads.  Slow work
     * belongs here.  What c points to lives until destroy.
     * EDATA, ENOENT, ENOTSUP, ENOMEM, EDEVICE.  [control] */
    int (*create)(const struct seam_create *c, void **self,
                  struct seam_error *err);

    /* Called once after create; what it answers is frozen.  NULL: no needs.
     * [control] */
    int (*needs)(void *self, struct seam_needs *out, struct seam_error *err);

    /* The core's answer; copy it.  NULL iff needs is.  [control] */
    int (*attach)(void *self, const struct seam_grant *g,
                  struct seam_error *err);

    /* Stop: when it returns, no thread and no stream of the instance touches
     * memory the core owns.  No call but destroy follows.  May be NULL.
     * [control] */
    void (*quiesce)(void *self);

    /* Free everything create made, whatever happened since.  [control] */
    void (*destroy)(void *self);

    /* Interface registered under "name/revision", or NULL.  May be NULL.
     * [control] */
    const void *(*extension)(const char *id);
};

/* First members of every plugin's ident; C, or C++20. */
#define SEAM_IDENT(kind_, table_type)                                       \
    .magic = SEAM_MAGIC, .abi_major = SEAM_ABI_MAJOR,                        \
    .abi_minor = SEAM_ABI_MINOR, .abi_need = SEAM_ABI_NEED,                  \
    .kind = (kind_), .plugin_size = sizeof(struct seam_plugin),              \
    .table_size = sizeof(table_type)

#ifndef SEAM_HOST /* the server itself does not define a plugin */
extern SEAM_EXPORT const struct seam_plugin seam_plugin_entry;
#endif

#ifdef __cplusplus
}
#endif
#endif /* SEAM_PLUGIN_H */
