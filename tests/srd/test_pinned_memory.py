"""Attackers on real sockets that begin messages and never end them, beside an honest peer."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from types import TracebackType
from typing import Self

from srd.endpoint import Endpoint
from srd.proto.errors import PacketError
from srd.proto.seqset import mask
from srd.proto.wire.control import Accept, Ack, Control, Hello, Probe, Retry, decode_untrusted
from srd.proto.wire.data import HEADER_BYTES, NOT_READY, Burst, write_headers
from srd.proto.wire.status import Status
from tests.patience import PATIENCE_S
from tests.srd.loopback import PLAIN, content, receive, send

SIZE = 8972
SEGMENT = SIZE - HEADER_BYTES
LENGTH = PLAIN.protocol.max_message_bytes
AT_ONCE = 8


def names(ack: Ack, first: int, end: int) -> bool:
    """Whether all these PSNs were received."""
    received = ack.bitmap << ack.cumulative | mask(ack.cumulative)
    return received >> first & mask(end - first) == mask(end - first)


class Attacker:
    """Sends crafted packets from one port."""

    def __init__(self, port: int) -> None:
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.settimeout(0)
        self._sock.bind(("127.0.0.1", 0))  # not connected, as answers come from all ports of the other end
        self._target = ("127.0.0.1", port)
        self._context = int.from_bytes(os.urandom(8), "big")
        self._there = 0
        self._sequence = 0

    async def _next(self) -> Control:
        while True:
            data = await asyncio.get_running_loop().sock_recv(self._sock, 1 << 16)
            try:
                return decode_untrusted(data)
            except PacketError:
                continue

    async def _answer(self, wanted: Callable[[Control], bool], *packets: bytes) -> Control:
        """Send packets repeatedly until the wanted reply arrives."""
        while True:
            for packet in packets:
                self._sock.sendto(packet, self._target)
            try:
                async with asyncio.timeout(0.2):
                    while not wanted(answer := await self._next()):
                        pass
                    return answer
            except TimeoutError:
                continue

    async def open(self) -> None:
        hello = Hello(self._context, 1 << 20, 1 << 10, 1 << 20, 4096, SIZE)
        retry = await self._answer(lambda answer: isinstance(answer, Retry), hello.encode())
        assert isinstance(retry, Retry)
        hello = Hello(self._context, 1 << 20, 1 << 10, 1 << 20, 4096, SIZE, retry.cookie)
        accept = await self._answer(lambda answer: isinstance(answer, Accept), hello.encode())
        assert isinstance(accept, Accept)
        self._there = accept.own_context

    async def begin(self, message: int, *, psn: int) -> int:
        """Send all of a message but its last packet, as far as it is accepted; return the PSN after it."""
        packets = LENGTH // SEGMENT
        for first in range(0, packets, AT_ONCE):
            end = min(first + AT_ONCE, packets)
            ack = await self._answer(
                lambda answer, first=first, end=end: (
                    isinstance(answer, Ack)  # type: ignore[misc]  # bound early
                    and (names(answer, psn + first, psn + end) or bool(answer.flags & NOT_READY))
                ),
                *(self._packet(message, index, psn) for index in range(first, end)),
            )
            assert isinstance(ack, Ack)
            if ack.flags & NOT_READY:
                break
        return psn + packets + 1

    def _packet(self, message: int, index: int, psn: int) -> bytes:
        burst = Burst(
            "", 0, self._sequence, self._there, psn + index, 1, 0, message, LENGTH, 0, index * SEGMENT, 0, 0, 0, SEGMENT
        )
        self._sequence += 1
        packet = bytearray(SIZE)
        write_headers(burst, out=memoryview(packet))
        return bytes(packet)

    async def keep_alive(self) -> None:
        """Answer keepalive probes only."""
        while True:
            self._sock.sendto(Probe(self._there, self._context, 0, self._sequence, 0).encode(), self._target)
            self._sequence += 1
            await asyncio.sleep(0.2)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._sock.close()


@asynccontextmanager
async def attackers(two: Endpoint, *, count: int) -> AsyncIterator[None]:
    """Run attackers that have each begun what the window allows, and stay open."""
    with ExitStack() as sockets:
        alive = []
        try:
            for _ in range(count):
                attacker = sockets.enter_context(Attacker(two.address[1]))
                await attacker.open()
                await two.accept()
                alive.append(asyncio.ensure_future(attacker.keep_alive()))
                await attacker.begin(1, psn=await attacker.begin(0, psn=0))
            yield
        finally:
            for task in alive:
                task.cancel()
            await asyncio.gather(*alive, return_exceptions=True)


async def test_transfers_continue_beside_peers_that_hold_memory_and_never_finish() -> None:
    async with (
        asyncio.timeout(3 * PATIENCE_S),
        await Endpoint.listen("127.0.0.1", port=0, config=PLAIN) as two,
        attackers(two, count=3),
    ):
        assert two._engine.queues.host.memory_low
        async with await Endpoint.open(towards="127.0.0.1", config=PLAIN) as one:
            here = await one.connect("127.0.0.1", port=two.address[1])
            there = await two.accept()
            for number in range(6):
                payload = content(LENGTH, seed=number)
                async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as both:
                    sending = both.create_task(send(here, payload))
                    received = both.create_task(receive(there))
                assert sending.result() is Status.OK
                assert received.result() == payload
        assert not any(peer.ended for peer in two._peers.values()), "no peer was ended"
