/* The elementwise part of a recurrent cell, after its matrix products, and its gradients; and one
 * direction of a recurrent layer.
 *
 * Gates are stored next to each other: one for the tanh-RNN; r, z, n for the GRU; i, f, g, o for the
 * LSTM.
 * Shapes: N rows, H units, G gates.
 */
#include "linear.h"

enum { RNN, GRU, LSTM };

struct cell {
    int64_t kind, units, stride; /* stride: between the rows of `recurrent` */
};

/* gates [N, G·H]: the contribution of the input; saved_gates: receives the gate values, may equal
 * `gates`, or null; recurrent [N, ·]: the contribution of the previous state; h0, c0 [N, H]: the
 * previous state; h, c: the new state (c0 and c for the LSTM only).
 */
int heedful_cell(const float *gates, float *saved_gates, const float *recurrent, const float *h0,
                 const float *c0, float *h, float *c, const struct cell *s, int64_t first, int64_t last) {
    const int64_t d = s->units, count = s->kind == RNN ? 1 : s->kind == GRU ? 3 : 4;
    for (int64_t n = first; n < last; n++)
        for (int64_t i = 0; i < d; i += LANES) {
            const int64_t left = d - i, offset = n * d + i;
            const float *input = gates + n * count * d + i;
            float *saved = saved_gates ? saved_gates + n * count * d + i : 0;
            const float *hidden = recurrent + n * s->stride + i;
            const vfloat sum = load_partial(input, left) + load_partial(hidden, left);
            if (s->kind == RNN) {
                const vfloat y = vtanh(sum);
                if (saved) store_partial(saved, y, left);
                store_partial(h + offset, y, left);
                continue;
            }
            const vfloat a = vsigmoid(sum);
            const vfloat b = vsigmoid(load_partial(input + d, left) + load_partial(hidden + d, left));
            const vfloat third = load_partial(hidden + 2 * d, left);
            const vfloat x = vtanh(load_partial(input + 2 * d, left) + (s->kind == GRU ? a * third : third));
            if (saved) {
                store_partial(saved, a, left);
                store_partial(saved + d, b, left);
                store_partial(saved + 2 * d, x, left);
            }
            if (s->kind == GRU) {
                store_partial(h + offset, x + b * (load_partial(h0 + offset, left) - x), left);
                continue;
            }
            const vfloat o = vsigmoid(load_partial(input + 3 * d, left) + load_partial(hidden + 3 * d, left));
            const vfloat cell_state = b * load_partial(c0 + offset, left) + a * x;
            if (saved) store_partial(saved + 3 * d, o, left);
            store_partial(c + offset, cell_state, left);
            store_partial(h + offset, o * vtanh(cell_state), left);
        }
    return 0;
}

static inline vfloat sigmoid_backward(vfloat grad, vfloat y) { return grad * y * (1.0f - y); }

/* gates: the values that heedful_cell saved. grad_output [N, H]: the gradient of h from the output.
 * grad_h, grad_c [N, H]: on entry the gradients from the next step; on return those of the previous
 * state, without the product that gave `recurrent`. grad_gates and grad_recurrent (with its stride) are
 * written.
 */
int heedful_cell_backward(const float *gates, const float *recurrent, const float *h0, const float *c0,
                          const float *c, const float *grad_output, float *grad_h, float *grad_c,
                          float *grad_gates, float *grad_recurrent, const struct cell *s, int64_t first,
                          int64_t last) {
    const int64_t d = s->units, count = s->kind == RNN ? 1 : s->kind == GRU ? 3 : 4;
    for (int64_t n = first; n < last; n++)
        for (int64_t i = 0; i < d; i += LANES) {
            const int64_t left = d - i, offset = n * d + i;
            const float *input = gates + n * count * d + i;
            float *to = grad_gates + n * count * d + i, *hidden = grad_recurrent + n * s->stride + i;
            const vfloat grad = load_partial(grad_output + offset, left) + load_partial(grad_h + offset, left);
            const vfloat a = load_partial(input, left);
            if (s->kind == RNN) {
                const vfloat g = grad * (1.0f - a * a);
                store_partial(to, g, left);
                store_partial(hidden, g, left);
                store_partial(grad_h + offset, (vfloat){0}, left);
                continue;
            }
            const vfloat b = load_partial(input + d, left), x = load_partial(input + 2 * d, left);
            vfloat g[4], third;
            if (s->kind == GRU) {
                g[1] = sigmoid_backward(grad * (load_partial(h0 + offset, left) - x), b);
                g[2] = grad * (1.0f - b) * (1.0f - x * x);
                g[0] = sigmoid_backward(g[2] * load_partial(recurrent + n * s->stride + 2 * d + i, left), a);
                third = g[2] * a;
                store_partial(grad_h + offset, grad * b, left);
            } else {
                const vfloat o = load_partial(input + 3 * d, left), t = vtanh(load_partial(c + offset, left));
                const vfloat cell_state = load_partial(grad_c + offset, left) + grad * o * (1.0f - t * t);
                g[0] = sigmoid_backward(cell_state * x, a);
                g[1] = sigmoid_backward(cell_state * load_partial(c0 + offset, left), b);
                third = g[2] = cell_state * a * (1.0f - x * x);
                g[3] = sigmoid_backward(grad * t, o);
                store_partial(grad_h + offset, (vfloat){0}, left);
                store_partial(grad_c + offset, cell_state * b, left);
            }
            for (int64_t j = 0; j < count; j++) {
                store_partial(to + j * d, g[j], left);
                store_partial(hidden + j * d, j == 2 ? third : g[j], left);
            }
        }
    return 0;
}

/* One direction of a layer over sequences of different lengths. The tokens of a step are next to each
 * other, those of the longest sequence first, so that sequence b is row b of each step that it has.
 * Shapes: M tokens, B sequences.
 */
struct direction {
    struct cell cell;
    int64_t steps, backwards;
    const int64_t *counts; /* of each step: its sequences */
    const int64_t *places; /* of each step: its first token */
    const float *panels;   /* the weights, from h to the gates; backward: from the gates to h */
    const float *bias;     /* of the gates, padded to whole panels; backward: zeros */
    const float *zeros;    /* the initial state [B, H] */
};

int64_t heedful_panel_columns(void) { return TILE_COLUMNS; }

/* The tokens of a step that belong to a range of sequences, and how many of them follow another token
 * in reading order. Those come first. */
struct step {
    int64_t token, count, before, known;
};

static struct step step_at(const struct direction *s, int64_t number, int64_t first, int64_t last) {
    const int64_t t = s->backwards ? s->steps - 1 - number : number, from = s->backwards ? t + 1 : t - 1;
    struct step found = {s->places[t] + first, (s->counts[t] < last ? s->counts[t] : last) - first, 0, 0};
    if (number && found.count > 0) {
        const int64_t there = (s->counts[from] < last ? s->counts[from] : last) - first;
        found.before = s->places[from] + first;
        found.known = there < 0 ? 0 : there < found.count ? there : found.count;
    }
    return found;
}

/* known [M, G·H]: the contribution of the input; gates [M, G·H]: receives the gate values; recurrent
 * [M, G·H]: receives the contribution of the state, may equal `gates` except for the GRU; h, c [M, H]:
 * receive the states (c for the LSTM only, otherwise null).
 */
int heedful_direction(const float *known, float *gates, float *recurrent, float *h, float *c,
                      const struct direction *s, int64_t first, int64_t last) {
    const int64_t d = s->cell.units, wide = s->cell.stride;
    const struct operation product = {.weight = s->panels, .bias = s->bias, .in = d, .out = wide};
    const struct range all = {0, 1};
    for (int64_t i = 0; i < s->steps; i++) {
        const struct step now = step_at(s, i, first, last);
        if (now.count <= 0) continue;
        float *by_state = recurrent + now.token * wide, *h1 = h + now.token * d, *c1 = c ? c + now.token * d : 0;
        linear(&product, h + now.before * d, d, by_state, wide, 0, now.known, 1, &all, FLOAT32);
        for (int64_t n = now.known; n < now.count; n++) memcpy(by_state + n * wide, s->bias, (size_t)wide * 4);
        heedful_cell(known + now.token * wide, gates + now.token * wide, by_state, h + now.before * d,
                     c ? c + now.before * d : 0, h1, c1, &s->cell, 0, now.known);
        heedful_cell(known + now.token * wide, gates + now.token * wide, by_state, s->zeros, s->zeros, h1, c1,
                     &s->cell, now.known, now.count);
    }
    return 0;
}

/* grad_output [M, H]: the gradient of h from the output. grad_h, grad_c [B, H]: the gradients of the
 * final states on entry. grad_gates and grad_recurrent [M, G·H] are written; they may be the same except
 * for the GRU. buffer: [B, H], each row padded to whole panels.
 */
int heedful_direction_backward(const float *gates, const float *recurrent, const float *h, const float *c,
                               const float *grad_output, float *grad_h, float *grad_c, float *grad_gates,
                               float *grad_recurrent, float *buffer, const struct direction *s,
                               int64_t first, int64_t last) {
    const int64_t d = s->cell.units, wide = s->cell.stride, padded = round_up(d, TILE_COLUMNS);
    const struct operation product = {.weight = s->panels, .bias = s->bias, .in = wide, .out = d};
    const struct range all = {0, 1};
    float *by_state = grad_h + first * d, *by_cell = grad_c ? grad_c + first * d : 0;
    buffer += first * padded;
    for (int64_t i = s->steps - 1; i >= 0; i--) {
        const struct step now = step_at(s, i, first, last);
        if (now.count <= 0) continue;
        const int64_t inner = now.token * wide, own = now.token * d, before = now.before * d;
        for (int part = 0; part < 2; part++) /* the tokens with a state before them, and the first ones */
            heedful_cell_backward(gates + inner, recurrent + inner, part ? s->zeros : h + before,
                                  part ? s->zeros : c ? c + before : 0, c ? c + own : 0, grad_output + own,
                                  by_state, by_cell, grad_gates + inner, grad_recurrent + inner, &s->cell,
                                  part ? now.known : 0, part ? now.count : now.known);
        linear(&product, grad_recurrent + inner, wide, buffer, padded, 0, now.known, 0, &all, FLOAT32);
        for (int64_t n = 0; n < now.known; n++)
            for (int64_t j = 0; j < d; j++) by_state[n * d + j] += buffer[n * padded + j];
    }
    return 0;
}
