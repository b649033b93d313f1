/* Rows times a matrix whose columns lie in panels, in single precision, with weights of
 * half its bits, and in whole numbers.
 *
 * Shapes: n rows; I, O columns into and out of a product.
 */
#include "int8.h"
#include "steps.h"
#include "tangent.h"

#define SIDE 4    /* panels at once for a single row */
#define DEPTH 256 /* rows of a panel that stay in the nearest cache */

enum { LINEAR, NORM, KEEP, READ, ATTEND, WHOLE, HALF };
enum { NOTHING, RELU, SILU, GELU };

/* What is done to a row, whose numbers lie in one scratch of `width` columns. */
struct operation {
    int64_t kind;
    int64_t from, to, add; /* first columns; −1: `to` is the output, `add` nothing; KEEP: keys, values */
    int64_t in, out;       /* numbers of columns; ATTEND: `in` is the keys' first, values behind them */
    int64_t activation;
    int64_t memory; /* of KEEP and READ: which */
    const float *weight, *bias; /* of WHOLE, `weight` are the scales of columns */
    const void *narrow; /* weights of WHOLE and of HALF */
    const int32_t *sums;
    double epsilon;
    struct heads heads;
};

static inline lanes activate(lanes x, int64_t activation) {
    const lanes none = {0};
    if (activation == RELU) return (lanes)((ints)x & ~(x < none));
    if (activation == SILU) return x * sigmoid(x);
    if (activation == GELU) return x * sigmoid(1.5957691216057308f * (x + 0.044715f * x * x * x));
    return x;
}

struct product {
    const char *panel; /* [depth, COLUMNS], its rows as `read_row` has them */
    const float *from, *bias, *add;
    float *to;
    int64_t from_stride, to_stride, depth, activation;
    int first, last; /* whether the sum begins here, ends here */
};

/* m rows times a panel; the sums stay in registers. */
INLINE void multiply_panel(const struct product *t, const int m, const int half) {
    tile sum;
#pragma GCC unroll 12
    for (int i = 0; i < m; i++) {
        float *to = t->to + i * t->to_stride;
        for (int j = 0; j < 2; j++) {
            sum[i][j] = load((t->first ? t->bias : to) + j * LANES);
            if (t->first && t->add) sum[i][j] += load(t->add + i * t->to_stride + j * LANES);
        }
    }
    multiply_rows(sum, m, t->from, t->from_stride, 1, t->panel, t->depth, half);
#pragma GCC unroll 12
    for (int i = 0; i < m; i++)
        for (int j = 0; j < 2; j++)
            store(t->to + i * t->to_stride + j * LANES,
                  t->last ? activate(sum[i][j], t->activation) : sum[i][j]);
}

/* One row times SIDE panels at once, `apart` bytes from each other: sums that do not wait for one
 * another, each in the order of `multiply_rows`, so that a row's numbers do not depend on its neighbours. */
INLINE void multiply_one(const struct product *t, const int64_t apart, const int half) {
    lanes sum[SIDE][2];
    for (int p = 0; p < SIDE; p++)
        for (int j = 0; j < 2; j++) {
            const int64_t at = p * COLUMNS + j * LANES;
            sum[p][j] = load((t->first ? t->bias : t->to) + at);
            if (t->first && t->add) sum[p][j] += load(t->add + at);
        }
    const char *panel = t->panel;
    for (int64_t k = 0; k < t->depth; k++, panel += bytes_of(half)) {
        const lanes x = t->from[k] - (lanes){0};
#pragma GCC unroll 4
        for (int p = 0; p < SIDE; p++) {
            lanes left, right;
            read_row(panel + p * apart, half, &left, &right);
            sum[p][0] += x * left;
            sum[p][1] += x * right;
        }
    }
    for (int p = 0; p < SIDE; p++)
        for (int j = 0; j < 2; j++)
            store(t->to + p * COLUMNS + j * LANES,
                  t->last ? activate(sum[p][j], t->activation) : sum[p][j]);
}

INLINE void multiply_some(const struct product *t, int64_t rows, const int half) {
    switch (rows) {
#if ROWS > 6
    case 12: multiply_panel(t, 12, half); break;
    case 11: multiply_panel(t, 11, half); break;
    case 10: multiply_panel(t, 10, half); break;
    case 9: multiply_panel(t, 9, half); break;
    case 8: multiply_panel(t, 8, half); break;
    case 7: multiply_panel(t, 7, half); break;
#endif
    case 6: multiply_panel(t, 6, half); break;
    case 5: multiply_panel(t, 5, half); break;
    case 4: multiply_panel(t, 4, half); break;
    case 3: multiply_panel(t, 3, half); break;
    case 2: multiply_panel(t, 2, half); break;
    default: multiply_panel(t, 1, half);
    }
}

/* Part `number` of so many `parts` that some things are shared out in. */
struct share {
    int64_t number, parts;
};

static inline int64_t begin(const struct share *s, int64_t things) {
    return things * s->number / s->parts;
}

static inline int64_t end(const struct share *s, int64_t things) {
    return things * (s->number + 1) / s->parts;
}

static inline int64_t panels(int64_t columns) { return (columns + COLUMNS - 1) / COLUMNS; }

/* Rows [n, I] times a share of panels [O / COLUMNS, I, COLUMNS], biases, what is added, the activation.
 * Where the last panel is wider than what there is to write, it is computed beside. */
INLINE void
linear(const struct operation *o, const float *from, int64_t from_stride, float *to,
       int64_t to_stride, const float *plus, int64_t n, int exact, const struct share *share,
       const int half) {
    const char *weights = half ? o->narrow : (const void *)o->weight;
    float beside[ROWS * COLUMNS];
    const int64_t last = end(share, panels(o->out)), full = exact ? o->out / COLUMNS : last;
    for (int64_t p = begin(share, panels(o->out)), next; p < last; p = next) {
        const int some = n == 1 && p + SIDE <= last && p + SIDE <= full;
        next = p + (some ? SIDE : 1);
        const int64_t left = o->out - p * COLUMNS;
        const int narrow = exact && left < COLUMNS;
        for (int64_t k = 0; k < o->in; k += DEPTH) {
            const int64_t depth = o->in - k < DEPTH ? o->in - k : DEPTH;
            struct product t = {.panel = weights + (p * o->in + k) * bytes_of(half),
                             .bias = o->bias + p * COLUMNS, .from_stride = from_stride,
                             .to_stride = narrow ? COLUMNS : to_stride, .depth = depth,
                             .activation = o->activation, .first = !k, .last = k + depth == o->in};
            for (int64_t i = 0; i < n; i += ROWS) {
                const int64_t rows = n - i < ROWS ? n - i : ROWS;
                float *own = to + i * to_stride + p * COLUMNS;
                t.from = from + i * from_stride + k;
                t.to = narrow ? beside : own;
                t.add = plus ? plus + i * to_stride + p * COLUMNS : 0;
                if (narrow && k)
                    for (int64_t r = 0; r < rows; r++)
                        memcpy(beside + r * COLUMNS, own + r * to_stride, (size_t)left * 4);
                if (some) multiply_one(&t, o->in * bytes_of(half), half);
                else multiply_some(&t, rows, half);
                if (narrow)
                    for (int64_t r = 0; r < rows; r++)
                        memcpy(own + r * to_stride, beside + r * COLUMNS, (size_t)left * 4);
            }
        }
    }
}

static inline int64_t fours(int64_t width) { return (width + 3) / 4 * 4; }

/* As `linear`, in whole numbers; `beside` has room for n scales, then for n rows of them. */
static void whole(const struct operation *o, const float *from, int64_t from_stride, float *to,
                  int64_t to_stride, const float *plus, int64_t n, float *beside,
                  const struct share *share) {
    const int64_t room = fours(o->in);
    uint8_t *rows = (uint8_t *)(beside + n);
    for (int64_t i = 0; i < n; i++)
        beside[i] = quantise(from + i * from_stride, rows + i * room, o->in, room);
    for (int64_t p = begin(share, panels(o->out)); p < end(share, panels(o->out)); p++) {
        const int64_t first = p * COLUMNS, left = o->out - first < COLUMNS ? o->out - first : COLUMNS;
        for (int64_t i = 0; i < n; i += WHOLE_ROWS) {
            const int64_t m = n - i < WHOLE_ROWS ? n - i : WHOLE_ROWS;
            const struct whole_tile t = {
                .from = rows + i * room, .panel = (const int8_t *)o->narrow + first * room, .scales = o->weight + first,
                .bias = o->bias + first, .add = plus ? plus + i * to_stride + first : 0,
                .row_scales = beside + i, .sums = o->sums + first, .room = room, .stride = to_stride};
            lanes result[WHOLE_ROWS][2];
            if (m == 4) multiply_whole(&t, 4, result);
            else if (m == 3) multiply_whole(&t, 3, result);
            else if (m == 2) multiply_whole(&t, 2, result);
            else multiply_whole(&t, 1, result);
            for (int64_t r = 0; r < m; r++) {
                float y[COLUMNS];
                for (int j = 0; j < 2; j++) store(y + j * LANES, activate(result[r][j], o->activation));
                memcpy(to + (i + r) * to_stride + first, y, (size_t)left * sizeof(float));
            }
        }
    }
}

