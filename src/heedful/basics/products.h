/* Sums of products in registers: the heart of every matrix product of ours.
 *
 * A tile is ROWS rows times COLUMNS columns of a result; what it is multiplied with lies in panels
 * [depth, COLUMNS], so that it is read from the nearest cache in order.
 */
#ifndef PRODUCTS
#define PRODUCTS
#include "lanes.h"

#define ROWS 6
#define COLUMNS (2 * LANES)

typedef lanes tile[ROWS][2];

#define EACH_ROW _Pragma("GCC unroll 6") for (int i = 0; i < ROWS; i++)

/* sum += rows · panel. A row's number k stands at rows[i · row + k · step]. */
static inline __attribute__((always_inline)) void multiply(tile sum, const float *rows,
                                                           const int64_t row, const int64_t step,
                                                           const float *panel, const int64_t depth) {
#pragma GCC unroll 4
    for (int64_t k = 0; k < depth; k++) {
        const lanes left = load(panel + k * COLUMNS), right = load(panel + k * COLUMNS + LANES);
        EACH_ROW {
            const lanes x = rows[i * row + k * step] - (lanes){0};
            sum[i][0] += x * left;
            sum[i][1] += x * right;
        }
    }
}

static inline int64_t rounded(int64_t count, int64_t to) { return (count + to - 1) / to * to; }

/* Matrix [depth, width] as panels [width / COLUMNS, depth, COLUMNS], zeros beside it; a panel is
 * `room` rows long. A number stands at from[k · row + j · column]. */
static inline void pack(const float *from, int64_t row, int64_t column, int64_t depth, int64_t width,
                        float *panels, int64_t room) {
    for (int64_t p = 0; p * COLUMNS < width; p++) {
        const int64_t left = width - p * COLUMNS;
        for (int64_t k = 0; k < depth; k++) {
            float *to = panels + (p * room + k) * COLUMNS;
            const float *own = from + k * row + p * COLUMNS * column;
            if (left >= COLUMNS && column == 1) {
                store(to, load(own));
                store(to + LANES, load(own + LANES));
            } else
                for (int64_t j = 0; j < COLUMNS; j++) to[j] = j < left ? own[j * column] : 0;
        }
    }
}
#endif
