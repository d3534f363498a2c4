#include "grammar_text.h"

#include <stdio.h>

void gt_literal(struct tbuf *b, struct seam_str s)
{
    char hex[8];

    tbuf_str(b, "\"");
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];

        if (c == '"' || c == '\\') {
            tbuf_str(b, "\\");
            tbuf_add(b, &c, 1);
        } else if ((unsigned char)c < 0x20) {
            snprintf(hex, sizeof hex, "\\x%02x", (unsigned)c);
            tbuf_str(b, hex);
        } else {
            tbuf_add(b, &c, 1);
        }
    }
    tbuf_str(b, "\"");
}

/* One character that is none of p[0, n) and does not begin a word. */
static void other_char(struct tbuf *b, const char *p, size_t n)
{
    tbuf_str(b, "[^<");
    for (size_t i = 0; i < n; i++) {
        if (strchr("\"\\]-[^", p[i]))
            tbuf_str(b, "\\");
        tbuf_add(b, p + i, 1);
    }
    tbuf_str(b, "]");
}

/* What may follow the beginning of a word, up to the next '<': nothing, another
 * character and then any, or the word's next character and so on. */
static void rest_of(struct tbuf *b, const char *rest)
{
    size_t n = strlen(rest);

    for (size_t i = 0; i < n; i++) {
        struct seam_str c = { rest + i, 1 };

        tbuf_str(b, "(");
        other_char(b, rest + i, 1);
        tbuf_str(b, " [^<]*");
        if (i + 1 < n) {
            tbuf_str(b, " | ");
            gt_literal(b, c);
            tbuf_str(b, " ");
        }
    }
    for (size_t i = 0; i < n; i++)
        tbuf_str(b, ")?");
}

void gt_without(struct tbuf *b, const char *name, const char *const *word,
                size_t n)
{
    char first[8];

    for (size_t i = 0; i < n && i < sizeof first; i++)
        first[i] = word[i][1];
    tbuf_str(b, name);
    tbuf_str(b, " ::= [^<]* (\"<\" (");
    other_char(b, first, n < sizeof first ? n : sizeof first);
    tbuf_str(b, " [^<]*");
    for (size_t i = 0; i < n; i++) {
        tbuf_str(b, " | ");
        gt_literal(b, (struct seam_str){ word[i] + 1, 1 });
        tbuf_str(b, " ");
        rest_of(b, word[i] + 2);
    }
    tbuf_str(b, ")?)*\n");
}
