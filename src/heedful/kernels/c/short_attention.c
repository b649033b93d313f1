/* Softmax attention of whole short sequences, forward and backward, in float32.
 *
 * Shapes: B entries, H query heads, G key and value heads (H is a multiple of G), Q queries, K keys, D
 * width of a query and a key, E width of a value. Tensors have any strides, but each head's vector is
 * contiguous. All values of a head fit in the L1 cache. Weights are kept for the backward pass. Scores
 * and weights are [K, Q rounded up to TILE_COLUMNS], so that one vector holds many queries in the
 * softmax.
 */
#include "gemm.h"
#include <stdlib.h>

struct strided {
    float *first;
    int64_t entry, head, position; /* strides */
};

struct attention {
    int64_t entries, heads, groups, queries, keys, width, value_width;
    double scale;
    struct strided query, key, value, context, query_gradient, key_gradient, value_gradient;
    float *weights; /* [B, H, K, Q rounded up] */
    const uint8_t *allowed; /* null: all positions */
    int64_t allowed_entry_stride, allowed_head_stride, allowed_query_stride, allowed_key_stride; /* stri
                                                                                                  * des */
    int64_t causal; /* query i does not attend to keys after i + K − Q */
};

/* Buffers of one head. Rows are padded to TILE_ROWS, panels to TILE_COLUMNS. */
struct buffers {
    float *keys, *values, *transposed, *packed, *scores, *weights;
};

int64_t heedful_attention_padded_queries(int64_t queries) { return round_up(queries, TILE_COLUMNS); }

static inline float *at(const struct strided *p, int64_t entry, int64_t head) {
    return p->first + entry * p->entry + head * p->head;
}

static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Allocate zeros, so that the unused results of the padding are finite. */
static float *allocate(const struct attention *a, struct buffers *b) {
    const int64_t padded_width = round_up(larger(a->width, a->value_width), TILE_COLUMNS);
    const int64_t padded_queries = round_up(a->queries, TILE_COLUMNS);
    const int64_t padded_keys = round_up(a->keys, TILE_ROWS);
    const int64_t sizes[] = {padded_keys * padded_width, padded_keys * padded_width,
                             padded_queries * padded_width, padded_queries * padded_width,
                             padded_keys * padded_queries + TILE_ROWS,
                             padded_keys * padded_queries + TILE_ROWS};
    int64_t total = 0;
    for (int i = 0; i < 6; i++) total += sizes[i];
    float *memory = calloc((size_t)total, sizeof(float)), *next = memory;
    float **pointers[] = {&b->keys, &b->values, &b->transposed, &b->packed, &b->scores, &b->weights};
    for (int i = 0; memory && i < 6; next += sizes[i++]) *pointers[i] = next;
    return memory;
}

/* Copy rows to contiguous memory. */
static void copy_rows(const float *from, int64_t stride, int64_t rows, int64_t width, float *to) {
    for (int64_t i = 0; i < rows; i++)
        memcpy(to + i * width, from + i * stride, (size_t)width * sizeof(float));
}

/* Pack the transpose of rows [n, width] into panels [n / TILE_COLUMNS, width, TILE_COLUMNS]. */
static void transpose_to_panels(const float *from, int64_t stride, int64_t rows, int64_t width,
                                float *panels) {
    for (int64_t i = 0; i < rows; i++) {
        float *to = panels + i / TILE_COLUMNS * TILE_COLUMNS * width + i % TILE_COLUMNS;
        for (int64_t k = 0; k < width; k++) to[k * TILE_COLUMNS] = from[i * stride + k];
    }
}

/* to [rows, width] = factor · from · panels, or to += with `accumulate`. Element k of row i is from[i ·
 * row + k · step]. `panels` is in the layout of `pack`. */
static void multiply(const float *from, int64_t row, int64_t step, const float *panels, int64_t depth,
                     int64_t rows, int64_t width, float *to, int64_t stride, float factor, int accumulate) {
    for (int64_t p = 0; p < width; p += TILE_COLUMNS)
        for (int64_t r = 0; r < rows; r += TILE_ROWS) {
            tile sum = {0};
            if (step == 1) gemm_tile(sum, from + r * row, row, 1, panels + p * depth, depth);
            else gemm_tile(sum, from + r, 1, step, panels + p * depth, depth);
            for (int i = 0; i < TILE_ROWS && r + i < rows; i++) {
                float *value = to + (r + i) * stride + p;
                for (int j = 0; j < 2; j++) {
                    sum[i][j] *= factor;
                    if (width - p >= TILE_COLUMNS) {
                        store(value + j * LANES, accumulate ? load(value + j * LANES) + sum[i][j] : sum[i][j]);
                        continue;
                    }
                    for (int64_t k = 0; k < LANES && p + j * LANES + k < width; k++)
                        value[j * LANES + k] = sum[i][j][k] + (accumulate ? value[j * LANES + k] : 0);
                }
            }
        }
}

/* Which of the LANES queries from `first` may attend to a key. */
static inline vint visible(const struct attention *a, const uint8_t *allowed, int64_t key, int64_t first) {
    vint bits = {0};
    if (!allowed) bits = ~bits;
    else if (!a->allowed_query_stride) bits -= allowed[key * a->allowed_key_stride] != 0;
    else
        for (int64_t i = 0; i < LANES && first + i < a->queries; i++)
            bits[i] = -(allowed[key * a->allowed_key_stride + (first + i) * a->allowed_query_stride] != 0);
    if (a->causal) {
        const int32_t from = (int32_t)(key - a->keys + a->queries - first);
        vint strided;
        for (int i = 0; i < LANES; i++) strided[i] = i;
        bits &= strided >= from;
    }
    return bits;
}

/* Scores become weights that sum to one, or zeros for a query that may attend to no key. */
static void softmax(const struct attention *a, int64_t entry, int64_t head, float *scores,
                    int64_t padded_queries) {
    const vfloat minus_infinity = (vfloat){0} - INFINITY;
    const uint8_t *allowed = a->allowed;
    if (allowed) allowed += entry * a->allowed_entry_stride + head * a->allowed_head_stride;
    const int memory = !allowed && !a->causal;
    for (int64_t v = 0; v < padded_queries; v += LANES) {
        vfloat maximum = minus_infinity, sum = {0};
        for (int64_t k = 0; k < a->keys; k++) {
            vfloat value = load(scores + k * padded_queries + v) * (float)a->scale;
            if (!memory) {
                const vint visible_here = visible(a, allowed, k, v);
                value = (vfloat)((visible_here & (vint)value) | (~visible_here & (vint)minus_infinity));
            }
            store(scores + k * padded_queries + v, value);
            maximum = vmax(value, maximum);
        }
        for (int64_t k = 0; k < a->keys; k++) {
            const vfloat value = load(scores + k * padded_queries + v);
            const vfloat exponential = (vfloat)(~(value == minus_infinity) & (vint)vexp(value - maximum));
            store(scores + k * padded_queries + v, exponential);
            sum += exponential;
        }
        const vint any = sum > (vfloat){0};
        const vfloat inverse_sum = (vfloat)((any & (vint)(1.0f / sum)) | (~any & (vint)sum));
        for (int64_t k = 0; k < a->keys; k++)
            store(scores + k * padded_queries + v, load(scores + k * padded_queries + v) * inverse_sum);
    }
}

/* Compute the contexts and weights of the (entry, group) pairs `first` to `end`. */
int heedful_attention(const struct attention *a, int64_t first, int64_t end) {
    struct buffers b;
    float *memory = allocate(a, &b);
    if (!memory) return 1;
    const int64_t padded_queries = round_up(a->queries, TILE_COLUMNS), heads_per_group = a->heads / a->groups;
    const int64_t q = a->queries, k = a->keys, d = a->width, e = a->value_width;
    for (int64_t n = first; n < end; n++) {
        const int64_t entry = n / a->groups, group = n % a->groups;
        copy_rows(at(&a->key, entry, group), a->key.position, k, d, b.keys);
        pack(at(&a->value, entry, group), a->value.position, 1, k, e, b.values, k);
        for (int64_t h = group * heads_per_group; h < (group + 1) * heads_per_group; h++) {
            float *weights = a->weights + (entry * a->heads + h) * k * padded_queries;
            transpose_to_panels(at(&a->query, entry, h), a->query.position, q, d, b.transposed);
            multiply(b.keys, d, 1, b.transposed, d, k, padded_queries, b.scores, padded_queries, 1, 0);
            softmax(a, entry, h, b.scores, padded_queries);
            memcpy(weights, b.scores, (size_t)(k * padded_queries) * sizeof(float));
            multiply(b.scores, 1, padded_queries, b.values, k, q, e, at(&a->context, entry, h),
                    a->context.position, 1, 0);
        }
    }
    free(memory);
    return 0;
}

/* The gradient of a weight, or zero if the weight is zero: the gradient of a masked key can be infinite
 * or NaN. */
static inline vfloat masked_gradient(const float *weight, const float *gradient) {
    return (vfloat)((load(weight) != (vfloat){0}) & (vint)load(gradient));
}

/* Softmax backward, in place: the weights' gradients in `scores` become the scores' gradients. */
static void softmax_backward(const float *weights, float *scores, int64_t keys, int64_t padded_queries) {
    for (int64_t v = 0; v < padded_queries; v += LANES) {
        vfloat mean = {0};
        for (int64_t k = 0; k < keys; k++)
            mean += load(weights + k * padded_queries + v) *
                    masked_gradient(weights + k * padded_queries + v, scores + k * padded_queries + v);
        for (int64_t k = 0; k < keys; k++) {
            float *value = scores + k * padded_queries + v;
            store(value, load(weights + k * padded_queries + v) *
                             (masked_gradient(weights + k * padded_queries + v, value) - mean));
        }
    }
}

/* Gradients of query, key and value. `context` holds the gradient of the context. */
int heedful_attention_backward(const struct attention *a, int64_t first, int64_t end) {
    struct buffers b;
    float *memory = allocate(a, &b);
    if (!memory) return 1;
    const int64_t padded_queries = round_up(a->queries, TILE_COLUMNS), heads_per_group = a->heads / a->groups;
    const int64_t q = a->queries, k = a->keys, d = a->width, e = a->value_width;
    const float scale = (float)a->scale;
    for (int64_t n = first; n < end; n++) {
        const int64_t entry = n / a->groups, group = n % a->groups;
        copy_rows(at(&a->value, entry, group), a->value.position, k, e, b.values);
        pack(at(&a->key, entry, group), a->key.position, 1, k, d, b.keys, k);
        for (int64_t h = group * heads_per_group; h < (group + 1) * heads_per_group; h++) {
            const int accumulate = h > group * heads_per_group;
            const float *context = at(&a->context, entry, h), *query = at(&a->query, entry, h);
            /* A copy, because the tiles of the last rows read past the end. */
            memcpy(b.weights, a->weights + (entry * a->heads + h) * k * padded_queries,
                   (size_t)(k * padded_queries) * sizeof(float));
            transpose_to_panels(context, a->context.position, q, e, b.transposed);
            multiply(b.values, e, 1, b.transposed, e, k, padded_queries, b.scores, padded_queries, 1, 0);
            pack(context, a->context.position, 1, q, e, b.packed, q);
            multiply(b.weights, padded_queries, 1, b.packed, q, k, e, at(&a->value_gradient, entry, group),
                    a->value_gradient.position, 1, accumulate);
            softmax_backward(b.weights, b.scores, k, padded_queries);
            multiply(b.scores, 1, padded_queries, b.keys, k, q, d, at(&a->query_gradient, entry, h),
                    a->query_gradient.position, scale, 0);
            pack(query, a->query.position, 1, q, d, b.packed, q);
            multiply(b.scores, padded_queries, 1, b.packed, q, k, d, at(&a->key_gradient, entry, group),
                    a->key_gradient.position, scale, accumulate);
        }
    }
    free(memory);
    return 0;
}
