/* Softmax attention of one query a row and head, over keys and values that lie in many places: one for
 * each position, with rows of its own, of which every query's row says which one it reads, and from
 * which place on.
 *
 * Shapes: N rows, H heads of queries, G of keys and values (H a multiple of G), T positions, D width
 * of a key's head, E of a value's.
 */
#include "simd.h"

struct steps {
    const float *const *keys, *const *values;   /* T places */
    const int64_t *key_strides, *value_strides; /* from row to row, one a place */
    const int64_t *index;                       /* [N, T]: which row of a place a row reads */
    const int64_t *lengths; /* [N]: how many places a row reads; null for all from its first */
    const int64_t *firsts;  /* [N]: the first place a row reads; null for the first of all */
    int64_t index_row, index_position;          /* strides of index */
    int64_t positions;
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

/* Scores become weights that sum to one; `room` is a multiple of LANES, beyond `count` are −∞. */
static inline void softmax(float *scores, int64_t count, int64_t room) {
    for (int64_t t = count; t < room; t++) scores[t] = -INFINITY;
    vfloat most = load(scores), sum = {0};
    for (int64_t t = LANES; t < room; t += LANES) most = vmax(load(scores + t), most);
    const float top = reduce_max(most);
    for (int64_t t = 0; t < room; t += LANES) store(scores + t, vexp(load(scores + t) - top));
    for (int64_t t = count; t < room; t++) scores[t] = 0;
    for (int64_t t = 0; t < room; t += LANES) sum += load(scores + t);
    const float whole = 1.0f / reduce_add(sum);
    for (int64_t t = 0; t < room; t += LANES) store(scores + t, load(scores + t) * whole);
}

static inline int64_t padded(int64_t count) { return (count + LANES - 1) / LANES * LANES; }

/* The context `to` [H, E] of row n's query [H, D]; `scores` has room for H · padded(T). */
static inline void read_steps(const struct steps *s, const struct heads *a, int64_t n,
                              const float *query, float *to, float *scores) {
    const int64_t each = a->heads / a->groups, d = a->key_width, e = a->value_width;
    const int64_t first = s->firsts ? s->firsts[n] : 0;
    const int64_t *from = s->index + n * s->index_row + first * s->index_position;
    const int64_t count = s->lengths ? s->lengths[n] : s->positions - first, room = padded(count);
    const float *const *keys = s->keys + first, *const *values = s->values + first;
    const int64_t *key_strides = s->key_strides + first, *value_strides = s->value_strides + first;
    const float scale = (float)a->scale;
    memset(to, 0, (size_t)(a->heads * e) * sizeof(float));
    if (!count) return;
    for (int64_t t = 0; t < count; t++) {
        const float *k = keys[t] + from[t * s->index_position] * key_strides[t];
        for (int64_t h = 0; h < a->heads; h++)
            scores[h * room + t] = scale * dot(query + h * d, k + h / each * d, d);
    }
    for (int64_t h = 0; h < a->heads; h++) softmax(scores + h * room, count, room);
    for (int64_t t = 0; t < count; t++) {
        const float *v = values[t] + from[t * s->index_position] * value_strides[t];
        for (int64_t h = 0; h < a->heads; h++)
            add(to + h * e, v + h / each * e, scores[h * room + t], e);
    }
}
