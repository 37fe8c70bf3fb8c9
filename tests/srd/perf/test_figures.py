"""srd.perf.figures: the arithmetic of the tables."""

from __future__ import annotations

import pytest

from srd.perf.figures import (
    BANDWIDTH_HEAD,
    LATENCY_HEAD,
    MB,
    BandwidthFigures,
    LatencyFigures,
    peak_rate,
)


def test_latency_figures() -> None:
    figures = LatencyFigures.of([1000 * value for value in range(1000, 0, -1)], size_bytes=64)
    assert (figures.iterations, figures.min_us, figures.max_us) == (1000, 1, 1000)
    assert (figures.typical_us, figures.p99_us, figures.p999_us) == (500, 990, 999)
    assert figures.mean_us == 500.5
    assert figures.stdev_us == pytest.approx(288.67, abs=0.01)


def test_bandwidth_figures() -> None:
    # A second of 10 messages, then 0.1 s of 10 more.
    figures = BandwidthFigures.of([(0, 0), (10**9, 10), (1_100_000_000, 20)], size_bytes=MB, depth=10)
    assert figures.mean_mb_per_s == pytest.approx(20 / 1.1)
    assert figures.peak_mb_per_s == pytest.approx(100)
    assert figures.million_messages_per_s == pytest.approx(20 / 1.1 / 1e6)


def test_peak_is_never_less_than_the_average() -> None:
    figures = BandwidthFigures.of([(0, 0), (10**9, 1)], size_bytes=MB, depth=100)
    assert figures.peak_mb_per_s == figures.mean_mb_per_s == 1


def test_peak_rate_without_a_series_of_that_length() -> None:
    assert peak_rate([(0, 0), (10, 5)], at_least=6) == 0


@pytest.mark.parametrize(
    ("head", "row"),
    [
        (LATENCY_HEAD, LatencyFigures.of([1234, 5678], size_bytes=8388608).row),
        (BANDWIDTH_HEAD, BandwidthFigures.of([(0, 0), (10**9, 1000)], size_bytes=64, depth=1).row),
    ],
)
def test_rows_are_as_long_as_their_heads(head: str, row: str) -> None:
    assert abs(len(head.rstrip()) - len(row)) <= 3
    assert len(row.split()) == head.count("[") + 2
