"""Natural-gradient SGD for PyTorch, and the training framework that it was invented for."""

from natgrad.version import __version__

__all__ = ["__version__"]
