"""A device of a fake card, opened, with one of everything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nitro_emu.efa.verbs import (
    AddressHandle,
    CompletionChannel,
    CompletionQueue,
    Context,
    MemoryRegion,
    ProtectionDomain,
    QpOptions,
    QueuePair,
    SendFlags,
    SendOps,
    SendRequest,
    Sge,
    WrOpcode,
)
from tests.nitro_emu.efa.verbs.fake_card import GID, CardCq, CardQp, FakeCard

ALL_OPS: Final = (
    SendOps.SEND | SendOps.SEND_WITH_IMM | SendOps.RDMA_READ | SendOps.RDMA_WRITE | SendOps.RDMA_WRITE_WITH_IMM
)
OPTIONS: Final = QpOptions(
    max_send_wr=8, max_recv_wr=8, max_send_sge=2, max_recv_sge=2, max_inline_data=32, send_ops=ALL_OPS
)
QKEY: Final = 0x11111111


@dataclass
class Rig:
    """Both sides of one queue pair."""

    card: FakeCard
    context: Context
    pd: ProtectionDomain
    channel: CompletionChannel
    cq: CompletionQueue
    qp: QueuePair
    ah: AddressHandle
    mr: MemoryRegion

    @property
    def card_cq(self) -> CardCq:
        return self.card.cqs[self.cq.number]

    @property
    def card_qp(self) -> CardQp:
        return self.card.qps[self.qp.handle]

    def sge(self, length: int = 64, *, offset: int = 0) -> Sge:
        return Sge(self.mr.address + offset, length, self.mr.lkey)

    def request(
        self,
        wr_id: int = 1,
        *,
        sges: tuple[Sge, ...] | None = None,
        opcode: WrOpcode = WrOpcode.SEND,
        flags: SendFlags = SendFlags.SIGNALED,
        immediate: int = 0,
    ) -> SendRequest:
        sges = (self.sge(),) if sges is None else sges
        return SendRequest(self.ah, 7, QKEY, wr_id, sges, opcode, flags, immediate)

    def complete_sends(self, *, status: int = 0) -> list[int]:
        """Let the card take and complete all that is posted; return the request ids."""
        req_ids = [descriptor.req_id for descriptor in self.card.take_sends(self.card_qp)]
        for req_id in req_ids:
            self.card.complete_send(self.card_cq, self.card_qp, req_id, status=status)
        return req_ids


@contextmanager
def opened(directory: Path, *, options: QpOptions = OPTIONS, cq_depth: int = 64, gid: bool = False) -> Iterator[Rig]:
    """Open a device of a new card; the queue pair is in state RTS."""
    card = FakeCard(directory)
    try:
        with Context("efa_0", directory=directory) as context:
            pd = ProtectionDomain(context)
            channel = CompletionChannel(context)
            cq = CompletionQueue(context, cq_depth, channel=channel, with_source_gid=gid)
            qp = QueuePair(pd, send_cq=cq, recv_cq=cq, options=options)
            qp.to_rts(qkey=QKEY)
            mr = MemoryRegion.allocate(pd, length=1 << 16)
            yield Rig(card, context, pd, channel, cq, qp, AddressHandle(pd, gid=GID), mr)
    finally:
        card.close()
