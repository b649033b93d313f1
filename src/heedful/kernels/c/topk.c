/* The k largest values and the log-sum-exp of long rows, reading each row from memory once.
 *
 * Shapes: N rows, V values in a row, the k largest of which are returned.
 */
#include "simd.h"
#include <stdlib.h>

#define BLOCK 128

struct rows { int64_t width, stride, first, k; };

/* Insert a value into the k largest so far, in descending order. Of equal values, the first comes first. */
static inline void insert(float *values, int64_t *columns, int64_t k, float value, int64_t column) {
    if (!(value > values[k - 1])) return;
    int64_t position = k - 1;
    for (; position > 0 && value > values[position - 1]; position--) {
        values[position] = values[position - 1];
        columns[position] = columns[position - 1];
    }
    values[position] = value;
    columns[position] = column;
}

static float maximum_of(const float *x, int64_t width) {
    vfloat block_maxima = (vfloat){0} - INFINITY;
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES) block_maxima = vmax(load(x + i), block_maxima);
    float maximum = reduce_max(block_maxima);
    for (; i < width; i++) maximum = x[i] > maximum ? x[i] : maximum;
    return maximum;
}

/* Σ e^(x − maximum): blocks in float32, their sum in double. */
static double sum_of_exponentials(const float *x, int64_t width, float maximum) {
    double sum = 0;
    for (int64_t start = 0; start < width; start += 4 * BLOCK) {
        const int64_t end = start + 4 * BLOCK < width ? start + 4 * BLOCK : width;
        vfloat a = {0}, b = {0};
        int64_t i = start;
        for (; i + 2 * LANES <= end; i += 2 * LANES) {
            a += vexp(load(x + i) - maximum);
            b += vexp(load(x + i + LANES) - maximum);
        }
        for (; i < end; i++) sum += exp((double)x[i] - maximum);
        a += b;
        for (int j = 0; j < LANES; j++) sum += a[j];
    }
    return sum;
}

/* If fewer than k values are above −∞, return the first of the other columns in the remaining places,
 * so that no column is returned twice. */
static void fill_remaining(const float *candidates, const float *values, int64_t *columns, int64_t k,
                           int64_t first) {
    int64_t position = 0;
    while (position < k && values[position] > -INFINITY) position++;
    for (int64_t i = 0; position < k; i++)
        if (!(candidates[i] > -INFINITY)) columns[position++] = first + i;
}

/* values, columns [N, k]: the largest of x[first:], in descending order; of equal values, the first
 * comes first; NaN counts as −∞. maxima, rest [N]: log Σ e^x over the whole row is their sum. Returns
 * 0, or 1 if memory cannot be allocated.
 */
int heedful_topk(const float *x, float *values, int64_t *columns, float *maxima, float *rest,
                 const struct rows *s, int64_t first_row, int64_t last_row) {
    const int64_t blocks = (s->width - s->first + BLOCK - 1) / BLOCK, k = s->k;
    float *block_maxima = malloc((size_t)(blocks + k) * sizeof(float));
    int64_t *unused = malloc((size_t)k * sizeof(int64_t));
    if (!block_maxima || !unused) {
        free(block_maxima);
        free(unused);
        return 1;
    }
    float *best_maxima = block_maxima + blocks; /* the k largest of the block maxima */
    for (int64_t n = first_row; n < last_row; n++) {
        const float *row = x + n * s->stride, *candidates = row + s->first;
        const int64_t width = s->width - s->first;
        float *best_values = values + n * k;
        int64_t *best_columns = columns + n * k;
        float maximum = -INFINITY;
        for (int64_t i = 0; i < s->first; i++) maximum = row[i] > maximum ? row[i] : maximum;
        for (int64_t i = 0; i < k; i++) best_maxima[i] = best_values[i] = -INFINITY;
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t left = width - b * BLOCK;
            block_maxima[b] = maximum_of(candidates + b * BLOCK, left < BLOCK ? left : BLOCK);
            insert(best_maxima, unused, k, block_maxima[b], 0);
        }
        maximum = best_maxima[0] > maximum ? best_maxima[0] : maximum;
        maxima[n] = maximum;
        rest[n] = (float)log(sum_of_exponentials(row, s->width, maximum));
        /* k blocks have a maximum of at least this value: so has the k-th largest value. */
        const float threshold = best_maxima[k - 1];
        for (int64_t b = 0; b < blocks; b++) {
            if (!(block_maxima[b] >= threshold)) continue;
            const int64_t end = (b + 1) * BLOCK < width ? (b + 1) * BLOCK : width;
            for (int64_t i = b * BLOCK; i < end; i++)
                if (candidates[i] >= threshold)
                    insert(best_values, best_columns, k, candidates[i], s->first + i);
        }
        fill_remaining(candidates, best_values, best_columns, k, s->first);
    }
    free(block_maxima);
    free(unused);
    return 0;
}
