/* The inverse of a positive definite matrix, nearly all of it by products.

   With A = L L^T the inverse is V^T V, V = L^-1. Both come by halves: of

       A = [B  C^T]      P = V of B,  T = C P^T,  Q = V of D - T T^T,      V = [  P    0]
           [C  D  ]                                                            [-Q T P  Q]

   where T is the lower left part of L. */

#include "product.h"

#include <math.h>
#include <string.h>

#define LEAF 64 /* rows of a matrix that is decomposed row by row */
#define LINE 16 /* elements of a cache line */
#define LINES (LEAF / LINE)
/* Where there are fewer multiplications, one thread is not slower than several. */
#define MIN_SHARED_MULTIPLICATIONS (1 << 22)

typedef float Line __attribute__((vector_size(4 * LINE)));
#define element(lines, i) (((float *)(lines))[i])
#define EACH_LINE(j) _Pragma("GCC unroll 4") for (int j = 0; j < LINES; j++)

static Matrix whole(const float *at, int64_t row) { return (Matrix){at, row, 1, NOWHERE}; }
static Matrix lower(const float *at, int64_t row) { return (Matrix){at, row, 1, ABOVE_DIAGONAL}; }

/* out = alpha * left right, or, with `keep`, out + alpha * left right */
static void multiply(int64_t rows, int64_t columns, int64_t depth, float alpha, Matrix left,
                     Matrix right, int keep, float *out, int64_t out_row, Part part,
                     int threads) {
    Target target = {alpha, keep ? out : 0, out_row, out, out_row, 0, part};
    int is_small = rows * columns * depth < MIN_SHARED_MULTIPLICATIONS;
    product(rows, columns, depth, left, right, target, is_small ? 1 : threads);
}

/* V of A (size, size), whose lower triangle is given, and zeros right of it, as many as a product
   may take for V's; 0, or the number of the row in which A turns out not to be positive definite.
   Rows are taken as a whole, zeros and all: their length is known then, and they stay in registers.
*/
static int64_t leaf(int64_t size, const float *A, float *V, int64_t row) {
    Line columns[LEAF][LINES] = {0}, upper[LEAF][LINES], inverse[LEAF][LINES]; /* A^T, L^T, and V */
    for (int64_t j = 0; j < size; j++) {
        for (int64_t i = 0; i <= j; i++) element(columns[i], j) = A[j * row + i];
        for (int64_t i = 0; i < size + MAX_TILE; i += LINE) /* another thread may have it */
            __builtin_prefetch(V + j * row + i, 1);
    }
    for (int64_t i = 0; i < size; i++) {
        Line rest[LINES], solved[LINES] = {0};
        memcpy(rest, columns[i], sizeof rest);
        element(solved, i) = 1.0f;
        for (int64_t k = 0; k < i; k++) {
            float factor = element(upper[k], i);
            EACH_LINE(j) rest[j] -= factor * upper[k][j];
            EACH_LINE(j) solved[j] -= factor * inverse[k][j];
        }
        float pivot = element(rest, i);
        if (!(pivot > 0.0f)) return i + 1;
        float scale = 1.0f / sqrtf(pivot);
        EACH_LINE(j) upper[i][j] = scale * rest[j];
        EACH_LINE(j) inverse[i][j] = scale * solved[j];
        memcpy(V + i * row, inverse[i], 4 * size);
        memset(V + i * row + size, 0, 4 * MAX_TILE);
    }
    return 0;
}

/* V of A as in `leaf`, for any size. A is overwritten. Rows of A, V and `spare`, which is as large,
   are `row` elements apart. */
static int64_t inverse_factor(int64_t size, float *A, float *V, float *spare, int64_t row,
                              int threads) {
    if (size <= LEAF) return leaf(size, A, V, row);
    int64_t half = (size / 2 + LEAF - 1) / LEAF * LEAF, rest = size - half;
    float *C = A + half * row, *D = C + half, *P = V, *corner = V + half * row;
    float *Q = corner + half, *T = spare, *below = spare + rest * row;

    int64_t failed = inverse_factor(half, A, P, spare, row, threads);
    if (failed) return failed;
    multiply(rest, half, half, 1.0f, whole(C, row), transposed(lower(P, row)), 0, T, row, ALL,
             threads); /* T = C P^T */
    multiply(rest, rest, half, -1.0f, whole(T, row), transposed(whole(T, row)), 1, D, row, LOWER,
             threads); /* D - T T^T */
    int is_shared = threads > 1 && rest * half * half >= MIN_SHARED_MULTIPLICATIONS;
    int each = is_shared ? 1 : threads;
#pragma omp parallel sections num_threads(2) if (is_shared)
    {
#pragma omp section
        failed = inverse_factor(rest, D, Q, below, row, each);
#pragma omp section
        multiply(rest, half, half, 1.0f, whole(T, row), lower(P, row), 0, C, row, ALL,
                 each); /* T P, in the place of C */
    }
    if (failed) return half + failed;
    multiply(rest, half, rest, -1.0f, lower(Q, row), whole(C, row), 0, corner, row, ALL,
             threads); /* -Q T P */
    return 0;
}

/* So many elements apart are rows in memory: an odd number of cache lines, as elements of a column
   else could only be in few places of the cache; and there is room for zeros behind each. */
static int64_t row_length(int64_t size) {
    return (((size + MAX_TILE + LINE - 1) / LINE) | 1) * LINE;
}

/* How many elements of memory an inverse takes. */
int64_t natgrad_inverse_memory(int64_t size) { return 3 * size * row_length(size); }

/* out = (I + weight * A)^-1 for A (size, size), whose lower triangle is given; 0, or the
   number of the row in which that turns out not to be positive definite. */
int64_t natgrad_inverse(int64_t size, const float *A, int64_t a_row, float weight, float *out,
                        int64_t out_row, float *memory, int threads) {
    int64_t row = row_length(size);
    float *sum = memory, *V = sum + size * row, *spare = V + size * row;
    for (int64_t i = 0; i < size; i++) {
        for (int64_t j = 0; j <= i; j++) sum[i * row + j] = weight * A[i * a_row + j];
        sum[i * row + i] += 1.0f;
    }
    int64_t failed = inverse_factor(size, sum, V, spare, row, threads);
    if (failed) return failed;
    multiply(size, size, size, 1.0f, transposed(lower(V, row)), lower(V, row), 0, out, out_row,
             MIRRORED, threads); /* V^T V */
    return 0;
}
