"""The attacker, a process of its own: prepares packets in advance, then sends them at a constant rate.

Four kinds of sockets: unknown senders; peers that it opened; addresses that never opened a peer, from which it sends
with the contexts of its peers (as with a forged source address); and a packet socket that captures the transfer. Beside
what it has prepared, its peers lie (`scripts.harness.liar`): also about the transfer, whose latest headers it reads. It
reads commands from stdin and replies to each with one event on stdout:

    forge N         prepare N packets                            -> forged {packets}
    send SECONDS    send them, evenly spread over that time      -> sent {packets, bytes, amplification, late_s}
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import Callable, Container
from contextlib import suppress
from random import Random
from typing import Final

from scripts.benches.hostile.packets import Forge, OpenPeer
from scripts.harness.events import emit
from scripts.harness.liar import Liar, Overheard
from scripts.harness.rogue import RoguePeer, open_rogue
from srd.io.syscalls import SO_RCVBUFFORCE, UDP_SEGMENT
from srd.proto.wire.control import Hello, Probe
from srd.proto.wire.data import HEADER_BYTES, VERSION, PacketType
from srd.secure.config import Keys, Plain

PEERS: Final = 3
VICTIMS: Final = 4
TICK_S: Final = 0.005
TRAIN_SHARE: Final = 0.02
"""Fraction of all sends that are trains, of up to 16 packets."""
LIE_SHARE: Final = 0.02
"""Fraction of all sends that are lies: a packet, or a train of up to 40."""
LIES_PER_LOOK: Final = 20
"""Lies after which the transfer is looked at again: at this rate it is at most some thousand packets ahead."""
CAPTURED: Final = 400
CAPTURED_BYTES: Final = 1400
"""Of each at most."""
_ETH_P_ALL: Final = 3
_LOOPBACK_HEADERS: Final = 14 + 20 + 8
_HEADER: Final = struct.Struct(">8xQQ4xI16xQ")
"""Of data: context, PSN, message, key."""
_DATA: Final = bytes([VERSION, PacketType.DATA])
_PROPOSED_BYTES: Final = 1472
_BUFFER_BYTES: Final = 8 << 20
_OPEN_BOUND_S: Final = 5.0
_LOOK_S: Final = 0.01
_LOOK_FRAMES: Final = 50
Target = tuple[str, int]


def _socket(host: str) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, _BUFFER_BYTES)
    sock.bind((host, 0))
    sock.settimeout(0)
    return sock


class Tally:
    """A socket that counts the bytes that it sends and receives."""

    def __init__(self, host: str) -> None:
        self.socket = _socket(host)
        self.sent_bytes = self.received_bytes = 0

    def send(self, packet: bytes, target: Target, *, segment_bytes: int = 0) -> None:
        """Send a packet, or a train of packets."""
        control = [(socket.SOL_UDP, UDP_SEGMENT, struct.pack("=H", segment_bytes))] if segment_bytes else []
        with suppress(OSError):  # full, or an earlier ICMP error: counts as lost
            self.socket.sendmsg([packet], control, 0, target)
            self.sent_bytes += len(packet)

    def drain(self) -> None:
        """Count what was received."""
        with suppress(BlockingIOError, ConnectionRefusedError):
            while True:
                self.received_bytes += len(self.socket.recv(1 << 16))

    def hear(self, take: Callable[[bytes], bool]) -> bool:
        """Have each reply taken; return whether that was true of one, or the socket has an error."""
        with suppress(BlockingIOError, ConnectionRefusedError):
            while True:
                if take(self.socket.recv(1 << 16)):
                    return True
        return False


def open_peer(target: Target, *, rng: Random, secure: bool) -> tuple[Tally, RoguePeer]:
    """Open a peer with a regular handshake. Raises TimeoutError."""
    hello = Hello(
        own_context=rng.getrandbits(64),
        credit_bytes=1 << 20,
        credit_messages=1 << 10,
        max_message_bytes=1 << 20,
        window_packets=4096,
        datagram_bytes=_PROPOSED_BYTES,
    )
    tally = Tally("127.0.0.1")
    security = Keys() if secure else Plain()
    rogue = open_rogue(tally.socket, target, hello, security=security, bound_s=_OPEN_BOUND_S)
    tally.send(rogue.seal(Probe(rogue.context, rogue.own_context, 0, 0, 0).encode()), target)
    return tally, rogue


def capture(port: int, *, count: int, bound_s: float = 5.0) -> list[bytes]:
    """Capture datagrams to `port` on loopback; of a GRO datagram only the beginning."""
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


def overhear(port: int, *, own: Container[int]) -> list[Overheard]:
    """Return what is readable in the latest data to `port` on loopback that is long, and of no context of its `own`."""
    for datagram in reversed(capture(port, count=_LOOK_FRAMES, bound_s=_LOOK_S)):
        if len(datagram) == CAPTURED_BYTES and datagram[:2] == _DATA:
            context, psn, message, key = _HEADER.unpack_from(datagram)
            if context not in own:
                return [Overheard(context, psn, message, key)]
    return []


class Attack:
    """The sockets and packets of the attack, and the bytes received in reply."""

    def __init__(self, target: Target, *, seed: int, secure: bool) -> None:
        self._target = target
        self._secure = secure
        self._rng = Random(seed)  # noqa: S311 - reproducible, not secret
        self._unknown_senders = [Tally("127.0.0.1") for _ in range(4)]
        self._victims = [Tally(f"127.0.0.{10 + number}") for number in range(VICTIMS)]
        self._peers: list[Tally] = []
        self._liars: list[tuple[Tally, Liar]] = []
        self._contexts: set[int] = set()  # of its own peers
        self._lies = 0
        self._overheard: list[Overheard] = []
        self._packets: list[bytes] = []

    def forge(self, count: int) -> None:
        """Prepare packets for the next `send`; open new peers, as the previous ones may have ended."""
        for tally in [*self._peers, *(tally for tally, _ in self._liars)]:
            tally.socket.close()
        opened = [self._open() for _ in range(PEERS)]
        self._peers = [tally for tally, _ in opened]
        self._liars = [self._open_liar() for _ in range(PEERS)]
        captured = capture(self._target[1], count=CAPTURED)
        peers = [
            OpenPeer(rogue.context, rogue.own_context, rogue.datagram_bytes - HEADER_BYTES, rogue.seal)
            for _, rogue in opened
        ]
        forge = Forge(self._rng, peers=peers, captured=captured)
        self._packets = [forge.packet() for _ in range(count)]
        emit("forged", packets=count, captured=len(captured))

    def _open(self) -> tuple[Tally, RoguePeer]:
        tally, rogue = open_peer(self._target, rng=self._rng, secure=self._secure)
        self._contexts.add(rogue.context)
        return tally, rogue

    def _open_liar(self) -> tuple[Tally, Liar]:
        tally, rogue = self._open()
        return tally, Liar(rogue, rng=self._rng, overheard=lambda: self._overheard)

    def send(self, seconds: float) -> None:
        """Send all packets within `seconds`, in equal parts per tick."""
        started, sent_packets, sent_bytes = time.monotonic(), 0, 0
        rate = len(self._packets) / seconds
        senders = [*self._unknown_senders, *self._victims, *self._peers]
        while sent_packets < len(self._packets):
            due = min(int((time.monotonic() - started + TICK_S) * rate), len(self._packets))
            while sent_packets < due:
                if self._rng.random() < LIE_SHARE:
                    count, size_bytes = self._lie()
                else:
                    count = self._train(self._rng.choice(senders), sent_packets)
                    size_bytes = sum(map(len, self._packets[sent_packets : sent_packets + count]))
                sent_packets, sent_bytes = sent_packets + count, sent_bytes + size_bytes
            for tally in senders:
                tally.drain()
            self._hear()
            time.sleep(max(started + due / rate - time.monotonic(), 0.0))
        time.sleep(0.2)  # for late replies
        for tally in senders:
            tally.drain()
        unvalidated = [*self._unknown_senders, *self._victims]
        worst = max(tally.received_bytes / max(tally.sent_bytes, 1) for tally in unvalidated)
        late_s = time.monotonic() - 0.2 - started - seconds
        emit("sent", packets=sent_packets, bytes=sent_bytes, amplification=worst, late_s=late_s, lies=self._lies)

    def _lie(self) -> tuple[int, int]:
        """Send a lie; return how many packets and bytes it has."""
        if self._secure and self._lies % LIES_PER_LOOK == 0:
            self._overheard = overhear(self._target[1], own=self._contexts) or self._overheard
        self._lies += 1
        tally, liar = self._rng.choice(self._liars)
        lie = liar.next()
        tally.send(lie.data, self._target, segment_bytes=lie.segment_bytes)
        return -(-len(lie.data) // (lie.segment_bytes or len(lie.data))), len(lie.data)

    def _hear(self) -> None:
        """Process the replies to the liars; open another peer for one that has ended."""
        for index, (tally, liar) in enumerate(self._liars):
            if tally.hear(liar.hear_untrusted):
                tally.socket.close()
                self._liars[index] = self._open_liar()

    def _train(self, sender: Tally, first: int) -> int:
        """Send the next packet, or the next few as one train of the first one's size; return how many."""
        packet = self._packets[first]
        if packet and self._rng.random() < TRAIN_SHARE:
            train = self._packets[first : first + 16]
            pieces = [each[: len(packet)].ljust(len(packet), b"\0") for each in train]
            sender.send(b"".join(pieces)[:65_000], self._target, segment_bytes=len(packet))
            return len(train)
        sender.send(packet, self._target)
        return 1


def main() -> None:
    """Serve stdin."""
    host, port, seed, security = sys.argv[1:]
    attack = Attack((host, int(port)), seed=int(seed), secure=security != "plain")
    commands: dict[str, Callable[[str], None]] = {
        "forge": lambda text: attack.forge(int(text)),
        "send": lambda text: attack.send(float(text)),
    }
    for line in sys.stdin:
        verb, _, argument = line.strip().partition(" ")
        commands[verb](argument)


if __name__ == "__main__":
    main()
