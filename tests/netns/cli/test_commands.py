"""netns.cli.commands: the commands as a user runs them, in processes of their own; one-line errors and exit status."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import asdict, replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from netns.cli import COMMANDS, main
from netns.faults.faults import active, fail, repair
from netns.lab.lab import Lab
from netns.lab.state import ROOT, LabDirectory, LabState
from netns.netem.shape import Shape
from netns.topology.file import read_topology
from netns.topology.model import reference
from tests.netns.cli.srd_lab import Done, one_line, srd_lab, srd_lab_process
from tests.programs import run_to_end

SMALL = "name: {}\nleaf_spine: {{leaves: 2, spines: 2, link: {{delay: 1ms}}}}\n"
# Drops root only after the imports: other users may not be able to read the checkout.
AS_NOBODY = "import os; from netns.cli import main; os.setuid(65534); main(prog_name='srd-lab')"


def process(*command: str) -> Done:
    done = run_to_end(command)
    return Done(done.returncode, done.stdout, done.stderr)


def as_nobody(*arguments: str) -> Done:
    return process(sys.executable, "-c", AS_NOBODY, *arguments)


@pytest.fixture
def file(tmp_path: Path, lab_name: str) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL.format(lab_name))
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_help__of_a_command(command: str) -> None:
    """Each entry of the table of commands names an existing command of that name."""
    result = CliRunner().invoke(main, [command, "--help"], prog_name="srd-lab")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: srd-lab {command} ")


def test_plan__builtin_and_file(file: Path, lab_name: str) -> None:
    kernel = srd_lab("plan", "reference", "--backend", "kernel").stdout.splitlines()
    assert kernel[:2] == ["# backend: kernel (requested)", "netns add reference-h1"]
    relay = srd_lab("plan", str(file), "--backend", "relay").stdout.splitlines()
    assert relay[-2:] == [f"netns delete {lab_name}-h2", f"netns delete {lab_name}-h1"]
    assert f"relay stop {lab_name}" in relay


@pytest.mark.root
def test_plan__is_what_up_builds(file: Path, lab_name: str) -> None:
    planned = json.loads(srd_lab("plan", str(file), "--json").stdout)
    try:
        built = json.loads(srd_lab("up", str(file), "--json").stdout)
        assert (built["name"], built["backend"], built["reason"]) == (
            planned["lab"], planned["backend"], planned["reason"],
        )  # fmt: skip
    finally:
        assert json.loads(srd_lab("down", "--lab", lab_name, "--json").stdout) == {"down": [lab_name]}


@pytest.mark.root
def test_plan__needs_no_root_and_changes_nothing(lab_name: str) -> None:
    done = as_nobody("plan", "reference")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("# backend: kernel (not tried without root; up may take the relay)\n")
    assert not LabDirectory(lab_name).path.exists()


@pytest.mark.root
@pytest.mark.parametrize("command", ["plan", "up"])
def test_bad_file__is_one_line_and_status_2(tmp_path: Path, command: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("leaf_spine: {spnes: 4}")
    assert one_line(srd_lab(command, str(file)), status=2).startswith(f"{file}: leaf_spine.spnes: no such key")


def test_bad_file__of_a_size_that_no_memory_holds(tmp_path: Path) -> None:
    file = tmp_path / "large.yaml"
    each = ("blocks", "leaves_per_block", "hosts_per_leaf", "aggregations_per_block", "spines")
    file.write_text(f"clos: {{{', '.join(f'{key}: 254' for key in each)}}}")
    done = process("prlimit", f"--as={1 << 30}", sys.executable, "-m", "netns", "topology", str(file))
    assert one_line(done, status=2).startswith(f"{file}: 49161192 links; a topology has at most 32768 links")


@pytest.mark.parametrize(
    "arguments",
    [
        ("frob",),
        ("up",),
        ("up", "x", "--backend", "ether"),
        pytest.param(("down", "--lab", "x", "--all"), marks=pytest.mark.root),
        ("exec", "h1"),
        pytest.param(("exec", "h1", "--"), marks=pytest.mark.root),
    ],
)
def test_usage__is_status_2(arguments: tuple[str, ...]) -> None:
    done = srd_lab(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("srd-lab: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.root
def test_whole_life_of_a_lab(file: Path, lab_name: str) -> None:
    up = srd_lab_process("up", str(file))
    assert up.returncode == 0, up.stderr
    assert up.stdout.startswith(f"lab {lab_name} is up after ")
    fabric = Lab.find(lab_name).backend
    assert f"\nbackend: {fabric} (this kernel has " in up.stdout

    assert (
        one_line(srd_lab("up", str(file)), status=1)
        == f"lab {lab_name} is up; take it down first: srd-lab down --lab {lab_name}"
    )

    status = json.loads(srd_lab("status", "--lab", lab_name, "--json").stdout)
    assert (status["name"], status["backend"], status["problems"]) == (lab_name, fabric, [])
    assert lab_name in [lab["name"] for lab in json.loads(srd_lab("status", "--json").stdout)["labs"]]
    assert lab_name in srd_lab("status").stdout
    assert "10.101.2.1" in srd_lab("status", "--lab", lab_name).stdout

    done = srd_lab_process("exec", "--lab", lab_name, "h1", "--", "sh", "-c", "ip -brief address show leaf1; exit 7")
    assert done.returncode == 7
    assert "10.0.1.1/32" in done.stdout
    assert srd_lab_process("exec", "--lab", lab_name, "leaf1", "true").returncode == 0

    assert one_line(srd_lab("exec", "--lab", lab_name, "h9", "--", "true"), status=1).startswith("h9: no such node")
    error = one_line(srd_lab("exec", "--lab", lab_name, "h1", "--", "nosuch"), status=1)
    assert error == "nosuch: no such command; install the package that has it, or give its path"
    down = srd_lab_process("down", "--lab", lab_name)
    assert (down.returncode, down.stdout) == (0, f"lab {lab_name} is down\n")
    assert "there is no lab" in one_line(srd_lab("down", "--lab", lab_name), status=1)


@pytest.mark.root
def test_verify__whole_and_blackholed(file: Path, lab_name: str) -> None:
    lab = Lab.up(read_topology(file))
    done = srd_lab("verify", "--lab", lab_name, "--ports", "16")
    assert done.returncode == 0, done.stderr
    assert f"h1 to h2: 16 source ports, lab {lab_name}, {lab.backend} backend" in done.stdout
    assert "h2 to h1: 16 source ports" in done.stdout
    lab.reshape("leaf1-spine2", ab=Shape(loss_percent=100))
    done = srd_lab("verify", "--lab", lab_name, "--ports", "8")
    assert done.returncode == 1
    assert "problem: h1 to h2: spine2 is never used" in done.stderr


@pytest.mark.root
@pytest.mark.parametrize(
    "arguments", [("up", "reference"), ("down", "--lab", "x"), ("verify", "--lab", "x"), ("exec", "h1", "true")]
)
def test_not_root__is_one_line(arguments: tuple[str, ...]) -> None:
    assert "needs root" in one_line(as_nobody(*arguments), status=1)


@pytest.mark.root
@pytest.mark.parametrize(
    "arguments",
    [
        ("status", "--lab", "{}"),
        ("exec", "--lab", "{}", "h1", "true"),
        ("fail", "--lab", "{}", "spine1"),
    ],
)
def test_name__that_is_a_path_bad_flow(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """A directory outside ROOT that looks like a lab's is not removed."""
    record = json.dumps(asdict(LabState(replace(reference(), name="x"), "relay", "a reason", phase="up")))
    (tmp_path / "state.json").write_text(record)
    name = os.path.relpath(tmp_path, ROOT)
    message = one_line(srd_lab(*(each.format(name) for each in arguments)), status=2)
    assert message.startswith(f"name: {name!r} cannot name a lab; use letters, digits")
    assert (tmp_path / "state.json").read_text() == record


@pytest.mark.parametrize("command", COMMANDS)
def test_lab__is_named_by_an_option_in_every_command(command: str) -> None:
    """No command takes it as an argument, so that nobody has to remember which."""
    found = main.get_command(click.Context(main), command)
    assert found is not None
    parameters = found.params
    assert not [each for each in parameters if isinstance(each, click.Argument) and each.name == "name"]
    assert [each.opts for each in parameters if each.name == "name"] in ([], [["--lab"]])


@pytest.mark.root
def test_help__first_steps_work_in_this_order() -> None:
    """Every line of the first steps, as it stands there; the lab is called `reference`, as a new user's."""
    steps = [line.split("  ")[0] for line in re.findall(r"^ +srd-lab (.*)$", srd_lab("--help").stdout, re.MULTILINE)]
    assert [step.split()[0] for step in steps] == ["plan", "up", "verify", "exec", "down"]
    if LabDirectory("reference").read() is not None:
        pytest.skip("a lab called reference is up, and not this test's")
    try:
        for step in steps:
            name, *arguments = step.split()
            named = ["--lab", "reference"] if name in ("verify", "exec", "down") else []  # there may be other labs
            done = srd_lab_process(name, *named, *arguments)
            assert done.returncode == 0, (step, done)
    finally:
        srd_lab("down", "--lab", "reference")


def own_row(lab_name: str) -> str:
    """Return what `status` says of a lab; there may be others, of other tests."""
    (row,) = [line for line in srd_lab("status").stdout.splitlines() if line.split()[0] == lab_name]
    return row.rstrip()


@pytest.mark.root
def test_status__dead_links_and_current_shapes(file: Path, lab_name: str) -> None:
    lab = Lab.up(read_topology(file), backend="relay")
    lab.reshape("leaf1-spine2", ab=Shape(delay_us=20_000, loss_percent=1))
    fail(lab, "leaf2-spine1")
    fail(lab, "h1-leaf1")
    assert own_row(lab_name).endswith("up, 2 links dead")
    lines = [" ".join(line.split()) for line in srd_lab("status", "--lab", lab_name).stdout.splitlines()]
    at = lines.index("link state direction shape")
    assert lines[at + 1 : at + 8] == [
        "h1-leaf1 dead both no shape",
        "leaf1-spine1 up both limit 1000 delay 1ms",
        "leaf1-spine2 up leaf1 to spine2 limit 1000 delay 20ms loss random 1%",
        "spine2 to leaf1 limit 1000 delay 1ms",
        "leaf2-spine1 dead both limit 1000 delay 1ms",
        "leaf2-spine2 up both limit 1000 delay 1ms",
        "1 link without a shape, up",
    ]
    links = json.loads(srd_lab("status", "--lab", lab_name, "--json").stdout)["links"]
    assert links["leaf2-spine1"] == {
        "a": "leaf2", "b": "spine1", "dead": True, "ab": "limit 1000 delay 1ms", "ba": "limit 1000 delay 1ms",
    }  # fmt: skip
    assert links["h2-leaf2"] == {"a": "h2", "b": "leaf2", "dead": False, "ab": None, "ba": None}
    repair(lab, active(lab))
    assert own_row(lab_name).endswith("up")


@pytest.mark.root
def test_status__unreadable_record_beside_others(file: Path, lab_name: str) -> None:
    broken = LabDirectory(f"{lab_name}-broken")
    broken.path.mkdir(parents=True)
    (broken.path / "state.json").write_text("{}")
    try:
        assert srd_lab("up", str(file)).returncode == 0
        done = srd_lab("status", "--json")
        assert lab_name in [lab["name"] for lab in json.loads(done.stdout)["labs"]]
        assert f"{broken.path}/state.json: not a lab's record" in done.stderr
    finally:
        broken.remove()
