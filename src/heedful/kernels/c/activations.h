/* The sigmoid and the hyperbolic tangent of vectors, and the ends of rows that fill no vector. */
#ifndef TANGENT
#define TANGENT
#include "simd.h"

/* The first of `left` numbers, as many as there are lanes; zeros beyond them. */
static inline lanes take(const float *from, int64_t left) {
    if (left >= LANES) return load(from);
    float parts[LANES] = {0};
    for (int64_t i = 0; i < left; i++) parts[i] = from[i];
    return load(parts);
}

/* The reverse; nothing is written beyond them. */
static inline void put(float *to, lanes x, int64_t left) {
    if (left >= LANES) {
        store(to, x);
        return;
    }
    float parts[LANES];
    store(parts, x);
    for (int64_t i = 0; i < left; i++) to[i] = parts[i];
}

/* e^−|x|, from which both are made: nothing overflows. */
static inline lanes decay(lanes x) {
    const ints sign = (ints){0} + INT32_MIN;
    return exponential((lanes)((ints)x | sign));
}

static inline lanes sigmoid(lanes x) {
    const ints below = x < (lanes){0};
    const lanes e = decay(x), share = 1.0f / (1.0f + e);
    return (lanes)((below & (ints)(e * share)) | (~below & (ints)share));
}

/* To about 1e-7, whatever x is. */
static inline lanes tangent(lanes x) {
    const ints sign = (ints){0} + INT32_MIN;
    const lanes e = decay(x + x);
    return (lanes)((ints)((1.0f - e) / (1.0f + e)) | ((ints)x & sign));
}
#endif
