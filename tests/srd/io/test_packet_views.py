"""srd.io.packet_views: the views of packets in a buffer, whichever were asked for before."""

from __future__ import annotations

import random

import pytest

from srd.io import packet_views as module
from srd.io.packet_views import PacketViewCache
from srd.proto.wire.data import HEADER_BYTES


@pytest.mark.parametrize("seed", range(5))
def test_get__shows_the_packets_that_lie_there(seed: int) -> None:
    rng = random.Random(seed)
    memory = bytearray(rng.randbytes(30_000))
    cache = PacketViewCache(memoryview(memory))
    for _ in range(2000):
        size, count, start = rng.choice((72, 73, 1000, 1472)), rng.randint(1, 8), rng.choice((0, 1, 16, 5000))
        views = cache.get(start, size_bytes=size, count=count)
        assert len(views) == count
        for index, (header, sealed) in enumerate(views):
            at = start + index * size
            assert header == memory[at : at + HEADER_BYTES]
            assert sealed == memory[at + HEADER_BYTES : at + size]


def test_get__a_caller_may_change_the_list() -> None:
    memory = bytearray(random.Random(1).randbytes(1000))
    cache = PacketViewCache(memoryview(memory))
    views = cache.get(0, size_bytes=100, count=3)
    views[-1] = views[0]
    assert cache.get(0, size_bytes=100, count=3)[-1][0] == memory[200 : 200 + HEADER_BYTES]


@pytest.mark.sources
def test_get__keeps_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_VIEWS", 100)
    cache = PacketViewCache(memoryview(bytearray(100_000)))
    for size in range(72, 1000):
        cache.get(0, size_bytes=size, count=3)
        assert sum(map(len, cache._views.values())) <= 100
