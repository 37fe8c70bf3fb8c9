"""The thread that reads, hashes and writes files beside the transport's.

It is nicer than the transport: a chunk keeps a processor for a millisecond, and a transport that waits so long for its
turn finds its links idle and its acks late. Through the reference fabric, on two cores: 748 -> 842 Mbit/s.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

NICENESS = 10
"""Added to the process's own: a ninth of its weight. The most there is, 19, was no faster; it starves on busy hosts."""


def start_worker(name: str) -> ThreadPoolExecutor:
    """Return an executor of one thread: what it is given is done in order, and needs no lock for what it shares."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix=name, initializer=_yield_to_transport)


def _yield_to_transport() -> None:
    """Raise the thread's niceness; on Linux it is a thread's own, and raising it needs no right."""
    thread = threading.get_native_id()
    os.setpriority(os.PRIO_PROCESS, thread, min(os.getpriority(os.PRIO_PROCESS, thread) + NICENESS, 19))
