/* Runs the layers of a network for a block of rows at a time, so that the values of a block stay in the
 * cache. With many rows, each thread runs its own rows through all layers without synchronisation. With
 * few rows, the threads share the columns of each product.
 *
 * Shapes: N rows; I inputs and O outputs of a product.
 */
#include "linear.h"
#include "thread_pool.h"
#include <stdlib.h>

#define ALIGNMENT 64
#define FEW_ROWS 16 /* with fewer rows for each thread, threads share columns */

struct memory {
    struct steps steps;
    float *new_keys, *new_values; /* where APPEND writes, contiguous rows */
};

/* Input row: table[token] · scale + positions[position]. */
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
    float *scratch; /* `max_rows` rows, then `thread_floats` floats for each thread */
    int64_t max_rows, thread_floats;
};

struct call {
    const int64_t *tokens;
    float *output;
    const struct operation *operations;
    const struct memory *memories;
    const int64_t *ends;
    const struct plan *plan;
    int64_t position, units;
    const int64_t *positions; /* of each row; null: derived from `position` */
    struct buffers shared; /* used if threads share columns */
    atomic_int failed;
};

/* The number of rows before a unit. A unit is a sequence, or a row if there are no sequences. */
static inline int64_t rows_before(const struct call *c, int64_t unit) {
    return c->ends ? c->ends[unit] : unit;
}

int64_t heedful_panel_columns(void) { return TILE_COLUMNS; }

/* Whether bfloat16 weights are stored in pairs. */
int64_t heedful_bfloat16_pairs(void) { return HAS_BFLOAT16_DOT; }

/* The largest quantised input; 0 if integer products are not available. */
int64_t heedful_int8_max_input(void) { return MAX_INPUT; }

/* (x − mean) / √(variance + ε) · weight + bias (Ba et al. 2016). */
static void layer_norm(const struct operation *o, const float *from, float *to) {
    const int64_t width = o->in, full = width / LANES * LANES;
    vfloat sum = {0};
    float mean = 0, variance = 0;
    for (int64_t i = 0; i < full; i += LANES) sum += load(from + i);
    for (int64_t i = full; i < width; i++) mean += from[i];
    mean = (mean + reduce_add(sum)) / (float)width;
    sum = (vfloat){0};
    for (int64_t i = 0; i < full; i += LANES) {
        const vfloat x = load(from + i) - mean;
        sum += x * x;
    }
    for (int64_t i = full; i < width; i++) variance += (from[i] - mean) * (from[i] - mean);
    variance = (variance + reduce_add(sum)) / (float)width;
    const float scale = 1.0f / sqrtf(variance + (float)o->epsilon);
    for (int64_t i = 0; i < full; i += LANES)
        store(to + i, (load(from + i) - mean) * scale * load(o->weight + i) + load(o->bias + i));
    for (int64_t i = full; i < width; i++)
        to[i] = (from[i] - mean) * scale * o->weight[i] + o->bias[i];
}

/* Self-attention over the n rows of a sequence, for a range of the heads. `keys` holds D · padded(n)
 * floats. */
static void self_attend(const struct operation *o, const struct plan *p, float *rows, float *scores,
                        float *keys, int64_t n, const struct range *range) {
    const struct heads *a = &o->heads;
    const int64_t d = a->key_width, e = a->value_width, w = p->width;
    const int64_t heads_per_group = a->heads / a->groups;
    const int64_t padded_length = padded(n), last = end(range, a->groups) * heads_per_group;
    for (int64_t h = begin(range, a->groups) * heads_per_group; h < last; h++) {
        const float *key = rows + o->in + h / heads_per_group * d;
        const float *value = rows + o->in + a->groups * d + h / heads_per_group * e;
        if (h % heads_per_group == 0)
            for (int64_t i = 0; i < d; i++)
                for (int64_t t = 0; t < padded_length; t++)
                    keys[i * padded_length + t] = t < n ? key[t * w + i] : 0;
        for (int64_t r = 0; r < n; r++) {
            const float *query = rows + r * w + o->from + h * d;
            float *to = rows + r * w + o->to + h * e;
            for (int64_t t = 0; t < padded_length; t += LANES) {
                vfloat sum = {0};
                for (int64_t i = 0; i < d; i++) sum += query[i] * load(keys + i * padded_length + t);
                store(scores + t, (float)a->scale * sum);
            }
            softmax(scores, n, padded_length);
            memset(to, 0, (size_t)e * sizeof(float));
            for (int64_t t = 0; t < n; t++) add(to, value + t * w, scores[t], e);
        }
    }
}

/* A thread's part of an operation on the rows in `scratch`: a range of a product's columns, of the
 * heads of sequences, or of the rows. `first` is the index of the first row in the whole batch. */
static void run_operation(const struct operation *o, const struct call *c, const int64_t *ends,
                          float *scratch, float *buffer, int64_t first, int64_t n,
                          const struct range *range) {
    const struct plan *p = c->plan;
    const int is_output = o->to < 0;
    const int64_t stride = is_output ? p->output_stride : p->width;
    const float *addend = o->add < 0 ? 0 : scratch + o->add;
    const struct memory *m = c->memories ? c->memories + o->memory : 0;
    float *from = scratch + o->from;
    float *to = is_output ? c->output + first * stride : scratch + o->to;
    const int64_t i = begin(range, n), last = end(range, n);
    switch (o->kind) {
    case LINEAR_INT8: linear_int8(o, from, p->width, to, stride, addend, n, buffer, range); break;
    case LINEAR: linear(o, from, p->width, to, stride, addend, n, is_output, range, FLOAT32); break;
    case LINEAR_BFLOAT16:
        linear_bfloat16(o, from, p->width, to, stride, addend, n, is_output, buffer, range);
        break;
    case LAYER_NORM:
        for (int64_t r = i; r < last; r++) layer_norm(o, from + r * p->width, to + r * p->width);
        break;
    case APPEND:
        for (int64_t r = i; r < last; r++) {
            const size_t bytes = (size_t)o->in * sizeof(float);
            memcpy(m->new_keys + (first + r) * o->in, from + r * p->width, bytes);
            memcpy(m->new_values + (first + r) * o->in, to + r * p->width, bytes);
        }
        break;
    case READ_CACHE:
        for (int64_t r = i; r < last; r++)
            attend_to_steps(&m->steps, &o->heads, first + r, from + r * p->width, to + r * p->width,
                            buffer);
        break;
    case SELF_ATTEND:
        for (; *ends < first + n; ends++)
            self_attend(o, p, scratch + (*ends - first) * p->width, buffer,
                        buffer + padded(ends[1] - *ends), ends[1] - *ends, range);
    }
}

/* The end of the block that begins with unit u. A block has at most `max_rows` rows, or one sequence. */
static int64_t block_end(const int64_t *ends, int64_t u, int64_t last, int64_t max_rows) {
    if (!ends) return u + max_rows < last ? u + max_rows : last;
    int64_t end = u + 1;
    while (end < last && ends[end + 1] - ends[u] <= max_rows) end++;
    return end;
}

/* The size of a thread's buffer: the scores of a row, or the scores and keys of a sequence, or the
 * quantised rows. */
static int64_t buffer_floats(const struct call *c, int64_t max_rows, int64_t longest) {
    int64_t largest = 0;
    for (int64_t i = 0; i < c->plan->operations; i++) {
        const struct operation *o = c->operations + i;
        int64_t needed = 0;
        if (o->kind == READ_CACHE) needed = o->heads.heads * padded(c->memories[o->memory].steps.positions);
        if (o->kind == SELF_ATTEND) needed = (1 + o->heads.key_width) * padded(longest);
        if (o->kind == LINEAR_INT8) needed = max_rows * (1 + round_up_to_4(o->in) / 4);
        if (o->kind == LINEAR_BFLOAT16) needed = max_rows * pair_count(o->in);
        largest = needed > largest ? needed : largest;
    }
    return padded(largest);
}

static void embed(const struct plan *p, int64_t token, int64_t position, float *to) {
    const struct embedding *e = &p->embedding;
    const float *vector = e->table + token * p->input_width;
    const float *offset = e->positions + position * p->input_width, scale = (float)e->scale;
    for (int64_t i = 0; i < p->input_width; i++) to[i] = vector[i] * scale + offset[i];
    /* A product with an addend reads whole panels: set the padding of the row, too. */
    for (int64_t i = p->input_width; i < panel_count(p->input_width) * TILE_COLUMNS; i++) to[i] = 0;
}

/* Run all operations on the units `first` to `last`, block by block. The threads of `range` share each. */
static void run_blocks(const struct call *c, const struct buffers *b, int64_t first, int64_t last,
                       const struct range *range) {
    const struct plan *p = c->plan;
    float *buffer = b->scratch + b->max_rows * p->width + range->index * b->thread_floats;
    for (int64_t u = first, next; u < last; u = next) {
        next = block_end(c->ends, u, last, b->max_rows);
        const int64_t row = rows_before(c, u), n = rows_before(c, next) - row;
        for (int64_t v = u, i = 0; v < next && !range->index; v++)
            for (int64_t offset = 0; offset < rows_before(c, v + 1) - rows_before(c, v); offset++, i++)
                embed(p, c->tokens[row + i],
                      c->positions ? c->positions[row + i] : c->position + offset,
                      b->scratch + i * p->width);
        barrier(range->count);
        for (int64_t i = 0; i < p->operations; i++) {
            const struct operation *o = c->operations + i;
            run_operation(o, c, c->ends ? c->ends + u : 0, b->scratch, buffer, row, n, range);
            /* No barrier after APPEND: the thread that appends a row also reads it. */
            if (o->kind != APPEND) barrier(range->count);
        }
    }
}

/* Allocate buffers for the units and threads. `scratch` is null if memory cannot be allocated. */
static struct buffers allocate_buffers(const struct call *c, int64_t first, int64_t last, int64_t threads) {
    const struct plan *p = c->plan;
    int64_t longest = 0, max_rows = rows_before(c, last) - rows_before(c, first);
    for (int64_t u = first; c->ends && u < last; u++)
        longest = c->ends[u + 1] - c->ends[u] > longest ? c->ends[u + 1] - c->ends[u] : longest;
    if (max_rows > p->block) max_rows = p->block;
    if (max_rows < longest) max_rows = longest;
    struct buffers b = {.max_rows = max_rows, .thread_floats = buffer_floats(c, max_rows, longest)};
    const size_t bytes = (size_t)(max_rows * p->width + threads * b.thread_floats) * sizeof(float);
    b.scratch = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    return b;
}

static void share_columns(void *argument, int64_t index, int64_t threads) {
    const struct call *c = argument;
    const struct range range = {index, threads};
    run_blocks(c, &c->shared, 0, c->units, &range);
}

/* The first unit of a thread's range of rows. */
static int64_t first_unit(const struct call *c, int64_t index, int64_t threads) {
    const struct range range = {index, threads};
    const int64_t row = begin(&range, rows_before(c, c->units));
    int64_t u = c->ends ? 0 : row;
    while (c->ends && c->ends[u] < row) u++;
    return u;
}

static void share_rows(void *argument, int64_t index, int64_t threads) {
    struct call *c = argument;
    const struct range everything = {0, 1};
    const int64_t first = first_unit(c, index, threads), last = first_unit(c, index + 1, threads);
    if (first == last) return;
    const struct buffers b = allocate_buffers(c, first, last, 1);
    if (b.scratch) run_blocks(c, &b, first, last, &everything);
    else atomic_store(&c->failed, 1);
    free(b.scratch);
}

/* tokens [N]; output [N, ·] with a stride; ends: the row at which each sequence begins, or null; units:
 * the number of sequences, or of rows if there are no sequences. Positions: those of `positions` [N] if
 * it is not null; otherwise a sequence begins at `position`, and a single row is at `position`.
 * Returns 0, 1 if memory cannot be allocated, or 2 if a token is out of range.
 */
int heedful_run_program(const int64_t *tokens, float *output, const struct operation *operations,
                        const struct memory *memories, const int64_t *ends, const struct plan *p,
                        int64_t position, const int64_t *positions, int64_t units, int64_t threads) {
    struct call c = {.tokens = tokens, .output = output, .operations = operations,
                     .memories = memories, .ends = ends, .plan = p, .position = position,
                     .positions = positions, .units = units};
    const int64_t rows = rows_before(&c, units);
    for (int64_t i = 0; i < rows; i++)
        if (tokens[i] < 0 || tokens[i] >= p->embedding.symbols) return 2;
    if (threads > 1 && rows >= FEW_ROWS * threads && units >= threads) {
        parallel_for(share_rows, &c, threads);
        return atomic_load(&c.failed);
    }
    c.shared = allocate_buffers(&c, 0, units, threads);
    if (!c.shared.scratch) return 1;
    parallel_for(share_columns, &c, threads);
    free(c.shared.scratch);
    return 0;
}
