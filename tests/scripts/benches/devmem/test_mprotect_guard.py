"""The guard of `scripts/bench devmem`: only the system calls can access guarded memory."""

from __future__ import annotations

import mmap

import pytest

from devmem import Region
from scripts.benches.devmem.mprotect_guard import guarded
from srd.io import syscalls


def test_guarded__restores_everything() -> None:
    calls = syscalls.sendmmsg, syscalls.recvmmsg
    with Region(mmap.PAGESIZE) as region:
        with pytest.raises(KeyError), guarded(region):
            raise KeyError
        region.array[0] = 1
    assert (syscalls.sendmmsg, syscalls.recvmmsg) == calls
