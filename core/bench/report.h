/* A measurement as JSON, and as a page with tables and charts that needs
 * nothing but itself. */
#ifndef SEAM_BENCH_REPORT_H
#define SEAM_BENCH_REPORT_H

#include <jansson.h>

#include "core/base/buf.h"
#include "core/base/error.h"
#include "core/bench/machine.h"
#include "core/bench/sample.h"

/* {"median", "min", "max", "spread", "n"} */
json_t *seam_report_samples(const struct seam_samples *s);
/* The ceilings and how they were reached. */
json_t *seam_report_machine(const struct seam_machine *m,
                            const struct seam_ceilings *c);
/* The same as lines of text. */
void seam_report_machine_text(const struct seam_machine *m,
                              const struct seam_ceilings *c,
                              struct seam_buf *out);

/* Write root as indented JSON.  EINVAL with the system's words. */
int seam_report_json(const char *path, const json_t *root,
                     struct seam_error *err);
int seam_report_file(const char *path, const char *text, size_t n,
                     struct seam_error *err);

/* ---- A page -------------------------------------------------------------- */

/* Either HTML or, of the same calls, an SVG with the charts one below the
 * other. */
struct seam_page {
    struct seam_buf b;
    bool svg;
    uint32_t height; /* of the SVG so far                                     */
};

void seam_page_open(struct seam_page *p, const char *title, bool svg);
/* Write it to a file and release it.  ENOMEM; EINVAL with the system's words. */
int seam_page_write(struct seam_page *p, const char *path,
                    struct seam_error *err);

/* These three are left out of an SVG. */
void seam_page_heading(struct seam_page *p, const char *text);
/* Text as it is, with line breaks. */
void seam_page_text(struct seam_page *p, const char *text);
/* rows: a list of objects; columns: keys, NULL-terminated.  Numbers are written
 * with five digits; {"median"} stands for its median. */
void seam_page_table(struct seam_page *p, const json_t *rows,
                     const char *const *columns);

struct seam_bar {
    const char *label;
    double value;
};
void seam_page_bars(struct seam_page *p, const char *title, const char *unit,
                    const struct seam_bar *bar, uint32_t n);

struct seam_curve {
    const char *label;
    const double *x, *y; /* [n], x ascending                                  */
    uint32_t n;
};
/* x is drawn logarithmically, from its smallest value above 0. */
void seam_page_curves(struct seam_page *p, const char *title, const char *x,
                      const char *y, const struct seam_curve *curve,
                      uint32_t n);

#endif
