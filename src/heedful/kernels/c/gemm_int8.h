/* Products of whole numbers: weights of 8 bits, inputs of 7 or 8 bits and a scale for each row.
 *
 * A panel is [I / 4, COLUMNS, 4]: of each column four weights that are multiplied by four inputs.
 * Inputs are stored as q + OFFSET, so that they are not negative: of each column's sum OFFSET times
 * the sum of its weights is too much.
 */
#include "gemm.h"

#define WHOLE_ROWS 4

typedef uint8_t vbyte __attribute__((vector_size(LANES)));

/* Four products for each of LANES sums. Without VNNI two products meet in 16 bits, which is exact
 * while inputs have 7. */
#if defined(__AVX512VNNI__) && defined(__AVX512F__)
#define LARGEST 127
static inline vint four_products(vint sum, vint inputs, vint weights) {
    return (vint)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)inputs, (__m512i)weights);
}
#elif defined(__AVX512BW__) && defined(__AVX512F__)
#define LARGEST 63
static inline vint four_products(vint sum, vint inputs, vint weights) {
    const __m512i pairs = _mm512_maddubs_epi16((__m512i)inputs, (__m512i)weights);
    return sum + (vint)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
}
#elif defined(__AVX2__) && !defined(__AVX512F__)
#define LARGEST 63
static inline vint four_products(vint sum, vint inputs, vint weights) {
    const __m256i pairs = _mm256_maddubs_epi16((__m256i)inputs, (__m256i)weights);
    return sum + (vint)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}
#else
#define LARGEST 0 /* there are none */
static inline vint four_products(vint sum, vint inputs, vint weights) {
    return sum + inputs * weights * 0;
}
#endif
#define OFFSET (LARGEST + 1)

static inline vint load_ints(const void *p) { vint x; memcpy(&x, p, BYTES); return x; }

/* A row in whole numbers, `room` of them, a multiple of 4; its scale, which is no number where the row
 * has one that is none. */
static inline float quantise(const float *from, uint8_t *to, int64_t width, int64_t room) {
    vfloat most = {0};
    vint wrong = {0};
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES) {
        const vfloat x = load(from + i);
        most = vmax(vmax(x, -x), most);
        wrong |= x != x;
    }
    float top = reduce_max(most), bad = 0;
    for (int j = 0; j < LANES; j++) bad += (float)wrong[j];
    for (int64_t k = i; k < width; k++) {
        top = fabsf(from[k]) > top ? fabsf(from[k]) : top;
        bad += from[k] != from[k];
    }
    const float scale = (top > 1e-30f ? top : 1e-30f) / (LARGEST ? LARGEST : 1), magic = 12582912.0f;
    const float share = 1.0f / scale;
    for (i = 0; i + LANES <= width; i += LANES) {
        const vint q = (vint)(load(from + i) * share + magic) - (vint)((vfloat){0} + magic) + OFFSET;
        const vbyte small = __builtin_convertvector(q, vbyte);
        memcpy(to + i, &small, LANES);
    }
    for (; i < width; i++) { /* by bits, as above: NaN has no conversion to a whole number */
        const float shifted = from[i] * share + magic;
        uint32_t bits, bits_of_magic;
        memcpy(&bits, &shifted, sizeof bits);
        memcpy(&bits_of_magic, &magic, sizeof bits);
        to[i] = (uint8_t)(bits - bits_of_magic + OFFSET);
    }
    for (; i < room; i++) to[i] = OFFSET;
    return bad != 0 ? NAN : scale;
}

struct whole_tile {
    const uint8_t *from; /* WHOLE_ROWS rows of `room` */
    const int8_t *panel;
    const float *scales, *bias, *add, *row_scales;
    const int32_t *sums; /* of the panel's columns */
    float *to;
    int64_t room, stride; /* of `to` and `add` */
};

/* Sums of m rows and a panel, turned back into numbers with the scales of rows and of columns. */
INLINE void multiply_whole(const struct whole_tile *t, const int m, vfloat result[][2]) {
    vint sum[WHOLE_ROWS][2];
#pragma GCC unroll 4
    for (int i = 0; i < m; i++) sum[i][0] = sum[i][1] = (vint){0};
    const int8_t *panel = t->panel;
    for (int64_t k = 0; k < t->room; k += 4, panel += 4 * COLUMNS) {
        const vint left = load_ints(panel), right = load_ints(panel + BYTES);
#pragma GCC unroll 4
        for (int i = 0; i < m; i++) {
            int32_t four;
            memcpy(&four, t->from + i * t->room + k, 4);
            const vint inputs = four - (vint){0};
            sum[i][0] = four_products(sum[i][0], inputs, left);
            sum[i][1] = four_products(sum[i][1], inputs, right);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < m; i++)
        for (int j = 0; j < 2; j++) {
            const vint exact = sum[i][j] - OFFSET * load_ints(t->sums + j * LANES);
            vfloat y = __builtin_convertvector(exact, vfloat);
            y = y * (t->row_scales[i] * load(t->scales + j * LANES)) + load(t->bias + j * LANES);
            if (t->add) y += load(t->add + i * t->stride + j * LANES);
            result[i][j] = y;
        }
}
