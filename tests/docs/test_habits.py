"""The habits that docs/commands.md promises, of every command there is: they are walked, so that none drifts."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Final

import click
import pytest
from click.testing import CliRunner

from netns.base.build import BUILD
from netns.base.options import LEGEND, Duration, HostPort, Rate, Size
from srd.cli import GROUP, _loaded
from srd.cli.security import TargetAddress

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = (ROOT / "docs/commands.md").read_text()
FINGERPRINT: Final = "A" * 43
RUNS_ANOTHER: Final = {"srd-lab exec", "srd-lab rootless", "srd-lab uml", "nitro-card env"}
"""What runs a program of the user's prints what that prints."""
TWO_KINDS: Final = {"--devmem"}
"""Of a size at the end that receives, a flag at the one that sends."""
AMOUNTS: Final = (Size, Duration, Rate)
AMOUNT_NAMES: Final = re.compile(r"size|time|duration|rate|interval|memory|limit|^--for$|retry|at$")


@cache
def programs() -> Mapping[str, click.Command]:
    """The entry points, and srd's commands of other packages, which need no installation to be found here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: dict[str, click.Command] = {}
    for name, target in project["scripts"].items():
        module, _, function = target.partition(":")
        start: Any = getattr(import_module(module), function)
        found[name] = loaded(start.args[1])
    for name, target in project["entry-points"]["srd.commands"].items():
        found[f"srd {name}"] = _loaded(EntryPoint(name, target, GROUP))  # as it does when they are installed
    return found


def loaded(target: str) -> click.Command:
    module, _, name = target.partition(":")
    command: click.Command = getattr(import_module(module), name)
    return command


def walk(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Give the commands below one by their whole names, but for those that `srd` finds by entry points."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    ctx = click.Context(command)
    for each in command.list_commands(ctx):
        if f"{name} {each}" not in programs() and (below := command.get_command(ctx, each)) is not None:
            yield from walk(f"{name} {each}", below)


@cache
def commands() -> Mapping[str, click.Command]:
    return {whole: each for name, command in programs().items() for whole, each in walk(name, command)}


def options(command: click.Command) -> Iterator[click.Option]:
    return (each for each in command.params if isinstance(each, click.Option))


def names(command: click.Command) -> set[str]:
    return {name for option in options(command) for name in option.opts}


def long_name(option: click.Option) -> str:
    return next((name for name in option.opts if name.startswith("--")), option.opts[0])


def test_walk__finds_the_commands() -> None:
    assert {"srd recv", "srd perf client", "srd tunnel listen", "srd compare", "srd-lab up", "efa-bw"} < {*commands()}
    assert len(commands()) > 50


def test_letters__have_one_meaning_and_are_those_of_the_page() -> None:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for command in commands().values():
        for option in options(command):
            for letter in (name for name in option.opts if not name.startswith("--")):
                found[letter].add(long_name(option))
    assert {letter: meanings for letter, meanings in found.items() if len(meanings) > 1} == {}
    listed = dict(re.findall(r"^\| `(-\w)` \| `(-[-\w]+)`", PAGE, re.MULTILINE))
    assert listed == {letter: one for letter, (one,) in ((letter, tuple(found[letter])) for letter in found)}


def test_options__of_one_name_take_one_kind_of_value() -> None:
    found: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for name, command in commands().items():
        for option in options(command):
            kind = "flag" if option.is_flag else type(option.type).__name__
            found[long_name(option)][kind] = name
    differ = {option: kinds for option, kinds in found.items() if len(kinds) > 1 and option not in TWO_KINDS}
    assert differ == {}


@pytest.mark.parametrize("name", [*commands()])
def test_json__of_every_command_that_prints_results(name: str) -> None:
    have = names(commands()[name])
    if name in RUNS_ANOTHER:
        assert not have & {"--json", "--json-lines"}
        return
    assert len(have & {"--json", "--json-lines"}) == 1
    assert ("-J" in have) == ("--json" in have)
    assert f"`{name}`" in PAGE, "docs/commands.md names no keys of its JSON"


@pytest.mark.parametrize("name", [each for each in programs() if " " not in each])
def test_version__says_the_build(name: str) -> None:
    done = CliRunner().invoke(programs()[name], ["--version"])
    assert done.exit_code == 0, done.output
    assert re.match(rf"{name} \S.*, {BUILD}\b", done.output), done.output


def test_targets__have_a_default_port_and_a_fingerprint_where_a_key_is() -> None:
    seen = set()
    for name, command in commands().items():
        for each in command.params:
            if isinstance(each.type, HostPort | TargetAddress):
                seen.add(name)
                is_secure = isinstance(each.type, TargetAddress)
                rest = (None,) if is_secure else ()
                host, port, *_ = each.type.convert("192.0.2.1", each, None)
                assert host == "192.0.2.1"
                assert port or names(command) & {"-p"}, f"{name}: no default port"
                assert each.type.convert("[::1]:7", each, None) == ("::1", 7, *rest), name
                assert each.type.convert("::1", each, None) == ("::1", port, *rest), name
                if is_secure:
                    found = each.type.convert(f"h#{FINGERPRINT}", each, None)
                    assert found == ("h", port, FINGERPRINT), name
            else:
                assert not re.search(r"HOST:PORT|HOST\[", each.metavar or "") or name == "srd send", name
    assert seen > {"srd perf client", "srd tunnel connect", "srd metrics", "srd top", "efa-bw", "efa-pingpong"}


def test_listening__needs_no_argument_and_has_iperf3s_options() -> None:
    listening = [name for name, command in commands().items() if {"-p", "-B"} & names(command)]
    assert {"srd recv", "srd perf server", "srd tunnel listen", "srd-lab metrics", "efa-bw"} < {*listening}
    for name in listening:
        assert {"-p", "--port", "-B", "--bind"} <= names(commands()[name]), name
    required = {name: [each.name for each in commands()[name].params if each.required] for name in listening}
    assert {name: needs for name, needs in required.items() if needs and not name.startswith("srd perf ")} == {
        "srd tunnel listen": ["addresses"],
        "nitro-volume serve": ["directory"],
    }


def test_peers__are_opened_with_the_same_options() -> None:
    opening = [name for name, command in commands().items() if "--plain" in names(command) and name[:4] == "srd "]
    assert len(opening) == 10
    for name in opening:
        wanted = {"--paths", "--trace", "--key", "--busy-poll", "--plain", "--psk-file", "--cert", "--ca"}
        assert wanted <= names(commands()[name]), name
    assert [
        name for name, command in commands().items() if "--paths" in names(command) and name != "srd sim"
    ] == opening


def test_amounts__are_read_by_one_rule_which_the_help_says() -> None:
    seen = set()
    for name, command in commands().items():
        for option in options(command):
            if isinstance(option.type, AMOUNTS):
                seen.add(option.type.name)
                help_text = click.Context(command).get_help() if not option.hidden else ""
                assert LEGEND[option.type.name].partition(":")[0] + ":" in help_text, name
                assert option.type.read("1") == 1, f"{name} {option.opts}: a bare number is in the base unit"
            else:
                is_amount = AMOUNT_NAMES.search(long_name(option))
                is_exempt = option.is_flag or long_name(option) == "--valid-at"
                assert not is_amount or is_exempt or isinstance(option.type, click.types.IntParamType), (
                    f"{name} {option.opts}"
                )
    assert seen == {*LEGEND}


def test_counters__are_called_metrics() -> None:
    words = {name.rpartition(" ")[2] for name in commands()}
    assert not words & {"stats", "statistics", "counters", "discover"}
    assert [name for name in commands() if name.endswith(" metrics")] == [
        "nitro-card metrics", "srd metrics", "srd-lab metrics", "srd tunnel metrics",
    ]  # fmt: skip
