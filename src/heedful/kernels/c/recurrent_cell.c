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
            const lanes sum = take(own, left) + take(other, left);
            if (s->kind == RNN) {
                const lanes y = tangent(sum);
                if (kept) put(kept, y, left);
                put(h + at, y, left);
                continue;
            }
            const lanes a = sigmoid(sum), b = sigmoid(take(own + d, left) + take(other + d, left));
            const lanes third = take(other + 2 * d, left);
            const lanes x = tangent(take(own + 2 * d, left) + (s->kind == GRU ? a * third : third));
            if (kept) {
                put(kept, a, left);
                put(kept + d, b, left);
                put(kept + 2 * d, x, left);
            }
            if (s->kind == GRU) {
                put(h + at, x + b * (take(h0 + at, left) - x), left);
                continue;
            }
            const lanes o = sigmoid(take(own + 3 * d, left) + take(other + 3 * d, left));
            const lanes inner = b * take(c0 + at, left) + a * x;
            if (kept) put(kept + 3 * d, o, left);
            put(c + at, inner, left);
            put(h + at, o * tangent(inner), left);
        }
    return 0;
}

static inline lanes through_sigmoid(lanes by, lanes y) { return by * y * (1.0f - y); }

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
            const lanes by = take(by_output + at, left) + take(by_h + at, left);
            const lanes a = take(own, left);
            if (s->kind == RNN) {
                const lanes g = by * (1.0f - a * a);
                put(to, g, left);
                put(other, g, left);
                put(by_h + at, (lanes){0}, left);
                continue;
            }
            const lanes b = take(own + d, left), x = take(own + 2 * d, left);
            lanes g[4], third;
            if (s->kind == GRU) {
                g[1] = through_sigmoid(by * (take(h0 + at, left) - x), b);
                g[2] = by * (1.0f - b) * (1.0f - x * x);
                g[0] = through_sigmoid(g[2] * take(recurrent + n * s->stride + 2 * d + i, left), a);
                third = g[2] * a;
                put(by_h + at, by * b, left);
            } else {
                const lanes o = take(own + 3 * d, left), t = tangent(take(c + at, left));
                const lanes inner = take(by_c + at, left) + by * o * (1.0f - t * t);
                g[0] = through_sigmoid(inner * x, a);
                g[1] = through_sigmoid(inner * take(c0 + at, left), b);
                third = g[2] = inner * a * (1.0f - x * x);
                g[3] = through_sigmoid(by * t, o);
                put(by_h + at, (lanes){0}, left);
                put(by_c + at, inner * b, left);
            }
            for (int64_t j = 0; j < count; j++) {
                put(to + j * d, g[j], left);
                put(other + j * d, j == 2 ? third : g[j], left);
            }
        }
    return 0;
}
