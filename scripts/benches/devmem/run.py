"""One transfer over a veth pair: two processes, and their results."""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from scripts.benches.devmem.host import WARM
from scripts.harness.client_server import run_both
from scripts.harness.errors import BenchError
from scripts.harness.process import ProcessGroup
from scripts.harness.two_hosts import RECEIVER, SENDER, TwoHosts
from scripts.harness.worker import worker

HOST: Final = "scripts.benches.devmem.host"
_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class DevmemTransfer:
    sent: dict[str, Any]
    received: dict[str, Any]

    @property
    def goodput_bps(self) -> float:
        """Goodput of the messages after the warm-up, at the receiver."""
        return float(self.received["bytes"]) * 8 / float(self.received["seconds"])

    @property
    def cpu_s_per_gb(self) -> float:
        return 1e9 * sum(float(end["cpu_seconds"]) / float(end["bytes"]) for end in (self.sent, self.received))

    @property
    def bytes_copied(self) -> int:
        return int(self.sent["bytes_copied"]) + int(self.received["bytes_copied"])


def transfer(method: str, two: TwoHosts, *, seconds: float) -> DevmemTransfer:
    """Transfer messages for `seconds` (0: only the warm-up). Raises BenchError if an end fails, or drops packets."""
    received, sent = run_both(
        two,
        server=worker(HOST, "receive", method=method, host=two.receiver),
        client=lambda host, port: worker(HOST, "send", method=method, host=host, port=port, seconds=seconds),
        bound_s=_TIMEOUT_S + seconds,
    )
    if received["messages"] < WARM or received["messages"] != sent["messages"]:
        raise BenchError(f"{method}: {sent['messages']} messages were sent, {received['messages']} received")
    return DevmemTransfer(sent, received)


def is_killed(method: str, two: TwoHosts) -> bool:
    """Whether the guard kills the receiver of this method (SIGSEGV) when data has arrived."""
    with ProcessGroup() as group:
        command = worker(HOST, "receive", method=method, host=two.receiver)
        receiver = group.start("receiver", two.command(RECEIVER, command))
        port = group.event(receiver, "listening", bound_s=_TIMEOUT_S)["port"]
        command = worker(HOST, "send", method=method, host=two.receiver, port=port, seconds=0)
        group.start("sender", two.command(SENDER, command))
        with suppress(BenchError):
            group.ended(receiver, bound_s=_TIMEOUT_S)
        return receiver.status == -signal.SIGSEGV
