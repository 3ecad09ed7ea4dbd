"""Natural-gradient SGD for PyTorch, and the training framework that it was invented for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from natgrad.version import __version__

if TYPE_CHECKING:
    from natgrad.optim import (
        NGSGD,
        NonFiniteError,
        OnlineFisher,
        precondition_simple,
        use_native_kernels,
    )

__all__ = [
    "NGSGD",
    "NonFiniteError",
    "OnlineFisher",
    "__version__",
    "precondition_simple",
    "use_native_kernels",
]


def __getattr__(name: str) -> Any:
    """Import the optimizer when it is asked for: `natgrad --help` need not wait for torch."""
    if name in __all__:
        import natgrad.optim

        return getattr(natgrad.optim, name)
    raise AttributeError(f"module 'natgrad' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
