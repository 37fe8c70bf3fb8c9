"""Waiting for completions: arming, events, several queues, and the card's death."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import select
import threading

import pytest

from nitro_emu.efa.verbs import CompletionChannel, CompletionQueue
from nitro_emu.errors import VerbsError
from tests.nitro_emu.efa.verbs.rig import Rig
from tests.patience import PATIENCE_S
from tests.srd.loopback import open_files


def test_arming_is_a_doorbell(rig: Rig) -> None:
    rig.card.status[0] = 1
    assert not rig.card.consumed(rig.card_cq).arm
    rig.cq.request_notify()
    assert rig.card.consumed(rig.card_cq) == (0, 0, True)
    assert rig.card.kicks() == 1


def test_the_request_is_repeated_until_its_event_has_come(rig: Rig) -> None:
    rig.qp.post_send(*(rig.request(wr_id=number) for number in range(4)))
    rig.complete_sends()
    rig.cq.request_notify()
    rig.cq.poll()
    assert rig.card.consumed(rig.card_cq) == (1, 0, True)
    rig.card.fire(rig.card_cq)
    assert rig.channel.get_event(timeout_s=PATIENCE_S) is rig.cq
    rig.cq.poll_array(1)
    assert rig.card.consumed(rig.card_cq) == (2, 0, False)
    rig.cq.request_notify()
    assert rig.card.consumed(rig.card_cq) == (2, 1, True)


def test_the_number_of_requests_wraps(rig: Rig) -> None:
    for number in range(9):
        rig.cq.request_notify()
        assert rig.card.consumed(rig.card_cq).cmd_sn == number % 4
        rig.card.fire(rig.card_cq)
        assert rig.channel.get_event(timeout_s=PATIENCE_S) is rig.cq


def test_each_event_is_returned_once(rig: Rig) -> None:
    rig.card.fire(rig.card_cq, 3)
    for _ in range(3):
        assert rig.channel.get_event(timeout_s=PATIENCE_S) is rig.cq
    assert rig.channel.get_event(timeout_s=0) is None


def test_the_queues_of_a_channel(rig: Rig) -> None:
    others = [CompletionQueue(rig.context, 8, channel=rig.channel) for _ in range(2)]
    for cq in others:
        rig.card.fire(rig.card.cqs[cq.number])
    got = [rig.channel.get_event(timeout_s=PATIENCE_S) for _ in others]
    assert set(map(id, got)) == set(map(id, others))


def test_the_events_of_a_closed_queue_are_dropped(rig: Rig) -> None:
    cq = CompletionQueue(rig.context, 8, channel=rig.channel)
    rig.card.fire(rig.card.cqs[cq.number], 2)
    assert rig.channel.get_event(timeout_s=PATIENCE_S) is cq
    cq.close()
    assert rig.channel.get_event(timeout_s=0) is None


def test_a_collected_queue_is_not_watched(rig: Rig) -> None:
    cq = CompletionQueue(rig.context, 8, channel=rig.channel)
    card_cq = rig.card.cqs[cq.number]
    rig.card.fire(card_cq)
    del cq
    gc.collect()
    assert rig.channel.get_event(timeout_s=0) is None
    rig.card.fire(rig.card_cq)
    assert rig.channel.get_event(timeout_s=PATIENCE_S) is rig.cq


def test_solicited_events_do_not_exist(rig: Rig) -> None:
    with pytest.raises(VerbsError) as raised:
        rig.cq.request_notify(solicited_only=True)
    assert raised.value.errno == errno.EOPNOTSUPP


def test_without_a_channel_nothing_can_be_armed(rig: Rig) -> None:
    cq = CompletionQueue(rig.context, 8)
    with pytest.raises(VerbsError) as raised:
        cq.request_notify()
    assert raised.value.errno == errno.EINVAL


@pytest.mark.parametrize("by", ["the card's death", "closing the context"])
def test_who_waits_is_woken_by(rig: Rig, by: str) -> None:
    raised: list[int] = []

    def wait() -> None:
        waiting.set()
        with pytest.raises(VerbsError) as info:
            rig.channel.get_event()
        raised.append(info.value.errno)

    waiting = threading.Event()
    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait(PATIENCE_S)
    if by == "the card's death":
        rig.card.die()
    else:
        rig.context.close()
    thread.join(PATIENCE_S)
    assert raised == [errno.EIO]


def test_the_descriptor_is_readable_for_event_loops(rig: Rig) -> None:
    assert select.select([rig.channel.fd], [], [], 0)[0] == []
    rig.card.fire(rig.card_cq)
    assert select.select([rig.channel.fd], [], [], PATIENCE_S)[0]
    assert rig.channel.get_event(timeout_s=0) is rig.cq
    assert select.select([rig.channel.fd], [], [], 0)[0] == []
    rig.card.die()
    assert select.select([rig.channel.fd], [], [], PATIENCE_S)[0]


async def test_in_an_event_loop(rig: Rig) -> None:
    got: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def on_readable() -> None:
        if not got.done():
            got.set_result(rig.channel.get_event(timeout_s=0))

    asyncio.get_running_loop().add_reader(rig.channel.fd, on_readable)
    rig.card.fire(rig.card_cq)
    assert await asyncio.wait_for(got, PATIENCE_S) is rig.cq
    asyncio.get_running_loop().remove_reader(rig.channel.fd)


def test_a_closed_channel(rig: Rig) -> None:
    channel = CompletionChannel(rig.context)
    with channel:
        pass
    with pytest.raises(VerbsError) as raised:
        channel.get_event()
    assert raised.value.errno == errno.EINVAL


def test_a_queue_for_a_closed_channel(rig: Rig) -> None:
    channel = CompletionChannel(rig.context)
    channel.close()
    before = len(open_files())
    with pytest.raises(VerbsError, match="channel is closed") as raised:
        CompletionQueue(rig.context, 8, channel=channel)
    assert raised.value.errno == errno.EINVAL
    assert len(open_files()) == before + 3  # the card's own: the ring and its lock, and the events


def test_a_child_process_does_not_end_its_parents_watching(rig: Rig) -> None:
    child = os.fork()
    if child == 0:
        try:
            rig.cq.close()
            os._exit(0)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    rig.card.fire(rig.card_cq)
    assert rig.channel.get_event(timeout_s=PATIENCE_S) is rig.cq
