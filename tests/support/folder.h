/* Folders that a test made. */
#ifndef SEAM_TESTS_SUPPORT_FOLDER_H
#define SEAM_TESTS_SUPPORT_FOLDER_H

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

/* Remove a folder and the files in it. */
static inline void folder_remove(const char *path)
{
    DIR *d = opendir(path);
    struct dirent *e;
    char file[PATH_MAX];

    while (d && (e = readdir(d))) {
        int n = snprintf(file, sizeof file, "%s/%s", path, e->d_name);

        if (n > 0 && (size_t)n < sizeof file)
            unlink(file);
    }
    if (d)
        closedir(d);
    rmdir(path);
}

#endif
