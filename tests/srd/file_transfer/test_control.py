"""srd.file_transfer.control: control messages time out, and one peer's wait for no other's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from srd.endpoint import Endpoint
from srd.file_transfer.control import send_control
from srd.file_transfer.protocol import decode_untrusted, encode
from srd.peer import Peer
from srd.proto.wire.status import Status
from tests.srd.loopback import SMALL, pair, receive

BODY = encode("x", text="y" * 60)
PEERS = 70


async def test_send__many_messages() -> None:
    async with pair() as (_, _, here, there):
        sending = [asyncio.ensure_future(send_control(here, encode("x", number=number))) for number in range(20)]
        received = [decode_untrusted(await receive(there))["number"] for _ in range(20)]
        assert await asyncio.gather(*sending) == [Status.OK] * 20
        assert sorted(received) == list(range(20))


async def test_send__to_a_peer_that_has_ended() -> None:
    async with pair() as (_, _, here, there):
        await there.close()
        await here.wait_ended()
        assert await send_control(here, BODY) is Status.FLUSHED


@asynccontextmanager
async def without_credit(endpoint: Endpoint, *, peers: int) -> AsyncIterator[list[Peer]]:
    """Give peers that have room for one message, and have it."""
    config = replace(SMALL, protocol=replace(SMALL.protocol, receive_window_bytes=100, max_message_bytes=100))
    async with await Endpoint.listen("127.0.0.1", port=0, config=config) as full:
        found = [await endpoint.connect(*full.address) for _ in range(peers)]
        for peer in found:
            assert await send_control(peer, BODY) is Status.OK  # never released by the other end
        yield found


async def test_send__does_not_wait_for_a_peer_without_credit() -> None:
    async with pair() as (one, _, _, _), without_credit(one, peers=1) as [full]:
        assert await send_control(full, BODY, within_s=0.2) is Status.FLUSHED


async def test_send__peers_without_credit_delay_no_other() -> None:
    """A refused stranger costs a handshake, and may leave what it is told for as long as a control message may take."""
    async with pair() as (one, _, here, there), without_credit(one, peers=PEERS) as full:
        waiting = [asyncio.ensure_future(send_control(peer, BODY, within_s=None)) for peer in full]
        await asyncio.sleep(0)
        assert await send_control(here, BODY) is Status.OK
        assert await receive(there) == BODY
        assert not any(each.done() for each in waiting)
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
