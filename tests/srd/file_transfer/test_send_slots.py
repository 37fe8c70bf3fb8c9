"""srd.file_transfer.send_slots: control messages are sent from shared memory, and time out."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from srd.file_transfer import send_slots as module
from srd.file_transfer.protocol import decode_untrusted, encode
from srd.file_transfer.send_slots import SendSlots
from tests.patience import PATIENCE_S
from tests.srd.loopback import SMALL, pair, receive


async def test_send__more_messages_than_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COUNT", 2)
    async with pair() as (_, _, here, there):
        slots = SendSlots()
        sending = [asyncio.ensure_future(slots.send(here, encode("x", number=number))) for number in range(20)]
        received = [decode_untrusted(await receive(there))["number"] for _ in range(20)]
        assert await asyncio.gather(*sending) == [True] * 20
        assert sorted(received) == list(range(20))
        slots.close()


async def test_send__to_a_peer_that_has_ended() -> None:
    async with pair() as (_, _, here, there):
        slots = SendSlots()
        await there.close()
        await here.wait_ended()
        assert not await slots.send(here, encode("x"))
        slots.close()


async def test_send__does_not_wait_for_a_peer_without_credit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its slot is free when the peer has ended, not before: a request uses the memory."""
    monkeypatch.setattr(module, "COUNT", 1)
    config = replace(SMALL, protocol=replace(SMALL.protocol, receive_window_bytes=100, max_message_bytes=100))
    async with pair(config=config, opener=SMALL) as (_, _, here, _):
        slots = SendSlots()
        body = encode("x", text="y" * 60)
        assert await slots.send(here, body)  # never released by the other end
        monkeypatch.setattr(module, "WITHIN_S", 0.05)
        assert not await slots.send(here, body)
        assert slots._free == []
        assert not await slots.send(here, body)
        async with asyncio.timeout(PATIENCE_S):
            await here.close()
            while not slots._free:
                await slots._changed.wait()
        slots.close()
