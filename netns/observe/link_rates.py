"""The current rates of a lab's links, from two samples of its counters."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from netns.lab.lab import LinkCounters


@dataclass(frozen=True, slots=True)
class LinkRates:
    """One direction of a link between two samples."""

    link: str
    direction: str
    """FROM>TO."""

    bits_per_second: float
    packets_per_second: float
    dropped_per_second: float
    queued_packets: int
    dropped: int
    """Since the lab came up."""

    dead: bool
    """Whether it has a failure."""


def rates(
    before: Mapping[str, LinkCounters],
    after: Mapping[str, LinkCounters],
    *,
    seconds: float,
    dead: Collection[str],
) -> list[LinkRates]:
    """Return the rates of every direction, in the topology's order. A link is called A-B, its directions `ab`, `ba`."""
    found = []
    for link, directions in after.items():
        a, _, b = link.partition("-")
        for key, now in directions.items():
            then = before[link][key]
            found.append(
                LinkRates(
                    link=link,
                    direction=f"{a}>{b}" if key == "ab" else f"{b}>{a}",
                    bits_per_second=(now["bytes"] - then["bytes"]) * 8 / seconds,
                    packets_per_second=(now["packets"] - then["packets"]) / seconds,
                    dropped_per_second=(now["dropped"] - then["dropped"]) / seconds,
                    queued_packets=now.get("queued", 0),
                    dropped=now["dropped"],
                    dead=link in dead,
                )
            )
    return found
