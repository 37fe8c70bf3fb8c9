"""The thread that reads, hashes and writes files beside the transport's thread.

It has a lower priority than the transport: a chunk occupies a CPU for about a millisecond, and if the transport had to
wait that long, its links would idle and its ACKs be late.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

NICENESS = 10
"""Added to the process's niceness; a ninth of its weight. The maximum, 19, would starve the thread on busy hosts."""


def start_worker(name: str) -> ThreadPoolExecutor:
    """Return an executor of one thread: its calls run in order and need no locks among each other."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix=name, initializer=_yield_to_transport)


def _yield_to_transport() -> None:
    """Raise the thread's niceness; on Linux each thread has its own, and raising it needs no privilege."""
    thread = threading.get_native_id()
    os.setpriority(os.PRIO_PROCESS, thread, min(os.getpriority(os.PRIO_PROCESS, thread) + NICENESS, 19))
