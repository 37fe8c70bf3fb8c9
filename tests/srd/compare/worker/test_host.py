"""The worker as processes over loopback, with each transport: every flow is confirmed, and counted."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from srd.compare.runner import lacking
from srd.compare.worker.host import SRD, TRANSPORTS
from srd.compare.worker.plan import BLOCK_BYTES
from srd.perf.tcp_socket import CUBIC
from tests.srd.cli.processes import Process

HOST = "127.0.0.1"
SIZES = {1: 3 * BLOCK_BYTES + 5, 2: 1, 3: BLOCK_BYTES}
LACKING = lacking()


class Worker:
    """A worker with its stdin."""

    def __init__(self, transport: str, *options: str) -> None:
        argv = [sys.executable, "-m", "srd.compare.worker", "--transport", transport, "--listen", HOST, *options]
        self.process = Process(argv, stdin=subprocess.PIPE)
        self.seen: list[dict[str, Any]] = []

    def event(self, *kinds: str) -> dict[str, Any]:
        """Return the next event of one of these kinds."""
        while (line := self.process.stdout.next()) is not None:
            self.seen.append(json.loads(line))
            if self.seen[-1]["event"] in kinds:
                return self.seen[-1]
        raise AssertionError((kinds, self.seen, self.process.stderr.all()))

    def __enter__(self) -> Self:
        self.process.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.process.popen.stdin is not None:
            self.process.popen.stdin.close()
        self.process.__exit__(kind, error, traceback)

    def say(self, **fields: Any) -> None:
        stdin = self.process.popen.stdin
        assert stdin is not None
        stdin.write(json.dumps(fields) + "\n")
        stdin.flush()

    def end(self) -> dict[str, Any]:
        """End its input; return its account."""
        stdin = self.process.popen.stdin
        assert stdin is not None
        stdin.close()
        return self.event("account")


@contextmanager
def two(transport: str, *options: str) -> Iterator[tuple[Worker, Worker, int]]:
    """Two workers, and the port of the second."""
    sender, receiver = Worker(transport, *options), Worker(transport, *options)
    with sender, receiver:
        sender.event("listening")
        yield sender, receiver, receiver.event("listening")["port"]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_flows__each_is_confirmed(transport: str) -> None:
    if (reason := LACKING.get(transport)) is not None:
        pytest.skip(reason)
    with two(transport) as (sender, receiver, port):
        sender.say(flows=[[number, HOST, port, size, 0.01 * number] for number, size in SIZES.items()], arriving={})
        receiver.say(flows=[], arriving=SIZES)
        for worker in (sender, receiver):
            worker.event("ready")
        start_at = time.monotonic()
        for worker in (sender, receiver):
            worker.say(start_at=start_at)
        sender.event("sent")
        sent, received = sender.end(), receiver.end()
        flows = {event["number"]: event["seconds"] for event in sender.seen if event["event"] == "flow"}
        assert flows.keys() == SIZES.keys()
        assert all(seconds > 0 for seconds in flows.values())
        assert sent["sent"] > 0
        assert received["longest_stall_ms"] > 0
        for worker in (sender, receiver):
            assert worker.process.popen.wait() == 0


def test_flows__what_nobody_expects_ends_the_receiver() -> None:
    with two(SRD) as (sender, receiver, port):
        sender.say(flows=[[1, HOST, port, 10, 0.0]], arriving={})
        receiver.say(flows=[], arriving={1: 9})
        for worker in (sender, receiver):
            worker.event("ready")
            worker.say(start_at=time.monotonic())
        assert receiver.event("failed")["reason"] == "flow 1: more bytes have arrived than it has"
        assert receiver.process.popen.wait() == 1


@pytest.mark.parametrize("transport", [SRD, pytest.param(CUBIC, marks=pytest.mark.root)])  # who may choose cubic
def test_connect__to_nobody_is_one_line(transport: str) -> None:
    with Worker(transport) as worker:
        worker.event("listening")
        worker.say(flows=[[1, HOST, 1, 10, 0.0]], arriving={})
        assert f"{HOST}:1" in worker.event("failed")["reason"]
        assert worker.process.popen.wait() == 1


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("size", [1, 3_000_001])
def test_file__lands_verified(transport: str, size: int, tmp_path: Path) -> None:
    if (reason := LACKING.get(transport)) is not None:
        pytest.skip(reason)
    source, into = tmp_path / "f.bin", tmp_path / "out"
    source.write_bytes(os.urandom(size))
    into.mkdir()
    sender, receiver, _ = copied(source, into, transport=transport, sha256=digest_of(source))
    assert (into / "f.bin").read_bytes() == source.read_bytes()
    assert os.listdir(into) == ["f.bin"]  # noqa: PTH208  names, hidden ones included
    (flow,) = (event for event in sender.seen if event["event"] == "flow")
    assert flow["seconds"] > 0
    assert receiver.seen[-1]["longest_stall_ms"] >= 0


@pytest.mark.root  # who may choose cubic
def test_file__that_differs_is_not_confirmed(tmp_path: Path) -> None:
    source, into = tmp_path / "f.bin", tmp_path / "out"
    source.write_bytes(b"abc")
    into.mkdir()
    sender, _, failed = copied(source, into, transport=CUBIC, sha256="00" * 32)
    assert "its SHA-256 is ba7816bf" in failed["reason"]
    assert not [event for event in sender.seen if event["event"] == "flow"]


@pytest.mark.parametrize("transport", [SRD, pytest.param(CUBIC, marks=pytest.mark.root)])
def test_file__that_cannot_be_written_ends_the_receiver(transport: str, tmp_path: Path) -> None:
    source = tmp_path / "f.bin"
    source.write_bytes(b"abc")
    _, _, failed = copied(source, tmp_path / "nowhere", transport=transport, sha256=digest_of(source))
    assert "nowhere" in failed["reason"] or "f.bin" in failed["reason"]


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def copied(source: Path, into: Path, *, transport: str, sha256: str) -> tuple[Worker, Worker, dict[str, Any]]:
    """Copy a file; return both workers, and the sender's last account or how the receiver has failed."""
    options = ("--file", str(source), "--into", str(into), "--sha256", sha256)
    size = source.stat().st_size
    with two(transport, *options) as (sender, receiver, port):
        sender.say(flows=[[1, HOST, port, size, 0.0]], arriving={})
        receiver.say(flows=[], arriving={1: size})
        for worker in (sender, receiver):
            worker.event("ready")
            worker.say(start_at=time.monotonic())
        is_sent = sender.event("sent", "failed")["event"] == "sent"
        last = sender.end() if is_sent else receiver.event("failed")
        if is_sent:
            while receiver.event("progress")["bytes"] < size:
                pass
            receiver.end()
        return sender, receiver, last
