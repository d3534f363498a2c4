/* tok_bench TOKENIZER.JSON [TEXT]: encoding time of TEXT, and how it grows on
 * inputs that are one pre-token or defeat simple merge loops. */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/tokenizer/tokenizer.h"

/* Best of five, in seconds. */
static double bench_encode(const struct seam_tokenizer *t, const char *p,
                           size_t n, size_t *n_ids)
{
    uint64_t best = UINT64_MAX;

    for (int k = 0; k < 5; k++) {
        struct seam_ids ids = { 0 };
        struct seam_error err;
        uint64_t t0 = seam_now_ns(), ns;

        if (seam_tokenizer_encode(t, p, n, true, &ids, &err)) {
            fprintf(stderr, "tok_bench: %s\n", err.text);
            seam_ids_release(&ids);
            return -1;
        }
        ns = seam_now_ns() - t0;
        best = ns < best ? ns : best;
        *n_ids = ids.n;
        seam_ids_release(&ids);
    }
    return (double)best * 1e-9;
}

/* n characters of char_n bytes each, repeating the `period` bytes of unit. */
static void bench_growth(const struct seam_tokenizer *t, const char *name,
                         const char *unit, size_t period, size_t char_n)
{
    double before = 0;

    printf("%-10s", name);
    for (size_t n = 25000; n <= 200000; n *= 2) {
        char *text = malloc(n * char_n);
        size_t n_ids = 0;
        double s;

        for (size_t i = 0; text && i < n * char_n; i++)
            text[i] = unit[i % period];
        s = text ? bench_encode(t, text, n * char_n, &n_ids) : -1;
        printf("  %8.2f ms", s * 1e3);
        if (before > 0)
            printf(" (x%4.2f)", s / before);
        before = s;
        free(text);
    }
    printf("\n");
}

static void bench_letters(const struct seam_tokenizer *t, const char *name,
                          const char *letters, uint32_t bits)
{
    static char text[1 << 18];
    uint64_t x = 1;

    for (size_t i = 0; i < sizeof text; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        text[i] = letters[x >> (64 - bits)];
    }
    bench_growth(t, name, text, sizeof text, 1);
}

int main(int argc, char **argv)
{
    struct seam_tokenizer *t = NULL;
    struct seam_error err = { .text =
                                  "usage: tok_bench TOKENIZER.JSON [TEXT]" };
    uint64_t t0 = seam_now_ns(), bytes;
    int rc = argc > 1 ? seam_tokenizer_open(&t, argv[1], &err) : -1;
    char *text;

    if (rc)
        goto out;
    printf("open: %.1f ms, %u ids\n", (double)(seam_now_ns() - t0) * 1e-6,
           seam_tokenizer_size(t));
    if (argc > 2) {
        size_t n_ids = 0;
        double s;

        rc = seam_file_read(argv[2], (uint64_t)1 << 30, &text, &bytes, &err);
        if (rc)
            goto out;
        s = bench_encode(t, text, bytes, &n_ids);
        printf("%s: %zu ids, %.2f ms, %.1f MB/s\n", argv[2], n_ids, s * 1e3,
               (double)bytes / s * 1e-6);
        free(text);
    }
    printf("%-10s  25000, 50000, 100000, 200000 characters\n", "");
    bench_growth(t, "_", "_", 1, 1);
    bench_growth(t, "a", "a", 1, 1);
    bench_growth(t, "CJK", "\xe6\x9e\x97", 3, 3);
    bench_growth(t, "space", " ", 1, 1);
    bench_growth(t, "newline", "\n", 1, 1);
    bench_growth(t, "mixed ws", " \n  x", 5, 1);
    bench_growth(t, "digit", "7", 1, 1);
    bench_growth(t, "<", "<", 1, 1);
    bench_growth(t, "bad byte", "\xff", 1, 1);
    bench_letters(t, "letters", "etaoinshrdlucmfw", 4);
    bench_letters(t, "base64",
                  "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                  "0123456789+/",
                  6);
out:
    if (rc)
        fprintf(stderr, "tok_bench: %s\n", err.text);
    seam_tokenizer_free(t);
    return rc ? 1 : 0;
}
