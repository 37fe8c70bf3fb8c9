"""An attacker: sends an endpoint packets that no conforming endpoint sends, from plain sockets.

Packets are of every type and of invalid types, single and in GSO trains (scripts/harness/forge.py): from unknown
addresses, in the name of its peers from others, and from these peers. There are abandoned handshakes, open peers that
violate the protocol, and peers that lie in authentic packets, also about the others, of whom the receiver tells in the
scenario's directory what is readable on the wire.

It sends at a constant rate for a time; or in slices, of which it makes all packets before, so that who is attacked has
the processor while they are sent, and journals when it is silent and when it sends.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from scripts.benches.torture.journal import Journal
from scripts.benches.torture.layout import ATTACK, OVERHEARD
from scripts.benches.torture.local import SECURITY
from scripts.benches.torture.plans import AttackerPlan
from scripts.benches.torture.scenario import FORGED, LIE
from scripts.harness.forge import PacketForge
from scripts.harness.liar import Fields, Liar, Overheard
from scripts.harness.rogue import RogueInitiator, RoguePeer, open_rogue
from srd.io.syscalls import SO_RCVBUFFORCE, UDP_SEGMENT
from srd.proto.base.errors import PacketError
from srd.proto.wire.control import Ack, Close, Closed, Hello, Nack, Probe, Reset
from srd.proto.wire.data import MAX_DATAGRAM_BYTES

MAX_TRAIN: Final = 64
TICK_S: Final = 0.005
LATE_TICKS: Final = 4
"""Ticks that are made up for after a pause; of a slice all are."""
HANDSHAKE_S: Final = 0.3
SLICE_HANDSHAKE_S: Final = 5.0
"""A slice that has no peers to lie to is not what was asked for."""
OPEN_PEERS: Final = 8
"""Maximum number of open peers: fewer than `max_peers_per_address`."""
RETRANSMIT_S: Final = 0.1
"""Time after which unacknowledged packets are sent again."""
LIARS: Final = 2
"""Peers that lie, at a time."""
ADDRESSED: Final = 3
"""Peers that forged packets are addressed to."""
STRANGERS: Final = 4
"""Sockets from which no peer was opened, and from which forged packets come, too."""
MAX_AHEAD: Final = 2000
"""Maximum of unacknowledged packets: less than the advertised window."""
HELLO_BYTES: Final = 1472
OTHER_ADDRESS: Final = 0.03
"""Fraction of the lies that come from another address than the peer's."""
CAPTURED: Final = 400
CAPTURED_BYTES: Final = 1400
"""Of each at most."""
CAPTURE_S: Final = 5.0
_LATE_REPLIES_S: Final = 0.2
_BUFFER_BYTES: Final = 8 << 20
_ETH_P_ALL: Final = 3
_LOOPBACK_HEADERS: Final = 14 + 20 + 8
Target = tuple[str, int]


@dataclass(slots=True)
class AcceptedPeer:
    rogue: RoguePeer
    psn: int
    """Next PSN."""
    acknowledged: int
    """All PSNs below are acknowledged."""
    path_sequence: int = 0
    progress_at: float = 0.0
    """Time of the last increase of `acknowledged`."""

    @property
    def window_full(self) -> bool:
        return self.psn - self.acknowledged > MAX_AHEAD


class CountingSocket:
    def __init__(self, source: str) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with suppress(PermissionError):
            self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, _BUFFER_BYTES)
        self.socket.bind((source, 0))
        self.socket.settimeout(HANDSHAKE_S)
        self.sent_bytes = self.received_bytes = 0

    def send(self, packet: bytes, target: Target, *, segment_bytes: int = 0) -> None:
        control = [(socket.SOL_UDP, UDP_SEGMENT, struct.pack("=H", segment_bytes))] if segment_bytes else []
        self.socket.sendmsg([packet], control, 0, target)
        self.sent_bytes += len(packet)

    def receive(self) -> list[bytes]:
        found = []
        self.socket.settimeout(0.0)
        with suppress(OSError):  # nothing more, or an earlier ICMP error
            while True:
                found.append(self.socket.recv(MAX_DATAGRAM_BYTES))
        self.socket.settimeout(HANDSHAKE_S)
        self.received_bytes += sum(map(len, found))
        return found


def capture(port: int, *, count: int, bound_s: float) -> list[bytes]:
    """Capture datagrams to `port` on loopback, of each the beginning. Needs root."""
    found: list[bytes] = []
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL)) as sock:
        sock.bind(("lo", 0))
        sock.settimeout(min(bound_s, 0.5))
        give_up_at = time.monotonic() + bound_s
        with suppress(TimeoutError):
            while len(found) < count and time.monotonic() < give_up_at:
                frame = sock.recv(1 << 16)
                if len(frame) > _LOOPBACK_HEADERS and frame[36:38] == port.to_bytes(2, "big"):
                    found.append(frame[_LOOPBACK_HEADERS : _LOOPBACK_HEADERS + CAPTURED_BYTES])
    return found


class Attacker:
    def __init__(self, target: Target, *, source: str, rng: Random, plan: AttackerPlan, directory: Path) -> None:
        self._target = target
        self._directory = directory
        self._rng = rng
        self._plan = plan
        self._own = CountingSocket(source)
        self._strangers = [CountingSocket(source) for _ in range(STRANGERS)]
        self._source = source
        self._peers: list[AcceptedPeer] = []
        self._liars: list[Liar] = []
        self._addressed: list[RoguePeer] = []
        self._forge = PacketForge(rng)
        self._ready: list[bytes] = []
        """Packets that were made before their slice."""
        self.lies = 0
        self._makers: dict[str, Callable[[], bytes]] = {
            "hello": self._hello, "handshake": self._handshake, "reset": self._reset, "partial": self._partial,
            "empty": self._empty,
        }  # fmt: skip

    def run(self) -> None:
        if self._plan.slices:
            self._send_slices()
        else:
            self._pace(until=time.monotonic() + self._plan.seconds)

    def _pace(self, *, until: float = 0.0, count: int = 0) -> int:
        """Send until a time, or so many packets; return how many."""
        started, sent, rate = time.monotonic(), 0.0, self._plan.packets_per_s
        while sent < count if count else time.monotonic() < until:
            due = (time.monotonic() - started + TICK_S) * rate
            sent = sent if count else max(sent, due - LATE_TICKS * rate * TICK_S - 1)
            due = min(due, count) if count else due
            while sent < due and (count or time.monotonic() < until) and not any(p.window_full for p in self._peers):
                with suppress(OSError):
                    sent += self._send()
            self._drain()
            time.sleep(TICK_S)
        return int(sent)

    def close(self) -> None:
        for sender in (self._own, *self._strangers):
            sender.socket.close()

    def _send(self) -> int:
        """Send one packet, or a train; return the number of packets."""
        plan, rng = self._plan, self._rng
        kind = rng.choices(list(plan.kinds), list(plan.kinds.values()))[0]
        if kind == "icmp":
            self._icmp()
            return 1
        if kind == LIE:
            return self._lie()
        sender = rng.choice([self._own, *self._strangers]) if kind in FORGED else self._own
        packet = self._packet(kind)
        most = min(MAX_TRAIN, MAX_DATAGRAM_BYTES // max(len(packet), 1))
        if not packet or most < 2 or rng.random() >= plan.trains:
            sender.send(packet, self._target)
            return 1
        count = rng.randint(2, most)
        same = kind not in ("partial", "empty") and rng.random() < 0.5
        packets = [
            packet if same else self._packet(kind)[: len(packet)].ljust(len(packet), b"\0") for _ in range(count - 1)
        ]
        sender.send(b"".join([packet, *packets])[:MAX_DATAGRAM_BYTES], self._target, segment_bytes=len(packet))
        return count

    def _packet(self, kind: str) -> bytes:
        """Return a packet of a kind, or one of those that are ready. Raises OSError when a handshake fails."""
        if kind in self._makers:
            return self._makers[kind]()
        if self._ready:
            return self._ready.pop()
        self._address()
        return self._forge.packet(kind)

    def _drain(self) -> None:
        """Process ACKs and RESETs; go back to the first PSN that is unacknowledged for RETRANSMIT_S."""
        for stranger in self._strangers:
            stranger.receive()
        for data in self._own.receive():
            self._liars = [liar for liar in self._liars if not liar.hear_untrusted(data)]
            with suppress(PacketError):
                self._hear_untrusted(data)
        for peer in self._peers:
            if peer.window_full and time.monotonic() > peer.progress_at + RETRANSMIT_S:
                peer.psn, peer.progress_at = peer.acknowledged, time.monotonic()

    def _hear_untrusted(self, data: bytes) -> None:
        """Process a reply to an open peer. Raises PacketError."""
        for peer in self._peers:
            packet = peer.rogue.open_untrusted(data)
            if isinstance(packet, Ack) and packet.context == peer.rogue.own_context:
                if packet.cumulative > peer.acknowledged:
                    peer.acknowledged, peer.progress_at = packet.cumulative, time.monotonic()
            elif isinstance(packet, Reset) and packet.own_context == peer.rogue.context:
                self._peers.remove(peer)
                return

    # -- forged packets ---------------------------------------------------------------------------------------------

    def _address(self, *, anew: bool = False) -> None:
        """Have peers that forged packets are addressed to; other ones, as the last may have ended. Raises OSError."""
        if self._addressed and not anew:
            return
        self._addressed = [self._open_rogue() for _ in range(ADDRESSED)]
        self._forge.use(self._addressed)

    def _send_slices(self) -> None:
        plan = self._plan
        journal, count = Journal(self._directory / ATTACK), round(plan.packets_per_s * plan.seconds)
        for _ in range(plan.slices):
            self._address(anew=True)
            self._forge.captured = capture(self._target[1], count=CAPTURED, bound_s=CAPTURE_S)
            kinds, weights = zip(
                *((kind, weight) for kind, weight in plan.kinds.items() if kind in FORGED), strict=True
            )
            self._ready = [self._forge.packet(kind) for kind in self._rng.choices(kinds, weights, k=count)]
            journal.note("silent")
            time.sleep(plan.seconds)
            journal.note("sending")
            sent = self._pace(count=count)
            journal.note("sent", sent)
        time.sleep(_LATE_REPLIES_S)
        self._drain()
        worst = max(each.received_bytes / max(each.sent_bytes, 1) for each in self._strangers)
        journal.note("end", {"amplification": worst, "lies": self.lies})
        journal.close()

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
        self._own.send(first, self._target)
        for _ in range(1000):
            initiator.handle_reply(self._own.socket.recv(MAX_DATAGRAM_BYTES))
            if initiator.packet != first:
                return
        raise TimeoutError

    def _initiator(self) -> RogueInitiator:
        return RogueInitiator(self._new_hello(), security=SECURITY[self._plan.security]())

    def _open(self) -> AcceptedPeer:
        return AcceptedPeer(self._open_rogue(), self._plan.first_psn, self._plan.first_psn)

    def _open_rogue(self) -> RoguePeer:
        """Complete a handshake. Raises OSError when that fails."""
        security, hello = SECURITY[self._plan.security](), self._new_hello()
        bound_s = SLICE_HANDSHAKE_S if self._plan.slices else HANDSHAKE_S
        return open_rogue(self._own.socket, self._target, hello, security=security, bound_s=bound_s)

    def _handshake(self) -> bytes:
        """Open a peer and abandon it; above the limit, close an old one."""
        self._peers.append(self._open())
        if len(self._peers) > OPEN_PEERS:
            return _close(self._peers.pop(self._rng.randrange(OPEN_PEERS)).rogue)
        return _probe(self._peers[-1].rogue)

    def _reset(self) -> bytes:
        """Return a RESET or CLOSED that directly follows a HELLO, so that both wait in the socket together."""
        initiator = self._initiator()
        self._ask(initiator)
        self._own.send(initiator.packet, self._target)
        kind = self._rng.choice((Reset, Closed))
        return kind(initiator.own_context, self._rng.getrandbits(64)).encode()

    # -- violations by open peers -----------------------------------------------------------------------------------

    def _peer(self) -> AcceptedPeer:
        if not self._peers:
            self._peers.append(self._open())
        return self._rng.choice(self._peers)

    def _next(self, payload: bytes, *, length: int) -> bytes:
        peer = self._peer()
        psn, sequence = peer.psn, peer.path_sequence
        header = Fields(peer.rogue.context, psn=psn, path_sequence=sequence, message=psn, length=length)
        peer.psn += 1
        peer.path_sequence += 1
        return peer.rogue.seal(header.encode() + payload)

    def _partial(self) -> bytes:
        """Return the first packet of a message that is never completed, or an unexpected control packet."""
        rng = self._rng
        if rng.random() < 0.02:
            rogue = self._peer().rogue
            return rng.choice((_close(rogue), rogue.seal(Nack(rogue.context, 0, 0).encode()), _probe(rogue)))
        payload = bytes(rng.choice((1, 100, 1000, 1416)))
        return self._next(payload, length=len(payload) + rng.choice((0, 1, 1 << 16)))

    def _empty(self) -> bytes:
        return self._next(b"", length=1)

    # -- lies by peers that were let in -----------------------------------------------------------------------------

    def _lie(self) -> int:
        """Send a packet or a train of a peer that lies, now and then from another address; return the packets."""
        rng = self._rng
        if len(self._liars) < LIARS:
            rogue, first_psn = self._open_rogue(), self._plan.first_psn
            self._liars.append(Liar(rogue, rng=rng, overheard=self._overheard, first_psn=first_psn))
            self._own.send(_probe(rogue), self._target)
        lie = rng.choice(self._liars).next()
        sender = self._strangers[0] if rng.random() < OTHER_ADDRESS else self._own
        sender.send(lie.data, self._target, segment_bytes=lie.segment_bytes)
        self.lies += 1
        return -(-len(lie.data) // lie.segment_bytes) if lie.segment_bytes else 1

    def _overheard(self) -> list[Overheard]:
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


def _probe(rogue: RoguePeer) -> bytes:
    return rogue.seal(Probe(rogue.context, rogue.own_context, 0, 0, 0).encode())


def _close(rogue: RoguePeer) -> bytes:
    return rogue.seal(Close(rogue.context, rogue.own_context).encode())


def _checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def attack(*, directory: str, target: Sequence[Any], source: str, seed: str, plan: dict[str, Any]) -> None:
    host, port = target
    rng = Random(seed)  # noqa: S311 - reproducible, not secret
    attacker = Attacker((host, port), source=source, rng=rng, plan=AttackerPlan(**plan), directory=Path(directory))
    with suppress(KeyboardInterrupt):
        attacker.run()
    os._exit(0)
