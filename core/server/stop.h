/* Stop strings in a stream of text: nothing that could still become one of them
 * leaves, and nothing else is held back. */
#ifndef SEAM_SERVER_STOP_H
#define SEAM_SERVER_STOP_H

#include <stdbool.h>

#include "core/base/buf.h"
#include "core/base/error.h"

#define SEAM_MAX_STOPS    16
#define SEAM_MAX_STOP_LEN 1024

struct seam_stop {
    struct {
        const char *p;  /* borrowed                                     */
        size_t n;       /* 1 .. SEAM_MAX_STOP_LEN                       */
        uint16_t *fail; /* [n] length of the longest border             */
        size_t matched; /* longest prefix that ends the text so far     */
    } s[SEAM_MAX_STOPS];
    uint32_t n;
    struct seam_buf held; /* text that is not out yet                     */
    int hit;              /* index of the string that was met, or -1      */
};

/* ENOMEM.  The strings must outlive the matcher. */
int seam_stop_init(struct seam_stop *m, const struct seam_str *strings,
                   uint32_t n);
void seam_stop_release(struct seam_stop *m);

/* Append to out what of the text may leave.  True once a stop string is met:
 * out then ends before it, or after it with include.  Of several strings the
 * one that ends first counts, of those that end together the longest. */
bool seam_stop_feed(struct seam_stop *m, const char *p, size_t n, bool include,
                    struct seam_buf *out);
/* No more text follows directly: what is held leaves. */
void seam_stop_flush(struct seam_stop *m, struct seam_buf *out);

#endif
