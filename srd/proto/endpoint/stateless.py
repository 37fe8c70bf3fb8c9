"""Stateless replies to datagrams from unknown peers: cookies, refusals, resets. No state is kept for them.

No reply is longer than the packet that it answers, and the queue of replies is bounded: a flood from forged addresses
neither fills this endpoint's memory nor is amplified towards others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from srd.proto.base.security import Security, SecurityMode
from srd.proto.endpoint.handshake import CookieJar, is_translated
from srd.proto.wire.control import (
    Accept,
    Close,
    Closed,
    Control,
    Datagram,
    Hello,
    Probe,
    Protected,
    Refuse,
    Reset,
    Retry,
    foreign_hello_untrusted,
)
from srd.proto.wire.data import Address
from srd.proto.wire.status import RefuseReason, Status

MAX_REPLIES: Final = 64
"""Stateless replies waiting to be sent; more are dropped, since the senders will retry."""


class StatelessResponder:
    """Queues stateless replies; `replies` are to be sent before anything else."""

    def __init__(
        self,
        *,
        secret: bytes,
        accepting: bool,
        paths: int,
        datagram_bytes: int,
        security: Security | None,
        answers: Callable[[Address], bool] | None = None,
    ) -> None:
        """`answers`: whether an address gets replies; None: any does."""
        self.accepting = accepting
        self.replies: deque[Datagram] = deque()
        self._cookies = CookieJar(secret=secret)
        self._paths = paths
        self._datagram_bytes = datagram_bytes
        self._security = security
        self._answers = answers
        self._mode = SecurityMode.PLAIN if security is None else security.mode

    def reply(self, address: Address, data: bytes) -> None:
        """Queue a reply over path 0."""
        self._queue(Datagram(address, 0, data))

    def answer(self, hello: Hello, address: Address, data: bytes) -> None:
        """Queue the answer to a HELLO, over this end's path of the same number: others may be dead.

        Behind a NAT the initiator gets only what comes from the address that it has contacted, that of path 0.
        """
        path = 0 if is_translated(hello, address) else hello.path % self._paths
        self._queue(Datagram(address, path, data))

    def _queue(self, reply: Datagram) -> None:
        if len(self.replies) < MAX_REPLIES and (self._answers is None or self._answers(reply.address)):
            self.replies.append(reply)

    def on_unknown_context(self, packet: Control, address: Address) -> None:
        """Reply to a packet for a context that this end does not know (any more).

        The reply names both contexts, or has the token that this end had given with that context.
        """
        if self._security is not None:
            if isinstance(packet, Protected):
                reset = Reset(0, packet.context, self._security.reset_token(packet.context)).encode()
                if len(reset) < len(packet.data):  # two ends without state must not answer each other for ever
                    self.reply(address, reset)
        elif isinstance(packet, Close):
            self.reply(address, Closed(packet.own_context, packet.context).encode())
        elif isinstance(packet, Probe):
            self.reply(address, Reset(packet.own_context, packet.context).encode())
        elif isinstance(packet, Accept):  # the initiator's attempt has ended: it will not use that peer
            self.reply(address, Close(packet.own_context, packet.context).encode())

    def on_malformed(self, data: bytes, address: Address) -> None:
        """Reply to a packet that cannot be decoded, if it is a HELLO of another version."""
        if (context := foreign_hello_untrusted(data)) is not None:
            self.reply(address, Refuse(context, Status.REMOTE_ERROR_FEATURE_MISMATCH).encode())

    def refuse(self, hello: Hello, address: Address, *, status: Status, reason: int = RefuseReason.NONE) -> None:
        """Refuse a HELLO."""
        self.answer(hello, address, Refuse(hello.own_context, status, reason).encode())

    def validate_address(self, hello: Hello, address: Address, *, now: float, has_room: bool) -> bool:
        """Whether a HELLO may open a peer: its cookie shows that the initiator receives at its address. Else reply.

        `has_room`: whether one more peer is allowed.
        """
        if not self.accepting:
            self.refuse(hello, address, status=Status.REMOTE_ERROR_BAD_DEST_QPN)
            return False
        if hello.security != self._mode:
            reason = RefuseReason.NEEDS_PLAIN + self._mode
            self.refuse(hello, address, status=Status.REMOTE_ERROR_FEATURE_MISMATCH, reason=reason)
            return False
        if not has_room or self._cookies.is_full(address, now=now):
            self.refuse(hello, address, status=Status.REMOTE_ERROR_RNR)
            return False
        if self._cookies.check(hello.cookie, address=address, context=hello.own_context, now=now):
            return True
        cookie = self._cookies.make(address=address, context=hello.own_context, now=now)
        # As long as the HELLO, to test that size in this direction, but not longer than what this end receives.
        size_bytes = min(hello.datagram_bytes, self._datagram_bytes)
        credential = b"" if self._security is None else self._security.credential
        retry = Retry(hello.own_context, cookie, hello.path, size_bytes, credential).encode()
        if len(retry) > size_bytes:
            status = Status.REMOTE_ERROR_FEATURE_MISMATCH
            self.refuse(hello, address, status=status, reason=RefuseReason.TOO_SMALL)
        else:
            self.answer(hello, address, retry)
        return False

    def spend_cookie(self, hello: Hello, address: Address, *, now: float) -> bool:
        """Whether a valid cookie opens a peer, which it does once. Else reply: its peer has ended.

        Only an authentic HELLO spends its cookie: others could use up the memory for cookies, or an initiator's own.
        """
        if self._cookies.spend(hello.cookie, address=address, now=now):
            self.refuse(hello, address, status=Status.REMOTE_ERROR_ABORT)
            return False
        return True
