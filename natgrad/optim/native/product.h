/* Products of float32 matrices; product.c says how they are formed. */
#ifndef NATGRAD_PRODUCT_H
#define NATGRAD_PRODUCT_H

#include <stdint.h>

/* Element (i, j) is at[i * row + j * column]. */
typedef struct {
    const float *at;
    int64_t row, column;
} Matrix;

/* Where alpha * product + added goes, row by row. Nothing is added if `added` is NULL.

   last: if not NULL, the last column goes there instead: out and added have one column fewer, and
         if anything is added, what `last` held is added to that one.
   is_lower: only what is on or below the diagonal is needed; the rest becomes anything, or stays. */
typedef struct {
    float alpha;
    const float *added;
    int64_t added_row;
    float *out;
    int64_t out_row;
    float *last;
    int is_lower;
} Target;

/* Each element is summed in one order, so the bits do not depend on the number of threads. */
void product(int64_t rows, int64_t columns, int64_t depth, Matrix left, Matrix right, Target target,
             int threads);

/* Write m (count, depth) as `depth` groups of `width` elements, zeros behind the first `count`.
   Up to as many elements as a vector has may be overwritten behind the last group. */
void pack(Matrix m, int64_t count, int64_t depth, int64_t width, float *out);

Matrix part_of(Matrix m, int64_t row, int64_t column);

#endif
