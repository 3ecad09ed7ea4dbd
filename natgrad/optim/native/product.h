/* Products of float32 matrices; product.c says how they are formed. */
#ifndef NATGRAD_PRODUCT_H
#define NATGRAD_PRODUCT_H

#include "matrix.h"

typedef enum { ALL = 0, LOWER, MIRRORED } Part;

/* Where alpha * product + added goes, row by row. Nothing is added if `added` is NULL.

   last: if not NULL, the last column goes there instead: out and added have one column fewer, and
         if anything is added, what `last` held is added to that one.
   part: LOWER: only what is on or below the diagonal is needed; the rest becomes anything.
         MIRRORED: what is above is copied from below, as a symmetric product has it. */
typedef struct {
    float alpha;
    const float *added;
    int64_t added_row;
    float *out;
    int64_t out_row;
    float *last;
    Part part;
} Target;

/* Each element is summed in one order, so the bits do not depend on the number of threads. */
void product(int64_t rows, int64_t columns, int64_t depth, Matrix left, Matrix right, Target target,
             int threads);

#define MAX_TILE 32 /* so far beyond the diagonal elements known to be zero may be multiplied */

#endif
