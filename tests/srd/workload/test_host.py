"""The worker as processes over loopback, with each transport: every flow is confirmed, and counted."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import pytest

from srd.perf.tcp_socket import BBR, CUBIC, why_unavailable
from srd.workload.host import MPTCP, SRD, TRANSPORTS
from srd.workload.plan import BLOCK_BYTES
from tests.programs import run_to_end
from tests.srd.cli.processes import Process

HOST = "127.0.0.1"
SIZES = {1: 3 * BLOCK_BYTES + 5, 2: 1, 3: BLOCK_BYTES}
LACKING = {
    CUBIC: why_unavailable(algorithm=CUBIC, mptcp=False),
    BBR: why_unavailable(algorithm=BBR, mptcp=False),
    MPTCP: why_unavailable(algorithm=CUBIC, mptcp=True),
}


class Worker:
    """A worker with its stdin."""

    def __init__(self, transport: str) -> None:
        argv = [sys.executable, "-m", "srd.workload", "--transport", transport, "--listen", HOST]
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
def two(transport: str) -> Iterator[tuple[Worker, Worker, int]]:
    """Two workers, and the port of the second."""
    sender, receiver = Worker(transport), Worker(transport)
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


def test_check__names_what_is_missing() -> None:
    done = run_to_end([sys.executable, "-m", "srd.workload", "--check"], check=True)
    found = json.loads(done.stdout)
    assert found["unavailable"] == {key: reason for key, reason in LACKING.items() if reason is not None}
    assert found["environment"].keys() == {"open-srd", "numpy", "uvloop"}
    assert all(found["environment"].values())
