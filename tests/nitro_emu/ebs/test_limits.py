"""io2's limits, in virtual time."""

from __future__ import annotations

import pytest

from nitro_emu.ebs.limits import DEPTH_S, MAX_BYTES_PER_S, Limits, Provisioned


class Clock:
    """Time that passes when somebody sleeps, one after the other."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, delay_s: float) -> None:
        self.now += delay_s


async def time_for(provisioned: Provisioned, *, requests: int, length_bytes: int) -> tuple[float, Limits]:
    clock = Clock()
    limits = Limits(provisioned, clock=clock, sleep=clock.sleep)
    for _ in range(requests):
        await limits.admit(length_bytes)
    return clock.now - 100.0, limits


async def test_operations_are_held_to_the_rate_after_the_buckets_depth() -> None:
    took_s, limits = await time_for(Provisioned(iops=1000), requests=3050, length_bytes=16 << 10)
    assert took_s == pytest.approx(3050 / 1000 - DEPTH_S)
    assert limits.exceeded_us()["performance_exceeded_iops"] == pytest.approx(3.0e6, rel=0.01)
    assert limits.exceeded_us()["performance_exceeded_tp"] == 0


@pytest.mark.parametrize(("length_bytes", "operations"), [(0, 1), (1, 1), (256 << 10, 1), (257 << 10, 2), (1 << 20, 4)])
async def test_long_requests_are_several_operations(length_bytes: int, operations: int) -> None:
    took_s, _ = await time_for(Provisioned(iops=100), requests=100, length_bytes=length_bytes)
    assert took_s == pytest.approx(operations - DEPTH_S)


async def test_bytes_are_held_to_the_rate() -> None:
    took_s, limits = await time_for(Provisioned(bytes_per_s=100 << 20), requests=300, length_bytes=1 << 20)
    assert took_s == pytest.approx(3 - DEPTH_S)
    assert limits.exceeded_us()["performance_exceeded_iops"] == 0
    assert limits.exceeded_us()["performance_exceeded_tp"] == pytest.approx(took_s * 1e6, rel=0.02)


async def test_below_the_limits_nobody_waits() -> None:
    clock = Clock()
    limits = Limits(Provisioned.io2(1000, None), clock=clock, sleep=clock.sleep)
    for _ in range(100):
        before = clock.now
        await limits.admit(16 << 10)
        assert clock.now == before
        clock.now += 0.001
    assert set(limits.exceeded_us().values()) == {0}


async def test_time_above_a_limit_counts_once_for_requests_that_wait_together() -> None:
    clock = Clock()

    async def at_once(_: float) -> None:
        """All arrive at the same time, and wait together."""

    limits = Limits(Provisioned(iops=100), clock=clock, sleep=at_once)
    for _ in range(105):
        await limits.admit(0)
    assert limits.exceeded_us()["performance_exceeded_iops"] == pytest.approx(1.0e6)


@pytest.mark.parametrize(
    ("iops", "bytes_per_s", "expected"),
    [
        (None, None, (None, None)),
        (1000, None, (1000, 250 << 20)),
        (64_000, None, (64_000, MAX_BYTES_PER_S)),
        (1000, 5, (1000, 5)),
        (None, 5, (None, 5)),
    ],
)
def test_io2s_bytes_come_with_its_operations(
    iops: int | None, bytes_per_s: int | None, expected: tuple[int | None, int | None]
) -> None:
    provisioned = Provisioned.io2(iops, bytes_per_s)
    assert (provisioned.iops, provisioned.bytes_per_s) == expected
