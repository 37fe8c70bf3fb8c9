"""netns.observe.spine_counters: a correct map agrees with the counters, a wrong one does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from netns.lab.lab import Lab
from netns.netem.shape import Shape
from netns.observe.route_probe import probe_spines
from netns.observe.spine_counters import EACH, Count, count_packets, disagreements
from netns.topology.addressing import IpVersion
from netns.topology.model import leaf_spine

LOSSY = replace(leaf_spine(spines=2, shape=Shape(delay_us=100, loss_percent=20)), ipv6=True)
"""Packets lost on the links to a spine are counted, too."""
pytestmark = [pytest.mark.root, pytest.mark.lab(LOSSY, scope="module")]


@pytest.mark.parametrize("version", [4, 6])
def test_count_packets__agree_with_the_probes(lab: Lab, version: IpVersion) -> None:
    found = probe_spines(lab, source="h1", destination="h2", ports=16, version=version)
    counts = count_packets(lab, found)
    assert disagreements(found, counts) == []
    stable = 16 - len(found.unanswered)
    assert sum(count.sent for count in counts.values()) == EACH * stable > 0


def test_disagreements__of_a_map_that_is_wrong_bad_flow(lab: Lab) -> None:
    found = probe_spines(lab, source="h1", destination="h2", ports=8)
    other = {"spine1": "spine2", "spine2": "spine1"}
    wrong = replace(found, seen={port: tuple(other[name] for name in names) for port, names in found.seen.items()})
    counts = count_packets(lab, wrong)
    assert all(count.seen == 0 for count in counts.values())
    sent = {spine: count.sent for spine, count in counts.items()}
    assert disagreements(wrong, counts) == [
        f"h1 to h2: {spine}: {packets} packets were sent from its ports, and its links counted 0"
        for spine, packets in sent.items()
        if packets
    ]
    assert disagreements(found, {"spine1": Count(4, 5)}) == [
        "h1 to h2: spine1: 4 packets were sent from its ports, and its links counted 5"
    ]
