"""srd.tunnel.member: packets of a peer are handed over whatever event loop runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
import uvloop

from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.secure.config import Plain
from srd.tunnel import frames, vnet
from srd.tunnel.config import TunnelConfig
from srd.tunnel.member import Member
from srd.tunnel.send_memory import SendMemory
from tests.patience import PATIENCE_S
from tests.srd.tunnel.inner import ipv4, tcp

CONFIG = TunnelConfig(reorder_round_trips=0.0, reorder_least_s=0.0001, reorder_most_s=0.0001)
"""Packets wait for less than uvloop's timers can tell from no time."""
FLOWS = 50


class Interface:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.complete = asyncio.Event()

    def write(self, parts: Sequence[memoryview | bytes]) -> str | None:
        self.written.append(b"".join(parts)[vnet.HEADER_BYTES :])
        if len(self.written) == FLOWS:
            self.complete.set()
        return None

    def on_control_untrusted(self, _member: Member, _message: bytes) -> None:
        raise AssertionError

    def on_left(self, _member: Member) -> None:
        pass


async def packets_ahead_of_their_flow() -> None:
    """Send the second packet of many flows at once, so that each waits for the first."""
    config = EndpointConfig(security=Plain())
    packets = [bytes(ipv4() / tcp(sport=flow)) for flow in range(FLOWS)]
    messages = [
        frames.HEADER.pack(len(packet), flow, 1, frames.ORDERED) + vnet.NONE.pack() + packet
        for flow, packet in enumerate(packets)
    ]
    async with (
        Endpoint.listen("127.0.0.1", 0, config=config) as server,
        Endpoint.open(towards="127.0.0.1", config=config) as client,
        client.connect(*server.address) as peer,
    ):
        interface = Interface()
        member = Member(
            await server.accept(), config=CONFIG, memory=SendMemory(), interface=interface, refusal=lambda *_: None
        )
        member.attach()
        member.join()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*(peer.send(message) for message in messages))
            await interface.complete.wait()
        assert sorted(interface.written) == sorted(packets)
        assert not member.peer.ended


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_packets_that_wait__for_a_very_short_time(run: object) -> None:
    assert callable(run)
    run(packets_ahead_of_their_flow())
