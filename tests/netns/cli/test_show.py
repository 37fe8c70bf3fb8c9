"""netns.cli.show: the output."""

from __future__ import annotations

from typing import Any

import pytest

from netns.cli.show import show_lab, show_labs

LAB: dict[str, Any] = {
    "name": "demo",
    "backend": "relay",
    "reason": "requested",
    "phase": "up",
    "problems": ["the relay (process 7) is dead"],
    "notes": ["this kernel has no x"],
    "mtu": 9000,
    "seed": 1,
    "hosts": {
        "h1": {
            "netns": "demo-h1",
            "address": "10.0.1.1",
            "address6": "fd53:5244:0:1::1",
            "switch": "leaf1",
            "pinned": {"spine1": "10.101.1.1"},
        }
    },
    "switches": {"leaf1": {}},
    "links": {"h1-leaf1": {"a": "h1", "b": "leaf1", "dead": False, "ab": None, "ba": None}},
    "relay": {"pid": 7},
    "owner": {"pid": 8},
    "processes": [{"pid": 9, "command": "iperf3", "netns": "demo-h1"}],
}


def test_show_lab__what_is_derived(capsys: pytest.CaptureFixture[str]) -> None:
    link = {"a": "a", "b": "b", "dead": False, "ab": "limit 5 rate 1mbit", "ba": "limit 5 rate 1mbit"}
    show_lab({**LAB, "links": {"a-b": {**link, "derived": {"ab": ["limit"]}}}})
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "a-b up a to b limit 5 rate 1mbit (derived: limit)" in lines
    assert "b to a limit 5 rate 1mbit" in lines


def test_show_lab__everything_once(capsys: pytest.CaptureFixture[str]) -> None:
    show_lab(LAB)
    text = capsys.readouterr().out
    for line in (
        "lab demo: up, MTU 9000, seed 1",
        "backend: relay (requested)",
        "problem: the relay (process 7) is dead; remove the rest: srd-lab down --lab demo",
        "note: this kernel has no x",
        "relay: process 7",
        "owner: process 8",
        "running in demo-h1: 9 iperf3",
    ):
        assert line in text.splitlines()
    assert "10.0.1.1 fd53:5244:0:1::1" in text
    assert "10.101.1.1" in text


def test_show_lab__healthy_kernel_lab(capsys: pytest.CaptureFixture[str]) -> None:
    show_lab(LAB | {"relay": None, "owner": None, "problems": [], "notes": [], "processes": []})
    assert "process" not in capsys.readouterr().out


def test_show_labs(capsys: pytest.CaptureFixture[str]) -> None:
    show_labs([LAB, LAB | {"name": "other", "problems": []}])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["lab", "demo", "other"]
    assert lines[1].rstrip().endswith("the relay (process 7) is dead")
    assert lines[2].split()[-1] == "up"
    dead = {"links": {"h1-leaf1": LAB["links"]["h1-leaf1"] | {"dead": True}}}
    show_labs([LAB | dead | {"problems": []}])
    assert capsys.readouterr().out.rstrip().endswith("up, 1 link dead")
    show_labs([])
    assert capsys.readouterr().out == "no lab is up; build one: srd-lab up reference\n"
