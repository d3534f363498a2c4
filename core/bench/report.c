#include "core/bench/report.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNQUIET 0.5 /* spread of the bandwidth on a machine in use           */

/* ---- JSON ---------------------------------------------------------------- */

json_t *seam_report_samples(const struct seam_samples *s)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:I}", "median",
                     seam_samples_at(s, 0.5), "min", seam_samples_at(s, 0),
                     "max", seam_samples_at(s, 1), "spread",
                     seam_samples_spread(s), "n", (json_int_t)s->n);
}

static const char *const dot_key[SEAM_N_DOTS] = {
    [SEAM_DOT_F32] = "f32_ops",
    [SEAM_DOT_BF16] = "bf16_ops",
    [SEAM_DOT_INT8] = "int8_ops",
};

json_t *seam_report_machine(const struct seam_machine *m,
                            const struct seam_ceilings *c)
{
    json_t *o = json_object(), *isa = json_object();

    json_object_set_new(o, "cpu", json_string(seam_machine_name(m)));
    json_object_set_new(o, "threads", json_integer(seam_machine_threads(m)));
    json_object_set_new(o, "read_bytes", seam_report_samples(&c->read));
    for (int d = 0; d < SEAM_N_DOTS; d++) {
        json_object_set_new(o, dot_key[d], seam_report_samples(&c->dot[d]));
        json_object_set_new(isa, dot_key[d],
                            json_string(seam_machine_isa(m, (enum seam_dot)d)));
    }
    json_object_set_new(o, "isa", isa);
    return o;
}

void seam_report_machine_text(const struct seam_machine *m,
                              const struct seam_ceilings *c,
                              struct seam_buf *out)
{
    static const char *const name[SEAM_N_DOTS] = { "f32", "bf16", "int8" };

    seam_buf_fmt(out, "%s, %u threads: read %.2f GB/s (spread %.0f %%)",
                 seam_machine_name(m), seam_machine_threads(m),
                 seam_samples_at(&c->read, 0.5) / 1e9,
                 100 * seam_samples_spread(&c->read));
    for (int d = 0; d < SEAM_N_DOTS; d++)
        if (c->dot[d].n && seam_samples_at(&c->dot[d], 0.5) > 0)
            seam_buf_fmt(out, ", %s %.0f GFLOP/s (%s)", name[d],
                         seam_samples_at(&c->dot[d], 0.5) / 1e9,
                         seam_machine_isa(m, (enum seam_dot)d));
    seam_buf_str(out, "\n");
    if (seam_samples_spread(&c->read) > UNQUIET)
        seam_buf_str(out, "the bandwidth varies: something else is running, "
                          "numbers of this run are worth little\n");
}

int seam_report_file(const char *path, const char *text, size_t n,
                     struct seam_error *err)
{
    FILE *f = fopen(path, "we");
    bool ok = f && fwrite(text, 1, n, f) == n;
    int why = errno;

    if (f && fclose(f)) {
        why = errno;
        ok = false;
    }
    return ok ? 0 : seam_fail_errno(err, SEAM_EINVAL, why, "%s", path);
}

int seam_report_json(const char *path, const json_t *root,
                     struct seam_error *err)
{
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    size_t n = text ? strlen(text) : 0;
    int rc;

    if (!text)
        return seam_fail(err, SEAM_ENOMEM, "%s: out of memory", path);
    text[n] = '\n'; /* in place of the NUL                                    */
    rc = seam_report_file(path, text, n + 1, err);
    free(text);
    return rc;
}

/* ---- A page -------------------------------------------------------------- */

#define CHART_W 720
#define CHART_H 300
#define LEFT    240 /* room for labels                                        */

static const char *const colour[] = { "#2b6cb0", "#c05621", "#2f855a",
                                      "#805ad5", "#b83280", "#4a5568" };

#define N_COLOURS (sizeof colour / sizeof *colour)

static void html_escaped(struct seam_buf *b, const char *s)
{
    for (; *s; s++)
        switch (*s) {
        case '&':
            seam_buf_str(b, "&amp;");
            break;
        case '<':
            seam_buf_str(b, "&lt;");
            break;
        case '>':
            seam_buf_str(b, "&gt;");
            break;
        case '"':
            seam_buf_str(b, "&quot;");
            break;
        default:
            seam_buf_add(b, s, 1);
        }
}

static void chart_text(struct seam_buf *b, double x, double y,
                       const char *anchor, const char *text)
{
    seam_buf_fmt(b, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y,
                 anchor);
    html_escaped(b, text);
    seam_buf_str(b, "</text>");
}

void seam_page_open(struct seam_page *p, const char *title, bool svg)
{
    *p = (struct seam_page){ .svg = svg, .height = svg ? 30 : 0 };
    if (svg) {
        chart_text(&p->b, 4, 20, "start", title);
        seam_buf_str(&p->b, "\n");
        return;
    }
    seam_buf_str(&p->b, "<!DOCTYPE html>\n<html lang=\"en\"><head>"
                        "<meta charset=\"utf-8\"><title>");
    html_escaped(&p->b, title);
    seam_buf_str(
        &p->b,
        "</title><style>body{font:15px sans-serif;margin:2em;max-width:60em}"
        "table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .7em;"
        "border-bottom:1px solid #ccc;text-align:right}td:first-child,"
        "th:first-child{text-align:left}svg text{font:12px sans-serif}"
        "</style></head><body>\n<h1>");
    html_escaped(&p->b, title);
    seam_buf_str(&p->b, "</h1>\n");
}

int seam_page_write(struct seam_page *p, const char *path,
                    struct seam_error *err)
{
    struct seam_buf whole = { 0 };
    int rc;

    if (p->svg) {
        seam_buf_fmt(&whole,
                     "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
                     "height=\"%u\" viewBox=\"0 0 %d %u\">\n"
                     "<style>text{font:12px sans-serif}</style>\n"
                     "<rect width=\"100%%\" height=\"100%%\" "
                     "fill=\"#fff\"/>\n",
                     CHART_W, p->height, CHART_W, p->height);
        seam_buf_add(&whole, p->b.p ? p->b.p : "", p->b.n);
        seam_buf_str(&whole, "</svg>\n");
    } else {
        seam_buf_add(&whole, p->b.p ? p->b.p : "", p->b.n);
        seam_buf_str(&whole, "</body></html>\n");
    }
    rc = p->b.failed || whole.failed
             ? seam_fail(err, SEAM_ENOMEM, "out of memory")
             : seam_report_file(path, whole.p, whole.n, err);
    seam_buf_release(&whole);
    seam_buf_release(&p->b);
    return rc;
}

void seam_page_heading(struct seam_page *p, const char *text)
{
    if (p->svg)
        return;
    seam_buf_str(&p->b, "<h2>");
    html_escaped(&p->b, text);
    seam_buf_str(&p->b, "</h2>\n");
}

void seam_page_text(struct seam_page *p, const char *text)
{
    if (p->svg)
        return;
    seam_buf_str(&p->b, "<pre>");
    html_escaped(&p->b, text);
    seam_buf_str(&p->b, "</pre>\n");
}

/* A chart's title and place; chart_close ends it. */
static void chart_open(struct seam_page *p, const char *title, uint32_t height)
{
    seam_page_heading(p, title);
    if (p->svg) {
        chart_text(&p->b, 4, p->height + 16, "start", title);
        p->height += 24;
        seam_buf_fmt(&p->b, "<g transform=\"translate(0 %u)\">", p->height);
        p->height += height + 12;
    } else {
        seam_buf_fmt(&p->b, "<svg width=\"%d\" height=\"%u\" role=\"img\">",
                     CHART_W, height);
    }
}

static void chart_close(struct seam_page *p)
{
    seam_buf_str(&p->b, p->svg ? "</g>\n" : "</svg>\n");
}

static void html_cell(struct seam_buf *b, const json_t *v)
{
    const json_t *median = json_object_get(v, "median");

    if (median)
        v = median;
    seam_buf_str(b, "<td>");
    if (json_is_string(v))
        html_escaped(b, json_string_value(v));
    else if (json_is_integer(v))
        seam_buf_fmt(b, "%lld", (long long)json_integer_value(v));
    else if (json_is_number(v))
        seam_buf_fmt(b, "%.5g", json_number_value(v));
    seam_buf_str(b, "</td>");
}

void seam_page_table(struct seam_page *p, const json_t *rows,
                     const char *const *columns)
{
    struct seam_buf *b = &p->b;
    const json_t *row;
    size_t i;

    if (p->svg)
        return;
    seam_buf_str(b, "<table><tr>");
    for (const char *const *c = columns; *c; c++) {
        seam_buf_str(b, "<th>");
        html_escaped(b, *c);
        seam_buf_str(b, "</th>");
    }
    seam_buf_str(b, "</tr>\n");
    json_array_foreach(rows, i, row)
    {
        seam_buf_str(b, "<tr>");
        for (const char *const *c = columns; *c; c++)
            html_cell(b, json_object_get(row, *c));
        seam_buf_str(b, "</tr>\n");
    }
    seam_buf_str(b, "</table>\n");
}

void seam_page_bars(struct seam_page *p, const char *title, const char *unit,
                    const struct seam_bar *bar, uint32_t n)
{
    struct seam_buf *b = &p->b;
    double most = 0;
    char text[64];

    for (uint32_t i = 0; i < n; i++)
        if (bar[i].value > most)
            most = bar[i].value;
    chart_open(p, title, n * 22 + 4);
    for (uint32_t i = 0; i < n; i++) {
        double w = most > 0 ? bar[i].value / most * (CHART_W - LEFT - 110) : 0;

        chart_text(b, LEFT - 6, i * 22 + 15, "end", bar[i].label);
        seam_buf_fmt(b,
                     "<rect x=\"%d\" y=\"%u\" width=\"%.1f\" height=\"16\" "
                     "fill=\"%s\"/>",
                     LEFT, i * 22 + 3, w, colour[0]);
        snprintf(text, sizeof text, "%.5g %s", bar[i].value, unit);
        chart_text(b, LEFT + w + 6, i * 22 + 15, "start", text);
    }
    chart_close(p);
}

struct frame {
    double x0, x1, y1; /* logarithms of x; y from 0                           */
};

static double frame_x(const struct frame *f, double x)
{
    double at = log2(x > 1 ? x : 1);

    return 60 + (f->x1 > f->x0 ? (at - f->x0) / (f->x1 - f->x0) : 0.5) *
                    (CHART_W - 90);
}

static double frame_y(const struct frame *f, double y)
{
    return CHART_H - 40 - (f->y1 > 0 ? y / f->y1 : 0) * (CHART_H - 70);
}

static void curve_draw(struct seam_buf *b, const struct frame *f,
                       const struct seam_curve *c, uint32_t i)
{
    const char *ink = colour[i % N_COLOURS];

    seam_buf_str(b, "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"");
    seam_buf_fmt(b, "%s\" points=\"", ink);
    for (uint32_t k = 0; k < c->n; k++)
        seam_buf_fmt(b, "%.1f,%.1f ", frame_x(f, c->x[k]), frame_y(f, c->y[k]));
    seam_buf_str(b, "\"/>");
    for (uint32_t k = 0; k < c->n; k++)
        seam_buf_fmt(b,
                     "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\">"
                     "<title>%.6g: %.6g</title></circle>",
                     frame_x(f, c->x[k]), frame_y(f, c->y[k]), ink, c->x[k],
                     c->y[k]);
    seam_buf_fmt(b, "<g fill=\"%s\">", ink);
    chart_text(b, 70 + 160 * i, 16, "start", c->label);
    seam_buf_str(b, "</g>");
}

void seam_page_curves(struct seam_page *p, const char *title, const char *x,
                      const char *y, const struct seam_curve *curve, uint32_t n)
{
    struct seam_buf *b = &p->b;
    struct frame f = { INFINITY, 0, 0 };
    char text[64];

    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < curve[i].n; k++) {
            double at = log2(curve[i].x[k] > 1 ? curve[i].x[k] : 1);

            f.x0 = at < f.x0 ? at : f.x0;
            f.x1 = at > f.x1 ? at : f.x1;
            f.y1 = curve[i].y[k] > f.y1 ? curve[i].y[k] : f.y1;
        }
    chart_open(p, title, CHART_H);
    for (int i = 0; i <= 4; i++) {
        double v = f.y1 * i / 4;

        snprintf(text, sizeof text, "%.3g", v);
        seam_buf_fmt(b,
                     "<line x1=\"60\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" "
                     "stroke=\"#ddd\"/>",
                     CHART_W - 30, frame_y(&f, v), frame_y(&f, v));
        chart_text(b, 55, frame_y(&f, v) + 4, "end", text);
    }
    for (uint32_t k = 0; n && k < curve[0].n; k++) {
        snprintf(text, sizeof text, "%.6g", curve[0].x[k]);
        chart_text(b, frame_x(&f, curve[0].x[k]), CHART_H - 22, "middle", text);
    }
    for (uint32_t i = 0; i < n; i++)
        curve_draw(b, &f, &curve[i], i);
    chart_text(b, CHART_W / 2.0, CHART_H - 5, "middle", x);
    chart_text(b, 4, 16, "start", y);
    chart_close(p);
}
