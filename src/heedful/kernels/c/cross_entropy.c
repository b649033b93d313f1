/* Cross-entropy over a large vocabulary and its gradients, a block of rows at a time.
 *
 * Shapes: N rows, D width, V symbols. The values e^(logit − maximum) of a block are stored in panels
 * [V / LOSS_PANEL, BLOCK, LOSS_PANEL]. `maximum` is the largest logit of a row within a slab of SLAB
 * symbols; it is found while the slab is in the cache. `scales` holds the missing factor: the
 * probability is scale · e^(logit − maximum).
 */
#include "gemm.h"

#define LOSS_PANEL (3 * TILE_COLUMNS) /* symbols; a multiple of TILE_ROWS */
#define SLAB 480                      /* symbols; a multiple of LOSS_PANEL for every vector width */
#define DEEP (5 * LOSS_PANEL)         /* symbols that are summed in registers; a divisor of SLAB */
#define BLOCK 120                     /* rows; a multiple of TILE_ROWS */

struct loss {
    int64_t rows, width, symbols;
    double smoothing;
};

int64_t heedful_loss_block(void) { return BLOCK; }
int64_t heedful_loss_slab(void) { return SLAB; }

static inline float *panel_at(float *block, int64_t symbol) {
    return block + symbol / LOSS_PANEL * LOSS_PANEL * BLOCK;
}

/* Pack slabs `first` to `end` of the table [V, D] into panels of symbols [V / TILE_COLUMNS, D,
 * TILE_COLUMNS] and panels of columns [D / TILE_COLUMNS, V, TILE_COLUMNS]. */
int heedful_loss_pack(const struct loss *l, const float *table, float *by_symbol, float *by_column,
                      int64_t first, int64_t end) {
    const int64_t padded_symbols = round_up(l->symbols, SLAB), d = l->width;
    for (int64_t v = first * SLAB; v < end * SLAB; v += TILE_COLUMNS) {
        const int64_t left = l->symbols - v, valid = left < 0 ? 0 : left < TILE_COLUMNS ? left : TILE_COLUMNS;
        float *panel = by_symbol + v * d;
        for (int64_t k = 0; k < d; k++)
            for (int64_t j = 0; j < TILE_COLUMNS; j++)
                panel[k * TILE_COLUMNS + j] = j < valid ? table[(v + j) * d + k] : 0;
        for (int64_t p = 0; p * TILE_COLUMNS < d; p++)
            memset(by_column + (p * padded_symbols + v) * TILE_COLUMNS, 0,
                   TILE_COLUMNS * TILE_COLUMNS * sizeof(float));
        pack(table + v * d, d, 1, valid, d, by_column + v * TILE_COLUMNS, padded_symbols);
    }
    return 0;
}

/* Compute e^(logit − maximum) for the logits of a slab, and for each row the maximum, the sum of the
 * exponentials and the logit of the label. */
static void slab_exponentials(const struct loss *l, const float *states, const float *by_symbol,
                              const int64_t *labels, int64_t count, int64_t slab, float *block,
                              float *maxima, float *sums, float *label_logits) {
    const int64_t d = l->width, first = slab * SLAB;
    for (int64_t v = first; v < first + SLAB; v += TILE_COLUMNS)
        for (int64_t r = 0; r < BLOCK; r += TILE_ROWS) {
            tile sum = {0};
            float *to = panel_at(block, v) + r * LOSS_PANEL + v % LOSS_PANEL;
            FOR_EACH_TILE_ROW __builtin_prefetch(to + i * LOSS_PANEL, 1);
            gemm_tile(sum, states + r * d, d, 1, by_symbol + v * d, d);
            FOR_EACH_TILE_ROW for (int j = 0; j < 2; j++) store(to + i * LOSS_PANEL + j * LANES, sum[i][j]);
        }
    const int64_t valid = l->symbols - first < SLAB ? l->symbols - first : SLAB;
    for (int64_t r = 0; r < count; r++) {
        const int64_t label = labels[r] - first;
        if (label >= 0 && label < SLAB)
            label_logits[r] = panel_at(block, labels[r])[r * LOSS_PANEL + labels[r] % LOSS_PANEL];
        for (int64_t v = valid; v < SLAB; v++)
            panel_at(block, first + v)[r * LOSS_PANEL + (first + v) % LOSS_PANEL] = -INFINITY;
        vfloat maximum = (vfloat){0} - INFINITY, total = {0};
        for (int64_t v = first; v < first + SLAB; v += LOSS_PANEL) {
            const float *row = panel_at(block, v) + r * LOSS_PANEL;
            for (int64_t j = 0; j < LOSS_PANEL; j += LANES) maximum = vmax(load(row + j), maximum);
        }
        maxima[r] = reduce_max(maximum);
        for (int64_t v = first; v < first + SLAB; v += LOSS_PANEL) {
            float *row = panel_at(block, v) + r * LOSS_PANEL;
            for (int64_t j = 0; j < LOSS_PANEL; j += LANES) {
                const vfloat exponential = vexp(load(row + j) - maxima[r]);
                store(row + j, exponential);
                total += exponential;
            }
        }
        for (int64_t v = valid; v < SLAB; v++) {
            float *row = panel_at(block, first + v) + r * LOSS_PANEL + (first + v) % LOSS_PANEL;
            total[0] -= *row;
            *row = 0;
        }
        sums[r] = reduce_add(total);
    }
}

/* Add factor · exponentials · table for a slab to the rows of a block. */
static void slab_gradient(const struct loss *l, const float *by_column, int64_t slab, float *block,
                          const float *factors, float *to) {
    const int64_t padded_symbols = round_up(l->symbols, SLAB), d = round_up(l->width, TILE_COLUMNS);
    for (int64_t v = slab * SLAB; v < (slab + 1) * SLAB; v += DEEP)
        for (int64_t p = 0; p < d; p += TILE_COLUMNS)
            for (int64_t r = 0; r < BLOCK; r += TILE_ROWS) {
                tile sum = {0};
                for (int64_t k = v; k < v + DEEP; k += LOSS_PANEL)
                    gemm_tile(sum, panel_at(block, k) + r * LOSS_PANEL, LOSS_PANEL, 1,
                             by_column + p * padded_symbols + k * TILE_COLUMNS, LOSS_PANEL);
                FOR_EACH_TILE_ROW for (int j = 0; j < 2; j++) {
                    float *row = to + (r + i) * d + p + j * LANES;
                    store(row, load(row) + factors[r + i] * sum[i][j]);
                }
            }
}

/* The sum of exponentials so far is sum · e^maximum. */
struct running_sum {
    double maximum, sum;
};

/* Add a slab to the running sums. `factors` rescales the slab to the largest logit so far; earlier
 * gradients in `to` are rescaled if the maximum grows. */
static void add_slab(const float *maxima, const float *sums, int64_t count, struct running_sum *running,
                     float *factors, float *to, int64_t width) {
    for (int64_t r = 0; r < count; r++) {
        if (maxima[r] > running[r].maximum) {
            const double rescale = exp(running[r].maximum - maxima[r]);
            for (int64_t k = 0; k < width; k++) to[r * width + k] *= (float)rescale;
            running[r] = (struct running_sum){maxima[r], running[r].sum * rescale};
        }
        const double factor = exp(maxima[r] - running[r].maximum);
        running[r].sum += sums[r] * factor;
        factors[r] = (float)factor;
    }
}

/* Compute the first `count` rows of a block: the losses, the gradients of the states, and the
 * exponentials and scales for the gradient of the table.
 *
 * `buffer` holds BLOCK · (D + D rounded up to TILE_COLUMNS + slabs + 3) floats.
 */
int heedful_loss_rows(const struct loss *l, const float *states, const int64_t *labels, const float *table,
                      const double *column_sums, const float *by_symbol, const float *by_column,
                      float *block, float *scales, double *plain_losses, double *smoothed_losses,
                      float *gradient, float *buffer, int64_t count) {
    const int64_t d = l->width, padded_width = round_up(d, TILE_COLUMNS);
    const int64_t slabs = round_up(l->symbols, SLAB) / SLAB;
    float *row = buffer, *to = row + BLOCK * d;
    float *maxima = to + BLOCK * padded_width, *sums = maxima + slabs * BLOCK;
    float *label_logits = sums + BLOCK, *factors = label_logits + BLOCK;
    struct running_sum running[BLOCK];
    memset(row, 0, (size_t)(BLOCK * (d + padded_width)) * sizeof(float));
    memcpy(row, states, (size_t)(count * d) * sizeof(float));
    memset(scales, 0, (size_t)(slabs * BLOCK) * sizeof(float));
    memset(factors, 0, BLOCK * sizeof(float));
    for (int64_t r = 0; r < count; r++) running[r] = (struct running_sum){-INFINITY, 0};
    for (int64_t s = 0; s < slabs; s++) {
        slab_exponentials(l, row, by_symbol, labels, count, s, block, maxima + s * BLOCK, sums, label_logits);
        add_slab(maxima + s * BLOCK, sums, count, running, factors, to, padded_width);
        slab_gradient(l, by_column, s, block, factors, to);
    }
    const double label_weight = 1 - l->smoothing, symbol_weight = l->smoothing / (double)l->symbols;
    for (int64_t r = 0; r < count; r++) {
        const double log_sum = log(running[r].sum) + running[r].maximum, loss = log_sum - label_logits[r];
        double logits = 0;
        for (int64_t k = 0; k < d; k++) logits += column_sums[k] * states[r * d + k];
        plain_losses[r] = loss;
        smoothed_losses[r] = label_weight * loss + symbol_weight * ((double)l->symbols * log_sum - logits);
        for (int64_t s = 0; s < slabs; s++)
            scales[s * BLOCK + r] = (float)(exp(maxima[s * BLOCK + r] - running[r].maximum) / running[r].sum);
        for (int64_t k = 0; k < d; k++)
            gradient[r * d + k] = (float)(to[r * padded_width + k] / running[r].sum -
                                          label_weight * table[labels[r] * d + k] -
                                          symbol_weight * column_sums[k]);
    }
    return 0;
}

/* Add the gradient of a block to the slabs `first` to `end` of the table's gradient.
 *
 * `buffer` holds BLOCK · (D rounded up to TILE_COLUMNS) floats.
 */
int heedful_loss_table_gradient(const struct loss *l, const float *states, const int64_t *labels,
                                float *block, const float *scales, int64_t count, float *gradient,
                                float *buffer, int64_t first, int64_t end) {
    const int64_t d = l->width, padded_width = round_up(d, TILE_COLUMNS);
    memset(buffer, 0, (size_t)(BLOCK * padded_width) * sizeof(float));
    for (int64_t s = first; s < end; s++) {
        pack(states, d, 1, count, d, buffer, BLOCK);
        for (int64_t p = 0; p < padded_width; p += TILE_COLUMNS)
            for (int64_t r = 0; r < count; r++)
                for (int64_t j = 0; j < TILE_COLUMNS; j++)
                    buffer[p * BLOCK + r * TILE_COLUMNS + j] *= scales[s * BLOCK + r];
        for (int64_t v = s * SLAB; v < (s + 1) * SLAB && v < l->symbols; v += LOSS_PANEL)
            for (int64_t inner = 0; inner < LOSS_PANEL; inner += TILE_ROWS)
                for (int64_t p = 0; p < padded_width; p += TILE_COLUMNS) {
                    tile sum = {0};
                    if (v + inner + TILE_ROWS <= l->symbols)
                        FOR_EACH_TILE_ROW __builtin_prefetch(gradient + (v + inner + i) * d + p, 1);
                    gemm_tile(sum, panel_at(block, v) + inner, 1, LOSS_PANEL, buffer + p * BLOCK, BLOCK);
                    float *to = gradient + (v + inner) * d + p;
                    if (d - p >= TILE_COLUMNS && v + inner + TILE_ROWS <= l->symbols)
                        FOR_EACH_TILE_ROW for (int j = 0; j < 2; j++) {
                            float *row = to + i * d + j * LANES;
                            store(row, load(row) + sum[i][j]);
                        }
                    else
                        for (int i = 0; i < TILE_ROWS && v + inner + i < l->symbols; i++)
                            for (int64_t j = 0; j < TILE_COLUMNS && p + j < d; j++)
                                to[i * d + j] += sum[i][j / LANES][j % LANES];
                }
    }
    const float label_weight = (float)(1 - l->smoothing);
    for (int64_t r = 0; r < count; r++)
        if (labels[r] >= first * SLAB && labels[r] < end * SLAB)
            for (int64_t k = 0; k < d; k++) gradient[labels[r] * d + k] -= label_weight * states[r * d + k];
    return 0;
}
