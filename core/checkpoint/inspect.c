/* The report of `seam inspect`. */
#include "core/checkpoint/plan.h"

void seam_inspect(const struct seam_checkpoint *c, uint64_t budget,
                  struct seam_buf *out)
{
    struct seam_checkpoint_stats s;

    seam_checkpoint_stats(c, &s);
    (void)budget;
    seam_buf_fmt(out, "%s: %llu tensors in %llu files\n",
                 seam_checkpoint_dir(c), (unsigned long long)s.n_indexed,
                 (unsigned long long)s.n_files);
}
