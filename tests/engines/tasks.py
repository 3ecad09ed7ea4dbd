"""What the tests run on engines: functions of a module, as workers must be able to import them."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path


class AwkwardError(Exception):
    """Can be pickled, but not unpickled."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} and {two}")


def double(number: int) -> int:
    return 2 * number


def echo(content: bytes) -> bytes:
    return content


def fail(message: str) -> None:
    raise KeyError(message)


def fail_awkwardly() -> None:
    raise AwkwardError("salt", "pepper")


def leave() -> None:
    sys.exit("a job that wants to end its process")


def return_a_lock() -> object:
    return threading.Lock()


def num_torch_threads() -> int:
    import torch

    return torch.get_num_threads()


def niceness() -> int:
    return os.nice(0)


def say(line: str) -> None:
    print(line)


def hold(place: str, seconds: float = 600.0) -> str:
    """Tell in PLACE where this runs, then work until there is a file PLACE.release."""
    told = {"pid": os.getpid(), "parent": os.getppid(), "node": os.environ.get("SLURMD_NODENAME")}
    temporary = Path(f"{place}.{os.getpid()}")
    temporary.write_text(json.dumps(told))
    temporary.rename(place)
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:  # computes: a worker that waits in a system call is too easy
        number = (number * 3 + 1) % 1000003
        if number % 64 == 0:
            time.sleep(0.001)
            if Path(f"{place}.release").exists():
                return place
    raise TimeoutError(f"nobody released {place}")


def leave_child_behind_and_hold(place: str) -> str:
    """As `hold`, with a child process that has this process's open files."""
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    return hold(place)
