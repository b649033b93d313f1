/* Runs functions of heedful's C on floats from standard input and writes their results, so that
 * tests can compile it for another processor. See tests/test_portable_c.py for the shapes. */
#include "recurrent_cell.c"
#include "topk.c"
#include "gemm.h"
#include <stdio.h>

enum { M = 5, DEPTH = 40, WIDTH = 67, N = 3, H = 21, V = 1003, K = 4 };

static float a[M * DEPTH], b[DEPTH * WIDTH], x[1024], y[1024], gates[N * 4 * H], recurrent[N * 4 * H],
    c0[N * H], h[N * H], c[N * H], row[V], best[K], top, rest, panels[9 * DEPTH * TILE_COLUMNS], out[M * WIDTH];

static int read_floats(float *to, int count) { return fread(to, sizeof(float), count, stdin) == (size_t)count; }
static void write_floats(const float *from, int count) { fwrite(from, sizeof(float), count, stdout); }

int main(void) {
    const struct cell lstm = {LSTM, H, 4 * H};
    const struct rows whole = {V, V, 4, K};
    int64_t columns[K];
    float numbers[K];
    if (!read_floats(x, 1024) || !read_floats(a, M * DEPTH) || !read_floats(b, DEPTH * WIDTH) ||
        !read_floats(gates, N * 4 * H) || !read_floats(recurrent, N * 4 * H) || !read_floats(c0, N * H) || !read_floats(row, V))
        return 1;
    for (int i = 0; i < 1024; i += LANES) store(y + i, vexp(load(x + i)));
    write_floats(y, 1024);
    pack(b, WIDTH, 1, DEPTH, WIDTH, panels, DEPTH);
    for (int p = 0; p * TILE_COLUMNS < WIDTH; p++) {
        const int64_t left = WIDTH - p * TILE_COLUMNS;
        tile sum = {{{0}}};
        gemm_tile_rows(sum, M, a, DEPTH, 1, (const char *)(panels + p * DEPTH * TILE_COLUMNS), DEPTH, 0);
        for (int i = 0; i < M; i++) {
            store_partial(out + i * WIDTH + p * TILE_COLUMNS, sum[i][0], left);
            if (left > LANES) store_partial(out + i * WIDTH + p * TILE_COLUMNS + LANES, sum[i][1], left - LANES);
        }
    }
    write_floats(out, M * WIDTH);
    if (heedful_cell(gates, 0, recurrent, c0, c0, h, c, &lstm, 0, N)) return 2;
    write_floats(h, N * H);
    write_floats(c, N * H);
    if (heedful_topk(row, best, columns, &top, &rest, &whole, 0, 1)) return 3;
    for (int i = 0; i < K; i++) numbers[i] = (float)columns[i];
    write_floats(best, K);
    write_floats(numbers, K);
    top += rest;
    write_floats(&top, 1);
    return 0;
}
