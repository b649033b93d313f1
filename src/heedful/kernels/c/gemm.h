/* The micro-kernel of every matrix product (GEMM), with accumulators in registers.
 *
 * A tile is TILE_ROWS rows by TILE_COLUMNS columns of the result. The right-hand matrix is packed into
 * panels [depth, TILE_COLUMNS], which are read from the L1 cache in order.
 */
#ifndef HEEDFUL_GEMM
#define HEEDFUL_GEMM
#include "simd.h"

#if defined(__AVX512F__)
#define TILE_ROWS 12
#else
#define TILE_ROWS 6
#endif
#define TILE_COLUMNS (2 * LANES)
#define INLINE static inline __attribute__((always_inline))
#define FOR_EACH_TILE_ROW _Pragma("GCC unroll 12") for (int i = 0; i < TILE_ROWS; i++)

typedef vfloat tile[TILE_ROWS][2];

/* Storage formats of a panel. FLOAT32: float32. BFLOAT16: bfloat16, converted to float32 in registers.
 * BFLOAT16_PAIRS: bfloat16, two values of a column in 32 bits, which are multiplied by two bfloat16
 * values of a row; `depth` then counts pairs.
 */
enum { FLOAT32, BFLOAT16, BFLOAT16_PAIRS };

/* 1 if the processor has a bfloat16 dot product, otherwise 0. */
#if defined(__AVX512BF16__) && defined(__AVX512F__)
#define HAS_BFLOAT16_DOT 1
#else
#define HAS_BFLOAT16_DOT 0
#endif

/* Bytes of a row of a panel. */
INLINE int64_t panel_row_bytes(const int format) { return TILE_COLUMNS * (format == BFLOAT16 ? 2 : 4); }

/* The left and right halves of a row of a panel. BFLOAT16: each 32 bits hold a value of the left half
 * in the lower 16 bits and a value of the right half in the upper 16 bits. */
INLINE void read_row(const char *panel, const int format, vfloat *left, vfloat *right) {
    if (format == BFLOAT16) {
        vint both;
        memcpy(&both, panel, VECTOR_BYTES);
        *left = (vfloat)(both << 16);
        *right = (vfloat)(both & ~0xffff);
    } else {
        *left = load((const float *)panel);
        *right = load((const float *)panel + LANES);
    }
}

/* Broadcast a value of a row, or a pair of values, to all lanes. */
INLINE vfloat broadcast(const float *number, const int format) {
    if (format != BFLOAT16_PAIRS) return *number - (vfloat){0};
    int32_t pair;
    memcpy(&pair, number, sizeof pair);
    return (vfloat)(pair - (vint){0});
}

/* sum + x · y; for pairs, sum + x₁ · y₁ + x₂ · y₂. */
INLINE vfloat add_product(vfloat sum, vfloat x, vfloat y, const int format) {
#if HAS_BFLOAT16_DOT
    if (format == BFLOAT16_PAIRS) return (vfloat)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)y);
#endif
    (void)format;
    return sum + x * y;
}

/* sum += rows · panel for m rows. Element k of row i is rows[i · row + k · step]. */
INLINE void gemm_tile_rows(tile sum, const int m, const float *rows, const int64_t row,
                           const int64_t step, const char *panel, const int64_t depth,
                           const int format) {
#pragma GCC unroll 4
    for (int64_t k = 0; k < depth; k++) {
        vfloat left, right;
        read_row(panel + k * panel_row_bytes(format), format, &left, &right);
#pragma GCC unroll 12
        for (int i = 0; i < m; i++) {
            const vfloat x = broadcast(rows + i * row + k * step, format);
            sum[i][0] = add_product(sum[i][0], x, left, format);
            sum[i][1] = add_product(sum[i][1], x, right, format);
        }
    }
}

/* The same for all rows of a float32 tile. */
INLINE void gemm_tile(tile sum, const float *rows, const int64_t row, const int64_t step,
                      const float *panel, const int64_t depth) {
    gemm_tile_rows(sum, TILE_ROWS, rows, row, step, (const char *)panel, depth, FLOAT32);
}

static inline int64_t round_up(int64_t count, int64_t to) { return (count + to - 1) / to * to; }

/* Pack a matrix [depth, width] into panels [width / TILE_COLUMNS, depth, TILE_COLUMNS], padded with
 * zeros. Consecutive panels are `panel_rows` rows apart. Element (k, j) is from[k · row + j · column]. */
static inline void pack(const float *from, int64_t row, int64_t column, int64_t depth, int64_t width,
                        float *panels, int64_t panel_rows) {
    for (int64_t p = 0; p * TILE_COLUMNS < width; p++) {
        const int64_t left = width - p * TILE_COLUMNS;
        for (int64_t k = 0; k < depth; k++) {
            float *to = panels + (p * panel_rows + k) * TILE_COLUMNS;
            const float *values = from + k * row + p * TILE_COLUMNS * column;
            if (left >= TILE_COLUMNS && column == 1) {
                store(to, load(values));
                store(to + LANES, load(values + LANES));
            } else
                for (int64_t j = 0; j < TILE_COLUMNS; j++) to[j] = j < left ? values[j * column] : 0;
        }
    }
}
#endif
