/* Attention with one query for each row over the keys and values of the row's source, and its
 * gradients: a step of a recurrent decoder.
 *
 * The score is vᵀ tanh(q + k), or qᵀ k if v is null, times `scale`. The weights are its softmax over
 * the allowed positions. A row without an allowed position gets zeros.
 * Shapes: N rows, A sources, S positions, D width of queries and keys, E of values.
 */
#include "cached_attention.h"
#include "activations.h"
#include <stdlib.h>

struct sources {
    const float *keys, *values; /* [A, S, D], [A, S, E] */
    const float *v;             /* [D], or null */
    const uint8_t *allowed;     /* [A, S] */
    const int64_t *rows;        /* [N]: the source of each row */
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

/* The weights of a row over source a. `weights` holds padded(S) floats. */
static void source_weights(const struct sources *s, int64_t a, const float *query, float *weights) {
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

/* query [N, D] with a stride; contexts [N, E]; weights [N, S], or null if they are not needed. Computes
 * rows `first` to `last`. Returns 0, or 1 if memory cannot be allocated. */
int heedful_source_attention(const float *query, int64_t query_stride, float *contexts, float *weights,
                             const struct sources *s, int64_t first, int64_t last) {
    float *row_weights = malloc((size_t)(padded(s->positions) + LANES) * sizeof(float));
    if (!row_weights) return 1;
    for (int64_t n = first; n < last; n++) {
        const int64_t a = s->rows[n], e = s->value_width;
        const float *values = s->values + a * s->positions * e;
        float *to = contexts + n * e;
        source_weights(s, a, query + n * query_stride, row_weights);
        if (weights) memcpy(weights + n * s->positions, row_weights, (size_t)s->positions * sizeof(float));
        memset(to, 0, (size_t)e * sizeof(float));
        for (int64_t t = 0; t < s->positions; t++)
            if (s->allowed[a * s->positions + t]) add(to, values + t * e, row_weights[t], e);
    }
    free(row_weights);
    return 0;
}

/* For g = ∂L/∂score of one position: add the gradients of query, key and v. */
static void additive_gradients(const float *query, const float *key, const float *v, float g,
                               float *grad_query, float *grad_key, float *grad_v, int64_t width) {
    for (int64_t i = 0; i < width; i += LANES) {
        const int64_t left = width - i;
        const vfloat t = vtanh(load_partial(query + i, left) + load_partial(key + i, left));
        const vfloat both = g * load_partial(v + i, left) * (1.0f - t * t);
        store_partial(grad_query + i, load_partial(grad_query + i, left) + both, left);
        store_partial(grad_key + i, load_partial(grad_key + i, left) + both, left);
        store_partial(grad_v + i, load_partial(grad_v + i, left) + g * t, left);
    }
}

/* Gradients of heedful_source_attention, from the weights that it returned.
 *
 * grad_contexts [N, E]. Written: grad_query [N, D], with query's stride. Added to: grad_keys [A, S, D]
 * and grad_v [N, D], which has one row for each query. All rows of a source must be in the same call.
 */
int heedful_source_attention_backward(const float *query, int64_t query_stride, const float *weights,
                                      const float *grad_contexts, float *grad_query, float *grad_keys,
                                      float *grad_v,
                                      const struct sources *s, int64_t first, int64_t last) {
    const int64_t d = s->key_width, e = s->value_width;
    float *g = malloc((size_t)(s->positions + 1) * sizeof(float));
    if (!g) return 1;
    for (int64_t n = first; n < last; n++) {
        const int64_t start = s->rows[n] * s->positions;
        const float *q = query + n * query_stride, *w = weights + n * s->positions;
        float *to = grad_query + n * query_stride, mean = 0;
        memset(to, 0, (size_t)d * sizeof(float));
        for (int64_t t = 0; t < s->positions; t++) {
            if (!s->allowed[start + t]) continue;
            g[t] = dot(grad_contexts + n * e, s->values + (start + t) * e, e);
            mean += w[t] * g[t];
        }
        for (int64_t t = 0; t < s->positions; t++) {
            if (!s->allowed[start + t]) continue;
            const float *key = s->keys + (start + t) * d;
            const float g_score = (float)s->scale * w[t] * (g[t] - mean);
            float *grad_key = grad_keys + (start + t) * d;
            if (s->v) {
                additive_gradients(q, key, s->v, g_score, to, grad_key, grad_v + n * d, d);
            } else {
                add(to, key, g_score, d);
                add(grad_key, q, g_score, d);
            }
        }
    }
    free(g);
    return 0;
}
