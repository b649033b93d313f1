/* Softmax attention with one query for each row and head. The keys and values of each position lie at
 * their own address, with their own rows. For each query row, `index` gives the row to read at each
 * position, and `starts` and `lengths` the range of positions.
 *
 * Shapes: N rows, H query heads, G key and value heads (H is a multiple of G), T positions, D key
 * width, E value width.
 */
#include "simd.h"

struct steps {
    const float *const *keys, *const *values;   /* one address for each of T positions */
    const int64_t *key_strides, *value_strides; /* between rows, for each position */
    const int64_t *index;                       /* [N, T]: the row to read at each position */
    const int64_t *lengths; /* [N]: number of positions to read; null: all from the start */
    const int64_t *starts;  /* [N]: first position to read; null: 0 */
    int64_t index_row_stride, index_position_stride; /* strides of index */
    int64_t positions;
    const float *bias; /* [N, H, T]: what is added to the scores, contiguous in T; null: nothing */
    int64_t bias_row_stride, bias_head_stride;
};

struct heads {
    int64_t heads, groups, key_width, value_width;
    double scale;
};

static inline float dot(const float *a, const float *b, int64_t width) {
    vfloat sum = {0};
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES) sum += load(a + i) * load(b + i);
    float rest = 0;
    for (; i < width; i++) rest += a[i] * b[i];
    return reduce_add(sum) + rest;
}

static inline void add(float *to, const float *from, float weight, int64_t width) {
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES) store(to + i, load(to + i) + weight * load(from + i));
    for (; i < width; i++) to[i] += weight * from[i];
}

/* Softmax in place. `stride` is a multiple of LANES; the weights from `count` to `stride` are 0. */
static inline void softmax(float *scores, int64_t count, int64_t stride) {
    for (int64_t t = count; t < stride; t++) scores[t] = -INFINITY;
    vfloat largest = load(scores), sum = {0};
    for (int64_t t = LANES; t < stride; t += LANES) largest = vmax(load(scores + t), largest);
    const float maximum = reduce_max(largest);
    for (int64_t t = 0; t < stride; t += LANES) store(scores + t, vexp(load(scores + t) - maximum));
    for (int64_t t = count; t < stride; t++) scores[t] = 0;
    for (int64_t t = 0; t < stride; t += LANES) sum += load(scores + t);
    const float inverse_sum = 1.0f / reduce_add(sum);
    for (int64_t t = 0; t < stride; t += LANES) store(scores + t, load(scores + t) * inverse_sum);
}

static inline int64_t padded(int64_t count) { return (count + LANES - 1) / LANES * LANES; }

/* Write the context `to` [H, E] of row n for its query [H, D]. `scores` holds H · padded(T) floats. */
static inline void attend_to_steps(const struct steps *s, const struct heads *a, int64_t n,
                                   const float *query, float *to, float *scores) {
    const int64_t heads_per_group = a->heads / a->groups, d = a->key_width, e = a->value_width;
    const int64_t start = s->starts ? s->starts[n] : 0;
    const int64_t *from = s->index + n * s->index_row_stride + start * s->index_position_stride;
    const int64_t count = s->lengths ? s->lengths[n] : s->positions - start, stride = padded(count);
    const float *const *keys = s->keys + start, *const *values = s->values + start;
    const int64_t *key_strides = s->key_strides + start, *value_strides = s->value_strides + start;
    const float scale = (float)a->scale;
    memset(to, 0, (size_t)(a->heads * e) * sizeof(float));
    if (!count) return;
    for (int64_t t = 0; t < count; t++) {
        const float *k = keys[t] + from[t * s->index_position_stride] * key_strides[t];
        for (int64_t h = 0; h < a->heads; h++)
            scores[h * stride + t] = scale * dot(query + h * d, k + h / heads_per_group * d, d);
    }
    for (int64_t h = 0; s->bias && h < a->heads; h++)
        add(scores + h * stride, s->bias + n * s->bias_row_stride + h * s->bias_head_stride + start, 1, count);
    for (int64_t h = 0; h < a->heads; h++) softmax(scores + h * stride, count, stride);
    for (int64_t t = 0; t < count; t++) {
        const float *v = values[t] + from[t * s->index_position_stride] * value_strides[t];
        for (int64_t h = 0; h < a->heads; h++)
            add(to + h * e, v + h / heads_per_group * e, scores[h * stride + t], e);
    }
}
