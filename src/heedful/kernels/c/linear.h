/* Rows times a matrix whose columns are stored in panels: in float32, with weights in bfloat16, and in
 * whole numbers.
 *
 * Shapes: n rows; I, O columns into and out of a product.
 */
#include "gemm_int8.h"
#include "cached_attention.h"
#include "activations.h"

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

static inline vfloat activate(vfloat x, int64_t activation) {
    const vfloat none = {0};
    if (activation == RELU) return (vfloat)((vint)x & ~(x < none));
    if (activation == SILU) return x * vsigmoid(x);
    if (activation == GELU) return x * vsigmoid(1.5957691216057308f * (x + 0.044715f * x * x * x));
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
INLINE void multiply_panel(const struct product *t, const int m, const int numbers) {
    tile sum;
#pragma GCC unroll 12
    for (int i = 0; i < m; i++) {
        float *to = t->to + i * t->to_stride;
        for (int j = 0; j < 2; j++) {
            sum[i][j] = load((t->first ? t->bias : to) + j * LANES);
            if (t->first && t->add) sum[i][j] += load(t->add + i * t->to_stride + j * LANES);
        }
    }
    gemm_tile_rows(sum, m, t->from, t->from_stride, 1, t->panel, t->depth, numbers);
#pragma GCC unroll 12
    for (int i = 0; i < m; i++)
        for (int j = 0; j < 2; j++)
            store(t->to + i * t->to_stride + j * LANES,
                  t->last ? activate(sum[i][j], t->activation) : sum[i][j]);
}

/* One row times SIDE panels at once, `apart` bytes from each other: sums that do not wait for one
 * another, each in the order of `multiply_rows`, so that a row's numbers do not depend on its neighbours. */
INLINE void multiply_one(const struct product *t, const int64_t apart, const int numbers) {
    vfloat sum[SIDE][2];
    for (int p = 0; p < SIDE; p++)
        for (int j = 0; j < 2; j++) {
            const int64_t at = p * COLUMNS + j * LANES;
            sum[p][j] = load((t->first ? t->bias : t->to) + at);
            if (t->first && t->add) sum[p][j] += load(t->add + at);
        }
    const char *panel = t->panel;
    for (int64_t k = 0; k < t->depth; k++, panel += bytes_of(numbers)) {
        const vfloat x = broadcast(t->from + k, numbers);
#pragma GCC unroll 4
        for (int p = 0; p < SIDE; p++) {
            vfloat left, right;
            read_row(panel + p * apart, numbers, &left, &right);
            sum[p][0] = add_product(sum[p][0], x, left, numbers);
            sum[p][1] = add_product(sum[p][1], x, right, numbers);
        }
    }
    for (int p = 0; p < SIDE; p++)
        for (int j = 0; j < 2; j++)
            store(t->to + p * COLUMNS + j * LANES,
                  t->last ? activate(sum[p][j], t->activation) : sum[p][j]);
}

INLINE void multiply_some(const struct product *t, int64_t rows, const int numbers) {
    switch (rows) {
#if ROWS > 6
    case 12: multiply_panel(t, 12, numbers); break;
    case 11: multiply_panel(t, 11, numbers); break;
    case 10: multiply_panel(t, 10, numbers); break;
    case 9: multiply_panel(t, 9, numbers); break;
    case 8: multiply_panel(t, 8, numbers); break;
    case 7: multiply_panel(t, 7, numbers); break;
#endif
    case 6: multiply_panel(t, 6, numbers); break;
    case 5: multiply_panel(t, 5, numbers); break;
    case 4: multiply_panel(t, 4, numbers); break;
    case 3: multiply_panel(t, 3, numbers); break;
    case 2: multiply_panel(t, 2, numbers); break;
    default: multiply_panel(t, 1, numbers);
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

static inline int64_t pairs(int64_t width) { return (width + 1) / 2; }

#if PAIRS
/* A row in bfloat16, rounded to nearest even: pairs of neighbours in 32 bits, the first one below. */
static inline void pair(const float *from, float *to, int64_t width) {
    for (int64_t i = 0; i < width; i += 2 * LANES) {
        float last[2 * LANES] = {0};
        const int64_t left = width - i < 2 * LANES ? width - i : 2 * LANES;
        const int whole = left == 2 * LANES;
        if (!whole) memcpy(last, from + i, (size_t)left * 4);
        const float *own = whole ? from + i : last;
        const __m512bh both = _mm512_cvtne2ps_pbh((__m512)load(own + LANES), (__m512)load(own));
        memcpy(to + i / 2, &both, (size_t)pairs(left) * 4);
    }
}
#endif

static inline int64_t panels(int64_t columns) { return (columns + COLUMNS - 1) / COLUMNS; }

/* Rows [n, I] times a share of panels [O / COLUMNS, I, COLUMNS], biases, what is added, the activation.
 * Where the last panel is wider than what there is to write, it is computed beside. */
INLINE void
linear(const struct operation *o, const float *from, int64_t from_stride, float *to,
       int64_t to_stride, const float *plus, int64_t n, int exact, const struct share *share,
       const int numbers) {
    const char *weights = numbers == SINGLE ? (const void *)o->weight : o->narrow;
    const int64_t inputs = numbers == PAIRED ? pairs(o->in) : o->in;
    float beside[ROWS * COLUMNS];
    const int64_t last = end(share, panels(o->out)), full = exact ? o->out / COLUMNS : last;
    for (int64_t p = begin(share, panels(o->out)), next; p < last; p = next) {
        const int some = n == 1 && p + SIDE <= last && p + SIDE <= full;
        next = p + (some ? SIDE : 1);
        const int64_t left = o->out - p * COLUMNS;
        const int narrow = exact && left < COLUMNS;
        for (int64_t k = 0; k < inputs; k += DEPTH) {
            const int64_t depth = inputs - k < DEPTH ? inputs - k : DEPTH;
            struct product t = {.panel = weights + (p * inputs + k) * bytes_of(numbers),
                             .bias = o->bias + p * COLUMNS, .from_stride = from_stride,
                             .to_stride = narrow ? COLUMNS : to_stride, .depth = depth,
                             .activation = o->activation, .first = !k, .last = k + depth == inputs};
            for (int64_t i = 0; i < n; i += ROWS) {
                const int64_t rows = n - i < ROWS ? n - i : ROWS;
                float *own = to + i * to_stride + p * COLUMNS;
                t.from = from + i * from_stride + k;
                t.to = narrow ? beside : own;
                t.add = plus ? plus + i * to_stride + p * COLUMNS : 0;
                if (narrow && k)
                    for (int64_t r = 0; r < rows; r++)
                        memcpy(beside + r * COLUMNS, own + r * to_stride, (size_t)left * 4);
                if (some) multiply_one(&t, inputs * bytes_of(numbers), numbers);
                else multiply_some(&t, rows, numbers);
                if (narrow)
                    for (int64_t r = 0; r < rows; r++)
                        memcpy(own + r * to_stride, beside + r * COLUMNS, (size_t)left * 4);
            }
        }
    }
}

/* As `linear`, with weights in bfloat16; `beside` has room for n rows of pairs. */
static void half(const struct operation *o, const float *from, int64_t from_stride, float *to,
                 int64_t to_stride, const float *plus, int64_t n, int exact, float *beside,
                 const struct share *share) {
#if PAIRS
    const int64_t room = pairs(o->in);
    for (int64_t i = 0; i < n; i++) pair(from + i * from_stride, beside + i * room, o->in);
    linear(o, beside, room, to, to_stride, plus, n, exact, share, PAIRED);
#else
    (void)beside;
    linear(o, from, from_stride, to, to_stride, plus, n, exact, share, WIDENED);
#endif
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
            vfloat result[WHOLE_ROWS][2];
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

