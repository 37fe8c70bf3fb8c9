"""`nitro-vpc`: what the file means, and a control plane with cards as processes of their own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from netns.base.files import write_whole
from nitro_emu.cli.vpc import cli
from nitro_emu.examples import DIRECTORY as EXAMPLES
from nitro_emu.trust.key_files import make_key_files
from tests.nitro_emu.vpc import fake_card
from tests.nitro_emu.vpc.maps import interface, two_vpcs
from tests.srd.cli.processes import Process, run_here

ROOT = Path(__file__).resolve().parents[3]
Called = Callable[..., subprocess.CompletedProcess[str]]
Content = dict[str, Any]


@pytest.fixture
def called(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Called:
    """Run the command line in this process, for commands that end by themselves."""

    def call(*arguments: object) -> subprocess.CompletedProcess[str]:
        words = [str(argument) for argument in arguments]
        return run_here(cli, ["nitro-vpc", *words], capsys=capsys, patch=monkeypatch)

    return call


def fails(result: subprocess.CompletedProcess[str], *, status: int, error: str) -> None:
    assert (result.returncode, result.stdout) == (status, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("nitro-vpc: ")
    assert error in line


# -- check ------------------------------------------------------------------------------------------------------


def test_check_of_the_example(called: Called) -> None:
    result = called("check", EXAMPLES / "vpc.yaml")
    assert (result.returncode, result.stderr) == (0, "")
    head, *rows, empty, total = result.stdout.splitlines()
    assert head.split() == ["from", "to", "may", "talk", "reason"]
    assert rows[0].split() == ["red/red-1", "red/red-2", "yes"]
    assert rows[1].rstrip().split(maxsplit=3) == [
        "red/red-1",
        "green/green-1",
        "no",
        "peering: red and green are not peered",
    ]
    assert "green/green-1  green/green-2  no        group: no egress rule" in result.stdout
    assert (len(rows), empty) == (12, "")
    assert total == "2 of 12 pairs may talk; traffic between cards is always encrypted"


def test_check_as_json(called: Called) -> None:
    found = json.loads(called("check", "vpc", "--json", "--from", "red-1").stdout)
    assert [(pair["to"], pair["allowed"]) for pair in found["pairs"]] == [
        ("red/red-2", True),
        ("green/green-1", False),
        ("green/green-2", False),
    ]
    assert found["pairs"][0] == {"from": "red/red-1", "to": "red/red-2", "allowed": True, "reason": None}


def test_check_explains_a_pair_that_may_talk(called: Called) -> None:
    result = called("check", EXAMPLES / "vpc.yaml", "--from", "red-1", "--to", "red/red-2")
    assert result.stdout.splitlines() == [
        "from  name=red/red-1 address=172.31.0.5 groups=efa card=card-a card_address=10.0.1.1 port=19875 region=local",
        "to    name=red/red-2 address=172.31.0.6 groups=efa card=card-b card_address=10.0.2.1 port=19875 region=local",
        "may talk",
        "  egress of red/red-1: group efa allows all with group red/efa",
        "  ingress of red/red-2: group efa allows all with group red/efa",
        "  EFA's rule: red/red-1 has group efa, which allows all to and from itself",
        "  EFA's rule: red/red-2 has group efa, which allows all to and from itself",
    ]


def test_check_explains_a_pair_that_may_not(called: Called) -> None:
    result = called("check", EXAMPLES / "vpc.yaml", "--from", "red-1", "--to", "green-1")
    assert result.stdout.splitlines()[2:] == ["may not talk: peering: red and green are not peered"]
    found = json.loads(called("check", EXAMPLES / "vpc.yaml", "--from", "red-1", "--to", "green-1", "--json").stdout)
    assert (found["allowed"], found["reason"], found["grounds"]) == (False, "peering: red and green are not peered", [])
    assert found["to"]["address"] == "172.31.0.5"


def test_check_of_a_name_that_is_not_there(called: Called) -> None:
    fails(
        called("check", EXAMPLES / "vpc.yaml", "--from", "blue-1"),
        status=1,
        error="--from blue-1: no such interface; there are red/red-1, red/red-2, green/green-1, green/green-2",
    )


def test_check_of_a_name_in_two_vpcs(called: Called, tmp_path: Path) -> None:
    content = two_vpcs()
    content["vpcs"]["green"]["interfaces"]["red-1"] = content["vpcs"]["green"]["interfaces"].pop("green-1")
    path = write(tmp_path / "vpc.yaml", content)
    fails(
        called("check", path, "--to", "red-1"),
        status=1,
        error="--to red-1: more than one has that name; give red/red-1 or green/red-1",
    )
    assert called("check", path, "--to", "green/red-1").returncode == 0


def test_check_of_a_broken_file(called: Called, tmp_path: Path) -> None:
    content = two_vpcs()
    content["vpcs"]["red"]["interfaces"]["red-2"]["card"] = "card-9"
    path = write(tmp_path / "vpc.yaml", content)
    wanted = f"{path}: vpcs.red.interfaces.red-2.card: card-9: no such card; there are card-1, card-2"
    fails(called("check", path), status=1, error=wanted)


def test_check_of_many_interfaces_asks_for_one(called: Called, tmp_path: Path) -> None:
    content = two_vpcs()
    content["vpcs"]["red"]["interfaces"] = {
        f"i{number}": interface(f"172.31.0.{number}", port=number) for number in range(1, 102)
    }
    path = write(tmp_path / "vpc.yaml", content)
    fails(called("check", path), status=1, error="has more than 10000 pairs; name one interface with --from")
    assert len(called("check", path, "--from", "i1").stdout.splitlines()) == 105


def test_empty_map(called: Called, tmp_path: Path) -> None:
    path = write(tmp_path / "vpc.yaml", {"lifetime_s": 5})
    assert called("check", path).stdout == "0 of 0 pairs may talk; traffic between cards is always encrypted\n"
    fails(called("check", path, "--from", "x"), status=1, error="no such interface; there are none")


@pytest.mark.installed  # has the version
def test_usage(called: Called) -> None:
    assert called().returncode == called("check").returncode == called("serve", "x").returncode == 2
    assert called("push", "x", "--key").returncode == 2
    assert called("--version").stdout.startswith("nitro-vpc")


# -- keys and one push ------------------------------------------------------------------------------------------


def write(path: Path, content: Content) -> Path:
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def test_make_key(called: Called, tmp_path: Path) -> None:
    key = tmp_path / "control.pem"
    result = called("make-key", key)
    assert result.stdout == f"nitro-vpc: {key} is the private key; give cards {tmp_path / 'control.pub.pem'}\n"
    fails(called("make-key", key), status=1, error="control.pem: exists; remove it first, or give another name")


def test_key_that_others_may_read_is_refused(called: Called, tmp_path: Path) -> None:
    key = tmp_path / "control.pem"
    make_key_files(key)
    key.chmod(0o644)
    path = write(tmp_path / "vpc.yaml", two_vpcs())
    fails(called("serve", path, "--key", key), status=1, error="others may use it (mode 644); run: chmod go")


@contextmanager
def card(address: Path | str, key: Path) -> Iterator[tuple[Process, str]]:
    """A fake card as a process; gives it and its address."""
    public = key.with_name("control.pub.pem")
    argv = [sys.executable, "-m", fake_card.__name__, str(address), str(public)]
    with Process(argv) as process:
        yield process, process.event("listening")["address"]


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "control.pem"
    make_key_files(path)
    return path


@pytest.fixture
def content(tmp_path: Path) -> Content:
    """A map whose cards listen in a directory of this test."""
    made = two_vpcs()
    for name in ("card-1", "card-2"):
        made["cards"][name]["push"] = str(tmp_path / f"{name}.sock")
    return made


def test_push_to_a_socket_and_over_tcp(called: Called, tmp_path: Path, key: Path, content: Content) -> None:
    with card(tmp_path / "card-1.sock", key) as (one, _), card("127.0.0.1:0", key) as (two, address):
        content["cards"]["card-2"]["push"] = address
        path = write(tmp_path / "vpc.yaml", content)
        result = called("push", path, "--key", key)
        version = one.event("document")["version"]
        assert two.event("document")["version"] == version
        assert result.returncode == 0
        assert result.stdout.splitlines() == [
            f"nitro-vpc: card-1: accepted edition 1 (version {version})",
            f"nitro-vpc: card-2: accepted edition 1 (version {version})",
        ]


def test_push_fails_if_a_card_has_not_accepted(called: Called, tmp_path: Path, key: Path, content: Content) -> None:
    other = tmp_path / "other" / "control.pem"
    other.parent.mkdir()
    make_key_files(other)
    path = write(tmp_path / "vpc.yaml", content)
    with card(tmp_path / "card-1.sock", other):
        result = called("push", path, "--key", key, "--json-lines")
    assert result.returncode == 1
    one, two = [json.loads(line) for line in result.stdout.splitlines()]
    assert (one["card"], one["state"]) == ("card-1", "refused")
    assert "signature does not verify" in one["reason"]
    assert (two["card"], two["state"], two["version"]) == ("card-2", "unreachable", 0)


# -- serve ------------------------------------------------------------------------------------------------------


def serve(path: Path, key: Path, *options: str) -> Process:
    return Process([sys.executable, "-m", "nitro_emu.cli.vpc", "serve", str(path), "--key", str(key), *options])


def accepted(plane: Process, name: str, *, edition: int) -> dict[str, Any]:
    """Skip the events before a card has accepted this edition of the map."""
    while True:
        event = plane.event("card")
        if (event["card"], event["state"], event["edition"]) == (name, "accepted", edition):
            return event


def test_serve_until_a_signal(tmp_path: Path, key: Path, content: Content) -> None:
    path = write(tmp_path / "vpc.yaml", content)
    with card(tmp_path / "card-1.sock", key) as (one, _), serve(path, key) as plane:
        ready = f"nitro-vpc: serves {path}: 2 cards, 2 vpcs, 4 interfaces, pushed every 20 s and at each change"
        assert plane.stdout.next() == ready
        version = one.event("document")["version"]
        lines = {plane.stdout.next(), plane.stdout.next()}
        assert f"nitro-vpc: card-1: accepted edition 1 (version {version})" in lines
        assert "nitro-vpc: card-2: unreachable: no card answers there (No such file or directory)" in lines
        plane.kill(signal.SIGINT)
        assert plane.wait() == 0
        assert plane.stderr.all() == []


def test_serve_follows_edits(tmp_path: Path, key: Path, content: Content) -> None:
    path = write(tmp_path / "vpc.yaml", content)
    with card(tmp_path / "card-1.sock", key) as (one, _), serve(path, key, "--json-lines") as plane:
        ready = plane.event("ready")
        assert (ready["cards"], ready["interfaces"], ready["every_s"]) == (2, 4, 20)
        first = one.event("document")
        assert first["vpcs"] == {"red": ["red-1", "red-2"], "green": ["green-1", "green-2"]}
        accepted(plane, "card-1", edition=1)

        del content["vpcs"]["red"]["interfaces"]["red-2"]
        write_in_place(path, content)
        second = one.event("document")
        assert second["vpcs"]["red"] == ["red-1"]
        assert second["version"] > first["version"]
        assert accepted(plane, "card-1", edition=2)["version"] == second["version"]

        del content["vpcs"]["green"]  # by another file in its place
        write(tmp_path / "new.yaml", content).rename(path)
        assert one.event("document")["vpcs"] == {"red": ["red-1"]}
        accepted(plane, "card-1", edition=3)

        good = path.read_text()
        write_whole(path, good.replace("172.31.0.5", "10.9.9.9").encode())
        error = json.loads(logged(plane, "error"))
        wanted = f"{path}: vpcs.red.interfaces.red-1.address: 10.9.9.9 is not in subnet a (172.31.0.0/24); give an addr"
        assert error["message"].startswith(wanted)
        plane.kill(signal.SIGHUP)
        assert json.loads(logged(plane, "error")) | {"time_s": 0} == error | {"time_s": 0}

        write_whole(path, good.encode())
        plane.kill(signal.SIGHUP)
        assert one.event("document")["vpcs"] == {"red": ["red-1"]}
        accepted(plane, "card-1", edition=4)
        plane.kill(signal.SIGTERM)
        assert plane.wait() == 0


def write_in_place(path: Path, content: Content) -> None:
    """Write what is shorter than before, in one step: whoever looks between two of them finds half of a file."""
    text = yaml.safe_dump(content, sort_keys=False).encode()
    with path.open("r+b", buffering=0) as file:
        file.write(text.ljust(path.stat().st_size, b"\n"))


def logged(plane: Process, level: str) -> str:
    return plane.line(f'"level": "{level}"')


def test_control_plane_after_a_killed_one_sends_newer_versions(tmp_path: Path, key: Path, content: Content) -> None:
    path = write(tmp_path / "vpc.yaml", content)
    with card(tmp_path / "card-1.sock", key) as (one, _):
        versions = []
        for _ in range(2):
            with serve(path, key, "--json-lines") as plane:
                accepted(plane, "card-1", edition=1)
                versions.append(one.event("document")["version"])
                plane.kill(signal.SIGKILL)
                plane.wait()
        assert versions[1] > versions[0]


@pytest.mark.parametrize("command", ["serve", "push"])
def test_without_a_key_it_says_how_to_make_one(tmp_path: Path, called: Called, content: Content, command: str) -> None:
    path, key = write(tmp_path / "vpc.yaml", content), tmp_path / "control.pem"
    error = f"nitro-vpc: {key}: is not there; nitro-vpc make-key {key} makes a key"
    fails(called(command, path, "--key", key), status=1, error=error)


def test_serve_of_a_broken_file_is_one_line(tmp_path: Path, key: Path, called: Called) -> None:
    path = tmp_path / "vpc.yaml"
    path.write_text("vpcs: {red: {id: 1}}")
    fails(called("serve", path, "--key", key), status=1, error=f"{path}: vpcs.red.subnets: missing")
    fails(called("serve", tmp_path / "none", "--key", key), status=1, error="none: cannot be read: No such file")


def test_reader_that_leaves_ends_it(tmp_path: Path, key: Path, content: Content) -> None:
    path = write(tmp_path / "vpc.yaml", content)
    argv = [sys.executable, "-m", "nitro_emu.cli.vpc", "serve", str(path), "--key", str(key)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as plane:
        assert plane.stdout is not None
        plane.stdout.close()
        assert plane.stderr is not None
        assert plane.stderr.read() == "nitro-vpc: the output was closed by its reader\n"
        assert plane.wait() == 1
