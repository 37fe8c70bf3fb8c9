"""The status page of one program: whether the card sleeps, its state, and the ring of asynchronous events (AENQ)."""

from __future__ import annotations

import time
from typing import Final

from devmem.region import Region
from nitro_emu.efa.abi.admin import ENTRY_BYTES, AenqEntry, encode_aenq
from nitro_emu.efa.abi.enums import AenqGroup
from nitro_emu.efa.abi.memory import (
    AENQ_DEPTH,
    AENQ_OFFSET,
    CARD_STATE_OFFSET,
    STATUS_BYTES,
    CardState,
    ring_phase,
)
from nitro_emu.efa.card.shared import EventSender, card_written_region

SUPPORTED_GROUPS: Final = sum(1 << group for group in AenqGroup)
_PHASE_BYTES: Final = 8
"""The part of an entry that has the phase bit and is stored last."""
CQ_OVERRUN: Final = 1
"""Syndrome of a warning: a completion queue was overrun. Its data: the queue's number."""
QP_ERROR: Final = 2
"""Syndrome of a warning: a program broke the rules of a ring. Its data: the queue pair's number."""


class EventRing:
    """Writes events; those of groups that the program has not enabled are left out, but for fatal errors."""

    def __init__(self, sender: EventSender) -> None:
        self.region: Region = card_written_region(STATUS_BYTES, name="nitro-status")
        self.enabled_groups = 1 << AenqGroup.FATAL_ERROR
        self._sender = sender
        self._view = memoryview(self.region)
        self._words = self._view.cast("I")
        self._count = 0

    def set_state(self, state: CardState) -> None:
        """Show the card's state."""
        self._words[CARD_STATE_OFFSET // 4] = state

    def push(self, group: AenqGroup, *, syndrome: int = 0, data: bytes = b"") -> None:
        """Write an event, and signal it."""
        if not self.enabled_groups >> group & 1:
            return
        timestamp_us = int(time.monotonic() * 1e6)
        entry = AenqEntry(group, syndrome, timestamp_us, data)
        raw = encode_aenq(entry, phase=ring_phase(self._count, depth=AENQ_DEPTH))
        at = AENQ_OFFSET + self._count % AENQ_DEPTH * ENTRY_BYTES
        self._view[at + _PHASE_BYTES : at + ENTRY_BYTES] = raw[_PHASE_BYTES:]
        self._view[at : at + _PHASE_BYTES] = raw[:_PHASE_BYTES]
        self._count += 1
        self._sender.signal()

    def close(self) -> None:
        """Release the page; the caller closes the sender."""
        self._words.release()
        self._view.release()
        self.region.close()
