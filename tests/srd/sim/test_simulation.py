"""srd.sim.simulation: opening peers, and reporting failures."""

from __future__ import annotations

import gc

import pytest

from netns.netem.shape import Shape
from netns.topology.model import leaf_spine
from srd.proto.config import ProtocolConfig
from srd.sim.errors import SimulationError
from srd.sim.simulation import COLLECT_AFTER, Simulation


def simulation(*, hosts_per_leaf: int = 1) -> Simulation:
    topology = leaf_spine(hosts_per_leaf=hosts_per_leaf, shape=Shape(delay_us=100))
    return Simulation(topology, config=ProtocolConfig(), seed=1)


def test_connect__many_to_one_with_both_ends_peers() -> None:
    running = simulation(hosts_per_leaf=3)
    connections = running.connect([("h1", "h6"), ("h2", "h6"), ("h4", "h6")])
    for index, connection in enumerate(connections):
        connection.post(length=1000, immediate=index)
        connection.source.serve()
    running.run(seconds=0.1)
    sink = running.sim_host("h6")
    assert {(delivery.peer, delivery.immediate) for delivery in sink.deliveries} == {
        (connection.remote_peer, index) for index, connection in enumerate(connections)
    }
    assert [connection.receiver.packets for connection in connections] == [1, 1, 1]
    running.require_no_failures()


def test_connect__bad_flow() -> None:
    running = simulation()
    running.fabric.fail("h2", at_ns=0)
    with pytest.raises(SimulationError, match=r"^1 of 1 peers were not open after 5 virtual seconds$"):
        running.connect([("h1", "h2")])


def test_require_no_failures__bad_flow() -> None:
    running = simulation()
    (connection,) = running.connect([("h1", "h2")])
    running.fabric.fail("h2", at_ns=running.now_ns)
    connection.post(length=10)
    connection.source.serve()
    running.run(seconds=3)
    with pytest.raises(SimulationError, match=r"^h1: request 1 ended with status 13 \(LOCAL_ERROR_UNRESP_REMOTE\)$"):
        running.require_no_failures()
    connection.source.completions.clear()
    with pytest.raises(SimulationError, match=r"^h1: peer 0 ended: no packet for"):
        running.require_no_failures()


def test_connect__though_the_first_hellos_are_lost() -> None:
    """The other end then has another port of this one."""
    ports = set()
    for seed in range(1, 9):
        shape = Shape(delay_us=100, loss_percent=30)
        simulation = Simulation(leaf_spine(shape=shape, seed=seed), config=ProtocolConfig(paths=4), seed=seed)
        (connection,) = simulation.connect([("h1", "h2")])
        ((_, port),) = connection.destination.peers
        ports.add(port)
        assert connection.remote_peer == connection.destination.peer_of(connection.source.address[0])
    assert len(ports) > 1


@pytest.mark.parametrize("fails", [False, True])
def test_run__the_collector_is_as_before(*, fails: bool) -> None:
    running, before, meanwhile = simulation(), gc.get_threshold(), list[int]()

    def look(_now_ns: int) -> None:
        meanwhile.append(gc.get_threshold()[0])
        if fails:
            raise ValueError

    running.fabric.at(1000, look)
    try:
        running.run(seconds=0.001)
    except ValueError:
        assert fails
    assert meanwhile == [COLLECT_AFTER]
    assert gc.get_threshold() == before


def test_run__a_simulation_makes_no_reference_cycles() -> None:
    """What it has used is free again without the collector, which is why `run` does not let it search often."""
    running = simulation(hosts_per_leaf=2)
    connections = running.connect([("h1", "h3"), ("h2", "h4")])
    gc.collect()
    gc.disable()
    try:
        for connection in connections:
            for _ in range(50):
                connection.post(length=20_000)
            connection.source.serve()
        running.run(seconds=0.5)
        assert sum(len(each.deliveries) for each in running.sim_hosts.values()) == 100
        assert gc.collect() < 100  # each of 2,000 packets, in a cycle, would count
    finally:
        gc.enable()
