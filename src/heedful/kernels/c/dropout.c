/* Dropout in one pass: each value is multiplied by `scale`, or by zero if its 16 random bits are below
 * `threshold`. */
#include "simd.h"

struct dropout {
    const float *hidden;
    const int16_t *bits;
    float *result;
    int64_t threshold;
    double scale;
};

/* Values `first` to `end`. */
int heedful_dropout(const struct dropout *d, int64_t first, int64_t end) {
    const float scale = (float)d->scale;
    const int32_t threshold = (int32_t)d->threshold;
    for (int64_t i = first; i < end; i++)
        d->result[i] = d->hidden[i] * (d->bits[i] >= threshold ? scale : 0.0f);
    return 0;
}
