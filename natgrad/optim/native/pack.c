#include "pack.h"

#include "tile.h"

#include <string.h>

#define UNROLL _Pragma("GCC unroll 16")

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

/* LANES x LANES elements. */
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

/* With the number as a constant, these are a few instructions. */
INLINE void copy_groups(Matrix m, int64_t depth, const int width, float *out) {
    for (int64_t k = 0; k < depth; k++) memcpy(out + k * width, m.at + k * m.column, 4 * width);
}

void pack(Matrix m, int64_t count, int64_t depth, int64_t width, float *out) {
    if (m.row == 1 && count == COLUMNS) { /* as wide are groups, then */
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

void pack_left(Matrix m, int64_t rows, int64_t depth, int64_t stride, float *out) {
    if (m.row == 1 && rows == TILES_AT_ONCE * ROWS) {
        for (int64_t k = 0; k < depth; k++)
            for (int64_t row = 0; row < TILES_AT_ONCE * ROWS; row += ROWS)
                memcpy(out + row * stride + k * ROWS, m.at + row + k * m.column, 4 * ROWS);
        return;
    }
    for (int64_t row = 0; row < rows; row += ROWS) {
        int64_t height = least(rows - row, ROWS);
        Matrix part = part_of(m, row, 0);
        if (m.row == 1 && height == ROWS)
            copy_groups(part, depth, ROWS, out + row * stride);
        else
            pack(part, height, depth, rounded_up(height, STEP), out + row * stride);
    }
}
