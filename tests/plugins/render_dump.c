/* Renders requests for comparison with another implementation of the template.
 *
 *   render_dump PLUGIN.DIR PLUGIN TEMPLATE < requests > prompts
 *
 * One request a line on stdin; for each a line "LENGTH\n", then that many bytes
 * and "\n".  A refused request gives "-1\n", its message and "\n". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parser_host.h"

int main(int argc, char **argv)
{
    struct phost h = { 0 };
    struct seam_error err;
    struct ptext template = { 0 };
    char *line = NULL;
    char chunk[4096];
    size_t cap = 0, n;
    FILE *f = NULL;
    ssize_t got;
    int rc = 1;

    if (argc != 4) {
        fprintf(stderr, "usage: %s PLUGIN_DIR PLUGIN TEMPLATE\n", argv[0]);
        return 2;
    }
    f = fopen(argv[3], "rb");
    if (!f) {
        perror(argv[3]);
        goto out;
    }
    while ((n = fread(chunk, 1, sizeof chunk, f)) > 0)
        ptext_add(&template, chunk, n);
    h.template_text = template.p;
    h.template_n = template.n;
    if (phost_load(&h, argv[1], argv[2], &err)) {
        fprintf(stderr, "%s\n", err.text);
        goto out;
    }
    fprintf(stderr, "%s", h.log.p ? h.log.p : "");
    while ((got = getline(&line, &cap, stdin)) > 0) {
        struct ptext out = { 0 };

        if (line[got - 1] == '\n')
            got--;
        if (phost_render(&h, line, (size_t)got, &out, &err)) {
            printf("-1\n%s\n", err.text);
        } else {
            printf("%zu\n", out.n);
            fwrite(out.p, 1, out.n, stdout);
            printf("\n");
        }
        ptext_release(&out);
    }
    rc = ferror(stdin) || fflush(stdout) ? 1 : 0;
out:
    free(line);
    if (f)
        fclose(f);
    phost_unload(&h);
    ptext_release(&template);
    return rc;
}
