/* Layers of a network, a block of rows at a time: all of them are done for a block while its numbers
 * are in the processor's cache. Of many rows each thread has a share of its own, and threads share
 * nothing but the weights; of few rows, threads share the columns of each product.
 *
 * Shapes: N rows; I, O columns into and out of a product.
 */
#include "linear.h"
#include "thread_pool.h"
#include <stdlib.h>

#define ALIGNED 64
#define FEW 16 /* rows of a thread below which threads share columns */

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

struct buffers {
    float *scratch; /* `most` rows, then `room` for each thread */
    int64_t most, room;
};

struct call {
    const int64_t *tokens;
    float *output;
    const struct operation *operations;
    const struct memory *memories;
    const int64_t *ends;
    const struct plan *plan;
    int64_t position, units;
    const int64_t *positions; /* of rows; null where all stand at one */
    struct buffers shared; /* where rows are few */
    atomic_int failed;
};

/* How many rows are before a unit, which is a sequence, or a row where there are none. */
static inline int64_t rows_before(const struct call *c, int64_t unit) {
    return c->ends ? c->ends[unit] : unit;
}

int64_t heedful_columns(void) { return COLUMNS; }

/* Whether weights in bfloat16 are stored in pairs. */
int64_t heedful_paired(void) { return PAIRS; }

/* The largest whole number of an input; 0 where there are no products of whole numbers. */
int64_t heedful_largest(void) { return LARGEST; }

/* (x − mean) / √(variance + ε) · weight + bias (Ba et al. 2016). */
static void norm(const struct operation *o, const float *from, float *to) {
    const int64_t width = o->in, whole = width / LANES * LANES;
    vfloat sum = {0};
    float mean = 0, variance = 0;
    for (int64_t i = 0; i < whole; i += LANES) sum += load(from + i);
    for (int64_t i = whole; i < width; i++) mean += from[i];
    mean = (mean + reduce_add(sum)) / (float)width;
    sum = (vfloat){0};
    for (int64_t i = 0; i < whole; i += LANES) {
        const vfloat x = load(from + i) - mean;
        sum += x * x;
    }
    for (int64_t i = whole; i < width; i++) variance += (from[i] - mean) * (from[i] - mean);
    variance = (variance + reduce_add(sum)) / (float)width;
    const float scale = 1.0f / sqrtf(variance + (float)o->epsilon);
    for (int64_t i = 0; i < whole; i += LANES)
        store(to + i, (load(from + i) - mean) * scale * load(o->weight + i) + load(o->bias + i));
    for (int64_t i = whole; i < width; i++)
        to[i] = (from[i] - mean) * scale * o->weight[i] + o->bias[i];
}

/* Each of n rows attends to all of them, which are a sequence, with a share of the heads. `keys` has
 * room for D · padded(n). */
static void attend(const struct operation *o, const struct plan *p, float *rows, float *scores,
                   float *keys, int64_t n, const struct share *share) {
    const struct heads *a = &o->heads;
    const int64_t d = a->key_width, e = a->value_width, each = a->heads / a->groups, w = p->width;
    const int64_t room = padded(n), last = end(share, a->groups) * each;
    for (int64_t h = begin(share, a->groups) * each; h < last; h++) {
        const float *key = rows + o->in + h / each * d;
        const float *value = rows + o->in + a->groups * d + h / each * e;
        if (h % each == 0)
            for (int64_t i = 0; i < d; i++)
                for (int64_t t = 0; t < room; t++) keys[i * room + t] = t < n ? key[t * w + i] : 0;
        for (int64_t r = 0; r < n; r++) {
            const float *query = rows + r * w + o->from + h * d;
            float *to = rows + r * w + o->to + h * e;
            for (int64_t t = 0; t < room; t += LANES) {
                vfloat sum = {0};
                for (int64_t i = 0; i < d; i++) sum += query[i] * load(keys + i * room + t);
                store(scores + t, (float)a->scale * sum);
            }
            softmax(scores, n, room);
            memset(to, 0, (size_t)e * sizeof(float));
            for (int64_t t = 0; t < n; t++) add(to, value + t * w, scores[t], e);
        }
    }
}

/* A thread's part of an operation on rows that lie in `scratch`: a share of the columns of a product,
 * of the heads of sequences, or of the rows. `first` is the first row's number among all. */
static void operate(const struct operation *o, const struct call *c, const int64_t *ends,
                    float *scratch, float *beside, int64_t first, int64_t n,
                    const struct share *share) {
    const struct plan *p = c->plan;
    const int out = o->to < 0;
    const int64_t stride = out ? p->output_stride : p->width;
    const float *plus = o->add < 0 ? 0 : scratch + o->add;
    const struct memory *m = c->memories ? c->memories + o->memory : 0;
    float *from = scratch + o->from;
    float *to = out ? c->output + first * stride : scratch + o->to;
    const int64_t i = begin(share, n), last = end(share, n);
    switch (o->kind) {
    case WHOLE: whole(o, from, p->width, to, stride, plus, n, beside, share); break;
    case LINEAR: linear(o, from, p->width, to, stride, plus, n, out, share, SINGLE); break;
    case HALF: half(o, from, p->width, to, stride, plus, n, out, beside, share); break;
    case NORM:
        for (int64_t r = i; r < last; r++) norm(o, from + r * p->width, to + r * p->width);
        break;
    case KEEP:
        for (int64_t r = i; r < last; r++) {
            const size_t bytes = (size_t)o->in * sizeof(float);
            memcpy(m->kept_key + (first + r) * o->in, from + r * p->width, bytes);
            memcpy(m->kept_value + (first + r) * o->in, to + r * p->width, bytes);
        }
        break;
    case READ:
        for (int64_t r = i; r < last; r++)
            read_steps(&m->steps, &o->heads, first + r, from + r * p->width, to + r * p->width,
                       beside);
        break;
    case ATTEND:
        for (; *ends < first + n; ends++)
            attend(o, p, scratch + (*ends - first) * p->width, beside,
                   beside + padded(ends[1] - *ends), ends[1] - *ends, share);
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
static int64_t room_beside(const struct call *c, int64_t most, int64_t longest) {
    int64_t room = 0;
    for (int64_t i = 0; i < c->plan->operations; i++) {
        const struct operation *o = c->operations + i;
        int64_t own = 0;
        if (o->kind == READ) own = o->heads.heads * padded(c->memories[o->memory].steps.positions);
        if (o->kind == ATTEND) own = (1 + o->heads.key_width) * padded(longest);
        if (o->kind == WHOLE) own = most * (1 + fours(o->in) / 4);
        if (o->kind == HALF) own = most * pairs(o->in);
        room = own > room ? own : room;
    }
    return padded(room);
}

static void embed(const struct plan *p, int64_t token, int64_t position, float *to) {
    const struct embedding *e = &p->embedding;
    const float *symbol = e->table + token * p->input_width;
    const float *place = e->positions + position * p->input_width, scale = (float)e->scale;
    for (int64_t i = 0; i < p->input_width; i++) to[i] = symbol[i] * scale + place[i];
    /* Products that are added to a row write whole panels: nothing is added to what was never set. */
    for (int64_t i = p->input_width; i < panels(p->input_width) * COLUMNS; i++) to[i] = 0;
}

/* All operations on some units, block by block, by threads that share each. */
static void blocks(const struct call *c, const struct buffers *b, int64_t first, int64_t last,
                   const struct share *share) {
    const struct plan *p = c->plan;
    float *beside = b->scratch + b->most * p->width + share->number * b->room;
    for (int64_t u = first, next; u < last; u = next) {
        next = end_of_block(c->ends, u, last, b->most);
        const int64_t row = rows_before(c, u), n = rows_before(c, next) - row;
        for (int64_t v = u, i = 0; v < next && !share->number; v++)
            for (int64_t place = 0; place < rows_before(c, v + 1) - rows_before(c, v); place++, i++)
                embed(p, c->tokens[row + i],
                      c->positions ? c->positions[row + i] : c->position + place,
                      b->scratch + i * p->width);
        barrier(share->parts);
        for (int64_t i = 0; i < p->operations; i++) {
            const struct operation *o = c->operations + i;
            operate(o, c, c->ends ? c->ends + u : 0, b->scratch, beside, row, n, share);
            if (o->kind != KEEP) barrier(share->parts); /* a row is read by who has kept it */
        }
    }
}

/* Buffers for some units, and so many threads; `scratch` is null if there is no memory. */
static struct buffers room_for(const struct call *c, int64_t first, int64_t last, int64_t threads) {
    const struct plan *p = c->plan;
    int64_t longest = 0, most = rows_before(c, last) - rows_before(c, first);
    for (int64_t u = first; c->ends && u < last; u++)
        longest = c->ends[u + 1] - c->ends[u] > longest ? c->ends[u + 1] - c->ends[u] : longest;
    if (most > p->block) most = p->block;
    if (most < longest) most = longest;
    struct buffers b = {.most = most, .room = room_beside(c, most, longest)};
    const size_t bytes = (size_t)(most * p->width + threads * b.room) * sizeof(float);
    b.scratch = aligned_alloc(ALIGNED, (bytes + ALIGNED - 1) / ALIGNED * ALIGNED);
    return b;
}

static void few_rows(void *given, int64_t number, int64_t threads) {
    const struct call *c = given;
    const struct share share = {number, threads};
    blocks(c, &c->shared, 0, c->units, &share);
}

/* The first unit of a thread's share of the rows. */
static int64_t unit_of(const struct call *c, int64_t number, int64_t threads) {
    const struct share share = {number, threads};
    const int64_t row = begin(&share, rows_before(c, c->units));
    int64_t u = c->ends ? 0 : row;
    while (c->ends && c->ends[u] < row) u++;
    return u;
}

static void many_rows(void *given, int64_t number, int64_t threads) {
    struct call *c = given;
    const struct share alone = {0, 1};
    const int64_t first = unit_of(c, number, threads), last = unit_of(c, number + 1, threads);
    if (first == last) return;
    const struct buffers b = room_for(c, first, last, 1);
    if (b.scratch) blocks(c, &b, first, last, &alone);
    else atomic_store(&c->failed, 1);
    free(b.scratch);
}

/* tokens [N], which stand at `position`, or from there on in each sequence, or, where `positions` [N] is
 * not null, each at its own; output [N, ·] with a stride; ends: where sequences begin, or null; units:
 * sequences, or rows where there are none.
 * Returns 0, 1 if there is no memory, or 2 if a token is not in the table. */
int heedful_fused(const int64_t *tokens, float *output, const struct operation *operations,
                  const struct memory *memories, const int64_t *ends, const struct plan *p,
                  int64_t position, const int64_t *positions, int64_t units, int64_t threads) {
    struct call c = {.tokens = tokens, .output = output, .operations = operations,
                     .memories = memories, .ends = ends, .plan = p, .position = position,
                     .positions = positions, .units = units};
    const int64_t rows = rows_before(&c, units);
    for (int64_t i = 0; i < rows; i++)
        if (tokens[i] < 0 || tokens[i] >= p->embedding.symbols) return 2;
    if (threads > 1 && rows >= FEW * threads && units >= threads) {
        parallel_for(many_rows, &c, threads);
        return atomic_load(&c.failed);
    }
    c.shared = room_for(&c, 0, units, threads);
    if (!c.shared.scratch) return 1;
    parallel_for(few_rows, &c, threads);
    free(c.shared.scratch);
    return 0;
}
