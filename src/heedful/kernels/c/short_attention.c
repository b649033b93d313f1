/* Softmax attention of whole short sequences, forward and backward, in single precision.
 *
 * Shapes: B entries, H heads of queries, G of keys and values (H a multiple of G), Q queries, K keys,
 * D width of a query and a key, E of a value. Numbers stand where strides say, a head's own in order.
 * A head's numbers all lie in the nearest cache; weights are kept for the gradients. Scores and weights
 * are [K, Q rounded to COLUMNS], so that many queries go through the softmax side by side.
 */
#include "gemm.h"
#include <stdlib.h>

struct place {
    float *first;
    int64_t entry, head, position; /* strides */
};

struct attention {
    int64_t entries, heads, groups, queries, keys, width, value_width;
    double scale;
    struct place query, key, value, context, query_gradient, key_gradient, value_gradient;
    float *weights; /* [B, H, K, Q rounded] */
    const uint8_t *allowed; /* null: all */
    int64_t allowed_entry, allowed_head, allowed_query, allowed_key; /* strides */
    int64_t causal; /* whether query i may see no key after i + K − Q */
};

/* Buffers of one head: rows of tiles are rounded to ROWS, panels to COLUMNS. */
struct buffers {
    float *keys, *values, *turned, *side, *scores, *weights;
};

int64_t heedful_attention_room(int64_t queries) { return rounded(queries, COLUMNS); }

static inline float *at(const struct place *p, int64_t entry, int64_t head) {
    return p->first + entry * p->entry + head * p->head;
}

static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Zeros, so that what is computed beside the numbers, and not used, is finite. */
static float *make(const struct attention *a, struct buffers *b) {
    const int64_t wide = rounded(most(a->width, a->value_width), COLUMNS);
    const int64_t room = rounded(a->queries, COLUMNS), tall = rounded(a->keys, ROWS);
    const int64_t sizes[] = {tall * wide, tall * wide, room * wide,
                             room * wide, tall * room + ROWS, tall * room + ROWS};
    int64_t size = 0;
    for (int i = 0; i < 6; i++) size += sizes[i];
    float *all = calloc((size_t)size, sizeof(float)), *next = all;
    float **parts[] = {&b->keys, &b->values, &b->turned, &b->side, &b->scores, &b->weights};
    for (int i = 0; all && i < 6; next += sizes[i++]) *parts[i] = next;
    return all;
}

/* Rows side by side. */
static void gather(const float *from, int64_t stride, int64_t rows, int64_t width, float *to) {
    for (int64_t i = 0; i < rows; i++)
        memcpy(to + i * width, from + i * stride, (size_t)width * sizeof(float));
}

/* Rows [n, width] as panels of columns [n / COLUMNS, width, COLUMNS]. */
static void turn(const float *from, int64_t stride, int64_t rows, int64_t width, float *panels) {
    for (int64_t i = 0; i < rows; i++) {
        float *to = panels + i / COLUMNS * COLUMNS * width + i % COLUMNS;
        for (int64_t k = 0; k < width; k++) to[k * COLUMNS] = from[i * stride + k];
    }
}

/* to [rows, width] = factor · rows · panels, or added to it; a number of a row i stands at from[i · row
 * + k · step], and `panels` are as `pack` makes them. */
static void product(const float *from, int64_t row, int64_t step, const float *panels, int64_t depth,
                    int64_t rows, int64_t width, float *to, int64_t stride, float factor, int adds) {
    for (int64_t p = 0; p < width; p += COLUMNS)
        for (int64_t r = 0; r < rows; r += ROWS) {
            tile sum = {0};
            if (step == 1) gemm_tile(sum, from + r * row, row, 1, panels + p * depth, depth);
            else gemm_tile(sum, from + r, 1, step, panels + p * depth, depth);
            for (int i = 0; i < ROWS && r + i < rows; i++) {
                float *own = to + (r + i) * stride + p;
                for (int j = 0; j < 2; j++) {
                    sum[i][j] *= factor;
                    if (width - p >= COLUMNS) {
                        store(own + j * LANES, adds ? load(own + j * LANES) + sum[i][j] : sum[i][j]);
                        continue;
                    }
                    for (int64_t k = 0; k < LANES && p + j * LANES + k < width; k++)
                        own[j * LANES + k] = sum[i][j][k] + (adds ? own[j * LANES + k] : 0);
                }
            }
        }
}

/* Which of the LANES queries from `first` on may see a key. */
static inline vint see(const struct attention *a, const uint8_t *allowed, int64_t key, int64_t first) {
    vint bits = {0};
    if (!allowed) bits = ~bits;
    else if (!a->allowed_query) bits -= allowed[key * a->allowed_key] != 0;
    else
        for (int64_t i = 0; i < LANES && first + i < a->queries; i++)
            bits[i] = -(allowed[key * a->allowed_key + (first + i) * a->allowed_query] != 0);
    if (a->causal) {
        const int32_t from = (int32_t)(key - a->keys + a->queries - first);
        vint place;
        for (int i = 0; i < LANES; i++) place[i] = i;
        bits &= place >= from;
    }
    return bits;
}

/* Scores become weights that sum to one; none where nothing may be seen. */
static void softmax(const struct attention *a, int64_t entry, int64_t head, float *scores, int64_t room) {
    const vfloat least = (vfloat){0} - INFINITY;
    const uint8_t *allowed = a->allowed;
    if (allowed) allowed += entry * a->allowed_entry + head * a->allowed_head;
    const int all = !allowed && !a->causal;
    for (int64_t v = 0; v < room; v += LANES) {
        vfloat top = least, sum = {0};
        for (int64_t k = 0; k < a->keys; k++) {
            vfloat own = load(scores + k * room + v) * (float)a->scale;
            if (!all) {
                const vint sees = see(a, allowed, k, v);
                own = (vfloat)((sees & (vint)own) | (~sees & (vint)least));
            }
            store(scores + k * room + v, own);
            top = vmax(own, top);
        }
        for (int64_t k = 0; k < a->keys; k++) {
            const vfloat own = load(scores + k * room + v);
            const vfloat power = (vfloat)(~(own == least) & (vint)vexp(own - top));
            store(scores + k * room + v, power);
            sum += power;
        }
        const vint some = sum > (vfloat){0};
        const vfloat share = (vfloat)((some & (vint)(1.0f / sum)) | (~some & (vint)sum));
        for (int64_t k = 0; k < a->keys; k++)
            store(scores + k * room + v, load(scores + k * room + v) * share);
    }
}

/* Contexts and weights of the pairs of entry and group from `first` to `end`. */
int heedful_attention(const struct attention *a, int64_t first, int64_t end) {
    struct buffers b;
    float *all = make(a, &b);
    if (!all) return 1;
    const int64_t room = rounded(a->queries, COLUMNS), each = a->heads / a->groups;
    const int64_t q = a->queries, k = a->keys, d = a->width, e = a->value_width;
    for (int64_t n = first; n < end; n++) {
        const int64_t entry = n / a->groups, group = n % a->groups;
        gather(at(&a->key, entry, group), a->key.position, k, d, b.keys);
        pack(at(&a->value, entry, group), a->value.position, 1, k, e, b.values, k);
        for (int64_t h = group * each; h < (group + 1) * each; h++) {
            float *weights = a->weights + (entry * a->heads + h) * k * room;
            turn(at(&a->query, entry, h), a->query.position, q, d, b.turned);
            product(b.keys, d, 1, b.turned, d, k, room, b.scores, room, 1, 0);
            softmax(a, entry, h, b.scores, room);
            memcpy(weights, b.scores, (size_t)(k * room) * sizeof(float));
            product(b.scores, 1, room, b.values, k, q, e, at(&a->context, entry, h),
                    a->context.position, 1, 0);
        }
    }
    free(all);
    return 0;
}

/* A weight's gradient, zero where the weight is: of a masked key it may not be finite. */
static inline vfloat flowing(const float *weight, const float *gradient) {
    return (vfloat)((load(weight) != (vfloat){0}) & (vint)load(gradient));
}

/* Weights, and what the loss changes with them, become what it changes with scores: it is `scores`. */
static void through_softmax(const float *weights, float *scores, int64_t keys, int64_t room) {
    for (int64_t v = 0; v < room; v += LANES) {
        vfloat mean = {0};
        for (int64_t k = 0; k < keys; k++)
            mean += load(weights + k * room + v) * flowing(weights + k * room + v, scores + k * room + v);
        for (int64_t k = 0; k < keys; k++) {
            float *own = scores + k * room + v;
            store(own, load(weights + k * room + v) * (flowing(weights + k * room + v, own) - mean));
        }
    }
}

/* Gradients by query, key and value, of which `context` holds the context's. */
int heedful_attention_gradients(const struct attention *a, int64_t first, int64_t end) {
    struct buffers b;
    float *all = make(a, &b);
    if (!all) return 1;
    const int64_t room = rounded(a->queries, COLUMNS), each = a->heads / a->groups;
    const int64_t q = a->queries, k = a->keys, d = a->width, e = a->value_width;
    const float scale = (float)a->scale;
    for (int64_t n = first; n < end; n++) {
        const int64_t entry = n / a->groups, group = n % a->groups;
        gather(at(&a->value, entry, group), a->value.position, k, e, b.values);
        pack(at(&a->key, entry, group), a->key.position, 1, k, d, b.keys, k);
        for (int64_t h = group * each; h < (group + 1) * each; h++) {
            const int adds = h > group * each;
            const float *context = at(&a->context, entry, h), *query = at(&a->query, entry, h);
            /* A copy, because tiles of the last rows read beyond them. */
            memcpy(b.weights, a->weights + (entry * a->heads + h) * k * room,
                   (size_t)(k * room) * sizeof(float));
            turn(context, a->context.position, q, e, b.turned);
            product(b.values, e, 1, b.turned, e, k, room, b.scores, room, 1, 0);
            pack(context, a->context.position, 1, q, e, b.side, q);
            product(b.weights, room, 1, b.side, q, k, e, at(&a->value_gradient, entry, group),
                    a->value_gradient.position, 1, adds);
            through_softmax(b.weights, b.scores, k, room);
            product(b.scores, 1, room, b.keys, k, q, d, at(&a->query_gradient, entry, h),
                    a->query_gradient.position, scale, 0);
            pack(query, a->query.position, 1, q, d, b.side, q);
            product(b.scores, room, 1, b.side, q, k, d, at(&a->key_gradient, entry, group),
                    a->key_gradient.position, scale, adds);
        }
    }
    free(all);
    return 0;
}
