"""The refill ring: both sides in one process, and in two."""

from __future__ import annotations

import random
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from devmem.errors import PoolError, RegionError
from devmem.refill import HEADER_BYTES, RefillRing
from devmem.region import Region
from devmem.tokens import Frag
from devmem.uapi import AREA_SHIFT

SEED = 3
ROOT = Path(__file__).parents[2]


def frag(index: int) -> Frag:
    return Frag(index * 10, index + 1, index, 2)


def entry(index: int) -> tuple[int, int]:
    return 2 << AREA_SHIFT | index * 10, index + 1


def test_ring__is_first_in_first_out() -> None:
    """Several times around, at different fill levels."""
    rng = random.Random(SEED)
    with Region(4096) as region:
        ring = RefillRing(region)
        assert ring.entries == 128, "the most that fits, and a power of two"
        put = got = 0
        for _ in range(2000):
            for _ in range(rng.randrange(200)):
                if not ring.push(frag(put)):
                    assert put - got == ring.entries
                    break
                put += 1
            taken = ring.take_untrusted()
            assert taken == [entry(index) for index in range(got, put)]
            got = put
        ring.close()


def test_ring__counters_wrap() -> None:
    with Region(4096) as region:
        ring = RefillRing(region)
        for at in (0, 64):
            struct.pack_into("<I", region, at, 0xFFFFFFFE)
        for index in range(5):
            assert ring.push(frag(index))
        assert ring.take_untrusted() == [entry(index) for index in range(5)]
        assert struct.unpack_from("<I", region, 0) == struct.unpack_from("<I", region, 64) == (3,)
        ring.close()


def test_ring__two_threads() -> None:
    count = 20_000
    with Region(4096) as region:
        ring, got = RefillRing(region), list[tuple[int, int]]()

        def fill() -> None:
            for index in range(count):
                while not ring.push(frag(index)):
                    pass

        thread = threading.Thread(target=fill)
        thread.start()
        while len(got) < count:
            got += ring.take_untrusted()
        thread.join()
        assert got == [entry(index) for index in range(count)]
        ring.close()


OTHER = """
import socket, sys
from devmem import Frag, Region, RefillRing
with socket.socket(fileno=int(sys.argv[1])) as sock, Region.receive(sock) as region:
    ring = RefillRing(region)
    for index in range(100):
        assert ring.push(Frag(index * 10, index + 1, index, 2))
    ring.close()
"""


def test_ring__another_process_returns_frags() -> None:
    here, there = socket.socketpair(socket.AF_UNIX)
    with here, Region(4096) as region:
        ring = RefillRing(region)
        with there:
            command = [sys.executable, "-c", OTHER, str(there.fileno())]
            child = subprocess.Popen(command, pass_fds=[there.fileno()], cwd=ROOT)
        region.share(here)
        assert child.wait() == 0
        assert ring.take_untrusted() == [entry(index) for index in range(100)]
        ring.close()


@pytest.mark.parametrize(("head", "tail"), [(0, 129), (5, 4), (0, 0xFFFFFFFF)])
def test_ring__invalid_counters_bad_flow(head: int, tail: int) -> None:
    with Region(4096) as region:
        ring = RefillRing(region)
        struct.pack_into("<I", region, 0, head)
        struct.pack_into("<I", region, 64, tail)
        with pytest.raises(PoolError, match="its other side is broken"):
            ring.take_untrusted()
        ring.close()


def test_ring__keeps_its_region_open() -> None:
    region = Region(4096)
    ring = RefillRing(region)
    with pytest.raises(RegionError, match="live views"):
        region.close()
    ring.close()
    region.close()


def test_ring__without_room_bad_flow(tmp_path: Path) -> None:
    file = tmp_path / "small"
    with (
        Region.open(file, size_bytes=HEADER_BYTES + 31, writable=True) as region,
        pytest.raises(PoolError, match="no room for a refill ring; give a page"),
    ):
        RefillRing(region)
