"""Packets that end a peer must have both contexts: an off-path attacker knows at most one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from srd.proto.endpoint.peer import PeerCore
from srd.proto.endpoint.peer_state import PeerState
from srd.proto.events import PeerEnded, PeerOpened
from srd.proto.wire.control import Close, Closed, Control, Datagram, Probe, Reset, decode_untrusted
from srd.proto.wire.data import Burst
from srd.proto.wire.status import Status
from srd.proto.work_request import WorkRequest
from tests.simulation import Network, Node, completed, connected, ended
from tests.srd.proto.byhand import give, opened_by_hand

Forge = Callable[[PeerCore], Control]
FORGED: dict[str, Forge] = {
    "close": lambda peer: Close(peer.own_context, peer.remote_context ^ 1),
    "closed": lambda peer: Closed(peer.own_context, peer.remote_context ^ 1),
    "reset": lambda peer: Reset(peer.own_context, peer.remote_context ^ 1),
    "close by the other context": lambda peer: Close(peer.remote_context, peer.own_context),
    "closed by the other context": lambda peer: Closed(peer.remote_context, peer.own_context),
    "reset by the other context": lambda peer: Reset(peer.remote_context, peer.own_context),
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
@pytest.mark.parametrize("state", [PeerState.OPEN, PeerState.DRAINING, PeerState.CLOSING])
def test_handle_packets__an_end_with_one_context_changes_nothing(forge: Forge, state: PeerState) -> None:
    network, at_a, _ = connected()
    peer = network.a.core.peer(at_a)
    if state is not PeerState.OPEN:
        network.a.core.post(at_a, WorkRequest(request=1, length=1 << 20))
        network.a.core.close(at_a, now=network.now)
        network.run(until=lambda: peer.state is state, seconds=2)
    assert peer.state is state
    network.a.core.handle_packets([], controls=[(forge(peer).encode(), "x:1", network.now)], now=network.now)
    assert network.a.core.peer(at_a).state is state
    assert not any(isinstance(event, PeerEnded) for event in iter(network.a.core.poll_event, None))


@pytest.mark.parametrize("own_context", [0, 1])
def test_handle_packets__a_close_of_a_peer_that_is_not_open_yet(own_context: int) -> None:
    """The responder's context is unknown before its ACCEPT; 0 is no substitute."""
    network = Network(seed=1)
    number = network.a.core.connect("b:0", sizes=(8972,), now=network.now)
    context = network.a.core._openings[number].own_context
    for packet in (Close(context, own_context), Reset(context, own_context), Closed(context, own_context)):
        give(network.a, packet, now=network.now, source="b:0")
    network.run(until=lambda: network.opened(number), seconds=1)
    assert not ended(network.a)


def test_handle_packets__a_probe_with_one_context_does_not_count_as_received() -> None:
    network = Network(seed=1)
    context = opened_by_hand(network).own_context
    assert give(network.b, Probe(context, 78, 0, 0, 0), now=network.now) == []
    assert give(network.b, Probe(context, 77, 0, 0, 0), now=network.now) != []


def test_handle_packets__a_reset_while_requests_are_open_is_no_success() -> None:
    """A draining peer has open requests: unacknowledged ones must not succeed."""
    network, at_a, _ = connected()
    network.a.core.post(at_a, WorkRequest(request=1, length=4 << 20))
    network.a.core.close(at_a, now=network.now)
    network.run(seconds=0.001)
    peer = network.a.core.peer(at_a)
    assert peer.state is PeerState.DRAINING
    give(network.a, Reset(peer.own_context, peer.remote_context), now=network.now, source="b:0")
    network.run(seconds=0.01)
    assert [end.status for end in ended(network.a)] == [Status.REMOTE_ERROR_UNKNOWN_PEER]
    assert [done.status for done in completed(network.a)] == [Status.REMOTE_ERROR_UNKNOWN_PEER]


def test_close__whose_closed_was_lost_is_confirmed_by_the_next() -> None:
    """The other end has no state of the peer by then; its reply needs the CLOSE only. A RESET between is ignored."""
    network, at_a, _ = connected()
    peer = network.a.core.peer(at_a)
    lost = list[Control]()

    def lose_the_first(_: Node, out: Burst | Datagram) -> bool:
        if isinstance(out, Datagram) and isinstance(packet := decode_untrusted(out.data), Closed) and not lost:
            lost.append(packet)
            give(network.a, Reset(peer.own_context, peer.remote_context), now=network.now, source="b:0")
            return True
        return False

    network.on_sent = lose_the_first
    network.a.core.close(at_a, now=network.now)
    network.run(until=lambda: bool(ended(network.a)), seconds=1)
    assert lost
    assert ended(network.a) == [PeerEnded(at_a, Status.OK, "closed", ())]


def test_handle_packets__an_accept_of_a_cancelled_attempt_closes_the_peer() -> None:
    network = Network(seed=1)
    number = network.a.core.connect("b:0", sizes=(8972,), now=network.now)
    network.run(until=lambda: bool(network.b.of(PeerOpened)), seconds=1)
    network.a.core.close(number, now=network.now)
    network.run(until=lambda: bool(ended(network.b)), seconds=1)
    assert [end.status for end in ended(network.a) + ended(network.b)] == [Status.FLUSHED, Status.OK]
    assert network.now < 100.1, "at once, not by a RESET to a keepalive"


# -- events of a peer that came and went in one batch ---------------------------------------------------------------


def test_poll_event__a_peer_that_opened_and_ended_is_known_until_its_end_was_delivered() -> None:
    network = Network(seed=1)
    core = network.b.core
    accept = opened_by_hand(network)
    controls = [(Close(accept.own_context, 77).encode(), "x:1", network.now)]
    core.handle_packets([], controls=controls, now=network.now)
    opened = core.poll_event()
    assert isinstance(opened, PeerOpened)
    assert core.peer(opened.peer).ended == (Status.OK, "closed by the other end")
    assert isinstance(core.poll_event(), PeerEnded)
    assert core.poll_event() is None
    assert [core._peers, core._ended, core._by_context, core._by_remote] == [{}] * 4
