/* Sigmoid and tanh of vectors, and partial loads and stores for the end of a row. */
#ifndef HEEDFUL_ACTIVATIONS
#define HEEDFUL_ACTIVATIONS
#include "simd.h"

/* Load the first `left` floats, at most LANES. The other lanes are zero. */
static inline vfloat load_partial(const float *from, int64_t left) {
    if (left >= LANES) return load(from);
    float parts[LANES] = {0};
    for (int64_t i = 0; i < left; i++) parts[i] = from[i];
    return load(parts);
}

/* Store the first `left` lanes, at most LANES. Nothing is written after them. */
static inline void store_partial(float *to, vfloat x, int64_t left) {
    if (left >= LANES) {
        store(to, x);
        return;
    }
    float parts[LANES];
    store(parts, x);
    for (int64_t i = 0; i < left; i++) to[i] = parts[i];
}

/* e^−|x|, which cannot overflow. Sigmoid and tanh are computed from it. */
static inline vfloat exp_minus_abs(vfloat x) {
    const vint sign = (vint){0} + INT32_MIN;
    return vexp((vfloat)((vint)x | sign));
}

static inline vfloat vsigmoid(vfloat x) {
    const vint negative = x < (vfloat){0};
    const vfloat e = exp_minus_abs(x), sigmoid_of_abs = 1.0f / (1.0f + e);
    return (vfloat)((negative & (vint)(e * sigmoid_of_abs)) | (~negative & (vint)sigmoid_of_abs));
}

/* The absolute error is about 1e-7 for every x. */
static inline vfloat vtanh(vfloat x) {
    const vint sign = (vint){0} + INT32_MIN;
    const vfloat e = exp_minus_abs(x + x);
    return (vfloat)((vint)((1.0f - e) / (1.0f + e)) | ((vint)x & sign));
}
#endif
