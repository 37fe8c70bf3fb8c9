"""Two namespaces joined by a veth pair of MTU 9000, bare or shaped by a token bucket.

Names contain the id of the process that made them, by which the next run finds and removes what a killed run left.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from scripts.benches.errors import BenchError

MTU: Final = 9000
RATE_BPS: Final = 1_000_000_000
PAYLOAD_RATE_BPS: Final = RATE_BPS * (MTU - 28) / (MTU + 14)
"""UDP payload that the shaped link carries: all but Ethernet's, IPv4's and UDP's headers, for full packets."""
_BURST_BYTES: Final = 2 * (MTU + 14)
"""Size of the bucket: two packets, so that a segment train is segmented before it queues."""
_LIMIT_BYTES: Final = RATE_BPS // 8 // 500
"""Size of the queue: 2 ms, as in a switch port."""
_PREFIX: Final = "srd-devmem-"


@dataclass(frozen=True, slots=True)
class Pair:
    """Names and addresses of the two ends; `a` sends."""

    a: str
    b: str
    address: str = "10.77.0.2"
    """Address of `b`."""

    def command(self, namespace: str, command: Sequence[str]) -> list[str]:
        """Return the command line that runs `command` in a namespace."""
        return ["ip", "netns", "exec", namespace, *command]


def _run(*arguments: str) -> None:
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"{' '.join(arguments)}: {(done.stderr.strip() or 'failed').splitlines()[-1]}")


def _remove(name: str) -> None:
    subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def _remove_leftovers() -> None:
    for path in Path("/run/netns").glob(f"{_PREFIX}*"):
        owner = path.name.removeprefix(_PREFIX).split("-")[0]
        if not Path(f"/proc/{owner}").exists():
            _remove(path.name)


@contextmanager
def _stopped_cleanly() -> Iterator[None]:
    """Turn SIGINT and SIGTERM into an exception, so that the pair is removed."""

    def stop(number: int, _: FrameType | None) -> None:
        raise BenchError(f"stopped by {signal.Signals(number).name}")

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _moderate(namespace: str) -> None:
    """Let the kernel collect packets for up to 200 us before it passes them on, as cards do (napi.rst, "gro")."""
    settings = "echo 2 > napi_defer_hard_irqs; echo 200000 > gro_flush_timeout"
    _run("ip", "netns", "exec", namespace, "ethtool", "-K", "eth0", "gro", "on")
    _run("ip", "netns", "exec", namespace, "sh", "-ec", f"cd /sys/class/net/eth0; {settings}")


@contextmanager
def pair(*, shaped: bool) -> Iterator[Pair]:
    """Build a pair; remove it afterwards, also after a signal. Raises BenchError if it cannot be built."""
    if os.geteuid() != 0:
        raise BenchError("it builds network namespaces; run it as root")
    _remove_leftovers()
    kind = "shaped" if shaped else "bare"
    made = Pair(*(f"{_PREFIX}{os.getpid()}-{kind}-{end}" for end in "ab"))
    with _stopped_cleanly():
        try:
            for name in (made.a, made.b):
                _run("ip", "netns", "add", name)
            link = ("eth0", "mtu", str(MTU))
            _run("ip", "-n", made.a, "link", "add", *link, "type", "veth", "peer", "name", *link, "netns", made.b)
            for name, address in ((made.a, "10.77.0.1/24"), (made.b, f"{made.address}/24")):
                _run("ip", "-n", name, "address", "add", address, "dev", "eth0")
                _run("ip", "-n", name, "link", "set", "lo", "up")
                _run("ip", "-n", name, "link", "set", "eth0", "up")
                if shaped:
                    bucket = ("rate", str(RATE_BPS), "burst", str(_BURST_BYTES), "limit", str(_LIMIT_BYTES))
                    _run("tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf", *bucket)
                    _moderate(name)
            yield made
        finally:
            for name in (made.a, made.b):
                _remove(name)
