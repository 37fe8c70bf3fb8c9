"""What arrives from other cards: admission by queue pairs, landing in posted buffers, completions.

1. The key of a send is the queue pair (16 bits), the sender's queue pair (16) and the queue key (32); that of a write
   or a read is the rkey (32), the queue pair and the sender's. The transport carries it and does not look at it.
2. A send is admitted before it is acknowledged: its queue pair must exist, receive, have the queue key, and a posted
   buffer that is long enough. What is not admitted is refused with a status, and disturbs nothing else. A write or a
   read needs an rkey, though it be of no bytes: with an immediate it takes a receive request.
3. A send's payload is copied once, from the receive region to the posted buffers, and its credit is returned at once.
   Payload of writes and of answers to reads lands in registered memory.
4. Nothing but a HELLO is accepted from a peer before it was let in (`incoming`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import numpy as np

from devmem.registry import Access
from nitro_emu.efa.abi import io
from nitro_emu.efa.card.landing import Piece, land_batch, land_message
from nitro_emu.efa.card.queue_pair import CardQueuePair
from nitro_emu.efa.card.recv_queue import Buffer, CardRecvQueue, PostedReceive
from nitro_emu.efa.card.vf import Vf
from nitro_emu.errors import AbiError
from nitro_emu.peers.incoming import IncomingPeer
from nitro_emu.peers.introduction import INTRODUCTION_KEY
from srd.proto.events import OFFSET_MASK, MessageAborted, MessageReceived, MessagesReceived, WriteReceived
from srd.proto.wire.data import Opcode
from srd.proto.wire.status import Status

# Plain integers: an enum's member is looked up, combined and compared by functions in Python.
_SEND: Final = int(io.SendOp.SEND)
_WRITE: Final = int(io.SendOp.RDMA_WRITE)
_LOCAL_WRITE: Final = int(Access.LOCAL_WRITE)
_REMOTE_WRITE: Final = int(Access.REMOTE_WRITE)
_REMOTE_READ: Final = int(Access.REMOTE_READ)
FETCHED: Final = 64
"""Descriptors that are fetched at once for messages: a segment train of these."""
Arrival = MessageReceived | MessagesReceived | WriteReceived


class CardResponder:
    """The receiving direction of a virtual function; the `Destinations` and the `Memory` of its engine."""

    def __init__(self, vf: Vf) -> None:
        self.qkey_violations = 0
        self.bytes_copied = 0
        self._vf = vf
        self._tables = vf.tables
        self._engine = vf.endpoint.engine
        self._sources = vf.endpoint.sources
        self._counters = vf.port

    # -- admission (srd.proto.memory.Destinations) ----------------------------------------------------------------

    def admit(self, key: int, *, peer: int, length: int, count: int) -> Status | None:
        """Reserve receive requests for sends."""
        if key == INTRODUCTION_KEY:
            return self._sources.admit_introduction(peer, length=length, count=count)
        source = self._sources.named(peer)
        if source is None:
            return Status.REMOTE_ERROR_BAD_DEST_QPN
        qp = self._tables.queue_pairs.get(key >> 48)
        if qp is None or not qp.receives:
            return Status.REMOTE_ERROR_BAD_DEST_QPN
        if key & 0xFFFFFFFF != qp.qkey:
            self.qkey_violations += count
            return Status.REMOTE_ERROR_BAD_DEST_QPN
        requests = self._reserve(qp, count)
        if not requests or qp.rq is None:
            return Status.REMOTE_ERROR_RNR
        if length and (refusal := self._check_buffers(qp, qp.rq, requests, length=length)) is not None:
            return refusal
        source.queue_pairs.add(qp.number)
        qp.reserve_send(peer, length=length, requests=requests)
        return None

    def admit_write(self, key: int, *, peer: int) -> Status | None:
        """Reserve a receive request for the notification of a write."""
        source, qp = self._sources.named(peer), self._tables.queue_pairs.get(key >> 16 & 0xFFFF)
        if source is None or qp is None or not qp.receives:
            return Status.REMOTE_ERROR_BAD_DEST_QPN
        if qp.is_unsolicited:
            return None
        requests = self._reserve(qp, 1)
        if not requests:
            return Status.REMOTE_ERROR_RNR
        source.queue_pairs.add(qp.number)
        qp.reserve_write(peer, requests[0])
        return None

    def refusal(self, key: int, *, peer: int) -> Status:
        """Return why a range is refused: there is no such queue pair, or its memory does not allow it.

        A peer that was not let in does not learn which queue pairs there are.
        """
        qp = self._tables.queue_pairs.get(key >> 16 & 0xFFFF)
        if qp is None or not qp.receives or self._sources.named(peer) is None:
            return Status.REMOTE_ERROR_BAD_DEST_QPN
        return Status.REMOTE_ERROR_BAD_ADDRESS

    def flow(self, key: int) -> int:
        """Return the requester's queue pair: answers to different ones take turns."""
        return key & 0xFFFF

    def _reserve(self, qp: CardQueuePair, count: int) -> list[PostedReceive]:
        """Reserve receive requests; none: there are not as many."""
        rq = qp.rq
        if rq is None:
            return []
        try:
            while rq.available < count and rq.fetch(most=FETCHED):
                pass
        except AbiError as error:
            self._vf.break_queue_pair(qp, str(error))
            return []
        return rq.reserve(count) if rq.available >= count else []

    def _check_buffers(
        self, qp: CardQueuePair, rq: CardRecvQueue, requests: list[PostedReceive], *, length: int
    ) -> Status | None:
        """Return why messages of this length do not fit into the buffers of these requests, which are then not taken.

        A single request with a buffer that is not registered completes in error, so that it does not block others.
        """
        if min([request.room for request in requests]) < length:
            rq.give_back(requests)
            return Status.REMOTE_ERROR_BAD_LENGTH
        first = requests[0]
        spans = first.buffers if len(requests) == len(first.buffers) == 1 else _spans(requests)
        if all(self._landing(qp, *span) is not None for span in spans):
            return None
        if len(requests) > 1:
            rq.give_back(requests)  # the messages come again one by one
            return Status.REMOTE_ERROR_ABORT
        rq.take(requests)
        lane = io.rx_lane(
            requests[0].req_id, status=Status.LOCAL_ERROR_INVALID_LKEY, qp_num=qp.number, op=_SEND, length=0,
            has_imm=False,
        )  # fmt: skip
        qp.recv_cq.push(lane, io.rx_source_lane(io.UNKNOWN_AH, src_qp_num=0, immediate=0))
        return Status.REMOTE_ERROR_ABORT

    def _landing(self, qp: CardQueuePair, address: int, length: int, lkey: int) -> int | None:
        """Return where a buffer of a receive request lies; None: it is not registered for that."""
        memory = self._tables.memory.get(lkey)
        if memory is None or memory.pd is not qp.pd or not memory.permissions & _LOCAL_WRITE:
            return None
        return memory.place(address, length=length)

    # -- registered memory (srd.proto.memory.Memory) ----------------------------------------------------------------

    def local_writable(self, key: int, *, offset: int, length: int) -> int | None:
        """Return where the answer to a read lands; `key` is an lkey."""
        if not length:
            return 0
        memory = self._tables.memory.get(key)
        if memory is None or not memory.permissions & _LOCAL_WRITE:
            return None
        return memory.place(offset, length=length)

    def remote_readable(self, key: int, *, peer: int, offset: int, length: int) -> int | None:
        """Return where another card reads."""
        place = self._remote_place(key, peer=peer, offset=offset, length=length, right=_REMOTE_READ)
        if place is not None:
            self._counters.rdma_read_resp_bytes += length
        return place

    def remote_writable(self, key: int, *, peer: int, offset: int, length: int) -> int | None:
        """Return where another card writes."""
        return self._remote_place(key, peer=peer, offset=offset, length=length, right=_REMOTE_WRITE)

    def _remote_place(self, key: int, *, peer: int, offset: int, length: int, right: int) -> int | None:
        memory, qp = self._tables.by_rkey.get(key >> 32), self._tables.queue_pairs.get(key >> 16 & 0xFFFF)
        if qp is None or not qp.receives or self._sources.named(peer) is None:
            return None
        if memory is None or memory.pd is not qp.pd or not memory.permissions & right:
            return None
        return memory.place(offset, length=length)

    # -- arrival ------------------------------------------------------------------------------------------------

    def on_arrival(self, event: Arrival) -> None:
        """Deliver what has arrived."""
        source = self._sources.get(event.peer)
        if event.key == INTRODUCTION_KEY and isinstance(event, MessageReceived):
            message = b"".join(bytes(self._engine().queues.view(extent)) for extent in event.extents)
            self._release(event)
            self._vf.endpoint.on_introduction_untrusted(event.peer, message)
        elif source is None or source.gid is None:  # it has ended
            self._release(event)
        else:
            self._deliver(event, source.gid)

    def _release(self, event: Arrival) -> None:
        if isinstance(event, MessageReceived):
            self._engine().release(event.peer, event.extents, event.length, 1)
        elif isinstance(event, MessagesReceived):
            self._engine().release(event.peer, (event.extent,), event.count * event.length, event.count)
        else:
            self._engine().release(event.peer, (), 0, 1)

    def _deliver(self, event: Arrival, gid: bytes) -> None:
        try:
            if isinstance(event, WriteReceived):
                self._deliver_write(event, gid)
            else:
                self._deliver_sends(event, gid)
        finally:
            self._release(event)

    def _source_lane(self, qp: CardQueuePair, gid: bytes, *, src_qp_num: int, immediate: int | None) -> int:
        ah = next(iter(qp.pd.by_gid.get(gid, ())), io.UNKNOWN_AH)
        return io.rx_source_lane(ah, src_qp_num=src_qp_num, immediate=immediate or 0)

    def _deliver_sends(self, event: MessageReceived | MessagesReceived, gid: bytes) -> None:
        qp = self._tables.queue_pairs.get(event.key >> 48)
        if qp is None or qp.rq is None:
            return
        left = 1 if isinstance(event, MessageReceived) else event.count
        done = 0
        while left:
            requests = qp.take_send(event.peer, length=event.length, count=left)
            if not requests:  # the queue pair was made, or reset, after the messages were admitted
                return
            qp.rq.take(requests)
            landed = self._land(qp, event, requests, done=done)
            if all(landed):
                self._complete_receives(qp, event, gid, [request.req_id for request in requests], status=Status.OK)
            else:
                for request, is_there in zip(requests, landed, strict=True):
                    status = Status.OK if is_there else Status.LOCAL_ERROR_INVALID_LKEY
                    self._complete_receives(qp, event, gid, [request.req_id], status=status)
            done += len(requests)
            left -= len(requests)

    def _land(
        self, qp: CardQueuePair, event: MessageReceived | MessagesReceived, requests: list[PostedReceive], *, done: int
    ) -> list[bool]:
        """Copy messages, of which `done` were copied before; return which of them landed."""
        if not event.length:
            return [True] * len(requests)
        place = partial(self._landing, qp)
        base = self._engine().queues.host.region.address
        self.bytes_copied += len(requests) * event.length
        if isinstance(event, MessagesReceived):
            source = base + (event.region_offset & OFFSET_MASK) + done * event.length
            return land_batch(source, requests, length=event.length, place=place)
        pieces = [Piece(base + (extent.region_offset & OFFSET_MASK), extent.length) for extent in event.extents]
        return [land_message(pieces, requests[0], length=event.length, place=place)]

    def _complete_receives(
        self,
        qp: CardQueuePair,
        event: MessageReceived | MessagesReceived,
        gid: bytes,
        req_ids: list[int],
        *,
        status: Status,
    ) -> None:
        length = event.length if status is Status.OK else 0
        if status is Status.OK:
            self._counters.recv_wrs += len(req_ids)
            self._counters.recv_bytes += len(req_ids) * length
        lane = io.rx_lane(
            0, status=status, qp_num=qp.number, op=_SEND, length=length, has_imm=event.immediate is not None
        )
        source = self._source_lane(qp, gid, src_qp_num=event.key >> 32 & 0xFFFF, immediate=event.immediate)
        if len(req_ids) == 1:
            qp.recv_cq.push(req_ids[0] | lane, source, extra=gid)
            return
        lanes = np.array(req_ids, np.uint64) | np.uint64(lane)
        qp.recv_cq.push_many(lanes, np.full(len(req_ids), source, np.uint64), extra=gid)

    def _deliver_write(self, event: WriteReceived, gid: bytes) -> None:
        qp = self._tables.queue_pairs.get(event.key >> 16 & 0xFFFF)
        if qp is None:
            return
        req_id, unsolicited = 0, qp.is_unsolicited
        if not unsolicited:
            requests = qp.take_write(event.peer)
            if not requests or qp.rq is None:
                return
            qp.rq.take(requests)
            req_id = requests[0].req_id
            self._counters.recv_wrs += 1
        lane = io.rx_lane(
            req_id, status=Status.OK, qp_num=qp.number, op=_WRITE, length=event.length, has_imm=True,
            unsolicited=unsolicited,
        )  # fmt: skip
        second = self._source_lane(qp, gid, src_qp_num=event.key & 0xFFFF, immediate=event.immediate)
        qp.recv_cq.push(lane, second, extra=io.LENGTH_HI.pack(event.length >> 16))

    def on_aborted(self, event: MessageAborted) -> None:
        """Give back what was reserved for a message that will never arrive."""
        qp = self._tables.queue_pairs.get(event.key >> 48 if event.opcode == Opcode.SEND else event.key >> 16 & 0xFFFF)
        if qp is None or qp.rq is None or event.key == INTRODUCTION_KEY:
            return
        if event.opcode == Opcode.SEND:
            qp.rq.give_back(qp.take_send(event.peer, length=event.length, count=1))
        else:
            qp.rq.give_back(qp.take_write(event.peer))
        self._flush_returned(qp)

    def on_ended(self, peer: int, source: IncomingPeer) -> None:
        """Give back what was reserved for a source that has ended."""
        for number in source.queue_pairs:
            if (qp := self._tables.queue_pairs.get(number)) is not None:
                qp.forget(peer)
                self._flush_returned(qp)

    def _flush_returned(self, qp: CardQueuePair) -> None:
        """Complete receive requests that were given back to a queue pair that is in the error state by now."""
        if qp.state is qp.state.ERR:
            self.flush(qp)

    def flush(self, qp: CardQueuePair) -> None:
        """Complete the receive requests that were fetched of a queue pair in the error state with FLUSHED."""
        if qp.rq is None:
            return
        for request in qp.rq.take_all():
            lane = io.rx_lane(
                request.req_id, status=Status.FLUSHED, qp_num=qp.number, op=_SEND, length=0, has_imm=False
            )
            qp.recv_cq.push(lane, io.rx_source_lane(io.UNKNOWN_AH, src_qp_num=0, immediate=0))


def _spans(requests: list[PostedReceive]) -> Iterator[Buffer]:
    """Yield the memory of these requests: all of it as one span if it has one lkey, else each buffer.

    If a span is within a memory region, so are all the buffers in it.
    """
    buffers = [buffer for request in requests for buffer in request.buffers if buffer[1]]
    lkey = buffers[0][2]
    if any(buffer[2] != lkey for buffer in buffers):
        yield from buffers
        return
    low = min(buffers)[0]
    yield low, max([address + length for address, length, _ in buffers]) - low, lkey
