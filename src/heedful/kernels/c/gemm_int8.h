/* Integer matrix products (GEMM): int8 weights, 7-bit or 8-bit inputs, and a scale for each row.
 *
 * A panel is [I / 4, TILE_COLUMNS, 4]: four consecutive weights of each column, which are multiplied by
 * four inputs. An input q is stored as q + OFFSET, which is not negative. OFFSET times the sum of a
 * column's weights is therefore subtracted from each result.
 */
#include "gemm.h"

#define INT8_TILE_ROWS 4

typedef uint8_t vbyte __attribute__((vector_size(LANES)));

/* Add four products to each of LANES sums. Without VNNI, two products are added in 16 bits, which
 * cannot overflow if the inputs have 7 bits. */
#if defined(__AVX512VNNI__) && defined(__AVX512F__)
#define MAX_INPUT 127
static inline vint dot4(vint sum, vint inputs, vint weights) {
    return (vint)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)inputs, (__m512i)weights);
}
#elif defined(__AVX512BW__) && defined(__AVX512F__)
#define MAX_INPUT 63
static inline vint dot4(vint sum, vint inputs, vint weights) {
    const __m512i pairs = _mm512_maddubs_epi16((__m512i)inputs, (__m512i)weights);
    return sum + (vint)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
}
#elif defined(__AVX2__) && !defined(__AVX512F__)
#define MAX_INPUT 63
static inline vint dot4(vint sum, vint inputs, vint weights) {
    const __m256i pairs = _mm256_maddubs_epi16((__m256i)inputs, (__m256i)weights);
    return sum + (vint)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}
#else
#define MAX_INPUT 0 /* not available */
static inline vint dot4(vint sum, vint inputs, vint weights) {
    return sum + inputs * weights * 0;
}
#endif
#define OFFSET (MAX_INPUT + 1)

static inline vint load_int(const void *p) { vint x; memcpy(&x, p, VECTOR_BYTES); return x; }

/* Quantise a row to integers, padded to `padded_width`, a multiple of 4. Returns the scale, which is
 * NaN if the row contains NaN. */
static inline float quantise(const float *from, uint8_t *to, int64_t width, int64_t padded_width) {
    vfloat largest = {0};
    vint nan_lanes = {0};
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES) {
        const vfloat x = load(from + i);
        largest = vmax(vmax(x, -x), largest);
        nan_lanes |= x != x;
    }
    float maximum = reduce_max(largest), nan_count = 0;
    for (int j = 0; j < LANES; j++) nan_count += (float)nan_lanes[j];
    for (int64_t k = i; k < width; k++) {
        maximum = fabsf(from[k]) > maximum ? fabsf(from[k]) : maximum;
        nan_count += from[k] != from[k];
    }
    const float scale = (maximum > 1e-30f ? maximum : 1e-30f) / (MAX_INPUT ? MAX_INPUT : 1);
    const float inverse_scale = 1.0f / scale, magic = 12582912.0f;
    for (i = 0; i + LANES <= width; i += LANES) {
        const vint q = (vint)(load(from + i) * inverse_scale + magic) - (vint)((vfloat){0} + magic) + OFFSET;
        const vbyte bytes = __builtin_convertvector(q, vbyte);
        memcpy(to + i, &bytes, LANES);
    }
    for (; i < width; i++) { /* on the bits, as above: converting NaN to an integer is undefined */
        const float shifted = from[i] * inverse_scale + magic;
        uint32_t bits, bits_of_magic;
        memcpy(&bits, &shifted, sizeof bits);
        memcpy(&bits_of_magic, &magic, sizeof bits);
        to[i] = (uint8_t)(bits - bits_of_magic + OFFSET);
    }
    for (; i < padded_width; i++) to[i] = OFFSET;
    return nan_count != 0 ? NAN : scale;
}

struct int8_tile {
    const uint8_t *from; /* INT8_TILE_ROWS rows of `padded_width` */
    const int8_t *panel;
    const float *scales, *bias, *add, *row_scales;
    const int32_t *sums; /* of the columns of the panel */
    float *to;
    int64_t padded_width, stride; /* of the output and of `add` */
};

/* Multiply m rows by a panel and dequantise the sums with the scales of rows and columns. */
INLINE void multiply_int8_tile(const struct int8_tile *t, const int m, vfloat result[][2]) {
    vint sum[INT8_TILE_ROWS][2];
#pragma GCC unroll 4
    for (int i = 0; i < m; i++) sum[i][0] = sum[i][1] = (vint){0};
    const int8_t *panel = t->panel;
    for (int64_t k = 0; k < t->padded_width; k += 4, panel += 4 * TILE_COLUMNS) {
        const vint left = load_int(panel), right = load_int(panel + VECTOR_BYTES);
#pragma GCC unroll 4
        for (int i = 0; i < m; i++) {
            int32_t four;
            memcpy(&four, t->from + i * t->padded_width + k, 4);
            const vint inputs = four - (vint){0};
            sum[i][0] = dot4(sum[i][0], inputs, left);
            sum[i][1] = dot4(sum[i][1], inputs, right);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < m; i++)
        for (int j = 0; j < 2; j++) {
            const vint products = sum[i][j] - OFFSET * load_int(t->sums + j * LANES);
            vfloat y = __builtin_convertvector(products, vfloat);
            y = y * (t->row_scales[i] * load(t->scales + j * LANES)) + load(t->bias + j * LANES);
            if (t->add) y += load(t->add + i * t->stride + j * LANES);
            result[i][j] = y;
        }
}
