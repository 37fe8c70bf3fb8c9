"""Somebody on the path between two cards: forwards their packets, records them, and can send any of them again.

The mapping of the one card names the tap as the place of the other. It forwards from `source`: with the first card's
own address nobody notices it, with another one it is a middlebox that changes the source.
"""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from tests.nitro_emu.pattern import Bytes
from tests.patience import PATIENCE_S

Address = tuple[str, int]

MAX_RECORDED: Final = 20_000
_BUFFER_BYTES: Final = 4 << 20
_WINDOW_BYTES: Final = 8


class Tap:
    """A relay of UDP in a thread of its own, for the block."""

    def __init__(self, target: Address, *, source: str, entrance: str | None = None) -> None:
        """Forward to `target` from `source`, a host; `entrance`: where the first card sends to, default: `target`'s."""
        self.recorded: list[bytes] = []
        """All packets of both directions, in order, as they are on the wire."""
        self._target = target
        self._source = source
        self._selector = selectors.DefaultSelector()
        self._entrance = _socket(entrance or target[0])
        self._exits: dict[Address, socket.socket] = {}  # by the first card's socket
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._selector.register(self._entrance, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def port(self) -> int:
        """Where the first card is to send to, at the host of the second."""
        return int(self._entrance.getsockname()[1])

    def replay(self, packets: Sequence[bytes]) -> None:
        """Send packets to the second card from the addresses and ports that the first one's come from."""
        for number, packet in enumerate(packets):
            exits = list(self._exits.values())
            exits[number % len(exits)].sendto(packet, self._target)

    def shows(self, content: Bytes) -> bool:
        """Whether any aligned eight bytes of `content`, which occur nowhere else, are in a recorded packet."""
        wire = b"|".join(self.recorded)
        lanes = content[: len(content) // _WINDOW_BYTES * _WINDOW_BYTES].tobytes()
        return any(lanes[at : at + _WINDOW_BYTES] in wire for at in range(0, len(lanes), _WINDOW_BYTES))

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._woken:
                    return
                self._forward(key.fileobj, back_to=key.data)  # type: ignore[arg-type]

    def _forward(self, sock: socket.socket, *, back_to: Address | None) -> None:
        try:
            packet, sender = sock.recvfrom(1 << 16)
        except OSError:  # an ICMP error of a packet before
            return
        if len(self.recorded) < MAX_RECORDED:
            self.recorded.append(packet)
        try:
            if back_to is not None:
                self._entrance.sendto(packet, back_to)
            else:
                self._exit(sender).sendto(packet, self._target)
        except OSError:  # full: lost, as on any path
            return

    def _exit(self, sender: Address) -> socket.socket:
        found = self._exits.get(sender)
        if found is None:
            found = _socket(self._source)
            self._selector.register(found, selectors.EVENT_READ, data=sender)
            self._exits[sender] = found
        return found

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wake.send(b"x")
        self._thread.join(PATIENCE_S)
        for sock in (self._entrance, self._wake, self._woken, *self._exits.values()):
            sock.close()
        self._selector.close()


def _socket(host: str) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    sock.bind((host, 0))
    return sock
