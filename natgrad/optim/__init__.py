"""Natural-gradient SGD: the optimizer, and the two preconditioners it is made of."""

from natgrad.optim.hogwild import share_parameters
from natgrad.optim.native import use_native_kernels
from natgrad.optim.ngsgd import NGSGD
from natgrad.optim.online import OnlineFisher
from natgrad.optim.rows import NonFiniteError
from natgrad.optim.simple import precondition_simple

__all__ = [
    "NGSGD",
    "NonFiniteError",
    "OnlineFisher",
    "precondition_simple",
    "share_parameters",
    "use_native_kernels",
]
