/* SIMD vectors of float32, as wide as the processor's registers. */
#ifndef LANES
#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__AVX__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif
#define LANES (VECTOR_BYTES / 4)
typedef float vfloat __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t vint __attribute__((vector_size(VECTOR_BYTES)));

static inline vfloat load(const float *p) { vfloat x; memcpy(&x, p, VECTOR_BYTES); return x; }
static inline void store(float *p, vfloat x) { memcpy(p, &x, VECTOR_BYTES); }

static inline float reduce_add(vfloat x) {
    typedef float quarter __attribute__((vector_size(16)));
    quarter parts[LANES / 4], sum;
    memcpy(parts, &x, VECTOR_BYTES);
    sum = parts[0];
#if LANES == 8
    sum += parts[1];
#elif LANES == 16
    sum = (sum + parts[2]) + (parts[1] + parts[3]);
#endif
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

/* The elementwise maximum. If x is NaN, the result is y. */
static inline vfloat vmax(vfloat x, vfloat y) {
    const vint greater = x > y;
    return (vfloat)((greater & (vint)x) | (~greater & (vint)y));
}

static inline float reduce_max(vfloat x) {
    float largest = x[0];
    for (int i = 1; i < LANES; i++) largest = x[i] > largest ? x[i] : largest;
    return largest;
}

/* e^x for x ≤ 0, to about one unit in the last place: 2^n e^r with |r| ≤ ln 2 / 2, and e^r by its
 * Taylor polynomial of degree 7 (the next term is below 2e-9). Below −87 the result is e^−87, which is
 * negligible next to 1. NaN gives NaN.
 */
static inline vfloat vexp(vfloat x) {
    const vfloat lowest = (vfloat){0} - 87.0f, magic = (vfloat){0} + 12582912.0f;
    const vint below = x < lowest;
    x = (vfloat)((below & (vint)lowest) | (~below & (vint)x));
    const vfloat shifted = x * 1.44269504088896341f + magic, n = shifted - magic;
    const vfloat r = (x - n * 0.693145751953125f) - n * 1.42860682030941723e-6f;
    vfloat p = (vfloat){0} + 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const vint power = ((vint)shifted - (vint)magic + 127) << 23;
    return p * (vfloat)power;
}
#endif
