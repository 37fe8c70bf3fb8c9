"""`srd-lab set`, `fail`, `repair`, `run-schedule`, `capture`, `verify`, on one lab over the relay."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from netns.faults.faults import active
from netns.lab.lab import Lab
from netns.netem.shape import Shape
from netns.topology.model import leaf_spine
from tests.netns.cli.srd_lab import srd_lab
from tests.patience import PATIENCE_S, wait_until

SHAPE = Shape(delay_us=100, rate_bps=10**9, limit_packets=50)
pytestmark = [pytest.mark.root, pytest.mark.lab(leaf_spine(spines=2, shape=SHAPE), backend="relay", scope="module")]


def test_set__changes_named_properties_and_prints_the_shape(lab: Lab) -> None:
    done = srd_lab("set", "--lab", lab.name, "leaf1-spine1", "--direction", "ab", "delay=2ms", "loss=gemodel 1% 10%")
    assert done.stdout.splitlines() == [
        "leaf1 to spine1: limit 50 delay 2ms loss gemodel 1% 10% 100% 0% rate 1gbit",
        "spine1 to leaf1: limit 50 delay 100us rate 1gbit",
    ]
    assert lab.shapes("leaf1-spine1")["ba"] == SHAPE
    assert srd_lab("set", "--lab", lab.name, "leaf1-spine1", "delay=100us", "loss=0").returncode == 0
    assert set(lab.shapes("leaf1-spine1").values()) == {SHAPE}


def test_links__have_their_ends_in_either_order(lab: Lab) -> None:
    """Directions are those of the name as given: ab is from spine1 to leaf1 in spine1-leaf1."""
    done = srd_lab("set", "--lab", lab.name, "spine1-leaf1", "--direction", "ab", "delay=3ms")
    assert done.stdout.splitlines() == [
        "spine1 to leaf1: limit 50 delay 3ms rate 1gbit",
        "leaf1 to spine1: limit 50 delay 100us rate 1gbit",
    ]
    assert lab.shapes("leaf1-spine1") == {"ab": SHAPE, "ba": replace(SHAPE, delay_us=3000)}
    assert srd_lab("set", "--lab", lab.name, "leaf1-spine1", "delay=100us").returncode == 0
    assert srd_lab("fail", "--lab", lab.name, "leaf1-spine2").returncode == 0
    assert srd_lab("repair", "--lab", lab.name, "spine2-leaf1").stdout == "leaf1-spine2 is repaired\n"
    assert srd_lab("fail", "--lab", lab.name, "spine2-leaf1").returncode == 0
    assert srd_lab("repair", "--lab", lab.name, "leaf1-spine2").stdout == "leaf1-spine2 is repaired\n"


def test_capture__by_the_other_name_and_not_one_packet_more(lab: Lab, tmp_path: Path) -> None:
    path = tmp_path / "x.pcapng"
    command = [sys.executable, "-m", "netns", "capture", "--lab", lab.name, "spine1-leaf1", "-o", str(path), "-c", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == f"capturing spine1-leaf1 into {path}\n"
        assert srd_lab("verify", "--lab", lab.name, "-4", "h1", "h2", "--ports", "32").returncode == 0
        output, _ = process.communicate(timeout=PATIENCE_S)
    assert output == f"1 packet in {path}, 0 dropped by the recording\n"


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("set", "leaf1-spine9", "delay=1ms"), 2, "link leaf1-spine9: no such link in "),
        (("set", "leaf1-spine1", "loss=120%"), 2, "loss: 120 % is not between 0 % and 100 %"),
        (("set", "h1-leaf1", "delay=1ms"), 1, "link h1-leaf1: it is not shaped, and only a shaped link can be changed"),
        (("fail", "spine9"), 2, "spine9: neither a link nor a node of "),
        (("fail", "spine1", "--for", "2x"), 2, "2x is not a time: give a unit"),
        (("repair", "spine1"), 1, "spine1: was not made to fail; dead now: nothing"),
        (("repair",), 2, "give LINK|NODE or --all, one of the two"),
        (("run-schedule", "/no/such.yaml"), 2, "/no/such.yaml: No such file or directory"),
        (("capture", "spine1", "-o", "/dev/null"), 2, "link spine1: no such link"),
        (("capture", "leaf1-spine1", "-o", "/dev/full"), 1, "/dev/full: exists already; name another, or overwrite"),
        (("capture", "leaf1-spine1", "-o", "/dev/full", "--overwrite"), 1, "/dev/full: is no capture of srd-lab's"),
        (("fail", "spine1", "--at", "1e99s"), 2, "1e99s is too long; at most 2592000 s"),
        (("verify", "h1", "h9"), 2, "host h9: no such host in "),
        (("verify", "-6", "h1", "h2"), 2, "has no IPv6 addresses; set ipv6: true in its file"),
        (("verify", "h1", "h1"), 1, "h1 and h1: no spine lies between them"),
    ],
)
def test_bad_flow_is_one_line(lab: Lab, arguments: tuple[str, ...], status: int, message: str) -> None:
    done = srd_lab(arguments[0], "--lab", lab.name, *arguments[1:])
    assert (done.returncode, message in done.stderr) == (status, True), done.stderr
    assert "Traceback" not in done.stderr


def test_fail_and_repair(lab: Lab) -> None:
    done = srd_lab("fail", "--lab", lab.name, "spine1")
    assert done.stdout == f"spine1 is dead (2 links); repair it: srd-lab repair --lab {lab.name} spine1\n"
    found = srd_lab("verify", "--lab", lab.name, "h1", "h2", "-4", "--ports", "8", "--json")
    assert found.returncode == 1
    answer = json.loads(found.stdout)
    assert answer["paths"][0]["shares"] == {"spine1": 0, "spine2": 1}
    assert srd_lab("repair", "--lab", lab.name, "--all").stdout == "spine1 is repaired\n"
    again = json.loads(
        srd_lab("verify", "--lab", lab.name, "-4", "h1", "h2", "--ports", "32", "--counters", "--json").stdout
    )
    (path,) = again["paths"]
    assert sum(count["seen"] for count in path["counters"].values()) == 4 * 32
    assert not again["problems"]
    assert set(path["ports"].values()) == {"spine1", "spine2"}


def test_fail__with_its_carrier(lab: Lab) -> None:
    shown = lab.command("leaf1", ["ip", "link", "show", "dev", "spine1"])
    assert srd_lab("fail", "--lab", lab.name, "leaf1-spine1", "--carrier").returncode == 0
    wait_until(lambda: "NO-CARRIER" in subprocess.check_output(shown, text=True))
    assert srd_lab("repair", "--lab", lab.name, "leaf1-spine1").stdout == "leaf1-spine1 is repaired\n"
    wait_until(lambda: "NO-CARRIER" not in subprocess.check_output(shown, text=True))


def test_fail__for_a_while_interrupted_repairs_at_once(lab: Lab) -> None:
    command = [sys.executable, "-m", "netns", "fail", "--lab", lab.name, "spine1", "--for", "60s"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        wait_until(lambda: active(lab))
        assert [failure.name for failure in active(lab)] == ["spine1"]
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
    assert not active(lab)


def test_play(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text("events: [{at: 10ms, fail: leaf1-spine2, for: 10ms}]")
    done = srd_lab("run-schedule", "--lab", lab.name, str(tmp_path / "plan.yaml"))
    assert [line.split("s  ", 1)[1] for line in done.stdout.splitlines()] == [
        "fail leaf1-spine2 for 0.01 s",
        "over: fail leaf1-spine2 for 0.01 s",
    ]


def test_capture__until_interrupted(lab: Lab, tmp_path: Path) -> None:
    path = tmp_path / "x.pcapng"
    command = [sys.executable, "-m", "netns", "capture", "--lab", lab.name, "leaf1-spine1", "-o", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == f"capturing leaf1-spine1 into {path}\n"
        assert srd_lab("verify", "--lab", lab.name, "-4", "h1", "h2", "--ports", "8").returncode == 0
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    count = int(output.split()[0])
    assert output == f"{count} packets in {path}, 0 dropped by the recording\n"
    assert count > 0
