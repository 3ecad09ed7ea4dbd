/* Matrices of float32, in any layout. */
#ifndef NATGRAD_MATRIX_H
#define NATGRAD_MATRIX_H

#include <stdint.h>

/* Where elements are known to be zero, and need not be multiplied; they have to hold zeros. */
typedef enum { NOWHERE = 0, ABOVE_DIAGONAL, BELOW_DIAGONAL } Zeros;

/* Element (i, j) is at[i * row + j * column]. */
typedef struct {
    const float *at;
    int64_t row, column;
    Zeros zeros;
} Matrix;

/* The part of m that begins in that row and column; it is not known where it is zero. */
static inline Matrix part_of(Matrix m, int64_t row, int64_t column) {
    return (Matrix){m.at + row * m.row + column * m.column, m.row, m.column, NOWHERE};
}

static inline Matrix transposed(Matrix m) {
    static const Zeros zeros[] = {NOWHERE, BELOW_DIAGONAL, ABOVE_DIAGONAL};
    return (Matrix){m.at, m.column, m.row, zeros[m.zeros]};
}

#endif
