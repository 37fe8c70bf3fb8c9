"""When a message counts as sent: on a fake card, which completes requests when a test says so."""

from __future__ import annotations

import asyncio

import pytest

from devmem import Region
from nitro_emu.aio import Device, QpAddress, Status
from nitro_emu.messages.layouts import Kind, Window
from nitro_emu.messages.peer import MessagePeer
from tests.nitro_emu.verbs.fake_card import GID, FakeCard
from tests.patience import PATIENCE_S

LENGTH = 100_000


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("last", [Status.OK, Status.REMOTE_ERROR_BAD_DEST_QPN])
async def test_send__a_long_message_is_sent_when_both_its_requests_are(
    card: FakeCard, order: tuple[int, int], last: Status
) -> None:
    async with asyncio.timeout(PATIENCE_S), await Device.open("efa_0", directory=card.directory) as device:
        peer = await MessagePeer.create(device, gid=GID, slots=1, slot_bytes=4096)
        peer.open(await device.remote(QpAddress(GID, 7, 1)), Window(1, 0, 1, LENGTH, 8000))
        (cq,), (qp,) = card.cqs.values(), card.qps.values()
        with Region(LENGTH) as region:
            sending = peer.post_send(region, offset=0, length=LENGTH)
            while not (requests := card.take_sends(qp)):  # noqa: ASYNC110 - memory that the driver writes
                await asyncio.sleep(0)
            assert len(requests) == 2
            for number, status in zip(order, (Status.OK, last), strict=True):
                assert not sending.done()
                card.complete_send(cq, qp, requests[number].req_id, status=status)
                card.fire(cq)
                while card.consumed(cq).consumer != cq.produced:  # noqa: ASYNC110 - likewise
                    await asyncio.sleep(0)
                for _ in range(3):  # the callbacks of the request's future
                    await asyncio.sleep(0)
            assert await sending is last
            assert peer.ended is (last is not Status.OK)


async def test_ping__before_this_end_can_answer(card: FakeCard) -> None:
    async with asyncio.timeout(PATIENCE_S), await Device.open("efa_0", directory=card.directory) as device:
        peer = await MessagePeer.create(device, gid=GID, slots=1, slot_bytes=4096)
        (qp,) = card.qps.values()
        peer._pong()
        assert card.take_sends(qp) == []
        peer.open(await device.remote(QpAddress(GID, 7, 1)), Window(1, 0, 1, LENGTH, 8000))
        peer._pong()
        assert [request.data for request in card.take_sends(qp)] == [bytes([Kind.PONG])]
