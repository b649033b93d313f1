/* Layers of a network, a block of rows at a time: all of them are done for a block while its numbers
 * are in the processor's cache, and threads share nothing but the weights.
 *
 * Shapes: N rows; I, O columns into and out of a product.
 */
#include "int8.h"
#include "steps.h"
#include <stdlib.h>

#if defined(__AVX512F__)
#define ROWS 12
#else
#define ROWS 6
#endif
#define DEPTH 256 /* rows of a panel that stay in the nearest cache */
#define ALIGNED 64

enum { LINEAR, NORM, KEEP, READ, ATTEND, WHOLE };
enum { NOTHING, RELU, SILU, GELU };

/* What is done to a row, whose numbers lie in one scratch of `width` columns. */
struct operation {
    int64_t kind;
    int64_t from, to, add; /* first columns; −1: `to` is the output, `add` nothing; KEEP: keys, values */
    int64_t in, out;       /* numbers of columns; ATTEND: `in` is the keys' first, values behind them */
    int64_t activation;
    int64_t memory; /* of KEEP and READ: which */
    const float *weight, *bias; /* of WHOLE, `weight` are the scales of columns */
    const int8_t *whole;
    const int32_t *sums;
    double epsilon;
    struct heads heads;
};

struct memory {
    struct steps steps;
    float *kept_key, *kept_value; /* where KEEP writes, a row behind the other */
};

/* Tokens become rows: table[token] · scale + positions[position]. */
struct embedding {
    const float *table, *positions;
    int64_t symbols;
    double scale;
};

struct plan {
    struct embedding embedding;
    int64_t operations, width, block, input_width, output_stride;
};

int64_t heedful_columns(void) { return COLUMNS; }

/* The largest whole number of an input; 0 where there are no products of whole numbers. */
int64_t heedful_largest(void) { return LARGEST; }

static inline lanes sigmoid(lanes x) {
    const lanes none = {0};
    const ints below = x < none;
    const lanes e = exponential((lanes)((below & (ints)x) | (~below & (ints)-x)));
    const lanes share = 1.0f / (1.0f + e);
    return (lanes)((below & (ints)(e * share)) | (~below & (ints)share));
}

static inline lanes activate(lanes x, int64_t activation) {
    const lanes none = {0};
    if (activation == RELU) return (lanes)((ints)x & ~(x < none));
    if (activation == SILU) return x * sigmoid(x);
    if (activation == GELU) return x * sigmoid(1.5957691216057308f * (x + 0.044715f * x * x * x));
    return x;
}

struct tile {
    const float *from, *panel, *bias, *add;
    float *to;
    int64_t from_stride, to_stride, depth, activation;
    int first, last; /* whether the sum begins here, ends here */
};

/* m rows times a panel [depth, COLUMNS]; the sums stay in registers. */
static inline __attribute__((always_inline)) void multiply(const struct tile *t, const int m) {
    lanes sum[ROWS][2];
#pragma GCC unroll 12
    for (int i = 0; i < m; i++) {
        float *to = t->to + i * t->to_stride;
        for (int j = 0; j < 2; j++) {
            sum[i][j] = load((t->first ? t->bias : to) + j * LANES);
            if (t->first && t->add) sum[i][j] += load(t->add + i * t->to_stride + j * LANES);
        }
    }
    const float *panel = t->panel, *from = t->from;
    for (int64_t k = 0; k < t->depth; k++, panel += COLUMNS) {
        const lanes left = load(panel), right = load(panel + LANES);
#pragma GCC unroll 12
        for (int i = 0; i < m; i++) {
            const lanes x = from[i * t->from_stride + k] - (lanes){0};
            sum[i][0] += x * left;
            sum[i][1] += x * right;
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < m; i++)
        for (int j = 0; j < 2; j++)
            store(t->to + i * t->to_stride + j * LANES,
                  t->last ? activate(sum[i][j], t->activation) : sum[i][j]);
}

/* One row alone: sums that do not wait for one another. */
static void multiply_one(const struct tile *t) {
    lanes sum[4][2] = {0};
    const float *panel = t->panel, *from = t->from;
    int64_t k = 0;
    for (; k + 4 <= t->depth; k += 4, panel += 4 * COLUMNS)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const lanes x = from[k + i] - (lanes){0};
            sum[i][0] += x * load(panel + i * COLUMNS);
            sum[i][1] += x * load(panel + i * COLUMNS + LANES);
        }
    for (; k < t->depth; k++, panel += COLUMNS)
        for (int j = 0; j < 2; j++) sum[0][j] += from[k] * load(panel + j * LANES);
    for (int j = 0; j < 2; j++) {
        lanes all = (sum[0][j] + sum[1][j]) + (sum[2][j] + sum[3][j]);
        all += load((t->first ? t->bias : t->to) + j * LANES);
        if (t->first && t->add) all += load(t->add + j * LANES);
        store(t->to + j * LANES, t->last ? activate(all, t->activation) : all);
    }
}

static void multiply_some(const struct tile *t, int64_t rows) {
    switch (rows) {
#if ROWS > 6
    case 12: multiply(t, 12); break;
    case 11: multiply(t, 11); break;
    case 10: multiply(t, 10); break;
    case 9: multiply(t, 9); break;
    case 8: multiply(t, 8); break;
    case 7: multiply(t, 7); break;
#endif
    case 6: multiply(t, 6); break;
    case 5: multiply(t, 5); break;
    case 4: multiply(t, 4); break;
    case 3: multiply(t, 3); break;
    case 2: multiply(t, 2); break;
    default: multiply_one(t);
    }
}

/* Rows [n, I] times panels [O / COLUMNS, I, COLUMNS], biases, what is added, the activation. Where
 * the last panel is wider than what there is to write, it is computed beside. */
static void linear(const struct operation *o, const float *from, int64_t from_stride, float *to,
                   int64_t to_stride, const float *plus, int64_t n, int exact) {
    float beside[ROWS * COLUMNS];
    for (int64_t p = 0; p * COLUMNS < o->out; p++) {
        const int64_t left = o->out - p * COLUMNS;
        const int narrow = exact && left < COLUMNS;
        for (int64_t k = 0; k < o->in; k += DEPTH) {
            const int64_t depth = o->in - k < DEPTH ? o->in - k : DEPTH;
            struct tile t = {.panel = o->weight + (p * o->in + k) * COLUMNS,
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
                multiply_some(&t, rows);
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
                  int64_t to_stride, const float *plus, int64_t n, float *beside) {
    const int64_t room = fours(o->in);
    uint8_t *rows = (uint8_t *)(beside + n);
    for (int64_t i = 0; i < n; i++)
        beside[i] = quantise(from + i * from_stride, rows + i * room, o->in, room);
    for (int64_t p = 0; p * COLUMNS < o->out; p++) {
        const int64_t first = p * COLUMNS, left = o->out - first < COLUMNS ? o->out - first : COLUMNS;
        for (int64_t i = 0; i < n; i += WHOLE_ROWS) {
            const int64_t m = n - i < WHOLE_ROWS ? n - i : WHOLE_ROWS;
            const struct whole_tile t = {
                .from = rows + i * room, .panel = o->whole + first * room, .scales = o->weight + first,
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

/* (x − mean) / √(variance + ε) · weight + bias (Ba et al. 2016). */
static void norm(const struct operation *o, const float *from, float *to) {
    const int64_t width = o->in, whole = width / LANES * LANES;
    lanes sum = {0};
    float mean = 0, variance = 0;
    for (int64_t i = 0; i < whole; i += LANES) sum += load(from + i);
    for (int64_t i = whole; i < width; i++) mean += from[i];
    mean = (mean + total(sum)) / (float)width;
    sum = (lanes){0};
    for (int64_t i = 0; i < whole; i += LANES) {
        const lanes x = load(from + i) - mean;
        sum += x * x;
    }
    for (int64_t i = whole; i < width; i++) variance += (from[i] - mean) * (from[i] - mean);
    variance = (variance + total(sum)) / (float)width;
    const float scale = 1.0f / sqrtf(variance + (float)o->epsilon);
    for (int64_t i = 0; i < whole; i += LANES)
        store(to + i, (load(from + i) - mean) * scale * load(o->weight + i) + load(o->bias + i));
    for (int64_t i = whole; i < width; i++)
        to[i] = (from[i] - mean) * scale * o->weight[i] + o->bias[i];
}

/* Each of n rows attends to all of them, which are a sequence. `keys` has room for D · padded(n). */
static void attend(const struct operation *o, const struct plan *p, float *rows, float *scores,
                   float *keys, int64_t n) {
    const struct heads *a = &o->heads;
    const int64_t d = a->key_width, e = a->value_width, each = a->heads / a->groups, w = p->width;
    const int64_t room = padded(n);
    for (int64_t h = 0; h < a->heads; h++) {
        const float *key = rows + o->in + h / each * d;
        const float *value = rows + o->in + a->groups * d + h / each * e;
        if (h % each == 0)
            for (int64_t i = 0; i < d; i++)
                for (int64_t t = 0; t < room; t++) keys[i * room + t] = t < n ? key[t * w + i] : 0;
        for (int64_t r = 0; r < n; r++) {
            const float *query = rows + r * w + o->from + h * d;
            float *to = rows + r * w + o->to + h * e;
            for (int64_t t = 0; t < room; t += LANES) {
                lanes sum = {0};
                for (int64_t i = 0; i < d; i++) sum += query[i] * load(keys + i * room + t);
                store(scores + t, (float)a->scale * sum);
            }
            softmax(scores, n, room);
            memset(to, 0, (size_t)e * sizeof(float));
            for (int64_t t = 0; t < n; t++) add(to, value + t * w, scores[t], e);
        }
    }
}

static void operate(const struct operation *o, const struct plan *p, const struct memory *memories,
                    const int64_t *ends, float *scratch, float *beside, float *output,
                    int64_t first, int64_t n) {
    float *from = scratch + o->from, *to = scratch + o->to;
    const struct memory *m = memories + o->memory;
    switch (o->kind) {
    case WHOLE:
        if (o->to < 0)
            whole(o, from, p->width, output + first * p->output_stride, p->output_stride, 0, n, beside);
        else
            whole(o, from, p->width, to, p->width, o->add < 0 ? 0 : scratch + o->add, n, beside);
        break;
    case LINEAR:
        if (o->to < 0)
            linear(o, from, p->width, output + first * p->output_stride, p->output_stride, 0, n, 1);
        else
            linear(o, from, p->width, to, p->width, o->add < 0 ? 0 : scratch + o->add, n, 0);
        break;
    case NORM:
        for (int64_t i = 0; i < n; i++) norm(o, from + i * p->width, to + i * p->width);
        break;
    case KEEP:
        for (int64_t i = 0; i < n; i++) {
            const size_t bytes = (size_t)o->in * sizeof(float);
            memcpy(m->kept_key + (first + i) * o->in, from + i * p->width, bytes);
            memcpy(m->kept_value + (first + i) * o->in, to + i * p->width, bytes);
        }
        break;
    case READ:
        for (int64_t i = 0; i < n; i++)
            read_steps(&m->steps, &o->heads, first + i, from + i * p->width, to + i * p->width, beside);
        break;
    case ATTEND:
        for (; *ends < first + n; ends++)
            attend(o, p, scratch + (*ends - first) * p->width, beside,
                   beside + padded(ends[1] - *ends), ends[1] - *ends);
    }
}

/* Where a block that begins with unit u ends: units are sequences, or rows where there are none. A
 * block has `most` rows at most, or one sequence. */
static int64_t end_of_block(const int64_t *ends, int64_t u, int64_t last, int64_t most) {
    if (!ends) return u + most < last ? u + most : last;
    int64_t end = u + 1;
    while (end < last && ends[end + 1] - ends[u] <= most) end++;
    return end;
}

/* Floats beside the rows' own: the scores of a row, or of a sequence and its keys; the rows in whole
 * numbers. */
static int64_t room_beside(const struct operation *operations, const struct memory *memories,
                           const struct plan *p, int64_t most, int64_t longest) {
    int64_t room = 0;
    for (int64_t i = 0; i < p->operations; i++) {
        const struct operation *o = operations + i;
        int64_t own = 0;
        if (o->kind == READ) own = o->heads.heads * padded(memories[o->memory].steps.positions);
        if (o->kind == ATTEND) own = (1 + o->heads.key_width) * padded(longest);
        if (o->kind == WHOLE) own = most * (1 + fours(o->in) / 4);
        room = own > room ? own : room;
    }
    return room;
}

static void embed(const struct plan *p, int64_t token, int64_t position, float *to) {
    const struct embedding *e = &p->embedding;
    const float *symbol = e->table + token * p->input_width;
    const float *place = e->positions + position * p->input_width, scale = (float)e->scale;
    for (int64_t i = 0; i < p->input_width; i++) to[i] = symbol[i] * scale + place[i];
}

/* tokens [N], which stand at `position`, or from there on in each sequence, or, where `positions` [N] is
 * not null, each at its own; output [N, ·] with a stride; ends: where sequences begin, or null; first,
 * last: of sequences, or of rows where there are none.
 * Returns 0, 1 if there is no memory, or 2 if a token is not in the table. */
int heedful_fused(const int64_t *tokens, float *output, const struct operation *operations,
                  const struct memory *memories, const int64_t *ends, const struct plan *p,
                  int64_t position, const int64_t *positions, int64_t first, int64_t last) {
    for (int64_t i = ends ? ends[first] : first; i < (ends ? ends[last] : last); i++)
        if (tokens[i] < 0 || tokens[i] >= p->embedding.symbols) return 2;
    int64_t longest = 0, most = last - first;
    for (int64_t u = first; ends && u < last; u++)
        longest = ends[u + 1] - ends[u] > longest ? ends[u + 1] - ends[u] : longest;
    if (ends) most = ends[last] - ends[first];
    if (most > p->block) most = p->block;
    if (most < longest) most = longest;
    const int64_t room = room_beside(operations, memories, p, most, longest);
    const size_t bytes = (size_t)(most * p->width + padded(room)) * sizeof(float);
    float *scratch = aligned_alloc(ALIGNED, (bytes + ALIGNED - 1) / ALIGNED * ALIGNED);
    if (!scratch) return 1;
    float *beside = scratch + most * p->width;
    for (int64_t u = first, end; u < last; u = end) {
        end = end_of_block(ends, u, last, most);
        const int64_t row = ends ? ends[u] : u, n = (ends ? ends[end] : end) - row;
        for (int64_t v = u, i = 0; v < end; v++)
            for (int64_t place = 0; place < (ends ? ends[v + 1] - ends[v] : 1); place++, i++)
                embed(p, tokens[row + i], positions ? positions[row + i] : position + place,
                      scratch + i * p->width);
        for (int64_t i = 0; i < p->operations; i++)
            operate(operations + i, p, memories, ends ? ends + u : 0, scratch, beside, output, row, n);
    }
    free(scratch);
    return 0;
}
