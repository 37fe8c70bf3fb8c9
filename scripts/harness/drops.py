"""Packets that this host itself lost while a bench ran: such a run measures the host's buffers and is invalid.

Sources: the sockets' drop counters (an endpoint's `dropped_packets`), UDP's RcvbufErrors of the namespaces (udp(7)),
the second column of softnet_stat: packets dropped because a CPU's backlog was full, and the relay's count of frames
that it could not read in time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from netns.backends.kernel.netlink import in_namespace
from netns.lab.lab import Lab
from scripts.harness.errors import BenchError


@dataclass(frozen=True, slots=True)
class Drops:
    """Totals since the machine, or the namespace, was started."""

    softnet: int
    """Packets dropped because a CPU's backlog was full."""
    receive_buffers: int
    """UDP datagrams dropped because a socket's buffer was full, in these namespaces."""

    @classmethod
    def read(cls, namespaces: Iterable[str]) -> Self:
        softnet = softnet_drops(Path("/proc/net/softnet_stat").read_text())
        return cls(softnet, sum(in_namespace(each, _receive_buffer_errors) for each in namespaces))


@contextmanager
def no_drops(namespaces: Iterable[str], *, during: str) -> Iterator[None]:
    """Raise BenchError if anything was dropped during the block."""
    namespaces = tuple(namespaces)
    before = Drops.read(namespaces)
    yield
    after = Drops.read(namespaces)
    softnet, buffers = after.softnet - before.softnet, after.receive_buffers - before.receive_buffers
    if softnet or buffers:
        raise BenchError(
            f"{during}: this host dropped {softnet} packets at its processors (softnet) and {buffers} at sockets "
            "(RcvbufErrors), so the run is void; try again when the machine is idle"
        )


def require_none(dropped: int) -> None:
    """Raise BenchError if sockets have dropped datagrams."""
    if dropped:
        raise BenchError(f"the hosts dropped {dropped} datagrams (full socket buffers, or no memory): void")


def require_no_relay_drops(lab: Lab) -> None:
    """Raise BenchError if the lab's relay, where it has one, lost packets that the fabric would not have lost."""
    if dropped := (lab.relay_status() or {"tap_drops": 0})["tap_drops"]:
        raise BenchError(f"the relay lost {dropped} packets, so the run is void; try again when the machine is idle")


def softnet_drops(text: str) -> int:
    """Return the sum of the second column of /proc/net/softnet_stat, which is hexadecimal."""
    return sum(int(line.split()[1], 16) for line in text.splitlines())


def receive_buffer_errors(text: str) -> int:
    """Return UDP's RcvbufErrors from /proc/net/snmp: a line of names, then one of values."""
    names, values = (line.split() for line in text.splitlines() if line.startswith("Udp:"))
    return int(values[names.index("RcvbufErrors")])


def _receive_buffer_errors() -> int:
    return receive_buffer_errors(Path("/proc/thread-self/net/snmp").read_text())
