/* Cross-entropy over a large vocabulary and its gradients, a block of rows at a time.
 *
 * Shapes: N rows, D width, V symbols. e^(logit − most) of a block lie in panels [V / PANEL, BLOCK,
 * PANEL]; `most` is the largest logit of a row in its slab of SLAB symbols, found while these are in
 * the cache, and `scales` say what is missing: scale · e^(logit − most) is the probability.
 */
#include "gemm.h"

#define PANEL (3 * COLUMNS) /* symbols; a multiple of ROWS */
#define SLAB 480            /* symbols, a multiple of every PANEL */
#define DEEP (5 * PANEL)    /* symbols of a sum in registers, a divisor of SLAB */
#define BLOCK 120           /* rows, a multiple of ROWS */

struct loss {
    int64_t rows, width, symbols;
    double smoothing;
};

int64_t heedful_loss_block(void) { return BLOCK; }
int64_t heedful_loss_slab(void) { return SLAB; }

static inline float *of_panel(float *block, int64_t symbol) {
    return block + symbol / PANEL * PANEL * BLOCK;
}

/* The table [V, D] as panels of symbols [V / COLUMNS, D, COLUMNS] and of columns [D / COLUMNS, V,
 * COLUMNS]: slabs from `first` to `end`. */
int heedful_loss_pack(const struct loss *l, const float *table, float *by_symbol, float *by_column,
                      int64_t first, int64_t end) {
    const int64_t room = rounded(l->symbols, SLAB), d = l->width;
    for (int64_t v = first * SLAB; v < end * SLAB; v += COLUMNS) {
        const int64_t left = l->symbols - v, there = left < 0 ? 0 : left < COLUMNS ? left : COLUMNS;
        float *panel = by_symbol + v * d;
        for (int64_t k = 0; k < d; k++)
            for (int64_t j = 0; j < COLUMNS; j++)
                panel[k * COLUMNS + j] = j < there ? table[(v + j) * d + k] : 0;
        for (int64_t p = 0; p * COLUMNS < d; p++)
            memset(by_column + (p * room + v) * COLUMNS, 0, COLUMNS * COLUMNS * sizeof(float));
        pack(table + v * d, d, 1, there, d, by_column + v * COLUMNS, room);
    }
    return 0;
}

/* Logits of a slab become powers of e; its rows' largest logits, sums of powers, and labels' logits. */
static void slab_powers(const struct loss *l, const float *states, const float *by_symbol,
                        const int64_t *labels, int64_t count, int64_t slab, float *block, float *most,
                        float *sums, float *at_label) {
    const int64_t d = l->width, first = slab * SLAB;
    for (int64_t v = first; v < first + SLAB; v += COLUMNS)
        for (int64_t r = 0; r < BLOCK; r += ROWS) {
            tile sum = {0};
            float *to = of_panel(block, v) + r * PANEL + v % PANEL;
            EACH_ROW __builtin_prefetch(to + i * PANEL, 1);
            gemm_tile(sum, states + r * d, d, 1, by_symbol + v * d, d);
            EACH_ROW for (int j = 0; j < 2; j++) store(to + i * PANEL + j * LANES, sum[i][j]);
        }
    const int64_t beyond = l->symbols - first < SLAB ? l->symbols - first : SLAB;
    for (int64_t r = 0; r < count; r++) {
        const int64_t label = labels[r] - first;
        if (label >= 0 && label < SLAB)
            at_label[r] = of_panel(block, labels[r])[r * PANEL + labels[r] % PANEL];
        for (int64_t v = beyond; v < SLAB; v++)
            of_panel(block, first + v)[r * PANEL + (first + v) % PANEL] = -INFINITY;
        vfloat top = (vfloat){0} - INFINITY, total_of = {0};
        for (int64_t v = first; v < first + SLAB; v += PANEL) {
            const float *own = of_panel(block, v) + r * PANEL;
            for (int64_t j = 0; j < PANEL; j += LANES) top = vmax(load(own + j), top);
        }
        most[r] = reduce_max(top);
        for (int64_t v = first; v < first + SLAB; v += PANEL) {
            float *own = of_panel(block, v) + r * PANEL;
            for (int64_t j = 0; j < PANEL; j += LANES) {
                const vfloat power = vexp(load(own + j) - most[r]);
                store(own + j, power);
                total_of += power;
            }
        }
        for (int64_t v = beyond; v < SLAB; v++) {
            float *own = of_panel(block, first + v) + r * PANEL + (first + v) % PANEL;
            total_of[0] -= *own;
            *own = 0;
        }
        sums[r] = reduce_add(total_of);
    }
}

/* Add a slab's powers times the table, each row `shares` times, to a block's rows. */
static void slab_gradient(const struct loss *l, const float *by_column, int64_t slab, float *block,
                          const float *shares, float *to) {
    const int64_t room = rounded(l->symbols, SLAB), d = rounded(l->width, COLUMNS);
    for (int64_t v = slab * SLAB; v < (slab + 1) * SLAB; v += DEEP)
        for (int64_t p = 0; p < d; p += COLUMNS)
            for (int64_t r = 0; r < BLOCK; r += ROWS) {
                tile sum = {0};
                for (int64_t k = v; k < v + DEEP; k += PANEL)
                    gemm_tile(sum, of_panel(block, k) + r * PANEL, PANEL, 1,
                             by_column + p * room + k * COLUMNS, PANEL);
                EACH_ROW for (int j = 0; j < 2; j++) {
                    float *own = to + (r + i) * d + p + j * LANES;
                    store(own, load(own) + shares[r + i] * sum[i][j]);
                }
            }
}

/* A row's sum so far, in units of e^top. */
struct so_far {
    double top, whole;
};

/* A slab comes to the sums; its `shares` are in units of the largest logit up to here. */
static void add_slab(const float *most, const float *sums, int64_t count, struct so_far *all,
                     float *shares, float *to, int64_t width) {
    for (int64_t r = 0; r < count; r++) {
        if (most[r] > all[r].top) {
            const double less = exp(all[r].top - most[r]);
            for (int64_t k = 0; k < width; k++) to[r * width + k] *= (float)less;
            all[r] = (struct so_far){most[r], all[r].whole * less};
        }
        const double share = exp(most[r] - all[r].top);
        all[r].whole += sums[r] * share;
        shares[r] = (float)share;
    }
}

/* The first `count` rows of a block: losses and gradients of states, powers and scales for the
 * gradient of the table.
 *
 * `beside` has room for BLOCK · (D + D rounded to COLUMNS + slabs + 3) numbers. */
int heedful_loss_rows(const struct loss *l, const float *states, const int64_t *labels, const float *table,
                      const double *column_sums, const float *by_symbol, const float *by_column,
                      float *block, float *scales, double *exact, double *smooth, float *gradient,
                      float *beside, int64_t count) {
    const int64_t d = l->width, wide = rounded(d, COLUMNS), slabs = rounded(l->symbols, SLAB) / SLAB;
    float *own = beside, *to = own + BLOCK * d, *most = to + BLOCK * wide, *sums = most + slabs * BLOCK;
    float *at_label = sums + BLOCK, *shares = at_label + BLOCK;
    struct so_far all[BLOCK];
    memset(own, 0, (size_t)(BLOCK * (d + wide)) * sizeof(float));
    memcpy(own, states, (size_t)(count * d) * sizeof(float));
    memset(scales, 0, (size_t)(slabs * BLOCK) * sizeof(float));
    memset(shares, 0, BLOCK * sizeof(float));
    for (int64_t r = 0; r < count; r++) all[r] = (struct so_far){-INFINITY, 0};
    for (int64_t s = 0; s < slabs; s++) {
        slab_powers(l, own, by_symbol, labels, count, s, block, most + s * BLOCK, sums, at_label);
        add_slab(most + s * BLOCK, sums, count, all, shares, to, wide);
        slab_gradient(l, by_column, s, block, shares, to);
    }
    const double of_label = 1 - l->smoothing, of_each = l->smoothing / (double)l->symbols;
    for (int64_t r = 0; r < count; r++) {
        const double log_whole = log(all[r].whole) + all[r].top, surprise = log_whole - at_label[r];
        double logits = 0;
        for (int64_t k = 0; k < d; k++) logits += column_sums[k] * states[r * d + k];
        exact[r] = surprise;
        smooth[r] = of_label * surprise + of_each * ((double)l->symbols * log_whole - logits);
        for (int64_t s = 0; s < slabs; s++)
            scales[s * BLOCK + r] = (float)(exp(most[s * BLOCK + r] - all[r].top) / all[r].whole);
        for (int64_t k = 0; k < d; k++)
            gradient[r * d + k] = (float)(to[r * wide + k] / all[r].whole -
                                          of_label * table[labels[r] * d + k] - of_each * column_sums[k]);
    }
    return 0;
}

/* Add a block's share to the gradient of the table's slabs from `first` to `end`.
 *
 * `beside` has room for BLOCK · (D rounded to COLUMNS) numbers. */
int heedful_loss_table(const struct loss *l, const float *states, const int64_t *labels, float *block,
                       const float *scales, int64_t count, float *gradient, float *beside, int64_t first,
                       int64_t end) {
    const int64_t d = l->width, wide = rounded(d, COLUMNS);
    memset(beside, 0, (size_t)(BLOCK * wide) * sizeof(float));
    for (int64_t s = first; s < end; s++) {
        pack(states, d, 1, count, d, beside, BLOCK);
        for (int64_t p = 0; p < wide; p += COLUMNS)
            for (int64_t r = 0; r < count; r++)
                for (int64_t j = 0; j < COLUMNS; j++)
                    beside[p * BLOCK + r * COLUMNS + j] *= scales[s * BLOCK + r];
        for (int64_t v = s * SLAB; v < (s + 1) * SLAB && v < l->symbols; v += PANEL)
            for (int64_t inner = 0; inner < PANEL; inner += ROWS)
                for (int64_t p = 0; p < wide; p += COLUMNS) {
                    tile sum = {0};
                    if (v + inner + ROWS <= l->symbols)
                        EACH_ROW __builtin_prefetch(gradient + (v + inner + i) * d + p, 1);
                    gemm_tile(sum, of_panel(block, v) + inner, 1, PANEL, beside + p * BLOCK, BLOCK);
                    float *to = gradient + (v + inner) * d + p;
                    if (d - p >= COLUMNS && v + inner + ROWS <= l->symbols)
                        EACH_ROW for (int j = 0; j < 2; j++) {
                            float *own = to + i * d + j * LANES;
                            store(own, load(own) + sum[i][j]);
                        }
                    else
                        for (int i = 0; i < ROWS && v + inner + i < l->symbols; i++)
                            for (int64_t j = 0; j < COLUMNS && p + j < d; j++)
                                to[i * d + j] += sum[i][j / LANES][j % LANES];
                }
    }
    const float label_share = (float)(1 - l->smoothing);
    for (int64_t r = 0; r < count; r++)
        if (labels[r] >= first * SLAB && labels[r] < end * SLAB)
            for (int64_t k = 0; k < d; k++) gradient[labels[r] * d + k] -= label_share * states[r * d + k];
    return 0;
}
