"""Attackers that begin messages and never end them, beside an honest peer, whose transfer continues.

In virtual time. `b` has memory for two windows; each of three attackers uses its whole window.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from srd.proto.config import ProtocolConfig
from srd.proto.events import MessageAborted
from srd.proto.wire.control import Nack, Probe
from srd.proto.wire.data import ABORTED, HEADER_BYTES
from srd.proto.wire.status import Status
from srd.proto.work_request import WorkRequest
from tests.simulation import Network, completed, content, ended, received, release
from tests.srd.proto.byhand import answers, data_packet, opened_by_hand

WINDOW = 1 << 20
LENGTH = WINDOW // 2
SIZE = 1472
SEGMENT = SIZE - HEADER_BYTES
CONFIG = replace(ProtocolConfig(), receive_window_bytes=WINDOW, max_message_bytes=LENGTH)


@dataclass
class Attacker:
    """An attacker's peer at b: it sends messages of `LENGTH` bytes without their last packets."""

    network: Network
    name: str
    context: int = 0
    number: int = 0
    psn: int = 0
    sequence: int = 0
    message: int = 0
    open: dict[int, int] = field(default_factory=dict)
    """Messages that it began, and the PSN of the first packet of each."""

    def __post_init__(self) -> None:
        before = set(self.network.b.core._peers)
        self.context = opened_by_hand(
            self.network, context=ord(self.name[0]), source=f"{self.name}:0", size=SIZE
        ).own_context
        (self.number,) = set(self.network.b.core._peers) - before

    def send(self, message: int, *, first: int, count: int, psn: int, flags: int = 0, end: int = 0) -> None:
        batch = []
        for index in range(first, first + count):
            packet = data_packet(
                self.context,
                psn=psn + index,
                path_sequence=self.sequence,
                message=message,
                length=LENGTH,
                flags=flags,
                offset=end if flags else index * SEGMENT,
                size=SIZE,
            )
            self.sequence += 1
            payload = b"" if flags else bytes(packet.payload_bytes)
            batch.append((f"{self.name}:0", (bytes(packet.headers), payload)))
        self.network.arrive(self.network.b, batch)

    def fill(self) -> None:
        """Begin as many messages as the window allows."""
        for _ in range(WINDOW // LENGTH - len(self.open)):
            self.open[self.message] = self.psn
            self.send(self.message, first=0, count=LENGTH // SEGMENT, psn=self.psn)
            self.psn += LENGTH // SEGMENT + 1
            self.message += 1

    def keep_alive(self) -> None:
        probe = Probe(self.context, ord(self.name[0]), 0, self.sequence, 0).encode()
        self.sequence += 1
        self.network.b.core.handle_packets(
            [], controls=[(probe, f"{self.name}:0", self.network.now)], now=self.network.now
        )

    def retransmit(self) -> None:
        """Retransmit what was refused, except for the last packets."""
        for message, psn in self.open.items():
            self.send(message, first=LENGTH // SEGMENT - 1, count=1, psn=psn)

    def begin_anew(self) -> None:
        """Abort the discarded messages, and use their credit for the next."""
        given_up = self.network.b.core.peer(self.number).receiver._discarded or {}
        for message in [message for message in self.open if message in given_up]:
            psn = self.open.pop(message)
            self.send(
                message, first=LENGTH // SEGMENT, count=1, psn=psn, flags=ABORTED, end=psn + LENGTH // SEGMENT + 1
            )
        self.fill()


def attacked() -> tuple[Network, int, list[Attacker]]:
    network = Network(seed=1, config=CONFIG, datagram_bytes=SIZE, region_bytes=128 << 20)
    network.b.plenty_bytes = 2 * WINDOW
    peer, _ = network.connect()
    attackers = [Attacker(network, name) for name in ("x", "y", "z")]
    for attacker in attackers:
        attacker.fill()
    assert network.b.held_bytes > 2 * WINDOW
    return network, peer, attackers


@pytest.mark.parametrize("kind", ["keep_alive", "insist", "begin_anew"])
def test_shortage__an_honest_peer_continues(kind: str) -> None:
    network, peer, attackers = attacked()
    for request in range(12):
        network.a.core.post(
            peer, WorkRequest(request=request, payload_offset=request, length=LENGTH, immediate=request)
        )
    started, done = network.now, 0
    while len(completed(network.a)) < 12 and network.now < started + 30:
        for attacker in attackers:
            attacker.keep_alive()
            if kind != "keep_alive":
                attacker.retransmit()
            if kind == "begin_anew":
                attacker.begin_anew()
        network.run(seconds=0.02)
        for message in received(network.b)[done:]:
            assert message.immediate is not None
            region = network.a.region
            assert content(network.b, message.extents) == region[message.immediate :][:LENGTH].tobytes()
            release(network.b, message, now=network.now)
        done = len(received(network.b))
    assert [event.status for event in completed(network.a)] == [Status.OK] * 12
    assert network.now - started < 5
    assert not ended(network.b)


def test_shortage__memory_of_stalled_messages_is_released() -> None:
    network, peer, attackers = attacked()
    for request in range(20):
        for attacker in attackers:
            attacker.keep_alive()
        network.a.core.post(peer, WorkRequest(request=request, payload_offset=0, length=1000))
        network.run(seconds=0.2)
    voided = network.b.of(MessageAborted)
    assert sum(extent.length for event in voided for extent in event.released) >= WINDOW
    assert network.b.held_bytes <= 2 * WINDOW
    for attacker in attackers:
        assert len(network.b.core.peer(attacker.number).receiver._discarded or ()) <= len(attacker.open)


def test_discard__is_repeated_to_the_sender_until_the_message_is_aborted() -> None:
    network, _, (attacker, *_) = attacked()
    peer = network.b.core.peer(attacker.number)
    granted = peer.receiver.acks.credit_bytes
    network.run(seconds=0.1)
    peer.discard([0], now=network.now)
    network.b.core._after(peer, now=network.now)
    assert Nack(ord("x"), 0, Status.REMOTE_ERROR_RNR) in answers(network.b, now=network.now)
    landed = peer.receiver.landed_bytes
    attacker.send(0, first=LENGTH // SEGMENT, count=1, psn=0)
    assert Nack(ord("x"), 0, Status.REMOTE_ERROR_RNR) in answers(network.b, now=network.now)
    assert peer.receiver.landed_bytes == landed
    assert peer.receiver.acks.credit_bytes == granted, "its credit is not granted again"
    end = LENGTH // SEGMENT + 1
    attacker.send(0, first=LENGTH // SEGMENT, count=1, psn=0, flags=ABORTED, end=end)
    assert peer.receiver.acks.credit_bytes == granted + LENGTH
    assert peer.receiver.acks.credit_messages == CONFIG.receive_window_messages + 1


@pytest.mark.parametrize("drips", [False, True])
def test_overdue__without_any_shortage(*, drips: bool) -> None:
    """A message without new data is discarded after `reassembly_timeout_s`; one that drips, by its age."""
    network = Network(seed=1, config=replace(CONFIG, request_timeout_s=40.0), datagram_bytes=SIZE)
    attacker = Attacker(network, "x")
    attacker.send(0, first=1, count=1, psn=0)
    started, dripped = network.now, 1
    while network.b.held_bytes:
        attacker.keep_alive()
        network.run(until=lambda: not network.b.held_bytes, seconds=0.4)
        if drips and network.now - started > dripped * 10:
            dripped += 1
            attacker.send(0, first=dripped, count=1, psn=0)
        assert network.now - started < 60
    assert network.now - started == pytest.approx(40.0 if drips else 30.0, abs=0.5)
    assert len(network.b.of(MessageAborted)) == 1


def test_overdue__not_slow_messages() -> None:
    """Without a memory shortage a slow sender is not discarded."""
    network = Network(seed=1, config=CONFIG, datagram_bytes=SIZE)
    attacker = Attacker(network, "x")
    for index in range(10):
        attacker.send(0, first=index, count=1, psn=0)
        for _ in range(50):
            attacker.keep_alive()
            network.run(seconds=0.4)
    attacker.send(0, first=10, count=LENGTH // SEGMENT - 9, psn=0)
    network.run(seconds=0.1)
    assert len(received(network.b)) == 1
