"""A volume's key, wrapped for one card."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from nitro_emu.ebs.errors import VolumeError
from nitro_emu.ebs.volume_key import WRAPPED_BYTES, make, unwrap
from nitro_emu.ebs.xts import KEY_BYTES

CARD = X25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = CARD.public_key().public_bytes_raw()


def test_the_card_unwraps_it_and_each_key_is_new() -> None:
    key, wrapped = make(card=PUBLIC, volume="vol-1")
    assert (len(key), len(wrapped)) == (KEY_BYTES, WRAPPED_BYTES)
    assert unwrap(wrapped, card=CARD, volume="vol-1") == key
    assert key not in wrapped
    assert make(card=PUBLIC, volume="vol-1")[0] != key


def test_another_card_another_volume_and_changed_bytes_are_refused() -> None:
    _, wrapped = make(card=PUBLIC, volume="vol-1")
    for found, card, volume in [
        (wrapped, X25519PrivateKey.generate(), "vol-1"),
        (wrapped, CARD, "vol-2"),
        (wrapped[:-1], CARD, "vol-1"),
        (b"", CARD, "vol-1"),
        (bytes(WRAPPED_BYTES), CARD, "vol-1"),
        *((wrapped[:at] + bytes([wrapped[at] ^ 1]) + wrapped[at + 1 :], CARD, "vol-1") for at in (0, 40, 111)),
    ]:
        with pytest.raises(VolumeError, match="its key was made for another card"):
            unwrap(found, card=card, volume=volume)
