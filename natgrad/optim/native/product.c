/* Products of float32 matrices, for the processor that this file is compiled for.

   out = alpha * left right + added,  left (rows, depth), right (depth, columns)

   Both matrices may lie in memory by rows, by columns, or with gaps. The result is made of tiles of
   ROWS x COLUMNS sums that stay in registers. For each, ROWS elements of a column of `left` are
   multiplied by COLUMNS elements of a row of `right`, for one after the other along the depth. So
   that these are next to each other, parts of both matrices are packed first: MAX_ROWS rows of
   `left`, which stay in the second-level cache while all of `right` goes by, and of `right` COLUMNS
   columns at a time, which stay in the first-level cache while those rows go by. */

#include "product.h"

#include <string.h>

/* Lanes of a vector register; and tiles whose sums, with two vectors of `right`, fit all of them. */
#if defined(__AVX512F__)
#define LANES 16
#define ROWS 12
#define REGISTER "v"
#elif defined(__AVX__)
#define LANES 8
#define ROWS 6
#define REGISTER "x"
#elif defined(__aarch64__)
#define LANES 4
#define ROWS 12
#define REGISTER "w"
#elif defined(__SSE2__)
#define LANES 4
#define ROWS 6
#define REGISTER "x"
#else
#error "natgrad has kernels for x86-64 and aarch64"
#endif
#define COLUMNS (2 * LANES)
#define STEP (ROWS / 3) /* lower tiles, for the last rows, have one or two thirds of the rows */
#define TILES_AT_ONCE 4
#define MAX_ROWS 480
#define MAX_DEPTH 384
#define CACHE_LINE 64

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

typedef float Vector __attribute__((vector_size(4 * LANES)));
typedef float Unaligned __attribute__((vector_size(4 * LANES), aligned(4)));

INLINE Vector load(const float *at) { return *(const Unaligned *)at; }
INLINE void store(float *at, Vector v) { *(Unaligned *)at = v; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t rounded_up(int64_t number, int64_t unit) { return (number + unit - 1) / unit * unit; }

/* ---- transposing LANES x LANES elements ------------------------------------------------------ */

#define EACH_OF_4(F, d) F(0, d), F(1, d), F(2, d), F(3, d)
#define EACH_OF_8(F, d) EACH_OF_4(F, d), F(4, d), F(5, d), F(6, d), F(7, d)
#define EACH_OF_16(F, d)                                                                           \
    EACH_OF_8(F, d), F(8, d), F(9, d), F(10, d), F(11, d), F(12, d), F(13, d), F(14, d), F(15, d)
#if LANES == 16
#define EACH_LANE EACH_OF_16
#elif LANES == 8
#define EACH_LANE EACH_OF_8
#else
#define EACH_LANE EACH_OF_4
#endif

#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int Lanes __attribute__((vector_size(4 * LANES)));
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (Lanes){__VA_ARGS__})
#endif

/* Of two rows at distance d: the lanes (2 x 2 blocks of size d are swapped across the diagonal). */
#define UPPER(lane, d) ((lane) & (d) ? LANES + (lane) - (d) : (lane))
#define LOWER(lane, d) ((lane) & (d) ? LANES + (lane) : (lane) + (d))
#define SWAP_BLOCKS(d)                                                                             \
    UNROLL for (int i = 0; i < LANES; i++) if (!(i & (d))) {                                       \
        Vector a = v[i], b = v[i + (d)];                                                           \
        v[i] = SHUFFLE(a, b, EACH_LANE(UPPER, d));                                                 \
        v[i + (d)] = SHUFFLE(a, b, EACH_LANE(LOWER, d));                                           \
    }

INLINE void transpose(Vector v[LANES]) {
    SWAP_BLOCKS(1)
    SWAP_BLOCKS(2)
#if LANES >= 8
    SWAP_BLOCKS(4)
#endif
#if LANES >= 16
    SWAP_BLOCKS(8)
#endif
}

/* ---- packing --------------------------------------------------------------------------------- */

Matrix part_of(Matrix m, int64_t row, int64_t column) {
    return (Matrix){m.at + row * m.row + column * m.column, m.row, m.column};
}

/* With the number as a constant, these are a few instructions. */
INLINE void copy_groups(Matrix m, int64_t depth, const int width, float *out) {
    for (int64_t k = 0; k < depth; k++) memcpy(out + k * width, m.at + k * m.column, 4 * width);
}

void pack(Matrix m, int64_t count, int64_t depth, int64_t width, float *out) {
    if (m.row == 1 && count == COLUMNS) {
        copy_groups(m, depth, COLUMNS, out);
        return;
    }
    for (int64_t first = 0; first < width; first += LANES) {
        int64_t used = least(count - first, LANES), written = least(width - first, LANES), k = 0;
        if (m.column == 1) {
            for (; k + LANES <= depth; k += LANES) {
                Vector v[LANES];
                UNROLL for (int i = 0; i < LANES; i++)
                    v[i] = i < used ? load(m.at + (first + i) * m.row + k) : (Vector){0};
                transpose(v);
                /* Where a group is narrower than a vector, the next store puts right what this one
                   writes too far; where it is wider, none does. */
                UNROLL for (int i = 0; i < LANES; i++) store(out + (k + i) * width + first, v[i]);
            }
        }
        for (; k < depth; k++)
            for (int64_t i = 0; i < written; i++)
                out[k * width + first + i] =
                    i < used ? m.at[(first + i) * m.row + k * m.column] : 0.0f;
    }
}

/* Write m (rows, depth) as the left sides of tiles, one behind the other. */
static void pack_left(Matrix m, int64_t rows, int64_t depth, float *out) {
    int64_t row = 0;
    if (m.row == 1) /* a few tiles at once, so that what a cache line holds is used while there */
        for (; row + TILES_AT_ONCE * ROWS <= rows; row += TILES_AT_ONCE * ROWS)
            for (int64_t k = 0; k < depth; k++)
                for (int64_t i = 0; i < TILES_AT_ONCE; i++)
                    memcpy(out + (row + i * ROWS) * depth + k * ROWS,
                           m.at + row + i * ROWS + k * m.column, 4 * ROWS);
    for (; row < rows; row += ROWS) {
        int64_t height = least(rows - row, ROWS);
        Matrix part = part_of(m, row, 0);
        if (m.row == 1 && height == ROWS)
            copy_groups(part, depth, ROWS, out + row * depth);
        else
            pack(part, height, depth, rounded_up(height, STEP), out + row * depth);
    }
}

/* ---- one tile -------------------------------------------------------------------------------- */

#if ROWS == 12
#define EACH_ROW(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11)
#else
#define EACH_ROW(F) F(0) F(1) F(2) F(3) F(4) F(5)
#endif

/* A product, rounded: the compiler cannot make it one operation with a sum that comes next, which
   it does in some places and in others not. So bits do not depend on where tiles begin. */
INLINE Vector scaled(float alpha, Vector v) {
    v *= alpha;
    __asm__("" : "+" REGISTER(v));
    return v;
}

/* Write one row of a tile: `columns` elements, of which the last goes to `last` if that is not
   NULL. */
INLINE void put_row(Vector first, Vector second, const int vectors, int64_t columns, int64_t row,
                    const Target *t) {
    float *out = t->out + row * t->out_row, *last = t->last ? t->last + row : 0;
    const float *added = t->added ? t->added + row * t->added_row : 0;
    int is_whole = columns == vectors * LANES && !last;
    int64_t written = columns - (last != 0);
    float part[COLUMNS] = {0};
    if (added && !is_whole) {
        for (int64_t j = 0; j < written; j++) part[j] = added[j];
        if (last) part[written] = *last;
        added = part;
    }
    first = scaled(t->alpha, first);
    if (vectors == 2) second = scaled(t->alpha, second);
    if (added) first += load(added);
    if (added && vectors == 2) second += load(added + LANES);
    float *put = is_whole ? out : part;
    store(put, first);
    if (vectors == 2) store(put + LANES, second);
    if (!is_whole) {
        for (int64_t j = 0; j < written; j++) out[j] = part[j];
        if (last) *last = part[written];
    }
}

/* Sums have names of their own, as compilers keep elements of an array in memory. */
#define ZERO(i) Vector first##i = {0}, second##i = {0};
#define ADD(i)                                                                                     \
    if (height > i) {                                                                              \
        first##i += left[i] * first;                                                               \
        if (vectors == 2) second##i += left[i] * second;                                           \
    }
#define PUT(i)                                                                                     \
    if (height > i && i < rows) put_row(first##i, second##i, vectors, columns, i, t);

INLINE void tile(const int height, const int vectors, int64_t rows, int64_t columns, int64_t depth,
                 const float *left, const float *right, const Target *t) {
    EACH_ROW(ZERO)
    for (int64_t i = 0; i < rows; i++) { /* a tile's rows are on as many pages: call for them now */
        __builtin_prefetch(t->out + i * t->out_row, 1);
        if (vectors == 2) __builtin_prefetch(t->out + i * t->out_row + LANES, 1);
    }
    for (int64_t k = 0; k < depth; k++, left += height, right += vectors * LANES) {
        Vector first = *(const Vector *)right;
        Vector second = vectors == 2 ? *(const Vector *)(right + LANES) : first;
        EACH_ROW(ADD)
    }
    EACH_ROW(PUT)
}

typedef void Tile(int64_t rows, int64_t columns, int64_t depth, const float *left,
                  const float *right, const Target *t);
#define TILE(name, height, vectors)                                                                \
    static void name(int64_t rows, int64_t columns, int64_t depth, const float *left,              \
                     const float *right, const Target *t) {                                        \
        tile(height, vectors, rows, columns, depth, left, right, t);                               \
    }
TILE(narrow_low, STEP, 1)
TILE(narrow_middle, 2 * STEP, 1)
TILE(narrow, ROWS, 1)
TILE(wide_low, STEP, 2)
TILE(wide_middle, 2 * STEP, 2)
TILE(wide, ROWS, 2)
static Tile *const tiles[2][3] = {{narrow_low, narrow_middle, narrow},
                                  {wide_low, wide_middle, wide}};

/* ---- all tiles ------------------------------------------------------------------------------- */

static _Thread_local float packed_left[MAX_ROWS * MAX_DEPTH + LANES]
    __attribute__((aligned(CACHE_LINE)));
static _Thread_local float packed_right[COLUMNS * MAX_DEPTH + LANES]
    __attribute__((aligned(CACHE_LINE)));

static Target target_at(Target t, int64_t row, int64_t column) {
    if (t.added) t.added += row * t.added_row + column;
    t.out += row * t.out_row + column;
    if (t.last) t.last += row;
    return t;
}

/* One thread's rows, which begin in row `first_row` of the whole. */
static void product_of_rows(int64_t first_row, int64_t rows, int64_t columns, int64_t depth,
                            Matrix left, Matrix right, Target target) {
    int64_t num_blocks = (depth + MAX_DEPTH - 1) / MAX_DEPTH;
    int64_t block = depth > 0 ? (depth + num_blocks - 1) / num_blocks : 1;
    for (int64_t k = 0; k == 0 || k < depth; k += block) { /* once if depth is 0: a sum of zeros */
        int64_t summed = least(depth - k, block);
        Target sum = target;
        if (k > 0) { /* the next part of the sum is added to what is there already */
            sum.added = target.out;
            sum.added_row = target.out_row;
        }
        for (int64_t row = 0; row < rows; row += MAX_ROWS) {
            int64_t taken = least(rows - row, MAX_ROWS);
            pack_left(part_of(left, row, k), taken, summed, packed_left);
            int64_t end = target.is_lower ? least(columns, first_row + row + taken) : columns;
            for (int64_t column = 0; column < end; column += COLUMNS) {
                int64_t width = least(columns - column, COLUMNS);
                Matrix part = part_of(right, k, column);
                pack((Matrix){part.at, part.column, part.row}, width, summed,
                     rounded_up(width, LANES), packed_right);
                for (int64_t i = 0; i < taken; i += ROWS) {
                    int64_t height = least(taken - i, ROWS);
                    if (target.is_lower && first_row + row + i + height <= column) continue;
                    Target t = target_at(sum, row + i, column);
                    if (column + width < columns) t.last = 0;
                    tiles[width > LANES][(height + STEP - 1) / STEP - 1](
                        height, width, summed, packed_left + i * summed, packed_right, &t);
                }
            }
        }
    }
}

/* The row at which a part of the work begins: parts are equal, in whole tiles. */
static int64_t beginning(int64_t number, int64_t unit, int part, int parts, int is_lower) {
    int64_t units = (number + unit - 1) / unit, begin = units * part / parts;
    if (is_lower) /* of a triangle: the first of them with part / parts of its area above it */
        for (begin = 0; begin * begin * parts < units * units * part;) begin++;
    return least(number, begin * unit);
}

void product(int64_t rows, int64_t columns, int64_t depth, Matrix left, Matrix right, Target target,
             int threads) {
    int by_rows = rows > columns || target.is_lower;
    int64_t number = by_rows ? rows : columns, unit = by_rows ? ROWS : LANES;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int part = 0; part < threads; part++) {
        int64_t begin = beginning(number, unit, part, threads, target.is_lower);
        int64_t end = beginning(number, unit, part + 1, threads, target.is_lower);
        if (begin == end) continue;
        if (by_rows) {
            product_of_rows(begin, end - begin, columns, depth, part_of(left, begin, 0), right,
                            target_at(target, begin, 0));
        } else {
            Target t = target_at(target, 0, begin);
            if (end < columns) t.last = 0;
            product_of_rows(0, rows, end - begin, depth, left, part_of(right, 0, begin), t);
        }
    }
}

/* What Python calls. */
void natgrad_product(int64_t rows, int64_t columns, int64_t depth, float alpha, const float *left,
                     int64_t left_row, int64_t left_column, const float *right, int64_t right_row,
                     int64_t right_column, const float *added, int64_t added_row, float *out,
                     int64_t out_row, float *last, int is_lower, int threads) {
    Target target = {alpha, added, added_row, out, out_row, last, is_lower};
    product(rows, columns, depth, (Matrix){left, left_row, left_column},
            (Matrix){right, right_row, right_column}, target, threads);
}
