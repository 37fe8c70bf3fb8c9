"""Deadlocks: cycles of ports that wait for each other.

A paused port P with packets waits for the ingress that pauses it. That ingress waits for the egress ports of its switch
in which its packets wait. If each port of a cycle is paused, no packet of it can ever leave (the cyclic buffer
dependency of Hu et al., HotNets 2016, come true). Cycles that were there for less than a pause lasts may yet dissolve.
"""

from __future__ import annotations

from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter

from netns.backends.virtual.lossless.egress_port import EgressPort
from netns.backends.virtual.lossless.profile import LOSSLESS
from netns.backends.virtual.lossless.switch import longest_pause_ns
from netns.backends.virtual.lossless.watchdog import stuck_ns


def deadlock(ports: Iterable[EgressPort], *, now_ns: int, number: int = LOSSLESS) -> list[str]:
    """Return the names of the ports of a cycle, the first again at its end; empty: there is none."""
    stuck = {port.name: port for port in ports if stuck_ns(port, number, now_ns) > longest_pause_ns(port.rate_bps)}
    waits: dict[str, set[str]] = {name: set() for name in stuck}
    for name, port in stuck.items():
        for packet in port.waiting(number):
            upstream = packet.links[packet.hop - 1].name if packet.hop else ""
            if upstream in stuck:
                waits[upstream].add(name)
    try:
        TopologicalSorter({name: sorted(others) for name, others in waits.items()}).prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1]
        return cycle[::-1]
    return []
