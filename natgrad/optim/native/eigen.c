/* Eigenvalues and eigenvectors of small symmetric matrices, in float64.

   A = Q T Q^T, T tridiagonal, by Householder reflections; then T = S diag(values) S^T by QL steps
   with implicit shifts, each a sequence of rotations, which S^T Q^T gathers row by row. */

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES 8          /* partial sums of a dot product: its order is the same on every machine */
#define MAX_STEPS 60     /* for one eigenvalue; two are usual */
#define PATIENCE 15      /* steps; from then on, zero is what is so beside the largest element, 1 */
#define NOTHING 0x1p-100 /* before, what is so beside its neighbours, or less than this */

static double dot(int64_t n, const double *a, const double *b) {
    double sums[LANES] = {0}, sum = 0.0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) sums[j] += a[i + j] * b[i + j];
    for (; i < n; i++) sum += a[i] * b[i];
    for (int j = 0; j < LANES; j++) sum += sums[j];
    return sum;
}

/* out = x^T M, for M (n, n) whose rows are `row` elements apart. */
static void combine_rows(int64_t n, const double *x, const double *M, int64_t row,
                         double *restrict out) {
    memset(out, 0, sizeof(double) * n);
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const double *m = M + i * row;
        for (int64_t j = 0; j < n; j++)
            out[j] += (x[i] * m[j] + x[i + 1] * m[row + j]) +
                      (x[i + 2] * m[2 * row + j] + x[i + 3] * m[3 * row + j]);
    }
    for (; i < n; i++)
        for (int64_t j = 0; j < n; j++) out[j] += x[i] * M[i * row + j];
}

/* Make A tridiagonal: its diagonal and what is beside it. Each row k of A keeps, from its element
   k + 1 on, the vector v of its reflection I - tau v v^T. */
static void tridiagonalize(int64_t n, double *A, double *diagonal, double *beside, double *taus,
                           double *restrict w) {
    for (int64_t k = 0; k + 2 < n; k++) {
        double *v = A + k * n + k + 1, *rest = A + (k + 1) * n + k + 1;
        int64_t size = n - k - 1;
        double first = v[0], others = dot(size - 1, v + 1, v + 1);
        taus[k] = 0.0;
        beside[k] = first;
        if (others <= NOTHING * NOTHING) continue; /* squares that underflow have few digits */
        beside[k] = -copysign(sqrt(first * first + others), first);
        taus[k] = (beside[k] - first) / beside[k];
        for (int64_t j = 1; j < size; j++) v[j] /= first - beside[k];
        v[0] = 1.0;
        combine_rows(size, v, rest, n, w);
        double half = 0.5 * taus[k] * dot(size, v, w);
        for (int64_t j = 0; j < size; j++) w[j] = taus[k] * (w[j] - half * v[j]);
        for (int64_t i = 0; i < size; i++) {
            double *restrict r = rest + i * n;
            for (int64_t j = 0; j < size; j++) r[j] -= v[i] * w[j] + w[i] * v[j];
        }
    }
    for (int64_t k = 0; k < n; k++) diagonal[k] = A[k * n + k];
    if (n > 1) beside[n - 2] = A[(n - 2) * n + n - 1];
    beside[n - 1] = 0.0;
}

/* Q, the product of the reflections that `tridiagonalize` has left. */
static void gather_reflections(int64_t n, const double *A, const double *taus, double *Q,
                               double *restrict w) {
    memset(Q, 0, sizeof(double) * n * n);
    for (int64_t k = 0; k < n; k++) Q[k * n + k] = 1.0;
    for (int64_t k = n - 3; k >= 0; k--) {
        const double *v = A + k * n + k + 1;
        double *rest = Q + (k + 1) * n + k + 1;
        int64_t size = n - k - 1;
        if (taus[k] == 0.0) continue;
        combine_rows(size, v, rest, n, w);
        for (int64_t i = 0; i < size; i++) {
            double *restrict r = rest + i * n, factor = taus[k] * v[i];
            for (int64_t j = 0; j < size; j++) r[j] -= factor * w[j];
        }
    }
}

static void rotate(int64_t n, double cosine, double sine, double *restrict a, double *restrict b) {
    for (int64_t j = 0; j < n; j++) {
        double before = a[j];
        a[j] = cosine * before - sine * b[j];
        b[j] = sine * before + cosine * b[j];
    }
}

/* One QL step on rows first..last of T, of which no element beside the diagonal is negligible. */
static void ql_step(int64_t n, int64_t first, int64_t last, double *diagonal, double *beside,
                    double *vectors) {
    /* The shift: the eigenvalue of the leading 2 x 2 matrix that is closer to its first element. */
    double slope = (diagonal[first + 1] - diagonal[first]) / (2.0 * beside[first]);
    double shift = diagonal[first] - beside[first] / (slope + copysign(hypot(slope, 1.0), slope));
    double bulge = diagonal[last] - shift, cosine = 1.0, sine = 1.0, carried = 0.0;
    for (int64_t i = last - 1; i >= first; i--) {
        double out = sine * beside[i], in = cosine * beside[i];
        double length = sqrt(out * out + bulge * bulge);
        beside[i + 1] = length;
        if (length == 0.0) { /* the matrix has come apart here */
            diagonal[i + 1] -= carried;
            beside[last] = 0.0;
            return;
        }
        sine = out / length;
        cosine = bulge / length;
        double shifted = diagonal[i + 1] - carried;
        double change = (diagonal[i] - shifted) * sine + 2.0 * cosine * in;
        carried = sine * change;
        diagonal[i + 1] = shifted + carried;
        bulge = cosine * change - in;
        rotate(n, cosine, sine, vectors + i * n, vectors + (i + 1) * n);
    }
    diagonal[first] -= carried;
    beside[first] = bulge;
    beside[last] = 0.0;
}

/* Let the diagonal become the eigenvalues, and rotate the rows of `vectors` with it; 0 if that
   takes too many steps. */
static int diagonalize(int64_t n, double *diagonal, double *beside, double *vectors) {
    for (int64_t first = 0; first < n; first++) {
        for (int step = 0;; step++) {
            int64_t last = first;
            for (; last < n - 1; last++) {
                double size = fabs(diagonal[last]) + fabs(diagonal[last + 1]);
                double least = step < PATIENCE ? NOTHING : DBL_EPSILON;
                if (fabs(beside[last]) <= DBL_EPSILON * size + least) break;
            }
            if (last == first) break;
            if (step == MAX_STEPS) return 0;
            ql_step(n, first, last, diagonal, beside, vectors);
        }
    }
    return 1;
}

static void reverse(int64_t n, double *x) {
    for (int64_t i = 0, j = n - 1; i < j; i++, j--) {
        double first = x[i];
        x[i] = x[j];
        x[j] = first;
    }
}

/* M becomes its transpose, the last row first. */
static void turn(int64_t n, double *M) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++) {
            double above = M[j * n + i];
            M[j * n + i] = M[i * n + j];
            M[i * n + j] = above;
        }
    for (int64_t i = 0, k = n - 1; i < k; i++, k--)
        for (int64_t j = 0; j < n; j++) {
            double first = M[i * n + j];
            M[i * n + j] = M[k * n + j];
            M[k * n + j] = first;
        }
}

/* A becomes A / scale, with its rows and columns in reverse order if so wanted. */
static void rescale(int64_t n, double *A, double scale, int is_reversed) {
    for (int64_t i = 0, j = n * n - 1; i <= j; i++, j--) {
        double first = A[i] / scale, last = A[j] / scale;
        A[i] = is_reversed ? last : first;
        A[j] = is_reversed ? first : last;
    }
}

static int decompose(int64_t n, double *A, double *values, double *memory) {
    double *vectors = memory, *beside = memory + n * n, *taus = beside + n, *spare = taus + n;
    double largest = 0.0;
    for (int64_t i = 0; i < n * n; i++) {
        if (!isfinite(A[i])) return 0;
        if (fabs(A[i]) > largest) largest = fabs(A[i]);
    }
    if (largest == 0.0) largest = 1.0;
    /* Small elements keep their digits if reflections begin with the largest, and QL ends there. */
    int is_reversed = A[0] < A[n * n - 1];
    rescale(n, A, largest, is_reversed); /* else squares could over- or underflow */
    tridiagonalize(n, A, values, beside, taus, spare);
    gather_reflections(n, A, taus, vectors, spare);
    turn(n, vectors);
    reverse(n, values);
    reverse(n - 1, beside);
    if (!diagonalize(n, values, beside, vectors)) return 0;
    for (int64_t i = 0; i < n; i++) { /* in ascending order */
        int64_t least = i;
        for (int64_t j = i + 1; j < n; j++)
            if (values[j] < values[least]) least = j;
        double value = values[least];
        values[least] = values[i];
        values[i] = value * largest;
        for (int64_t j = 0; j < n; j++)
            A[i * n + j] = vectors[least * n + (is_reversed ? n - 1 - j : j)];
        memcpy(vectors + least * n, vectors + i * n, sizeof(double) * n);
    }
    return 1;
}

/* How many elements of memory each matrix takes. */
int64_t natgrad_eigen_memory(int64_t n) { return n * n + 3 * n; }

/* A = U diag(values) U^T for each of `count` symmetric matrices (n, n), one behind the other, which
   become U^T; values (count, n) ascend. 0, or the number of the first matrix that failed. */
int64_t natgrad_eigen(int64_t count, int64_t n, double *A, double *values, double *memory,
                      int threads) {
    int64_t failed = 0;
    if (n == 0) return 0;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1 && count > 1)
    for (int64_t i = 0; i < count; i++) {
        double *own = memory + i * natgrad_eigen_memory(n);
        if (!decompose(n, A + i * n * n, values + i * n, own)) {
#pragma omp critical
            if (!failed || i < failed) failed = i + 1;
        }
    }
    return failed;
}
