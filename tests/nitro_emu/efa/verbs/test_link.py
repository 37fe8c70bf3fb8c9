"""The connection with the card: commands, events, and its end."""

from __future__ import annotations

import errno
import gc
import os
import select
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from nitro_emu.efa.abi import admin, commands, enums
from nitro_emu.efa.abi.admin import AenqEntry
from nitro_emu.efa.abi.enums import AdminOpcode, AdminStatus, AenqGroup
from nitro_emu.efa.verbs import (
    AddressHandle,
    CompletionChannel,
    CompletionQueue,
    Context,
    MemoryRegion,
    ProtectionDomain,
    QpOptions,
    QueuePair,
    RecvRequest,
)
from nitro_emu.efa.verbs.link import CardConnection
from nitro_emu.errors import VerbsError
from tests.nitro_emu.efa.verbs.fake_card import FEATURES, GID, FakeCard
from tests.nitro_emu.efa.verbs.rig import Rig
from tests.patience import PATIENCE_S, wait_until
from tests.programs import run_to_end


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))  # noqa: PTH208 - of names


def wait_for_death(context: Context) -> None:
    ready, _, _ = select.select([context.link.death_fd], [], [], PATIENCE_S)
    assert ready


def test_attributes(card: FakeCard) -> None:
    with Context("efa_0", directory=card.directory) as context:
        attributes = context.attributes
        assert (attributes.gid, attributes.mtu_bytes) == (GID, 8900)
        assert attributes.queue == FEATURES[enums.Feature.QUEUE_ATTR]
        assert attributes.wide_inline_bytes == 80
        assert attributes.vendor_part_id == 0xEFA2
    enabled = card.of_kind(AdminOpcode.SET_FEATURE)[0]
    assert isinstance(enabled, commands.SetFeature)
    assert enabled.enabled_groups == 0b11110


def test_statistics_have_the_drivers_names(card: FakeCard) -> None:
    with Context("efa_0", directory=card.directory) as context:
        stats = context.query_stats()
    assert len(stats) == 23
    assert {"tx_bytes", "qkey_viol", "recv_wrs", "rdma_read_resp_bytes", "rdma_write_recv_bytes"} < stats.keys()
    assert {"retrans_timeout_events", "impaired_remote_conn_events", "rdma_write_wr_err"} < stats.keys()


@pytest.mark.parametrize(
    ("status", "number"),
    [
        (AdminStatus.RESOURCE_ALLOCATION_FAILURE, errno.ENOMEM),
        (AdminStatus.BAD_OPCODE, errno.EINVAL),
        (AdminStatus.UNSUPPORTED_OPCODE, errno.EOPNOTSUPP),
        (AdminStatus.MALFORMED_REQUEST, errno.EINVAL),
        (AdminStatus.ILLEGAL_PARAMETER, errno.EINVAL),
        (AdminStatus.UNKNOWN_ERROR, errno.EINVAL),
        (AdminStatus.RESOURCE_BUSY, errno.EBUSY),
    ],
)
def test_refusals_have_the_kernels_errno(card: FakeCard, status: AdminStatus, number: int) -> None:
    with Context("efa_0", directory=card.directory) as context:
        card.refuse[AdminOpcode.ALLOC_PD] = status
        with pytest.raises(VerbsError, match=f"ALLOC_PD: refused: {status.name}") as raised:
            ProtectionDomain(context)
        assert raised.value.errno == number
        card.refuse.clear()
        ProtectionDomain(context).close()


def test_more_commands_than_the_queue_has_entries(card: FakeCard) -> None:
    with Context("efa_0", directory=card.directory) as context:
        for _ in range(3 * admin.QUEUE_DEPTH):  # the card checks ids and phases
            ProtectionDomain(context).close()


def test_a_failed_opening_leaves_nothing(card: FakeCard) -> None:
    gc.collect()
    before = descriptors()
    card.refuse[AdminOpcode.GET_FEATURE] = AdminStatus.UNKNOWN_ERROR
    with pytest.raises(VerbsError):
        Context("efa_0", directory=card.directory)
    assert card.ended.wait(PATIENCE_S)
    wait_until(lambda: len(descriptors()) <= len(before))  # what a test before this one left may end meanwhile


def everything(context: Context) -> list[object]:
    pd, channel = ProtectionDomain(context), CompletionChannel(context)
    cq = CompletionQueue(context, 16, channel=channel)
    qp = QueuePair(pd, send_cq=cq, recv_cq=cq, options=QpOptions())
    mr, ah = MemoryRegion.allocate(pd, length=4096), AddressHandle(pd, gid=GID)
    return [ah, mr, qp, cq, channel, pd]


def card_descriptors(card: FakeCard) -> int:
    """How many descriptors the card itself has for the objects of `everything`."""
    return sum(2 + (cq.event_fd is not None) for cq in card.cqs.values()) + 2 * len(card.qps)


@pytest.mark.parametrize("how", ["one by one", "with the context", "by garbage collection"])
def test_no_descriptor_stays_open(card: FakeCard, how: str) -> None:
    gc.collect()  # those of other tests
    before = descriptors()
    context = Context("efa_0", directory=card.directory)
    objects = everything(context)
    if how == "one by one":
        for each in objects:
            each.close()  # type: ignore[attr-defined]
            each.close()  # type: ignore[attr-defined]
    if how != "by garbage collection":
        context.close()
    del context, objects
    if how == "one by one":
        del each
    gc.collect()
    assert card.ended.wait(PATIENCE_S)
    assert len(descriptors()) == len(before) + card_descriptors(card)
    assert not [thread for thread in threading.enumerate() if thread.name == "nitro-verbs"]


def test_collected_objects_are_destroyed_in_the_card(card: FakeCard) -> None:
    with Context("efa_0", directory=card.directory) as context:
        objects = everything(context)
        objects.clear()
        gc.collect()
        ProtectionDomain(context).close()
        done = [command.OPCODE for command in card.commands]
    for opcode in (
        AdminOpcode.DESTROY_AH,
        AdminOpcode.DEREG_MR,
        AdminOpcode.DESTROY_QP,
        AdminOpcode.DESTROY_CQ,
        AdminOpcode.DEALLOC_PD,
    ):
        assert opcode in done


def test_what_is_in_use_stays_open(card: FakeCard) -> None:
    with Context("efa_0", directory=card.directory) as context:
        pd = ProtectionDomain(context)
        card.refuse[AdminOpcode.DEALLOC_PD] = AdminStatus.RESOURCE_BUSY
        with pytest.raises(VerbsError) as raised:
            pd.close()
        assert raised.value.errno == errno.EBUSY
        assert not pd.closed
        card.refuse.clear()
        pd.close()
        assert pd.closed


@pytest.mark.parametrize("by", ["the end of the connection", "a fatal event"])
def test_after_the_cards_death_every_call_raises_eio(rig: Rig, by: str) -> None:
    if by == "a fatal event":
        rig.card.raise_event(AenqEntry(AenqGroup.FATAL_ERROR, 5, 0))
    else:
        rig.card.die()
    wait_for_death(rig.context)
    calls: list[Callable[[], object]] = [
        lambda: rig.qp.post_send(rig.request()),
        lambda: rig.qp.post_recv(RecvRequest(1, (rig.sge(),))),
        lambda: rig.qp.post_recvs(rig.mr.address, lengths=64, lkey=rig.mr.lkey, wr_ids=[1]),
        rig.qp.query,
        lambda: rig.qp.to_rts(qkey=1),
        rig.cq.poll,
        rig.cq.next_poll,
        lambda: rig.cq.poll_array(8),
        rig.cq.request_notify,
        rig.channel.get_event,
        rig.context.query_stats,
        lambda: ProtectionDomain(rig.context),
        lambda: CompletionQueue(rig.context, 8),
        lambda: CompletionChannel(rig.context),
        lambda: MemoryRegion.allocate(rig.pd, length=1),
        lambda: AddressHandle(rig.pd, gid=GID),
    ]
    for call in calls:
        with pytest.raises(VerbsError) as raised:
            call()
        assert raised.value.errno == errno.EIO
    for each in (rig.ah, rig.mr, rig.qp, rig.cq, rig.channel, rig.pd, rig.context):
        each.close()  # closing does not raise: the card has forgotten everything


def test_a_command_that_waits_is_woken_by_the_cards_death(card: FakeCard) -> None:
    raised: list[VerbsError] = []

    def ask() -> None:
        with pytest.raises(VerbsError) as info:
            ProtectionDomain(context)
        raised.append(info.value)

    with Context("efa_0", directory=card.directory) as context:
        card.hold.clear()
        thread = threading.Thread(target=ask)
        thread.start()
        card.die()
        thread.join(PATIENCE_S)
        assert raised[0].errno == errno.EIO
        assert "the card is gone; start it" in str(raised[0])


def test_events_are_kept_for_the_application(rig: Rig) -> None:
    for number in range(3):
        rig.card.raise_event(AenqEntry(AenqGroup.NOTIFICATION, number, 77, b"text"))
    rig.card.raise_event(AenqEntry(AenqGroup.FATAL_ERROR, 1, 0))  # to wait for
    wait_for_death(rig.context)
    events = rig.context.take_events()
    assert [event.syndrome for event in events[:3]] == [0, 1, 2]
    assert events[0].data.rstrip(b"\0") == b"text"
    assert rig.context.take_events() == []


def test_many_events_wrap(rig: Rig) -> None:
    for number in range(150):
        rig.card.raise_event(AenqEntry(AenqGroup.WARNING, number & 0xFFFF, 0))
        while len(rig.context.link.events) < min(number + 1, 64) or rig.context.link.events[-1].syndrome != number:
            threading.Event().wait(0.001)
    assert not rig.context.link.ended


def test_a_child_process_cannot_use_its_parents_device(rig: Rig) -> None:
    child = os.fork()
    if child == 0:
        try:
            with pytest.raises(VerbsError, match="child process") as raised:
                rig.qp.post_send(rig.request())
            with pytest.raises(VerbsError):
                ProtectionDomain(rig.context)
            rig.qp.close()
            rig.context.close()
            os._exit(0 if raised.value.errno == errno.EIO else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    rig.qp.post_send(rig.request(wr_id=3))  # the parent is as before
    rig.complete_sends()
    assert rig.cq.poll()[0].wr_id == 3
    ProtectionDomain(rig.context).close()


def test_a_program_that_closes_nothing(card: FakeCard) -> None:
    script = f"""
from pathlib import Path
from nitro_emu.efa.verbs import *
context = Context("efa_0", directory=Path({str(card.directory)!r}))
channel = CompletionChannel(context)
cq = CompletionQueue(context, 16, channel=channel)
"""
    result = run_to_end([sys.executable, "-c", script])
    assert (result.returncode, result.stderr) == (0, "")
    assert card.ended.wait(PATIENCE_S)


def test_closing_twice_and_using_what_is_closed(card: FakeCard, tmp_path: Path) -> None:
    context = Context("efa_0", directory=tmp_path)
    pd = ProtectionDomain(context)
    context.close()
    context.close()
    assert context.closed
    assert pd.closed
    pd.close()
    with pytest.raises(VerbsError, match="closed") as raised:
        ProtectionDomain(context)
    assert raised.value.errno == errno.EIO
    assert card.commands[-1].OPCODE == AdminOpcode.ALLOC_PD


def make_one(kind: str, pd: ProtectionDomain, channel: CompletionChannel, cq: CompletionQueue) -> None:
    if kind == "cq":
        CompletionQueue(pd.context, 16, channel=channel)
    else:
        QueuePair(pd, send_cq=cq, recv_cq=cq, options=QpOptions())


def unmappable(*_: object, **__: object) -> None:
    raise VerbsError(errno.ENOMEM, "cannot be mapped")


@pytest.mark.parametrize("module", ["cq", "qp"])
def test_closing_with_a_half_built_object_leaves_nothing(
    card: FakeCard, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    gc.collect()
    before = descriptors()
    context = Context("efa_0", directory=card.directory)
    pd, channel = ProtectionDomain(context), CompletionChannel(context)
    cq = CompletionQueue(context, 16, channel=channel)
    monkeypatch.setattr(f"nitro_emu.efa.verbs.{module}.map_shared", unmappable)
    with pytest.raises(VerbsError, match="cannot be mapped") as raised:  # which keeps the object
        make_one(module, pd, channel, cq)
    context.close()
    assert context.link.ended
    assert card.ended.wait(PATIENCE_S)
    del raised, context, pd, channel, cq
    gc.collect()
    assert len(descriptors()) == len(before) + card_descriptors(card)


class Unwilling:
    def release(self) -> None:
        raise ValueError("cannot be released")


def test_closing_ends_the_connection_whatever_a_resource_does(card: FakeCard) -> None:
    context, unwilling = Context("efa_0", directory=card.directory), Unwilling()
    context.link.resources.add(unwilling)
    with pytest.raises(ValueError, match="cannot be released"):
        context.close()
    assert card.ended.wait(PATIENCE_S)
    assert not [thread for thread in threading.enumerate() if thread.name == "nitro-verbs"]


@pytest.mark.parametrize("kind", ["cq", "qp"])
def test_what_the_card_made_is_destroyed_if_its_descriptors_do_not_fit(
    card: FakeCard, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The kernel drops descriptors that the process has no room for."""
    receive = CardConnection._receive

    def receive_one_less(link: CardConnection, command_id: int) -> tuple[bytes, list[int]]:
        data, fds = receive(link, command_id)
        if fds:
            os.close(fds.pop())
        return data, fds

    with Context("efa_0", directory=card.directory) as context:
        pd, channel = ProtectionDomain(context), CompletionChannel(context)
        cq = CompletionQueue(context, 16)
        before = descriptors()
        with monkeypatch.context() as patch:
            patch.setattr(CardConnection, "_receive", receive_one_less)
            with pytest.raises(VerbsError, match="raise ulimit -n") as raised:
                make_one(kind, pd, channel, cq)
        assert raised.value.errno == errno.EMFILE
        wait_until(lambda: isinstance(card.commands[-1], commands.DestroyCq | commands.DestroyQp))
        destroyed = card.commands[-1]
        assert destroyed == (commands.DestroyCq(max(card.cqs)) if kind == "cq" else commands.DestroyQp(max(card.qps)))
        of_the_card = 3 if kind == "cq" else 2
        wait_until(lambda: len(descriptors()) == len(before) + of_the_card)  # that nothing else is open


def test_a_doorbell_after_the_end_reaches_no_other_descriptor(rig: Rig) -> None:
    rig.card.status[0] = 1
    kept = rig.qp.send_queue
    rig.context.close()
    others = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(8)]
    kept.ring()
    try:
        for fd in others:
            with pytest.raises(BlockingIOError):
                os.eventfd_read(fd)
    finally:
        for fd in others:
            os.close(fd)
