"""scripts.benches.tunnel.streams and redis: what is read of workers and of redis-benchmark."""

from __future__ import annotations

import pytest

from scripts.benches.tunnel.redis import percentiles
from scripts.benches.tunnel.streams import Seen
from scripts.harness.errors import BenchError

REPORT = """
Latency by percentile distribution:
0.000% <= 0.023 milliseconds (cumulative count 1)
50.000% <= 0.151 milliseconds (cumulative count 10225)
98.438% <= 0.231 milliseconds (cumulative count 19721)
99.219% <= 0.247 milliseconds (cumulative count 19870)
99.805% <= 0.367 milliseconds (cumulative count 19962)
99.902% <= 0.447 milliseconds (cumulative count 19981)
100.000% <= 0.751 milliseconds (cumulative count 20000)

Cumulative distribution of latencies:
15.470% <= 0.103 milliseconds (cumulative count 3094)
100.000% <= 0.807 milliseconds (cumulative count 20000)
"""


def test_percentiles__are_the_first_that_suffice() -> None:
    assert percentiles(REPORT) == {"redis_p50_ms": 0.151, "redis_p99_ms": 0.247, "redis_p999_ms": 0.447}


def test_percentiles__without_any() -> None:
    with pytest.raises(BenchError, match="no percentiles"):
        percentiles("====== GET ======")


def test_mbps__omits_the_start_and_what_comes_after_the_end() -> None:
    samples = ((10.0, 0), (10.5, 1_000_000), (11.0, 2_000_000), (12.0, 4_000_000), (13.0, 4_100_000))
    assert Seen(samples, (), ended_at=12.0).mbps() == 16.0


def test_mbps__of_a_stream_that_ended_at_once() -> None:
    with pytest.raises(BenchError, match="before anything could be measured"):
        Seen(((10.0, 0), (10.5, 1000)), (), ended_at=12.0).mbps()


@pytest.mark.parametrize(
    ("gaps", "stall_ms"),
    [
        ((), 0.0),
        (((3.0, 0.5),), 0.0),  # before
        (((4.5, 1.0),), 500.0),  # has begun before
        (((6.0, 0.25), (7.0, 0.125)), 250.0),
        (((9.0, 5.0),), 1000.0),  # to the end, and on
        (((11.0, 1.0),), 0.0),  # after
    ],
)
def test_longest_stall(gaps: tuple[tuple[float, float], ...], stall_ms: float) -> None:
    assert Seen((), gaps, ended_at=10.0).longest_stall_ms(since=5.0, until=10.0) == stall_ms
