"""One worker process of the local engine: `python local_worker.py CONNECTION PARENT_PID NICE`.

It is run as a file, not imported: the main script of the user is not run again, and the first lines
below take effect before the import of natgrad, which takes seconds.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def end_with_parent(parent_pid: int) -> None:
    """End this process soon after its parent, whatever it is computing then."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_watch, args=(parent_pid,), daemon=True).start()


def _watch(parent_pid: int) -> None:
    while os.getppid() == parent_pid:
        time.sleep(1)
    os._exit(1)


def serve(connection: Connection) -> None:
    """Run calls one after the other until the other side closes the connection."""
    # Last in the path: a worker must find the packages that the driver finds.
    sys.path.append(str(Path(__file__).parents[2]))
    from natgrad.parallel.call import run_call

    while True:
        try:
            call = connection.recv_bytes()
        except EOFError:
            return
        outcome = run_call(call)
        sys.stdout.flush()
        sys.stderr.flush()
        connection.send_bytes(outcome)


def main() -> None:
    """Set the process up and serve."""
    connection, parent_pid, nice = (int(argument) for argument in sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver to handle
    end_with_parent(parent_pid)
    os.nice(nice)
    serve(Connection(connection))


if __name__ == "__main__":
    main()
