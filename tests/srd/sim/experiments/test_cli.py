"""`srd sim` as a user runs it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from srd.sim.experiments.cli import sim

FABRIC = """\
leaf_spine:
  hosts_per_leaf: 4
  link: {delay: 5us, rate: 100gbit, limit: 64}
  host_link: {delay: 5us, rate: 100gbit, limit: 64}
"""


@pytest.fixture
def fabric(tmp_path: Path) -> str:
    (tmp_path / "net.yaml").write_text(FABRIC)
    return str(tmp_path / "net.yaml")


def ran(*arguments: str) -> Result:
    return CliRunner().invoke(sim, list(arguments))


def test_tables(fabric: str) -> None:
    done = ran(fabric, "--workload", "incast:3x100KB", "--flows")
    assert done.exit_code == 0, done.output
    assert "3 of 3 flows complete" in done.output
    assert "of the ideal" in done.output
    lines = done.output.splitlines()
    assert any(line.startswith("leaf2>h8 ") for line in lines)
    assert sum(" h8 " in line for line in lines) == 3


def test_json_is_the_same_each_time(fabric: str) -> None:
    one, other = (ran(fabric, "-J", "--workload", "allreduce:800K", "--paths", "8") for _ in range(2))
    assert one.output == other.output
    found = json.loads(one.output)
    assert found["figures"]["flows_complete"] == len(found["flows"]) == 2 * 7 * 8
    assert found["experiment"]["paths"] == 8
    assert found["figures"]["last_over_ideal_ratio"] > 1
    assert found["links"]["h1>leaf1"]["packets"] > 0


def test_a_picture_and_what_cannot_be_written(fabric: str, tmp_path: Path) -> None:
    done = ran(fabric, "--workload", "permutation:10K", "--plot", str(tmp_path / "x.png"))
    assert done.exit_code == 0, done.output
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    done = ran(fabric, "--workload", "permutation:10K", "--plot", str(tmp_path / "no" / "x.png"))
    assert (done.exit_code, done.output.splitlines()[-1][:15]) == (1, "Error: --plot /")


def test_parquet(fabric: str, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    done = ran(fabric, "--workload", "permutation:10K", "--parquet", str(tmp_path / "out"))
    assert done.exit_code == 0, done.output
    flows = parquet.read_table(tmp_path / "out" / "flows.parquet").to_pylist()
    links = parquet.read_table(tmp_path / "out" / "links.parquet").to_pylist()
    assert [flow["source"] for flow in flows] == [f"h{n}" for n in range(1, 9)]
    assert {"h1>leaf1", "leaf1>h1"} <= {row["link"] for row in links}
    assert sum(row["sent_bytes"] for row in links if row["link"] == "h1>leaf1") > 10_000


def test_flows_that_are_not_complete_are_a_failure(fabric: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("events: [{at: 0s, fail: h8}]\n")
    done = ran(fabric, "--workload", "incast:2x1MB", "--plan", str(plan), "--timeout", "1ms")
    assert done.exit_code == 1
    assert "0 of 2 flows complete" in done.output
    assert done.output.endswith("Error: 2 of 2 flows were not complete after 0.001 s\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing.yaml",), "nothing.yaml: "),
        (("FABRIC", "--workload", "none.cm"), "none.cm: No such file or directory"),
        (("FABRIC", "--workload", "incast:9x1"), "--workload incast:9x1: 9 senders and a receiver, but 8 hosts"),
        (("FABRIC", "--controller", "json:loads"), "--controller json:loads: "),
        (("FABRIC", "--controller", "srd.proto.config:ProtocolConfig"), "controller: ProtocolConfig is no subclass of"),
        (("FABRIC", "--paths", "65"), "paths: 65 is not between 1 and 64"),
    ],
)
def test_what_is_wrong_is_one_line(fabric: str, arguments: tuple[str, ...], said: str) -> None:
    done = ran(*(fabric if each == "FABRIC" else each for each in arguments))
    assert done.exit_code == 1
    assert done.output.startswith(f"Error: {said}"), done.output
    assert done.output.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "module", "extra"),
    [("--parquet", "pyarrow", "sweep"), ("--plot", "srd.sim.experiments.plots", "report")],
)
def test_an_extra_that_is_missing(
    fabric: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    done = ran(fabric, "--workload", "permutation:10K", option, str(tmp_path / "x.png"))
    assert done.exit_code == 1
    assert f"needs {module}; install it, in the checkout: pip install '.[{extra}]'" in done.output
