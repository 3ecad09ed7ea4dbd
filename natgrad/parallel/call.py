"""A function call on its way to another process, and its outcome on the way back.

Every engine that leaves this process sends calls as the bytes that are made here. So what can be
sent, and how an exception comes back, is the same on all of them.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any


class WorkerLost(RuntimeError):
    """The process or the machine that ran a call is gone: the call may be submitted again.

    Raised by `result()` of the call's future. `pid` and `signal` are None where they are unknown.
    """

    def __init__(self, message: str, pid: int | None = None, signal: int | None = None) -> None:
        super().__init__(message)
        self.pid = pid
        self.signal = signal

    def __reduce__(self) -> tuple[type[WorkerLost], tuple[str, int | None, int | None]]:
        return WorkerLost, (str(self), self.pid, self.signal)


class RemoteTraceback(Exception):
    """Where a call failed in the worker: the cause of the exception that its future raises."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class _CallPickler(pickle.Pickler):
    """Refuses what is defined in the main script: workers do not run that script."""

    def reducer_override(self, value: object) -> Any:
        if isinstance(value, FunctionType | type) and value.__module__ == "__main__":
            raise pickle.PicklingError(
                f"{value.__qualname__} is defined in the main script, which workers do not run: "
                "move it to a module of its own and import it from there"
            )
        return NotImplemented


def _pickled(value: object) -> bytes:
    buffer = io.BytesIO()
    _CallPickler(buffer, pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()


def name_of(function: Callable[..., Any]) -> str:
    """Return a function's full name, for messages."""
    name = getattr(function, "__qualname__", None) or repr(function)
    return f"{getattr(function, '__module__', '?')}.{name}"


def pack_call(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> bytes:
    """Return a call as bytes; raise PicklingError, saying why, if it cannot be sent."""
    try:
        search_path = [os.path.abspath(entry) for entry in sys.path]
        return _pickled((search_path, _pickled((function, tuple(args), dict(kwargs)))))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise pickle.PicklingError(
            f"{name_of(function)} and its arguments cannot be sent to another process: {error}"
        ) from error


def run_call(call: bytes) -> bytes:
    """Run a packed call in this process, and return its packed outcome; never raise."""
    try:
        search_path, content = pickle.loads(call)
        # Modules that the submitting process can import are found here too, after our own.
        sys.path.extend(entry for entry in search_path if entry not in sys.path)
        function, args, kwargs = pickle.loads(content)
        return _pickled((True, function(*args, **kwargs), ""))
    except BaseException as error:  # sys.exit() in a job ends the job, not the worker
        return _packed_failure(error)


def _packed_failure(error: BaseException) -> bytes:
    text = "".join(traceback.format_exception(error))
    try:
        outcome = _pickled((False, error, text))
        pickle.loads(outcome)  # some exceptions go in and do not come out
    except Exception:
        outcome = _pickled((False, RuntimeError(f"{type(error).__name__}: {error}"), text))
    return outcome


def unpack_outcome(outcome: bytes) -> Any:
    """Return what a call returned, or raise what it raised."""
    succeeded, value, text = pickle.loads(outcome)
    if succeeded:
        return value
    value.__cause__ = RemoteTraceback(text)
    raise value
