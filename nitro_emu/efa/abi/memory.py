"""Where things lie in the memory that a card and a driver share, and the words that are written there.

Status memfd, written by the card: u32 at 0 need_kick (the card sleeps: write the kick eventfd after a doorbell), u32 at
4 the card's state, the AENQ ring at 4096. UAR memfd, written by the driver: one u32 doorbell for each SQ, RQ and CQ.
Ring memfd of a QP, written by the driver: the SQ's entries at 0, the RQ's descriptors from the next page on. CQ memfd,
written by the card: the entries.

Words that the other process polls must be stored by one instruction: assign to a `memoryview` cast to "I", to a NumPy
array of uint32, or to a slice of 8 bytes. `struct.pack_into` with "<" stores byte after byte, so that the other process
could see half a word.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from nitro_emu.efa.abi.admin import ENTRY_BYTES
from nitro_emu.efa.abi.io import RX_DESC_BYTES

PAGE_BYTES: Final = 4096
"""The parts of a memfd begin at multiples of this."""

NEED_KICK_OFFSET: Final = 0
"""In the status memfd: u32, 1 while the card sleeps."""
CARD_STATE_OFFSET: Final = 4
"""In the status memfd: u32, a `CardState`."""
AENQ_OFFSET: Final = PAGE_BYTES
"""In the status memfd: the ring of asynchronous events."""
AENQ_DEPTH: Final = 64
"""Entries of the AENQ ring. The card overwrites the oldest; a driver that is slower than that loses events."""
STATUS_BYTES: Final = AENQ_OFFSET + AENQ_DEPTH * ENTRY_BYTES
"""The size of the status memfd."""

DOORBELL_BYTES: Final = 4
"""The size of a doorbell in the UAR memfd."""
SQ_OFFSET: Final = 0
"""In the ring memfd: the SQ's entries (`llq_descriptors_offset`)."""
COUNTER_MASK: Final = 0xFFFF
"""Producer and consumer counters have 16 bits and wrap."""

_ARM_SHIFT: Final = 31
_CMD_SN_SHIFT: Final = 29
_CMD_SN_MASK: Final = 3


class CardState(IntEnum):
    """The card's state in the status memfd."""

    READY = 0
    DRAINING = 1
    FATAL = 2


class CqDoorbell(NamedTuple):
    """A completion queue's doorbell."""

    consumer: int
    cmd_sn: int
    arm: bool


def cq_doorbell(consumer: int, *, cmd_sn: int = 0, arm: bool = False) -> int:
    """Return a CQ's doorbell: the consumer counter and, to arm it, the number of this request (both wrap)."""
    return arm << _ARM_SHIFT | (cmd_sn & _CMD_SN_MASK) << _CMD_SN_SHIFT | consumer & COUNTER_MASK


def parse_cq_doorbell(word: int) -> CqDoorbell:
    """Take a CQ's doorbell apart. Every u32 is one; the bits between the counters are ignored."""
    return CqDoorbell(word & COUNTER_MASK, word >> _CMD_SN_SHIFT & _CMD_SN_MASK, bool(word >> _ARM_SHIFT & 1))


def uar_bytes(*, max_qp: int, max_cq: int) -> int:
    """Return the size of a UAR memfd with doorbells for so many queues."""
    return _whole_pages((2 * max_qp + max_cq) * DOORBELL_BYTES)


def sq_doorbell_offset(qp_slot: int) -> int:
    """Return where the SQ doorbell of the UAR's QP number `qp_slot` (counted from 0) lies."""
    return 2 * qp_slot * DOORBELL_BYTES


def rq_doorbell_offset(qp_slot: int) -> int:
    """Return where the RQ doorbell of the UAR's QP number `qp_slot` (counted from 0) lies."""
    return (2 * qp_slot + 1) * DOORBELL_BYTES


def cq_doorbell_offset(cq_slot: int, *, max_qp: int) -> int:
    """Return where the doorbell of the UAR's CQ number `cq_slot` (counted from 0) lies."""
    return (2 * max_qp + cq_slot) * DOORBELL_BYTES


def rq_offset(sq_depth: int, *, wqe_bytes: int) -> int:
    """Return where the RQ's descriptors begin in the ring memfd."""
    return _whole_pages(sq_depth * wqe_bytes)


def ring_bytes(*, sq_depth: int, wqe_bytes: int, rq_depth: int) -> int:
    """Return the size of a QP's ring memfd; at least a page, as a memfd of 0 bytes cannot be mapped."""
    return max(PAGE_BYTES, rq_offset(sq_depth, wqe_bytes=wqe_bytes) + _whole_pages(rq_depth * RX_DESC_BYTES))


def cq_bytes(depth: int, *, entry_bytes: int) -> int:
    """Return the size of a CQ memfd."""
    return _whole_pages(depth * entry_bytes)


def ring_phase(counter: int, *, depth: int) -> int:
    """Return the phase bit of entry number `counter` of a CQ, AENQ or admin queue: 1 at first, flips on each wrap."""
    return counter // depth & 1 ^ 1


def sq_phase(counter: int, *, depth: int) -> int:
    """Return the phase bit of entry number `counter` of a send queue: 0 at first, flips on each wrap."""
    return counter // depth & 1


def _whole_pages(size_bytes: int) -> int:
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES
