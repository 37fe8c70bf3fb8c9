"""Crafted packets against endpoints on real sockets: nothing ends the process, no byte is wrong, memory is bounded.

The attacker has opened a peer of its own, by scapy's layers, and violates the protocol in each case. What it then sends
in order must still arrive, or its peer ends with the status of a violation; an honest peer notices nothing.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from typing import Any

import pytest
from scapy.layers.inet import IP, UDP
from scapy.packet import Packet, Raw, fuzz

import srd
from srd.contrib import scapy as layers
from srd.contrib.scapy import (
    SRD,
    SRDAccept,
    SRDAck,
    SRDClose,
    SRDClosed,
    SRDData,
    SRDNack,
    SRDPathChallenge,
    SRDPathResponse,
    SRDProbe,
    SRDProtected,
    SRDPull,
    SRDPullRequest,
    SRDRefuse,
    SRDReport,
    SRDReset,
    SRDRetry,
    SRDSecureAccept,
)
from srd.endpoint import Endpoint
from srd.peer import Peer
from srd.proto.wire.data import ABORTED, IMMEDIATE, Opcode, PacketType
from srd.proto.wire.status import Status
from tests.patience import PATIENCE_S
from tests.srd.crafter import HOST, PAYLOAD_BYTES, Crafter
from tests.srd.loopback import PLAIN, SMALL, content, pair, receive, send
from tests.srd.lossy import tap

MESSAGES = 8  # that the attacker may begin
CONFIG = replace(PLAIN, protocol=replace(PLAIN.protocol, receive_window_messages=MESSAGES))
GOOD = content(3 * PAYLOAD_BYTES - 1000, seed=5)
"""What is to arrive after all: PSNs 0 to 2, message 0."""
FULL = b"x" * PAYLOAD_BYTES
ALL_ONES = (1 << 64) - 1


def stray(layer: type[Packet], **fields: Any) -> Callable[[Crafter], list[Packet]]:
    """Return a control packet for the attacker's peer."""
    return lambda c: [SRD(context=c.context) / layer(**fields)]


def ends(layer: type[Packet], *, other: int = 0, **fields: Any) -> Callable[[Crafter], list[Packet]]:
    """Return a control packet that names the attacker's context, or another."""
    return lambda c: [SRD(context=c.context) / layer(own_context=c.own_context + other, **fields)]


def flagged(flags: int, payload: bytes = b"x", **fields: Any) -> Callable[[Crafter], list[Packet]]:
    """Return a data packet with flags."""
    return lambda c: [c.data(9, payload, flags=flags, **fields)]


def both(*fields: dict[str, Any]) -> Callable[[Crafter], list[Packet]]:
    """Return two packets of one message of two packets, which disagree in these fields."""
    common = {"message": 9, "length": 2 * PAYLOAD_BYTES}
    one, other = ({**common, "offset": index * PAYLOAD_BYTES, **each} for index, each in enumerate(fields))
    return lambda c: [c.data(8, FULL, **one), c.data(9, FULL, **other)]


@dataclass(frozen=True, slots=True)
class Case:
    """What the attacker sends, and what comes of it."""

    packets: Callable[[Crafter], list[Any]]
    ends: Status | None = None
    """With which status its peer ends; None: it goes on."""
    answer: tuple[type[Packet], dict[str, Any]] | None = None
    """A packet that it gets."""


VIOLATION = Status.REMOTE_ERROR_ABORT
CASES = {
    # -- lengths --
    "empty datagram": Case(lambda _: [b""]),
    "prefix cut short": Case(lambda c: [bytes(c.data(9, b"x"))[:15]]),
    "header cut short": Case(lambda c: [bytes(c.data(9))[:55]]),
    "every length of data": Case(lambda c: [bytes(c.data(9, b"x" * 20))[:size] for size in range(57)]),
    "longer than agreed": Case(lambda c: [c.data(9, FULL + b"y", length=2 * PAYLOAD_BYTES)]),
    "shorter than agreed": Case(lambda c: [c.data(9, FULL[1:], length=2 * PAYLOAD_BYTES)]),
    "as long as UDP allows": Case(lambda c: [c.data(9, bytes(65_000), length=1 << 20)]),
    "not at its place": Case(lambda c: [c.data(9, FULL, length=3 * PAYLOAD_BYTES, offset=1)]),
    "behind its message": Case(lambda c: [c.data(9, FULL, length=PAYLOAD_BYTES, offset=PAYLOAD_BYTES)]),
    "offset of all ones": Case(lambda c: [c.data(9, FULL, length=2 * PAYLOAD_BYTES, offset=ALL_ONES)]),
    "payload without a length": Case(lambda c: [c.data(9, b"x", length=0)]),
    "ack: bitmap cut short": Case(stray(SRDAck, bitmap=b"\2", bitmap_length=9)),
    "ack: 255 reports of none": Case(stray(SRDAck, report_count=255)),
    "ack: bytes behind it": Case(lambda c: [SRD(context=c.context) / SRDAck() / Raw(b"xyz")]),
    "hello: padding cut short": Case(lambda c: [bytes(c.hello(own_context=5))[:600]]),
    "hello: cookie longer than all": Case(
        lambda c: [c.hello(own_context=5, cookie_length=255, cookie=b"x", padding=b"")]
    ),
    "hello of 100 bytes": Case(lambda c: [c.hello(own_context=5, datagram_bytes=100)]),
    "retry: credential of 65535": Case(stray(SRDRetry, cookie=b"c" * 24, credential_length=65535)),
    # -- headers that contradict themselves, or the peer's other packets --
    "flags that do not exist": Case(flagged(0x40)),
    "key phase in plain text": Case(flagged(0x80)),
    "read with payload": Case(flagged(Opcode.READ)),
    "aborted with payload": Case(flagged(ABORTED)),
    "path 128": Case(lambda c: [c.data(9, b"x", path=128)]),
    "path 255": Case(lambda c: [c.data(9, b"x", path=255), SRD(context=c.context, path=255) / SRDProbe()]),
    "beyond the window": Case(lambda c: [c.data(1 << 40, b"x"), c.data(ALL_ONES, b"x")]),
    "another version": Case(lambda c: [SRD(version=9, context=c.context) / SRDClose(own_context=c.own_context)]),
    "an unknown type": Case(lambda c: [SRD(type=99, context=c.context) / Raw(bytes(50))]),
    "a message that grows": Case(both({}, {"length": 3 * PAYLOAD_BYTES}), ends=VIOLATION),
    "a message that shrinks": Case(both({"length": 3 * PAYLOAD_BYTES}, {}), ends=VIOLATION),
    "a message that changes its key": Case(both({"key": 5}, {}), ends=VIOLATION),
    "a message that changes its kind": Case(both({}, {"flags": IMMEDIATE}), ends=VIOLATION),
    "a message that overlaps itself": Case(both({}, {"offset": 0}), ends=VIOLATION),
    "an aborted message of another length": Case(
        lambda c: [c.data(8, FULL, message=9, length=2 * PAYLOAD_BYTES), c.data(9, flags=ABORTED, length=1, offset=10)],
        ends=VIOLATION,
    ),
    "more messages than granted": Case(
        lambda c: [c.data(psn, FULL, length=2 * PAYLOAD_BYTES) for psn in range(5, 6 + MESSAGES)], ends=VIOLATION
    ),
    "more bytes than granted": Case(
        lambda c: [c.data(psn, FULL, length=4 << 20) for psn in range(5, 9)], ends=VIOLATION
    ),
    "longer than the longest message": Case(
        lambda c: [c.data(9, FULL, length=(4 << 20) + 1)], answer=(SRDNack, {"status": Status.REMOTE_ERROR_BAD_LENGTH})
    ),
    "write without a registration": Case(
        flagged(Opcode.WRITE, FULL, key=77, length=PAYLOAD_BYTES),
        answer=(SRDNack, {"status": Status.REMOTE_ERROR_BAD_ADDRESS}),
    ),
    "write that begins elsewhere": Case(flagged(Opcode.WRITE, FULL, key=77, length=PAYLOAD_BYTES, immediate=5)),
    "write beyond all memory": Case(
        flagged(Opcode.WRITE | IMMEDIATE, FULL, key=ALL_ONES, offset=ALL_ONES, length=PAYLOAD_BYTES),
        answer=(SRDNack, {"status": Status.REMOTE_ERROR_BAD_ADDRESS}),
    ),
    "read without a registration": Case(
        flagged(Opcode.READ, b"", key=77, length=1 << 30),
        answer=(SRDData, {"immediate": Status.REMOTE_ERROR_BAD_ADDRESS}),
    ),
    "response to no read": Case(
        flagged(Opcode.RESPONSE, FULL, length=PAYLOAD_BYTES), answer=(SRDNack, {"status": Status.REMOTE_ERROR_ABORT})
    ),
    # -- acks, closes and the like of what never was --
    "ack of what was never sent": Case(stray(SRDAck, cumulative=1000)),
    "ack of all PSNs": Case(stray(SRDAck, cumulative=ALL_ONES, bitmap=b"\xfe" + b"\xff" * 900)),
    "ack that contradicts itself": Case(stray(SRDAck, bitmap=b"\1")),
    "ack of paths never used": Case(
        stray(SRDAck, reports=[SRDReport(path=path, path_sequence=5) for path in (0, 127, 128, 255)])
    ),
    "ack with a grant of everything": Case(stray(SRDAck, credit_bytes=ALL_ONES, credit_messages=ALL_ONES)),
    "nack of what was never sent": Case(stray(SRDNack, message=3, status=200)),
    "close with another's context": Case(ends(SRDClose, other=1)),
    "closed without a close": Case(ends(SRDClosed)),
    "reset with another's context": Case(ends(SRDReset, other=1)),
    "refuse after the opening": Case(stray(SRDRefuse, status=8)),
    "accept of an open peer": Case(ends(SRDAccept, window_packets=64, datagram_bytes=9000)),
    "challenge of a path never used": Case(stray(SRDPathChallenge, token=ALL_ONES, remote_path=200)),
    "response to no challenge": Case(stray(SRDPathResponse, token=5)),
    "pull of nothing": Case(stray(SRDPull, number=ALL_ONES)),
    "request for all pulls": Case(stray(SRDPullRequest, sent_bytes=ALL_ONES, backlog_bytes=ALL_ONES, number=ALL_ONES)),
    "encrypted without keys": Case(stray(SRDProtected, data=bytes(200))),
    "encrypted accept without keys": Case(stray(SRDSecureAccept, message=bytes(200))),
    "hello of an open peer, other size": Case(lambda c: [c.hello(datagram_bytes=9000)]),
    # -- replays --
    "the same datagram 100 times": Case(lambda c: 100 * c.message(GOOD, number=0, first_psn=0)),
    "the same data over 60 paths": Case(
        lambda c: [c.data(0, GOOD[:PAYLOAD_BYTES], path=path, length=len(GOOD)) for path in range(60)]
    ),
    "in the opposite order, twice": Case(lambda c: 2 * c.message(GOOD, number=0, first_psn=0)[::-1]),
}


class Stage:
    """An endpoint with an honest peer, and the attackers that open peers there."""

    def __init__(self, endpoint: Endpoint, honest: Peer, honest_there: Peer) -> None:
        self.endpoint, self._honest, self._honest_there = endpoint, honest, honest_there
        self._free_bytes = endpoint.stats().free_bytes

    @asynccontextmanager
    async def attacker(self) -> AsyncIterator[tuple[Crafter, Peer]]:
        """Give an attacker with a peer, and that peer; check at the end that the honest peer goes on."""
        with closing(Crafter(self.endpoint.address[1])) as crafter:
            await crafter.open()
            yield crafter, await self.endpoint.accept()
        payload = content(50_000, seed=7)
        assert await send(self._honest, payload) == Status.OK
        assert await receive(self._honest_there) == payload
        assert await send(self._honest_there, payload) == Status.OK
        assert await receive(self._honest) == payload
        assert self.endpoint.stats().free_bytes >= self._free_bytes - 2 * CONFIG.chunk_bytes, "pinned memory"


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    async with pair(config=CONFIG) as (_, endpoint, here, there):
        yield Stage(endpoint, here, there)


async def test_crafted() -> None:
    """All cases one after the other: the endpoint has survived all before."""
    async with stage() as at:
        for name, case in CASES.items():
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await crafted(at, case)
            except Exception as error:
                error.add_note(f"in the case: {name}")
                raise


async def crafted(at: Stage, case: Case) -> None:
    async with at.attacker() as (crafter, peer):
        crafter.send(*case.packets(crafter))
        if case.answer is not None:
            layer, fields = case.answer
            await crafter.wait_for(layer, **fields)
        if case.ends is not None:
            assert await peer.wait_ended() == case.ends
        else:
            crafter.send(*crafter.message(GOOD, number=0, first_psn=0))
            assert await receive(peer) == GOOD
            await crafter.end()
            assert await peer.wait_ended() == Status.OK
        with pytest.raises(srd.PeerError):
            await peer.recv()  # nothing else was delivered
        assert at.endpoint.stats().peers == 1


@pytest.mark.parametrize("seed", range(5))
async def test_fuzzed(seed: int) -> None:
    """Layers whose fields scapy chose, for a peer that exists; whatever becomes of that, the others go on."""
    random.seed(seed)  # scapy's
    kinds = [getattr(layers, f"SRD{kind.name.title().replace('_', '')}") for kind in PacketType]
    async with stage() as at, at.attacker() as (crafter, _):
        for number in range(150):
            prefix = SRD(context=crafter.context, flags=random.choice((0, 0, random.randrange(256))))
            body = fuzz(random.choice(kinds)())
            crafter.send(bytes(prefix / body / random.randbytes(random.choice((0, 9, PAYLOAD_BYTES))))[: 1 << 15])
            if number % 30 == 0:
                await asyncio.sleep(0)
        crafter.send(SRD(context=crafter.context) / SRDClose(own_context=crafter.own_context))
        await crafter.wait_for(SRDClosed)
        assert at.endpoint.stats().peers <= 2


@pytest.mark.root
async def test_spoofed__an_honest_peers_address_without_its_contexts() -> None:
    """Raw packets with its address and port: what ends a peer needs both contexts, of which a stranger knows none."""
    bodies = (SRDClose(), SRDReset(), SRDClosed(), SRDRefuse(status=8), SRDNack(status=8), SRDAck(), SRDPull())
    async with pair(config=CONFIG) as (one, two, here, there):
        headers = IP(src=HOST, dst=HOST) / UDP(sport=one.address[1], dport=two.address[1])
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
            for body in bodies:
                for context in (0, 1, ALL_ONES):
                    raw.sendto(bytes(headers / SRD(context=context) / body), (HOST, 0))
        payload = content(50_000, seed=3)
        assert await send(here, payload) == Status.OK
        assert await receive(there) == payload


async def test_encrypted__recorded_packets_replayed_and_changed() -> None:
    """By somebody on the path, who has every datagram and both contexts: each is dropped, and counted."""
    async with (
        asyncio.timeout(PATIENCE_S * 2),
        await Endpoint.listen(HOST, port=0, config=SMALL) as two,
        tap(two.address[1]) as network,
        await Endpoint.open(towards=HOST, config=SMALL) as one,
    ):
        here, there = await one.connect(HOST, port=network.port), await two.accept()
        for number in range(3):
            assert await send(here, content(20_000, seed=number)) == Status.OK
            assert await receive(there) == content(20_000, seed=number)
        attacker = Crafter(two.address[1])
        for data in [data for data, to in network.seen if to[1] == two.address[1]]:
            attacker.send(data, *changed(SRD(data)))
            await asyncio.sleep(0)
        protection = there._core.protection
        assert protection is not None
        payload = content(20_000, seed=9)
        assert await send(here, payload) == Status.OK
        assert await receive(there) == payload
        assert protection.forged > 0
        assert protection.replayed > 0
        attacker.close()
        await here.close()
        with pytest.raises(srd.PeerError):
            await there.recv()


def changed(packet: Packet) -> Iterator[bytes]:
    """Yield a packet with one field changed, each in turn; the rest is as it was recorded."""
    for layer in (packet, packet.payload):
        for field in layer.fields_desc:
            value = layer.getfieldval(field.name)
            if isinstance(value, int) and field.name not in {"type", "version"}:
                layer.setfieldval(field.name, value ^ 1)
                yield bytes(packet)
                layer.setfieldval(field.name, value)
    yield bytes(packet)[:-1] + bytes([bytes(packet)[-1] ^ 1])
    yield bytes(packet)[:-1]
