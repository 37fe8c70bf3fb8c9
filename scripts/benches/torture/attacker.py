"""An attacker: `python -m scripts.benches.torture.attacker DIRECTORY HOST PORT SOURCE SEED PLAN`.

PLAN is an AttackerPlan in JSON. Sends an endpoint packets that no conforming endpoint sends, from plain sockets:
packets of every type and of invalid types, single and in GSO trains, abandoned handshakes, open peers that violate the
protocol, and peers that lie in authentic packets, also about the others, of whom the receiver tells in DIRECTORY what
is readable on the wire. It has no output.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from random import Random
from typing import Any, Final, cast, get_args

from scripts.benches.torture.layout import OVERHEARD
from scripts.benches.torture.local import SECURITY
from scripts.benches.torture.plans import AttackerPlan
from scripts.benches.torture.scenario import LIE
from scripts.harness.liar import Liar, Overheard
from scripts.harness.rogue import RogueInitiator, RoguePeer, open_rogue
from srd.proto.errors import PacketError
from srd.proto.wire.control import (
    Ack,
    Close,
    Closed,
    Control,
    Hello,
    Nack,
    Probe,
    Protected,
    Reset,
)
from srd.proto.wire.data import HEADER_BYTES, MAX_DATAGRAM_BYTES, VERSION, PacketType

UDP_SEGMENT: Final = 103
MAX_TRAIN: Final = 64
TICK_S: Final = 0.005
HANDSHAKE_S: Final = 0.3
OPEN_PEERS: Final = 8
"""Maximum number of open peers: fewer than `max_peers_per_address`."""
RETRANSMIT_S: Final = 0.1
"""Time after which unacknowledged packets are sent again."""
LIARS: Final = 2
"""Peers that lie, at a time."""
MAX_AHEAD: Final = 2000
"""Maximum of unacknowledged packets: less than the advertised window."""
HELLO_BYTES: Final = 1472
OTHER_ADDRESS: Final = 0.03
"""Fraction of the lies that come from another address than the peer's."""
_EMPTY: Final[dict[str, Any]] = {"bytes": b"", "tuple": ()}
"""Values of fields that are no numbers, by their type."""
_PREFIX: Final = struct.Struct(">BBBBIQ")
_HEADER: Final = struct.Struct(">BBBBIQQIIIIQQ")


def control_packet(kind: type[Control], **values: Any) -> bytes:
    """Return a control packet with these values for the fields that it has; other fields are empty or 0."""
    if kind is Protected:
        return _PREFIX.pack(VERSION, PacketType.PROTECTED, 0, 0, 0, values.get("context", 0)) + bytes(48)
    found: dict[str, Any] = {}
    optional = (
        {each.name for each in fields(cast(Any, kind)) if each.default is not MISSING}
        if kind is not Ack
        else {*Ack._field_defaults}
    )
    for name, annotation in kind.__annotations__.items():  # a compiled class has no signature
        if name in values:
            found[name] = values[name]
        elif name not in optional:
            found[name] = next((empty for word, empty in _EMPTY.items() if word in str(annotation)), 0)
    return kind(**found).encode()


@dataclass(slots=True)
class OpenPeer:
    """A peer that the receiver has accepted."""

    rogue: RoguePeer
    psn: int
    """Next PSN."""
    acknowledged: int
    """All PSNs below are acknowledged."""
    path_sequence: int = 0
    progress_at: float = 0.0
    """Time of the last increase of `acknowledged`."""

    @property
    def context(self) -> int:
        """Context chosen by the receiver."""
        return self.rogue.context

    @property
    def own(self) -> int:
        """Context chosen by the attacker."""
        return self.rogue.own_context

    @property
    def window_full(self) -> bool:
        """Whether MAX_AHEAD packets are unacknowledged."""
        return self.psn - self.acknowledged > MAX_AHEAD


class Attacker:
    """Sends from one socket to one target."""

    def __init__(
        self, target: tuple[str, int], *, source: str, rng: Random, plan: AttackerPlan, directory: Path
    ) -> None:
        self._target = target
        self._directory = directory
        self._rng = rng
        self._plan = plan
        self._sock, self._other_sock = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        for sock in (self._sock, self._other_sock):
            sock.bind((source, 0))
            sock.settimeout(HANDSHAKE_S)
        self._source = source
        self._peers: list[OpenPeer] = []
        self._liars: list[Liar] = []
        self._makers: dict[str, Callable[[], bytes]] = {
            "noise": self._noise, "prefix": self._prefix, "data": self._data, "small": self._small, "ack": self._ack,
            "hello": self._hello, "handshake": self._handshake, "reset": self._reset, "partial": self._partial,
            "empty": self._empty, "control": self._control,
        }  # fmt: skip

    def run(self) -> None:
        """Send at the plan's rate until the time is up."""
        plan, rng = self._plan, self._rng
        until = time.monotonic() + plan.seconds
        budget = 0.0
        while time.monotonic() < until:
            budget = min(budget + plan.packets_per_s * TICK_S, 4.0 * plan.packets_per_s * TICK_S + 1)
            while budget >= 1 and time.monotonic() < until and not any(peer.window_full for peer in self._peers):
                kind = rng.choices(list(plan.kinds), list(plan.kinds.values()))[0]
                with suppress(OSError):
                    budget -= self._send(kind)
            self._drain()
            time.sleep(TICK_S)

    def close(self) -> None:
        """Close the sockets."""
        self._sock.close()
        self._other_sock.close()

    def _send(self, kind: str) -> int:
        """Send one packet, or a train; return the number of packets."""
        if kind == "icmp":
            self._icmp()
            return 1
        if kind == LIE:
            return self._lie()
        packet = self._makers[kind]()
        most = min(MAX_TRAIN, MAX_DATAGRAM_BYTES // max(len(packet), 1))
        if not packet or most < 2 or self._rng.random() >= self._plan.trains:
            self._sock.sendto(packet, self._target)
            return 1
        count = self._rng.randint(2, most)
        same = kind not in ("partial", "empty") and self._rng.random() < 0.5
        packets = [
            packet if same else self._makers[kind]()[: len(packet)].ljust(len(packet), b"\0") for _ in range(count - 1)
        ]
        train = b"".join([packet, *packets])[:MAX_DATAGRAM_BYTES]
        segment = [(socket.SOL_UDP, UDP_SEGMENT, struct.pack("H", len(packet)))]
        self._sock.sendmsg([train], segment, 0, self._target)
        return count

    def _drain(self) -> None:
        """Process ACKs and RESETs; go back to the first PSN that is unacknowledged for RETRANSMIT_S."""
        self._sock.settimeout(0.0)
        with suppress(OSError):
            while True:
                data = self._sock.recv(MAX_DATAGRAM_BYTES)
                self._liars = [liar for liar in self._liars if not liar.hear_untrusted(data)]
                with suppress(PacketError):
                    self._hear_untrusted(data)
        self._sock.settimeout(HANDSHAKE_S)
        for peer in self._peers:
            if peer.window_full and time.monotonic() > peer.progress_at + RETRANSMIT_S:
                peer.psn, peer.progress_at = peer.acknowledged, time.monotonic()

    def _hear_untrusted(self, data: bytes) -> None:
        """Process a reply to an open peer. Raises PacketError."""
        for peer in self._peers:
            packet = peer.rogue.open_untrusted(data)
            if isinstance(packet, Ack) and packet.context == peer.own:
                if packet.cumulative > peer.acknowledged:
                    peer.acknowledged, peer.progress_at = packet.cumulative, time.monotonic()
            elif isinstance(packet, Reset) and packet.own_context == peer.context:
                self._peers.remove(peer)
                return

    # -- packets without a peer -------------------------------------------------------------------------------------

    def _noise(self) -> bytes:
        return self._rng.randbytes(self._rng.choice((0, 1, 15, 16, 17, 55, 56, 57, self._rng.randint(0, 9000))))

    def _prefix(self) -> bytes:
        """Return a valid prefix and random bytes."""
        rng = self._rng
        kind = rng.choice((*PacketType, 0, 12, 255))
        prefix = _PREFIX.pack(rng.choice((VERSION, VERSION, 2)), kind, 0, rng.randrange(256), 0, rng.getrandbits(64))
        return prefix + rng.randbytes(rng.choice((0, 1, 8, 24, 40, 100, 1400)))

    def _header(
        self, context: int, *, psn: int = 0, path_sequence: int = 0, flags: int = 0, message: int = 0, length: int = 0
    ) -> bytes:
        low = path_sequence & 0xFFFFFFFF
        return _HEADER.pack(
            VERSION, PacketType.DATA, flags, 0, low, context, psn, 0, message & 0xFFFFFFFF, length, 0, 0, 0
        )

    def _data(self) -> bytes:
        rng = self._rng
        size = rng.choice((576, 1024, 1100, 1472, 8972, rng.randint(HEADER_BYTES, 9000)))
        flags, psn, length = rng.randrange(16), rng.getrandbits(20), rng.getrandbits(24)
        return self._header(rng.getrandbits(64), flags=flags, psn=psn, length=length) + bytes(size - HEADER_BYTES)

    def _small(self) -> bytes:
        return self._header(self._rng.getrandbits(64), length=64) + bytes(self._rng.randint(0, 200))

    def _ack(self) -> bytes:
        rng = self._rng
        bitmap = rng.getrandbits(rng.choice((8, 1024, 4096))) & ~1
        credit = rng.getrandbits(40)
        return control_packet(
            Ack, context=rng.getrandbits(64), cumulative=rng.getrandbits(32), bitmap=bitmap, credit_bytes=credit
        )

    def _control(self) -> bytes:
        """Return a well-formed control packet with random contexts."""
        rng = self._rng
        kind = rng.choice(get_args(Control))
        return control_packet(kind, context=rng.getrandbits(64), own_context=rng.getrandbits(64))

    # -- handshakes -------------------------------------------------------------------------------------------------

    def _new_hello(self) -> Hello:
        return Hello(
            own_context=self._rng.getrandbits(64),
            credit_bytes=1 << 25,
            credit_messages=1 << 14,
            max_message_bytes=1 << 24,
            window_packets=4096,
            datagram_bytes=HELLO_BYTES,
        )

    def _hello(self) -> bytes:
        return self._new_hello().encode()

    def _ask(self, initiator: RogueInitiator) -> None:
        """Send the first HELLO until the initiator has a cookie. Raises OSError when none arrives."""
        first = initiator.packet
        self._sock.sendto(first, self._target)
        for _ in range(1000):
            initiator.handle_reply(self._sock.recv(MAX_DATAGRAM_BYTES))
            if initiator.packet != first:
                return
        raise TimeoutError

    def _initiator(self) -> RogueInitiator:
        return RogueInitiator(self._new_hello(), security=SECURITY[self._plan.security]())

    def _open(self) -> OpenPeer:
        """Open a peer. Raises OSError when that fails."""
        return OpenPeer(self._open_rogue(), self._plan.first_psn, self._plan.first_psn)

    def _open_rogue(self) -> RoguePeer:
        """Complete a handshake. Raises OSError when that fails."""
        security, hello = SECURITY[self._plan.security](), self._new_hello()
        return open_rogue(self._sock, self._target, hello, security=security, bound_s=HANDSHAKE_S)

    def _handshake(self) -> bytes:
        """Open a peer and abandon it; above the limit, close an old one."""
        self._peers.append(self._open())
        if len(self._peers) > OPEN_PEERS:
            return self._to(self._peers.pop(self._rng.randrange(OPEN_PEERS)), Close)
        return self._to(self._peers[-1], Probe)

    @staticmethod
    def _to(peer: OpenPeer, kind: type[Control]) -> bytes:
        return peer.rogue.seal(control_packet(kind, context=peer.context, own_context=peer.own))

    def _reset(self) -> bytes:
        """Return a RESET or CLOSED that directly follows a HELLO, so that both wait in the socket together."""
        initiator = self._initiator()
        self._ask(initiator)
        self._sock.sendto(initiator.packet, self._target)
        own, kind = self._rng.getrandbits(64), self._rng.choice((Reset, Closed))
        return control_packet(kind, context=initiator.own_context, own_context=own)

    # -- violations by open peers -----------------------------------------------------------------------------------

    def _peer(self) -> OpenPeer:
        if not self._peers:
            self._peers.append(self._open())
        return self._rng.choice(self._peers)

    def _next(self, payload: bytes, *, length: int) -> bytes:
        """Return a packet that begins a message."""
        peer = self._peer()
        header = self._header(
            peer.context, psn=peer.psn, path_sequence=peer.path_sequence, message=peer.psn, length=length
        )
        peer.psn += 1
        peer.path_sequence += 1
        return peer.rogue.seal(header + payload)

    def _partial(self) -> bytes:
        """Return the first packet of a message that is never completed, or an unexpected control packet."""
        rng = self._rng
        if rng.random() < 0.02:
            return self._to(self._peer(), rng.choice((Close, Nack, Probe)))
        payload = bytes(rng.choice((1, 100, 1000, 1416)))
        return self._next(payload, length=len(payload) + rng.choice((0, 1, 1 << 16)))

    def _empty(self) -> bytes:
        """Return a packet without payload that begins a message."""
        return self._next(b"", length=1)

    # -- lies by peers that were let in -----------------------------------------------------------------------------

    def _lie(self) -> int:
        """Send a packet or a train of a peer that lies, now and then from another address; return the packets."""
        rng = self._rng
        if len(self._liars) < LIARS:
            rogue, first_psn = self._open_rogue(), self._plan.first_psn
            self._liars.append(Liar(rogue, rng=rng, overheard=self._overheard, first_psn=first_psn))
            confirm = Probe(rogue.context, rogue.own_context, 0, 0, 0).encode()
            self._sock.sendto(rogue.seal(confirm), self._target)
        lie = rng.choice(self._liars).next()
        sock = self._other_sock if rng.random() < OTHER_ADDRESS else self._sock
        if not lie.segment_bytes:
            sock.sendto(lie.data, self._target)
            return 1
        segment = [(socket.SOL_UDP, UDP_SEGMENT, struct.pack("H", lie.segment_bytes))]
        sock.sendmsg([lie.data], segment, 0, self._target)
        return -(-len(lie.data) // lie.segment_bytes)

    def _overheard(self) -> list[Overheard]:
        """Return what is known of the honest peers."""
        with suppress(OSError, ValueError):  # none, or not yet
            return [Overheard(*each) for each in json.loads((self._directory / OVERHEARD).read_bytes())]
        return []

    # -- ICMP errors ------------------------------------------------------------------------------------------------

    def _icmp(self) -> None:
        """Send the receiver's host an ICMP error about a packet of its socket."""
        rng = self._rng
        quoted = struct.pack(">HHHH", self._target[1], rng.randint(1024, 65535), 100, 0)
        addresses = socket.inet_aton(self._target[0]) + socket.inet_aton(self._source)
        inner = struct.pack(">BBHHHBBH", 0x45, 0, 28 + 92, 0, 0, 64, socket.IPPROTO_UDP, 0) + addresses + quoted
        body = struct.pack(">BBHHH", 3, rng.choice((0, 1, 3, 4, 13)), 0, 0, rng.choice((0, 576, 1280))) + inner
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw:
            raw.bind((self._source, 0))
            raw.sendto(body[:2] + struct.pack(">H", _checksum(body)) + body[4:], self._target)


def _checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def main() -> None:
    """Attack until the time of the plan is up."""
    directory, host, port, source, seed, plan = sys.argv[1:]
    attacker = Attacker(
        (host, int(port)),
        source=source,
        rng=Random(seed),  # noqa: S311 - reproducible, not secret
        plan=AttackerPlan(**json.loads(plan)),
        directory=Path(directory),
    )
    with suppress(KeyboardInterrupt):
        attacker.run()
    os._exit(0)


if __name__ == "__main__":
    main()
