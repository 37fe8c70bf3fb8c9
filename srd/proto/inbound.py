"""Messages on their way in: which parts have landed, and which messages were given up by their sender."""

from __future__ import annotations

from dataclasses import dataclass, field

from srd.proto.events import Frag
from srd.proto.seqset import ranges
from srd.proto.wire import IMMEDIATE, OPCODE_BITS, VOID, Opcode, Run

_SEND = int(Opcode.SEND)


@dataclass(slots=True)
class Inbound:
    """A message of which some has landed."""

    length: int
    immediate: int
    began_at: float = 0.0
    """When the first of it landed."""
    landed_at: float = 0.0
    """When some of it landed last."""
    landed_bytes: int = 0
    frags: list[Frag] = field(default_factory=list)
    """A send's; what goes to registered memory leaves nothing behind."""
    flags: int = 0
    high: int = 0
    """Of what goes to registered memory: end of what has landed, as its headers say offsets."""

    def tile(self) -> bool:
        """Sort the frags; return whether they are the message, no more and no less."""
        self.frags.sort(key=lambda frag: frag.offset)
        at = 0
        for frag in self.frags:
            if frag.offset != at:
                return False
            at += frag.length
        return at == self.length

    @property
    def credit_bytes(self) -> int:
        """What it takes of the memory for messages."""
        return self.length if self.flags & OPCODE_BITS == _SEND else 0

    @property
    def word(self) -> int | None:
        """The sender's immediate, if it gave one."""
        return self.immediate if self.flags & IMMEDIATE else None

    def contradicted_by(self, run: Run) -> str:
        """Return what a run of the same message says that cannot be; empty: nothing."""
        if run.length != self.length:
            return f"message {run.message} is said to have {run.length} and {self.length} bytes"
        if run.flags & ~VOID != self.flags:
            return f"message {run.message} is said to have flags {run.flags} and {self.flags}"
        return ""


def new_parts(run: Run, *, new: int) -> list[Frag]:
    """Return the parts of a run whose bits are set in `new` as pieces of memory; the empty ones are none."""
    frags = []
    for first, count in ranges(new):
        start = first * run.segment_bytes
        end = min((first + count) * run.segment_bytes, run.payload_bytes)
        if end > start:
            frags.append(Frag(run.offset + start, run.payload_offset + start, end - start))
    return frags
