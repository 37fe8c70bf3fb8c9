"""The lab as a comparison uses it: two hosts, the spines between them, counters, and faults that can be undone.

Only this module uses netns/. Loss of p % "on a spine" is applied at the spine's two egresses, so that each direction of
a path has it exactly once. A failed spine drops everything in all four of its link directions at once and silently: no
interface goes down, no route changes.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from netns.lab.lab import Lab
from netns.netem.shape import Shape
from netns.topology.model import Link
from scripts.compare.errors import CompareError, UnavailableError

SENDER: Final = "h1"
RECEIVER: Final = "h2"
_DEAD_PERCENT: Final = 100.0


class Fabric:
    """A running lab, with the sender on its first leaf and the receiver on another."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.kind: str = lab.backend
        self.spines = lab.topology.spines
        self._spine_links = {
            spine: [link for link in lab.topology.links_of[spine] if link.shaped] for spine in self.spines
        }

    @property
    def capacity_bps(self) -> int:
        """Total capacity of the sender's uplinks, in one direction, in bit/s on the wire."""
        return sum(self._upward_shape(spine).rate_bps for spine in self.spines)

    def address(self, host: str) -> str:
        """The host's main address, routed over all spines by the flow's hash."""
        return self._lab.address(host)

    def pinned_address(self, host: str, spine: str) -> str:
        """The host's address that is routed only over `spine`, in both directions."""
        return self._lab.pinned_addresses(host)[spine]

    def command(self, host: str, command: Sequence[str]) -> list[str]:
        """Return the command line that runs `command` on `host`."""
        return self._lab.command(host, list(command))

    def uplink_bytes(self) -> tuple[int, ...]:
        """Bytes that the sender's leaf has sent to each spine so far."""
        counters = self._lab.counters()
        found = []
        for spine in self.spines:
            link = self._uplink(spine)
            found.append(counters[link.name]["ab" if link.b == spine else "ba"]["bytes"])
        return tuple(found)

    def relay_cpu_seconds(self) -> float | None:
        """CPU time of the relay so far; None on the kernel backend."""
        status = self._lab.relay_status()
        return None if status is None else float(status["cpu_seconds"])

    def set_loss(self, percent: float) -> None:
        """Set the loss at each spine, in each direction."""
        for spine in self.spines:
            for link in self._spine_links[spine]:
                self._reshape(link, from_spine_percent=percent, to_spine_percent=0.0)

    def blackhole(self, spine: str) -> None:
        """Drop everything on all links of `spine`, in both directions, from now on."""
        for link in self._spine_links[spine]:
            self._reshape(link, from_spine_percent=_DEAD_PERCENT, to_spine_percent=_DEAD_PERCENT)

    def restore(self) -> None:
        """Undo `set_loss` and `blackhole`."""
        self.set_loss(0.0)

    def add_subflow_endpoints(self) -> None:
        """Configure MPTCP to open one subflow over each spine, from the sender's pinned addresses to the receiver's.

        The initiator opens them by itself (endpoint type `subflow`), so no announcement can be lost.
        """
        for host in (SENDER, RECEIVER):
            self._ip(host, "mptcp", "limits", "set", "subflows", str(min(8, len(self.spines))))
        for spine in self.spines[1:]:  # the first subflow is bound to the first spine's address
            self._ip(SENDER, "mptcp", "endpoint", "add", self.pinned_address(SENDER, spine), "subflow")

    def _ip(self, host: str, *arguments: str) -> None:
        """Run ip(8) on `host`, as pyroute2 lacks support for the MPTCP path manager."""
        done = subprocess.run(self.command(host, ["ip", *arguments]), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
            raise UnavailableError(f"mptcp: ip {' '.join(arguments)}: {reason}")

    def _reshape(self, link: Link, *, from_spine_percent: float, to_spine_percent: float) -> None:
        a_is_spine = link.a in self.spines
        loss_ab, loss_ba = (
            (from_spine_percent, to_spine_percent) if a_is_spine else (to_spine_percent, from_spine_percent)
        )
        self._lab.reshape(link.name, ab=_lossy(link.shape_ab, loss_ab), ba=_lossy(link.shape_ba, loss_ba))

    def _uplink(self, spine: str) -> Link:
        leaf = self._lab.topology.switch_of(SENDER)
        for link in self._spine_links[spine]:
            if leaf in (link.a, link.b):
                return link
        raise CompareError(f"{leaf} and {spine}: no shaped link joins them; a comparison needs a capacity")

    def _upward_shape(self, spine: str) -> Shape:
        link = self._uplink(spine)
        shape = link.shape_ab if link.b == spine else link.shape_ba
        if shape is None or not shape.rate_bps:
            raise CompareError(f"link {link.name}: has no rate; a comparison needs a capacity")
        return shape


def _lossy(shape: Shape | None, percent: float) -> Shape:
    return replace(shape or Shape(), loss_percent=percent)
