/* Sums of products in registers: the heart of every matrix product of ours.
 *
 * A tile is ROWS rows times COLUMNS columns of a result; what it is multiplied with lies in panels
 * [depth, COLUMNS], so that it is read from the nearest cache in order.
 */
#ifndef PRODUCTS
#define PRODUCTS
#include "lanes.h"

#if defined(__AVX512F__)
#define ROWS 12
#else
#define ROWS 6
#endif
#define COLUMNS (2 * LANES)
#define INLINE static inline __attribute__((always_inline))
#define EACH_ROW _Pragma("GCC unroll 12") for (int i = 0; i < ROWS; i++)

typedef lanes tile[ROWS][2];

/* Bytes of a row of a panel, whose numbers may be `half` as long: bfloat16. */
INLINE int64_t bytes_of(const int half) { return COLUMNS * (half ? 2 : 4); }

/* The two halves of a panel's row. In bfloat16 a number of the right one stands above a number of the
 * left one in 32 bits: each is the upper half of the float that it is. */
INLINE void read_row(const char *panel, const int half, lanes *left, lanes *right) {
    if (half) {
        ints both;
        memcpy(&both, panel, BYTES);
        *left = (lanes)(both << 16);
        *right = (lanes)(both & ~0xffff);
    } else {
        *left = load((const float *)panel);
        *right = load((const float *)panel + LANES);
    }
}

/* sum += rows · panel, of m rows. A row's number k stands at rows[i · row + k · step]. */
INLINE void multiply_rows(tile sum, const int m, const float *rows, const int64_t row,
                          const int64_t step, const char *panel, const int64_t depth,
                          const int half) {
#pragma GCC unroll 4
    for (int64_t k = 0; k < depth; k++) {
        lanes left, right;
        read_row(panel + k * bytes_of(half), half, &left, &right);
#pragma GCC unroll 12
        for (int i = 0; i < m; i++) {
            const lanes x = rows[i * row + k * step] - (lanes){0};
            sum[i][0] += x * left;
            sum[i][1] += x * right;
        }
    }
}

/* The same of all rows of a tile. */
INLINE void multiply(tile sum, const float *rows, const int64_t row, const int64_t step,
                     const float *panel, const int64_t depth) {
    multiply_rows(sum, ROWS, rows, row, step, (const char *)panel, depth, 0);
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
