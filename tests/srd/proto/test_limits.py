"""Limits of peers: in all, of one host, and before the application accepts them."""

from __future__ import annotations

import pytest

from srd.proto.config import ProtocolConfig
from srd.proto.events import PeerEnded, PeerOpened
from srd.proto.wire.control import Accept, Close, Control, Refuse, Retry
from srd.proto.wire.data import host_of
from srd.proto.wire.status import Status
from tests.simulation import Network
from tests.srd.proto.byhand import give, hello

FULL = Status.REMOTE_ERROR_RNR


def open_peer(network: Network, *, source: str, context: int) -> Control:
    """Open a peer at b by hand; return the ACCEPT or REFUSE."""
    (answer,) = give(network.b, hello(context=context), now=network.now, source=source)
    if isinstance(answer, Retry):
        (answer,) = give(network.b, hello(context=context, cookie=answer.cookie), now=network.now, source=source)
    return answer


def limited(**limits: int) -> Network:
    network = Network(seed=1, config=ProtocolConfig(**limits))  # type: ignore[arg-type]  # integers all
    network.accepts = False
    return network


@pytest.mark.parametrize("limit", ["max_peers", "max_unaccepted_peers"])
def test_handle_packets__more_peers_than_there_is_room_for(limit: str) -> None:
    network = limited(**{limit: 3})
    opened = [open_peer(network, source=f"{number}:1", context=number) for number in range(3)]
    assert all(isinstance(answer, Accept) for answer in opened)
    assert open_peer(network, source="9:1", context=9) == Refuse(9, FULL)
    assert len(network.b.core._peers) == 3
    assert open_peer(network, source="0:1", context=0) == opened[0], "a peer that exists is not refused"


def test_handle_packets__more_peers_of_one_host_than_allowed() -> None:
    network = limited(max_peers_per_address=2)
    for number in range(2):
        assert isinstance(open_peer(network, source=f"one:{number}", context=number), Accept)
    assert open_peer(network, source="one:7", context=7) == Refuse(7, FULL)
    assert isinstance(open_peer(network, source="other:7", context=7), Accept)


@pytest.mark.parametrize("limit", ["max_peers", "max_peers_per_address"])
def test_handle_packets__a_peer_that_ended_makes_room(limit: str) -> None:
    network = limited(**{limit: 1})
    accept = open_peer(network, source="one:1", context=1)
    assert isinstance(accept, Accept)
    assert open_peer(network, source="one:2", context=2) == Refuse(2, FULL)
    give(network.b, Close(accept.own_context, 1), now=network.now, source="one:1")
    assert isinstance(open_peer(network, source="one:2", context=2), Accept)
    assert list(network.b.core._hosts.values()) == [1]


def test_accepted__makes_room_whether_the_peer_is_open_or_not() -> None:
    network = limited(max_unaccepted_peers=1)
    core = network.b.core
    accept = open_peer(network, source="one:1", context=1)
    assert isinstance(accept, Accept)
    give(network.b, Close(accept.own_context, 1), now=network.now, source="one:1")
    opened, end = core.poll_event(), core.poll_event()
    assert isinstance(opened, PeerOpened)
    assert isinstance(end, PeerEnded)
    assert open_peer(network, source="one:2", context=2) == Refuse(2, FULL), (
        "the application may hold messages of the peer"
    )
    core.accepted(opened.peer)
    assert isinstance(open_peer(network, source="one:2", context=2), Accept)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("192.0.2.1", 7), ("192.0.2.1", 8), True),
        (("192.0.2.1", 7), ("192.0.2.2", 7), False),
        (("2001:db8::1", 7, 0, 0), ("2001:db8::1", 8, 0, 0), True),
        (("fe80::1", 7, 0, 2), ("fe80::1", 7, 0, 3), False),
        ("a:0", "a:1", True),
        ("a:0", "b:0", False),
    ],
)
def test_host_of(one: object, other: object, *, same: bool) -> None:
    assert (host_of(one) == host_of(other)) is same
