"""Matrix products, inverses and eigendecompositions in C, which is compiled for this processor.

They stand in for oneDNN, the BLAS and LAPACK on the CPU once `use_native_kernels` has been called.
"""

from natgrad.optim.native.build import KernelsError
from natgrad.optim.native.kernels import Kernels, kernels_in_use, load_kernels, use_native_kernels

__all__ = ["Kernels", "KernelsError", "kernels_in_use", "load_kernels", "use_native_kernels"]
