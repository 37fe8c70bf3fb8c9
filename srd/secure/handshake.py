"""The handshake's cryptography: Noise_IKpsk2_25519_AESGCM_SHA256, as in WireGuard, within HELLO, RETRY and ACCEPT.

    HELLO    no key yet                    RETRY    cookie, the responder's credential
    HELLO    cookie, first Noise message   ACCEPT   second Noise message

Rules.
1. There is one pattern for all modes. `KEYS`: the symmetric key is zero unless one is set, and an end is who its static
   key says. `CERT`: the same, and an authority has certified the keys. `PSK`: each endpoint makes a static key when it
   is opened, which proves nothing; the symmetric key does.
2. The initiator learns the responder's credential (its key, or its certificate) from the RETRY, and its owner says
   whether it is the right one before anything else is sent (`CredentialCheck`). So a first contact needs no third
   message. Who asks learns a responder's credential, as with SSH; the initiator's own goes out encrypted for the
   responder.
3. The prologue is the HELLO up to its cookie. So every parameter of it is bound to the keys, and so is the cookie,
   which is valid once, for one address: a message that is replayed in another HELLO is not authentic.
4. The payloads: suites that the sender has, or the suite that is used (a byte), the sender's reset token (16 bytes),
   and, from the initiator, its certificate if it has one, from the responder the body of the ACCEPT.
5. The responder knows that the initiator has the keys when the first packet is authentic. Until then the peer is not
   open at its end.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from srd.proto.base.errors import PacketError
from srd.proto.base.security import PUBLIC_KEY_BYTES, Secured, SecurityMode
from srd.secure.certificates import key_of_untrusted
from srd.secure.noise import IKPSK2, HandshakeState, public_bytes
from srd.secure.packets import Suite, derive
from srd.secure.session import SecretLog, Session

PSK_BYTES: Final = 32
RESET_TOKEN_BYTES: Final = 16
NO_PSK: Final = bytes(PSK_BYTES)
"""Stands for no symmetric key, as in WireGuard."""


def preferred_suite(cpuinfo: Path = Path("/proc/cpuinfo")) -> Suite:
    """Return the faster suite on this processor: AES-GCM where there are instructions for AES."""
    try:
        words = set(cpuinfo.read_text().split())
    except OSError:
        return Suite.AES_256_GCM
    return Suite.AES_256_GCM if "aes" in words else Suite.CHACHA20_POLY1305


class Handshakes:
    """The handshakes of one endpoint; implements `srd.proto.base.security.Security`."""

    def __init__(
        self,
        mode: SecurityMode,
        *,
        static: X25519PrivateKey,
        psk: bytes = NO_PSK,
        socket_id: bytes = b"",
        certificate: bytes = b"",
        authorize: Callable[[bytes], bool] | None = None,
        suite: Suite | None = None,
        log_secret: SecretLog | None = None,
    ) -> None:
        """Take the endpoint's static key.

        `socket_id`: what only the socket of this endpoint has (`srd.io.socket.socket_id`); `certificate`:
        of the key, with `CERT`; `authorize`: whether the holder of a credential may open a peer, None: everybody;
        `suite`: what this end prefers; `log_secret`: receives the secrets of each peer.
        """
        self.mode = mode
        self.credential = certificate or public_bytes(static)
        self._static, self._psk, self._authorize = static, psk, authorize
        self.certificate = certificate
        self._suite = suite or preferred_suite()
        self._log_secret = log_secret
        self._reset_key = derive(static.private_bytes_raw(), b"srd reset " + socket_id)

    def reset_token(self, context: int) -> bytes:
        """Return what proves that this end chose `context`."""
        return derive(self._reset_key, context.to_bytes(8, "big"))[:RESET_TOKEN_BYTES]

    def initiate_untrusted(self, credential: bytes, *, transcript: bytes, context: int) -> NoiseInitiation:
        """Begin a handshake, bound to `transcript`. Raises PacketError for an invalid credential."""
        return NoiseInitiation(self, credential, transcript=transcript, context=context)

    def key_of_untrusted(self, credential: bytes) -> bytes:
        """Return the public key of a credential. Raises PacketError."""
        key = key_of_untrusted(credential) if self.mode is SecurityMode.CERT else credential
        if len(key) != PUBLIC_KEY_BYTES:
            raise PacketError("the answer has no public key")
        return key

    def respond_untrusted(self, message: bytes, *, transcript: bytes) -> NoiseResponse:
        """Read the message of a HELLO. Raises PacketError if it does not fit this end's key and the transcript."""
        state = self.state(transcript=transcript, responder_key=None)
        return NoiseResponse(self, state, payload=state.read_message_untrusted(message))

    def state(
        self, *, transcript: bytes, responder_key: bytes | None, ephemeral: X25519PrivateKey | None = None
    ) -> HandshakeState:
        """Return a new handshake: with a `responder_key` the initiator's, else the responder's."""
        return HandshakeState(
            IKPSK2,
            initiator=responder_key is not None,
            prologue=transcript,
            static=self._static,
            remote_static=responder_key,
            psk=self._psk,
            new_key=X25519PrivateKey.generate if ephemeral is None else lambda: ephemeral,
        )

    def admits(self, credential: bytes) -> bool:
        """Whether the holder of a credential may open a peer."""
        return self._authorize is None or self._authorize(credential)

    def choose(self, offered: int) -> Suite:
        """Return the suite for an initiator that offers so many, as bits. Raises PacketError without a common one."""
        common = offered & self.offer
        if not common:
            raise PacketError(f"suites {offered:#x} have none in common with {self.offer:#x}")
        return Suite.AES_256_GCM if common & Suite.AES_256_GCM else Suite.CHACHA20_POLY1305

    @property
    def offer(self) -> int:
        """The suites that this end offers, as bits: both, or only the slower if this processor lacks AES."""
        return Suite.CHACHA20_POLY1305 | (Suite.AES_256_GCM if self._suite is Suite.AES_256_GCM else 0)

    def secured(self, state: HandshakeState, *, suite: Suite, credential: bytes, payload: bytes, now: float) -> Secured:
        """Return the result of a complete handshake; `payload`: of the other end, without the suite."""
        send_secret, receive_secret = state.split()
        session = Session(
            send_secret=send_secret, receive_secret=receive_secret, suite=suite, now=now, log_secret=self._log_secret
        )
        shown = b"" if self.mode is SecurityMode.PSK else credential
        return Secured(session, payload[:RESET_TOKEN_BYTES], shown, payload[RESET_TOKEN_BYTES:])


def _split_untrusted(payload: bytes) -> tuple[int, bytes]:
    if len(payload) < 1 + RESET_TOKEN_BYTES:
        raise PacketError(f"a handshake payload of {len(payload)} bytes is cut short")
    return payload[0], payload[1:]


class NoiseInitiation:
    """The initiator's part; implements `srd.proto.base.security.Initiation`."""

    def __init__(self, owner: Handshakes, credential: bytes, *, transcript: bytes, context: int) -> None:
        self._owner, self._credential, self._transcript, self._context = owner, credential, transcript, context
        self._responder_key = owner.key_of_untrusted(credential)
        self._ephemeral = X25519PrivateKey.generate()
        state, self.message = self._begin()
        self._unused: HandshakeState | None = state

    def _begin(self) -> tuple[HandshakeState, bytes]:
        state = self._owner.state(
            transcript=self._transcript, responder_key=self._responder_key, ephemeral=self._ephemeral
        )
        token = self._owner.reset_token(self._context)
        return state, state.write_message(bytes([self._owner.offer]) + token + self._owner.certificate)

    def read_untrusted(self, message: bytes, *, now: float) -> Secured:
        """Complete the handshake. After a PacketError another message may be tried: anybody may have sent the first."""
        state, self._unused = self._unused or self._begin()[0], None
        number, payload = _split_untrusted(state.read_message_untrusted(message))
        if number not in (Suite.AES_256_GCM, Suite.CHACHA20_POLY1305) or not number & self._owner.offer:
            raise PacketError(f"suite {number} was not offered")
        return self._owner.secured(state, suite=Suite(number), credential=self._credential, payload=payload, now=now)


class NoiseResponse:
    """The responder's part; implements `srd.proto.base.security.Response`."""

    def __init__(self, owner: Handshakes, state: HandshakeState, *, payload: bytes) -> None:
        self._owner, self._state = owner, state
        offered, self._payload = _split_untrusted(payload)
        self._suite = owner.choose(offered)
        assert state.remote_static is not None  # noqa: S101 - of the message that was read
        self._credential = state.remote_static
        if owner.mode is SecurityMode.CERT:
            self._credential = self._payload[RESET_TOKEN_BYTES:]
            if owner.key_of_untrusted(self._credential) != state.remote_static:
                raise PacketError("a certificate is of another key")

    @property
    def is_authorized(self) -> bool:
        """Whether the initiator may open a peer."""
        return self._owner.admits(self._credential)

    def write(self, payload: bytes, *, context: int, now: float) -> tuple[bytes, Secured]:
        """Return the responder's message with `payload`, and the result."""
        message = self._state.write_message(bytes([self._suite]) + self._owner.reset_token(context) + payload)
        secured = self._owner.secured(
            self._state, suite=self._suite, credential=self._credential, payload=self._payload, now=now
        )
        return message, secured
