"""The Noise protocol framework (noiseprotocol.org/noise.html, revision 34), with Curve25519, AES-256-GCM and SHA-256.

The names are the specification's (section 5), so that one can be read beside the other. A handshake pattern is data.
SRD uses `IKPSK2`, WireGuard's pattern: the initiator knows the responder's static key before it sends anything, its own
goes out encrypted, and a symmetric key is mixed in before the last message. The tests run it, and IK, against public
test vectors.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from srd.proto.base.errors import PacketError

KEY_BYTES: Final = 32
"""Length of public keys, symmetric keys and hashes: DHLEN and HASHLEN."""
TAG_BYTES: Final = 16
_T = TypeVar("_T")
_REKEY_NONCE: Final = (1 << 64) - 1  # reserved by the specification


@dataclass(frozen=True, slots=True)
class Pattern:
    """A handshake pattern in which the responder's static key is known before: the tokens of each message."""

    name: str
    messages: tuple[tuple[str, ...], ...]

    @property
    def has_psk(self) -> bool:
        """Whether a symmetric key is mixed in."""
        return any("psk" in message for message in self.messages)


IKPSK2: Final = Pattern("IKpsk2", (("e", "es", "s", "ss"), ("e", "ee", "se", "psk")))


def hkdf(chaining_key: bytes, material: bytes, *, outputs: int) -> tuple[bytes, ...]:
    """Return two or three outputs of HKDF (RFC 5869) with `chaining_key` as the salt and no info."""
    extracted = hmac.digest(chaining_key, material, "sha256")
    found: list[bytes] = []
    last = b""
    for number in range(1, outputs + 1):
        last = hmac.digest(extracted, last + bytes([number]), "sha256")
        found.append(last)
    return tuple(found)


class CipherState:
    """A key and a counter; without a key everything passes in plain text."""

    def __init__(self) -> None:
        self._aead: AESGCM | None = None
        self._nonce = 0

    def initialize_key(self, key: bytes) -> None:
        """Set the key, and the counter to zero."""
        self._aead, self._nonce = AESGCM(key), 0

    @property
    def has_key(self) -> bool:
        """Whether a key is set."""
        return self._aead is not None

    def encrypt_with_ad(self, ad: bytes, plaintext: bytes) -> bytes:
        """Encrypt, and count."""
        return plaintext if self._aead is None else self._aead.encrypt(self._next_nonce(), plaintext, ad)

    def decrypt_with_ad_untrusted(self, ad: bytes, ciphertext: bytes) -> bytes:
        """Decrypt, and count. Raises PacketError where the tag is wrong."""
        if self._aead is None:
            return ciphertext
        try:
            return self._aead.decrypt(self._next_nonce(), ciphertext, ad)
        except InvalidTag as error:
            raise PacketError("a handshake message is not authentic") from error

    def _next_nonce(self) -> bytes:
        nonce, self._nonce = self._nonce, self._nonce + 1
        assert nonce < _REKEY_NONCE  # noqa: S101 - two messages use two at most
        return bytes(4) + nonce.to_bytes(8, "big")


class SymmetricState:
    """What both ends have agreed on so far: the chaining key, and the hash of the transcript."""

    def __init__(self, protocol_name: bytes) -> None:
        short = len(protocol_name) <= KEY_BYTES
        self.h = protocol_name.ljust(KEY_BYTES, b"\0") if short else hashlib.sha256(protocol_name).digest()
        self._ck = self.h
        self._cipher = CipherState()

    @property
    def has_key(self) -> bool:
        """Whether what follows is encrypted."""
        return self._cipher.has_key

    def mix_key(self, material: bytes) -> None:
        """Mix the result of a key agreement into the key."""
        self._ck, key = hkdf(self._ck, material, outputs=2)
        self._cipher.initialize_key(key)

    def mix_hash(self, data: bytes) -> None:
        """Mix what was sent or received into the transcript."""
        self.h = hashlib.sha256(self.h + data).digest()

    def mix_key_and_hash(self, material: bytes) -> None:
        """Mix a symmetric key into both."""
        self._ck, hashed, key = hkdf(self._ck, material, outputs=3)
        self.mix_hash(hashed)
        self._cipher.initialize_key(key)

    def encrypt_and_hash(self, plaintext: bytes) -> bytes:
        """Encrypt what is to be sent, bound to the transcript."""
        ciphertext = self._cipher.encrypt_with_ad(self.h, plaintext)
        self.mix_hash(ciphertext)
        return ciphertext

    def decrypt_and_hash_untrusted(self, ciphertext: bytes) -> bytes:
        """Decrypt what was received. Raises PacketError if it does not fit the transcript."""
        plaintext = self._cipher.decrypt_with_ad_untrusted(self.h, ciphertext)
        self.mix_hash(ciphertext)
        return plaintext

    def split(self) -> tuple[bytes, bytes]:
        """Return the secrets of both directions: the initiator's, the responder's."""
        to_responder, to_initiator = hkdf(self._ck, b"", outputs=2)
        return to_responder, to_initiator


class HandshakeState:
    """One end of a handshake: `write_message` and `read_message_untrusted` in turn, until `is_complete`.

    After an error the state is of no more use.
    """

    def __init__(
        self,
        pattern: Pattern,
        *,
        initiator: bool,
        prologue: bytes,
        static: X25519PrivateKey,
        remote_static: bytes | None = None,
        psk: bytes | None = None,
        new_key: Callable[[], X25519PrivateKey] = X25519PrivateKey.generate,
    ) -> None:
        """Begin a handshake.

        `remote_static`: the responder's key, at the initiator; `psk`: 32 bytes, for a pattern that has one; `new_key`
        makes the ephemeral key.
        """
        self.remote_static = remote_static
        self._initiator = initiator
        self._messages = list(pattern.messages)
        self._writes = initiator
        self._has_psk = pattern.has_psk
        self._static, self._psk, self._new_key = static, psk, new_key
        self._ephemeral: X25519PrivateKey | None = None
        self._remote_ephemeral: bytes | None = None
        self._symmetric = SymmetricState(f"Noise_{pattern.name}_25519_AESGCM_SHA256".encode())
        self._symmetric.mix_hash(prologue)
        self._symmetric.mix_hash(_known(remote_static) if initiator else public_bytes(static))

    @property
    def is_complete(self) -> bool:
        """Whether all messages were exchanged."""
        return not self._messages

    @property
    def transcript(self) -> bytes:
        """The hash of everything so far; the same at both ends, and different for every handshake."""
        return self._symmetric.h

    def write_message(self, payload: bytes) -> bytes:
        """Return the next message of this end."""
        out = b""
        for step in self._next_message(writes=True):
            if step == "e":
                self._ephemeral = self._new_key()
                out += self._note_ephemeral(public_bytes(self._ephemeral))
            elif step == "s":
                out += self._symmetric.encrypt_and_hash(public_bytes(self._static))
            else:
                self._mix(step)
        return out + self._symmetric.encrypt_and_hash(payload)

    def read_message_untrusted(self, message: bytes) -> bytes:
        """Return the payload of the other end's next message. Raises PacketError if it is not authentic."""
        at = 0
        for step in self._next_message(writes=False):
            if step == "e":
                self._remote_ephemeral = self._note_ephemeral(_take(message, at, KEY_BYTES))
                at += KEY_BYTES
            elif step == "s":
                size = KEY_BYTES + TAG_BYTES * self._symmetric.has_key
                self.remote_static = self._symmetric.decrypt_and_hash_untrusted(_take(message, at, size))
                at += size
            else:
                self._mix(step)
        return self._symmetric.decrypt_and_hash_untrusted(message[at:])

    def split(self) -> tuple[bytes, bytes]:
        """Return the secrets of this end's direction and of the other's. Both are 32 bytes."""
        assert self.is_complete  # noqa: S101 - an error of the caller
        to_responder, to_initiator = self._symmetric.split()
        return (to_responder, to_initiator) if self._initiator else (to_initiator, to_responder)

    def _next_message(self, *, writes: bool) -> tuple[str, ...]:
        assert self._writes is writes, "not this end's turn"  # noqa: S101 - an error of the caller
        self._writes = not self._writes
        return self._messages.pop(0)

    def _note_ephemeral(self, public: bytes) -> bytes:
        self._symmetric.mix_hash(public)
        if self._has_psk:  # a psk must never encrypt the same twice (section 9.2)
            self._symmetric.mix_key(public)
        return public

    def _mix(self, step: str) -> None:
        if step == "psk":
            self._symmetric.mix_key_and_hash(_known(self._psk))
            return
        initiators, responders = (
            step[0],
            step[1],
        )  # whose keys: "es" is the initiator's ephemeral, the responder's static
        own, remote = (initiators, responders) if self._initiator else (responders, initiators)
        private = _known(self._ephemeral if own == "e" else self._static)
        public = _known(self._remote_ephemeral if remote == "e" else self.remote_static)
        self._symmetric.mix_key(agree_untrusted(private, public))


def public_bytes(private: X25519PrivateKey) -> bytes:
    """Return the public key of a private one."""
    return private.public_key().public_bytes_raw()


def agree_untrusted(private: X25519PrivateKey, public: bytes) -> bytes:
    """Return the shared secret (X25519, RFC 7748). Raises PacketError for a public key of small order."""
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:
        raise PacketError("a public key has small order") from error


def _known(value: _T | None) -> _T:
    assert value is not None, "the pattern needs a key that was not given"  # noqa: S101 - an error of the caller
    return value


def _take(message: bytes, at: int, size: int) -> bytes:
    if len(message) < at + size:
        raise PacketError(f"a handshake message of {len(message)} bytes is cut short")
    return message[at : at + size]
