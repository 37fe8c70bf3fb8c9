"""netns.placement.hostfile: one line for each host, in the order of the ranks."""

from __future__ import annotations

from netns.inventory.fabric_layers import nodes_of
from netns.placement import Job, place
from netns.placement.hostfile import hostfile
from netns.topology.model import leaf_spine

JOB = Job.model_validate({"name": "ring", "ranks": 5, "command": ["x"]})


def test_hostfile__slots_in_rank_order() -> None:
    nodes = nodes_of(leaf_spine(name="demo", leaves=2, hosts_per_leaf=2), ranks_per_host=2)
    assert hostfile(place(JOB, nodes)) == "h1 slots=2\nh2 slots=2\nh3 slots=1\n"
