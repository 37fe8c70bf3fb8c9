"""The guard of `scripts/bench devmem`: only the system calls can access guarded memory."""

from __future__ import annotations

import mmap
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from devmem import Region
from scripts.benches.devmem.mprotect_guard import guarded
from srd.io import syscalls

ROOT = Path(__file__).parents[4]
TOUCH = """
import ctypes, socket
import numpy as np
from devmem import Region
from scripts.benches.devmem.mprotect_guard import guarded
with Region(4096) as region:
    region.array[:] = 7
    with guarded(region):
        {touch}
    assert region.array[0] == 7
    print("intact")
"""


@pytest.mark.parametrize(
    "touch",
    [
        "bytes(region.view(0, length=1))",
        "region.array[5:7] = 7",
    ],
)
def test_guarded__kills_on_access(touch: str) -> None:
    done = subprocess.run([sys.executable, "-c", TOUCH.format(touch=touch)], cwd=ROOT, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGSEGV, b"")


def test_guarded__allows_views_without_access() -> None:
    passing = "views = [region.view(0, length=9), np.frombuffer(region, np.uint8)[5:]]; views.clear()"
    done = subprocess.run(
        [sys.executable, "-c", TOUCH.format(touch=passing)], cwd=ROOT, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, b"intact\n")


def test_guarded__restores_everything() -> None:
    calls = syscalls.sendmmsg, syscalls.recvmmsg
    with Region(mmap.PAGESIZE) as region:
        with pytest.raises(KeyError), guarded(region):
            raise KeyError
        region.array[0] = 1
    assert (syscalls.sendmmsg, syscalls.recvmmsg) == calls
