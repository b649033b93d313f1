/* The micro-kernel of every matrix product (GEMM): sums of products in registers.
 *
 * A tile is ROWS rows times COLUMNS columns of a result; what it is multiplied with lies in panels
 * [depth, COLUMNS], so that it is read from the nearest cache in order.
 */
#ifndef HEEDFUL_GEMM
#define HEEDFUL_GEMM
#include "simd.h"

#if defined(__AVX512F__)
#define ROWS 12
#else
#define ROWS 6
#endif
#define COLUMNS (2 * LANES)
#define INLINE static inline __attribute__((always_inline))
#define EACH_ROW _Pragma("GCC unroll 12") for (int i = 0; i < ROWS; i++)

typedef vfloat tile[ROWS][2];

/* How the numbers of a panel are stored. SINGLE: float32. WIDENED: bfloat16, made float32 in registers.
 * PAIRED: bfloat16, two numbers of a column in 32 bits, multiplied by two numbers of a row in bfloat16;
 * the depth then counts pairs. */
enum { SINGLE, WIDENED, PAIRED };

/* Whether the processor multiplies bfloat16. */
#if defined(__AVX512BF16__) && defined(__AVX512F__)
#define PAIRS 1
#else
#define PAIRS 0
#endif

/* Bytes of a row of a panel. */
INLINE int64_t bytes_of(const int numbers) { return COLUMNS * (numbers == WIDENED ? 2 : 4); }

/* The two halves of a panel's row. WIDENED: a number of the right half is stored above a number of the
 * left half in 32 bits, and each is the upper half of a float. */
INLINE void read_row(const char *panel, const int numbers, vfloat *left, vfloat *right) {
    if (numbers == WIDENED) {
        vint both;
        memcpy(&both, panel, BYTES);
        *left = (vfloat)(both << 16);
        *right = (vfloat)(both & ~0xffff);
    } else {
        *left = load((const float *)panel);
        *right = load((const float *)panel + LANES);
    }
}

/* A number of a row, or a pair of them, in every lane. */
INLINE vfloat broadcast(const float *number, const int numbers) {
    if (numbers != PAIRED) return *number - (vfloat){0};
    int32_t pair;
    memcpy(&pair, number, sizeof pair);
    return (vfloat)(pair - (vint){0});
}

/* sum + x · y, or the sum of both products where they are pairs. */
INLINE vfloat add_product(vfloat sum, vfloat x, vfloat y, const int numbers) {
#if PAIRS
    if (numbers == PAIRED) return (vfloat)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)y);
#endif
    (void)numbers;
    return sum + x * y;
}

/* sum += rows · panel, of m rows. A row's number k is at rows[i · row + k · step]. */
INLINE void gemm_tile_rows(tile sum, const int m, const float *rows, const int64_t row,
                          const int64_t step, const char *panel, const int64_t depth,
                          const int numbers) {
#pragma GCC unroll 4
    for (int64_t k = 0; k < depth; k++) {
        vfloat left, right;
        read_row(panel + k * bytes_of(numbers), numbers, &left, &right);
#pragma GCC unroll 12
        for (int i = 0; i < m; i++) {
            const vfloat x = broadcast(rows + i * row + k * step, numbers);
            sum[i][0] = add_product(sum[i][0], x, left, numbers);
            sum[i][1] = add_product(sum[i][1], x, right, numbers);
        }
    }
}

/* The same of all rows of a tile. */
INLINE void gemm_tile(tile sum, const float *rows, const int64_t row, const int64_t step,
                     const float *panel, const int64_t depth) {
    gemm_tile_rows(sum, ROWS, rows, row, step, (const char *)panel, depth, SINGLE);
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
