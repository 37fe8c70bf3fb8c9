"""An attacker as a process of its own: `python stranger.py FILE`, with a JSON object in the file.

{targets, sources, own, captured, count, seed}: sends forged packets, of nobody who has a card's key. `own`: so many
sources are no card's addresses, the last one is.

It says {"event": "done", ...} in the end. So that the card reads what it sends, and does not drop it before, it asks
for an answer now and then: a HELLO without a cookie, which any card answers.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from netns.base.output import emit
from scripts.harness.forge import PacketForge
from scripts.harness.rogue import RogueInitiator, RoguePeer
from srd.proto.base.errors import PacketError
from srd.proto.base.security import SecurityMode
from srd.proto.wire.control import Hello, Retry, decode_untrusted
from srd.proto.wire.data import PacketType
from srd.secure.config import Keys
from tests.patience import PATIENCE_S

BATCH: Final = 200
"""Packets between two questions: less than a socket's buffer holds."""
HANDSHAKES: Final = 20
"""Complete ones, with keys of no card."""
_RESEND_S: Final = 0.1
Target = tuple[str, int]


def hello(rng: Random) -> Hello:
    return Hello(rng.getrandbits(64), 1 << 20, 1 << 14, 1 << 16, 4096, 1472, security=SecurityMode.KEYS)


def bound(host: str) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((host, 0))
    sock.settimeout(_RESEND_S)
    return sock


def ask(sock: socket.socket, target: Target, *, rng: Random) -> None:
    """Wait until the target has read everything before this."""
    question = hello(rng)
    give_up_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_at:
        sock.sendto(question.encode(), target)
        with suppress(TimeoutError, ConnectionRefusedError):
            while True:
                with suppress(PacketError):
                    reply = decode_untrusted(sock.recv(1 << 16))
                    if isinstance(reply, Retry) and reply.context == question.own_context:
                        return
    raise TimeoutError(f"{target} answers no HELLO")


def open_rogue(sock: socket.socket, target: Target, *, rng: Random, keys: Keys) -> RoguePeer | None:
    """Complete a handshake; None if it is refused, or not answered."""
    initiator = RogueInitiator(hello(rng), security=keys)
    for _ in range(10):
        sock.sendto(initiator.packet, target)
        with suppress(TimeoutError, ConnectionRefusedError):
            for _ in range(BATCH):
                reply = sock.recv(1 << 16)
                if (rogue := initiator.handle_reply(reply)) is not None:
                    return rogue
                if reply[1] == PacketType.REFUSE:
                    return None
                if reply[1] == PacketType.RETRY:
                    break
    return None


# -- no card's key --------------------------------------------------------------------------------------------------


class Frames:
    """Forged packets: noise, captured ones as they are and changed, handshakes of others and of its own."""

    def __init__(self, captured: Sequence[bytes], *, seed: int) -> None:
        self.rng = Random(seed)
        self._captured = captured
        self._forge = PacketForge(self.rng, peers=[], captured=captured)
        self._hellos = [packet for packet in captured if packet[1] == PacketType.HELLO]

    def packet(self) -> bytes:
        kind = self.rng.random()
        if kind < 0.3:
            return self._forge.packet()
        if kind < 0.5:
            return self.rng.choice(self._captured)
        return self._changed(self.rng.choice(self._captured if kind < 0.9 else self._hellos))

    def _changed(self, packet: bytes) -> bytes:
        """Return a packet with the same context, and changed bits, cut off or longer."""
        rng, changed = self.rng, bytearray(packet)
        for _ in range(rng.choice((1, 1, 2, 8))):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.2:
            del changed[rng.randrange(1, len(changed)) :]
        return bytes(changed + rng.randbytes(rng.randrange(40))) if rng.random() < 0.1 else bytes(changed)


def frames(task: dict[str, Any]) -> None:
    forge = Frames([bytes.fromhex(each) for each in task["captured"]], seed=task["seed"])
    targets: list[Target] = [(host, port) for host, port in task["targets"]]
    sockets = [bound(host) for host in task["sources"]]
    asker, opened = sockets[-1], 0  # with a card's address: the others get no answer
    for number in range(HANDSHAKES):
        keys = Keys(private_key=X25519PrivateKey.generate())
        opened += open_rogue(asker, targets[number % len(targets)], rng=forge.rng, keys=keys) is not None
    for number in range(task["count"]):
        with suppress(OSError):
            sockets[number % len(sockets)].sendto(forge.packet(), targets[number % len(targets)])
        if number % BATCH == BATCH - 1:
            for target in targets:
                ask(asker, target, rng=forge.rng)
    emit("done", frames=task["count"], opened=opened, answers=sum(answers(sock) for sock in sockets[: task["own"]]))


def answers(sock: socket.socket) -> int:
    """Return how many packets wait at a socket."""
    count = 0
    sock.settimeout(0)
    with suppress(BlockingIOError, ConnectionRefusedError):
        while sock.recv(1 << 16):
            count += 1
    return count


if __name__ == "__main__":
    frames(json.loads(Path(sys.argv[1]).read_text()))
