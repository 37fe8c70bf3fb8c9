"""What is said to those that have no peer here: cookies, refusals, resets. Nothing is remembered of them.

No answer is longer than its question, and only so many wait to be sent: whoever floods an endpoint from forged
addresses neither fills its memory nor has it flood others.
"""

from __future__ import annotations

from collections import deque

from srd.proto.handshake import CookieJar
from srd.proto.wire.control import (
    Accept,
    Close,
    Closed,
    Control,
    Datagram,
    Hello,
    Probe,
    Refuse,
    Reset,
    Retry,
    foreign_hello_untrusted,
)
from srd.proto.wire.data import Address
from srd.proto.wire.status import Status

MAX_REPLIES = 64
"""Stateless answers (cookies, resets) waiting to be sent; more are dropped, as their askers will ask again."""


class StatelessResponder:
    """`replies` are to be sent before anything else."""

    def __init__(self, *, secret: bytes, accepting: bool, paths: int, datagram_bytes: int) -> None:
        self.accepting = accepting
        self.replies: deque[Datagram] = deque()
        self._cookies = CookieJar(secret=secret)
        self._paths = paths
        self._datagram_bytes = datagram_bytes

    def reply(self, address: Address, data: bytes, *, path: int = 0) -> None:
        """Answer a packet, over our path of the number `path`, or what remains of it."""
        if len(self.replies) < MAX_REPLIES:
            self.replies.append(Datagram(address, path % self._paths, data))

    def on_unknown_context(self, packet: Control, address: Address) -> None:
        """Answer a packet for a context that is not, or no longer, ours. The answer names both contexts."""
        if isinstance(packet, Close):
            self.reply(address, Closed(packet.own_context, packet.context).encode())
        elif isinstance(packet, Probe):
            self.reply(address, Reset(packet.own_context, packet.context).encode())
        elif isinstance(packet, Accept):  # whoever asked has given up since: nobody here will use that peer
            self.reply(address, Close(packet.own_context, packet.context).encode())

    def on_malformed(self, data: bytes, address: Address) -> None:
        """Answer what is no packet of ours, if it is another version's way to ask for a peer."""
        if (context := foreign_hello_untrusted(data)) is not None:
            self.reply(address, Refuse(context, Status.REMOTE_ERROR_FEATURE_MISMATCH).encode())

    def refuse(self, hello: Hello, address: Address, *, status: Status) -> None:
        """Say no."""
        self.reply(address, Refuse(hello.own_context, status).encode(), path=hello.path)

    def validate_address(self, hello: Hello, address: Address, *, now: float, has_room: bool) -> bool:
        """Whether a HELLO may open a peer: it is at the address that it names, as it has our cookie. Else answer it.

        `has_room`: for one more peer.
        """
        if not self.accepting:
            self.refuse(hello, address, status=Status.REMOTE_ERROR_BAD_DEST_QPN)
            return False
        if not has_room or self._cookies.is_full(now=now):
            self.refuse(hello, address, status=Status.REMOTE_ERROR_RNR)
            return False
        if self._cookies.check(hello.cookie, address=address, context=hello.own_context, now=now):
            if self._cookies.spend(hello.cookie, now=now):
                self.refuse(hello, address, status=Status.REMOTE_ERROR_ABORT)  # that peer has been, and is no more
                return False
            return True
        cookie = self._cookies.make(address=address, context=hello.own_context, now=now)
        # As long as the HELLO, so that it shows what passes in this direction, but not longer than what we take.
        size_bytes = min(hello.datagram_bytes, self._datagram_bytes)
        self.reply(address, Retry(hello.own_context, cookie, hello.path, size_bytes).encode(), path=hello.path)
        return False
