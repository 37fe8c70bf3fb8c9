"""srd.file_transfer.worker."""

from __future__ import annotations

import os
import threading

from srd.file_transfer.worker import NICENESS, start_worker


def test_start_worker__one_thread_of_lower_priority() -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with start_worker("srd-test") as worker:
        threads = {worker.submit(threading.get_native_id).result() for _ in range(3)}
        (thread,) = threads
        assert os.getpriority(os.PRIO_PROCESS, thread) == min(before + NICENESS, 19)
    assert os.getpriority(os.PRIO_PROCESS, 0) == before
