"""The data path between two real cards: where payload lands, who may reach what, and what completions say.

Each test compares all of the receiver's memory with what must be in it: a guard, and each message at its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nitro_emu.efa.abi.io import UNKNOWN_AH
from nitro_emu.efa.verbs import (
    Access,
    AddressHandle,
    CompletionQueue,
    CompStatus,
    MemoryRegion,
    ProtectionDomain,
    QpState,
    SendFlags,
    SendOp,
    SendRequest,
    Sge,
    WcFlags,
    WcOpcode,
)
from tests.nitro_emu.cards import ALL_ACCESS, GUARD, OPTIONS, QKEY, Card, Tenant, card, tenants
from tests.nitro_emu.pattern import Bytes, pattern
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.compiled  # cards as processes

OK, INVALID_LKEY, BAD_LENGTH = CompStatus.OK, CompStatus.LOCAL_ERROR_INVALID_LKEY, CompStatus.LOCAL_ERROR_BAD_LENGTH
BAD_ADDRESS, BAD_QPN, RNR = (
    CompStatus.REMOTE_ERROR_BAD_ADDRESS, CompStatus.REMOTE_ERROR_BAD_DEST_QPN, CompStatus.REMOTE_ERROR_RNR,
)  # fmt: skip
AT = 1000
"""Where most buffers begin: not aligned, with a guard before."""


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Card, Card]]:
    directory = tmp_path_factory.mktemp("cards")
    with card(directory / "a") as first, card(directory / "b") as second:
        yield first, second


@pytest.fixture
def both(cards: tuple[Card, Card]) -> Iterator[list[Tenant]]:
    with tenants((cards[0], "efa_0"), (cards[1], "efa_0"), gid=True) as both:
        yield both


class Expected:
    """What must be in a program's memory."""

    def __init__(self, found: Bytes) -> None:
        self._found = found
        self._bytes = np.full(len(found), GUARD, np.uint8)

    def put(self, at: int, data: Bytes) -> None:
        self._bytes[at : at + len(data)] = data

    def check(self) -> None:
        wrong = np.flatnonzero(self._found != self._bytes)
        assert not len(wrong), f"{len(wrong)} wrong bytes, the first at {wrong[0]}"


def fill(tenant: Tenant, number: int, *, length: int, at: int = 0) -> Bytes:
    data = pattern(number, length=length)
    tenant.bytes[at : at + length] = data
    return data


# -- where payload lands --------------------------------------------------------------------------------------------

LENGTHS = (0, 1, 7, 32, 33, 1000, 4096, 8900)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("sent_as", ["one", "two", "inline"])
@pytest.mark.parametrize("received_in", ["one", "two"])
def test_a_message_lands_in_its_buffers_and_nowhere_else(
    both: list[Tenant], length: int, sent_as: str, received_in: str
) -> None:
    left, right = both
    data, expected = fill(left, length + 1, length=length, at=3), Expected(right.bytes)
    cut = length // 3
    if received_in == "one":
        right.receive(7, right.sge(length + 5, at=AT))
        expected.put(AT, data)
    else:
        right.receive(7, right.sge(cut, at=AT), right.sge(length - cut + 5, at=20_000))
        expected.put(AT, data[:cut])
        expected.put(20_000, data[cut:])
    ah, to = left.handle(right), right.qp.number
    if sent_as == "two":
        left.bytes[30_000 : 30_000 + length - cut] = data[cut:]
        left.send(ah, to, left.sge(cut, at=3), left.sge(length - cut, at=30_000))
    elif sent_as == "one":
        left.send(ah, to, left.sge(length, at=3))
    elif length <= 32:
        sges = (left.sge(length, at=3),)
        left.qp.post_send(SendRequest(ah, to, QKEY, 1, sges, flags=SendFlags.SIGNALED | SendFlags.INLINE))
        left.bytes[3 : 3 + length] = 0  # the entry has a copy
    else:
        return
    done, received = left.completion(), right.completion()
    assert (done.wr_id, done.vendor_error) == (1, OK)
    assert (received.wr_id, received.vendor_error, received.byte_len) == (7, OK, length)
    expected.check()


def test_many_equal_messages_land_in_their_buffers(both: list[Tenant]) -> None:
    left, right = both
    expected = Expected(right.bytes)
    ah, total, length = left.handle(right), 200, 100
    addresses = np.arange(8, dtype=np.uint64) * 128
    for first in range(0, total, 8):
        data = [fill(left, first + index, length=length, at=index * 128) for index in range(8)]
        right.qp.post_recvs(addresses + right.mr.address + 5000, lengths=length, lkey=right.mr.lkey, wr_ids=range(8))
        left.qp.post_sends(
            ah, remote_qpn=right.qp.number, remote_qkey=QKEY, addresses=addresses + left.mr.address, lengths=length,
            lkey=left.mr.lkey, wr_ids=range(8),
        )  # fmt: skip
        assert {each.vendor_error for each in (*left.completions(8), *right.completions(8))} == {OK}
        for index, each in enumerate(data):
            expected.put(5000 + index * 128, each)
        expected.check()


@pytest.mark.parametrize("length", [0, 1, 8000, 40_000])
@pytest.mark.parametrize("op", [SendOp.RDMA_WRITE, SendOp.RDMA_READ])
def test_remote_memory_is_written_and_read_where_the_request_says(both: list[Tenant], op: SendOp, length: int) -> None:
    left, right = both
    writes = op is SendOp.RDMA_WRITE
    source, target = (left, right) if writes else (right, left)
    data = fill(source, length + 3, length=length, at=AT)
    expected, unchanged = Expected(target.bytes), source.bytes.copy()
    expected.put(AT + 1, data)
    left.rdma(
        op, left.handle(right), to=right.qp.number, local=left.sge(length, at=AT + (not writes)), rkey=right.mr.rkey,
        address=right.mr.address + AT + writes,
    )  # fmt: skip
    assert left.completion().vendor_error == OK
    expected.check()
    assert (source.bytes == unchanged).all()


def test_a_message_longer_than_the_mtu_is_refused(both: list[Tenant]) -> None:
    left, right = both
    mtu = left.context.attributes.mtu_bytes
    right.receive(1, right.sge(2 * mtu, at=0))
    left.send(left.handle(right), right.qp.number, left.sge(mtu + 1))
    assert left.completion().vendor_error == BAD_LENGTH
    data = fill(left, 5, length=mtu)
    left.send(left.handle(right), right.qp.number, left.sge(mtu))
    assert left.completion().vendor_error == OK
    assert right.completion().byte_len == mtu
    expected = Expected(right.bytes)
    expected.put(0, data)
    expected.check()


def test_a_message_longer_than_the_buffer_is_refused_and_takes_none(both: list[Tenant]) -> None:
    left, right = both
    right.receive(4, right.sge(99, at=AT))
    ah = left.handle(right)
    fill(left, 1, length=100)
    left.send(ah, right.qp.number, left.sge(100))
    assert left.completion().vendor_error == CompStatus.REMOTE_ERROR_BAD_LENGTH
    expected = Expected(right.bytes)
    expected.check()
    data = fill(left, 2, length=99)
    left.send(ah, right.qp.number, left.sge(99))
    assert left.completion().vendor_error == OK
    assert right.completion().wr_id == 4
    expected.put(AT, data)
    expected.check()


# -- what completions say -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("immediate", [None, 0, 0x01020304, 0xFFFFFFFF])
def test_the_immediate_of_a_send(both: list[Tenant], immediate: int | None) -> None:
    left, right = both
    right.receive(1, right.sge(8, at=AT))
    left.send(left.handle(right), right.qp.number, left.sge(8), immediate=immediate)
    received = right.completion()
    assert received.flags == (WcFlags(0) if immediate is None else WcFlags.WITH_IMM)
    assert received.immediate == (immediate or 0)
    assert left.completion().vendor_error == OK


@pytest.mark.parametrize("immediate", [0, 0x01020304])
def test_the_immediate_of_a_write(both: list[Tenant], immediate: int) -> None:
    left, right = both
    right.receive(6, right.sge(8, at=0))
    data, expected = fill(left, 1, length=3000), Expected(right.bytes)
    expected.put(AT, data)
    left.rdma(
        SendOp.RDMA_WRITE, left.handle(right), to=right.qp.number, local=left.sge(3000), rkey=right.mr.rkey,
        address=right.mr.address + AT, immediate=immediate,
    )  # fmt: skip
    received = right.completion()
    assert (received.wr_id, received.immediate, received.byte_len) == (6, immediate, 3000)
    assert received.flags == WcFlags.WITH_IMM
    assert left.completion().vendor_error == OK
    expected.check()


def test_opcodes(both: list[Tenant]) -> None:
    left, right = both
    ah, to = left.handle(right), right.qp.number
    remote: dict[str, Any] = {"to": to, "local": left.sge(8), "rkey": right.mr.rkey, "address": right.mr.address}
    for wr_id in (1, 2):
        right.receive(wr_id, right.sge(8))
    left.send(ah, to, left.sge(8))
    assert left.completion().opcode is WcOpcode.SEND
    assert right.completion().opcode is WcOpcode.RECV
    left.rdma(SendOp.RDMA_WRITE, ah, immediate=1, **remote)
    assert left.completion().opcode is WcOpcode.RDMA_WRITE
    assert right.completion().opcode is WcOpcode.RECV_RDMA_WITH_IMM
    left.rdma(SendOp.RDMA_WRITE, ah, **remote)
    assert left.completion().opcode is WcOpcode.RDMA_WRITE
    left.rdma(SendOp.RDMA_READ, ah, **remote)
    assert left.completion().opcode is WcOpcode.SEND, "as in rdma-core"


def test_queue_pairs_are_told_apart_at_both_ends(both: list[Tenant]) -> None:
    left, right = both
    expected = Expected(right.bytes)
    senders, receivers = ([tenant.qp, tenant.queue_pair(), tenant.queue_pair()] for tenant in both)
    for qp in (*senders[1:], *receivers[1:]):
        qp.to_rts(qkey=QKEY)
    ah, wr_id = left.handle(right), 0
    for left.qp in senders:
        for index, right.qp in enumerate(receivers):
            wr_id += 1
            right.receive(wr_id, right.sge(64, at=wr_id * 100))
            data = fill(left, wr_id, length=64)
            left.send(ah, right.qp.number, left.sge(64), wr_id=1000 + wr_id)
            received, done = right.completion(), left.completion()
            assert (received.wr_id, received.qp_num, received.src_qp) == (
                wr_id,
                receivers[index].number,
                left.qp.number,
            )
            assert (done.wr_id, done.qp_num) == (1000 + wr_id, left.qp.number)
            expected.put(wr_id * 100, data)
            expected.check()


def test_a_source_has_a_handle_only_in_the_receivers_own_protection_domain(both: list[Tenant]) -> None:
    left, right = both
    elsewhere = ProtectionDomain(right.context)
    foreign = AddressHandle(elsewhere, gid=left.gid)
    ah = left.handle(right)

    def source() -> tuple[int, bytes]:
        right.receive(1, right.sge(8))
        left.send(ah, right.qp.number, left.sge(8))
        received = right.completion()
        left.completion()
        return received.ah, received.src_gid

    assert source() == (UNKNOWN_AH, left.gid), "the handle of another protection domain is not known"
    own = right.handle(left)
    assert own.number != foreign.number
    assert source()[0] == own.number
    own.close()
    assert source() == (UNKNOWN_AH, left.gid)
    foreign.close()
    elsewhere.close()


# -- events and states -----------------------------------------------------------------------------------------------


def test_a_program_that_waits_is_woken_for_each_message(both: list[Tenant]) -> None:
    left, right = both
    ah = left.handle(right)
    for number in range(20):
        right.receive(number, right.sge(8))
        right.cq.request_notify()
        left.send(ah, right.qp.number, left.sge(8))
        assert right.channel.get_event(timeout_s=PATIENCE_S) is right.cq
        assert (right.completion().wr_id, left.completion().vendor_error) == (number, OK)


def test_an_unsolicited_write_takes_no_receive_request(cards: tuple[Card, Card]) -> None:
    options = replace(OPTIONS, unsolicited_write_recv=True)
    with tenants((cards[0], "efa_0"), (cards[1], "efa_0"), options=options) as (left, right):
        ah, expected = left.handle(right), Expected(right.bytes)
        right.receive(55, right.sge(64, at=AT))
        data = fill(left, 1, length=2000)
        left.rdma(
            SendOp.RDMA_WRITE, ah, to=right.qp.number, local=left.sge(2000), rkey=right.mr.rkey,
            address=right.mr.address + 9000, immediate=0x77,
        )  # fmt: skip
        expected.put(9000, data)
        received = right.completion()
        assert (received.unsolicited, received.wr_id, received.immediate, received.byte_len) == (True, 0, 0x77, 2000)
        assert left.completion().vendor_error == OK
        expected.check()
        data = fill(left, 2, length=64)
        left.send(ah, right.qp.number, left.sge(64))
        assert right.completion().wr_id == 55, "the receive request is still there"
        assert left.completion().vendor_error == OK
        expected.put(AT, data)
        expected.check()


def test_a_queue_pair_in_reset_receives_nothing_and_begins_anew(both: list[Tenant]) -> None:
    left, right = both
    ah, expected = left.handle(right), Expected(right.bytes)
    right.receive(1, right.sge(64, at=0))
    right.qp.modify(QpState.RESET)
    left.send(ah, right.qp.number, left.sge(64))
    assert left.completion().vendor_error == BAD_QPN
    right.qp.to_rts(qkey=QKEY)
    left.send(ah, right.qp.number, left.sge(64))
    assert left.completion().vendor_error == RNR, "what was posted before is forgotten"
    right.receive(2, right.sge(64, at=AT))
    data = fill(left, 3, length=64)
    left.send(ah, right.qp.number, left.sge(64))
    assert left.completion().vendor_error == OK
    assert right.completion().wr_id == 2
    expected.put(AT, data)
    expected.check()


# -- who may reach what ---------------------------------------------------------------------------------------------


def test_a_wrong_qkey_is_refused_and_counted(both: list[Tenant], cards: tuple[Card, Card]) -> None:
    left, right = both
    ah, expected = left.handle(right), Expected(right.bytes)
    right.receive(8, right.sge(64, at=AT))
    before = cards[1].stats("efa_0")["qkey_viol"]
    for qkey in (QKEY ^ 1, QKEY ^ 1 << 31, 0):
        left.send(ah, right.qp.number, left.sge(64), qkey=qkey)
        assert left.completion().vendor_error == BAD_QPN
    assert cards[1].stats("efa_0")["qkey_viol"] == before + 3
    expected.check()
    data = fill(left, 1, length=64)
    left.send(ah, right.qp.number, left.sge(64))
    assert left.completion().vendor_error == OK
    assert right.completion().wr_id == 8
    expected.put(AT, data)
    expected.check()


def test_an_unknown_queue_pair_is_refused(both: list[Tenant]) -> None:
    left, right = both
    for to in (0, right.qp.number + 1, 0xFFFF):
        left.send(left.handle(right), to, left.sge(64))
        assert left.completion().vendor_error == BAD_QPN
        left.rdma(
            SendOp.RDMA_WRITE,
            left.handle(right),
            to=to,
            local=left.sge(8),
            rkey=right.mr.rkey,
            address=right.mr.address,
        )
        assert left.completion().vendor_error == BAD_QPN
    Expected(right.bytes).check()


@pytest.mark.parametrize("access", [Access(0), Access.LOCAL_WRITE, Access.LOCAL_WRITE | Access.REMOTE_READ])
def test_memory_without_the_right_is_not_written(both: list[Tenant], access: Access) -> None:
    left, right = both
    memory = right.memory(access=access)
    left.rdma(
        SendOp.RDMA_WRITE, left.handle(right), to=right.qp.number, local=left.sge(64), rkey=memory.rkey,
        address=memory.address,
    )  # fmt: skip
    assert left.completion().vendor_error == BAD_ADDRESS
    Expected(right.array(memory)).check()


@pytest.mark.parametrize("access", [Access(0), Access.LOCAL_WRITE, Access.LOCAL_WRITE | Access.REMOTE_WRITE])
def test_memory_without_the_right_is_not_read(both: list[Tenant], access: Access) -> None:
    left, right = both
    memory = right.memory(access=access)
    right.array(memory)[:] = 0x5E
    left.rdma(
        SendOp.RDMA_READ, left.handle(right), to=right.qp.number, local=left.sge(64), rkey=memory.rkey,
        address=memory.address,
    )  # fmt: skip
    assert left.completion().vendor_error == BAD_ADDRESS
    Expected(left.bytes).check()


INNER, LENGTH = (1 << 14) + 100, 1 << 13
"""It begins within a page."""


def inner_memory(tenant: Tenant) -> MemoryRegion:
    """A registration in the middle of a program's memory."""
    assert tenant.mr.region is not None
    return MemoryRegion(tenant.pd, tenant.mr.region, offset=INNER, length=LENGTH, access=ALL_ACCESS)


@pytest.mark.parametrize(
    ("offset", "length"),
    [(-1, 64), (-64, 64), (LENGTH - 63, 64), (LENGTH, 1), (0, LENGTH + 1), (-(1 << 20), 8), (1 << 20, 8)],
)
@pytest.mark.parametrize("op", [SendOp.RDMA_WRITE, SendOp.RDMA_READ])
def test_remote_memory_ends_where_it_was_registered(both: list[Tenant], op: SendOp, offset: int, length: int) -> None:
    left, right = both
    inner = inner_memory(right)
    request: dict[str, Any] = {"to": right.qp.number, "local": left.sge(length), "rkey": inner.rkey}
    left.rdma(op, left.handle(right), address=inner.address + offset, **request)
    assert left.completion().vendor_error == BAD_ADDRESS
    Expected(right.bytes).check()
    Expected(left.bytes).check()


def test_the_whole_of_a_registration_can_be_reached(both: list[Tenant]) -> None:
    left, right = both
    inner = inner_memory(right)
    data, expected = fill(left, 1, length=LENGTH), Expected(right.bytes)
    left.rdma(
        SendOp.RDMA_WRITE, left.handle(right), to=right.qp.number, local=left.sge(LENGTH), rkey=inner.rkey,
        address=inner.address,
    )  # fmt: skip
    assert left.completion().vendor_error == OK
    expected.put(INNER, data)
    expected.check()


def test_an_rkey_opens_memory_of_its_queue_pairs_protection_domain_only(both: list[Tenant]) -> None:
    left, right = both
    other_pd = ProtectionDomain(right.context)
    foreign = right.memory(pd=other_pd)
    for op in (SendOp.RDMA_WRITE, SendOp.RDMA_READ):
        request: dict[str, Any] = {"to": right.qp.number, "local": left.sge(64), "address": foreign.address}
        left.rdma(op, left.handle(right), rkey=foreign.rkey, **request)
        assert left.completion().vendor_error == BAD_ADDRESS
    Expected(right.array(foreign)).check()
    Expected(left.bytes).check()
    qp = right.queue_pair(pd=other_pd)
    qp.to_rts(qkey=QKEY)
    left.rdma(
        SendOp.RDMA_WRITE, left.handle(right), to=qp.number, local=left.sge(64), rkey=foreign.rkey,
        address=foreign.address,
    )  # fmt: skip
    assert left.completion().vendor_error == OK, "through a queue pair of that protection domain it is open"


def test_an_address_handle_is_of_its_queue_pairs_protection_domain_only(both: list[Tenant]) -> None:
    left, right = both
    foreign = left.handle(right, pd=ProtectionDomain(left.context))
    left.send(foreign, right.qp.number, left.sge(8))
    assert left.completion().vendor_error == CompStatus.LOCAL_ERROR_INVALID_AH


@pytest.mark.parametrize("key", ["wrong", "lkey", "closed"])
def test_an_rkey_must_be_right(both: list[Tenant], key: str) -> None:
    left, right = both
    memory = right.memory()
    rkey = {"wrong": memory.rkey ^ 1, "lkey": memory.lkey, "closed": memory.rkey}[key]
    array = right.array(memory)
    if key == "closed":
        memory.close()
    left.rdma(
        SendOp.RDMA_WRITE, left.handle(right), to=right.qp.number, local=left.sge(64), rkey=rkey,
        address=int(array.ctypes.data),
    )  # fmt: skip
    assert left.completion().vendor_error == BAD_ADDRESS
    Expected(array).check()


@pytest.mark.parametrize("unsolicited", [False, True])
def test_a_write_of_no_bytes_needs_an_rkey_or_it_would_take_anothers_receive_request(
    cards: tuple[Card, Card], *, unsolicited: bool
) -> None:
    options = replace(OPTIONS, unsolicited_write_recv=unsolicited)
    with tenants((cards[0], "efa_0"), (cards[1], "efa_0"), options=options) as (left, right):
        ah, foreign = left.handle(right), right.memory(pd=ProtectionDomain(right.context))
        right.receive(55, right.sge(64, at=AT))
        for rkey, address in ((0, 0), (right.mr.rkey ^ 1, right.mr.address), (foreign.rkey, foreign.address)):
            left.rdma(
                SendOp.RDMA_WRITE, ah, to=right.qp.number, local=left.sge(0), rkey=rkey, address=address, immediate=1
            )
            assert left.completion().vendor_error == BAD_ADDRESS
        left.send(ah, right.qp.number, left.sge(64))
        received = right.completion()
        assert (received.wr_id, received.byte_len) == (55, 64), "the receive request is still there"
        assert left.completion().vendor_error == OK


def bad_buffers(tenant: Tenant, *, writes: bool) -> dict[str, Sge]:
    """Buffers that a request of this program may not use."""
    memory, other = tenant.mr, tenant.memory(pd=ProtectionDomain(tenant.context))
    closed = tenant.memory()
    gone = tenant.sge(64, memory=closed)
    closed.close()
    found = {
        "unknown": Sge(memory.address, 64, memory.lkey + 100),
        "zero": Sge(memory.address, 64, 0),
        "before": Sge(memory.address - 1, 64, memory.lkey),
        "beyond": Sge(memory.address + memory.length - 63, 64, memory.lkey),
        "far": Sge(memory.address + (1 << 40), 64, memory.lkey),
        "other protection domain": tenant.sge(64, memory=other),
        "closed": gone,
    }
    if writes:
        found["read-only"] = tenant.sge(64, memory=tenant.memory(access=Access.REMOTE_READ))
    return found


def test_a_send_from_memory_that_is_not_ones_own_is_refused(both: list[Tenant]) -> None:
    left, right = both
    ah = left.handle(right)
    right.receive(1, right.sge(8000, at=0))
    for name, sge in bad_buffers(left, writes=False).items():
        left.send(ah, right.qp.number, sge)
        assert left.completion().vendor_error == INVALID_LKEY, name
        left.send(ah, right.qp.number, left.sge(8), sge)
        assert left.completion().vendor_error == INVALID_LKEY, name
        left.rdma(SendOp.RDMA_WRITE, ah, to=right.qp.number, local=sge, rkey=right.mr.rkey, address=right.mr.address)
        assert left.completion().vendor_error == INVALID_LKEY, name
    Expected(right.bytes).check()


def test_a_read_into_memory_that_is_not_ones_own_is_refused(both: list[Tenant]) -> None:
    left, right = both
    for name, sge in bad_buffers(left, writes=True).items():
        left.rdma(
            SendOp.RDMA_READ, left.handle(right), to=right.qp.number, local=sge, rkey=right.mr.rkey,
            address=right.mr.address,
        )  # fmt: skip
        assert left.completion().vendor_error == INVALID_LKEY, name
    Expected(left.bytes).check()


def test_a_receive_buffer_that_is_not_ones_own_completes_in_error_and_blocks_nobody(both: list[Tenant]) -> None:
    left, right = both
    ah, expected = left.handle(right), Expected(right.bytes)
    for number, (name, sge) in enumerate(bad_buffers(right, writes=True).items()):
        right.receive(100 + number, sge)
        right.receive(200 + number, right.sge(64, at=AT))
        data = fill(left, number, length=64)
        left.send(ah, right.qp.number, left.sge(64))
        received = right.completion()
        assert (received.wr_id, received.vendor_error) == (100 + number, INVALID_LKEY), name
        assert left.completion().vendor_error == CompStatus.REMOTE_ERROR_ABORT, name
        expected.check()
        left.send(ah, right.qp.number, left.sge(64))
        assert left.completion().vendor_error == OK, name
        assert right.completion().wr_id == 200 + number, name
        expected.put(AT, data)
        expected.check()


# -- receiver not ready ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("retry", [0, 1, 6])
def test_a_receiver_that_is_not_ready_fails_the_send(both: list[Tenant], retry: int) -> None:
    left, right = both
    left.retry(retry)
    left.send(left.handle(right), right.qp.number, left.sge(64))
    assert left.completion().vendor_error == RNR
    right.receive(1, right.sge(64))
    assert not right.cq.poll(1)
    Expected(right.bytes).check()


def test_with_retries_for_ever_a_send_waits_for_its_receiver(both: list[Tenant]) -> None:
    left, right = both
    left.retry(7)
    ah = left.handle(right)
    data, expected = fill(left, 1, length=64), Expected(right.bytes)
    left.send(ah, right.qp.number, left.sge(64))
    left.send(ah, right.qp.number + 1, left.sge(64), wr_id=2)
    assert left.completion().wr_id == 2, "others do not wait for it"
    right.receive(1, right.sge(64, at=AT))
    assert left.completion().vendor_error == OK
    assert right.completion().wr_id == 1
    expected.put(AT, data)
    expected.check()
    assert not right.cq.poll(1), "delivered once"


def test_a_write_with_an_immediate_needs_a_receive_request(both: list[Tenant]) -> None:
    left, right = both
    left.rdma(
        SendOp.RDMA_WRITE, left.handle(right), to=right.qp.number, local=left.sge(64), rkey=right.mr.rkey,
        address=right.mr.address, immediate=1,
    )  # fmt: skip
    assert left.completion().vendor_error == RNR


def test_loopback_to_the_own_device(both: list[Tenant]) -> None:
    left, _ = both
    left.receive(1, left.sge(64, at=AT))
    data, expected = pattern(1, length=64), Expected(left.bytes)
    source = left.memory()
    left.array(source)[:64] = data
    left.send(left.handle(left), left.qp.number, left.sge(64, memory=source), wr_id=2)
    assert sorted((each.wr_id, each.vendor_error) for each in left.completions(2)) == [(1, OK), (2, OK)]
    expected.put(AT, data)
    expected.check()


def test_completion_queues_of_16_bytes_an_entry(both: list[Tenant]) -> None:
    left, right = both
    right.cq = CompletionQueue(right.context, 64, entry_bytes=16)
    right.qp = right.queue_pair()
    right.qp.to_rts(qkey=QKEY)
    right.receive(3, right.sge(64, at=AT))
    left.send(left.handle(right), right.qp.number, left.sge(64), immediate=5)
    received = right.completion()
    assert (received.wr_id, received.immediate, received.byte_len, received.src_qp) == (3, 5, 64, left.qp.number)
    assert left.completion().opcode is WcOpcode.SEND


def test_all_posted_receives_are_flushed_in_the_error_state(cards: tuple[Card, Card]) -> None:
    """Also those that the card has not fetched from the ring yet."""
    count = 600
    options = replace(OPTIONS, max_recv_wr=count)
    with tenants((cards[0], "efa_0"), options=options, cq_depth=1024) as (tenant,):
        for wr_id in range(count):
            tenant.receive(wr_id, tenant.sge(16))
        tenant.qp.modify(QpState.ERR)
        found = tenant.completions(count)
        assert [each.wr_id for each in found] == list(range(count))
        assert {each.vendor_error for each in found} == {CompStatus.FLUSHED}
