"""`srd-lab top`."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from netns.cli import main
from netns.cli.top import rates
from netns.faults.faults import fail
from netns.lab.lab import Lab
from netns.netem.shape import Shape
from netns.topology.model import leaf_spine

pytestmark = pytest.mark.root


def test_top__table_and_json(lab_name: str) -> None:
    with Lab.up(leaf_spine(name=lab_name, spines=1, shape=Shape(delay_us=100)), backend="relay") as lab:
        fail(lab, "leaf2-spine1")
        arguments = ["top", "--lab", lab.name, "--count", "1", "--interval", "100ms"]
        shown = CliRunner().invoke(main, [*arguments, "--busy"])
        assert shown.exit_code == 0
        assert shown.output.startswith(f"lab {lab.name}, relay backend, ")
        assert [line.split()[0] for line in shown.output.splitlines()[2:]] == ["leaf2>spine1", "spine1>leaf2"]
        assert "dead" in shown.output
        (line,) = CliRunner().invoke(main, [*arguments, "--json-lines"]).output.splitlines()
        links = {each["direction"]: each for each in json.loads(line)["links"]}
        assert set(links) == {
            "h1>leaf1", "leaf1>h1", "h2>leaf2", "leaf2>h2", "leaf1>spine1", "spine1>leaf1", "leaf2>spine1",
            "spine1>leaf2",
        }  # fmt: skip
        assert links["leaf2>spine1"]["dead"]
        assert links["leaf1>spine1"]["bits_per_second"] == 0


def test_rates() -> None:
    before = {
        "a-b": {"ab": {"packets": 10, "bytes": 1000, "dropped": 1}, "ba": {"packets": 0, "bytes": 0, "dropped": 0}}
    }
    after = {
        "a-b": {
            "ab": {"packets": 30, "bytes": 3500, "dropped": 5, "queued": 7},
            "ba": {"packets": 0, "bytes": 0, "dropped": 0},
        }
    }
    one, other = rates(before, after, seconds=2, dead={"a-b"})
    assert (one.direction, other.direction) == ("a>b", "b>a")
    assert (one.packets_per_second, one.bits_per_second, one.dropped_per_second) == (10, 10_000, 2)
    assert (one.queued_packets, one.dropped, one.dead) == (7, 5, True)
    assert (other.packets_per_second, other.queued_packets, other.dropped) == (0, 0, 0)
