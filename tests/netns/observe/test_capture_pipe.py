"""`srd-lab capture -o -`: a pipe to tshark, in order of time, with a clean end whoever ends first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from netns.lab.lab import Lab
from netns.netem.shape import Shape
from netns.topology.model import leaf_spine
from tests.netns.observe.test_capture import ping_pong
from tests.patience import PATIENCE_S

pytestmark = [
    pytest.mark.root,
    pytest.mark.lab(leaf_spine(spines=1, shape=Shape(delay_us=200)), backend="relay", scope="module"),
]
COLUMNS = ("-T", "fields", "-e", "frame.time_epoch", "-e", "frame.interface_name", "-e", "data.data")
"""What tshark prints of each packet."""


@contextmanager
def capturing(lab: Lab, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command, with its output in a pipe; yield when it records."""
    command = [sys.executable, "-m", "netns", "capture", "--lab", lab.name, "leaf1-spine1", "-o", "-", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == b"capturing leaf1-spine1 into -\n"
        yield process


def tshark(process: subprocess.Popen[bytes], *options: str) -> subprocess.Popen[str]:
    """Start tshark on what the command writes; this process keeps no end of the pipe."""
    assert process.stdout is not None
    reader = subprocess.Popen(
        ["tshark", "-r", "-", "-l", *options, *COLUMNS], stdin=process.stdout, stdout=subprocess.PIPE, text=True
    )
    process.stdout.close()
    return reader


def said(process: subprocess.Popen[bytes]) -> str:
    """Return the command's last words; it must have ended well."""
    assert process.stderr is not None
    words = process.stderr.read().decode()
    assert process.wait(PATIENCE_S) == 0, words
    return words


@pytest.mark.long
def test_pipe__shows_packets_while_they_arrive_and_in_order(lab: Lab) -> None:
    with capturing(lab) as process, tshark(process) as reader:
        ping_pong(lab, 40)
        assert reader.stdout is not None
        rows = [reader.stdout.readline().rstrip("\n").split("\t") for _ in range(80)]  # before the end: it is flushed
        process.send_signal(signal.SIGINT)
        assert said(process) == "80 packets in -, 0 dropped by the recording\n"
        assert reader.wait(PATIENCE_S) == 0
    times = [row[0] for row in rows]
    assert times == sorted(times)
    words = [bytes.fromhex(row[2]).decode() for row in rows]
    assert words == [f"{word}{number}" for number in range(40) for word in ("ping", "pong")], "by turns"
    assert [row[1] for row in rows[:2]] == ["leaf1>spine1", "spine1>leaf1"]


@pytest.mark.long
def test_pipe__exactly_so_many_packets(lab: Lab) -> None:
    with capturing(lab, "-c", "7") as process, tshark(process) as reader:
        ping_pong(lab, 10)
        assert said(process) == "7 packets in -, 0 dropped by the recording\n"
        assert reader.stdout is not None
        assert len(reader.stdout.readlines()) == 7
        assert reader.wait(PATIENCE_S) == 0


@pytest.mark.long
def test_pipe__its_reader_ends_first(lab: Lab) -> None:
    with capturing(lab) as process, tshark(process, "-c", "3") as reader:
        ping_pong(lab, 10)
        assert reader.wait(PATIENCE_S) == 0
        assert said(process).endswith(" packets in -, 0 dropped by the recording\n")


def test_pipe__its_reader_ends_and_no_packet_follows(lab: Lab) -> None:
    with capturing(lab) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert said(process) == "0 packets in -, 0 dropped by the recording\n"


def test_pipe__a_terminal_and_no_output_bad_flow(lab: Lab) -> None:
    command = [sys.executable, "-m", "netns", "capture", "--lab", lab.name, "leaf1-spine1", "-o", "-"]
    master, terminal = os.openpty()
    try:
        done = subprocess.run(command, stdout=terminal, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(master)
        os.close(terminal)
    message = "srd-lab: -: the standard output is a terminal; pipe it to a reader, as in: | tshark -r -\n"
    assert (done.returncode, done.stderr) == (1, message)
