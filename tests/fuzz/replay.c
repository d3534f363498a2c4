/* Runs a fuzz target over files, or over all files of folders. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* In memory that ends where the file ends, so that a sanitizer sees a read past
 * it. */
static int replay_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint8_t *p = NULL;
    struct stat st;
    int rc = -1;

    if (!f || fstat(fileno(f), &st))
        goto out;
    p = malloc(st.st_size ? (size_t)st.st_size : 1);
    if (!p || fread(p, 1, (size_t)st.st_size, f) != (size_t)st.st_size)
        goto out;
    LLVMFuzzerTestOneInput(p, (size_t)st.st_size);
    rc = 0;
out:
    if (rc)
        fprintf(stderr, "%s: cannot read\n", path);
    if (f)
        fclose(f);
    free(p);
    return rc;
}

/* Returns how many files were run, or -1. */
static int replay(const char *path)
{
    DIR *d = opendir(path);
    const struct dirent *e;
    int n = 0;

    if (!d)
        return replay_file(path) ? -1 : 1;
    while (n >= 0 && (e = readdir(d))) {
        char file[4096];

        if (e->d_name[0] == '.')
            continue;
        snprintf(file, sizeof file, "%s/%s", path, e->d_name);
        n = replay_file(file) ? -1 : n + 1;
    }
    closedir(d);
    return n;
}

int main(int argc, char **argv)
{
    int total = 0;

    for (int i = 1; i < argc; i++) {
        int n = replay(argv[i]);

        if (n < 0)
            return 1;
        total += n;
    }
    printf("%d inputs\n", total);
    return total ? 0 : 1;
}
