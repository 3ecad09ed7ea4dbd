/* Parts of matrices, copied to where the tiles of a product find them one behind the other. */
#ifndef NATGRAD_PACK_H
#define NATGRAD_PACK_H

#include "matrix.h"

/* Write m (count, depth) as `depth` groups of `width` elements, zeros behind the first `count`. Up
   to as many elements as a vector has may be overwritten behind the last group. */
void pack(Matrix m, int64_t count, int64_t depth, int64_t width, float *out);

#define TILES_AT_ONCE 4 /* so many are packed fastest, as all of a cache line is used while there */

/* Write m (rows, depth) as the left sides of tiles; `stride` elements apart for each row. */
void pack_left(Matrix m, int64_t rows, int64_t depth, int64_t stride, float *out);

#endif
