/* seam serve on a disk that is slow on purpose: the first file of the prefix
 * cache to be made durable waits until somebody opens the FIFO of the variable
 * SLOW_DISK for writing, and says so before. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/cli/cli.h"

static atomic_flag began = ATOMIC_FLAG_INIT;

/* The program's, in place of the C library's. */
int fdatasync(int fd)
{
    static const char says[] = "the disk is slow\n";
    const char *fifo = getenv("SLOW_DISK");

    if (fifo && !atomic_flag_test_and_set(&began)) {
        int gate;

        if (write(STDERR_FILENO, says, sizeof says - 1) < 0)
            return -1;
        do
            gate = open(fifo, O_RDONLY | O_CLOEXEC);
        while (gate < 0 && errno == EINTR);
        if (gate >= 0)
            close(gate);
    }
    return (int)syscall(SYS_fdatasync, fd);
}

int main(int argc, char **argv)
{
    return argc < 2 ? 2 : seam_cli_serve(argc - 2, argv + 2);
}
