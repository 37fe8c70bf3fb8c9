"""One transfer over a veth pair: two processes, and their results."""

from __future__ import annotations

import signal
import sys
import time
from dataclasses import dataclass
from typing import Any, Final

from scripts.benches.devmem.host import WARM
from scripts.harness.errors import BenchError
from scripts.harness.process import ManagedProcess, ProcessSet
from scripts.harness.veth_pair import RECEIVER, SENDER, VethPair

_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Transfer:
    """The results of both ends."""

    sent: dict[str, Any]
    received: dict[str, Any]

    @property
    def goodput_bps(self) -> float:
        """Goodput of the messages after the warm-up, at the receiver."""
        return float(self.received["bytes"]) * 8 / float(self.received["seconds"])

    @property
    def cpu_s_per_gb(self) -> float:
        """CPU seconds of both ends per 10^9 bytes."""
        return 1e9 * sum(float(end["cpu_seconds"]) / float(end["bytes"]) for end in (self.sent, self.received))

    @property
    def bytes_copied(self) -> int:
        """Bytes copied, as counted by both ends."""
        return int(self.sent["bytes_copied"]) + int(self.received["bytes_copied"])


def transfer(method: str, two: VethPair, *, seconds: float) -> Transfer:
    """Transfer messages for `seconds` (0: only the warm-up). Raises BenchError if an end fails, or drops packets."""
    with ProcessSet() as pipes:
        receiver = _start(pipes, two, RECEIVER, [method, "receive", two.receiver])
        port = _await(pipes, receiver, "listening")["port"]
        sender = _start(pipes, two, SENDER, [method, "send", two.receiver, str(port), str(seconds)])
        sent = _await(pipes, sender, "sent", timeout_s=_TIMEOUT_S + seconds)
        received = _await(pipes, receiver, "received")
    if dropped := received.get("dropped_packets"):
        raise BenchError(f"{method}: this host dropped {dropped} packets; it is too busy to measure on")
    if received["messages"] < WARM or received["messages"] != sent["messages"]:
        raise BenchError(f"{method}: {sent['messages']} messages were sent, {received['messages']} received")
    return Transfer(sent, received)


def is_killed(method: str, two: VethPair) -> bool:
    """Whether the guard kills the receiver of this method (SIGSEGV) when data has arrived."""
    with ProcessSet() as pipes:
        receiver = _start(pipes, two, RECEIVER, [method, "receive", two.receiver])
        port = _await(pipes, receiver, "listening")["port"]
        _start(pipes, two, SENDER, [method, "send", two.receiver, str(port), "0"])
        give_up_at = time.monotonic() + _TIMEOUT_S
        while receiver.exit_status is None and time.monotonic() < give_up_at:
            pipes.wait(until=time.monotonic() + 0.05)
        return receiver.exit_status == -signal.SIGSEGV


def _start(pipes: ProcessSet, two: VethPair, node: str, arguments: list[str]) -> ManagedProcess:
    command = [sys.executable, "-m", "scripts.benches.devmem.host", *arguments]
    return pipes.add(ManagedProcess.start(" ".join(arguments[:2]), command=two.command(node, command)))


def _await(pipes: ProcessSet, child: ManagedProcess, wanted: str, *, timeout_s: float = _TIMEOUT_S) -> dict[str, Any]:
    give_up_at = time.monotonic() + timeout_s
    while time.monotonic() < give_up_at:
        for event in child.events:
            if event["event"] == wanted:
                return event
        if child.exit_status is not None:
            child.stop()
            if not any(event["event"] == wanted for event in child.events):
                raise BenchError(f"{child.name}: {child.last_error or f'ended with status {child.exit_status}'}")
            continue
        pipes.wait(until=time.monotonic() + 0.05)
    raise BenchError(f"{child.name}: no {wanted!r} event within {timeout_s:.0f} s")
