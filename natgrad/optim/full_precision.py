"""What is learned, and what is computed from it, is not rounded by autocast."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def full_precision(like: Tensor) -> Iterator[None]:
    """Switch autocast off within, for the device of a tensor.

    Autocast is for a network's own products; of a backward pass or a step that is within its region
    it would round the Fisher factors too.

    >>> with torch.autocast("cpu", torch.bfloat16), full_precision(torch.ones(1)):
    ...     (torch.eye(2) @ torch.eye(2)).dtype
    torch.float32
    """
    device_type = like.device.type
    if torch.is_autocast_enabled(device_type):
        with torch.autocast(device_type, enabled=False):
            yield
    else:
        yield
