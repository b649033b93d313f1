/* Runs functions of heedful's C on numbers from standard input and writes what they give, so that
 * tests can compile it for another processor. See tests/test_portable_c.py for the shapes. */
#include "recurrent_cell.c"
#include "topk.c"
#include "gemm.h"
#include <stdio.h>

enum { M = 5, DEPTH = 40, WIDTH = 67, N = 3, H = 21, V = 1003, K = 4 };

static float a[M * DEPTH], b[DEPTH * WIDTH], x[1024], y[1024], gates[N * 4 * H], again[N * 4 * H],
    c0[N * H], h[N * H], c[N * H], row[V], best[K], top, rest, panels[9 * DEPTH * COLUMNS], out[M * WIDTH];

static int take_in(float *to, int count) { return fread(to, sizeof(float), count, stdin) == (size_t)count; }
static void give(const float *from, int count) { fwrite(from, sizeof(float), count, stdout); }

int main(void) {
    const struct cell lstm = {LSTM, H, 4 * H};
    const struct rows whole = {V, V, 4, K};
    int64_t columns[K];
    float numbers[K];
    if (!take_in(x, 1024) || !take_in(a, M * DEPTH) || !take_in(b, DEPTH * WIDTH) ||
        !take_in(gates, N * 4 * H) || !take_in(again, N * 4 * H) || !take_in(c0, N * H) || !take_in(row, V))
        return 1;
    for (int i = 0; i < 1024; i += LANES) store(y + i, vexp(load(x + i)));
    give(y, 1024);
    pack(b, WIDTH, 1, DEPTH, WIDTH, panels, DEPTH);
    for (int p = 0; p * COLUMNS < WIDTH; p++) {
        const int64_t left = WIDTH - p * COLUMNS;
        tile sum = {{{0}}};
        gemm_tile_rows(sum, M, a, DEPTH, 1, (const char *)(panels + p * DEPTH * COLUMNS), DEPTH, 0);
        for (int i = 0; i < M; i++) {
            store_partial(out + i * WIDTH + p * COLUMNS, sum[i][0], left);
            if (left > LANES) store_partial(out + i * WIDTH + p * COLUMNS + LANES, sum[i][1], left - LANES);
        }
    }
    give(out, M * WIDTH);
    if (heedful_cell(gates, 0, again, c0, c0, h, c, &lstm, 0, N)) return 2;
    give(h, N * H);
    give(c, N * H);
    if (heedful_best(row, best, columns, &top, &rest, &whole, 0, 1)) return 3;
    for (int i = 0; i < K; i++) numbers[i] = (float)columns[i];
    give(best, K);
    give(numbers, K);
    top += rest;
    give(&top, 1);
    return 0;
}
