"""Attackers as a process of their own: `python stranger.py frames|guesses FILE`, with a JSON object in a file.

`frames` {targets, sources, own, captured, count, seed}: sends forged packets, of nobody who has a card's key. `own`: so
many sources are no card's addresses, the last one is.
`guesses` {target, source, key, hello, qp_num, address, count,
seed}: opens peers with a card's key, says `hello` over each, and
sends as many guessed keys of sends, writes and reads as fit into its window.

They say {"event": "done", ...} in the end. So that the card reads what they send, and does not drop it before, they ask
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

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from scripts.harness.forge import Forge
from scripts.harness.rogue import RogueInitiator, RoguePeer
from srd.proto.base.errors import PacketError
from srd.proto.base.security import SecurityMode
from srd.proto.wire.control import Hello, Probe, Retry, decode_untrusted
from srd.proto.wire.data import HEADER, VERSION, Opcode, PacketType
from srd.secure.config import Keys
from tests.patience import PATIENCE_S

BATCH: Final = 200
"""Packets between two questions: less than a socket's buffer holds."""
WINDOW: Final = 3000
"""Packets of one peer, none of which is acknowledged: less than its window."""
HANDSHAKES: Final = 20
"""Complete ones, with keys of no card."""
_RESEND_S: Final = 0.1
Target = tuple[str, int]


def emit(event: str, **values: Any) -> None:
    print(json.dumps({"event": event, **values}), flush=True)


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
        self._forge = Forge(self.rng, peers=[], captured=captured)
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


# -- a card's key ---------------------------------------------------------------------------------------------------


def data_packet(rogue: RoguePeer, psn: int, *, opcode: int, key: int, offset: int, payload: bytes) -> bytes:
    header = np.zeros(1, HEADER)
    header["version"], header["type"], header["flags"] = VERSION, PacketType.DATA, opcode
    header["context"], header["psn"], header["message"] = rogue.context, psn, psn
    header["length"], header["key"], header["offset"] = len(payload), key, 0 if opcode == Opcode.SEND else offset
    return rogue.seal(header.tobytes() + payload)


def guesses(task: dict[str, Any]) -> None:
    rng = Random(task["seed"])
    host, port = task["target"]
    keys = Keys(private_key=X25519PrivateKey.from_private_bytes(bytes.fromhex(task["key"])))
    left, peers = task["count"], 0
    while left > 0:
        count = min(left, WINDOW)
        with bound(task["source"]) as sock:
            rogue = open_rogue(sock, (host, port), rng=rng, keys=keys)
            if rogue is None:
                raise ConnectionError("the card let in no peer with a card's key")
            _guess(sock, rogue, (host, port), count=count, task=task, rng=rng)
        left, peers = left - count, peers + 1
    emit("done", guesses=task["count"], peers=peers)


def _guess(
    sock: socket.socket, rogue: RoguePeer, target: Target, *, count: int, task: dict[str, Any], rng: Random
) -> None:
    sock.sendto(rogue.seal(Probe(rogue.context, rogue.own_context, 0, 0, 0).encode()), target)
    said = data_packet(rogue, 0, opcode=Opcode.SEND, key=0, offset=0, payload=bytes.fromhex(task["hello"]))
    sock.sendto(said, target)
    ask(sock, target, rng=rng)
    for psn in range(1, count + 1):
        opcode = rng.choice((Opcode.SEND, Opcode.SEND, Opcode.WRITE))
        qp_num = rng.choice((task["qp_num"], rng.getrandbits(16) | 1))
        key = qp_num << 48 | rng.getrandbits(48) if opcode is Opcode.SEND else rng.getrandbits(32) << 32 | qp_num << 16
        offset = rng.choice((0, task["address"], rng.getrandbits(47)))
        sock.sendto(data_packet(rogue, psn, opcode=opcode, key=key, offset=offset, payload=b"\xee" * 8), target)
        if psn % BATCH == 0:
            ask(sock, target, rng=rng)
    ask(sock, target, rng=rng)


if __name__ == "__main__":
    {"frames": frames, "guesses": guesses}[sys.argv[1]](json.loads(Path(sys.argv[2]).read_text()))
