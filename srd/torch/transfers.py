"""Transfers between this rank and another one: tensors' bytes, as pieces, over SRD's unordered messages.

1. A transfer is up to `PIECES` messages. Each carries its identity as the immediate: of a collective the number that
   all ranks count alike, a slot within it, and the piece; of a send from rank to rank the number of its envelope.
2. Up to `EAGER_BYTES` it is sent at once, from a copy, so that the sender need not wait for the acknowledgement; if it
   comes before its receiver waits for it, it is copied out of the receive region. A longer one is sent when the
   receiver has granted it, from where it lies, and lands where it belongs. So what nobody waits for never fills the
   receive region, and ranks that are ahead cannot keep those that are behind from getting what these wait for.
3. A grant may name registered memory (`srd.torch.registered`): the transfer is then written there, in one go where its
   receiver passes nothing on. A write of all pieces, or of one, has their immediate, too.
4. What was sent at once and is not used yet counts against a window of `EAGER_WINDOW_BYTES` of its link, one for
   collectives and one for sends. The receiver gives the room back in halves (taken). Without room a collective waits; a
   send is only announced, and granted when it is received.
5. Envelopes are numbered for each link, since messages have no order, and matched by tag in the order of numbers.
6. A rank that gives up says why (farewell), so that all ranks name the one that was lost.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

import numpy as np

from netns.base.printable import printable
from srd import Message, MessageBatch, Peer, PeerError, Status, WriteNotification
from srd.torch.group_error import GroupError
from srd.torch.memory import Block, Early, Land
from srd.torch.registered import TARGET

EAGER_BYTES: Final = 64 << 10
"""A copy of so much costs less than the round trip of a grant."""
EAGER_WINDOW_BYTES: Final = 1 << 20
"""What a rank may keep for another one that is ahead of it: sixteen of the longest, a thousand of the shortest."""
LEAST_BYTES: Final = 1 << 10
"""What the shortest counts as: about what the objects around it take."""
PIECE_BYTES: Final = 1 << 20
"""Large enough that events are few (16 MiB between two ranks: 18 ms of CPU time in pieces of 256 KiB, 13 in these),
small enough that the next rank of a ring starts early."""
PIECES: Final = 256
MAX_PIECE_BYTES: Final = 16 << 20
"""The longest message (`ProtocolConfig.max_message_bytes`)."""
MAX_WRITE_BYTES: Final = 1 << 30
"""The longest write of SRD."""
MAX_OFFSET: Final = 1 << 62
"""Into registered memory: no region is as long, and no end of a transfer exceeds 64 bits."""
SLOTS: Final = 256
SEQUENCES: Final = 1 << 14
NUMBERS: Final = 1 << 22
MAX_ANNOUNCED: Final = 1 << 16
"""Sends of another rank that nobody has received yet: each takes some 200 bytes, and no window counts it."""
MAX_GRANTS: Final = 8 * SLOTS
"""Transfers that another rank may wait for before this one begins them: those of the collective that it has come to, or
of as many parts of one as a stage has slots."""
MAX_REASON_BYTES: Final = 16 << 10
"""Of what a rank says when it gives up: it may name all others."""

_PIECE_MASK: Final = PIECES - 1
_KIND_SHIFT: Final = 30
COLLECTIVE, SEND, CONTROL, ENVELOPE = range(4)
_GRANT: Final = CONTROL << _KIND_SHIFT
_FAREWELL: Final = _GRANT | 1
_TAKEN: Final = _GRANT | 2
_ENVELOPE: Final = ENVELOPE << _KIND_SHIFT
_HEADER: Final = struct.Struct("!Ii?Q")  # number, tag, whether the content follows, its length
_GRANTED: Final = struct.Struct("!I?")  # identity, whether it may be one write; a `TARGET` follows, with key 0 for none
_ROOM: Final = struct.Struct("!II")  # bytes of the windows of collectives and of sends
_WINDOWS: Final = {COLLECTIVE: 0, SEND: 1}
_NOWHERE: Final = bytes(TARGET.size)

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


def window_bytes(length: int) -> int:
    """Return what a message of this length takes of a window."""
    return max(length, LEAST_BYTES)


class WriteTarget(NamedTuple):
    """Where the other rank wants a transfer written."""

    key: int
    offset: int
    is_whole: bool
    """Whether it may be one write."""


class Out:
    """A transfer that leaves: `is_eager`, at once, from a copy."""

    __slots__ = (
        "_done",
        "_granted",
        "_left",
        "_link",
        "_ready",
        "_target",
        "block",
        "identity",
        "is_eager",
        "step_bytes",
    )

    def __init__(self, link: RankLink, block: Block, *, identity: int, is_eager: bool, done: Done) -> None:
        self.block, self.identity, self.is_eager = block, identity, is_eager
        self.step_bytes = piece_bytes(block.length)
        self._link, self._done = link, done
        self._left = -(-block.length // self.step_bytes)  # pieces that are not acknowledged
        self._granted = is_eager
        self._target: WriteTarget | None = None
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
        if self.is_eager:
            self._link.send_eager(self)
            return
        start = piece * self.step_bytes
        part = self.block.part(start, min(start + self.step_bytes, self.block.length))
        self._link.post(part, self, target=self._target, offset=start, immediate=self.identity | piece)

    def granted(self, target: WriteTarget | None) -> None:
        """Send what waits."""
        self._granted, self._target = True, target
        if not self.block.length:
            self.end(None)
        elif target is not None and target.is_whole and len(self._ready) == self._left:
            self._left = 1
            self._link.post(self.block, self, target=target, offset=0, immediate=self.identity)
        else:
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
    """A transfer that arrives in `block`, or whose pieces `land` takes; `then` is called with the number of each."""

    __slots__ = ("block", "done", "identity", "is_kept", "land", "length", "missing", "step_bytes", "then")

    def __init__(
        self,
        block: Block,
        *,
        identity: int,
        done: Done,
        land: Land | None = None,
        then: Callable[[int], None] | None = None,
    ) -> None:
        self.block, self.length, self.is_kept = block, block.length, land is None
        self.land = land or block.land
        self.identity, self.done, self.then = identity, done, then
        self.step_bytes = piece_bytes(self.length)
        self.missing = set(range(-(-self.length // self.step_bytes)))

    def bytes_of(self, piece: int) -> int:
        """Return the length of a piece."""
        return min(self.step_bytes, self.length - piece * self.step_bytes)


class Envelope:
    """What a rank sends: its content, or None if it is to be granted. Without a link it is this rank's own."""

    __slots__ = ("content", "length", "link", "number", "rank", "tag")

    def __init__(
        self, link: RankLink | None, *, rank: int, tag: int, length: int, content: bytes | None, number: int = 0
    ) -> None:
        self.link, self.rank, self.tag = link, rank, tag
        self.number, self.length, self.content = number, length, content

    @property
    def identity(self) -> int:
        """The identity of the transfer that follows."""
        return SEND << _KIND_SHIFT | self.number << 8


def _nothing(_: GroupError | None) -> None:
    pass


class LinkOwner(Protocol):
    """Who has the links to all other ranks."""

    def on_envelope(self, envelope: Envelope) -> None:
        """Take what another rank sends."""

    def target(self, block: Block) -> bytes:
        """Return where in registered memory a block lies, as a `TARGET`; empty: it does not."""

    def on_lost(self, link: RankLink, error: GroupError, *, is_fatal: bool) -> None:
        """The other rank is gone, or has done what none may: `is_fatal`, if that ends the whole group."""

    def on_farewell(self, reason: str) -> None:
        """Another rank has given up."""


class RankLink:
    """This rank's end of the transfers to and from another rank."""

    def __init__(self, peer: Peer, *, rank: int, host: str, owner: LinkOwner) -> None:
        self.peer, self.rank, self.host = peer, rank, host
        self.error: GroupError | None = None
        self.sent_bytes = self.copied_bytes = 0
        self.written_bytes = 0  # by the other rank, to this one's registered memory
        self._owner = owner
        self._posted: dict[int, Out | memoryview] = {}  # by request
        self._outs: dict[int, Out] = {}
        self._ins: dict[int, In] = {}
        self._early: dict[int, bytes] = {}  # content of pieces that nobody waits for yet
        self._grants: dict[int, WriteTarget | None] = {}  # of transfers that have not begun here
        self._room = [EAGER_WINDOW_BYTES, EAGER_WINDOW_BYTES]  # of the windows, at the other end
        self._used = [0, 0]  # of the windows, at this end
        self._owed = [0, 0]  # of that: room that is to be given back
        self._held: deque[tuple[Out, bytes]] = deque()  # transfers of collectives that wait for room
        self._sent_envelopes = 0
        self._next_envelope = 0  # number of the next one to be delivered
        self._envelopes: dict[int, Envelope] = {}  # that came before it
        self._announced = 0  # that were delivered, and nobody has received
        peer.attach(self, on_write=self._on_write)

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
        """Begin to send a transfer of a collective, whose pieces are to be made `ready`."""
        out = Out(self, block, identity=identity, is_eager=block.length <= EAGER_BYTES, done=done)
        if self.error is not None:
            out.end(self.error)
        elif not block.length:
            out.end(None)
        else:
            self._outs[identity] = out
            if identity in self._grants:
                out.granted(self._grants.pop(identity))
        return out

    def send(self, block: Block, *, tag: int, done: Done) -> None:
        """Send a tensor's bytes to whoever receives with this tag."""
        if self.error is not None:
            done(self.error)
            return
        number = self._sent_envelopes % NUMBERS
        self._sent_envelopes += 1
        follows = block.length <= EAGER_BYTES and self._takes_room(SEND, block.length)
        header = _HEADER.pack(number, tag, follows, block.length)
        if follows:
            self.post_copy(b"".join((header, block.view)) if block.length else header, immediate=_ENVELOPE)
            done(None)
            return
        self.post_copy(header, immediate=_ENVELOPE)
        out = Out(self, block, identity=SEND << _KIND_SHIFT | number << 8, is_eager=False, done=done)
        self._outs[out.identity] = out
        for piece in range(out.pieces):
            out.ready(piece)

    def _takes_room(self, kind: int, length: int) -> bool:
        """Take the room for a message in a window of the other end, if there is as much."""
        window = _WINDOWS[kind]
        if self._room[window] < window_bytes(length):
            return False
        self._room[window] -= window_bytes(length)
        return True

    def send_eager(self, out: Out) -> None:
        """Send a transfer of a collective at once, or when there is room. It is copied now."""
        if self._held or not self._takes_room(COLLECTIVE, out.block.length):
            self._held.append((out, bytes(out.block.view)))
        else:
            self.post_copy(out.block.view, immediate=out.identity)
            out.end(None)

    def _give_room(self, collectives: int, sends: int) -> None:
        """Note that the other rank has used what it kept, and send what waits."""
        self._room = [self._room[0] + collectives, self._room[1] + sends]
        if max(self._room) > EAGER_WINDOW_BYTES:
            raise GroupError(f"{self.name} gives back more room than it had")
        while self._held and self._takes_room(COLLECTIVE, self._held[0][0].block.length):
            out, content = self._held.popleft()
            self.post_copy(content, immediate=out.identity)
            out.end(None)

    def post(self, block: Block, out: Out, *, target: WriteTarget | None, offset: int, immediate: int) -> None:
        """Send a part of a transfer from where it lies, or write it to its place in the target."""
        try:
            if target is None:
                request = self.peer.post(block.address, length=block.length, immediate=immediate)
            else:
                at = target.offset + offset
                request = self.peer.write(
                    block.address, length=block.length, key=target.key, target_offset=at, immediate=immediate
                )
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
            self.post_copy(reason.encode()[:MAX_REASON_BYTES], immediate=_FAREWELL)

    # -- in -----------------------------------------------------------------------------------------------------------

    def begin_in(self, transfer: In) -> bytes:
        """Wait for a transfer of a collective; return what grants it, if that is to be sent."""
        if not transfer.length:
            transfer.done(None)
            return b""
        if self._early and (early := self._early.pop(transfer.identity, None)) is not None:
            self._ins[transfer.identity] = transfer
            self._return_room(COLLECTIVE, transfer.length)
            self._land(transfer, 0, Early(early))
            return b""
        if self.error is not None:
            transfer.done(self.error)
            return b""
        self._ins[transfer.identity] = transfer
        return self._grant_of(transfer) if transfer.length > EAGER_BYTES else b""

    def _grant_of(self, transfer: In) -> bytes:
        target = self._owner.target(transfer.block) if transfer.is_kept and transfer.length else b""
        is_whole = transfer.then is None and transfer.length <= MAX_WRITE_BYTES
        return _GRANTED.pack(transfer.identity, is_whole) + (target or _NOWHERE)

    def grant(self, grants: list[bytes]) -> None:
        """Let the other rank send these transfers."""
        if grants:
            self.post_copy(b"".join(grants), immediate=_GRANT)

    def receive(self, envelope: Envelope, block: Block, *, done: Done) -> None:
        """Receive what an envelope announces, or has brought along."""
        self._announced -= 1
        if envelope.content is not None:
            self._return_room(SEND, envelope.length)
            if block.length:
                block.view[:] = envelope.content
            done(None)
        elif self.error is not None:
            done(self.error)
        else:
            transfer = In(block, identity=envelope.identity, done=done)
            if transfer.length:
                self._ins[transfer.identity] = transfer
            self.grant([self._grant_of(transfer)])
            if not transfer.length:
                done(None)

    def drop(self, envelope: Envelope) -> None:
        """Forget an envelope that is received into what it does not fit."""
        self._announced -= 1
        if envelope.content is not None:
            self._return_room(SEND, envelope.length)

    @property
    def kept_bytes(self) -> int:
        """What it keeps that nobody waits for yet, as it counts against the windows."""
        return sum(self._used) - sum(self._owed)

    def _use_room(self, kind: int, length: int) -> None:
        window = _WINDOWS[kind]
        self._used[window] += window_bytes(length)
        if self._used[window] > EAGER_WINDOW_BYTES:
            raise GroupError(f"{self.name} sends more than it has room for here")

    def _return_room(self, kind: int, length: int) -> None:
        window = _WINDOWS[kind]
        self._owed[window] += window_bytes(length)
        if self._owed[window] >= EAGER_WINDOW_BYTES // 2:
            self._used = [used - owed for used, owed in zip(self._used, self._owed, strict=True)]
            self.post_copy(_ROOM.pack(*self._owed), immediate=_TAKEN)
            self._owed = [0, 0]

    def _land(self, transfer: In, piece: int, arrived: Message | Early) -> None:
        self._check_piece(transfer, piece, length=arrived.length)
        transfer.land(piece * transfer.step_bytes, arrived)
        self._landed(transfer, [piece])

    def _check_piece(self, transfer: In, piece: int, *, length: int) -> None:
        """Raise GroupError unless a piece of this length is one that has not come."""
        if piece not in transfer.missing or length != transfer.bytes_of(piece):
            raise self._unlike(length, transfer)

    def _unlike(self, length: int, transfer: In) -> GroupError:
        return GroupError(
            f"{self.name} sent {length} bytes where this rank waits for {transfer.length}: "
            "the ranks have called different collectives, or with different shapes"
        )

    def _landed(self, transfer: In, pieces: Iterable[int]) -> None:
        for piece in pieces:
            transfer.missing.remove(piece)
            if not transfer.missing:
                del self._ins[transfer.identity]
            if transfer.then is not None:
                transfer.then(piece)
        if not transfer.missing:
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

    def _on_write(self, written: WriteNotification) -> None:
        try:
            self._take_write_untrusted(written.length, written.immediate)
        except GroupError as error:
            self._owner.on_lost(self, error, is_fatal=True)

    def _take_write_untrusted(self, length: int, immediate: int) -> None:
        piece = immediate & _PIECE_MASK
        transfer = self._ins.get(immediate & ~_PIECE_MASK)
        if transfer is None or not transfer.is_kept:
            raise GroupError(f"{self.name} wrote {length} bytes that nobody asked for")
        self.written_bytes += length
        if length == transfer.length and not piece:
            self._landed(transfer, sorted(transfer.missing))
        else:
            self._check_piece(transfer, piece, length=length)
            self._landed(transfer, [piece])

    def _take_untrusted(self, message: Message) -> None:
        immediate = message.immediate
        if immediate is None:
            raise GroupError(f"{self.name} sent a message without an immediate: it is no rank of this version")
        kind = immediate >> _KIND_SHIFT
        if kind in {COLLECTIVE, SEND}:
            self._take_piece(message, immediate)
        elif kind == ENVELOPE:
            self._take_envelope(message.gather())
        elif immediate == _GRANT:
            self._take_grants(message.gather())
        elif immediate == _TAKEN:
            self._give_room(*_ROOM.unpack(message.gather()))
        elif immediate == _FAREWELL:
            self._owner.on_farewell(printable(message.gather()[:MAX_REASON_BYTES].decode(errors="replace")))

    def _take_piece(self, message: Message, immediate: int) -> None:
        transfer = self._ins.get(immediate & ~_PIECE_MASK)
        is_eager = immediate >> _KIND_SHIFT == COLLECTIVE and message.length <= EAGER_BYTES
        if is_eager and (transfer is None or transfer.length <= EAGER_BYTES):
            self._use_room(COLLECTIVE, message.length)
        if transfer is not None:
            if transfer.length <= EAGER_BYTES and is_eager:
                self._return_room(COLLECTIVE, message.length)
            self._land(transfer, immediate & _PIECE_MASK, message)
        elif is_eager and not immediate & _PIECE_MASK:
            self._early[immediate] = message.gather()
            self.copied_bytes += message.length
        else:
            raise GroupError(f"{self.name} sent {message.length} bytes that nobody asked for")

    def _take_grants(self, content: bytes) -> None:
        for at in range(0, len(content), _GRANTED.size + TARGET.size):
            granted, is_whole = _GRANTED.unpack_from(content, at)
            key, offset = TARGET.unpack_from(content, at + _GRANTED.size)
            if offset > MAX_OFFSET:
                raise GroupError(f"{self.name} grants a write to offset {offset}, where no memory is")
            target = WriteTarget(key, offset, is_whole) if key else None
            if (out := self._outs.get(granted)) is not None:
                out.granted(target)
            elif len(self._grants) < MAX_GRANTS:
                self._grants[granted] = target
            else:
                raise GroupError(f"{self.name} grants transfers that this rank does not begin")

    def _take_envelope(self, content: bytes) -> None:
        number, tag, follows, length = _HEADER.unpack_from(content)
        content = content[_HEADER.size :]
        if len(content) != (length if follows else 0):
            raise GroupError(f"{self.name} announced {length} bytes, and sent {len(content)}")
        ahead = self._announced + (number - self._next_envelope) % NUMBERS
        if number >= NUMBERS or number in self._envelopes or ahead >= MAX_ANNOUNCED:
            raise GroupError(f"{self.name} has {MAX_ANNOUNCED} sends that nobody has received, or numbers them wrongly")
        if follows:
            self._use_room(SEND, length)
        self._envelopes[number] = Envelope(
            self, rank=self.rank, number=number, tag=tag, length=length, content=content if follows else None
        )
        while (envelope := self._envelopes.pop(self._next_envelope, None)) is not None:
            self._next_envelope = (self._next_envelope + 1) % NUMBERS
            self._announced += 1
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
        self._held.clear()
        for out in list(self._outs.values()):
            out.end(error)
        ins, self._ins = list(self._ins.values()), {}
        for transfer in ins:
            transfer.done(error)
