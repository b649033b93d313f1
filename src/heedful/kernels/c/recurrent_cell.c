/* What a recurrent cell does to each number by itself, after the products; and its gradients.
 *
 * Gates stand side by side: the tanh-RNN has 1, the GRU r, z, n, the LSTM i, f, g, o.
 * Shapes: N rows, H units, G gates.
 */
#include "activations.h"

enum { RNN, GRU, LSTM };

struct cell {
    int64_t kind, units, stride; /* stride: from row to row of what comes from the state before */
};

/* gates [N, G·H]: the input's share; opened: where the gates themselves are kept, which may be there, or
 * null; recurrent [N, ·]: the state's share; h0, c0 [N, H]: the state before; h, c: after (c0 and c of
 * the LSTM alone). */
int heedful_cell(const float *gates, float *opened, const float *recurrent, const float *h0, const float *c0, float *h,
                 float *c, const struct cell *s, int64_t first, int64_t last) {
    const int64_t d = s->units, count = s->kind == RNN ? 1 : s->kind == GRU ? 3 : 4;
    for (int64_t n = first; n < last; n++)
        for (int64_t i = 0; i < d; i += LANES) {
            const int64_t left = d - i, at = n * d + i;
            const float *own = gates + n * count * d + i;
            float *kept = opened ? opened + n * count * d + i : 0;
            const float *other = recurrent + n * s->stride + i;
            const vfloat sum = load_partial(own, left) + load_partial(other, left);
            if (s->kind == RNN) {
                const vfloat y = vtanh(sum);
                if (kept) store_partial(kept, y, left);
                store_partial(h + at, y, left);
                continue;
            }
            const vfloat a = vsigmoid(sum), b = vsigmoid(load_partial(own + d, left) + load_partial(other + d, left));
            const vfloat third = load_partial(other + 2 * d, left);
            const vfloat x = vtanh(load_partial(own + 2 * d, left) + (s->kind == GRU ? a * third : third));
            if (kept) {
                store_partial(kept, a, left);
                store_partial(kept + d, b, left);
                store_partial(kept + 2 * d, x, left);
            }
            if (s->kind == GRU) {
                store_partial(h + at, x + b * (load_partial(h0 + at, left) - x), left);
                continue;
            }
            const vfloat o = vsigmoid(load_partial(own + 3 * d, left) + load_partial(other + 3 * d, left));
            const vfloat inner = b * load_partial(c0 + at, left) + a * x;
            if (kept) store_partial(kept + 3 * d, o, left);
            store_partial(c + at, inner, left);
            store_partial(h + at, o * vtanh(inner), left);
        }
    return 0;
}

static inline vfloat through_sigmoid(vfloat by, vfloat y) { return by * y * (1.0f - y); }

/* gates: as heedful_cell has left them. by_output [N, H]: the gradient of h from outside; by_h, by_c
 * [N, H]: from the step after, become those of the state before, but for the product that `recurrent`
 * came from. by_gates, by_recurrent (with its stride) are written. */
int heedful_cell_back(const float *gates, const float *recurrent, const float *h0, const float *c0,
                      const float *c, const float *by_output, float *by_h, float *by_c,
                      float *by_gates, float *by_recurrent, const struct cell *s, int64_t first,
                      int64_t last) {
    const int64_t d = s->units, count = s->kind == RNN ? 1 : s->kind == GRU ? 3 : 4;
    for (int64_t n = first; n < last; n++)
        for (int64_t i = 0; i < d; i += LANES) {
            const int64_t left = d - i, at = n * d + i;
            const float *own = gates + n * count * d + i;
            float *to = by_gates + n * count * d + i, *other = by_recurrent + n * s->stride + i;
            const vfloat by = load_partial(by_output + at, left) + load_partial(by_h + at, left);
            const vfloat a = load_partial(own, left);
            if (s->kind == RNN) {
                const vfloat g = by * (1.0f - a * a);
                store_partial(to, g, left);
                store_partial(other, g, left);
                store_partial(by_h + at, (vfloat){0}, left);
                continue;
            }
            const vfloat b = load_partial(own + d, left), x = load_partial(own + 2 * d, left);
            vfloat g[4], third;
            if (s->kind == GRU) {
                g[1] = through_sigmoid(by * (load_partial(h0 + at, left) - x), b);
                g[2] = by * (1.0f - b) * (1.0f - x * x);
                g[0] = through_sigmoid(g[2] * load_partial(recurrent + n * s->stride + 2 * d + i, left), a);
                third = g[2] * a;
                store_partial(by_h + at, by * b, left);
            } else {
                const vfloat o = load_partial(own + 3 * d, left), t = vtanh(load_partial(c + at, left));
                const vfloat inner = load_partial(by_c + at, left) + by * o * (1.0f - t * t);
                g[0] = through_sigmoid(inner * x, a);
                g[1] = through_sigmoid(inner * load_partial(c0 + at, left), b);
                third = g[2] = inner * a * (1.0f - x * x);
                g[3] = through_sigmoid(by * t, o);
                store_partial(by_h + at, (vfloat){0}, left);
                store_partial(by_c + at, inner * b, left);
            }
            for (int64_t j = 0; j < count; j++) {
                store_partial(to + j * d, g[j], left);
                store_partial(other + j * d, j == 2 ? third : g[j], left);
            }
        }
    return 0;
}
