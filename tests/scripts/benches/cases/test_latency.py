"""scripts.benches.cases.latency and sizes: ratios from figures by hand."""

from __future__ import annotations

from scripts.benches.cases import latency, sizes
from scripts.benches.cases.latency import name_of


def test_figures__of_whole_round_trips() -> None:
    row = {"size_bytes": 1 << 20, "typical_us": 1.0, "p99_us": 2.0, "p999_us": 3.0}
    assert latency.figures(row, prefix="x_") == {"x_p50_1mib_us": 2.0, "x_p99_1mib_us": 4.0, "x_p999_1mib_us": 6.0}


def test_worst_ratio__of_the_worst_size() -> None:
    tcp = {f"p50_{name_of(size)}_us": 10.0 for size in sizes.SIZES}
    assert sizes.worst_ratio(tcp | {"p50_64kib_us": 15.0}, tcp) == 1.5
