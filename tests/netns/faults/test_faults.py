"""netns.faults.faults: failures with and without loss of carrier, their sum and their repair."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import get_args

import pytest

from netns.backends.kernel.netlink import run_tool, sent_statistics
from netns.errors import BackendError, TopologyError
from netns.faults.faults import active, fail, repair
from netns.lab.lab import Lab
from netns.lab.state import Failure
from netns.netem.shape import Shape
from netns.observe.route_probe import probe_spines
from netns.topology.addressing import IpVersion
from netns.topology.model import Ecmp, leaf_spine
from tests.netns.conftest import has_netem, unique_name
from tests.netns.exchange import PORT, udp_socket
from tests.patience import wait_until

SHAPE = Shape(delay_us=100)


@pytest.fixture(scope="module", params=get_args(Ecmp))
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Spine 1 shaped, spine 2 not: TAPs and veths."""
    made = leaf_spine(name=unique_name(), spines=2)
    links = tuple(
        replace(link, shape_ab=SHAPE, shape_ba=SHAPE) if "spine1" in link.name else link for link in made.links
    )
    with Lab.up(replace(made, links=links, ipv6=True, ecmp=request.param), backend="relay") as up:
        yield up


def arrives(lab: Lab, spine: str, *, version: IpVersion = 4) -> bool:
    """Whether a packet gets from h1 to h2 over a spine in 0.2 s."""
    source, target = lab.address("h1", version=version), lab.pinned_addresses("h2", version=version)[spine]
    with udp_socket(lab, "h1", address=source) as sender, udp_socket(lab, "h2", address=target) as receiver:
        receiver.settimeout(0.2)
        try:
            sender.sendto(b"x", (target, PORT))
            return receiver.recv(10) == b"x"
        except (TimeoutError, OSError):  # OSError: a router has no route
            return False


def await_arrival(lab: Lab, spine: str, *, version: IpVersion = 4) -> None:
    """Wait until packets get from h1 to h2 over a spine, however slow the machine."""
    wait_until(lambda: arrives(lab, spine, version=version))


def no_carrier(lab: Lab, node: str, neighbour: str) -> bool:
    """Whether the interface of `node` towards `neighbour` is up without carrier."""
    return "NO-CARRIER" in run_tool("ip", "-n", lab.netns(node), "link", "show", "dev", neighbour)


@pytest.mark.root
@pytest.mark.parametrize("spine", ["spine1", "spine2"])
def test_fail__a_link_of_any_kind(lab: Lab, spine: str) -> None:
    other = {"spine1": "spine2", "spine2": "spine1"}[spine]
    await_arrival(lab, spine)
    failure = fail(lab, f"leaf2-{spine}")
    assert lab.dead_links() == {f"leaf2-{spine}"}
    assert not no_carrier(lab, "leaf2", spine)
    for version in lab.versions:
        assert not arrives(lab, spine, version=version)
        await_arrival(lab, other, version=version)
    repair(lab, [failure])
    for version in lab.versions:
        await_arrival(lab, spine, version=version)
    assert not active(lab)


@pytest.mark.root
def test_fail__a_node_is_all_its_links_and_failures_add_up(lab: Lab) -> None:
    node, link = fail(lab, "spine2"), fail(lab, "leaf1-spine2")
    assert lab.dead_links() == {"leaf1-spine2", "leaf2-spine2"}
    repair(lab, [node])
    assert lab.dead_links() == {"leaf1-spine2"}
    assert not arrives(lab, "spine2")
    assert active(lab, "leaf1-spine2") == (link,)
    repair(lab, active(lab))
    await_arrival(lab, "spine2")


def taken(lab: Lab, *, version: IpVersion, ports: int) -> set[str]:
    """The spines that flows from h1 take; every probe gets a reply."""
    found = probe_spines(lab, source="h1", destination="h2", ports=ports, version=version)
    return {name for names in found.seen.values() for name in names or ("silence",)}


def only(lab: Lab, spine: str, *, version: IpVersion) -> bool:
    """Whether flows from h1 take no spine but this one."""
    return taken(lab, version=version, ports=16) == {spine}


def both(lab: Lab, *, version: IpVersion) -> bool:
    """Whether flows from h1 take both spines: more than in `only`, as those keep their buckets in a resilient group."""
    return taken(lab, version=version, ports=128) == {"spine1", "spine2"}


@pytest.mark.root
@pytest.mark.parametrize("spine", ["spine1", "spine2"])
def test_fail__with_its_carrier_routers_go_around(lab: Lab, spine: str) -> None:
    """leaf1, at the end of the link, uses the other spine; addresses pinned to this one are unreachable."""
    other = {"spine1": "spine2", "spine2": "spine1"}[spine]
    failure = fail(lab, f"leaf1-{spine}", carrier=True)
    wait_until(lambda: no_carrier(lab, "leaf1", spine))
    for version in lab.versions:
        wait_until(partial(only, lab, other, version=version))
        assert not arrives(lab, spine, version=version)
        await_arrival(lab, other, version=version)
    repair(lab, [failure])
    assert not no_carrier(lab, "leaf1", spine)
    for version in lab.versions:
        await_arrival(lab, spine, version=version)
        wait_until(partial(both, lab, version=version))


@pytest.mark.root
def test_fail__carriers_add_up(lab: Lab) -> None:
    node, link = fail(lab, "spine2", carrier=True), fail(lab, "leaf1-spine2", carrier=True)
    silent = fail(lab, "leaf2-spine2")
    wait_until(lambda: no_carrier(lab, "leaf1", "spine2") and no_carrier(lab, "leaf2", "spine2"))
    repair(lab, [node])
    wait_until(lambda: not no_carrier(lab, "leaf2", "spine2"))
    assert no_carrier(lab, "leaf1", "spine2")
    repair(lab, [link])
    wait_until(lambda: not no_carrier(lab, "leaf1", "spine2"))
    assert not arrives(lab, "spine2"), "its last link is silent still"
    repair(lab, [silent])
    for version in lab.versions:
        await_arrival(lab, "spine2", version=version)


@pytest.mark.root
def test_fail__a_host_with_its_carrier(lab: Lab) -> None:
    failure = fail(lab, "h1", carrier=True)
    wait_until(lambda: no_carrier(lab, "leaf1", "h1"))
    repair(lab, [failure])
    link = fail(lab, "h1-leaf1", carrier=True)
    wait_until(lambda: no_carrier(lab, "h1", "leaf1"))
    repair(lab, [link])
    for version in lab.versions:
        await_arrival(lab, "spine1", version=version)


def with_netem(lab: Lab, node: str) -> set[str]:
    return {name for name, sent in sent_statistics(lab.netns(node)).items() if "queued" in sent}


@pytest.mark.root
@pytest.mark.netem
@pytest.mark.skipif(not has_netem(), reason="runs under User-Mode Linux: test_real_netem.py")
def test_fail__netem_survives_loss_of_carrier() -> None:
    made = replace(leaf_spine(name=unique_name(), spines=2, shape=SHAPE), ipv6=True, ecmp="resilient")
    with Lab.up(made, backend="kernel") as lab:
        before = {node: with_netem(lab, node) for node in lab.topology.nodes}
        failure = fail(lab, "spine1", carrier=True)
        wait_until(lambda: no_carrier(lab, "leaf1", "spine1"))
        assert not arrives(lab, "spine1")
        repair(lab, [failure])
        for version in lab.versions:
            await_arrival(lab, "spine1", version=version)
        assert {node: with_netem(lab, node) for node in lab.topology.nodes} == before
        assert before["spine1"] == {"leaf1", "leaf2"}


@pytest.mark.root
def test_repair__goes_on_after_an_error_and_reports_all(lab: Lab) -> None:
    """Two failures of links that the lab does not have, as after a record by other hands; those between are ended."""
    failures = [fail(lab, "leaf1-spine1"), fail(lab, "leaf1-spine2")]
    wrong = [Failure(name, (name,), name) for name in ("a", "b")]
    for failure in wrong:
        lab.directory.write_failure(failure)
    with pytest.raises(BackendError, match=r"^link a: no such link.*; link b: no such link"):
        repair(lab, [wrong[0], failures[0], wrong[1], failures[1]])
    assert {failure.name for failure in active(lab)} == {"a", "b"}
    for spine in ("spine1", "spine2"):
        await_arrival(lab, spine)
    for failure in wrong:
        lab.directory.remove_failure(failure)


@pytest.mark.root
def test_fail__bad_flow(lab: Lab) -> None:
    with pytest.raises(TopologyError, match=r"^spine9: neither a link nor a node of .*; name one, as in leaf1-spine2$"):
        fail(lab, "spine9")
    assert not active(lab)
    (lab.directory.path / "failure.bad.json").write_text("{}")
    with pytest.raises(BackendError, match=r"failure.bad.json: not a record of a failure .*; delete the file$"):
        active(lab)
    (lab.directory.path / "failure.bad.json").unlink()
