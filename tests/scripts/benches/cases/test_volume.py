"""The case `volume`: what is read of fio's report."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from scripts.benches.volume.measure import BINS_US, _fractions, _is_wrong, fraction_name
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
