"""The systemd unit and the Containerfile: their commands exist, and they say what the programs do."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest

from scripts.manuals import MAN, files
from srd.cli import cli

ROOT = Path(__file__).resolve().parents[3]
UNITS = sorted((ROOT / "scripts" / "packaging" / "systemd").glob("*.service"))
CONTAINERFILE = ROOT / "scripts" / "packaging" / "container" / "Containerfile"


def parse(arguments: list[str]) -> dict[str, object]:
    """Return what a command line of srd says, without running it. Raises click.UsageError."""
    context = cli.make_context("srd", list(arguments))
    name, command, rest = cli.resolve_command(context, [*context._protected_args, *context.args])
    assert command is not None
    return command.make_context(name, rest, parent=context).params


def directives(unit: Path) -> dict[str, list[str]]:
    """Return the values of a unit, by SECTION.NAME."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in unit.read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            name, equals, value = line.partition("=")
            assert equals, line
            found.setdefault(f"{section}.{name}", []).append(value)
    return found


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_unit__its_command_exists(unit: Path) -> None:
    found = directives(unit)
    (start,) = found["Service.ExecStart"]
    options = [shlex.split(value)[0].removeprefix("OPTIONS=") for value in found["Service.Environment"]]
    line = start.replace("$OPTIONS", options[0]).replace("%S", "/var/lib")
    program, *arguments = shlex.split(line)
    assert program == "srd"
    given = parse(arguments)
    assert (given["bind"], given["port"]) == (None, 19870)
    assert given["metrics"] == ("127.0.0.1", 9470)
    assert found["Service.Type"] == ["notify"]
    assert 0 < float(found["Service.WatchdogSec"][0]) < 60
    (page,) = re.findall(r"man:([\w-]+)\((\d)\)", found["Unit.Documentation"][0])
    assert MAN / ".".join(page) in files()


def test_unit__its_directories_are_those_of_the_command() -> None:
    (unit,) = UNITS
    found = directives(unit)
    made = [f"%S/{name}" for name in found["Service.StateDirectory"][0].split()]
    assert any(f"--output {directory}" in found["Service.ExecStart"][0] for directory in made)
    assert any(f"SRD_HOME={directory}" in found["Service.Environment"] for directory in made)


def test_container__its_command_exists() -> None:
    lines = CONTAINERFILE.read_text().splitlines()
    words = {line.partition(" ")[0]: line.partition(" ")[2] for line in lines if line and not line.startswith("#")}
    assert json.loads(words["ENTRYPOINT"]) == ["srd"]
    given = parse(json.loads(words["CMD"]))
    assert (given["bind"], given["port"]) == (None, 19870)
    assert given["metrics"] == ("0.0.0.0", 9470)  # noqa: S104 - of the container alone
    assert words["EXPOSE"].split() == ["19870/udp", "9470/tcp"]
    assert str(given["output"]).startswith(words["VOLUME"])
    assert "srd" in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]


def test_container__what_it_copies_is_there() -> None:
    text = CONTAINERFILE.read_text()
    for name in re.findall(r"/src/([\w.]+)", text):
        assert (ROOT / name).exists()
    (extra,) = re.findall(r'"/src\[(\w+)\]"', text)
    assert extra in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    stages = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert len({*stages}) == 1
    assert re.search(r":3\.\d+-slim", stages[0])


def test_parse__finds_what_is_wrong() -> None:
    with pytest.raises(click.UsageError):
        parse(["recv", "--listen-at", "x"])
    with pytest.raises(click.UsageError):
        parse(["receive"])
