"""`srd-lab top`."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from netns.cli import main
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
        (line,) = CliRunner().invoke(main, [*arguments, "--json"]).output.splitlines()
        links = {each["direction"]: each for each in json.loads(line)["links"]}
        assert set(links) == {
            "h1>leaf1", "leaf1>h1", "h2>leaf2", "leaf2>h2", "leaf1>spine1", "spine1>leaf1", "leaf2>spine1",
            "spine1>leaf2",
        }  # fmt: skip
        assert links["leaf2>spine1"]["dead"]
        assert links["leaf1>spine1"]["bits_per_second"] == 0
