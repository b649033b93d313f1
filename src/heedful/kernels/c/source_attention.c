/* One query a row over the keys and values of the row's source: a recurrent decoder's step, and its
 * gradients.
 *
 * A score is vᵀ tanh(q + k), or qᵀ k where there is no v, times `scale`; weights are its softmax over
 * the positions that may be read; a row that may read none gets zeros.
 * Shapes: N rows, A sources, S positions, D width of queries and keys, E of values.
 */
#include "cached_attention.h"
#include "activations.h"
#include <stdlib.h>

struct sources {
    const float *keys, *values; /* [A, S, D], [A, S, E] */
    const float *v;             /* [D], or null */
    const uint8_t *allowed;     /* [A, S] */
    const int64_t *rows;        /* [N]: which source a row reads */
    int64_t positions, key_width, value_width;
    double scale;
};

static float additive(const float *query, const float *key, const float *v, int64_t width) {
    vfloat sum = {0};
    for (int64_t i = 0; i < width; i += LANES) {
        const int64_t left = width - i;
        sum += load_partial(v + i, left) * vtanh(load_partial(query + i, left) + load_partial(key + i, left));
    }
    return reduce_add(sum);
}

/* Weights of a row over source a; `weights` has room for padded(S). */
static void weigh(const struct sources *s, int64_t a, const float *query, float *weights) {
    const uint8_t *allowed = s->allowed + a * s->positions;
    const float *keys = s->keys + a * s->positions * s->key_width, scale = (float)s->scale;
    for (int64_t t = 0; t < s->positions; t++) {
        const float *key = keys + t * s->key_width;
        if (!allowed[t]) weights[t] = -INFINITY;
        else if (s->v) weights[t] = scale * additive(query, key, s->v, s->key_width);
        else weights[t] = scale * dot(query, key, s->key_width);
    }
    softmax(weights, s->positions, padded(s->positions));
    for (int64_t t = 0; t < s->positions; t++)
        if (!allowed[t]) weights[t] = 0;
}

/* query [N, D] with a stride; contexts [N, E]; weights [N, S], or null where they are not kept; for
 * rows first to last. Returns 0, or 1 if there is no memory. */
int heedful_read_sources(const float *query, int64_t query_stride, float *contexts, float *weights,
                         const struct sources *s, int64_t first, int64_t last) {
    float *own = malloc((size_t)(padded(s->positions) + LANES) * sizeof(float));
    if (!own) return 1;
    for (int64_t n = first; n < last; n++) {
        const int64_t a = s->rows[n], e = s->value_width;
        const float *values = s->values + a * s->positions * e;
        float *to = contexts + n * e;
        weigh(s, a, query + n * query_stride, own);
        if (weights) memcpy(weights + n * s->positions, own, (size_t)s->positions * sizeof(float));
        memset(to, 0, (size_t)e * sizeof(float));
        for (int64_t t = 0; t < s->positions; t++)
            if (s->allowed[a * s->positions + t]) add(to, values + t * e, own[t], e);
    }
    free(own);
    return 0;
}

/* With g = ∂L/∂score of one position: what it says of query, key and v. */
static void additive_gradients(const float *query, const float *key, const float *v, float g,
                               float *by_query, float *by_key, float *by_v, int64_t width) {
    for (int64_t i = 0; i < width; i += LANES) {
        const int64_t left = width - i;
        const vfloat t = vtanh(load_partial(query + i, left) + load_partial(key + i, left));
        const vfloat both = g * load_partial(v + i, left) * (1.0f - t * t);
        store_partial(by_query + i, load_partial(by_query + i, left) + both, left);
        store_partial(by_key + i, load_partial(by_key + i, left) + both, left);
        store_partial(by_v + i, load_partial(by_v + i, left) + g * t, left);
    }
}

/* Gradients of what heedful_read_sources has read, with the weights that it kept.
 *
 * by_contexts [N, E]; by_query [N, D] with query's stride is written. Added to: by_keys [A, S, D], and
 * by_v [N, D], a row's share each. Rows of one source must be in one call. */
int heedful_read_sources_back(const float *query, int64_t query_stride, const float *weights,
                              const float *by_contexts, float *by_query, float *by_keys, float *by_v,
                              const struct sources *s, int64_t first, int64_t last) {
    const int64_t d = s->key_width, e = s->value_width;
    float *g = malloc((size_t)(s->positions + 1) * sizeof(float));
    if (!g) return 1;
    for (int64_t n = first; n < last; n++) {
        const int64_t start = s->rows[n] * s->positions;
        const float *q = query + n * query_stride, *w = weights + n * s->positions;
        float *to = by_query + n * query_stride, mean = 0;
        memset(to, 0, (size_t)d * sizeof(float));
        for (int64_t t = 0; t < s->positions; t++) {
            if (!s->allowed[start + t]) continue;
            g[t] = dot(by_contexts + n * e, s->values + (start + t) * e, e);
            mean += w[t] * g[t];
        }
        for (int64_t t = 0; t < s->positions; t++) {
            if (!s->allowed[start + t]) continue;
            const float *key = s->keys + (start + t) * d, own = (float)s->scale * w[t] * (g[t] - mean);
            float *by_key = by_keys + (start + t) * d;
            if (s->v) {
                additive_gradients(q, key, s->v, own, to, by_key, by_v + n * d, d);
            } else {
                add(to, key, own, d);
                add(by_key, q, own, d);
            }
        }
    }
    free(g);
    return 0;
}
