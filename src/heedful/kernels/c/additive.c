/* The two reductions of the additive score over a range of keys, in float32.
 *
 * With a = 2·query, b = 2·key and x = e^a·e^b:  tanh((a + b) / 2) = 1 − 2r,  r = 1 / (1 + x).
 * The exponentials are computed once for each row. Each (query, key, unit) then takes a multiply-add, a
 * reciprocal and another multiply-add. If an exponential of a row is not representable, its `fits` flag
 * is 0 and the pairs of this row are computed with the stable formula.
 *
 * Scores take one reciprocal for two units: with u = 1 / v and y = u + u·e^a·e^b, v r = 1 / y and
 * 1 / y + 1 / y' = (y + y') / (y y'). The product must be representable. `reach` bounds ln |y| from
 * above, for a query by ln |u| + max(0, a) and for a key by max(0, b), both the largest of its units.
 *
 * Shapes: n entries, Q queries, K keys, D units. All matrices are contiguous.
 */
#include "simd.h"

/* n / x to rounding error, for 1 ≤ |x| ≤ 1e37: the hardware's estimate of 1 / x and one Newton step. */
static inline vfloat quotient(vfloat n, vfloat x) {
#if defined(__AVX512F__)
    const vfloat r = (vfloat)_mm512_rcp14_ps((__m512)x);
#elif defined(__AVX__)
    const vfloat r = (vfloat)_mm256_rcp_ps((__m256)x);
#else
    return n / x;
#endif
#if defined(__AVX__)
    return (n * r) * (2.0f - x * r);
#endif
}

/* min(x, 1e37). NaN gives NaN. */
static inline vfloat clamp(vfloat x) {
    const vfloat limit = (vfloat){0} + 1e37f;
#if defined(__AVX512F__)
    return (vfloat)_mm512_min_ps((__m512)limit, (__m512)x);
#elif defined(__AVX__)
    return (vfloat)_mm256_min_ps((__m256)limit, (__m256)x);
#else
    const vint not_greater = x <= limit, is_nan = x != x;
    return (vfloat)(((not_greater | is_nan) & (vint)x) | (~(not_greater | is_nan) & (vint)limit));
#endif
}

/* r = 1 / (1 + e^a e^b). The product of two representable values can overflow. Above 1e37, r rounds to
 * zero in either case. */
static inline vfloat reciprocal(vfloat ea, vfloat eb) {
    return quotient((vfloat){0} + 1.0f, clamp(1.0f + ea * eb));
}

#define KEY_TILE 8 /* keys whose exponentials and gradients stay in the L1 cache */

struct shape { int64_t n, q, k, d, first_key, last_key; };

/* weighted[n, q, k] = Σ_d v_d (r − ½). Subtracting ½ keeps the precision of small tanh values. D is a
 * multiple of LANES (padded with v = 0). */
static void fast_row(const float *ea, const float *eb, const float *v, float *out,
                     int64_t keys, int64_t d) {
    int64_t k = 0;
    for (; k + 4 <= keys; k += 4) {
        vfloat s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
        const float *b = eb + k * d;
        for (int64_t i = 0; i < d; i += LANES) {
            vfloat e = load(ea + i), w = load(v + i);
            s0 += w * (reciprocal(e, load(b + i)) - 0.5f);
            s1 += w * (reciprocal(e, load(b + d + i)) - 0.5f);
            s2 += w * (reciprocal(e, load(b + 2 * d + i)) - 0.5f);
            s3 += w * (reciprocal(e, load(b + 3 * d + i)) - 0.5f);
        }
        out[k] = reduce_add(s0); out[k + 1] = reduce_add(s1); out[k + 2] = reduce_add(s2); out[k + 3] = reduce_add(s3);
    }
    for (; k < keys; k++) {
        vfloat s = {0};
        for (int64_t i = 0; i < d; i += LANES)
            s += load(v + i) * (reciprocal(load(ea + i), load(eb + k * d + i)) - 0.5f);
        out[k] = reduce_add(s);
    }
}

/* The same for at most KEY_TILE keys within reach. With w = v / scale, u = 1 / w and uea = u e^a. */
#define LARGEST_REACH 41.0f /* each of two factors is at most 2 e^41, and their product 4 e^82 < 1e37 */

static inline __attribute__((always_inline)) void
paired_patch(const float *uea, const float *eb, const float *u, const float *w, float scale, float *out,
             int64_t d, const int keys) {
    vfloat sum[4] = {{0}, {0}, {0}, {0}};
    int64_t i = 0;
    for (; i + 2 * LANES <= d; i += 2 * LANES) {
        const vfloat a0 = load(uea + i), a1 = load(uea + i + LANES), u0 = load(u + i), u1 = load(u + i + LANES);
        const vfloat half = 0.5f * (load(w + i) + load(w + i + LANES));
        for (int k = 0; k < keys; k++) {
            const vfloat y0 = u0 + a0 * load(eb + k * d + i), y1 = u1 + a1 * load(eb + k * d + i + LANES);
            sum[k] += quotient(y0 + y1, y0 * y1) - half;
        }
    }
    if (i < d)
        for (int k = 0; k < keys; k++) {
            const vfloat y = load(u + i) + load(uea + i) * load(eb + k * d + i);
            sum[k] += quotient((vfloat){0} + 1.0f, y) - 0.5f * load(w + i);
        }
    for (int k = 0; k < keys; k++) out[k] = scale * reduce_add(sum[k]);
}

static void paired_row(const float *uea, const float *eb, const float *u, const float *w, float scale,
                       float *out, int64_t keys, int64_t d) {
    int64_t k = 0;
    for (; k + 4 <= keys; k += 4) paired_patch(uea, eb + k * d, u, w, scale, out + k, d, 4);
    for (; k < keys; k++) paired_patch(uea, eb + k * d, u, w, scale, out + k, d, 1);
}

/* r for any argument: no exponential overflows. */
static inline float stable_reciprocal(float sum) {
    float e = expf(-fabsf(sum));
    return sum > 0 ? e / (1.0f + e) : 1.0f / (1.0f + e);
}

int heedful_additive_scores(const float *a, const float *ea, const uint8_t *fits_a,
                            const float *b, const float *eb, const uint8_t *fits_b,
                            const float *uea, const float *reach_a, const float *reach_b,
                            const float *u, const float *w, const float *scale,
                            const float *v, float *out, const struct shape *s) {
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t k0 = s->first_key; k0 < s->last_key; k0 += KEY_TILE) {
            const int64_t keys = k0 + KEY_TILE < s->last_key ? KEY_TILE : s->last_key - k0;
            const int64_t from = n * s->k + k0;
            int all_fit = 1;
            float reach = 0;
            for (int64_t k = 0; k < keys; k++) {
                all_fit &= fits_b[from + k];
                reach = reach_b[from + k] > reach ? reach_b[from + k] : reach;
            }
            for (int64_t q = 0; q < s->q; q++) {
                const int64_t row = n * s->q + q;
                float *to = out + row * s->k + k0;
                if (all_fit && fits_a[row] && reach_a[row] + reach <= LARGEST_REACH) {
                    paired_row(uea + row * s->d, eb + from * s->d, u, w, *scale, to, keys, s->d);
                    continue;
                }
                if (all_fit && fits_a[row]) {
                    fast_row(ea + row * s->d, eb + from * s->d, v, to, keys, s->d);
                    continue;
                }
                for (int64_t k = 0; k < keys; k++) {
                    if (fits_a[row] && fits_b[from + k]) {
                        fast_row(ea + row * s->d, eb + (from + k) * s->d, v, to + k, 1, s->d);
                        continue;
                    }
                    float sum = 0;
                    for (int64_t i = 0; i < s->d; i++)
                        sum += v[i] * (stable_reciprocal(a[row * s->d + i] + b[(from + k) * s->d + i]) -
                                       0.5f);
                    to[k] = sum;
                }
            }
        }
    return 0;
}

/* For g = ∂L/∂score: da += Σ_k g r(1−r), db += Σ_q g r(1−r), dr += Σ g (r − ½). A patch has one or two
 * queries and one or four keys, so that its sums stay in registers. */
static inline __attribute__((always_inline)) void
fast_patch(const float *ea, const float *eb, const float *g, int64_t stride, float *da, float *db,
           float *dr, int64_t d, const int queries, const int keys) {
    for (int64_t i = 0; i < d; i += LANES) {
        const vfloat e0 = load(ea + i), e1 = load(ea + (queries - 1) * d + i);
        vfloat a0 = {0}, a1 = {0}, sum = {0};
        for (int k = 0; k < keys; k++) {
            const vfloat e = load(eb + k * d + i);
            const vfloat r0 = reciprocal(e0, e), gr0 = g[k] * r0;
            vfloat t = gr0 - gr0 * r0;
            a0 += t;
            sum += g[k] * (r0 - 0.5f);
            if (queries == 2) {
                const vfloat r1 = reciprocal(e1, e), gr1 = g[stride + k] * r1;
                const vfloat t1 = gr1 - gr1 * r1;
                a1 += t1;
                sum += g[stride + k] * (r1 - 0.5f);
                t += t1;
            }
            store(db + k * d + i, load(db + k * d + i) + t);
        }
        store(da + i, load(da + i) + a0);
        if (queries == 2) store(da + d + i, load(da + d + i) + a1);
        store(dr + i, load(dr + i) + sum);
    }
}

static void fast_patches(const float *ea, const float *eb, const float *g, int64_t stride,
                         float *da, float *db, float *dr, int64_t keys, int64_t d, int two_queries) {
    int64_t k = 0;
    for (; k + 4 <= keys; k += 4)
        if (two_queries) fast_patch(ea, eb + k * d, g + k, stride, da, db + k * d, dr, d, 2, 4);
        else fast_patch(ea, eb + k * d, g + k, stride, da, db + k * d, dr, d, 1, 4);
    for (; k < keys; k++)
        if (two_queries) fast_patch(ea, eb + k * d, g + k, stride, da, db + k * d, dr, d, 2, 1);
        else fast_patch(ea, eb + k * d, g + k, stride, da, db + k * d, dr, d, 1, 1);
}

static void stable_pair(const float *a, const float *b, float g, float *da, float *db, float *dr,
                        int64_t d) {
    for (int64_t i = 0; i < d; i++) {
        const float r = stable_reciprocal(a[i] + b[i]), t = g * r * (1.0f - r);
        da[i] += t;
        db[i] += t;
        dr[i] += g * (r - 0.5f);
    }
}

int heedful_additive_backward(const float *a, const float *ea, const uint8_t *fits_a,
                              const float *b, const float *eb, const uint8_t *fits_b,
                              const float *g, float *da, float *db, float *dr, const struct shape *s) {
    const int64_t d = s->d;
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t k0 = s->first_key; k0 < s->last_key; k0 += KEY_TILE) {
            const int64_t keys = k0 + KEY_TILE < s->last_key ? KEY_TILE : s->last_key - k0;
            const int64_t from = n * s->k + k0;
            int all_fit = 1;
            for (int64_t k = 0; k < keys; k++) all_fit &= fits_b[from + k];
            int64_t q = 0;
            while (q < s->q) {
                const int64_t row = n * s->q + q;
                const float *g_row = g + row * s->k + k0;
                if (all_fit && fits_a[row]) {
                    const int two_queries = q + 1 < s->q && fits_a[row + 1];
                    fast_patches(ea + row * d, eb + from * d, g_row, s->k, da + row * d, db + from * d,
                                 dr, keys, d, two_queries);
                    q += 1 + two_queries;
                    continue;
                }
                for (int64_t k = 0; k < keys; k++) {
                    const int64_t col = from + k;
                    stable_pair(a + row * d, b + col * d, g_row[k], da + row * d, db + col * d, dr, d);
                }
                q++;
            }
        }
    return 0;
}
