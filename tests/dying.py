"""What a program leaves behind when it is killed: its processes, by SIGKILL of the one that has started them."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.patience import PATIENCE_S


@contextmanager
def killed(program: str) -> Iterator[list[int]]:
    """Run a program in Python until it has printed the ids of its processes, and kill it; gives descriptors of them.

    What is left is killed at the end of the block.
    """
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(each) for each in parent.stdout.readline().split()]
        pidfds = [os.pidfd_open(pid) for pid in pids]
        parent.kill()
        parent.wait()
    try:
        yield pidfds
    finally:
        for pidfd in pidfds:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)


def assert_leaves_nothing(program: str, *, processes: int) -> None:
    """The processes of a program, so many, end when it is killed."""
    with killed(program) as pidfds:
        assert len(pidfds) == processes
        for pidfd in pidfds:
            assert select.select([pidfd], [], [], PATIENCE_S)[0], "it runs on"
