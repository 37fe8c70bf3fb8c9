"""Alternates time slices of the transfer alone and with hostile packets, until all packets are sent."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from netns.programs import ending_with_us
from scripts.benches.hostile.transfer import MESSAGE_BYTES
from scripts.harness.errors import BenchError

RATE: Final = 10_000
"""Hostile packets per second."""
SLICE_PACKETS: Final = 40_000
"""Hostile packets in a slice of four seconds."""
START_BOUND_S: Final = 30.0
EVENT_BOUND_S: Final = 120.0
DELIVERY_BOUND_S: Final = 5.0
"""Time within which what completed at the sender is delivered to the receiver's application."""
_POLL_S: Final = 0.05
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_HOST: Final = "127.0.0.1"


@dataclass(slots=True)
class Worker:
    """A process that replies to each line with one event."""

    name: str
    process: subprocess.Popen[str]
    errors: Path
    _buffer: str = field(default="", repr=False)

    def command(self, line: str) -> None:
        """Send a line. Raises BenchError when the process has ended."""
        assert self.process.stdin is not None  # noqa: S101 - Popen made the pipe
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def event(self, kind: str, *, bound_s: float = EVENT_BOUND_S) -> dict[str, Any]:
        """Return the next event of a kind. Raises BenchError when none arrives in time."""
        assert self.process.stdout is not None  # noqa: S101 - Popen made the pipe
        give_up_at = time.monotonic() + bound_s
        while True:
            line, newline, rest = self._buffer.partition("\n")
            if newline:
                self._buffer = rest
                event: dict[str, Any] = json.loads(line)
                if event["event"] == kind:
                    return event
                continue
            ready, _, _ = select.select([self.process.stdout], [], [], max(give_up_at - time.monotonic(), 0.0))
            if not ready:
                raise BenchError(f"the {self.name} sent no {kind!r} within {bound_s:g} s")
            data = os.read(self.process.stdout.fileno(), 1 << 16).decode()
            if not data:
                raise self._ended()
            self._buffer += data

    def request(self, line: str, kind: str) -> dict[str, Any]:
        """Send a line; return the event of the reply."""
        self.command(line)
        return self.event(kind)

    @property
    def stderr_text(self) -> str:
        """The process's output on stderr."""
        return self.errors.read_text(errors="replace").strip()

    @property
    def cpu_s(self) -> float:
        """The process's CPU time."""
        values = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(values[11]) + int(values[12])) / _TICKS

    @property
    def anonymous_bytes(self) -> int:
        """The process's private memory, without the receive region, which is a memfd of a fixed size."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) << 10
        raise BenchError("/proc has no RssAnon: this kernel is too old")

    def _ended(self) -> BenchError:
        self.process.wait()
        lines = self.stderr_text.splitlines()
        return BenchError(f"the {self.name} ended with status {self.process.returncode}: {lines[-1] if lines else ''}")


@contextmanager
def worker(name: str, *arguments: str) -> Iterator[Worker]:
    """Run a module of this package until the end of the block."""
    with tempfile.NamedTemporaryFile(prefix="srd-hostile-") as errors:
        process = subprocess.Popen(
            ending_with_us([sys.executable, "-m", *arguments]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            yield Worker(name, process, Path(errors.name))
        finally:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()


@dataclass(slots=True)
class Tally:
    """Sums over all slices of one kind."""

    seconds: float = 0.0
    bytes: int = 0
    receiver_cpu_s: float = 0.0

    def add(self, before: tuple[float, int, float], after: tuple[float, int, float]) -> None:
        """Add the difference of two samples of (time, bytes delivered, CPU time)."""
        self.seconds += after[0] - before[0]
        self.bytes += after[1] - before[1]
        self.receiver_cpu_s += after[2] - before[2]

    @property
    def bytes_per_s(self) -> float:
        """Bytes delivered per second."""
        return self.bytes / self.seconds


def _received(receiver: Worker, *, sent: int) -> tuple[dict[str, Any], int]:
    """Return the receiver's totals, and how many messages of those that completed at the sender it never got."""
    give_up_at = time.monotonic() + DELIVERY_BOUND_S
    while True:
        totals = receiver.request("", "total")
        if totals["messages"] >= sent or time.monotonic() > give_up_at:
            return totals, max(sent - int(totals["messages"]), 0)
        time.sleep(_POLL_S)


def measure(packets: int, *, seed: int, secure: bool = True) -> dict[str, float]:
    """Send `packets` hostile packets beside a transfer, which is encrypted or not; return the figures.

    Raises BenchError if no measurement is possible.
    """
    quiet, hostile = Tally(), Tally()
    amplification = late_s = 0.0
    sent = lies = 0
    transfer, security = "scripts.benches.hostile.transfer", "keys" if secure else "plain"
    with ExitStack() as running:
        receiver = running.enter_context(worker("receiver", transfer, security, "receive"))
        port = str(receiver.event("listening", bound_s=START_BOUND_S)["port"])
        sender = running.enter_context(worker("sender", transfer, security, "send", _HOST, port))
        sender.event("sending", bound_s=START_BOUND_S)
        arguments = (_HOST, port, str(seed), security)
        attack = running.enter_context(worker("attacker", "scripts.benches.hostile.attack", *arguments))

        def sample() -> tuple[float, int, float]:
            return time.monotonic(), int(sender.request("", "total")["bytes"]), receiver.cpu_s

        rss_bytes = 0
        while sent < packets:
            count = min(SLICE_PACKETS, packets - sent)
            attack.request(f"forge {count}", "forged")
            rss_bytes = rss_bytes or receiver.anonymous_bytes
            before = sample()
            time.sleep(count / RATE)
            after_quiet = sample()
            done = attack.request(f"send {count / RATE}", "sent")
            quiet.add(before, after_quiet)
            hostile.add(after_quiet, sample())
            sent += done["packets"]
            lies = done["lies"]
            amplification, late_s = max(amplification, done["amplification"]), late_s + done["late_s"]
        done = sender.request("", "total")
        totals, lost_messages = _received(receiver, sent=int(done["bytes"]) // MESSAGE_BYTES)
        failed = done["failed"] + lost_messages
        grown_bytes = receiver.anonymous_bytes - rss_bytes
        crashes = sum(each.process.poll() is not None or "Traceback" in each.stderr_text for each in (receiver, sender))
    before_cpu_s = quiet.receiver_cpu_s / max(quiet.bytes, 1) * hostile.bytes
    return {
        "packets": sent,
        "lies": lies,
        "transfer_ok": int(totals["messages"] > 0 and not totals["wrong_messages"] and not failed),
        "wrong_bytes": totals["wrong_bytes"],
        "crashes": crashes,
        "rss_growth_mb": grown_bytes / 1e6,
        "amplification_ratio": amplification,
        "honest_throughput_ratio": hostile.bytes_per_s / quiet.bytes_per_s,
        "honest_quiet_gbps": 8e-9 * quiet.bytes_per_s,
        "hostile_packets_per_second": sent / (sent / RATE + late_s),
        "cpu_us_per_hostile_packet": max(hostile.receiver_cpu_s - before_cpu_s, 0.0) / sent * 1e6,
    }
