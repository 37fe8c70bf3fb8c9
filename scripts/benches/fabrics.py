"""A lab with one switch, as cases of the relay and of fidelity have it."""

from __future__ import annotations

from typing import Final

from netns.netem.shape import Shape
from netns.topology.model import Link, Switch, Topology

_UNSHAPED: Final = Shape()


def one_switch(*, name: str, mtu: int, to_h1: Shape | None = None, to_h2: Shape = _UNSHAPED, seed: int = 1) -> Topology:
    """Return h1 - leaf1 - h2, with what the switch's ports to the hosts are shaped by; None: not, nor ever."""
    links = (Link("leaf1", "h1", to_h1), Link("leaf1", "h2", to_h2))
    return Topology(name=name, hosts=("h1", "h2"), switches=(Switch("leaf1", "leaf"),), links=links, mtu=mtu, seed=seed)
