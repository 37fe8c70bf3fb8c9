"""The transports, by the names by which `srd sim` knows them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from srd.sim.models.transports import DCTCP_MARK_BYTES_PER_GBPS, Dcqcn, Irn, Roce, Tcp, firmware_dcqcn
from srd.sim.simulation import NS_PER_S, Simulation
from srd.sim.transport import Done, Transport

OPENED_AT_ONCE: Final = 32
"""Peers that are opened together: more handshakes at once overflow the port of one destination."""


class Srd(Transport):
    """The protocol cores of this project; a flow is as many messages as its size takes."""

    def prepare(self, simulation: Simulation, pairs: Iterable[tuple[str, str]]) -> None:
        """Open a peer for each pair of hosts."""
        wanted = list(dict.fromkeys(pairs))
        for first in range(0, len(wanted), OPENED_AT_ONCE):
            simulation.connect(wanted[first : first + OPENED_AT_ONCE])

    def flow(
        self, simulation: Simulation, source: str, destination: str, size_bytes: int, *, at: float, done: Done
    ) -> None:
        """Post the flow's messages at that time, to a peer that `prepare` has opened."""
        simulation.start_flow(source, destination, size_bytes=size_bytes, at_ns=round(at * NS_PER_S), done=done)

    def counters(self, simulation: Simulation) -> dict[str, int]:
        """Return data packets that were sent, and how many of these had been sent before."""
        senders = [sender for host in simulation.sim_hosts.values() for sender in host.senders()]
        return {
            "packets_sent": sum(sender.packets for sender in senders),
            "packets_resent": sum(sender.retransmitted for sender in senders),
        }


TRANSPORTS: Final[dict[str, Transport]] = {
    "srd": Srd(),
    "roce": Roce(),
    "dcqcn": Dcqcn(),
    "dcqcn-firmware": firmware_dcqcn(),
    "irn": Irn(),
    "cubic": Tcp("cubic"),
    "dctcp": Tcp("dctcp", mark_bytes_per_gbps=DCTCP_MARK_BYTES_PER_GBPS),
}
