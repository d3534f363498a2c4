/* The reference plugins against formulas written down a second time, here in
 * double precision and without regard for paging, rollback or batches. */
#include "testhost.h"

#include <criterion/criterion.h>

Test(testhost, stores_what_it_says)
{
    struct th *h = th_new("{\"a\": {\"b\": [1, {\"c\": 7}]}}", NULL);
    int64_t v = 0;

    cr_expect_eq(h->host.cfg(h, h->host.model_cfg(h, th_model(h)), "a.b[1].c",
                             SEAM_CFG_I64, &v),
                 SEAM_OK);
    cr_expect_eq(v, 7);
    cr_expect_eq(h->host.cfg(h, h->host.model_cfg(h, th_model(h)), "a.x",
                             SEAM_CFG_I64, &v),
                 SEAM_ENOENT);
    th_free(h);
}
