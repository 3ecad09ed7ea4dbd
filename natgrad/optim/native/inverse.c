/* The inverse of a positive definite matrix, nearly all of it by products.

   With A = L L^T the inverse is V^T V, V = L^-1. Both come by halves: of

       A = [B  C^T]      P = V of B,  T = C P^T,  Q = V of D - T T^T,      V = [  P    0]
           [C  D  ]                                                            [-Q T P  Q]

   where T is the lower left part of L. In products with a triangle, what is known to be zero is
   left out by blocks. */

#include "product.h"

#include <math.h>
#include <string.h>

#define LEAF 64   /* rows of a matrix that is decomposed row by row */
#define BLOCK 128 /* rows of the blocks that zeros of a triangle are left out by */
#define GROUP 16  /* rows that are copied to their transpose at once */
/* Where there are fewer multiplications, one thread is not slower than several. */
#define MIN_SHARED_MULTIPLICATIONS (1 << 20)

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static Matrix rows_of(const float *at, int64_t row) { return (Matrix){at, row, 1}; }
static Matrix columns_of(const float *at, int64_t row) { return (Matrix){at, 1, row}; }

/* out = alpha * left right, or, with `keep`, out + alpha * left right */
static void multiply(int64_t rows, int64_t columns, int64_t depth, float alpha, Matrix left,
                     Matrix right, int keep, float *out, int64_t out_row, int is_lower,
                     int threads) {
    Target target = {alpha, keep ? out : 0, out_row, out, out_row, 0, is_lower};
    int is_small = rows * columns * depth < MIN_SHARED_MULTIPLICATIONS;
    product(rows, columns, depth, left, right, target, is_small ? 1 : threads);
}

/* V of A (size, size), whose lower triangle is given; 0, or the number of the row in which A turns
   out not to be positive definite. Rows are taken as a whole, zeros and all: their length is known
   then, and they stay in registers. */
static int64_t leaf(int64_t size, const float *A, int64_t a_row, float *V, int64_t v_row) {
    float upper[LEAF][LEAF] = {{0}}, inverse[LEAF][LEAF] = {{0}}; /* L^T, and V */
    for (int64_t i = 0; i < size; i++) {
        float row[LEAF] = {0};
        for (int64_t j = i; j < size; j++) row[j] = A[j * a_row + i];
        for (int64_t k = 0; k < i; k++) {
            float factor = upper[k][i];
            for (int64_t j = 0; j < LEAF; j++) row[j] -= factor * upper[k][j];
        }
        if (!(row[i] > 0.0f)) return i + 1;
        float scale = 1.0f / sqrtf(row[i]);
        for (int64_t j = i; j < LEAF; j++) upper[i][j] = scale * row[j];
        float new[LEAF] = {0};
        new[i] = 1.0f;
        for (int64_t k = 0; k < i; k++) {
            float factor = upper[k][i];
            for (int64_t j = 0; j < LEAF; j++) new[j] -= factor * inverse[k][j];
        }
        for (int64_t j = 0; j < LEAF; j++) inverse[i][j] = scale * new[j];
        memcpy(V + i * v_row, inverse[i], 4 * size);
    }
    return 0;
}

/* V of A as in `leaf`, for any size. A is overwritten. V has to hold zeros above its diagonal;
   `spare` is memory for as many elements as A has. */
static int64_t inverse_factor(int64_t size, float *A, int64_t a_row, float *V, int64_t v_row,
                              float *spare, int threads) {
    if (size <= LEAF) return leaf(size, A, a_row, V, v_row);
    int64_t half = (size / 2 + LEAF - 1) / LEAF * LEAF, rest = size - half;
    float *C = A + half * a_row, *D = C + half, *P = V, *corner = V + half * v_row;
    float *Q = corner + half, *T = spare, *below = spare + rest * half;

    int64_t failed = inverse_factor(half, A, a_row, P, v_row, spare, threads);
    if (failed) return failed;
    for (int64_t j = 0; j < half; j += BLOCK) { /* T = C P^T */
        int64_t end = least(half, j + BLOCK);
        multiply(rest, end - j, end, 1.0f, rows_of(C, a_row), columns_of(P + j * v_row, v_row),
                 0, T + j, half, 0, threads);
    }
    multiply(rest, rest, half, -1.0f, rows_of(T, half), columns_of(T, half), 1, D, a_row, 1,
             threads); /* D - T T^T */
    failed = inverse_factor(rest, D, a_row, Q, v_row, below, threads);
    if (failed) return half + failed;
    for (int64_t i = 0; i < rest; i += BLOCK) { /* Q T, in the place of C */
        int64_t end = least(rest, i + BLOCK);
        multiply(end - i, half, end, 1.0f, rows_of(Q + i * v_row, v_row), rows_of(T, half), 0,
                 C + i * a_row, a_row, 0, threads);
    }
    for (int64_t j = 0; j < half; j += BLOCK) { /* -Q T P */
        int64_t end = least(half, j + BLOCK);
        multiply(rest, end - j, half - j, -1.0f, rows_of(C + j, a_row),
                 rows_of(P + j * v_row + j, v_row), 0, corner + j, v_row, 0, threads);
    }
    return 0;
}

/* Copy what is below the diagonal of M to above it. */
static void mirror(int64_t size, float *M, int64_t m_row, int threads) {
#pragma omp parallel for schedule(static, 1) num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < size; i += GROUP) {
        float group[GROUP * BLOCK + GROUP];
        int64_t height = least(size - i, GROUP);
        for (int64_t j = 0; j < i; j += BLOCK) {
            int64_t width = least(i - j, BLOCK);
            pack(rows_of(M + i * m_row + j, m_row), height, width, GROUP, group);
            for (int64_t k = 0; k < width; k++)
                memcpy(M + (j + k) * m_row + i, group + k * GROUP, 4 * height);
        }
        for (int64_t k = i; k < i + height; k++)
            for (int64_t j = i; j < k; j++) M[j * m_row + k] = M[k * m_row + j];
    }
}

/* out = (identity * I + weight * A)^-1 for A (size, size), whose lower triangle is given; 0, or the
   number of the row in which that turns out not to be positive definite. `memory` is for three
   times as many elements as A has. */
int64_t natgrad_inverse(int64_t size, const float *A, int64_t a_row, float identity, float weight,
                        float *out, int64_t out_row, float *memory, int threads) {
    float *sum = memory, *V = memory + size * size, *spare = V + size * size;
    for (int64_t i = 0; i < size; i++) {
        for (int64_t j = 0; j <= i; j++) sum[i * size + j] = weight * A[i * a_row + j];
        sum[i * size + i] += identity;
    }
    memset(V, 0, 4 * size * size);
    int64_t failed = inverse_factor(size, sum, size, V, size, spare, threads);
    if (failed) return failed;
    for (int64_t i = 0; i < size; i += BLOCK) { /* V^T V, of which rows above these are zero */
        int64_t end = least(size, i + BLOCK);
        multiply(end - i, end, size - i, 1.0f, columns_of(V + i * size + i, size),
                 rows_of(V + i * size, size), 0, out + i * out_row, out_row, 0, threads);
    }
    mirror(size, out, out_row, threads);
    return 0;
}
