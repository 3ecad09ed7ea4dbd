/* Vectors of the processor, and tiles of products that fit its registers. */
#ifndef NATGRAD_TILE_H
#define NATGRAD_TILE_H

#include <stdint.h>

/* Lanes of a vector register, and tiles whose sums, with two vectors more, fit all registers. */
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
#else
#error "natgrad has kernels for x86-64 with AVX and for aarch64"
#endif
#define COLUMNS (2 * LANES)
#define STEP (ROWS / 3) /* lower tiles, for the last rows, have one or two thirds of the rows */
_Static_assert(ROWS <= LANES || STEP % LANES == 0, "pack writes whole vectors");

#define INLINE static inline __attribute__((always_inline))

typedef float Vector __attribute__((vector_size(4 * LANES)));
typedef float Unaligned __attribute__((vector_size(4 * LANES), aligned(4)));

INLINE Vector load(const float *at) { return *(const Unaligned *)at; }
INLINE void store(float *at, Vector v) { *(Unaligned *)at = v; }
INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t greatest(int64_t a, int64_t b) { return a < b ? b : a; }
INLINE int64_t rounded_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

#endif
