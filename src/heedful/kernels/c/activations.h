/* The sigmoid and the hyperbolic tangent of vectors, and the ends of rows that fill no vector. */
#ifndef HEEDFUL_ACTIVATIONS
#define HEEDFUL_ACTIVATIONS
#include "simd.h"

/* The first of `left` numbers, as many as a vector has lanes; zeros beyond them. */
static inline vfloat load_partial(const float *from, int64_t left) {
    if (left >= LANES) return load(from);
    float parts[LANES] = {0};
    for (int64_t i = 0; i < left; i++) parts[i] = from[i];
    return load(parts);
}

/* The reverse; nothing is written beyond them. */
static inline void store_partial(float *to, vfloat x, int64_t left) {
    if (left >= LANES) {
        store(to, x);
        return;
    }
    float parts[LANES];
    store(parts, x);
    for (int64_t i = 0; i < left; i++) to[i] = parts[i];
}

/* e^−|x|, from which both are made: nothing overflows. */
static inline vfloat decay(vfloat x) {
    const vint sign = (vint){0} + INT32_MIN;
    return vexp((vfloat)((vint)x | sign));
}

static inline vfloat vsigmoid(vfloat x) {
    const vint below = x < (vfloat){0};
    const vfloat e = decay(x), share = 1.0f / (1.0f + e);
    return (vfloat)((below & (vint)(e * share)) | (~below & (vint)share));
}

/* To about 1e-7, whatever x is. */
static inline vfloat vtanh(vfloat x) {
    const vint sign = (vint){0} + INT32_MIN;
    const vfloat e = decay(x + x);
    return (vfloat)((vint)((1.0f - e) / (1.0f + e)) | ((vint)x & sign));
}
#endif
