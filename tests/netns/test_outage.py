"""netns.outage: what fails is silent, adds up, and comes back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from netns.errors import FabricError, TopologyError
from netns.lab import Lab
from netns.outage import active, dead_links, fail, links_of, repair
from netns.shape import Shape
from netns.topology import Topology, leaf_spine
from tests.netns.conftest import unique_name
from tests.netns.exchange import PORT, udp_socket

SHAPE = Shape(delay_us=100)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Spine 1 shaped, spine 2 not: TAPs and veths."""
    made = leaf_spine(name=unique_name(), spines=2)
    links = tuple(
        replace(link, shape_ab=SHAPE, shape_ba=SHAPE) if "spine1" in link.name else link for link in made.links
    )
    with Lab.up(Topology(made.name, made.hosts, made.switches, links), fabric="relay") as up:
        yield up


def arrives(lab: Lab, spine: str) -> bool:
    """Whether a packet gets from h1 to h2 over a spine."""
    with udp_socket(lab, "h1") as sender, udp_socket(lab, "h2", address=lab.pinned_addresses("h2")[spine]) as receiver:
        receiver.settimeout(0.2)
        sender.sendto(b"x", (lab.pinned_addresses("h2")[spine], PORT))
        try:
            return receiver.recv(10) == b"x"
        except TimeoutError:
            return False


@pytest.mark.root
@pytest.mark.parametrize("spine", ["spine1", "spine2"])
def test_fail__a_link_of_any_kind(lab: Lab, spine: str) -> None:
    other = {"spine1": "spine2", "spine2": "spine1"}[spine]
    assert arrives(lab, spine)
    failure = fail(lab, f"leaf2-{spine}")
    assert dead_links(lab) == {f"leaf2-{spine}"}
    assert (arrives(lab, spine), arrives(lab, other)) == (False, True)
    repair(lab, [failure])
    assert arrives(lab, spine)
    assert not active(lab)


@pytest.mark.root
def test_fail__a_node_is_all_its_links_and_failures_add_up(lab: Lab) -> None:
    node, link = fail(lab, "spine2"), fail(lab, "leaf1-spine2")
    assert dead_links(lab) == {"leaf1-spine2", "leaf2-spine2"}
    repair(lab, [node])
    assert dead_links(lab) == {"leaf1-spine2"}
    assert not arrives(lab, "spine2")
    assert active(lab, "leaf1-spine2") == (link,)
    repair(lab, active(lab))
    assert arrives(lab, "spine2")


@pytest.mark.root
def test_fail__bad_flow(lab: Lab) -> None:
    with pytest.raises(TopologyError, match=r"^spine9: neither a link nor a node of .*; name one, as in leaf1-spine2$"):
        fail(lab, "spine9")
    assert not active(lab)
    (lab.directory.path / "failure.bad.json").write_text("{}")
    with pytest.raises(FabricError, match=r"failure.bad.json: not a record of a failure .*; delete the file$"):
        active(lab)
    (lab.directory.path / "failure.bad.json").unlink()


def test_links_of__either_order_and_nodes() -> None:
    made = leaf_spine(spines=2)
    assert [link.name for link in links_of(made, "spine1-leaf2")] == ["leaf2-spine1"]
    assert [link.name for link in links_of(made, "h1")] == ["h1-leaf1"]
