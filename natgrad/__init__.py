"""Natural-gradient SGD for PyTorch, and the training framework that it was invented for."""

from natgrad.optim import NGSGD, NonFiniteError, OnlineFisher, precondition_simple
from natgrad.version import __version__

__all__ = ["NGSGD", "NonFiniteError", "OnlineFisher", "__version__", "precondition_simple"]
