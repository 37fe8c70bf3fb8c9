"""srd.endpoint: peers that end as soon as they open, that are not accepted, and whose connect() was cancelled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from srd.endpoint import Endpoint
from srd.errors import PeerError, SrdError
from srd.inbox import PeerInbox
from srd.proto.events import (
    BatchCompletion,
    Completion,
    Event,
    MessageAborted,
    MessageReceived,
    PeerEnded,
    PeerOpened,
    WriteReceived,
)
from srd.proto.wire.control import Accept, Close, Control, Datagram, Hello, Retry, decode_untrusted
from srd.proto.wire.status import Status
from srd.rx_queues import RxQueueTable
from tests.patience import PATIENCE_S, until
from tests.srd.loopback import PLAIN, SMALL, endpoints, pair, receive, send

NOBODY = 99
"""Number of a peer that does not exist."""


class Responder(asyncio.DatagramProtocol):
    """A scripted responder on a plain socket."""

    def __init__(self, *, closes: bool) -> None:
        self.received: list[Control] = []
        self._closes = closes
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        packet = decode_untrusted(data)
        self.received.append(packet)
        assert self._transport is not None
        if isinstance(packet, Hello) and not packet.cookie:
            self._transport.sendto(Retry(packet.own_context, b"c" * 24, packet.path, len(data)).encode(), addr)
        elif isinstance(packet, Hello):
            accept = Accept(packet.own_context, 77, 1 << 20, 1 << 10, 1 << 20, 4096, len(data))
            self._transport.sendto(accept.encode(), addr)
            if self._closes:
                self._transport.sendto(Close(packet.own_context, 77).encode(), addr)


@asynccontextmanager
async def responding(*, closes: bool) -> AsyncIterator[tuple[Responder, int]]:
    transport, responder = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: Responder(closes=closes), local_addr=("127.0.0.1", 0)
    )
    try:
        yield responder, transport.get_extra_info("sockname")[1]
    finally:
        transport.close()


# -- peers that end as soon as they are open ------------------------------------------------------------------------


async def test_connect__to_one_that_closes_at_once_is_a_peer_that_has_ended() -> None:
    """Both packets come in one batch. The endpoint continues, for this peer and for others."""
    async with (
        asyncio.timeout(PATIENCE_S),
        responding(closes=True) as (_, port),
        await Endpoint.listen("127.0.0.1", port=0, config=PLAIN) as two,
        await Endpoint.open(towards="127.0.0.1", config=PLAIN) as one,
    ):
        for _ in range(3):
            peer = await one.connect("127.0.0.1", port=port)
            assert await peer.wait_ended() is Status.OK
            with pytest.raises(PeerError, match="closed by the other end"):
                await peer.recv()
        here, there = await one.connect("127.0.0.1", port=two.address[1]), await two.accept()
        await send(here, b"alive")
        assert await receive(there) == b"alive"


def open_and_close(two: Endpoint, *, context: int) -> None:
    """Have a core process HELLO with cookie and CLOSE in one batch, before any event is delivered."""
    core, now, source = two._engine.core, time.monotonic(), ("127.0.0.1", 9)
    hello = Hello(context, 1 << 20, 1 << 10, 1 << 20, 4096, 576)

    def give(packet: Control) -> Control:
        core.handle_packets([], controls=[(packet.encode(), source, now)], now=now)
        reply = core.poll_transmit(now)
        assert isinstance(reply, Datagram)
        return decode_untrusted(reply.data)

    retry = give(hello)
    assert isinstance(retry, Retry)
    accept = give(replace(hello, cookie=retry.cookie))
    assert isinstance(accept, Accept)
    give(Close(accept.own_context, context))


async def test_accept__of_peers_that_opened_and_ended_in_one_batch() -> None:
    """They do not count as unaccepted peers, and are not accepted later; other peers are not affected."""
    config = replace(PLAIN, protocol=replace(PLAIN.protocol, max_unaccepted_peers=3))
    async with pair(config=config) as (one, two, here, there):
        for context in range(3):
            open_and_close(two, context=context)
        await send(here, b"alive")
        assert await receive(there) == b"alive"
        here_too = await one.connect("127.0.0.1", port=two.address[1])
        there_too = await two.accept()
        await send(here_too, b"alive")
        assert await receive(there_too) == b"alive"


async def test_accept__of_a_peer_that_has_sent_something_and_closed() -> None:
    """Acknowledged messages are not lost by a late accept()."""
    async with endpoints(SMALL) as (one, two):
        here = await one.connect("127.0.0.1", port=two.address[1])
        assert await send(here, b"a note") is Status.OK
        await here.close()
        assert len(two._engine.core._unaccepted) == 1, "it holds memory, so it counts"
        there = await two.accept()
        assert not two._engine.core._unaccepted
        assert await receive(there) == b"a note"
        with pytest.raises(PeerError, match="closed by the other end"):
            await there.recv()


@pytest.mark.parametrize(
    "event",
    [
        MessageReceived(NOBODY, 1, 0, None, ()),
        MessageAborted(NOBODY, ()),
        WriteReceived(NOBODY, 1, 2),
        Completion(NOBODY, 1, Status.OK),
        BatchCompletion(NOBODY, 1, 2),
        PeerEnded(NOBODY, Status.OK, "", ()),
    ],
    ids=lambda event: type(event).__name__,
)
async def test_on_event__of_an_unknown_peer(event: Event) -> None:
    async with pair() as (_, two, here, there):
        two._on_event(event)
        await send(here, b"alive")
        assert await receive(there) == b"alive"


@pytest.mark.sources
@pytest.mark.parametrize("broken", [PeerInbox.deliver, RxQueueTable.remove_peer], ids=lambda broken: broken.__name__)
async def test_on_event__an_internal_error_ends_one_peer(broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    problems: list[BaseException | None] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context.get("exception")))
    async with pair() as (one, two, here, there):
        here_too, there_too = await one.connect("127.0.0.1", port=two.address[1]), await two.accept()

        def fail_once(owner: object, *arguments: Any) -> None:
            if owner in (there._inbox, two._engine.queues) and not problems:
                raise ZeroDivisionError("a bug")
            broken(owner, *arguments)

        owner = PeerInbox if broken is PeerInbox.deliver else RxQueueTable
        monkeypatch.setattr(owner, broken.__name__, fail_once)
        await send(here, b"the last message")
        if owner is RxQueueTable:
            await here.close()
        status = await there.wait_ended()
        assert status is (Status.OK if owner is RxQueueTable else Status.LOCAL_ERROR_QP_INTERNAL_ERROR)
        await send(here_too, b"alive")
        assert await receive(there_too) == b"alive"
    assert [type(problem) for problem in problems] == [ZeroDivisionError]


# -- cancelled attempts ---------------------------------------------------------------------------------------------


async def test_connect__cancelled_while_opening_closes_both_ends() -> None:
    async with (
        responding(closes=False) as (responder, port),
        asyncio.timeout(PATIENCE_S),
        await Endpoint.open(towards="127.0.0.1", config=PLAIN) as one,
    ):
        connecting = asyncio.ensure_future(one.connect("127.0.0.1", port=port))
        await until(lambda: any(isinstance(each, Hello) and each.cookie for each in responder.received), pause_s=0)
        connecting.cancel()  # its ACCEPT is in flight
        with pytest.raises(asyncio.CancelledError):
            await connecting
        await until(lambda: any(isinstance(packet, Close) for packet in responder.received))
        assert not one._opening
        await until(lambda: not one._engine.core._by_context)


@pytest.mark.sources
@pytest.mark.parametrize("late", [False, True], ids=["before the result", "after the result"])
async def test_connect__cancelled_in_the_turn_in_which_it_opened(*, late: bool) -> None:
    """As by a timeout: the result is set, or about to be, and not used."""
    async with endpoints(SMALL) as (one, two):
        deliver = one._engine.driver._on_event

        def cancelling(event: Event) -> None:
            if isinstance(event, PeerOpened) and not late:
                connecting.cancel()
            deliver(event)
            if isinstance(event, PeerOpened) and late:
                connecting.cancel()

        one._engine.driver._on_event = cancelling
        connecting = asyncio.ensure_future(one.connect("127.0.0.1", port=two.address[1]))
        with pytest.raises(asyncio.CancelledError):
            await connecting
        one._engine.driver._on_event = deliver
        for core in (one._engine.core, two._engine.core):
            await until(lambda core=core: not core._peers)  # type: ignore[misc]
        await until(lambda: not (two._incoming or one._closing_peers))
        here, there = await one.connect("127.0.0.1", port=two.address[1]), await two.accept()
        await send(here, b"alive")
        assert await receive(there) == b"alive"


async def test_stop_accepting__refuses_new_peers_and_keeps_the_others() -> None:
    listening = [Endpoint.listen("127.0.0.1", 0, config=SMALL) for _ in range(2)]
    async with listening[0] as server, listening[1] as client:
        peer = await client.connect(*server.address)
        accepted = await server.accept()
        waiting = await client.connect(*server.address)
        server.stop_accepting()
        assert await waiting.wait_ended() is Status.OK
        with pytest.raises(SrdError, match="accepts no more peers"):
            await server.accept()
        with pytest.raises(PeerError) as refused:
            await client.connect(*server.address)
        assert refused.value.status is Status.REMOTE_ERROR_BAD_DEST_QPN
        await peer.send(b"still here")
        assert (await accepted.recv()).data() == b"still here"
        assert (await server.connect(*client.address)).address == client.address
