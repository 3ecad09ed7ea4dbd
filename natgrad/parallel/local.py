"""The local engine: processes on this machine that live from job to job.

Unlike `concurrent.futures.ProcessPoolExecutor`, which gives up as a whole when one of its processes
is killed, only the call that the process was running fails, and the process is replaced.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import Executor
from multiprocessing import Pipe
from pathlib import Path

from natgrad.parallel.call import WorkerLost
from natgrad.parallel.slots import SlotExecutor

WORKER_FILE = Path(__file__).with_name("local_worker.py")
THREAD_SETTINGS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
ONE_THREAD = dict.fromkeys(THREAD_SETTINGS, "1")
# How often a death is looked for. Most are seen at once, by the end of the connection; but not if
# a process that the job forked still holds it.
LOOK_SECONDS = 0.5
# How long an idle process may take to end by itself: it may still be importing torch.
LEAVE_SECONDS = 10.0


class ProcessWorker:
    """A process and the connection to it."""

    def __init__(self, nice: int) -> None:
        self._connection, far_end = Pipe()
        # Linux ends the process with the thread that starts it: a slot's own, which stays.
        with far_end:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", str(WORKER_FILE)),
                    *(str(far_end.fileno()), str(os.getpid()), str(nice)),
                ],
                pass_fds=[far_end.fileno()],
                env={**os.environ, **ONE_THREAD},
                stdin=subprocess.DEVNULL,
            )

    def run(self, call: bytes, name: str) -> bytes:
        """Run a packed call; raise WorkerLost if the process ends."""
        try:
            self._connection.send_bytes(call)
            while not self._connection.poll(LOOK_SECONDS):
                if not self.is_alive():
                    raise EOFError
            return self._connection.recv_bytes()
        except (EOFError, OSError):
            self._end(wait_seconds=1.0)
            raise self._lost(name) from None

    def is_alive(self) -> bool:
        """Return whether the process has not ended."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()

    def close(self) -> None:
        """End the process, which is idle, and reap it."""
        self._end(LEAVE_SECONDS)

    def _end(self, wait_seconds: float) -> None:
        self._connection.close()  # at which an idle process ends by itself
        try:
            self._process.wait(wait_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _lost(self, name: str) -> WorkerLost:
        pid, status = self._process.pid, self._process.returncode
        if status >= 0:
            return WorkerLost(f"worker process {pid} ended with status {status} in {name}", pid)
        how = f"by signal {-status} ({signal.strsignal(-status)})"
        hint = "; was it out of memory?" if -status == signal.SIGKILL else ""
        return WorkerLost(f"worker process {pid} was ended {how} in {name}{hint}", pid, -status)


def open_local(num_workers: int, *, nice: int = 0) -> Executor:
    """Open processes on this machine, one BLAS thread each: they start now, and stay.

    They end soon after this process, even if that is killed by kill -9.

    Args:
        num_workers: the number of processes.
        nice: by how much they are nicer than this process to others: 0 to 19.
    """
    if nice not in range(20):
        raise ValueError(f"nice of the engine local must be a number from 0 to 19, not {nice!r}")
    return SlotExecutor(num_workers, lambda: ProcessWorker(nice))
