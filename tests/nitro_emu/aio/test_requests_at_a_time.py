"""How many requests the card has at a time: on a fake card, which completes none before a test says so."""

from __future__ import annotations

import asyncio

from nitro_emu.aio import Device, QpAddress, QpSettings, Status
from tests.nitro_emu.verbs.fake_card import GID, FakeCard
from tests.patience import PATIENCE_S


async def test_send__posts_no_more_than_the_completion_queue_has_room_for(card: FakeCard) -> None:
    async with asyncio.timeout(PATIENCE_S), await Device.open("efa_0", directory=card.directory) as device:
        qp = await device.queue_pair(QpSettings(send_requests=5, receive_buffers=3))
        to = await device.remote(QpAddress(GID, 7, 1))
        (card_cq,), (card_qp,) = card.cqs.values(), card.qps.values()
        assert (card_cq.depth, card_qp.command.send_queue_depth) == (8, 8)
        sending = [qp.send(to, b"x") for _ in range(8)]
        first = card.take_sends(card_qp)
        assert len(first) == 5
        for request in first:
            card.complete_send(card_cq, card_qp, request.req_id)
        card.fire(card_cq)
        assert await asyncio.gather(*sending[:5]) == [Status.OK] * 5
        assert len(card.take_sends(card_qp)) == 3
