"""scripts.benches.cases.latency and sizes: ratios from figures by hand."""

from __future__ import annotations

from scripts.benches.cases import latency, sizes
from scripts.benches.cases.latency import name_of


def test_ratios__of_what_there_is() -> None:
    tcp = {f"p50_{name_of(size)}_us": 10.0 for size in latency.SIZES}
    tcp |= {"loaded_p50_64b_us": 20.0, "loaded_p999_64b_us": 100.0}
    ours = {f"p50_{name_of(size)}_us": 10.0 * factor for factor, size in enumerate(latency.SIZES, start=1)}
    ours |= {"busy_poll_p50_64b_us": 5.0, "loaded_p50_64b_us": 200.0, "loaded_p999_64b_us": 300.0}
    ours |= {"loaded_bulk_gbps": 18.0, "alone_bulk_gbps": 20.0}
    found = latency.ratios(ours, tcp)
    assert (found["p50_64k_ratio"], found["p50_busy_poll_ratio"], found["loaded_bulk_ratio"]) == (3.0, 0.5, 0.9)
    assert found.keys() == {each.figure for each in latency.WANTED}
    idle = {name: value for name, value in tcp.items() if not name.startswith("loaded")}
    assert found.keys() - latency.ratios(ours, idle).keys() == set(latency.NEEDS[0].figures)


def test_figures__of_whole_round_trips() -> None:
    row = {"size_bytes": 1 << 20, "typical_us": 1.0, "p99_us": 2.0, "p999_us": 3.0}
    assert latency.figures(row, prefix="x_") == {"x_p50_1mib_us": 2.0, "x_p99_1mib_us": 4.0, "x_p999_1mib_us": 6.0}


def test_worst_ratio__of_the_worst_size() -> None:
    tcp = {f"p50_{name_of(size)}_us": 10.0 for size in sizes.SIZES}
    assert sizes.worst_ratio(tcp | {"p50_64kib_us": 15.0}, tcp) == 1.5
