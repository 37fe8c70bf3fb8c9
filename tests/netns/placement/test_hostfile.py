"""netns.placement.place: one line for each host, in the order of the ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from netns.errors import JobError
from netns.inventory.fabric_layers import nodes_of
from netns.placement import Job, place
from netns.placement.place import hostfile
from netns.topology.model import leaf_spine

JOB = Job.model_validate({"name": "ring", "ranks": 5, "command": ["x"]})
NODES = nodes_of(leaf_spine(name="demo", leaves=2, hosts_per_leaf=2), ranks_per_host=2)


def test_hostfile__slots_in_rank_order() -> None:
    assert hostfile(place(JOB, NODES)) == "h1 slots=2\nh2 slots=2\nh3 slots=1\n"


def test_hostfile__a_host_whose_ranks_do_not_follow_each_other_bad_flow() -> None:
    """As after a replacement, where h2 takes ranks of a lost host, and with a leader."""
    h1, _, h2, _, _ = place(JOB, NODES).nodes
    with pytest.raises(
        JobError, match=r"^job ring: h2 has the ranks 0, 3, 4, with others between them, and a host file "
    ):
        hostfile(replace(place(JOB, NODES), nodes=(h2, h1, h1, h2, h2)))
