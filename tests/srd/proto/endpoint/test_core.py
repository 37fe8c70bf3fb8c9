"""Two cores and a network: the handshake, stray and hostile packets, several peers."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from netns.netem.shape import Shape
from srd.proto.base.errors import UsageError
from srd.proto.base.security import SecurityMode
from srd.proto.config import ProtocolConfig
from srd.proto.events import Completion, PeerEnded, PeerOpened
from srd.proto.wire.control import (
    Accept,
    Close,
    Datagram,
    Probe,
    Refuse,
    Reset,
    Retry,
)
from srd.proto.wire.data import MIN_DATAGRAM_BYTES, Burst, PacketType
from srd.proto.wire.status import Status
from srd.proto.work_request import BatchRequest, WorkRequest
from tests.changed import changed
from tests.simulation import Conditions, Network, Packet, completed, connected, content, ended, received
from tests.srd.proto.byhand import answers, data_packet, give, hello, opened_by_hand
from tests.srd.secure.ends import security

SEEDS = [1, 2, 3]


# -- handshake ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_connect__handshake_packets_lost_and_duplicated(seed: int) -> None:
    config = ProtocolConfig(handshake_timeout_s=10.0)
    network = Network(
        seed=seed,
        config=config,
        shape=Shape(delay_us=500, loss_percent=40),
        conditions=Conditions(duplicate=0.3, reorder_s=0.01),
    )
    network.connect()
    network.run(seconds=0.5)
    assert len(network.b.of(PeerOpened)) == len(network.a.of(PeerOpened)) == 1


@pytest.mark.parametrize("context", [0, 1, 77, 2**64 - 1])
def test_handle_packets__cookie_before_state(context: int) -> None:
    network = Network(seed=1)
    (retry,) = give(network.b, hello(context=context), now=network.now)
    assert isinstance(retry, Retry)
    assert retry.context == context
    assert not network.b.core._peers
    assert network.b.core.poll_timeout() is None
    again = give(network.b, hello(context=context), now=network.now)
    assert again == [retry], "the cookie is computed, not stored"


def test_handle_packets__accept_is_smaller_than_the_hello() -> None:
    network = Network(seed=1)
    assert len(opened_by_hand(network, size=MIN_DATAGRAM_BYTES).encode()) < MIN_DATAGRAM_BYTES


def test_connect__refused_by_an_end_that_accepts_no_peers() -> None:
    network = Network(seed=1)
    network.b.core._stateless.accepting = False
    number = network.a.core.connect("b:0", sizes=(8972,), now=network.now)
    network.run(until=lambda: bool(ended(network.a)), seconds=2)
    reason = "refused: the other end takes no peers"
    assert ended(network.a) == [PeerEnded(number, Status.REMOTE_ERROR_BAD_DEST_QPN, reason, ())]
    assert network.now < 100.1, "at once, not after a timeout"


@pytest.mark.parametrize("version", [0, 1, 3, 255])
def test_connect__to_one_of_another_version(version: int) -> None:
    """Both sides: its HELLO gets a reply of this version, and this end's HELLO one of the other version."""
    network = Network(seed=1)
    number = network.a.core.connect("b:0", sizes=(1472,), now=network.now)
    (hello,) = [out.data for out in [network.a.core.poll_transmit(network.now)] if isinstance(out, Datagram)]
    (refuse,) = give(network.b, bytes([version]) + hello[1:], now=network.now)
    assert isinstance(refuse, Refuse)
    give(network.a, bytes([version]) + refuse.encode()[1:], now=network.now, source="b:0")
    network.run(seconds=0.01)
    (end,) = ended(network.a)
    assert (end.peer, end.status) == (number, Status.REMOTE_ERROR_FEATURE_MISMATCH)
    assert end.reason == "the other end has another version of the protocol"
    assert not network.b.core._peers


@pytest.mark.parametrize(("largest", "agreed"), [(65_507, 8972), (8971, 1472), (1471, 1232)])
def test_connect__falls_back_to_the_size_that_passes(largest: int, agreed: int) -> None:
    network = Network(seed=1, conditions=Conditions(largest_bytes=largest))
    number = network.a.core.connect("b:0", sizes=(8972, 1472, 1232), now=network.now)
    network.run(until=lambda: bool(network.a.of(PeerOpened)), seconds=2)
    assert network.a.core.peer(number).datagram_bytes == agreed
    network.carry(network.a, number, length=300_000, at=5)


@pytest.mark.parametrize("lost", range(8))
@pytest.mark.parametrize("mode", [SecurityMode.PLAIN, SecurityMode.KEYS])
def test_connect__both_ends_have_one_size_however_many_accepts_are_lost(mode: SecurityMode, lost: int) -> None:
    """After four HELLOs without an answer the initiator proposes a smaller size, to a responder that has its peer."""
    secured = {name: handshakes for name in "ab" if (handshakes := security(mode, name)) is not None}
    network, left = Network(seed=1, config=ProtocolConfig(paths=4), security=secured), lost

    def loses(direction: str, packet: Packet) -> bool:
        nonlocal left
        is_lost = direction == "b" and packet[0][1] in (PacketType.ACCEPT, PacketType.SECURE_ACCEPT) and left > 0
        left -= is_lost
        return is_lost

    network.loses = loses
    sources = [f"a:{path}" for path in range(4)]
    here = network.a.core.connect("b:0", sizes=(8972, 1472, 1232), sources=sources, now=network.now)
    network.run(until=lambda: network.opened(here) and bool(network.b.of(PeerOpened)), seconds=5)
    (there,) = network.b.core.open_peers
    assert left == 0
    assert network.a.core.peer(here).datagram_bytes == network.b.core.peer(there).datagram_bytes == 8972
    for node, number in ((network.a, here), (network.b, there)):
        network.carry(node, number, length=100_000, at=5)


def test_handle_packets__hello_again_of_another_size_gets_the_same_accept() -> None:
    """One that was overtaken, or that proposes less since no ACCEPT has arrived."""
    network = Network(seed=1)
    accept = opened_by_hand(network, size=8972)
    for size in (1472, MIN_DATAGRAM_BYTES, 8972):
        assert give(network.b, hello(cookie=b"whatever", size=size), now=network.now) == [accept]
    assert [network.b.core.peer(number).datagram_bytes for number in network.b.core.open_peers] == [8972]


@pytest.mark.parametrize(("proposed", "size"), [(0, 1472), (1472, 1473), (1472, 8972), (1472, 65_507)])
def test_handle_packets__an_accept_of_more_than_was_proposed(proposed: int, size: int) -> None:
    """Nobody has shown that so much passes; `proposed`: by a HELLO with a cookie, 0: none was sent yet."""
    network = Network(seed=1)
    number = network.a.core.connect("b:0", sizes=(1472,), now=network.now)
    context = network.a.core._openings[number].own_context
    answers(network.a, now=network.now)
    if proposed:
        give(network.a, Retry(context, bytes(24), 0, 1472), now=network.now, source="b:0")
    lie = Accept(context, 9, 1 << 20, 1 << 10, 1 << 20, 4096, size)
    give(network.a, lie, now=network.now, source="b:0")
    assert network.a.core.malformed == 1
    network.run(until=lambda: network.opened(number), seconds=2)
    assert network.a.core.peer(number).datagram_bytes == 1472


@pytest.mark.parametrize("seed", SEEDS)
def test_handle_icmp_too_big__the_size_that_passes_joins_the_running_attempt(seed: int) -> None:
    """No size that this end would try by itself passes; a router says which one does, all the time."""
    network = Network(seed=seed, conditions=Conditions(largest_bytes=772))

    def router(_direction: str, packet: tuple[bytes, bytes]) -> bool:
        too_big = sum(map(len, packet)) > 772
        if too_big:
            network.a.core.handle_icmp_too_big("b:0", size_bytes=772)
            network.a.core.handle_icmp_too_big("c:0", size_bytes=700)
        return too_big

    network.loses = router
    number = network.a.core.connect("b:0", sizes=(8972, 1472, 1252), now=network.now)
    network.run(until=lambda: network.opened(number), seconds=2)
    assert network.a.core.peer(number).datagram_bytes == 772
    network.carry(network.a, number, length=100_000, at=5)
    network.a.core.handle_icmp_too_big("b:0", size_bytes=600)
    assert network.a.core.peer(number).datagram_bytes == 772, "of an open peer it changes nothing"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("delay_us", [300_000, 1_000_000])
def test_connect__over_a_long_path(seed: int, delay_us: int) -> None:
    """By satellite, and by two of them: the handshake takes two round trips, and a HELLO of several may be lost."""
    network = Network(seed=seed, shape=Shape(delay_us=delay_us, loss_percent=10))
    number = network.a.core.connect("b:0", sizes=(8972, 1472), now=network.now)
    network.run(until=lambda: network.opened(number), seconds=10)
    assert network.opened(number)
    assert network.a.core.peer(number).datagram_bytes == network.b.core.peer(0).datagram_bytes == 8972
    for node, peer in ((network.a, number), (network.b, 0)):
        network.carry(node, peer, length=100_000, seconds=60)
    assert not ended(network.a) + ended(network.b)


def test_connect__the_smaller_end_decides() -> None:
    network = Network(seed=1)
    network.datagram_bytes = 1472
    network.replace("b")
    network.datagram_bytes = 8972
    at_a, at_b = network.connect()
    assert network.a.core.peer(at_a).datagram_bytes == network.b.core.peer(at_b).datagram_bytes == 1472


@pytest.mark.parametrize(
    ("sizes", "error"),
    [
        *[(sizes, "sizes of at least 576 bytes") for sizes in ((), (575,), (1472, 575))],
        ((1473, 576), "more than the 1472 bytes"),
    ],
)
def test_connect__sizes_out_of_range(sizes: tuple[int, ...], error: str) -> None:
    network = Network(seed=1, datagram_bytes=1472)
    with pytest.raises(UsageError, match=error):
        network.a.core.connect("b:0", sizes=sizes, now=network.now)


@pytest.mark.parametrize("seed", SEEDS)
def test_connect__agrees_on_what_passes_both_ways(seed: int) -> None:
    """The MTU back is smaller: the RETRY shows it, before data is lost."""
    network = Network(seed=seed, conditions=Conditions(largest_back_bytes=1472))
    at_a = network.a.core.connect("b:0", sizes=(8972, 1472), now=network.now)
    network.run(until=lambda: network.opened(at_a), seconds=2)
    assert network.a.core.peer(at_a).datagram_bytes == network.b.core.peer(0).datagram_bytes == 1472
    network.carry(network.b, 0, length=300_000)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("dead", [0, 1, 2, 3])
def test_connect__over_the_links_that_are_up(seed: int, dead: int) -> None:
    """The first HELLO's port may be hashed to a failed link, and so may the reply's."""
    network = Network(seed=seed)
    network.dead.add(dead)
    number = network.a.core.connect("b:0", sizes=(8972, 1472), now=network.now)
    network.run(until=lambda: network.opened(number), seconds=1)
    assert network.opened(number)
    network.carry(network.a, number, length=100_000)
    network.run(seconds=2)
    assert len(network.b.of(PeerOpened)) == 1, "HELLOs over several paths open one peer"
    assert not ended(network.b)


def test_handle_packets__hello_of_a_known_context_from_elsewhere_gets_no_answer() -> None:
    network = Network(seed=1)
    opened_by_hand(network, source="x:1")
    assert give(network.b, hello(), now=network.now, source="y:1") == []
    assert len(network.b.core._peers) == 1


@pytest.mark.parametrize(("ours", "theirs"), [(4096, 64), (64, 4096)])
def test_window_packets__is_the_lesser_of_both_ends(ours: int, theirs: int) -> None:
    """A sender with the larger window would send what the receiver must drop."""
    network = Network(seed=1, config=ProtocolConfig(window_packets=ours), shape=Shape(delay_us=20_000))
    network.config = ProtocolConfig(window_packets=theirs)
    network.replace("b")
    at_a, at_b = network.connect()
    sender, receiver = network.a.core.peer(at_a).sender, network.b.core.peer(at_b).receiver
    network.a.core.post(at_a, WorkRequest(request=1, length=8 << 20))
    widest = 0

    def done() -> bool:
        nonlocal widest
        widest = max(widest, sender._inflight.next_psn - sender._inflight.base)
        return bool(completed(network.a))

    network.run(until=done, seconds=20)
    assert [completion.status for completion in completed(network.a)] == [Status.OK]
    assert 50 < widest <= 64
    assert sender.retransmitted == receiver.duplicates == 0


def test_connect__no_answer() -> None:
    network = Network(seed=1)
    network.b.alive = False
    number = network.a.core.connect("b:0", sizes=(8972, 1472), now=network.now)
    network.run(until=lambda: bool(ended(network.a)), seconds=15)
    assert ended(network.a) == [PeerEnded(number, Status.LOCAL_ERROR_UNREACH_REMOTE, "no answer within 10 s", ())]
    assert network.now == pytest.approx(110.0)
    network.run(seconds=5)
    assert network.a.core.poll_timeout() is None, "no timer is armed"


def test_handle_icmp_unreachable__accepted_only_while_opening() -> None:
    network, at_a, _ = connected()
    network.a.core.handle_icmp_unreachable("b:0", now=network.now)
    assert not ended(network.a)
    second = network.a.core.connect("b:9", sizes=(8972,), now=network.now)
    network.a.core.handle_icmp_unreachable("c:9", now=network.now)
    network.a.core.handle_icmp_unreachable("b:9", now=network.now)
    network.run(seconds=0.5)
    (end,) = ended(network.a)
    assert (end.peer, end.status) == (second, Status.LOCAL_ERROR_UNREACH_REMOTE)
    network.a.core.peer(at_a)


@pytest.mark.parametrize("seed", range(6))
def test_handle_packets__data_overtakes_the_accept(seed: int) -> None:
    """The responder may send as soon as it knows of the peer; its data comes over other paths than its ACCEPT."""
    network = Network(seed=seed, conditions=Conditions(reorder_s=0.002))
    network.a.core.connect("b:0", sizes=(8972,), now=network.now)
    network.run(until=lambda: bool(network.b.of(PeerOpened)), seconds=2)
    network.carry(network.b, 0, length=100_000)


# -- invalid requests -----------------------------------------------------------------------------------------------


def test_post__to_a_peer_that_has_ended_or_is_not_open() -> None:
    network = Network(seed=1)
    network.a.core.post(5, WorkRequest(request=1, payload_offset=0, length=1))
    network.run(seconds=0.1)
    assert completed(network.a) == [Completion(5, 1, Status.LOCAL_ERROR_INVALID_AH)]
    number = network.a.core.connect("b:0", sizes=(8972,), now=network.now)
    with pytest.raises(UsageError, match=f"peer {number} is not open"):
        network.a.core.post(number, WorkRequest(request=1, payload_offset=0, length=1))
    network.a.core.release(5, size_bytes=1, messages=1, now=network.now)  # a peer that has ended needs no credit


@pytest.mark.parametrize(
    "settings",
    [{"receive_window_bytes": 1 << 20, "max_message_bytes": 1 << 20}, {"max_message_bytes": 1 << 20}],
    ids=["window", "max_message"],
)
def test_post__longer_than_the_other_end_accepts(settings: dict[str, int]) -> None:
    """A request that can never be delivered ends with status 11; the others complete."""
    network = Network(seed=1)
    network.config = replace(ProtocolConfig(), **settings)  # type: ignore[arg-type]  # integers all
    network.replace("b")
    at_a, _ = network.connect()
    network.a.core.post(at_a, WorkRequest(request=1, payload_offset=0, length=2 << 20))
    network.a.core.post(at_a, WorkRequest(request=2, payload_offset=0, length=100_000))
    network.run(until=lambda: len(completed(network.a)) == 2, seconds=3)
    assert {completion.request: completion.status for completion in completed(network.a)} == {
        1: Status.REMOTE_ERROR_BAD_LENGTH,
        2: Status.OK,
    }


# -- several peers, restarts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_two_peers__share_an_endpoint(seed: int) -> None:
    network = Network(seed=seed, shape=Shape(delay_us=500, rate_bps=250_000_000, limit_packets=60))
    first, second = network.connect()[0], network.connect()[0]
    assert len(network.b.of(PeerOpened)) == 2
    for request in range(4):
        network.a.core.post(first, WorkRequest(request=request, payload_offset=request << 20, length=1 << 20))
        network.a.core.post(second, WorkRequest(request=request, payload_offset=(request + 4) << 20, length=1 << 20))
    network.run(until=lambda: len(completed(network.a)) == 8, seconds=5)
    assert {(c.peer, c.request, c.status) for c in completed(network.a)} == {
        (peer, request, Status.OK) for peer in (first, second) for request in range(4)
    }
    for message in received(network.b):
        index = message.message + (4 if message.peer == 1 else 0)
        assert content(network.b, message.extents) == network.a.region[index << 20 : (index + 1) << 20].tobytes()
    finished = [c.peer for c in completed(network.a)]
    assert abs(finished.index(first) - finished.index(second)) <= 4, "they take turns"


def test_poll_transmit__control_packets_first_or_left_due() -> None:
    network = Network(seed=1)
    accept = opened_by_hand(network)
    answers(network.b, now=network.now)
    core = network.b.core
    core.handle_packets([data_packet(accept.own_context, source="x:1")], controls=[], now=network.now)
    core.post(0, WorkRequest(request=0, payload_offset=0, length=100))
    first = core.poll_transmit(network.now, data_only=True)
    assert isinstance(first, Burst)
    assert first.ack is not None, "the ACK that was due went with it"
    core.handle_packets([data_packet(accept.own_context, psn=1, source="x:1")], controls=[], now=network.now)
    assert core.poll_transmit(network.now, data_only=True) is None
    assert core.poll_transmit(network.now, data_only=True) is None
    core.post(0, WorkRequest(request=1, payload_offset=0, length=100_000))
    assert isinstance(core.poll_transmit(network.now), Datagram)
    assert isinstance(core.poll_transmit(network.now), Burst)
    core.handle_packets([], controls=[(hello(context=78).encode(), "y:1", network.now)], now=network.now)
    assert core.poll_transmit(network.now, data_only=True) is None
    assert isinstance(core.poll_transmit(network.now), Datagram), "of no peer"
    assert core.poll_transmit(network.now) is None


def test_poll_transmit__data_only_leaves_peers_due_that_it_had_passed() -> None:
    """The data of one peer is taken; what another owes, which was passed before, is sent by the next call of all."""
    network = Network(seed=1)
    first, second = network.connect()[0], network.connect()[0]
    core, later = network.a.core, network.now + 60.0
    answers(network.a, now=network.now)  # no peer is due any more
    core.handle_timeout(later)  # both are probed
    core.post(second, WorkRequest(request=0, payload_offset=0, length=100))
    assert isinstance(core.poll_transmit(later, data_only=True), Burst)
    owed = answers(network.a, now=later)
    assert core.peer(first).remote_context in {each.context for each in owed if isinstance(each, Probe)}


# -- closing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_close__after_the_posted_requests(seed: int) -> None:
    network, at_a, at_b = connected(seed=seed, shape=Shape(delay_us=500, loss_percent=5))
    network.a.core.post(at_a, WorkRequest(request=1, payload_offset=3, length=1 << 20))
    network.a.core.close(at_a, now=network.now)
    with pytest.raises(UsageError, match="not open for sending"):
        network.a.core.post(at_a, WorkRequest(request=2, payload_offset=0, length=1))
    network.run(until=lambda: bool(ended(network.a)) and bool(ended(network.b)), seconds=5)
    assert [(c.request, c.status) for c in completed(network.a)] == [(1, Status.OK)]
    (message,) = received(network.b)
    assert content(network.b, message.extents) == network.a.region[3 : 3 + (1 << 20)].tobytes()
    assert [(end.peer, end.status) for end in ended(network.a) + ended(network.b)] == [
        (at_a, Status.OK), (at_b, Status.OK),
    ]  # fmt: skip
    network.run(seconds=3)
    for node in (network.a, network.b):
        assert node.core.poll_timeout() is None
        core = node.core
        assert [core._peers, core._by_context, core._by_remote, core._ready] == [{}] * 4


def test_flush__ends_open_requests_so_that_a_close_completes() -> None:
    """The receiver releases nothing: 16 MiB of window, 64 MiB posted, and a batch after them."""
    network, at_a, _ = connected()
    for request in range(16):
        network.a.core.post(at_a, WorkRequest(request=request, length=4 << 20))
    owner = [None]
    places = np.arange(100, dtype=np.uint64)
    network.a.core.post_batch(
        at_a, BatchRequest(first_request=16, payload_addresses=places, length=64, immediate=None, owner=owner)
    )
    network.a.core.close(at_a, now=network.now)
    network.run(seconds=1)
    assert not ended(network.a)
    network.a.core.flush(at_a, now=network.now)
    network.run(until=lambda: bool(ended(network.a)) and bool(ended(network.b)), seconds=1)
    statuses = {completion.request: completion.status for completion in completed(network.a)}
    assert sorted(statuses) == list(range(116))
    assert set(statuses.values()) == {Status.OK, Status.FLUSHED}
    assert {end.status for end in ended(network.a) + ended(network.b)} == {Status.OK}
    assert sys.getrefcount(owner) == 2, "here, and as the argument: an ended batch refers to no memory"


def test_abandon__completes_all_requests_and_sends_nothing() -> None:
    network, at_a, at_b = connected()
    owner = [None]
    places = np.arange(100, dtype=np.uint64)
    network.a.core.post(at_a, WorkRequest(request=0, length=1 << 20))
    network.a.core.post_batch(
        at_a, BatchRequest(first_request=1, payload_addresses=places, length=64, immediate=None, owner=owner)
    )
    for _ in range(2):
        network.a.core.abandon(at_a, status=Status.LOCAL_ERROR_QP_INTERNAL_ERROR, reason="why", now=network.now)
    assert network.a.core.poll_transmit(network.now) is None
    network.run(until=lambda: bool(ended(network.b)), seconds=60)
    assert [c.request for c in completed(network.a)] == list(range(101))
    assert {c.status for c in completed(network.a)} == {Status.LOCAL_ERROR_QP_INTERNAL_ERROR}
    assert [(end.status, end.reason) for end in ended(network.a)] == [(Status.LOCAL_ERROR_QP_INTERNAL_ERROR, "why")]
    assert sys.getrefcount(owner) == 2, "though the peer's records exist"
    assert [end.peer for end in ended(network.b)] == [at_b]


def test_still_needed__not_what_was_acknowledged() -> None:
    network, at_a, _ = connected()
    network.a.core.post(at_a, WorkRequest(request=0, length=1000))
    burst = network.a.core.poll_transmit(network.now)
    assert isinstance(burst, Burst)
    assert network.a.core.still_needed(burst, peer=at_a)
    network.transmit(network.a, burst)
    network.run(until=lambda: bool(completed(network.a)), seconds=1)
    assert not network.a.core.still_needed(burst, peer=at_a)
    elsewhere = changed(burst, context=burst.context + 1)
    assert network.a.core.still_needed(elsewhere, peer=at_a)
    network.a.core.abandon(at_a, status=Status.OK, reason="", now=network.now)
    assert not network.a.core.still_needed(elsewhere, peer=at_a), "the peer has ended"


def test_handle_packets__reset_while_closing() -> None:
    """All was acknowledged and the other end has no peer, as after a CLOSE: its CLOSED was lost."""
    network, at_a, _ = connected()
    peer = network.a.core.peer(at_a)
    network.a.core.close(at_a, now=network.now)
    assert Close(peer.remote_context, peer.own_context) in answers(network.a, now=network.now)
    give(network.a, Reset(peer.own_context, peer.remote_context), now=network.now, source="b:0")
    assert not ended(network.a), "a RESET is no orderly end"
    network.b.alive = False
    assert network.end_of(network.a).status is Status.OK
