/* Linear layers: rows times a matrix whose columns are stored in panels, with weights in float32,
 * bfloat16 or int8.
 *
 * Shapes: n rows; I inputs, O outputs.
 */
#include "gemm_int8.h"
#include "cached_attention.h"
#include "activations.h"

#define PANELS_AT_ONCE 4 /* panels that are multiplied by a single row at once */
#define DEPTH_BLOCK 256  /* rows of a panel that stay in the L1 cache */

enum { LINEAR, LAYER_NORM, APPEND, READ_CACHE, SELF_ATTEND, LINEAR_INT8, LINEAR_BFLOAT16 };
enum { IDENTITY, RELU, SILU, GELU };

/* An operation on rows. All values of a row lie in a scratch row of `width` columns. */
struct operation {
    int64_t kind;
    int64_t from, to, add; /* first columns; to = −1: the output; add = −1: nothing; APPEND: `from` is
                            * the key, `to` the value */
    int64_t in, out;       /* widths; SELF_ATTEND: `in` is the first column of the keys, which the
                            * values follow */
    int64_t activation;
    int64_t memory; /* APPEND, READ_CACHE: index of the memory */
    const float *weight, *bias; /* LINEAR_INT8: `weight` holds the scales of the columns */
    const void *narrow; /* LINEAR_INT8, LINEAR_BFLOAT16: the weights */
    const int32_t *sums;
    double epsilon;
    struct heads heads;
};

static inline vfloat activate(vfloat x, int64_t activation) {
    const vfloat zero = {0};
    if (activation == RELU) return (vfloat)((vint)x & ~(x < zero));
    if (activation == SILU) return x * vsigmoid(x);
    if (activation == GELU) return x * vsigmoid(1.5957691216057308f * (x + 0.044715f * x * x * x));
    return x;
}

struct product {
    const char *panel; /* [depth, TILE_COLUMNS], in the format of `read_row` */
    const float *from, *bias, *add;
    float *to;
    int64_t from_stride, to_stride, depth, activation;
    int first, last; /* first: start from the bias; last: apply the activation */
};

/* Multiply m rows by a panel, with accumulators in registers. */
INLINE void multiply_panel(const struct product *t, const int m, const int format) {
    tile sum;
#pragma GCC unroll 12
    for (int i = 0; i < m; i++) {
        float *to = t->to + i * t->to_stride;
        for (int j = 0; j < 2; j++) {
            sum[i][j] = load((t->first ? t->bias : to) + j * LANES);
            if (t->first && t->add) sum[i][j] += load(t->add + i * t->to_stride + j * LANES);
        }
    }
    gemm_tile_rows(sum, m, t->from, t->from_stride, 1, t->panel, t->depth, format);
#pragma GCC unroll 12
    for (int i = 0; i < m; i++)
        for (int j = 0; j < 2; j++)
            store(t->to + i * t->to_stride + j * LANES,
                  t->last ? activate(sum[i][j], t->activation) : sum[i][j]);
}

/* Multiply one row by PANELS_AT_ONCE panels, which are `panel_bytes` apart. The sums are independent of
 * each other, and each is added in the same order as in `multiply_panel`. The result of a row therefore
 * does not depend on the rows computed with it.
 */
INLINE void multiply_one_row(const struct product *t, const int64_t panel_bytes, const int format) {
    vfloat sum[PANELS_AT_ONCE][2];
    for (int p = 0; p < PANELS_AT_ONCE; p++)
        for (int j = 0; j < 2; j++) {
            const int64_t offset = p * TILE_COLUMNS + j * LANES;
            sum[p][j] = load((t->first ? t->bias : t->to) + offset);
            if (t->first && t->add) sum[p][j] += load(t->add + offset);
        }
    const char *panel = t->panel;
    for (int64_t k = 0; k < t->depth; k++, panel += panel_row_bytes(format)) {
        const vfloat x = broadcast(t->from + k, format);
#pragma GCC unroll 4
        for (int p = 0; p < PANELS_AT_ONCE; p++) {
            vfloat left, right;
            read_row(panel + p * panel_bytes, format, &left, &right);
            sum[p][0] = add_product(sum[p][0], x, left, format);
            sum[p][1] = add_product(sum[p][1], x, right, format);
        }
    }
    for (int p = 0; p < PANELS_AT_ONCE; p++)
        for (int j = 0; j < 2; j++)
            store(t->to + p * TILE_COLUMNS + j * LANES,
                  t->last ? activate(sum[p][j], t->activation) : sum[p][j]);
}

INLINE void multiply_rows(const struct product *t, int64_t rows, const int format) {
    switch (rows) {
#if TILE_ROWS > 6
    case 12: multiply_panel(t, 12, format); break;
    case 11: multiply_panel(t, 11, format); break;
    case 10: multiply_panel(t, 10, format); break;
    case 9: multiply_panel(t, 9, format); break;
    case 8: multiply_panel(t, 8, format); break;
    case 7: multiply_panel(t, 7, format); break;
#endif
    case 6: multiply_panel(t, 6, format); break;
    case 5: multiply_panel(t, 5, format); break;
    case 4: multiply_panel(t, 4, format); break;
    case 3: multiply_panel(t, 3, format); break;
    case 2: multiply_panel(t, 2, format); break;
    default: multiply_panel(t, 1, format);
    }
}

/* Number `index` of `count` ranges of equal size, into which items are divided. */
struct range {
    int64_t index, count;
};

static inline int64_t begin(const struct range *r, int64_t items) {
    return items * r->index / r->count;
}

static inline int64_t end(const struct range *r, int64_t items) {
    return items * (r->index + 1) / r->count;
}

static inline int64_t pair_count(int64_t width) { return (width + 1) / 2; }

#if HAS_BFLOAT16_DOT
/* Round a row to bfloat16 (to nearest even). Each 32 bits hold two neighbours, the first in the lower
 * half. */
static inline void to_bfloat16_pairs(const float *from, float *to, int64_t width) {
    for (int64_t i = 0; i < width; i += 2 * LANES) {
        float last[2 * LANES] = {0};
        const int64_t left = width - i < 2 * LANES ? width - i : 2 * LANES;
        const int full = left == 2 * LANES;
        if (!full) memcpy(last, from + i, (size_t)left * 4);
        const float *values = full ? from + i : last;
        const __m512bh both = _mm512_cvtne2ps_pbh((__m512)load(values + LANES), (__m512)load(values));
        memcpy(to + i / 2, &both, (size_t)pair_count(left) * 4);
    }
}
#endif

static inline int64_t panel_count(int64_t columns) { return (columns + TILE_COLUMNS - 1) / TILE_COLUMNS; }

/* Multiply rows [n, I] by a range of panels [O / TILE_COLUMNS, I, TILE_COLUMNS]; add the bias and
 * `addend` and apply the activation. With `no_padding`, nothing is written after column O: the last
 * panel is computed in a buffer.
 */
INLINE void
linear(const struct operation *o, const float *from, int64_t from_stride, float *to,
       int64_t to_stride, const float *addend, int64_t n, int no_padding, const struct range *range,
       const int format) {
    const char *weights = format == FLOAT32 ? (const void *)o->weight : o->narrow;
    const int64_t inputs = format == BFLOAT16_PAIRS ? pair_count(o->in) : o->in;
    float buffer[TILE_ROWS * TILE_COLUMNS];
    const int64_t last = end(range, panel_count(o->out));
    const int64_t full = no_padding ? o->out / TILE_COLUMNS : last;
    const int64_t tiles = (n + TILE_ROWS - 1) / TILE_ROWS, height = n ? (n + tiles - 1) / tiles : 1;
    for (int64_t p = begin(range, panel_count(o->out)), next; p < last; p = next) {
        const int several = n == 1 && p + PANELS_AT_ONCE <= last && p + PANELS_AT_ONCE <= full;
        next = p + (several ? PANELS_AT_ONCE : 1);
        const int64_t left = o->out - p * TILE_COLUMNS;
        const int partial = no_padding && left < TILE_COLUMNS;
        for (int64_t k = 0; k < inputs; k += DEPTH_BLOCK) {
            const int64_t depth = inputs - k < DEPTH_BLOCK ? inputs - k : DEPTH_BLOCK;
            struct product t = {.panel = weights + (p * inputs + k) * panel_row_bytes(format),
                             .bias = o->bias + p * TILE_COLUMNS, .from_stride = from_stride,
                             .to_stride = partial ? TILE_COLUMNS : to_stride, .depth = depth,
                             .activation = o->activation, .first = !k, .last = k + depth == inputs};
            for (int64_t i = 0; i < n; i += height) { /* tiles of about the same height */
                const int64_t rows = n - i < height ? n - i : height;
                float *output = to + i * to_stride + p * TILE_COLUMNS;
                t.from = from + i * from_stride + k;
                t.to = partial ? buffer : output;
                t.add = addend ? addend + i * to_stride + p * TILE_COLUMNS : 0;
                if (partial && k)
                    for (int64_t r = 0; r < rows; r++)
                        memcpy(buffer + r * TILE_COLUMNS, output + r * to_stride, (size_t)left * 4);
                if (several) multiply_one_row(&t, inputs * panel_row_bytes(format), format);
                else multiply_rows(&t, rows, format);
                if (partial)
                    for (int64_t r = 0; r < rows; r++)
                        memcpy(output + r * to_stride, buffer + r * TILE_COLUMNS, (size_t)left * 4);
            }
        }
    }
}

/* As `linear`, with weights in bfloat16. `buffer` holds n rows of pairs. */
static inline void linear_bfloat16(const struct operation *o, const float *from, int64_t from_stride, float *to,
                                   int64_t to_stride, const float *addend, int64_t n, int no_padding, float *buffer,
                            const struct range *range) {
#if HAS_BFLOAT16_DOT
    const int64_t padded_width = pair_count(o->in);
    for (int64_t i = 0; i < n; i++)
        to_bfloat16_pairs(from + i * from_stride, buffer + i * padded_width, o->in);
    linear(o, buffer, padded_width, to, to_stride, addend, n, no_padding, range, BFLOAT16_PAIRS);
#else
    (void)buffer;
    linear(o, from, from_stride, to, to_stride, addend, n, no_padding, range, BFLOAT16);
#endif
}

static inline int64_t round_up_to_4(int64_t width) { return (width + 3) / 4 * 4; }

/* As `linear`, with weights in int8. `buffer` holds n scales, then n quantised rows. */
static inline void linear_int8(const struct operation *o, const float *from, int64_t from_stride, float *to,
                        int64_t to_stride, const float *addend, int64_t n, float *buffer,
                        const struct range *range) {
    const int64_t padded_width = round_up_to_4(o->in);
    uint8_t *rows = (uint8_t *)(buffer + n);
    for (int64_t i = 0; i < n; i++)
        buffer[i] = quantise(from + i * from_stride, rows + i * padded_width, o->in, padded_width);
    for (int64_t p = begin(range, panel_count(o->out)); p < end(range, panel_count(o->out)); p++) {
        const int64_t first = p * TILE_COLUMNS;
        const int64_t left = o->out - first < TILE_COLUMNS ? o->out - first : TILE_COLUMNS;
        for (int64_t i = 0; i < n; i += INT8_TILE_ROWS) {
            const int64_t m = n - i < INT8_TILE_ROWS ? n - i : INT8_TILE_ROWS;
            const struct int8_tile t = {
                .from = rows + i * padded_width,
                .panel = (const int8_t *)o->narrow + first * padded_width, .scales = o->weight + first,
                .bias = o->bias + first, .add = addend ? addend + i * to_stride + first : 0,
                .row_scales = buffer + i, .sums = o->sums + first,
                .padded_width = padded_width, .stride = to_stride};
            vfloat result[INT8_TILE_ROWS][2];
            if (m == 4) multiply_int8_tile(&t, 4, result);
            else if (m == 3) multiply_int8_tile(&t, 3, result);
            else if (m == 2) multiply_int8_tile(&t, 2, result);
            else multiply_int8_tile(&t, 1, result);
            for (int64_t r = 0; r < m; r++) {
                float y[TILE_COLUMNS];
                for (int j = 0; j < 2; j++) store(y + j * LANES, activate(result[r][j], o->activation));
                memcpy(to + (i + r) * to_stride + first, y, (size_t)left * sizeof(float));
            }
        }
    }
}

