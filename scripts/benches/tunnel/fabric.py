"""Faults of a lab's spines, and what crosses them.

Loss "at each spine" is at the spines' egresses, so that each direction of a path has it exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from netns.faults import faults
from netns.lab.lab import Direction, Lab

SENDERS_LEAF: Final = "leaf1"


@contextmanager
def loss(lab: Lab, percent: float) -> Iterator[None]:
    links = [link for spine in lab.topology.spines for link in lab.topology.links_of[spine]]
    try:
        for link in links:
            direction: Direction = "ab" if link.a in lab.topology.spines else "ba"
            lab.change(link.name, {"loss": f"{percent}%"}, direction=direction)
        yield
    finally:
        for link in links:
            lab.reshape(link.name, ab=link.shape_ab, ba=link.shape_ba)


@contextmanager
def dead(lab: Lab, spine: str) -> Iterator[None]:
    """Let a spine drop everything during the block, silently."""
    failure = faults.fail(lab, spine)
    try:
        yield
    finally:
        faults.repair(lab, [failure])


def uplink_bytes(lab: Lab) -> dict[str, int]:
    """Return what the sender's leaf has sent to each spine so far."""
    counters, found = lab.counters(), {}
    for spine in lab.topology.spines:
        link = lab.topology.link(f"{SENDERS_LEAF}-{spine}")
        found[spine] = counters[link.name]["ab" if link.a == SENDERS_LEAF else "ba"]["bytes"]
    return found
