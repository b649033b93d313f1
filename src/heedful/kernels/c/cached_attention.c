/* Attention with one query for each row, for rows first_row to last_row. See cached_attention.h. */
#include "cached_attention.h"
#include <stdlib.h>

/* query [N, H, D], with `query_stride` between rows; out [N, H, E].
 * Returns 0, or 1 if memory cannot be allocated. */
int heedful_cached_attention(const float *query, int64_t query_stride, float *out, const struct steps *s,
                             const struct heads *a, int64_t first_row, int64_t last_row) {
    float *scores = malloc((size_t)(a->heads * padded(s->positions)) * sizeof(float));
    if (!scores) return 1;
    for (int64_t n = first_row; n < last_row; n++)
        attend_to_steps(s, a, n, query + n * query_stride, out + n * a->heads * a->value_width, scores);
    free(scores);
    return 0;
}
