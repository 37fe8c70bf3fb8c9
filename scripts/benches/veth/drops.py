"""What this host itself lost while a bench ran: a run that lost any measures the host's buffers, and is void.

Sockets tell by SO_RXQ_OVFL's counter (an endpoint's `dropped_packets`), namespaces by UDP's RcvbufErrors (udp(7)), the
processors by softnet_stat's second column: packets that found the backlog full.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from netns.backends.kernel.netlink import in_namespace
from scripts.benches.errors import BenchError


@dataclass(frozen=True, slots=True)
class Drops:
    """Totals since the machine, or the namespace, came up."""

    softnet: int
    """Packets that a processor's backlog had no room for."""
    receive_buffers: int
    """UDP datagrams that a socket's buffer had no room for, in these namespaces."""

    @classmethod
    def read(cls, namespaces: Iterable[str]) -> Self:
        """Read the counters of the machine and of these namespaces."""
        softnet = softnet_drops(Path("/proc/net/softnet_stat").read_text())
        return cls(softnet, sum(in_namespace(each, _receive_buffer_errors) for each in namespaces))

    def require_none_since(self, before: Self, *, during: str) -> None:
        """Raise BenchError if anything was dropped since `before`."""
        softnet, buffers = self.softnet - before.softnet, self.receive_buffers - before.receive_buffers
        if softnet or buffers:
            raise BenchError(
                f"{during}: this host dropped {softnet} packets at its processors (softnet) and {buffers} at sockets "
                "(RcvbufErrors), so the run is void; try again when the machine is idle"
            )


def softnet_drops(text: str) -> int:
    """Return the sum of the second column of /proc/net/softnet_stat, which is hexadecimal."""
    return sum(int(line.split()[1], 16) for line in text.splitlines())


def receive_buffer_errors(text: str) -> int:
    """Return UDP's RcvbufErrors out of /proc/net/snmp: a line of names, then one of values."""
    names, values = (line.split() for line in text.splitlines() if line.startswith("Udp:"))
    return int(values[names.index("RcvbufErrors")])


def _receive_buffer_errors() -> int:
    return receive_buffer_errors(Path("/proc/thread-self/net/snmp").read_text())
