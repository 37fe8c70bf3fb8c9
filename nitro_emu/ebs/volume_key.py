"""A volume's key: made for one card, and wrapped so that no other can use it.

    key, wrapped = make(card=public_key, volume="vol-1")
    key = unwrap(wrapped, card=private_key, volume="vol-1")

HPKE (RFC 9180) of the `cryptography` package: X25519, HKDF-SHA256, AES-256-GCM. The volume's name is bound to it, so
that no server can hand out another volume's key. The card's key is the one that its mappings know it by; its security
chip releases it to software that is as signed, and without a chip it is a file.
"""

from __future__ import annotations

import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from nitro_emu.ebs.errors import VolumeError
from nitro_emu.ebs.xts import KEY_BYTES

WRAPPED_BYTES: Final = 32 + KEY_BYTES + 16
"""The encapsulated key, the ciphertext and its tag."""

_SUITE: Final = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
_INFO: Final = b"open-srd volume key v1 "


def make(*, card: bytes, volume: str) -> tuple[bytes, bytes]:
    """Return a new key, and the same wrapped for a card's public key (X25519, 32 bytes)."""
    key = os.urandom(KEY_BYTES)
    return key, _SUITE.encrypt(key, X25519PublicKey.from_public_bytes(card), info=_INFO + volume.encode())


def unwrap(wrapped: bytes, *, card: X25519PrivateKey, volume: str) -> bytes:
    """Return a volume's key. Raises VolumeError if it was wrapped for another card or volume, or was changed."""
    try:
        key = _SUITE.decrypt(wrapped, card, info=_INFO + volume.encode())
    except (InvalidTag, ValueError) as error:
        raise VolumeError(
            f"volume {volume}: its key was made for another card, or for another volume; attach it with the key file "
            "of the card that it was created for"
        ) from error
    if len(key) != KEY_BYTES:
        raise VolumeError(
            f"volume {volume}: its key has {len(key)} bytes and not {KEY_BYTES}; it is of another version"
        )
    return key
