"""srd.file_transfer.send_slots: control messages are sent from shared memory, and time out."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from srd.file_transfer.protocol import decode_untrusted, encode
from srd.file_transfer.send_slots import SendSlots
from srd.proto.wire.status import Status
from tests.patience import PATIENCE_S
from tests.srd.loopback import SMALL, pair, receive


async def test_send__more_messages_than_slots() -> None:
    async with pair() as (_, _, here, there):
        slots = SendSlots(count=2)
        sending = [asyncio.ensure_future(slots.send(here, encode("x", number=number))) for number in range(20)]
        received = [decode_untrusted(await receive(there))["number"] for _ in range(20)]
        assert await asyncio.gather(*sending) == [Status.OK] * 20
        assert sorted(received) == list(range(20))
        slots.close()


async def test_send__to_a_peer_that_has_ended() -> None:
    async with pair() as (_, _, here, there):
        slots = SendSlots()
        await there.close()
        await here.wait_ended()
        assert await slots.send(here, encode("x")) is Status.FLUSHED
        slots.close()


async def test_send__does_not_wait_for_a_peer_without_credit() -> None:
    """Its slot is free when the peer has ended, not before: a request uses the memory."""
    config = replace(SMALL, protocol=replace(SMALL.protocol, receive_window_bytes=100, max_message_bytes=100))
    async with pair(config=config, opener=SMALL) as (_, _, here, _):
        slots = SendSlots(count=1, within_s=0.2)
        body = encode("x", text="y" * 60)
        assert await slots.send(here, body) is Status.OK  # never released by the other end
        assert await slots.send(here, body) is Status.FLUSHED
        assert slots._free == []
        assert await slots.send(here, body) is Status.FLUSHED
        async with asyncio.timeout(PATIENCE_S):
            await here.close()
            while not slots._free:
                await slots._changed.wait()
        slots.close()
