"""The case `volume`: what is read of fio's report, and the picture of an outcome."""

from __future__ import annotations

from collections import Counter
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from scripts.benches.cases.volume import WANTED
from scripts.benches.volume.measure import BINS_US, _fractions, _is_wrong, fraction_name
from scripts.benches.volume_plot import series_of, svg
from scripts.harness.errors import BenchError
from scripts.harness.fio import FioResult


def report(*, error: int = 0) -> dict[str, Any]:
    """What fio 3.33 writes, without what nobody reads."""
    latency = {"percentile": {"50.000000": 40_000, "99.900000": 9_000_000}, "bins": {"40000": 3, "700000": 1}}
    side = {"iops": 1000.5, "bw_bytes": 16_000_000, "lat_ns": latency | {"max": 12_500_000}}
    idle = {"iops": 0.0, "bw_bytes": 0, "lat_ns": {"max": 0}}
    return {"jobs": [{"error": error, "read": side, "write": idle}]}


def test_what_is_read_of_fios_report() -> None:
    result = FioResult.of(report(), errors="")
    assert result.iops("read") == 1000.5
    assert result.latency_us("read", 50) == 40
    assert result.latency_us("read", 99.9) == 9000
    assert result.longest_ms() == 12.5
    assert result.histogram("read") == Counter({40_000: 3, 700_000: 1})
    assert (result.error, result.failed, result.wrong) == (0, 0, 0)


@pytest.mark.parametrize(
    "line",
    [
        "verify: bad magic header 0, wanted acca at file job.0.0 offset 2637824, length 4096",
        "crc32c: verify failed at file job.0.0 offset 2637824, length 4096 (requested block: offset=2637824)",
    ],
)
def test_wrong_data_is_seen(line: str) -> None:
    """The lines are fio 3.33's, of a device that lost a write, and of one that changed a bit."""
    result = FioResult.of(report(error=84), errors=f"fio: connected to NBD server\n{line}\n")
    assert result.wrong == 1
    assert _is_wrong(result) == 1
    assert _is_wrong(FioResult.of(report(), errors="fio: connected to NBD server\n")) == 0
    with pytest.raises(BenchError, match="errno 5"):
        _is_wrong(FioResult.of(report(error=5), errors=""))


def test_bins_have_all_requests() -> None:
    found = _fractions(Counter({40_000: 3, 700_000: 2, 10**10: 5}))
    assert found[fraction_name(BINS_US[0])] == 0.3
    assert found[fraction_name(BINS_US[1])] == 0.2
    assert found[fraction_name(BINS_US[-1])] == 0.5
    assert sum(found.values()) == pytest.approx(1)


def test_the_picture_has_both() -> None:
    figures = {f"lossy_{fraction_name(bound_us)}": 1 / len(BINS_US) for bound_us in BINS_US}
    drawn = svg(series_of({"case": "volume", "ours": figures, "peers": {"tcp": figures}}))
    assert ET.fromstring(drawn).tag.endswith("svg")  # noqa: S314 - our own
    with pytest.raises(ValueError, match="another bench"):
        series_of({"case": "sizes"})


def test_the_bounds_are_those_that_were_asked_for() -> None:
    assert {f"{each.figure} {each}" for each in WANTED} == {
        "read_p50_over_nbdkit_ratio <= 2",
        "read_p999_lossy_over_tcp_ratio <= 0.3",
        "failed_ios_blackhole <= 0",
        "longest_io_ms_blackhole <= 100",
        "lost_writes <= 0",
        "stale_reads <= 0",
    }
