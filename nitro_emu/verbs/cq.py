"""Completion queues: the ring that the card writes, and this process only reads.

An entry is new if its phase bit is the one of this round. What has been taken is told to the card by the doorbell, so
that it can detect an overrun. The doorbell also arms the event; the words that follow repeat that until the event has
come, as the card may see only the last of several stores.
"""

from __future__ import annotations

import errno
import os
import threading
import weakref
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nitro_emu.abi import admin, io, memory
from nitro_emu.abi.io import Cqe, QueueType
from nitro_emu.errors import AbiError, VerbsError
from nitro_emu.verbs.comp_channel import CompletionChannel
from nitro_emu.verbs.completions import COMPLETION, NONE, Completions, wc_opcode, wc_status
from nitro_emu.verbs.context import Context
from nitro_emu.verbs.enums import WcFlags
from nitro_emu.verbs.link import expect
from nitro_emu.verbs.mapping import map_shared
from nitro_emu.verbs.resource import Resource
from nitro_emu.verbs.wr import WorkCompletion

_FLAGS_OFFSET: Final = 3  # of a CQE
_RECEIVED: Final = QueueType.RECV << io.CQE_QUEUE_SHIFT
_KIND: Final = io.CQE_QUEUE_MASK | io.CQE_UNSOLICITED
_NO_FLAGS, _WITH_IMM = WcFlags(0), WcFlags.WITH_IMM


class CompletionQueue(Resource):
    """A completion queue of at least `depth` entries; `depth` is then what it has.

    `with_source_gid`: completions of messages from devices without an address handle have their GID.
    """

    def __init__(
        self,
        context: Context,
        depth: int,
        *,
        channel: CompletionChannel | None = None,
        with_source_gid: bool = False,
        entry_bytes: int = io.CQE_EX_BYTES,
    ) -> None:
        """Create it. Entries of 16 bytes are enough without source GIDs and without writes of 64 KiB and more."""
        most = context.attributes.queue.max_cq_depth
        if not 0 < depth <= most:
            raise VerbsError(errno.EINVAL, f"a completion queue of {depth} entries; this device has 1 to {most}")
        caps_1, caps_2 = admin.cq_caps(
            entry_bytes=entry_bytes, interrupt_mode=channel is not None, set_src_addr=with_source_gid
        )
        command = admin.CreateCq(caps_1, caps_2, 1 << (depth - 1).bit_length(), uar=context.link.uar)
        answer = context.link.ask(command)
        reply = expect(answer, kind=admin.CreateCqReply, fds=1 if channel is None else 2)
        self.context, self.channel, self.entry_bytes = context, channel, entry_bytes
        self.number, self.depth = reply.cq_idx, reply.cq_actual_depth
        super().__init__(context.link, destroy=admin.DestroyCq(self.number))
        self._map(answer.fds)
        self._doorbell = context.link.doorbell(reply.db_offset) if reply.flags & admin.CqReplyFlag.DB_VALID else None
        self._queues = context.queues
        self._consumed = 0
        self._arm_word = 0
        self._cmd_sn = 0
        self.stale = 0
        self.lock = threading.RLock()

    def _map(self, fds: list[int]) -> None:
        """Map the ring, and watch the eventfd if there is one."""
        try:
            ring = map_shared(fds[0], size_bytes=self.depth * self.entry_bytes, writable=False)
        finally:
            os.close(fds[0])
            self._close_fds = [weakref.finalize(self, os.close, fd) for fd in fds[1:]]
        self._ring = memoryview(ring)
        self._entries: npt.NDArray[Any] = np.frombuffer(ring, np.dtype((np.void, self.entry_bytes)), self.depth)
        self._flags: npt.NDArray[np.uint8] = np.frombuffer(ring, np.uint8)[_FLAGS_OFFSET :: self.entry_bytes]
        if self.channel is not None:
            self._event_fd = fds[1]
            self.channel.add(self, event_fd=self._event_fd)

    # -- events -----------------------------------------------------------------------------------------------------

    def request_notify(self, *, solicited_only: bool = False) -> None:
        """Arm the event: the next completion after this raises one. Poll once more after it, and then wait.

        Raises VerbsError: not created with a channel (EINVAL); `solicited_only` does not exist here (EOPNOTSUPP).
        """
        self._check()
        if solicited_only:
            raise VerbsError(errno.EOPNOTSUPP, "an EFA device has no solicited events")
        if self.channel is None or self._doorbell is None:
            raise VerbsError(errno.EINVAL, "the completion queue was created without a channel")
        with self.lock:
            self._arm_word = memory.cq_doorbell(0, cmd_sn=self._cmd_sn, arm=True)
            self._doorbell.ring(self._arm_word | self._consumed & memory.COUNTER_MASK)

    def on_event(self) -> None:
        """Note that the event has come: the next request is another one. The channel calls this."""
        with self.lock:
            self._cmd_sn += 1
            self._arm_word = 0

    # -- one at a time ----------------------------------------------------------------------------------------------

    def poll(self, most: int = 1) -> list[WorkCompletion]:
        """Return the oldest completions. Raises VerbsError (EINVAL) if the first belongs to no request."""
        self._check()
        completions: list[WorkCompletion] = []
        with self.lock:
            before = self._consumed
            try:
                while len(completions) < most and (cqe := self._take()) is not None:
                    completions.append(_work_completion(cqe, wr_id=self._complete(cqe)))
            except VerbsError:
                if not completions:
                    raise
            finally:
                if self._consumed != before:
                    self._store_consumed()
        return completions

    def start_poll(self) -> WorkCompletion | None:
        """Begin to poll; return the first completion, None if there is none. Raises VerbsError as `poll`."""
        return self.next_poll()

    def next_poll(self) -> WorkCompletion | None:
        """Return the next completion, None if there is none. Raises VerbsError as `poll`."""
        self._check()
        with self.lock:
            cqe = self._take()
            return None if cqe is None else _work_completion(cqe, wr_id=self._complete(cqe))

    def end_poll(self) -> None:
        """End a poll: tell the card what has been taken."""
        if not self.closed:
            with self.lock:
                self._store_consumed()

    def _take(self) -> Cqe | None:
        position = (self._consumed & self.depth - 1) * self.entry_bytes
        phase = memory.ring_phase(self._consumed, depth=self.depth)
        if self._ring[position + _FLAGS_OFFSET] & io.CQE_PHASE != phase:
            return None
        entry = bytes(self._ring[position : position + self.entry_bytes])
        self._consumed += 1
        try:
            return io.unpack_cqe_untrusted(entry)
        except AbiError as error:
            raise VerbsError(errno.EINVAL, f"{error}") from error

    def _complete(self, cqe: Cqe) -> int:
        """Free the request of a completion, and return its id. Raises VerbsError if there is none."""
        queues = self._queues.get(cqe.qp_num)
        if queues is not None:
            if cqe.unsolicited:
                return 0
            queue = queues.send if cqe.queue == QueueType.SEND else queues.recv
            with queue.lock:
                wr_id = queue.ids.complete(cqe.req_id)
            if wr_id is not None:
                return wr_id
        self.stale += 1
        raise VerbsError(errno.EINVAL, f"a completion of a queue pair that is gone (number {cqe.qp_num})")

    # -- many at a time ---------------------------------------------------------------------------------------------

    def poll_array(self, most: int) -> Completions:
        """Return the oldest completions (see `completions`). Those of queue pairs that are gone are left out."""
        self._check()
        with self.lock:
            first = self._consumed & self.depth - 1
            phase = memory.ring_phase(self._consumed, depth=self.depth)
            if self._ring[first * self.entry_bytes + _FLAGS_OFFSET] & io.CQE_PHASE != phase:
                return NONE
            count = self._count_new(first, most=most, phase=phase)
            taken: Completions = np.zeros(count, COMPLETION)
            self._copy(taken, first=first)
            self._consumed += count
            self._store_consumed()
            return self._complete_many(taken)

    def _count_new(self, first: int, *, most: int, phase: int) -> int:
        """Return how many of the entries from `first` are new, at most `most`, and up to the ring's end."""
        new = self._flags[first : min(first + most, self.depth)] & io.CQE_PHASE == phase
        old = int(new.argmin())
        return old if not new[old] else len(new)

    def _copy(self, taken: Completions, *, first: int) -> None:
        target = np.ndarray(len(taken), self._entries.dtype, taken, strides=(COMPLETION.itemsize,))
        target[:] = self._entries[first : first + len(taken)]

    def _complete_many(self, taken: Completions) -> Completions:
        """Free the requests, and fill in their ids."""
        kinds = taken["flags"] & _KIND
        keys = taken["qp_num"].astype(np.uint32) << 8 | kinds
        if (keys == keys[0]).all():
            valid = self._complete_group(taken, key=int(keys[0]))
            return taken if valid is None else taken[valid]
        kept = np.ones(len(taken), np.bool_)
        for key in np.unique(keys):
            of_queue = np.flatnonzero(keys == key)
            group = taken[of_queue]
            valid = self._complete_group(group, key=int(key))
            taken["wr_id"][of_queue] = group["wr_id"]
            if valid is not None:
                kept[of_queue] = valid
        return taken if kept.all() else taken[kept]

    def _complete_group(self, group: Completions, *, key: int) -> npt.NDArray[np.bool_] | None:
        """Free the requests of one queue. Returns which exist, None if all do."""
        queues = self._queues.get(key >> 8)
        if queues is not None and key & io.CQE_UNSOLICITED:
            return None
        if queues is None:
            self.stale += len(group)
            return np.zeros(len(group), np.bool_)
        queue = queues.recv if key & io.CQE_QUEUE_MASK == _RECEIVED else queues.send
        with queue.lock:
            group["wr_id"], valid = queue.ids.complete_many(group["req_id"])
        if valid is not None:
            self.stale += len(group) - int(valid.sum())
        return valid

    # -- the rest ---------------------------------------------------------------------------------------------------

    def _store_consumed(self) -> None:
        if self._doorbell is not None:
            self._doorbell.store(self._arm_word | self._consumed & memory.COUNTER_MASK)

    def _check(self) -> None:
        self._link.check()
        if self.closed:
            raise VerbsError(errno.EINVAL, "the completion queue is closed")

    def release(self) -> None:
        """Release the ring and the eventfd."""
        super().release()
        if self.channel is not None:
            self.channel.remove(self._event_fd)
        for close_fd in self._close_fds:
            close_fd()
        with self.lock:
            self._ring = memoryview(b"")
            self._entries = self._flags = np.zeros(0, np.uint8)


def _work_completion(cqe: Cqe, *, wr_id: int) -> WorkCompletion:
    received = cqe.queue == QueueType.RECV
    return WorkCompletion(
        wr_id=wr_id,
        status=wc_status(cqe.status),
        vendor_error=cqe.status,
        opcode=wc_opcode(received=received, op=cqe.op),
        flags=_WITH_IMM if received and cqe.has_imm else _NO_FLAGS,
        qp_num=cqe.qp_num,
        byte_len=cqe.length,
        src_qp=cqe.src_qp_num,
        immediate=cqe.imm,
        ah=cqe.ah,
        src_gid=cqe.src_addr,
        unsolicited=cqe.unsolicited,
    )
