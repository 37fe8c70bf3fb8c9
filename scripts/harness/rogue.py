"""A peer that keeps the rules of the handshake and no others: for attackers whose packets shall be authentic.

In plain text its packets stay as they are. Else it completes the handshake with a key of its own, which anybody may
have, and encrypts whatever it is given, as long as that has the length of a header.
"""

from __future__ import annotations

import struct
import time
from dataclasses import replace
from typing import Final, cast

from srd.proto.errors import PacketError
from srd.proto.security import Initiation, SecurityMode
from srd.proto.wire.control import Accept, Hello, Retry, SecureAccept, accept_untrusted, decode_untrusted
from srd.proto.wire.data import HEADER_BYTES, PacketType
from srd.proto.wire.protected import TAG_BYTES
from srd.secure.config import Keys
from srd.secure.session import Session, packet_views

_SEQUENCE: Final = struct.Struct(">I")
_SEQUENCE_AT: Final = 4


class RoguePeer:
    """An open peer, from the attacker's view."""

    def __init__(self, accept: Accept, *, session: Session | None) -> None:
        """`session`: its keys; None: plain text."""
        self.own_context, self.context = accept.context, accept.own_context
        self.datagram_bytes = accept.datagram_bytes - TAG_BYTES * (session is not None)
        self._session = session
        self._path_sequence = 0

    def seal(self, packet: bytes) -> bytes:
        """Return a packet as it is sent to the peer: authentic, whatever it says. What is too short stays as it is."""
        if self._session is None:
            return packet
        if packet[1:2] != bytes([PacketType.DATA]):
            return self._session.seal_control(packet, context=self.context, now=time.monotonic())
        if len(packet) < HEADER_BYTES:
            return packet
        return self._seal_data(packet, session=self._session)

    def _seal_data(self, packet: bytes, *, session: Session) -> bytes:
        """Encrypt data. Its path sequence becomes the next one, which the receiver takes for new."""
        sealed = memoryview(bytearray(packet) + bytes(TAG_BYTES))
        sequence, self._path_sequence = self._path_sequence, self._path_sequence + 1
        _SEQUENCE.pack_into(sealed, _SEQUENCE_AT, sequence & 0xFFFFFFFF)
        session.seal_data(
            sealed,
            packet_views(sealed, size_bytes=len(sealed), count=1),
            [memoryview(packet)[HEADER_BYTES:]],
            path=packet[3],
            path_sequence=sequence,
            now=time.monotonic(),
        )
        return bytes(sealed)


class RogueInitiator:
    """A handshake, without a socket: send `packet`, and give it the replies."""

    def __init__(self, hello: Hello, *, secure: bool, keys: Keys | None = None) -> None:
        """Begin with a HELLO that has no cookie yet; `secure`: by keys instead of in plain text, `keys`: which."""
        self._handshakes = (keys or Keys()).open(socket_id=b"").handshakes if secure else None
        self._hello = replace(hello, security=SecurityMode.KEYS if secure else SecurityMode.PLAIN)
        self._initiation: Initiation | None = None

    @property
    def own_context(self) -> int:
        """The context that it chose."""
        return self._hello.own_context

    @property
    def packet(self) -> bytes:
        """The HELLO that is to be sent now."""
        return self._hello.encode()

    def handle_reply(self, data: bytes) -> RoguePeer | None:
        """Process a reply; return the peer once it is open."""
        try:
            reply = decode_untrusted(data)
            if not isinstance(reply, Retry | Accept | SecureAccept) or reply.context != self._hello.own_context:
                return None
            if isinstance(reply, Retry):
                self._use_cookie(reply)
            elif isinstance(reply, Accept) and self._handshakes is None:
                return RoguePeer(reply, session=None)
            elif isinstance(reply, SecureAccept) and self._initiation is not None:
                secured = self._initiation.read_untrusted(reply.message, now=time.monotonic())
                accept = accept_untrusted(reply.context, secured.payload)
                return RoguePeer(accept, session=cast(Session, secured.protection))
        except PacketError:
            pass
        return None

    def _use_cookie(self, retry: Retry) -> None:
        if self._hello.cookie:
            return
        hello = replace(self._hello, cookie=retry.cookie)
        if self._handshakes is not None:
            context = hello.own_context
            self._initiation = self._handshakes.initiate_untrusted(
                retry.credential, transcript=hello.transcript, context=context
            )
            hello = replace(hello, message=self._initiation.message)
        self._hello = hello
