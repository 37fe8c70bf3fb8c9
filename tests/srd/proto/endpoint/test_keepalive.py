"""When a peer is probed, and when it ends as unresponsive."""

from __future__ import annotations

from dataclasses import replace

import pytest

from netns.netem.shape import Shape
from srd.proto.config import ProtocolConfig
from srd.proto.congestion.limits import ActivePeers
from srd.proto.endpoint.keepalive import (
    MAX_IDLE_PROBE_S,
    MOVE_ROUNDS,
    PROBE_RTTS,
    PROBES_BEFORE_END,
    PROBES_SPREAD,
    REFUSED_S,
    SILENCE_RTTS,
)
from srd.proto.events import Completion, PeerEnded
from srd.proto.wire.control import Probe
from srd.proto.wire.status import Status
from srd.proto.work_request import WorkRequest
from tests.simulation import Network, completed, connected, content, ended, received
from tests.srd.proto.byhand import answers

SEEDS = [1, 2, 3]
SMALL_WINDOW = replace(ProtocolConfig(), receive_window_bytes=1 << 20, max_message_bytes=1 << 20)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("delay_us", "most_per_s"),
    [(500, 8 / 0.25), (300_000, 12 / (PROBE_RTTS * 0.6)), (1_000_000, 12 / (PROBE_RTTS * 2))],
)
def test_handle_timeout__idle_peers_stay_open(seed: int, delay_us: int, most_per_s: float) -> None:
    """Also before a round trip was measured, which the first HELLOs of a long path do not do: they are repeated."""
    network, at_a, at_b = connected(seed=seed, shape=Shape(delay_us=delay_us, loss_percent=2))
    before = network.wire_packets
    network.run(seconds=60)
    assert not ended(network.a) + ended(network.b)
    network.a.core.peer(at_a)
    network.b.core.peer(at_b)
    assert network.wire_packets - before < 60 * most_per_s, "few keepalive probes"


@pytest.mark.parametrize("used", [True, False], ids=["used", "unused"])
def test_handle_timeout__a_dead_peer_of_a_long_path_ends_after_some_round_trips(*, used: bool) -> None:
    network, at_a, _ = connected(shape=Shape(delay_us=300_000))
    if used:
        network.a.core.post(at_a, WorkRequest(request=1, payload_offset=0, length=1 << 20))
        network.run(until=lambda: bool(completed(network.a)), seconds=30)
    network.run(seconds=5 * used)
    network.b.alive, died_at = False, network.now
    assert network.end_of(network.a, seconds=20).status is Status.LOCAL_ERROR_UNRESP_REMOTE
    assert SILENCE_RTTS * 0.6 - 0.9 <= network.now - died_at <= SILENCE_RTTS * 0.6 + 0.9


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "later"])
def test_handle_timeout__an_initiator_that_died_before_it_sent_anything(*, at_once: bool) -> None:
    """Nothing shows the round trip to its responder, so it waits as long as a handshake may take."""
    network, at_a, _ = connected()
    if not at_once:
        network.a.core.post(at_a, WorkRequest(request=1, payload_offset=0, length=1))
        network.run(seconds=0.1)
    network.a.alive, died_at = False, network.now
    assert network.end_of(network.b, seconds=20).status is Status.LOCAL_ERROR_UNRESP_REMOTE
    assert 10 <= network.now - died_at < 12 if at_once else 0.9 < network.now - died_at < 1.5


@pytest.mark.parametrize("seed", range(8))
def test_handle_timeout__idle_peers_stay_open_though_most_links_have_failed(seed: int) -> None:
    network = Network(seed=seed)
    network.connect()
    network.dead |= {0, 2, 3}
    network.run(seconds=20)
    assert not ended(network.a) + ended(network.b)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
def test_handle_timeout__after_the_last_answer(seed: int, *, busy: bool) -> None:
    network, at_a, _ = connected(seed=seed)
    network.run(seconds=0.01)
    for request in range(3 * busy):
        network.a.core.post(at_a, WorkRequest(request=request, payload_offset=0, length=1 << 20))
    died_at = network.now
    network.b.alive = False
    end = network.end_of(network.a, seconds=10)
    assert (end.peer, end.status) == (at_a, Status.LOCAL_ERROR_UNRESP_REMOTE)
    assert "no packet for" in end.reason
    assert 0.9 <= network.now - died_at <= 1.001, "within a second"
    assert completed(network.a) == [
        Completion(at_a, request, Status.LOCAL_ERROR_UNRESP_REMOTE) for request in range(3 * busy)
    ]
    assert network.a.events[-1] == end, "every request ends before its peer does"


@pytest.mark.parametrize(("peers", "waits_s"), [(1, 0.25), (100, 0.5), (2000, 10.0), (10_000, 50.0), (10**6, 60.0)])
def test_handle_timeout__a_dead_idle_peer_among_many(peers: int, waits_s: float) -> None:
    """The keepalive interval grows with the number of peers, to a limit; later probes and the end are not delayed."""
    network, at_a, _ = connected()
    network.run(seconds=0.01)
    peer = network.a.core.peer(at_a)
    keepalive = peer._keepalive
    keepalive._active_peers = ActivePeers(range(peers))
    died_at = keepalive.last_packet_at
    network.b.alive = False
    network.a.core._ready[at_a] = None  # check deadlines again
    assert network.end_of(network.a, seconds=100).status is Status.LOCAL_ERROR_UNRESP_REMOTE
    assert network.now - died_at == pytest.approx(waits_s + 0.75, abs=0.01)
    assert MAX_IDLE_PROBE_S == 60


def test_handle_timeout__probes_three_times_before_the_end() -> None:
    """A process that was stopped for long must not declare every peer dead at its first check."""
    network, at_a, _ = connected()
    network.run(seconds=0.01)
    now, probes = network.now + 100, 0
    for _ in range(PROBES_BEFORE_END):
        network.a.core.handle_timeout(now)
        assert network.a.core.poll_event() is None
        found = [packet.path for packet in answers(network.a, now=now) if isinstance(packet, Probe)]
        assert len(found) == len(set(found)) == PROBES_SPREAD**probes, (
            "over more paths each time: links may have failed"
        )
        probes += 1
        at = network.a.core.poll_timeout()
        assert at is not None
        now = at
    assert probes == PROBES_BEFORE_END
    network.a.core.handle_timeout(now)
    end = network.a.core.poll_event()
    assert isinstance(end, PeerEnded)
    assert (end.peer, end.status) == (at_a, Status.LOCAL_ERROR_UNRESP_REMOTE)


@pytest.mark.parametrize("seed", SEEDS)
def test_handle_timeout__an_outage_shorter_than_the_timeout_is_tolerated(seed: int) -> None:
    network, at_a, _ = connected(seed=seed)
    network.a.core.post(at_a, WorkRequest(request=1, payload_offset=11, length=4 << 20))
    network.run(seconds=0.004)
    network.dead = set(range(4))
    network.run(seconds=0.7)
    assert not completed(network.a)
    network.dead = set()
    network.run(until=lambda: bool(completed(network.a)), seconds=3)
    assert [c.status for c in completed(network.a)] == [Status.OK]
    (message,) = received(network.b)
    assert content(network.b, message.extents) == network.a.region[11 : 11 + (4 << 20)].tobytes()


@pytest.mark.parametrize("delay_us", [10, 50, 500, 20_000])
def test_poll_control__blocked_on_credit_and_dead(delay_us: int) -> None:
    """A sender without credit probes more often, at a bounded rate, and a peer that dies meanwhile ends."""
    network, at_a, _ = connected(shape=Shape(delay_us=delay_us), config=SMALL_WINDOW)
    for request in range(2):
        network.a.core.post(at_a, WorkRequest(request=request, payload_offset=0, length=1 << 20))
    network.run(until=lambda: bool(completed(network.a)), seconds=5)
    network.run(seconds=0.05)
    network.b.alive = False
    core, now, died_at = network.a.core, network.now, network.now
    sent, end = 0, None
    while end is None and now < died_at + 5 and sent < 500:
        core.handle_timeout(now)
        sent += len(answers(network.a, now=now))
        while (event := core.poll_event()) is not None:
            end = event if isinstance(event, PeerEnded) else end
        now = max(now, core.poll_timeout() or now)
    assert end is not None, f"{sent} packets in {now - died_at:.3f} s, and no end"
    assert end.status is Status.LOCAL_ERROR_UNRESP_REMOTE
    assert now - died_at <= 1.1


PATIENT = ProtocolConfig(unresponsive_after_s=30)


def test_handle_icmp_unreachable__a_dead_peer_is_not_waited_for() -> None:
    network, at_a, _ = connected(config=PATIENT)
    network.run(seconds=0.01)
    peer = network.a.core.peer(at_a)
    died_at = network.now
    network.b.alive = False
    network.run(seconds=0.3)  # a keepalive probe finds the port closed
    network.a.core.handle_icmp_unreachable(peer.address, now=network.now)
    assert network.end_of(network.a, seconds=40).status is Status.LOCAL_ERROR_UNRESP_REMOTE
    assert 0.9 <= network.now - died_at <= REFUSED_S + 0.3


def test_handle_icmp_unreachable__that_is_forged_ends_no_peer_that_answers() -> None:
    network, at_a, _ = connected(config=PATIENT)
    for _ in range(50):
        network.a.core.handle_icmp_unreachable(network.a.core.peer(at_a).address, now=network.now)
        network.run(seconds=0.4)
    network.run(seconds=0.5)  # a packet came
    network.b.alive = False
    network.run(seconds=20)  # as if its interpreter were held
    network.b.alive = True
    network.run(seconds=20)
    assert not ended(network.a)


def test_seems_elsewhere__only_after_whole_intervals() -> None:
    """Where a grant was lost, rounds follow each other within milliseconds."""
    network, at_a, _ = connected()
    keepalive = network.a.core.peer(at_a)._keepalive
    now = network.now
    keepalive._rounds, keepalive._unanswered_since, keepalive.last_packet_at = MOVE_ROUNDS + 1, now, now + 0.1
    assert not keepalive.seems_elsewhere(now=now + 0.2)
    assert keepalive.seems_elsewhere(now=now + MOVE_ROUNDS * network.config.probe_after_s)
    keepalive._rounds = MOVE_ROUNDS
    assert not keepalive.seems_elsewhere(now=now + 10)
