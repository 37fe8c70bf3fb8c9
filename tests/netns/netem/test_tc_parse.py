"""netns.netem.tc_parse: tc's notation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netns.errors import ShapeError
from netns.netem.params import FourStates, GilbertElliott, Slot
from netns.netem.tc_parse import KEYS, parse_assignments, parse_fields

HERE = Path()


@pytest.mark.parametrize(
    ("mapping", "fields"),
    [
        ({"delay": "10ms"}, {"delay_us": 10_000}),
        (
            {"delay": "10ms 1ms distribution normal"},
            {"delay_us": 10_000, "jitter_us": 1000, "distribution": "normal"},
        ),
        (
            {"delay": "10ms 1ms 25%"},
            {"delay_us": 10_000, "jitter_us": 1000, "delay_correlation_percent": 25},
        ),
        ({"loss": 0.5}, {"loss_percent": 0.5}),
        ({"loss": "1% 25%"}, {"loss_percent": 1, "loss_correlation_percent": 25}),
        ({"loss": "random 1%"}, {"loss_percent": 1}),
        ({"loss": "gemodel 1%"}, {"loss_model": GilbertElliott(1, 99)}),
        ({"loss": "gemodel 1% 10% 70% 0.1%"}, {"loss_model": GilbertElliott(1, 10, 70, 0.1)}),
        ({"loss": "state 1%"}, {"loss_model": FourStates(1, 99)}),
        ({"loss": "state 1% 90% 5% 50% 0.5%"}, {"loss_model": FourStates(1, 90, 5, 50, 0.5)}),
        ({"duplicate": "1% 25%"}, {"duplicate_percent": 1, "duplicate_correlation_percent": 25}),
        ({"corrupt": "0.1%"}, {"corrupt_percent": 0.1}),
        ({"reorder": "25% 50%", "gap": 5}, {"reorder_percent": 25, "reorder_correlation_percent": 50, "gap": 5}),
        ({"rate": "1mbit"}, {"rate_bps": 1_000_000}),
        (
            {"rate": "1mbit 20 53 -5"},
            {"rate_bps": 1_000_000, "rate_overhead_bytes": 20, "cell_bytes": 53, "cell_overhead_bytes": -5},
        ),
        ({"slot": "800us"}, {"slot": Slot(min_us=800, max_us=800)}),
        ({"slot": "800us 1ms packets 10 bytes 9"}, {"slot": Slot(min_us=800, max_us=1000, packets=10, bytes=9)}),
        (
            {"slot": "distribution pareto 10ms 1ms packets 3"},
            {"slot": Slot(distribution="pareto", delay_us=10_000, jitter_us=1000, packets=3)},
        ),
        ({"ecn": True, "seed": 7, "limit": 9}, {"ecn": True, "seed": 7, "limit_packets": 9}),
        ({"distribution": "normal"}, {"distribution": "normal"}),
        ({"ce_threshold": "20us"}, {"ce_threshold_us": 20}),
    ],
)
def test_parse_fields(mapping: dict[str, Any], fields: dict[str, Any]) -> None:
    assert parse_fields(mapping, base=HERE) == fields


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        (
            {"delay": "10ms 1ms reorder 25%"},
            "delay: '10ms 1ms reorder 25%': reorder is a property of its own, as in delay=10ms reorder=...",
        ),
        (
            {"delay": "10ms 1ms distribution normal", "distribution": "pareto"},
            "distribution: distribution is given already; give it once",
        ),
        ({"delay": True}, "delay: True is not in tc's notation; give a number or a text, as in 10ms"),
        ({"delay": ""}, "delay: '' has 0 arguments; want 1 to 3 arguments"),
        ({"delay": "1ms 2ms 3% 4"}, "delay: '1ms 2ms 3% 4' has 4 arguments; want 1 to 3 arguments"),
        ({"loss": "bursty 1%"}, "loss: bursty: no such model of loss; the models are random, gemodel, state"),
        ({"loss": "gemodel"}, "loss: gemodel has 0 percentages; want 1 to 4"),
        ({"loss": "gemodel 1 2 3 4 5"}, "loss: gemodel has 5 percentages; want 1 to 4"),
        ({"loss": "gemodel 101%"}, "loss: gemodel: p: 101 % is not between 0 % and 100 %"),
        ({"rate": "1mbit x"}, "rate: x is not a whole number of bytes (as in: 1mbit 20 53 5)"),
        ({"slot": "1ms packets x"}, "slot: packets: x is not a whole number"),
        ({"slot": "distribution normal 1ms"}, "slot: 'distribution normal 1ms': want distribution NAME DELAY JITTER"),
        (
            {"slot": "1ms 2ms 3ms"},
            "slot: '1ms 2ms 3ms': want MIN [MAX] or distribution NAME DELAY JITTER, then packets N, bytes N",
        ),
        ({"trace": "a b"}, "trace: 'a b' has 2 arguments; want 1 argument"),
    ],
)
def test_parse_fields__bad_flow(mapping: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError) as caught:
        parse_fields(mapping, base=HERE)
    assert str(caught.value) == message


def test_parse_fields__file_names_are_relative_to_the_topology(tmp_path: Path) -> None:
    (tmp_path / "my.dist").write_text("1 2 3")
    (tmp_path / "up.trace").write_text("1\n")
    fields = parse_fields({"distribution": "my.dist", "trace": "up.trace"}, base=tmp_path)
    assert fields == {"distribution": str(tmp_path / "my.dist"), "trace": str(tmp_path / "up.trace")}


def test_parse_assignments__types_are_those_that_yaml_would_have_had() -> None:
    arguments = ["delay=10ms 1ms", "loss=gemodel 1% 10%", "limit=9", "ecn=on", "seed= 7 ", "gap=x"]
    assert parse_assignments(arguments) == {
        "delay": "10ms 1ms", "loss": "gemodel 1% 10%", "limit": 9, "ecn": True, "seed": 7, "gap": "x",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["delay"], f"delay: want NAME=VALUE, as in delay=10ms; the names are {', '.join(KEYS)}"),
        (["delay="], f"delay=: want NAME=VALUE, as in delay=10ms; the names are {', '.join(KEYS)}"),
        (["los=1%"], "los: no such property of a link; did you mean loss?"),
        (["loss=1%", "loss=2%"], "loss: given twice"),
    ],
)
def test_parse_assignments__bad_flow(arguments: list[str], message: str) -> None:
    with pytest.raises(ShapeError) as caught:
        parse_assignments(arguments)
    assert str(caught.value) == message
