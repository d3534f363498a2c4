/* make_real_size DIR: the sparse real-size checkpoint, to look at by hand. */
#include <stdio.h>
#include <sys/stat.h>

#include "real_size.h"

int main(int argc, char **argv)
{
    const char *why;
    uint64_t disk;

    if (argc != 2) {
        fprintf(stderr, "usage: make_real_size DIR (a new folder)\n");
        return 2;
    }
    if (mkdir(argv[1], 0777)) {
        perror(argv[1]);
        return 1;
    }
    if (real_size_make(argv[1], &disk, &why)) {
        fprintf(stderr, "%s: %s\n", argv[1], why);
        return 1;
    }
    printf("%s: %u tensors, %u files, %llu bytes, %llu on the disk\n", argv[1],
           REAL_ENTRIES, REAL_FILES, (unsigned long long)REAL_FILE_BYTES,
           (unsigned long long)disk);
    return 0;
}
