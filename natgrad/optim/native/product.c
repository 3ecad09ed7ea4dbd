/* Products of float32 matrices, for the processor that this file is compiled for.

   out = alpha * left right + added,  left (rows, depth), right (depth, columns)

   Both matrices may lie in memory by rows, by columns, or with gaps. The result is made of tiles of
   ROWS x COLUMNS sums that stay in registers. For each, ROWS elements of a column of `left` are
   multiplied by COLUMNS elements of a row of `right`, for one after the other along the depth. So
   that these are next to each other, parts of both matrices are packed first: of `left`, MAX_PACKED
   elements, which stay in the second-level cache while all of `right` goes by; of `right`, COLUMNS
   columns at a time, which stay in the first-level cache while those rows go by. Where a triangle
   is known to be zero, each tile's sum leaves that out. */

#include "product.h"

#include "pack.h"
#include "tile.h"

#include <string.h>

#define MAX_DEPTH 384
#define MAX_PACKED (480 * MAX_DEPTH)
#define CACHE_LINE 64
#define PACKING 9 /* to pack an element takes as long as so many multiplications */

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
    for (int64_t i = 0; i < rows; i++) { /* rows are far apart in memory: call for them now */
        float *out = t->out + i * t->out_row;
        for (int j = 0; j < vectors; j++) __builtin_prefetch(out + j * LANES, 1);
        __builtin_prefetch(out + vectors * LANES - 1, 1); /* on one more line, mostly */
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

#define ALIGNED __attribute__((aligned(CACHE_LINE)))
static _Thread_local float packed_left[MAX_PACKED + LANES] ALIGNED;
static _Thread_local float packed_right[COLUMNS * MAX_DEPTH + LANES] ALIGNED;

static Target target_at(Target t, int64_t row, int64_t column) {
    if (t.added) t.added += row * t.added_row + column;
    t.out += row * t.out_row + column;
    if (t.last) t.last += row;
    return t;
}

typedef struct {
    int64_t begin, end;
} Range;

/* Those summands of a tile that are not known to be zero. */
static Range summands(Range k, Range rows, Range columns, Matrix left, Matrix right) {
    if (left.zeros == ABOVE_DIAGONAL) k.end = least(k.end, rows.end);
    if (right.zeros == BELOW_DIAGONAL) k.end = least(k.end, columns.end);
    if (left.zeros == BELOW_DIAGONAL) k.begin = greatest(k.begin, rows.begin);
    if (right.zeros == ABOVE_DIAGONAL) k.begin = greatest(k.begin, columns.begin);
    return (Range){k.begin, greatest(k.begin, k.end)};
}

/* Pack rows of `left`, for summands k, into packed_left: of each tile those that are needed. */
static void pack_rows(Range rows, Range k, Matrix left) {
    int64_t depth = k.end - k.begin;
    for (int64_t i = rows.begin; i < rows.end; i += TILES_AT_ONCE * ROWS) {
        Range down = {i, least(rows.end, i + TILES_AT_ONCE * ROWS)}, used = k;
        int64_t height = down.end - down.begin;
        if (height % ROWS == 0) used = summands(k, down, k, left, part_of(left, 0, 0));
        pack_left(part_of(left, i, used.begin), height, used.end - used.begin, depth,
                  packed_left + (i - rows.begin) * depth + (used.begin - k.begin) * ROWS);
    }
}

/* Sum the tiles of these rows, which have been packed for summands k, and of columns that fit one
   tile. */
static void sum_tiles(Range rows, Range columns, Range k, Matrix left, Matrix right,
                      const Target *target) {
    int64_t width = columns.end - columns.begin, packed = rounded_up(width, LANES);
    Range packed_k = summands(k, rows, columns, left, right);
    pack(transposed(part_of(right, packed_k.begin, columns.begin)), width,
         packed_k.end - packed_k.begin, packed, packed_right);
    for (int64_t i = rows.begin; i < rows.end; i += ROWS) {
        Range down = {i, least(rows.end, i + ROWS)};
        Range used = summands(packed_k, down, columns, left, right);
        int64_t height = down.end - down.begin, size = rounded_up(height, STEP);
        int is_above = target->part && down.end <= columns.begin;
        if (is_above || (used.begin == used.end && k.begin > 0)) continue;
        Target t = target_at(*target, i, columns.begin);
        tiles[width > LANES][size / STEP - 1](
            height, width, used.end - used.begin,
            packed_left + (i - rows.begin) * (k.end - k.begin) + (used.begin - k.begin) * size,
            packed_right + (used.begin - packed_k.begin) * packed, &t);
    }
}

/* One thread's rows and columns. */
static void part_of_product(Range rows, Range columns, int64_t depth, Matrix left, Matrix right,
                            Target target) {
    int64_t num_blocks = (depth + MAX_DEPTH - 1) / MAX_DEPTH;
    int64_t block = depth > 0 ? (depth + num_blocks - 1) / num_blocks : 1;
    for (int64_t begin = 0; begin == 0 || begin < depth; begin += block) { /* once if depth is 0 */
        Range k = {begin, least(depth, begin + block)};
        Target sum = target;
        if (begin > 0) { /* the next part of the sum is added to what is there already */
            sum.added = target.out;
            sum.added_row = target.out_row;
        }
        int64_t most = MAX_PACKED / greatest(1, k.end - k.begin) / ROWS * ROWS;
        for (int64_t row = rows.begin; row < rows.end; row += most) {
            Range down = {row, least(rows.end, row + most)};
            int64_t end = target.part ? least(columns.end, down.end) : columns.end;
            pack_rows(down, k, left);
            for (int64_t column = columns.begin; column < end; column += COLUMNS) {
                Range across = {column, least(columns.end, column + COLUMNS)};
                Target t = sum;
                if (across.end < columns.end) t.last = 0;
                sum_tiles(down, across, k, left, right, &t);
            }
        }
    }
}

/* Rows of a lower triangle are the more work the lower they are; and the less, where only what is
   right of the diagonal is multiplied. */
static int64_t work(int64_t i, int64_t rows, int is_lower, int gets_shorter) {
    int64_t columns = is_lower ? (i * ROWS + ROWS + COLUMNS - 1) / COLUMNS : 1;
    return columns * (gets_shorter ? rows - i : 1);
}

/* The rows, or else the columns, of one of several parts, in whole tiles, about equal in work. */
static Range share(int64_t number, int64_t unit, int part, int parts, int is_lower,
                   int gets_shorter) {
    int64_t units = (number + unit - 1) / unit, all = 0, done = 0;
    for (int64_t i = 0; i < units; i++) all += work(i, units, is_lower, gets_shorter);
    Range range = {0, 0};
    for (int64_t i = 0; i < units; i++) {
        if (done * parts < all * part) range.begin = i + 1;
        if (done * parts < all * (part + 1)) range.end = i + 1;
        done += work(i, units, is_lower, gets_shorter);
    }
    return (Range){least(number, range.begin * unit), least(number, range.end * unit)};
}

/* Copy what is below the diagonal in these rows to above it. */
static void mirror(Range rows, float *out, int64_t out_row) {
    float group[LANES * (MAX_DEPTH + 1)];
    for (int64_t i = rows.begin; i < rows.end; i += LANES) {
        int64_t height = least(rows.end - i, LANES);
        for (int64_t j = 0; j < i; j += MAX_DEPTH) {
            int64_t width = least(i - j, MAX_DEPTH);
            pack((Matrix){out + i * out_row + j, out_row, 1, NOWHERE}, height, width, LANES, group);
            for (int64_t k = 0; k < width; k++)
                memcpy(out + (j + k) * out_row + i, group + k * LANES, 4 * height);
        }
        for (int64_t k = i; k < i + height; k++)
            for (int64_t j = i; j < k; j++) out[j * out_row + k] = out[k * out_row + j];
    }
}

/* What a thread has to do for each summand, in multiplications. */
static int64_t load_of(int64_t rows, int64_t columns) {
    return rows * columns + PACKING * (rows + columns);
}

/* Whether threads should divide rows, and not columns, so that the largest part is the least. */
static int is_better_by_rows(int64_t rows, int64_t columns, int threads) {
    int64_t wide = rounded_up(columns, LANES);
    return load_of(rounded_up((rows + threads - 1) / threads, STEP), wide) <=
           load_of(rows, rounded_up((columns + threads - 1) / threads, LANES));
}

void product(int64_t rows, int64_t columns, int64_t depth, Matrix left, Matrix right, Target target,
             int threads) {
    /* What has triangles on the left is divided by columns, and on the right by rows: evenly. */
    int by_rows = target.part != ALL || right.zeros ||
                  (!left.zeros && is_better_by_rows(rows, columns, threads));
    int is_lower = target.part != ALL, gets_shorter = left.zeros == BELOW_DIAGONAL;
    int64_t unit = is_lower || gets_shorter ? ROWS : STEP; /* `work` counts whole tiles */
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
#pragma omp for schedule(static) nowait
        for (int part = 0; part < threads; part++) {
            Range down = {0, rows}, across = {0, columns};
            if (by_rows)
                down = share(rows, unit, part, threads, is_lower, gets_shorter);
            else
                across = share(columns, LANES, part, threads, 0, 0);
            Target t = target;
            if (across.end < columns) t.last = 0;
            if (down.begin < down.end && across.begin < across.end)
                part_of_product(down, across, depth, left, right, t);
        }
        if (target.part == MIRRORED) {
#pragma omp barrier
#pragma omp for schedule(static) nowait
            for (int part = 0; part < threads; part++) /* the rows that it has in its cache */
                mirror(share(rows, unit, part, threads, is_lower, gets_shorter), target.out,
                       target.out_row);
        }
    }
}

/* What Python calls: one argument, as to convert each takes it longer than to pack all. */
typedef struct {
    int64_t rows, columns, depth;
    const float *left;
    int64_t left_row, left_column;
    const float *right;
    int64_t right_row, right_column;
    const float *added;
    int64_t added_row;
    float *out;
    int64_t out_row;
    float *last;
    float alpha;
    int32_t part, threads;
} Call;

void natgrad_product(const Call *c) {
    Target target = {c->alpha, c->added, c->added_row, c->out, c->out_row, c->last, c->part};
    product(c->rows, c->columns, c->depth, (Matrix){c->left, c->left_row, c->left_column, NOWHERE},
            (Matrix){c->right, c->right_row, c->right_column, NOWHERE}, target, c->threads);
}
