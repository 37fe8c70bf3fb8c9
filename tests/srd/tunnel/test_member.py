"""srd.tunnel.member: packets of a peer are handed over whatever event loop runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import uvloop

from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.peer import Peer
from srd.secure.config import Plain
from srd.tunnel import frames, vnet
from srd.tunnel.config import TunnelConfig
from srd.tunnel.member import MERGED_BYTES, Member, OutgoingPacket
from srd.tunnel.order import HELD_PACKET_BYTES
from srd.tunnel.send_memory import PacketMemory
from tests.patience import PATIENCE_S
from tests.srd.tunnel.inner import ipv4, tcp

CONFIG = TunnelConfig(reorder_round_trips=0.0, reorder_least_s=0.0001, reorder_most_s=0.0001)
"""Packets wait for less than uvloop's timers can tell from no time."""
FLOWS = 50


class Interface:
    def __init__(self, *, packets: int) -> None:
        self.written: list[bytes] = []
        self.complete = asyncio.Event()
        self._packets = packets
        self.read_after: list[int] = []
        """Packets written when replies were read."""

    def write(self, parts: Sequence[memoryview | bytes]) -> str | None:
        self.written.append(b"".join(parts)[vnet.HEADER_BYTES :])
        if len(self.written) == self._packets:
            self.complete.set()
        return None

    def await_packets(self, packets: int) -> None:
        """Be complete when so many more have come."""
        self.complete.clear()
        self._packets = len(self.written) + packets

    def on_control_untrusted(self, _member: Member, _message: bytes) -> None:
        raise AssertionError

    def read_replies(self) -> bool:
        self.read_after.append(len(self.written))
        return False

    def on_left(self, _member: Member) -> None:
        pass


@asynccontextmanager
async def receiving(config: TunnelConfig, *, packets: int) -> AsyncIterator[tuple[Peer, Member, Interface]]:
    """A peer that sends, the member that it sends to, and the interface behind that, complete after so many packets."""
    endpoint = EndpointConfig(security=Plain())
    async with (
        asyncio.timeout(PATIENCE_S),
        Endpoint.listen("127.0.0.1", 0, config=endpoint) as server,
        Endpoint.open(towards="127.0.0.1", config=endpoint) as client,
        client.connect(*server.address) as peer,
    ):
        interface = Interface(packets=packets)
        member = Member(
            await server.accept(), config=config, memory=PacketMemory(), interface=interface, refusal=lambda *_: None
        )
        member.peer.attach(member)
        member.join()
        yield peer, member, interface


async def packets_ahead_of_their_flow() -> None:
    """Send the second packet of many flows at once, so that each waits for the first."""
    packets = [bytes(ipv4() / tcp(sport=flow)) for flow in range(FLOWS)]
    messages = [
        frames.HEADER.pack(len(packet), flow, 1, frames.ORDERED) + vnet.NONE.pack() + packet
        for flow, packet in enumerate(packets)
    ]
    async with receiving(CONFIG, packets=FLOWS) as (peer, member, interface):
        await asyncio.gather(*(peer.send(message) for message in messages))
        await interface.complete.wait()
        assert sorted(interface.written) == sorted(packets)
        assert not member.peer.ended


async def test_a_packet_that_waits__counts_as_the_message_that_is_kept() -> None:
    packet = bytes(ipv4() / tcp() / bytes(20_000))
    message = b"".join(
        frames.HEADER.pack(len(packet), flow, sequence, frames.ORDERED) + vnet.NONE.pack() + packet
        for flow, sequence in ((1, 0), (2, 1), (3, 0))
    )
    async with receiving(TunnelConfig(reorder_least_s=1000.0, reorder_most_s=1000.0), packets=2) as (
        peer,
        member,
        interface,
    ):
        await peer.send(message)
        await interface.complete.wait()
        assert member._order.held_bytes == len(message) + HELD_PACKET_BYTES
        interface.await_packets(2)
        await peer.send(frames.HEADER.pack(len(packet), 2, 0, frames.ORDERED) + vnet.NONE.pack() + packet)
        await interface.complete.wait()
        assert member._order.held_bytes == 0


async def test_replies_of_the_kernel__are_read_once_packets_are_written() -> None:
    async with receiving(CONFIG, packets=3) as (peer, _member, interface):
        packet = bytes(ipv4() / tcp())
        message = frames.HEADER.pack(len(packet), 1, 0, 0) + vnet.NONE.pack() + packet
        for number in range(3):
            await peer.send(message)  # which ends with the ack, and that is sent later in the turn
            assert interface.read_after[-1] == len(interface.written) == number + 1


@pytest.mark.sources  # it replaces constants
async def test_packets_of_a_flow__share_no_message_that_is_longer_than_any_end_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also if a long one comes behind short ones."""
    monkeypatch.setattr("srd.tunnel.member.LEAST_AHEAD_BYTES", 4 * MERGED_BYTES)
    monkeypatch.setattr("srd.tunnel.member.MOST_AHEAD_BYTES", 4 * MERGED_BYTES)
    lengths = [20_000] * (MERGED_BYTES // 20_000 - 1) + [60_000, 20_000]
    async with receiving(CONFIG, packets=0) as (peer, member, _interface):
        memory = member._memory
        for length in lengths:
            room = memory.room(length)
            assert room is not None
            room[:] = bytes(length)
            place = memory.take(length)
            packet = OutgoingPacket(place.view, place=place, flow=1, flags=frames.ORDERED, packets=1)
            member.send(packet, now=0.0)
        member.pump(now=0.0)
        found: list[int] = []
        while sum(found) < sum(lengths):
            with await peer.recv() as message:
                found.append(message.length)
        assert found == [sum(lengths[:-2]), sum(lengths[-2:])]
        assert found[0] <= MERGED_BYTES


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_packets_that_wait__for_a_very_short_time(run: object) -> None:
    assert callable(run)
    run(packets_ahead_of_their_flow())
