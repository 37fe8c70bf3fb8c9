"""All paths of a peer: standbys for paths that time out; single calls, against a model, and on a fabric."""

from __future__ import annotations

import math
from dataclasses import dataclass
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from netns.backends.virtual.forwarding import Forwarding
from netns.topology.model import Topology
from scripts.benches.reference_fabric import ENDS, fabric
from srd.proto.config import ProtocolConfig
from srd.proto.paths import table as module
from srd.proto.paths.path import MAX_PROBE_INTERVAL_S, Path, PathState
from srd.proto.paths.table import (
    BUDGET_PER_S,
    PROBE_BUDGET,
    PROBES_BEFORE_STANDBY,
    PROBES_PER_ANSWER,
    PathTable,
)
from srd.proto.wire.status import Status
from srd.sim.experiments.bulk import BulkSimulation, streams
from srd.sim.host import PORT
from srd.sim.simulation import Simulation

ACTIVE, SUSPECT, QUARANTINED, RESERVE = PathState
TIMEOUT_S = 0.05 + 4 * 0.025
"""Of a path without an answer: see ProtocolConfig.initial_rtt_s."""


def whole_table(config: ProtocolConfig) -> PathTable:
    """Return a table with all primary paths open."""
    table = PathTable(config)
    table.open_all()
    return table


def test_open_next__one_at_a_time_and_for_each_timeout() -> None:
    table = PathTable(ProtocolConfig(paths=4))
    assert [path.index for path in table.active] == [0]
    table.open_next()
    assert [path.index for path in table.active] == [0, 1]
    assert not table.mtu_suspect
    table.on_timeout(table.all[0], now=10.0)
    assert [path.index for path in table.active] == [1, 2]
    table.open_all()
    table.open_next()
    assert len(table.all) == 4


def test_probe__is_paced_like_data() -> None:
    """32 paths time out at once; the pacer allows a packet a millisecond."""
    table = whole_table(config := ProtocolConfig())
    for path in list(table.active)[:31]:
        table.on_timeout(path, now=10.0)
    sent_at, now = [], 10.0
    while now < 10.02:
        while table.poll_probe(now=now, packets_per_s=1000.0):
            sent_at.append(now)
        now = max(table.probe_at(), now + 1e-6)
    assert len(sent_at) == pytest.approx(20 + config.pacing_depth_s * 1000, abs=1.5)


def probes(table: PathTable, *, now: float, seconds: float) -> list[tuple[float, Path]]:
    """Send probes as they are due, unanswered; return when each was sent, and its path."""
    sent, end = [], now + seconds
    while (at := table.probe_at()) <= end:
        now = max(now, at)
        path, _ = table.poll_probe(now=now, packets_per_s=math.inf) or pytest.fail("no probe is due")
        sent.append((now, path))
    return sent


@pytest.mark.parametrize("dead", [8, 32])
def test_probes__that_nothing_answers_are_few_in_the_long_run(dead: int) -> None:
    table = whole_table(ProtocolConfig())
    for path in table.active[:dead]:
        table.on_timeout(path, now=10.0)
    first = probes(table, now=10.0, seconds=2 * TIMEOUT_S)
    assert {path.index for _, path in first} >= set(range(dead)), "each at once"
    assert len(first) >= 2 * dead
    later = probes(table, now=10.0 + 2 * TIMEOUT_S, seconds=60.0)
    assert len(first) + len(later) <= PROBE_BUDGET + 60 / MAX_PROBE_INTERVAL_S + 3
    assert {path.index for _, path in later} >= set(range(dead)), "in turn"


def test_probes__find_all_that_was_repaired_after_a_long_outage() -> None:
    table = whole_table(ProtocolConfig())
    for path in list(table.active):
        table.on_timeout(path, now=10.0)
    probes(table, now=10.0, seconds=30.0)
    now = 40.0
    while len(table.active) < 32:
        now = max(now, table.probe_at())
        path, _ = table.poll_probe(now=now, packets_per_s=math.inf) or pytest.fail("no probe is due")
        if path.index < 32:  # a standby may be on a dead link
            table.on_answer(path, now=now)
    assert now - 40.0 < 1.0


FEW_PROBES = 5.525
"""Budget of the model: no sum of its times is just at its end."""

# -- against a model ------------------------------------------------------------------------------------------------


@dataclass
class Model:
    """One path's state, by PROTOCOL.md."""

    number: int
    state: PathState
    carries_bytes: int = 0
    probe_at: float | None = None
    interval_s: float = 0.0
    unanswered: int = 0
    sequence: int = 0


class Paths(RuleBasedStateMachine):
    """The table against the model; few slots and a small reserve, so that all of it is used."""

    @initialize(slots=st.integers(1, 3), reserve=st.integers(1, 3))
    def begin(self, slots: int, reserve: int) -> None:
        self.patched = patch.multiple(module, RESERVE_PATHS=reserve, PROBE_BUDGET=FEW_PROBES)
        self.patched.start()
        self.table = whole_table(ProtocolConfig(paths=slots))
        self.slots = slots
        self.now = 100.0
        self.models = [Model(number, ACTIVE if number < slots else RESERVE) for number in range(slots + reserve)]
        self.reserve = self.models[slots:]
        self.standbys: dict[int, Model] = {}
        self.probed: list[Model] = []
        self.budget, self.probed_at = FEW_PROBES, self.now

    def teardown(self) -> None:
        self.patched.stop()

    def of(self, model: Model) -> Path:
        return self.table.all[model.number]

    def active(self) -> list[Model]:
        return [model for model in self.models if model.state is ACTIVE]

    # -- rules ------------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.01, 0.15, 0.2, 1.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.active())
    @rule(data=st.data(), size=st.integers(1, 9000))
    def carry(self, data: st.DataObject, size: int) -> None:
        model = data.draw(st.sampled_from(self.active()))
        self.table.on_sent(self.of(model), size)
        self.of(model).allocate_sequences(1)
        model.carries_bytes += size
        model.sequence += 1

    @precondition(lambda self: self.active())
    @rule(data=st.data())
    def time_out(self, data: st.DataObject) -> None:
        model = data.draw(st.sampled_from(self.active()))
        self.table.on_timeout(self.of(model), now=self.now)
        model.state = SUSPECT
        self.begin_probing(model)

    @precondition(lambda self: len(self.active()) < len(self.table.all))
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        """Any path that was open may answer, late or not."""
        known = [model for model in self.models[: len(self.table.all)] if model.state is not ACTIVE]
        model = data.draw(st.sampled_from(known))
        self.table.on_answer(self.of(model), now=self.now)
        if model.state is RESERVE:
            return
        model.state, model.probe_at = ACTIVE, None
        self.budget += PROBES_PER_ANSWER
        self.probed.remove(model)
        if model.number in self.standbys:
            self.retire(self.standbys[model.number])

    @rule()
    def probe(self) -> None:
        due = [model for model in self.probed if model.probe_at is not None and model.probe_at <= self.now]
        found = self.table.poll_probe(now=self.now, packets_per_s=math.inf)
        self.budget = min(self.budget + (self.now - self.probed_at) * BUDGET_PER_S, FEW_PROBES)
        self.probed_at = self.now
        if not due or self.budget < 0:
            assert found is None
            return
        model = min(due, key=lambda each: each.probe_at or 0.0)
        assert found == (self.of(model), model.sequence), "no path sequence is used twice"
        model.sequence += 1
        self.budget -= 1
        if model.unanswered:
            model.state = QUARANTINED
            if self.active():
                model.interval_s = min(2 * model.interval_s, MAX_PROBE_INTERVAL_S)
        model.unanswered += 1
        model.probe_at = self.now + model.interval_s
        if model.unanswered > PROBES_BEFORE_STANDBY:
            self.replace(model)

    # -- effects on the model ---------------------------------------------------------------------------------------

    def begin_probing(self, model: Model) -> None:
        model.probe_at, model.interval_s, model.unanswered = self.now, TIMEOUT_S, 0
        self.probed.append(model)

    def replace(self, model: Model) -> None:
        slot = model.number
        if model.number >= self.slots:
            slot = next(slot for slot, other in self.standbys.items() if other is model)
            self.retire(model)
        if slot not in self.standbys and self.reserve:
            standby = self.standbys[slot] = self.reserve.pop(0)
            standby.state = SUSPECT
            self.begin_probing(standby)

    def retire(self, model: Model) -> None:
        self.standbys = {slot: other for slot, other in self.standbys.items() if other is not model}
        self.probed = [other for other in self.probed if other is not model]
        model.state, model.probe_at = RESERVE, None
        self.reserve.append(model)

    # -- invariants -------------------------------------------------------------------------------------------------

    @invariant()
    def the_same(self) -> None:
        for model, path in zip(self.models, self.table.all, strict=False):
            assert (path.index, path.state, path.probe_at) == (model.number, model.state, model.probe_at)
            assert path.next_sequence == model.sequence
        assert sorted(path.index for path in self.table.active) == [model.number for model in self.active()]
        assert [path.index for path in self.table.probed] == [model.number for model in self.probed]
        assert self.table.inflight_bytes == sum(model.carries_bytes for model in self.active())
        if self.probed:
            due_at = min(model.probe_at or 0.0 for model in self.probed)
            at = self.probed_at - min(self.budget, 0.0) / BUDGET_PER_S
            assert max(self.table.probe_at(), self.now) == pytest.approx(max(due_at, at, self.now))

    @invariant()
    def a_slot_has_one_active_path(self) -> None:
        for slot in range(self.slots):
            primary, standby = self.models[slot], self.standbys.get(slot)
            assert primary.state is not RESERVE
            assert standby is None or primary.state is QUARANTINED
        assert len(self.active()) <= self.slots
        assert len(self.probed) <= 2 * self.slots
        assert self.probed or len(self.active()) == self.slots, "inactive paths are probed"


TestPaths = pytest.mark.sources(Paths.TestCase)  # it replaces constants
TestPaths.settings = settings(max_examples=150, stateful_step_count=60)


# -- on a fabric ----------------------------------------------------------------------------------------------------


def bulk(topology: Topology, *, seed: int) -> BulkSimulation:
    """A stream that has begun."""
    simulation = Simulation(topology, config=ProtocolConfig(), seed=seed)
    (stream,) = streams(simulation, [ENDS])
    stream.start()
    return BulkSimulation(simulation, [stream])


def spine_of(running: BulkSimulation, path: Path, forwarding: Forwarding) -> str:
    """The spine that the path's data crosses."""
    (connection,) = running.connections
    (source, _), (destination, port) = connection.source.address, connection.destination.address
    hops = forwarding.route(source, source_port=PORT + path.index, destination=destination, destination_port=port)
    return hops[2]


@pytest.mark.compiled
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_fabric__a_failed_spine_is_avoided_and_used_again_after_its_repair(seed: int) -> None:
    topology = fabric(spines=4, name="paths", seed=seed)
    running, forwarding = bulk(topology, seed=seed), Forwarding(topology)
    simulation, sender = running.simulation, running.connections[0].sender

    def on_spine_1(found: list[Path]) -> list[Path]:
        return [path for path in found if spine_of(running, path, forwarding) == "spine1"]

    simulation.run(seconds=0.1)  # all paths are in use
    dead = on_spine_1(sender.paths)
    assert len(dead) >= 4, "several ports are hashed to it"
    simulation.fabric.fail("spine1", at_ns=simulation.now_ns, for_ns=1_500_000_000)
    simulation.run(seconds=1.2)
    assert not on_spine_1([path for path in sender.paths if path.state is ACTIVE])
    in_use = [path for path in sender.paths if path.state in (ACTIVE, SUSPECT)]  # one may be late behind a queue
    assert len(in_use) - len(on_spine_1(in_use)) > 32 - len(dead) / 2, "most slots have an active path again"
    standbys = [path for path in sender.paths[32:] if path.counters.packets]
    assert len(standbys) > len(dead) / 2, "standbys carry data"
    assert not on_spine_1(standbys), "only paths that answered carry data"
    simulation.run(seconds=0.8)
    simulation.require_no_failures()
    assert sum(path.state is ACTIVE for path in dead) > len(dead) / 2, "the primary paths are active again"
    assert sum(path.state is ACTIVE for path in sender.paths) <= 32


@pytest.mark.compiled
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_fabric__paths_over_a_spine_of_a_smaller_mtu_carry_no_data(seed: int) -> None:
    topology = fabric(spines=4, name="mtu", seed=seed)
    running, forwarding = bulk(topology, seed=seed), Forwarding(topology)
    simulation, sender, receiver = running.simulation, running.connections[0].sender, running.connections[0].receiver
    simulation.fabric.narrow("spine1", mtu=1500)
    simulation.run(seconds=1.0)

    def on_spine_1() -> list[Path]:
        return [path for path in sender.paths if spine_of(running, path, forwarding) == "spine1"]

    before, landed = sum(path.counters.packets for path in on_spine_1()), receiver.landed_bytes
    simulation.run(seconds=1.0)
    simulation.require_no_failures()
    assert len(on_spine_1()) >= 4
    assert all(path.state in (QUARANTINED, RESERVE) for path in on_spine_1() if path.counters.packets)
    assert sum(path.counters.packets for path in on_spine_1()) == before, "no data crosses the spine"
    assert (receiver.landed_bytes - landed) * 8 > 0.85 * 3 * 250e6, "the others carry what they can"
    assert any(path.counters.packets for path in sender.paths[32:]), "standbys, too"


def test_fabric__an_mtu_that_shrinks_everywhere_ends_the_peer_and_the_next_agrees_on_smaller_datagrams() -> None:
    topology = fabric(spines=2, name="mtu", seed=1)
    running = bulk(topology, seed=1)
    simulation, source = running.simulation, running.connections[0].source
    simulation.run(seconds=0.2)
    source.on_event = None  # no more is posted
    for spine in topology.spines:
        simulation.fabric.narrow(spine, mtu=1500)
    simulation.run(seconds=5.0)  # 256 packets, at a window that delivers none
    assert [(ended.status, ended.reason) for ended in source.ended] == [
        (Status.LOCAL_ERROR_UNRESP_REMOTE, "no path carries packets of 8972 bytes any more")
    ]
    assert {status for _, status in source.completions.values()} == {Status.OK, Status.LOCAL_ERROR_UNRESP_REMOTE}
    destination = running.connections[0].destination
    peer = source.core.connect(destination.address, sizes=(8972, 1472), now=source.now)
    source.serve()
    simulation.run(seconds=0.5)
    assert source.core.peer(peer).datagram_bytes == 1472
    request = source.post(peer, length=1 << 20)
    source.serve()
    simulation.run(seconds=2.0)
    assert source.completions[request][1] is Status.OK
