"""The admin commands of one program, carried out: each returns its reply and the descriptors that go with it.

Statuses. RESOURCE_ALLOCATION_FAILURE: a limit of the settings, or of the machine. ILLEGAL_PARAMETER: a value, or an
object that is not of this connection. RESOURCE_BUSY: something still uses the object.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from nitro_emu.efa.abi import commands, enums, limits, replies
from nitro_emu.efa.abi.enums import AdminStatus
from nitro_emu.efa.abi.io import CQE_BYTES, CQE_EX_BYTES, RX_DESC_BYTES
from nitro_emu.efa.abi.memory import (
    PAGE_BYTES,
    SQ_OFFSET,
    cq_doorbell_offset,
    ring_bytes,
    rq_doorbell_offset,
    rq_offset,
    sq_doorbell_offset,
)
from nitro_emu.efa.card.completion_queue import CardCompletionQueue
from nitro_emu.efa.card.event_ring import CQ_OVERRUN, SUPPORTED_GROUPS
from nitro_emu.efa.card.features import SUB_CQS, feature, stats
from nitro_emu.efa.card.memory_region import CardMemoryRegion, map_untrusted, new_rkey
from nitro_emu.efa.card.objects import CardAddressHandle, CardProtectionDomain
from nitro_emu.efa.card.queue_pair import CardQueuePair
from nitro_emu.efa.card.recv_queue import CardRecvQueue
from nitro_emu.efa.card.send_queue import CardSendQueue
from nitro_emu.efa.card.shared import EventSender, shared_region
from nitro_emu.efa.card.user_context import UAR, UserContext
from nitro_emu.errors import AdminError, VpcError
from nitro_emu.gid import gid_text

Answer = tuple[replies.Reply, tuple[int, ...]]
"""A reply, and the descriptors that go with it; the program gets duplicates."""
_PERMISSIONS: Final = 7


class AdminCommands:
    """Carries out the commands of a connection."""

    def __init__(self, context: UserContext) -> None:
        self._context = context
        self._vf = context.vf
        self._tables = context.vf.tables
        self._to_close: list[int] = []  # descriptors to be closed when the reply was sent
        self._handlers: Mapping[type[commands.Command], Callable[[Any, list[int]], Answer]] = {
            commands.AllocUar: self._alloc_uar,
            commands.DeallocUar: self._dealloc_uar,
            commands.AllocPd: self._alloc_pd,
            commands.DeallocPd: self._dealloc_pd,
            commands.RegMr: self._reg_mr,
            commands.DeregMr: self._dereg_mr,
            commands.CreateCq: self._create_cq,
            commands.DestroyCq: self._destroy_cq,
            commands.CreateQp: self._create_qp,
            commands.ModifyQp: self._modify_qp,
            commands.QueryQp: self._query_qp,
            commands.DestroyQp: self._destroy_qp,
            commands.CreateAh: self._create_ah,
            commands.DestroyAh: self._destroy_ah,
            commands.GetFeature: self._get_feature,
            commands.SetFeature: self._set_feature,
            commands.GetStats: self._get_stats,
        }

    def execute(self, command: commands.Command, descriptors: list[int]) -> Answer:
        """Carry out a command that came with `descriptors`, which the caller closes. Raises AdminError."""
        try:
            return self._carry_out(command, descriptors)
        except AdminError:
            counters = self._vf.device
            match command:
                case commands.AllocPd():
                    counters.alloc_pd_err += 1
                case commands.CreateQp():
                    counters.create_qp_err += 1
                case commands.CreateCq():
                    counters.create_cq_err += 1
                case commands.RegMr():
                    counters.reg_mr_err += 1
                case commands.AllocUar():
                    counters.alloc_ucontext_err += 1
                case commands.CreateAh():
                    counters.create_ah_err += 1
            raise

    def _carry_out(self, command: commands.Command, descriptors: list[int]) -> Answer:
        try:
            return self._handlers[type(command)](command, descriptors)
        except MemoryError as error:
            raise _failed("no memory is left") from error

    def close_sent(self) -> None:
        """Close the descriptors that were made for the last reply."""
        while self._to_close:
            os.close(self._to_close.pop())

    def _reopen_read_only(self, fd: int) -> int:
        """Return a read-only descriptor of memory that only the card writes."""
        try:
            self._to_close.append(os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            raise _failed(f"descriptor: {error.strerror}") from error
        return self._to_close[-1]

    # -- pages of doorbells, protection domains -----------------------------------------------------------------------

    def _alloc_uar(self, _command: commands.AllocUar, _descriptors: list[int]) -> Answer:
        if self._context.uar is not None:
            raise _failed("uar: a connection has one")
        uar = self._context.open_uar()
        self._to_close.append(uar.sender.program_fd)
        try:
            status_fd = self._reopen_read_only(uar.events.region.fd)
        except AdminError:
            self._context.close_uar()
            raise
        return replies.AllocUarReply(UAR), (uar.region.fd, status_fd, uar.kick_fd, uar.sender.program_fd)

    def _dealloc_uar(self, command: commands.DeallocUar, _descriptors: list[int]) -> Answer:
        if self._context.need_uar(command.uar).queues:
            raise _busy("uar: queues use it")
        self._context.close_uar()
        return replies.EmptyReply(), ()

    def _alloc_pd(self, _command: commands.AllocPd, _descriptors: list[int]) -> Answer:
        number = self._tables.domains.reserve()
        self._context.add(self._tables.domains, number, CardProtectionDomain(number))
        return replies.AllocPdReply(number), ()

    def _dealloc_pd(self, command: commands.DeallocPd, _descriptors: list[int]) -> Answer:
        domain = self._domain(command.pd)
        if domain.users:
            raise _busy(f"pd: {command.pd} has users")
        self._context.destroy(domain)
        return replies.EmptyReply(), ()

    def _domain(self, number: int) -> CardProtectionDomain:
        return self._context.own(self._tables.domains, number, name="pd")

    # -- memory -------------------------------------------------------------------------------------------------------

    def _reg_mr(self, command: commands.RegMr, descriptors: list[int]) -> Answer:
        domain, tables, vf = self._domain(command.pd), self._tables, self._vf
        if len(descriptors) != 1:
            raise AdminError(AdminStatus.MALFORMED_REQUEST, f"memory: {len(descriptors)} descriptors instead of one")
        if not command.mr_length or command.permissions & ~_PERMISSIONS or command.iova + command.mr_length > 1 << 64:
            raise _illegal(f"memory: no bytes, permissions {command.permissions:#x}, or a range beyond 64 bits")
        if tables.registered_bytes + command.mr_length > vf.config.max_mr_bytes:
            raise _failed(f"memory: more than max_mr_bytes ({vf.config.max_mr_bytes}) in all")
        if len(tables.memory) + tables.lingering >= vf.config.max_mrs:
            raise _failed(f"memory: all {vf.config.max_mrs} regions are registered, or still used by requests")
        lkey = tables.memory.reserve()
        region = map_untrusted(
            descriptors[0],
            offset=command.memory_offset,
            length=command.iova % PAGE_BYTES + command.mr_length,
            permissions=command.permissions,
        )
        memory = CardMemoryRegion(
            region, pd=domain, iova=command.iova, length=command.mr_length, permissions=command.permissions,
            lkey=lkey, rkey=new_rkey(tables.by_rkey), on_unused=vf.on_unused,
        )  # fmt: skip
        self._context.add(tables.memory, lkey, memory)
        tables.by_rkey[memory.rkey] = memory
        tables.registered_bytes += memory.length
        return replies.RegMrReply(lkey, memory.rkey), ()

    def _dereg_mr(self, command: commands.DeregMr, _descriptors: list[int]) -> Answer:
        self._context.destroy(self._context.own(self._tables.memory, command.l_key, name="l_key"))
        return replies.EmptyReply(), ()

    # -- completion queues --------------------------------------------------------------------------------------------

    def _create_cq(self, command: commands.CreateCq, _descriptors: list[int]) -> Answer:
        uar, depth = self._context.need_uar(command.uar), command.cq_depth
        if depth & depth - 1 or not 0 < depth <= limits.MAX_CQ_DEPTH:
            raise _illegal(f"cq_depth: {depth} is no power of two up to {limits.MAX_CQ_DEPTH}")
        if command.entry_bytes not in {CQE_BYTES, CQE_EX_BYTES} or command.num_sub_cqs != SUB_CQS:
            raise _illegal(f"cq: entries of {command.entry_bytes} bytes, {command.num_sub_cqs} parts")
        if command.set_src_addr and command.entry_bytes != CQE_EX_BYTES:
            raise _illegal("cq: entries of 16 bytes have no room for a source address")
        number = self._tables.completion_queues.reserve()
        events = EventSender() if command.interrupt_mode else None
        if events is not None:
            self._to_close.append(events.program_fd)
        slot = uar.free_cq_slots[-1]
        offset = cq_doorbell_offset(slot, max_qp=self._vf.config.max_qps)
        doorbells, poller = uar.doorbells, self._vf.poller
        try:
            cq = CardCompletionQueue(
                number,
                slot=slot,
                depth=depth,
                entry_bytes=command.entry_bytes,
                doorbell=doorbells.word(offset),
                events=events,
                on_completion=lambda: poller.touch(doorbells),
                on_overrun=self._on_overrun,
            )
            try:
                read_only = self._reopen_read_only(cq.region.fd)
            except AdminError:
                cq.close()
                raise
        except AdminError:
            if events is not None:
                events.close()
            raise
        uar.free_cq_slots.pop()
        uar.queues += 1
        if events is None:  # the consumer counter is read when it is needed
            doorbells.clear(offset)
        else:
            doorbells.watch(offset, cq.on_doorbell)
        self._context.add(self._tables.completion_queues, number, cq)
        reply = replies.CreateCqReply(number, depth, offset, enums.CqReplyFlag.DB_VALID)
        return reply, (read_only,) if events is None else (read_only, events.program_fd)

    def _on_overrun(self, cq: CardCompletionQueue) -> None:
        self._context.warn(syndrome=CQ_OVERRUN, number=cq.number)
        for qp in self._context.queue_pairs_of(cq):
            self._vf.break_queue_pair(qp, f"completion queue {cq.number} was overrun")

    def _destroy_cq(self, command: commands.DestroyCq, _descriptors: list[int]) -> Answer:
        cq = self._context.own(self._tables.completion_queues, command.cq_idx, name="cq_idx")
        if cq.users:
            raise _busy(f"cq: {command.cq_idx} is used by queue pairs")
        self._context.destroy(cq)
        return replies.EmptyReply(), ()

    # -- queue pairs --------------------------------------------------------------------------------------------------

    def _create_qp(self, command: commands.CreateQp, _descriptors: list[int]) -> Answer:
        uar, domain = self._context.need_uar(command.uar), self._domain(command.pd)
        send_cq = self._context.own(self._tables.completion_queues, command.send_cq_idx, name="send_cq_idx")
        recv_cq = self._context.own(self._tables.completion_queues, command.recv_cq_idx, name="recv_cq_idx")
        wqe_bytes = _check_qp(command)
        number = self._tables.queue_pairs.reserve()
        slot = uar.free_qp_slots[-1]
        sq_depth, rq_depth = command.send_queue_depth, command.recv_queue_depth
        region = shared_region(ring_bytes(sq_depth=sq_depth, wqe_bytes=wqe_bytes, rq_depth=rq_depth), name="nitro-qp")
        sq_at, rq_at = sq_doorbell_offset(slot), rq_doorbell_offset(slot)
        sq = rq = None
        ring, doorbells = memoryview(region), uar.doorbells
        if sq_depth:
            sq = CardSendQueue(ring[:], depth=sq_depth, wqe_bytes=wqe_bytes, doorbell=doorbells.word(sq_at))
        if rq_depth:
            rq = CardRecvQueue(
                ring[rq_offset(sq_depth, wqe_bytes=wqe_bytes) :], depth=rq_depth, doorbell=doorbells.word(rq_at)
            )
        ring.release()
        unsolicited = bool(command.flags & enums.CreateQpFlag.UNSOLICITED_WRITE_RECV)
        qp = CardQueuePair(number, self._context, slot, domain, send_cq, recv_cq, region, sq, rq, unsolicited)
        domain.users += 1
        send_cq.users += 1
        recv_cq.users += 1
        uar.free_qp_slots.pop()
        uar.queues += 1
        self._context.add(self._tables.queue_pairs, number, qp)
        self._context.watch(qp)
        reply = replies.CreateQpReply(number, number, 0, 0, sq_at, rq_at, SQ_OFFSET)
        return reply, (region.fd,)

    def _modify_qp(self, command: commands.ModifyQp, _descriptors: list[int]) -> Answer:
        qp = self._context.own(self._tables.queue_pairs, command.qp_handle, name="qp_handle")
        before = qp.state
        qp.modify(command)
        if qp.state is enums.QpState.RESET and before is not enums.QpState.RESET:
            self._vf.reset(qp)
            self._context.watch(qp)
        elif qp.state is enums.QpState.ERR:
            self._vf.flush(qp)
        else:
            self._vf.run_later(qp)
        return replies.EmptyReply(), ()

    def _query_qp(self, command: commands.QueryQp, _descriptors: list[int]) -> Answer:
        qp = self._context.own(self._tables.queue_pairs, command.qp_handle, name="qp_handle")
        is_draining = qp.state is enums.QpState.SQD and qp.sq is not None and not qp.sq.is_idle
        return replies.QueryQpReply(qp.state, qp.qkey, qp.sq_psn, int(is_draining), qp.rnr_retry), ()

    def _destroy_qp(self, command: commands.DestroyQp, _descriptors: list[int]) -> Answer:
        self._context.destroy(self._context.own(self._tables.queue_pairs, command.qp_handle, name="qp_handle"))
        return replies.EmptyReply(), ()

    # -- address handles ----------------------------------------------------------------------------------------------

    def _create_ah(self, command: commands.CreateAh, _descriptors: list[int]) -> Answer:
        domain = self._domain(command.pd)
        try:
            self._vf.tenancy.destination(command.dest_addr)
        except VpcError as error:
            self._vf.endpoint.on_denied(str(error))
            raise _illegal(f"gid: {gid_text(command.dest_addr)} cannot be reached") from None
        number = self._tables.handles.reserve()
        handle = CardAddressHandle(number, domain, command.dest_addr, self._vf.remote(command.dest_addr))
        self._context.add(self._tables.handles, number, handle)
        domain.by_gid.setdefault(handle.gid, {})[number] = None
        domain.users += 1
        return replies.CreateAhReply(number), ()

    def _destroy_ah(self, command: commands.DestroyAh, _descriptors: list[int]) -> Answer:
        handle = self._context.own(self._tables.handles, command.ah, name="ah")
        if handle.pd is not self._domain(command.pd):
            raise _illegal(f"ah: {command.ah} is of another protection domain")
        self._context.destroy(handle)
        return replies.EmptyReply(), ()

    # -- features and statistics --------------------------------------------------------------------------------------

    def _get_feature(self, command: commands.GetFeature, _descriptors: list[int]) -> Answer:
        events = None if self._context.uar is None else self._context.uar.events
        return feature(self._vf, command.feature_id, events=events), ()

    def _set_feature(self, command: commands.SetFeature, _descriptors: list[int]) -> Answer:
        if command.feature_id != enums.Feature.AENQ_CONFIG:
            raise _illegal(f"feature: {command.feature_id} cannot be set")
        if command.enabled_groups & ~SUPPORTED_GROUPS:
            raise _illegal(f"enabled_groups: {command.enabled_groups:#x} has some that are not supported")
        self._context.need_uar(UAR).events.enabled_groups = command.enabled_groups
        return replies.EmptyReply(), ()

    def _get_stats(self, command: commands.GetStats, _descriptors: list[int]) -> Answer:
        return stats(self._vf, command.stats_type, scope=command.scope), ()


def _check_qp(command: commands.CreateQp) -> int:
    """Check depths and sizes; return the size of the send queue's entries. Raises AdminError."""
    if command.qp_type != enums.QpType.SRD:
        raise _illegal(f"qp_type: {command.qp_type}; this device has SRD ({enums.QpType.SRD:d}) only")
    if command.flags & ~enums.CreateQpFlag.UNSOLICITED_WRITE_RECV:
        raise _illegal(f"flags: {command.flags:#x} has some that are not supported")
    sq_depth, rq_depth = command.send_queue_depth, command.recv_queue_depth
    wqe_bytes = command.send_queue_ring_size // sq_depth if sq_depth else limits.WQE_BYTES
    most = {limits.WQE_BYTES: limits.MAX_SQ_DEPTH, limits.WIDE_WQE_BYTES: limits.MAX_WIDE_SQ_DEPTH}.get(wqe_bytes, 0)
    if sq_depth & sq_depth - 1 or sq_depth > most or sq_depth * wqe_bytes != command.send_queue_ring_size:
        raise _illegal(f"send queue: {sq_depth} entries in {command.send_queue_ring_size} bytes")
    if (
        rq_depth & rq_depth - 1
        or rq_depth > limits.MAX_RQ_DEPTH
        or rq_depth * RX_DESC_BYTES != command.recv_queue_ring_size
    ):
        raise _illegal(f"receive queue: {rq_depth} descriptors in {command.recv_queue_ring_size} bytes")
    return wqe_bytes


def _illegal(text: str) -> AdminError:
    return AdminError(AdminStatus.ILLEGAL_PARAMETER, text)


def _failed(text: str) -> AdminError:
    return AdminError(AdminStatus.RESOURCE_ALLOCATION_FAILURE, text)


def _busy(text: str) -> AdminError:
    return AdminError(AdminStatus.RESOURCE_BUSY, text)
