/* Threads of the checks: who a thread is to the plugin, and threads that call a
 * plugin at the same time, in turns that a seed decides or freely. */
#ifndef SEAM_CHECK_THREAD_H
#define SEAM_CHECK_THREAD_H

#include <stdbool.h>
#include <stdint.h>

/* What the current thread is doing, in the words of the ABI's thread tags.  A
 * thread that the checks have not made is the plugin's own. */
enum ck_tag {
    CK_FOREIGN = 0,
    CK_CONTROL = 1,
    CK_SUBMIT = 2,
    CK_REQUEST = 4, /* also [any]: neither may use more of the host          */
    CK_WORKER = 8,
};

/* Thread-local, because the functions of the host are called by a plugin that
 * cannot say on whose behalf. */
struct ck_here {
    uint32_t tag;    /* enum ck_tag                                           */
    uint32_t worker; /* of a task                                             */
    uint32_t mode;   /* floating-point mode before the call                   */
};
struct ck_here *ck_here(void);

/* ---- At the same time ---------------------------------------------------- */

enum ck_pace {
    CK_TURNS, /* one thread runs at a time and hands over at each ck_turn     */
    CK_FREE,  /* all run; ck_meet is a barrier                                */
};

/* fn(arg, i) for each i below n (at most 64), each on a thread of its own with
 * tag control.  In turns, the order depends on nothing but seed and what the
 * threads do.  Returns when all have ended. */
void ck_together(uint32_t n, enum ck_pace pace, uint64_t seed,
                 void (*fn)(void *arg, uint32_t i), void *arg);

/* A place where another thread of the same ck_together may go on.  The checks
 * have one before each call and in each function of the host. */
void ck_turn(void);
/* The same, and with CK_FREE all wait for each other, so that what follows
 * overlaps.  Each thread meets equally often. */
void ck_meet(void);

/* ---- One after the other ------------------------------------------------- */

/* Runs calls on threads other than the caller's, which waits: each on a new
 * thread, or on two that take turns irregularly. */
struct ck_mover;
struct ck_mover *ck_mover_new(bool fresh, uint64_t seed);
void ck_mover_free(struct ck_mover *m);
/* fn(arg) elsewhere, with the caller's tag. */
void ck_move(struct ck_mover *m, void (*fn)(void *arg), void *arg);

#endif
