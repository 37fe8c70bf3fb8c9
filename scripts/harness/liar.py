"""A peer that was let in and lies: authentic packets, single and in segment trains, of which any field may be a lie.

About whose packet it is, and which (version, type, key phase, path, path sequence, context): only in a train, whose
first packet is honest, as a receiver finds the keys by the first. About its own messages: PSN, message number, length,
offset, key, flags, immediate. And in every control packet: credit, acks of what was never sent, reports of paths,
contexts that are another's, answers to what was not asked, limits.

Of others it knows what is readable in their data (`Overheard`). In plain text it lies about itself only: there, whoever
reads contexts can speak as anybody.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final, NamedTuple

from scripts.harness.rogue import RoguePeer
from srd.proto.base.errors import PacketError
from srd.proto.wire.control import (
    Ack,
    Close,
    Closed,
    Inner,
    Nack,
    PathChallenge,
    PathReport,
    PathResponse,
    Probe,
    Pull,
    PullRequest,
    Reset,
)
from srd.proto.wire.data import ABORTED, HEADER_BYTES, IMMEDIATE, VERSION, WITH_ACK, Opcode, PacketType
from srd.proto.wire.protected import KEY_PHASE, TAG_BYTES

MAX_TRAIN_PACKETS: Final = 40
MAX_TRAIN_BYTES: Final = 60_000
WINDOW_PACKETS: Final = 32_768
"""The default window of PSNs: how far ahead of another's PSN a lie may be, and count."""
MAX_AHEAD: Final = 1000
"""PSNs that may be missing before this peer goes back to the first of them."""
EDGES: Final = (0, 1, 2, 63, 64, 127, 128, 255, 1 << 15, (1 << 16) - 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
"""Values for fields: both limits of every width, the limits of the protocol, and their neighbours."""
WIDE_EDGES: Final = (*EDGES, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
_HEADER: Final = struct.Struct(">BBBBIQQIIIIQQ")
FLAGS: Final = (*Opcode, *(flag | extra for flag in Opcode for extra in (IMMEDIATE, ABORTED)), 0x20, 0x7F)


@dataclass(slots=True)
class Fields:
    context: int
    version: int = VERSION
    type: int = PacketType.DATA
    flags: int = 0
    path: int = 0
    path_sequence: int = 0
    psn: int = 0
    sent_us: int = 0
    message: int = 0
    length: int = 0
    immediate: int = 0
    offset: int = 0
    key: int = 0

    def encode(self) -> bytes:
        """Return the header, of each field the bits that fit."""
        u32, u64 = (1 << 32) - 1, (1 << 64) - 1
        return _HEADER.pack(
            self.version, self.type, self.flags & 0xFF, self.path & 0xFF, self.path_sequence & u32, self.context & u64,
            self.psn & u64, self.sent_us & u32, self.message & u32, self.length & u32, self.immediate & u32,
            self.offset & u64, self.key & u64,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Overheard:
    """What the data of another peer tells whoever sees it."""

    context: int
    """Its receiver's."""
    psn: int = 0
    """One that was sent lately, or is sent soon."""
    message: int = 0
    key: int = 0
    remote_context: int = 0
    """Its sender's; 0: unknown."""


class Lie(NamedTuple):
    """What is sent: a datagram, or a train of them."""

    kind: str
    data: bytes
    segment_bytes: int = 0
    """Of each datagram but the last; 0: it is one datagram."""


class Liar:
    """Makes the packets of one peer that was let in."""

    def __init__(
        self,
        rogue: RoguePeer,
        *,
        rng: Random,
        overheard: Callable[[], Sequence[Overheard]] = tuple,
        first_psn: int = 0,
    ) -> None:
        """`overheard`: what is known of other peers now; `first_psn`: of this peer, in both directions."""
        self.rogue = rogue
        self._rng = rng
        self._overheard = overheard
        self._psn = self._first_psn = first_psn
        self._makers: dict[str, Callable[[], Lie]] = {
            "truth": self._truth,
            "whose": self._whose,
            "which": self._which,
            "message": self._message,
            "ack": self._ack,
            "with_ack": self._with_ack,
            "control": self._control,
            "keys": self._keys,
        }

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(self._makers)

    def next(self, kind: str = "") -> Lie:
        return self._makers[kind or self._rng.choice(self.kinds)]()

    def hear_untrusted(self, data: bytes) -> bool:
        """Process a reply; return whether the peer has ended. What was not received for long is said again."""
        try:
            packet = self.rogue.open_untrusted(data)
        except PacketError:
            return False
        if isinstance(packet, Ack) and self._psn - packet.cumulative > MAX_AHEAD:
            self._psn = packet.cumulative
        its = getattr(packet, "own_context", None) == self.rogue.context
        return its and isinstance(packet, Close | Closed | Reset)

    # -- data ---------------------------------------------------------------------------------------------------------

    def _next(self, *, size_bytes: int, path: int, index: int) -> Fields:
        """Return the header of an honest message of one packet, the next of this peer, as packet `index` of a train."""
        sequence, psn = self.rogue.path_sequence + index, self._psn
        return Fields(self.rogue.context, path=path, path_sequence=sequence, psn=psn, message=psn, length=size_bytes)

    def _train(self, lie: Callable[[Fields], None], *, kind: str, liars: float) -> Lie:
        """Return a train whose first packet is honest, and of the others a share has a lie."""
        rng = self._rng
        size_bytes = rng.choice((1, 16, 64, 200, 200, 1000, self._full_bytes))
        whole = HEADER_BYTES + size_bytes + TAG_BYTES * self.rogue.is_secure
        count = rng.choice((2, 3, 7, 16, 17, 30, MAX_TRAIN_PACKETS))
        count, path = max(min(count, MAX_TRAIN_BYTES // whole), 2), rng.randrange(4)
        packets = list[bytes]()
        for index in range(count):
            fields = self._next(size_bytes=size_bytes, path=path, index=index)
            if index and rng.random() < liars:
                lie(fields)
            else:
                self._psn += 1
            packets.append(fields.encode() + rng.randbytes(size_bytes))
        if rng.random() < 0.2:
            packets[-1] = packets[-1][: HEADER_BYTES + rng.randrange(size_bytes)]
        return Lie(kind, self.rogue.seal_train(packets, path=path), whole)

    @property
    def _full_bytes(self) -> int:
        return min(self.rogue.datagram_bytes, 9000) - HEADER_BYTES

    def _truth(self) -> Lie:
        """Return messages that are right: a peer that only lies is soon known, or out of its window."""
        return self._train(lambda _fields: None, kind="truth", liars=0.0)

    def _whose(self) -> Lie:
        """Say in a train that packets of it are another peer's."""
        others = self._overheard() if self.rogue.is_secure else ()
        if not others:
            return self._which()

        def lie(fields: Fields) -> None:
            rng, other = self._rng, self._rng.choice(others)
            ahead = rng.choice((0, 0, 1, 2, 5, rng.randrange(100), rng.randrange(WINDOW_PACKETS)))
            fields.context, fields.psn, fields.message = other.context, other.psn + ahead, other.message + ahead
            fields.flags = rng.choice((0, 0, 0, IMMEDIATE, Opcode.WRITE, Opcode.READ, Opcode.RESPONSE, ABORTED))
            fields.key = other.key if fields.flags else 0
            if fields.flags & ABORTED:
                fields.offset = fields.psn + 1

        return self._train(lie, kind="whose", liars=self._rng.choice((0.3, 1.0)))

    def _which(self) -> Lie:
        """Say in a train that a packet of it is another one: of another path, number, type, version or key phase."""

        def lie(fields: Fields) -> None:
            rng = self._rng
            match rng.randrange(5):
                case 0:
                    fields.path = rng.choice((0, 1, 31, 63, 127, 128, 255))
                case 1:
                    fields.path_sequence += rng.choice((-1, 1, 100, 1 << 31, rng.getrandbits(32)))
                case 2:
                    fields.type = rng.choice((*PacketType, 0, 99, 255))
                case 3:
                    fields.version = rng.randrange(256)
                case _:
                    fields.flags ^= KEY_PHASE

        return self._train(lie, kind="which", liars=self._rng.choice((0.1, 0.5)))

    def _message(self) -> Lie:
        """Say something wrong about a message of its own, in a train or in one packet."""

        def lie(fields: Fields) -> None:
            for _ in range(self._rng.choice((1, 1, 2, 4))):
                self._lie_of_message(fields)

        if self._rng.random() < 0.5:
            return self._train(lie, kind="message", liars=self._rng.choice((0.2, 1.0)))
        size_bytes = self._rng.choice((0, 1, 64, self._full_bytes))
        fields = self._next(size_bytes=size_bytes, path=self._rng.randrange(4), index=0)
        lie(fields)
        return Lie("message", self.rogue.seal(fields.encode() + bytes(size_bytes)))

    def _lie_of_message(self, fields: Fields) -> None:
        rng, others = self._rng, self._overheard() if self.rogue.is_secure else ()
        keys = [other.key for other in others]
        match rng.randrange(7):
            case 0:
                ahead = rng.choice((-1, -100, 1, 3, 2000, WINDOW_PACKETS - 1, WINDOW_PACKETS, WINDOW_PACKETS + 1))
                fields.psn = rng.choice((fields.psn + ahead, *WIDE_EDGES))
            case 1:
                fields.message = rng.choice((fields.message - 1, fields.message + 1, *EDGES))
            case 2:
                full = self._full_bytes
                fields.length = rng.choice((fields.length + 1, 2 * full, 3 * full, 1 << 20, 1 << 24, 1 << 30, *EDGES))
            case 3:
                fields.offset = rng.choice((self._full_bytes, 2 * self._full_bytes, fields.length, *WIDE_EDGES))
            case 4:
                fields.key = rng.choice((rng.getrandbits(64), *WIDE_EDGES, *keys))
            case 5:
                fields.flags = rng.choice(FLAGS)
            case _:
                fields.immediate, fields.sent_us = rng.choice(EDGES), rng.choice(EDGES)

    # -- control packets ----------------------------------------------------------------------------------------------

    def _ack(self) -> Lie:
        """Acknowledge and report what was never sent, and grant what nobody has."""
        return Lie("ack", self.rogue.seal(self._false_ack().encode()))

    def _with_ack(self) -> Lie:
        """Send a message with such an ACK behind it, or with what is none."""
        rng, size_bytes = self._rng, self._rng.choice((0, 1, 64, 500))
        ack = self._false_ack()
        others = [other.context for other in self._overheard()] if self.rogue.is_secure else []
        behind = rng.choice((
            ack.encode(),
            replace(ack, context=rng.choice([ack.context, self.rogue.own_context, *others])).encode(),
            ack.encode()[: -rng.randint(1, 20)],
            ack.encode() + rng.randbytes(1),
            rng.randbytes(rng.randrange(100)),
            Close(self.rogue.context, self.rogue.own_context).encode(),
        ))  # fmt: skip
        fields = self._next(size_bytes=size_bytes, path=rng.randrange(4), index=0)
        fields.flags = WITH_ACK | rng.choice((0, 0, 0, *FLAGS))
        if rng.random() < 0.3:
            fields.length = rng.choice((size_bytes + 1, size_bytes + len(behind), *EDGES))
        return Lie("with_ack", self.rogue.seal(fields.encode() + bytes(size_bytes) + behind))

    def _false_ack(self) -> Ack:
        rng = self._rng
        reports = tuple(
            PathReport(
                rng.choice((0, 1, 3, 63, 127, 128, 255)),
                rng.choice(EDGES),
                rng.choice(EDGES),
                rng.choice(EDGES),
                rng.choice(EDGES),
                rng.choice(EDGES) & 0xFFFF,
                rng.choice(EDGES) & 0xFFFF,
                rng.choice(EDGES),
            )
            for _ in range(rng.randrange(4))
        )
        cumulative = rng.choice((self._first_psn, self._first_psn + 1, *WIDE_EDGES))
        bitmap = rng.getrandbits(rng.choice((1, 8, 1024, 4096))) & ~1
        credit = (rng.choice(WIDE_EDGES), rng.choice(WIDE_EDGES))
        paths = (rng.randrange(256), rng.randrange(256))
        return Ack(self.rogue.context, cumulative, bitmap, *credit, reports, rng.choice((0, 1, 255)), *paths)

    def _control(self) -> Lie:
        """Ask, answer, refuse, limit, close: with contexts of its own and of others, and numbers of nothing."""
        rng = self._rng
        contexts = [self.rogue.context, self.rogue.own_context]
        for other in self._overheard() if self.rogue.is_secure else ():
            contexts += [other.context, other.remote_context]
        context = rng.choice(contexts) if self.rogue.is_secure and rng.random() < 0.4 else self.rogue.context
        own = rng.choice([*contexts[1:], self.rogue.own_context, rng.getrandbits(64)])
        path, wide, small = rng.randrange(256), rng.choice(WIDE_EDGES), rng.choice(EDGES)
        packets: tuple[Inner | Reset, ...] = (
            Probe(context, own, path, small, rng.choice(EDGES), rng.randrange(256), rng.randrange(256)),
            Probe(context, self.rogue.own_context, rng.randrange(4), small, small),
            Nack(context, rng.choice((small, self._psn & 0xFFFFFFFF)), rng.randrange(256)),
            PathChallenge(context, wide, path),
            PathResponse(context, wide, path),
            PullRequest(context, wide, rng.choice(WIDE_EDGES), rng.choice(WIDE_EDGES), path),
            Pull(context, wide, rng.choice(WIDE_EDGES), small, path),
            Closed(context, own),
            Reset(context, own),
            Reset(0, own, rng.randbytes(16)),
            # What would rightly end this peer is rare.
            Close(context, own if own != self.rogue.own_context or rng.random() < 0.1 else rng.getrandbits(64)),
        )
        packet = rng.choice(packets).encode()
        return Lie("control", packet if rng.random() < 0.1 else self.rogue.seal(packet))

    def _keys(self) -> Lie:
        """Use other keys with each train: the peer has to compute them."""
        self.rogue.update_keys()
        return self._truth()._replace(kind="keys")
