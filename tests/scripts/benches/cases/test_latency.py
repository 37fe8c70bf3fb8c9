"""scripts.benches.cases.latency and sizes: ratios from figures by hand; the plot of an outcome."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from scripts.benches.cases import latency, sizes
from scripts.benches.cases.latency import name_of
from scripts.benches.outcome import CaseOutcome, Round
from scripts.benches.sizes_plot import main, series_of


def test_ratios__by_hand() -> None:
    tcp = {f"p50_{name_of(size)}_us": 10.0 for size in latency.SIZES}
    tcp |= {"loaded_p50_64b_us": 20.0, "loaded_p999_64b_us": 100.0}
    ours = {f"p50_{name_of(size)}_us": 10.0 * factor for factor, size in enumerate(latency.SIZES, start=1)}
    ours |= {"busy_poll_p50_64b_us": 5.0, "loaded_p50_64b_us": 200.0, "loaded_p999_64b_us": 300.0}
    ours |= {"loaded_bulk_gbps": 18.0, "alone_bulk_gbps": 20.0}
    found = latency.ratios(ours, tcp)
    assert found == {
        "p50_ratio": 1.0,
        "p50_64k_ratio": 3.0,
        "p50_1m_ratio": 4.0,
        "p50_4m_ratio": 5.0,
        "p50_loaded_ratio": 10.0,
        "p999_loaded_ratio": 3.0,
        "p50_busy_poll_ratio": 0.5,
        "loaded_bulk_ratio": 0.9,
    }
    assert found.keys() == {each.figure for each in latency.WANTED}
    idle = {name: value for name, value in tcp.items() if not name.startswith("loaded")}
    assert found.keys() - latency.ratios(ours, idle).keys() == set(latency.NEEDS[0].figures)


def test_figures__of_whole_round_trips() -> None:
    row = {"size_bytes": 1 << 20, "typical_us": 1.0, "p99_us": 2.0, "p999_us": 3.0}
    assert latency.figures(row, prefix="x_") == {"x_p50_1mib_us": 2.0, "x_p99_1mib_us": 4.0, "x_p999_1mib_us": 6.0}


def test_name_of__as_in_the_figures() -> None:
    assert [name_of(size) for size in (1, 64, 1000, 1 << 10, 64 << 10, 1 << 20, 16 << 20)] == [
        "1b", "64b", "1000b", "1kib", "64kib", "1mib", "16mib",
    ]  # fmt: skip


def outcome(*, factor: float = 2.0) -> dict[str, Any]:
    tcp = {f"p50_{name_of(size)}_us": 50.0 + size / 1000 for size in sizes.SIZES}
    ours = {name: value * factor for name, value in tcp.items()}
    ours["worst_ratio"] = sizes.worst_ratio(ours, tcp)
    rounds = tuple(Round(number, ours, {"tcp": tcp}) for number in range(3))
    return CaseOutcome("sizes", "veth", rounds, sizes.WANTED).to_dict()


def test_worst_ratio__of_the_worst_size() -> None:
    tcp = {f"p50_{name_of(size)}_us": 10.0 for size in sizes.SIZES}
    assert sizes.worst_ratio(tcp | {"p50_64kib_us": 15.0}, tcp) == 1.5


def test_plot__draws_both_and_is_reproducible(tmp_path: Path) -> None:
    source, pictures = tmp_path / "sizes.json", [tmp_path / name for name in ("one.svg", "two.svg")]
    source.write_text(json.dumps(outcome()))
    for picture in pictures:
        result = CliRunner().invoke(main, [str(source), str(picture)])
        assert result.exit_code == 0, result.output
    one, two = (picture.read_text() for picture in pictures)
    assert one == two
    assert "SRD" in one
    assert "TCP" in one
    assert series_of(outcome(factor=3.0))["SRD"][0][0] == pytest.approx(3 * 50.0)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"case": "sizes", "rounds": []}', json.dumps(outcome() | {"case": "latency"})]
)
def test_plot__of_something_else_is_one_line(tmp_path: Path, content: str) -> None:
    source = tmp_path / "other.json"
    source.write_text(content)
    result = CliRunner().invoke(main, [str(source), str(tmp_path / "picture.svg")])
    assert result.exit_code == 1
    assert result.output.count("\n") == 1
    assert "not the JSON of scripts/bench sizes" in result.output
    assert not (tmp_path / "picture.svg").exists()


def test_plot__into_no_directory_is_one_line(tmp_path: Path) -> None:
    source = tmp_path / "sizes.json"
    source.write_text(json.dumps(outcome()))
    result = CliRunner().invoke(main, [str(source), str(tmp_path / "none" / "picture.svg")])
    assert result.exit_code == 1
    assert result.output.count("\n") == 1
