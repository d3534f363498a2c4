/* Input: a byte that says how the rest is meant, and the rest.
 *   'f'  the image of a whole file
 *   'h'  a header; its length is put before it, and as many zeros behind it as
 *        the next byte says
 * What is accepted must be JSON to jansson too, and tile the file. */
#undef NDEBUG /* assert() is how a target reports, in every build */
#include <assert.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/checkpoint/safetensors.h"

static void check_accepted(const struct seam_st_header *h,
                           const unsigned char *p, uint64_t n)
{
    uint64_t length = 0, sum = 0;
    json_t *v;

    for (int i = 7; i >= 0; i--)
        length = length << 8 | p[i];
    v = json_loadb((const char *)p + 8, (size_t)length, 0, NULL);
    assert(v);
    assert(json_object_size(v) ==
           h->n + (json_object_get(v, "__metadata__") != NULL));
    for (uint32_t i = 0; i < h->n; i++) {
        const struct seam_st_tensor *t = &h->t[i];
        uint64_t values = 1;

        assert(json_object_get(v, t->name));
        assert(seam_st_find(h, t->name) == t);
        assert(i == 0 || strcmp(h->t[i - 1].name, t->name) < 0);
        assert(t->rank <= SEAM_ST_MAX_RANK);
        assert(t->offset >= 8 + length && t->offset <= n &&
               t->bytes <= n - t->offset);
        for (uint32_t k = 0; k < t->rank; k++)
            values *= (uint64_t)t->shape[k];
        assert(values * seam_dtype_bits(t->dtype) / 8 == t->bytes);
        sum += t->bytes;
    }
    assert(8 + length + sum == n);
    json_decref(v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct seam_st_header h = { 0 };
    struct seam_error err = { 0 };
    unsigned char *image;
    size_t bytes;

    if (n < 2 || (data[0] != 'f' && data[0] != 'h'))
        return 0;
    bytes = data[0] == 'f' ? n - 1 : 8 + (n - 2) + data[1];
    image = calloc(1, bytes ? bytes : 1);
    if (!image)
        return 0;
    if (data[0] == 'f') {
        memcpy(image, data + 1, n - 1);
    } else {
        for (int i = 0; i < 8; i++)
            image[i] = (unsigned char)((uint64_t)(n - 2) >> 8 * i);
        memcpy(image + 8, data + 2, n - 2);
    }
    if (seam_st_parse(&h, "fuzz", image, bytes, bytes, &err)) {
        assert(err.code < 0 && err.text[0]);
        assert(!h.t && !h.names);
    } else {
        check_accepted(&h, image, bytes);
    }
    seam_st_release(&h);
    free(image);
    return 0;
}
