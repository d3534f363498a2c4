/* A thread lent for its stack.
 *
 * CivetWeb's workers have 100 KiB, fixed when the library was compiled;
 * rendering a deeply nested request, or compiling its schema, wants more.  A
 * worker that has received a request runs it on a companion and waits. */
#ifndef SEAM_SERVER_STACK_H
#define SEAM_SERVER_STACK_H

#include <stddef.h>

struct seam_stack;

/* NULL when there is no memory or no thread to be had. */
struct seam_stack *seam_stack_new(size_t bytes);
void seam_stack_free(struct seam_stack *s); /* NULL is fine */

/* fn(arg) on the stack of s; returns when fn has.  One caller at a time. */
void seam_stack_run(struct seam_stack *s, void (*fn)(void *arg), void *arg);

#endif
