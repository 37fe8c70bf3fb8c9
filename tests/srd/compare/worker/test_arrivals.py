"""Every byte is compared, and the time without progress is known."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from srd.compare.worker.arrivals import BlockArrivals, WorkloadError
from srd.compare.worker.plan import BLOCK_BYTES
from srd.perf.payload import PayloadSource


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def source() -> Iterator[PayloadSource]:
    made = PayloadSource(BLOCK_BYTES)
    yield made
    made.close()


def sent(source: PayloadSource, *, flow: int, block: int, at: int, length: int) -> memoryview:
    offset = source.offset(flow + block) + at
    return memoryview(source.array[offset : offset + length].tobytes())


def test_arrivals__in_any_order(source: PayloadSource) -> None:
    arrivals = BlockArrivals(source)
    arrivals.expect({5: BLOCK_BYTES + 10})
    assert not arrivals.arrived(5, block=1, at=0, data=sent(source, flow=5, block=1, at=0, length=10))
    assert not arrivals.arrived(5, block=0, at=7, data=sent(source, flow=5, block=0, at=7, length=BLOCK_BYTES - 7))
    assert not arrivals.complete
    assert arrivals.arrived(5, block=0, at=0, data=sent(source, flow=5, block=0, at=0, length=7))
    assert (arrivals.complete, arrivals.size_bytes) == (True, BLOCK_BYTES + 10)


def test_arrivals__a_wrong_byte_is_found(source: PayloadSource) -> None:
    arrivals = BlockArrivals(source)
    arrivals.expect({5: 100})
    data = bytearray(sent(source, flow=5, block=0, at=10, length=90))
    data[20] ^= 1
    with pytest.raises(WorkloadError, match="flow 5: byte 30 of block 0 is not what was sent"):
        arrivals.arrived(5, block=0, at=10, data=memoryview(data))


@pytest.mark.parametrize("expected", [{}, {5: 99}])
def test_arrivals__more_than_expected(source: PayloadSource, expected: dict[int, int]) -> None:
    arrivals = BlockArrivals(source)
    arrivals.expect(expected)
    with pytest.raises(WorkloadError, match="more bytes have arrived than it has"):
        arrivals.arrived(5, block=0, at=0, data=sent(source, flow=5, block=0, at=0, length=100))


def test_arrivals__the_byte_that_tries_a_connection_does_not_count(source: PayloadSource) -> None:
    arrivals = BlockArrivals(source)
    arrivals.expect({})
    assert arrivals.arrived(0, block=0, at=0, data=sent(source, flow=0, block=0, at=0, length=1))
    assert (arrivals.size_bytes, arrivals.complete) == (0, True)


@pytest.mark.parametrize(("missing", "longest"), [(0, 3.0), (1, 10.0)])
def test_stall__also_at_the_end_if_something_is_missing(source: PayloadSource, missing: int, longest: float) -> None:
    clock = Clock()
    arrivals = BlockArrivals(source, clock=clock)
    arrivals.expect({5: 2 + missing})
    arrivals.start()
    for at, clock.now in enumerate((3.0, 4.0)):
        arrivals.arrived(5, block=0, at=at, data=sent(source, flow=5, block=0, at=at, length=1))
    clock.now = 14.0
    assert arrivals.longest_stall_s() == longest
