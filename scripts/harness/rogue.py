"""A peer that keeps the rules of the handshake and no others: for attackers whose packets shall be authentic.

In plain text its packets stay as they are. Else it completes the handshake with keys that let it in, and encrypts
whatever it is given, as long as that has the length of a header. What it makes of that is authentic: its tags are
right, whatever the headers say.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, cast

from srd.proto.base.errors import PacketError
from srd.proto.base.security import Initiation
from srd.proto.wire.control import (
    Accept,
    Control,
    Hello,
    Protected,
    Retry,
    SecureAccept,
    accept_untrusted,
    decode_untrusted,
)
from srd.proto.wire.data import HEADER_BYTES, PacketType
from srd.proto.wire.protected import TAG_BYTES
from srd.secure.config import SecurityConfig
from srd.secure.session import Session

REPEAT_S: Final = 0.2
"""Time after which an unanswered HELLO is sent again."""
_SEQUENCE: Final = struct.Struct(">I")
_SEQUENCE_AT: Final = 4


class RoguePeer:
    """An open peer, from the attacker's view."""

    def __init__(self, accept: Accept, *, session: Session | None) -> None:
        """`session`: its keys; None: plain text."""
        self.own_context, self.context = accept.context, accept.own_context
        self.datagram_bytes = accept.datagram_bytes - TAG_BYTES * (session is not None)
        self.is_secure = session is not None
        self._session = session
        self._path_sequence = 0

    @property
    def path_sequence(self) -> int:
        return self._path_sequence

    def seal(self, packet: bytes) -> bytes:
        """Return a packet as it is sent to the peer: authentic, whatever it says. What is too short stays as it is."""
        if self._session is None:
            return packet
        if packet[1:2] != bytes([PacketType.DATA]):
            return self._session.seal_control(packet, context=self.context, now=time.monotonic())
        if len(packet) < HEADER_BYTES:
            return packet
        return self._seal_data(packet, session=self._session)

    def seal_train(self, packets: Sequence[bytes], *, path: int) -> bytes:
        """Return data packets as one train, with the next numbers on a path; their headers stay as they are.

        All have the length of the first, but for the last, which may be shorter.
        """
        if self._session is None:
            return b"".join(packets)
        size, count = len(packets[0]) + TAG_BYTES, len(packets)
        sealed = memoryview(bytearray(count * size))
        for index, packet in enumerate(packets):
            sealed[index * size : index * size + HEADER_BYTES] = packet[:HEADER_BYTES]
        sequence, self._path_sequence = self._path_sequence, self._path_sequence + count
        used = self._session.seal_data(
            sealed,
            [memoryview(packet)[HEADER_BYTES:] for packet in packets],
            count=count,
            segment_bytes=size - HEADER_BYTES - TAG_BYTES,
            path=path,
            path_sequence=sequence,
            now=time.monotonic(),
        )
        return bytes(sealed[:used])

    def open_untrusted(self, data: bytes) -> Control:
        """Return a control packet from the peer in plain text, if it is authentic. Raises PacketError."""
        packet = decode_untrusted(data)
        if self._session is not None and isinstance(packet, Protected) and packet.context == self.own_context:
            return decode_untrusted(self._session.open_control_untrusted(data, now=time.monotonic()))
        return packet

    def update_keys(self) -> None:
        """Change the keys; the peer follows with the next packet, if that arrives."""
        if self._session is not None:
            self._session.update(now=time.monotonic())

    def _seal_data(self, packet: bytes, *, session: Session) -> bytes:
        """Encrypt data. Its path sequence becomes the next one, which the receiver takes for new."""
        sealed = memoryview(bytearray(packet) + bytes(TAG_BYTES))
        sequence, self._path_sequence = self._path_sequence, self._path_sequence + 1
        _SEQUENCE.pack_into(sealed, _SEQUENCE_AT, sequence & 0xFFFFFFFF)
        session.seal_data(
            sealed,
            [memoryview(packet)[HEADER_BYTES:]],
            count=1,
            segment_bytes=len(packet) - HEADER_BYTES,
            path=packet[3],
            path_sequence=sequence,
            now=time.monotonic(),
        )
        return bytes(sealed)


class RogueInitiator:
    """A handshake, without a socket: send `packet`, and give it the replies."""

    def __init__(self, hello: Hello, *, security: SecurityConfig) -> None:
        """Begin with a HELLO that has no cookie yet; `security`: who it is."""
        trust = security.open(socket_id=b"")
        self._handshakes = trust.handshakes
        self._hello = replace(hello, security=trust.mode)
        self._initiation: Initiation | None = None

    @property
    def own_context(self) -> int:
        return self._hello.own_context

    @property
    def packet(self) -> bytes:
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


def open_rogue(
    sock: socket.socket,
    target: tuple[str, int],
    hello: Hello,
    *,
    security: SecurityConfig,
    bound_s: float,
) -> RoguePeer:
    """Complete a handshake over a socket. Raises TimeoutError when it takes longer than `bound_s`."""
    initiator, give_up_at, before = RogueInitiator(hello, security=security), time.monotonic() + bound_s, b""
    send_at, timeout = 0.0, sock.gettimeout()
    try:
        while (now := time.monotonic()) < give_up_at:
            if now >= send_at or initiator.packet != before:
                before, send_at = initiator.packet, now + REPEAT_S
                sock.sendto(before, target)
            sock.settimeout(max(send_at - now, 0.001))
            with suppress(TimeoutError, ConnectionRefusedError):
                if (rogue := initiator.handle_reply(sock.recv(1 << 16))) is not None:
                    return rogue
    finally:
        sock.settimeout(timeout)
    raise TimeoutError(f"{target} did not open a peer within {bound_s:g} s")
