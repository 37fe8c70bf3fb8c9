"""Posting receive requests: what the card gets, and what is refused."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nitro_emu.efa.verbs import QpState, RecvRequest, Sge
from nitro_emu.errors import VerbsError
from tests.nitro_emu.efa.verbs.rig import OPTIONS, Rig, opened


def test_without_a_buffer_a_message_of_no_bytes_is_received(rig: Rig) -> None:
    rig.qp.post_recv(RecvRequest(1))
    (descriptor,) = rig.card.take_recvs(rig.card_qp)
    assert (descriptor.length, descriptor.first, descriptor.last) == (0, True, True)


def test_longer_buffers_than_the_descriptor_can_say(rig: Rig) -> None:
    rig.qp.post_recv(RecvRequest(1, (rig.sge(1 << 16),)))
    assert rig.card.take_recvs(rig.card_qp)[0].length == 0xFFFF


def test_too_many_buffers(rig: Rig) -> None:
    with pytest.raises(VerbsError) as raised:
        rig.qp.post_recv(RecvRequest(1, (rig.sge(),) * 3))
    assert raised.value.errno == errno.EINVAL
    assert rig.card.take_recvs(rig.card_qp) == []


def test_what_no_field_holds(rig: Rig) -> None:
    with pytest.raises(VerbsError) as raised:
        rig.qp.post_recv(RecvRequest(1, (Sge(-1, 1, 1),)))
    assert raised.value.errno == errno.EINVAL
    assert rig.qp.recv_queue.free == 8


def test_a_full_queue(rig: Rig) -> None:
    rig.qp.post_recv(*(RecvRequest(number, (rig.sge(),)) for number in range(8)))
    with pytest.raises(VerbsError) as raised:
        rig.qp.post_recv(RecvRequest(9, (rig.sge(),)))
    assert raised.value.errno == errno.ENOMEM
    descriptors = rig.card.take_recvs(rig.card_qp)
    assert len(descriptors) == 8
    rig.card.complete_recv(rig.card_cq, rig.card_qp, descriptors[4].req_id)
    assert rig.cq.poll()[0].wr_id == 4
    rig.qp.post_recv(RecvRequest(9, (rig.sge(),)))


@pytest.mark.parametrize("state", [QpState.RESET, QpState.ERR])
def test_states_that_do_not_receive(rig: Rig, state: QpState) -> None:
    rig.qp.modify(state)
    posts: list[Callable[[], None]] = [
        lambda: rig.qp.post_recv(RecvRequest(1, (rig.sge(),))),
        lambda: rig.qp.post_recvs(rig.mr.address, lengths=1, lkey=1, wr_ids=[1]),
    ]
    for post in posts:
        with pytest.raises(VerbsError) as raised:
            post()
        assert raised.value.errno == errno.EINVAL
    assert rig.card.take_recvs(rig.card_qp) == []


def test_before_the_queue_pair_receives(rig: Rig) -> None:
    rig.qp.modify(QpState.RESET)
    rig.qp.modify(QpState.INIT, qkey=1, pkey_index=0, port=1)
    rig.card_qp.recvs_taken = 0
    rig.qp.post_recv(RecvRequest(1, (rig.sge(),)))
    assert len(rig.card.take_recvs(rig.card_qp)) == 1


def test_many_laps_of_two_buffers(tmp_path: Path) -> None:
    with opened(tmp_path, options=replace(OPTIONS, max_recv_wr=3)) as rig:  # 8 descriptors, 4 requests
        for number in range(50):
            sges = (rig.sge(), rig.sge(offset=number))[: 1 + number % 2]
            rig.qp.post_recv(RecvRequest(number, sges))
            descriptors = rig.card.take_recvs(rig.card_qp)
            assert len(descriptors) == len(sges)
            rig.card.complete_recv(rig.card_cq, rig.card_qp, descriptors[0].req_id, length=number)
            done = rig.cq.poll()[0]
            assert (done.wr_id, done.byte_len) == (number, number)


def test_many_at_once(rig: Rig) -> None:
    wr_id = 0
    for batch in (5, 8, 3, 7, 8):
        addresses = rig.mr.address + np.arange(batch, dtype=np.uint64) * 1024
        rig.qp.post_recvs(
            addresses, lengths=np.arange(batch) + 60000, lkey=rig.mr.lkey, wr_ids=range(wr_id, wr_id + batch)
        )
        descriptors = rig.card.take_recvs(rig.card_qp)
        assert [descriptor.address for descriptor in descriptors] == addresses.tolist()
        assert [descriptor.length for descriptor in descriptors] == [60000 + number for number in range(batch)]
        assert all(each.first and each.last and each.lkey == rig.mr.lkey for each in descriptors)
        for descriptor in reversed(descriptors):
            rig.card.complete_recv(rig.card_cq, rig.card_qp, descriptor.req_id)
        assert [done.wr_id for done in rig.cq.poll(batch)] == list(range(wr_id, wr_id + batch))[::-1]
        wr_id += batch


def test_more_at_once_than_there_is_room_for(rig: Rig) -> None:
    with pytest.raises(VerbsError) as raised:
        rig.qp.post_recvs(rig.mr.address, lengths=1 << 20, lkey=1, wr_ids=range(9))
    assert raised.value.errno == errno.ENOMEM
    assert rig.card.take_recvs(rig.card_qp) == []
    rig.qp.post_recvs(rig.mr.address, lengths=1 << 20, lkey=1, wr_ids=range(8))
    assert {each.length for each in rig.card.take_recvs(rig.card_qp)} == {0xFFFF}
