"""Transfers between this rank and another one: tensors' bytes, as pieces, over SRD's unordered messages.

1. A transfer is up to `PIECES` messages. Each carries its identity as the immediate: of a collective the number that
   all ranks count alike, a slot within it, and the piece; of a send from rank to rank the number of its envelope.
2. Up to `EAGER_BYTES` it is sent at once, from a copy, so that the sender need not wait for the acknowledgement; if it
   comes before its receiver waits for it, it is copied out of the receive region. A longer one is sent when the
   receiver has granted it, from where it lies, and lands where it belongs. So what nobody waits for never fills the
   receive region, and ranks that are ahead cannot keep those that are behind from getting what these wait for.
3. Envelopes are numbered for each link, since messages have no order, and matched by tag in the order of numbers.
4. A rank that gives up says why (farewell), so that all ranks name the one that was lost.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

import numpy as np

from srd import Message, MessageBatch, Peer, PeerError, Status
from srd.torch.group_error import GroupError
from srd.torch.memory import Block, Early, Land

EAGER_BYTES: Final = 64 << 10
"""A copy of so much costs less than the round trip of a grant."""
PIECE_BYTES: Final = 256 << 10
"""Small enough that the next rank of a ring starts early, large enough that events are few."""
PIECES: Final = 256
MAX_PIECE_BYTES: Final = 16 << 20
"""The longest message (`ProtocolConfig.max_message_bytes`)."""
SLOTS: Final = 256
SEQUENCES: Final = 1 << 14
NUMBERS: Final = 1 << 22

_PIECE_MASK: Final = PIECES - 1
_KIND_SHIFT: Final = 30
COLLECTIVE, SEND, CONTROL, ENVELOPE = range(4)
_GRANT: Final = CONTROL << _KIND_SHIFT
_FAREWELL: Final = _GRANT | 1
_ENVELOPE: Final = ENVELOPE << _KIND_SHIFT
_HEADER: Final = struct.Struct("!IiQ")  # number, tag, length; up to EAGER_BYTES of content follow

Done = Callable[[GroupError | None], None]


def identity(sequence: int, *, slot: int) -> int:
    """Return the identity of a transfer of a collective; its pieces add their number."""
    return (sequence % SEQUENCES) << 16 | slot << 8


def piece_bytes(length: int) -> int:
    """Return the length of the pieces of a transfer. Raises GroupError for one that is too long."""
    least = -(-length // PIECES)
    if least > MAX_PIECE_BYTES:
        raise GroupError(f"{length} bytes for one rank are more than {PIECES * MAX_PIECE_BYTES}; send them in parts")
    return max(PIECE_BYTES, -(-least // 64) * 64)


class Out:
    """A transfer that leaves."""

    __slots__ = ("_done", "_granted", "_left", "_link", "_ready", "block", "identity", "step_bytes")

    def __init__(self, link: Link, block: Block, *, identity: int, done: Done) -> None:
        self.block, self.identity = block, identity
        self.step_bytes = piece_bytes(block.length)
        self._link, self._done = link, done
        self._left = -(-block.length // self.step_bytes)  # pieces that are not acknowledged
        self._granted = block.length <= EAGER_BYTES
        self._ready: list[int] = []  # pieces that wait for the grant

    @property
    def pieces(self) -> int:
        """Their number, before any is acknowledged."""
        return self._left

    def ready(self, piece: int) -> None:
        """Send a piece, whose bytes stay as they are until the transfer is done."""
        if not self._granted:
            self._ready.append(piece)
            return
        start = piece * self.step_bytes
        part = self.block.part(start, min(start + self.step_bytes, self.block.length))
        if self.block.length <= EAGER_BYTES:
            self._link.post_copy(part.view, immediate=self.identity | piece)
            self.end(None)
        else:
            self._link.post(part, self, immediate=self.identity | piece)

    def granted(self) -> None:
        """Send what waits."""
        self._granted = True
        for piece in self._ready:
            self.ready(piece)
        self._ready.clear()

    def acknowledged(self) -> None:
        """Note that a piece has arrived."""
        self._left -= 1
        if not self._left:
            self.end(None)

    def end(self, error: GroupError | None) -> None:
        """Tell the owner that it is done, or has failed."""
        self._link.forget_out(self)
        done, self._done = self._done, _nothing
        done(error)


class In:
    """A transfer that arrives: `land` takes each piece, then `then` its number."""

    __slots__ = ("done", "identity", "land", "left", "length", "step_bytes", "then")

    def __init__(
        self, length: int, land: Land, *, identity: int, done: Done, then: Callable[[int], None] | None = None
    ) -> None:
        self.length, self.land, self.identity, self.done, self.then = length, land, identity, done, then
        self.step_bytes = piece_bytes(length)
        self.left = -(-length // self.step_bytes)


class Envelope:
    """What a rank sends: `content` if it came along. Without a link it is this rank's own."""

    __slots__ = ("content", "length", "link", "number", "rank", "tag")

    def __init__(self, link: Link | None, *, rank: int, tag: int, length: int, content: bytes, number: int = 0) -> None:
        self.link, self.rank, self.tag = link, rank, tag
        self.number, self.length, self.content = number, length, content

    @property
    def identity(self) -> int:
        """The identity of the transfer that follows."""
        return SEND << _KIND_SHIFT | self.number << 8


def _nothing(_: GroupError | None) -> None:
    pass


class Owner(Protocol):
    """Who has the links to all other ranks."""

    def on_envelope(self, envelope: Envelope) -> None:
        """Take what another rank sends."""

    def on_lost(self, link: Link, error: GroupError, *, is_fatal: bool) -> None:
        """The other rank is gone, or has done what none may: `is_fatal`, if that ends the whole group."""

    def on_farewell(self, reason: str) -> None:
        """Another rank has given up."""


class Link:
    """This rank's end of the transfers to and from another rank."""

    def __init__(self, peer: Peer, *, rank: int, host: str, owner: Owner) -> None:
        self.peer, self.rank, self.host = peer, rank, host
        self.error: GroupError | None = None
        self.sent_bytes = self.copied_bytes = 0
        self._owner = owner
        self._posted: dict[int, Out | memoryview] = {}  # by request
        self._outs: dict[int, Out] = {}
        self._ins: dict[int, In] = {}
        self._early: dict[int, bytes] = {}  # content of pieces that nobody waits for yet
        self._grants: set[int] = set()  # of transfers that have not begun here
        self._sent_envelopes = 0
        self._next_envelope = 0  # number of the next one to be delivered
        self._envelopes: dict[int, Envelope] = {}  # that came before it
        peer.attach(self)

    @property
    def name(self) -> str:
        """The rank and its host, for errors."""
        return f"rank {self.rank} at {self.host}"

    @property
    def awaited(self) -> bool:
        """Whether this rank waits for the other one."""
        return bool(self._ins or self._outs)

    # -- out ----------------------------------------------------------------------------------------------------------

    def begin_out(self, block: Block, *, identity: int, done: Done) -> Out:
        """Begin to send a transfer, whose pieces are to be made `ready`."""
        out = Out(self, block, identity=identity, done=done)
        if self.error is not None:
            out.end(self.error)
        elif not block.length:
            out.end(None)
        else:
            self._outs[identity] = out
            if identity in self._grants:
                self._grants.discard(identity)
                out.granted()
        return out

    def send(self, block: Block, *, tag: int, done: Done) -> None:
        """Send a tensor's bytes to whoever receives with this tag."""
        if self.error is not None:
            done(self.error)
            return
        number = self._sent_envelopes % NUMBERS
        self._sent_envelopes += 1
        header = _HEADER.pack(number, tag, block.length)
        if block.length <= EAGER_BYTES:
            content = block.view if block.length else b""
            self.post_copy(b"".join((header, content)), immediate=_ENVELOPE)
            done(None)
            return
        self.post_copy(header, immediate=_ENVELOPE)
        out = self.begin_out(block, identity=SEND << _KIND_SHIFT | number << 8, done=done)
        for piece in range(out.pieces):
            out.ready(piece)

    def post(self, block: Block, out: Out, *, immediate: int) -> None:
        """Send a piece from where it lies."""
        try:
            request = self.peer.post(block.address, length=block.length, immediate=immediate)
        except PeerError:  # `on_ended` follows
            return
        self._posted[request] = out
        self.sent_bytes += block.length

    def post_copy(self, content: bytes | memoryview, *, immediate: int) -> None:
        """Send a copy of a few bytes."""
        kept = np.frombuffer(bytearray(content), np.uint8)
        with suppress(PeerError):  # `on_ended` follows
            request = self.peer.post(int(kept.ctypes.data), length=len(kept), immediate=immediate)
            self._posted[request] = kept.data
            self.sent_bytes += len(kept)
            self.copied_bytes += len(kept)

    def forget_out(self, out: Out) -> None:
        """Note that a transfer has ended."""
        self._outs.pop(out.identity, None)

    def say_farewell(self, reason: str) -> None:
        """Tell the other rank why this one gives up."""
        if self.error is None:
            self.post_copy(reason.encode()[:EAGER_BYTES], immediate=_FAREWELL)

    # -- in -----------------------------------------------------------------------------------------------------------

    def begin_in(self, transfer: In) -> int | None:
        """Wait for a transfer; return its identity if it is to be granted."""
        if not transfer.length:
            transfer.done(None)
            return None
        if self._early and (early := self._early.pop(transfer.identity, None)) is not None:
            self._ins[transfer.identity] = transfer
            self._land(transfer, 0, Early(early))
            return None
        if self.error is not None:
            transfer.done(self.error)
            return None
        self._ins[transfer.identity] = transfer
        return transfer.identity if transfer.length > EAGER_BYTES else None

    def grant(self, identities: list[int]) -> None:
        """Let the other rank send these transfers."""
        if identities:
            self.post_copy(np.array(identities, ">u4").tobytes(), immediate=_GRANT)

    def receive(self, envelope: Envelope, block: Block, *, done: Done) -> None:
        """Receive what an envelope announces, and has not brought along."""
        transfer = In(block.length, block.land, identity=envelope.identity, done=done)
        if (granted := self.begin_in(transfer)) is not None:
            self.grant([granted])

    def _land(self, transfer: In, piece: int, arrived: Message | Early) -> None:
        start = piece * transfer.step_bytes
        if arrived.length != min(transfer.step_bytes, transfer.length - start):
            raise GroupError(
                f"{self.name} sent {arrived.length} bytes where this rank waits for {transfer.length}: "
                "the ranks have called different collectives, or with different shapes"
            )
        transfer.land(start, arrived)
        transfer.left -= 1
        if not transfer.left:
            del self._ins[transfer.identity]
        if transfer.then is not None:
            transfer.then(piece)
        if not transfer.left:
            transfer.done(None)

    # -- what the peer tells ------------------------------------------------------------------------------------------

    def on_message(self, message: Message | MessageBatch) -> None:
        """Take a message, or several that arrived together."""
        if isinstance(message, Message):
            self._take(message)
            return
        left = True
        while left:
            single, left = message.take()
            self._take(single)

    def _take(self, message: Message) -> None:
        with message:
            try:
                self._take_untrusted(message)
            except (GroupError, struct.error, ValueError) as error:
                self._owner.on_lost(self, GroupError(str(error)), is_fatal=True)

    def _take_untrusted(self, message: Message) -> None:
        immediate = message.immediate
        if immediate is None:
            raise GroupError(f"{self.name} sent a message without an immediate: it is no rank of this version")
        kind = immediate >> _KIND_SHIFT
        if kind in {COLLECTIVE, SEND}:
            transfer = self._ins.get(immediate & ~_PIECE_MASK)
            if transfer is not None:
                self._land(transfer, immediate & _PIECE_MASK, message)
            elif kind == COLLECTIVE and message.length <= EAGER_BYTES and not immediate & _PIECE_MASK:
                self._early[immediate] = message.gather()
                self.copied_bytes += message.length
            else:
                raise GroupError(f"{self.name} sent {message.length} bytes that nobody asked for")
        elif kind == ENVELOPE:
            self._take_envelope(message.gather())
        elif immediate == _GRANT:
            for granted in np.frombuffer(message.gather(), ">u4").tolist():
                if (out := self._outs.get(granted)) is not None:
                    out.granted()
                else:
                    self._grants.add(granted)
        else:
            self._owner.on_farewell(message.gather().decode(errors="replace"))

    def _take_envelope(self, content: bytes) -> None:
        number, tag, length = _HEADER.unpack_from(content)
        content = content[_HEADER.size :]
        if len(content) != (length if length <= EAGER_BYTES else 0):
            raise GroupError(f"{self.name} announced {length} bytes, and sent {len(content)}")
        self._envelopes[number] = Envelope(self, rank=self.rank, number=number, tag=tag, length=length, content=content)
        while (envelope := self._envelopes.pop(self._next_envelope, None)) is not None:
            self._next_envelope = (self._next_envelope + 1) % NUMBERS
            self._owner.on_envelope(envelope)

    def on_completion(self, request: int, *, status: Status) -> None:
        """Note that a message has arrived, or will not."""
        posted = self._posted.pop(request, None)
        if isinstance(posted, Out) and status is Status.OK:
            posted.acknowledged()
        elif status not in {Status.OK, Status.FLUSHED} and not self.peer.ended:
            self._owner.on_lost(self, GroupError(f"{self.name}: a message failed: {status.name}"), is_fatal=True)

    def on_ended(self) -> None:
        """Note that the other rank has left, or is lost."""
        error = self.peer.error()
        left = error.status is Status.OK
        what = "has left the group" if left else f"is lost: {str(error).split(': ', 1)[-1]}"
        self._owner.on_lost(self, GroupError(f"{self.name} {what}"), is_fatal=not left)

    def fail(self, error: GroupError) -> None:
        """End every transfer with an error."""
        if self.error is not None:
            return
        self.error = error
        for out in list(self._outs.values()):
            out.end(error)
        ins, self._ins = list(self._ins.values()), {}
        for transfer in ins:
            transfer.done(error)
