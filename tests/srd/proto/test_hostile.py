"""Attackers, malformed packets, and peers that violate the protocol."""

from __future__ import annotations

from dataclasses import replace

import pytest

from srd.proto.config import ProtocolConfig
from srd.proto.wire.control import (
    Accept,
    Ack,
    Close,
    Closed,
    Control,
    PathChallenge,
    PathReport,
    Probe,
    Refuse,
    Reset,
    Retry,
)
from srd.proto.wire.data import MIN_DATAGRAM_BYTES
from srd.proto.wire.status import Status
from srd.proto.work_request import WorkRequest
from tests.simulation import Network, completed, connected, content, ended, received
from tests.srd.proto.byhand import answers, data_packet, give, hello, is_empty, opened_by_hand

SEEDS = [1, 2, 3]


# -- attackers ------------


@pytest.mark.parametrize(
    "packet",
    [
        hello(size=MIN_DATAGRAM_BYTES),
        replace(hello(size=MIN_DATAGRAM_BYTES), cookie=bytes(24)),
        Close(5, 6),
        Probe(5, 6, 1, 2, 3),
        Ack(5, 0, 0, 0, 0, ()),
        Closed(5, 6),
        Reset(5, 6),
        Refuse(5, 15),
        Retry(5, bytes(24)),
        Accept(5, 6, 7, 8, 9, 64, 1472),
        b"",
        b"\x02",
        bytes(16),
        b"\x02\x63" + bytes(60),
    ],
    ids=lambda packet: type(packet).__name__,
)
def test_handle_packets__an_attacker_gets_no_more_than_it_sent(packet: Control | bytes) -> None:
    """Neither the cookie exchange nor stray packets amplify: the reply is one packet at most, and no longer."""
    for accepting in (True, False):
        network = Network(seed=1)
        network.b.core._stateless.accepting = accepting
        data = packet if isinstance(packet, bytes) else packet.encode()
        out = give(network.b, data, now=network.now)
        assert len(out) <= 1
        assert sum(len(answer.encode()) for answer in out) <= len(data)
        assert not network.b.core._peers


def test_handle_packets__data_of_unknown_contexts_is_neither_kept_nor_answered() -> None:
    """It has no context for a reply. Its sender's PROBE has one."""
    network = Network(seed=1)
    assert is_empty(network.b.core.handle_packets([data_packet(99)], controls=[], now=network.now))
    assert answers(network.b, now=network.now) == []


# -- hostile and malformed packets of an open peer --


@pytest.mark.parametrize(
    ("paths", "window_packets", "size"), [(32, 4096, 1232), (64, 4096, 1472), (64, 4096, 576), (32, 65_536, 1472)]
)
def test_poll_transmit__no_control_packet_exceeds_the_agreed_size(paths: int, window_packets: int, size: int) -> None:
    """They are sent with "do not fragment": longer ones never arrive."""
    network = Network(seed=1, config=ProtocolConfig(paths=paths, window_packets=window_packets))
    context = opened_by_hand(network, size=size).own_context
    arrivals = [data_packet(context, psn=1 + 2 * path, path=path, length=10**6, size=size) for path in range(paths)]
    arrivals.append(data_packet(context, psn=window_packets - 1, path_sequence=1, length=10**6, size=size))
    network.b.core.handle_packets(arrivals, controls=[], now=100.0)
    reported, sizes = set(), []
    for step in range(10):  # what does not fit into one ack is in the next
        now = 100.001 + step * 0.001
        network.b.core.handle_timeout(now)
        for answer in answers(network.b, now=now):
            sizes.append(len(answer.encode()))
            assert isinstance(answer, Ack | PathChallenge)
            reported |= {report.path for report in answer.reports} if isinstance(answer, Ack) else set()
    assert max(sizes) <= size
    assert reported == set(range(paths))


@pytest.mark.parametrize(
    "ack",
    [
        Ack(0, 10, 0, 1 << 20, 0, ()),
        Ack(0, 0, 0b10, 1 << 20, 0, ()),
        Ack(0, 2**64 - 1, 0, 1 << 20, 0, ()),
        Ack(0, 0, 0, 1 << 20, 0, (PathReport(0, 0, 0, 0, 1, 0),)),
        Ack(0, 0, 0, 1 << 20, 0, (PathReport(0, 2**32 - 1, 0, 0, 1, 0),)),
        Ack(0, 0, 0, 1 << 20, 0, (PathReport(200, 0, 0, 0, 1, 0),)),
    ],
    ids=["cumulative", "bitmap", "far", "sequence", "sequence far", "path"],
)
def test_handle_packets__an_ack_of_what_was_not_sent(ack: Ack) -> None:
    network, at_a, _ = connected()
    context = network.a.core.peer(at_a).own_context
    before = network.a.core.malformed
    give(network.a, replace(ack, context=context), now=network.now, source="b:0")
    assert network.a.core.malformed == before + 1
    network.carry(network.a, at_a, length=50_000)


@pytest.mark.parametrize("seed", SEEDS)
def test_handle_packets__corruption_affects_no_other_peer(seed: int) -> None:
    """UDP's checksum drops corrupted packets; those that pass it must not raise, nor affect another peer."""
    network, hurt, _ = connected(seed=seed)
    network.conditions.corrupt = 0.2
    for request in range(10):
        network.a.core.post(hurt, WorkRequest(request=request, payload_offset=0, length=200_000))
    network.run(seconds=2)
    network.conditions.corrupt = 0.0
    healthy, there = network.connect()
    network.a.core.post(healthy, WorkRequest(request=99, payload_offset=7, length=300_000))
    network.run(until=lambda: any(c.peer == healthy for c in completed(network.a)), seconds=5)
    (message,) = (message for message in received(network.b) if message.peer == there)
    assert content(network.b, message.extents) == network.a.region[7:300_007].tobytes()


def test_handle_packets__memory_of_a_peer_with_a_protocol_error_is_released() -> None:
    """All kept pieces are in a message or in `released`, also those of the rest of the batch."""
    network = Network(seed=1)
    context = opened_by_hand(network).own_context
    batch = [
        data_packet(context, psn=psn, path_sequence=psn, length=length) for psn, length in enumerate([9000, 7000, 9000])
    ]
    result = network.b.core.handle_packets(batch, controls=[], now=100.0)
    network.run(seconds=0.1)
    (end,) = ended(network.b)
    assert end.status is Status.REMOTE_ERROR_ABORT
    assert "message 0" in end.reason
    assert sorted(end.released, key=str) == sorted(result.kept, key=str)


def test_handle_packets__an_ack_with_an_invalid_report() -> None:
    """An ack with one invalid field is dropped whole: later acks repeat the valid ones."""
    network, at_a, _ = connected()
    network.a.core.post(at_a, WorkRequest(request=1, payload_offset=0, length=50_000))
    network.run(until=lambda: bool(received(network.b)), seconds=1)
    assert not completed(network.a)
    context = network.a.core.peer(at_a).own_context
    lie = Ack(context, 6, 0, 1 << 20, 0, (PathReport(63, 10, 0, 0, 1, 0),))
    network.a.core.handle_packets([], controls=[(lie.encode(), "b:0", network.now)], now=network.now)
    assert network.a.core.malformed == 1
    network.run(until=lambda: bool(completed(network.a)), seconds=2)
    assert [completion.status for completion in completed(network.a)] == [Status.OK]
