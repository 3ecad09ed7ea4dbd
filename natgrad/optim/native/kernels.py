"""The compiled kernels as functions of tensors, and whether they are in use."""

from __future__ import annotations

import ctypes
import struct

import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.nn import Parameter

from natgrad.optim.native.build import KernelsError, library_file

PRODUCT_CALL = struct.Struct("@14qf2i")  # as product.c declares it
PLAIN = (Tensor, Parameter)  # of others, as tensors in pieces on several machines, torch knows
# With fewer multiplications, torch's BLAS is faster: a call takes 3 us here, and 2 there.
MIN_MULTIPLICATIONS = 2**18
# With fewer for each, threads take longer to begin and to end than they save.
MIN_MULTIPLICATIONS_PER_THREAD = 2**19
MIN_INVERSE_ROWS_PER_THREAD = 100


class Kernels:
    """The functions of a compiled library. Matrices are on the CPU, and not empty.

    They are float32, unless it is said otherwise.
    """

    def __init__(self, library: str) -> None:
        try:
            self._declare(ctypes.CDLL(library))
        except (OSError, AttributeError) as error:  # no library, or another
            raise KernelsError(
                f"the native kernels cannot be loaded from {library}: {error}. If it is broken, "
                "delete it; if it is for another machine, name a compiler for this one in CC; if "
                "nothing may be executed there, set XDG_CACHE_HOME to another folder"
            ) from error

    def _declare(self, functions: ctypes.CDLL) -> None:
        number, memory = ctypes.c_int64, ctypes.c_void_p
        real, count = ctypes.c_float, ctypes.c_int
        self._product = functions.natgrad_product
        self._product.restype = None
        self._product.argtypes = (ctypes.c_char_p,)  # of a PRODUCT_CALL
        self._eigen_memory = functions.natgrad_eigen_memory
        self._eigen_memory.restype = number
        self._eigen_memory.argtypes = (number,)
        self._eigen = functions.natgrad_eigen
        self._eigen.restype = number
        self._eigen.argtypes = (number, number, memory, memory, memory, count)
        self._inverse_memory = functions.natgrad_inverse_memory
        self._inverse_memory.restype = number
        self._inverse_memory.argtypes = (number,)
        self._inverse = functions.natgrad_inverse
        self._inverse.restype = number
        self._inverse.argtypes = (number, memory, number, real, memory, number, memory, count)

    def suit(self, left: Tensor, right: Tensor) -> bool:
        """Whether left right is a product for `multiply`, and better there than elsewhere."""
        return (
            left.dim() == right.dim() == 2
            and left.shape[1] == right.shape[0]  # else torch says what is wrong
            and left.numel() * right.shape[1] >= MIN_MULTIPLICATIONS
            and is_plain(left)
            and is_plain(right)
            # What records torch's operations, as torch.fx does, would not see the product.
            and torch._C._len_torch_dispatch_stack() == 0
        )

    def suit_added(self, added: Tensor) -> bool:
        """Whether `multiply` can add this matrix to a product of its shape."""
        return is_plain(added) and added.stride(1) == 1

    def suit_vector(self, vector: Tensor, size: int) -> bool:
        """Whether it can be added to rows of so many elements, or be a column of so many."""
        return is_plain(vector) and vector.shape == (size,) and vector.is_contiguous()

    def multiply(
        self,
        left: Tensor,
        right: Tensor,
        out: Tensor | None = None,
        *,
        added: Tensor | None = None,
        alpha: float = 1.0,
        last: Tensor | None = None,
        is_lower: bool = False,
    ) -> Tensor:
        """Return alpha left right + `added`, in `out` or else in memory of its own.

        Args:
            left: (N, K), in any layout.
            right: (K, M), too.
            out: (N, M), each row in one piece of memory; not what left or right is.
            added: (N, M), each row in one piece, or (M,), which is added to all rows; it may be
                `out`. Nothing is added without it.
            alpha: a factor of the product.
            last: (N,), in one piece. It takes the place of the last column: `out` and `added` have
                one less. If anything is added, what `last` held is added to that one.
            is_lower: only what is on and below the diagonal is needed; above it may be anything.
        """
        num_rows, depth = left.shape
        num_columns = right.shape[1]
        is_new = out is None
        if out is None:
            out = left.new_empty(num_rows, num_columns)
        num_useful = num_rows * num_columns * depth // MIN_MULTIPLICATIONS_PER_THREAD
        self._product(PRODUCT_CALL.pack(
            num_rows, num_columns, depth,
            left.data_ptr(), *left.stride(), right.data_ptr(), *right.stride(),
            0 if added is None else added.data_ptr(),
            added.stride(0) if added is not None and added.dim() == 2 else 0,
            out.data_ptr(), out.stride(0), 0 if last is None else last.data_ptr(),
            alpha, is_lower, _num_threads(num_useful),
        ))  # fmt: skip
        if last is not None:  # autograd looks at versions, if it has kept what was there
            increment_version((out, last))
        elif not is_new:
            increment_version(out)
        return out

    def inverse_with_identity(self, lower: Tensor, weight: float) -> Tensor:
        """Return (I + weight A)^-1 for A (N, N), whose lower triangle is given.

        Raises torch.linalg.LinAlgError if that is not positive definite.
        """
        size = lower.shape[0]
        lower = lower.contiguous()
        inverse, memory = lower.new_empty(size, size), lower.new_empty(self._inverse_memory(size))
        failed = self._inverse(
            size, lower.data_ptr(), size, weight, inverse.data_ptr(), size,
            memory.data_ptr(), _num_threads(size // MIN_INVERSE_ROWS_PER_THREAD),
        )  # fmt: skip
        if failed:
            raise torch.linalg.LinAlgError(  # type: ignore[attr-defined]
                f"a matrix of {size} rows has no inverse by Cholesky decomposition, as its leading "
                f"minor of order {failed} is not positive-definite"
            )
        return inverse

    def eigh(self, matrices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the eigenvalues, ascending, and U^T of A = U diag(eigenvalues) U^T.

        A are symmetric matrices (number, N, N) of float64, on the CPU.

        Raises torch.linalg.LinAlgError if one has none, as one with NaN or infinity.
        """
        count, size = matrices.shape[:2]
        vectors = matrices.clone(memory_format=torch.contiguous_format)
        values = vectors.new_empty(count, size)
        memory = vectors.new_empty(count * self._eigen_memory(size))
        failed = self._eigen(
            count, size, vectors.data_ptr(), values.data_ptr(), memory.data_ptr(),
            _num_threads(count),
        )  # fmt: skip
        if failed:
            raise torch.linalg.LinAlgError(  # type: ignore[attr-defined]
                f"the eigenvalues of a matrix of {size} rows (number {failed - 1}) were not found: "
                "does it hold NaN or infinity?"
            )
        return values, vectors


def is_plain(tensor: Tensor) -> bool:
    """Whether it is just float32 numbers in the CPU's memory."""
    return (
        type(tensor) in PLAIN
        and tensor.dtype == torch.float32
        and tensor.is_cpu
        and not tensor.is_neg()
        and torch._C._has_storage(tensor)  # not sparse, and none of many that torch.vmap stands for
    )


def _num_threads(num_useful: int) -> int:
    return max(1, min(num_useful, torch.get_num_threads()))


_loaded: Kernels | None = None
_in_use: Kernels | None = None


def load_kernels() -> Kernels:
    """Return the kernels, compiled if they are not yet; whether they are in use stays as it is.

    Raises KernelsError, saying what to do, if there is no C compiler, or it does not succeed.
    """
    global _loaded
    if _loaded is None:
        _loaded = Kernels(str(library_file()))
    return _loaded


def use_native_kernels(use: bool = True) -> None:
    """Let NGSGD compute with natgrad's own kernels from now on, or no more, in this process.

    They are C code, compiled for this processor when they are first used (in a second or two; the
    result is kept in the user's cache): matrix products and inverses of float32 on the CPU, and
    eigendecompositions of the online method. Call it once, before training. A step takes less time,
    most of all with small layers, with several threads, and by the simple method (docs/step.md).
    Results are as exact as without, and differ in rounding. What a kernel computes is the same bits
    whatever the number of threads; what is left to torch (as small products, and how the factors of
    the online method start) may not be.

    Raises RuntimeError, saying what to do, if there is no C compiler, or it does not succeed.

    >>> use_native_kernels()
    >>> kernels_in_use() is None
    False
    >>> use_native_kernels(False)
    """
    global _in_use
    if not isinstance(use, bool):
        raise TypeError(f"use_native_kernels takes True or False, but got {use!r}")
    try:
        _in_use = load_kernels() if use else None
    except KernelsError as error:
        raise RuntimeError(
            f"{error}; or leave out use_native_kernels(), which only makes training faster"
        ) from error


def kernels_in_use() -> Kernels | None:
    """Return the kernels, if they are in use."""
    return _in_use
