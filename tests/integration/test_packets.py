"""A transfer over a lossy lab, captured into a pipe and read by tshark with the dissector while it runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from netns.lab.lab import Lab
from netns.netem.shape import Shape
from netns.topology.model import leaf_spine
from srd.proto.wire.data import DEFAULT_PORT, PacketType
from tests.patience import PATIENCE_S
from tests.srd.cli.processes import Process, command
from tests.srd.contrib.tshark import DISSECTOR, FIRST
from tests.srd.loopback import content

pytestmark = [pytest.mark.root, pytest.mark.long]
SHAPE = Shape(delay_us=500, rate_bps=250_000_000, loss_percent=10)
FIELDS = ("srd.type", "srd.stream", "srd.malformed", "srd.analysis.retransmission_of", "srd.analysis.duplicate_of")


def test_transfer__is_understood_by_tshark(tmp_path: Path) -> None:
    (tmp_path / "output").mkdir()
    (tmp_path / "file").write_bytes(content(1_000_000, seed=1))
    with Lab.up(leaf_spine(name=f"tp{os.getpid()}", spines=2, shape=SHAPE), backend="relay") as lab:
        target = f"{lab.address('h2')}:{DEFAULT_PORT}"
        recording = [sys.executable, "-m", "netns", "capture", "--lab", lab.name, "h1-leaf1", "-o", "-"]
        with subprocess.Popen(recording, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as capture:
            assert capture.stderr is not None
            assert capture.stderr.readline() == "capturing h1-leaf1 into -\n"
            fields = [part for field in FIELDS for part in ("-e", field)]
            dissector = ["-X", f"lua_script:{DISSECTOR}", *FIRST]
            reading = ["tshark", *dissector, "-r", "-", "-Y", "udp && !icmp", "-T", "fields", *fields]
            with subprocess.Popen(reading, stdin=capture.stdout, stdout=subprocess.PIPE, text=True) as reader:
                transfer(lab, target, tmp_path)
                capture.send_signal(signal.SIGINT)
                shown, _ = reader.communicate(timeout=PATIENCE_S)
            assert capture.stderr.read().endswith(" packets in -, 0 dropped by the recording\n")
            assert capture.wait(PATIENCE_S) == 0
    rows = [line.split("\t") for line in shown.splitlines()]
    kinds = Counter(PacketType(int(row[0])).name for row in rows)
    assert kinds["DATA"] > 110
    assert kinds["ACK"] > 10
    assert {row[1] for row in rows} == {"0"}, "one conversation"
    assert not any(row[2] for row in rows), "none is malformed"
    assert any(row[3] for row in rows), "10 % were lost"
    assert not any(row[4] for row in rows), "the lab duplicates nothing"


def transfer(lab: Lab, target: str, directory: Path) -> None:
    """Send a file from h1 to h2; return when it is there."""
    output = directory / "output"
    receiving = command("recv", "-B", lab.address("h2"), "--output", str(output), "--once", "--json-lines", "--plain")
    with Process(lab.command("h2", receiving)) as receiver:
        receiver.event("listening")
        sending = command("send", str(directory / "file"), target, "--json-lines", "--plain")
        with Process(lab.command("h1", sending)) as sender:
            assert sender.wait() == 0
        assert receiver.wait() == 0
    assert (output / "file").read_bytes() == (directory / "file").read_bytes()
