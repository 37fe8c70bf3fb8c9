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
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nitro_emu.efa.abi import commands, enums, io, memory
from nitro_emu.efa.abi.io import QueueType
from nitro_emu.efa.verbs.comp_channel import CompletionChannel
from nitro_emu.efa.verbs.completions import COMPLETION, NONE, Completions, wc_opcode, wc_status
from nitro_emu.efa.verbs.context import Context
from nitro_emu.efa.verbs.resource import Resource
from nitro_emu.efa.verbs.shared import map_shared
from nitro_emu.efa.verbs.wr import WcFlags, WcOpcode, WorkCompletion
from nitro_emu.errors import VerbsError

_FLAGS_OFFSET: Final = 3  # of a CQE
_FLAGS_SHIFT: Final = 8 * _FLAGS_OFFSET  # in the first 8 bytes, as a number
_QP_NUM_SHIFT: Final = 32
_RECEIVED: Final = QueueType.RECV << io.CQE_QUEUE_SHIFT + _FLAGS_SHIFT
_UNSOLICITED: Final = io.CQE_UNSOLICITED << _FLAGS_SHIFT
_KEY: Final = np.uint64(0xFFFF << _QP_NUM_SHIFT | (io.CQE_QUEUE_MASK | io.CQE_UNSOLICITED) << _FLAGS_SHIFT)
"""What tells completions of different queues apart."""
_NO_FLAGS, _WITH_IMM = WcFlags(0), WcFlags.WITH_IMM


class _Kind(NamedTuple):
    """What the flags of a completion say."""

    received: bool
    written: bool
    unsolicited: bool
    opcode: WcOpcode
    flags: WcFlags

    @classmethod
    def of(cls, flags: int) -> _Kind | None:
        """Return what they say; None if they name no queue."""
        queue = (flags & io.CQE_QUEUE_MASK) >> io.CQE_QUEUE_SHIFT
        if queue not in {QueueType.SEND, QueueType.RECV}:
            return None
        received, op = queue == QueueType.RECV, (flags & io.CQE_OP_MASK) >> io.CQE_OP_SHIFT
        with_imm = received and flags & io.CQE_HAS_IMM
        return cls(
            received,
            written=op == io.SendOp.RDMA_WRITE,
            unsolicited=bool(flags & io.CQE_UNSOLICITED),
            opcode=wc_opcode(received=received, op=op),
            flags=_WITH_IMM if with_imm else _NO_FLAGS,
        )


_KINDS: Final = tuple(_Kind.of(flags) for flags in range(256))
_STATUSES: Final = tuple(wc_status(status) for status in range(256))


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
        caps_1, caps_2 = commands.cq_caps(
            entry_bytes=entry_bytes, interrupt_mode=channel is not None, set_src_addr=with_source_gid
        )
        command = commands.CreateCq(caps_1, caps_2, 1 << (depth - 1).bit_length(), uar=context.link.uar)
        reply, fds = context.link.create(
            command, receives=1 if channel is None else 2, destroy=lambda made: commands.DestroyCq(made.cq_idx)
        )
        self.context, self.channel, self.entry_bytes = context, channel, entry_bytes
        self.number, self.depth = reply.cq_idx, reply.cq_actual_depth
        self.lock = threading.RLock()  # `release` may be called from now on: its link has this queue
        self._unwatch: Callable[[], object] = lambda: None
        super().__init__(context.link, destroy=commands.DestroyCq(self.number))
        self._map(fds)
        self._doorbell = context.link.doorbell(reply.db_offset) if reply.flags & enums.CqReplyFlag.DB_VALID else None
        self._queues = context.queues
        self._consumed = 0
        self._arm_word = 0
        self._cmd_sn = 0
        self.stale = 0

    def _map(self, fds: list[int]) -> None:
        """Map the ring, and watch the descriptor of events if there is one."""
        if self.channel is not None:
            try:
                self.channel.add(self, event_fd=fds[1])
            except BaseException:
                for fd in fds:
                    os.close(fd)
                raise
            self._unwatch = weakref.finalize(self, _unwatch, self.channel, fds[1])
        try:
            ring = map_shared(fds[0], size_bytes=self.depth * self.entry_bytes, writable=False)
        finally:
            os.close(fds[0])
        self._ring = memoryview(ring)
        self._entries: npt.NDArray[Any] = np.frombuffer(ring, np.dtype((np.void, self.entry_bytes)), self.depth)
        self._entry_field = "entry" if self.entry_bytes == io.CQE_EX_BYTES else "narrow_entry"
        self._flags: npt.NDArray[np.uint8] = np.frombuffer(ring, np.uint8)[_FLAGS_OFFSET :: self.entry_bytes]

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
                while len(completions) < most and (found := self._take()) is not None:
                    completions.append(found)
            except VerbsError:
                if not completions:
                    raise
            finally:
                if self._consumed != before:
                    self._store_consumed()
        return completions

    def next_poll(self) -> WorkCompletion | None:
        """Return the next completion, None if there is none; `end_poll` ends a poll. Raises VerbsError as `poll`."""
        self._check()
        with self.lock:
            return self._take()

    def end_poll(self) -> None:
        """End a poll: tell the card what has been taken."""
        if not self.closed:
            with self.lock:
                self._store_consumed()

    def _take(self) -> WorkCompletion | None:
        consumed, ring = self._consumed, self._ring
        position = (consumed & self.depth - 1) * self.entry_bytes
        if ring[position + _FLAGS_OFFSET] & io.CQE_PHASE != memory.ring_phase(consumed, depth=self.depth):
            return None
        self._consumed = consumed + 1
        req_id, status, flags, qp_num, length, ah, src_qp, immediate = io.CQE.unpack_from(ring, position)
        if (kind := _KINDS[flags]) is None:
            raise VerbsError(errno.EINVAL, f"a completion with the flags {flags:#x}, which name no queue")
        wr_id = self._complete(req_id, qp_num=qp_num, kind=kind)
        opcode, wc_flags, unsolicited = kind.opcode, kind.flags, kind.unsolicited
        if not kind.received:
            return WorkCompletion(
                wr_id, _STATUSES[status], status, opcode, wc_flags, qp_num, 0, 0, 0, 0, b"", unsolicited
            )
        gid = b""
        if self.entry_bytes == io.CQE_EX_BYTES:
            if kind.written:
                length |= io.LENGTH_HI.unpack_from(ring, position + io.CQE_BYTES)[0] << 16
            elif ah == io.UNKNOWN_AH:
                gid = bytes(ring[position + io.CQE_BYTES : position + io.CQE_EX_BYTES])
        return WorkCompletion(
            wr_id, _STATUSES[status], status, opcode, wc_flags, qp_num, length, src_qp, immediate, ah, gid, unsolicited
        )

    def _complete(self, req_id: int, *, qp_num: int, kind: _Kind) -> int:
        """Free the request of a completion, and return its id. Raises VerbsError if there is none."""
        queues = self._queues.get(qp_num)
        if queues is not None:
            if kind.unsolicited:
                return 0
            queue = queues.recv if kind.received else queues.send
            with queue.lock:
                wr_id = queue.ids.complete(req_id)
            if wr_id is not None:
                return wr_id
        self.stale += 1
        raise VerbsError(errno.EINVAL, f"a completion of a queue pair that is gone (number {qp_num})")

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
        taken[self._entry_field] = self._entries[first : first + len(taken)]

    def _complete_many(self, taken: Completions) -> Completions:
        """Free the requests, and fill in their ids."""
        keys = taken["head"] & _KEY
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
        queues = self._queues.get(key >> _QP_NUM_SHIFT)
        if queues is not None and key & _UNSOLICITED:
            return None
        if queues is None:
            self.stale += len(group)
            return np.zeros(len(group), np.bool_)
        queue = queues.recv if key & _RECEIVED else queues.send
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
        if self._link.end_reason:
            self._link.check()
        if self.closed:
            raise VerbsError(errno.EINVAL, "the completion queue is closed")

    def release(self) -> None:
        """Release the ring and the descriptor of events."""
        super().release()
        self._unwatch()
        with self.lock:
            self._ring = memoryview(b"")
            self._entries = self._flags = np.zeros(0, np.uint8)


def _unwatch(channel: CompletionChannel, event_fd: int) -> None:
    channel.remove(event_fd)
    os.close(event_fd)
