/* The best of long rows and the logarithm of all their exponentials, in one reading from memory.
 *
 * Shapes: N rows, V values a row, k of which are wanted.
 */
#include "simd.h"
#include <stdlib.h>

#define BLOCK 128

struct rows { int64_t width, stride, first, k; };

/* Put a value among the k best so far, which are in order; of equal ones the first stays before. */
static inline void enter(float *values, int64_t *columns, int64_t k, float value, int64_t column) {
    if (!(value > values[k - 1])) return;
    int64_t place = k - 1;
    for (; place > 0 && value > values[place - 1]; place--) {
        values[place] = values[place - 1];
        columns[place] = columns[place - 1];
    }
    values[place] = value;
    columns[place] = column;
}

static float most_of(const float *x, int64_t width) {
    vfloat most = (vfloat){0} - INFINITY;
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES) most = vmax(load(x + i), most);
    float top = reduce_max(most);
    for (; i < width; i++) top = x[i] > top ? x[i] : top;
    return top;
}

/* Σ e^(x − top): blocks in single, their sum in double precision. */
static double sum_of_exponentials(const float *x, int64_t width, float top) {
    double sum = 0;
    for (int64_t start = 0; start < width; start += 4 * BLOCK) {
        const int64_t end = start + 4 * BLOCK < width ? start + 4 * BLOCK : width;
        vfloat a = {0}, b = {0};
        int64_t i = start;
        for (; i + 2 * LANES <= end; i += 2 * LANES) {
            a += vexp(load(x + i) - top);
            b += vexp(load(x + i + LANES) - top);
        }
        for (; i < end; i++) sum += exp((double)x[i] - top);
        a += b;
        for (int j = 0; j < LANES; j++) sum += a[j];
    }
    return sum;
}

/* Where fewer than k values are more than −∞, the other places are those of the first columns that are
 * not among them, so that no column is there twice. */
static void fill(const float *offered, const float *values, int64_t *columns, int64_t k, int64_t first) {
    int64_t place = 0;
    while (place < k && values[place] > -INFINITY) place++;
    for (int64_t i = 0; place < k; i++)
        if (!(offered[i] > -INFINITY)) columns[place++] = first + i;
}

/* values, columns [N, k]: the largest of x[first:], largest first, of equal ones the first; what is not
 * a number is taken for −∞; largest_of, rest [N]: log Σ e^x over the whole row is their sum. Returns 0, or 1 if there is no memory. */
int heedful_best(const float *x, float *values, int64_t *columns, float *largest_of, float *rest,
                 const struct rows *s, int64_t first_row, int64_t last_row) {
    const int64_t blocks = (s->width - s->first + BLOCK - 1) / BLOCK, k = s->k;
    float *most = malloc((size_t)(blocks + k) * sizeof(float));
    int64_t *unused = malloc((size_t)k * sizeof(int64_t));
    if (!most || !unused) {
        free(most);
        free(unused);
        return 1;
    }
    float *highest = most + blocks; /* the k largest of the blocks' largest */
    for (int64_t n = first_row; n < last_row; n++) {
        const float *row = x + n * s->stride, *offered = row + s->first;
        const int64_t width = s->width - s->first;
        float *own = values + n * k;
        int64_t *places = columns + n * k;
        float top = -INFINITY;
        for (int64_t i = 0; i < s->first; i++) top = row[i] > top ? row[i] : top;
        for (int64_t i = 0; i < k; i++) highest[i] = own[i] = -INFINITY;
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t left = width - b * BLOCK;
            most[b] = most_of(offered + b * BLOCK, left < BLOCK ? left : BLOCK);
            enter(highest, unused, k, most[b], 0);
        }
        top = highest[0] > top ? highest[0] : top;
        largest_of[n] = top;
        rest[n] = (float)log(sum_of_exponentials(row, s->width, top));
        /* k blocks have one that large: the k-th largest of all is no smaller. */
        const float least = highest[k - 1];
        for (int64_t b = 0; b < blocks; b++) {
            if (!(most[b] >= least)) continue;
            const int64_t end = (b + 1) * BLOCK < width ? (b + 1) * BLOCK : width;
            for (int64_t i = b * BLOCK; i < end; i++)
                if (offered[i] >= least) enter(own, places, k, offered[i], s->first + i);
        }
        fill(offered, own, places, k, s->first);
    }
    free(most);
    free(unused);
    return 0;
}
