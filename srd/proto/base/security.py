"""The core's interface to encryption: a handshake, and the protection of packets. `srd.secure` implements it.

The core itself does no cryptography: without a `Security` it speaks plain text. Names are those of the handshake in
`endpoint.handshake`: the initiator sends HELLO, the responder answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol


class SecurityMode(IntEnum):
    """How the two ends of a peer know each other. Both must have the same mode; HELLO and REFUSE name it."""

    PLAIN = 0
    """Not at all: nothing is encrypted."""
    PSK = 1
    """Both know a symmetric key."""
    KEYS = 2
    """By their public keys."""
    CERT = 3
    """By certificates of their public keys."""


PUBLIC_KEY_BYTES = 32
"""Length of a public key of Curve25519."""
MAX_CREDENTIAL_BYTES = 960
"""Longest credential (public key or certificate): a HELLO and a RETRY with it fit into IPv6's smallest MTU."""
CredentialCheck = Callable[[bytes], str | None]
"""Takes a responder's credential, and returns why it is not accepted, or None."""


class PacketProtection(Protocol):
    """The keys of one peer; see `srd.secure.session`."""

    rtt_s: float
    """The round trip to the peer, which the core sets: old keys are kept for some of them."""
    forged: int
    """Packets that were not authentic."""
    replayed: int
    """Packets that were received before."""

    def on_contexts(self, *, own: int, remote: int) -> None:
        """Note the contexts of both ends."""

    def seal_control(self, packet: bytes, *, context: int, now: float) -> bytes:
        """Return a control packet protected, for the peer's `context`."""

    def open_control_untrusted(self, data: bytes, *, now: float) -> bytes:
        """Return the control packet in a protected one. Raises PacketError if it is not authentic, or not new."""


@dataclass(frozen=True, slots=True)
class Secured:
    """The result of a handshake at one end."""

    protection: PacketProtection
    reset_token: bytes
    """What a RESET by the other end carries."""
    credential: bytes
    """The other end's public key or certificate; empty where it proves nothing (PSK)."""
    payload: bytes
    """What the other end's last message contained."""


class Initiation(Protocol):
    """The initiator's part of one handshake."""

    @property
    def message(self) -> bytes:
        """The handshake message of the HELLO."""

    def read_untrusted(self, message: bytes, *, now: float) -> Secured:
        """Complete the handshake by the responder's message. Raises PacketError, and may be called again then."""


class Response(Protocol):
    """The responder's part of one handshake, after the initiator's message was read."""

    @property
    def is_authorized(self) -> bool:
        """Whether the initiator may open a peer."""

    def write(self, payload: bytes, *, context: int, now: float) -> tuple[bytes, Secured]:
        """Return the responder's message with `payload`. `context`: the one that the responder chose."""


class Security(Protocol):
    """What an endpoint needs for handshakes in one mode."""

    @property
    def mode(self) -> SecurityMode:
        """The mode."""

    @property
    def credential(self) -> bytes:
        """What a RETRY tells: the public key, or its certificate."""

    def initiate_untrusted(self, credential: bytes, *, transcript: bytes, context: int) -> Initiation:
        """Begin a handshake with the responder that has `credential`, bound to `transcript`.

        `context`: the one that the initiator chose. Raises PacketError for an invalid credential.
        """

    def respond_untrusted(self, message: bytes, *, transcript: bytes) -> Response:
        """Read the message of a HELLO. Raises PacketError if it does not fit this end's key and the transcript."""

    def reset_token(self, context: int) -> bytes:
        """Return what proves that this end chose `context`: 16 bytes."""
