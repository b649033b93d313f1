/* Softmax attention of one query a row and head, over keys and values that lie in many places: one for
 * each position, with rows of its own, of which every query's row says which one it reads.
 *
 * Shapes: N rows, H heads of queries, G of keys and values (H a multiple of G), T positions, D width
 * of a key's head, E of a value's.
 */
#include "lanes.h"
#include <stdlib.h>

struct reading {
    int64_t rows, heads, groups, positions, key_width, value_width;
    int64_t query_stride;              /* from one row's query [H, D] to the next's */
    int64_t index_row, index_position; /* strides of index [N, T] */
    double scale;
};

static inline float dot(const float *a, const float *b, int64_t width) {
    lanes sum = {0};
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES) sum += load(a + i) * load(b + i);
    float rest = 0;
    for (; i < width; i++) rest += a[i] * b[i];
    return total(sum) + rest;
}

static inline void add(float *to, const float *from, float weight, int64_t width) {
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES) store(to + i, load(to + i) + weight * load(from + i));
    for (; i < width; i++) to[i] += weight * from[i];
}

/* Scores become weights that sum to one; `room` is a multiple of LANES, beyond `count` are −∞. */
static void softmax(float *scores, int64_t count, int64_t room) {
    for (int64_t t = count; t < room; t++) scores[t] = -INFINITY;
    lanes most = load(scores), sum = {0};
    for (int64_t t = LANES; t < room; t += LANES) most = larger(load(scores + t), most);
    const float top = largest(most);
    for (int64_t t = 0; t < room; t += LANES) store(scores + t, exponential(load(scores + t) - top));
    for (int64_t t = count; t < room; t++) scores[t] = 0;
    for (int64_t t = 0; t < room; t += LANES) sum += load(scores + t);
    const float whole = 1.0f / total(sum);
    for (int64_t t = 0; t < room; t += LANES) store(scores + t, load(scores + t) * whole);
}

/* query [N, H, D]; keys, values: T places with `key_strides`, `value_strides` from row to row;
 * index [N, T]; lengths [N], or null where all positions are read; out [N, H, E].
 * Returns 0, or 1 if there is no memory for the scores. */
int heedful_read(const float *query, const float *const *keys, const float *const *values,
                 const int64_t *key_strides, const int64_t *value_strides, const int64_t *index,
                 const int64_t *lengths, float *out, const struct reading *s, int64_t first_row,
                 int64_t last_row) {
    const int64_t each = s->heads / s->groups, d = s->key_width, e = s->value_width;
    const int64_t room = (s->positions + LANES - 1) / LANES * LANES;
    float *scores = malloc((size_t)(s->heads * room) * sizeof(float));
    if (!scores) return 1;
    const float scale = (float)s->scale;
    for (int64_t n = first_row; n < last_row; n++) {
        const float *q = query + n * s->query_stride;
        const int64_t *from = index + n * s->index_row;
        const int64_t count = lengths ? lengths[n] : s->positions;
        float *to = out + n * s->heads * e;
        memset(to, 0, (size_t)(s->heads * e) * sizeof(float));
        if (!count) continue;
        for (int64_t t = 0; t < count; t++) {
            const float *k = keys[t] + from[t * s->index_position] * key_strides[t];
            for (int64_t h = 0; h < s->heads; h++)
                scores[h * room + t] = scale * dot(q + h * d, k + h / each * d, d);
        }
        const int64_t own = (count + LANES - 1) / LANES * LANES;
        for (int64_t h = 0; h < s->heads; h++) softmax(scores + h * room, count, own);
        for (int64_t t = 0; t < count; t++) {
            const float *v = values[t] + from[t * s->index_position] * value_strides[t];
            for (int64_t h = 0; h < s->heads; h++)
                add(to + h * e, v + h / each * e, scores[h * room + t], e);
        }
    }
    free(scores);
    return 0;
}
