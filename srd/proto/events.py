"""What the protocol core tells its owner through `poll_event`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from srd.proto.wire.data import Address
from srd.proto.wire.status import Status


class Frag(NamedTuple):
    """A piece of a message, where it landed. A tuple, as one comes with every burst."""

    offset: int
    """In the message, bytes."""
    region_offset: int
    """In the receive region, bytes; an owner with several regions says in the upper bits which."""
    length: int


@dataclass(frozen=True, slots=True)
class PeerOpened:
    """The handshake is complete. `incoming` says that the other end began it."""

    peer: int
    address: Address
    incoming: bool


@dataclass(frozen=True, slots=True)
class PeerEnded:
    """The peer is gone; nothing follows for it. Every request still open was completed before, with a status."""

    peer: int
    status: Status
    """OK: closed in an orderly way by either end."""
    reason: str
    released: tuple[Frag, ...]
    """Pieces of messages that will never be whole: their memory may be reused."""


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """All of a message has landed."""

    peer: int
    message: int
    length: int
    immediate: int | None
    """The sender's word; None: it gave none."""
    frags: tuple[Frag, ...]
    """In order of their offset; together they are the message."""


@dataclass(frozen=True, slots=True)
class MessagesReceived:
    """Messages of one packet each that arrived together, numbered in turn."""

    peer: int
    message: int
    """The first one's number."""
    count: int
    length: int
    """Of each."""
    immediate: int | None
    """All their senders' word; None: there was none."""
    region_offset: int
    """Where the first landed in the receive region, bytes; the others lie behind it, back to back."""

    @property
    def frag(self) -> Frag:
        """The memory that they lie in, as one piece."""
        return Frag(0, self.region_offset, self.count * self.length)


@dataclass(frozen=True, slots=True)
class MessageAborted:
    """A message was given up, by its sender or here, and never will be whole: its pieces' memory may be reused."""

    peer: int
    released: tuple[Frag, ...]


@dataclass(frozen=True, slots=True)
class WriteReceived:
    """All of a write with immediate has been placed. EFA calls it unsolicited: it takes nothing of the receiver's."""

    peer: int
    length: int
    immediate: int


class PlacementHint(NamedTuple):
    """What follows in memory on a part of a write, or of an answer to a read: more, of which nothing has landed."""

    context: int
    """Of its packets."""
    message: int
    opcode: int
    offset: int
    """As their headers will say it."""
    target: int
    """Where it belongs, in the terms of the `Memory` that the core was given, which allows it."""
    length: int

    def after(self, landed_bytes: int) -> PlacementHint | None:
        """Return what is left when so much of it, or of what lies before its end, has landed; None: nothing."""
        if landed_bytes >= self.length:
            return None
        return self._replace(
            offset=self.offset + landed_bytes,
            target=self.target + landed_bytes,
            length=self.length - landed_bytes,
        )


class TargetCopy(NamedTuple):
    """An instruction: copy what landed in the receive region to registered memory. A tuple, as `Frag` is one."""

    target: int
    """Where to, in the terms of the `Memory` that the core was given."""
    region_offset: int
    """From where in the receive region, bytes."""
    length: int
    hint: PlacementHint | None = None
    """A hint where to have the next payload land, in place of all hints before; None: there is no telling."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A work request has ended."""

    peer: int
    request: int
    status: Status


@dataclass(frozen=True, slots=True)
class BatchCompletion:
    """Work requests of a batch have ended in success: `count` from `request` on."""

    peer: int
    request: int
    count: int


Event = (
    PeerOpened
    | PeerEnded
    | MessageReceived
    | MessagesReceived
    | MessageAborted
    | WriteReceived
    | Completion
    | BatchCompletion
)
