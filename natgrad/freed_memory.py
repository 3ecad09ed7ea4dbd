"""Freed memory stays with the process, to be used again in the next step."""

from __future__ import annotations

import ctypes
import os
import sys

__all__ = ["keep_freed_memory"]

# Of glibc's malloc.h.
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
KEPT_BYTES = 2**30  # more than a step frees
OLD_LIMIT_BYTES = 2**25  # the largest M_MMAP_THRESHOLD that older versions of glibc take
SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> bool:
    """Let the process keep memory that it has freed; return whether it does.

    A training step allocates and frees the same tensors again and again. glibc gives large ones
    back to the system, which then has to find, clear and map their pages anew: up to thousands of
    page faults a step, 3 to 12 % of its time with NGSGD (LOG.md). After this call, about 1 GiB may
    stay with the process. Jobs of `natgrad train` call it; in a script of your own, call it once,
    before training. Results do not depend on it. Whoever has set glibc's own variables of the
    environment is left to them, and on systems without glibc there is nothing to do.

    >>> keep_freed_memory() in (True, False)
    True
    """
    if sys.platform != "linux" or any(name in os.environ for name in SETTINGS):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # First the larger part: once either is set, glibc does not raise the other by itself any more.
    for num_bytes in (KEPT_BYTES, OLD_LIMIT_BYTES):
        if mallopt(M_MMAP_THRESHOLD, num_bytes):
            return bool(mallopt(M_TRIM_THRESHOLD, KEPT_BYTES))
    return False
