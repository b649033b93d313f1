/* Dropout in one reading: each number times `scale`, or times zero where its sixteen bits are below
 * `from`. */
#include "simd.h"

struct dropout {
    const float *hidden;
    const int16_t *bits;
    float *result;
    int64_t from;
    double scale;
};

/* Numbers from `first` to `end`. */
int heedful_dropout(const struct dropout *d, int64_t first, int64_t end) {
    const float scale = (float)d->scale;
    const int32_t from = (int32_t)d->from;
    for (int64_t i = first; i < end; i++)
        d->result[i] = d->hidden[i] * (d->bits[i] >= from ? scale : 0.0f);
    return 0;
}
