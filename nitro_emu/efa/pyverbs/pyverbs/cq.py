"""Completion queues and channels.

A poll that finds nothing yields the CPU (sched_yield(2)). Programs for hardware poll in a loop; the card is a process,
and would have to wait for the end of their time slice where there are few CPUs.
"""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import dataclass
from typing import Final

from nitro_emu.efa import verbs
from nitro_emu.errors import VerbsError
from pyverbs.base import PyverbsCM, PyverbsObject, translated
from pyverbs.device import Context
from pyverbs.libibverbs_enums import IBV_WC_STANDARD_FLAGS
from pyverbs.pyverbs_error import PyverbsRDMAError

_NOTHING: Final = verbs.WorkCompletion(
    wr_id=0,
    status=verbs.WcStatus.GENERAL_ERR,
    vendor_error=0,
    opcode=verbs.WcOpcode.SEND,
    flags=verbs.WcFlags(0),
    qp_num=0,
    byte_len=0,
    src_qp=0,
    immediate=0,
    ah=0,
    src_gid=b"",
    unsolicited=False,
)


class CompChannel(PyverbsCM):
    """Waits for events of completion queues."""

    def __init__(self, context: Context) -> None:
        with translated("Failed to create a completion channel"):
            self.channel = verbs.CompletionChannel(context.context)
        super().__init__(self.channel, context)

    def get_cq_event(self, expected_cq: CQ | CQEX) -> None:
        """Wait for an event of this queue."""
        with translated("Failed to get CQ event"):
            queue = self.channel.get_event()
        if queue is not expected_cq.cq:
            raise PyverbsRDMAError("Received event on an unexpected CQ")


@dataclass(eq=False)
class WC(PyverbsObject):
    """A completion. `imm_data` is in network order."""

    wr_id: int = 0
    status: int = 0
    opcode: int = 0
    vendor_err: int = 0
    byte_len: int = 0
    qp_num: int = 0
    src_qp: int = 0
    imm_data: int = 0
    wc_flags: int = 0
    pkey_index: int = 0
    slid: int = 0
    sl: int = 0
    dlid_path_bits: int = 0

    @classmethod
    def of(cls, completion: verbs.WorkCompletion) -> WC:
        """Return the driver's completion as pyverbs has it."""
        return cls(
            wr_id=completion.wr_id,
            status=completion.status,
            opcode=completion.opcode,
            vendor_err=completion.vendor_error,
            byte_len=completion.byte_len,
            qp_num=completion.qp_num,
            src_qp=completion.src_qp,
            imm_data=socket.htonl(completion.immediate),
            wc_flags=completion.flags,
            slid=completion.ah,
        )


class _Queue(PyverbsCM):
    """What both kinds of completion queue do."""

    cq: verbs.CompletionQueue

    @property
    def cqe(self) -> int:
        """The number of entries."""
        return self.cq.depth

    def req_notify(self, solicited_only: bool = False) -> None:  # noqa: FBT001, FBT002 - pyverbs' signature
        """Ask for an event for the next completion."""
        with translated("Request notify CQ failed"):
            self.cq.request_notify(solicited_only=bool(solicited_only))

    def ack_events(self, num_events: int) -> None:
        """Acknowledge events, which the driver does itself."""


class CQ(_Queue):
    """A completion queue."""

    def __init__(
        self,
        context: Context,
        cqe: int,
        cq_context: object = None,  # noqa: ARG002 - pyverbs' signature
        channel: CompChannel | None = None,
        comp_vector: int = 0,  # noqa: ARG002 - pyverbs' signature
    ) -> None:
        with translated("Failed to create a CQ"):
            self.cq = verbs.CompletionQueue(context.context, cqe, channel=None if channel is None else channel.channel)
        self.comp_channel = channel
        super().__init__(self.cq, context, channel)

    def poll(self, num_entries: int = 1) -> tuple[int, list[WC]]:
        """Return how many completions there are, at most `num_entries`, and these."""
        with translated("Failed to poll CQ"):
            completions = self.cq.poll(num_entries)
        if not completions:
            os.sched_yield()
        return len(completions), [WC.of(completion) for completion in completions]


class PollCqAttr(PyverbsObject):
    """How to poll: there are no options."""

    def __init__(self) -> None:
        self.comp_mask = 0


@dataclass(eq=False)
class CqInitAttrEx(PyverbsObject):
    """What an extended completion queue is created from."""

    cqe: int = 100
    channel: CompChannel | None = None
    comp_vector: int = 0
    wc_flags: int = 0
    comp_mask: int = 0
    flags: int = 0
    parent_domain: object = None


class CQEX(_Queue):
    """An extended completion queue: completions are read field by field, also after `end_poll`."""

    with_source_gid = False

    def __init__(self, context: Context, init_attr: CqInitAttrEx | None = None) -> None:
        attr = init_attr or CqInitAttrEx()
        if attr.comp_mask or attr.flags or attr.parent_domain or attr.wc_flags & ~IBV_WC_STANDARD_FLAGS:
            raise PyverbsRDMAError("Failed to create extended CQ: an attribute is unknown", errno.EOPNOTSUPP)
        channel = attr.channel
        with translated("Failed to create extended CQ"):
            self.cq = verbs.CompletionQueue(
                context.context,
                attr.cqe,
                channel=None if channel is None else channel.channel,
                with_source_gid=self.with_source_gid,
            )
        self.comp_channel = channel
        self._current = _NOTHING
        super().__init__(self.cq, context, channel)

    def start_poll(self, poll_attr: PollCqAttr | None = None) -> int:
        """Begin to poll. Returns 0 if there is a completion, ENOENT if not, or another errno."""
        if poll_attr is not None and poll_attr.comp_mask:
            return errno.EINVAL
        return self.poll_next()

    def poll_next(self) -> int:
        """Go to the next completion; see `start_poll`."""
        try:
            completion = self.cq.next_poll()
        except VerbsError as error:
            return error.errno
        if completion is None:
            os.sched_yield()
            return errno.ENOENT
        self._current = completion
        return 0

    def end_poll(self) -> None:
        """End a poll, also one that has not begun."""
        self.cq.end_poll()

    @property
    def wr_id(self) -> int:
        """The request's id."""
        return self._current.wr_id

    @property
    def status(self) -> int:
        """The status."""
        return self._current.status

    def read_opcode(self) -> int:
        """Return the operation."""
        return self._current.opcode

    def read_vendor_err(self) -> int:
        """Return the device's own status."""
        return self._current.vendor_error

    def read_byte_len(self) -> int:
        """Return the number of bytes received."""
        return self._current.byte_len

    def read_imm_data(self) -> int:
        """Return the immediate, in network order."""
        return socket.htonl(self._current.immediate)

    def read_qp_num(self) -> int:
        """Return the queue pair's number."""
        return self._current.qp_num

    def read_src_qp(self) -> int:
        """Return the number of the sender's queue pair."""
        return self._current.src_qp

    def read_wc_flags(self) -> int:
        """Return the flags."""
        return self._current.flags

    def read_slid(self) -> int:
        """Return the sender's address handle."""
        return self._current.ah

    def read_sl(self) -> int:
        """Return the service level."""
        return 0

    def read_dlid_path_bits(self) -> int:
        """Return the path bits, which an EFA device does not have."""
        return 0

    @property
    def current(self) -> verbs.WorkCompletion:
        """The completion as the driver has it."""
        return self._current
